"""The journal of a stopped broker: what the commands find in it, and what they say of damage."""

from __future__ import annotations

import errno
import json
import os
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qpidha.model import message_view
from qpidha.model.records import Dequeued, LinkDeclared
from qpidha.store.codec import encode_enqueues, encode_record
from qpidha.store.frames import CHUNK, END, HEAD
from qpidha.tools.journal.files import Folder, Place
from tests.cli.conftest import Said
from tests.cli.journals import Written

Run = Callable[..., Said]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with two queues: three messages on `orders`, of which one has left, and one
    on `bills`.
    """
    written = Written(tmp_path / "data")
    written.declare("orders")
    written.declare("bills")
    written.seal()
    written.send("orders", "a", "b", "c")
    written.send("bills", "x")
    queue = written.broker.queues["orders"]
    first = next(iter(queue.messages))
    written.log.append(Dequeued(queue.uid, (first,)))
    written.seal()
    written.close()
    return tmp_path / "data"


def read_json(said: Said) -> Any:
    assert said.err == "", said
    return json.loads(said.out)


def test_a_sound_journal_is_verified_file_by_file(data: Path, qpid_ha: Run) -> None:
    said = qpid_ha("journal", "verify", str(data))
    assert said.code == 0 and said.out.splitlines()[-1] == "verdict: good"
    found = read_json(qpid_ha("journal", "verify", str(data), "-o", "json"))
    (row,) = found["files"]
    assert (found["verdict"], row["state"], row["unread_bytes"], row["first"]) == (
        "good",
        "good",
        0,
        1,
    )
    assert (
        row["records"] == 2 + 3 + 1 + 1
        and row["bytes"] == next(data.glob("journal/*.log")).stat().st_size
    )


def test_what_a_power_cut_left_is_harmless_and_said(data: Path, qpid_ha: Run) -> None:
    segment = next(data.glob("journal/*.log"))
    segment.write_bytes(segment.read_bytes() + b"\xa7Q torn")
    said = qpid_ha("journal", "verify", str(data))
    assert (
        said.code == 1
        and "verdict: torn" in said.out
        and "nothing that was accepted is lost" in said.out
    )
    assert segment.read_bytes().endswith(b"torn")  # looking changes nothing


def three_synced(folder: Path) -> Path:
    """Write a data directory with messages a, b and c, each known to be synced, and return the one
    segment.
    """
    written = Written(folder)
    written.declare("orders")
    written.seal()
    for content in ("a", "b", "c"):
        written.send("orders", content)
        written.log.synced = written.log.last
    written.close()
    (segment,) = written.segments
    return segment


def test_damage_before_what_was_synced_is_65(tmp_path: Path, qpid_ha: Run) -> None:
    segment = three_synced(tmp_path / "data")
    content = bytearray(segment.read_bytes())
    content[content.index(b"id-b")] ^= 1
    segment.write_bytes(content)
    said = qpid_ha("journal", "verify", str(tmp_path / "data"))
    assert said.code == 65 and segment.name in said.out and "verdict: damaged" in said.out
    found = json.loads(qpid_ha("journal", "verify", str(tmp_path / "data"), "-o", "json").out)
    assert found["files"][0]["state"] == "damaged" and found["damaged"]
    # What is around the damage can be had all the same.
    said = qpid_ha("journal", "salvage", str(tmp_path / "data"), "--out", "-")
    assert [
        message_view.body(b64decode(json.loads(line)["payload"])) for line in said.out.splitlines()
    ] == ["a", "c"]
    assert (
        said.code == 65
        and f"not readable: {segment.name}" in said.err
        and "may be missing here" in said.err
    )
    listed = qpid_ha("journal", "list", str(tmp_path / "data"))
    assert listed.code == 65 and f"not readable: {segment.name}" in listed.err
    dumped = qpid_ha("journal", "dump", str(tmp_path / "data"))
    assert (
        dumped.code == 65
        and f"not readable: {segment.name}" in dumped.err
        and len(dumped.out.splitlines()) == 1 + 2
    )


@pytest.fixture
def compacted(tmp_path: Path, qpid_ha: Run) -> Path:
    """A data directory with 2,000 messages, all but the last of them in a checkpoint of several
    chunks.
    """
    written = Written(tmp_path / "data")
    written.declare("orders")
    written.seal()
    written.send("orders", *(f"{number:04}" + "x" * 1000 for number in range(1999)))
    written.send("orders", "last")
    written.close()
    assert qpid_ha("journal", "compact", str(tmp_path / "data")).code == 0
    return tmp_path / "data"


def chunks_of(checkpoint: Path) -> list[Place]:
    return [
        place
        for found in Folder(checkpoint.parent).files
        if found.kind == "checkpoint"
        for place in found.frames
    ]


@pytest.mark.parametrize(
    ("kind", "which"), [(CHUNK, 1), (CHUNK, -1), (CHUNK, 0), (END, 0), (HEAD, 0)]
)
def test_of_a_damaged_checkpoint_all_that_is_sound_is_salvaged(
    compacted: Path, qpid_ha: Run, kind: int, which: int
) -> None:
    (checkpoint,) = (compacted / "journal").glob("*.checkpoint")
    places = chunks_of(checkpoint)
    assert sum(place.kind == CHUNK for place in places) > 3
    hurt = [place for place in places if place.kind == kind][which]
    content = bytearray(checkpoint.read_bytes())
    content[hurt.offset + hurt.size // 2] ^= 1
    gone = content.count(b"id-", hurt.offset, hurt.offset + hurt.size)
    checkpoint.write_bytes(content)
    assert qpid_ha("journal", "verify", str(compacted)).code == 65
    said = qpid_ha("journal", "salvage", str(compacted), "--out", "-")
    assert said.code == 65 and f"not readable: {checkpoint.name}" in said.err
    assert len(said.out.splitlines()) == 2000 - gone and (gone > 0) == (
        kind == CHUNK and which != 0
    )


def test_around_a_damaged_head_messages_are_found_also_where_no_other_file_tells_the_salt(
    tmp_path: Path, qpid_ha: Run
) -> None:
    segment = three_synced(tmp_path / "data")
    content = bytearray(segment.read_bytes())
    content[10] ^= 1
    content[content.index(b"id-b")] ^= 1
    segment.write_bytes(content)
    assert qpid_ha("journal", "verify", str(tmp_path / "data")).code == 65
    said = qpid_ha("journal", "salvage", str(tmp_path / "data"), "--out", "-")
    assert [
        message_view.body(b64decode(json.loads(line)["payload"])) for line in said.out.splitlines()
    ] == ["a", "c"]
    assert said.code == 65


@pytest.mark.parametrize("damage", ["cut", "remove"])
def test_what_is_gone_since_a_stop_in_good_order_is_65(
    tmp_path: Path, qpid_ha: Run, damage: str
) -> None:
    written = Written(tmp_path / "data")
    written.declare("orders")
    written.send("orders", "a", "b")
    written.seal()
    written.wal.end_in_order(written.log.last)
    written.close()
    assert qpid_ha("journal", "verify", str(tmp_path / "data")).code == 0
    (segment,) = written.segments
    if damage == "cut":
        segment.write_bytes(segment.read_bytes()[:-5])
    else:
        segment.unlink()
    said = qpid_ha("journal", "verify", str(tmp_path / "data"))
    assert said.code == 65 and segment.name in said.out and "in good order" in said.out


def test_a_directory_that_may_not_be_read_is_no_wrong_usage(
    data: Path, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Any, *flags: int) -> int:
        if str(path).startswith(str(data)):
            raise PermissionError(13, "Permission denied", path)
        return really(path, *flags)

    really = os.open
    monkeypatch.setattr("qpidha.runtime.data_dir.os.open", denied)  # root may read everything
    said = qpid_ha("journal", "list", str(data))
    assert (
        said.code == 77 and "permission denied" in said.err and "as the broker's user" in said.err
    )


def test_what_keeps_a_broker_from_starting_beside_the_journal_is_said(
    data: Path, qpid_ha: Run
) -> None:
    (data / "state").write_text("{")
    said = qpid_ha("journal", "verify", str(data))
    assert (
        said.code == 65
        and "damaged: the state file cannot be read" in said.out
        and said.out.endswith("verdict: damaged\n")
    )
    (data / "state").unlink()
    said = qpid_ha("journal", "verify", str(data))
    assert said.code == 65 and "damaged: the state file is gone" in said.out
    (data / "systemId").write_text("x")
    said = qpid_ha("journal", "verify", str(data))
    assert (
        said.code == 78
        and "put the former one back" in said.err
        and "stop the broker" not in said.err
    )


def test_a_journal_without_files_is_said_to_be_empty(data: Path, qpid_ha: Run) -> None:
    for file in (data / "journal").iterdir():
        file.unlink()
    said = qpid_ha("journal", "verify", str(data))
    assert said.code == 0 and "no files: a broker starts with nothing" in said.out


def test_list_shows_live_messages_and_how_far_the_log_goes(data: Path, qpid_ha: Run) -> None:
    found = read_json(qpid_ha("journal", "list", str(data), "-o", "json"))
    assert [(row["queue"], row["messages"], row["durable"]) for row in found["queues"]] == [
        ("orders", 2, True),
        ("bills", 1, True),
    ]
    assert found["epoch"] == 1 and found["last"] == 7 and found["discarded"] == []
    assert found["in_sync"] == {"epoch": 0, "version": 0, "members": []} and all(
        row["bytes"] > 0 for row in found["queues"]
    )
    said = qpid_ha("journal", "list", str(data))
    assert said.code == 0 and "orders  2" in said.out


def test_dump_gives_one_line_of_json_for_each_record(data: Path, qpid_ha: Run) -> None:
    lines = [json.loads(line) for line in qpid_ha("journal", "dump", str(data)).out.splitlines()]
    assert [line["record"] for line in lines] == ["QueueDeclared"] * 2 + ["Enqueued"] * 4 + [
        "Dequeued"
    ]
    message = lines[2]
    assert (
        message["queues"] == ["orders"]
        and message["durable"] is True
        and message["properties"] == {"message_id": "id-a"}
    )
    assert (
        "payload" not in message
        and message["bytes"] > 0
        and message["epoch"] == 1
        and message["sequence"] == 3
    )
    assert lines[-1]["queue"] == "orders" and lines[-1]["sequences"] == [3]
    lines = [
        json.loads(line)
        for line in qpid_ha("journal", "dump", "--bodies", str(data)).out.splitlines()
    ]
    assert message_view.body(b64decode(lines[2]["payload"])) == "a"


def test_dump_shows_no_password_of_a_link_and_nobody_else_can_read_the_file(
    tmp_path: Path, qpid_ha: Run
) -> None:
    written = Written(tmp_path / "d")
    link = LinkDeclared("l", "u", ["h:1"], "", "ann", "hush", durable=True)
    written.log.append(link)
    written.seal()
    written.close()
    said = qpid_ha("journal", "dump", str(tmp_path / "d"))
    (line,) = [json.loads(line) for line in said.out.splitlines()]
    assert (line["record"], line["username"], line["password"]) == (
        "LinkDeclared",
        "ann",
        "(secret)",
    )
    files = [path for path in (tmp_path / "d" / "journal").iterdir() if path.is_file()]
    assert any(b"hush" in path.read_bytes() for path in files)
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_salvage_writes_the_messages_of_one_queue_or_all(
    data: Path, qpid_ha: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    said = qpid_ha("journal", "salvage", str(data), "--queue", "orders", "--out", str(out))
    assert out.stat().st_mode & 0o77 == 0
    assert said == Said(0, "", "2 messages, 2 written\n")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["queue"], message_view.body(b64decode(line["payload"]))) for line in lines] == [
        ("orders", "b"),
        ("orders", "c"),
    ]
    said = qpid_ha("journal", "salvage", str(data), "--out", str(out))
    assert (
        said.code == 1 and "is there already" in said.err and len(out.read_text().splitlines()) == 2
    )  # nothing is overwritten
    assert len(qpid_ha("journal", "salvage", str(data), "--out", "-").out.splitlines()) == 3
    said = qpid_ha("journal", "salvage", str(data), "--queue", "other", "--out", "-")
    assert said.code == 66 and "no queue other" in said.err
    assert qpid_ha("journal", "salvage", str(data)).code == 2
    assert qpid_ha("journal", "dump", str(data), "--discarded", "discarded-1").code == 66


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_file_that_salvage_cannot_write_is_named_and_not_left_by_half(
    data: Path, qpid_ha: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    out = tmp_path / "out.jsonl"

    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if call == "fsync":
            patch.setattr(os, "fsync", full)
        else:
            patch.setattr("qpidha.tools.journal.salvage.Salvage.lines", full)
        said = qpid_ha("journal", "salvage", str(data), "--out", str(out))
    assert (
        said.code == 1
        and f"{out} cannot be written: no space left on device" in said.err.lower()
        and "internal" not in said.err
    )
    assert not out.exists()
    assert (
        qpid_ha("journal", "salvage", str(data), "--out", str(out)).code == 0
        and len(out.read_text().splitlines()) == 3
    )


def test_what_salvage_wrote_is_synced_with_its_name(
    data: Path, qpid_ha: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file))
    )
    assert qpid_ha("journal", "salvage", str(data), "--out", str(tmp_path / "out.jsonl")).code == 0
    assert synced[-2:] == [str(tmp_path / "out.jsonl"), str(tmp_path)]


def test_salvage_into_a_directory_that_is_not_there_is_no_bug(
    data: Path, qpid_ha: Run, tmp_path: Path
) -> None:
    said = qpid_ha(
        "journal", "salvage", str(data), "--out", str(tmp_path / "nowhere" / "out.jsonl")
    )
    assert said.code == 1 and "no such file" in said.err.lower()


def test_a_cut_tail_is_listed_with_counts_and_salvaged_by_name(
    tmp_path: Path, qpid_ha: Run
) -> None:
    written = Written(tmp_path / "data")
    written.declare("orders")
    written.seal()
    written.send("orders", "kept")
    common = written.log.last
    written.send("orders", "cut", "off")
    written.log.cut(common)
    written.close()
    data = str(tmp_path / "data")
    found = read_json(qpid_ha("journal", "list", data, "-o", "json"))
    (row,) = found["discarded"]
    assert (row["messages"], row["after"], row["first"], row["last"]) == (
        2,
        common,
        common + 1,
        common + 2,
    )
    assert [(row["queue"], row["messages"]) for row in found["queues"]] == [("orders", 1)]
    said = qpid_ha("journal", "salvage", data, "--discarded", row["name"], "--out", "-")
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert [(line["queue"], message_view.body(b64decode(line["payload"]))) for line in lines] == [
        ("orders", "cut"),
        ("orders", "off"),
    ]
    dumped = [
        json.loads(line)
        for line in qpid_ha("journal", "dump", data, "--discarded", row["name"]).out.splitlines()
    ]
    assert [line["queues"] for line in dumped] == [["orders"], ["orders"]]
    said = qpid_ha("journal", "salvage", data, "--discarded", "discarded-1", "--out", "-")
    assert said.code == 66 and row["name"] in said.err


def test_a_whole_log_that_was_replaced_is_salvaged_from_where_it_differs(
    tmp_path: Path, qpid_ha: Run
) -> None:
    written = Written(tmp_path / "data")
    written.declare("orders")
    written.seal()
    written.send("orders", "common")
    common = written.log.last
    written.send("orders", "ours", "gone")
    queue = written.broker.queues["orders"]
    written.log.append(Dequeued(queue.uid, (list(queue.messages)[-1],)))
    written.seal()
    declared = encode_record(queue.uid, queue.options)
    written.log.reset(20, [(1, 1), (2, common + 1)])
    written.log.chunk(
        declared
        + encode_enqueues(
            queue.uid, [common, 10], [b"\x00Sw\xa1\x06common", b"\x00Sw\xa1\x06theirs"], []
        )
    )
    written.log.snapshot_end(20)
    written.close()
    data = str(tmp_path / "data")
    found = read_json(qpid_ha("journal", "list", data, "-o", "json"))
    (row,) = found["discarded"]
    assert (row["after"], row["first"], row["messages"]) == (common, common + 1, 1)
    assert [(each["queue"], each["messages"]) for each in found["queues"]] == [
        ("orders", 2)
    ] and found["last"] == 20
    said = qpid_ha("journal", "salvage", data, "--discarded", row["name"], "--out", "-")
    (line,) = [json.loads(line) for line in said.out.splitlines()]
    assert line["queue"] == "orders" and message_view.body(b64decode(line["payload"])) == "ours"
    assert qpid_ha("journal", "verify", data).code == 0


@pytest.mark.parametrize("segment_size", [4096, 1 << 20])
def test_compact_makes_a_checkpoint_and_keeps_every_message(
    tmp_path: Path, qpid_ha: Run, segment_size: int
) -> None:
    written = Written(tmp_path / "data", segment_size=segment_size)
    written.declare("orders")
    written.seal()
    for number in range(100):
        written.send("orders", f"{number:050}")
    queue = written.broker.queues["orders"]
    written.log.append(Dequeued(queue.uid, tuple(list(queue.messages)[:90])))
    written.seal()
    written.send("orders", "last")
    written.close()
    data = str(tmp_path / "data")
    before = qpid_ha("journal", "salvage", data, "--out", "-").out
    assert len(before.splitlines()) == 11 and len(written.segments) == (
        1 if segment_size > 4096 else 6
    )
    found = read_json(qpid_ha("journal", "compact", data, "-o", "json"))
    assert found["after"] < found["before"] / 2 and found["point"] == 102
    assert qpid_ha("journal", "verify", data).code == 0
    assert (
        qpid_ha("journal", "salvage", data, "--out", "-").out == before
        and len(written.segments) == 1
    )
    listed = read_json(qpid_ha("journal", "list", data, "-o", "json"))
    assert (listed["last"], listed["committed"]) == (
        103,
        102,
    )  # what was not known to be committed is still not


@pytest.mark.parametrize("epoch", [0, 1])
def test_compact_keeps_what_a_broker_alone_recorded_whatever_its_level(
    tmp_path: Path, qpid_ha: Run, epoch: int
) -> None:
    written = Written(tmp_path / "data", epoch=epoch)
    written.broker.records_durable_only = (
        True  # alone, with the epochs of a cluster if it once was in one
    )
    for level in ("none", "configuration", "all"):
        written.broker.declare_queue(level, durable=True, arguments={"qpid.replicate": level})
        written.broker.bind("amq.direct", level, "key", {"qpid.replicate": "none"})
        written.send(level, f"{level} 1", f"{level} 2")
    written.seal()
    written.close()
    data = str(tmp_path / "data")
    before = qpid_ha("journal", "salvage", data, "--out", "-").out
    assert qpid_ha("journal", "compact", data).code == 0
    assert (
        qpid_ha("journal", "salvage", data, "--out", "-").out == before
        and len(before.splitlines()) == 6
    )
    bound = [
        line
        for line in qpid_ha("journal", "dump", data).out.splitlines()
        if '"bound"' in line.lower()
    ]
    assert len(bound) == 3


def test_a_compaction_without_space_fails_and_changes_nothing(
    data: Path, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = qpid_ha("journal", "salvage", str(data), "--out", "-").out
    files = sorted((data / "journal").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr("qpidha.runtime.log_disk.LogDisk.room", lambda self: 0)
        said = qpid_ha("journal", "compact", str(data))
    assert said.code == 1 and "no space" in said.err
    assert sorted((data / "journal").iterdir()) == files
    assert (
        list((data / "journal").glob("*.partial"))
        == []
        == list((data / "journal").glob("*.checkpoint"))
    )
    assert qpid_ha("journal", "salvage", str(data), "--out", "-").out == before
    assert qpid_ha("journal", "compact", str(data)).code == 0


def test_a_directory_in_use_is_refused_with_who_holds_it(tmp_path: Path, qpid_ha: Run) -> None:
    written = Written(tmp_path / "data")
    for command in ("verify", "list", "compact", "dump"):
        said = qpid_ha("journal", command, str(tmp_path / "data"))
        assert (
            said.code == 69
            and "in use by process" in said.err
            and "stop the broker first" in said.err
        )
    written.close()


def test_what_is_no_data_dir_is_not_made_one(tmp_path: Path, qpid_ha: Run) -> None:
    assert qpid_ha("journal", "verify", str(tmp_path / "nowhere")).code == 66
    said = qpid_ha("journal", "verify", str(tmp_path))
    assert said.code == 66 and "systemId" in said.err and list(tmp_path.iterdir()) == []


def test_a_journal_of_another_format_is_named_with_what_to_do(
    data: Path, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qpidha.tools.journal.files.FORMAT", 1)
    for command in ("verify", "list"):
        said = qpid_ha("journal", command, str(data))
        assert (
            said.code == 65
            and "this version reads 2 to 1" in said.err
            and "version of qpidha that wrote it" in said.err
        )


def test_a_compaction_that_is_interrupted_changes_nothing(
    tmp_path: Path, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(tmp_path / "data")
    written.declare("orders")
    written.seal()
    written.send("orders", "a", "b")
    written.log.synced = written.log.last
    written.send("orders", "c")
    written.close()
    data = str(tmp_path / "data")
    before = qpid_ha("journal", "salvage", data, "--out", "-").out

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("qpidha.store.write_ahead_log.WriteAheadLog.end_checkpoint", interrupted)
        assert qpid_ha("journal", "compact", data).code == 130
    assert (
        len(written.segments) == 2
        and len(list((tmp_path / "data" / "journal").glob("*.partial"))) == 1
    )
    assert qpid_ha("journal", "verify", data).code == 1
    assert qpid_ha("journal", "salvage", data, "--out", "-").out == before
    assert qpid_ha("journal", "compact", data).code == 0 and len(written.segments) == 1
    assert (
        qpid_ha("journal", "salvage", data, "--out", "-").out == before
        and len(before.splitlines()) == 3
    )
