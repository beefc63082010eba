"""Streaming reads of real queues, trigger by trigger: settled when committed, empty when idle, and
known again after a failover.
"""

from __future__ import annotations

import os
import signal
import socket
import threading

import pytest

from qpidha.client.core import Core
from qpidha.connector import stream
from qpidha.connector.columns import SCHEMA
from qpidha.connector.options import parse_options
from qpidha.connector.queue_client import ConnectorFailure
from tests.connector.clients import Query, messages, put
from tests.system.clients import send
from tests.system.cluster import wait_for

NAMES = [f"{number:05}" for number in range(3000)]


def drained(query: Query, count: int) -> list[str]:
    """Run triggers until so many rows came."""
    found: list[str] = []
    wait_for(
        lambda: found.extend(query.trigger()) or len(found),
        lambda seen: seen >= count,
        what="rows that came",
    )
    return found


def test_a_batch_is_settled_when_it_is_committed_and_not_before(a_cluster):
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES[:100])
    with Query(cluster, "q", rowsPerBatch=40, partitions=3) as query:
        first = query.plan()
        assert 0 < first["n"] <= 40 and query.plan() == first  # asked again, the same
        assert len(query.rows(first)) == first["n"] == len(query.rows(first))
        assert messages(cluster[0], "q") == 100
        query.at = first
        query.plan()
        assert messages(cluster[0], "q") == 100 - first["n"]
        drained(query, 100 - first["n"])
        assert query.trigger() == [] and messages(cluster[0], "q") == 0


def test_what_is_committed_and_was_not_settled_comes_twice_and_says_so(a_cluster):
    """The process dies after a commit and before the next trigger: this is what at-least-once
    allows.
    """
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES[:20])
    with Query(cluster, "q") as query:
        wait_for(lambda: query.trigger(), what="a batch")
        count = query.at["n"]
    wait_for(
        lambda: cluster[0].call("list_queues")[0]["acquired"],
        lambda acquired: acquired == 0,
        what="acquired messages",
    )
    with Query(cluster, "q") as again:
        again.at = query.at
        rows = []
        while len(rows) < 20:
            end = again.plan()
            rows += again.rows(end)
            again.at = end
    assert [row["body"].decode() for row in rows] == NAMES[:20]
    assert [row["delivery_count"] for row in rows] == [1] * count + [0] * (20 - count)


def test_rows_are_in_order_and_shared_out(a_cluster):
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES)
    with Query(cluster, "q", rowsPerBatch=500, partitions=4) as query:
        assert drained(query, len(NAMES)) == NAMES
    wait_for(
        lambda: cluster[0].call("list_queues")[0]["consumers"],
        lambda count: count == 0,
        what="consumers",
    )


def test_what_is_not_committed_comes_again_and_says_so(a_cluster):
    """The process ends with a batch that is not committed; what only waited there, or was on its
    way, was never delivered.
    """
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES[:100])
    with Query(cluster, "q", rowsPerBatch=30) as query:
        lost = query.plan()
    wait_for(
        lambda: cluster[0].call("list_queues")[0]["acquired"],
        lambda acquired: acquired == 0,
        what="acquired messages",
    )
    with Query(cluster, "q", rowsPerBatch=1000) as again:
        assert again.rows(lost) == []  # the batch that Spark plays again
        again.at = lost
        rows = []
        while len(rows) < 100:
            end = again.plan()
            rows += again.rows(end)
            again.at = end
        assert [row["body"].decode() for row in rows] == NAMES[:100]
        assert [row["delivery_count"] for row in rows] == [1] * lost["n"] + [0] * (100 - lost["n"])
        assert again.trigger() == [] and messages(cluster[0], "q") == 0


@pytest.mark.parametrize("named", [True, False])
def test_after_a_failover_nothing_that_has_an_id_is_handed_out_again(a_cluster, named):
    """A batch is committed while the primary dies: its messages come again from the next one, are
    known, and settled.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    if named:
        put(cluster, "q", NAMES[:500])
    else:
        send(cluster[0], "q", [name.encode() for name in NAMES[:500]])
    with Query(cluster, "q", rowsPerBatch=200) as query:
        found = drained(query, 1)
        handed = len(found)
        cluster.kill(0, promote=1)
        found += drained(query, 500 + (0 if named else handed) - handed)
        assert set(found) == set(NAMES[:500])
        # Of two messages without an id it cannot be told whether they are one.
        assert (len(found) - 500, query.reader._feed.recognised) == (
            (0, handed) if named else (handed, 0)
        )
        assert query.trigger() == query.trigger() == [] and messages(cluster[1], "q") == 0


def test_twins_that_are_not_the_same_message_are_all_there(a_cluster):
    """Somebody else takes what comes again after a failover; what is new and equal to it is not
    taken for it.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    send(cluster[0], "q", [b"twin"] * 300)
    with Query(cluster, "q", rowsPerBatch=100) as query:
        handed = len(drained(query, 100))
        cluster.kill(0)
        cluster[1].promote()
        cluster[1].wait_state("active")
        cluster[1].call("purge_queue", name="q")
        send(cluster[1], "q", [b"twin"] * handed)
        assert len(drained(query, handed)) == handed
        assert query.trigger() == query.trigger() == [] and messages(cluster[1], "q") == 0


