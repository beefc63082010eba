"""Says in the report of a run that the tests on Spark were not run, should that be so."""

from __future__ import annotations

from tests.pipeline.spark.conftest import absent


def test_spark_is_installed() -> None:
    """Skipped with the reason where something is missing."""
    assert absent() == ""
