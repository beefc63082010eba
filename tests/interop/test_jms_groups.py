"""Qpid JMS with message groups: JMSXGroupID, and the group sequence that ends one."""

from __future__ import annotations

from qpidha.model.errors import RefusedRequest
from tests.interop.programs import Access, JmsGroups, Program
from tests.system.cluster import wait_for

LAST = 2**32 - 1
"""The group sequence -1 of JMS, as it is on the wire."""


def declared(broker):
    """Declare the queue, unless the broker does not know yet that every broker can follow that."""
    try:
        broker.declare_queue("q", group_header_key="JMSXGroupID")
    except RefusedRequest:
        return False
    return True


def test_row_8_groups_of_jms_are_with_one_consumer_each(a_cluster, prepared, tmp_path):
    cluster = a_cluster(1)
    wait_for(lambda: declared(cluster[0]), bool, what="a queue with groups")
    client = prepared(JmsGroups)
    with Program(client.command("q", Access.to(cluster, 0)), tmp_path) as program:
        program.stop()
    had = [event["text"].split() for event in program.events("had")]
    assert sorted(text for texts in had for text in texts) == ["a1", "a2", "a3", "a4", "b1", "b2"]
    # What comes after the end of a group is another group of the same name. Both may be with one
    # consumer, if the other one's credit came late.
    for group in (["a1", "a2", "a3"], ["b1", "b2"]):
        of_it = [[text for text in texts if text in group] for texts in had]
        assert sorted(of_it) == [[], group], program.told()
    # Nothing was acknowledged, so all is there again.
    shown = cluster[0].call("peek_messages", name="q", count=9)
    assert [message["properties"].get("group_sequence") for message in shown] == [
        *[None] * 4,
        LAST,
        None,
    ]
