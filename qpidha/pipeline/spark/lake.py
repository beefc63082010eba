"""A lake: the folder with all tables, at a path or URL that every worker can see.

`events/batch=<name>/kind_group=<group>` holds what was ingested: one folder a batch, written as a
whole; a folder without `_SUCCESS` does not exist for readers. `runs/<run>/<table>` holds what was
computed last for a run. Each event counts once however often its segment came: files that were read
again replace what they were, and where files overlap, events are told apart by (node, boot, s).
Judges nothing. Tables: docs/pipeline-spark.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qpidha.pipeline.columns import LAKE_SCHEMA, TABLES, run_folder
from qpidha.pipeline.segments import (
    BadInput,
    Inputs,
    Numbers,
    Quarantined,
    Reader,
    Segment,
    unicode,
)
from qpidha.pipeline.spark.schema import STORED, arrow

Note = dict[str, Any]
Writer = tuple[str, str]


class Lake:
    """The tables below one folder."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Raises BadInput if the folder is a lake of another version."""
        self.spark = spark
        self.root = root.rstrip("/")
        jvm = spark.sparkContext._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._system = self._path(self.root).getFileSystem(
            spark.sparkContext._jsc.hadoopConfiguration()
        )
        self._check_version()

    def _check_version(self) -> None:
        marker = self._path(f"{self.root}/lake.json")
        if not self._system.exists(marker):
            return
        stream = self._system.open(marker)
        text = bytes(stream.readAllBytes()).decode()
        stream.close()
        found = json.loads(text).get("schema")
        if found != LAKE_SCHEMA:
            raise BadInput(
                f"{self.root}: its tables have version {found}, and this is for {LAKE_SCHEMA}"
            )

    def create(self) -> Lake:
        """Mark the folder as a lake."""
        if not self._system.exists(self._path(f"{self.root}/lake.json")):
            self._put(f"{self.root}/lake.json", json.dumps({"schema": LAKE_SCHEMA}).encode())
        return self

    def batch_path(self, batch: str) -> str:
        """Return the folder of a batch."""
        return f"{self.root}/events/batch={batch}"

    def batches(self) -> list[str]:
        """Return the names of all complete batches, by name."""
        return sorted(name for name, is_complete in self._folders() if is_complete)

    def next_batch(self, prefix: str) -> str:
        """Return a name for the next batch: that of one that was never completed is taken again."""
        numbers = [
            int(name.removeprefix(prefix)) for name in self.batches() if name.startswith(prefix)
        ]
        return f"{prefix}{max(numbers, default=0) + 1:06d}"

    def _folders(self) -> list[tuple[str, bool]]:
        folder = self._path(f"{self.root}/events")
        if not self._system.exists(folder):
            return []
        names = [status.getPath().getName() for status in self._system.listStatus(folder)]
        return [
            (
                name.removeprefix("batch="),
                self._system.exists(self._path(f"{self.root}/events/{name}/_SUCCESS")),
            )
            for name in names
            if name.startswith("batch=")
        ]

    def stored(self) -> DataFrame:
        """Return all rows of all complete batches."""
        batches = self.batches()
        if not batches:
            raise BadInput(f"{self.root}: nothing was ingested into it")
        reader = self.spark.read.schema(STORED).option("basePath", f"{self.root}/events")
        return reader.parquet(*(self.batch_path(batch) for batch in batches))

    def notes(self, batches: Sequence[str] = ()) -> list[Note]:
        """Return what is known of each file, by batch."""
        rows = self.stored().where(F.col("kind_group") == "segment")
        if batches:
            rows = rows.where(F.col("batch").isin(list(batches)))
        return [
            json.loads(row["note"]) | {"batch": row["batch"]}
            for row in rows.select("note", "batch").collect()
        ]

    def table(self, run: str, name: str) -> DataFrame:
        """Return a table of a run."""
        return self.spark.read.parquet(self.table_path(run, name))

    def table_path(self, run: str, name: str) -> str:
        """Return where a table of a run is; a run may have any name."""
        return f"{self.root}/{run_folder(run)}/{name}"

    def write_table(self, run: str, name: str, rows: DataFrame) -> DataFrame:
        """Write a table of a run anew, and return what was written."""
        path = self.table_path(run, name)
        rows.write.mode("overwrite").parquet(path)
        return self.spark.read.schema(rows.schema).parquet(path)

    def write_rows(self, run: str, name: str, rows: Iterable[dict[str, Any]]) -> None:
        """Write a small table of a run anew, as one file: without Spark, which would take half a
        second for it.
        """
        table = pyarrow.Table.from_pylist(list(rows), schema=arrow(TABLES[name][1]))
        sink = pyarrow.BufferOutputStream()
        parquet.write_table(table, sink, compression="zstd")
        self._system.delete(self._path(self.table_path(run, name)), True)
        self._put(f"{self.table_path(run, name)}/part-0.parquet", sink.getvalue().to_pybytes())

    def _put(self, path: str, content: bytes) -> None:
        stream = self._system.create(self._path(path))
        stream.write(bytearray(content))
        stream.close()


