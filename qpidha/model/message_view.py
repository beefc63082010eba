"""Message view: what an encoded AMQP message says, read from its bytes, and bytes that say
something else.

Nothing here changes a bare message: what is rewritten are header and annotations, and every section
that is not rewritten is copied as it came. The functions look only as far as they must.
Source: AMQP 1.0 section 3.2.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

from qpidha.model.duration import MILLISECOND
from qpidha.model.encoding import (
    MAX_EMPTY_ITEMS,
    Array,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    decode,
    encode,
    sections,
    skip,
    walk,
)
from qpidha.model.errors import InvalidArgument, ProtocolViolation, Unauthorized
from qpidha.model.sizes import TooManyValues, check, pass_map, pass_over

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES = 0x70, 0x71, 0x72, 0x73
APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE, FOOTER = 0x74, 0x75, 0x76, 0x77, 0x78

HEADER_FIELDS = ("durable", "priority", "ttl", "first_acquirer", "delivery_count")
PROPERTY_FIELDS = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)
EXPIRY_TIME, GROUP_ID = map(PROPERTY_FIELDS.index, ("absolute_expiry_time", "group_id"))
NO_PRIORITY = 256
"""Above all priorities: the header names none."""
LATEST = 2**63 - 1
"""The last nanosecond that fits into 64 bits, in the year 2262; what expires later never does."""
LAST_EXPIRY = LATEST // MILLISECOND
FIRST_EXPIRY = 1_000_000_000_000
"""The first millisecond that can be an absolute expiry, of the year 2001: there was no AMQP 1.0
before. What is less is a reading of a clock that began with its machine (oslo.messaging).
"""
FAILED_OVER = "x-opt-ha-failover"
"""The message annotation of a message that was on its queue when its primary changed. Who had it
then is not replicated, so it may have been with a consumer or not.
"""
ACQUIRED_COUNT = "x-acquired-count"
"""The message annotation of a message that a consumer had before and gave back: how often, whether
or not that counts as a failed delivery.
"""
DELIVERY_TIMES = ("x-opt-delivery-time", "x-opt-scheduled-enqueue-time", "_AMQ_SCHED_DELIVERY")
"""Annotations that say when a message is to be delivered, in ms since the epoch: those of JMS and
Artemis, of Azure's Service Bus, and the older one of Artemis.
"""
DELIVERY_DELAY = "x-opt-delivery-delay"
"""The annotation that says after how many ms."""
LONGEST_DELAY = 10 * 365 * 86400 * 1000 * MILLISECOND
LARGEST = {"priority": 2**8 - 1, "ttl": 2**32 - 1, "delivery_count": 2**32 - 1}
"""Largest values of the numbers in a header."""
MOST_DECODED = 1 << 15
"""Values of a message that are decoded. Numbers as keys of a map can be chosen so that a dictionary
compares each with thousands of others.
"""
MOST_FIELDS = 1 << 8
"""Values of a header or of properties that are decoded, which have 13 at most by the book."""
MOST_WALKED = 1 << 18
"""Values of a message that are looked at one by one for their sizes."""
SEVERAL_KINDS = "the body is of several kinds"


class Misnamed(Unauthorized):
    """A message that says of somebody else that he has sent it."""

    def __init__(self, user_id: object) -> None:
        super().__init__("the user-id is another's")
        self.user_id = user_id


def header(payload: bytes) -> dict[str, Any]:
    """Read the header; fields that are absent are not in the result."""
    return _fields(_section(payload, HEADER, [MOST_FIELDS]), HEADER_FIELDS)


def is_durable(payload: bytes) -> bool:
    """Whether the header says durable; seen from a few bytes, as all queues that are durable ask it
    of all messages.
    """
    try:
        if payload[0] or payload[1] != 0x53:
            return _is_durable(payload)
        if payload[2] != HEADER:
            return False
        kind = payload[3]
        if kind == 0x45:
            return False
        if kind == 0xC0:
            at = 6 if payload[5] else 0
        elif kind == 0xD0:
            at = 12 if any(payload[8:12]) else 0
        else:
            return False
        return at > 0 and (payload[at] == 0x41 or (payload[at] == 0x56 and payload[at + 1] == 1))
    except IndexError:
        return False


def priority(payload: bytes) -> int:
    """Return the priority in the header, NO_PRIORITY if there is none; seen from a few bytes, as
    queues that order by it ask it of all messages.
    """
    try:
        if payload[0] or payload[1] != 0x53:
            return _priority(payload)
        if payload[2] != HEADER:
            return NO_PRIORITY
        kind = payload[3]
        if kind == 0x45:
            return NO_PRIORITY
        if kind == 0xC0:
            if payload[5] < 2:
                return NO_PRIORITY
            at = 7 if payload[6] != 0x56 else 8
            if payload[at] == 0x50:
                return payload[at + 1]
        return _priority(payload)
    except IndexError:
        return NO_PRIORITY


def _priority(payload: bytes) -> int:
    """Do as `priority`, for a header that is not written in the shortest way."""
    try:
        found = header(payload).get("priority")
    except ProtocolViolation:
        return NO_PRIORITY
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < NO_PRIORITY:
        return NO_PRIORITY
    return found


def _is_durable(payload: bytes) -> bool:
    """Do as `is_durable`, for a message whose first section is named in a longer way."""
    try:
        return header(payload).get("durable") is True
    except ProtocolViolation:
        return False


def properties(payload: bytes) -> dict[str, Any]:
    """Read the properties; fields that are absent are not in the result."""
    return _fields(_section(payload, PROPERTIES, [MOST_FIELDS]), PROPERTY_FIELDS)


def group_of(payload: bytes) -> tuple[str, int]:
    """Read the group-id and the group-sequence of the properties; empty and 0 if they are absent.
    Only what stands before them is passed over, as some queues ask it of all messages; a short name
    is seen from a few bytes.
    """
    try:
        at = _usual(payload, PROPERTIES)
        count = payload[at + 2] if at > 0 and payload[at] == 0xC0 else 0
        if at == 0 or 0 < count <= GROUP_ID:
            return "", 0
        if count:
            at = pass_over(payload, at + 3, GROUP_ID)
            end = at + 2 + payload[at + 1]
            # The group-sequence is not there, or nothing, or 0.
            if payload[at] == 0xA1 and (count == GROUP_ID + 1 or payload[end] in b"\x40\x43"):
                return payload[at + 2 : end].decode(), 0
    except (IndexError, struct.error, UnicodeDecodeError, ProtocolViolation):
        pass
    found: list[Any] = ["", 0]
    for code, start in walk(payload):
        if code == PROPERTIES:
            kind = payload[start]
            if kind not in (0xC0, 0xD0):
                break
            at = start + (3 if kind == 0xC0 else 9)
            count = payload[at - 1] if kind == 0xC0 else int.from_bytes(payload[at - 4 : at])
            if count > GROUP_ID:
                found[0], at = decode(payload, skip(payload, at, GROUP_ID), [MOST_FIELDS])
                if count > GROUP_ID + 1:
                    found[1] = decode(payload, at, [MOST_FIELDS])[0]
        if code >= PROPERTIES:
            break
    name, sequence = found
    return (name if isinstance(name, str) else "", sequence if isinstance(sequence, int) else 0)


def application_properties(payload: bytes) -> dict[Any, Any]:
    """Read the application properties."""
    return _map(_section(payload, APPLICATION_PROPERTIES, _budget(payload)))


def delivery_annotations(payload: bytes) -> dict[Any, Any]:
    """Read the delivery annotations, which only a message has that a broker has written."""
    return _map(_section(payload, DELIVERY_ANNOTATIONS, _budget(payload)))


def message_annotations(payload: bytes) -> dict[Any, Any]:
    """Read the message annotations."""
    return _map(_section(payload, MESSAGE_ANNOTATIONS, _budget(payload)))


def body(payload: bytes) -> Any:
    """Read the body: a value, the bytes of all data sections, or the list of all sequences'
    elements.
    """
    parts: list[Any] = []
    kind = VALUE
    left = _budget(payload)
    for code, _, start, _ in sections(payload):
        if DATA <= code <= VALUE:
            if parts and code != kind:
                raise ProtocolViolation(SEVERAL_KINDS)
            kind = code
            parts.append(_part(code, decode(payload, start, left)[0]))
    return _joined(parts)


def _part(code: int, value: Any) -> Any:
    """Check what a section of the body has in it."""
    if (code == DATA and not isinstance(value, bytes)) or (
        code == SEQUENCE and not isinstance(value, list)
    ):
        raise ProtocolViolation("a section of the body is not what it must be")
    return value


def _joined(parts: list[Any]) -> Any:
    """Make one body of the parts it came in, which are bytes or lists if they are several."""
    if len(parts) < 2:
        return parts[0] if parts else None
    if isinstance(parts[0], bytes):
        return b"".join(parts)
    return [item for part in parts for item in part]


class Parts(Protocol):
    """What `read_parts` fills in."""

    properties: dict[str, Any]
    application: dict[Any, Any]
    body: Any


def read_parts(payload: bytes, parts: Parts) -> None:
    """Read properties, application properties and body, whatever order the sections come in, up to
    the first that cannot be read. An amqp-value of null is no body where there is another.
    """
    seen = set()
    found: list[Any] = []
    left = _budget(payload)
    for code, start in walk(payload):
        if code in seen and not DATA <= code <= VALUE:
            raise ProtocolViolation(f"section {code:#x} comes twice")
        seen.add(code)
        value = decode(payload, start, left)[0]
        if code == PROPERTIES:
            parts.properties = _fields(value, PROPERTY_FIELDS)
        elif code == APPLICATION_PROPERTIES:
            parts.application = _map(value)
        elif code == VALUE:
            found = found if value is None else [value]
        elif code in (DATA, SEQUENCE):
            part = _part(code, value)
            if found and type(found[0]) is not type(part):
                raise ProtocolViolation(SEVERAL_KINDS)
            found.append(part)
    parts.body = _joined(found)


class Sections:
    """What the sections before the body say, each read when it is asked for."""

    def __init__(self, payload: bytes, annotations: bytes = b"") -> None:
        self._payload = payload
        self._annotations = annotations or payload

    @cached_property
    def header(self) -> dict[str, Any]:
        """The header."""
        return header(self._payload)

    @cached_property
    def properties(self) -> dict[str, Any]:
        """The properties."""
        return properties(self._payload)

    @cached_property
    def annotations(self) -> dict[Any, Any]:
        """The message annotations."""
        return message_annotations(self._annotations)


def pick(payload: bytes, names: Mapping[bytes, int], values: list[Any]) -> None:
    """Read those application properties that have one of `names`, and put each value into its
    place.
    """
    try:
        at = _usual(payload, APPLICATION_PROPERTIES)
        if at < 0:
            sections_of = {code: start for code, start in walk(payload) if code < DATA}
            at = sections_of.get(APPLICATION_PROPERTIES, 0)
        if at:
            _pick(payload, at, names, values)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"malformed message: {error}") from None


def application_property(payload: bytes, name: bytes) -> Any:
    """Read one application property, None if it is absent."""
    values: list[Any] = [None]
    pick(payload, {name: 0}, values)
    return values[0]


def _usual(payload: bytes, wanted: int) -> int:
    """Return where the value of a section before the body begins, 0 if there is none; -1 if one
    before it is named or built in an unusual way.
    """
    at, size = 0, len(payload)
    while at < size:
        if payload[at] or payload[at + 1] != 0x53:
            return -1
        code, kind = payload[at + 2], payload[at + 3]
        if code >= wanted:
            return at + 3 if code == wanted else 0
        if kind == 0xC0 or kind == 0xC1:
            at += 5 + payload[at + 4]
        elif kind == 0x45:
            at += 4
        elif kind == 0xD0 or kind == 0xD1:
            at += 8 + _U32.unpack_from(payload, at + 4)[0]
        else:
            return -1
    return 0


def _pick(payload: bytes, at: int, names: Mapping[bytes, int], values: list[Any]) -> None:
    kind = payload[at]
    if kind == 0xC1:
        count, at = payload[at + 2], at + 3
    elif kind == 0xD1:
        count, at = _U32.unpack_from(payload, at + 5)[0], at + 9
    else:
        _map(decode(payload, at, [MOST_FIELDS])[0])
        return
    left: list[int] = []
    wanted, size = len(names), len(payload)
    for _ in range(count // 2):
        kind = payload[at]
        if kind == 0xA1:
            end = at + 2 + payload[at + 1]
            place = names.get(payload[at + 2 : end])
        elif kind == 0xB1:
            end = at + 5 + _U32.unpack_from(payload, at + 1)[0]
            place = names.get(payload[at + 5 : end])
        else:
            end, place = skip(payload, at), None
        start = end + 2
        at = start + payload[end + 1] if payload[end] == 0xA1 else 0
        if at > size:
            raise ProtocolViolation(f"AMQP value at byte {end} passes the end of the data")
        if place is None:
            at = at or skip(payload, end)
            continue
        if at:
            values[place] = payload[start:at].decode()
        else:
            left = left or _budget(payload)
            values[place], at = decode(payload, end, left)
        wanted -= 1
        if not wanted:
            return


def build(
    content: Any = None,
    *,
    properties: Mapping[str, Any] | None = None,
    application_properties: Mapping[str, Any] | None = None,
    header: Mapping[str, Any] | None = None,
    annotations: Mapping[Any, Any] | None = None,
    section: int | None = None,
) -> bytes:
    """Make a message; bytes become a data section, everything else an AMQP value, unless `section`
    says. Fields as in `properties()`.
    """
    parts = []
    if header:
        parts.append(_header(header))
    if annotations:
        parts.append(
            _section_of(
                MESSAGE_ANNOTATIONS, {Symbol(key): value for key, value in annotations.items()}
            )
        )
    if properties:
        parts.append(_properties(properties))
    if application_properties:
        parts.append(_section_of(APPLICATION_PROPERTIES, dict(application_properties)))
    parts.append(_section_of(section or (DATA if isinstance(content, bytes) else VALUE), content))
    return b"".join(parts)


def merge_annotations(payload: bytes, current: bytes, changes: Mapping[Any, Any]) -> bytes:
    """Make the message-annotations section with `changes` made to `current`, or to the one of the
    payload if that is empty.
    """
    merged = message_annotations(current or payload)
    merged.update(changes)
    return _section_of(MESSAGE_ANNOTATIONS, merged)


def add_annotation(payload: bytes, current: bytes, name: str, value: Any) -> bytes:
    """Make the message-annotations section with one entry more than `current`, or than the one of
    the payload if that is empty. The other entries stay as they are, byte for byte, unless one of
    them has this name.
    """
    content, count = b"", 0
    source = current or payload
    for code, _, start, end in sections(source):
        if code == MESSAGE_ANNOTATIONS:
            kind = source[start]
            width = 1 if kind == 0xC1 else 4
            first = start + 1 + 2 * width
            count = int.from_bytes(source[first - width : first])
            content = source[first:end]
            if kind not in (0xC1, 0xD1) or name.encode() in content:
                return merge_annotations(payload, current, {Symbol(name): value})
    content += encode(Symbol(name)) + encode(value)
    size = struct.pack(">BII", 0xD1, len(content) + 4, count + 2)
    return bytes((0, 0x53, MESSAGE_ANNOTATIONS)) + size + content


class Copies(Exception):
    """A message that came, and is to go to further places: raised by `arrival`, so that what has no
    copies, as nearly all that comes, pays nothing for the question.
    """

    def __init__(self, payload: bytes, expires: int, due: int, keys: list[str]) -> None:
        super().__init__()
        self.payload = payload
        """What is to be kept of it."""
        self.expires = expires
        self.due = due
        self.keys = keys
        """The keys beside its own, each once."""


def arrival(payload: bytes, now: int) -> tuple[bytes, int, int]:
    """Take a message as it came: give what is to be kept of it, when it expires and when it is due
    (ns since the epoch, 0 for never and for at once). One that names further keys in its
    annotations (`x-cc`, `x-bcc`) raises Copies, or InvalidArgument if those are none.

    Most messages have no delivery annotations, and say in the usual way when they expire, if they
    do; that is seen from a few bytes. Whatever is unusual goes the long way.
    """
    try:
        offset = expires = 0
        if payload[0] or payload[1] != 0x53:
            return _arrival(payload, now)
        code = payload[2]
        if code == HEADER:
            kind = payload[3]
            if kind == 0x45:
                offset = 4
            elif kind == 0xC0 and payload[5] < 4:
                offset = 5 + payload[4]
                if payload[5] == 3:
                    expires = _end_in_header(payload, offset, now)
            else:
                return _arrival(payload, now)
            if expires < 0 or payload[offset] or payload[offset + 1] != 0x53:
                return _arrival(payload, now)
            code = payload[offset + 2]
        if code == MESSAGE_ANNOTATIONS and payload[offset + 3] == 0xC1:
            start, offset = offset, offset + 5 + payload[offset + 4]
            if payload[offset] or payload[offset + 1] != 0x53:
                return _arrival(payload, now)
            if _asks_for_more(payload, start, offset):
                return _arrival(payload, now)
            code = payload[offset + 2]
        if PROPERTIES < code <= FOOTER:
            return payload, expires, 0
        if code == PROPERTIES:
            kind = payload[offset + 3]
            if kind == 0x45 or (kind == 0xC0 and payload[offset + 5] < 9):
                return payload, expires, 0
            end = _end_in_properties(payload, offset + 6) if kind == 0xC0 else -1
            if end >= 0:
                return payload, min(expires, end) if expires and end else expires or end, 0
    except (IndexError, struct.error):
        pass
    return _arrival(payload, now)


def _end_in_header(payload: bytes, end: int, now: int) -> int:
    """Return when a message expires whose header has three fields and ends at `end`; -1 if these
    are not written in the usual way, 0 for never.
    """
    if payload[6] not in b"\x40\x41\x42" or payload[7] not in b"\x40\x50":
        return -1
    at = 9 if payload[7] == 0x50 else 8
    kind = payload[at]
    if kind == 0x70 and at + 5 == end:
        ttl = _U32.unpack_from(payload, at + 1)[0]
    elif kind == 0x52 and at + 2 == end:
        ttl = payload[at + 1]
    else:
        return -1
    # One of 0 is for who can have it in this turn.
    expires = now + max(ttl * MILLISECOND, 1)
    return expires if 0 < expires <= LATEST else 0


def _end_in_properties(payload: bytes, start: int) -> int:
    """Return when a message expires, by the properties whose fields, nine or more, begin at
    `start`; -1 if that takes a closer look, 0 for never.
    """
    try:
        at = pass_over(payload, start, EXPIRY_TIME)
        if payload[at] == 0x83:
            expires = int(_I64.unpack_from(payload, at + 1)[0])
            return expires * MILLISECOND if FIRST_EXPIRY <= expires <= LAST_EXPIRY else 0
        return 0 if payload[at] == 0x40 else -1
    except (IndexError, struct.error, ProtocolViolation):
        return -1


def arrival_from(names: frozenset[bytes], payload: bytes, now: int) -> tuple[bytes, int, int]:
    """Do as `arrival`, with a message that says in its user-id, if it has one, that one of `names`
    has sent it; raise Misnamed for another. What not everybody reads in the same way raises
    ProtocolViolation: sections out of order, of another type than theirs, or with anything in them
    whose size is not that of its elements, for other properties could hide there.
    """
    try:
        at, is_usual = 0, True
        if payload[2] == HEADER:
            at = 4 if payload[3] == 0x45 else 5 + payload[4]
        width = _HEADS.get(payload[: at + 4])
        if width:
            size = payload[at + 4] if width == 1 else _U32.unpack_from(payload, at + 4)[0]
            if at + 4 + width + size == len(payload):
                return payload, 0, 0
        elif at and payload[:at] not in _HEADERS:
            if _USUAL.get(payload[:4]) != HEADER:
                return _arrival_from(names, payload, now)
            at, is_usual = pass_over(payload, 3, 1), False
        code = _USUAL.get(payload[at : at + 4], 0)
        if code == MESSAGE_ANNOTATIONS:
            start, at = at, pass_map(payload, at + 3)
            if _asks_for_more(payload, start, at):
                return _arrival_from(names, payload, now)
            code = _USUAL.get(payload[at : at + 4], 0)
        if code == PROPERTIES:
            at = _past_properties(names, payload, at + 3)
            if at < -1:
                at, is_usual = -at, False
            code = _USUAL.get(payload[at : at + 4], 0)
        if code == APPLICATION_PROPERTIES:
            at = pass_map(payload, at + 3)
            code = _USUAL.get(payload[at : at + 4], 0)
        if code > APPLICATION_PROPERTIES:
            is_short = payload[at + 3] in b"\xa0\xa1"
            at = at + 5 + payload[at + 4] if is_short else pass_map(payload, at + 3)
            if at == len(payload):
                return (payload, 0, 0) if is_usual else arrival(payload, now)
    except (LookupError, struct.error, ProtocolViolation):
        pass
    return _arrival_from(names, payload, now)


_HEADERS = frozenset(
    b"\x00\x53\x70" + fields
    for durable in (b"\x40", b"\x41", b"\x42")
    for fields in (
        b"\x45",
        b"\xc0\x02\x01" + durable,
        *(b"\xc0\x04\x02" + durable + bytes((0x50, number)) for number in range(10)),
    )
)
"""What most headers are: nothing, durable or not, or that and a priority."""
_HEADS = {
    header + b"\x00\x53" + body: width
    for header in (b"", *_HEADERS)
    for width, bodies in (
        (1, (b"\x75\xa0", b"\x77\xa0", b"\x77\xa1")),
        (4, (b"\x75\xb0", b"\x77\xb0", b"\x77\xb1")),
    )
    for body in bodies
}
"""How messages begin that are a body and such a header at most -> the bytes of the body's size."""
_KINDS = {
    **dict.fromkeys((HEADER, PROPERTIES, SEQUENCE), b"\x45\xc0\xd0"),
    **dict.fromkeys(
        (DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER), b"\xc1\xd1"
    ),
    DATA: b"\xa0\xb0",
    VALUE: bytes(range(256)),
}
"""Section -> the format codes that it may have."""
_USUAL = {
    bytes((0, 0x53, code, kind)): code
    for code, kinds in _KINDS.items()
    if code not in (DELIVERY_ANNOTATIONS, FOOTER)
    for kind in kinds
}
"""How the sections begin that most messages have -> their code."""
_WIDTHS = {0x40: 1, 0x44: 1, 0x53: 2, 0x80: 9, 0x98: 17}
"""Format code -> bytes of a message-id that always has as many."""
_U32, _I64, _SIZE_AND_COUNT = struct.Struct(">I"), struct.Struct(">q"), struct.Struct(">II")


