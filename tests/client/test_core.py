"""The client's core: who is dialled and when it gives up, what is sent again, and what is not."""

from __future__ import annotations

import pytest

from qpidha.client.core import Core, CoreOptions
from qpidha.client.endpoint import Endpoint
from qpidha.client.errors import (
    Closed,
    ConnectError,
    DeliveryLost,
    LinkError,
    LoginError,
    MessageTooLarge,
    TransactionFailed,
    TransactionLost,
    WrongProtocol,
)
from qpidha.client.links import ALL_IS_WELL
from qpidha.client.message import Message, Outcome, encode_data
from qpidha.model.encoding import Described, Symbol
from qpidha.model.errors import ConnectionForced, Redirect, Unauthorized
from tests.amqp.builders import bodies
from tests.client.stage import SECOND, Stage, refusing


def payload(text: str) -> bytes:
    return encode_data(text.encode())


def on(stage: Stage, port: int, queue: str = "q") -> list[str]:
    """Return the bodies on a queue of a broker."""
    messages = stage.hosts[port].broker.queues[queue].messages.values()
    return [found.decode() for found in bodies([message.body() for message in messages])]


def redirect(port: int, scheme: str = "amqp") -> Redirect:
    return Redirect("elsewhere", info={"network-host": "h", "port": port, "scheme": scheme})


# Where it goes.


def test_an_attach_that_is_larger_than_a_frame_of_the_broker_is_refused_before_it_is_sent() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    stage.turn()
    sender = stage.sender("q")
    selector = " OR ".join(f"colour = 'red{number}'" for number in range(4000))
    link = stage.receiver("q", source={"selector": selector}, name="large")
    assert isinstance(link.error, LinkError)
    assert link.error.text == "the attach of the link to 'q' is too large"
    assert "and the broker takes frames of 65536" in link.error.reason
    assert link.error.condition == "amqp:resource-limit-exceeded"
    # The connection is there, and so are the others.
    assert stage.core.is_open
    assert sender.is_open
    assert [event for event, _ in stage.events] == ["connected"]
    assert stage.receiver("q", source={"selector": selector[:15]}, name="small").is_open


@pytest.mark.parametrize("size", range(65_000, 65_500, 12))
def test_an_attach_is_answered_or_refused_and_never_ends_the_connection(size: int) -> None:
    stage = Stage(1)
    stage.host(1, "q")
    stage.turn()
    link = stage.receiver("q", source={"selector": f"colour = '{'x' * size}'"})
    assert stage.core.is_open
    assert [event for event, _ in stage.events] == ["connected"]
    assert isinstance(link.error, LinkError)


def test_links_whose_session_the_broker_ends_end_with_its_reason() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    sender = stage.sender("q")
    delivery = sender.send(payload("a"))
    stage.turn()
    assert delivery.outcome is ALL_IS_WELL
    # More than the broker remembers of a link, and less than a frame.
    link = stage.receiver("q", source={"selector": "x" * 40_000}, name="large")
    stage.turn()
    for each in (sender, link):
        assert isinstance(each.error, LinkError)
        assert "the session of the link to 'q' has ended" in each.error.text
        assert "of a link have 401" in each.error.reason
        assert each.error.condition == "amqp:resource-limit-exceeded"
    assert stage.core.is_open
    assert stage.receiver("q", name="another").is_open


def test_addresses_are_tried_in_turn_until_one_serves() -> None:
    stage = Stage(1, 2, 3)
    stage.host(3)
    stage.turn()
    assert stage.dialled == ["amqp://h:1", "amqp://h:2", "amqp://h:3"]
    assert stage.core.is_open
    assert stage.events == [("failed", "h:1"), ("failed", "h:2"), ("connected", "h:3")]


def test_a_redirect_is_followed_at_once() -> None:
    stage = Stage(1, 2)
    stage.hosts[1] = refusing(redirect(7))
    stage.host(7)
    stage.turn()
    assert stage.dialled == ["amqp://h:1", "amqp://h:7"]
    assert stage.core.is_open


def test_redirects_in_a_circle_end() -> None:
    stage = Stage(1, reconnect_timeout=3.0)
    stage.hosts[1], stage.hosts[2] = refusing(redirect(2)), refusing(redirect(1))
    stage.turn()
    assert len(stage.dialled) < 8
    stage.go_on(4)
    assert isinstance(stage.core.failure, ConnectError)
    assert "within 3 s" in stage.core.failure.text


