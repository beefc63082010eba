"""The agents with the real watch beside a real broker: what Pacemaker is told, and where the
virtual address is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.ocf.host import ADDRESS, Host
from tests.ocf.node import Node, script, wait_for
from tests.system.cluster import held_ports


@pytest.fixture
def watched(make_node: Callable[..., Node]) -> Node:
    """A node whose one broker is a whole cluster, with qpidha-watch."""
    return primary(make_node)


@pytest.fixture
def held(make_node: Callable[..., Node], host: Host) -> Node:
    """The same on a host of its own, with the virtual address."""
    pytest.importorskip("pyroute2", reason="needs pyroute2 (extra vip)")
    node = primary(make_node, host.inside)
    tool = script(node.directory / "bin" / "qpid-ha", sys.executable, "-m", "qpidha.cli.main")
    node.parameters |= {
        "ip": ADDRESS,
        "qpid_ha": str(tool),
        "watch_socket": f"{node.directory}/run/watch.sock",
    }
    assert node.run("vip", "start").code == 0 and host.has()
    return node


def primary(make_node: Callable[..., Node], inside: list[str] | None = None) -> Node:
    """Start and promote a broker."""
    with held_ports(1) as (port,):
        node = make_node(
            real=True,
            ha_cluster="yes",
            ha_brokers_url=f"127.0.0.1:{port}",
            port=port,
            interface="127.0.0.1",
        )
        node.inside = inside or ()
        script(
            node.directory / "bin" / "qpidha-watch",
            sys.executable,
            "-m",
            "qpidha.manager.pacemaker.watch",
        )
        assert node.run("broker", "start").code == 0 and node.run("broker", "promote").code == 0
    wait_for(lambda: any("--promotion -v 1000" in call for call in node.calls), what="the score")
    return node


def told(node: Node) -> list[str]:
    return [call for call in node.calls if call.startswith("crm_resource")]


def test_the_death_of_the_broker_is_told_and_the_watch_ends_with_it(watched: Node) -> None:
    os.kill(watched.pid(), signal.SIGKILL)
    wait_for(lambda: told(watched) and not watched.processes(), what="the watch's call")
    assert told(watched) == [f"crm_resource --fail --resource broker --node {os.uname().nodename}"]
    assert watched.run("broker", "monitor").code == 7
    assert watched.run("broker", "start").code == 0 and len(watched.watches()) == 1


def test_a_stop_tells_nothing_and_leaves_no_score(watched: Node) -> None:
    assert watched.run("broker", "stop").code == 0 and not watched.processes()
    assert told(watched) == []
    assert [call for call in watched.calls if "--promotion" in call][-1].startswith(
        "crm_attribute --promotion -D"
    )


def test_a_demotion_is_answered_and_tells_nothing(watched: Node) -> None:
    assert watched.run("broker", "demote").code == 0 and watched.state() == "joining"
    assert told(watched) == [] and len(watched.watches()) == 1


# The virtual address.


def test_the_address_comes_and_goes(held: Node, host: Host) -> None:
    assert [
        held.run("vip", action).code for action in ("monitor", "start", "stop", "stop", "monitor")
    ] == [0, 0, 0, 0, 7]
    assert not host.has() and held.run("vip", "start").code == 0
    assert held.run("broker", "demote").code == 0 and not host.has()
    done = held.run("vip", "start")
    assert done.code == 1 and "the broker of this node is joining" in done.reason and not host.has()


@pytest.mark.parametrize("action", ["stop", "demote"])
def test_an_address_that_a_killed_watch_left_is_removed_by_the_next_action(
    held: Node, host: Host, action: str
) -> None:
    held.kill_watch()
    assert host.has() and held.run("vip", "stop").code == 0 and not host.has()
    assert held.run("vip", "start").code == 0 and host.has()  # by qpid-ha
    assert held.run("broker", action).code == 0
    assert held.run("vip", "stop").code == 0 and not host.has()


def test_without_a_watch_as_well_the_address_comes_only_where_the_primary_is(
    held: Node, host: Host
) -> None:
    held.kill_watch()
    assert held.run("vip", "stop").code == 0 and held.ask("demote")
    done = held.run("vip", "start")
    assert (
        done.code == 1
        and "the broker of resource broker is joining" in done.reason
        and not host.has()
    )
    os.kill(held.pid(), signal.SIGKILL)
    # A process that is not listed any more may still have to close its sockets.
    gone = "the broker of resource broker does not run"
    done = wait_for(lambda: held.run("vip", "start"), lambda done: gone in done.reason)
    assert done.code == 1 and not host.has()


def test_the_next_watch_takes_over_what_was_added_without_one(held: Node, host: Host) -> None:
    held.kill_watch()
    assert [held.run("vip", action).code for action in ("stop", "start")] == [0, 0] and host.has()
    assert held.run("broker", "monitor", role="Promoted").code == 191
    wait_for(lambda: held.watches())
    os.kill(held.pid(), signal.SIGKILL)
    wait_for(lambda: not host.has(), what="the address")


def test_a_watch_that_hangs_is_replaced_and_the_address_stays(held: Node, host: Host) -> None:
    os.kill(held.pid("watch.pid"), signal.SIGSTOP)
    assert held.run("broker", "monitor", role="Promoted", answer=0.3).code == 191
    assert host.has() and held.run("vip", "monitor").code == 0
    assert wait_for(lambda: held.run("vip", "stop").code == 0) and not host.has()


def test_the_address_of_a_broker_that_died_beside_a_dead_watch_is_removed_by_pacemakers_actions(
    held: Node, host: Host
) -> None:
    held.kill_watch()
    os.kill(held.pid(), signal.SIGKILL)
    assert held.run("broker", "monitor", role="Promoted").code == 7 and host.has()
    assert held.run("vip", "stop").code == 0 and not host.has()
    assert [held.run("broker", action).code for action in ("demote", "stop", "start")] == [
        7,
        0,
        0,
    ] and not host.has()


def test_an_address_of_ipv6_comes_and_goes(held: Node, host: Host) -> None:
    held.parameters |= {"ip": "fd99::100"}
    subprocess.run(
        [*host.inside, "sysctl", "-qw", "net.ipv6.conf.d0.dad_transmits=0"], check=True
    )  # a second each
    assert held.run("vip", "start").code == 0 and host.has("fd99::100")
    assert [held.run("vip", action).code for action in ("monitor", "stop", "monitor")] == [
        0,
        0,
        7,
    ] and not host.has("fd99::100")
    held.kill_watch()
    assert [held.run("vip", action).code for action in ("start", "monitor", "stop", "monitor")] == [
        0,
        0,
        0,
        7,
    ]
