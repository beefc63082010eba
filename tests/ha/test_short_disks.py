"""A primary hears which backups have too little space left on their disks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qpidha.broker.credit import DISK_FREE_LIMIT
from qpidha.ha.cluster import Cluster
from qpidha.ha.wire import Status, decode
from qpidha.model.events import DiskSpaceChanged
from qpidha.model.features import FEATURES
from qpidha.model.url import parse_url
from tests.amqp.builders import a_node
from tests.ha.cluster_world import World


def a_cluster(*features: str) -> World:
    """Three brokers, the first of which is primary, and that know these features."""
    world = World()
    for machine in world.machines:
        for connection_id, caller in machine.cluster.inbound.items():
            machine.cluster.inbound[connection_id] = replace(caller, features=frozenset(features))
    world.machines[0].promote()
    world.run(1)
    return world


def test_only_what_acknowledgements_wait_for_counts_and_until_it_has_space_again() -> None:
    world = a_cluster(*FEATURES)
    primary, backup, other = (machine.cluster for machine in world.machines)
    assert primary.short_backups == {}
    backup.disk_changed(is_short=True, is_low=False)
    world.settle()
    assert primary.short_backups == {"host1:5001": False} and other.short_backups == {}
    backup.disk_changed(is_short=True, is_low=True)
    world.settle()
    other.disk_changed(is_short=True, is_low=True)
    world.settle()
    assert primary.short_backups == {"host1:5001": True, "host2:5002": True}
    backup.disk_changed(is_short=False, is_low=False)
    world.settle()
    assert primary.short_backups == {"host2:5002": True}
    world.kill(2)
    world.run(1)
    assert primary.short_backups == {}


def test_a_new_primary_knows_of_the_disks_of_the_others() -> None:
    world = a_cluster(*FEATURES)
    world.machines[2].cluster.disk_changed(is_short=True, is_low=True)
    world.settle()
    world.kill(0)
    world.machines[1].promote()
    world.run(1)
    assert world.machines[1].cluster.short_backups == {"host2:5002": True}


def test_senders_wait_or_are_refused_for_whichever_disk_is_worst(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = a_node(address="a:1", ha_cluster=True, ha_brokers_url=parse_url("a:1,b:2,c:3"))
    backups: dict[str, bool] = {}
    monkeypatch.setattr(Cluster, "short_backups", property(lambda cluster: dict(backups)))

    def told() -> tuple[str, str]:
        node.step([], 1)
        return node.broker.refuse_publishing, node.broker.credit.withheld.get(DISK_FREE_LIMIT, "")

    node.start(1)
    assert told() == ("", "")
    backups["b:2"] = False
    said = "the disk of the backup b:2 is nearly full"
    assert told() == ("", said)
    backups["b:2"] = True
    assert told() == (said, said)
    node.step([DiskSpaceChanged(low=False, free=60 << 20, short=True)], 1)
    assert told() == (said, said)
    backups.clear()
    refused, waits = told()
    assert refused == "" and waits.startswith("the disk is nearly full: 60 MiB")
    assert "little more than disk-free-limit, which is 50 MiB" in waits
    node.step([DiskSpaceChanged(low=True, free=40 << 20)], 1)
    refused, waits = told()
    assert refused == waits and waits.startswith("the disk is nearly full: 40 MiB")
    node.step([DiskSpaceChanged(low=False, free=90 << 20)], 1)
    assert told() == ("", "")


def test_a_backup_that_has_room_for_dead_letters_only_says_so() -> None:
    world = a_cluster(*FEATURES)
    primary, backup, _ = (machine.cluster for machine in world.machines)
    backup.disk_changed(is_short=True, is_low=True, is_reserved=True)
    world.settle()
    assert primary.short_backups == {"host1:5001": True}
    assert primary.reserved_backups == {"host1:5001"}
    backup.disk_changed(is_short=True, is_low=True)
    world.settle()
    assert primary.short_backups == {"host1:5001": True} and not primary.reserved_backups


def test_dead_letters_have_the_room_that_a_backup_keeps_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = a_node(address="a:1", ha_cluster=True, ha_brokers_url=parse_url("a:1,b:2,c:3"))
    short: dict[str, bool] = {}
    reserved: set[str] = set()
    monkeypatch.setattr(Cluster, "short_backups", property(lambda cluster: dict(short)))
    monkeypatch.setattr(Cluster, "reserved_backups", property(lambda cluster: set(reserved)))
    broker = node.broker
    node.start(1)

    def refusals() -> tuple[str, str]:
        """Why what is sent is refused, and why what is passed on is."""
        node.step([], 1)
        sent = broker.refuse_publishing
        monkeypatch.setattr(broker, "_hops", 1)
        passed_on = broker.refuses_now
        monkeypatch.setattr(broker, "_hops", 0)
        return sent, passed_on

    assert refusals() == ("", "")
    short["b:2"] = True
    reserved.add("b:2")
    sent, passed_on = refusals()
    assert "the disk of the backup b:2 is nearly full" in sent and not passed_on
    short["c:3"] = True
    assert all("c:3" in why for why in refusals())
    short.clear()
    reserved.clear()
    assert refusals() == ("", "")


def test_a_broker_of_the_base_is_not_told_what_it_does_not_know() -> None:
    world = a_cluster()
    backup = world.machines[1].cluster
    backup.disk_changed(is_short=True, is_low=True)
    told = [
        decode(data)
        for machine in world.machines
        for kind, _, data in machine.inbox
        if kind == "said"
    ]
    assert told and not any(
        isinstance(one, Status) and (one.is_short or one.is_low) for one in told
    )
    world.settle()
    assert world.machines[0].cluster.short_backups == {}
