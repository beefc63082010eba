"""Peek: what stands in some messages of a queue, for an operator; nothing changes by that.

A message may be of any size and have anything in it, and this runs in a turn of the broker: so of
bodies the beginning is shown, as text where it is text and in hex where it is not, and of other
sections those that are small. Knows no request. Source: AMQP 1.0 section 3.2; RabbitMQ's peek.
"""

from __future__ import annotations

import json
from codecs import getincrementaldecoder
from itertools import islice
from typing import TYPE_CHECKING, Any

from qpidha.management.schema import plain
from qpidha.model.encoding import decode, sections
from qpidha.model.errors import InvalidArgument, NotFound, ProtocolViolation
from qpidha.model.message_view import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    HEADER_FIELDS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PROPERTY_FIELDS,
    VALUE,
)

if TYPE_CHECKING:
    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message

MOST = 50
"""Messages that are shown at once."""
FARTHEST = 50_000
"""The last position that is looked for, in some ms."""
SHOWN = 1000
"""Bytes of a body that are shown."""
LARGEST = 16 << 10
"""Bytes of a section that is decoded."""
LISTS = {HEADER: ("header", HEADER_FIELDS), PROPERTIES: ("properties", PROPERTY_FIELDS)}
MAPS = {
    MESSAGE_ANNOTATIONS: "message_annotations",
    APPLICATION_PROPERTIES: "application_properties",
}


def peeked(queue: Queue, position: int, count: int) -> list[dict[str, Any]]:
    """Show `count` messages from a position on, the first one is 1, in the order in which they came
    to the queue; NotFound if there is none at that position.
    """
    if not 1 <= position <= FARTHEST:
        raise InvalidArgument(
            f"the position {position} cannot be shown",
            hint=f"give one from 1 to {FARTHEST}; to see more, browse the queue",
        )
    if not 1 <= count <= MOST:
        raise InvalidArgument(f"{count} messages cannot be shown", hint=f"give 1 to {MOST}")
    found = list(islice(queue.ordering.after(0), position - 1, position - 1 + count))
    if not found:
        raise NotFound(
            f"queue {queue.name} has {len(queue.messages)} messages, and none at {position}",
            hint="positions begin with 1",
        )
    return [
        _shown(message, position + number, queue.delayed.get(message.sequence, 0))
        for number, message in enumerate(found)
    ]


def _shown(message: Message, position: int, due: int) -> dict[str, Any]:
    payload = message.body()
    shown: dict[str, Any] = {
        "position": position,
        "sequence": message.sequence,
        "bytes": message.size,
        "acquired": message.acquired and not due,
        "delivery_count": message.delivery_count,
        "expires": message.expires,
        "due": due,
    }
    try:
        _read(payload, shown)
        if message.annotations:
            _read(message.annotations, shown)
    except (ProtocolViolation, RecursionError):
        shown["unreadable"] = True
    shown.setdefault("body", _text_or_hex(b"" if "body_bytes" in shown else payload))
    return shown


def _read(payload: bytes, shown: dict[str, Any]) -> None:
    """Add what the sections say."""
    for code, _, start, end in sections(payload):
        is_small = end - start <= LARGEST
        if code in LISTS:
            name, fields = LISTS[code]
            shown[name] = (
                _listed(decode(payload, start, [LARGEST])[0], fields) if is_small else None
            )
        elif code in MAPS:
            shown[MAPS[code]] = plain(decode(payload, start, [LARGEST])[0]) if is_small else None
        elif DATA <= code <= VALUE and "body" not in shown:
            shown["body_bytes"] = end - start
            shown["body"] = _body(code, payload, start, end)


def _listed(values: Any, fields: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(values, list):
        raise ProtocolViolation("a section is not the list that it must be")
    return {
        name: plain(value) for name, value in zip(fields, values, strict=False) if value is not None
    }


def _body(code: int, payload: bytes, start: int, end: int) -> dict[str, Any]:
    """Show the first section of a body: `text`, or `hex`, and whether that is not all of it."""
    if code != DATA and end - start > LARGEST:
        return _text_or_hex(payload[start:end])
    value = decode(payload, start, [LARGEST])[0]
    if isinstance(value, bytes):
        return _text_or_hex(value)
    text = value if isinstance(value, str) else json.dumps(plain(value))
    return {"text": text[:SHOWN], "is_cut": len(text) > SHOWN}


def _text_or_hex(value: bytes) -> dict[str, Any]:
    beginning, is_cut = value[:SHOWN], len(value) > SHOWN
    try:
        text = getincrementaldecoder("utf-8")().decode(beginning, final=not is_cut)
    except UnicodeDecodeError:
        return {"hex": beginning.hex(), "is_cut": is_cut}
    if all(letter.isprintable() or letter in "\n\r\t" for letter in text):
        return {"text": text, "is_cut": is_cut}
    return {"hex": beginning.hex(), "is_cut": is_cut}
