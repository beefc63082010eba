"""The plan for Pacemaker: what pcs is asked, that the real pcs takes it, and that nothing is done
twice.
"""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from qpidha.manager.pacemaker.cib import Cib, is_done
from qpidha.manager.pacemaker.plan import (
    IPADDR2,
    TWO_PRIMITIVES,
    PlanOptions,
    VirtualAddress,
    advice,
    script,
    steps,
    virtual_address,
)
from qpidha.manager.tool_runner import pcs_version
from qpidha.model.errors import InvalidArgument
from tests.manager.pacemaker_tools import Tools, in_room, need, real_pcs

DEVICE = ("watchdog", "fence_watchdog", "pcmk_host_list=a b c")
OPTIONS = PlanOptions(
    nodes=("a", "b", "c"), vips=(VirtualAddress("10.0.0.100", 24, "eth0"),), fence=(DEVICE,)
)


def lines(options: PlanOptions) -> list[str]:
    return [shlex.join(step.words) for step in steps(options)]


def test_the_promotable_plan_is_this() -> None:
    assert lines(OPTIONS) == [
        "property set no-quorum-policy=stop stonith-enabled=true dc-deadtime=5s "
        "cluster-recheck-interval=60s cluster-delay=10s",
        "stonith create watchdog fence_watchdog 'pcmk_host_list=a b c'",
        "resource create broker ocf:qpidha:broker op monitor interval=2s role=Promoted timeout=5s "
        "op monitor interval=3s role=Unpromoted timeout=5s "
        "promotable",
        "resource meta broker-clone promoted-max=1 notify=false interleave=true "
        "migration-threshold=1 failure-timeout=10s",
        "resource create vip ocf:qpidha:vip ip=10.0.0.100 cidr_netmask=24 nic=eth0 op "
        "monitor interval=2s timeout=5s "
        "meta resource-stickiness=0 failure-timeout=10s",
        "constraint colocation add vip with Promoted broker-clone",
        "constraint order promote broker-clone then start vip",
    ]


def test_the_plan_in_two_primitives_is_this() -> None:
    options = replace(
        OPTIONS,
        style=TWO_PRIMITIVES,
        vip_agent=IPADDR2,
        broker={"config": "/c", "binary": "/b"},
        others=("d",),
    )
    assert lines(options)[2:] == [
        "resource create qpidd ocf:qpidha:qpidd config=/c binary=/b op monitor "
        "interval=2s timeout=5s clone",
        "resource meta qpidd-clone interleave=true",
        "constraint location qpidd-clone avoids d",
        "resource create qpidd-primary ocf:qpidha:qpidd-primary config=/c op monitor "
        "interval=2s timeout=5s "
        "meta migration-threshold=1 failure-timeout=10s resource-stickiness=0",
        "resource create vip ocf:heartbeat:IPaddr2 ip=10.0.0.100 cidr_netmask=24 "
        "nic=eth0 op monitor interval=2s timeout=5s "
        "meta resource-stickiness=0 failure-timeout=10s",
        "constraint order start qpidd-clone then start qpidd-primary",
        "constraint colocation add qpidd-primary with qpidd-clone",
        "constraint location qpidd-primary rule score-attribute=qpid-ready 'defined qpid-ready'",
        "constraint location qpidd-primary rule score=-INFINITY 'not_defined qpid-ready'",
        "resource group add primary-service qpidd-primary",
        "resource group add primary-service vip",
    ]


@pytest.mark.parametrize(
    ("pcs", "rule"),
    [
        ((0, 11, 5), "defined qpid-ready"),
        ((0, 11, 8), "defined qpid-ready"),
        ((0, 12, 1), "'defined qpid-ready'"),
    ],
)
def test_the_rule_is_said_as_the_pcs_of_the_day_wants_it(pcs: tuple[int, ...], rule: str) -> None:
    first, second = (
        line for line in lines(replace(OPTIONS, style=TWO_PRIMITIVES, pcs=pcs)) if " rule " in line
    )
    assert first == f"constraint location qpidd-primary rule score-attribute=qpid-ready {rule}"
    assert second == (
        "constraint location qpidd-primary rule score=-INFINITY "
        f"{rule.replace('defined', 'not_defined')}"
    )


