"""Frames that clients of the usual libraries do not send, of which the engine makes something else
than they say: each is followed, or refused by name.
"""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.terminus import ACCEPTED, RELEASED
from qpidha.amqp.peer.transaction_wire import TRANSACTIONAL, declare, discharge
from qpidha.broker.vocabulary import CREATE
from qpidha.model.encoding import Array, Described, Symbol, UInt, ULong
from qpidha.model.message_view import body, build
from tests.amqp.builders import AHost, CountingLogWriter
from tests.amqp.wire import (
    GOOD,
    SOURCE,
    TARGET,
    Frame,
    Talk,
    a_host,
    attach,
    frame,
    frames_in,
    perform,
    told,
)

BEGIN, ATTACHED, FLOWED, SENT, DISPOSED, DETACHED, ENDED, CLOSED = range(0x11, 0x19)
ZERO, ONE = UInt(0), UInt(1)
NOT_IMPLEMENTED, INVALID = "amqp:not-implemented", "amqp:invalid-field"
FROM_Q = Described(ULong(0x28), ["q"])
COORDINATOR = Described(ULong(0x30), [])
HEADER, OPEN, PLAIN_BEGIN = GOOD[:3]


def receiver(source: Any = FROM_Q) -> bytes:
    return attach("r", 1, receives=True, source=source)


def transfer(
    number: int, payload: bytes, *, handle: int = 0, settled: bool = False, **given: Any
) -> bytes:
    flags = [given.get("more"), None, given.get("state"), given.get("resume"), given.get("aborted")]
    fields = [UInt(handle), UInt(number), b"t%d" % number, ZERO, settled, *flags]
    return frame(perform(0x14, *fields) + payload)


def flow(*given: Any) -> bytes:
    """A flow of the session, and from the handle on what is given."""
    return frame(perform(0x13, ZERO, UInt(1000), ZERO, UInt(1000), *given))


def disposition(first: int, last: int | None, state: Any, *, settled: bool = True) -> bytes:
    end = None if last is None else UInt(last)
    return frame(perform(0x15, True, UInt(first), end, settled, state))


def a_delaying_host() -> AHost:
    """A broker with a queue that commits when it is told to."""
    host = AHost(ha_replicate="all")
    host.broker.log_writer = CountingLogWriter()
    host.broker.declare_queue("q")
    host.delaying = True
    return host


def detach(handle: int) -> bytes:
    return frame(perform(0x16, UInt(handle), True))


def states(answers: list[Frame]) -> list[tuple[int, int]]:
    """Each delivery that a disposition is for, and its state; 0 is none."""
    found = []
    for answer in answers:
        if answer.code == DISPOSED:
            first, last, _, state = [*answer.fields, None][1:5]
            code = int(state.descriptor) if state else 0
            found += [(number, code) for number in range(first, (last or first) + 1)]
    return found


def a_sender(host: AHost | None = None) -> Talk:
    return Talk(host, HEADER, OPEN, PLAIN_BEGIN, attach("s", 0))


def a_receiver(*messages: Any) -> Talk:
    """A receiver to whom these were sent."""
    host = a_host()
    for message in messages:
        host.broker.queues["q"].enqueue(build(message))
    talk = Talk(host, HEADER, OPEN, PLAIN_BEGIN, receiver())
    talk.say(flow(ONE, ZERO, UInt(100)))
    return talk


# Credit.


@pytest.mark.parametrize("credit", [2**31, 2**32 - 1])
def test_credit_of_32_bits_is_much_credit(credit: int) -> None:
    host = a_host()
    host.broker.queues["q"].enqueue(build("m"))
    talk = Talk(host, HEADER, OPEN, PLAIN_BEGIN, receiver())
    assert [a.code for a in talk.say(flow(ONE, ZERO, UInt(credit)))] == [SENT]


def test_a_flow_that_gives_no_credit_leaves_what_there_is() -> None:
    talk = a_receiver()
    [answer] = talk.say(flow(ONE, None, None, None, None, True))
    assert answer.fields[4:7] == [ZERO, ZERO, UInt(100)]
    talk.host.broker.queues["q"].enqueue(build("m"))
    assert [a.code for a in talk.say(flow(ONE, UInt(1)))] == [SENT]
    [answer] = talk.say(flow(ONE, UInt(1), None, None, None, True))
    assert answer.fields[4:7] == [ZERO, ONE, UInt(99)]
    assert talk.say(flow(ONE, ONE, ZERO)) == []
    [answer] = talk.say(flow(ONE, None, None, None, None, True))
    assert answer.fields[6] == ZERO


