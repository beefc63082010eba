"""Links of a cluster over failovers: the next primary goes on, and nothing is lost."""

from __future__ import annotations

from typing import Any

from qpidha.model.encoding import Symbol
from qpidha.model.errors import Redirect
from tests.federation.world import World

CLUSTER = "amqp://a:5672,amqp://b:5672,amqp://c:5672"


def a_chain(**arguments: Any) -> World:
    """A source `s`, the cluster a, b and c, which pulls from it, and a target `t`, to which the
    cluster pushes.
    """
    world = World()
    for name in ("s", "t"):
        world.add(name, auth=False)
        world.call(name, "declare_queue", name="q", arguments=arguments)
    world.cluster("a", "b", "c", auth=False, ha_backup_timeout=1)
    world.call("a", "declare_queue", name="q", arguments=arguments)
    for link, address in (("from", "s"), ("to", "t")):
        world.call("a", "declare_link", name=link, addresses=f"amqp://{address}:5672")
    route = {"source": "q", "destination": "q"}
    world.call("a", "declare_route", name="in", link="from", **route)
    world.call("a", "declare_route", name="out", link="to", direction="push", **route)
    world.run()
    return world


def numbered(world: World, *numbers: int) -> None:
    for number in numbers:
        annotations = {Symbol("x-n"): str(number)}
        world.send(
            "s", "q", number, properties={"message_id": str(number)}, annotations=annotations
        )


def test_a_chain_moves_messages_and_backups_run_nothing() -> None:
    world = a_chain()
    numbered(world, 1, 2, 3)
    world.run()
    assert world.bodies("t", "q") == [1, 2, 3]
    assert world.bodies("s", "q") == world.bodies("b", "q") == []
    assert {row["state"] for row in world.call("b", "list_links")} == {"passive"}
    assert {row["state"] for row in world.call("b", "list_routes")} == {"passive"}


def test_the_next_primary_goes_on() -> None:
    world = a_chain()
    numbered(world, 1, 2)
    world.run()  # Until the others know what was passed on.
    world.kill("a")
    numbered(world, 3)
    world.promote("b")
    world.run(3)
    numbered(world, 4)
    world.run()
    assert world.bodies("t", "q") == [1, 2, 3, 4]
    assert world.route("b", "in")["state"] == world.route("b", "out")["state"] == "operational"


def test_what_is_not_committed_is_not_settled_and_comes_again() -> None:
    world = a_chain()
    world.call("a", "delete_route", name="out")
    world.cut = lambda one, other: one in ("b", "c") and other == "a"
    numbered(world, 1, 2, 3)
    assert world.bodies("s", "q") == [1, 2, 3], "settled before two brokers confirmed it"
    world.kill("a")
    world.cut = lambda one, other: False
    world.promote("b")
    world.run(3)
    assert sorted(set(world.bodies("b", "q"))) == [1, 2, 3]
    assert world.bodies("s", "q") == []


def test_what_was_pushed_and_not_settled_comes_once_into_a_queue_that_remembers() -> None:
    world = a_chain(**{"qpidha.dedup": "message-id"})
    world.cut = lambda one, other: (one, other) in (("t", "a"), ("t", "b"))
    numbered(world, 1, 2, 3)
    assert world.bodies("t", "q") == [1, 2, 3] == world.bodies("a", "q")
    world.kill("a")
    world.cut = lambda one, other: False
    world.promote("b")
    world.run(3)
    assert world.bodies("t", "q") == [1, 2, 3]
    assert world.bodies("b", "q") == []


def test_a_demoted_primary_runs_nothing_and_one_that_is_promoted_again_does() -> None:
    world = a_chain()
    world.call("a", "demote")
    world.run()
    assert world.link("a", "from") == {"state": "passive"}
    numbered(world, 1)
    assert world.bodies("s", "q") == [1]
    world.promote("a")
    world.run(3)
    assert world.bodies("t", "q") == [1]


