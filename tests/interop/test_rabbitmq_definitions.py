"""Definitions that a real RabbitMQ writes are read, where one is installed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from qpidha.tools.definitions import Outcome, Present, carry_out, planned
from qpidha.tools.foreign import Verdict
from qpidha.tools.rabbitmq_definitions import read
from tests.patience import STATE
from tests.system.cluster import wait_for
from tests.tools.test_definitions import Broker

PROGRAMS = Path("/usr/lib/rabbitmq/bin")
EPMD = shutil.which("epmd")
GIVEN = {
    "vhosts": [{"name": "/"}],
    "users": [],
    "permissions": [],
    "parameters": [
        {
            "component": "operator_policy",
            "name": "cap",
            "vhost": "/",
            "value": {
                "pattern": ".*",
                "definition": {"max-length": 9000},
                "apply-to": "queues",
                "priority": 0,
            },
        }
    ],
    "policies": [
        {
            "vhost": "/",
            "name": "ha",
            "pattern": "^o",
            "apply-to": "queues",
            "definition": {"ha-mode": "exactly", "ha-params": 2},
            "priority": 3,
        }
    ],
    "exchanges": [
        {
            "name": "events",
            "vhost": "/",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"alternate-exchange": "lost"},
        },
        {
            "name": "lost",
            "vhost": "/",
            "type": "fanout",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        },
    ],
    "queues": [
        {
            "name": "orders",
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-max-length": 100, "x-dead-letter-exchange": "lost"},
        },
        {
            "name": "quorum",
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "quorum"},
        },
        {
            "name": "stream",
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "stream"},
        },
    ],
    "bindings": [
        {
            "source": "events",
            "vhost": "/",
            "destination": "orders",
            "destination_type": "queue",
            "routing_key": "order.#",
            "arguments": {},
        },
        {
            "source": "events",
            "vhost": "/",
            "destination": "lost",
            "destination_type": "exchange",
            "routing_key": "#",
            "arguments": {},
        },
    ],
}


def free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.fixture
def export() -> Iterator[str]:
    """What a RabbitMQ exports that has been given the definitions above."""
    amqp, distribution, mapper = free_ports(3)
    with tempfile.TemporaryDirectory(prefix="qpidha-rabbitmq-") as path:
        folder = Path(path)
        (folder / "given.json").write_text(json.dumps(GIVEN))
        (folder / "rabbitmq.conf").write_text(f"load_definitions = {folder}/given.json\n")
        (folder / "plugins").write_text("[].")
        environment = {
            **os.environ,
            "HOME": path,
            "RABBITMQ_NODENAME": "qpidha@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(amqp),
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": f"{path}/data",
            "RABBITMQ_LOG_BASE": f"{path}/log",
            "RABBITMQ_CONFIG_FILE": f"{path}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{path}/plugins",
            "RABBITMQ_CONF_ENV_FILE": f"{path}/none",
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
            subprocess.run(
                [PROGRAMS / "rabbitmqctl", "-q", "export_definitions", f"{path}/export.json"],
                env=environment,
                check=True,
                timeout=STATE,
            )
            yield (folder / "export.json").read_text()
        finally:
            for process in (server, names):
                process.terminate()
                process.wait(STATE)


@pytest.mark.skipif(
    not (PROGRAMS / "rabbitmq-server").exists() or EPMD is None, reason="no RabbitMQ is installed"
)
def test_row_164_what_a_real_rabbitmq_exports_is_brought_in(export: str) -> None:
    found = read(export)
    broker = Broker()
    steps = planned(found.definitions, Present.ask(broker.call))
    carry_out(steps, broker.call)
    assert {step.definition.title: step.outcome for step in steps} == dict.fromkeys(
        (
            "exchange lost",
            "exchange events",
            "queue orders",
            "queue quorum",
            "binding events -> exchange lost '#'",
            "binding events -> orders 'order.#'",
            "policy ha",
            "operator policy cap",
        ),
        Outcome.CREATED,
    )
    left = [note.of for note in found.notes if note.verdict is Verdict.LEFT_OUT]
    assert left == ["queue stream"]
