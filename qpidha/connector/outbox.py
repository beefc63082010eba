"""The outbox: sends messages to queues and waits until each is accepted, through failovers.

What has no outcome when a connection is lost is sent again, and may then be there twice; so is what
a broker gives back. Both come before anything new, in order.
"""

from __future__ import annotations

import time
from bisect import insort
from collections import deque
from functools import partial
from itertools import chain, islice

from qpidha.client.blocking import Sender
from qpidha.client.errors import ClientError, MessageTooLarge
from qpidha.client.links import Delivery
from qpidha.client.message import Message
from qpidha.connector.options import Options
from qpidha.connector.queue_client import ConnectorFailure, QueueClient

PAUSE = 0.1
"""Seconds before a message that a broker gave back is sent to it again."""
TICK = 0.05
"""Seconds between two looks at what waits."""


class Sent:
    """A message on its way."""

    __slots__ = ("name", "number", "payload", "since")

    def __init__(self, payload: bytes, name: str, number: int) -> None:
        self.payload = payload
        self.name = name
        """Its id, for errors."""
        self.number = number
        """Its place among all messages of the outbox."""
        self.since = time.monotonic()


class Lane:
    """What goes to one queue."""

    __slots__ = ("pause_until", "queue", "sender", "unsettled", "waiting")

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.sender: Sender | None = None
        self.pause_until = 0.0
        self.waiting: deque[Sent] = deque()
        self.unsettled: dict[Delivery, Sent] = {}
        """What has no outcome, in the order sent."""

    @property
    def is_ready(self) -> bool:
        """Whether something waits that can be sent, or cannot at all."""
        sender = self.sender
        return bool(
            self.waiting
            and (sender is None or sender.credit or sender.error is not None)
            and time.monotonic() >= self.pause_until
        )

    def send_again(self, item: Sent) -> None:
        """Put a message back into its place among those that wait."""
        insort(self.waiting, item, key=lambda sent: sent.number)


class Outbox(QueueClient):
    """Sends to any number of queues over one connection; at most `prefetch` messages are on their
    way.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.accepted = 0
        self._window = options.prefetch
        self._lanes: dict[str, Lane] = {}
        self._under_way = self._number = 0
        self._check_at = 0.0
        self._heard: deque[tuple[Lane, Delivery]] = deque()
        """What became of messages; it comes from the client's thread too."""

    def send(self, queue: str, payload: bytes, name: str) -> None:
        """Send a message, as soon as there is room for it. Raises ConnectorFailure if this or an
        earlier one cannot be delivered.
        """
        self._wait(self._window - 1)
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = Lane(queue)
        self._number += 1
        self._under_way += 1
        lane.waiting.append(Sent(payload, name, self._number))
        if lane.is_ready:
            self._serve(lane)

    def finish(self) -> None:
        """Wait until every message is accepted. Raises ConnectorFailure if one is not."""
        self._wait(0)

    def _wait(self, most: int) -> None:
        """Wait until no more than so many messages are under way."""
        self._hear()
        self._check_time()
        while self._under_way > most:
            for lane in self._lanes.values():
                if lane.is_ready:
                    self._serve(lane)
            try:
                if self._client is None:
                    time.sleep(TICK)
                else:
                    self._client.wait(self._has_news, TICK)
            except ClientError as error:
                self._lost(error, "to go on")
            self._hear()
            self._check_time()

    def _has_news(self) -> bool:
        return bool(self._heard) or any(lane.is_ready for lane in self._lanes.values())

    def _oldest(self) -> tuple[Lane, Sent]:
        """Return the message that is under way for longest; there must be one."""
        return min(
            (
                (lane, item)
                for lane in self._lanes.values()
                for item in chain(islice(lane.unsettled.values(), 1), islice(lane.waiting, 1))
            ),
            key=lambda found: found[1].since,
        )

    def _check_time(self) -> None:
        """Raise ConnectorFailure if a message is under way for too long."""
        now = time.monotonic()
        if not self._under_way or now < self._check_at:
            return
        self._check_at = now + TICK
        lane, oldest = self._oldest()
        if now - oldest.since > self._timeout:
            raise ConnectorFailure(
                f"message {oldest.name} was not accepted on queue {lane.queue} within "
                f"{self._timeout:g} s (option timeout)",
                reason=f"{self._addresses}: {self._last}",
                hint="qpid-ha status --explain shows what a broker waits for",
            )

    # The connection.

    def _serve(self, lane: Lane) -> None:
        """Send as much as the broker takes."""
        try:
            sender = lane.sender or self._attach(lane)
            if sender.error is not None:
                raise sender.error
            while lane.waiting and sender.credit:
                delivery = sender.send_nowait(Message.decode(lane.waiting[0].payload))
                lane.unsettled[delivery] = lane.waiting.popleft()
        except MessageTooLarge as error:
            raise ConnectorFailure(
                f"queue {lane.queue} does not take message {lane.waiting[0].name}",
                reason=f"{error.text}: {error.reason}",
                hint=error.hint,
            ) from None
        except ClientError as error:
            self._lost(error, f"to take messages for queue {lane.queue}")

    def _attach(self, lane: Lane) -> Sender:
        deadline = self._oldest()[1].since + self._timeout
        client = self._client or self._connect(deadline)
        lane.sender = client.sender(
            lane.queue,
            window=self._window,
            on_outcome=partial(self._note, lane),
            timeout=max(0.0, deadline - time.monotonic()),
        )
        return lane.sender

    def _lost(self, error: ClientError, refused: str) -> None:
        super()._lost(error, refused)
        self._hear()  # Every message without an outcome.
        for lane in self._lanes.values():
            lane.sender = None

    def _note(self, lane: Lane, delivery: Delivery) -> None:
        self._heard.append((lane, delivery))

    def _hear(self) -> None:
        """Take note of what became of messages. Raises ConnectorFailure if one was rejected."""
        heard = self._heard
        while heard:
            lane, delivery = heard.popleft()
            item = lane.unsettled.pop(delivery)
            outcome = delivery.outcome
            if outcome is None:  # Its connection is lost, or its link has ended.
                lane.send_again(item)
            elif outcome.accepted:
                self.accepted += 1
                self._under_way -= 1
            elif outcome.state == "rejected":
                raise ConnectorFailure(
                    f"queue {lane.queue} rejects message {item.name}",
                    reason=f"{outcome.condition}: {outcome.explanation}"
                    if outcome.condition
                    else "no reason given",
                    hint=outcome.hint,
                )
            else:
                self._last = f"{self._where} gave it back ({outcome.state})"
                lane.send_again(item)
                lane.pause_until = time.monotonic() + PAUSE
