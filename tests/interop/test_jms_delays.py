"""Qpid JMS with messages that are delivered later."""

from __future__ import annotations

from tests.interop.programs import Access, JmsDelays, Program


def test_row_118_the_delivery_delay_of_jms(a_cluster, prepared, tmp_path):
    cluster = a_cluster(1)
    cluster[0].declare_queue("q")
    client = prepared(JmsDelays)
    with Program(client.command("q", Access.to(cluster, 0)), tmp_path) as program:
        program.stop()
    (event,) = program.events("delays")
    assert event["text"] == "now late in time", program.told()
