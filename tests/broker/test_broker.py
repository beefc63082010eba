"""The broker's decisions: declaring, replicate levels, publishing to several queues, ownership and the end of queues."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.broker.broker import EXPIRY_INTERVAL, Broker
from qpidha.store.log import Log
from qpidha.words.errors import InvalidArgument, LimitExceeded, NotFound, PreconditionFailed, RefusedRequest, ResourceLocked
from qpidha.words.records import Bound, Dequeued, Enqueued, QueueDeclared, QueueDeleted, Unbound
from tests.broker.parts import Taker, Tape, a_broker, a_message, a_taker, contents, copy_of, send

SECOND = 1_000_000_000


def test_declared_queue_is_recorded_under_the_sequence_that_is_its_uid() -> None:
    tape = Tape()
    queue, sequence = a_broker(tape).declare_queue("q", durable=True, arguments={"mine": 1})
    assert queue.uid == sequence == 1
    assert tape.last == QueueDeclared(
        "q", "uuid-1", durable=True, arguments={"mine": 1, "qpid.replicate": "all", "qpid.ha-uuid": "uuid-1"}
    )  # fmt: skip


def test_same_declaration_again_gives_the_same_queue() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q", arguments={"qpid.max_count": 3})
    assert broker.declare_queue("q", arguments={"qpid.max_count": 3}) == (queue, 0)
    assert broker.declare_queue("q", arguments={"qpid.max_count": 3, "qpid.replicate": "all"}) == (queue, 0)
    assert len(tape.records) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"durable": True},
        {"auto_delete": True},
        {"exclusive": True},
        {"alternate": "amq.fanout"},
        {"arguments": {"qpid.max_count": 3}},
        {"arguments": {"qpid.replicate": "none"}},
    ],
)
def test_different_declaration_of_an_existing_queue_is_refused(other: dict[str, Any]) -> None:
    broker = a_broker()
    broker.declare_queue("q")
    with pytest.raises(PreconditionFailed):
        broker.declare_queue("q", **other)


def test_a_different_declaration_is_told_what_exists_and_what_it_asked_for() -> None:
    broker = a_broker()
    broker.declare_queue("q", arguments={"qpid.max_count": 5})
    with pytest.raises(
        PreconditionFailed, match="q exists with durable=no, qpid.max_count=5, you asked for durable=yes, qpid.max_count=none"
    ):
        broker.declare_queue("q", durable=True)


@pytest.mark.parametrize(
    "arguments",
    [
        {"qpid.replicate": "bogus"},
        {"qpid.policy_type": "self-destruct"},
        {"qpid.policy_type": "flow_to_disk"},
        {"qpid.priorities": 10},
        {"x-qpid-priorities": 10},
        {"qpid.last_value_queue_key": "k"},
        {"qpid.no_such_thing": 1},
        {"qpid.max_count": -1},
        {"qpid.max_count": "many"},
        {"qpid.max_size": True},
        {"qpid.max_size": 2**63},
        {"qpid.max_size": "9" * 19},
        {"qpid.max_size": "9" * 5000},
        {"qpid.max_size": "\u0665"},
        {"qpid.auto_delete_timeout": "soon"},
        {"qpid.auto_delete_timeout": float("nan")},
        {"qpid.auto_delete_timeout": float("inf")},
        {"qpid.auto_delete_timeout": None},
        {"qpid.lifetime-policy": "for-ever"},
    ],
)
def test_argument_that_cannot_be_followed_is_refused_and_nothing_created(arguments: dict[str, Any]) -> None:
    tape = Tape()
    broker = a_broker(tape)
    with pytest.raises(InvalidArgument) as refusal:
        broker.declare_queue("q", arguments=arguments)
    if "qpid.replicate" not in arguments:
        assert next(iter(arguments)) in refusal.value.text
    assert not broker.queues and not tape.records


def test_limits_are_read_from_text_too_and_zero_is_none() -> None:
    broker = a_broker(default_queue_limit=5)
    broker.declare_queue("two", arguments={"qpid.max_count": "2", "qpid.max_size": 0})
    broker.declare_queue("short")
    with pytest.raises(LimitExceeded):
        send(broker, "two", "longer than five", "b", "c")
    assert contents(broker, "two") == ["longer than five", "b"]
    with pytest.raises(LimitExceeded):
        send(broker, "short", "longer than five")


def test_queues_are_limited_in_number() -> None:
    broker = a_broker(max_queues=2)
    broker.declare_queue("a")
    broker.declare_queue("b")
    with pytest.raises(LimitExceeded):
        broker.declare_queue("c")
    broker.delete_queue("a")
    broker.declare_queue("c")


def test_default_level_is_the_setting() -> None:
    for level in ("none", "configuration", "all"):
        queue, sequence = a_broker(Tape(), ha_replicate=level).declare_queue("q")
        assert queue.options.replicate == queue.options.arguments["qpid.replicate"] == level
        assert bool(sequence) == ("qpid.ha-uuid" in queue.options.arguments) == (level != "none")
        assert bool(queue.enqueue(b"a")) == (level == "all")


def test_temporary_queue_is_not_replicated_unless_it_says_so() -> None:
    broker = a_broker(Tape())
    owner = object()

    def level(name: str, **options: Any) -> str:
        return broker.declare_queue(name, **options)[0].options.replicate

    assert level("exad", exclusive=True, auto_delete=True, owner=owner) == "none"
    assert level("ex", exclusive=True, owner=owner) == "all"
    assert level("ad", auto_delete=True) == "all"
    timed = {"qpid.auto_delete_timeout": 1}
    assert level("time", exclusive=True, auto_delete=True, arguments=timed, owner=owner) == "all"
    assert level("said", exclusive=True, auto_delete=True, arguments={"qpid.replicate": "all"}, owner=owner) == "all"
    assert level("dynamic", arguments={"qpid.lifetime-policy": "delete-on-close"}, owner=owner) == "none"


def test_binding_is_recorded_if_both_its_ends_are_and_it_does_not_say_no() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q")
    broker.declare_queue("local", arguments={"qpid.replicate": "none"})
    exchange, _ = broker.declare_exchange("ex", "topic")
    broker.declare_exchange("localex", "topic", arguments={"qpid.replicate": "none"})
    before = len(tape.records)
    assert broker.bind("ex", "local", "k") == 0
    assert broker.bind("localex", "q", "k") == 0
    assert broker.bind("ex", "q", "k", {"qpid.replicate": "none"}) == 0
    assert len(tape.records) == before
    assert broker.bind("ex", "q", "k2") == before + 1
    assert tape.last == Bound(exchange.uid, queue.uid, "k2", {})
    assert broker.bind("ex", "q", "k2") == 0
    broker.bind("ex", "q", "k2", {"qpid.replicate": "none"})
    assert tape.last == Unbound(exchange.uid, queue.uid, "k2")
    assert broker.bind("amq.topic", "q", "k") > 0
    broker.unbind("amq.topic", "q", "k")
    assert tape.last == Unbound(-3, queue.uid, "k")
    assert broker.unbind("amq.topic", "q", "k") == 0


def test_bad_level_of_a_binding_is_refused() -> None:
    broker = a_broker()
    broker.declare_queue("q")
    with pytest.raises(InvalidArgument):
        broker.bind("amq.topic", "q", "k", {"qpid.replicate": "some"})


def test_broker_alone_records_nothing_and_waits_for_nothing() -> None:
    broker = a_broker(None)
    _, sequence = broker.declare_queue("q")
    assert sequence == 0
    assert broker.bind("amq.topic", "q", "k") == 0
    assert broker.publish("amq.topic", "k", b"a", headers=dict) == (0, 1)
    assert broker.delete_queue("q") == 0


def test_message_for_several_queues_is_recorded_once() -> None:
    tape = Tape()
    broker = a_broker(tape)
    uids = tuple(broker.declare_queue(name)[0].uid for name in "abc")
    broker.declare_queue("local", arguments={"qpid.replicate": "none"})
    for name in ("a", "b", "c", "local"):
        broker.bind("amq.fanout", name)
    sequence, queues = broker.publish("amq.fanout", "", b"x", headers=dict, expires=7)
    assert queues == 4
    assert tape.records[-1] == (sequence, Enqueued(uids, b"x", 7))
    assert {name: contents(broker, name) for name in broker.queues} == dict.fromkeys(("a", "b", "c", "local"), ["x"])


def test_message_goes_to_all_queues_or_to_none() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("ring", arguments={"qpid.policy_type": "ring", "qpid.max_count": 1})
    broker.declare_queue("full", arguments={"qpid.max_count": 1})
    send(broker, "ring", "old")
    send(broker, "full", "old")
    for name in ("ring", "full"):
        broker.bind("amq.fanout", name)
    before = list(tape.records)
    with pytest.raises(LimitExceeded):
        broker.publish("amq.fanout", "", b"new", headers=dict)
    assert tape.records == before
    assert contents(broker, "ring") == ["old"]
    broker.purge("full")
    broker.publish("amq.fanout", "", b"new", headers=dict)
    assert contents(broker, "ring") == contents(broker, "full") == ["new"]


def test_exclusive_queue_is_its_owners_until_it_goes() -> None:
    broker = a_broker()
    mine, other = object(), object()
    queue, _ = broker.declare_queue("q", exclusive=True, owner=mine)
    assert broker.declare_queue("q", exclusive=True, owner=mine) == (queue, 0)
    for attempt in (True, False):
        with pytest.raises(ResourceLocked):
            broker.declare_queue("q", exclusive=attempt, owner=other)
    with pytest.raises(ResourceLocked):
        queue.check_access(other)
    queue.check_access(mine)
    broker.owner_gone(mine)
    assert broker.declare_queue("q", exclusive=True, owner=other) == (queue, 0)
    with pytest.raises(ResourceLocked):
        queue.check_access(mine)


def test_auto_delete_queue_goes_with_its_last_consumer_but_not_before_the_first() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q", auto_delete=True)
    queue.add_sender()
    queue.remove_sender()
    first, second = a_taker(queue), a_taker(queue)
    queue.unsubscribe(first)
    assert "q" in broker.queues
    queue.unsubscribe(second)
    assert "q" not in broker.queues
    assert tape.last == QueueDeleted(queue.uid)


def test_auto_delete_timeout_starts_when_nobody_uses_the_queue() -> None:
    broker = a_broker()
    queue, _ = broker.declare_queue("q", arguments={"qpid.auto_delete_timeout": 1})
    broker.dispatch(SECOND)
    taker = a_taker(queue)
    queue.unsubscribe(taker)
    broker.dispatch(100 * SECOND)
    assert broker.next_deadline == 101 * SECOND
    broker.tick(101 * SECOND - 1)
    assert "q" in broker.queues
    broker.tick(101 * SECOND)
    assert "q" not in broker.queues


def test_auto_delete_timeout_is_called_off_by_a_consumer() -> None:
    broker = a_broker()
    queue, _ = broker.declare_queue("q", arguments={"qpid.auto_delete_timeout": 1})
    queue.unsubscribe(a_taker(queue))
    broker.dispatch(SECOND)
    taker = a_taker(queue)
    broker.tick(3 * SECOND)
    assert "q" in broker.queues
    queue.unsubscribe(taker)
    broker.dispatch(4 * SECOND)
    broker.tick(5 * SECOND)
    assert "q" not in broker.queues


def test_exclusive_auto_delete_queue_goes_with_its_owner() -> None:
    broker = a_broker()
    owner = object()
    queue, _ = broker.declare_queue("q", exclusive=True, auto_delete=True, owner=owner)
    queue.unsubscribe(a_taker(queue))
    assert "q" in broker.queues
    broker.owner_gone(owner)
    assert "q" not in broker.queues
    broker.owner_gone(owner)


@pytest.mark.parametrize(
    ("policy", "ends_with"),
    [
        ("delete-on-close", "owner"),
        ("delete-if-unused", "links"),
        ("delete-if-empty", "messages"),
        ("delete-if-unused-and-empty", "links and messages"),
        ("manual", ""),
    ],
)
def test_lifetime_policy_says_when_a_queue_ends(policy: str, ends_with: str) -> None:
    broker = a_broker()
    owner = object()
    queue, _ = broker.declare_queue("q", arguments={"qpid.lifetime-policy": policy}, owner=owner)

    def ended_now(what: str) -> bool:
        ended.append(what)
        over = "q" not in broker.queues
        assert over == (bool(ends_with) and all(part in ended for part in ends_with.split(" and ")))
        return over

    ended: list[str] = []
    queue.add_sender()
    taker = a_taker(queue, 1)
    send(broker, "q", "a")
    broker.dispatch(1)
    queue.unsubscribe(taker)
    if ended_now("consumers"):
        return
    queue.remove_sender()
    if ended_now("links"):
        return
    queue.dequeue(taker.got[0])
    if ended_now("messages"):
        return
    broker.owner_gone(owner)
    ended_now("owner")


def test_deleted_queue_gives_its_messages_to_the_alternate_exchange_in_order() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("altq")
    broker.declare_exchange("altex", "fanout")
    broker.bind("altex", "altq")
    queue, _ = broker.declare_queue("q", auto_delete=True, alternate="altex")
    broker.bind("altex", "q")
    send(broker, "q", *"abc")
    taker = a_taker(queue, 1)
    broker.dispatch(1)
    queue.unsubscribe(taker)
    assert contents(broker, "altq") == ["a", "b", "c"]
    assert tape.last == QueueDeleted(queue.uid)


def test_rejected_message_is_on_the_alternate_before_it_leaves() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("altq")
    broker.declare_exchange("altex", "topic")
    broker.bind("altex", "altq", "news.#")
    queue, _ = broker.declare_queue("q", alternate="altex")
    payload = a_message("news.today")
    for body in (payload, a_message("other"), b"not AMQP"):
        broker.publish("", "q", body, headers=dict, expires=99)
    taker = a_taker(queue, 3)
    broker.dispatch(1)
    sequence = queue.reject(taker.got[0])
    assert tape.kinds()[-2:] == ["Enqueued", "Dequeued"] and sequence == len(tape.records)
    assert queue.reject(taker.got[1]) and queue.reject(taker.got[2])
    (message,) = broker.queues["altq"].messages_after(0, 1)
    assert (message.body(), message.expires) == (payload, 99)
    assert not queue.messages


def test_rejected_message_is_routed_by_its_application_properties() -> None:
    broker = a_broker()
    broker.declare_queue("altq")
    broker.bind("amq.match", "altq", "", {"colour": "red"})
    queue, _ = broker.declare_queue("q", alternate="amq.match")
    broker.publish("", "q", a_message(colour="red"), headers=dict)
    queue.reject(queue.messages_after(0, 1)[0])
    assert len(broker.queues["altq"].messages) == 1


def test_rejected_message_is_dropped_if_the_alternate_is_full() -> None:
    announced: list[Any] = []
    broker = a_broker()
    broker._announce = announced.append
    broker.declare_queue("altq", arguments={"qpid.max_count": 1})
    broker.bind("amq.fanout", "altq")
    queue, _ = broker.declare_queue("q", alternate="amq.fanout")
    send(broker, "q", "a", "b")
    for message in queue.messages_after(0, 99):
        queue.reject(message)
    assert contents(broker, "altq") == ["a"] and not queue.messages
    assert queue.discarded == 1 and announced[-1].level == "warning"


def test_delete_respects_if_unused_and_if_empty() -> None:
    broker = a_broker()
    queue, _ = broker.declare_queue("q")
    send(broker, "q", "a")
    a_taker(queue)
    with pytest.raises(PreconditionFailed):
        broker.delete_queue("q", if_unused=True)
    with pytest.raises(PreconditionFailed):
        broker.delete_queue("q", if_empty=True)
    broker.delete_queue("q")
    with pytest.raises(NotFound):
        broker.delete_queue("q")
    with pytest.raises(NotFound):
        broker.purge("q")


def test_redeclared_queue_is_another_queue() -> None:
    broker = a_broker(Tape())
    former, _ = broker.declare_queue("q")
    broker.bind("amq.topic", "q", "k")
    send(broker, "q", "old")
    (message,) = former.messages_after(0, 1)
    broker.delete_queue("q")
    queue, _ = broker.declare_queue("q")
    assert (queue.uid, queue.uuid) != (former.uid, former.uuid)
    assert contents(broker, "q") == [] and queue.bindings == {}
    assert former.dequeue(message) == 0


def test_expired_messages_that_nobody_asks_for_go_in_the_end() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q")
    sequences = send(broker, "q", "a", "b", expires=5)
    send(broker, "q", "c")
    broker.dispatch(1)
    assert broker.next_deadline == 1 + EXPIRY_INTERVAL
    broker.tick(broker.next_deadline)
    assert contents(broker, "q") == ["c"]
    assert tape.last == Dequeued(queue.uid, tuple(sequences))
    assert broker.next_deadline == 1 + 2 * EXPIRY_INTERVAL


def test_dispatch_reaches_every_queue_with_something_to_hand_out() -> None:
    broker = a_broker()
    takers = [a_taker(broker.declare_queue(name)[0], 9) for name in "ab"]
    send(broker, "a", "1")
    send(broker, "b", "2")
    broker.dispatch(1)
    assert [taker.bodies for taker in takers] == [["1"], ["2"]]
    assert not broker.dirty


def passive_copy() -> Broker:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("q", auto_delete=True)
    broker.declare_exchange("ex", "fanout")
    broker.bind("ex", "q")
    send(broker, "q", "a", "b", expires=50)
    broker.recorder = None
    broker.passive = True
    return broker


def test_passive_broker_changes_no_replicated_object() -> None:
    broker = passive_copy()
    for change in (
        lambda: broker.declare_queue("other"),
        lambda: broker.declare_exchange("other"),
        lambda: broker.delete_queue("q"),
        lambda: broker.delete_exchange("ex"),
        lambda: broker.bind("ex", "q", "k"),
        lambda: broker.unbind("ex", "q"),
        lambda: broker.purge("q"),
        lambda: send(broker, "q", "c"),
        lambda: broker.publish("ex", "", b"c", headers=dict),
    ):
        with pytest.raises(RefusedRequest):
            change()
    broker.tick(EXPIRY_INTERVAL)
    assert contents(broker, "q") == ["a", "b"] and "ex" in broker.exchanges


def test_users_of_a_demoted_broker_change_nothing_any_more() -> None:
    broker = passive_copy()
    queue = broker.queues["q"]
    taker = a_taker(queue, 9)
    broker.dispatch(100)
    assert taker.got == []
    for message in queue.messages_after(0, 99):
        queue.acquire(message)
        assert queue.dequeue(message) == queue.reject(message) == queue.requeue(message, failed=True) == 0
        assert message.delivery_count == 0
    queue.unsubscribe(taker)
    assert contents(broker, "q") == ["a", "b"]


def test_passive_broker_can_be_browsed_expired_messages_included() -> None:
    broker = passive_copy()
    browser = a_taker(broker.queues["q"], 9, browse=True)
    broker.dispatch(100)
    assert browser.bodies == ["a", "b"]


def test_passive_broker_may_have_queues_of_its_own() -> None:
    broker = passive_copy()
    queue, _ = broker.declare_queue("mine", auto_delete=True, owner=object())
    send(broker, "mine", "x")
    taker = a_taker(queue, 1)
    broker.dispatch(1)
    assert taker.bodies == ["x"]
    queue.dequeue(taker.got[0])
    queue.unsubscribe(taker)
    assert "mine" not in broker.queues


def test_promoted_broker_keeps_auto_delete_queues_for_their_users_to_return() -> None:
    broker = passive_copy()
    broker.recorder = Tape()
    broker.promoted(1)
    broker.tick(2)
    queue = broker.queues["q"]
    queue.unsubscribe(a_taker(queue))
    assert "q" not in broker.queues


def test_promoted_broker_starts_the_timeouts_of_queues() -> None:
    tape = Tape()
    a_taker(a_broker(tape).declare_queue("q", arguments={"qpid.auto_delete_timeout": 2})[0])
    broker = copy_of(tape)
    broker.recorder = tape
    broker.promoted(10 * SECOND)
    broker.tick(12 * SECOND - 1)
    assert "q" in broker.queues
    broker.tick(12 * SECOND)
    assert "q" not in broker.queues
    assert isinstance(tape.last, QueueDeleted)


def test_subscriber_of_a_queue_deleted_by_its_owner_is_told() -> None:
    broker = a_broker()
    owner = object()
    queue, _ = broker.declare_queue("q", arguments={"qpid.lifetime-policy": "delete-on-close"}, owner=owner)
    taker: Taker = a_taker(queue)
    broker.owner_gone(owner)
    assert taker.is_told


@pytest.mark.parametrize(
    "value",
    [b"bytes", [1, [b"x"]], {"a": {1: "x"}}, object(), 2**63, -(2**63) - 1, [2**64], float("nan"), float("inf"), [[[[[[[[[1]]]]]]]]]],
)
def test_arguments_that_a_record_cannot_carry_are_refused_by_name(value: object) -> None:
    broker = a_broker()
    broker.declare_queue("q")
    for change in (
        lambda: broker.declare_queue("new", arguments={"mine": value}),
        lambda: broker.declare_exchange("x", arguments={"mine": value}),
        lambda: broker.bind("amq.direct", "q", "k", {"mine": value}),
    ):
        with pytest.raises(InvalidArgument, match="mine"):
            change()
    assert list(broker.queues) == ["q"]


def test_names_and_keys_are_of_bounded_length() -> None:
    broker = a_broker()
    broker.declare_queue("q" * 255)
    for change in (
        lambda: broker.declare_queue("q" * 256),
        lambda: broker.declare_exchange("x" * 256),
        lambda: broker.bind("amq.direct", "q" * 255, "k" * 256),
    ):
        with pytest.raises(InvalidArgument, match="256"):
            change()


def test_limits_on_exchanges_and_bindings_are_kept() -> None:
    broker = a_broker(max_exchanges=6, max_bindings=2)  # five are built in
    broker.declare_exchange("x")
    with pytest.raises(LimitExceeded, match="there are 6"):
        broker.declare_exchange("y")
    broker.declare_queue("q")
    broker.bind("x", "q", "a")
    broker.bind("x", "q", "b")
    broker.bind("x", "q", "b")
    with pytest.raises(LimitExceeded, match="it has 2 bindings"):
        broker.bind("x", "q", "c")


def test_a_message_that_is_rerouted_does_not_count_as_consumed() -> None:
    log = Log(1 << 20)
    log.start_epoch(1)
    broker = a_broker(log)
    broker.declare_exchange("altex", "fanout")
    broker.declare_queue("altq")
    broker.bind("altex", "altq")
    queue, _ = broker.declare_queue("q", alternate="altex")
    sequence = queue.enqueue(a_message("x"))
    message = queue.messages[sequence]
    queue.acquire(message)
    assert queue.reject(message) > sequence
    assert log.consumed == []
    assert len(broker.queue("altq").messages) == 1


def a_ring(broker: Broker, name: str, alternate: str) -> None:
    broker.declare_queue(name, alternate=alternate, arguments={"qpid.max_count": 1, "qpid.policy_type": "ring"})


def test_message_that_a_ring_lets_go_of_is_on_the_alternate_exchange_on_every_broker_once() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("old")
    broker.bind("amq.fanout", "old")
    a_ring(broker, "ring", "amq.fanout")
    send(broker, "ring", "a", "b", "c")
    for one in (broker, copy_of(tape)):
        assert contents(one, "ring") == ["c"] and contents(one, "old") == ["a", "b"]


def test_message_for_several_rings_reroutes_what_each_lets_go_of() -> None:
    broker = a_broker(Tape())
    broker.declare_queue("old")
    broker.bind("amq.topic", "old", "#")
    for name in ("one", "two"):
        a_ring(broker, name, "amq.topic")
        broker.bind("amq.fanout", name)
    for body in (b"a", b"b"):
        broker.publish("amq.fanout", "", body, headers=dict)
    assert contents(broker, "old") == ["a", "a"]
    assert contents(broker, "one") == contents(broker, "two") == ["b"]


def test_rings_that_overflow_into_each_other_and_themselves_come_to_an_end() -> None:
    tape = Tape()
    broker = a_broker(tape)
    for name in ("one", "two"):
        a_ring(broker, name, "amq.fanout")
        broker.bind("amq.fanout", name)
    send(broker, "one", "a", "b", "c")
    assert contents(broker, "one") == ["c"] and contents(broker, "two") == ["b"]
    assert all(len(queue.messages) <= 1 for queue in copy_of(tape).queues.values())
