"""The journal's directory on a real file system; what the disk may not do is done to it at the
edge.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from queue import SimpleQueue

import pytest

from qpidha.model.errors import InvariantBroken
from qpidha.model.events import DiskSpaceChanged, LogFailed, LogWritten
from qpidha.model.exit_codes import CANNOT_CREATE
from qpidha.runtime import log_disk
from qpidha.runtime.disk_space import DiskSpace
from qpidha.runtime.exits import CannotStart
from qpidha.runtime.log_disk import LogDisk
from tests.patience import STATE

ONE, TWO = "00000001.log", "00000002.log"


class DiskUnderTest:
    """An open directory and what it posted."""

    def __init__(self, directory, **options):
        self.directory = directory
        self.events = SimpleQueue()
        self.disk = LogDisk(str(directory), self.events.put, **options)

    def next(self):
        return self.events.get(timeout=STATE)

    def settle(self, mark=1):
        self.disk.mark(mark, sync=True)
        while (event := self.next()) != LogWritten(mark):
            assert isinstance(event, LogWritten)


@pytest.fixture
def journal(tmp_path):
    journal = DiskUnderTest(tmp_path / "journal")
    yield journal
    journal.disk.close(10)


class Edge:
    """Stands before the system's calls that make data last: counts them, holds one back, lets one
    fail.
    """

    def __init__(self, monkeypatch):
        self.may_go = threading.Event()
        self.may_go.set()
        self.waits = threading.Event()
        self.synced = []
        self.written = []
        self.error = 0
        self._datasync, self._sync, self._writev = os.fdatasync, os.fsync, os.writev
        monkeypatch.setattr(os, "fdatasync", self.datasync)
        monkeypatch.setattr(os, "fsync", self.sync)
        monkeypatch.setattr(os, "writev", self.write)

    def _before(self, fd):
        self.waits.set()
        assert self.may_go.wait(STATE)
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        self.synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))

    def datasync(self, fd):
        self._before(fd)
        self._datasync(fd)

    def sync(self, fd):
        self._before(fd)
        self._sync(fd)

    def write(self, fd, buffers):
        self.written.append(len(buffers))
        return self._writev(fd, buffers)


@pytest.fixture
def edge(monkeypatch):
    return Edge(monkeypatch)


def test_one_sync_serves_all_that_arrived_meanwhile(edge, journal):
    journal.settle()
    edge.may_go.clear()
    edge.waits.clear()
    edge.synced.clear()
    edge.written.clear()
    journal.disk.append(ONE, b"x")
    journal.disk.mark(2, sync=True)
    assert edge.waits.wait(STATE)
    for mark in range(3, 103):
        journal.disk.append(ONE, b"y")
        journal.disk.mark(mark, sync=True)
    edge.may_go.set()
    assert [journal.next(), journal.next()] == [LogWritten(2), LogWritten(102)]
    assert edge.synced == [ONE, "journal", ONE] and edge.written == [1, 100]


def test_a_mark_is_not_answered_before_its_sync_is_done(edge, journal):
    journal.settle()
    edge.may_go.clear()
    edge.waits.clear()
    journal.disk.append(ONE, b"x")
    journal.disk.mark(2, sync=True)
    assert edge.waits.wait(STATE) and journal.events.empty()
    edge.may_go.set()
    assert journal.next() == LogWritten(2)


def test_a_mark_without_sync_does_not_wait_for_the_disk(edge, journal):
    journal.settle()
    edge.synced.clear()
    journal.disk.append(ONE, b"x")
    journal.disk.mark(2, sync=False)
    assert journal.next() == LogWritten(2) and edge.synced == []


def test_a_sync_covers_what_earlier_marks_only_wrote_and_the_names_too(edge, journal):
    journal.settle()
    for mark, name in enumerate((ONE, "discarded-1/00000001.log", TWO), 2):
        journal.disk.append(name, b"x")
        journal.disk.mark(mark, sync=False)
        while journal.next() != LogWritten(mark):
            pass
    edge.synced.clear()
    journal.settle(9)
    assert sorted(edge.synced) == [ONE, ONE, TWO, "discarded-1", "journal"]
    edge.synced.clear()
    journal.disk.remove(ONE)
    journal.settle(10)
    journal.settle(11)
    assert edge.synced == ["journal"]


def test_no_mark_waits_for_files_that_go_and_all_have_gone_at_the_end(
    monkeypatch, tmp_path, edge, journal
):
    names = [f"{number:08d}.log" for number in range(1, 9)]
    for name in names:
        journal.disk.append(name, b"x")
    journal.settle()
    unlink, may_go, gone = os.unlink, threading.Event(), []

    def slow(name, **more):
        assert may_go.wait(STATE)
        gone.append(name)
        unlink(name, **more)

    monkeypatch.setattr(os, "unlink", slow)
    for name in names:
        journal.disk.remove(name)
    journal.disk.append(names[0], b"anew")
    journal.disk.append("00000010.log", b"y")
    journal.disk.mark(2, sync=True)
    may_go.set()  # The first name is in use again, so all before that goes first.
    assert journal.next() == LogWritten(2)
    may_go.clear()
    for name in names[:2]:
        journal.disk.remove(name)
    journal.disk.mark(3, sync=True)
    assert journal.next() == LogWritten(3)
    may_go.set()
    assert journal.disk.close(STATE)
    assert gone == [*names, *names[:2]]
    assert os.listdir(tmp_path / "journal") == ["00000010.log"]


def test_a_new_folder_is_synced_in_its_parent_too(edge, journal):
    journal.settle()
    edge.synced.clear()
    journal.disk.append("discarded-1/00000001.log", b"x")
    journal.settle(2)
    assert edge.synced == [ONE, "discarded-1", "journal"] or edge.synced == [
        ONE,
        "journal",
        "discarded-1",
    ]


def test_however_many_files_wait_for_a_sync_none_is_forgotten(edge, journal):
    """A file may be closed only after its sync: opened again, it might not tell of an error that
    came meanwhile.
    """
    journal.settle()
    edge.synced.clear()
    names = [f"{number:08d}.log" for number in range(20)]
    for mark, name in enumerate(names, 2):
        journal.disk.append(name, b"x")
        journal.disk.mark(mark, sync=False)
        while journal.next() != LogWritten(mark):
            pass
    journal.settle(100)
    assert edge.synced == [*names, "journal"]


def test_a_renamed_file_is_synced_before_and_its_name_after(edge, journal):
    journal.settle()
    edge.synced.clear()
    journal.disk.append("00000003.partial", b"x")
    journal.disk.rename("00000003.partial", "00000003.checkpoint")
    journal.disk.mark(2, sync=False)
    assert journal.next() == LogWritten(2) and edge.synced == [
        "00000003.partial",
        "journal",
        "journal",
    ]


def test_what_a_former_process_wrote_is_synced_before_the_first_answer(tmp_path, edge):
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / ONE).write_bytes(b"written, and then the process was killed")
    journal = DiskUnderTest(tmp_path / "journal")
    journal.disk.mark(1, sync=False)
    assert journal.next() == LogWritten(1) and edge.synced[1:] == [ONE, "journal"]
    journal.disk.close(10)


def test_a_sync_that_failed_is_not_tried_again(edge, journal):
    journal.settle()
    edge.error = errno.EIO
    journal.disk.append(ONE, b"x")
    journal.disk.mark(2, sync=True)
    event = journal.next()
    assert (
        isinstance(event, LogFailed)
        and ONE in event.reason
        and "input/output error" in event.reason
        and "dmesg" in event.reason
    )
    edge.error = 0
    edge.synced.clear()
    edge.written.clear()
    journal.disk.append(ONE, b"y")
    journal.disk.mark(3, sync=True)
    assert not journal.disk.close(10) and journal.disk.failure == event.reason
    assert edge.synced == edge.written == [] and journal.events.empty()


def test_a_write_that_the_system_cuts_short_goes_on(monkeypatch, journal):
    journal.settle()
    whole = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, buffers: whole(fd, [bytes(buffers[0])[:3]]))
    parts = [b"abcdefgh", b"", b"ij", b"k" * 7]
    for part in parts:
        journal.disk.append(ONE, part)
    journal.settle(2)
    assert journal.disk.read(ONE, 0, 100) == b"".join(parts)


def test_more_buffers_than_the_system_takes_at_once_are_all_written_in_order(edge, journal):
    journal.settle()
    edge.waits.clear()
    edge.may_go.clear()
    journal.disk.append(TWO, b"x")
    journal.disk.mark(2, sync=True)
    assert edge.waits.wait(STATE)
    parts = [b"%05d" % number for number in range(2500)]
    for part in parts:
        journal.disk.append(ONE, part)
    edge.may_go.set()
    journal.settle(3)
    assert journal.disk.read(ONE, 0, 100_000) == b"".join(parts) and edge.written == [
        1,
        1024,
        1024,
        452,
    ]


def test_a_full_disk_is_told_once_and_nothing_is_written_after_it(tmp_path):
    """In a process of its own: a limit on the size of files is one for all files of a process."""
    code = """
