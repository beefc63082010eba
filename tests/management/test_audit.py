"""The log says who was refused, and how often."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qpidha.amqp.peer.sasl import SaslClient, make_verifier
from qpidha.management.audit import ADDRESSES, LINES, LONGEST, Audit
from qpidha.management.methods import METHODS
from qpidha.management.methods import Effect as Kind
from qpidha.model.effects import Announce, Compute, Effect, SendBytes, SendParts
from qpidha.model.errors import Unauthorized
from qpidha.model.events import (
    BytesReceived,
    Computed,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    Event,
    HandshakeFailed,
    Tick,
)
from qpidha.model.principal import Action, ObjectType, Principal, Role
from tests.amqp.builders import a_node

SECOND = 1_000_000_000
STRANGER = Principal(address="192.0.2.9:4711")


class Said(list[str]):
    """What an audit says, without the fields."""

    def __init__(self) -> None:
        super().__init__()
        self.audit = Audit(lambda level, text, fields, code: self.append(f"{level}: {text}"))


def test_strangers_fill_no_disk_with_lines() -> None:
    said = Said()
    for number in range(LINES + 30):
        said.audit.login_refused(SECOND, STRANGER, f"u{number}", "PLAIN", "no")
    assert len(said) == LINES
    said.audit.tick(SECOND + 1)
    assert len(said) == LINES
    said.audit.tick(2 * SECOND)
    assert said[LINES:] == ["notice: logins that were refused and have no line: 30"]
    said.audit.tick(3 * SECOND)
    for _ in range(2):
        said.audit.denied(3 * SECOND, STRANGER, Unauthorized("no"))
    assert said[LINES + 1 :] == ["notice: denied anonymous at 192.0.2.9:4711: no"] * 2


def test_what_a_rule_wants_to_be_written_is_written_each_time() -> None:
    said = Said()
    for _ in range(LINES + 5):
        said.audit.denied(SECOND, STRANGER, Unauthorized("no"), source="line 1 of f", is_each=True)
    assert said == ["notice: denied anonymous at 192.0.2.9:4711: no (line 1 of f)"] * (LINES + 5)


def test_what_was_not_said_is_told_before_the_next_line() -> None:
    said = Said()
    for _ in range(LINES + 1):
        said.audit.denied(SECOND, STRANGER, Unauthorized("no"))
    said.audit.denied(2 * SECOND, STRANGER, Unauthorized("yes"))
    assert said[LINES:] == [
        "notice: requests that were refused and have no line: 1",
        "notice: denied anonymous at 192.0.2.9:4711: yes",
    ]


def test_what_is_no_notice_hides_no_login_and_no_denial() -> None:
    said = Said()
    for _ in range(LINES + 5):
        said.audit.not_opened(SECOND, STRANGER, "garbage")
        said.audit.denied(SECOND, STRANGER, Unauthorized("no"), is_role=True)
    said.clear()
    said.audit.login_refused(SECOND, STRANGER, "ha", "PLAIN", "no")
    said.audit.denied(SECOND, STRANGER, Unauthorized("no"))
    assert [line.split()[1] for line in said] == ["refused", "denied"]
    said.clear()
    said.audit.tick(2 * SECOND)
    assert said == [
        "notice: connections that were refused and have no line: 5",
        "notice: claims to a role that were refused and have no line: 5",
    ]


def test_each_address_has_a_line_a_second_whatever_the_others_do() -> None:
    said = Said()
    for now in (SECOND, 2 * SECOND):
        for _ in range(LINES):
            said.audit.login_refused(now, STRANGER, "guess", "PLAIN", "no")
        said.clear()
        for address in ("198.51.100.7:1", "[2001:db8::1]:1", "[2001:db8::2]:1", "198.51.100.7:2"):
            said.audit.login_refused(now, Principal(address=address), "ha", "PLAIN", "no")
        assert [line.split("'")[2].split()[1] for line in said] == [
            "198.51.100.7:1",
            "[2001:db8::1]:1",
        ]


def test_a_crowd_of_addresses_fills_no_disk_with_lines() -> None:
    said = Said()
    for number in range(ADDRESSES + 30):
        stranger = Principal(address=f"198.51.{number}.1:7")
        said.audit.login_refused(SECOND, stranger, "ha", "PLAIN", "no")
    assert len(said) == ADDRESSES


def test_a_long_name_is_cut() -> None:
    said = Said()
    said.audit.login_refused(SECOND, STRANGER, "u" * 5000, "m" * 5000, "no")
    assert len(said[0]) < 100 + 2 * LONGEST


class Broker:
    """A broker with the users ann, whose name is her password, and admin."""

    def __init__(self) -> None:
        line = make_verifier("ann", b"0123456789abcdef")
        self.node = a_node(
            f"ann:{line}",
            auth=True,
            users_file="users",
            ha_username="admin",
            sasl_plain_without_tls=True,
        )
        self.node.start(SECOND)

    def log_in(self, user: str, password: str, mechanism: str) -> list[Effect]:
        """Log in from a stranger's address."""
        client = SaslClient(mechanism, username=user, password=password, hostname="", nonce="n")
        opened = ConnectionOpened(2, STRANGER.address, ConnectionKind.CLIENT, "", False)
        effects = self.node.step([opened], SECOND)
        said: list[Effect] = []
        for _ in range(4):
            events: list[Event] = []
            for effect in effects:
                if isinstance(effect, Compute):
                    events.append(Computed(effect.connection_id, effect.work()))
                elif isinstance(effect, SendBytes | SendParts) and not client.failed:
                    client.receive(effect.data)
                    work = client.take_work()
                    if work is not None:
                        client.worked(work())
                else:
                    said.append(effect)
            events.append(BytesReceived(2, client.take_output()))
            effects = self.node.step([*events, Tick()], SECOND)
        return said + effects


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user", ["ann", "nobody"])
def test_qpid_15_and_first_use_d11_a_refused_login_leaves_a_line(user: str, mechanism: str) -> None:
    effects = Broker().log_in(user, "wrong-secret", mechanism)
    (line,) = [effect for effect in effects if isinstance(effect, Announce)]
    assert (line.level, line.category) == ("notice", "security")
    assert line.text == (
        f"refused the login of '{user}' at 192.0.2.9:4711 by {mechanism}: wrong user or password"
    )
    assert line.fields == {"user": user, "address": STRANGER.address, "mechanism": mechanism}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"AMQP\x01\x01\x00\x0a", "the peer began with b'AMQP\\x01\\x01\\x00\\n'"),
        (b"GET / HTTP/1.1\r\n", "the peer began with b'GET / HT'"),
        (b"AMQP\x03\x01\x00\x00" + bytes(8), "faulty SASL frame"),
    ],
)
def test_qpid_13_who_speaks_something_else_leaves_a_line(data: bytes, says: str) -> None:
    node = Broker().node
    opened = ConnectionOpened(2, STRANGER.address, ConnectionKind.CLIENT, "", False)
    effects = node.step([opened, BytesReceived(2, data)], SECOND)
    (line,) = [effect for effect in effects if isinstance(effect, Announce)]
    assert (line.level, line.category) == ("info", "security")
    assert line.text.startswith(f"no connection with 192.0.2.9:4711: {says}")


