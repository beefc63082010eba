"""Promises: the one owner of what a broker has promised, and of what it knows to be in sync.

The safety of the cluster rests on five facts that every broker keeps of itself: the highest epoch
that it has promised, to whom it gave its last promise, the newest in-sync set that it has heard of,
whether it is complete, and whether it may have forgotten any of that. They are read everywhere and
changed only here, so that each change is checked against its rule and what must survive a restart
is in the state file before a peer is told. Must not know why a candidate asks, nor how the others
are asked. Source: rules S1 to S5 in `docs/internals/safety.md`; PacificA (MSR-TR-2008-25) section
2.3; Raft section 5.2 (a vote).
"""

from __future__ import annotations

from collections.abc import Callable

from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.ha.port import Port
from qpidha.model.errors import InvariantBroken

FARTHEST = 1 << 32
"""How far beyond the promised epoch another may be that is agreed to: no cluster has begun so many
since. Who asks for the last number that can be written would leave none for the next primary.
"""


class Promises:
    """What this broker has promised, and the newest in-sync set that it knows.

    Invariants:
    - `promised` never falls, and `in_sync` never becomes an older set.
    - Both are in the state file before a message that follows from them leaves (S5): the port
      holds it back so long, and a broker whose state file cannot be written stops.
    - After a restart `is_complete` is False, whatever the log has (S4).
    - A broker that is new grants no promise and records no set.
    """

    __slots__ = (
        "_candidacy",
        "_changed",
        "_founders",
        "_granted",
        "_in_sync",
        "_is_complete",
        "_is_new",
        "_port",
        "_promised",
        "_system_id",
    )

    def __init__(
        self, port: Port, system_id: str, saved: SavedState, changed: Callable[[], None]
    ) -> None:
        self._port = port
        self._system_id = system_id
        self._changed = changed
        """Called when a newer set is known, to let the other brokers know."""
        self._promised = saved.promised
        self._in_sync = saved.in_sync
        self._is_new = saved.is_new
        self._founders: tuple[str, ...] = ()
        self._granted = (0, "")
        self._candidacy = 0
        # A restart loses transient records, and durable ones that were not synced. So a broker
        # that starts is not complete, even if the newest set names it: only a primary can tell.
        self._is_complete = False

    @property
    def promised(self) -> int:
        """The highest epoch that this broker has agreed to; anything of a lower one is refused."""
        return self._promised

    @property
    def granted(self) -> tuple[int, str]:
        """The last promise that was given to another broker: the epoch, and its system id."""
        return self._granted

    @property
    def candidacy(self) -> int:
        """The promised epoch if this broker promised it to itself, did not begin it and was not
        refused it: it may be asked for again. Else 0.
        """
        return self._candidacy if self._candidacy == self._promised else 0

    @property
    def in_sync(self) -> InSyncSet:
        """The newest in-sync set that this broker has heard of."""
        return self._in_sync

    @property
    def is_complete(self) -> bool:
        """Whether, since it started, this broker has everything that it confirmed or accepted as a
        member of the in-sync set.
        """
        return self._is_complete

    # -- a new broker -----------------------------------------------------------------------------

    @property
    def is_new(self) -> bool:
        """Whether this broker started without a state file and has not heard yet what it may have
        promised before: it grants nothing and records nothing (`newcomer.py`).
        """
        return self._is_new

    @property
    def founders(self) -> tuple[str, ...]:
        """The system ids of the others with which this one began a new cluster, as long as that has
        no set.
        """
        return self._founders

    def hear(self, promised: int, in_sync: InSyncSet) -> None:
        """Take up what another broker told while this one is new."""
        if promised > self._promised:
            self._raise(promised)
        self.learn(in_sync)

    def recollect(self, promised: int, in_sync: InSyncSet, founders: tuple[str, ...]) -> None:
        """Take up what others told, in place of what this broker may have forgotten: it is new no
        longer (S5).
        """
        self._is_new = False
        self._founders = founders
        self._promised = max(self._promised, promised)
        self._in_sync = max(self._in_sync, in_sync)
        self._save()
        self._changed()

    # -- epochs -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Write the state file, before anything follows from what was read there: a former process
        may have ended before that was synced.

        A broker that has none gets one before it has a log of any epoch. A log without a state file
        then means that the file was lost, and with it the promises: such a broker is refused at its
        start (S5).
        """
        self._save()

    def grant(self, epoch: int, candidate: str) -> bool:
        """Promise an epoch to a candidate, and return whether that was done (S3).

        An epoch is promised once, to one candidate: two majorities share a broker, so no two
        candidates get a majority of promises for one epoch. The candidate may ask again, because
        the answer was lost; the second answer is the same as the first.
        """
        if (epoch, candidate) == self._granted:
            return True
        if epoch <= self._promised or self._is_new or self.is_too_far(epoch):
            return False
        self._granted = (epoch, candidate)
        self._raise(epoch)
        return True

    def is_too_far(self, epoch: int) -> bool:
        """Whether no candidate that has heard of any other can mean this epoch."""
        return epoch > self._promised + FARTHEST

    def promise_self(self, epoch: int) -> None:
        """Promise an epoch to this broker itself, which is a candidate for it (S3).

        Raises InvariantBroken if the epoch is not higher than the promised one: it may belong to
        another broker, and two primaries of one epoch would write different records under the
        same identity.
        """
        if epoch <= self._promised:
            raise InvariantBroken(f"epoch {epoch} is begun, and {self._promised} is promised")
        self._candidacy = epoch
        self._raise(epoch)

    def refused(self) -> None:
        """Take note that another broker refused the candidacy: the next epoch is a higher one."""
        self._candidacy = 0

    def follow(self, epoch: int) -> bool:
        """Agree to follow the primary of an epoch; return whether it is not too low (S5)."""
        if epoch > self._promised:
            self._raise(epoch)
        return epoch == self._promised

    def begin_epoch(self, first: InSyncSet) -> bool:
        """Begin an epoch as its primary, with its first set; return whether this broker was
        complete before (S4).

        What the log of a primary has is what counts from now on, so a primary is complete by
        definition. Raises InvariantBroken for an epoch that is not the promised one (S5).
        """
        if first.epoch != self._promised:
            raise InvariantBroken(f"epoch {first.epoch} is begun, and {self._promised} is promised")
        was_complete = self._is_complete
        self.complete(first)
        self._candidacy = 0
        if self._is_new:  # by the operator's decision, whatever it may have promised
            self._is_new = False
            self._save()
        return was_complete

    # -- the in-sync set --------------------------------------------------------------------------

    def record(self, set_: InSyncSet) -> bool:
        """Record a set for the primary that asks for it; return whether that was done (S2).

        A broker that has promised a higher epoch refuses: its candidate may have been told of an
        older set, and would be promoted by that while the smaller one came into force. To record
        a set is to agree to its epoch.
        """
        if set_.epoch < self._promised or self._is_new or self.is_too_far(set_.epoch):
            return False
        if set_ > self._in_sync:
            self._promised = set_.epoch
            self.learn(set_)
        elif set_.epoch > self._promised:
            self._raise(set_.epoch)
        return True

    def learn(self, set_: InSyncSet) -> None:
        """Remember a set that a peer tells of, if it is newer than the known one, and let the
        other brokers know (S1).

        Also a broker outside the set remembers it: only so it knows that it is outside, and a
        candidate that asks it learns of the newest set (S3).
        """
        if set_ is not self._in_sync and set_ > self._in_sync:
            self._in_sync = set_
            self._founders = ()
            self._save()
            self._changed()

    # -- complete ---------------------------------------------------------------------------------

    def is_member(self, set_: InSyncSet) -> bool:
        """Whether this broker is a member of a set."""
        return self._system_id in set_.members

    def complete(self, set_: InSyncSet) -> None:
        """Count as complete: a primary has put this broker into its set, or it is the primary.

        Raises InvariantBroken for a set without this broker (S4).
        """
        if not self.is_member(set_):
            raise InvariantBroken(f"{self._system_id} is outside the set that makes it complete")
        self._is_complete = True

    def incomplete(self) -> None:
        """Count as incomplete: this broker was dropped from the set, or has to fetch records that
        it confirmed before.
        """
        self._is_complete = False

    # ---------------------------------------------------------------------------------------------

    def _raise(self, epoch: int) -> None:
        self._promised = epoch
        self._save()

    def _save(self) -> None:
        self._port.save(SavedState(self._promised, self._in_sync, self._is_new).encode())
