"""Sentences: what `explain` says, for people."""

from __future__ import annotations

from typing import Any

NEXT = {
    "majority": "start one of those that have not answered",
    "recorder": "see that the cluster manager runs here (qpidha-watch, or the built-in one) and is quorate, and that lost nodes are fenced",
    "ha-min-in-sync": "start another broker, or start this one with a lower ha-min-in-sync",
}
"""What an operator can do, by what is waited for; the other waits end by themselves."""


def sentences(found: dict[str, Any]) -> list[str]:
    """Say what a broker is, what it waits for, and which messages that keeps waiting."""
    now = int(found.get("now_ns") or 0)
    who = found.get("address") or found.get("name") or "the broker"
    lines = [f"{who} is {found.get('state', 'unknown')}{_for(found.get('since_ns'), now)}"]
    waits = [wait for wait in found.get("waits") or [] if isinstance(wait, dict)]
    for wait in waits:
        text = str(wait.get("text") or wait.get("waits_for"))
        lines.append(f"waits: {text.rstrip('.')}{_for(wait.get('since_ns'), now)}{_until(wait.get('until_ns'), now)}")
    unsafe, queues = int(found.get("unsafe_messages") or 0), int(found.get("unsafe_queues") or 0)
    if unsafe:
        rows = found.get("queues") or []
        named = ", ".join(f"{row['name']} {row['unsafe']:,}" for row in rows)
        more = f", and {queues - len(rows):,} more" if queues > len(rows) else ""
        lines.append(f"{_count(unsafe, 'message')} in {_count(queues, 'queue')} not yet on every in-sync broker: {named}{more}")
    held = int(found.get("held") or 0)
    if held:
        lines.append(f"answers to clients that wait until what they confirm is safe: {held:,}")
    lines += [f"next: {NEXT[what]}" for what in dict.fromkeys(wait.get("waits_for") for wait in waits) if what in NEXT]
    if len(lines) == 1:
        lines.append("nothing waits")
    return lines


def _for(since: object, now: int) -> str:
    return f", for {max(0.0, (now - since) / 1e9):,.1f} s" if isinstance(since, int) and since and now else ""


def _until(until: object, now: int) -> str:
    return (
        f"; {(until - now) / 1e9:,.1f} s more, then the others go on without it" if isinstance(until, int) and now and until > now else ""
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
