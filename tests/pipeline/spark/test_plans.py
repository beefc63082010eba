"""How Spark does it: one shuffle a table of facts and a check, hash aggregates, no product of
tables, no frame that reaches forward.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import qpidha.pipeline
from qpidha.pipeline.checks import CHECKS
from qpidha.pipeline.columns import EVENTS, documentation
from qpidha.pipeline.events import FIELDS, KINDS, OPERATIONS
from qpidha.pipeline.spark.engine import Asked, check_lake
from qpidha.pipeline.spark.facts import CASE, message_facts, operations, paired, traffic, with_time
from qpidha.pipeline.spark.lake import Lake
from qpidha.pipeline.spark.schema import ARROW, STORED, WRITTEN, event_of, record_batch
from qpidha.pipeline.spark.session import PARTITIONS_PER_CORE, cores_of
from tests.bench.pipeline import Size, generate, wrong_numbers
from tests.pipeline.builders import Story
from tests.pipeline.spark.conftest import MASTER

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture(scope="module")
def spark(spark: Any) -> Any:
    """The session with the settings that users have: code is generated, plans adapt, and each core
    has its partitions.
    """
    ours = spark.newSession()
    ours.conf.set("spark.sql.adaptive.enabled", "true")
    ours.conf.set("spark.sql.codegen.wholeStage", "true")
    ours.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    ours.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS_PER_CORE * cores_of(MASTER)))
    return ours


def plan(rows: Any) -> str:
    return str(rows._jdf.queryExecution().executedPlan().toString())


@pytest.fixture(scope="module")
def ops(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = str(tmp_path_factory.mktemp("plan") / "events")
    spark.createDataFrame([], STORED).write.parquet(path)
    return operations(
        with_time(
            spark.read.schema(STORED).parquet(path).withColumn(CASE, F.lit(0)), one_clock=True
        )
    )


@pytest.mark.parametrize("name", ["message_facts", "ops", "traffic_1s"])
def test_a_table_of_facts_is_one_shuffle_of_hash_aggregates(
    spark: Any, ops: Any, name: str
) -> None:
    names = spark.createDataFrame([("q", 0)], "queue string, number int")
    rows = {
        "message_facts": lambda: message_facts(ops),
        "ops": lambda: paired(ops, names),
        "traffic_1s": lambda: traffic(ops),
    }[name]()
    shown = plan(rows)
    assert len(re.findall(r"(?<!Broadcast)Exchange hashpartitioning", shown)) == 1, shown
    assert shown.count("HashAggregate") >= 2, shown
    for bad in (
        "SortAggregate",
        "ObjectHashAggregate",
        "CartesianProduct",
        "BroadcastNestedLoopJoin",
        "SortMergeJoin",
    ):
        assert bad not in shown, shown


def shuffled(spark: Any) -> dict[int, int]:
    """Return how many records each stage so far has written for a shuffle."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    quantiles = context._gateway.new_array(context._jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(None, False, False, quantiles, None)
    return {
        stage.stageId(): stage.shuffleWriteRecords()
        for stage in (stages.apply(index) for index in range(stages.size()))
    }


def test_a_check_moves_its_rows_once(spark: Any, tmp_path: Path) -> None:
    size = Size(40_000, journals=True)
    lake = Lake(spark, str(tmp_path / "lake"))
    generate(lake, size)
    moved: dict[str, list[int]] = {}
    state: dict[str, Any] = {"name": "before", "stages": shuffled(spark)}

    def noticed(what: str) -> None:
        stages = shuffled(spark)
        moved[state["name"]] = sorted(
            (stages[stage] for stage in stages.keys() - state["stages"].keys()), reverse=True
        )
        state.update(name=what, stages=stages)

    verdict = check_lake(
        lake, asked=Asked([check.name for check in CHECKS], charts=False, noticed=noticed)
    )
    noticed("end")
    assert wrong_numbers(verdict, size.expected()) == []
    # What it judges, and what is left of that after hash aggregates: rows of queues, clients,
    # seconds, buckets or times of three digits.
    rows = {
        "places": (2 * size.messages, 100),
        "order": (size.messages, 300),
        "mutex": (2 * size.holds, 100),
        "positions": (2 * size.messages, 100),
        "accepted-before-safe": (size.messages, 1000),
    }
    for name, (judged, groups) in rows.items():
        assert judged / 2 < moved[name][0] <= judged, (name, moved[name])
        assert sum(moved[name][1:]) < groups, (name, moved[name])
    for name in (
        "journals",
        "total-queue",
        "redelivery",
        "availability",
        "primaries",
        "latency",
        "failover",
        "throughput",
    ):
        assert sum(moved[name]) < size.messages, (name, moved[name])


def test_no_window_reaches_forward_without_end() -> None:
    for path in Path(qpidha.pipeline.__file__).parent.glob("*.py"):
        assert "unboundedFollowing" not in path.read_text(), path


def test_schemas_are_those_of_the_format() -> None:
    columns = {name: type_ for name, type_, _, _ in EVENTS}
    coded = {"kind", "otype", "role"}
    assert all(
        columns[field.column] == ("tinyint" if field.column in coded else field.type)
        for field in FIELDS
    )
    assert [field.name for field in WRITTEN] == ARROW.names == [*columns, "kind_group"]
    for field in WRITTEN:
        simple = field.dataType.simpleString()
        assert (
            str(ARROW.field(field.name).type)
            == {"string": "string", "tinyint": "int8", "int": "int32", "bigint": "int64"}[simple]
        )


def test_an_event_comes_back_from_its_row() -> None:
    story = Story()
    story.send(1, i="m", j=5)
    story.take(1, fa=1)
    story.fault(5, 6)
    for what in OPERATIONS:
        story.op(what, "info", c=7, err="no")
    for kind in KINDS:
        if kind.name not in ("op", "fault"):
            values: dict[str, Any] = {
                "x": "b",
                "e": 3,
                "p": 4,
                "hi": 9,
                "q": "q",
                "r": "active",
                "set": "a b",
                "cnt": 2,
                "err": "?",
                "i": "m",
            }
            words = {"f": kind.words[0] if kind.words else "memory"}
            story.add(
                "a",
                kind.name,
                **{
                    key: value
                    for key, value in (values | words).items()
                    if key in kind.needs + kind.may
                },
            )
    batch = record_batch(story.events, "file")
    assert [
        event_of({name: value for name, value in row.items() if value is not None})
        for row in batch.to_pylist()
    ] == story.events


def test_the_documents_show_the_tables() -> None:
    assert documentation() in (ROOT / "docs" / "pipeline-spark.md").read_text()


def test_what_needs_no_spark_does_not_import_it() -> None:
    modules = ["verification.pipeline", "app"]
    code = (
        f"import sys; import {', '.join('qpidha.cli.' + module for module in modules)}; "
        "import qpidha.pipeline.oracle.engine; "
    )
    code += "sys.exit(bool({'pyspark', 'pyarrow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
