"""The picture of a run."""

from __future__ import annotations

from xml.etree import ElementTree

from qpidha.cli.demo import lanes
from qpidha.cli.timeline import Timeline, rates, svg


def test_counts_become_rates() -> None:
    assert rates([(0.0, 0), (0.5, 100), (1.0, 100)]) == [(0.5, 200.0), (1.0, 0.0)]


def test_a_stopped_broker_is_shown_as_stopped_until_it_is_continued() -> None:
    events = [
        {"time_ns": 10**9, "event": "state", "broker": "b1", "state": "active"},
        {"time_ns": 2 * 10**9, "event": "signal", "broker": "b1", "signal": "SIGSTOP"},
        {"time_ns": 3 * 10**9, "event": "signal", "broker": "b1", "signal": "SIGCONT"},
        {"time_ns": 4 * 10**9, "event": "state", "broker": "b1", "state": "ready"},
    ]
    assert lanes(events, 0) == {"b1": [(1.0, "active"), (2.0, "stopped"), (3.0, "hung"), (4.0, "ready")]}


def test_a_timeline_is_well_formed_svg_with_a_lane_for_each_broker() -> None:
    timeline = Timeline(
        title="a <demo> & more",
        seconds=4.0,
        rates={"accepted": [(1.0, 100.0), (2.0, 0.0)], "received": []},
        waiting=[(1.0, 3), (2.0, 500)],
        lanes={"b1": [(0.0, "active"), (2.0, "down")], "b2": [(0.0, "ready"), (2.1, "active")]},
        marks=[(2.0, "SIGKILL b1")],
    )
    texts = [element.text for element in ElementTree.fromstring(svg(timeline)).iter() if element.tag.endswith("text")]
    assert {"b1", "b2", "SIGKILL b1", "a <demo> & more", "accepted", "4 s"} <= set(texts)


def test_an_empty_timeline_can_be_drawn() -> None:
    ElementTree.fromstring(svg(Timeline(title="nothing", seconds=0.0)))
