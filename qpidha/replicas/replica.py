"""The replica: a queue here that has what a queue elsewhere has, as its source tells.

Only a broker that decides runs its replicas: one alone, or the primary of a cluster. That a queue
is a replica, of what, and how far it has come are records (`ReplicaSet`), so the next primary goes
on, and so does a broker that was restarted. A replica decides nothing: no message expires on it,
overflows it or goes to dead letters, and no client sends to it or takes from it.

1. It dials the addresses of its source one after the other; a broker that is no primary, or is not
   there, is passed over. It says which queue it follows, how far it has come, and which messages it
   has (`Follow`, `Held`).
2. The source answers `Begin`, or why it has nothing for it. A source that is another queue than
   before, or has lost what is here, *blocks* the replica: it keeps what it has until an operator
   decides.
3. `Changes` are applied in the order in which they come, each whole, with the record of how far the
   replica has come beside them in one batch. When that is committed here they are confirmed.

Messages keep the numbers that they have at the source, so their order is that of the source even if
one comes late, and what it lacks is known by numbers. The log here gives no such number to anything
else: it passes over them before they are used (`LogWriter.pass_over`).

What comes waits while there is no room for it on the disk; the source sends no more than a window.
Where there is none in memory, what came is given up and the connection with it, for it counts in
`memory-limit` as well; the source is dialled again when there is room. Source: Qpid
`QueueReplicator.cpp`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from qpidha.broker.credit import MEMORY_LIMIT
from qpidha.broker.queues.queue import ANY_NUMBER, Queue
from qpidha.model.deadlines import Deadlines
from qpidha.model.errors import ProtocolViolation, QpidHaError
from qpidha.model.event_codes import REPLICA_BLOCKED, REPLICA_LOST, REPLICA_WHOLE
from qpidha.model.event_log import REPLICA, LinkChange
from qpidha.model.message_view import arrival, message_annotations
from qpidha.model.records import Dequeued, Requeued
from qpidha.model.telling import Telling
from qpidha.model.url import parse_url
from qpidha.replicas.wire import (
    DIVERGED,
    GONE,
    REPLACED,
    Begin,
    Changes,
    Confirm,
    Follow,
    Refused,
    held_of,
)
from qpidha.store.codec import EnqueueRun, decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from qpidha.broker.broker import Broker
    from qpidha.ha.pending import Waiter
    from qpidha.model.records import ReplicaSet
    from qpidha.model.url import Address
    from qpidha.replicas.wire import Message as Said
    from qpidha.store.codec import Entry

CONNECTING, COPYING, FOLLOWING = "connecting", "copying", "following"
BLOCKED, WAITING = "blocked", "waiting"
SPARE_NUMBERS = 1_000_000
"""How many numbers more than are needed the log passes over at once."""
TOLD_A_TURN = 8000
"""Messages of which a source is told in one turn that they are here."""
PARTS_A_TURN = 4
MOST_WAIT = 8
"""How many times longer than at first it waits that is in vain dialled again and again."""
MOST_WAITING = 64 << 20
"""Bytes that a source sends at most without being told that they are here."""


STEADY = 4
"""So many pauses between two attempts a replica has to have all of its source to be counted as one
that stays so.
"""


class Announcer(Protocol):
    """Writes into the log."""

    def __call__(
        self, level: str, text: str, event_code: str, about: LinkChange | None = None, /
    ) -> None:
        """Write a line, and into the event log what it is about."""


class ReplicaNode(Protocol):
    """The broker around its replicas."""

    @property
    def broker(self) -> Broker:
        """Its queues."""

    @property
    def now(self) -> int:
        """The time of this turn, in ns."""

    @property
    def runs_replicas(self) -> bool:
        """Whether this broker decides, and may replicate single queues."""

    @property
    def redial(self) -> int:
        """After how many ns a source is dialled again."""

    @property
    def dial_timeout(self) -> int:
        """How many ns a source has to answer."""

    @property
    def committed(self) -> int:
        """Up to where the log is committed."""

    def dial(self, host: str, port: int, encrypted: bool) -> int:
        """Open a connection and return its id."""

    def hang_up(self, connection_id: int) -> None:
        """Close a connection."""

    def when_committed(self, sequence: int, waiter: Waiter, item: object) -> None:
        """Call `waiter.on_committed(item)` when the log is committed up to `sequence`."""


class Part:
    """What the source has sent and is not applied yet."""

    __slots__ = ("_count", "changes")

    def __init__(self, changes: Changes) -> None:
        self.changes = changes
        self._count = -1

    @property
    def count(self) -> int:
        """How many changes are in it; it is read through for that once."""
        if self._count < 0:
            self._count = sum(
                len(entry.sequences) if isinstance(entry, EnqueueRun) else 1
                for entry in decode(self.changes.data)
            )
        return self._count


class Replica:
    """One queue here that follows one elsewhere."""

    def __init__(
        self,
        node: ReplicaNode,
        queue: Queue,
        send: Callable[[int, Said], None],
        announce: Announcer,
        deadlines: Deadlines[Replica],
        wanting: dict[Replica, None],
    ) -> None:
        self.node = node
        self.queue = queue
        self._send = send
        self._announce = announce
        self.state = CONNECTING
        self.error = ""
        self._news = Telling()
        self.connection_id = 0
        """Of the connection to the source; 0 for none."""
        self.is_open = False
        self._deadlines, self._wanting = deadlines, wanting
        self._deadline = 0
        self.deadline = node.now
        self._source = ""
        self._addresses: list[Address] = []
        self._tried = 0
        """Which address is next."""
        self._failures = 0
        """How often all addresses were dialled, or one that is to be dialled again, since something
        of the source was applied.
        """
        self._has_begun = False
        self._telling = -1
        """The last number that the source was told of; -1 when it has been told of all."""
        self.inbox: deque[Part] = deque()
        self.waiting = 0
        """Bytes in it."""
        self._behind = 0
        self._passed = 0
        """Up to here the log was asked to pass over numbers."""
        self.is_whole = False
        """Whether it had all of the source at the last part of this connection."""
        self.in_step_at = 0
        """When it last had all that its source had; 0 for never."""
        self.since = node.now
        """Since when it is in this state."""

    @property
    def record(self) -> ReplicaSet:
        """How far it has come."""
        return self.node.broker.replicas[self.queue.uid]

    @property
    def deadline(self) -> int:
        """When to dial, to give up waiting for an answer, or to look again; 0 for never."""
        return self._deadline

    @deadline.setter
    def deadline(self, at: int) -> None:
        self._deadline = at
        self._deadlines.set(self, at)

    def _become(self, state: str) -> None:
        if state != self.state:
            self.state, self.since = state, self.node.now

    # -- the connection ---------------------------------------------------------------------------

    def tick(self) -> None:
        """Dial, or give up."""
        node = self.node
        if self._source != self.record.source:
            self._source = self.record.source
            self._addresses = list(parse_url(self._source))
            self._tried = self._failures = 0
            self.drop("")
            self.deadline = node.now
        if not self.deadline or node.now < self.deadline:
            return
        if self._has_begun:
            self.deadline = 0
            if self.is_whole and self._news.stays():
                self._tell_whole()
            return
        if self.connection_id:
            self.drop("no answer")
            return
        if self.state == WAITING and self._short_of_memory:
            self.deadline = node.now + node.redial
            return
        address = self._addresses[self._tried % len(self._addresses)]
        self.deadline = node.now + node.dial_timeout
        self.connection_id = node.dial(address.host, address.port, address.encrypted)

    def _tell(self, level: str, text: str, event_code: str, what: str, why: str = "") -> None:
        name = f"replica {self.queue.name}"
        self._announce(level, f"{name}{text}", event_code, LinkChange(REPLICA, what, name, why))

    def _tell_whole(self) -> None:
        self._tell("notice", f" has all of its source at {self._address}", REPLICA_WHOLE, FOLLOWING)

    def drop(self, error: str, *, wait: bool = False, what: str = "lost") -> None:
        """Give up the connection, and dial again; without `wait` the next address at once."""
        connection_id = self.connection_id
        if connection_id:
            self.lost(error, wait=wait, what=what)
            self.node.hang_up(connection_id)

    def lost(self, error: str, *, wait: bool = False, what: str = "lost") -> None:
        """The connection is gone, or never came about."""
        if error and self._news.down(error):
            text = f": no source at {self._address}: {error}; dialling again"
            self._tell("warning", text, REPLICA_LOST, what, error)
        self.error = error or self.error
        self.connection_id = 0
        self.is_open = self._has_begun = self.is_whole = False
        self._telling = -1
        self.inbox.clear()
        self.waiting = self._behind = 0
        self._tried += 1
        node = self.node
        if self.state != BLOCKED:
            self._become(CONNECTING)
        rounds, place = divmod(self._tried, max(len(self._addresses), 1))
        if place and not wait:
            self.deadline = node.now + 1
            return
        self._failures += 1
        self.deadline = node.now + node.redial * min(2 ** min(self._failures - 1, 10), MOST_WAIT)

    @property
    def _address(self) -> str:
        return str(self._addresses[self._tried % len(self._addresses)]) if self._addresses else ""

    def opened(self) -> None:
        """Both links to the source are there."""
        record = self.record
        self.is_open, self.deadline = True, self.node.now + self.node.dial_timeout
        self._send(
            self.connection_id,
            Follow(self.queue.name, record.uuid, record.lineage, record.position),
        )
        self._telling = 0
        self._wanting[self] = None

    def _tell_held(self) -> None:
        """Tell the source, some a turn, what is here."""
        queue = self.queue
        numbers: list[int] = []
        if self.record.uuid:
            for message in queue.ordering.after(self._telling):
                numbers.append(message.sequence)
                if len(numbers) >= TOLD_A_TURN:
                    break
        is_last = len(numbers) < TOLD_A_TURN
        parts = held_of(numbers)
        for part in parts:
            part.is_last = part.is_last and is_last
            self._send(self.connection_id, part)
        self._telling = -1 if is_last else numbers[-1]

    # -- what the source says ---------------------------------------------------------------------

    def received(self, message: Said) -> None:
        """Take a message of the source."""
        match message:
            case Begin(uuid):
                if self.record.uuid not in ("", uuid):
                    raise ProtocolViolation("the source begins with another queue")
                self._has_begun, self.deadline = True, 0
                if not self.record.uuid:
                    self.node.broker.move_replica(replace(self.record, uuid=uuid))
                self._become(COPYING)
            case Refused(kind, text):
                self._refused(kind, text)
            case Changes():
                if not self._has_begun:
                    raise ProtocolViolation("the source sends changes before it begins")
                self.inbox.append(Part(message))
                self._wanting[self] = None
                self.waiting += len(message.data)
                if self.waiting - len(message.data) > MOST_WAITING:
                    raise ProtocolViolation("the source sends more than was confirmed")
            case _:
                raise ProtocolViolation("that is for a source to hear")

    def _refused(self, kind: str, text: str) -> None:
        if kind in (REPLACED, DIVERGED):
            if self.state != BLOCKED:
                why = f" does not follow {self._source} any more: {text}"
                self._tell("error", why, REPLICA_BLOCKED, BLOCKED, text)
            self._become(BLOCKED)
            self.error = text
        elif self.state == BLOCKED:
            self._become(CONNECTING)
        error = text if kind not in (REPLACED, DIVERGED) else ""
        self.drop(error, wait=kind != GONE, what="refused")

    # -- what becomes of it -----------------------------------------------------------------------

    def turn(self) -> bool:
        """Apply what has come; return whether there is more that can be applied."""
        if self._telling >= 0:
            self._tell_held()
        if not self._has_begun:
            return self._telling >= 0
        if self.inbox and self._short_of_memory:
            self._give_up()
            return False
        is_held_up = False
        for _ in range(PARTS_A_TURN):
            if not self.inbox:
                break
            is_held_up = not self._apply(self.inbox[0].changes)
            if is_held_up:
                break
            self.waiting -= len(self.inbox.popleft().changes.data)
        if is_held_up:
            return False
        if self.is_whole and not self.inbox:
            self.in_step_at = self.node.now
        return bool(self.inbox) or self._telling >= 0

    @property
    def _short_of_memory(self) -> str:
        """Why nothing can be kept in memory now; empty if it can."""
        return self.node.broker.credit.withheld.get(MEMORY_LIMIT, "")

    def _give_up(self) -> None:
        """Let go of what has come, and have it again when there is room."""
        behind, why = self.behind, self._short_of_memory
        self.drop("", wait=True)
        self._behind, self.error = behind, why
        self._become(WAITING)

    def _apply(self, changes: Changes) -> bool:
        """Apply one part; False if it has to wait."""
        why = self.node.broker.refuse_publishing
        if why and self.queue.log_writer is not None:
            self.error = why
            self._become(WAITING)
            return False
        entries = _read(changes)
        if not self._has_numbers(changes.position):
            return False
        if self.queue.log_writer is not None and entries and self.queue.durable:
            self.queue.log_writer.must_sync = True
        for entry in entries:
            self._apply_entry(entry)
        record = self.record
        sequence = self.node.broker.move_replica(
            replace(
                record,
                lineage=changes.lineage,
                position=changes.position,
                whole=record.whole or changes.is_whole,
            )
        )
        if changes.is_whole and not self.is_whole:
            if self._news.up():
                self._tell_whole()
            if self._news.waits and not self.deadline:
                self.deadline = self.node.now + STEADY * self.node.redial
        self.is_whole, self._behind = changes.is_whole, changes.behind
        self._failures, self.error = 0, ""
        if self.is_whole:
            self._become(FOLLOWING)
        elif self.state != FOLLOWING:
            self._become(COPYING)
        item = self.connection_id, changes.number
        self.node.when_committed(sequence, self, item)
        return True

    def _has_numbers(self, last: int) -> bool:
        """Whether messages may have numbers up to `last`: the log gives none of them to anything
        else.
        """
        log_writer = self.queue.log_writer
        if log_writer is None or last <= self.node.committed:
            return True
        if last > self._passed:
            self._passed = last + SPARE_NUMBERS
            log_writer.pass_over(self._passed)
        return False

    def _apply_entry(self, entry: Entry) -> None:
        queue = self.queue
        if isinstance(entry, EnqueueRun):
            numbers = entry.sequences
            log_writer = queue.log_writer
            if log_writer is not None:
                log_writer.enqueue_numbered(queue.uid, numbers, entry.payloads, entry.expiries)
            queue.insert_run(numbers, entry.payloads, entry.expiries)
            queue.ordering.tidy()
            return
        record = entry[1]
        if isinstance(record, Dequeued):
            self._remove([number for number in record.sequences if number in queue.messages])
        elif isinstance(record, Requeued):
            if record.sequence in queue.messages:
                restated = replace(record, queue=queue.uid)
                broker = self.node.broker
                if queue.log_writer is not None:
                    queue.log_writer.append(restated)
                broker.apply(0, restated)

    def _remove(self, numbers: list[int]) -> None:
        queue = self.queue
        if not numbers:
            return
        if queue.log_writer is not None:
            queue.log_writer.dequeue_many(queue.uid, numbers)
        queue.remove(numbers)

    def on_committed(self, item: tuple[int, int]) -> None:
        """What was applied is here to stay."""
        connection_id, number = item
        if connection_id == self.connection_id and connection_id:
            self._send(connection_id, Confirm(number))

    # -- how it is --------------------------------------------------------------------------------

    @property
    def rests(self) -> bool:
        """Whether nothing is to be done before the source says something, or a deadline comes."""
        return self._telling < 0 and not self.inbox

    @property
    def is_unwell(self) -> bool:
        """Whether it does not follow its source, and there is a reason."""
        return self.state in (BLOCKED, WAITING) or (self.state == CONNECTING and bool(self.error))

    @property
    def advice(self) -> str:
        """What to do if it does not follow its source."""
        name = self.queue.name
        stop = f"qpid-ha replica stop {name}"
        if self.state == BLOCKED:
            anew = f"qpid-ha replicate {name} BROKER --replace"
            return f"keep what it has: {stop}; or copy the source again: {anew}"
        if self.state == WAITING:
            return "nothing but room: the replica goes on by itself when there is some"
        return f"look at {self._source}; if that is lost for good, go on with the replica: {stop}"

    @property
    def behind(self) -> int:
        """How many changes are known that are not here."""
        return self._behind + sum(part.count for part in self.inbox)

    @property
    def late(self) -> int:
        """For how many ns it may lack something."""
        if self.is_whole and not self.inbox:
            return 0
        return self.node.now - (self.in_step_at or self.since)


def _read(changes: Changes) -> list[Entry]:
    """Return what a part says; raise ProtocolViolation, before anything of it is done, for what
    cannot be on a queue.
    """
    entries = list(decode(changes.data))
    for entry in entries:
        if isinstance(entry, EnqueueRun):
            numbers = entry.sequences
            has_places = 0 < numbers[0] <= numbers[-1] <= changes.position < ANY_NUMBER
            if not has_places or numbers != sorted(set(numbers)):
                raise ProtocolViolation("the source sends messages that have no place")
            for payload in entry.payloads:
                arrival(payload, 0)  # As of messages that clients send.
        elif isinstance(entry[1], Requeued):
            if entry[1].annotations:
                message_annotations(entry[1].annotations)
        elif not isinstance(entry[1], Dequeued):
            raise ProtocolViolation("the source sends what is of no queue")
    return entries


class Replicas:
    """All replicas of one broker that runs them."""

    def __init__(
        self, node: ReplicaNode, send: Callable[[int, Said], None], announce: Announcer
    ) -> None:
        self._node = node
        self._send = send
        self._announce = announce
        self.active: dict[int, Replica] = {}
        """By the uids of their queues."""
        self._version = -1
        """That of the broker's replicas when they were compared with these."""
        self._deadlines: Deadlines[Replica] = Deadlines()
        self._wanting: dict[Replica, None] = {}
        """Those that have something to apply or to say; others cost a turn nothing."""
        self.by_connection: dict[int, Replica] = {}

    def turn(self) -> bool:
        """Apply what has come, before the log of this turn is closed; return whether there is
        more.
        """
        node = self._node
        broker = node.broker
        if not broker.replicas and not self.active:
            return False
        if not node.runs_replicas:
            self._leave(self.active.copy())
            self._version = -1
            return False
        if self._version != broker.replicas_version:
            self._version = broker.replicas_version
            self._compare(broker.replicas)
        for replica in self._deadlines.due(node.now):
            self._dial(replica)
        is_pressed = False
        for replica in list(self._wanting):
            before = replica.connection_id
            is_pressed = self._isolated(replica, replica.turn) or is_pressed
            if replica.connection_id != before:
                self.by_connection.pop(before, None)
            if replica.rests:
                self._wanting.pop(replica, None)
        return is_pressed

    def _compare(self, replicas: dict[int, ReplicaSet]) -> None:
        """Run those that there are, each with the source that it is to have."""
        node = self._node
        gone = self.active.keys() - replicas.keys()
        self._leave({uid: self.active[uid] for uid in gone})
        for uid in replicas.keys() - self.active.keys():
            queue = node.broker.by_uid[uid]
            assert isinstance(queue, Queue)
            self.active[uid] = Replica(
                node, queue, self._send, self._announce, self._deadlines, self._wanting
            )
        for replica in self.active.values():
            self._dial(replica)

    def _dial(self, replica: Replica) -> None:
        before = replica.connection_id
        replica.tick()
        if before != replica.connection_id:
            self.by_connection.pop(before, None)
            if replica.connection_id:
                self.by_connection[replica.connection_id] = replica

    def _isolated(self, replica: Replica, act: Callable[[], bool]) -> bool:
        """Do something; a source that breaks the rules loses its connection."""
        try:
            return act()
        except QpidHaError as error:
            self.by_connection.pop(replica.connection_id, None)
            replica.drop(error.text, wait=True)
            return False

    def _leave(self, replicas: dict[int, Replica]) -> None:
        for uid, replica in replicas.items():
            self.by_connection.pop(replica.connection_id, None)
            if replica.connection_id:
                self._node.hang_up(replica.connection_id)
            replica.connection_id = 0
            self._deadlines.remove(replica)
            self._wanting.pop(replica, None)
            del self.active[uid]

    @property
    def next_deadline(self) -> int:
        """When to have a turn at the latest; 0 for never."""
        return self._deadlines.first

    @property
    def waiting(self) -> int:
        """Bytes that have come and are not applied yet."""
        return sum(replica.waiting for replica in self._wanting)

    def opened(self, connection_id: int) -> None:
        """Both links of a connection are there."""
        replica = self.by_connection.get(connection_id)
        if replica is not None:
            replica.opened()

    def received(self, connection_id: int, message: Said) -> None:
        """A source says something."""
        replica = self.by_connection.get(connection_id)
        if replica is None:
            return

        def take() -> bool:
            replica.received(message)
            return False

        self._isolated(replica, take)
        if not replica.connection_id:
            self.by_connection.pop(connection_id, None)

    def lost(self, connection_id: int, reason: str) -> None:
        """A connection is gone."""
        replica = self.by_connection.pop(connection_id, None)
        if replica is not None and replica.connection_id == connection_id:
            replica.lost(reason or "the connection was closed")

    def unwell(self) -> list[dict[str, Any]]:
        """Tell of those that do not follow their sources."""
        return [
            {
                "name": f"replica {replica.queue.name}",
                "state": replica.state,
                "since_ns": replica.since,
                "why": replica.error,
                "next": replica.advice,
            }
            for replica in self.active.values()
            if replica.is_unwell
        ]

    def report(self) -> list[dict[str, Any]]:
        """Tell of all replicas."""
        node, found = self._node, []
        for uid, record in node.broker.replicas.items():
            queue = node.broker.by_uid[uid]
            assert isinstance(queue, Queue)
            replica = self.active.get(uid)
            found.append(
                {
                    "queue": queue.name,
                    "source": record.source,
                    "state": replica.state if replica is not None else "idle",
                    "whole": record.whole,
                    "messages": len(queue.messages),
                    "behind": replica.behind if replica is not None else 0,
                    "late_ns": replica.late if replica is not None else 0,
                    "since_ns": replica.since if replica is not None else 0,
                    "position": record.position,
                    "lineage": record.lineage,
                    "error": replica.error if replica is not None else "",
                }
            )
        return found
