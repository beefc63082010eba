"""Messages as an application makes and reads them: the sections of AMQP 1.0 with Python types.

A message that was received is decoded when a section of it is first looked at, and one that is only
passed on never is. Python values stand for AMQP types as `qpidha.model.encoding` says: a plain int
is a long, `Symbol`, `UInt`, `Timestamp` and the like are there for the others. Knows no connection.
Source: AMQP 1.0 section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qpidha.amqp.peer.terminus import explanation, hint_in
from qpidha.model.encoding import (
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    decode,
    encode,
    sections,
)
from qpidha.model.errors import ProtocolViolation
from qpidha.model.message_view import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
)

KINDS = {"data": DATA, "sequence": SEQUENCE, "value": VALUE}
KIND_NAMES = {code: name for name, code in KINDS.items()}
SECOND_MS = 1000
MAX_TTL = 2**32 - 1
"""The longest time to live in milliseconds: 49 days."""


class MalformedMessage(ValueError):
    """The bytes are no AMQP message."""


@dataclass(slots=True)
class Header:
    """How a message is to be delivered (AMQP 1.0 section 3.2.1)."""

    durable: bool = False
    """Whether it survives a restart of a broker that keeps its queue on disk."""
    priority: int = 4
    """0 to 9, the highest first where a queue looks at it."""
    ttl: float | None = None
    """Seconds to live from its arrival at the broker; None is for ever."""
    first_acquirer: bool = False
    """Whether no other link has ever acquired it."""
    delivery_count: int = 0
    """Deliveries that failed before this one."""


@dataclass(slots=True)
class Properties:
    """What the sender says of a message, never changed on its way (AMQP 1.0 section 3.2.4).

    Times are seconds since the Unix epoch, to the millisecond.
    """

    message_id: Any = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: float | None = None
    creation_time: float | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


@dataclass(slots=True, frozen=True)
class Outcome:
    """What became of a message (AMQP 1.0 section 3.4): `state` is accepted, rejected, released or
    modified.
    """

    state: str
    condition: str = ""
    """Of a rejected message: the AMQP error condition, if the receiver gave one."""
    description: str = ""
    info: Mapping[Any, Any] = field(default_factory=dict)
    failed: bool = False
    """Of a modified message: whether the delivery counts as failed."""
    undeliverable_here: bool = False
    """Of a modified message: whether it is not to be delivered to this link again."""
    annotations: Mapping[Any, Any] = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        """Whether the receiver is responsible for the message now."""
        return self.state == "accepted"

    @property
    def explanation(self) -> str:
        """Why the message was not accepted, as far as the receiver says so. Released is an outcome
        without an error: brokers give it to what they have no queue for.
        """
        if self.state == "released" and not self.condition and not self.description:
            return "the broker has no queue for it, or cannot take it now"
        return explanation(self.condition, self.description, self.info)

    @property
    def hint(self) -> str:
        """What to do next, if the receiver says so."""
        if self.state == "released" and not self.info:
            return "send to a queue, or bind one to the exchange with this key"
        return hint_in(self.info)

    def __str__(self) -> str:
        said = ": ".join(part for part in (self.condition, self.description) if part)
        return f"{self.state} ({said})" if said else self.state


class Message:
    """One message: a body, and whatever else its sections hold.

    `body` is bytes (sent as a data section), or any value that AMQP has a type for (sent as an
    amqp-value); `kind` says otherwise: "data", "value", or "sequence" for a list of which each item
    is an element. Header and properties are given by their names: `Message(b"...", durable=True,
    subject="order")`. Raises TypeError for a name that no section has.
    """

    __slots__ = (
        "_application_properties",
        "_body",
        "_delivery_annotations",
        "_footer",
        "_header",
        "_kind",
        "_message_annotations",
        "_properties",
        "_raw",
    )

    def __init__(
        self,
        body: Any = None,
        *,
        kind: str = "",
        application_properties: Mapping[str, Any] | None = None,
        message_annotations: Mapping[Any, Any] | None = None,
        delivery_annotations: Mapping[Any, Any] | None = None,
        footer: Mapping[Any, Any] | None = None,
        durable: bool = False,
        priority: int = 4,
        ttl: float | None = None,
        **properties: Any,
    ) -> None:
        if kind and kind not in KINDS:
            raise TypeError(f"kind {kind!r} is not one of {', '.join(KINDS)}")
        self._raw: bytes | None = None
        self._body = body
        self._kind = KINDS[kind] if kind else DATA if isinstance(body, bytes | bytearray) else VALUE
        self._header = (
            Header(durable, priority, ttl) if durable or priority != 4 or ttl is not None else None
        )
        self._properties = Properties(**properties) if properties else None
        self._application_properties: dict[str, Any] | None = (
            dict(application_properties) if application_properties else None
        )
        self._message_annotations = dict(message_annotations) if message_annotations else None
        self._delivery_annotations = dict(delivery_annotations) if delivery_annotations else None
        self._footer = dict(footer) if footer else None

    @classmethod
    def decode(cls, payload: bytes) -> Message:
        """Make a message of its encoded form. It is looked into later: reading a section raises
        MalformedMessage if the bytes are no message.
        """
        message = cls.__new__(cls)
        message._raw = payload
        return message

    def encode(self) -> bytes:
        """Write the message as AMQP has it. Raises TypeError or ValueError for a value that has no
        AMQP form.
        """
        if self._raw is not None:
            return self._raw
        parts = []
        if self._header is not None:
            parts.append(_header(self._header))
        for code, pairs in (
            (DELIVERY_ANNOTATIONS, self._delivery_annotations),
            (MESSAGE_ANNOTATIONS, self._message_annotations),
        ):
            if pairs:
                parts.append(_section(code, _symbolic(pairs)))
        if self._properties is not None:
            parts.append(_properties(self._properties))
        if self._application_properties:
            parts.append(_section(APPLICATION_PROPERTIES, self._application_properties))
        parts.append(encode_body(self._body, self._kind))
        if self._footer:
            parts.append(_section(FOOTER, _symbolic(self._footer)))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def body(self) -> Any:
        """The body: bytes of all data sections, the value, or the list of a sequence."""
        raw = self._raw
        if raw is not None:
            if raw[:4] == b"\x00\x53\x75\xa0" and len(raw) == 5 + raw[4]:
                return raw[5:]
            self._read(raw)
        return self._body

    @body.setter
    def body(self, body: Any) -> None:
        self._read(self._raw)
        self._body = body
        if self._kind != SEQUENCE or not isinstance(body, list):
            self._kind = DATA if isinstance(body, bytes | bytearray) else VALUE

    @property
    def kind(self) -> str:
        """What the body is made of: "data", "value" or "sequence"."""
        self._read(self._raw)
        return KIND_NAMES[self._kind]

    @property
    def header(self) -> Header:
        """How the message is to be delivered."""
        self._read(self._raw)
        if self._header is None:
            self._header = Header()
        return self._header

    @property
    def properties(self) -> Properties:
        """What the sender says of the message."""
        self._read(self._raw)
        if self._properties is None:
            self._properties = Properties()
        return self._properties

    @property
    def application_properties(self) -> dict[str, Any]:
        """Names and values of the application's own."""
        self._read(self._raw)
        if self._application_properties is None:
            self._application_properties = {}
        return self._application_properties

    @property
    def message_annotations(self) -> dict[Any, Any]:
        """What brokers on the way say of the message, by names that are symbols."""
        self._read(self._raw)
        if self._message_annotations is None:
            self._message_annotations = {}
        return self._message_annotations

    @property
    def delivery_annotations(self) -> dict[Any, Any]:
        """What one broker tells the next receiver alone."""
        self._read(self._raw)
        if self._delivery_annotations is None:
            self._delivery_annotations = {}
        return self._delivery_annotations

    @property
    def footer(self) -> dict[Any, Any]:
        """What can only be known when the body is complete, such as a signature."""
        self._read(self._raw)
        if self._footer is None:
            self._footer = {}
        return self._footer

    def __repr__(self) -> str:
        text = repr(self.body)
        return f"{type(self).__name__}({text if len(text) < 60 else text[:57] + '...'})"

    def _read(self, raw: bytes | None) -> None:
        """Decode all sections, once: from then on the message is what they say."""
        if raw is None:
            return
        found: dict[int, Any] = {}
        bodies: list[Any] = []
        kind = VALUE
        try:
            for code, _, start, _ in sections(raw):
                value = decode(raw, start)[0]
                if DATA <= code <= VALUE:
                    kind = code
                    bodies.append(value)
                else:
                    found[code] = value
            header = _read_header(found[HEADER]) if HEADER in found else None
            properties = _read_properties(found[PROPERTIES]) if PROPERTIES in found else None
            body = _read_body(bodies, kind)
        except (ProtocolViolation, TypeError, ValueError, OverflowError) as error:
            raise MalformedMessage(f"the bytes are no AMQP message: {error}") from None
        self._header = header
        self._properties = properties
        self._delivery_annotations = found.get(DELIVERY_ANNOTATIONS)
        self._message_annotations = found.get(MESSAGE_ANNOTATIONS)
        self._application_properties = found.get(APPLICATION_PROPERTIES)
        self._footer = found.get(FOOTER)
        self._kind = kind
        self._body = body
        self._raw = None


