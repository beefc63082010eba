"""The vip agent in a network namespace of its own: its table, IPv4 and IPv6, and who is asked to
add the address.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ocf.host import ADDRESS, Host
from tests.ocf.node import HERE, NODE_PYTHON, Node, script, wait_for
from tests.ocf.table import VIP, VIP_ACTIONS, Row


@pytest.fixture
def vip(host: Host, make_node: Callable[..., Node]) -> Node:
    """A node in the namespace, with a stand-in for qpid-ha that is iproute2."""
    node = make_node()
    node.inside, node.name = host.inside, "vip"
    tool = node.directory / "bin" / "qpid-ha"
    tool.write_text(
        '#!/bin/sh\necho "qpid-ha $*" >>"$RECORD"\ncase $2 in\n'
        'add) exec ip address add "$3" dev "$5" nodad ;;\nremove) exec ip address del '
        '"$3/24" dev d0 ;;\nesac\n'
    )
    tool.chmod(0o755)
    node.parameters = {
        "ip": ADDRESS,
        "cidr_netmask": "24",
        "qpid_ha": str(tool),
        "watch_socket": str(node.directory / "watch.sock"),
    }
    return node


def start_watch(node: Node) -> Path:
    """Start the stand-in watch on the watch socket; return its folder of addresses."""
    folder = node.directory / "vips"
    command = [
        *node.inside,
        NODE_PYTHON,
        "-IS",
        HERE / "stand_in_watch.py",
        "--socket",
        node.parameters["watch_socket"],
    ]
    command += ["--vips", folder, "--pid", str(os.getpid())]
    subprocess.Popen(list(map(str, command)), env=node.environment)
    wait_for(Path(node.parameters["watch_socket"]).exists)
    return folder


def arrange(host: Host, node: Node, row: Row) -> dict[str, object]:
    """Bring the state about."""
    given: dict[str, object] = {}
    node.close()
    Path(node.parameters["watch_socket"]).unlink(missing_ok=True)
    for word in ("up", "down") if "down" in row.deed else ("up",):
        host.ip("link", "set", "p0", word)
        wait_for(host.has_link if word == "up" else lambda: not host.has_link())
    if host.has() != ("present" in row.deed):
        host.ip("address", "add" if "present" in row.deed else "del", f"{ADDRESS}/24", "dev", "d0")
    if "refused" in row.deed:
        (start_watch(node) / "refuse").touch()
    if "broken tool" in row.deed:
        given["qpid_ha"] = str(script(node.directory / "bin" / "broken", "false"))
    elif row.deed == "no interface":
        given["nic"] = "eth9"
    elif row.deed == "wrong address":
        given["ip"] = "10.99.0.300"
    elif "wrong prefix" in row.deed:
        given["cidr_netmask"] = "255.255.255.0"
    elif "wrong check_link" in row.deed:
        given["check_link"] = "perhaps"
    if "unchecked" in row.deed:
        given["check_link"] = "no"
    return given


@pytest.mark.parametrize("row", VIP, ids=lambda row: row.state)
def test_the_vip_agent(host: Host, vip: Node, row: Row) -> None:
    found = {}
    for action in VIP_ACTIONS:
        given = arrange(host, vip, row)
        how = {"interval": 0} if action == "probe" else {}
        done = vip.run("vip", {"probe": "monitor"}.get(action, action), **given, **how)  # type: ignore[arg-type]
        found[action] = str(done.code)
        assert bool(done.reason) == (done.code not in (0, 7)), done
        if done.code == 0 and action in ("start", "stop"):
            assert host.has() == (action == "start"), done
    assert found == dict(zip(VIP_ACTIONS, row.codes.split(), strict=True))


def test_the_watch_is_asked_first_and_qpid_ha_only_without_it(host: Host, vip: Node) -> None:
    start_watch(vip)
    assert vip.run("vip", "start").code == 0 and host.has()
    assert vip.run("vip", "stop").code == 0 and not host.has()
    assert vip.calls[1:] == [
        f'watch vip_add {{"address": "{ADDRESS}", "interface": "d0", "prefix": 24}}',
        f'watch vip_remove {{"address": "{ADDRESS}"}}',
    ]
    vip.close()
    vip.forget_calls()
    assert vip.run("vip", "start").code == 0 and host.has()
    assert vip.run("vip", "stop").code == 0 and not host.has()
    # beside the watch's socket, so that the next watch takes them over
    notes = f"--vips {vip.directory}/vip"
    assert vip.calls == [
        f"qpid-ha vip add {ADDRESS}/24 --interface d0 {notes}",
        f"qpid-ha vip remove {ADDRESS} {notes}",
    ]


def test_a_watch_that_hangs_does_not_keep_the_address(host: Host, vip: Node) -> None:
    start_watch(vip)
    assert vip.run("vip", "start").code == 0
    for pid in vip.processes():
        os.kill(pid, signal.SIGSTOP)
    assert vip.run("vip", "stop", timeout=4000).code == 0 and not host.has()


def test_an_address_of_ipv6_counts_only_when_no_duplicate_is_possible(
    host: Host, vip: Node
) -> None:
    vip.parameters |= {"ip": "fd99:0:0:0::100", "cidr_netmask": "64"}
    assert vip.run("vip", "monitor").code == 7
    assert vip.run("vip", "start").code == 0 and host.has("fd99::100")
    assert vip.run("vip", "monitor").code == 0
    host.ip("address", "del", "fd99::100/64", "dev", "d0")
    assert vip.run("vip", "monitor").code == 7


def test_a_stop_removes_also_an_address_of_ipv6_that_is_still_checked_for_duplicates(
    host: Host, vip: Node
) -> None:
    vip.parameters |= {"ip": "fd99::100", "cidr_netmask": "24"}
    host.ip("link", "set", "p0", "down")  # so that the check does not end
    host.ip("address", "add", "fd99::100/24", "dev", "d0")
    assert "tentative" in host.ip("address", "show", "dev", "d0")
    assert vip.run("vip", "stop").code == 0 and not host.has("fd99::100")


def test_a_watch_learns_of_an_address_that_is_here_already(host: Host, vip: Node) -> None:
    host.ip("address", "add", f"{ADDRESS}/24", "dev", "d0")
    start_watch(vip)
    assert vip.run("vip", "start").code == 0
    assert vip.calls[1:] == [
        f'watch vip_add {{"address": "{ADDRESS}", "interface": "d0", "prefix": 24}}'
    ]


def test_the_interface_is_found_by_the_network_that_holds_the_address(
    host: Host, vip: Node
) -> None:
    host.ip("link", "add", "d1", "type", "veth", "peer", "name", "p1")
    host.ip("link", "set", "p1", "up")
    host.ip("link", "set", "d1", "up")
    host.ip("address", "add", "10.99.0.129/25", "dev", "d1")
    vip.parameters |= {"ip": "10.99.0.200", "cidr_netmask": ""}
    assert vip.run("vip", "start").code in (0, 1)
    assert vip.calls == [f"qpid-ha vip add 10.99.0.200 --interface d1 --vips {vip.directory}/vip"]


def test_an_address_of_another_host_is_not_here_although_it_could_be_bound(
    host: Host, vip: Node
) -> None:
    subprocess.run([*host.inside, "sysctl", "-qw", "net.ipv4.ip_nonlocal_bind=1"], check=True)
    assert vip.run("vip", "monitor").code == 7
    host.ip("address", "add", f"{ADDRESS}/24", "dev", "d0")
    assert vip.run("vip", "monitor").code == 0
