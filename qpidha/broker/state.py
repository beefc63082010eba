"""State: the queues, exchanges and bindings of one broker, as a fold over the log.

Applying the same records in the same order gives the same state on every broker. `State` only
applies records and decides nothing; a backup is such a state. `Broker` extends it with decisions,
as a primary or a stand-alone broker makes them. Objects that are not recorded are here too, with
uids below LOCAL_UID: in a cluster the objects that are not replicated, on a stand-alone broker with
a write-ahead log (`records_durable_only`) the transient ones. Knows nothing of who waits for a
record, nor of how it is stored.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, cast

from qpidha.broker.exchange import EXCHANGE_TYPES, DefaultExchange, Exchange
from qpidha.broker.federation import Federation, is_of_route
from qpidha.broker.policy import Followed, Policies, says_of
from qpidha.broker.queues.arrivals import Arrivals
from qpidha.broker.queues.crossing import Crossings
from qpidha.broker.queues.dedup import DEDUP, DEDUP_WINDOW
from qpidha.broker.queues.defaults import QueueDefaults
from qpidha.broker.queues.departures import Departures
from qpidha.broker.queues.queue import Queue
from qpidha.broker.queues.remains import Remains
from qpidha.broker.queues.returns import Returns
from qpidha.broker.queues.spec import compile_spec
from qpidha.broker.totals import Totals
from qpidha.broker.vocabulary import ALTERNATE, Kind
from qpidha.model.effects import Announce
from qpidha.model.event_codes import LOCAL_GONE
from qpidha.model.memory import MemoryUse
from qpidha.model.records import (
    BUILT_IN_EXCHANGES,
    DEFAULT_EXCHANGE,
    Bound,
    Cause,
    DedupRemembered,
    Dequeued,
    Enqueued,
    ExchangeDeclared,
    ExchangeDeleted,
    FeatureEnabled,
    LevelChanged,
    LifeStarted,
    LinkDeclared,
    LinkDeleted,
    PolicyCleared,
    PolicySet,
    QueueDeclared,
    QueueDeleted,
    QueueUsed,
    ReplicaEnded,
    ReplicaSet,
    Requeued,
    RouteDeclared,
    RouteDeleted,
    Unbound,
    Unknown,
)
from qpidha.model.replication_level import ALL, CONFIGURATION, NONE, REPLICATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from qpidha.broker.exchange import Destination
    from qpidha.broker.queues.log_writer import LocalWriter
    from qpidha.broker.queues.messages import Segment
    from qpidha.broker.queues.spec import QueueSpec
    from qpidha.model.message import Message
    from qpidha.model.records import Record

KEYS_IN_RECORD = 1000
"""How many keys one record of a snapshot carries."""
REMEMBERED = (DEDUP, DEDUP_WINDOW)
"""Arguments that say what a queue remembers of each message from then on."""
MOST_LIVES = 100
"""How many starts of a broker alone are remembered. A replica that has not been there for more of
them has to begin anew.
"""
FOLLOWED = 16
"""Looks at a name that take as long as to give a queue other settings."""
ALL_LOOKS = 1 << 60
"""As many as it takes."""
IN_LOG = "its messages are those of the cluster's log now"
DELETED_THERE = "the cluster has deleted that queue"
LOCAL_UID = -1000
"""Uids of local objects are below this one; those above, up to -1, are built-in exchanges."""


class BrokerSettings(Protocol):
    """The options this room reads."""

    @property
    def default_queue_limit(self) -> int:
        """Bytes a queue may hold if its arguments do not say; 0 is no limit."""
        ...

    @property
    def queue_memory(self) -> int:
        """Bytes of messages that a queue keeps in memory if they can be read from elsewhere; 0 is
        no limit.
        """
        ...

    @property
    def default_flow_stop_threshold(self) -> int:
        """Hundredths of a queue's limit beyond which its senders wait; 0 is never."""
        ...

    @property
    def default_flow_resume_threshold(self) -> int:
        """Hundredths of a queue's limit with which they go on."""
        ...

    @property
    def default_event_threshold_ratio(self) -> int:
        """Hundredths of a queue's limit at which an alert is told; 0 is never."""
        ...

    @property
    def default_message_group(self) -> str:
        """The group of messages that name none."""
        ...

    @property
    def queue_patterns(self) -> tuple[str, ...]:
        """For which unknown names queues are made."""
        ...

    @property
    def topic_patterns(self) -> tuple[str, ...]:
        """For which unknown names topic exchanges are made."""
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

    @property
    def durable_without_store(self) -> str:
        """What to do with durable declarations where nothing outlives a restart."""
        ...