@pytest.mark.parametrize("style", ["promotable", TWO_PRIMITIVES])
def test_of_two_nodes_the_one_of_the_primary_fences_first(style: str) -> None:
    two = replace(OPTIONS, nodes=("a", "b"), style=style)
    where = {
        "promotable": "resource meta broker-clone ",
        TWO_PRIMITIVES: "resource create qpidd-primary ",
    }[style]
    for options, delay in ((two, "5s"), (replace(two, fencing_delay=12), "12s")):
        made = lines(options)
        assert made[0].endswith(f" priority-fencing-delay={delay}")
        assert [line.startswith(where) for line in made if " priority=1" in line] == [True]
    for options in (
        replace(two, fencing_delay=0),
        replace(two, fencing=False, fence=()),
        replace(two, others=("c",)),
        OPTIONS,
    ):
        assert not any("priority" in line for line in lines(options))


def test_a_broker_that_may_take_long_to_answer_has_monitors_that_wait_for_it() -> None:
    assert (
        "interval=2s role=Promoted timeout=10s"
        in lines(replace(OPTIONS, broker={"answer": "5.5s"}))[2]
    )
    assert (
        "interval=2s role=Promoted timeout=5s"
        in lines(replace(OPTIONS, broker={"answer": "0.5"}))[2]
    )


def test_an_address_looks_for_the_watch_where_the_broker_has_it() -> None:
    moved = replace(OPTIONS, broker={"rundir": "/run/two/"})
    assert "nic=eth0 watch_socket=/run/two/watch.sock" in lines(moved)[4]
    assert "watch_socket=/elsewhere" in lines(replace(moved, vip={"watch_socket": "/elsewhere"}))[4]
    assert "watch_socket" not in lines(replace(moved, vip_agent=IPADDR2))[4]


def test_every_address_follows_the_primary() -> None:
    options = replace(
        OPTIONS, vips=(virtual_address("10.0.0.100/24"), virtual_address("fd00::100/64@eth0"))
    )
    made = [line for line in lines(options) if "vip2" in line]
    assert len(made) == 3
    assert "ip=fd00::100 cidr_netmask=64 nic=eth0" in made[0]


def test_the_script_is_one_that_a_shell_reads() -> None:
    text = script(OPTIONS)
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    assert (
        text.splitlines()[-1]
        == "pcs cluster cib-push qpidha-cib.xml diff-against=qpidha-cib.xml.before"
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (replace(OPTIONS, nodes=("a",)), "two different nodes"),
        (replace(OPTIONS, nodes=("a", "a")), "two different nodes"),
        (replace(OPTIONS, nodes=("a", "b", "x")), "can switch off x"),
        (replace(OPTIONS, fence=(("ip=1", "fence_x"),)), "is not NAME AGENT"),
        (replace(OPTIONS, style="three"), "no style 'three'"),
        (
            replace(
                OPTIONS, vips=(VirtualAddress("10.0.0.100", 24), VirtualAddress("10.0.0.100", 32))
            ),
            "10.0.0.100 is given twice",
        ),
    ],
)
def test_a_plan_that_cannot_work_is_refused(options: PlanOptions, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        steps(options)


def test_a_device_that_finds_its_nodes_out_by_itself_may_reach_all() -> None:
    assert steps(replace(OPTIONS, fence=(("fabric", "fence_x", "ip=1.2.3.4"),)))


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.300/24",
        "10.0.0.1/33",
        "vip",
        "10.0.0.1/x",
        "10.0.0.1/",
        "",
        "@eth0",
        "0.0.0.0/24",
        "::/64",
        "224.0.0.1/24",
        "ff02::1",
        "255.255.255.255",
        "10.0.0.0/24",
        "10.0.0.255/24",
        "10.0.0.100/24@",
        "10.0.0.100/24@eth 0",
        "10.0.0.100/24@a/b",
        "10.0.0.100/24@sixteen-letters-",
    ],
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="virtual address"):
        virtual_address(text)


