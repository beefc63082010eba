"""Trace: by which brokers and clusters a message has come, so that none gets it twice.

Each of them has a tag. A message that crosses a link gets the tag of the place that it leaves, in a
message annotation with commas between, under the name that qpidd gives it; the bare message stays
as it is. Where a message that left once comes by again, it goes in a circle, which ends there.
Source: Qpid src/qpid/broker/Message.cpp (addTraceId).
"""

from __future__ import annotations

from collections.abc import Iterable

from qpidha.model.message_view import add_annotation, departure, message_annotations

TRACE = "x-qpid.trace"
MOST_TAGS = 64
"""A message that was at more places goes in a circle that nobody saw."""
_TRACE = TRACE.encode()


def tags_of(payload: bytes) -> list[str]:
    """Return the tags of a message. Raises ProtocolViolation for a malformed one."""
    if _TRACE not in payload:
        return []
    found = message_annotations(payload).get(TRACE)
    return [tag for tag in found.split(",") if tag] if isinstance(found, str) else []


def with_tags(payload: bytes, present: list[str], more: Iterable[str]) -> bytes:
    """Make the message with more tags than are present; each stands there once."""
    tags = list(dict.fromkeys([*present, *(tag for tag in more if tag)]))
    if len(tags) == len(present):
        return payload
    return departure(payload, 0, add_annotation(payload, b"", TRACE, ",".join(tags)))
