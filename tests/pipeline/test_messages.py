"""Checks of messages against brute force: multisets as Jepsen defines them, and a look at every
pair for the order.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.pipeline.checks import BROKEN
from tests.pipeline.builders import Story

VALUES = st.integers(1, 4)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["ok", "fail", "info", "invoke"]), VALUES),
    st.tuples(st.just("take"), VALUES),
    st.tuples(st.just("ack"), VALUES),
)


def told(steps: list[tuple[str, int]], *, drained: bool) -> Story:
    story = Story()
    for what, u in steps:
        if what == "take":
            story.take(u)
        elif what == "ack":
            story.ack(u)
        else:
            story.send(u, what)
    if drained:
        story.drain()
    return story


@given(st.lists(STEPS, max_size=14), st.booleans())
def test_counting_is_that_of_multisets(steps: list[tuple[str, int]], drained: bool) -> None:
    counts = told(steps, drained=drained).judged()["total-queue"].counts
    attempts = Counter(u for what, u in steps if what not in ("take", "ack"))
    accepted = Counter(u for what, u in steps if what == "ok")
    taken = Counter(u for what, u in steps if what == "take")
    refused = Counter(u for what, u in steps if what == "fail")
    known = Counter({u: number for u, number in taken.items() if u in attempts})
    ok = known & attempts
    assert counts["ok"] == ok.total()
    assert counts["unexpected"] == (taken - known).total()
    assert counts["duplicated"] == (known - attempts).total()
    assert counts["lost" if drained else "missing"] == (accepted - taken).total()
    assert counts["missing" if drained else "lost"] == 0
    assert counts["recovered"] == (ok - accepted).total()
    assert counts["phantom"] == sum(refused[u] >= attempts[u] for u in known)
    assert (counts["attempts"], counts["acknowledged"], counts["deliveries"]) == (
        attempts.total(),
        accepted.total(),
        taken.total(),
    )


@given(st.lists(STEPS, max_size=14))
def test_resurrection_is_a_delivery_after_the_acknowledgement(steps: list[tuple[str, int]]) -> None:
    found = set()
    for u in {u for _, u in steps}:
        acked = [at for at, step in enumerate(steps) if step == ("ack", u)]
        taken = [at for at, step in enumerate(steps) if step == ("take", u)]
        sent = sum(1 for what, value in steps if value == u and what not in ("take", "ack"))
        if sent == 1 and any(a < t for a in acked for t in taken):
            found.add(u)
    check = told(steps, drained=True).judged(strict_ack=True)["total-queue"]
    assert {row["seq"] for row in check.offenders.get("resurrected", [])} == found
    assert check.valid is not True or not found


@given(
    st.lists(
        st.tuples(VALUES, st.sampled_from([0, 1, None]), st.sampled_from([0, 1, None])), max_size=8
    ),
    st.integers(1, 2),
)
def test_a_delivery_that_claims_to_be_the_first_needs_a_copy_of_its_own(
    taken: list[tuple[int, Any, Any]], copies: int
) -> None:
    story = Story()
    for u in range(1, 5):
        for _ in range(copies):
            story.send(u)
    for u, d, fa in taken:
        story.take(u, d=d, fa=fa)
    claims = Counter(u for u, d, fa in taken if d == 0 and fa != 0)
    assert story.judged()["redelivery"].counts["unflagged"] == sum(
        max(number - copies, 0) for number in claims.values()
    )


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 6), st.booleans(), st.booleans()), max_size=12
    ),
    st.booleans(),
)
def test_order_is_that_of_every_pair(
    deliveries: list[tuple[int, int, bool, bool]], strict: bool
) -> None:
    story = Story()
    for w in (1, 2, 3):
        for u in range(1, 7):
            story.send(u, w=w)
    first: dict[tuple[int, int], tuple[int, bool, bool]] = {}
    times: Counter[tuple[int, int]] = Counter()
    flags: set[tuple[int, int]] = set()
    for w, u, flagged, faulty in deliveries:
        before = story.at
        if faulty:
            story.fault(before + 1, before + 5000)
        story.at = before
        story.take(u, w=w, d=int(flagged))
        story.at = before + 6000
        first.setdefault((w, u), (len(first), flagged, faulty))
        times[w, u] += 1
        if flagged:
            flags.add((w, u))
    places = {key: place for key, (place, _, _) in first.items()}
    late = {
        key
        for key in places
        if any(w == key[0] and u > key[1] and places[w, u] < places[key] for w, u in places)
    }
    counts = story.judged(strict_order=strict)["order"].counts
    again = {key for key in late if times[key] > 1 or key in flags}
    in_fault = {key for key in late - again if first[key][2]}
    assert counts["inversions"] == len(late)
    assert counts["violations"] == len(late) - (0 if strict else len(again) + len(in_fault))
    assert (counts["redelivered"], counts["in_fault"]) == (
        (0, 0) if strict else (len(again), len(in_fault))
    )


def test_competing_consumers_and_messages_sent_again_excuse_disorder() -> None:
    story = Story()
    for u in (1, 2, 3, 4):
        story.send(u)
    for u in (2, 1):
        story.take(u)
    for u in (4, 3):
        story.take(u, c=3_000_000)
    counts = story.judged()["order"].counts
    assert (counts["inversions"], counts["competing"], counts["violations"], counts["streams"]) == (
        2,
        2,
        0,
        2,
    )
    story = Story()
    story.send(1, "info")
    story.send(2)
    story.send(1)
    story.take(2)
    story.take(1)
    assert story.judged(strict_order=True)["order"].counts["resent"] == 1


def the_article() -> Story:
    """A history of the kind of Jepsen's RabbitMQ article: of 3,747 attempts 1,312 were acknowledged
    and lost.
    """
    story = Story()
    fates = ["ok"] * 2346 + ["recovered"] * 12 + ["lost"] * 1312 + ["gone"] * 77
    for u, fate in enumerate(fates, start=1):
        story.send(u, "ok" if fate in ("ok", "lost") else "info")
    for u, fate in enumerate(fates, start=1):
        if fate in ("ok", "recovered"):
            story.take(u)
    for u in (100_001, 100_002, 100_003):
        story.take(u)
    story.drain()
    return story


def test_the_verdict_of_the_article_is_reproduced() -> None:
    verdict = the_article().judged()
    check = verdict["total-queue"]
    counts = check.counts
    assert verdict.valid is False and verdict.exit_code == 1
    assert (
        counts["attempts"],
        counts["lost"],
        counts["unexpected"],
        counts["recovered"],
        counts["ok"],
    ) == (3747, 1312, 3, 12, 2358)
    shares = {row["what"]: row for row in check.table}
    assert (
        shares["lost"]["of_attempts"] == round(1312 / 3747, 6) == 0.350147
    )  # "35 %" is of attempts
    assert shares["lost"]["of_acknowledged"] == round(1312 / (2346 + 1312), 6)
    assert shares["unexpected"]["of_attempts"] == round(1 / 1249, 6)
    assert shares["ok"]["of_attempts"] == round(786 / 1249, 6)
    assert shares["recovered"]["of_attempts"] == round(4 / 1249, 6)
    assert (
        check.offenders["lost"][0]["seq"] == 2359
        and check.offenders["lost"][0]["enq_op"] is not None
    )


def test_one_delivery_less_is_exactly_one_lost() -> None:
    story = Story()
    for u in range(1, 30):
        story.send(u)
        story.take(u)
    story.drain()
    assert story.judged()["total-queue"].valid is True
    taken = [event for event in story.events if event["f"] == "dequeue" and event["y"] == "ok"]
    for event in taken:
        left = Story()
        left.events = [other for other in story.events if other is not event]
        check = left.judged()["total-queue"]
        assert check.counts["lost"] == 1 and check.valid is False
        assert check.as_json()["examples"][0]["seq"] == event["u"]
        assert check.reasons == [f"1 {BROKEN['lost']}"]


def test_without_acceptance_or_drain_nothing_is_shown() -> None:
    story = Story()
    story.send(1, "info")
    story.drain()
    assert story.judged()["total-queue"].valid is None
    story = Story()
    story.send(1)
    assert story.judged()["total-queue"].valid is None
    story.take(1)
    assert story.judged()["total-queue"].valid is True, "everything came, so nothing can be missing"
    story.take(1)
    assert story.judged()["total-queue"].valid is True
    assert story.judged(exactly_once=True)["total-queue"].valid is False


def test_a_queue_is_not_drained_by_a_drain_before_the_last_message() -> None:
    story = Story()
    story.drain()
    story.send(1)
    counts = story.judged()["total-queue"].counts
    assert (counts["lost"], counts["missing"], counts["undrained"]) == (0, 1, 1)


def test_values_of_others_are_counted_apart() -> None:
    story = Story()
    story.op("dequeue", "ok", d=0)
    counts = story.judged()["total-queue"].counts
    assert counts["foreign"] == 1 and counts["deliveries"] == 0


@pytest.mark.parametrize("run", ["", "r"])
def test_throughput_counts_and_finds_the_busiest_second(run: str) -> None:
    story = Story()
    for second, number in ((1, 3), (2, 5), (4, 1)):
        for index in range(number):
            story.at = second * 10**9 + index * 10_000
            story.send(second * 10 + index)
    (row,) = story.judged(run=run)["throughput"].table
    assert (row["enqueued"], row["enqueued_peak"], row["delivered"]) == (9, 5, 0)
