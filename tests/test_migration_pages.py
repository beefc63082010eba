"""The pages for who comes from Qpid or RabbitMQ are complete, and say what the code does."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from qpidha.broker.vocabulary import TABLE
from qpidha.model.qpidd import QPIDD
from qpidha.model.sources import IGNORED
from qpidha.tools.qpid_definitions import FLAGS
from qpidha.tools.qpid_definitions import OPTIONS as QPID_CONFIG
from qpidha.tools.rabbitmq_definitions import DONE_OTHERWISE, ELSEWHERE, SAME_EXCHANGE
from tests import migration_pages
from tests.interop.rabbitmq import PROGRAMS
from tests.migration_pages import PAGES, QPID_TOOLS, RABBITMQ_QUEUES, RABBITMQCTL, SCRIPTS, page

WRITE = "run: python -m tests.migration_pages"
QPID, RABBITMQ = PAGES


@pytest.mark.parametrize("path", PAGES)
def test_a_page_says_what_the_code_does(path: Path) -> None:
    assert path.read_text() == page(path), WRITE
    for name in PAGES[path]:
        assert f"<!-- {name} begin" in path.read_text()


def named(text: str, part: str) -> list[str]:
    """Return the names of a list: those of its sentences, and of the first cells of its tables."""
    (inner,) = re.findall(rf"<!-- {part} begin[^\n]*\n(.*?)<!-- {part} end", text, re.DOTALL)
    lines = [
        line.split("|")[1] if line.startswith("|") else line
        for line in inner.splitlines()
        if line.startswith(("| `", "The same: ", "Followed ("))
    ]
    return [name for line in lines for name in re.findall(r"`([^`]+)`", line)]


HEADS = ("qpid-config add", "rabbitmqctl", "rabbitmq-queues")
"""Names in the heads of tables."""


def of(origin: str) -> list[str]:
    """Name what the clients of a broker ask for."""
    return [each.name for each in TABLE if each.origin == origin]


@pytest.mark.parametrize(
    ("path", "part", "names"),
    [
        (QPID, "qpid-options", [*QPIDD]),
        (QPID, "qpid-arguments", of("Qpid")),
        (QPID, "qpid-tools", [*QPID_TOOLS]),
        (QPID, "qpid-config", [*QPID_CONFIG, *FLAGS]),
        (RABBITMQ, "rabbitmq-arguments", of("RabbitMQ")),
        (RABBITMQ, "rabbitmqctl", [*RABBITMQCTL, *RABBITMQ_QUEUES]),
        (RABBITMQ, "rabbitmq-definitions", [*ELSEWHERE, *DONE_OTHERWISE, *SAME_EXCHANGE]),
    ],
)
def test_every_name_has_one_place(path: Path, part: str, names: list[str]) -> None:
    found = [name for name in named(path.read_text(), part) if name not in HEADS]
    assert sorted(found) == sorted(names), WRITE


def test_what_is_listed_is_all_there_is() -> None:
    assert {*IGNORED} <= {*QPIDD}
    assert {name for name in SCRIPTS if name.startswith("qpid-")} <= {*QPID_TOOLS}


def test_names_with_one_remark_share_a_row() -> None:
    rows = [("a", "ignored", "no"), ("b", "taken", ""), ("c", "ignored", "no")]
    assert migration_pages.table(("name", "here", "remark"), rows).splitlines() == [
        "| name | here | remark |",
        "|---|---|---|",
        "| `a`, `c` | ignored | no |",
        "| `b` | taken | |",
    ]


@pytest.mark.skipif(not PROGRAMS.exists(), reason="no RabbitMQ is installed")
@pytest.mark.parametrize(
    ("tool", "table"), [("rabbitmqctl", RABBITMQCTL), ("rabbitmq-queues", RABBITMQ_QUEUES)]
)
def test_every_command_of_rabbitmq_has_its_place(
    tool: str, table: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [PROGRAMS / tool, "help"],
        env={**os.environ, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^   ([a-z_]+)(?: |$)", done.stdout, re.MULTILINE)
    assert len(found) > 8
    assert [
        name for name in found if name not in table and name not in ("autocomplete", "help")
    ] == []


def test_a_list_that_is_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(migration_pages.QPIDD, "new-option", QPIDD["port"])
    assert QPID.read_text() != page(QPID)
