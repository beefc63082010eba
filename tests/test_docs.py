"""The documents name tests that exist: each `path::name` in the table of holes, and each scenario."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOLES = ROOT / "docs" / "holes.md"
NAMED = re.compile(r"`(tests/[\w/.-]+?)(?:::(\w+))?`")


def named(text: str) -> list[tuple[str, str]]:
    return NAMED.findall(text)


def missing(text: str) -> list[str]:
    """Return what a text names and the tree does not have."""
    absent = []
    for path, name in named(text):
        file = ROOT / path
        if not file.is_file() or (name and not re.search(rf"^(?:    )?def {name}\(", file.read_text(), re.MULTILINE)):
            absent.append(f"{path}::{name}" if name else path)
    return absent


def test_every_test_that_the_table_of_holes_names_exists() -> None:
    assert missing(HOLES.read_text()) == []


def test_every_hole_from_1_to_28_has_a_test() -> None:
    rows = re.findall(r"^\| (\d+) \|.*\|(.*)\|$", HOLES.read_text(), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 29))
    assert [number for number, tests in rows if not named(tests)] == []


def test_a_name_that_does_not_exist_is_found() -> None:
    assert missing("`tests/test_docs.py::test_that_nobody_wrote`, `tests/nowhere.py`, `tests/test_docs.py`") == [
        "tests/test_docs.py::test_that_nobody_wrote",
        "tests/nowhere.py",
    ]
