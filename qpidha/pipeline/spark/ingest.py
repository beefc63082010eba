"""Ingestion: segments become tables, in batches, from a list of files or as a stream of files that
appear.

Both ways write a batch with the same function into one folder that is overwritten, so that a batch
written again after a crash changes nothing. A file that changed since is read again and replaces
what it was; a file that comes late or twice is harmless. One ingestion writes to a lake at a time.
Open segments are read in a list and left out of a stream, where they come when closed. Why so:
docs/internals/pipeline.md, "Ingestion".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from qpidha.pipeline.segments import KEPT, BadInput, find
from qpidha.pipeline.spark.lake import Lake, Note
from qpidha.pipeline.spark.source import NAME, SegmentsSource

TASK_BYTES = 256 << 20
"""Files of a task; a file is never split."""
FILES_PER_TRIGGER = 1000
GLOB = re.compile(r"[\\{}\[\]*?,^]")
"""What means something in a path of Hadoop."""
ONCE, STREAM = "once-", "stream-"

File = tuple[str, int, int]
"""Path, size and time of change in ns."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """What a call of `ingest` brought into the lake."""

    batches: tuple[str, ...]
    files: int
    events: int
    duplicates: int
    """Within a file; those between files are found when the tables are read."""
    quarantined: int
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return what a command prints."""
        return {name: getattr(self, name) for name in self.__slots__}


def ingest(lake: Lake, paths: Iterable[Path]) -> Ingested:
    """Read the segments in files and directories that are new or have changed, as one batch."""
    found, ignored = find(paths)
    if not found:
        raise BadInput("no segments: files named journal-<node>-<boot>-<number>.jsonl")
    before = (
        {(note["path"], note["size"], note["changed"]) for note in lake.notes() if "path" in note}
        if lake.batches()
        else set()
    )
    files = [file for file in map(described, found) if file not in before]
    if not files:
        return Ingested((), 0, 0, 0, 0, ())
    batch = lake.create().next_batch(ONCE)
    write_batch(lake, batch, files, ignored)
    return summary(lake, [batch])


def described(path: Path) -> File:
    """Return a file as it is now; size -1: it is gone."""
    try:
        stat = path.stat()
    except OSError:
        return str(path.absolute()), -1, 0
    return str(path.absolute()), stat.st_size, stat.st_mtime_ns


def write_batch(lake: Lake, batch: str, files: Sequence[File], ignored: Sequence[str] = ()) -> None:
    """Write the rows of files as one batch: the same function for lists and for streams."""
    spark = lake.spark
    spark.dataSource.register(SegmentsSource)
    tasks = shared_out(files, spark.sparkContext.defaultParallelism)
    reader = (
        spark.read.format(NAME)
        .option("tasks", json.dumps(tasks))
        .option("ignored", json.dumps(list(ignored)[:KEPT]))
    )
    reader.load().write.mode("overwrite").partitionBy("kind_group").parquet(lake.batch_path(batch))


def shared_out(files: Sequence[File], cores: int) -> list[list[File]]:
    """Return the files of each task: the largest first, each to the task that has the least."""
    total = sum(max(size, 0) for _, size, _ in files)
    number = min(len(files), max(cores, -(-total // TASK_BYTES)))
    tasks: list[list[File]] = [[] for _ in range(number)]
    sizes = [0] * number
    for file in sorted(files, key=lambda file: -file[1]):
        least = sizes.index(min(sizes))
        tasks[least].append(file)
        sizes[least] += max(file[1], 1)
    return tasks


def summary(lake: Lake, batches: Sequence[str]) -> Ingested:
    """Return what batches brought."""
    notes: list[Note] = [note for note in lake.notes(batches) if "path" in note]
    problems = tuple(problem for note in notes for problem in note["problems"])
    events, duplicates, quarantined = (
        sum(note[name] for note in notes) for name in ("events", "duplicates", "quarantined")
    )
    return Ingested(tuple(batches), len(notes), events, duplicates, quarantined, problems)


def follow(lake: Lake, directories: Sequence[Path], *, seconds: float = 0.0) -> Any:
    """Start a query that ingests closed segments as they appear, every so many seconds; 0: all
    there are now, then it ends.
    """
    for directory in directories:
        if not directory.is_dir():
            raise BadInput(f"{directory}: no such directory")
    lake.create()
    checkpoint = f"{lake.root}/checkpoint"
    source = lake.spark.readStream.format("binaryFile").option("recursiveFileLookup", "true")
    # The default leaves out files a week older than the newest: those that come late.
    source = source.option("pathGlobFilter", "journal-*.jsonl*").option("maxFileAge", "3650d")
    source = source.option("maxFilesPerTrigger", str(FILES_PER_TRIGGER)).schema(
        "path string, modificationTime timestamp, length bigint, content binary"
    )
    names = [str(directory.absolute()) for directory in directories]
    if odd := [name for name in names if GLOB.search(name)]:
        raise BadInput(
            f"{odd[0]}: Spark takes such a name for a pattern and cannot follow it; "
            "rename it, or ingest it without a stream"
        )
    files = source.load(names[0] if len(names) == 1 else "{" + ",".join(names) + "}").select("path")
    query = files.writeStream.foreachBatch(_Batches(lake, checkpoint).write).option(
        "checkpointLocation", checkpoint
    )
    query = (
        query.trigger(processingTime=f"{round(seconds * 1000)} milliseconds")
        if seconds
        else query.trigger(availableNow=True)
    )
    return query.start()


class _Batches:
    """Writes the batches of a stream."""

    def __init__(self, lake: Lake, checkpoint: str) -> None:
        self._lake = lake
        self._checkpoint = checkpoint

    def write(self, rows: DataFrame, number: int) -> None:
        """Write batch `number`: again under the same name, should it be the second time."""
        paths = sorted(Path(local_path(row["path"])) for row in rows.collect())
        if paths:
            write_batch(
                self._lake,
                f"{STREAM}{self._query()}-{number:06d}",
                [described(path) for path in paths],
            )

    def _query(self) -> str:
        """Return the name of the query: a new checkpoint counts from 0 again and must not overwrite
        what another wrote.
        """
        spark: SparkSession = self._lake.spark
        row = spark.read.text(f"{self._checkpoint}/metadata").first()
        return str(json.loads(row[0])["id"])[:8]


def local_path(url: str) -> str:
    """Return the path of a file that Spark names."""
    path = Path("/" + url.removeprefix("file:").lstrip("/"))
    return str(path if path.exists() else unquote(str(path)))