@pytest.mark.parametrize("style", ["promotable", TWO_PRIMITIVES])
@pytest.mark.parametrize("vip_agent", ["ocf:qpidha:vip", IPADDR2])
def test_the_real_pcs_takes_the_plan_and_pacemaker_finds_nothing_wrong(
    tmp_path: Path, style: str, vip_agent: str
) -> None:
    need("pcs", "crm_verify", "cibadmin")
    options = replace(
        OPTIONS,
        pcs=pcs_version(),
        style=style,
        vip_agent=vip_agent,
        broker={"config": "/etc/qpidha/b.conf", "binary": "/usr/bin/true"},
    )
    file = tmp_path / "cib.xml"
    made = [shlex.join((real_pcs(), "-f", str(file), *step.words)) for step in steps(options)]
    before = "\n".join(["set -e", f"cibadmin --empty >{file}"])
    said = in_room(
        ["sh", "-c", "\n".join([before, *made, f"crm_verify --verbose --xml-file {file}"])]
    )
    assert said.returncode == 0, said
    assert "error" not in said.stderr.lower(), said.stderr
    cib = Cib(file.read_text())
    assert all(is_done(step, cib) for step in steps(options))
    with pytest.raises(InvalidArgument, match="config is /etc/qpidha/b.conf, planned is /other"):
        for step in steps(replace(options, broker={"config": "/other"})):
            is_done(step, cib)


def test_nothing_of_the_plan_is_in_an_empty_configuration() -> None:
    empty = Cib(
        "<cib><configuration><crm_config/><nodes/><resources/><constraints/></configuration></cib>"
    )
    assert not any(is_done(step, empty) for step in steps(OPTIONS))


def test_two_nodes_are_told_what_they_need_beside_the_plan() -> None:
    two = replace(OPTIONS, nodes=("a", "b"), fence=())
    assert [text.partition(":")[0] for text in advice(two)] == [
        "two nodes have no majority when one is gone"
    ]
    assert "# two nodes have no majority" in script(two)
    assert "accepts nothing until it is back" in advice(replace(two, fencing=False))[1]
    assert advice(replace(two, nodes=("a", "b", "c"))) == []


def with_properties(**values: str) -> Cib:
    pairs = "".join(
        f'<nvpair id="{name}" name="{name.replace("_", "-")}" value="{value}"/>'
        for name, value in values.items()
    )
    return Cib(
        "<cib><configuration><crm_config><cluster_property_set "
        f'id="p">{pairs}</cluster_property_set></crm_config></configuration></cib>'
    )


def test_a_property_that_is_not_set_is_set_and_one_that_means_the_same_stays() -> None:
    step = steps(OPTIONS)[0]
    assert not is_done(step, with_properties(no_quorum_policy="stop", cluster_delay="10s"))
    same = {
        "no_quorum_policy": "stop",
        "stonith_enabled": "yes",
        "dc_deadtime": "5000ms",
        "cluster_recheck_interval": "1min",
    }
    assert not is_done(step, with_properties(**same))
    assert is_done(step, with_properties(**same, cluster_delay="10"))


def test_a_property_that_is_set_to_something_else_is_an_error_that_names_both_values() -> None:
    with pytest.raises(InvalidArgument) as refused:
        is_done(
            steps(replace(OPTIONS, fencing=False))[0],
            with_properties(stonith_enabled="true", no_quorum_policy="freeze", dc_deadtime="5s"),
        )
    assert str(refused.value) == (
        "the cluster property no-quorum-policy is freeze already, planned is stop; "
        "the cluster property stonith-enabled is true already, planned is false"
    )
    assert refused.value.hint == (
        "pcs property set no-quorum-policy=stop stonith-enabled=false, if nothing else "
        "in this cluster needs it otherwise, "
        "and then again; --no-fencing (or --fencing-exists) keeps stonith-enabled"
    )


@pytest.mark.parametrize(
    ("said", "version"),
    [("0.11.5\n", (0, 11, 5)), ("0.12.1+12.ab\n", (0, 12, 1)), ("nonsense", ()), ("", ())],
)
def test_the_version_of_pcs_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, version: tuple[int, ...]
) -> None:
    tools = Tools(tmp_path, monkeypatch)
    tools.add("pcs", said)
    assert pcs_version() == version
    assert tools.calls("pcs") == ["--version"]
