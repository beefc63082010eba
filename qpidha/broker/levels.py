"""Levels: queues get another replicate level while they are in use, as policies have it.

A queue that was declared with a level keeps it. Any other has the level that a policy says, and its
`fallback` while none does. Only the primary of a cluster changes levels, by records:

| from | to | records |
|---|---|---|
| `none` | `configuration` | `QueueDeclared`, `QueueUsed`, `Bound`: others learn of the queue |
| `configuration` | `all` | `LevelChanged`, the messages (`queues/level.py`), `LevelChanged` |
| `all` | `configuration` | `LevelChanged`: others forget the messages; the primary keeps them |
| `configuration` | `none` | `QueueDeleted`: others forget the queue |

So others have a queue as `all` when its messages are in the log before that, and what was accepted
under a level is kept as that level has it: senders and consumers are told nothing. What happens on
a queue that leaves the log waits until that is committed: before, a successor may have the queue as
it was, and no client must have been told of something else. After a failover the new primary begins
where the records end.

What is durable on this broker's disk (`store/local_log.py`) is there under the former level and the
new one alike until the change is committed: whatever of it a crash leaves, the messages are found.
So before others forget something, what this broker needs to have it for itself is synced here.

What cannot be changed yet waits, with the reason, and is tried again: for a feature, for room on
the disk, or, out of the log, for messages of which more are on disk than may come to memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from qpidha.broker.exchange import Exchange
from qpidha.broker.queues.level import IntoLog, LevelWalk, OutOfLog, OutOfSight
from qpidha.broker.state import remembered
from qpidha.broker.translation import check_known_to_all
from qpidha.broker.vocabulary import Kind
from qpidha.model.duration import SECOND
from qpidha.model.effects import Announce
from qpidha.model.errors import PreconditionFailed
from qpidha.model.features import QUEUE_KINDS
from qpidha.model.records import Bound, LevelChanged, QueueDeleted, QueueUsed
from qpidha.model.replication_level import ALL, CONFIGURATION, HA_UUID, NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from qpidha.broker.exchange import Destination
    from qpidha.broker.policy import Followed
    from qpidha.broker.queues.expiry import Search
    from qpidha.broker.queues.log_writer import LocalWriter, LogWriter
    from qpidha.broker.queues.queue import Queue
    from qpidha.broker.queues.walk import Walk
    from qpidha.broker.state import BrokerSettings
    from qpidha.model.records import Record

RETRY = 1 * SECOND
"""How often it is tried again to change what has to wait."""


class Decider(Protocol):
    """The broker around the queues, as far as their levels are concerned."""

    now: int
    walks: list[Walk | Search]
    settings: BrokerSettings
    queues: dict[str, Queue]
    by_uid: dict[int, Queue | Exchange]
    followed: dict[Destination, Followed]
    records_durable_only: bool
    local_log: LocalWriter | None

    @property
    def passive(self) -> bool:
        """Whether another broker, the primary, decides."""
        ...

    @property
    def log_writer(self) -> LogWriter | None:
        """Where decisions are recorded."""
        ...

    @property
    def usable(self) -> frozenset[str]:
        """The features that may be written."""
        ...

    @property
    def refuse_publishing(self) -> str:
        """Why nothing that is recorded may be added at present; empty if it may."""
        ...

    def label(self, queue: Queue, level: str) -> None:
        """A queue has another replicate level."""
        ...

    def records_binding(
        self, exchange: Exchange, destination: Destination, arguments: Mapping[str, Any]
    ) -> bool:
        """Whether a binding belongs in the log."""
        ...


class Levels:
    """The levels of the queues of one broker."""

    def __init__(
        self, broker: Decider, announce: Callable[[Announce], None], local_uid: Callable[[], int]
    ) -> None:
        self._broker = broker
        self._announce = announce
        self._local_uid = local_uid
        self.changing: dict[Queue, LevelWalk] = {}
        """Queues whose messages are on their way into the log, or out of it."""
        self.waiting: dict[Queue, str] = {}
        """Queues that are to get another level and cannot yet, with the reason."""
        self.next = 0
        """When that is tried again; 0 for never."""
        self.sequence = 0
        """The last record of a change; 0 if there is none to wait for."""

    def wanted(self, queue: Queue) -> str:
        """Return the level that a queue is to have."""
        options = queue.options
        if not options.fallback:
            return options.replicate
        followed = self._broker.followed.get(queue)
        return (followed and followed.level) or options.fallback

    def is_due(self, queue: Queue) -> bool:
        """Whether a queue is to get another level, or was on its way to one under a former
        primary.
        """
        if not queue.options.fallback or queue.deleted or queue in self.changing:
            return False
        level = queue.options.replicate
        is_half_way = level == CONFIGURATION and queue.own_numbers > 0
        return is_half_way or self.wanted(queue) != level

    def look(self, queue: Queue) -> None:
        """Begin to give a queue the level that it is to have."""
        broker = self._broker
        self.waiting.pop(queue, None)
        log_writer = broker.log_writer
        if broker.passive or log_writer is None or not self.is_due(queue):
            return
        if broker.records_durable_only:
            # It has nobody to replicate to, but ends what it began as a member.
            if queue.unrecorded[1]:
                self._raise(queue, log_writer)
            return
        wanted = self.wanted(queue)
        # What is half way comes to its end first.
        rises = wanted == ALL or (queue.logged and queue.options.replicate == CONFIGURATION)
        why = self._why_not(queue, rises=rises)
        if why:
            self.wait(queue, why)
        elif rises:
            self._raise(queue, log_writer)
        elif queue.logged:
            local = broker.local_log if queue.durable else None
            self._walk(queue, OutOfLog(queue, lambda: self._lower(queue, log_writer), local))
        elif wanted == NONE:
            self._forget_queue(queue)
        else:
            self._make_known(queue)

    def wait(self, queue: Queue, why: str) -> None:
        """Try it again after a while."""
        self.waiting[queue] = why
        if not self.next:
            self.next = self._broker.now + RETRY

    def tick(self, now: int) -> None:
        """Try again what had to wait."""
        if self.next and now >= self.next:
            self.next = 0
            for queue in list(self.waiting):
                self.look(queue)

    def promoted(self) -> None:
        """Find out what a former primary did not come to."""
        for queue in self._broker.queues.values():
            if self.is_due(queue):
                self.wait(queue, "this broker has just begun to decide")

    def abandon(self) -> None:
        """Another broker decides from now on."""
        for walk in list(self.changing.values()):
            walk.abandon()
        for queue in self._broker.queues.values():
            if queue.unrecorded[1]:
                queue.stop_rising()
        self.changing.clear()
        self.waiting.clear()
        self.next = self.sequence = 0

    def forget(self, queue: Queue) -> None:
        """A queue is at its end."""
        self.changing.pop(queue, None)
        self.waiting.pop(queue, None)

    def resume(self) -> None:
        """There is room on the disk again."""
        for walk in self.changing.values():
            if walk.is_resting:
                walk.is_resting = False
                self._broker.walks.append(walk)

    # Below: what the above is made of.

    def _append(self, record: Record) -> int:
        log_writer = self._broker.log_writer
        if log_writer is not None:
            log_writer.must_sync = True
            self.sequence = log_writer.append(record)
        return self.sequence

    def _why_not(self, queue: Queue, *, rises: bool) -> str:
        """Say why a queue cannot be changed now; empty if it can."""
        broker = self._broker
        if queue.is_copy:
            return "it is a replica of a queue elsewhere"
        if QUEUE_KINDS not in broker.usable:
            return f"the feature {QUEUE_KINDS} is not enabled"
        if broker.refuse_publishing:
            return broker.refuse_publishing
        if queue.uid < 0:
            try:
                check_known_to_all(Kind.QUEUE, queue.options.arguments, broker.usable)
            except PreconditionFailed as error:
                return error.text
        most = broker.settings.queue_memory
        if not rises and queue.paged_out > most > 0:
            return (
                f"{queue.paged_out} bytes of its messages are on disk, and no more than "
                f"queue-memory={most} are brought back to memory"
            )
        return ""

    def _walk(self, queue: Queue, walk: LevelWalk) -> None:
        self.changing[queue] = walk
        walk.when_over(lambda: self._ended(queue, walk))
        self._broker.walks.append(walk)

    def _ended(self, queue: Queue, walk: LevelWalk) -> None:
        queue.waits_for = 0
        if self.changing.get(queue) is walk:
            del self.changing[queue]
            self.look(queue)

    def _raise(self, queue: Queue, log_writer: LogWriter) -> None:
        """Give the messages to the log; others learn of the queue before."""
        if queue.uid < 0:
            self._make_known(queue)

        def finish() -> int:
            record = LevelChanged(
                queue.uid,
                ALL,
                logged=True,
                own_numbers=queue.own_numbers,
                recorded=queue.recorded,
                keeper=queue.keeper,
            )
            return self._labelled(queue, ALL, self._append(record))

        if queue.logged and not queue.unrecorded[1]:
            finish()  # A former primary has recorded them.
            self.look(queue)
            return

        def begin(own_numbers: int) -> int:
            queue.begin_recording(log_writer, own_numbers)
            record = LevelChanged(
                queue.uid,
                queue.options.replicate,
                logged=True,
                own_numbers=own_numbers,
                keeper=queue.keeper,
            )
            sequence = self._append(record)
            for _, keys in remembered(queue):
                sequence = self._append(keys)
            return sequence

        self._walk(queue, IntoLog(queue, log_writer, begin, finish))

    def _lower(self, queue: Queue, log_writer: LogWriter) -> int:
        """Take a queue out of the log, unless it is to stay there after all."""
        wanted = self.wanted(queue)
        if wanted == ALL:
            queue.stop_leaving(log_writer)
            queue.stay_in_memory(False, queue.spec.limits.memory)
            return 0
        here = queue.local_writer
        keeper = "" if here is None else here.system_id
        record = LevelChanged(queue.uid, CONFIGURATION, logged=False, keeper=keeper)
        sequence = self._append(record)
        queue.end_recording(sequence, keeper)
        if here is not None:
            here.confirm(queue, sequence)
        elif wanted == NONE:
            queue.waits_for = self._hide(queue)
            return queue.waits_for
        return self._labelled(queue, CONFIGURATION, sequence)

    def _forget_queue(self, queue: Queue) -> None:
        """Have others forget a queue; what this one keeps of it is recorded here before."""
        here = queue.local_writer
        if here is None:
            self._hide(queue)
            return

        def record() -> int:
            return here.hides(queue, self._bindings(queue))

        def finish() -> int:
            if self.wanted(queue) != NONE:
                here.confirm(queue, 0)
                return 0
            queue.waits_for = self._hide(queue)
            return queue.waits_for

        self._walk(queue, OutOfSight(queue, record, finish))

    def _hide(self, queue: Queue) -> int:
        """Have others forget a queue."""
        sequence = self._append(QueueDeleted(queue.uid))
        self._renumber(queue, self._local_uid())
        return self._labelled(queue, NONE, sequence)

    def _make_known(self, queue: Queue) -> int:
        """Have others know a queue without its messages."""
        if queue.uid > 0:
            record = LevelChanged(queue.uid, CONFIGURATION, logged=False)
            return self._labelled(queue, CONFIGURATION, self._append(record))
        broker = self._broker
        broker.label(queue, CONFIGURATION)
        queue.options.arguments[HA_UUID] = queue.uuid
        sequence = self._append(queue.options)
        self._renumber(queue, sequence)
        if queue.is_used:
            sequence = self._append(QueueUsed(queue.uid))
        for exchange, key, arguments in self._bindings(queue):
            if broker.records_binding(exchange, queue, arguments):
                sequence = self._append(Bound(exchange.uid, queue.uid, key, arguments))
        if queue.local_writer is not None:
            queue.local_writer.confirm(queue, sequence)
        return self._labelled(queue, CONFIGURATION, sequence)

    def _renumber(self, queue: Queue, uid: int) -> None:
        """Give a queue another uid."""
        broker = self._broker
        bindings = self._bindings(queue)
        for exchange, key, _ in bindings:
            exchange.unbind(queue, key)
        del broker.by_uid[queue.uid]
        queue.uid = uid
        broker.by_uid[uid] = queue
        for exchange, key, arguments in bindings:
            exchange.bind(queue, key, arguments)

    def _bindings(self, queue: Queue) -> list[tuple[Exchange, str, dict[str, Any]]]:
        """Return what leads to a queue."""
        found = []
        for uid, key in queue.bindings:
            exchange = self._broker.by_uid.get(uid)
            if isinstance(exchange, Exchange):
                binding = exchange.binding(queue, key)
                if binding is not None:
                    found.append((exchange, key, binding.arguments))
        return found

    def _labelled(self, queue: Queue, level: str, sequence: int) -> int:
        """Call a queue what it is now, and tell; return the sequence to wait for."""
        broker = self._broker
        if queue.options.replicate != level:
            broker.label(queue, level)
        text = f"the replicate level of queue {queue.name} is {level} now"
        self._announce(Announce("info", "broker", text, {"queue": queue.name, "replicate": level}))
        return sequence
