"""Streams: the AMQP connections of one broker by their ids: who has something to send, and when
each wants to be ticked.

A connection that is being opened has to hurry; one that is open has heartbeats. Output is collected
once a turn, from those that were woken. An error that is nobody's word is a mistake of ours; what
becomes of it the owner decides. Knows nothing of what is said on a connection.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator

from qpidha.amqp.peer.connection import Connection
from qpidha.model.deadlines import Deadlines
from qpidha.model.duration import MILLISECOND, SECOND
from qpidha.model.events import BytesReceived, Computed, ConnectionLost

FROZEN_BYTES = 64 << 20
"""So much of what clients send is put off."""
HEARD_BYTES = 4 << 20
"""Bytes of what was put off that one turn hears, or an eighth of it all: more than comes meanwhile.
"""
LEAST = 1 << 10
"""Bytes that anything put off counts for beside its own."""
LATE_A_TURN = 4
"""Connections of clients with too much for one turn that go on in the same: each may take some
hundredths of a second.
"""
AT_ONCE = 1
"""A deadline that is over."""
TOGETHER = 50 * MILLISECOND
"""Connections whose deadlines are in the same interval of this length, a second away or more, are
ticked in one turn, at its end.
"""
PutOff = BytesReceived | Computed | ConnectionLost
"""What of a client's can be put off."""


