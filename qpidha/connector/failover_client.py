"""Failover clients: one connection to whoever is the primary, through every failover, on python-qpid-proton.

A client follows redirects and its list of addresses, gives up brokers that take a connection and say nothing, and begins anew
after every loss. Its AMQP side runs in the thread of a `ClientLoop`, which several can share.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Sequence
from typing import Any

from proton import Endpoint, Event, SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import Container

from qpidha.words.errors import InvalidArgument

REDIRECT = "amqp:connection:redirect"
PATIENCE = 10.0
"""Seconds for a loop to do what it is told."""


class Login:
    """What a client needs beside the addresses to be let in. Without a file of `trusted` authorities it trusts the system's."""

    __slots__ = ("encrypted", "password", "trusted", "user")

    def __init__(self, user: str = "", password: str = "", *, encrypted: bool = False, trusted: str = "") -> None:
        self.user = user
        self.password = password
        self.encrypted = encrypted
        self.trusted = trusted

    def options(self) -> dict[str, Any]:
        """Return what `Container.connect` is to be told; an encrypted peer is always checked, before it is told a password.

        Raises InvalidArgument when there is nobody to trust.
        """
        found: dict[str, Any] = {"user": self.user, "password": self.password} if self.user else {}
        if self.encrypted:
            domain = SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(self.trusted or _system_authorities())
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
            found["ssl_domain"] = domain
        if self.user and not self.encrypted:
            found["allow_insecure_mechs"] = True
        return found


def _system_authorities() -> str:
    paths = ssl.get_default_verify_paths()
    found = paths.cafile or paths.capath
    if not found:
        raise InvalidArgument("this machine has no list of certificate authorities: give a file of them (option tlsCa, --ssl-trusted)")
    return found


def redirected_to(connection: Any) -> list[str]:
    """Return where a redirect points, if it says so."""
    condition = connection.remote_condition
    info = (condition and condition.info) or {}
    if condition is None or condition.name != REDIRECT or "network-host" not in info or "port" not in info:
        return []
    return [f"{info['network-host']}:{info['port']}"]


class ClientLoop(MessagingHandler):  # type: ignore[misc]  # proton has no types
    """A thread with proton's event loop and a timer for the clients in it."""

    TICK = 0.01
    """Seconds between two looks at the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[FailoverClient] = []
        self.container = Container(self)
        self._ending: list[tuple[FailoverClient, threading.Event]] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="clients")

    def __enter__(self) -> ClientLoop:
        self._thread.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self._stopping = True
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            raise AssertionError("the clients' loop did not end")

    @property
    def is_alive(self) -> bool:
        """Whether the loop runs; it ends only when told to, or by a fault of a client's."""
        return self._thread.is_alive()

    def end(self, client: FailoverClient) -> None:
        """Take a client out and wait until it is."""
        ended = threading.Event()
        self._ending.append((client, ended))
        while self.is_alive and not ended.wait(self.TICK):
            pass

    def _run(self) -> None:
        while True:
            try:
                self.container.run()
                return
            except (AttributeError, OSError) as fault:
                # proton's own loop ends so when a socket fails in the very turn in which its heartbeat is due
                # (proton/_handlers.py, on_selectable_expired), and when a host name is not known (on_connection_bound):
                # go on with a new loop, as with lost connections.
                if isinstance(fault, AttributeError) and "NoneType" not in str(fault):
                    raise
                self.container = Container(self)
                for client in self.clients:
                    client.loop_failed(f"{client.dialled}: {fault}" if isinstance(fault, OSError) else f"proton: {fault}")

    def on_start(self, event: Event) -> None:
        self.container.schedule(self.TICK, self)

    def on_timer_task(self, event: Event) -> None:
        while self._ending:
            client, ended = self._ending.pop()
            client.ended()
            self.clients.remove(client)
            ended.set()
        if self._stopping:
            self.container.stop()
            return
        for client in list(self.clients):
            client.tick()
        self.container.schedule(self.TICK, self)


