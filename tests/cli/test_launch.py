"""Starting managers and reading along."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from qpidha.cli.exits import Failure
from qpidha.cli.launch import Story, free_ports


def test_free_ports_are_distinct_and_below_the_range_of_client_ports() -> None:
    ports = free_ports(3)
    assert len(set(ports)) == 3 and all(20000 <= port < 32000 for port in ports)


def test_a_port_in_use_is_refused_with_who_holds_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Failure, match=r"in use by .* \(pid \d+\)"):
            free_ports(1, taken.getsockname()[1])


def test_a_story_finds_events_by_kind_time_and_fields() -> None:
    story = Story()
    story.events += [
        {"time_ns": 1, "event": "state", "broker": "b1", "state": "ready"},
        {"time_ns": 5, "event": "state", "broker": "b1", "state": "active"},
    ]
    assert story.find("state", broker="b1") == story.events[0]
    assert story.find("state", since=2) == story.events[1]
    assert story.find("state", state="down") is None
    assert story.states() == {"b1": "active"}


def test_a_broker_that_is_killed_again_and_again_before_it_answered_is_reported(tmp_path: Path) -> None:
    (tmp_path / "b1").mkdir()
    (tmp_path / "b1" / "qpidhad.log").write_text("qpidhad: error: no room\n  next: make room\n")
    story = Story()
    for number in range(3):
        story.events.append({"time_ns": number, "event": "exited", "broker": "b1", "gave_up": False, "was": "hung"})
        story.events.append({"time_ns": number, "event": "exited", "broker": "b2", "gave_up": False, "was": "ready"})
    with pytest.raises(Failure, match="b1 does not start: it was killed 3 times before it answered; its last words: no room"):
        story.check_starts(tmp_path)


def test_a_broker_that_ends_again_and_again_is_reported_with_its_log(tmp_path: object) -> None:
    story = Story()
    story.events += [{"time_ns": number, "event": "exited", "broker": "b1", "gave_up": True} for number in range(3)]
    with pytest.raises(Failure, match="b1 does not start"):
        story.check_starts(tmp_path)  # type: ignore[arg-type]
