"""What a cluster does when hosts fail, found out by having it happen: each cell of the tables of
docs/choices.md is an experiment with machines of `cluster_world`, and their text is written here.

A manager promotes whom it can, as soon as there is no primary. With `ha-recorder=manager` its store
is reached from the side on which it promotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from tests.ha.cluster_world import SECOND, World, after, publish


class Way(StrEnum):
    """How a cluster decides."""

    STRICT = "strict"
    STORE = "manager"
    TRUST = "trust-manager"


TITLES = {
    Way.STRICT: "`ha-safety=strict`",
    Way.STORE: "`ha-recorder=manager`",
    Way.TRUST: "`ha-safety=trust-manager`",
}


class Outcome(StrEnum):
    """What clients and operators see."""

    GOES_ON = "goes on"
    WAITS = "**waits**"
    FORKS = "**two primaries**"
    LOSES = "**loses**"


def built(way: Way, brokers: int) -> World:
    """Return a cluster at work: the first broker is primary, and all are in sync."""
    world = World(
        brokers,
        safety="trust-manager" if way is Way.TRUST else "strict",
        recorder="manager" if way is Way.STORE else "brokers",
        durable=True,
        backup_timeout=SECOND,
    )
    assert after(world, world.machines[0]) == ""
    assert publish(world, 0, "before")
    return world


def served(world: World, indices: Iterable[int]) -> Outcome:
    """Say whether one of these takes a message, with everything that was accepted before."""
    for index in indices:
        machine = world.machines[index]
        if index in world.dead:
            continue
        if machine.cluster.primary is None and after(world, machine) != "":
            continue
        if accepts(world, index, "after"):
            accepted = {word for each in world.machines for word in each.accepted}
            return Outcome.GOES_ON if accepted <= set(machine.words) else Outcome.LOSES
    return Outcome.WAITS


def accepts(world: World, index: int, word: str) -> bool:
    """Whether a primary takes a word, be it when it has given up those that are gone."""
    machine = world.machines[index]
    machine.publish(word)
    world.run(5)
    return word in machine.accepted


def killed(world: World, *indices: int) -> None:
    """Kill hosts, and let the others notice."""
    for index in indices:
        world.kill(index)
    world.run(3)


def backup(world: World, brokers: int) -> Outcome:
    killed(world, 1)
    return served(world, [0])


def primary(world: World, brokers: int) -> Outcome:
    killed(world, 0)
    return served(world, range(1, brokers))


def backups_in_turn(world: World, brokers: int) -> Outcome:
    for index in range(1, brokers):
        killed(world, index)
    return served(world, [0])


def primaries_in_turn(world: World, brokers: int) -> Outcome:
    for index in range(brokers - 1):
        killed(world, index)
        found = served(world, range(index + 1, brokers))
    return found


def all_but_a_backup(world: World, brokers: int) -> Outcome:
    killed(world, *range(brokers - 1))
    return served(world, [brokers - 1])


def primary_cut_off(world: World, brokers: int) -> Outcome:
    world.part((0,), tuple(range(1, brokers)))
    if world.store is not None:
        world.store.reachable[0] = False
    world.run(3)
    others = served(world, range(1, brokers))
    old = world.machines[0]
    if old.cluster.primary is not None and accepts(world, 0, "apart"):
        return Outcome.FORKS if others is Outcome.GOES_ON else Outcome.GOES_ON
    return others


def power_cut(world: World, brokers: int) -> Outcome:
    killed(world, *range(brokers))
    for index in range(brokers):
        world.restart(index)
    return served(world, range(brokers))


def last_one_back_alone(world: World, brokers: int) -> Outcome:
    """The others fail, one by one; the last primary goes on if it may, fails, and comes back."""
    for index in range(1, brokers):
        killed(world, index)
        accepts(world, 0, f"without {index}")
    killed(world, 0)
    world.restart(0)
    return served(world, [0])


def stale_one_back_alone(world: World, brokers: int) -> Outcome:
    """A backup fails and misses what is accepted then; later all fail, and it comes back alone."""
    killed(world, 1)
    accepts(world, 0, "missed")
    killed(world, *(index for index in range(brokers) if index != 1))
    world.restart(1)
    return served(world, [1])


@dataclass(frozen=True, slots=True)
class Case:
    """A row of a table."""

    text: str
    act: Callable[[World, int], Outcome]
    needs: int = 2
    """Brokers without which it is another row."""


CASES = (
    Case("a backup fails", backup),
    Case("the primary fails", primary),
    Case("both backups fail, one after the other", backups_in_turn, 3),
    Case("the primary fails, then its successor", primaries_in_turn, 3),
    Case("two fail at once, the primary among them", all_but_a_backup, 3),
    Case("the primary is cut off from the others, and a backup is promoted", primary_cut_off),
    Case("all fail at once, and all come back with their disks", power_cut),
    Case(
        "all fail, one after the other, and the last primary comes back alone", last_one_back_alone
    ),
    Case(
        "all fail, and one comes back alone that had missed what was accepted last",
        stale_one_back_alone,
    ),
)


def outcome(case: Case, way: Way, brokers: int) -> Outcome:
    """Do the experiment of a cell."""
    return case.act(built(way, brokers), brokers)


def table() -> str:
    """Do all experiments, and write what came of them."""
    head = [(brokers, way) for brokers in (2, 3) for way in Way]
    lines = [
        f"| | {' | '.join(f'{brokers} hosts, {TITLES[way]}' for brokers, way in head)} |",
        f"|---{'|---' * len(head)}|",
    ]
    for case in CASES:
        cells = [
            str(outcome(case, way, brokers)) if brokers >= case.needs else "-"
            for brokers, way in head
        ]
        lines.append(f"| {case.text} | {' | '.join(cells)} |")
    return "\n".join(lines)
