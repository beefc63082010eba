"""Histories come back as they were written, also from a writer that was killed, and the checker
finds what is planted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.soak.checker import check
from tests.soak.history import History, read


def written(directory: Path, **options: Any) -> History:
    history = History(directory, "run", **options)
    for u in range(1, 6):
        i = f"1-{u}-{u}"
        history.op(u, 1, "invoke", "enqueue", q="q", w=1, u=u, i=i)
        history.op(u, 1, "ok", "enqueue", q="q", w=1, u=u, i=i)
        history.op(100 + u, 2, "invoke", "dequeue", q="q")
        history.op(100 + u, 2, "ok", "dequeue", q="q", w=1, u=u, d=0, i=i)
        history.op(200 + u, 2, "invoke", "ack", q="q", w=1, u=u, i=i)
        history.op(200 + u, 2, "ok", "ack", q="q", w=1, u=u, i=i)
    history.op(300, 2, "invoke", "drain", q="q")
    history.op(300, 2, "ok", "drain", q="q")
    return history


def test_a_closed_segment_has_head_foot_and_checksum_and_is_read_back(tmp_path: Path) -> None:
    written(tmp_path).close()
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("journal-client-") and path.name.endswith("-00000001.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["k"] == "segment" and lines[0]["v"] == 1
    assert (
        lines[-1]["k"] == "segment"
        and lines[-1]["end"] is True
        and lines[-1]["lines"] == len(lines) - 2 == 32
    )
    assert [line["s"] for line in lines[1:-1]] == list(range(32))
    found = read(tmp_path)
    assert len(found.events) == 32 and not found.problems and not found.incomplete
    verdict = check(found)
    assert verdict.valid is True and verdict.counts["accepted"] == verdict.counts["delivered"] == 5


def test_segments_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    written(tmp_path, segment_bytes=1000).close()
    found = read(tmp_path)
    assert found.segments > 3 and not found.problems and len(found.events) == 32


def test_a_writer_that_is_killed_leaves_whole_lines_in_a_hidden_file(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from tests.soak.history import History; h = "
        "History(pathlib.Path(sys.argv[1]), 'r'); n = 0\n"
        "while True:\n    n += 1; h.op(n, 1, 'invoke', 'enqueue', q='q', w=1, u=n, "
        "i=str(n)); print(n, flush=True)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    said = [int(process.stdout.readline()) for _ in range(200)][-1]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    (path,) = tmp_path.iterdir()
    assert path.name.startswith(".journal-") and path.name.endswith(".jsonl.open")
    found = read(tmp_path)
    assert len(found.events) >= said and not found.problems and found.incomplete == [path.name]


def test_a_torn_last_line_is_left_out_and_counted(tmp_path: Path) -> None:
    history = written(tmp_path)
    os.write(history._file, b'{"n":"x","b":')
    found = read(tmp_path)
    assert len(found.events) == 32 and found.torn == 1 and not found.problems


Change = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def without(f: str, u: int) -> Change:
    return lambda events: [
        event for event in events if not (event["f"] == f and event.get("u") == u)
    ]


def swapped(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    places = [
        at for at, event in enumerate(events) if event["f"] == "dequeue" and event["y"] == "ok"
    ]
    events[places[1]], events[places[2]] = events[places[2]], events[places[1]]
    return events


def again(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    taken = next(event for event in events if event["f"] == "dequeue" and event["y"] == "ok")
    return [*events, taken]


def rejected(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for event in events:
        if event["f"] == "enqueue" and event["y"] == "ok" and event["u"] == 3:
            event["y"] = "fail"
    return events


@pytest.mark.parametrize(
    ("change", "check_name", "valid"),
    [
        (without("dequeue", 3), "lost", False),
        (without("enqueue", 3), "unexpected", False),
        (swapped, "disorder", False),
        (again, "resurrected", False),
        (rejected, "phantom", False),
        (
            lambda events: [
                event for event in without("dequeue", 3)(events) if event["f"] != "drain"
            ],
            "missing",
            None,
        ),
    ],
    ids=["lost", "unexpected", "disorder", "resurrected", "phantom", "not drained"],
)
def test_what_is_planted_is_found(
    tmp_path: Path, change: Change, check_name: str, valid: bool | None
) -> None:
    written(tmp_path).close()
    found = read(tmp_path)
    found.events = change(found.events)
    verdict = check(found)
    assert verdict.counts[check_name] == 1 and verdict.valid is valid


def test_a_history_in_which_nothing_was_accepted_shows_nothing(tmp_path: Path) -> None:
    History(tmp_path, "run").fault(1, "start", "kill", "b0")
    assert check(read(tmp_path)).valid is None


def test_damaged_evidence_is_no_evidence(tmp_path: Path) -> None:
    written(tmp_path).close()
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes().replace(b'"u":4', b'"u":5', 1))
    assert any("checksum" in reason for reason in check(read(tmp_path)).reasons)