import pathlib, resource
from tests.runtime.test_log_disk import *
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
journal = DiskUnderTest(pathlib.Path(sys.argv[1]))
journal.disk.append(ONE, b"k" * 4000)
journal.settle()
journal.disk.append(ONE, b"x" * 8000)
journal.disk.mark(2, sync=True)
event = journal.next()
assert isinstance(event, LogFailed), event
assert all(word in event.reason for word in (ONE, "file too large", "ulimit")), event
journal.disk.append(TWO, b"y")
journal.disk.mark(3, sync=True)
assert not journal.disk.close(10) and journal.events.empty()
assert journal.disk.failure == event.reason
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "journal"],
        capture_output=True,
        text=True,
        timeout=STATE,
    )
    assert done.returncode == 0, done.stderr
    assert (
        os.listdir(tmp_path / "journal") == [ONE]
        and (tmp_path / "journal" / ONE).read_bytes()[:4001] == b"k" * 4000 + b"x"
    )


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    if (
        os.getuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True
        ).returncode
    ):
        pytest.skip("only root may mount a small file system")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_file_system_without_space_is_told_with_what_to_do(small_disk):
    journal = DiskUnderTest(small_disk / "journal", free_limit=100_000)
    journal.disk.append(ONE, b"k" * 4096)
    journal.settle()
    (small_disk / "other").write_bytes(b"o" * 160_000)
    assert (
        isinstance(event := journal.next(), DiskSpaceChanged) and event.low and event.free < 100_000
    )
    journal.disk.append(ONE, b"x" * 200_000)
    journal.disk.mark(2, sync=True)
    assert isinstance(event := journal.next(), LogFailed)
    assert ONE in event.reason and "no space left" in event.reason and "make space" in event.reason
    os.unlink(small_disk / "other")
    journal.disk.append(TWO, b"y")
    assert (
        not journal.disk.close(10)
        and os.listdir(small_disk / "journal") == [ONE]
        and journal.events.empty()
    )


