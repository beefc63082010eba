"""What a write-ahead log may rely on, claimed of the real disk and of the one in the simulator:
what differs would not be simulated.
"""

from __future__ import annotations

import random
import time
from collections import deque
from queue import SimpleQueue

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidha.model.events import LogFailed, LogWritten
from qpidha.runtime.log_disk import LogDisk
from tests.patience import STATE
from tests.sim.disk import FakeDisk, Files

ONE, TWO, THREE = "00000001.log", "00000002.log", "00000003.checkpoint"
PARTIAL = "00000003.partial"
AWAY = f"discarded-20261120T154123-3-17/{ONE}"


class Real:
    """A directory, and the thread that writes it."""

    def __init__(self, directory):
        self.directory = directory
        self.events = SimpleQueue()
        self.open()

    def open(self):
        self.disk = LogDisk(str(self.directory), self.events.put)
        return self.disk

    def next_event(self):
        return self.events.get(timeout=STATE)

    def restart(self):
        assert self.disk.close(10)
        return self.open()

    def spoil(self, name):
        """Make a file that cannot be written."""
        (self.directory / name).mkdir()

    def content(self):
        found = (path for path in self.directory.rglob("*") if path.is_file())
        return {path.relative_to(self.directory).as_posix(): path.read_bytes() for path in found}

    def quiet(self):
        """All that could happen has happened, and nobody was told."""
        self.disk.close(10)
        return self.events.empty()


class Fake:
    """The simulator's."""

    def __init__(self):
        self.files = Files()
        self.open()

    def open(self):
        self.events = deque()
        self.disk = FakeDisk(self.events.append, random.Random(1), self.files)
        return self.disk

    def next_event(self):
        while not self.events:
            self.disk.pump()
        return self.events.popleft()

    def restart(self):
        while self.disk.pump():
            pass
        return self.open()

    def spoil(self, name):
        self.disk.capacity = 0

    def content(self):
        return dict(self.files.written)

    def quiet(self):
        while self.disk.pump():
            pass
        return not self.events


def make(kind, directory):
    return Real(directory / "journal") if kind == "real" else Fake()


@pytest.fixture(params=["real", "fake"])
def world(request, tmp_path):
    world = make(request.param, tmp_path)
    yield world
    if isinstance(world, Real):
        world.disk.close(10)


def settle(world, mark, *, sync=True):
    """Wait until all that was asked for is done."""
    world.disk.mark(mark, sync=sync)
    while True:
        event = world.next_event()
        assert isinstance(event, LogWritten) and event.mark <= mark, event
        if event.mark == mark:
            return


def becomes(world, expected):
    """Whether this is what is there once all has gone that was to go: no mark waits for that."""
    until = time.monotonic() + STATE
    while world.content() != expected and time.monotonic() < until:
        time.sleep(0.001)
    return world.content() == expected


@pytest.mark.parametrize("sync", [True, False])
def test_what_was_given_before_a_mark_can_be_read_when_it_is_answered(world, sync):
    for number in range(5):
        world.disk.append(ONE, b"%d" % number)
        world.disk.append(TWO, b"x")
    settle(world, 1, sync=sync)
    assert (
        world.disk.read(ONE, 0, 100) == b"01234"
        and world.disk.read(ONE, 1, 3) == b"123"
        and world.disk.read(TWO, 0, 100) == b"xxxxx"
    )


def test_at_the_end_of_a_file_there_are_fewer_bytes_and_then_none(world):
    world.disk.append(ONE, b"abc")
    settle(world, 1)
    assert (
        world.disk.read(ONE, 2, 10) == b"c"
        and world.disk.read(ONE, 3, 10) == b""
        and world.disk.read(ONE, 99, 10) == b""
    )


def test_what_is_not_there_cannot_be_read(world):
    with pytest.raises(OSError):
        world.disk.read(ONE, 0, 1)


def test_marks_are_answered_in_order_and_the_last_one_always(world):
    for mark in range(1, 200):
        world.disk.append(ONE, b"x")
        world.disk.mark(mark, sync=mark % 3 == 0)
    seen = []
    while not seen or seen[-1] < 199:
        seen.append(world.next_event().mark)
    assert seen == sorted(set(seen)) and seen[-1] == 199


def test_nobody_is_told_of_what_has_no_mark(world):
    world.disk.append(ONE, b"x")
    world.disk.rename(ONE, TWO)
    assert world.quiet() and world.content() == {TWO: b"x"}


def test_an_append_of_nothing_makes_the_file(world):
    world.disk.append(ONE, b"")
    settle(world, 1)
    assert world.content() == {ONE: b""} and world.disk.read(ONE, 0, 1) == b""


def test_a_renamed_file_goes_on_under_its_new_name(world):
    world.disk.append(PARTIAL, b"abc")
    settle(world, 1)
    assert world.disk.read(PARTIAL, 0, 3) == b"abc"
    world.disk.rename(PARTIAL, THREE)
    world.disk.append(THREE, b"def")
    settle(world, 2)
    assert world.content() == {THREE: b"abcdef"} and world.disk.read(THREE, 0, 6) == b"abcdef"
    with pytest.raises(OSError):
        world.disk.read(PARTIAL, 0, 3)


