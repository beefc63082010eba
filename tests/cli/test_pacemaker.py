"""`qpid-ha pacemaker`: what it prints, what the real pcs makes of it, and what it says where
something is missing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Said
from tests.manager.pacemaker_tools import (
    FIXTURES,
    PATIENCE,
    PCS,
    ROOT,
    SYSTEM_PATH,
    Tools,
    in_room,
    need,
    real_pcs,
)

pytestmark = pytest.mark.timeout(4 * PATIENCE)

Run = Callable[..., Said]
FENCE = "watchdog fence_watchdog pcmk_host_list='a b c'"
PLAN = ("--nodes", "a,b,c", "--vip", "10.0.0.100/24@eth0", "--fence", FENCE)
EMPTY = """<cib crm_feature_set="3.16.1" validate-with="pacemaker-3.9"
 epoch="0" num_updates="0" admin_epoch="0">
<configuration><crm_config/><nodes>
<node id="1" uname="a"/><node id="2" uname="b"/><node id="3" uname="c"/><node id="4" uname="d"/>
</nodes>
<resources/><constraints/></configuration><status/></cib>"""
FAILS = """#!/bin/sh
case "$1 $2 $4" in
"cluster cib "*) cp "$STORE" "$3" ;;
*order*) echo "Error: no such resource" >&2; exit 1 ;;
"-f "*) exec /usr/sbin/pcs "$@" ;;
*) echo pushed >>"$STORE" ;;
esac
"""


NEWER = """#!/bin/sh
# As pcs 0.12: a rule is one word, and what follows `clone` or `promotable` is refused.
# All else is done by the real pcs.
case "$*" in
--version) echo 0.12.1; exit ;;
"cluster cib "*) cp "$STORE" "$3"; exit ;;
"cluster cib-push "*) cp "$3" "$STORE"; exit ;;
*" clone "*=* | *" promotable "*=*) echo "Error: attributes after a clone: $*" >&2; exit 1 ;;
*" rule "*)
    [ $# -eq 8 ] && [ "${8% qpid-ready}" != "$8" ] || {
        echo "Error: a rule in several words: $*" >&2
        exit 1
    }
    exec /usr/sbin/pcs -f "$2" constraint location "$5" rule "$7" "${8% qpid-ready}" qpid-ready ;;
esac
exec /usr/sbin/pcs "$@"
"""


class Cluster:
    """A cluster's configuration in a file, and `qpid-ha` where our agents are installed."""

    def __init__(self, folder: Path, pcs: str = PCS) -> None:
        need("pcs", "cibadmin")
        self.store = folder / "store.xml"
        self.store.write_text(EMPTY)
        (folder / "pcs").write_text(pcs.replace("/usr/sbin/pcs", real_pcs()))
        (folder / "pcs").chmod(0o755)
        self.path = f"{folder}:{SYSTEM_PATH}"

    def run(self, *words: str) -> Said:
        command = [
            "env",
            f"PATH={self.path}",
            sys.executable,
            "-m",
            "qpidha.cli.main",
            "pacemaker",
            *words,
        ]
        said = in_room(command, STORE=str(self.store), PYTHONPATH=str(ROOT))
        return Said(said.returncode, said.stdout, said.stderr)

    def calls(self) -> list[str]:
        return Path(f"{self.store}.calls").read_text().splitlines()


def test_the_plan_is_a_script_and_setup_without_apply_prints_the_same(qpid_ha: Run) -> None:
    planned = qpid_ha("pacemaker", "plan", *PLAN)
    assert (planned.code, planned.err) == (0, "")
    assert (
        "\npcs -f qpidha-cib.xml constraint order promote broker-clone then start vip\n"
        in planned.out
    )
    assert qpid_ha("pacemaker", "setup", *PLAN) == planned
    steps = json.loads(qpid_ha("pacemaker", "plan", *PLAN, "-o", "json").out)["steps"]
    assert [step["command"][:3] for step in steps][:3] == [
        ["pcs", "property", "set"],
        ["pcs", "stonith", "create"],
        ["pcs", "resource", "create"],
    ]


