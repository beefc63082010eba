"""The event log on disk: whole, bounded, numbered, and never in the way of the broker."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from qpidha.model.effects import WriteEvents
from qpidha.model.event_log import STORY_LENGTH
from qpidha.model.settings import Settings
from qpidha.pipeline.segments import Reader
from qpidha.runtime import event_log
from qpidha.runtime.event_log import EventLogWriter
from tests.patience import STATE

ROW = '"k":"conn","x":"here","f":"up"'


class Journalled:
    """A journal and what it warned of."""

    def __init__(self, place: Path, **settings: Any) -> None:
        self.place = place
        self.warned: list[str] = []
        self.journal = EventLogWriter(
            Settings(data_dir=str(place), **settings), "b 1", offset=5, warn=self.warned.append
        )

    def note(self, count: int = 1, row: str = ROW, at: int = 7005) -> None:
        self.journal.take(WriteEvents(at, [row] * count))

    def events(self) -> list[dict[str, Any]]:
        reader = Reader([self.place / "events"])
        found = list(reader)
        assert not reader.inputs.quarantined
        return found

    def end(self) -> list[dict[str, Any]]:
        self.journal.close(10)
        return self.events()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "GATHER", 0.0)


@pytest.mark.parametrize("level", ["state", "full"])
def test_notes_become_numbered_events_with_the_time_of_their_turn(place: Path, level: str) -> None:
    journalled = Journalled(place, journal_events=level)
    journalled.note(2)
    journalled.note(1, at=9005)
    events = journalled.end()
    assert [event["s"] for event in events] == [0, 1, 2]
    assert [(event["t"], event["m"]) for event in events] == [(7, 7000), (7, 7000), (9, 9000)]
    assert {event["n"] for event in events} == {"b_1"} and {event["x"] for event in events} == {
        "here"
    }
    (path,) = (place / "events").iterdir()
    assert (path.parent.stat().st_mode & 0o7, path.stat().st_mode & 0o7) == (0, 0)
    assert json.loads(path.read_text().splitlines()[-1])["final"] is True and not journalled.warned


def test_with_full_an_event_is_with_the_kernel_before_what_follows_it(place: Path) -> None:
    journalled = Journalled(place, journal_events="full")
    for number in range(3):
        journalled.note()
        assert len(journalled.events()) == number + 1
    journalled.journal.close(1)


def test_a_change_of_role_ends_the_segment(place: Path) -> None:
    journalled = Journalled(place, journal_events="full")
    journalled.note(row='"k":"role","r":"active","e":1')
    assert [path.name[-15:] for path in (place / "events").glob("journal-*")] == ["-00000001.jsonl"]
    journalled.note()
    events = journalled.end()
    assert [event["s"] for event in events] == [0, 1] and len(
        list((place / "events").glob("journal-*"))
    ) == 2


def test_the_oldest_segments_go_when_the_limit_is_reached_and_that_is_noted(place: Path) -> None:
    journalled = Journalled(place, journal_events="full", journal_events_limit=1 << 20)
    foreign = place / "events" / "journal-b2-00000000-00000001.jsonl"
    foreign.parent.mkdir()
    foreign.write_text("not ours")
    for _ in range(60):
        journalled.note(400)
    journalled.journal.close(1)
    sizes = [path.stat().st_size for path in (place / "events").iterdir() if path != foreign]
    assert sum(sizes) <= 1 << 20 and len(sizes) > 4 and foreign.exists()
    foreign.unlink()
    events = journalled.events()
    drops = [event for event in events if event["k"] == "drop"]
    assert drops and all(
        event["cnt"] > 400 and event["x"].startswith("removed journal-b_1-") for event in drops
    )
    numbers = [event["s"] for event in events]
    assert numbers == list(range(numbers[0], numbers[-1] + 1)) and numbers[0] > 0


def test_what_the_queue_has_no_room_for_is_counted(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journalled = Journalled(place)
    journalled.note()
    monkeypatch.setattr(event_log, "MOST_WAITING", -(10**9))
    journalled.note(3)
    journalled.note(2)
    monkeypatch.setattr(event_log, "MOST_WAITING", 1000)
    journalled.note()
    events = journalled.end()
    assert [event["s"] for event in events] == [0, 6, 7]
    assert {key: events[1][key] for key in ("k", "cnt", "p", "hi", "x")} == {
        "k": "drop",
        "cnt": 5,
        "p": 1,
        "hi": 5,
        "x": "queue",
    }


def test_a_journal_that_cannot_be_written_is_warned_of_once_and_costs_events_only(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "PAUSE", 0.0)
    in_the_way = place / "events"
    in_the_way.write_text("")
    journalled = Journalled(place, journal_events="full")
    journalled.note(2)
    journalled.note()
    assert len(journalled.warned) == 1 and "cannot be written" in journalled.warned[0]
    in_the_way.unlink()
    journalled.note()
    journalled.note()
    assert len(journalled.warned) == 2 and "written again" in journalled.warned[1]
    events = journalled.end()
    assert [event["s"] for event in events] == [3, 4, 5]
    assert {key: events[1][key] for key in ("k", "cnt", "p", "hi", "x")} == {
        "k": "drop",
        "cnt": 3,
        "p": 0,
        "hi": 2,
        "x": "disk",
    }


def test_with_too_little_space_nothing_is_written(place: Path) -> None:
    journalled = Journalled(place, journal_events="full", disk_free_limit=2**60)
    journalled.note()
    assert "disk-free-limit" in journalled.warned[0]
    assert not list((place / "events").iterdir())
    journalled.journal.close(1)


def test_a_segment_of_an_idle_broker_is_closed_when_its_time_is_over(place: Path) -> None:
    journalled = Journalled(place, journal_events_interval=20_000_000)
    journalled.note()
    until = time.monotonic() + STATE
    while not list((place / "events").glob("journal-*.jsonl")) and time.monotonic() < until:
        pass
    assert [event["s"] for event in journalled.end()] == [0]


def test_the_story_of_a_broker_is_read_again_at_its_next_start(place: Path) -> None:
    journalled = Journalled(place)
    role = '"k":"role","r":"active","e":3'
    assert journalled.journal.story.read() == []
    journalled.note(row=role, at=9005)
    journalled.note(2)
    journalled.note(row='"k":"epoch","e":4,"x":"b,2}"', at=9007)
    journalled.end()
    assert Journalled(place).journal.story.read() == [
        (9005, role),
        (9007, '"k":"epoch","e":4,"x":"b,2}"'),
    ]


def test_a_damaged_story_costs_its_damaged_lines_and_a_long_one_is_made_shorter(
    place: Path,
) -> None:
    folder = place / "events"
    folder.mkdir()
    file = folder / "story-b_1.jsonl"
    line = '{"at":%d,"k":"epoch","e":1}\n'
    file.write_text(line % 1 + '[1]\n{"at":"x","k":"role"}\n{"at":2,"k":"error"}\n{"at":3,"k"')
    assert Journalled(place).journal.story.read() == [(1, '"k":"epoch","e":1')]
    story = Journalled(place).journal.story
    story.add([(4, '"k":"role","r":"active"'), (5, '"k":"epoch","e":2')])
    assert [at for at, _ in story.read()] == [1, 4, 5]
    file.write_text("".join(line % number for number in range(2 * STORY_LENGTH + 1)))
    found = Journalled(place).journal.story.read()
    assert [at for at, _ in found] == [*range(STORY_LENGTH + 1, 2 * STORY_LENGTH + 1)]
    assert len(file.read_text().splitlines()) == STORY_LENGTH
