"""What brokers tell of their lives: over a failover, and over their restarts."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qpidha.cli.main import main
from tests.system.cluster import wait_for

pytestmark = pytest.mark.system

MILLISECOND = 1_000_000


def rows(capsys: pytest.CaptureFixture[str], broker: Any, *words: str) -> list[dict[str, Any]]:
    """The rows of a list of the command line."""
    assert main([*words, "-o", "jsonl", "-b", str(broker.admin_socket)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def told(events: Path, kind: str, epoch: int) -> bool:
    """Whether the story of a broker on disk has come so far."""
    lines = [line for file in events.glob("story-*") for line in file.read_text().splitlines()]
    return any(row["k"] == kind and row.get("e") == epoch for row in map(json.loads, lines))


def test_a_failover_is_history_also_after_all_brokers_were_started_again(
    a_cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = a_cluster(3)
    names = [broker.status()["name"] for broker in cluster]
    cluster.kill(0, promote=1)
    (last, first) = rows(capsys, cluster[1], "history")
    assert (last["from"], last["to"], last["cause"]) == (names[0], names[1], f"{names[0]} was gone")
    assert first["to"] == names[0] and last["epoch"] > first["epoch"]
    # The two began in one turn, and each event is told in nanoseconds of its own.
    assert last["promotion_ns"] > 0 and last["away_ns"] > last["promotion_ns"] - MILLISECOND
    # What is killed has written of its events what it had time for.
    for i, kind in ((1, "failover"), (2, "epoch")):
        is_told = partial(told, cluster[i].data_dir / "events", kind, last["epoch"])
        wait_for(is_told, what=f"{kind} of b{i} on disk")
        cluster[i].kill()
    for i in (0, 1, 2):
        cluster[i].start()
        cluster[i].wait_up()
    cluster.promote(2)
    found = rows(capsys, cluster[2], "history")
    assert [row["to"] for row in found] == [names[2], names[1], names[0]]
    # Which events of one turn come first is told by nanoseconds, and some were not kept.
    assert found[1].pop("away_ns") == pytest.approx(last.pop("away_ns"), abs=MILLISECOND)
    assert found[1] == last


def test_events_of_all_brokers_are_told_by_any(
    a_cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = a_cluster(2)
    cluster[0].declare_queue("m\u00e4rz, 1")
    found = wait_for(
        lambda: rows(capsys, cluster[1], "events", "--type", "queue,role", "-n", "0"),
        until=lambda some: any(row["kind"] == "queue" for row in some),
    )
    assert {row["broker"] for row in found} == {broker.status()["name"] for broker in cluster}
    (created,) = [row for row in found if row["kind"] == "queue"]
    assert created["text"] == "queue m\u00e4rz, 1 created" and created["queue"] == "m\u00e4rz, 1"
    assert found == sorted(found, key=lambda row: row["at_ns"])
