"""A broker behind a real socket, for tests of the two faces: it reads only when it is let."""

from __future__ import annotations

import queue
import select
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, Self

from qpidha.amqp.server.served_connection import ServedConnection
from qpidha.model.events import ConnectionKind
from tests.amqp.builders import AHost
from tests.patience import STATE


class Served:
    """Serves a host, one connection after the other, in a thread of its own."""

    def __init__(self, *queues: str, encryption: ssl.SSLContext | None = None) -> None:
        self.host = AHost()
        for name in queues:
            self.host.broker.declare_queue(name)
        self.reads = threading.Event()
        self.reads.set()
        self.ended = threading.Event()
        """Set when a connection has ended as AMQP has it."""
        self.hung_up = threading.Event()
        """Set when the stream of a connection is closed."""
        self._encryption = encryption
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        scheme = "amqp" if encryption is None else "amqps"
        self.address = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._stopped = threading.Event()
        self._hangs_up = threading.Event()
        self._paused = threading.Event()
        self._tasks: queue.SimpleQueue[Callable[[Any], object]] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.reads.set()
        self._thread.join(STATE)
        self._listener.close()

    def do(self, task: Callable[[Any], object]) -> None:
        """Have the thread of the broker do something with the server's connection."""
        self._tasks.put(task)

    def pause(self) -> None:
        """Read nothing from now on; a connection is served."""
        self.reads.clear()
        assert self._paused.wait(STATE)

    def hang_up(self) -> None:
        """End the connection of the moment without a word."""
        self._hangs_up.set()
        self.reads.set()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            if select.select([self._listener], [], [], 0.02)[0]:
                stream, _ = self._listener.accept()
                if self._encryption is not None:
                    stream = self._encryption.wrap_socket(stream, server_side=True)
                with stream:
                    self._carry(stream)
                self.hung_up.set()

    def _carry(self, stream: socket.socket) -> None:
        server: Any = ServedConnection(
            1,
            self.host,
            kind=ConnectionKind.CLIENT,
            peer="client",
            encrypted=self._encryption is not None,
        ).connection
        try:
            while not self._stopped.is_set():
                for _ in range(self._tasks.qsize()):
                    self._tasks.get()(server)
                self.host.broker.dispatch(self.host.now)
                stream.sendall(server.output())
                if server.closed:
                    self.ended.set()
                    return
                if not self.reads.is_set():
                    self._paused.set()
                    self.reads.wait()
                    self._paused.clear()
                if self._hangs_up.is_set():
                    self._hangs_up.clear()
                    break
                if select.select([stream], [], [], 0.02)[0]:
                    data = stream.recv(1 << 14)
                    if not data:
                        break
                    server.receive(data)
        except OSError:
            pass
        server.lost("the client hung up")
