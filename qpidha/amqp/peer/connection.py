"""Connection: one AMQP connection, from its first byte to its last, without any I/O.

Bytes are received, output is fetched once a turn, `tick` keeps the heartbeats of both directions.
The security layer comes first (sasl), then the engine speaks AMQP and this object decides who may
open, attach and stay. A peer's fault never raises out of here: it ends this connection, with an
error that names it, and nothing else. Links are their own objects; the attaches of the peer are
answered by the connection's owner, which brokers have and clients do not. Must not know brokers:
the host admits, redirects and refuses. Source: AMQP 1.0 section 2.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.amqp.peer.engine import Engine
from qpidha.amqp.peer.kerberos import Acceptor, Initiator
from qpidha.amqp.peer.sasl import AMQP_HEADER, SASL_HEADER, SaslClient, SaslServer, SaslSide
from qpidha.amqp.peer.service_link import ServiceLink
from qpidha.amqp.peer.terminus import PeerError, Terminus, source, target
from qpidha.model.duration import MILLISECOND
from qpidha.model.errors import (
    ConnectionForced,
    InvariantBroken,
    LimitExceeded,
    NotImplementedHere,
    ProtocolViolation,
    QpidHaError,
    Unanswered,
    Unauthorized,
)
from qpidha.model.events import ConnectionKind
from qpidha.model.principal import ANONYMOUS, Principal, Role
from qpidha.model.settings import GSSAPI

if TYPE_CHECKING:
    from qpidha.amqp.peer.channels import Retiring
    from qpidha.amqp.peer.host import ConnectionOwner, Host, Service
    from qpidha.amqp.peer.links import LinkEnd, SessionEnd

HEADER, SASL, DECIDED, AMQP, ENDING = range(5)
"""What a connection is at: waiting for the first bytes, in its security layer, waiting to say how
the login ended, speaking AMQP, flushing its last bytes.
"""
CLIENT_SILENCE = 10_000_000_000
"""How often, in ns, clients that did not ask for heartbeats must say something where
link-heartbeat-interval is less.
"""
BROKER_FRAME = 16 << 20
"""Bytes of a frame that is taken from a broker, whatever max-frame-size is: a batch of the log is
one then. An older broker says that it takes fewer, and gets more frames.
"""
MIN_IDLE_TIMEOUT = 10
"""Milliseconds of silence that a peer must put up with: less would keep the broker busy with
heartbeats (2.4.5).
"""
CAPABILITIES = ("ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY")


class Counters:
    """What went through a connection."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "messages_out")

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.messages_in = self.messages_out = 0


