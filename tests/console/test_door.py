"""The door of a console: who is accepted, and what becomes of those in their TLS handshake."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn
import uvloop
from uvicorn.server import ServerState

from qpidha.console import connections
from qpidha.console.connections import Connection, Door
from tests.console.conftest import Pair
from tests.console.consoles import Console
from tests.patience import STATE
from tests.system.credentials import Authority

LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
Loop = Callable[[], asyncio.AbstractEventLoop]
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
END = b"0\r\n\r\n"


class World:
    """A listening socket, an application that answers with its scheme, and who is there."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory)
        certificate, key = authority.issue("console")
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.tls.load_cert_chain(certificate, key)
        self.trusting = ssl.create_default_context(cafile=str(authority.certificate))
        self.state = ServerState()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.config = uvicorn.Config(
            self.app, ws="none", http=Connection, log_level="critical", interface="asgi3"
        )
        self.config.load()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["scheme"].encode()})

    @asynccontextmanager
    async def door(self, tls: ssl.SSLContext | None) -> AsyncIterator[Door]:
        found = Door(self.listener, tls, lambda: Connection(self.config, self.state, {}))
        try:
            yield found
        finally:
            found.close()
            for each in list(self.state.connections):
                each.shutdown()
            await self.until(0)

    async def until(self, count: int) -> None:
        """Wait until so many count, and nothing is left of others."""
        async with asyncio.timeout(STATE):
            while len(self.state.connections) != count or (not count and Connection.waiting):
                await asyncio.sleep(0.001)

    def client(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=STATE)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def play(what: Any, loop: Loop) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(what)


@LOOPS
def test_what_was_sent_before_the_door_opens_is_read(world: World, loop: Loop) -> None:
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = world.trusting.wrap_bio(coming, going, server_hostname="localhost")
    secure = world.client()
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    secure.sendall(going.read())

    def step(what: Callable[[], Any]) -> Any:
        """Do something with TLS, for which the other end may have to say more."""
        while True:
            try:
                return what()
            except ssl.SSLWantReadError:
                coming.write(secure.recv(1 << 16))
            finally:
                if going.pending:
                    secure.sendall(going.read())

    def ask() -> bytes:
        step(tls.do_handshake)
        step(lambda: tls.write(REQUEST))
        answer = b""
        while not answer.endswith(END):
            answer += step(lambda: tls.read(1 << 16))
        secure.close()
        return answer

    async def main() -> None:
        async with world.door(world.tls):
            assert b"\r\n\r\n5\r\nhttps\r\n" in await asyncio.to_thread(ask)

    with closing(secure):
        play(main(), loop)


@LOOPS
def test_of_too_many_handshakes_the_oldest_goes(
    world: World, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST", 3)

    async def main() -> None:
        async with world.door(world.tls):
            held = []
            for count in (1, 2, 3):
                held.append(world.client())
                await world.until(count)
            held[0].sendall(b"\x16\x03\x01")  # A handshake that does not go on is none.
            held.append(world.client())
            assert await asyncio.to_thread(ended, held[0])
            await world.until(3)
        for each in held[1:]:
            assert ended(each)
        for each in held:
            each.close()

    play(main(), loop)


@LOOPS
def test_a_handshake_has_its_time_and_what_is_no_tls_ends(
    world: World, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with world.door(world.tls):
            with closing(world.client()) as plain:
                plain.sendall(REQUEST)
                assert await asyncio.to_thread(ended, plain)
            monkeypatch.setattr(connections, "ASKING", 0.02)
            with closing(world.client()) as mute:
                assert await asyncio.to_thread(ended, mute)
            await world.until(0)

    play(main(), loop)


def ended(client: socket.socket) -> bool:
    """Wait until the console has ended a connection; it may have sent an alert of TLS."""
    try:
        while client.recv(1024):
            pass
    except ConnectionResetError:
        pass
    return True


def test_that_there_are_no_descriptors_left_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connections, "PAUSE", 0.001)
    exhausted = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    tries = [exhausted, exhausted, (Mock(), ()), BlockingIOError(), exhausted, exhausted]

    async def main() -> None:
        ours, theirs = socket.socketpair()
        theirs.send(b"x")  # Somebody waits.
        listener, seen = Mock(), asyncio.Event()
        listener.fileno.return_value = ours.fileno()

        def accept() -> Any:
            if not tries:
                seen.set()
                raise BlockingIOError
            found = tries.pop(0)
            if isinstance(found, OSError):
                raise found
            return found

        listener.accept.side_effect = accept
        connection = Mock()
        door = Door(listener, None, lambda: connection)
        await asyncio.wait_for(seen.wait(), STATE)
        door.close()
        assert connection.arrive.call_count == 1
        ours.close()
        theirs.close()

    asyncio.run(main())
    assert capsys.readouterr().err.count("nobody is let in: Too many open files") == 2


def test_a_console_ends_at_once_beside_handshakes_that_go_on(pair: Pair, tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("console")
    options = ["--ssl-cert", certificate, "--ssl-key", key]
    with Console("--data-dir", pair.place, *options) as console:
        with closing(socket.create_connection(("127.0.0.1", console.port), STATE)) as mute:
            console.process.send_signal(signal.SIGTERM)
            assert ended(mute)
            errors = console.process.communicate(timeout=STATE)[1]
        assert console.process.returncode == -signal.SIGTERM or not console.process.returncode
        assert "Traceback" not in errors and "Cancel" not in errors
