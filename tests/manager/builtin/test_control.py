"""The manager's own socket: what an operator's command is answered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from qpidha.manager.builtin.control import Control
from tests.manager.conftest import running


async def ask(path: Path, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(json.dumps({"id": 7, "method": method, "params": params or {}}).encode() + b"\n")
    reply: dict[str, Any] = json.loads(await reader.readline())
    writer.close()
    return reply


def test_status_kill_and_errors_are_answered_as_on_a_brokers_admin_socket(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            control = Control(watched.manager)
            await control.listen()
            path = watched.manager.options.socket
            settled = await watched.event("settled")
            status = (await ask(path, "status"))["result"]
            assert status["primary"] == "b1" and status["settled"]
            assert [broker["state"] for broker in status["brokers"]] == ["active", "ready", "ready"]
            killed = await ask(path, "kill", {"name": "b1"})
            assert killed["id"] == 7 and killed["result"]["signal"] == "SIGKILL"
            await watched.event("settled", after=settled["time_ns"])
            unknown = await ask(path, "kill", {"name": "b9"})
            assert (
                unknown["error"]["condition"] == "amqp:not-found"
                and "b1" in unknown["error"]["hint"]
            )
            assert "status" in (await ask(path, "stauts"))["error"]["hint"]
            assert (
                "SIG"
                not in (await ask(path, "kill", {"name": "b1", "signal": "FOO"}))["error"]["hint"]
            )
            await control.close()
            assert not path.exists()

    asyncio.run(play())


def test_events_are_told_from_the_beginning_and_as_they_come(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            control = Control(watched.manager)
            await control.listen()
            await watched.event("settled")
            reader, writer = await asyncio.open_unix_connection(str(watched.manager.options.socket))
            writer.write(b'{"id": 1, "method": "events"}\n')
            first = json.loads(await reader.readline())
            assert first["event"] == "state" and first["state"] == "starting"
            await ask(watched.manager.options.socket, "kill", {"name": "b2"})
            while json.loads(await reader.readline())["event"] != "signal":
                pass
            writer.close()
            await control.close()

    asyncio.run(play())


def test_a_listener_that_reads_nothing_is_cut_off(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qpidha.manager.json_server.MOST_UNREAD", 1 << 20)

    async def play() -> None:
        async with running(directory) as watched:
            control = Control(watched.manager)
            await control.listen()
            await watched.event("settled")
            reader, writer = await asyncio.open_unix_connection(
                str(watched.manager.options.socket), limit=1024
            )
            writer.write(b'{"id": 1, "method": "events"}\n')
            await reader.readline()
            listeners = watched.manager.events._subscribers
            assert len(listeners) == 2  # it, and the test
            for _ in range(1000):
                watched.manager.events.add("noise", text="x" * 10_000)
                await asyncio.sleep(0)
                if len(listeners) == 1:
                    break
            assert len(listeners) == 1
            writer.close()
            await control.close()

    asyncio.run(play())


def test_there_are_only_so_many_listeners(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qpidha.manager.json_server.MOST_LISTENERS", 0)

    async def play() -> None:
        async with running(directory) as watched:
            control = Control(watched.manager)
            await control.listen()
            reply = await ask(watched.manager.options.socket, "events")
            assert reply["error"]["condition"] == "amqp:resource-limit-exceeded"
            await control.close()

    asyncio.run(play())


def test_a_switchover_and_a_failover_are_asked_of_the_manager(directory: Path) -> None:
    async def play() -> None:
        async with running(directory) as watched:
            control = Control(watched.manager)
            await control.listen()
            path = watched.manager.options.socket
            settled = await watched.event("settled")
            assert (await ask(path, "switchover", {"target": "b1"}))["error"][
                "message"
            ] == "b1 is the primary already"
            assert (await ask(path, "failover", {"target": "b2"}))["result"] == {
                "from": "b1",
                "to": "b2",
                "epoch": 2,
            }
            await watched.event("settled", after=settled["time_ns"])
            assert (await ask(path, "status"))["result"]["in_sync"] == {
                "epoch": 0,
                "version": 0,
                "members": [],
            }
            await control.close()

    asyncio.run(play())
