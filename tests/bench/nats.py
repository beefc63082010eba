"""NATS servers with JetStream on loopback, with ports and folders of their own; touches no
installed service.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path

from tests.bench.processes import free_ports, start, stop, wait_until

PROGRAM = "nats-server"
CONFIGURATION = """\
server_name: n{number}
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{http}"
max_payload: 8MB
max_pending: 256MB
jetstream {{ store_dir: "{store}", max_memory_store: 10GB, max_file_store: 40GB }}
cluster {{ name: bench, listen: "127.0.0.1:{route}", routes: [{routes}] }}
"""


def is_installed() -> bool:
    """Whether NATS can be measured here."""
    return shutil.which(PROGRAM) is not None


class NatsCluster:
    """A cluster of three servers, called n1, n2 and n3 as natsbench wants it."""

    def __init__(self, folder: Path, size: int = 3) -> None:
        self.folder = folder
        ports = free_ports(3 * size)
        self.ports, self.routes, self.http = ports[:size], ports[size : 2 * size], ports[2 * size :]
        self.running: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        """All servers: the generator goes to the one that leads its stream."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def up(self) -> None:
        """Start the servers, wait until they have a leader."""
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self.routes)
        for number, (port, route, http) in enumerate(
            zip(self.ports, self.routes, self.http, strict=True), 1
        ):
            place = self.folder / f"n{number}"
            place.mkdir(parents=True, exist_ok=True)
            text = CONFIGURATION.format(
                number=number,
                port=port,
                http=http,
                store=place / "store",
                route=route,
                routes=routes,
            )
            (place / "nats.conf").write_text(text)
            self.running.append(start([PROGRAM, "-c", place / "nats.conf"], log=place / "log"))
        wait_until(self._has_leader, "the NATS servers have a leader", watched=self.running)

    def pids(self) -> list[int]:
        """The server processes."""
        return [process.pid for process in self.running]

    def down(self) -> None:
        """Stop all."""
        for process in reversed(self.running):
            stop(process)
        self.running.clear()

    def version(self) -> str:
        """What is measured."""
        done = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
        return f"NATS {done.stdout.split()[-1]}"

    def _has_leader(self) -> bool:
        try:
            for port in self.http:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/jsz", timeout=5) as answer:
                    group = json.load(answer).get("meta_cluster") or {}
                if not group.get("leader") or group.get("cluster_size") != len(self.http):
                    return False
        except OSError:
            return False
        return True
