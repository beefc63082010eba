"""Random faults with ha-safety=strict: any brokers crash, freeze and lose connections, and the manager promotes whom it likes.

A word may be gone only when every broker of the newest in-sync set has crashed: this log is in memory. Whoever is
promoted with its content has every accepted word; whoever is promoted empty takes nothing from a broker that has
content. One seed is one history.
"""

from __future__ import annotations

import random

import pytest

from qpidha.ha.status import BrokerStatus
from tests.ha.cluster_world import Machine, World


class History:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(
            self.rng.choice([3, 3, 5]), log_limit=self.rng.choice([1500, 1 << 20]), backup_timeout=1_000_000_000, safety="strict"
        )
        self.world.machines[0].promote()
        self.world.run(0.5)
        self.count = 0
        self.accepted: set[str] = set()
        self.seen: set[tuple[int, int, int]] = set()
        self.was_live: set[tuple[int, int]] = set()
        self.promotions = self.failures = 0

    def alive(self) -> list[Machine]:
        return [machine for machine in self.world.machines if machine.index not in self.world.dead]

    def step(self) -> None:
        """Do one random thing and look at what came of it."""
        rng, world = self.rng, self.world
        machine = rng.choice(world.machines)
        alive = machine.index not in world.dead
        what = rng.choices(
            ["publish", "deliver", "time", "kill", "restart", "freeze", "thaw", "cut", "promote", "demote"],
            [30, 100, 10, 0.7, 4, 1.5, 4, 2, 2, 0.3],
        )[0]
        if what == "publish":
            for each in self.alive():
                if each.state.is_primary and not each.paused:
                    self.count += 1
                    each.publish(f"w{self.count}")
        elif what == "deliver":
            world.step_one(rng.choice)
        elif what == "time":
            self.pass_time(rng.randrange(300_000_000))
        elif what == "kill" and alive:
            world.dead.add(machine.index)
            world.cut(machine.index)
            machine.inbox.clear()
        elif what == "restart" and not alive:
            self.restart(machine)
        elif what == "freeze" and alive:
            machine.paused = True
        elif what == "thaw":
            machine.paused = False
        elif what == "cut" and alive:
            world.cut(machine.index)
        elif what == "promote" and alive and not machine.paused:
            machine.promote()
        elif what == "demote" and alive and not machine.paused:
            machine.cluster.demote(lambda error: None)
        self.look()

    def pass_time(self, nanoseconds: int) -> None:
        self.world.now += nanoseconds
        for each in self.alive():
            if not each.paused:
                each.cluster.tick(self.world.now)
                each.cluster.flush(self.world.now)

    def restart(self, machine: Machine) -> None:
        self.world.dead.discard(machine.index)
        fresh = Machine(self.world, machine.index, machine.saved, life=machine.life + 1)
        self.world.machines[machine.index] = fresh
        fresh.cluster.start()

    def look(self) -> None:
        """Note what was accepted, and judge every new primary."""
        for machine in self.alive():
            key = (machine.index, machine.life, machine.log.epoch)
            if machine.state.is_primary and key not in self.seen:
                self.seen.add(key)
                self.judge(machine)
        for machine in self.world.machines:
            self.accepted.update(machine.accepted)
            machine.accepted.clear()
        self.was_live = {(m.index, m.life) for m in self.alive() if m.cluster.is_live}

    def judge(self, primary: Machine) -> None:
        missing = self.accepted - set(primary.model.values())
        self.promotions += 1
        if (primary.index, primary.life) in self.was_live:
            assert not missing, f"{primary.index} was promoted in epoch {primary.log.epoch} and lost {sorted(missing)[:5]}"
            return
        for other in self.alive():
            if other is not primary and other.cluster.is_live:
                taken = missing & set(other.model.values())
                assert not taken, f"{primary.index} was promoted empty over {other.index}: {sorted(taken)[:5]}"
        self.failures += bool(missing)
        self.accepted -= missing  # every broker that had them is gone

    def heal(self) -> None:
        """End all faults: a manager that takes who is live, and else anybody, gets a whole cluster again."""
        world = self.world
        for machine in list(world.machines):
            machine.paused = False
            if machine.index in world.dead:
                self.restart(machine)
        for _ in range(60):
            world.run(0.5)
            self.look()
            states = sorted(machine.state.value for machine in world.machines)
            if states == ["active"] + ["ready"] * (len(states) - 1):
                break
            if not any(machine.state.is_primary for machine in world.machines):
                self.recover()
                order = sorted(
                    world.machines, key=lambda m: (m.cluster.is_live, m.cluster.saved.in_sync, m.log.epoch, m.log.last), reverse=True
                )
                for machine in order:
                    machine.promote()
                    world.run(4)
                    self.look()
                    if machine.state.is_primary:
                        break
        else:
            raise AssertionError(f"not healed: {[machine.state.value for machine in world.machines]}")
        primary = next(machine for machine in world.machines if machine.state is BrokerStatus.ACTIVE)
        assert not self.accepted - set(primary.model.values())
        primary.publish("last")
        world.run(0.5)
        assert [machine.words for machine in world.machines] == [primary.words] * len(world.machines)
        assert "last" in primary.accepted

    def recover(self) -> None:
        """After a total failure, start again whoever is ready by a set that is out of date: it stands in the others' way."""
        newest = max(machine.cluster.saved.in_sync for machine in self.world.machines)
        if not any(machine.cluster.is_live and machine.system_id in newest.members for machine in self.world.machines):
            for machine in list(self.world.machines):
                if machine.cluster.is_live:
                    self.world.kill(machine.index)
                    self.restart(machine)
            self.world.run(0.5)


@pytest.mark.parametrize("block", range(10))
def test_no_accepted_word_is_lost_whatever_the_manager_does(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        try:
            history = History(seed)
            for _ in range(600):
                history.step()
            history.heal()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
