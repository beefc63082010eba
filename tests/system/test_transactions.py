"""The original's TransactionTests, and what it could not promise: a commit is on every backup when
it is answered, whole or not at all.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from qpidha.client.errors import ClientError, TransactionFailed, TransactionLost
from tests.system.clients import browse, connect, receive, send, wait_browse
from tests.system.cluster import Cluster, wait_for
from tests.system.forked import die_with_parent
from tests.system.transactions import Session

pytestmark = pytest.mark.system

MOVED = ["x", "y", "z"]
PLAIN = ["0", "1", "2"]


def a_session(cluster: Cluster) -> Session:
    """Queue a holds x, y, z; a transaction has moved them to b, between 0, 1, 2 that were sent
    without one.
    """
    primary = cluster[0]
    for queue in ("a", "b"):
        primary.call("declare_queue", name=queue, durable=True)
    session = Session(primary)
    session.send_plain("a", MOVED, durable=True)
    session.begin()
    for plain in PLAIN:
        session.send("b", session.take("a", 1), durable=True)
        session.send_plain("b", [plain])
    return session


def test_tx_simple_commit(a_cluster):
    """Nothing of a transaction is seen before the commit, and all of it on every broker after
    it.
    """
    cluster = a_cluster(2)
    session = a_session(cluster)
    assert browse(cluster[0], "a") == []
    wait_browse(cluster[1], "a", MOVED)
    for broker in cluster:
        wait_browse(broker, "b", PLAIN)
    session.commit()
    session.close()
    for broker in cluster:
        wait_browse(broker, "a", [])
        wait_browse(broker, "b", PLAIN + MOVED)
    assert receive(cluster[0], "b", 6) == PLAIN + MOVED
    for broker in cluster:
        wait_browse(broker, "b", [])


def test_tx_simple_rollback(a_cluster):
    """A rollback leaves every broker as if there had been no transaction."""
    cluster = a_cluster(2)
    session = a_session(cluster)
    session.roll_back()
    session.close()
    for broker in cluster:
        wait_browse(broker, "a", MOVED)
        wait_browse(broker, "b", PLAIN)


def test_tx_simple_failure(a_cluster):
    """The primary fails inside of a transaction: the client hears of it, and no broker knows
    anything of the transaction.
    """
    cluster = a_cluster(3)
    session = a_session(cluster)
    cluster.bounce(0, promote=1)
    cluster.wait_settled(1)
    with pytest.raises(ClientError):
        session.send_plain("b", ["never"])
    with pytest.raises(ClientError):
        session.commit()
    for broker in cluster:
        wait_browse(broker, "a", MOVED)
        wait_browse(broker, "b", PLAIN)


def test_a_transaction_of_before_a_failover_is_unknown_after_it(a_cluster):
    """A client that goes on with the new primary cannot commit what it did with the old one."""
    cluster = a_cluster(3)
    session = a_session(cluster)
    former = session.transaction
    cluster.kill(0, promote=1)
    after = Session(cluster[1]).begin()
    after.transaction._state.transaction_id = former._state.transaction_id
    with pytest.raises(TransactionFailed) as unknown:
        after.commit()
    assert unknown.value.condition == "amqp:transaction:unknown-id"
    after.close()
    assert browse(cluster[1], "a") == MOVED
    assert browse(cluster[1], "b") == PLAIN


def test_tx_join_leave(a_cluster):
    """A backup may leave or join in the middle of a transaction."""
    cluster = a_cluster(3)
    session = a_session(cluster)
    cluster[1].kill()
    session.commit()
    for broker in (cluster[0], cluster[2]):
        wait_browse(broker, "a", [])
        wait_browse(broker, "b", PLAIN + MOVED)
    session.begin()
    session.send("a", session.take("b", 6))
    cluster[1].restart()
    cluster.wait_settled(0)
    wait_browse(cluster[1], "b", PLAIN + MOVED)
    session.commit()
    session.close()
    for broker in cluster:
        wait_browse(broker, "a", PLAIN + MOVED)
        wait_browse(broker, "b", [])


def test_tx_send_receive(a_cluster):
    """1000 sent and 990 received in transactions of 10 by clients at the same time leave 991 to
    1000 on every broker.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    taken: list[Any] = []

    def consume() -> None:
        session = Session(cluster[0])
        for _ in range(99):
            session.begin()
            taken.extend(session.take("q", 10))
            session.commit()
        session.close()

    consumer = threading.Thread(target=consume)
    consumer.start()
    session = Session(cluster[0])
    for first in range(1, 1001, 10):
        session.begin()
        session.send("q", range(first, first + 10))
        session.commit()
    session.close()
    consumer.join()
    assert taken == list(range(1, 991))
    for broker in cluster:
        wait_browse(broker, "q", range(991, 1001))


