"""What a broker remembers of its cluster: how it is read back, and when it may not be missing."""

from __future__ import annotations

import json

import pytest

from qpidha.ha.in_sync import InSyncSet, SavedState, newest_of
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.errors import StateLost
from tests.ha.cluster_world import Machine, World


def test_what_is_saved_is_read_back() -> None:
    saved = SavedState(7, InSyncSet(6, 2, ("a", "b")))
    assert SavedState.decode(saved.encode()) == SavedState.decode(saved.encode(), 6) == saved


def test_a_broker_that_never_was_in_a_cluster_has_promised_nothing() -> None:
    assert SavedState.decode(b"") == SavedState(is_new=True)


OLD = SavedState(7, InSyncSet(6, 2, ("a", "b"))).encode()
NEW = SavedState(8, InSyncSet(6, 3, ("a",))).encode()
MIXED = (
    SavedState(9, InSyncSet(6, 2, ("a", "b"))).encode(),
    SavedState(7, InSyncSet(6, 4, ("b",))).encode(),
    SavedState(9, InSyncSet(6, 4, ("b",))).encode(),
)


@pytest.mark.parametrize(
    "file, copy, taken",
    [
        (NEW, OLD, NEW),
        (OLD, NEW, NEW),
        MIXED,
        (NEW, b"", NEW),
        (b"torn", OLD, OLD),
        (NEW, b"torn", NEW),
        (b"torn", b"too", b"torn"),
        (b"", OLD, b""),
        (b"", b"", b""),
    ],
)
def test_of_a_state_file_and_its_copy_the_newer_is_taken(
    file: bytes, copy: bytes, taken: bytes
) -> None:
    assert newest_of(file, copy) == taken


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


def test_faults_b6_no_bit_of_a_state_can_change_without_notice() -> None:
    members = ("5b1e0f4c-98a2-4c7e-9d0a-1f2e3d4c5b6a", "0c9d8e7f-1a2b-4c3d-8e4f-5a6b7c8d9e0f")
    saved = SavedState(12, InSyncSet(12, 4, members))
    data = saved.encode()
    silent = []
    for place in range(8 * len(data)):
        spoilt = bytearray(data)
        spoilt[place // 8] ^= 1 << place % 8
        try:
            found = SavedState.decode(bytes(spoilt))
        except StateLost:
            continue
        if found != saved:
            silent.append((place, found))
    assert not silent


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_faults_b6_a_state_that_is_cut_short_is_refused(cut: int) -> None:
    data = SavedState(7, InSyncSet(6, 2, ("a", "b"))).encode()
    with pytest.raises(StateLost, match="the state file cannot be read"):
        SavedState.decode(data[:-cut])


def test_faults_b6_a_state_of_a_version_without_checksums_is_read() -> None:
    data = b'{"promised": 7, "in_sync": {"epoch": 6, "version": 2, "members": ["a", "b"]}}'
    assert SavedState.decode(data) == SavedState(7, InSyncSet(6, 2, ("a", "b")))


@pytest.mark.parametrize(
    ("promised", "epoch", "members"),
    [(-1, 0, []), (True, 0, []), (1, 2.5, []), (1, 1, "ab"), (1, 1, [2])],
)
def test_faults_b6_a_state_with_other_types_is_refused(
    promised: object, epoch: object, members: object
) -> None:
    in_sync = {"epoch": epoch, "version": 1, "members": members}
    with pytest.raises(StateLost):
        SavedState.decode(json.dumps({"promised": promised, "in_sync": in_sync}).encode())


def test_a_state_can_be_read_by_an_operator_and_by_a_version_without_checksums() -> None:
    fields = json.loads(SavedState(7, InSyncSet(6, 2, ("a", "b"))).encode())
    assert fields["promised"] == 7
    assert fields["in_sync"] == {"epoch": 6, "version": 2, "members": ["a", "b"]}
