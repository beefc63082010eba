"""Names of selectors: which value of a message a name means, and reading just those.

A name is of the application properties, unless its language gives it to the broker: `JMS*` and
`amqp.` in JMS's, a section and a dot in SQL's. One that is the broker's and that it does not know
is refused; one that a message does not have is None. Source: JMS 2.0 sections 3.4, 3.5.9, 3.8.1;
Qpid `Selector.cpp`; RabbitMQ `rabbit_amqp_util.erl`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from qpidha.model.duration import MILLISECOND
from qpidha.model.encoding import Uuid
from qpidha.model.errors import ProtocolViolation
from qpidha.model.message_view import HEADER_FIELDS, PROPERTY_FIELDS, Sections, pick

if TYPE_CHECKING:
    from qpidha.model.message import Message

DEFAULT_PRIORITY = 4
DEFAULTS = {"durable": False, "priority": DEFAULT_PRIORITY, "first_acquirer": False}
"""What a header says that has no such field."""


class Dialect(StrEnum):
    """A language of selectors, by what peers call it."""

    JMS = "selector"
    SQL = "SQL filter"


Field = Callable[[Sections, "Message"], Any]
"""Finds a value in what was read of a message."""


def _header(name: str) -> Field:
    return lambda found, message: found.header.get(name, DEFAULTS.get(name))


def _property(name: str) -> Field:
    return lambda found, message: found.properties.get(name)


def _annotation(name: str) -> Field:
    return lambda found, message: found.annotations.get(name)


def _deliveries(found: Sections, message: Message) -> int:
    """How often it was delivered in vain."""
    before = found.header.get("delivery_count")
    return message.delivery_count + (before if isinstance(before, int) else 0)


def _delivery_mode(found: Sections, message: Message) -> str:
    return "PERSISTENT" if found.header.get("durable") is True else "NON_PERSISTENT"


def _redelivered(found: Sections, message: Message) -> bool:
    return message.released > 0 or _deliveries(found, message) > 0


def _expiration(found: Sections, message: Message) -> int:
    return message.expires // MILLISECOND


HEADER_FIELD = {**{name: _header(name) for name in HEADER_FIELDS}, "delivery_count": _deliveries}
PROPERTY_FIELD = {name: _property(name) for name in PROPERTY_FIELDS}
COMPUTED: dict[str, Field] = {
    "delivery_mode": _delivery_mode,
    "redelivered": _redelivered,
    "absolute_expiry_time": _expiration,
    "jms_type": _annotation("jms-type"),
}
QPID = ("message_id", "correlation_id", "subject", "to", "reply_to", "creation_time")
AMQP_NAMES: dict[str, Field] = {
    **{name: HEADER_FIELD[name] for name in ("durable", "priority", "delivery_count")},
    **{name: PROPERTY_FIELD[name] for name in QPID},
    **COMPUTED,
}
"""Qpid's names, behind `amqp.`"""
JMS_NAMES: dict[str, Field] = {
    **{
        name: AMQP_NAMES[meaning]
        for name, meaning in {
            "JMSType": "subject",
            "JMSCorrelationID": "correlation_id",
            "JMSMessageID": "message_id",
            "JMSDeliveryMode": "delivery_mode",
            "JMSRedelivered": "redelivered",
            "JMSPriority": "priority",
            "JMSDestination": "to",
            "JMSReplyTo": "reply_to",
            "JMSTimestamp": "creation_time",
            "JMSExpiration": "absolute_expiry_time",
        }.items()
    },
    "JMSXGroupID": PROPERTY_FIELD["group_id"],
    "JMSXGroupSeq": PROPERTY_FIELD["group_sequence"],
    "JMSXUserID": PROPERTY_FIELD["user_id"],
    "JMSXDeliveryCount": lambda found, message: _deliveries(found, message) + 1,
}
SECTIONS: dict[str, dict[str, Field] | None] = {
    "header": HEADER_FIELD,
    "h": HEADER_FIELD,
    "properties": PROPERTY_FIELD,
    "p": PROPERTY_FIELD,
    "application-properties": None,
    "a": None,
    "message-annotations": None,
    "m": None,
    "delivery-annotations": {},
    "d": {},
    "footer": {},
    "f": {},
}
"""Sections of SQL's names -> their fields; None for those that have any."""


class Reader:
    """Reads the values of some names from messages, and nothing else."""

    __slots__ = ("_dialect", "_names", "_of_fields", "_size", "_slots")

    def __init__(self, dialect: Dialect | None = None) -> None:
        self._dialect = dialect
        self._slots: dict[str, int] = {}
        self._names: dict[bytes, int] = {}
        """Application properties -> the places of their values."""
        self._of_fields: dict[int, Field] = {}
        """Places of values that are no application properties -> how they are found."""
        self._size = 0

    def slot(self, name: str) -> int | None:
        """Return the place at which the value of a name will be; None for one that is not known."""
        if name not in self._slots:
            is_known, field, key = _meaning(self._dialect, name)
            if not is_known:
                return None
            self._slots[name] = self.field(field) if field is not None else self.property(key)
        return self._slots[name]

    def field(self, field: Field) -> int:
        """Return the place of a value that is no application property."""
        self._of_fields[self._size] = field
        self._size += 1
        return self._size - 1

    def property(self, key: str) -> int:
        """Return the place of an application property."""
        place = self._names.setdefault(key.encode(), self._size)
        self._size += place == self._size
        return place

    def read(self, message: Message) -> list[Any] | None:
        """Return the values, of types that can be compared; None if the message cannot be read."""
        values = self.read_raw(message)
        if values is not None:
            for place, value in enumerate(values):
                if value is not None and not isinstance(value, str | int | float):
                    values[place] = _as_text(value) if place in self._of_fields else None
        return values

    def read_raw(self, message: Message) -> list[Any] | None:
        """Return the values as they are, of whatever types."""
        values: list[Any] = [None] * self._size
        try:
            payload = message.body()
            if self._names:
                pick(payload, self._names, values)
            if self._of_fields:
                found = Sections(payload, message.annotations)
                for place, field in self._of_fields.items():
                    values[place] = field(found, message)
        except ProtocolViolation:
            return None
        return values


def _meaning(dialect: Dialect | None, name: str) -> tuple[bool, Field | None, str]:
    """Say whether a name is known, and which field or else application property it is."""
    if dialect is Dialect.JMS:
        if name.startswith("amqp."):
            field = AMQP_NAMES.get(name.removeprefix("amqp."))
            return field is not None, field, ""
        if name.startswith("JMS") and name not in JMS_NAMES:
            # Others of JMSX and JMS_ are properties that applications and providers set.
            return name.startswith(("JMSX", "JMS_")), None, name
        return True, JMS_NAMES.get(name), name
    section, dot, key = name.partition(".")
    if not dot or section not in SECTIONS:
        return True, None, name
    fields = SECTIONS[section]
    if fields is not None:
        field = fields.get(key.replace("-", "_"))
        return field is not None, field, ""
    return True, _annotation(key) if section[0] == "m" else None, key


def _as_text(value: Any) -> str | None:
    """Return the text of an identifier; None for what has none."""
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return None
