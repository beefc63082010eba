"""`a_cluster(3)` starts brokers for one test; they are killed after it, and their logs are shown if
it failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.system.cluster import Cluster
from tests.system.net import Network

ISOLATED = "internal error: the connection of"
CLUSTERS = pytest.StashKey[list[Cluster]]()


@pytest.fixture
def a_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Return a function that starts a cluster: `a_cluster(count, started=..., promote=...,
    network=..., **options)`.
    """
    clusters: list[Cluster] = []
    request.node.stash[CLUSTERS] = clusters

    def start(
        count: int,
        *,
        started: int | None = None,
        promote: bool = True,
        encrypted: bool = False,
        network: Network | None = None,
        module: Sequence[str] = (),
        **options: object,
    ) -> Cluster:
        directory = tmp_path / f"cluster{len(clusters)}"
        directory.mkdir()
        cluster = Cluster(
            directory, count, started=started, encrypted=encrypted, network=network, options=options
        )
        clusters.append(cluster)
        for broker in cluster:
            broker.module = list(module or broker.module)
        cluster.start(promote=promote)
        return cluster

    yield start
    mistakes = []
    for cluster in clusters:
        cluster.close()
        for _, text in cluster.logs(1 << 30):
            mistakes += [line for line in text.splitlines() if ISOLATED in line]
    assert not mistakes, "a connection met a mistake, though the test does not notice"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    report = yield
    if report.failed and call.when == "call":
        for cluster in item.stash.get(CLUSTERS, []):
            for name, text in cluster.logs():
                report.sections.append((f"log of {name}", text))
    return report
