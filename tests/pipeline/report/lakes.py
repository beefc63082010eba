"""Lakes without Spark: the tables of a run as a check leaves them, made from events, or from rows
by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from qpidha.pipeline.columns import LAKE_SCHEMA, TABLES, run_folder
from qpidha.pipeline.events import Event
from qpidha.pipeline.oracle.facts import Facts
from qpidha.pipeline.verdict import Verdict
from tests.pipeline.builders import Story

TYPES = {
    "string": pyarrow.string(),
    "tinyint": pyarrow.int8(),
    "int": pyarrow.int32(),
    "bigint": pyarrow.int64(),
    "boolean": pyarrow.bool_(),
}
SECOND = 1_000_000_000


def put(lake: Path, run: str, name: str, rows: Iterable[dict[str, Any]], *, files: int = 1) -> None:
    """Write a table of a run, as several files if asked to."""
    folder = lake / run_folder(run) / name
    folder.mkdir(parents=True, exist_ok=True)
    listed = list(rows)
    schema = pyarrow.schema([(column, TYPES[type_]) for column, type_, *_ in TABLES[name][1]])
    for number in range(files):
        part = pyarrow.Table.from_pylist(listed[number::files], schema=schema)
        parquet.write_table(part, folder / f"part-{number}.parquet", compression="zstd")


def traffic(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return the rows of traffic_1s."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for event in events:
        if event["k"] == "op":
            key = (event["q"], event["m"] // SECOND)
            names = [column for column, type_, *_ in TABLES["traffic_1s"][1] if type_ == "bigint"]
            row = rows.setdefault(
                key, dict.fromkeys(names, 0) | {"queue": key[0], "second": key[1]}
            )
            name = f"{event['f']}_{event['y']}"
            if name in row:
                row[name] += 1
    return list(rows.values())


def second(queue: str, at: int, **counts: int) -> dict[str, Any]:
    """Return one row of traffic_1s."""
    names = [column for column, type_, *_ in TABLES["traffic_1s"][1] if type_ == "bigint"]
    return dict.fromkeys(names, 0) | {"queue": queue, "second": at, **counts}


def lake_of(story: Story, verdict: Verdict, folder: Path, **tables: list[dict[str, Any]]) -> Path:
    """Write verdict.json and all tables of a story into a folder; `tables` replace those of the
    same name. Return the folder.
    """
    facts = Facts(verdict.run)
    for event in story.events:
        facts.add(event)
    facts.finish()
    lake = folder / "lake"
    lake.mkdir(parents=True)
    (lake / "lake.json").write_text(json.dumps({"schema": LAKE_SCHEMA}))
    roles = []
    for (node, boot), noted in sorted(facts.roles.items()):
        ordered = sorted(noted)
        ends = [*(at for _, at, *_ in ordered[1:]), facts.writer_ends[node, boot]]
        roles += [
            {"node": node, "boot": boot, "role": role, "epoch": epoch, "from_ns": at, "to_ns": end}
            for (_, at, role, epoch), end in zip(ordered, ends, strict=True)
        ]
    known = {check.name: check for check in verdict.checks}
    is_empty = facts.run_end < 0
    made = {
        "traffic_1s": traffic(story.events),
        "latency_1s": [],
        "roles": roles,
        "around": [],
        "faults": [
            {
                "op_id": fault.number,
                "kind": fault.kind,
                "target": fault.target,
                "start_ns": fault.start,
                "stop_ns": fault.stop if fault.stop < 1 << 62 else None,
            }
            for fault in facts.faults.values()
        ],
        "failovers": known["failover"].table if "failover" in known else [],
        "windows": [row for row in known["availability"].table if row["what"] == "window"]
        if "availability" in known
        else [],
        "run": [
            {
                "run": verdict.run,
                "start_ns": None if is_empty else facts.run_start,
                "end_ns": None if is_empty else facts.run_end,
                "offset_ns": 1_750_000_000 * SECOND,
                "epsilon_ns": 0,
            }
        ],
    }
    for name, rows in (made | tables).items():
        put(lake, verdict.run, name, rows)
    verdict.write(folder)
    return folder


def around(check: str, what: str, example: int, events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return rows of the table `around`."""
    return [
        {
            "check": check,
            "what": what,
            "example": example,
            "at_ns": event["m"],
            "node": event["n"],
            "boot": event["b"],
            "s": event["s"],
            "kind": event["k"],
            "event": json.dumps(event),
        }
        for event in events
    ]
