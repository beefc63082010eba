"""Frames: what a peer sends is looked at frame by frame before the engine sees it.

The engine takes nearly everything: what is missing becomes 0, what has another type is null. Here
each frame's size, place and performative are checked, and what fails is a fault: of its session if
it came on one, else of the connection. What belongs to a session that we have ended is dropped
until the peer ends it too. What the rules between frames are is the concern of channels. Payloads
are never looked at, and a frame of which only a part has come is passed on in parts as soon as its
performative was seen. The payload of a large transfer is put aside, and the engine is to have that
transfer without it when all has come.

Transfers and dispositions come with each message and must cost next to nothing. Those of one link
differ in two numbers only, so the `Shape` of one, once it was found right, tells whether the next
are: its constant bytes, where they are, and for transfers that their delivery-ids follow each
other. Others are matched with the patterns of usual forms, and what does not fit those is decoded.
Source: AMQP 1.0 sections 2.2, 2.3, 2.4, 2.7.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple

from qpidha.amqp.peer.channels import (
    LEAST_DESCRIBED,
    LONGEST_DESCRIPTION,
    LONGEST_NAME,
    MASK,
    UNKNOWN,
    USUAL_DESCRIPTION,
    Channel,
    DescribedAtLength,
    Link,
    Notice,
    Part,
    Retiring,
)
from qpidha.amqp.peer.payload import APART, Chunk, keep
from qpidha.amqp.peer.performatives import (
    ATTACH,
    BEGIN,
    CLOSE,
    COMPOSITES,
    DETACH,
    END,
    FLOW,
    OPEN,
    TRANSFER,
    USUAL,
    MalformedFrame,
    code_at,
    read,
    value,
)
from qpidha.amqp.peer.terminus import RECEIVED, PeerError
from qpidha.amqp.peer.transaction_wire import TRANSACTIONAL, describe_error, read_state
from qpidha.model.encoding import Described, UInt, ULong, decode, encode, skip
from qpidha.model.errors import InvalidArgument, ProtocolViolation, QpidHaError

MIN_MAX_FRAME_SIZE = 512
"""Bytes of a frame that every peer takes (2.8.19)."""
HEADER = Struct(">IBBH")
SIZES = Struct(">II")
MOST_CREDIT = 2**31 - 1
"""What the engine can count."""
LIST8, LIST32 = 0xC0, 0xD0
SHORT = b"\x00\x53"
"""How a descriptor of one byte begins."""
NULL = b"\x40"
TRUE = (b"\x41", b"\x56\x01")
SECOND = b"\x50\x01"
"""A rcv-settle-mode."""
KEY = 16
"""Frames of one shape have the same bytes from the data offset up to here: channel, performative,
size and count of its fields, and a handle of one byte.
"""
LONG_KEY = KEY + 3
"""The same where the handle has four bytes, as those above 255 have."""
UINT32 = 0x70
"""The constructor of such a handle, and where it stands in the key."""
HANDLE_PLACE = 10
MAX_SHAPES = 64
"""Shapes kept of one connection, of 1 KB each, and two more for each of its links."""
MOST_TRIES = 2
"""Shapes that a frame is compared with beside the last one."""
LEARN_EVERY = 16
"""How many frames that are like none of them pass until one is learned in place of others: frames
that differ each time must not cost a lesson each.
"""
AT_ONCE = 4096
"""Deliveries of ranges, roughly, that the engine is told of at once: it makes an event of each.
"""
FRAME_COSTS = 8
"""What a frame counts for that is no transfer, and is like no other; a flow for instance."""
ATTACH_COSTS = 64
"""What an attach counts for beside a delivery. The engine answers them together, and looks for the
handle of each behind those of all others.
"""
BYTES_OF_A_SPAN = 4
"""Of what an attach describes, so many bytes count for a delivery: a selector of 8 KiB takes 5 ms.
"""

LONG_STATE = 1024
"""Bytes of a state that is more than an outcome: annotations, or the description of an error."""
MOST_STATED = 256 << 10
"""Bytes that long states may come to in one disposition: the engine copies them for each delivery.
"""
STATE_COSTS = 64
"""Bytes of a long state, for one delivery, that count as much as a delivery without."""


class IllegalState(ProtocolViolation):
    """A frame that may not come now."""

    condition = "amqp:illegal-state"


class Fault(Exception):
    """What is wrong with a frame; without a channel it is the connection's."""

    def __init__(self, error: QpidHaError, channel: int | None = None, following: int = 0) -> None:
        super().__init__(error.text)
        self.error = error
        self.channel = channel
        self.following = following
        """Where the frame ends."""


