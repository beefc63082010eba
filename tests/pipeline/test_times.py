"""The mutex against a search for a linearization, windows and percentiles against the long way
round.
"""

from __future__ import annotations

import math
import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidha.pipeline.events import FOREVER
from qpidha.pipeline.oracle.engine import check
from qpidha.pipeline.oracle.facts import Interval
from qpidha.pipeline.oracle.times import cut, overlapping, percentile, unavailable
from qpidha.pipeline.segments import Inputs
from tests.pipeline.builders import Story

Op = tuple[str, int, int, bool]
"""Acquire or release, invoked, completed (or FOREVER), and whether it must take effect."""


def is_linearizable(ops: list[Op]) -> bool:
    """Search for an order of all that must happen, and of some of what may, in which a lock is
    never taken twice.
    """

    @cache
    def search(done: frozenset[int], held: bool) -> bool:
        left = [index for index in range(len(ops)) if index not in done]
        if not any(ops[index][3] for index in left):
            return True
        horizon = min(ops[index][2] for index in left if ops[index][3])
        for index in left:
            what, invoked, _, _ = ops[index]
            if invoked > horizon or held is (what == "acquire"):
                continue
            if search(done | {index}, what == "acquire"):
                return True
        return False

    return search(frozenset(), False)


def lock_history(choices: random.Random, steps: int) -> tuple[Story, list[Op]]:
    """Let up to four processes take and release a lock as they like, with all outcomes; some never
    hear of theirs.
    """
    story = Story()
    ops: list[Op] = []
    processes = dict.fromkeys(range(4), "idle")
    pending: dict[int, tuple[str, int, int]] = {}
    retired = 4
    for _ in range(steps):
        number = choices.choice(list(processes))
        at = story.at + 1000
        if number in pending:
            what, op, invoked = pending.pop(number)
            outcome = choices.choices(["ok", "fail", "info"], [6, 2, 1])[0]
            story.op(what, outcome, "lock", op, number)
            if outcome != "fail":
                ops.append((what, invoked, at if outcome == "ok" else FOREVER, outcome == "ok"))
            if outcome == "ok":
                processes[number] = "holds" if what == "acquire" else "idle"
            elif outcome == "info":
                del processes[number]
                processes[retired] = "idle"
                retired += 1
        else:
            what = "acquire" if processes[number] == "idle" else "release"
            pending[number] = (what, story.op(what, "invoke", "lock", c=number), at)
    ops += [(what, invoked, FOREVER, False) for what, _, invoked in pending.values()]
    return story, ops


def test_a_lock_history_is_linearizable_exactly_if_its_certain_holds_are_disjoint() -> None:
    choices = random.Random(5)
    verdicts = [0, 0]
    for _ in range(10_000):
        story, ops = lock_history(choices, choices.randrange(4, 22))
        overlaps = story.judged()["mutex"].counts["overlaps"]
        assert is_linearizable(ops) == (overlaps == 0), ops
        verdicts[overlaps > 0] += 1
    assert min(verdicts) > 1000


def acquire(story: Story, process: int, token: tuple[int, int]) -> None:
    o = story.op("acquire", "invoke", "lock", c=process)
    story.op("acquire", "ok", "lock", o, process, e=token[0], p=token[1])


def write(story: Story, process: int, token: tuple[int, int], outcome: str = "ok") -> None:
    o = story.op("write", "invoke", "lock", c=process, e=token[0], p=token[1])
    story.op("write", outcome, "lock", o, process, e=token[0], p=token[1])


