"""Replicas in simulated histories: both sides crash and lose power, connections break, and the
operator begins a replica anew that is blocked.
"""

from __future__ import annotations

import pytest

from tests.replicas.planted_bugs import BUGS, LOCAL_BUGS
from tests.replicas.stage import Violation, play

SEEDS = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_replica_has_what_its_source_has(seed: int) -> None:
    stage = play(seed)
    assert stage.oracle.checks > 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_replica_goes_on_over_restarts_of_a_member_that_has_the_queue_for_itself(
    seed: int,
) -> None:
    stage = play(seed, local=True)
    assert stage.oracle.checks > 0 and stage.blocked == 0


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_is_found(name: str) -> None:
    bug, seed = BUGS[name]
    with bug(), pytest.raises(Violation):
        play(seed)


@pytest.mark.parametrize("name", sorted(LOCAL_BUGS))
def test_a_planted_bug_of_what_a_member_has_for_itself_is_found(name: str) -> None:
    bug, seed = LOCAL_BUGS[name]
    with bug(), pytest.raises(Violation):
        play(seed, local=True)
