"""Definitions of RabbitMQ and Qpid: each key of what their tools write is kept, mapped, ignored or
left out, and what is taken is what a broker takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qpidha.model.errors import InvalidArgument
from qpidha.tools import qpid_definitions, rabbitmq_definitions
from qpidha.tools.definitions import FAILED, Present, carry_out, planned
from qpidha.tools.foreign import Note, Translation, Verdict
from tests.tools.test_definitions import Broker

EXPORTS = Path(__file__).parent / "exports"
OLD = (EXPORTS / "rabbitmq-3.13.json").read_text()
NEW = (EXPORTS / "rabbitmq-4.1.json").read_text()
QPID = (EXPORTS / "qpid-config.txt").read_text()
SAID_BY_NAME = {"name", "vhost", "source", "destination", "destination_type", "routing_key"}
"""Keys that are in the name of what they are of, or choose it."""


def told(found: Translation, of: str) -> dict[str, tuple[str, str]]:
    return {note.key: (note.verdict.value, note.reason) for note in found.notes if note.of == of}


def values(found: Translation) -> dict[str, dict[str, Any]]:
    return {one.title: one.values for one in found.definitions}


def left_out(found: Translation) -> list[Note]:
    return [note for note in found.notes if note.verdict is Verdict.LEFT_OUT]


def test_row_164_an_export_of_3_13() -> None:
    found = rabbitmq_definitions.read(OLD)
    policies = {name: each for name, each in values(found).items() if "policy" in name}
    assert {name: each["definition"] for name, each in policies.items()} == {
        "policy all": {"ha-mode": "all"},
        "policy two": {"ha-mode": "all"},
        "policy nodes": {"ha-mode": "all", "message-ttl": 60000},
        "policy unsent": {"alternate-exchange": "unsent"},
        "policy strange": {"max-length": 7},
        "operator policy cap": {"max-length": 1000000},
    }
    assert told(found, "policy two")["ha-mode"][0] == "mapped"
    assert "exactly 2" in told(found, "policy two")["ha-mode"][1]
    assert '["rabbit@a", "rabbit@b"]' in told(found, "policy nodes")["ha-mode"][1]
    for key in ("ha-params", "queue-mode"):
        assert told(found, "policy two")[key][0] == "ignored"
    assert told(found, "queue orders")["x-max-length"] == (
        "mapped",
        "qpid.max_count=100, qpid.policy_type=ring",
    )
    quorum = values(found)["queue orders.quorum"]["arguments"]
    assert quorum == {"x-queue-type": "quorum", "x-delivery-limit": -1}, "3.x has no limit"
    assert values(found)["exchange inner"]["alternate"] == "unsent"
    assert {(note.of, note.key) for note in left_out(found)} == {
        ("exchange later", ""),
        ("queue tail", ""),
        ("queue amq.gen-x", ""),
        ("binding later -> orders '#'", ""),
        ("binding events -> tail '#'", ""),
        ("binding amq.match -> urgent ''", ""),
        ("policy federated", ""),
        ("policy strange", "max-lenght"),
        ("parameter shovel copy", ""),
    }
    assert all(note.reason for note in found.notes if note.verdict is not Verdict.KEPT)


def test_row_164_an_export_of_4_1_with_two_virtual_hosts() -> None:
    with pytest.raises(InvalidArgument, match="2 virtual hosts: /, shop"):
        rabbitmq_definitions.read(NEW)
    found = rabbitmq_definitions.read(NEW, "shop")
    limits = {
        name: each["arguments"].get("x-delivery-limit")
        for name, each in values(found).items()
        if name.startswith("queue")
    }
    assert limits == {"queue orders": 20, "queue one": -1, "queue plain": None, "queue new": 20}
    assert told(found, "virtual host /")[""][0] == "ignored"
    assert told(found, "file")["tomorrow"][0] == "left out"
    assert told(found, "queue new")["x-of-tomorrow"][0] == "left out"
    assert "streams" in told(found, "policy old")[""][1]
    assert "exchange near" in {note.of for note in left_out(found)}
    assert [*values(rabbitmq_definitions.read(NEW, "/"))] == ["queue orders"]
    with pytest.raises(InvalidArgument, match="nothing of the virtual host none"):
        rabbitmq_definitions.read(NEW, "none")


@pytest.mark.parametrize("text", [OLD, NEW])
def test_no_key_of_an_object_goes_without_a_word(text: str) -> None:
    found = rabbitmq_definitions.read(text, "shop" if text is NEW else "")
    notes: dict[str, set[str]] = {}
    for note in found.notes:
        notes.setdefault(note.of, set()).add(note.key)
    content = json.loads(text)
    for section, noun in (("queues", "queue"), ("exchanges", "exchange"), ("policies", "policy")):
        for row in content[section]:
            keys = notes.get(f"{noun} {row['name']}", set())
            if row["vhost"] == "/" and text is NEW or "" in keys:
                continue  # It is said of all of it.
            if not row.get("internal"):
                row.pop("internal", None)
            inner = {**row.pop("arguments", {}), **row.pop("definition", {})}
            assert {*row, *inner} - SAID_BY_NAME <= keys, row
    for key in content:
        assert not content[key] or key in notes["file"] or key in rabbitmq_definitions.LISTS


@pytest.mark.parametrize(
    "read",
    [
        lambda: rabbitmq_definitions.read(OLD),
        lambda: rabbitmq_definitions.read(NEW, "shop"),
        lambda: qpid_definitions.read(QPID),
    ],
    ids=["3.13", "4.1", "qpid"],
)
def test_what_is_taken_is_taken_by_a_broker_and_unchanged_the_second_time(
    read: Callable[[], Translation],
) -> None:
    broker = Broker()
    for outcome in ("created", "unchanged"):
        steps = planned(read().definitions, Present.ask(broker.call))
        carry_out(steps, broker.call)
        assert not [step for step in steps if step.outcome in FAILED]
        assert {step.outcome.value for step in steps} == {outcome}


def test_a_definition_as_a_list_of_pairs_is_read_as_the_map_that_it_is() -> None:
    value = {"pattern": ".*", "definition": [["max-length", 9]], "priority": 0}
    row = {"component": "operator_policy", "name": "cap", "vhost": "/", "value": value}
    text = json.dumps({"rabbit_version": "3.10.8", "parameters": [row]})
    found = rabbitmq_definitions.read(text)
    assert values(found)["operator policy cap"]["definition"] == {"max-length": 9}


def test_an_export_of_one_virtual_host_does_not_name_it() -> None:
    content = json.loads(OLD)
    for rows in content.values():
        for row in rows if isinstance(rows, list) else []:
            row.pop("vhost", None)
    found = rabbitmq_definitions.read(json.dumps(content))
    assert values(found).keys() == values(rabbitmq_definitions.read(OLD)).keys()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{}", "none of the lists of RabbitMQ"),
        ("[]", "no JSON object"),
        ('{"queues": {}}', "queues is no list"),
        ('{"queues": [3]}', r"queues\[0\]: it is no JSON object"),
        ('{"queues": [{}]}', r"queues\[0\]: name is not there"),
        ('{"queues": [{"name": "q", "durable": "yes"}]}', "durable is"),
        ('{"policies": [{"name": "q", "definition": [1]}]}', "is no map"),
        ('{"parameters": [{"name": "c", "component": "operator_policy", "value": 1}]}', "no map"),
    ],
)
def test_what_is_no_export_is_refused(text: str, what: str) -> None:
    with pytest.raises(InvalidArgument, match=what) as refused:
        rabbitmq_definitions.read(text)
    assert refused.value.hint


WRONG: tuple[Any, ...] = (
    *(None, True, -1, 1.5, 10**30, "", "x" * 300, "\u202e", "\0", "\ud800"),
    *([], [1], {}, {"a": {"b": [None]}}, [["a"]]),
)


def places(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Name every place of a document."""
    yield above
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*above, key))


