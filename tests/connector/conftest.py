"""Real brokers, as the system tests have them; without PySpark or pyarrow the connector cannot be
imported, and its tests are not there.
"""

from __future__ import annotations

from importlib.util import find_spec

from tests.system.conftest import a_cluster, pytest_runtest_makereport

__all__ = ["a_cluster", "pytest_runtest_makereport"]

collect_ignore_glob = [] if all(map(find_spec, ("pyspark", "pyarrow"))) else ["test_[!_]*.py"]
