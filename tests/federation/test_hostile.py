"""Other ends that do not do what they should: the broker stays, and does not wear itself out."""

from __future__ import annotations

from random import Random

import pytest

from qpidha.model.duration import SECOND
from qpidha.model.events import BytesReceived
from tests.federation.test_queue_routes import a_pair, pull
from tests.federation.world import World


@pytest.mark.parametrize("seed", range(30))
def test_bytes_that_are_wrong_end_no_broker(seed: int) -> None:
    rng = Random(seed)
    world = a_pair()
    pull(world)
    pull(world, name="p", direction="push", source="q", destination="q")
    world.call("here", "declare_exchange", name="e", type="topic")
    world.call(
        "here",
        "declare_route",
        name="d",
        link="l",
        source="amq.topic",
        destination="e",
        kind="dynamic",
    )
    for _ in range(12):
        world.run(rng.choice([0.1, 1, 3]))
        world.send("there", "q", rng.random())
        ends = [end for end, far in world.peers.items() if end[0] == "here" and far[0] == "there"]
        for name, number in ends:
            noise = bytearray(rng.randbytes(rng.randint(1, 80)))
            if rng.random() < 0.6:  # A frame whose size is right, and nothing else.
                noise = bytearray((len(noise) + 8).to_bytes(4, "big") + b"\x02\x00\0\0" + noise)
            world.step(name, BytesReceived(number, bytes(noise)))
        world.settle()
    world.run(40)
    assert world.nodes["here"].serving and world.nodes["here"].internal_errors == 0
    assert not world.nodes["here"].broken


def test_one_that_hangs_up_each_time_is_dialled_less_and_less_often() -> None:
    world = World()
    world.add("here", auth=False)
    world.add("there", auth=False)
    world.call("here", "declare_link", name="l", addresses="there")
    dialled = []
    for _ in range(600):
        before = world.nodes["here"].dialled
        world.reset("here", "there")
        world.run(0.5)
        if world.nodes["here"].dialled != before:
            dialled.append(world.now // SECOND)
    assert len(dialled) < 25, dialled
    assert len(world.lines["here"]) < 30
