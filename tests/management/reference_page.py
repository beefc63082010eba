"""Writes the tables of docs/management.md anew: `python -m tests.management.reference_page`."""

from __future__ import annotations

import re
from pathlib import Path

from qpidha.management.reference import documentation

PAGE = Path(__file__).parents[2] / "docs" / "management.md"
WRITTEN = re.compile(r"(?<=<!-- methods begin)([^\n]*\n).*(?=<!-- methods end -->)", re.DOTALL)


def with_tables(text: str) -> str:
    """Return the page with the tables as they are now."""
    return WRITTEN.sub(lambda found: f"{found[1]}\n{documentation()}\n", text)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