class Restated(Notice):
    """A frame that the engine is to have in other words: it does not know those that came."""

    def __init__(self, words: bytes, following: int, after: Notice | None) -> None:
        super().__init__()
        self.words = words
        self.following = following
        """Where that ends which the words stand for."""
        self.after = after
        """What is to be done after it."""


class Apart(Notice):
    """Transfers of one delivery that the engine is to have without their payload."""

    def __init__(self, words: bytes, handle: int, missing: int) -> None:
        super().__init__()
        self.words = words
        """Their frames without it."""
        self.handle = handle
        self.missing = missing
        """Bytes of the payload that have not come."""
        self.parts: list[Chunk] = []


class Shape(NamedTuple):
    """What frames of one link have in common, but for the values of two fields."""

    read: Callable[[bytes, int], tuple[Any, ...]]
    """Takes a frame apart: its size, the first of the two, and the constant bytes before, between
    and behind them.
    """
    part: Part | None
    """Of transfers, whose first value is the delivery-id."""
    channel: Channel | None
    """Of transfers of whole deliveries."""
    first: bytes
    middle: bytes
    last: bytes
    smallest: int
    largest: int
    """Bytes of such a frame."""
    second: int
    """Of dispositions of ranges, where the value of their ends is."""


def learn(
    data: bytes, start: int, fields: int, end: int, largest: int, part: Part | None
) -> Shape | None:
    """Learn a shape from the frame at `start`, whose fields, three or more, stand from `fields` to
    `end`: the values of the second and third may differ from frame to frame. None is of more than
    `largest` bytes. Those of transfers are a `part`.
    """
    second = skip(data, fields)
    third = skip(data, second)
    fourth = skip(data, third)
    # A constructor says how long a value is; that of a binary has a size behind it.
    value = third + (2 if data[third] == 0xA0 else 1)
    width = third - second - 1
    number = f"{width}s"
    ends = 0
    if part is None and data[third] != NULL[0]:
        if fourth - value != width:
            return None
        ends = value - start
    if part is not None and data[second] != NULL[0]:
        if not width:
            return None  # It says 0 without a byte, as a null says nothing.
        number = "B" if width == 1 else "I"
    read_shape = Struct(
        f">I{second - start - 3}s{number}{value - third}s{fourth - value}x{end - fourth}s"
    ).unpack_from
    _, first, _, middle, last = read_shape(data, start)
    channel = None if part is None or part.more else part.channel
    return Shape(read_shape, part, channel, first, middle, last, end - start, largest, ends)


def _key(data: bytes, start: int) -> bytes:
    """Tell by what the shape of the frame at `start` is found."""
    key = data[start + 4 : start + KEY]
    if len(key) > HANDLE_PLACE and key[HANDLE_PLACE] == UINT32:
        return data[start + 4 : start + LONG_KEY]
    return key


def _has_more(part: Part | None) -> bool:
    return part is not None and part.more


