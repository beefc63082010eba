"""Brokers of qpidha for the benchmark: a cluster of three, or one alone, each `qpidhad` process of
its own.

Started plainly, without the built-in manager, and spoken to over the admin socket, so that nothing
but the brokers' own work is measured.
"""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.processes import BenchError, free_ports, start, stop, wait_until


class QpidhaBrokers:
    """`size` brokers; more than one make a cluster, of which the first is promoted."""

    def __init__(
        self,
        folder: Path,
        size: int,
        *,
        options: Sequence[str] = (),
        source: Path | None = None,
        module: str = "qpidha.runtime.daemon",
    ) -> None:
        self.folder = folder
        self.options = options
        self.source = source
        """The working copy whose brokers these are; None is this one."""
        self.module = module
        """What is run for each broker; it takes the daemon's options."""
        self.ports = free_ports(size)
        self.running: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        """Where clients go: the primary."""
        return f"127.0.0.1:{self.ports[0]}"

    def start(self, number: int) -> None:
        """Start one broker, or start it again."""
        tree = self.source or Path(__file__).parents[2]
        # -P: else the working directory comes first, which is another tree where there is a source.
        command = [sys.executable, "-P", "-m", self.module, *self._options(number)]
        place = self.folder / f"b{number + 1}"
        place.mkdir(parents=True, exist_ok=True)
        self.running[number : number + 1] = [
            start(command, log=place / "log", env={**os.environ, "PYTHONPATH": str(tree)})
        ]

    def up(self) -> None:
        """Start the brokers, promote the first, wait until the others are ready."""
        for number in range(len(self.ports)):
            self.start(number)
        for number in range(len(self.ports)):
            wait_until(
                lambda number=number: self.state(number) != "",
                f"broker {number + 1} answers",
                watched=self.running,
            )
        if len(self.ports) > 1:
            self.ask(0, "promote")
            wait_until(
                self.all_ready,
                "one broker is active and the others are ready",
                watched=self.running,
            )

    def pids(self) -> list[int]:
        """The broker processes."""
        return [process.pid for process in self.running]

    def down(self) -> None:
        """Stop all, backups first."""
        for process in reversed(self.running):
            stop(process)
        self.running.clear()

    def declare(self, queue: str, *, durable: bool = False, **more: Any) -> None:
        """Make an empty queue without a limit worth speaking of, with `more` arguments."""
        self.declare_all([queue], durable=durable, **more)

    def declare_all(
        self,
        queues: Iterable[str],
        *,
        durable: bool = False,
        seconds: float = math.inf,
        exchange: str = "",
        **more: Any,
    ) -> int:
        """Make queues as `declare` does, one after the other, until the time is over, each bound to
        an exchange if there is one; return how many.
        """
        began, made = time.monotonic(), 0
        arguments = {"qpid.max_size": 2**33, **more}
        with self.talk(0) as ask:
            for queue in queues:
                if time.monotonic() - began >= seconds:
                    break
                ask("declare_queue", name=queue, durable=durable, arguments=arguments)
                if exchange:
                    ask("bind", exchange=exchange, queue=queue)
                made += 1
        return made

    def syncs(self) -> int:
        """Say how often all brokers together have synced since they started."""
        reports = [
            self.ask(number, "status").get("journal", {}) for number in range(len(self.ports))
        ]
        return sum(int(report.get("syncs", 0)) for report in reports)

    def delete(self, queue: str) -> None:
        """Remove a queue and what is left on it."""
        self.delete_all([queue])

    def delete_all(self, queues: Iterable[str]) -> None:
        """Remove queues and what is left on them."""
        with self.talk(0) as ask:
            for queue in queues:
                ask("delete_queue", name=queue)

    def ask(self, number: int, method: str, **params: Any) -> Any:
        """One request on the admin socket of broker `number`."""
        with self.talk(number) as ask:
            return ask(method, **params)

    @contextmanager
    def talk(self, number: int) -> Iterator[Callable[..., Any]]:
        """Connect to the admin socket of broker `number`; `ask(method, **params)` is a request."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(30)
            admin.connect(str(self.folder / f"b{number + 1}" / "admin.sock"))
            lines = admin.makefile("rb")

            def ask(method: str, **params: Any) -> Any:
                request = json.dumps({"id": 1, "method": method, "params": params})
                admin.sendall(request.encode() + b"\n")
                line = lines.readline()
                answer = json.loads(line or b'{"error": {"message": "the socket was closed"}}')
                if "error" in answer:
                    why = answer["error"]["message"]
                    raise BenchError(f"broker {number + 1} refused {method}: {why}")
                return answer["result"]

            yield ask

    def _options(self, number: int) -> list[str]:
        place = self.folder / f"b{number + 1}"
        options = [
            f"--port={self.ports[number]}",
            "--interface=127.0.0.1",
            f"--data-dir={place / 'data'}",
            f"--admin-socket={place / 'admin.sock'}",
            f"--name=b{number + 1}",
            "--auth=no",
        ]
        if len(self.ports) > 1:
            url = ",".join(f"127.0.0.1:{port}" for port in self.ports)
            options += ["--ha-cluster=yes", f"--ha-brokers-url={url}", "--ha-replicate=all"]
        return [*options, *self.options]

    def state(self, number: int) -> str:
        """Say how a broker is; empty while nobody answers."""
        try:
            return str(self.ask(number, "status")["state"])
        except (OSError, BenchError):
            return ""

    def all_ready(self) -> bool:
        """Whether the first is active and the others are ready."""
        states = [self.state(number) for number in range(len(self.ports))]
        return states == ["active"] + ["ready"] * (len(states) - 1)
