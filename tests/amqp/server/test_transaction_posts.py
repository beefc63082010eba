"""Messages posted in a transaction: they come with its commit, or it cannot be committed."""

from __future__ import annotations

import pytest

from qpidha.amqp.peer.terminus import ACCEPTED, REJECTED, target
from qpidha.amqp.peer.transaction_wire import TRANSACTIONAL
from qpidha.amqp.peer.values import set_state
from qpidha.amqp.server import open_transactions
from qpidha.model.encoding import Described, ULong
from qpidha.model.message_view import body, build
from qpidha.model.principal import Action, ObjectType, Principal
from tests.amqp.builders import AHost, Recording
from tests.amqp.controller import Controller
from tests.amqp.work import ROLLBACK, UNKNOWN, Work, a_host, declare


def test_posted_messages_come_with_the_commit_and_not_before() -> None:
    work = Work()
    sender = work.sender()
    sent = [work.post(sender, build(number)) for number in range(3)]
    work.turn()
    for outcome in sent:
        assert (outcome.state, outcome.is_settled) == (TRANSACTIONAL, True)
        assert outcome.fields == [work.name, Described(ULong(ACCEPTED), [])]
    assert work.contents() == []
    work.commit()
    assert work.contents() == [0, 1, 2]


def test_posted_messages_go_with_the_rollback() -> None:
    work = Work()
    work.post(work.sender(), build("gone"))
    work.rollback()
    work.another().commit()
    assert work.contents() == []


def test_messages_may_be_posted_settled() -> None:
    work = Work()
    sender = work.sender()
    work.post(sender, build("a"), settled=True)
    work.client.send(sender, build("b"), settled=True)
    work.turn()
    assert work.contents() == ["b"]
    work.commit()
    assert work.contents() == ["b", "a"]


def test_many_more_messages_than_link_credit_fit_into_a_transaction() -> None:
    work = Work(declare(AHost(link_credit=10)))
    sender = work.sender()
    for number in range(200):
        work.post(sender, build(number))
        work.turn()
    work.commit()
    assert work.contents() == list(range(200))


def test_transactions_at_the_same_time_do_not_mix() -> None:
    first = Work()
    second = first.another()
    sender = first.sender()
    for number in range(4):
        (first, second)[number % 2].post(sender, build(number))
    first.client.send(sender, build("plain"))
    first.turn()
    assert first.contents() == ["plain"]
    second.commit()
    assert first.contents() == ["plain", 1, 3]
    first.rollback()
    assert first.contents() == ["plain", 1, 3]


def test_a_transaction_may_be_used_on_another_session() -> None:
    client = Controller(a_host())
    work = Work(client=client, control=client.control(session=client.engine.new_session()))
    work.post(work.sender(), build("x"))
    work.commit()
    assert work.contents() == ["x"]


def test_exchanges_route_at_the_commit() -> None:
    work = Work(a_host("before", "after"))
    work.broker.bind("amq.topic", "before", "a.*")
    to_key, to_exchange = work.sender("amq.topic/a.b", "s1"), work.sender("amq.topic", "s2")
    anonymous = work.sender("", "s3", target(None))
    work.post(to_key, build("1"))
    work.post(to_exchange, build("2", properties={"subject": "a.c"}))
    work.post(anonymous, build("3", properties={"to": "amq.topic", "subject": "a.d"}))
    work.post(anonymous, build("4", properties={"to": "after"}))
    work.turn()
    work.broker.unbind("amq.topic", "before", "a.*")
    work.broker.bind("amq.topic", "after", "a.*")
    work.commit()
    assert work.contents("before") == []
    assert work.contents("after") == ["1", "2", "3", "4"]


@pytest.mark.parametrize("unroutable", ["release", "accept"])
def test_a_message_for_which_there_is_no_queue_holds_up_its_transaction_unless_it_may_be_dropped(
    unroutable: str,
) -> None:
    """Its sender has been told `accepted` by then, so it cannot be released any more."""
    work = Work(declare(AHost(unroutable=unroutable)))
    work.post(work.sender(), build("for q"))
    to_nobody = work.post(work.sender("amq.topic/news", "s2"), build("for nobody"))
    work.turn()
    assert to_nobody.fields[1].descriptor == ACCEPTED
    if unroutable == "accept":
        work.commit()
        assert work.contents() == ["for q"]
        assert work.broker.exchanges["amq.topic"].dropped == 1
    else:
        assert work.discharge().condition == ROLLBACK
        assert work.contents() == []


