"""Writes docs/commands.md from the help of each command: `python -m tests.cli.commands_page`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from typer.main import get_command

from qpidha.cli.app import COMMANDS, OPTIONS_HELP, _app
from qpidha.cli.words import dress

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
HEAD = """# Commands of `qpid-ha`

Usage: `qpid-ha [options] COMMAND [arguments]`

`qpid-ha help` lists the commands, and `--help` after a command prints what is said of it here.

<!-- written by `python -m tests.cli.commands_page` from the commands in qpidha/cli/ -->

## Options of every command, and exit codes

```output
{options}
```
"""


def escaped(text: str) -> str:
    """Return a text of help as Markdown, on one line."""
    return re.sub(r"([\\`*_<>\[\]|#~])", r"\\\1", " ".join(text.split()))


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a help text as Markdown; a call in it is code."""
    found = []
    for paragraph in text.replace("\b", "").split("\n\n"):
        head, example, call = paragraph.partition("Example: ")
        if not head and example:
            found.append(f"Example: `{' '.join(call.split())}`")
        elif paragraph.strip():
            found.append(escaped(paragraph))
    return found


def table(head: str, rows: list[tuple[str, str]]) -> list[str]:
    """Return a table of arguments or options, nothing if there are none."""
    if not rows:
        return []
    lines = [f"| {head} | |", "|---|---|"]
    lines += [f"| `{name.replace('|', chr(92) + '|')}` | {escaped(text)} |" for name, text in rows]
    return ["\n".join(lines)]


def described(level: int, words: str, command: Any) -> list[str]:
    """Return what is to be said of a command, and of those that it has."""
    context = command.context_class(command, info_name=f"qpid-ha {words}")
    usage = " ".join(["qpid-ha", words, *command.collect_usage_pieces(context)])
    inner = getattr(command, "commands", {})
    found = [f"{'#' * level} {words}"]
    if not inner:
        found.append(f"Usage: `{usage}`")
    found += paragraphs(command.help or "")
    for kind in ("argument", "option"):
        params = [param for param in command.params if param.param_type_name == kind]
        found += table(kind, [row for param in params if (row := param.get_help_record(context))])
    for name, each in inner.items():
        found += described(level + 1, f"{words} {name}", each)
    return found


def page() -> str:
    """Return the page as the commands have it."""
    parts = [HEAD.format(options=OPTIONS_HELP).rstrip()]
    for name, (module, _) in COMMANDS.items():
        if name == "help":
            continue
        root: Any = get_command(_app([module]))
        dress(root)
        parts += described(2, name, root.commands[name])
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
