"""A pretended broker behind an admin socket, and running the command in this process."""

from __future__ import annotations

import json
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from qpidha.cli.main import main

STATUS: dict[str, Any] = {
    "schema_version": 1,
    "name": "b1",
    "address": "127.0.0.1:5672",
    "system_id": "11111111-1111-1111-1111-111111111111",
    "state": "active",
    "epoch": 2,
    "sequence": 1204,
    "primary": {"system_id": "11111111-1111-1111-1111-111111111111", "address": "127.0.0.1:5672"},
    "in_sync": {"epoch": 2, "version": 1, "members": ["11111111-1111-1111-1111-111111111111"]},
    "members": [
        {"address": "127.0.0.1:5672", "state": "active", "connected": True, "in_sync": True},
        {"address": "127.0.0.1:5673", "state": "ready", "connected": True, "in_sync": True},
    ],
    "brokers_url": "amqp:127.0.0.1:5672",
    "public_url": "amqp:10.0.0.9:5672",
    "replicate": "all",
    "held": 0,
}


@dataclass
class FakeBroker:
    """Answers with what the test put in, and remembers what it was asked."""

    socket: str
    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer one request."""
        self.asked.append((method, params))
        answer = self.answers.get(method, {})
        if params.get("after") and "events" in answer:
            later = [event for event in answer["events"] if event["at_ns"] > params["after"]]
            answer = {**answer, "events": later}
        return {"error": answer.args[0]} if isinstance(answer, Exception) else {"result": answer}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    """A pretended primary."""
    with tempfile.TemporaryDirectory(prefix="qpidha-") as path:
        monkeypatch.setenv("QPIDHA_DIR", path)  # Nobody's real cluster is asked.
        fake = FakeBroker(
            str(Path(path) / "admin.sock"), {"status": dict(STATUS), "ping": {"state": "active"}}
        )

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    request = json.loads(line)
                    reply = {
                        "id": request["id"],
                        **fake.answer(request["method"], request["params"]),
                    }
                    self.wfile.write(json.dumps(reply).encode() + b"\n")

        with socketserver.ThreadingUnixStreamServer(fake.socket, Handler) as server:
            server.daemon_threads = True
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            yield fake
            server.shutdown()
            thread.join()


@dataclass
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def qpid_ha(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a command line."""

    def run(*words: str) -> Said:
        code = main(list(words))
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return run
