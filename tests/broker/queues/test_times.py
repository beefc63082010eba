"""Which messages of a queue are to be looked at when: compared with a list of all of them."""

from __future__ import annotations

import random

import pytest

from qpidha.broker.queues import times as times_module
from qpidha.broker.queues.messages import Messages
from qpidha.broker.queues.times import GRAIN, SPARE, Times
from qpidha.model.message import Message


def of(*sequences: int) -> Messages:
    found = Messages()
    found.update((sequence, Message(sequence, b"")) for sequence in sequences)
    return found


def test_a_message_is_looked_at_shortly_after_its_time_and_not_before() -> None:
    times = Times(of(1, 2, 3))
    assert times.first == 0
    assert times.add(5 * GRAIN + 1, 1) and not times.add(5 * GRAIN + 9, 2)
    assert times.first == 6 * GRAIN
    assert times.due(6 * GRAIN - 1, 10) == [] and times.due(6 * GRAIN, 10) == [1, 2]
    assert times.first == 0 and len(times) == 0


def test_it_is_told_when_something_comes_first() -> None:
    times = Times(of(1, 2, 3))
    assert times.add(9 * GRAIN, 1)
    assert not times.add(20 * GRAIN, 2)
    assert times.add(GRAIN, 3)


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_what_a_list_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times_module, "PAGE", 4)
    random_ = random.Random(seed)
    present = of()
    listed: dict[int, int] = {}
    times = Times(present)
    now = sequence = 0
    for _ in range(3000):
        if random_.random() < 0.8:
            at = now + random_.choice((1, 3, 50)) * random_.randrange(1, GRAIN * 3)
            run = range(sequence + 1, sequence + random_.choice((1, 1, 1, 10)) + 1)
            sequence = run[-1]
            present.update((one, Message(one, b"")) for one in run)
            listed.update(dict.fromkeys(run, at))
            if len(run) > 1:
                times.add_run(at, run)
            else:
                times.add(at, sequence)
        if present and random_.random() < 0.6:
            del present[random_.choice(sorted(present))]
        if random_.random() < 0.2:
            now += random_.randrange(GRAIN * 3)
            found = {one for one in times.due(now, 10**9) if one in present}
            late = {one for one in present if listed[one] <= now - GRAIN}
            assert late <= found <= {one for one in present if listed[one] <= now}
            for one in found:
                del present[one]


def test_what_has_left_takes_no_room_long_before_its_time() -> None:
    present = of()
    times = Times(present)
    for sequence in range(20_000):
        present[sequence] = Message(sequence, b"")
        times.add(10**18 + sequence * GRAIN // 3, sequence)
        present.pop(sequence - 10, None)
    assert len(times) < 100
    assert len(times._heap) < 4 * SPARE and len(times._open) <= len(times._heap)
