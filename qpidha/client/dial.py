"""One attempt to reach a broker, in a thread of its own.

A name service that is slow, a key distribution centre of Kerberos that does not answer, or a host
that takes a connection and says nothing, holds up this thread and no call: whoever waits for the
attempt does so for as long as it likes. What comes of an attempt that was given up is closed. Knows
nothing of AMQP.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable

from qpidha.amqp.peer.kerberos import Initiator
from qpidha.client.endpoint import Endpoint


class Dial:
    """Connects to an endpoint within some seconds, with TLS if there is a context for it."""

    def __init__(
        self,
        endpoint: Endpoint,
        seconds: float,
        *,
        context: ssl.SSLContext | None,
        server_name: str,
        tickets: Initiator | None = None,
        on_done: Callable[[], object],
    ) -> None:
        self.endpoint = endpoint
        self.seconds = seconds
        """How long it may take."""
        self._context = context
        self._server_name = server_name
        self.tickets = tickets
        self._on_done = on_done
        self._deadline = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._is_given_up = False
        self._stream: socket.socket | None = None
        self._error: Exception | None = None
        threading.Thread(target=self._run, daemon=True, name="qpidha-client-dial").start()

    @property
    def left(self) -> float:
        """Seconds until it is given up."""
        return max(0.0, self._deadline - time.monotonic())

    def wait(self, seconds: float) -> bool:
        """Wait for some seconds; return whether it has ended, or its time is over."""
        return self._done.wait(min(seconds, self.left)) or not self.left

    def take(self) -> socket.socket:
        """Return the stream, which does not block. Raises what the attempt failed with;
        TimeoutError if its time is over.
        """
        with self._lock:
            self._is_given_up = not self._done.is_set()
            error = TimeoutError() if self._is_given_up else self._error
            if error is not None:
                raise error
            assert self._stream is not None
            return self._stream

    def give_up(self) -> None:
        """Close the stream, now or when there is one."""
        with self._lock:
            self._is_given_up = True
            if self._stream is not None:
                self._stream.close()

    def _run(self) -> None:
        stream: socket.socket | None = None
        try:
            if self.tickets is not None:
                self.tickets.begin()
            place = (self.endpoint.host, self.endpoint.port)
            stream = socket.create_connection(place, timeout=self.seconds)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                stream = self._context.wrap_socket(stream, server_hostname=self._server_name)
            stream.setblocking(False)
        except Exception as error:  # noqa: BLE001  # It is raised again by `take`.
            self._error = error
        with self._lock:
            if self._error is None and not self._is_given_up:
                self._stream = stream
            elif stream is not None:
                stream.close()
            self._done.set()
        self._on_done()
