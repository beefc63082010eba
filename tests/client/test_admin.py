"""Clients of admin sockets: an answer, a no, or one clear error, for both faces."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qpidha.client import admin
from qpidha.client.admin import AdminLink, LinkBroken, LinkDenied, LinkTimeout, ask
from qpidha.model.errors import RefusedRequest
from tests.patience import STATE

Ask = Callable[..., Any]


def ask_linked(path: str, method: str, params: Any = None, *, timeout: float) -> Any:
    """Ask over asyncio."""

    async def run() -> Any:
        link = await AdminLink.open(path)
        try:
            return await link.call(method, params, timeout=timeout)
        finally:
            link.close()

    return asyncio.run(run())


both = pytest.mark.parametrize("question", [ask, ask_linked])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Callable[[bytes], str]]:
    """Makes a server that sends the same bytes for each line it gets; nothing is no answer."""
    ends: list[socket.socket] = []

    def serve(one: socket.socket, reply: bytes) -> None:
        while True:
            try:
                talk, _ = one.accept()
            except OSError:
                return
            with talk, talk.makefile("rb") as lines:
                for _ in lines:
                    if reply == b"hang up":
                        break
                    try:
                        talk.sendall(reply)
                    except OSError:
                        break

    def make(reply: bytes) -> str:
        path = str(tmp_path / f"{len(ends)}.sock")
        one = socket.socket(socket.AF_UNIX)
        one.bind(path)
        one.listen()
        ends.append(one)
        threading.Thread(target=serve, args=(one, reply), daemon=True).start()
        return path

    yield make
    for one in ends:
        one.shutdown(socket.SHUT_RDWR)
        one.close()


@both
def test_the_answer_to_our_request_is_found_among_others(
    broker: Callable[[bytes], str], question: Ask
) -> None:
    path = broker(b'{"id": 9, "result": 1}\n{"event": "state"}\n{"id": 1, "result": {"x": 2}}\n')
    assert question(path, "status", timeout=STATE) == {"x": 2}


@both
@pytest.mark.parametrize("identity", [1, None])
def test_a_no_keeps_its_fields(
    broker: Callable[[bytes], str], question: Ask, identity: int | None
) -> None:
    error = {"condition": "amqp:not-found", "message": "no", "reason": "why", "hint": "next"}
    path = broker(json.dumps({"id": identity, "error": error}).encode() + b"\n")
    with pytest.raises(RefusedRequest) as refused:
        question(path, "status", timeout=STATE)
    found = refused.value
    assert (found.condition, found.text, found.reason, found.hint) == tuple(error.values())


@both
@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        (b"", LinkTimeout, "did not answer to status within 0.2 s"),
        (b"hang up", LinkBroken, "hung up"),
        (b"nonsense\n", LinkBroken, "did not answer in JSON lines"),
        (b'"text"\n', LinkBroken, "did not answer in JSON lines"),
        (b"x" * 5000, LinkBroken, "a line of more than 1000 bytes"),
    ],
)
def test_no_answer_is_one_clear_error(
    broker: Callable[[bytes], str],
    question: Ask,
    monkeypatch: pytest.MonkeyPatch,
    reply: bytes,
    kind: type[LinkBroken],
    says: str,
) -> None:
    monkeypatch.setattr(admin, "LONGEST_ANSWER", 1000)
    with pytest.raises(LinkBroken, match=says) as broken:
        question(broker(reply), "status", timeout=0.2 if kind is LinkTimeout else STATE)
    assert type(broken.value) is kind


@both
def test_a_trickle_of_bytes_does_not_prolong_the_time(
    broker: Callable[[bytes], str], question: Ask
) -> None:
    path = broker(b'{"event": "state"}\n' * 10)
    with pytest.raises(LinkTimeout):
        question(path, "status", timeout=0.2)


@both
def test_where_nobody_listens_says_so(tmp_path: Path, question: Ask) -> None:
    with pytest.raises(LinkBroken, match="no broker answers at .*No such file"):
        question(str(tmp_path / "no.sock"), "status", timeout=1)
    with pytest.raises(LinkBroken, match="too long"):
        question(str(tmp_path / ("x" * 200)), "status", timeout=1)


@both
def test_a_socket_that_may_not_be_opened_is_told_apart(
    tmp_path: Path, question: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*ignored: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", refuse)
    with pytest.raises(LinkDenied, match="Permission denied"):
        question(str(tmp_path / "admin.sock"), "status", timeout=1)


def test_a_slow_answer_holds_up_no_other_and_a_hang_up_fails_what_waits(tmp_path: Path) -> None:
    async def play() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                request = json.loads(line)
                if request["method"] == "ping":
                    writer.write(json.dumps({"id": request["id"], "result": {}}).encode() + b"\n")
                elif request["method"] == "end":
                    break
            writer.close()

        server = await asyncio.start_unix_server(serve, tmp_path / "admin.sock")
        link = await AdminLink.open(str(tmp_path / "admin.sock"))
        slow = asyncio.create_task(link.call("promote", timeout=STATE))
        assert await link.call("ping", timeout=STATE) == {}
        with pytest.raises(LinkBroken, match="hung up"):
            await link.call("end", timeout=STATE)
        with pytest.raises(LinkBroken, match="hung up"):
            await slow
        assert link.closed
        with pytest.raises(LinkBroken, match="hung up"):
            await link.call("ping", timeout=STATE)
        link.close()
        server.close()

    asyncio.run(play())


def test_a_call_that_is_cancelled_while_its_answer_comes_is_cancelled(tmp_path: Path) -> None:
    async def play() -> None:
        silent = await asyncio.start_unix_server(
            lambda reader, writer: None, tmp_path / "admin.sock"
        )
        link = await AdminLink.open(str(tmp_path / "admin.sock"))
        call = asyncio.create_task(link.call("ping", timeout=STATE))
        await asyncio.sleep(0)
        (answer,) = link._waiting.values()
        answer.set_result({})
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        link.close()
        silent.close()

    asyncio.run(play())
