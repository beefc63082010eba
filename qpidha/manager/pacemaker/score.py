"""Promotion scores: how gladly Pacemaker may promote the broker of this node, from what that broker
says of itself.

Pure, so that every case is a test. Pacemaker promotes the highest score and nobody without one, so
the rule is strict: a broker outside the newest in-sync set never has a score, and one that merely
joins has one only at the first start of a cluster, or after a total failure if the brokers' own
comparison recommends it. Which set is the newest is known from the broker and from the record that
the primaries keep in Pacemaker's store. Source: rules S1 to S4 in docs/internals/safety.md; agents'
traps 1 and 2 of the Pacemaker laboratory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.model.broker_states import PRIMARY_STATES

Status = Mapping[str, Any]
"""A broker's answer to `status`."""
PRIMARY_SCORE = 1000
READY_SCORE = 100
FIRST_SCORE = 500
"""A broker of a cluster that never had a primary."""
RECOMMENDED_SCORE = 500
"""The best that is left after a total failure. Both are above what a ready one has: when the others
are ready a moment after the promotion, and say so before this broker has 1000, the promotion must
not move to one of them.
"""
BACKLOG_STEP = 1024
"""Records that a ready broker may have yet to apply without a worse score; each doubling costs one
more.
"""
WORST_BACKLOG = 40
"""Most that a backlog costs, so that a ready broker never comes near to nothing."""


def is_primary(status: Status) -> bool:
    """Whether the broker serves, and knows of no newer primary."""
    return status.get("state") in PRIMARY_STATES and int(status.get("epoch") or 0) >= int(
        status.get("promised") or 0
    )


def has_manager_store(status: Status) -> bool:
    """Whether this manager's store is what records in-sync sets."""
    return status.get("recorder") == "manager"


def is_cut_off(status: Status, *, store_fails: bool = False) -> bool:
    """Whether the broker is a primary that cannot go on: it hears no majority; or it waits for a
    store that cannot be changed here.
    """
    if status.get("state") not in PRIMARY_STATES or not status.get("strict"):
        return False
    return (
        bool(status.get("leaving")) and store_fails
        if has_manager_store(status)
        else not status.get("majority")
    )


def own_record(status: Status) -> InSyncRecord:
    """Return the newest in-sync set that the broker itself knows."""
    found = status.get("in_sync") or {}
    return InSyncRecord(
        int(found.get("epoch") or 0),
        int(found.get("version") or 0),
        tuple(found.get("members") or ()),
    )


def follows_primary(status: Status) -> bool:
    """Whether the broker is connected to a primary, and so has the newest in-sync set."""
    return any(
        member.get("connected") and member.get("state") in PRIMARY_STATES
        for member in _others(status)
    )


def is_first_start(status: Status, recorded: InSyncRecord | None) -> bool:
    """Whether nobody has ever recorded an in-sync set. Without knowledge of the manager's record
    (None) that is not known.
    """
    return (
        recorded is not None
        and not recorded.members
        and not own_record(status).members
        and status.get("state") == "joining"
    )


def needs_comparison(status: Status, recorded: InSyncRecord | None) -> bool:
    """Whether every broker that had everything is gone, so that the brokers must compare what they
    have. One that is ready and was dropped since has not everything: the primary that dropped it
    may have accepted more.
    """
    if status.get("state") not in ("joining", "catchup") or not _is_member(status, recorded):
        return False
    members = _newest(status, recorded).members
    return not follows_primary(status) and not any(
        member.get("connected")
        and member.get("state") == "ready"
        and member.get("system_id") in members
        for member in _others(status)
    )


def promotion_score(
    status: Status,
    recorded: InSyncRecord | None,
    *,
    waited: bool = False,
    recommended: bool = False,
) -> int | None:
    """Return the score of a broker, or None if it must not be promoted.

    `recorded` is the manager's record of the newest in-sync set (None: not known yet), `waited`
    whether a majority has been connected (or, where no majority counts, the broker has answered)
    for so long that the others need not be waited for, and `recommended` whether the comparison
    after a total failure named this broker.
    """
    if status.get("state") in PRIMARY_STATES:
        return PRIMARY_SCORE if is_primary(status) else None
    if is_first_start(status, recorded):
        if follows_primary(status):
            return None
        everybody = all(member.get("connected") for member in _others(status))
        enough = status.get("majority") or has_manager_store(status)
        return FIRST_SCORE if everybody or (waited and enough) else None
    if not _is_member(status, recorded):
        return None
    if status.get("state") == "ready":
        able = status.get("complete") and (
            status.get("majority") or not status.get("strict") or has_manager_store(status)
        )
        return READY_SCORE - _penalty(status) if able else None
    return RECOMMENDED_SCORE if recommended and needs_comparison(status, recorded) else None


def _is_member(status: Status, recorded: InSyncRecord | None) -> bool:
    """Whether the broker is in the newest in-sync set; nobody is while the manager's record is not
    known.
    """
    if recorded is None:
        return False
    if has_manager_store(status) and status.get("system_id") not in recorded.members:
        return False  # Whatever set is in force: the record decides.
    members = _newest(status, recorded).members
    return bool(status.get("system_id")) and status.get("system_id") in members


def _newest(status: Status, recorded: InSyncRecord | None) -> InSyncRecord:
    """Return the newest in-sync set that the broker or the manager knows."""
    own = own_record(status)
    return recorded if recorded is not None and recorded.order > own.order else own


def _penalty(status: Status) -> int:
    backlog = max(0, int(status.get("sequence") or 0) - int(status.get("applied") or 0))
    return min(WORST_BACKLOG, (backlog // BACKLOG_STEP).bit_length())


def _others(status: Status) -> list[Status]:
    return [
        member
        for member in status.get("members") or []
        if member.get("address") != status.get("address")
    ]
