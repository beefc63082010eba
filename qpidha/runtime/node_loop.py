"""Node loop: what happened during one turn of the event loop is one `node.step`, and
its effects follow.

Streams put events; the first of a turn schedules the step for the next one, so everything that was
readable together is handled together and each connection is written once. A timer stands for
`node.next_deadline`. Knows nothing of sockets; who carries out an effect is given by its type.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from qpidha.model.effects import Effect
from qpidha.model.events import Event, Stalled, Tick
from qpidha.runtime.clock import Clock

_SHORTEST_WAIT = 0.001
"""Seconds: the loop's timers count milliseconds, and a deadline that stays in the past must not
take the whole processor.
"""
STALL = 100_000_000
"""Nanoseconds from which on a turn, or a timer that is late, counts as a stall."""


class SteppedNode(Protocol):
    """A node as the loop sees it."""

    @property
    def next_deadline(self) -> int:
        """When to be ticked, in nanoseconds since the Unix epoch; 0 for never."""

    def start(self, now: int) -> Sequence[Effect]:
        """Begin: called once, before the first step."""

    def step(self, events: list[Event], now: int, ahead: int) -> Sequence[Effect]:
        """Handle what happened; say what to do. The wall clock is `ahead` of `now` by so many
        nanoseconds.
        """


class NodeLoop:
    """Feeds one node with events and has its effects carried out."""

    __slots__ = (
        "_armed",
        "_clock",
        "_ended",
        "_events",
        "_handlers",
        "_loop",
        "_node",
        "_scheduled",
        "_timer",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._events: list[Event] = []
        self._handlers: dict[type, Callable[[Any], None]] = {}
        self._node: SteppedNode | None = None
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._armed = 0
        self._ended = 0
        """When the last turn was over."""

    def start(self, node: SteppedNode, handlers: dict[type, Callable[[Any], None]]) -> None:
        """Step `node` from now on; `handlers` has one for each type of effect."""
        self._node = node
        self._handlers = handlers
        # A deadline of the past means at once, and nothing was late before the node was there.
        self._ended = self._clock.now()
        self._obey(node, node.start(self._ended))
        if self._events:
            self._schedule()

    def stop(self) -> None:
        """Take no further step."""
        self._node = None
        self._events.clear()
        if self._timer is not None:
            self._timer.cancel()

    def put(self, event: Event) -> None:
        """Note what happened; it is handled with all else of this turn."""
        self._events.append(event)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        if self._node is not None:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        node = self._node
        if node is None:
            return
        events = self._events
        self._events = []
        begun = self._clock.now()
        self._obey(node, node.step(events, begun, self._clock.ahead()))
        self._ended = ended = self._clock.now()
        if ended - begun >= STALL:
            self.put(Stalled(ended - begun))

    def _obey(self, node: SteppedNode, effects: Sequence[Effect]) -> None:
        """Carry out what a step asks for, in order."""
        handlers = self._handlers
        for effect in effects:
            handlers[type(effect)](effect)
        self._arm(node)

    def _arm(self, node: SteppedNode) -> None:
        """See that the timer fires no later than the next deadline; one that fires too early is set
        anew.
        """
        deadline = node.next_deadline
        if deadline == 0 or (self._armed and self._armed <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed = deadline
        wait = (deadline - self._clock.now()) / 1e9
        self._timer = self._loop.call_later(max(wait + 0.0005, _SHORTEST_WAIT), self._due)

    def _due(self) -> None:
        self._timer = None
        armed, self._armed = self._armed, 0
        node = self._node
        if node is None:
            return
        late = self._clock.now() - max(armed, self._ended)  # What the turn took is counted already.
        if late >= STALL:
            self.put(Stalled(late))
        if 0 < node.next_deadline <= self._clock.now():
            self.put(Tick())
        else:
            self._arm(node)
