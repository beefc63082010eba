"""Consoles as processes of their own, and what they answer."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, NamedTuple

from tests.patience import STATE
from tests.system.cluster import wait_for

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "qpidha.console.main"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("QPID")} | {
    "PYTHONPATH": str(ROOT)
}
PAGE = ROOT / "docs" / "console.md"


def table_of_health() -> dict[str, dict[str, str]]:
    """Return what the page says that each endpoint answers for each state: yes, no, `yes if`."""
    text = PAGE.read_text().partition("\n## Health\n")[2].partition("\n## ")[0]
    head, *rows = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    states = head.split(" | ")[1:-1]
    return {
        cells[0].strip("`/"): dict(zip(states, cells[1:-1], strict=True))
        for cells in (row.split(" | ") for row in rows)
        if cells[0].startswith("`")
    }


class Answer(NamedTuple):
    """What an HTTP server answered."""

    status: int
    text: str
    headers: dict[str, str]


class Console:
    """A console that serves on a free port of the loopback."""

    def __init__(
        self,
        *options: object,
        port: int = 0,
        environment: dict[str, str] | None = None,
        errors: IO[str] | int = subprocess.PIPE,
    ) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "--port", str(port), *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=ENVIRONMENT | (environment or {}),
        )
        assert self.process.stdout is not None
        if port:
            assert self.process.stderr is not None
            line = self.process.stderr.readline()
        else:
            line = self.process.stdout.readline()
        if not line or (port and " watches " not in line):
            raise AssertionError(line + self.process.communicate(timeout=STATE)[1])
        self.port = port or int(line)

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.process.kill()
        self.process.communicate()

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> Answer:
        """Ask for a path; an answer that does not come within a second is a failure of the
        caller's patience only, so the test waits for longer.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STATE)
        try:
            connection.request(method, path, body, headers)
            found = connection.getresponse()
            text = found.read().decode()
            return Answer(found.status, text, {k.lower(): v for k, v in found.getheaders()})
        finally:
            connection.close()

    def ask_broker(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Ask for what a broker has to say, again while it says nothing in time: so does one of a
        busy machine.
        """
        return wait_for(
            lambda: self.ask(path, method, **headers),
            lambda answer: answer.status != 503 or "did not answer to" not in answer.text,
            what=f"the answer to {path}",
        )

    def status(self, path: str) -> int:
        """Return only the status."""
        return self.ask(path).status


def status_of(state: str, **fields: Any) -> dict[str, Any]:
    """Return a status report in short."""
    return {
        "name": "b1",
        "state": state,
        "system_id": "1",
        "applied": 0,
        "primary": None,
        "members": [],
        **fields,
    }


def member(number: str, state: str = "ready", **fields: Any) -> dict[str, Any]:
    """Return a row of `members`."""
    return {
        "system_id": number,
        "name": f"b{number}",
        "address": f"host{number}:5672",
        "state": state,
        "epoch": 1,
        "sequence": 0,
        "connected": True,
        "in_sync": True,
        **fields,
    }


async def ask_app(app: Any, path: str, query: str = "", accept: str = "*/*") -> tuple[int, str]:
    """Ask an application without a server."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"accept", accept.encode())],
    }
    await app(scope, receive, send)
    return sent[0]["status"], sent[1]["body"].decode()
