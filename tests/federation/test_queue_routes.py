"""Routes from queues: messages go from one broker to another, and none is lost or left behind."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.model.errors import NotFound, RefusedRequest
from tests.federation.world import World


def a_pair(**settings: Any) -> World:
    """Two brokers, with a link from `here` to `there`, and a queue `q` on both."""
    world = World()
    for name in ("here", "there"):
        world.add(name, auth=False, **settings)
        world.call(name, "declare_queue", name="q")
    world.call("here", "declare_link", name="l", addresses="amqp://there:5672")
    world.run()
    assert world.link("here", "l")["state"] == "operational", world.lines["here"]
    return world


def pull(world: World, **more: object) -> None:
    options = {"name": "r", "link": "l", "source": "q", "destination": "q", **more}
    world.call("here", "declare_route", **options)
    world.run()


def test_a_route_pulls_what_is_on_a_queue_and_what_comes_to_it() -> None:
    world = a_pair()
    world.send("there", "q", 1, 2, 3)
    pull(world)
    assert world.bodies("here", "q") == [1, 2, 3]
    world.send("there", "q", 4)
    assert world.bodies("here", "q") == [1, 2, 3, 4]
    assert world.bodies("there", "q") == []
    row = world.call("here", "list_routes")[0]
    assert (row["state"], row["messages"], row["last_error"]) == ("operational", 4, "")


def test_a_route_pushes_what_is_on_a_queue_and_what_comes_to_it() -> None:
    world = a_pair()
    world.send("here", "q", 1, 2, 3)
    pull(world, direction="push")
    world.send("here", "q", 4)
    assert world.bodies("there", "q") == [1, 2, 3, 4]
    assert world.bodies("here", "q") == []
    row = world.call("here", "list_routes")[0]
    assert (row["state"], row["messages"], row["lag"]) == ("operational", 4, 0)


def test_a_route_needs_a_link_and_an_end_here() -> None:
    world = a_pair()
    with pytest.raises(NotFound, match="no link other"):
        pull(world, link="other")
    with pytest.raises(NotFound, match="no exchange nowhere"):
        pull(world, destination="nowhere")
    with pytest.raises(RefusedRequest, match="has 1 routes"):
        pull(world)
        world.call("here", "delete_link", name="l")
    world.call("here", "delete_link", name="l", with_routes=True)
    assert world.call("here", "list_routes") == world.call("here", "list_links") == []
    world.run()
    assert not list(world.nodes["there"].connections())


def test_what_is_not_there_is_tried_again_with_its_reason() -> None:
    world = a_pair()
    pull(world, source="later")
    assert "later" in world.route("here", "r")["last_error"]
    assert world.route("here", "r")["state"] == "waiting"
    world.call("there", "declare_queue", name="later")
    world.send("there", "later", "x")
    world.run(40)
    assert world.bodies("here", "q") == ["x"]
    assert world.route("here", "r")["last_error"] == ""


def test_messages_go_there_and_back_and_a_circle_ends_where_it_began() -> None:
    world = a_pair()
    world.call("there", "declare_queue", name="back")
    pull(world)
    pull(world, name="p", direction="push", destination="back")
    world.send("there", "q", 1, 2)
    world.run()
    assert world.bodies("there", "back") == [1, 2]
    world.call("there", "declare_link", name="l", addresses="here")
    for number, kind in enumerate(("push", "pull")):
        world.call("here", "declare_queue", name=kind)
        world.call("there", "declare_queue", name=kind)
        ends = {"link": "l", "source": kind, "destination": kind, "direction": kind}
        for name in ("here", "there"):
            world.call(name, "declare_route", name=kind, **ends)
        world.run()
        world.send("here", kind, number)
        world.run(3)
        found = [world.bodies(name, kind) for name in ("here", "there")]
        assert sorted(found) == [[], [number]], found


def test_statistics_add_up_links_and_routes() -> None:
    world = a_pair()
    pull(world)
    pull(world, name="p", direction="push", source="q", destination="nowhere")
    world.send("there", "q", 1, 2)
    world.run()
    found = world.call("here", "statistics")
    assert found["links"] == {"operational": 1}
    assert found["routes"] == {"operational": 1, "waiting": 1}
    assert (found["routed_messages"], found["route_lag"]) == ({"in": 2, "out": 0}, 2)
