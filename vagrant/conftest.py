"""The scenarios of tests/lab on the virtual machines: `sudo .venv/bin/python -m pytest
vagrant/test_scenarios.py`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.lab.hosts import SPARE
from tests.lab.play import Stage
from tests.lab.traffic import QUEUE
from vagrant.lab import VagrantLab, machines, why_not

LOGS = "/var/log/pacemaker/pacemaker.log /var/log/corosync/corosync.log /var/log/qpidha/broker.log"
SECONDS = 600
"""Seconds that a scenario may take; virtual machines take a while to start."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """Watch the cluster that `vagrant provision` made."""
    if reason := why_not():
        pytest.skip(reason)
    with machines() as lab:
        stage = Stage(lab)
        stage.cluster.wait_settled()
        lab.broker(stage.cluster.primary(), "declare_queue", name=QUEUE, arguments={})
        with stage.watch:
            yield stage


@pytest.fixture(autouse=True)
def need_spare(request: pytest.FixtureRequest, stage: Stage) -> None:
    """Skip the scenario that adds a host while there is none to add."""
    lab = stage.lab
    if (
        request.node.name == "test_a_host_is_added"
        and isinstance(lab, VagrantLab)
        and not lab.exists(SPARE)
    ):
        pytest.skip(f"{SPARE} was not made: see README.md")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the ends of every host's logs with a failure."""
    report = yield
    stage = getattr(item, "funcargs", {}).get("stage")
    for name in stage.lab.names if report.failed and isinstance(stage, Stage) else ():
        assert isinstance(stage, Stage)
        done = stage.lab.run(name, "sh", "-c", f"tail -n 40 {LOGS} /run/qpidha/*.log", check=False)
        report.sections.append((name, done.stdout + done.stderr))
    return report
