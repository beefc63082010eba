"""Writing: the messages of senders that say more of them than whether they are durable."""

from __future__ import annotations

from typing import Any

from qpidha.model.encoding import UInt
from qpidha.model.message_view import DELIVERY_DELAY, build

VALUE = "value"
"""The property of the application that says which value a message is of."""
ANNOTATION = "x-key"
"""By which a message of a sender that repeats itself is known, beside its id."""


def write(sender: Any, key: str, text: bytes) -> bytes:
    """Write a message."""
    header: dict[str, Any] = {"durable": sender.durable}
    if sender.level_of is not None:
        header["priority"] = sender.level_of(key)
    if sender.ttl:
        header["ttl"] = UInt(sender.ttl)
    annotations: dict[str, Any] = {DELIVERY_DELAY: sender.delay} if sender.delay else {}
    if sender.repeat is not None:
        annotations[ANNOTATION] = f"k{id_of(key)}"
    known_by = id_of(key) if sender.repeat is not None else key if sender.has_ids else ""
    return build(
        text,
        header=header,
        annotations=annotations or None,
        properties={"message_id": known_by} if known_by else None,
        application_properties={VALUE: sender.value_of(key)} if sender.value_of else None,
    )


def id_of(key: str) -> str:
    """Return the id of a message, of which the key names one transmission."""
    return key.rpartition(".")[0]
