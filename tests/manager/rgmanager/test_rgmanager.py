"""rgmanager's tools behind the manager's interface: what clustat prints is read, and clusvcadm and
fence_node are called right.

The tools are programs on PATH that keep the state of the services in a file and write down how they
were called.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.resource_manager import BrokerPlace, ResourceManager
from qpidha.manager.rgmanager import manager as rgmanager
from qpidha.manager.rgmanager.manager import RgmanagerManager, find, read_state
from qpidha.manager.tool_runner import ToolFailed
from qpidha.model.errors import NotAllowed, NotFound

NODES = ("node1.example.com", "node2.example.com", "node3.example.com")
PRIMARY = "qpidd-primary-service"
TOOL = """#!{python} -I
import json, pathlib, sys
place = pathlib.Path("{folder}")
state = json.loads((place / "state").read_text())
tool, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
if tool == "clustat":
    if state.get("down"):
        print("Could not connect to CMAN: No such file or directory", file=sys.stderr)
        sys.exit(1)
    print('<?xml version="1.0"?>\\n<clustat version="4.1.1">')
    print('  <cluster name="qpidha" id="1" generation="9"/>')
    print('  <quorum quorate="1" groupmember="1"/>\\n  <nodes>')
    for number, (name, up) in enumerate(state["nodes"].items(), 1):
        print(f'    <node name="{{name}}" state="{{up}}" local="0" estranged="0" rgmanager="{{up}}"'
              f' rgmanager_master="0" qdisk="0" nodeid="0x{{number:08x}}"/>')
    print("  </nodes>\\n  <groups>")
    for name, (text, owner) in state["services"].items():
        print(f'    <group name="service:{{name}}" state="112" state_str="{{text}}"'
              f'  owner="{{owner}}" last_owner="none" restarts="0"'
              ' last_transition="0" last_transition_str="Thu Jan  1 00:00:00 1970"/>')
    print("  </groups>\\n</clustat>")
    sys.exit(0)
with (place / "calls").open("a") as calls:
    calls.write(" ".join([tool, *words]) + "\\n")
if state.get("says"):
    print(state["says"], file=sys.stderr)
    sys.exit(state["code"])
if tool == "clusvcadm":
    service = words[1]
    node = words[3] if len(words) > 3 else state["services"][service][1]
    started = ["started", state.get("instead", node)]
    state["services"][service] = ["disabled", "none"] if words[0] == "-d" else started
    (place / "state").write_text(json.dumps(state))
"""


class Tools:
    """The pretended cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        services = {f"{name.partition('.')[0]}-qpidd-service": ["started", name] for name in NODES}
        self.state: dict[str, object] = {
            "nodes": dict.fromkeys(NODES, 1),
            "services": {**services, PRIMARY: ["started", NODES[0]]},
        }
        self.set()
        for name in ("clustat", "clusvcadm", "fence_node"):
            path = folder / name
            path.write_text(TOOL.format(python=sys.executable, folder=folder))
            path.chmod(0o755)

    def set(self, **changes: object) -> None:
        self.state.update(changes)
        (self.folder / "state").write_text(json.dumps(self.state))

    def set_primary(self, state: str, owner: str = "none") -> None:
        self.state["services"][PRIMARY] = [state, owner]  # type: ignore[index]
        self.set()

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    file = str(configuration(tmp_path))
    monkeypatch.setattr(rgmanager, "usual_file", lambda: file)
    monkeypatch.setattr(
        rgmanager, "_numbers", lambda host: set()
    )  # Nobody is asked for these names.
    return Tools(tmp_path)


def configuration(folder: Path) -> Path:
    path = folder / "qpidha.conf"
    urls = ",".join(f"{name}:5672" for name in NODES)
    path.write_text(f"auth=no\nport=5672\ndata-dir={folder}/data\nha-brokers-url=amqp:{urls}\n")
    return path


@pytest.fixture
def manager(tools: Tools) -> RgmanagerManager:
    found = find(BrokerPlace(address=f"{NODES[1]}:5672"))
    assert found is not None
    return found


def test_it_has_the_interface_of_a_resource_manager(manager: RgmanagerManager) -> None:
    whole: ResourceManager = manager
    assert whole.name == "rgmanager"
    assert (
        whole.record_in_sync(1, 1, ("a",)) is False and whole.newest_in_sync() == InSyncRecord()
    ), "it has no store"


def test_the_manager_of_a_broker_is_found_by_its_socket_and_its_address(tools: Tools) -> None:
    for place in (
        BrokerPlace(f"{tools.folder}/data/admin.sock"),
        BrokerPlace(address="localhost:5672"),
    ):
        assert find(place) is not None
    for place in (
        BrokerPlace("/elsewhere.sock"),
        BrokerPlace(address="localhost:5673"),
        BrokerPlace(),
    ):
        assert find(place) is None
    tools.set(down=True)
    assert find(BrokerPlace(address="localhost:5672")) is None


