"""Dynamic routes: what is bound here comes from there, and nothing else does."""

from __future__ import annotations

import pytest

from qpidha.broker.federation import FED_TAGS
from qpidha.federation.dynamic import Dynamic
from qpidha.model.errors import InvalidArgument
from tests.federation.world import World


def add(world: World, here: str, there: str, **more: object) -> None:
    """Let `here` pull from `there` what is bound to amq.topic here."""
    world.call(here, "declare_link", name=there, addresses=there, durable=bool(more.get("durable")))
    ends = {"source": "amq.topic", "destination": "amq.topic", "kind": "dynamic"}
    world.call(here, "declare_route", name=f"from-{there}", link=there, **{**ends, **more})
    world.run(2)


def bind(world: World, name: str, key: str, queue: str = "q", method: str = "bind") -> None:
    if queue not in world.nodes[name].broker.queues:
        world.call(name, "declare_queue", name=queue)
    world.call(name, method, exchange="amq.topic", queue=queue, key=key)
    world.run()


def keys(world: World, name: str) -> list[str]:
    """Return the keys that routes have bound at a broker."""
    return sorted(
        row["key"] for row in world.call(name, "list_bindings") if FED_TAGS in row["arguments"]
    )


def brokers(*names: str) -> World:
    world = World()
    for name in names:
        world.add(name, auth=False, federation_tag=f"tag-{name}")
    return world


@pytest.mark.parametrize("durable", [False, True])
def test_bindings_come_and_go_with_those_here(durable: bool) -> None:
    world = brokers("here", "there")
    bind(world, "here", "a.*")
    add(world, "here", "there", durable=durable)
    assert world.route("here", "from-there")["state"] == "operational", world.lines["here"]
    assert keys(world, "there") == ["a.*"]
    bind(world, "here", "b")
    assert keys(world, "there") == ["a.*", "b"]
    for number, key in enumerate(("a.x", "b", "c")):
        world.publish("there", "amq.topic", key, number)
    assert world.bodies("here", "q") == [0, 1]
    bind(world, "here", "a.*", method="unbind")
    assert keys(world, "there") == ["b"]
    world.publish("there", "amq.topic", "a.x", 3)
    assert world.bodies("here", "q") == [0, 1]
    world.call("here", "delete_route", name="from-there")
    world.run()
    assert not [name for name in world.nodes["there"].broker.queues if name != "q"]


def test_bindings_go_on_to_who_is_behind_and_messages_come_all_the_way() -> None:
    world = brokers("x", "y", "z")
    add(world, "y", "z")
    add(world, "x", "y")
    bind(world, "x", "k")
    world.run(2)
    assert keys(world, "y") == keys(world, "z") == ["k"]
    world.publish("z", "amq.topic", "k", 1)
    world.run(2)
    assert world.bodies("x", "q") == [1]
    bind(world, "x", "k", method="unbind")
    world.run(2)
    assert keys(world, "y") == keys(world, "z") == []


def test_routes_in_a_circle_do_not_keep_each_other_s_bindings() -> None:
    ring = ("x", "y", "z")
    world = brokers(*ring)
    for name, other in zip(ring, (*ring[1:], ring[0]), strict=True):
        add(world, name, other)
    bind(world, "x", "k")
    world.run(3)
    assert keys(world, "y") == keys(world, "z") == ["k"] and keys(world, "x") == []
    for name in ring:
        world.publish(name, "amq.topic", "k", name)
    world.run(3)
    assert sorted(world.bodies("x", "q")) == ["x", "y", "z"]
    bind(world, "x", "k", method="unbind")
    world.run(3)
    assert [keys(world, name) for name in ring] == [[], [], []]


def test_the_next_primary_goes_on_with_the_same_bindings() -> None:
    world = brokers("s")
    world.cluster("a", "b", "c", auth=False, ha_backup_timeout=1, federation_tag="cluster")
    bind(world, "a", "k")
    add(world, "a", "s", durable=True)
    assert keys(world, "s") == ["k"]
    world.kill("a")
    world.publish("s", "amq.topic", "k", 1)
    world.promote("b")
    bind(world, "b", "l")
    world.run(3)
    assert keys(world, "s") == ["k", "l"] and len(world.nodes["s"].broker.queues) == 1
    assert world.bodies("b", "q") == [1]


def test_a_route_takes_no_part_in_turns_in_which_no_binding_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns: list[Dynamic] = []
    turn = Dynamic.turn

    def counted(route: Dynamic) -> None:
        turns.append(route)
        turn(route)

    monkeypatch.setattr(Dynamic, "turn", counted)
    world = brokers("here", "there")
    add(world, "here", "there")
    bind(world, "here", "k")
    assert turns
    turns.clear()
    world.send("here", "q", *range(10))
    world.run(3)
    assert not turns
    bind(world, "here", "l")
    assert turns and keys(world, "there") == ["k", "l"]


def test_a_route_hears_that_its_exchange_is_gone_and_goes_on_with_the_next_one() -> None:
    world = brokers("here", "there")
    world.call("here", "declare_exchange", name="x", type="topic")
    add(world, "here", "there", destination="x")
    world.call("here", "delete_exchange", name="x")
    world.run(1)
    route = world.route("here", "from-there")
    assert route["state"] == "waiting" and "no exchange x" in str(route["last_error"])
    world.call("here", "declare_exchange", name="x", type="topic")
    world.call("here", "declare_queue", name="q")
    world.run(5)
    world.call("here", "bind", exchange="x", queue="q", key="k")
    world.run(1)
    assert keys(world, "there") == ["k"]
    world.publish("there", "amq.topic", "k", 1)
    assert world.bodies("here", "q") == [1]


def test_what_cannot_be_is_said() -> None:
    world = brokers("here")
    world.add("there", auth=False, announce_product="rabbitmq")
    add(world, "here", "there")
    route = world.route("here", "from-there")
    assert route["state"] == "waiting" and "needs qpidha" in str(route["last_error"])
    with pytest.raises(InvalidArgument, match="dynamic route pulls"):
        add(world, "here", "there", direction="push")
