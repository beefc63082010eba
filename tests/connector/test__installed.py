"""Says in the report of a run that the tests of the connector were not run, should that be so."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def test_the_extra_data_is_installed() -> None:
    """Skipped, as are all tests beside it, where something is missing."""
    missing = [package for package in ("pyspark", "pyarrow") if find_spec(package) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
