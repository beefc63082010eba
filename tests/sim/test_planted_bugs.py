"""Every planted bug is noticed: a simulator that finds nothing proves nothing."""

from __future__ import annotations

import pytest

from tests.sim.__main__ import play
from tests.sim.planted_bugs import BUGS

MOST = 500
"""Seeds that a bug may go unnoticed."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_noticed(bug: str) -> None:
    for seed in range(MOST):
        if play(seed, "model", bug).failure:
            assert not play(seed, "model").failure, "the bug makes no difference: this seed fails without it too"
            return
    pytest.fail(f"{MOST} seeds did not notice {bug}")
