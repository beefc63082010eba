"""A primary tells of a queue how old its oldest message is, and what each backup has of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.clients import send
from tests.system.cluster import Broker, wait_for

pytestmark = pytest.mark.system


def row(broker: Broker) -> dict[str, Any]:
    (found,) = broker.call("list_queues", name="q")
    return found


def test_a_queue_tells_what_each_backup_has_and_a_successor_knows_its_age(a_cluster):
    """A backup that is gone is not known of; one that has taken over knows when messages came that
    the former primary took, but not of those that were there before it came itself.
    """
    cluster = a_cluster(3)
    primary, successor, other = cluster
    primary.declare_queue("q")
    assert row(primary)["oldest_age_seconds"] is None
    send(primary, "q", ["a", "b"])
    names = {successor.address, other.address}
    wait_for(lambda: row(primary)["backups"], lambda found: found == dict.fromkeys(names, 0))
    other.kill()
    wait_for(lambda: row(primary)["backups"], lambda found: found[other.address] is None)
    other.restart()
    cluster.wait_settled(0)
    wait_for(lambda: row(primary)["backups"], lambda found: found == dict.fromkeys(names, 0))

    before = row(primary)
    assert row(other)["backups"] == {}
    assert row(other)["oldest_may_be_older"]
    cluster.kill(0, promote=1)
    # Each notes for itself when the message came; the successor a little later.
    age = before["oldest_age_seconds"]
    found = wait_for(lambda: row(successor), lambda found: found["oldest_age_seconds"] >= age)
    assert not found["oldest_may_be_older"]
    assert found["backups"][primary.address] is None
