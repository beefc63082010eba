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


def test_every_option_argument_and_tool_of_qpid_has_its_place() -> None:
    text = QPID.read_text()
    names = [*QPIDD, *IGNORED, *(each.name for each in TABLE if each.origin == "Qpid")]
    names += [*QPID_TOOLS, *(name for name in SCRIPTS if name.startswith("qpid-"))]
    assert [name for name in names if f"`{name}`" not in text] == []
    assert [name for name in SCRIPTS if name.startswith("qpid-") and name not in QPID_TOOLS] == []


def test_every_argument_and_key_of_rabbitmq_has_its_place() -> None:
    text = RABBITMQ.read_text()
    names = [each.name for each in TABLE if each.origin == "RabbitMQ"]
    assert [name for name in names if f"`{name}`" not in text] == []


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
