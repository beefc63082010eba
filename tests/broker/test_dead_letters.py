"""Dead letters: what dies on a queue is where they go, in the batch in which it leaves, and says
where and why it died. What has no place there stays until it has.
"""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.broker.broker import LETTERS_A_TURN, RETRY_INTERVAL, Broker
from qpidha.broker.credit import SLOW_DISK
from qpidha.broker.policy import policy_asked_for
from qpidha.broker.queues.dead_letters import DEATHS, MARK
from qpidha.broker.queues.deletion import BYTES_A_TURN
from qpidha.broker.queues.queue import Queue
from qpidha.broker.transaction import Post, Transaction
from qpidha.model.duration import SECOND
from qpidha.model.encoding import Array, Described, Symbol, ULong, encode
from qpidha.model.errors import InvalidArgument, LimitExceeded, PreconditionFailed
from qpidha.model.features import QUEUE_KINDS
from qpidha.model.message import Message
from qpidha.model.message_view import (
    arrival,
    build,
    delivery_annotations,
    header,
    message_annotations,
    properties,
)
from qpidha.model.records import Cause, Dequeued, Enqueued
from tests.broker.parts import (
    Tape,
    a_broker,
    a_message,
    a_taker,
    contents,
    copy_of,
    expire,
    picture,
    remembered,
    send,
)

TO_DEAD = {"x-dead-letter-exchange": "/queues/dead"}
ONCE = {"x-dead-letter-strategy": "at-most-once"}


def a_queue(
    broker: Broker, name: str = "q", *, to: str = "/queues/dead", **arguments: Any
) -> Queue:
    given = {key.replace("_", "-"): value for key, value in arguments.items()}
    given["x-dead-letter-exchange"] = to
    return broker.declare_queue(name, arguments=given)[0]


def first(queue: Queue) -> Message:
    return next(iter(queue.messages.values()))


def retry(broker: Broker, now: int = SECOND) -> None:
    broker.dispatch(now)
    broker.tick(now + RETRY_INTERVAL)


def deaths(broker: Broker, queue: str) -> list[dict[Any, Any]]:
    """What the first message of a queue says of its deaths."""
    found = message_annotations(first(broker.queues[queue]).body())[DEATHS]
    assert isinstance(found, Array)
    return found.items


def die(queue: Queue, reason: str) -> None:
    """Have the first message die."""
    if reason == "rejected":
        queue.reject(first(queue))
    elif reason == "expired":
        expire(queue, 1 << 62)
    else:
        queue.enqueue(b"newcomer")


# -- one batch ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["rejected", "expired", "maxlen"])
def test_row_100_t_d1_a_message_that_dies_is_a_dead_letter_before_it_leaves(reason: str) -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("dead")
    queue = a_queue(broker, x_max_length=1)
    queue.enqueue(a_message("news"), 99)
    die(queue, reason)
    kinds = [record for _, record in tape.records if isinstance(record, (Enqueued, Dequeued))]
    assert isinstance(kinds[1], Enqueued) and kinds[1].queues == (broker.queues["dead"].uid,)
    assert isinstance(kinds[2], Dequeued) and kinds[2].queue == queue.uid
    (death,) = deaths(broker, "dead")
    assert (death["queue"], death["reason"], death["count"]) == ("q", reason, 1)
    assert first(broker.queues["dead"]).expires == 0
    assert picture(broker) == picture(copy_of(tape))
    cause = {"maxlen": "overflow"}.get(reason, reason)
    assert queue.departures[cause] == 1 and queue.not_rerouted == 0


def test_row_103_dead_letters_go_to_an_exchange_with_a_key_or_to_an_address() -> None:
    broker = a_broker()
    for name in ("one", "two", "three"):
        broker.declare_queue(name)
    broker.bind("amq.direct", "one", "news")
    broker.bind("amq.direct", "two", "dead")
    own = a_queue(broker, "own", to="amq.direct")
    keyed = a_queue(broker, "keyed", to="amq.direct", x_dead_letter_routing_key="dead")
    by_address = a_queue(broker, "address", to="/exchanges/amq.direct/dead")
    default = a_queue(broker, "default", to="", x_dead_letter_routing_key="three")
    for queue in (own, keyed, by_address, default):
        queue.enqueue(a_message("news"))
        queue.reject(first(queue))
    assert [len(broker.queues[name].messages) for name in ("one", "two", "three")] == [1, 2, 1]


def test_row_103_without_a_key_it_is_the_subject_or_the_name_of_the_queue() -> None:
    broker = a_broker()
    for key in ("news", "q"):
        broker.declare_queue(f"dead {key}")
        broker.bind("amq.direct", f"dead {key}", key)
    queue = a_queue(broker, to="amq.direct")
    for payload in (a_message("news"), a_message(), b"not AMQP"):
        queue.enqueue(payload)
        queue.reject(first(queue))
    assert [len(broker.queues[f"dead {key}"].messages) for key in ("news", "q")] == [1, 2]
    assert list(broker.queues["dead q"].messages.values())[1].body() == b"not AMQP"


