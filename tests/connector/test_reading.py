"""Batch reads of real queues: looking changes nothing, taking settles at the end, and both go on
after a failover.
"""

from __future__ import annotations

import re
import threading

import pytest
from pyspark.sql.datasource import InputPartition

from qpidha.connector import inbox
from qpidha.connector.columns import SCHEMA
from qpidha.connector.options import parse_options
from qpidha.connector.queue_client import ConnectorFailure
from qpidha.connector.reading import QueueReader
from tests.connector.clients import Query, batches, messages, options_of, put, read, reader
from tests.system.clients import send
from tests.system.cluster import wait_for
from tests.system.credentials import Authority, users_file

NAMES = [f"{number:05}" for number in range(5200)]


def test_browsing_twice_shows_the_same_and_consuming_takes_it(a_cluster, monkeypatch):
    """5200 messages are more than a session may leave unsettled; receivers with little room use
    several.
    """
    monkeypatch.setattr(inbox, "SESSION_MESSAGES", 700)
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    cluster[0].declare_queue("q")
    assert put(cluster, "q", NAMES) == len(NAMES)
    assert read(cluster, "q") == read(cluster, "q", rowsPerBatch=77, prefetch=50) == NAMES
    assert messages(cluster[0], "q") == len(NAMES)
    assert read(cluster, "q", mode="consume") == NAMES
    assert messages(cluster[0], "q") == 0
    assert read(cluster, "q", mode="consume") == []


def test_consumers_leave_a_full_session_and_browsed_messages_fill_none(a_cluster):
    """A broker that allows less than ours: 300 unsettled deliveries of 1000."""
    cluster = a_cluster(1, ha_cluster="no", promote=False, session_max_unacked=300)
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES[:1000])
    assert read(cluster, "q") == NAMES[:1000]
    assert sorted(read(cluster, "q", mode="consume")) == NAMES[:1000]
    assert messages(cluster[0], "q") == 0


def test_a_task_that_fails_gives_everything_back(a_cluster):
    """Spark closes the iterator of a task that fails, or whose rows it has enough of."""
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES[:50])
    task = batches(cluster, "q", mode="consume", rowsPerBatch=20)
    assert len(next(task)) <= 20
    task.close()
    wait_for(
        lambda: cluster[0].call("list_queues")[0]["acquired"],
        lambda acquired: acquired == 0,
        what="acquired messages",
    )
    rows = [row for batch in batches(cluster, "q", mode="consume") for row in batch]
    assert [row["body"].decode() for row in rows] == NAMES[:50]
    assert {row["delivery_count"] for row in rows if row["body"].decode() in NAMES[:1]} == {1}


def test_large_messages_come_one_by_one(a_cluster, monkeypatch):
    monkeypatch.setattr(inbox, "BYTES", 1 << 20)
    monkeypatch.setattr(inbox, "SESSION_BYTES", 1 << 20)
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    cluster[0].declare_queue("q")
    bodies = [str(number) * 700_000 for number in range(5)]
    put(cluster, "q", bodies)
    assert read(cluster, "q", mode="consume") == bodies


def test_competing_receivers_share_a_queue_and_browsers_take_one_each(a_cluster):
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    options = parse_options(options_of(cluster, "q,r", mode="consume", partitions=3))
    assert [part.value for part in QueueReader(options.for_reading(), SCHEMA).partitions()] == [
        "q"
    ] * 3 + ["r"] * 3
    assert [part.value for part in reader(cluster, "q,r").partitions()] == ["q", "r"]
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES[:30])
    first, second = (
        batches(cluster, "q", mode="consume", prefetch=5, rowsPerBatch=5) for _ in range(2)
    )
    taken = [row["body"].decode() for task in (first, second) for row in next(task)]
    taken += [row["body"].decode() for task in (first, second) for batch in task for row in batch]
    assert sorted(taken) == NAMES[:30] and messages(cluster[0], "q") == 0


def test_a_browse_through_a_failover_misses_nothing_and_shows_nothing_twice(a_cluster):
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    twins = [
        *NAMES[:300],
        *NAMES[100:200],
    ]  # equal to the last byte but for their ids, and some in those, too
    put(cluster, "q", twins[:300])
    put(cluster, "q", twins[300:], run="other")
    task = batches(cluster, "q", rowsPerBatch=60, prefetch=60)
    rows = next(task) + next(task)
    cluster.kill(0, promote=1)
    rows += [row for batch in task for row in batch]
    assert sorted(row["body"].decode() for row in rows) == sorted(twins)
    assert messages(cluster[1], "q") == 400


def test_a_browse_of_a_broker_that_pauses_shows_nothing_twice(a_cluster, monkeypatch):
    """It is stopped while it is asked for messages, for longer than a consumer would wait before it
    leaves the session.
    """
    monkeypatch.setattr(inbox, "STALL", 0.2)
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES[:300])
    task = batches(cluster, "q", rowsPerBatch=60, prefetch=60)
    rows = next(task)
    cluster[0].stop()
    threading.Timer(1.0, cluster[0].cont).start()
    rows += [row for batch in task for row in batch]
    assert [row["body"].decode() for row in rows] == NAMES[:300]


