"""`qpid-ha rgmanager`: a cluster.conf for given nodes, and the scripts put in their place."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Said

ROOT = Path(__file__).parent.parent.parent
IPMI = "fence_ipmilan,ipaddr=10.0.0.1,login=fence"
Command = Callable[..., Said]


def test_a_plan_is_a_file_for_rgmanager(qpid_ha: Command) -> None:
    fencing = [
        word for node in ("a.lan", "b.lan", "c.lan") for word in ("--fence", f"{node}={IPMI}")
    ]
    said = qpid_ha(
        "rgmanager",
        "plan",
        "--nodes",
        "a.lan,b.lan,c.lan",
        "--vip",
        "10.0.0.100/24",
        "--vip",
        "2001:db8::5",
        *fencing,
    )
    assert said.code == 0 and said.err == ""
    cluster = ElementTree.fromstring(said.out)
    assert [node.attrib for node in cluster.iterfind("clusternodes/clusternode")][2] == {
        "name": "c.lan",
        "nodeid": "3",
    }
    assert [
        node.attrib["name"]
        for node in cluster.iterfind("clusternodes/clusternode/fence/method/device")
    ] == [device.attrib["name"] for device in cluster.iterfind("fencedevices/fencedevice")]
    (script,) = cluster.iterfind("rm/service[@name='qpidd-primary-service']/script")
    assert [one.attrib["ref"] for one in script.iterfind("ip")] == ["10.0.0.100/24", "2001:db8::5"]


def test_a_plan_without_fencing_says_so(qpid_ha: Command) -> None:
    said = qpid_ha("rgmanager", "plan", "--nodes", "a,b,c", "--fence", f"b={IPMI}")
    assert said.code == 0 and "a, c cannot be fenced" in said.err
    said = qpid_ha("-o", "json", "-q", "rgmanager", "plan", "--nodes", "a,b,c")
    assert said.err == "" and json.loads(said.out)["without_fencing"] == ["a", "b", "c"]


def test_blanks_between_nodes_are_no_part_of_them(qpid_ha: Command) -> None:
    cluster = ElementTree.fromstring(qpid_ha("rgmanager", "plan", "--nodes", "a, b").out)
    assert [node.attrib["name"] for node in cluster.iterfind("clusternodes/clusternode")] == [
        "a",
        "b",
    ]


def test_a_plan_for_two_nodes_says_what_that_means(qpid_ha: Command) -> None:
    said = qpid_ha("rgmanager", "plan", "--nodes", "a,b")
    (cman,) = ElementTree.fromstring(said.out).iterfind("cman")
    assert (
        cman.attrib == {"two_node": "1", "expected_votes": "1"}
        and "ha-safety=trust-manager" in said.out
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--nodes", "a"), "at least two nodes"),
        (("--nodes", "a,b,a"), "the node a is named twice"),
        (("--nodes", "a.x,a.y"), "a.x and a.y have the same short name, a,"),
        (
            ("--nodes", "10.0.0.1,10.0.0.2,10.0.0.3"),
            "10.0.0.1 and 10.0.0.2 have the same short name, 10,",
        ),
        (("--nodes", "db.east.example.com,db.west.example.com,x"), "have the same short name, db,"),
        (("--nodes", "a,,b"), "'' is not a host name"),
        (("--nodes", "a b,c"), "'a b' is not a host name"),
        (("--nodes", "b,c<d"), "'c<d' is not a host name"),
        (("--nodes", "a,-b"), "'-b' is not a host name"),
        (("--nodes", f"a,{'b' * 64}"), "is not a host name"),
        (("--nodes", f"a,{'b.' * 127}b"), "is not a host name"),
        (("--nodes", "a,b", "--vip", "host"), "is not an address"),
        (("--nodes", "a,b", "--vip", "0.0.0.0/24"), "belongs to no host"),
        (("--nodes", "a,b", "--vip", "224.0.0.1/24"), "belongs to no host"),
        (("--nodes", "a,b", "--fence", "c=fence_x"), "no node of the cluster"),
        (("--nodes", "a,b", "--fence", "a=fence_x", "--fence", "a=fence_y"), "twice for one node"),
        (("--nodes", "a,b", "--fence", "a"), "is not NODE=AGENT"),
        (("--nodes", "a,b", "--fence", "a=fence_x,port"), "is not NODE=AGENT"),
        (("--nodes", "a,b", "--fence", "a=fence_x,name=other"), "is not NODE=AGENT"),
        (("--nodes", "a,b", "--vip", "10.0.0.1", "--vip", "10.0.0.1/24"), "given twice"),
        (("--nodes", "a,b", "--name", "sixteen-letters-"), "has 16 characters"),
        (("--nodes", "a,b", "--interval", "0"), "too short"),
        (("--nodes", "a,b", "--scripts", "init.d"), "--scripts init.d is not an absolute path"),
        ((), "missing option '--nodes'"),
    ],
)
def test_what_cannot_work_is_refused(qpid_ha: Command, words: tuple[str, ...], says: str) -> None:
    said = qpid_ha("rgmanager", "plan", *words)
    assert said.code == 2 and says in said.err and "Try: " in said.err and said.out == ""


def test_the_scripts_are_put_in_their_place(qpid_ha: Command, tmp_path: Path) -> None:
    for _ in range(2):  # again over the former ones
        said = qpid_ha("rgmanager", "install-scripts", "--destdir", str(tmp_path))
        assert said.code == 0
    for name in ("qpidd", "qpidd-primary"):
        target = tmp_path / "etc" / "init.d" / name
        assert target.read_text() == (ROOT / "agents" / name).read_text() and os.access(
            target, os.X_OK
        )
    assert sorted(path.name for path in (tmp_path / "etc" / "init.d").iterdir()) == [
        "qpidd",
        "qpidd-primary",
    ]


def test_another_programs_script_is_not_overwritten(qpid_ha: Command, tmp_path: Path) -> None:
    folder = tmp_path / "etc" / "init.d"
    folder.mkdir(parents=True)
    (folder / "qpidd").write_text("#!/bin/sh\necho the broker in C++\n")
    said = qpid_ha("rgmanager", "install-scripts", "--destdir", str(tmp_path))
    assert said.code == 1 and "is not ours" in said.err
    assert "C++" in (folder / "qpidd").read_text()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_who_may_not_write_there_is_told(qpid_ha: Command) -> None:
    said = qpid_ha("rgmanager", "install-scripts", "--destdir", "/proc/1")
    assert said.code == 77 and "permission denied" in said.err


def test_the_commands_of_the_group_are_shown(qpid_ha: Command) -> None:
    said = qpid_ha("rgmanager")
    assert said.code == 2 and "install-scripts" in said.err