def test_space_is_low_below_the_limit_and_no_more_a_fifth_above_it():
    free = iter([119, 100, 99, 100, 119, 120, 100, 99])
    space = DiskSpace(lambda: next(free), 100)
    short = DiskSpaceChanged(False, 119, short=True)
    low, more = DiskSpaceChanged(True, 99, short=True), DiskSpaceChanged(False, 120, short=True)
    assert [space.look() for _ in range(8)] == [short, None, low, None, None, more, None, low]


def test_space_is_short_a_fifth_above_the_limit_and_fine_two_fifths_above_it():
    free = iter([120, 119, 139, 140, 120, 99, 200])
    space = DiskSpace(lambda: next(free), 100)
    short, fine = DiskSpaceChanged(False, 119, short=True), DiskSpaceChanged(False, 140)
    low, much = DiskSpaceChanged(True, 99, short=True), DiskSpaceChanged(False, 200)
    assert [space.look() for _ in range(7)] == [None, short, None, fine, None, low, much]


def test_without_a_limit_a_disk_that_does_not_say_what_is_free_ends_nothing():
    answers = iter([OSError(116, "stale"), 7])

    def free():
        if isinstance(answer := next(answers), OSError):
            raise answer
        return answer

    space = DiskSpace(free, 0)
    assert [(space.look(), space.free) for _ in range(2)] == [(None, -1), (None, 7)]


def test_half_of_the_limit_is_for_the_log_but_for_a_small_part_of_what_is_left():
    free = iter([1000, 50, 20])
    space = DiskSpace(lambda: next(free), 100)
    assert [space.room() for _ in range(3)] == [950, 6, 2]


def test_what_is_still_to_be_written_is_no_space_any_more():
    space = DiskSpace(lambda: 200, 100)
    assert space.look(80) is None and space.left == 0
    assert space.look(101) == DiskSpaceChanged(True, 99, short=True) and space.left == -1
    assert space.look(300) is None
    assert space.look(0) == DiskSpaceChanged(False, 200)


