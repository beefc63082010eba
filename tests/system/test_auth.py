"""With authentication on, everything replicates: the original's test_auth, with the HA identity as
the only one that may act as a broker.

The original gave that user a minimal ACL; here the identity itself is what admits it, and ordinary
users need none of its rights.
"""

from __future__ import annotations

import pytest

from tests.system.clients import browse, connect
from tests.system.cluster import wait_for
from tests.system.credentials import users_file
from tests.system.transactions import Session

pytestmark = pytest.mark.system
GUEST = {"user": "guest", "password": "guest-secret", "mechanism": "PLAIN"}


def test_auth(a_cluster, tmp_path):
    """Queue, exchange, binding and messages of an ordinary user, plain and committed in a
    transaction, are on the backup.
    """
    users = users_file(tmp_path / "users", {"ha": "ha-secret", "guest": "guest-secret"})
    cluster = a_cluster(
        2,
        users_file=users,
        auth="yes",
        ha_username="ha",
        ha_password="ha-secret",
        ha_mechanism="PLAIN",
        sasl_mechanisms="PLAIN",
        sasl_plain_without_tls="yes",
    )
    primary, backup = cluster
    primary.declare_queue("q")
    primary.declare_exchange("ex")
    primary.bind("ex", "q", "foo")
    with connect(primary, **GUEST) as client:
        client.sender("q").send("plain")
        client.sender("ex").send("routed")
    session = Session(primary, **GUEST).begin()
    session.send("q", ["committed"])
    session.commit()
    session.close()

    def count() -> int:
        return backup.call("list_queues", name="q")[0]["messages"]

    wait_for(count, lambda seen: seen == 3, what="messages on the backup")
    assert backup.bindings() == [("ex", "q", "foo")]
    cluster.kill(0, promote=1)
    assert browse(backup, "q", **GUEST) == ["plain", "routed", "committed"]


def test_qpid_18_brokers_that_log_in_where_nobody_must_form_a_cluster(a_cluster):
    """Qpid takes any password there; with PLAIN alone the brokers never let each other in, and each
    counted itself twice.
    """
    login = {"ha_username": "ha", "ha_password": "secret", "ha_mechanism": "PLAIN"}
    cluster = a_cluster(2, auth="no", **login)
    cluster[0].declare_queue("q")
    with connect(cluster[0]) as client:
        client.sender("q").send("a")
    assert len(cluster[0].call("members")) == 2
