"""Membership store: where the in-sync set is recorded with `ha-recorder=manager`.

The cluster manager's replicated store keeps one in-sync set, the record, and changes it only by
compare-and-set: N in the place of K, if K is what is kept. The manager's process beside the broker
does that (`qpidha-watch`, or the built-in manager). It asks the broker with the method `recording`,
which is answered as soon as a write is pending, and reports with `recorded` what the store keeps,
or why that is not known. A write is done when its very record is reported, at any time: no answer
belongs to a question, so either side may start again and any answer may come twice.

Why two brokers can do without a majority, and nothing acknowledged is lost whatever the manager
promotes. A record is written once: its epoch has one owner, who stands first in it, and the owner
never uses a version again. So what was replaced never comes back, and a late writer changes
nothing. A primary acknowledges what all members of its set in force have confirmed, and that set
has every member of every record that may be kept: it grows before it is recorded, and shrinks only
when the smaller one is kept. A candidate first promises its epoch, and from then on confirms
nothing of a lower one; then it puts that epoch in the place of a record K with itself in it. If
that succeeds, K was kept all the time, so no set without the candidate was in force since its
promise: all that was acknowledged it has. And the old primary never acknowledges more: that would
take the candidate's confirmation, or a record without it in the place of K. Who is fenced, or slow,
or cut off does not matter to this. Must not know what the store is. Source: rules S2, S3 and S8 in
docs/internals/safety.md; PacificA (MSR-TR-2008-25) section 2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.port import Port, Report
from qpidha.model.duration import SECOND
from qpidha.model.errors import InvalidArgument, NotAllowed
from qpidha.model.settings import Settings

PATIENCE = 5 * SECOND
"""How long a candidate, or a comparison, waits for the store, in ns."""
LONG_POLL = 10 * SECOND
"""After so long a poll is answered although nothing is wanted, in ns: who asked may be gone."""
MOST_POLLS = 16
"""Polls that may wait at a time; more come from a manager that forgets to hang up."""
NOBODY = "no cluster manager asks what is to be recorded"

Callback = Callable[[InSyncSet | None, str], None]
"""Takes what the store keeps; or None, and why that is not known."""


@dataclass(slots=True)
class PendingWrite:
    """A record that is to be kept in the place of another."""

    record: InSyncSet
    instead: InSyncSet
    callback: Callback
    since: int
    deadline: int
    """When to give up, 0 for never."""


class MembershipStore:
    """The manager's store, as one broker sees it; one write at a time."""

    def __init__(self, port: Port, settings: Settings) -> None:
        self.port = port
        self.is_used = settings.ha_recorder == "manager"
        self.kept = InSyncSet()
        """What the store kept when it was last known."""
        self.pending_write: PendingWrite | None = None
        self.trouble = NOBODY
        """Why what is wanted was not done, as far as that is known."""
        self._readers: list[tuple[Callback, int]] = []
        self._polls: list[tuple[Report, int]] = []

    # -- for the broker --------------------------------------------------------------------------

    def read(self, callback: Callback) -> None:
        """Call back with what the store keeps, or after `PATIENCE` with None and the reason."""
        self._readers.append((callback, self.port.now + PATIENCE))
        self._serve()

    def put(
        self, record: InSyncSet, instead: InSyncSet, callback: Callback, *, patience: int = 0
    ) -> None:
        """Write a record in the place of `instead`, and forget the write that was pending before.

        `callback` is called once, with what the store keeps as soon as that is not `instead`: this
        record, or another. With `patience`, in ns, it is called with None when that is over.
        """
        now = self.port.now
        since = self.pending_write.since if self.pending_write is not None else now
        self.pending_write = PendingWrite(
            record, instead, callback, since, now + patience if patience else 0
        )
        self._serve()

    def withdraw(self) -> None:
        """Forget the pending write. A manager that was told of it may record it all the same."""
        self.pending_write = None

    # -- for the manager --------------------------------------------------------------------------

    def exchange(self, kept: Mapping[str, object] | None, trouble: str, reply: Report) -> None:
        """Take the manager's word, or answer its question; raises InvalidArgument, and NotAllowed
        where the store is not the recorder.
        """
        if not self.is_used:
            raise NotAllowed(
                "this broker has ha-recorder=brokers: they record by themselves",
                hint="set ha-recorder=manager",
            )
        if kept is None and not trouble:
            self._poll(reply)
        else:
            self.report_kept(read_record(kept) if kept is not None else None, trouble)
            reply(None, self._wanted())

    def _poll(self, reply: Report) -> None:
        """The manager asks what to do; the answer waits until there is something."""
        if self._is_wanting:
            reply(None, self._wanted())
        else:
            self._polls.append((reply, self.port.now + LONG_POLL))
            for late, _ in self._polls[:-MOST_POLLS]:
                late(None, self._wanted())
            del self._polls[:-MOST_POLLS]
        if self.trouble == NOBODY:
            self.trouble = "it has not answered yet"

    def report_kept(self, kept: InSyncSet | None, trouble: str) -> None:
        """The manager says what the store keeps, or (None) why it cannot be asked or changed."""
        if kept is None:
            self.trouble = trouble or "the cluster manager did not say why"
            return
        self.kept, self.trouble = kept, "it has not answered yet"
        readers, self._readers = self._readers, []
        for callback, _ in readers:
            callback(kept, "")
        write = self.pending_write
        if write is not None and not kept.is_same(write.instead):
            self.pending_write = None
            write.callback(kept, "")

    # -- time -------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> int:
        """When to tick next, 0 for never."""
        due = [deadline for _, deadline in (*self._readers, *self._polls)]
        if self.pending_write is not None and self.pending_write.deadline:
            due.append(self.pending_write.deadline)
        return min(due, default=0)

    def tick(self, now: int) -> None:
        """Give up what is overdue."""
        late = [callback for callback, deadline in self._readers if now >= deadline]
        self._readers = [each for each in self._readers if now < each[1]]
        write = self.pending_write
        if write is not None and 0 < write.deadline <= now:
            self.pending_write = None
            late.append(write.callback)
        for callback in late:
            callback(None, self.trouble)
        gone = [reply for reply, deadline in self._polls if now >= deadline]
        self._polls = [each for each in self._polls if now < each[1]]
        if not self._polls and gone:
            self.trouble = NOBODY
        for reply in gone:
            reply(None, self._wanted())

    # -- both -------------------------------------------------------------------------------------

    @property
    def _is_wanting(self) -> bool:
        return self.pending_write is not None or bool(self._readers)

    def _serve(self) -> None:
        polls, self._polls = self._polls, []
        for reply, _ in polls:
            reply(None, self._wanted())

    def _wanted(self) -> dict[str, object]:
        write = self.pending_write
        return {
            "wanted": self._is_wanting,
            "record": fields_of(write.record) if write is not None else None,
            "instead": fields_of(write.instead) if write is not None else None,
        }

    def report(self) -> dict[str, object] | None:
        """Tell what is to be recorded, and why it is not yet; None if nothing is."""
        write = self.pending_write
        if write is None:
            return None
        return {**fields_of(write.record), "since_ns": write.since, "trouble": self.trouble}


def fields_of(set_: InSyncSet) -> dict[str, object]:
    """Write a record as plain data; one without members is none."""
    return {"epoch": set_.epoch, "version": set_.version, "members": list(set_.members)}


def read_record(fields: Mapping[str, object]) -> InSyncSet:
    """Read a record from plain data; raises InvalidArgument."""
    epoch, version, members = fields.get("epoch"), fields.get("version"), fields.get("members")
    if (
        type(epoch) is int
        and type(version) is int
        and isinstance(members, list)
        and all(isinstance(each, str) for each in members)
    ):
        return InSyncSet(epoch, version, tuple(members))
    raise InvalidArgument(
        "kept is no in-sync set",
        hint='give {"epoch": 1, "version": 0, "members": ["ID", ...]}, as recording does',
    )
