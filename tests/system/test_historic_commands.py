"""`qpid-ha` as scripts of Qpid call it, on real brokers that ask for a login: what the audit of
the original found missing (finding 19), and the method `setPublicUrl`.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.patience import STATE
from tests.programs import fast_qpid_ha
from tests.runtime.daemons import ENVIRONMENT, Running
from tests.system.clients import connect
from tests.system.cluster import wait_for
from tests.system.credentials import users_file

pytestmark = pytest.mark.system
NOBODY = "127.0.0.1:1"
PUBLIC = "amqp:192.0.2.7:5670"


def qpid_ha(*words, user="ha"):
    """Call it as a user: exit code, standard output and standard error."""
    done = subprocess.run(
        [fast_qpid_ha(), *map(str, words)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT | {"QPIDHA_USER": user, "QPIDHA_PASSWORD": f"{user}-secret"},
        timeout=STATE,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def secure(a_cluster, tmp_path):
    return a_cluster(
        3,
        users_file=users_file(tmp_path / "users", {"ha": "ha-secret", "guest": "guest-secret"}),
        auth="yes",
        ha_username="ha",
        ha_password="ha-secret",
    )


def test_qpid_19_who_may_not_is_told_so_and_lists_of_brokers_do(secure):
    """An ordinary user's switchover, a list whose first broker is dead, and one that is dead
    whole.
    """
    places = [broker.address for broker in secure]
    listed = ",".join((NOBODY, *places))
    for words in (["switchover"], ["switchover", places[1]], ["demote"]):
        code, out, error = qpid_ha(*words, "-b", listed, user="guest")
        assert code == 77 and not out and "may not" in error and "can take over" not in error
    states = "".join(
        f"{place} {state}\n"
        for place, state in zip(places, ("active", "ready", "ready"), strict=True)
    )
    assert qpid_ha("status", "--all", "-b", listed) == (0, states, "")
    assert qpid_ha("status", "--expect", "primary", "-b", places[0])[0] == 0
    assert qpid_ha("status", "--expect=backup", "-b", places[0])[0] == 1
    assert qpid_ha("status", "--expect", "backup", "-b", places[1])[0] == 0
    assert qpid_ha("status", "--expect=primary", "-b", places[1])[0] == 1
    code, _, error = qpid_ha("status", "--all", "-b", f"{NOBODY},127.0.0.1:2")
    assert code == 69 and "none of" in error
    assert qpid_ha("switchover", places[1], "-b", listed)[0] == 0
    secure[1].wait_state("active")


def test_qpid_19_the_public_url_is_set_at_run_time(secure):
    """Receivers of amq.failover and who asks hear of it at once, on one broker or on all; other
    users may not, and what cannot be set is refused with what to do.
    """
    places = [broker.address for broker in secure]
    with connect(secure[0], user="guest", password="guest-secret") as client:
        receiver = client.receiver("amq.failover")
        assert receiver.receive().body[0] == f"amqp://{places[0]}"
        assert qpid_ha("set", "--public-url", PUBLIC, "-b", places[0]) == (0, "", "")
        assert receiver.receive().body == ["amqp://192.0.2.7:5670"]
    shown = qpid_ha("query", "-b", places[0])[1]
    assert f"{'Public URL:':<20} amqp:192.0.2.7:5670\n" in shown
    assert secure[1].status()["public_url"] == ""
    assert qpid_ha("set", "--public-url", "192.0.2.8", "--all", "-b", places[1])[0] == 0
    assert {broker.status()["public_url"] for broker in secure} == {"amqp:192.0.2.8:5672"}
    code, _, error = qpid_ha("set", "--public-url", "a", "-b", places[0], user="guest")
    assert code == 77 and "may not" in error
    for url, why in (("a,,b", "an address is empty"), ("a:b:c", "a:b:c")):
        code, _, error = qpid_ha("set", "--public-url", url, "-b", places[0])
        assert code == 1 and why in error
    secure.kill(2)
    code, _, error = qpid_ha("set", "--public-url", "none", "--all", "-b", places[0])
    assert code == 69 and error.startswith(f"{places[2]} ")
    wait_for(lambda: secure[1].status()["public_url"], lambda url: url == "", what="public-url")


def test_qpid_19_what_is_not_set_at_run_time_says_how_it_is_changed():
    code, _, error = qpid_ha("set", "--brokers-url", "a,b,c")
    assert code == 2 and "majorities" in error and "Changing the addresses" in error
    assert "set needs an option" in qpid_ha("set")[2]
    code, _, error = qpid_ha("ready", "--wait", "5")
    assert code == 2 and "status --expect ready" in error and "wait --for state=ready" in error


def test_a_broker_outside_of_a_cluster_has_no_public_url(tmp_path):
    with Running("--data-dir", tmp_path) as daemon:
        code, _, error = qpid_ha("set", "--public-url", "a", "-b", tmp_path / "admin.sock")
        assert code == 1 and "not in a cluster" in error
        assert daemon.process.poll() is None