def test_first_use_d4_and_code_d5_a_redirect_from_tls_to_a_plain_port_is_not_followed() -> None:
    stage = Stage(1, 2, tls=True)
    stage.hosts[1] = refusing(redirect(7, "amqp"))
    stage.host(7)
    stage.host(2)
    stage.turn()
    assert stage.dialled == ["amqps://h:1", "amqps://h:2"]


def test_brokers_name_further_addresses_but_no_plain_ones_under_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(1, tls=True)
    host = stage.host(1)
    listed = [
        {"network-host": "h", "port": 8, "scheme": "amqp"},
        {"network-host": "h", "port": 9, "scheme": "amqps"},
        {"network-host": "h", "port": 1, "scheme": "amqps"},
        {"network-host": 5, "port": 1},
        {"network-host": "h", "port": 65536, "scheme": "amqps"},
        "nonsense",
    ]
    monkeypatch.setattr(
        host, "open_properties", lambda connection: {"failover-server-list": listed}
    )
    stage.turn()
    assert [endpoint.url for endpoint in stage.core.known] == ["amqps://h:1", "amqps://h:9"]
    assert stage.core.known[1].user == "ann"


def test_with_follow_redirects_off_only_the_given_addresses_count() -> None:
    stage = Stage(1, 2, follow_redirects=False)
    stage.hosts[1] = refusing(redirect(7))
    stage.host(7)
    stage.host(2)
    stage.turn()
    assert stage.dialled == ["amqp://h:1", "amqp://h:2"]


def test_the_broker_that_was_lost_is_dialled_last() -> None:
    stage = Stage(1, 2, 3)
    stage.host(1)
    stage.host(3)
    stage.turn()
    stage.cut()
    stage.turn()
    assert stage.dialled == ["amqp://h:1", "amqp://h:2", "amqp://h:3"]


@pytest.mark.parametrize("ports", [(1,), (1, 2), (1, 2, 3)])
def test_brokers_that_let_a_client_in_and_drop_it_are_dialled_less_and_less(
    ports: tuple[int, ...],
) -> None:
    stage = Stage(*ports, reconnect_timeout=5.0)
    for port in ports:
        stage.host(port)
    for _ in range(1000):
        stage.now = max(stage.now, stage.core.retry_at)
        stage.turn()
        if stage.core.failure is not None:
            break
        assert stage.core.is_open
        stage.cut()
    # 20 ms at first, and twice as long each time up to 0.5 s.
    assert len(stage.dialled) <= 16 * len(ports)
    assert isinstance(stage.core.failure, ConnectError)
    assert "within 5 s" in stage.core.failure.text
    assert "was lost" in stage.core.failure.reason


def test_redirects_in_a_circle_of_brokers_that_let_a_client_in_end() -> None:
    stage = Stage(1, 2, reconnect_timeout=5.0)
    stage.host(1)
    stage.host(2)
    for _ in range(1000):
        stage.now = max(stage.now, stage.core.retry_at)
        stage.turn()
        if stage.core.failure is not None:
            break
        if stage.server is not None:
            stage.server.close(redirect(3 - stage.core.endpoint.port))
    assert isinstance(stage.core.failure, ConnectError)
    assert len(stage.dialled) <= 16 * 6, "of each round two addresses and four redirects"


def test_a_connection_that_lived_is_looked_for_anew() -> None:
    stage = Stage(1, reconnect_timeout=5.0)
    stage.host(1)
    for _ in range(10):
        stage.now = max(stage.now, stage.core.retry_at)
        stage.turn()
        assert stage.core.is_open
        stage.go_on(1)
        stage.cut()
        assert stage.core.retry_at - stage.now == SECOND // 50


def test_time_on_a_connection_is_not_time_without_one() -> None:
    stage = Stage(1, reconnect_timeout=0.5)
    stage.host(1)
    stage.turn()
    stage.go_on(0.9)
    stage.cut()
    assert stage.core.failure is None
    stage.go_on(0.2)
    assert stage.core.is_open


def test_a_client_waits_for_a_primary_while_backups_answer() -> None:
    """Backups end the connection before it opens: there will be a primary."""
    stage = Stage(1, fail_fast=True)
    stage.hosts[1] = refusing(ConnectionForced("knows no primary"))
    stage.go_on(5)
    assert stage.core.failure is None
    stage.host(1)
    stage.go_on(2)
    assert stage.core.is_open


