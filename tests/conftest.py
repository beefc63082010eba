"""What all tests share: where a test lies decides its marker, its patience and its turn."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent
# Folders whose tests start real brokers -> seconds a test may take.
REAL_BROKERS = {
    "system": 180,
    "interop": 180,
    "fidelity": 180,
    "hostile": 240,
    "ocf": 180,
    "agents": 240,
    "lab": 240,
    "connector": 180,
}
SPARK = ROOT / "pipeline" / "spark"

# Deadlines would make a busy machine fail tests; one fixed seed in CI, so that a change is judged
# by its own merits.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True
)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# Programs installed beside this Python are the ones under test, also when the environment was not
# activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the golden plays of tests/scenarios be written anew."""
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write what the plays of tests/scenarios announce now",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests with real brokers, and keep those of the one lab in one worker."""
    for item in items:
        folder = item.path.relative_to(ROOT).parts[0]
        if folder not in REAL_BROKERS:
            continue
        item.add_marker(getattr(pytest.mark, folder))
        if folder == "lab":
            item.add_marker(pytest.mark.xdist_group("lab"))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(REAL_BROKERS[folder]))
    # One worker has the lab and then Spark; the other brokers, and then quick tests.
    order = {"lab": 0, **dict.fromkeys(REAL_BROKERS.keys() - {"lab"}, 1)}
    items.sort(
        key=lambda item: (
            2 if SPARK in item.path.parents else order.get(item.path.relative_to(ROOT).parts[0], 3)
        )
    )
