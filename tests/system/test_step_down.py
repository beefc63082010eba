"""A primary that hung and finds another in its place steps down, and had accepted nothing
meanwhile; one that steps down in good order has told the others everything.
"""

from __future__ import annotations

import signal

import pytest

from tests.system.clients import browse, connect, wait_browse
from tests.system.cluster import wait_for
from tests.system.failover_clients import SILENT, FailoverSender, first_gap

pytestmark = pytest.mark.system


def connected(broker, other):
    """Whether a broker says that it has a link to another."""
    return any(
        member["connected"]
        for member in broker.call("members")
        if member["address"] == other.address
    )


@pytest.mark.parametrize("promoted", ["at once", "when its links are lost"])
def test_a_stopped_primary_steps_down_when_it_goes_on(a_cluster, promoted):
    """SIGSTOP of the primary, promotion of another, SIGCONT: the old one rejoins, and nothing is
    accepted twice or lost.

    A client that stays with the old primary has messages in its socket when it wakes up: none of
    them is accepted. If the other was promoted at once, the demand for the old one's promise waits
    in its socket too. If its links had been given up before, all that it finds is that its backups
    are gone, and it must ask before it goes on alone.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    with (
        FailoverSender(cluster.addresses, "q", prefix="moves", rate=10) as moves,
        FailoverSender(
            cluster.addresses[:1], "q", prefix="stays", count=30, heartbeat=SILENT, follow=False
        ) as stays,
    ):
        moves.wait_accepted(100)
        wait_for(lambda: stays.done, what="whether all is accepted from the client that stays")
        cluster[0].stop()
        stays.count = 60
        wait_for(
            lambda: stays.unsettled,
            lambda seen: seen == 30,
            what="messages in the socket of the stopped primary",
        )
        if promoted == "when its links are lost":
            for backup in cluster[1:]:
                wait_for(
                    lambda backup=backup: connected(backup, cluster[0]),
                    lambda seen: not seen,
                    what=f"the link of {backup.name}",
                )
        cluster.promote(1)
        moves.wait_accepted(100)
        cluster[0].cont()
        cluster.wait_settled(1)
        wait_for(lambda: stays.losses, what="whether the old primary dropped its client")
        moves.wait_accepted(100)
    assert sorted(stays.accepted) == list(range(1, 31))
    bodies = browse(cluster[1], "q")
    assert moves.missing(bodies) == []
    assert [body for body in bodies if body.startswith("stays")] == stays.bodies()
    assert (
        first_gap(int(body.removeprefix("moves")) for body in bodies if body.startswith("moves"))
        == 0
    )
    for backup in (cluster[0], cluster[2]):
        wait_browse(backup, "q", bodies)
    assert cluster[0].status()["epoch"] == cluster[1].status()["epoch"]


@pytest.mark.parametrize("how", ["demoted", "stopped"])
@pytest.mark.parametrize("kept", [{}, {"no_data_dir": ""}], ids=["on disk", "in memory"])
def test_what_was_consumed_just_before_a_primary_went_in_good_order_is_not_there_again(
    a_cluster, how, kept
):
    """Messages that were sent settled leave with a record that nobody waits for."""
    cluster = a_cluster(3, **kept)
    for broker, heir in ((0, 1), (1, 2)):
        cluster[broker].declare_queue(f"q{broker}")
        with connect(cluster[broker]) as client:
            sender = client.sender(f"q{broker}")
            for number in range(300):
                sender.send_nowait(f"{number}")
            sender.flush()
            receiver = client.receiver(f"q{broker}", credit=300, settled=True)
            assert [receiver.receive().body for _ in range(300)]
            if how == "demoted":
                cluster[broker].call("demote")
            else:
                cluster[broker].signal(signal.SIGTERM)
                cluster[broker].process.wait()
                cluster[broker].restart()
        cluster.promote(heir)
        cluster.wait_settled(heir)
        assert browse(cluster[heir], f"q{broker}") == []
