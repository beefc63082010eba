"""What all tests share: where a test lies decides its marker, its patience and its turn."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.patience import LONG_TEST, TEST

ROOT = Path(__file__).parent
REAL_BROKERS = frozenset(
    ("system", "interop", "fidelity", "hostile", "ocf", "agents", "lab", "connector")
)
"""Folders whose tests start real brokers."""
LONG = REAL_BROKERS | {"sim"}
"""Folders with tests that take long, one by one."""
GROUPS = ("lab", "spark", "packages", "spark-jobs", "real-brokers")
"""Tests that stay in one worker, the longest first. The option --no-loadscope-reorder of xdist
keeps that order.
"""

# Deadlines would make a busy machine fail tests; one fixed seed in CI, so that a change is judged
# by its own merits.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True
)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# What Python compiles is kept, also by the processes that tests start: a broker, or a call of
# qpid-ha, would take twice as long if it compiled everything again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A broker that is given no data-dir has one by default. No test writes there: it names one, or says
# no-data-dir, or its broker cannot start.
NO_DATA_DIR = "/dev/null/this-test-names-no-data-dir"
os.environ["STATE_DIRECTORY"] = NO_DATA_DIR

# Programs installed beside this Python are the ones under test, also when the environment was not
# activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

# Who runs tests in the background of a shell has SIGINT ignored, and so would all programs have
# that they start: Ctrl-C is tried on some.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the golden plays of tests/scenarios be written anew."""
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write what the plays of tests/scenarios announce now",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect what lies higher first: pytest 9.1 loses the fixtures of a folder when a file that
    lies above it is named between two of its files (its issue 14964).
    """
    here = config.invocation_params.dir
    config.args.sort(key=lambda name: len((here / name.partition("::")[0]).resolve().parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect without looking for garbage: what is collected stays until the end, and so that
    collections during the tests need not look at it either.
    """
    gc.disable()
    try:
        found = yield
        gc.freeze()
        return found
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests with real brokers, keep those of the one lab in one worker and those of the
    packages, which are made once, in another, and end every test that hangs.
    """
    folders = {path: path.relative_to(ROOT).parts[0] for path in {item.path for item in items}}
    for item in items:
        folder = folders[item.path]
        is_real = folder in REAL_BROKERS
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_TEST if is_real else TEST))
        if is_real:
            item.add_marker(getattr(pytest.mark, folder))
        if folder in ("lab", "packages"):
            item.add_marker(pytest.mark.xdist_group(folder))

    def turn(item: pytest.Item) -> int:
        """What takes longest begins first, and what stays in one worker before what does not: the
        lab, which mostly waits, Spark, and the packages. Quick tests are what all workers end with.
        """
        group = item.get_closest_marker("xdist_group")
        if group is None:
            return len(GROUPS) + (folders[item.path] not in LONG)
        name = group.args[0]
        return GROUPS.index(name) if name in GROUPS else len(GROUPS)

    items.sort(key=turn)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Fail a test that has left SIGINT ignored: all programs that later tests start would ignore it
    too, and never end.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        pytest.fail("this test has left SIGINT ignored, and programs inherit that")
