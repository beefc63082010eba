"""Parts for broker tests: a broker, a log that keeps what it is given, and a consumer that keeps
what it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from typing import Any

from qpidha.broker.broker import Broker
from qpidha.broker.queues.dedup import Window
from qpidha.broker.queues.expiry import Expiry
from qpidha.broker.queues.log_writer import LogWriter
from qpidha.broker.queues.queue import Queue
from qpidha.broker.state import State
from qpidha.broker.topic import MOST_STEPS, Steps
from qpidha.model.encoding import Described, ULong, encode
from qpidha.model.features import FEATURES
from qpidha.model.message import Message
from qpidha.model.records import Dequeued, Enqueued, Record
from qpidha.model.settings import Settings


class Tape:
    """A log writer that remembers every record with its sequence."""

    def __init__(self) -> None:
        self.records: list[tuple[int, Record]] = []
        self.must_sync = False

    @property
    def end(self) -> int:
        return len(self.records)

    def all_so_far(self) -> int:
        return self.end

    def append(self, record: Record) -> int:
        sequence = len(self.records) + 1
        self.records.append((sequence, record))
        return sequence

    def enqueue(self, queue_uid: int, payload: bytes, expires: int) -> int:
        return self.append(Enqueued((queue_uid,), payload, expires))

    def enqueue_shared(self, queue_uids: tuple[int, ...], payload: bytes, expires: int) -> int:
        return self.append(Enqueued(queue_uids, payload, expires))

    def enqueue_numbered(
        self, queue_uid: int, sequences: list[int], payloads: list[bytes], expiries: list[int]
    ) -> int:
        raise NotImplementedError

    def pass_over(self, sequence: int) -> int:
        raise NotImplementedError

    def dequeue(self, queue_uid: int, sequence: int, cause: int = 0) -> int:
        return self.append(Dequeued(queue_uid, (sequence,), cause))

    def dequeue_many(self, queue_uid: int, sequences: list[int], cause: int = 0) -> int:
        return self.append(Dequeued(queue_uid, tuple(sequences), cause))

    @property
    def last(self) -> Record:
        return self.records[-1][1]

    def kinds(self) -> list[str]:
        return [type(record).__name__ for _, record in self.records]


class Reels:
    """A body: payloads are read from the tape they were recorded on."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.read_count = 0

    def read(self, sequence: int) -> bytes:
        self.read_count += 1
        record = self.tape.records[sequence - 1][1]
        assert isinstance(record, Enqueued)
        return record.payload

    def read_all(self, sequences: Sequence[int]) -> bytes:
        return b"".join(map(self.read, sequences))


@dataclass(frozen=True)
class Wants:
    """A selector of a consumer."""

    selects: Callable[[Message], bool]
    cost: int = 1


@dataclass(eq=False)
class Taker:
    """A consumer; with `settles` it accepts at once, as a pre-settled link does."""

    queue: Queue | None = None
    credit: int = 0
    browse: bool = False
    exclusive: bool = False
    priority: int = 0
    settles: bool = False
    got: list[Message] = field(default_factory=list)
    is_told: bool = False
    searches: int = 0
    active: list[bool] = field(default_factory=list)
    """What it was told of being the single active one."""
    wants: Callable[[Message], bool] | None = None
    """Its selector."""
    refused: set[int] = field(default_factory=set)

    def __setattr__(self, name: str, value: Any) -> None:
        """Have the queue know of more credit."""
        has_more = name == "credit" and value > getattr(self, name, 0)
        super().__setattr__(name, value)
        if has_more and self.queue is not None and self in self.queue.consumers:
            self.queue.wake(self)

    @property
    def selector(self) -> Wants | None:
        return None if self.wants is None else Wants(self.wants)

    @property
    def is_selective(self) -> bool:
        return bool(self.refused) or self.wants is not None

    def accepts(self, message: Message) -> bool:
        return message.sequence not in self.refused

    def refuse(self, message: Message) -> None:
        self.refused.add(message.sequence)

    def deliver(self, message: Message) -> None:
        self.credit -= 1
        self.got.append(message)
        if self.settles and self.queue is not None:
            self.queue.dequeue(message)

    def activated(self, is_active: bool) -> None:
        self.active.append(is_active)

    def timeout_changed(self) -> None:
        """Take no heed of it."""

    def searched(self) -> None:
        self.searches += 1

    def queue_deleted(self) -> None:
        self.is_told = True

    @property
    def bodies(self) -> list[str]:
        return [message.body().decode() for message in self.got]


