"""Says in the report of a run that the tests of reports were not run, should that be so."""

from __future__ import annotations

from tests.pipeline.report.conftest import ABSENT


def test_what_a_report_needs_is_installed() -> None:
    """Skipped with the reason where something is missing."""
    assert ABSENT == ""
