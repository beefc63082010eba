"""Routes from queues: messages go from one broker to another, and none is lost or left behind."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.links import LinkEnd
from qpidha.amqp.peer.terminus import SETTLED, UNSETTLED
from qpidha.amqp.server.outgoing import OutgoingLink
from qpidha.federation.depths import Depths
from qpidha.federation.management import Management
from qpidha.management.port import Reply
from qpidha.model.errors import LimitExceeded, NotFound, RefusedRequest, Unauthorized
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


def test_a_route_that_pulls_asks_for_messages_that_it_settles() -> None:
    world = a_pair()
    pull(world)
    (there,) = world.nodes["there"].broker.queues["q"].consumers
    assert isinstance(there, OutgoingLink) and there.end is not None
    assert there.end.remote_sender_mode() == UNSETTLED


def test_a_route_takes_nothing_of_a_source_that_sends_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = a_pair()
    monkeypatch.setattr(LinkEnd, "remote_sender_mode", lambda end: SETTLED)
    pull(world)
    route = world.route("here", "r")
    assert route["state"] == "waiting" and "sends messages settled" in str(route["last_error"])
    world.send("there", "q", 1)
    assert world.bodies("there", "q") == [1] and world.bodies("here", "q") == []
    monkeypatch.undo()
    world.run(10)
    assert world.bodies("here", "q") == [1]


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


def test_the_lag_of_a_route_that_pulls_is_what_waits_at_its_source() -> None:
    world = a_pair()
    world.call("here", "declare_queue", name="small", arguments={"qpid.max_count": 2})
    pull(world, destination="small")
    world.run(4)
    assert world.route("here", "r")["lag"] == 0
    world.send("there", "q", *range(7))
    world.run(8)
    assert world.route("here", "r")["lag"] == 5
    assert world.call("here", "list_routes")[0]["lag"] == 5
    assert world.call("here", "statistics")["route_lag"] == 5
    world.reset("here", "there")
    assert world.route("here", "r")["lag"] is None
    world.run(8)
    assert world.route("here", "r")["lag"] == 5
    world.call("here", "purge_queue", name="small")
    world.call("there", "purge_queue", name="q")
    world.run(8)
    assert world.route("here", "r")["lag"] == 0


@pytest.mark.parametrize("kind", ["exchange", "dynamic"])
@pytest.mark.parametrize("durable", [False, True])
def test_the_lag_of_a_route_from_an_exchange_is_that_of_its_queue_there(
    kind: str, durable: bool
) -> None:
    world = a_pair()
    arguments = {"qpid.max_count": 2}
    world.call("here", "declare_queue", name="small", arguments=arguments)
    world.call("here", "bind", exchange="amq.topic", queue="small", key="k")
    world.call("here", "declare_link", name="l", addresses="amqp://there:5672", durable=durable)
    more = {"key": "k"} if kind == "exchange" else {}
    ends = {"source": "amq.topic", "destination": "amq.topic", "kind": kind, "durable": durable}
    pull(world, **ends, **more)
    world.run(2)
    world.publish("there", "amq.topic", "k", *range(7))
    world.run(8)
    assert world.route("here", "r")["lag"] == 7 - len(world.bodies("here", "small")) == 5


def test_a_lag_that_is_not_told_is_unknown_and_asked_for_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = a_pair()
    pull(world)
    world.run(4)
    assert world.route("here", "r")["lag"] == 0
    asked = []

    def refuse(*given: object, **more: object) -> None:
        asked.append(given)
        raise Unauthorized("not for you")

    monkeypatch.setattr(type(world.nodes["there"].requests), "call", refuse)
    world.run(200)
    row = world.route("here", "r")
    assert (row["lag"], row["state"], row["last_error"]) == (None, "operational", "")
    assert 1 <= len(asked) <= 5
    monkeypatch.undo()
    world.send("there", "q", 1)
    assert world.bodies("here", "q") == [1]
    world.run(200)
    assert world.route("here", "r")["lag"] == 0


@pytest.mark.parametrize("back", [0, 1])
def test_where_no_management_is_asked_the_lag_is_what_is_available(
    monkeypatch: pytest.MonkeyPatch, back: int
) -> None:
    """Messages that went back there may be counted in that, or not."""
    monkeypatch.setattr(Depths, "start", lambda self: None)
    world = a_pair()
    world.call("here", "declare_queue", name="small", arguments={"qpid.max_count": 1})
    pull(world, destination="small")
    world.send("here", "small", *range(back))
    world.send("there", "q", 1)
    assert len(world.bodies("there", "q")) == back
    assert world.route("here", "r")["lag"] is None
    consumer: Any
    (consumer,) = world.nodes["there"].broker.queues["q"].consumers
    for available in (42, 0, None):
        consumer.end.tell({}, available)
        consumer.connection.wake()
        world.step("there")
        world.settle()
        lag = None if available is None else max(available, back)
        assert world.route("here", "r")["lag"] == lag


def test_a_link_that_takes_no_more_links_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise LimitExceeded("no more handles")

    monkeypatch.setattr(Management, "__init__", full)
    world = a_pair()
    pull(world)
    world.run(8)
    world.send("there", "q", 1)
    row = world.route("here", "r")
    assert (row["lag"], row["state"], row["messages"]) == (None, "operational", 1)
    assert world.nodes["here"].internal_errors == 0


@pytest.mark.parametrize(
    "answer", [[], None, {}, [7], [{}], [{"messages": True}], [{"messages": "5"}], "x"]
)
def test_a_malformed_depth_is_unknown(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    world = a_pair()
    pull(world)
    world.run(4)
    assert world.route("here", "r")["lag"] == 0

    def reply(self: object, name: str, params: object, then: Any, **more: object) -> None:
        then(Reply(answer))

    monkeypatch.setattr(type(world.nodes["there"].requests), "call", reply)
    world.run(8)
    row = world.route("here", "r")
    assert (row["lag"], row["state"]) == (None, "operational")
    assert world.nodes["here"].internal_errors == 0


def test_a_link_without_routes_that_pull_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_pair()
    pull(world)
    pull(world, name="p", direction="push")
    world.run(4)
    world.call("here", "delete_route", name="r")
    world.run(4)
    monkeypatch.setattr(Management, "ask", None)
    world.run(10)
    assert world.route("here", "p")["state"] == "operational"
    assert world.nodes["here"].internal_errors == 0