def test_it_gives_up_when_nobody_serves_for_the_time_allowed() -> None:
    stage = Stage(1, reconnect_timeout=5.0)
    stage.turn()
    link = stage.sender("q")
    stage.go_on(4.5)
    assert stage.core.failure is None
    stage.go_on(1)
    assert isinstance(stage.core.failure, ConnectError)
    with pytest.raises(ConnectError, match="no broker served within 5 s"):
        link.send(payload("x"))


def test_why_nobody_serves_is_not_that_the_last_attempt_was_short() -> None:
    """The last one has what is left of the time, which may be too little for any answer."""
    core = Core([Endpoint("h", 1)], CoreOptions("client", reconnect_timeout=5.0), lambda: "id")
    now = 0
    assert core.next_dial(now) is not None
    core.dial_failed(now, ConnectError("h:1 cannot be reached"))
    now = 5 * SECOND - 1
    assert core.next_dial(now) is not None
    now += core.time_for_dial(now)
    core.dial_failed(now, ConnectError("h:1 did not answer"))
    assert core.failure is not None and "cannot be reached" in core.failure.reason


def test_it_fails_fast_when_it_is_to() -> None:
    stage = Stage(1, 2, fail_fast=True)
    stage.turn()
    assert stage.dialled == ["amqp://h:1", "amqp://h:2"]
    assert isinstance(stage.core.failure, ConnectError)


def test_a_refused_login_ends_a_client_that_was_never_served() -> None:
    stage = Stage(1, 2)
    stage.hosts[1] = stage.hosts[2] = refusing(Unauthorized("ann may not"))
    stage.turn()
    assert isinstance(stage.core.failure, LoginError)
    assert stage.core.failure.reason == "ann may not"


def test_a_refused_login_after_a_failover_is_one_address_less() -> None:
    stage = Stage(1, 2)
    stage.host(1)
    stage.hosts[2] = refusing(Unauthorized("ann may not"))
    stage.turn()
    stage.cut()
    stage.go_on(1)
    assert stage.core.is_open
    assert str(stage.core.endpoint) == "h:1"


def test_a_silent_broker_gets_a_share_of_the_time_and_then_the_next_one_its_turn() -> None:
    stage = Stage(1, 2)
    stage.host(2)
    silent = stage.core.next_dial(stage.now)
    assert silent is not None
    stage.core.dialled(stage.now, encrypted=False)
    stage.core.output()
    stage.now += 2 * SECOND
    stage.core.tick(stage.now)
    assert stage.core.connection is not None
    stage.now += 2 * SECOND
    stage.core.tick(stage.now)
    stage.turn()
    assert str(stage.core.endpoint) == "h:2"
    assert stage.core.is_open


@pytest.mark.parametrize(
    ("bytes_of_the_peer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "is no AMQP broker"),
        (b"\x15\x03\x03\0\2\2F", "speaks TLS"),
        (b"AMQP\0\0\x09\x01", "does not speak AMQP 1.0: its protocol header is that of AMQP 0-9-1"),
        (b"AMQP\1\1\0\x0a", "does not speak AMQP 1.0: its protocol header is that of AMQP 0-10"),
    ],
)
def test_a_peer_that_is_no_broker_is_told_from_one(bytes_of_the_peer: bytes, said: str) -> None:
    stage = Stage(1)
    stage.core.next_dial(stage.now)
    stage.core.dialled(stage.now, encrypted=False)
    stage.core.received(bytes_of_the_peer, stage.now)
    assert isinstance(stage.core.failure, WrongProtocol)
    assert said in str(stage.core.failure)


def test_silence_ends_a_connection() -> None:
    stage = Stage(1, heartbeat=1.0)
    stage.host(1)
    stage.turn()
    assert stage.core.tick_at > 0 or stage.core.tick(stage.now) is None
    stage.server = None
    for _ in range(30):
        stage.now += SECOND // 10
        stage.core.tick(stage.now)
        stage.core.output()
    assert ("lost", "h:1") in stage.events


# What is sent again.


