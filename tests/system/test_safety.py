"""ha-safety=strict: what a majority of the brokers did not agree to does not happen, whatever the
manager says.
"""

from __future__ import annotations

import pytest

from qpidha.model.errors import RefusedRequest
from tests.system.clients import browse, send
from tests.system.cluster import wait_for
from tests.system.failover_clients import FailoverSender

pytestmark = pytest.mark.system


def test_a_majority_fails_over(a_cluster):
    """One of three dies: the two that are left agree, and everything accepted is there."""
    cluster = a_cluster(3, ha_safety="strict")
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["a", "b"])
    cluster.kill(0, promote=1)
    cluster.wait_settled(1)
    send(cluster[1], "q", ["c"])
    assert browse(cluster[1], "q") == ["a", "b", "c"]


def test_a_broker_says_whether_it_lives_and_hears_a_majority(a_cluster):
    """What a resource manager looks at before it calls a broker fit to be promoted, or a primary
    cut off.
    """
    cluster = a_cluster(3, ha_safety="strict")

    def facts(broker) -> tuple[bool, bool, bool]:
        status = broker.status()
        return status["strict"], status["majority"], status["complete"]

    assert {facts(broker) for broker in cluster} == {(True, True, True)}
    for broker in cluster[:2]:
        broker.kill()
    wait_for(
        lambda: facts(cluster[2]), (True, False, True).__eq__, what="whether the last one is alone"
    )
    cluster[0].restart()
    wait_for(
        lambda: {facts(broker) for broker in (cluster[0], cluster[2])},
        {(True, True, False), (True, True, True)}.__eq__,
        what="both",
    )


def test_without_a_majority_nobody_is_promoted(a_cluster):
    """Two of three die: the last one says why it may not serve, and may as soon as one of them is
    back.
    """
    cluster = a_cluster(3, ha_safety="strict")
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["a"])
    cluster[0].kill()
    cluster[1].kill()
    with pytest.raises(RefusedRequest, match=r"1 of 3 brokers answered.* a majority must"):
        cluster[2].promote()
    assert cluster[2].state == "ready"
    cluster[1].restart()
    cluster.promote(2)
    cluster[2].wait_state("active")
    assert browse(cluster[2], "q") == ["a"]


def test_a_primary_without_a_majority_accepts_nothing(a_cluster):
    """Both backups die: what is sent waits, status says for whom, and it is accepted when one of
    them is back.
    """
    cluster = a_cluster(3, ha_safety="strict")
    cluster[0].declare_queue("q")
    for broker in cluster[1:]:
        broker.kill()

    def staying() -> set[str]:
        status = cluster[0].status()
        return set(status["in_sync"]["members"]) - set(status["leaving"])

    # The first may have left while the second was still there to agree.
    wait_for(
        staying,
        {cluster[0].system_id}.__eq__,
        what="who is neither gone from the set nor about to go",
    )
    assert cluster[0].status()["leaving"]
    with FailoverSender([cluster[0].address], "q", count=3) as sender:
        wait_for(
            lambda: browse(cluster[0], "q"),
            lambda seen: len(seen) == 3,
            what="the messages on the primary",
        )
        assert sender.accepted == []
        assert cluster[0].status()["held"] >= 3
        cluster[1].restart()
        wait_for(lambda: sender.done, what="whether all messages are accepted")
    assert browse(cluster[0], "q") == ["1", "2", "3"]


def test_a_restarted_broker_takes_nothing_from_one_that_does_not_answer(a_cluster):
    """It has nothing, and refuses to be promoted while another may have what was accepted."""
    cluster = a_cluster(3, ha_safety="strict")
    cluster[0].declare_queue("q")
    cluster[2].stop()
    for broker in cluster[:2]:
        broker.kill()
    for broker in cluster[:2]:
        broker.restart()
    with pytest.raises(RefusedRequest, match="did not answer and may have newer acknowledged"):
        cluster[0].promote()
    cluster[2].cont()
    with pytest.raises(RefusedRequest, match="is ready"):
        cluster[0].promote()
    cluster.promote(2)
    cluster.wait_settled(2)
    assert "q" in cluster[0].queue_names()
