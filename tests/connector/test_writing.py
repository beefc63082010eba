"""Writes to real queues: done when accepted, sent again after a failover, taken once with
de-duplication, and refused in plain words.
"""

from __future__ import annotations

import threading
from collections import Counter

import proton
import pyarrow
import pytest
from proton.handlers import MessagingHandler
from proton.reactor import Container

from qpidha.client.errors import ConnectError
from qpidha.client.links import Delivery
from qpidha.connector.columns import message_of
from qpidha.connector.options import parse_options
from qpidha.connector.outbox import Lane, Outbox, Sent
from qpidha.connector.queue_client import ConnectorFailure
from qpidha.connector.writing import write
from qpidha.model.errors import InvalidArgument
from tests.connector.clients import batches, messages, options_of, put, read
from tests.system.cluster import Port

NAMES = [f"{number:05}" for number in range(3000)]


def test_rows_go_where_they_say_and_have_an_id(a_cluster):
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    for name in ("q", "r"):
        cluster[0].declare_queue(name)
    rows = pyarrow.RecordBatch.from_pylist(
        [
            {"queue": "r", "body": "1", "message_id": "mine"},
            {"queue": None, "body": "2", "message_id": None},
        ]
    )
    assert (
        write(parse_options(options_of(cluster, "q")).for_writing(), iter([rows]), "run").accepted
        == 2
    )
    found = [
        (row["queue"], row["message_id"], row["durable"])
        for name in "qr"
        for batch in batches(cluster, name)
        for row in batch
    ]
    assert found == [("q", "run/0/1", True), ("r", "mine", True)]


def test_a_task_that_is_done_again_is_there_twice_or_with_dedup_once(a_cluster):
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    cluster[0].declare_queue("twice")
    cluster[0].call("declare_queue", name="once", arguments={"qpidha.dedup": "message-id"})
    for name in ("twice", "once"):
        for _ in range(2):
            assert put(cluster, name, NAMES[:100]) == 100
    assert messages(cluster[0], "twice") == 200 and messages(cluster[0], "once") == 100


@pytest.mark.parametrize("dedup", [False, True])
def test_a_failover_in_the_middle_loses_nothing(a_cluster, dedup):
    cluster = a_cluster(3)
    arguments = {"qpidha.dedup": "message-id"} if dedup else {}
    cluster[0].call("declare_queue", name="q", arguments=arguments)
    with Outbox(parse_options(options_of(cluster, "q", prefetch=200))) as outbox:
        for number, name in enumerate(NAMES):
            if number == 1000:
                cluster[0].kill()
                promotion = threading.Thread(target=cluster.kill, args=(0, 1))
                promotion.start()
            outbox.send("q", _message(name), name)
        outbox.finish()
        promotion.join()
        assert outbox.accepted == len(NAMES) and outbox.generation
    found = read(cluster, "q")
    assert set(found) == set(NAMES)
    assert len(found) - len(NAMES) <= (0 if dedup else 200)


def _message(name):
    return message_of({"body": name}, name)


def test_a_row_that_is_refused_is_named_with_the_broker_s_words(a_cluster):
    cluster = a_cluster(1, ha_cluster="no", promote=False, max_message_size=5000)
    cluster[0].declare_queue("full", max_count=2, policy_type="reject", flow_stop_count=0)
    cluster[0].declare_queue("q")
    with pytest.raises(
        ConnectorFailure,
        match="queue full rejects message run/0/[2-4]: amqp:resource-limit-exceeded: ",
    ):
        put(cluster, "full", NAMES[:5])
    with pytest.raises(
        ConnectorFailure,
        match="queue q does not take message run/0/1: .* bytes .* the broker takes 5000 bytes",
    ):
        put(cluster, "q", ["a", "b" * 6000])
    with pytest.raises(
        ConnectorFailure, match="refuses to take messages for queue nowhere: amqp:not-found"
    ):
        put(cluster, "nowhere", ["a"])
    with pytest.raises(
        InvalidArgument, match="row run/0/0: column queue is null, and there is no option queue"
    ):
        put(cluster, "", ["a"])
    rows = pyarrow.RecordBatch.from_pydict({"body": ["a"], "priority": [300]})
    with pytest.raises(InvalidArgument, match="row run/0/0: column priority is 300"):
        write(parse_options(options_of(cluster, "q")), iter([rows]), "run")


def test_what_is_not_accepted_in_time_is_named(a_cluster):
    """One of two brokers is frozen: the other does not accept before it is dropped, which here
    takes longer than we wait.
    """
    cluster = a_cluster(2, ha_backup_timeout="30", link_heartbeat_interval="30")
    cluster[0].declare_queue("q")
    cluster[1].stop()
    with pytest.raises(
        ConnectorFailure,
        match=r"message run/0/0 was not accepted on queue q within 5 s \(option timeout\)",
    ):
        put(cluster, "q", ["a"], timeout=5)
    cluster[1].cont()


class Fickle(MessagingHandler):
    """A broker that gives every message back twice, once so and once so, before it accepts it."""

    def __init__(self):
        super().__init__(auto_accept=False)
        self.port = Port()
        self.tries = Counter()
        self.accepted = []
        self.listener = None

    def on_start(self, event):
        self.listener = event.container.listen(f"127.0.0.1:{self.port.number}")

    def on_link_opening(self, event):
        event.link.target.copy(event.link.remote_target)

    def on_message(self, event):
        self.tries[event.message.id] += 1
        outcome = {1: proton.Delivery.RELEASED, 2: proton.Delivery.MODIFIED}.get(
            self.tries[event.message.id], proton.Delivery.ACCEPTED
        )
        if outcome == proton.Delivery.ACCEPTED:
            self.accepted.append(event.message.id)
        event.delivery.update(outcome)
        event.delivery.settle()

    def on_connection_closing(self, event):
        self.listener.close()


def test_messages_that_are_given_back_are_sent_again_in_order():
    broker = Fickle()
    thread = threading.Thread(target=Container(broker).run)
    thread.start()
    with Outbox(
        parse_options({"url": f"127.0.0.1:{broker.port.number}", "timeout": "100"})
    ) as outbox:
        for name in NAMES[:20]:
            outbox.send("q", _message(name), name)
        outbox.finish()
        assert outbox.accepted == 20
    thread.join()
    broker.port.close()
    assert broker.tries == dict.fromkeys(NAMES[:20], 3) and broker.accepted == NAMES[:20]


def test_what_is_on_its_way_or_given_back_when_a_connection_is_lost_is_sent_again_in_order():
    """The first one was given back and is on its way again, the second waits to be."""
    outbox = Outbox(parse_options({"url": "127.0.0.1:1"}))
    first, second, third, *later = (
        Sent(b"", name, number) for number, name in enumerate(NAMES[:6])
    )
    lane = outbox._lanes["q"] = Lane("q")
    lane.waiting.extend([second, *later])
    for number, item in enumerate((third, first)):
        delivery = Delivery(number, b"", None)
        delivery.error = ConnectError("the connection was lost")
        lane.unsettled[delivery] = item
        outbox._note(lane, delivery)
    outbox._hear()
    assert [item.name for item in lane.waiting] == NAMES[:6] and not lane.unsettled


def test_a_hand_over_in_order_loses_nothing(a_cluster):
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    with Outbox(parse_options(options_of(cluster, "q", prefetch=50))) as outbox:
        for number, name in enumerate(NAMES[:1000]):
            outbox.send("q", _message(name), name)
            if number == 500:
                cluster[0].call("switchover", target=cluster[1].address)
        outbox.finish()
    assert cluster[1].state == "active" and set(read(cluster, "q")) == set(NAMES[:1000])