def encode_data(body: bytes) -> bytes:
    """Write a data section; most bodies are one, so that it is made without detours."""
    size = len(body)
    if size < 256:
        return b"\x00\x53\x75\xa0" + size.to_bytes(1, "big") + body
    return b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + body


def encode_body(body: Any, kind: int) -> bytes:
    """Write one body section."""
    if kind == DATA:
        return encode_data(body)
    if kind == SEQUENCE and not isinstance(body, list | tuple):
        raise TypeError(f"the body of a sequence is a list, not {type(body).__name__}")
    return b"\x00\x53" + bytes([kind]) + encode(body)


def payload_of(message: Message | bytes | str) -> bytes:
    """Encode what an application sends: a message, or the body of one."""
    if isinstance(message, bytes):
        return encode_data(message)
    if isinstance(message, Message):
        return message.encode()
    if isinstance(message, str):
        return encode_body(message, VALUE)
    raise TypeError(f"a Message, bytes or str can be sent, not {type(message).__name__}")


def _section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


def _symbolic(annotations: Mapping[Any, Any]) -> dict[Any, Any]:
    """Make the names of annotations symbols, as the specification has them."""
    return {Symbol(key) if type(key) is str else key: value for key, value in annotations.items()}


def _trimmed(values: list[Any]) -> list[Any]:
    while values and values[-1] is None:
        values.pop()
    return values


