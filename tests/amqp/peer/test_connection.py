"""Connections: opening, refusing, heartbeats, limits and ends."""

from __future__ import annotations

import pytest

from qpidha.amqp.peer.sasl import AMQP_HEADER
from qpidha.amqp.peer.terminus import ACCEPTED
from qpidha.amqp.server.served_connection import ServedConnection
from qpidha.model.encoding import Described, UInt, ULong, encode
from qpidha.model.errors import ConnectionForced, LimitExceeded, Redirect, RefusedRequest
from qpidha.model.events import ConnectionKind
from qpidha.model.message_view import build
from qpidha.model.principal import Role
from tests.amqp.builders import SECOND, AHost, Pair, Recording, a_pair
from tests.amqp.wire import frame, perform


def test_both_sides_learn_who_the_other_is() -> None:
    pair = Pair(properties={"tool": "test"}, hostname="vhost")
    assert pair.server.remote_container == "client"
    assert pair.server.remote_properties == {"tool": "test"}
    assert pair.server.remote_hostname == "vhost"
    assert pair.client.remote_properties["product"] == "qpidha"


def test_a_redirected_client_is_told_where_to_go() -> None:
    host = AHost()
    host.admission_error = Redirect(
        "the primary is elsewhere", info={"network-host": "b2", "hostname": "b2", "port": 5673}
    )
    pair = Pair(host)
    assert pair.client.closed and pair.server.closed
    assert pair.client.error is not None
    assert pair.client.error.condition == "amqp:connection:redirect"
    assert pair.client.error.info == {"network-host": "b2", "hostname": "b2", "port": 5673}
    assert host.gone == [pair.server]


def test_a_closed_connection_says_why() -> None:
    pair = Pair()
    pair.server.close(ConnectionForced("shutting down"))
    pair.turn()
    assert pair.client.error is not None and pair.client.error.condition == "amqp:connection:forced"
    assert pair.client.closed and pair.server.closed


