"""The arithmetic of `make bench-check`, and which commit it compares with."""

from __future__ import annotations

import math
import random

import pytest

from tests.bench import check
from tests.bench.check import Verdict, default_base, verdict
from tests.bench.processes import BenchError


def test_with_few_rounds_nothing_is_decided() -> None:
    few = verdict([1.3, 1.3, 1.3, 1.3, 1.3])
    assert (few.ratio, few.noise, few.word(0.05)) == (1.3, math.inf, "open")
    assert verdict([]).word(0.05) == "open"


def test_six_rounds_lie_around_the_median_from_the_lowest_to_the_highest() -> None:
    found = verdict([1.04, 0.97, 1.0, 1.01, 0.99, 1.02])
    assert (found.low, found.high, found.rounds) == (0.97, 1.04, 6)
    assert found.word(0.05) == "ok"


def test_the_interval_holds_the_median_nineteen_times_of_twenty() -> None:
    dice = random.Random(19)
    found = [verdict([dice.gauss(1.0, 0.1) for _ in range(20)]) for _ in range(2000)]
    held = sum(one.low <= 1.0 <= one.high for one in found) / len(found)
    assert 0.94 < held < 0.985


@pytest.mark.parametrize(
    ("low", "ratio", "high", "word"),
    [
        (1.06, 1.3, 2.0, "SLOWER"),  # noisy, but whatever it is, it is slower
        (0.5, 0.8, 1.04, "ok"),  # noisy, and not slower
        (0.9, 1.0, 1.1, "open"),
        (1.03, 1.06, 1.09, "SLOWER"),
        (1.01, 1.04, 1.07, "ok"),
    ],
)
def test_what_is_beyond_the_limit_is_told_from_what_is_hidden_by_noise(
    low: float, ratio: float, high: float, word: str
) -> None:
    assert Verdict(ratio, low, high, 9).word(0.0499) == word


def test_the_base_is_main_unless_that_is_what_is_checked_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = {"rev-parse --verify": "aaa", "rev-parse HEAD": "aaa", "status --porcelain": ""}
    monkeypatch.setattr(check, "git", lambda *words: said[" ".join(words[:2])])
    assert default_base() == "HEAD~1"
    said["status --porcelain"] = " M qpidha/node.py"
    assert default_base() == "origin/main"
    said |= {"status --porcelain": "", "rev-parse HEAD": "bbb"}
    assert default_base() == "origin/main"

    def no_main(*_: str) -> str:
        raise BenchError("there is no origin/main")

    monkeypatch.setattr(check, "git", no_main)
    assert default_base() == "HEAD~1"
