"""The reader: whatever is wrong with a file is named with its line and does not stop the rest."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.pipeline.events import Event
from qpidha.pipeline.history import History
from qpidha.pipeline.oracle.engine import check_paths
from qpidha.pipeline.segments import LINE_BYTES, BadInput, Numbers, Quarantined, Reader
from qpidha.runtime.event_segments import SegmentWriter


def a_history(
    directory: Path,
    messages: int = 100,
    node: str = "c",
    *,
    close: bool = True,
    segment_bytes: int = 1 << 20,
) -> Path:
    history = History(directory, "r", node=node, segment_bytes=segment_bytes)
    for u in range(1, messages + 1):
        for y in ("invoke", "ok"):
            history.op(u, 1, y, "enqueue", q="q", w=1, u=u)
    for u in range(1, messages + 1):
        history.op(messages + u, 2, "ok", "dequeue", q="q", w=1, u=u, d=0)
    history.op(10**6, 2, "ok", "drain", q="q")
    if close:
        history.close()
    return sorted(directory.glob("*journal-*"))[0]


def read(*paths: Path) -> tuple[list[Event], Reader]:
    reader = Reader(paths)
    return list(reader), reader


BAD_LINES = {
    b"{nonsense": "not JSON",
    b"": "empty line",
    b"  ": "empty line",
    b"[]": "not an object",
    b"null": "not an object",
    b"\xff\xfe{}": "not UTF-8",
    b'{"k":"op","x":"\\ud800"}': "not UTF-8",
    b"[" * 100_000: "nested too deeply",
    b'{"k":NaN}': "not JSON",
    b'{"k":"op"} {"k":"op"}': "not JSON",
    b"1" * 5000: "not JSON",
    b'{"k":"op","s":99999999999999999999}': "is missing",
    b'{"k":"future","s":1}': "unknown kind 'future'",
    b'{"k":"segment","v":1}': "unknown kind 'segment'",
    b'{"n":"other","b":"0","s":0,"t":1,"m":1,"k":"epoch","e":1}': (
        "of another writer than its segment"
    ),
}


def test_each_bad_line_is_set_aside_with_its_number_and_reason_and_no_other_is(
    tmp_path: Path,
) -> None:
    path = a_history(tmp_path)
    lines = path.read_bytes().split(b"\n")
    places = {}
    for number, line in enumerate(BAD_LINES):
        lines.insert(10 + 3 * number, line)
        places[10 + 3 * number + 1] = line
    path.write_bytes(b"\n".join(lines))
    entries: list[Quarantined] = []
    reader = Reader([tmp_path], set_aside=entries.append)
    assert len(list(reader)) == 301
    assert {entry.line for entry in entries} == set(places)
    for entry in entries:
        raw = places[entry.line]
        assert BAD_LINES[raw] in entry.reason and entry.file == str(path)
        assert entry.raw.strip() == raw[:4096].decode(errors="replace").strip()
    assert any("checksum" in problem for problem in reader.inputs.problems)
    with pytest.raises(BadInput, match="15 of 316 lines are malformed"):
        check_paths([tmp_path])


def test_a_huge_line_is_set_aside_by_its_first_bytes(tmp_path: Path) -> None:
    path = a_history(tmp_path)
    lines = path.read_bytes().split(b"\n")
    lines.insert(5, b"x" * (3 * LINE_BYTES + 7))
    path.write_bytes(b"\n".join(lines))
    found, reader = read(tmp_path)
    (entry,) = reader.inputs.quarantine
    assert (
        len(found) == 301
        and entry.line == 6
        and "longer" in entry.reason
        and len(entry.raw) == 4096
    )


def test_foreign_and_empty_files_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    a_history(tmp_path)
    (tmp_path / "journal-x-1-00000001.jsonl").write_text("hello\n")
    (tmp_path / "journal-x-1-00000002.jsonl").write_bytes(b"")
    (tmp_path / "journal-x-1-00000003.jsonl").write_text('{"k":"segment","v":2,"n":"x","b":"1"}\n')
    (tmp_path / "notes.txt").write_text("none of ours")
    found, reader = read(tmp_path)
    assert len(found) == 301 and reader.inputs.ignored == [str(tmp_path / "notes.txt")]
    assert [(entry.line, entry.reason) for entry in reader.inputs.quarantine] == [
        (1, "does not begin as a segment of format 1"),
        (0, "empty file"),
        (1, "does not begin as a segment of format 1"),
    ]
    verdict = check_paths([tmp_path], names=["total-queue"])
    assert verdict["total-queue"].valid is True


def test_a_name_that_is_no_unicode_is_told_as_text(tmp_path: Path) -> None:
    for name in (b"journal-\xff-1-00000001.jsonl", b"notes-\xfe"):
        (tmp_path / os.fsdecode(name)).write_text("hello\n")
    reader = Reader([tmp_path])
    assert list(reader) == []
    (bad,), (notes,) = reader.inputs.quarantine, reader.inputs.ignored
    assert (bad.file, notes) == (
        f"{tmp_path}/journal-\\udcff-1-00000001.jsonl",
        f"{tmp_path}/notes-\\udcfe",
    )
    assert reader.inputs.segments[0].file == bad.file


def test_a_torn_tail_of_an_open_segment_is_no_loss_and_that_of_a_closed_one_is(
    tmp_path: Path,
) -> None:
    path = a_history(tmp_path, close=False)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"n":"c","b":')
    found, reader = read(tmp_path)
    assert len(found) == 301 and reader.inputs.segments[0].torn and not reader.inputs.problems
    assert (
        reader.inputs.quarantine[0].reason == "cut off"
        and reader.inputs.quarantined == 1
        and not reader.inputs.harmful
    )
    path.rename(tmp_path / path.name[1:].removesuffix(".open"))
    found, reader = read(tmp_path)
    assert len(found) == 301 and any(
        "end is missing" in problem for problem in reader.inputs.problems
    )


def test_compressed_segments_are_read_whole_or_not_at_all(tmp_path: Path) -> None:
    path = a_history(tmp_path)
    packed = tmp_path / (path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert len(read(tmp_path)[0]) == 301
    packed.write_bytes(packed.read_bytes()[:-200])
    found, reader = read(tmp_path)
    assert (
        not found
        and "cannot be read" in reader.inputs.quarantine[0].reason
        and reader.inputs.quarantine[0].line == 0
    )
    packed.write_bytes(b"not gzip at all")
    assert read(tmp_path)[1].inputs.quarantined == 1


def test_a_segment_in_two_places_counts_once(tmp_path: Path) -> None:
    a_history(tmp_path, segment_bytes=4000)
    (tmp_path / "again").mkdir()
    for path in sorted(tmp_path.glob("journal-*"))[1:3]:
        shutil.copy(path, tmp_path / "again" / path.name)
    found, reader = read(tmp_path)
    assert len(found) == 301 and reader.inputs.duplicates > 20 and not reader.inputs.problems


@pytest.mark.parametrize(
    ("which", "says"),
    [(0, "events are missing"), (2, "events are missing"), (-1, "its last segment is missing")],
)
def test_a_segment_that_is_gone_is_missed(tmp_path: Path, which: int, says: str) -> None:
    a_history(tmp_path, segment_bytes=4000)
    gone = sorted(tmp_path.glob("journal-*"))[which]
    lines = gone.read_bytes().count(b"\n") - 2
    gone.unlink()
    _, reader = read(tmp_path)
    assert any(says in problem for problem in reader.inputs.problems)
    assert reader.inputs.missing == (lines if which >= 0 else 0)
    assert check_paths([tmp_path])["evidence"].valid is None


@pytest.mark.parametrize(
    ("why", "is_problem"), [("removed journal-b-00000000-00000001.jsonl", False), ("queue", True)]
)
def test_what_a_broker_removed_is_no_loss_and_what_it_did_not_write_is(
    tmp_path: Path, why: str, is_problem: bool
) -> None:
    writer = SegmentWriter(tmp_path, "", node="b")
    writer.write(f'"k":"drop","cnt":5000,"x":"{why}"')
    writer.close()
    _, reader = read(tmp_path)
    assert [
        problem for problem in reader.inputs.problems if "did not write 5000 events" in problem
    ] == reader.inputs.problems
    assert bool(reader.inputs.problems) is is_problem


def test_a_wrong_byte_and_lines_after_the_end_are_noticed(tmp_path: Path) -> None:
    path = a_history(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"u":7', b'"u":8', 1) + b"{}\n")
    _, reader = read(tmp_path)
    assert [entry.reason for entry in reader.inputs.quarantine] == ["after the end of the segment"]
    assert any("checksum" in problem for problem in reader.inputs.problems)


def test_files_without_anything_to_judge_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no segments"):
        Reader([tmp_path])
    with pytest.raises(BadInput, match="no such file"):
        Reader([tmp_path / "nowhere"])
    (tmp_path / "journal-x-1-00000001.jsonl").write_bytes(b"")
    with pytest.raises(BadInput, match="no events"):
        check_paths([tmp_path])


def test_clocks_are_compared_by_their_names(tmp_path: Path) -> None:
    a_history(tmp_path, node="c")
    path = a_history(tmp_path / "other", node="d")
    assert Reader([tmp_path]).inputs.one_clock
    for each, clock in ((path, "elsewhere"), (next(tmp_path.glob("journal-*")), "here")):
        first, rest = each.read_bytes().split(b"\n", 1)
        head = json.loads(first) | {"clock": clock, "clock_error_us": 250}
        each.write_bytes(json.dumps(head).encode() + b"\n" + rest)
    inputs = Reader([tmp_path]).inputs
    assert not inputs.one_clock and inputs.clock_error_ns == 500_000


def test_any_text_comes_back(tmp_path: Path) -> None:
    history = History(tmp_path, 'a "run"', node="c")
    history.op(1, 1, "info", "enqueue", q="ä\n\u2028", w=1, u=1, err="broken \udcff \\ud800")
    history.close()
    found, reader = read(tmp_path)
    assert (
        found[0]["q"] == "ä\n\u2028"
        and found[0]["err"] == "broken ? \\ud800"
        and found[0]["run"] == 'a "run"'
    )
    assert not reader.inputs.quarantined


@given(st.lists(st.integers(0, 30)), st.randoms(use_true_random=False))
def test_numbers_are_a_set(numbers: list[int], choices: random.Random) -> None:
    seen: set[int] = set()
    ours = Numbers()
    for number in numbers:
        assert ours.add(number) == (number not in seen)
        seen.add(number)
    covered = [
        number
        for begin, end in zip(ours.begins, ours.ends, strict=True)
        for number in range(begin, end + 1)
    ]
    assert covered == sorted(seen)
    missing = [number for first, last in ours.gaps() for number in range(first, last + 1)]
    assert missing == (
        [number for number in range(min(seen), max(seen)) if number not in seen] if seen else []
    )
