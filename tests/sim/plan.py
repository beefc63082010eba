"""Plan: what a seed draws for one run - the cluster, its settings, its queues, its clients and how
much goes wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from qpidha.broker.queues.dispatch import FENCING, SINGLE_ACTIVE
from qpidha.broker.queues.groups import GROUP_KEY
from qpidha.broker.queues.intake import NO_LOCAL
from qpidha.broker.queues.last_value import LAST_VALUE_KEY
from qpidha.model.settings import Settings
from qpidha.model.url import parse_url
from qpidha.store import recovery
from tests.sim.world import MILLISECOND, World
from tests.sim.writing import VALUE

DISKS = True
"""Whether runs may have disks: a node takes one."""
QUEUES = ("q0", "q1")
ONWARD = "onward"
"""An exchange between another one and a queue."""
ALTERNATE, REJECTED = "dead", "rejected"
"""An exchange for rejected messages, and the queue behind it."""
LEVELS = 10
"""Levels of priority of a queue that has some."""
MOVED = "moved"
"""Where a mover brings what it takes from the first queue."""
HASHED = "hashed"
"""An exchange that spreads what comes over the queues."""
KEPT = "kept."
"""How the names of queues begin that brokers keep for themselves."""
SHIFTED = "shifted"
"""Where an administrator moves what is on the last queue."""


@dataclass
class Plan:
    """What a seed draws."""

    depth: str
    brokers: int
    disks: bool
    settings: Settings
    durable: float
    fan_out: bool
    transactions: bool
    alternate: bool
    dedup: tuple[str, ...]
    """Queues that take no message twice; who sends to these alone gives its messages ids."""
    moves: bool
    """Whether somebody moves messages from the first queue to another, each in a transaction."""
    trusting: bool
    """Whether the brokers trust their manager, which then never errs, and fences."""
    mixed: bool
    """Whether brokers are of several versions, and are upgraded and downgraded."""
    senders: int
    receivers: int
    window: int
    credit: int
    pause: int
    messages: int
    faults: int
    length: int
    padding: int
    chunk: int
    """Bytes of a part of a snapshot: small ones, so that a snapshot of a few messages has several.
    """
    moods: tuple[float, float, float]
    limits: dict[str, dict[str, int]] = field(default_factory=dict)
    """Queue -> arguments, of those that are small (`limits.py`)."""
    deletions: int = 0
    """How often somebody deletes a queue."""
    dies: dict[str, Any] = field(default_factory=dict)
    """What makes messages dead letters, beside where they go (`dying.py`)."""
    selects: bool = False
    """Whether some receivers take only messages that they select (`selecting.py`)."""
    times: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Sender -> how long its messages live, and how long they wait, in ms (`timing.py`)."""
    ranks: bool = False
    """Whether the queues have levels of priority (`ranking.py`)."""

    grouped: tuple[str, ...] = ()
    """Queues with message groups (`grouping.py`)."""
    levels: int = 0
    """How often the replicate level of a queue changes (`levels.py`)."""
    valued: tuple[str, ...] = ()
    """Queues with last values (`valuing.py`)."""
    not_own: str = ""
    """The sender whose messages to exchanges the last queue does not take (`subscribing.py`)."""
    clocks: list[int] = field(default_factory=list)
    """By how many ns each wall clock is ahead; empty if they are equal (`clocks.py`)."""
    hashes: bool = False
    """Whether a sender sends to a consistent hash exchange (`hashing.py`)."""
    rebinds: int = 0
    """How often its bindings change."""
    shifts: int = 0
    """How often an administrator moves messages (`moves.py`)."""
    single: tuple[str, ...] = ()
    """Queues with a single active consumer (`activating.py`)."""
    remembers: int = 0
    """How often a policy changes what the queues remember (`remembering.py`)."""
    crosses: int = 0
    """How often something is done with queues of which one is in the log and one is not
    (`crossing.py`).
    """
    keeps: int = 0
    """How often something is done with queues that one broker keeps for itself (`keeping.py`)."""

    def options(self, queue: str) -> dict[str, Any]:
        """Return what a queue is declared with."""
        found: dict[str, Any] = {"durable": self.durable > 0}
        arguments: dict[str, Any] = {}
        if self.dies and queue in QUEUES:
            arguments |= {"x-dead-letter-exchange": ALTERNATE, **self.dies}
        elif self.alternate and queue in QUEUES:
            found["alternate"] = ALTERNATE
        if queue in self.dedup:
            arguments["qpidha.dedup"] = "message-id"
        if queue in self.grouped:
            arguments[GROUP_KEY] = "group"
        if self.ranks and queue in QUEUES:
            arguments["qpid.priorities"] = LEVELS
        if queue in self.valued:
            arguments[LAST_VALUE_KEY] = VALUE
        if queue in self.single:
            arguments |= {SINGLE_ACTIVE: True, FENCING: True}
        if self.not_own and queue == QUEUES[-1]:
            arguments[NO_LOCAL] = self.not_own
        arguments |= self.limits.get(queue, {})
        if arguments:
            found["arguments"] = arguments
        return found


