"""A blocking AMQP client over one socket, on the same connection machine as the broker's own outgoing links.

`Client` opens a connection, follows a redirect to the primary if asked to, and pumps bytes until something it waits for
has happened. A connection that is lost is a `Lost`, which names the servers that the broker knew. `Outbox` sends unsettled
messages and hears of their outcomes; `Inbox` collects messages. Errors of the peer become Failures with the right exit
code. Knows nothing of commands.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from qpidha.amqp.connection import Connection
from qpidha.amqp.engine_links import is_settled
from qpidha.amqp.registry import LinkRegistry
from qpidha.amqp.sasl import Users
from qpidha.amqp.service_link import ServiceLink
from qpidha.amqp.terminus import ACCEPTED, RELEASED, Outcome, PeerError, Pointer, Terminus
from qpidha.broker.broker import Broker
from qpidha.cli.arguments import Options
from qpidha.cli.exits import BAD_DATA, DENIED, NO, NO_INPUT, TIMED_OUT, UNREACHABLE, Failure, refused
from qpidha.cli.target import Target
from qpidha.words.errors import NotImplementedHere, QpidHaError
from qpidha.words.events import ConnectionKind
from qpidha.words.notes import Notes
from qpidha.words.settings import Settings

READ = 262144
"""Bytes asked of the socket at a time."""
MAX_REDIRECTS = 4
WAITING = "qpid-ha status --explain -b ADDR tells what a broker waits for; or a longer --timeout"
"""What to do where a broker is there and an answer is not."""
HEARTBEAT = 30_000_000_000
"""Ours, in ns, unless the caller is in more of a hurry."""


NOT_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE")
"""What OpenSSL calls answers that are not TLS."""


class Lost(Failure):
    """Nobody serves us there now; another broker may, or this one later."""

    def __init__(
        self, code: int, text: str, *, hint: str = "", condition: str = "", answered: bool = False, servers: tuple[Target, ...] = ()
    ) -> None:
        super().__init__(code, text, hint=hint, condition=condition)
        self.answered = answered
        """Whether a broker said this itself."""
        self.servers = servers
        """Where else it says that clients may be served."""


class Client:
    """One connection to a broker."""

    def __init__(self, target: Target, options: Options, *, admin: bool = False, follow: bool = False, heartbeat: int = HEARTBEAT) -> None:
        self.target = target
        self.options = options
        self.admin = admin
        self._heartbeat = heartbeat
        self._heard = False
        redirected = False
        for _ in range(MAX_REDIRECTS):
            try:
                self._open()
            except Lost as lost:
                lost.answered = lost.answered or redirected
                raise
            error = self.connection.error
            if error is None:
                return
            elsewhere = _redirected(error, self.target) if follow else None
            if elsewhere is None:
                break
            self.close()
            self.target, redirected = elsewhere, True
        self._socket.close()
        raise self._failure()

    @property
    def servers(self) -> tuple[Target, ...]:
        """Where the broker says that clients may be served: first where it redirects to, then its whole list."""
        found = []
        if self.connection.error is not None:
            found.append(_redirected(self.connection.error, self.target))
        listed = self.connection.remote_properties.get("failover-server-list")
        for entry in listed if isinstance(listed, list) else []:
            found.append(_server(entry, self.target) if isinstance(entry, dict) else None)
        return tuple(server for server in found if server is not None)

    def sender(self, address: str) -> Outbox:
        """Attach a sender to an address, and wait until the broker agreed."""
        outbox = Outbox(self)
        outbox.link = self.connection.attach(address, sender=True, service=outbox, name=f"sender-{uuid4()}", settled=False)
        self.wait(lambda: outbox.opened or outbox.gone, f"the attach of a sender to {address!r}")
        self.check(outbox, address)
        return outbox

    def receiver(self, address: str, *, credit: int = -1, terminus: Terminus | None = None, accepts: bool = True) -> Inbox:
        """Attach a receiver; `credit` below 0 is topped up for ever. Messages are accepted as they come, or by `Inbox.take`."""
        inbox = Inbox(self, accepts=accepts)
        name = f"receiver-{uuid4()}"
        inbox.link = self.connection.attach(
            address, sender=False, service=inbox, name=name, credit=credit, terminus=terminus, accepts=accepts
        )
        self.wait(lambda: inbox.opened or inbox.gone, f"the attach of a receiver to {address!r}")
        self.check(inbox, address)
        return inbox

    def wait(self, until: Callable[[], bool], what: str = "", timeout: float | None = -1.0) -> bool:
        """Pump until a condition holds; with `what`, fail if it does not in time. The default time is --timeout."""
        patience = self.options.patience() if timeout == -1.0 else timeout
        deadline = None if patience is None else time.monotonic() + patience
        while not until():
            if self.connection.closed:
                raise self._failure()
            left = 1.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                if what:
                    raise Failure(TIMED_OUT, f"{self.target}: {what} took longer than {patience:g} s", hint=WAITING)
                return False
            self.pump(min(left, 1.0))
        return True

    def pump(self, seconds: float) -> None:
        """Write what there is to write, and read what comes within some seconds."""
        self._host.now = time.time_ns()
        self._flush()
        if self.connection.closed:
            return
        following = self.connection.tick(self._host.now)
        if following:
            seconds = min(seconds, max(0.0, (following - self._host.now) / 1e9))
        decrypted = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        if decrypted or select.select([self._socket], [], [], seconds)[0]:
            self._host.now = time.time_ns()
            try:
                data = self._socket.recv(READ)
            except OSError as error:
                self.connection.lost(error.strerror or str(error))
                return
            if data:
                self._check_protocol(data)
                self.connection.receive(data)
            else:
                self.connection.lost("the broker ended the connection")
        self._flush()

    def close(self) -> None:
        """Close in good order, but do not wait long for the answer."""
        self.connection.close()
        deadline = time.monotonic() + 1.0
        while not self.connection.closed and time.monotonic() < deadline:
            self.pump(0.2)
        self._socket.close()

    def check(self, end: _End, address: str) -> None:
        """Raise why a link of ours is gone, if it is."""
        if not end.gone:
            return
        if self.connection.closed or self.connection.error is not None:
            raise self._failure()
        error = end.link.error if end.link is not None else None
        text, hint = _said(error) if error else ("the broker ended the link", "")
        if not hint or (error and error.condition == "amqp:not-found"):
            hint = "qpid-ha queue list"
        raise refused(error.condition if error else "", f"{address}: {text}", hint)

    def _open(self) -> None:
        target = self.target
        self._socket = self._dial()
        self._heard = False
        self._host = _Host()
        self.connection = Connection(1, self._host, kind=ConnectionKind.OUTGOING, peer=str(target), encrypted=target.encrypted)
        properties: dict[str, object] = {"product": "qpid-ha", "qpid.client_process": "qpid-ha", "qpid.client_pid": os.getpid()}
        if self.admin:
            properties["qpid.ha-admin"] = True
        self.connection.open(
            self._host.container_id,
            properties,
            mechanism=target.mechanism,
            username=target.user,
            password=target.password,
            hostname=target.host,
            heartbeat=self._heartbeat,
        )
        try:
            self._await_open(self.connection)
        except Failure:
            self._socket.close()
            raise

    def _await_open(self, connection: Connection) -> None:
        what = "the opening of a connection"
        self.wait(lambda: bool(connection.remote_container) or connection.closed or connection.error is not None, what)
        if "amqp:connection-establishment-failed" in connection.remote_properties:
            self.wait(lambda: connection.error is not None or connection.closed, what)

    def _dial(self) -> socket.socket:
        target = self.target
        try:
            stream = socket.create_connection((target.host, target.port), timeout=self.options.patience())
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._encrypt(stream) if target.encrypted else stream
        except TimeoutError as error:
            raise Lost(TIMED_OUT, f"{target} did not answer in time", hint="qpid-ha list, or a longer --timeout") from error
        except OSError as error:
            hint = "is a broker running there? qpid-ha local status"
            raise Lost(UNREACHABLE, f"{target}: {error.strerror or error}", hint=hint) from error

    def _encrypt(self, stream: socket.socket) -> ssl.SSLSocket:
        target = self.target
        context = _tls_context(self.options)
        try:
            return context.wrap_socket(stream, server_hostname=target.host)
        except TimeoutError:
            raise
        except ssl.SSLCertVerificationError as error:
            hint = "--ssl-trusted FILE, with the certificate of whoever signed the broker's"
            raise Failure(UNREACHABLE, f"{target}: {error.verify_message}", hint=hint) from error
        except (ssl.SSLError, ConnectionError) as error:
            if not isinstance(error, ssl.SSLError) or error.reason in NOT_TLS:
                raise Lost(UNREACHABLE, f"{target}: this port does not speak TLS", hint=f"-b amqp://{target}") from error
            raise Failure(UNREACHABLE, f"{target}: {error.reason or error}", hint="--ssl-certificate, --ssl-trusted") from error

    def _check_protocol(self, data: bytes) -> None:
        """Say what is wrong with a peer whose very first bytes are not AMQP."""
        if self._heard or b"AMQP".startswith(data[:4]):
            self._heard = True
            return
        self.connection.lost("not AMQP")
        if not self.target.encrypted and data[:2] == b"\x15\x03":
            raise Failure(UNREACHABLE, f"{self.target}: this port speaks TLS", hint=f"-b amqps://{self.target}")
        said = data[:20].decode("ascii", "backslashreplace").splitlines()[0]
        hint = "-b with the AMQP address of a broker, usually host:5672"
        raise Failure(UNREACHABLE, f"{self.target} is not an AMQP broker: it answers {said!r}", hint=hint)

    def _flush(self) -> None:
        data = self.connection.output()
        if data:
            try:
                self._socket.sendall(data)
            except OSError as error:
                self.connection.lost(error.strerror or str(error))

    def _failure(self) -> Failure:
        connection = self.connection
        error, servers, answered = connection.error, self.servers, bool(connection.remote_container)
        if error is None:
            text = f"{self.target} closed the connection"
            return Lost(UNREACHABLE, text, hint="qpid-ha list", answered=answered, servers=servers)
        if error.condition == "amqp:unauthorized-access":
            hint = "--user and --password, or -b amqp://user:password@host:port"
            return Failure(DENIED, f"{self.target}: {_said(error)[0]}", hint=hint, condition=error.condition)
        code, (text, hint) = UNREACHABLE, _said(error)
        if error.condition == "amqp:connection:redirect":
            code, text, hint = NO, f"not the primary: {text}", f"-b {servers[0]}" if servers else "-b with the primary's address"
        text = f"{self.target}: {text}"
        return Lost(code, text, hint=hint or "qpid-ha list", condition=error.condition, answered=answered, servers=servers)


class _End:
    """One of our links: what both directions share."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.link: ServiceLink | None = None
        self.opened = False
        self.gone = False

    def attached(self, link: ServiceLink) -> None:
        """The broker agreed."""
        self.opened = True

    def received(self, link: ServiceLink, payload: bytes) -> None:
        """A message came."""

    def credited(self, link: ServiceLink) -> None:
        """More can be sent."""

    def detached(self, link: ServiceLink) -> None:
        """The broker ended the link."""
        self.gone = True


