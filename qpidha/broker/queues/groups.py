"""Message groups: messages that say that they belong together go to one consumer at a time.

A queue with `qpid.group_header_key` reads from each message which group it is of. From the first
message of a group that a consumer gets, the group is its own until it has settled all that it has
of it; then any consumer may get the next. So a group is worked on in order and by one consumer,
while other groups go to others. What is given back goes to its place, in front of what follows.

What counts is the name in the message: nothing of groups is recorded. A successor hands out each
group anew, as no consumer has any message then.

`ByGroup` reads messages in the order of the queue, each once, and keeps the sequences of those that
are still to be handed out by their group. A group that waits has a ticket: the sequence of its
first message, among those that are looked at, or with its consumer while that has no credit. So a
long group whose consumer is busy costs nothing when others are dispatched.

Source: Qpid `MessageGroupManager.cpp`; JMS 2.0 section 3.5.3 (JMSXGroupID); Artemis' message groups
for a group-sequence of -1.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from qpidha.broker.queues.arguments import short_name
from qpidha.broker.queues.dispatch import EXPIRED_A_TURN, RoundRobin
from qpidha.model.errors import InvalidArgument, NotImplementedHere, ProtocolViolation
from qpidha.model.message_view import application_property, group_of

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Mapping

    from qpidha.broker.queues.backlog import Backlog
    from qpidha.broker.queues.dispatch import Consumer
    from qpidha.model.message import Message

GROUP_KEY = "qpid.group_header_key"
SHARED_GROUP = "qpid.shared_msg_group"
DEFAULT_GROUP = "qpid.default-message-group"
GROUP_ID = "JMSXGroupID"
"""As the key: the group-id of the properties."""
CLOSES = 2**32 - 1
"""The group-sequence of the last message of a group, -1 as JMS writes it."""
READ_AT_ONCE = 100
"""Messages whose groups are read before some are handed out."""
READ_A_TURN = 3000
"""Messages whose groups a dispatch reads at most; the next turn goes on."""
HINT = (
    f"Name the application property that says of which group a message is, or {GROUP_ID} for its "
    "group-id."
)
LARGE = 256
"""So many bytes of a message cost as much to read as a message more."""


@dataclass(slots=True, frozen=True)
class Grouping:
    """What a message's group is read from."""

    key: str
    """`JMSXGroupID` for the group-id, or the name of an application property."""
    default: str
    """The group of a message that names none; empty if it goes to any consumer."""

    def read(self, payload: bytes) -> tuple[str, bool]:
        """Return the group of a message, empty if it has none, and whether that ends with it."""
        try:
            if self.key == GROUP_ID:
                name, sequence = group_of(payload)
                return short_name(name) or self.default, sequence == CLOSES
            value = application_property(payload, self.key.encode())
        except (ProtocolViolation, TypeError, IndexError):
            value = None  # It was taken in as it is; what cannot be read names no group.
        if isinstance(value, str):
            return short_name(value) or self.default, False
        if isinstance(value, int):
            return str(int(value)), False
        return self.default, False


