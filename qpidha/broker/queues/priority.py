"""Priorities: messages are in levels, by the priority in their header; the highest level is next,
or each has its share.

- Strict: nothing of a level is given as long as there is something above it.
- In shares (`qpid.fairshare`, `x-priority-mode=fair`): the levels have turns, from the highest one
  down and then from the highest again. In its turn a level gives so many messages, or all that it
  has if its share is 0. With `fair`, what came earlier to a higher level is never overtaken.

Within a level messages are in the order of arrival, each level a `Fifo`. One that is given back is
in its level and place again. Whose turn it is is not recorded: a successor begins with the highest
level, as Qpid does, and so does a queue of which all was given.

A full ring pushes out the lowest level first, the oldest of it first, but nothing of a higher level
than the newcomer's. If there is nothing else the newcomer itself has to leave.

The level is read once, when the message comes, and stays beside it in memory, so that a paged-out
message need not be read for it.
Source: Qpid `PriorityQueue.cpp`, `Fairshare.cpp`, `LossyQueue.cpp`; AMQP 0-10's rule
`priority-level-implementation`; RabbitMQ's guides to classic and quorum queues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from qpidha.broker.queues.arguments import check_whole_number
from qpidha.broker.queues.messages import Messages
from qpidha.broker.queues.ordering import SLACK, Fifo
from qpidha.model.errors import InvalidArgument
from qpidha.model.message import Message
from qpidha.model.message_view import HEADER, NO_PRIORITY, priority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PRIORITIES, FAIRSHARE = "qpid.priorities", "qpid.fairshare"
MAX_PRIORITY = "x-max-priority"
PRIORITY_MODE, PRIORITY_WEIGHT = "x-priority-mode", "x-priority-weight"
FAIR, STRICT = "fair", "strict"
MOST_LEVELS = 256
DEFAULT_PRIORITY = 4
"""Of a message whose header names none, by the AMQP standard: clients leave it out when it is 4."""
WEIGHT = 2
"""Messages that a level gives for one of the lowest, with `fair`."""
FAIR_LEVELS, STRICT_LEVELS = 2, 32
"""How many levels there are if only the mode is given; as in RabbitMQ."""


@dataclass(slots=True, frozen=True)
class Priorities:
    """How the messages of a queue are ordered."""

    levels: bytes
    """The level of each priority, and at NO_PRIORITY that of a message without one."""
    shares: tuple[int, ...] = ()
    """How many messages each level gives in its turn, 0 for all; empty if the order is strict."""
    keeps_age: bool = False
    """Whether a share never has a message overtake one that is older and of a higher level."""

    @property
    def count(self) -> int:
        """How many levels there are."""
        return max(self.levels) + 1


class RankedMessage(Message):
    """A message on a queue with priorities."""

    __slots__ = ("level",)
    level: int


class _Level(Fifo):
    """The messages of one level."""

    __slots__ = ("gone",)

    def __init__(self, messages: Messages) -> None:
        super().__init__(messages)
        self.gone = 0
        """Of its sequences, how many are of messages that have left."""

    @property
    def present(self) -> int:
        """How many messages it has, acquired ones included."""
        return len(self._order) - self.gone

    def _cut(self, gone: int) -> None:
        """Throw away the first sequences: their messages have left."""
        super()._cut(gone)
        self.gone -= gone

    def tidy(self) -> None:
        """Sort what came out of turn; discard departed messages when they are the greater part."""
        present = self.present
        self._discard(present)
        self.gone = len(self._order) - present


class Priority:
    """The highest level first, or each in its turn.

    - Each level is a `Fifo` with the sequences of its messages.
    - `_ready` has a bit for each level that may have available messages, `_touched` one for each
      that is to be tidied.
    """

    __slots__ = (
        "_fifos",
        "_is_sorted",
        "_keeps_age",
        "_last",
        "_levels",
        "_messages",
        "_ready",
        "_rest",
        "_shares",
        "_top",
        "_touched",
        "_turn",
    )
    kind: type[Message] = RankedMessage
    is_by_sequence = False

    def __init__(self, messages: Messages, priorities: Priorities) -> None:
        self._messages = cast("dict[int, RankedMessage]", messages)
        self._fifos = [_Level(messages) for _ in range(priorities.count)]
        self._ready = self._touched = 0
        self._last = 0
        self._is_sorted = True
        self._levels = priorities.levels
        self._shares = priorities.shares
        self._keeps_age = priorities.keeps_age
        self._top = priorities.count - 1
        self._turn = self._rest = 0
        """With shares, whose turn it is, and how many it is still to give; below 0 is all."""

    @property
    def last(self) -> int:
        """The highest sequence that was added."""
        return self._last

    def place(self, message: Any) -> int:
        """Return a number that is lower for a higher level, and in a level for a lower sequence.
        Shares are not in it.
        """
        return int(self._top - message.level) << 64 | int(message.sequence)

    def follow(self, priorities: Priorities) -> None:
        """Have other shares, or none, of the same levels."""
        self._shares, self._keeps_age = priorities.shares, priorities.keeps_age
        self._turn = self._rest = 0

    @property
    def counts(self) -> list[int]:
        """How many messages are on each level, acquired ones included."""
        return [fifo.present for fifo in self._fifos]

    def add(self, sequence: int) -> None:
        """Put a message at the end of its level."""
        message = self._messages[sequence]
        payload: Any = message.payload  # It has just come, so its bytes are in memory.
        # As `priority` does, for the usual message with one.
        is_usual = (
            len(payload) > 8 and payload[7] == 0x50 and payload[3] == 0xC0 and payload[2] == HEADER
        )
        level = self._levels[payload[8] if is_usual else priority(payload)]
        message.level = level
        self._fifos[level].add(sequence)
        self._ready |= 1 << level
        if sequence > self._last:
            self._last = sequence

    def add_run(self, sequences: list[int]) -> None:
        """Put each message at the end of its level."""
        for sequence in sequences:
            self.add(sequence)

    def left(self, message: Any) -> None:
        """Count a message no more."""
        fifo = self._fifos[message.level]
        gone = fifo.gone = fifo.gone + 1
        if gone > SLACK:
            self._touched |= 1 << message.level

    def out_of_turn(self) -> None:
        """Expect sequences below `last`."""
        for fifo in self._fifos:
            fifo.out_of_turn()
        self._is_sorted = False

    @property
    def take(self) -> Callable[[], Message | None]:
        """Returns the first available message of the highest level, or of the one whose turn it is,
        and steps past it.
        """
        return self._take_share if self._shares else self._take_highest

    def _take_highest(self) -> Message | None:
        while ready := self._ready:
            level = ready.bit_length() - 1
            message = self._fifos[level].take()
            if message is not None:
                return message
            self._ready = ready & ~(1 << level)
        return None

    def _take_share(self) -> Message | None:
        while ready := self._ready:
            level = self._turn
            if not self._rest:
                level, self._rest = self._next_turn(level, ready)
                self._turn = level
            message = self._fifos[level].take()
            if message is not None:
                self._rest -= 1
                if self._keeps_age and ready >> (level + 1):
                    return self._oldest(message, level)
                return message
            self._ready = ready & ~(1 << level)
            self._rest = 0
        self._turn = self._rest = 0
        return None

    def _oldest(self, message: Message, level: int) -> Message | None:
        """Return this message of a level, just taken, or take one of a higher level that came
        before it.
        """
        for fifo in self._fifos[:level:-1]:
            other = fifo.peek()
            if other is not None and other.sequence < message.sequence:
                self.restore(message)
                return fifo.take()
        return message

    def _next_turn(self, level: int, ready: int) -> tuple[int, int]:
        """Return the highest of the levels that are ready below one, or else of all, and how many
        messages it gives.
        """
        level = ((ready & ((1 << level) - 1)) or ready).bit_length() - 1
        return level, self._shares[level] or -1

    def restore(self, message: Any) -> None:
        """Keep a message for the next `take`, in its place in its level."""
        level = message.level
        self._fifos[level].restore(message)
        self._ready |= 1 << level
        self._touched |= 1 << level

    def restore_run(self, messages: list[Any]) -> None:
        """Keep messages for the next `take`."""
        by_level: dict[int, list[Message]] = {}
        for message in messages:
            by_level.setdefault(message.level, []).append(message)
        for level, found in by_level.items():
            self._fifos[level].restore_run(found)
            self._ready |= 1 << level

    def waiting(self) -> Iterator[Message]:
        """Walk through the available messages in the order of `take`."""
        self.tidy()
        if not self._shares:
            for fifo in reversed(self._fifos):
                yield from fifo.waiting()
            return
        rests = [fifo.waiting() for fifo in self._fifos]
        fronts = [next(rest, None) for rest in rests]
        ready = sum(1 << level for level, front in enumerate(fronts) if front is not None)
        turn, rest = self._turn, self._rest
        while ready:
            if not rest or not ready >> turn & 1:
                turn, rest = self._next_turn(turn, ready)
            rest -= 1
            level, found = turn, fronts[turn]
            assert found is not None
            for other in range(self._top, turn, -1) if self._keeps_age else ():
                older = fronts[other]
                if older is not None and older.sequence < found.sequence:
                    level, found = other, older
                    break
            yield found
            fronts[level] = next(rests[level], None)
            if fronts[level] is None:
                ready &= ~(1 << level)

    def giving_way(self, payload: bytes | None) -> Iterator[Message]:
        """Walk through the available messages, the lowest level first, up to the level of what
        comes.
        """
        self.tidy()
        top = self._top if payload is None else self._levels[priority(payload)]
        for fifo in self._fifos[: top + 1]:
            if len(fifo):
                yield from fifo.waiting()

    def before(self, message: Any) -> Iterator[Message]:
        """Walk through the messages of lower levels, and those of its own that came before it."""
        for fifo in self._fifos[: message.level]:
            yield from fifo.after(0)
        yield from self._fifos[message.level].before(message)

    def replaced_by(self, payload: bytes) -> Message | None:
        """Return None: messages stay, whatever comes."""
        return None

    def after(self, cursor: int) -> Iterator[Message]:
        """Walk through the messages after a sequence, by their sequences."""
        self.tidy()
        parts = [fifo.after(cursor) for fifo in self._fifos if len(fifo)]
        return parts[0] if len(parts) == 1 else merge(*parts, key=attrgetter("sequence"))

    @property
    def level_count(self) -> int:
        """How many levels there are."""
        return len(self._fifos)

    def unseen(self, seen: list[int]) -> Iterator[tuple[int, Message]]:
        """Walk through the messages that a browser was not shown, the highest level first. Shares
        do not count.
        """
        self.tidy()
        for level in range(self._top, -1, -1):
            fifo = self._fifos[level]
            if len(fifo):
                yield from zip(repeat(level), fifo.after(seen[level]))

    def count_after(self, cursor: int) -> int:
        """Count the messages after a sequence."""
        self.tidy()
        return sum(fifo.count_after(cursor) for fifo in self._fifos if len(fifo))

    def lowest(self) -> int:
        """Return the lowest sequence of all levels."""
        self.tidy()
        return min(filter(None, (fifo.lowest() for fifo in self._fifos if len(fifo))), default=0)

    def tidy(self) -> None:
        """Tidy the levels from which something has left, or all after what came out of turn."""
        if not self._is_sorted:
            self._is_sorted = True
            for fifo in self._fifos:
                fifo.tidy()
            self._be_ready()
        while self._touched:
            level = self._touched.bit_length() - 1
            self._touched &= ~(1 << level)
            self._fifos[level].tidy()

    def restart(self) -> None:
        """Begin with the highest level again."""
        self._is_sorted = True
        for fifo in self._fifos:
            fifo.restart()
        self._be_ready()
        self._turn = self._rest = 0

    def _be_ready(self) -> None:
        self._ready = sum(1 << level for level, fifo in enumerate(self._fifos) if len(fifo))


# Arguments.


def read_priorities(arguments: Mapping[str, Any]) -> Priorities | None:
    """Return how priorities order a queue with these arguments, which have been checked; None if
    they do not.
    """
    mode = arguments.get(PRIORITY_MODE) or (FAIR if PRIORITY_WEIGHT in arguments else None)
    if MAX_PRIORITY in arguments:
        highest = int(arguments[MAX_PRIORITY])
        levels = bytes(min(number, highest) for number in range(NO_PRIORITY))
    else:
        default = {None: 0, FAIR: FAIR_LEVELS, STRICT: STRICT_LEVELS}[mode]
        count = int(arguments.get(PRIORITIES, 0)) or default
        if not count:
            return None
        levels = bytes(_level(number, count) for number in range(NO_PRIORITY))
    levels += levels[DEFAULT_PRIORITY : DEFAULT_PRIORITY + 1]
    return Priorities(levels, _shares(arguments, max(levels) + 1, mode), mode == FAIR)


def takes_shares(arguments: Mapping[str, Any]) -> bool:
    """Whether a queue with these arguments has levels, and its mode does not say their shares."""
    says_mode = PRIORITY_MODE in arguments or PRIORITY_WEIGHT in arguments
    return not says_mode and read_priorities(arguments) is not None


def _level(number: int, count: int) -> int:
    """Map a priority onto fewer levels, around 5 if they are less than 10; as in Qpid."""
    first = 5 - min(5, (count + 1) // 2)
    return min(max(number - first, 0), count - 1)


def _shares(arguments: Mapping[str, Any], count: int, mode: str | None) -> tuple[int, ...]:
    if mode == FAIR:
        weight = int(arguments.get(PRIORITY_WEIGHT, WEIGHT))
        return (1, *(weight for _ in range(count - 1)))
    own = {level: int(arguments[name]) for name, level in _own_shares(arguments)}
    default = int(arguments.get(FAIRSHARE, 0))
    shares = tuple(own.get(level, default) for level in range(count))
    return shares if any(shares) else ()


def _own_shares(arguments: Mapping[str, Any]) -> Sequence[tuple[str, int]]:
    """Return the names of the shares that single levels have, with the level."""
    found = []
    for name in arguments:
        stem, _, level = name.rpartition("-")
        if stem == FAIRSHARE and level.isascii() and level.isdecimal():
            found.append((name, int(level[:4])))
    return found


def check_priorities(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for levels or shares that there cannot be."""
    own = _own_shares(arguments)
    for name in (PRIORITIES, MAX_PRIORITY, FAIRSHARE, PRIORITY_WEIGHT, *(name for name, _ in own)):
        if name in arguments:
            check_whole_number(name, arguments[name])
    mode = arguments.get(PRIORITY_MODE)
    if mode not in (None, FAIR, STRICT):
        raise InvalidArgument(f"{PRIORITY_MODE}={mode} is none", hint=f"use {FAIR} or {STRICT}")
    levels, highest = int(arguments.get(PRIORITIES, 0)), int(arguments.get(MAX_PRIORITY, 1))
    if levels > MOST_LEVELS or not 0 < highest < MOST_LEVELS:
        raise InvalidArgument(
            f"{PRIORITIES} is up to {MOST_LEVELS}, {MAX_PRIORITY} from 1 to {MOST_LEVELS - 1}",
            reason="a priority is a number from 0 to 255",
            hint="use less",
        )
    _check_pairs(arguments, bool(own), mode)
    priorities = read_priorities(arguments)
    shared = [FAIRSHARE] if int(arguments.get(FAIRSHARE, 0)) else []
    shared += [name for name, _ in own]
    if priorities is None and shared:
        raise InvalidArgument(
            f"{shared[0]} is of queues with priorities", hint=f"give {PRIORITIES} as well"
        )
    for name, level in own:
        if priorities is not None and level >= priorities.count:
            raise InvalidArgument(
                f"{name} is for no level: there are {priorities.count}",
                hint=f"use 0 to {priorities.count - 1}, or more {PRIORITIES}",
            )


def _check_pairs(arguments: Mapping[str, Any], has_own: bool, mode: str | None) -> None:
    """Raise InvalidArgument for two arguments of which only one can be followed."""
    has_shares = has_own or FAIRSHARE in arguments
    has_weight = PRIORITY_WEIGHT in arguments
    if MAX_PRIORITY in arguments and PRIORITIES in arguments:
        pair = (MAX_PRIORITY, PRIORITIES)
    elif has_shares and (mode is not None or has_weight):
        pair = (FAIRSHARE, PRIORITY_MODE if mode is not None else PRIORITY_WEIGHT)
    elif has_weight and mode == STRICT:
        pair = (PRIORITY_WEIGHT, f"{PRIORITY_MODE}={STRICT}")
    else:
        if has_weight and not int(arguments[PRIORITY_WEIGHT]):
            raise InvalidArgument(f"{PRIORITY_WEIGHT}=0 would give nothing", hint="use 1 or more")
        return
    raise InvalidArgument(
        f"{pair[0]} and {pair[1]} contradict each other",
        reason="each says which messages are next",
        hint="give one of them",
    )