@pytest.mark.parametrize(
    ("version", "rule"), [("0.11.5", "defined qpid-ready"), ("0.12.1", "'defined qpid-ready'")]
)
def test_the_plan_is_for_the_pcs_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qpid_ha: Run, version: str, rule: str
) -> None:
    tools = Tools(tmp_path, monkeypatch)
    tools.add("pcs", version)
    assert qpid_ha("pacemaker", "plan", *PLAN).code == 0
    assert tools.calls("pcs") == [], "of this style every pcs takes all"
    planned = qpid_ha("pacemaker", "plan", *PLAN, "--style", "two-primitives")
    assert f" rule score-attribute=qpid-ready {rule}\n" in planned.out
    assert tools.calls("pcs") == ["--version"]


def test_without_pcs_the_plan_is_for_the_newest(
    monkeypatch: pytest.MonkeyPatch, qpid_ha: Run
) -> None:
    monkeypatch.setattr("qpidha.manager.tool_runner.PLACES", ())
    monkeypatch.setenv("PATH", "/nowhere")
    planned = qpid_ha("pacemaker", "plan", *PLAN, "--style", "two-primitives")
    assert " rule score-attribute=qpid-ready 'defined qpid-ready'\n" in planned.out


def test_setup_speaks_to_a_pcs_of_0_12_as_it_wants(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, NEWER)
    for style in ("promotable", "two-primitives"):
        cluster.store.write_text(EMPTY)
        said = cluster.run("setup", *PLAN, "--style", style, "--apply")
        assert said.code == 0, said
        assert cluster.run("setup", *PLAN, "--style", style, "--apply").out.startswith(
            "0 steps done"
        )


def test_the_delay_of_the_fencing_of_two_nodes_arrives(qpid_ha: Run) -> None:
    words = ["pacemaker", "plan", "--nodes", "a,b", "--fencing-exists"]
    assert "priority-fencing-delay=5s" in qpid_ha(*words).out
    assert "priority-fencing-delay=9s" in qpid_ha(*words, "--fencing-delay", "9").out
    assert "priority" not in qpid_ha(*words, "--fencing-delay", "0").out


def test_every_option_of_the_plan_arrives(qpid_ha: Run) -> None:
    words = [
        "--monitor",
        "10",
        "--dc-deadtime",
        "2",
        "--recheck",
        "90",
        "--broker-set",
        "isolation=5",
        "--vip-set",
        "check_link=no",
    ]
    out = qpid_ha("pacemaker", "plan", *PLAN, *words, "--vip", "fd00::1/64").out
    for part in (
        "interval=10s role=Promoted",
        "interval=11s role=Unpromoted",
        "dc-deadtime=2s",
        "cluster-recheck-interval=90s",
    ):
        assert part in out
    assert "isolation=5" in out
    assert out.count("check_link=no") == 2
    assert (
        "ocf:heartbeat:IPaddr2" in qpid_ha("pacemaker", "plan", *PLAN, "--vip-agent", "IPaddr2").out
    )
    assert "qpidd-primary" in qpid_ha("pacemaker", "plan", *PLAN, "--style", "two-primitives").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nodes", "a,b,c"], "nothing says how a lost node is fenced"),
        (["--nodes", "a,b,c", "--no-fencing", "--fence", FENCE], "--no-fencing contradicts"),
        (["--nodes", "a", "--no-fencing"], "two different nodes"),
        (["--nodes", "a,b,x", "--fence", FENCE], "no fence device can switch off x"),
        (["--nodes", "a,b", "--no-fencing", "--vip", "here"], "virtual address 'here'"),
        (
            ["--nodes", "a,b", "--no-fencing", "--vip", "10.0.0.1/24", "--vip", "10.0.0.1/24"],
            "10.0.0.1 is given twice",
        ),
        (
            ["--nodes", "a,b,c", "--fence", "power fence_x pcmk_host_list='a b c"],
            "cannot be read: no closing quotation",
        ),
        (["--nodes", "a,b", "--no-fencing", "--style", "x"], "no style 'x'"),
        (["--nodes", "a,b", "--no-fencing", "--vip-agent", "x"], "no agent 'x'"),
        (["--nodes", "a,b", "--no-fencing", "--broker-set", "x"], "'x' is not NAME=VALUE"),
    ],
)
def test_a_plan_that_cannot_work_is_a_usage_error_with_advice(
    qpid_ha: Run, words: list[str], says: str
) -> None:
    said = qpid_ha("pacemaker", "plan", *words)
    assert said.code == 2
    assert says in said.err
    assert "Try: " in said.err


@pytest.fixture(scope="module")
def set_up(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cluster, Said]:
    """A cluster as the first setup left it, which is not to be changed, and what that said."""
    cluster = Cluster(tmp_path_factory.mktemp("set-up"))
    first = cluster.run("setup", *PLAN, "--apply")
    assert first.code == 0, first
    return cluster, first


