"""What must survive a restart: which objects a broker alone records, and when the log has to be on
disk.
"""

from __future__ import annotations

import pytest

from qpidha.broker import broker as broker_module
from qpidha.broker.broker import RETRY_INTERVAL, RETURN, SILENCE, Broker
from qpidha.broker.queues.queue import Queue
from qpidha.broker.queues.times import GRAIN
from qpidha.model.effects import Announce
from qpidha.model.errors import LimitExceeded, PreconditionFailed
from qpidha.model.event_codes import NO_STORE
from qpidha.model.message_view import build
from qpidha.model.records import (
    Bound,
    Dequeued,
    Enqueued,
    ExchangeDeclared,
    QueueDeclared,
    QueueDeleted,
    Unbound,
)
from qpidha.model.settings import Settings
from qpidha.store.log import Log
from tests.broker.parts import Tape, a_broker, a_message, a_taker, contents, copy_of, picture, send

DURABLE = build("d", header={"durable": True})
TRANSIENT = build("t", header={"durable": False})


def alone(tape: Tape | None, **settings: object) -> Broker:
    """A broker alone with a journal; objects have no level, as is the default."""
    broker = a_broker(None, **{"ha_replicate": "none", **settings})
    broker.records_durable_only = True
    broker.log_writer = tape
    return broker


def restarted(tape: Tape, now: int = 1) -> Broker:
    """The broker that reads that journal."""
    broker = alone(None)
    for sequence, record in tape.records:
        broker.apply(sequence, record)
    broker.log_writer = tape
    broker.promoted(now)
    return broker


@pytest.mark.parametrize("level", ["none", "configuration", "all"])
def test_broker_alone_records_what_is_durable_whatever_its_level(level: str) -> None:
    tape = Tape()
    broker = alone(tape, ha_replicate=level)
    queue, sequence = broker.declare_queue("q", durable=True)
    other, nothing = broker.declare_queue("t")
    broker.declare_exchange("ex", durable=True)
    broker.declare_exchange("tex")
    assert queue.uid == sequence == 1 and other.uid < 0 and nothing == 0
    assert [type(record) for _, record in tape.records] == [QueueDeclared, ExchangeDeclared]
    assert send(broker, "q", "a") == [3] and send(broker, "t", "b") == [0]
    assert tape.last == Enqueued((1,), b"a")
    taker = a_taker(queue, 1)
    broker.dispatch(1)
    queue.dequeue(taker.got[0])
    assert tape.last == Dequeued(1, (3,))
    assert broker.delete_queue("t").sequence == 0
    assert broker.delete_queue("q").sequence == len(tape.records)
    assert tape.last == QueueDeleted(1)


def test_bindings_between_durable_objects_are_recorded_and_no_others() -> None:
    tape = Tape()
    broker = alone(tape)
    broker.declare_queue("q", durable=True)
    broker.declare_queue("t")
    broker.declare_exchange("ex", durable=True)
    broker.declare_exchange("tex")
    for exchange in ("ex", "tex", "amq.direct"):
        for queue in ("q", "t"):
            broker.bind(exchange, queue, "k")
    assert [record for _, record in tape.records if isinstance(record, Bound)] == [
        Bound(2, 1, "k"),
        Bound(-2, 1, "k"),
    ]
    broker.bind("ex", "q", "mine", {"qpid.replicate": "none"})
    assert isinstance(tape.last, Bound)  # there are no others that could learn of it
    assert broker.unbind("ex", "q", "mine") == len(tape.records) and isinstance(tape.last, Unbound)
    assert broker.unbind("tex", "q", "k") == 0


def test_message_for_durable_and_transient_queues_is_recorded_for_the_durable_ones() -> None:
    tape = Tape()
    broker = alone(tape)
    for name in ("q", "t", "u"):
        broker.declare_queue(name, durable=name != "t")
        broker.bind("amq.fanout", name)
    broker.publish("amq.fanout", "", b"a", headers=dict)
    assert tape.last == Enqueued((broker.queues["q"].uid, broker.queues["u"].uid), b"a")
    assert contents(broker, "t") == ["a"]


def test_restarted_broker_has_what_is_durable_and_goes_on_with_it() -> None:
    tape = Tape()
    broker = alone(tape)
    broker.declare_queue("q", durable=True)
    broker.declare_queue("t")
    broker.declare_exchange("ex", "fanout", durable=True, arguments={"mine": 1})
    broker.bind("ex", "q")
    broker.bind("amq.direct", "q", "k")
    send(broker, "q", "a", "b")
    again = restarted(tape)
    assert picture(again) == picture(broker) and list(again.queues) == ["q"]
    again.publish("ex", "", b"c", headers=dict)
    again.publish("amq.direct", "k", b"d", headers=dict)
    assert contents(again, "q") == ["a", "b", "c", "d"]
    assert picture(restarted(tape)) == picture(again)


