"""What goes wrong at either end of a route: nothing is lost or spins, and the reason is told."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.sasl import Users, lines_of_user
from qpidha.federation.trace import TRACE
from qpidha.management.acl_file import read
from qpidha.model.event_codes import LINK_DOWN, LINK_TO_ITSELF, ROUTE_DOWN, ROUTE_REJECTED
from qpidha.model.event_log import LinkChange
from qpidha.model.telling import MOST_TIMES
from tests.federation.test_queue_routes import a_pair, pull
from tests.federation.world import World


def take(world: World, name: str, count: int, queue: str = "q") -> None:
    """Have messages leave a queue."""
    found = world.nodes[name].broker.queues[queue]
    for message in list(found.messages.values())[:count]:
        found.dequeue(message)
    world.step(name)
    world.settle()


def limited(world: World, name: str, **arguments: object) -> None:
    world.call(name, "declare_queue", name="small", arguments=arguments)


def test_what_has_no_room_here_stays_there_and_comes_later() -> None:
    world = a_pair()
    limited(world, "here", **{"qpid.max_count": 5})
    world.send("there", "q", *range(20))
    pull(world, destination="small")
    world.run(5)
    assert world.bodies("here", "small") == [0, 1, 2, 3, 4]
    assert len(world.bodies("there", "q")) == 15
    for first in (5, 10, 15):
        take(world, "here", 5, "small")
        world.run(40)
        assert world.bodies("here", "small") == list(range(first, first + 5))
    assert world.bodies("there", "q") == []


def test_what_has_no_room_there_stays_here_and_goes_later() -> None:
    world = a_pair()
    limited(world, "there", **{"qpid.max_count": 5})
    world.send("here", "q", *range(12))
    pull(world, direction="push", destination="small")
    world.run(5)
    assert world.bodies("there", "small") == [0, 1, 2, 3, 4]
    assert len(world.bodies("here", "q")) == 7
    take(world, "there", 5, "small")
    world.run(70)
    assert len(world.bodies("there", "small")) == 5
    take(world, "there", 5, "small")
    world.run(70)
    assert len(world.bodies("there", "small")) == 2 and world.bodies("here", "q") == []


def test_a_message_that_is_too_large_here_stays_there() -> None:
    world = World()
    world.add("here", auth=False, max_message_size=1000)
    world.add("there", auth=False)
    for name in ("here", "there"):
        world.call(name, "declare_queue", name="q")
    world.call("here", "declare_link", name="l", addresses="amqp://there:5672")
    world.send("there", "q", "x" * 2000)
    pull(world)
    world.run(10)
    assert len(world.bodies("there", "q")) == 1
    assert "max-message-size" in str(world.route("here", "r")["last_error"])
    down = [line for line in world.lines["here"] if line.event_code == ROUTE_DOWN]
    assert len(down) < 4, "the same reason is told over and over"


def test_a_message_that_is_too_large_there_stays_here_and_others_go() -> None:
    world = World()
    world.add("here", auth=False)
    world.add("there", auth=False, max_message_size=1000)
    for name in ("here", "there"):
        world.call(name, "declare_queue", name="q")
    world.call("here", "declare_link", name="l", addresses="amqp://there:5672")
    world.send("here", "q", "x" * 2000, "small")
    pull(world, direction="push")
    world.run(10)
    assert world.bodies("there", "q") == ["small"]
    assert [len(body) for body in world.bodies("here", "q")] == [2000]


def test_a_queue_that_is_deleted_here_stops_the_route_until_it_is_there_again() -> None:
    for direction in ("pull", "push"):
        world = a_pair()
        pull(world, direction=direction)
        world.call("here", "delete_queue", name="q")
        if direction == "pull":
            world.send("there", "q", 1)
        world.run(3)
        assert world.route("here", "r")["state"] == "waiting", direction
        assert "q" in str(world.route("here", "r")["last_error"])
        world.call("here", "declare_queue", name="q")
        if direction == "push":
            world.send("here", "q", 1)
        world.run(70)
        assert world.bodies("here" if direction == "pull" else "there", "q") == [1]


def test_a_queue_that_is_deleted_there_is_waited_for() -> None:
    for direction in ("pull", "push"):
        world = a_pair()
        pull(world, direction=direction)
        world.call("there", "delete_queue", name="q")
        if direction == "push":
            world.send("here", "q", 1)
        world.run(2)
        assert world.route("here", "r")["state"] == "waiting", direction
        world.call("there", "declare_queue", name="q")
        if direction == "pull":
            world.send("there", "q", 1)
        world.run(70)
        assert world.bodies("here" if direction == "pull" else "there", "q") == [1]


def test_a_login_that_is_refused_is_told_and_one_that_is_right_goes_on() -> None:
    world = World()
    world.add(
        "there", auth=True, users=Users.parse("\n".join(lines_of_user("ann", "secret", bytes)))
    )
    world.add("here", auth=False)
    world.call("here", "declare_link", name="l", addresses="there", username="ann", password="no")
    world.run(3)
    link = world.link("here", "l")
    assert link["state"] == "waiting" and link["last_error"], link


def test_many_messages_go_both_ways() -> None:
    world = a_pair()
    numbers = list(range(3000))
    world.send("there", "q", *numbers)
    pull(world)
    world.run(2)
    assert world.bodies("here", "q") == numbers
    world.call("there", "declare_queue", name="back")
    world.call("here", "declare_queue", name="own")
    world.send("here", "own", *numbers)
    pull(world, name="p", direction="push", source="own", destination="back")
    world.run(2)
    assert world.bodies("there", "back") == numbers
    assert world.bodies("here", "own") == []


def test_many_messages_that_left_here_before_stay_and_cost_no_endless_search() -> None:
    world = a_pair()
    tag = world.nodes["here"].federation_tag
    world.send("here", "q", *range(300), annotations={TRACE: f"far,{tag}"})
    world.call("there", "declare_queue", name="back")
    pull(world, direction="push", destination="back")
    world.run(2)
    assert len(world.bodies("here", "q")) == 300 and world.bodies("there", "back") == []
    world.send("here", "q", "new")
    assert world.bodies("there", "back") == ["new"]


LINKS = "acl allow ann create link\n"
OTHERS = "acl deny all create link\nacl allow all all\n"


@pytest.mark.parametrize(
    ("rules", "passes"), [("", False), (OTHERS, False), (LINKS + OTHERS, True)]
)
def test_a_link_passes_on_what_others_sent_where_the_list_there_lets_it(
    rules: str, passes: bool
) -> None:
    world = World()
    users = Users.parse("\n".join(lines_of_user("ann", "secret", bytes)))
    there = world.add("there", auth=True, users=users)
    world.add("here", auth=False)
    for name in ("here", "there"):
        world.call(name, "declare_queue", name="q")
    world.call(
        "here", "declare_link", name="l", addresses="there", username="ann", password="secret"
    )
    world.run(2)
    if rules:
        there.access.use(read(rules)[0])
    pull(world, direction="push")
    world.send("here", "q", *range(50), properties={"user_id": b"bob"})
    world.run(2)
    assert world.bodies("here", "q") == []
    assert world.bodies("there", "q") == (list(range(50)) if passes else [])
    told = [line for line in world.lines["here"] if line.event_code == ROUTE_REJECTED]
    assert len(told) == (0 if passes else 1)
    if not passes:
        assert "user-id 'bob'" in told[0].text
        assert "user-id 'bob'" in str(world.route("here", "r")["last_error"])


def test_what_is_rejected_there_goes_to_the_dead_letters_here() -> None:
    world = a_pair()
    world.call("here", "declare_queue", name="dead")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    world.call("here", "declare_queue", name="mine", arguments=dead)
    limited(world, "there", **{"qpid.max_size": 100, "qpid.policy_type": "reject"})
    world.send("here", "mine", "x" * 300)
    pull(world, direction="push", source="mine", destination="small")
    world.run(3)
    assert [len(body) for body in world.bodies("here", "dead")] == [300], world.route("here", "r")


def changes(world: World, name: str = "here") -> list[tuple[str, str, str]]:
    """Return what was told of links and routes, and forget it."""
    told = [line.about for line in world.lines[name] if isinstance(line.about, LinkChange)]
    world.lines[name].clear()
    return [(each.name, each.what, each.why) for each in told]


def unwell(world: World, name: str = "here") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = world.call(name, "explain")["unwell"]
    return rows


def test_each_change_of_a_link_is_told_once() -> None:
    world = a_pair()
    pull(world)
    world.run(10)
    assert changes(world) == [("link l", "made", ""), ("link l", "up", ""), ("route r", "made", "")]
    assert unwell(world) == []
    world.kill("there")
    world.run(120)
    assert changes(world) == [
        ("link l", "down", "closed by the peer (amqp:connection:forced)"),
        ("link l", "down", "cannot connect"),
    ]
    (row,) = unwell(world)
    assert (row["name"], row["state"], row["why"]) == ("link l", "waiting", "cannot connect")
    assert "qpid-ha link add l" in row["next"]
    world.add("there", auth=False)
    world.run(60)
    told = changes(world)
    assert ("link l", "up", "") in told and told[-1][:2] == ("route r", "stalled")
    (row,) = unwell(world)
    assert row["name"] == "route r over link l" and "q" in row["why"] and row["next"]
    world.call("there", "declare_queue", name="q")
    world.send("there", "q", 1)
    world.run(90)
    assert changes(world) == [("route r", "moving", "")] and unwell(world) == []
    world.call("here", "delete_link", name="l", with_routes=True)
    assert changes(world) == [("route r", "ended", ""), ("link l", "ended", "")]


def test_a_link_that_is_refused_says_so_and_what_to_do() -> None:
    world = World()
    world.add("here", auth=False)
    world.add("there", auth=True, users=Users({}))
    world.call("here", "declare_link", name="l", addresses="amqp://there:5672", username="ann")
    world.run(120)
    told = changes(world)
    assert [each[:2] for each in told] == [("link l", "made"), ("link l", "refused")]
    assert told[-1][2]
    (row,) = unwell(world)
    assert row["why"] == told[-1][2] and "--username" in row["next"]


def test_a_link_that_leads_here_is_told_once() -> None:
    world = World()
    world.add("here", auth=False)
    world.call("here", "declare_link", name="l", addresses="amqp://here:5672")
    world.run(120)
    codes = [line.event_code for line in world.lines["here"]]
    assert codes.count(LINK_TO_ITSELF) == 1 and LINK_DOWN not in codes
    (row,) = unwell(world)
    assert "this cluster itself" in row["why"] and "qpid-ha link del l" in row["next"]


def test_a_link_that_comes_and_goes_is_told_of_a_few_times_and_when_it_stays() -> None:
    world = a_pair()
    for _ in range(40):
        world.reset("here", "there")
        while world.link("here", "l")["state"] != "operational":
            world.run(0.1)
    told = changes(world)
    assert len(told) < 3 * MOST_TIMES and told[-1][:2] == ("link l", "down")
    world.run(10)
    assert changes(world) == [("link l", "up", "")] and unwell(world) == []


def test_a_route_that_moves_now_and_then_is_told_of_a_few_times() -> None:
    world = a_pair()
    limited(world, "here", **{"qpid.max_count": 1})
    world.send("there", "q", *range(200))
    pull(world, destination="small")
    world.run(5)
    for _ in range(100):
        take(world, "here", 1, "small")
        world.run(2)
    assert len(world.bodies("there", "q")) < 180, "some went over it"
    told = [each for each in changes(world) if each[0] == "route r"]
    assert len(told) < 3 * MOST_TIMES
    world.call("here", "delete_queue", name="small")
    world.call("here", "declare_queue", name="small")
    world.run(90)
    assert changes(world)[-1][:2] == ("route r", "moving")
