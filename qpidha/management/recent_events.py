"""The last events of a broker's life, for those who look and those who follow.

What the event log has of single messages and of replication is left out: there may be thousands a
second. The story, which is what the history of a cluster is told from, is kept apart, so that
nothing else crowds it out, and goes through a restart (runtime/story.py). No two events of a broker
have the same time, not even over restarts: with it one goes on where one was. Knows no file.
"""

from __future__ import annotations

import json
from collections import deque
from heapq import merge
from typing import TYPE_CHECKING, Any

from qpidha.model.event_log import SHOWN, STORY, STORY_LENGTH, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable

OTHERS = 2000
"""Events that are kept beside the story."""
_SHOWN = tuple(f'"k":"{kind}"' for kind in SHOWN)
_DEPTH = '"f":"stat"'
"""What the row of a queue's depth has, which is told each second."""
DONE = {
    "made": "is declared",
    "changed": "is declared otherwise",
    "ended": "has ended",
    "up": "is up",
    "down": "is down",
    "refused": "is refused",
    "stalled": "moves no messages",
    "moving": "moves messages again",
    "rejected": "has messages rejected at its other end",
    "following": "has all that its source has",
    "lost": "has no connection to its source",
    "blocked": "does not follow its source any more",
}
"""What is said of links, routes and replicas by what happened to them."""
NAMES = {
    "k": "kind",
    "f": "what",
    "r": "state",
    "e": "epoch",
    "x": "about",
    "q": "queue",
    "cnt": "count",
    "set": "in_sync",
    "err": "error",
}
"""Keys of the event format -> what they are called here."""


class RecentEvents:
    """Keeps them."""

    __slots__ = ("_last", "_others", "_story")

    def __init__(self) -> None:
        self._last = 0
        """The time of the last event, in ns since 1970."""
        self._story: deque[tuple[int, str]] = deque(maxlen=STORY_LENGTH)
        self._others: deque[tuple[int, str]] = deque(maxlen=OTHERS)

    def note(self, now: int, rows: Iterable[str]) -> None:
        """Keep those events of a turn that are told here."""
        for row in rows:
            if not row.startswith(_SHOWN) or _DEPTH in row:
                continue
            self._last = max(now, self._last + 1)
            kept = self._story if kind_of(row) in STORY else self._others
            kept.append((self._last, row))

    def list(self, after: int, limit: int, kinds: Iterable[str]) -> list[dict[str, Any]]:
        """Tell the events behind the time `after`, oldest first: the first ones up to `limit`
        behind a time, the last ones without; 0 is all. Of kinds, if some are named.
        """
        wanted = frozenset(kinds)
        found = [
            (at, row)
            for at, row in merge(self._story, self._others)
            if at > after and (not wanted or kind_of(row) in wanted)
        ]
        if limit:
            found = found[:limit] if after else found[-limit:]
        return [_told(at, row) for at, row in found]


def _told(at: int, row: str) -> dict[str, Any]:
    event = json.loads(f"{{{row}}}")
    named = {name: event[key] for key, name in NAMES.items() if key in event}
    return {"at_ns": at, **named, "text": text_of(event)}


def text_of(event: dict[str, Any]) -> str:
    """Say in words what happened; the broker is the one that has it in its log."""
    what, about, epoch = event.get("f", ""), event.get("x", ""), event.get("e", 0)
    match event["k"]:
        case "role":
            return f"is {event['r']}, epoch {epoch}{_because(about)}"
        case "epoch":
            return f"promised epoch {epoch}{f' to {about}' if about else ''}"
        case "promotion" if what == "refused":
            return f"is not promoted{_because(about)}"
        case "promotion" if what == "granted":
            return f"may be the primary of epoch {epoch}"
        case "promotion":
            return f"is asked to be the primary{f' ({about})' if about else ''}"
        case "failover" if what == "detected":
            return f"primary {about} of epoch {epoch} is gone"
        case "failover":
            return f"accepted the first message of epoch {epoch}"
        case "insync":
            return f"in sync in epoch {epoch}: {event['set']}"
        case "member":
            return f"sees {about}" if what == "up" else f"no longer sees {about}"
        case "link":
            return f"replication with {about} is {what}{_because(event.get('err', ''))}"
        case "federation" | "replica":
            return f"{about} {DONE[what]}{_because(event.get('err', ''))}"
        case "conn":
            done = "connected" if what == "up" else "disconnected"
            return f"client {about} {done}{_because(event.get('err', ''))}"
        case "queue":
            return f"queue {event['q']} {what}"
        case "limit":
            where = f" (queue {event['q']})" if "q" in event else ""
            count = event.get("cnt", 1)
            return f"{what}: {about}{where}{f', {count:,} times' if count > 1 else ''}"
        case "drop":
            return f"{event['cnt']:,} events are not in the event log: {about}"
    return str(event.get("err", ""))


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
