"""How commands find brokers: lists of addresses, the way from a backup to the primary, TLS, login,
and what is said of a broker that may not be asked.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qpidha.client.command import target
from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure
from qpidha.client.command.target import PLAIN_ADDRESS, beside, resolve
from tests.cli.conftest import FakeBroker, Said
from tests.system.cluster import Cluster, wait_for
from tests.system.credentials import Authority, users_file

Run = Callable[..., Said]
NOBODY = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's real cluster is asked."""
    monkeypatch.setenv("QPIDHA_DIR", str(tmp_path / "nowhere"))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Cluster]:
    """Two brokers where everybody may do everything; the first is the primary."""
    cluster = Cluster(tmp_path, 2, options={})
    cluster.start()
    yield cluster
    cluster.close()


@pytest.fixture
def unstarted(tmp_path: Path) -> Iterator[Cluster]:
    """Two brokers with users and TLS ports for clients, to be started. Brokers speak to each other
    without TLS.
    """
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker")
    users = users_file(tmp_path / "users", {"ha": "ha", "app": "app"})
    options = {
        "users_file": users,
        "auth": "yes",
        "ha_username": "ha",
        "ha_password": "ha",
        "ssl_cert": certificate,
        "ssl_key": key,
    }
    cluster = Cluster(tmp_path, 2, options=options, encrypted=True)
    plain = ",".join(cluster.addresses)
    for broker in cluster:
        broker.options["ha_brokers_url"] = plain
    yield cluster
    cluster.close()


@pytest.fixture
def secured(unstarted: Cluster) -> Cluster:
    """The same, started; the first is the primary."""
    unstarted.start()
    return unstarted


def tls(cluster: Cluster, tmp_path: Path, *brokers: int, login: str = "app:app") -> tuple[str, ...]:
    """Options to reach brokers by TLS, in one list."""
    ports = [cluster[i].encrypted_port.number for i in brokers]
    listed = ",".join(f"localhost:{port}" for port in ports)
    return "-b", f"amqps://{login}@{listed}", "--ssl-trusted", str(tmp_path / "ca.pem")


# -- what a list says -----------------------------------------------------------------------------


def test_a_list_has_the_login_and_tls_of_its_first_address() -> None:
    first, second, third = resolve(
        Options(broker="amqps://ann:secret@h1:1,h2,amqp://bob:b@h3:3,h1:1")
    )
    assert (str(first), first.encrypted, first.user) == ("h1:1", True, "ann")
    assert (str(second), second.encrypted, second.user, second.password) == (
        "h2:5671",
        True,
        "ann",
        "secret",
    )
    assert (str(third), third.encrypted, third.user) == ("h3:3", False, "bob")


def test_a_list_of_nothing_is_a_usage_error(qpid_ha: Run) -> None:
    assert qpid_ha("status", "-b", ",").code == 2


def test_first_use_d4_nobody_goes_from_tls_to_a_plain_port() -> None:
    (first,) = resolve(Options(broker="amqps://h1"))
    with pytest.raises(Failure) as refused:
        beside("h2:5672", first)
    assert refused.value.condition == PLAIN_ADDRESS and "amqps://" in refused.value.hint


def test_first_use_d13_of_a_list_the_primary_is_asked(broker: FakeBroker, qpid_ha: Run) -> None:
    assert qpid_ha("status", "-b", f"{NOBODY},{broker.socket}") == Said(0, "active\n", "")
    assert qpid_ha("status", "--all", "-b", f"{NOBODY},{broker.socket}").code == 0


def test_a_list_of_which_nobody_answers_is_69_and_says_why(qpid_ha: Run) -> None:
    said = qpid_ha("status", "-b", f"{NOBODY},/nowhere/admin.sock")
    assert said.code == 69 and said.out == ""
    assert f"none of {NOBODY}, /nowhere/admin.sock can be asked" in said.err


@pytest.mark.parametrize("line", ["list", "status --all", "query --all", "recover", "failover"])
def test_first_use_m24_nobody_to_ask_is_never_an_answer(qpid_ha: Run, line: str) -> None:
    said = qpid_ha(*line.split(), "-b", f"{NOBODY},127.0.0.1:2", "--timeout", "5")
    assert said.code == 69 and said.out == ""


# -- following the primary ------------------------------------------------------------------------


def test_first_use_d13_a_change_that_is_asked_of_a_backup_is_made_by_the_primary(
    pair: Cluster, qpid_ha: Run
) -> None:
    for number, at in enumerate((pair[1].address, str(pair[1].admin_socket))):
        assert qpid_ha("queue", "add", f"q{number}", "-b", at) == Said(0, "", "")
        assert qpid_ha("queue", "purge", f"q{number}", "-b", at).code == 0
    assert pair[0].queue_names() == ["q0", "q1"]
    said = qpid_ha("queue", "add", "amq.q", "-b", pair[1].address)
    assert said.code == 1 and "reserved prefix" in said.err