@pytest.mark.parametrize("message_format", [0, 7])
def test_an_aborted_delivery_uses_no_credit_up(message_format: int) -> None:
    talk = a_sender(a_host(link_credit=2))
    for number in range(4):
        first = perform(0x14, ZERO, UInt(number), b"t", UInt(message_format), False, True)
        last = perform(0x14, ZERO, None, None, None, None, False, None, None, None, True)
        answers = talk.say(frame(first + b"a part"), frame(last))
        assert [a.fields[6] for a in answers if a.code == FLOWED] == [2]
    assert states(talk.say(transfer(4, build("m")))) == [(4, ACCEPTED)]
    assert talk.messages == 1


# States that are described by their names.


def test_outcomes_may_be_named_by_symbols() -> None:
    talk = a_receiver(0, 1, 2)
    talk.say(disposition(0, 1, Described(Symbol("amqp:accepted:list"), [])))
    assert talk.messages == 1
    named = Described(Symbol("amqp:modified:list"), [True, None, {Symbol("x-opt-a"): 1}])
    [again] = talk.say(disposition(2, None, named))
    assert again.code == SENT and b"x-opt-a" in again.payload


def test_a_transaction_may_be_named_by_a_symbol() -> None:
    talk = a_sender()
    talk.say(attach("txn", 2, target=COORDINATOR))
    [declared] = talk.say(transfer(0, declare(), handle=2))
    transaction = declared.fields[4].value[0]
    state = Described(Symbol("amqp:transactional-state:list"), [transaction])
    # In two reads, of which the second is a part of the message.
    post = transfer(1, build("posted"), state=state)
    assert states(talk.say(post[:-3], post[-3:])) == [(1, TRANSACTIONAL)]
    assert talk.messages == 0
    assert states(talk.say(transfer(2, discharge(transaction, failed=False), handle=2))) == [
        (2, ACCEPTED)
    ]
    assert talk.messages == 1
    # And an outcome in one.
    [declared] = talk.say(transfer(3, declare(), handle=2))
    transaction = declared.fields[4].value[0]
    talk.say(receiver(), flow(ONE, ZERO, UInt(9)))
    accepted = Described(Symbol("amqp:accepted:list"), [])
    talk.say(
        disposition(
            0, None, Described(Symbol("amqp:transactional-state:list"), [transaction, accepted])
        )
    )
    assert talk.messages == 1
    talk.say(transfer(4, discharge(transaction, failed=False), handle=2))
    assert talk.messages == 0


@pytest.mark.parametrize("failed", [1, "true", Symbol("false"), [True]])
def test_a_discharge_that_does_not_say_whether_it_failed_commits_nothing(failed: Any) -> None:
    talk = Talk(None, HEADER, OPEN, PLAIN_BEGIN, attach("txn", 2, target=COORDINATOR))
    [declared] = talk.say(transfer(0, declare(), handle=2))
    transaction = declared.fields[4].value[0]
    asked = build(Described(ULong(0x32), [transaction, failed]))
    [answer] = talk.say(transfer(1, asked, handle=2))
    assert answer.fields[4].value[0].value[0] == INVALID
    assert states(talk.say(transfer(2, discharge(transaction, failed=True), handle=2))) == [
        (2, ACCEPTED)
    ]


# Ranges, handles, silence.


def test_a_disposition_that_ends_before_it_begins_ends_the_session() -> None:
    talk = a_receiver(0, 1)
    assert told(talk.say(disposition(1, 0, None))) == [(ENDED, INVALID)]
    assert not talk.connection.closed


def test_a_disposition_that_ends_before_it_begins_is_found_among_others() -> None:
    talk = a_receiver(*range(9))
    state = Described(ULong(RELEASED), [])
    good = b"".join(disposition(n, n + 1, state, settled=False) for n in range(0, 6, 2))
    assert told(talk.say(good)) == []
    bad = disposition(6, 7, state, settled=False) + disposition(8, 2, state, settled=False)
    assert told(talk.say(bad)) == [(ENDED, INVALID)]


def test_a_peer_that_takes_no_more_handles_is_told_so() -> None:
    begin = frame(perform(0x11, None, ZERO, UInt(100), UInt(100), ZERO))
    talk = Talk(None, HEADER, OPEN, begin, attach("one", 5))
    assert told(talk.say(attach("two", 6))) == [(ENDED, "amqp:resource-limit-exceeded")]
    assert not talk.connection.closed


def test_an_idle_time_out_that_nobody_can_keep_is_refused() -> None:
    talk = Talk(None, HEADER)
    answers = talk.say(frame(perform(0x10, "c", None, None, None, UInt(1))))
    assert told(answers) == [(CLOSED, NOT_IMPLEMENTED)] and talk.connection.closed
    talk = Talk(None, HEADER, frame(perform(0x10, "c", None, None, None, UInt(10))))
    assert not talk.connection.closed


# What is not offered.


def test_a_resumed_delivery_is_refused_by_name() -> None:
    talk = a_sender()
    assert told(talk.say(transfer(0, build("m"), resume=True))) == [(DETACHED, NOT_IMPLEMENTED)]
    assert talk.messages == 0


