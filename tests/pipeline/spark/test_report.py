"""From files to a page: every planted anomaly is named in the report with the operations around it,
and each check counts as before.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from qpidha.cli.main import main
from qpidha.pipeline.generate.histories import Plan, write
from qpidha.pipeline.report.page import write_report
from qpidha.pipeline.report.text import kind_title, prose
from qpidha.pipeline.spark import around
from qpidha.pipeline.spark.engine import Asked, check_lake
from qpidha.pipeline.spark.ingest import ingest
from qpidha.pipeline.spark.lake import Lake
from tests.pipeline.builders import EVERYTHING
from tests.pipeline.spark.judged import Judged

# Kind of offence -> what must be told around its examples.
TOLD = {
    ("total-queue", "lost"): (
        "enqueue invoke",
        "enqueued at position",
        "has confirmed position",
        "tells senders accepted",
        "enqueue ok",
    ),
    ("total-queue", "duplicated"): ("enqueue ok", "dequeue invoke", "dequeue ok"),
    ("total-queue", "resurrected"): ("ack ok", "delivery-count 1"),
    ("total-queue", "unexpected"): ("dequeue ok",),
    ("total-queue", "phantom"): ("enqueue fail", "dequeue ok"),
    ("total-queue", "recovered"): ("enqueue info", "dequeue ok"),
    ("redelivery", "unflagged"): ("dequeue ok",),
    ("order", "violations"): ("enqueue ok", "dequeue ok"),
    ("accepted-before-safe", "unsafe"): (
        "tells senders accepted",
        "has confirmed",
        "in-sync set of epoch",
        "enqueue ok",
    ),
    ("accepted-before-safe", "client_unsafe"): (
        "enqueue ok",
        "enqueued at position",
        "has confirmed",
    ),
    ("primaries", "shared_epochs"): (
        "is active now",
        "tells senders accepted",
        "in-sync set of epoch",
    ),
    ("primaries", "overlaps"): ("is active now", "fault stop of broker-0: begins"),
    ("mutex", "overlaps"): ("acquire ok", "release invoke"),
    ("mutex", "lease_overlaps"): ("acquire ok", "release ok"),
    ("availability", "windows"): ("fault stop", "promotion asked"),
}


def test_every_planted_anomaly_is_named_with_what_happened_around_it(judged: Judged) -> None:
    out = judged.folder / "out"
    page = write_report(judged.folder, judged.lake.root, out)[0].read_text()
    verdict = json.loads((judged.folder / "verdict.json").read_text())
    kinds = {
        (check["name"], example["what"])
        for check in verdict["checks"]
        for example in check["examples"]
    }
    assert kinds == set(TOLD)
    for (check, what), words in TOLD.items():
        title = prose(kind_title(check, what)).replace("&", "&amp;")
        (part,) = re.findall(
            rf'<div class="kind[^>]*>\s*<h3>{re.escape(title)}</h3>'
            r'.*?(?=<div class="kind|</section>)',
            page,
            re.DOTALL,
        )
        number = next(entry for entry in verdict["checks"] if entry["name"] == check)["counts"][
            what
        ]
        assert f"{number} in all; check {check}" in part, what
        for word in words:
            assert word in part, (what, word)
        assert "No events are kept" not in part
    for picture in ("timeline", "lag", "backlog", "failover-2", "failover-3"):
        assert (out / f"report-{picture}.png").stat().st_size > 10_000


def test_the_life_of_a_lost_message_is_whole_and_in_order(judged: Judged) -> None:
    verdict = json.loads((judged.folder / "verdict.json").read_text())
    lost = [row for row in verdict["checks"][0]["examples"] if row["what"] == "lost"]
    rows = judged.lake.table(EVERYTHING.run, "around").where("what = 'lost'").collect()
    for number, example in enumerate(lost):
        mine = sorted(
            (row for row in rows if row["example"] == number), key=lambda row: row["at_ns"]
        )
        events = [json.loads(row["event"]) for row in mine]
        assert [event["k"] for event in events] == ["op", "enq", "rep", "rep", "conf", "op"]
        assert events[0]["o"] == events[-1]["o"] == example["enq_op"]
        assert [row["at_ns"] for row in mine][0] == example["enq_ns"] and mine[-1][
            "at_ns"
        ] == example["enq_ok_ns"]
        assert {(event["e"], event["p"]) for event in events[1:5]} == {
            (events[1]["e"], events[1]["p"])
        }


def test_around_an_example_there_is_not_too_much(judged: Judged) -> None:
    rows = judged.lake.table(EVERYTHING.run, "around")
    assert (
        max(row["count"] for row in rows.groupBy("check", "what", "example").count().collect())
        <= around.MOST_EVENTS
    )
    whole = rows.count()
    assert rows.dropDuplicates(["check", "what", "example", "node", "boot", "s"]).count() == whole


def test_without_examples_nothing_is_looked_for_and_the_table_is_empty(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []
    matched = around._matched

    def counted(*arguments: Any) -> DataFrame:
        passes.append(arguments)
        return matched(*arguments)

    monkeypatch.setattr(around, "_matched", counted)
    write(Plan(messages=300, brokers=True), tmp_path / "history")
    lake = Lake(spark, str(tmp_path / "lake"))
    ingest(lake, [tmp_path / "history"])
    assert (
        check_lake(lake, asked=Asked(["total-queue", "order", "throughput", "primaries"])).valid
        is True
    )
    assert passes == [] and lake.table("synthetic", "around").count() == 0
    write(Plan(messages=300, plant={"lost": 1}), tmp_path / "lossy")
    other = Lake(spark, str(tmp_path / "other"))
    ingest(other, [tmp_path / "lossy"])
    assert check_lake(other, asked=Asked(["total-queue"])).valid is False
    assert 1 <= len(passes) <= around.PASSES


def test_the_passes_are_broadcasts_and_shuffle_only_what_was_found(judged: Judged) -> None:
    assert 2 <= len(judged.plans) <= around.PASSES
    for plan in judged.plans:
        assert len(re.findall(r"(?<!Broadcast)Exchange hashpartitioning", plan)) == 1, plan
        for bad in ("SortMergeJoin", "CartesianProduct", "BroadcastNestedLoopJoin"):
            assert bad not in plan, plan


def test_check_writes_the_report_on_request(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(Plan(messages=400, plant={"lost": 1}), tmp_path / "history")
    words = ["pipeline", "check", str(tmp_path / "history"), "--checks", "total-queue", "--report"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 1
    assert f"report: {tmp_path / 'out' / 'report.html'}" in capsys.readouterr().err
    assert "delivered never" in (tmp_path / "out" / "report.html").read_text()
    for wrong in ([], ["--out", str(tmp_path / "o"), "--engine", "python"]):
        assert main([*words, "--lake", str(tmp_path / "lake"), *wrong]) == 3
        assert (
            "--report needs a place, and the tables of the Spark engine" in capsys.readouterr().err
        )