def test_silence_of_twice_the_heartbeat_ends_a_connection() -> None:
    pair = Pair(AHost(link_heartbeat_interval=0), heartbeat=SECOND // 2)
    start = pair.host.now
    assert pair.client.tick(start) > start
    pair.client.tick(start + SECOND * 9 // 10)
    assert not pair.client.closed
    pair.client.tick(start + SECOND * 11 // 10)
    pair.client.output()
    assert pair.client.closed


def test_heartbeats_keep_an_idle_connection_alive_both_ways() -> None:
    pair = Pair(heartbeat=SECOND // 2)
    now = pair.host.now
    for _ in range(40):
        now += SECOND // 4
        for connection in (pair.client, pair.server):
            connection.tick(now)
        pair.turn()
    assert not pair.client.closed and not pair.server.closed


def test_the_server_notices_a_silent_client_at_the_clients_own_pace() -> None:
    pair = Pair(heartbeat=SECOND // 2)
    now = pair.host.now
    for _ in range(20):
        now += SECOND // 4
        pair.server.tick(now)
        pair.server.output()
    assert pair.server.closed
    assert pair.host.gone == [pair.server]


def test_a_silent_client_is_told_no_error() -> None:
    """A machine that was paused, or has too much to do, is no mistake of its clients: they connect
    again when a stream ends, and take a close with an error for the end.
    """
    pair = Pair(heartbeat=SECOND // 2)
    pair.server.tick(pair.host.now)
    pair.server.tick(pair.host.now + 2 * SECOND)
    pair.client.receive(pair.server.output())
    assert pair.server.closed and pair.server.error is not None
    assert "1000 ms" in pair.server.error.explanation
    assert pair.client.error is None and not pair.client.closed


def test_a_client_that_was_not_listened_to_has_its_whole_time_again() -> None:
    pair = Pair(heartbeat=SECOND // 2)
    now = pair.host.now
    pair.server.tick(now)
    pair.server.set_patient(True)
    pair.server.tick(now + 5 * SECOND)
    pair.server.set_patient(False)
    pair.server.tick(now + 6 * SECOND)
    assert pair.server.error is None
    pair.server.tick(now + 7 * SECOND)
    assert pair.server.error is not None


def test_a_client_that_wants_no_heartbeats_may_be_silent_where_there_are_none() -> None:
    pair = Pair(AHost(link_heartbeat_interval=0))
    now = pair.host.now
    assert pair.server.tick(now) == 0
    pair.server.tick(now + 3600 * SECOND)
    assert not pair.server.closed


def test_an_idle_timeout_of_weeks_is_taken_as_the_longest_there_is() -> None:
    for milliseconds in (2**31, 2**32 - 1):
        host = AHost(link_heartbeat_interval=90 * 86400 * SECOND)
        server = ServedConnection(1, host, kind=ConnectionKind.CLIENT, peer="patient").connection
        opened = encode(Described(ULong(0x10), ["patient", None, None, None, UInt(milliseconds)]))
        server.receive(AMQP_HEADER + (len(opened) + 8).to_bytes(4, "big") + b"\x02\0\0\0" + opened)
        assert host.admitted == [server] and server.error is None


def test_negotiation_must_end_in_time() -> None:
    host = AHost(max_negotiate_time=SECOND)
    connection = ServedConnection(1, host, kind=ConnectionKind.CLIENT, peer="client").connection
    assert connection.tick(host.now) == host.now + SECOND
    connection.tick(host.now + SECOND)
    connection.output()
    assert connection.closed


def test_a_connection_has_a_limit_of_links() -> None:
    pair = Pair(AHost(max_links=2))
    pair.host.broker.declare_queue("q")
    links = [pair.sender("q", name=f"s{number}")[0] for number in range(3)]
    assert [link.error.condition if link.error else "" for link in links] == [
        "",
        "",
        LimitExceeded.condition,
    ]


def test_plain_text_is_refused_where_encryption_is_required() -> None:
    pair = Pair(AHost(require_encryption=True))
    assert (
        pair.client.error is not None and pair.client.error.condition == "amqp:unauthorized-access"
    )


def test_a_lost_stream_ends_the_links_of_both_kinds() -> None:
    pair = Pair()
    pair.host.services["svc"] = service = Recording()
    pair.sender("svc")
    pair.server.lost("reset by peer")
    assert pair.server.closed
    assert len(service.detached_links) == 1
    assert pair.server.output() == b""
    pair.server.receive(b"late bytes")


def test_a_service_serves_links_of_both_directions() -> None:
    pair = Pair()
    pair.host.services["svc"] = service = Recording()
    sender, outcomes = pair.sender("svc")
    receiver, received = pair.receiver("svc")
    sender.send(b"\x00\x53\x77\xa1\x02hi")
    pair.turn()
    assert service.payloads == [b"\x00\x53\x77\xa1\x02hi"]
    assert [outcome.state for _, outcome in outcomes.outcomes] == [0x24]
    answer = next(link for link in service.attached_links if link.sends)
    for number in range(2500):
        answer.send(b"\x00\x53\x77\x52" + bytes((number % 256,)))
    pair.turn()
    assert len(received.payloads) == 2500
    assert receiver.error is None


def test_a_service_takes_no_message_over_max_message_size_but_from_brokers() -> None:
    for is_backup in (False, True):
        pair = Pair(AHost(max_message_size=10_000))
        pair.host.services["svc"] = service = Recording()
        if is_backup:
            pair.server.principal = pair.server.principal.with_role(Role.BROKER)
        sender, _ = pair.sender("svc")
        sender.send(bytes(20_000))
        pair.turn()
        assert [len(payload) for payload in service.payloads] == ([20_000] if is_backup else [])
        assert (sender.error is None) is is_backup


def test_a_request_to_a_service_is_a_mebibyte_at_most_and_its_sender_is_told_so() -> None:
    """It is read at once, whoever sent it; messages to queues may have a hundred of them."""
    pair = Pair()
    pair.host.services["svc"] = service = Recording()
    for size in (1 << 20, (1 << 20) + 1):
        sender, _ = pair.sender("svc", name=str(size))
        assert sender.end is not None and sender.end.remote_max_message_size() == 1 << 20
        sender.send(bytes(size))
        pair.turn()
        assert (sender.error is None) is (size == 1 << 20)
    assert [len(payload) for payload in service.payloads] == [1 << 20]


def test_a_service_may_refuse_a_link() -> None:
    pair = Pair()
    pair.host.services["svc"] = service = Recording()
    service.refusal = RefusedRequest("not you")
    link, own = pair.sender("svc")
    assert own.attached_links == [] and own.detached_links == [link]
    assert link.error is not None and link.error.condition == "amqp:not-allowed"


def test_a_link_we_opened_hears_that_it_was_detached() -> None:
    pair = Pair()
    pair.host.services["svc"] = service = Recording()
    link, own = pair.receiver("svc")
    service.attached_links[0].close(RefusedRequest("enough"))
    pair.turn()
    assert own.detached_links == [link]
    assert link.error is not None and link.error.description == "enough"


def test_a_name_can_be_used_again_after_a_detach() -> None:
    pair = Pair()
    pair.host.services["svc"] = service = Recording()
    for _ in range(3):
        link, own = pair.sender("svc", name="same")
        assert own.attached_links == [link]
        link.close()
        pair.turn()
    assert len(service.detached_links) == 3


def test_the_same_name_from_the_same_container_steals_a_link() -> None:
    host = AHost()
    host.broker.declare_queue("q")
    first, second = Pair(host), Pair(host)
    old, heard = first.receiver("q", name="same")
    second.receiver("q", name="same")
    first.turn()
    assert heard.detached_links == [old]
    assert old.error is not None and old.error.condition == "amqp:link:stolen"


@pytest.mark.parametrize("sender", [True, False])
def test_code_7_a_user_cannot_steal_a_link_of_another_one_by_its_names(sender: bool) -> None:
    host = AHost()
    host.broker.declare_queue("q")
    users = [
        Pair(host, identity=name, encrypted=True, mechanism="EXTERNAL")
        for name in ("ann", "bob", "ann")
    ]
    heard = [pair.attach("q", sender=sender, name="same")[1] for pair in users]
    for pair in users:
        pair.turn()
    assert [len(each.detached_links) for each in heard] == [1, 0, 0]


def test_waiting_messages_of_a_service_are_bounded() -> None:
    pair = Pair()
    pair.host.services["svc"] = service = Recording()
    pair.receiver("svc", credit=0)
    link = service.attached_links[0]
    refused = 0
    for _ in range(70):
        try:
            link.send(bytes(1 << 20))
        except LimitExceeded:
            refused += 1
    assert refused == 6


def test_a_receiver_may_give_outcomes_itself() -> None:
    pair = Pair()
    pair.host.broker.declare_queue("q")
    pair.host.broker.queues["q"].enqueue(b"\x00\x53\x77\xa1\x02hi")
    link, heard = pair.receiver("q", accepts=False)
    assert len(heard.payloads) == 1
    assert len(pair.host.broker.queues["q"].messages) == 1
    link.settle(link.last_delivery)
    pair.turn()
    assert not pair.host.broker.queues["q"].messages


def test_a_faulty_frame_of_a_broker_ends_its_session_and_the_client_begins_another() -> None:
    pair = a_pair()
    link, _ = pair.sender("q")
    pair.client.receive(frame(perform(0x14, None, UInt(0), b"t")))
    pair.turn()
    assert not pair.client.closed and not pair.server.closed
    assert link.end is None
    again, heard = pair.sender("q", name="again")
    again.send(build("x"))
    pair.turn()
    assert [outcome.state for _, outcome in heard.outcomes] == [ACCEPTED]


def test_a_faulty_begin_of_a_broker_closes_the_connection() -> None:
    pair = Pair()
    pair.client.receive(frame(perform(0x11, None, "1", UInt(1), UInt(1)), channel=3))
    pair.turn()
    assert pair.client.closed and pair.server.closed
    for side in (pair.client, pair.server):
        assert side.error is not None and side.error.condition == "amqp:decode-error"
