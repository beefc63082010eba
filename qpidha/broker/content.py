"""Content: what routing may have to read of a message when nobody says it beside the message.

That is so when a message leaves a queue for an alternate exchange: its key is its subject then. A message
that cannot be read says nothing, for it was taken in as it is and must leave so.
Source: AMQP 1.0 sections 3.2.4 and 3.2.5.
"""

from __future__ import annotations

from typing import Any

from qpidha.words.errors import ProtocolViolation
from qpidha.words.message_view import application_properties as read_application_properties
from qpidha.words.message_view import properties


def subject(payload: bytes) -> str:
    """Return the subject of a message, or empty."""
    try:
        found = properties(payload).get("subject")
    except ProtocolViolation:
        return ""
    return found if isinstance(found, str) else ""


def application_properties(payload: bytes) -> dict[str, Any]:
    """Return the application properties of a message."""
    try:
        return read_application_properties(payload)
    except ProtocolViolation:
        return {}
