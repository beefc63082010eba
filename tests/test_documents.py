"""The sessions of README and docs do what they are said to do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.documents import PAGES, ROOT, RUN, Block, blocks, commands, missing, replaced_ports, run
from tests.patience import LONG_TEST

SESSIONS = {
    page.relative_to(ROOT).as_posix(): found
    for page in PAGES
    if (found := [each for each in blocks(page) if each.tag in RUN and not each.played_by])
}


@pytest.mark.system
@pytest.mark.timeout(LONG_TEST)
@pytest.mark.parametrize("page", SESSIONS)
def test_what_a_page_shows_is_what_happens(page: str, tmp_path: Path) -> None:
    wrong = run(SESSIONS[page], tmp_path)
    assert not wrong, "\n\n".join(wrong)


def test_a_session_that_prints_something_else_is_found(tmp_path: Path) -> None:
    text = (
        '```console\n$ echo "12 of 12 accepted"\n7 of 7 accepted\n$ echo x; \\\n  echo y\ny\nz\n```'
    )
    (wrong,) = run(blocks(tmp_path / "page.md", text), tmp_path)
    assert "is said to print: z" in wrong


def test_a_session_that_breaks_off_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    wrong = run([Block(page, 1, "sh", "exit 3"), Block(page, 2, "sh", "true")], tmp_path)
    (only,) = wrong
    assert only.startswith("$ true") and only.endswith("was not reached")


def test_a_program_that_fails_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (only,) = run([Block(page, 1, "python", "raise SystemExit(1)")], tmp_path)
    assert only.endswith("failed")


def test_lines_are_looked_for_in_their_order() -> None:
    assert missing(["a 1", "b"], "a  2\nx\nb") == []
    assert missing(["b", "a 1"], "a 2\nb") == ["a 1"]
    assert missing(["waits: the consent..."], "waits: the consent of all") == []


def test_two_pages_at_once_have_ports_of_their_own() -> None:
    with replaced_ports() as first, replaced_ports() as second:
        taken = [*first.values(), *second.values()]
        assert len(taken) == 4 and len({*taken}) == 4
        with socket.create_server(("127.0.0.1", int(first["2700"] + "1"))):
            pass  # A daemon may bind what is held for it.


def test_a_large_number_is_written_as_it_is_printed() -> None:
    assert missing(["ann 15000"], "ann 15,000") == ["ann 15000"]
    assert missing(["1,200 of 1,200..."], "1200 of 1200 accepted") == ["1,200 of 1,200..."]
    assert missing(["1,212 records", "pid 4586"], "812 records\npid 12345") == []


def test_a_command_may_have_several_lines() -> None:
    (only,) = commands("$ a \\\n  b\nprinted")
    assert (only.text, only.printed) == ("a \\\n  b", ["printed"])
