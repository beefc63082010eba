"""Keys that take long to be compared with the bindings of a topic exchange: what one turn of the
broker does about them, and what becomes of the rest.
"""

from __future__ import annotations

import pytest

from qpidha.broker import broker as module
from qpidha.broker.broker import RETRY_INTERVAL, Broker
from qpidha.broker.queues.deletion import Deletion
from qpidha.broker.topic import TooManyKeys, TooManyWays, TopicTree
from qpidha.broker.transaction import Post, Transaction, TransactionRolledBack
from qpidha.model.duration import SECOND
from tests.broker.parts import Tape, a_broker, a_message, bind_crowd, copy_of, crowd_key, picture


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each key that is compared with patterns."""
    keys: list[str] = []
    match = TopicTree.match

    def noting(tree: TopicTree[object], key: str, steps: object = None) -> object:
        keys.append(key)
        return match(tree, key, steps)  # type: ignore[arg-type]

    monkeypatch.setattr(TopicTree, "match", noting)
    return keys


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps for some keys of 190 a turn, and for any number of ordinary ones."""
    for name in ("PUBLISH_STEPS", "REROUTE_STEPS", "COMMIT_STEPS"):
        monkeypatch.setattr(module, name, (20, 1000))


def with_crowd(words: int = 6) -> tuple[Broker, Tape]:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("crowded")
    bind_crowd(broker, "crowded", words)
    return broker, tape


def publish(broker: Broker, key: str, exchange: str = "amq.topic") -> int:
    return broker.publish(exchange, key, b"", headers=dict).queues


@pytest.mark.parametrize("exchange", ["amq.topic", "leads there"])
def test_a_turn_takes_no_more_than_some_steps_for_all_that_is_published(
    exchange: str, few_steps: None
) -> None:
    broker, _ = with_crowd()
    broker.declare_exchange("leads there", alternate="amq.topic")
    for turn in range(2):
        taken, number = 0, 1000 * turn
        with pytest.raises(TooManyKeys, match="together take too long") as refusal:
            for number in range(1000 * turn, 1000 * turn + 100):
                taken += publish(broker, crowd_key(number, 6), exchange)
        assert 3 <= taken <= 10 and refusal.value.hint
        assert publish(broker, crowd_key(number - 1, 6), exchange) == 1  # It is known.
        for other in range(50):
            assert publish(broker, f"b.{number}.{other}", exchange) == 0
        broker.dispatch(1)
        assert publish(broker, crowd_key(number, 6), exchange) == 1
        broker.dispatch(1)


def test_a_refused_key_is_not_compared_again_before_the_bindings_change(
    compared: list[str],
) -> None:
    broker, _ = with_crowd(10)
    key = crowd_key(1, 10)
    for _ in range(3):
        with pytest.raises(TooManyWays):
            publish(broker, key)
    assert compared == [key]
    broker.declare_queue("other")
    broker.bind("amq.topic", "other", "b")
    with pytest.raises(TooManyWays):
        publish(broker, key)
    assert compared == [key, key]


def commit(broker: Broker, keys: list[str]) -> None:
    transaction = Transaction(broker)
    for key in keys:
        transaction.post(Post(b"", 0, exchange="amq.topic", key=key))
    transaction.commit()


def test_commits_of_one_turn_take_no_more_than_some_steps(few_steps: None) -> None:
    broker, _ = with_crowd()
    with pytest.raises(TransactionRolledBack, match="together take too long") as refusal:
        commit(broker, [crowd_key(number, 6) for number in range(100)])
    assert refusal.value.hint == "commit more often"
    assert not broker.queues["crowded"].messages
    commit(broker, [f"b.{number}" for number in range(100)])
    broker.dispatch(1)
    commit(broker, [crowd_key(number, 6) for number in range(200, 203)])
    assert len(broker.queues["crowded"].messages) == 3


def with_rejects(count: int) -> tuple[Broker, Tape]:
    """A queue with messages whose keys take long on their way elsewhere."""
    broker, tape = with_crowd()
    broker.declare_queue("q", alternate="amq.topic")
    for number in range(count):
        broker.publish("", "q", a_message(crowd_key(number, 6)), headers=dict)
    return broker, tape


def test_a_deletion_goes_on_in_the_next_turn_and_loses_nothing(few_steps: None) -> None:
    broker, tape = with_rejects(30)
    sent = [message.body() for message in broker.queues["q"].messages.values()]
    crowded, counts = broker.queues["crowded"], [0]
    deletion = broker.delete_queue("q")
    while not deletion.is_over:
        counts.append(len(crowded.messages))
        assert 0 < counts[-1] - counts[-2] <= 10
        assert picture(copy_of(tape)) == picture(broker)
        broker.dispatch(1)
        broker.go_on_walking(len(tape.records))
    assert len(counts) > 3 and "q" not in broker.queues
    assert [message.body() for message in crowded.messages.values()] == sent
    assert picture(copy_of(tape)) == picture(broker)


