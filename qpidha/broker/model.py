"""Model: the queues, exchanges and bindings of one broker, as a fold over the log.

Applying records in order gives the same model on every broker. A model decides nothing: it follows.
`Broker` is a model that also decides, as a primary or a broker alone does.
Objects that are not recorded are here too; they have uids below LOCAL_UID. In a cluster those are the ones
that no other broker may know of, on a broker alone with a journal (`records_durable_only`) the transient ones.
Knows nothing of who waits for a record, nor of how it is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from qpidha.broker.dedup import read_window
from qpidha.broker.exchange import EXCHANGE_TYPES, DefaultExchange, Exchange
from qpidha.broker.level import ALL, CONFIGURATION, NONE, REPLICATE
from qpidha.broker.lifetime import read_lifetime, read_timeout
from qpidha.broker.limits import read_limits
from qpidha.broker.queue import Queue
from qpidha.words.records import (
    BUILT_IN_EXCHANGES,
    Bound,
    DedupRemembered,
    Dequeued,
    Enqueued,
    ExchangeDeclared,
    ExchangeDeleted,
    QueueDeclared,
    QueueDeleted,
    QueueUsed,
    Requeued,
    Unbound,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from qpidha.words.message import Message
    from qpidha.words.records import Record

KEYS_IN_RECORD = 1000
"""How many keys one record of a snapshot carries."""
LOCAL_UID = -1000
"""Uids of local objects are below this one; those above, up to -1, are built-in exchanges."""


class ModelSettings(Protocol):
    """The options this room reads."""

    @property
    def default_queue_limit(self) -> int:
        """Bytes a queue may hold if its arguments do not say; 0 is no limit."""
        ...

    @property
    def queue_memory(self) -> int:
        """Bytes of messages that a queue keeps in memory if they can be read from elsewhere; 0 is no limit."""
        ...

    @property
    def max_queues(self) -> int:
        """How many queues there may be."""
        ...

    @property
    def max_exchanges(self) -> int:
        """How many exchanges there may be."""
        ...

    @property
    def max_bindings(self) -> int:
        """How many bindings one queue may have."""
        ...

    @property
    def ha_replicate(self) -> str:
        """Replicate level of objects that do not name one."""
        ...


class Model:
    """What a broker remembers."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.queues: dict[str, Queue] = {}
        self.exchanges: dict[str, Exchange] = {}
        self.by_uid: dict[int, Queue | Exchange] = {}
        self.dirty: dict[Queue, None] = {}
        self.heavy: dict[Queue, None] = {}
        """Queues that got a message when they had more bytes in memory than they may; cleared by whoever pages them out."""
        self.withholds = False
        """Whether no message is handed out, because another broker may be handing them out; looking at them is not hindered."""
        self.records_durable_only = False
        """Whether durable objects are recorded, whatever their replicate level, and no others: so it is with a broker alone that
        has a journal. To be set before the first object is declared or recovered."""
        self._passive = False
        self._add_built_in_exchanges()

    @property
    def passive(self) -> bool:
        """Whether somebody else decides about replicated objects, as on a backup."""
        return self._passive

    @passive.setter
    def passive(self, passive: bool) -> None:
        self._passive = passive
        for queue in self.queues.values():
            queue.follows = passive and queue.uid > 0

    @property
    def refuse_publishing(self) -> str:
        """A model refuses nothing: it follows."""
        return ""

    def withhold(self, withholds: bool) -> None:
        """Hand out nothing, or go on handing out."""
        if self.withholds and not withholds:
            self.dirty |= {queue: None for queue in self.queues.values() if queue.consumers}
        self.withholds = withholds

    def apply(self, sequence: int, record: Record) -> None:
        """Follow one record; what it says of unknown objects does not concern this broker."""
        handler = HANDLERS.get(type(record))
        if handler is not None:
            handler(self, sequence, record)

    def reset(self, keep_local: bool = False) -> None:
        """Forget everything but the built-in exchanges; or everything but them and the local objects."""
        for queue in list(self.queues.values()):
            if not keep_local or queue.uid > 0:
                self.remove_queue(queue)
        for exchange in list(self.exchanges.values()):
            if exchange.uid > 0 or (exchange.uid < LOCAL_UID and not keep_local):
                self.remove_exchange(exchange)

    def objects(self) -> Iterator[tuple[int, Record]]:
        """Walk through records that, applied in turn, rebuild all replicated objects; messages are not among them."""
        for exchange in self.exchanges.values():
            if exchange.uid > 0:
                yield exchange.uid, exchange.options
        for queue in self.queues.values():
            if queue.uid > 0:
                yield queue.uid, queue.options
                if queue.is_used:
                    yield 0, QueueUsed(queue.uid)
                yield from _remembered(queue)
        for exchange in self.exchanges.values():
            for queue, key, arguments in exchange.bindings():
                if self.records_binding(exchange, queue, arguments):
                    yield 0, Bound(exchange.uid, queue.uid, key, arguments)

    def records_object(self, durable: bool, level: str) -> bool:
        """Whether a queue or an exchange belongs in the log."""
        return durable if self.records_durable_only else level != NONE

    def records_binding(self, exchange: Exchange, queue: Queue, arguments: Mapping[str, Any]) -> bool:
        """Whether a binding belongs in the log: both its ends must, and it may say that others shall not learn of it."""
        if queue.uid < 0 or exchange.uid < LOCAL_UID:
            return False
        return self.records_durable_only or arguments.get(REPLICATE) != NONE

    def messages_after(self, queue: Queue, cursor: int, max_bytes: int) -> list[Message]:
        """Return the logged messages of a queue after a sequence, in order, as many as fit into `max_bytes` (one at least)."""
        return queue.messages_after(cursor, max_bytes) if queue.logged else []

    def logged_queue(self, uid: int) -> Queue | None:
        """Return the queue whose messages a record tells of; None if there is none here.

        Its messages are in the log from now on, whatever its level: a broker alone recorded some before it joined a cluster,
        and what it accepted goes into every checkpoint and to every backup, with what comes and leaves later.
        """
        queue = self.by_uid.get(uid)
        if not isinstance(queue, Queue):
            return None
        if not queue.logged:
            arguments = queue.options.arguments
            queue.begin_log(read_limits(arguments, self.settings.default_queue_limit, self.settings.queue_memory).memory)
            queue.window = read_window(arguments)
        return queue

    def add_queue(self, uid: int, options: QueueDeclared) -> Queue:
        """Add a queue, in place of one that has its name."""
        former = self.queues.get(options.name)
        if former is not None:
            self.remove_queue(former)
        arguments = options.arguments
        limits = read_limits(arguments, self.settings.default_queue_limit, self.settings.queue_memory)
        lifetime = read_lifetime(arguments, options.auto_delete)
        # A level of `none` on an object with a record is that of a broker alone, now or before it joined a cluster.
        logged = uid > 0 and (self.records_durable_only or options.replicate != CONFIGURATION)
        queue = Queue(uid, options, self, limits=limits, lifetime=lifetime, timeout=read_timeout(arguments), logged=logged)
        queue.follows = self._passive and uid > 0
        self.queues[queue.name] = queue
        self.by_uid[uid] = queue
        return queue

    def remove_queue(self, queue: Queue) -> None:
        """Take a queue, its bindings and messages away."""
        self.detach_queue(queue)
        queue.close()

    def detach_queue(self, queue: Queue) -> None:
        """Take a queue away, so that nothing is routed to it any more; its messages and consumers stay with it."""
        for uid, key in list(queue.bindings):
            exchange = self.by_uid.get(uid)
            if isinstance(exchange, Exchange):
                exchange.unbind(queue, key)
        del self.queues[queue.name]
        del self.by_uid[queue.uid]
        self.dirty.pop(queue, None)
        self.heavy.pop(queue, None)

    def add_exchange(self, uid: int, options: ExchangeDeclared) -> Exchange:
        """Add an exchange, in place of one that has its name."""
        former = self.exchanges.get(options.name)
        if former is not None:
            self.remove_exchange(former)
        exchange = EXCHANGE_TYPES[options.type](uid, options)
        self.exchanges[exchange.name] = exchange
        self.by_uid[uid] = exchange
        return exchange

    def remove_exchange(self, exchange: Exchange) -> None:
        """Take an exchange and its bindings away."""
        for queue, key, _ in list(exchange.bindings()):
            exchange.unbind(queue, key)
        del self.exchanges[exchange.name]
        del self.by_uid[exchange.uid]

    def left(self, queue: Queue) -> None:
        """A queue may have come to its end: the primary will say so."""

    def reroute(self, queue: Queue, message: Message) -> int:
        """A message leaves for the alternate exchange: the primary will say so."""
        return 0

    def evict(self, queue: Queue, messages: list[Message]) -> None:
        """Messages had to make room for others: the primary will say so."""

    def used(self, queue: Queue) -> None:
        """A queue has its first user: the primary will say so."""

    def _add_built_in_exchanges(self) -> None:
        default = DefaultExchange(ExchangeDeclared("", "direct", "", durable=True, replicate="none"), self.queues)
        self.exchanges[""] = self.by_uid[default.uid] = default
        for name, (uid, kind) in BUILT_IN_EXCHANGES.items():
            self.add_exchange(uid, ExchangeDeclared(name, kind, "", durable=True))