@pytest.mark.parametrize(
    "fields",
    [
        ["q", None, None, None, None, None, Symbol("round-robin")],
        ["q", *[None] * 7, Described(Symbol("an:outcome:list"), [])],
    ],
    ids=["distribution mode", "default outcome"],
)
def test_a_source_that_asks_for_what_is_not_known_is_refused(fields: list[Any]) -> None:
    talk = Talk(None, HEADER, OPEN, PLAIN_BEGIN)
    answers = talk.say(receiver(Described(ULong(0x28), fields)))
    assert told(answers) == [(DETACHED, NOT_IMPLEMENTED)]


def test_an_attach_says_what_is_durable() -> None:
    talk = Talk(None, HEADER, OPEN, PLAIN_BEGIN)
    answers = talk.say(attach("s", 0, target=Described(ULong(0x29), ["q", UInt(2)])))
    assert answers[0].fields[6].value[1] == 0
    [answer] = talk.say(receiver(Described(ULong(0x28), ["q", UInt(2)])))
    assert answer.fields[5].value[1] == 0
    lasting = Described(ULong(0x28), ["amq.topic/k", UInt(2), Symbol("never")])
    [answer] = talk.say(attach("sub", 2, receives=True, source=lasting))
    assert answer.fields[5].value[1] == 1  # the queue, and not what of it is unsettled


# What goes out.


def test_what_comes_behind_a_fault_of_its_link_is_released() -> None:
    """Some clients take a delivery that is settled without an outcome for accepted."""
    talk = a_sender()
    answers = talk.say(
        transfer(0, b"none", settled=True) + transfer(1, build("m")) + transfer(2, build("m"))
    )
    assert states(answers) == [(1, RELEASED), (2, RELEASED)]
    assert told(answers) == [(DETACHED, "amqp:decode-error")] and talk.messages == 0
    modified = Array(0xA3, [Symbol("amqp:accepted:list")])
    source = Described(ULong(0x28), ["s", *[None] * 8, modified])
    talk = Talk(None, HEADER, OPEN, PLAIN_BEGIN, attach("s", 0, source=source))
    answers = talk.say(transfer(0, b"none", settled=True) + transfer(1, build("m")))
    assert states(answers) == [(1, 0)]


def test_what_comes_for_a_link_that_lost_its_name_is_released() -> None:
    talk = a_sender()
    answers = talk.say(
        attach("s", 1) + transfer(0, build("old")) + transfer(1, build("new"), handle=1)
    )
    assert states(answers) == [(0, RELEASED), (1, ACCEPTED)] and talk.messages == 1
    assert told(answers) == [(DETACHED, "amqp:link:stolen")]


def test_what_is_not_committed_is_not_settled_when_its_session_ends() -> None:
    host = a_delaying_host()
    talk = a_sender(host)
    talk.say(transfer(0, build("m")))
    answers = talk.say(transfer(7, build("m")))
    assert [a.code for a in answers] == [ENDED] and talk.messages == 1
    host.release_all()
    assert talk.say(frame(perform(0x17))) == []
    assert [a.code for a in talk.say(PLAIN_BEGIN, attach("s", 0))] == [BEGIN, ATTACHED, FLOWED]
    assert states(talk.say(transfer(0, build("m")))) == []
    host.release_all()
    assert states(talk.say(frame(b""))) == [(0, ACCEPTED)]


def test_a9_errors_fit_the_frames_that_the_peer_takes() -> None:
    host = a_host()
    talk = Talk(host)
    small = frame(perform(0x10, "c", None, UInt(512)))
    name = "n\u20ac" * 100
    posts = [
        transfer(0, build("m", properties={"to": name})),
        transfer(1, build("m", properties={"to": name}), settled=True),
    ]
    unknown = {Symbol("x-" + "n" * 300): 1}
    dynamic = Described(ULong(0x28), [None, None, None, None, True, unknown])
    said = [
        *(HEADER, small, PLAIN_BEGIN, attach("s", 0, target=Described(ULong(0x29), []))),
        *posts,
        attach("to", 1, target=Described(ULong(0x29), [name])),
        attach("dynamic", 2, receives=True, source=dynamic),
    ]
    data = b""
    for chunk in said:
        talk.connection.receive(chunk)
        data += talk.connection.output()
    data = data[len(HEADER) :]
    sizes, place = [], 0
    while place < len(data):
        sizes.append(int.from_bytes(data[place : place + 4], "big"))
        place += sizes[-1]
    assert max(sizes) <= 512
    found = told(frames_in(data))
    assert found == [
        (DETACHED, f"amqp:{name}") for name in ("not-found", "not-found", "invalid-field")
    ]


TWICE = {Symbol("a"): Described(Symbol("y"), Described(Symbol("x"), 3)), Symbol("b"): 2**63 - 1}
"""The engine cannot hold this."""