class QueueWatcher(Protocol):
    """Hears which queues there are."""

    def queue_came(self, name: str) -> None:
        """A queue of this name is there from now on."""

    def queue_went(self, name: str) -> None:
        """The queue of this name is there no more."""


class State:
    """All queues, exchanges and bindings of one broker."""

    now = 0
    """The time of this turn, in ns; kept by the owner."""
    local_log: LocalWriter | None = None
    """Where this broker keeps what no other has; None for one without a disk, and while that is
    read.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self._defaults = QueueDefaults(
            settings.default_queue_limit,
            settings.queue_memory,
            settings.default_flow_stop_threshold,
            settings.default_flow_resume_threshold,
            settings.default_event_threshold_ratio,
            settings.default_message_group,
        )
        self.queues: dict[str, Queue] = {}
        self.queue_watcher: QueueWatcher | None = None
        self.exchanges: dict[str, Exchange] = {}
        self.by_uid: dict[int, Queue | Exchange] = {}
        self.runnable: dict[Queue, None] = {}
        self.use = MemoryUse()
        self.arrivals = Arrivals()
        self.over_budget: dict[Queue, None] = {}
        """Queues that got a message when they had more bytes in memory than they may; cleared by
        the log reader that pages them out.
        """
        self.delivery_paused = False
        """Whether no replicated message is delivered, because another broker may be delivering it;
        browsing goes on.
        """
        self.records_durable_only = False
        """Whether durable objects are recorded, whatever their replicate level, and no others: so
        it is with a broker alone that has a journal. To be set before the first object is declared
        or recovered.
        """
        self.features: dict[str, int] = {}
        """Enabled features -> the sequence of the record that says so."""
        self.later: list[tuple[int, Unknown]] = []
        """Records of a later version: of no meaning here, and passed on with every snapshot."""
        self.replicas: dict[int, ReplicaSet] = {}
        """How far the queues have come that are replicas of queues elsewhere, by their uids."""
        self.replicas_version = 0
        """Another number with each replica that is begun, gets another source, or ends."""
        self.lives: list[tuple[int, str]] = []
        """The last starts of a broker alone, oldest first: from which sequence on it appended."""
        self.not_own: dict[str, dict[Queue, None]] = {}
        """Containers -> the queues that do not take what they send to exchanges."""
        self.policies = Policies()
        self.followed: dict[Destination, Followed] = {}
        """What policies say of queues and exchanges, where they say anything."""
        self.to_follow: dict[Destination, int] = {}
        """Queues and exchanges that are still to be given what policies say of them now, each with
        the sequence of the last change that it knows of.
        """
        self.federation = Federation()
        """Links to other brokers, and the routes over them."""
        self._open_ways_out()
        self.totals = Totals()
        self._passive = False
        self._add_built_in_exchanges()

    def _open_ways_out(self) -> None:
        """Let messages leave queues, for good or for other queues."""
        self.crossings = Crossings()
        """What goes from the log of the cluster to the local one, or back."""
        self.departures = Departures(self.pass_on, self.crossings)
        """The way out of every queue."""
        self.remains = Remains()
        """What queues had that are deleted; the owner has some of it freed every turn."""
        self.returns = Returns()
        """What consumers had that are gone."""

    @property
    def passive(self) -> bool:
        """Whether another broker, the primary, decides about replicated objects."""
        return self._passive

    @passive.setter
    def passive(self, passive: bool) -> None:
        self._passive = passive
        for queue in self.queues.values():
            queue.is_replica = queue.is_copy or (passive and queue.uid > 0)

    @property
    def usable(self) -> frozenset[str]:
        """The features that may be written."""
        return frozenset(self.features)

    @property
    def has_two_logs(self) -> bool:
        """A state does not move messages from one log to the other."""
        return False

    def crosses(self, source: Queue, target: Queue) -> bool:
        """Nothing goes from one queue to another here but by records."""
        return False

    @property
    def refuse_publishing(self) -> str:
        """Nothing is refused: a state applies what a primary has decided."""
        return ""

    @property
    def refuses_now(self) -> str:
        """Nothing is refused."""
        return ""

    @property
    def time(self) -> int:
        """Nothing expires here: the primary decides that, by records."""
        return 0

    def look_at(self, queue: Queue, at: int) -> None:
        """Do nothing: the primary looks at what expires."""

    def search(self, queue: Queue) -> None:
        """Do nothing: the primary searches."""

    def renew(self, queue: Queue) -> None:
        """Do nothing: the primary decides when a queue ends."""

    def bury(self, queue: Queue, payload: bytes) -> None:
        """Do nothing: only the primary refuses messages."""

    def destruct(self, queue: Queue) -> None:
        """Do nothing: the primary deletes, by a record."""

    def alert(self, queue: Queue, is_up: bool) -> None:
        """Do nothing: the primary tells."""

    def recall(self, queue: Queue) -> None:
        """Do nothing: the primary finds the keys, and records them."""

    def sweep(self, queue: Queue) -> None:
        """Do nothing: the primary lets leave what was delivered too often."""

    def trim(self, queue: Queue) -> None:
        """Do nothing: the primary lets leave what is over the limits."""

    def pause_delivery(self, paused: bool) -> None:
        """Deliver no replicated message, or deliver them again."""
        if self.delivery_paused and not paused:
            self.runnable |= {queue: None for queue in self.queues.values() if queue.consumers}
        self.delivery_paused = paused

    def insert_shared(self, shared: list[tuple[int, Enqueued]]) -> None:
        """Put messages in a row, all on the same queues, on each of these: it gets them at once,
        which costs less than one by one.
        """
        sequences = [sequence for sequence, _ in shared]
        payloads = [record.payload for _, record in shared]
        expiries = [record.expires for _, record in shared]
        for uid in shared[0][1].queues:
            queue = self.logged_queue(uid)
            if queue is not None:
                queue.insert_run(sequences, payloads, expiries if any(expiries) else [])

    def apply(self, sequence: int, record: Record) -> None:
        """Apply one record; a record about objects that are not here changes nothing."""
        handler = HANDLERS.get(type(record))
        if handler is not None:
            handler(self, sequence, record)

    def reset(self, keep_local: bool = False) -> None:
        """Forget everything but the built-in exchanges; or everything but them and the local
        objects.
        """
        self.arrivals.forget()
        self.features.clear()
        self.later.clear()
        self.lives.clear()
        self.policies.clear()
        self.federation.clear()
        for queue in list(self.queues.values()):
            if keep_local and queue.uid > 0 and queue.local_writer is not None:
                self.set_aside(queue, queue.local_writer)
            elif not keep_local or queue.uid > 0:
                self.remove_queue(queue)
        self.totals.clear()
        for exchange in list(self.exchanges.values()):
            if exchange.uid > 0 or (exchange.uid < LOCAL_UID and not keep_local):
                self.remove_exchange(exchange)
        self.to_follow |= dict.fromkeys(self.followed, 0)

    def set_aside(self, queue: Queue, local_writer: LocalWriter) -> None:
        """Take a queue away that may come again, and keep the messages that only this broker
        has.
        """
        self.detach_queue(queue)
        del self.by_uid[queue.uid]
        queue.retire()
        local_writer.set_aside(queue)

    def objects(self) -> Iterator[tuple[int, Record]]:
        """Walk through records that, applied in turn, rebuild all replicated objects; messages are
        not among them.

        Objects may change meanwhile: one that is gone is passed over, one that comes is left out,
        and of the others there is what they are when it is their turn. Who has the log from the
        beginning of this on has the rest: its records, applied to what shows their effects already,
        lead to the same state. That holds for the keys of a window too, as it is a fold that knows
        no order.

        Features come first: who reads on knows what he has to know for it. Policies come before the
        queues that follow them.
        """
        uids = [uid for uid in self.by_uid if uid > 0]
        exchanges = list(self.exchanges.values())
        for name, sequence in list(self.features.items()):
            yield sequence, FeatureEnabled(name)
        yield from list(self.later)
        for sequence, life in list(self.lives):
            yield sequence, LifeStarted(life)
        yield from self.policies.records()
        for exchange in exchanges:
            if exchange.uid > 0 and self.by_uid.get(exchange.uid) is exchange:
                yield exchange.uid, exchange.options
        for uid in uids:
            queue = self.by_uid.get(uid)
            if isinstance(queue, Queue):
                yield uid, queue.options
                if uid in self.replicas:
                    yield 0, self.replicas[uid]
                elif queue.own_numbers or queue.keeper:
                    yield 0, _level_of(queue)
                if queue.is_used:
                    yield 0, QueueUsed(uid)
                yield from remembered(queue)
        for exchange in exchanges:
            if self.by_uid.get(exchange.uid) is not exchange:
                continue
            for bound, key, arguments in exchange.bindings():
                if self.records_binding(exchange, bound, arguments):
                    yield 0, Bound(exchange.uid, bound.uid, key, arguments)
        yield from self.federation.records()

    def records_object(self, durable: bool, level: str) -> bool:
        """Whether a queue or an exchange belongs in the log."""
        return durable if self.records_durable_only else level != NONE

    def records_binding(
        self, exchange: Exchange, destination: Destination, arguments: Mapping[str, Any]
    ) -> bool:
        """Whether a binding belongs in the log: both its ends must, and it may say that others
        shall not learn of it.
        """
        if destination.uid < LOCAL_UID or exchange.uid < LOCAL_UID:
            return False
        return self.records_durable_only or arguments.get(REPLICATE) != NONE

    def messages_after(self, queue: Queue, cursor: int, max_bytes: int) -> list[Message]:
        """Return the logged messages of a queue after a sequence, in order, as many as fit into
        `max_bytes` (one at least); those that are still to be recorded come with their records.
        """
        if not queue.logged:
            return []
        recorded, last = queue.unrecorded
        if recorded <= cursor < last:
            cursor = last
        found = queue.messages_after(cursor, max_bytes)
        if cursor < recorded and found and found[-1].sequence > recorded:
            found = [each for each in found if not recorded < each.sequence <= last]
            return found or queue.messages_after(last, max_bytes)
        return found

    def part_after(
        self, queue: Queue, cursor: int, last: int, max_bytes: int
    ) -> Segment | list[Message]:
        """Return logged messages of a queue after a sequence, up to `last`, in order: a segment, or
        as many as fit into `max_bytes` (one at least).
        """
        if queue.logged and not any(queue.unrecorded):
            return queue.part_after(cursor, last, max_bytes)
        found = self.messages_after(queue, cursor, max_bytes)
        return [message for message in found if message.sequence <= last]

    def logged_queue(self, uid: int) -> Queue | None:
        """Return the queue whose messages a record tells of; None if there is none here.

        Its messages are in the log from now on, whatever its level: a broker alone recorded some
        before it joined a cluster, and what it accepted goes into every checkpoint and to every
        backup, with what comes and leaves later.
        """
        queue = self.by_uid.get(uid)
        if not isinstance(queue, Queue):
            return None
        if not queue.logged:
            self.take_into_log(queue, 0)
        return queue

    def take_into_log(self, queue: Queue, own_numbers: int) -> None:
        """The log has messages of a queue after all, with numbers of its own up to this one."""
        if queue.local_writer is not None:
            self.tell_gone(queue, queue.local_writer.put_aside(queue, own_numbers), IN_LOG)
        queue.take_into_log()

    def tell_gone(self, queue: Queue, count: int, why: str) -> None:
        """Do nothing: a broker tells that messages are gone that no other has."""

    def add_queue(self, uid: int, options: QueueDeclared) -> Queue:
        """Add a queue, in place of one that has its name."""
        former = self.queues.get(options.name)
        here = None if former is None or former.uid > LOCAL_UID else former.local_writer
        if former is not None and here is not None and not here.is_settled:
            # This may be of a time before that queue was made: it is judged when all is known.
            self.set_aside(former, here)
        elif former is not None and former.uuid == options.uuid and former.local_writer is not None:
            # It is this queue, and this broker had it for itself, or is about to.
            self.set_aside(former, former.local_writer)
        elif former is not None:
            self.displace(former, uid)
        # A level of `none` on an object with a record is that of a broker alone, now or before it
        # joined a cluster.
        logged = uid > 0 and (self.records_durable_only or options.replicate != CONFIGURATION)
        queue = self._make_queue(uid, options, logged=logged)
        self.place_queue(queue)
        if self.local_log is not None:
            self.local_log.came(queue)
        return queue

    def _make_queue(self, uid: int, options: QueueDeclared, *, logged: bool) -> Queue:
        followed = self.policies.of(options) if self.policies else None
        spec = self._compile(options, followed)
        return Queue(uid, options, self, spec=spec, logged=logged)

    def place_queue(self, queue: Queue) -> None:
        """Let a queue be found and get messages."""
        queue.is_replica = self._passive and queue.uid > 0
        self.queues[queue.name] = queue
        self.by_uid[queue.uid] = queue
        if is_of_route(queue.name):
            self.federation.queues.add(queue.name)
        if queue.spec.no_local:
            self.not_own.setdefault(queue.spec.no_local, {})[queue] = None
        followed = self.policies.of(queue.options) if self.policies else None
        if followed is not None:
            self.followed[queue] = followed
        if self.queue_watcher is not None:
            self.queue_watcher.queue_came(queue.name)

    def displace(self, queue: Queue, uid: int) -> None:
        """A queue with this uid takes the name of another one."""
        self.remove_queue(queue)

    def _compile(self, options: QueueDeclared, followed: Followed | None) -> QueueSpec:
        """Return the spec of a queue with what policies say of it."""
        if followed is not None:
            options = replace(options, arguments=followed.merged(options))
        return compile_spec(options, self._defaults)

    def policies_changed(self, records: Iterable[Record | None], last: int) -> None:
        """Have all queues, and exchanges, of which these policies say something follow the policies
        as they are now: some in each turn, for there may be many, and nothing that a replica has
        depends on it. But what a queue is to remember of its messages it remembers from this record
        on, on every broker.
        """
        told = [record for record in records if isinstance(record, PolicySet)]
        things: list[Destination] = []
        if any(says_of(Kind.QUEUE, policy) for policy in told):
            things += self.queues.values()
        if any(says_of(Kind.EXCHANGE, policy) for policy in told):
            things += [each for each in self.exchanges.values() if each.uid != DEFAULT_EXCHANGE]
        self.to_follow = dict.fromkeys(things, last) | self.to_follow
        if any(name in policy.settings for policy in told for name in REMEMBERED):
            self.follow_policies(ALL_LOOKS)
            return
        # These policies may have come before one that says it, or let it count again.
        for thing, followed in list(self.followed.items()):
            if thing in self.to_follow and any(followed.is_told_of(name) for name in REMEMBERED):
                self._follow_now(thing)

    def follow_policies(self, looks: int) -> None:
        """Give queues and exchanges what the policies say of them now, with so many looks at names
        and a few more.
        """
        costs: dict[int, int] = {}
        for thing, since in list(islice(self.to_follow.items(), looks // FOLLOWED + 1)):
            if looks <= 0:
                break
            if since not in costs:
                costs[since] = FOLLOWED + self.policies.cost_since(since)
            looks -= costs[since]
            self._follow_now(thing)

    def _follow_now(self, thing: Destination) -> None:
        """Give a queue, or an exchange, what the policies say of it now."""
        since = self.to_follow.pop(thing)
        if isinstance(thing, Exchange):
            former = self.followed.pop(thing, None)
            self._guide(thing, self.policies.of_now(thing.options, former, since))
        elif thing.deleted:
            # Its deletion may come to nothing, and then it is to remember what others do.
            spec = self._compile(thing.options, self.policies.of(thing.options))
            thing.remember_by(spec.dedup)
        else:
            former = self.followed.pop(thing, None)
            self._follow(thing, self.policies.of_now(thing.options, former, since))
            self.has_followed(thing)

    def has_followed(self, queue: Queue) -> None:
        """Do nothing: the primary changes levels, by records."""

    def _follow(self, queue: Queue, followed: Followed | None) -> None:
        """Give a queue what the policies say of it."""
        if followed is not None:
            self.followed[queue] = followed
        spec = self._compile(queue.options, followed)
        if spec != queue.spec:
            queue.reconfigure(spec)

    def _guide(self, exchange: Exchange, followed: Followed | None) -> None:
        """Give an exchange what the policies say of it."""
        options = exchange.options
        exchange.alternate = options.alternate
        if followed is not None:
            self.followed[exchange] = followed
            exchange.alternate = followed.merged(options).get(ALTERNATE, "")

    def label(self, queue: Queue, level: str) -> None:
        """A queue has another replicate level. Other policies may be for it then."""
        queue.relabel(level)
        self.followed.pop(queue, None)
        self.to_follow.pop(queue, None)
        self._follow(queue, self.policies.of(queue.options))

    def remove_queue(self, queue: Queue) -> None:
        """Take a queue, its bindings and messages away."""
        self.detach_queue(queue)
        self.close_queue(queue)

    def close_queue(self, queue: Queue) -> None:
        """End a queue that was detached."""
        del self.by_uid[queue.uid]
        if self.replicas.pop(queue.uid, None) is not None:
            self.replicas_version += 1
        queue.leave_local_log()
        queue.close()
        self.totals.add(queue)

    def detach_queue(self, queue: Queue) -> None:
        """Take a queue out of all routes, so that no message comes to it any more; its messages and
        consumers stay with it, and it is still found by its uid.
        """
        for uid, key in list(queue.bindings):
            exchange = self.by_uid.get(uid)
            if isinstance(exchange, Exchange):
                exchange.unbind(queue, key)
        del self.queues[queue.name]
        self.federation.queues.discard(queue.name)
        self.followed.pop(queue, None)
        self.to_follow.pop(queue, None)
        self.runnable.pop(queue, None)
        self.over_budget.pop(queue, None)
        not_own = self.not_own.get(queue.spec.no_local, {})
        not_own.pop(queue, None)
        if not not_own:
            self.not_own.pop(queue.spec.no_local, None)
        if self.queue_watcher is not None:
            self.queue_watcher.queue_went(queue.name)

    def add_exchange(self, uid: int, options: ExchangeDeclared) -> Exchange:
        """Add an exchange, in place of one that has its name."""
        former = self.exchanges.get(options.name)
        if former is not None:
            self.remove_exchange(former)
        exchange: Exchange = EXCHANGE_TYPES[options.type](uid, options)
        self.place_exchange(exchange)
        return exchange

    def place_exchange(self, exchange: Exchange) -> None:
        """Let an exchange be found."""
        self.exchanges[exchange.name] = exchange
        self.by_uid[exchange.uid] = exchange
        if self.policies:
            self._guide(exchange, self.policies.of(exchange.options))

    def remove_exchange(self, exchange: Exchange) -> None:
        """Take an exchange and its bindings away."""
        for destination, key, _ in list(exchange.bindings()):
            exchange.unbind(destination, key)
        for uid, key in list(exchange.incoming):
            source = self.by_uid.get(uid)
            if isinstance(source, Exchange):
                source.unbind(exchange, key)
        self.followed.pop(exchange, None)
        self.to_follow.pop(exchange, None)
        del self.exchanges[exchange.name]
        del self.by_uid[exchange.uid]
        exchange.tell_watchers()
        if self.local_log is not None and exchange.uid < LOCAL_UID:
            self.local_log.gone(exchange)

    def forget_locally(self, thing: Destination) -> None:
        """A queue or an exchange is deleted, so nothing that only this broker has leads there."""
        if self.local_log is not None:
            self.local_log.forget(thing)

    def left(self, queue: Queue) -> None:
        """Do nothing: the primary decides whether this is the end of the queue, by a record."""

    def pass_on(self, queue: Queue, message: Message, cause: Cause) -> int | None:
        """Do nothing: the primary publishes what dies elsewhere, by records."""
        return 0

    def evict(self, queue: Queue, messages: list[Message]) -> int:
        """Do nothing: the primary reroutes what had to make room, by records."""
        return 0

    def used(self, queue: Queue) -> None:
        """Do nothing: the primary records that a queue has its first user."""

    def _add_built_in_exchanges(self) -> None:
        default = DefaultExchange(
            ExchangeDeclared("", "direct", "", durable=True, replicate="none"), self.queues
        )
        self.exchanges[""] = self.by_uid[default.uid] = default
        for name, (uid, kind) in BUILT_IN_EXCHANGES.items():
            self.add_exchange(uid, ExchangeDeclared(name, kind, "", durable=True))


def _enqueued(state: State, sequence: int, record: Enqueued) -> None:
    state.insert_shared([(sequence, record)])


def _dequeued(state: State, sequence: int, record: Dequeued) -> None:
    queue = state.by_uid.get(record.queue)
    if isinstance(queue, Queue):
        queue.remove(record.sequences, record.cause)
        if queue.own_numbers and state.local_log is not None:
            state.local_log.left(queue, record.sequences, record.cause)


def _requeued(state: State, sequence: int, record: Requeued) -> None:
    queue = state.by_uid.get(record.queue)
    if isinstance(queue, Queue):
        queue.restate(record.sequence, record.delivery_count, record.annotations)
        if record.due or queue.delayed:
            queue.postpone(record.sequence, record.due)


def _queue_declared(state: State, sequence: int, record: QueueDeclared) -> None:
    if sequence not in state.by_uid:
        state.add_queue(sequence, record)


def _queue_deleted(state: State, sequence: int, record: QueueDeleted) -> None:
    queue = state.by_uid.get(record.queue)
    if not isinstance(queue, Queue):
        return
    here = queue.local_writer
    if here is not None and not here.is_settled:
        state.set_aside(queue, here)
    else:
        if here is not None and not queue.logged:
            state.tell_gone(queue, len(queue.messages), DELETED_THERE)
        state.remove_queue(queue)
        state.forget_locally(queue)


def _level_changed(state: State, sequence: int, record: LevelChanged) -> None:
    queue = state.by_uid.get(record.queue)
    if not isinstance(queue, Queue):
        return
    here = state.local_log
    if queue.logged and not record.logged and here is not None:
        if record.keeper != here.system_id:
            here.left(queue, queue.messages, Cause.DELETED)  # The primary has them.
    if record.logged and not queue.logged:
        state.take_into_log(queue, record.own_numbers)
    if record.own_numbers != queue.own_numbers:
        queue.own_numbers, queue.recorded = record.own_numbers, 0
    queue.recorded = max(queue.recorded, record.recorded)
    if record.logged and record.level == ALL and here is not None:
        state.tell_gone(queue, here.risen(queue), IN_LOG)
    queue.keeper = record.keeper
    if not record.logged:
        if queue.logged:
            queue.leave_messages()
        if here is not None:
            here.came(queue)
    if record.level != queue.options.replicate:
        state.label(queue, record.level)


def _queue_used(state: State, sequence: int, record: QueueUsed) -> None:
    queue = state.by_uid.get(record.queue)
    if isinstance(queue, Queue):
        queue.is_used = True


def _dedup_remembered(state: State, sequence: int, record: DedupRemembered) -> None:
    queue = state.logged_queue(record.queue)
    if queue is not None and queue.window is not None:
        queue.window.restore(record.keys, record.sequences)


def _level_of(queue: Queue) -> LevelChanged:
    """Return what a snapshot says of the numbers of a queue, or of who has what is on it."""
    return LevelChanged(
        queue.uid,
        queue.options.replicate,
        logged=queue.logged,
        own_numbers=queue.own_numbers,
        recorded=queue.recorded,
        keeper=queue.keeper,
    )


def gone_here(name: str, count: int, why: str) -> Announce:
    """Return how to tell that messages are gone that no other broker has."""
    text = f"{count} messages of queue {name} that only this broker had are gone: {why}"
    fields: dict[str, object] = {"queue": name, "messages": count}
    return Announce("warning", "store", text, fields, event_code=LOCAL_GONE)


def remembered(queue: Queue) -> Iterator[tuple[int, Record]]:
    """Walk through the records of a queue's window; messages alone would not tell of those that
    were consumed.
    """
    if queue.window is not None and queue.logged:
        for keys, sequences in queue.window.parts(KEYS_IN_RECORD):
            yield 0, DedupRemembered(queue.uid, keys, sequences)


def _exchange_declared(state: State, sequence: int, record: ExchangeDeclared) -> None:
    if sequence not in state.by_uid and record.type in EXCHANGE_TYPES:
        state.add_exchange(sequence, record)


def _exchange_deleted(state: State, sequence: int, record: ExchangeDeleted) -> None:
    exchange = state.by_uid.get(record.exchange)
    if isinstance(exchange, Exchange) and not exchange.is_built_in:
        state.remove_exchange(exchange)
        state.forget_locally(exchange)


def _bound(state: State, sequence: int, record: Bound) -> None:
    exchange, destination = state.by_uid.get(record.exchange), state.by_uid.get(record.queue)
    if isinstance(exchange, Exchange) and destination is not None:
        arguments = record.arguments
        if not state.records_binding(exchange, destination, arguments):
            # A broker alone recorded it, before it joined a cluster. All know of it now, as of an
            # object with that level.
            arguments = {**arguments, REPLICATE: ALL}
        exchange.bind(destination, record.key, arguments)


def _unbound(state: State, sequence: int, record: Unbound) -> None:
    exchange, destination = state.by_uid.get(record.exchange), state.by_uid.get(record.queue)
    if isinstance(exchange, Exchange) and destination is not None:
        exchange.unbind(destination, record.key)
        if state.local_log is not None:
            state.local_log.unbound(exchange, destination, record.key)


def _policy_changed(state: State, sequence: int, record: PolicySet | PolicyCleared) -> None:
    policies = state.policies
    former, last = policies.get(record.name, is_operator=record.is_operator), policies.last
    if policies.apply(sequence, record):
        state.policies_changed((record, former), last)


def _federation_changed(state: State, sequence: int, record: Record) -> None:
    state.federation.apply(sequence, record)


def _replica_set(state: State, sequence: int, record: ReplicaSet) -> None:
    queue = state.by_uid.get(record.queue)
    if isinstance(queue, Queue):
        former = state.replicas.get(record.queue)
        state.replicas[record.queue] = record
        if former is None or former.source != record.source:
            state.replicas_version += 1
        if not queue.is_copy:
            queue.begin_copying()
        elif former is not None and record.uuid and not former.uuid:
            queue.begin_anew()


def _replica_ended(state: State, sequence: int, record: ReplicaEnded) -> None:
    queue = state.by_uid.get(record.queue)
    if isinstance(queue, Queue) and state.replicas.pop(record.queue, None) is not None:
        state.replicas_version += 1
        is_replica = state.passive and queue.uid > 0
        queue.end_copying(record.own_numbers, is_replica=is_replica)


def _life_started(state: State, sequence: int, record: LifeStarted) -> None:
    if all(life != record.life for _, life in state.lives):
        state.lives = [*state.lives, (sequence, record.life)][-MOST_LIVES:]


def _feature_enabled(state: State, sequence: int, record: FeatureEnabled) -> None:
    state.features.setdefault(record.name, sequence)


def _unknown(state: State, sequence: int, record: Unknown) -> None:
    state.later.append((sequence, record))


HANDLERS = cast(
    "dict[type[object], Callable[[State, int, Record], None]]",
    {
        Enqueued: _enqueued,
        Dequeued: _dequeued,
        Requeued: _requeued,
        QueueDeclared: _queue_declared,
        LevelChanged: _level_changed,
        QueueDeleted: _queue_deleted,
        QueueUsed: _queue_used,
        DedupRemembered: _dedup_remembered,
        ExchangeDeclared: _exchange_declared,
        ExchangeDeleted: _exchange_deleted,
        Bound: _bound,
        Unbound: _unbound,
        PolicySet: _policy_changed,
        PolicyCleared: _policy_changed,
        LinkDeclared: _federation_changed,
        LinkDeleted: _federation_changed,
        RouteDeclared: _federation_changed,
        RouteDeleted: _federation_changed,
        ReplicaSet: _replica_set,
        ReplicaEnded: _replica_ended,
        LifeStarted: _life_started,
        FeatureEnabled: _feature_enabled,
        Unknown: _unknown,
    },
)
"""How each record is applied; records that are not here concern the cluster and not the state."""
