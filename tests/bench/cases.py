"""The cases of the benchmark: what a queue is like, and with what it is loaded.

`KINDS` compares kinds of queues. All of them get the same messages, which have a priority, a group
and a property that is different in each, and the first kind is a queue in the order of arrival that
reads nothing of that: what another one costs more is what it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GROUPS = 100
"""How many groups take turns in the messages."""
ANY_KIND = ("-g", str(GROUPS))


@dataclass(slots=True, frozen=True)
class Case:
    """What is done to a subject."""

    title: str
    is_kept: bool = False
    """Whether nobody consumes."""
    is_durable: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)
    """Those of the queue."""
    flags: tuple[str, ...] = ()
    """More for the load generator of AMQP 1.0."""


FIFO = "fifo"
KINDS = {
    FIFO: Case("in the order of arrival", flags=ANY_KIND),
    "priorities": Case("10 priorities", arguments={"qpid.priorities": 10}, flags=ANY_KIND),
    "fair-shares": Case(
        "2 priorities in shares", arguments={"x-priority-mode": "fair"}, flags=ANY_KIND
    ),
    "ttl": Case("the queue's TTL", arguments={"x-message-ttl": 60_000}, flags=ANY_KIND),
    "sender-ttl": Case("the sender's TTL", flags=(*ANY_KIND, "-T", "60000")),
    "delivery-limit": Case("a delivery limit", arguments={"x-delivery-limit": 5}, flags=ANY_KIND),
    "last-value": Case(
        "last values", arguments={"qpid.last_value_queue_key": "key"}, flags=ANY_KIND
    ),
    "groups": Case(
        f"{GROUPS} groups", arguments={"qpid.group_header_key": "JMSXGroupID"}, flags=ANY_KIND
    ),
    "selector": Case("a selector", flags=(*ANY_KIND, "-f", "key <> 'none'")),
}
"""Each beside the first."""
CASES = {
    "consumed": Case("sent and consumed"),
    "kept": Case("sent, nothing consumed", is_kept=True),
    "durable": Case("durable, consumed", is_durable=True),
    "durable-kept": Case("durable, kept", is_kept=True, is_durable=True),
    **KINDS,
}