class FrameReader:
    """Looks at the frames of one connection, from the protocol header on."""

    __slots__ = (
        "_after",
        "_apart",
        "_channels",
        "_described",
        "_drops",
        "_greeted",
        "_head",
        "_held",
        "_is_closed",
        "_link",
        "_most_described",
        "_needed",
        "_rest",
        "_shape",
        "_shapes",
        "_spans",
        "_strange",
        "_twins",
        "attached",
        "begun",
        "max_frame_size",
        "opened",
        "properties",
    )

    def __init__(self, max_frame_size: int, max_links: int = 0) -> None:
        """Refuse frames of more than `max_frame_size` bytes, and what says more of its links than
        so many need.
        """
        self.max_frame_size = max_frame_size
        self._most_described = max(LEAST_DESCRIBED, max_links * USUAL_DESCRIPTION)
        self._channels: dict[int, Channel] = {}
        self._described = 0
        """Bytes that the links there are were described in."""
        self._held = bytearray()
        self._needed = 0
        """What came of a frame, and how many bytes of it must be there to look at it."""
        self._rest = 0
        self._drops = False
        """Bytes to come of a frame that was looked at, and whether they are of no interest."""
        self._apart: Apart | None = None
        """The transfer whose payload comes."""
        self._head = 0
        self._link: Link | None = None
        """The link of the last transfer; bytes before its payload, if that is to be put aside."""
        self._shape: Shape | None = None
        self._shapes: dict[bytes, Shape] = {}
        """The last shape, and all by what they begin with."""
        self._twins: dict[bytes, Shape] = {}
        """Others that begin the same: of parts with more to come, or of the last ones."""
        self._spans = 0
        """What was looked at since `renew`, in deliveries."""
        self._strange = 0
        """Frames that were unlike the shape of their beginning."""
        self._greeted = self._is_closed = False
        self.opened = False
        """Whether the peer's open came."""
        # Lists, for they are mostly empty, and an empty deque has 760 bytes.
        self.begun: list[int] = []
        """Channels of the begins that came, until somebody takes them from here, first ones first.
        """
        self.attached: list[tuple[Any, ...]] = []
        """Handle, source, target and properties of the attaches that came, until somebody takes
        them, first ones first.
        """
        self.properties: dict[Any, Any] = {}
        """Those of the peer's open."""
        self._after: Notice | None = None
        """What is to be done after the frame at hand."""

    def whole(self, data: bytes) -> bytes:
        """Put what was held back before what has come, or hold this back too. Nothing counts
        behind a close.
        """
        if self._is_closed:
            return b""
        if not self._needed:
            return data
        self._held += data
        if len(self._held) < self._needed:
            return b""
        data = bytes(self._held)
        self._held.clear()
        self._needed = 0
        return data

    def look(self, data: bytes, start: int) -> tuple[int, int, Fault | Notice | None]:
        """Look at what came, from `start` on: give the end of what the engine is to have, where to
        go on looking, and what is wrong there, or to be seen to.
        """
        position, total = start, len(data)
        if self._apart is not None:
            return (start, *self._put_aside(self._apart, data, start))
        if self._rest:
            position += min(self._rest, total - start)
            self._rest -= position - start
            if self._drops:
                return start, position, None
            if self._rest:
                return total, total, None
        while True:
            shape = self._shape
            if shape is not None:
                position = self._alike(data, position, shape)
            if position >= total:
                self._rest, self._drops = position - total, False
                return total, total, None
            if self.is_full:
                return position, position, None
            self._spans += 1
            if shape is not None and self._like_others(data, position):
                return self._begin_apart(data, position)
            try:
                keeps, following = self._frame(data, position)
            # Without their tracebacks: those have the frames of the callers, which have these.
            except Fault as fault:
                return position, self._drop(fault.following, total), fault.with_traceback(None)
            except Restated as restated:
                return position, restated.following, restated.with_traceback(None)
            except Notice as notice:
                return position, position, notice.with_traceback(None)
            if self._head:
                return self._begin_apart(data, position)
            if following == position:
                self._held += data[position:]
                return position, total, None
            if not keeps:
                return position, self._drop(following, total), None
            position = following
            if self._after is not None:
                after, self._after = self._after, None
                return position, position, after
            if self._is_closed:
                return position, total, None

    @property
    def is_full(self) -> bool:
        """Whether the engine is to be told of what was looked at, before there is more."""
        return self._spans > AT_ONCE

    def renew(self) -> None:
        """Look at as much again."""
        self._spans = 0

    def _begin_apart(self, data: bytes, position: int) -> tuple[int, int, Apart | None]:
        """Put aside what has come of the payload of a transfer; give it with the last of it, and
        with what else has come of its delivery.
        """
        link, head = self._link, self._head
        assert link is not None
        self._head = 0
        size, channel = int.from_bytes(data[position : position + 4], "big"), position + 6
        words = head.to_bytes(4, "big") + data[position + 4 : position + head]
        self._apart = apart = Apart(words, link.handle, size - head)
        apart.channel = int.from_bytes(data[channel : channel + 2], "big")
        return (position, *self._put_aside(apart, data, position + head))

    def _put_aside(self, apart: Apart, data: bytes, start: int) -> tuple[int, Apart | None]:
        view, link = memoryview(data), self._link
        part = view[start : start + apart.missing]
        apart.missing -= len(part)
        keep(apart.parts, part, of=len(data))
        position = start + len(part)
        if apart.missing:
            return position, None
        self._apart = None
        while link is not None and link.is_pending and self._like_others(data, position, link):
            head, self._head = self._head, 0
            end = position + int.from_bytes(data[position : position + 4], "big")
            apart.words += head.to_bytes(4, "big") + data[position + 4 : position + head]
            keep(apart.parts, view[position + head : end], of=len(data))
            position = end
            self._spans += 1
        return position, apart

    def _like_others(self, data: bytes, position: int, link: Link | None = None) -> bool:
        """Note a large transfer that is like those that were seen, and tell whether it is; with a
        `link`, one of that which has come as a whole.
        """
        size, there = int.from_bytes(data[position : position + 4], "big"), len(data) - position
        if size < APART or size > self.max_frame_size or (link is not None and size > there):
            return False
        key = _key(data, position)
        for shape in (self._shapes.get(key), self._twins.get(key)):
            if shape is None or shape.part is None or shape.smallest > min(there, size):
                continue
            if link is not None and shape.part.link is not link:
                continue
            _, one, number, two, three = shape.read(data, position)
            is_alike = one == shape.first and two == shape.middle and three == shape.last
            if is_alike and shape.part.takes(number):
                self._shape, self._link, self._head = shape, shape.part.link, shape.smallest
                return True
        return False

    def _drop(self, following: int, total: int) -> int:
        self._rest, self._drops = max(following - total, 0), True
        return min(following, total)

    def _alike(self, data: bytes, position: int, shape: Shape) -> int:
        """Pass over frames of a shape, or of another that is known."""
        total, shapes, from_bytes = len(data), self._shapes, int.from_bytes
        read_shape, part, channel, first, middle, last, smallest, largest, ends = shape
        limit = total - smallest
        # Whole messages come with the next id; all else about deliveries is the part's to tell.
        expected = UNKNOWN if channel is None or channel.pending else channel.next_id
        tried = tries = 0
        while position <= limit:
            size, one, number, two, three = read_shape(data, position)
            if (
                one == first
                and two == middle
                and three == last
                and size >= smallest
                and size <= largest
            ):
                if number == expected:
                    position += size
                    expected += 1
                    continue
                if part is None:
                    if ends:
                        last_one = data[position + ends : position + ends + len(number)]
                        if last_one != number:
                            if last_one < number:
                                break
                            self._spans += from_bytes(last_one, "big") - from_bytes(number, "big")
                            if self._spans > AT_ONCE:
                                position += size
                                break
                    position += size
                    continue
                if expected != UNKNOWN:
                    part.channel.next_id, expected = expected, UNKNOWN
                if not part.takes(number):
                    break
                position += size
                continue
            key = _key(data, position)
            other = shapes.get(key)
            if other is shape:
                other = self._twins.get(key)
            tries = 1 if tried != position else tries + 1
            tried = position
            if other is None or tries > MOST_TRIES:
                break
            if expected != UNKNOWN and channel is not None:
                channel.next_id = expected
            read_shape, part, channel, first, middle, last, smallest, largest, ends = shape = other
            limit = total - smallest
            expected = UNKNOWN if channel is None or channel.pending else channel.next_id
        if expected != UNKNOWN and channel is not None:
            channel.next_id = expected
        self._shape = shape
        return position

    def _learn(
        self, data: bytes, start: int, fields: int, end: int, largest: int, part: Part | None = None
    ) -> None:
        """Learn the shape of a frame, as it is worth it."""
        key = _key(data, start)
        shapes, known = self._shapes, self._shapes.get(key)
        if known is not None and _has_more(known.part) is not _has_more(part):
            shapes, known = self._twins, self._twins.get(key)
        if known is not None or len(shapes) >= self._most_shapes():
            self._strange += 1
            if self._strange % LEARN_EVERY:
                return
            if known is None:
                shapes.clear()
        shape = learn(data, start, fields, end, largest, part)
        if shape is not None:
            self._shape = shapes[key] = shape

    def _most_shapes(self) -> int:
        """Tell how many shapes are kept."""
        return MAX_SHAPES + 2 * sum(len(channel.links) for channel in self._channels.values())

    def _forget(self) -> None:
        """Look at every frame anew: a link or session is gone."""
        self._shapes.clear()
        self._twins.clear()
        self._shape = None

    def answered(self) -> None:
        """Our begins went out for all that came."""
        for channel in self._channels.values():
            channel.is_answered = True

    def granted(self, number: int, handle: int) -> int:
        """Tell up to which delivery-count the peer has given credit to a link."""
        channel = self._channels.get(number)
        link = channel.links.get(handle) if channel is not None else None
        return link.granted if link is not None else 0

    def available(self, number: int, handle: int) -> int | None:
        """Tell how many messages the peer has on a link and does not send, if it says that."""
        channel = self._channels.get(number)
        link = channel.links.get(handle) if channel is not None else None
        return link.available if link is not None else None

    def ignore(self, number: int) -> None:
        """Drop what still comes on a channel whose session we have ended."""
        channel = self._channels.get(number)
        if channel is not None:
            channel.is_ended = True
        self._forget()

    def _frame(self, data: bytes, start: int) -> tuple[bool, int]:
        """Look at one frame: tell whether the engine is to have it, and where it ends; that is
        where it begins if more of it must come first.
        """
        there = len(data) - start
        if not self._greeted:
            # The engine reads the protocol header.
            self._greeted = there >= 8
            return (True, start + 8) if self._greeted else self._hold(start, 8)
        if there < 8:
            return self._hold(start, 8)
        size, offset, kind, number = HEADER.unpack_from(data, start)
        body, end = start + 4 * offset, start + size
        if offset < 2 or body > end or size > self.max_frame_size or kind:
            raise Fault(
                ProtocolViolation(
                    f"faulty frame header: size {size}, data offset {offset}, type {kind}",
                    hint=f"frames are of type 0 and of {self.max_frame_size} bytes at most",
                )
            )
        if body == end:
            return True, end
        needed = min(size, body - start + 8)
        if there < needed:
            return self._hold(start, needed)
        is_short = data[body : body + 2] == SHORT and body + 3 < end
        if not is_short and there < size:
            return self._hold(start, size)
        code, fields = (data[body + 2], body + 3) if is_short else _descriptor(data, body)
        if code != TRANSFER:
            self._spans += FRAME_COSTS
        channel = self._expect(code, number)
        if channel is not None and channel.is_ended and code != END:
            return False, end
        needed = min(size, _list_end(data, fields) - start) if code == TRANSFER else size
        if there < needed:
            return self._hold(start, needed)
        try:
            words, rest = self._perform(data, start, code, fields, end, number)
        except (ProtocolViolation, InvalidArgument) as error:
            raise Fault(error, None if channel is None or code == END else number, end) from None
        except Notice as notice:
            notice.channel = number
            raise
        after = self._after
        if after is not None:
            after.channel = number
        if words:
            self._after, self._rest, self._drops = None, rest, False
            raise Restated(words, end - rest, after)
        if code == TRANSFER and size >= APART:
            self._head = needed
        return True, end

    def _hold(self, start: int, needed: int) -> tuple[bool, int]:
        self._needed = needed
        return True, start

    def _expect(self, code: int, number: int) -> Channel | None:
        """Tell of what session a performative is, if it may come now."""
        if not OPEN <= code <= CLOSE:
            raise Fault(
                ProtocolViolation(f"a frame of descriptor {code:#x} is no AMQP performative")
            )
        name = COMPOSITES[code][0]
        if not self.opened and code != OPEN:
            raise Fault(IllegalState(f"{name} came before open"))
        channel = self._channels.get(number)
        if code == BEGIN and channel is not None:
            raise Fault(IllegalState(f"begin came on channel {number}, which has a session"))
        if code in (OPEN, BEGIN, CLOSE):
            return None
        if channel is None:
            raise Fault(IllegalState(f"{name} came on channel {number}, which has no session"))
        return channel

    def _perform(
        self, data: bytes, start: int, code: int, fields: int, end: int, number: int
    ) -> tuple[bytes, int]:
        """Check the fields of a performative, and note what it changes. Give other words for it, if
        the engine needs them, and how many bytes of its frame stay behind them.
        """
        match = _usual(data, code, fields, end) if code in USUAL else None
        given: Sequence[bytes]
        rest = 0
        if match is None:
            places, stop = read(data, fields, code)
            rest = end - stop
            if rest < 0 or (rest and code != TRANSFER):
                raise MalformedFrame(f"{COMPOSITES[code][0]} does not end with its frame")
            if code not in USUAL:
                self._note(code, data, places, number)
                return b"", 0
            ends = [*places[1:], stop]
            given = [data[one:two] for one, two in zip(places, ends, strict=True)]
            given += [NULL] * (len(COMPOSITES[code][1]) - len(given))
        else:
            given = match.groups(NULL)
        channel = self._channels[number]
        if code == FLOW:
            self._after, credit = _flow(channel, given)
            return (_words(code, number, given, 6, credit), 0) if credit else (b"", 0)
        largest, state = end - start, 7 if code == TRANSFER else 4
        part = None
        if code == TRANSFER:
            self._link = link = _transfer(channel, given)
            if _is_like_others(given):
                part = Part(channel, link, more=given[5] in TRUE, settled=_flag(given[4]))
            largest = APART - 1
        else:
            span = _span(given)
            if not _changes_anything(given):
                raise Restated(b"", end, None)
            self._spans += span + _weight(given[4], span)
            if given[0] in TRUE and _is_transactional(given[4]):
                self._after = _retire(channel, given)
        if match is None:
            numbered = _numbered(given[state])
            return (
                (_words(code, number, given, state, numbered, rest), rest) if numbered else (b"", 0)
            )
        is_alike = part is not None if code == TRANSFER else self._after is None
        if code != TRANSFER and len(given[4]) > LONG_STATE:
            return b"", 0
        if is_alike and (match.lastindex or 0) >= 3:
            self._learn(data, start, match.start(), match.end(), largest, part)
        return b"", 0

    def _note(self, code: int, data: bytes, places: list[int], number: int) -> None:
        """Note what a performative changes that does not come with each message."""
        if code == OPEN:
            _check_open(value(data, places, 2), number)
            self.properties = value(data, places, 9) or {}
            self.opened = True
        elif code == BEGIN:
            is_answer = value(data, places, 0) is not None
            self._channels[number] = Channel(
                value(data, places, 1), value(data, places, 4), is_answered=is_answer
            )
            self.begun.append(number)
        elif code == ATTACH:
            self._attach(self._channels[number], data, places)
        elif code == DETACH:
            self._described -= self._channels[number].detach(value(data, places, 0)).described
            self._forget()
        elif code == END:
            self._described -= self._channels.pop(number).described()
            self._forget()
        elif code == CLOSE:
            self._is_closed = True

    def _attach(self, channel: Channel, data: bytes, places: list[int]) -> None:
        """Note an attach, unless it says too much."""
        told = [place for index, place in enumerate(places) if index in (5, 6, 13)]
        described = sum(skip(data, place) - place for place in told)
        in_all = self._described + described
        if described > LONGEST_DESCRIPTION or in_all > self._most_described:
            raise DescribedAtLength(
                f"source, target and properties of a link have {described} bytes, and with those "
                f"of the other links {in_all}",
                hint=f"use {LONGEST_DESCRIPTION} at most, and {self._most_described} for all links "
                "of a connection",
            )
        name, handle, receives = (value(data, places, index) for index in range(3))
        if len(name.encode()) > LONGEST_NAME:
            raise InvalidArgument(f"a link has a name of more than {LONGEST_NAME} bytes")
        channel.attach(handle, name, receives=receives, described=described)
        self._described = in_all
        self._spans += ATTACH_COSTS + described // BYTES_OF_A_SPAN
        self.attached.append((handle, *(value(data, places, index) for index in (5, 6, 13))))


