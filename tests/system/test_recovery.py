"""Promotion, recovery and stalled brokers: the original's RecoveryTests and its long failover test.

What one log makes different is said in each test.
"""

from __future__ import annotations

import random
from contextlib import ExitStack

import pytest

from qpidha.client.message import Message
from qpidha.model.errors import RefusedRequest
from tests.system.clients import browse, connect, receive, send, wait_browse
from tests.system.cluster import wait_for
from tests.system.failover_clients import FailoverReceiver, FailoverSender, first_gap

pytestmark = pytest.mark.system


def test_queue_hold(a_cluster):
    """A recovering primary takes messages, but accepts none before all expected backups have them.

    With one log the declaration of the new queue is held as its messages are, so its sender gets
    its link only after recovery. The old primary is not expected, because it was asked and is gone.
    """
    cluster = a_cluster(4, ha_backup_timeout="120")
    cluster[0].declare_queue("q1")
    send(cluster[0], "q1", [str(i) for i in range(1, 11)])
    wait_browse(
        cluster[3], "q1", [str(i) for i in range(1, 11)]
    )  # it knows that these are committed
    for i in (0, 1, 2):
        cluster[i].kill()
    cluster.promote(3)
    assert cluster[3].state == "recovering"

    old = FailoverSender([cluster[3].address], "q1", prefix="new", count=10)
    new = FailoverSender([cluster[3].address], "q2", count=10, create=True)
    with old, new:
        before, arriving = [str(i) for i in range(1, 11)], [f"new{i}" for i in range(1, 11)]
        wait_for(
            lambda: browse(cluster[3], "q1"),
            lambda seen: seen == before + arriving,
            what="q1 on the recovering primary",
        )
        assert old.unsettled == 10
        assert cluster[3].status()["held"] >= 10
        cluster[1].restart()
        wait_browse(cluster[1], "q1", before)
        assert cluster[3].state == "recovering"
        assert old.accepted == new.accepted == []
        assert old.unsettled == 10
        cluster[2].restart()
        cluster[0].restart()
        wait_for(lambda: old.done and new.done, what="whether all messages are accepted")
    wait_browse(cluster[1], "q1", before + arriving)
    wait_browse(cluster[1], "q2", [str(i) for i in range(1, 11)])
    cluster.wait_settled(3)


def test_expected_backup_timeout(a_cluster):
    """An expected backup that does not come is given up after ha-backup-timeout, and nothing is
    accepted before.
    """
    cluster = a_cluster(3, ha_backup_timeout="1")
    cluster[0].declare_queue("q")
    cluster.kill(0)
    cluster.kill(1)
    cluster.promote(2)
    with connect(cluster[2]) as client:
        sender = client.sender("q")
        sent, is_over = sender.send_nowait("x"), False
        while not is_over:
            was_accepted = client.wait(lambda: sent.is_done, 0.05)
            is_over = cluster[2].state == "active"
            assert is_over or not was_accepted
        sender.send("y")
        assert browse(cluster[2], "q") == ["x", "y"]
    assert "recovering" in cluster[2].log.read_text()


def test_join_ready_cluster(a_cluster):
    """A broker that just joined is not promoted past a ready one, unless that one does not
    answer.
    """
    cluster = a_cluster(2)
    cluster.bounce(0)
    with pytest.raises(RefusedRequest) as refused:
        cluster.promote(0)
    assert refused.value.condition == "amqp:not-allowed"
    assert cluster[0].state in ("joining", "catchup")
    cluster[1].stop()
    try:
        cluster.bounce(0)
        cluster.promote(0)
        assert cluster[0].state in ("recovering", "active")
    finally:
        cluster[1].cont()


def test_stalled_backup(a_cluster):
    """A backup that hangs holds the primary up for its heartbeat at most."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    cluster[1].stop()
    try:
        send(cluster[0], "q", ["a", "b"])
        assert receive(cluster[0], "q", 2) == ["a", "b"]
        assert cluster[0].state == "active"
        cluster[2].wait_state("ready")
    finally:
        cluster[1].cont()
    cluster.wait_settled(0)


def test_a_stopped_backup_takes_what_waits_for_it_however_much_more_than_max_output_buffer(
    a_cluster,
):
    """The limit is for clients: cut off for what it is owed, a backup would come back, be owed the
    same, and never be ready.
    """
    cluster = a_cluster(2, max_output_buffer="1M", ha_min_in_sync="2", link_heartbeat_interval="5")
    cluster[0].declare_queue("q", max_size=0)
    with connect(cluster[0]) as client:
        sender = client.sender("q")
        cluster[1].stop()
        try:
            deliveries = [
                sender.send_nowait(Message(b"x" * 1_000_000, durable=True)) for _ in range(30)
            ]
            assert client.wait(lambda: cluster[0].call("list_queues")[0]["messages"] == 30)
            assert not any(delivery.is_done for delivery in deliveries)
        finally:
            cluster[1].cont()
        sender.flush()
        cluster.wait_settled(0)
    assert "does not read" not in cluster[0].log.read_text()


def test_a_new_backup_gets_messages_larger_than_max_output_buffer(a_cluster):
    """Its snapshot is sent in parts, and one part may be one message."""
    cluster = a_cluster(2, max_output_buffer="1M", log_memory="1M", data_dir=None)
    cluster[1].kill()
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["x" * 8_000_000] * 4)
    cluster[1].restart()
    cluster[1].wait_state("ready")
    assert "does not read" not in cluster[0].log.read_text()


def test_failover_send_receive(a_cluster):
    """Ten numbered senders and receivers see no gap over three random bounces of a broker; a short
    version.
    """
    cluster = a_cluster(3)
    choices = random.Random(20131108)
    primary = 0
    names = [f"q{i}" for i in range(10)]
    for name in names:
        cluster[0].declare_queue(name)
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(FailoverSender(cluster.addresses, name, rate=1, window=20))
        receivers = [
            stack.enter_context(FailoverReceiver(cluster.addresses, name)) for name in names
        ]

        def checkpoint() -> None:
            for receiver in receivers:
                goal = max(receiver.numbers(), default=0) + 10
                receiver.wait_received(
                    lambda _, receiver=receiver, goal=goal: (
                        max(receiver.numbers(), default=0) >= goal
                    )
                )

        checkpoint()
        for victim in (0, choices.randrange(3), choices.randrange(3)):
            if victim == primary:
                primary = (primary + 1) % 3
                cluster.bounce(victim, promote=primary)
            else:
                cluster.bounce(victim)
            checkpoint()
            cluster.wait_settled(primary)
            checkpoint()
    for receiver in receivers:
        assert first_gap(receiver.numbers()) == 0
    assert all(broker.is_running for broker in cluster)
