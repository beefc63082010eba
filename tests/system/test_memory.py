"""A broker with little memory: what does not fit is on disk, or senders wait; and it starts
again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qpidha.client.message import Message
from tests.system.clients import connect, receive
from tests.system.cluster import Broker, Cluster, wait_for
from tests.system.test_back_pressure import sending, the_queue
from tests.system.test_store import declare

pytestmark = pytest.mark.system
MEGABYTE = 1 << 20
BODY = bytes(100_000)


def resident(broker: Broker) -> int:
    """Return the bytes of memory that a broker has for itself."""
    assert broker.process is not None
    lines = Path(f"/proc/{broker.process.pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["RssAnon"].split()[0]) << 10


def memory(broker: Broker) -> dict[str, Any]:
    found: dict[str, Any] = broker.call("status")["memory"]
    return found


def test_faults_b3_what_does_not_fit_into_memory_is_on_disk_and_a_start_keeps_to_the_limit(
    a_cluster: Callable[..., Cluster],
) -> None:
    """Four times the limit, with queues that may have all of it, on a primary and its backup."""
    cluster = a_cluster(2, memory_limit="16M", log_enable="notice+")
    names = [f"q{number}" for number in range(4)]
    before = [resident(broker) for broker in cluster]
    for name in names:
        declare(cluster[0], name)
        messages = [Message(BODY, durable=True) for _ in range(160)]
        with sending([cluster[0].address], name, messages) as finish:
            finish()
    for broker, size in zip(cluster, before, strict=True):
        found = wait_for(
            lambda broker=broker: memory(broker), lambda found: found["used"] <= found["limit"]
        )
        assert found["limit"] == 16 * MEGABYTE and found["bodies"] > 0
        assert resident(broker) < size + 80 * MEGABYTE, found
    cluster[1].kill()
    cluster[1].restart()
    cluster.wait_settled(0)
    assert memory(cluster[1])["used"] <= 16 * MEGABYTE
    cluster.kill(0, promote=1)
    for name in names:
        assert the_queue(cluster[1], name)["messages"] == 160
    assert set(receive(cluster[1], "q3", 160)) == {BODY}


def test_faults_b3_where_nothing_can_be_on_disk_senders_wait_and_hear_why(
    a_cluster: Callable[..., Cluster],
) -> None:
    broker = a_cluster(
        1,
        promote=False,
        ha_cluster="no",
        ha_brokers_url=None,
        data_dir=None,
        memory_limit="16M",
        log_enable="notice+",
    )[0]
    broker.declare_queue("q", max_size=0)
    with sending([broker.address], "q", [Message(BODY) for _ in range(300)]) as finish:
        why = wait_for(lambda: broker.call("explain")["withholds"], bool, what="the reason")
        assert "memory-limit is 16.8 MB" in why and "bodies" in why
        assert memory(broker)["used"] < 21 * MEGABYTE
        with connect(broker) as client, client.receiver("q", credit=10) as receiver:
            for _ in range(300):
                receiver.receive().accept()
        finish()
    assert broker.call("explain")["withholds"] == ""
    assert "senders get no credit" in broker.log.read_text()
