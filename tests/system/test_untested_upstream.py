"""What the original never tested, one test each: the list at the end of its test inventory.

Loss after a successful commit, the one that is missing here, is in test_transactions.py.
"""

from __future__ import annotations

import hashlib
import json
import random
import threading

import pytest

from qpidha.client.errors import ConnectError
from qpidha.client.message import Message
from qpidha.model.errors import RefusedRequest
from qpidha.model.features import FEATURES
from tests.system.clients import browse, connect, receive, send, send_unroutable, wait_browse
from tests.system.cluster import wait_for
from tests.system.failover_clients import SILENT, FailoverSender, first_gap
from tests.system.net import make_network

pytestmark = pytest.mark.system


def test_split_brain_two_primaries(a_cluster):
    """A primary on each side of a partition: only the side of the majority accepts, and after
    healing there is one history.
    """
    cluster = a_cluster(3, ha_safety="strict", network=make_network(3))
    cluster[0].declare_queue("q")
    with (
        FailoverSender(
            [cluster[0].address], "q", prefix="old-", rate=2, heartbeat=SILENT, pinned=True
        ) as old,
        FailoverSender([cluster[1].address], "q", prefix="new-", rate=2, pinned=True) as new,
    ):
        old.wait_accepted(20)
        cluster.network.cut(0, 1)
        cluster.network.cut(0, 2)
        cluster.promote(1)
        new.wait_accepted(50)
        assert cluster[0].state == "active"  # it knows of nothing
        accepted = len(old.accepted)
        new.wait_accepted(50)
        assert len(old.accepted) == accepted
        cluster.network.heal()
        primary = cluster.wait_managed()
    bodies = browse(cluster[primary], "q")
    assert old.missing(bodies) == [] and new.missing(bodies) == []
    for broker in cluster:
        wait_browse(broker, "q", bodies)


def test_ready_backup_that_lost_its_link_then_gets_promoted(a_cluster):
    """The primary went on without it, so it may not become primary, although it never heard that it
    was dropped.
    """
    cluster = a_cluster(3, ha_safety="strict", network=make_network(3))
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["before"])
    for other in (0, 1):
        cluster.network.cut(2, other)
    send(cluster[0], "q", ["after"])
    assert cluster[2].state == "ready"
    cluster[0].kill()
    cluster.network.heal()
    with pytest.raises(RefusedRequest) as refused:
        cluster.promote(2)
    assert "not in the newest in-sync set" in refused.value.text
    cluster.promote(1)
    cluster.wait_settled(1)
    assert browse(cluster[1], "q") == ["before", "after"]
    wait_browse(cluster[2], "q", ["before", "after"])


def test_id_reuse_across_failover(a_cluster):
    """A backup holds what was never accepted; the new primary gives the same sequence to another
    message, and that one counts.
    """
    # The primary must not drop the backup that is cut off: it would accept what the other one has.
    cluster = a_cluster(
        3, ha_safety="strict", link_heartbeat_interval="60", network=make_network(3)
    )
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["first"])
    cluster.wait_settled(0)
    cluster.network.cut(0, 1, both=False)
    with FailoverSender([cluster[0].address], "q", prefix="old-", count=5, follow=False) as old:
        wait_for(
            lambda: cluster[2].status()["sequence"],
            lambda seen: seen > cluster[1].status()["sequence"],
            what="the longer log",
        )
        longer = cluster[2].status()["sequence"]
        cluster[0].kill()
        assert old.accepted == []
    # Not healed before: the kernel of the dead broker would go on sending what the process had
    # written, and b1 had it too.
    cluster.promote(1)
    cluster[1].wait_state("active")
    cluster.network.heal()
    bodies = [f"new-{i}" for i in range(10)]
    send(cluster[1], "q", bodies)
    assert cluster[1].status()["sequence"] > longer
    cluster[2].wait_state("ready")
    wait_browse(cluster[2], "q", ["first", *bodies])
    assert browse(cluster[1], "q") == ["first", *bodies]