@pytest.mark.parametrize(("outcome", "valid"), [("fail", True), ("ok", False)])
def test_a_lock_is_safe_if_what_it_protects_refuses_a_stale_token(
    outcome: str, valid: bool
) -> None:
    story = Story()
    acquire(story, 1, (1, 7))
    write(story, 1, (1, 7))
    acquire(story, 2, (2, 1))  # the first holder's session was lost, and it does not know
    write(story, 2, (2, 1))
    write(story, 2, (2, 1))
    write(story, 1, (1, 7), outcome)
    check = story.judged(mutex="report")["mutex"]
    assert check.valid is valid and check.counts["overlaps"] == 1
    names = ("tokens", "writes", "refused", "stale", "regressions")
    taken = outcome == "ok"
    assert [check.counts[name] for name in names] == [2, 3 + taken, 1 - taken, taken, 0]
    if taken:
        (row,) = check.offenders["stale"]
        assert (row["queue"], row["op"], row["other_op"]) == ("lock", 6, 4)
        assert not any("fencing" in reason for reason in check.reasons)


def test_a_write_beside_one_with_a_higher_token_may_have_come_before_it() -> None:
    story = Story()
    acquire(story, 1, (1, 1))
    acquire(story, 2, (1, 2))
    late = story.op("write", "invoke", "lock", c=1, e=1, p=1)
    write(story, 2, (1, 2))
    story.op("write", "ok", "lock", late, 1, e=1, p=1)
    assert story.judged(mutex="report")["mutex"].valid is True


@pytest.mark.parametrize(
    ("second", "regressions"), [((1, 6), 1), ((1, 5), 1), ((2, 1), 0), ((0, 9), 0)]
)
def test_tokens_of_an_epoch_rise(second: tuple[int, int], regressions: int) -> None:
    story = Story()
    acquire(story, 1, (1, 6))
    acquire(story, 2, second)
    check = story.judged(mutex="report")["mutex"]
    assert check.counts["regressions"] == regressions and check.valid is not bool(regressions)


def test_a_lease_that_its_holder_knew_to_be_lost_excuses_an_overlap() -> None:
    story = Story()
    for process, knows in ((1, True), (2, False), (3, False)):
        story.op("acquire", "ok", "lock", story.op("acquire", "invoke", "lock", c=process), process)
        if knows:
            story.op("lost", "info", "lock", c=process)
    check = story.judged()["mutex"]
    assert (check.counts["overlaps"], check.counts["lease_overlaps"], check.valid) == (2, 1, False)
    assert any("fencing" in reason for reason in check.reasons)
    assert story.judged(mutex="report")["mutex"].valid is True
    assert story.judged(mutex="lease")["mutex"].valid is False
    assert not story.judged()["total-queue"].applies, "a lock is no queue of messages"


SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair), 0)),
    max_size=8,
)


@given(SPANS, st.integers(0, 3))
def test_spans_overlap_if_one_before_has_not_ended(
    spans: list[tuple[int, int, int]], epsilon: int
) -> None:
    ordered = sorted(spans)
    expected = [
        span
        for index, span in enumerate(ordered)
        if span[1] - span[0] >= epsilon
        and any(before[1] > span[0] + epsilon for before in ordered[:index])
    ]
    assert [span for span, _ in overlapping(spans, epsilon)] == expected


def slowly(intervals: list[Interval], run_end: int, threshold: int) -> list[tuple[int, int]]:
    """Find windows by the definition: each pause, and the least begin of all that were waiting
    then.
    """
    points = sorted(
        [min(begin for begin, _, _ in intervals), run_end, *(end for _, end, ok in intervals if ok)]
    )
    found = []
    for g0, g1 in zip(points, points[1:], strict=False):
        waiting = [begin for begin, end, _ in intervals if end > g0]
        if g1 - g0 > threshold and waiting and g1 - max(g0, min(waiting)) > threshold:
            found.append((max(g0, min(waiting)), g1))
    return found


INTERVALS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 30), st.sampled_from(["ok", "fail", "never"])).map(
        lambda each: (
            each[0],
            FOREVER if each[2] == "never" else each[0] + each[1],
            each[2] == "ok",
        )
    ),
    min_size=1,
    max_size=8,
)


