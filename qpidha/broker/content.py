"""Content: what routing may have to read of a message when nobody says it beside the message.

That is so when a message leaves a queue for an alternate exchange: its key is its subject then.
Source: AMQP 1.0 sections 3.2.4 and 3.2.5.
"""

from __future__ import annotations

from typing import Any

from qpidha.words.encoding import decode, sections
from qpidha.words.errors import ProtocolViolation

PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
SUBJECT = 3
"""Place of the subject in the properties."""


def subject(payload: bytes) -> str:
    """Return the subject of a message, or empty."""
    properties = _section(payload, PROPERTIES)
    return str(properties[SUBJECT] or "") if isinstance(properties, list) and len(properties) > SUBJECT else ""


def application_properties(payload: bytes) -> dict[str, Any]:
    """Return the application properties of a message."""
    given = _section(payload, APPLICATION_PROPERTIES)
    return given if isinstance(given, dict) else {}


def _section(payload: bytes, wanted: int) -> Any:
    """Return one section; a message that cannot be read has none, for it was taken in as it is and must leave so."""
    try:
        for code, _, body, _ in sections(payload):
            if code == wanted:
                return decode(payload, body)[0]
    except ProtocolViolation:
        pass
    return None
