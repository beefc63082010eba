"""Qpid JMS with the subscriptions that JMS 2.0 has: shared or not, durable or not."""

from __future__ import annotations

from tests.interop.programs import Access, JmsSubscriptions, Program
from tests.system.cluster import wait_for

FIRST, BOTH = "[1, 2, 3, 4]", "[1, 2, 3, 4, 5, 6, 7, 8]"


def test_rabbitmq_d13_subscriptions_of_jms(a_cluster, prepared, tmp_path):
    cluster = a_cluster(1)
    client = prepared(JmsSubscriptions)
    with Program(client.command("amq.topic/news", Access.to(cluster, 0)), tmp_path) as program:
        program.stop()
    events = program.events(*KINDS)
    assert {event["event"]: event["text"] for event in events} == KINDS, program.told()
    wait_for(lambda: cluster[0].queue_names(), lambda seen: not seen, what="no queues left")
    exchanges = cluster[0].exchange_names()
    assert not [name for name in exchanges if name.startswith("TempTopic")]


KINDS = {
    "shared": f"{FIRST} [2, 2]",
    "shared of one client": f"{FIRST} [2, 2]",
    "shared durable": f"{FIRST} [2, 2]",
    "unsubscribe while it is used": "JMSException",
    "shared durable, later": "[5, 6, 7, 8] [4]",
    "unsubscribe while another connection uses it": "JMSException",
    "alone": f"{BOTH} [8]",
    "unsubscribe from nothing": "InvalidDestinationException",
    "unsubscribe from nothing shared": "InvalidDestinationException",
    "no-local": "[13, 13, 14, 14, 15, 15, 16, 16] [4, 4]",
    "temporary topic": "[17, 17, 18, 18, 19, 19, 20, 20] [4, 4]",
    "temporary topic that is gone": "InvalidDestinationException",
    "temporary queue": "[21, 22, 23, 24] [4]",
    "no-local of a queue": "JMSException",
}