def test_available_now_ends_when_the_queue_was_found_empty(a_cluster):
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES[:300])
    with Query(cluster, "q", rowsPerBatch=100) as query:
        query.reader.prepareForTriggerAvailableNow()
        found = query.trigger()
        inbox = query.reader._feed.inbox
        while not inbox.is_finished:
            found += query.trigger()
        put(cluster, "q", ["too late"])
        while batch := query.trigger():
            found += batch
        assert found == NAMES[:300] and messages(cluster[0], "q") == 1


def test_available_now_does_not_take_silence_for_an_empty_queue():
    """The kernel takes the connection, and nobody ever answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {"url": f"127.0.0.1:{silent.getsockname()[1]}", "queue": "q", "timeout": "1.5"}
        reader = stream.QueueStreamReader(parse_options(options).for_stream(), SCHEMA)
        reader.prepareForTriggerAvailableNow()
        try:
            with pytest.raises(
                ConnectorFailure,
                match=r"no primary among 127.0.0.1:\d+: .* accepted the connection and did not "
                r"answer; waited for 1.5 s \(option timeout\)",
            ):
                reader.latestOffset(stream.offset(0), reader.getDefaultReadLimit())
        finally:
            reader.stop()


def test_available_now_waits_for_a_failover_in_the_middle(a_cluster, monkeypatch):
    """The cluster has no primary for many attempts to find one."""
    refused: list[object] = []
    dial_failed = Core.dial_failed

    def count(self, now, error):
        refused.append(error)
        dial_failed(self, now, error)

    monkeypatch.setattr(Core, "dial_failed", count)
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES[:300])
    with Query(cluster, "q", rowsPerBatch=100) as query:
        query.reader.prepareForTriggerAvailableNow()
        found = query.trigger()
        cluster.kill(0)

        def promote() -> None:
            wait_for(
                lambda: len(refused), lambda count: count > 5, what="attempts to find a primary"
            )
            cluster[1].promote()

        promotion = threading.Thread(target=promote)
        promotion.start()
        try:
            while batch := query.trigger():
                found += batch
        finally:
            promotion.join()
        assert sorted(found) == NAMES[:300] and messages(cluster[1], "q") == 0


def test_available_now_settles_what_came_late_even_when_its_link_is_lost(a_cluster, monkeypatch):
    """A batch comes again after a failover, is known, and while it is settled there is the next
    failover.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES[:100])
    with Query(cluster, "q") as query:
        query.reader.prepareForTriggerAvailableNow()
        found = query.trigger()
        feed = query.reader._feed
        while len(found) < 100:
            found += query.trigger()
        settle, kills = feed.inbox.settle, [1]

        def settle_and_lose(items):
            if feed.recognised and kills:
                cluster.kill(kills.pop(), promote=2)
            return settle(items)

        monkeypatch.setattr(feed.inbox, "settle", settle_and_lose)
        cluster.kill(0, promote=1)
        assert query.trigger() == [] and not kills
        assert found == NAMES[:100] and messages(cluster[2], "q") == 0


def test_a_signal_gives_back_what_waits(a_cluster):
    """Spark ends the process that reads with SIGTERM: what was not handed out is as if it had never
    left.
    """
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES[:100])
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit), Query(cluster, "q", rowsPerBatch=10) as query:
            query.plan()
            os.kill(os.getpid(), signal.SIGTERM)
            wait_for(lambda: False, what="the end of this")
    finally:
        signal.signal(signal.SIGTERM, before)
    wait_for(
        lambda: cluster[0].call("list_queues")[0]["acquired"],
        lambda acquired: acquired == 0,
        what="acquired messages",
    )
    assert messages(cluster[0], "q") == 100


def test_the_query_fails_when_there_is_no_primary_for_too_long(a_cluster):
    cluster = a_cluster(1, ha_cluster="no", promote=False)
    cluster[0].declare_queue("q")
    with Query(cluster, "q", timeout=5) as query:
        query.trigger()
        cluster[0].kill()
        with pytest.raises(ConnectorFailure, match="no primary among .*refused"):
            wait_for(query.trigger, what="a failure")


def test_no_more_is_remembered_than_a_bound(a_cluster, monkeypatch):
    monkeypatch.setattr(stream, "REMEMBERED", 10)
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    put(cluster, "q", NAMES[:100])
    with Query(cluster, "q") as query:
        found = query.trigger()
        while len(found) < 100:
            found += query.trigger()
        end = query.at
        cluster.kill(0, promote=1)
        again = drained(query, 1)
        feed = query.reader._feed
        assert len(feed._expected) <= 10 and set(again) <= set(found) and query.at["n"] > end["n"]
