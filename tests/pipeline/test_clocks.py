"""Runs over several hosts: times of different clocks are compared as far as their errors are known,
and no further.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from qpidha.cli.main import main
from qpidha.pipeline.checks import Settings
from qpidha.pipeline.events import UNBOUNDED
from qpidha.pipeline.oracle.engine import check, check_paths
from qpidha.pipeline.segments import Inputs, Reader
from qpidha.pipeline.verdict import Verdict
from tests.pipeline.builders import Story
from tests.pipeline.clocks import BEHIND, KNOWN, MS, ONE, UNKNOWN, two_hosts, written

NO_BOUND = Inputs(one_clock=False, clock_error_ns=UNBOUNDED)


def judged(story: Story, error: int, **settings: Any) -> Verdict:
    return check(
        story.events, Settings(**settings), inputs=Inputs(one_clock=False, clock_error_ns=error)
    )


def test_one_clock_needs_no_bound(tmp_path: Path) -> None:
    verdict = check_paths([written(two_hosts(behind=0), tmp_path / "run", ONE)])
    assert verdict.exit_code == 0 and verdict.inputs["clock"] == {"one": True, "error_ns": 0}
    verdict = check_paths(
        [written(two_hosts(), tmp_path / "early", ONE)], Settings(clock_error_ns=10**9)
    )
    assert verdict["accepted-before-safe"].counts["client_unsafe"] == 20, (
        "on one clock 2 ms too early is too early"
    )


def test_a_valid_run_over_two_hosts_with_bounds_is_valid(tmp_path: Path) -> None:
    verdict = check_paths([written(two_hosts(), tmp_path / "run", KNOWN)])
    assert verdict.exit_code == 0 and verdict.inputs["clock"] == {
        "one": False,
        "error_ns": 2_100_000,
    }
    worse = check_paths([written(two_hosts(5 * BEHIND), tmp_path / "worse", KNOWN)])
    assert worse["accepted-before-safe"].counts["client_unsafe"] == 20 and worse.exit_code == 1


def test_without_a_bound_nothing_is_known_and_the_option_says_it(tmp_path: Path) -> None:
    folder = written(two_hosts(), tmp_path / "run", UNKNOWN)
    verdict = check_paths([folder])
    assert verdict.exit_code == 2 and [
        each.name for each in verdict.checks if each.applies and not each.valid
    ] == ["evidence"]
    (problem,) = verdict.inputs["problems"]
    assert (
        "2 clocks" in problem
        and "--clock-error" in problem
        and verdict.inputs["clock"]["error_ns"] is None
    )
    out = tmp_path / "out"
    words = [
        "pipeline",
        "check",
        str(folder),
        "--engine",
        "python",
        "--out",
        str(out),
        "--clock-error",
    ]
    assert main([*words, "0.003"]) == 0
    written_verdict = json.loads((out / "verdict.json").read_text())
    assert (
        written_verdict["settings"]["clock_error_ns"]
        == 3_000_000
        == written_verdict["inputs"]["clock"]["error_ns"]
    )
    assert main([*words, "0"]) == 1, "who says that there is no error is believed"
    assert main([*words, "-1"]) == 3 and main([*words, "nan"]) == 3


@pytest.mark.parametrize(
    ("heads", "error"),
    [
        ([("x", 5), ("y", 7), ("z", 3)], 12_000),
        ([("x", 5), ("x", 9), ("y", 1)], 10_000),
        ([("x", 5), ("y", 7), ("x", 0)], UNBOUNDED),
        ([("x", 5), ("y", -7)], UNBOUNDED),
        ([("x", 5), ("x", 0)], 0),
        ([("x", 2**63 - 1), ("y", 2**63 - 1)], UNBOUNDED),
    ],
)
def test_the_bound_is_the_sum_of_the_two_largest(heads: list[tuple[str, int]], error: int) -> None:
    inputs = Inputs()
    inputs.compare(heads, None)
    assert inputs.clock_error_ns == error and bool(inputs.problems) == (
        error == UNBOUNDED and min(bound for _, bound in heads) <= 0
    )
    inputs = Inputs()
    inputs.compare(heads, 77)
    assert inputs.clock_error_ns == (0 if inputs.one_clock else 77) and not inputs.problems


def test_files_say_their_own_bounds(tmp_path: Path) -> None:
    folder = written(two_hosts(), tmp_path / "run", KNOWN)
    assert Reader([folder], clock_error_ns=5).inputs.clock_error_ns == 5
    assert Reader([folder]).inputs.clock_error_ns == 2_100_000


def test_a_queue_is_drained_if_the_drain_was_certainly_last() -> None:
    story = Story()
    story.send(1)
    story.at += 5 * MS
    story.drain()
    for error, found in ((0, (1, 0)), (4 * MS, (1, 0)), (6 * MS, (0, 1)), (UNBOUNDED, (0, 1))):
        verdict = judged(story, error)["total-queue"]
        assert (verdict.counts["lost"], verdict.counts["missing"]) == found and verdict.valid is (
            False if found[0] else None
        )
    empty = Story()
    empty.drain()
    assert judged(empty, UNBOUNDED)["total-queue"].counts["undrained"] == 0


def test_disorder_needs_certain_first_deliveries_and_no_fault_that_may_have_been_on() -> None:
    story = Story()
    for u in (1, 2):
        story.send(u)
    story.take(2)
    story.take(1)
    assert judged(story, UNBOUNDED)["order"].valid is False, "a client has one clock"
    story.fault(story.at + 8 * MS, story.at + 9 * MS)
    assert [
        judged(story, error)["order"].counts["in_fault"] for error in (0, 7 * MS, 9 * MS, UNBOUNDED)
    ] == [0, 0, 1, 1]
    again = Story()
    for u in (1, 2):
        again.send(u)
    again.take(2, at=10 * MS)
    again.take(1, at=11 * MS)
    again.take(2, at=15 * MS, c=3_000_000)
    counts = [judged(again, error)["order"].counts for error in (0, 4 * MS, 6 * MS, UNBOUNDED)]
    assert [(each["violations"], each["messages"]) for each in counts] == [
        (1, 2),
        (1, 2),
        (0, 1),
        (0, 1),
    ]


def test_holds_overlap_certainly_if_both_are_longer_than_the_error_or_never_ended() -> None:
    story = Story()
    for process, begin, end in ((1, 10, 30), (2, 20, 25)):
        o = story.op("acquire", "invoke", "lock", c=process, at=begin * MS - 1000)
        story.op("acquire", "ok", "lock", o, process, at=begin * MS)
        o = story.op("release", "invoke", "lock", c=process, at=end * MS)
        story.op("release", "ok", "lock", o, process, at=end * MS + 1000)
    found = [
        judged(story, error)["mutex"].counts["overlaps"]
        for error in (0, 5 * MS, 5 * MS + 1, 11 * MS, UNBOUNDED)
    ]
    assert found == [1, 1, 0, 0, 0]
    for process, begin in ((3, 100), (4, 110)):
        o = story.op("acquire", "invoke", "lock", c=process, at=begin * MS - 1000)
        story.op("acquire", "ok", "lock", o, process, at=begin * MS)
    assert judged(story, UNBOUNDED)["mutex"].counts["overlaps"] == 1, (
        "two that hold it to this day need no clock"
    )


def test_a_window_is_too_long_if_it_certainly_is() -> None:
    story = Story()
    story.send(1)
    o = story.op("enqueue", "invoke", w=1, u=2)
    story.op("enqueue", "ok", o=o, at=story.at + 4000 * MS, w=1, u=2)
    for error, valid in ((0, False), (900 * MS, False), (1100 * MS, True), (UNBOUNDED, True)):
        found = judged(story, error, max_unavailable_ns=2000 * MS)["availability"]
        assert found.valid is valid and found.counts["longest_ns"] > 3900 * MS


def test_what_never_happened_needs_no_clock() -> None:
    story = Story()
    story.add("b", "insync", e=1, set="b c")
    story.add("b", "enq", q="q", e=1, p=1, i="m")
    story.send(1, i="m")
    assert check(story.events, inputs=NO_BOUND)["accepted-before-safe"].counts["client_unsafe"] == 1


def test_no_shift_of_the_clients_clock_makes_a_valid_run_invalid(tmp_path: Path) -> None:
    for number, behind in enumerate(
        itertools.chain((-7200_000 * MS, 900 * MS), range(-50 * MS, 51 * MS, 10 * MS))
    ):
        folder = written(two_hosts(behind), tmp_path / str(number), UNKNOWN)
        verdict = check_paths([folder], Settings(strict_ack=True, max_unavailable_ns=1))
        assert [each.name for each in verdict.checks if each.valid is False] == [], behind