@pytest.mark.parametrize("key", [None, "dead"])
def test_row_103_t_d16_further_keys_are_followed_unless_a_key_is_set(key: str | None) -> None:
    broker = a_broker()
    given = {"x_dead_letter_routing_key": key} if key else {}
    queue = a_queue(broker, to="amq.direct", **given)
    for name in ("own", "further", "dead"):
        broker.declare_queue(name)
        broker.bind("amq.direct", name, name)
    cc = ["further", "k" * 300, "nowhere"]
    queue.enqueue(build("m", properties={"subject": "own"}, annotations={"x-cc": cc}))
    queue.reject(first(queue))
    there = {name for name in ("own", "further", "dead") if broker.queues[name].messages}
    assert there == ({"dead"} if key else {"own", "further"}) and not queue.messages
    written = message_annotations(first(broker.queues[there.pop()]).body())
    assert written.get("x-cc") == (None if key else cc)


def test_a_queue_with_an_alternate_exchange_as_well_gives_it_what_is_left_when_it_ends() -> None:
    broker = a_broker()
    for name in ("dead", "old"):
        broker.declare_queue(name)
    broker.bind("amq.fanout", "old")
    queue, _ = broker.declare_queue("q", alternate="amq.fanout", arguments=TO_DEAD)
    send(broker, "q", "a", "b")
    queue.reject(first(queue))
    broker.delete_queue("q")
    assert (contents(broker, "dead"), contents(broker, "old")) == (["a"], ["b"])


def test_row_100_what_is_on_a_deleted_queue_becomes_dead_letters_if_that_is_asked_for() -> None:
    broker = a_broker(Tape())
    broker.declare_queue("dead")
    given = {**TO_DEAD, "qpidha.dead-letter-on-delete": True}
    queue, _ = broker.declare_queue("q", arguments=given)
    for subject in "ab":
        queue.enqueue(a_message(subject))
    broker.delete_queue("q")
    assert [message["reason"] for message in deaths(broker, "dead")] == ["queue-deleted"]
    found = broker.queues["dead"].messages.values()
    assert [properties(message.body())["subject"] for message in found] == ["a", "b"]
    a_queue(broker)
    send(broker, "q", "c")
    broker.delete_queue("q")
    assert len(found) == 2


# -- what they say --------------------------------------------------------------------------------


def test_row_101_t_d9_a_dead_letter_says_where_and_why_it_died() -> None:
    broker = a_broker()
    for name in ("dead", "deader"):
        broker.declare_queue(name, arguments={"x-dead-letter-exchange": "/queues/deader"})
    queue = a_queue(broker)
    sent = build(
        "x", header={"ttl": 5000, "durable": True, "priority": 7}, annotations={"x-mine": 1}
    )
    queue.enqueue(sent, 99)
    broker.dispatch(5 * SECOND)
    queue.acquire(first(queue))
    queue.reject(first(queue))
    died = first(broker.queues["dead"]).body()
    assert header(died) == {
        "durable": True,
        "priority": 7,
        "delivery_count": 1,
        "first_acquirer": False,
    }
    (death,) = deaths(broker, "dead")
    assert death == {
        "queue": "q",
        "reason": "rejected",
        "count": 1,
        "first-time": 5000,
        "last-time": 5000,
        "exchange": "",
        "routing-keys": Array(0xB1, ["q"]),
        "ttl": 5000,
    }
    annotations = message_annotations(died)
    assert annotations["x-mine"] == 1
    for which in ("first", "last"):
        said = [annotations[f"x-{which}-death-{what}"] for what in ("queue", "reason", "exchange")]
        assert said == ["q", "rejected", ""]
    broker.dispatch(6 * SECOND)
    expire_all(broker, "dead")
    newest, oldest = deaths(broker, "deader")
    assert (newest["queue"], newest["reason"], oldest) == ("dead", "expired", death)
    assert newest["routing-keys"] == Array(0xB1, ["dead"]) and "ttl" not in newest
    annotations = message_annotations(first(broker.queues["deader"]).body())
    assert annotations["x-first-death-queue"] == "q"
    assert annotations["x-last-death-reason"] == "expired"


def expire_all(broker: Broker, queue: str) -> None:
    """Let the messages of a queue expire, whatever they say themselves."""
    broker.queues[queue].drop(list(broker.queues[queue].messages.values()), Cause.EXPIRED)


