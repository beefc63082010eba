"""Broker: a state that also decides, as a primary does and a stand-alone broker.

Every decision is made here, checked before anything changes, carried out on the state and given to
the log writer. The sequence returned is to be committed before the caller reports success; 0: there
is nothing to wait for. While `passive`, as on a backup, replicated objects change by records only.
The node calls `dispatch` at the end of every turn and `tick` when `next_deadline` has come. Knows
nothing of clusters, connections, disks or clocks. Source: Qpid `Broker.cpp`, `Queue.cpp`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from qpidha.broker.credit import Credit
from qpidha.broker.declaration import (
    check_new_exchange,
    check_new_queue,
    check_same,
    exchange_asked_for,
    queue_asked_for,
    resolved,
)
from qpidha.broker.exchange import Exchange, application_properties, subject
from qpidha.broker.queues.arguments import check_key, check_name, check_plain, fits_key
from qpidha.broker.queues.deletion import BYTES_A_TURN, PASSED_ON_A_TURN, Deletion, passes_on, some
from qpidha.broker.queues.expiry import Search
from qpidha.broker.queues.lifetime import Lifetime, read_lifetime, read_timeout
from qpidha.broker.queues.purge import Purge
from qpidha.broker.state import LOCAL_UID, State
from qpidha.broker.topic import Steps, TooManyKeys, TooManyWays
from qpidha.broker.translation import translate
from qpidha.broker.vocabulary import Kind
from qpidha.model.deadlines import Deadlines
from qpidha.model.duration import SECOND
from qpidha.model.effects import Announce
from qpidha.model.errors import (
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    RefusedRequest,
    ResourceLocked,
)
from qpidha.model.event_log import QueueCreated, QueueEnded
from qpidha.model.message_view import is_durable
from qpidha.model.records import Bound, Cause, ExchangeDeleted, QueueDeleted, QueueUsed, Unbound
from qpidha.model.replication_level import ALL, NONE, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from qpidha.broker.exchange import Headers
    from qpidha.broker.queues.log_writer import LogWriter
    from qpidha.broker.queues.queue import Queue
    from qpidha.broker.queues.walk import Walk
    from qpidha.broker.state import BrokerSettings
    from qpidha.model.message import Message
    from qpidha.model.records import ExchangeDeclared, QueueDeclared, Record


class Routed(NamedTuple):
    """What became of a message: the sequence to wait for, and on how many queues it is."""

    sequence: int
    queues: int


UNROUTED = Routed(0, 0)
EXPIRY_INTERVAL = 600 * SECOND
"""How often queues without consumers are searched for expired messages; Qpid's
queue-purge-interval.
"""
WALKED_A_TURN = 5000
"""Messages that are looked at to be purged or expired in one turn of the broker, or a few more; and
as much again for what is begun in it.
"""
PUT_OFF = 10 * SECOND
"""How much longer an unused queue is kept that cannot end for want of disk."""
RETRY_INTERVAL = 1 * SECOND
"""How often rejected messages are tried again that their alternate exchange could not place."""
RETRIED_A_TURN = 1000
"""Of them, how many in one turn, if they are not large."""
PUBLISH_STEPS, REROUTE_STEPS, COMMIT_STEPS = (200, 50_000), (50, 100_000), (20, 500_000)
"""Steps that the comparison of each key with the bindings of topic exchanges may take whatever
others take (2,000 are about a millisecond), and those that are shared in one turn: by what is
published, by what is rerouted (of each queue that overflows on its own, for that cannot wait), and
by commits, whose posts are all routed in one turn.
"""
RETURN = 10 * SECOND
"""How long the users of a queue without a timeout of its own have to come back after a failover or
a restart.
"""


class Broker(State):
    """The queues, exchanges and bindings of one broker, and every decision about them."""

    def __init__(
        self,
        settings: BrokerSettings,
        log_writer: LogWriter | None,
        announce: Callable[[Announce], None],
        make_uuid: Callable[[], str],
    ) -> None:
        self._refusal = ""
        super().__init__(settings)
        self._log_writer = log_writer
        self._announce = announce
        self._make_uuid = make_uuid
        self._last_local_uid = LOCAL_UID
        self.credit = Credit()
        self._publish_steps = Steps(*PUBLISH_STEPS, "send it again, and fewer of this kind at once")
        self._reroute_steps = Steps(*REROUTE_STEPS, "reject, or delete, fewer of this kind at once")
        self.commit_steps = Steps(*COMMIT_STEPS, "commit more often")
        self._overflow_steps: dict[Queue, Steps] = {}
        """For the messages that had to make room in this turn, by the queue that they left."""
        self._owned: dict[object, dict[Queue, None]] = {}
        self._left_behind: dict[object, dict[Queue, None]] = {}
        """Queues whose owner has gone and that have not heard of it."""
        self._budget = WALKED_A_TURN
        """How much may still be done at once in this turn for queues that end or are purged."""
        self._leaving: dict[Queue, None] = {}
        """Queues with a timeout that were left in this turn."""
        self._ending: Deadlines[Queue] = Deadlines()
        """When an unused queue is deleted, unless it gets a user before."""
        self._next_expiry = 0
        self._retrying: dict[Queue, None] = {}
        """Queues with rejected messages that could not be placed."""
        self._to_retry: dict[Queue, None] = {}
        """Of those, the ones whose turn is still to come this time."""
        self._next_retry = 0
        self.ahead = 0
        """What the wall clock, by which messages expire on every broker, is ahead of `now`, in ns;
        kept by the owner.
        """
        self.walks: list[Walk | Search] = []
        """Queues that are being purged or deleted, and the search for expired messages, in the
        order in which that began.
        """
        self._search: Search | None = None
        """The last search for expired messages."""
        self._evicting: dict[Queue, Deletion | None] = {}
        """Queues whose messages are on their way to an alternate exchange, to make room or because
        the queue ends; none comes back to them.
        """

    @property
    def log_writer(self) -> LogWriter | None:
        """Where decisions are recorded; None for a broker alone without a write-ahead log, which
        records nothing.
        """
        return self._log_writer

    @log_writer.setter
    def log_writer(self, log_writer: LogWriter | None) -> None:
        self._log_writer = log_writer
        # Where nothing is refused it makes no difference to the way in.
        is_refusing = bool(self._refusal)
        for queue in self.queues.values():
            queue.log_writer = log_writer if queue.logged else None
            if is_refusing:
                queue.set_fast_path_limit()

    @property
    def refuse_publishing(self) -> str:
        """Why no message that is recorded can be taken at present, for instance for want of disk;
        empty if it can.
        """
        return self._refusal

    @refuse_publishing.setter
    def refuse_publishing(self, reason: str) -> None:
        self._refusal = reason
        for queue in self.queues.values():
            queue.set_fast_path_limit()
        if reason:
            return
        for deletion in self._evicting.values():
            if deletion is not None and deletion.is_resting:
                deletion.is_resting = False
                self.walks.append(deletion)

    # Queues.

    def declare_queue(
        self,
        name: str,
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        alternate: str = "",
        arguments: Mapping[str, Any] | None = None,
        owner: object | None = None,
    ) -> tuple[Queue, int]:
        """Return the queue of this name, created if need be; PreconditionFailed if it exists as
        something else.
        """
        wanted = queue_asked_for(
            name,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            alternate=alternate,
            arguments=arguments or {},
        )
        given = wanted.arguments
        queue = self.find_queue(name)
        if queue is not None:
            self._check_stays(queue)
            queue.check_access(owner)
            check_same(f"Queue {name}", queue.options, wanted)
            if wanted.exclusive and queue.owner is None and owner is not None:
                self._own(queue, owner)
            return queue, 0
        check_new_queue(self, wanted)
        temporary = (
            owner is not None
            and read_lifetime(given, wanted.auto_delete) is not Lifetime.MANUAL
            and not read_timeout(given)
        )
        wanted.replicate = resolve(given, NONE if temporary else self.settings.ha_replicate)
        wanted.uuid = self._make_uuid()
        wanted.arguments = resolved(given, wanted.replicate, wanted.uuid)
        sequence = self._record(wanted)
        queue = self.add_queue(sequence or self._local_uid(), wanted)
        if queue.logged:
            queue.log_writer = self._log_writer
            queue.set_fast_path_limit()
        if owner is not None:
            self._own(queue, owner)
        self._announce(
            Announce(
                "debug",
                "broker",
                f"queue {name} created",
                {"queue": name, "replicate": wanted.replicate},
                QueueCreated(name),
            )
        )
        return queue, sequence

    def delete_queue(
        self, name: str, *, if_unused: bool = False, if_empty: bool = False, may_rest: bool = False
    ) -> Deletion:
        """Delete a queue; its messages go to its alternate exchange if it has one: at once if they
        are few, else some with every `go_on_walking`. While there is no room for them this is
        refused, unless it `may_rest`, as nobody waits for it.
        """
        queue = self.queue(name)
        self._check_decides(queue)
        if if_unused and queue.consumers:
            raise PreconditionFailed(
                f"Queue {name} has {len(queue.consumers)} consumers",
                hint="Close them, or delete it with force.",
            )
        if if_empty and queue.messages:
            raise PreconditionFailed(
                f"Queue {name} has {len(queue.messages)} messages",
                hint="Purge it, or delete it with force.",
            )
        if self._refusal and passes_on(queue) and not may_rest:
            raise LimitExceeded(
                f"Queue {name} cannot be deleted at present: its messages go to its alternate "
                f"exchange, and there is no room for {len(queue.messages)} of {queue.bytes} bytes: "
                f"{self._refusal}",
                hint="Purge it before, consume from it, or try again later.",
            )
        return self._delete(queue)

    def purge(self, name: str) -> Purge:
        """Drop all available messages of a queue: at once if they are few, else some with every
        `go_on_walking`. One whose deletion rests ends with that.
        """
        queue = self.queue(name, or_resting=True)
        self._check_decides(queue)
        purge = Purge(queue)
        deletion = self._evicting.get(queue)
        if deletion is not None:
            purge.count = len(queue.messages)
            deletion.finish()
            purge.sequence = deletion.sequence
            purge.end()
            return purge
        if not self.walks and self._budget > 0:
            self._budget -= purge.step(WALKED_A_TURN)
        if not purge.is_over:
            self.walks.append(purge)
        return purge

    def may_walk(self, committed: int) -> bool:
        """Whether there is something to be done in the next turn."""
        return bool(self._left_behind) or any(walk.sequence <= committed for walk in self.walks)

    def go_on_walking(self, committed: int) -> None:
        """Go on with queues that are being purged, searched for expired messages, or deleted; once,
        at the end of a turn. What was recorded before is to be committed first.
        """
        left = WALKED_A_TURN
        for walk in list(self.walks):
            if walk.sequence <= committed and _goes_on(walk):
                left -= max(walk.step(left), 1)
                if left <= 0:
                    break
        self._reroute_steps.renew()
        self.walks = [walk for walk in self.walks if _goes_on(walk)]

    def abandon_walks(self) -> None:
        """Leave undone what is not over: another broker decides from now on."""
        self.returns.forget_replicas()
        self.walks, self._search = [], None
        for deletion in list(self._evicting.values()):
            if deletion is not None:
                deletion.abandon()
        self._evicting.clear()
        left_behind, self._left_behind = self._left_behind, {}
        for queues in left_behind.values():
            for queue in list(queues):
                self._disown(queue, queues)

    def queue(self, name: str, *, or_resting: bool = False) -> Queue:
        """Return a queue; NotFound if there is none of this name, ResourceLocked if it is being
        deleted, unless that rests and `or_resting`.
        """
        queue = self.find_queue(name)
        if queue is None:
            raise NotFound(f"There is no queue {name}", hint="Declare it first.")
        self._check_stays(queue, or_resting=or_resting)
        return queue

    def find_queue(self, name: str) -> Queue | None:
        """Return the queue of this name, if there is one. Where it is at its end, and only many
        others are before it, it ends now.
        """
        queue = self.queues.get(name)
        if queue is None or not (self._left_behind or self._evicting):
            return queue
        left_behind = self._left_behind.get(queue.owner)
        if left_behind is not None and queue in left_behind:
            self._disown(queue, left_behind)
        deletion = self._evicting.get(queue)
        if deletion is not None and deletion.is_short and not self._refusal:
            self._take_step(deletion)
        return self.queues.get(name)

    def _check_stays(self, queue: Queue, *, or_resting: bool = False) -> None:
        """Raise ResourceLocked for a queue that is being deleted."""
        if not queue.deleted:
            return
        deletion = self._evicting.get(queue)
        is_resting = deletion is not None and deletion.is_resting
        if is_resting and or_resting:
            return
        raise ResourceLocked(
            f"Queue {queue.name} is being deleted: {len(queue.messages)} messages are still to go "
            f"to its alternate exchange{f': {self._refusal}' if is_resting else ''}",
            hint=(
                "Purge it to give them up, or try again when there is room."
                if is_resting
                else "Try again in a moment."
            ),
        )

    def owner_gone(self, owner: object) -> None:
        """The owner of queues has left: they are free for others, or at their end; where they are
        many some are so a few turns later, or when they are asked for.
        """
        queues = self._owned.pop(owner, None)
        if queues:
            self._left_behind.setdefault(owner, {}).update(queues)
            self._disown_some()

    def _disown_some(self) -> None:
        """Tell queues that were left behind, as many as this turn has time for."""
        while self._left_behind and self._budget > 0:
            owner, queues = next(iter(self._left_behind.items()))
            if queues:
                self._disown(next(iter(queues)), queues)
            else:
                self._left_behind.pop(owner)

    def _disown(self, queue: Queue, queues: dict[Queue, None]) -> None:
        """Let a queue that was left behind be free for others, or end."""
        del queues[queue]
        self._budget -= 1
        if queue.deleted:
            return
        queue.owner = None
        if queue.lifetime is Lifetime.ON_CLOSE and not queue.is_replica:
            self._delete(queue)
        else:
            self.left(queue)

    # Exchanges and bindings.

    def declare_exchange(
        self,
        name: str,
        type: str = "direct",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        alternate: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> tuple[Exchange, int]:
        """Return the exchange of this name, created if need be; PreconditionFailed if it exists as
        something else.
        """
        wanted = exchange_asked_for(
            name,
            type,
            durable=durable,
            auto_delete=auto_delete,
            alternate=alternate,
            arguments=arguments or {},
        )
        given = wanted.arguments
        exchange = self.exchanges.get(name)
        if exchange is not None:
            if exchange.options.type != type or not exchange.is_built_in:
                check_same(f"Exchange {name}", exchange.options, wanted)
            return exchange, 0
        check_new_exchange(self, wanted)
        wanted.replicate = resolve(given, self.settings.ha_replicate)
        wanted.uuid = self._make_uuid()
        wanted.arguments = resolved(given, wanted.replicate, wanted.uuid)
        sequence = self._record(wanted)
        exchange = self.add_exchange(sequence or self._local_uid(), wanted)
        self._announce(
            Announce(
                "debug",
                "broker",
                f"exchange {name} created",
                {"exchange": name, "replicate": wanted.replicate},
            )
        )
        return exchange, sequence

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> int:
        """Delete an exchange and its bindings; refused for built-in ones and for an alternate
        exchange in use.
        """
        exchange = self.exchange(name)
        if exchange.is_built_in:
            raise RefusedRequest(
                f"Exchange {name or '(default)'} is built in",
                hint="Only exchanges that were declared can be deleted.",
            )
        self._check_decides(exchange)
        user = self._user_of_alternate(name)
        if user:
            raise RefusedRequest(
                f"Cannot delete exchange {name}, in use as alternate of {user}",
                hint=f"Delete {user} first.",
            )
        if if_unused and exchange.binding_count:
            raise PreconditionFailed(
                f"Exchange {name} has {exchange.binding_count} bindings",
                hint="Unbind its queues first.",
            )
        return self._delete_exchange(exchange)

    def exchange(self, name: str) -> Exchange:
        """Return an exchange; NotFound if there is none of this name."""
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"There is no exchange {name}", hint="Declare it first.")
        return exchange

    def bind(
        self,
        exchange_name: str,
        queue_name: str,
        key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> int:
        """Bind a queue to an exchange; the same key again replaces the arguments."""
        exchange, queue = self.exchange(exchange_name), self.queue(queue_name)
        self._check_decides(exchange, queue)
        given = translate(Kind.BINDING, arguments or {})
        resolve(given, ALL)
        check_key("binding key", key)
        check_name("binding key", key)
        check_plain(given)
        exchange.check_binding(given)
        former = exchange.binding(queue, key)
        if former is None and len(queue.bindings) >= self.settings.max_bindings:
            raise LimitExceeded(
                f"Cannot bind queue {queue_name}: it has {len(queue.bindings)} bindings already",
                hint="Remove some, or raise max-bindings.",
            )
        if former is not None and former.arguments == given:
            return 0
        was_recorded = former is not None and self.records_binding(
            exchange, queue, former.arguments
        )
        exchange.bind(queue, key, given)
        if self.records_binding(exchange, queue, given):
            return self._append(Bound(exchange.uid, queue.uid, key, given))
        # A binding that others knew and shall not know any more is gone for them.
        return self._append(Unbound(exchange.uid, queue.uid, key)) if was_recorded else 0

    def unbind(self, exchange_name: str, queue_name: str, key: str = "") -> int:
        """Remove a binding, if it exists."""
        exchange, queue = self.exchange(exchange_name), self.queue(queue_name)
        self._check_decides(exchange, queue)
        binding = exchange.binding(queue, key)
        if binding is None:
            return 0
        exchange.unbind(queue, key)
        recorded = self.records_binding(exchange, queue, binding.arguments)
        sequence = self._append(Unbound(exchange.uid, queue.uid, key)) if recorded else 0
        return max(sequence, self._end_unused_exchange(exchange))

    # Messages.

    def reads_keys(self, exchange_name: str) -> bool:
        """Whether it makes a difference which key a message to an exchange has."""
        exchange = self.exchanges.get(exchange_name)
        if exchange is None or exchange.reads_keys:
            return True
        name = exchange.options.alternate
        alternate = self.exchanges.get(name) if name else None
        return alternate is not None and alternate.reads_keys

    def publish(
        self, exchange_name: str, key: str, payload: bytes, *, headers: Headers, expires: int = 0
    ) -> Routed:
        """Put a message on the queues it is for, on all or on none; LimitExceeded if one of them is
        full.
        """
        exchange = self.exchanges.get(exchange_name)
        if exchange is None:
            raise NotFound(f"There is no exchange {exchange_name}", hint="Declare it first.")
        exchange.received += 1
        exchange.bytes_received += len(payload)
        steps = self._publish_steps
        try:
            queues = exchange.route(key, headers, steps)
            if self._evicting or not queues:
                queues = self._takers(exchange, queues, key, headers, steps)
        except TooManyKeys:
            exchange.drop(len(payload))
            raise
        if not queues:
            exchange.drop(len(payload))
            return UNROUTED
        if len(queues) == 1:
            return Routed(queues[0].enqueue(payload, expires), 1)
        return Routed(self.enqueue_on_all(queues, payload, expires), len(queues))

    def pass_on(self, queue: Queue, message: Message) -> int | None:
        """Give a rejected message to the alternate exchange of its queue, if there is one; return
        the sequence to wait for, None if it cannot be placed now.
        """
        exchange = self._alternate_of(queue)
        if exchange is None:
            return 0
        try:
            routed = self._place(exchange, message, self._reroute_steps)
        except (LimitExceeded, TooManyKeys) as error:
            why = error.text
        else:
            if routed.queues:
                return routed.sequence
            why = f"exchange {exchange.name} has no queue for the next one"
        if not queue.unplaced:
            text = f"rejected messages stay on queue {queue.name} until there is a place: {why}"
            self._announce(Announce("warning", "broker", text, {"queue": queue.name}))
        self._retrying[queue] = None
        return None

    def _reroute(self, queue: Queue, message: Message, steps: Steps | None = None) -> int | None:
        """Give a message that cannot stay to the alternate exchange of its queue, if there is one;
        return the sequence to wait for. One that finds no place is dropped; but None if too many
        keys were looked for in this turn (with `steps`, if they are too few), or for one that can
        wait for room on the disk, as its queue is being deleted.
        """
        exchange = self._alternate_of(queue)
        if exchange is None:
            return 0
        try:
            routed = self._place(exchange, message, steps or self._reroute_steps)
        except TooManyKeys:
            return None
        except RefusedRequest as error:  # It is full, or a copy of what another broker decides on.
            deletion = self._evicting.get(queue)
            if isinstance(error, LimitExceeded) and self._refusal and deletion is not None:
                deletion.is_resting = True
                return None
            self._drop(queue, error.text)
            return 0
        if not routed.queues:
            exchange.received += 1
            exchange.bytes_received += message.size
            exchange.drop(message.size)
        return routed.sequence

    def _drop(self, queue: Queue, reason: str) -> None:
        queue.not_rerouted += 1
        text = f"message of queue {queue.name} dropped, not rerouted: {reason}"
        self._announce(Announce("warning", "broker", text))

    def _alternate_of(self, queue: Queue) -> Exchange | None:
        name = queue.options.alternate
        return self.exchanges.get(name) if name else None

    def _place(self, exchange: Exchange, message: Message, steps: Steps) -> Routed:
        """Put a message that leaves a queue on those that an exchange has for it; LimitExceeded if
        one of them is full, TooManyKeys if it cannot be said now. Counted if it comes to one at
        least.
        """
        payload = message.body()
        key, headers = subject(payload), partial(application_properties, payload)
        if not fits_key(key):
            key = ""  # It was sent to a queue, whose messages may have any subject.
        # One that no exchange takes counts as none: nobody is there to be told.
        try:
            queues = self.routes(exchange, key, headers, steps)
        except TooManyWays:
            queues = self.routes(exchange, "", headers, steps)
        if not queues:
            return UNROUTED
        sequence = (
            queues[0].enqueue(payload, message.expires)
            if len(queues) == 1
            else self.enqueue_on_all(queues, payload, message.expires)
        )
        exchange.received += 1
        exchange.bytes_received += len(payload)
        return Routed(sequence, len(queues))

    def routes(self, exchange: Exchange, key: str, headers: Headers, steps: Steps) -> list[Queue]:
        """Return the queues for a message to an exchange. Raises TooManyWays, TooManyKeys."""
        queues = exchange.route(key, headers, steps)
        return self._takers(exchange, queues, key, headers, steps)

    def _takers(
        self, exchange: Exchange, queues: list[Queue], key: str, headers: Headers, steps: Steps
    ) -> list[Queue]:
        """Return those of an exchange's queues for a message that it may go to, or those that the
        alternate exchange has for it if there are none.
        """
        evicting = self._evicting
        queues = [queue for queue in queues if queue not in evicting]
        name = exchange.options.alternate
        alternate = self.exchanges.get(name) if name and not queues else None
        if alternate is not None:
            found = alternate.route(key, headers, steps)
            queues = [queue for queue in found if queue not in evicting]
        return queues

    def _retry(self) -> None:
        """Try again to place rejected messages. Where there are more than can be tried in a turn,
        other queues have the next turn, and other messages of a queue come first the next time.
        """
        steps = self._reroute_steps
        steps.renew()
        if not self._to_retry:
            self._to_retry, self._retrying = self._retrying, {}
        left = RETRIED_A_TURN
        while self._to_retry and left > 0 and not steps.are_over():
            queue = next(iter(self._to_retry))
            del self._to_retry[queue]
            tried: list[Message] = []
            count = len(queue.unplaced)
            for message in some(queue.unplaced.values(), left)[0]:
                if steps.are_over():
                    break
                tried.append(message)
                self.departures.leave(queue, [message], Cause.REJECTED)
            size = sum(message.size for message in tried)
            left -= max(len(tried), size * RETRIED_A_TURN // BYTES_A_TURN, 1)
            if count > len(tried):
                for message in tried:
                    if queue.unplaced.pop(message.sequence, None) is not None:
                        queue.unplaced[message.sequence] = message
            if queue.unplaced and not queue.is_replica:
                self._retrying[queue] = None
            if queue.ends_empty:
                self.left(queue)
        steps.renew()

    def evict(self, queue: Queue, messages: list[Message]) -> None:
        """Give messages that had to make room for others to the alternate exchange of their queue.

        A queue that overflows in turn does the same, but none of this comes back to a queue it
        left: so it comes to an end.
        """
        if not queue.options.alternate:
            return
        steps = self._overflow_steps.get(queue)
        if steps is None:
            steps = self._overflow_steps[queue] = Steps(*REROUTE_STEPS, "")
        self._evicting[queue] = None
        try:
            for message in messages:
                if self._reroute(queue, message, steps) is None:
                    self._drop(queue, "the keys of too many take too long to be compared")
        finally:
            del self._evicting[queue]

    def used(self, queue: Queue) -> None:
        """A queue that ends when its users have left has its first one: others must know, for they
        may have to end it.
        """
        if queue.is_replica:
            return
        queue.is_used = True
        if queue.uid > 0:
            self._append(QueueUsed(queue.uid))

    def dispatch(self, now: int) -> None:
        """Hand out what there is to hand out; once, at the end of a turn."""
        self._budget = WALKED_A_TURN
        self._disown_some()
        for steps in (self._publish_steps, self._reroute_steps, self.commit_steps):
            steps.renew()
        self._overflow_steps.clear()
        if not self._next_expiry:
            self._next_expiry = now + EXPIRY_INTERVAL
        for queue in self._leaving:
            self._ending.set(queue, now + queue.timeout)
        self._leaving.clear()
        if self._retrying and not self._next_retry:
            self._next_retry = now + RETRY_INTERVAL
        self.returns.turn()
        queues = list(self.runnable)
        self.runnable.clear()
        for queue in queues:
            queue.dispatch(now + self.ahead)

    # Time and roles.

    @property
    def next_deadline(self) -> int:
        """When `tick` is wanted next; 0 for never."""
        first = self._ending.first
        for other in (self._next_expiry, self._next_retry):
            if other and (not first or other < first):
                first = other
        return first

    def tick(self, now: int) -> None:
        """Delete queues that were unused for their timeout, and now and then begin to drop expired
        messages.
        """
        while self._budget > 0 and (due := self._ending.due(now, 1)):
            self._end(due[0], now)
        if self._next_retry and now >= self._next_retry:
            self._retry()
            self._next_retry = now if self._to_retry else 0
        if now >= self._next_expiry:
            self._next_expiry = now + EXPIRY_INTERVAL
            if self._search is None or self._search.is_over:
                self._search = Search(self.queues.values(), now + self.ahead)
                self.walks.append(self._search)

    def _end(self, queue: Queue, now: int) -> None:
        """Delete a queue that was unused for its timeout. What would have to rest stays as it is:
        its users may come back.
        """
        self._budget -= 1
        if queue.deleted or queue.is_replica or not _is_over(queue):
            return
        if self._refusal and passes_on(queue):
            self._ending.set(queue, now + PUT_OFF)
        else:
            self._delete(queue)

    def left(self, queue: Queue) -> None:
        """A user, or the last message, left a queue: delete it if that was the end of it, at once
        or after its timeout.
        """
        if queue.deleted or queue.is_replica or not _is_over(queue):
            return
        if queue.timeout:
            self._leaving[queue] = None
        else:
            self._delete(queue)

    def promoted(self, now: int) -> None:
        """Begin to decide about all objects, after a failover or a restart.

        No queue has a user yet. One that ends without users does so after its timeout, or after a
        while in which they may come back; one that never had a user waits for its first.
        """
        self.passive = False
        for queue in self.queues.values():
            queue.promoted()
            due = queue.is_used if queue.lifetime.needs_no_users else queue.timeout
            if due and queue not in self._ending and _is_over(queue):
                self._ending.set(queue, now + (queue.timeout or RETURN))

    def reset(self, keep_local: bool = False) -> None:
        """Forget everything but the built-in exchanges; or everything but them and the local
        objects.
        """
        super().reset(keep_local)
        self._leaving.clear()
        for queue in [queue for queue in self._ending if queue.deleted]:
            self._ending.remove(queue)
        for owner, queues in list(self._owned.items()):
            self._owned[owner] = {queue: None for queue in queues if not queue.deleted}

    def remove_queue(self, queue: Queue) -> None:
        """Take a queue, its bindings and messages away; if it was being deleted that is over."""
        deletion = self._evicting.pop(queue, None)
        super().remove_queue(queue)
        if deletion is not None:
            deletion.end()

    # Below: what the above is made of.

    def _append(self, record: Record) -> int:
        return 0 if self._log_writer is None else self._log_writer.append(record)

    def _record(self, wanted: QueueDeclared | ExchangeDeclared) -> int:
        if not self.records_object(wanted.durable, wanted.replicate):
            return 0
        if self.passive:
            raise _refused_on_backup(f"Replicate level {wanted.replicate} cannot be had")
        return self._append(wanted)

    def _check_decides(self, *objects: Queue | Exchange) -> None:
        """Refuse a change that another broker decides about; what has a local end here is our
        own.
        """
        if self.passive and all(thing.uid > LOCAL_UID for thing in objects):
            raise _refused_on_backup(
                f"{' and '.join(thing.name for thing in objects)} cannot be changed"
            )

    def _local_uid(self) -> int:
        self._last_local_uid -= 1
        return self._last_local_uid

    def _own(self, queue: Queue, owner: object) -> None:
        queue.owner = owner
        queue.mark_used()
        self._owned.setdefault(owner, {})[queue] = None

    def _user_of_alternate(self, name: str) -> str:
        for exchange in self.exchanges.values():
            if exchange.options.alternate == name:
                return f"exchange {exchange.name}"
        for queue in self.queues.values():
            if queue.options.alternate == name:
                return f"queue {queue.name}"
        return ""

    def _delete(self, queue: Queue) -> Deletion:
        """Delete a queue: now if that does not take long, else some of it every turn. Before its
        messages go it is taken out of all routes, so that none comes back to it.
        """
        self._ending.remove(queue)
        self._leaving.pop(queue, None)
        self._owned.get(queue.owner, {}).pop(queue, None)
        deletion = Deletion(queue, self._reroute, self._finish_deletion)
        if not passes_on(queue):
            self._budget -= deletion.step(1)
            return deletion
        self._evicting[queue] = deletion
        queue.retire()
        if deletion.is_short:
            self._take_step(deletion)
        if not deletion.is_over and not deletion.is_resting:
            self.walks.append(deletion)
        return deletion

    def _take_step(self, deletion: Deletion) -> None:
        """Go on with a deletion now, unless as much as may be was done in this turn. If that is not
        its end, and there was room, it waits for steps, so for another turn.
        """
        if self._budget > 0:
            self._budget -= max(deletion.step(PASSED_ON_A_TURN), 1)
            deletion.is_short = deletion.is_resting

    def _finish_deletion(self, queue: Queue) -> int:
        """Take a queue away; return the sequence to wait for."""
        self._evicting.pop(queue, None)
        exchanges = list(dict.fromkeys(uid for uid, _ in queue.bindings))
        self.detach_queue(queue)
        # One record says of all messages that are still here that they have left.
        sequence = self._append(QueueDeleted(queue.uid)) if queue.uid > 0 else 0
        del self.by_uid[queue.uid]
        queue.close()
        self._announce(
            Announce(
                "debug",
                "broker",
                f"queue {queue.name} deleted",
                {"queue": queue.name},
                QueueEnded(queue.name),
            )
        )
        for uid in exchanges:
            exchange = self.by_uid.get(uid)
            if isinstance(exchange, Exchange):
                sequence = max(sequence, self._end_unused_exchange(exchange))
        return sequence

    def _delete_exchange(self, exchange: Exchange) -> int:
        self.remove_exchange(exchange)
        self._announce(
            Announce(
                "debug", "broker", f"exchange {exchange.name} deleted", {"exchange": exchange.name}
            )
        )
        return self._append(ExchangeDeleted(exchange.uid)) if exchange.uid > 0 else 0

    def _end_unused_exchange(self, exchange: Exchange) -> int:
        """Delete an auto-delete exchange whose last binding went."""
        is_replica = self.passive and exchange.uid > 0
        if (
            is_replica
            or not exchange.options.auto_delete
            or exchange.binding_count
            or self._user_of_alternate(exchange.name)
        ):
            return 0
        return self._delete_exchange(exchange)

    def enqueue_on_all(self, queues: list[Queue], payload: bytes, expires: int) -> int:
        """Put one message on several queues, and give what it makes leave them to their alternate
        exchanges.
        """
        sequence, leaving = self.put_on_all(queues, payload, expires)
        for queue, messages in leaving:
            self.evict(queue, messages)
        return sequence

    def put_on_all(
        self, queues: list[Queue], payload: bytes, expires: int
    ) -> tuple[int, list[tuple[Queue, list[Message]]]]:
        """Put one message on several queues, the payload once into the log; give the sequence to
        wait for, and what leaves which queue.
        """
        originals = [queue.duplicate_of(payload) for queue in queues]
        taking = [
            queue for queue, original in zip(queues, originals, strict=True) if original is None
        ]
        sequence = max(filter(None, originals), default=0)
        size = len(payload)
        # The others have room, and stop no sender.
        near = [
            queue
            for queue in taking
            if queue.log_writer is None
            or len(queue.messages) >= queue.fast_path_limit
            or queue.bytes + size > queue.fast_path_bytes
        ]
        leaving = [(queue, messages) for queue in near if (messages := queue.room_for(size))]
        for queue, messages in leaving:
            self.departures.leave(queue, messages, Cause.OVERFLOW)
        log_writer = self._log_writer
        recorded = [queue for queue in taking if queue.log_writer is not None]
        if recorded and log_writer is not None:
            syncing = [queue for queue in recorded if queue.durable] if is_durable(payload) else []
            for queue in syncing:
                log_writer.must_sync = queue.syncs = True
            # A duplicate's original came before, so this sequence is the last to wait for.
            sequence = log_writer.enqueue_shared(
                tuple(queue.uid for queue in recorded), payload, expires
            )
        for queue in taking:
            if queue.log_writer is None:
                queue.insert_local(payload, expires)
            else:
                queue.insert(sequence, payload, expires)
        for queue in near:
            queue.judge()
        return sequence, leaving


def _goes_on(walk: Walk | Search) -> bool:
    """Whether there is something left to do, and room for it."""
    return not walk.is_over and not (isinstance(walk, Deletion) and walk.is_resting)


def _refused_on_backup(what: str) -> RefusedRequest:
    return RefusedRequest(f"{what} on a backup", hint="Ask the primary.")


def _is_over(queue: Queue) -> bool:
    """Whether a queue that was left has come to its end."""
    lifetime = queue.lifetime
    if lifetime is Lifetime.MANUAL:
        return False
    if lifetime.needs_no_messages and queue.messages:
        return False
    if lifetime is Lifetime.IF_EMPTY:
        return True
    if queue.consumers:
        return False
    if lifetime.needs_no_links:
        return not queue.senders
    # An exclusive queue is its owner's as long as there is one, whether or not the owner consumes
    # at present.
    return queue.owner is None or not (queue.options.exclusive or lifetime is Lifetime.ON_CLOSE)
