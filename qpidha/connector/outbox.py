"""The outbox: sends messages to queues and waits until each is accepted, through failovers.

The AMQP side runs in the thread of the client's loop; `send` and `finish` are for one other thread. What has no outcome when a
connection is lost is sent again, and may then be there twice; so is what a broker gives back. Both come before anything new, in order.
"""

from __future__ import annotations

import time
from bisect import insort
from collections import deque
from typing import Any

from proton import Delivery, Event
from proton.reactor import Container

from qpidha.connector.options import Options
from qpidha.connector.queue_client import ConnectorFailure, QueueClient

PAUSE = 0.1
"""Seconds before a message that a broker gave back is sent to it again."""


class Sent:
    """A message on its way."""

    __slots__ = ("name", "number", "payload", "queue", "since")

    def __init__(self, queue: str, payload: bytes, name: str, number: int) -> None:
        self.queue = queue
        self.payload = payload
        self.name = name
        """Its id, for errors."""
        self.number = number
        """Its place among all messages of the outbox."""
        self.since = time.monotonic()


class Lane:
    """What goes to one queue."""

    __slots__ = ("link", "pause_until", "unsettled", "waiting")

    def __init__(self) -> None:
        self.link: Any = None
        self.pause_until = 0.0
        self.waiting: deque[Sent] = deque()
        self.unsettled: dict[str, Sent] = {}
        """Tag -> message, in the order sent."""

    def send_again(self, item: Sent) -> None:
        """Put a message back into its place among those that wait."""
        insort(self.waiting, item, key=lambda sent: sent.number)


class Outbox(QueueClient):
    """Sends to any number of queues over one connection; at most `prefetch` messages are on their way."""

    def __init__(self, options: Options) -> None:
        super().__init__(options, "")
        self.accepted = 0
        self._window = options.prefetch
        self._timeout = options.timeout
        self._lanes: dict[str, Lane] = {}
        self._under_way = 0
        self._number = self._tag = 0
        self._last = "no broker has answered yet"

    # For the thread that sends.

    def send(self, queue: str, payload: bytes, name: str) -> None:
        """Send a message, as soon as there is room for it. Raises ConnectorFailure if this or an earlier one cannot be delivered."""
        with self._changed:
            self._wait(self._window - 1)
            self._number += 1
            self._lanes.setdefault(queue, Lane()).waiting.append(Sent(queue, payload, name, self._number))
            self._under_way += 1

    def finish(self) -> None:
        """Wait until every message is accepted. Raises ConnectorFailure if one is not."""
        with self._changed:
            self._wait(0)

    def _wait(self, most: int) -> None:
        """Wait until no more than so many messages are under way."""
        self._check()
        while self._under_way > most:
            self._changed.wait(0.5)
            self._check()

    def _check(self) -> None:
        self.check_alive()
        heads = [head for lane in self._lanes.values() for head in (*list(lane.unsettled.values())[:1], *list(lane.waiting)[:1])]
        oldest = min(heads, key=lambda item: item.since, default=None)
        if oldest is not None and time.monotonic() - oldest.since > self._timeout:
            raise ConnectorFailure(
                f"message {oldest.name} was not accepted on queue {oldest.queue} within {self._timeout:g} s (option timeout); "
                f"{', '.join(self.addresses)}: {self._last}; qpid-ha status --explain tells what a broker waits for"
            )

    # For the client's loop.

    def open_link(self, container: Container, connection: Any) -> None:
        """Links are attached when there is something to send."""
        self._last = f"{self.dialled} serves and did not answer"

    def link_lost(self) -> None:
        with self._changed:
            self._last = self.losses[-1] if self.losses else self._last
            del self.losses[:-10]
            for lane in self._lanes.values():
                lane.link = None
                for item in reversed(lane.unsettled.values()):
                    lane.send_again(item)
                lane.unsettled.clear()
            self._changed.notify_all()

    def refused(self, link: Any) -> str:
        """What a broker that ends the link refuses."""
        queue = next((name for name, lane in self._lanes.items() if lane.link == link), "")
        return f"to take messages for queue {queue}"

    def on_sendable(self, event: Event) -> None:
        """There is credit."""
        if event.connection == self.connection:
            self.work()

    def work(self) -> None:
        with self._changed:
            if self.connection is None or self._failure:
                return
            now = time.monotonic()
            for queue, lane in self._lanes.items():
                if lane.waiting and lane.link is None:
                    lane.link = self.loop.container.create_sender(self.connection, queue, name=f"qpidha-{id(self)}-{queue}")
                elif lane.waiting and now >= lane.pause_until:
                    self._serve(lane)

    def _serve(self, lane: Lane) -> None:
        """Send as much as the broker takes."""
        largest = lane.link.remote_max_message_size
        while lane.waiting and lane.link.credit > 0:
            item = lane.waiting[0]
            if largest and len(item.payload) > largest:
                self._fail(f"message {item.name} has {len(item.payload)} bytes, queue {item.queue} takes {largest} at most")
                return
            lane.waiting.popleft()
            self._tag += 1
            delivery = lane.link.delivery(str(self._tag))
            lane.unsettled[delivery.tag] = item
            lane.link.send(item.payload)
            lane.link.advance()

    def on_accepted(self, event: Event) -> None:
        """The message is on every broker that must have it."""
        if self._outcome(event) is not None:
            with self._changed:
                self.accepted += 1
                self._under_way -= 1
                self._changed.notify_all()
                self.work()

    def on_rejected(self, event: Event) -> None:
        """The broker will not have it."""
        item = self._outcome(event)
        if item is not None:
            condition = event.delivery.remote.condition
            why = f"{condition.name}: {condition.description}" if condition is not None else "no reason given"
            self._fail(f"queue {item.queue} rejects message {item.name}: {why}")

    def on_released(self, event: Event) -> None:
        """The broker gives it back."""
        item = self._outcome(event)
        if item is not None:
            with self._changed:
                modified = event.delivery.remote_state == Delivery.MODIFIED
                self._last = f"{self.dialled} gave it back ({'modified' if modified else 'released'})"
                lane = self._lanes[item.queue]
                lane.send_again(item)
                lane.pause_until = time.monotonic() + PAUSE

    def _outcome(self, event: Event) -> Sent | None:
        if event.connection != self.connection:
            return None
        with self._changed:
            lane = next((lane for lane in self._lanes.values() if lane.link == event.link), None)
            return lane.unsettled.pop(event.delivery.tag, None) if lane is not None else None
