"""Tests of reports need what a report needs; where it is not installed they are skipped and
say so.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ABSENT = ", ".join(
    package for package in ("jinja2", "matplotlib", "pyarrow") if find_spec(package) is None
)

# What imports them at its top cannot even be collected; test__installed.py says so.
collect_ignore_glob = ["test_[!_]*.py"] if ABSENT else []


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip what cannot run."""
    if ABSENT and HERE in item.path.parents:
        item.add_marker(pytest.mark.skip(reason=f"not installed: {ABSENT}"))
