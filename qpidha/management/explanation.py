"""Explanation: what a broker waits for at present, and which queues it concerns.

The HA machine knows which broker is waited for, why and since when; the queues know which of their messages
that keeps from being accepted. Here the two are put together for `qpid-ha status --explain`.
Decides nothing. Source: DESIGN section 5 (S2); Qpid QPID-5973, a primary that recovered for ever and did not say why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.management.schema import unsafe_messages

if TYPE_CHECKING:
    from qpidha.management.target import Target

SHOWN_QUEUES = 5
"""Queues that are named; those with the most unsafe messages."""


def explained(target: Target) -> dict[str, Any]:
    """Tell what is waited for and what it keeps waiting."""
    status = target.status()
    counts = [(unsafe_messages(queue, target), queue.name) for queue in target.broker.queues.values()]
    unsafe = sorted(((count, name) for count, name in counts if count), key=lambda row: (-row[0], row[1]))
    return {
        "schema_version": 1,
        "name": status.get("name", ""),
        "address": status.get("address", ""),
        "state": status.get("state", ""),
        "since_ns": status.get("since_ns", 0),
        "now_ns": target.now,
        "held": status.get("held", 0),
        "unsafe_messages": sum(count for count, _ in unsafe),
        "unsafe_queues": len(unsafe),
        "queues": [{"name": name, "unsafe": count} for count, name in unsafe[:SHOWN_QUEUES]],
        "waits": target.explain(),
    }
