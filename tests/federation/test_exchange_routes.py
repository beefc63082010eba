"""Routes from exchanges: what matches a key comes, once, and in no circle."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from qpidha.amqp.server import attaching
from qpidha.broker.translation import filters_of
from qpidha.federation.push import Push
from qpidha.federation.trace import TRACE
from qpidha.model.message_view import build, message_annotations
from tests.amqp.controller import Controller
from tests.federation.world import World

NUMBERS = itertools.count(10_000_000)
"""Of connections that no broker of the world has."""


def a_pair(*, direction: str = "pull", durable: bool = False, key: str = "news.#") -> World:
    """Brokers `here` and `there`; what is published there to amq.topic comes to amq.topic here, or
    with `push` the other way round.
    """
    world = World()
    for name in ("here", "there"):
        world.add(name, auth=False)
        world.call(name, "declare_queue", name="q")
        world.call(name, "bind", exchange="amq.topic", queue="q", key="#")
    world.call("here", "declare_link", name="l", addresses="amqp://there:5672", durable=durable)
    add(world, direction=direction, durable=durable, key=key)
    return world


def add(world: World, broker: str = "here", **more: object) -> None:
    route = {"name": "r", "link": "l", "source": "amq.topic", "destination": "amq.topic"}
    world.call(broker, "declare_route", kind="exchange", **{**route, **more})
    world.run()


@pytest.mark.parametrize("durable", [False, True])
def test_a_route_pulls_what_matches_its_key(durable: bool) -> None:
    world = a_pair(durable=durable)
    world.publish("there", "amq.topic", "news.a", 1)
    world.publish("there", "amq.topic", "weather", 2)
    assert world.bodies("here", "q") == [1]
    assert world.bodies("there", "q") == [1, 2]


def test_a_route_pushes_what_matches_its_key() -> None:
    world = a_pair(direction="push")
    world.publish("here", "amq.topic", "news.a", 1)
    world.publish("here", "amq.topic", "weather", 2)
    assert world.bodies("there", "q") == [1]
    (queue,) = [name for name in world.nodes["here"].broker.queues if name.startswith("bridge")]
    assert world.bodies("here", queue) == []
    world.call("here", "delete_route", name="r")
    assert queue not in world.nodes["here"].broker.queues


def test_a_durable_route_misses_nothing_while_its_link_is_down() -> None:
    world = a_pair(durable=True)
    assert world.bodies("here", "q") == []
    world.nodes["here"].federation.stop()
    world.step("here")
    world.publish("there", "amq.topic", "news.a", 1, 2)
    world.run(3)
    assert world.bodies("here", "q") == [1, 2]


def test_a_route_that_is_deleted_leaves_nothing_at_the_other_end() -> None:
    world = a_pair(durable=True)
    assert len(world.nodes["there"].broker.queues) == 2
    world.call("here", "delete_link", name="l", with_routes=True)
    world.run()
    assert list(world.nodes["there"].broker.queues) == ["q"]


def test_each_message_comes_once_where_routes_lead_both_ways() -> None:
    world = a_pair(key="#")
    world.call("there", "declare_link", name="back", addresses="amqp://here:5672")
    add(world, "there", name="b", link="back", key="#")
    add(world, "here", name="p", key="#", direction="push")
    world.publish("here", "amq.topic", "k", "from here")
    world.publish("there", "amq.topic", "k", "from there")
    world.run(2)
    # What went over two routes in the same direction came by both.
    assert world.bodies("here", "q").count("from there") == 1
    assert world.bodies("here", "q").count("from here") == 1
    assert world.bodies("there", "q").count("from there") == 1


def test_a_circle_of_three_ends_where_it_began() -> None:
    world = World()
    ring = ("x", "y", "z")
    for name in ring:
        world.add(name, auth=False, federation_tag=f"tag-{name}")
        world.call(name, "declare_queue", name="q")
        world.call(name, "bind", exchange="amq.topic", queue="q", key="#")
    for name, other in zip(ring, (*ring[1:], ring[0]), strict=True):
        world.call(name, "declare_link", name="l", addresses=f"amqp://{other}:5672")
        add(world, name, key="#")
    world.publish("x", "amq.topic", "k", 1)
    world.run(3)
    assert [world.bodies(name, "q") for name in ring] == [[1], [1], [1]]
    (payload,) = world.payloads("y", "q")
    assert message_annotations(payload)[TRACE] == "tag-x,tag-z"


def test_what_one_excludes_does_not_come() -> None:
    world = a_pair(key="#")
    world.call("here", "delete_route", name="r")
    add(world, key="#", excludes="elsewhere, tagged")
    world.publish("there", "amq.topic", "k", 1, annotations={TRACE: "far,tagged"})
    world.publish("there", "amq.topic", "k", 2, annotations={TRACE: "far"})
    assert world.bodies("here", "q") == [2]
    assert world.route("here", "r")["excluded"] == 1


def test_what_was_here_stays_on_a_queue_that_a_route_pulls_from() -> None:
    world = a_pair()
    tag = world.nodes["here"].federation_tag
    options = {"name": "pull", "link": "l", "source": "own", "destination": "q"}
    world.call("there", "declare_queue", name="own")
    world.call("here", "declare_route", **options)
    world.run()
    world.send("there", "own", 1, annotations={TRACE: tag})
    world.send("there", "own", 2)
    world.run()
    assert (world.bodies("here", "q"), world.bodies("there", "own")) == ([2], [1])


def send_to(world: World, broker: str, address: str, payload: bytes, posts: bool = False) -> None:
    """Send a message as a client does, alone or in a transaction."""
    client = Controller(world.nodes[broker], number=next(NUMBERS))
    sender = client.sender(address, f"s{client}")
    if posts:
        world.nodes[broker].make_uuid = lambda: "ab" * 16
        control = client.control()
        transaction = client.declare(control)
        client.send(sender, payload, transaction=transaction)
        client.commit(control, transaction)
    else:
        client.send(sender, payload)
    client.turn()
    world.step(broker)
    world.settle()


@pytest.mark.parametrize("posts", [False, True])
@pytest.mark.parametrize("direction", ["pull", "push"])
@pytest.mark.parametrize("exchange", ["amq.topic", "amq.direct"])
def test_a_key_that_the_address_alone_says_comes_along(
    direction: str, exchange: str, posts: bool
) -> None:
    key = "news.#" if exchange == "amq.topic" else "news.a"
    world = a_pair(direction=direction, key="none")
    add(world, name="r2", source=exchange, destination=exchange, key=key, direction=direction)
    begin, end = ("there", "here") if direction == "pull" else ("here", "there")
    world.call(end, "declare_queue", name="mine")
    world.call(end, "bind", exchange=exchange, queue="mine", key="news.a")
    payload = build("1", properties={"message_id": "m"})
    send_to(world, begin, f"{exchange}/news.a", payload, posts)
    send_to(world, begin, f"{exchange}/news.a", build("2", properties={"subject": "b"}), posts)
    world.run()
    assert world.bodies(end, "mine") == ["1", "2"]
    came = world.payloads(end, "mine")[0]
    assert came.endswith(payload) and message_annotations(came)["x-routing-key"] == "news.a"


def test_who_sends_to_another_key_than_a_message_says_is_not_believed_by_a_route() -> None:
    world = a_pair(key="#")
    forged = {"x-routing-key": "secret"}
    payload = build(1, properties={"subject": "plain"}, annotations=forged)
    world.call("here", "declare_queue", name="secrets")
    world.call("here", "bind", exchange="amq.topic", queue="secrets", key="secret")
    send_to(world, "there", "amq.topic", payload)
    assert world.bodies("here", "secrets") == [] and world.bodies("here", "q") == [1]


def test_where_no_route_takes_it_a_message_stays_as_it_is_sent() -> None:
    world = a_pair(key="#")
    world.call("here", "delete_link", name="l", with_routes=True)
    world.run()
    payload = build(1)
    send_to(world, "there", "amq.topic/k", payload)
    assert world.payloads("there", "q") == [payload]


def test_a_route_pulls_what_matches_its_binding_arguments() -> None:
    world = a_pair(key="none")
    add(
        world,
        name="h",
        source="amq.match",
        destination="amq.fanout",
        arguments={"x-match": "all", "colour": "red", "size": 3},
    )
    world.call("here", "declare_queue", name="mine")
    world.call("here", "bind", exchange="amq.fanout", queue="mine", key="")
    for number, colour in enumerate(["red", "blue"]):
        found = {"colour": colour, "size": 3}
        send_to(world, "there", "amq.match", build(number, application_properties=found))
    assert world.bodies("here", "mine") == [0]


def test_a_source_that_does_not_take_binding_arguments_is_told_of() -> None:
    world = a_pair(key="none")
    add(world, name="h", arguments={"x-match": "all", "colour": "red"})
    assert world.route("here", "h")["state"] == "waiting"
    assert "legacy-amqp-headers-binding" in world.route("here", "h")["last_error"]


def test_a_source_that_passes_over_binding_arguments_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = a_pair(key="none", durable=True)
    monkeypatch.setattr(
        attaching, "filters_of", lambda *found: replace(filters_of(*found), in_effect={})
    )
    add(
        world,
        name="h",
        source="amq.match",
        destination="amq.fanout",
        arguments={"a": 1},
        durable=True,
    )
    assert world.route("here", "h")["state"] == "waiting"
    assert "binding arguments: bind a queue there" in world.route("here", "h")["last_error"]
    assert len(world.nodes["there"].broker.queues) == 2


@pytest.mark.parametrize("kind", ["exchange", "dynamic"])
def test_what_a_route_leaves_behind_is_named(kind: str) -> None:
    world = World()
    world.add("here", auth=False)
    world.add("there", auth=False)
    world.call("here", "declare_link", name="l", addresses="there", durable=True)
    ends = {"source": "amq.topic", "destination": "amq.topic"}
    world.call("here", "declare_route", name="r", link="l", kind=kind, durable=True, **ends)
    world.run()
    (queue,) = world.nodes["there"].broker.queues
    world.kill("there")
    world.run()
    world.call("here", "delete_route", name="r")
    world.step("here")
    lines = [each for each in world.lines["here"] if each.event_code == "QHA8203"]
    assert len(lines) == 1 and f" {queue} " in lines[0].text


def test_nothing_is_said_where_nothing_remains() -> None:
    world = a_pair(durable=True)
    world.call("here", "delete_link", name="l", with_routes=True)
    world.run()
    assert not [each for each in world.lines["here"] if each.event_code == "QHA8203"]


def test_a_route_that_waits_for_nothing_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_pair(direction="push")
    for number in range(20):
        add(world, name=f"r{number}", direction="push", key=f"news.{number}")
    world.run(3)
    looked: list[Push] = []
    turn = Push.turn

    def look(route: Push) -> None:
        looked.append(route)
        turn(route)

    monkeypatch.setattr(Push, "turn", look)
    for _ in range(10):
        world.step("here")
    assert looked == []
    world.call(
        "here", "delete_queue", name=world.nodes["here"].broker.federation.routes["r3"].queue
    )
    world.step("here")
    assert [route.name for route in looked] == ["r3"]
    assert "was deleted" in str(world.route("here", "r3")["last_error"])
