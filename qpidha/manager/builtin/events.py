"""Manager events: what the manager saw and did, with times; kept, logged, and streamed to
subscribers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from qpidha.model.broker_states import BACKUP_STATES, PRIMARY_STATES

KEPT = 10_000
"""Events kept for late subscribers."""


class ManagerEvents:
    """The story of one cluster so far."""

    __slots__ = ("_subscribers", "history")

    def __init__(self) -> None:
        self.history: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._subscribers: list[Callable[[dict[str, Any]], None]] = []

    def add(self, event: str, **fields: object) -> None:
        """Remember that something happened now, and tell all subscribers."""
        entry: dict[str, Any] = {"time_ns": time.time_ns(), "event": event, **fields}
        self.history.append(entry)
        for subscriber in list(self._subscribers):
            subscriber(entry)

    def subscribe(self, subscriber: Callable[[dict[str, Any]], None]) -> None:
        """Tell a subscriber everything so far and all that follows."""
        for entry in self.history:
            subscriber(entry)
        self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: Callable[[dict[str, Any]], None]) -> None:
        """Stop telling."""
        self._subscribers.remove(subscriber)


def log_line(entry: dict[str, Any]) -> str:
    """Write an event as a line of the log."""
    seconds = entry["time_ns"] / 1e9
    stamp = (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
        + f".{int(seconds * 1000) % 1000:03d}"
    )
    shown = {
        name: value
        for name, value in entry.items()
        if name not in ("time_ns", "event", "broker") and value not in ("", None)
    }
    fields = "  ".join(f"{name}={value}" for name, value in shown.items())
    return f"{stamp} [manager] {entry['event']} {entry.get('broker', '')}  {fields}".rstrip()


def is_stale(entry: dict[str, Any], newest_epoch: int) -> bool:
    """Tell whether a broker reports to be primary though another was active in a newer epoch: it
    slept through that.
    """
    return entry["state"] in PRIMARY_STATES and int(entry.get("epoch", newest_epoch)) < newest_epoch


def summary_line(entry: dict[str, Any], *, newest_epoch: int = 0) -> tuple[str, str] | None:
    """Say what happened: a word and a text; `newest_epoch` is the newest in which a broker was
    active.
    """
    broker = entry.get("broker", "")
    event = entry["event"]
    if event == "exited":
        code = entry.get("code")
        how = f"signal {-code}" if isinstance(code, int) and code < 0 else f"exit code {code}"
        return "detect", f"{broker} is gone ({how}); it was {entry['was']}"
    if event == "hung":
        return "detect", f"{broker} does not answer; it was {entry['was']}"
    if event == "fenced":
        return "fence", f"{broker} killed, and has ended"
    if event == "promote":
        return (
            "promote",
            f"{broker} ({entry['state']}, epoch {entry['epoch']}, sequence {entry['sequence']:,})",
        )
    if event == "refused" and entry.get("what") == "promote":
        return "refused", f"{broker}: {entry['reason']}"
    if event == "waiting":
        return "waiting", str(entry["reason"])
    if event == "started":
        return "restart", f"{broker} (pid {entry['pid']})"
    if event == "state" and is_stale(entry, newest_epoch):
        return "stale", f"{broker} (epoch {entry['epoch']}): wakes up and will step down"
    if event == "state" and entry["state"] in (*BACKUP_STATES, *PRIMARY_STATES):
        return entry["state"], f"{broker} (epoch {entry['epoch']})"
    return None