def _past_properties(names: frozenset[bytes], payload: bytes, at: int) -> int:
    """Return where the properties end whose format code is at `at`; -1 if a closer look is needed:
    they have a user-id that is none of `names`, or another size than they say. The negative of it,
    if they have an absolute expiry.
    """
    kind = payload[at]
    if kind == 0x45:
        return at + 1
    if kind == 0xC0:
        size, count, place = payload[at + 1], payload[at + 2], at + 3
        end = at + 2 + size
    else:
        size, count = _SIZE_AND_COUNT.unpack_from(payload, at + 1)
        place, end = at + 9, at + 5 + size
    if count:
        kind = payload[place]
        place += 2 + payload[place + 1] if kind == 0xA1 else _WIDTHS[kind]
        count -= 1
    if count:
        if payload[place] == 0x40:
            place += 1
        else:
            start, place = place + 2, place + 2 + payload[place + 1]
            if payload[start - 2] != 0xA0 or payload[start:place] not in names:
                return -1
        count -= 1
    if count > len(PROPERTY_FIELDS):
        return -1
    is_timed = False
    if count > 6:
        place = pass_over(payload, place, 6)
        is_timed = payload[place] != 0x40
        count -= 6
    if count:
        place = pass_over(payload, place, count)
    if place != end:
        return -1
    return -end if is_timed else end


