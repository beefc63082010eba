"""The client without its I/O: one connection at a time over a list of addresses.

A face (blocking or asyncio) dials where `next_dial` says, brings bytes in and out, and calls `tick`
when its time has come. The core keeps the connection's heartbeats, attaches every link on each new
connection, and looks for the broker that serves: first where a redirect points, then at each
address in turn, then at those that brokers named in `failover-server-list`. A backup ends the
connection before it opens; that, and a refused or silent address, leads to the next one, until
nobody has served for `reconnect_timeout`. From TLS it never goes to a plain address that a broker
named. Times are nanoseconds of one clock. Knows no sockets. Source: AMQP 1.0 sections 2.4, 2.8.18;
Qpid: docs "Active-Passive Messaging Clusters".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from qpidha.amqp.peer.connection import Connection
from qpidha.amqp.peer.kerberos import Initiator
from qpidha.amqp.peer.links import Scratch
from qpidha.amqp.peer.sasl import Users, protocol
from qpidha.amqp.peer.terminus import PeerError
from qpidha.client.endpoint import Endpoint
from qpidha.client.errors import (
    NO_LOGIN,
    NO_TICKET,
    WRONG_LOGIN,
    ClientError,
    Closed,
    ConnectError,
    LoginError,
    TlsError,
    WrongProtocol,
)
from qpidha.client.links import Coordinator, Link, Sender
from qpidha.model.errors import FOLLOWS_REDIRECTS
from qpidha.model.events import ConnectionKind
from qpidha.model.settings import GSSAPI, Settings

SECOND = 1_000_000_000
REDIRECT = "amqp:connection:redirect"
UNAUTHORIZED = "amqp:unauthorized-access"
FAILED_OPEN = "amqp:connection-establishment-failed"
PRODUCT = "qpidha-client"
SERVERS = "failover-server-list"
FIRST_SHARE = 3 * SECOND
SHARE_AFTER_LOSS = SECOND
LONGEST_SHARE = 12 * SECOND
"""Time for one address: a hung broker or a host that is gone must not use up all of it, and a slow
one must get through in the end, so it doubles each round. After a loss it begins with less: a
virtual address may be moving, and what was sent to its old host is never answered.
"""
PAUSES = (0.02, 0.5)
"""The first and the longest time, in seconds, between two rounds of all addresses. It doubles each
round, so a client notices a failover at most as long after it as the failover took, and many
clients do not press a broker that starts.
"""
STEADY = SECOND
"""So long a connection lives that counts. One that ends sooner is like one that was refused, or a
broker that lets the client in and drops it would be dialled without a pause, and for ever.
"""
MAX_REDIRECTS = 4
"""Redirects followed in one round: brokers that disagree must not send a client in circles."""
MAX_KNOWN = 64
"""Addresses that are remembered, however many brokers name."""

UNMENDABLE = (LoginError, TlsError, WrongProtocol)
"""Errors that end a client at its first contact, if no broker of the cluster serves it."""
WAITING, DIALLING, OPENING, OPEN, CLOSING, ENDED = range(6)
"""What a core is at: until it may dial, dialling, logging in, in use, closing, done."""


@dataclass(slots=True)
class CoreOptions:
    """How a client behaves; times are seconds, None is for ever. With a `reconnect_timeout` of 0
    each address is tried once; with that, and without `reconnect`, the client ends with its first
    connection.
    """

    container_id: str
    reconnect: bool = True
    reconnect_timeout: float | None = 60.0
    fail_fast: bool = False
    heartbeat: float = 10.0
    follow_redirects: bool = True
    server_name: str = ""
    properties: dict[str, Any] = field(default_factory=dict)
    pauses: tuple[float, float] = PAUSES


class Core:
    """One client's connections, one after the other, and its links."""

    def __init__(
        self,
        endpoints: list[Endpoint],
        options: CoreOptions,
        make_uuid: Callable[[], str],
        *,
        on_event: Callable[[str, Endpoint, ClientError | None], None] | None = None,
    ) -> None:
        self.options = options
        self.now = 0
        self.state = WAITING
        self.endpoint = endpoints[0]
        """Where it is connected, or was last."""
        self.connection: Connection | None = None
        self.failure: ClientError | None = None
        """Why the client has ended; every later call raises it."""
        self.links: list[Link] = []
        self.connects = 0
        """Connections that were opened so far."""
        self.retry_at = 0
        """When to dial next, while waiting."""
        self.scratch = Scratch()
        self.settings = Settings(max_negotiate_time=3600 * SECOND)
        self.users = Users()
        self.container_id = options.container_id
        self.make_uuid = make_uuid
        self.tick_at = 0
        """When `tick` is wanted next; 0 is at once."""
        self._on_event = on_event
        self._known = list(endpoints)
        self._round: deque[Endpoint] = deque()
        self._redirects = 0
        # A peer that may be silent for two heartbeats at most may not take longer to open either.
        patience = int(2 * options.heartbeat * SECOND) or FIRST_SHARE  # 0: no heartbeats.
        self._first_share = min(FIRST_SHARE, max(patience, SECOND // 10))
        self._share = self._first_share
        first, longest = options.pauses
        self._first_pause = int(first * SECOND)
        self._longest_pause = max(int(longest * SECOND), self._first_pause)
        self._pause = self._first_pause
        self._since: int | None = None
        """Since when there has been no connection that lived."""
        self._opened_at = 0
        self._open_by = 0
        self._is_cut_short = False
        """Whether an address had less than its share, since the time allowed was nearly over."""
        self._answered = False
        """Whether a broker took a connection and ended it again: there is a cluster, and it will
        have a primary.
        """
        self._last_error: ClientError | None = None
        self._fatal: ClientError | None = None
        """An error that a second attempt does not mend, at an address of this round."""
        self._is_ours = self._is_tls = False
        """Whether the peer's first bytes were AMQP."""
        self._coordinator: Coordinator | None = None

    # What a face does.

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that can be used."""
        return self.state == OPEN

    @property
    def known(self) -> tuple[Endpoint, ...]:
        """Every address that is tried, those that brokers named among them."""
        return tuple(self._known)

    @property
    def trouble(self) -> str:
        """Why there is no connection that can be used; empty if there is one."""
        if self.state == OPEN:
            return ""
        return str(self._last_error or f"{self.endpoint} has not answered yet")

    @property
    def coordinator(self) -> Coordinator:
        """The link on which transactions begin, made when it is wanted first."""
        if self._coordinator is None or self._coordinator.error is not None:
            self._coordinator = Coordinator(f"transactions-{self.make_uuid()}")
            self.add(self._coordinator)
        return self._coordinator

    def add(self, link: Link) -> None:
        """Attach a link now and on every connection that follows."""
        self.links.append(link)
        if self.state == OPEN and self.connection is not None:
            link.attach(self.connection)

    def remove(self, link: Link) -> None:
        """Close a link."""
        link.close()
        if link in self.links:
            self.links.remove(link)

    def next_dial(self, now: int) -> Endpoint | None:
        """Return the address to dial now, if any; `dialled` or `dial_failed` hears of it."""
        if self.state != WAITING or now < self.retry_at:
            return None
        self.now = now
        if self._since is None:
            self._since = now
        if not self._round:
            self._begin_round()
        self.endpoint = self._round.popleft()
        self.state = DIALLING
        time = self.time_for_dial(now)
        self._open_by, self._is_cut_short = now + time, time < self._whole_share
        return self.endpoint

    def time_for_dial(self, now: int) -> int:
        """Return how many ns an address has to let the client in."""
        left = self._left(now) if self.options.reconnect_timeout else None
        share = self._whole_share
        return share if left is None else max(min(share, left), SECOND // 10)

    @property
    def _whole_share(self) -> int:
        is_only = len(self._known) == 1 and not self.connects
        return LONGEST_SHARE if is_only else self._share

    @property
    def _login_hint(self) -> str:
        if self._wants_kerberos:
            return NO_TICKET
        return WRONG_LOGIN if self.endpoint.user else NO_LOGIN

    @property
    def _wants_kerberos(self) -> bool:
        return GSSAPI in self.endpoint.mechanism.upper().split()

    def tickets(self) -> Initiator | None:
        """Return what logs in by Kerberos at `endpoint`, if that is what the client wants; to
        begin that asks the network.
        """
        endpoint = self.endpoint
        if not self._wants_kerberos:
            return None
        host = self.options.server_name or endpoint.host
        return Initiator(endpoint.service, host, user=endpoint.user)

    def dialled(self, now: int, *, encrypted: bool, tickets: Initiator | None = None) -> None:
        """Go on over a stream to `endpoint`, where TLS is up if it is to be."""
        self.now = now
        self.state = OPENING
        self.tick_at = 0
        self._is_ours = self._is_tls = False
        endpoint, options = self.endpoint, self.options
        self.connection = connection = Connection(
            1, self, kind=ConnectionKind.OUTGOING, peer=str(endpoint), encrypted=encrypted
        )
        connection.open(
            options.container_id,
            {"product": PRODUCT, **options.properties},
            mechanism=endpoint.mechanism,
            username=endpoint.user,
            password=endpoint.password,
            hostname=options.server_name or endpoint.host,
            heartbeat=int(options.heartbeat * SECOND),
            offered=(FOLLOWS_REDIRECTS,) if options.follow_redirects else (),
            initiator=tickets,
        )

    def dial_failed(self, now: int, error: ClientError) -> None:
        """Go on to the next address."""
        self.now = now
        self._missed(error)

    def received(self, data: bytes, now: int) -> None:
        """Take bytes of the broker."""
        connection = self.connection
        if connection is None:
            return
        self.now = now
        if not self._is_ours and not self._check_protocol(data):
            return
        connection.receive(data)
        if connection.error is not None or connection.closed:
            self._look(connection)

    def hung_up(self, reason: str, now: int) -> None:
        """Hear that the stream has ended."""
        self.now = now
        if self.connection is not None:
            if self.state == OPENING and not (self._is_ours or self.endpoint.tls):
                self._is_tls = True
                reason = "it hung up without a word, as a port for TLS does"
            self.connection.lost(reason)
            self._look(self.connection)

    def output(self) -> bytes:
        """Return the bytes to send."""
        connection = self.connection
        return b"" if connection is None else connection.output()

    def tick(self, now: int) -> None:
        """Keep the time: send heartbeats, give up on silence; `tick_at` says when to come again."""
        self.now = now
        self.tick_at = self._tick(now)

    def _tick(self, now: int) -> int:
        connection = self.connection
        if connection is None:
            return self.retry_at if self.state == WAITING else now + SECOND
        following = connection.tick(now) or now + 60 * SECOND
        if connection.error is not None or connection.closed:
            self._look(connection)
            return now
        if self.state == OPENING:
            if now >= self._open_by:
                connection.lost("it accepted the connection and did not answer")
                self._look(connection)
                return now
            return min(following, self._open_by)
        return following

    def close(self, now: int) -> None:
        """Say goodbye; the face sends what there is to send and hangs up when `closed` is true."""
        self.now = now
        for link in self.links:
            link.fail(Closed("the client was closed"))
        if self.failure is None:
            self.failure = Closed("the client was closed")
        if self.connection is not None and self.state in (OPENING, OPEN):
            self.state = CLOSING
            self.connection.close()
        else:
            self.state = ENDED

    @property
    def closed(self) -> bool:
        """Whether there is no stream, or none that is still wanted."""
        return self.connection is None or self.connection.closed

    # What the connection asks of its surroundings.

    def compute(self, connection: Any, work: Callable[[], Any], *, blocks: bool) -> Any:
        """Nobody else waits meanwhile."""
        return work()

    def login_decided(self, connection: Any, *, refused: bool) -> int:
        """Only a server is asked this."""
        return 0

    def admit(self, connection: Any) -> None:
        """Take note that the broker opened the connection, unless it only does so to refuse it."""
        if FAILED_OPEN in connection.remote_properties or self.state != OPENING:
            return
        self.state = OPEN
        self.tick_at = 0  # The broker has said what silence it puts up with.
        self.connects += 1
        self._opened_at = self.now
        self._answered, self._fatal = False, None
        self._learn(connection)
        if self._on_event is not None:
            self._on_event("connected", self.endpoint, None)
        self.links = [link for link in self.links if link.error is None]
        for link in self.links:
            link.attach(connection)

    def open_properties(self, connection: Any) -> dict[str, object]:
        """Only a server is asked this."""
        return {}

    def wake(self, connection: Any) -> None:
        """The face fetches output anyway."""

    def connection_closed(self, connection: Any) -> None:
        """The face's call sees it."""

    # Going on elsewhere.

    def _look(self, connection: Connection) -> None:
        """See to a connection that has ended, or is being ended by the broker."""
        if self.state in (CLOSING, ENDED):
            if connection.closed:
                self.connection, self.state = None, ENDED
            return
        was_open = self.state == OPEN
        error = connection.error or PeerError("", "the broker ended the connection")
        if not connection.closed:
            connection.output()  # Its answer to a close is of no use to a broker that is leaving.
            connection.lost(error.description)
        self.connection = None
        if error.condition == UNAUTHORIZED and not was_open:
            self._missed(
                LoginError(
                    f"{self.endpoint} does not let the client in",
                    reason=error.explanation,
                    condition=error.condition,
                    hint=self._login_hint,
                    info=error.info,
                )
            )
            return
        self._answered = self._answered or not was_open
        elsewhere = self._redirected(error)
        lost = ConnectError(
            f"the connection to {self.endpoint} was {'lost' if was_open else 'refused'}",
            reason=error.explanation,
            hint=f"amqps://{self.endpoint} as its address" if self._is_tls else error.hint,
            condition=error.condition,
            info=error.info,
        )
        if was_open:
            self._lost(lost)
        else:
            self._report(lost)
        self._next(lost, elsewhere)

    def _lost(self, error: ClientError) -> None:
        """Begin to look for another broker, or go on after a connection that did not live."""
        # The broker that was lost is asked last; where it is the only one, not at once.
        others = [endpoint for endpoint in self._known if endpoint.place != self.endpoint.place]
        mine = [endpoint for endpoint in self._known if endpoint.place == self.endpoint.place]
        self._known = others + mine
        lived = self.now - self._opened_at
        if self._since is None or lived >= STEADY:
            self._since = self.now
            self._pause, self._redirects = self._first_pause, 0
            self._round = deque(others)
            share = min(self._first_share, SHARE_AFTER_LOSS)
            self._share = share if others else share // 2  # A round of all begins with the double.
        else:
            self._since += lived  # While it was there nobody was looked for.
        if self._on_event is not None:
            self._on_event("lost", self.endpoint, error)

    def _missed(self, error: ClientError) -> None:
        """Go on after an address that does not serve."""
        self._report(error)
        self._next(error, None)

    def _next(self, error: ClientError, elsewhere: Endpoint | None) -> None:
        """Choose what is dialled next, or give up."""
        if self._is_cut_short and self.now >= self._open_by and self._last_error is not None:
            error = self._last_error  # That it was too short says less than what was seen before.
        self._last_error = error
        self.state = WAITING
        self.retry_at = self.now
        if isinstance(error, UNMENDABLE):
            self._fatal = error
        if self.connects and not self._may_reconnect:
            self._fail(error)
            return
        if elsewhere is not None and self._redirects < MAX_REDIRECTS:
            self._redirects += 1
            self._round.appendleft(elsewhere)
            return
        left = self._left(self.now)
        tries_once = self.options.reconnect_timeout == 0
        if left is not None and left <= 0 and not (tries_once and self._round):
            self._fail(error)
        elif not self._round:
            if (
                self.connects == 0
                and not self._answered
                and (self.options.fail_fast or self._fatal is not None)
            ):
                self._fail(self._fatal or error)
                return
            self.retry_at = self.now + self._pause

    def _report(self, error: ClientError) -> None:
        if self._on_event is not None:
            self._on_event("failed", self.endpoint, error)

    def _begin_round(self) -> None:
        """Try all addresses once more."""
        if self.connects or self._last_error is not None:
            self._pause = min(2 * self._pause, self._longest_pause)
            self._share = min(2 * self._share, LONGEST_SHARE)
        self._round = deque(self._known)
        self._redirects = 0
        self._answered, self._fatal = False, None

    @property
    def _may_reconnect(self) -> bool:
        return self.options.reconnect and self.options.reconnect_timeout != 0

    def _left(self, now: int) -> int | None:
        timeout = self.options.reconnect_timeout
        if timeout is None:
            return None
        return (self._since if self._since is not None else now) + int(timeout * SECOND) - now

    def _fail(self, error: ClientError) -> None:
        """End the client: nobody serves it."""
        self.state = ENDED
        timeout = self.options.reconnect_timeout
        at_first_contact = self.options.fail_fast and not self.connects
        ends_with_it = self.connects and not self._may_reconnect
        if isinstance(error, UNMENDABLE) or at_first_contact or timeout == 0 or ends_with_it:
            self.failure = error
        else:
            self.failure = ConnectError(
                f"no broker served within {timeout:g} s",
                reason=str(error),
                condition=error.condition,
                hint="look whether one of "
                + ", ".join(map(str, self._known[:8]))
                + " is the primary",
            )
        for link in self.links:
            link.fail(self.failure)

    def broke(self, error: Exception) -> None:
        """End the client, because a callback of the application's (or the client) raised an error.
        No callback hears of it: one of them may have raised.
        """
        self._on_event = None
        self.state = ENDED
        self.failure = ClientError(
            "the client has failed", reason=f"{type(error).__name__}: {error}"
        )
        self.failure.__cause__ = error
        for link in self.links:
            if isinstance(link, Sender):
                link.on_outcome = None
            link.fail(self.failure)

    # Addresses that brokers name.

    def _learn(self, connection: Connection) -> None:
        listed = connection.remote_properties.get(SERVERS)
        if not self.options.follow_redirects:
            return
        places = {endpoint.place for endpoint in self._known}
        if self.endpoint.place not in places:
            self._known.append(self.endpoint)
            places.add(self.endpoint.place)
        for described in listed if isinstance(listed, list) else []:
            endpoint = self._named(described) if isinstance(described, dict) else None
            if endpoint is not None and endpoint.place not in places and len(places) < MAX_KNOWN:
                self._known.append(endpoint)
                places.add(endpoint.place)

    def _redirected(self, error: PeerError) -> Endpoint | None:
        if error.condition != REDIRECT or not self.options.follow_redirects:
            return None
        endpoint = self._named(error.info)
        return None if endpoint is None or endpoint.place == self.endpoint.place else endpoint

    def _named(self, described: dict[Any, Any]) -> Endpoint | None:
        """Read an address that a broker named; one logs in there as here. One that would lead from
        TLS to a plain port is not believed.
        """
        host, port = described.get("network-host"), described.get("port")
        if not isinstance(host, str) or not isinstance(port, int) or not port:
            return None
        scheme = described.get("scheme")
        encrypted = scheme == "amqps" if isinstance(scheme, str) else self.endpoint.tls
        if self.endpoint.tls and not encrypted:
            return None
        try:
            return replace(self.endpoint, host=str(host), port=int(port), tls=encrypted)
        except ClientError:
            return None  # It is no address.

    def _check_protocol(self, data: bytes) -> bool:
        """Say what is wrong with a peer whose first bytes are no AMQP."""
        is_other = data[:4] == b"AMQP" and not b"\1\0\0".startswith(data[5:8])
        if b"AMQP".startswith(data[:4]) and not is_other:
            self._is_ours = True
            return True
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.lost("not AMQP")
        if not self.endpoint.tls and data[:2] == b"\x15\x03":
            error: ClientError = WrongProtocol(
                f"{self.endpoint} speaks TLS", hint=f"amqps://{self.endpoint} as its address"
            )
        elif is_other:
            error = WrongProtocol(
                f"{self.endpoint} does not speak AMQP 1.0",
                reason=f"its protocol header is {protocol(data)}",
                hint="enable AMQP 1.0 there: the module amqp of qpidd, rabbitmq_amqp1_0 of "
                "RabbitMQ 3",
            )
        else:
            said = data[:20].decode("ascii", "backslashreplace").splitlines()[0]
            error = WrongProtocol(
                f"{self.endpoint} is no AMQP broker", reason=f"it answers {said!r}"
            )
        self._missed(error)
        return False
