"""Promotion scores: who may be promoted, and how gladly."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.pacemaker.score import (
    follows_primary,
    is_cut_off,
    is_primary,
    needs_comparison,
    promotion_score,
)

NONE = InSyncRecord()
OURS = InSyncRecord(3, 2, ("id-a", "id-b"))


def a_status(state: str, **changes: Any) -> dict[str, Any]:
    """Broker a of three, connected to all and in the newest set."""
    status = {
        "state": state,
        "address": "a:5672",
        "system_id": "id-a",
        "epoch": 3,
        "promised": 3,
        "sequence": 100,
        "applied": 100,
        "in_sync": {"epoch": 3, "version": 2, "members": ["id-a", "id-b"]},
        "members": others("joining", "joining"),
        "complete": True,
        "strict": True,
        "majority": True,
    }
    return status | changes


def others(*states: str, connected: bool = True) -> list[dict[str, Any]]:
    """The members a, b, c: a is we ourselves."""
    rows = [
        ("a", "joining", True),
        *((name, state, connected) for name, state in zip("bc", states, strict=True)),
    ]
    return [
        {
            "address": f"{name}:5672",
            "system_id": f"id-{name}",
            "state": state,
            "connected": is_connected,
        }
        for name, state, is_connected in rows
    ]


EMPTY = {"epoch": 0, "version": 0, "members": []}


@pytest.mark.parametrize("state", ["active", "recovering"])
def test_the_primary_has_the_highest_score_until_it_hears_of_a_newer_one(state: str) -> None:
    assert promotion_score(a_status(state), None) == 1000
    assert promotion_score(a_status(state, promised=4), OURS) is None
    assert is_primary(a_status(state)) and not is_primary(a_status(state, promised=4))


def test_a_ready_broker_loses_a_little_by_its_backlog_in_steps() -> None:
    scores = {
        lag: promotion_score(a_status("ready", sequence=100 + lag), OURS)
        for lag in (0, 1023, 1024, 2047, 2048, 1 << 20, 1 << 62)
    }
    assert scores == {0: 100, 1023: 100, 1024: 99, 2047: 99, 2048: 98, 1 << 20: 89, 1 << 62: 60}


@pytest.mark.parametrize(
    "changes",
    [
        {"complete": False},
        {"majority": False},
        {"system_id": "id-c"},
        {"system_id": ""},
        {"in_sync": EMPTY, "system_id": "id-c"},
    ],
)
def test_a_ready_broker_that_may_lack_something_has_no_score(changes: dict[str, Any]) -> None:
    assert promotion_score(a_status("ready", **changes), OURS) is None


def test_a_majority_is_not_asked_for_where_the_manager_is_trusted() -> None:
    assert promotion_score(a_status("ready", majority=False, strict=False), OURS) == 100


def test_a_broker_that_was_dropped_in_the_record_has_no_score_whatever_it_believes() -> None:
    newer = InSyncRecord(3, 3, ("id-b",))
    assert promotion_score(a_status("ready"), newer) is None
    assert (
        promotion_score(
            a_status("joining", members=others("unknown", "unknown", connected=False)),
            newer,
            recommended=True,
        )
        is None
    )
    older = InSyncRecord(2, 9, ("id-b",))
    assert promotion_score(a_status("ready"), older) == 100


def test_nobody_but_a_primary_has_a_score_before_the_record_was_read() -> None:
    assert promotion_score(a_status("ready"), None) is None
    assert promotion_score(a_status("joining", in_sync=EMPTY), None) is None


def test_the_first_start_waits_for_all_or_for_a_majority_for_some_time() -> None:
    alone = {"in_sync": EMPTY, "members": others("joining", "unknown", connected=False)}
    assert promotion_score(a_status("joining", in_sync=EMPTY), NONE) == 500
    assert promotion_score(a_status("joining", **alone), NONE) is None
    assert promotion_score(a_status("joining", **alone), NONE, waited=True) == 500
    assert promotion_score(a_status("joining", **alone, majority=False), NONE, waited=True) is None
    assert promotion_score(a_status("catchup", in_sync=EMPTY), NONE) is None


def test_it_is_no_first_start_if_anybody_knows_a_set_or_there_is_a_primary() -> None:
    assert promotion_score(a_status("joining", in_sync=EMPTY), OURS) is None
    assert promotion_score(a_status("joining"), NONE) is None
    assert (
        promotion_score(
            a_status("joining", in_sync=EMPTY, members=others("active", "joining")), NONE
        )
        is None
    )


def test_after_a_total_failure_the_recommended_broker_scores_above_a_new_ready_backup() -> None:
    status = a_status("joining")
    assert needs_comparison(status, OURS)
    assert promotion_score(status, OURS) is None
    assert (
        promotion_score(status, OURS, recommended=True)
        == 500
        > (promotion_score(a_status("ready"), OURS) or 0)
    )


@pytest.mark.parametrize("state", ["ready", "active", "recovering"])
def test_it_is_no_total_failure_while_a_broker_with_everything_is_connected(state: str) -> None:
    status = a_status("joining", members=others(state, "joining"))
    assert not needs_comparison(status, OURS)
    assert promotion_score(status, OURS, recommended=True) is None
    assert needs_comparison(
        a_status("joining", members=others(state, "joining", connected=False)), OURS
    )


def test_a_ready_broker_outside_the_set_does_not_stand_in_the_way_of_the_one_inside() -> None:
    """The last primary dropped it and accepted more alone; then it died and came back."""
    alone = a_status("joining", members=others("ready", "joining"))
    alone["in_sync"] = {"epoch": 3, "version": 3, "members": ["id-a"]}
    assert needs_comparison(alone, OURS)
    assert promotion_score(alone, OURS, recommended=True) == 500
    told = a_status("joining", members=others("ready", "joining"))
    assert needs_comparison(told, InSyncRecord(3, 3, ("id-a",)))
    dropped = a_status("ready", system_id="id-b", in_sync=alone["in_sync"])
    assert promotion_score(dropped, OURS) is None


@pytest.mark.parametrize("state", ["active", "recovering"])
def test_a_primary_that_is_connected_is_no_total_failure_whatever_set_it_is_in(state: str) -> None:
    status = a_status("joining", members=others("joining", state))
    assert not needs_comparison(status, OURS)


def test_a_joining_broker_outside_the_set_never_has_a_score_even_without_rivals() -> None:
    status = a_status(
        "joining", system_id="id-c", members=others("unknown", "unknown", connected=False)
    )
    assert not needs_comparison(status, OURS)
    assert promotion_score(status, OURS, waited=True, recommended=True) is None


def test_a_standalone_broker_has_no_score() -> None:
    assert (
        promotion_score({"state": "standalone", "members": [], "in_sync": EMPTY}, NONE, waited=True)
        is None
    )


def test_cut_off_is_a_strict_primary_without_majority() -> None:
    assert is_cut_off(a_status("active", majority=False))
    assert not is_cut_off(a_status("active"))
    assert not is_cut_off(a_status("active", majority=False, strict=False))
    assert not is_cut_off(a_status("ready", majority=False))


def test_who_follows_a_primary_is_connected_to_it() -> None:
    assert follows_primary(a_status("ready", members=others("active", "ready")))
    assert not follows_primary(
        a_status("ready", members=others("active", "ready", connected=False))
    )
    assert not follows_primary(a_status("active"))
