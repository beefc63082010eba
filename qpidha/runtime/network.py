"""Network: byte streams to clients, tools and other brokers; bytes only, it never looks into them.

A stream reports itself opened, its bytes and its end to `NodeLoop`; SendBytes, Connect and
Disconnect come back as calls. Each ConnectionOpened and each Connect is followed by exactly one
ConnectionLost, also after a Disconnect of ours. A peer that lets more than `max-output-buffer`
bytes pile up is cut off, but for those of which SendBytes says that somebody else bounds what they
are owed. Must not know AMQP.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import ssl
from collections.abc import Callable
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Any, cast

from qpidha.model.effects import Admitted, Connect, Disconnect, LoginWaits, SendBytes, SendParts
from qpidha.model.event_codes import ADMIN_SOCKET_DENIED, DOES_NOT_READ, TOO_MANY_CONNECTIONS
from qpidha.model.events import (
    BytesReceived,
    ConnectionCongested,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    Event,
    OutputWaiting,
)
from qpidha.model.ip import address_of, plain_host
from qpidha.model.settings import Settings
from qpidha.runtime.exits import CannotStart
from qpidha.runtime.log_lines import Log
from qpidha.runtime.newcomers import Newcomers
from qpidha.runtime.secure_door import SecureDoor, Visitor
from qpidha.runtime.sockets import group_name, groups_of, peer_of, user_name
from qpidha.runtime.tls import client_context, identity_of
from qpidha.runtime.trusted_hosts import TrustedHosts

RESERVED_CONNECTIONS = 32
"""Streams taken beyond max-connections, so that clients cannot shut out the other brokers; the node
counts clients itself.
"""
ADMIN_CONNECTIONS = 64
CONGESTED = 4 << 20
"""Bytes that may wait for one peer before it gets no more messages; what it is owed otherwise still
goes out.
"""
TURN_BYTES = 256 << 10
"""Bytes of one client that a turn handles before the others have theirs: as many as come in a read,
so that nothing of it is cut off and copied. Engines put the costliest frames in them off by
themselves.
"""
SHORT_READ = TURN_BYTES // 2
"""Bytes of a read after which the next may be in the same turn."""
ALL_TURN_BYTES = 2 << 20
"""Bytes of all clients together after which the others wait for the next turn, at most: what the
disk, other brokers and the clock have to say waits for the end of each.
"""
TURN = 0.1
"""Seconds that what clients sent should take in a turn: where a turn took longer the next has fewer
of their bytes, for a small request may cost a thousand times what it has.
"""
SMALL = 4 << 10
"""Bytes that do not wait: logins, heartbeats, outcomes."""
LINGER = 5.0
"""Seconds that what was written before a Disconnect may take to leave."""
WEIGH = 1.0
"""Seconds between two looks at what waits for peers."""
LOOK = 0.01
LOOKS = 8
"""How often, with so many seconds between, nothing of a stream with TLS must be found on its way:
what uvloop keeps below TLS, at most 64 KiB and a frame, cannot be seen, and goes in between.
"""


class Stream(Visitor):
    """One connection."""

    __slots__ = (
        "_kept",
        "_network",
        "_passed",
        "_put",
        "_shares",
        "connection_id",
        "host",
        "is_closing",
        "is_lost",
        "is_open",
        "kind",
        "linger",
        "reason",
        "takes_place",
        "transport",
    )

    def __init__(self, network: Network, connection_id: int, kind: ConnectionKind) -> None:
        self._network = network
        self._put = network.put
        self.kind = kind
        self._kept = b""
        self._passed = 0
        self._shares = False
        self.connection_id = connection_id
        self.host = ""
        """The address of the peer, without its port."""
        self.transport: asyncio.Transport | None = None
        self.reason = ""
        self.is_open = False
        self.is_closing = False
        self.is_lost = False
        """Whether the peer is gone, and not all was heard that it had said."""
        self.takes_place = False
        """Whether the peer was let in, so that another cannot be."""
        self.linger: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream exists; tell the node unless it may not be."""
        # uvloop's transports have the methods of asyncio.Transport without being subclasses of it.
        self.transport = cast(asyncio.Transport, transport)
        opened = self._network.opened(self, self.transport, self.kind)
        if opened is None:
            self.transport.abort()
            return
        self.is_open = True
        self._shares = self.kind is ConnectionKind.CLIENT
        self._put(opened)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on; of a client no more in one turn than its share, and than all may have,
        while nothing more is read of it.
        """
        if self.is_closing:
            return
        network = self._network
        if self._kept:
            self._kept += data
        elif not self._shares:
            self._put(BytesReceived(self.connection_id, data))
        elif len(data) <= (SMALL if network.is_full else SHORT_READ):
            self._put(BytesReceived(self.connection_id, data))
            network.took(len(data))
        else:
            self._kept = data
            self.transport.pause_reading()  # type: ignore[union-attr]
            if network.is_full:
                network.rest(self)
            else:
                self.go_on()

    def go_on(self, most: int = TURN_BYTES) -> None:
        """Pass `most` of what was kept on, the next of it when the turn is over, and then read
        again.
        """
        if self.is_closing or not (self.is_open or self.is_lost):
            return
        share = self._kept[self._passed : self._passed + most]
        self._passed += len(share)
        if share:
            self._put(BytesReceived(self.connection_id, share))
            self._network.took(len(share))
            self._network.rest(self)
        elif self.is_lost:
            self.finish()
        else:
            self._kept, self._passed = b"", 0
            self.transport.resume_reading()  # type: ignore[union-attr]

    def finish(self) -> None:
        """Tell that the stream has ended; what is still kept is heard no more."""
        self.is_lost = False
        self._kept = b""
        self._network.lost(self.connection_id, self.reason)

    def admitted(self, comes_first: bool) -> None:
        """Its peer was let in."""
        if comes_first:
            self._shares = False

    def crowded_out(self) -> None:
        """Make room for somebody else."""
        if self.is_lost:
            self.finish()
            return
        self.reason = "too many connections were not let in yet"
        self.is_closing = True
        if self.transport is not None:
            self.transport.abort()

    def eof_received(self) -> bool:
        """The peer sends no more. On the admin socket it may still wait for answers, as `nc -N`
        does, unless it has hung up.
        """
        if (
            self.kind is ConnectionKind.LOCAL
            and not self.is_closing
            and not _hung_up(cast(asyncio.Transport, self.transport))
        ):
            self._network.close_soon(self)
            return True
        return False

    def pause_writing(self) -> None:
        """Bytes pile up: the node should make no more of them than it must."""
        if not self.is_closing:
            self._put(ConnectionCongested(self.connection_id, True))

    def resume_writing(self) -> None:
        """They have left."""
        if not self.is_closing:
            self._put(ConnectionCongested(self.connection_id, False))

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream has ended; what came before its end counts, though its turns are still to
        come: nothing else tells of messages that were sent settled. Then the end is told.
        """
        if self.linger is not None:
            self.linger.cancel()
        if not self.is_open:
            return
        self.is_open, self.is_lost = False, True
        self.reason = self.reason or (
            f"{exc.__class__.__name__}: {exc}" if exc else "closed by the peer"
        )
        rests = bool(self._kept)
        rest, self._passed = self._kept[self._passed :] + self._encrypted(), 0
        if self.is_closing or not self._shares or len(rest) <= SMALL:
            if rest and not self.is_closing:
                self._put(BytesReceived(self.connection_id, rest))
            self.finish()
            return
        self._kept = rest
        if self._network.is_full and not rests:
            self._network.rest(self)
        elif not rests:
            self.go_on()

    def _encrypted(self) -> bytes:
        """Decrypt what had come of a peer with TLS while nothing was read of it: uvloop has it, and
        tells nobody.
        """
        assert self.transport is not None
        tls = self.transport.get_extra_info("ssl_object")
        rest = b""
        with contextlib.suppress(ssl.SSLError):
            while tls is not None and (data := tls.read(TURN_BYTES)):
                rest += data
        return rest


