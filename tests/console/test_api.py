"""The reading API: what it shows of a broker, made of reading methods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from qpidha.client.admin import AdminSocket, LinkBroken
from qpidha.console.access import Access
from qpidha.console.api import make_app
from qpidha.console.looks import Watched
from qpidha.console.resources import CLUSTER, LEFT_OUT, PAGES, RESOURCES
from qpidha.management.methods import METHODS, Effect
from qpidha.management.parameters import Type
from tests.console.conftest import Pair
from tests.console.consoles import ask_app, member, status_of
from tests.patience import STATE

ODD = "odd/ name?&=%é"
NAMES = sorted([ODD, *(f"api-{number:02}" for number in range(25))])


@pytest.fixture(scope="module", autouse=True)
def queues(pair: Pair) -> Iterator[AdminSocket]:
    admin = AdminSocket(str(pair.place / "admin.sock"), STATE)
    for name in NAMES:
        admin.call("declare_queue", {"name": name})
    yield admin
    for name in NAMES:
        admin.call("delete_queue", {"name": name})
    admin.close()


def get(pair: Pair, path: str, status: int = 200) -> Any:
    answer = pair.console.ask(path if path.startswith("/") else f"/api/v1/{path}")
    assert answer.status == status, answer.text
    return json.loads(answer.text)


def test_every_reading_method_is_a_resource_or_left_out() -> None:
    reads = {method.name: method for method in METHODS if method.effect is Effect.READ}
    shown = {resource.method for resource in RESOURCES}
    assert shown | LEFT_OUT.keys() == reads.keys() and not shown & LEFT_OUT.keys()
    for resource in RESOURCES:
        known = {each.name: each.type is Type.NUMBER for each in reads[resource.method].parameters}
        for given in resource.given:
            assert known[given.name] is given.is_number, (resource.path, given.name)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.path)
def test_every_resource_is_what_the_method_says(
    pair: Pair, queues: AdminSocket, resource: Any
) -> None:
    query, params = "", {}
    if resource.method == "explain_policies":
        query, params = "?queue=api-01", {"queue": "api-01"}
    if resource.key:
        query, params = "?limit=1000", {"limit": 1000}
    found = get(pair, resource.path + query)
    told = queues.call(resource.method, params)
    if resource.is_list:
        assert found == {"items": told or [], "next": None}
    else:
        assert found.keys() == told.keys()


def test_a_list_has_pages(pair: Pair) -> None:
    assert {given.name for given in PAGES} == {"limit", "after", "fields"}
    names, path = [], "queues?limit=10&fields=messages"
    while path:
        page = get(pair, path)
        assert all(set(row) == {"name", "messages"} for row in page["items"])
        names += [row["name"] for row in page["items"]]
        path = page["next"]
    assert names == NAMES


def test_one_object_is_found_by_its_name(pair: Pair) -> None:
    assert get(pair, f"queues/{quote(ODD, safe='')}")["name"] == ODD
    assert get(pair, "exchanges/amq.direct")["type"] == "direct"
    assert get(pair, "exchanges/")["name"] == ""
    for path in ("queues/nothing", "queues/", "connections/99", "connections/x"):
        assert get(pair, path, 404)["hint"]


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("queues?limti=5", 400, "unknown parameter limti"),
        ("queues?limit=0", 400, "limit=0"),
        ("queues?limit=1001", 400, "limit=1001"),
        pytest.param(f"queues?limit={'9' * 5000}", 400, "limit=999", id="no number of Python"),
        ("queues?fields=mesages", 400, "a queue has no field mesages"),
        ("connections?after=x", 400, "parameter after is 'x'"),
        ("policies-of", 400, "name a queue or an exchange"),
        ("policies-of?queue=nothing", 404, "queue nothing"),
        ("queues?broker=b9", 404, "no broker b9 is watched"),
        ("nothing", 404, "Not Found"),
    ],
)
def test_what_is_wrong_is_refused_with_the_reason(
    pair: Pair, path: str, status: int, why: str
) -> None:
    body = get(pair, path, status)
    assert why.lower() in body["detail"].lower() and body["hint"]


def test_brokers_that_are_watched_are_listed(pair: Pair) -> None:
    (broker,) = get(pair, "brokers")["items"]
    assert broker["state"] == "standalone" and broker["place"].endswith("admin.sock")


class OfACluster:
    """A broker that says what a test says."""

    def __init__(self, status: dict[str, Any]) -> None:
        self.status = status

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        if not self.status:
            raise LinkBroken("nobody listens")
        return self.status

    def close(self) -> None:
        """Nothing is open."""


def test_a_cluster_is_shown_as_a_broker_sees_it() -> None:
    members = [member("1", "active"), member("2"), member("3", "catchup", in_sync=False)]
    about = dict.fromkeys(CLUSTER) | {"epoch": 4, "members": members}
    status = status_of("active") | about

    def asked(path: str, **said: Any) -> tuple[int, dict[str, Any]]:
        app = make_app([Watched("b1", OfACluster(said))], Access(), "c")
        code, text = asyncio.run(ask_app(app, f"/api/v1/{path}"))
        return code, json.loads(text)

    code, found = asked("cluster", **status)
    assert code == 200 and {name: found[name] for name in CLUSTER} == about
    assert (found["name"], found["asked"], found["synced"]) == ("c", "b1", False)
    assert "b3 is catchup, not in sync" in found["why"]
    for name in ("b2", "host2:5672", "2"):
        assert asked(f"cluster/members/{name}", **status) == (200, members[1])
    assert asked("cluster/members/b9", **status)[0] == 404
    assert asked("cluster")[0] == 503
