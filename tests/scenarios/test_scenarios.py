"""Golden plays: each `*.txt` here is acted, and must be announced as it is written.

`pytest --rewrite-scenarios` writes what is announced now. Commit such a change only if you
understand it: a play tells in its first lines what must not be otherwise.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.stage import PlayError, Stage

FOLDER = Path(__file__).parent
PLAYS = sorted(FOLDER.glob("*.txt"))
DIVIDER = "----"


def act(name: str, text: str) -> str:
    """Act a play and return it with what is announced now; errors name file and line."""
    lines = text.splitlines()
    acted: list[str] = []
    stage = Stage()
    index = 0
    while index < len(lines):
        line = lines[index].strip()
        acted.append(lines[index])
        index += 1
        if not line or line.startswith("#"):
            continue
        try:
            announced = stage.perform(line)
        except PlayError as error:
            raise PlayError(f"{name}:{index}: {line}: {error}") from error
        if index < len(lines) and lines[index].strip() == DIVIDER:
            index += 1
            while index < len(lines) and lines[index].strip():
                index += 1
        acted += [DIVIDER, *announced.splitlines()]
        if index < len(lines) and lines[index].strip():
            acted.append("")
    return "\n".join(acted).rstrip() + "\n"


@pytest.mark.parametrize("path", PLAYS, ids=lambda path: path.stem)
def test_a_play_is_announced_as_it_is_written(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    acted = act(str(path), text)
    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(acted)
    else:
        assert acted == text


@pytest.mark.parametrize("path", PLAYS, ids=lambda path: path.stem)
def test_a_play_tells_its_story_first(path: Path) -> None:
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("brokers a b c\n\nfly a\n", "x.txt:3: fly a: there is no command fly"),
        ("promote a\n", "x.txt:1: promote a: a play begins with"),
        ("brokers a b c\ncrash d\n", "x.txt:2: crash d: there is no broker d"),
        ("brokers a b c\ntick soon\n", "x.txt:2: tick soon: soon is no duration"),
    ],
)
def test_a_faulty_command_is_named_with_its_file_and_line(text: str, where: str) -> None:
    with pytest.raises(PlayError) as caught:
        act("x.txt", text)
    assert str(caught.value).startswith(where)