class Streams:
    """All of them."""

    def __init__(self, isolate: Callable[[Connection, Exception], bool]) -> None:
        self.isolate = isolate
        """End the connection that met a mistake of ours, or say that this is not enough."""
        self.by_id: dict[int, Connection] = {}
        self.clients: dict[int, None] = {}
        """Those of clients that were let in."""
        self.woken: dict[int, None] = {}
        """Whose output is to be collected at the end of the turn; also of streams that are no AMQP
        connections.
        """
        self.frozen = False
        """Whether clients are not listened to, because another broker is to be primary."""
        self._put_off: deque[PutOff] = deque()
        """What they did meanwhile, and since then while all of it has not been heard."""
        self._put_off_of: Counter[int] = Counter()
        """Connection -> how much of that is from it."""
        self._put_off_bytes = 0
        self._hears = self._is_patient = False
        self.late: dict[int, ConnectionLost | None] = {}
        """Connections that go on in the next turn with what came, and what ends them after that."""
        self._deadlines: Deadlines[int] = Deadlines()
        self._opening: dict[int, None] = {}

    def add(self, connection: Connection, now: int) -> None:
        """Take a new connection in."""
        number = connection.connection_id
        self.by_id[number] = connection
        self._opening[number] = None
        self._tick(number, connection, now)
        self.woken[number] = None

    @property
    def first_deadline(self) -> int:
        """When `tick` is wanted next, 0 for never."""
        return self._deadlines.first

    def received(self, connection: Connection, data: bytes, now: int) -> None:
        """Give a connection what its peer sent; one that is late has it when it goes on."""
        try:
            if connection.connection_id in self.late and connection.goes_on:
                connection.receive_later(data)
            else:
                connection.receive(data)
        except Exception as error:
            if not self.isolate(connection, error):
                raise
        self._heard(connection, now)

    def go_on(self, now: int) -> list[ConnectionLost]:
        """Let some connections go on with what came before, others the next time; give the ends of
        those whose streams are gone and who have no more to say.
        """
        ends = []
        going: list[tuple[Connection, ConnectionLost | None]] = []
        ordinary = 0
        late, self.late = self.late, {}
        for number, end in late.items():
            connection = self.by_id.get(number)
            if connection is None:
                continue
            if connection.principal.is_ordinary:
                if ordinary == LATE_A_TURN or self.frozen:
                    self.late[number] = end
                    continue
                ordinary += 1
            going.append((connection, end))
        for connection, end in going:
            number = connection.connection_id
            self.received(connection, b"", now)
            if end is not None:
                if number in self.late:
                    self.late[number] = end
                else:
                    ends.append(end)
        return ends

    def is_heard_out(self, connection: Connection, end: ConnectionLost) -> bool:
        """Whether all was heard that came before the end of a stream; if not, `go_on` gives that
        end again, and nothing is sent there until then.
        """
        if not connection.goes_on:
            return True
        self.late[end.connection_id] = end
        connection.set_congested(True)
        return False

    def rests(self, connection: Connection) -> bool:
        """Whether nothing is done for a connection, because another broker is to be primary."""
        return self.frozen and connection.principal.is_ordinary

    def computed(self, connection: Connection, event: Computed, now: int) -> None:
        """Give a connection what came of its arithmetic."""
        try:
            if event.error is not None:
                raise event.error
            connection.computed(event.result)
        except Exception as error:
            if not self.isolate(connection, error):
                raise
        self._heard(connection, now)

    def _heard(self, connection: Connection, now: int) -> None:
        """Collect what a connection has to say, and see whether it is open by now."""
        number = connection.connection_id
        self.woken[number] = None
        if connection.goes_on:
            self.late.setdefault(number)
        if number in self._opening:
            if connection.remote_container:
                # Until now it had to hurry up; from now on it has heartbeats.
                del self._opening[number]
            elif not connection.is_held_back:
                return
            self._tick(number, connection, now)

    @property
    def is_overfull(self) -> bool:
        """Whether more has been put off than is good."""
        return self._put_off_bytes > FROZEN_BYTES

    @property
    def is_behind(self) -> bool:
        """Whether there is more to hear of what was put off, or to make of what was heard."""
        if self.frozen:
            return not all(self.rests(self.by_id[number]) for number in self.late)
        return bool(self._put_off or self.late)

    def freeze(self) -> None:
        """Listen to no ordinary client, and hang up on none."""
        self.frozen = self._is_patient = True
        for connection in self.by_id.values():
            if connection.principal.is_ordinary:
                connection.set_patient(True)

    def puts_off(self, connection: Connection, event: PutOff) -> bool:
        """Note what a client did, if it is not listened to, or not all has been heard that was put
        off.
        """
        if self._hears or not (self.frozen or self._put_off):
            return False
        number = connection.connection_id
        # One that has logged in as another broker meanwhile is still heard in order.
        if not connection.principal.is_ordinary and number not in self._put_off_of:
            return False
        self._put_off.append(event)
        self._put_off_of[number] += 1
        self._put_off_bytes += _size(event)
        return True

    def put_off(self) -> Iterator[PutOff]:
        """Give what was put off, as much of it as a turn may have; the clients are listened to
        again when that is all.
        """
        if self._hears:
            return
        self._hears = True
        left = max(HEARD_BYTES, self._put_off_bytes // 8)
        while self._put_off and left > 0 and not self.frozen:
            event = self._put_off.popleft()
            number = event.connection_id
            self._put_off_of[number] -= 1
            if not self._put_off_of[number]:
                del self._put_off_of[number]
            self._put_off_bytes -= _size(event)
            left -= _size(event)
            yield event
        self._hears = False
        if self._is_patient and not (self.frozen or self._put_off):
            self._be_impatient()

    def _be_impatient(self) -> None:
        self._is_patient = False
        for number, connection in self.by_id.items():
            if connection.principal.is_ordinary:
                connection.set_patient(False)
                self._deadlines.set(number, AT_ONCE)  # It has less patience than it said it has.

    def remove(self, number: int) -> Connection | None:
        """Forget a connection, or another stream's wish to be collected."""
        self._deadlines.remove(number)
        self.clients.pop(number, None)
        self._opening.pop(number, None)
        self.woken.pop(number, None)
        self.late.pop(number, None)
        return self.by_id.pop(number, None)

    def tick(self, now: int) -> None:
        """Tick the connections whose time has come."""
        # One whose deadline has moved meanwhile is ticked as well, which costs little, once.
        for number in self._deadlines.due(now):
            connection = self.by_id[number]
            try:
                self._tick(number, connection, now)
            except Exception as error:
                if not self.isolate(connection, error):
                    raise
            self.woken[number] = None

    def _tick(self, number: int, connection: Connection, now: int) -> None:
        at = connection.tick(now)
        # A turn for each of thousands of heartbeats would cost more than they do.
        if at - now >= SECOND:
            at += -at % TOGETHER
        self._deadlines.set(number, at)


def _size(event: PutOff) -> int:
    """Return how much of a turn an event takes, in bytes."""
    return len(event.data) + LEAST if isinstance(event, BytesReceived) else LEAST