def test_binding_removed_while_a_backup_is_away(a_cluster):
    """It is gone there too when the backup is back, also as primary."""
    cluster = a_cluster(3, ha_safety="strict")
    cluster[0].declare_queue("q")
    cluster[0].declare_exchange("e")
    cluster[0].bind("e", "q", "k")
    cluster[0].bind("amq.direct", "q", "k")
    wait_for(cluster[2].bindings, lambda seen: len(seen) == 2, what="the bindings on the backup")
    cluster[2].kill()
    cluster[0].unbind("e", "q", "k")
    cluster[0].unbind("amq.direct", "q", "k")
    cluster[2].restart()
    cluster.wait_settled(0)
    wait_for(cluster[2].bindings, lambda seen: seen == [], what="the bindings on the backup")
    cluster.kill(0, promote=2)
    send_unroutable(cluster[2], "e")
    assert browse(cluster[2], "q") == []


def test_large_binary_fidelity(a_cluster):
    """A message of 9 MB of random bytes, with annotations and properties, is the same after two
    failovers, to the byte.
    """
    cluster = a_cluster(3, ha_safety="strict")
    cluster[0].declare_queue("q")
    body = random.Random(42).randbytes(9_000_001)
    properties = {
        "binary": bytes(range(256)),
        "text": "\N{SNOWMAN}",
        "number": 2**63 - 1,
        "none": None,
    }
    with connect(cluster[0]) as client:
        client.sender("q").send(
            Message(
                body,
                message_id=b"\x00\xff",
                application_properties=properties,
                message_annotations={"x-opt-a": 1},
                durable=True,
            )
        )
    cluster.bounce(0, promote=1)
    cluster.wait_settled(1)
    cluster.kill(1, promote=2)
    with connect(cluster[2]) as client:
        message = client.receiver("q").receive()
    assert hashlib.sha256(message.body).digest() == hashlib.sha256(body).digest()
    assert message.kind == "data" and message.properties.message_id == b"\x00\xff"
    assert message.application_properties == properties
    assert message.message_annotations["x-opt-a"] == 1


def test_all_backups_gone(a_cluster):
    """Strictly nothing is accepted while no majority is there; all that was sent meanwhile is
    accepted when one backup returns.
    """
    cluster = a_cluster(3, ha_safety="strict")
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["before"])
    cluster[1].kill()
    wait_for(
        lambda: cluster[0].status()["in_sync"]["members"],
        lambda members: len(members) == 2,
        what="the in-sync set",
    )
    cluster[2].kill()
    with FailoverSender([cluster[0].address], "q", prefix="m", count=5) as sender:
        wait_for(
            lambda: browse(cluster[0], "q"),
            lambda seen: len(seen) == 6,
            what="the queue of the primary",
        )
        assert sender.accepted == []
        cluster[2].restart()
        wait_for(lambda: sender.done, what="whether all is accepted")
    wait_browse(cluster[2], "q", ["before", "m1", "m2", "m3", "m4", "m5"])


def test_slow_not_dead_backup(a_cluster):
    """A backup that gets a fifth of the time stays in the set, slows acceptance down, and loses
    nothing when it has to take over.
    """
    cluster = a_cluster(3, ha_safety="strict", link_heartbeat_interval="1")
    cluster[0].declare_queue("q")
    over = threading.Event()

    def throttle() -> None:
        while not over.is_set():
            cluster[1].stop()
            over.wait(0.08)
            cluster[1].cont()
            over.wait(0.02)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        with FailoverSender(cluster.addresses, "q", rate=10) as sender:
            sender.wait_accepted(200)
            members = cluster[0].status()["in_sync"]["members"]
    finally:
        over.set()
        thread.join()
    assert cluster[1].system_id in members
    cluster.kill(0, promote=1)
    bodies = browse(cluster[1], "q")
    assert sender.missing(bodies) == []
    assert first_gap(map(int, bodies)) == 0


def test_stale_promotion_after_network_heal(a_cluster):
    """A manager's order for a broker that was cut off arrives when the link is back: it is refused,
    or nothing is missing after it.
    """
    cluster = a_cluster(3, ha_safety="strict", network=make_network(3))
    cluster[0].declare_queue("q")
    with FailoverSender(cluster.addresses, "q", rate=5) as sender:
        sender.wait_accepted(20)
        for other in (0, 1):
            cluster.network.cut(2, other)
        sender.wait_accepted(100)
        cluster.network.heal()
        try:
            cluster.promote(2)
        except RefusedRequest as refused:
            assert any(
                word in refused.text
                for word in ("in-sync set", "catching up", "promised", "overtaken")
            )
        primary = cluster.wait_managed()
        sender.wait_accepted(20)
    bodies = browse(cluster[primary], "q")
    assert sender.missing(bodies) == []
    assert sum(broker.state == "active" for broker in cluster) == 1


