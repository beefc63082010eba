"""One Spark session for all tests here, in one worker; without PySpark, pyarrow or Java they are
skipped and say why.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from qpidha.pipeline.generate import histories as generate
from tests.patience import LONG_TEST
from tests.system.conftest import a_cluster, pytest_runtest_makereport

__all__ = ["a_cluster", "pytest_runtest_makereport"]

HERE = Path(__file__).parent
MASTER = "local[2]"
SHORT_CHUNK = 200
"""Lets small synthetic histories have many segments."""


def absent() -> str:
    """Return what is missing, or nothing."""
    missing = [package for package in ("pyspark", "pyarrow") if find_spec(package) is None]
    return ", ".join([*missing, *(["java"] if shutil.which("java") is None else [])])


# What imports PySpark at its top cannot even be collected without it; this module says so.
collect_ignore_glob = ["test_[!_]*.py"] if absent() else []


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep the tests together, and skip them where they cannot run. Hooks for all items at once
    would come after xdist's.
    """
    if HERE not in item.path.parents:
        return
    item.add_marker(pytest.mark.spark)
    # One session in one worker; what starts jobs of its own does so in another, one at a time.
    has_session = "spark" in getattr(item, "fixturenames", ())
    item.add_marker(pytest.mark.xdist_group("spark" if has_session else "spark-jobs"))
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(LONG_TEST))
    if missing := absent():
        item.add_marker(pytest.mark.skip(reason=f"not installed: {missing}"))


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "CHUNK", SHORT_CHUNK)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield the session."""
    from qpidha.pipeline.spark.session import session
    from tests.pipeline.spark.settings import SMALL_JOBS

    folder = tmp_path_factory.mktemp("spark")
    settings = {
        **SMALL_JOBS,
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    found = session(MASTER, settings)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def judged(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a history with everything in it, and its verdict."""
    from tests.pipeline.spark.judged import judge

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "CHUNK", SHORT_CHUNK)
        return judge(spark, tmp_path_factory.mktemp("judged"))
