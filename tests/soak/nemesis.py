"""The nemesis and the resource manager of the soak: one breaks what it likes, the other promotes
whom it sees.

Faults overlap at random: SIGKILL, SIGTERM, SIGSTOP, power cuts, all brokers gone at once, one cut
off from the others, one link cut, one direction of a link cut, a promotion over the head of a
healthy primary. The manager sees what a manager beside the majority would see: brokers that are
frozen or cut off do not answer it.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

from qpidha.client.admin import LinkBroken
from qpidha.model.errors import RefusedRequest
from tests.soak.history import History
from tests.system.cluster import Broker, Cluster
from tests.system.power import cut_power, shadow_of

LOOK = 0.1
WEIGHTS = {
    "kill-primary": 4,
    "kill-any": 4,
    "kill-two": 1,
    "kill-all": 1,
    "terminate": 1,
    "stop-primary": 3,
    "stop-any": 3,
    "isolate-primary": 3,
    "isolate-any": 2,
    "cut-link": 2,
    "cut-one-way": 2,
    "promote-another": 2,
    "power-any": 2,
    "power-all": 1,
}


class Manager:
    """Restarts what died and promotes when it sees no primary."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.say = say
        self.invisible: set[int] = set()
        self.restart_at: dict[int, float] = {}
        self.promotions = 0
        self.refusals = 0
        self._missing_since = 0.0
        self._turn = 0

    def statuses(self) -> dict[int, dict[str, object]]:
        """Ask everyone who can be seen."""
        found = {}
        for index, broker in enumerate(self.cluster):
            if index not in self.invisible and broker.is_running:
                status = broker.status()
                if status:
                    found[index] = status
        return found

    def look(self) -> dict[int, dict[str, object]]:
        """Do what is due; return what was seen."""
        for index, broker in enumerate(self.cluster):
            if not broker.is_running:
                due = self.restart_at.setdefault(index, time.monotonic() + 0.5)
                if time.monotonic() >= due:
                    del self.restart_at[index]
                    broker.start()
        seen = self.statuses()
        if any(status["state"] in ("active", "recovering") for status in seen.values()):
            self._missing_since = 0.0
        elif not self._missing_since:
            self._missing_since = time.monotonic()
        elif time.monotonic() - self._missing_since > 0.6:
            self._promote_best(seen)
        return seen

    def _promote_best(self, seen: dict[int, dict[str, object]]) -> None:
        """Try the best first, then the others in turn, as a simple manager does that learns nothing
        from a no.
        """
        ranks = sorted(
            seen,
            key=lambda i: (seen[i]["state"] == "ready", seen[i]["epoch"], seen[i]["sequence"]),
            reverse=True,
        )
        if not ranks:
            return
        index = ranks[self._turn % len(ranks)]
        self._turn = 0 if self.promote(index) else self._turn + 1

    def promote(self, index: int) -> bool:
        """Promote one broker; whether it agreed."""
        try:
            self.cluster[index].promote()
        except RefusedRequest as refusal:
            self.refusals += 1
            self.say(f"b{index} refused: {refusal.text}")
            return False
        except LinkBroken:
            return False
        self.promotions += 1
        self.say(f"promoted b{index}")
        return True


