"""Promotions: which broker was primary in which epoch, made of what the brokers of a cluster tell
of their lives (management/recent_events.py).

A promotion is told best by who was promoted; of one that is not there the others know the epoch
that they promised to it. Times are those of the clocks of several machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Event = Mapping[str, Any]
Told = tuple[str, Event]
"""The name of a broker, and what happened there."""


def promotions(told: Mapping[str, Sequence[Event]]) -> list[dict[str, Any]]:
    """Return the epochs that are known by the events of each broker, the newest first.

    An epoch has `epoch`, `when_ns`, `from`, `to`, `cause`, and as far as that is known
    `away_ns`, from when the former primary was missed to when the new one was active, and
    `promotion_ns`, from the request to then.
    """
    events = sorted(
        ((name, event) for name, some in told.items() for event in some),
        key=lambda pair: int(pair[1]["at_ns"]),
    )
    epochs = sorted({event["epoch"] for _, event in events if _begins(event)})
    found: list[dict[str, Any]] = []
    for epoch in epochs:
        row = _promotion(epoch, events, found[-1] if found else None)
        if row is not None:
            found.append(row)
    return found[::-1]


def _begins(event: Event) -> bool:
    """Whether an event tells who is the primary of an epoch."""
    if event["kind"] == "role":
        return bool(event["state"] == "recovering")
    return bool(event["kind"] == "epoch" and event.get("about"))


def _promotion(
    epoch: int, events: Iterable[Told], former: dict[str, Any] | None
) -> dict[str, Any] | None:
    of_epoch = [pair for pair in events if pair[1].get("epoch") == epoch]
    own = [pair for pair in of_epoch if _is_role(pair[1], "recovering")]
    if own:
        primary, first = own[-1]
        active = _first(
            pair for pair in of_epoch if pair[0] == primary and _is_role(pair[1], "active")
        )
    else:
        # A promise may have come to nothing: somebody must have followed that broker.
        first = next(event for _, event in of_epoch if _begins(event))
        primary, active = str(first["about"]), None
        if not any(_is_role(event, "ready") for _, event in of_epoch):
            return None
    began = int(first["at_ns"])
    since = former["when_ns"] if former is not None else 0
    between = [pair for pair in events if since < pair[1]["at_ns"] <= began]
    missed, cause = _cause(former, between)
    asked = _last(
        event
        for name, event in between
        if name == primary and event["kind"] == "promotion" and event.get("what") == "asked"
    )
    if asked is not None and asked.get("about"):
        cause = f"{cause} ({asked['about']})"
    return {
        "epoch": epoch,
        "when_ns": began,
        "from": former["to"] if former is not None else None,
        "to": primary,
        "cause": cause,
        "away_ns": _between(missed, active),
        "promotion_ns": _between(asked, active),
    }


def _cause(former: dict[str, Any] | None, between: Sequence[Told]) -> tuple[Event | None, str]:
    """Say why there was another primary, and since when the former one was missed."""
    if former is None:
        return None, "first that is known"
    gone = _first(
        (name, event)
        for name, event in between
        if event["kind"] == "failover"
        and event.get("what") == "detected"
        and event.get("epoch") == former["epoch"]
    )
    if gone is not None:
        return gone, f"{former['to']} was gone"
    left = _first(
        (name, event)
        for name, event in between
        if name == former["to"] and _is_role(event, "joining")
    )
    if left is not None:
        return left, f"{former['to']} stepped down or was started again"
    return None, "promoted"


def _is_role(event: Event, state: str) -> bool:
    return bool(event["kind"] == "role" and event["state"] == state)


def _first(pairs: Iterable[Told]) -> Event | None:
    return next((event for _, event in pairs), None)


def _last(events: Iterable[Event]) -> Event | None:
    found = None
    for event in events:
        found = event
    return found


def _between(first: Event | None, last: Event | None) -> int | None:
    if first is None or last is None:
        return None
    return max(0, int(last["at_ns"]) - int(first["at_ns"]))
