"""AMQP clients for the system tests, on `qpidha.client.blocking` as an application would be.

They send, receive and browse on one broker and wait for it; `failover_clients.py` has those that
move.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from qpidha.amqp.peer.terminus import PeerError
from qpidha.client.blocking import Client, Receiver
from qpidha.client.core import REDIRECT, Core, CoreOptions
from qpidha.client.dialling import named
from qpidha.client.errors import LinkError, NotAccepted
from qpidha.client.message import Message
from tests.patience import STATE
from tests.system.cluster import Broker, wait_for
from tests.system.forked import enter_namespace

__all__ = ["REDIRECT"]

PATIENCE = STATE
"""Seconds that a blocking call may take."""
ADMIN = {"qpid.ha-admin": True}
"""The connection property with which tools are let in by a backup."""
CREATE = ("create-on-demand", "queue")
"""Capabilities of a node that is made if it does not exist."""


def connect(broker: Broker | str, *, admin: bool = False, **options: Any) -> Client:
    """Open a connection to one broker, whoever it is, and keep that only; with `admin`, as a
    tool, which is believed on the broker's host.
    """
    client = Client(
        broker if isinstance(broker, str) else broker.address,
        reconnect_timeout=0,
        follow_redirects=False,
        **{"timeout": PATIENCE, "properties": ADMIN if admin else None, **options},
    )
    if not admin or isinstance(broker, str) or not broker.host.namespace:
        return client.open()
    with ThreadPoolExecutor(1) as there:
        there.submit(enter_namespace, broker.host.namespace).result()
        return there.submit(client.open).result()


def send(
    broker: Broker,
    address: str,
    bodies: Iterable[object],
    *,
    admin: bool = False,
    durable: bool = False,
) -> None:
    """Send and wait until each message is accepted."""
    with connect(broker, admin=admin) as client:
        sender = client.sender(address)
        for body in bodies:
            sender.send(Message(body, durable=durable))


def send_unroutable(broker: Broker, address: str, **options: Any) -> None:
    """Send one message to an exchange that has no queue for it: it is released."""
    with pytest.raises(NotAccepted) as refused:
        send(broker, address, ["unroutable"], **options)
    assert refused.value.outcome.state == "released"


def receive(broker: Broker, address: str, count: int, *, admin: bool = False) -> list[Any]:
    """Receive and accept this many messages, and wait until the broker has confirmed each: from
    then on it is gone for good.
    """
    with connect(broker, admin=admin) as client:
        receiver = client.receiver(address, credit=0, confirm=True)
        receiver.add_credit(count)
        bodies = []
        for _ in range(count):
            message = receiver.receive()
            bodies.append(message.body)
            message.accept()
        receiver.wait_confirmed()
        return bodies


def contents(receiver: Receiver) -> list[Any]:
    """Return the bodies of all messages that a receiver can have now; it gives them no outcome."""
    return [message.body for message in receiver.until_empty()]


def browse(broker: Broker, address: str, *, admin: bool = False, **options: Any) -> list[Any]:
    """Return the bodies of the messages on a queue and leave them there; with `admin` also on a
    backup.
    """
    with connect(broker, admin=admin, **options) as client:
        return contents(client.receiver(address, credit=1000, browse=True))


def wait_browse(broker: Broker, address: str, expected: Sequence[object], **options: Any) -> None:
    """Wait until a queue, on a backup or not, holds exactly these bodies in this order."""

    def look() -> list[Any]:
        try:
            return browse(broker, address, admin=True, **options)
        except LinkError as missing:
            if missing.condition not in ("amqp:not-found", "amqp:resource-deleted"):
                raise
            return [f"({missing.condition})"]

    wait_for(
        look,
        lambda seen: seen == list(expected),
        what=f"{address} on {broker.name}, expected to hold {list(expected)!r},",
    )


class Refusal:
    """How a broker refused a connection: all that it answered, in it the properties of its open and
    its error.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        user: str = "",
        password: str = "",
        mechanism: str = "",
        properties: dict[str, Any] | None = None,
        follows: bool = True,
    ) -> None:
        core = Core(
            named(broker.address, user=user, password=password, mechanism=mechanism),
            CoreOptions("refused", 0, follow_redirects=follows, properties=properties or {}),
            lambda: str(uuid4()),
        )
        endpoint = core.next_dial(time.monotonic_ns())
        assert endpoint is not None
        self.answer = b""
        with socket.create_connection(endpoint.place, timeout=PATIENCE) as stream:
            core.dialled(time.monotonic_ns(), encrypted=False)
            connection = core.connection
            assert connection is not None
            while core.connection is not None:
                stream.sendall(core.output())
                data = stream.recv(65536)
                self.answer += data
                if data:
                    core.received(data, time.monotonic_ns())
                else:
                    core.hung_up("the broker ended the connection", time.monotonic_ns())
        error = connection.error or PeerError("")
        self.properties = {str(key): value for key, value in connection.remote_properties.items()}
        self.condition = error.condition
        self.info = {str(key): value for key, value in error.info.items()}