def test_t_d9_the_same_death_again_is_counted_and_comes_first() -> None:
    broker = a_broker()
    queue = a_queue(broker, to="/queues/retry")
    a_queue(broker, "retry", to="/queues/q")
    queue.enqueue(a_message("x"))
    for turn in range(3):
        broker.dispatch(turn * SECOND)
        queue.reject(first(queue))
        found = deaths(broker, "retry")
        counts = [(death["queue"], death["count"]) for death in found]
        assert counts == [("q", turn + 1), ("retry", turn)][: 2 if turn else 1]
        assert (found[0]["first-time"], found[0]["last-time"]) == (0, turn * 1000)
        expire_all(broker, "retry")


def test_t_d9_what_a_client_says_of_deaths_does_not_count() -> None:
    broker = a_broker()
    broker.declare_queue("dead")
    queue = a_queue(broker)
    queue.enqueue(a_message("x"))
    queue.reject(first(queue))
    died = first(broker.queues["dead"])
    assert MARK in delivery_annotations(died.body())
    again, *_ = arrival(died.body(), 0)
    assert message_annotations(again)[DEATHS].items and not delivery_annotations(again)
    broker.queues["dead"].drop([died])
    queue.enqueue(again)
    expire_all(broker, "q")
    (death,) = deaths(broker, "dead")
    assert (death["reason"], death["count"]) == ("expired", 1)
    annotations = message_annotations(first(broker.queues["dead"]).body())
    assert annotations["x-first-death-reason"] == "expired"


@pytest.mark.parametrize("ttl", [-1, ULong(2**32), True, Symbol("x"), [1]])
def test_a_time_to_live_that_is_none_is_no_part_of_a_death(ttl: Any) -> None:
    broker = a_broker(Tape())
    broker.declare_queue("dead")
    queue = a_queue(broker)
    odd = encode(Described(ULong(0x70), [None, None, ttl]))
    payload, expires, _ = arrival(odd + a_message("s"), 1)
    broker.publish("", "q", payload, headers=dict, expires=expires)
    queue.reject(first(queue))
    assert not queue.messages and deaths(broker, "dead")[0].get("ttl") in (None, 1)


def test_t_q4_a_rejection_counts_as_a_delivery_and_earlier_ones_are_kept() -> None:
    broker = a_broker()
    broker.declare_queue("dead")
    queue = a_queue(broker)
    queue.enqueue(a_message("x"))
    for failed in (False, True, True):
        queue.acquire(first(queue))
        queue.requeue(first(queue), failed)
    expire_all(broker, "q")
    assert header(first(broker.queues["dead"]).body())["delivery_count"] == 2
    broker.purge("dead")
    queue.enqueue(a_message("x"))
    queue.requeue(first(queue), True)
    queue.reject(first(queue))
    assert header(first(broker.queues["dead"]).body())["delivery_count"] == 2


# -- cycles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["expired", "maxlen"])
def test_row_102_t_d12_a_cycle_in_which_nobody_rejects_is_broken(reason: str) -> None:
    broker = a_broker()
    queue = a_queue(broker, to="/queues/q", x_max_length=1, **ONCE)
    queue.enqueue(a_message("x"), 99)
    die(queue, reason)
    assert len(queue.messages) == (reason == "maxlen") and queue.not_rerouted == 1


def test_row_102_t_d12_what_is_rejected_may_come_back() -> None:
    broker = a_broker()
    queue = a_queue(broker, to="/queues/q")
    queue.enqueue(a_message("x"))
    for count in (1, 2, 3):
        queue.reject(first(queue))
        assert deaths(broker, "q")[0]["count"] == count
    assert len(queue.messages) == 1


def test_row_102_t_d12_a_cycle_of_two_queues_is_broken_where_it_closes() -> None:
    broker = a_broker()
    one, two = a_queue(broker, "one", to="/queues/two"), a_queue(broker, "two", to="/queues/one")
    one.enqueue(a_message("x"))
    expire_all(broker, "one")
    expire_all(broker, "two")
    assert (len(one.messages), len(two.messages), len(two.unplaced)) == (0, 1, 1)
    assert "died on before" in two.why_unplaced


@pytest.mark.parametrize("back", ["rejected", "moved"])
def test_what_comes_back_to_a_queue_that_takes_nothing_twice_is_not_lost(back: str) -> None:
    tape = Tape()
    broker = a_broker(tape)
    dedup = {"qpidha.dedup": "message-id"}
    work = broker.declare_queue(
        "work", arguments={"x-dead-letter-exchange": "/queues/dead", **dedup}
    )[0]
    dead = broker.declare_queue(
        "dead", arguments={"x-dead-letter-exchange": "/queues/work", **dedup}
    )[0]
    payload = build("m", properties={"message_id": "m"})
    for _ in range(2):  # The second one is sent again, and a duplicate.
        broker.publish("", "work", payload, headers=dict)
    for _ in range(3):
        work.reject(first(work))
        assert (len(work.messages), len(dead.messages)) == (0, 1)
        if back == "moved":
            assert broker.move("dead", "work").count == 1
        else:
            dead.reject(first(dead))
        assert (len(work.messages), len(dead.messages)) == (1, 0)
    broker.publish("", "work", payload, headers=dict)
    assert (len(work.messages), work.deduplicated) == (1, 2)
    copy = copy_of(tape)
    assert picture(broker) == picture(copy)
    assert remembered(work.window) == remembered(copy.queues["work"].window)


