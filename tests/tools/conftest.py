"""Clusters of real brokers, as the system tests have them."""

from __future__ import annotations

from tests.system.conftest import a_cluster, pytest_runtest_makereport

__all__ = ["a_cluster", "pytest_runtest_makereport"]
