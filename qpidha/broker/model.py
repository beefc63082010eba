"""Model: the queues, exchanges and bindings of one broker, as a fold over the log.

Applying records in order gives the same model on every broker. A model decides nothing: it follows.
`Broker` is a model that also decides, as a primary or a broker alone does.
Objects that no other broker may know of are here too; they have uids below LOCAL_UID and no records.
Knows nothing of who waits for a record, nor of how it is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from qpidha.broker.exchange import EXCHANGE_TYPES, DefaultExchange, Exchange
from qpidha.broker.lifetime import read_lifetime, read_timeout
from qpidha.broker.limits import read_limits
from qpidha.broker.queue import Queue
from qpidha.words.records import (
    BUILT_IN_EXCHANGES,
    Bound,
    Dequeued,
    Enqueued,
    ExchangeDeclared,
    ExchangeDeleted,
    QueueDeclared,
    QueueDeleted,
    Requeued,
    Unbound,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qpidha.words.message import Message
    from qpidha.words.records import Record

LOCAL_UID = -1000
"""Uids of local objects are below this one; those above, up to -1, are built-in exchanges."""


class ModelSettings(Protocol):
    """The options this room reads."""

    @property
    def default_queue_limit(self) -> int:
        """Bytes a queue may hold if its arguments do not say; 0 is no limit."""
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
        for exchange in self.exchanges.values():
            for queue, key, arguments in exchange.bindings():
                if exchange.records_binding(queue, arguments):
                    yield 0, Bound(exchange.uid, queue.uid, key, arguments)

    def messages_after(self, queue: Queue, cursor: int, max_bytes: int) -> list[Message]:
        """Return the logged messages of a queue after a sequence, in order, as many as fit into `max_bytes` (one at least)."""
        return queue.messages_after(cursor, max_bytes) if queue.logged else []

    def add_queue(self, uid: int, options: QueueDeclared) -> Queue:
        """Add a queue, in place of one that has its name."""
        former = self.queues.get(options.name)
        if former is not None:
            self.remove_queue(former)
        arguments = options.arguments
        limits = read_limits(arguments, self.settings.default_queue_limit)
        lifetime = read_lifetime(arguments, options.auto_delete)
        queue = Queue(uid, options, self, limits=limits, lifetime=lifetime, timeout=read_timeout(arguments))
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

    def _add_built_in_exchanges(self) -> None:
        default = DefaultExchange(ExchangeDeclared("", "direct", "", durable=True, replicate="none"), self.queues)
        self.exchanges[""] = self.by_uid[default.uid] = default
        for name, (uid, kind) in BUILT_IN_EXCHANGES.items():
            self.add_exchange(uid, ExchangeDeclared(name, kind, "", durable=True))


def _enqueued(model: Model, sequence: int, record: Enqueued) -> None:
    for uid in record.queues:
        queue = model.by_uid.get(uid)
        if isinstance(queue, Queue):
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
        exchange.bind(queue, record.key, record.arguments)


def _unbound(model: Model, sequence: int, record: Unbound) -> None:
    exchange, queue = model.by_uid.get(record.exchange), model.by_uid.get(record.queue)
    if isinstance(exchange, Exchange) and isinstance(queue, Queue):
        exchange.unbind(queue, record.key)


HANDLERS = cast(
    "dict[type[object], Callable[[Model, int, Record], None]]",
    {
        Enqueued: _enqueued, Dequeued: _dequeued, Requeued: _requeued, QueueDeclared: _queue_declared, QueueDeleted: _queue_deleted,
        ExchangeDeclared: _exchange_declared, ExchangeDeleted: _exchange_deleted, Bound: _bound, Unbound: _unbound,
    },
)  # fmt: skip
"""What to do with each record; those that are not here concern the cluster and not the model."""