def _transfer(channel: Channel, given: Sequence[bytes]) -> Link:
    """Note a transfer."""
    handle, delivery, tag, message_format, settled, more, mode, _, resume, aborted, _ = given
    return channel.transfer(
        _number(handle),
        None if delivery == NULL else _number(delivery),
        tagged=tag != NULL,
        message_format=None if message_format == NULL else _number(message_format),
        settled=_flag(settled),
        more=more in TRUE,
        second=mode == SECOND,
        resumed=resume in TRUE,
        aborted=aborted in TRUE,
    )


def _is_like_others(given: Sequence[bytes]) -> bool:
    """Tell whether nothing is strange about a transfer."""
    return (
        given[9] not in TRUE
        and (given[1] == NULL) == (given[2] == NULL)
        and given[6] != SECOND
        and (given[3] == NULL or not _number(given[3]))
    )


def _flag(given: bytes) -> bool | None:
    """Read a boolean."""
    return None if given == NULL else given in TRUE


def _flow(channel: Channel, given: Sequence[bytes]) -> tuple[Notice | None, bytes]:
    """Note a flow; give the link-credit that the engine is to read, if it is not what stands there:
    it takes none for 0, and more than 31 bits for less than 0.
    """
    handle, count, credit, properties = given[4], _number(given[5]), given[6], given[10]
    link = None if handle == NULL else channel.find(_number(handle), "flow")
    granted, other = count + _number(credit), b""
    if link is not None:
        link.available = None if given[7] == NULL else _number(given[7])
    if link is not None and link.receives:
        if credit == NULL:
            left = (link.granted - count) & MASK
            left = 0 if left > MOST_CREDIT else left
            granted, other = count + left, encode(UInt(left))
        elif granted - count > MOST_CREDIT:
            granted = count + MOST_CREDIT
            other = encode(UInt(MOST_CREDIT))
        link.granted = granted
    named = {} if properties == NULL else decode(properties)[0]
    acquires = named.get("txn-id") is not None
    echo = given[9] in TRUE
    return channel.flow(link, _number(given[2]), granted, acquires=acquires, echo=echo), other


