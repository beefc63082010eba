"""Connections, sessions and subscriptions of a real broker, and the end of a connection."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from qpidha.client.blocking import Client
from qpidha.client.errors import ClientError
from tests.cli.conftest import FakeBroker, Said
from tests.cli.test_messages import Run, address, at
from tests.patience import STATE
from tests.system.cluster import wait_for

__all__ = ["address", "at"]
ODD = 'a "b", \u00e4/c'


@pytest.fixture
def client(at: Run, address: str) -> Iterator[Client]:
    """A client that consumes from q and from a queue with an odd name."""
    assert at("queue", "add", ODD).code == 0
    with Client([address], timeout=STATE, reconnect_timeout=STATE) as client:
        client.receiver("q")
        client.receiver(ODD)
        client.sender("q").send("x")
        yield client
    assert at("queue", "del", ODD, "--force").code == 0


def documents(at: Run, command: str, name: str) -> list[dict[str, object]]:
    said = at(*command.split(), "list", "-o", "json")
    assert said.code == 0, said.err
    rows: list[dict[str, object]] = json.loads(said.out)[name]
    return rows


def connections_of(at: Run, queue: str) -> list[object]:
    """The connections that consume from a queue."""
    rows = documents(at, "subscription", "subscriptions")
    return [row["connection"] for row in rows if row["queue"] == queue]


def number_of(at: Run) -> int:
    """The id of the client's connection."""
    (number,) = connections_of(at, ODD)
    assert isinstance(number, int)
    return number


def test_what_clients_do_is_listed(at: Run, client: Client) -> None:
    number = number_of(at)
    (row,) = [one for one in documents(at, "connection", "connections") if one["id"] == number]
    assert row["kind"] == "client" and row["messages_in"] == 1 and row["sessions"] == 1
    assert isinstance(row["since_seconds"], float) and 0 <= row["since_seconds"] < STATE
    (session,) = [
        one for one in documents(at, "session", "sessions") if one["connection"] == number
    ]
    assert (session["senders"], session["receivers"]) == (1, 2)
    queues = {
        one["queue"]: one["unsettled"] for one in documents(at, "subscription", "subscriptions")
    }
    assert queues == {"q": 1, ODD: 0}


def test_lists_are_searched_and_say_when_nothing_is_found(at: Run, client: Client) -> None:
    said = at("subscription", "list", "\u00e4")
    assert len(said.out.splitlines()) == 2 and ODD in said.out
    for what in ("connection", "session", "subscription"):
        said = at(what, "list", "nothing like it")
        assert said.code == 1 and f"no {what}s with 'nothing like it'" in said.err


def test_a_client_whose_connection_is_closed_gets_again_what_it_had(
    at: Run, client: Client
) -> None:
    number = number_of(at)
    said = at("connection", "close", str(number))
    assert said.code == 0 and said.out == "" and f"connection {number} of " in said.err
    wait_for(
        lambda: [
            row
            for row in documents(at, "subscription", "subscriptions")
            if row["queue"] == "q" and row["connection"] != number and row["unsettled"] == 1
        ],
        what="the message at another connection of the client",
    )
    said = at("connection", "close", str(number))
    assert said.code == 1 and f"there is no connection {number}" in said.err
    assert "qpid-ha connection list" in said.err


def test_a_client_that_does_not_come_again_is_told_why_its_connection_was_closed(
    at: Run, address: str
) -> None:
    assert at("queue", "add", ODD).code == 0
    with Client([address], timeout=STATE, reconnect=False) as client:
        receiver = client.receiver(ODD)
        assert at("connection", "close", str(number_of(at)), "--reason", "too long").code == 0
        with pytest.raises(ClientError, match="too long"):
            receiver.receive(timeout=STATE)
    assert at("queue", "del", ODD, "--force").code == 0


def test_several_are_closed_and_those_that_are_not_there_are_named(
    broker: FakeBroker, qpid_ha: Callable[..., Said]
) -> None:
    broker.answers["close_connection"] = {"id": 3, "user": "app", "peer": "10.0.0.1:5"}
    said = qpid_ha("connection", "close", "3", "4", "-o", "json", "-b", broker.socket)
    assert json.loads(said.out)["closed"] == [broker.answers["close_connection"]] * 2
    assert [params["id"] for method, params in broker.asked if method == "close_connection"] == [
        3,
        4,
    ]
    broker.answers["close_connection"] = ValueError(
        {"condition": "amqp:not-found", "message": "there is no connection 3"}
    )
    said = qpid_ha("connection", "close", "3", "4", "-b", broker.socket)
    assert said.code == 1 and "there is no connection 3, 4" in said.err
    broker.answers["close_connection"] = ValueError(
        {"condition": "amqp:unauthorized-access", "message": "close_connection is for others"}
    )
    assert qpid_ha("connection", "close", "3", "-b", broker.socket).code == 77
    for words in (("0",), ("x",), ()):
        assert qpid_ha("connection", "close", *words, "-b", broker.socket).code == 2


def test_who_is_at_the_other_end_is_told_by_a_word(
    broker: FakeBroker, qpid_ha: Callable[..., Said]
) -> None:
    row = {"user": "u", "peer": "p", "container": "c", "process": "", "since_ns": 1}
    row |= dict.fromkeys(("sessions", "messages_in", "messages_out"), 0)
    broker.answers["list_connections"] = [
        {**row, "id": number, "admin": admin, "backup": backup}
        for number, admin, backup in (
            (-1, False, False),
            (1, False, True),
            (2, True, False),
            (3, 0, 0),
        )
    ]
    said = qpid_ha("connection", "list", "-o", "csv", "-b", broker.socket)
    assert [line.split(",")[1] for line in said.out.splitlines()] == [
        "kind",
        "outgoing",
        "backup",
        "admin",
        "client",
    ]
