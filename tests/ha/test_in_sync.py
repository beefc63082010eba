"""What a broker remembers of its cluster: how it is read back, and when it may not be missing."""

from __future__ import annotations

import pytest

from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.errors import StateLost
from tests.ha.cluster_world import Machine, World


def test_what_is_saved_is_read_back() -> None:
    saved = SavedState(7, InSyncSet(6, 2, ("a", "b")))
    assert SavedState.decode(saved.encode()) == SavedState.decode(saved.encode(), 6) == saved


def test_a_broker_that_never_was_in_a_cluster_has_promised_nothing() -> None:
    assert SavedState.decode(b"") == SavedState()


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b"{}", b'{"promised": 1}', b'{"promised": "x", "in_sync": {}}']
)
def test_a_state_that_cannot_be_read_is_refused_with_what_to_do(data: bytes) -> None:
    with pytest.raises(StateLost, match="the state file cannot be read") as refused:
        SavedState.decode(data)
    assert "whole data-dir" in refused.value.hint


def test_a_log_of_an_epoch_without_a_state_is_refused() -> None:
    with pytest.raises(
        StateLost, match="the state file is gone, and the write-ahead log has records of epoch 5"
    ) as refused:
        SavedState.decode(b"", 5)
    assert "whole data-dir" in refused.value.hint


def test_an_old_state_promises_at_least_the_epoch_of_the_log() -> None:
    assert SavedState.decode(SavedState(3).encode(), 5).promised == 5


def test_a_broker_whose_state_is_lost_does_not_vouch_for_a_set_that_it_has_forgotten() -> None:
    """0 is primary with 1; 2 was dropped while cut off. 1 without its state would have made 2
    primary, without what 0 and 1 accepted.
    """
    world = World(3, safety="strict", durable=True)
    world.machines[0].promote()
    world.run(1)
    world.kill(2)
    world.machines[0].publish("a")
    world.run(1)
    assert world.machines[0].accepted == ["a"]
    world.kill(1)
    world.kill(0)
    lost = world.machines[1]
    assert lost.disk is not None
    with pytest.raises(StateLost):
        Machine(world, 1, b"", files=lost.disk.files)
    assert world.restart(1).state is BrokerStatus.JOINING


def test_a_state_is_saved_before_there_is_a_log_that_needs_one() -> None:
    world = World(1, safety="trust-manager", durable=True)
    assert SavedState.decode(world.machines[0].saved) == SavedState() and world.machines[0].saved
