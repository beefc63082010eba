"""The server of JSON lines: whatever comes over its socket has one clear answer."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from qpidha.manager import json_server
from qpidha.manager.builtin.events import ManagerEvents
from qpidha.manager.json_server import JsonServer
from qpidha.model.errors import PreconditionFailed
from qpidha.model.json_lines import LONGEST_REQUEST, MOST_WAITING
from tests.patience import STATE

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


class Served:
    """A server with a method for each way to answer."""

    def __init__(self, path: Path) -> None:
        self.gate = asyncio.Event()
        """Set to let `wait` answer."""
        self.events = ManagerEvents()
        methods = {
            "echo": self._echo,
            "wait": self._wait,
            "refuse": self._refuse,
            "fail": self._fail,
            "break": self._break,
        }
        self.server = JsonServer(path, methods, owner="the server", events=self.events)

    async def _echo(self, params: dict[str, Any]) -> dict[str, Any]:
        return params

    async def _wait(self, params: dict[str, Any]) -> dict[str, Any]:
        await self.gate.wait()
        return {"waited": True}

    async def _refuse(self, params: dict[str, Any]) -> dict[str, Any]:
        raise PreconditionFailed("it cannot be", reason="it is not", hint="make it so")

    async def _fail(self, params: dict[str, Any]) -> dict[str, Any]:
        raise OSError(28, "No space left on device")

    async def _break(self, params: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("an error in the method")


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[tuple[Served, Reader, Writer]]:
    """A server, and a conversation with it."""
    served = Served(path)
    await served.server.listen()
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        yield served, reader, writer
    finally:
        writer.close()
        await served.server.close()


async def answer(reader: Reader) -> dict[str, Any]:
    """The next line."""
    async with asyncio.timeout(STATE):
        reply: dict[str, Any] = json.loads(await reader.readline())
    return reply


def play(path: Path, story: Callable[[Served, Reader, Writer], Awaitable[None]]) -> None:
    """Run a story with a server."""

    async def run() -> None:
        async with serving(path / "server.sock") as (served, reader, writer):
            await story(served, reader, writer)

    asyncio.run(run())


def test_a_long_poll_is_overtaken(tmp_path: Path) -> None:
    async def story(served: Served, reader: Reader, writer: Writer) -> None:
        writer.write(b'{"id": 1, "method": "wait"}\n{"id": 2, "method": "echo"}\n')
        assert (await answer(reader))["id"] == 2
        served.gate.set()
        assert await answer(reader) == {"id": 1, "result": {"waited": True}}

    play(tmp_path, story)


def test_a_refusal_keeps_its_fields_and_the_session_goes_on(tmp_path: Path) -> None:
    async def story(served: Served, reader: Reader, writer: Writer) -> None:
        writer.write(b'{"id": 1, "method": "refuse"}\n')
        assert (await answer(reader))["error"] == {
            "condition": "amqp:precondition-failed",
            "message": "it cannot be",
            "reason": "it is not",
            "hint": "make it so",
            "event_code": "",
        }
        writer.write(b'{"id": 2, "method": "dance"}\n')
        refused = (await answer(reader))["error"]
        assert refused["condition"] == "amqp:not-found" and "echo" in refused["hint"]

    play(tmp_path, story)


def test_what_a_method_does_not_explain_ends_one_request(tmp_path: Path) -> None:
    async def story(served: Served, reader: Reader, writer: Writer) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        writer.write(b'{"id": 1, "method": "fail"}\n')
        refused = (await answer(reader))["error"]
        assert refused["condition"] == "amqp:internal-error" and "No space" in refused["reason"]
        assert not told, "a full disk is no error of the program"
        writer.write(b'{"id": 2, "method": "break"}\n')
        assert "KeyError" in (await answer(reader))["error"]["reason"]
        assert [type(context["exception"]) for context in told] == [KeyError]
        writer.write(b'{"id": 3, "method": "echo"}\n')
        assert (await answer(reader))["id"] == 3

    play(tmp_path, story)


def test_lines_that_are_no_requests_have_one_error_each(tmp_path: Path) -> None:
    async def story(served: Served, reader: Reader, writer: Writer) -> None:
        writer.write(b'nonsense\n\n[1]\n{"id": 4}\n' + b"x" * (LONGEST_REQUEST + 1))
        found = [await answer(reader) for _ in range(4)]
        assert [one["id"] for one in found] == [None, None, 4, None]
        assert "longer than" in found[3]["error"]["message"]
        writer.write(b'xxx\n{"id": 5, "method": "echo"}\n')
        assert await answer(reader) == {"id": 5, "result": {}}

    play(tmp_path, story)


def test_a_peer_that_ends_its_side_still_gets_its_answer(tmp_path: Path) -> None:
    async def story(served: Served, reader: Reader, writer: Writer) -> None:
        writer.write(b'{"id": 1, "method": "wait"}\n')
        writer.write_eof()
        second = await asyncio.open_unix_connection(str(served.server.path))
        second[1].write(b'{"id": 2, "method": "echo"}\n')
        assert (await answer(second[0]))["id"] == 2, "the first request is under way by now"
        second[1].close()
        served.gate.set()
        assert (await answer(reader))["id"] == 1
        assert await reader.read() == b"", "and then the server hangs up"

    play(tmp_path, story)


def test_a_peer_that_hangs_up_harms_nobody(tmp_path: Path) -> None:
    async def story(served: Served, reader: Reader, writer: Writer) -> None:
        gone = await asyncio.open_unix_connection(str(served.server.path))
        gone[1].write(b'{"id": 1, "method": "wait"}\n{"id": 2, "method": "events"}\n')
        await gone[1].drain()
        gone[1].transport.abort()
        served.gate.set()
        writer.write(b'{"id": 3, "method": "echo"}\n')
        assert (await answer(reader))["id"] == 3
        served.events.add("state")

    play(tmp_path, story)


def test_requests_that_wait_are_bounded(tmp_path: Path) -> None:
    async def story(served: Served, reader: Reader, writer: Writer) -> None:
        writer.write(b'{"id": 1, "method": "wait"}\n' * (MOST_WAITING + 1))
        assert (await answer(reader))["error"]["condition"] == "amqp:resource-limit-exceeded"
        served.gate.set()
        for _ in range(MOST_WAITING):
            assert (await answer(reader))["result"]

    play(tmp_path, story)


def test_answers_and_events_come_over_one_session(tmp_path: Path) -> None:
    async def story(served: Served, reader: Reader, writer: Writer) -> None:
        served.events.add("before")
        writer.write(b'{"id": 1, "method": "events"}\n')
        assert (await answer(reader))["event"] == "before"
        writer.write(b'{"id": 2, "method": "events"}\n{"id": 3, "method": "echo"}\n')
        assert await answer(reader) == {"id": 3, "result": {}}, "one subscription is enough"
        served.events.add("after")
        assert (await answer(reader))["event"] == "after"

    play(tmp_path, story)


def test_a_session_that_has_hung_up_is_told_no_more_events(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(served: Served, reader: Reader, writer: Writer) -> None:
        writer.write(b'{"id": 1, "method": "events"}\n{"id": 2, "method": "echo"}\n')
        assert (await answer(reader))["id"] == 2
        (session,) = served.server._sessions
        session.hang_up()
        for _ in range(9):
            served.events.add("after")
        assert await reader.read() == b""

    play(tmp_path, story)
    assert caplog.messages == []


def test_the_end_of_the_server_answers_what_is_ready_and_hangs_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_server, "LAST_ANSWERS", 20.0)

    async def story(served: Served, reader: Reader, writer: Writer) -> None:
        writer.write(b'{"id": 1, "method": "wait"}\n{"id": 2, "method": "echo"}\n')
        assert (await answer(reader))["id"] == 2
        served.gate.set()
        await served.server.close()
        assert (await answer(reader))["id"] == 1
        assert await reader.read() == b"" and not served.server.path.exists()

    play(tmp_path, story)


def test_another_user_is_told_so_and_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(served: Served, reader: Reader, writer: Writer) -> None:
        monkeypatch.setattr(json_server, "_user_id", lambda writer: os.getuid() + 1)
        other = await asyncio.open_unix_connection(str(served.server.path))
        refused = (await answer(other[0]))["error"]
        assert refused["condition"] == "amqp:unauthorized-access" and refused["hint"]
        assert await other[0].read() == b""
        other[1].close()

    play(tmp_path, story)