def test_what_has_no_outcome_is_sent_again_first_and_in_its_order() -> None:
    stage = Stage(1, 2)
    stage.host(1, "q")
    stage.host(2, "q")
    link = stage.sender("q")
    early = [link.send(payload(text)) for text in "ab"]
    stage.core.output()  # On their way when the connection is lost.
    stage.cut()
    late = link.send(payload("c"))
    assert link.unsettled == 3
    stage.turn()
    assert on(stage, 2) == ["a", "b", "c"]
    assert [each.outcome for each in (*early, late)] == [ALL_IS_WELL] * 3
    assert link.unsettled == 0


def test_what_was_accepted_is_not_sent_again() -> None:
    stage = Stage(1, 2)
    stage.host(1, "q")
    stage.host(2, "q")
    link = stage.sender("q")
    link.send(payload("a"))
    stage.turn()
    stage.cut()
    link.send(payload("b"))
    stage.turn()
    assert (on(stage, 1), on(stage, 2)) == (["a"], ["b"])


def test_messages_wait_for_credit_in_their_order() -> None:
    stage = Stage(1)
    stage.host(1, "q", link_credit=2)
    link = stage.sender("q")
    for text in "abcdef":
        link.send(payload(text))
    assert link.credit == 0
    stage.turn()
    assert on(stage, 1) == list("abcdef")


def test_the_window_counts_what_has_no_outcome() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    link = stage.sender("q", window=2)
    link.send(payload("a"))
    assert not link.is_full
    link.send(payload("b"))
    assert link.is_full
    stage.turn()
    assert not link.is_full


def test_a_message_that_is_not_accepted_is_remembered_until_somebody_asks() -> None:
    stage = Stage(1)
    stage.host(1)
    link = stage.sender(None)
    delivery = link.send(Message("x", to="nowhere").encode())
    stage.turn()
    assert delivery.outcome is not None
    assert delivery.outcome.state == "rejected"
    assert delivery.outcome.condition == "amqp:not-found"
    assert link.not_accepted == [delivery]


def test_a_message_that_the_broker_would_not_take_is_refused_here() -> None:
    stage = Stage(1)
    stage.host(1, "q", max_message_size=1000)
    link = stage.sender("q")
    # The broker's limit stands in its attach (AMQP 1.0 section 2.7.3).
    with pytest.raises(MessageTooLarge, match="1000 bytes"):
        link.send(payload("x" * 1000))
    assert link.unsettled == 0


def test_a_settled_sender_keeps_nothing() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    link = stage.sender("q", settled=True)
    assert link.send(payload("a")).outcome is ALL_IS_WELL
    stage.turn()
    assert (on(stage, 1), link.unsettled) == (["a"], 0)


# What is received.


def fill(stage: Stage, port: int, texts: str) -> None:
    for text in texts:
        stage.hosts[port].broker.queues["q"].enqueue(payload(text), 0)


def test_every_outcome_reaches_the_broker() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    fill(stage, 1, "abcd")
    link = stage.receiver("q")
    accepted, rejected, released, modified = (link.take() for _ in range(4))
    accepted.accept()
    rejected.reject("wrong", condition="amqp:decode-error")
    released.release()
    modified.modify(annotations={"x-opt-seen": 1}, undeliverable_here=True)
    stage.turn()
    assert on(stage, 1) == ["c", "d"]
    again = link.take()
    assert (again.body, again.header.delivery_count) == (b"c", 0)
    assert not link.buffer  # The modified one is not for this link.
    stage.core.remove(link)
    stage.turn()
    other = stage.receiver("q")
    first, second = other.take(), other.take()
    seen = {"x-opt-seen": 1, "x-acquired-count": 1}
    assert (first.body, second.message_annotations) == (b"c", seen)


def test_a_message_has_one_outcome() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    fill(stage, 1, "a")
    message = stage.receiver("q").take()
    message.accept()
    with pytest.raises(Exception, match="accepted already"):
        message.release()


def test_a_message_of_a_lost_connection_cannot_be_settled() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    fill(stage, 1, "ab")
    link = stage.receiver("q")
    message = link.take()
    stage.cut()
    assert not link.buffer
    stage.go_on(1)
    with pytest.raises(DeliveryLost):
        message.accept()
    again = link.take()
    assert (again.body, again.header.delivery_count) == (b"a", 1)


def test_credit_is_topped_up_as_messages_are_taken() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    fill(stage, 1, "abcdefgh")
    link = stage.receiver("q", window=4)
    assert len(link.buffer) == 4
    got = []
    while link.buffer:
        message = link.take()
        message.accept()
        got.append(message.body)
        stage.turn()
        assert len(link.buffer) <= 4
    assert b"".join(got) == b"abcdefgh"


