"""Queues: messages on their way from senders to consumers.

The way of a message through a queue, on a primary:

1. `enqueue` asks whether the queue takes it: is there room, has it been here before? While the
   queue has fewer messages than `fast_path_limit` nothing can speak against it, and nothing is
   asked.
2. The log writer gives it a sequence, which is its identity and its place, and `insert` puts it
   there. From now on it is on the queue; its sender is answered when the record is committed.
3. At the end of the turn `dispatch` takes the next message from the ordering, acquires it and gives
   it to a consumer. It stays on the queue: to be acquired is not recorded.
4. The consumer says what becomes of it. Accepted, it leaves by `dequeue`; released or modified, it
   is available again in its place (`release`, `requeue`); rejected, it leaves by `reject`. A
   message may also expire, be purged, or have to make room. Every departure has a `Cause` and goes
   through `departures.py`.

A queue is made of parts, each of which answers one question, and is given by the `QueueSpec`:

| part | question |
|---|---|
| `ordering` | which message is next? |
| `dispatcher` | which consumer may have it? |
| `Departures` | what happens when it leaves? |
| limits, lifetime, window | does it come in, does the queue end, was it here before? |
| senders | who gets no credit while there is too much on the queue? |

Senders wait before messages are refused. A queue that holds more than its flow-stop gives its
senders no credit (`admits`) and tells them when it is down to its flow-resume (`judge`). What all
of them may have on their way (`share`) has room between flow-stop and the limit. Only a queue that
decides does this, and a successor looks at what it has: nothing of it is recorded.

Why replicas agree. Every decision is made on the primary and written as a record: the message came
(`Enqueued`), it changed (`Requeued`), it left (`Dequeued`). A backup makes none: `insert`,
`restate` and `remove` apply the records, and `enqueue`, `dequeue`, `drop` do nothing on a
replica. The rest (which consumer has a message, whose turn it is) is not needed by a successor:
`promoted` makes every message available again, in the same order. An outcome that was not committed
when the primary died counts as never given, so the message is delivered once more; never is one
lost.

Knows nothing of exchanges, links or clusters. Source: Qpid `Queue.cpp`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, Protocol

from qpidha.broker.queues.alerts import Alerts
from qpidha.broker.queues.apart import Apart
from qpidha.broker.queues.arrivals import Arrival, Arrivals
from qpidha.broker.queues.backlog import Backlog, Watch
from qpidha.broker.queues.dead_letters import BY_CONSUMER, REASONS
from qpidha.broker.queues.dedup import Window
from qpidha.broker.queues.dispatch import MAX_CONSUMERS, RoundRobin, SingleActive
from qpidha.broker.queues.groups import ByGroup
from qpidha.broker.queues.intake import Intake
from qpidha.broker.queues.lifetime import Lifetime
from qpidha.broker.queues.limits import REJECT_DEAD_LETTER, RING_STRICT, SELF_DESTRUCT, UNLIMITED
from qpidha.broker.queues.log_writer import BothLogs
from qpidha.broker.queues.priority import Priority
from qpidha.broker.queues.spec import Needs, check_change
from qpidha.broker.queues.times import Times
from qpidha.model.encoding import ULong
from qpidha.model.errors import (
    LimitExceeded,
    NotAllowed,
    ProtocolViolation,
    QueueFull,
    RefusedRequest,
    ResourceDeleted,
    ResourceLocked,
)
from qpidha.model.event_codes import IS_REPLICA
from qpidha.model.features import QUEUE_KINDS
from qpidha.model.message_view import add_annotation, is_durable
from qpidha.model.records import Cause, Requeued
from qpidha.model.replication_level import REPLICATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from qpidha.broker.queues.crossing import Crossings
    from qpidha.broker.queues.dedup import Dedup
    from qpidha.broker.queues.departures import Departures
    from qpidha.broker.queues.dispatch import Consumer, Dispatch
    from qpidha.broker.queues.log_writer import LocalWriter, LogWriter
    from qpidha.broker.queues.messages import Messages, Segment
    from qpidha.broker.queues.ordering import Ordering
    from qpidha.broker.queues.remains import Remains
    from qpidha.broker.queues.returns import Returns
    from qpidha.broker.queues.spec import QueueSpec
    from qpidha.model.memory import MemoryUse
    from qpidha.model.message import Message
    from qpidha.model.records import QueueDeclared

ACCEPTED = int(Cause.ACCEPTED)
"""As a plain number: the short way out of a queue counts with it."""
ANY_NUMBER = 1 << 62
"""Above every number of a message."""
DYING = frozenset(REASONS) - {Cause.DELETED}
"""The causes for which messages become dead letters, beside the end of the queue."""
MOST_OVER = 1000
"""Messages over the limits of a ring that leave in the turn of the next newcomer."""
PASSED_AT_ONCE, BYTES_AT_ONCE = 100, 8 << 20
"""Of those that are passed on then, how many, and of how many bytes: each is written once more."""
CAUSES = [(int(cause), cause.name.lower().replace("_", "-")) for cause in Cause]
"""The causes of departures with the names by which they are shown."""


class QueueHost(Protocol):
    """The broker around a queue, as the queue sees it."""

    runnable: dict[Queue, None]
    """Queues with something to dispatch."""
    delivery_paused: bool
    over_budget: dict[Queue, None]
    """Queues with more bytes in memory than they may have."""
    use: MemoryUse

    arrivals: Arrivals
    """When the places in the log were given."""
    now: int

    crossings: Crossings
    departures: Departures
    remains: Remains
    returns: Returns

    @property
    def usable(self) -> frozenset[str]:
        """The features that may be written."""
        ...

    @property
    def has_two_logs(self) -> bool:
        """Whether some messages are recorded in the local log and others in that of the cluster."""
        ...

    def crosses(self, source: Queue, target: Queue) -> bool:
        """Whether a message that goes from one queue to another leaves when it has arrived."""
        ...

    @property
    def refuse_publishing(self) -> str:
        """Why nothing that is recorded may be sent here at present; empty if it may."""
        ...

    @property
    def refuses_now(self) -> str:
        """Why the message that comes at this moment may not be recorded; empty if it may."""
        ...

    @property
    def time(self) -> int:
        """The time by which messages expire, in ns since the Unix epoch."""
        ...

    def look_at(self, queue: Queue, at: int) -> None:
        """Call the queue's `look` at a time."""
        ...

    def search(self, queue: Queue) -> None:
        """Find out, some messages a turn, when each message of a queue expires."""
        ...

    def bury(self, queue: Queue, payload: bytes) -> None:
        """Make a dead letter of a message that was refused, as the queue is full."""
        ...

    def destruct(self, queue: Queue) -> None:
        """Delete a queue that is to end when it is full."""
        ...

    def alert(self, queue: Queue, is_up: bool) -> None:
        """Tell that a queue has come to a depth, or is down again."""
        ...

    def recall(self, queue: Queue) -> None:
        """Remember, some a turn, the keys of the messages that are on a queue."""
        ...

    def sweep(self, queue: Queue) -> None:
        """Have the messages leave, some a turn, that were delivered too often."""
        ...

    def trim(self, queue: Queue) -> None:
        """Bring a ring down to its limits, some messages a turn."""
        ...

    def left(self, queue: Queue) -> None:
        """A consumer, a sender, the owner or the last message left: the queue may have come to its
        end.
        """
        ...

    def evict(self, queue: Queue, messages: list[Message]) -> int:
        """Give messages that had to make room to the queue's alternate exchange; return the
        sequence to wait for.
        """
        ...

    def renew(self, queue: Queue) -> None:
        """The time counts anew that the queue stays without a consumer."""
        ...

    def used(self, queue: Queue) -> None:
        """A queue that ends when its users have left has its first one."""
        ...


class Room(NamedTuple):
    """What has to leave so that a message can come."""

    leaving: Sequence[Message] = ()
    """Leaves before it comes."""
    is_least: bool = False
    """Whether it has to leave itself: what is here is of higher priorities."""
    replaced: Message | None = None
    """Leaves when it comes: it has the same key."""


NOBODY, LEAST = Room(), Room(is_least=True)
"""There is room; there is only what stays before the newcomer."""


class Sender(Protocol):
    """Puts messages on a queue, of which it may have some on their way; the links of clients are
    such.
    """

    def resumed(self) -> None:
        """The queue, which did not admit it, may do so now."""
        ...