def _span(given: Sequence[bytes]) -> int:
    """Tell how far the last delivery of a disposition is from the first; raise if it ends before it
    begins.
    """
    first, last = given[1], given[2]
    span = 0 if last == NULL else (_number(last) - _number(first)) & MASK
    if span > MASK >> 1:
        raise InvalidArgument(
            f"disposition is for the deliveries {_number(first)} to {_number(last)}, which are none"
        )
    return span


def _weight(state: bytes, span: int) -> int:
    """Tell what a state counts for beside its deliveries; raise if it says too much of too many."""
    if len(state) <= LONG_STATE:
        return 0
    size = len(state) * (span + 1)
    if size > MOST_STATED:
        raise InvalidArgument(
            f"disposition has a state of {len(state)} bytes for {span + 1} deliveries",
            hint=f"of one disposition {MOST_STATED} bytes are taken, each delivery counted; say so "
            "much of fewer deliveries at once",
        )
    return size // STATE_COSTS


def _changes_anything(given: Sequence[bytes]) -> bool:
    """Tell whether a disposition says more than that something of its deliveries has come."""
    state = given[4]
    return given[3] in TRUE or (state != NULL and code_at(state, 0)[0] != RECEIVED)


def _numbered(state: bytes) -> bytes:
    """Describe a state that has the name of one by its number: the engine knows no names. Nothing
    for other states.
    """
    if state[1:2] not in (b"\xa3", b"\xb3"):
        return b""
    code, fields = code_at(state, 0)
    return SHORT + bytes((code,)) + state[fields:] if code else b""