def _arrival_from(names: frozenset[bytes], payload: bytes, now: int) -> tuple[bytes, int, int]:
    """Do as `arrival_from`, by looking at everything."""
    left = [MOST_WALKED]
    for code, _, start, end in sections(payload):
        try:
            is_right = payload[start] in _KINDS[code] and check(payload, start, left) == end
        except TooManyValues:
            if code <= PROPERTIES or _may_hide_properties(payload, start):
                raise
            break  # Wherever a reader comes out, there are none.
        if not is_right:
            raise ProtocolViolation(f"message section {code:#x} is not what it must be")
        if code == PROPERTIES:
            found = _listed_at(payload, start, PROPERTY_FIELDS).get("user_id")
            if found is not None and (type(found) is not bytes or found not in names):
                raise Misnamed(found)
    return arrival(payload, now)


def _may_hide_properties(payload: bytes, start: int) -> bool:
    """Whether there is anything from `start` on that a reader who gets there could take for
    properties with a user-id: their name, or their number as whatever type it is, and a list.
    """
    if payload.find(b"amqp:properties:list", start) >= 0:
        return True
    for beginning in (b"\x73\xc0", b"\x73\xd0"):
        at, seen = payload.find(beginning, start), 0
        while at >= 0:
            is_named = payload.endswith(_NUMBERS, start, at + 1)
            seen += 10 if is_named else 1  # by what it costs
            if seen > MOST_WALKED or (is_named and _may_say_who(payload, at + 1)):
                return True
            at = payload.find(beginning, at + 1)
    return False