def test_a_link_to_a_cluster_finds_its_primary_after_each_failover() -> None:
    world = World()
    world.add("s", auth=False)
    world.call("s", "declare_queue", name="q")
    world.cluster("a", "b", "c", auth=False, ha_backup_timeout=1)
    world.call("a", "declare_queue", name="q")
    world.call("s", "declare_link", name="l", addresses=CLUSTER)
    route = {"name": "r", "link": "l", "source": "q", "destination": "q", "direction": "push"}
    world.call("s", "declare_route", **route)
    world.send("s", "q", 1)
    world.run()
    world.kill("a")
    world.send("s", "q", 2)
    world.promote("b")
    world.run(5)
    assert world.bodies("b", "q") == [1, 2]
    assert world.bodies("s", "q") == []
    assert world.link("s", "l")["address"] == "b:5672"


def test_a_link_to_the_own_cluster_is_ended_with_a_word() -> None:
    world = World()
    world.cluster("a", "b", auth=False)
    world.call("a", "declare_link", name="l", addresses="amqp://a:5672")
    world.run()
    link = world.link("a", "l")
    assert link["state"] != "operational" and "itself" in str(link["last_error"]), link


def test_a_link_with_the_own_address_among_others_goes_on_to_the_others() -> None:
    world = World()
    for name in ("here", "there"):
        world.add(name, auth=False)
    world.call("here", "declare_link", name="l", addresses="here,there")
    world.run(10)
    link = world.link("here", "l")
    assert (link["state"], link["address"]) == ("operational", "there:5672"), link


def test_what_a_route_takes_from_an_exchange_is_there_for_the_next_primary() -> None:
    world = World()
    world.add("t", auth=False)
    world.call("t", "declare_queue", name="q")
    world.cluster("a", "b", "c", auth=False, ha_backup_timeout=1, ha_replicate="none")
    replicated = {"qpid.replicate": "all"}
    world.call("a", "declare_exchange", name="x", type="topic", arguments=replicated)
    world.call("a", "declare_link", name="l", addresses="t")
    route = {"link": "l", "source": "x", "destination": "q", "kind": "exchange", "key": "#"}
    world.call("a", "declare_route", name="r", direction="push", **route)
    world.run()
    world.cut = lambda one, other: {one, other} == {"a", "t"}
    world.publish("a", "x", "k", 1)
    world.run()
    world.kill("a")
    world.promote("b")
    world.publish("b", "x", "k", 2)
    world.run(3)
    assert world.bodies("t", "q") == [1, 2], world.route("b", "r")


def test_a_redirect_is_followed() -> None:
    world = World()
    world.cluster("a", "b", auth=False, ha_refuse_clients="redirect")
    world.call("a", "declare_queue", name="q")
    world.add("s", auth=False)
    world.call("s", "declare_link", name="l", addresses="amqp://b:5672")
    world.run(2)
    assert world.link("s", "l")["state"] == "operational", world.link("s", "l")
    assert world.link("s", "l")["address"] == "a:5672"


def test_redirects_in_a_circle_of_brokers_that_let_a_link_in_end() -> None:
    world = World()
    for name in ("here", "one", "two"):
        world.add(name, auth=False)
    world.call("here", "declare_link", name="l", addresses="amqp://one:5672")
    link = world.nodes["here"].federation.by_name["l"]
    dialled = []
    for _ in range(100):
        assert link.connection is not None, world.link("here", "l")
        at = link.address.host
        dialled.append(at)
        info = {"network-host": "two" if at == "one" else "one", "port": 5672, "scheme": "amqp"}
        there = world.nodes[at]
        there.close_connection(there.connections()[-1], Redirect("elsewhere", info=info))
        world.step(at)
        world.settle()
        if link.state == "waiting":
            break
    assert len(dialled) <= 6, "it waits after some of them"
    world.run(10)
    assert world.link("here", "l")["state"] == "operational"


def test_a_switchover_loses_nothing_and_the_next_primary_goes_on() -> None:
    world = a_chain()
    numbered(world, 1, 2)
    answers: list[Any] = []
    world.nodes["a"].switchover("b:5672", answers.append)
    world.step("a")
    numbered(world, 3)
    world.run(3)
    assert answers and answers[0].error is None, answers
    numbered(world, 4)
    world.run(3)
    assert world.nodes["b"].serving and not world.nodes["a"].serving
    assert world.bodies("t", "q") == [1, 2, 3, 4]
    assert world.link("a", "from") == {"state": "passive"}