@pytest.fixture
def cluster(set_up: tuple[Cluster, Said], tmp_path: Path) -> Cluster:
    """A copy of that cluster."""
    copy = Cluster(tmp_path)
    copy.store.write_text(set_up[0].store.read_text())
    return copy


@pytest.mark.xdist_group("set-up")
def test_setup_makes_the_cluster_and_twice_is_like_once(
    set_up: tuple[Cluster, Said], cluster: Cluster
) -> None:
    first = set_up[1]
    assert first.out.startswith("8 steps done; next")
    assert "pcs constraint location broker-clone avoids d\n" in first.err
    made = cluster.store.read_text()
    assert 'with-rsc-role="Promoted"' in made
    pushes = [call for call in set_up[0].calls() if call.startswith("cluster cib-push")]
    assert len(pushes) == 1
    again = cluster.run("setup", *PLAN, "--apply")
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith("0 steps done, 8 were done already")
    assert cluster.store.read_text() == made
    more = cluster.run("setup", *PLAN, "--vip", "10.0.0.101/24", "--apply", "-o", "json")
    assert [step["what"] for step in json.loads(more.out)["steps"] if step["is_new"]] == [
        "the virtual address 10.0.0.101",
        "it is where the primary is",
        "and not before the promotion",
    ]
    other = cluster.run("setup", *PLAN, "--monitor", "9", "--apply")
    assert other.code == 2
    assert (
        "the resource broker is there already, and is another: it has no monitor of role "
        "Promoted every 9 s"
    ) in other.err


def test_a_property_that_somebody_has_set_otherwise_is_not_overwritten(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    pairs = (
        '<nvpair id="a" name="stonith-enabled" value="true"/><nvpair id="b" '
        'name="no-quorum-policy" value="freeze"/>'
    )
    own = EMPTY.replace(
        "<crm_config/>",
        f'<crm_config><cluster_property_set id="p">{pairs}</cluster_property_set></crm_config>',
    )
    cluster.store.write_text(own)
    said = cluster.run("setup", "--nodes", "a,b,c", "--no-fencing", "--apply")
    assert said.code == 2
    assert (
        "no-quorum-policy is freeze already, planned is stop; the cluster property "
        "stonith-enabled is true already"
    ) in said.err
    assert "Try: pcs property set no-quorum-policy=stop stonith-enabled=false" in said.err
    assert cluster.store.read_text() == own
    cluster.store.write_text(own.replace("freeze", "stop"))
    assert cluster.run("setup", *PLAN, "--apply").code == 0
    assert 'name="cluster-delay" value="10s"' in cluster.store.read_text()


def test_another_address_is_added_to_the_group_of_the_primary(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    words = ["setup", *PLAN, "--style", "two-primitives", "--apply"]
    assert cluster.run(*words).code == 0
    assert cluster.run(*words).out.startswith("0 steps done")
    more = cluster.run(*words, "--vip", "10.0.0.101/24")
    assert more.code == 0, more
    assert "pcs resource group add primary-service vip2\n" in more.err


@pytest.mark.xdist_group("set-up")
def test_a_node_that_was_left_out_before_is_not_left_out_in_silence(cluster: Cluster) -> None:
    more = cluster.run(
        "setup", "--nodes", "a,b,c,d", "--vip", "10.0.0.100/24@eth0", "--fencing-exists", "--apply"
    )
    assert more.code == 2
    assert (
        "d is to have a broker, and the constraint location-broker-clone-d--INFINITY "
        "keeps it away. Try: pcs constraint delete"
    ) in more.err


def test_a_command_that_fails_is_shown_and_the_cluster_is_as_it_was(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, FAILS)
    said = cluster.run("setup", *PLAN, "--apply")
    assert said.code == 1
    assert (
        "constraint order promote broker-clone then start vip` failed with exit code 1: "
        "Error: no such resource"
    ) in said.err
    assert cluster.store.read_text() == EMPTY


def test_a_node_that_pacemaker_does_not_know_is_told(tmp_path: Path) -> None:
    said = Cluster(tmp_path).run("setup", "--nodes", "a,b,x", "--no-fencing", "--apply")
    assert said.code == 2
    assert "Pacemaker has no node x. Try: it has a, b, c, d" in said.err


def test_status_and_verify_of_a_running_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qpid_ha: Run
) -> None:
    tools = Tools(tmp_path, monkeypatch)
    for name, fixture in (("crm_mon", "failed.xml"), ("cibadmin", "cib.xml")):
        tools.add(name, (FIXTURES / fixture).read_text())
    for name, says in (
        ("crm_attribute", "3:1:x,y"),
        ("corosync-cmapctl", "runtime.config.totem.token (u32) = 400\n"),
        ("systemctl", ""),
    ):
        tools.add(name, says)
    shown = qpid_ha("pacemaker", "status")
    assert shown.code == 0, shown
    assert shown.out.splitlines()[0].startswith("quorate   primary ha")
    assert "recorded in-sync set: 3.1 of x, y" in shown.out
    assert "failure: broker_monitor_2000 on ha1: not running" in shown.out
    known = json.loads(qpid_ha("pacemaker", "status", "-o", "json").out)
    assert [broker["node"] for broker in known["brokers"]] == ["ha1", "ha2", "ha3"]
    assert known["recorded"] == {"epoch": 3, "version": 1, "members": ["x", "y"]}
    found = qpid_ha("pacemaker", "verify", "-o", "json")
    assert found.code == 1
    assert "corosync's token is 0.4 s" in [
        finding["what"] for finding in json.loads(found.out)["findings"]
    ]
    assert "Try: token: 1000 or more" in qpid_ha("pacemaker", "verify").out


def test_maintenance_is_asked_of_pcs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qpid_ha: Run
) -> None:
    if os.geteuid() != 0:
        pytest.skip("maintenance mode needs root")
    tools = Tools(tmp_path, monkeypatch)
    tools.add("pcs")
    assert qpid_ha("pacemaker", "maintenance", "on").code == 0
    assert qpid_ha("pacemaker", "maintenance", "off").code == 0
    assert tools.calls("pcs") == [
        "property set maintenance-mode=true",
        "property set maintenance-mode=false",
    ]
    assert qpid_ha("pacemaker", "maintenance", "perhaps").code == 2


