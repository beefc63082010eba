"""Manager events: what the manager saw and did, with times; kept, logged, and streamed to whoever subscribes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

KEPT = 10_000
"""Events kept for late subscribers."""


class EventLog:
    """The story of one cluster so far."""

    __slots__ = ("_subscribers", "history")

    def __init__(self) -> None:
        self.history: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._subscribers: list[Callable[[dict[str, Any]], None]] = []

    def add(self, event: str, **fields: object) -> None:
        """Remember that something happened now, and tell everybody who listens."""
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


def in_words(entry: dict[str, Any]) -> str:
    """Write an event as a line of the log."""
    seconds = entry["time_ns"] / 1e9
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}"
    shown = {name: value for name, value in entry.items() if name not in ("time_ns", "event", "broker") and value not in ("", None)}
    fields = "  ".join(f"{name}={value}" for name, value in shown.items())
    return f"{stamp} [manager] {entry['event']} {entry.get('broker', '')}  {fields}".rstrip()
