"""Priorities, against the plainest description of them there is, and what RabbitMQ and Qpid say."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import (
    binary,
    booleans,
    data,
    integers,
    lists,
    none,
    one_of,
    sampled_from,
)

from qpidha.broker.broker import Broker
from qpidha.broker.queues.messages import Messages
from qpidha.broker.queues.ordering import SLACK
from qpidha.broker.queues.priority import (
    DEFAULT_PRIORITY,
    Priorities,
    Priority,
    RankedMessage,
    read_priorities,
)
from qpidha.broker.queues.queue import Queue
from qpidha.model.encoding import Described, Symbol, UByte, ULong, encode
from qpidha.model.errors import LimitExceeded, PreconditionFailed
from qpidha.model.message import Message
from qpidha.model.message_view import NO_PRIORITY, build, header, priority
from qpidha.model.records import Cause
from tests.broker.parts import Reels, Tape, a_broker, a_taker, copy_of, picture

FAIR = {"x-priority-mode": "fair"}


def ranked(number: int | None, text: object = "", **more: Any) -> bytes:
    wanted = {**more, **({} if number is None else {"priority": number})}
    return build(str(text).encode(), header=wanted)


def text_of(message: Message) -> str:
    return message.body().rpartition(b"\xa0")[2][1:].decode()


def a_queue(tape: Tape | None = None, **options: Any) -> tuple[Broker, Queue]:
    broker = a_broker(Tape() if tape is None else tape)
    return broker, broker.declare_queue("q", **options)[0]


def drained(queue: Queue) -> list[str]:
    """What a consumer gets that takes one after the other."""
    taker = a_taker(queue, settles=True)
    while queue.messages:
        taker.credit = 1
        queue.dispatch(1)
    queue.unsubscribe(taker)
    return [text_of(message) for message in taker.got]


def fill(queue: Queue, priorities: Iterable[int | None]) -> None:
    for index, number in enumerate(priorities):
        queue.enqueue(ranked(number, f"{number}-{index}"))


def numbers(found: Iterable[str]) -> list[int]:
    return [int(text.partition("-")[0]) for text in found]


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (build("x"), NO_PRIORITY),
        (build("x", header={"durable": True}), NO_PRIORITY),
        (ranked(7), 7),
        (ranked(7, durable=True, ttl=5), 7),
        (ranked(255), 255),
        (bytes.fromhex("005370c004025601 5009".replace(" ", "")) + build("x"), 9),
        (bytes.fromhex("005370c003024140") + build("x"), NO_PRIORITY),
        (bytes.fromhex("005370d000000007000000024150 05".replace(" ", "")) + build("x"), 5),
        (encode(Described(Symbol("amqp:header:list"), [True, UByte(8)])) + build("x"), 8),
        (encode(Described(ULong(0x70), [True, "high"])) + build("x"), NO_PRIORITY),
        (encode(Described(ULong(0x70), [True, -3])) + build("x"), NO_PRIORITY),
        (b"", NO_PRIORITY),
        (b"\x00\x53\x70\xc0\x04\x02\x41\x50", NO_PRIORITY),
    ],
)
def test_the_priority_is_read_from_a_header_of_any_form(payload: bytes, found: int) -> None:
    assert priority(payload) == found


@given(one_of(none(), integers(0, 255)), one_of(none(), booleans()), one_of(none(), integers(0, 9)))
def test_what_is_seen_from_a_few_bytes_is_what_the_header_says(
    number: int | None, durable: bool | None, ttl: int | None
) -> None:
    named = {"durable": durable, "priority": number, "ttl": ttl}
    payload = build("x", header={name: each for name, each in named.items() if each is not None})
    assert priority(payload) == header(payload).get("priority", NO_PRIORITY)


@given(binary(max_size=20))
def test_any_bytes_have_a_priority_or_none(payload: bytes) -> None:
    assert 0 <= priority(b"\x00\x53\x70" + payload) <= NO_PRIORITY


@pytest.mark.parametrize(
    ("arguments", "levels"),
    [
        ({"qpid.priorities": 10}, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]),
        ({"qpid.priorities": 5}, [0, 0, 0, 1, 2, 3, 4, 4, 4, 4, 4]),
        ({"qpid.priorities": 2}, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]),
        ({"qpid.priorities": 1}, [0] * 11),
        ({"qpid.priorities": "3"}, [0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2]),
        ({"x-max-priority": 4}, [0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 4]),
        (FAIR, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]),
        ({"x-priority-mode": "strict"}, list(range(11))),
    ],
)
def test_priorities_are_mapped_onto_fewer_levels_as_in_qpid_and_rabbitmq(
    arguments: dict[str, Any], levels: list[int]
) -> None:
    priorities = read_priorities(arguments)
    assert priorities is not None
    assert list(priorities.levels[:11]) == levels
    assert priorities.levels[NO_PRIORITY] == levels[DEFAULT_PRIORITY]
    assert len(priorities.levels) == NO_PRIORITY + 1


def test_no_priorities_is_the_order_of_arrival() -> None:
    assert read_priorities({}) is None
    assert read_priorities({"qpid.priorities": 0}) is None


# -- the order, against an oracle -----------------------------------------------------------------


def oracle(
    priorities: Priorities, present: dict[int, int], turn: int, given: int
) -> tuple[int, int, int]:
    """Say which sequence is next of those that are `present`, each with its level; with the turn
    and how many were given in it.
    """
    levels = sorted(set(present.values()), reverse=True)
    if not priorities.shares:
        return min(one for one in present if present[one] == levels[0]), turn, given
    share = priorities.shares[turn]
    if turn in levels and (not share or given < share):
        given += 1
    else:
        turn = next((level for level in levels if level < turn), levels[0])
        given = 1
    first = {level: min(one for one in present if present[one] == level) for level in levels}
    found = first[turn]
    if priorities.keeps_age:
        found = next(
            (first[level] for level in levels if level > turn and first[level] < found), found
        )
    return found, turn, given


KINDS = [
    {"qpid.priorities": 4},
    {"qpid.priorities": 4, "qpid.fairshare": 2},
    {"qpid.priorities": 4, "qpid.fairshare": 3, "qpid.fairshare-1": 0, "qpid.fairshare-0": 1},
    FAIR,
    {**FAIR, "qpid.priorities": 4},
]


class PriorityMachine(RuleBasedStateMachine):
    """Whatever happens on a backup and then on a primary, the oracle's next one is next."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = Messages()
        self.highest = 0
        self.arguments: dict[str, Any] | None = None

    def begin(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        priorities = read_priorities(arguments)
        assert priorities is not None
        self.priorities = priorities
        self.order = Priority(self.messages, priorities)
        self.ever: set[int] = set()
        self.turn, self.given = priorities.count - 1, 0

    @precondition(lambda self: self.arguments is None)
    @rule(arguments=sampled_from(KINDS))
    def choose(self, arguments: dict[str, Any]) -> None:
        self.begin(arguments)

    def put(self, sequence: int, number: int) -> None:
        self.messages[sequence] = RankedMessage(sequence, ranked(number))
        self.highest = max(self.highest, sequence)
        self.ever.add(sequence)

    @precondition(lambda self: self.arguments)
    @rule(more=integers(1, 3), number=integers(0, 9))
    def add(self, more: int, number: int) -> None:
        self.put(self.highest + more, number)
        self.order.add(self.highest)

    @precondition(lambda self: self.arguments)
    @rule(run=lists(integers(0, 9), min_size=1, max_size=6))
    def add_run(self, run: list[int]) -> None:
        first = self.highest + 1
        for number in run:
            self.put(self.highest + 1, number)
        self.order.add_run(list(range(first, self.highest + 1)))

    @precondition(lambda self: self.arguments)
    @rule(sequence=integers(1, 60), number=integers(0, 9))
    def add_out_of_turn(self, sequence: int, number: int) -> None:
        if sequence not in self.ever:
            self.order.out_of_turn()
            self.put(sequence, number)
            self.order.add(sequence)

    @precondition(lambda self: self.messages)
    @rule(chosen=data())
    def leave(self, chosen: Any) -> None:
        message = self.messages.pop(chosen.draw(sampled_from(sorted(self.messages))))
        assert self.order.left is not None
        self.order.left(message)

    def available(self) -> dict[int, int]:
        return {
            sequence: self.priorities.levels[priority(message.body())]
            for sequence, message in self.messages.items()
            if not message.acquired
        }

    def expected(self, count: int) -> list[int]:
        found = []
        present = self.available()
        for _ in range(count):
            if not present:
                self.turn, self.given = self.priorities.count - 1, 0
                break
            one, self.turn, self.given = oracle(self.priorities, present, self.turn, self.given)
            found.append(one)
            del present[one]
        return found

    @precondition(lambda self: self.arguments)
    @rule(count=integers(1, 8), acquires=booleans(), at_once=booleans())
    def take(self, count: int, acquires: bool, at_once: bool) -> None:
        self.order.tidy()
        taken = []
        for _ in range(count):
            message = self.order.take()
            if message is None:
                break
            taken.append(message)
        assert [message.sequence for message in taken] == self.expected(count)
        if acquires:
            for message in taken:
                message.acquired = True
        elif at_once:
            self.order.restore_run(taken)
        else:
            for message in taken:
                self.order.restore(message)

    @precondition(lambda self: any(message.acquired for message in self.messages.values()))
    @rule(chosen=data())
    def release(self, chosen: Any) -> None:
        acquired = [message for message in self.messages.values() if message.acquired]
        message = chosen.draw(sampled_from(acquired))
        message.acquired = False
        self.order.tidy()
        self.order.restore(message)

    @precondition(lambda self: self.arguments)
    @rule()
    def promote(self) -> None:
        for message in self.messages.values():
            message.acquired = False
        self.order.restart()
        self.turn, self.given = self.priorities.count - 1, 0

    @precondition(lambda self: self.arguments)
    @rule(cursor=integers(0, 70), newcomer=integers(0, 9))
    def look(self, cursor: int, newcomer: int) -> None:
        present = sorted(self.messages)
        following = [one for one in present if one > cursor]
        assert [message.sequence for message in self.order.after(cursor)] == following
        assert self.order.count_after(cursor) == len(following)
        assert self.order.lowest() == min(present, default=0)
        turn, given = self.turn, self.given
        available = self.available()
        assert [each.sequence for each in self.order.waiting()] == self.expected(len(available))
        self.turn, self.given = turn, given
        level = self.priorities.levels[newcomer]
        assert [each.sequence for each in self.order.giving_way(ranked(newcomer))] == sorted(
            (one for one in available if available[one] <= level),
            key=lambda one: (available[one], one),
        )
        in_places = sorted(self.messages.values(), key=self.order.place)
        shown = self.order.unseen([cursor] * self.order.level_count)
        assert [(level, each.sequence) for level, each in shown] == [
            (self.messages[each.sequence].level, each.sequence)
            for each in in_places
            if each.sequence > cursor
        ]
        assert [self.order.place(each) & (1 << 64) - 1 for each in in_places] == [
            each.sequence for each in in_places
        ]

    @precondition(lambda self: self.arguments)
    @invariant()
    def levels_are_counted(self) -> None:
        counts = [0] * self.priorities.count
        for message in self.messages.values():
            counts[self.priorities.levels[priority(message.body())]] += 1
        assert self.order.counts == counts
        assert self.order.last >= max(self.messages, default=0)


PriorityMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=30)
TestPriority = PriorityMachine.TestCase


