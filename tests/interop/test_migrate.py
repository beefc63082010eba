"""`qpid-ha migrate` from a real RabbitMQ and from a cluster: killed, gone on with, and counted.

QPIDHA_MIGRATE_MESSAGES says how many messages there are (make migrate: 100,000).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qpidha.client.aio import Client
from qpidha.client.message import Message
from qpidha.model.encoding import Symbol
from tests.interop.rabbitmq import IS_INSTALLED, RabbitMQ, running
from tests.patience import LONG_TEST, STATE
from tests.system.cluster import Cluster, wait_for

MESSAGES = int(os.environ.get("QPIDHA_MIGRATE_MESSAGES", "6000"))
LONG = LONG_TEST + MESSAGES / 100
QUEUES: list[tuple[str, dict[str, Any]]] = [
    ("orders", {}),
    ("plain", {}),
    ("by_priority", {"x-max-priority": 9}),
    ("quorum", {"x-queue-type": "quorum"}),
    ("odd name%d+e", {}),
]
DEFINITIONS: dict[str, Any] = {
    "vhosts": [{"name": "/"}],
    "policies": [],
    "parameters": [],
    "exchanges": [],
    "bindings": [],
    "queues": [
        {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": arguments}
        for name, arguments in QUEUES
    ],
}
needs_rabbitmq = pytest.mark.skipif(not IS_INSTALLED, reason="no RabbitMQ is installed")


@pytest.fixture
def rabbitmq(tmp_path: Path) -> Iterator[RabbitMQ]:
    folder = tmp_path / "rabbitmq"
    folder.mkdir()
    with running(folder, DEFINITIONS, "rabbitmq_amqp1_0,rabbitmq_management") as node:
        (folder / "password").write_text("guest\n")
        yield node


def message(number: int, *, has_id: bool = True) -> Message:
    return Message(
        f"content {number}".encode(),
        durable=True,
        priority=number % 10,
        ttl=86_400.0,
        message_id=f"id-{number}" if has_id else None,
        correlation_id="them",
        content_type="text/plain",
        application_properties={"number": number, "shop": "north"},
        message_annotations={"x-opt-mark": "kept"},
    )


def fill(where: Any, address: str, count: int, *, has_id: bool = True, **login: Any) -> None:
    async def send() -> None:
        async with Client(where, timeout=STATE, **login) as client:
            sender = await client.sender(address)
            for number in range(count):
                await sender.send_nowait(message(number, has_id=has_id))
            await sender.flush()

    asyncio.run(send())


def taken(where: Any, queue: str) -> list[Message]:
    """Take everything off a queue."""

    async def take() -> list[Message]:
        found: list[Message] = []
        async with Client(where, timeout=STATE) as client:
            receiver = await client.receiver(queue, credit=1000)
            async for one in receiver.until_empty():
                found.append(Message.decode(one.encode()))
                one.accept()
        return found

    return asyncio.run(take())


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "qpidha.cli.main", "migrate", *map(str, words)]


def migrate(*words: object) -> tuple[int, dict[str, dict[str, Any]], str]:
    done = subprocess.run(
        [*command(*words), "-o", "json"], capture_output=True, text=True, timeout=LONG, check=False
    )
    rows = json.loads(done.stdout)["queues"] if done.stdout else []
    return done.returncode, {row["queue"]: row for row in rows}, done.stderr


def killed_when(condition: Callable[[], bool], *words: object) -> None:
    """Begin a migration, and kill it when something is so."""
    process = subprocess.Popen(
        command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        end = time.monotonic() + LONG
        while not condition():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < end
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def depth(cluster: Cluster, queue: str, primary: int = 0) -> int:
    found = cluster[primary].call("list_queues", name=queue)
    return int(found[0]["messages"]) if found else 0


def source_of(node: RabbitMQ) -> list[object]:
    folder = node.folder
    return [
        *(f"amqp://guest@{node.address}", "--from-password-file", folder / "password"),
        *("--from-sasl-mechanism", "PLAIN"),
    ]


GUEST: dict[str, Any] = {"user": "guest", "password": "guest", "mechanism": "PLAIN"}


@needs_rabbitmq
@pytest.mark.timeout(2 * LONG)
def test_line_3_of_issue_18_a_queue_of_rabbitmq_moves_though_it_is_killed(
    rabbitmq: RabbitMQ, a_cluster: Callable[..., Cluster]
) -> None:
    fill(rabbitmq.address, "/amq/queue/orders", MESSAGES, **GUEST)
    assert rabbitmq.depths()["orders"] == MESSAGES
    cluster = a_cluster(3)
    to = ["-b", ",".join(cluster.addresses)]
    words = [*source_of(rabbitmq), "orders", "--from-management", rabbitmq.management, *to]
    code, rows, _ = migrate(*words, "--dry-run")
    assert code == 1 and not rows["orders"]["exists"]  # It is not there yet.
    assert depth(cluster, "orders") == 0
    killed_when(lambda: depth(cluster, "orders") > MESSAGES // 4, *words)
    killed_when(lambda: depth(cluster, "orders") > MESSAGES // 2, *words)
    assert rabbitmq.depths()["orders"] > 0
    began = time.monotonic()
    code, rows, log = migrate(*words)
    took = time.monotonic() - began
    row = rows["orders"]
    print(f"\n{row['moved']} messages in {took:.1f} s; {row}")
    assert code == 0, log
    assert row["perhaps_twice"] == 0 and row["refused"] == 0 and row["source_after"] == 0
    assert row["moved_in_all"] == row["target_after"] == MESSAGES
    wait_for(lambda: rabbitmq.depths()["orders"], (0).__eq__, what="what is settled at the source")
    found = taken(cluster.addresses, "orders")
    assert [one.application_properties["number"] for one in found] == list(range(MESSAGES))
    first = found[7]
    assert first.body == b"content 7" and first.properties == message(7).properties
    assert first.header.durable and first.header.priority == 7 and first.header.ttl == 86_400.0
    assert first.application_properties == {"number": 7, "shop": "north"}
    assert first.message_annotations[Symbol("x-opt-mark")] == "kept"
    names = cluster[0].queue_names()
    assert [name for name in names if name.startswith("migration.")] == []


@needs_rabbitmq
@pytest.mark.timeout(LONG)
def test_messages_without_an_id_are_twice_rather_than_lost(
    rabbitmq: RabbitMQ, a_cluster: Callable[..., Cluster]
) -> None:
    count = min(MESSAGES, 4000)
    fill(rabbitmq.address, "/amq/queue/plain", count, has_id=False, **GUEST)
    cluster = a_cluster(1)
    words = [*source_of(rabbitmq), "plain", "--declare", "-b", cluster[0].address]
    killed_when(lambda: depth(cluster, "plain") > count // 4, *words)
    code, rows, log = migrate(*words)
    row = rows["plain"]
    assert code == 0, log
    assert row["source_before"] is None and row["source_after"] == 0
    found = taken(cluster[0].address, "plain")
    numbers = [one.application_properties["number"] for one in found]
    assert set(numbers) == set(range(count))
    assert len(numbers) - count <= row["perhaps_twice"]
    assert row["moved_in_all"] == len(numbers)


@needs_rabbitmq
@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("queue", ["by_priority", "quorum"])
def test_queues_of_other_kinds_move_once_though_it_is_killed(
    rabbitmq: RabbitMQ, a_cluster: Callable[..., Cluster], queue: str
) -> None:
    count = min(MESSAGES, 4000)
    fill(rabbitmq.address, f"/amq/queue/{queue}", count, **GUEST)
    cluster = a_cluster(1)
    words = [*source_of(rabbitmq), queue, "-b", cluster[0].address, "--declare"]
    killed_when(lambda: depth(cluster, queue) > count // 4, *words)
    code, rows, log = migrate(*words)
    assert code == 0 and rows[queue]["perhaps_twice"] == 0, (rows, log)
    numbers = [one.application_properties["number"] for one in taken(cluster[0].address, queue)]
    assert sorted(numbers) == list(range(count))
    if queue == "quorum":
        assert numbers == list(range(count))


@needs_rabbitmq
@pytest.mark.timeout(LONG)
def test_all_queues_of_rabbitmq_move_as_it_has_them(
    rabbitmq: RabbitMQ, a_cluster: Callable[..., Cluster]
) -> None:
    for name, _ in QUEUES:
        fill(rabbitmq.address, f"/amq/queue/{name}", 300, **GUEST)
    cluster = a_cluster(1)
    http = ["--from-management", rabbitmq.management]
    code, rows, log = migrate(*source_of(rabbitmq), *http, "-b", cluster[0].address)
    assert code == 0, log
    assert {name: row["target_after"] for name, row in rows.items()} == {
        name: 300 for name, _ in QUEUES
    }
    declared = cluster[0].call("list_queues", name="by_priority")[0]
    assert declared["durable"] and declared["arguments"]["x-max-priority"] == 9


@needs_rabbitmq
@pytest.mark.timeout(LONG)
def test_what_rabbitmq_does_not_have_is_told_before_anything_is_created(
    rabbitmq: RabbitMQ, a_cluster: Callable[..., Cluster]
) -> None:
    cluster = a_cluster(1)
    to = ["--declare", "-b", cluster[0].address]
    code, rows, log = migrate(*source_of(rabbitmq), "missing", *to)
    assert code == 1 and not rows and "no queue 'missing'" in log, log
    assert "does the source have this queue" in log
    http = ["--from-management", rabbitmq.management]
    code, rows, log = migrate(*source_of(rabbitmq), *http, "missing", *to)
    assert code == 1 and not rows and "the source has no queue missing" in log
    assert cluster[0].queue_names() == []


@needs_rabbitmq
@pytest.mark.timeout(LONG)
def test_a_queue_of_a_subscriber_of_rabbitmq_holds_up_no_other(
    rabbitmq: RabbitMQ, a_cluster: Callable[..., Cluster]
) -> None:
    fill(rabbitmq.address, "/amq/queue/orders", 300, **GUEST)
    cluster = a_cluster(1)
    words = ["--from-management", rabbitmq.management, "-b", cluster[0].address]

    async def subscribed() -> tuple[int, dict[str, dict[str, Any]], str]:
        async with Client(rabbitmq.address, timeout=STATE, **GUEST) as client:
            await client.receiver("/exchange/amq.topic/news")
            return await asyncio.to_thread(migrate, *source_of(rabbitmq), *words)

    code, rows, log = asyncio.run(subscribed())
    assert code == 0 and rows["orders"]["target_after"] == 300, log
    assert "amq.gen-" in log and ": not moved, as it was made for one connection" in log


@pytest.mark.timeout(LONG)
def test_a_cluster_moves_to_another_one_while_both_fail_over(
    a_cluster: Callable[..., Cluster],
) -> None:
    old, new = a_cluster(2, ha_safety="trust-manager"), a_cluster(2, ha_safety="trust-manager")
    old[0].call("declare_queue", name="orders", durable=True)
    fill(old.addresses, "orders", MESSAGES)
    words = [",".join(old.addresses), "-b", ",".join(new.addresses), "--timeout", "60"]
    process = subprocess.Popen(
        [*command(*words), "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: depth(new, "orders") > MESSAGES // 5, what="the beginning")
    new.kill(0, promote=1)
    wait_for(lambda: depth(new, "orders", 1) > MESSAGES // 2, what="the middle")
    old.kill(0, promote=1)
    out, log = process.communicate(timeout=LONG)
    assert process.returncode == 0, log
    (row,) = json.loads(out)["queues"]
    assert row["perhaps_twice"] == 0 and row["moved"] == MESSAGES == row["target_after"], row
    found = taken(new.addresses, "orders")
    assert [one.application_properties["number"] for one in found] == list(range(MESSAGES))
