"""Placement: which broker should be primary, given what is known of all of them.

A pure decision, so that it can be tested without processes. A broker in state ready holds
everything that was ever acknowledged; of several the one that is furthest in the log is taken.
Without a ready one there are two cases: a cluster that starts for the first time, and one that lost
all its in-sync brokers (then every member of the newest recorded in-sync set must be there to be
compared, which the brokers themselves do when one of them is asked to `recover`). The broker itself
checks again and may refuse.
"""

from __future__ import annotations

from dataclasses import dataclass

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.model.broker_states import PRIMARY_STATES

NOTHING_RECORDED = InSyncRecord()


@dataclass(slots=True)
class Member:
    """What a manager knows of one broker. `healthy` is whether it answered its last ping in
    time.
    """

    name: str
    address: str
    alive: bool = False
    healthy: bool = False
    state: str = "unknown"
    epoch: int = 0
    sequence: int = 0
    system_id: str = ""
    in_sync_version: tuple[int, int] = (0, 0)
    in_sync: tuple[str, ...] = ()
    handing_over: str = ""
    """To whom it hands over, or has just handed over, by address or system id; empty usually."""

    @property
    def position(self) -> tuple[int, int]:
        """How far in the log the broker is."""
        return (self.epoch, self.sequence)

    @property
    def is_primary(self) -> bool:
        """Whether it answers and says that it was promoted."""
        return self.healthy and self.state in PRIMARY_STATES


@dataclass(slots=True)
class Choice:
    """The broker to promote, or none and why not."""

    name: str
    reason: str
    compare: bool = False
    """Whether no broker has everything for certain, so that what they have must be compared first.
    """


def primary_of(members: list[Member]) -> Member | None:
    """Find the healthy primary with the highest epoch."""
    primaries = [member for member in members if member.is_primary]
    return max(primaries, key=lambda member: member.epoch) if primaries else None


def choose(
    members: list[Member],
    *,
    waited: bool = False,
    refused: tuple[str, ...] = (),
    recorded: InSyncRecord = NOTHING_RECORDED,
) -> Choice:
    """Choose whom to promote.

    `waited` is whether slow starters had their time, `refused` are names that said no just now, and
    `recorded` is the newest in-sync set that the manager itself has kept: nobody outside the newest
    of all sets is chosen.
    """
    healthy = [member for member in members if member.healthy]
    newest = max(healthy, key=lambda member: member.in_sync_version, default=None)
    in_sync = (
        recorded.members
        if newest is None or recorded.order > newest.in_sync_version
        else newest.in_sync
    )
    ready = [member for member in healthy if member.state == "ready"]
    current = [
        member
        for member in ready
        if not in_sync or not member.system_id or member.system_id in in_sync
    ]
    if current:
        return _furthest(current, refused, "ready and furthest in the log")
    joining = [member for member in healthy if member.state == "joining"]
    if in_sync:
        return _after_total_failure(len(members), healthy, joining, in_sync, refused)
    if len(joining) == len(members) or (waited and len(joining) * 2 > len(members)):
        return _furthest(joining, refused, "first start")
    return Choice("", f"first start: {len(joining)} of {len(members)} brokers are there")


def _after_total_failure(
    count: int,
    healthy: list[Member],
    joining: list[Member],
    in_sync: tuple[str, ...],
    refused: tuple[str, ...],
) -> Choice:
    present = {member.system_id for member in healthy}
    missing = [system_id for system_id in in_sync if system_id not in present]
    # A member that is at no address any more has lost its disk. The brokers know what that means.
    if missing and len(healthy) < count:
        return Choice(
            "",
            f"no ready broker, and {len(missing)} of {len(in_sync)} members of the last "
            "in-sync set are missing",
        )
    candidates = [member for member in joining if member.system_id in in_sync]
    if not candidates:
        stale = [member for member in healthy if member.state == "ready"]
        why = (
            f"{_names(stale)} ready, but no longer in the newest in-sync set"
            if stale
            else "no ready broker"
        )
        return Choice("", f"{why}, and no member of that set can be promoted")
    choice = _furthest(candidates, refused, "furthest of the last in-sync set")
    choice.compare = True
    return choice


def _furthest(members: list[Member], refused: tuple[str, ...], reason: str) -> Choice:
    # A broker that refused goes to the end of the row; when all refused, all are asked again.
    rest = [member for member in members if member.name not in refused] or members
    return Choice(max(rest, key=lambda member: member.position).name, reason)


def _names(members: list[Member]) -> str:
    return ", ".join(member.name for member in members) + (" is" if len(members) == 1 else " are")