def test_restarted_broker_written_as_a_checkpoint_is_the_same() -> None:
    tape = Tape()
    broker = alone(tape)
    queue, _ = broker.declare_queue("q", durable=True, auto_delete=True)
    broker.bind("amq.direct", "q", "k", {"qpid.replicate": "none"})
    a_taker(queue)
    other = alone(None)
    for sequence, record in broker.objects():
        other.apply(sequence, record)
    assert picture(other) == picture(broker)
    assert other.queues["q"].is_used


@pytest.mark.parametrize(
    ("options", "is_owned"),
    [
        ({"exclusive": True, "auto_delete": True}, True),
        ({"arguments": {"qpid.lifetime-policy": "delete-on-close"}}, True),
        ({"auto_delete": True}, False),
    ],
)
def test_durable_queue_whose_users_are_gone_is_at_its_end_after_a_restart(
    options: dict[str, object], is_owned: bool
) -> None:
    tape = Tape()
    broker = alone(tape)
    queue, _ = broker.declare_queue(
        "q", durable=True, owner=object() if is_owned else None, **options
    )  # type: ignore[arg-type]
    assert queue.uid > 0
    if not is_owned:
        a_taker(queue)
    again = restarted(tape, 1)
    again.tick(RETURN)
    assert "q" in again.queues
    again.tick(RETURN + 1)
    assert "q" not in again.queues and isinstance(tape.last, QueueDeleted)


def test_exclusive_queue_of_a_dead_owner_is_anybodys_after_a_restart() -> None:
    tape = Tape()
    alone(tape).declare_queue("q", durable=True, exclusive=True, owner=object())
    again = restarted(tape)
    again.tick(10 * RETURN)
    owner = object()
    queue, _ = again.declare_queue("q", durable=True, exclusive=True, owner=owner)
    assert queue.owner is owner


def test_owner_that_comes_back_in_time_keeps_its_queue() -> None:
    tape = Tape()
    alone(tape).declare_queue("q", durable=True, exclusive=True, auto_delete=True, owner=object())
    again = restarted(tape)
    again.declare_queue("q", durable=True, exclusive=True, auto_delete=True, owner=object())
    again.tick(10 * RETURN)
    assert "q" in again.queues


def test_queue_recorded_by_a_broker_alone_keeps_its_messages_in_a_cluster() -> None:
    tape = Tape()
    broker = alone(tape)
    broker.declare_queue("q", durable=True)
    send(broker, "q", "a")
    member = copy_of(tape)
    member.log_writer = tape
    member.promoted(1)
    assert send(member, "q", "b") == [len(tape.records)]
    assert contents(member, "q") == ["a", "b"]


@pytest.mark.parametrize("level", ["none", "configuration", "all"])
def test_what_a_broker_alone_accepted_is_in_every_copy_of_a_cluster_whatever_its_level(
    level: str,
) -> None:
    tape = Tape()
    broker = alone(tape)
    broker.declare_queue(
        "q", durable=True, arguments={"qpid.replicate": level, "qpidha.dedup": "message-id"}
    )
    broker.bind("amq.direct", "q", "k", {"qpid.replicate": "none"})
    send(broker, "q", "a", "b")
    member = copy_of(tape)
    assert contents(member, "q") == ["a", "b"]
    queue = member.queues["q"]
    assert [message.sequence for message in member.messages_after(queue, 0, 1 << 20)] == list(
        queue.messages
    )
    assert Bound in [type(record) for _, record in member.objects()]
    member.log_writer = tape
    member.promoted(1)
    taker = a_taker(queue, 1)
    member.dispatch(1)
    queue.dequeue(taker.got[0])
    assert isinstance(tape.last, Dequeued)
    assert send(member, "q", "c") == [len(tape.records)]
    assert contents(copy_of(tape), "q") == ["b", "c"]
    assert member.unbind("amq.direct", "q", "k") == len(tape.records)


def test_messages_of_a_queue_that_the_log_has_replace_those_that_were_kept_nowhere() -> None:
    tape = Tape()
    member = a_broker(tape)
    queue, _ = member.declare_queue(
        "q",
        durable=True,
        arguments={"qpid.replicate": "configuration", "qpidha.dedup": "message-id"},
    )
    for body in ("one", "two", "three"):  # in memory only, as messages 1 to 3
        queue.enqueue(build(body, properties={"message_id": body}))
    member.log_writer = None
    member.passive = True
    late = build("late", properties={"message_id": "late"})
    member.apply(
        2, Enqueued((queue.uid,), late)
    )  # of another primary, which knows that the log has messages of this queue
    assert [message.body() for message in member.messages_after(queue, 0, 1 << 20)] == [late]
    assert len(queue.messages) == 1 and queue.bytes == len(late)
    assert queue.window is not None and len(queue.window) == 1


