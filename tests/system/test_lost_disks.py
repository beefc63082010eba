"""The power fails for all, and disks are lost: with one of three the cluster goes on with what was
accepted, with two it waits for the operator.
"""

from __future__ import annotations

import shutil

import pytest

from qpidha.model.errors import RefusedRequest
from tests.system.clients import browse, send, wait_browse
from tests.system.cluster import wait_for
from tests.system.test_power_cut import POWER, lose_power
from tests.system.test_store import declare

pytestmark = pytest.mark.system
BODIES = [str(number) for number in range(20)]


@pytest.fixture
def cluster(a_cluster):
    """Return three brokers, the first of them primary, with messages that were accepted."""
    cluster = a_cluster(3, module=POWER, ha_safety="strict")
    declare(cluster[0])
    send(cluster[0], "q", BODIES, durable=True)
    return cluster


def lose_disk(broker):
    """Leave nothing of a dead broker's data directory."""
    shutil.rmtree(broker.data_dir)


def refusal(broker, **options):
    """Return why a broker is not promoted."""
    with pytest.raises(RefusedRequest) as caught:
        broker.call("promote", **options)
    return str(caught.value)


def connected(broker):
    """Tell whether a broker is connected to both others."""
    return sum(member["connected"] for member in broker.call("members")) == 3


def test_faults_b5_one_lost_disk_of_three_does_not_stop_a_cluster(cluster):
    """The primary's disk is lost; while nobody is in its place the operator may forget it."""
    lose_power(cluster, 0, 1, 2)
    lose_disk(cluster[0])
    for broker in (cluster[1], cluster[2]):
        broker.restart()
    wait_for(lambda: refusal(cluster[1]), lambda text: "did not answer and may" in text)
    found = cluster[1].call("recover", forget=cluster[0].address)
    assert found["recommended"] in (cluster[1].address, cluster[2].address)
    cluster[0].restart()
    wait_for(lambda: connected(cluster[1]))
    cluster[1].promote()
    cluster.wait_settled(1)
    for broker in cluster:
        wait_browse(broker, "q", BODIES)
    send(cluster[1], "q", ["after"], durable=True)
    assert browse(cluster[1], "q") == [*BODIES, "after"]


def test_a_host_that_is_lost_is_forgotten_and_two_lost_disks_of_three_are_a_loss_to_accept(cluster):
    """First the host of a backup, then after another outage the disks of two."""
    lose_power(cluster, 0, 1, 2)
    for broker in cluster.brokers[:2]:
        broker.restart()
    wait_for(lambda: refusal(cluster[0]), lambda text: cluster[2].address in text)
    cluster[0].call("promote", forget=cluster[2].address)
    cluster.wait_settled(0)
    assert browse(cluster[0], "q") == BODIES
    cluster[2].restart()
    cluster.wait_settled(0)
    wait_for(lambda: len(cluster[0].status()["in_sync"]["members"]), lambda found: found == 3)
    # Each has confirmed it, so the record of who is in sync is on each disk before.
    send(cluster[0], "q", ["after"], durable=True)
    lose_power(cluster, 0, 1, 2)
    for broker in cluster.brokers[:2]:
        lose_disk(broker)
    for broker in cluster:
        broker.restart()
    wait_for(lambda: connected(cluster[2]))
    text = refusal(cluster[2])
    assert "cannot tell who else" in text
    assert cluster[0].address in text and cluster[1].address in text
    cluster[2].call("promote", accept_loss=True)
    cluster.wait_settled(2)
    assert browse(cluster[2], "q") == [*BODIES, "after"]