def spoilt(value: Any, place: tuple[str | int, ...], wrong: Any) -> Any:
    """Return a document with something else in one place."""
    if not place:
        return wrong
    copy = value.copy()
    copy[place[0]] = spoilt(value[place[0]], place[1:], wrong)
    return copy


def refusal(read: Callable[..., Translation], *given: str) -> str:
    """Have a broker take what is read; return why it is refused."""
    try:
        steps = planned(read(*given).definitions, Present.ask((broker := Broker()).call))
    except InvalidArgument as refused:
        assert refused.text and refused.hint
        return refused.text
    carry_out(steps, broker.call)
    return ""


@pytest.mark.parametrize(("text", "vhost"), [(OLD, ""), (NEW, "shop")], ids=["3.13", "4.1"])
@pytest.mark.parametrize("turn", range(3))
def test_whatever_is_in_a_file_is_taken_or_refused(text: str, vhost: str, turn: int) -> None:
    content = json.loads(text)
    outcomes = set()
    for number, place in enumerate(places(content), turn * 5):
        wrong = json.dumps(spoilt(content, place, WRONG[number % len(WRONG)]))
        outcomes.add(bool(refusal(rabbitmq_definitions.read, wrong, vhost)))
    for end in range(turn, len(text), 389):
        assert refusal(rabbitmq_definitions.read, text[:end], vhost)
    assert outcomes == {True, False}


def test_a_list_that_is_cut_off_or_spoilt_is_taken_or_refused() -> None:
    outcomes = {bool(refusal(qpid_definitions.read, QPID[:end])) for end in range(0, len(QPID), 29)}
    lines = QPID.splitlines()
    for number, line in enumerate(lines):
        words = line.split()
        for place in range(len(words)):
            word = ("", "--", "--x=", '"', "\0", "=", "9" * 40)[(number + place) % 7]
            spoilt_line = " ".join([*words[:place], word, *words[place + 1 :]])
            text = "\n".join([*lines[:number], spoilt_line, *lines[number + 1 :]])
            outcomes.add(bool(refusal(qpid_definitions.read, text)))
    assert outcomes == {True, False}


