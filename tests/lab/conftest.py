"""One lab for all scenarios of a module; where there can be none they are skipped and say why. A
failure shows each host's logs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.lab.hosts import NAMES
from tests.lab.lab import Lab, why_not
from tests.lab.play import Stage

LOGS = ("pacemaker/pacemaker.log", "corosync/corosync.log", "qpidha/broker.log")
OUTPUT = ("broker.log", "broker.watch.log")
"""What is in a host's memory only."""
TAIL = 40


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Bring the lab up, make the cluster, watch it; everything is ended afterwards, disks and logs
    stay.

    A lab that is up already is used as it is, and left so. A module with HOSTS has a lab of its own
    with these.
    """
    if reason := why_not():
        pytest.skip(reason)
    hosts = getattr(request.module, "HOSTS", NAMES)
    found = Lab.running()
    if found is not None and hosts != NAMES:
        pytest.skip("a lab with other hosts is up: 'make lab-down' ends it")
    lab = found or Lab.up(hosts=hosts)
    try:
        stage = Stage(lab)
        with stage.watch:
            if found is None:
                stage.cluster.start()
            yield stage
    finally:
        if found is None:
            lab.down()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    lab = Lab.running() if report.failed and item.get_closest_marker("lab") else None
    for name in lab.names if lab is not None else ():
        assert lab is not None
        paths = [
            lab.folder / "nodes" / name / "console.log",
            *(lab.disk(name, f"/var/log/{log}") for log in LOGS),
        ]
        paths += [lab.path(name, f"/run/qpidha/{log}") for log in OUTPUT]
        for path in paths:
            if path.exists():
                report.sections.append(
                    (str(path), "\n".join(path.read_text(errors="replace").splitlines()[-TAIL:]))
                )
    return report
