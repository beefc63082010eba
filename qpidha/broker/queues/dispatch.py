"""Who may have a message: consumers, and how a queue chooses among them.

A queue is dispatched at the end of a turn of the broker, when something changed: a message came,
one became available again, or a consumer got credit. `Dispatch` then takes messages from the
ordering, one by one, and chooses a consumer for each. There is one kind today, `RoundRobin`. Others
implement `Dispatch` and are chosen by the queue's spec: consumer priorities (the order of the
takers), a single active consumer (one taker), groups (a table from group to taker).

Only the primary dispatches, so nothing here needs to be the same on replicas. Who has a message is
not recorded: after a failover no consumer has any, and unsettled messages are delivered again.

Whether a consumer wants a message is its own affair: `Consumer.accepts` is the place of selectors.
It is asked only of consumers that say they are selective, so that others cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qpidha.broker.queues.backlog import Backlog
    from qpidha.model.message import Message

REFUSALS = 1000
"""After so many refusals a consumer forgets those of messages that have left the queue."""
MAX_REFUSALS = 10_000
"""Messages on a queue that one consumer may have refused: each dispatch passes over them."""
EXPIRED_A_TURN = 5000
"""Expired messages of one queue that a dispatch comes upon at most for the takers, and for each
browser; the next turn goes on.
"""
ACQUIRED_A_TURN = 5000
"""Messages that others have, which a dispatch passes over at most for each browser; the next turn
goes on.
"""


class Consumer(Protocol):
    """Takes messages from a queue, or looks at them (`browse`); the links of clients are such.

    The queue hears from the consumer what becomes of a message: it is dequeued, released, requeued
    or rejected.
    """

    credit: int
    """How many messages it takes now."""
    browse: bool
    exclusive: bool
    is_selective: bool
    """Whether `accepts` may say no."""
    cursor: int
    """The last sequence that a browser was shown; kept by the queue."""

    def accepts(self, message: Message) -> bool:
        """Whether this consumer may have a message."""
        ...

    def refuse(self, message: Message) -> None:
        """Do not accept this message again: it was undeliverable here."""
        ...

    def deliver(self, message: Message) -> None:
        """Take a message and count down `credit`; may dequeue or release it at once, but not
        unsubscribe.
        """
        ...

    def searched(self) -> None:
        """A dispatch that took several turns, for messages that had expired, is over."""
        ...

    def queue_deleted(self) -> None:
        """The queue is gone, and this consumer's subscription with it."""
        ...


class Refusals:
    """The messages that one consumer must not get again."""

    __slots__ = ("_limit", "_sequences")

    def __init__(self) -> None:
        self._sequences: set[int] = set()
        self._limit = REFUSALS

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._sequences

    def __len__(self) -> int:
        return len(self._sequences)

    def add(self, sequence: int, messages: Mapping[int, Message]) -> bool:
        """Remember a message; False if these are too many. `messages` are those of the queue, so
        that others can be forgotten.
        """
        self._sequences.add(sequence)
        if len(self._sequences) > self._limit:
            self._sequences = {known for known in self._sequences if known in messages}
            count = len(self._sequences)
            self._limit = min(2 * count + REFUSALS, max(MAX_REFUSALS, count + REFUSALS))
            return count <= MAX_REFUSALS
        return True


class Dispatch(Protocol):
    """Chooses consumers for the messages of one queue."""

    consumers: dict[Consumer, None]
    """All that are subscribed, in the order in which they came."""

    def join(self, consumer: Consumer) -> None:
        """A consumer has subscribed."""
        ...

    def leave(self, consumer: Consumer) -> None:
        """A consumer is gone; what it had has been released before."""
        ...

    def run(
        self, backlog: Backlog, now: int, *, delivers: bool, shows_expired: bool
    ) -> tuple[list[Message], bool]:
        """Show messages to browsers, and give available ones to consumers with credit if the queue
        `delivers`. Return messages that were found to be expired, which are to leave, and whether
        there may be more to hand out behind so many of them. `now` is ns since the Unix epoch.
        """
        ...


