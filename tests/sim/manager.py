"""Manager: the cluster resource manager of a world. Left alone it does its best; faults make it
promote wrongly.

It looks at the machines from time to time, as a monitor action does, and asks for a promotion when
it has seen no primary for a while. When it heals, it does what an operator would after everything
else failed.
"""

from __future__ import annotations

from typing import Any

from tests.sim.machine import Cluster, Machine
from tests.sim.world import MILLISECOND, World

READY_FIRST = {"ready": 0, "joining": 1, "catchup": 2}


class Manager:
    """Decides who is promoted."""

    def __init__(self, world: World, cluster: Cluster, watcher: Any) -> None:
        self.world = world
        self.cluster = cluster
        self.watcher = watcher
        self.healing = False
        self.missed = 0
        self.asked = 0
        self.refusals: list[str] = []

    def start(self) -> None:
        """Begin to look."""
        self.world.at(self.world.between(50 * MILLISECOND, 300 * MILLISECOND), self._look)

    def promote(self, machine: Machine) -> None:
        """Ask a broker to be primary."""
        if machine.is_up:
            self.world.note("mgr", f"promotes {machine.host}")
            machine.request("promote", {}, lambda reply: self._answered(machine, reply))

    def demote(self, machine: Machine) -> None:
        """Ask a broker not to be primary."""
        if machine.is_up:
            self.world.note("mgr", f"demotes {machine.host}")
            machine.request("demote", {}, lambda reply: None)

    def switch_over(self, machine: Machine, target: str) -> None:
        """Ask a broker to hand over to another, by its address, its system id, or to whom it
        likes.
        """
        if machine.is_up:
            self.world.note("mgr", f"has {machine.host} hand over to {target or 'the best'}")
            machine.request(
                "switchover", {"target": target}, lambda reply: self._handed_over(machine, reply)
            )

    def _handed_over(self, machine: Machine, reply: dict[str, Any]) -> None:
        self.world.note(
            "mgr",
            f"{machine.host} says of its switchover: "
            f"{reply.get('result') or reply['error']['message']}",
        )
        if "result" in reply:
            self.watcher.handed_over(machine, reply["result"])

    def heal(self) -> None:
        """All faults are over: get one primary, whatever it takes."""
        self.healing = True
        self.asked = 0
        self.refusals.clear()

    def _answered(self, machine: Machine, reply: dict[str, Any]) -> None:
        error = reply.get("error")
        if error:
            self.world.note("mgr", f"{machine.host} refuses: {error['message']}")
            self.refusals.append(machine.host)

    def _look(self) -> None:
        world = self.world
        world.at(world.between(100 * MILLISECOND, 300 * MILLISECOND), self._look)
        visible = [
            machine for machine in self.cluster.machines if machine.is_up and not machine.is_paused
        ]
        if any(machine.state.is_primary for machine in visible):
            self.missed = self.asked = 0
            self.refusals.clear()
            return
        self.missed += 1
        if self.missed < 2 or not visible:
            return
        self.missed = 0
        self.asked += 1
        if (
            self.healing and self.asked > 3 * len(visible) and self.asked % (len(visible) + 1) == 0
        ):  # never in the turn of the same broker
            self._start_over()
            return
        best = sorted(visible, key=self._rank)
        # It goes through the list as long as it gets refusals.
        self.promote(best[(self.asked - 1) % len(best)])

    def _rank(self, machine: Machine) -> tuple[Any, ...]:
        set_, log = machine.memory.in_sync, machine.node.log
        return (
            READY_FIRST.get(machine.state.value, 3),
            not machine.is_complete,
            -set_.epoch,
            -set_.version,
            -log.epoch,
            -log.last,
        )

    def _start_over(self) -> None:
        """Nobody may be promoted: start again whoever is ready by a set that is out of date, for he
        stands in the others' way.
        """
        newest = max(machine.memory.in_sync for machine in self.cluster.machines)
        if any(
            machine.is_complete and machine.system_id in newest.members
            for machine in self.cluster.machines
        ):
            return
        for machine in self.cluster.machines:
            if machine.is_complete:
                self.world.note("mgr", f"starts {machine.host} again")
                machine.crash()
                machine.restart()


class TrustedManager(Manager):
    """One that never errs: it knows the newest in-sync set, waits for its members, and fences
    before it promotes.

    It sees the state files of all machines, as a manager does that keeps the set in a store of its
    own.
    """

    def _look(self) -> None:
        world, machines = self.world, self.cluster.machines
        world.at(world.between(100 * MILLISECOND, 300 * MILLISECOND), self._look)
        visible = [machine for machine in machines if machine.is_up and not machine.is_paused]
        if any(machine.state.is_primary or is_busy(machine) for machine in visible):
            self.missed = 0
            return
        self.missed += 1
        best = self._best(visible)
        if self.missed < 2 or best is None:
            return
        self.missed = 0
        for machine in machines:
            if machine is not best and (machine.is_paused or machine.state.is_primary):
                world.note("mgr", f"fences {machine.host}")
                machine.crash(power=True, disk="drop")
                world.at(world.between(100 * MILLISECOND, 1000 * MILLISECOND), machine.restart)
        for machine in machines:
            if machine.is_complete and machine.system_id not in self._newest():
                world.note("mgr", f"starts {machine.host} again, it is out of date")
                machine.crash()
                machine.restart()
        self.promote(best)

    def _newest(self) -> tuple[str, ...]:
        return max(machine.memory.in_sync for machine in self.cluster.machines).members

    def _best(self, visible: list[Machine]) -> Machine | None:
        """Return a complete member of the newest set; where none is left, the member with the most,
        once all are there.
        """
        newest = self._newest()
        members = [
            machine
            for machine in self.cluster.machines
            if machine.system_id in newest or not newest
        ]
        present = [machine for machine in members if machine in visible]
        complete = [machine for machine in present if machine.is_complete]
        if not complete and len(present) < len(members):
            return None
        return max(
            complete or present,
            key=lambda machine: (machine.node.log.epoch, machine.node.log.last),
            default=None,
        )


def is_busy(machine: Machine) -> bool:
    """Whether a promotion or a hand-over is under way there."""
    cluster = machine.node.cluster
    return cluster is not None and (cluster._promotion is not None or cluster.handover is not None)
