"""Idle connections, each opened as a client of its protocol does: AMQP 1.0 with SASL, open and a
session; AMQP 0-9-1 with PLAIN guest, no heartbeat and a channel; NATS with CONNECT and a PING.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
from collections.abc import Callable

from tests.bench.processes import BenchError
from tests.hostile.frames import (
    AMQP_HEADER,
    BEGIN,
    SASL_HEADER,
    Peer,
    begin_frame,
    open_frame,
    sasl_init,
)

PATIENCE = 30.0


def open_amqp10(address: str) -> socket.socket:
    """AMQP 1.0."""
    peer = Peer(address, timeout=PATIENCE)
    peer.send(SASL_HEADER + sasl_init() + AMQP_HEADER + open_frame() + begin_frame())
    peer.wait_for(BEGIN)
    return peer.socket


def open_amqp091(address: str) -> socket.socket:
    """AMQP 0-9-1: start, tune, open, channel open (its specification, 2.2.4 and 4.2.3)."""

    def frame(channel: int, method: bytes) -> bytes:
        return struct.pack(">BHI", 1, channel, len(method)) + method + b"\xce"

    one = _connect(address)
    with one.makefile("rb") as answers:

        def expect(wanted: tuple[int, int]) -> None:
            head = answers.read(7)
            if len(head) < 7:
                raise ConnectionError("the broker ended the connection")
            method = answers.read(struct.unpack(">I", head[3:])[0] + 1)
            if struct.unpack(">HH", method[:4]) != wanted:
                raise ConnectionError(f"method {method[:4]!r} in place of {wanted}")

        one.sendall(b"AMQP\x00\x00\x09\x01")
        expect((10, 10))
        login = struct.pack(">I", 12) + b"\x00guest\x00guest"
        start_ok = struct.pack(">HHI", 10, 11, 0) + b"\x05PLAIN" + login + b"\x05en_US"
        one.sendall(frame(0, start_ok))
        expect((10, 30))
        tune_ok = struct.pack(">HHHIH", 10, 31, 2047, 131072, 0)
        one.sendall(frame(0, tune_ok) + frame(0, struct.pack(">HH", 10, 40) + b"\x01/\x00\x00"))
        expect((10, 41))
        one.sendall(frame(1, struct.pack(">HH", 20, 10) + b"\x00"))
        expect((20, 11))
    return one


def open_nats(address: str) -> socket.socket:
    """NATS."""
    one = _connect(address)
    with one.makefile("rb") as answers:
        answers.readline()
        one.sendall(b'CONNECT {"verbose":false,"pedantic":false,"lang":"python"}\r\nPING\r\n')
        while not (line := answers.readline()).startswith(b"PONG"):
            if not line or line.startswith(b"-ERR"):
                raise ConnectionError(f"the server answered {line!r}")
    return one


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE)


OPENERS: dict[str, Callable[[str], socket.socket]] = {
    "amqp10": open_amqp10,
    "amqp091": open_amqp091,
    "nats": open_nats,
}


class Idle:
    """So many connections that do nothing, as a context.

    Errors: BenchError: one is refused.
    """

    def __init__(self, protocol: str, address: str, count: int) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._sockets: list[socket.socket] = []
        first = address.split(",")[0]
        try:
            for _ in range(count):
                self._sockets.append(OPENERS[protocol](first))
        except (OSError, AssertionError) as failure:
            self.close()
            raise BenchError(f"connection {len(self._sockets) + 1} failed: {failure}") from failure

    def __enter__(self) -> Idle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lost(self) -> int:
        """How many the broker has ended by now."""
        ended = 0
        for one in self._sockets:
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                ended += not one.recv(65536)
        return ended

    def close(self) -> None:
        """Hang up."""
        for one in self._sockets:
            one.close()