def test_without_the_tools_there_is_no_rgmanager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(configuration(tmp_path))
    monkeypatch.setattr(rgmanager, "usual_file", lambda: file)
    assert find(BrokerPlace(address="localhost:5672")) is None


def test_members_are_the_nodes_with_what_rgmanager_knows(
    manager: RgmanagerManager, tools: Tools
) -> None:
    tools.set(nodes={**dict.fromkeys(NODES, 1), NODES[2]: 0})
    members = {member.name: member for member in manager.members()}
    assert [(member.alive, member.state, member.address) for member in members.values()] == [
        (True, "active", f"{NODES[0]}:5672"),
        (True, "unknown", f"{NODES[1]}:5672"),
        (False, "down", f"{NODES[2]}:5672"),
    ]


def test_a_switchover_relocates_the_service_of_the_primary(
    manager: RgmanagerManager, tools: Tools
) -> None:
    manager.switch_over(f"{NODES[1]}:5672")
    manager.switch_over("node3")
    assert tools.calls == [
        f"clusvcadm -r {PRIMARY} -m {NODES[1]}",
        f"clusvcadm -r {PRIMARY} -m {NODES[2]}",
    ]
    with pytest.raises(NotAllowed, match="has the primary already"):
        manager.switch_over(NODES[2])
    with pytest.raises(NotFound, match="no node of rgmanager's has the broker 'node4:5672'"):
        manager.switch_over("node4:5672")
    tools.set_primary("disabled")
    with pytest.raises(NotAllowed, match="there is no primary"):
        manager.switch_over(NODES[1])


def test_a_service_that_came_up_elsewhere_is_no_success(
    manager: RgmanagerManager, tools: Tools
) -> None:
    tools.set(instead=NODES[2])
    with pytest.raises(
        NotAllowed, match=rf"{NODES[1]} did not become primary: {PRIMARY} is started on {NODES[2]}"
    ):
        manager.switch_over(NODES[1])


def test_a_promotion_enables_the_service_where_there_is_no_primary(
    manager: RgmanagerManager, tools: Tools
) -> None:
    with pytest.raises(NotAllowed, match="has the primary already"):
        manager.promote(NODES[1])
    tools.set_primary("stopped")
    manager.promote(NODES[1])
    assert tools.calls == [f"clusvcadm -e {PRIMARY} -m {NODES[1]}"]


def test_a_failed_service_is_not_touched(manager: RgmanagerManager, tools: Tools) -> None:
    """rgmanager could not stop it, so nobody knows whether a primary runs."""
    tools.set_primary("failed", NODES[0])
    with pytest.raises(NotAllowed, match="has failed") as refused:
        manager.take_over(NODES[1])
    assert "make sure that no primary runs" in refused.value.hint and tools.calls == []


def test_the_best_is_one_that_is_known_to_be_ready(
    manager: RgmanagerManager, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotAllowed, match="no other broker is known to be ready"):
        manager.take_over("")
    told = {"members": [{"address": f"{NODES[2]}:5672", "state": "ready", "system_id": "c"}]}
    monkeypatch.setattr(rgmanager, "ask", lambda path, method, timeout: told)
    manager.take_over("")
    assert tools.calls == [f"clusvcadm -r {PRIMARY} -m {NODES[2]}"]


def test_a_node_is_fenced_by_its_broker_too(manager: RgmanagerManager, tools: Tools) -> None:
    manager.fence(f"{NODES[1]}:5672")
    assert tools.calls == [f"fence_node {NODES[1]}"]
    tools.set(says="fence node2.example.com failed", code=1)
    with pytest.raises(
        ToolFailed,
        match=r"`fence_node node2.example.com` failed with exit code 1: fence node2.* failed",
    ):
        manager.fence(NODES[1])


def test_to_stop_is_to_disable_every_service_the_primary_first(
    manager: RgmanagerManager, tools: Tools
) -> None:
    manager.stop()
    assert tools.calls == [
        f"clusvcadm -d {PRIMARY}",
        *(f"clusvcadm -d {name.partition('.')[0]}-qpidd-service" for name in NODES),
    ]
    manager.stop()
    assert len(tools.calls) == 4, "what is disabled is left"


def test_what_clustat_prints_is_read_or_refused() -> None:
    inquorate = read_state('<clustat><quorum quorate="0"\n groupmember="0"/><nodes/></clustat>')
    assert not inquorate.quorate and inquorate.primary.state == "unknown"
    for rubbish in ("", "Could not connect", "<clustat><nodes><node/></nodes></clustat>"):
        with pytest.raises(ToolFailed, match="cannot be read"):
            read_state(rubbish)