def _may_say_who(payload: bytes, at: int) -> bool:
    """Whether the second field of the list at `at` could be a name."""
    first = at + (3 if payload[at] == 0xC0 else 9)
    if payload[first : first + 1] in _NOT_SIMPLE:
        return True
    try:
        second = skip(payload, first)
    except ProtocolViolation:
        return False
    return payload[second : second + 1] in _TEXTS


_NUMBERS = tuple(
    b"\0" + bytes((kind,)) + bytes(width - 1) + b"\x73"
    for width, kinds in (
        (1, b"\x50\x51\x52\x53\x54\x55"),
        (2, b"\x60\x61"),
        (4, b"\x70\x71"),
        (8, b"\x80\x81"),
    )
    for kind in kinds
)
"""Descriptors that are the number of properties, with all types of numbers: some readers do not
mind which.
"""
_NOT_SIMPLE = frozenset((b"\0", b"\xc0", b"\xc1", b"\xd0", b"\xd1", b"\xe0", b"\xf0"))
_TEXTS = frozenset((b"\xa0", b"\xa1", b"\xa3", b"\xb0", b"\xb1", b"\xb3"))
"""Format codes of values that have others in them, and of bytes and text."""


def _arrival(payload: bytes, now: int) -> tuple[bytes, int, int]:
    """Do as `arrival`, by looking at everything. A message without a body is none by the book, but
    proton makes them.
    """
    found = sections(payload)
    if not found:
        raise ProtocolViolation("the message has no sections")
    ends = []
    kept = []
    keys: dict[str, None] = {}
    due = 0
    for code, start, body_start, end in found:
        if code == MESSAGE_ANNOTATIONS and payload.find(_CC, start, end) >= 0:
            kept.append(_take_copies(payload[start:end], body_start - start, keys))
        elif code != DELIVERY_ANNOTATIONS:
            kept.append(payload[start:end])
        if code == HEADER:
            ttl = _listed_at(payload, body_start, HEADER_FIELDS).get("ttl")
            if isinstance(ttl, int) and ttl >= 0:
                # One of 0 is for who can have it in this turn.
                ends.append(now + max(ttl * MILLISECOND, 1))
        elif code == MESSAGE_ANNOTATIONS and _may_be_due_later(payload, start, end):
            due = due_at(_map(decode(payload, body_start, _budget(payload))[0]), now)
        elif code == PROPERTIES:
            absolute = _listed_at(payload, body_start, PROPERTY_FIELDS).get("absolute_expiry_time")
            if isinstance(absolute, int) and absolute >= FIRST_EXPIRY:
                ends.append(absolute * MILLISECOND)
    expires = min(ends, default=0)
    expires = expires if 0 < expires <= LATEST else 0
    if keys:
        raise Copies(b"".join(kept), expires, due, list(keys))
    return payload if len(kept) == len(found) else b"".join(kept), expires, due


