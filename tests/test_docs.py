"""The documents name tests that exist: each `path::name` in any of them, each hole and trap has one, and each play its row."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted((ROOT / "docs").glob("*.md"))
HOLES = ROOT / "docs" / "holes.md"
PACEMAKER = ROOT / "docs" / "pacemaker.md"
SCENARIOS = "tests/lab/test_scenarios.py"
PLAYS = ROOT / "tests" / "scenarios"
NAMED = re.compile(r"`(tests/[\w/.-]+?)(?:::(\w+))?`")


def named(text: str) -> list[tuple[str, str]]:
    return NAMED.findall(text)


def missing(text: str) -> list[str]:
    """Return what a text names and the tree does not have."""
    absent = []
    for path, name in named(text):
        file = ROOT / path
        there = file.is_dir() if path.endswith("/") else file.is_file()
        if not there or (name and not re.search(rf"^(?:    )?def {name}\(", file.read_text(), re.MULTILINE)):
            absent.append(f"{path}::{name}" if name else path)
    return absent


def test_every_test_that_a_document_names_exists() -> None:
    assert {path.name: absent for path in DOCUMENTS if (absent := missing(path.read_text()))} == {}


def numbered(text: str) -> list[tuple[str, str]]:
    """Return the numbered rows of a document: number, and what the last column says."""
    return re.findall(r"^\| (\d+) \|.*\|(.*)\|$", text, re.MULTILINE)


def test_every_trap_of_pacemaker_has_a_scenario_of_the_lab() -> None:
    rows = numbered(PACEMAKER.read_text())
    assert [number for number, _ in rows] == ["1", "2", "3", "4"]
    assert [number for number, tests in rows if SCENARIOS not in [path for path, name in named(tests) if name]] == []


def test_every_hole_from_1_to_28_has_a_test() -> None:
    rows = numbered(HOLES.read_text())
    assert [int(number) for number, _ in rows] == list(range(1, 29))
    assert [number for number, tests in rows if not named(tests)] == []


def holes_of(play: str) -> list[str]:
    """Return the numbers of the holes that the story of a play names: its comments before the first command."""
    story = " ".join(line.removeprefix("#") for line in play.split("\n\n", 1)[0].splitlines())
    return re.findall(r"\(hole\s+(\d+)", story)


def unlisted(plays: dict[str, str], text: str) -> list[str]:
    """Return the plays that say that they show a hole closed, and are not in its row."""
    rows = dict(numbered(text))
    return [
        f"{name}: hole {hole}" for name, play in plays.items() for hole in holes_of(play) if f"scenarios/{name}`" not in rows.get(hole, "")
    ]


def test_every_play_that_names_a_hole_is_in_its_row() -> None:
    plays = {path.name: path.read_text() for path in sorted(PLAYS.glob("*.txt"))}
    assert sum(len(holes_of(play)) for play in plays.values()) >= 10
    assert unlisted(plays, HOLES.read_text()) == []


def test_a_play_that_is_not_in_the_row_of_its_hole_is_found() -> None:
    plays = {"x.txt": "# Something is lost\n# (hole 2) here.\n\nbrokers a\n", "y.txt": "# Of no hole.\n\nbrokers a\n"}
    assert unlisted(plays, "| 1 | one | `tests/scenarios/x.txt` |\n| 2 | two | `tests/a.py` |\n") == ["x.txt: hole 2"]
    assert unlisted(plays, "| 2 | two | `tests/a.py`, `tests/scenarios/x.txt` |\n") == []


def test_a_name_that_does_not_exist_is_found() -> None:
    text = "`tests/test_docs.py::test_that_nobody_wrote`, `tests/nowhere.py`, `tests/test_docs.py`, `tests/lab/`, `tests/den/`"
    assert missing(text) == ["tests/test_docs.py::test_that_nobody_wrote", "tests/nowhere.py", "tests/den/"]