def test_tx_block_threads(a_cluster):
    """Ten durable commits at once hold nobody up: the broker answers meanwhile, and all ten are on
    both brokers.
    """
    primary, backup = cluster = a_cluster(2)
    primary.call("declare_queue", name="q", durable=True)
    sessions = [Session(primary).begin() for _ in range(10)]
    idle = Session(primary).begin()
    idle.send("q", ["never"])
    for number, session in enumerate(sessions):
        session.send("q", [number], durable=True)
    answers, done = 0, threading.Event()

    def ping() -> None:
        nonlocal answers
        while not done.is_set():
            primary.call("status")
            answers += 1

    pinging = threading.Thread(target=ping)
    pinging.start()
    committing = [threading.Thread(target=session.commit) for session in sessions]
    for thread in committing:
        thread.start()
    for thread in committing:
        thread.join()
    done.set()
    pinging.join()
    for session in (*sessions, idle):
        session.close()
    assert [session.state for session in sessions] == ["committed"] * 10
    assert answers
    for broker in cluster:
        wait_for(
            lambda broker=broker: sorted(browse(broker, "q", admin=True)),
            list(range(10)).__eq__,
            what=f"q on {broker.name}",
        )


# The original ran generic suites here (test_other_tx_tests); these are ours, each on three brokers.


@pytest.fixture
def three(a_cluster):
    cluster = a_cluster(3)
    for queue in ("q", "r", "s"):
        cluster[0].declare_queue(queue)
    return cluster


def assert_everywhere(cluster: Cluster, **contents: Any) -> None:
    """Compare the queues of all brokers."""
    for queue, expected in contents.items():
        for broker in cluster:
            wait_browse(broker, queue, list(expected))


def test_other_tx_tests_commit_and_rollback_of_mixed_work(three):
    """Sends and receives in one transaction, again and again, with commits and rollbacks in
    turn.
    """
    send(three[0], "q", range(20))
    session = Session(three[0])
    moved: list[Any] = []
    for round_number in range(8):
        session.begin()
        bodies = session.take("q", 2)
        session.send("r", bodies)
        session.send("s", [f"round {round_number}"])
        if round_number % 2:
            session.roll_back()
        else:
            session.commit()
            moved += bodies
    session.close()
    assert len(moved) == 8
    left = [number for number in range(20) if number not in moved]
    assert_everywhere(three, q=left, r=moved, s=[f"round {number}" for number in (0, 2, 4, 6)])


def test_other_tx_tests_a_large_transaction(three):
    """A thousand messages sent, and a thousand received, in one transaction each."""
    session = Session(three[0]).begin()
    session.send("q", range(1000))
    assert browse(three[0], "q") == []
    session.commit()
    assert_everywhere(three, q=range(1000))
    session.begin()
    assert session.take("q", 1000) == list(range(1000))
    session.send("r", range(1000))
    session.commit()
    session.close()
    assert_everywhere(three, q=[], r=range(1000))


def test_other_tx_tests_between_plain_messages_and_on_several_queues(three):
    """Messages without a transaction pass those in one."""
    session = Session(three[0]).begin()
    for number in range(5):
        for queue in ("q", "r", "s"):
            session.send(queue, [f"in {number}"])
        session.send_plain("q", [f"out {number}"])
    session.commit()
    session.close()
    inside = [f"in {number}" for number in range(5)]
    assert_everywhere(
        three, q=[*(f"out {number}" for number in range(5)), *inside], r=inside, s=inside
    )


def test_other_tx_tests_an_exchange_and_a_full_queue(three):
    """What goes through an exchange is on all of its queues, or on none if one of them is full."""
    three[0].declare_queue("small", max_count=3)
    three[0].declare_exchange("x", "fanout")
    three[0].bind("x", "q")
    three[0].bind("x", "small")
    session = Session(three[0]).begin()
    session.send("x", ["a", "b"])
    session.commit()
    session.begin()
    session.send("r", ["not this either"])
    session.send("x", ["c", "d"])
    with pytest.raises(TransactionFailed) as full:
        session.commit()
    assert full.value.condition == "amqp:transaction:rollback"
    session.begin()
    session.take("small", 2)
    session.send("x", ["e", "f", "g"])
    session.commit()
    session.close()
    assert_everywhere(three, q=["a", "b", "e", "f", "g"], small=["e", "f", "g"], r=[])


