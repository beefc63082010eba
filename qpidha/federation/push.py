"""A route that pushes: messages of a queue here go to the other end.

A message leaves its queue here when the other end has accepted it. One that is rejected there is
rejected here, so it goes where the dead letters of its queue go; one that is released comes again
later. A route from an exchange takes from a queue that was made for it. What is under way when the
link breaks is sent again: the other end may have had it. Must not know what the other end does with
it. Source: Qpid src/qpid/broker/Bridge.cpp (src-local).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.amqp.peer.terminus import ACCEPTED, MODIFIED, REJECTED, Outcome
from qpidha.broker.federation import QUEUE, ROUTE_LINK
from qpidha.broker.queues.dispatch import MAX_REFUSALS, Refusals
from qpidha.federation.route import LONGEST_ERROR, Route, State
from qpidha.federation.trace import tags_of, with_tags
from qpidha.model.duration import SECOND
from qpidha.model.errors import ProtocolViolation
from qpidha.model.event_codes import ROUTE_REJECTED
from qpidha.model.message_view import departure

if TYPE_CHECKING:
    from qpidha.amqp.peer.connection import Connection
    from qpidha.amqp.peer.service_link import ServiceLink
    from qpidha.amqp.peer.terminus import PeerError
    from qpidha.broker.queues.queue import Queue
    from qpidha.broker.queues.selection import Selector
    from qpidha.federation.route import Home
    from qpidha.model.message import Message
    from qpidha.model.records import RouteDeclared

MOST_BYTES = 16 << 20
"""Bytes that may be on their way over one route."""
MOST_BACKLOG = 4 << 20
"""Bytes that may wait for the windows of the other end."""
SILENCE = 60 * SECOND
"""How often at most it is told that messages are rejected."""


class Push(Route):
    """One route that pushes; a consumer of its queue."""

    browse = exclusive = False
    priority = 0
    selector: Selector | None = None
    is_selective = False

    def __init__(self, home: Home, record: RouteDeclared) -> None:
        super().__init__(home, record)
        self.credit = 0
        self._queue: Queue | None = None
        self._window = record.credit or self.host.settings.link_credit
        self._under_way: dict[int, Message] = {}
        """By the number that the AMQP link has for each."""
        self._bytes_under_way = 0
        self._refusals = Refusals()
        self._has_to_wait = False
        """Whether room is to be looked for in the next turn."""
        self._holds = False
        self._trouble = ""
        """What ends the attempt in the next turn: the queue may be in the middle of something."""
        self._largest = 0
        self._silent_until = 0
        """Until then it is not told again that messages are rejected."""

    def _attach(self, connection: Connection) -> ServiceLink:
        record = self.record
        queue = self.broker.queue(record.queue or record.source)
        self._refusals = Refusals()
        self.is_selective = self._holds = False
        self._trouble = ""
        link = connection.attach(
            record.destination,
            sender=True,
            service=self,
            name=f"{ROUTE_LINK}{record.uuid}",
            settled=False,
        )
        self._queue = queue
        return link

    def _begin(self, link: ServiceLink) -> None:
        queue = self._queue
        if queue is None:
            return
        if queue.deleted or self.broker.find_queue(queue.name) is not queue:
            self._queue = None
            self.fail(f"queue {queue.name} was deleted")
            return
        assert link.end is not None
        self._largest = link.end.remote_max_message_size()
        queue.subscribe(self)
        self._refresh()

    def _end(self) -> None:
        queue, self._queue = self._queue, None
        messages, self._under_way = list(self._under_way.values()), {}
        self.credit = self._bytes_under_way = 0
        self._has_to_wait = self._holds = False
        if queue is not None and self in queue.consumers:
            # As if they had never been sent: a link that comes and goes is no fault of theirs.
            self.broker.returns.add(queue, messages, None)
            queue.unsubscribe(self)

    def tick(self) -> None:
        """Try again."""
        if self.link is not None and self._holds:
            self._holds = False
            self._become(State.OPERATIONAL)
            self._refresh()
            return
        super().tick()

    def turn(self) -> None:
        """See whether there is room by now, or whether the queue is gone."""
        trouble, self._trouble = self._trouble, ""
        if trouble:
            self.fail(trouble)
        elif self._has_to_wait:
            self._refresh()

    def available(self) -> int | None:
        """Return how many messages wait here."""
        queue = self.broker.queues.get(self.record.queue or self.record.source)
        return None if queue is None else len(queue.messages)

    # What management reads of a consumer.

    @property
    def connection(self) -> Connection | None:
        """The connection that the messages go over."""
        return self.home.connection

    @property
    def address(self) -> str:
        """Where the messages come from."""
        return self.record.source

    @property
    def unsettled(self) -> int:
        """How many messages are on their way."""
        return len(self._under_way)

    # What the queue does.

    def accepts(self, message: Message) -> bool:
        """Whether a message may go over this route. It is asked from when the first one may not."""
        if message.sequence in self._refusals:
            return False
        payload = message.body()
        if self._fits(payload) and (self.record.kind != QUEUE or self._is_new(payload)):
            return True
        self.refuse(message)
        return False

    def refuse(self, message: Message) -> None:
        """Do not take a message again. With too many of them the route begins anew, later."""
        self.is_selective = True
        queue = self._queue
        if queue is not None and not self._refusals.add(message.sequence, queue.messages):
            self.credit = 0
            self._trouble = (
                f"more than {MAX_REFUSALS} messages on {queue.name} cannot go to the other end"
            )
            self._want_turn()

    def _fits(self, payload: bytes) -> bool:
        """Whether the other end takes a message of this size."""
        if self._largest and len(payload) > self._largest:
            self.refused += 1
            return False
        return True

    def _is_new(self, payload: bytes) -> bool:
        """Whether a message goes in no circle: it has not left here before, and a copy has not been
        at the other end.
        """
        home, is_copy = self.home, self.record.kind != QUEUE
        places = home.own_names | home.peer_names if is_copy else home.own_names
        try:
            return self._tags(payload, places) is not None
        except ProtocolViolation:
            return True  # One that cannot be read leaves as it came.

    def deliver(self, message: Message) -> None:
        """Send one message."""
        link, queue = self.link, self._queue
        if link is None or queue is None:
            return
        payload = message.body()
        if not self._fits(payload):
            self._leave_out(message, queue)
            return
        if not self._is_new(payload):
            if self.record.kind == QUEUE:
                self._leave_out(message, queue)
            else:
                queue.dequeue(message)  # It is a copy, of no use to anybody else.
            return
        try:
            if message.delivery_count or message.annotations:
                payload = departure(payload, message.delivery_count, message.annotations)
            payload = with_tags(payload, tags_of(payload), (self.record.tag, self.home.own_tag))
        except ProtocolViolation:
            pass
        self.credit -= 1
        number = link.send(payload)
        self._under_way[number] = message
        self._bytes_under_way += message.size
        if self._bytes_under_way >= MOST_BYTES or not self.credit:
            self.credit = 0
            self._wait_for_room()

    def _leave_out(self, message: Message, queue: Queue) -> None:
        """Leave a message where it is; from the next dispatch on the queue asks before."""
        self.credit = 0
        self._wait_for_room()
        self.refuse(message)
        queue.release(message)

    def _wait_for_room(self) -> None:
        self._has_to_wait = True
        self._want_turn()

    def activated(self, is_active: bool) -> None:
        """Others may have had the queue to themselves: there is nothing to do about it."""

    def searched(self) -> None:
        """There is no credit to give back."""

    def timeout_changed(self) -> None:
        """The other end may take its time: what it has comes back when the link breaks."""

    def queue_deleted(self) -> None:
        """The queue is gone, which may be in the middle of something."""
        self._queue = None
        self._under_way.clear()
        self._trouble = f"queue {self.record.queue or self.record.source} was deleted"
        self._want_turn()

    # What the other end does.

    def received(self, link: ServiceLink, payload: bytes) -> None:
        """The other end receives, and sends nothing."""

    def credited(self, link: ServiceLink) -> None:
        """More can be sent."""
        if link is self.link:
            self._refresh()

    def _refresh(self) -> None:
        """Find out how many messages the queue may hand over."""
        link, queue, connection = self.link, self._queue, self.home.connection
        self.credit = 0
        self._has_to_wait = False
        if link is None or link.end is None or queue is None or connection is None:
            return
        if self._holds or self._trouble:
            return
        room = min(link.credit - link.waiting, self._window - len(self._under_way))
        if room <= 0 or self._bytes_under_way >= MOST_BYTES:
            return  # Credit, or an outcome, will come.
        if connection.congested or link.end.session.backlog() >= MOST_BACKLOG:
            self._wait_for_room()
            return
        self.credit = room
        queue.wake(self)

    def outcome(self, link: ServiceLink, number: int, outcome: Outcome) -> None:
        """Hear what became of a message."""
        queue = self._queue
        message = self._under_way.pop(number, None) if link is self.link else None
        if message is None or queue is None:
            return
        self._bytes_under_way -= message.size
        if queue.messages.get(message.sequence) is message:
            if outcome.state == ACCEPTED:
                queue.dequeue(message)
                self._moved(message.size)
            else:
                self._not_taken(queue, message, outcome)
        if not self.credit:
            self._refresh()

    def _tell_rejected(self, error: PeerError | None) -> None:
        """Say why messages leave that are not at the other end; now and then, if they are many."""
        why = error.explanation if error is not None else "without a reason"
        self.error = f"the other end has rejected a message: {why}"[:LONGEST_ERROR]
        if self.host.now >= self._silent_until:
            self._silent_until = self.host.now + SILENCE
            self._tell(
                "warning", f"has dead letters: {self.error}", ROUTE_REJECTED, "rejected", why
            )

    def _not_taken(self, queue: Queue, message: Message, outcome: Outcome) -> None:
        """The other end did not take a message."""
        self.refused += 1
        if outcome.state == REJECTED:
            queue.reject(message)
            self._tell_rejected(outcome.error)
            return
        if outcome.state == MODIFIED:
            not_to = self if outcome.undeliverable else None
            queue.requeue(message, outcome.failed, not_to=not_to)
        else:
            queue.release(message)
        if outcome.state == MODIFIED and outcome.undeliverable:
            return
        if not self._holds:
            # It would come back at once, over and over.
            self._holds = True
            self._wait("the other end did not take a message: it was given back")
        self.credit = 0
