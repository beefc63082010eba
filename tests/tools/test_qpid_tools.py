"""Qpid's tools: what all of them have, and the page about them."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from tests.documents import ROOT
from tests.tools.qpid_tools_page import PAGE, SCRIPTS, TABLE, TOOLS, with_tables


def test_the_page_has_the_options_of_each_tool() -> None:
    text = PAGE.read_text()
    assert text == with_tables(text), "run python -m tests.tools.qpid_tools_page"
    assert sorted(found[2] for found in TABLE.finditer(text)) == sorted(TOOLS)


def test_the_package_has_each_program_and_its_page() -> None:
    text = (ROOT / "packages" / "deb").read_text()
    names, completed, pages = (
        set(found.split()) for found in re.findall(r"(?m)^for (?:name|page) in (.*); do$", text)
    )
    assert completed == {"qpidhad", *TOOLS}
    assert names == set(SCRIPTS) and pages >= {f"{name}.1" for name in TOOLS}


@pytest.mark.parametrize("name", TOOLS)
def test_help_is_printed_and_each_option_is_explained(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module = import_module(f"qpidha.tools.{name.replace('-', '_')}")
    with pytest.raises(SystemExit, match="0"):
        module.main(["--help"])
    printed = capsys.readouterr().out
    assert printed.startswith("Usage: ") and f" {name} " in printed and "--ha-admin" in printed
    for group in module.make_parser().option_groups:
        assert group.title in printed
        assert all(option.help for option in group.option_list), group.title
