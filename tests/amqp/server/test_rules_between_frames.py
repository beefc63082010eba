"""Frames that are right each by itself, and break a rule with others, or ask for what the engine
does not do: tests are named after the findings of an audit that docs/conformance.md lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qpidha.amqp.peer.sasl import AMQP_HEADER
from qpidha.amqp.peer.terminus import ACCEPTED, MODIFIED, REJECTED, RELEASED
from qpidha.amqp.peer.transaction_wire import TRANSACTIONAL, declare, discharge
from qpidha.model.encoding import Described, Symbol, UByte, UInt, ULong
from qpidha.model.message_view import body, build
from tests.amqp.builders import Recording
from tests.amqp.wire import (
    GOOD,
    OPEN,
    SOURCE,
    TARGET,
    Frame,
    Talk,
    a_host,
    attach,
    frame,
    perform,
    told,
)

BEGUN, ATTACHED, FLOWED, SENT, DISPOSED, DETACHED, ENDED, CLOSED = range(0x11, 0x19)
ZERO, ONE = UInt(0), UInt(1)
INVALID, NOT_IMPLEMENTED = "amqp:invalid-field", "amqp:not-implemented"
ROLLBACK = "amqp:transaction:rollback"
FROM_Q = Described(ULong(0x28), ["q"])
COORDINATOR = Described(ULong(0x30), [])
NOTHING_GIVEN = Described(ULong(0x28), [])
SENDER = GOOD[:4]
"""Until a sender to q is attached with handle 0."""


def receiver(handle: int = 1, **given: Any) -> bytes:
    return attach("r", handle, receives=True, source=given.pop("source", FROM_Q), **given)


def transfer(
    delivery: int | None,
    payload: bytes,
    *,
    handle: int = 0,
    tag: bytes | None = b"t",
    message_format: int | None = None,
    settled: bool | None = False,
    more: bool | None = None,
    mode: int | None = None,
    state: Any = None,
) -> bytes:
    number = None if delivery is None else UInt(delivery)
    kind = None if message_format is None else UInt(message_format)
    second = None if mode is None else UByte(mode)
    return frame(
        perform(0x14, UInt(handle), number, tag, kind, settled, more, second, state) + payload
    )


def flow(*given: Any, following: int = 0) -> bytes:
    """A flow of the session, and from the handle on what is given."""
    return frame(perform(0x13, ZERO, UInt(1000), UInt(following), UInt(1000), *given))


def credit(handle: int, count: int, **given: Any) -> bytes:
    return flow(UInt(handle), ZERO, UInt(count), **given)


def outcomes(answers: list[Frame]) -> list[tuple[int, str]]:
    """States of dispositions, and the condition of those that are rejected."""
    found = []
    for answer in answers:
        if answer.code == DISPOSED:
            state = answer.fields[4]
            error = state.value[0] if state.descriptor == REJECTED else None
            found.append((int(state.descriptor), str(error.value[0]) if error else ""))
    return found


def of_code(answers: list[Frame], code: int) -> list[list[Any]]:
    return [answer.fields for answer in answers if answer.code == code]


def still_serves(talk: Talk) -> bool:
    """Whether another session of the connection, and the link of another one, work."""
    before = talk.messages
    begin = frame(perform(0x11, None, ZERO, UInt(100), UInt(100)), channel=5)
    other = frame(
        perform(0x12, "o", ZERO, False, None, None, SOURCE, TARGET, None, None, ZERO), channel=5
    )
    talk.say(begin, other)
    talk.say(frame(perform(0x14, ZERO, ZERO, b"t", ZERO, True) + build("o"), channel=5))
    return talk.messages == before + 1


# A4: errors of a session end the session, those of a link the link.


@pytest.mark.parametrize(
    "bad",
    [
        transfer(5, build("x")),
        transfer(0, build("x")),
        transfer(None, build("x")),
        transfer(1, build("x"), more=True) + transfer(2, b"more"),
        transfer(1, build("x"), more=True, settled=True) + transfer(1, b"more"),
    ],
    ids=["ahead", "again", "none", "another in a delivery", "settled and then not"],
)
def test_a4_a_delivery_out_of_sequence_ends_the_session(bad: bytes) -> None:
    talk = Talk(None, *GOOD)
    assert told(talk.say(bad)) == [(ENDED, INVALID)]
    assert talk.messages == 1 and still_serves(talk)


def test_a4_a_delivery_out_of_sequence_is_found_among_many() -> None:
    """Frames that are like others are not looked at in full."""
    talk = Talk(None, *SENDER)
    many = [transfer(number, build("x")) for number in range(300)]
    talk.say(b"".join(many[:200]))
    talk.say(b"".join(many[200:298]))
    assert talk.messages == 298
    assert told(talk.say(many[298] + many[298])) == [(ENDED, INVALID)]
    assert talk.messages == 299 and still_serves(talk)


def test_a4_delivery_ids_begin_anywhere_and_go_round() -> None:
    talk = Talk(None, *SENDER)
    many = [transfer(number % 2**32, build("x")) for number in range(2**32 - 3, 2**32 + 3)]
    assert told(talk.say(b"".join(many))) == []
    assert talk.messages == 6


def test_a4_a_transfer_before_the_session_has_a_window_ends_the_session() -> None:
    talk = Talk(a_host())
    answers = talk.say(b"".join(GOOD))
    assert [answer.code for answer in answers][:2] == [0x10, BEGUN]
    assert told(answers) == [(ENDED, "amqp:session:window-violation")]
    assert talk.messages == 0 and still_serves(talk)


def test_performance_8_a_name_is_stolen_without_a_look_at_the_other_links() -> None:
    class Watched(dict[Any, Any]):
        """Links of a session, and how often all of them were looked at."""

        walks = 0

        def values(self) -> Any:
            self.walks += 1
            return super().values()

    talk = Talk(None, *GOOD[:3], *(attach(f"s{number}", number) for number in range(60)))
    (session,) = talk.connection._engine._by_channel.values()
    links = session.links = Watched(session.links)
    answers = talk.say(b"".join(attach(f"s{n}", 60 + n) for n in range(30)))
    assert told(answers) == [(DETACHED, "amqp:link:stolen")] * 30
    assert links.walks == 0 and len(links) == 60
    answers = talk.say(b"".join(attach(f"s{n}", 90 + n) for n in range(30)))
    assert told(answers) == [(DETACHED, "amqp:link:stolen")] * 30 and still_serves(talk)


@pytest.mark.parametrize("pipelined", [True, False])
def test_a4_an_attach_with_the_name_of_an_active_link_steals_it(pipelined: bool) -> None:
    talk = Talk(None, *GOOD)
    again = attach("s", 7)
    late = transfer(1, build("late"))
    answers = talk.say(again + late) if pipelined else [*talk.say(again), *talk.say(late)]
    assert told(answers) == [(DETACHED, "amqp:link:stolen")]
    assert [fields[0] for fields in of_code(answers, ATTACHED)] == ["s"]
    assert talk.messages == 1
    talk.say(frame(perform(0x16, ZERO, True)))
    talk.say(transfer(2, build("new"), handle=7))
    assert talk.messages == 2 and still_serves(talk)


def test_a4_a_name_belongs_to_one_direction() -> None:
    talk = Talk(None, *GOOD, attach("s", 7, receives=True, source=FROM_Q))
    assert told(talk.answers) == []


# A7: an echo is answered.


def test_a7_an_echo_of_the_session_is_answered() -> None:
    talk = Talk(None, *GOOD, transfer(1, build("x")))
    (answer,) = of_code(talk.say(flow(None, None, None, None, None, True, following=2)), FLOWED)
    assert answer[0] == 2 and len(answer) == 4 or answer[4] is None


def test_a7_an_echo_of_a_receiver_is_answered_when_it_got_what_there_is() -> None:
    talk = Talk(None, *GOOD, attach("other", 3, receives=True, source=FROM_Q), receiver())
    answers = talk.say(flow(UInt(1), ZERO, UInt(10), None, None, True, following=1))
    assert [answer.code for answer in answers] == [SENT, FLOWED]
    own_handle = next(fields[1] for fields in of_code(talk.answers, ATTACHED) if fields[0] == "r")
    sent, said = answers[0].fields, answers[1].fields
    assert sent[0] == said[4] == own_handle
    assert (said[0], said[2], said[5], said[6]) == (1, 1, 1, 9)
    assert len(said) < 10 or not said[9]


def test_a7_an_echo_of_a_sender_is_answered() -> None:
    talk = Talk(None, *GOOD)
    (answer,) = of_code(talk.say(flow(ZERO, ONE, None, None, None, True, following=1)), FLOWED)
    assert answer[4] == 0 and answer[5] == 1 and answer[6] > 0


def test_a7_later_credit_counts_in_the_answer_to_an_echo() -> None:
    talk = Talk(None, *SENDER, receiver())
    answers = talk.say(
        flow(UInt(1), ZERO, UInt(10), None, None, True) + flow(UInt(1), ZERO, UInt(30))
    )
    assert [fields[4:7] for fields in of_code(answers, FLOWED)] == [[1, 0, 30]]
    assert of_code(talk.say(flow(UInt(1), ZERO, UInt(31))), FLOWED) == []


# A8: message-format.


def test_a8_a_message_of_another_format_is_rejected() -> None:
    talk = Talk(None, *SENDER)
    parts = transfer(0, b"one", message_format=7, more=True) + transfer(
        None, b"two", tag=None, message_format=7
    )
    answers = talk.say(parts, transfer(1, build("whole"), message_format=7))
    assert outcomes(answers) == [(REJECTED, NOT_IMPLEMENTED)] * 2
    assert outcomes(talk.say(transfer(2, build("x"), message_format=0))) == [(ACCEPTED, "")]
    assert talk.messages == 1 and told(talk.answers) == []


def test_a8_a_settled_message_of_another_format_ends_the_link() -> None:
    talk = Talk(None, *SENDER, transfer(0, build("x"), message_format=7, settled=True))
    assert told(talk.answers) == [(DETACHED, NOT_IMPLEMENTED)]
    assert talk.messages == 0


def test_a8_a_delivery_of_two_formats_ends_the_link() -> None:
    talk = Talk(None, *SENDER)
    message = build("x" * 100)
    parts = transfer(0, message[:50], message_format=0, more=True) + transfer(
        None, message[50:], tag=None, message_format=1
    )
    assert told(talk.say(parts)) == [(DETACHED, INVALID)]
    assert talk.messages == 0 and still_serves(talk)


def test_a8_messages_of_another_format_do_not_use_up_the_credit() -> None:
    talk = Talk(a_host(link_credit=4), *SENDER)
    for number in range(9):
        talk.say(transfer(number, build("x"), message_format=7))
    given = [fields for fields in of_code(talk.answers, FLOWED) if fields[4] == 0]
    assert given[-1][5] + given[-1][6] > 9


@pytest.mark.parametrize("address", ["$service", None])
def test_a8_a_service_and_a_coordinator_take_no_other_format(address: str | None) -> None:
    host = a_host()
    host.services["$service"] = service = Recording()
    target = COORDINATOR if address is None else Described(ULong(0x29), [address])
    talk = Talk(host, *GOOD[:3], attach("s", 0, target=target))
    answers = talk.say(transfer(0, declare(), message_format=7))
    if address is None:
        assert told(answers) == [(DETACHED, NOT_IMPLEMENTED)]
    else:
        assert outcomes(answers) == [(REJECTED, NOT_IMPLEMENTED)]
        assert service.payloads == []


# A12: next-incoming-id.


def test_a12_the_next_incoming_id_is_taken_from_a_flow() -> None:
    talk = Talk(None, *GOOD)
    echo = (None, None, None, None, None, True)
    ids = []
    for following in (100, 100, 101, 7):
        if following == 101:
            talk.say(transfer(1, build("x")))
        ids += [fields[0] for fields in of_code(talk.say(flow(*echo, following=following)), FLOWED)]
    assert ids == [100, 100, 101, 7]


def test_a12_all_transfers_count_alone_or_in_parts() -> None:
    talk = Talk(None, *SENDER)
    talk.say(*(transfer(number, build("x")) for number in range(3)))
    talk.say(transfer(3, build("x" * 9)[:5], more=True), transfer(3, build("x" * 9)[5:]))
    talk.say(b"".join(transfer(number, build("x")) for number in range(4, 9)))
    flows = of_code(talk.say(flow(None, None, None, None, None, True, following=10)), FLOWED)
    assert [fields[0] for fields in flows] == [10]
    assert talk.messages == 9


# A2 and its like: what the engine does not tell of termini.


def test_a2_a_source_that_says_nothing_is_a_source() -> None:
    talk = Talk(None, *GOOD[:3], attach("s", 0, source=NOTHING_GIVEN))
    (answer,) = of_code(talk.answers, ATTACHED)
    assert answer[5].descriptor == 0x28
    assert told(talk.answers) == []


@pytest.mark.parametrize(
    "link",
    [
        attach("s", 0, source=None),
        receiver(target=None),
        attach("s", 0, source=None, target=COORDINATOR),
        attach("s", 0, source=None, target=Described(ULong(0x29), ["$service"])),
    ],
    ids=["sender", "receiver", "coordinator", "service"],
)
def test_a_link_that_can_carry_nothing_is_refused(link: bytes) -> None:
    host = a_host()
    host.services["$service"] = Recording()
    talk = Talk(host, *GOOD[:3], link)
    assert told(talk.answers) == [(DETACHED, INVALID)]
    assert of_code(talk.answers, FLOWED) == []


@pytest.mark.parametrize(("code", "counted"), [(None, 0), (RELEASED, 0), (MODIFIED, 1)])
@pytest.mark.parametrize("how", ["settled", "lost"])
def test_a2_the_default_outcome_is_what_becomes_of_a_delivery_without_one(
    code: int | None, counted: int, how: str
) -> None:
    default = None if code is None else Described(ULong(code), [True] if code == MODIFIED else [])
    source = Described(ULong(0x28), ["q", None, None, None, None, None, None, None, default])
    talk = Talk(None, *GOOD, receiver(source=source))
    assert told(talk.answers) == []
    talk.say(credit(1, 1, following=1))
    if how == "settled":
        talk.say(frame(perform(0x15, True, ZERO, ZERO, True)))
    else:
        talk.say(frame(perform(0x16, ONE, False)))
        counted = 1 if code is None else counted
    (message,) = talk.host.broker.queues["q"].messages.values()
    assert message.delivery_count == counted


@pytest.mark.parametrize("code", [ACCEPTED, REJECTED])
def test_a2_a_default_outcome_that_ends_the_message_is_refused(code: int) -> None:
    default = Described(ULong(code), [])
    source = Described(ULong(0x28), ["q", None, None, None, None, None, None, None, default])
    talk = Talk(None, *GOOD[:3], receiver(source=source))
    assert told(talk.answers) == [(DETACHED, NOT_IMPLEMENTED)]


# A3: a commit is never accepted when an outcome in it was thrown away.


class InTransaction:
    """A client with some messages of q, and a transaction."""

    def __init__(self, count: int = 1) -> None:
        self.talk = Talk(None, *SENDER)
        for number in range(count):
            self.talk.say(transfer(number, build(number)))
        self.following = count
        self.talk.say(attach("c", 9, target=COORDINATOR))
        self.name = self._ask(declare())[4].value[0]
        self.talk.say(receiver())
        assert len(of_code(self.talk.say(credit(1, 9, following=count + 1)), SENT)) == count

    def _ask(self, payload: bytes) -> list[Any]:
        answers = self.talk.say(transfer(self.following, payload, handle=9))
        self.following += 1
        return of_code(answers, DISPOSED)[-1]

    def retire(
        self, first: int, last: int | None = None, *, code: int = ACCEPTED, settled: bool = True
    ) -> list[Frame]:
        state = Described(ULong(TRANSACTIONAL), [self.name, Described(ULong(code), [])])
        end = None if last is None else UInt(last)
        return self.talk.say(frame(perform(0x15, True, UInt(first), end, settled, state)))

    def discharge(self) -> tuple[int, str]:
        state = self._ask(discharge(self.name, failed=False))[4]
        error = state.value[0] if state.descriptor == REJECTED else None
        return int(state.descriptor), str(error.value[0]) if error else ""

    def detach(self) -> None:
        self.talk.say(frame(perform(0x16, ONE, False)))

    @property
    def left(self) -> list[Any]:
        return [body(m.body()) for m in self.talk.host.broker.queues["q"].messages.values()]


def test_a3_a_commit_is_refused_when_an_outcome_came_after_the_detach() -> None:
    work = InTransaction()
    work.detach()
    work.retire(0)
    assert work.discharge() == (REJECTED, ROLLBACK)
    assert work.left == [0]


@pytest.mark.parametrize(
    "lost",
    [
        lambda work: work.retire(7),
        lambda work: work.retire(1, 3),
        lambda work: work.retire(0, 2**31 - 1),
        lambda work: work.retire(0, code=RELEASED),
    ],
    ids=["of no delivery", "of some that are not there", "of very many", "of a settled one"],
)
def test_a3_a_commit_is_refused_when_an_outcome_in_it_named_no_delivery(
    lost: Callable[[InTransaction], object],
) -> None:
    work = InTransaction(3)
    work.retire(0)
    lost(work)
    assert work.discharge() == (REJECTED, ROLLBACK)
    assert sorted(work.left) == [0, 1, 2]


def test_a3_outcomes_before_the_detach_are_committed() -> None:
    work = InTransaction(3)
    work.retire(0, 1)
    work.detach()
    assert work.discharge() == (ACCEPTED, "")
    assert work.left == [2]


@pytest.mark.parametrize(
    ("code", "answer"), [(ACCEPTED, (ACCEPTED, "")), (RELEASED, (REJECTED, ROLLBACK))]
)
def test_a3_what_was_said_before_the_detach_may_be_said_again(
    code: int, answer: tuple[int, str]
) -> None:
    work = InTransaction(2)
    work.retire(0, 1, settled=False)
    work.detach()
    work.retire(0, 1, code=code)
    assert work.discharge() == answer


# Transactional acquisition.


def test_transactional_acquisition_is_refused_by_name() -> None:
    acquiring = {Symbol("txn-id"): b"t"}
    talk = Talk(None, *GOOD, receiver())
    asked = [UInt(1), ZERO, UInt(9), None, None, None, acquiring]
    assert told(talk.say(flow(*asked, following=1))) == [(DETACHED, NOT_IMPLEMENTED)]
    assert of_code(talk.answers, SENT) == []
    assert still_serves(talk)


# (b): where the specification leaves room.


@pytest.mark.parametrize(
    "bad", [transfer(1, build("x"), tag=None), transfer(1, build("x"), mode=1)], ids=["tag", "mode"]
)
def test_b_a_transfer_that_its_link_does_not_allow_ends_the_link(bad: bytes) -> None:
    talk = Talk(None, *GOOD)
    assert told(talk.say(bad, transfer(2, build("x")))) == [(DETACHED, INVALID)]
    assert talk.messages == 1 and still_serves(talk)


def test_b_the_modes_that_hold_may_be_said_with_each_transfer() -> None:
    talk = Talk(None, *GOOD, transfer(1, build("x"), mode=0), transfer(2, build("y"), mode=0))
    assert talk.messages == 3 and told(talk.answers) == []


def test_an_error_of_a_link_that_ended_already_is_of_no_interest() -> None:
    talk = Talk(None, *GOOD, transfer(1, build("x"), tag=None))
    assert told(talk.say(transfer(2, build("x"), tag=None), transfer(3, build("x")))) == []
    assert talk.messages == 1 and still_serves(talk)


def test_pipelined_opens_are_answered_before_their_sessions_are_used() -> None:
    talk = Talk(None, AMQP_HEADER + OPEN + GOOD[2] + GOOD[3])
    assert [answer.code for answer in talk.answers] == [0x10, BEGUN, ATTACHED, FLOWED]
