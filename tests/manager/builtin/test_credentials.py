"""Credentials of a secure local cluster: who may read them, what is kept, and what brokers and
clients are told.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from stat import S_IMODE

import pytest

from qpidha.amqp.peer.sasl import Users
from qpidha.client.command.exits import Failure
from qpidha.management.acl_file import read
from qpidha.manager.builtin.cluster import ClusterOptions, configuration, write_state
from qpidha.manager.builtin.credentials import BROKERS, PROGRAMS, Credentials
from qpidha.model.settings import Settings
from tests.patience import STATE


def openssl(*words: object) -> str:
    return subprocess.run(
        ["openssl", *map(str, words)], check=True, capture_output=True, text=True, timeout=STATE
    ).stdout


@pytest.fixture
def plan(tmp_path: Path) -> ClusterOptions:
    """A secure cluster whose clients and brokers have a network each."""
    return ClusterOptions(tmp_path, (5672, 5673, 5674), secure=True, two_networks=True)


@pytest.fixture
def made(plan: ClusterOptions) -> Credentials:
    plan.credentials.make({spec.name: spec.names for spec in plan.brokers()})
    return plan.credentials


def test_they_are_for_their_owner_alone(made: Credentials) -> None:
    assert S_IMODE(made.folder.stat().st_mode) == 0o700
    modes = {path.name: S_IMODE(path.stat().st_mode) for path in made.folder.iterdir()}
    brokers = {f"b{number}.{kind}" for number in (1, 2, 3) for kind in ("key", "pem")}
    others = {"ca.pem", "ca.key", "users", "acl", "ha.password", "app.password"}
    assert set(modes) == brokers | others and set(modes.values()) == {0o600}


def test_each_broker_is_vouched_for_by_every_address_of_its_own(made: Credentials) -> None:
    for number in (1, 2, 3):
        certificate = made.certificate(f"b{number}")
        purpose = ("-purpose", "sslserver", "-x509_strict", "-verify_ip", f"127.0.2.{number}")
        openssl("verify", *purpose, "-CAfile", made.trusted, certificate)
        names = openssl("x509", "-noout", "-ext", "subjectAltName", "-in", certificate)
        addresses = [
            f"IP Address:127.0.{network}" for network in ("0.1", f"1.{number}", f"2.{number}")
        ]
        assert names.splitlines()[1].strip() == ", ".join(["DNS:localhost", *addresses])


def test_the_passwords_are_those_of_the_users_file_and_random(made: Credentials) -> None:
    users = Users.parse(made.users.read_text())
    passwords = [
        made.password_file(name).read_text().removesuffix("\n") for name in (BROKERS, PROGRAMS)
    ]
    assert users.check(BROKERS, passwords[0]) and users.check(PROGRAMS, passwords[1])
    assert len(set(passwords)) == 2 and all(len(password) >= 32 for password in passwords)
    assert not users.check(PROGRAMS, passwords[0])
    assert users.has_secret


def test_a_second_time_keeps_the_authority_users_and_rules(
    plan: ClusterOptions, made: Credentials
) -> None:
    made.rules.write_text("acl allow all all\n")
    kept = [made.trusted, made.authority_key, made.users, made.rules]
    kept += [made.password_file(name) for name in (BROKERS, PROGRAMS)]
    before = [path.read_bytes() for path in kept]
    certificate = made.certificate("b1").read_bytes()
    made.make({spec.name: spec.names for spec in plan.brokers()})
    assert [path.read_bytes() for path in kept] == before
    assert made.certificate("b1").read_bytes() != certificate


def test_without_openssl_it_says_so_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failure, match="openssl is not installed") as caught:
        Credentials(tmp_path).make({"b1": ["localhost"]})
    assert caught.value.code == 69 and "install the package openssl" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_what_openssl_says_is_told(made: Credentials) -> None:
    made.authority_key.write_text("no key")
    with pytest.raises(Failure, match="openssl x509 made no certificate: .*key"):
        made.make({"b1": ["localhost"]})


def test_the_rules_are_understood(made: Credentials) -> None:
    rules, troubles = read(made.rules.read_text())
    assert rules is not None and not troubles


def test_a_broker_is_entered_by_tls_and_with_a_login_alone(plan: ClusterOptions) -> None:
    spec = plan.brokers()[1]
    settings, warnings = Settings.load(configuration(spec, plan), {}, [])
    assert (
        not warnings and settings.require_encryption and settings.auth and settings.ssl_port == 5673
    )
    assert settings.interface == ("127.0.1.2", "127.0.2.2")
    assert str(settings.ha_brokers_url) == (
        "amqp:ssl:127.0.2.1:5672,ssl:127.0.2.2:5673,ssl:127.0.2.3:5674"
    )
    assert [str(address) for address in settings.ha_public_url] == [
        f"ssl:{each.clients_address}" for each in plan.brokers()
    ]
    assert settings.ha_mechanism == "SCRAM-SHA-512" and not settings.ha_password
    assert settings.sasl_mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


def test_the_manager_of_a_secure_cluster_is_told_so_and_no_password(
    plan: ClusterOptions, made: Credentials
) -> None:
    words = plan.manager_command()
    assert "--secure" in words and "--two-networks" in words
    write_state(plan, manager_pid=1, processes={})
    written = " ".join(words) + plan.state_file.read_text() + configuration(plan.brokers()[0], plan)
    for name in (BROKERS, PROGRAMS):
        assert made.password_file(name).read_text().strip() not in written
    assert '"secure": true' in written
