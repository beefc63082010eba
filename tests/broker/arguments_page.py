"""Writes the tables of docs/queues.md and docs/arguments.md anew: `python -m
tests.broker.arguments_page`.
"""

from __future__ import annotations

import re
from pathlib import Path

from qpidha.broker.vocabulary import TABLE, ByPolicy, Entry, Fate, Kind, policy_keys

DOCS = Path(__file__).parents[2] / "docs"
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
CHANGES = {
    ByPolicy.NEVER: "no",
    ByPolicy.FIRST: "by policy",
    ByPolicy.SMALLEST: "by policy; the smallest counts",
}
KNOWN = (
    "Those that are followed are in [queues.md](queues.md#every-argument), for policies as well."
)

OF_EXCHANGES = [f"`{entry.name}`" for entry in policy_keys() if entry.kind is Kind.EXCHANGE]


def queues() -> str:
    """Describe the known arguments of queues."""
    rows = []
    for entry in TABLE:
        if entry.kind is Kind.QUEUE and entry.fate is Fate.KNOWN:
            aliases = [
                f"`{other.name}`{' (policies)' if other.kind is Kind.POLICY else ''}"
                for other in TABLE
                if other.alias_of == entry.name and other.kind in (Kind.QUEUE, Kind.POLICY)
            ]
            cells = (
                _name(entry),
                ", ".join(aliases),
                entry.text,
                entry.values,
                entry.default,
                CHANGES[entry.by_policy],
            )
            rows.append(f"| {' | '.join(cells)} |\n")
    return (
        "| argument | also | | allowed | default | may change |\n|---|---|---|---|---|---|\n"
        + "".join(rows)
    )


def others() -> str:
    """Describe every other name."""
    parts = []
    for kind, title in TITLES.items():
        entries = [entry for entry in TABLE if entry.kind is kind]
        in_queues = (Fate.KNOWN, Fate.REFUSED) if kind is Kind.QUEUE else (Fate.REFUSED,)
        followed = [_followed(entry) for entry in entries if entry.fate not in in_queues]
        refused = [_refused(entry) for entry in entries if entry.fate is Fate.REFUSED]
        parts.append(f"## {title}\n")
        if kind in (Kind.QUEUE, Kind.POLICY):
            parts.append(f"{KNOWN}\n")
        if kind is Kind.POLICY:
            parts.append(f"Of the arguments of exchanges: {', '.join(OF_EXCHANGES)}.\n")
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
    is_known = entry.fate is Fate.KNOWN and entry.default
    values = f"{entry.values}; {entry.default} if it is left out" if is_known else entry.values
    return f"| {_name(entry)} | {entry.origin} | {text} | {values} |\n"


def _refused(entry: Entry) -> str:
    return f"| {_name(entry)} | {entry.origin} | {entry.text} | {entry.hint} |\n"


PAGES = {DOCS / "queues.md": queues, DOCS / "arguments.md": others}


def with_tables(page: Path) -> str:
    """Return a page with its tables as they are now."""
    tables = PAGES[page]()
    return WRITTEN.sub(lambda found: f"{found[1]}\n{tables}\n", page.read_text())


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page))
