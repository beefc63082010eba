"""What may be declared of links and routes, who may do it, and what is shown of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from qpidha.broker.federation import MOST_LINKS
from qpidha.federation.link import Link
from qpidha.federation.links import Links
from qpidha.management.acl_file import read
from qpidha.model.errors import QpidHaError, RefusedRequest, Unauthorized
from qpidha.model.principal import Principal
from qpidha.store.recovery import fold, snapshot_objects
from tests.federation.world import World

BAD_LINKS: list[tuple[dict[str, Any], str]] = [
    ({"addresses": ""}, "has 0 addresses"),
    ({"addresses": "amqp://h:0"}, "port 0"),
    ({"addresses": "h,,i"}, "0 addresses|an address is empty|cannot be read"),
    ({"addresses": ",".join(f"h{number}" for number in range(17))}, "17 addresses"),
    ({"addresses": "http://h"}, "cannot be read"),
    ({"addresses": "http://ann:hush@h"}, "http:// is not offered"),
    ({"addresses": "h", "mechanism": "MAGIC"}, "MAGIC is not known"),
]
BAD_ROUTES: list[tuple[dict[str, Any], str]] = [
    ({"kind": "tunnel"}, "no kind of routes tunnel"),
    ({"key": "k"}, "no binding key"),
    ({"direction": "sideways"}, "direction is 'sideways'"),
    ({"ack": 0}, "ack is 0"),
    ({"ack": 10, "credit": 5}, "more than credit"),
    ({"credit": 1_000_000}, "credit is 1000000"),
    ({"tag": "a,b"}, "a comma"),
    ({"excludes": ",".join(map(str, range(33)))}, "excludes 33 tags"),
    ({"destination": "both"}, "an exchange as well"),
    ({"durable": True}, "is not"),
    ({"direction": "push", "source": "gone"}, "no queue gone"),
    ({"direction": "push", "kind": "exchange", "source": "q"}, "no exchange q"),
]


@pytest.fixture
def world() -> World:
    world = World()
    world.add("here", auth=False)
    world.call("here", "declare_queue", name="q")
    world.call("here", "declare_queue", name="both")
    world.call("here", "declare_exchange", name="both", type="fanout")
    return world


@pytest.mark.parametrize("given, says", BAD_LINKS)
def test_a_link_that_cannot_be_is_refused(world: World, given: Any, says: str) -> None:
    with pytest.raises(QpidHaError) as caught:
        world.call("here", "declare_link", **{"name": "l", **given})
    assert re.search(says, f"{caught.value.text} {caught.value.reason}")
    assert world.call("here", "list_links") == []


@pytest.mark.parametrize("given, says", BAD_ROUTES)
def test_a_route_that_cannot_be_is_refused(world: World, given: Any, says: str) -> None:
    world.call("here", "declare_link", name="l", addresses="there")
    options = {"name": "r", "link": "l", "source": "s", "destination": "q", **given}
    with pytest.raises(QpidHaError, match=says):
        world.call("here", "declare_route", **options)
    assert world.call("here", "list_routes") == []


@pytest.mark.parametrize(
    "type_, given",
    [("headers", {"arguments": {"x-match": "some"}}), ("x-consistent-hash", {"key": "heavy"})],
)
def test_a_route_with_a_binding_that_cannot_be_leaves_no_queue(
    world: World, type_: str, given: dict[str, Any]
) -> None:
    world.call("here", "declare_link", name="l", addresses="there")
    world.call("here", "declare_exchange", name="x", type=type_)
    before = set(world.nodes["here"].broker.queues)
    route = {"link": "l", "source": "x", "destination": "q", "kind": "exchange", **given}
    with pytest.raises(QpidHaError):
        world.call("here", "declare_route", name="r", direction="push", **route)
    assert set(world.nodes["here"].broker.queues) == before
    assert world.call("here", "list_routes") == []


@pytest.mark.parametrize(
    "rules, route, is_allowed",
    [
        ("publish exchange name=x", {"destination": "x"}, True),
        ("publish exchange name=x routingkey=a", {"destination": "x"}, False),
        ("publish exchange name=y", {"destination": "y"}, False),
        ("publish exchange name=amq.default routingkey=q", {"destination": "q"}, True),
        (
            "publish exchange name=amq.default routingkey=both",
            {"destination": "both", "destination_type": "exchange"},
            False,
        ),
        (
            "publish exchange name=amq.default routingkey=both",
            {"destination": "both", "kind": "dynamic"},
            False,
        ),
        ("publish exchange name=both", {"destination": "both", "kind": "dynamic"}, True),
        ("consume queue name=q", {"source": "q", "direction": "push"}, True),
        ("consume queue name=both", {"source": "q", "direction": "push"}, False),
    ],
)
def test_a_route_does_here_only_what_its_user_may(
    world: World, rules: str, route: dict[str, Any], is_allowed: bool
) -> None:
    world.call("here", "declare_link", name="l", addresses="there")
    for name in "xy":
        world.call("here", "declare_exchange", name=name, type="topic")
    allowed = [rules, "create link", "access method name=declare_route"]
    lines = ["acl deny ann publish exchange name=y routingkey=secret"]
    lines += [*(f"acl allow ann {rule}" for rule in allowed), "acl deny all all", ""]
    world.nodes["here"].access.use(read("\n".join(lines))[0])
    answers: list[Any] = []
    world.nodes["here"].requests.call(
        "declare_route",
        {"name": "r", "link": "l", "source": "s", "destination": "there", **route},
        answers.append,
        principal=Principal("ann", address="192.0.2.1:5"),
    )
    world.step("here")
    (answer,) = answers
    if is_allowed:
        assert answer.error is None, answer.error
    else:
        assert isinstance(answer.error, Unauthorized), answer


def test_the_same_again_changes_nothing_and_another_route_is_refused(world: World) -> None:
    route = {"name": "r", "link": "l", "source": "s", "destination": "q"}
    for _ in range(2):
        world.call("here", "declare_link", name="l", addresses="amqps://there,tcp:[::1]:5")
        world.call("here", "declare_route", **route)
    (link,) = world.call("here", "list_links")
    assert link["addresses"] == ["ssl:there:5671", "[::1]:5"]
    with pytest.raises(RefusedRequest, match="another one"):
        world.call("here", "declare_route", **{**route, "source": "t"})
    world.call("here", "declare_link", name="l", addresses="elsewhere", username="u")
    (link,) = world.call("here", "list_links")
    assert (link["addresses"], link["username"]) == (["elsewhere:5672"], "u")


def test_no_more_than_so_many(world: World) -> None:
    for number in range(MOST_LINKS):
        world.call("here", "declare_link", name=f"l{number}", addresses="there")
    with pytest.raises(RefusedRequest, match=f"{MOST_LINKS} links"):
        world.call("here", "declare_link", name="more", addresses="there")


def test_a_password_is_shown_nowhere(world: World) -> None:
    world.call("here", "declare_link", name="l", addresses="amqp:ann/hush@there")
    world.call("here", "declare_link", name="m", addresses="there", username="u", password="hush")
    world.run(3)
    node = world.nodes["here"]
    shown = [
        *(repr(world.call("here", method)) for method in ("list_links", "list_routes", "status")),
        *(f"{line.text} {line.fields} {line.about}" for line in world.lines["here"]),
        *(repr(record) for record in node.broker.federation.links.values()),
    ]
    assert not [text for text in shown if "hush" in text]
    assert node.broker.federation.links["l"].password == "hush", "for the next primary"


def test_the_login_of_an_address_is_percent_encoded(world: World) -> None:
    there = "amqp://an%3An:p%40s%2Fs%2C@there"
    world.call("here", "declare_link", name="l", addresses=there)
    link = world.nodes["here"].broker.federation.links["l"]
    assert (link.addresses, link.username, link.password) == (["there:5672"], "an:n", "p@s/s,")
    with pytest.raises(RefusedRequest, match="cannot be read") as refused:
        world.call("here", "declare_link", name="m", addresses="amqp://ann:hush%@there")
    assert "%25" in refused.value.reason
    assert "hush" not in f"{refused.value} {refused.value.reason} {refused.value.hint}"


def test_only_administrators_may_declare_without_an_acl_file(world: World) -> None:
    answers: list[Any] = []
    world.nodes["here"].requests.call(
        "declare_link",
        {"name": "l", "addresses": "there"},
        answers.append,
        principal=Principal("ann", address="192.0.2.1:5"),
    )
    assert isinstance(answers[0].error, Unauthorized)


def test_a_snapshot_has_all_of_it(world: World) -> None:
    cluster = World()
    cluster.cluster("a", "b", auth=False)
    cluster.call("a", "declare_queue", name="q", durable=True)
    cluster.call("a", "declare_link", name="l", addresses="there", durable=True)
    route = {"name": "r", "link": "l", "source": "s", "destination": "q", "durable": True}
    cluster.call("a", "declare_route", **route)
    cluster.run()
    first, second = (cluster.nodes[name].broker.federation for name in "ab")
    assert first.links == second.links and first.routes == second.routes and first.routes
    copy = cluster.nodes["b"].broker
    chunks = list(snapshot_objects(cluster.nodes["a"].broker))
    copy.reset()
    assert not copy.federation.links
    for chunk in chunks:
        fold(copy, chunk, is_snapshot=True)
    assert (copy.federation.links, copy.federation.routes) == (first.links, first.routes)


def test_a_link_needs_create_link_at_its_other_end_where_there_is_an_acl() -> None:
    world = World()
    there = world.add("there", auth=False)
    world.add("here", auth=False)
    there.access.use(read("acl deny all create link\nacl allow all all\n")[0])
    world.call("here", "declare_link", name="l", addresses="there")
    world.run(2)
    link = world.link("here", "l")
    assert link["state"] == "waiting" and "link" in str(link["last_error"]), link
    there.access.use(read("acl allow all all\n")[0])
    world.run(10)
    assert world.link("here", "l")["state"] == "operational"


def test_a_route_that_is_declared_or_deleted_costs_nothing_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        world.call("here", "declare_link", name=f"l{number}", addresses="there")
        world.call("here", "declare_queue", name=f"q{number}")
        route = {"source": "q", "destination": f"q{number}"}
        world.call("here", "declare_route", name=f"r{number}", link=f"l{number}", **route)
    seen: list[str] = []
    compare, set_route = Links._compare, Link.set_route

    def comparing(self: Links, name: str, routes: set[str]) -> None:
        seen.append(name)
        compare(self, name, routes)

    def setting(self: Link, name: str, record: Any) -> None:
        seen.append(name)
        set_route(self, name, record)

    monkeypatch.setattr(Links, "_compare", comparing)
    monkeypatch.setattr(Link, "set_route", setting)
    world.run(1)
    assert seen == []
    route = {"source": "q", "destination": "q3"}
    world.call("here", "declare_route", name="more", link="l3", **route)
    assert seen == ["l3", "more"]
    world.call("here", "delete_route", name="more")
    assert seen == ["l3", "more"] * 2
    world.call("here", "delete_link", name="l4", with_routes=True)
    assert seen[4:] == ["l4", "r4"]
    assert [each.name for each in world.nodes["here"].broker.federation.routes_of("l3")] == ["r3"]
    assert set(world.nodes["here"].federation.by_name["l3"].routes) == {"r3"}
