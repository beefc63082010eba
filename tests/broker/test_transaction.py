"""Transactions: checked first, done at once or not at all, and recorded so that the log keeps them
whole.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidha.broker import transaction as module
from qpidha.broker.broker import Broker
from qpidha.broker.queues.limits import POLICY_TYPE, SELF_DESTRUCT
from qpidha.broker.state import State
from qpidha.broker.transaction import Fate, Post, Retirement, Transaction, TransactionRolledBack
from qpidha.model.errors import LimitExceeded
from qpidha.model.message import Message
from qpidha.model.message_view import body, build
from qpidha.model.settings import Settings
from qpidha.store.log import Log
from qpidha.store.recovery import fold
from tests.broker.parts import Tape, a_broker, a_taker, contents, copy_of, picture, send
from tests.broker.test_policy import put as put_policy


def a_model(*queues: str, **arguments: Any) -> tuple[Broker, Tape]:
    tape = Tape()
    broker = a_broker(tape)
    for queue in queues or ("q",):
        broker.declare_queue(
            queue, arguments={f"qpid.{name}": value for name, value in arguments.items()}
        )
    return broker, tape


def post(broker: Broker, transaction: Transaction, queue: str, *bodies: str) -> None:
    for text in bodies:
        transaction.post(Post(text.encode(), 0, queue=broker.queues[queue]))


def take(broker: Broker, queue: str) -> Message:
    """Have a consumer take the first available message."""
    taker = a_taker(broker.queues[queue], credit=1)
    broker.dispatch(0)
    broker.queues[queue].unsubscribe(taker)
    return taker.got[0]


def retire(
    broker: Broker,
    transaction: Transaction,
    queue: str,
    fate: Fate,
    *,
    settled: bool = True,
    **options: Any,
) -> Message:
    message = take(broker, queue)
    transaction.retire(
        Retirement(transaction, broker.queues[queue], message, fate, settled=settled, **options)
    )
    return message


def available(broker: Broker, queue: str) -> list[str]:
    return [
        message.body().decode()
        for message in broker.queues[queue].messages.values()
        if not message.acquired
    ]


def test_nothing_is_recorded_before_the_commit() -> None:
    broker, tape = a_model()
    send(broker, "q", "old")
    before = len(tape.records)
    transaction = Transaction(broker)
    post(broker, transaction, "q", "new")
    retire(broker, transaction, "q", Fate.ACCEPT)
    assert len(tape.records) == before
    assert transaction.commit() == len(tape.records) == before + 2
    assert contents(broker, "q") == contents(copy_of(tape), "q") == ["new"]


def test_a_rollback_records_failed_deliveries_only() -> None:
    broker, tape = a_model()
    send(broker, "q", "a", "b")
    transaction = Transaction(broker)
    post(broker, transaction, "q", "never")
    retire(broker, transaction, "q", Fate.ACCEPT)
    kept = retire(broker, transaction, "q", Fate.ACCEPT, settled=False)
    transaction.rollback()
    assert tape.kinds()[-3:] == ["Enqueued", "Enqueued", "Requeued"]
    assert available(broker, "q") == ["a"]
    assert kept.acquired
    assert [message.delivery_count for message in broker.queues["q"].messages.values()] == [1, 0]


def test_a_commit_without_work_waits_for_nothing() -> None:
    broker, _ = a_model()
    assert Transaction(broker).commit() == 0


@pytest.mark.parametrize("limits", [{"max_count": 3}, {"max_size": 3}])
def test_limits_hold_for_the_sum(limits: dict[str, int]) -> None:
    broker, tape = a_model(**limits)
    broker.declare_queue("other")
    transaction = Transaction(broker)
    post(broker, transaction, "other", "x")
    post(broker, transaction, "q", "1", "2", "3", "4")
    before = picture(broker)
    with pytest.raises(TransactionRolledBack, match="Queue q is full"):
        transaction.commit()
    assert picture(broker) == before == picture(copy_of(tape))
    fitting = Transaction(broker)
    post(broker, fitting, "q", "1", "2", "3")
    fitting.commit()
    assert contents(broker, "q") == ["1", "2", "3"]


def test_what_is_accepted_makes_room_for_what_is_posted() -> None:
    broker, _ = a_model(max_count=2)
    send(broker, "q", "1", "2")
    transaction = Transaction(broker)
    retire(broker, transaction, "q", Fate.ACCEPT)
    post(broker, transaction, "q", "3")
    transaction.commit()
    assert contents(broker, "q") == ["2", "3"]


def test_a_ring_takes_more_than_it_holds() -> None:
    broker, tape = a_model(max_count=2, policy_type="ring")
    send(broker, "q", "0")
    transaction = Transaction(broker)
    post(broker, transaction, "q", *"12345")
    transaction.commit()
    assert contents(broker, "q") == contents(copy_of(tape), "q") == ["4", "5"]


def test_a_ring_that_consumers_have_full_takes_nothing() -> None:
    broker, _ = a_model(max_count=2, policy_type="ring")
    send(broker, "q", "0", "1")
    take(broker, "q"), take(broker, "q")
    transaction = Transaction(broker)
    post(broker, transaction, "q", "2")
    with pytest.raises(TransactionRolledBack):
        transaction.commit()
    assert contents(broker, "q") == ["0", "1"]


def test_what_a_ring_gives_to_others_does_not_take_their_room() -> None:
    broker, _ = a_model("other", max_count=1)
    broker.declare_exchange("x", "fanout")
    broker.bind("x", "other")
    broker.declare_queue(
        "ring", alternate="x", arguments={"qpid.max_count": 1, "qpid.policy_type": "ring"}
    )
    send(broker, "ring", "old")
    transaction = Transaction(broker)
    post(broker, transaction, "ring", "new")
    post(broker, transaction, "other", "mine")
    transaction.commit()
    assert (contents(broker, "ring"), contents(broker, "other")) == (["new"], ["mine"])


def test_a_transaction_that_is_sent_again_posts_nothing_twice() -> None:
    broker, tape = a_model("other")
    broker.declare_queue("q", arguments={"qpidha.dedup": "message-id"})
    for _ in range(2):
        transaction = Transaction(broker)
        for number in range(3):
            payload = build(number, properties={"message_id": f"m{number}"})
            transaction.post(Post(payload, 0, queue=broker.queues["q"]))
        transaction.commit()
    assert [body(message.body()) for message in broker.queues["q"].messages.values()] == [0, 1, 2]
    assert picture(copy_of(tape)) == picture(broker)


@pytest.mark.parametrize("exchange", ["", "x"])
def test_a_commit_is_done_though_a_queue_ends_by_it_that_is_full(exchange: str) -> None:
    broker, tape = a_model("ring", max_count=1, policy_type="ring")
    broker.declare_queue("brief", arguments={"x-max-length": 1, POLICY_TYPE: SELF_DESTRUCT})
    target = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "brief"}
    put_policy(broker, "p", target, "^ring$")
    broker.dispatch(1)
    broker.declare_exchange("x", "fanout", auto_delete=True)
    broker.bind("x", "brief")
    send(broker, "ring", "a")
    transaction = Transaction(broker)
    post(broker, transaction, "ring", "b", "c")
    to = {"exchange": exchange} if exchange else {"queue": broker.queues["brief"]}
    transaction.post(Post(b"d", 0, **to))
    sequence = transaction.commit()
    assert sequence == len(tape.records)
    assert contents(broker, "ring")[-1] == "c" and "brief" not in broker.queues
    assert picture(copy_of(tape)) == picture(broker)


def test_a_queue_that_ends_empty_may_get_its_last_message_back() -> None:
    broker, _ = a_model()
    broker.declare_queue("q2", arguments={"qpid.lifetime-policy": "delete-if-empty"})
    for bodies in (["again"], []):
        if not contents(broker, "q2"):
            send(broker, "q2", "first")
        transaction = Transaction(broker)
        retire(broker, transaction, "q2", Fate.ACCEPT)
        post(broker, transaction, "q2", *bodies)
        transaction.commit()
        if bodies:
            assert contents(broker, "q2") == bodies
    assert "q2" not in broker.queues


def test_fates_are_what_consumers_outside_of_a_transaction_have_too() -> None:
    broker, tape = a_model("dead")
    broker.declare_exchange("x", "fanout")
    broker.bind("x", "dead")
    broker.declare_queue("q", alternate="x")
    send(broker, "q", "accept", "release", "requeue", "reject")
    transaction = Transaction(broker)
    for fate in Fate:
        retire(broker, transaction, "q", fate, failed=fate is Fate.REQUEUE)
    transaction.commit()
    assert contents(broker, "q") == available(broker, "q") == ["release", "requeue"]
    assert [message.delivery_count for message in broker.queues["q"].messages.values()] == [0, 1]
    assert contents(broker, "dead") == ["reject"]
    assert picture(copy_of(tape)) == picture(broker)


def test_exchanges_count_what_came_through_a_commit() -> None:
    broker, _ = a_model()
    broker.bind("amq.direct", "q", "k")
    transaction = Transaction(broker)
    transaction.post(Post(b"x", 0, exchange="amq.direct", key="k"))
    transaction.post(Post(b"y", 0, exchange="amq.direct", key="nobody"))
    exchange = broker.exchanges["amq.direct"]
    assert (exchange.received, exchange.dropped) == (0, 0)
    transaction.commit()
    assert (exchange.received, exchange.dropped) == (2, 1)
    assert contents(broker, "q") == ["x"]


def test_an_exchange_that_is_gone_and_a_key_for_nobody_refuse_the_commit() -> None:
    broker, _ = a_model()
    for refused in (
        Post(b"x", 0, exchange="nowhere"),
        Post(b"x", 0, exchange="amq.direct", key="nobody", must_route=True),
    ):
        transaction = Transaction(broker)
        post(broker, transaction, "q", "never")
        transaction.post(refused)
        with pytest.raises(TransactionRolledBack):
            transaction.commit()
    assert contents(broker, "q") == []


def test_a_doomed_transaction_keeps_nothing_in_memory_and_cannot_be_committed() -> None:
    broker, _ = a_model()
    transaction = Transaction(broker)
    post(broker, transaction, "q", "never")
    transaction.mark_rollback_only(LimitExceeded("too much"))
    assert (transaction.posts, transaction.bytes) == ([], 0)
    with pytest.raises(LimitExceeded):
        post(broker, transaction, "q", "never")
    with pytest.raises(TransactionRolledBack, match="too much"):
        transaction.commit()


def test_the_length_of_a_transaction_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OPERATIONS", 3)
    broker, _ = a_model()
    send(broker, "q", "a", "b")
    transaction = Transaction(broker)
    retire(broker, transaction, "q", Fate.ACCEPT)
    retire(broker, transaction, "q", Fate.ACCEPT)
    post(broker, transaction, "q", "1")
    with pytest.raises(LimitExceeded):
        post(broker, transaction, "q", "2")
    with pytest.raises(TransactionRolledBack):
        transaction.commit()
    assert available(broker, "q") == ["a", "b"]


def test_beyond_the_limit_messages_are_given_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OPERATIONS", 3)
    broker, _ = a_model()
    send(broker, "q", *"abcdef")
    transaction = Transaction(broker)
    for _ in range(50):
        retire(broker, transaction, "q", Fate.ACCEPT)
        assert len(transaction.retirements) <= 3
    assert available(broker, "q") == ["d", "e", "f"]
    assert transaction.bytes == 3 * module.RETIREMENT_BYTES
    with pytest.raises(TransactionRolledBack, match="3 operations"):
        transaction.commit()
    assert available(broker, "q") == list("abcdef")


def test_beyond_the_limit_unsettled_messages_are_given_back_when_they_are_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_OPERATIONS", 0)
    broker, _ = a_model()
    send(broker, "q", "a")
    transaction = Transaction(broker)
    retirement = Retirement(
        transaction, broker.queues["q"], take(broker, "q"), Fate.ACCEPT, settled=False
    )
    transaction.retire(retirement)
    assert not transaction.retirements
    assert available(broker, "q") == []
    transaction.settle(retirement)
    assert available(broker, "q") == ["a"]


def test_a_broker_that_follows_commits_nothing() -> None:
    broker, tape = a_model()
    send(broker, "q", "a")
    transaction = Transaction(broker)
    retire(broker, transaction, "q", Fate.ACCEPT)
    before = len(tape.records)
    broker.log_writer = None
    broker.passive = True
    with pytest.raises(TransactionRolledBack):
        transaction.commit()
    assert len(tape.records) == before
    assert contents(broker, "q") == ["a"]


def a_logged_broker() -> tuple[Broker, Log]:
    """A broker on a real log, whose objects are sealed already."""
    log = Log(1 << 20)
    log.start_epoch(1)
    broker = a_broker(log)
    for queue in ("q", "r"):
        broker.declare_queue(queue)
    log.seal()
    return broker, log


def follower_of(log: Log, first: int) -> State:
    """A broker that has the log from a sequence on."""
    state = State(Settings(ha_replicate="all"))
    state.passive = True
    for batch in log.batches(first):
        fold(state, batch.data)
    return state


def test_a_commit_is_one_batch() -> None:
    broker, log = a_logged_broker()
    send(broker, "q", "a", "b")
    log.seal()
    transaction = Transaction(broker)
    retire(broker, transaction, "q", Fate.ACCEPT)
    post(broker, transaction, "q", "c")
    post(broker, transaction, "r", "d")
    count = len(list(log.batches(1)))
    sequence = transaction.commit()
    log.seal()
    assert len(list(log.batches(1))) == count + 1
    assert sequence == log.last
    state = follower_of(log, 1)
    assert (contents(state, "q"), contents(state, "r")) == (["b", "c"], ["d"])


def test_a_message_taken_and_moved_in_one_turn_is_kept_until_its_transaction_is_committed() -> None:
    """Its sender must go on waiting: if the commit is lost, so must not be the message."""
    broker, log = a_logged_broker()
    for fate in (Fate.ACCEPT, Fate.REJECT):
        send(broker, "q", "a")
        transaction = Transaction(broker)
        retire(broker, transaction, "q", fate)
        transaction.commit()
        assert log.consumed == []
        log.seal()


def test_a_message_that_is_posted_and_consumed_in_one_turn_does_not_answer_its_commit() -> None:
    """The rest of its transaction is not committed only because one message of it was consumed."""
    broker, log = a_logged_broker()
    transaction = Transaction(broker)
    post(broker, transaction, "q", "a")
    post(broker, transaction, "r", "b")
    transaction.commit()
    taker = a_taker(broker.queues["r"], credit=1, settles=True)
    broker.dispatch(0)
    assert [message.body() for message in taker.got] == [b"b"]
    assert log.consumed == []
    log.seal()
    state = follower_of(log, 1)
    assert (contents(state, "q"), contents(state, "r")) == (["a"], [])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("post"), st.sampled_from("qr"), st.integers(1, 4)),
        st.tuples(st.just("retire"), st.sampled_from("qr"), st.sampled_from(list(Fate))),
        st.tuples(st.just("plain"), st.sampled_from("qr"), st.just(0)),
        st.tuples(st.sampled_from(["commit", "rollback"]), st.just(""), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_any_sequence_of_work_is_whole_or_nothing_and_the_same_on_a_backup(
    steps: list[tuple[str, str, Any]],
) -> None:
    broker, tape = a_model("q", "r", max_count=4)
    transaction = Transaction(broker)
    expected: dict[str, int] = {"q": 0, "r": 0}
    demand: dict[str, int] = {"q": 0, "r": 0}
    gone: dict[str, int] = {"q": 0, "r": 0}
    number = 0
    for kind, queue, what in (*steps, ("commit", "", 0)):
        if kind == "post":
            for _ in range(what):
                number += 1
                post(broker, transaction, queue, str(number))
            demand[queue] += what
        elif kind == "retire" and available(broker, queue):
            retire(broker, transaction, queue, what)
            gone[queue] += what in (Fate.ACCEPT, Fate.REJECT)
            demand[queue] -= what is Fate.ACCEPT
        elif kind == "plain" and expected[queue] < 4:
            number += 1
            send(broker, queue, str(number))
            expected[queue] += 1
        elif kind in ("commit", "rollback"):
            before = {name: contents(broker, name) for name in "qr"}
            fits = all(demand[name] <= 0 or expected[name] + demand[name] <= 4 for name in "qr")
            if kind == "rollback":
                transaction.rollback()
            else:
                posts = {
                    name: sum(one.queue is broker.queues[name] for one in transaction.posts)
                    for name in "qr"
                }
                try:
                    transaction.commit()
                    for name in "qr":
                        expected[name] += posts[name] - gone[name]
                except TransactionRolledBack:
                    assert not fits
            for name in "qr":
                assert len(contents(broker, name)) == expected[name]
                if kind == "rollback":
                    assert contents(broker, name) == before[name]
                assert available(broker, name) == contents(broker, name)
            transaction = Transaction(broker)
            demand, gone = {"q": 0, "r": 0}, {"q": 0, "r": 0}
    assert picture(copy_of(tape)) == picture(broker)


def test_a_transaction_sent_again_is_committed_again_though_its_queue_is_full() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue(
        "q", arguments={"qpidha.dedup": "message-id", "qpid.max_count": 2}
    )
    sequences = []
    for _ in range(2):
        transaction = Transaction(broker)
        for number in range(2):
            transaction.post(
                Post(build(number, properties={"message_id": str(number)}), 0, queue=queue)
            )
        sequences.append(transaction.commit())
    assert len(queue.messages) == 2
    assert sequences[1] == sequences[0]
    transaction = Transaction(broker)
    transaction.post(Post(build(0, properties={"message_id": "0"}), 0, queue=queue))
    transaction.post(Post(build(2, properties={"message_id": "2"}), 0, queue=queue))
    with pytest.raises(TransactionRolledBack, match="full"):
        transaction.commit()
