"""With authentication on and an access control list, everything replicates: the original's
test_auth, whose user for links between brokers may do what the original's needs, an ordinary user
may do everything, and all others nothing.
"""

from __future__ import annotations

import pytest

from qpidha.client.dialling import named
from qpidha.client.errors import LinkError, NotAccepted
from qpidha.client.management import AmqpManagement
from qpidha.client.message import Message
from qpidha.model.errors import RefusedRequest
from tests.system.clients import CREATE, PATIENCE, Refusal, browse, connect
from tests.system.cluster import Broker, wait_for
from tests.system.credentials import users_file
from tests.system.test_wrong_identity import BACKUP_CLAIM
from tests.system.transactions import Session

pytestmark = pytest.mark.system
PASSWORDS = {name: f"{name}-secret" for name in ("ha", "guest", "eve")}
HA, GUEST, EVE = (
    {"user": name, "password": password, "mechanism": "PLAIN"}
    for name, password in PASSWORDS.items()
)
LINK = "acl allow ha@QPID create link\n"
RULES = f"""\
# The user of the links between brokers
acl allow ha@QPID access queue
acl allow ha@QPID create queue
acl allow ha@QPID consume queue
acl allow ha@QPID delete queue
acl allow ha@QPID access exchange
acl allow ha@QPID create exchange
acl allow ha@QPID bind exchange
acl allow ha@QPID publish exchange
acl allow ha@QPID delete exchange
acl allow ha@QPID access method
{LINK}acl allow ha@QPID access query
# An ordinary user
acl allow guest@QPID all all
# Everybody else
acl deny all all
"""
DENIED = "amqp:unauthorized-access"


def test_auth(a_cluster, tmp_path):
    """Queue, exchange, binding and messages of an ordinary user, plain and committed in a
    transaction, are on the backup; another user may do nothing; what is read again is enforced.
    """
    rules = tmp_path / "rules"
    rules.write_text(RULES)
    cluster = a_cluster(
        2,
        users_file=users_file(tmp_path / "users", PASSWORDS),
        acl_file=rules,
        auth="yes",
        ha_username="ha",
        ha_password="ha-secret",
        ha_mechanism="PLAIN",
        sasl_mechanisms="PLAIN",
        sasl_plain_without_tls="yes",
        log_enable="notice+",
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
    check_that_eve_may_do_nothing(primary)
    assert Refusal(primary, properties=BACKUP_CLAIM, **EVE).condition == DENIED

    rules.write_text(RULES.replace(LINK, ""))
    primary.call("reload")
    assert Refusal(primary, properties=BACKUP_CLAIM, **HA).condition == DENIED
    cluster.kill(0, promote=1)
    assert browse(backup, "q", **GUEST) == ["plain", "routed", "committed"]
    check_that_eve_may_do_nothing(backup)


def check_that_eve_may_do_nothing(broker: Broker) -> None:
    """Check what each way of using a broker comes to for a user whom no rule allows anything."""
    with connect(broker, **EVE) as eve:
        for attach in (
            lambda: eve.sender("q"),
            lambda: eve.receiver("q", browse=True),
            lambda: eve.receiver("ex"),
            lambda: eve.sender("new", capabilities=CREATE),
            lambda: eve.receiver(dynamic=True),
        ):
            with pytest.raises(LinkError) as refused:
                attach()
            assert refused.value.condition == DENIED
        with pytest.raises(NotAccepted) as rejected:
            eve.sender(None).send(Message("x", to="q"))
        assert rejected.value.condition == DENIED
    management = AmqpManagement(named(broker.address, **EVE)[0], tls=None, timeout=PATIENCE)
    for method, params in (("list_queues", {}), ("delete_queue", {"name": "q"})):
        with pytest.raises(RefusedRequest) as denied:
            management.call(method, params)
        assert denied.value.condition == DENIED and "acl-file" in denied.value.hint
    management.close()
    assert "denied eve" in broker.log.read_text()


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
