"""Envelopes: a request message as a service reads it, and the message of an answer.

The two AMQP services differ in where they put method, object and status; what they share is here.
Must not know what a request means.
Source: AMQP 1.0 section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qpidha.words.errors import InvalidArgument, ProtocolViolation
from qpidha.words.message_view import application_properties, body, build, properties


@dataclass(slots=True)
class Envelope:
    """The parts of a request message that a service needs."""

    properties: dict[str, Any]
    application: dict[Any, Any]
    body: Any

    def text(self, name: str) -> str:
        """Give a string property, or an empty string."""
        value = self.properties.get(name)
        return str(value) if isinstance(value, str) else ""


def open_envelope(payload: bytes) -> Envelope:
    """Read a request; raise InvalidArgument, which rejects the delivery, if it is no message at all."""
    try:
        return Envelope(properties(payload), application_properties(payload), body(payload))
    except ProtocolViolation as fault:
        hint = "send properties and an amqp-value body"
        raise InvalidArgument(f"the request is not a valid AMQP message: {fault.text}", hint=hint) from fault


def seal(fields: dict[str, Any], status: dict[str, Any], content: Any) -> bytes:
    """Write an answer: its properties, application-properties and body."""
    return build(content, properties=fields, application_properties=status)
