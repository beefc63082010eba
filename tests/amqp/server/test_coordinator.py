"""The coordinator: what it is told to declare and discharge, and what it makes of nonsense."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidha.amqp.peer.links import LinkEnd, settle
from qpidha.amqp.peer.terminus import ACCEPTED, COORDINATOR, REJECTED, SOURCE, Terminus
from qpidha.amqp.peer.transaction_wire import (
    CAPABILITIES,
    DECLARE,
    DECLARED,
    DISCHARGE,
    TRANSACTIONAL,
)
from qpidha.amqp.peer.values import set_state
from qpidha.amqp.server import open_transactions
from qpidha.amqp.server.coordinator import WINDOW, Coordinator
from qpidha.model.encoding import Described, Symbol, ULong
from qpidha.model.message_view import build
from tests.amqp.controller import Controller
from tests.amqp.work import UNKNOWN, Work, a_host, a_replicating_host


@pytest.fixture
def client() -> Controller:
    return Controller(a_host())


@pytest.fixture
def control(client: Controller) -> LinkEnd:
    """A link of the client to the coordinator."""
    return client.control()


def test_a_coordinator_says_what_it_can_do(client: Controller, control: LinkEnd) -> None:
    terminus = control.remote_target()
    assert terminus.kind == COORDINATOR
    assert terminus.capabilities == list(CAPABILITIES)
    assert control.remote_source().kind == SOURCE


def test_each_transaction_has_an_id_of_its_own(client: Controller, control: LinkEnd) -> None:
    ids = {client.declare(control) for _ in range(300)}
    assert len(ids) == 300
    for one in ids:
        assert len(one) <= 32
        client.commit(control, one)


def test_controls_may_be_named_by_symbols(client: Controller, control: LinkEnd) -> None:
    sent = client.ask(control, build(Described(Symbol("amqp:declare:list"), [None])))
    assert sent.state == DECLARED
    sent = client.ask(
        control, build(Described(Symbol("amqp:discharge:list"), [sent.fields[0], False]))
    )
    assert sent.state == ACCEPTED


@pytest.mark.parametrize(
    ("told", "condition"),
    [
        (Described(ULong(DECLARE), ["global"]), "amqp:not-implemented"),
        (Described(ULong(DISCHARGE), [b"nobody", False]), UNKNOWN),
        (Described(ULong(DISCHARGE), []), "amqp:invalid-field"),
        (Described(ULong(DISCHARGE), [["a list"]]), "amqp:invalid-field"),
        (Described(ULong(0x99), []), "amqp:invalid-field"),
        (Described([1], []), "amqp:invalid-field"),
        ("hello", "amqp:invalid-field"),
    ],
)
def test_a_control_that_cannot_be_followed_is_rejected_and_the_link_goes_on(
    client: Controller, control: LinkEnd, told: Any, condition: str
) -> None:
    sent = client.ask(control, build(told))
    assert (sent.state, sent.condition) == (REJECTED, condition)
    client.commit(control, client.declare(control))


def test_bytes_that_are_no_message_are_rejected(client: Controller, control: LinkEnd) -> None:
    assert client.ask(control, b"\xff\xff\xff").condition == "amqp:invalid-field"
    client.declare(control)


def test_a_source_without_rejected_hears_of_errors_by_a_detach(client: Controller) -> None:
    link = client.control(outcomes=["amqp:accepted:list"])
    client.discharge(link, b"nobody")
    assert client.detached == {"txn": UNKNOWN}


def test_a_control_that_is_settled_ends_the_link(client: Controller, control: LinkEnd) -> None:
    client.ask(control, build(Described(ULong(DECLARE), [])), settled=True)
    assert client.detached == {"txn": "amqp:illegal-state"}


def test_what_proton_says_after_a_reconnection_of_controls_settled_before_is_passed_over(
    client: Controller, control: LinkEnd
) -> None:
    """A transfer for each, settled and with nothing in it."""
    client.ask(control, b"", settled=True)
    client.commit(control, client.declare(control))
    assert client.detached == {}


def test_a_transaction_is_discharged_once(client: Controller, control: LinkEnd) -> None:
    one = client.declare(control)
    client.commit(control, one)
    assert client.discharge(control, one).condition == UNKNOWN
    assert client.discharge(control, one, failed=True).condition == UNKNOWN


def test_a_transaction_is_discharged_where_it_was_declared(client: Controller) -> None:
    first, second = client.control("first"), client.control("second")
    one = client.declare(first)
    assert client.discharge(second, one).condition == UNKNOWN
    client.commit(first, one)


def test_a_backup_coordinates_nothing() -> None:
    host = a_host()
    host.serving = False
    client = Controller(host)
    client.control()
    assert client.detached == {"txn": "amqp:not-allowed"}


def test_a_coordinator_is_no_source(client: Controller) -> None:
    client.attach_receiver("", terminus=Terminus(COORDINATOR))
    assert client.detached


def test_more_open_transactions_than_allowed_are_refused(
    client: Controller, control: LinkEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_transactions, "MAX_TRANSACTIONS", 3)
    ids = [client.declare(control) for _ in range(3)]
    sent = client.ask(control, build(Described(ULong(DECLARE), [])))
    assert (sent.state, sent.condition) == (REJECTED, "amqp:resource-limit-exceeded")
    client.commit(control, ids[0])
    client.declare(control)


def test_discharges_that_wait_are_limited_though_their_sender_heeds_no_credit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = Coordinator.start

    def generous(self: Coordinator, source: Terminus) -> None:
        start(self, source)
        assert self.end is not None
        self.end.flow(10 * WINDOW)  # our client's engine sends nothing without credit

    monkeypatch.setattr(Coordinator, "start", generous)
    work = Work(a_replicating_host())
    sender = work.sender()
    work.host.delaying = True
    for number in range(2 * WINDOW):
        one = work.another()
        one.post(sender, build(number))
        one.discharge()
        if "txn" in work.client.detached:
            break
    assert work.client.detached["txn"] == "amqp:link:transfer-limit-exceeded"
    assert len(work.contents()) == WINDOW


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.binary(max_size=20)
    | st.integers(-9, 99)
    | st.sampled_from([ULong(code) for code in range(0x23, 0x28)]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.builds(Described, st.builds(ULong, st.integers(0, 0x40)), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(ANYTHING, max_size=4),
    st.lists(ANYTHING, max_size=4),
    st.booleans(),
    st.booleans(),
    ANYTHING,
)
def test_nonsense_in_states_and_controls_hurts_nobody_else(
    of_post: list[Any], of_outcome: list[Any], named: bool, settled: bool, control: Any
) -> None:
    """Whatever a client says: the broker goes on, and what it had is there when the client is
    gone.
    """
    work = Work(a_host("q", "r"))
    sender = work.sender("r")
    (delivery,) = work.taken("a")
    name = [work.name] if named else []
    if not named:
        work.rollback()  # so that no transaction is open at all
    for one, fields in ((sender.send(build("x")), of_post), (delivery, of_outcome)):
        set_state(one, TRANSACTIONAL, [*name, *fields])
        if settled:
            settle(one)
    work.turn()
    if not work.client.session.is_ended:
        work.client.ask(work.control, build(control))
    work.client.server.lost("gone")
    assert work.contents("r") == []
    assert work.available() == ["a"]