def test_what_is_described_twice_harms_nothing() -> None:
    talk = Talk(None, HEADER, frame(perform(0x10, "c", *[None] * 8, TWICE)), PLAIN_BEGIN)
    assert talk.connection.remote_properties == TWICE
    properties = [None, None, None, None, TWICE]
    own, other = Described(ULong(0x28), ["s", *properties]), Described(ULong(0x29), ["t"])
    create = Symbol("create-on-demand")
    target = Described(ULong(0x29), ["q", *properties, create])
    fields = ["a", ZERO, False, None, None, own, target, None, None, ZERO, None, None, None, TWICE]
    assert [a.code for a in talk.say(frame(perform(0x12, *fields)))] == [ATTACHED, FLOWED]
    talk.say(transfer(0, build("m")), attach("r", 1, receives=True, source=FROM_Q, target=other))
    talk.say(flow(ONE, ZERO, ONE))
    talk.say(disposition(0, None, Described(ULong(0x27), [True, None, TWICE])))
    error = Described(ULong(0x1D), [Symbol("a:b"), "text", TWICE])
    [answer] = talk.say(frame(perform(0x16, ONE, True, error)))
    assert answer.code == DETACHED and talk.messages == 1 and not talk.connection.closed


def test_a_link_property_is_refused_whatever_its_value() -> None:
    fields = ["a", ZERO, False, None, None, SOURCE, TARGET, None, None, ZERO, None, None, None]
    refused = frame(perform(0x12, *fields, {Symbol("x-foo"): TWICE[Symbol("a")]}))
    talk = Talk(None, HEADER, OPEN, PLAIN_BEGIN)
    assert told(talk.say(refused)) == [(DETACHED, NOT_IMPLEMENTED)]


def test_a_large_peer_is_told_everything() -> None:
    talk = Talk(None, HEADER, OPEN, PLAIN_BEGIN)
    unknown = Described(ULong(0x28), [None, None, None, None, True, {Symbol("x-foo"): 1}])
    answer = talk.say(receiver(unknown))[-1]
    assert {"reason", "hint"} <= set(answer.fields[2].value[2])


def test_a_link_ends_when_what_came_on_it_has_its_outcome() -> None:
    host = a_delaying_host()
    talk = a_sender(host)
    assert talk.say(transfer(0, build("m")), detach(0)) == []
    host.release_all()
    answers = talk.say(frame(b""))
    assert [answer.code for answer in answers] == [DISPOSED, DETACHED]
    assert states(answers) == [(0, ACCEPTED)]


def test_a_link_that_ends_leaves_its_name_to_the_next_one() -> None:
    host = a_delaying_host()
    talk = a_sender(host)
    talk.say(transfer(0, build("m")), detach(0))
    assert [a.code for a in talk.say(attach("s", 1))] == [ATTACHED, FLOWED]
    assert talk.say(transfer(1, build("m"), handle=1)) == []
    host.release_all()
    answers = talk.say(frame(b""))
    assert told(answers) == [(DETACHED, "")]
    assert states(answers) == [(0, ACCEPTED), (1, ACCEPTED)]


def test_what_is_not_committed_when_its_link_fails_is_not_settled_before() -> None:
    host = a_delaying_host()
    talk = a_sender(host)
    answers = talk.say(transfer(0, build("m")), transfer(1, b"none", settled=True), detach(0))
    assert told(answers) == [(DETACHED, "amqp:decode-error")] and states(answers) == []
    host.release_all()
    assert states(talk.say(frame(b""))) == [(0, ACCEPTED)]
    assert [a.code for a in talk.say(attach("s", 0))] == [ATTACHED, FLOWED]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("settled", [True, False])
def test_what_is_sent_before_the_attach_is_answered_is_not_stored_later(
    settled: bool, whole: bool
) -> None:
    host = a_delaying_host()
    creates = Described(ULong(0x29), ["made", *[None] * 5, Array(0xA3, [CREATE])])
    talk = Talk(host, HEADER, OPEN, PLAIN_BEGIN, attach("s", 0, target=creates))
    talk.say(transfer(0, build("a"), settled=settled, more=not whole))
    if not whole:
        talk.say(transfer(0, b"", settled=settled, more=False))
    talk.say(transfer(1, build("a again")))
    host.release_all()
    talk.say(detach(0))
    assert states(talk.answers) == [*[(0, RELEASED)] * (not settled), (1, RELEASED)]
    assert told(talk.answers) == [(DETACHED, "amqp:link:transfer-limit-exceeded")]
    talk.say(attach("s", 0, target=creates), transfer(2, build("b")))
    host.release_all()
    talk.say(frame(b""))
    assert [body(one.body()) for one in host.broker.queues["made"].messages.values()] == ["b"]
