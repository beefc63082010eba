"""Writes the tables of options in docs/qpid-tools.md: `python -m tests.tools.qpid_tools_page`."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from optparse import Option, OptionContainer

from tests.documents import ROOT

PAGE = ROOT / "docs" / "qpid-tools.md"
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
"""Program -> where it begins."""
TOOLS = [name for name in SCRIPTS if name.startswith("qpid-") and name != "qpid-ha"]
"""Those that Qpid has too."""
TABLE = re.compile(
    r"(<!-- options of (\S+): python -m tests\.tools\.qpid_tools_page -->\n)"
    r".*?(<!-- end of options -->)",
    re.DOTALL,
)


def escaped(text: str) -> str:
    """Return a text of help as Markdown."""
    return re.sub(r"([\\*_<>|])", r"\\\1", text)


def row(container: OptionContainer, option: Option) -> str:
    """Return the row of an option."""
    takes = f" {option.metavar}" if option.metavar and option.takes_value() else ""
    names = ", ".join([*option._short_opts, *option._long_opts])
    takes = takes.replace("|", r"\|")  # A table has it so, in code as well.
    text = (option.help or "").replace("%default", str(container.defaults.get(option.dest)))
    return f"| `{names}{takes}` | {escaped(text)} |"


def table(program: str) -> str:
    """Write the options of a program, a table for each group."""
    parser = import_module(f"qpidha.tools.{program.replace('-', '_')}").make_parser()
    parts = []
    for group in parser.option_groups:
        for option in group.option_list:
            group.defaults.setdefault(option.dest, parser.defaults.get(option.dest))
        rows = [row(group, option) for option in group.option_list]
        parts.append("\n".join((f"\n| {group.title} | |", "|---|---|", *rows)))
    return "\n".join(parts)


def with_tables(text: str) -> str:
    """Return the page with the tables as the programs have their options."""
    return TABLE.sub(lambda found: f"{found[1]}{table(found[2])}\n\n{found[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
