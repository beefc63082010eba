"""Who may do what: every rule, and who is let in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qpidha.amqp.peer.sasl import AMQP_HEADER, Users
from qpidha.ha.channels import REPLICATION
from qpidha.management.access import Access
from qpidha.management.acl import AccessList
from qpidha.management.admission import MOST_REFUSED, admit
from qpidha.management.methods import METHODS
from qpidha.management.redirects import refusal
from qpidha.model.broker_states import READY
from qpidha.model.duration import SECOND
from qpidha.model.effects import SendBytes, SendParts
from qpidha.model.encoding import Symbol
from qpidha.model.errors import LimitExceeded, NotAllowed, Unauthorized
from qpidha.model.event_log import EventSink
from qpidha.model.events import BytesReceived, ConnectionKind, ConnectionOpened
from qpidha.model.principal import Action, ObjectType, Principal, Role
from qpidha.model.settings import Settings
from tests.amqp.builders import a_node
from tests.amqp.wire import frame, frames_in, perform
from tests.management.builders import LOCAL

CLIENT = Principal("ann", "PLAIN", "h:1")
NEIGHBOUR = Principal("ann", "PLAIN", "h:1", trusted_host=True)
ADMINISTRATOR = CLIENT.with_role(Role.ADMINISTRATOR)
BROKER = CLIENT.with_role(Role.BROKER)
EVERYBODY = {"client": CLIENT, "administrator": ADMINISTRATOR, "broker": BROKER, "local": LOCAL}


def may(access: Access, principal: Principal, *question: Any) -> bool:
    try:
        access.check(principal, *question)
    except Unauthorized:
        return False
    return True


@pytest.mark.parametrize(
    "question, allowed",
    [
        ((Action.UPDATE, ObjectType.BROKER, "promote"), {"administrator", "local"}),
        ((Action.ACCESS, ObjectType.BROKER, "status"), set(EVERYBODY)),
        ((Action.UPDATE, ObjectType.MEMBERSHIP, "recorded"), {"local"}),
        ((Action.ACCESS, ObjectType.MEMBERSHIP, "recording"), {"local"}),
        ((Action.ACCESS, ObjectType.SERVICE, REPLICATION), {"broker"}),
        ((Action.ACCESS, ObjectType.SERVICE, "$management"), set(EVERYBODY)),
        ((Action.ACCESS, ObjectType.ACL, "acl"), {"administrator", "local"}),
        ((Action.CREATE, ObjectType.CONNECTION), set(EVERYBODY)),
        ((Action.CREATE, ObjectType.LINK), set(EVERYBODY)),
        ((Action.ACCESS, ObjectType.METHOD, "promote"), set(EVERYBODY)),
        ((Action.ACCESS, ObjectType.QUERY, "q"), set(EVERYBODY)),
        *(
            ((action, kind, "x"), set(EVERYBODY))
            for kind in (ObjectType.QUEUE, ObjectType.EXCHANGE)
            for action in Action
        ),
    ],
)
def test_the_rules(question: tuple[Any, ...], allowed: set[str]) -> None:
    access = Access(Settings())
    assert {name for name, who in EVERYBODY.items() if may(access, who, *question)} == allowed


@pytest.mark.parametrize("role", [Role.ADMINISTRATOR, Role.BROKER])
def test_a_role_is_for_the_user_of_ha_username(role: Role) -> None:
    question = (Action.ACCESS, ObjectType.ROLE, role)
    strict = Access(Settings(auth=True, ha_username="cluster"))
    assert may(strict, Principal("cluster"), *question)
    assert not may(strict, CLIENT, *question)
    assert not may(strict, Principal(), *question)
    assert not may(strict, Principal("ann", trusted_host=True), *question)
    assert may(Access(Settings(auth=False, ha_username="cluster")), Principal("cluster"), *question)


ALONE = Settings(interface=("127.0.0.1",))
"""Of a broker that only this machine reaches, without users."""


@pytest.mark.parametrize(
    ("settings", "role", "trusted", "refused"),
    [
        (Settings(auth=False), Role.ADMINISTRATOR, True, ""),
        (Settings(auth=False), Role.BROKER, True, ""),
        (Settings(auth=False), Role.ADMINISTRATOR, False, "ask on a machine of the cluster"),
        (Settings(auth=False), Role.BROKER, False, "list the broker in ha-brokers-url"),
        (ALONE, Role.BROKER, True, ""),
        (ALONE, Role.BROKER, False, "list the broker in ha-brokers-url"),
        (ALONE, Role.ADMINISTRATOR, True, "use its admin socket"),
        (ALONE, Role.ADMINISTRATOR, False, "ask on a machine of the cluster"),
        (Settings(), Role.BROKER, True, "log in as the user"),
        (Settings(), Role.ADMINISTRATOR, True, "log in as the user"),
    ],
)
def test_code_d1_where_nobody_logs_in_a_role_depends_on_the_address(
    settings: Settings, role: Role, trusted: bool, refused: str
) -> None:
    """What strangers say of themselves is never believed, and they are told what to do."""
    who = Principal("anonymous", address="192.0.2.9:4711", trusted_host=trusted)
    question = (who, Action.ACCESS, ObjectType.ROLE, role)
    if not refused:
        Access(settings).check(*question)
        return
    with pytest.raises(Unauthorized, match=r"anonymous may not connect as an? ") as error:
        Access(settings).check(*question)
    assert refused in error.value.hint
    assert trusted or "192.0.2.9:4711 is not on the broker's machine" in error.value.reason


@pytest.mark.parametrize("trusted", [True, False])
def test_code_d1_a_node_believes_an_administrator_by_where_its_stream_comes_from(
    trusted: bool,
) -> None:
    node = a_node()
    node.start(SECOND)
    claim = frame(perform(0x10, "tool", *8 * [None], {Symbol("qpid.ha-admin"): True}))
    opened = ConnectionOpened(2, "192.0.2.9:4711", ConnectionKind.CLIENT, trusted_host=trusted)
    effects = node.step([opened, BytesReceived(2, AMQP_HEADER + claim)], SECOND)
    answer = b"".join(
        effect.data for effect in effects if isinstance(effect, SendBytes | SendParts)
    )
    closes = [each.condition for each in frames_in(answer[len(AMQP_HEADER) :]) if each.code == 0x18]
    assert closes == ([] if trusted else ["amqp:unauthorized-access"])


def test_nobody_is_believed_for_the_name_of_those_that_do_not_log_in() -> None:
    access = Access(Settings(auth=False, ha_username="anonymous"))
    assert not may(access, Principal("anonymous"), Action.ACCESS, ObjectType.ROLE, Role.BROKER)


@pytest.mark.parametrize("user", ["cluster", "cluster@QPID"])
def test_the_user_of_ha_username_may_be_written_with_the_realm(user: str) -> None:
    access = Access(Settings(auth=True, ha_username=user))
    question = (Action.ACCESS, ObjectType.ROLE, Role.BROKER)
    for name, allowed in (("cluster", True), ("cluster@QPID", True), ("cluster@OTHER", False)):
        assert may(access, Principal(name), *question) == allowed
    assert not may(Access(Settings(auth=True)), Principal(), *question)


ANN = frozenset((b"", b"ann", b"ann@QPID"))


def test_where_there_is_no_realm_a_name_is_what_it_is() -> None:
    """One that ends in @ was taken for another user."""
    access = Access(Settings(auth=True, ha_username="cluster", realm=""))
    question = (Action.ACCESS, ObjectType.ROLE, Role.BROKER)
    assert may(access, Principal("cluster"), *question)
    assert not may(access, Principal("cluster@"), *question)
    assert access.user_ids(Principal("ann@")) == {b"", b"ann@"}
    assert AccessList(realm="").bare("ann@") == Users(realm="").bare("ann@") == "ann@"


@pytest.mark.parametrize(
    ("principal", "user_ids"),
    [
        (CLIENT, ANN),
        (Principal("ann@QPID"), ANN),
        (Principal("CN=b2", "EXTERNAL"), frozenset((b"", b"CN=b2", b"CN=b2@QPID"))),
        (ADMINISTRATOR, None),
        (BROKER, None),
        (Principal("cluster"), None),
        (Principal("cluster@QPID"), None),
        (Principal("anonymous"), None),
        (Principal(), None),
    ],
)
def test_who_has_logged_in_sends_in_his_own_name(
    principal: Principal, user_ids: frozenset[bytes] | None
) -> None:
    assert Access(Settings(auth=True, ha_username="cluster")).user_ids(principal) == user_ids
    assert Access(Settings(auth=False)).user_ids(principal) is None


@pytest.mark.parametrize(
    ("user_id", "told"),
    [(b"bob", "'bob'"), (b"\xff" * 900, "'" + "\ufffd" * 255 + "'"), (["b"], "'list'")],
)
def test_a_message_in_the_name_of_another_is_told_of(user_id: object, told: str) -> None:
    said: list[str] = []
    ears: Any = SimpleNamespace(denied=lambda who, kind, error, **_: said.append(error.text))
    access = Access(Settings(auth=True), ears)
    assert access.forged(CLIENT, user_id).text == said[0]
    assert said == [f"ann may not send messages with the user-id {told}"]


def test_every_command_to_the_broker_itself_needs_a_role() -> None:
    access = Access(Settings())
    free = {
        each.name
        for each in METHODS
        if may(access, CLIENT, each.action, each.object_type, each.name)
    }
    assert {each.name for each in METHODS} - free == {
        "acl",
        "promote",
        "demote",
        "recover",
        "switchover",
        "close_connection",
        "reload",
        "set_log_level",
        "set_public_url",
        "shutdown",
        "recording",
        "recorded",
        "replicate",
        "stop_replica",
        "set_operator_policy",
        "clear_operator_policy",
        "declare_link",
        "delete_link",
        "declare_route",
        "delete_route",
    }


def test_a_principal_shows_its_name() -> None:
    assert str(CLIENT) == "ann" and str(Principal()) == "anonymous"


class AHost:
    """What admission asks of a broker."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(**{"auth": False, **settings})
        self.access = Access(self.settings)
        self.cluster: Any = None
        self.streams = SimpleNamespace(clients={})
        self.event_log = EventSink(is_on=True)
        self.serving = True
        self.broker = SimpleNamespace(features={})
        self.refused: dict[str, dict[str, object]] = {}
        self.said: list[str] = []

    def announce(self, level: str, text: str, **fields: object) -> None:
        self.said.append(f"{level}: {text}")