def test_hung_primary_that_resumes(a_cluster):
    """Frozen, replaced, and awake again: it steps down, and what waited in its sockets is not
    accepted.
    """
    cluster = a_cluster(3, ha_safety="strict")
    cluster[0].declare_queue("q")
    with (
        FailoverSender(cluster.addresses, "q", prefix="moves", rate=5) as moves,
        FailoverSender(
            cluster.addresses[:1], "q", prefix="stays", count=10, heartbeat=SILENT, follow=False
        ) as stays,
    ):
        wait_for(lambda: stays.done, what="whether all is accepted from the client that stays")
        cluster[0].stop()
        stays.count = 20
        wait_for(
            lambda: stays.unsettled,
            lambda seen: seen == 10,
            what="messages in the socket of the stopped primary",
        )
        cluster.promote(1)
        moves.wait_accepted(50)
        cluster[0].cont()
        cluster.wait_settled(1)
        wait_for(lambda: stays.losses, what="whether the old primary dropped its client")
    assert sorted(stays.accepted) == list(range(1, 11))
    bodies = browse(cluster[1], "q")
    assert moves.missing(bodies) == [] and stays.missing(bodies) == []
    assert cluster[0].status()["epoch"] == cluster[1].status()["epoch"]


SECTION = b"\x00\x53\x75\xb0"
"""What stands before each message between brokers, and before its length: a data section."""


def as_json(fields: dict[str, object]) -> bytes:
    return b"J" + json.dumps(fields).encode()


def speak_as_a_broker(broker, *words):
    """Send messages as a broker of a later version would, on links of its own."""
    stranger = {
        "system-id": "00000000-0000-4000-8000-000000000001",
        "host-name": "127.0.0.1",
        "port": 1,
        "name": "later",
        "status": 0,
        "features": [*FEATURES, "one-of-a-later-version"],
    }
    client = connect(broker, properties={"qpid.ha-backup": stranger})
    client.receiver("$qpidha.replication")
    sender = client.sender("$qpidha.replication", settled=True)  # as brokers do
    for word in words:
        sender.send_nowait(Message.decode(SECTION + len(word).to_bytes(4, "big") + word))
    return client


ASK = {"say": "Ask", "nonce": 7, "epoch": 0, "candidate": "", "version": 0, "members": []}


def test_upgrade_mixed_versions(a_cluster):
    """A peer of a later version is understood as far as this one can: a field that it does not know
    and a message that may be ignored are left out of account.
    """
    cluster = a_cluster(3, ha_safety="strict")
    epoch = cluster[1].status()["promised"] + 10
    asks = {**ASK, "epoch": epoch, "candidate": "x", "new_field": 1}
    ignored = as_json({"say": "Hello2", "ignorable": True})
    with speak_as_a_broker(cluster[1], ignored, as_json(asks)) as stranger:
        assert stranger.wait(lambda: cluster[1].status()["promised"] == epoch)
    cluster.wait_managed()


@pytest.mark.parametrize(
    ("word", "says"),
    [
        (as_json({"say": "Hello2", "format": 2}), "this version knows no message 'Hello2'"),
        (as_json({**ASK, "ignorable": True, "nonce": "7"}), "nonce cannot be '7'"),
        (b"Z\x00\x01\x02", "do all brokers run the same version"),
    ],
    ids=["a message of a later version", "a field of another type", "another framing"],
)
def test_upgrade_incompatible_peer(a_cluster, word, says):
    """A peer that cannot be understood is refused with a message that says so, on its connection
    only; nobody crashes.
    """
    cluster = a_cluster(3, ha_safety="strict")
    cluster[0].declare_queue("q")
    with pytest.raises(ConnectError) as refused:
        speak_as_a_broker(cluster[0], word).wait(lambda: False)
    assert says in str(refused.value)
    assert "do all brokers run the same version" in str(refused.value)
    send(cluster[0], "q", ["still here"])
    assert receive(cluster[0], "q", 1) == ["still here"]
    cluster.wait_settled(0)
