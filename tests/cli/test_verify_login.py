"""The clients of `qpid-ha verify run` tell their password to a broker that shows a certificate of
an authority, and to no other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Said
from tests.system.cluster import Broker, Cluster
from tests.system.conftest import a_cluster
from tests.system.credentials import Authority, users_file

__all__ = ["a_cluster"]

pytestmark = pytest.mark.xdist_group("real-brokers")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def broker(a_cluster: Callable[..., Cluster], authority: Authority, tmp_path: Path) -> Broker:
    """A broker that nobody enters without a password."""
    certificate, key = authority.issue("broker")
    users = users_file(tmp_path / "users", {"ann": "secret"})
    cluster = a_cluster(
        1,
        ha_cluster="no",
        promote=False,
        encrypted=True,
        auth="yes",
        users_file=users,
        ssl_cert=certificate,
        ssl_key=key,
    )
    return cluster[0]


def reports(broker: Broker, tmp_path: Path, authorities: Path | None) -> Iterator[dict[str, Any]]:
    """Yield what a founder says that makes the queue q, on a machine with these authorities."""
    assert broker.encrypted_port is not None
    address = f"localhost:{broker.encrypted_port.number}"
    env = {**os.environ, "QPIDHA_VERIFY_USER": "ann", "QPIDHA_VERIFY_PASSWORD": "secret"}
    env.pop("SSL_CERT_FILE", None)
    env |= {"SSL_CERT_FILE": str(authorities)} if authorities else {}
    words = [
        "founder",
        "--addresses",
        address,
        "--queues",
        "q",
        "--run",
        "r",
        "--history",
        str(tmp_path / "h"),
        "--index",
        "0",
        "--tls",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "qpidha.pipeline.workload.clients", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
    ) as process:
        assert process.stdout is not None
        try:
            yield from map(json.loads, process.stdout)
        finally:
            process.kill()


def test_an_authority_of_the_system_is_enough(
    broker: Broker, authority: Authority, tmp_path: Path
) -> None:
    assert next(
        report
        for report in reports(broker, tmp_path, authority.certificate)
        if report["done"] or report["lost_connections"]
    )["done"]
    assert [queue["name"] for queue in broker.call("list_queues")] == ["q"]


def test_a_broker_that_nobody_vouches_for_is_told_nothing(broker: Broker, tmp_path: Path) -> None:
    report = next(
        report
        for report in reports(broker, tmp_path, None)
        if report["done"] or report["lost_connections"]
    )
    assert not report["done"] and "certificate" in report["error"]
    assert broker.call("list_queues") == []


def test_a_run_needs_no_password_on_its_command_line(
    broker: Broker,
    authority: Authority,
    tmp_path: Path,
    qpid_ha: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert broker.encrypted_port is not None
    (tmp_path / "password").write_text("secret\n")
    monkeypatch.setenv("QPIDHA_USER", "ann")
    words = ["--password-file", str(tmp_path / "password")]
    there = ["--brokers", f"amqps://localhost:{broker.encrypted_port.number}", *words]
    small = ["--queues", "1", "--senders", "1", "--receivers", "1", "--minutes", "0.01"]
    trusted = ["--ssl-trusted", str(authority.certificate)]
    said = qpid_ha("verify", "run", *there, *small, *trusted, "--out", str(tmp_path / "v"))
    assert said.code == 0, said
    assert broker.call("list_queues") == [], "the run has removed its queues"