def test_without_a_window_credit_is_what_was_given_also_after_a_failover() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    fill(stage, 1, "abc")
    link = stage.receiver("q", window=0)
    assert not link.buffer
    link.flow(5)
    stage.turn()
    for _ in range(3):
        link.take().accept()
    stage.turn()
    stage.cut()
    stage.go_on(1)
    assert link.credit == 2
    fill(stage, 1, "defg")
    stage.turn()
    assert len(link.buffer) == 2


def test_a_drain_gives_back_what_the_broker_cannot_use() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    fill(stage, 1, "a")
    link = stage.receiver("q", window=10)
    link.drain()
    assert not link.is_drained
    stage.turn()
    assert link.is_drained
    assert len(link.buffer) == 1


def test_a_window_is_given_again_when_a_drain_is_over_though_nobody_waits_for_it() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    link = stage.receiver("q", window=10)
    link.drain()
    stage.turn()
    assert (link.is_drained, link.credit) == (True, 10)
    fill(stage, 1, "a")
    stage.turn()
    assert len(link.buffer) == 1


def test_the_answer_to_an_older_question_is_not_taken_for_an_empty_queue() -> None:
    """The broker keeps messages back for want of outcomes, which are given while it answers."""
    stage = Stage(1)
    server = stage.host(1, "q", session_max_unacked=10)
    fill(stage, 1, "abcdefghijklmno")
    link = stage.receiver("q", window=100)
    assert len(link.buffer) == 10
    link.drain()
    stage.server.receive(stage.core.output())
    server.broker.dispatch(server.now)
    answer = stage.server.output()
    for _ in range(10):
        link.take().accept()
    stage.server.receive(stage.core.output())
    link.drain()
    stage.core.received(answer, stage.now)
    assert not link.is_drained
    stage.turn()
    assert (link.is_drained, link.kept_back, len(link.buffer)) == (True, 0, 5)


def test_a_drain_without_a_window_leaves_no_credit() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    link = stage.receiver("q", window=0)
    link.flow(5)
    stage.turn()
    link.drain()
    stage.turn()
    assert (link.is_drained, link.credit) == (True, 0)


def test_browsing_leaves_messages_where_they_are() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    fill(stage, 1, "ab")
    link = stage.receiver("q", source={"browse": True})
    for _ in range(2):
        link.take().accept()
    stage.turn()
    assert on(stage, 1) == ["a", "b"]


def test_browsed_messages_need_no_outcome_however_many_they_are() -> None:
    stage = Stage(1)
    stage.host(1, "q", session_max_unacked=2)
    fill(stage, 1, "abcdef")
    link = stage.receiver("q", source={"browse": True}, window=2)
    seen = []
    while link.buffer:
        seen.append(link.take().body)
        stage.turn()
    assert b"".join(seen) == b"abcdef"
    assert on(stage, 1) == list("abcdef")


def test_a_browse_begins_anew_on_the_next_connection() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    fill(stage, 1, "abc")
    link = stage.receiver("q", source={"browse": True})
    assert link.take().body == b"a"
    stage.cut()
    stage.go_on(1)
    assert [message.body for message in link.buffer] == [b"a", b"b", b"c"]


def test_a_filter_that_is_not_honoured_ends_the_link() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    fill(stage, 1, "a")
    unheard_of = {"mine": Described(Symbol("example.org:nonsense:string"), "x")}
    link = stage.receiver("q", source={"filters": unheard_of})
    assert isinstance(link.error, LinkError)
    assert not link.buffer
    assert on(stage, 1) == ["a"]


def test_a_confirmed_outcome_is_told() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    fill(stage, 1, "ab")
    told = []
    link = stage.receiver("q", confirm=True, on_confirmed=told.append)
    first, second = link.take(), link.take()
    first.accept()
    assert link.unconfirmed == 1
    stage.turn()
    assert (told, first.is_confirmed, second.is_confirmed) == ([first], True, False)
    second.accept()
    stage.cut()
    assert link.unconfirmed == 0
    assert not second.is_confirmed


def test_nobody_waits_for_the_confirmations_of_a_link_that_has_ended() -> None:
    stage = Stage(1)
    host = stage.host(1, "q")
    fill(stage, 1, "a")
    link = stage.receiver("q", confirm=True)
    message = link.take()
    message.accept()
    host.broker.delete_queue("q")
    stage.turn()
    assert isinstance(link.error, LinkError)
    assert link.unconfirmed == 0


