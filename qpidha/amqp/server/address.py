"""Addresses: which AMQP node of the broker a source or target address means.

A bare name is a queue, else an exchange; `exchange/key`, `/queues/q`, `/exchanges/x/key` and the
same percent-encoded say more. A queue whose name is the whole address always comes first. Source:
Qpid and RabbitMQ 4 address forms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qpidha.model.errors import InvalidArgument
from qpidha.model.percent import decode_part

if TYPE_CHECKING:
    from qpidha.broker.broker import Broker


@dataclass(slots=True)
class Address:
    """A queue or an exchange, that exists or (if neither is set) could be created as `name`."""

    name: str
    key: str | None = None
    queue: Any = None
    exchange: Any = None
    wanted: str = ""
    """What the form of the address insists on: queue, exchange or nothing."""


def find_address(broker: Broker, text: str) -> Address:
    """Find what an address means on this broker."""
    queue = broker.queues.get(text)
    if queue is not None:
        return Address(text, queue=queue)
    exchange = broker.exchanges.get(text) if text else None
    if exchange is not None:
        return Address(text, exchange=exchange)
    if text.startswith("/queues/"):
        name = decode_part(text[len("/queues/") :])
        return Address(name, queue=broker.queues.get(name), wanted="queue")
    if text.startswith("/exchanges/"):
        raw_name, slash, raw_key = text[len("/exchanges/") :].partition("/")
        name = decode_part(raw_name)
        if not name:
            # The default exchange has each queue under its name, so this is another way to say a
            # queue.
            key = decode_part(raw_key)
            return Address(key, queue=broker.queues.get(key), wanted="queue")
        return Address(
            name,
            decode_part(raw_key) if slash else None,
            exchange=broker.exchanges.get(name),
            wanted="exchange",
        )
    head, slash, key = text.partition("/")
    if slash and head and head in broker.exchanges:
        return Address(head, key, exchange=broker.exchanges[head])
    if "%" in text:
        try:
            decoded = find_address(broker, decode_part(text))
        except InvalidArgument:
            return Address(text)  # A name of a node that is not there may hold any percent sign.
        if decoded.queue is not None or decoded.exchange is not None:
            return decoded
    return Address(text)
