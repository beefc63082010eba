"""Pictures of a report: lanes, bars and labels that do not meet, whatever the run, and names that
stay names.
"""

from __future__ import annotations

import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from qpidha.bench.timeline import Timeline, svg
from qpidha.pipeline.colours import LIGHT, STATES
from qpidha.pipeline.events import ROLES
from qpidha.pipeline.report.charts import charts
from qpidha.pipeline.report.lanes import (
    CELLS,
    MOST_LANES,
    MOST_NAMED,
    Spot,
    lanes_of,
    merged,
    placed,
)
from qpidha.pipeline.report.sheets import Chart, Sheet, drawing, first_fit, told_apart
from qpidha.pipeline.report.tables import Axis, Lake, RunTables
from tests.pipeline.report.lakes import put

SECOND = 1_000_000_000


def role(node: str, begin: float, end: float, what: str, epoch: int = 1) -> dict[str, Any]:
    return {
        "node": node,
        "boot": "0",
        "role": what,
        "epoch": epoch,
        "from_ns": round(begin * SECOND),
        "to_ns": round(end * SECOND),
    }


def change(epoch: int, since: float, **times: float | None) -> dict[str, Any]:
    names = ("fault", "detected", "asked", "promoted", "active", "accepted", "served")
    found: dict[str, Any] = {f"{name}_ns": None for name in names} | {
        f"{name}_ns": None if at is None else round(at * SECOND) for name, at in times.items()
    }
    known = [at for at in found.values() if at is not None]
    since_ns = round(since * SECOND)
    return found | {
        "epoch": epoch,
        "old": None,
        "new": "b",
        "first": 0,
        "fault_op": None,
        "since_ns": since_ns,
        "total_ns": max(known) - since_ns,
    }


def drawn(folder: Path, tables: RunTables) -> dict[str, Chart]:
    return {chart.name: chart for chart in charts(Lake(str(folder), {"run": "r"}), tables)}


def tables_of(seconds: float, **more: Any) -> RunTables:
    made = {
        "offset_ns": 0,
        "epsilon_ns": 0,
        "roles": [],
        "faults": [],
        "failovers": [],
        "windows": [],
        "around": {},
    }
    return RunTables(axis=Axis(0, round(seconds * SECOND)), **(made | more))


