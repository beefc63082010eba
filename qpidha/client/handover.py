"""Handover: which broker of a cluster could take over the role of the primary, and why others could
not, from what the brokers said of themselves.

What a command prints before it hands over, and what a console answers. Decides nothing: the brokers
do that, by the rules of promotion. Knows neither sockets nor a command line.
"""

from __future__ import annotations

from typing import Any

from qpidha.model.broker_states import PRIMARY_STATES

Status = tuple[str, dict[str, Any]]
"""Address of a broker, and what it said, or another one of it: name, state, epoch, sequence,
system_id, in_sync.
"""


def primary_of(statuses: list[Status]) -> Status | None:
    """Find the primary, of several the one with the highest epoch."""
    primaries = [one for one in statuses if one[1].get("state") in PRIMARY_STATES]
    return max(primaries, key=lambda one: int(one[1].get("epoch", 0)), default=None)


def named(one: Status) -> str:
    """Say which broker that is, by its name and address."""
    name = one[1].get("name")
    return f"{name} ({one[0]})" if name and name != one[0] else one[0]


def unfit(one: Status, statuses: list[Status], primary: Status | None) -> str:
    """Say why a broker may not take over; empty if it may."""
    state = str(one[1].get("state", "unknown"))
    if primary is not None and one[0] == primary[0]:
        return "is the primary"
    if state != "ready":
        return f"is {state}"
    newest = max(
        (status.get("in_sync") or {} for _, status in statuses),
        key=lambda set_: (set_.get("epoch", 0), set_.get("version", 0)),
    )
    members = newest.get("members") or []
    return (
        ""
        if not members or one[1].get("system_id") in members
        else "is not in the newest in-sync set"
    )


def candidates(statuses: list[Status], primary: Status | None) -> list[Status]:
    """Return the brokers that may take over, the one with most of the log first."""
    fit = [one for one in statuses if not unfit(one, statuses, primary)]
    return sorted(
        fit,
        key=lambda one: (int(one[1].get("epoch", 0)), int(one[1].get("sequence", 0))),
        reverse=True,
    )


def only_here(status: dict[str, Any]) -> str:
    """Say which messages a broker has that no other one has, from its status; empty for none."""
    kept = status.get("local_journal") or {}
    messages, queues = int(kept.get("messages") or 0), int(kept.get("queues") or 0)
    if not messages:
        return ""
    of_messages = f"{messages:,} message{'' if messages == 1 else 's'}"
    of_queues = f"{queues:,} queue{'' if queues == 1 else 's'}"
    return (
        f"{of_messages} on {of_queues} that are not replicated, only on "
        f"{status.get('name') or status.get('address')}: there again when it is primary again"
    )


def plan_line(primary: Status | None, target: Status | None) -> str:
    """Say in a line from which broker to which the role would go."""
    return (
        f"plan: {named(primary) if primary else 'no primary'} -> "
        f"{named(target) if target else 'none'}"
    )


def plan_rows(statuses: list[Status], primary: Status | None) -> list[dict[str, Any]]:
    """Say of each broker whether it can take over."""
    rows = []
    for one in statuses:
        why = unfit(one, statuses, primary)
        fields = {
            "name": one[1].get("name", ""),
            "address": one[0],
            "state": one[1].get("state"),
            "sequence": one[1].get("sequence"),
        }
        rows.append({**fields, "can_take_over": not why, "reason": why})
    return rows


def loss_of(comparison: dict[str, Any], address: str) -> str:
    """Say what would be given up if that broker were promoted, from the answer to `recover`."""
    text = losses_of(comparison, address).get("text")
    return str(text) if text else f"what others have and {address} has not, which is not known"


def losses_of(comparison: dict[str, Any], address: str) -> dict[str, Any]:
    """Return the row of that broker among the losses."""
    rows: list[dict[str, Any]] = comparison.get("losses") or []
    return next((row for row in rows if row.get("address") == address), {})