CC, BCC = "x-cc", "x-bcc"
_CC = b"cc"
"""What is in both."""
MOST_COPIES = 100
"""Further keys that a message may name: for each the exchange is asked once more."""


def _take_copies(section: bytes, start: int, keys: dict[str, None]) -> bytes:
    """Read the further keys that annotations name; return the section that is kept, without those
    that nobody shall see.
    """
    annotations = _map(decode(section, start, _budget(section))[0])
    for name in (CC, BCC):
        value = annotations.get(name)
        items = value.items if isinstance(value, Array) else value
        if items is None:
            continue
        if not isinstance(items, list) or not all(type(item) is str for item in items):
            raise InvalidArgument(
                f"the annotation {name} is no list of text",
                reason="it names further keys of the message",
                hint="send a list of strings, or leave it out",
            )
        keys.update(dict.fromkeys(items))
    if len(keys) > MOST_COPIES:
        raise InvalidArgument(
            f"the annotations {CC} and {BCC} name {len(keys)} keys",
            hint=f"name {MOST_COPIES} at most, or bind the queues to an exchange",
        )
    if BCC not in annotations:
        return section
    del annotations[BCC]
    return _section_of(MESSAGE_ANNOTATIONS, annotations) if annotations else b""


def due_at(annotations: Mapping[Any, Any], now: int) -> int:
    """Return when a message with these annotations is to be delivered, in ns since the epoch; 0 for
    at once. Raise InvalidArgument if that cannot be said, or is too far. Of several the latest one
    holds, so that it is too early for none.
    """
    due = 0
    for name in (*DELIVERY_TIMES, DELIVERY_DELAY):
        value = annotations.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidArgument(
                f"the annotation {name} is no number of milliseconds",
                hint="give a timestamp or a long",
            )
        at = value * MILLISECOND + (now if name == DELIVERY_DELAY else 0)
        if at > now + LONGEST_DELAY:
            raise InvalidArgument(
                f"the annotation {name} says {value}: that is more than ten years from now",
                hint="deliver it earlier",
            )
        due = max(due, at)
    return due if due > now else 0