def a_connection(principal: Principal = NEIGHBOUR, **properties: object) -> Any:
    return SimpleNamespace(
        connection_id=1,
        kind=ConnectionKind.CLIENT,
        principal=principal,
        remote_properties={f"qpid.ha-{name}": value for name, value in properties.items()},
    )


def test_what_a_connection_claims_becomes_its_role() -> None:
    host = AHost()
    host.cluster = SimpleNamespace(primary=object())
    for claims, role in (
        ({"admin": True}, Role.ADMINISTRATOR),
        ({"backup": {}}, Role.BROKER),
        ({"admin": True, "backup": {}}, Role.BROKER),
    ):
        connection = a_connection(**claims)
        admit(host, connection)
        assert connection.principal.roles == {role}
    assert host.event_log.clients == {}, "brokers and administrators are no clients"


def test_a_role_is_refused_to_a_stranger_and_a_broker_without_a_cluster_has_no_backups() -> None:
    host = AHost(auth=True, ha_username="cluster")
    for claim in ("admin", "backup"):
        connection = a_connection(**{claim: True})
        with pytest.raises(Unauthorized, match=rf"may not connect as an? .* \(qpid.ha-{claim}\)"):
            admit(host, connection)
        assert connection.principal.is_ordinary
    with pytest.raises(NotAllowed, match="not in a cluster"):
        admit(host, a_connection(Principal("cluster"), backup={}))


