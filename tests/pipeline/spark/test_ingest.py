"""Files become tables: the same verdict as from the files themselves, whatever is wrong with some
of them, however often they come.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from qpidha.pipeline.checks import CHECKS, Settings
from qpidha.pipeline.columns import TABLES
from qpidha.pipeline.generate.histories import Plan, write
from qpidha.pipeline.oracle.engine import check_paths
from qpidha.pipeline.segments import BadInput, Segment
from qpidha.pipeline.spark.engine import Asked, check_lake
from qpidha.pipeline.spark.ingest import File, Ingested, follow, ingest, shared_out, write_batch
from qpidha.pipeline.spark.lake import Files, Lake
from qpidha.pipeline.verdict import Verdict
from tests.pipeline.clocks import KNOWN, UNKNOWN, two_hosts, written
from tests.pipeline.spark.judged import Judged

OTHER = 'a "run"/%20 ü'
FEW = ["total-queue", "evidence"]


def lake_of(spark: Any, folder: Path) -> Lake:
    return Lake(spark, str(folder / "lake"))


def assert_same(ours: Verdict, theirs: Verdict) -> None:
    for check in theirs.checks:
        assert ours[check.name] == check, check.name
    assert (
        ours.inputs == theirs.inputs
        and ours.run == theirs.run
        and ours.exit_code == theirs.exit_code
    )


def test_both_engines_give_the_same_verdict_on_files(judged: Judged, tmp_path: Path) -> None:
    history, lake, verdict = judged.folder / "history", judged.lake, judged.verdict
    theirs = check_paths([history])
    assert (
        judged.done.files == len(list(history.iterdir())) > 5
        and judged.done.events == theirs.inputs["events"]
    )
    theirs.write(tmp_path / "theirs", all_offenders=True)
    assert_same(verdict, theirs)
    files = [file for check in verdict.checks for file in check.files]
    assert {
        "offenders/availability-windows.jsonl",
        "offenders/primaries-shared_epochs.jsonl",
    } < set(files)
    for file in files:
        assert (judged.folder / file).read_text() == (tmp_path / "theirs" / file).read_text(), file
    for name, (_, columns) in TABLES.items():
        assert lake.table(theirs.run, name).columns == [column for column, *_ in columns], name
        assert lake.table(theirs.run, name).count() > 0, name
    assert ingest(lake, [history]) == Ingested((), 0, 0, 0, 0, ()), "nothing has changed"


def spoil(history: Path) -> None:
    """Put one of everything that can be wrong beside good segments."""
    first, second, *_ = sorted(history.glob("journal-client-send*"))
    lines = first.read_bytes().split(b"\n")
    for number, bad in enumerate(
        (
            b"{nonsense",
            b"",
            b"[]",
            b"null",
            b"\xff\xfe{}",
            b'{"k":"future","s":1}',
            b"x" * 3_000_000,
        )
    ):
        lines.insert(10 + 3 * number, bad)
    lines.insert(
        40, lines[41].replace(b'"s":', b'"extra":[1],"s":').replace(b'"c":', b'"d":null,"c":')
    )
    del lines[41]
    first.write_bytes(b"\n".join(lines))
    whole = second.read_bytes()
    (history / (second.name + ".gz")).write_bytes(gzip.compress(whole))
    torn = sorted(history.glob("journal-client-receive*"))[0]
    (history / "journal-x-1-00000003.jsonl.gz").write_bytes(gzip.compress(torn.read_bytes())[:-500])
    (history / "journal-x-1-00000001.jsonl").write_bytes(b"")
    (history / "journal-x-1-00000002.jsonl").write_text("hello\n")
    (history / "journal-x-1-00000004.jsonl").write_text('{"k":"segment","v":2,"n":"x","b":"1"}\n')
    (history / ".journal-x-1-00000005.jsonl.open").write_bytes(whole.split(b"\n")[0] + b'\n{"n":"x')
    (history / "notes.txt").write_text("none of ours")
    (history / "again").mkdir()
    shutil.copy(torn, history / "again" / torn.name)


def test_bad_files_and_lines_are_named_and_the_rest_is_judged(spark: Any, tmp_path: Path) -> None:
    write(Plan(messages=3000, plant={"lost": 3}), tmp_path / "history", segment_bytes=200_000)
    spoil(tmp_path / "history")
    lake = lake_of(spark, tmp_path)
    ingest(lake, [tmp_path / "history"])
    verdict, theirs = check_lake(lake), check_paths([tmp_path / "history"])
    ours, read = verdict.inputs, theirs.inputs
    assert (
        ours["quarantined"] == read["quarantined"] > 8
        and ours["duplicates"] == read["duplicates"] > 0
    )
    assert sorted(ours.pop("problems")) == sorted(read.pop("problems"))
    key = lambda entry: (entry["file"], entry["line"])  # noqa: E731
    assert sorted(ours.pop("quarantine"), key=key) == sorted(read.pop("quarantine"), key=key)
    assert ours == read
    assert (
        verdict["total-queue"] == theirs["total-queue"]
        and verdict["total-queue"].counts["lost"] == 3
    )
    assert (
        verdict["evidence"].counts == theirs["evidence"].counts
        and verdict["evidence"].valid is None
    )
    assert verdict["order"] == theirs["order"] and verdict["availability"] == theirs["availability"]


def test_what_cannot_be_judged_is_bad_input(spark: Any, tmp_path: Path) -> None:
    lake = lake_of(spark, tmp_path)
    with pytest.raises(BadInput, match="nothing was ingested"):
        check_lake(lake)
    with pytest.raises(BadInput, match="no such check: colour"):
        check_lake(lake, asked=Asked(["colour"]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="no segments"):
        ingest(lake, [tmp_path / "empty"])
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "journal-x-1-00000001.jsonl").write_text("hello\n")
    ingest(lake, [tmp_path / "bad"])
    with pytest.raises(BadInput, match="no events: .*does not begin"):
        check_lake(lake)
    write(Plan(messages=100), tmp_path / "one")
    write(Plan(messages=100, run=OTHER, seed=2), tmp_path / "two")
    ingest(lake, [tmp_path / "one", tmp_path / "two"])
    with pytest.raises(BadInput, match="two runs"):
        check_lake(lake, asked=Asked(FEW))
    verdict = check_lake(lake, Settings(run=OTHER), Asked(FEW))
    assert verdict.run == OTHER and verdict["total-queue"].counts["attempts"] == 100
    (tmp_path / "lake" / ".lake.json.crc").unlink()
    (tmp_path / "lake" / "lake.json").write_text('{"schema":99}')
    with pytest.raises(BadInput, match="version 99"):
        lake_of(spark, tmp_path)


def test_journals_of_another_run_change_nothing(spark: Any, tmp_path: Path) -> None:
    write(Plan(messages=500, run="one", brokers=True, plant={"unsafe": 1}), tmp_path / "both")
    write(Plan(messages=500, run="two", seed=2, brokers=True, begin_ns=10**12), tmp_path / "both")
    write(Plan(messages=500, run="one", brokers=True, plant={"unsafe": 1}), tmp_path / "alone")
    lake = lake_of(spark, tmp_path)
    ingest(lake, [tmp_path / "both"])
    verdict = check_lake(lake, Settings(run="one"), Asked(charts=False))
    alone = check_paths([tmp_path / "alone"])
    assert_same(verdict, check_paths([tmp_path / "both"], Settings(run="one")))
    for check in alone.checks:
        assert check.name == "evidence" or verdict[check.name] == check, check.name
    assert {row["boot"] for row in lake.table("one", "roles").collect()} == {"00000001"}
    assert {each["run"] for each in verdict.inputs["writers"]} == {"one", "two"}


def test_a_file_that_grew_replaces_what_it_was(spark: Any, tmp_path: Path) -> None:
    write(Plan(messages=400), tmp_path / "whole")
    (tmp_path / "history").mkdir()
    lake = lake_of(spark, tmp_path)
    for path in (tmp_path / "whole").iterdir():
        lines = path.read_bytes().split(b"\n")
        (tmp_path / "history" / f".{path.name}.open").write_bytes(
            b"\n".join(lines[:50]) + b'\n{"n":'
        )
    ingest(lake, [tmp_path / "history"])
    early = check_lake(lake, asked=Asked(FEW))
    assert_same(early, check_paths([tmp_path / "history"], names=FEW))
    for path in (tmp_path / "whole").iterdir():
        (tmp_path / "history" / f".{path.name}.open").unlink()
        shutil.copy(path, tmp_path / "history" / path.name)
    ingest(lake, [tmp_path / "history"])
    late = check_lake(lake, asked=Asked(FEW))
    assert_same(late, check_paths([tmp_path / "history"], names=FEW))
    assert early["evidence"].counts["events"] < late["evidence"].counts["events"]


def test_names_that_are_no_unicode_stop_nothing(spark: Any, tmp_path: Path) -> None:
    write(Plan(messages=400, plant={"lost": 2}), tmp_path / "whole")
    odd, other = (
        Path(os.fsdecode(os.fsencode(tmp_path) + name))
        for name in (b"/history/\xff", b"/history/\xfe")
    )
    odd.mkdir(parents=True)
    other.mkdir()
    bad = other / os.fsdecode(b"journal-\xff-1-00000001.jsonl")
    bad.write_text("hello\n")
    (other / os.fsdecode(b"notes-\xff")).touch()
    lake = lake_of(spark, tmp_path)
    for path in (tmp_path / "whole").iterdir():
        lines = path.read_bytes().split(b"\n")
        (odd / f".{path.name}.open").write_bytes(b"\n".join(lines[:150]) + b"\n")
    ingest(lake, [tmp_path / "history"])
    assert_same(check_lake(lake, asked=Asked(FEW)), check_paths([tmp_path / "history"], names=FEW))
    for path in (tmp_path / "whole").iterdir():
        (odd / f".{path.name}.open").unlink()
        shutil.copy(path, odd / path.name)
    done = ingest(lake, [tmp_path / "history"])
    verdict = check_lake(lake, asked=Asked(FEW))
    assert_same(verdict, check_paths([tmp_path / "history"], names=FEW))
    assert (
        done.files == len(list(odd.iterdir()))
        and verdict["total-queue"].counts["lost"] == 2
        and verdict.inputs["duplicates"] == 0
    )
    assert [entry["file"] for entry in verdict.inputs["quarantine"]] == [
        f"{tmp_path}/history/\\udcfe/journal-\\udcff-1-00000001.jsonl"
    ]
    json.dumps(verdict.as_json(), ensure_ascii=False).encode()
    assert ingest(lake, [tmp_path / "history"]) == Ingested((), 0, 0, 0, 0, ()), (
        "nothing has changed"
    )


def test_a_batch_written_again_after_a_crash_changes_nothing(spark: Any, tmp_path: Path) -> None:
    write(Plan(messages=400), tmp_path / "history", segment_bytes=50_000)
    files = sorted((tmp_path / "history").iterdir())
    lake = lake_of(spark, tmp_path).create()
    described: list[File] = [
        (str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files
    ]
    for half in (described[:2], described):
        write_batch(lake, "once-000001", half)
    (Path(lake.batch_path("once-000001")) / "_SUCCESS").unlink()
    assert lake.batches() == [] and lake.next_batch("once-") == "once-000001", (
        "a batch that was not completed does not exist"
    )
    ingest(lake, [tmp_path / "history"])
    verdict = check_lake(lake, asked=Asked(FEW))
    assert_same(verdict, check_paths([tmp_path / "history"], names=FEW))
    assert verdict.inputs["duplicates"] == 0


def test_a_stream_that_stops_and_starts_again_reads_each_segment_once(
    spark: Any, tmp_path: Path
) -> None:
    write(Plan(messages=1200, plant={"lost": 2}), tmp_path / "whole", segment_bytes=100_000)
    history = tmp_path / "history"
    history.mkdir()
    lake = lake_of(spark, tmp_path)
    segments = sorted((tmp_path / "whole").iterdir())
    for turn, part in enumerate((segments[::3], segments[1::3], segments[2::3])):
        for path in part:
            shutil.copy(path, history / path.name)
        query = follow(lake, [history])
        query.awaitTermination()
        if turn == 1:
            # The process was killed after the batch was written and before Spark noted that: the
            # batch comes again.
            last = max(
                (tmp_path / "lake" / "checkpoint" / "commits").glob("[0-9]*"),
                key=lambda path: int(path.name),
            )
            last.unlink()
            last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    (history / "later").mkdir()
    shutil.copy(segments[0], history / "later" / segments[0].name)
    follow(lake, [history]).awaitTermination()
    verdict = check_lake(lake, asked=Asked(FEW))
    assert_same(verdict, check_paths([history], names=FEW))
    assert verdict.inputs["duplicates"] > 0 and verdict["total-queue"].counts["lost"] == 2
    ingest(lake, [history])
    assert_same(check_lake(lake, asked=Asked(FEW)), check_paths([history], names=FEW))


def test_files_are_shared_out_by_size() -> None:
    files: list[File] = [(str(number), 100 * number, 0) for number in range(1, 9)]
    tasks = shared_out(files, 2)
    assert sorted(file for task in tasks for file in task) == sorted(files)
    assert [sum(size for _, size, _ in task) for task in tasks] == [1800, 1800]
    assert len(shared_out([("a", 1 << 40, 0), ("b", 1, 0)], 8)) == 2


def test_files_know_who_wrote_what_twice() -> None:
    segment = asdict(Segment("f", "n", "b", state="closed"))
    note = {
        "segment": segment,
        "events": 5,
        "duplicates": 0,
        "lines": 5,
        "quarantined": 0,
        "problems": [],
        "operations": False,
        "runs": [],
        "unknown_fields": {},
        "brokers": False,
        "drops": [[4, 7]],
        "size": 9,
        "changed": 1,
        "batch": "once-000001",
    }
    files = Files(
        [
            note | {"path": "/x/f", "ranges": [[0, 4]]},
            note | {"path": "/y/f", "ranges": [[3, 6], [9, 9]]},
        ]
    )
    assert (
        files.overlapping == [("n", "b")]
        and files.inputs.events == 8
        and files.inputs.duplicates == 2
    )
    assert files.inputs.missing == 2 and not files.superseded
    assert files.inputs.problems == ["n b: it did not write 7 events", "n b: 2 events are missing"]


def test_every_check_has_a_finder() -> None:
    assert {check.name for check in CHECKS} == {
        "total-queue",
        "order",
        "redelivery",
        "availability",
        "mutex",
        "accepted-before-safe",
        "primaries",
        "latency",
        "failover",
        "throughput",
        "evidence",
    }


def test_both_engines_compare_clocks_alike(spark: Any, tmp_path: Path) -> None:
    for name, heads, error, code in (
        ("known", KNOWN, None, 0),
        ("unknown", UNKNOWN, None, 2),
        ("told", UNKNOWN, 3_000_000, 0),
    ):
        folder, settings = (
            written(two_hosts(), tmp_path / name / "history", heads),
            Settings(clock_error_ns=error),
        )
        lake = lake_of(spark, tmp_path / name)
        ingest(lake, [folder])
        verdict = check_lake(lake, settings, Asked(charts=False))
        assert_same(verdict, check_paths([folder], settings))
        assert verdict.exit_code == code, name
        assert [row["epsilon_ns"] for row in lake.table("r", "run").collect()] == [
            verdict.inputs["clock"]["error_ns"]
        ]
