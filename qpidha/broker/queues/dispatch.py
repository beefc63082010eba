"""Who may have a message: consumers, and how a queue chooses among them.

A queue is dispatched at the end of a turn of the broker, when something changed: a message came,
one became available again, or a consumer got credit. `Dispatch` then takes messages from the
ordering, one by one, and chooses a consumer for each. The queue's spec says which kind of
`Dispatch` it has: `RoundRobin`, `SingleActive` (one taker), or `ByGroup` (`groups.py`). With each
of them a consumer may have a priority.

Only the primary dispatches, so nothing here needs to be the same on replicas. Who has a message is
not recorded: after a failover no consumer has any, and unsettled messages are delivered again.

Not every consumer takes everything. What one has a selector for is looked up in a view of the queue
(`selection.py`), which it shares with all that have the same; others take from the ordering. What
one has refused goes to another, and stays for others if there is none. Both is asked only of
consumers that say they are selective, so that others cost nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from qpidha.broker.queues.selection import LOOKED_A_TURN, View, Views, price

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qpidha.broker.queues.backlog import Backlog
    from qpidha.broker.queues.selection import Selector
    from qpidha.model.message import Message

SINGLE_ACTIVE = "x-single-active-consumer"
FENCING = "qpidha.fencing_token"
BROWSE_ONLY = "qpid.browse-only"
MAX_CONSUMERS = "max-consumers"
REFUSALS = 1000
"""After so many refusals a consumer forgets those of messages that have left the queue."""
MAX_REFUSALS = 10_000
"""Messages on a queue that one consumer may have refused: each dispatch passes over them."""
EXPIRED_A_TURN = 5000
"""Expired messages of one queue that a dispatch comes upon at most for the takers, and for each
browser; the next turn goes on.
"""
LATE = -(1 << 32)
"""What the priority of a consumer counts as that kept a message for too long: below all others."""
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
    priority: int
    """Others get messages only while those of a higher priority have no credit."""
    is_selective: bool
    """Whether it has a selector, or `accepts` may say no."""
    selector: Selector | None
    """Which messages it wants, None for all; the same from `join` to `leave`."""

    def accepts(self, message: Message) -> bool:
        """Whether this consumer may have a message that it selects: it has not refused it."""
        ...

    def refuse(self, message: Message) -> None:
        """Do not accept this message again: it was undeliverable here."""
        ...

    def deliver(self, message: Message) -> None:
        """Take a message and count down `credit`; may dequeue or release it at once, but not
        unsubscribe.
        """
        ...

    def activated(self, is_active: bool) -> None:
        """Whether this is the single active consumer of a queue that has one: said before the first
        message, and when it changes.
        """
        ...

    def searched(self) -> None:
        """A dispatch that took several turns, for messages that had expired, is over."""
        ...

    def timeout_changed(self) -> None:
        """The queue says another time for which consumers may keep messages."""
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

    consumers: dict[Consumer, bool]
    """All that are subscribed, in the order in which they came; whether each is among those that
    get messages in turn.
    """
    heeds: bool
    """Whether it has to hear what becomes of messages: `returned` and `settled`."""
    views: Views
    """What the selectors of consumers find; told of every message that is available again."""

    def join(self, consumer: Consumer) -> None:
        """A consumer has subscribed."""
        ...

    def leave(self, consumer: Consumer) -> None:
        """A consumer is gone; what it had has been released before."""
        ...

    def wake(self, consumer: Consumer) -> None:
        """A consumer has credit again, or is selective from now on."""
        ...

    def run(
        self, backlog: Backlog, now: int, *, delivers: bool, shows_expired: bool
    ) -> tuple[list[Message], bool]:
        """Show messages to browsers, and give available ones to consumers with credit if the queue
        `delivers`. Return messages that were found to be expired, which are to leave, and whether
        there may be more to hand out behind so many of them. `now` is ns since the Unix epoch.
        """
        ...

    def returned(self, message: Message) -> None:
        """A message is available again."""
        ...

    def settled(self, sequences: list[int]) -> bool:
        """Messages have left, or no consumer has them any more though they are not available; say
        whether consumers may get others for it.
        """
        ...

    def suspect(self, consumer: Consumer) -> None:
        """A consumer kept a message for too long: it gets others only when nobody else can."""
        ...

    def trust(self, consumer: Consumer) -> None:
        """It was heard of, and gets messages as before."""
        ...

    def restart(self) -> None:
        """Begin again: no message is acquired, and sequences may be others than before."""
        ...


class RoundRobin:
    """Consumers with credit get messages in turn.

    They stand in a ring, which one comes to by `wake` and leaves when its turn comes and it has no
    credit. So what a message costs does not depend on how many consumers there are.
    """

    __slots__ = (
        "_asks",
        "_browsers",
        "_first",
        "_has_gone",
        "_late",
        "_left",
        "_looks",
        "_ring",
        "_turn",
        "consumers",
        "seen",
        "views",
    )
    heeds = False

    def __init__(self) -> None:
        self._asks = False
        """Whether more has to be asked than whose turn it is, as some consumer has a priority or is
        selective.
        """
        self.consumers: dict[Consumer, bool] = {}
        self._ring: list[Consumer] = []
        """Every consumer with credit that takes messages, and some without."""
        self._has_gone = False
        """Whether some are in the ring that are gone: to look for one takes longer the more there
        are, and a connection may end with all of them.
        """
        self._browsers: list[Consumer] = []
        self._late: set[Consumer] = set()
        """Those that kept a message for too long, and were not heard of since."""
        self.views = Views()
        self._turn = 0
        """Whose turn it is, as a place in the ring."""
        self.seen: dict[Consumer, list[int]] = {}
        """The last sequence of each level that a browser was shown."""
        self._looks: dict[Consumer, tuple[list[int], int, bool]] = {}
        """Browsers for which a look at all messages takes several turns -> up to which sequence of
        each level it came, how many had been given back when it began, and whether it began anew
        for that.
        """
        self._left = 0
        """What may still be spent in this turn to look for what the selectors of browsers want."""
        self._first: Consumer | None = None
        """The browser that found nothing left first, and is the first one in the next turn."""

    def join(self, consumer: Consumer) -> None:
        """Add a consumer, behind those that are there."""
        self._close_up()
        self.consumers[consumer] = False
        if consumer.priority:
            self._asks = True
        if consumer.browse:
            self._browsers.append(consumer)
            return
        if consumer.selector is not None:
            self.views.join(consumer.selector)
        self.wake(consumer)

    def leave(self, consumer: Consumer) -> None:
        """Take a consumer away."""
        self._has_gone = self.consumers.pop(consumer) or self._has_gone
        self._late.discard(consumer)
        self.seen.pop(consumer, None)
        self._looks.pop(consumer, None)
        if consumer is self._first:
            self._first = None
        if consumer.browse:
            self._browsers.remove(consumer)
            return
        if consumer.selector is not None:
            self.views.leave(consumer.selector)

    def _close_up(self) -> None:
        """Take those that are gone out of the ring, which then begins where the turn is."""
        if self._has_gone:
            ring, turn, consumers = self._ring, self._turn, self.consumers
            self._ring = [each for each in [*ring[turn:], *ring[:turn]] if each in consumers]
            self._turn, self._has_gone = 0, False

    def wake(self, consumer: Consumer) -> None:
        """Put a consumer into the ring, where it is the last one that is new."""
        if self.consumers.get(consumer) is False and not consumer.browse:
            self.consumers[consumer] = True
            self._ring.append(consumer)
        if consumer.is_selective and not consumer.browse:
            self._asks = True

    def run(
        self, backlog: Backlog, now: int, *, delivers: bool, shows_expired: bool
    ) -> tuple[list[Message], bool]:
        """Show messages to browsers, and give available ones to consumers with credit, in turn."""
        backlog.ordering.tidy()
        expired: list[Message] = []
        has_more = False
        if self._browsers:
            browsers = [browser for browser in self._browsers if browser.credit > 0]
            has_more = self._show_all(backlog, browsers, 0 if shows_expired else now)
        self._close_up()
        if not delivers or not self._ring:
            return expired, has_more
        if self._asks:
            takers = self._takers()
            if takers:
                # The one after the last that got something is next, so that a turn with few
                # messages does not always favour the first.
                given, is_stopped = self._give(backlog, takers, now, expired)
                self._turn = given % max(len(self._ring), 1)
                has_more = has_more or is_stopped
        else:
            self._hand_out_in_turn(backlog, now, expired)
        return expired, has_more or len(expired) >= EXPIRED_A_TURN

    def _takers(self) -> list[Consumer]:
        """Begin the ring with the one whose turn it is, without those that have no credit; return
        who is in it.
        """
        ring, turn, consumers = self._ring, self._turn, self.consumers
        self._ring = takers = []
        self._turn = 0
        for consumer in [*ring[turn:], *ring[:turn]]:
            if consumer.credit > 0:
                takers.append(consumer)
            else:
                consumers[consumer] = False
        return list(takers)

    def _hand_out_in_turn(self, backlog: Backlog, now: int, expired: list[Message]) -> None:
        """Give the next messages to the consumers in the ring."""
        take, ring, turn = backlog.ordering.take, self._ring, self._turn
        # A consumer that takes a message may call back into the queue: settle the message, release
        # it, even end the queue by taking the last one. So nothing of the queue is remembered here
        # from one message to the next, and the message is acquired before it is handed over.
        while ring:
            if turn >= len(ring):
                turn = 0
            consumer = ring[turn]
            if consumer.credit <= 0:
                del ring[turn]
                self.consumers[consumer] = False
                continue
            message = take()
            if message is None:
                break
            if message.expires and message.expires <= now:
                expired.append(message)
                if len(expired) >= EXPIRED_A_TURN:
                    break
                continue
            message.acquired = True
            backlog.acquired += 1
            turn += 1
            consumer.deliver(message)
        self._turn = turn

    def returned(self, message: Message) -> None:
        """Take no heed of it."""

    def settled(self, sequences: list[int]) -> bool:
        """Take no heed of it."""
        return False

    def suspect(self, consumer: Consumer) -> None:
        """Let a consumer have messages only when nobody else can."""
        self._late.add(consumer)
        self._asks = True

    def trust(self, consumer: Consumer) -> None:
        """Let it have messages as before."""
        self._late.discard(consumer)

    def restart(self) -> None:
        """Begin again."""
        self.views.restart()

    def _rank(self, consumer: Consumer) -> int:
        return LATE if consumer in self._late else consumer.priority

    def _tiers(self, takers: Iterable[Consumer]) -> dict[int, deque[Consumer]]:
        """Return consumers by priority, the highest first, else in their order."""
        tiers: dict[int, deque[Consumer]] = {}
        for taker in takers:
            tiers.setdefault(self._rank(taker), deque()).append(taker)
        return dict(sorted(tiers.items(), reverse=True)) if len(tiers) > 1 else tiers

    def _give(
        self, backlog: Backlog, takers: list[Consumer], now: int, expired: list[Message]
    ) -> tuple[int, bool]:
        """Give messages to takers of the highest priority first, and only if these have no credit
        or will not have them to others. Return how many, and whether there may be more.
        """
        given = 0
        for tier in self._tiers(takers).values():
            is_stopped = False
            if any(taker.is_selective for taker in tier):
                count, is_stopped = self._hand_out_selectively(backlog, list(tier), now, expired)
            else:
                count = self._hand_out(backlog, list(tier), now, expired)
            given += count
            if is_stopped or len(expired) >= EXPIRED_A_TURN:
                return given, is_stopped
        return given, False

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
    ) -> tuple[int, bool]:
        """Give each taker in turn the next message that it selects and has not refused. Return how
        many, and whether there may be more that was not looked at.
        """
        views = self.views.begin(
            backlog, [taker.selector for taker in takers if taker.selector is not None]
        )
        waiting = deque(
            (taker, None if taker.selector is None else views[taker.selector]) for taker in takers
        )
        over: dict[View | None, None] = {}
        """Those in which there is nothing more."""
        passed: dict[View | None, list[Message]] = {}
        given = 0
        while waiting:
            taker, view = waiting[0]
            message = None
            if view not in over:
                take = backlog.ordering.take
                message = take() if view is None else self.views.take(view, backlog)
            if message is None:
                over[view] = None
                waiting.popleft()
                continue
            if message.expires and message.expires <= now:
                expired.append(message)
                if len(expired) >= EXPIRED_A_TURN:
                    break
                continue
            if not taker.accepts(message):
                # What one has refused may be for another that takes from the same.
                same = (one for one, of in waiting if of is view)
                found = next((one for one in same if one.accepts(message)), None)
                if found is None:
                    passed.setdefault(view, []).append(message)
                    continue
                taker = found
            backlog.acquire(message)
            given += 1
            taker.deliver(message)
            waiting.remove((taker, view))
            if taker.credit > 0:
                waiting.append((taker, view))  # Its next turn comes after those of the others.
        # The next consumer may be one that takes them.
        for view, messages in passed.items():
            if view is None:
                backlog.ordering.restore_run(messages)
            else:
                view.keep(backlog, messages)
        return given, self.views.finish(views.values())

    def _show_all(self, backlog: Backlog, browsers: list[Consumer], over: int) -> bool:
        """Show each browser what it has not seen; return whether there may be more for some."""
        self._left = LOOKED_A_TURN
        if self._first in browsers:
            place = browsers.index(self._first)
            browsers = browsers[place:] + browsers[:place]
        self._first = None
        has_more = False
        for browser in browsers:
            has_more = self._show(backlog, browser, over) or has_more
        return has_more

    def _show(self, backlog: Backlog, browser: Consumer, over: int) -> bool:
        """Show a browser the available messages that it has not seen, but for those whose time ends
        at `over` or before. Return whether there may be more behind so many of them, or behind so
        many that others have.
        """
        passed = acquired = 0
        selector, ordering = browser.selector, backlog.ordering
        # Those that others have may be given back, so what counts as seen ends before them. When
        # some are during a look, it begins anew; but once only, so that it comes to its end.
        seen = self.seen.setdefault(browser, [0] * ordering.level_count)
        place, released = list(seen), backlog.released
        came_to, released_then, is_new = self._looks.pop(browser, (place, released, False))
        if is_new or released_then == released:
            place, released = came_to, released_then
        else:
            is_new = True
        for level, message in ordering.unseen(place):
            place[level] = message.sequence
            if message.acquired:
                acquired += 1
                if acquired >= ACQUIRED_A_TURN:
                    self._looks[browser] = place, released, is_new
                    return True
                continue
            seen[level] = message.sequence
            if message.expires and message.expires <= over:
                passed += 1
                if passed >= EXPIRED_A_TURN:
                    return True
                continue
            if selector is not None:
                if self._left <= 0:
                    seen[level] = message.sequence - 1
                    self._first = self._first or browser
                    return True
                self._left -= price(selector, message)
                if not selector.selects(message):
                    continue
            browser.deliver(message)
            if browser.credit <= 0:
                return False
        # What was given back meanwhile may be before the place where this turn began.
        return released != backlog.released


class SingleActive(RoundRobin):
    """One consumer gets all messages, in order, as long as it is there: the first that came, and
    when it goes the one that came next. One of a higher priority takes its place, as soon as all
    that the active one has is settled or given back.
    """

    __slots__ = ("_active", "_is_new", "_told", "_waits")
    heeds = True

    def __init__(self) -> None:
        super().__init__()
        self._asks = True
        self._active: Consumer | None = None
        self._told: dict[Consumer, bool] = {}
        self._waits = False
        """Whether another consumer is to become active."""
        self._is_new = False
        """Whether somebody came or went, or counts for more or less, since it was looked who is
        active.
        """

    def join(self, consumer: Consumer) -> None:
        """Add a consumer."""
        super().join(consumer)
        self._is_new = True

    def leave(self, consumer: Consumer) -> None:
        """Take a consumer away."""
        super().leave(consumer)
        self._told.pop(consumer, None)
        self._is_new = True
        if consumer is self._active:
            self._active = None

    def suspect(self, consumer: Consumer) -> None:
        """Let another consumer become active."""
        super().suspect(consumer)
        self._is_new = True

    def trust(self, consumer: Consumer) -> None:
        """Let it be active as before."""
        super().trust(consumer)
        self._is_new = True

    def run(
        self, backlog: Backlog, now: int, *, delivers: bool, shows_expired: bool
    ) -> tuple[list[Message], bool]:
        """Show messages to browsers, and give available ones to the active consumer."""
        if delivers and (self._is_new or self._waits):
            self._is_new = False
            self._elect(backlog)
        return super().run(backlog, now, delivers=delivers, shows_expired=shows_expired)

    def settled(self, sequences: list[int]) -> bool:
        """Say whether another consumer waits for that."""
        return self._waits

    def _takers(self) -> list[Consumer]:
        """Return the active one, unless it has no credit, or another is to take its place."""
        active = self._active
        return [] if self._waits or active is None or active.credit <= 0 else [active]

    def _elect(self, backlog: Backlog) -> None:
        """Find out who is active, and tell the consumers."""
        takers = [consumer for consumer in self.consumers if not consumer.browse]
        best = max(takers, key=self._rank, default=None)
        active = self._active
        self._waits = False
        if best is not None and (active is None or self._rank(best) > self._rank(active)):
            if active is None or not backlog.in_flight:
                self._active = best
            else:
                self._waits = True
        for consumer in takers:
            is_active = consumer is self._active
            if self._told.get(consumer) is not is_active:
                self._told[consumer] = is_active
                consumer.activated(is_active)
