"""The fake disk keeps what the protocol promises, and nothing else."""

from __future__ import annotations

import random

import pytest

from qpidha.model.events import Event, LogFailed, LogWritten
from tests.sim.disk import FakeDisk, Files


def disk_with(files: Files) -> tuple[FakeDisk, list[Event]]:
    events: list[Event] = []
    return FakeDisk(events.append, random.Random(7), files), events


def pump(disk: FakeDisk) -> None:
    while disk.pump():
        pass


@pytest.mark.parametrize("how", ["lose", "tear", "scramble"])
def test_what_is_synced_outlives_a_power_failure(how: str) -> None:
    for seed in range(50):
        files = Files()
        disk, events = disk_with(files)
        disk.append("1.log", b"kept" * 50)
        disk.mark(1, sync=True)
        pump(disk)
        assert events == [LogWritten(1)]
        disk.append("1.log", b"gone" * 50)
        pump(disk)
        files.crash(how, random.Random(seed))
        assert files.written["1.log"].startswith(b"kept" * 50)
        assert len(files.written["1.log"]) <= 400


def test_what_was_only_written_may_be_gone_and_what_was_only_asked_for_is() -> None:
    sizes = set()
    for seed in range(50):
        files = Files()
        disk, _ = disk_with(files)
        disk.append("1.log", b"x" * 100)
        disk.mark(1, sync=False)
        pump(disk)
        disk.append("1.log", b"y" * 100)
        files.crash("lose", random.Random(seed))
        sizes.add(len(files.written.get("1.log", b"")))
    assert sizes == {0, 100}


def test_one_sync_answers_all_marks_that_wait() -> None:
    disk, events = disk_with(Files())
    disk.append("1.log", b"x")
    disk.mark(1, sync=True)
    disk.mark(2, sync=True)
    pump(disk)
    assert events == [LogWritten(2)]
    assert disk.syncs == 1


def test_a_full_disk_says_so_once_and_does_nothing_more() -> None:
    files = Files()
    disk, events = disk_with(files)
    disk.capacity = 3
    disk.append("1.log", b"four")
    disk.mark(1, sync=True)
    pump(disk)
    disk.append("1.log", b"more")
    pump(disk)
    assert events == [LogFailed("No space left on device")]
    assert files.written["1.log"] == b"fou"


def test_a_renamed_file_is_there_after_a_power_failure_and_a_removed_one_may_be() -> None:
    found = set()
    for seed in range(40):
        files = Files()
        disk, _ = disk_with(files)
        disk.append("2.new", b"checkpoint")
        disk.append("1.log", b"old")
        disk.rename("2.new", "2.checkpoint")
        disk.remove("1.log")
        pump(disk)
        files.crash("lose", random.Random(seed))
        assert files.written["2.checkpoint"] == b"checkpoint"
        found.add("1.log" in files.written)
    assert found == {True, False}
