"""The benchmark's load generator and its cases, with a few messages of each: every kind of queue
takes them all and gives them all.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from tests.bench.cases import KINDS
from tests.bench.ours import QpidhaBrokers
from tests.bench.run import all_rounds, our_subject
from tests.bench.unselected import rounds

ASK = Namespace(
    cases=list(KINDS), rounds=1, messages=200, backlog=300, window=100, size=100, durable=False
)
ASK.timeout = 60.0
pytestmark = pytest.mark.skipif(
    not Path("/usr/include/proton/connection_driver.h").exists(),
    reason="the load generator is compiled with Qpid Proton's headers",
)


def test_queues_of_each_kind_are_loaded_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.bench.run.WARM_UP", 100)
    brokers = QpidhaBrokers(tmp_path, 1)
    try:
        brokers.up()
        subject = our_subject("one", brokers, ASK)
        runs = all_rounds([subject], ASK, lambda subject, queue: brokers.delete(queue))
        assert [run["case"] for run in runs] == list(KINDS)
        assert all(run["generator"]["received"] == ASK.messages for run in runs)
        assert len(rounds(brokers, ASK)) == ASK.rounds
    finally:
        brokers.down()
