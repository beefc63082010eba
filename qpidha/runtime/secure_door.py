"""Secure door: a listening socket to which peers come that begin with TLS.

A server of the loop tells nobody of a peer before its handshake is over, so that there could be as
many of them as there are descriptors. Here each is a newcomer from the start.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from qpidha.model.event_codes import NO_DESCRIPTORS
from qpidha.model.events import Event, HandshakeFailed
from qpidha.model.ip import address_of, plain_host
from qpidha.runtime.log_lines import Log
from qpidha.runtime.newcomers import Newcomers

AT_ONCE = 4
"""Peers that are accepted in one turn of the loop: those who are here go on in between."""
PAUSE = 1.0
"""Seconds until the next try where there are no descriptors left."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

CERTIFICATE_TROUBLE = ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "BAD_SIGNATURE")
"""OpenSSL's reasons, beside those for which a certificate is not believed."""
MEANINGS = dict.fromkeys(("WRONG_VERSION_NUMBER", "HTTP_REQUEST"), "the peer speaks no TLS")


class Visitor(asyncio.Protocol):
    """A stream to be; it is open from the end of its handshake on."""

    __slots__ = ()
    connection_id: int
    is_open: bool


class SecureDoor:
    """Accepts on one socket, from its making until it is closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: socket.socket,
        tls: ssl.SSLContext,
        newcomers: Newcomers,
        make_stream: Callable[[], Visitor],
        handshake_time: float,
        log: Log,
        put: Callable[[Event], None],
    ) -> None:
        self.tls = tls
        """What peers are shown and asked for from now on."""
        self._loop = loop
        self._listener = listener
        self._newcomers = newcomers
        self._make_stream = make_stream
        self._handshake_time = handshake_time
        self._log = log
        self._put = put
        self._is_exhausted = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Accept nobody from now on; who is in its handshake goes on."""
        if self._pause is not None:
            self._pause.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()

    def abandon(self) -> None:
        """End all handshakes."""
        for task in self._tasks:
            task.cancel()

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                one, address = self._listener.accept()
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._rest(error)
                return
            self._is_exhausted = False
            one.setblocking(False)
            stream = self._make_stream()
            host = plain_host(str(address[0]))
            peer = address_of(host, address[1])
            task = self._loop.create_task(self._greet(stream, one, peer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._newcomers.take(stream.connection_id, host, partial(_hang_up, one))

    def _rest(self, error: OSError) -> None:
        """Try again later; the first failure of a row is told."""
        self._loop.remove_reader(self._listener)
        self._pause = self._loop.call_later(PAUSE, self._listen)
        if not self._is_exhausted:
            self._is_exhausted = True
            self._log.write(
                "error",
                "network",
                f"nobody who comes with TLS is let in: {error.strerror}; it is tried again every "
                f"{PAUSE:g} s",
                event_code=NO_DESCRIPTORS,
            )

    async def _greet(self, stream: Visitor, one: socket.socket, peer: str) -> None:
        """Make a stream of a peer; one that fails, is too slow, or was closed meanwhile is gone.
        Failures of TLS are told.
        """
        try:
            await self._loop.connect_accepted_socket(
                lambda: stream, one, ssl=self.tls, ssl_handshake_timeout=self._handshake_time
            )
        except ssl.SSLError as error:
            by_certificate = (
                isinstance(error, ssl.SSLCertVerificationError)
                or error.reason in CERTIFICATE_TROUBLE
            )
            self._put(HandshakeFailed(peer, f"TLS: {_reason(error)}", by_certificate))
        except OSError:
            pass  # It has hung up, or was too slow.
        finally:
            if not stream.is_open:
                one.close()
                self._newcomers.forget(stream.connection_id)


def _reason(error: ssl.SSLError) -> str:
    """Say why a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    reason = error.reason or "the handshake failed"  # OpenSSL does not always give one.
    return MEANINGS.get(reason) or reason.replace("_", " ").lower()


def _hang_up(one: socket.socket) -> None:
    """Let the handshake of a peer fail."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
