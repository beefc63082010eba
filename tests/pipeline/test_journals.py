"""Which events of brokers belong to a run: those of its time, and how things stood when it
began.
"""

from __future__ import annotations

import pytest

from qpidha.model.duration import SECOND
from qpidha.pipeline.checks import MARGIN_NS
from qpidha.pipeline.events import UNBOUNDED, Event
from qpidha.pipeline.generate.histories import Plan, events
from qpidha.pipeline.oracle.engine import check
from qpidha.pipeline.segments import Inputs
from qpidha.pipeline.verdict import Verdict
from tests.pipeline.builders import Story

HOUR = 3600 * SECOND
PLANS = [
    Plan(messages=700, brokers=True, run="one", seed=1, plant={"unsafe": 2, "failover": 1}),
    Plan(messages=900, brokers=True, run="two", seed=2, begin_ns=HOUR, plant={"failover": 2}),
]
BROKERS = ("accepted-before-safe", "primaries", "latency", "failover")


def assert_alike(ours: Verdict, theirs: Verdict) -> None:
    for name in BROKERS:
        assert ours[name] == theirs[name], name


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.run)
def test_the_journals_of_another_run_change_nothing(plan: Plan) -> None:
    both = [event for each in PLANS for event in events(each)]
    story = Story(plan.run)
    story.events = both
    alone = check(events(plan))
    assert alone["accepted-before-safe"].counts["client_unsafe"] == plan.plant.get("unsafe", 0)
    assert alone["failover"].counts["failovers"] == plan.plant["failover"]
    assert_alike(story.judged(run=plan.run), alone)


def test_without_clients_all_journals_are_judged() -> None:
    journals = [
        [event for event in events(plan) if event["k"] not in ("op", "fault")] for plan in PLANS
    ]
    verdict = check([*journals[0], *journals[1]])
    assert verdict["primaries"].counts["shared_epochs"] == 2
    assert verdict["accepted-before-safe"].counts["accepted"] == sum(
        event["k"] == "conf" for journal in journals for event in journal
    )


def long_before() -> Story:
    """A primary, and one more broker, of long before the run; the primary goes on accepting."""
    story = Story()
    story.at = 0
    story.add("a", "epoch", e=2)
    story.add("a", "role", r="active", e=2)
    story.add("a", "insync", e=2, set="a")
    story.add("a", "insync", e=2, set="a b")
    story.add("a", "rep", x="b", e=2, p=1, hi=6, dt=1)
    story.add("a", "rep", x="b", e=2, p=7, dt=1)
    story.add("a", "conf", e=2, p=1, hi=7)
    story.add("gone", "role", r="active", e=2)
    story.at = HOUR
    story.send(1)
    story.add("a", "conf", e=2, p=7)
    return story


def test_how_things_stood_before_counts_for_those_who_write_during_the_run() -> None:
    verdict = long_before().judged()
    assert (
        verdict["accepted-before-safe"].counts["accepted"] == 1
        and verdict["accepted-before-safe"].valid is True
    )
    assert verdict["primaries"].counts["epochs"] == 1 and verdict["primaries"].valid is True
    assert verdict["failover"].counts == {"epochs": 1, "failovers": 0, "longest_ns": 0}
    assert verdict["latency"].counts["replication"] == 0
    story = long_before()
    story.add("a", "epoch", e=1)
    story.add("a", "conf", e=2, p=8)
    verdict = story.judged()
    assert (
        verdict["accepted-before-safe"].counts["unsafe"],
        verdict["primaries"].counts["epoch_regressions"],
    ) == (1, 1)


def only(after_ns: int) -> list[Event]:
    story = Story()
    story.send(1)
    story.add("a", "conf", story.at + after_ns, e=1, p=1)
    return story.events


@pytest.mark.parametrize(
    ("after_ns", "error_ns", "counts"),
    [
        (MARGIN_NS, 0, 1),
        (MARGIN_NS + 1000, 0, 0),
        (MARGIN_NS + 1000, 2 * MARGIN_NS, 1),
        (HOUR, UNBOUNDED, 1),
    ],
)
def test_a_minute_more_belongs_to_a_run_or_as_much_as_clocks_may_be_apart(
    after_ns: int, error_ns: int, counts: int
) -> None:
    inputs = Inputs(one_clock=not error_ns, clock_error_ns=error_ns)
    assert check(only(after_ns), inputs=inputs)["accepted-before-safe"].counts["accepted"] == counts
