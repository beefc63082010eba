"""Pacemaker as a resource manager: what it tells is read right, and what it is asked is what was
meant.
"""

from __future__ import annotations

import json
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qpidha.manager.pacemaker import manager as pacemaker
from qpidha.manager.pacemaker.cib import Cib
from qpidha.manager.pacemaker.manager import PacemakerManager
from qpidha.manager.pacemaker.plan import seconds
from qpidha.manager.pacemaker.state import read_state
from qpidha.manager.resource_manager import BrokerPlace, ResourceManager
from qpidha.manager.tool_runner import ToolFailed, ToolMissing, run
from qpidha.model.errors import InvalidArgument, NotAllowed, NotFound
from tests.manager.pacemaker_tools import FIXTURES, Tools

LINKS = "".join(
    (
        f"nodelist.node.{index}.name (str) = ha{index + 1}\nnodelist.node.{index}.ring0_addr "
        f"(str) = 10.77.0.1{index + 1}\n"
    )
    for index in range(3)
)
CIB = (FIXTURES / "cib.xml").read_text()
FAILS = """#!/bin/sh
echo "Error: cannot move resource" >&2
echo "it will not stay" >&2
exit 1
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """Three nodes, of which ha3 has the primary."""
    tools = Tools(tmp_path, monkeypatch)
    tools.add("crm_mon", (FIXTURES / "running.xml").read_text())
    tools.add("cibadmin", CIB)
    tools.add("pcs")
    tools.add("corosync-cmapctl", LINKS)
    return tools


@pytest.fixture
def manager(tools: Tools) -> PacemakerManager:
    return pacemaker.connect()


@pytest.fixture
def status() -> Iterator[tuple[str, dict[str, Any]]]:
    """A broker that answers each status with what the test puts in."""
    answer: dict[str, Any] = {}

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                self.wfile.write(
                    json.dumps({"id": json.loads(line)["id"], "result": answer}).encode() + b"\n"
                )

    with (
        tempfile.TemporaryDirectory(prefix="qpidha-") as folder,
        socketserver.ThreadingUnixStreamServer(f"{folder}/admin.sock", Handler) as server,
    ):
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"{folder}/admin.sock", answer
        server.shutdown()
        thread.join()


def configured(tmp_path: Path, admin_socket: str = "/nowhere/admin.sock") -> Cib:
    """The configuration with a file of the brokers that can be read."""
    path = tmp_path / "qpidha.conf"
    path.write_text(
        f"auth=no\nadmin-socket={admin_socket}\nport=5700\nha-cluster=yes\nha-brokers-url=10.77.0.11:5700,10.77.0.12:5700,ha3:5700\n"
    )
    agent = 'type="broker" provider="qpidha">'
    alternatives = [agent, 'provider="qpidha" type="broker">']
    used = next(one for one in alternatives if one in CIB)
    given = (
        '<instance_attributes id="i"><nvpair id="n" name="config" '
        f'value="{path}"/></instance_attributes>'
    )
    return Cib(CIB.replace(used, used + given, 1))


def test_it_is_a_resource_manager(manager: PacemakerManager) -> None:
    keeps: ResourceManager = manager
    assert keeps.name == "pacemaker"


def test_the_state_of_a_running_cluster() -> None:
    state = read_state((FIXTURES / "running.xml").read_text())
    assert (state.quorate, state.controller, state.fencing, state.maintenance) == (
        True,
        "ha2",
        True,
        False,
    )
    assert [(node.name, node.text, state.score(node)) for node in state.nodes] == [
        ("ha1", "online", 100),
        ("ha2", "online", 100),
        ("ha3", "online", 1000),
    ]
    primary = state.primary()
    assert primary is not None
    assert (primary.node, primary.around, len(state.brokers())) == ("ha3", "broker-clone", 3)
    assert [(one.resource, one.node) for one in state.addresses()] == [("vip", "ha3")]


def test_a_failure_and_a_fencing_are_told() -> None:
    failed = read_state((FIXTURES / "failed.xml").read_text())
    assert failed.failures == ["broker_monitor_2000 on ha1: not running"]
    fenced = read_state((FIXTURES / "fenced.xml").read_text())
    assert fenced.fenced == ["ha3 reboot success 2026-11-21 01:17:28Z"]
    assert [node.text for node in fenced.nodes if node.name == "ha3"] == ["online standby"], (
        "it came back and is joining"
    )


def test_what_is_no_xml_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="crm_mon wrote no XML"):
        read_state("Connection to cluster failed")


@pytest.mark.parametrize(
    ("text", "value"), [("2s", 2), ("1500ms", 1.5), ("1min", 60), ("20", 20), ("", 0), ("soon", 0)]
)
def test_durations_are_read_as_pacemaker_does(text: str, value: float) -> None:
    assert seconds(text) == value


def test_members_are_its_nodes_with_what_the_broker_here_knows(
    tools: Tools, tmp_path: Path, status: tuple[str, dict[str, Any]]
) -> None:
    path, answer = status
    answer["members"] = [
        {"address": "10.77.0.11:5700", "state": "ready", "system_id": "one"},
        {"address": "10.77.0.12:5700", "state": "catchup", "system_id": "two"},
        {"address": "ha3:5700", "state": "active", "system_id": "three"},
    ]
    members = PacemakerManager(configured(tmp_path, path)).members()
    assert [(one.name, one.address, one.state, one.system_id, one.healthy) for one in members] == [
        ("ha1", "10.77.0.11:5700", "ready", "one", True),
        ("ha2", "10.77.0.12:5700", "catchup", "two", True),
        ("ha3", "ha3:5700", "active", "three", True),
    ]


def test_members_are_known_from_pacemaker_alone_when_no_broker_answers(
    manager: PacemakerManager,
) -> None:
    assert [(one.name, one.state) for one in manager.members()] == [
        ("ha1", "unknown"),
        ("ha2", "unknown"),
        ("ha3", "active"),
    ]


def test_a_switchover_moves_the_promoted_role_to_the_node_of_the_address(
    manager: PacemakerManager, tools: Tools
) -> None:
    manager.switch_over("10.77.0.12:5672")
    assert tools.calls("pcs") == ["resource move broker-clone ha2 --promoted --wait=60"]


def test_a_switchover_without_a_target_takes_the_best(
    manager: PacemakerManager, tools: Tools
) -> None:
    known = (FIXTURES / "running.xml").read_text()
    tools.add(
        "crm_mon",
        known.replace(
            '<attribute name="master-broker" value="100"/>',
            '<attribute name="master-broker" value="90"/>',
            1,
        ),
    )
    manager.switch_over("")
    assert tools.calls("pcs") == ["resource move broker-clone ha2 --promoted --wait=60"]


def test_nobody_is_moved_to_where_the_primary_is_or_where_no_score_is(
    manager: PacemakerManager, tools: Tools
) -> None:
    with pytest.raises(NotAllowed, match="ha3 has the primary already"):
        manager.switch_over("ha3")
    tools.add(
        "crm_mon",
        (FIXTURES / "running.xml")
        .read_text()
        .replace('<attribute name="master-broker" value="100"/>', ""),
    )
    for order in (manager.switch_over, manager.take_over):
        with pytest.raises(NotAllowed, match="ha1 has no promotion score"):
            order("ha1")
        with pytest.raises(NotAllowed, match="no other broker has a promotion score"):
            order("")
    assert tools.calls("pcs") == []


def test_a_broker_is_promoted_only_where_there_is_no_primary(
    manager: PacemakerManager, tools: Tools
) -> None:
    with pytest.raises(NotAllowed, match="ha3 has the primary already"):
        manager.promote("ha1")
    tools.add(
        "crm_mon",
        (FIXTURES / "running.xml").read_text().replace('role="Promoted"', 'role="Unpromoted"'),
    )
    with pytest.raises(NotAllowed, match="no broker promoted"):
        manager.switch_over("ha1")
    manager.promote("ha1")
    assert tools.calls("pcs") == ["resource move broker-clone ha1 --promoted --wait=60"]


def test_a_takeover_forgets_failures_first(manager: PacemakerManager, tools: Tools) -> None:
    tools.add("crm_mon", (FIXTURES / "failed.xml").read_text())
    manager.take_over("ha2")
    assert tools.calls("pcs")[0] == "resource cleanup broker-clone node=ha2"
    assert tools.calls("pcs")[1] == "resource move broker-clone ha2 --promoted --wait=60"


def test_a_takeover_of_the_resource_that_promotes_forgets_its_failures(tools: Tools) -> None:
    """In the style of two primitives the failures are not those of the brokers."""
    primary = '<primitive id="qpidd-primary" class="ocf" provider="qpidha" type="qpidd-primary"/>'
    cib = Cib(
        CIB.replace('type="broker"', 'type="qpidd"').replace(
            "</resources>", f'<group id="primary-service">{primary}</group></resources>'
        )
    )
    tools.add("crm_mon", (FIXTURES / "failed.xml").read_text())
    PacemakerManager(cib).take_over("ha2")
    assert tools.calls("pcs") == [
        "resource cleanup primary-service node=ha2",
        "resource move primary-service ha2 --wait=60",
    ]


def test_fencing_and_the_end_of_all(manager: PacemakerManager, tools: Tools) -> None:
    manager.fence("10.77.0.11:5672")
    manager.stop()
    assert tools.calls("pcs") == ["stonith fence ha1", "resource disable broker-clone --wait=60"]


def test_an_unknown_broker_is_answered_with_the_nodes(manager: PacemakerManager) -> None:
    with pytest.raises(NotFound) as refusal:
        manager.switch_over("192.0.2.1:5672")
    assert "ha1, ha2, ha3" in refusal.value.hint


def test_a_failed_command_is_shown_with_its_error(manager: PacemakerManager, tools: Tools) -> None:
    tools.add("pcs", program=FAILS)
    with pytest.raises(ToolFailed) as failure:
        manager.switch_over("ha1")
    assert (
        "`pcs resource move broker-clone ha1 --promoted --wait=60` failed with exit code 1"
        in failure.value.text
    )
    assert "cannot move resource it will not stay" in failure.value.text


def test_whose_broker_it_is(tools: Tools, tmp_path: Path) -> None:
    manager = PacemakerManager(configured(tmp_path))
    ours = [
        BrokerPlace("/nowhere/admin.sock"),
        BrokerPlace("", "10.77.0.12:5700"),
        BrokerPlace("", "10.77.0.100:5700"),
        BrokerPlace("", "localhost:5700"),
    ]
    others = [
        BrokerPlace("/else/admin.sock"),
        BrokerPlace("", "10.77.0.12:5701"),
        BrokerPlace("", "10.77.0.99:5700"),
        BrokerPlace(),
        BrokerPlace("", "localhost:amqp"),
    ]
    assert [manager.runs(place) for place in ours] == [True] * 4
    assert [manager.runs(place) for place in others] == [False] * 5


def test_no_manager_is_found_where_pacemaker_does_not_run_or_has_no_broker(tools: Tools) -> None:
    place = BrokerPlace("", "localhost:5672")
    tools.add("cibadmin", program=FAILS)
    assert pacemaker.find(place) is None
    tools.add("cibadmin", CIB.replace('"qpidha"', '"pacemaker"'))
    assert pacemaker.find(place) is None


def test_a_tool_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolMissing, match="no-such-tool is not installed here"):
        run("no-such-tool")


def test_a_tool_that_does_not_end_is_told(tools: Tools) -> None:
    tools.add("pcs", program="#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(ToolFailed, match="did not end within 0.1 s"):
        run("pcs", "status", timeout=0.1)
