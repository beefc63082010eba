"""Requests of clients wait in lines when a turn has read enough: whoever asks for much waits, and
nobody else does for long.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from qpidha.amqp.peer.connection import Connection
from qpidha.management.amqp_management import ManagementService
from qpidha.management.lines import READS_A_TURN, Lines
from qpidha.model.effects import SendBytes, SendParts
from qpidha.model.events import (
    BytesReceived,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    Event,
)
from qpidha.model.message_view import properties
from qpidha.model.principal import Role
from qpidha.node import Node
from tests.amqp.builders import SECOND, AHost, Recording, a_node
from tests.management.builders import FakeConnection, FakeLink, a_request, open_answer

QUEUES = 1000
NAMES = {"attributeNames": ["name"]}


def awake(_: object) -> bool:
    """No connection rests."""
    return False


class Asker:
    """A client of a broker, with links in both directions at a service."""

    def __init__(self, node: Node, number: int = 1, address: str = "$management") -> None:
        self.node, self.number, self.address = node, number, address
        node.step([ConnectionOpened(number, "client", ConnectionKind.CLIENT)], SECOND)
        kind = ConnectionKind.OUTGOING
        self.client = Connection(
            1, AHost("client", link_heartbeat_interval=0), kind=kind, peer="broker"
        )
        self.client.open("client", {})
        self.answers = Recording()
        self.sender = self.client.attach(address, sender=True, service=Recording(), name="pair")
        self.client.attach(address, sender=False, service=self.answers, name="pair")
        for _ in range(9):
            self.turn()

    def turn(self, *events: Event) -> None:
        """One turn of the broker, with what this client has to say and what happens beside."""
        data = self.client.output()
        said = [BytesReceived(self.number, data)] if data else []
        for effect in self.node.step([*events, *said], SECOND):
            if isinstance(effect, SendBytes | SendParts) and effect.connection_id == self.number:
                self.client.receive(effect.data)

    def ask(self, operation: str, number: int, body: Any = None, **application: Any) -> None:
        """Send a request to `$management`, with the next `turn`."""
        application = {"operation": operation, **application}
        self.sender.send(
            a_request(body, application=application, reply_to="pair", correlation_id=number)
        )

    def read(self, number: int) -> None:
        """Ask for all queues."""
        if self.address == "$management":
            self.ask("QUERY", number, NAMES, entityType="queue")
        else:
            self._http("GET", "/queues", number, None)

    def create(self, number: int, name: str, *, exclusive: bool = False) -> None:
        """Ask for a new queue."""
        options = {"exclusive": True} if exclusive else {}
        if self.address == "$management":
            self.ask("CREATE", number, options, type="queue", name=name)
        else:
            self._http("PUT", f"/queues/{name.replace(' ', '%20')}", number, options)

    def _http(self, verb: str, path: str, number: int, body: Any) -> None:
        self.sender.send(a_request(body, subject=verb, to=path, reply_to="$me", message_id=number))

    def answered(self) -> list[Any]:
        """The correlation ids of the answers that came."""
        return [properties(payload)["correlation_id"] for payload in self.answers.payloads]


@pytest.fixture
def node() -> Node:
    """A broker with many queues."""
    node = a_node(durable_without_store="accept")
    node.start(SECOND)
    for number in range(QUEUES):
        node.broker.declare_queue(f"q{number}")
    return node


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Reads of the turns."""
    turns = [0]
    spend, renew = Lines.spend, Lines.renew

    def counted(self: Lines, reads: int) -> None:
        turns[-1] += reads
        spend(self, reads)

    def renewed(self: Lines) -> None:
        turns.append(0)
        renew(self)

    monkeypatch.setattr(Lines, "spend", counted)
    monkeypatch.setattr(Lines, "renew", renewed)
    return turns


def test_performance_1_a_turn_reads_a_part_of_what_is_asked(node: Node, spent: list[int]) -> None:
    asker = Asker(node)
    for number in range(200):
        asker.ask("QUERY", number, NAMES, entityType="queue")
    asker.turn()
    assert 0 < len(asker.answered()) <= READS_A_TURN // QUEUES + 1
    assert node.next_deadline == SECOND  # The next turn comes at once.
    turns = 1
    while node.lines:
        asker.turn()
        turns += 1
    assert asker.answered() == list(range(200))
    assert 200 * QUEUES <= sum(spent) <= 250 * QUEUES
    assert max(spent) <= READS_A_TURN + 2 * QUEUES and turns <= 15
    assert all(
        len(open_answer(payload)[2]["results"]) == QUEUES for payload in asker.answers.payloads
    )


def test_what_comes_later_is_answered_later_whatever_it_asks_for(node: Node) -> None:
    asker = Asker(node)
    for number in range(40):
        asker.ask("QUERY", number, NAMES, entityType="queue")
    asker.ask("CREATE", 40, type="queue", name="new")
    asker.ask("nothing of this name", 41)
    asker.turn()
    asker.ask("READ", 42, type="queue", name="new")
    asker.turn()
    assert len(asker.answered()) < 42
    while node.lines:
        asker.turn()
    assert asker.answered() == list(range(43))
    statuses = [open_answer(payload)[1]["statusCode"] for payload in asker.answers.payloads[40:]]
    assert statuses == [201, 501, 200]