def test_a_queue_that_takes_nothing_twice_may_be_where_its_own_dead_letters_go() -> None:
    broker = a_broker(Tape())
    queue = a_queue(broker, to="/queues/q", **{"qpidha.dedup": "message-id"})
    broker.publish("", "q", build("m", properties={"message_id": "m"}), headers=dict)
    queue.reject(first(queue))
    assert len(queue.messages) == 1


def test_t_d4_a_held_cycle_goes_on_when_the_target_changes() -> None:
    broker = a_broker()
    broker.declare_queue("dead")
    queue = a_queue(broker, to="/queues/q")
    queue.enqueue(a_message("x"))
    expire_all(broker, "q")
    retry(broker)
    assert queue.statistics()["dlx_pending"] == 1
    other = a_queue(broker, "other")
    queue.reconfigure(other.spec)
    retry(broker, 5 * SECOND)
    assert not queue.messages and deaths(broker, "dead")[0]["reason"] == "expired"


# -- no place yet ---------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["rejected", "expired"])
@pytest.mark.parametrize("missing", ["exchange", "binding", "queue"])
def test_t_d2_t_d3_what_has_no_place_is_held_until_it_has(reason: str, missing: str) -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue = a_queue(broker, to="/queues/dead" if missing == "queue" else "dlx")
    broker.declare_queue("other")
    if missing == "binding":
        broker.declare_exchange("dlx", "fanout")
    queue.enqueue(a_message("x"), 99)
    die(queue, reason)
    for turn in range(6):
        retry(broker, turn * 10 * SECOND)
    assert queue.statistics()["dlx_pending"] == 1 == len(queue.messages)
    assert queue.why_unplaced and queue.not_rerouted == 0
    if missing == "exchange":
        broker.declare_exchange("dlx", "fanout")
    broker.declare_queue("dead")
    if missing != "queue":
        broker.bind("dlx", "dead")
    retry(broker, 100 * SECOND)
    assert not queue.messages and deaths(broker, "dead")[0]["reason"] == reason
    assert picture(broker) == picture(copy_of(tape))


@pytest.mark.parametrize("reason", ["rejected", "expired", "maxlen"])
def test_row_98_t_d11_at_most_once_drops_and_counts_what_has_no_place(reason: str) -> None:
    broker = a_broker()
    queue = a_queue(broker, to="dlx", x_max_length=1, **ONCE)
    queue.enqueue(a_message("x"), 99)
    die(queue, reason)
    assert (queue.not_rerouted, len(queue.unplaced)) == (1, 0)
    assert queue.statistics()["dlx_dropped"] == 1
    broker.purge("q")
    broker.declare_exchange("dlx", "fanout")
    broker.declare_queue("dead")
    broker.bind("dlx", "dead")
    queue.enqueue(a_message("y"), 99)
    die(queue, reason)
    assert deaths(broker, "dead")[0]["reason"] == reason and queue.not_rerouted == 1


def test_t_d5_a_dead_letter_is_on_all_its_queues_or_on_none() -> None:
    broker = a_broker(Tape())
    for name, limit in (("large", 9), ("full", 1)):
        broker.declare_queue(name, arguments={"qpid.max_count": limit})
        broker.bind("amq.fanout", name)
    send(broker, "full", "first")
    queue = a_queue(broker, to="amq.fanout")
    send(broker, "q", "a")
    queue.reject(first(queue))
    retry(broker)
    assert contents(broker, "large") == [] and len(queue.unplaced) == 1
    broker.purge("full")
    retry(broker, 5 * SECOND)
    assert contents(broker, "large") == contents(broker, "full") == ["a"]


def test_t_d6_dead_letters_come_in_the_order_of_the_deaths_as_there_is_room() -> None:
    tape = Tape()
    broker = a_broker(tape)
    dead, _ = broker.declare_queue("dead", arguments={"qpid.max_count": 1})
    queue = a_queue(broker)
    send(broker, "q", *"abcd")
    for message in list(queue.messages.values()):
        queue.reject(message)
    assert contents(broker, "dead") == ["a"] and len(queue.unplaced) == 3
    for turn, body in enumerate("abcd"):
        assert contents(broker, "dead") == [body]
        dead.drop(dead.available())
        if turn == 1:
            send(broker, "q", "e")
            queue.reject(list(queue.messages.values())[-1])
        retry(broker, turn * 10 * SECOND)
    assert contents(broker, "dead") == ["e"] and not queue.messages
    assert picture(broker) == picture(copy_of(tape))


