"""Queues that come and go: the original's LongTests about their events and their number."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from qpidha.client.errors import LinkError
from qpidha.model.errors import RefusedRequest
from qpidha.pipeline.segments import Reader
from tests.system.clients import connect
from tests.system.cluster import Admin, Broker, wait_for

pytestmark = pytest.mark.system

ROUNDS = 15
MOST = 100


def come_and_go(broker: Broker) -> int:
    """Declare an auto-delete queue that another client declares as well, and leave it; return how
    often it was made for this client.
    """
    made = 0
    with Admin(broker.admin_socket) as admin:
        for _ in range(ROUNDS):
            made += admin.call("declare_queue", name="q", auto_delete=True)["created"]
            with connect(broker) as client:
                try:
                    client.receiver("q")
                except LinkError as error:  # It went with the other client.
                    assert error.condition in ("amqp:not-found", "amqp:resource-deleted")
    return made


def fates(broker: Broker) -> list[str]:
    """What the event log says of the queue."""
    said = (event for event in Reader([broker.data_dir / "events"]) if event.get("q") == "q")
    return [event["f"] for event in said if event["k"] == "queue" and event["f"] != "stat"]


def fill(broker: Broker) -> RefusedRequest:
    """Declare queues until that is refused."""
    with Admin(broker.admin_socket) as admin, pytest.raises(RefusedRequest) as refusal:
        for number in range(MOST + 1):
            admin.call("declare_queue", name=f"many{number}")
    return refusal.value


def test_qpid_37_38_events_of_queues_are_in_order_and_the_limit_is_kept(a_cluster):
    """test_qmf_order and test_max_queues, on one cluster. An event says that a queue was created,
    or deleted; a declaration of one that is there is no event.
    """
    primary, backup = a_cluster(2, journal_events="state", max_queues=MOST)
    with ThreadPoolExecutor(2) as pool:
        made = sum(pool.map(come_and_go, (primary, primary)))
    wait_for(
        lambda: fates(primary),
        lambda found: found == ["created", "deleted"] * made,
        what=f"the events of {made} queues",
    )
    refusal = fill(primary)
    assert refusal.condition == "amqp:resource-limit-exceeded" and "max-queues" in refusal.hint
    assert (len(primary.queue_names()), primary.state) == (MOST, "active")
    wait_for(backup.queue_names, primary.queue_names().__eq__, what="the queues of the backup")
    backup.wait_state("ready")
    primary.delete_queue("many0")
    primary.declare_queue("another")
    assert fill(primary).condition == refusal.condition
