"""The inbox: messages of one queue as they come, through failovers, for a thread that takes and settles them.

The AMQP side runs in the thread of the client's loop; `take`, `settle` and `check` are for one other thread. Messages that were not
taken when their link is lost are forgotten: the broker delivers them again. Proton's objects stay in the loop's thread, down to their
last reference: letting go of one elsewhere would race with the engine. Brokers bound what one session may leave unsettled, so that
receivers take turns on several sessions of the connection, one at a time, which keeps the order of the queue. A browse leaves nothing
unsettled and stays on one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from proton import Delivery, Event, Link
from proton.handlers import IncomingMessageHandler
from proton.reactor import Container, Copy

from qpidha.connector.options import Options
from qpidha.connector.queue_client import ConnectorFailure, QueueClient

BYTES = 32 << 20
"""Bytes that wait in an inbox, and of a micro-batch: far below what Spark takes as one task (128 MiB), also with the largest message."""
SESSION_MESSAGES = 4000
"""Messages that one session leaves unsettled; a broker allows 5000 unless told otherwise."""
SESSION_BYTES = 16 << 20
"""Bytes of these; a broker allows 64 MiB."""
SESSIONS = 250
"""Sessions of a connection; a broker allows 256."""
STALL = 1.0
"""Seconds without a message while a broker should tell a consumer that a queue is empty: the session is full for it, go on with another."""


class Received:
    """A message that was delivered."""

    __slots__ = ("generation", "is_settled", "number", "payload", "size")

    def __init__(self, payload: bytes, number: int, generation: int) -> None:
        self.payload = payload
        self.size = len(payload)
        self.number = number
        """Of the delivery, by which the inbox knows it."""
        self.generation = generation
        """Of the link that it came on."""
        self.is_settled = False
        """Whether the broker has confirmed that the message is gone."""


class Lane:
    """A receiver in a session of its own."""

    __slots__ = ("bytes", "link", "messages")

    def __init__(self, link: Any) -> None:
        self.link = link
        self.messages = self.bytes = 0
        """Unsettled."""


class Inbox(QueueClient):
    """Receives from one queue; with `until_empty` no more once the queue was found empty."""

    def __init__(self, options: Options, queue: str, *, browse: bool = False, until_empty: bool = False, hold: int = 0) -> None:
        super().__init__(options, queue)
        # Proton's own handler would accept and settle at once.
        self.handlers: list[Any] = [handler for handler in self.handlers if not isinstance(handler, IncomingMessageHandler)]
        self.browse = browse
        self.until_empty = until_empty
        self.generation = 0
        """Counts the links that were lost."""
        self.was_empty = False
        """Whether the queue was found empty since the last loss; everything before that is in the buffer or taken."""
        self._timeout = options.timeout
        self._prefetch = options.prefetch
        self._hold = hold or options.prefetch
        self._buffer: deque[Received] = deque()
        self._buffered = 0
        self._largest: float = 1 << 20
        """Bytes of a message to be expected; a guess until the first has come."""
        self._lanes: list[Lane] = []
        self._lane: Lane | None = None
        self._arrived_at = 0.0
        self._settling: deque[Received] = deque()
        self._deliveries: dict[int, tuple[Any, Lane]] = {}
        """Unsettled deliveries of the present connection, by number."""
        self._awaited: dict[Any, Received] = {}
        self._down_since: float | None = time.monotonic()
        self._names = self._number = 0

    # For the thread that takes.

    def take(self, rows: int, size: int, wait: float) -> list[Received]:
        """Return up to so many messages or bytes, one at least if there are any within `wait` seconds; all are of the present link.

        Raises ConnectorFailure when there will be none.
        """
        end = time.monotonic() + wait
        with self._changed:
            while not self._buffer and not (self.until_empty and self.was_empty):
                self.check()
                left = end - time.monotonic()
                if left <= 0:
                    return []
                self._changed.wait(min(left, 0.5))
            taken: list[Received] = []
            while self._buffer and len(taken) < rows and (not taken or size >= self._buffer[0].size):
                item = self._buffer.popleft()
                size -= item.size
                self._buffered -= item.size
                taken.append(item)
            return taken

    def settle(self, items: Iterable[Received]) -> list[Received]:
        """Accept messages, wait until the broker has settled them, and return those of which this is not known.

        Raises ConnectorFailure when the broker is there and does not settle them in time.
        """
        wanted = list(items)
        end = time.monotonic() + self._timeout
        with self._changed:
            self._settling.extend(item for item in wanted if item.generation == self.generation and not item.is_settled)
            self.check()
            while self._settling or self._awaited:
                if time.monotonic() > end:
                    raise ConnectorFailure(
                        f"the broker at {self.dialled} did not settle messages of queue {self.address} in time; {self._hint}"
                    )
                self._changed.wait(0.5)
                self.check()
        return [item for item in wanted if not item.is_settled]

    @property
    def is_finished(self) -> bool:
        """Whether the present link found the queue empty and all that came on it was taken; a link that is lost undoes this."""
        with self._changed:
            return self.until_empty and self.was_empty and not self._buffer

    def check(self) -> None:
        """Raise ConnectorFailure if this inbox is of no more use."""
        self.check_alive()
        if self._down_since is not None and time.monotonic() - self._down_since > self._timeout:
            raise ConnectorFailure(f"no primary among {', '.join(self.addresses)}: {self._last_loss}; {self._hint}")

    @property
    def _last_loss(self) -> str:
        return next((loss for loss in reversed(self.losses) if loss != "disconnected"), "disconnected" if self.losses else "no answer")

    @property
    def _hint(self) -> str:
        return f"waited for {self._timeout:g} s (option timeout); qpid-ha status --explain tells what a broker waits for"

    # For the client's loop.

    def open_link(self, container: Container, connection: Any) -> None:
        with self._changed:
            self._lanes.clear()
            self._open_lane(connection)

    def _open_lane(self, connection: Any) -> None:
        if len(self._lanes) >= SESSIONS:
            most = SESSIONS * SESSION_MESSAGES
            self._fail(f"more than {most} messages of queue {self.address} would be unsettled: use more partitions, or a stream")
            return
        session = connection.session()
        session.open()
        self._names += 1
        options = [Copy()] if self.browse else None
        link = self.loop.container.create_receiver(session, self.address, name=f"qpidha-{id(self)}-{self._names}", options=options)
        link.rcv_settle_mode = Link.RCV_SECOND
        self._lane = Lane(link)
        self._lanes.append(self._lane)
        self._arrived_at = time.monotonic()
        self._refill()

    def on_link_opened(self, event: Event) -> None:
        """The broker serves us."""
        if event.connection == self.connection and event.link.remote_source.address is not None:
            with self._changed:
                self._down_since = None

    def link_lost(self) -> None:
        with self._changed:
            self.generation += 1
            self.was_empty = False
            self._buffer.clear()
            self._buffered = 0
            self._settling.clear()
            self._awaited.clear()
            self._deliveries.clear()
            self._lane = None
            self._down_since = self._down_since or time.monotonic()
            del self.losses[:-10]
            self._changed.notify_all()

    def refused(self, link: Any) -> str:
        """What a broker that ends the link refuses."""
        return f"to serve queue {self.address}"

    def on_link_flow(self, event: Event) -> None:
        """Proton tells this after the deliveries that came before it."""
        if event.connection == self.connection:
            with self._changed:
                self._refill()

    def on_delivery(self, event: Event) -> None:
        """Take a message, or the broker's settlement of one."""
        delivery = event.delivery
        link = delivery.link
        if event.connection != self.connection or not link.is_receiver:
            return
        if delivery.settled and not delivery.readable:
            with self._changed:
                self._settled(delivery)
        elif delivery.readable and not delivery.partial:
            payload = link.recv(delivery.pending) or b""
            link.advance()
            with self._changed:
                self._arrived(payload, delivery, link)

    def _arrived(self, payload: bytes, delivery: Any, link: Any) -> None:
        lane = next((lane for lane in reversed(self._lanes) if lane.link == link), None)
        if lane is None:
            return
        self._arrived_at = time.monotonic()
        self._number += 1
        item = Received(payload, self._number, self.generation)
        self._largest = max(item.size, self._largest * 0.99 if self._buffered else 1)
        if self.browse or delivery.settled:
            item.is_settled = True
            delivery.settle()
        else:
            self._deliveries[item.number] = delivery, lane
            lane.messages += 1
            lane.bytes += item.size
        self._buffer.append(item)
        self._buffered += item.size
        self._refill()
        self._changed.notify_all()

    def _settled(self, delivery: Any) -> None:
        # The broker's tags are bytes, which proton's `tag` cannot show; the C object lives as long as the delivery.
        item = self._awaited.pop(delivery._impl, None)
        delivery.settle()
        if item is None:
            return
        item.is_settled = delivery.remote_state == Delivery.ACCEPTED
        _, lane = self._deliveries.pop(item.number)
        lane.messages -= 1
        lane.bytes -= item.size
        if not self._awaited:
            self._changed.notify_all()

    def work(self) -> None:
        with self._changed:
            while self._settling:
                item = self._settling.popleft()
                delivery, _ = self._deliveries[item.number]
                self._awaited[delivery._impl] = item
                delivery.update(Delivery.ACCEPTED)
            self._refill()

    def _refill(self) -> None:
        """Ask for as many messages as there is room for."""
        lane = self._lane
        if lane is None or self._failure or (self.until_empty and self.was_empty):
            return
        if self.until_empty and lane.link.drain_mode:
            # What has come and was not handed over yet is still credit.
            if lane.link.draining() or lane.link.queued:
                # What is only looked at fills no session, and a new receiver would see the queue from its beginning.
                if not self.browse and time.monotonic() - self._arrived_at > STALL:
                    self._change_lane()
                return
            lane.link.drain_mode = False
            if lane.link.drained() > 0:
                self.was_empty = True
                self._changed.notify_all()
                return
        credit = lane.link.credit
        if credit > self._prefetch // 2:
            return
        room = min(self._prefetch, self._hold - len(self._buffer), self._fits(BYTES - self._buffered)) - credit
        if not self.browse:
            free = min(SESSION_MESSAGES - lane.messages, self._fits(SESSION_BYTES - lane.bytes)) - credit
            if free <= 0 < room and not credit:
                self._change_lane()
                return
            room = min(room, free)
        if room > 0:
            (lane.link.drain if self.until_empty else lane.link.flow)(room)
            self._arrived_at = time.monotonic()

    def _fits(self, size: int) -> int:
        """Return how many messages are as large as that, one at least if there is any room."""
        return max(int(size / self._largest), 1) if size > 0 else 0

    def _change_lane(self) -> None:
        """Go on with a session that has nothing unsettled, or a new one."""
        free = next((lane for lane in self._lanes if not lane.messages and not lane.link.credit), None)
        if free is None:
            self._open_lane(self.connection)
            return
        self._lane = free
        self._arrived_at = time.monotonic()
        self._refill()

    def ended(self) -> None:
        """Leave the broker; what was not taken goes back at once, as if it had never been delivered."""
        with self._changed:
            for item in self._buffer:
                if item.number in self._deliveries:
                    delivery, _ = self._deliveries[item.number]
                    delivery.update(Delivery.RELEASED)
                    delivery.settle()
            self._buffer.clear()
            self._deliveries.clear()
        super().ended()
