"""Routes between real brokers: a chain from one broker over a cluster to another, with kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patience import LONG_TEST
from tests.soak.chain import Chain, Options

pytestmark = pytest.mark.system


@pytest.mark.timeout(2 * LONG_TEST)
def test_line_2_of_issue_18_a_chain_of_routes_loses_nothing_while_primaries_are_killed(
    tmp_path: Path,
) -> None:
    options = Options(tmp_path / "chain", 12.0, rate=1000.0, kill_every=6.0, dedup=True)
    summary = Chain(options).run()
    print(f"\n{summary}")
    assert summary["kills"] >= 1
    assert summary["lost"] == 0 and summary["twice"] == 0 and summary["passed"]
