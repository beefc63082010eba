"""Checks of brokers against the long way round: each position looked at alone, each pair of
primaries compared.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from qpidha.pipeline.events import UNBOUNDED
from qpidha.pipeline.oracle.engine import check
from qpidha.pipeline.segments import Inputs
from tests.pipeline.builders import Story

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insync"), st.sampled_from(["a", "a b", "a b c", "a c"])),
        st.tuples(
            st.just("rep"), st.tuples(st.sampled_from("bc"), st.integers(1, 8), st.integers(0, 3))
        ),
        st.tuples(st.just("conf"), st.tuples(st.integers(1, 8), st.integers(0, 3))),
    ),
    max_size=14,
)


def journal(steps: list[tuple[str, Any]]) -> Story:
    story = Story()
    for what, value in steps:
        if what == "insync":
            story.add("a", "insync", e=1, set=value)
        elif what == "rep":
            story.add("a", "rep", x=value[0], e=1, p=value[1], hi=value[1] + value[2])
        else:
            story.add("a", "conf", e=1, p=value[0], hi=value[0] + value[1])
    return story


def lacking(steps: list[tuple[str, Any]], now: int, position: int) -> list[str] | None:
    """Which members of the set of this moment had not confirmed a position; None: no set was
    named.
    """
    sets = [value for what, value in steps[:now] if what == "insync"]
    if not sets:
        return None
    return [
        member
        for member in sets[-1].split()
        if member != "a"
        and not any(
            what == "rep" and value[0] == member and sum(value[1:]) >= position
            for what, value in steps[:now]
        )
    ]


@given(STEPS)
def test_each_acceptance_was_confirmed_by_each_member(steps: list[tuple[str, Any]]) -> None:
    judged = [
        (lacking(steps, now, sum(value)), value[1] + 1)
        for now, (what, value) in enumerate(steps)
        if what == "conf"
    ]
    unsafe = sum(number for names, number in judged if names)
    unjudged = sum(number for names, number in judged if names is None)
    check = journal(steps).judged()["accepted-before-safe"]
    assert (check.counts["unsafe"], check.counts["unjudged"]) == (unsafe, unjudged)
    assert check.valid is (False if unsafe else None if unjudged or not judged else True)
    assert [row["lacking"] for row in check.offenders.get("unsafe", [])] == [
        " ".join(names) for names, _ in judged if names
    ]


@given(STEPS, st.integers(1, 8), st.integers(0, 14))
def test_a_client_hears_of_acceptance_after_all_have_the_message(
    steps: list[tuple[str, Any]], position: int, told: int
) -> None:
    steps = [("insync", "a b c"), *(step for step in steps if step[0] != "conf")]
    story = journal(steps)
    times = [event["m"] for event in story.events]
    story.add("a", "enq", q="q", e=1, p=position, i="m")
    at = times[min(told, len(times) - 1)] + 500
    story.op(
        "enqueue",
        "ok",
        "q",
        story.op("enqueue", "invoke", at=1, w=1, u=1, i="m"),
        at=at,
        w=1,
        u=1,
        i="m",
    )
    safe_once = any(
        lacking(steps, now, position) == []
        for now in range(1, 1 + sum(time <= at for time in times))
    )
    counts = story.judged()["accepted-before-safe"].counts
    assert (counts["client_accepted"], counts["client_unsafe"]) == (1, int(not safe_once))


def test_a_message_that_was_consumed_needs_no_copy_from_then_on() -> None:
    steps: list[tuple[str, Any]] = [("insync", "a b c")]
    for name, consumed, told in (("early", 2000, 2500), ("late", 2000, 1500), ("kept", 0, 2500)):
        story = journal(steps)
        story.add("a", "enq", 1000, q="q", e=1, p=1, i=name)
        if consumed:
            story.add("a", "deq", consumed, q="q", e=1, p=1, i=name, x="accepted")
        story.op(
            "enqueue",
            "ok",
            "q",
            story.op("enqueue", "invoke", at=1, w=1, u=1, i=name),
            at=told,
            w=1,
            u=1,
            i=name,
        )
        assert story.judged()["accepted-before-safe"].counts["client_unsafe"] == (
            name != "early"
        ), name


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 4), st.sampled_from(["active", "ready", "conf"])
        ),
        max_size=10,
    )
)
def test_an_epoch_has_one_primary(steps: list[tuple[str, int, str]]) -> None:
    story = Story()
    for node, epoch, what in steps:
        if what == "conf":
            story.add(node, "conf", e=epoch, p=1)
        else:
            story.add(node, "role", r=what, e=epoch)
    acted = [(node, epoch) for node, epoch, what in steps if what != "ready" and epoch > 0]
    shared = {
        epoch
        for node, epoch in acted
        if any(other != node and their == epoch for other, their in acted)
    }
    active: dict[str, int] = {}
    spans: list[tuple[int, int, str]] = []
    for at, (node, _, what) in enumerate(steps):
        if what != "conf" and node in active:
            spans.append((active.pop(node), at, node))
        if what == "active":
            active[node] = at
    for node, begin in active.items():
        spans.append((begin, max(at for at, step in enumerate(steps) if step[0] == node), node))
    overlaps = sum(any(one[0] < two[0] < one[1] for one in spans) for two in spans)
    counts = story.judged()["primaries"].counts
    assert (counts["epochs"], counts["shared_epochs"], counts["overlaps"]) == (
        len({epoch for _, epoch in acted}),
        len(shared),
        overlaps,
    )


def test_a_broker_without_a_cluster_may_be_started_again() -> None:
    story = Story()
    story.add("a", "role", r="standalone", e=0)
    story.add("a", "conf", e=0, p=1)
    story.add("a", "role", r="standalone", e=0)["b"] = "1"
    story.add("a", "conf", e=0, p=1)["b"] = "1"
    check = story.judged()["primaries"]
    assert not check.applies and check.counts == dict.fromkeys(
        ("epochs", "shared_epochs", "epoch_regressions", "overlaps"), 0
    )


def test_two_starts_of_a_broker_are_two_primaries_and_nobody_goes_back() -> None:
    story = Story()
    story.add("a", "conf", e=3, p=1)
    story.add("a", "conf", e=3, p=2)["b"] = "1"
    story.add("a", "epoch", e=4)
    story.add("a", "epoch", e=3)
    check = story.judged()["primaries"]
    assert (check.counts["shared_epochs"], check.counts["epoch_regressions"], check.valid) == (
        1,
        1,
        False,
    )
    assert check.offenders["shared_epochs"] == [{"epoch": 3, "writers": "a/0 a/1"}]


def test_a_failover_is_told_phase_by_phase() -> None:
    story = Story()
    story.add("a", "role", 100, r="recovering", e=1)
    story.add("a", "role", 200, r="active", e=1)
    fault = story.fault(1000, 9000)
    story.add("b", "failover", 1300, f="detected", x="a", e=1)
    story.add("c", "failover", 1400, f="detected", x="a", e=1)
    story.add("b", "promotion", 1500, f="asked")
    story.add("b", "role", 1600, r="recovering", e=2)
    story.add("b", "role", 1700, r="active", e=2)
    story.add("b", "conf", 1800, e=2, p=1)
    for begin, end in ((900, 1900), (1100, 2000)):
        story.op(
            "enqueue",
            "ok",
            "q",
            story.op("enqueue", "invoke", at=begin, w=1, u=begin),
            at=end,
            w=1,
            u=begin,
        )
    check = story.judged()["failover"]
    _, row = check.table
    assert row == {
        "epoch": 2,
        "old": "a",
        "new": "b",
        "fault_op": fault,
        "since_ns": 1000,
        "fault_ns": 1000,
        "detected_ns": 1300,
        "asked_ns": 1500,
        "promoted_ns": 1600,
        "active_ns": 1700,
        "accepted_ns": 1800,
        "served_ns": 2000,
        "total_ns": 1000,
        "first": 0,
    }
    assert check.counts == {"epochs": 2, "failovers": 1, "longest_ns": 1000}


def test_a_broker_goes_back_by_its_own_numbers_or_if_another_start_was_certainly_before() -> None:
    story = Story()
    story.add("a", "epoch", 5_000_000, e=4)
    story.add("a", "epoch", 4_000_000, e=5)  # its wall clock was set back, it was not
    story.add("a", "epoch", 7_000_000, e=3)["b"] = "1"
    story.add("a", "conf", e=5, p=1)
    found = [
        check(story.events, inputs=Inputs(one_clock=False, clock_error_ns=error))[
            "primaries"
        ].counts["epoch_regressions"]
        for error in (0, 2_500_000, 3_000_000, UNBOUNDED)
    ]
    assert found == [1, 1, 0, 0]
