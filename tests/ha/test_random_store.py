"""Random faults with ha-recorder=manager: two or three brokers, and one record in the cluster
manager's store.

Beside what befalls the brokers of `test_random_strict.py`, the manager's processes are slow, do
what they were told long ago, lose answers, give them twice and to a broker that was started again
since; and the store is out of reach of one machine or of all. No accepted word is missing from
whoever is promoted, and none is accepted that a primary of a later epoch has not. One seed is one
history.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qpidha.ha.candidates import Comparison
from qpidha.ha.membership import Membership
from tests.ha.cluster_world import Machine, Store
from tests.ha.test_random_strict import History


class StoreHistory(History):
    """One run."""

    def __init__(self, seed: int, *, durable: bool, compares: bool = True) -> None:
        super().__init__(seed, durable=durable, recorder="manager", sizes=(2, 2, 3))
        assert self.world.store is not None
        self.store: Store = self.world.store
        self.store.compares = compares
        self.store.answers = False

    def step(self) -> None:
        """Let the manager, or something else, go one step on."""
        rng = self.rng
        for _ in range(2):
            self.manage()
        if rng.random() < 0.01:
            index = rng.randrange(len(self.store.reachable))
            self.store.reachable[index] = not self.store.reachable[index]
        if rng.random() < 0.02:
            self.store.reachable = [True] * len(self.store.reachable)
        super().step()

    def manage(self) -> None:
        """Have one of the manager's processes ask, do or tell; now and then it does it again, or
        for the last time.
        """
        rng, store = self.rng, self.store
        machine = rng.choice(self.world.machines)
        if not self.answering(machine):
            return
        store.ask(machine)
        jobs = [job for job in store.jobs if job.index == machine.index]
        if not jobs:
            return
        job = rng.choice(jobs)
        if not job.is_done:
            store.do(job)
            if rng.random() < 0.05:
                job.is_done = False  # it is done once more, much later
            elif rng.random() < 0.05:
                store.jobs.remove(job)
                return
        store.tell(job, machine)
        if job.is_done and rng.random() < 0.95:
            store.jobs.remove(job)

    def answering(self, machine: Machine) -> bool:
        """Whether a broker can be asked."""
        return machine.index not in self.world.dead and not machine.paused

    def look(self) -> None:
        """Beside what is looked at anyway: what is accepted now is on every primary of a later
        epoch.
        """
        if self.durable:
            for machine in self.world.machines:
                later = [
                    each
                    for each in self.alive()
                    if each.state.is_primary and each.log.epoch > machine.log.epoch
                ]
                for each in later:
                    lacking = set(machine.accepted) - set(each.model.values())
                    assert not lacking, (
                        f"{machine.index} accepted {sorted(lacking)} beside "
                        f"{each.index}, epoch {each.log.epoch}"
                    )
        super().look()

    def heal(self) -> None:
        """The store is well again too."""
        self.store.reachable = [True] * len(self.store.reachable)
        self.store.jobs.clear()
        for machine in self.world.machines:
            machine.is_asked = False
        self.store.answers = True
        super().heal()


def play(seeds: range, *, durable: bool, compares: bool = True) -> None:
    for seed in seeds:
        try:
            history = StoreHistory(seed, durable=durable, compares=compares)
            for _ in range(1000 if durable else 600):
                history.step()
            history.heal()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("block", range(8))
def test_no_accepted_word_is_lost_whatever_manager_and_store_do(block: int) -> None:
    play(range(block * 20, block * 20 + 20), durable=False)


@pytest.mark.parametrize("block", range(8))
def test_no_accepted_word_is_lost_whoever_crashes_where_each_has_a_journal(block: int) -> None:
    play(range(block * 20, block * 20 + 20), durable=True)


# Planted bugs: each has to be caught, or the histories above prove nothing.


def in_force_before_it_is_recorded(patch: pytest.MonkeyPatch) -> None:
    def propose(membership: Membership, attempts: int) -> None:
        set_ = membership.primary.propose()
        membership._commit(set_)
        membership._record(set_)

    patch.setattr(Membership, "_propose", propose)


def promoted_outside_the_kept_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Comparison, "outside", lambda comparison, row: None)


@pytest.mark.parametrize(
    ("bug", "seed"), [(in_force_before_it_is_recorded, 60), (promoted_outside_the_kept_set, 0)]
)
def test_a_planted_bug_is_caught(
    bug: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    assert caught(range(seed, seed + 40))


def test_a_store_that_does_not_compare_is_caught() -> None:
    assert caught(range(40), compares=False)


def caught(seeds: range, *, compares: bool = True) -> bool:
    """Whether in some history something is lost, or two brokers accept."""
    for seed in seeds:
        history = StoreHistory(seed, durable=True, compares=compares)
        try:
            for _ in range(1000):
                history.step()
        except AssertionError as error:
            assert "lost" in str(error) or "beside" in str(error)
            return True
    return False
