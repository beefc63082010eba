"""A stage for the client's core: brokers in memory, found by their ports, joined by bytes alone."""

from __future__ import annotations

from typing import Any

from qpidha.amqp.server.served_connection import ServedConnection
from qpidha.client.core import Core, CoreOptions
from qpidha.client.endpoint import Endpoint
from qpidha.client.errors import ClientError, ConnectError
from qpidha.client.links import Receiver, Sender, source_of
from qpidha.model.errors import QpidHaError
from qpidha.model.events import ConnectionKind
from tests.amqp.builders import AHost

SECOND = 1_000_000_000


class Stage:
    """A client and the brokers that it may reach; a port without a host refuses."""

    def __init__(self, *ports: int, tls: bool = False, **options: Any) -> None:
        self.hosts: dict[int, AHost] = {}
        self.dialled: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.now = SECOND
        self.server: Any = None
        self._numbers = 0
        self.core = Core(
            [Endpoint("h", port, tls, "ann", "secret") for port in ports],
            CoreOptions("client", **options),
            self._make_uuid,
            on_event=self._on_event,
        )

    def host(self, port: int, *queues: str, **settings: Any) -> AHost:
        """Begin to serve on a port."""
        host = self.hosts[port] = AHost(f"broker-{port}", **settings)
        for queue in queues:
            host.broker.declare_queue(queue)
        return host

    def _make_uuid(self) -> str:
        self._numbers += 1
        return f"00000000-0000-4000-9000-{self._numbers:012d}"

    def _on_event(self, event: str, endpoint: Endpoint, error: ClientError | None) -> None:
        self.events.append((event, str(endpoint)))

    def turn(self) -> None:
        """Dial if it is time, then carry bytes until both sides are silent."""
        for _ in range(200):
            endpoint = self.core.next_dial(self.now)
            if endpoint is not None:
                self._dial(endpoint)
                continue
            if self.server is None or not self._carry():
                return

    def _dial(self, endpoint: Endpoint) -> None:
        self.dialled.append(endpoint.url)
        host = self.hosts.get(endpoint.port)
        if host is None:
            self.core.dial_failed(self.now, ConnectError(f"{endpoint} cannot be reached"))
            return
        self.server = ServedConnection(
            len(self.dialled), host, kind=ConnectionKind.CLIENT, peer="client"
        ).connection
        self.core.dialled(self.now, encrypted=endpoint.tls)

    def _carry(self) -> bool:
        server = self.server
        server.host.broker.dispatch(server.host.now)
        to_client, to_server = server.output(), self.core.output()
        if to_server:
            server.receive(to_server)
        if to_client:
            self.core.received(to_client, self.now)
        if self.core.connection is None:
            self.server = None
            server.lost("the client hung up")
            return True
        return bool(to_client or to_server or server.host.broker.runnable)

    def cut(self, reason: str = "cut") -> None:
        """Lose the connection, and what was on its way."""
        server, self.server = self.server, None
        self.core.hung_up(reason, self.now)
        if server is not None:
            server.lost(reason)

    def go_on(self, seconds: float) -> None:
        """Let time pass, by steps in which the core is ticked and may dial."""
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            self.now = min(end, self.now + SECOND // 10)
            self.core.tick(self.now)
            self.turn()

    def sender(self, address: str | None, **options: Any) -> Sender:
        link = Sender(f"to-{address}", address, **{"window": 100, **options})
        self.core.add(link)
        self.turn()
        return link

    def receiver(
        self,
        address: str | None,
        *,
        source: dict[str, Any] | None = None,
        window: int = 10,
        name: str = "",
        **options: Any,
    ) -> Receiver:
        terminus = source_of(address, **(source or {}))
        name = name or f"from-{address}"
        link = Receiver(name, address, window=window, terminus=terminus, **options)
        self.core.add(link)
        self.turn()
        return link


def refusing(error: QpidHaError) -> AHost:
    """Make a broker that lets nobody in."""
    host = AHost("refusing")
    host.admission_error = error
    return host