def test_first_use_d5_the_limit_is_noticed_by_what_is_appended_and_not_by_the_time(
    tmp_path, monkeypatch
):
    """Nothing is written as yet, and an hour goes by between two looks."""
    monkeypatch.setattr(log_disk, "_LOOK", 3600)
    monkeypatch.setattr(log_disk, "free_space", lambda root: 1_000_000)
    journal = DiskUnderTest(tmp_path / "journal", free_limit=400_000)
    sent = 0
    for is_low, left in ((False, 480_000), (True, 400_000)):
        while journal.events.empty() and sent < 1_000_000:
            journal.disk.append(ONE, bytes(10_000))
            sent += 10_000
        assert journal.next() == DiskSpaceChanged(is_low, 1_000_000 - sent, short=True)
        assert 1_000_000 - left < sent <= 1_000_000 - left + log_disk.LOOK_BYTES + 10_000
    journal.disk.close(10)


def test_it_tells_how_much_may_be_appended_before_the_space_is_low(tmp_path, monkeypatch):
    monkeypatch.setattr(log_disk, "free_space", lambda root: 1_000_000)
    journal = DiskUnderTest(tmp_path / "journal", free_limit=400_000)
    for sent in (10_000, 20_000, 400_000):
        journal.disk.append(ONE, bytes(sent))
    assert journal.disk.until_low() == 170_000
    journal.disk.append(ONE, bytes(171_000))
    assert journal.disk.until_low() == -1_000
    journal.disk.close(10)
    unlimited = DiskUnderTest(tmp_path / "other")
    unlimited.disk.append(ONE, bytes(10_000))
    assert unlimited.disk.until_low() > 1 << 60
    unlimited.disk.close(10)


def test_the_room_is_that_of_the_file_system(small_disk):
    journal = DiskUnderTest(small_disk / "journal")
    before = journal.disk.room()
    journal.disk.append(ONE, bytes(30_000))
    journal.settle()
    assert 0 < journal.disk.room() <= before - 30_000
    journal.disk.close(10)


def test_a_disk_that_is_low_from_the_start_is_told_at_once(tmp_path):
    journal = DiskUnderTest(tmp_path / "journal", free_limit=1 << 62)
    assert isinstance(event := journal.next(), DiskSpaceChanged) and event.low and event.free > 0
    journal.disk.close(10)


def test_close_writes_and_syncs_what_is_queued(edge, journal):
    journal.settle()
    edge.synced.clear()
    for _ in range(100):
        journal.disk.append(ONE, b"x")
    assert journal.disk.close(10) and edge.synced == [ONE, "journal"]
    assert (journal.directory / ONE).read_bytes() == b"x" * 100


def test_close_does_not_wait_for_ever(edge, journal):
    edge.may_go.clear()
    journal.disk.append(ONE, b"x")
    assert not journal.disk.close(0.01)
    edge.may_go.set()


def test_a_bug_in_the_thread_is_told_too(monkeypatch, tmp_path):
    """Who waits for a mark would otherwise wait for ever."""
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    journal = DiskUnderTest(tmp_path / "journal")
    journal.disk.append(ONE, "not bytes")
    journal.disk.mark(1, sync=False)
    event = journal.next()
    assert isinstance(event, LogFailed) and "TypeError" in event.reason
    assert not journal.disk.close(10)


def test_what_nobody_waits_for_does_not_wake_the_thread_and_is_written_at_the_end(tmp_path):
    journal = DiskUnderTest(tmp_path / "journal")
    journal.settle()
    journal.disk.append(ONE, b"one")
    assert journal.disk._queue.empty() and not (journal.directory / ONE).exists()
    assert journal.disk.close(10)
    assert (journal.directory / ONE).read_bytes() == b"one"


def test_many_files_can_be_read_and_written_with_few_open(journal):
    before = len(os.listdir("/proc/self/fd"))
    names = [f"{number:08d}.log" for number in range(200)]
    for name in names:
        journal.disk.append(name, name.encode())
    journal.settle()
    assert [journal.disk.read(name, 0, 20).decode() for name in names] == names
    assert len(os.listdir("/proc/self/fd")) - before < 80
    assert journal.disk.close(10) and len(os.listdir("/proc/self/fd")) <= before


def test_a_file_can_be_read_while_its_rename_is_not_carried_out(edge, journal):
    journal.disk.append(ONE, b"abc")
    journal.settle()
    edge.waits.clear()
    edge.may_go.clear()
    journal.disk.rename(ONE, TWO)
    assert edge.waits.wait(STATE)
    assert (journal.directory / ONE).exists() and journal.disk.read(TWO, 0, 3) == b"abc"
    edge.may_go.set()
    journal.settle(2)
    assert (journal.directory / TWO).exists() and journal.disk.read(TWO, 0, 3) == b"abc"