def test_a_change_without_a_primary_says_so(pair: Cluster, qpid_ha: Run) -> None:
    pair[0].call("demote")
    for at in (pair[1].address, str(pair[1].admin_socket)):
        said = qpid_ha("queue", "add", "q", "-b", at)
        assert said.code == 1 and "changes nothing itself" in said.err and "Try: " in said.err


def test_a_list_serves_every_command(pair: Cluster, qpid_ha: Run) -> None:
    at = ("-b", f"{NOBODY},{pair[1].address},{pair[0].address}")
    assert qpid_ha("status", *at).out == "active\n"
    assert qpid_ha("ping", *at).code == 0
    assert qpid_ha("wait", "--for", "synced", *at).code == 0
    assert qpid_ha("queue", "add", "q", *at).code == 0
    assert qpid_ha("send", "q", "one", *at).code == 0
    assert qpid_ha("receive", "q", "-m", "1", *at).out == "one\n"
    said = qpid_ha("switchover", pair[1].address, *at)
    assert said.code == 0, said
    pair.wait_settled(1)
    assert qpid_ha("send", "q", "two", *at).code == 0
    shown = json.loads(qpid_ha("list", "-o", "json", *at).out)
    assert shown["primary"] == pair[1].address and len(shown["brokers"]) == 2


def test_rabbitmq_d1_wait_does_not_count_a_backup_that_hangs(pair: Cluster, qpid_ha: Run) -> None:
    at = ("-b", pair[0].address)
    assert qpid_ha("wait", "--for", "synced", *at).code == 0
    pair[1].stop()
    try:
        wait_for(
            lambda: {row["address"]: row["state"] for row in pair[0].call("members")},
            lambda states: states[pair[1].address] == "unreachable",
            what="the states that the primary sees",
        )
        said = qpid_ha("wait", "--for", "synced", "--timeout", "10ms", *at)
        assert said.code == 75 and f"{pair[1].address} is unreachable" in said.err
    finally:
        pair[1].cont()


# -- users and TLS --------------------------------------------------------------------------------


def test_first_use_d7_an_ordinary_user_is_told_what_the_primary_knows(
    secured: Cluster, tmp_path: Path, qpid_ha: Run
) -> None:
    at = ("-b", f"amqp://app:app@{secured[0].address}")
    said = qpid_ha("list", *at)
    assert said.code == 0 and "in sync 2 of 2" in said.out and "unreachable" not in said.out
    assert "as the primary sees it" in said.err and "user app may not ask" in said.err
    rows = json.loads(qpid_ha("list", "-o", "json", *at).out)["brokers"]
    assert [(row["state"], row["in_sync"], row["seen_by"]) for row in rows] == [
        ("active", True, None),
        ("ready", True, "primary"),
    ]
    backup = ("-b", f"amqp://app:app@{secured[1].address}")
    assert qpid_ha("ping", *backup) == Said(0, "", "")
    said = qpid_ha("switchover", *at)
    assert said.code == 77 and "may not ask" in said.err
    assert qpid_ha("queue", "add", "q", *backup).code == 0
    assert secured[0].queue_names() == ["q"]


def test_who_trusts_no_certificate_is_told_what_the_primary_knows(
    unstarted: Cluster, tmp_path: Path, qpid_ha: Run
) -> None:
    """As root on a host, by the admin socket: the ports of the others are for TLS."""
    url = "amqps:" + ",".join(f"localhost:{broker.encrypted_port.number}" for broker in unstarted)
    for broker in unstarted:
        broker.options |= {"ha_brokers_url": url, "ssl_trusted": tmp_path / "ca.pem"}
    unstarted.start()
    said = qpid_ha("list", "-b", str(unstarted[0].admin_socket))
    assert said.code == 0 and "in sync 2 of 2" in said.out and "unreachable" not in said.out, said
    assert "as the primary sees it" in said.err and "is not trusted" in said.err


def test_a_client_of_the_tls_port_stays_there(
    secured: Cluster, tmp_path: Path, qpid_ha: Run
) -> None:
    one, both = tls(secured, tmp_path, 1), tls(secured, tmp_path, 1, 0)
    said = qpid_ha("queue", "add", "q", *one)
    assert said.code == 69 and "this broker is ready" in said.err
    assert "name the addresses of all brokers" in said.err
    assert qpid_ha("queue", "add", "q", *both) == Said(0, "", "")
    assert qpid_ha("send", "q", "x", *both).code == 0
    shown = qpid_ha("list", *tls(secured, tmp_path, 0, login="ha:ha"))
    assert "it is a plain port" in shown.err and "in sync 2 of 2" in shown.out
    shown = qpid_ha("list", *tls(secured, tmp_path, 0, 1, login="ha:ha"))
    assert shown.err == "" and "in sync 2 of 2" in shown.out
    said = qpid_ha("switchover", *tls(secured, tmp_path, 0, 1, login="ha:ha"))
    assert said.code == 0, said


