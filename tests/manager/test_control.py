"""The manager's own socket: what an operator's command is answered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from qpidha.manager.control import Control
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
            assert unknown["error"]["condition"] == "amqp:not-found" and "b1" in unknown["error"]["hint"]
            assert "status" in (await ask(path, "stauts"))["error"]["hint"]
            assert "SIG" not in (await ask(path, "kill", {"name": "b1", "signal": "FOO"}))["error"]["hint"]
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
