"""Lists in each form that rows have: jsonl, csv and name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qpidha.cli.app import COMMANDS, GROUPS, LISTS
from tests.cli.conftest import STATUS, FakeBroker, Said
from tests.cli.test_messages import Run, address

__all__ = ["address"]


@pytest.fixture
def at(qpid_ha: Run, address: str) -> Iterator[Callable[..., Said]]:
    """Run a command on a broker that has two queues, a binding and a policy."""

    def run(*words: str) -> Said:
        return qpid_ha(*words, "-b", address)

    assert run("queue", "add", 'a "quoted", name').code == 0
    assert run("queue", "add", "b", "--argument", "colour=red").code == 0
    assert run("bind", "amq.topic", "b", "x").code == 0
    assert run("policy", "set", "p", "^b", "ttl=5").code == 0
    yield run
    for name in ('a "quoted", name', "b"):
        assert run("queue", "del", name).code == 0
    assert run("policy", "clear", "p").code == 0


def rows(said: Said) -> list[dict[str, str]]:
    assert (said.code, said.err) == (0, "")
    return list(csv.DictReader(io.StringIO(said.out)))


def test_a_row_is_a_line_of_json_with_all_its_fields(at: Callable[..., Said]) -> None:
    said = at("queue", "list", "-o", "jsonl")
    found = [json.loads(line) for line in said.out.splitlines()]
    assert found == json.loads(at("queue", "list", "-o", "json").out)["queues"]
    assert len(found) == 2


def test_csv_has_the_columns_of_the_table(at: Callable[..., Said]) -> None:
    found = rows(at("queue", "list", "-o", "csv"))
    assert [row["name"] for row in found] == ['a "quoted", name', "b"]
    assert found[0].keys() == {
        head.lower() for head in at("queue", "list").out.splitlines()[0].split()
    }
    assert (found[0]["messages"], found[0]["durable"]) == ("0", "false")
    (policy,) = rows(at("policy", "list", "-o", "csv"))
    assert json.loads(policy["definition"]) == {"ttl": 5}
    (binding,) = rows(at("exchange", "list", "--bindings", "-o", "csv"))
    assert (binding["queue"], binding["arguments"]) == ("b", "{}")
    assert "help" in rows(at("methods", "-o", "csv"))[0]


def test_names_are_one_a_line(at: Callable[..., Said]) -> None:
    assert at("queue", "list", "-o", "name").out == 'a "quoted", name\nb\n'
    assert "amq.topic" in at("exchange", "list", "-o", "name").out.split()
    said = at("exchange", "list", "--bindings", "-o", "name")
    assert said.code == 2 and "has a name" in said.err


def test_members_and_users(broker: FakeBroker, qpid_ha: Run, tmp_path: Path) -> None:
    assert qpid_ha("list", "-b", broker.socket, "-o", "name").out == "b1\n"
    (row,) = rows(qpid_ha("list", "-b", broker.socket, "-o", "csv"))
    assert (row["address"], row["in_sync"]) == (STATUS["address"], "true")
    users = tmp_path / "users"
    users.write_text("")
    assert qpid_ha("user", "list", "--users-file", str(users), "-o", "csv").out == (
        "name,mechanisms,iterations\n"
    )


def test_what_is_no_list_has_no_such_form(at: Callable[..., Said]) -> None:
    for words in (("status",), ("ping",), ("queue", "show", "b"), ("queue", "purge", "b")):
        for form in ("jsonl", "csv", "name"):
            said = at(*words, "-o", form)
            assert said.code == 2 and "is for lists" in said.err and not said.out
    assert at("queue", "list", "-o", "yaml").code == 2
    assert at("queue", "list", "-o", "csv", "--help").code == 0


def test_every_list_is_a_command() -> None:
    for name in LISTS:
        first, _, second = name.partition(" ")
        assert first in COMMANDS and bool(second) == (first in GROUPS)


def test_a_list_is_sorted_by_any_field_and_has_more_columns(at: Callable[..., Said]) -> None:
    def names(*words: str) -> list[str]:
        said = at("queue", "list", "-o", "name", *words)
        assert said.code == 0, said.err
        return said.out.splitlines()

    first, second = 'a "quoted", name', "b"
    assert at("send", first, "x").code == 0
    assert names("--sort", "messages") == names("--sort=bytes") == [second, first]
    assert names("--sort", "-messages") == [first, second]
    assert names("--sort", "uuid") in (names(), names()[::-1])
    said = at("queue", "list", "--sort", "mesages")
    assert said.code == 2 and "did you mean messages?" in said.err and not said.out
    assert "one of name, " in at("queue", "list", "--sort", "zzzz").err
    for empty in ("", "-"):
        said = at("queue", "list", "--sort", empty)
        assert said.code == 2 and "option --sort has an empty value" in said.err and not said.out
    wide, plain = at("queue", "list", "-o", "wide").out, at("queue", "list").out
    heads = wide.splitlines()[0].split()
    assert heads[: len(plain.splitlines()[0].split())] == plain.splitlines()[0].split()
    assert {"ENQUEUED", "DEQUEUED", "POLICY"} <= {*heads}
    rows = json.loads(at("queue", "list", "--sort", "-messages", "-o", "json").out)["queues"]
    assert [row["name"] for row in rows] == [first, second]
    assert at("queue", "purge", first).code == 0


@pytest.mark.parametrize("name", [name for name in LISTS if not name.startswith("user")])
def test_every_list_has_every_form(at: Callable[..., Said], name: str) -> None:
    headed = at(*name.split())
    assert headed.code == 0, headed.err
    bare = at(*name.split(), "--no-headers")
    assert len(bare.out.splitlines()) < len(headed.out.splitlines())
    for form in ("wide", "json", "jsonl", "csv", "name"):
        has_none = form == "name" and name == "events"  # What happened has no name.
        assert at(*name.split(), "-o", form).code == (2 if has_none else 0)
    csv_rows = [at(*name.split(), "-o", "csv", *more).out for more in ((), ("--no-headers",))]
    assert len(csv_rows[1].splitlines()) == len(csv_rows[0].splitlines()) - 1