@dataclass(eq=False)
class Poster:
    """A sender; it asks at once when it hears that it may be admitted again, as links do."""

    queue: Queue
    size: int = 1
    told: int = 0
    is_admitted: bool = False

    def ask(self) -> bool:
        self.is_admitted = self.queue.admits(self, self.size)
        return self.is_admitted

    def resumed(self) -> None:
        self.told += 1
        self.ask()


def a_poster(queue: Queue, size: int = 1) -> Poster:
    poster = Poster(queue, size)
    queue.add_sender(poster)
    poster.ask()
    return poster


def a_broker(tape: LogWriter | None = None, **settings: Any) -> Broker:
    """A broker whose objects are replicated unless they say no, in a cluster that knows all there
    is; its announcements are dropped.
    """
    numbers = count(1)
    broker = Broker(
        Settings(**{"ha_replicate": "all", **settings}),
        tape,
        lambda announce: None,
        lambda: f"uuid-{next(numbers)}",
    )
    broker.features.update(dict.fromkeys(FEATURES, 0))
    return broker


def a_taker(queue: Queue, credit: int = 0, **options: Any) -> Taker:
    taker = Taker(queue, credit, **options)
    queue.subscribe(taker)
    return taker


def a_message(subject: str = "", **application_properties: Any) -> bytes:
    """An encoded message without a body."""
    return encode(Described(ULong(0x73), [None, None, None, subject or None])) + encode(
        Described(ULong(0x74), application_properties)
    )


def send(broker: Broker, queue: str, *bodies: str, expires: int = 0) -> list[int]:
    """Publish to a queue by name; give the sequences to wait for."""
    return [
        broker.publish("", queue, body.encode(), headers=dict, expires=expires)[0]
        for body in bodies
    ]


def remembered(window: Window | None) -> list[tuple[str, int]]:
    """The keys that a queue remembers, with their sequences, the lowest first."""
    parts = window.parts(1000) if window is not None else ()
    return [pair for keys, sequences in parts for pair in zip(keys, sequences, strict=True)]


def enough_steps() -> Steps:
    """As many steps for each key as one may take."""
    return Steps(MOST_STEPS, 0, "")


def bind_crowd(broker: Broker, queue: str, words: int = 7) -> None:
    """Bind a queue to amq.topic so that a key of so many `a` and one word more takes some steps for
    each pattern of `a` and `*`: 3 * 2 ** words in all.
    """
    for wanted in product("a*", repeat=words):
        broker.bind("amq.topic", queue, ".".join((*wanted, "*")))


def crowd_key(number: int, words: int = 7) -> str:
    """A key for that, which no other number has."""
    return "a." * words + str(number)


def expire(queue: Queue, now: int) -> None:
    """Drop what has expired by `now`, all in one step."""
    Expiry(queue, now).step(1 << 60)


def at(broker: Broker, now: int) -> None:
    """Let it be that time: a turn, and what becomes due until then."""
    broker.now = now
    while broker.walks:
        broker.go_on_walking(1 << 60)
    while 0 < broker.next_deadline <= now:
        broker.tick(now)
    broker.dispatch(now)


def contents(state: State, queue: str) -> list[str]:
    """What is on a queue, in order, acquired or not."""
    return [message.body().decode() for message in state.queues[queue].messages_after(-1, 1 << 60)]


def copy_of(tape: Tape) -> Broker:
    """Another broker that followed the same log."""
    broker = a_broker()
    broker.passive = True
    for sequence, record in tape.records:
        broker.apply(sequence, record)
    return broker


def picture(state: State) -> dict[str, Any]:
    """Everything of a state that must be equal on brokers that followed the same log."""
    return {
        "queues": {
            queue.uid: (
                queue.options,
                queue.bytes == sum(m.size for m in queue.messages.values()),
                [
                    (m.sequence, m.body(), m.expires, m.delivery_count, m.annotations)
                    for m in state.messages_after(queue, -1, 1 << 60)
                ],
            )
            for queue in state.queues.values()
            if queue.uid > 0
        },
        "exchanges": {
            exchange.uid: exchange.options
            for exchange in state.exchanges.values()
            if exchange.uid > 0
        },
        "bindings": sorted(
            (exchange.uid, queue.uid, key, repr(arguments))
            for exchange in state.exchanges.values()
            for queue, key, arguments in exchange.bindings()
            if state.records_binding(exchange, queue, arguments)
        ),
    }