def test_a_queue_behind_an_alternate_exchange_lets_a_transaction_publish_for_nobody() -> None:
    work = Work()
    work.broker.declare_exchange("news", "topic", alternate="amq.fanout")
    work.broker.bind("amq.fanout", "q", "")
    work.post(work.sender("news/today", "s2"), build("x"))
    work.commit()
    assert work.contents() == ["x"]


def test_a_post_that_cannot_be_accepted_is_rejected_and_dooms_its_transaction() -> None:
    work = Work()
    sender, anonymous = work.sender(), work.sender("", "s2", target(None))
    work.post(sender, build("x"))
    sent = work.post(anonymous, build("y", properties={"to": "nowhere"}))
    later = work.post(sender, build("z"))
    work.turn()
    assert sent.fields[1].descriptor == later.fields[1].descriptor == REJECTED
    assert sent.fields[1].value[0].value[0] == "amqp:not-found"
    refused = work.discharge()
    assert (refused.state, refused.condition) == (REJECTED, ROLLBACK)
    assert work.contents() == []


def test_a_settled_post_that_cannot_be_accepted_dooms_its_transaction() -> None:
    work = Work()
    sender = work.sender()
    work.post(sender, b"\xff no message", settled=True)
    work.post(sender, build("x"))
    assert work.discharge().condition == ROLLBACK
    assert work.contents() == []


@pytest.mark.parametrize("settled", [True, False])
def test_a_post_to_an_unknown_transaction_ends_its_link(settled: bool) -> None:
    work = Work()
    sender = work.sender()
    work.commit()
    work.post(sender, build("x"), settled=settled)
    work.turn()
    assert work.client.detached == {"raw-sender": UNKNOWN}
    assert work.contents() == []


def test_a_state_without_an_id_ends_the_session() -> None:
    work = Work()
    set_state(work.sender().send(build("x")), TRANSACTIONAL, [])
    work.turn()
    assert work.client.session.is_ended and not work.client.server.closed
    assert work.contents() == []


def test_transactions_of_one_connection_are_unknown_to_another() -> None:
    work = Work()
    other = Controller(work.host, "other", 100)
    other.send(other.sender("q"), build("x"), work.name)
    other.turn()
    assert other.detached == {"raw-sender": UNKNOWN}


def test_a_message_of_several_transfers_can_be_posted() -> None:
    work = Work()
    work.post(work.sender(), build("x" * 300_000))
    work.commit()
    assert work.contents() == ["x" * 300_000]


def test_a_discharge_in_the_middle_of_a_post_ends_the_control_link() -> None:
    work = Work()
    sender = work.sender()
    work.post(sender, build("whole"))
    work.post_part(sender)
    work.discharge()
    assert work.client.detached == {"txn": ROLLBACK}
    assert work.contents() == []


def test_a_sender_that_leaves_in_the_middle_of_a_post_leaves_its_transaction_whole() -> None:
    work = Work()
    sender = work.sender()
    work.post(sender, build("whole"))
    work.post_part(sender)
    sender.end()
    work.turn()
    work.commit()
    assert work.contents() == ["whole"]


def test_a_post_that_is_aborted_leaves_nothing_behind() -> None:
    work = Work()
    sender = work.sender()
    work.post_part(sender)
    work.client.abort(sender)
    work.turn()
    work.commit()
    assert work.contents() == []


def test_bytes_in_open_transactions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "MAX_BYTES", 1000)
    first = Work()
    second = first.another()
    sender = first.sender()
    first.post(sender, build("x" * 700))
    refused = second.post(sender, build("x" * 700))
    first.turn()
    assert refused.fields[1].value[0].value[0] == "amqp:resource-limit-exceeded"
    assert second.discharge().condition == ROLLBACK
    first.commit()
    third = first.another()
    third.post(sender, build("x" * 700))
    third.commit()
    assert len(first.contents()) == 2


def refused_post(work: Work) -> str:
    """Post 600 bytes; return what refuses them, or nothing."""
    sent = work.post(work.sender(name=f"to {work.name!r} of {id(work)}"), build("x" * 600))
    work.turn()
    if sent.fields[1].value == []:
        return ""
    condition, text, *_ = sent.fields[1].value[0].value
    return f"{condition} {text}"


