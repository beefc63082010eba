"""The bound of the wall clock's error: what the kernel says, more the longer it has to hold, and
nothing if it does not know.
"""

from __future__ import annotations

import ctypes
import json
import time
from pathlib import Path
from typing import Any

import pytest

from qpidha.runtime import clock, event_segments
from qpidha.runtime.clock import wall_error_us
from qpidha.runtime.event_segments import SegmentWriter


class Kernel:
    """A C library whose kernel answers as told."""

    def __init__(self, state: int, error_us: int) -> None:
        self.state, self.error_us = state, error_us

    def adjtimex(self, words: Any) -> int:
        assert ctypes.sizeof(words) >= 208 and words[0] == 0, "it asks and sets nothing"
        words[clock.MAXERROR] = self.error_us
        return self.state


@pytest.mark.parametrize(
    ("state", "error_us", "seconds", "bound"),
    [
        (0, 1500, 0, 1500),
        (0, 1500, 60, 31_500),
        (2, 0, 0, 1),
        (5, 16_000_000, 60, 0),
        (-1, 3, 60, 0),
    ],
)
def test_the_bound_holds_for_a_while_or_is_not_known(
    monkeypatch: pytest.MonkeyPatch, state: int, error_us: int, seconds: float, bound: int
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Kernel(state, error_us))
    assert wall_error_us(seconds) == bound


def test_a_system_that_cannot_be_asked_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert wall_error_us(1) == 0


def test_this_kernel_answers() -> None:
    words = (ctypes.c_long * 64)()
    is_known = 0 <= ctypes.CDLL(None).adjtimex(words) < clock.NOT_SYNCHRONISED
    assert (wall_error_us(1) > 0) is is_known
    if is_known:
        assert wall_error_us(10) >= words[clock.MAXERROR]


@pytest.mark.parametrize(
    ("missed_s", "known"), [(None, 700), (0, 700), (3, 700), (-3, 700), (3, 0)]
)
def test_segments_say_their_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missed_s: int | None, known: int
) -> None:
    monkeypatch.setattr(event_segments, "wall_error_us", lambda seconds: known)
    offset = None if missed_s is None else time.time_ns() - time.monotonic_ns() + missed_s * 10**9
    writer = SegmentWriter(tmp_path, "r", offset=offset)
    writer.write('"k":"error","err":"x"')
    writer.close()
    (path,) = tmp_path.iterdir()
    said = json.loads(path.read_text().splitlines()[0])["clock_error_us"]
    missed = abs(missed_s or 0) * 10**6
    assert said == 0 if not known else known + missed - 10**5 < said < known + missed + 10**6