class Group:
    """Messages of one name, up to the one that ends it."""

    __slots__ = ("highest", "is_closed", "name", "out", "owner", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.owner: Consumer | None = None
        """Who has messages of it; it may be gone, while a transaction has them."""
        self.out = 0
        """How many its owner has."""
        self.waiting: list[int] = []
        """A heap of the sequences that are to be handed out, and of some that have left."""
        self.highest = 0
        """The last of its messages that was read."""
        self.is_closed = False
        """Whether that is the last one there will be."""


_highest = attrgetter("highest")


class ByGroup(RoundRobin):
    """A group goes to one consumer until that has settled all it has of it; consumers get groups
    in turn, those of a higher priority first.
    """

    __slots__ = (
        "_blocked",
        "_closed",
        "_cursor",
        "_groups",
        "_grouping",
        "_held",
        "_places",
        "_refused",
        "_tickets",
    )
    heeds = True

    def __init__(self, grouping: Grouping) -> None:
        super().__init__()
        self._asks = True
        self._grouping = grouping
        self._cursor = 0
        """The groups of all messages up to this sequence have been read."""
        self._groups: dict[str, Group] = {}
        """Those that are open."""
        self._closed: dict[str, list[Group]] = {}
        """Those that have ended and of which there is something yet, the oldest first."""
        self._places: dict[int, Group] = {}
        """Sequence -> group, of messages that were read and are to be handed out."""
        self._held: dict[int, Group] = {}
        """The same of those that consumers have."""
        self._tickets: list[int] = []
        """A heap of the first sequences of groups."""
        self._blocked: dict[Consumer, dict[Group, None]] = {}
        """Groups without a ticket: their owners had no credit, or kept a message for too long."""
        self._refused: list[int] = []
        """Tickets of groups whose first message no consumer would have."""

    def join(self, consumer: Consumer) -> None:
        """Add a consumer, which takes whole groups."""
        if consumer.selector is not None and not consumer.browse:
            raise NotImplementedHere(
                "a selector is not offered for a queue with groups",
                reason="a message that it leaves in place would hold up the rest of its group",
                hint="browse, or bind a queue of its own for what this receiver wants",
            )
        super().join(consumer)

    def leave(self, consumer: Consumer) -> None:
        """Take a consumer away. What it had is given back before the next dispatch; what a
        transaction has of its messages keeps their groups from others.
        """
        super().leave(consumer)
        self._blocked.pop(consumer, None)

    def restart(self) -> None:
        """No consumer has anything, and what there is may be other messages than before."""
        super().restart()
        self._cursor = 0
        for table in (self._groups, self._closed, self._places, self._held, self._blocked):
            table.clear()
        self._tickets.clear()
        self._refused.clear()

    def returned(self, message: Message) -> None:
        """A consumer gave a message back."""
        sequence = message.sequence
        group = self._held.pop(sequence, None)
        if group is not None:
            self._put(sequence, group)
            self._let_go(group)
        elif sequence <= self._cursor and sequence not in self._places:
            self._place(message)  # It was there when the cursor came by, but not to be had.

    def settled(self, sequences: list[int]) -> bool:
        """Messages have left, or no consumer has them any more; say whether others may get more for
        it.
        """
        is_free = False
        for sequence in sequences:
            group = self._held.pop(sequence, None)
            if group is not None:
                is_free = self._let_go(group) or is_free
            else:
                group = self._places.pop(sequence, None)
                if group is not None and group.waiting[0] == sequence:
                    self._go_on(group)
        return is_free

    def _let_go(self, group: Group) -> bool:
        """The owner of a group has one message less of it. Return whether it is free, and more
        waits.
        """
        group.out -= 1
        if group.out:
            return False
        owner, group.owner = group.owner, None
        if owner is not None and owner in self._blocked:
            self._blocked[owner].pop(group, None)
            if not self._blocked[owner]:
                del self._blocked[owner]
        return self._go_on(group)

    def _go_on(self, group: Group) -> bool:
        """Give the first of a group's messages a ticket, or forget the group if there is nothing of
        it; return whether more waits.
        """
        if self._has_more(group):
            heappush(self._tickets, group.waiting[0])
            return True
        if not group.out:
            self._end(group)
        return False

    def _has_more(self, group: Group) -> bool:
        """Whether something of a group is to be handed out; what has left is forgotten."""
        waiting = group.waiting
        while waiting and waiting[0] not in self._places:
            heappop(waiting)
        return bool(waiting)

    def _end(self, group: Group) -> None:
        """Forget a group of which there is nothing."""
        if not group.is_closed:
            self._groups.pop(group.name, None)
            return
        closed = self._closed[group.name]
        del closed[bisect_left(closed, group.highest, key=_highest)]
        if not closed:
            del self._closed[group.name]

    def _put(self, sequence: int, group: Group) -> None:
        """A message of a group is to be handed out."""
        self._places[sequence] = group
        waiting = group.waiting
        heappush(waiting, sequence)
        # One in front of it that has left has a ticket, with which this one is found.
        if waiting[0] == sequence:
            heappush(self._tickets, sequence)

    def _find(self, name: str, sequence: int, *, closes: bool) -> Group:
        """Find the group that a message belongs to, or begin it."""
        closed = self._closed.get(name, ())
        place = bisect_left(closed, sequence, key=_highest)
        if place < len(closed):
            return closed[place]
        group = self._groups.get(name) or Group(name)
        self._groups[name] = group
        if sequence > group.highest:
            group.highest = sequence
            if closes:
                group.is_closed = True
                del self._groups[name]
                self._closed.setdefault(name, []).append(group)
        return group

    def _place(self, message: Message) -> None:
        """Read which group a message is of."""
        sequence = message.sequence
        name, closes = self._grouping.read(message.body())
        self._put(sequence, self._find(name, sequence, closes=closes) if name else Group(""))

    def _read(self, backlog: Backlog) -> int:
        """Place the next messages; return what that cost, 0 if there are none."""
        cost = 0
        for message in islice(backlog.ordering.after(self._cursor), READ_AT_ONCE):
            self._cursor = message.sequence
            cost += 1 + message.size // LARGE
            if not message.acquired:
                self._place(message)
            if cost >= READ_AT_ONCE:
                break
        return cost

    def _give(
        self, backlog: Backlog, takers: list[Consumer], now: int, expired: list[Message]
    ) -> tuple[int, bool]:
        """Give each message to the owner of its group, that of a free one to the taker whose turn
        it is. Return how many, and whether there may be more that was not read.
        """
        tickets, places = self._tickets, self._places
        for taker in takers:
            if taker in self._late:
                continue
            for group in self._blocked.pop(taker, ()):
                if self._has_more(group):
                    heappush(tickets, group.waiting[0])
        refused, self._refused = self._refused, []
        for sequence in refused:
            heappush(tickets, sequence)
        tiers = self._tiers(takers)
        given, left = 0, READ_A_TURN
        while tiers and len(expired) < EXPIRED_A_TURN:
            if not tickets:
                cost = self._read(backlog) if left > 0 else 0
                if not cost:
                    break
                left -= cost
                continue
            sequence = heappop(tickets)
            of = places.get(sequence)
            if of is None or of.waiting[0] != sequence:
                continue
            message = backlog.messages[sequence]
            if message.expires and message.expires <= now:
                expired.append(message)
                self._take(of, sequence)
                continue
            consumer = self._choose(of, message, tiers)
            if consumer is None:
                continue
            # All is as it will be before the message is handed over: it may be settled at once.
            self._held[sequence] = of
            of.owner = consumer
            of.out += 1
            self._take(of, sequence)
            backlog.acquire(message)
            given += 1
            consumer.deliver(message)
            if consumer.credit <= 0:
                self._drop_from(tiers, consumer)
        return given, left <= 0

    def _drop_from(self, tiers: dict[int, deque[Consumer]], consumer: Consumer) -> None:
        """Take out a consumer that has no credit left."""
        rank = self._rank(consumer)
        tier = tiers.get(rank)
        if tier is not None and consumer in tier:
            tier.remove(consumer)
            if not tier:
                del tiers[rank]

    def _choose(
        self, group: Group, message: Message, tiers: dict[int, deque[Consumer]]
    ) -> Consumer | None:
        """Return who gets the first message of a group; None if the group has to wait."""
        owner = group.owner
        if owner is None:
            for tier in tiers.values():
                for consumer in tier:
                    if not consumer.is_selective or consumer.accepts(message):
                        tier.remove(consumer)
                        tier.append(consumer)
                        return consumer
        elif owner.credit <= 0 or owner in self._late:
            # One that kept a message for too long would be given it again before the group is free.
            self._blocked.setdefault(owner, {})[group] = None
            return None
        elif not owner.is_selective or owner.accepts(message):
            return owner
        self._refused.append(message.sequence)
        return None

    def _take(self, group: Group, sequence: int) -> None:
        """The first message of a group waits no longer; the next one gets a ticket."""
        del self._places[sequence]
        heappop(group.waiting)
        self._go_on(group)


def read_grouping(arguments: Mapping[str, Any], no_group: str) -> Grouping | None:
    """Return what `arguments`, which have been checked, say of groups; None if there are none.
    `no_group` is the group of messages that name none, if they do not say.
    """
    key = arguments.get(GROUP_KEY)
    if not key:
        return None
    default = "" if key == GROUP_ID else no_group
    return Grouping(str(key), str(arguments.get(DEFAULT_GROUP, default)))


def check_grouping(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for groups that there cannot be."""
    for name in (GROUP_KEY, DEFAULT_GROUP):
        if name in arguments and not isinstance(arguments[name], str):
            raise InvalidArgument(f"{name}={arguments[name]!r} is no text", hint="Give a name.")
    if arguments.get(GROUP_KEY):
        return
    if GROUP_KEY in arguments:
        raise InvalidArgument(f"{GROUP_KEY} is empty", hint=HINT)
    for name in (DEFAULT_GROUP, SHARED_GROUP):
        if name in arguments:
            raise InvalidArgument(f"{name} is given without {GROUP_KEY}", hint=HINT)