def test_a_file_moves_into_a_folder_and_one_can_be_made_there(world):
    world.disk.append(ONE, b"abc")
    world.disk.rename(ONE, AWAY)
    world.disk.append(AWAY.replace(ONE, TWO), b"more")
    settle(world, 1)
    assert (
        world.content() == {AWAY: b"abc", AWAY.replace(ONE, TWO): b"more"}
        and world.disk.read(AWAY, 0, 3) == b"abc"
    )


def test_a_rename_replaces_what_had_the_name(world):
    world.disk.append(ONE, b"old")
    world.disk.append(TWO, b"new")
    settle(world, 1)
    assert world.disk.read(ONE, 0, 3) == b"old"
    world.disk.rename(TWO, ONE)
    settle(world, 2)
    assert world.content() == {ONE: b"new"} and world.disk.read(ONE, 0, 3) == b"new"


def test_a_cut_file_goes_on_where_it_was_cut(world):
    world.disk.append(ONE, b"abcdef")
    settle(world, 1)
    assert world.disk.read(ONE, 0, 10) == b"abcdef"
    world.disk.truncate(ONE, 2)
    world.disk.append(ONE, b"X")
    settle(world, 2)
    assert world.disk.read(ONE, 0, 10) == b"abX" and world.content() == {ONE: b"abX"}


def test_a_removed_file_is_gone_and_its_name_begins_anew(world):
    world.disk.append(ONE, b"abc")
    settle(world, 1)
    assert world.disk.read(ONE, 0, 3) == b"abc"
    world.disk.remove(ONE)
    settle(world, 2)
    assert becomes(world, {})
    with pytest.raises(OSError):
        world.disk.read(ONE, 0, 3)
    world.disk.append(ONE, b"d")
    settle(world, 3)
    assert world.disk.read(ONE, 0, 3) == b"d"


def test_removing_what_is_not_there_is_no_failure(world):
    world.disk.remove(ONE)
    settle(world, 1)
    assert world.content() == {}


def test_sizes_are_those_of_the_start_in_order_of_the_names(world):
    assert world.disk.sizes() == {}
    for name in (TWO, AWAY, ONE):
        world.disk.append(name, name.encode())
    settle(world, 1)
    assert world.disk.sizes() == {}
    disk = world.restart()
    assert list(disk.sizes().items()) == [(ONE, 12), (TWO, 12), (AWAY, len(AWAY))]
    assert disk.read(AWAY, 0, 100) == AWAY.encode()
    disk.append(ONE, b"x")
    settle(world, 1)
    assert disk.sizes()[ONE] == 12 and disk.read(ONE, 11, 5) == b"gx"


def test_a_failure_is_told_once_and_nothing_happens_after_it(world):
    world.disk.append(ONE, b"kept")
    settle(world, 1)
    world.spoil(TWO)
    world.disk.append(TWO, b"lost")
    world.disk.append(ONE, b"lost too")
    world.disk.mark(2, sync=True)
    event = world.next_event()
    assert isinstance(event, LogFailed) and event.reason
    world.disk.append(ONE, b"and this")
    world.disk.remove(ONE)
    world.disk.mark(3, sync=True)
    assert world.quiet() and {**world.content(), TWO: b""} == {ONE: b"kept", TWO: b""}


names = st.sampled_from([ONE, TWO, THREE, AWAY])
operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), names, st.binary(max_size=5)),
        st.tuples(st.just("truncate"), names, st.integers(0, 3)),
        st.tuples(st.just("rename"), names, names),
        st.tuples(st.just("remove"), names),
        st.tuples(st.just("read"), names),
        st.tuples(st.just("settle"), st.booleans()),
    ),
    max_size=25,
)


@pytest.mark.parametrize("kind", ["real", "fake"])
@given(steps=operations)
@settings(max_examples=60)
def test_any_row_of_operations_ends_as_if_each_were_done_at_once(kind, steps, tmp_path_factory):
    world = make(kind, tmp_path_factory.mktemp("disk"))
    expected, mark, settled = {}, 0, True
    for verb, *values in (*steps, ("settle", True)):
        name = values[0]
        if verb == "append":
            expected[name] = expected.get(name, b"") + values[1]
            world.disk.append(name, values[1])
        elif verb == "remove":
            expected.pop(name, None)
            world.disk.remove(name)
        elif verb == "truncate" and len(expected.get(name, b"")) >= values[1] and name in expected:
            expected[name] = expected[name][: values[1]]
            world.disk.truncate(name, values[1])
        elif verb == "rename" and name in expected and values[1] != name:
            expected[values[1]] = expected.pop(name)
            world.disk.rename(name, values[1])
        elif verb == "read" and settled and name in expected:
            assert world.disk.read(name, 0, 1000) == expected[name]
        elif verb == "settle":
            mark += 1
            settle(world, mark, sync=values[0])
        settled = verb == "settle" or (settled and verb == "read")
    assert becomes(world, expected)
    for name, content in expected.items():
        assert world.disk.read(name, 0, 1000) == content
    assert world.restart().sizes() == {name: len(expected[name]) for name in sorted(expected)}
    if kind == "real":
        world.disk.close(10)