# When the log must be on disk.


def synced(tape: Tape) -> bool:
    was, tape.must_sync = tape.must_sync, False
    return was


def test_durable_message_on_a_durable_queue_must_be_on_disk_and_so_must_its_end() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q", durable=True)
    synced(tape)
    sequence = queue.enqueue(TRANSIENT)
    assert not synced(tape)
    queue.dequeue(queue.messages[sequence])
    assert not synced(tape)
    sequences = [queue.enqueue(DURABLE), queue.enqueue(DURABLE)]
    assert synced(tape)
    queue.dequeue(queue.messages[sequences[0]])
    assert synced(tape)
    broker.purge("q")
    assert synced(tape)


def test_durable_message_on_a_transient_queue_need_not_be_on_disk() -> None:
    tape = Tape()
    queue, _ = a_broker(tape).declare_queue("q")
    synced(tape)
    queue.dequeue(queue.messages[queue.enqueue(DURABLE)])
    assert not synced(tape)


def test_durable_message_for_several_queues_must_be_on_disk_if_one_of_them_is_durable() -> None:
    tape = Tape()
    broker = a_broker(tape)
    for name in ("t", "u", "q"):
        broker.declare_queue(name, durable=name == "q")
        broker.bind("amq.fanout", name)
    synced(tape)
    broker.publish("amq.fanout", "", TRANSIENT, headers=dict)
    assert not synced(tape)
    broker.publish("amq.fanout", "", DURABLE, headers=dict)
    assert synced(tape)
    broker.purge("t")
    assert not synced(tape)
    broker.purge("q")
    assert synced(tape)


def test_end_of_a_message_that_was_there_before_a_restart_must_be_on_disk() -> None:
    tape = Tape()
    broker = alone(tape)
    queue, _ = broker.declare_queue("q", durable=True)
    queue.enqueue(DURABLE)
    synced(tape)
    again = restarted(tape)
    assert not synced(tape)
    again.purge("q")
    assert synced(tape)


def a_long_durable_queue(monkeypatch: pytest.MonkeyPatch) -> tuple[Tape, Broker, Queue]:
    monkeypatch.setattr(broker_module, "WALKED_A_TURN", 2)
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q", durable=True)
    for _ in range(7):
        queue.enqueue(DURABLE, expires=100)
    synced(tape)
    return tape, broker, queue