@pytest.mark.parametrize(
    ("by_certificate", "level", "says"),
    [
        (True, "notice", "refused the login of 192.0.2.9:4711 by certificate: TLS: expired"),
        (False, "info", "no connection with 192.0.2.9:4711: TLS: expired"),
    ],
)
def test_who_does_not_get_through_tls_leaves_a_line(
    by_certificate: bool, level: str, says: str
) -> None:
    failed = HandshakeFailed(STRANGER.address, "TLS: expired", by_certificate)
    (line,) = Broker().node.step([failed], SECOND)
    assert isinstance(line, Announce) and (line.level, line.category) == (level, "security")
    assert line.text == says and line.fields["address"] == STRANGER.address


def test_who_only_looks_whether_the_port_is_open_leaves_no_line() -> None:
    node = Broker().node
    opened = ConnectionOpened(2, STRANGER.address, ConnectionKind.CLIENT, "", False)
    effects = node.step([opened, ConnectionLost(2, "closed by the peer")], SECOND)
    assert not [effect for effect in effects if isinstance(effect, Announce)]


def test_who_gets_in_leaves_no_line() -> None:
    effects = Broker().log_in("ann", "ann", "PLAIN")
    assert not [effect for effect in effects if isinstance(effect, Announce)]


@pytest.mark.parametrize(
    ("action", "object_type", "name", "level", "says"),
    [
        (Action.UPDATE, ObjectType.BROKER, "promote", "notice", "promote is for administrators"),
        (Action.ACCESS, ObjectType.ROLE, Role.ADMINISTRATOR, "info", "ann may not connect as an a"),
    ],
)
def test_qpid_15_what_is_denied_leaves_a_line(
    action: Action, object_type: ObjectType, name: str, level: str, says: str
) -> None:
    node = Broker().node
    ann = STRANGER.logged_in("ann", "PLAIN")
    with pytest.raises(Unauthorized):
        node.access.check(ann, action, object_type, name)
    (line,) = [effect for effect in node.step([], SECOND) if isinstance(effect, Announce)]
    assert (line.level, line.category) == (level, "security")
    assert line.text.startswith(f"denied ann at 192.0.2.9:4711: {says}")