def test_lanes_are_whole_and_never_overlap() -> None:
    choices = random.Random(5)
    for _ in range(20):
        at, rows = 0.0, []
        for _ in range(choices.randrange(1, 4000)):
            length = choices.choice((0.0, 0.00001, 0.01, 1.0))
            rows.append(role("b", at, at + length, choices.choice(list(ROLES))))
            at += length + choices.choice((0.0, 0.0, 0.5))
        end = round(max(at, 1.0) * SECOND)
        lanes, names = lanes_of(rows, 0, end)
        assert names == ["b"] and len(lanes["b"]) <= 2 * CELLS
        assert all(begin >= before for (_, before, _), (begin, _, _) in pairwise(lanes["b"]))
        assert all(begin < stop for begin, stop, _ in lanes["b"])
        long = {row["role"] for row in rows if row["to_ns"] - row["from_ns"] > 3 * end // CELLS}
        assert long <= {what for _, _, what in lanes["b"]}


def test_a_short_reign_can_be_seen_and_a_short_wait_cannot() -> None:
    rows = [
        role("b", 0, 50, "ready"),
        role("b", 50, 50.00001, "active"),
        role("b", 50.00001, 50.00002, "joining"),
        role("b", 51, 100, "ready"),
    ]
    lanes, _ = lanes_of(rows, 0, 100 * SECOND)
    assert [what for _, _, what in lanes["b"]] == ["ready", "active", "ready"]
    _, begin, end = 0, lanes["b"][1][0], lanes["b"][1][1]
    assert end - begin == 100 * SECOND // CELLS


def test_only_so_many_lanes_are_drawn_and_the_caption_says_so(tmp_path: Path) -> None:
    rows = [role(f"b{number:02}", 0, 10, "ready") for number in range(MOST_LANES + 5)]
    chart = drawn(tmp_path, tables_of(10, roles=rows))["timeline"]
    assert f"{MOST_LANES} of {MOST_LANES + 5} brokers are drawn." in chart.caption
    assert ">b11<" in chart.svg and ">b12<" not in chart.svg


def test_spans_in_a_row_do_not_meet() -> None:
    choices = random.Random(1)
    spans = sorted(
        (begin, begin + choices.random() * 3)
        for begin in (choices.random() * 100 for _ in range(60))
    )
    rows = first_fit(spans, 1000)
    for row in set(rows):
        mine = [span for span, at in zip(spans, rows, strict=True) if at == row]
        assert all(end <= begin for (_, end), (begin, _) in pairwise(mine))
    assert max(first_fit(spans * 3, 4)) == 3


def test_names_of_faults_stay_on_the_picture_and_off_each_other() -> None:
    spots = placed(
        [Spot(begin, begin + 0.5, "partition b2") for begin in (0.0, 1.0, 2.0, 30.0, 59.0)], 0, 60
    )
    assert [spot.side for spot in spots] == ["right"] * 4 + ["left"]
    assert [spot.row for spot in spots] == [0, 1, 2, 0, 0]
    (wide,) = placed([Spot(0, 59, "kill b1")], 0, 60)
    assert wide.side == "in"


def test_times_that_touch_are_one() -> None:
    assert merged([(3, 4), (0, 1), (1, 2), (3.5, 9)], 0) == [(0, 2), (3, 9)]
    assert merged([(0, 1), (1.05, 2)], 0.1) == [(0, 2)]


def test_a_closer_look_names_the_phases_that_belong_to_the_failover(tmp_path: Path) -> None:
    rows = [
        change(
            2, 5, fault=5, detected=1, asked=5.5, promoted=6, active=6.1, accepted=None, served=6.2
        )
    ]
    found = drawn(tmp_path, tables_of(20, failovers=rows, roles=[role("b", 0, 20, "active")]))
    chart = found["failover-2"]
    assert chart.title == "Failover to b, epoch 2: 1.20 s"
    shown = re.findall(r">(fault|detected|asked|promoted|active|accepted|served)</text>", chart.svg)
    assert set(shown) == {"fault", "asked", "promoted", "active", "served"}, (
        "detected long before, accepted by nobody"
    )
    assert "milliseconds since the fault" in chart.svg and "enqueues" not in chart.svg, (
        "there is no table of operations"
    )


def test_enqueues_are_in_a_closer_look_if_a_check_kept_them(tmp_path: Path) -> None:
    rows = [
        {
            "op_id": number,
            "queue": "q",
            "op": 1,
            "process": 1,
            "begin_at": 0,
            "end_at": 5 * SECOND + number,
            "outcome": 1 + number % 2,
            "is_paired": True,
        }
        for number in range(9)
    ]
    put(tmp_path, "r", "ops", rows)
    found = drawn(tmp_path, tables_of(20, failovers=[change(2, 5, detected=5, served=6)]))
    assert (
        "since the primary was missed" in found["failover-2"].svg
        and ">failed or not known<" in found["failover-2"].svg
    )
    assert "in steps of 50 ms" in found["failover-2"].caption


def test_the_longest_failovers_are_drawn_in_their_order(tmp_path: Path) -> None:
    rows = [
        change(epoch, epoch, promoted=epoch, served=epoch + epoch % 7 / 10 + 0.01)
        for epoch in range(1, 20)
    ]
    found = [
        name
        for name in drawn(tmp_path, tables_of(30, failovers=rows))
        if name.startswith("failover-")
    ]
    assert found == [
        "failover-4",
        "failover-5",
        "failover-6",
        "failover-12",
        "failover-13",
        "failover-19",
    ]


NAMES = ("a$x^{$b", "_hidden", "<b>&amp;", "ü\u4e2d", "x" * 300, "\x00\x1b")


def test_any_name_is_a_name_in_a_picture(tmp_path: Path) -> None:
    for name in NAMES:
        fault = {"op_id": 1, "kind": name, "target": name, "start_ns": 1, "stop_ns": None}
        curves = {
            ("replication", name, each): {0: 5000}
            for each in ("p50_us", "p95_us", "p99_us", "max_us")
        }
        tables = tables_of(
            3,
            roles=[role(name, 0, 3, "ready")],
            faults=[fault],
            backlog={name: {0: 3}},
            latency=curves,
        )
        tables.lagging = {"replication": [name]}
        for chart in drawn(tmp_path, tables).values():
            ElementTree.fromstring(chart.svg)
    assert ">\u2060_hidden<" in legend("_hidden") and ">a$x^{$b<" in legend("a$x^{$b"), (
        "neither left out nor read as mathematics"
    )


def legend(name: str) -> str:
    with drawing("x"):
        sheet = Sheet("x", [1.0], 0, 1)
        sheet.legend(sheet.panels[0], sheet.panels[0].plot([0, 1], [0, 1]), [name])
        return sheet.svg()


def test_a_picture_is_the_same_each_time(tmp_path: Path) -> None:
    tables = tables_of(10, roles=[role("b", 0, 10, "active")], traffic={"enqueue_ok": {1: 5, 2: 7}})
    one, two = (drawn(tmp_path, tables)["timeline"] for _ in range(2))
    assert one == two


def test_names_share_no_long_beginning() -> None:
    assert told_apart(["verify-20260101-000000.q0", "verify-20260101-000000.q1"]) == ["q0", "q1"]
    assert told_apart(["broker-1", "broker-2"]) == ["broker-1", "broker-2"]
    assert told_apart(["a-long-name-of-one-queue-only"]) == ["a-long-name-of-one-queue-only"]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_role_has_a_colour_that_letters_can_be_read_on() -> None:
    assert set(ROLES) <= set(STATES)
    for state, colour in STATES.items():
        ink = luminance("#222222") if state in LIGHT else 1.0
        light, dark = sorted((ink, luminance(colour)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3.0, state
    picture = svg(Timeline("t", 10.0, lanes={"b1": [(0.0, "active"), (5.0, "ready")]}))
    assert STATES["active"] in picture and STATES["ready"] in picture, (
        "the demo has the same colours"
    )


def test_what_is_too_many_to_be_named_is_drawn_without_names(tmp_path: Path) -> None:
    faults = [
        {
            "op_id": number,
            "kind": "kill",
            "target": "b1",
            "start_ns": number * SECOND,
            "stop_ns": number * SECOND + SECOND // 2,
        }
        for number in range(MOST_NAMED + 1)
    ]
    changes = [
        change(epoch, epoch, promoted=epoch, served=epoch + 0.1) for epoch in range(MOST_NAMED + 1)
    ]
    few = drawn(tmp_path, tables_of(100, faults=faults[1:], failovers=changes[1:]))["timeline"]
    many = drawn(tmp_path, tables_of(100, faults=faults, failovers=changes))["timeline"]
    assert few.svg.count(">kill b1<") == MOST_NAMED and ">epoch 9<" in few.svg
    assert ">kill b1<" not in many.svg and ">epoch 9<" not in many.svg
    assert f"The {MOST_NAMED + 1} promotions are too many to be drawn." in many.caption
    far = [
        fault | {"start_ns": 10_000 * number, "stop_ns": 10_000 * number + 5}
        for number, fault in enumerate(faults * 50)
    ]
    assert len(drawn(tmp_path, tables_of(100, faults=far))["timeline"].svg) < len(many.svg), (
        "what cannot be told apart is one bar"
    )
