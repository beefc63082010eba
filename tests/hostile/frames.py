"""Frames written by hand, right or wrong, and a peer that sends them over a plain socket.

Nothing here keeps a client from breaking the rules: every field of a frame header and of a
performative can be anything. A real session as recorded here is what the corpus damages. Source:
AMQP 1.0 part 2.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time

from tests.fidelity.raw_types import (
    NULL,
    binary,
    described,
    list_of,
    map_of,
    small_ulong,
    string,
    symbol,
    uint,
)
from tests.patience import STATE

SASL_HEADER, AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL_MECHANISMS, SASL_INIT, SASL_CHALLENGE, SASL_RESPONSE, SASL_OUTCOME = range(0x40, 0x45)
SOURCE, TARGET, ACCEPTED, ERROR = 0x28, 0x29, 0x24, 0x1D
TRUE, FALSE = b"\x41", b"\x42"


def frame(
    body: bytes, *, channel: int = 0, kind: int = 0, doff: int = 2, size: int | None = None
) -> bytes:
    """A frame; `size` is what its header says instead of the truth."""
    return struct.pack(">IBBH", 8 + len(body) if size is None else size, doff, kind, channel) + body


def performative(
    code: int, *fields: bytes, payload: bytes = b"", channel: int = 0, kind: int = 0
) -> bytes:
    return frame(
        described(small_ulong(code), list_of(list(fields))) + payload, channel=channel, kind=kind
    )


def sasl_init(mechanism: str = "ANONYMOUS", response: bytes = b"guest") -> bytes:
    return performative(SASL_INIT, symbol(mechanism), binary(response), kind=1)


def open_frame(
    container: str = "peer",
    *,
    max_frame: int = 65536,
    channel_max: int = 100,
    properties: bytes = NULL,
) -> bytes:
    fields = [
        string(container),
        string("host"),
        uint(max_frame),
        b"\x60" + struct.pack(">H", channel_max),
    ]
    return performative(OPEN, *fields, NULL, NULL, NULL, NULL, NULL, properties)


def begin_frame(channel: int = 0, *, window: int = 2**31 - 1, handle_max: int = 2**32 - 1) -> bytes:
    return performative(
        BEGIN, NULL, uint(0), uint(window), uint(window), uint(handle_max), channel=channel
    )


def attach_frame(
    name: str,
    handle: int,
    address: bytes,
    *,
    receiver: bool = False,
    channel: int = 0,
    copy: bool = False,
    properties: bytes = NULL,
) -> bytes:
    """Attach a sender to, or a receiver from, an encoded address."""
    mode = symbol("copy") if copy else NULL
    source = described(
        small_ulong(SOURCE),
        list_of([address if receiver else NULL, NULL, NULL, NULL, NULL, NULL, mode]),
    )
    target = described(small_ulong(TARGET), list_of([NULL if receiver else address]))
    role = TRUE if receiver else FALSE
    count = NULL if receiver else uint(0)
    return performative(
        ATTACH,
        string(name),
        uint(handle),
        role,
        NULL,
        NULL,
        source,
        target,
        NULL,
        NULL,
        count,
        NULL,
        NULL,
        NULL,
        properties,
        channel=channel,
    )


def flow_frame(
    handle: int, credit: int, *, channel: int = 0, window: int = 2**31 - 1, drain: bytes = NULL
) -> bytes:
    fields = [
        uint(0),
        uint(window),
        uint(0),
        uint(window),
        uint(handle),
        uint(0),
        uint(credit),
        NULL,
        drain,
    ]
    return performative(FLOW, *fields, channel=channel)


def transfer_frame(
    handle: int,
    delivery: int,
    payload: bytes,
    *,
    settled: bool = False,
    more: bool = False,
    first: bool = True,
    channel: int = 0,
) -> bytes:
    fields = [uint(handle)]
    fields += (
        [uint(delivery), binary(struct.pack(">I", delivery)), uint(0)]
        if first
        else [NULL, NULL, NULL]
    )
    fields += [TRUE if settled else FALSE, TRUE if more else FALSE]
    return performative(TRANSFER, *fields, payload=payload, channel=channel)


def disposition_frame(first: int, last: int, *, receiver: bool = True, state: bytes = b"") -> bytes:
    state = state or described(small_ulong(ACCEPTED), list_of([]))
    return performative(
        DISPOSITION, TRUE if receiver else FALSE, uint(first), uint(last), TRUE, state
    )


def detach_frame(handle: int) -> bytes:
    return performative(DETACH, uint(handle), TRUE)


def close_frame() -> bytes:
    return performative(CLOSE)


def message(text: str = "x") -> bytes:
    return described(small_ulong(0x77), string(text))


def handshake(*, properties: bytes = NULL) -> bytes:
    """Everything up to a session, as one pipelined piece."""
    return (
        SASL_HEADER + sasl_init() + AMQP_HEADER + open_frame(properties=properties) + begin_frame()
    )


def session(queue: str) -> list[tuple[str, bytes]]:
    """A whole session as (layer, bytes): log in, send three messages, receive and accept them,
    leave.
    """
    long = message("y" * 3000)
    return [
        ("sasl header", SASL_HEADER),
        ("sasl init", sasl_init()),
        ("amqp header", AMQP_HEADER),
        (
            "open",
            open_frame(
                properties=map_of([symbol("product"), string("peer"), symbol("pid"), uint(7)])
            ),
        ),
        ("begin", begin_frame()),
        ("attach sender", attach_frame("out", 0, string(queue))),
        ("transfer", transfer_frame(0, 0, message("one"))),
        (
            "transfer of parts",
            transfer_frame(0, 1, long[:1000], more=True)
            + transfer_frame(0, 1, long[1000:], first=False),
        ),
        ("settled transfer", transfer_frame(0, 2, message("three"), settled=True)),
        ("attach receiver", attach_frame("in", 1, string(queue), receiver=True)),
        ("flow", flow_frame(1, 10)),
        ("disposition", disposition_frame(0, 2)),
        ("detach", detach_frame(0)),
        ("end", performative(END)),
        ("close", close_frame()),
    ]


PAUSES = (5, 6, 9, 11, 12)
"""Layers of a session before which a client reads what the broker answered; whoever does not is cut
off for its window.
"""


class Peer:
    """A socket that does not mind."""

    def __init__(self, address: str, *, timeout: float = STATE, receive_buffer: int = 0) -> None:
        host, port = address.split(":")
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        self.ended = False
        self.seen = 0

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def send(self, data: bytes) -> bool:
        """Send; tell whether the broker still wanted it."""
        try:
            self.socket.sendall(data)
        except OSError:
            self.ended = True
        return not self.ended

    def half_close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """End with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.socket.close()

    def read(self, silence: float) -> bytes:
        """Read until the broker ends the connection or says nothing for this many seconds; give all
        that ever came.
        """
        self.socket.settimeout(silence)
        try:
            while data := self.socket.recv(65536):
                self.received += data
            self.ended = True
        except TimeoutError:
            pass
        except OSError:
            self.ended = True
        return self.received

    def wait_ended(self, deadline: float) -> float:
        """Read until the broker ends the connection; give how long that took."""
        begun = time.monotonic()
        self.read(deadline)
        assert self.ended, (
            f"the broker did not end the connection in {deadline} s: {self.received[-300:]!r}"
        )
        return time.monotonic() - begun

    def wait_for(self, code: int, deadline: float = STATE) -> bytes:
        """Read until a frame with this performative has come since the last call; give its body."""
        end = time.monotonic() + deadline
        while True:
            for index, (found, body) in enumerate(self.performatives()):
                if found == code and index >= self.seen:
                    self.seen = index + 1
                    return body
            assert not self.ended and time.monotonic() < end, (
                f"no 0x{code:02x}, but {self.performatives()[self.seen :]}"
            )
            self.socket.settimeout(max(end - time.monotonic(), 0.001))
            try:
                data = self.socket.recv(65536)
            except OSError:
                data = b""
            self.received += data
            self.ended = not data

    def performatives(self) -> list[tuple[int, bytes]]:
        """Split what came into (performative code, body)."""
        found = []
        offset = 0
        while offset + 8 <= len(self.received):
            if self.received.startswith(b"AMQP", offset):
                offset += 8
                continue
            size, doff = struct.unpack_from(">IB", self.received, offset)
            body = self.received[offset + doff * 4 : offset + size]
            if body[:2] == b"\x00\x53":
                found.append((body[2], body))
            offset += size
        return found

    def error(self) -> str:
        """The condition of the close that came, or empty."""
        bodies = [body for code, body in self.performatives() if code == CLOSE]
        return condition_in(bodies[-1]) if bodies else ""


def condition_in(body: bytes) -> str:
    """Find the error condition in a close, end or detach."""
    marker = body.find(b"\x00\x53\x1d")
    start = body.find(b"\xa3", marker)
    if marker < 0 or start < 0:
        return ""
    return body[start + 2 : start + 2 + body[start + 1]].decode("ascii")
