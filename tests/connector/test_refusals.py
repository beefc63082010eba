"""What brokers refuse: for now, then it is tried again on another connection; for good, then in
words that say what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from qpidha.broker.queues.queue import Queue
from qpidha.client.core import Core
from qpidha.client.errors import LinkError, TimedOut
from qpidha.connector.columns import SCHEMA, message_of
from qpidha.connector.inbox import Inbox
from qpidha.connector.options import parse_options
from qpidha.connector.outbox import Outbox
from qpidha.connector.queue_client import ConnectorFailure
from qpidha.connector.reading import QueueReader
from qpidha.model.errors import LimitExceeded, QpidHaError
from tests.client.served import Served
from tests.connector.clients import read
from tests.system.cluster import Cluster
from tests.system.credentials import Authority, users_file


@pytest.fixture
def broker() -> Iterator[Served]:
    with Served("q") as served:
        yield served


def end_links(server: Any) -> None:
    """End every link for a reason that may pass."""
    for end in list(server._engine._links.values()):
        end.owner.fail(QpidHaError("not now"))


def message(name: str) -> bytes:
    return message_of({"body": name}, name)


def test_a_receiver_that_is_ended_for_now_is_attached_again(broker: Served) -> None:
    for name in "abc":
        broker.host.broker.queues["q"].enqueue(message(name), 0)
    options = parse_options({"url": broker.address, "timeout": "100"})
    with Inbox(options, "q", until_empty=True) as inbox:
        first = inbox.take(1, 1000, 10.0)
        assert [item.payload for item in first] == [message("a")]
        broker.do(end_links)
        receiver, client = inbox._lanes[0].receiver, inbox._client
        assert client is not None
        assert client.wait(lambda: receiver.error is not None)
        assert inbox.settle(first) == first
        assert not inbox.is_finished
        again = inbox.take(10, 1000, 10.0)
        assert {item.generation for item in again} == {1}
        assert len(again) == 3
        assert inbox.settle(again) == []
        assert inbox.take(10, 1000, 10.0) == []
        assert inbox.is_finished


def test_a_sender_that_is_ended_for_now_is_attached_again(broker: Served) -> None:
    with Outbox(parse_options({"url": broker.address, "timeout": "100"})) as outbox:
        outbox.send("q", message("a"), "a")
        outbox.finish()
        broker.do(end_links)
        sender, client = outbox._lanes["q"].sender, outbox._client
        assert sender is not None and client is not None
        assert client.wait(lambda: sender.error is not None)
        outbox.send("q", message("b"), "b")
        outbox.finish()
        assert (outbox.accepted, outbox.generation) == (2, 1)
    assert len(broker.host.broker.queues["q"].messages) == 2


def test_a_broker_that_keeps_refusing_for_now_is_given_up_in_time(
    broker: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(queue: Queue, connection: object) -> None:
        raise LimitExceeded("not now")

    monkeypatch.setattr(Queue, "check_access", refuse)
    reader = QueueReader(
        parse_options({"url": broker.address, "queue": "q", "timeout": "5"}), SCHEMA
    )
    with pytest.raises(
        ConnectorFailure, match=r"no primary among .*: not now; waited for 5 s \(option timeout\)"
    ):
        list(reader.read(InputPartition("q")))


def test_why_nobody_serves_is_what_a_broker_said_and_not_that_the_last_attempt_was_short(
    broker: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter([LinkError("ended", reason="not now"), TimedOut("the link was not attached")])

    def attach(*_: object) -> None:
        raise next(errors, TimedOut("the link was not attached"))

    monkeypatch.setattr(Inbox, "_open_lane", attach)
    options = parse_options({"url": broker.address, "timeout": "1"})
    with (
        Inbox(options, "q", until_empty=True) as inbox,
        pytest.raises(ConnectorFailure, match=r"no primary among .*: not now; waited for 1 s"),
    ):
        inbox.take(1, 1000, 10.0)


def test_a_password_is_not_sent_by_plain_without_tls(
    a_cluster: Callable[..., Cluster], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS the same broker lets the same user in by PLAIN."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker")
    cluster = a_cluster(
        1,
        ha_cluster="no",
        promote=False,
        encrypted=True,
        users_file=users_file(tmp_path / "users", {"ann": "secret"}),
        sasl_mechanisms="PLAIN",
        sasl_plain_without_tls="yes",
        ssl_cert=certificate,
        ssl_key=key,
    )
    monkeypatch.setenv("QPIDHA_PASSWORD", "secret")
    with pytest.raises(
        ConnectorFailure,
        match="refuses the login: .* mechanisms PLAIN, none of which .* use amqps:// where the "
        "broker offers PLAIN alone",
    ):
        read(cluster, "q", username="ann")
    encrypted = {
        "url": f"amqps://localhost:{cluster[0].encrypted_port.number}",
        "username": "ann",
        "tlsCa": authority.certificate,
    }
    with pytest.raises(ConnectorFailure, match="refuses to serve queue q: amqp:not-found"):
        read(cluster, "q", **encrypted)


def test_after_a_failover_a_broker_may_be_wrong_in_any_way_for_a_while(
    broker: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What answers there is no broker, until it is one again."""
    with Outbox(parse_options({"url": broker.address, "timeout": "100"})) as outbox:
        outbox.send("q", message("a"), "a")
        outbox.finish()
        strange = [b"HTTP/1.1 503 \r\n"] * 3
        received = Core.received

        def receive(self: Core, data: bytes, now: int) -> None:
            received(self, strange.pop() if strange else data, now)

        monkeypatch.setattr(Core, "received", receive)
        broker.hang_up()
        outbox.send("q", message("b"), "b")
        outbox.finish()
        assert not strange
        assert outbox.accepted == 2
    with pytest.raises(ConnectorFailure, match="no primary among .* is no AMQP broker"):
        strange.append(b"HTTP/1.1 503 \r\n")
        put_to(broker)


def put_to(broker: Served) -> None:
    with Outbox(parse_options({"url": broker.address, "timeout": "100"})) as outbox:
        outbox.send("q", message("c"), "c")
        outbox.finish()
