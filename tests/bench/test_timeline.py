"""The picture of a run."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from qpidha.bench.demo import lanes
from qpidha.bench.timeline import LEFT, Timeline, Zoom, fine_rates, merged, rates, svg


def texts(timeline: Timeline) -> list[ElementTree.Element]:
    """All texts of the picture."""
    return [
        element
        for element in ElementTree.fromstring(svg(timeline)).iter()
        if element.tag.endswith("text")
    ]


def test_counts_become_rates() -> None:
    assert rates([(0.0, 0), (0.5, 100), (1.0, 100)]) == [(0.5, 200.0), (1.0, 0.0)]


def test_a_stopped_broker_is_shown_as_stopped_until_it_is_continued() -> None:
    events = [
        {"time_ns": 10**9, "event": "state", "broker": "b1", "state": "active"},
        {"time_ns": 2 * 10**9, "event": "signal", "broker": "b1", "signal": "SIGSTOP"},
        {"time_ns": 3 * 10**9, "event": "signal", "broker": "b1", "signal": "SIGCONT"},
        {"time_ns": 4 * 10**9, "event": "state", "broker": "b1", "state": "ready"},
    ]
    assert lanes(events, 0) == {
        "b1": [(1.0, "active"), (2.0, "stopped"), (3.0, "hung"), (4.0, "ready")]
    }


def test_a_timeline_is_well_formed_svg_with_a_lane_for_each_broker() -> None:
    timeline = Timeline(
        title="a <demo> & more",
        seconds=4.0,
        rates={"accepted": [(1.0, 100.0), (2.0, 0.0)], "received": []},
        waiting=[(1.0, 3), (2.0, 500)],
        lanes={"b1": [(0.0, "active"), (2.0, "down")], "b2": [(0.0, "ready"), (2.1, "active")]},
        marks=[(2.0, "SIGKILL b1")],
    )
    assert {"b1", "b2", "SIGKILL b1", "a <demo> & more", "accepted", "4 s"} <= {
        element.text for element in texts(timeline)
    }


def test_a_broker_that_wakes_up_as_an_old_primary_is_shown_as_stale() -> None:
    events = [
        {"time_ns": 10**9, "event": "state", "broker": "b1", "state": "active", "epoch": 1},
        {"time_ns": 2 * 10**9, "event": "signal", "broker": "b1", "signal": "SIGSTOP"},
        {"time_ns": 3 * 10**9, "event": "state", "broker": "b1", "state": "hung", "epoch": 1},
        {"time_ns": 4 * 10**9, "event": "state", "broker": "b2", "state": "active", "epoch": 2},
        {"time_ns": 5 * 10**9, "event": "signal", "broker": "b1", "signal": "SIGCONT"},
        {"time_ns": 6 * 10**9, "event": "state", "broker": "b1", "state": "active", "epoch": 1},
        {"time_ns": 7 * 10**9, "event": "state", "broker": "b1", "state": "joining", "epoch": 1},
    ]
    assert lanes(events, 0)["b1"] == [
        (1.0, "active"),
        (2.0, "stopped"),
        (5.0, "hung"),
        (6.0, "stale"),
        (7.0, "joining"),
    ]


def test_times_become_rates_of_short_parts() -> None:
    assert fine_rates([0.0, 1.01, 1.015, 1.03, 1.06], 1.0, 1.06) == [
        (pytest.approx(1.01), pytest.approx(100.0)),
        (pytest.approx(1.03), pytest.approx(50.0)),
        (pytest.approx(1.05), 0.0),
    ]


def test_equal_neighbours_are_one_bar() -> None:
    assert merged([(0.0, "ready"), (1.0, "ready"), (2.0, "active")], 3.0) == [
        (0.0, 2.0, "ready"),
        (2.0, 3.0, "active"),
    ]


def test_the_legend_has_the_states_that_occur_in_a_fixed_order() -> None:
    timeline = Timeline(
        title="",
        seconds=100.0,
        lanes={"b1": [(0.0, "hung"), (0.0, "down"), (0.1, "ready"), (0.2, "active"), (0.3, "odd")]},
    )
    assert [element.text for element in texts(timeline)][-4:] == ["active", "ready", "down", "odd"]


def test_the_axis_has_round_steps_with_room_above_and_labels_of_marks_stand_above_the_plot() -> (
    None
):
    timeline = Timeline(
        title="",
        seconds=4.0,
        rates={"sent": [(1.0, 1013.0)]},
        marks=[(2.0, "SIGKILL b1"), (2.01, "promote b2")],
    )
    found = {element.text: element for element in texts(timeline)}
    assert {"0", "500", "1,000", "1,500"} <= found.keys()
    rows = [float(found[label].attrib["y"]) for label in ("SIGKILL b1", "promote b2")]
    assert rows[0] != rows[1] and max(rows) < float(found["1,500"].attrib["y"])


def test_a_short_gap_is_drawn_in_a_panel_of_its_own() -> None:
    zoom = Zoom(
        begin=9.8, end=10.8, origin=10.0, rates={"sent": [(10.0, 500.0)]}, gap=(10.0, 10.05)
    )
    timeline = Timeline(
        title="",
        seconds=21.0,
        lanes={"b1": [(0.0, "active"), (10.0, "down")]},
        marks=[(10.0, "SIGKILL b1")],
        zoom=zoom,
    )
    found = [element.text for element in texts(timeline)]
    assert (
        "clients waited 0.05 s" in found
        and "-0.2 s" in found
        and found.count("SIGKILL b1") == 2
        and found.count("b1") == 2
    )
    assert all(float(element.attrib["x"]) >= LEFT - 6 for element in texts(timeline))


def test_an_empty_timeline_can_be_drawn() -> None:
    ElementTree.fromstring(svg(Timeline(title="nothing", seconds=0.0)))