def _asks_for_more(payload: bytes, start: int, end: int) -> bool:
    """Whether the annotations between two offsets may name further keys of the message, or say when
    it is to be delivered.
    """
    return payload.find(_CC, start, end) >= 0 or _may_be_due_later(payload, start, end)


def _may_be_due_later(payload: bytes, start: int, end: int) -> bool:
    find = payload.find
    return (
        find(b"x-opt-delivery-", start, end) >= 0
        or find(b"x-opt-sched", start, end) >= 0
        or find(b"_AMQ_SCHED", start, end) >= 0
    )


def departure(
    payload: bytes,
    delivery_count: int,
    annotations: bytes,
    *,
    acquired_before: bool = False,
    delivery_annotations: bytes = b"",
    has_ttl: bool = True,
) -> bytes:
    """Make the message that is sent on: with its delivery count in a fresh header, and with other
    annotations if there are any. `acquired_before` is whether another link may have acquired it:
    its header then does not say first-acquirer (AMQP 1.0 section 3.2.1). Without `has_ttl` its
    header says nothing of a time to live.
    """
    fields: dict[str, Any] = {}
    parts = []
    for code, start, body_start, end in sections(payload):
        if code == HEADER:
            fields = _legal(_listed_at(payload, body_start, HEADER_FIELDS))
        elif code == DELIVERY_ANNOTATIONS:
            delivery_annotations = delivery_annotations or payload[start:end]
        elif code != MESSAGE_ANNOTATIONS or not annotations:
            parts.append(payload[start:end])
    if not has_ttl:
        fields.pop("ttl", None)
    if delivery_count:
        fields["delivery_count"] = min(
            fields.get("delivery_count", 0) + delivery_count, LARGEST["delivery_count"]
        )
    if delivery_count or acquired_before:
        fields["first_acquirer"] = False
    return _header(fields) + delivery_annotations + annotations + b"".join(parts)