class RoundRobin:
    """Consumers with credit get messages in turn."""

    __slots__ = ("_looks", "_turn", "consumers")

    def __init__(self) -> None:
        self.consumers: dict[Consumer, None] = {}
        self._turn = 0
        """Whose turn it is, as a place among `consumers`."""
        self._looks: dict[Consumer, tuple[int, int, bool]] = {}
        """Browsers for which a look at all messages takes several turns -> up to which sequence it
        came, how many had been given back when it began, and whether it began anew for that.
        """

    def join(self, consumer: Consumer) -> None:
        """Add a consumer, behind those that are there."""
        self.consumers[consumer] = None

    def leave(self, consumer: Consumer) -> None:
        """Take a consumer away."""
        del self.consumers[consumer]
        self._looks.pop(consumer, None)
        self._turn = 0

    def run(
        self, backlog: Backlog, now: int, *, delivers: bool, shows_expired: bool
    ) -> tuple[list[Message], bool]:
        """Show messages to browsers, and give available ones to consumers with credit, in turn."""
        backlog.ordering.tidy()
        consumers = list(self.consumers)
        if self._turn:
            consumers = consumers[self._turn :] + consumers[: self._turn]
        takers: list[Consumer] = []
        expired: list[Message] = []
        is_selective = has_more = False
        for consumer in consumers:
            if consumer.credit > 0:
                if consumer.browse:
                    over = 0 if shows_expired else now
                    has_more = self._show(backlog, consumer, over) or has_more
                elif delivers:
                    takers.append(consumer)
                    is_selective = is_selective or consumer.is_selective
        if takers:
            hand_out = self._hand_out_selectively if is_selective else self._hand_out
            given = hand_out(backlog, takers, now, expired)
            # The one after the last that got something is next, so that a turn with few messages
            # does not always favour the first.
            if len(self.consumers) > 1:
                self._turn = (self._turn + given) % len(self.consumers)
        return expired, has_more or len(expired) >= EXPIRED_A_TURN

    def _hand_out(
        self, backlog: Backlog, takers: list[Consumer], now: int, expired: list[Message]
    ) -> int:
        """Give the next messages to each taker in turn; return how many."""
        take = backlog.ordering.take
        given = turn = 0
        # A consumer that takes a message may call back into the queue: settle the message, release
        # it, even end the queue by taking the last one. So nothing of the queue is remembered here
        # from one message to the next, and the message is acquired before it is handed over.
        while (message := take()) is not None:
            if message.expires and message.expires <= now:
                expired.append(message)
                if len(expired) >= EXPIRED_A_TURN:
                    break
                continue
            consumer = takers[turn]
            message.acquired = True
            backlog.acquired += 1
            given += 1
            consumer.deliver(message)
            if consumer.credit > 0:
                turn += 1
            else:
                del takers[turn]
                if not takers:
                    break
            if turn >= len(takers):
                turn = 0
        return given

    def _hand_out_selectively(
        self, backlog: Backlog, takers: list[Consumer], now: int, expired: list[Message]
    ) -> int:
        """Give messages as `_hand_out` does, passing over those that no taker may have."""
        ordering = backlog.ordering
        passed: list[Message] = []
        given = 0
        while (message := ordering.take()) is not None:
            if message.expires and message.expires <= now:
                expired.append(message)
                if len(expired) >= EXPIRED_A_TURN:
                    break
                continue
            consumer = next((taker for taker in takers if taker.accepts(message)), None)
            if consumer is None:
                passed.append(message)
                continue
            takers.remove(consumer)
            backlog.acquire(message)
            given += 1
            consumer.deliver(message)
            if consumer.credit > 0:
                takers.append(consumer)  # behind the others: its next turn comes after theirs
            elif not takers:
                break
        # The next consumer may be one that takes them.
        ordering.restore_run(passed)
        return given

    def _show(self, backlog: Backlog, browser: Consumer, over: int) -> bool:
        """Show a browser the available messages that it has not seen, but for those whose time ends
        at `over` or before. Return whether there may be more behind so many of them, or behind so
        many that others have.
        """
        passed = acquired = 0
        # Those that others have may be given back, so the cursor stays before them. When some are
        # during a look, it begins anew; but once only, so that it comes to its end.
        start, released = browser.cursor, backlog.released
        came_to, released_then, is_new = self._looks.pop(browser, (start, released, False))
        if is_new or released_then == released:
            start, released = came_to, released_then
        else:
            is_new = True
        for message in backlog.ordering.after(start):
            if message.acquired:
                acquired += 1
                if acquired >= ACQUIRED_A_TURN:
                    self._looks[browser] = message.sequence, released, is_new
                    return True
                continue
            browser.cursor = message.sequence
            if message.expires and message.expires <= over:
                passed += 1
                if passed >= EXPIRED_A_TURN:
                    return True
                continue
            browser.deliver(message)
            if browser.credit <= 0:
                return False
        # What was given back meanwhile may be before the place where this turn began.
        return released != backlog.released
