"""Writes the tables of docs/arguments.md anew: `python -m tests.broker.arguments_page`."""

from __future__ import annotations

import re
from pathlib import Path

from qpidha.broker.vocabulary import TABLE, Entry, Fate, Kind

PAGE = Path(__file__).parents[2] / "docs" / "arguments.md"
WRITTEN = re.compile(r"(?<=<!-- names begin)([^\n]*\n).*(?=<!-- names end -->)", re.DOTALL)
TITLES = {
    Kind.QUEUE: "Arguments of queues",
    Kind.EXCHANGE: "Arguments of exchanges",
    Kind.BINDING: "Arguments of bindings",
    Kind.POLICY: "Keys of policies",
    Kind.FILTER: "Filters of a source",
    Kind.SOURCE: "Capabilities of a source",
    Kind.TARGET: "Capabilities of a target",
    Kind.LINK: "Properties of a link",
}


def documentation() -> str:
    """Describe every name."""
    parts = []
    for kind, title in TITLES.items():
        entries = [entry for entry in TABLE if entry.kind is kind]
        followed = [_followed(entry) for entry in entries if entry.fate is not Fate.REFUSED]
        refused = [_refused(entry) for entry in entries if entry.fate is Fate.REFUSED]
        parts.append(f"## {title}\n")
        if followed:
            parts.append("| name | of | | allowed |\n|---|---|---|---|\n" + "".join(followed))
        if refused:
            parts.append(
                "| refused | of | because | instead |\n|---|---|---|---|\n" + "".join(refused)
            )
    return "\n".join(parts)


def _name(entry: Entry) -> str:
    code = f" ({entry.code:#018x})" if entry.code else ""
    return f"`{entry.name}`{code}"


def _followed(entry: Entry) -> str:
    text = f"Alias of `{entry.alias_of}`. {entry.text}" if entry.alias_of else entry.text
    return f"| {_name(entry)} | {entry.origin} | {text} | {entry.values} |\n"


def _refused(entry: Entry) -> str:
    return f"| {_name(entry)} | {entry.origin} | {entry.text} | {entry.hint} |\n"


def with_tables(text: str) -> str:
    """Return the page with the tables as they are now."""
    return WRITTEN.sub(lambda found: f"{found[1]}\n{documentation()}\n", text)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