@pytest.mark.parametrize("to", ["/queues/full", "missing", "amq.fanout"])
def test_only_the_first_is_tried_where_all_go_to_one_place(
    to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = a_broker()
    broker.declare_queue("full", arguments={"qpid.max_count": 1})
    broker.bind("amq.fanout", "full")
    send(broker, "full", "first")
    queue = a_queue(broker, to=to)
    send(broker, "q", *"abcdef")
    for message in list(queue.messages.values()):
        queue.reject(message)
    tried: list[bytes] = []
    send_on = Broker._send_on

    def noted(self: Broker, source: Queue, message: Message, *more: Any, stays: bool) -> Any:
        tried.append(message.body())
        return send_on(self, source, message, *more, stays=stays)

    monkeypatch.setattr(Broker, "_send_on", noted)
    retry(broker)
    assert tried == [b"a"] and len(queue.unplaced) == 6


@pytest.mark.parametrize(("strategy", "buried"), [({}, []), (ONCE, ["a"])])
def test_what_is_held_is_not_also_a_dead_letter_of_the_queue_that_refuses_it(
    strategy: dict[str, str], buried: list[str]
) -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("last")
    a_queue(broker, "full", to="/queues/last", x_max_length=1, x_overflow="reject-publish-dlx")
    queue = a_queue(broker, to="/queues/full", **strategy)
    send(broker, "full", "first")
    payload = a_message("a")
    broker.publish("", "q", payload, headers=dict)
    queue.reject(first(queue))
    retry(broker)
    retry(broker, 5 * SECOND)
    assert len(queue.unplaced) == len(queue.messages) == 1 - len(buried)
    found = broker.queues["last"].messages.values()
    assert [properties(message.body())["subject"] for message in found] == buried
    with pytest.raises(LimitExceeded):
        send(broker, "full", "sent")
    assert len(found) == len(buried) + 1
    assert picture(broker) == picture(copy_of(tape))


def test_t_d7_what_is_held_stays_held_when_the_strategy_changes() -> None:
    broker = a_broker()
    queue = a_queue(broker, to="dlx")
    send(broker, "q", "a")
    queue.reject(first(queue))
    queue.reconfigure(a_queue(broker, "other", to="dlx", **ONCE).spec)
    retry(broker)
    assert len(queue.unplaced) == 1
    broker.declare_exchange("dlx", "fanout")
    broker.declare_queue("dead")
    broker.bind("dlx", "dead")
    retry(broker, 5 * SECOND)
    assert contents(broker, "dead") == ["a"]


def test_t_d8_what_is_held_counts_towards_the_limit() -> None:
    broker = a_broker()
    queue = a_queue(broker, to="dlx", x_max_length=1, x_overflow="reject-publish")
    send(broker, "q", "a")
    queue.reject(first(queue))
    with pytest.raises(LimitExceeded):
        send(broker, "q", "b")
    broker.declare_exchange("dlx", "fanout")
    broker.declare_queue("dead")
    broker.bind("dlx", "dead")
    retry(broker)
    send(broker, "q", "b")


def test_row_99_what_is_held_gives_no_way_to_a_newcomer() -> None:
    broker = a_broker()
    queue = a_queue(broker, x_max_length=2)
    send(broker, "q", "a", "b")
    queue.reject(first(queue))
    with pytest.raises(LimitExceeded, match="full") as error:
        send(broker, "q", "c")
    assert "no queue" in error.value.text
    assert contents(broker, "q") == ["a", "b"] and len(queue.unplaced) == 1
    broker.declare_queue("dead")
    send(broker, "q", "c")
    assert (contents(broker, "q"), contents(broker, "dead")) == (["a", "c"], ["b"])
    retry(broker)
    assert (contents(broker, "q"), contents(broker, "dead")) == (["c"], ["b", "a"])


def test_row_105_drop_head_makes_dead_letters_in_order() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("dead")
    a_queue(broker, x_max_length=1)
    send(broker, "q", "m1", "m2", "m3")
    for one in (broker, copy_of(tape)):
        assert (contents(one, "q"), contents(one, "dead")) == (["m3"], ["m1", "m2"])


def test_a_message_for_two_queues_is_on_none_if_one_cannot_make_room() -> None:
    tape = Tape()
    broker = a_broker(tape)
    for name, to in (("q", "/queues/dead"), ("other", "/queues/missing")):
        a_queue(broker, name, to=to, x_max_length=1)
        broker.bind("amq.fanout", name)
    broker.declare_queue("dead")
    broker.publish("amq.fanout", "", b"a", headers=dict)
    with pytest.raises(LimitExceeded):
        broker.publish("amq.fanout", "", b"b", headers=dict)
    assert contents(broker, "other") == ["a"] and "b" not in contents(broker, "q")
    assert contents(broker, "dead") + contents(broker, "q") == ["a"]


def test_the_dead_letter_of_one_queue_does_not_take_the_room_of_another() -> None:
    broker = a_broker()
    broker.declare_queue("other", arguments={"qpid.max_count": 1})
    broker.bind("amq.fanout", "other")
    a_queue(broker, to="/queues/other", x_max_length=1)
    send(broker, "q", "a")
    broker.bind("amq.fanout", "q")
    with pytest.raises(LimitExceeded):
        broker.publish("amq.fanout", "", b"b", headers=dict)
    assert (contents(broker, "other"), contents(broker, "q")) == (["a"], [])


def test_a_commit_is_whole_though_a_queue_cannot_make_room() -> None:
    broker = a_broker(Tape())
    queue = a_queue(broker, to="dlx", x_max_length=1)
    transaction = Transaction(broker)
    for body in (b"a", b"b", b"c"):
        transaction.post(Post(body, 0, queue=queue))
    transaction.commit()
    assert contents(broker, "q") == ["a", "b", "c"] and queue.not_rerouted == 0


def test_queues_that_overflow_into_each_other_come_to_an_end() -> None:
    tape = Tape()
    broker = a_broker(tape)
    count = 100
    for number in range(count):
        a_queue(broker, f"q{number}", to=f"/queues/q{(number + 1) % count}", x_max_length=1)
    sent = [str(number) for number in range(count + 50)]
    taken = []
    for body in sent:
        try:
            send(broker, "q0", body)
        except LimitExceeded:
            continue
        taken.append(body)
    found = [body for number in range(count) for body in contents(broker, f"q{number}")]
    assert sorted(found) == sorted(taken) and len(taken) >= 50
    assert picture(broker) == picture(copy_of(tape))


def test_many_that_die_at_once_become_dead_letters_in_several_turns_and_in_order() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("dead")
    queue = a_queue(broker)
    count = 3 * LETTERS_A_TURN + 1
    bodies = [str(number) for number in range(count)]
    for body in bodies:
        queue.enqueue(body.encode(), 5)
    taker = a_taker(queue, 1)
    broker.dispatch(10)
    assert len(broker.queues["dead"].messages) == LETTERS_A_TURN and not taker.got
    turns = 1
    while queue.messages:
        assert broker.next_deadline <= 10
        broker.dispatch(10)
        broker.tick(10)
        turns += 1
    assert turns == 4 and contents(broker, "dead") == bodies
    assert picture(broker) == picture(copy_of(tape))


def test_large_ones_become_dead_letters_in_more_turns_and_wait_for_a_slow_disk() -> None:
    tape = Tape()
    broker = a_broker(tape)
    dead = broker.declare_queue("dead")[0]
    queue = a_queue(broker)
    size = 1 << 20
    for _ in range(20):
        queue.enqueue(b"x" * size, 5)
    a_taker(queue, 1)
    broker.dispatch(10)
    assert dead.bytes <= BYTES_A_TURN + 2 * size and len(dead.messages) >= BYTES_A_TURN // size
    first = len(dead.messages)
    broker.credit.withhold(SLOW_DISK, "too slow")
    for _ in range(3):
        broker.dispatch(10)
        broker.tick(10)
    assert len(dead.messages) == first and broker.next_deadline > 10
    broker.credit.withhold(SLOW_DISK, "")
    now = 10
    while queue.messages:
        before, now = len(dead.messages), max(broker.next_deadline, now)
        broker.dispatch(now)
        broker.tick(now)
        assert len(dead.messages) - before <= BYTES_A_TURN // size + 1
    assert now < SECOND and len(dead.messages) == 20
    assert picture(broker) == picture(copy_of(tape))


@pytest.mark.parametrize("way", ["dead letters", "alternate"])
def test_a_newcomer_has_only_so_many_become_dead_letters_at_once(way: str) -> None:
    tape = Tape()
    broker = a_broker(tape)
    dead = broker.declare_queue("dead")[0]
    broker.declare_exchange("lost", "fanout")
    broker.bind("lost", "dead")
    arguments = {"qpid.policy_type": "ring", "qpid.max_size": 10_000}
    if way == "dead letters":
        arguments["x-dead-letter-exchange"] = "lost"
    alternate = "lost" if way == "alternate" else ""
    queue = broker.declare_queue("q", alternate=alternate, arguments=arguments)[0]
    count = 10_000 // 10
    send(broker, "q", *["x" * 10] * count)
    send(broker, "q", "y" * 9_000)
    assert len(dead.messages) == 100 and len(queue.messages) == count - 100 + 1
    with pytest.raises(LimitExceeded, match="have to leave first"):
        send(broker, "q", "z" * 9_000)
    send(broker, "q", "w" * 10)
    assert len(dead.messages) == 101
    turns = 0
    while broker.walks:
        before = len(dead.messages)
        broker.dispatch(1)
        broker.go_on_walking(1 << 60)
        assert len(dead.messages) - before <= 1000
        turns += 1
    assert turns and queue.bytes <= 10_000 and not queue.is_eased
    assert len(queue.messages) + len(dead.messages) == count + 2
    send(broker, "q", "z" * 9_000)
    assert picture(broker) == picture(copy_of(tape))


def test_a_ring_of_large_messages_comes_down_to_a_lower_limit_by_their_bytes() -> None:
    broker = a_broker(Tape())
    dead = broker.declare_queue("dead")[0]
    arguments = {"x-max-length": 100, "x-dead-letter-exchange": "/queues/dead"}
    queue = broker.declare_queue("q", arguments=arguments)[0]
    size = 1 << 20
    send(broker, "q", *["x" * size] * 30)
    broker.set_policy(policy_asked_for("p", "^q$", {"max-length": 2}))
    broker.follow_policies(100)
    send(broker, "q", "x")
    assert len(dead.messages) == BYTES_A_TURN // size
    while broker.walks:
        before = len(dead.messages)
        broker.go_on_walking(1 << 60)
        assert len(dead.messages) - before <= BYTES_A_TURN // size
    assert len(queue.messages) == 2 and len(dead.messages) == 29


@pytest.mark.parametrize("way", ["auto-delete", "owner", "delete"])
def test_what_waits_only_for_another_turn_is_a_dead_letter_though_its_queue_ends(way: str) -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("dead")
    owner = object() if way == "owner" else None
    lifetime = {"qpid.lifetime-policy": "delete-on-close"} if owner else {}
    queue, _ = broker.declare_queue(
        "q",
        auto_delete=way == "auto-delete",
        owner=owner,
        arguments={**TO_DEAD, **lifetime, "qpid.replicate": "all"},
    )
    count = LETTERS_A_TURN + 10
    send(broker, "q", *map(str, range(count)), "alive")
    taker = a_taker(queue, count)
    broker.dispatch(1)
    for message in taker.got:
        queue.reject(message)
    assert len(queue.unplaced) == 10
    queue.unsubscribe(taker)
    if owner is not None:
        broker.owner_gone(owner)
    elif way == "delete":
        broker.delete_queue("q")
    assert "q" not in broker.queues
    assert contents(broker, "dead") == [str(number) for number in range(count)]
    assert picture(copy_of(tape)) == picture(broker)


def test_what_has_no_place_among_the_dead_letters_goes_with_its_queue() -> None:
    broker = a_broker(Tape())
    broker.declare_queue("other")
    broker.bind("amq.fanout", "other")
    queue, _ = broker.declare_queue(
        "q", alternate="amq.fanout", arguments={"x-dead-letter-exchange": "missing"}
    )
    send(broker, "q", "a", "b")
    queue.reject(first(queue))
    assert len(queue.unplaced) == 1
    broker.delete_queue("q")
    assert "q" not in broker.queues and contents(broker, "other") == ["a", "b"]


@pytest.mark.parametrize("way", ["alternate", "on-delete"])
def test_what_a_full_queue_refuses_is_in_one_place_though_its_queue_ends(way: str) -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("last")
    broker.declare_queue("other")
    broker.bind("amq.fanout", "other")
    a_queue(broker, "full", to="/queues/last", x_max_length=1, x_overflow="reject-publish-dlx")
    to_full = {"x-dead-letter-exchange": "/queues/full"}
    if way == "alternate":
        queue, _ = broker.declare_queue("q", alternate="amq.fanout", arguments=to_full)
    else:
        on_delete = {"qpidha.dead-letter-on-delete": True}
        queue, _ = broker.declare_queue("q", arguments=to_full | on_delete)
    send(broker, "full", "first")
    broker.publish("", "q", a_message("a"), headers=dict)
    queue.reject(first(queue))
    assert len(queue.unplaced) == 1
    broker.delete_queue("q")
    assert "q" not in broker.queues
    places = {name: len(broker.queues[name].messages) for name in ("last", "other")}
    assert places == {"last": way == "on-delete", "other": way == "alternate"}
    assert picture(broker) == picture(copy_of(tape))


def test_what_waits_only_for_another_turn_has_the_next_one() -> None:
    broker = a_broker()
    broker.declare_queue("dead")
    first, second = a_queue(broker, "first"), a_queue(broker, "second")
    for queue, count in ((first, 3 * LETTERS_A_TURN), (second, LETTERS_A_TURN)):
        for _ in range(count):
            queue.enqueue(a_message(), 1)
    broker.dispatch(SECOND)
    expire(first, 1)
    broker.tick(SECOND)
    expire(second, 1)  # in a turn that has made as many dead letters as it may
    for turn in (3, 4):
        broker.dispatch(SECOND)
        broker.tick(SECOND)
        assert len(broker.queues["dead"].messages) == turn * LETTERS_A_TURN


def test_a_successor_finds_what_had_no_place_again() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue = a_queue(broker)
    queue.enqueue(a_message("x"), 99)
    expire(queue, 100)
    assert len(queue.unplaced) == 1
    backup = copy_of(tape)
    backup.log_writer = tape
    backup.promoted(1)
    backup.declare_queue("dead")
    expire(backup.queues["q"], 100)
    assert not backup.queues["q"].messages and deaths(backup, "dead")[0]["count"] == 1


def test_t_d14_only_the_broker_that_decides_places_dead_letters() -> None:
    """RabbitMQ has a worker for it, of which there must be one; here it is the primary itself."""
    tape, nothing = Tape(), Tape()
    former = a_broker(tape)
    queue = a_queue(former)
    for subject in "ab":
        queue.enqueue(a_message(subject), 99)
    expire(queue, 100)
    former.declare_queue("dead")
    backup = copy_of(tape)
    backup.log_writer = nothing
    for turn in range(1, 4):
        retry(backup, turn * 10 * SECOND)
    assert not nothing.records and len(backup.queues["q"].messages) == 2
    former.passive = True
    former.abandon_walks()
    former.log_writer = nothing
    backup.log_writer = tape
    backup.promoted(50 * SECOND)
    expire(backup.queues["q"], 100 * SECOND)
    retry(former, 60 * SECOND)
    assert not nothing.records and not former.queues["dead"].messages
    letters = [properties(one.body())["subject"] for one in backup.queues["dead"].messages.values()]
    assert letters == ["a", "b"] and not backup.queues["q"].messages
    assert picture(copy_of(tape)) == picture(backup)


def test_t_d15_of_two_hundred_queues_none_is_stuck_after_twenty_failovers() -> None:
    tape = Tape()
    broker = a_broker(tape)
    names = [f"q{number}" for number in range(200)]
    for name in names:
        a_queue(broker, name)
    sent = 0
    for turn in range(20):
        now = (turn + 1) * 10 * SECOND
        for name in names[turn::20]:
            queue = broker.queues[name]
            queue.enqueue(str(sent).encode(), 99)
            expire(queue, now)
            sent += 1
        if turn == 10:
            broker.declare_queue("dead", arguments={"qpid.max_count": 50})
        broker = copy_of(tape)
        broker.log_writer = tape
        broker.promoted(now)
        for name in names:
            expire(broker.queues[name], now)
        retry(broker, now)
    for turn in range(20):
        now = (30 + turn) * 10 * SECOND
        taken = list(broker.queues["dead"].messages.values())
        assert len(taken) <= 50
        for message in taken:
            broker.queues["dead"].dequeue(message)
        sent -= len(taken)
        for _ in range(10):
            retry(broker, now)
            now += RETRY_INTERVAL
    assert sent == 0 and not any(broker.queues[name].messages for name in names)


# -- declarations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"x-dead-letter-routing-key": "k"}, PreconditionFailed),
        ({"x-dead-letter-strategy": "at-least-once"}, PreconditionFailed),
        ({"qpidha.dead-letter-on-delete": True}, PreconditionFailed),
        ({"x-dead-letter-exchange": 1}, InvalidArgument),
        ({**TO_DEAD, "x-dead-letter-routing-key": 1}, InvalidArgument),
        ({**TO_DEAD, "x-dead-letter-routing-key": "k"}, PreconditionFailed),
        ({**TO_DEAD, "x-dead-letter-strategy": "sometimes"}, InvalidArgument),
        ({"x-dead-letter-exchange": "/queues/%zz"}, InvalidArgument),
        ({"x-dead-letter-exchange": "/queues/"}, InvalidArgument),
        ({"x-dead-letter-exchange": "/exchanges/"}, InvalidArgument),
        ({"x-dead-letter-exchange": "/exchanges//k"}, InvalidArgument),
        ({"x-dead-letter-exchange": "/queue/dead"}, InvalidArgument),
        ({"x-dead-letter-exchange": "/topic/dead"}, InvalidArgument),
        ({"x-dead-letter-exchange": "e" * 256}, InvalidArgument),
        ({"x-dead-letter-exchange": "a\n"}, InvalidArgument),
        ({"x-dead-letter-exchange": f"/queues/{'q' * 256}"}, InvalidArgument),
        ({"x-dead-letter-exchange": "e", "x-dead-letter-routing-key": "k" * 256}, InvalidArgument),
    ],
)
def test_dead_letters_that_cannot_go_anywhere_are_refused(
    arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        a_broker(Tape()).declare_queue("q", arguments=arguments)


def test_dead_letters_are_refused_until_every_broker_knows_them() -> None:
    broker = a_broker(Tape())
    del broker.features[QUEUE_KINDS]
    with pytest.raises(PreconditionFailed, match="every broker"):
        a_queue(broker)
