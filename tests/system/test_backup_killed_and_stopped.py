"""Backups die, hang and come back while clients send; nobody waits longer than a heartbeat, and
nothing is missing.
"""

from __future__ import annotations

import pytest

from tests.system.clients import browse, send, wait_browse
from tests.system.failover_clients import FailoverSender

pytestmark = pytest.mark.system


def test_a_killed_backup_holds_nothing_up_and_comes_back(a_cluster):
    """SIGKILL of a backup under load: sending goes on, and the restarted backup gets everything."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    with FailoverSender(cluster.addresses, "q", rate=10) as sender:
        sender.wait_accepted(50)
        cluster[1].kill()
        sender.wait_accepted(100)
        cluster[1].restart()
        cluster.wait_settled(0)
        sender.wait_accepted(50)
    assert sender.losses == []
    bodies = browse(cluster[0], "q")
    assert sender.missing(bodies) == []
    for backup in cluster[1:]:
        wait_browse(backup, "q", bodies)
    cluster.kill(0, promote=1)
    assert browse(cluster[1], "q") == bodies


def test_a_stopped_backup_is_dropped_and_comes_back(a_cluster):
    """SIGSTOP of a backup under load: sending waits for its heartbeat at most, and it catches up
    when it goes on.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    with FailoverSender(cluster.addresses, "q", rate=10) as sender:
        sender.wait_accepted(50)
        cluster[2].stop()
        sender.wait_accepted(150)
        cluster[2].cont()
        cluster.wait_settled(0)
        sender.wait_accepted(50)
    assert sender.losses == []
    bodies = browse(cluster[0], "q")
    assert sender.missing(bodies) == []
    wait_browse(cluster[2], "q", bodies)


def test_a_primary_that_lost_its_backups_serves_alone(a_cluster):
    """With both backups dead the primary goes on, and what it takes reaches them when they
    return.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    cluster[1].kill()
    cluster[2].kill()
    send(cluster[0], "q", ["a", "b"])
    cluster[1].restart()
    cluster[2].restart()
    cluster.wait_settled(0)
    for backup in cluster[1:]:
        wait_browse(backup, "q", ["a", "b"])


def test_a_backup_that_was_restarted_takes_over_with_everything(a_cluster):
    """What it lost with its process it got again before it was ready."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["a"])
    cluster[1].kill()
    cluster[1].restart()
    cluster.wait_settled(0)
    wait_browse(cluster[1], "q", ["a"])
    cluster.kill(0, promote=1)
    assert browse(cluster[1], "q") == ["a"]
