"""`qpid-route` at real brokers: what documents and scripts give it, what it prints, and its exit
codes; and that messages go where its routes lead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from qpidha.client.blocking import Client
from qpidha.client.message import Message
from qpidha.tools import qpid_route
from tests.cli.test_login import serving
from tests.patience import STATE
from tests.system.cluster import Cluster, wait_for
from tests.system.credentials import users_file
from tests.tools.transcripts import called, is_as_written

Start = Callable[..., Cluster]
PASSWORD = "p/w@1"


@pytest.fixture(autouse=True)
def links_are_given_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link on a loaded machine has as long as it needs, and a quick one is seen soon."""
    monkeypatch.setattr(qpid_route, "BRIEFLY", 0.05)
    monkeypatch.setattr(qpid_route, "LOOKS", int(STATE / 0.05))


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Three brokers that know nothing of each other."""
    with ExitStack() as stack:
        found = {}
        for name in ("node1", "node2", "node3"):
            words = ("--auth", "no", "--link-maintenance-interval", "0.1")
            found[name] = stack.enter_context(serving(str(tmp_path / f"{name}.sock"), *words))
        yield found


def run(nodes: dict[str, str], line: str) -> str:
    printed, code = called(line, nodes)
    assert code == 0, printed
    return printed


def test_what_documents_and_scripts_do(nodes: dict[str, str]) -> None:
    is_as_written("qpid_route.txt", nodes)


def test_messages_go_over_the_routes(nodes: dict[str, str]) -> None:
    run(nodes, "qpid-config add queue here -b node1")
    run(nodes, "qpid-config bind amq.topic here news.# -b node1")
    run(nodes, "qpid-config add queue there -b node2")
    run(nodes, "qpid-route queue add node1 node2 amq.topic there")
    run(nodes, "qpid-route route add node1 node2 amq.topic news.#")
    run(nodes, "qpid-route -s route add node2 node1 amq.direct key")
    run(nodes, "qpid-config bind amq.direct there key -b node2")

    def states() -> list[str]:
        found = [json.loads(run(nodes, f"qpid-route -o json route list {at}")) for at in ATS]
        return [route["state"] for each in found for route in each["routes"]]

    wait_for(states, (["operational"] * 3).__eq__)
    with Client(nodes["node2"]) as two, Client(nodes["node1"]) as one:
        receiver = one.receiver("here")
        two.sender("amq.topic").send(Message("by key", subject="news.one"))
        assert receiver.receive(STATE).body == "by key"
        # Pushed by node1 to node2, into the queue that node1 pulls from.
        one.sender("amq.direct").send(Message("around", subject="key"))
        wait_for(
            lambda: json.loads(run(nodes, "qpid-route -o json route list node1"))["routes"],
            lambda routes: sum(each["messages"] for each in routes) >= 2,
        )


ATS = ("node1", "node2")


def test_json_has_what_management_has(nodes: dict[str, str]) -> None:
    run(nodes, "qpid-route link add node1 node2")
    run(nodes, "qpid-route link add node2 node3")
    run(nodes, "qpid-route route add node2 node3 amq.topic k")
    (link,) = json.loads(run(nodes, "qpid-route -o json link list node1"))["links"]
    assert (link["name"], link["state"]) == (nodes["node2"], "operational")
    (route,) = json.loads(run(nodes, "qpid-route -o json route list node2"))["routes"]
    assert (route["kind"], route["key"], route["credit"]) == ("exchange", "k", 0)
    found = json.loads(run(nodes, "qpid-route -o json route map node1"))["brokers"]
    assert [each["broker"] for each in found] == list(nodes.values())
    assert [len(each["routes"]) for each in found] == [0, 1, 0]
    run(nodes, "qpid-route -q link add node1 127.0.0.1:1")
    *_, gone = json.loads(run(nodes, "qpid-route -o json route map node1"))["brokers"]
    assert gone["broker"] in ("127.0.0.1:1", nodes["node3"])
    said = run(nodes, "qpid-route route map node1")
    assert "    127.0.0.1:1... 127.0.0.1:1 cannot be reached: Connection refused. Try: does" in said


def test_a_link_that_cannot_connect_says_why(
    nodes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qpid_route, "LOOKS", 2)
    assert run(nodes, "qpid-route -v link add node1 127.0.0.1:1") == "Link state is Waiting\n"
    line = run(nodes, "qpid-route link list node1").splitlines()[-1]
    assert line == (
        "127.0.0.1       1       tcp          N     Waiting           "
        "cannot connect to 127.0.0.1:1: Connection refused"
    )
    run(nodes, "qpid-route -t ssl link add node1 node3")
    wait_for(
        lambda: run(nodes, "qpid-route link list node1").splitlines()[-1],
        lambda line: line.endswith(f"cannot connect to {nodes['node3']}: it does not speak TLS"),
        what="why there is no TLS",
    )


def test_a_route_between_brokers_that_ask_who_is_there(tmp_path: Path) -> None:
    """The login of the link is in the address of the source, and is shown by nothing."""
    users = users_file(tmp_path / "users", {"boss": "boss", "ann": PASSWORD})
    secured = ("--auth", "yes", "--users-file", str(users), "--ha-username", "boss")
    with ExitStack() as stack:
        here = stack.enter_context(serving(str(tmp_path / "a.sock"), "--auth", "no"))
        there = stack.enter_context(serving(str(tmp_path / "b.sock"), *secured))
        nodes = {"node1": here, "node2": there}
        run(nodes, "qpid-config add queue source -b boss/boss@node2 --sasl-mechanism SCRAM-SHA-256")
        source = f"ann/{quote(PASSWORD, safe='')}@node2"
        words = "node1 {} amq.fanout source SCRAM-SHA-256"
        run(nodes, f"qpid-route queue add {words.format(source)}")
        (link,) = json.loads(run(nodes, "qpid-route -o json link list node1"))["links"]
        assert (link["state"], link["username"]) == ("operational", "ann")
        assert link["mechanism"] == "SCRAM-SHA-256"
        assert PASSWORD not in json.dumps(link) and "secret" not in json.dumps(link)
        # Who may not change links there is told so; the address of the link needs no login.
        printed, code = called(
            "qpid-route --client-sasl-mechanism SCRAM-SHA-256 link add "
            f"{source.replace('node2', nodes['node2'])} node1",
            nodes,
        )
        assert code == 1 and "ann may not create link" in printed
        line = "qpid-route -q --client-sasl-mechanism SCRAM-SHA-256 link add boss/boss@node2 node1"
        run(nodes, line)
        run(nodes, "qpid-route queue del node1 node2 amq.fanout source")
        printed, code = called("qpid-route link list ann/wrong@node2", nodes)
        assert code == 1 and printed.startswith("Failed: AuthenticationFailure - ")


def test_routes_of_a_cluster_go_on_at_the_next_primary(a_cluster: Start, tmp_path: Path) -> None:
    cluster = a_cluster(3)
    with serving(str(tmp_path / "s.sock"), "--auth", "no") as source:
        nodes = {"node1": ",".join(cluster.addresses), "node2": source}
        run(nodes, "qpid-config add queue source -b node2")
        cluster[0].declare_queue("here")
        cluster[0].bind("amq.fanout", "here")
        run(nodes, "qpid-route queue add node1 node2 amq.fanout source")
        listed = run(nodes, "qpid-route route list node1")
        assert listed == f"{cluster.addresses[0]} {source} amq.fanout source\n"
        cluster.kill(0, promote=1)
        listed = run(nodes, "qpid-route route list node1")
        assert listed == f"{cluster.addresses[1]} {source} amq.fanout source\n"
        with Client(source) as client:
            client.sender("source").send("through the next primary")
        with Client(cluster.addresses) as client:
            assert client.receiver("here").receive(STATE).body == "through the next primary"
        backup = {"node1": cluster.addresses[2], "node2": source}
        printed, code = called("qpid-route link list node1", backup)
        assert code == 1 and "--ha-admin, if it is a backup" in printed
        assert "Passive" in run(backup, "qpid-route --ha-admin link list node1")
        printed, code = called("qpid-route --ha-admin link del node1 node2", backup)
        assert code == 1 and "Failed: Exception - " in printed
