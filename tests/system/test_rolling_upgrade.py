"""Three brokers of the base version become this one, one after the other and under load, and one
that goes back afterwards is told what to do.

The base is built from the history of this repository: commit 21a66c3, of which
`qpidha/model/features.py` says that everybody understands what it writes.
"""

from __future__ import annotations

import re
import subprocess
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from qpidha.model.features import FEATURES
from tests.patience import STATE
from tests.system.clients import browse, wait_browse
from tests.system.cluster import Broker, Cluster, wait_for
from tests.system.failover_clients import FailoverReceiver, FailoverSender, first_gap

pytestmark = pytest.mark.system

ROOT = Path(__file__).parent.parent.parent
BASE = "21a66c3"
LAUNCHER = """\
import sys
sys.path.insert(0, {folder!r})
from qpidha.runtime import daemon
assert daemon.__file__.startswith({folder!r}), daemon.__file__
sys.exit(daemon.main())
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program that is the daemon of the base version."""
    found = subprocess.run(
        ["git", "archive", "--format=tar", BASE, "qpidha"], cwd=ROOT, capture_output=True
    )
    if found.returncode:
        pytest.skip(f"needs the history of the repository with commit {BASE}: {found.stderr!r}")
    folder = tmp_path_factory.mktemp("base")
    with tarfile.open(fileobj=BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
    launcher = folder / "qpidhad.py"
    launcher.write_text(LAUNCHER.format(folder=str(folder)))
    return launcher


def install(broker: Broker, base: Path | None) -> None:
    """Stop a broker in good order and start it as the base, or as this version."""
    assert broker.process is not None
    if broker.is_running:
        broker.call("shutdown")
        broker.process.wait(timeout=STATE)
    broker.module = [str(base)] if base is not None else ["-m", "qpidha.runtime.daemon"]
    broker.start()


def features(broker: Broker) -> object:
    """Return which features a broker says are enabled; None for the base, which has none."""
    return broker.status().get("features", {}).get("enabled")


def upgrade_backup(cluster: Cluster, number: int, primary: int, base: Path | None = None) -> None:
    install(cluster[number], base)
    cluster[number].wait_up()
    cluster.wait_settled(primary)


def test_three_brokers_are_upgraded_one_by_one_under_load(
    a_cluster: Callable[..., Cluster], base: Path
) -> None:
    cluster = a_cluster(3, ha_safety="strict", module=[str(base)])
    for queue in ("kept", "taken"):
        cluster[0].call("declare_queue", name=queue, durable=True)
    with (
        FailoverSender(cluster.addresses, "kept", rate=2, durable=True) as keeps,
        FailoverSender(cluster.addresses, "taken", rate=2) as sends,
        FailoverReceiver(cluster.addresses, "taken") as takes,
    ):
        keeps.wait_accepted(50)
        assert [features(broker) for broker in cluster] == [None] * 3

        # One backup, and back again: nothing was written that the base cannot read.
        upgrade_backup(cluster, 2, primary=0)
        keeps.wait_accepted(100)
        assert features(cluster[2]) == []
        upgrade_backup(cluster, 2, primary=0, base=base)
        keeps.wait_accepted(100)
        upgrade_backup(cluster, 2, primary=0)

        # The next one, and a primary of this version with a backup of the base.
        upgrade_backup(cluster, 1, primary=0)
        cluster.wait_connected()
        cluster[0].call("switchover", target=cluster[1].address)
        cluster.wait_settled(1)
        keeps.wait_accepted(100)
        sends.wait_accepted(100)
        assert features(cluster[0]) is None and features(cluster[1]) == []

        # The last one: now all know the features, and they are used.
        upgrade_backup(cluster, 0, primary=1)
        for broker in cluster:
            wait_for(lambda broker=broker: features(broker), lambda seen: seen == sorted(FEATURES))
        keeps.wait_accepted(100)
        sends.wait_accepted(100)
        cluster.kill(1, promote=0)
        cluster[1].restart()
        cluster.wait_settled(0)
        keeps.wait_accepted(100)
    assert keeps.refused == sends.refused == []
    kept = [str(body) for body in browse(cluster[0], "kept")]
    assert keeps.missing(kept) == [] and first_gap(int(body) for body in kept) == 0
    for broker in cluster:
        wait_browse(broker, "kept", kept)
    # What the receiver held without an answer comes back when the broker hears that it is gone.
    wait_for(
        lambda: sends.missing([*takes.received, *map(str, browse(cluster[0], "taken"))]),
        lambda missing: missing == [],
        what="the messages that the receiver left",
    )
    assert first_gap(takes.numbers()) == 0


def test_a_broker_that_goes_back_is_refused_with_what_to_upgrade(
    a_cluster: Callable[..., Cluster], base: Path
) -> None:
    cluster = a_cluster(3, ha_safety="strict")
    old = cluster[2]
    cluster[0].declare_queue("q")
    for broker in cluster:
        wait_for(lambda broker=broker: features(broker), lambda seen: seen == sorted(FEATURES))

    # On its own files it does not start: it says which version they need.
    install(old, base)
    assert old.process is not None and old.process.wait(timeout=STATE) != 0
    assert re.search(r"cannot be read|has format 3, this version reads 2", old.log.read_text())

    # With none it starts, and both others refuse it. Each of them says so once, and so does it.
    old.data_dir = old.data_dir.with_name("empty")
    install(old, base)
    old.wait_up()
    names = ", ".join(sorted(FEATURES))
    told = f"{old.address} does not know what this cluster uses: {names}. Upgrade"
    for broker in cluster[:2]:
        wait_for(
            lambda broker=broker: broker.status()["features"]["refused"],
            lambda refused: [row["address"] for row in refused] == [old.address],
        )
    wait_for(lambda: old.log.read_text().count(told), lambda count: count >= 2)
    before = [broker.log.read_text().count("snapshot") for broker in cluster[:2]]
    with FailoverSender(cluster.addresses, "q", rate=1) as sender:  # while it dials again and again
        sender.wait_accepted(500)
    assert [broker.log.read_text().count(told) for broker in cluster[:2]] == [1, 1]
    assert [broker.log.read_text().count("snapshot") for broker in cluster[:2]] == before
    assert old.state == "joining"

    # Upgraded it is a backup again.
    install(old, None)
    old.wait_up()
    cluster.wait_settled(0)
    assert cluster[0].status()["features"]["refused"] == []
