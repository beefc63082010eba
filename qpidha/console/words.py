"""Words of the dashboard: numbers, sizes and times as people read them, and one sentence on what a
cluster is like. Knows neither HTTP nor HTML.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from qpidha.console.health import is_synced
from qpidha.console.looks import Look
from qpidha.model.broker_states import ACTIVE, CATCHUP, PRIMARY_STATES, READY, STANDALONE
from qpidha.model.duration import SECOND

A_WHILE = SECOND
"""Time for which a broker waits for something without anybody having to know."""
MISSING = "–"
"""What stands for a number that is not known, or makes no sense."""


class Line(NamedTuple):
    """What a cluster is like, in a sentence."""

    level: str
    """`good`, `wary` or `bad`."""
    text: str


def number(value: float | None) -> str:
    """Return a number with separators: 1,204."""
    return MISSING if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Return how many a second: 12, 0.4."""
    if value is None:
        return MISSING
    return f"{value:.1f}" if 0 < value < 10 else f"{value:,.0f}"


def size(value: float | None) -> str:
    """Return bytes in the unit that fits: 4.2 MiB."""
    if value is None:
        return MISSING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def behind(backups: dict[str, int | None], name: str) -> str:
    """Return what a backup has of a queue: synced; -1,204; ? if that is not known."""
    if name not in backups:
        return MISSING
    count = backups[name]
    if count is None:
        return "?"
    return f"-{count:,}" if count else "synced"


def age(seconds: float | None, may_be_older: bool) -> str:
    """Return how old something is: 12 s, or ≥ 12 s."""
    return f"≥ {span(seconds)}" if may_be_older and seconds is not None else span(seconds)


def span(seconds: float | None) -> str:
    """Return how long something took: 0.4 s, 12 s, 3 min, 5 h 2 min, 4 d."""
    if seconds is None:
        return MISSING
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d"


def ago(seconds: float | None) -> str:
    """Return how long ago something was."""
    if seconds is None:
        return MISSING
    return "just now" if seconds < 2 else f"{span(seconds).removesuffix('.0 s')} ago"


def moment(at: float) -> str:
    """Return a time of day of UTC, with the day."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def instant(at: float) -> str:
    """Return a time of day of UTC to the millisecond, with the day."""
    text = datetime.fromtimestamp(at, UTC).isoformat(" ", timespec="milliseconds")
    return text.replace("+00:00", "Z")


def clock(at: float) -> str:
    """Return a time of day of UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def value(given: Any) -> str:
    """Return a value of an argument or a setting."""
    if isinstance(given, bool):
        return "yes" if given else "no"
    return given if isinstance(given, str) else json.dumps(given)


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number and its noun: 1 queue, 2 queues."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(names: Sequence[str]) -> str:
    """Return names as a text lists them: a, b and c."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


_SIGNS = (
    ("unsafe_queues", "bad", ""),
    ("refuses", "bad", "messages are refused"),
    ("withholds", "bad", "senders get no credit"),
    ("stopped_queues", "wary", "queues stopped their senders"),
    ("unplaced", "wary", "dead messages find no place"),
)
"""Fields of the statistics that say that something is wrong, how wrong, and what."""


def cluster_line(look: Look, statistics: dict[str, Any] | None) -> Line:
    """Say what the cluster is like, as one of its brokers sees it."""
    status = look.status
    if status is None:
        return Line("bad", f"{look.name} does not answer: {look.reason}")
    if look.state == STANDALONE:
        return Line("good", f"{look.name} is a broker without a cluster")
    members = status["members"]
    primaries = [row for row in members if row["state"] in PRIMARY_STATES]
    parts = [counted(len(members), "broker")]
    level = "good"
    if not primaries:
        level = "bad"
        parts.append("no primary")
    for row in primaries:
        parts.append(f"{row['name'] or row['address']} {row['state']}")
        if row["state"] != ACTIVE:
            level = "wary"
    others = [row for row in members if row not in primaries]
    ready = sum(map(is_synced, others)) if status["state"] in PRIMARY_STATES else None
    if ready is None:
        ready = sum(row["state"] == READY for row in others)
    if others:
        parts.append(f"{ready} of {counted(len(others), 'backup')} ready")
        if ready < len(others) and level == "good":
            level = "wary"
    if status["state"] in PRIMARY_STATES and statistics is not None:
        parts.append(f"{counted(statistics['unsafe_queues'], 'queue')} unsafe")
        for name, worse, text in _SIGNS:
            if statistics[name]:
                level = "bad" if "bad" in (level, worse) else worse
                parts += [text] if text else []
    if not status["majority"] and status["strict"]:
        level = "bad"
        parts.append("no majority answers")
    return Line(level, ", ".join(parts))


def troubles(
    look: Look, explained: dict[str, Any], statistics: dict[str, Any] | None
) -> list[Line]:
    """Say what of a broker and its cluster somebody should look at, the worst first."""
    found = []
    if explained["refuses"]:
        found.append(Line("bad", f"Messages are refused: {explained['refuses']}"))
    if explained["withholds"]:
        found.append(Line("bad", f"Senders get no credit: {explained['withholds']}"))
    if statistics is not None and statistics["unsafe_messages"]:
        messages = counted(statistics["unsafe_messages"], "message")
        queues = counted(statistics["unsafe_queues"], "queue")
        found.append(Line("bad", f"{messages} on {queues} unsafe: no ready backup has them"))
    for row in (look.status or {}).get("members", ()):
        if row["state"] not in (ACTIVE, READY):
            apart = "" if row["in_sync"] else ", not in sync"
            found.append(Line("wary", f"{row['name'] or row['address']} is {row['state']}{apart}"))
    for entry in explained["waits"]:
        # Under load acknowledgements wait for backups all the time, each for a moment.
        if not 0 < entry["for_ns"] < A_WHILE:
            found.append(Line("wary", f"{look.name} waits for {entry['text']}"))
    for count, rows, what in (
        ("stopped_queues", "stopped", "stopped their senders"),
        ("unplaced_queues", "unplaced", "with dead messages that find no place"),
    ):
        if explained[count]:
            names = [row["name"] for row in explained[rows]]
            more = explained[count] - len(names)
            names += [f"{more} more"] if more else []
            queues = counted(explained[count], "queue")
            found.append(Line("wary", f"{queues} {what}: {listed(names)}"))
    if explained["records_set_aside"]:
        records = counted(explained["records_set_aside"], "record")
        text = f"{records} of a former primary set aside in the data directory"
        found.append(Line("wary", text))
    return found


def lag(row: dict[str, Any], look: Look) -> int | None:
    """Return how many records a broker of the cluster lacks, where the broker that was looked at
    knows: a primary of all, a backup of itself.
    """
    assert look.status is not None
    if row["state"] in PRIMARY_STATES:
        return 0
    if look.status["state"] in PRIMARY_STATES:
        return max(int(look.status["sequence"]) - int(row["sequence"]), 0)
    if row["system_id"] == look.status["system_id"] and row["state"] in (CATCHUP, READY):
        return look.behind
    return None