class Outbox(_End):
    """Sends unsettled messages."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.outcomes: dict[int, Outcome] = {}
        """Outcomes other than accepted, by the number of the message."""
        self.accepted = 0
        self.settled = 0
        self.on_outcome: Callable[[int], None] | None = None

    def send(self, payload: bytes) -> int:
        """Send one message and return its number, the first being 1."""
        assert self.link is not None
        return self.link.send(payload, settled=False)

    @property
    def credit(self) -> int:
        """How many messages the broker would take now."""
        return self.link.credit if self.link is not None else 0

    def outcome(self, link: ServiceLink, number: int, outcome: Outcome) -> None:
        """Count what became of a message."""
        self.settled += 1
        if outcome.state == ACCEPTED:
            self.accepted += 1
        else:
            self.outcomes[number] = outcome
        if self.on_outcome is not None:
            self.on_outcome(number)


class Inbox(_End):
    """Collects messages; they are accepted as they come, or each when `take` says so."""

    def __init__(self, client: Client, *, accepts: bool = True) -> None:
        super().__init__(client)
        self.messages: deque[bytes] = deque()
        self.on_message: Callable[[bytes], None] | None = None
        self._accepts = accepts
        self._deliveries: deque[Pointer | None] = deque()

    def received(self, link: ServiceLink, payload: bytes) -> None:
        """Collect a message."""
        if self.on_message is not None:
            self.on_message(payload)
            return
        self.messages.append(payload)
        if not self._accepts:
            # One that came settled is the link's no more, and not to be touched.
            self._deliveries.append(None if is_settled(link.last_delivery) else link.last_delivery)

    def take(self, use: Callable[[bytes], None]) -> None:
        """Use the first message, and accept it when that is done; it stays if `use` fails."""
        use(self.messages[0])
        self.messages.popleft()
        self._settle(ACCEPTED)

    def give_back(self) -> None:
        """Release what was not taken: somebody else may have it."""
        self.messages.clear()
        while self._deliveries:
            self._settle(RELEASED)

    def _settle(self, state: int) -> None:
        delivery = self._deliveries.popleft()
        if delivery is not None and self.link is not None:
            self.link.settle(delivery, state)


class _Host:
    """What a connection asks for, where there is no broker around it."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.broker = Broker(self.settings, None, _say_nothing, _make_uuid)
        self.users = Users({})
        self.now = time.time_ns()
        self.container_id = f"qpid-ha-{uuid4()}"
        self.serving = False
        self.links = LinkRegistry()
        self.notes = Notes()

    def refusal(self) -> QpidHaError:
        """Nothing is offered here."""
        return NotImplementedHere("this is a client")

    def make_uuid(self) -> str:
        """For SASL nonces."""
        return str(uuid4())

    def admit(self, connection: Any) -> None:
        """We connected to it, so it is welcome."""

    def open_properties(self) -> dict[str, object]:
        """Only a server is asked this."""
        return {}

    def service(self, address: str) -> None:
        """Offer nothing."""

    def hold(self, sequence: int, target: Any, item: object) -> None:
        """Nothing is held here."""
        target.released(item)

    def wake(self, connection: Any) -> None:
        """The pump fetches output anyway."""

    def connection_closed(self, connection: Any) -> None:
        """The pump sees it."""