def test_qpid_15_what_was_changed_is_told_with_who_did_it() -> None:
    said: list[str] = []
    fields: list[dict[str, object]] = []

    def say(level: str, text: str, given: dict[str, object], code: str) -> None:
        assert code == "", "what was done is no event to look up"
        said.append(f"{level}: {text}")
        fields.append(given)

    audit = Audit(say)
    ann = STRANGER.logged_in("ann", "PLAIN")
    for action in (Action.CREATE, Action.DELETE, Action.PURGE):
        audit.done(ann, action, ObjectType.QUEUE, "q", {"durable": True})
    binding = {"queuename": "q", "routingkey": "k", "x-match": "all"}
    for action in (Action.BIND, Action.UNBIND):
        audit.done(ann, action, ObjectType.EXCHANGE, "e", binding)
    who = "info: ann at 192.0.2.9:4711"
    assert said == [
        f"{who} created queue 'q'",
        f"{who} deleted queue 'q'",
        f"{who} purged queue 'q'",
        f"{who} bound exchange 'e', queue 'q', key 'k'",
        f"{who} unbound exchange 'e', queue 'q', key 'k'",
    ]
    who_fields = {"user": "ann", "address": "192.0.2.9:4711"}
    assert fields[0] == {**who_fields, "queue": "q"}
    assert fields[-1] == {**who_fields, "exchange": "e", "queue": "q", "key": "k"}


POLICY = {"name": "p", "pattern": ".*", "definition": {"max-length": 5}}
LINK = {"name": "l", "addresses": "a/hush@h:1", "password": "hush"}
ROUTE = {"name": "r", "link": "l", "source": "there", "destination": "r"}
CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("declare_queue", {"name": "q"}, "created queue 'q'"),
    ("declare_queue", {"name": "q"}, ""),
    ("list_queues", {}, ""),
    ("purge_queue", {"name": "q"}, "purged queue 'q'"),
    ("declare_queue", {"name": "r"}, "created queue 'r'"),
    ("move_messages", {"name": "q", "target": "r"}, "moved messages from queue 'q', target 'r'"),
    ("requeue_messages", {"name": "q"}, "moved messages from queue 'q'"),
    ("declare_exchange", {"name": "e"}, "created exchange 'e'"),
    ("declare_exchange", {"name": "e"}, ""),
    ("bind", {"exchange": "e", "queue": "q", "key": "k"}, "bound exchange 'e', queue 'q', key 'k'"),
    (
        "unbind",
        {"exchange": "e", "queue": "q", "key": "k"},
        "unbound exchange 'e', queue 'q', key 'k'",
    ),
    ("unbind", {"exchange": "e", "queue": "q", "key": "k"}, ""),
    (
        "bind",
        {"exchange": "e", "destination_exchange": "amq.topic", "key": "k"},
        "bound exchange 'e', destination 'amq.topic', key 'k'",
    ),
    ("set_policy", POLICY, "created policy 'p'"),
    ("patch_policy", {"name": "p", "definition": {"max-length": 6}}, "created policy 'p'"),
    ("override_policy", {"name": "p", "definition": {}, "seconds": 9}, "created policy 'p'"),
    ("clear_policy", {"name": "p"}, "deleted policy 'p'"),
    ("clear_policy", {"name": "p"}, ""),
    ("set_operator_policy", POLICY, "created operator-policy 'p'"),
    ("clear_operator_policy", {"name": "p"}, "deleted operator-policy 'p'"),
    ("declare_link", LINK, "created link 'l'"),
    ("declare_route", ROUTE, "created route 'r'"),
    ("delete_route", {"name": "r"}, "deleted route 'r'"),
    ("delete_link", {"name": "l"}, "deleted link 'l'"),
    ("delete_exchange", {"name": "e"}, "deleted exchange 'e'"),
    ("delete_queue", {"name": "q"}, "deleted queue 'q'"),
    ("delete_queue", {"name": "q"}, ""),
]


