"""What a report reads: seconds become buckets that keep sums and maxima, whatever the length of the
run and the number of files.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from qpidha.pipeline.report.tables import (
    MOST_CURVES,
    MOST_POINTS,
    Axis,
    Closer,
    Lake,
    RunTables,
    look_closer,
    read_tables,
)
from tests.pipeline.report.lakes import put, second

SECOND = 1_000_000_000


def verdict_of(*names: str, **tables: list[dict[str, Any]]) -> dict[str, Any]:
    checks = [{"name": name, "table": tables.get(name, []), "counts": {}} for name in names]
    return {"run": "r", "checks": checks}


def read(
    folder: Path,
    start: int,
    end: int,
    verdict: dict[str, Any] | None = None,
    files: int = 1,
    **tables: list[dict[str, Any]],
) -> RunTables:
    """Write tables, read them back."""
    known = {"run": "r", "start_ns": start, "end_ns": end, "offset_ns": 0, "epsilon_ns": 0}
    for name, rows in (
        {"run": [known], "roles": [], "faults": [], "traffic_1s": [], "latency_1s": []} | tables
    ).items():
        put(folder, "r", name, rows, files=files if rows else 1)
    verdict = verdict or verdict_of()
    return read_tables(Lake(str(folder), verdict), verdict)


@pytest.mark.parametrize(
    ("seconds", "width"),
    [(1, 1), (600, 1), (601, 2), (3600, 10), (86_400, 300), (40 * 86_400, 7200), (10**9, 1666667)],
)
def test_no_run_has_more_points_than_can_be_seen(seconds: int, width: int) -> None:
    axis = Axis(5 * SECOND, (5 + seconds) * SECOND - 1)
    assert axis.seconds == seconds and axis.width == width and axis.buckets <= MOST_POINTS
    assert axis.buckets * axis.width >= seconds > (axis.buckets - 1) * axis.width


@pytest.mark.parametrize("seconds", [50, 5000])
@pytest.mark.parametrize("files", [1, 7])
def test_buckets_keep_sums_and_maxima(tmp_path: Path, seconds: int, files: int) -> None:
    choices = random.Random(seconds)
    traffic = [
        second(
            queue,
            100 + at,
            enqueue_ok=choices.randrange(9),
            enqueue_info=choices.randrange(3),
            dequeue_ok=choices.randrange(9),
        )
        for queue in "abc"
        for at in choices.sample(range(seconds), seconds * 2 // 3)
    ]
    latency = [
        {
            "what": "enqueue",
            "name": queue,
            "second": 100 + at,
            "n": 1,
            "p50_us": choices.randrange(10),
            "p95_us": 11,
            "p99_us": 12,
            "max_us": choices.randrange(10_000),
        }
        for queue in "abc"
        for at in range(seconds)
    ]
    choices.shuffle(traffic)
    start, end = 100 * SECOND + 7, (100 + seconds) * SECOND - 1
    tables = read(
        tmp_path, start, end, verdict_of("latency"), files, traffic_1s=traffic, latency_1s=latency
    )
    axis = tables.axis
    assert axis is not None and axis.buckets <= MOST_POINTS
    for name in ("enqueue_ok", "enqueue_info", "dequeue_ok", "enqueue_fail"):
        expected: dict[int, int] = {}
        for row in traffic:
            bucket = (row["second"] - 100) // axis.width
            expected[bucket] = expected.get(bucket, 0) + row[name]
        assert tables.traffic[name] == expected
    for name in ("p50_us", "max_us"):
        greatest: dict[int, int] = {}
        for row in latency:
            bucket = (row["second"] - 100) // axis.width
            greatest[bucket] = max(greatest.get(bucket, 0), row[name])
        assert tables.latency["enqueue", "", name] == greatest


def test_a_backlog_is_what_was_accepted_and_not_acknowledged(tmp_path: Path) -> None:
    rows = [
        second("a", 0, enqueue_ok=5, dequeue_ok=4, ack_ok=2),
        second("a", 1, ack_ok=3, dequeue_ok=1),
        second("a", 3, enqueue_ok=1),
    ]
    rows += [second("b", 0, enqueue_ok=5, dequeue_ok=2), second("b", 2, dequeue_ok=4)]
    tables = read(tmp_path, 0, 4 * SECOND - 1, traffic_1s=rows)
    assert list(tables.backlog["a"].values()) == [3, 0, 0, 1], "acknowledged"
    assert list(tables.backlog["b"].values()) == [3, 3, 0, 0], (
        "nobody notes acknowledgements: delivered; and never below nothing"
    )


def test_the_busiest_names_have_curves_and_the_others_none(tmp_path: Path) -> None:
    names = [f"b{number}" for number in range(MOST_CURVES + 3)]
    table = [
        {"what": "replication", "name": name, "n": number} for number, name in enumerate(names)
    ]
    rows = [
        {
            "what": "replication",
            "name": name,
            "second": at,
            "n": 1,
            "p50_us": 1,
            "p95_us": 1,
            "p99_us": 1,
            "max_us": 1,
        }
        for name in names
        for at in range(3)
    ]
    tables = read(
        tmp_path, 0, 3 * SECOND - 1, verdict_of("latency", latency=table), latency_1s=rows
    )
    assert tables.lagging["replication"] == names[:2:-1]
    assert {name for what, name, _ in tables.latency} == set(names[3:])


def test_what_brokers_noted_before_and_after_the_clients_is_left_out(tmp_path: Path) -> None:
    rows = [
        {
            "what": "enqueue",
            "name": "q",
            "second": at,
            "n": 1,
            "p50_us": at,
            "p95_us": at,
            "p99_us": at,
            "max_us": at,
        }
        for at in (9, 10, 11, 12)
    ]
    tables = read(tmp_path, 10 * SECOND, 12 * SECOND - 1, verdict_of("latency"), latency_1s=rows)
    assert tables.latency["enqueue", "", "max_us"] == {0: 10, 1: 11}


def test_a_closer_look_counts_every_enqueue_that_ended_in_it(tmp_path: Path) -> None:
    ends = [
        (1_000_000_000, 1),
        (1_099_999_999, 1),
        (1_100_000_000, 2),
        (1_999_999_999, 3),
        (2_000_000_000, 1),
        (None, 0),
    ]
    rows = [
        {
            "op_id": number,
            "queue": "q",
            "op": 1,
            "process": 1,
            "begin_at": 0,
            "end_at": end,
            "outcome": outcome,
            "is_paired": True,
        }
        for number, (end, outcome) in enumerate(ends)
    ]
    rows += [rows[0] | {"op": 5}, rows[0] | {"is_paired": False}]
    put(tmp_path, "r", "ops", rows, files=3)
    lake = Lake(str(tmp_path), verdict_of())
    look, other = Closer(1_000_000_000, 2_000_000_000), Closer(2_000_000_000, 2_100_000_000)
    assert look.width_ns == 20_000_000
    assert look_closer(lake, [look, other])
    assert (
        look.accepted == {0: 1, 4: 1} and look.others == {5: 1, 49: 1} and other.accepted == {0: 1}
    )
    assert not look_closer(lake, []) and not look_closer(
        Lake(str(tmp_path), verdict_of() | {"run": "s"}), [look]
    )


def test_a_long_table_is_cut_and_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qpidha.pipeline.report.tables.MOST_ROWS", 10)
    monkeypatch.setattr(Lake.rows, "__defaults__", (10,))
    faults = [
        {"op_id": number, "kind": "kill", "target": "b", "start_ns": number, "stop_ns": None}
        for number in range(25)
    ]
    tables = read(tmp_path, 0, SECOND, faults=faults)
    assert len(tables.faults) == 10 and tables.cut == {"faults": 25}
