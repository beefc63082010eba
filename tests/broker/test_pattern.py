"""Patterns of policies: which names they are found in, and what is refused."""

from __future__ import annotations

from time import process_time

import pytest

from qpidha.broker.pattern import LONGEST, compile_pattern
from qpidha.model.errors import InvalidArgument

NAMES = ("orders", "orders.new", "old.orders", "amq.gen-1", "AMQ.1", "")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", ("orders", "orders.new", "old.orders")),
        ("^orders", ("orders", "orders.new")),
        (r"^orders$", ("orders",)),
        (r"^(?!amq\.).*", ("orders", "orders.new", "old.orders", "AMQ.1", "")),
        (r"(?i)^(?!amq\.)", ("orders", "orders.new", "old.orders", "")),
        (r"^(?=.*new)(?!old)o", ("orders.new",)),
        (r"^(?!a|A)", ("orders", "orders.new", "old.orders", "")),
        (r"^(?![)]|amq)(?:AMQ|o)", ("orders", "orders.new", "old.orders", "AMQ.1")),
        (r"\A(?!\)).+[|]?$", ("orders", "orders.new", "old.orders", "amq.gen-1", "AMQ.1")),
        (".*", NAMES),
    ],
)
def test_row_2_a_pattern_is_looked_for_in_a_name(pattern: str, found: tuple[str, ...]) -> None:
    assert tuple(name for name in NAMES if compile_pattern(pattern).fits(name)) == found


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("", "empty"),
        ("x" * (LONGEST + 1), "longer than"),
        ("(", "missing )"),
        (r"(a)\1", "escape"),
        ("(?<=a)b", "invalid"),
        ("a(?!b)", "perl operator"),
        ("^(?!a", "not closed"),
        ("^(?!a)b|c", "first alternative"),
        ("a{2000}", "repetition"),
        (r"(\w{0,50}){0,20}", "too large"),
        ("^(?!.{400})(?![^a]{400})", "too large"),
        ("\ud800", "no text"),
    ],
)
def test_row_2_what_would_take_long_or_is_no_pattern_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        compile_pattern(pattern)
    assert said in refusal.value.reason and refusal.value.hint
    assert "is no pattern" in refusal.value.text


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*)*(.*)*x", "^(?!(a+)+$)(a*)*b"])
def test_row_2_no_pattern_takes_long(pattern: str) -> None:
    ready, before = compile_pattern(pattern), process_time()
    for _ in range(10):
        assert not ready.fits("a" * 200 + "!")
    assert process_time() - before < 5  # a search that goes back takes longer than the universe


def test_a_name_that_is_no_text_is_not_found() -> None:
    assert not compile_pattern(".*").fits("\ud800")