@given(INTERVALS, st.integers(0, 10), st.integers(0, 20))
def test_windows_are_pauses_in_which_somebody_waited(
    intervals: list[Interval], threshold: int, rest: int
) -> None:
    run_end = (
        max(
            [begin for begin, _, _ in intervals]
            + [end for _, end, _ in intervals if end != FOREVER]
        )
        + rest
    )
    assert [window[:2] for window in unavailable(intervals, run_end, threshold)] == slowly(
        intervals, run_end, threshold
    )


def test_an_outage_is_found_with_its_cause_and_its_end() -> None:
    story = Story()
    second = 10**9
    for tenth in range(10, 20):
        story.at = tenth * second // 10
        story.send(tenth)
        story.take(tenth)
    fault = story.fault(2 * second, 2 * second + 1000)
    o = story.op("enqueue", "invoke", at=2 * second + 100, w=1, u=50)
    story.op("enqueue", "ok", "q", o, at=5 * second, w=1, u=50)
    story.take(50)
    story.drain()
    check = story.judged()["availability"]
    (window,) = (row for row in check.table if row["what"] == "window")
    assert (
        window["fault_op"] == fault
        and window["service"] == "enqueue"
        and window["length_ns"] == 3 * second - 100
    )
    (rto,) = (row for row in check.table if row["what"] == "rto")
    assert rto["rto_ns"] == 3 * second and check.valid is True
    assert story.judged(max_unavailable_ns=2 * second)["availability"].valid is False
    idle = Story()
    idle.send(1)
    idle.at = 50 * second
    idle.send(2)
    idle.take(1)
    assert [row["service"] for row in idle.judged()["availability"].offenders["windows"]] == [
        "delivery"
    ], "nobody wanted to send"


def test_with_several_clocks_only_what_is_certain_counts() -> None:
    story = Story()
    story.send(1)
    story.ack(1)
    story.take(1)
    story.drain()
    verdicts = [
        check(story.events, inputs=Inputs(one_clock=False, clock_error_ns=error))
        for error in (0, 10**6)
    ]
    assert [verdict["total-queue"].counts["resurrected"] for verdict in verdicts] == [1, 0]


def test_latency_counts_from_the_intended_begin() -> None:
    story = Story()
    o = story.op("enqueue", "invoke", at=9_000_000, j=2_000_000, w=1, u=1)
    story.op("enqueue", "ok", "q", o, at=10_000_000, w=1, u=1)
    (row,) = story.judged()["latency"].table
    assert (row["what"], row["n"], row["p50_us"], row["max_us"]) == ("enqueue", 1, 8000, 8000)


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=40), st.sampled_from([50, 95, 99]))
def test_percentiles_are_nearest_rank_of_three_digits(values: list[int], percent: int) -> None:
    cuts = sorted(map(cut, values))
    for value, short in zip(sorted(values), cuts, strict=True):
        digits = str(value // 1000)
        assert str(short) == digits[:3] + "0" * (len(digits) - 3)
    rank = math.ceil(percent * len(values) / 100)
    assert percentile(cuts, percent) == cuts[rank - 1]


@settings(max_examples=50)
@given(
    st.lists(st.sampled_from(["send", "take", "pause"]), max_size=20),
    st.randoms(use_true_random=False),
)
def test_the_order_of_events_in_files_changes_nothing(
    steps: list[str], choices: random.Random
) -> None:
    story = Story()
    for u, step in enumerate(steps, start=1):
        if step == "send":
            story.send(u)
        elif step == "take":
            story.take(choices.randrange(1, u + 1))
        else:
            story.at += 3 * 10**9
    before = story.judged().as_json()
    choices.shuffle(story.events)
    assert story.judged().as_json() == before


def test_an_operation_is_of_the_queue_that_its_invocation_names() -> None:
    story = Story()
    number = story.next_op()
    story.op("enqueue", "ok", "other", number, at=2000)
    story.op("enqueue", "invoke", "q", number, at=1000)
    table = story.judged()["availability"].table
    assert [row["queue"] for row in table if row["what"] == "share"] == ["q"]
