"""`qpid-stat` at real brokers: its views, and the figures in them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from qpidha.client.blocking import Client
from qpidha.client.errors import NotAccepted
from qpidha.client.management import Conversation
from qpidha.tools import connection_options
from tests.cli.test_login import serving
from tests.system.cluster import Cluster, wait_for
from tests.system.credentials import users_file
from tests.tools.test_qpid_config import broker
from tests.tools.transcripts import called, is_as_written

Start = Callable[..., Cluster]


@pytest.fixture(autouse=True)
def number_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_options.os, "getpid", lambda: 4242)


def send(client: Client, queue: str, count: int) -> None:
    """Send messages of 100 bytes, and some more of their own."""
    with client.sender(queue) as sender:
        for _ in range(count):
            with suppress(NotAccepted):
                sender.send(b"x" * 100)


def transact(client: Client) -> None:
    """Send a message in a transaction, and take one in another."""
    with client.transaction() as transaction, client.sender("done") as sender:
        sender.send(b"z" * 100, transaction=transaction)
    with client.receiver("done", credit=0) as receiver:
        receiver.add_credit(1)
        with client.transaction() as transaction:
            receiver.receive().accept(transaction)


@contextmanager
def busy(at: str) -> Iterator[Client]:
    """A client that has done something, and consumes still."""
    for words in (
        "queue work --durable --max-queue-count 100 --alternate-exchange amq.fanout",
        "queue done",
        "queue ring --max-queue-count 2 --limit-policy ring",
        "queue old",
        "exchange topic news --durable",
    ):
        assert called(f"qpid-config add {words}", {"node1": at})[1] == 0
    for words in ("amq.topic done a.#", "news work b", "news done b"):
        assert called(f"qpid-config bind {words}", {"node1": at})[1] == 0
    named = {"qpid.client_process": "busy", "qpid.client_pid": 77}
    with Client(at, properties=named) as client:
        for queue, count in (("work", 6), ("done", 4), ("ring", 12), ("old", 4)):
            send(client, queue, count)
        send(client, "news/b", 1)
        send(client, "amq.topic/nobody", 2)
        taken = client.receiver("done", credit=0)
        taken.add_credit(3)
        for _ in range(3):
            taken.receive().accept()
        taken.close()
        transact(client)
        Conversation(client).call("purge_queue", {"name": "old"})
        steady = client.receiver("work", name="steady", credit=0)
        steady.add_credit(2)
        steady.receive()
        steady.receive()
        yield client


def test_what_a_monitor_asks(tmp_path: Path) -> None:
    with broker(tmp_path) as at, busy(at):
        is_as_written("qpid_stat.txt", {"node1": at})


def test_what_there_is_of_access_control(tmp_path: Path) -> None:
    users = users_file(tmp_path / "users", {"admin": "admin", "ann": "ann"})
    rules = tmp_path / "acl"
    lines = ("deny ann create queue name=no", "allow all publish exchange", "allow all all")
    rules.write_text("".join(f"acl {line}\n" for line in lines))
    words = ["--users-file", str(users), "--acl-file", str(rules), "--ha-username", "admin"]
    with serving(str(tmp_path / "a.sock"), *words) as at:
        assert called(f"qpid-config -b ann/ann@{at} add queue no", {})[1] == 1
        printed, code = called(f"qpid-stat --acl -b admin/admin@{at}", {})
        title, _, _, *rows = printed.splitlines()
        shown = dict(re.split(r"  +", row.strip()) for row in rows)
        assert (code, title) == (0, "ACL Policy Statistics:")
        when = datetime.strptime(shown.pop("last-acl-load"), "%a %b %d %H:%M:%S %Y")
        assert abs(datetime.now(UTC).replace(tzinfo=None) - when) < timedelta(hours=1)
        assert shown == {
            "policy-file": str(rules),
            "enforcing": "Y",
            "has-transfer-acls": "Y",
            "acl-denials": "1",
        }
        printed, code = called(f"qpid-stat --acl -b ann/ann@{at}", {})
        assert code == 1 and printed.startswith("Failed: AuthenticationFailure - ")
        assert printed.endswith("Try: log in as the user that ha-username names\n")
        assert called(f"qpid-stat -q -b ann/ann@{at} --ha-admin", {}) == ("Queues\n", 0)


def test_a_cluster(a_cluster: Start) -> None:
    cluster = a_cluster(2, ha_replicate="all")
    cluster.wait_settled(0)
    nodes = {f"node{i}": address for i, address in enumerate(cluster.addresses, 1)}
    assert called("qpid-config -b node1 add queue q", nodes)[1] == 0
    with Client(nodes["node1"]) as client:
        send(client, "q", 1)
    wait_for(lambda: cluster[1].call("statistics")["messages"], (1).__eq__, what="its messages")
    is_as_written("qpid_stat_cluster.txt", nodes)
    printed, code = called("qpid-stat -g -b node2,node1", nodes)
    assert code == 0 and printed.splitlines()[3].split()[1] == "<active>"


def test_memory_is_shown_by_its_use(tmp_path: Path) -> None:
    with broker(tmp_path) as at:
        printed, code = called("qpid-stat -m", {"node1": at})
        title, heads, line, *rows = printed.splitlines()
        assert (code, title) == (0, "Broker Memory Statistics:")
        assert heads.split() == ["Statistic", "Value"]
        assert line.strip("= ") == ""
        shown = {name: int(value.replace(",", "")) for name, value in map(str.split, rows)}
        assert {"limit", "used", "bodies", "messages"} <= set(shown) and shown["limit"] > 1 << 20
        found = json.loads(called("qpid-stat -m -o json", {"node1": at})[0])["memory"]
        assert set(found) == set(shown)


def test_sums_are_one_document_too(tmp_path: Path) -> None:
    with broker(tmp_path) as at, busy(at):
        for view in ("-g", "-c", "-e", "-q", "-q work", "-u", "-m", "--acl"):
            printed, code = called(f"qpid-stat {view} -o json", {"node1": at})
            assert code == 0 and json.loads(printed)["schema_version"] == 1, view
        printed, _ = called("qpid-stat -q -S msgIn -L 2 -o json", {"node1": at})
        assert [queue["name"] for queue in json.loads(printed)["queues"]] == ["ring", "work"]
