"""Both engines find the same in thousands of histories: every number, every offender, every row of
every table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from qpidha.pipeline import checks
from qpidha.pipeline.checks import MARGIN_NS, Settings
from qpidha.pipeline.events import UNBOUNDED, Event
from qpidha.pipeline.oracle.engine import FINDERS, check
from qpidha.pipeline.segments import Inputs
from qpidha.pipeline.spark import safe
from qpidha.pipeline.spark.engine import Asked, findings, tables_of
from qpidha.pipeline.spark.facts import CASE
from qpidha.pipeline.spark.offenders import Offenders
from qpidha.pipeline.spark.schema import record_batch
from qpidha.pipeline.verdict import Finding
from tests.pipeline.builders import Story
from tests.pipeline.spark.histories import many


def frame(spark: Any, histories: Sequence[list[Event]], folder: Any) -> Any:
    """Return the events of all histories as one table, with the number of each."""
    tables = []
    for case, events in enumerate(histories):
        batch = record_batch(events, "f")
        tables.append(
            pyarrow.Table.from_batches([batch]).append_column(
                CASE, pyarrow.array([case] * len(events), pyarrow.int32())
            )
        )
    table = pyarrow.concat_tables(tables)
    path = folder / "events.parquet"
    pyarrow.parquet.write_table(table, path)
    return spark.read.parquet(str(path))


def by_spark(
    spark: Any, events: Any, cases: int, settings: Settings, inputs: Inputs
) -> dict[str, dict[int, Finding]]:
    tables = tables_of(
        events,
        range(cases),
        lambda _, rows: rows.persist(),
        FINDERS,
        one_clock=inputs.one_clock,
        epsilon=inputs.clock_error_ns,
    )
    try:
        return findings(tables, settings, Asked(), Offenders(ALL))
    finally:
        for table in (tables.messages, tables.ops, tables.traffic, tables.places, tables.positions):
            if table is not None:
                table.unpersist()


ALL = 1_000_000
"""More offenders than there are; of so many the first, which is how users ask for them."""
SETTINGS = [
    (1500, Settings(), Inputs(), MARGIN_NS),
    (1000, Settings(), Inputs(), 2_000_000),  # brokers write before and after the runs, too
    (
        1000,
        Settings(strict_order=True, unavailable_ns=0, fault_reach_ns=10**6),
        Inputs(one_clock=False, clock_error_ns=2_000_000),
        MARGIN_NS,
    ),
    (
        500,
        Settings(strict_order=True),
        Inputs(one_clock=False, clock_error_ns=UNBOUNDED),
        MARGIN_NS,
    ),
]


@pytest.mark.parametrize(("number", "settings", "inputs", "margin_ns"), SETTINGS)
def test_every_finding_is_that_of_the_python_engine(
    spark: Any,
    tmp_path: Any,
    number: int,
    settings: Settings,
    inputs: Inputs,
    margin_ns: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "MARGIN_NS", margin_ns)
    if number < 1500:
        # Positions of one history are in several buckets, and what is wrong is not broadcast.
        monkeypatch.setattr(safe, "BUCKET", 2)
        monkeypatch.setattr(safe, "MOST_BROADCAST", 0)
    histories = list(many(number, number, 40))
    found = by_spark(spark, frame(spark, histories, tmp_path), len(histories), settings, inputs)
    seen: set[tuple[str, str]] = set()
    for case, events in enumerate(histories):
        verdict = check(events, settings, inputs=inputs)
        for result in verdict.checks:
            if result.name == "evidence":
                continue
            ours = found[result.name][case]
            theirs = (result.counts, result.offenders, result.table)
            assert (ours.counts, dict(sorted(ours.offenders.items())), ours.table) == theirs, shown(
                result.name, events
            )
            seen |= {(result.name, name) for name, count in result.counts.items() if count}
    assert len(seen) > (40 if inputs.clock_error is None else 50), "the histories are too tame"


@pytest.mark.parametrize(("clock_error_ns", "members"), [(2_000_000, 8), (UNBOUNDED, 3)])
def test_what_is_absurd_stops_no_job(
    spark: Any, tmp_path: Any, clock_error_ns: int, members: int
) -> None:
    story = Story()
    for wall_us in (-(10**16), 2**61):
        story.add(
            "a",
            "insync",
            500,
            t=wall_us,
            e=1,
            set="a " + " ".join(f"b{number}" for number in range(members)),
        )
        for position in (-(2**63), 0, 1):
            story.add("a", "enq", 1000, q="q", e=1, p=position, i=f"m{position}")
            story.add("a", "rep", 1500, x="b1", e=1, p=position, hi=2**63 - 1)
            story.add("a", "conf", 2000, e=1, p=position, hi=2**63 - 1)
            story.op(
                "enqueue",
                "ok",
                "q",
                story.op("enqueue", "invoke", at=1, i=f"m{position}"),
                at=3000,
                i=f"m{position}",
            )
            story.op(
                "enqueue",
                "ok",
                "q",
                story.op("enqueue", "invoke", at=1, i=f"late{wall_us}"),
                i=f"late{wall_us}",
                t=2**61,
            )
            story.add("a", "enq", 1000, q="q", e=1, p=position, i=f"late{wall_us}")
    inputs = Inputs(one_clock=False, clock_error_ns=clock_error_ns)
    found = by_spark(spark, frame(spark, [story.events], tmp_path), 1, Settings(), inputs)
    for result in check(story.events, Settings(), inputs=inputs).checks:
        if result.name != "evidence":
            ours = found[result.name][0]
            assert (ours.counts, ours.offenders) == (result.counts, result.offenders), result.name
    assert found["accepted-before-safe"][0].counts["unsafe"] > 2**63


def shown(name: str, events: list[Event]) -> str:
    return f"{name}\n" + "\n".join(json.dumps(event) for event in events)