def test_of_two_objects_with_one_name_the_second_is_left_out_by_its_place() -> None:
    queue = {"name": "q", "durable": True, "auto_delete": False, "arguments": {}}
    other = {**queue, "durable": False}
    found = rabbitmq_definitions.read(json.dumps({"queues": [queue, queue, other]}))
    assert [one.where for one in found.definitions] == ["queues[0]"]
    assert [(note.of, note.verdict) for note in found.notes if "queues[0]" in note.reason] == [
        ("queue q (queues[1])", Verdict.IGNORED),
        ("queue q (queues[2])", Verdict.LEFT_OUT),
    ]


# -- Qpid -----------------------------------------------------------------------------------------


def test_what_qpid_config_prints() -> None:
    found = qpid_definitions.read(QPID)
    assert values(found)["exchange events"] == {
        "name": "events",
        "type": "topic",
        "durable": True,
        "auto_delete": False,
        "alternate": "unsent",
        "arguments": {"qpid.replicate": "all"},
    }
    assert values(found)["queue orders"] == {
        "name": "orders",
        "durable": True,
        "auto_delete": False,
        "alternate": "unsent",
        "arguments": {
            "qpid.max_size": 1000000,
            "qpid.max_count": 500,
            "qpid.policy_type": "ring-strict",
            "colour": "red",
        },
    }
    for key in ("qpid.file_size", "qpid.file_count", "qpid.flow_stop_count", "qpid.ha-uuid"):
        assert told(found, "queue orders")[key][0] == "ignored"
    assert values(found)["queue disk"]["arguments"] == {"qpidha.memory": 5000}
    assert values(found)["queue old prices"]["auto_delete"]
    assert values(found)["binding with spaces -> old prices 'k'"]["arguments"] == {
        "x-match": "all",
        "size": 3,
    }
    assert told(found, "exchange events")["qpid.msg_sequence"][0] == "left out"
    assert {note.of for note in left_out(found) if not note.key} == {
        "exchange documents",
        "exchange hidden",
        "binding events -> orders 'fed'",
        "binding documents -> orders 'a'",
        "binding hidden -> orders ''",
    }
    assert "xml" in told(found, "exchange documents")[""][1]
    assert "add what qpid-config exchanges prints" in told(found, "exchange hidden")[""][1]
    assert told(found, "queue qmfc-v2-host.4711.1")[""][0] == "ignored"
    again = [note for note in found.notes if "it is the same as line" in note.reason]
    assert [note.of.partition(" (")[0] for note in again] == ["binding events -> orders 'order.*'"]


def test_commands_of_qpid_config_make_the_same() -> None:
    found = qpid_definitions.read(
        """
# how the cluster was made
qpid-config -b 10.0.0.1:5672 add exchange topic events --durable --alternate-exchange unsent
$ qpid-config add exchange fanout unsent
/usr/bin/qpid-config add queue orders --durable --max-queue-count 7 --argument "colour=dark red"
qpid-config add queue prices --order lvq --limit-policy=none
qpid-config bind events orders 'order.*'
qpid-config bind amq.match orders k all colour=red, size=3
"""
    )
    assert [one.title for one in found.definitions] == [
        "exchange unsent",
        "exchange events",
        "queue orders",
        "queue prices",
        "binding events -> orders 'order.*'",
        "binding amq.match -> orders 'k'",
    ]
    assert values(found)["queue orders"]["arguments"] == {"qpid.max_count": 7, "colour": "dark red"}
    assert values(found)["binding amq.match -> orders 'k'"]["arguments"] == {
        "x-match": "all",
        "colour": "red",
        "size": 3,
    }
    assert not left_out(found)


def test_an_option_that_is_not_known_is_left_out_by_its_name() -> None:
    found = qpid_definitions.read("qpid-config add queue q --start-replica=host --nothing")
    assert {note.key for note in left_out(found)} == {"--start-replica=host", "--nothing"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "nothing of qpid-config"),
        ("Total Exchanges: 5", "line 1: 'Total Exchanges: 5' is no line"),
        ("Objects of type 'queue'", "line 1: .* is no line"),
        ("qpid-config del queue q", "adds nothing"),
        ("qpid-config add queue", "adds nothing"),
        ("qpid-config add queue 'q", "cannot be read"),
        ("Exchange 'e' (topic)\n    bind [a] => q {no map}", "line 2: .* is no map"),
    ],
)
def test_what_qpid_config_does_not_print_is_refused_with_its_line(text: str, what: str) -> None:
    with pytest.raises(InvalidArgument, match=what) as refused:
        qpid_definitions.read(text)
    assert refused.value.hint