@pytest.mark.parametrize("named", [True, False])
def test_a_failover_fails_the_consumers_that_have_rows_and_no_row_comes_twice(a_cluster, named):
    """Three tasks of a job: two have handed out rows and fail, the third and their next attempts
    get everything, once.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    if named:
        put(cluster, "q", NAMES[:400])
    else:
        send(cluster[0], "q", [name.encode() for name in NAMES[:400]])
    first, second, third = (
        batches(cluster, "q", mode="consume", rowsPerBatch=60, prefetch=60) for _ in range(3)
    )
    assert next(first) and next(second)
    cluster.kill(0, promote=1)
    found = [row["body"].decode() for batch in third for row in batch]
    for task in (first, second):
        with pytest.raises(
            ConnectorFailure,
            match=r"lost before \d+ messages of queue q were settled, which this task has handed",
        ):
            list(task)
        found += read(cluster, "q", mode="consume")
    assert sorted(found) == NAMES[:400] and messages(cluster[1], "q") == 0


def test_a_consumer_whose_rows_are_not_confirmed_to_be_gone_fails(a_cluster, monkeypatch):
    """The last row was handed out, and the primary dies before it hears that they are accepted."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES[:50])
    settle = inbox.Inbox.settle

    def settle_and_lose(self, items):
        cluster.kill(0, promote=1)
        return settle(self, items)

    with monkeypatch.context() as patch:
        patch.setattr(inbox.Inbox, "settle", settle_and_lose)
        with pytest.raises(
            ConnectorFailure, match="lost before 50 messages of queue q were settled"
        ):
            read(cluster, "q", mode="consume")
    assert read(cluster, "q", mode="consume") == NAMES[:50]
    assert messages(cluster[1], "q") == 0


def test_a_queue_that_is_not_there_is_named_at_once(a_cluster):
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    with pytest.raises(ConnectorFailure, match="refuses to serve queue q: amqp:not-found"):
        read(cluster, "q")
    cluster[0].declare_queue("q")
    with Query(cluster, "q") as query:
        query.trigger()
        cluster[0].delete_queue("q")
        with pytest.raises(ConnectorFailure, match="amqp:resource-deleted: queue 'q' was deleted"):
            wait_for(query.trigger, what="a failure")


def test_no_primary_within_the_timeout_says_what_is_wrong(a_cluster):
    cluster = a_cluster(1, promote=False)
    with pytest.raises(
        ConnectorFailure,
        match=rf"no primary among {re.escape(cluster.addresses[0])}: .*waited for 0.5 s "
        r"\(option timeout\)",
    ):
        read(cluster, "q", timeout="0.5")
    cluster[0].kill()
    with pytest.raises(ConnectorFailure, match="onnection refused"):
        read(cluster, "q", timeout="0.5")
    with pytest.raises(ConnectorFailure, match="no.such.host"):
        list(
            QueueReader(
                parse_options({"url": "no.such.host", "queue": "q", "timeout": "0.5"}), SCHEMA
            ).read(InputPartition("q"))
        )


def test_users_log_in_over_tls_and_nobody_else_does(a_cluster, tmp_path, monkeypatch):
    """The broker keeps SCRAM verifiers; the client sends its password over TLS, after it has
    checked who is there.
    """
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker")
    users = users_file(tmp_path / "users", {"ha": "ha", "ann": "secret"})
    tls = {"ssl_cert": certificate, "ssl_key": key, "ssl_trusted": authority.certificate}
    cluster = a_cluster(
        2, encrypted=True, users_file=users, ha_username="ha", ha_password="ha", **tls
    )
    cluster[0].declare_queue("q")
    url = ",".join(
        f"amqps://localhost:{broker.encrypted_port.number}" for broker in reversed(cluster.brokers)
    )
    (tmp_path / "password").write_text("secret\n")
    login = {
        "url": url,
        "username": "ann",
        "passwordFile": tmp_path / "password",
        "tlsCa": authority.certificate,
    }
    assert put(cluster, "q", ["a"], **login) == 1
    assert read(cluster, "q", **login) == ["a"]
    (tmp_path / "wrong").write_text("wrong")
    with pytest.raises(ConnectorFailure, match="refuses the login"):
        read(cluster, "q", **{**login, "passwordFile": tmp_path / "wrong"})
    with pytest.raises(ConnectorFailure, match="no primary among .*certificate"):
        read(
            cluster,
            "q",
            **{**login, "tlsCa": Authority(_folder(tmp_path)).certificate, "timeout": 4},
        )
    with pytest.raises(ConnectorFailure, match="no primary among .*certificate"):
        read(cluster, "q", **{**login, "tlsCa": "", "timeout": 4})
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    assert read(cluster, "q", **{**login, "tlsCa": ""}) == ["a"]  # now it is one of the system's


def _folder(tmp_path):
    (tmp_path / "other").mkdir()
    return tmp_path / "other"
