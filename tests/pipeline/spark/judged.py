"""A history with everything planted in it, judged once for all tests that look at the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from qpidha.pipeline.generate.histories import BY_BROKERS, EFFECTS, Plan, write
from qpidha.pipeline.spark import around
from qpidha.pipeline.spark.engine import Asked, check_lake
from qpidha.pipeline.spark.ingest import Ingested, ingest
from qpidha.pipeline.spark.lake import Lake
from qpidha.pipeline.verdict import Verdict

EVERYTHING = Plan(
    messages=2700,
    seed=7,
    plant={name: 2 if name in BY_BROKERS else 3 for name in EFFECTS},
    brokers=True,
    locks=3,
    holds=20,
    overlaps=5,
    lost_leases=2,
)


@dataclass(frozen=True)
class Judged:
    """What came of it."""

    folder: Path
    """With `history`, `lake`, the verdict and all offenders."""
    lake: Lake
    done: Ingested
    verdict: Verdict
    plans: list[str]
    """How Spark looked for what happened around the examples."""


def judge(spark: Any, folder: Path) -> Judged:
    """Write the history, ingest and check it."""
    write(EVERYTHING, folder / "history", segment_bytes=200_000)
    lake = Lake(spark, str(folder / "lake"))
    done = ingest(lake, [folder / "history"])
    plans: list[str] = []
    matched = around._matched

    def seen(*arguments: Any) -> DataFrame:
        rows = matched(*arguments)
        plans.append(str(rows._jdf.queryExecution().executedPlan().toString()))
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(around, "_matched", seen)
        verdict = check_lake(lake, asked=Asked(directory=folder))
    verdict.write(folder)
    return Judged(folder, lake, done, verdict, plans)
