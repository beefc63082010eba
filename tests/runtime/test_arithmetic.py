"""Arithmetic in its thread, and logins that ask for much of it."""

from __future__ import annotations

import asyncio
import base64
import select
import socket
import threading
from pathlib import Path

from qpidha.amqp.peer.sasl import SASL_HEADER, SaslClient
from qpidha.model.effects import Compute
from qpidha.model.events import Computed
from qpidha.runtime.arithmetic import ASKING, Arithmetic
from tests.patience import STATE
from tests.runtime.daemons import Running


def test_work_is_done_in_order_while_the_loop_goes_on() -> None:
    async def play() -> None:
        gate, done = threading.Event(), asyncio.Event()
        events: list[Computed] = []

        def put(event: Computed) -> None:
            events.append(event)
            if len(events) == 3:
                done.set()

        arithmetic = Arithmetic(asyncio.get_running_loop(), put)  # type: ignore[arg-type]
        for number, work in enumerate((lambda: gate.wait(STATE), lambda: 1 // 0, lambda: "third")):
            arithmetic.take(Compute(number, work))
        assert not events
        gate.set()
        await asyncio.wait_for(done.wait(), STATE)
        assert [(event.connection_id, event.result) for event in events] == [
            (0, True),
            (1, None),
            (2, "third"),
        ]
        assert [type(event.error) for event in events] == [
            type(None),
            ZeroDivisionError,
            type(None),
        ]

    asyncio.run(play())


def test_what_asks_the_network_keeps_nobody_waiting() -> None:
    async def play() -> None:
        gate, done = threading.Event(), asyncio.Event()
        events: list[int] = []

        def put(event: Computed) -> None:
            events.append(event.connection_id)
            if len(events) == 3:
                gate.set()
            if len(events) == ASKING + 2:
                done.set()

        arithmetic = Arithmetic(asyncio.get_running_loop(), put)  # type: ignore[arg-type]
        for number in range(ASKING - 1):  # All but one hang until the others are done.
            arithmetic.take(Compute(number, lambda: gate.wait(STATE), blocks=True))
        arithmetic.take(Compute(100, lambda: "an answer", blocks=True))
        arithmetic.take(Compute(200, lambda: "a password"))
        arithmetic.take(Compute(300, lambda: "the next", blocks=True))
        await asyncio.wait_for(done.wait(), STATE)
        assert set(events[:3]) == {100, 200, 300}
        assert len(arithmetic._asking) == ASKING

    asyncio.run(play())


def test_nobody_waits_for_what_is_being_done_when_the_loop_is_closed() -> None:
    gate = threading.Event()

    async def play() -> Arithmetic:
        arithmetic = Arithmetic(asyncio.get_running_loop(), lambda event: None)
        arithmetic.take(Compute(1, lambda: gate.wait(STATE)))
        return arithmetic

    thread = asyncio.run(play())._thread
    assert thread is not None and thread.daemon and thread.is_alive()
    gate.set()
    thread.join(STATE)
    assert not thread.is_alive()


def read(stream: socket.socket, size: int) -> bytes:
    """Read so many bytes."""
    data = b""
    while len(data) < size:
        part = stream.recv(size - len(data))
        assert part, "the broker hung up"
        data += part
    return data


def read_frame(stream: socket.socket) -> bytes:
    """Read a frame, and nothing of what follows it."""
    size = read(stream, 4)
    return size + read(stream, int.from_bytes(size, "big") - 4)


def test_performance_4_a_login_that_takes_long_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    """By the order of what comes: the login is under way before the other one begins."""
    salt, key = (base64.b64encode(bytes(size)).decode() for size in (16, 32))
    users = tmp_path / "users"
    users.write_text(f"ann:SCRAM-SHA-256$2000000:{salt}${key}:{key}\n")
    options = ("--users-file", users, "--sasl-plain-without-tls=yes")
    with (
        Running("--data-dir", tmp_path / "data", *options) as daemon,
        socket.create_connection(("127.0.0.1", daemon.port), STATE) as ann,
        socket.create_connection(("127.0.0.1", daemon.port), STATE) as other,
    ):
        client = SaslClient("PLAIN", username="ann", password="guess", hostname="", nonce="n")
        ann.sendall(client.take_output())
        client.receive(read(ann, len(SASL_HEADER)) + read_frame(ann))
        ann.sendall(client.take_output())
        other.sendall(SASL_HEADER)
        assert read(other, len(SASL_HEADER)) == SASL_HEADER
        assert not select.select([ann], [], [], 0)[0]
        client.receive(read_frame(ann))
        assert client.failed
