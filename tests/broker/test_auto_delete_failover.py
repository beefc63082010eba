"""Auto-delete queues over a failover: those that had users end, those that never had one wait, and
no orphan is lost.

Source: Qpid `ha_tests.py` test_auto_delete_failover and test_auto_delete_close; hole 22 of the
original (what a backup that joined later did not know of a queue's users).
"""

from __future__ import annotations

import pytest

from qpidha.broker.broker import RETURN, Broker
from qpidha.model.records import QueueUsed
from tests.broker.parts import Tape, a_broker, a_poster, a_taker, contents, copy_of, picture, send
from tests.broker.queues.test_dedup import rebuilt

SECOND = 1_000_000_000
TIMEOUTS: dict[str, dict[str, int]] = {
    "q1": {},
    "q2": {"qpid.auto_delete_timeout": 0},
    "q3": {"qpid.auto_delete_timeout": 1},
    "q4": {},
    "q5": {},
}
USED = ("q1", "q2", "q3", "q4")


def before_the_failover() -> tuple[Broker, Tape]:
    tape = Tape()
    broker = a_broker(tape)
    for name, arguments in TIMEOUTS.items():
        broker.declare_exchange(f"{name}-altex", "fanout")
        broker.declare_queue(f"{name}-altq")
        broker.bind(f"{name}-altex", f"{name}-altq")
        broker.declare_queue(name, auto_delete=True, alternate=f"{name}-altex", arguments=arguments)
    takers = {name: a_taker(broker.queues[name]) for name in USED}
    for name in USED:
        send(broker, name, name)
    broker.queues["q4"].unsubscribe(takers["q4"])
    return broker, tape


@pytest.mark.parametrize("joined_late", [False, True])
def test_queues_that_had_users_end_after_a_failover_and_their_orphans_are_there_once(
    joined_late: bool,
) -> None:
    broker, tape = before_the_failover()
    backup = rebuilt(broker) if joined_late else copy_of(tape)
    assert "q4" not in backup.queues and contents(backup, "q4-altq") == ["q4"]
    backup.log_writer = tape
    backup.promoted(100 * SECOND)
    backup.tick(101 * SECOND - 1)
    assert [name for name in TIMEOUTS if name in backup.queues] == ["q1", "q2", "q3", "q5"]
    backup.tick(101 * SECOND)
    assert "q3" not in backup.queues
    backup.tick(100 * SECOND + RETURN)
    assert [name for name in TIMEOUTS if name in backup.queues] == ["q5"]
    assert [contents(backup, f"{name}-altq") for name in USED] == [[name] for name in USED]
    if not joined_late:
        assert picture(copy_of(tape)) == picture(backup)
    backup.tick(10_000 * SECOND)
    queue = backup.queues["q5"]
    queue.unsubscribe(a_taker(queue))
    assert "q5" not in backup.queues


def test_a_backup_that_joins_within_the_timeout_of_an_unused_queue_knows_it_as_used() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q", arguments={"qpid.auto_delete_timeout": 60})
    queue.unsubscribe(a_taker(queue))
    backup = rebuilt(broker)
    backup.log_writer = Tape()
    backup.promoted(1)
    backup.tick(1 + 60 * SECOND)
    assert "q" not in backup.queues


def test_users_that_come_back_keep_their_queue() -> None:
    _, tape = before_the_failover()
    backup = copy_of(tape)
    backup.log_writer = tape
    backup.promoted(1)
    taker = a_taker(backup.queues["q1"], 9)
    backup.dispatch(2)
    backup.tick(10 * RETURN)
    assert taker.bodies == ["q1"]
    backup.queues["q1"].unsubscribe(taker)
    assert "q1" not in backup.queues


def test_first_user_is_recorded_once_and_only_where_it_matters() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q", arguments={"qpid.auto_delete_timeout": 60})
    plain, _ = broker.declare_queue("plain")
    local, _ = broker.declare_queue("local", auto_delete=True, arguments={"qpid.replicate": "none"})
    for one in (queue, queue, plain, local):
        a_taker(one)
    assert [record for _, record in tape.records if isinstance(record, QueueUsed)] == [
        QueueUsed(queue.uid)
    ]


def test_a_browser_on_a_backup_is_no_user() -> None:
    tape = Tape()
    a_broker(tape).declare_queue("q", auto_delete=True)
    backup = copy_of(tape)
    queue = backup.queues["q"]
    queue.unsubscribe(a_taker(queue, browse=True))
    assert not queue.is_used
    backup.log_writer = tape
    backup.promoted(1)
    backup.tick(10 * RETURN)
    assert "q" in backup.queues


def test_a_sender_is_a_user_of_a_queue_that_ends_when_unused() -> None:
    tape = Tape()
    queue, _ = a_broker(tape).declare_queue(
        "q", arguments={"qpid.lifetime-policy": "delete-if-unused"}
    )
    a_poster(queue)
    assert tape.last == QueueUsed(queue.uid)


def test_queue_that_ends_when_empty_waits_for_its_first_message_after_a_failover_too() -> None:
    tape = Tape()
    queue, _ = a_broker(tape).declare_queue(
        "q", arguments={"qpid.lifetime-policy": "delete-if-empty"}
    )
    a_taker(queue)
    backup = copy_of(tape)
    backup.log_writer = tape
    backup.promoted(1)
    backup.tick(10 * RETURN)
    assert "q" in backup.queues


def test_orphans_of_a_closed_receiver_are_on_the_backups_alternate_in_order() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("altq")
    broker.bind("amq.fanout", "altq")
    queue, _ = broker.declare_queue("q", auto_delete=True, alternate="amq.fanout")
    taker = a_taker(queue)
    send(broker, "q", "a", "b", "c")
    queue.unsubscribe(taker)
    backup = copy_of(tape)
    assert list(backup.queues) == ["altq"] and contents(backup, "altq") == ["a", "b", "c"]
