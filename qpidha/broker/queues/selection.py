"""Selection: what selectors find on a queue, so that nobody looks at a message twice for nothing.

A consumer with a selector leaves in place what it does not select. A million such messages must not
be gone through again for each one that comes. So a queue has a `View` for each selector of its
consumers: how far it has looked, and what it found there but did not hand out. It looks again only
at what was given back, for an outcome may have changed what the selector reads.

- A view looks no further than to the next message that it selects, unless the ordering is not that
  of the sequences: then it has to know all that it selects before it hands out the first.
- A look costs by the selector and by the size of the message. A dispatch has so much to spend for
  all views, `LOOKED_A_TURN`, and each of them its share; the next turn goes on.
- Consumers with the same selector share a view.

Views are the primary's alone, and nothing of them is recorded: a successor looks anew.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from qpidha.broker.queues.backlog import Backlog
    from qpidha.broker.queues.ordering import Ordering
    from qpidha.model.message import Message

LOOKED_A_TURN = 2000
"""What a dispatch spends for looking at messages, in the cost of one small message and one
comparison; 5 to 10 ms.
"""
SMALLEST_SHARE = 50
"""What one view of many may spend at least, when it is its turn."""
LARGE = 512
"""So many bytes of a message cost as much to look at as one small message."""
PAGED_OUT = 5
"""What it costs more to look at a message whose bytes are not in memory."""
SLACK = 1000
"""Messages that were given back, beyond as many as are on the queue, that are kept in mind for a
view that does not look: it begins anew after that.
"""
SEQUENCE = (1 << 64) - 1
"""The part of a place that is the sequence."""


class Selector(Protocol):
    """Says which messages a consumer wants. Equal ones select the same."""

    @property
    def cost(self) -> int:
        """How much more a look costs than that of one comparison, 1 at least."""
        ...

    def selects(self, message: Message) -> bool:
        """Whether a message is wanted, by what it says now."""
        ...


def price(selector: Selector, message: Message) -> int:
    """Say what it costs to look at a message."""
    is_here = isinstance(message.payload, bytes)
    return selector.cost + message.size // LARGE + (0 if is_here else PAGED_OUT)


class View:
    """What one selector finds on a queue."""

    __slots__ = ("_cursor", "_found", "is_stopped", "left", "returned", "selector", "users")

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self.users = 0
        """How many consumers have this selector."""
        self.returned = 0
        """How many of the messages that were given back it has looked at again."""
        self.left = 0
        """What it may spend in this turn."""
        self.is_stopped = False
        """Whether that was not enough."""
        self._cursor = 0
        """It has looked at all messages up to this sequence."""
        self._found: list[int] = []
        """A heap of the places of messages up to the cursor: those that it selects, and those that
        were given back.
        """

    def restart(self) -> None:
        """Look at everything again."""
        self._cursor = 0
        self._found.clear()

    def has_news(self, backlog: Backlog, returned: list[int]) -> bool:
        """Whether there may be something to look at."""
        return bool(
            self._found or self.returned < len(returned) or self._cursor < backlog.ordering.last
        )

    def take(self, backlog: Backlog, returned: list[int]) -> Message | None:
        """Return the next available message that is selected; None if there is none, or nothing
        `left` to look for it.
        """
        if self.returned < len(returned):
            self._look_again(backlog, returned)
        if not backlog.ordering.is_by_sequence:
            for message in self._look(backlog):
                heappush(self._found, backlog.ordering.place(message))
        messages, found = backlog.messages, self._found
        while found and not self._stops():
            self.left -= 1
            taken = messages.get(heappop(found) & SEQUENCE)
            if taken is not None and not taken.acquired and self._still_selects(taken):
                return taken
        return next(self._look(backlog), None)

    def _still_selects(self, message: Message) -> bool:
        """Whether a message is selected that was found, or given back: that may have changed it."""
        return not message.released or self._selects_now(message)

    def _selects_now(self, message: Message) -> bool:
        self.left -= price(self.selector, message)
        return self.selector.selects(message)

    def keep(self, backlog: Backlog, messages: Iterable[Message]) -> None:
        """Messages that `take` gave stay available."""
        for message in messages:
            heappush(self._found, backlog.ordering.place(message))

    def _look(self, backlog: Backlog) -> Iterator[Message]:
        """Walk through the selected messages after the cursor, as long as something is left to look
        for them.
        """
        ordering, selector = backlog.ordering, self.selector
        if self._cursor >= ordering.last:
            return
        selects = selector.selects
        for message in ordering.after(self._cursor):
            if self.left <= 0:
                self.is_stopped = True
                return
            self._cursor = message.sequence
            # One that somebody has is looked at when it is given back.
            if message.acquired:
                self.left -= 1
            else:
                self.left -= price(selector, message)
                if selects(message):
                    yield message
        self._cursor = max(self._cursor, ordering.last)

    def _look_again(self, backlog: Backlog, returned: list[int]) -> None:
        """Take note of messages that were given back."""
        messages, found = backlog.messages, self._found
        while self.returned < len(returned) and not self._stops():
            message = messages.get(returned[self.returned])
            self.returned += 1
            self.left -= 1
            if message is None or message.sequence > self._cursor:
                continue
            # One that nobody has had was not looked at, as it was not due.
            if message.released or self._selects_now(message):
                heappush(found, backlog.ordering.place(message))
        if len(found) > 2 * len(messages) + SLACK:
            found[:] = {place for place in found if place & SEQUENCE in messages}
            heapify(found)

    def _stops(self) -> bool:
        """Whether nothing is left to spend."""
        self.is_stopped = self.left <= 0
        return self.is_stopped


class Views:
    """The views of the consumers of one queue."""

    __slots__ = ("_first", "_ordering", "_returned", "_views")

    def __init__(self) -> None:
        self._views: dict[Selector, View] = {}
        self._ordering: Ordering | None = None
        """What was looked at; another one begins anew."""
        self._returned: list[int] = []
        """Sequences of messages that were given back, and not looked at again by all."""
        self._first = 0
        """Which view is the first to spend something in the next turn."""

    def __bool__(self) -> bool:
        return bool(self._views)

    def join(self, selector: Selector) -> None:
        """A consumer with this selector has subscribed."""
        view = self._views.get(selector)
        if view is None:
            view = self._views[selector] = View(selector)
            view.returned = len(self._returned)
        view.users += 1

    def leave(self, selector: Selector) -> None:
        """A consumer with this selector is gone."""
        view = self._views[selector]
        view.users -= 1
        if not view.users:
            del self._views[selector]

    def give_back(self, message: Message, count: int) -> None:
        """A message is available again, on a queue that has so many."""
        self._returned.append(message.sequence)
        if len(self._returned) > count + SLACK:
            for view in self._views.values():
                if view.returned < len(self._returned):
                    view.restart()
                view.returned = 0
            self._returned.clear()

    def restart(self) -> None:
        """No message is with a consumer: look at all of them again."""
        self._returned.clear()
        for view in self._views.values():
            view.returned = 0
            view.restart()

    def begin(self, backlog: Backlog, selectors: Iterable[Selector]) -> dict[Selector, View]:
        """Begin a turn in which messages are handed out to consumers with these selectors; return
        the view of each.
        """
        if self._ordering is not backlog.ordering:
            self._ordering = backlog.ordering
            self.restart()
        views = {selector: self._views[selector] for selector in selectors}
        looking = []
        for view in views.values():
            view.left, view.is_stopped = 1, False
            if view.has_news(backlog, self._returned):
                looking.append(view)
        if len(looking) == 1:
            looking[0].left = LOOKED_A_TURN
        elif looking:
            self._share(looking)
        return views

    def _share(self, looking: list[View]) -> None:
        """Let each of these views spend something; those that get nothing are first next time."""
        share = max(LOOKED_A_TURN // len(looking), SMALLEST_SHARE)
        served = min(LOOKED_A_TURN // share or 1, len(looking))
        first = self._first % len(looking)
        for place, view in enumerate(looking[first:] + looking[:first]):
            view.left = share if place < served else 0
        self._first = first + served

    def take(self, view: View, backlog: Backlog) -> Message | None:
        """Return the next available message of a view."""
        return view.take(backlog, self._returned)

    def finish(self, views: Iterable[View]) -> bool:
        """End a turn; return whether there may be more to find for these."""
        if self._returned and all(
            view.returned == len(self._returned) for view in self._views.values()
        ):
            self._returned.clear()
            for view in self._views.values():
                view.returned = 0
        return any(view.is_stopped for view in views)
