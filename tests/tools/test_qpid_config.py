"""`qpid-config` at real brokers: what scripts give it, what it prints, and its exit codes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from qpidha.cli.main import main as cli
from qpidha.client import management
from qpidha.client.blocking import Client
from tests.cli.test_login import serving
from tests.system.cluster import Cluster
from tests.tools.transcripts import called, is_as_written

Start = Callable[..., Cluster]


def broker(folder: Path, *options: str) -> AbstractContextManager[str]:
    """A broker of this machine alone, with a disk."""
    words = ("--auth", "no", "--data-dir", str(folder / "data"), *options)
    return serving(str(folder / "a.sock"), *words)


def test_what_documents_and_scripts_do(tmp_path: Path) -> None:
    with broker(tmp_path) as at:
        is_as_written("qpid_config.txt", {"node1": at})


def test_a_queue_with_messages_or_consumers_is_deleted_by_force(tmp_path: Path) -> None:
    def run(line: str) -> int:
        return called(f"qpid-config {line}", {"node1": at})[1]

    with broker(tmp_path) as at, Client(at) as client:
        run("add queue full")
        client.sender("full").send(b"x")
        assert [run("del queue full"), run("del queue full --force-if-used")] == [1, 1]
        assert run("del queue full --force-if-not-empty") == 0
        run("add queue used")
        client.receiver("used")
        assert [run("del queue used"), run("del queue used --force-if-not-empty")] == [1, 1]
        assert run("del queue used --force-if-used") == 0
        run("add queue both")
        client.sender("both").send(b"x")
        client.receiver("both", credit=0)
        assert run("del queue both --force-if-used") == run("del queue both") == 1
        assert run("del queue both --force") == 0


def test_a_cluster_shows_what_is_replicated(a_cluster: Start) -> None:
    cluster = a_cluster(2, ha_replicate="all")
    cluster.wait_settled(0)
    nodes = {f"node{i}": address for i, address in enumerate(cluster.addresses, 1)}
    is_as_written("qpid_config_cluster.txt", nodes)


def test_more_objects_than_one_answer_has_are_all_shown(
    a_cluster: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = a_cluster(1)
    monkeypatch.setattr(management, "PAGE", 5)
    for number in range(12):
        cluster[0].declare_queue(f"q{number:04}")
    printed, code = called("qpid-config queues", {"node1": cluster[0].address})
    names = [line.split()[0] for line in printed.splitlines()[2:]]
    assert code == 0 and names == [f"q{number:04}" for number in range(12)]


def test_a_queue_begins_as_a_replica(tmp_path: Path) -> None:
    with ExitStack() as stack:
        nodes = {}
        for name in ("node1", "node2"):
            (tmp_path / name).mkdir()
            at = broker(tmp_path / name, "--ha-queue-replication", "yes")
            nodes[name] = stack.enter_context(at)
        called("qpid-config add queue myqueue", nodes)
        with Client(nodes["node1"]) as client:
            for number in range(3):
                client.sender("myqueue").send(str(number))
        is_as_written("qpid_config_replica.txt", nodes)
        with Client(nodes["node2"]) as client:
            receiver = client.receiver("myqueue", browse=True)
            assert [receiver.receive().body for _ in range(3)] == ["0", "1", "2"]


def test_lists_are_definitions_that_another_broker_can_be_given(tmp_path: Path) -> None:
    with ExitStack() as stack:
        nodes = {}
        for name in ("node1", "node2"):
            (tmp_path / name).mkdir()
            nodes[name] = stack.enter_context(broker(tmp_path / name))
        for line in (
            "add exchange topic events --durable",
            "add exchange fanout lost --durable --replicate all",
            "add queue orders --durable --max-queue-count 500 --limit-policy ring",
            "add queue slow --max-queue-count 9 --flow-stop-count 5 --flow-resume-count 2",
            "add queue prices --lvq-key symbol --argument note=7 --alternate-exchange lost",
            "bind events orders 'order.#'",
            "bind amq.match prices k all a=1 b='a b'",
        ):
            assert called(f"qpid-config {line}", nodes)[1] == 0

        def lists(node: str) -> str:
            words = ("exchanges", "queues", "exchanges -r")
            return "".join(called(f"qpid-config {each} -b {node}", nodes)[0] for each in words)

        (tmp_path / "qpid.txt").write_text(lists("node1"))
        words = ["definitions", "import", "--from", "qpid", str(tmp_path / "qpid.txt")]
        assert cli([*words, "-b", nodes["node2"]]) == 0
        assert lists("node2") == lists("node1")
