"""The style of rgmanager: a clone `qpidd` that keeps brokers, and one `qpidd-primary` that is the
role.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.ocf.node import Node, wait_for


@pytest.fixture
def qpidd(node: Node) -> Node:
    node.name = "qpidd"
    assert node.run("qpidd", "start").code == 0
    wait_for(lambda: node.calls)
    return node


def test_the_primary_starts_and_stops_and_the_broker_stays(qpidd: Node) -> None:
    pid = qpidd.pid()
    found = [
        qpidd.run("qpidd-primary", action, resource="qpidd-primary").code
        for action in ("monitor", "start", "monitor", "stop", "monitor")
    ]
    assert found == [7, 0, 0, 0, 7]
    assert qpidd.brokers() == [pid] and qpidd.run("qpidd", "monitor").code == 0


def test_the_clone_publishes_an_attribute_and_deletes_it(qpidd: Node) -> None:
    assert qpidd.calls == ["watch --resource=qpidd --publish=attribute --isolation=3 --answer=10"]
    os.kill(qpidd.pid(), signal.SIGKILL)
    wait_for(lambda: not qpidd.processes())
    assert qpidd.run("qpidd", "monitor").code == 7
    assert qpidd.calls[1:] == ["attrd_updater -n qpid-ready -D"]


def test_a_stop_of_the_primary_kills_a_broker_that_hangs(qpidd: Node) -> None:
    qpidd.tell(state="active")
    os.kill(qpidd.pid(), signal.SIGSTOP)
    assert qpidd.run("qpidd-primary", "monitor", resource="qpidd-primary", answer=0.2).code == 1
    assert qpidd.run("qpidd-primary", "stop", resource="qpidd-primary", answer=0.2).code == 0
    assert not qpidd.processes() and qpidd.run("qpidd", "monitor").code == 7


def test_a_broker_without_a_pid_file_is_demoted_all_the_same(qpidd: Node) -> None:
    qpidd.tell(state="active")
    qpidd.pid_file.unlink()
    assert (
        qpidd.run("qpidd-primary", "stop", resource="qpidd-primary").code == 0
        and qpidd.state() == "joining"
    )


def test_both_agents_of_a_broker_wait_for_each_other(qpidd: Node) -> None:
    calls = [
        ("qpidd-primary", "start"),
        ("qpidd", "stop"),
        ("qpidd-primary", "stop"),
        ("qpidd", "start"),
    ]
    waiting = [qpidd.begin(agent, action, resource=agent) for agent, action in calls]
    start, *others = [done().code for done in waiting]
    assert start in (0, 1) and others == [0, 0, 0], "1: no broker ran when it was its turn"
    assert len(qpidd.brokers()) <= 1
    assert qpidd.run("qpidd", "stop").code == 0 and not qpidd.processes()
