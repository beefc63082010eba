"""Broker: a state that also decides, as a primary does and a stand-alone broker.

Every decision is made here, checked before anything changes, carried out on the state and given to
the log writer. The sequence returned is to be committed before the caller reports success; 0: there
is nothing to wait for. While `passive`, as on a backup, replicated objects change by records only.
The node calls `dispatch` at the end of every turn and `tick` when `next_deadline` has come. Knows
nothing of clusters, connections, disks or clocks. Source: Qpid `Broker.cpp`, `Queue.cpp`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from qpidha.broker.credit import SLOW_DISK, Credit
from qpidha.broker.declaration import (
    check_new_exchange,
    check_new_queue,
    check_same,
    exchange_asked_for,
    queue_asked_for,
    resolved,
)
from qpidha.broker.exchange import (
    CONSISTENT_HASH,
    EXCHANGE_TYPES,
    Exchange,
    application_properties,
    bindings_to,
    spread,
    subject,
)
from qpidha.broker.federation import BRIDGE_QUEUE, DYNAMIC, QUEUE
from qpidha.broker.levels import Levels
from qpidha.broker.node_patterns import NodePatterns
from qpidha.broker.policy import MOST_POLICIES
from qpidha.broker.queues.arguments import check_key, check_name, check_plain, fits_key
from qpidha.broker.queues.crossing import Ends, crosses
from qpidha.broker.queues.dead_letters import dead_letter
from qpidha.broker.queues.deletion import (
    BYTES_A_TURN,
    PASSED_ON_A_TURN,
    Deletion,
    goes_on,
    passes_on,
)
from qpidha.broker.queues.delivery_limit import DEFAULT_LIMIT, DELIVERY_LIMIT, quarantine_of
from qpidha.broker.queues.expiry import Expiry, Search
from qpidha.broker.queues.lifetime import Lifetime, read_lifetime, read_timeout
from qpidha.broker.queues.limits import UNLIMITED
from qpidha.broker.queues.log_writer import BOTH, LOCAL
from qpidha.broker.queues.move import Move
from qpidha.broker.queues.purge import Purge
from qpidha.broker.queues.recall import Recall
from qpidha.broker.queues.requeue import Requeue
from qpidha.broker.queues.sweep import Sweep, Trim
from qpidha.broker.queues.walk import Walk
from qpidha.broker.state import LOCAL_UID, State, gone_here
from qpidha.broker.topic import Steps, StepsOfOne, TooManyKeys, TooManyWays
from qpidha.broker.translation import check_enabled, check_known_to_all, translate
from qpidha.broker.vocabulary import DURABLE, QUEUE_TYPE, QUORUM, Kind
from qpidha.model.deadlines import Deadlines
from qpidha.model.duration import MILLISECOND, SECOND
from qpidha.model.effects import Announce
from qpidha.model.errors import (
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    RefusedRequest,
    ResourceLocked,
)
from qpidha.model.event_codes import (
    DEAD_LETTERS_WAIT,
    DEPTH_ALERT,
    EXISTS_OTHERWISE,
    MESSAGE_DROPPED,
    NO_STORE,
    POLICY_REFUSED,
    QUEUE_DELETED_WHEN_FULL,
    REPLICA_ENDED,
    REPLICA_STARTED,
)
from qpidha.model.event_log import FEDERATION as FEDERATION_EVENT
from qpidha.model.event_log import REPLICA, DepthAlert, LinkChange, QueueCreated, QueueEnded
from qpidha.model.features import FEDERATION, QUEUE_KINDS, QUEUE_REPLICATION
from qpidha.model.message import Message
from qpidha.model.message_view import is_durable
from qpidha.model.records import (
    DEFAULT_EXCHANGE,
    Bound,
    Cause,
    ExchangeDeclared,
    ExchangeDeleted,
    LinkDeclared,
    LinkDeleted,
    PolicyCleared,
    QueueDeclared,
    QueueDeleted,
    QueueUsed,
    ReplicaEnded,
    ReplicaSet,
    RouteDeclared,
    RouteDeleted,
    Unbound,
)
from qpidha.model.replication_level import ALL, NONE, REPLICATE, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from qpidha.broker.exchange import Destination, Headers
    from qpidha.broker.queues.dead_letters import DeadLetterTarget
    from qpidha.broker.queues.log_writer import LogWriter
    from qpidha.broker.queues.queue import Queue, Room
    from qpidha.broker.state import BrokerSettings
    from qpidha.model.records import PolicySet, Record


class Impatient(Protocol):
    """Who has messages that others are to have after a while; the links of clients are such."""

    def overdue(self, now: int, most: int) -> int:
        """Give back up to `most` messages that were kept for too long; return how many."""
        ...


class Routed(NamedTuple):
    """What became of a message: the sequence to wait for, and on how many queues it is."""

    sequence: int
    queues: int


UNROUTED = Routed(0, 0)
LOOKED_A_TURN = 2000
"""Messages that are looked at in one turn because their time has come, and those of one page more.
"""
WALKED_A_TURN = 2000
"""Messages that are looked at to be purged or expired in one turn of the broker, or a few more; and
as much again for what is begun in it.
"""
LOOKS_A_TURN = 4000
"""Looks at names of queues in one turn, for what policies say of them now: some 200 queues, or
fewer if there are many policies.
"""
SEARCHES_A_TURN = 2
"""Queues whose dispatch took as long as one may in the turn before, and that go on in one."""
PUT_OFF = 10 * SECOND
"""How much longer an unused queue is kept that cannot end for want of disk."""
RETRY_INTERVAL = 1 * SECOND
"""How often messages that died are tried again that have no place elsewhere."""
SLOW_RETRY = 50 * MILLISECOND
"""How often it is looked whether the disk is still too slow for dead letters."""
RETRIED_A_TURN = 1000
"""Of them, how many in one turn, if they are not large."""
LETTERS_A_TURN = 100
"""Dead letters that are written in one turn, beside those that a newcomer makes: each takes longer
than to pass a message on as it is. Large ones count for more, and have BYTES_A_TURN together.
"""
MOST_HOPS = 50
"""Queues that may overflow one into the other for one message."""
PUBLISH_STEPS, REROUTE_STEPS, COMMIT_STEPS = (200, 50_000), (50, 100_000), (20, 500_000)
"""Steps that the comparison of each key with the bindings of topic exchanges may take whatever
others take (2,000 are about a millisecond), and those that are shared in one turn: by what is
published, by what is rerouted (of each queue that overflows on its own, for that cannot wait), and
by commits, whose posts are all routed in one turn.
"""
SILENCE = 60 * SECOND
"""How often at most it is told that something durable is not."""
RETURN = 10 * SECOND
"""How long the users of a queue without a timeout of its own have to come back after a failover or
a restart.
"""


class Broker(State):
    """The queues, exchanges and bindings of one broker, and every decision about them."""

    ahead = 0
    """What our wall clock is ahead of `now`, in ns; kept by the owner, as are the next two."""
    former_ahead: int | None = None
    """What that of the primary that was followed last is, None if it is not known."""
    local_committed = 0
    """Up to where the local log was committed then."""
    has_store = True
    """Whether what is durable outlives a restart; kept by the owner."""
    _silent_until = 0
    """Until then nobody is told again that something durable is not."""
    committed = UNLIMITED
    """Up to where the log of a cluster was committed when this turn began."""

    def __init__(
        self,
        settings: BrokerSettings,
        log_writer: LogWriter | None,
        announce: Callable[[Announce], None],
        make_uuid: Callable[[], str],
    ) -> None:
        self._refusal = self._reserved = ""
        self._hops = 0
        """How many queues have just overflowed, one into the other."""
        self._stays = False
        """Whether the message that is being passed on stays where it is if it is refused."""
        super().__init__(settings)
        self._log_writer = log_writer
        self._announce = announce
        self._make_uuid = make_uuid
        self._last_local_uid = LOCAL_UID
        self.levels = Levels(self, announce, self._local_uid)
        self.node_patterns = NodePatterns(settings.queue_patterns, settings.topic_patterns)
        self.credit = Credit()
        self._publish_steps = Steps(*PUBLISH_STEPS, "send it again, and fewer of this kind at once")
        self._reroute_steps = Steps(*REROUTE_STEPS, "reject, or delete, fewer of this kind at once")
        self.commit_steps = Steps(*COMMIT_STEPS, "commit more often")
        self._overflow_steps: dict[Queue, Steps] = {}
        """For the messages that had to make room in this turn, by the queue that they left."""
        self._begin_owning()
        self._budget = WALKED_A_TURN
        """How much may still be done at once in this turn for queues that end or are purged."""
        self._on_followed: list[Callable[[], None]] = []
        self._leaving: dict[Queue, None] = {}
        """Queues with a timeout that were left in this turn."""
        self._ending: Deadlines[Queue] = Deadlines()
        """When an unused queue is deleted, unless it gets a user before."""
        self._expiring: Deadlines[Queue] = Deadlines()
        """When a queue is deleted that had no consumer since it was declared, or lost its last."""
        self.patience: Deadlines[Impatient] = Deadlines()
        """When a consumer has kept a message for too long; kept by the consumers."""
        self._looks: Deadlines[Queue] = Deadlines()
        """When a message of a queue is to be looked at."""
        self._retrying: dict[Queue, bool] = {}
        """Queues with messages that died and could not be placed; whether only for this turn."""
        self._to_retry: dict[Queue, bool] = {}
        """Of those, the ones whose turn is still to come this time."""
        self._retried: dict[Queue, Iterator[int]] = {}
        """How far they were tried this time, of those where they were not all."""
        self._next_retry = 0
        self._letters = LETTERS_A_TURN
        """How many dead letters may still be written in this turn."""
        self.walks: list[Walk | Search] = []
        """Queues that are being purged or deleted, and the search for expired messages, in the
        order in which that began.
        """
        self._dropped: dict[Queue, tuple[int, str]] = {}
        """How many messages were dropped that it has not been told of, and why the last one was."""
        self._trimming: dict[Queue, Trim] = {}
        self._recalling: dict[Queue, Recall] = {}
        """The walks of rings that are over their limits, and of windows that learn their keys."""
        self._evicting: dict[Queue, Deletion | None] = {}
        """Queues whose messages are on their way to an alternate exchange; none comes back."""

    def _begin_owning(self) -> None:
        """Nobody owns anything."""
        self._owned: dict[object, dict[Queue, None]] = {}
        self._temporary: dict[object, list[Exchange]] = {}
        """Exchanges that end with their owner."""
        self._left_behind: dict[object, dict[Queue, None]] = {}
        """Queues whose owner has gone and that have not heard of it."""

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
        is_refusing = bool(self._refusal or self._reserved)
        for queue in self.queues.values():
            queue.log_writer = log_writer if queue.logged else None
            if is_refusing:
                queue.set_fast_path_limit()

    @property
    def refuse_publishing(self) -> str:
        """Why no message that is recorded can be taken at present, for instance for want of disk;
        empty if it can.
        """
        return self._refusal or self._reserved

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
        self._resume()

    @property
    def refuses_now(self) -> str:
        """Why the message that comes at this moment cannot be taken: one that this broker passes on
        itself has the space that is kept for that.
        """
        return self._refusal if self._hops else self.refuse_publishing

    def reserve(self, reason: str) -> None:
        """Take nothing that is sent to recorded queues, as the space that is left is for what they
        pass on; or take it again, with an empty reason.
        """
        self._reserved = reason
        for queue in self.queues.values():
            queue.set_fast_path_limit()
        if not reason:
            self._resume()

    def _resume(self) -> None:
        """There is room on the disk again for what is recorded, some a turn."""
        self.levels.resume()
        for recall in self._recalling.values():
            if recall.is_resting:
                recall.is_resting = False
                self.walks.append(recall)

    @property
    def usable(self) -> frozenset[str]:
        """The features that may be written: the record that enables one must be committed, else a
        broker that lacks it could become primary.
        """
        committed = self.committed
        return frozenset(name for name, place in self.features.items() if place <= committed)

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
        waits: bool = False,
    ) -> tuple[Queue, int]:
        """Return the queue of this name, created if need be; PreconditionFailed if it exists as
        something else. One that `waits` for its first use does not end with the owner before.
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
        self._give_limit(arguments or {}, wanted, queue)
        if queue is not None:
            self._check_stays(queue)
            queue.check_access(owner)
            check_same(f"Queue {name}", queue.options, wanted)
            if wanted.exclusive and queue.owner is None and owner is not None:
                self._own(queue, owner)
            self.renew(queue)
            return queue, 0
        check_new_queue(self, wanted)
        self._check_durable("queue", wanted)
        if not self._knows_kinds:
            wanted.implied = []
        if waits and not _is_of_owner(wanted):
            owner = None
        self._choose_level(wanted, owner)
        wanted.uuid = self._make_uuid()
        wanted.arguments = resolved(given, wanted.replicate, wanted.uuid)
        sequence = self._record(wanted)
        queue = self.add_queue(sequence or self._local_uid(), wanted)
        if queue.logged:
            queue.log_writer = self._log_writer
            queue.set_fast_path_limit()
        elif queue.local_writer is not None:
            queue.waits_for = sequence  # Without it what comes would be of no queue.
        if owner is not None:
            self._own(queue, owner)
        self.renew(queue)
        fields: dict[str, object] = {"queue": name, "replicate": wanted.replicate}
        text = f"queue {name} created"
        self._announce(Announce("debug", "broker", text, fields, QueueCreated(name)))
        return queue, sequence or queue.all_so_far()

    def _check_durable(
        self, what: str, wanted: QueueDeclared | ExchangeDeclared | LinkDeclared | RouteDeclared
    ) -> None:
        """Refuse something durable, or warn, where nothing outlives a restart. What is durable
        already may be declared again.
        """
        if not wanted.durable or self.has_store:
            return
        why = "this broker has no data-dir, and what it has is gone when it stops"
        if self.settings.durable_without_store == "refuse":
            raise PreconditionFailed(
                f"{what} {wanted.name} cannot be durable",
                reason=why,
                hint="declare it without durable, give the broker a data-dir, or let it accept "
                "such declarations with durable-without-store=accept",
                event_code=NO_STORE,
            )
        if self.now >= self._silent_until:
            self._silent_until = self.now + SILENCE
            text = f"{what} {wanted.name} was declared durable, and is not: {why}"
            self._announce(Announce("warning", "broker", text, event_code=NO_STORE))

    @property
    def _knows_kinds(self) -> bool:
        """Whether all that a declaration says may be recorded."""
        return self._log_writer is None or QUEUE_KINDS in self.usable

    def _give_limit(
        self, asked: Mapping[str, Any], wanted: QueueDeclared, existing: Queue | None
    ) -> None:
        """Give a quorum queue that names no delivery limit the usual one; or that of the queue that
        exists, which an earlier version may have made without one.
        """
        if asked.get(QUEUE_TYPE) != QUORUM or DELIVERY_LIMIT in wanted.arguments:
            return
        if existing is not None:
            limit = existing.options.arguments.get(DELIVERY_LIMIT)
        else:
            limit = DEFAULT_LIMIT if self._knows_kinds else None
        if limit is not None:
            wanted.arguments[DELIVERY_LIMIT] = limit
            wanted.implied.append(DELIVERY_LIMIT)

    def _choose_level(self, wanted: QueueDeclared, owner: object | None) -> None:
        """Set the replicate level of a new queue: what it asks for, else what policies say from
        time to time, but none for one that ends with its user.
        """
        given, default = wanted.arguments, self.settings.ha_replicate
        if (
            owner is not None
            and read_lifetime(given, wanted.auto_delete) is not Lifetime.MANUAL
            and not read_timeout(given)
        ):
            default = NONE
        elif REPLICATE not in given:
            if self._knows_kinds:
                wanted.fallback = resolve({}, default)
            followed = self.policies.of(wanted) if self.policies else None
            default = (followed and followed.level) or default
        wanted.replicate = resolve(given, default)

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
                event_code=EXISTS_OTHERWISE,
            )
        if if_empty and queue.messages:
            raise PreconditionFailed(
                f"Queue {name} has {len(queue.messages)} messages",
                hint="Purge it, or delete it with force.",
                event_code=EXISTS_OTHERWISE,
            )
        if self._refusal and passes_on(queue) and not may_rest:
            raise LimitExceeded(
                f"Queue {name} cannot be deleted at present: what is on it goes to other queues, "
                f"and there is no room for {len(queue.messages)} messages of {queue.bytes} bytes: "
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
        _check_own(queue)
        deletion = self._evicting.get(queue)
        if deletion is not None and queue.crossing:
            raise ResourceLocked(
                f"Queue {name} is being deleted, and messages of it are on their way to others",
                hint="Try again in a moment.",
            )
        purge = Purge(queue)
        if deletion is not None:
            purge.count = len(queue.messages)
            deletion.finish()
            purge.sequence = deletion.sequence
            purge.end()
        else:
            self._begin(purge)
        return purge

    def move(self, name: str, target_name: str, count: int = 0) -> Move:
        """Move the available messages of a queue, the first `count` of them or all, to another one:
        at once if they are few, else some with every `go_on_walking`. LimitExceeded if the target
        has no room at all.
        """
        queue, target = self.queue(name), self.queue(target_name)
        self._check_decides(queue)
        self._check_decides(target)
        _check_own(queue)
        if queue is target:
            raise RefusedRequest(
                f"The messages of queue {name} cannot be moved to that queue itself",
                hint="Name another queue; there they go behind what is on it.",
            )
        if queue.messages:
            target.check_open()
            target.check_room(0)
        move = Move(queue, target, count)
        self._begin(move)
        return move

    def requeue(
        self,
        name: str,
        count: int = 0,
        *,
        origin: str = "",
        check: Callable[[Queue], None] = lambda queue: None,
    ) -> Requeue:
        """Move the available dead letters of a queue, the first `count` of them or all, back to
        the queues on which they died, or those only that died on `origin`. A queue takes none if
        `check` raises RefusedRequest.
        """
        queue = self.queue(name)
        self._check_decides(queue)
        _check_own(queue)

        def find(home: str) -> Queue:
            found = self.queue(home)
            self._check_decides(found)
            check(found)
            return found

        if origin:
            find(origin)
        requeue = Requeue(queue, find, count, origin)
        self._begin(requeue)
        return requeue

    def begin_replica(self, name: str, source: str, *, anew: bool = False) -> int:
        """Make a queue a replica of the queue of its name at `source`, or have one that is a
        replica go on from there; with `anew`, give up what is on it. Return the sequence to wait
        for.
        """
        queue = self.queue(name)
        self._check_decides(queue)
        present = self.replicas.get(queue.uid)
        if present is None:
            self._check_may_copy(queue, anew=anew)
        record = ReplicaSet(queue.uid, source)
        if present is not None and not anew:
            record = replace(present, source=source)
        if queue.uid > 0 and self._log_writer is not None:
            self._log_writer.must_sync = True
        self._tell_replica(queue, f"is a replica of that at {source} now", REPLICA_STARTED)
        return self.move_replica(record)

    def _tell_replica(self, queue: Queue, text: str, event_code: str) -> None:
        fields: dict[str, object] = {"queue": queue.name}
        text = f"queue {queue.name} {text}"
        done = "made" if event_code == REPLICA_STARTED else "ended"
        about = LinkChange(REPLICA, done, f"replica {queue.name}")
        self._announce(Announce("notice", "broker", text, fields, about, event_code))

    def _check_may_copy(self, queue: Queue, *, anew: bool) -> None:
        """Raise RefusedRequest for a queue that cannot become a replica."""
        if queue.uid > 0 and QUEUE_REPLICATION not in self.usable:
            raise PreconditionFailed(
                f"Queue {queue.name} cannot be a replica yet",
                reason=f"the feature {QUEUE_REPLICATION} is not enabled",
                hint="Upgrade all brokers of the cluster first, or try again in a moment.",
            )
        if queue.local_writer is not None:
            raise PreconditionFailed(
                f"Queue {queue.name} cannot be a replica with the level {queue.options.replicate}",
                reason="what is on it would be on this broker only",
                hint="Declare it with the level all, or set a policy that gives it that.",
            )
        users = [consumer for consumer in queue.consumers if not consumer.browse]
        if users or queue.senders or queue in self.levels.changing or queue.acquired:
            raise PreconditionFailed(
                f"Queue {queue.name} cannot become a replica while it is in use",
                reason=f"it has {len(users)} consumers, {len(queue.senders)} senders, and "
                f"{queue.acquired} messages that are with a consumer or not due",
                hint="Close them first; a replica can only be browsed.",
            )
        if queue.messages and not anew:
            raise PreconditionFailed(
                f"Queue {queue.name} has {len(queue.messages)} messages, which would not be those "
                "of its source",
                hint="Purge it, or have them replaced: qpid-ha replicate --replace.",
            )

    def move_replica(self, record: ReplicaSet) -> int:
        """Record how far a replica has come; return the sequence to wait for."""
        sequence = self._append(record) if record.queue > 0 else 0
        self.apply(sequence, record)
        return sequence

    def end_replica(self, name: str) -> int:
        """Make a replica a queue like any other; return the sequence to wait for."""
        queue = self.queue(name)
        self._check_decides(queue)
        if queue.uid not in self.replicas:
            raise PreconditionFailed(
                f"Queue {name} is no replica", hint="qpid-ha replica list shows those that are."
            )
        record = ReplicaEnded(queue.uid, queue.last_number)
        sequence = self._append(record) if queue.uid > 0 else 0
        self.apply(sequence, record)
        self._tell_replica(queue, "is no replica any more", REPLICA_ENDED)
        self._begin_deciding(queue)
        if queue.has_times:
            self.search(queue)
        return sequence

    def _begin(self, walk: Walk) -> None:
        """Do something with all messages of a queue: at once if they are few, and nothing else is
        to be done before.
        """
        if not self.walks and self._budget > 0:
            self._budget -= walk.step(WALKED_A_TURN)
        if not walk.is_over:
            self.walks.append(walk)

    def may_walk(self, committed: int) -> bool:
        """Whether there is something to be done in the next turn, or soon."""
        return self.is_behind or self.has_walk(committed)

    def has_walk(self, committed: int) -> bool:
        """Whether a walk through a queue can go on."""
        return any(self._is_committed(walk.sequence, committed) for walk in self.walks)

    @property
    def has_local_walk(self) -> bool:
        """Whether a walk waits for what it recorded in the local log."""
        return any(self.local_committed < walk.sequence < BOTH for walk in self.walks)

    @property
    def is_behind(self) -> bool:
        """Whether queues are to end, or to follow policies, in the next turn."""
        return bool(self._left_behind or self.to_follow)

    def _is_committed(self, place: int, committed: int) -> bool:
        """Whether a place is committed, in the local log, in the other one, or in both."""
        if place < LOCAL:
            return place <= committed
        return place <= (self.local_committed if place < BOTH else self.crossings.over)

    @property
    def has_two_logs(self) -> bool:
        """Whether some messages are recorded in the local log and others in that of the cluster."""
        return self.local_log is not None and self.local_log.has_queues

    def crosses(self, source: Queue, target: Queue) -> bool:
        """Whether a message that goes from one queue to another leaves when it has arrived."""
        return self.has_two_logs and crosses(source, target, self.committed)

    def may_cross(self, committed: int) -> bool:
        """Whether something has arrived in the other log, and is to leave in the next turn."""
        return self.crossings.may_go_on(Ends(committed, self.local_committed))

    def go_on_crossing(self, committed: int) -> None:
        """Have what has arrived in the other log leave; once, at the end of a turn."""
        committed_to = Ends(committed, self.local_committed)
        self.crossings.turn(committed_to, self._leave_crossed, self._ends)

    def crossed(self, committed: int) -> int:
        """Return up to which place all is over that goes from one log to the other."""
        return self.crossings.look(Ends(committed, self.local_committed))

    def _leave_crossed(self, queue: Queue, messages: Sequence[Message], cause: Cause) -> None:
        self.departures.record(queue, messages, cause)
        if queue.ends_empty:
            self.left(queue)

    def _ends(self) -> Ends:
        """Return the last places of both logs."""
        cluster = 0 if self._log_writer is None else self._log_writer.end
        return Ends(cluster, 0 if self.local_log is None else self.local_log.end)

    def go_on_walking(self, committed: int) -> None:
        """Go on with queues that are being purged, moved from, searched for expired messages, or
        deleted; once, at the end of a turn. What was recorded before is to be committed first.
        """
        left, seen = WALKED_A_TURN, 0
        # Those that this turn does not come to are not looked at: there may be as many as queues.
        for walk in islice(self.walks, len(self.walks)):
            seen += 1
            if self._is_committed(walk.sequence, committed) and _goes_on(walk):
                left -= max(walk.step(left), 1)
                if left <= 0:
                    break
        self._reroute_steps.renew()
        self._tell_dropped()
        self.walks[:seen] = [walk for walk in self.walks[:seen] if _goes_on(walk)]

    def abandon_walks(self) -> None:
        """Leave undone what is not over: another broker decides from now on."""
        self.returns.forget_replicas()
        self.walks = []
        self.crossings.abandon()
        self._trimming.clear()
        self._recalling.clear()
        for queue, deletion in list(self._evicting.items()):
            if deletion is not None:
                deletion.abandon()
                if not queue.deleted:  # It followed policies only in what it is to remember.
                    self.followed.pop(queue, None)
                    self.to_follow[queue] = 0
        self.levels.abandon()
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
            raise NotFound(
                f"There is no queue {name}", hint="Is the name right? If so, declare it first."
            )
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
        many some are so a few turns later, or when they are asked for. Its exchanges end.
        """
        for exchange in self._temporary.pop(owner, ()):
            if self.by_uid.get(exchange.uid) is exchange:
                self._delete_exchange(exchange)
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

    # Policies.

    def when_followed(self, on_end: Callable[[], None]) -> None:
        """Have a function called at the end of the turn in which all queues follow the policies."""
        self._on_followed.append(on_end)

    def has_followed(self, queue: Queue) -> None:
        """Begin to give a queue another level, if policies say one."""
        self.levels.look(queue)

    def set_policy(self, wanted: PolicySet) -> int:
        """Set a policy, in place of one that has its name; return the sequence to wait for, which
        is that of the same policy if it is set already. Queues and exchanges follow it in this
        turn, or a few turns later where there are many.
        """
        self._check_sets_policies()
        if self._log_writer is not None:
            check_enabled("policies", QUEUE_KINDS, self.usable)
        former = self.policies.find(wanted.name, is_operator=wanted.is_operator)
        if former is not None and former.record == wanted:
            return former.sequence if self._log_writer is not None else 0
        if former is None and len(self.policies.ranked(is_operator=wanted.is_operator)) >= (
            MOST_POLICIES
        ):
            raise LimitExceeded(
                f"Cannot set policy {wanted.name}: there are {MOST_POLICIES} already",
                hint="Clear some.",
                event_code=POLICY_REFUSED,
            )
        return self._change_policy(wanted, "set")

    def clear_policy(self, name: str, *, is_operator: bool = False) -> int:
        """Take a policy away; NotFound if there is none of this name. Who knows the policy knows
        of this, too.
        """
        self._check_sets_policies()
        if self.policies.get(name, is_operator=is_operator) is None:
            what = "operator policy" if is_operator else "policy"
            raise NotFound(f"There is no {what} {name}", hint="qpid-ha policy list shows them.")
        return self._change_policy(PolicyCleared(name, is_operator), "cleared")

    def _check_sets_policies(self) -> None:
        if self.passive:
            raise _refused_on_backup("Policies cannot be changed")

    def begin_with(self, policies: Sequence[PolicySet]) -> None:
        """Set policies if there never were any."""
        if not self.policies.last:
            for policy in policies:
                self._change_policy(policy, "set, as policy-file has it")

    def _change_policy(self, record: PolicySet | PolicyCleared, done: str) -> int:
        sequence = self._append(record)
        self.apply(sequence or self.policies.last + 1, record)
        what = "operator policy" if record.is_operator else "policy"
        text = f"{what} {record.name} {done}"
        self._announce(Announce("info", "broker", text, {"policy": record.name}))
        return sequence

    # Federation.

    def declare_link(self, wanted: LinkDeclared, tag: str) -> int:
        """Declare a link, or change one; return the sequence to wait for. `tag` is what messages
        are marked with, if no link says it yet. A link that is changed is still the same one: what
        its routes have at the other end stays theirs.
        """
        links = self.federation
        former = links.links.get(wanted.name)
        uuid = former.uuid if former is not None else self._make_uuid()
        wanted = replace(wanted, uuid=uuid, tag=links.tag or tag)
        if former is not None and not wanted.password:
            # Whoever knows no password, such as a file of definitions, leaves the one that is
            # there; but it is not sent to other addresses, or in another way.
            kept = replace(wanted, password=former.password, durable=former.durable)
            if kept == former:
                wanted.password = former.password
        self._check_durable("link", wanted)
        if former == wanted:
            return links.sequence(former)
        done = "made" if former is None else "changed"
        return self._change_federation(wanted, f"link {wanted.name}", done, wanted.durable)

    def delete_link(self, name: str, *, with_routes: bool = False) -> int:
        """Delete a link, and its routes if that is said; return the sequence to wait for."""
        link = self.federation.links.get(name)
        if link is None:
            raise NotFound(f"There is no link {name}", hint="qpid-ha link list shows them.")
        routes = self.federation.routes_of(name)
        if routes and not with_routes:
            raise PreconditionFailed(
                f"Link {name} has {len(routes)} routes, such as {routes[0].name}",
                hint="Delete them first, or the link with its routes.",
            )
        for route in routes:
            self.delete_route(route.name)
        return self._change_federation(LinkDeleted(name), f"link {name}", "ended", link.durable)

    def declare_route(self, wanted: RouteDeclared, destination_type: str = "") -> int:
        """Declare a route; return the sequence to wait for, which is that of the same route if it
        is there already.
        """
        federation = self.federation
        link = federation.links.get(wanted.link)
        if link is None:
            raise NotFound(f"There is no link {wanted.link}", hint="Declare it first.")
        if wanted.durable and not link.durable:
            raise PreconditionFailed(
                f"Route {wanted.name} is to be durable, and link {link.name} is not",
                hint="Declare the link durable, or the route not.",
            )
        self._check_durable("route", wanted)
        here = wanted.source if wanted.is_push else wanted.destination
        is_exchange = self._is_exchange(wanted, here, destination_type)
        if not is_exchange:
            self._check_decides(self.queue(here))
        former = federation.routes.get(wanted.name)
        wanted = replace(
            wanted,
            uuid=former.uuid if former is not None else self._make_uuid(),
            to_exchange=is_exchange and not wanted.is_push,
            queue=former.queue if former is not None else "",
        )
        if former is not None:
            if former != wanted:
                raise PreconditionFailed(
                    f"Route {wanted.name} exists, and is another one",
                    hint="Delete it first, or give this one another name.",
                )
            return federation.sequence(former)
        self._check_federation(wanted)
        if wanted.is_push and wanted.kind != QUEUE:
            exchange = self.exchange(wanted.source)
            self._check_binding(exchange, wanted.key, wanted.arguments)
            exchange.check_room(wanted.key)
            wanted.queue = f"{BRIDGE_QUEUE}{wanted.name}_{wanted.uuid}"
            # The next primary goes on with the route, so it has to have the queue, as the link.
            self.declare_queue(wanted.queue, durable=wanted.durable, arguments={REPLICATE: ALL})
            self.bind(wanted.source, wanted.queue, wanted.key, wanted.arguments)
        return self._change_federation(wanted, f"route {wanted.name}", "made", wanted.durable)

    def _is_exchange(self, wanted: RouteDeclared, here: str, destination_type: str) -> bool:
        """Find out whether the end of a route that is here is an exchange, which must be there."""
        if wanted.is_push or wanted.kind == DYNAMIC:
            is_exchange = wanted.kind != QUEUE
        elif destination_type:
            is_exchange = destination_type == "exchange"
        else:
            is_exchange = self.find_queue(here) is None
            if not is_exchange and here in self.exchanges:
                raise InvalidArgument(
                    f"{here} is a queue, and an exchange as well",
                    hint="Say which one is meant: destination_type is queue or exchange.",
                )
        if is_exchange:
            self.exchange(here)
        return is_exchange

    def delete_route(self, name: str) -> int:
        """Delete a route, and the queue that was made for it; return the sequence to wait for."""
        route = self.federation.routes.get(name)
        if route is None:
            raise NotFound(f"There is no route {name}", hint="qpid-ha route list shows them.")
        self._check_federation(None)
        sequence = self._change_federation(
            RouteDeleted(name), f"route {name}", "ended", route.durable
        )
        if route.queue and self.find_queue(route.queue) is not None:
            self.delete_queue(route.queue)
        return sequence

    def _check_federation(self, wanted: LinkDeclared | RouteDeclared | None) -> None:
        if self.passive:
            raise _refused_on_backup("Links and routes cannot be changed")
        if self._log_writer is not None:
            check_enabled("links and routes", FEDERATION, self.usable)
        if wanted is not None:
            self.federation.check_room(wanted)

    def _change_federation(
        self,
        record: LinkDeclared | LinkDeleted | RouteDeclared | RouteDeleted,
        what: str,
        done: str,
        durable: bool,
    ) -> int:
        """Record a change of links or routes; a broker alone records durable ones."""
        self._check_federation(
            record if isinstance(record, (LinkDeclared, RouteDeclared)) else None
        )
        sequence = self._append(record) if self.records_object(durable, ALL) else 0
        self.apply(sequence, record)
        text = f"{what} {'deleted' if done == 'ended' else 'declared'}"
        about = LinkChange(FEDERATION_EVENT, done, what)
        self._announce(Announce("info", "broker", text, {"name": record.name}, about))
        return sequence

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
        owner: object | None = None,
    ) -> tuple[Exchange, int]:
        """Return the exchange of this name, created if need be; PreconditionFailed if it exists as
        something else. With an owner it is a new one, of this broker only, and ends with the owner.
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
        self._check_durable("exchange", wanted)
        wanted.replicate = resolve(given, NONE if owner is not None else self.settings.ha_replicate)
        wanted.uuid = self._make_uuid()
        wanted.arguments = resolved(given, wanted.replicate, wanted.uuid)
        if owner is not None:
            self._check_ends(wanted)
        sequence = self._record(wanted)
        exchange = self.add_exchange(sequence or self._local_uid(), wanted)
        if owner is not None:
            self._temporary.setdefault(owner, []).append(exchange)
        elif wanted.durable and not sequence and self.local_log is not None:
            sequence = self.local_log.declared(exchange)
        fields: dict[str, object] = {"exchange": name, "replicate": wanted.replicate}
        self._announce(Announce("debug", "broker", f"exchange {name} created", fields))
        return exchange, sequence

    def _check_ends(self, wanted: ExchangeDeclared) -> None:
        """Refuse an exchange that ends with its owner and that others are to know of, or a later
        start of this broker: neither knows the owner.
        """
        if self.records_object(wanted.durable, wanted.replicate):
            raise PreconditionFailed(
                "a temporary exchange can be neither durable nor replicated",
                reason="it ends with the link that made it, which this broker alone knows",
                hint=f"leave {DURABLE} and {REPLICATE} out, or declare an exchange",
            )

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
                hint=f"Delete {user} first, or clear the policy that says so.",
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
            raise NotFound(
                f"There is no exchange {name}", hint="Is the name right? If so, declare it first."
            )
        return exchange

    def bind(
        self,
        exchange_name: str,
        queue_name: str,
        key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> int:
        """Bind a queue to an exchange; the same key again replaces the arguments."""
        return self._bind(
            self.exchange(exchange_name), self.queue(queue_name), key, arguments or {}
        )

    def bind_exchange(
        self,
        exchange_name: str,
        destination_name: str,
        key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> int:
        """Have an exchange give what fits the binding to another one as well."""
        destination = self.exchange(destination_name)
        if destination.uid == DEFAULT_EXCHANGE:
            raise RefusedRequest(
                "The default exchange cannot be bound to another one",
                hint="Bind the queues themselves.",
            )
        return self._bind(self.exchange(exchange_name), destination, key, arguments or {})

    def _bind(
        self, exchange: Exchange, destination: Destination, key: str, arguments: Mapping[str, Any]
    ) -> int:
        self._check_decides(exchange, destination)
        given = self._check_binding(exchange, key, arguments)
        former = exchange.binding(destination, key)
        if former is not None and former.arguments == given:
            return 0
        if former is None:
            exchange.check_room(key)
            count = len(bindings_to(destination))
            if count >= self.settings.max_bindings:
                kind = "exchange" if isinstance(destination, Exchange) else "queue"
                raise LimitExceeded(
                    f"Cannot bind {kind} {destination.name}: it has {count} bindings already",
                    hint="Remove some, or raise max-bindings.",
                )
        was_recorded = former is not None and self.records_binding(
            exchange, destination, former.arguments
        )
        is_recorded = self.records_binding(exchange, destination, given)
        if is_recorded and isinstance(destination, Exchange) and self._log_writer is not None:
            check_enabled("a binding of an exchange", QUEUE_KINDS, self.usable)
        exchange.bind(destination, key, given)
        local = self.local_log
        if is_recorded:
            if local is not None:
                local.unbound(exchange, destination, key)
            record = Bound(exchange.uid, destination.uid, key, given)
            return self._append_of(record, exchange.options, destination.options)
        here = 0 if local is None else local.bound(exchange, destination, key, given)
        # A binding that others knew and shall not know any more is gone for them.
        if was_recorded:
            gone = Unbound(exchange.uid, destination.uid, key)
            here = max(here, self._append_of(gone, exchange.options, destination.options))
        return here

    @staticmethod
    def _check_binding(
        exchange: Exchange, key: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments of a binding by their known names; raise for what cannot be one."""
        given = translate(Kind.BINDING, arguments)
        resolve(given, ALL)
        check_key("binding key", key)
        check_name("binding key", key)
        check_plain(given)
        exchange.check_binding(key, given)
        return given

    def unbind(self, exchange_name: str, queue_name: str, key: str = "") -> int:
        """Remove a binding, if it exists."""
        return self._unbind(self.exchange(exchange_name), self.queue(queue_name), key)

    def unbind_exchange(self, exchange_name: str, destination_name: str, key: str = "") -> int:
        """Remove a binding of an exchange to another one, if it exists."""
        return self._unbind(self.exchange(exchange_name), self.exchange(destination_name), key)

    def _unbind(self, exchange: Exchange, destination: Destination, key: str) -> int:
        self._check_decides(exchange, destination)
        binding = exchange.binding(destination, key)
        if binding is None:
            return 0
        exchange.unbind(destination, key)
        recorded = self.records_binding(exchange, destination, binding.arguments)
        sequence = 0
        if recorded:
            gone = Unbound(exchange.uid, destination.uid, key)
            sequence = self._append_of(gone, exchange.options, destination.options)
        if self.local_log is not None:
            sequence = max(sequence, self.local_log.unbound(exchange, destination, key))
        return max(sequence, self._end_unused_exchange(exchange))

    # Messages.

    def reads_keys(self, exchange_name: str) -> bool:
        """Whether it makes a difference which key a message to an exchange has."""
        exchange = self.exchanges.get(exchange_name)
        if exchange is None or exchange.reads_keys or exchange.leads_on:
            return True
        name = exchange.alternate
        alternate = self.exchanges.get(name) if name else None
        return alternate is not None and alternate.reads_keys

    def check_delay(self) -> None:
        """Raise PreconditionFailed if a message cannot be kept for later yet."""
        if self._log_writer is not None and QUEUE_KINDS not in self.usable:
            raise PreconditionFailed(
                "no message can be delivered later yet: not every broker of this cluster would "
                "keep it until then",
                reason=f"the feature {QUEUE_KINDS} is not enabled",
                hint="Upgrade every broker, and have all of them connected once.",
            )

    def publish(
        self,
        exchange_name: str,
        key: str,
        payload: bytes,
        *,
        headers: Headers,
        expires: int = 0,
        due: int = 0,
        container: str = "",
    ) -> Routed:
        """Put a message of a connection of a container on the queues it is for, on all or on none;
        LimitExceeded if one of them is full. With `due` nobody has it before that time.
        """
        exchange = self.exchanges.get(exchange_name)
        if exchange is None:
            raise NotFound(
                f"There is no exchange {exchange_name}",
                hint="Is the name right? If so, declare it first.",
            )
        exchange.received += 1
        exchange.bytes_received += len(payload)
        steps = self._publish_steps
        try:
            queues: list[Queue] = exchange.route(key, headers, steps, payload)
            if self._evicting or not queues or exchange.leads_on:
                queues = self._takers(exchange, queues, key, headers, steps, payload)
        except TooManyKeys:
            exchange.drop(len(payload))
            raise
        if not queues:
            exchange.drop(len(payload))
            return UNROUTED
        if container in self.not_own:
            return self._put_but_own(queues, payload, expires, due, container)
        if len(queues) == 1 and not due:
            return Routed(queues[0].enqueue(payload, expires), 1)
        return Routed(self.enqueue_on_all(queues, payload, expires, due), len(queues))

    def _put_but_own(
        self, queues: list[Queue], payload: bytes, expires: int, due: int, container: str
    ) -> Routed:
        """Put a message on the queues it is for, but for those that do not take what its container
        sends: it was for them, and is not there.
        """
        taking = self.without_own(queues, container)
        sequence = self.enqueue_on_all(taking, payload, expires, due) if taking else 0
        return Routed(sequence, len(queues))

    def without_own(self, queues: list[Queue], container: str) -> list[Queue]:
        """Leave out the queues that do not take what a container sends to exchanges."""
        not_own = self.not_own.get(container)
        if not not_own:
            return queues
        for queue in queues:
            if queue in not_own and queue.intake is not None:
                queue.intake.left_out += 1
        return [queue for queue in queues if queue not in not_own]

    def publish_copies(
        self,
        exchange_name: str,
        keys: Iterable[str],
        payload: bytes,
        *,
        headers: Headers,
        expires: int = 0,
        due: int = 0,
        container: str = "",
    ) -> Routed:
        """Do as `publish` with a message that has several keys: it is on each queue once that any
        of them leads to.
        """
        exchange = self.exchange(exchange_name)
        exchange.received += 1
        exchange.bytes_received += len(payload)
        try:
            queues = self.routes_of_all(exchange, keys, headers, self._publish_steps, payload)
        except TooManyKeys:
            exchange.drop(len(payload))
            raise
        if not queues:
            exchange.drop(len(payload))
            return UNROUTED
        return self._put_but_own(queues, payload, expires, due, container)

    def routes_of_all(
        self,
        exchange: Exchange,
        keys: Iterable[str],
        headers: Headers,
        steps: Steps,
        payload: bytes,
    ) -> list[Queue]:
        """Return the queues for a message with several keys. Raises TooManyWays, TooManyKeys."""
        own = StepsOfOne(steps)
        found: dict[Queue, None] = {}
        try:
            for key in keys:
                found.update(dict.fromkeys(self.routes(exchange, key, headers, own, payload)))
        except TooManyKeys:
            raise steps.refusal("what the message has as keys", "it has several") from None
        finally:
            steps.take(own.taken)
        return list(found)

    def pass_on(self, queue: Queue, message: Message, cause: Cause) -> int | None:
        """Give a message that dies to the dead letters of its queue, or to its alternate exchange,
        if there is any; return the sequence to wait for, None if it cannot be placed now.
        """
        target = self._target_of(queue, cause)
        is_urgent = cause is Cause.OVERFLOW
        if target is not None and not is_urgent:
            if self._letters <= 0 or SLOW_DISK in self.credit.withheld:
                self._retrying[queue] = True
                self._next_retry = self.now
                return None
            self._letters -= 1 + message.size * LETTERS_A_TURN // BYTES_A_TURN
        may_drop = target is not None and not target.keeps
        may_drop = may_drop and message.sequence not in queue.unplaced
        if is_urgent:
            self._evicting[queue] = None
        try:
            routed = self._send_on(queue, message, cause, self._reroute_steps, stays=not may_drop)
            if routed is None:
                return 0
            if routed.queues:
                return routed.sequence
            why = _no_queue(queue, target)
        except RefusedRequest as error:
            why = error.text
        finally:
            if is_urgent:
                del self._evicting[queue]
        queue.why_unplaced = why
        if may_drop:
            self._drop(queue, why)
            return 0
        if not is_urgent:
            if not queue.unplaced:
                text = f"messages of queue {queue.name} that died stay there until there is a place"
                self._announce(
                    Announce(
                        "warning",
                        "broker",
                        f"{text}: {why}",
                        {"queue": queue.name},
                        event_code=DEAD_LETTERS_WAIT,
                    )
                )
            self._retrying.setdefault(queue, False)
        return None

    def _reroute(self, queue: Queue, message: Message, steps: Steps | None = None) -> int | None:
        """Give a message that cannot stay to the alternate exchange of its queue, or to its dead
        letters, if there is one; return the sequence to wait for. One that finds no place is
        dropped; but None if too many keys were looked for in this turn (with `steps`, if they are
        too few), or for one that can wait for room on the disk, as its queue is being deleted.
        """
        steps = steps or self._reroute_steps
        deletion = self._evicting.get(queue)
        may_rest = bool(self._refusal) and deletion is not None
        try:
            routed = self._send_held(queue, message, steps, may_rest=may_rest)
            if routed is None:
                routed = self._send_on(queue, message, Cause.DELETED, steps, stays=may_rest)
        except TooManyKeys:
            return None
        except RefusedRequest as error:  # It is full, or a copy of what another broker decides on.
            if may_rest and deletion is not None and isinstance(error, LimitExceeded):
                deletion.is_resting = True
                return None
            self._drop(queue, error.text)
            return 0
        if routed is None:
            return 0
        exchange = self._alternate_of(queue)
        if not routed.queues and exchange is not None:
            exchange.received += 1
            exchange.bytes_received += message.size
            exchange.drop(message.size)
        return routed.sequence

    def _send_held(
        self, queue: Queue, message: Message, steps: Steps, *, may_rest: bool
    ) -> Routed | None:
        """Put a message among the dead letters of its queue that died and had no place there; None
        if it has none now either. Raises RefusedRequest while it may have one later, if it
        `may_rest`.
        """
        cause = queue.unplaced.get(message.sequence, (message, Cause.DELETED))[1]
        if cause is Cause.DELETED or self._target_of(queue, cause) is None:
            return None
        # Refused here, it is tried where all goes that is on the queue.
        try:
            routed = self._send_on(queue, message, cause, steps, stays=may_rest or goes_on(queue))
        except RefusedRequest as error:
            if isinstance(error, TooManyKeys) or (may_rest and isinstance(error, LimitExceeded)):
                raise
            return None
        return routed if routed is not None and routed.queues else None

    def _drop(self, queue: Queue, reason: str) -> None:
        queue.not_rerouted += 1
        self._dropped[queue] = (self._dropped.get(queue, (0, ""))[0] + 1, reason)

    def _tell_dropped(self) -> None:
        """Tell how many messages of each queue were dropped, and why the last one was."""
        dropped, self._dropped = self._dropped, {}
        for queue, (count, reason) in dropped.items():
            what = "1 message" if count == 1 else f"{count} messages"
            self._announce(
                Announce(
                    "warning",
                    "broker",
                    f"{what} of queue {queue.name} dropped, not rerouted: {reason}",
                    {"queue": queue.name, "messages": count},
                    event_code=MESSAGE_DROPPED,
                )
            )

    def _alternate_of(self, queue: Queue) -> Exchange | None:
        name = queue.options.alternate
        return self.exchanges.get(name) if name else None

    def _send_on(
        self, queue: Queue, message: Message, cause: Cause, steps: Steps, *, stays: bool = False
    ) -> Routed | None:
        """Put a message that leaves a queue where the queue passes it on to: among its dead
        letters, or as it is where its alternate exchange has it; None if there is neither. Raises
        RefusedRequest; the message `stays` where it is then, or else it is dropped.
        """
        target = self._target_of(queue, cause)
        alternate = self._alternate_of(queue) if target is None else None
        former, self._stays = self._stays, stays
        try:
            if target is not None:
                return self._send_letter(queue, message, cause, steps, target)
            if alternate is None:
                return None
            payload, due = message.body(), queue.asked_for(message)
            key, expires = subject(payload), message.expires
            return self._place(queue, alternate, message, payload, key, expires, steps, due=due)
        finally:
            self._stays = former

    def _send_letter(
        self, queue: Queue, message: Message, cause: Cause, steps: Steps, target: DeadLetterTarget
    ) -> Routed:
        """Put the dead letter of a message where the target says."""
        letter = dead_letter(message, queue.name, cause, target, self.time)
        if target is not queue.spec.dead_letters:
            self._make_quarantine(queue, str(target.key))
        return self._place(
            queue,
            self.exchange(target.exchange),
            message,
            letter.payload,
            letter.key,
            0,
            steps,
            letter.barred,
            due=queue.asked_for(message),
            copies=letter.copies,
        )

    @staticmethod
    def _target_of(queue: Queue, cause: Cause) -> DeadLetterTarget | None:
        """Return where a message that dies on a queue goes; None if its alternate exchange has it,
        if there is one.
        """
        target = queue.spec.dead_letters
        if target is None and cause is Cause.DELIVERY_LIMIT and not queue.options.alternate:
            return quarantine_of(queue.name)
        return None if cause is Cause.DELETED and target and not target.on_delete else target

    def _make_quarantine(self, queue: Queue, name: str) -> None:
        """Make the queue, unless there is one of this name, where messages of another are put
        aside: as durable, and known to as many brokers, as that one is. If that one is exclusive,
        so is this one, and has the same owner; it outlives him.
        """
        aside = self.queues.get(name)
        if aside is None:
            exclusive, level = queue.options.exclusive, {REPLICATE: queue.options.replicate}
            aside, _ = self.declare_queue(
                name, durable=queue.durable, exclusive=exclusive, arguments=level
            )
        if (
            aside.options.exclusive
            and aside.owner is None
            and queue in self._owned.get(queue.owner, ())  # Else its owner has gone just now.
        ):
            self._own(aside, queue.owner)

    def _place(
        self,
        source: Queue,
        exchange: Exchange,
        message: Message,
        payload: bytes,
        key: str,
        expires: int,
        steps: Steps,
        barred: frozenset[str] = frozenset(),
        due: int = 0,
        copies: tuple[str, ...] = (),
    ) -> Routed:
        """Put a message that leaves a queue, as `payload`, on those that an exchange has for it, or
        for one of the keys that it has beside its own, but for `barred` ones; LimitExceeded if one
        of them is full, TooManyKeys if it cannot be said now. Counted if it comes to one at least.
        """
        headers = partial(application_properties, payload)
        if not fits_key(key):
            key = ""  # It was sent to a queue, whose messages may have any subject.
        # One that no exchange takes counts as none: nobody is there to be told.
        queues: list[Queue] = []
        for keys in dict.fromkeys(((key, *copies), ("",))):
            try:
                queues = (
                    self.routes_of_all(exchange, keys, headers, steps, payload)
                    if copies
                    else self.routes(exchange, keys[0], headers, steps, payload)
                )
                break
            except TooManyWays:
                pass
        if barred:
            queues = [queue for queue in queues if queue.name not in barred]
        if not queues:
            return UNROUTED
        if self._hops >= MOST_HOPS:
            raise LimitExceeded(f"more than {MOST_HOPS} queues would overflow into each other")
        self._hops += 1
        try:
            sequence = (
                queues[0].enqueue(payload, expires, passed=message)
                if len(queues) == 1 and not due
                else self.enqueue_on_all(queues, payload, expires, due, passed=message)
            )
        finally:
            self._hops -= 1
        if self.has_two_logs and any(self.crosses(source, queue) for queue in queues):
            sequence = self.crossings.place()
        exchange.received += 1
        exchange.bytes_received += len(payload)
        return Routed(sequence, len(queues))

    def routes(
        self, exchange: Exchange, key: str, headers: Headers, steps: Steps, payload: bytes
    ) -> list[Queue]:
        """Return the queues for a message to an exchange. Raises TooManyWays, TooManyKeys."""
        found = exchange.route(key, headers, steps, payload)
        return self._takers(exchange, found, key, headers, steps, payload)

    def _takers(
        self,
        exchange: Exchange,
        found: list[Any],
        key: str,
        headers: Headers,
        steps: Steps,
        payload: bytes,
    ) -> list[Queue]:
        """Return the queues for a message that it may go to, of what an exchange found, or those
        that the alternate exchange has for it if there are none.
        """
        evicting = self._evicting
        if exchange.leads_on:
            found = spread(found, self.exchanges, key, headers, steps, payload)
        queues = [queue for queue in found if queue not in evicting]
        name = exchange.alternate
        alternate = self.exchanges.get(name) if name and not queues else None
        if alternate is not None:
            found = alternate.route(key, headers, steps, payload)
            if alternate.leads_on:
                found = spread(found, self.exchanges, key, headers, steps, payload)
            queues = [queue for queue in found if queue not in evicting]
        return queues

    def _retry(self) -> None:
        """Try again to place messages that died. Where there are more than can be tried in a turn,
        other queues have the next turn, and other messages of a queue come first the next time.
        """
        steps = self._reroute_steps
        steps.renew()
        self._letters = LETTERS_A_TURN
        if not self._to_retry:
            self._to_retry, self._retrying = self._retrying, {}
        left = RETRIED_A_TURN
        while self._to_retry and left > 0 and self._letters > 0 and not steps.are_over():
            queue = next(iter(self._to_retry))
            del self._to_retry[queue]
            left -= max(self._retry_some(queue, left), 1)
            if queue.unplaced and not queue.is_replica:
                self._retrying.setdefault(queue, False)
            else:
                self._retried.pop(queue, None)
            if queue.ends_empty:
                self.left(queue)
        steps.renew()

    def _retry_some(self, queue: Queue, most: int) -> int:
        """Try to place up to `most` messages of a queue, from where the last time ended; return how
        many, with as many more for their bytes. Those that go where one before them had no place
        are not tried: they would come before it.
        """
        steps, is_one_place = self._reroute_steps, self._has_one_place(queue)
        place = self._retried.pop(queue, None) or iter(list(queue.unplaced))
        tried = size = 0
        for sequence in place:
            if sequence not in queue.unplaced:
                continue
            message, cause = queue.unplaced[sequence]
            tried, size = tried + 1, size + message.size
            self.departures.leave(queue, [message], cause)
            is_blocked = is_one_place and sequence in queue.unplaced
            if is_blocked:
                break
            if tried >= most or size >= BYTES_A_TURN or steps.are_over() or self._letters <= 0:
                self._retried[queue] = place
                if queue.unplaced and sequence not in queue.unplaced:
                    self._to_retry[queue] = True  # There is a place, so it goes on next turn.
                break
        return max(tried, size * RETRIED_A_TURN // BYTES_A_TURN)

    def _has_one_place(self, queue: Queue) -> bool:
        """Whether all that dies on a queue goes to the same place, or to none."""
        target = queue.spec.dead_letters
        if target is None or target.key is not None:
            return target is not None
        exchange = self.exchanges.get(target.exchange)
        return exchange is None or exchange.options.type == "fanout"

    def evict(self, queue: Queue, messages: list[Message]) -> int:
        """Give messages that had to make room for others to the alternate exchange of their queue;
        return the sequence to wait for. What may be in the other log then has not left yet, and
        does now, or when it has arrived.

        A queue that overflows in turn does the same, but none of this comes back to a queue it
        left: so it comes to an end.
        """
        if not queue.options.alternate:
            return 0
        recorded = 0
        steps = self._overflow_steps.get(queue)
        if steps is None:
            steps = self._overflow_steps[queue] = Steps(*REROUTE_STEPS, "")
        self._evicting[queue] = None
        try:
            for message in messages:
                place = self._reroute(queue, message, steps)
                if place is None:
                    self._drop(queue, "the keys of too many take too long to be compared")
                    place = 0
                if message.sequence not in queue.crossing:
                    recorded = max(recorded, place)
                elif place > BOTH:
                    recorded = max(recorded, self.crossings.add(queue, [message], Cause.OVERFLOW))
                else:
                    left = self.departures.record(queue, [message], Cause.OVERFLOW)
                    recorded = max(recorded, place, left)
        finally:
            del self._evicting[queue]
        return recorded

    def used(self, queue: Queue) -> None:
        """A queue that ends when its users have left has its first one: others must know, for they
        may have to end it.
        """
        if queue.is_replica:
            return
        queue.is_used = True
        if queue.uid > 0:
            self._append_of(QueueUsed(queue.uid), queue.options)
        elif queue.local_writer is not None:
            queue.local_writer.used(queue)

    @property
    def time(self) -> int:
        """The time by which messages expire, in ns since the Unix epoch."""
        return self.now + self._ahead

    @property
    def _ahead(self) -> int:
        """What the clock is ahead of `now` by which messages expire. Expiries are those of the
        former primary, and nothing may be early because our clock is ahead of that one's.
        """
        former = self.former_ahead
        return self.ahead if former is None else min(self.ahead, former)

    def look_at(self, queue: Queue, at: int) -> None:
        """Look at a queue at a time, and not before."""
        self._looks.set(queue, at)

    def renew(self, queue: Queue) -> None:
        """The time counts anew that a queue stays without a consumer (`x-expires`)."""
        decides = not (queue.is_replica or queue.deleted)
        self._expiring.set(
            queue, self.now + queue.spec.unused if decides and queue.spec.unused else 0
        )

    def search(self, queue: Queue) -> None:
        """Find out, some messages a turn, when each message of a queue expires."""
        self.walks.append(Expiry(queue, self.time))

    def bury(self, queue: Queue, payload: bytes) -> None:
        """Make a dead letter of a message that was refused, as the queue is full; one that has no
        place is dropped, for its sender is told in any case. None is made of what stays where it
        is, and is tried again: it would be in both places.
        """
        if queue.spec.dead_letters is None or self._stays:
            return
        self._evicting[queue] = None
        try:
            routed = self._send_on(queue, Message(0, payload), Cause.OVERFLOW, self._reroute_steps)
            if routed is None or not routed.queues:
                self._drop(queue, _no_queue(queue, queue.spec.dead_letters))
        except RefusedRequest as error:
            self._drop(queue, error.text)
        finally:
            del self._evicting[queue]

    def destruct(self, queue: Queue) -> None:
        """Delete a queue that is to end when it is full."""
        text = f"queue {queue.name} is full, and is deleted for that"
        self._announce(
            Announce(
                "warning", "broker", text, {"queue": queue.name}, event_code=QUEUE_DELETED_WHEN_FULL
            )
        )
        self._delete(queue)

    def alert(self, queue: Queue, is_up: bool) -> None:
        """Tell that a queue has come to a depth, or is down again."""
        count, size = len(queue.messages), queue.bytes
        text = f"queue {queue.name} has come to {count} messages of {size} bytes"
        self._announce(
            Announce(
                "warning" if is_up else "info",
                "broker",
                text if is_up else f"{text}: it was deeper",
                {"queue": queue.name, "messages": count, "bytes": size},
                DepthAlert(queue.name, is_up, count),
                DEPTH_ALERT,
            )
        )

    def recall(self, queue: Queue) -> None:
        """Remember, some a turn, the keys of the messages that are on a queue."""
        if queue.window is None:
            return
        recall = self._recalling[queue] = Recall(queue, queue.window)
        recall.when_over(lambda: self._recalled(queue, recall))
        self._begin(recall)

    def _recalled(self, queue: Queue, recall: Recall) -> None:
        if self._recalling.get(queue) is recall:
            del self._recalling[queue]

    def sweep(self, queue: Queue) -> None:
        """Have the messages leave, some a turn, that were delivered too often."""
        self.walks.append(Sweep(queue))

    def trim(self, queue: Queue) -> None:
        """Bring a ring down to its limits, some messages a turn."""
        queue.ease()
        if queue not in self._trimming:
            self._trimming[queue] = trim = Trim(queue)
            trim.when_over(lambda: self._trimmed(queue))
            self.walks.append(trim)

    def _trimmed(self, queue: Queue) -> None:
        self._trimming.pop(queue, None)

    def dispatch(self, now: int) -> None:
        """Hand out what there is to hand out; once, at the end of a turn."""
        self.now = now
        self._budget = WALKED_A_TURN
        self._letters = LETTERS_A_TURN
        self._disown_some()
        if self.to_follow:
            self.follow_policies(LOOKS_A_TURN)
        if self._on_followed and not (self.to_follow or self.levels.changing):
            called, self._on_followed = self._on_followed, []
            for on_end in called:
                on_end()
        for steps in (self._publish_steps, self._reroute_steps, self.commit_steps):
            steps.renew()
        self._overflow_steps.clear()
        for queue in self._leaving:
            self._ending.set(queue, now + queue.timeout)
        self._leaving.clear()
        if self._retrying and not self._next_retry:
            self._next_retry = now + RETRY_INTERVAL
        self.returns.turn()
        queues, time = list(self.runnable), now + self._ahead
        self.runnable.clear()
        searches = SEARCHES_A_TURN
        put_off: list[Queue] = []
        for queue in queues:
            if queue.is_searching:
                searches -= 1
                if searches < 0:
                    put_off.append(queue)
                    continue
            queue.dispatch(time)
        self._tell_dropped()
        if put_off:
            self.runnable = dict.fromkeys(put_off) | self.runnable  # They are the next ones.

    # Time and roles.

    @property
    def next_deadline(self) -> int:
        """When `tick` is wanted next; 0 for never."""
        first, look = self._ending.first, self._looks.first
        policy_end = 0 if self.passive else self.policies.first_end
        for other in (
            self._next_retry,
            self._expiring.first,
            self.patience.first,
            self.levels.next,
            look and max(look - self._ahead, 1),
            policy_end and max(policy_end - self._ahead, 1),
        ):
            if other and (not first or other < first):
                first = other
        return first

    def tick(self, now: int) -> None:
        """Delete queues that were unused for their timeout, and drop expired messages."""
        self.now = now
        while self._budget > 0 and (due := self._ending.due(now, 1)):
            if _is_over(due[0]):
                self._end(due[0], self._ending)
        while self._budget > 0 and (due := self._expiring.due(now, 1)):
            if not due[0].consumers:
                self._end(due[0], self._expiring)
        if not self.passive:
            for policy in self.policies.ended(self.time):
                self.clear_policy(policy.name, is_operator=policy.is_operator)
        self.levels.tick(now)
        if self._next_retry and now >= self._next_retry and SLOW_DISK in self.credit.withheld:
            self._next_retry = now + SLOW_RETRY
        elif self._next_retry and now >= self._next_retry:
            self._retry()
            self._next_retry = now if self._to_retry or any(self._retrying.values()) else 0
        left = LOOKED_A_TURN
        while left > 0 and (late := self.patience.due(now, 1)):
            left -= max(late[0].overdue(now, left), 1)
        while left > 0 and (looks := self._looks.due(self.time, 1)):
            left -= max(looks[0].look(self.time, left), 1)

    def _end(self, queue: Queue, deadlines: Deadlines[Queue]) -> None:
        """Delete a queue that was unused for its timeout. What would have to rest stays as it is:
        its users may come back.
        """
        self._budget -= 1
        if queue.deleted or queue.is_replica:
            return
        if self._refusal and passes_on(queue):
            deadlines.set(queue, self.now + PUT_OFF)
        else:
            self._delete(queue)

    def left(self, queue: Queue) -> None:
        """A user, or the last message, left a queue: delete it if that was the end of it, at once
        or after its timeout.
        """
        if queue.spec.unused and not queue.consumers:
            self.renew(queue)
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
        self.passive, self.now = False, now
        if any(queue.has_times for queue in self.queues.values()):
            self.walks.append(Search(self.queues.values(), self.time))
        for queue in self.queues.values():
            self._begin_deciding(queue)
        self.levels.promoted()

    def _begin_deciding(self, queue: Queue) -> None:
        """Begin to decide about a queue, unless it is a replica of one elsewhere."""
        queue.promoted()
        if not queue.is_replica:
            if queue.messages and queue.spec.delivery_limit.most < UNLIMITED:
                self.sweep(queue)  # The limit may have been lowered just before.
            if queue.is_far_over:
                self.trim(queue)  # So may this one.
            due = queue.is_used if queue.lifetime.needs_no_users else queue.timeout
            if due and queue not in self._ending and _is_over(queue):
                self._ending.set(queue, self.now + (queue.timeout or RETURN))
        self.renew(queue)

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
        self._forget(queue)
        super().remove_queue(queue)
        if deletion is not None:
            deletion.end()

    def unplaced_queue(self, options: QueueDeclared) -> Queue:
        """Return a queue of this broker only, which nobody can reach before it is placed."""
        return self._make_queue(self._local_uid(), options, logged=False)

    def unplaced_exchange(self, options: ExchangeDeclared) -> Exchange:
        """Do so for an exchange."""
        exchange: Exchange = EXCHANGE_TYPES[options.type](self._local_uid(), options)
        return exchange

    def place_own(self, queue: Queue) -> None:
        """Let a queue be found that this broker has for itself, and had set aside."""
        queue.uid = self._local_uid()
        queue.relabel(NONE)
        queue.revive()
        self.place_queue(queue)

    def displace(self, queue: Queue, uid: int) -> None:
        """Let a queue with this uid take the name of another one; tell if messages go that no
        other broker has.
        """
        if queue.uid < LOCAL_UID < uid:
            why = "a replicated queue has that name now"
            self.tell_gone(queue, len(queue.messages), why)
        super().displace(queue, uid)

    def tell_gone(self, queue: Queue, count: int, why: str) -> None:
        """Tell that messages are gone that no other broker has."""
        if count:
            self._announce(gone_here(queue.name, count, why))

    # Below: what the above is made of.

    def _append(self, record: Record) -> int:
        return 0 if self._log_writer is None else self._log_writer.append(record)

    def _append_of(self, record: Record, *of: QueueDeclared | ExchangeDeclared) -> int:
        """Append what becomes of queues, exchanges or bindings. What is not durable outlives
        brokers in the memory of others only, and waits for no disk.
        """
        if self._log_writer is not None and all(thing.durable for thing in of):
            self._log_writer.must_sync = True
        return self._append(record)

    def _record(self, wanted: QueueDeclared | ExchangeDeclared) -> int:
        if not self.records_object(wanted.durable, wanted.replicate):
            return 0
        if self.passive:
            raise _refused_on_backup(f"Replicate level {wanted.replicate} cannot be had")
        if self._log_writer is not None:
            kind = Kind.QUEUE if isinstance(wanted, QueueDeclared) else Kind.EXCHANGE
            check_known_to_all(kind, wanted.arguments, self.usable)
            if isinstance(wanted, ExchangeDeclared) and wanted.type == CONSISTENT_HASH:
                what = f"an exchange of the type {wanted.type}"
                check_enabled(what, QUEUE_KINDS, self.usable)
        return self._append_of(wanted, wanted)

    def _check_decides(self, *objects: Destination) -> None:
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
        """Say what an exchange is the alternate of, as declarations or policies have it, but for
        itself; empty if of nothing.
        """
        for exchange in self.exchanges.values():
            if name in (exchange.options.alternate, exchange.alternate) and exchange.name != name:
                return f"exchange {exchange.name}"
        for queue in self.queues.values():
            if queue.options.alternate == name:
                return f"queue {queue.name}"
        return ""

    def _delete(self, queue: Queue) -> Deletion:
        """Delete a queue: now if that does not take long, else some of it every turn. Before its
        messages go it is taken out of all routes, so that none comes back to it.
        """
        self._forget(queue)
        self._leaving.pop(queue, None)
        self._owned.get(queue.owner, {}).pop(queue, None)
        deletion = Deletion(queue, self._reroute, self._finish_deletion)
        if not (passes_on(queue) or queue.crossing):
            self._budget -= deletion.step(1)
            return deletion
        self._evicting[queue] = deletion
        queue.retire()
        if deletion.is_short:
            self._take_step(deletion)
        if not deletion.is_over and not deletion.is_resting:
            self.walks.append(deletion)
        return deletion

    def _forget(self, queue: Queue) -> None:
        """Nothing comes to its time on a queue that ends."""
        for deadlines in (self._ending, self._expiring, self._looks):
            deadlines.remove(queue)
        self.levels.forget(queue)

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
        was_replica = queue.uid in self.replicas
        exchanges = list(dict.fromkeys(uid for uid, _ in queue.bindings))
        self.detach_queue(queue)
        # One record says of all messages that are still here that they have left.
        sequence = queue.waits_for
        if queue.uid > 0:
            sequence = self._append_of(QueueDeleted(queue.uid), queue.options)
        here = queue.local_writer
        self.close_queue(queue)
        self.forget_locally(queue)
        if here is not None:
            sequence = max(sequence, here.end)
        self._announce(
            Announce(
                "debug",
                "broker",
                f"queue {queue.name} deleted",
                {"queue": queue.name},
                QueueEnded(queue.name),
            )
        )
        if was_replica:
            self._tell_replica(queue, "was a replica, and is deleted", REPLICA_ENDED)
        for uid in exchanges:
            exchange = self.by_uid.get(uid)
            if isinstance(exchange, Exchange):
                sequence = max(sequence, self._end_unused_exchange(exchange))
        return sequence

    def _delete_exchange(self, exchange: Exchange) -> int:
        """Delete an exchange, and those that end with their last binding, which led to it."""
        sequence, ending = 0, [exchange]
        for ended in ending:
            sources = dict.fromkeys(uid for uid, _ in ended.incoming)
            self.remove_exchange(ended)
            self.forget_locally(ended)
            self._announce(
                Announce(
                    "debug", "broker", f"exchange {ended.name} deleted", {"exchange": ended.name}
                )
            )
            if ended.uid > 0:
                record = ExchangeDeleted(ended.uid)
                sequence = max(sequence, self._append_of(record, ended.options))
            elif self.local_log is not None:
                sequence = max(sequence, self.local_log.end)
            for uid in sources:
                source = self.by_uid.get(uid)
                if isinstance(source, Exchange) and self._is_unused(source):
                    ending.append(source)
        return sequence

    def left_exchange(self, exchange: Exchange) -> None:
        """A link left an auto-delete exchange, or did not come to use it: delete it if that was
        the end of it.
        """
        if self.by_uid.get(exchange.uid) is exchange and exchange.ends_unbound:
            self._end_unused_exchange(exchange)

    def _end_unused_exchange(self, exchange: Exchange) -> int:
        """Delete an auto-delete exchange whose last binding went."""
        return self._delete_exchange(exchange) if self._is_unused(exchange) else 0

    def _is_unused(self, exchange: Exchange) -> bool:
        """Whether an exchange ends with its last binding and the last link that sends to it, and
        both went.
        """
        is_replica = self.passive and exchange.uid > 0
        return not (
            is_replica
            or not exchange.options.auto_delete
            or exchange.binding_count
            or exchange.senders
            or self._user_of_alternate(exchange.name)
        )

    def enqueue_on_all(
        self,
        queues: list[Queue],
        payload: bytes,
        expires: int,
        due: int = 0,
        *,
        passed: Message | None = None,
    ) -> int:
        """Put one message on several queues, and give what it makes leave them to their alternate
        exchanges.
        """
        sequence, leaving = self.put_on_all(queues, payload, expires, due, passed=passed)
        for queue, messages in leaving:
            self.evict(queue, messages)
        return sequence

    def put_on_all(
        self,
        queues: list[Queue],
        payload: bytes,
        expires: int,
        due: int,
        *,
        may_exceed: bool = False,
        passed: Message | None = None,
    ) -> tuple[int, list[tuple[Queue, list[Message]]]]:
        """Put one message on several queues, the payload once into the log; give the sequence to
        wait for, and what leaves which queue. `may_exceed`: see `Queue.make_room`; `passed`: see
        `Queue.passes_over`. Nobody has the message before it is `due`; 0 for at once.
        """
        size = len(payload)
        # The others take it, have room, stop no sender, and have no time to live of their own.
        asked = {
            queue
            for queue in queues
            if queue.log_writer is None
            or len(queue.messages) >= queue.fast_path_limit
            or queue.bytes + size > queue.fast_path_bytes
        }
        if queues and not asked and not due and self._log_writer is not None:
            return _insert(self._log_writer, queues, payload, expires), []
        originals = [queue.passes_over(payload, passed) for queue in queues]
        taking = [
            queue for queue, original in zip(queues, originals, strict=True) if original is None
        ]
        sequence = max(filter(None, originals), default=0)
        near = [queue for queue in taking if queue in asked]
        rooms = self._make_rooms(near, payload, may_exceed=may_exceed)
        if any(queue.deleted for queue in taking):
            # What others let go of came to one that ends when it is full.
            taking = [queue for queue in taking if not queue.deleted]
            rooms = [(queue, room) for queue, room in rooms if not queue.deleted]
        for queue, room in rooms:
            queue.replace(room)
        recorded = [queue for queue in taking if queue.log_writer is not None]
        if recorded and self._log_writer is not None:
            # A duplicate's original came before, so these are to be waited for.
            sequence = self._insert_on_all(self._log_writer, recorded, payload, expires, due)
        for queue in taking:
            if queue.log_writer is None:
                sequence = max(sequence, queue.insert_local(payload, queue.expiry_of(expires, due)))
            elif queue.is_leaving:
                message = queue.messages[queue.ordering.last]
                sequence = max(sequence, queue.record_here(payload, message.expires))
        for queue in taking if due else ():
            queue.delay(queue.ordering.last, due)
        come = [(queue, room, queue.ordering.last) for queue, room in rooms]
        leaving = [(queue, queue.settle(room, newcomer)) for queue, room, newcomer in come]
        return sequence, [(queue, messages) for queue, messages in leaving if messages]

    def _make_rooms(
        self, queues: list[Queue], payload: bytes, *, may_exceed: bool
    ) -> list[tuple[Queue, Room]]:
        """Have messages leave several queues before one comes to all of them. Raise RefusedRequest
        if one of them has no room.
        """
        # All are asked before the first makes room. And again after, as the dead letters of one may
        # have come to another.
        for queue in () if may_exceed else queues[1:]:
            queue.ask(payload)
        rooms: list[tuple[Queue, Room]] = []
        try:
            for queue in queues:
                rooms.append((queue, queue.make_room(payload, may_exceed=may_exceed)))
            for queue, room in () if may_exceed else rooms[:-1]:
                queue.check_room(len(payload), room)
        except RefusedRequest:
            # What has left the others is on its way, although nothing takes its place.
            for queue, room in rooms:
                self.evict(queue, list(room.leaving))
            raise
        return rooms

    def _insert_on_all(
        self, log_writer: LogWriter, queues: list[Queue], payload: bytes, expires: int, due: int
    ) -> int:
        """Record one message that comes to several queues, and put it there; return the sequence to
        wait for.
        """
        # One record has one expiry, and a queue may have a shorter one of its own.
        by_expiry: dict[int, list[Queue]] = {}
        for queue in queues:
            by_expiry.setdefault(queue.expiry_of(expires, due), []).append(queue)
        found = [_insert(log_writer, alike, payload, own) for own, alike in by_expiry.items()]
        return found[-1]


def _insert(log_writer: LogWriter, queues: list[Queue], payload: bytes, expires: int) -> int:
    """Record one message that comes to several queues and expires at the same time on all of them,
    and put it there; return the sequence to wait for.
    """
    if is_durable(payload):
        for queue in queues:
            if queue.durable:
                log_writer.must_sync = queue.syncs = True
    sequence = log_writer.enqueue_shared(tuple([queue.uid for queue in queues]), payload, expires)
    for queue in queues:
        queue.insert(sequence, payload, expires)
    return sequence


def _goes_on(walk: Walk | Search) -> bool:
    """Whether there is something left to do, and room for it."""
    return not walk.is_over and not (isinstance(walk, Walk) and walk.is_resting)


def _no_queue(queue: Queue, target: DeadLetterTarget | None) -> str:
    name = queue.options.alternate if target is None else target.exchange
    what = f"exchange {name}" if name else "the default exchange"
    return f"{what} has no queue for the next one, or only such that it died on before"


def _check_own(queue: Queue) -> None:
    """Refuse to change what is on a replica of a queue elsewhere."""
    if queue.is_copy:
        raise queue.copied("cannot be changed")


def _refused_on_backup(what: str) -> RefusedRequest:
    return RefusedRequest(f"{what} on a backup", hint="Ask the primary.")


def _is_of_owner(wanted: QueueDeclared) -> bool:
    """Whether a queue has an owner as long as there is one, and not only users."""
    lifetime = read_lifetime(wanted.arguments, wanted.auto_delete)
    return wanted.exclusive or lifetime is Lifetime.ON_CLOSE


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