class Connection:
    """One AMQP connection."""

    __slots__ = (
        "_awake",
        "_buffer",
        "_engine",
        "_negotiated",
        "_reported",
        "_sasl",
        "_says_nothing",
        "_session",
        "_stage",
        "_started",
        "_tells_at",
        "closed",
        "congested",
        "connection_id",
        "counters",
        "heard_ns",
        "error",
        "host",
        "identity",
        "kind",
        "local_host",
        "opened",
        "owner",
        "principal",
        "refused_login",
        "remote_container",
        "remote_hostname",
        "remote_offered",
        "remote_properties",
    )

    def __init__(
        self,
        connection_id: int,
        host: Host,
        *,
        kind: ConnectionKind,
        peer: str,
        identity: str = "",
        encrypted: bool = False,
        local_host: str = "",
        trusted_host: bool = False,
        owner: ConnectionOwner | None = None,
    ) -> None:
        self.connection_id = connection_id
        self.host = host
        self.owner = owner
        self.kind = kind
        self.identity = identity
        self.principal = Principal(
            address=peer,
            encrypted=encrypted,
            roles=frozenset((Role.BROKER,)) if kind is ConnectionKind.OUTGOING else frozenset(),
            trusted_host=trusted_host,
        )
        """Who the peer is, as far as that is known by now."""
        self.remote_container = self.remote_hostname = ""
        self.remote_properties: dict[Any, Any] = {}
        self.remote_offered: list[str] = []
        """Capabilities that the peer offers."""
        self.local_host = local_host
        """The address of ours that the peer dialled; empty if it is not known."""
        self.closed = False
        """Nothing more will be sent: drop the stream once what was fetched is written."""
        self.error: PeerError | None = None
        """Why it ended, if anybody said so."""
        self.refused_login: tuple[str, str] | None = None
        """As whom, and with which SASL mechanism, the peer tried to log in and was refused."""
        self.counters = Counters()
        self.congested = False
        settings = host.settings
        is_server = kind is not ConnectionKind.OUTGOING
        self._engine = Engine(
            self,
            is_server=is_server,
            max_frame_size=max(settings.max_frame_size, 0 if is_server else BROKER_FRAME),
            channel_max=settings.channel_max,
            scratch=host.scratch,
            max_links=settings.max_links,
        )
        self._engine.set_idle_timeout(
            2 * settings.link_heartbeat_interval // MILLISECOND if is_server else 0
        )
        self._session: SessionEnd | None = None
        self._stage = HEADER
        self._sasl: SaslSide | None = None
        self._buffer = b""
        self._awake = self._says_nothing = self._negotiated = self._reported = False
        self.opened = False
        """Whether our open was sent."""
        self._started = self._tells_at = self.heard_ns = host.now

    # What a connection that we make begins with.

    def open(
        self,
        container_id: str,
        properties: dict[str, object],
        *,
        mechanism: str = "",
        username: str = "",
        password: str = "",
        hostname: str = "",
        heartbeat: int = 0,
        offered: tuple[str, ...] = (),
        mutual: bool = False,
        initiator: Initiator | None = None,
    ) -> None:
        """Log in and open; `heartbeat` is ns, silence of twice as long ends the connection.
        `offered` are capabilities. With `mutual` the peer has to prove who it is as well.
        `initiator` is for the mechanism GSSAPI; without one it is made of the settings.
        """
        if initiator is None and GSSAPI in mechanism.upper().split():
            settings = self.host.settings
            service, keytab = settings.sasl_service_name, settings.sasl_keytab
            initiator = Initiator(service, hostname, user=username, keytab=keytab)
        self._sasl = SaslClient(
            mechanism,
            username=username,
            password=password,
            hostname=hostname,
            nonce=self.host.make_uuid(),
            encrypted=self.principal.encrypted,
            mutual=mutual,
            initiator=initiator,
        )
        self._stage = SASL
        self.principal = self.principal.logged_in(username, mechanism)
        self._engine.set_idle_timeout(2 * heartbeat // MILLISECOND)
        self._engine.open(container_id, properties, hostname=hostname, offered=offered)
        self.opened = True
        self.wake()

    def attach(
        self,
        address: str,
        *,
        sender: bool,
        service: Service,
        name: str,
        terminus: Terminus | None = None,
        other: Terminus | None = None,
        properties: dict[Any, Any] | None = None,
        credit: int = -1,
        settled: bool = True,
        accepts: bool = True,
        max_size: int = 0,
        own_session: bool = False,
    ) -> ServiceLink:
        """Attach a link to an address of the peer, whose messages and end `service` hears of.

        `terminus` describes the peer's end where an address is not enough, `other` ours. A
        receiver's `credit` is topped up by itself unless it is given, and it takes messages of up
        to `max_size` bytes, 0 for any. A sender that is not `settled` hears of outcomes, and to a
        receiver that is not the peer is asked to send nothing settled. On its `own_session` nothing
        of the link outlives it; raises LimitExceeded if there is no room for another session.
        """
        end = self.new_end(name, sender=sender, own_session=own_session)
        link = ServiceLink(self, end, service, address)
        theirs = terminus or (target(address) if sender else source(address))
        ours = other or (source(name) if sender else target(name))
        pair = (ours, theirs) if sender else (theirs, ours)
        link.begin(
            *pair,
            properties=properties or {},
            credit=credit,
            settled=settled,
            accepts=accepts,
            max_size=max_size,
        )
        self.wake()
        return link

    def new_end(self, name: str, *, sender: bool, own_session: bool = False) -> LinkEnd:
        """Begin a link for an owner that is no service, on the session that links share or on one
        of its own; the owner attaches it with `LinkEnd.open` and wakes the connection. Raises
        LimitExceeded if there is no room for another session.
        """
        if own_session:
            session = self._engine.new_session(is_of_one_link=True)
            return self._engine.new_link(name, sender=sender, session=session)
        if self._session is None or self._session.is_ended:
            self._session = self._engine.new_session()
        return self._engine.new_link(name, sender=sender, session=self._session)

    def remote_max_frame_size(self) -> int:
        """Read how many bytes a frame may have that the peer takes; 0 is any number."""
        return self._engine.remote_max_frame_size()

    # What the host does with a connection.

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer."""
        if self.closed or self._stage == ENDING:
            return
        self.counters.bytes_in += len(data)
        self.heard_ns = self.host.now
        try:
            if self._stage != AMQP:
                data = self._negotiate(data)
            if (data or self._engine.put_off) and self._stage == AMQP:
                self._engine.push(data)
        except InvariantBroken:
            raise
        except QpidHaError as error:
            # Its traceback would keep this connection, for that has frames with the error in them.
            self.close(error.with_traceback(None))
        self.wake()

    def receive_later(self, data: bytes) -> None:
        """Take bytes from the peer behind those that were put off, for a later turn."""
        self.counters.bytes_in += len(data)
        try:
            self._engine.wait(data)
        except QpidHaError as error:
            self.close(error.with_traceback(None))

    @property
    def goes_on(self) -> bool:
        """Whether something of what came is put off, for `receive` in the next turn."""
        return bool(self._engine.put_off) and self._stage == AMQP

    def computed(self, result: object) -> None:
        """Go on with what came of the arithmetic that the host was asked for."""
        if self._stage == SASL:
            assert self._sasl is not None
            try:
                self._sasl.worked(result)
            except QpidHaError as error:
                self.close(error.with_traceback(None))
            self.receive(b"")

    def output(self) -> bytes:
        """Fetch everything there is to send; call it after the queues were dispatched."""
        return b"".join(self.output_parts())

    def output_parts(self) -> list[bytes | memoryview]:
        """Fetch everything there is to send, without putting it together."""
        self._awake = False
        if self.closed:
            return []
        sasl = self._sasl
        data = sasl.take_output() if sasl is not None and self._stage != DECIDED else b""
        parts: list[bytes | memoryview] = [data] if data else []
        if self._stage in (AMQP, ENDING) and self._negotiated and not self._says_nothing:
            owner = self.owner
            if owner is not None:
                owner.before_output()
            parts += self._engine.pull()
            if owner is not None:
                owner.after_output()
            if self._stage == ENDING or self._engine.is_finished():
                self._finish()
        elif self._stage == ENDING:
            self._finish()
        self.counters.bytes_out += sum(map(len, parts))
        return parts

    @property
    def since_ns(self) -> int:
        """When it began, in ns since 1970."""
        return self._started

    def sessions(self) -> list[SessionEnd]:
        """List the sessions that have not ended."""
        return self._engine.sessions()

    def backlog(self, *, answers: bool = False) -> int:
        """Count the bytes that wait for the windows of the peer's sessions, or of those the answers
        of services.
        """
        return self._engine.backlog(answers=answers)

    def set_patient(self, patient: bool) -> None:
        """While what the peer sends is not looked at, its silence means nothing."""
        self._engine.set_patient(patient)

    def tick(self, now: int) -> int:
        """Keep the heartbeats; give the time of the next tick in ns, 0 for none."""
        if self.closed:
            return 0
        if not self._negotiated or not (self.opened and self.remote_container):
            deadline = self._deadline
            if now >= deadline:
                limit = self.host.settings.max_negotiate_time // MILLISECOND
                self.close(
                    ConnectionForced(
                        f"the connection was not opened within max-negotiate-time {limit} ms"
                    )
                )
                return 0
            if self._stage == DECIDED and now >= self._tells_at:
                self.receive(b"")
                if not self.remote_container:
                    return deadline
            if not self._negotiated:
                return self._tells_at if self._stage == DECIDED else deadline
        following = 0
        try:
            following = self._engine.tick(now // MILLISECOND) * MILLISECOND
            self._engine.hand_out()
        except InvariantBroken:
            raise
        except QpidHaError as error:
            self.close(error)
        if self._engine.has_output() or self._engine.is_finished():
            self.wake()
        return following

    def close(self, error: QpidHaError | None = None) -> None:
        """End the connection, telling the peer why, unless the error is one that is not told: what
        there is to send of before is sent, and nothing at all if the peer's open has no answer yet.
        How a login ended that has to wait for that is not told either.
        """
        if self.closed or self._stage == ENDING:
            return
        if self._stage == DECIDED:
            assert self._sasl is not None
            self._sasl.output.clear()
        if error is not None and self.refused_login is None:
            self.error = PeerError.of(error)
        self._engine.lose_all()
        if isinstance(error, Unanswered):
            self._says_nothing = not self.opened
        elif self._negotiated and not self._engine.is_finished():
            if not self.opened:
                self._open(
                    {"product": "qpidha"}
                    if error is None
                    else {"amqp:connection-establishment-failed": True}
                )
            self._engine.close(error)
        self._stage = ENDING
        self.wake()

    def lost(self, reason: str) -> None:
        """The stream is gone: forget everything that depended on it."""
        if self.error is None:
            self.error = PeerError("amqp:connection:forced", reason)
        if not self.closed:
            self._finish()

    def wake(self) -> None:
        """Have the host fetch output at the end of the turn."""
        if not self._awake:
            self._awake = True
            self.host.wake(self)

    def set_congested(self, congested: bool) -> None:
        """Say whether the peer reads slower than it is written to; its consumers get nothing
        meanwhile.
        """
        self.congested = congested
        if self.owner is not None:
            self.owner.congestion_changed()

    # The security layer.

    def _negotiate(self, data: bytes) -> bytes:
        """Take bytes that come before AMQP; give those that are AMQP."""
        if self._stage == HEADER:
            self._buffer += data
            if len(self._buffer) < 8 and SASL_HEADER.startswith(self._buffer[:4]):
                return b""
            data, self._buffer = self._buffer, b""
            if data.startswith(SASL_HEADER):
                self._sasl = SaslServer(
                    self._mechanisms(),
                    self.host.users,
                    identity=self.identity,
                    make_nonce=self.host.make_uuid,
                    takes_any=self.host.settings.anonymous,
                    acceptor=self._acceptor(),
                )
                self._stage = SASL
            elif data.startswith(AMQP_HEADER) and self.host.settings.anonymous:
                self.principal = self.principal.logged_in(ANONYMOUS, "")
                self._begin_amqp()
                return data
            else:
                return self._refuse_header(data)
        sasl = self._sasl
        assert sasl is not None
        sasl.receive(data)
        work = sasl.take_work()
        if work is not None:
            result = self.host.compute(self, work, blocks=sasl.blocks)
            if result is None:
                return b""
            sasl.worked(result)
            sasl.receive(b"")
        if not (sasl.done or sasl.failed):
            return b""
        if self._stage == SASL:
            self._decided(sasl)
        if self.host.now < self._tells_at:
            return b""
        if sasl.failed:
            self._stage = ENDING
            self._engine.lose_all()
            return b""
        self.principal = self.principal.logged_in(sasl.user, sasl.mechanism)
        self._begin_amqp()
        return sasl.leftover

    def _decided(self, sasl: SaslSide) -> None:
        """Note how the login ended, and when the peer may hear it: who guesses has to wait, half of
        the time that is left at most.
        """
        self._stage = DECIDED
        now = self.host.now
        if sasl.failed:
            self.error = PeerError("amqp:unauthorized-access", sasl.reason)
            self.refused_login = sasl.user, sasl.mechanism
        if sasl.by_password:
            wait = self.host.login_decided(self, refused=sasl.failed)
            self._tells_at = now + min(wait, max(0, self._deadline - now) // 2)

    @property
    def _deadline(self) -> int:
        """When the connection must be open."""
        return self._started + self.host.settings.max_negotiate_time

    @property
    def is_held_back(self) -> bool:
        """Whether the peer is not to hear yet how its login ended."""
        return self._stage == DECIDED

    def _begin_amqp(self) -> None:
        self._stage = AMQP
        self._negotiated = True

    def _refuse_header(self, data: bytes) -> bytes:
        """Answer an unknown protocol header with the one we would take, and end."""
        self._sasl = SaslSide()
        if self.host.settings.anonymous:
            self._sasl.output[:] = AMQP_HEADER
        self.error = PeerError(
            "amqp:connection:framing-error",
            f"the peer began with {data[:8]!r}, which is not AMQP 1.0 or lacks SASL",
        )
        self._stage = ENDING
        return b""

    def _acceptor(self) -> Acceptor | None:
        settings = self.host.settings
        if not settings.offers_kerberos:
            return None
        return Acceptor(settings.sasl_service_name, settings.sasl_keytab)

    def _mechanisms(self) -> list[str]:
        settings = self.host.settings
        users = self.host.users
        has_name = users.bare(self.identity) not in ("", ANONYMOUS)
        suitable = ["EXTERNAL"] if has_name and self.principal.encrypted else []
        suitable += [GSSAPI] if settings.offers_kerberos else []
        suitable += users.mechanisms
        is_hidden = self.principal.encrypted or settings.sasl_plain_without_tls
        if settings.anonymous or (users.verifiers and is_hidden):
            suitable.append("PLAIN")
        suitable += ["ANONYMOUS"] if settings.anonymous else []
        allowed = settings.sasl_mechanisms
        return [name for name in suitable if not allowed or name in allowed]

    # What the engine tells.

    def peer_opened(self) -> None:
        """Let the peer in, or not."""
        engine = self._engine
        if self.remote_container:
            raise ProtocolViolation("the peer opened the connection a second time")
        self.remote_container = engine.remote_container() or f"connection-{self.connection_id}"
        self.remote_hostname = engine.remote_hostname()
        self.remote_properties = engine.remote_properties()
        self.remote_offered = engine.remote_offered()
        try:
            if (
                self.host.settings.require_encryption
                and not self.principal.encrypted
                and self.kind is ConnectionKind.CLIENT
            ):
                raise Unauthorized(
                    "this broker serves encrypted connections only", hint="use its ssl-port"
                )
            if 0 < engine.remote_idle_timeout() < MIN_IDLE_TIMEOUT:
                raise NotImplementedHere(
                    f"an idle-time-out of {engine.remote_idle_timeout()} ms is too short",
                    hint=f"ask for {MIN_IDLE_TIMEOUT} ms or more, or for none",
                )
            self.host.admit(self)
        except InvariantBroken:
            raise
        except QpidHaError as error:
            self.close(error)
            return
        if not self.opened:
            if self.principal.is_broker:
                engine.take_frames(BROKER_FRAME)
            else:
                # Heartbeats at the pace the peer asked for, in our direction too. One that asked
                # for none is not held to the pace of the brokers among themselves.
                pace = self.host.settings.link_heartbeat_interval
                wanted = engine.remote_idle_timeout() or (
                    max(pace, CLIENT_SILENCE) // MILLISECOND if pace else 0
                )
                engine.set_idle_timeout(2 * wanted)
            self._open({})
        engine.tick(self.host.now // MILLISECOND)

    def _open(self, extra: dict[str, object]) -> None:
        self.opened = True
        self._engine.open(
            self.host.container_id,
            {**self.host.open_properties(self), **extra},
            offered=CAPABILITIES,
        )

    def peer_closed(self, error: PeerError | None) -> None:
        """The peer is done, or its bytes were faulty."""
        if error is not None and self.error is None:
            self.error = error
        self.close()

    def peer_attached(self, end: LinkEnd) -> None:
        """Answer an attach, or hear the answer to ours."""
        if self._stage != AMQP:
            return
        if end.owner is not None:
            end.owner.answered()
        elif self._engine.link_count() > self.host.settings.max_links:
            end.refuse(
                LimitExceeded(
                    f"this connection has max-links {self.host.settings.max_links} links already"
                )
            )
        elif self.kind is ConnectionKind.OUTGOING:
            end.refuse(NotImplementedHere("nothing can be attached by the side that was dialled"))
        else:
            assert self.owner is not None
            self.owner.attach(end)

    def peer_retires(self, retiring: Retiring) -> None:
        """An outcome in a transaction is about to be told, or was."""
        if self.owner is not None:
            self.owner.peer_retires(retiring)

    def _finish(self) -> None:
        self._stage = ENDING
        self._engine.lose_all()
        self._engine.free()
        self.closed = True
        if not self._reported:
            self._reported = True
            if self.owner is not None:
                self.owner.finished()
            self.host.connection_closed(self)
        # They refer to this connection as well, and would keep it.
        self.owner = self._session = self._sasl = None
