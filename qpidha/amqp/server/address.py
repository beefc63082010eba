"""Addresses: which AMQP node of the broker a source or target address means.

A bare name is a queue, else an exchange; `exchange/key`, `/queues/q`, `/exchanges/x/key` and the
same percent-encoded say more. A queue whose name is the whole address always comes first. Source:
Qpid and RabbitMQ 4 address forms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qpidha.broker.queues.arguments import check_key
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
    """Find what an address means on this broker. Raises InvalidArgument for a key that is too long
    and for bad encoding.
    """
    found = _find_as_written(broker, text)
    if found is None and "%" in text:
        try:
            found = _find_as_written(broker, decode_part(text))
        except InvalidArgument:
            return Address(text)  # A name of a node that is not there may hold any percent sign.
        if found is not None and found.queue is None and found.exchange is None:
            found = None
    if found is None:
        return Address(text)
    if found.key is not None:
        check_key("key of the address", found.key)
    return found


def _find_as_written(broker: Broker, text: str) -> Address | None:
    """Find what an address means if nothing in it is encoded as a whole; None if it says nothing
    but a name that is not there.
    """
    queue = broker.find_queue(text)
    if queue is not None:
        return Address(text, queue=queue)
    exchange = broker.exchanges.get(text) if text else None
    if exchange is not None:
        return Address(text, exchange=exchange)
    if text.startswith("/queues/"):
        name = decode_part(text[len("/queues/") :])
        return Address(name, queue=broker.find_queue(name), wanted="queue")
    if text.startswith("/exchanges/"):
        raw_name, slash, raw_key = text[len("/exchanges/") :].partition("/")
        name = decode_part(raw_name)
        if not name:
            # The default exchange has each queue under its name, so this is another way to say a
            # queue.
            key = decode_part(raw_key)
            return Address(key, queue=broker.find_queue(key), wanted="queue")
        return Address(
            name,
            decode_part(raw_key) if slash else None,
            exchange=broker.exchanges.get(name),
            wanted="exchange",
        )
    head, slash, key = text.partition("/")
    if slash and head and head in broker.exchanges:
        return Address(head, key, exchange=broker.exchanges[head])
    return None
