"""Checking a Pacemaker cluster: each thing that is configured wrongly is found, and nothing
else.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from qpidha.manager.broker_file import BrokerFile, read_broker_file
from qpidha.manager.pacemaker.agents import AGENTS, install
from qpidha.manager.pacemaker.cib import Cib
from qpidha.manager.pacemaker.verify import Seen, verify
from tests.manager.pacemaker_tools import FIXTURES

CIB = (FIXTURES / "cib.xml").read_text()
GOOD = """auth=no
data-dir=/var/lib/qpidha
ha-cluster=yes
ha-brokers-url=10.78.0.11,10.78.0.12,10.78.0.13
link-heartbeat-interval=1
"""


def written(folder: Path, text: str = GOOD) -> BrokerFile:
    path = folder / "qpidha.conf"
    path.write_text(text)
    return read_broker_file(str(path))


def seen(folder: Path, text: str = CIB) -> Seen:
    """A cluster with which nothing is wrong, but for the configuration that is given."""
    cib = Cib(text)
    brokers = cib.brokers()
    assert brokers is not None
    hosts = {f"ha{number}": f"10.78.0.1{number}:5672" for number in (1, 2, 3)}
    return Seen(cib, brokers, written(folder), hosts, token=1.0, units=(), has_agents=True)


def found(seen: Seen) -> list[str]:
    return [finding.what for finding in verify(seen)]


def test_nothing_is_found_in_what_setup_made(tmp_path: Path) -> None:
    assert verify(seen(tmp_path)) == []


def test_nothing_is_found_in_a_configuration_with_the_old_names_of_the_roles(
    tmp_path: Path,
) -> None:
    """One that an older Pacemaker began: pcs goes on with the names of its schema."""
    old = CIB.replace('role="Promoted"', 'role="Master"').replace(
        'role="Unpromoted"', 'role="Slave"'
    )
    assert old.count('"Master"') == CIB.count('"Promoted"') > 0
    assert verify(seen(tmp_path, old)) == []


@pytest.mark.parametrize(
    ("there", "instead", "says"),
    [
        (
            'name="stonith-enabled" value="true"',
            'name="stonith-enabled" value="false"',
            "fencing is off",
        ),
        (
            'name="stonith-enabled" value="true"',
            'name="stonith-enabled" value="0"',
            "fencing is off",
        ),
        ('class="stonith"', 'class="other"', "there is no fence device"),
        ('value="ha1 ha2 ha3"', 'value="ha1 ha2"', "no fence device for ha3"),
        (
            'name="no-quorum-policy" value="stop"',
            'name="no-quorum-policy" value="ignore"',
            "no-quorum-policy is ignore",
        ),
        (
            'name="cluster-recheck-interval"',
            'name="maintenance-mode" value="true"/><nvpair id="x" name="x"',
            "maintenance mode is on",
        ),
        ('role="Unpromoted"', 'role="Started"', "broker has no monitor of role Unpromoted"),
        (
            'name="migration-threshold" value="1"',
            'name="migration-threshold" value="3"',
            "migration-threshold of broker is not 1",
        ),
        ('name="promoted-max" value="1"', 'name="promoted-max" value="2"', "promoted-max is not 1"),
        (
            'name="resource-stickiness" value="0"',
            'name="resource-stickiness" value="100"',
            "vip has a resource-stickiness",
        ),
        (
            'with-rsc-role="Promoted"',
            'with-rsc-role="Started"',
            "vip is not colocated with the primary",
        ),
        ('first-action="promote"', 'first-action="start"', "vip does not wait for the promotion"),
        (
            'value="10.77.0.100"',
            'value="10.78.0.11"',
            "ha-brokers-url names the virtual address 10.78.0.11",
        ),
    ],
)
def test_each_wrong_configuration_is_found(
    tmp_path: Path, there: str, instead: str, says: str
) -> None:
    assert there in CIB
    assert found(seen(tmp_path, CIB.replace(there, instead))) == [says]


def test_a_disabled_fence_device_is_found_and_reaches_nobody(tmp_path: Path) -> None:
    device = re.search(r'<primitive[^>]*class="stonith"[^>]*>', CIB)
    assert device is not None
    off = (
        '<meta_attributes id="off"><nvpair id="off-role" name="target-role" '
        'value="Stopped"/></meta_attributes>'
    )
    bad = seen(tmp_path, CIB.replace(device[0], device[0] + off))
    assert "is disabled" in found(bad)[0]
    assert found(bad)[1:] == [
        "no fence device for ha1",
        "no fence device for ha2",
        "no fence device for ha3",
    ]


def test_an_address_that_only_prefers_the_primary_is_found(tmp_path: Path) -> None:
    constraint = re.search(r"<rsc_colocation[^>]*>", CIB)
    assert constraint is not None
    weak = constraint[0].replace('score="INFINITY"', 'score="100"')
    assert weak != constraint[0]
    assert found(seen(tmp_path, CIB.replace(constraint[0], weak))) == [
        "vip is not colocated with the primary"
    ]


def test_the_monitors_that_are_to_be_added_do_not_collide(tmp_path: Path) -> None:
    bare = CIB.replace('role="Unpromoted"', 'role="Started"').replace(
        'role="Promoted"', 'role="Stopped"'
    )
    hints = [
        finding.next for finding in verify(seen(tmp_path, bare)) if "has no monitor" in finding.what
    ]
    assert len(hints) == 2 and "interval=2s" in hints[0] and "interval=3s" in hints[1]


def test_a_monitor_that_is_shorter_than_the_brokers_answer_is_found(tmp_path: Path) -> None:
    short = CIB.replace('timeout="5s"', 'timeout="1500ms"')
    assert "broker's monitor has 1.5 s, and waits 1 s for the broker" in found(
        seen(tmp_path, short)
    )


def of_two(text: str = CIB) -> str:
    return re.sub(
        r'<node id="\d+" uname="ha3"[^>]*?(/>|>.*?</node>)', "", text, count=1, flags=re.DOTALL
    )


def test_two_nodes_of_which_neither_waits_before_it_fences_are_found(tmp_path: Path) -> None:
    text = of_two()
    assert found(seen(tmp_path, text))[:1] == ["neither of the two nodes waits before it fences"]
    delay = '<nvpair id="delay" name="priority-fencing-delay" value="5s"/>'
    waits = text.replace(
        '<nvpair id="cib-bootstrap-options-stonith-enabled"',
        delay + '<nvpair id="cib-bootstrap-options-stonith-enabled"',
    )
    assert delay in waits
    assert found(seen(tmp_path, waits))[:1] == [
        "neither of the two nodes waits before it fences"
    ], "no node has more priority"
    first = waits.replace(
        'name="promoted-max" value="1"',
        'name="promoted-max" value="1"/><nvpair id="p" name="priority" value="1"',
    )
    assert "neither of the two nodes waits before it fences" not in found(seen(tmp_path, first))
    device = text.replace(
        'name="pcmk_host_list"',
        'name="pcmk_delay_max" value="5s"/><nvpair id="h" name="pcmk_host_list"',
    )
    assert "neither of the two nodes waits before it fences" not in found(seen(tmp_path, device))


def test_an_address_that_looks_for_the_watch_elsewhere_is_found(tmp_path: Path) -> None:
    moved = re.sub(
        r'(<primitive id="broker"[^>]*>)',
        r'\1<instance_attributes id="r"><nvpair id="r1" name="rundir" value="/run/two"/>'
        "</instance_attributes>",
        CIB.replace('type="IPaddr2" provider="heartbeat"', 'type="vip" provider="qpidha"'),
    )
    assert found(seen(tmp_path, moved)) == [
        "vip looks for the watch at /run/qpidha/watch.sock, the broker's rundir is /run/two"
    ]


def test_a_primary_that_may_start_beside_any_broker_is_found(tmp_path: Path) -> None:
    primary = (
        '<primitive id="qpidd-primary" class="ocf" provider="qpidha" '
        'type="qpidd-primary"><meta_attributes id="m">'
        '<nvpair id="m1" name="migration-threshold" value="1"/></meta_attributes><operations>'
        '<op id="o" name="monitor" interval="2s" timeout="5s"/></operations></primitive>'
    )
    text = CIB.replace("<resources>", f"<resources>{primary}")
    assert "qpidd-primary may start beside a broker without qpid-ready" in found(
        seen(tmp_path, text)
    )
    rule = (
        '<rsc_location id="l" rsc="qpidd-primary"><rule id="u" score="-INFINITY">'
        '<expression id="e" operation="not_defined" attribute="qpid-ready"/></rule></rsc_location>'
    )
    assert found(seen(tmp_path, text.replace("<constraints>", f"<constraints>{rule}"))) == []


def test_what_is_wrong_on_the_machine_is_found(tmp_path: Path) -> None:
    bad = replace(seen(tmp_path), token=0.3, units=("qpidd",), has_agents=False)
    assert found(bad) == [
        "corosync's token is 0.3 s",
        "link-heartbeat-interval is 1 s, corosync's token 0.3 s",
        "the unit qpidd is enabled",
        "the agents of qpidha are not installed here",
    ]


def test_the_brokers_own_default_heartbeat_is_too_long(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD.replace("link-heartbeat-interval=1\n", ""))
    assert found(replace(seen(tmp_path), file=file)) == [
        "link-heartbeat-interval is 120 s, corosync's token 1 s"
    ]


@pytest.mark.parametrize("token", [1.0, 0.0])
def test_no_heartbeat_at_all_is_longer_than_any_token(tmp_path: Path, token: float) -> None:
    bad = replace(
        seen(tmp_path),
        file=written(
            tmp_path, GOOD.replace("link-heartbeat-interval=1", "link-heartbeat-interval=0")
        ),
        token=token,
    )
    (finding,) = verify(bad)
    assert finding.what == "link-heartbeat-interval is 0, which is none"
    assert finding.next.startswith("link-heartbeat-interval=1 or less in ")


def test_with_fencing_off_nobody_waits_for_it(tmp_path: Path) -> None:
    off = CIB.replace('name="stonith-enabled" value="true"', 'name="stonith-enabled" value="false"')
    for text, says in (
        (
            off.replace('class="stonith"', 'class="other"'),
            ("there is no fence device", "no device can fence a node once fencing is on"),
        ),
        (
            off.replace('value="ha1 ha2 ha3"', 'value="ha1 ha2"'),
            ("no fence device for ha3", "no device can fence it once fencing is on"),
        ),
    ):
        first, second = verify(seen(tmp_path, text))
        assert first.what == "fencing is off"
        assert (second.what, second.why) == says
    on = verify(seen(tmp_path, CIB.replace('class="stonith"', 'class="other"')))
    assert [finding.why for finding in on] == ["Pacemaker waits for ever when a node is lost"]


def test_a_node_without_an_address_is_found_unless_no_broker_runs_there(tmp_path: Path) -> None:
    hosts = {"ha1": "10.78.0.11:5672", "ha2": "10.78.0.12:5672", "ha3": ""}
    assert found(replace(seen(tmp_path), hosts=hosts)) == ["ha-brokers-url has no address of ha3"]
    banned = CIB.replace(
        "<constraints>",
        '<constraints><rsc_location id="l" rsc="broker-clone" node="ha3" score="-INFINITY"/>',
    )
    assert found(replace(seen(tmp_path, banned), hosts=hosts)) == []


@pytest.mark.parametrize("text", [None, "no-such-option=1\n"])
def test_a_file_that_cannot_be_read_is_found(tmp_path: Path, text: str | None) -> None:
    file = (
        read_broker_file(str(tmp_path / "missing.conf"))
        if text is None
        else written(tmp_path, text)
    )
    assert [
        what.split(" cannot be read here")[0] for what in found(replace(seen(tmp_path), file=file))
    ] == [file.path]


def test_every_finding_says_why_and_what_to_do(tmp_path: Path) -> None:
    bad = replace(
        seen(tmp_path, CIB.replace('value="true"', 'value="false"')),
        token=0.3,
        units=("qpidd",),
        has_agents=False,
    )
    assert all(finding.why and finding.next for finding in verify(bad))


def test_the_agents_are_installed_where_pacemaker_looks(tmp_path: Path) -> None:
    written_paths = install(str(tmp_path))
    folder = tmp_path / "usr/lib/ocf/resource.d/qpidha"
    assert sorted(path.name for path in folder.iterdir()) == sorted(AGENTS)
    assert all((folder / name).stat().st_mode & 0o777 == 0o755 for name in AGENTS)
    assert (tmp_path / "usr/lib/ocf/lib/qpidha/qpidha_ocf.py").exists()
    assert install(str(tmp_path)) == written_paths, "twice is like once"


TWO = GOOD.replace(",10.78.0.13", "")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("", "two brokers with ha-safety=strict and ha-recorder=brokers"),
        (
            "ha-safety=trust-manager\n",
            "two brokers with ha-safety=trust-manager and ha-recorder=brokers",
        ),
        ("ha-recorder=manager\n", ""),
    ],
)
def test_two_brokers_need_the_managers_store(tmp_path: Path, more: str, says: str) -> None:
    assert found(replace(seen(tmp_path), file=written(tmp_path, TWO + more))) == (
        [says] if says else []
    )


def test_a_broker_that_records_elsewhere_is_named(tmp_path: Path) -> None:
    assert found(replace(seen(tmp_path), incompatible=("10.78.0.12:5672",))) == [
        "10.78.0.12:5672 has another ha-recorder than this node"
    ]