class Files(Reader):
    """What is known of all files that a lake holds, said as a reader of the files would say it."""

    def __init__(self, notes: Iterable[Note], *, clock_error_ns: int | None = None) -> None:
        self.inputs = Inputs()
        self.superseded: list[tuple[str, str]] = []
        """Batch and path, as the tables have it, of files that were read again since."""
        self.overlapping: list[Writer] = []
        """Writers of whom events are in several files."""
        self.runs: dict[str, None] = {}
        self.has_brokers = False
        self._seen: dict[Writer, Numbers] = {}
        self._with_operations = set()
        current = self._latest(list(notes))
        heads = [note["segment"] for note in current if note["segment"]["node"]]
        self.inputs.compare(
            [(head["clock"], head["clock_error_us"]) for head in heads], clock_error_ns
        )
        for note in current:
            self._take(note)
        self._merge(current)
        self._drops(current)
        self._complete()

    def _latest(self, notes: list[Note]) -> list[Note]:
        """Return the latest note of each file, in the order in which files are read."""
        latest: dict[str, Note] = {}
        for note in notes:
            self.inputs.ignored += [
                name for name in note.get("ignored", []) if name not in self.inputs.ignored
            ]
        # A segment that is closed keeps its time of change and gains a line.
        for note in sorted(
            (note for note in notes if "path" in note),
            key=lambda note: (note["changed"], note["size"], note["batch"]),
        ):
            folder, slash, name = note["path"].rpartition("/")
            name = name[1:].removesuffix(".open") if name.endswith(".open") else name
            before = latest.get(f"{folder}{slash}{name}")
            if before is not None:
                self.superseded.append((before["batch"], unicode(before["path"])))
            latest[f"{folder}{slash}{name}"] = note
        return sorted(
            latest.values(),
            key=lambda note: (note["path"].rpartition("/")[2].lstrip("."), note["path"]),
        )

    def _take(self, note: Note) -> None:
        segment = Segment(**note["segment"])
        inputs = self.inputs
        inputs.segments.append(segment)
        inputs.lines += note["lines"]
        inputs.quarantined += note["quarantined"]
        inputs.problems += note["problems"]
        self.runs |= dict.fromkeys(note["runs"])
        self.has_brokers = self.has_brokers or note["brokers"]
        for key, number in note["unknown_fields"].items():
            inputs.unknown_fields[key] = inputs.unknown_fields.get(key, 0) + number
        if note["operations"]:
            self._with_operations.add((segment.node, segment.boot))

    def _drops(self, notes: list[Note]) -> None:
        told: set[tuple[str, str, int]] = set()
        for note in notes:
            node, boot = note["segment"]["node"], note["segment"]["boot"]
            for number, count in note["drops"]:
                if (node, boot, number) not in told:
                    told.add((node, boot, number))
                    self.inputs.problems.append(f"{node} {boot}: it did not write {count} events")

    def _merge(self, notes: list[Note]) -> None:
        """Count each event once: what several files hold is in `overlapping`."""
        ranges: dict[Writer, list[tuple[int, int]]] = {}
        for note in notes:
            writer = (note["segment"]["node"], note["segment"]["boot"])
            ranges.setdefault(writer, []).extend((first, last) for first, last in note["ranges"])
            self.inputs.duplicates += note["duplicates"]
        for writer, found in sorted(ranges.items()):
            numbers = self._seen[writer] = Numbers()
            total = sum(last - first + 1 for first, last in found)
            for first, last in sorted(found):
                if numbers.ends and first <= numbers.ends[-1] + 1:
                    numbers.ends[-1] = max(numbers.ends[-1], last)
                else:
                    numbers.begins.append(first)
                    numbers.ends.append(last)
            once = sum(
                last - first + 1 for first, last in zip(numbers.begins, numbers.ends, strict=True)
            )
            self.inputs.events += once
            self.inputs.duplicates += total - once
            if once < total:
                self.overlapping.append(writer)


def each_once(stored: DataFrame, files: Files) -> DataFrame:
    """Return the events of a lake, each once. Costs nothing where no file came twice."""
    spark = stored.sparkSession
    events = stored.where(~F.col("kind_group").isin("segment", "quarantine"))
    if files.superseded:
        gone = spark.createDataFrame(files.superseded, "batch string, file string")
        events = events.join(F.broadcast(gone), ["batch", "file"], "left_anti")
    if files.overlapping:
        twice = F.broadcast(spark.createDataFrame(files.overlapping, "node string, boot string"))
        several = events.join(twice, ["node", "boot"], "left_semi").dropDuplicates(
            ["node", "boot", "s"]
        )
        events = events.join(twice, ["node", "boot"], "left_anti").unionByName(several)
    return events


def quarantine_of(stored: DataFrame, files: Files, most: int) -> list[Quarantined]:
    """Return the first entries of quarantine, by file and line."""
    rows = stored.where(F.col("kind_group") == "quarantine").select(
        "batch", "file", "s", "error", "note"
    )
    if files.superseded:
        gone = stored.sparkSession.createDataFrame(files.superseded, "batch string, file string")
        rows = rows.join(F.broadcast(gone), ["batch", "file"], "left_anti")
    first = rows.orderBy("file", "s").limit(most).collect()
    return [Quarantined(row["file"], row["s"], row["error"], row["note"] or "") for row in first]
