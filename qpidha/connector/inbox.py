"""The inbox: messages of one queue as they come, through failovers, to be taken and settled.

Messages that were not taken when their connection is lost are forgotten: the broker delivers them
again. Brokers bound what one session may leave unsettled, so that receivers take turns on several
sessions of the connection, one at a time, which keeps the order of the queue. What is browsed fills
none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

from qpidha.client.blocking import Client, Receiver
from qpidha.client.errors import ClientError, TimedOut
from qpidha.client.links import Received as Message
from qpidha.connector.options import Options
from qpidha.connector.queue_client import ConnectorFailure, QueueClient

BYTES = 32 << 20
"""Bytes of a micro-batch: far below what Spark takes as one task (128 MiB), also with the largest
message.
"""
AHEAD = 16 << 20
"""Bytes that a broker may send before they are taken."""
GUESS = 1 << 20
"""Bytes of a message to be expected before the first has come."""
SESSION_MESSAGES = 4000
"""Messages that one session leaves unsettled; a broker allows 5000 unless told otherwise."""
SESSION_BYTES = 16 << 20
"""Bytes of these; a broker allows 64 MiB."""
SESSIONS = 250
"""Sessions of a connection; a broker allows 256."""
LINGER = 0.05
"""Seconds without a message after which what has come is enough, or a broker is asked whether there
is more.
"""
STALL = 1.0
"""Seconds for which a broker may leave a consumer's question for messages unanswered: the session
is full for it, go on with another.
"""


class Received:
    """A message that was delivered."""

    __slots__ = ("generation", "message", "payload", "size")

    def __init__(self, message: Message, generation: int) -> None:
        self.message = message
        self.payload = message.unload()
        self.size = len(self.payload)
        self.generation = generation
        """Of the connection that it came on."""

    @property
    def is_settled(self) -> bool:
        """Whether the broker has confirmed that the message is gone."""
        return self.message.is_confirmed


class Lane:
    """A receiver in a session of its own."""

    __slots__ = ("_confirmed", "_taken", "bytes", "receiver")

    def __init__(self, client: Client, queue: str, *, browse: bool, timeout: float) -> None:
        self.bytes = self._taken = self._confirmed = 0
        self.receiver: Receiver = client.receiver(
            queue,
            credit=0,
            browse=browse,
            confirm=True,
            own_session=True,
            on_confirmed=self._count,
            timeout=timeout,
        )

    @property
    def unsettled(self) -> int:
        """Messages that were taken and are not settled."""
        return self._taken - self._confirmed

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is here, on its way or unsettled."""
        receiver = self.receiver
        return not (self.unsettled or receiver.credit or receiver.buffered)

    def take(self, generation: int) -> Received:
        """Take the next message; there must be one."""
        item = Received(self.receiver.receive(0.0), generation)
        if not item.is_settled:
            if not self.unsettled:
                self.bytes = 0
            self._taken += 1
            self.bytes += item.size
        return item

    def _count(self, message: Message) -> None:
        """Note that a message is settled; called from the client's thread too, and never from two
        at a time.
        """
        self._confirmed += 1