def _words(
    code: int, number: int, given: Sequence[bytes], place: int, other: bytes, rest: int = 0
) -> bytes:
    """Make a frame, or what comes before the `rest` of it, with another field at one place."""
    fields = b"".join([*given[:place], other, *given[place + 1 :]])
    body = SHORT + bytes((code, LIST32)) + SIZES.pack(len(fields) + 4, len(given)) + fields
    return HEADER.pack(HEADER.size + len(body) + rest, 2, 0, number) + body


def _is_transactional(state: bytes) -> bool:
    """Tell whether a state belongs to a transaction."""
    return state.startswith(b"\x00\x53\x34") or (
        # Of another form than the usual ones.
        state[1:2] not in (b"\x53", b"") and code_at(state, 0)[0] == TRANSACTIONAL
    )


def _retire(channel: Channel, given: Sequence[bytes]) -> Notice:
    """Note outcomes in a transaction."""
    first = _number(given[1])
    last = first if given[2] == NULL else _number(given[2])
    transaction_id, outcome = read_state(decode(given[4])[0].value)
    count = ((last - first) & MASK) + 1
    settled = given[3] in TRUE
    return channel.retire(Retiring(transaction_id, outcome, first, count, settled=settled))


def _descriptor(data: bytes, body: int) -> tuple[int, int]:
    """Read a descriptor of any form; give it and the offset after it."""
    try:
        code, end = code_at(data, body)
    except MalformedFrame as error:
        raise Fault(ProtocolViolation("a frame has no performative", reason=error.text)) from None
    # The engine knows numbers only.
    return (0 if data[body + 1] in (0xA3, 0xB3) else code), end


