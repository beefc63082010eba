"""Durable records that a former primary had accepted alone are set aside when it rejoins: the log,
the event log, status and list say so, and so does the broker when it stops.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Said
from tests.system.clients import browse, connect, send
from tests.system.cluster import Broker, Cluster, wait_for

pytestmark = pytest.mark.system
Run = Callable[..., Said]


@pytest.fixture
def forked_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Two brokers that were primary in turn while the other one was dead, and accepted a message
    each; then the first one rejoined.
    """
    monkeypatch.setenv("QPIDHA_DIR", str(tmp_path / "nowhere"))
    cluster = Cluster(tmp_path, 2, options={"ha_safety": "trust-manager", "log_enable": "notice+"})
    cluster.start()
    first, second = cluster
    first.call("declare_queue", name="q", durable=True, arguments={})
    second.kill()
    send(first, "q", ["only here"], durable=True)
    first.kill()
    second.restart()
    second.promote()
    second.wait_state("active")
    send(second, "q", ["there"], durable=True)
    first.restart()
    cluster.wait_settled(1)
    yield cluster
    cluster.close()


def set_aside(broker: Broker) -> list[str]:
    return list(broker.status().get("set_aside", []))


def marks(broker: Broker) -> list[object]:
    """Whether each message on the queue says that it was salvaged."""
    with connect(broker) as client:
        receiver = client.receiver("q", browse=True)
        found = [receiver.receive() for _ in range(2)]
    return [message.message_annotations.get("x-opt-ha-salvaged") for message in found]


def test_rabbitmq_d6_what_is_set_aside_is_announced_everywhere(
    forked_cluster: Cluster, qpid_ha: Run
) -> None:
    first, second = forked_cluster
    (folder,) = wait_for(lambda: set_aside(first), what="what was set aside")
    assert (first.data_dir / "journal" / folder).is_dir() and set_aside(second) == []

    text = f"are set aside in {first.data_dir}/journal/{folder}"
    salvage = f"qpid-ha journal salvage {first.data_dir} --discarded {folder} --to"
    assert text in first.log.read_text() and salvage in first.log.read_text()
    said = qpid_ha("status", "--explain", "-b", first.address)
    assert f"set aside: records that a primary did not have, in journal/{folder}" in said.out
    count = first.status()["records_set_aside"]
    assert count >= 1 and f"set aside in all: {count:,} record" in said.out
    said = qpid_ha("list", "-b", second.address)
    assert f"{first.address} has records that were set aside ({count:,})" in said.err

    said = qpid_ha(
        "journal", "salvage", str(first.data_dir), "--discarded", folder, "--to", second.address
    )
    assert said.code == 0 and browse(second, "q") == ["there", "only here"], said
    assert marks(second) == [None, True]
    first.signal(15)
    wait_for(lambda: not first.is_running, what="whether it has stopped")
    assert first.log.read_text().count(text) == 2, "its last words name them again"
    events = [
        json.loads(line)
        for file in sorted((first.data_dir / "events").rglob("*"))
        if file.is_file()
        for line in file.read_text(errors="replace").splitlines()
        if '"k":"error"' in line
    ]
    assert [event["x"] for event in events if folder in event["err"]] == ["set aside"] * 2

    first.restart()
    assert set_aside(first) == [folder]