class Inbox(QueueClient):
    """Receives from one queue; with `until_empty` no more once the queue was found empty."""

    def __init__(
        self, options: Options, queue: str, *, browse: bool = False, until_empty: bool = False
    ) -> None:
        super().__init__(options)
        self.queue = queue
        self.browse = browse
        self.until_empty = until_empty
        self._was_empty = False
        """Whether the queue was found empty on this connection."""
        self._window = min(options.prefetch, options.rows_per_batch, SESSION_MESSAGES)
        self._lanes: list[Lane] = []
        self._lane: Lane | None = None
        """The one that has its turn; others only have what was asked of them."""
        self._left_over: Received | None = None
        """A message that was too large for the batch that it came for."""
        self._largest = 0.0
        """Bytes of the largest of the last messages."""
        self._down_since: float | None = time.monotonic()

    def take(self, rows: int, size: int, wait: float) -> list[Received]:
        """Return up to so many messages or bytes, one at least if there are any within `wait`
        seconds of a connection; all are of the present one.

        Raises ConnectorFailure when there will be none.
        """
        while True:
            try:
                lane = self._lane or self._begin()
                return self._fill(lane, rows, size, time.monotonic() + wait)
            except ClientError as error:
                self._lost(error, f"to serve queue {self.queue}")

    def settle(self, items: Iterable[Received]) -> list[Received]:
        """Accept messages, wait until the broker has settled them, and return those of which this
        is not known.

        Raises ConnectorFailure when the broker is there and does not settle them in time.
        """
        wanted = list(items)
        deadline = time.monotonic() + self._timeout
        try:
            for item in wanted:
                if item.generation == self.generation and not item.is_settled:
                    item.message.accept()
            for lane in self._lanes:
                lane.receiver.wait_confirmed(max(0.0, deadline - time.monotonic()))
                if lane.receiver.error is not None:
                    raise lane.receiver.error
        except TimedOut:
            raise ConnectorFailure(
                f"the broker at {self._where} did not settle messages of queue {self.queue} in "
                "time",
                hint=self._hint,
            ) from None
        except ClientError as error:
            self._lost(error, f"to serve queue {self.queue}")
        return [item for item in wanted if not item.is_settled]

    @property
    def is_finished(self) -> bool:
        """Whether the queue was found empty and all that came was taken; a connection that is lost
        undoes this.
        """
        return self._was_empty and self._next_lane() is None and self._left_over is None

    def close(self) -> None:
        """Leave the broker; what was not taken goes back at once, as if it had never been
        delivered.
        """
        lanes, self._lanes, self._lane = self._lanes, [], None
        item, self._left_over = self._left_over, None
        with suppress(ClientError):
            if item is not None:
                item.message.release()
            for lane in lanes:
                if lane.receiver.credit:
                    lane.receiver.drain(STALL)  # What is on its way counts as delivered.
        for lane in lanes:
            with suppress(ClientError):
                lane.receiver.close()
        super().close()

    # The connection.

    def _begin(self) -> Lane:
        """Connect and attach."""
        if self._down_since is None:
            self._down_since = time.monotonic()
        deadline = self._down_since + self._timeout
        self._was_empty = False
        client = self._connect(deadline)
        lane = self._open_lane(client, max(0.0, deadline - time.monotonic()))
        self._down_since = None
        return lane

    def _lost(self, error: ClientError, refused: str) -> None:
        self._down_since = self._down_since or time.monotonic()
        self._was_empty = False
        super()._lost(error, refused)

    def _open_lane(self, client: Client, timeout: float) -> Lane:
        if len(self._lanes) >= SESSIONS:
            raise ConnectorFailure(
                f"more than {SESSIONS * SESSION_MESSAGES} messages of queue {self.queue} would be "
                "unsettled",
                hint="use more partitions, or a stream",
            )
        lane = self._lane = Lane(client, self.queue, browse=self.browse, timeout=timeout)
        self._lanes.append(lane)
        return lane

    # Taking.

    def _fill(self, lane: Lane, rows: int, size: int, end: float) -> list[Received]:
        taken: list[Received] = []
        while len(taken) < rows:
            item = self._next()
            if item is None:
                if not self._wait_for_more(end, enough=bool(taken)):
                    break
            elif taken and item.size > size:
                self._left_over = item
                break
            else:
                size -= item.size
                taken.append(item)
        self._ask()
        return taken

    def _next(self) -> Received | None:
        """Take a message that is here."""
        item, self._left_over = self._left_over, None
        if item is None:
            lane = self._next_lane()
            if lane is not None:
                item = lane.take(self.generation)
                self._largest = max(item.size, self._largest * 0.99)
        return item

    def _next_lane(self) -> Lane | None:
        lane = self._lane
        if lane is None or lane.receiver.buffered:
            return lane
        # One that was left because its session was full has more when there is room again.
        return next((lane for lane in self._lanes if lane.receiver.buffered), None)

    def _wait_for_more(self, end: float, *, enough: bool) -> bool:
        """Ask for messages, wait for one, and return whether to look again."""
        if self._was_empty and self.until_empty:
            return False
        lane = self._ask()
        receiver, client = lane.receiver, self._client
        assert client is not None
        left = max(0.0, end - time.monotonic())
        pause = min(left, LINGER) if enough or self.until_empty else left
        if client.wait(lambda: receiver.buffered > 0 or receiver.error is not None, pause):
            if receiver.error is not None:
                raise receiver.error
            return True
        if not self.until_empty:
            return False
        self._look_whether_empty(lane)
        return not self._was_empty and time.monotonic() < end

    def _look_whether_empty(self, lane: Lane) -> None:
        """Have the broker use its credit or give it back: if nothing comes, nothing is there, or
        the session is full for it.
        """
        receiver = lane.receiver
        is_full = False
        try:
            is_empty = not receiver.drain(STALL)
            is_full = is_empty and not self.browse and receiver.kept_back > 0
            self._was_empty = is_empty and not is_full
        except TimedOut:
            # What is only looked at fills no session, and a new receiver would see the queue from
            # its beginning.
            is_full = not self.browse and not receiver.buffered
        if is_full:
            self._change_lane()

    def _ask(self) -> Lane:
        """Ask for as many messages as there is room for, and return the lane that they come on."""
        lane = self._lane
        assert lane is not None
        receiver = lane.receiver
        coming = receiver.credit + receiver.buffered
        if receiver.credit > self._window // 2 or (self._was_empty and self.until_empty):
            return lane
        room = min(self._window, self._fits(AHEAD))
        if not self.browse:
            free = SESSION_MESSAGES - lane.unsettled
            if lane.unsettled:
                free = min(free, self._fits(SESSION_BYTES - lane.bytes))
            if free <= 0 and not coming:
                self._change_lane()
                return self._ask()
            room = min(room, free)
        if room > coming:
            receiver.add_credit(room - coming)
        return lane

    def _fits(self, size: int) -> int:
        """Return how many messages are as large as that, one at least if there is any room."""
        return max(int(size / (self._largest or GUESS)), 1) if size > 0 else 0

    def _change_lane(self) -> None:
        """Go on with a session that has nothing unsettled, or a new one."""
        assert self._client is not None
        free = next((lane for lane in self._lanes if lane.is_at_rest), None)
        if free is None:
            self._open_lane(self._client, self._timeout)
        else:
            self._lane = free