class FailoverClient(MessagingHandler):  # type: ignore[misc]  # proton has no types
    """One link over one connection to whoever is the primary; others only read the lists that it keeps."""

    RETRY = 0.02
    """Seconds between two attempts to connect."""
    OPENING = 1.0
    """Seconds after which a broker that does not answer an open is given up; a stopped one still takes connections."""

    def __init__(
        self,
        addresses: Sequence[str],
        address: str,
        *,
        heartbeat: float | None = 1.0,
        follow: bool = True,
        pinned: bool = False,
        loop: ClientLoop | None = None,
        login: Login | None = None,
    ) -> None:
        super().__init__(prefetch=0, auto_accept=True)
        self.addresses = list(addresses)
        self.address = address
        self.heartbeat = heartbeat
        self.follow = follow
        self.pinned = pinned
        """Whether it tries its own addresses only, whatever a redirect says."""
        self._login = (login or Login()).options()
        self._scheme = "amqps" if "ssl_domain" in self._login else "amqp"
        self.loop = loop or ClientLoop()
        self.owns_loop = loop is None
        self.connection: Any = None
        self.opened = False
        self.since = 0.0
        self.turn = 0
        self.next_address = ""
        self.dialled = ""
        """The address of the present connection."""
        self.losses: list[str] = []
        self.errors: list[str] = []

    def __enter__(self) -> Any:
        self.loop.clients.append(self)
        if self.owns_loop:
            self.loop.__enter__()
        return self

    def __exit__(self, *ignored: object) -> None:
        """End; nothing changes afterwards."""
        self.loop.end(self)
        if self.owns_loop:
            self.loop.__exit__()

    # What subclasses do.

    def open_link(self, container: Container, connection: Any) -> None:
        raise AssertionError("a client has a link")

    def work(self) -> None:
        """Do what can be done now; called about every 10 ms."""

    def link_lost(self) -> None:
        """Forget what was on the lost link."""

    # The connection.

    def tick(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self.connection is None:
            if (self.follow or not self.losses) and now - self.since >= self.RETRY:
                self._dial()
        elif not self.opened and now - self.since > self.OPENING:
            self._lost(self.connection, "no answer to open")
        else:
            self.work()

    def ended(self) -> None:
        """Leave the broker."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def loop_failed(self, why: str) -> None:
        """The connection is gone with its loop."""
        self.losses.append(why)
        self.connection = None
        self.link_lost()

    def _dial(self) -> None:
        address = self.next_address or self.addresses[self.turn % len(self.addresses)]
        if not self.next_address:
            self.turn += 1
        self.next_address = ""
        self.since = time.monotonic()
        self.opened = False
        self.dialled = address
        self.connection = self.loop.container.connect(
            f"{self._scheme}://{address}", handler=self, reconnect=False, heartbeat=self.heartbeat, **self._login
        )

    def _lost(self, connection: Any, why: str) -> None:
        if self.connection is None or connection != self.connection:
            return
        self.losses.append(why)
        self.connection = None
        self.since = time.monotonic()
        self.link_lost()
        if connection.state & Endpoint.LOCAL_ACTIVE:
            connection.close()

    def on_connection_opened(self, event: Event) -> None:
        if event.connection == self.connection:
            self.opened = True
            self.open_link(self.loop.container, event.connection)

    def on_connection_remote_close(self, event: Event) -> None:
        condition = event.connection.remote_condition
        if event.connection == self.connection:
            self.next_address = "" if self.pinned else "".join(redirected_to(event.connection)[:1])
        self._lost(event.connection, str(condition or "closed"))

    def on_connection_error(self, event: Event) -> None:
        """Noted already."""

    def on_disconnected(self, event: Event) -> None:
        condition = event.transport.condition if event.transport is not None else None
        self._lost(event.connection, condition.description if condition is not None else "disconnected")

    def on_transport_error(self, event: Event) -> None:
        self._lost(event.connection, str(event.transport.condition))

    def on_link_error(self, event: Event) -> None:
        self.errors.append(str(event.link.remote_condition))
        self._lost(event.connection, str(event.link.remote_condition))