def test_other_tx_tests_a_client_that_dies_has_done_nothing(three):
    """SIGKILL in the middle of a transaction: what the client had is there for the next one, marked
    as delivered before.
    """
    send(three[0], "q", ["a", "b"])
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.system.transactions", three[0].address],
        preexec_fn=die_with_parent,
    )
    wait_browse(three[0], "s", ["arrived"])
    process.kill()
    process.wait()
    assert_everywhere(three, q=["a", "b"], r=[], s=["arrived"])
    with connect(three[0]) as client:
        receiver = client.receiver("q")
        assert [receiver.receive().header.delivery_count for _ in range(2)] == [1, 1]


def test_a_primary_that_steps_down_rolls_back(three):
    """A demoted primary has no messages that a client of before still has."""
    send(three[0], "q", ["a", "b"])
    session = Session(three[0]).begin()
    session.take("q", 2)
    session.send("r", ["never"])
    three[0].call("demote")
    three[1].promote()
    three.wait_settled(1)
    with pytest.raises(ClientError):
        session.commit()
    assert_everywhere(three, q=["a", "b"], r=[])
    assert receive(three[1], "q", 2) == ["a", "b"]


# What the original did not promise: it lost transactions that it had committed.


def test_a_commit_that_was_answered_survives_the_primary(three):
    """SIGKILL right after the answer, a few times: the next primary has all of it."""
    for round_number, (victim, heir) in enumerate(((0, 1), (1, 2))):
        session = Session(three[victim]).begin()
        sent = [f"{round_number}.{number}" for number in range(50)]
        for queue in ("q", "r"):
            session.send(queue, sent)
        session.commit()
        three.bounce(victim, promote=heir)
        three.wait_settled(heir)
        for queue in ("q", "r"):
            assert browse(three[heir], queue)[-50:] == sent
    wanted = [f"{round_number}.{number}" for round_number in range(2) for number in range(50)]
    assert_everywhere(three, q=wanted, r=wanted)


@pytest.mark.parametrize("delay", [0, 0.0005, 0.001, 0.002, 0.004, 0.008])
def test_a_primary_that_is_killed_during_the_commit_has_done_all_or_nothing(three, delay):
    """SIGKILL at some moment between the request and the answer: the next primary has all of the
    transaction or none of it.
    """
    taken = [f"taken {number}" for number in range(20)]
    send(three[0], "q", taken)
    session = Session(three[0]).begin()
    assert session.take("q", 20) == taken
    sent = [f"sent {number}" for number in range(200)]
    for queue in ("r", "s"):
        session.send(queue, sent)
    killer = threading.Timer(delay, three[0].kill)
    killer.start()
    try:
        session.commit()
    except TransactionLost as lost:
        assert lost.in_doubt or delay == 0
    killer.join()
    three.promote(1)
    three.wait_settled(1)
    has = {queue: browse(three[1], queue) for queue in ("q", "r", "s")}
    committed = {"q": [], "r": sent, "s": sent}
    assert has in (committed, {"q": taken, "r": [], "s": []})
    if session.state == "committed":
        assert has == committed
    wait_browse(three[2], "q", has["q"])
    wait_browse(three[2], "r", has["r"])
    wait_browse(three[2], "s", has["s"])


def test_a_durable_commit_survives_the_broker_whole(a_cluster):
    """A broker alone, SIGKILL right after the answer or in the middle of the next transaction: the
    disk has what was committed.
    """
    (broker,) = a_cluster(1, promote=False, ha_cluster="no", ha_brokers_url=None)
    for queue in ("q", "r"):
        broker.call("declare_queue", name=queue, durable=True)
    expected: list[Any] = []
    for round_number in range(3):
        session = Session(broker).begin()
        session.send("q", [f"{round_number}.{number}" for number in range(20)], durable=True)
        session.commit()
        session.begin()
        taken = session.take("q", 20)
        session.send("r", taken, durable=True)
        session.commit()
        expected += taken
        session.begin()
        session.take("r", len(expected))
        session.send("q", ["never"], durable=True)
        broker.kill()
        broker.restart()
        assert browse(broker, "q") == []
        assert browse(broker, "r") == expected
