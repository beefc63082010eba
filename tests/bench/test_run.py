"""The benchmark with a few messages of each case: the load generator and the driver come to their
end, every message is taken, and there is a row for each.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from tests.bench import check, growth, run
from tests.bench.cases import KINDS, TABLE
from tests.bench.ours import QpidhaBrokers
from tests.bench.run import Ask, kinds_of, measure_all
from tests.bench.unselected import rounds

ROOT = Path(__file__).parents[2]
MESSAGES = 200
PATIENCE = 240
needs_headers = pytest.mark.skipif(
    not Path("/usr/include/proton/connection_driver.h").exists(),
    reason="the load generator is compiled with Qpid Proton's headers",
)


@needs_headers
def test_queues_of_each_kind_are_loaded_and_nothing_is_lost(tmp_path: Path) -> None:
    ask = Ask(["qpidha-1"], list(KINDS), rounds=1, seconds=30, messages=MESSAGES)
    bench = measure_all(ask, tmp_path)
    assert bench.errors == []
    assert [one["case"] for one in bench.runs] == list(KINDS)
    assert all(one["generator"]["received"] == MESSAGES for one in bench.runs)
    brokers = QpidhaBrokers(tmp_path / "one", 1)
    try:
        brokers.up()
        few = Namespace(rounds=1, messages=MESSAGES, backlog=300, size=100)
        assert len(rounds(brokers, few)) == 1
    finally:
        brokers.down()


@needs_headers
def test_every_case_of_the_table_is_measured_on_three_brokers(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.bench.run", "--subjects", "qpidha-3"]
    few = ["--rounds", "1", "--seconds", "0.2", "--messages", f"{MESSAGES}", "--backlog", "500"]
    few += ["--connections", "20", "--rest", "0.1", "--results", str(tmp_path), "-o", "json"]
    done = subprocess.run(
        [*program, *few], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [row["case"] for row in result["summary"]] == list(TABLE)
    assert all(one["is_whole"] for one in result["runs"])
    assert all(row["target"] for row in result["summary"])
    lines = (tmp_path / "bench.txt").read_text().splitlines()
    assert len(lines) == 2 + len(TABLE) and "180 us, p50 0.13 ms" in lines[2 + 3]


def test_a_peer_that_is_not_installed_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.bench.nats.PROGRAM", "no-such-server")
    monkeypatch.setattr("tests.bench.rabbit.PROGRAMS", Path("/no/such/folder"))
    kinds = kinds_of(["qpidha-3", *run.PEERS])
    assert [kind.title for kind in kinds] == ["qpidha-3"]
    said = capsys.readouterr().err
    assert "rabbitmq is not installed" in said and "nats is not installed" in said


def test_a_case_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(Exception, match="there is no case window-2.*window-1"):
        run.names(list(TABLE), "case")("kept,window-2")


def test_brokers_of_another_tree_run_that_tree_s_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # as make does
    with check.checked_out("HEAD", tmp_path) as base:
        node = base / "qpidha" / "node.py"
        text, count = re.subn("^VERSION = .*$", 'VERSION = "other"', node.read_text(), flags=re.M)
        assert count == 1
        node.write_text(text)
        brokers = QpidhaBrokers(tmp_path / "one", 1, source=base)
        try:
            brokers.up()
            assert brokers.ask(0, "status")["version"] == "other"
        finally:
            brokers.down()


@needs_headers
def test_two_commits_are_compared_and_the_working_copy_goes(tmp_path: Path) -> None:
    place = tmp_path / "base"
    with check.checked_out("HEAD", tmp_path) as base:
        assert (base / "qpidha" / "node.py").exists()
        ask = Ask([], ["window-1", "window-1-durable"], seconds=30, messages=MESSAGES)
        found = check.compare(ask, base, tmp_path, 0.05, fewest=2, most=2)
    assert [one.rounds for one in found.values()] == [2, 2]
    assert "window-1-durable" in check.table(found, 0.05)
    assert not place.exists() and str(place) not in check.git("worktree", "list")


@needs_headers
def test_every_case_of_growth_is_measured_at_two_sizes_and_more(tmp_path: Path) -> None:
    for name, case in growth.CASES.items():
        found = list(growth.measure(name, tmp_path, 1, divisor=10_000, rounds=1, seconds=0.3))
        assert [one.size for one in found] == growth.sizes_of(case, 10_000)
        assert all(one.cpu > 0 for one in found)
        assert found[0].ratio == 1 and case.title in growth.table(found)


@needs_headers
def test_a_backlog_stays_what_it_is_while_it_is_measured(tmp_path: Path) -> None:
    with growth.ready(growth.CASES["backlog"], tmp_path, 1, 20_000) as (subject, measure):
        assert measure(subject, 1.0) > 0
        (row,) = subject.cluster.ask(0, "list_queues", name=growth.QUEUE)
        assert 18_000 <= row["messages"] <= 20_000


def test_a_message_that_costs_more_where_there_is_more_is_told() -> None:
    small, large = (
        growth.Found("queues", 1, 6.0, 50_000_000, 1.0),
        growth.Found("queues", 100, 9.3, 50_000_000, 1.55),
    )
    found = [small, large]
    told = growth.table(found).splitlines()
    assert told[-1].endswith("1.55  TOO MUCH") and "TOO MUCH" not in told[-2]