def test_every_change_by_the_admin_socket_leaves_a_line() -> None:
    node = a_node()
    node.start(SECOND)
    node.step([ConnectionOpened(2, "process 7", ConnectionKind.LOCAL, "root")], SECOND)
    for method, params, says in CHANGES:
        line = json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n"
        effects = node.step([BytesReceived(2, line)], SECOND)
        lines = [
            effect.text
            for effect in effects
            if isinstance(effect, Announce) and effect.category == "security"
        ]
        assert lines == ([f"root at process 7 {says}"] if says else []), method


COMMANDS: list[tuple[str, dict[str, Any], str]] = [
    ("promote", {"forget": "one two"}, "asks for promote, forget 'one two'"),
    ("promote", {"accept_loss": True}, "asks for promote, accept_loss"),
    ("demote", {}, "asks for demote"),
    ("recover", {}, "asks for recover"),
    ("switchover", {"target": "two"}, "asks for switchover, target 'two'"),
    ("reload", {}, "asks for reload"),
    (
        "close_connection",
        {"id": 9, "reason": "old"},
        "asks for close_connection, id '9', reason 'old'",
    ),
    ("set_public_url", {"url": "a,b"}, "asks for set_public_url, url 'a,b'"),
    ("set_log_level", {"level": "info+"}, "asks for set_log_level, level 'info+'"),
    (
        "replicate",
        {"broker": "b:5672", "queue": "q"},
        "asks for replicate, broker 'b:5672', queue 'q'",
    ),
    ("stop_replica", {"queue": "q"}, "asks for stop_replica, queue 'q'"),
    ("shutdown", {}, "asks for shutdown"),
    ("status", {}, ""),
    ("no-such", {}, ""),
]


def test_qpid_15_who_commands_a_broker_leaves_a_line() -> None:
    node = a_node()
    node.start(SECOND)
    node.step([ConnectionOpened(2, "process 7", ConnectionKind.LOCAL, "root")], SECOND)
    for method, params, says in COMMANDS:
        line = json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n"
        effects = node.step([BytesReceived(2, line)], SECOND)
        lines = [
            f"{effect.level} {effect.text}"
            for effect in effects
            if isinstance(effect, Announce) and effect.category == "security"
        ]
        assert lines == ([f"notice root at process 7 {says}"] if says else []), method


def test_every_command_is_told_of() -> None:
    commands = {
        method.name
        for method in METHODS
        if method.action is Action.UPDATE and method.object_type is ObjectType.BROKER
    }
    assert commands == {method for method, _, says in COMMANDS if says}


def test_every_method_that_changes_something_is_told_of() -> None:
    changes = {method.name for method in METHODS if method.effect is Kind.CHANGE}
    assert changes <= {method for method, _, says in (*CHANGES, *COMMANDS) if says}
