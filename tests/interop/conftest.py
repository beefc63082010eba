"""Real brokers, as the system tests have them, with and without TLS."""

from __future__ import annotations

from functools import cache

import pytest

from tests.interop.programs import Access
from tests.system.conftest import a_cluster, pytest_runtest_makereport
from tests.system.credentials import Authority, users_file
from tests.system.net import FloatingAddress

__all__ = ["a_cluster", "pytest_runtest_makereport"]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Return a function that returns a client of a kind; its application is compiled once."""

    @cache
    def prepare(kind):
        client = kind()
        client.prepare(tmp_path_factory.mktemp("application"))
        return client

    return prepare


@pytest.fixture
def plain(a_cluster):
    """Return a function that starts a cluster without TLS, and how to get at it."""

    def start(first):
        cluster = a_cluster(3)
        return cluster, Access.to(cluster, first)

    return start


@pytest.fixture
def encrypted(a_cluster, tmp_path):
    """Return a function that starts a cluster with TLS and passwords, and how to get at it."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker", "DNS:localhost,DNS:127.0.0.1,IP:127.0.0.1")
    users = users_file(tmp_path / "users", {"ha": "secret", "ann": "hers"})

    def start(first):
        cluster = a_cluster(
            3,
            encrypted=True,
            users_file=users,
            ha_username="ha",
            ha_password="secret",
            ssl_cert=certificate,
            ssl_key=key,
            ssl_trusted=authority.certificate,
        )
        login = {"user": "ann", "password": "hers", "authority": authority.certificate}
        return cluster, Access.encrypted_to(cluster, first, **login)

    return start


@pytest.fixture
def floating_address():
    """Return a function that makes an address which leads to a port of this machine."""
    made = []

    def make(port):
        made.append(FloatingAddress(port))
        made[-1].start()
        return made[-1]

    yield make
    for address in made:
        address.close()