def _header(header: Header) -> bytes:
    ttl = None
    if header.ttl is not None:
        if header.ttl < 0:
            raise ValueError(f"a time to live of {header.ttl} s is over before it begins")
        ttl = UInt(min(round(header.ttl * SECOND_MS), MAX_TTL))
    values = [
        True if header.durable else None,
        UByte(header.priority) if header.priority != 4 else None,
        ttl,
        True if header.first_acquirer else None,
        UInt(header.delivery_count) if header.delivery_count else None,
    ]
    return _section(HEADER, _trimmed(values))


def _read_header(values: Any) -> Header:
    durable, priority, ttl, first, count = [*_list(values), None, None, None, None, None][:5]
    return Header(
        durable is True,
        4 if priority is None else int(priority),
        None if ttl is None else ttl / SECOND_MS,
        first is True,
        int(count or 0),
    )


def _read_body(bodies: list[Any], kind: int) -> Any:
    """Join the body sections of a message; without any its body is null."""
    if kind == VALUE:
        return bodies[0] if bodies else None
    if kind == DATA:
        return b"".join(bodies)
    return [item for part in bodies for item in _list(part)]


def _identifier(value: Any) -> Any:
    """Write a message id: a plain int is none by the specification, an unsigned one is."""
    return ULong(value) if type(value) is int else value


def _properties(found: Properties) -> bytes:
    expiry, creation = found.absolute_expiry_time, found.creation_time
    values = [
        _identifier(found.message_id),
        found.user_id,
        found.to,
        found.subject,
        found.reply_to,
        _identifier(found.correlation_id),
        None if found.content_type is None else Symbol(found.content_type),
        None if found.content_encoding is None else Symbol(found.content_encoding),
        None if expiry is None else Timestamp(round(expiry * SECOND_MS)),
        None if creation is None else Timestamp(round(creation * SECOND_MS)),
        found.group_id,
        None if found.group_sequence is None else UInt(found.group_sequence),
        found.reply_to_group_id,
    ]
    return _section(PROPERTIES, _trimmed(values))


def _read_properties(values: Any) -> Properties:
    found = Properties(*_list(values)[:13])
    for name in ("absolute_expiry_time", "creation_time"):
        value = getattr(found, name)
        if value is not None:
            setattr(found, name, value / SECOND_MS)
    for name in ("content_type", "content_encoding"):
        value = getattr(found, name)
        if value is not None:
            setattr(found, name, str(value))
    return found


def _list(values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise TypeError("a message section is not the list it must be")
    return values
