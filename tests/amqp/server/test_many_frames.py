"""Attaches and other frames without end in few bytes: they must not keep the broker busy for
long.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from qpidha.amqp.peer import engine
from qpidha.amqp.peer.engine import PUT_OFF
from qpidha.amqp.server.streams import LATE_A_TURN
from qpidha.model.effects import Effect, SendBytes, SendParts
from qpidha.model.encoding import UInt
from qpidha.model.events import BytesReceived, ConnectionKind, ConnectionLost, ConnectionOpened
from qpidha.node import LOOK, Node
from tests.amqp.builders import a_node
from tests.amqp.server.test_rare_frames import HEADER, OPEN, PLAIN_BEGIN
from tests.amqp.wire import attach, frame, frames_in, perform, told

NOW = 1_000_000_000
LINKS = 1000
ATTACH, DETACH = 0x12, 0x16


def a_node_with_a_client() -> Node:
    node = a_node()
    node.start(NOW)
    node.broker.declare_queue("q")
    node.step([ConnectionOpened(2, "p", ConnectionKind.CLIENT, "", False)], NOW)
    node.step([BytesReceived(2, HEADER + OPEN + PLAIN_BEGIN)], NOW)
    return node


def link_that_comes_and_goes(number: int) -> bytes:
    return attach(f"s{number}", 0) + frame(perform(DETACH, UInt(0), True))


def sent(effects: Iterable[Effect]) -> bytes:
    return b"".join(effect.data for effect in effects if isinstance(effect, SendBytes | SendParts))


def test_thousands_of_attaches_are_answered_some_a_turn() -> None:
    node = a_node_with_a_client()
    said = b"".join(map(link_that_comes_and_goes, range(LINKS)))
    answers = [frames_in(sent(node.step([BytesReceived(2, said)], NOW)))]
    while node.streams.late:
        answers.append(frames_in(sent(node.step([], NOW))))
    attached = [[one.fields[0] for one in turn if one.code == ATTACH] for turn in answers]
    assert max(map(len, attached)) < LINKS / 5
    assert sum(attached, []) == [f"s{number}" for number in range(LINKS)]
    assert sum(one.code == DETACH for turn in answers for one in turn) == LINKS


def test_who_attaches_without_end_is_hung_up_on() -> None:
    node = a_node_with_a_client()
    said = link_that_comes_and_goes(0)
    effects = node.step([BytesReceived(2, said * (2 * PUT_OFF // len(said)))], NOW)
    assert told(frames_in(sent(effects)))[-1] == (0x18, "amqp:resource-limit-exceeded")


def test_what_all_connections_put_off_has_a_bound_and_counts_as_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else 500 of them could have the broker keep 2 GB."""
    monkeypatch.setattr(engine, "ALL_PUT_OFF", 512 << 10)
    monkeypatch.setattr(engine, "FEW_PUT_OFF", 64 << 10)
    node = a_node_with_a_client()
    said = link_that_comes_and_goes(0)
    said *= (256 << 10) // len(said)
    effects: list[Effect] = []
    for number in range(4, 14, 2):
        node.step([ConnectionOpened(number, "p", ConnectionKind.CLIENT, "", False)], NOW)
        node.step([BytesReceived(number, HEADER + OPEN + PLAIN_BEGIN)], NOW)
        effects += node.step([BytesReceived(number, said)], NOW + number * LOOK)
    ends = told(frames_in(sent(effects))).count((0x18, "amqp:resource-limit-exceeded"))
    assert 0 < ends < 4
    assert 256 << 10 < node.scratch.put_off < 1 << 20
    assert node.broker.use.unfinished == node.scratch.put_off
    for _ in range(1000):
        if not node.streams.late:
            break
        node.step([], NOW)
    assert node.scratch.put_off == node.broker.use.unfinished == 0


def test_what_a_connection_that_is_lost_had_put_off_is_kept_no_longer() -> None:
    node = a_node_with_a_client()
    said = link_that_comes_and_goes(0)
    node.step([BytesReceived(2, said * ((256 << 10) // len(said)))], NOW)
    assert node.scratch.put_off > 0
    node.step([ConnectionLost(2, "gone")], NOW)
    while node.streams.late:
        node.step([], NOW)
    assert node.scratch.put_off == 0


def test_thousands_of_flows_are_looked_at_some_a_turn() -> None:
    node = a_node_with_a_client()
    window = UInt(100)
    echo = frame(
        perform(0x13, UInt(0), window, UInt(0), window, None, None, None, None, None, True)
    )
    answers = [frames_in(sent(node.step([BytesReceived(2, echo * 5 * LINKS)], NOW)))]
    while node.streams.late:
        answers.append(frames_in(sent(node.step([], NOW))))
    assert len(answers) > 4 and all(one.code == 0x13 for turn in answers for one in turn)


def test_clients_with_too_much_for_a_turn_go_on_one_after_the_other() -> None:
    """What comes of them meanwhile waits as well, and nobody is left out."""
    node = a_node()
    node.start(NOW)
    clients = range(2, 20, 2)
    said = b"".join(map(link_that_comes_and_goes, range(LINKS)))
    for client in clients:
        node.step([ConnectionOpened(client, "p", ConnectionKind.CLIENT, "", False)], NOW)
        node.step([BytesReceived(client, HEADER + OPEN + PLAIN_BEGIN)], NOW)
    node.step([BytesReceived(client, said[: len(said) // 2]) for client in clients], NOW)
    assert len(node.streams.late) == len(clients)
    last = [BytesReceived(client, said[len(said) // 2 :]) for client in clients]
    turns = [node.step(last, NOW)]
    while node.streams.late:
        turns.append(node.step([], NOW))
    answered = [
        {effect.connection_id for effect in turn if isinstance(effect, SendBytes | SendParts)}
        for turn in turns
    ]
    assert max(map(len, answered)) == LATE_A_TURN
    assert set().union(*answered[: len(clients) // LATE_A_TURN + 1]) == set(clients)
    links = [one.fields[0] for one in frames_in(b"".join(map(sent, turns))) if one.code == ATTACH]
    assert len(links) > len(clients) * LINKS / 2
    assert {f"s{number}" for number in range(LINKS // 2 + 1, LINKS)} <= set(links)