class Nemesis:
    """Starts a fault when it is time, and ends it some time later."""

    def __init__(
        self,
        cluster: Cluster,
        manager: Manager,
        history: History,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self.cluster = cluster
        self.manager = manager
        self.history = history
        self.choices = random.Random(seed)
        self.say = say
        self.counts: dict[str, int] = {}
        self._number = 0
        self._ending: list[tuple[float, int, str, str, Callable[[], None]]] = []
        self._next = time.monotonic() + 2.0

    def look(self, seen: dict[int, dict[str, object]]) -> None:
        """End what is over; start a fault if it is time."""
        now = time.monotonic()
        for entry in [entry for entry in self._ending if now >= entry[0]]:
            self._end(entry)
        if now >= self._next:
            # Half of the time the next comes before the cluster has recovered from this one.
            self._next = now + self.choices.choice(
                (self.choices.uniform(0.2, 2.0), self.choices.uniform(4.0, 9.0))
            )
            self._begin(seen)

    def last_fault(self) -> None:
        """Kill the primary and cut another off, so that there is something to recover from;
        `end_all` follows at once.
        """
        for kind in ("isolate-any", "kill-primary"):
            self._begin(self.manager.statuses(), kind)

    def end_all(self) -> None:
        """Heal everything."""
        for entry in list(self._ending):
            self._end(entry)
        for index in range(len(self.cluster)):
            self._cont(index)

    def _begin(self, seen: dict[int, dict[str, object]], kind: str = "") -> None:
        kind = kind or self.choices.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        primaries = [i for i, status in seen.items() if status["state"] in ("active", "recovering")]
        anybody = self.choices.randrange(len(self.cluster))
        victim = primaries[0] if kind.endswith("-primary") and primaries else anybody
        other = (victim + self.choices.choice((1, 2))) % len(self.cluster)
        lasts = self.choices.choice(
            (self.choices.uniform(0.1, 1.0), self.choices.uniform(1.0, 5.0))
        )
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._number += 1
        target, end = self._do(kind, victim, other, lasts)
        self.history.fault(self._number, "start", kind, target)
        self.say(f"{kind} {target} for {lasts:.1f} s")
        self._ending.append((time.monotonic() + lasts, self._number, kind, target, end))

    def _do(
        self, kind: str, victim: int, other: int, lasts: float
    ) -> tuple[str, Callable[[], None]]:
        """Begin one fault; return its target and how it ends."""
        if kind.startswith(("kill", "terminate", "power")):
            everybody = list(range(len(self.cluster)))
            victims = {
                "kill-two": [victim, other],
                "kill-all": everybody,
                "power-all": everybody,
            }.get(kind, [victim])
            for index in victims:
                self._kill(index, signal.SIGTERM if kind == "terminate" else signal.SIGKILL)
            for index in victims:
                if kind.startswith("power") and shadow_of(self.cluster[index].data_dir).exists():
                    cut_power(self.cluster[index].data_dir, self.choices)
                self.manager.restart_at[index] = time.monotonic() + lasts
            return " ".join(f"b{index}" for index in victims), lambda: None
        if kind.startswith("stop"):
            self._signal(self.cluster[victim], signal.SIGSTOP)
            self.manager.invisible.add(victim)
            return f"b{victim}", lambda: self._cont(victim)
        if kind == "promote-another":
            self.manager.promote(other)
            return f"b{other}", lambda: None
        network = self.cluster.network
        assert network is not None
        if kind.startswith("isolate"):
            network.isolate(victim)
            self.manager.invisible.add(victim)
            return f"b{victim}", self._heal
        network.cut(victim, other, both=kind == "cut-link")
        return f"b{victim} b{other}", self._heal

    def _end(self, entry: tuple[float, int, str, str, Callable[[], None]]) -> None:
        self._ending.remove(entry)
        _, number, kind, target, end = entry
        end()
        self.history.fault(number, "stop", kind, target)

    def _heal(self) -> None:
        """End all cuts: two that overlap end together."""
        assert self.cluster.network is not None
        self.cluster.network.heal()
        self.manager.invisible = {i for i in self.manager.invisible if self._is_stopped(i)}

    def _is_stopped(self, index: int) -> bool:
        return any(
            kind.startswith("stop") and target == f"b{index}"
            for _, _, kind, target, _ in self._ending
        )

    def _cont(self, index: int) -> None:
        self._signal(self.cluster[index], signal.SIGCONT)
        self.manager.invisible.discard(index)

    def _kill(self, index: int, number: int) -> None:
        broker = self.cluster[index]
        self._signal(broker, number)
        if number == signal.SIGKILL:
            broker.kill()

    @staticmethod
    def _signal(broker: Broker, number: int) -> None:
        if broker.is_running:
            broker.signal(number)
