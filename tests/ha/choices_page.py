"""Writes the table of docs/choices.md by experiments: `python -m tests.ha.choices_page`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.ha.choices import table

PAGE = Path(__file__).parents[2] / "docs" / "choices.md"
WRITTEN = re.compile(r"(?<=<!-- choices begin)([^\n]*\n).*(?=<!-- choices end -->)", re.DOTALL)


def page() -> str:
    """Return the page with what the experiments say now."""
    return WRITTEN.sub(lambda found: f"{found[1]}\n{table()}\n\n", PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
