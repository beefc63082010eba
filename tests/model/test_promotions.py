"""Promotions: what the events of several brokers tell of who was primary."""

from __future__ import annotations

from typing import Any

from qpidha.model.promotions import promotions


def event(at: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"at_ns": at, "kind": kind, **fields}


def role(at: int, state: str, epoch: int) -> dict[str, Any]:
    return event(at, "role", state=state, epoch=epoch)


FIRST = [event(5, "promotion", what="asked"), role(10, "recovering", 1), role(12, "active", 1)]


def test_the_first_primary_that_is_known_has_no_former_one() -> None:
    assert promotions({"b1": FIRST}) == [
        {
            "epoch": 1,
            "when_ns": 10,
            "from": None,
            "to": "b1",
            "cause": "first that is known",
            "away_ns": None,
            "promotion_ns": 7,
        }
    ]
    assert promotions({}) == promotions({"b1": []}) == []


def test_a_primary_that_was_gone_was_missed_from_when_the_first_noticed() -> None:
    second = [
        event(105, "failover", what="detected", epoch=1, about="b1"),
        event(110, "promotion", what="asked", about="accept-loss"),
        role(120, "recovering", 2),
        role(130, "active", 2),
    ]
    third = [event(101, "failover", what="detected", epoch=1, about="b1")]
    newest, _ = promotions({"b1": FIRST, "b2": second, "b3": third})
    assert (newest["from"], newest["to"], newest["cause"]) == (
        "b1",
        "b2",
        "b1 was gone (accept-loss)",
    )
    assert (newest["away_ns"], newest["promotion_ns"]) == (29, 20)


def test_a_primary_that_steps_down_is_missed_since_then() -> None:
    first = [*FIRST, role(200, "joining", 1)]
    second = [role(220, "recovering", 2), role(230, "active", 2)]
    newest, _ = promotions({"b1": first, "b2": second})
    assert newest["cause"].startswith("b1 stepped down") and newest["away_ns"] == 30
    assert newest["promotion_ns"] is None


def test_of_a_primary_that_is_not_there_the_others_know_the_epoch() -> None:
    told = [
        event(50, "epoch", epoch=2, about="b2"),
        role(60, "ready", 2),
        event(70, "epoch", epoch=3, about="b9"),
    ]
    newest, _ = promotions({"b1": FIRST, "b3": told})
    assert (newest["epoch"], newest["to"], newest["when_ns"]) == (2, "b2", 50)
    assert newest["away_ns"] is newest["promotion_ns"] is None and newest["cause"] == "promoted"


def test_a_promotion_that_never_became_active_has_no_times() -> None:
    (only,) = promotions({"b1": FIRST[:2]})
    assert only["to"] == "b1" and only["promotion_ns"] is None