def sessions(stage: Stage) -> int:
    return len(stage.server._engine._sessions)


def test_a_session_of_its_own_has_its_own_bound_and_ends_with_its_link() -> None:
    stage = Stage(1)
    stage.host(1, "q", session_max_unacked=2)
    fill(stage, 1, "abcdefg")
    first = stage.receiver("q", name="first")
    beside = stage.receiver("q", name="beside")
    assert (len(first.buffer), len(beside.buffer), sessions(stage)) == (2, 0, 1)
    alone = [stage.receiver("q", name=f"alone-{n}", own_session=True) for n in range(2)]
    assert ([len(link.buffer) for link in alone], sessions(stage)) == ([2, 2], 3)
    alone[0].take().accept()
    alone[0].take().accept()
    stage.core.remove(alone[0])
    stage.turn()
    assert sessions(stage) == 2
    assert on(stage, 1) == list("abefg")
    stage.cut()
    stage.go_on(1)
    assert sessions(stage) == 2  # Each link is where it was, on the next connection.


def test_a_broker_that_ends_a_link_ends_the_session_of_that_link() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    link = stage.receiver("q", own_session=True)
    assert sessions(stage) == 1
    stage.hosts[1].broker.delete_queue("q")
    stage.turn()
    assert isinstance(link.error, LinkError)
    assert sessions(stage) == 0
    assert stage.core.is_open


def test_more_sessions_than_the_broker_allows_are_refused_here() -> None:
    stage = Stage(1)
    stage.host(1, "q", channel_max=2)
    links = [stage.receiver("q", name=f"link-{n}", own_session=True) for n in range(4)]
    assert [link.is_open for link in links] == [True, True, True, False]
    error = links[3].error
    assert isinstance(error, LinkError)
    assert error.condition == "amqp:resource-limit-exceeded"
    assert "has 3 sessions already" in error.reason
    stage.core.remove(links[0])
    stage.turn()
    assert stage.receiver("q", name="another", own_session=True).is_open


def test_of_what_is_sent_settled_nothing_is_left_to_be_confirmed() -> None:
    stage = Stage(1)
    stage.host(1, "q", session_max_unacked=1)
    fill(stage, 1, "abc")
    browser = stage.receiver("q", name="look", source={"browse": True})
    assert [message.is_confirmed for message in browser.buffer] == [True] * 3
    assert on(stage, 1) == list("abc")
    assert stage.receiver("q", name="take", settled=True).take().is_confirmed
    assert on(stage, 1) == []


def test_a_message_that_was_unloaded_can_be_settled() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    fill(stage, 1, "a")
    message = stage.receiver("q", confirm=True).take()
    assert (message.unload(), message.encode()) == (payload("a"), b"")
    message.accept()
    stage.turn()
    assert message.is_confirmed
    assert on(stage, 1) == []


def test_a_refused_link_says_why_and_stays_ended() -> None:
    stage = Stage(1)
    stage.host(1)
    link = stage.sender("nowhere")
    assert isinstance(link.error, LinkError)
    assert link.error.condition == "amqp:not-found"
    stage.cut()
    stage.go_on(1)
    assert link not in stage.core.links


def test_a_dynamic_node_has_a_new_name_after_a_failover() -> None:
    stage = Stage(1)
    stage.host(1)
    link = stage.receiver(None, source={"dynamic": True})
    first = link.address
    stage.cut()
    stage.go_on(1)
    assert first
    assert link.address
    assert link.address != first


# Transactions.


def begun(stage: Stage):
    transaction = stage.core.coordinator.declare()
    stage.turn()
    assert transaction.state == "open"
    return transaction


def test_a_commit_does_all_of_it() -> None:
    stage = Stage(1)
    stage.host(1, "q", "r")
    fill(stage, 1, "a")
    receiver, sender = stage.receiver("q"), stage.sender("r")
    transaction = begun(stage)
    message = receiver.take()
    sender.send(payload("moved"), transaction)
    receiver.settle(message, ALL_IS_WELL, transaction)
    stage.turn()
    assert on(stage, 1, "r") == []
    assert transaction.waiting == 0
    stage.core.coordinator.discharge(transaction, failed=False)
    stage.turn()
    assert transaction.state == "committed"
    assert (on(stage, 1), on(stage, 1, "r")) == ([], ["moved"])
    with pytest.raises(TransactionFailed, match="is committed"):
        sender.send(payload("late"), transaction)


