"""Synthetic journals of three brokers and synthetic locks, for `histories.py`.

The brokers do what ours do: a primary gives each message a position, backups confirm it, then it is
accepted; a failover is detected, asked for, granted and over after some milliseconds. Nothing here
is random but who holds a lock.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from qpidha.pipeline.events import CLIENT

Line = tuple[str, int, str]
"""Who writes, when (ns), and what, as JSON after the envelope."""
LOCK_OPS = 1 << 50


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """How the brokers are."""

    run: str
    brokers: int = 3
    failover_ns: int = 50_000_000


class Brokers:
    """The brokers and their journals."""

    def __init__(self, plan: BrokerPlan) -> None:
        self.plan = plan
        self.names = [f"broker-{number}" for number in range(plan.brokers)]
        self.primary = 0
        self.epoch = 1
        self.position = 0

    def begin(self, at: int) -> Iterator[Line]:
        """Start all, promote the first."""
        for name in self.names[1:]:
            yield name, at, self._role("ready")
        yield from self._promote(at)

    def fail_over(self, at: int, fault: int) -> Iterator[Line]:
        """Stop the primary, promote the next, let the former find out when it goes on."""
        old = self.names[self.primary]
        part = self.plan.failover_ns // 10
        run = json.dumps(self.plan.run)
        yield (
            "nemesis",
            at,
            f'"k":"fault","run":{run},"o":{fault},"y":"start","f":"stop","x":"{old}"',
        )
        self.primary = (self.primary + 1) % len(self.names)
        new = self.names[self.primary]
        yield (
            new,
            at + part,
            f'"k":"failover","f":"detected","x":"{old}","e":{self.epoch},"dt":{part}',
        )
        yield new, at + 2 * part, f'"k":"promotion","f":"asked","x":"{old} is gone"'
        self.epoch += 1
        yield from self._promote(at + 3 * part)
        yield (
            "nemesis",
            at + 8 * part,
            f'"k":"fault","run":{run},"o":{fault},"y":"stop","f":"stop","x":"{old}"',
        )
        yield old, at + 9 * part, self._role("joining")
        yield old, at + 10 * part, self._role("ready")

    def usurp(self, at: int) -> Iterator[Line]:
        """Let a backup accept a message in the epoch of the primary; then end that epoch, so that
        each is a case of its own.
        """
        other = self.names[(self.primary + 1) % len(self.names)]
        yield other, at, f'"k":"insync","e":{self.epoch},"set":"{other}"'
        yield other, at, f'"k":"conf","e":{self.epoch},"p":{self.position + 1}'
        self.epoch += 1
        yield from self._promote(at)

    def accept(self, tick: Callable[[], int], queue: str, name: str) -> list[Line]:
        """Return what the primary notes from the arrival of a message to its acceptance."""
        self.position += 1
        primary = self.names[self.primary]
        place = f'"e":{self.epoch},"p":{self.position}'
        noted = [(primary, tick(), f'"k":"enq","q":"{queue}",{place},"i":"{name}"')]
        for peer in self.names:
            if peer != primary:
                lag = 200_000 + self.position % 7 * 50_000
                noted.append((primary, tick(), f'"k":"rep","x":"{peer}",{place},"dt":{lag}'))
        noted.append(
            (
                primary,
                tick(),
                f'"k":"conf","q":"{queue}",{place},"dt":{300_000 + self.position % 5 * 50_000}',
            )
        )
        return noted

    def _promote(self, at: int) -> Iterator[Line]:
        primary = self.names[self.primary]
        for name in self.names:
            yield name, at, f'"k":"epoch","e":{self.epoch},"x":"{primary}"'
        yield primary, at, self._role("recovering")
        yield primary, at + 1000, self._role("active")
        yield primary, at + 1000, f'"k":"insync","e":{self.epoch},"set":"{" ".join(self.names)}"'
        for peer in self.names:
            if peer != primary and self.position:
                yield (
                    primary,
                    at + 2000,
                    f'"k":"rep","x":"{peer}","e":{self.epoch},"p":1,"hi":{self.position}',
                )

    def _role(self, role: str) -> str:
        return f'"k":"role","r":"{role}","e":{self.epoch}'


def lock_lines(
    run: str, seed: int, locks: int, holds: int, overlaps: int, lost_leases: int, begin: int
) -> Iterator[Line]:
    """Yield the history of locks; `overlaps` holds begin while another lasts, `lost_leases` of them
    after its holder knew.
    """
    if overlaps > locks * (holds // 2):
        raise ValueError(
            f"{overlaps} overlaps need {2 * overlaps} holds, and there are {locks * holds}"
        )
    choices = random.Random(seed)
    # An overlap is a pair of holds: the second of pair p of a lock begins while the first lasts.
    pairs = choices.sample(range(locks * (holds // 2)), overlaps)
    bad = {pair: index < lost_leases for index, pair in enumerate(pairs)}
    start = f'"k":"op","run":{json.dumps(run)},"o":'
    at, op = begin, LOCK_OPS

    def step(number: int, process: int, outcome: str, what: str, lock: int) -> Line:
        nonlocal at
        at += choices.randrange(1_000, 50_000)
        return (
            "client-lock",
            at,
            f'{start}{number},"c":{process * CLIENT},"y":"{outcome}","f":"{what}","q":"lock{lock}"',
        )

    for lock in range(locks):
        hold = 0
        while hold < holds:
            first, second = choices.sample(range(1, 6), 2)
            op += 4
            is_pair = hold + 1 < holds and hold % 2 == 0
            knows = bad.get(lock * (holds // 2) + hold // 2) if is_pair else None
            yield step(op, first, "invoke", "acquire", lock)
            yield step(op, first, "ok", "acquire", lock)
            if knows is None:
                yield step(op + 1, first, "invoke", "release", lock)
                yield step(op + 1, first, "ok", "release", lock)
                hold += 1
                continue
            if knows:
                yield step(op + 1, first, "info", "lost", lock)
            yield step(op + 2, second, "invoke", "acquire", lock)
            yield step(op + 2, second, "ok", "acquire", lock)
            for number, process in ((op + 3, first), (op + 4, second)):
                yield step(number, process, "invoke", "release", lock)
                yield step(number, process, "ok", "release", lock)
            op += 4
            hold += 2