def _tls_context(options: Options) -> ssl.SSLContext:
    files = [file for file in (options.ssl_trusted, options.ssl_certificate, options.ssl_key) if file]
    try:
        context = ssl.create_default_context(cafile=options.ssl_trusted or None)
        if options.ssl_certificate:
            context.load_cert_chain(options.ssl_certificate, options.ssl_key or None)
    except OSError as error:
        code = BAD_DATA if isinstance(error, ssl.SSLError) else NO_INPUT
        raise Failure(code, f"cannot use {', '.join(files)}: {error.strerror or error}", hint="PEM files are needed") from error
    return context


def _redirected(error: PeerError, target: Target) -> Target | None:
    return _server(error.info, target) if error.condition == "amqp:connection:redirect" else None


def _server(described: dict[Any, Any], target: Target) -> Target | None:
    """Read a server's address from a redirect or a failover-server-list; one logs in there as at `target`."""
    host, port = described.get("network-host"), described.get("port")
    if not host or not isinstance(port, int):
        return None
    scheme = described.get("scheme")
    encrypted = scheme == "amqps" if scheme else target.encrypted
    return replace(target, socket="", host=str(host), port=int(port), encrypted=encrypted)


def _said(error: PeerError) -> tuple[str, str]:
    """Split what a broker says into what is wrong and what to do next, which it joins to one text."""
    text, _, hint = (error.description or error.condition).rstrip(".").partition(". ")
    return text, hint.removeprefix("Try ")


def _make_uuid() -> str:
    return str(uuid4())


def _say_nothing(*_: Any, **__: Any) -> None:
    """Take the announcements of a broker model that is never used."""
