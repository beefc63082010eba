"""What a turn records in both logs is answered when both have it."""

from __future__ import annotations

import pytest

from qpidha import node as node_module
from qpidha.model.events import Tick
from qpidha.model.records import Requeued
from qpidha.node import Node
from tests.store.test_damage import SECOND, a_node


@pytest.mark.parametrize("is_sealed", [False, True])
def test_what_is_in_both_logs_waits_for_both_also_where_one_is_sealed_within_the_turn(
    is_sealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _ = a_node([])
    node.start(SECOND)
    assert node.local is not None

    def record(node: Node, event: Tick) -> None:
        assert node.local is not None
        node.log.append(Requeued(1, 1, 1, b""))
        node.local.log.append(Requeued(1, 1, 1, b""))
        if is_sealed:
            node.log.seal()

    monkeypatch.setitem(node_module.HANDLERS, Tick, record)
    node.step([Tick()], 2 * SECOND)
    assert list(node.local._waiting) == [(node.local.log.last, node.log.last)]
