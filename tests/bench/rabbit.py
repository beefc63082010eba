"""Three RabbitMQ nodes on loopback, with names, ports and folders of their own; touches no
installed service.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.bench.processes import BenchError, free_ports, start, stop, wait_until

PROGRAMS = Path("/usr/lib/rabbitmq/bin")
"""The scripts themselves: the ones on the PATH are wrappers of Debian's that change the user and
the folder.
"""
CONFIGURATION = """\
listeners.tcp.1 = 127.0.0.1:{port}
cluster_formation.peer_discovery_backend = classic_config
{nodes}
log.file.level = warning
"""


def is_installed() -> bool:
    """Whether RabbitMQ can be measured here."""
    return (PROGRAMS / "rabbitmq-server").exists() and shutil.which("epmd") is not None


class RabbitCluster:
    """A cluster of three nodes; queues named `mirrored.*` have a mirror on every node."""

    def __init__(self, folder: Path, size: int = 3) -> None:
        self.folder = folder
        ports = free_ports(2 * size + 1)
        self.epmd_port = ports.pop()
        self.ports, self.distribution = ports[:size], ports[size:]
        self.nodes = [f"bench{number}-{os.getpid()}@localhost" for number in range(1, size + 1)]
        self.running: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        """Where clients go: the node on which every queue of the benchmark is declared, so its
        leader.
        """
        return f"127.0.0.1:{self.ports[0]}"

    def up(self) -> None:
        """Start the nodes one by one, wait until all are in, mirror the queues that are to be."""
        self.folder.mkdir(parents=True, exist_ok=True)
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text("QPIDHABENCH")
        cookie.chmod(0o600)
        (self.folder / "plugins").write_text("[].\n")
        (self.folder / "environment").write_text("")
        env = dict(os.environ, HOME=str(self.folder), ERL_EPMD_PORT=str(self.epmd_port))
        epmd = start(
            ["epmd", "-address", "127.0.0.1", "-port", str(self.epmd_port)],
            log=self.folder / "epmd.log",
            env=env,
        )
        self.running.append(epmd)
        for number in range(len(self.nodes)):
            log = self.folder / f"node{number + 1}.out"
            self.running.append(
                start([PROGRAMS / "rabbitmq-server"], log=log, env=self._environment(number))
            )
            self._control(
                number, "wait", str(self.folder / f"node{number + 1}.pid"), "--timeout", "60"
            )
        wait_until(
            lambda: self._members() == len(self.nodes),
            "all RabbitMQ nodes are in one cluster",
            watched=self.running,
        )
        definition = json.dumps({"ha-mode": "all", "queue-master-locator": "client-local"})
        self._control(0, "set_policy", "mirrored", "^mirrored", definition, "--apply-to", "queues")

    def pids(self) -> list[int]:
        """The Erlang machines, one a node; epmd does nothing after the start."""
        return [
            int((self.folder / f"node{number + 1}.pid").read_text())
            for number in range(len(self.nodes))
        ]

    def down(self) -> None:
        """Stop all, the name server last."""
        for process in reversed(self.running):
            stop(process)
        self.running.clear()

    def version(self) -> str:
        """What is measured."""
        return f"RabbitMQ {self._control(0, 'version').strip()}"

    def _environment(self, number: int) -> dict[str, str]:
        name = f"node{number + 1}"
        configuration = self.folder / f"{name}.conf"
        nodes = "\n".join(
            f"cluster_formation.classic_config.nodes.{at} = {node}"
            for at, node in enumerate(self.nodes, 1)
        )
        configuration.write_text(CONFIGURATION.format(port=self.ports[number], nodes=nodes))
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith("RABBITMQ_")
        }
        return inherited | {
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "environment"),
            "RABBITMQ_CONFIG_FILE": str(configuration),
            "RABBITMQ_DIST_PORT": str(self.distribution[number]),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_LOG_BASE": str(self.folder / name / "log"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / name / "mnesia"),
            "RABBITMQ_NODENAME": self.nodes[number],
            "RABBITMQ_NODE_PORT": str(self.ports[number]),
            "RABBITMQ_PID_FILE": str(self.folder / f"{name}.pid"),
        }

    def _control(self, number: int, *arguments: str) -> str:
        done = subprocess.run(
            [PROGRAMS / "rabbitmqctl", "-q", *arguments],
            env=self._environment(number),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        if done.returncode != 0:
            raise BenchError(
                f"rabbitmqctl {arguments[0]} failed: "
                f"{(done.stderr or done.stdout).strip()[:400]}; see {self.folder}"
            )
        return done.stdout

    def _members(self) -> int:
        status = json.loads(self._control(0, "cluster_status", "--formatter", "json"))
        return len(status["running_nodes"])
