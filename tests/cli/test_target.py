"""Which broker is meant, and where it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qpidha.cli.arguments import Options
from qpidha.cli.exits import Failure
from qpidha.cli.target import Target, parse, resolve


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("QPIDHA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("host", Target(host="host")),
        ("host:5673", Target(host="host", port=5673)),
        ("[::1]:5673", Target(host="::1", port=5673)),
        ("amqp://u:p%40w@host:1", Target(host="host", port=1, user="u", password="p@w")),
        ("u/p@host", Target(host="host", user="u", password="p")),
        ("amqps://host", Target(host="host", port=5671, encrypted=True)),
        ("ssl:host:9", Target(host="host", port=9, encrypted=True)),
        ("/run/x/admin.sock", Target(socket="/run/x/admin.sock")),
        ("./admin.sock", Target(socket="./admin.sock")),
    ],
)
def test_a_broker_is_an_address_or_the_path_of_a_socket(text: str, target: Target) -> None:
    assert parse(text) == target


@pytest.mark.parametrize("text", ["host:x", "host:0", "host:70000", "http://host", "amqp://u%zz@host", "amqp://u%ff@host"])
def test_other_texts_are_usage_errors(text: str) -> None:
    with pytest.raises(Failure) as failure:
        parse(text)
    assert failure.value.code == 2


def test_a_broker_of_the_local_cluster_is_known_by_its_name(nowhere: Path) -> None:
    brokers = [{"name": "b2", "address": "127.0.0.1:2", "admin_socket": "/d/b2/admin.sock"}]
    (nowhere / "cluster.json").write_text(json.dumps({"brokers": brokers}))
    assert parse("b2") == Target(socket="/d/b2/admin.sock")


def test_a_configuration_gives_port_credentials_and_timeout(nowhere: Path) -> None:
    config = nowhere / "qpidd.conf"
    config.write_text(
        "# a broker\nport=5999 # the usual one\nha-username=ha\nha-password=a=b\nha-mechanism=PLAIN\nlink-heartbeat-interval=5\n"
    )
    options = Options(config=str(config))
    assert resolve(options) == Target(host="localhost", port=5999, user="ha", password="a=b", mechanism="PLAIN")
    assert options.timeout == 5.0


def test_a_missing_configuration_is_a_missing_input(nowhere: Path) -> None:
    with pytest.raises(Failure) as failure:
        resolve(Options(config=str(nowhere / "none.conf")))
    assert failure.value.code == 66


def test_without_anything_it_is_localhost() -> None:
    assert resolve(Options()) == Target(host="localhost")
