"""The segments of a batch as a Spark data source: each task reads whole files, by the reader that
the plain Python engine has too.

So there is one definition of what is malformed, with file, line and reason. A file gives its
events, a row for each line that was set aside, and one that says what is known of the file. Nothing
that is in a file stops the others. Memory of a task: CHUNK events, and KEPT_LINES lines in
quarantine. Knows no lake and no checks. Why so: docs/internals/pipeline.md, "Ingestion".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from qpidha.pipeline.events import Event
from qpidha.pipeline.segments import BadInput, Quarantined, Reader, Segment, is_loss, unicode
from qpidha.pipeline.spark.schema import ARROW, WRITTEN, record_batch

CHUNK = 20_000
"""Events of an Arrow batch."""
KEPT_LINES = 10_000
"""Lines of one file that are kept in quarantine; all are counted."""
NAME = "qpidha_segments"


class SegmentReader(Reader):
    """One file. What is missing between files is for him to say who knows them all."""

    def _survey(self) -> None:
        """Look at no clocks: there is one file."""

    def _complete(self) -> None:
        """Miss nothing."""

    def note(self) -> dict[str, Any]:
        """Return what is known of the file when all of it is read."""
        inputs = self.inputs
        segment = (
            inputs.segments[0]
            if inputs.segments
            else Segment(unicode(self.files[0]), state="damaged")
        )
        seen = self._seen.get((segment.node, segment.boot))
        return {
            "segment": asdict(segment),
            "events": inputs.events,
            "duplicates": inputs.duplicates,
            "lines": inputs.lines,
            "quarantined": inputs.quarantined,
            # What is said of a writer rather than of the file comes from its events.
            "problems": [
                problem for problem in inputs.problems if problem.startswith(f"{segment.file}: ")
            ],
            "ranges": list(zip(seen.begins, seen.ends, strict=True)) if seen else [],
            "operations": (segment.node, segment.boot) in self._with_operations,
            "unknown_fields": inputs.unknown_fields,
        }


class Noted:
    """What the note of a file says of its events: runs, whether a broker wrote, and what was not
    written.
    """

    def __init__(self) -> None:
        self.runs: dict[str, None] = {}
        self.brokers = False
        self.drops: list[tuple[int, int]] = []

    def add(self, chunk: list[Event]) -> None:
        """Look at events."""
        for event in chunk:
            kind = event["k"]
            if kind in ("op", "fault"):
                self.runs[event["run"]] = None
                continue
            self.brokers = True
            if kind == "drop" and is_loss(event):
                self.drops.append((event["s"], event["cnt"]))


def file_rows(path: str, size: int, changed: int) -> Iterator[pyarrow.RecordBatch]:
    """Yield everything that a file holds; `size` and `changed` are those that it had when it was
    found.
    """
    aside: list[Quarantined] = []
    kept = _Kept(aside)
    noted = Noted()
    found = Path(path)
    closed = found.with_name(found.name[1:].removesuffix(".open"))
    try:
        # A writer may have closed it since it was found.
        reader = SegmentReader(
            [found if found.exists() or closed.name == found.name[1:] else closed],
            set_aside=kept.put,
        )
    except BadInput as gone:
        segment = Segment(unicode(path), state="damaged")
        note = {
            "segment": asdict(segment),
            "events": 0,
            "duplicates": 0,
            "lines": 0,
            "quarantined": 1,
            "problems": [],
            "ranges": [],
        }
        note |= {
            "operations": False,
            "unknown_fields": {},
            "runs": [],
            "brokers": False,
            "drops": [],
        }
        yield _notes([note | {"path": path, "size": size, "changed": changed}])
        yield _quarantine([Quarantined(path, 0, f"cannot be read: {gone}")])
        return
    chunk: list[Event] = []
    for event in reader:
        chunk.append(event)
        if len(chunk) >= CHUNK:
            noted.add(chunk)
            yield record_batch(chunk, path)
            chunk = []
    if chunk:
        noted.add(chunk)
        yield record_batch(chunk, path)
    if aside:
        yield _quarantine(aside)
    note = reader.note() | {
        "runs": list(noted.runs),
        "brokers": noted.brokers,
        "drops": noted.drops,
    }
    yield _notes([note | {"path": path, "size": size, "changed": changed}])


class _Kept:
    """The first lines that were set aside."""

    def __init__(self, entries: list[Quarantined]) -> None:
        self._entries = entries

    def put(self, entry: Quarantined) -> None:
        if len(self._entries) < KEPT_LINES:
            self._entries.append(entry)


def _rows(group: str, columns: dict[str, Sequence[Any]]) -> pyarrow.RecordBatch:
    """Return rows that are no events: most columns are empty."""
    size = len(next(iter(columns.values())))
    columns = columns | {"kind_group": [group] * size}
    arrays = [
        pyarrow.array(columns[field.name], field.type)
        if field.name in columns
        else pyarrow.nulls(size, field.type)
        for field in ARROW
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=ARROW)


def _quarantine(entries: list[Quarantined]) -> pyarrow.RecordBatch:
    return _rows(
        "quarantine",
        {
            "file": [unicode(entry.file) for entry in entries],
            "s": [entry.line for entry in entries],
            "error": [unicode(entry.reason) for entry in entries],
            "note": [unicode(entry.raw) for entry in entries],
        },
    )


def _notes(notes: list[dict[str, Any]]) -> pyarrow.RecordBatch:
    return _rows(
        "segment",
        {
            "file": [unicode(note.get("path", "")) for note in notes],
            "note": [json.dumps(note) for note in notes],
        },
    )


class Files(InputPartition):  # type: ignore[misc]
    """What one task reads: path, size and time of change of each file."""

    def __init__(self, files: list[tuple[str, int, int]], ignored: list[str]) -> None:
        super().__init__(0)
        self.files = files
        self.ignored = ignored


class SegmentsReader(DataSourceReader):  # type: ignore[misc]
    """Hands files to tasks."""

    def __init__(self, tasks: list[list[tuple[str, int, int]]], ignored: list[str]) -> None:
        self._tasks = tasks
        self._ignored = ignored

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition a task; the first also notes which files are none of ours."""
        return [
            Files(files, [] if number else self._ignored)
            for number, files in enumerate(self._tasks)
        ]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read the files of one task."""
        assert isinstance(partition, Files)
        if partition.ignored:
            yield _notes([{"ignored": partition.ignored}])
        for path, size, changed in partition.files:
            yield from file_rows(path, size, changed)


class SegmentsSource(DataSource):  # type: ignore[misc]
    """Option `tasks`: the files of each task; `ignored`: names of other files; both as JSON."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return what ingestion writes."""
        return WRITTEN

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the files that the options name."""
        return SegmentsReader(
            json.loads(self.options["tasks"]), json.loads(self.options.get("ignored", "[]"))
        )
