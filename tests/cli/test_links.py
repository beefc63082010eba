"""`qpid-ha link` and `qpid-ha route`, against a broker alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Said
from tests.cli.test_messages import Run, address

__all__ = ["address"]


@pytest.fixture
def at(qpid_ha: Run, address: str) -> Callable[..., Said]:
    return lambda *words: qpid_ha(*words, "-b", address)


def test_links_and_routes_are_added_listed_and_deleted(
    at: Callable[..., Said], tmp_path: Path
) -> None:
    password = tmp_path / "p"
    password.write_text("hush\n")
    login = ("--username", "ann", "--password-from", str(password))
    assert at("queue", "add", "orders").code == 0
    said = at("link", "add", "paris", "amqps://127.0.0.1:1,127.0.0.1:2", *login)
    assert (said.code, said.out, said.err) == (0, "", "")
    assert at("route", "add", "in", "paris", "orders", "orders").code == 0
    assert at("route", "add", "out", "paris", "orders", "there", "--push").code == 0
    (link,) = json.loads(at("link", "list", "-o", "json").out)["links"]
    assert link["addresses"] == ["ssl:127.0.0.1:1", "127.0.0.1:2"]
    assert (link["username"], link["routes"]) == ("ann", 2)
    routes = json.loads(at("route", "list", "-o", "json").out)["routes"]
    assert [(row["name"], row["direction"], row["lag"]) for row in routes] == [
        ("in", "pull", None),
        ("out", "push", 0),
    ]
    assert "paris" in at("link", "list").out and "orders" in at("route", "list").out
    said = at("link", "del", "paris")
    assert said.code == 1 and "has 2 routes" in said.err
    assert at("route", "del", "out").code == 0
    assert at("link", "del", "paris", "--with-routes").code == 0
    assert "no links" in at("link", "list").err and "no routes" in at("route", "list").err
    assert at("route", "del", "out").code == 1
    assert at("queue", "del", "orders").code == 0


def test_binding_arguments_of_a_route_are_given_one_by_one(at: Callable[..., Said]) -> None:
    assert at("queue", "add", "red").code == 0
    assert at("link", "add", "rome", "127.0.0.1:1").code == 0
    headers = ("--argument", "x-match=all", "--argument", "colour=red", "--argument", "size=3")
    ends = ("rome", "amq.match", "red", "--kind", "exchange")
    said = at("route", "add", "reds", *ends, *headers)
    assert (said.code, said.err) == (0, "")
    (route,) = json.loads(at("route", "list", "-o", "json").out)["routes"]
    assert route["arguments"] == {"x-match": "all", "colour": "red", "size": 3}
    said = at("route", "add", "reds", *ends, "--argument", "colour")
    assert said.code == 2 and "--argument 'colour' is not KEY=VALUE" in said.err
    said = at("route", "add", "blues", "rome", "red", "red", "--argument", "colour=blue")
    assert said.code == 1 and "arguments" in said.err
    assert at("link", "del", "rome", "--with-routes").code == 0
    assert at("queue", "del", "red").code == 0