def test_a_rollback_undoes_all_of_it() -> None:
    stage = Stage(1)
    stage.host(1, "q", "r")
    fill(stage, 1, "a")
    receiver, sender = stage.receiver("q"), stage.sender("r")
    transaction = begun(stage)
    sender.send(payload("never"), transaction)
    receiver.settle(receiver.take(), Outcome("rejected"), transaction)
    stage.core.coordinator.discharge(transaction, failed=True)
    stage.turn()
    assert transaction.state == "rolled back"
    assert (on(stage, 1), on(stage, 1, "r")) == (["a"], [])


def test_a_rollback_gives_up_what_waits_for_credit_and_only_that() -> None:
    stage = Stage(1)
    stage.host(1, "q", link_credit=2)
    sender = stage.sender("q")
    transaction, other = begun(stage), begun(stage)
    sent = [sender.send(payload(text), transaction) for text in "ab"]
    waits = [sender.send(payload(text), transaction) for text in "cd"]
    sender.send(payload("e"))
    kept = sender.send(payload("f"), other)
    stage.core.coordinator.discharge(transaction, failed=True)
    assert [isinstance(each.error, TransactionFailed) for each in waits] == [True, True]
    assert (transaction.waiting, other.waiting) == (len(sent), 1)
    stage.turn()
    assert transaction.state == "rolled back"
    assert not any(each.error for each in [*sent, kept])
    stage.core.coordinator.discharge(other, failed=False)
    stage.turn()
    assert other.state == "committed"
    assert on(stage, 1) == ["e", "f"]


def test_a_message_can_be_released_when_its_transaction_would_not_take_it() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    fill(stage, 1, "a")
    receiver = stage.receiver("q")
    message = receiver.take()
    transaction = begun(stage)
    stage.core.coordinator.discharge(transaction, failed=True)
    stage.turn()
    with pytest.raises(TransactionFailed, match="is rolled back"):
        receiver.settle(message, ALL_IS_WELL, transaction)
    assert message.outcome is None
    message.release()
    stage.turn()
    assert receiver.take().body == b"a"


def test_a_message_that_is_not_taken_fails_the_commit_with_the_reason() -> None:
    stage = Stage(1)
    stage.host(1)
    sender = stage.sender(None)
    transaction = begun(stage)
    delivery = sender.send(Message("x", to="nowhere").encode(), transaction)
    stage.turn()
    assert delivery.outcome is not None
    assert delivery.outcome.state == "rejected"
    stage.core.coordinator.discharge(transaction, failed=False)
    stage.turn()
    assert isinstance(transaction.error, TransactionFailed)
    assert "nowhere" in transaction.error.reason


def test_a_transaction_ends_with_its_connection_and_nothing_of_it_is_sent_again() -> None:
    stage = Stage(1, 2)
    stage.host(1, "q")
    stage.host(2, "q")
    sender = stage.sender("q")
    transaction = begun(stage)
    delivery = sender.send(payload("never"), transaction)
    stage.cut()
    sender.send(payload("after"))
    stage.turn()
    assert isinstance(transaction.error, TransactionLost)
    assert not transaction.error.in_doubt
    assert delivery.is_done
    assert on(stage, 2) == ["after"]
    assert begun(stage).state == "open"


def test_a_commit_that_was_on_its_way_is_in_doubt() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    stage.sender("q")
    transaction = begun(stage)
    stage.core.coordinator.discharge(transaction, failed=False)
    stage.core.output()
    stage.cut()
    assert isinstance(transaction.error, TransactionLost)
    assert transaction.error.in_doubt


# The end.


def test_a_client_says_goodbye() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    link = stage.sender("q")
    stage.core.close(stage.now)
    stage.turn()
    assert stage.core.closed
    assert stage.hosts[1].gone
    with pytest.raises(Closed):
        link.send(payload("x"))


def test_what_the_application_never_saw_goes_back_uncounted() -> None:
    stage = Stage(1)
    stage.host(1, "q")
    fill(stage, 1, "ab")
    link = stage.receiver("q")
    link.take()
    stage.core.remove(link)
    stage.turn()
    messages = stage.hosts[1].broker.queues["q"].messages.values()
    assert [message.delivery_count for message in messages] == [1, 0]