def of_somebody(host: AHost, name: str = "", address: str = "192.0.2.1:5000") -> Work:
    """A transaction of who has logged in by that name, or has not."""
    client = Controller(host)
    client.server.principal = Principal(name=name, address=address)
    return Work(client=client)


def test_open_transactions_of_a_user_have_a_part_of_the_memory_and_no_more() -> None:
    host = a_host()
    use = host.broker.use
    use.share_out(8_000)
    first = of_somebody(host, "ann")
    assert refused_post(first) == ""
    for again in (first.another(), of_somebody(host, "ann@QPID", "192.0.2.9:1")):
        said = refused_post(again)
        assert "amqp:resource-limit-exceeded" in said and "user ann hold" in said
        assert "of 1000 bytes" in said and use.transactions < 1000
        assert again.discharge().condition == ROLLBACK
    others = [of_somebody(host, name) for name in ("bob", "eve", "joe", "kim")]
    assert [refused_post(work) for work in others[:3]] == ["", "", ""]
    assert "all connections hold" in refused_post(others[3])
    assert others[3].discharge().condition == ROLLBACK
    first.commit()
    again = of_somebody(host, "ann")
    assert refused_post(again) == ""
    again.commit()
    assert len(host.broker.queues["q"].messages) == 2
    for work in others[:3]:
        work.commit()
    assert use.transactions == 0 and use.transactions_of == {}


def test_where_nobody_logs_in_an_address_has_that_part() -> None:
    host = a_host()
    host.broker.use.share_out(8_000)
    here, there = [f"[2001:db8::{number}]:5000" for number in (1, 2)]
    works = [of_somebody(host, name, here) for name in ("", "anonymous")]
    assert refused_post(works[0]) == ""
    assert "clients at 2001:db8::/64 hold" in refused_post(works[1])
    assert "clients at 2001:db8::/64 hold" in refused_post(of_somebody(host, "", there))
    assert refused_post(of_somebody(host)) == ""


def test_who_posts_a_message_that_is_too_large_alone_is_not_told_to_commit() -> None:
    host = a_host()
    host.broker.use.share_out(4_000)
    work = of_somebody(host)
    sent = work.post(work.sender(), build("x" * 600))
    work.turn()
    _, text, info = sent.fields[1].value[0].value
    assert "a message of" in text and "commit more often" not in str(info)
    assert "outside" in str(info)


def test_small_messages_count_for_the_memory_that_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_transactions, "MAX_BYTES", 100_000)
    work = Work()
    sender = work.sender()
    for _ in range(1000):  # with all that is kept of each, more than 100 bytes
        work.post(sender, build(""))
    work.turn()
    assert work.discharge().condition == ROLLBACK


def test_a_service_takes_no_part_in_transactions() -> None:
    host = a_host()
    service = host.services["$service"] = Recording()
    work = Work(host)
    sender = work.sender("$service")
    refused = work.post(sender, build("not settled"))
    taken = work.client.send(sender, build("plain"))
    work.turn()
    assert (refused.state, refused.condition) == (REJECTED, "amqp:not-implemented")
    assert taken.state == ACCEPTED
    assert [body(payload) for payload in service.payloads] == ["plain"]
    work.post(sender, build("settled"), settled=True)
    work.turn()
    assert work.client.detached == {sender.name: "amqp:not-implemented"}, "it has no outcome"


def test_a_post_to_the_queue_that_takes_the_place_of_another_asks_again() -> None:
    for condition in ("amqp:resource-locked", "amqp:unauthorized-access"):
        work = Work()
        sender = work.sender()
        work.broker.delete_queue("q")
        if condition == "amqp:resource-locked":
            work.broker.declare_queue("q", exclusive=True, owner=object())
        else:
            work.broker.declare_queue("q")
            work.host.access.denied.add((Action.PUBLISH, ObjectType.QUEUE, "q"))
        sent = work.post(sender, build("m"))
        work.turn()
        outcome = sent.fields[1]
        assert int(outcome.descriptor) == REJECTED and outcome.value[0].value[0] == condition
        assert work.discharge().condition == ROLLBACK
        assert not work.broker.queues["q"].messages
