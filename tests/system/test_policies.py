"""Policies on real brokers: of a file, changed under load, and the same after a kill."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from qpidha.client.message import Message
from tests.system.clients import browse, connect
from tests.system.cluster import wait_for
from tests.system.failover_clients import FailoverSender

pytestmark = pytest.mark.system


def test_rows_8_17_policies_change_under_load_and_are_the_same_after_a_failover(
    a_cluster, tmp_path
):
    path = tmp_path / "policies.json"
    preset = {"name": "preset", "pattern": "^q$", "definition": {"max-length": 100_000}}
    path.write_text(json.dumps({"policies": [preset]}))
    cluster = a_cluster(3, ha_replicate="none", policy_file=path)
    primary, heir = cluster[0], cluster[1]
    wait_for(
        lambda: [row["name"] for row in primary.call("list_policies")],
        lambda names: names == ["preset"],
        what="the policies of the file",
    )
    primary.declare_queue("q")

    def set_policy(**definition):
        primary.call("set_policy", name="p", pattern="^q$", definition=definition, merge=True)
        return {row["name"]: row for row in primary.call("list_queues")}["q"]

    with FailoverSender(cluster.addresses, "q") as sender:
        sender.wait_accepted(50)
        assert set_policy(replicate="all", memory=1000)["replicate"] == "all"
        sender.wait_accepted(20)
        assert set_policy(replicate="none")["replicate"] == "none"
        wait_for(heir.queue_names, lambda names: "q" not in names, what="the backup's queues")
        sender.wait_accepted(20)
        assert set_policy(replicate="configuration")["replicate"] == "configuration"
        sender.wait_accepted(20)
        assert set_policy(replicate="all", overflow="reject-publish")["replicate"] == "all"
        sender.wait_accepted(20)
        assert (sender.refused, sender.losses) == ([], []), "no sender notices"
        policies, shown = primary.call("list_policies"), primary.call("explain_policies", queue="q")
        cluster.kill(0, promote=1)
        sender.wait_accepted(20)
    assert heir.call("list_policies") == policies
    assert heir.call("explain_policies", queue="q") == shown
    heir.call("set_policy", name="later", pattern="^later", definition={"replicate": "all"})
    heir.declare_queue("later")
    row = {row["name"]: row for row in heir.call("list_queues")}["later"]
    assert (row["policy"], row["replicate"]) == ("later", "all")
    assert not sender.missing(browse(heir, "q"))


def test_row_8_quick_changes_of_policies_break_no_queue_that_comes_and_goes(a_cluster):
    cluster = a_cluster(3)
    primary = cluster[0]
    primary.wait_enabled()
    is_over = threading.Event()

    def change() -> int:
        rounds = 0
        while not is_over.is_set():
            definition = {"max-length": rounds % 5 + 1, "overflow": "reject-publish", "ttl": 10**6}
            primary.call("set_policy", name="p", pattern="^q", definition=definition)
            primary.call("set_policy", name="p", pattern="^q", definition={"delivery-limit": 3})
            primary.call("clear_policy", name="p")
            rounds += 1
        return rounds

    with ThreadPoolExecutor(1) as pool, connect(primary) as client:
        changes = pool.submit(change)
        try:
            for number in range(100):
                name = f"q{number}"
                primary.declare_queue(name)
                client.sender(name).send(name)
                receiver = client.receiver(name)
                message = receiver.receive()
                assert message.body == name
                message.accept()
                receiver.close()
                primary.delete_queue(name)
        finally:
            is_over.set()
        assert changes.result() > 10
    assert primary.call("list_policies") == []
    for broker in cluster:
        wait_for(broker.queue_names, [].__eq__, what="the queues that are left")


def test_row_7_what_became_replicated_survives_the_loss_of_all_brokers(a_cluster):
    cluster = a_cluster(3, ha_replicate="none", queue_memory="2000")
    primary = cluster[0]
    primary.wait_enabled()
    bodies = {queue: [f"{queue} {number}" for number in range(500)] for queue in ("q1", "q2")}
    with connect(primary) as client:
        for queue, texts in bodies.items():
            primary.call("declare_queue", name=queue, durable=True)
            sender = client.sender(queue, window=500)
            for text in texts:
                sender.send_nowait(Message(text, durable=True))
            sender.flush()
        level = {"replicate": "all"}
        primary.call("set_policy", name="p", pattern="^q", definition=level)
        for queue, texts in bodies.items():
            client.sender(queue).send(Message("more", durable=True))
            texts.append("more")
    for broker in cluster:
        broker.kill()
    for broker in cluster:
        broker.start()
    for broker in cluster:
        broker.wait_up()
    cluster[1].promote()
    cluster.wait_settled(1)
    for queue, texts in bodies.items():
        assert browse(cluster[1], queue) == texts


def test_row_4_an_exchange_follows_its_policy_after_the_loss_of_one_and_of_all_brokers(
    a_cluster, tmp_path
):
    path = tmp_path / "policies.json"
    preset = {
        "name": "lost",
        "pattern": "^e",
        "definition": {"alternate-exchange": "unsent"},
        "apply_to": "exchanges",
    }
    path.write_text(json.dumps({"policies": [preset]}))
    cluster = a_cluster(3, policy_file=path)
    first, second = cluster[0], cluster[1]
    wait_for(
        lambda: [row["name"] for row in first.call("list_policies")],
        lambda names: names == ["lost"],
        what="the policies of the file",
    )
    for name in ("e", "unsent", "audit"):
        first.call("declare_exchange", name=name, type="fanout", durable=True)
    for name in ("unsent", "audit"):
        first.call("declare_queue", name=name, durable=True)
        first.call("bind", exchange=name, queue=name)

    def publish(broker, text):
        with connect(broker) as client:
            client.sender("e").send(Message(text, durable=True))

    publish(first, "file")
    cap = {"alternate-exchange": "audit"}
    first.call("set_operator_policy", name="cap", pattern="^e$", definition=cap)
    publish(first, "operator")
    shown = first.call("explain_policies", exchange="e")
    for broker in cluster:
        wait_for(
            lambda broker=broker: broker.call("explain_policies", exchange="e"),
            lambda told: told == shown,
            what="what every broker says of the exchange",
        )
    cluster.kill(0, promote=1)
    publish(second, "failover")
    second.call("clear_operator_policy", name="cap")
    publish(second, "cleared")
    for broker in cluster:
        if broker is not first:
            broker.kill()
    for broker in cluster:
        broker.start()
    for broker in cluster:
        broker.wait_up()
    second.promote()
    cluster.wait_settled(1)
    publish(second, "restart")
    assert browse(second, "unsent") == ["file", "cleared", "restart"]
    assert browse(second, "audit") == ["operator", "failover"]