@pytest.mark.parametrize("holds", [False, True])
def test_the_end_of_a_long_purge_must_be_on_disk_and_is_what_is_waited_for(
    holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape, broker, queue = a_long_durable_queue(monkeypatch)
    if holds:
        queue.acquire(queue.messages[queue.ordering.last])
    purge = broker.purge("q")
    while not purge.is_over:
        assert not synced(tape)
        broker.go_on_walking(1 << 60)
    assert synced(tape) and purge.sequence == tape.end and len(queue.messages) == holds
    copy = copy_of(tape)
    assert picture(copy) == picture(broker)
    assert copy.queues["q"].departures["purged"] == 7 - holds


def test_what_expires_is_not_waited_for_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    tape, _, queue = a_long_durable_queue(monkeypatch)
    assert queue.look(1000 * GRAIN, 100) == 7
    assert not queue.messages and not synced(tape)


# While no message can be kept.


def test_no_recorded_message_is_taken_while_there_is_a_reason_and_consuming_goes_on() -> None:
    tape = Tape()
    broker = alone(tape)
    queue, _ = broker.declare_queue("q", durable=True)
    broker.declare_queue("t")
    send(broker, "q", "a", "b")
    broker.refuse_publishing = "there is no space on the disk"
    broker.declare_queue("new", durable=True)
    for name in ("q", "new"):
        with pytest.raises(LimitExceeded, match="there is no space on the disk"):
            send(broker, name, "c")
        broker.bind("amq.fanout", name)
    with pytest.raises(LimitExceeded, match="there is no space on the disk"):
        broker.publish("amq.fanout", "", b"c", headers=dict)
    send(broker, "t", "not on disk")
    taker = a_taker(queue, 1)
    broker.dispatch(1)
    queue.dequeue(taker.got[0])
    assert contents(broker, "q") == ["b"] and contents(broker, "new") == []
    broker.refuse_publishing = ""
    send(broker, "q", "d")
    send(broker, "new", "e")
    assert contents(broker, "q") == ["b", "d"]


def test_what_is_rejected_stays_while_nothing_can_be_recorded() -> None:
    broker = a_broker(Tape())
    broker.declare_queue("dead")
    broker.bind("amq.fanout", "dead")
    queue, _ = broker.declare_queue("q", alternate="amq.fanout")
    queue.enqueue(a_message("s"))
    broker.refuse_publishing = "full"
    taker = a_taker(queue, 1)
    broker.dispatch(1)
    queue.reject(taker.got[0])
    broker.dispatch(1)
    broker.tick(1 + RETRY_INTERVAL)
    assert not broker.queues["dead"].messages and len(queue.unplaced) == 1
    broker.refuse_publishing = ""
    broker.dispatch(2 + RETRY_INTERVAL)
    broker.tick(2 + 2 * RETRY_INTERVAL)
    assert len(broker.queues["dead"].messages) == 1 and not queue.messages


def test_queues_keep_their_limits_when_publishing_is_allowed_again() -> None:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q", arguments={"qpid.max_count": 1})
    broker.refuse_publishing = "full"
    broker.refuse_publishing = ""
    queue.enqueue(b"a")
    with pytest.raises(LimitExceeded, match="it cannot take"):
        queue.enqueue(b"b")


def without_store(tape: list[Announce] | None = None, **settings: object) -> Broker:
    """A broker alone that keeps nothing on disk."""
    broker = Broker(
        Settings(**settings),  # type: ignore[arg-type]
        None,
        (tape if tape is not None else []).append,
        lambda: "uuid",
    )
    broker.has_store = False
    return broker


def test_what_is_durable_is_refused_where_nothing_outlives_a_restart() -> None:
    broker = without_store()
    for declare in (broker.declare_queue, broker.declare_exchange):
        with pytest.raises(PreconditionFailed, match="x cannot be durable") as refused:
            declare("x", durable=True)
        assert "no data-dir" in refused.value.reason
        assert "durable-without-store=accept" in refused.value.hint
    with pytest.raises(PreconditionFailed):
        broker.declare_queue("x", arguments={"x-queue-type": "quorum", "durable": True})
    assert "x" not in broker.queues and "x" not in broker.exchanges
    broker.declare_queue("x")
    send(broker, "x", DURABLE.decode("latin-1"))  # A durable message says nothing of its queue.
    assert len(broker.queues["x"].messages) == 1


def test_what_is_durable_is_accepted_with_a_warning_if_that_is_said() -> None:
    told: list[Announce] = []
    broker = without_store(told, durable_without_store="accept")
    broker.declare_queue("q", durable=True)
    broker.declare_queue("q", durable=True)
    broker.declare_queue("r", durable=True)
    warnings = [one for one in told if one.level == "warning"]
    assert len(warnings) == 1, "one in a minute"
    assert warnings[0].event_code == NO_STORE
    assert "q was declared durable, and is not" in warnings[0].text
    broker.now += SILENCE
    broker.declare_exchange("e", durable=True)
    assert "exchange e" in [one for one in told if one.level == "warning"][1].text


@pytest.mark.parametrize("durable", [True, False])
def test_the_disk_is_waited_for_by_what_becomes_of_something_durable(durable: bool) -> None:
    log = Log(1 << 20)
    log.start_epoch(1)
    broker = a_broker(log)

    def syncs() -> list[bool]:
        last = log.last
        log.seal()
        log.committed = broker.committed = log.last
        return [batch.durable for batch in log.batches(last + 1)]

    queue, _ = broker.declare_queue("q", durable=durable, auto_delete=True)
    assert syncs() == [durable]
    broker.declare_exchange("ex", durable=durable)
    assert syncs() == [durable]
    for name in ("ex", "amq.topic"):
        broker.bind(name, "q", "k")
        assert syncs() == [durable]
    broker.unbind("amq.topic", "q", "k")
    assert syncs() == [durable]
    a_taker(queue)
    assert syncs() == [durable], "it has a user"
    broker.declare_exchange("other", durable=not durable)
    assert syncs() == [not durable]
    broker.bind("other", "q", "k")
    assert syncs() == [False], "only one of both is durable"
    broker.delete_queue("q")
    assert syncs() == [durable]
    broker.delete_exchange("ex")
    assert syncs() == [durable]


def test_who_is_done_with_a_replaced_message_waits_for_what_replaced_it() -> None:
    log = Log(1 << 20)
    log.start_epoch(1)
    broker = a_broker(log)
    queue, _ = broker.declare_queue("q", arguments={"qpid.last_value_queue_key": "k"})
    other, _ = broker.declare_queue("other")
    log.seal()
    taker = a_taker(queue, 1)
    for body in ("1", "2"):
        queue.enqueue(build(body, application_properties={"k": "v"}))
        broker.dispatch(1)
    (first,) = taker.got
    other.enqueue(TRANSIENT)  # Sent settled: nobody waits for it.
    place = queue.dequeue(first)
    (last,) = other.messages.values()
    assert place == last.sequence
    other.dequeue(last)
    assert last.sequence not in log.consumed
