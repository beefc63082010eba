"""Random faults on a cluster of three HA machines, and a manager that fences before it promotes, or
lets a frozen primary be.

Whatever the order of deliveries, crashes, restarts, freezes and lost connections, one broken broker
at a time: no accepted word is ever missing from the primary, at most one machine accepts, and when
the faults end all come to be equal and ready. One seed is one history. A history in which every
in-sync broker died at once proves nothing and ends there: the content of this log is in memory
only.
"""

from __future__ import annotations

import random

import pytest

from qpidha.model.broker_states import BrokerStatus
from tests.ha.cluster_world import World


class History:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(
            3,
            log_limit=self.rng.choice([1500, 1 << 20]),
            backup_timeout=self.rng.choice([1, 3]) * 1_000_000_000,
        )
        self.world.machines[0].promote()
        self.world.settle()
        self.world.run(0.2)
        self.count = 0
        self.accepted: dict[str, int] = {}
        self.promotions = 0

    def primaries(self) -> list[int]:
        world = self.world
        return [m.index for m in world.machines if m.state.is_primary and m.index not in world.dead]

    def note_accepted(self) -> None:
        for machine in self.world.machines:
            for word in machine.accepted:
                before = self.accepted.setdefault(word, machine.cluster.log.epoch)
                assert before == machine.cluster.log.epoch, (
                    f"{word} accepted in epochs {before} and {machine.cluster.log.epoch}"
                )
            machine.accepted.clear()

    def step(self) -> bool:
        """Do one random thing; False when the history proves nothing any more."""
        rng, world = self.rng, self.world
        what = rng.choices(
            [
                "publish",
                "deliver",
                "time",
                "kill",
                "restart",
                "freeze",
                "thaw",
                "cut",
                "manage",
                "demote",
            ],
            [30, 80, 10, 1, 3, 1, 4, 1, 8, 1],
        )[0]
        machine = rng.choice(world.machines)
        alive = machine.index not in world.dead
        if what == "publish":
            for index in self.primaries():
                if not world.machines[index].paused:
                    self.count += 1
                    world.machines[index].publish(f"w{self.count}")
        elif what == "deliver":
            world.step_one(rng.choice)
        elif what == "time":
            world.now += rng.randrange(100_000_000)
            for _ in range(20):  # the network is slow, but not slower than all patience
                world.step_one(rng.choice)
            for each in world.machines:
                if not each.paused and each.index not in world.dead:
                    each.cluster.tick(world.now)
                    each.end_turn()
        elif what == "kill" and self.is_whole():
            self.kill(machine.index)
        elif what == "restart" and not alive:
            world.dead.discard(machine.index)
            fresh = type(machine)(world, machine.index, machine.saved, life=machine.life + 1)
            world.machines[machine.index] = fresh
            fresh.cluster.start()
        elif what == "freeze" and self.is_whole():
            machine.paused = True
            if rng.random() < 0.7:
                world.cut(machine.index)
        elif what == "thaw":
            machine.paused = False
        elif what == "cut" and alive:
            world.cut(machine.index)
        elif what == "manage":
            return self.manage()
        elif what == "demote" and self.is_whole():  # whoever is promoted next, perhaps the same
            machine.cluster.demote(lambda error: None)
        self.note_accepted()
        return True

    def is_whole(self) -> bool:
        """Whether everybody is there and knows it. Only then does a broker fail: to lose another
        before the survivors know that one was dropped is what the recording of the in-sync set by a
        majority is for.
        """
        world = self.world
        if world.dead or any(m.paused for m in world.machines):
            return False
        sets = {m.cluster.promises.in_sync for m in world.machines}
        return len(sets) == 1 and len(next(iter(sets)).members) == 3

    def kill(self, index: int) -> None:
        world = self.world
        world.dead.add(index)
        world.machines[index].inbox.clear()
        world.cut(index)
        world.machines[index].inbox.clear()

    def manage(self) -> bool:
        """What a manager does: if no healthy primary is there, promote the ready backup that has
        most.
        """
        world = self.world
        healthy = [i for i in self.primaries() if not world.machines[i].paused]
        if healthy:
            return True
        running = [m for m in world.machines if m.index not in world.dead and not m.paused]
        newest = max((m.cluster.promises.in_sync for m in running), default=None)
        ready = [
            m
            for m in running
            if m.cluster.promises.is_complete
            and newest is not None
            and m.system_id in newest.members
        ]
        if not ready:
            return any(
                m.cluster.promises.is_complete for m in world.machines if m.index not in world.dead
            )
        for frozen in self.primaries():
            if self.rng.random() < 0.5:
                world.machines[frozen].paused = False  # its process is killed, frozen or not
                self.kill(frozen)
        best = max(ready, key=lambda m: (m.log.epoch, m.log.last))
        best.promote()
        self.promotions += 1
        return True

    def check_nothing_lost(self) -> None:
        """Every accepted word is in the log of the primary of the highest epoch."""
        primaries = [self.world.machines[i] for i in self.primaries()]
        if primaries:
            newest = max(primaries, key=lambda m: m.log.epoch)
            have = set(newest.model.values())
            missing = [
                word
                for word, epoch in self.accepted.items()
                if word not in have and epoch <= newest.log.epoch
            ]
            assert not missing, f"lost {missing[:5]}"

    def heal(self) -> None:
        """End all faults and wait: everybody is ready and equal."""
        world = self.world
        for machine in world.machines:
            machine.paused = False
        for index in list(world.dead):
            world.restart(index)
        for _ in range(40):
            world.run(0.5)
            if not self.manage():
                return
            states = sorted(m.state.value for m in world.machines)
            if states == ["active", "ready", "ready"]:
                break
        else:
            raise AssertionError(f"not healed: {[m.state.value for m in world.machines]}")
        self.note_accepted()
        self.check_nothing_lost()
        first = next(m for m in world.machines if m.state is BrokerStatus.ACTIVE)
        first.publish("last")
        world.run(0.5)
        assert [m.words for m in world.machines] == [first.words] * 3
        assert "last" in first.accepted


@pytest.mark.parametrize("block", range(10))
def test_no_accepted_word_is_lost_and_all_heal(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        try:
            history = History(seed)
            for _ in range(400):
                if not history.step():
                    break
                history.check_nothing_lost()
            else:
                history.heal()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