def _enqueued(model: Model, sequence: int, record: Enqueued) -> None:
    for uid in record.queues:
        queue = model.logged_queue(uid)
        if queue is not None:
            queue.insert(sequence, record.payload, record.expires)


def _dequeued(model: Model, sequence: int, record: Dequeued) -> None:
    queue = model.by_uid.get(record.queue)
    if isinstance(queue, Queue):
        queue.remove(record.sequences)


def _requeued(model: Model, sequence: int, record: Requeued) -> None:
    queue = model.by_uid.get(record.queue)
    if isinstance(queue, Queue):
        queue.restate(record.sequence, record.delivery_count, record.annotations)


def _queue_declared(model: Model, sequence: int, record: QueueDeclared) -> None:
    if sequence not in model.by_uid:
        model.add_queue(sequence, record)


def _queue_deleted(model: Model, sequence: int, record: QueueDeleted) -> None:
    queue = model.by_uid.get(record.queue)
    if isinstance(queue, Queue):
        model.remove_queue(queue)


def _queue_used(model: Model, sequence: int, record: QueueUsed) -> None:
    queue = model.by_uid.get(record.queue)
    if isinstance(queue, Queue):
        queue.is_used = True


def _dedup_remembered(model: Model, sequence: int, record: DedupRemembered) -> None:
    queue = model.logged_queue(record.queue)
    if queue is not None and queue.window is not None:
        queue.window.restore(record.keys, record.sequences)


