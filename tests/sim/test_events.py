"""Journals of events of simulated histories: they change no history, are of the format, and the
checks find them in order.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest

from qpidha.model.effects import WriteEvents
from qpidha.pipeline.events import Event, examine
from qpidha.pipeline.oracle.engine import check
from tests.patience import LONG_TEST
from tests.sim import workload
from tests.sim.__main__ import play
from tests.sim.machine import Machine
from tests.sim.plan import draw

SEEDS = range(8)
FORGETS = ("has its former disk again", "loses its disk")
"""How a line of a history ends where a broker forgets what it heard."""

pytestmark = pytest.mark.timeout(LONG_TEST)  # One history on the wire is 9 s of CPU.


class Books:
    """What all machines wrote in one history."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.numbers: dict[tuple[str, str], int] = {}

    def note(self, machine: Machine, effect: WriteEvents) -> None:
        boot = f"{machine.life:08x}"
        for row in effect.rows:
            number = self.numbers.get((machine.host, boot), 0)
            self.numbers[machine.host, boot] = number + 1
            name = machine.node.event_log._name
            times = f'"t":{effect.at // 1000},"m":{effect.at}'
            self.events.append(
                json.loads(f'{{"n":"{name}","b":"{boot}","s":{number},{times},{row}}}')
            )


@pytest.fixture
def books(monkeypatch: pytest.MonkeyPatch) -> Iterator[Books]:
    found = Books()
    monkeypatch.setattr(Machine, "noted", lambda machine, effect: found.note(machine, effect))
    yield found


def at_level(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    def drawn(world: Any, depth: str) -> Any:
        plan = draw(world, depth)
        return dataclasses.replace(
            plan,
            settings=dataclasses.replace(
                plan.settings, journal_events=level, journal_events_dir="simulated"
            ),
        )

    monkeypatch.setattr(workload, "draw", drawn)


@pytest.mark.parametrize("depth", ["model", "wire"])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_written_down_changes_nothing_and_is_in_order(
    seed: int, depth: str, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = []
    for level in ("off", ("state", "sampled")[seed % 2], "full"):
        books.events.clear()
        at_level(monkeypatch, level)
        result = play(seed, depth, tracing=True)
        assert not result.failure
        histories.append(
            [line for line in result.lines if " world Plan(" not in line]
        )  # it tells the settings
        assert bool(books.events) is (level != "off")
        for event in books.events:
            assert examine(event) == ("", ()), event
        if not any(line.endswith(FORGETS) for line in result.lines):
            judge(books.events)  # else a broker may have heard of a later epoch and not know it
    assert all(history == histories[0] for history in histories)
    kinds = {event["k"] for event in books.events}
    assert {"role", "epoch", "insync", "promotion", "member", "enq", "deq"} <= kinds


def judge(events: list[Event]) -> None:
    """The journals agree with what a cluster promises."""
    if not events:
        return
    verdict = {each.name: each for each in check(events).checks}
    assert verdict["primaries"].valid is not False, verdict["primaries"].offenders
    safe = verdict["accepted-before-safe"]
    assert safe.counts["unsafe"] == safe.counts["unjudged"] == 0, safe.offenders
