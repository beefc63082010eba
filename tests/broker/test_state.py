"""The fold: a state that applies the log of another is its copy, for every history of decisions."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from qpidha.broker.broker import Broker
from qpidha.model.errors import RefusedRequest
from qpidha.model.message import Message
from qpidha.model.records import (
    Bound,
    Dequeued,
    Enqueued,
    EpochStarted,
    ExchangeDeleted,
    QueueDeclared,
    QueueDeleted,
    Requeued,
    Unbound,
)
from tests.broker.parts import (
    Reels,
    Taker,
    Tape,
    a_broker,
    contents,
    copy_of,
    enough_steps,
    picture,
    send,
)


def a_history() -> tuple[Broker, Tape]:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_exchange("altex", "fanout")
    broker.declare_exchange("ex", "topic", alternate="altex")
    broker.declare_queue(
        "a", alternate="altex", arguments={"qpid.max_count": 3, "qpid.policy_type": "ring"}
    )
    broker.declare_queue("b")
    broker.declare_queue("config", arguments={"qpid.replicate": "configuration"})
    broker.declare_queue("local", arguments={"qpid.replicate": "none"})
    broker.bind("ex", "a", "x.#")
    broker.bind("ex", "local", "#")
    broker.bind("amq.topic", "b", "x.*", {"note": 1})
    broker.bind("amq.fanout", "b", "", {"qpid.replicate": "none"})
    send(broker, "a", *"01234")
    send(broker, "b", *"567")
    send(broker, "config", "8")
    message = broker.queues["b"].messages_after(0, 1)[0]
    broker.queues["b"].acquire(message)
    broker.queues["b"].requeue(message, failed=True, annotations=b"note")
    return broker, tape


def test_copy_has_all_that_is_replicated_and_nothing_else() -> None:
    broker, tape = a_history()
    copy = copy_of(tape)
    assert picture(copy) == picture(broker)
    assert list(copy.queues) == ["a", "b", "config"]
    assert contents(copy, "a") == list("234") and contents(copy, "config") == []
    assert copy.queues["b"].messages_after(0, 1)[0].delivery_count == 1
    assert [queue.name for queue in copy.exchanges["ex"].route("x.y", dict, enough_steps())] == [
        "a"
    ]
    assert copy.exchanges["amq.fanout"].binding_count == 0


def test_copy_counts_alternates_in_use() -> None:
    _, tape = a_history()
    copy = copy_of(tape)
    copy.log_writer = tape
    copy.promoted(1)
    try:
        copy.delete_exchange("altex")
    except RefusedRequest:
        return
    raise AssertionError("the alternate was deleted while in use")


def test_objects_and_messages_rebuild_the_model() -> None:
    broker, _ = a_history()
    other = a_broker()
    for sequence, record in broker.objects():
        other.apply(sequence, record)
    for queue in broker.queues.values():
        for message in broker.messages_after(queue, 0, 1 << 30):
            other.apply(message.sequence, Enqueued((queue.uid,), message.body(), message.expires))
            other.apply(
                0,
                Requeued(queue.uid, message.sequence, message.delivery_count, message.annotations),
            )
    assert picture(other) == picture(broker)


def test_records_of_unknown_objects_are_no_concern() -> None:
    broker, tape = a_history()
    before = picture(broker)
    for record in (
        Enqueued((999,), b""),
        Dequeued(999, (1,)),
        Requeued(999, 1, 1),
        QueueDeleted(999),
        ExchangeDeleted(999),
        ExchangeDeleted(-3),
        Bound(999, 3, "k"),
        Bound(3, 999, "k"),
        Unbound(999, 999, "k"),
        EpochStarted("someone", ()),
        *(record for _, record in tape.records[:1]),
    ):
        broker.apply(1, record)
    assert picture(broker) == before


def test_queue_of_the_log_takes_the_place_of_a_local_one() -> None:
    broker = a_broker()
    broker.passive = True
    local, _ = broker.declare_queue("q", arguments={"qpid.replicate": "none"})
    broker.apply(7, QueueDeclared("q", "uuid", replicate="all"))
    assert broker.queues["q"].uid == 7 and local.deleted
    broker.apply(8, QueueDeleted(7))
    assert not broker.queues


def test_queue_deleted_by_the_log_is_not_rerouted() -> None:
    broker, tape = a_history()
    copy = copy_of(tape)
    browser = Taker(copy.queues["a"], browse=True)
    copy.queues["a"].subscribe(browser)
    copy.apply(100, Bound(-4, copy.queues["b"].uid, ""))
    copy.apply(101, QueueDeleted(copy.queues["a"].uid))
    assert browser.is_told
    assert contents(copy, "b") == list("567")


def test_reset_leaves_the_built_in_exchanges() -> None:
    broker, _ = a_history()
    broker.reset(keep_local=True)
    assert list(broker.queues) == ["local"]
    broker.reset()
    assert not broker.queues and len(broker.exchanges) == 5
    assert all(not exchange.binding_count for exchange in broker.exchanges.values())
    assert list(broker.objects()) == []


def test_promoted_copy_goes_on_with_the_same_log() -> None:
    broker, tape = a_history()
    copy = copy_of(tape)
    copy.log_writer = tape
    copy.promoted(1)
    broker_uids = set(broker.by_uid)
    queue, sequence = copy.declare_queue("new")
    assert sequence and queue.uid not in broker_uids
    assert send(copy, "b", "8")[0] == len(tape.records)
    assert picture(copy_of(tape)) == picture(copy)


NAMES = st.sampled_from(["a", "b", "ring", "small", "local"])
ARGUMENTS: dict[str, dict[str, Any]] = {
    "a": {"alternate": "altex"},
    "b": {},
    "ring": {"arguments": {"qpid.max_count": 3, "qpid.policy_type": "ring"}, "alternate": "altex"},
    "small": {"arguments": {"qpid.max_size": 5}},
    "local": {"arguments": {"qpid.replicate": "none"}},
}


class Copy:
    """A message on a queue, to the oracle. One body may come to a queue twice, by way of an
    alternate exchange.
    """

    def __init__(self, body: str) -> None:
        self.body = body


class BrokerAgainstOracle(RuleBasedStateMachine):
    """Random decisions; the oracle is one list of messages for each queue, and those that its
    consumer holds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tape = Tape()
        self.broker = a_broker(self.tape)
        self.broker.declare_exchange("altex", "fanout")
        self.expected: dict[str, list[Copy]] = {}
        self.held: dict[str, list[Copy]] = {}
        self.takers: dict[str, Taker] = {}
        self.number = 0
        for name in ("a", "ring"):
            self.declare(name)
        self.bind("altex", "a")

    @rule(name=NAMES)
    def declare(self, name: str) -> None:
        queue, _ = self.broker.declare_queue(name, **ARGUMENTS[name])
        if name not in self.expected:
            self.expected[name] = []
            self.held[name] = []
            self.takers[name] = Taker(queue)
            queue.subscribe(self.takers[name])

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in self.expected:
            orphans = self.expected.pop(name)
            del self.takers[name], self.held[name]
            bound = self.bound_to("altex", but=name)
            self.broker.delete_queue(name)
            if "alternate" in ARGUMENTS[name]:
                for copy in orphans:
                    self.expect(bound, copy.body)

    @rule(exchange=st.sampled_from(["altex", "amq.fanout"]), name=NAMES)
    def bind(self, exchange: str, name: str) -> None:
        if name in self.expected:
            self.broker.bind(exchange, name)

    @rule(exchange=st.sampled_from(["altex", "amq.fanout"]), name=NAMES)
    def unbind(self, exchange: str, name: str) -> None:
        if name in self.expected:
            self.broker.unbind(exchange, name)

    @rule(name=NAMES)
    def publish(self, name: str) -> None:
        self.send("", name, [name] if name in self.expected else [])

    @rule()
    def publish_to_all(self) -> None:
        self.send("amq.fanout", "", self.bound_to("amq.fanout"))

    @rule(credit=st.integers(0, 3))
    def dispatch(self, credit: int) -> None:
        for name, taker in self.takers.items():
            self.held[name] += self.available(name)[:credit]
            taker.credit = credit
            self.broker.queues[name].wake()
        self.broker.dispatch(1)
        assert {name: taker.bodies for name, taker in self.takers.items()} == {
            name: bodies(self.held[name]) for name in self.takers
        }

    @rule(
        name=NAMES,
        outcome=st.sampled_from(["accepted", "released", "modified", "rejected"]),
        newest=st.booleans(),
    )
    def settle(self, name: str, outcome: str, newest: bool) -> None:
        if name in self.takers and self.takers[name].got:
            taker = self.takers[name]
            message = taker.got.pop(-1 if newest else 0)
            copy = self.held[name].pop(-1 if newest else 0)
            queue = self.broker.queues[name]
            if outcome == "rejected" and "alternate" in ARGUMENTS[name]:
                places = self.bound_to("altex")
                if not places or self.refusing(places, copy.body):
                    outcome = "released"  # It would stay, and be nobody's until there is a place.
            if outcome == "accepted":
                queue.dequeue(message)
            elif outcome == "released":
                queue.release(message)
            elif outcome == "modified":
                queue.requeue(message, failed=True)
            else:
                queue.reject(message)
                if "alternate" in ARGUMENTS[name]:
                    self.expect(self.bound_to("altex"), copy.body)
            if outcome in ("accepted", "rejected") and copy in self.expected[name]:
                self.expected[name].remove(copy)

    @rule(name=NAMES, count=st.integers(0, 2))
    def purge(self, name: str, count: int) -> None:
        if name in self.expected:
            available = self.available(name)
            queue = self.broker.queues[name]
            queue.drop(queue.available()[: count or None])
            for copy in available[:count] if count else available:
                self.expected[name].remove(copy)

    @rule(name=NAMES, first=st.integers(1, 60), count=st.integers(1, 60))
    def page_out(self, name: str, first: int, count: int) -> None:
        if name in self.expected and self.broker.queues[name].logged:
            self.broker.queues[name].page_out(first, first + count, Reels(self.tape))

    def send(self, exchange: str, key: str, queues: list[str]) -> None:
        self.number += 1
        body = str(self.number)
        try:
            self.broker.publish(exchange, key, body.encode(), headers=dict)
        except RefusedRequest:
            assert self.refusing(queues, body)
            return
        assert not self.refusing(queues, body)
        self.expect(queues, body)

    def expect(self, queues: list[str], body: str) -> None:
        if self.refusing(queues, body):
            return
        evicted = [self.push(name, body) for name in queues]
        for old in [copy.body for copy in evicted if copy is not None]:
            # What the ring lets go of is rerouted, but neither back to it nor to a full queue.
            bound = self.bound_to("altex", but="ring")
            if not self.refusing(bound, old):
                for name in bound:
                    self.push(name, old)

    def push(self, name: str, body: str) -> Copy | None:
        """Put a body on a queue; give the message that made room for it, if any."""
        evicted = None
        if name == "ring" and len(self.expected[name]) == 3:
            evicted = self.available(name)[0]
            self.expected[name].remove(evicted)
        self.expected[name].append(Copy(body))
        return evicted

    def refusing(self, queues: list[str], body: str) -> bool:
        return any(
            (name == "small" and len("".join(bodies(self.expected[name]))) + len(body) > 5)
            or (name == "ring" and len(self.expected[name]) == 3 and len(self.held[name]) == 3)
            for name in queues
        )

    def available(self, name: str) -> list[Copy]:
        return [copy for copy in self.expected[name] if copy not in self.held[name]]

    def bound_to(self, exchange: str, but: str = "") -> list[str]:
        return [
            queue.name
            for queue in self.broker.exchanges[exchange].route("", dict, enough_steps())
            if queue.name != but
        ]

    @invariant()
    def queues_hold_what_is_expected(self) -> None:
        expected = {name: bodies(copies) for name, copies in self.expected.items()}
        assert {name: contents(self.broker, name) for name in self.broker.queues} == expected
        for name, queue in self.broker.queues.items():
            assert queue.bytes == len("".join(expected[name]))
            assert queue.acquired == len(self.takers[name].got)
            assert queue.bytes - queue.paged_out == sum(
                len(m.payload) for m in queue.messages.values() if isinstance(m.payload, bytes)
            )
        resident = sum(queue.resident for queue in self.broker.queues.values())
        assert self.broker.use.bodies == resident

    @invariant()
    def consumers_have_each_message_once(self) -> None:
        for taker in self.takers.values():
            held: list[Message] = taker.got
            assert len({message.sequence for message in held}) == len(held)

    def teardown(self) -> None:
        assert picture(copy_of(self.tape)) == picture(self.broker)


def bodies(copies: list[Copy]) -> list[str]:
    return [copy.body for copy in copies]


BrokerAgainstOracle.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
test_broker_agrees_with_its_oracle_and_with_its_copy = BrokerAgainstOracle.TestCase
