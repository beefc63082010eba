"""Replicas in simulated histories: both sides crash and lose power, connections break, and the
operator begins a replica anew that is blocked.
"""

from __future__ import annotations

import pytest

from tests.replicas.planted_bugs import BUGS
from tests.replicas.stage import Violation, play

SEEDS = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_replica_has_what_its_source_has(seed: int) -> None:
    stage = play(seed)
    assert stage.oracle.checks > 0


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_is_found(name: str) -> None:
    bug, seed = BUGS[name]
    with bug(), pytest.raises(Violation):
        play(seed)