def _remembered(queue: Queue) -> Iterator[tuple[int, Record]]:
    """Walk through the records of a queue's window; messages alone would not tell of those that were consumed."""
    entries = queue.window.entries() if queue.window is not None and queue.logged else []
    for start in range(0, len(entries), KEYS_IN_RECORD):
        part = entries[start : start + KEYS_IN_RECORD]
        yield 0, DedupRemembered(queue.uid, [key for key, _ in part], [sequence for _, sequence in part])


def _exchange_declared(model: Model, sequence: int, record: ExchangeDeclared) -> None:
    if sequence not in model.by_uid and record.type in EXCHANGE_TYPES:
        model.add_exchange(sequence, record)


def _exchange_deleted(model: Model, sequence: int, record: ExchangeDeleted) -> None:
    exchange = model.by_uid.get(record.exchange)
    if isinstance(exchange, Exchange) and not exchange.is_built_in:
        model.remove_exchange(exchange)


def _bound(model: Model, sequence: int, record: Bound) -> None:
    exchange, queue = model.by_uid.get(record.exchange), model.by_uid.get(record.queue)
    if isinstance(exchange, Exchange) and isinstance(queue, Queue):
        arguments = record.arguments
        if not model.records_binding(exchange, queue, arguments):
            # A broker alone recorded it, before it joined a cluster. All know of it now, as of an object with that level.
            arguments = {**arguments, REPLICATE: ALL}
        exchange.bind(queue, record.key, arguments)


def _unbound(model: Model, sequence: int, record: Unbound) -> None:
    exchange, queue = model.by_uid.get(record.exchange), model.by_uid.get(record.queue)
    if isinstance(exchange, Exchange) and isinstance(queue, Queue):
        exchange.unbind(queue, record.key)


HANDLERS = cast(
    "dict[type[object], Callable[[Model, int, Record], None]]",
    {
        Enqueued: _enqueued, Dequeued: _dequeued, Requeued: _requeued, QueueDeclared: _queue_declared, QueueDeleted: _queue_deleted,
        QueueUsed: _queue_used, DedupRemembered: _dedup_remembered, ExchangeDeclared: _exchange_declared,
        ExchangeDeleted: _exchange_deleted, Bound: _bound, Unbound: _unbound,
    },
)  # fmt: skip
"""What to do with each record; those that are not here concern the cluster and not the model."""