@pytest.mark.parametrize(
    ("operation", "body", "reads"),
    [
        ("list_queues", {}, 30 * QUEUES),
        ("list_queues", {"match": "nothing"}, QUEUES // 10),
        ("list_queues", {"name": "q1"}, 25),
        ("list_bindings", {"queue": "q1"}, QUEUES),
        ("explain", {}, QUEUES),
        ("help", {}, 180),
    ],
)
def test_what_reads_much_spends_much(
    node: Node, spent: list[int], operation: str, body: dict[str, Any], reads: int
) -> None:
    for number in range(QUEUES):
        node.broker.bind("amq.topic", f"q{number}", "key", {})
    asker = Asker(node)
    asker.ask(operation, 1, body)
    asker.turn()
    assert asker.answered() == [1] and reads <= sum(spent) <= 2 * reads + 100


def test_others_do_not_wait_behind_the_line_of_one(node: Node) -> None:
    asker, other = Asker(node), Asker(node, 2)
    for number in range(100):
        asker.ask("QUERY", number, NAMES, entityType="queue")
    asker.turn()
    other.ask("READ", 1, type="queue", name="q1")
    data = other.client.output()
    for effect in node.step([BytesReceived(2, data)], SECOND):
        if isinstance(effect, SendBytes | SendParts) and effect.connection_id == 2:
            other.client.receive(effect.data)
    assert node.lines and other.answered() == [1]


def test_the_pairs_at_management_wait_in_line_as_well(node: Node) -> None:
    asker = Asker(node, address="/management")
    for number in range(12):
        asker.sender.send(a_request(subject="GET", to="/queues", reply_to="$me", message_id=number))
    asker.turn()
    assert 0 < len(asker.answered()) < 5
    while node.lines:
        asker.turn()
    assert asker.answered() == list(range(12))


@pytest.mark.parametrize("address", ["$management", "/management"])
def test_the_changes_of_a_client_that_leaves_its_line_are_made(node: Node, address: str) -> None:
    """They were accepted; nobody is there to hear what it wanted to read."""
    asker, other = Asker(node, address=address), Asker(node, 2)
    other.ask("CREATE", 0, type="queue", name="answers")
    other.turn()
    for number in range(100):
        asker.read(number)
    asker.create(100, "new")
    asker.create(101, "its own", exclusive=True)
    asker.turn()
    assert node.lines and node.broker.use.answers > 0
    for number in range(40):
        other.ask("QUERY", number, NAMES, entityType="queue")
    other.turn()
    events: list[Any] = [ConnectionLost(1, "gone")]
    turns = 0
    while node.lines:
        assert node.next_deadline == SECOND
        answered = len(other.answered())
        other.turn(*events)
        events = []
        assert len(other.answered()) > answered
        turns += 1
    assert turns < 10 and node.broker.use.answers == 0 and node.next_deadline != SECOND
    assert "new" in node.broker.queues
    assert "its own" not in node.broker.queues or node.broker.queues["its own"].owner is None


def test_nothing_is_taken_from_lines_while_another_broker_is_to_be_primary(node: Node) -> None:
    asker = Asker(node)
    for number in range(60):
        asker.ask("QUERY", number, NAMES, entityType="queue")
    asker.ask("CREATE", 60, type="queue", name="new")
    asker.turn()
    before = len(asker.answered())
    node.freeze(True)
    for _ in range(5):
        asker.turn()
    assert len(asker.answered()) == before and node.next_deadline != SECOND
    node.freeze(False)
    while node.lines:
        asker.turn()
    assert asker.answered() == list(range(61)) and "new" in node.broker.queues


def test_changes_in_line_wait_when_a_request_before_them_hands_over(node: Node) -> None:
    asker = Asker(node)
    service = node.services["$management"]
    assert isinstance(service, ManagementService)
    service._operations["READ"] = lambda _: node.freeze(True)
    for number in range(30):
        asker.ask("QUERY", number, NAMES, entityType="queue")
    asker.ask("READ", 30, type="queue", name="q1")
    asker.ask("CREATE", 31, type="queue", name="new")
    for _ in range(9):
        asker.turn()
    assert node.streams.frozen and node.lines and "new" not in node.broker.queues
    node.freeze(False)
    asker.turn()
    assert open_answer(asker.answers.payloads[-1])[1]["statusCode"] == 201


def test_an_administrator_is_answered_while_another_broker_is_to_be_primary(node: Node) -> None:
    asker, admin = Asker(node), Asker(node, 2)
    connection = node.streams.by_id[2]
    connection.principal = replace(connection.principal, roles=frozenset((Role.ADMINISTRATOR,)))
    for number in range(60):
        asker.ask("QUERY", number, NAMES, entityType="queue")
    asker.turn()
    node.freeze(True)
    node.step([], SECOND)
    for number in range(40):
        admin.ask("QUERY", number, NAMES, entityType="queue")
    admin.turn()
    while len(admin.answered()) < 40:
        assert node.next_deadline == SECOND
        admin.turn()
    assert node.lines and node.next_deadline != SECOND and len(asker.answered()) < 60


def test_a_mistake_of_ours_ends_the_connection_whose_turn_it_is() -> None:
    waiting, ended = Lines(), []
    one, two = (FakeLink(FakeConnection(number), "s", "$management") for number in (1, 2))
    done: list[str] = []

    def fail() -> None:
        raise KeyError("ours")

    waiting.spend(READS_A_TURN)
    waiting.add(one, 1, fail)
    waiting.add(two, 1, lambda: done.append("two"))
    waiting.add(one, 1, lambda: done.append("one"))
    assert not done
    waiting.go_on(lambda *_: True, awake)
    assert not done  # Nothing is left to spend in this turn.
    waiting.renew()
    waiting.go_on(lambda connection, error: not ended.append((connection, str(error))), awake)
    assert ended == [(one.connection, "'ours'")] and done == ["two", "one"]
