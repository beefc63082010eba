"""Message groups: each is with one consumer until that has settled all it has of it."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.queues import groups as groups_module
from qpidha.broker.queues.groups import CLOSES, Grouping
from qpidha.broker.queues.queue import Queue
from qpidha.model.encoding import Described, UInt, ULong, encode
from qpidha.model.errors import InvalidArgument, PreconditionFailed
from qpidha.model.message import Message
from qpidha.model.message_view import application_properties, application_property, build, group_of
from qpidha.model.records import Cause
from tests.broker.parts import Taker, Tape, a_broker, a_taker, copy_of, expire


def a_member(group: str | None, number: int, **more: Any) -> bytes:
    """A message of a group, with a number."""
    said = {"n": number, **({} if group is None else {"g": group}), **more}
    return encode(Described(ULong(0x74), said))


def a_jms_member(group: str | None, sequence: int | None, number: int) -> bytes:
    fields = [None] * 10 + [group, None if sequence is None else UInt(sequence)]
    return encode(Described(ULong(0x73), fields)) + a_member(None, number)


def a_queue(key: str = "g", **arguments: Any) -> tuple[Broker, Queue]:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q", arguments={"qpid.group_header_key": key, **arguments})
    return broker, queue


def put(queue: Queue, members: str, first: int = 1) -> None:
    """Enqueue a message for each letter, of the group that this names; `-` names none."""
    for number, group in enumerate(members, first):
        queue.enqueue(a_member(None if group == "-" else group, number))


def number_of(message: Message) -> int:
    return int(application_properties(message.body())["n"])


def numbers(taker: Taker) -> list[int]:
    return [number_of(message) for message in taker.got]


def test_a_group_goes_to_one_consumer_and_others_to_others() -> None:
    _, queue = a_queue()
    put(queue, "aabbab")
    one, two = a_taker(queue, 9), a_taker(queue, 9)
    queue.dispatch(1)
    assert (numbers(one), numbers(two)) == ([1, 2, 5], [3, 4, 6])


@pytest.mark.parametrize("key", ["g", "JMSXGroupID"])
def test_the_long_name_of_a_group_is_kept_short_and_stays_its_own(key: str) -> None:
    grouping, make = (
        Grouping(key, ""),
        a_member if key == "g" else partial(a_jms_member, sequence=1),
    )
    names = [grouping.read(make("g" * 100_000 + end, number=1))[0] for end in "abb"]
    assert names[0] != names[1] == names[2] and len(names[0]) < 256


def test_a_group_is_free_when_all_that_is_out_is_settled() -> None:
    broker, queue = a_queue()
    put(queue, "aaaa")
    one, two = a_taker(queue, 2), a_taker(queue, 9)
    broker.dispatch(1)
    assert (numbers(one), numbers(two)) == ([1, 2], [])
    queue.dequeue(one.got[0])
    broker.dispatch(1)
    assert numbers(two) == []
    queue.dequeue(one.got[1])
    assert queue in broker.runnable  # nobody has new credit: this alone lets others go on
    broker.dispatch(1)
    assert numbers(two) == [3, 4]


def test_a_group_whose_consumer_has_no_credit_holds_up_no_other() -> None:
    broker, queue = a_queue()
    put(queue, "aaaaaab")
    one, two = a_taker(queue, 1), a_taker(queue, 1)
    broker.dispatch(1)
    assert (numbers(one), numbers(two)) == ([1], [7])
    one.credit = 2
    queue.wake()
    broker.dispatch(1)
    assert numbers(one) == [1, 2, 3]


def test_what_is_given_back_comes_before_the_rest_of_its_group() -> None:
    broker, queue = a_queue()
    put(queue, "aaaa")
    one = a_taker(queue, 2)
    broker.dispatch(1)
    queue.requeue(one.got[1], failed=True)
    queue.release(one.got[0])
    two = a_taker(queue, 9)
    broker.dispatch(1)
    assert numbers(two) == [1, 2, 3, 4]


def test_a_consumer_that_goes_leaves_its_groups_in_order() -> None:
    broker, queue = a_queue()
    put(queue, "abab")
    one = a_taker(queue, 9)
    broker.dispatch(1)
    broker.returns.add(queue, one.got, True)
    queue.unsubscribe(one)
    two = a_taker(queue, 9)
    broker.dispatch(1)
    assert numbers(two) == [1, 2, 3, 4]


def test_a_message_in_a_transaction_keeps_its_group_after_its_consumer_is_gone() -> None:
    broker, queue = a_queue()
    put(queue, "aab")
    one = a_taker(queue, 1)
    broker.dispatch(1)
    queue.unsubscribe(one)  # what it had is in a transaction, and stays acquired
    two = a_taker(queue, 9)
    broker.dispatch(1)
    assert numbers(two) == [3]
    queue.dequeue(one.got[0])
    broker.dispatch(1)
    assert numbers(two) == [3, 2]


def test_messages_without_a_group_are_one_group_unless_it_is_said_to_be_none() -> None:
    """As in Qpid."""
    for more, expected in ({}, ([1, 3], [2])), ({"qpid.default-message-group": ""}, ([1, 3], [2])):
        _, queue = a_queue(**more)
        put(queue, "-a-")
        one, two = a_taker(queue, 9), a_taker(queue, 9)
        queue.dispatch(1)
        assert (numbers(one), numbers(two)) == expected
    _, queue = a_queue(**{"qpid.default-message-group": ""})
    put(queue, "--")
    takers = [a_taker(queue, 9), a_taker(queue, 9)]
    queue.dispatch(1)
    assert [numbers(taker) for taker in takers] == [[1], [2]]


def test_the_default_group_may_be_one_that_messages_name() -> None:
    _, queue = a_queue(**{"qpid.default-message-group": "a"})
    put(queue, "-a")
    one, two = a_taker(queue, 9), a_taker(queue, 9)
    queue.dispatch(1)
    assert (numbers(one), numbers(two)) == ([1, 2], [])


def test_jmsxgroupid_is_the_group_id_and_the_sequence_of_minus_one_ends_the_group() -> None:
    broker, queue = a_queue("JMSXGroupID")
    for number, (group, sequence) in enumerate(
        [("a", 1), ("a", CLOSES), ("a", 1), (None, None), ("", 1)], 1
    ):
        queue.enqueue(a_jms_member(group, sequence, number))
    one, two = a_taker(queue, 9), a_taker(queue, 9)
    broker.dispatch(1)
    assert (numbers(one), numbers(two)) == ([1, 2, 4], [3, 5])
    queue.release(one.got[0])
    queue.release(one.got[1])
    one.credit = 0
    two.credit = 0
    three = a_taker(queue, 9)
    broker.dispatch(1)
    assert numbers(three) == [1, 2]


def test_a_group_id_is_read_from_few_bytes() -> None:
    for sequence in (7, 0, CLOSES):
        assert group_of(a_jms_member("g", sequence, 1)) == ("g", sequence)
    assert group_of(a_jms_member("g", None, 1)) == ("g", 0)
    assert group_of(a_jms_member(None, None, 1)) == ("", 0)
    assert group_of(encode(Described(ULong(0x73), [ULong(7), b"x", "to"]))) == ("", 0)
    long = [None] * 3 + ["s" * 300] + [None] * 6 + ["g"]
    assert group_of(encode(Described(ULong(0x70), [True])) + encode(Described(ULong(0x73), long)))
    assert group_of(b"") == ("", 0)


@pytest.mark.parametrize("payload", [b"\x00", b"\x00\x53\x73\xc0", b"\x00\x53\x74\x40", b"x"])
def test_what_cannot_be_read_is_of_the_default_group(payload: bytes) -> None:
    for key in "g", "JMSXGroupID":
        assert Grouping(key, "none").read(payload) == ("none", False)


def test_one_application_property_is_read_without_the_others() -> None:
    many = {"a": [1, {"g": "no"}], "gg": "no", "G": 7, "g": "yes", "z": "g"}
    for header in ({}, {"durable": True}):
        payload = build("g", header=header, application_properties=many)
        assert application_property(payload, b"g") == "yes"
        assert application_property(payload, b"none") is None
    assert application_property(build("x"), b"g") is None
    long = build("x", application_properties={"k" * 300: 1, "g": 2})
    assert [application_property(long, name) for name in (b"k" * 300, b"g")] == [1, 2]
    large = build("x", application_properties={str(number): number for number in range(99)})
    assert application_property(large, b"98") == 98


def test_numbers_name_groups_too() -> None:
    assert Grouping("g", "").read(encode(Described(ULong(0x74), {"g": UInt(5)}))) == ("5", False)


def test_messages_that_leave_while_they_wait_are_passed_over() -> None:
    broker, queue = a_queue()
    put(queue, "aaaab")
    one = a_taker(queue, 1)
    a_taker(queue, 1)
    broker.dispatch(1)
    waiting = [message for message in queue.messages.values() if not message.acquired]
    queue.drop(waiting[:2])
    queue.dequeue(one.got[0])
    one.credit = 9
    queue.wake()
    broker.dispatch(1)
    assert numbers(one) == [1, 4]
    queue.dequeue(one.got[1])
    assert not queue.dispatcher._groups or set(queue.dispatcher._groups) == {"b"}  # type: ignore[attr-defined]


def test_expired_messages_of_groups_leave() -> None:
    broker, queue = a_queue()
    queue.enqueue(a_member("a", 1), 5)
    queue.enqueue(a_member("a", 2))
    one = a_taker(queue, 9)
    queue.dispatch(9)
    assert numbers(one) == [2] and queue.expired == 1
    queue.enqueue(a_member("a", 3), 50)
    expire(queue, 60)
    queue.dispatch(60)
    assert numbers(one) == [2]
    assert broker.queues["q"].departed[Cause.EXPIRED] == 2


def test_a_message_that_is_undeliverable_for_one_keeps_its_group_from_nobody_else() -> None:
    broker, queue = a_queue()
    put(queue, "aa")
    one = a_taker(queue, 9)
    broker.dispatch(1)
    queue.requeue(one.got[0], failed=True, not_to=one)
    broker.dispatch(1)
    assert numbers(one) == [1, 2]
    two = a_taker(queue, 9)
    broker.dispatch(1)
    assert numbers(two) == []  # the group is still with the first one
    queue.release(one.got[1])
    broker.dispatch(1)
    assert numbers(two) == [1, 2]


def test_a_rejected_message_that_cannot_be_placed_keeps_its_group_from_nobody() -> None:
    broker = a_broker(Tape())
    broker.declare_exchange("dead", "direct")
    queue, _ = broker.declare_queue("q", alternate="dead", arguments={"qpid.group_header_key": "g"})
    put(queue, "aa")
    one, two = a_taker(queue, 1), a_taker(queue, 1)
    broker.dispatch(1)
    queue.reject(one.got[0])
    queue.wake()
    broker.dispatch(1)
    assert numbers(two) == [2]


def test_a_message_that_is_due_later_comes_to_its_group_then() -> None:
    broker, queue = a_queue()
    put(queue, "aa")
    first = next(iter(queue.messages))
    queue.postpone(first, 50)
    one = a_taker(queue, 9)
    broker.dispatch(1)
    assert numbers(one) == [2]
    queue.postpone(first, 0)
    broker.dispatch(1)
    assert numbers(one) == [2, 1]


def test_consumers_of_a_higher_priority_get_groups_first() -> None:
    _, queue = a_queue()
    put(queue, "abcd")
    low, high = a_taker(queue, 9), a_taker(queue, 2, priority=5)
    queue.dispatch(1)
    assert (numbers(high), numbers(low)) == ([1, 2], [3, 4])


def test_the_groups_of_a_long_backlog_are_read_some_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "READ_AT_ONCE", 2)
    monkeypatch.setattr(groups_module, "READ_A_TURN", 4)
    broker, queue = a_queue()
    put(queue, "a" * 9 + "b")
    one, two = a_taker(queue, 1), a_taker(queue, 1)
    for _ in range(2):
        broker.dispatch(1)
        assert numbers(two) == [] and queue.is_searching and queue in broker.runnable
    broker.dispatch(1)
    assert (numbers(one), numbers(two)) == ([1], [10]) and not queue.is_searching


def test_a_successor_hands_groups_out_anew_and_in_order() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q", arguments={"qpid.group_header_key": "g"})
    put(queue, "abab")
    one = a_taker(queue, 3)
    broker.dispatch(1)
    queue.dequeue(one.got[1])
    successor = copy_of(tape).queues["q"]
    successor.is_replica = False
    successor.promoted()
    other = a_taker(successor, 9)
    successor.dispatch(1)
    assert numbers(other) == [1, 3, 4]


def test_arguments_that_make_no_groups_are_refused() -> None:
    broker = a_broker(Tape())
    for arguments in (
        {"qpid.group_header_key": ""},
        {"qpid.group_header_key": 7},
        {"qpid.default-message-group": "a"},
        {"qpid.shared_msg_group": True},
        {"qpid.group_header_key": "g", "qpid.shared_msg_group": False},
        {"qpid.group_header_key": "g", "x-single-active-consumer": True},
    ):
        with pytest.raises(InvalidArgument):
            broker.declare_queue("q", arguments=arguments)
    broker.declare_queue(
        "q", arguments={"qpid.group_header_key": "g", "qpid.shared_msg_group": True}
    )


def test_groups_cannot_come_to_a_queue_that_has_none() -> None:
    broker = a_broker(Tape())
    plain, _ = broker.declare_queue("plain")
    _, grouped = a_queue()
    with pytest.raises(PreconditionFailed):
        plain.reconfigure(grouped.spec)


class Oracle:
    """What may be handed out, said as simply as it can be."""

    def __init__(self) -> None:
        self.waiting: dict[int, str] = {}
        self.out: dict[int, tuple[str, Taker]] = {}

    def owner(self, group: str) -> Taker | None:
        return next((taker for name, taker in self.out.values() if name == group), None)

    def next_for(self, credit: dict[Taker, int]) -> tuple[int, list[Taker]] | None:
        """The first message that somebody with credit may have, and who."""
        passed: set[str] = set()
        for number, group in sorted(self.waiting.items()):
            if group in passed:
                continue
            owner = self.owner(group)
            may = [one for one in credit if credit[one] > 0 and owner in (None, one)]
            if may:
                return number, may
            passed.add(group)
        return None


@pytest.mark.parametrize("seed", range(60))
def test_what_is_handed_out_is_what_the_oracle_allows(seed: int) -> None:
    draw = random.Random(seed)
    broker, queue = a_queue()
    oracle = Oracle()
    takers: list[Taker] = []
    sent = 0
    by_number: dict[int, Message] = {}
    for _ in range(120):
        step = draw.randrange(9)
        if step < 3:
            for _ in range(draw.randrange(1, 6)):
                sent += 1
                group = draw.choice("abcd")
                put(queue, group, sent)
                oracle.waiting[sent] = group
        elif step == 3 and len(takers) < 4:
            takers.append(a_taker(queue, draw.randrange(4)))
        elif step == 4 and takers:
            draw.choice(takers).credit += draw.randrange(1, 5)
            queue.wake()
        elif step == 5 and takers and draw.random() < 0.4:
            gone = takers.pop(draw.randrange(len(takers)))
            gone.credit = 0
            mine = [number for number, (_, taker) in oracle.out.items() if taker is gone]
            draw.shuffle(mine)
            broker.returns.add(queue, [by_number[number] for number in mine], True)
            queue.unsubscribe(gone)
            for number in mine:
                oracle.waiting[number] = oracle.out.pop(number)[0]
        elif step == 6 and oracle.waiting and draw.random() < 0.3:
            number = draw.choice(sorted(oracle.waiting))
            message = next(one for one in queue.messages.values() if number_of(one) == number)
            queue.drop([message])
            del oracle.waiting[number]
        elif oracle.out:
            number = draw.choice(sorted(oracle.out))
            group, _ = oracle.out.pop(number)
            if draw.random() < 0.4:
                queue.requeue(by_number[number], failed=draw.random() < 0.5)
                oracle.waiting[number] = group
            else:
                queue.dequeue(by_number[number])
        before = {taker: len(taker.got) for taker in takers}
        credit = {taker: taker.credit for taker in takers}
        broker.dispatch(1)
        given = {
            number_of(message): taker for taker in takers for message in taker.got[before[taker] :]
        }
        for taker in takers:
            for message in taker.got[before[taker] :]:
                by_number[number_of(message)] = message
        while (expected := oracle.next_for(credit)) is not None:
            number, may = expected
            assert given.pop(number) in may, seed
            taker = next(one for one in may if by_number[number] in one.got[before[one] :])
            credit[taker] -= 1
            oracle.out[number] = (oracle.waiting.pop(number), taker)
        assert not given
        for taker in takers:
            mine = taker.got[before[taker] :]
            assert [one.sequence for one in mine] == sorted(one.sequence for one in mine)