def test_a_file_that_cannot_be_read_is_named(journal):
    with pytest.raises(OSError) as caught:
        journal.disk.read(ONE, 0, 1)
    assert caught.value.filename == str(journal.directory / ONE)


@pytest.mark.parametrize(
    "name",
    ["", "..", "../x", "/etc/x", "a/b/c", ".hidden", "a/", "/a", "a/../b", "a\0b", "a\nb", "./a"],
)
def test_a_name_cannot_leave_the_directory(journal, name):
    for call in (
        lambda: journal.disk.append(name, b""),
        lambda: journal.disk.truncate(name, 0),
        lambda: journal.disk.remove(name),
        lambda: journal.disk.rename(ONE, name),
        lambda: journal.disk.rename(name, ONE),
    ):
        with pytest.raises(InvariantBroken):
            call()


def test_what_is_not_there_can_be_neither_renamed_nor_cut(tmp_path):
    for number, call in enumerate(
        (lambda disk: disk.rename(ONE, TWO), lambda disk: disk.truncate(ONE, 1))
    ):
        journal = DiskUnderTest(tmp_path / str(number))
        call(journal.disk)
        assert isinstance(event := journal.next(), LogFailed) and ONE in event.reason
        journal.disk.close(10)


def test_others_can_read_neither_directory_nor_files(journal):
    journal.disk.append("discarded-1/00000001.log", b"x")
    journal.settle()
    for path in (journal.directory, *journal.directory.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o027 == 0, path


def test_files_that_are_not_ours_are_named_and_left_alone(tmp_path):
    place = tmp_path / "journal"
    (place / "folder").mkdir(parents=True)
    (place / "discarded-1").mkdir()
    for name in (
        "notes.txt",
        "00000001.log~",
        ONE,
        "clean-end",
        "discarded-1/00000001.log",
        "discarded-1/core",
        "folder/00000001.log",
    ):
        (place / name).write_text(name)
    (place / TWO).symlink_to("/nowhere")
    journal = DiskUnderTest(place)
    assert list(journal.disk.sizes()) == [ONE, "clean-end", "discarded-1/00000001.log"]
    assert journal.disk.strays == ["00000001.log~", TWO, "discarded-1/core", "folder", "notes.txt"]
    journal.settle()
    journal.disk.close(10)
    assert (place / "notes.txt").read_text() == "notes.txt" and (place / "folder" / ONE).exists()


def test_a_file_in_place_of_the_directory_is_named(tmp_path):
    (tmp_path / "journal").write_text("")
    with pytest.raises(CannotStart) as caught:
        DiskUnderTest(tmp_path / "journal")
    assert (
        str(tmp_path / "journal") in caught.value.text
        and "move that file away" in caught.value.hint
    )
    assert caught.value.code == CANNOT_CREATE


def test_a_directory_or_file_of_somebody_else_is_named():
    """Root may do everything, so it happens in a process that is nobody's."""
    code = """
import pathlib
from qpidha.model.exit_codes import NO_PERMISSION
from tests.runtime.test_log_disk import *
theirs, ours = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
if os.getuid() == 0:
    os.chmod(ours, 0o777)
    os.setresuid(65534, 65534, 65534)
else:
    os.chmod(theirs, 0)
    os.chmod(ours / ONE, 0)
for place, says in ((theirs, theirs), (ours, ours / ONE)):
    try:
        DiskUnderTest(place)
    except CannotStart as error:
        assert f"{says} cannot be used: permission denied" in error.text, error.text
        assert error.hint and error.code == NO_PERMISSION
    else:
        sys.exit("it was used")
"""
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        theirs, ours = Path(name) / "theirs", Path(name) / "ours"
        os.chmod(name, 0o755)
        theirs.mkdir(mode=0o700)
        ours.mkdir()
        (ours / ONE).write_text("")
        done = subprocess.run(
            [sys.executable, "-c", code, theirs, ours],
            capture_output=True,
            text=True,
            timeout=STATE,
        )
    assert done.returncode == 0, done.stderr


def test_a_file_system_that_cannot_be_written_is_named(small_disk):
    (small_disk / "journal").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(CannotStart) as caught:
        DiskUnderTest(small_disk / "journal")
    assert "read-only file system" in caught.value.text and caught.value.hint