def test_what_has_left_is_thrown_away_though_a_lower_level_stays() -> None:
    _, queue = a_queue(arguments={"qpid.priorities": 10})
    queue.enqueue(ranked(1))
    taker = a_taker(queue, settles=True)
    for _ in range(30):
        for _ in range(SLACK // 10):
            queue.enqueue(ranked(9))
        taker.credit = SLACK // 10
        queue.dispatch(1)
    assert len(queue.messages) == 1
    order = queue.ordering
    assert isinstance(order, Priority)
    assert len(order._fifos[9]) <= SLACK + SLACK // 10


# -- rows of RabbitMQ -----------------------------------------------------------------------------


def test_row_111_t_p1_two_of_high_priority_come_for_one_of_normal() -> None:
    _, queue = a_queue(arguments=FAIR)
    fill(queue, [4, None, 0, 1, 3])
    assert drained(queue) == ["4-0", "None-1", "0-2", "1-3", "3-4"]
    fill(queue, [4] * 5 + [5] * 10)
    assert "".join("NH"[number > 4] for number in numbers(drained(queue))) == "HHN" * 5


def test_row_111_what_came_before_the_oldest_normal_one_goes_before_it() -> None:
    _, queue = a_queue(arguments=FAIR)
    fill(queue, [9, 9, 9, 9, 4, 9, 4])
    assert drained(queue) == ["9-0", "9-1", "9-2", "9-3", "9-5", "4-4", "4-6"]


def test_row_111_another_weight() -> None:
    _, queue = a_queue(arguments={"x-priority-weight": 3})
    fill(queue, [1] * 2 + [7] * 6)
    assert numbers(drained(queue)) == [7, 7, 7, 1, 7, 7, 7, 1]


@pytest.mark.parametrize("by", [{"x-max-priority": 10}, {"x-priority-mode": "strict"}])
def test_row_112_t_p2_strict_levels_descend_and_each_is_in_the_order_of_arrival(
    by: dict[str, Any],
) -> None:
    tape = Tape()
    broker, queue = a_queue(tape, arguments=by)
    shuffled = [*range(11)] * 2
    Random(112).shuffle(shuffled)
    fill(queue, shuffled)
    expected = sorted(
        (f"{number}-{index}" for index, number in enumerate(shuffled)),
        key=lambda text: (-int(text.partition("-")[0]), int(text.partition("-")[2])),
    )
    assert queue.statistics()["messages"] == 22
    assert queue.priorities == dict.fromkeys(map(str, range(11)), 2)
    successor = copy_of(tape)
    assert picture(successor) == picture(broker)
    assert drained(queue) == expected
    successor.promoted(0)
    assert successor.queues["q"].priorities == dict.fromkeys(map(str, range(11)), 2)
    successor.queues["q"].log_writer = Tape()
    assert drained(successor.queues["q"]) == expected


def test_t_p3_what_is_given_back_keeps_its_level_and_its_place() -> None:
    _, queue = a_queue(arguments={"qpid.priorities": 10})
    fill(queue, [3, 8, 8, 3, 8])
    taker = a_taker(queue, credit=4)
    queue.dispatch(1)
    assert [text_of(message) for message in taker.got] == ["8-1", "8-2", "8-4", "3-0"]
    queue.requeue(taker.got[3], True)
    queue.release(taker.got[1])
    queue.requeue(taker.got[0], True, b"")
    queue.unsubscribe(taker)
    queue.enqueue(ranked(9, "9-5"))
    queue.dequeue(taker.got[2])
    assert drained(queue) == ["9-5", "8-1", "8-2", "3-0", "3-3"]


def test_t_p3_a_purge_empties_all_levels() -> None:
    broker, queue = a_queue(arguments={"x-max-priority": 255})
    fill(queue, [0, 255, 17, None])
    assert broker.purge("q").count == 4
    assert not queue.messages and queue.priorities == {}


def test_a_consumer_with_a_selector_gets_the_highest_that_it_wants() -> None:
    _, queue = a_queue(arguments={"qpid.priorities": 10})
    fill(queue, [1, 9, 5, 7])
    taker = a_taker(queue, credit=2, wants=lambda message: b"9-" not in message.body())
    queue.dispatch(1)
    assert [text_of(message) for message in taker.got] == ["7-3", "5-2"]


# -- tests of Qpid --------------------------------------------------------------------------------

MIXED = [8, 9, 5, 1, 2, 2, 3, 4, 9, 7, 8, 9, 9, 2]
SHARED = [
    *(4, 5, 3, 7, 8, 8, 2, 8, 2, 8, 8, 16, 6, 6, 6, 6, 6, 6, 8, 3),
    *(5, 8, 3, 5, 5, 3, 3, 8, 8, 3, 7, 3, 7, 7, 7, 8, 8, 8, 2, 3),
]
SHARES = {7: 0, 6: 4, 5: 3, 4: 2, 3: 2, 2: 2, 1: 2}
FAIRSHARE = {
    "qpid.priorities": 8,
    "qpid.fairshare": 5,
    **{f"qpid.fairshare-{level}": share for level, share in SHARES.items()},
}


def on_backup(tape: Tape) -> Queue:
    """The queue of a broker that followed the log and then took over."""
    successor = copy_of(tape)
    successor.promoted(0)
    queue = successor.queues["q"]
    queue.log_writer = Tape()
    return queue


def test_qpid_15_priorities_descend_on_a_backup() -> None:
    tape = Tape()
    _, queue = a_queue(tape, arguments={"qpid.priorities": 10})
    fill(queue, MIXED)
    assert numbers(drained(on_backup(tape))) == sorted(MIXED, reverse=True)


def test_qpid_16_fair_shares_on_a_backup() -> None:
    tape = Tape()
    _, queue = a_queue(tape, arguments=FAIRSHARE)
    fill(queue, SHARED)
    levels = [min(max(number - 1, 0), 7) for number in SHARED]
    left = sorted(range(len(SHARED)), key=lambda index: -levels[index])
    expected: list[str] = []
    while left:
        count, last, postponed = 0, -1, []
        for index in left:
            count = count + 1 if levels[index] == last else 1
            last = levels[index]
            share = SHARES.get(last, 0)
            if share and count > share:
                postponed.append(index)
            else:
                expected.append(f"{SHARED[index]}-{index}")
        left = postponed
    assert drained(on_backup(tape)) == expected


def test_qpid_17_a_ring_keeps_the_highest_priorities() -> None:
    tape = Tape()
    broker, queue = a_queue(
        tape, arguments={"qpid.priorities": 10, "qpid.policy_type": "ring", "qpid.max_count": 5}
    )
    fill(queue, MIXED)
    assert queue.departed[Cause.OVERFLOW] == len(MIXED) - 5
    assert picture(copy_of(tape)) == picture(broker)
    kept = [text_of(message) for message in queue.available()]
    assert numbers(kept) == [9, 9, 9, 9, 8]
    assert drained(on_backup(tape)) == kept


def browsed(queue: Queue) -> list[str]:
    """What a browser that comes now is shown."""
    browser = a_taker(queue, credit=1000, browse=True)
    queue.dispatch(1)
    queue.unsubscribe(browser)
    return [text_of(message) for message in browser.got]


def test_qpid_17_browsers_see_the_highest_priority_first_on_backups_too() -> None:
    tape = Tape()
    _, queue = a_queue(
        tape, arguments={"qpid.priorities": 10, "qpid.policy_type": "ring", "qpid.max_count": 5}
    )
    fill(queue, MIXED)
    assert numbers(browsed(queue)) == [9, 9, 9, 9, 8]
    backup = copy_of(tape).queues["q"]
    assert backup.is_replica and browsed(backup) == browsed(queue)


def test_a_browser_sees_what_comes_by_its_priority_and_nothing_twice() -> None:
    _, queue = a_queue(arguments={"qpid.priorities": 10})
    fill(queue, [1, 5])
    browser = a_taker(queue, credit=1, browse=True)
    queue.dispatch(1)
    fill(queue, [9, 1, 5])
    for credit in (1, 9):
        browser.credit = credit
        queue.dispatch(1)
    queue.enqueue(ranked(1, "1-last"))
    queue.dispatch(1)
    shown = [text_of(message) for message in browser.got]
    assert shown == ["5-1", "9-0", "5-2", "1-0", "1-1", "1-last"]


def test_of_one_level_a_ring_drops_the_oldest_and_of_the_lowest_the_newcomer() -> None:
    broker, queue = a_queue(
        arguments={"qpid.priorities": 10, "qpid.policy_type": "ring", "qpid.max_count": 2},
        alternate="amq.fanout",
    )
    broker.declare_queue("dropped")
    broker.bind("amq.fanout", "dropped")
    fill(queue, [5, 5, 5, 4])
    assert drained(queue) == ["5-1", "5-2"]
    assert drained(broker.queues["dropped"]) == ["5-0", "4-3"]


def test_a_ring_whose_messages_consumers_have_takes_nothing() -> None:
    _, queue = a_queue(
        arguments={"qpid.priorities": 10, "qpid.policy_type": "ring", "qpid.max_count": 2}
    )
    fill(queue, [5, 5])
    a_taker(queue, credit=2)
    queue.dispatch(1)
    with pytest.raises(LimitExceeded):
        queue.enqueue(ranked(9))


def test_several_queues_get_one_message_each_by_its_own_order() -> None:
    tape = Tape()
    broker, queue = a_queue(
        tape, arguments={"qpid.priorities": 10, "qpid.policy_type": "ring", "qpid.max_count": 2}
    )
    plain, _ = broker.declare_queue("plain")
    for name in ("q", "plain"):
        broker.bind("amq.fanout", name)
    for index, number in enumerate([1, 9, 4, 0]):
        broker.publish("amq.fanout", "", ranked(number, f"{number}-{index}"), headers=dict)
    assert picture(copy_of(tape)) == picture(broker)
    assert drained(queue) == ["9-1", "4-2"]
    assert drained(plain) == ["1-0", "9-1", "4-2", "0-3"]


def test_qpid_27_a_priority_queue_is_rerouted_to_itself() -> None:
    tape = Tape()
    broker, queue = a_queue(tape, arguments={"qpid.priorities": 10}, alternate="amq.fanout")
    broker.bind("amq.fanout", "q")
    fill(queue, [index % 10 for index in range(100)])
    taker = a_taker(queue, credit=100)
    queue.dispatch(1)
    for message in sorted(taker.got, key=lambda message: message.sequence):
        queue.reject(message)
    queue.unsubscribe(taker)
    assert picture(copy_of(tape)) == picture(broker)
    assert drained(queue) == [
        f"{number}-{index}" for number in range(9, -1, -1) for index in range(number, 100, 10)
    ]


# -- backups, paging, changes ---------------------------------------------------------------------


def test_a_snapshot_beside_newer_records_leads_to_the_same_order() -> None:
    tape = Tape()
    _, queue = a_queue(tape, arguments={"qpid.priorities": 10})
    fill(queue, MIXED)
    rows = [(message.sequence, message.body()) for message in queue.messages_after(0, 1 << 30)]
    other = a_broker()
    other.passive = True
    other.apply(*tape.records[0])
    copy = other.queues["q"]
    for first, last in ((9, 14), (0, 4), (3, 11)):
        copy.insert_run(*map(list, zip(*rows[first:last], strict=True)), [])
    other.promoted(0)
    copy.log_writer = Tape()
    assert drained(copy) == drained(queue)


def test_paged_out_messages_keep_their_places_without_being_read() -> None:
    tape = Tape()
    _, queue = a_queue(tape, arguments={"qpid.priorities": 10})
    fill(queue, MIXED)
    body = Reels(tape)
    assert queue.page_out(0, 1 << 62, body) > 0 and not queue.resident
    taker = a_taker(queue, credit=3)
    queue.dispatch(1)
    queue.release(taker.got[0])
    queue.requeue(taker.got[1], True)
    queue.promoted()
    order = [message.sequence for message in queue.available()]
    assert not body.read_count
    queue.unsubscribe(taker)
    assert numbers(drained(queue)) == sorted(MIXED, reverse=True)
    assert order[0] == 3 and queue.paged_out == 0 and queue.bytes == 0


def test_levels_and_the_kind_of_order_cannot_change_and_shares_can() -> None:
    broker, queue = a_queue(arguments={"qpid.priorities": 3})
    spec = queue.spec
    _, shared = (
        broker.declare_queue(name, arguments=arguments)[0].spec
        for name, arguments in (
            ("fifo", {}),
            ("shared", {"qpid.priorities": 3, "qpid.fairshare": 1}),
        )
    )
    fill(queue, [9, 9, 1, 1])
    for other in ({}, {"qpid.priorities": 4}):
        wanted = broker.declare_queue(f"other-{len(other)}", arguments=other)[0].spec
        with pytest.raises(PreconditionFailed, match="order of queue q, and"):
            queue.reconfigure(wanted)
    queue.reconfigure(shared)
    assert numbers(drained(queue)) == [9, 1, 9, 1]
    queue.reconfigure(spec)
    fill(queue, [1, 9, 1, 9])
    assert numbers(drained(queue)) == [9, 9, 1, 1]


def test_shares_begin_anew_when_all_was_given() -> None:
    _, queue = a_queue(arguments={"qpid.priorities": 10, "qpid.fairshare": 2})
    taker = a_taker(queue, credit=100, settles=True)
    fill(queue, [9])
    queue.dispatch(1)
    fill(queue, [9, 9, 9, 1])
    queue.dispatch(1)
    assert numbers(map(text_of, taker.got)) == [9, 9, 9, 1, 9]


def test_a_queue_without_priorities_has_no_levels() -> None:
    _, queue = a_queue()
    fill(queue, [1, 9])
    assert queue.priorities is None
    assert drained(queue) == ["1-0", "9-1"]