def place_of_annotations(payload: bytes) -> int:
    """Return the offset at which a section of message annotations can be put into a message as it
    is; -1 if it has such a section, its header says anything of first-acquirer or later fields, or
    it is built in an unusual way. Seen from a few bytes, as messages are many after a failover.
    """
    try:
        at = 0
        if payload[2] == HEADER:
            if payload[3] == 0x45:
                at = 4
            elif payload[3] == 0xC0 and payload[5] < 4:
                at = 5 + payload[4]
            else:
                return -1
        usual = not payload[0] and payload[1] == 0x53
        usual = usual and not payload[at] and payload[at + 1] == 0x53
        return at if usual and PROPERTIES <= payload[at + 2] <= VALUE else -1
    except IndexError:
        return -1


def _legal(fields: dict[str, Any]) -> dict[str, Any]:
    """Keep the fields of a header that are what they must be: a header that is written anew has to
    be right.
    """
    kept = {}
    for name, value in fields.items():
        largest = LARGEST.get(name)
        right = (
            isinstance(value, bool)
            if largest is None
            else type(value) is not bool and isinstance(value, int) and 0 <= value <= largest
        )
        if right:
            kept[name] = value
    return kept


def _budget(payload: bytes) -> list[int]:
    """Say how many values of a message may be decoded."""
    return [min(len(payload) + MAX_EMPTY_ITEMS, MOST_DECODED)]


