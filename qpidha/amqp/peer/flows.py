"""Flows: what the engine does not say in them, put into the bytes that it makes.

It answers no echo for a link on which it sends, and counts the transfers that come, whatever the
peer says of them. For both the numbers that it gave sessions and links are read from its begins and
attaches. Only what goes out is looked at here. Source: AMQP 1.0 sections 2.5.6, 2.7.2 to 2.7.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct
from typing import Any

from qpidha.amqp.peer.channels import MASK
from qpidha.amqp.peer.links import LinkEnd, SessionEnd
from qpidha.amqp.peer.performatives import ATTACH, BEGIN, FLOW
from qpidha.amqp.peer.sasl import AMQP_HEADER
from qpidha.model.encoding import Described, Symbol, UInt, ULong, decode, encode

HEADER = Struct(">IBBH")
DESCRIPTOR = 3
"""Bytes of a performative's descriptor, as the engine writes it."""
LIST8 = 0xC0


def note_numbers(
    data: bytes, sessions: Mapping[int | None, SessionEnd], links: Iterable[LinkEnd]
) -> None:
    """Read the channels and handles of what we begin and attach; `sessions` are those of the peer,
    by its channels, `links` those that were attached.
    """
    wanted = {(link.session, link.name, link.is_sender): link for link in links}
    mine = {session.own_channel: session for session in sessions.values()}
    for place, channel, code in performatives(data):
        if code == BEGIN:
            session = sessions.get(_first(data, place, 1)[0])
            if session is not None:
                session.own_channel = channel
                mine[channel] = session
        elif code == ATTACH and channel in mine:
            name, handle, receives = _first(data, place, 3)
            link = wanted.get((mine[channel], name, not receives))
            if link is not None:
                link.own_handle = handle


def with_link(
    data: bytes,
    handle: int,
    used: int,
    credit: int,
    *,
    drain: bool,
    available: int | None = None,
    properties: Mapping[str, Any] | None = None,
) -> bytes:
    """Make a flow of a session one of a link on which we send: `used` is its delivery-count."""
    waiting = None if available is None else UInt(available)
    of_link: list[Any] = [UInt(handle), UInt(used & MASK), UInt(credit), waiting, drain]
    if properties:
        of_link += [False, {Symbol(name): value for name, value in properties.items()}]
    return _changed(data, lambda channel, fields: [*fields[:4], *of_link])


def shifted(data: bytes, shifts: Mapping[int, int]) -> bytes:
    """Move the next-incoming-id of flows, by the channels of sessions."""

    def shift(channel: int, fields: list[Any]) -> list[Any]:
        if channel not in shifts or not fields or fields[0] is None:
            return fields
        return [UInt((fields[0] + shifts[channel]) & MASK), *fields[1:]]

    return _changed(data, shift)


def _changed(data: bytes, change: Callable[[int, list[Any]], list[Any]]) -> bytes:
    parts, done = [], 0
    for place, channel, code in performatives(data):
        if code == FLOW:
            flow, end = decode(data, place)
            body = encode(Described(ULong(FLOW), change(channel, flow.value)))
            header = HEADER.pack(HEADER.size + len(body), 2, 0, channel)
            parts += [data[done : place - HEADER.size], header, body]
            done = end
    return b"".join([*parts, data[done:]])


def tag_at(data: bytes, place: int) -> bytes:
    """Read the delivery-tag of a transfer."""
    tag: bytes = _first(data, place, 3)[2]
    return tag


def performatives(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Give where each performative begins, its channel and its descriptor."""
    place = len(AMQP_HEADER) if data.startswith(AMQP_HEADER) else 0
    while place + HEADER.size < len(data):
        size, _, _, channel = HEADER.unpack_from(data, place)
        if size > HEADER.size:
            yield place + HEADER.size, channel, data[place + HEADER.size + 2]
        place += size


def _first(data: bytes, place: int, count: int) -> list[Any]:
    """Decode the first fields of a performative."""
    place += DESCRIPTOR
    place += 3 if data[place] == LIST8 else 9
    fields = []
    for _ in range(count):
        field, place = decode(data, place)
        fields.append(field)
    return fields
