"""Every planted bug is noticed: a simulator that finds nothing proves nothing."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from tests.patience import LONG_TEST
from tests.sim.__main__ import play
from tests.sim.planted_bugs import BUGS, NEEDS

MOST = 500
"""Seeds that a bug may go unnoticed."""
PAGE = Path(__file__).parent.parent.parent / "docs" / "holes.md"
NOTICED = {
    name.replace(" ", "-"): int(seed)
    for name, seed in re.findall(r"^\| ([a-z ]+) \| (\d+) \| [a-z ]+ \|$", PAGE.read_text(), re.M)
}
"""Bug -> a seed that noticed it once: any change to the histories moves it, and then others are
played.
"""


def test_the_page_names_every_bug() -> None:
    assert NOTICED.keys() == BUGS.keys()
    assert NEEDS.keys() <= BUGS.keys()


@pytest.mark.timeout(LONG_TEST)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_noticed(bug: str) -> None:
    for seed in (NOTICED.get(bug, 0), *range(MOST)):
        if play(seed, "model", bug).failure:
            assert not play(seed, "model").failure, (
                "the bug makes no difference: this seed fails without it too"
            )
            if seed != NOTICED.get(bug):
                warnings.warn(
                    f"{bug} is noticed at seed {seed} now: say so in {PAGE}", stacklevel=1
                )
            return
    pytest.fail(f"{MOST} seeds did not notice {bug}")