def test_public_addresses_lead_a_client_of_the_tls_port_to_every_broker(
    unstarted: Cluster, tmp_path: Path, qpid_ha: Run
) -> None:
    public = ",".join(f"localhost:{broker.encrypted_port.number}" for broker in unstarted)
    for broker in unstarted:
        broker.options["ha_public_url"] = f"amqps:{public}"
    unstarted.start()
    shown = qpid_ha("list", *tls(unstarted, tmp_path, 0, login="ha:ha"))
    assert shown.err == "" and "in sync 2 of 2" in shown.out, shown
    for number, login in enumerate(("ha:ha", "app:app")):
        at = tls(unstarted, tmp_path, 1, login=login)
        assert qpid_ha("queue", "add", f"q{number}", *at) == Said(0, "", "")
    assert unstarted[0].queue_names() == ["q0", "q1"]
    said = qpid_ha("switchover", *tls(unstarted, tmp_path, 0, login="ha:ha"))
    assert said.code == 0, said


# -- a configuration file -------------------------------------------------------------------------


def config(tmp_path: Path, **values: Any) -> tuple[str, str]:
    """Write a configuration file and return the option that names it."""
    path = tmp_path / "client.conf"
    lines = [f"{name.replace('_', '-')}={value}\n" for name, value in values.items()]
    path.write_text("".join(lines))
    return "--config", str(path)


def test_first_use_d8_a_configuration_file_gives_every_command_its_login(
    secured: Cluster, tmp_path: Path, qpid_ha: Run
) -> None:
    given = config(
        tmp_path, port=secured[1].port.number, ha_username="ha", ha_password="ha", auth="yes"
    )
    assert qpid_ha("queue", "add", "q", *given) == Said(0, "", "")
    assert qpid_ha("send", "q", "x", *given).code == 0
    assert qpid_ha("receive", "q", "-m", "1", *given).out == "x\n"
    socket_too = config(
        tmp_path,
        admin_socket=secured[0].admin_socket,
        port=secured[0].port.number,
        ha_username="ha",
        ha_password="ha",
    )
    assert qpid_ha("send", "q", "y", *socket_too).code == 0
    assert "in sync 2 of 2" in qpid_ha("list", *socket_too).out


def test_first_use_d8_a_configuration_file_gives_tls_too(
    secured: Cluster, tmp_path: Path, qpid_ha: Run
) -> None:
    ports = [broker.encrypted_port.number for broker in secured]
    given = config(
        tmp_path,
        require_encryption="yes",
        ssl_port=ports[0],
        ssl_trusted="ca.pem",
        ha_username="ha",
        ha_password="ha",
        ha_brokers_url=f"amqps:localhost:{ports[0]},localhost:{ports[1]}",
    )
    assert qpid_ha("status", *given) == Said(0, "active\n", "")
    assert qpid_ha("queue", "add", "q", *given).code == 0
    assert qpid_ha("send", "q", "x", *given).code == 0


# -- hosts ----------------------------------------------------------------------------------------


def test_qpid_19_a_broker_is_named_by_its_host_alone(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["status"] |= {"address": "10.0.0.1:5672", "brokers_url": "amqp:10.0.0.1"}
    said = qpid_ha("switchover", "10.0.0.1", "-b", broker.socket)
    assert said.code == 1 and "is the primary" in said.err


def test_a_broker_of_tls_is_named_by_its_host_alone(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["status"] |= {"address": "10.0.0.1:5671", "brokers_url": "amqps:10.0.0.1"}
    said = qpid_ha("switchover", "10.0.0.1", "-b", broker.socket)
    assert said.code == 1 and "is the primary" in said.err


def test_a_port_that_only_listens_is_75(qpid_ha: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        said = qpid_ha("wait", "--for", "state=ready", "--timeout", "10ms", "-b", at)
        assert said.code == 75
    said = qpid_ha("wait", "--for", "state=ready", "--timeout", "10ms", "-b", NOBODY)
    assert said.code == 69 and "no broker could be asked" in said.err


def test_qpid_4_1_the_configuration_of_the_machine_says_where_its_broker_is(
    broker: FakeBroker, qpid_ha: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without -b, as the original looks for a qpidd.conf; one that runs, or -b, comes first."""
    ours, theirs = tmp_path / "qpidha.conf", tmp_path / "qpidd.conf"
    monkeypatch.setattr(target, "CONFIGURATION", str(ours))
    monkeypatch.setattr(target, "QPIDD_CONFIGURATION", str(theirs))
    monkeypatch.setattr(target, "daemon_socket", lambda: "")
    theirs.write_text(f"admin-socket={broker.socket}\nha-username=ha\n")
    assert qpid_ha("status") == Said(0, "active\n", "")
    ours.write_text("port=1\nha-username=us\nha-password=secret\n")
    (found,) = resolve(Options())
    assert (found.host, found.port, found.user, found.password) == ("localhost", 1, "us", "secret")
    (found,) = resolve(Options(broker="there:2"))
    assert (found.host, found.port, found.user) == ("there", 2, "")
    monkeypatch.setattr(target, "daemon_socket", lambda: "/run/alive.sock")
    assert [one.socket for one in resolve(Options())] == ["/run/alive.sock"]
