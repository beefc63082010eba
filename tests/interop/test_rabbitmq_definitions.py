"""Definitions that a real RabbitMQ writes are read, where one is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qpidha.tools.definitions import Outcome, Present, carry_out, planned
from qpidha.tools.foreign import Verdict
from qpidha.tools.rabbitmq_definitions import read
from tests.interop.rabbitmq import IS_INSTALLED, running
from tests.tools.test_definitions import Broker

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


@pytest.fixture
def export(tmp_path: Path) -> Iterator[str]:
    """What a RabbitMQ exports that has been given the definitions above."""
    with running(tmp_path, GIVEN) as node:
        node.control("export_definitions", f"{tmp_path}/export.json")
        yield (tmp_path / "export.json").read_text()


@pytest.mark.skipif(not IS_INSTALLED, reason="no RabbitMQ is installed")
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
