"""The in-sync set and the state file: what a broker must remember of its cluster across a restart.

The set names the brokers that have every committed record (S1). It is versioned by
`(epoch, version)`, because a broker that was away must be able to tell that another one knows a
newer set; a broker outside the newest set must never be promoted (S3). An epoch comes first in the
version, as only one primary makes sets in it. The file has the highest promised epoch as well (S5),
whether the broker is new (`newcomer.py`), and a checksum: a promise with one bit changed is another
promise.

Must not know who changes them: `promises.py` does. Source: `docs/internals/safety.md`; PacificA
(MSR-TR-2008-25) section 2.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from zlib import crc32

from qpidha.model.errors import StateLost

CHECKSUM = "crc32"
"""The field with the checksum of all others; a file of a version before it has none."""
AS_NEW = "move the whole data-dir away, while all others are there, to join as a new broker"


@dataclass(frozen=True, slots=True, order=True)
class InSyncSet:
    """A version of the set; the newer of two is the greater. `members` are system ids, the primary
    first.
    """

    epoch: int = 0
    version: int = 0
    members: tuple[str, ...] = field(default=(), compare=False)

    def is_same(self, other: InSyncSet) -> bool:
        """Whether it is the very same record: two candidates may want one epoch, each with itself
        first.
        """
        return (self.epoch, self.version, self.members) == (
            other.epoch,
            other.version,
            other.members,
        )


@dataclass(slots=True)
class SavedState:
    """The content of the state file."""

    promised: int = 0
    in_sync: InSyncSet = InSyncSet()
    is_new: bool = False
    """Whether it does not know yet what the broker before it, at its address, may have promised."""

    def encode(self) -> bytes:
        """Write it as JSON, so that an operator can read it."""
        set_ = self.in_sync
        fields: dict[str, object] = {
            "promised": self.promised,
            "in_sync": {
                "epoch": set_.epoch,
                "version": set_.version,
                "members": list(set_.members),
            },
        }
        if self.is_new:
            fields["is_new"] = True
        return json.dumps({**fields, CHECKSUM: _checksum(fields)}, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes, epoch: int = 0) -> SavedState:
        """Read it back, beside a log that ends in `epoch`; empty bytes are the state of a new
        broker, whose log is empty.

        Raises StateLost: a broker with a log and no word of what it promised would promise again
        what it must not, and vouch for a set that it has forgotten.
        """
        if not data:
            if epoch:
                raise StateLost(
                    f"the state file is gone, and the write-ahead log has records of epoch {epoch}",
                    hint=AS_NEW,
                )
            return cls(is_new=True)
        try:
            fields = json.loads(data)
            checksum = fields.pop(CHECKSUM, None)
            is_earlier = checksum is None and len(fields) == 2
            if not is_earlier and checksum != _checksum(fields):
                raise ValueError("it has another checksum")
            set_ = fields["in_sync"]
            return cls(
                max(_number(fields["promised"]), epoch),
                InSyncSet(
                    _number(set_["epoch"]), _number(set_["version"]), _members(set_["members"])
                ),
                fields.get("is_new") is True,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateLost(f"the state file cannot be read: {error}", hint=AS_NEW) from error


def newest_of(file: bytes, copy: bytes) -> bytes:
    """Return what a broker goes on with, of its state file and the copy of that: what is newer in
    either, if both can be read; the file, to be refused with the reason, if neither can or it is
    gone.
    """
    one, other = _whole(file), _whole(copy)
    if not file or other is None:
        return file
    if one is None:
        return copy
    newest = SavedState(
        max(one.promised, other.promised),
        max(one.in_sync, other.in_sync),
        one.is_new and other.is_new,
    )
    return file if newest == one else newest.encode()


def _whole(data: bytes) -> SavedState | None:
    """Read the content of a state file, if there is one that can be read."""
    try:
        return SavedState.decode(data) if data else None
    except StateLost:
        return None


def _checksum(fields: dict[str, object]) -> str:
    """Sum up what the fields say, however it is written."""
    return f"{crc32(json.dumps(fields, sort_keys=True).encode()):08x}"


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no number of an epoch or a version")
    return value


def _members(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(member, str) for member in value):
        raise ValueError(f"{value!r} are no system ids")
    return tuple(value)
