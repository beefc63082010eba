"""The cases of the benchmark: with what load a cluster is measured, and what it is to cost.

`TABLE` has the cases in which clusters are compared; each has the target that our cluster of three
is to reach, and targets are written here and nowhere else. `RATES` has more rates. `KINDS` compares
kinds of queues: all of them get the same messages, which have a priority, a group and a property
that is different in each, and the first kind is a queue in the order of arrival that reads nothing
of that: what another one costs more is what it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KIB = 1024
MIB = KIB * KIB
GROUPS = 100
"""How many groups take turns in the messages of `KINDS`."""
ANY_KIND = ("-g", str(GROUPS))


@dataclass(slots=True, frozen=True)
class Load:
    """What senders and receivers do in one run."""

    producers: int = 1
    consumers: int = 1
    """0 keeps the messages."""
    window: int = 500
    """Messages of a sender without an outcome, at most."""
    credit: int = 1000
    """Of a receiver."""
    size: int = 100
    """Bytes of a body."""
    is_durable: bool = False
    is_pair_apart: bool = False
    """Whether each sender and receiver have a queue of their own."""
    queues: int = 1
    """Used in turn by each sender; each pair has its own if they are apart."""
    fan_out: int = 0
    """To so many queues, each with a receiver, through one exchange; 0 is no exchange."""
    rate: float = 0.0
    """Messages a second of all senders together; 0 is as many as they can."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Those of the queue: ours only."""
    flags: tuple[str, ...] = ()
    """More for amqpbench: ours only."""


Figures = Mapping[str, float]


@dataclass(slots=True, frozen=True)
class Case:
    """A row of the table for each subject."""

    title: str
    load: Load = Load()
    target: Figures = field(default_factory=dict)
    """Figures of `report.COLUMNS` that three of our brokers are to reach, by name."""
    way: str = "load"
    """`load`, or what is done in its place: `declare`, `backlog` or `idle` (`run.WAYS`)."""
    is_fresh: bool = False
    """Whether it is measured once, on brokers started for it: memory that was taken is seldom
    given back, so what was before would count.
    """


def _us(cpu: float, **more: float) -> Figures:
    return {"cpu_us_per_message": cpu, **more}


_SYNCHRONOUS = Load(window=1)
_10_KIB = Load(size=10 * KIB, window=200, credit=400)
_100_KIB = Load(size=100 * KIB, window=50, credit=100)
_1_MIB = Load(size=MIB, window=10, credit=20)


def _durable(load: Load) -> Load:
    return Load(
        size=load.size, window=load.window, credit=load.credit, rate=load.rate, is_durable=True
    )


TABLE = {
    "consumed": Case("100 B, consumed", target=_us(7)),
    "kept": Case("100 B, kept", Load(consumers=0), _us(5)),
    "durable": Case("100 B, durable, consumed", Load(is_durable=True), _us(10)),
    "window-1": Case("a synchronous sender", _SYNCHRONOUS, _us(180, ack_p50_ms=0.13)),
    "window-1-durable": Case(
        "the same, durable (p50: a sync and 0.1 ms)", _durable(_SYNCHRONOUS), _us(400)
    ),
    "10kib": Case("10 KiB", _10_KIB, _us(28)),
    "100kib": Case("100 KiB", _100_KIB, _us(150)),
    "1mib": Case("1 MiB", _1_MIB, _us(1700)),
    "100kib-durable": Case("100 KiB, durable", _durable(_100_KIB), _us(250)),
    "1mib-durable": Case("1 MiB, durable", _durable(_1_MIB), _us(2500)),
    "rate-5000": Case("5,000 messages a second", Load(rate=5000), _us(100, ack_p99_ms=0.5)),
    "pairs": Case(
        "50 senders and 50 receivers on 50 queues",
        Load(producers=50, consumers=50, window=50, is_pair_apart=True),
        _us(7),
    ),
    "fan-out": Case("fan-out to 20", Load(fan_out=20, window=100, credit=200), _us(80)),
    "queues-1000": Case("1,000 queues in turn", Load(queues=1000, credit=10), _us(12)),
    "declare": Case("declare a queue", target=_us(400), way="declare"),
    "backlog": Case(
        "a backlog of 2,000,000, kept, then drained",
        Load(consumers=0, window=1000),
        {"bytes_each": 400, "mb_left": 100},
        way="backlog",
        is_fresh=True,
    ),
    "idle": Case(
        "5,000 idle connections", target={"bytes_each": 20_000}, way="idle", is_fresh=True
    ),
}
"""Those of the first lines are interleaved; a case that `is_fresh` comes after them."""

RATES = {
    f"rate-{rate}": Case(f"{rate:,} messages a second", Load(rate=rate))
    for rate in (100, 1000, 20_000)
}
"""With `rate-5000` a curve: asked for by name."""

FIFO = "fifo"
KINDS = {
    FIFO: Case("in the order of arrival", Load(flags=ANY_KIND)),
    "priorities": Case("10 priorities", Load(arguments={"qpid.priorities": 10}, flags=ANY_KIND)),
    "fair-shares": Case(
        "2 priorities in shares", Load(arguments={"x-priority-mode": "fair"}, flags=ANY_KIND)
    ),
    "ttl": Case("the queue's TTL", Load(arguments={"x-message-ttl": 60_000}, flags=ANY_KIND)),
    "sender-ttl": Case("the sender's TTL", Load(flags=(*ANY_KIND, "-l", "60000"))),
    "delivery-limit": Case(
        "a delivery limit", Load(arguments={"x-delivery-limit": 5}, flags=ANY_KIND)
    ),
    "last-value": Case(
        "last values", Load(arguments={"qpid.last_value_queue_key": "key"}, flags=ANY_KIND)
    ),
    "groups": Case(
        f"{GROUPS} groups", Load(arguments={"qpid.group_header_key": "JMSXGroupID"}, flags=ANY_KIND)
    ),
    "selector": Case("a selector", Load(flags=(*ANY_KIND, "-f", "key <> 'none'"))),
}
"""Each beside the first."""
CASES = {**TABLE, **RATES, **KINDS}
