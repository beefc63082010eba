"""One scenario: clients at work, something happens, the cluster goes on, and everything is compared
in the end.

A play ends with a settled cluster. It asserts what must hold whatever happened: nothing that was
accepted is lost or out of order, the address had one holder at a time, no two brokers were active
at once, and whoever was promoted was in sync.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from tests.lab.cluster import LabCluster
from tests.lab.lab import Lab
from tests.lab.sampling import Promotion, Watch, overlapping
from tests.lab.traffic import Traffic
from tests.system.cluster import wait_for

SIGNS = ("fail-count-broker", "fail-count-vip", "state is now lost")
"""What Pacemaker writes first when it has noticed: a failure of a resource, or a host that left."""
PAST = 0.5
"""Seconds of samples before a play that it looks at too, for what was known then."""


@dataclass(slots=True)
class Times:
    """What a failover took, in seconds after what happened; None for what did not come."""

    scenario: str
    detect: float | None = None
    promote: float | None = None
    accept: float | None = None
    outage: float | None = None
    """Longest time between two accepted messages."""
    accepted: int = 0
    lost: int = 0
    promoted: list[str] = field(default_factory=list)


class Stage:
    """A lab with its cluster and all its samplers."""

    def __init__(self, lab: Lab, interval: float = 0.1) -> None:
        self.lab = lab
        self.cluster = LabCluster(lab)
        self.watch = Watch(lab, interval)
        self.times: list[Times] = []
        self.broken = ""
        """Since when the cluster does not settle; there is no use in playing on."""

    @contextmanager
    def play(self, name: str) -> Iterator[Play]:
        """Play one scenario with clients."""
        assert not self.broken, f"the cluster has not settled since {self.broken}"
        self.broken = f"before {name}"
        self.cluster.wait_settled()
        with Traffic(name) as traffic:
            traffic.wait_flow()
            play = Play(name, self, traffic)
            self.broken = f"after {name}"
            try:
                yield play
            finally:
                play.mend()
                self.broken = ""
            play.compare()


class Play:
    """One scenario under way."""

    def __init__(self, name: str, stage: Stage, traffic: Traffic) -> None:
        self.name = name
        self.stage = stage
        self.lab, self.cluster, self.watch = stage.lab, stage.cluster, stage.watch
        self.traffic = traffic
        self.primary = self.cluster.primary()
        self.began = self.at = time.monotonic()
        self.times = Times(name)

    @property
    def backups(self) -> list[str]:
        return [name for name in self.lab.names if name != self.primary]

    def now(self) -> None:
        """Note that it happens now; all times count from here."""
        self.at = time.monotonic()

    def wait_promoted(self) -> str:
        """Wait until another broker is promoted and has accepted a message through the address;
        return its host.
        """

        def look() -> Promotion | None:
            return next(
                (one for one in self.watch.promotions(self.at) if one.name != self.primary), None
            )

        new = wait_for(look, what="a promotion")
        assert new is not None
        self.wait_accepted(new.at)
        detect = self.watch.log.first(self.at, *SIGNS)
        self.times.detect = None if detect is None else detect - self.at
        self.times.promote = new.at - self.at
        return new.name

    def wait_accepted(self, after: float = 0.0) -> None:
        """Wait until a message is accepted that was not before; note when."""
        after = after or time.monotonic()
        look = self.traffic.first_accepted_after
        accepted = wait_for(
            lambda: look(after), what=f"an acceptance ({self.traffic.sender.losses[-3:]})"
        )
        assert accepted is not None
        self.times.accept = accepted - self.at

    def mend(self) -> None:
        """Undo everything and wait until the cluster has settled."""
        self.lab.heal()
        for name in self.lab.names:
            self.lab.on(name)
        self.cluster.unstandby()
        self.cluster.wait_settled()

    def compare(self) -> None:
        """Note the times, and see whether everything that must hold did."""
        self.traffic.wait_flow()
        self.times.outage = self.traffic.outage(self.at)
        missing = self.traffic.settle()
        promoted = self.watch.promotions(self.began)
        self.times.promoted = [one.name for one in promoted]
        self.times.accepted, self.times.lost = len(self.traffic.sender.bodies()), len(missing)
        self.stage.times.append(self.times)
        with (self.lab.folder / "times.jsonl").open("a") as file:
            file.write(json.dumps(asdict(self.times)) + "\n")
        wrong = {
            "accepted and lost": missing,
            "out of order": self.traffic.disorder(),
            "two holders of the address": self.watch.address.doubles(self.began),
            "two active brokers": overlapping(self.watch.samples(self.began - PAST)),
            "promoted and not in sync": [one for one in promoted if not one.was_in_sync],
        }
        found = {what: seen for what, seen in wrong.items() if seen}
        assert not found, f"{self.name}: {found}"
