"""With authentication on, only the HA identity may act as a broker or a tool; the original believed
anybody's word.
"""

from __future__ import annotations

import pytest

from tests.system.clients import ADMIN, REDIRECT, Refusal, connect, wait_browse
from tests.system.cluster import wait_for
from tests.system.credentials import users_file
from tests.system.net import Namespaces, can_make_namespaces

pytestmark = pytest.mark.system

BACKUP_CLAIM = {
    "qpid.ha-backup": {
        "system-id": "5b1c9c5e-0000-4000-8000-000000000000",
        "host-name": "127.0.0.1",
        "port": 5672,
        "status": 0,
    }
}
HA = {"user": "ha", "password": "ha-secret"}
GUEST = {"user": "guest", "password": "guest-secret"}


@pytest.fixture
def cluster(a_cluster, tmp_path):
    """Return a pair with two users: the brokers' own and a client's."""
    users = users_file(tmp_path / "users", {"ha": "ha-secret", "guest": "guest-secret"})
    return a_cluster(
        2,
        users_file=users,
        auth="yes",
        ha_username="ha",
        ha_password="ha-secret",
        ha_mechanism="PLAIN",
        sasl_plain_without_tls="yes",
    )


def test_an_ordinary_client_is_served_and_a_tool_with_the_ha_identity_sees_the_backup(cluster):
    """The pair works with authentication on; an ordinary client of a backup is redirected."""
    cluster[0].declare_queue("q")
    with connect(cluster[0], **GUEST) as client:
        client.sender("q").send("a")
    wait_browse(cluster[1], "q", ["a"], **HA)
    assert Refusal(cluster[1], **GUEST).condition == REDIRECT


def test_a_client_that_claims_to_be_a_tool_or_a_broker_is_refused(cluster):
    """On a backup and on the primary; the members stay what they were."""
    members = sorted(member["address"] for member in cluster[0].call("members"))
    for broker in cluster:
        for claim in (ADMIN, BACKUP_CLAIM):
            refusal = Refusal(broker, properties=claim, **GUEST)
            assert refusal.condition in ("amqp:unauthorized-access", "amqp:not-allowed")
    assert sorted(member["address"] for member in cluster[0].call("members")) == members
    assert cluster[0].status()["in_sync"]["members"] == [broker.system_id for broker in cluster]


def test_who_cannot_authenticate_is_refused(cluster):
    """Nobody is served without credentials, and the answer does not tell a wrong password from an
    unknown user.
    """
    wrong = (
        {"user": "guest", "password": "wrong", "mechanism": "PLAIN"},
        {"user": "nobody", "password": "x", "mechanism": "PLAIN"},
        {"mechanism": "ANONYMOUS"},
    )
    refusals = [Refusal(cluster[0], **options) for options in wrong]
    assert {refusal.condition for refusal in refusals} == {"amqp:unauthorized-access"}
    assert refusals[0].answer == refusals[1].answer


def test_a_broker_with_a_wrong_password_does_not_join(a_cluster, tmp_path):
    """It never becomes ready, and the primary does not wait for it."""
    users = users_file(tmp_path / "users", {"ha": "ha-secret"})
    cluster = a_cluster(
        2,
        started=1,
        users_file=users,
        ha_username="ha",
        ha_password="ha-secret",
        ha_mechanism="SCRAM-SHA-256",
    )
    stranger = cluster[1]
    stranger.options["ha_password"] = "wrong"
    stranger.start()
    wait_for(
        lambda: stranger.log.read_text().lower(),
        lambda text: "unauthorized" in text or "authenticat" in text,
        what="its log",
    )
    assert stranger.state in ("joining", "")
    cluster[0].declare_queue("q")
    assert cluster[0].state == "active"


def test_code_d1_without_logins_only_the_machines_of_the_cluster_are_believed(a_cluster):
    """Strangers use queues, and are neither brokers nor tools; the brokers believe each other."""
    if not can_make_namespaces():
        pytest.skip("needs root: makes network namespaces")
    cluster = a_cluster(2, network=Namespaces(2))
    for broker in cluster:
        for claim in (ADMIN, BACKUP_CLAIM):
            assert Refusal(broker, properties=claim).condition == "amqp:unauthorized-access"
    cluster[0].declare_queue("q")
    with connect(cluster[0]) as client:
        client.sender("q").send("a")
    wait_browse(cluster[1], "q", ["a"])