def test_queues_that_end_without_steps_are_asked_once_a_turn_and_cost_it_something(
    few_steps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WALKED_A_TURN", 3)
    asked: list[str] = []
    step = Deletion.step

    def noting(deletion: Deletion, most: int) -> int:
        asked.append(deletion.queue.name)
        return step(deletion, most)

    monkeypatch.setattr(Deletion, "step", noting)
    broker, tape = with_rejects(30)
    names = [f"q{number}" for number in range(5)]
    for number, name in enumerate(names):
        broker.declare_queue(name, alternate="amq.topic")
        broker.publish("", name, a_message(crowd_key(100 + number, 6)), headers=dict)
    broker.dispatch(1)
    reject_all(broker, "q")
    for name in names:
        broker.delete_queue(name)
    for name in names * 3:
        assert broker.find_queue(name) is not None
    assert asked == names[:3]
    while broker.walks:
        broker.dispatch(2)
        broker.go_on_walking(len(tape.records))
    assert not set(names) & set(broker.queues)


def test_rejected_messages_wait_for_steps_and_each_has_its_turn(
    few_steps: None, compared: list[str]
) -> None:
    broker, _ = with_rejects(30)
    queue, crowded = broker.queues["q"], broker.queues["crowded"]
    for message in list(queue.messages.values()):
        queue.reject(message)
    before = len(crowded.messages)
    assert 0 < before <= 10 and len(queue.unplaced) == 30 - before
    now = SECOND
    while queue.messages:
        compared.clear()
        broker.dispatch(now)
        now += RETRY_INTERVAL
        broker.tick(now)
        assert 0 < len(crowded.messages) - before <= 10 and len(compared) <= 10
        before = len(crowded.messages)
    assert before == 30 and not queue.unplaced


def reject_all(broker: Broker, name: str) -> None:
    queue = broker.queues[name]
    for message in list(queue.messages.values()):
        queue.reject(message)


def test_each_queue_of_rejected_messages_has_its_turn_and_leaves_steps_to_others(
    few_steps: None,
) -> None:
    broker, _ = with_crowd()
    names = ["q1", "q2", "q3"]
    for first, name in enumerate(names):
        broker.declare_queue(name, alternate="amq.topic")
        for number in range(20):
            broker.publish("", name, a_message(crowd_key(100 * first + number, 6)), headers=dict)
        reject_all(broker, name)
    ring(broker, 0)
    broker.dispatch(1)
    left = [len(broker.queues[name].unplaced) for name in names]
    for now in range(len(names)):
        reject_all(broker, "q3")  # Somebody else takes all steps that there are before.
        broker.tick(RETRY_INTERVAL + 1 + now)
        assert ring(broker, 1 + now) == 0
        broker.dispatch(RETRY_INTERVAL + 1 + now)
    assert all(
        len(broker.queues[name].unplaced) < before for name, before in zip(names, left, strict=True)
    )


def test_a_deletion_leaves_steps_to_others(few_steps: None) -> None:
    broker, tape = with_rejects(30)
    ring(broker, 0)
    deletion = broker.delete_queue("q")
    for number in range(1, 4):
        broker.dispatch(number)
        broker.go_on_walking(len(tape.records))
        assert not deletion.is_over and ring(broker, number) == 0


def test_rejected_messages_that_no_exchange_takes_are_not_compared_each_second(
    compared: list[str],
) -> None:
    broker, _ = with_crowd(10)
    queue, _ = broker.declare_queue("q", alternate="amq.topic")
    for number in range(20):
        broker.publish("", "q", a_message(crowd_key(number, 10)), headers=dict)
    for message in list(queue.messages.values()):
        queue.reject(message)
    # The others wait behind the first one.
    assert len(compared) == 2 and len(queue.unplaced) == 20  # And once what has no key.
    for turn in range(3):
        broker.dispatch(turn * SECOND + 1)
        broker.tick((turn + 2) * SECOND)
    assert len(compared) == 21 and len(queue.unplaced) == 20


def ring(broker: Broker, number: int, name: str = "ring") -> int:
    """Send a message to a ring, which gives another one away; return how many it has dropped."""
    if name not in broker.queues:
        given = {"qpid.max_count": 1, "qpid.policy_type": "ring"}
        broker.declare_queue(name, alternate="amq.topic", arguments=given)
    broker.publish("", name, a_message(crowd_key(10_000 + number, 6)), headers=dict)
    return broker.queues[name].not_rerouted


def test_a_ring_gives_its_messages_away_though_others_have_taken_all_steps(few_steps: None) -> None:
    broker, _ = with_rejects(30)
    ring(broker, 0)
    for number in range(30):
        ring(broker, 100 + number, "other ring")
    reject_all(broker, "q")
    assert broker.queues["other ring"].not_rerouted and broker.queues["q"].unplaced
    for number in range(1, 4):
        assert ring(broker, number) == 0


def test_a_ring_gives_its_messages_away_while_there_are_steps(few_steps: None) -> None:
    broker, _ = with_crowd()
    dropped = [ring(broker, number) for number in range(20)][-1]
    crowded = len(broker.queues["crowded"].messages)
    assert 0 < crowded <= 10 and dropped == 19 - crowded
    broker.dispatch(1)
    broker.publish("", "ring", a_message("b"), headers=dict)
    assert len(broker.queues["crowded"].messages) == crowded + 1
