"""The memory that a process may have: the machine's, or less where a cgroup says so."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qpidha.client.admin import AdminSocket
from qpidha.model.errors import InvalidArgument
from qpidha.model.settings import Settings
from qpidha.runtime.memory import (
    FAR,
    LARGE,
    LEAST,
    MOST,
    NEAR,
    OWN,
    PERIOD,
    QuietTrimmer,
    Trimmer,
    available,
    limit_of,
    resident,
    watch,
)
from tests.patience import STATE
from tests.runtime.daemons import Running, run

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def found(place: Path, membership: str, **limits: str) -> int:
    """Return what is available where files of the cgroups, by their paths with `_` for `/`, say
    so.
    """
    proc = place / "proc"
    proc.write_text(membership)
    for name, text in limits.items():
        file = place / "cgroup" / name.replace("__", "/").replace("_DOT_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return available(str(proc), str(place / "cgroup"))


def test_the_smallest_limit_of_all_groups_around_the_process_counts(tmp_path: Path) -> None:
    of_two = {"a__memory_DOT_max": "3000000", "a__b__memory_DOT_max": "max"}
    assert found(tmp_path, "0::/a/b\n", **of_two) == 3_000_000
    assert found(tmp_path, "0::/a/b\n", a__b__memory_DOT_max="2000000") == 2_000_000


def test_version_1_and_a_container_that_sees_its_own_group_only(tmp_path: Path) -> None:
    one = {"memory__memory_DOT_limit_in_bytes": "4000000"}
    assert found(tmp_path, "5:cpu:/x\n4:memory:/docker/0\n0::/\n", **one) == 4_000_000


def test_without_a_group_the_machine_counts(tmp_path: Path) -> None:
    assert available(str(tmp_path / "none"), str(tmp_path)) == MACHINE
    assert found(tmp_path, "0::/\n", memory_DOT_max="max") == MACHINE
    assert found(tmp_path, "0::/\n", memory_DOT_max=str(1 << 62)) == MACHINE


def test_the_limit_is_a_size_a_share_or_none() -> None:
    whole = 1 << 30
    limits = {text: limit_of(Settings(memory_limit=text), whole) for text in ("60%", "800M", "0")}
    assert limits == {"60%": (whole - OWN) * 60 // 100, "800M": 800 << 20, "0": 0}
    assert limit_of(Settings(memory_limit="1k"), whole) == LEAST
    assert limit_of(Settings(), OWN // 2) == LEAST
    for odd in ("0%", "101%", "much", "-1"):
        with pytest.raises(InvalidArgument):
            Settings(memory_limit=odd)


def test_check_and_status_name_the_limit(tmp_path: Path) -> None:
    code, out, _ = run("--check", "--memory-limit", "64M")
    assert code == 0 and "memory-limit is 64 MiB" in out
    with Running("--memory-limit", "64M", "--data-dir", tmp_path) as daemon:
        with contextlib.closing(AdminSocket(str(tmp_path / "admin.sock"), STATE)) as admin:
            report = admin.call("status", {})["memory"]
            assert report["limit"] == 64 << 20 and report["used"] < 1 << 20
            assert admin.call("explain", {})["withholds"] == ""
        daemon.end(signal.SIGTERM)


def test_faults_b3_what_is_free_is_given_back_when_the_process_has_much() -> None:
    sizes = iter([400, 790, 810, 750, 790, 830, 820, 870, 880, 700])
    looks: list[float] = []
    trims: list[int] = []
    trimmer = Trimmer(1000, lambda: trims.append(len(looks)), lambda: next(sizes))
    while len(looks) < 7:
        looks.append(trimmer.look())
    # At 810, when 750 is left; not at 790; at 830, 820 is left; at 880, but not at 870.
    assert trims == [2, 4, 6] and looks == [FAR, NEAR, NEAR, NEAR, NEAR, NEAR, NEAR]


def test_only_with_a_small_limit_is_anything_given_back_while_there_is_work() -> None:
    class Loop:
        def __init__(self) -> None:
            self.looks = 0

        def call_later(self, seconds: float, *look: object) -> None:
            self.looks += 1

    def looks(limit: int) -> int:
        loop: Any = Loop()
        watch(loop, limit)
        return int(loop.looks)

    has_trim = hasattr(ctypes.CDLL(None), "malloc_trim")
    assert looks(0) == looks(LARGE) <= has_trim
    assert looks(LARGE - 1) == looks(LARGE) + has_trim


def test_what_is_free_is_given_back_when_there_is_no_work() -> None:
    megabytes, spent, pieces = 0, 0.0, 10
    trims: list[int] = []
    trimmer = QuietTrimmer(
        lambda: trims.append(megabytes), lambda: spent, lambda: (megabytes << 20, pieces)
    )

    def look(size: int, seconds: float) -> list[int]:
        nonlocal megabytes, spent
        megabytes, spent = size, spent + seconds
        assert trimmer.look() == PERIOD
        found = trims.copy()
        trims.clear()
        return found

    assert look(500, 9.0) == []  # There is work.
    assert look(500, 0.1) == [500]
    assert look(500, 0.1) == look(510, 0.1) == []  # Not much more is free.
    assert look(530, 0.1) == [530]
    assert look(100, 0.1) == []
    assert look(130, 0.1) == [130]
    pieces = MOST + 1
    assert look(900, 0.1) == []  # It would take long.
    pieces = MOST
    assert look(900, 0.1) == [900]


def numbers_of(program: str) -> list[int]:
    """Run a program in a process of its own; return the numbers that it prints."""
    words = [sys.executable, "-c", program]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return list(map(int, said.split()))


def test_a_process_knows_what_is_free_in_it() -> None:
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("another allocator than glibc's, or an older one")
    full, freed = numbers_of(QUIET)
    assert full > 40_000_000 and freed < 10_000_000


QUIET = """
from qpidha.runtime.memory import resident, watch

looks = []

class Loop:
    def call_later(self, seconds, repeat, look): looks.append(look)

watch(Loop(), 0)
before, bodies, kept = resident(), [], []
for _ in range(50_000):
    bodies.append(bytes(1000))
kept.append(bytes(1000))
print(resident() - before)
del bodies
looks[-1]()
print(resident() - before)
"""

FREED = """
from qpidha.runtime.memory import resident, watch

class Loop:
    def call_later(self, *ignored): pass

watch(Loop(), 1 << 26)
before, kept = resident(), []
bodies = []
for _ in range(300):
    bodies.append(b"x" * 100_000)
    kept.append(bytes(1000))
print(resident() - before)
bodies.clear()
print(resident() - before)
"""


def test_faults_b3_with_a_small_limit_large_bodies_go_at_once_from_between_others() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("another allocator than glibc's")
    full, freed = numbers_of(FREED)
    assert full > 25_000_000 and freed < 3_000_000


USED_AGAIN = """
import resource
from qpidha.runtime.memory import watch

class Loop:
    def call_later(self, *ignored): pass

def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def turn(): return [bytes(bytearray(1 << 20)) for _ in range(6)]

watch(Loop(), 0)
turn()
before = faults()
for _ in range(20):
    turn()
print(faults() - before)
"""


def test_memory_of_large_messages_is_used_again_without_asking_for_each_page() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("another allocator than glibc's")
    (faults,) = numbers_of(USED_AGAIN)
    assert faults < 2000  # 35,000 where each is given back at once


def test_the_process_knows_what_it_has() -> None:
    assert 1 << 20 < resident() < available()
