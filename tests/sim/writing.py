"""Writing: the messages of senders that say more of them than whether they are durable."""

from __future__ import annotations

from typing import Any

from qpidha.model.encoding import UInt
from qpidha.model.message_view import DELIVERY_DELAY, build

VALUE = "value"
"""The property of the application that says which value a message is of."""


def write(sender: Any, key: str, text: bytes) -> bytes:
    """Write a message."""
    header: dict[str, Any] = {"durable": sender.durable}
    if sender.level_of is not None:
        header["priority"] = sender.level_of(key)
    if sender.ttl:
        header["ttl"] = UInt(sender.ttl)
    return build(
        text,
        header=header,
        annotations={DELIVERY_DELAY: sender.delay} if sender.delay else None,
        properties={"message_id": key} if sender.has_ids else None,
        application_properties={VALUE: sender.value_of(key)} if sender.value_of else None,
    )