def test_a_broker_that_lacks_an_enabled_feature_is_refused_and_announced_once() -> None:
    host = AHost()
    host.cluster = SimpleNamespace(primary=object())
    host.broker.features = {"a": 3, "b": 4}
    old = {"system-id": "x", "address": "c:5672"}
    for _ in range(3):
        with pytest.raises(NotAllowed, match="c:5672 does not know what this cluster uses: b. Upg"):
            admit(host, a_connection(backup={**old, "features": ["a"]}))
    assert len(host.said) == 1 and host.refused["c:5672"]["missing"] == ["b"]
    for nonsense in ("ab", 3, {"a": 1}):
        with pytest.raises(NotAllowed, match="uses: a, b. Upgrade qpidha on c:5672"):
            admit(host, a_connection(backup={**old, "features": nonsense}))
    admit(host, a_connection(backup={**old, "features": ["z", "b", "a"]}))
    assert host.refused == {}


def test_only_so_many_refused_brokers_are_remembered_and_announced() -> None:
    host = AHost()
    host.cluster = SimpleNamespace(primary=object())
    host.broker.features = {"a": 3}
    for number in range(MOST_REFUSED + 5):
        with pytest.raises(NotAllowed):
            admit(host, a_connection(backup={"system-id": "x", "address": f"c{number}:5672"}))
    assert len(host.refused) == len(host.said) == MOST_REFUSED


def test_an_ordinary_client_is_let_in_up_to_a_number() -> None:
    host = AHost(max_connections=1)
    first, second = a_connection(), a_connection()
    admit(host, first)
    assert host.event_log.clients == {1: "h:1"} and first.principal.is_ordinary
    with pytest.raises(LimitExceeded, match="max-connections 1"):
        admit(host, second)
    assert host.event_log.hits == {("max-connections", "refused", ""): 1}


def test_access_control_is_asked_about_every_client() -> None:
    def check(principal: Principal, *question: Any) -> None:
        assert question == (Action.CREATE, ObjectType.CONNECTION)
        raise Unauthorized("not from there")

    host = AHost()
    host.access = SimpleNamespace(check=check)  # type: ignore[assignment]
    with pytest.raises(Unauthorized, match="not from there"):
        admit(host, a_connection())
    assert host.event_log.clients == {}


def test_a_change_is_refused_with_the_reason_that_nothing_is_served() -> None:
    host = AHost()
    host.cluster = SimpleNamespace(
        primary=None,
        state=READY,
        handover=None,
        peers=SimpleNamespace(current_primary=lambda: None),
    )
    error = refusal(host)
    assert error.text == "backups are read only"
    assert error.reason == "this broker is ready and knows no primary"
    host.cluster.primary = object()
    assert refusal(host).text == "this broker is handing over to another one"
