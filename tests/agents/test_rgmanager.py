"""Three nodes under a simulated rgmanager, by the example file: whatever fails, one node is primary
again and the others are ready.

The services of a node see the failure each in their own time and call the scripts at the same
moment, as the original's did when a killed primary left its cluster without one (QPID-5942).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.agents.node import AGENTS, Node
from tests.agents.rgmanager import Rgmanager, Service
from tests.agents.test_scripts import SOAK
from tests.system.clients import browse, send
from tests.system.cluster import Admin, wait_for

CLUSTER = ElementTree.parse(AGENTS.parent / "examples" / "cluster.conf").getroot()
SENT = [str(i) for i in range(20)]


@contextmanager
def managed(nodes: list[Node]) -> Iterator[Rgmanager]:
    manager = Rgmanager(CLUSTER, nodes)
    manager.start()
    try:
        yield manager
    finally:
        manager.close()


def at(node: Node) -> Any:
    """A node's broker as the clients of the system tests want it."""
    return SimpleNamespace(address=f"127.0.0.1:{node.port.number}")


def fill(primary: Node) -> None:
    """Have messages accepted that must be there ever after."""
    with Admin(primary.path("data") / "admin.sock") as admin:
        admin.call("declare_queue", name="kept", durable=True)
    send(at(primary), "kept", SENT, durable=True)


def service_of(manager: Rgmanager, node: Node) -> Service:
    return next(
        service
        for service in manager.services
        if service.script == "qpidd" and service.nodes == [node]
    )


@pytest.mark.parametrize(
    ("fault", "rounds"), [("kill", 3 if SOAK else 2), ("hang", 3 if SOAK else 1)]
)
def test_the_primary_fails_again_and_again(
    nodes: Callable[..., list[Node]], fault: str, rounds: int
) -> None:
    """Strict brokers: nobody is promoted who has not everything, and nothing that was accepted is
    missing.
    """
    with managed(nodes(3)) as manager:
        primary = manager.wait_settled()
        fill(primary)
        for _ in range(rounds):
            getattr(primary, fault)()
            former, primary = primary, manager.wait_settled()
            assert primary is not former, manager.story()
            assert browse(at(primary), "kept") == SENT


@pytest.mark.parametrize("fault", ["kill", "hang"])
def test_a_backup_fails_and_the_primary_stays(nodes: Callable[..., list[Node]], fault: str) -> None:
    with managed(nodes(3)) as manager:
        primary = manager.wait_settled()
        backup = next(node for node in manager.nodes if node is not primary)
        before = backup.pid
        getattr(backup, fault)()
        wait_for(
            lambda: backup.pid, lambda pid: pid not in (0, before), what="the restarted broker"
        )
        assert manager.wait_settled() is primary


def test_everything_fails_at_once(nodes: Callable[..., list[Node]]) -> None:
    """All three brokers are killed; the in-sync set is all of them, so whoever has most is promoted
    when all are back.
    """
    with managed(nodes(3)) as manager:
        primary = manager.wait_settled()
        fill(primary)
        for node in manager.nodes:
            node.kill()
        assert browse(at(manager.wait_settled()), "kept") == SENT


def test_the_primary_moves_and_no_broker_is_restarted(nodes: Callable[..., list[Node]]) -> None:
    """As `clusvcadm -r qpidd-primary-service -m NODE`: the former primary steps down and is a
    backup.
    """
    with managed(nodes(3)) as manager:
        primary = manager.wait_settled()
        pids = [node.pid for node in manager.nodes]
        for target in [node for node in manager.nodes if node is not primary]:
            manager.primary.requests.put(("relocate", target))
            wait_for(
                lambda: manager.primary.owner,
                lambda owner, target=target: owner is target,
                what="the owner",
            )
            assert manager.wait_settled() is target
        assert [node.pid for node in manager.nodes] == pids


def test_a_node_is_taken_out_in_either_order(nodes: Callable[..., list[Node]]) -> None:
    """Its broker ends when the broker service is disabled and the primary role is elsewhere,
    whichever came first.
    """
    with managed(nodes(3)) as manager:
        primary = manager.wait_settled()
        target = next(node for node in manager.nodes if node is not primary)
        own = service_of(manager, primary)
        own.requests.put(("disable", None))
        wait_for(lambda: own.state, lambda state: state == "disabled")
        assert primary.state == "active", "a primary is left to the other service"
        manager.primary.requests.put(("relocate", target))
        assert wait_for(lambda: manager.primary.owner, lambda owner: owner is target) is target
        assert manager.wait_settled(without=[primary]) is target
        assert primary.pid == 0
        own.requests.put(("enable", None))
        assert manager.wait_settled() is target