def test_agents_are_installed_below_a_folder(tmp_path: Path, qpid_ha: Run) -> None:
    said = qpid_ha("pacemaker", "install-agents", "--destdir", str(tmp_path))
    assert said.code == 0
    assert f"{tmp_path}/usr/lib/ocf/resource.d/qpidha/broker" in said.out.splitlines()


@pytest.mark.parametrize(
    "words", [["status"], ["verify"], ["setup", *PLAN, "--apply"], ["maintenance", "on"]]
)
def test_without_pacemaker_each_command_says_so_in_one_sentence(
    tmp_path: Path, words: list[str]
) -> None:
    need("sh")
    # A system without the tools: its own programs, and a PATH that leads to none.
    nothing = 'mount -t tmpfs tmpfs /usr/sbin; export PATH=/nowhere; exec "$@"'
    command = [
        "sh",
        "-c",
        nothing,
        "sh",
        sys.executable,
        "-m",
        "qpidha.cli.main",
        "pacemaker",
        *words,
    ]
    said = in_room(command, PYTHONPATH=str(ROOT))
    assert said.returncode == 69, said
    assert said.stderr.count("\n") == 1
    assert " is not installed here. Try: install the package" in said.stderr


@pytest.mark.parametrize(
    "words", [["status"], ["verify"], ["setup", *PLAN, "--apply"], ["maintenance", "on"]]
)
def test_where_pacemaker_does_not_run_each_command_says_so_in_one_sentence(
    words: list[str],
) -> None:
    need("pcs", "cibadmin")
    # A network of its own has no abstract sockets of the machine's Pacemaker.
    command = ["unshare", "--net", sys.executable, "-m", "qpidha.cli.main", "pacemaker", *words]
    said = in_room(command, PYTHONPATH=str(ROOT))
    assert said.returncode == 69, said
    assert said.stderr.startswith("error: Pacemaker does not run on this node: `")
    assert said.stderr.endswith(". Try: pcs cluster start\n")


@pytest.mark.parametrize("words", [["setup", *PLAN, "--apply"], ["maintenance", "on"]])
def test_without_root_each_command_that_changes_something_says_so(
    monkeypatch: pytest.MonkeyPatch, qpid_ha: Run, words: list[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    said = qpid_ha("pacemaker", *words)
    assert said.code == 77
    assert said.err.endswith(" needs root. Try: again with sudo\n")