def _section(payload: bytes, wanted: int, left: list[int]) -> Any:
    """Read one section; None if it is absent."""
    for code, _, start, _ in sections(payload):
        if code == wanted:
            return decode(payload, start, left)[0]
        if code > wanted:
            break
    return None


def _listed_at(payload: bytes, start: int, names: tuple[str, ...]) -> dict[str, Any]:
    """Read the fields of a header, or of properties, whose list is at `start`."""
    return _fields(decode(payload, start, [MOST_FIELDS])[0], names)


def _fields(values: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if values is not None and not isinstance(values, list):
        raise ProtocolViolation("a message section is not the list it must be")
    return {
        name: value for name, value in zip(names, values or (), strict=False) if value is not None
    }


def _map(found: Any) -> dict[Any, Any]:
    if found is not None and not isinstance(found, dict):
        raise ProtocolViolation("a message section is not the map it must be")
    return found or {}


def _section_of(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


_HEADER_TYPES = {"priority": UByte, "ttl": UInt, "delivery_count": UInt}
_PROPERTY_TYPES = {
    "content_type": Symbol,
    "content_encoding": Symbol,
    "absolute_expiry_time": Timestamp,
    "creation_time": Timestamp,
    "group_sequence": UInt,
}


def _header(fields: Mapping[str, Any]) -> bytes:
    return _section_of(HEADER, _listed(fields, HEADER_FIELDS, _HEADER_TYPES))


def _properties(fields: Mapping[str, Any]) -> bytes:
    for name in ("message_id", "correlation_id"):
        # A plain int is no legal message id; an unsigned one is. One below 0 can only be an echo of
        # what a peer gave.
        number = fields.get(name)
        if type(number) is int and number >= 0:
            fields = {**fields, name: ULong(number)}
    return _section_of(PROPERTIES, _listed(fields, PROPERTY_FIELDS, _PROPERTY_TYPES))


def _listed(
    fields: Mapping[str, Any], names: tuple[str, ...], types: Mapping[str, Any]
) -> list[Any]:
    unknown = [name for name in fields if name not in names]
    if unknown:
        raise TypeError(f"{', '.join(unknown)} is no field of this section: {', '.join(names)}")
    values = [fields.get(name) for name in names]
    while values and values[-1] is None:
        values.pop()
    return [
        types[name](value) if value is not None and name in types else value
        for name, value in zip(names, values, strict=False)
    ]
