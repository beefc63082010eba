"""Planted bugs: each breaks one rule in the real code, for as long as its context lasts. The
simulator has to notice.

A simulator that finds nothing proves nothing: these are the proof that the checkers see, and that
the faults reach the places where the rules matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from operator import attrgetter
from typing import Any

from qpidha.amqp.peer import frames, links
from qpidha.amqp.peer.engine import Engine
from qpidha.broker.broker import Broker
from qpidha.broker.exchange import ConsistentHashExchange
from qpidha.broker.federation import Federation
from qpidha.broker.policy import Policies
from qpidha.broker.queues import backlog, messages, packing
from qpidha.broker.queues.backlog import Backlog
from qpidha.broker.queues.crossing import Ends
from qpidha.broker.queues.dedup import Window
from qpidha.broker.queues.departures import Departures
from qpidha.broker.queues.dispatch import RoundRobin, SingleActive
from qpidha.broker.queues.groups import ByGroup
from qpidha.broker.queues.last_value import LastValue
from qpidha.broker.queues.level import IntoLog
from qpidha.broker.queues.log_writer import LOCAL
from qpidha.broker.queues.messages import Segment
from qpidha.broker.queues.ordering import BySequence
from qpidha.broker.queues.priority import Priority
from qpidha.broker.queues.purge import Purge
from qpidha.broker.queues.queue import NOBODY, Queue
from qpidha.broker.queues.recall import Recall
from qpidha.broker.queues.selection import View
from qpidha.broker.queues.walk import Walk
from qpidha.broker.state import State
from qpidha.broker.transaction import Transaction
from qpidha.ha import channels, primary
from qpidha.ha import cluster as role
from qpidha.ha.backup import Backup
from qpidha.ha.candidates import Comparison
from qpidha.ha.peers import Peers
from qpidha.ha.primary import Primary
from qpidha.ha.saves import Saves
from qpidha.management import admission
from qpidha.model import encoding
from qpidha.model.records import HA_RECORDS, Cause, FeatureEnabled, RouteDeclared
from qpidha.node import Node
from qpidha.store import codec, recovery
from qpidha.store import frames as disk_frames
from qpidha.store.local_log import LocalLog
from qpidha.store.log import Log
from qpidha.store.write_ahead_log import WriteAheadLog
from tests.sim.declaring import draw_declaring
from tests.sim.faults import draw_apart
from tests.sim.gathering import gathers
from tests.sim.linking import draw_links
from tests.sim.policies import draw_policies
from tests.sim.purges import draw_purges


@contextmanager
def replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Replace attributes for a while."""
    former = [(owner, name, owner.__dict__[name]) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in former:
            setattr(owner, name, value)


def accept_early() -> AbstractContextManager[None]:
    """Tell clients that something is committed before any backup has it."""
    return replaced(
        (Node, "when_committed", lambda self, sequence, waiter, item: waiter.on_committed(item))
    )


def skip_sync() -> AbstractContextManager[None]:
    """Take what was given to the disk for synced."""
    return replaced((Log, "durable_to", property(lambda self: self.last)))


def promote_from_catchup() -> AbstractContextManager[None]:
    """Let a broker that is still catching up be promoted, as if it were complete."""
    outside, refusal = Comparison.outside, Comparison.refusal

    def lenient(rule: Any) -> Any:
        return lambda self, row: None if row.status.state == "catchup" else rule(self, row)

    return replaced(
        (role, "refusal_of_state", lambda state, is_following: None),
        (Comparison, "outside", lenient(outside)),
        (Comparison, "refusal", lenient(refusal)),
    )


def promote_dropped() -> AbstractContextManager[None]:
    """Let a broker be promoted that is not in the newest in-sync set, and does not know it."""
    return replaced((Comparison, "outside", lambda self, row: None))


def promote_restarted() -> AbstractContextManager[None]:
    """Let a broker be promoted that was started again, whatever the others have."""
    return replaced((Comparison, "refusal", lambda self, row: None))


def trust_the_memoryless() -> AbstractContextManager[None]:
    """After disks were lost, let a broker be promoted by those who know nothing."""
    return replaced((Comparison, "_forgotten_too_much", lambda self, row: None))


def vote_without_memory() -> AbstractContextManager[None]:
    """Let a new broker vote at once, in the place of one that may have voted."""
    return replaced((role, "counts_votes", lambda settings: False))


def forget_the_silent() -> AbstractContextManager[None]:
    """Take every broker that does not answer for one that will not come back."""
    return replaced((Comparison, "_is_forgotten", lambda self, row: not row.answered))


def forget_dequeue() -> AbstractContextManager[None]:
    """Now and then do not record that a message left."""
    dequeue = Log.dequeue

    def forgetful(self: Any, queue: int, sequence: int, cause: int = 0) -> int:
        return (
            self.end
            if sequence % 7 == 0 and sequence <= self.committed
            else dequeue(self, queue, sequence, cause)
        )

    return replaced((Log, "dequeue", forgetful))


def reuse_id() -> AbstractContextManager[None]:
    """Take equal sequences of different epochs for the same record."""
    return replaced((Log, "common_point", lambda self, epoch, sequence: min(sequence, self.last)))


def ignore_epoch() -> AbstractContextManager[None]:
    """Forget what was promised whenever somebody asks or replicates, and do not step down for a
    higher epoch.
    """
    asked, logged = role.Cluster._on_ask, Backup._on_logged
    step_down = role.Cluster.step_down

    def oblivious(action: Callable[..., None]) -> Any:
        def act(self: Any, *arguments: Any) -> None:
            promises = self.promises
            promised, promises._promised = promises.promised, 0
            action(self, *arguments)
            promises._promised = max(promised, promises.promised)

        return act

    def stay(self: Any, reason: str) -> None:
        if "epoch" not in reason:
            step_down(self, reason)

    return replaced(
        (role.Cluster, "_on_ask", oblivious(asked)),
        (Backup, "_on_logged", oblivious(logged)),
        (role.Cluster, "step_down", stay),
    )


def promote_without_promises() -> AbstractContextManager[None]:
    """Become primary whoever has promised."""
    hears = Peers.hears_majority
    return replaced(
        (
            Peers,
            "hears_majority",
            lambda self, consultation: (
                not consultation.question.version or hears(self, consultation)
            ),
        )
    )


def drop_without_recording() -> AbstractContextManager[None]:
    """Go on without a backup though no majority has recorded it."""
    hears = Peers.hears_majority

    def changed(self: Peers, consultation: Any) -> bool:
        return bool(consultation.question.version) or hears(self, consultation)

    return replaced((Peers, "hears_majority", changed))


def tell_before_saved() -> AbstractContextManager[None]:
    """Promise, record and acknowledge before the state file has it."""
    return replaced(
        (Saves, "is_idle", property(lambda self: True)),
        (Saves, "then", lambda self, action: action()),
    )


def keep_confirmations() -> AbstractContextManager[None]:
    """Count what a backup confirmed on a link that is closed."""
    subscribe, confirm = Primary.subscribe, Primary.confirm
    known: dict[tuple[int, str], int] = {}

    def confirming(self: Any, connection_id: int, message: Any) -> None:
        confirm(self, connection_id, message)
        for backup in self.backups.values():
            known[id(self), backup.system_id] = max(
                known.get((id(self), backup.system_id), 0), backup.confirmed
            )

    def subscribing(self: Any, connection_id: int, system_id: str, *request: Any) -> bool:
        subscribed = subscribe(self, connection_id, system_id, *request)
        if subscribed:
            self.backups[system_id].confirmed = min(
                known.get((id(self), system_id), 0), self.log.last
            )
        return bool(subscribed)

    return replaced((Primary, "confirm", confirming), (Primary, "subscribe", subscribing))


def half_transaction() -> AbstractContextManager[None]:
    """Write and replicate what belongs together in two batches."""
    seal = Log.seal

    def in_halves(self: Any, through: int = 0) -> None:
        pending = self._pending
        half = len(pending) // 2
        if half and not any(isinstance(record, HA_RECORDS) for record in pending):
            self._pending = pending[:half]
            must_sync = self.must_sync
            seal(self)
            self._pending, self.must_sync = pending[half:], must_sync
        seal(self, through)

    return replaced((Log, "seal", in_halves))


def lose_the_young() -> AbstractContextManager[None]:
    """Where a part of what is pending is sealed, forget the messages behind it."""
    seal = Log.seal

    def lossy(self: Any, through: int = 0) -> None:
        seal(self, through)
        self._pending = [None] * len(self._pending)

    return replaced((Log, "seal", lossy))


def forget_keys() -> AbstractContextManager[None]:
    """Now and then forget that a message was there, where one that is sent again is to be known
    again.
    """
    remember = Window.remember

    def forgetful(self: Any, key: str, sequence: int) -> None:
        if sequence % 5:
            remember(self, key, sequence)

    return replaced((Window, "remember", forgetful))


def ignore_minimum() -> AbstractContextManager[None]:
    """Acknowledge with any number of brokers in sync."""
    advance = Primary._advance

    def careless(self: Any) -> None:
        least, self.min_in_sync = self.min_in_sync, 1
        advance(self)
        self.min_in_sync = least

    return replaced((Primary, "_advance", careless))


def move_by_halves() -> AbstractContextManager[None]:
    """Let what a transaction takes leave before, and apart from, what it brings."""
    carry_out = Transaction._carry_out

    def by_halves(self: Any, routes: Any) -> int:
        for retirement in self.retirements:
            self._broker.departures.leave(retirement.queue, [retirement.message], Cause.ACCEPTED)
        if self.retirements:
            Log.seal(self._broker.log_writer)
        return carry_out(self, routes)

    return replaced((Transaction, "_carry_out", by_halves))


def give_out_of_turn() -> AbstractContextManager[None]:
    """Now and then give the second message of a queue before the first."""
    hand_out = RoundRobin._hand_out

    def out_of_turn(self: Any, backlog: Any, takers: Any, now: int, expired: Any) -> int:
        first = backlog.ordering.take()
        if first is None:
            return 0
        if first.sequence % 7:
            backlog.ordering.restore(first)
            return hand_out(self, backlog, takers, now, expired)
        all_ = list(takers)
        given = hand_out(self, backlog, takers, now, expired)
        backlog.ordering.restore(first)
        left = [taker for taker in all_ if taker.credit > 0]
        return given + (hand_out(self, backlog, left, now, expired) if left else 0)

    return replaced((RoundRobin, "_hand_out", out_of_turn))


def enable_alone() -> AbstractContextManager[None]:
    """Enable a feature as soon as the primary knows it, whatever the others know, and refuse
    nobody.
    """
    return replaced(
        (role.Cluster, "all_know", lambda self, feature: True),
        (admission, "_check_features", lambda host, connection: None),
    )


def use_before_commit() -> AbstractContextManager[None]:
    """Use a feature as soon as the record that enables it is appended."""
    use_features = Node._use_features

    def hasty(self: Any) -> None:
        use_features(self)
        if self.broker.log_writer is not None:
            self.log.features = frozenset(self.broker.features)

    return replaced((Node, "_use_features", hasty))


def forget_features() -> AbstractContextManager[None]:
    """Leave out of snapshots which features are enabled."""
    objects = State.objects

    def without(self: Any) -> Any:
        for uid, record in objects(self):
            if not isinstance(record, FeatureEnabled):
                yield uid, record

    return replaced((State, "objects", without))


def forget_links() -> AbstractContextManager[None]:
    """Leave out of snapshots what routes there are."""
    records = Federation.records

    def without(self: Any) -> Any:
        for sequence, record in records(self):
            if not isinstance(record, RouteDeclared):
                yield sequence, record

    return replaced((Federation, "records", without))


def keep_rejected() -> AbstractContextManager[None]:
    """On a backup, let a message stay that was rejected, whatever the record says."""
    remove = Backlog.remove

    def forgiving(self: Any, sequences: Any, cause: int = 0) -> None:
        if not (self.is_replica and cause == Cause.REJECTED):
            remove(self, sequences, cause)

    return replaced((Backlog, "remove", forgiving))


def mistake_cause() -> AbstractContextManager[None]:
    """Now and then record that a message was rejected which was accepted."""
    dequeue = Log.dequeue

    def mistaken(self: Any, queue: int, sequence: int, cause: int = 0) -> int:
        return dequeue(self, queue, sequence, cause if sequence % 7 else int(Cause.REJECTED))

    return replaced((Log, "dequeue", mistaken))


def purge_what_comes() -> AbstractContextManager[None]:
    """Let a purge take what comes to its queue after it was asked for, too."""
    step = Walk.step

    def greedy(self: Any, most: int) -> int:
        if isinstance(self, Purge):
            self._last = self.queue.ordering.last
        return step(self, most)

    return replaced((Walk, "step", greedy))


def overfill() -> AbstractContextManager[None]:
    """Take a message whatever is on its queue already."""

    def careless(self: Any, payload: bytes) -> Any:
        self.check_open()
        return NOBODY

    return replaced((Queue, "room_for", careless))


def forget_senders() -> AbstractContextManager[None]:
    """Do not tell the senders that wait for a queue that there is room again."""

    def forgetful(self: Any) -> None:
        self.is_stopped = False
        self.set_fast_path_limit()
        self.waiting.clear()

    return replaced((Queue, "_resume", forgetful))


def drop_unplaced() -> AbstractContextManager[None]:
    """Let a rejected message go for which its alternate exchange has no room."""
    pass_on = Broker.pass_on
    return replaced(
        (Broker, "pass_on", lambda self, queue, *died: pass_on(self, queue, *died) or 0)
    )


def die_by_halves() -> AbstractContextManager[None]:
    """Now and then let a dead letter's source stay where it is."""
    pass_on = Departures._pass_on

    def careless(self: Any, queue: Any, leaving: Any, cause: Any) -> Any:
        passed_on = pass_on(self, queue, leaving, cause)
        if queue.spec.dead_letters is not None:
            for sequence in [each for each in leaving if each % 3 == 0]:
                del leaving[sequence]
        return passed_on

    return replaced((Departures, "_pass_on", careless))


def delete_carelessly() -> AbstractContextManager[None]:
    """Now and then do not pass on a message of a queue that is deleted."""
    reroute = Broker._reroute

    def careless(self: Any, queue: Any, message: Any) -> int:
        return reroute(self, queue, message) if message.sequence % 3 else 0

    return replaced((Broker, "_reroute", careless))


def give_group_to_two() -> AbstractContextManager[None]:
    """Take a group for free as soon as its consumer has settled one message of it."""
    let_go = ByGroup._let_go

    def hasty(self: Any, group: Any) -> bool:
        group.owner = None
        return let_go(self, group)

    return replaced((ByGroup, "_let_go", hasty))


def forget_levels() -> AbstractContextManager[None]:
    """Take what comes in runs, as that of a snapshot does, for the lowest level."""
    add_run = Priority.add_run

    def lowest(self: Any, sequences: Any) -> None:
        levels, self._levels = self._levels, bytes(len(self._levels))
        add_run(self, sequences)
        self._levels = levels

    return replaced((Priority, "add_run", lowest))


def forget_values() -> AbstractContextManager[None]:
    """Forget, on a backup that takes over, which message each value has that came before."""
    restart = BySequence.restart

    def forgetful(self: Any) -> None:
        restart(self)
        if isinstance(self, LastValue):
            self._by_key.clear()

    return replaced((BySequence, "restart", forgetful))


def activate_two() -> AbstractContextManager[None]:
    """Make a consumer of a higher priority active while another one still has messages."""
    elect = SingleActive._elect

    def hasty(self: Any, backlog: Any) -> None:
        takers = [consumer for consumer in self.consumers if not consumer.browse]
        self._active = max(takers, key=lambda consumer: consumer.priority, default=None)
        elect(self, backlog)

    return replaced((SingleActive, "_elect", hasty))


def keep_moved() -> AbstractContextManager[None]:
    """Now and then leave a message where an administrator moves it from."""
    drop = Queue.drop

    def forgiving(self: Any, messages: Any, cause: Any = Cause.PURGED) -> int:
        if cause is Cause.MOVED:
            messages = [message for message in messages if message.sequence % 3]
        return drop(self, messages, cause)

    return replaced((Queue, "drop", forgiving))


def keep_ring() -> AbstractContextManager[None]:
    """Go on spreading as before when a binding of a consistent hash exchange goes."""
    removed = ConsistentHashExchange._removed

    def lazy(self: Any, binding: Any) -> None:
        ring = self._ring
        removed(self, binding)
        self._ring = ring

    return replaced((ConsistentHashExchange, "_removed", lazy))


def trust_own_clock() -> AbstractContextManager[None]:
    """Go by the own clock after a failover, however late it was at the former primary."""
    return replaced((Broker, "_ahead", property(lambda self: self.ahead)))


def take_own() -> AbstractContextManager[None]:
    """Forget, on a backup that takes over, whose messages a queue does not take."""
    promoted = Broker.promoted

    def forgetful(self: Any, now: int) -> None:
        self.not_own.clear()
        promoted(self, now)

    return replaced((Broker, "promoted", forgetful))


def forget_selector() -> AbstractContextManager[None]:
    """Give what was given back to whoever selects anything."""
    return replaced((View, "_still_selects", lambda self, message: True))


def expire_on_backups() -> AbstractContextManager[None]:
    """Let backups drop what has expired by their own clock, which is ahead."""
    look_at, look, ahead = Queue._look_at, Queue.look, 250_000_000

    def noting(self: Any, sequence: int, at: int) -> None:
        is_replica, self.is_replica = self.is_replica, False
        try:
            look_at(self, sequence, max(at - ahead, 1) if is_replica else at)
        finally:
            self.is_replica = is_replica

    def hasty(self: Any, now: int, most: int) -> int:
        if not self.is_replica or self.times is None:
            return look(self, now, most)
        found = self.times.due(now, most)
        self.remove([one for one in found if one in self.messages], Cause.EXPIRED)
        if self.times.first:
            self._host.look_at(self, self.times.first)
        return len(found)

    return replaced((Queue, "_look_at", noting), (Queue, "look", hasty))


def reorder_policies() -> AbstractContextManager[None]:
    """Have a snapshot tell policies in another order than that in which they were set."""
    records = Policies.records
    return replaced((Policies, "records", lambda self: records(self)[::-1]))


def count_as_there() -> AbstractContextManager[None]:
    """Call a queue one that all have, though its messages were not recorded."""

    def take(self: Any, found: Any) -> int:
        self.queue.unrecorded = (self._place, self._last)
        return 0

    return replaced((IntoLog, "take", take))


def recall_half() -> AbstractContextManager[None]:
    """Take the recall of what was on a queue for done after its first slice."""
    take = Recall.take

    def hasty(self: Any, found: Any) -> int:
        self.end()
        return take(self, found)

    return replaced((Recall, "take", hasty))


def recall_on_backups() -> AbstractContextManager[None]:
    """Have backups read what is on a queue by themselves when its policy comes."""
    change_window = Queue._change_window

    def reading(self: Any, dedup: Any) -> bool:
        recalls = change_window(self, dedup)
        if recalls and self.is_replica:
            for message in self.messages.values():
                self.window.remember(self.window.key(message.body()), message.sequence)
        return recalls

    return replaced((Queue, "_change_window", reading))


def recall_from_copies() -> AbstractContextManager[None]:
    """Remember of a snapshot all messages that come with it, too."""
    return replaced((Queue, "insert_copies", Queue.insert_run))


def recall_in_silence() -> AbstractContextManager[None]:
    """Recall what was on a queue, and record it for nobody."""

    def silent(self: Any, found: Any) -> int:
        for message in found:
            self._window.remember(self._window.key(message.body()), message.sequence)
        return 0

    return replaced((Recall, "take", silent))


def forget_what_left() -> AbstractContextManager[None]:
    """Forget, with each slice of a recall, the keys of messages that have left meanwhile."""
    step = Recall.step

    def forgetful(self: Any, most: int) -> int:
        window = self.queue.window
        if window is not None:
            for key, sequence in list(window._sequences.items()):
                if sequence not in self.queue.messages:
                    del window._sequences[key]
        return step(self, most)

    return replaced((Recall, "step", forgetful))


def recall_into_nothing() -> AbstractContextManager[None]:
    """Go on with a recall for other keys than those that a queue remembers by now."""
    step = Recall.step

    def stubborn(self: Any, most: int) -> int:
        window, self.queue.window = self.queue.window, self._window
        try:
            return step(self, most)
        finally:
            self.queue.window = window

    return replaced((Recall, "step", stubborn))


def answer_for_original() -> AbstractContextManager[None]:
    """Accept what is known again at once, though the message that it is one of may not be
    committed.
    """
    passes_over = Queue.passes_over

    def hasty(self: Any, payload: bytes, passed: Any = None) -> Any:
        return None if passes_over(self, payload, passed) is None else 0

    return replaced((Queue, "passes_over", hasty))


def forget_at_checkpoint() -> AbstractContextManager[None]:
    """Leave messages out of the checkpoints of the local log."""
    return replaced((LocalLog, "_messages", lambda self, place: iter(())))


def accept_before_local_sync() -> AbstractContextManager[None]:
    """Tell who waits for the local log that it is on disk as soon as it is given to that."""

    def answer(self: Any, committed: int) -> int:
        return LOCAL + int(self.log.last)

    return replaced((LocalLog, "answer", answer))


def wipe_by_snapshot() -> AbstractContextManager[None]:
    """Take a broker's own queues away when the primary sends all that the cluster has."""
    reset = Broker.reset

    def wipe(self: Any, keep_local: bool = False) -> None:
        reset(self, keep_local=False)

    return replaced((Broker, "reset", wipe))


def forget_aside() -> AbstractContextManager[None]:
    """Give up the messages of queues that a snapshot takes away for a moment."""

    def give_up(self: Any, queue: Any) -> None:
        self.gone(queue)

    return replaced((LocalLog, "set_aside", give_up))


def forget_local_dequeue() -> AbstractContextManager[None]:
    """Do not record that a message left a queue that only this broker has."""
    return replaced((LocalLog, "dequeue", lambda self, queue, numbers, cause: self.end))


def forget_the_rest() -> AbstractContextManager[None]:
    """Give up what the cluster's log did not get of a queue that was on its way into it, when its
    broker is restarted.
    """

    def drop(self: Any, queue: Any) -> list[Any]:
        if queue.logged:
            self._drop_aside(queue.uuid)
        else:
            self.came(queue)
        return []

    return replaced((LocalLog, "_find_again", drop))


def record_once() -> AbstractContextManager[None]:
    """Record what leaves a queue that is in both logs in the cluster's only."""

    def once(self: Any, log_writer: Any) -> None:
        self.log_writer = log_writer

    return replaced((Queue, "record_twice", once))


def declare_before_sync() -> AbstractContextManager[None]:
    """Take every queue, exchange and binding for one that is not durable when it is recorded."""
    return replaced((Broker, "_append_of", lambda self, record, *of: self._append(record)))


def leave_before_arrival() -> AbstractContextManager[None]:
    """Let a message that goes to a queue in the other log leave in the turn that puts it there."""
    return replaced((Broker, "crosses", lambda self, source, target: False))


def leave_before_sync() -> AbstractContextManager[None]:
    """Let it leave one turn later, whatever is committed."""
    return replaced((Ends, "covers", lambda self, other: True))


def small_parts() -> AbstractContextManager[None]:
    """Take every message for a large one, which is a part of its batch by itself: no bug."""
    return replaced(*((each, "LARGE", 8) for each in (encoding, codec, disk_frames, channels)))


@contextmanager
def swap_parts() -> Iterator[None]:
    """Send the parts of a batch to the backups in another order."""
    before = primary.encode_logged

    def swapped(batch: Any, committed: int) -> Any:
        head, *parts = before(batch, committed)
        bodies = [at for at, part in enumerate(parts) if len(part) > 8]
        sizes: dict[int, int] = {}
        for at in bodies:
            other = sizes.setdefault(len(parts[at]), at)
            parts[at], parts[other] = parts[other], parts[at]
        return (head, *parts)

    with small_parts(), replaced((primary, "encode_logged", swapped)):
        yield


@contextmanager
def forget_part() -> Iterator[None]:
    """Write a frame to disk without the last of its parts."""
    before = WriteAheadLog._write

    def forget(self: Any, file: Any, *frame: Any) -> Any:
        body = before(self, file, *(frame[:-1] or frame))
        file.size += sum(map(len, frame)) - body.size
        return body

    with small_parts(), replaced((WriteAheadLog, "_write", forget)):
        yield


@contextmanager
def payloads_apart() -> Iterator[None]:
    """Have nearly every payload go past the engine: no bug."""
    with replaced((frames, "APART", 40), (links, "APART", 40)):
        yield


@contextmanager
def mix_payloads() -> Iterator[None]:
    """Put payloads that go past the engine into each other's frames. Only connections of bytes can
    show that, so it is none of the bugs that the model has to notice.
    """
    owe = Engine.owe

    def mixing(self: Any, end: Any, tag: bytes, parts: Any, size: int) -> None:
        owe(self, end, tag, parts, size)
        if len(self._owed) > 1:
            before = list(self._owed)[-2]
            self._owed[before], self._owed[tag] = self._owed[tag], self._owed[before]

    with payloads_apart(), replaced((Engine, "owe", mixing)):
        yield


def small_segments() -> AbstractContextManager[None]:
    """Have messages packed that are two in a row, on queues of more than three, for histories never
    have thousands on one: no bug.
    """
    return replaced(
        (messages, "FEWEST", 2),
        (backlog, "LONG", 3),
        (packing, "LONG", 3),
        (backlog, "AHEAD", 1),
        (backlog, "AT_ONCE", 3),
    )


@contextmanager
def lose_packed() -> Iterator[None]:
    """Unpack a segment without the last of its messages."""
    unpack = Segment.unpack

    def short(self: Segment) -> Any:
        found = unpack(self)
        found.popitem()
        return found

    with small_segments(), replaced((Segment, "unpack", short)):
        yield


@contextmanager
def keep_packed() -> Iterator[None]:
    """Let the last one stay of messages that leave a queue of which some are packed."""
    drop_run = messages._WithSegments.drop_run

    def short(self: Any, sequences: list[int]) -> Any:
        return drop_run(self, sequences[:-1])

    with small_segments(), replaced((messages._WithSegments, "drop_run", short)):
        yield


@contextmanager
def write_short() -> Iterator[None]:
    """Write a segment to a checkpoint or a snapshot without the last of its messages."""
    encode = recovery.encode_columns

    def short(queue: int, sequences: Any, sizes: Any, expiries: Any, body: bytes) -> bytes:
        columns = sequences[:-1], sizes[:-1], expiries[:-1]
        return encode(queue, *columns, body[: sum(sizes[:-1])]) if len(sizes) > 1 else b""

    with small_segments(), replaced((recovery, "encode_columns", short)):
        yield


def apply_one_of_row() -> AbstractContextManager[None]:
    """Apply, of messages in a row on the same queues, the first one alone."""
    insert = State.insert_shared

    def short(broker: Any, shared: Any) -> None:
        insert(broker, shared[:1])

    return replaced((State, "insert_shared", short))


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    bug.__name__.replace("_", "-"): bug
    for bug in (
        accept_early,
        skip_sync,
        promote_from_catchup,
        promote_dropped,
        promote_restarted,
        trust_the_memoryless,
        vote_without_memory,
        forget_the_silent,
        forget_dequeue,
        reuse_id,
        ignore_epoch,
        promote_without_promises,
        drop_without_recording,
        tell_before_saved,
        keep_confirmations,
        half_transaction,
        lose_the_young,
        forget_keys,
        ignore_minimum,
        move_by_halves,
        give_out_of_turn,
        enable_alone,
        use_before_commit,
        forget_features,
        forget_links,
        keep_rejected,
        mistake_cause,
        purge_what_comes,
        overfill,
        forget_senders,
        drop_unplaced,
        die_by_halves,
        delete_carelessly,
        forget_values,
        activate_two,
        keep_moved,
        keep_ring,
        trust_own_clock,
        take_own,
        forget_selector,
        reorder_policies,
        expire_on_backups,
        give_group_to_two,
        forget_levels,
        count_as_there,
        recall_half,
        recall_on_backups,
        recall_from_copies,
        recall_in_silence,
        forget_what_left,
        recall_into_nothing,
        answer_for_original,
        forget_at_checkpoint,
        accept_before_local_sync,
        wipe_by_snapshot,
        forget_aside,
        forget_local_dequeue,
        forget_the_rest,
        record_once,
        declare_before_sync,
        leave_before_arrival,
        leave_before_sync,
        swap_parts,
        forget_part,
        lose_packed,
        keep_packed,
        write_short,
        apply_one_of_row,
    )
}
NEEDS: dict[str, Callable[[Any], object]] = {
    "skip-sync": attrgetter("plan.disks"),
    "trust-the-memoryless": lambda run: draw_apart(run, "lose_disk"),
    "vote-without-memory": lambda run: draw_apart(run, "lose_voters"),
    "forget-the-silent": attrgetter("plan.disks"),
    "half-transaction": attrgetter("plan.transactions"),
    "lose-the-young": gathers,
    "forget-keys": attrgetter("plan.dedup"),
    "ignore-minimum": lambda run: run.plan.settings.ha_min_in_sync > 1,
    "move-by-halves": attrgetter("plan.moves"),
    "enable-alone": attrgetter("plan.mixed"),
    "use-before-commit": attrgetter("plan.mixed"),
    "forget-links": draw_links,
    "purge-what-comes": draw_purges,
    "overfill": attrgetter("plan.limits"),
    "forget-senders": attrgetter("plan.limits"),
    "drop-unplaced": attrgetter("plan.limits"),
    "die-by-halves": attrgetter("plan.dies"),
    "delete-carelessly": attrgetter("plan.deletions"),
    "forget-values": attrgetter("plan.valued"),
    "activate-two": attrgetter("plan.single"),
    "keep-moved": attrgetter("plan.shifts"),
    "keep-ring": attrgetter("plan.hashes"),
    "trust-own-clock": attrgetter("plan.clocks"),
    "take-own": attrgetter("plan.not_own"),
    "forget-selector": attrgetter("plan.selects"),
    "reorder-policies": draw_policies,
    "expire-on-backups": attrgetter("plan.times"),
    "give-group-to-two": attrgetter("plan.grouped"),
    "forget-levels": attrgetter("plan.ranks"),
    "count-as-there": lambda run: run.plan.levels or run.plan.keeps,
    "recall-half": attrgetter("plan.remembers"),
    "recall-on-backups": attrgetter("plan.remembers"),
    "recall-from-copies": attrgetter("plan.remembers"),
    "recall-in-silence": attrgetter("plan.remembers"),
    "forget-what-left": attrgetter("plan.remembers"),
    "recall-into-nothing": attrgetter("plan.remembers"),
    "answer-for-original": attrgetter("plan.remembers"),
    "forget-at-checkpoint": attrgetter("plan.keeps"),
    "accept-before-local-sync": attrgetter("plan.keeps"),
    "wipe-by-snapshot": attrgetter("plan.keeps"),
    "forget-aside": attrgetter("plan.keeps"),
    "forget-local-dequeue": attrgetter("plan.keeps"),
    "forget-the-rest": attrgetter("plan.keeps"),
    "record-once": lambda run: run.plan.levels or run.plan.keeps,
    "declare-before-sync": draw_declaring,
    "leave-before-arrival": attrgetter("plan.crosses"),
    "leave-before-sync": attrgetter("plan.crosses"),
    "forget-part": attrgetter("plan.disks"),
}
"""Bug -> what a run needs to show it, if most runs have nothing of that."""