def _list_end(data: bytes, fields: int) -> int:
    """Tell where a list ends, as far as can be seen."""
    width = {LIST8: 1, LIST32: 4}.get(data[fields], 0) if fields < len(data) else 0
    start = fields + 1 + width
    return start + int.from_bytes(data[fields + 1 : start], "big")


def _usual(data: bytes, code: int, fields: int, end: int) -> re.Match[bytes] | None:
    """Match a list of fields in their usual forms, which only a transfer has something behind."""
    width = {LIST8: 1, LIST32: 4}.get(data[fields], 0) if fields < len(data) else 0
    stop = _list_end(data, fields)
    first = fields + 1 + 2 * width
    if not width or first > stop or stop > end or (stop < end and code != TRANSFER):
        return None
    match = USUAL[code].fullmatch(data, first, stop)
    if match is None or match.lastindex != int.from_bytes(data[first - width : first], "big"):
        return None
    return match


def _number(encoded: bytes) -> int:
    """Read a uint, in any of its forms."""
    return int.from_bytes(encoded[1:], "big")


def _check_open(size: int | None, number: int) -> None:
    """Check the max-frame-size of an open, and its channel."""
    if number:
        raise ProtocolViolation(f"open came on channel {number} and not on 0")
    if size is not None and size < MIN_MAX_FRAME_SIZE:
        raise InvalidArgument(
            f"max-frame-size {size} is less than {MIN_MAX_FRAME_SIZE}",
            hint="every peer must take frames of so many bytes",
        )


def close_frame(error: QpidHaError | PeerError | None) -> bytes:
    """Make a close."""
    if isinstance(error, QpidHaError):
        error = PeerError.of(error)
    fields = [] if error is None else [describe_error(error)]
    body = encode(Described(ULong(CLOSE), fields))
    return HEADER.pack(HEADER.size + len(body), 2, 0, 0) + body
