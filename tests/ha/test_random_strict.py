"""Random faults with ha-safety=strict: any brokers crash, freeze and lose connections, and the
manager promotes whom it likes.

With logs in memory a word may be gone only when every broker of the newest in-sync set has crashed:
whoever is promoted with its content has every accepted word; whoever is promoted empty takes
nothing from a broker that has content. With journals, on disks that are slow and that lose or tear
what was not synced, no accepted word is ever missing from anybody who is promoted, whoever crashed
and in whatever order all come back. One seed is one history.
"""

from __future__ import annotations

import random

import pytest

from qpidha.model.broker_states import BrokerStatus
from tests.ha.cluster_world import Machine, World


class History:
    """One run."""

    def __init__(
        self,
        seed: int,
        *,
        durable: bool = False,
        recorder: str = "brokers",
        sizes: tuple[int, ...] = (3, 3, 5),
    ) -> None:
        self.rng = random.Random(seed)
        self.durable = durable
        self.world = World(
            self.rng.choice(sizes),
            log_limit=self.rng.choice([1500, 1 << 20]),
            backup_timeout=1_000_000_000,
            safety="strict",
            durable=durable,
            log_disk=self.rng.choice([0, 1 << 20]) if durable else 0,
            seed=seed,
            recorder=recorder,
            slow_state=seed % 4 == 1,
        )
        self.world.machines[0].promote()
        self.world.run(0.5)
        self.count = 0
        self.accepted: dict[str, int] = {}
        """By the epoch in which it was."""
        self.seen: set[tuple[int, int, int]] = set()
        self.was_complete: set[tuple[int, int]] = set()
        self.promotions = self.failures = 0

    def alive(self) -> list[Machine]:
        return [machine for machine in self.world.machines if machine.index not in self.world.dead]

    def step(self) -> None:
        """Do one random thing and look at what came of it."""
        rng, world = self.rng, self.world
        machine = rng.choice(world.machines)
        alive = machine.index not in world.dead
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
                "promote",
                "demote",
                "disk",
                "hang",
                "blackout",
                "switch",
            ],
            [
                30,
                100,
                10,
                0.7,
                4,
                1.5,
                4,
                2,
                2,
                0.3,
                100 * (self.durable or self.world.slow_state),
                self.durable or self.world.slow_state,
                0.3 * self.durable,
                0.5,
            ],
        )[0]
        if what == "publish":
            for each in self.alive():
                if each.state.is_primary and not each.paused and not each.frozen:
                    self.count += 1
                    each.publish(f"w{self.count}")
        elif what == "deliver":
            world.step_one(rng.choice)
        elif what == "time":
            self.pass_time(rng.randrange(300_000_000))
        elif what == "kill" and alive:
            self.kill(machine)
        elif what == "blackout":
            for each in self.alive():
                self.kill(each)
        elif what == "disk" and alive and not machine.paused:
            machine.write_state()
            machine.pump()
        elif what == "hang":
            machine.disk_hangs = not machine.disk_hangs and rng.random() < 0.3
            machine.state_hangs = machine.disk_hangs and self.world.slow_state
        elif what == "switch" and alive and not machine.paused:
            machine.switchover()
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
                each.end_turn()

    def kill(self, machine: Machine) -> None:
        self.world.dead.add(machine.index)
        self.world.cut(machine.index)
        machine.inbox.clear()

    def restart(self, machine: Machine) -> None:
        self.world.revive(machine.index, self.rng.choice(["keep", "lose", "tear", "scramble"]))

    def look(self) -> None:
        """Note what was accepted, and judge every new primary."""
        for machine in self.alive():
            key = (machine.index, machine.life, machine.log.epoch)
            if machine.state.is_primary and key not in self.seen:
                self.seen.add(key)
                self.judge(machine)
        for machine in self.world.machines:
            self.accepted.update(dict.fromkeys(machine.accepted, machine.log.epoch))
            machine.accepted.clear()
        self.was_complete = {
            (m.index, m.life) for m in self.alive() if m.cluster.promises.is_complete
        }

    def judge(self, primary: Machine) -> None:
        # One that hears late that it was elected may be overtaken already: it accepts nothing, for
        # the others have promised more.
        epoch = primary.log.epoch
        missing = {word for word, accepted in self.accepted.items() if accepted <= epoch} - set(
            primary.model.values()
        )
        self.promotions += 1
        if self.durable or (primary.index, primary.life) in self.was_complete:
            assert not missing, (
                f"{primary.index} was promoted in epoch {primary.log.epoch} and lost "
                f"{sorted(missing)[:5]}"
            )
            return
        for other in self.alive():
            if other is not primary and other.cluster.promises.is_complete:
                taken = missing & set(other.model.values())
                assert not taken, (
                    f"{primary.index} was promoted empty over {other.index}: {sorted(taken)[:5]}"
                )
        self.failures += bool(missing)
        self.accepted = {
            word: accepted for word, accepted in self.accepted.items() if word not in missing
        }  # every broker that had them is gone

    def heal(self) -> None:
        """End all faults: a manager that takes who is complete, and else anybody, gets a whole
        cluster again.
        """
        world = self.world
        for machine in list(world.machines):
            machine.paused = machine.disk_hangs = machine.state_hangs = False
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
                    world.machines,
                    key=lambda m: (
                        m.cluster.promises.is_complete,
                        m.cluster.promises.in_sync,
                        m.log.epoch,
                        m.log.last,
                    ),
                    reverse=True,
                )
                for machine in order:
                    machine.promote()
                    world.run(4)
                    self.look()
                    if machine.state.is_primary:
                        break
        else:
            raise AssertionError(
                f"not healed: {[machine.state.value for machine in world.machines]}"
            )
        primary = next(
            machine for machine in world.machines if machine.state is BrokerStatus.ACTIVE
        )
        assert not self.accepted.keys() - set(primary.model.values())
        primary.publish("last")
        world.run(0.5)
        assert [machine.words for machine in world.machines] == [primary.words] * len(
            world.machines
        )
        assert "last" in primary.accepted

    def recover(self) -> None:
        """After a total failure, start again whoever is ready by a set that is out of date: it
        stands in the others' way.
        """
        store = self.world.store
        newest = (
            store.kept
            if store is not None
            else max(machine.cluster.promises.in_sync for machine in self.world.machines)
        )
        if not any(
            machine.cluster.promises.is_complete and machine.system_id in newest.members
            for machine in self.world.machines
        ):
            for machine in list(self.world.machines):
                if machine.cluster.promises.is_complete:
                    self.world.kill(machine.index)
                    self.restart(machine)
            self.world.run(0.5)


def play(seeds: range, *, durable: bool) -> None:
    for seed in seeds:
        try:
            history = History(seed, durable=durable)
            for _ in range(1000 if durable else 600):
                history.step()
            history.heal()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("block", range(10))
def test_no_accepted_word_is_lost_whatever_the_manager_does(block: int) -> None:
    play(range(block * 20, block * 20 + 20), durable=False)


@pytest.mark.parametrize("block", range(6))
def test_no_accepted_word_is_lost_whoever_crashes_where_each_has_a_journal(block: int) -> None:
    play(range(block * 20, block * 20 + 20), durable=True)