class Network:
    """All streams of one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Settings,
        put: Callable[[Event], None],
        log: Log,
    ) -> None:
        self.put = put
        self._loop = loop
        self._settings = settings
        self._log = log
        self.trusted_hosts = TrustedHosts(settings)
        self._streams: dict[int, Stream] = {}
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._servers: list[asyncio.AbstractServer] = []
        self._doors: list[SecureDoor] = []
        self._taken = {ConnectionKind.CLIENT: 0, ConnectionKind.LOCAL: 0}
        """How many streams take a place: tools of this machine, and peers that were let in."""
        self.newcomers = Newcomers(settings, log)
        self._last_id = 0
        self._is_full = False
        self._client_tls: ssl.SSLContext | None = None
        self._idle: asyncio.Event | None = None
        self._written: dict[Stream, None] = {}
        """Streams that something was written to since nothing of them was found waiting."""
        self._weigher: asyncio.TimerHandle | None = None
        self._waiting = 0
        self._resting: list[Stream] = []
        """Streams whose clients sent more than a turn may have of them."""
        self._took = 0
        """Bytes of clients that this turn has."""
        self._began = 0.0
        """When it had the first of them."""
        self._most = TURN_BYTES
        """Of how many it has enough, until it is known what they cost."""
        self.peer_share = CONGESTED
        self._admin_group: int | None = None
        """Whose members may use the admin socket."""
        """Bytes that may wait for one peer before it gets no more messages, for want of memory."""
        self.handlers: dict[type, Callable[[Any], None]] = {
            SendBytes: self._send,
            SendParts: self._send,
            Admitted: self._admitted,
            LoginWaits: lambda effect: self.newcomers.wait(effect.connection_id),
            Connect: self._connect,
            Disconnect: self._disconnect,
        }

    async def serve(self, sockets: list[socket.socket], tls: ssl.SSLContext | None = None) -> None:
        """Accept clients and brokers on bound sockets."""
        backlog = self._settings.connection_backlog
        for one in sockets:
            if tls is None:
                self._servers.append(
                    await self._loop.create_server(self._accept_client, sock=one, backlog=backlog)
                )
                continue
            one.listen(backlog)
            seconds = self._settings.max_negotiate_time / 1e9
            door = SecureDoor(
                self._loop,
                one,
                tls,
                self.newcomers,
                self._accept_client,
                seconds,
                self._log,
                self.put,
            )
            self._doors.append(door)

    def renew(self, settings: Settings, tls: ssl.SSLContext | None) -> None:
        """Show and trust other certificates from now on, here and where we dial. Who is there
        stays.
        """
        self._settings, self._client_tls = settings, None
        for door in self._doors:
            door.tls = tls or door.tls

    async def serve_admin(self, one: socket.socket, group: int | None = None) -> None:
        """Accept tools of this machine on the bound admin socket: those of root, of our own user,
        and of members of a group.
        """
        self._admin_group = group
        self._servers.append(await self._loop.create_unix_server(self._accept_local, sock=one))

    def stop_listening(self) -> None:
        """Accept nobody from now on."""
        self.trusted_hosts.stop()
        for server in self._servers:
            server.close()
        self._servers.clear()
        for door in self._doors:
            door.close()

    async def close(self, grace: float) -> None:
        """End every stream, giving what was written `grace` seconds to leave."""
        self.stop_listening()
        for door in self._doors:
            door.abandon()
        if self._weigher is not None:
            self._weigher.cancel()
        for task in list(self._connecting.values()):
            task.cancel()
        self._idle = asyncio.Event()
        for stream in list(self._streams.values()):
            self._end(stream, "the broker stops")
        if self._streams:
            try:
                async with asyncio.timeout(grace):
                    await self._idle.wait()
            except TimeoutError:
                for stream in list(self._streams.values()):
                    if stream.transport is not None:
                        stream.transport.abort()

    # Called by streams.

    def opened(
        self, stream: Stream, transport: asyncio.Transport, kind: ConnectionKind
    ) -> ConnectionOpened | None:
        """Note a stream and describe it; None if it may not be."""
        identity, peer = "", _peer_name(transport)
        if kind is ConnectionKind.LOCAL:
            fileno = transport.get_extra_info("socket").fileno()
            pid, uid = peer_of(fileno)
            group = self._admin_group
            if uid not in (os.getuid(), 0) and (group is None or group not in groups_of(fileno)):
                asked = "" if group is None else f", nor in the group {group_name(group)}"
                self._log.write(
                    "warning",
                    "security",
                    f"refused {user_name(uid)} (process {pid}) on the admin socket: not "
                    f"root nor our user{asked}",
                    event_code=ADMIN_SOCKET_DENIED,
                )
                return None
            identity, peer = user_name(uid), f"process {pid}"
        if not self._has_room(kind):
            return None
        tls = transport.get_extra_info("ssl_object") is not None
        if tls:
            identity = identity_of(transport.get_extra_info("peercert"))
        if kind is ConnectionKind.LOCAL:
            self._take_place(stream)
        if kind is not ConnectionKind.LOCAL and not self._settings.tcp_nodelay:
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        most = min(CONGESTED, self._settings.max_output_buffer, self.peer_share)
        transport.set_write_buffer_limits(high=most)
        self._streams[stream.connection_id] = stream
        local = _host(transport, "sockname")
        if kind is ConnectionKind.CLIENT:
            stream.host = _host(transport, "peername")
            self.newcomers.take(stream.connection_id, stream.host, stream.crowded_out)
        is_trusted = self.trusted_hosts.has(stream.host, local)
        return ConnectionOpened(stream.connection_id, peer, kind, identity, tls, local, is_trusted)

    def lost(self, connection_id: int, reason: str) -> None:
        """A stream that was opened has ended."""
        stream = self._streams.pop(connection_id)
        self.newcomers.forget(connection_id)
        if stream.takes_place:
            self._taken[stream.kind] -= 1
        if self._idle is not None and not self._streams:
            self._idle.set()
        self.put(ConnectionLost(connection_id, reason))

    def overflowed(self, stream: Stream) -> None:
        """Cut off a peer that does not read."""
        transport = stream.transport
        if transport is None or not stream.is_open:
            return
        waiting = transport.get_write_buffer_size()
        stream.reason = (
            f"the peer does not read: {waiting} bytes wait for it, more than max-output-buffer"
        )
        stream.is_closing = True
        self._log.write(
            "warning",
            "network",
            f"disconnected {_peer_name(transport) or 'a peer'}: {stream.reason}",
            {"connection": stream.connection_id},
            DOES_NOT_READ,
        )
        transport.abort()

    @property
    def is_full(self) -> bool:
        """Whether this turn has enough of clients."""
        return self._took >= self._most

    def took(self, size: int) -> None:
        """So many bytes of a client were put into this turn."""
        if not self._took:
            # Behind the step that they have asked for.
            self._loop.call_soon(self._next_turn)
            self._began = self._loop.time()
        self._took += size

    def rest(self, stream: Stream) -> None:
        """Let a stream go on in the turn after this one, which has bytes of clients."""
        self._resting.append(stream)

    def _next_turn(self) -> None:
        """Share a turn among those that rest; those for whom there was nothing are the first in the
        next one.
        """
        took, self._took = self._took, 0
        seconds = self._loop.time() - self._began
        if seconds > TURN:
            self._most = max(SMALL, int(took * TURN / seconds))
        elif took >= self._most:
            self._most = min(ALL_TURN_BYTES, 2 * self._most)
        resting, self._resting = self._resting, []
        share = min(TURN_BYTES, max(SMALL, self._most // max(len(resting), 1)))
        for place, stream in enumerate(resting):
            if self.is_full:
                self._resting = resting[place:] + self._resting
                break
            stream.go_on(share)

    def close_soon(self, stream: Stream) -> None:
        """Close a stream that nothing more comes from, once answers have had time to leave."""
        stream.linger = self._loop.call_later(LINGER, self._end, stream, "closed by the peer")

    # Effects.

    def _send(self, effect: SendBytes | SendParts) -> None:
        stream = self._streams.get(effect.connection_id)
        if stream is not None and stream.is_open and not stream.is_closing:
            transport = stream.transport
            assert transport is not None
            if isinstance(effect, SendBytes):
                transport.write(effect.data)
            else:
                transport.writelines(effect.parts)
            self._written[stream] = None
            if self._weigher is None:
                self._weigher = self._loop.call_later(WEIGH, self._weigh)
            limit = self._settings.max_output_buffer
            if effect.limited and transport.get_write_buffer_size() > limit:
                self.overflowed(stream)

    def _weigh(self) -> None:
        """Tell how much waits for peers, if that is other than before."""
        waiting = 0
        for stream in list(self._written):
            transport = stream.transport
            size = 0
            if stream.is_open and transport is not None:
                size = transport.get_write_buffer_size()
            waiting += size
            if not size:
                del self._written[stream]
        self._weigher = self._loop.call_later(WEIGH, self._weigh) if self._written else None
        if waiting != self._waiting:
            self._waiting = waiting
            self.put(OutputWaiting(waiting))

    def _disconnect(self, effect: Disconnect) -> None:
        task = self._connecting.get(effect.connection_id)
        if task is not None:
            task.cancel()
        stream = self._streams.get(effect.connection_id)
        if stream is not None:
            self._end(stream, "closed by us")

    def _connect(self, effect: Connect) -> None:
        task = self._loop.create_task(self._open(effect))
        self._connecting[effect.connection_id] = task
        task.add_done_callback(lambda _: self._connecting.pop(effect.connection_id, None))

    async def _open(self, effect: Connect) -> None:
        """Connect to another broker; a failure is an event like a loss."""
        stream = Stream(self, effect.connection_id, ConnectionKind.OUTGOING)
        reason = "given up"
        try:
            async with asyncio.timeout(self._settings.link_connect_timeout / 1e9):
                await self._loop.create_connection(
                    lambda: stream,
                    effect.host,
                    effect.port,
                    ssl=self._tls() if effect.encrypted else None,
                    server_hostname=effect.host if effect.encrypted else None,
                )
            return
        except TimeoutError:
            reason = (
                "no answer within link-connect-timeout "
                f"({self._settings.link_connect_timeout / 1e9:g} s)"
            )
        except ssl.SSLCertVerificationError as error:
            reason = f"its certificate is not trusted: {error.verify_message}"
        except ssl.SSLError as error:
            is_plain = error.reason == "WRONG_VERSION_NUMBER"
            reason = "it does not speak TLS" if is_plain else f"no TLS: {error.reason or error}"
        except OSError as error:
            reason = error.strerror or str(error)
        except CannotStart as error:
            reason = error.text
        except UnicodeError:
            reason = "that is not a host name"
        except asyncio.CancelledError:
            # Disconnect came before the answer.
            pass
        if stream.is_open:
            self._give_up(stream, reason)
        elif effect.connection_id not in self._streams:
            self.put(
                ConnectionLost(
                    effect.connection_id, f"cannot connect to {effect.host}:{effect.port}: {reason}"
                )
            )

    @staticmethod
    def _give_up(stream: Stream, reason: str) -> None:
        """End a stream that opened when nobody waited for it any more. The loop may have closed its
        socket, and tells neither TLS, which would try to write there, nor us.
        """
        assert stream.transport is not None
        stream.is_closing = True
        stream.reason = stream.reason or reason
        stream.transport.abort()
        stream.connection_lost(None)

    # The rest.

    def _accept_client(self) -> Stream:
        return Stream(self, self._next_id(), ConnectionKind.CLIENT)

    def _accept_local(self) -> Stream:
        return Stream(self, self._next_id(), ConnectionKind.LOCAL)

    def _next_id(self) -> int:
        # Ids of accepted streams are even; the node gives odd ones to its Connect effects.
        self._last_id += 2
        return self._last_id

    def _take_place(self, stream: Stream) -> None:
        stream.takes_place = True
        self._taken[stream.kind] += 1

    def _admitted(self, effect: Admitted) -> None:
        stream = self._streams.get(effect.connection_id)
        if stream is None:
            return
        stream.admitted(effect.comes_first)
        if stream.kind is ConnectionKind.CLIENT and not stream.takes_place:
            self.newcomers.forget(stream.connection_id)
            self._take_place(stream)

    def _has_room(self, kind: ConnectionKind) -> bool:
        """Whether one more stream may be accepted; the first refusal of a row is logged. Newcomers
        have an allowance of their own.
        """
        limit = {
            ConnectionKind.CLIENT: self._settings.max_connections + RESERVED_CONNECTIONS,
            ConnectionKind.LOCAL: ADMIN_CONNECTIONS,
        }.get(kind)
        is_full = limit is not None and self._taken[kind] >= limit
        if is_full and not self._is_full:
            self._log.write(
                "warning",
                "network",
                f"connections are refused: there are {limit} already (max-connections)",
                event_code=TOO_MANY_CONNECTIONS,
            )
        self._is_full = is_full
        return not is_full

    def _tls(self) -> ssl.SSLContext:
        if self._client_tls is None:
            self._client_tls = client_context(self._settings)
        return self._client_tls

    def _end(self, stream: Stream, reason: str) -> None:
        """Close a stream after what was written has left, or after LINGER."""
        if stream.is_lost:
            stream.finish()
        if stream.is_closing or not stream.is_open or stream.transport is None:
            return
        stream.is_closing = True
        stream.reason = reason
        if stream.linger is not None:
            stream.linger.cancel()
        stream.transport.close()
        if stream.transport.get_extra_info("ssl_object") is not None:
            self._hang_up(stream, stream.transport, self._loop.time() + LINGER)
        else:
            stream.linger = self._loop.call_later(LINGER, stream.transport.abort)

    def _hang_up(
        self, stream: Stream, transport: asyncio.Transport, end: float, looks: int = 0
    ) -> None:
        """Close the socket of a stream when what was written has left: not every peer answers the
        end of TLS. Java's waits for the end of the stream.
        """
        looks = looks + 1 if _has_left(transport) else 0
        if looks == LOOKS or self._loop.time() >= end:
            transport.abort()
        else:
            stream.linger = self._loop.call_later(
                LOOK, self._hang_up, stream, transport, end, looks
            )


def _has_left(transport: asyncio.Transport) -> bool:
    """Whether the peer's kernel has all that was written, but for what uvloop keeps below TLS."""
    beneath = transport.get_extra_info("socket")  # None when the peer has ended it
    if beneath is None or transport.get_write_buffer_size():
        return False
    try:
        return not any(ioctl(beneath.fileno(), TIOCOUTQ, bytes(4)))
    except OSError:
        return False


def _hung_up(transport: asyncio.Transport) -> bool:
    """Whether the peer has closed its end of a local stream for both directions."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _host(transport: asyncio.Transport, end: str) -> str:
    """The address of the peer (`peername`), or that of ours which it dialled (`sockname`)."""
    name = transport.get_extra_info(end)
    return plain_host(str(name[0])) if isinstance(name, tuple) else ""


def _peer_name(transport: asyncio.Transport) -> str:
    """`host:port` of the other end."""
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple):
        return ""
    return address_of(plain_host(str(name[0])), name[1])
