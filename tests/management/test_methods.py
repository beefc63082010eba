"""The table of methods: whole, and the windows and the reference page are made from it."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.management.amqp_management import OPERATIONS, ManagementService, operations_of
from qpidha.management.methods import BY_NAME, METHODS, Method
from qpidha.management.requests import Requests
from qpidha.management.routes import ROUTES, Routes
from qpidha.management.schema import CLASSES, HABROKER
from qpidha.management.status_codes import status_of
from qpidha.model.errors import (
    NotAllowed,
    NotFound,
    NotImplementedHere,
    NotServing,
    QpidHaError,
    Unauthorized,
)
from qpidha.model.principal import Principal
from tests.management.builders import LOCAL, FakeConnection, FakeNode
from tests.management.reference_page import PAGE, with_tables


def test_the_reference_page_has_the_tables() -> None:
    text = PAGE.read_text()
    assert "### promote" in text and text == with_tables(text), (
        "run python -m tests.management.reference_page"
    )


def test_every_name_and_every_route_stands_once() -> None:
    assert len(BY_NAME) == len(METHODS)
    assert len(ROUTES) == sum(len(method.routes) for method in METHODS)
    assert len({(kind.type, name) for each in METHODS for kind, name in each.operations}) == sum(
        len(each.operations) for each in METHODS
    )


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_and_parameter_has_help_in_the_imperative(method: Method) -> None:
    assert method.help[0].isupper() and method.help.endswith(".") and method.answers
    names = [each.name for each in method.parameters]
    assert len(set(names)) == len(names)
    assert all(each.help and each.help[-1] != "." for each in method.parameters)


def test_every_translation_of_a_route_belongs_to_a_method_with_routes() -> None:
    node = FakeNode()
    translated = set(Routes(Requests(node), node)._translations)
    assert translated <= {method.name for method in METHODS if method.routes}


def test_operations_on_classes_are_listed_and_taken() -> None:
    assert operations_of(HABROKER)[0] == "READ" and "PROMOTE" in operations_of(HABROKER)
    for kind in CLASSES.values():
        for operation in operations_of(kind):
            assert operation == "READ" or operation in OPERATIONS or operation.lower() in BY_NAME


def ask(asked: str, **params: Any) -> Any:
    answers: list[Any] = []
    Requests(FakeNode()).call(asked, params, answers.append, principal=LOCAL)
    return answers[0]


def test_help_lists_all_methods_or_explains_one() -> None:
    assert [row["name"] for row in ask("help").result] == list(BY_NAME)
    (row,) = ask("help", method="promote").result
    assert row["parameters"][0]["name"] == "accept_loss"
    assert row["access"] == "update broker, access method name=promote"
    assert "did you mean promote?" in ask("help", method="promte").error.hint


def test_an_unknown_parameter_is_refused_with_the_nearest_one() -> None:
    error = ask("declare_queue", name="q", durabel=True).error
    assert "durabel" in error.text and error.hint.startswith("did you mean durable?")
    assert "parameters of ping: none" in ask("ping", verbose=True).error.hint


@pytest.mark.parametrize(
    "error, user, status",
    [
        (Unauthorized("no"), "", 401),
        (Unauthorized("no"), "anonymous", 401),
        (Unauthorized("no"), "ann", 403),
        (NotAllowed("no"), "ann", 403),
        (NotServing("no"), "ann", 503),
        (NotFound("no"), "ann", 404),
        (NotImplementedHere("no"), "ann", 501),
        (QpidHaError("no"), "ann", 500),
    ],
)
def test_status_codes(error: QpidHaError, user: str, status: int) -> None:
    assert status_of(error, Principal(user)) == status


def test_a_read_of_the_broker_asks_for_its_status_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node, asked = FakeNode(), 0
    status = node.status

    def counted() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return status()

    monkeypatch.setattr(node, "status", counted)
    for name in ("one", "two", "three"):
        node.broker.declare_queue(name)
    routes, answers = Routes(Requests(node), node), []
    routes.serve(
        "GET",
        "/queues",
        None,
        connection=FakeConnection(1),
        answer=lambda *answer: answers.append(answer),
    )
    assert len(answers[0][1]) == 3 and asked == 1
    for kind in ("broker", HABROKER.type):
        asked = 0
        found = CLASSES[kind]
        (entry,) = found.find(node)
        assert [each.read(entry, node) for each in found.properties] and asked == 1
    assert ManagementService(Requests(node), node).unanswered == 0
