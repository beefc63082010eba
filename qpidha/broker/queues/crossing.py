"""Crossing: a message goes from a queue in one log to a queue in the other.

What is replicated is in the log of the cluster; what only this broker keeps is in its local log
(`store/local_log.py`). Within one log a message arrives and leaves in one batch, which is there as
a whole or not at all. Two logs have two batches, and a crash may leave either one alone. So what
crosses arrives first and leaves later:

1. In the turn in which it is put on its target it stays where it was. Nobody gets it there, and it
   takes up no room (`Queue.crossing`).
2. When all is committed that both logs had at the end of that turn, it is recorded that it left.
3. When that is committed as well, who waits for it is told.

- A crash leaves the message on one of both queues at least, and perhaps on both: never on neither.
- A broker that decides no more forgets what it has not recorded yet, and the message stays.
- So many messages of a turn as cross do it as one group. Groups come to each step in the order of
  their turns, and what waits for one waits for a place above all of both logs (`BOTH`).
- Of a queue that is in both logs, as its level changes, or soon will be, all crosses that goes to a
  recorded queue: what it will have given to the log of the cluster says what it had.
  So does what goes to one whose messages are worth nothing before a record of the other log is
  committed (`Queue.waits_for`): that of its declaration, or of its new level.

Where all is in one log nothing of this is done. Knows nothing of why messages leave.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from qpidha.broker.queues.log_writer import BOTH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from qpidha.broker.queues.log_writer import LocalWriter, LogWriter
    from qpidha.model.message import Message
    from qpidha.model.records import Cause


class Recorded(Protocol):
    """A queue, as far as it is recorded."""

    log_writer: LogWriter | None
    local_writer: LocalWriter | None
    waits_for: int
    is_rising: bool


class Source(Recorded, Protocol):
    """The queue that messages leave."""

    def begin_crossing(self, message: Message, place: int) -> None: ...

    def stop_crossing(self, message: Message) -> None: ...


class Ends(NamedTuple):
    """A place in each log."""

    cluster: int
    local: int

    def covers(self, other: Ends) -> bool:
        """Whether both places are as far as others."""
        return self.cluster >= other.cluster and self.local >= other.local


Leaving = tuple[Source, "Sequence[Message]", "Cause"]


def crosses(source: Recorded, target: Recorded, committed: int) -> bool:
    """Whether a message that goes from one queue to another may leave only when it has arrived,
    with the log of the cluster `committed` so far.
    """
    is_recorded = target.log_writer is not None or target.local_writer is not None
    if source.log_writer is not None and source.local_writer is None:
        return target.log_writer is None and is_recorded
    if source.log_writer is not None or source.is_rising:
        return is_recorded
    if source.local_writer is None:
        return False
    return target.log_writer is not None or target.waits_for > committed


class Crossings:
    """What is on its way from one log to the other."""

    __slots__ = ("_arriving", "_last", "_leaving", "_open", "over")

    def __init__(self) -> None:
        self._open: list[Leaving] | None = None
        """What crosses in this turn; None if nothing does."""
        self._arriving: deque[tuple[int, Ends, list[Leaving]]] = deque()
        """(place, what is to be committed first, what leaves then) of each group."""
        self._leaving: deque[tuple[int, Ends]] = deque()
        """(place, what is to be committed) of each group whose departures are recorded."""
        self._last = self.over = BOTH
        """The place of the newest group, and of the last one that is committed."""

    @property
    def is_busy(self) -> bool:
        """Whether anything is on its way."""
        return self._open is not None or self._last > self.over

    def place(self) -> int:
        """Return the place to wait for with what crosses in this turn."""
        if self._open is None:
            self._open = []
            self._last += 1
        return self._last

    def add(self, queue: Source, messages: Sequence[Message], cause: Cause) -> int:
        """Let messages leave when what this turn records is committed, for their targets have them
        since then; return the place to wait for.
        """
        place = self.place()
        for message in messages:
            queue.begin_crossing(message, place)
        assert self._open is not None
        self._open.append((queue, messages, cause))
        return place

    def may_go_on(self, committed: Ends) -> bool:
        """Whether something has arrived, and is still to leave."""
        return bool(self._arriving) and committed.covers(self._arriving[0][1])

    def turn(
        self,
        committed: Ends,
        leave: Callable[[Any, Sequence[Message], Cause], None],
        ends: Callable[[], Ends],
    ) -> None:
        """End of a turn: have what has arrived leave. `ends` are those of both logs now."""
        left: list[int] = []
        while self._arriving and committed.covers(self._arriving[0][1]):
            place, _, group = self._arriving.popleft()
            for leaving in group:
                leave(*leaving)
            left.append(place)
        # A queue may have come to its end with this, so more may be recorded than departures.
        now = ends()
        self._leaving.extend((place, now) for place in left)
        if self._open is not None:
            self._arriving.append((self._last, now, self._open))
            self._open = None

    def look(self, committed: Ends) -> int:
        """Return up to which place all is over, with both logs committed so far."""
        while self._leaving and committed.covers(self._leaving[0][1]):
            self.over = self._leaving.popleft()[0]
        return self.over

    def abandon(self) -> None:
        """Another broker decides from now on: what has not left stays, and nobody waits for it."""
        groups = [group for _, _, group in self._arriving]
        for group in (*groups, self._open or ()):
            for queue, messages, _ in group:
                for message in messages:
                    queue.stop_crossing(message)
        self._arriving.clear()
        self._leaving.clear()
        self._open = None
        self.over = self._last
