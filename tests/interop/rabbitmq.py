"""A real RabbitMQ of one node on loopback, where one is installed: with a name, ports and a folder
of its own, and with the plugins that a test asks for.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.patience import LONG_TEST, STATE
from tests.system.cluster import held_ports, wait_for

PROGRAMS = Path("/usr/lib/rabbitmq/bin")
"""The scripts themselves: those on the PATH change the user and the folder."""
EPMD = shutil.which("epmd")
IS_INSTALLED = (PROGRAMS / "rabbitmq-server").exists() and EPMD is not None


class RabbitMQ:
    """A node that runs."""

    def __init__(self, folder: Path, environment: dict[str, str], amqp: int, http: int) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{amqp}"
        self.management = f"http://guest@127.0.0.1:{http}"
        self._environment = environment

    def control(self, *arguments: str) -> str:
        """Have rabbitmqctl do something; return what it prints."""
        done = subprocess.run(
            [PROGRAMS / "rabbitmqctl", "-q", *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STATE,
            check=False,
        )
        assert done.returncode == 0, done.stderr or done.stdout
        return done.stdout

    def depths(self) -> dict[str, int]:
        """Count the messages of each queue, those in the hands of a consumer among them."""
        text = self.control("list_queues", "--no-table-headers", "name", "messages")
        return {
            name: int(count) for name, count in (line.split("\t") for line in text.splitlines())
        }


@contextmanager
def running(
    folder: Path, definitions: Mapping[str, Any] | None = None, plugins: str = ""
) -> Iterator[RabbitMQ]:
    """Run a node for a while."""
    with held_ports(4) as ports, _running(folder, ports, definitions, plugins) as node:
        yield node


@contextmanager
def _running(
    folder: Path, ports: list[int], definitions: Mapping[str, Any] | None, plugins: str
) -> Iterator[RabbitMQ]:
    amqp, http, distribution, mapper = ports
    lines = [f"management.tcp.port = {http}", "management.tcp.ip = 127.0.0.1"]
    if "rabbitmq_management" not in plugins:
        lines = []
    (folder / "rabbitmq.conf").write_text("\n".join([*lines, ""]))
    (folder / "plugins").write_text(f"[{plugins}].")
    environment = {
        **os.environ,
        "HOME": str(folder),
        "RABBITMQ_NODENAME": "qpidha@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(amqp),
        "RABBITMQ_DIST_PORT": str(distribution),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_MNESIA_BASE": f"{folder}/data",
        "RABBITMQ_LOG_BASE": f"{folder}/log",
        "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
        "RABBITMQ_CONF_ENV_FILE": f"{folder}/none",
    }
    log = folder / "output"
    assert EPMD is not None
    with log.open("w") as output:
        names = subprocess.Popen(
            [EPMD, "-port", str(mapper)], env=environment, stdout=output, stderr=output
        )
        server = subprocess.Popen(
            [PROGRAMS / "rabbitmq-server"], env=environment, stdout=output, stderr=output
        )
    try:
        wait_for(lambda: "completed with" in log.read_text(), what="RabbitMQ to start")
        node = RabbitMQ(folder, environment, amqp, http)
        if definitions is not None:
            (folder / "given.json").write_text(json.dumps(definitions))
            node.control("import_definitions", f"{folder}/given.json")
        yield node
    finally:
        for process in (server, names):
            process.terminate()
            process.wait(LONG_TEST)