class Queue(Backlog):
    """One queue."""

    __slots__ = (
        "_host",
        "_local",
        "_noted_until",
        "alerts",
        "bindings",
        "crossing",
        "crossing_bytes",
        "consumers",
        "deleted",
        "dispatcher",
        "durable",
        "enqueued",
        "fast_path_bytes",
        "fast_path_limit",
        "free_count",
        "inherited",
        "intake",
        "is_copy",
        "is_judged",
        "is_leaving",
        "is_replica",
        "is_searching",
        "is_stopped",
        "is_watched",
        "local_writer",
        "log_writer",
        "max_bytes",
        "max_count",
        "may_expire",
        "name",
        "notes",
        "options",
        "senders",
        "spec",
        "syncs",
        "times",
        "uid",
        "unplaced",
        "waiting",
        "waits_for",
        "window",
    )

    deduplicated = Apart[int]()
    ends_empty = Apart[bool]()
    flow_stops = Apart[int]()
    is_closed = Apart[bool]()
    is_rising = Apart[bool]()
    is_used = Apart[bool]()
    keeper = Apart[str]()
    lifetime = Apart[Lifetime]()
    not_rerouted = Apart[int]()
    _own_arrivals = Apart[Arrivals | None]()
    owner = Apart[object | None]()
    refused = Apart[int]()
    ring = Apart[bool]()
    timeout = Apart[int]()
    transacted_in = Apart[int]()
    transacted_in_bytes = Apart[int]()
    transacted_out = Apart[int]()
    transacted_out_bytes = Apart[int]()
    uuid = Apart[str]()
    why_unplaced = Apart[str]()

    def __init__(
        self, uid: int, options: QueueDeclared, host: QueueHost, *, spec: QueueSpec, logged: bool
    ) -> None:
        super().__init__(logged, spec.limits.memory, host.use, spec.make_ordering)
        self.uid = uid
        self.name = options.name
        self.uuid = options.uuid
        self.options = options
        self.log_writer: LogWriter | None = None
        """Where messages are recorded; None for a queue whose messages are not in the cluster's
        log.
        """
        self.durable = options.durable
        self.waits_for = 0
        """The record by which others forget what they have of this queue, while it is not
        committed: until then they may bring it back, so what happens here waits for it.
        """
        self.syncs = False
        """Whether a durable message may be here, so that what leaves must be known after a restart.
        """
        self.is_replica = False
        """Whether others decide about this queue: the primary, or the source of a copy."""
        self.is_used = False
        """Whether it ever had a user; kept for queues that end when their users have left."""
        self.window = None if spec.dedup is None else Window(spec.dedup)
        """What this queue remembers of the messages it had; None if it takes messages twice."""
        self.owner = None
        self.dispatcher = _dispatch_of(spec)
        self.consumers = self.dispatcher.consumers
        self._begin_flow()
        self.bindings: dict[tuple[int, str], None] = {}
        """(exchange uid, key) of each binding."""
        self.deleted = False
        self._begin_totals()
        self.not_rerouted = 0
        """Messages, in total, that were to go elsewhere, found no place there, and were dropped."""
        self.unplaced: dict[int, tuple[Message, Cause]] = {}
        """Messages that died and are to be passed on, but have no place there yet, with why they
        died, by sequence in the order of their deaths; no consumer gets them.
        """
        self.why_unplaced = ""
        """Why the last of them that was tried has no place."""
        self.inherited = 0
        """The last sequence that was here when this broker began to decide: up to it, any message
        may have been with a consumer of another broker, or of this one before it was restarted.
        """
        self.is_searching = False
        """Whether the dispatch goes on next turn, behind messages that have expired."""
        self.intake: Intake | None = None
        """Which messages it takes; None for all."""
        self._host = host
        self._begin_numbering()
        self.may_expire = False
        """Whether a message that is here may expire."""
        self.times: Times | None = None
        """When to look at which message; None while there is none to be looked at, or another
        broker decides.
        """
        self._follow(spec)

    def _begin_numbering(self) -> None:
        """Have no number of its own yet, nor those of another queue."""
        self.is_copy = False
        """Whether it is a replica of a queue elsewhere, which has the messages that that one has,
        with their numbers there, and nothing else.
        """
        self.local_writer: LocalWriter | None = None
        """Where messages with such numbers are recorded; None if they are in memory only."""
        self.is_leaving = False
        """Whether it is on its way out of the cluster's log: all is recorded there and here."""
        self.is_rising = False
        """Whether it is on its way into the log, or about to be, and the local log has it."""
        self.keeper = ""
        """The system id of the broker that gave it to the cluster's log, or took it out of that,
        and has on its disk what the log lacks; empty if there is none.
        """
        self.crossing: dict[int, int] = {}
        """Messages that are on a queue in the other log already, and leave when that is committed
        (`crossing.py`), by sequence, with the place to wait for; no consumer gets them.
        """
        self.crossing_bytes = 0
        self._local = 0
        """The number of the last message that is not logged."""
        self._own_arrivals = None
        """When such numbers were given; None before the first."""
        self._noted_until = 0
        """From this time on it is to be noted of such a number."""

    def _begin_flow(self) -> None:
        """Admit every sender."""
        self.senders: dict[Sender, None] = {}
        self.waiting: dict[Sender, None] = {}
        """Senders that were not admitted."""
        self.is_stopped = False
        """Whether senders get no credit, until less is here."""
        self.is_closed = False
        """Whether it takes no message before it is down to its low water."""
        self.refused = 0
        """How many messages found no room, in total."""
        self.alerts: Alerts | None = None
        self.is_judged = False
        """Whether a departure may let senders go on, or end an alert."""
        self.flow_stops = 0
        """How often senders were stopped."""

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, {len(self.messages)} messages)"

    @property
    def departures(self) -> dict[str, int]:
        """How many messages have left, in total, by the name of the cause. Messages that came and
        left in one turn are counted by the primary only: no other broker hears of them.
        """
        return {name: self.departed[cause] for cause, name in CAUSES}

    def _begin_totals(self) -> None:
        self.enqueued = self.deduplicated = 0
        self.transacted_in = self.transacted_in_bytes = 0
        self.transacted_out = self.transacted_out_bytes = 0
        """Of what came, and of what was accepted, that of transactions."""

    def transacted(self, messages: int, size: int, *, is_departure: bool) -> None:
        """Count what a transaction puts here, or has taken."""
        if is_departure:
            self.transacted_out += messages
            self.transacted_out_bytes += size
        else:
            self.transacted_in += messages
            self.transacted_in_bytes += size

    @property
    def oldest_arrival(self) -> Arrival | None:
        """When the oldest message came, whoever has it; None if there is none."""
        number = self.ordering.lowest() if self.messages else 0
        if not number:
            return None
        host = self._host
        found = None
        if not self.logged or number <= self.own_numbers:
            found = self._own_arrivals and self._own_arrivals.find(number)
        # A queue that is recorded no more has messages with the numbers that the log gave them.
        if found is None and number > self.own_numbers:
            found = host.arrivals.find(number)
        return found or Arrival(host.now, is_exact=False)

    @property
    def in_flight(self) -> int:
        """How many messages consumers have, and nobody has settled yet."""
        return self.acquired - len(self.unplaced) - len(self.delayed) - len(self.crossing)

    @property
    def staying(self) -> int:
        """How many messages take up room here: all but those that are elsewhere already."""
        return len(self.messages) - len(self.crossing)

    @property
    def staying_bytes(self) -> int:
        """How many bytes these have."""
        return self.bytes - self.crossing_bytes

    @property
    def priorities(self) -> dict[str, int] | None:
        """How many messages are on each level of priority that has some, the highest first; None
        if there are no levels.
        """
        if not isinstance(self.ordering, Priority):
            return None
        counts = self.ordering.counts
        return {
            str(level): counts[level] for level in reversed(range(len(counts))) if counts[level]
        }

    @property
    def expired(self) -> int:
        """How many messages have expired, in total."""
        return self.departed[Cause.EXPIRED]

    @property
    def rejected(self) -> int:
        """How many messages consumers have rejected, in total."""
        return self.departed[Cause.REJECTED]

    @property
    def discarded(self) -> int:
        """How many messages were purged, or found no room where they were to go, in total."""
        return self.departed[Cause.PURGED] + self.not_rerouted

    @property
    def left_out(self) -> int:
        """How many messages were not for it, by its filter or for who sent them, in total."""
        return 0 if self.intake is None else self.intake.left_out

    # The parts.

    def reconfigure(self, spec: QueueSpec) -> None:
        """Become a queue made of `spec`, with the messages that are here; raise PreconditionFailed,
        with the reason, for a change that cannot be made, and change nothing.

        Every replica is to be given the same spec; one that says what is to be remembered, at the
        same place in the log. Nothing leaves at once: a queue that is over its new limits refuses
        messages until it is not, or, as a ring, makes room when the next message comes; or turn by
        turn from now on, if that were too many for one. A shorter window forgets its oldest keys
        now; a longer one, or one of other keys, learns those of the messages that are here some a
        turn. A new lifetime counts from the next time that something leaves the queue. What is over
        a lower delivery limit leaves some a turn. A shorter time to live holds for all messages,
        from now on; with a longer one those that are here keep theirs. Another time for
        which consumers may keep messages holds for those that they have.
        """
        check_change(self.name, self.spec, spec)
        if spec.priorities is not None and isinstance(self.ordering, Priority):
            self.ordering.follow(spec.priorities)
        former = self.spec
        recalls = False
        if spec.dedup != former.dedup:
            recalls = self._change_window(spec.dedup)
        self._follow(spec)
        if recalls and self.messages and not self.is_replica:
            self._host.recall(self)
        if spec.ttl and not 0 < former.ttl <= spec.ttl and not self.is_replica:
            self._host.search(self)
        if spec.unused != former.unused:
            self._host.renew(self)
        if spec.patience != former.patience:
            for consumer in self.consumers:
                consumer.timeout_changed()
        if spec.delivery_limit.most < former.delivery_limit.most and not self.is_replica:
            self._host.sweep(self)
        if not self.is_replica and self.is_far_over:
            self._host.trim(self)
        if self.consumers or self.senders or self.owner is not None:
            self.mark_used()

    def _change_window(self, dedup: Dedup | None) -> bool:
        """Remember the keys of more or fewer messages, or none; return whether those of messages
        that are here may be among them.
        """
        former = self.spec.dedup
        if dedup is None:
            self.window = None
            return False
        if self.window is None or former is None or former.by != dedup.by:
            self.window = Window(dedup)
            return True
        self.window.resize(dedup.size)
        return dedup.size > former.size

    def take_into_log(self) -> None:
        """The log has messages of this queue after all. Those that were here have numbers that it
        gives to others, and go.
        """
        self.begin_log(self.spec.limits.memory)
        self.delayed.clear()
        self.times = None
        self.dispatcher.restart()
        self.window = None if self.spec.dedup is None else Window(self.spec.dedup)
        self.judge()

    def go_on_rising(self, recorded: int) -> None:
        """This broker decides again about a queue that was on its way into the log, and has more
        of it than the log got, which is up to `recorded`.
        """
        self.recorded = recorded
        self.unrecorded = (recorded, self.own_numbers)
        self.syncs = self.durable
        self.record_twice(self.log_writer)

    def record_twice(self, log_writer: LogWriter | None) -> None:
        """Until all is in the log, what leaves leaves what this broker keeps for itself as well."""
        if log_writer is not None and self.local_writer is not None:
            log_writer = BothLogs(self, log_writer)
        self.log_writer = log_writer

    def stop_rising(self) -> None:
        """Another broker decides, and has what the log got; this one keeps the rest for itself."""
        if self.logged and self.local_writer is not None:
            self.local_writer.put_aside(self, self.own_numbers)
        (recorded, last), self.unrecorded = self.unrecorded, (0, 0)
        if last:
            gone = [sequence for sequence in self.ordered() if recorded < sequence <= last]
            self.remove(gone, Cause.DELETED)

    def leave_local_log(self) -> None:
        """The queue is at its end."""
        if self.local_writer is not None:
            self.local_writer.gone(self)

    def begin_leaving(self, local_writer: LocalWriter) -> int:
        """Have all that comes, changes and leaves recorded on this broker too, as the queue is on
        its way out of the log; return the place to wait for.
        """
        log_writer = self.log_writer
        sequence = local_writer.lowers(self, 0 if log_writer is None else log_writer.end)
        self.is_leaving = True
        self.record_twice(log_writer)
        self.set_fast_path_limit()
        return sequence

    def stop_leaving(self, log_writer: LogWriter | None) -> None:
        """Stay in the log: what was recorded here beside it is of no use."""
        self.is_leaving = False
        self.log_writer = log_writer
        if self.local_writer is not None:
            self.local_writer.let_go(self)
        self.set_fast_path_limit()

    def relabel(self, level: str) -> None:
        """Be called a queue of another replicate level."""
        arguments = {**self.options.arguments, REPLICATE: level}
        self.options = replace(self.options, replicate=level, arguments=arguments)

    def begin_recording(self, log_writer: LogWriter, own_numbers: int) -> None:
        """What comes is recorded from now on; what is here keeps its numbers, up to `own_numbers`,
        and is recorded in slices.
        """
        self.logged = True
        self.keeper = "" if self.local_writer is None else self.local_writer.system_id
        self.own_numbers, self.recorded, self.unrecorded = own_numbers, 0, (0, own_numbers)
        self.syncs = self.durable
        self.record_twice(log_writer)
        self.set_memory(self.memory)
        self.set_fast_path_limit()

    def end_recording(self, last: int, keeper: str) -> None:
        """Messages have numbers of the queue's own from now on, above `last`, for none is to have
        the number of one that was here; nothing of them is recorded but by the `keeper`.
        """
        self.leave_log()
        self.keeper = keeper
        self.is_leaving = False
        self.syncs = self.syncs and self.local_writer is not None
        self.log_writer = None
        self._host.over_budget.pop(self, None)
        self.waits_for = last
        self._local = max(self._local, last)
        self.set_fast_path_limit()

    def leave_messages(self) -> None:
        """The messages are on the primary only from now on."""
        self.leave_log()
        self._host.over_budget.pop(self, None)
        self._host.remains.add(*self._clear())
        self.delayed.clear()
        self.times = None
        self.dispatcher.restart()
        self.window = None if self.spec.dedup is None else Window(self.spec.dedup)
        self._set_notes()
        self.judge()

    def begin_copying(self) -> None:
        """Be a replica of a queue elsewhere: nothing but what its source tells changes it."""
        self.is_copy = self.is_replica = True
        if self.watch is not None:
            self.watch.stirred()
        if self.logged:
            self.own_numbers = ANY_NUMBER
        self.set_memory(self.memory)
        self.set_fast_path_limit()

    def begin_anew(self) -> None:
        """Give up all that is here, without a trace: messages with the same numbers may come."""
        self.departed[Cause.PURGED] += len(self.messages)
        self._host.over_budget.pop(self, None)
        self._host.remains.add(*self._clear())
        self.delayed.clear()
        self.dispatcher.restart()
        self.window = None if self.spec.dedup is None else Window(self.spec.dedup)

    def end_copying(self, own_numbers: int, *, is_replica: bool) -> None:
        """Be a queue like any other; messages up to `own_numbers` keep their numbers."""
        self.is_copy, self.is_replica = False, is_replica
        if self.logged:
            self.own_numbers = own_numbers
        self.set_memory(self.memory)
        self.set_fast_path_limit()

    @property
    def memory(self) -> int:
        """How many bytes of bodies may be in memory, if they are on the disk. A replica of a queue
        elsewhere has no consumers, who would be next to get them.
        """
        return 0 if self.is_copy else self.spec.limits.memory

    @property
    def is_recorded(self) -> bool:
        """Whether what comes and leaves is written to the disk, or to others."""
        return self.log_writer is not None or self.local_writer is not None

    @property
    def may_record(self) -> bool:
        """Whether there is room to record something."""
        return not self._host.refuse_publishing

    @property
    def last_number(self) -> int:
        """The highest number of a message that is or was here."""
        return max(self._local, self.ordering.last)

    def _follow(self, spec: QueueSpec) -> None:
        """Copy the fields of a spec that are read for every message."""
        if self.alerts is None or self.alerts.thresholds != spec.alerts:
            self.alerts = None if spec.alerts is None else Alerts(spec.alerts)
        self.spec = spec
        if self.intake is None or self.intake.filters != spec.filters:
            is_choosy = spec.filters or spec.no_local
            self.intake = Intake(spec.filters, spec.no_local) if is_choosy else None
        self._make_ordering = spec.make_ordering
        self.lifetime = spec.lifetime
        self.timeout = spec.timeout
        self.ends_empty = spec.lifetime.needs_no_messages
        self.is_watched = self.ends_empty or self.dispatcher.heeds
        self.max_count = spec.limits.max_count
        self.max_bytes = spec.limits.max_bytes
        """As in the spec, unless this queue is a ring that is being brought down to that."""
        self.ring = spec.limits.ring
        self.set_memory(self.memory)
        self._set_notes()
        self.set_fast_path_limit()
        if not self.is_replica:
            self.judge()

    def remember_by(self, dedup: Dedup | None) -> None:
        """Become a queue that remembers other keys, or more or fewer; all else stays as it is."""
        if dedup != self.spec.dedup:
            self._change_window(dedup)
            self.spec = replace(self.spec, dedup=dedup)
            self._set_notes()

    def set_fast_path_limit(self) -> None:
        """Let messages take the short way in, if nothing has to be asked about each of them and
        none makes the queue stop its senders.
        """
        is_asked = (
            self.deleted
            or self.is_copy
            or self.is_closed
            or self.is_leaving
            or Needs.DEDUP_KEY in self.spec.needs
            or bool(self.spec.filters)
            or (self.is_recorded and self._host.refuse_publishing)
        )
        limits = self.spec.limits
        count, size = self.max_count, self.max_bytes
        if not self.is_stopped:
            count, size = min(count, limits.stop_count), min(size, limits.stop_bytes)
        alerts = self.alerts
        if alerts is not None and not alerts.is_up:
            count = min(count, alerts.thresholds.count - 1)
            size = min(size, alerts.thresholds.size - 1)
        self.is_judged = self.is_stopped or (alerts is not None and alerts.is_up)
        self.free_count = 0 if is_asked else count
        # With a time to live each message has to be told its own, and of last values the key is
        # looked for, but they are asked nothing for that.
        is_short = not (self.spec.ttl or self.spec.last_value)
        self.fast_path_limit = self.free_count if is_short else 0
        self.fast_path_bytes = size

    # Verbs of a primary.

    def enqueue(self, payload: bytes, expires: int = 0, *, passed: Message | None = None) -> int:
        """Add a message, unless it is a duplicate or not for this queue; return the sequence to
        wait for, 0 if it is not logged. `passed`: see `passes_over`.
        """
        room: Room | None = None
        # The usual case is one comparison for each limit. A queue that has to look at every message
        # (for duplicates, or because it takes none) has a fast_path_limit of 0.
        if (
            len(self.messages) >= self.fast_path_limit
            or self.bytes + len(payload) > self.fast_path_bytes
        ):
            if self.spec.ttl:
                expires = self.expiry_of(expires)
            if (
                len(self.messages) >= self.free_count
                or self.bytes + len(payload) > self.fast_path_bytes
            ):
                original = self.passes_over(payload, passed)
                if original is not None:
                    return original
                room = self.make_room(payload)
                self.replace(room)
            elif self.spec.last_value:
                former = self.ordering.replaced_by(payload)
                if former is not None:
                    self._host.departures.leave(self, [former], Cause.REPLACED)
        log_writer = self.log_writer
        if log_writer is None:
            self.check_open()
            sequence = self.insert_local(payload, expires)
        else:
            # A batch is synced as a whole: once one durable message is in it, the headers of those
            # that follow need not be read.
            if self.durable and not (self.syncs and log_writer.must_sync) and is_durable(payload):
                log_writer.must_sync = self.syncs = True
            sequence = log_writer.enqueue(self.uid, payload, expires)
            self.insert(sequence, payload, expires)
        if room is not None:
            if self.is_leaving:
                sequence = max(sequence, self.record_here(payload, expires))
            leaving = self.settle(room, self.ordering.last)
            # Only now: messages that overflow may come back to this queue by their alternate
            # exchange, and must not take the place of the newcomer.
            if leaving:
                self._host.evict(self, leaving)
        return sequence

    def record_here(self, payload: bytes, expires: int) -> int:
        """Record the message that came last on this broker too, before the queue leaves the log;
        return the place to wait for.
        """
        local_writer = self.local_writer
        if local_writer is None:
            return 0
        return local_writer.enqueue(self, self.ordering.last, payload, expires)

    def replace(self, room: Room) -> None:
        """A message comes now: let the one leave whose place it takes."""
        if room.replaced is not None:
            self._host.departures.leave(self, [room.replaced], Cause.REPLACED)

    # A ring that is far over its limits, as they were lowered.

    @property
    def is_far_over(self) -> bool:
        """Whether this is a ring with more over its limits than can leave in one turn."""
        if not self.ring or not self.messages:
            return False
        limits, count, size = self.spec.limits, self.staying, self.staying_bytes
        over_bytes = (size - limits.max_bytes) * count // max(size, 1)
        return max(count - limits.max_count, over_bytes) > MOST_OVER

    def ease(self) -> bool:
        """Be full as it is, so that a newcomer has no more leave than it needs; return False if it
        is not over its limits.
        """
        self._ease()
        return self.is_eased

    def _ease(self, size: int | None = None) -> None:
        """Be full as it is, or with one of this size more."""
        limits = self.spec.limits
        self.max_count = max(limits.max_count, self.staying + (size is not None))
        self.max_bytes = max(limits.max_bytes, self.staying_bytes + (size or 0))
        self.set_fast_path_limit()

    @property
    def is_eased(self) -> bool:
        """Whether more may be here than the limits say."""
        limits = self.spec.limits
        return self.max_count > limits.max_count or self.max_bytes > limits.max_bytes

    def tighten(self) -> None:
        """Hold to the limits again."""
        self.max_count, self.max_bytes = self.spec.limits.max_count, self.spec.limits.max_bytes
        self.set_fast_path_limit()

    def surplus(self, most: int) -> list[Message]:
        """Return the first `most` of the messages that a ring has over its limits."""
        found: list[Message] = []
        limits = self.spec.limits
        over = self.staying - limits.max_count
        over_bytes = self.staying_bytes - limits.max_bytes
        for message in self.ordering.giving_way(None) if self.ring else ():
            if len(found) >= most or (over <= 0 and over_bytes <= 0):
                break
            found.append(message)
            over -= 1
            over_bytes -= message.size
        return found

    def push_out(self, messages: list[Message]) -> int:
        """Let messages leave that are over the limits; return the sequence to wait for."""
        recorded = self._make_way(messages)
        if self.spec.dead_letters is None:
            recorded = max(recorded, self._host.evict(self, messages))
        if self.ends_empty:
            self._host.left(self)
        return recorded

    def _make_way(self, messages: Sequence[Message]) -> int:
        """Let messages leave for others; return the sequence to wait for. Where the alternate
        exchange has them afterwards, and that may be in the other log, `evict` records it.
        """
        if self._host.has_two_logs and self.spec.dead_letters is None and self.options.alternate:
            for message in messages:
                self.begin_crossing(message, 0)
            return 0
        return self._host.departures.leave(self, messages, Cause.OVERFLOW)

    def settle(self, room: Room, sequence: int) -> list[Message]:
        """The message of this sequence has come, for which `room` was made; return those that are
        to go to the alternate exchange.
        """
        leaving = list(room.leaving)
        if room.is_least:
            newcomer = self.messages[sequence]
            self._make_way([newcomer])
            if self.spec.dead_letters is None:
                leaving.append(newcomer)
        self.judge()
        return leaving

    def passes_over(self, payload: bytes, passed: Message | None = None) -> int | None:
        """Count a message that is not for this queue or has been here before, and return the
        sequence to wait for; None for one that is to come in. One that was not sent but is `passed`
        on by this broker, as a dead letter, would be nowhere else: it is one too many only while
        another with its key is still here, and stays.
        """
        if self.intake is not None and not self.intake.takes(payload):
            self.check_open()
            return 0
        if self.window is None:
            return None
        # Refused before it is looked up: a backup must not answer for a message that only the
        # primary knows to be committed.
        self.check_open()
        original = self.window.find(payload)
        if original is None:
            return None
        if passed is not None and (
            self.messages.get(original, passed) is passed or original in self.crossing
        ):
            return None
        self.deduplicated += 1
        # The sender of a duplicate waits for the original: it may not be committed yet.
        return self.all_so_far() if self.log_writer is None or self.is_leaving else original

    def room_for(self, payload: bytes) -> Room:
        """Name the messages that must leave so that one can come; raise LimitExceeded if it
        cannot.
        """
        self.check_open()
        size, limits = len(payload), self.spec.limits
        excess = self.staying + 1 - self.max_count
        excess_bytes = self.staying_bytes + size - self.max_bytes
        replaced = self.ordering.replaced_by(payload)
        if replaced is not None and replaced.sequence not in self.crossing:
            excess -= 1
            excess_bytes -= replaced.size
        if excess <= 0 and excess_bytes <= 0 and not self._shuts_out(replaced):
            return NOBODY if replaced is None else Room(replaced=replaced)
        if self.ring and size <= self.max_bytes:
            others = (each for each in self.ordering.giving_way(payload) if each is not replaced)
            leaving = _enough(others, excess, excess_bytes)
            if leaving and (limits.overflow != RING_STRICT or self._are_first(leaving)):
                return Room(leaving, replaced=replaced)
            if not leaving and _enough(self.ordering.waiting(), excess, excess_bytes):
                # One that had to leave and has no place among the dead letters is here in excess.
                if excess > 1 and self.spec.dead_letters is not None:
                    raise self._full(size, self._why_kept())
                return LEAST
        if limits.low_water < 100:
            self._close(True)
        raise self._full(size)

    def _are_first(self, messages: list[Message]) -> bool:
        """Whether no consumer has a message that should give way before one of these."""
        return not any(
            message.acquired and message.sequence not in self.crossing
            for message in self.ordering.before(messages[-1])
        )

    def _shuts_out(self, replaced: Message | None) -> bool:
        """Whether no message is taken, as one was refused and there is too much here since; but one
        that is `replaced` gives its place to a newcomer.
        """
        if self.is_closed and self.spec.limits.is_low(len(self.messages), self.bytes):
            self._close(False)
        return self.is_closed and replaced is None

    def _close(self, is_closed: bool) -> None:
        """Take no message, or take some again, whatever the limits."""
        self.is_closed = is_closed
        self.set_fast_path_limit()

    def _full(self, size: int, why: str = "") -> QueueFull:
        self.refused += 1
        depth = f"{len(self.messages)} messages and {self.bytes} bytes"
        return QueueFull(
            f"Queue {self.name} is full: with {depth} it cannot take {size} bytes more{why}",
            hint="Consume from it, or raise qpid.max_count or qpid.max_size.",
            info={"queue": self.name},
        )

    def expiry_of(self, expires: int, due: int = 0) -> int:
        """Return when a message that comes now, or is `due` later, expires here, if its sender said
        `expires`.
        """
        if not self.spec.ttl:
            return expires
        latest = max(self._host.time, due) + self.spec.ttl
        return min(expires, latest) if expires else latest

    def _why_kept(self) -> str:
        return f", for what should leave has no place elsewhere: {self.why_unplaced}"

    def ask(self, payload: bytes) -> Room:
        """Do as `room_for`, for a message that comes by itself: one that is refused may become a
        dead letter, or be the end of the queue.
        """
        try:
            return self.room_for(payload)
        except QueueFull:
            if self.spec.limits.overflow == REJECT_DEAD_LETTER:
                self._host.bury(self, payload)
            if self.spec.limits.overflow != SELF_DESTRUCT:
                raise
        self._host.destruct(self)
        raise ResourceDeleted(
            f"Queue {self.name} was deleted: it was full, and is to end then",
            hint="Declare it again.",
        )

    def make_room(self, payload: bytes, *, may_exceed: bool = False) -> Room:
        """Have messages leave before one comes, which is recorded before that one, so that a
        replica is never over the limit either. Return those that are still to go to the alternate
        exchange. Raise LimitExceeded if there is no room: what has to give way may have no place
        among the dead letters. If it `may_exceed`, the newcomer comes all the same then.
        """
        try:
            room = self.room_for(payload) if may_exceed else self.ask(payload)
        except QueueFull:
            if may_exceed:
                return Room(replaced=self.ordering.replaced_by(payload))
            raise
        if not room.leaving:
            return room
        leaving = self.at_once(room.leaving)
        rest = len(room.leaving) - len(leaving)
        if rest and self.is_eased and not may_exceed:
            raise self._full(len(payload), f", for which {len(room.leaving)} have to leave first")
        self._make_way(leaving)
        is_kept = any(
            message.sequence in self.messages and message.sequence not in self.crossing
            for message in leaving
        )
        if self.spec.dead_letters is not None and is_kept and not may_exceed:
            raise self._full(len(payload), self._why_kept())
        if rest:
            self._host.trim(self)
            self._ease(len(payload))
        return Room(leaving if self.spec.dead_letters is None else (), replaced=room.replaced)

    def at_once(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the first of the messages that have to leave, as many as may in one turn: all,
        where none is passed on.
        """
        if self.spec.dead_letters is None and not self.options.alternate:
            return messages
        size, found = 0, messages[:PASSED_AT_ONCE]
        for number, message in enumerate(found):
            size += message.size
            if size >= BYTES_AT_ONCE:
                return found[: number + 1]
        return found

    def check_room(self, size: int, room: Room = NOBODY) -> None:
        """Raise LimitExceeded if there is no room, though it was made."""
        if room.is_least:
            return
        replaced = room.replaced
        if replaced is not None and replaced.sequence in self.crossing:
            replaced = None
        count = self.staying - (replaced is not None)
        held = self.staying_bytes - (0 if replaced is None else replaced.size)
        is_full = count >= self.max_count or held + size > self.max_bytes
        if is_full or self._shuts_out(room.replaced):
            raise self._full(size)

    def check_open(self) -> None:
        """Raise RefusedRequest if no message can come here, whatever room there is."""
        if self.deleted:
            raise ResourceDeleted(f"Queue {self.name} has been deleted", hint="Declare it again.")
        if self.is_copy:
            raise self.copied("takes no messages")
        if self.is_replica:
            raise RefusedRequest(f"Queue {self.name} is a copy here", hint="Send to the primary.")
        if self.is_recorded and self._host.refuses_now:
            raise LimitExceeded(
                f"Queue {self.name} takes no messages at present: {self._host.refuses_now}",
                hint=(
                    "Try again later; consuming goes on. The broker's operator has to look "
                    "at its disk."
                ),
            )

    def copied(self, what: str) -> RefusedRequest:
        """Return the error for what cannot be done with a replica."""
        return NotAllowed(
            f"Queue {self.name} {what}: it is a replica of a queue elsewhere",
            hint=f"Use the source, or make it a queue of its own: qpid-ha replica stop {self.name}",
            event_code=IS_REPLICA,
        )

    def release(self, message: Message) -> int:
        """Make an acquired message available again, in its place, now or after a while; return the
        sequence to wait for.
        """
        # Not recorded: a message that is on the queue is available to a successor in any case.
        if self.spec.retry is not None and self._wait(message, self._retry_at(message, False)):
            return self.restated(message)
        self._release(message)
        return 0

    def _release(self, message: Message) -> None:
        is_here = message.sequence in self.messages and message.sequence not in self.crossing
        if message.acquired and is_here:
            message.acquired = False
            message.released += 1
            self.acquired -= 1
            self.released += 1
            self.restore(message)
            self._host.runnable[self] = None
            if message.expires:
                self._look_at(message.sequence, message.expires)

    def restore(self, message: Message) -> None:
        """A message is available again: in its place, and for consumers with selectors."""
        self.ordering.restore(message)
        views = self.dispatcher.views
        if views:
            views.give_back(message, len(self.messages))
        if self.dispatcher.heeds:
            self.dispatcher.returned(message)

    def requeue(
        self,
        message: Message,
        failed: bool,
        annotations: bytes = b"",
        *,
        not_to: Consumer | None = None,
        at: int | None = None,
    ) -> int:
        """Release a message that changed: a failed delivery, other annotations, or undeliverable to
        one consumer, with which it may die. The consumer may say when it is due, `at` a time that
        may be over.
        """
        if message.sequence not in self.messages or message.sequence in self.crossing:
            return 0
        is_buried = not_to is not None and self.spec.delivery_limit.buries
        if is_buried:
            failed, at = True, 0
        elif not_to is not None:
            not_to.refuse(message)
            self.dispatcher.wake(not_to)
        dies = failed and message.delivery_count >= self.spec.delivery_limit.most
        if dies:
            at = 0  # It is not to come back, so it waits for nothing.
        elif at is None:
            at = self._retry_at(message, failed)
        waits = at > 0 and self._wait(message, at)
        if not waits:
            self._release(message)
        # Only a change is recorded, so that a successor counts deliveries as this broker does.
        if self.is_replica or not (failed or annotations or waits):
            return 0
        self.restate(
            message.sequence, message.delivery_count + failed, annotations or message.annotations
        )
        recorded = self.restated(message)
        if is_buried:
            recorded = max(recorded, self._leave([message], Cause.UNDELIVERABLE))
        elif dies:
            # It is recorded how often it was delivered, for it may have to wait for a place.
            recorded = max(recorded, self._leave([message], Cause.DELIVERY_LIMIT))
        return recorded

    def restated(self, message: Message) -> int:
        """Record how a message is that was given back; return the sequence to wait for."""
        if self.watch is not None:
            self.watch.changed(message)
        sequence = message.sequence
        if self.log_writer is None:
            local_writer = self.local_writer
            return 0 if local_writer is None else local_writer.restate(self, sequence)
        return self.log_writer.append(self.state_of(message))

    def state_of(self, message: Message) -> Requeued:
        """Return the record of how a message is."""
        sequence = message.sequence
        due = self.delayed.get(sequence, 0)
        return Requeued(self.uid, sequence, message.delivery_count, message.annotations, due)

    def _retry_at(self, message: Message, failed: bool) -> int:
        """Return when a message is due again that is given back; 0 for at once."""
        retry = self.spec.retry
        if retry is None:
            return 0
        count = message.delivery_count if failed else message.released
        delay = retry.delay(count + 1, failed)
        return self._host.time + delay if delay else 0

    def _wait(self, message: Message, due: int) -> bool:
        """Keep a message that its consumer gives back for nobody until it is due; return False if
        that is now, or cannot be.
        """
        sequence = message.sequence
        if (
            due <= self._host.time
            or not message.acquired
            or self.is_replica
            or self.holds(sequence)
            or sequence in self.crossing
            or self.messages.get(sequence) is not message
            or not self.may_delay
        ):
            return False
        message.released += 1
        self.released += 1
        self.postpone(sequence, due)
        self._settled([sequence])
        return True

    def dequeue(self, message: Message, cause: int = ACCEPTED) -> int:
        """Let one message leave for good that a consumer has done with; return the sequence to wait
        for. This is the short way of `Departures.leave`, for what is not passed on.
        """
        sequence = message.sequence
        if self.is_replica or self.messages.pop(sequence, None) is None:
            return self.left_before()
        size = message.size
        self.bytes -= size
        self.bytes_departed += size
        self._use.bodies -= size
        if self.heeds:
            if self.paged_out:
                self._forget_paged_out(message)
            left = self.left
            if left is not None:
                left(message)
        self.departed[cause] += 1
        if message.acquired:
            self.acquired -= 1
        log_writer = self.log_writer
        if log_writer is None:
            recorded = self.record_departure([sequence], cause)
        else:
            # The departure of a durable message is synced as its arrival was: else it would be here
            # again after a power cut, although its consumer was told that it is gone.
            if self.syncs:
                log_writer.must_sync = True
            # The log leaves a message out that comes and goes in one turn. But a key must be known
            # to others as long as its sender may send again, so with a window nothing is left out.
            recorded = (
                log_writer.dequeue(self.uid, sequence, cause)
                if self.window is None
                else log_writer.dequeue_many(self.uid, [sequence], cause)
            )
        if self.is_judged:
            self.judge()
        if self.is_watched:
            self._settled([sequence])
            if self.ends_empty:
                self._host.left(self)
        return recorded

    def _settled(self, sequences: list[int]) -> None:
        """Consumers have these messages no more: others may get what follows."""
        if self.dispatcher.heeds and self.dispatcher.settled(sequences):
            self._host.runnable[self] = None

    def remove(self, sequences: Iterable[int], cause: int = ACCEPTED) -> None:
        """Forget messages that left; senders may go on."""
        if self.unplaced or self.delayed or self.crossing or self.is_watched:
            sequences = list(sequences)
            for sequence in sequences:
                self.unplaced.pop(sequence, None)
                self.delayed.pop(sequence, None)
                if self.crossing.pop(sequence, None) is not None and sequence in self.messages:
                    self.crossing_bytes -= self.messages[sequence].size
        super().remove(sequences, cause)
        if self.is_watched:
            self._settled(list(sequences))
        if self.is_judged:
            self.judge()

    def left_before(self) -> int:
        """Return the sequence to wait for with a message that is no longer here when its consumer
        is done with it: another took its place, or the queue was deleted. Until the record of that
        is committed, a successor may have it and give it again.
        """
        return 0 if self.is_replica else self.all_so_far()

    def all_so_far(self) -> int:
        """Return the place to wait for with what has happened here."""
        if self.log_writer is not None:
            return self.log_writer.all_so_far()
        return self.waits_for if self.local_writer is None else self.local_writer.end

    def record_departure(self, numbers: Sequence[int], cause: int) -> int:
        """Record that messages left that are not in the cluster's log; return the place to wait
        for.
        """
        local_writer = self.local_writer
        if local_writer is None:
            return self.waits_for
        return local_writer.dequeue(self, numbers, cause)

    def reject(self, message: Message) -> int:
        """Let a message leave that a consumer will not have: to where dead letters go, or to the
        alternate exchange, if there is one. While it has no place there, it stays (`keep`), and
        there is nothing to wait for.
        """
        if message.sequence not in self.messages:
            return self.left_before()
        if not self.passes_on(Cause.REJECTED):
            return self.dequeue(message, Cause.REJECTED)
        # Not the short way: the message lives on elsewhere, so its sender must not take it for
        # consumed before the batch with both is committed.
        return self._leave([message], Cause.REJECTED)

    def passes_on(self, cause: Cause) -> bool:
        """Whether messages that leave for this cause are given to others before."""
        if self.spec.dead_letters is not None:
            return cause in DYING
        if cause is Cause.DELIVERY_LIMIT:
            return bool(self.options.alternate) or not self.spec.delivery_limit.drops
        return cause in BY_CONSUMER and bool(self.options.alternate)

    @property
    def may_pass_on(self) -> bool:
        """Whether what is here may have to be given to other queues, as long as this one stays."""
        is_limited = self.spec.delivery_limit.most != UNLIMITED
        return self.passes_on(Cause.REJECTED) or (
            is_limited and self.passes_on(Cause.DELIVERY_LIMIT)
        )

    @property
    def charges_oldest(self) -> bool:
        """Whether, of what a consumer had that is lost, only the oldest counts as failed."""
        return self.spec.delivery_limit.charges_oldest

    def keep(self, message: Message, cause: Cause) -> None:
        """Keep a message that died and cannot be placed; it is acquired, though by nobody. What
        should have made room is available as before.
        """
        if cause is Cause.OVERFLOW:
            return
        if not message.acquired:
            self.acquire(message)
        self.delayed.pop(message.sequence, None)
        self.unplaced.setdefault(message.sequence, (message, cause))
        self._settled([message.sequence])

    def begin_crossing(self, message: Message, place: int) -> None:
        """Have nobody get a message that is on a queue in the other log already, until it leaves:
        who waits for that waits for `place`.
        """
        sequence = message.sequence
        if self.messages.get(sequence) is not message:
            return  # It left in this turn, as another took its place.
        if not message.acquired:
            self.acquire(message)
        self.delayed.pop(sequence, None)
        self.unplaced.pop(sequence, None)
        if sequence not in self.crossing:
            self.crossing_bytes += message.size
        self.crossing[sequence] = place
        self._settled([sequence])

    def cross(self, messages: Sequence[Message], cause: Cause) -> int:
        """Let messages leave when what this turn records is committed, for they are on a queue in
        the other log since then; return the place to wait for.
        """
        return self._host.crossings.add(self, messages, cause)

    def crossing_place(self, target: Queue) -> int:
        """Return the place to wait for with what goes to another queue in this turn and leaves when
        it has arrived; 0 if it may leave at once.
        """
        host = self._host
        return host.crossings.place() if host.crosses(self, target) else 0

    def stop_crossing(self, message: Message) -> None:
        """Keep such a message, for it is another broker's to say whether it leaves."""
        if self.crossing.pop(message.sequence, None) is None:
            return
        self.crossing_bytes -= message.size
        message.acquired = False
        self.acquired -= 1
        self.restore(message)

    def _clear(self) -> tuple[Messages, Ordering]:
        self.crossing.clear()
        self.crossing_bytes = 0
        return super()._clear()

    def holds(self, sequence: int) -> bool:
        """Whether a message that counts as acquired is with nobody: it could not be placed, or is
        not due.
        """
        return sequence in self.unplaced or sequence in self.delayed

    def drop(self, messages: Sequence[Message], cause: Cause = Cause.PURGED) -> int:
        """Let messages leave that nobody is to have: an administrator purges the queue, or their
        time is over. Return the sequence to wait for.
        """
        return self._leave(messages, cause)

    def drop_packed(self, sequences: list[int], cause: Cause) -> int:
        """Do so with messages that are packed, by their sequences."""
        recorded = self._host.departures.leave_packed(self, sequences, cause)
        if self.ends_empty:
            self._host.left(self)
        return recorded

    def _leave(self, messages: Sequence[Message], cause: Cause) -> int:
        """Let messages leave; if that empties the queue it may be at its end."""
        recorded = self._host.departures.leave(self, messages, cause)
        if self.ends_empty:
            self._host.left(self)
        return recorded

    # What time does.

    @property
    def has_times(self) -> bool:
        """Whether there may be messages here that are to be looked at some time."""
        return self.may_expire or self.spec.ttl > 0 or bool(self.delayed)

    @property
    def may_delay(self) -> bool:
        """Whether every broker that has this queue knows of messages that are not due."""
        return self.log_writer is None or QUEUE_KINDS in self._host.usable

    def delay(self, sequence: int, due: int) -> None:
        """Let nobody have a message before it is due that has just come, unless a broker that has
        this queue does not know of that: what was delayed elsewhere may be had here at once then.
        """
        if self.may_delay:
            self.postpone(sequence, due)
            self.restated(self.messages[sequence])

    def asked_for(self, message: Message) -> int:
        """Return when a message is due that nobody has had yet, as its sender asked for; 0 is now.
        One that waits after it was given back waits for another try here, and nowhere else.
        """
        if message.delivery_count or message.released:
            return 0
        return self.delayed.get(message.sequence, 0)

    def postpone(self, sequence: int, due: int) -> None:
        """Let nobody have a message before it is due; 0 is now."""
        message = self.messages.get(sequence)
        if message is None:
            return
        if due:
            if not message.acquired:
                self.acquire(message)
            self.delayed[sequence] = due
            self._look_at(sequence, due)
        elif self.delayed.pop(sequence, 0):
            message.acquired = False
            self.acquired -= 1
            self.restore(message)
            if self.consumers:
                self._host.runnable[self] = None

    def _look_at(self, sequence: int, at: int) -> None:
        """Look at a message at a time."""
        if self.is_replica:
            return
        if self.times is None:
            self.times = Times(self.messages)
        if self.times.add(at, sequence):
            self._host.look_at(self, self.times.first)

    def look(self, now: int, most: int) -> int:
        """Look at about `most` messages whose time has come, and let those leave whose time is
        over; return at how many.
        """
        times = self.times
        if times is None or self.is_replica or self.deleted:
            self.times = None  # Whoever decides next makes them anew.
            return 0
        sequences = times.due(now, most)
        present = self.messages
        found = present.unpacked_of(sequences)
        for message in found if self.delayed else ():
            if 0 < self.delayed.get(message.sequence, 0) <= now:
                self.postpone(message.sequence, 0)
        leaving = [message for message in found if self._is_over(message, now)]
        if leaving:
            self._leave(leaving, Cause.EXPIRED)
        if packed := present.over(sequences, now):
            self.drop_packed(packed, Cause.EXPIRED)
        if times.first:
            self._host.look_at(self, times.first)
        return len(sequences)

    def over(self, messages: Iterable[Message], now: int) -> list[Message]:
        """Return those of the messages whose time is over; of the others take note when it is. None
        keeps longer from now on than this queue keeps a message.
        """
        leaving: list[Message] = []
        ttl = self.spec.ttl
        for message in messages:
            due = self.delayed.get(message.sequence, 0)
            if due:
                self.postpone(message.sequence, due if due > now else 0)
            if ttl and not 0 < message.expires <= max(now, due) + ttl:
                message.expires = max(now, due) + ttl
            if self._is_over(message, now):
                leaving.append(message)
            elif message.expires:
                self._look_at(message.sequence, message.expires)
        return leaving

    def over_packed(self, segment: Segment, now: int) -> list[int]:
        """Do so with messages that are packed; return sequences."""
        leaving = segment.over(now, ttl=self.spec.ttl)
        expiries, sequences = segment.expiries, segment.sequences
        if expiries is None or len(leaving) == len(segment) or self.is_replica:
            return leaving
        if self.times is None:
            self.times = Times(self.messages)
        first = expiries[0]
        if first > now and expiries.count(first) == len(expiries):
            if self.times.add_run(first, sequences):
                self._host.look_at(self, self.times.first)
            return leaving
        for sequence, expires in zip(sequences, expiries, strict=True):
            if expires > now:
                self._look_at(sequence, expires)
        return leaving

    def _is_over(self, message: Message, now: int) -> bool:
        """Whether a message is to leave that nobody has."""
        if not 0 < message.expires <= now:
            return False
        return not message.acquired or message.sequence in self.delayed

    def promoted(self) -> None:
        """Begin to decide: no consumer has any message yet."""
        self.times = None
        self.tighten()
        # Whether a message is durable stands in its header only, and its bytes may be paged out. So
        # a durable queue with messages counts as having durable ones: one sync too many does no
        # harm.
        self.syncs = self.durable and bool(self.messages)
        if not self.logged:
            self._local = max(self._local, self.ordering.last)
        self.inherited = self.ordering.last
        self.crossing.clear()
        self.crossing_bytes = 0
        for sequence, (message, _) in self.unplaced.items():
            # Another broker did not know of that, and may have had somebody give it back for later.
            if sequence not in self.delayed:
                self.acquired -= message.acquired
                message.acquired = False
        self.unplaced.clear()
        # There may be millions of messages, and mostly nobody has any: consumers that go give back
        # what they have.
        if self.acquired > len(self.delayed):
            for message in self.messages.unpacked():
                message.acquired = message.sequence in self.delayed
            self.acquired = len(self.delayed)
        self.ordering.restart()
        self.dispatcher.restart()
        if self.alerts is not None:
            self.alerts = Alerts(self.alerts.thresholds)
        self.judge()

    # What consumers do.

    def check_access(self, owner: object) -> None:
        """Raise ResourceLocked if the queue is exclusive to another user."""
        if self.options.exclusive and self.owner is not None and self.owner is not owner:
            raise ResourceLocked(
                f"Queue {self.name} is exclusive to another connection",
                hint="Wait until that one is closed.",
            )

    def subscribe(self, consumer: Consumer) -> None:
        """Add a consumer; it gets messages at the next dispatch."""
        if self.deleted:
            raise ResourceDeleted(f"Queue {self.name} has been deleted", hint="Declare it again.")
        if self.consumers and (consumer.exclusive or next(iter(self.consumers)).exclusive):
            raise ResourceLocked(
                f"Queue {self.name} has a consumer, and exclusive use is asked for",
                hint="Close the other consumer.",
            )
        if self.is_copy and not consumer.browse:
            raise self.copied("can only be browsed")
        if len(self.consumers) >= self.spec.max_consumers:
            raise LimitExceeded(
                f"Queue {self.name} has {len(self.consumers)} consumers, and may have no more",
                hint=f"Close one, or declare queues with a higher {MAX_CONSUMERS}.",
            )
        self.dispatcher.join(consumer)
        self.mark_used()
        self._host.runnable[self] = None

    def unsubscribe(self, consumer: Consumer) -> None:
        """Take a consumer away. Release its messages first: this may be the end of the queue."""
        if consumer in self.consumers:
            self.dispatcher.leave(consumer)
            if self.dispatcher.heeds:
                self._host.runnable[self] = None  # Another one may get what this one did not take.
            self._host.left(self)

    def mark_used(self) -> None:
        """The queue has a user: one that ends without users remembers it, on other brokers too."""
        if not self.is_used and self.lifetime.needs_no_users:
            self._host.used(self)

    def suspect(self, consumer: Consumer) -> None:
        """A consumer kept a message for too long, and may hang: others come before it until it is
        heard of.
        """
        self.dispatcher.suspect(consumer)

    def trust(self, consumer: Consumer) -> None:
        """A consumer was heard of that kept a message for too long."""
        self.dispatcher.trust(consumer)
        self._host.runnable[self] = None

    def wake(self, consumer: Consumer | None = None) -> None:
        """Have this queue dispatched at the end of the turn, if there is something to hand out, or
        to say that a search is over: a consumer has credit again, or what was with one is back.
        """
        if consumer is not None:
            self.dispatcher.wake(consumer)
        if self.messages or self.dispatcher.heeds or self.is_searching:
            self._host.runnable[self] = None

    def dispatch(self, now: int) -> None:
        """Hand available messages to consumers with credit, and show them to browsers."""
        if self._host.returns.holds(self):
            self.is_searching = True  # What is in front of all else is still to come.
            return
        # Only the primary decides that a message is over its time. On a replica it is still there,
        # and is shown.
        was_searching = self.is_searching
        expired, self.is_searching = self.dispatcher.run(
            self,
            now,
            delivers=not self.is_replica and not (self.uid > 0 and self._host.delivery_paused),
            shows_expired=self.is_replica,
        )
        if self.is_searching:
            self._host.runnable[self] = None
        elif was_searching:
            for consumer in self.consumers:
                consumer.searched()
        if expired:
            self._leave(expired, Cause.EXPIRED)

    # What senders do.

    def add_sender(self, sender: Sender) -> None:
        """Take note of a link that sends to this queue."""
        self.senders[sender] = None
        if self.lifetime.needs_no_links:
            self.mark_used()

    def remove_sender(self, sender: Sender) -> None:
        """A link that sends to this queue is gone."""
        self.senders.pop(sender, None)
        self.waiting.pop(sender, None)
        if self.lifetime.needs_no_links:
            self._host.left(self)

    def admits(self, sender: Sender, size: int) -> bool:
        """Whether a sender may have messages on their way here, the largest of about `size` bytes.
        One that may not hears when that is worth asking again.
        """
        limits = self.spec.limits
        if not self.is_stopped:
            # Between flow-stop and a small limit there may be no room for even one. What would not
            # fit alone is for the sender to try, and to be told.
            has_room = len(self.messages) < limits.max_count or limits.stop_count == UNLIMITED
            fits = self.bytes + size <= limits.max_bytes or limits.stop_bytes == UNLIMITED
            if has_room and (fits or size > limits.max_bytes):
                return True
            self._stop()
        self.waiting[sender] = None
        return False

    def share(self, size: int, *, is_first: bool = False) -> int:
        """Return how many messages of `size` bytes each sender may have on their way, so that all
        of them have room when senders are stopped; the first ones, so that they stop nobody.
        """
        limits = self.spec.limits
        room = limits.spare_bytes
        if is_first:
            room = max(room, limits.stop_bytes - self.bytes)
        return min(limits.spare_count, room // size) // max(len(self.senders), 1)

    def judge(self) -> None:
        """Stop the senders, or let them go on, and tell of a depth that was come to, as what is
        here now says.
        """
        if self.alerts is not None:
            self._tell(self.alerts)
        count, size, limits = len(self.messages), self.bytes, self.spec.limits
        if not self.is_stopped:
            if count > limits.stop_count or size > limits.stop_bytes:
                self._stop()
        elif count <= limits.resume_count and size <= limits.resume_bytes:
            self._resume()

    def _tell(self, alerts: Alerts) -> None:
        is_up = alerts.look(len(self.messages), self.bytes, self._host.time)
        if is_up is not None:
            self._host.alert(self, is_up)
            self.set_fast_path_limit()

    def _stop(self) -> None:
        self.is_stopped = True
        self.flow_stops += 1
        self.set_fast_path_limit()

    def _resume(self) -> None:
        self.is_stopped = False
        self.set_fast_path_limit()
        waiting, self.waiting = self.waiting, {}
        for sender in waiting:
            sender.resumed()

    # Verbs of a backup; those of a primary use them too.

    def insert(self, sequence: int, payload: bytes, expires: int = 0) -> None:
        """Put a message at the end, whatever the limits: its sequence is above all others."""
        kind = self.kind
        self.messages[sequence] = kind(sequence, payload, expires)
        self.ordering.add(sequence)
        size = len(payload)
        self.bytes = total = self.bytes + size
        self._use.bodies += size
        if total > self._page_out_above:
            self._host.over_budget[self] = None
        self.enqueued += 1
        if expires:
            self.may_expire = True
            self._look_at(sequence, expires)
        # On backups too: after a failover a sender sends again what the former primary may have
        # had.
        if self.notes:
            self._note(sequence, payload)
        if self.consumers:
            self._host.runnable[self] = None

    def _note(self, sequence: int, payload: bytes) -> None:
        """Remember the key of a message, number it, and tell who watches that it has come."""
        if self.watch is not None:
            self.watch.stirred()
        if self.window is not None:
            self.window.remember(self.window.key(payload), sequence)
        name = self.spec.sequence_key
        if name:
            try:
                annotations = add_annotation(payload, b"", name, ULong(sequence))
            except ProtocolViolation:
                return  # What nobody can read is kept as it came.
            self.messages[sequence].annotations = annotations

    def _set_notes(self) -> None:
        """Say whether something is to be noted of each message that comes."""
        self.notes = (
            self.window is not None or bool(self.spec.sequence_key) or self.watch is not None
        )

    def set_watch(self, watch: Watch | None) -> None:
        """Have all that happens to messages told to somebody, or to nobody."""
        super().set_watch(watch)
        self._set_notes()

    def insert_run(self, sequences: list[int], payloads: list[bytes], expiries: list[int]) -> None:
        """Put messages in their places, unless they are here: sequences rise, and there is an
        expiry for each message or none at all.

        A backup may get a message twice, or before an earlier one: newer records come beside the
        snapshot of an older state. Then each message is looked at.
        """
        if sequences[0] <= self.own_numbers and not self.is_copy:
            own = [number for number in sequences if number <= self.own_numbers]
            self.recorded = max(self.recorded, own[-1])
        is_in_turn = sequences[0] > self.ordering.last
        if not is_in_turn:
            self.ordering.out_of_turn()
        if not is_in_turn or self.notes or len(sequences) == 1:
            for sequence, payload, expires in zip(
                sequences, payloads, expiries or repeat(0, len(sequences)), strict=True
            ):
                if sequence not in self.messages:
                    self.insert(sequence, payload, expires)
                elif self.window is not None:
                    # It came with a snapshot, perhaps before the policy that has it remembered.
                    self.window.remember(self.window.key(payload), sequence)
            return
        self.append_run(sequences, payloads, expiries)
        if self.bytes > self._page_out_above:
            self._host.over_budget[self] = None
        self.enqueued += len(sequences)
        self.may_expire = self.may_expire or bool(expiries)
        if self.consumers:
            self._host.runnable[self] = None

    def insert_copies(
        self, sequences: list[int], payloads: list[bytes], expiries: list[int]
    ) -> None:
        """Put messages of a snapshot in their places. It says by itself what is remembered: of what
        was here before a policy says so, not all need be (`recall.py`).
        """
        window, self.window = self.window, None
        self._set_notes()
        try:
            self.insert_run(sequences, payloads, expiries)
        finally:
            self.window = window
            self._set_notes()

    def insert_local(self, payload: bytes, expires: int) -> int:
        """Put a message that is not logged at the end, under a number of the queue's own; return
        the place to wait for.
        """
        self._local += 1
        if self._host.now >= self._noted_until:
            self._note_arrival(self._host.now)
        self.insert(self._local, payload, expires)
        local_writer = self.local_writer
        if local_writer is None:
            return self.waits_for
        return local_writer.enqueue(self, self._local, payload, expires)

    def pass_over(self, number: int) -> None:
        """Give no number up to this one: it was given before, and its message may have left."""
        self._local = max(self._local, number)

    def _note_arrival(self, now: int) -> None:
        """Numbers of the queue's own, from the last one on, are given now."""
        own = self._own_arrivals = self._own_arrivals or Arrivals()
        own.forget_before(self.ordering.lowest())
        own.begin(self._local, now)
        self._noted_until = own.until

    def close(self) -> None:
        """The queue is deleted: forget everything and tell the consumers."""
        # The messages have no records of their own: the record of the deletion speaks for all.
        self.departed[Cause.DELETED] += len(self.messages)
        self.bytes_departed += self.bytes
        self._host.over_budget.pop(self, None)
        self._host.remains.add(*self._clear())
        self.unplaced.clear()
        self.delayed.clear()
        self.times = None
        self.retire()

    def retire(self) -> None:
        """Be there for nobody any more, and tell the consumers: the queue is being deleted, perhaps
        with messages that are still to be passed on.
        """
        self.deleted = True
        if self.watch is not None:
            self.watch.stirred()
        self.stay_in_memory(False, self.spec.limits.memory)
        self.set_fast_path_limit()
        self.owner = None
        consumers = list(self.consumers)
        for consumer in consumers:
            self.dispatcher.leave(consumer)
        for consumer in consumers:
            consumer.queue_deleted()
        # Senders find out when they send.
        self._resume()

    def revive(self) -> None:
        """Be a queue again: this broker decides no longer, and the deletion did not come to its
        end.
        """
        self.deleted = False
        self.set_fast_path_limit()

    def statistics(self) -> dict[str, int]:
        """Return what management shows of this queue."""
        return {
            "messages": len(self.messages),
            "bytes": self.bytes,
            "paged_out": self.paged_out,
            "consumers": len(self.consumers),
            "bindings": len(self.bindings),
            "acquired": self.acquired - len(self.delayed),
            "delayed": len(self.delayed),
            "enqueued": self.enqueued,
            "dequeued": self.dequeued,
            "released": self.released,
            "expired": self.expired,
            "rejected": self.rejected,
            "discarded": self.discarded,
            "deduplicated": self.deduplicated,
            "left_out": self.left_out,
            "dlx_pending": len(self.unplaced),
            "dlx_dropped": self.not_rerouted,
            "unplaced": len(self.unplaced),
            "refused": self.refused,
            "flow_stops": self.flow_stops,
            "waiting_senders": len(self.waiting),
        }


def _dispatch_of(spec: QueueSpec) -> Dispatch:
    """Make what chooses among the consumers of a queue."""
    if spec.grouping is not None:
        return ByGroup(spec.grouping)
    return SingleActive() if spec.single_active else RoundRobin()


def _enough(candidates: Iterable[Message], count: int, size: int) -> list[Message]:
    """Return the first messages that are `count` or more, of `size` bytes or more; none if there
    are not so many.
    """
    found: list[Message] = []
    for message in candidates:
        found.append(message)
        count -= 1
        size -= message.size
        if count <= 0 and size <= 0:
            return found
    return []