def draw(world: World, depth: str) -> Plan:
    """Draw the knobs of a run."""
    rng = world.rng
    brokers = rng.choice([3, 3, 3, 3, 3, 3, 2, 4, 5])
    disks = DISKS and rng.random() < 0.5
    heartbeat = rng.choice([60, 100, 200, 500]) * MILLISECOND
    names = "abcdefgh"[:brokers]
    trusting = rng.random() < 0.1
    options: dict[str, Any] = {
        "auth": False,
        "ha_cluster": True,
        "ha_safety": "trust-manager" if trusting else "strict",
        "ha_replicate": "all",
        "ha_brokers_url": parse_url(",".join(f"{name}:5672" for name in names)),
        "ha_backup_timeout": rng.choice([100, 300, 1000, 3000]) * MILLISECOND,
        "link_heartbeat_interval": heartbeat,
        "link_maintenance_interval": rng.choice([50, 100, 300]) * MILLISECOND,
        "log_memory": rng.choice([1500, 6000, 1 << 20]),
        "link_credit": rng.choice([1, 10, 1000, 1000]),
        "session_max_unacked": rng.choice([1, 10, 5000]),
        "ha_flow_bytes": rng.choice([0, 0, 300, 2000]),
        "ha_flow_messages": rng.choice([1000, 1000, 1000, 1, 3]),
        "ha_min_in_sync": rng.choice([1, 1, 1, 2]),
    }
    if disks:
        options |= {
            "data_dir": "simulated",
            "journal_segment_size": rng.choice([4096, 4096, 1 << 20]),
            "log_disk": rng.choice([0, 8192, 1 << 20]),
            "queue_memory": rng.choice([0, 1, 500, 1 << 20]),
        }
    return Plan(
        depth=depth,
        brokers=brokers,
        disks=disks,
        settings=Settings(**options),
        durable=rng.choice([0.0, 0.5, 1.0]) if disks else 0.0,
        fan_out=rng.random() < 0.2,
        transactions=rng.random() < 0.4,
        alternate=rng.random() < 0.3,
        dedup=rng.choice([(), (), (), QUEUES[:1], QUEUES]),
        moves=depth == "model" and rng.random() < 0.35,
        trusting=trusting,
        mixed=rng.random() < 0.3,
        senders=rng.choice([1, 1, 2, 3]),
        receivers=rng.choice([0, 1, 1, 2]),
        window=rng.choice([1, 3, 10, 30]),
        credit=rng.choice([1, 1, 5, 50]),
        pause=rng.choice([2, 10, 40]) * MILLISECOND,
        messages=rng.choice([20, 40, 80]),
        faults=rng.choice([2, 5, 10, 15, 20]),
        length=rng.choice([1000, 2000, 4000]) * MILLISECOND,
        padding=rng.choice([0, 0, 30, 300]),
        chunk=rng.choice([100, 500, recovery.CHUNK]),
        moods=rng.choice([(0.0, 0.0, 0.0), (0.05, 0.05, 0.02)]),
    )
