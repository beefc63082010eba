"""Limits on real brokers: exact however many send, and one outcome for each send.

`SENDS=100000 python -m pytest tests/system/test_limits.py` plays as many as the guides of RabbitMQ
have tests for.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from qpidha.client.errors import NotAccepted
from tests.system.clients import send, wait_browse
from tests.system.cluster import Broker, Cluster, wait_for
from tests.system.failover_clients import FailoverReceiver, FailoverSender

pytestmark = pytest.mark.system

SENDS = int(os.environ.get("SENDS", "4000"))
LIMIT, SENDERS, WINDOW = 12, 8, 25


def declare(primary: Broker, name: str, limit: int) -> None:
    """Make a queue that never has its senders wait, and tells when it has more than `LIMIT`."""
    primary.call(
        "declare_queue",
        name=name,
        arguments={
            "x-max-length": limit,
            "x-overflow": "reject-publish",
            "qpid.flow_stop_count": 0,
            "qpid.alert_count": LIMIT + 1,
            "qpid.alert_repeat_gap": 0,
        },
    )


def alerts(cluster: Cluster) -> list[str]:
    """Of which queues a broker has told that they were deeper than `LIMIT`."""
    found = []
    for _, text in cluster.logs(1 << 30):
        found += re.findall(r"queue (\w+) has come to \d+ messages", text)
    return found


def play(
    cluster: Cluster, queue: str, count: int, meanwhile: Callable[[list[FailoverSender]], None]
) -> tuple[Counter[str], Counter[str], int]:
    """Send so many messages from eight senders to a queue with a consumer; return what was
    accepted, what was received, and how many were refused.
    """
    with ExitStack() as stack:
        receiver = stack.enter_context(FailoverReceiver(cluster.addresses, queue))
        senders = [
            stack.enter_context(
                FailoverSender(
                    cluster.addresses,
                    queue,
                    prefix=f"{number}:",
                    count=count // SENDERS,
                    window=WINDOW,
                    rate=WINDOW,
                )
            )
            for number in range(SENDERS)
        ]
        meanwhile(senders)
        for sender in senders:
            sender.wait(
                lambda sender=sender: len(sender.accepted) + len(sender.refused),
                count // SENDERS,
                "outcomes",
            )
        accepted = Counter(body for sender in senders for body in sender.bodies())
        receiver.wait_received(lambda received: accepted.keys() <= set(received))
        for sender in senders:
            numbers = sorted([*sender.accepted, *(number for number, _ in sender.refused)])
            assert numbers == list(range(1, count // SENDERS + 1)), "each has one outcome"
            assert {state for _, state in sender.refused} <= {"rejected"}
    return accepted, Counter(receiver.received), sum(len(sender.refused) for sender in senders)


def test_t_l5_row_106_a_queue_of_twelve_with_eight_senders_is_never_over_it(a_cluster):
    cluster = a_cluster(3, log_enable="notice+")
    cluster[0].wait_enabled()
    declare(cluster[0], "q", LIMIT)
    accepted, received, refused = play(cluster, "q", SENDS // 2, lambda senders: None)
    assert received == accepted, "each once"
    assert refused > 0

    def kill(senders: list[FailoverSender]) -> None:
        for sender in senders:
            sender.wait(lambda sender=sender: sender.sent, SENDS // SENDERS // 4, "messages sent")
        cluster.bounce(0, promote=1)
        cluster.wait_settled(1)

    accepted, received, refused = play(cluster, "q", SENDS // 2, kill)
    assert refused > 0
    assert accepted.keys() <= received.keys()
    assert alerts(cluster) == []

    declare(cluster[1], "deeper", LIMIT + 1)
    send(cluster[1], "deeper", range(LIMIT + 1))
    wait_for(lambda: alerts(cluster), ["deeper"].__eq__, what="the alert of one that is deeper")


def test_t_l7_row_7_a_policy_rejects_what_a_sender_with_credit_sends_until_it_is_cleared(a_cluster):
    cluster = a_cluster(3)
    cluster[0].wait_enabled()
    cluster[0].call("declare_queue", name="q", arguments={"x-queue-type": "quorum"}, durable=True)
    limit = {"max-length": 2, "overflow": "reject-publish"}
    cluster[0].call("set_policy", name="limit", pattern="^q$", definition=limit)

    def check_is_full(broker: Broker) -> None:
        with pytest.raises(NotAccepted) as refused:
            send(broker, "q", ["too many"])
        outcome = refused.value.outcome
        assert (outcome.state, outcome.condition) == ("rejected", "amqp:resource-limit-exceeded")

    send(cluster[0], "q", ["one", "two"], durable=True)
    check_is_full(cluster[0])
    cluster.kill(0, promote=1)
    cluster.wait_settled(1)
    check_is_full(cluster[1])
    cluster[1].call("clear_policy", name="limit")
    send(cluster[1], "q", ["three"], durable=True)
    for broker in cluster[1:]:
        wait_browse(broker, "q", ["one", "two", "three"])
