"""The format: codes and keys are unambiguous, what breaks it is said, and the documents show it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from qpidha.pipeline import checks, events

DOCUMENT = Path(__file__).parents[2] / "docs" / "pipeline.md"
GOOD: dict[str, Any] = {
    "n": "c",
    "b": "0",
    "s": 0,
    "t": 1,
    "m": 2,
    "k": "op",
    "run": "r",
    "o": 1,
    "c": 1,
    "y": "ok",
    "f": "enqueue",
    "q": "q",
    "w": 1,
    "u": 1,
}


def test_codes_and_columns_mean_one_thing_each() -> None:
    assert len({kind.code for kind in events.KINDS}) == len(events.KIND) == len(events.KINDS)
    assert len({field.column for field in events.FIELDS}) == len(events.FIELD) == len(events.FIELDS)
    for table in (events.OPERATIONS, events.OUTCOMES, events.STEPS, events.ROLES):
        assert len(set(table.values())) == len(table) and max(table.values()) < 128
    for kind in events.KINDS:
        assert set(kind.needs) | set(kind.may) <= set(events.FIELD), kind.name
        assert not set(kind.needs) & set(kind.may), kind.name


def test_an_event_of_the_format_is_one() -> None:
    assert events.examine(GOOD) == ("", ())
    assert events.examine(GOOD | {"d": None, "colour": 1.5}) == ("", ("colour",))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"k": "opp"}, "unknown kind"),
        ({"k": ["op"]}, "unknown kind"),
        ({"s": 1.0}, "s is not an integer"),
        ({"s": "1"}, "s is not an integer"),
        ({"s": True}, "s is not an integer"),
        ({"s": -1}, "s is out of range"),
        ({"m": 1 << 63}, "m is out of range"),
        ({"w": 1 << 31}, "w is out of range"),
        ({"q": 5}, "q is not a string"),
        ({"q": None}, "q is missing"),
        ({"u": None}, "a value needs both"),
        ({"y": "maybe"}, "op cannot be 'maybe'"),
        ({"f": "steal"}, "op knows no 'steal'"),
    ],
)
def test_what_is_no_event_is_told(change: dict[str, Any], says: str) -> None:
    assert says in events.examine(GOOD | change)[0]


def test_what_is_no_object_is_no_event() -> None:
    for value in (None, [], 1, "x"):
        assert events.examine(value) == ("not an object", ())


def between(text: str, name: str) -> str:
    found = re.search(rf"<!-- {name} begin[^\n]*-->\n(.*?)\n<!-- {name} end -->", text, re.DOTALL)
    assert found, name
    return found[1]


def test_the_document_shows_the_format_and_the_definitions() -> None:
    text = DOCUMENT.read_text()
    assert between(text, "events") == events.documentation()
    assert between(text, "checks") == checks.documentation()
