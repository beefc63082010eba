"""A history with everything planted in it, judged once for all tests that look at the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from qpidha.pipeline.generate.histories import write
from qpidha.pipeline.spark import around
from qpidha.pipeline.spark.engine import Asked, check_lake
from qpidha.pipeline.spark.ingest import Ingested, ingest
from qpidha.pipeline.spark.lake import Lake
from qpidha.pipeline.verdict import Verdict
from tests.pipeline.builders import EVERYTHING


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
