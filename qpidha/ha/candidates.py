"""Candidates: what each broker of a cluster has, side by side, and which of them may be promoted by
that.

The rules of promotion as far as they concern content stand here once: for a broker that is to be
promoted, and for the operator who asks after a total failure which one it should be (`qpid-ha
recover`). A *complete* broker has everything that it ever confirmed. A broker that was started
again has what its log kept; it may be promoted only when every member of the newest in-sync set
has answered, none is complete and none has more (S4). Logs are compared by `(epoch, sequence)`: an
epoch begins with all that was committed before, so the greater log has it all.

A member may be *gone*: its disk was lost, and at its address is a new broker; or the operator says
that it will not come back (`--forget`). Then any other member that was started again has every
durable message: none was accepted before it was synced on each member. It may be promoted if those
who can tell of a newer set are enough: each set in force was recorded by a majority, so the others
must not have been one (S2).

Must not know how the others are asked. Source: rules S3 and S4 in `docs/internals/safety.md`; Raft
section 5.4.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.membership_store import MembershipStore
from qpidha.ha.peers import Consultation, Peers
from qpidha.ha.port import Report
from qpidha.ha.wire import Status
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.event_codes import (
    ANOTHER_IS_AHEAD,
    NOT_IN_SYNC_SET,
    OTHERS_SILENT,
    PROMOTION_REFUSED,
)

Refusal = tuple[str, str, str]
"""Why not, what to do, and the event code."""
STILL_CATCHING_UP = "Still catching up, cannot be promoted."


@dataclass(slots=True)
class Row:
    """What is known of one broker. `status` is the last that it sent, even if it has not
    `answered` now; nothing is concluded from such a one but what the newest set is.
    """

    name: str
    status: Status | None
    answered: bool

    @property
    def names(self) -> tuple[str, ...]:
        """What an operator may call it: its address, its name or its system id."""
        status = self.status
        return (self.name,) if status is None else (self.name, status.name, status.system_id)

    @property
    def point(self) -> tuple[int, int]:
        """How far its log goes."""
        return (0, 0) if self.status is None else (self.status.epoch, self.status.sequence)

    @property
    def is_complete(self) -> bool:
        """Whether it answered that it has all it ever confirmed."""
        return self.answered and self.status is not None and self.status.is_complete

    @property
    def votes(self) -> bool:
        """Whether it answered, and its vote counts."""
        return self.answered and self.status is not None and not self.status.is_new

    @property
    def is_primary(self) -> bool:
        """Whether it answered that it is one."""
        return (
            self.answered and self.status is not None and BrokerStatus(self.status.state).is_primary
        )


class Comparison:
    """All brokers of a cluster, as one of them sees them."""

    def __init__(
        self,
        own: Status,
        peers: Peers,
        answered: list[str],
        kept: InSyncSet | None = None,
        trouble: str = "",
        forget: str = "",
    ) -> None:
        self.strict = peers.strict
        self.ha_recorder = peers.ha_recorder
        self.kept = kept
        """What the manager's store keeps; None where it is not the recorder, or not known."""
        self.trouble = trouble
        """Why that is not known."""
        self.own = Row(own.address, own, answered=True)
        self.rows = [self.own]
        """Ourselves first. `answered` are addresses."""
        self.rows += [
            Row(peer.name, peer.known, peer.known is not None and peer.name in answered)
            for peer in peers.others()
        ]
        statuses = [row.status for row in self.rows if row.status is not None]
        self.newest = max(
            InSyncSet(each.in_sync_epoch, each.in_sync_version, each.in_sync_members)
            for each in statuses
        )
        """The newest set that any broker ever told us of; with a store, what it keeps of that."""
        # Each member of the store's record belongs to the set in force (`membership_store.py`). A
        # member that a newer set of the brokers lacks was dropped since: the record is then an old
        # copy, from the time when the brokers recorded sets or out of a backup of the store.
        if kept is not None and kept.members:
            newer = self.newest if self.newest > kept else kept
            self.newest = InSyncSet(
                newer.epoch,
                newer.version,
                tuple(member for member in kept.members if member in newer.members),
            )
        self.of: dict[str, Row] = {}
        """By system id; a broker may be known by two addresses."""
        for row in self.rows:
            if row.status is not None and (
                row.status.system_id not in self.of
                or row.answered > self.of[row.status.system_id].answered
            ):
                self.of[row.status.system_id] = row
        self.forget = forget.split()
        """What the operator calls the brokers that will not come back."""
        self.gone = self._find_gone()
        """The members of the newest set that will not come back."""

    def _find_gone(self) -> list[str]:
        # Where the manager is trusted no majority need have recorded the newest set (S8), and
        # silence is no obstacle there.
        if not self.strict:
            return []
        # The other members have been at some address. If each address is accounted for, a broker
        # that is at none of them has lost its data directory, with its system id.
        all_told = all(row.answered or self._is_forgotten(row) for row in self.rows)
        found = []
        for member in self.newest.members:
            row = self.of.get(member)
            if row is None:
                is_gone = all_told or member in self.forget
            else:
                is_gone = not row.answered and self._is_forgotten(row)
            if is_gone:
                found.append(member)
        return found

    def _is_forgotten(self, row: Row) -> bool:
        return any(name in self.forget for name in row.names)

    def name(self, system_id: str) -> str:
        """Return the address of a broker; where that is not known, those where it may be, or its
        system id.
        """
        row = self.of.get(system_id)
        if row is not None:
            return row.name
        return " or ".join(other.name for other in self.rows if other.status is None) or system_id

    def in_set(self, row: Row) -> bool:
        """Whether a broker is a member of the newest set."""
        return row.status is not None and row.status.system_id in self.newest.members

    def missing(self, row: Row | None = None) -> list[str]:
        """Return the addresses of those that must have answered, by `row`, and have not: the
        members of the newest set.

        For a broker without any content all must have answered: one that was dropped from the set
        and runs on may be the last that has anything.
        """
        if row is not None and row.point == (0, 0):
            return (
                [other.name for other in self.rows if not other.answered]
                if self.newest.members
                else []
            )
        silent = [
            member
            for member in self.newest.members
            if (member not in self.of or not self.of[member].answered) and member not in self.gone
        ]
        return list(dict.fromkeys(self.name(member) for member in silent))

    @property
    def gone_names(self) -> str:
        """Name the members that will not come back, for people."""
        return ", ".join(dict.fromkeys(self.name(member) for member in self.gone))

    def _memoryless(self) -> list[str]:
        """Name the brokers that cannot tell of a newer set: silent ones, those that know of none,
        and those without a log. These know what others told them (`newcomer.py`), and the others
        are asked themselves.
        """
        return [
            row.name
            for row in self.rows
            if not row.answered
            or row.status is None
            or not row.status.in_sync_epoch
            or row.point == (0, 0)
        ]

    def _forgotten_too_much(self, row: Row) -> Refusal | None:
        """Refuse where members are gone and those who are left cannot tell what the newest set is,
        or `row` has nothing.
        """
        if not self.gone:
            return None
        advice = "see what would be lost: qpid-ha recover"
        if row.point == (0, 0):
            return (
                f"{row.name} has nothing, and {self.gone_names} will not come back",
                advice,
                OTHERS_SILENT,
            )
        memoryless = self._memoryless()
        # With a store its record tells. Else the newest set was recorded by a majority: if less
        # than a majority has lost its memory, one of the others knows it.
        if self.kept is not None and self.kept.members:
            return None
        if 2 * max(len(memoryless), len(self.gone)) <= len(self.rows):
            return None
        return (
            f"{row.name} has {_written(row)}, all that is in its log, {self.gone_names} will not "
            f"come back, and {', '.join(memoryless) or 'the others'} cannot tell who else had "
            "acknowledged messages",
            f"start them with their former data-dir; to go on without, {advice}",
            OTHERS_SILENT,
        )

    def _mistaken(self) -> Refusal | None:
        """Refuse to forget a broker that is there, or that nobody has heard of."""
        for word in self.forget:
            rows = [row for row in self.rows if word in row.names]
            if any(row.answered for row in rows):
                return (
                    f"{word} is to be forgotten, and it answered",
                    "leave --forget out",
                    PROMOTION_REFUSED,
                )
            if not rows and word not in self.newest.members:
                names = ", ".join(row.name for row in self.rows if not row.answered) or "none"
                return (
                    f"no broker {word} is known",
                    f"those that did not answer: {names}",
                    PROMOTION_REFUSED,
                )
        return None

    def outside(self, row: Row) -> Refusal | None:
        """Refuse a broker that is not in the newest set."""
        if self.newest == InSyncSet() or self.in_set(row):
            return None
        members = ", ".join(self.name(member) for member in self.newest.members)
        return (
            f"not in the newest in-sync set: {members}",
            f"promote one of {members}, or wait until this broker is ready",
            NOT_IN_SYNC_SET,
        )

    def _unvouched(self) -> Refusal | None:
        """Refuse where the store lost its record and a broker is silent: the silent one may know a
        newer set than those who answered.
        """
        silent = ", ".join(other.name for other in self.rows if not other.answered)
        if self.kept is None or self.kept.members or not self.newest.members or not silent:
            return None
        return (
            "the cluster manager's store keeps no record, though this cluster has had "
            f"primaries, and {silent} did not answer",
            f"start {silent}; to go on without, see what would be lost: qpid-ha recover",
            OTHERS_SILENT,
        )

    def refusal(self, row: Row) -> Refusal | None:
        """Say why a broker must not be promoted for what it and the others have, or None."""
        assert row.status is not None
        mistake = self._mistaken()
        if mistake is not None:
            return mistake
        # A complete member has every committed record, by S1: no broker has more that counts.
        if row.is_complete:
            return self._unvouched() or self.outside(row)
        found = self._better(row) or self._unvouched() or self.outside(row)
        if found is not None:
            return found
        # Silence may hide a broker with more. A trusted manager has seen to it that the silent are
        # gone, but it does not promote who was catching up from one of them.
        if self.strict or row.status.state == BrokerStatus.CATCHUP.value:
            missing = ", ".join(self.missing(row))
            if missing:
                has = (
                    "has nothing"
                    if row.point == (0, 0)
                    else f"has {_written(row)}, all that is in its log"
                )
                return (
                    f"{row.name} {has}, and {missing} did not answer and may have newer "
                    "acknowledged messages",
                    f"start {missing}; to go on without, see what would be lost: qpid-ha recover",
                    OTHERS_SILENT,
                )
        return self._forgotten_too_much(row)

    def _better(self, row: Row) -> Refusal | None:
        """Name a broker that answered and stands in the way of one that is not complete."""
        for other in sorted(
            self.rows, key=lambda each: (each.is_complete, each.point), reverse=True
        ):
            if other is row or not other.answered or other.status is None:
                continue
            state = BrokerStatus(other.status.state)
            has_more = other.point > row.point
            is_member = self.in_set(other)
            # One that is complete and dropped from the set must not be promoted itself, but what it
            # has is to be looked at first.
            counts = is_member or state is BrokerStatus.READY or (self.strict and other.is_complete)
            if other.is_primary:
                hint = (
                    f"wait until this broker is ready, or hand over: qpid-ha switchover {row.name}"
                )
                return (
                    f"Joining active cluster, cannot be promoted. {other.name} is {state.value}.",
                    hint,
                    ANOTHER_IS_AHEAD,
                )
            if (other.is_complete and is_member) or (has_more and counts):
                what = (
                    f" and has {_written(other)}, this broker has {_written(row)}"
                    if has_more
                    else " and has what this broker may not have"
                )
                advice = (
                    f"promote {other.name} (qpid-ha promote there)"
                    if is_member
                    else f"restart {other.name}, it is out of date"
                )
                return (
                    f"Joining active cluster, cannot be promoted. {other.name} is "
                    f"{state.value}{what}.",
                    f"{advice}, or compare all: qpid-ha recover",
                    ANOTHER_IS_AHEAD,
                )
        return None

    def recommended(self) -> tuple[Row | None, str]:
        """Return the broker to promote, and why that one; or None, and why none."""
        for row in self.rows:
            if row.is_primary:
                return None, f"{row.name} is the primary: there is nothing to recover"
        mistake = self._mistaken()
        if mistake is not None:
            return None, f"{mistake[0]}; {mistake[1]}"
        if self.trouble:
            return None, f"what the cluster manager's store keeps is not known: {self.trouble}"
        voting = sum(row.votes for row in self.rows)
        if self.kept is None and self.strict and 2 * voting <= len(self.rows):
            new = [row.name for row in self.rows if row.answered and not row.votes]
            voteless = f" ({', '.join(new)}: new, and without a vote as yet)" if new else ""
            return (
                None,
                f"{voting} of {len(self.rows)} brokers answered{voteless}, and a majority must: "
                "start the others",
            )
        order = [self.of[member] for member in self.newest.members if member in self.of]
        able = [row for row in order or self.rows if row.answered and self.refusal(row) is None]
        if not able:
            missing = self.missing() or self.missing(self.own)
            if missing:
                return (
                    None,
                    f"{', '.join(missing)} did not answer and may have newer acknowledged "
                    f"messages: start {', '.join(missing)}, or use --accept-loss",
                )
            reasons = [
                found[0]
                for row in order
                if row.answered and (found := self.refusal(row)) is not None
            ]
            return None, reasons[0] if reasons else "no member of the newest in-sync set answered"
        best = max(able, key=lambda row: (row.is_complete, row.point))
        if not self.newest.members:
            return best, "this cluster has never had a primary: any broker will do"
        if best.is_complete:
            return best, "it has all that was ever accepted"
        if self.gone:
            return (
                best,
                f"{self.gone_names} will not come back; every durable message that was accepted is "
                f"on each other member of the in-sync set, and none that answered has more than "
                f"its {_written(best)}",
            )
        silent = self.missing(best)
        if silent:
            return (
                best,
                f"of those that answered none has more than its {_written(best)}; "
                f"{', '.join(silent)} did not answer and may have more",
            )
        return (
            best,
            f"all members of the in-sync set answered, and none has more than its {_written(best)}",
        )

    def losses(self, row: Row) -> dict[str, object]:
        """Tell what would be given up, as far as that is known, if a broker were promoted with
        --accept-loss.
        """
        more = [
            {
                "address": other.name,
                "epoch": other.point[0],
                "sequence": other.point[1],
                "answered": other.answered,
            }
            for other in self.rows
            if other is not row and other.point > row.point
        ]
        missing = [name for name in self.missing() if name != row.name]
        is_short = not row.is_complete and self._forgotten_too_much(row) is not None
        complete = [
            other.name
            for other in self.rows
            if other is not row and other.is_complete and self.in_set(other)
        ]
        outside = self.outside(row) is not None
        texts = [f"{other['address']} has {other['epoch']}:{other['sequence']}" for other in more]
        texts += [
            f"{name} did not answer and may have more"
            for name in missing
            if all(other["address"] != name for other in more)
        ]
        texts += [
            f"{name} has all that it ever confirmed"
            for name in complete
            if all(other["address"] != name for other in more)
        ]
        if self.gone and not row.is_complete:
            texts.append(
                f"{self.gone_names} will not come back: what it alone had"
                if is_short
                else f"{self.gone_names} will not come back: transient messages"
            )
        if outside:
            texts.append(
                f"{row.name} is not in the newest in-sync set: what was accepted since "
                "it was dropped"
            )
        if row.is_complete and not outside:
            texts = ["nothing that was accepted would be lost"]
        has = f"{row.name} has {_written(row)}"
        return {
            "address": row.name,
            "more_on": more,
            "not_heard": missing,
            "gone": [] if row.is_complete else [self.name(member) for member in self.gone],
            "live": complete,
            "complete": complete,
            "outside_set": outside,
            "text": f"{has}; {'; '.join(texts)}" if texts else f"{has}; nothing more is known of",
        }

    def report(self) -> dict[str, object]:
        """Tell all of it as plain data."""
        best, why = self.recommended()
        return {
            "schema_version": 1,
            "strict": self.strict,
            "recorder": self.ha_recorder,
            "newest_set": {
                "epoch": self.newest.epoch,
                "version": self.newest.version,
                "members": [
                    {"system_id": member, "address": self.name(member)}
                    for member in self.newest.members
                ],
            },
            "brokers": [self._described(row) for row in self.rows],
            "recommended": best.name if best is not None else None,
            "reason": why,
            "losses": [
                self.losses(row) for row in self.rows if row.answered and not row.is_primary
            ],
        }

    def _described(self, row: Row) -> dict[str, object]:
        status = row.status
        refusal = self.refusal(row) if row.answered and not row.is_primary else None
        return {
            "address": row.name,
            "system_id": status.system_id if status is not None else "",
            "name": status.name if status is not None else "",
            "answered": row.answered,
            "state": status.state if status is not None else "unknown",
            "is_live": status is not None and status.is_complete,
            "is_complete": status is not None and status.is_complete,
            "epoch": row.point[0],
            "sequence": row.point[1],
            "promised": status.promised if status is not None else 0,
            "in_newest_set": self.in_set(row),
            "refusal": refusal[0] if refusal is not None else "",
        }


def compare_all(
    peers: Peers,
    store: MembershipStore,
    status: Callable[[], Status],
    reply: Report,
    forget: str = "",
) -> None:
    """Ask all others what they have, and the store if `ha-recorder=manager`, and report how they
    compare, without those that are to `forget`. `status` gives how this broker is when the answers
    are there.
    """

    def consult(kept: InSyncSet | None, trouble: str) -> None:
        def done(consultation: Consultation) -> None:
            answered = [peer.name for peer in consultation.answered]
            found = Comparison(status(), peers, answered, kept, trouble, forget)
            reply(None, found.report())

        peers.consult(done)

    if store.is_used:
        store.read(consult)
    else:
        consult(None, "")


def _written(row: Row) -> str:
    return f"{row.point[0]}:{row.point[1]}"
