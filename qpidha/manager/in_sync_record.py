"""The in-sync record of the built-in manager: the newest in-sync set it has heard of, kept in its
directory.

Of two brokers no majority is left when one is gone, so somebody else has to remember which of them
had everything. The manager learns each set from the brokers' statuses and writes it down before it
acts on it; `choose` promotes nobody outside the newest one. What a primary dropped so shortly
before its end that no status told it, is not known here: that is why a broker of a `strict` cluster
asks a majority as well. With `ha-recorder=manager` the brokers do without a majority, and the file
changes only as they want it, by compare-and-set. A file that cannot be read counts as a reason to
stop, not as an empty record. Knows nothing of brokers. Source: rules S2 and S3 in
docs/internals/safety.md; PacificA's configuration manager.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from qpidha.model.errors import InvalidArgument


class InSyncRecord(NamedTuple):
    """An in-sync set; a later one is greater."""

    epoch: int = 0
    version: int = 0
    members: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int]:
        """What two sets are compared by."""
        return (self.epoch, self.version)


class InSyncStore:
    """The newest set, on disk."""

    __slots__ = ("newest", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.newest = self._read()

    def record(self, given: InSyncRecord) -> bool:
        """Keep a set if it is newer than the one that is known; return whether it was. Raises
        OSError if it cannot be kept.
        """
        if not given.members or given.order <= self.newest.order:
            return False
        self._write(given)
        return True

    def replace(self, given: InSyncRecord, instead: InSyncRecord) -> InSyncRecord:
        """Put a set in the place of the one that is kept, if that is `instead`; return what is kept
        then. Raises OSError.
        """
        if self.newest == instead:
            self._write(given)
        return self.newest

    def _write(self, given: InSyncRecord) -> None:
        text = json.dumps(
            {
                "schema_version": 1,
                "epoch": given.epoch,
                "version": given.version,
                "members": list(given.members),
            }
        )
        fresh = self.path.with_suffix(".new")
        with fresh.open("w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self.newest = given

    def forget(self) -> None:
        """Begin anew: there is no broker any more that the set could mean."""
        self.path.unlink(missing_ok=True)
        self.newest = InSyncRecord()

    def _read(self) -> InSyncRecord:
        try:
            found = json.loads(self.path.read_text())
            return InSyncRecord(
                int(found["epoch"]),
                int(found["version"]),
                tuple(str(member) for member in found["members"]),
            )
        except FileNotFoundError:
            return InSyncRecord()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(
                f"{self.path}, the record of the in-sync set, cannot be read: {error}",
                hint="put it back; or remove it, and the brokers' own records count alone",
            ) from error
