"""Starting managers and reading along."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from qpidha.client.command.exits import Failure
from qpidha.manager.builtin.launch import EventStream, free_ports


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
    stream = EventStream()
    stream.events += [
        {"time_ns": 1, "event": "state", "broker": "b1", "state": "ready"},
        {"time_ns": 5, "event": "state", "broker": "b1", "state": "active"},
    ]
    assert stream.find("state", broker="b1") == stream.events[0]
    assert stream.find("state", since=2) == stream.events[1]
    assert stream.find("state", state="down") is None
    assert stream.states() == {"b1": "active"}


def test_a_broker_that_is_killed_again_and_again_before_it_answered_is_reported(
    tmp_path: Path,
) -> None:
    (tmp_path / "b1").mkdir()
    (tmp_path / "b1" / "qpidhad.log").write_text("qpidhad: error: no room\n  next: make room\n")
    stream = EventStream()
    for number in range(3):
        stream.events.append(
            {"time_ns": number, "event": "exited", "broker": "b1", "gave_up": False, "was": "hung"}
        )
        stream.events.append(
            {"time_ns": number, "event": "exited", "broker": "b2", "gave_up": False, "was": "ready"}
        )
    with pytest.raises(
        Failure,
        match=(
            "b1 does not start: it was killed 3 times before it answered; "
            "the end of its output: no room"
        ),
    ):
        stream.check_starts(tmp_path)


def test_a_broker_that_ends_again_and_again_is_reported_with_its_log(tmp_path: object) -> None:
    stream = EventStream()
    stream.events += [
        {"time_ns": number, "event": "exited", "broker": "b1", "gave_up": True}
        for number in range(3)
    ]
    with pytest.raises(Failure, match="b1 does not start"):
        stream.check_starts(tmp_path)  # type: ignore[arg-type]
