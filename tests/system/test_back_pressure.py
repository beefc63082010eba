"""A sender that is faster than its consumer goes at its pace, and nothing is rejected."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from qpidha.client.blocking import Client
from qpidha.client.message import Message
from tests.system.clients import PATIENCE, connect
from tests.system.cluster import Broker, Cluster, wait_for

pytestmark = pytest.mark.system


@contextmanager
def sending(
    addresses: Sequence[str], queue: str, messages: Sequence[Message]
) -> Iterator[Callable[[], None]]:
    """Send as fast as it goes, in a thread; give what waits until all of it is accepted."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with Client(list(addresses), timeout=PATIENCE) as client:
                sender = client.sender(queue)
                for message in messages:
                    sender.send_nowait(message)
                sender.flush()
        except BaseException as error:  # told in the thread of the test
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def finish() -> None:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "messages without an outcome"
        if failures:
            raise failures[0]

    try:
        yield finish
    finally:
        thread.join(PATIENCE)


def the_queue(broker: Broker, name: str) -> dict[str, Any]:
    (row,) = broker.call("list_queues", name=name)
    found: dict[str, Any] = row
    return found


def test_performance_7_a_sender_goes_at_the_pace_of_its_consumer(
    a_cluster: Callable[..., Cluster],
) -> None:
    primary, _ = a_cluster(2)
    for durable, size in ((False, 100), (True, 10 << 10), (False, 100 << 10), (True, 1 << 20)):
        name, limit, count = f"q{size}", 12 * size, 40
        primary.declare_queue(name, max_size=limit)
        messages = [Message(bytes(size), durable=durable) for _ in range(count)]
        with sending([primary.address], name, messages) as finish, connect(primary) as client:
            wait_for(lambda name=name: the_queue(primary, name)["flow_stopped"], what="the stop")
            with client.receiver(name, credit=1) as receiver:
                for _ in range(count):
                    receiver.receive().accept()
                    assert the_queue(primary, name)["bytes"] <= limit
            finish()
        found = wait_for(
            lambda name=name: the_queue(primary, name), lambda row: row["messages"] == 0
        )
        assert (found["enqueued"], found["flow_stopped"]) == (count, False)


def test_a_sender_that_waits_goes_on_after_a_failover(a_cluster: Callable[..., Cluster]) -> None:
    cluster = a_cluster(2)
    cluster[0].declare_queue("q", max_count=10)
    bodies = list(range(30))
    with sending(cluster.addresses, "q", [Message(body) for body in bodies]) as finish:
        wait_for(lambda: the_queue(cluster[0], "q")["flow_stopped"], what="the stop")
        cluster.kill(0, promote=1)
        wait_for(lambda: the_queue(cluster[1], "q")["waiting_senders"], what="the sender")
        assert the_queue(cluster[1], "q")["flow_stopped"]
        found = set()
        with connect(cluster[1]) as client, client.receiver("q", credit=1) as receiver:
            while len(found) < len(bodies):
                message = receiver.receive()
                found.add(message.body)
                message.accept()
        finish()
    assert found == set(bodies)
