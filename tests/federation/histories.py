"""Random histories of links: a source, a cluster of three and a target, with routes between them,
while primaries are killed, brokers come back, and words between them get lost.

The brokers are the product's own (`Node`), the world around them is `world.py`; one random
generator decides everything, so a seed is a history. `play` raises `Broken` for what must not be.
"""

from __future__ import annotations

from random import Random

from qpidha.model.errors import QpidHaError
from qpidha.model.message_view import properties
from tests.federation.world import World

CLUSTER = ("a", "b", "c")
STEPS = 25
LAST = 120
"""Seconds in which everything must have come through, when all is well again."""


class Broken(Exception):
    """Something that must hold does not."""


class History:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.dedup = self.rng.random() < 0.5
        self.world = World()
        self.sent: list[int] = []
        self.down: list[str] = []
        self.arguments = {"qpidha.dedup": "message-id"} if self.dedup else {}

    def begin(self) -> None:
        """Start the brokers, and declare links and routes."""
        world = self.world
        for name in ("s", "t"):
            world.add(name, auth=False)
            world.call(name, "declare_queue", name="q", arguments=self.arguments)
        world.cluster(*CLUSTER, auth=False, ha_backup_timeout=1)
        world.call("a", "declare_queue", name="q", arguments=self.arguments)
        for link, address in (("from", "s"), ("to", "t")):
            world.call("a", "declare_link", name=link, addresses=address)
        ends = {"source": "q", "destination": "q"}
        world.call("a", "declare_route", name="in", link="from", **ends)
        world.call("a", "declare_route", name="out", link="to", direction="push", **ends)
        # A circle of exchanges: what is sent to one of them is to come back to nobody.
        for name in ("s", "a"):
            world.call(name, "declare_queue", name="circle")
            world.call(name, "bind", exchange="amq.topic", queue="circle", key="#")
        world.call("s", "declare_link", name="back", addresses="a,b,c")
        topics = {"kind": "exchange", "source": "amq.topic", "destination": "amq.topic", "key": "#"}
        world.call("a", "declare_route", name="there", link="from", **topics)
        world.call("s", "declare_route", name="back", link="back", **topics)
        world.run(2)

    @property
    def primary(self) -> str:
        """The primary; empty if there is none."""
        found = [name for name in CLUSTER if name in self.world.nodes]
        return next((name for name in found if self.world.nodes[name].serving), "")

    def step(self) -> None:
        """Let something happen."""
        rng = self.rng
        act = rng.choice([self.send, self.send, self.send, self.silence, self.kill, self.rest])
        act()

    def send(self) -> None:
        """Send some messages to the source."""
        for _ in range(self.rng.randint(1, 12)):
            number = len(self.sent)
            self.sent.append(number)
            message = {"message_id": str(number)}
            self.world.send("s", "q", number, properties=message)

    def rest(self) -> None:
        """Let time pass."""
        self.world.run(self.rng.choice([0.1, 0.5, 1, 3]))

    def silence(self) -> None:
        """Lose some of what the primary and others say to each other, until it dies, or until their
        connections break.
        """
        primary = self.primary
        if not primary:
            return
        others = ["s", "t", *(name for name in CLUSTER if name != primary)]
        ways = [(primary, other) for other in "st"] + [(other, primary) for other in others]
        lost = set(self.rng.sample(ways, self.rng.randint(1, len(ways))))
        self.world.cut = lambda one, other: (one, other) in lost
        self.send()
        if self.rng.random() < 0.5:
            self.kill()
            return
        for other in others:
            self.world.reset(primary, other)
        self.world.cut = lambda one, other: False
        self.world.run(1)

    def kill(self) -> None:
        """Kill the primary, and promote another broker; the first comes back as a new one."""
        primary = self.primary
        if not primary:
            return
        self.world.kill(primary)
        self.world.cut = lambda one, other: False
        self.world.settle()
        self.promote()
        options = self.world.options_of[primary]
        self.world.add(primary, **options)
        self.world.run(1.5)

    def promote(self) -> None:
        """Promote whoever can be."""
        for name in self.rng.sample(CLUSTER, len(CLUSTER)):
            if name in self.world.nodes and self.world.nodes[name].status()["state"] == "ready":
                try:
                    self.world.promote(name)
                except (AssertionError, QpidHaError):
                    continue
                return
        raise Broken("no broker can be promoted")

    def finish(self) -> None:
        """Let everything come through, and judge."""
        world = self.world
        for _ in range(LAST):
            world.run(1)
            if not world.bodies("s", "q") and not world.bodies(self.primary, "q"):
                break
        else:
            raise Broken("stuck: messages do not come through")
        came = world.bodies("t", "q")
        lost = sorted(set(self.sent) - set(came))
        if lost:
            raise Broken(f"lost: {lost}")
        if self.dedup and len(came) != len(set(came)):
            raise Broken("twice, into a queue that remembers")
        self.check_circle()

    def check_circle(self) -> None:
        """Publish at both ends of a circle: each end has it once."""
        world = self.world
        # An earlier circle may have been cut while a route was down: this one is not.
        world.run(40)
        for number, name in enumerate(("s", self.primary)):
            world.publish(name, "amq.topic", "k", 1000 + number)
        world.run(3)
        for name in ("s", self.primary):
            found = [properties(one) for one in world.payloads(name, "circle")]
            if len(found) != 2:
                raise Broken(f"a circle: {name} has {len(found)} messages in place of 2")


def play(seed: int) -> None:
    """Play one history; raise Broken or AssertionError for what must not be."""
    history = History(seed)
    history.begin()
    for _ in range(STEPS):
        history.step()
    history.finish()
