"""Words of a report: numbers with units, sentences for verdicts, examples and events, and a
glossary.

Everything is text; nothing is escaped here. `plain` makes text from outside harmless to look at:
what cannot be printed is written as its code. Knows no HTML and no tables. Source: the definitions
in `checks.py` and `events.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from qpidha.model.printable import printable
from qpidha.pipeline.checks import Settings, promises

Record = dict[str, Any]

VERDICTS = {True: "valid", False: "invalid", "unknown": "unknown"}
"""As verdict.json spells it -> as a report does."""
NUMBERS = {
    "total-queue": (
        "acknowledged",
        "deliveries",
        "lost",
        "missing",
        "unexpected",
        "duplicated",
        "recovered",
        "phantom",
        "resurrected",
        "undrained",
    ),
    "order": (
        "messages",
        "violations",
        "inversions",
        "resent",
        "redelivered",
        "in_fault",
        "competing",
    ),
    "redelivery": ("redelivered", "flagged", "unflagged"),
    "availability": ("windows", "longest_ns", "unavailable_ns", "never_again"),
    "mutex": ("locks", "holds", "overlaps", "lease_overlaps", "writes", "stale", "regressions"),
    "accepted-before-safe": ("accepted", "unsafe", "client_accepted", "client_unsafe", "unjudged"),
    "primaries": ("epochs", "shared_epochs", "epoch_regressions", "overlaps"),
    "latency": ("replication", "acceptance", "enqueue", "delivery"),
    "failover": ("epochs", "failovers", "longest_ns"),
    "throughput": ("enqueued", "delivered", "acknowledged"),
    "evidence": ("events", "quarantined", "missing", "duplicates", "problems"),
}
"""Check -> the numbers that a report shows."""
KINDS = {
    "lost": "Lost messages: accepted, never delivered, and their queue was found empty",
    "missing": "Missing messages: accepted and not delivered, but their queue was not found empty",
    "unexpected": "Unexpected deliveries: of messages that no client sent",
    "phantom": "Phantoms: delivered although every attempt to send them was told no",
    "duplicated": "Duplicates: delivered more often than sent",
    "resurrected": (
        "Resurrected messages: delivered again after their acknowledgement was confirmed"
    ),
    "recovered": (
        "Recovered messages: delivered although no client was told that they were accepted. "
        "That is no fault"
    ),
    "unflagged": "Repeated deliveries that do not say so",
    "violations": "Out of order, without an excuse",
    "resent": "Out of order: the sender sent a second copy",
    "redelivered": "Out of order: the message was delivered again",
    "in_fault": "Out of order during a fault",
    "competing": "Out of order, in a queue that several clients read",
    "windows": "Windows of unavailability: a client waited, and nothing went through",
    "lease_overlaps": (
        "A lock held twice, and its first holder did not yet know that its session was gone"
    ),
    "stale": "Writes of former holders of a lock that were taken in spite of their tokens",
    "regressions": "Fencing tokens that are not higher than one given before",
    "unsafe": "Accepted by a broker before every member of the in-sync set had it",
    "client_unsafe": (
        "Clients told `accepted` before every member of the in-sync set had the message"
    ),
    "shared_epochs": "Epochs with more than one primary",
    "epoch_regressions": "Brokers that went back to a lower epoch",
    "problems": "What is missing of the evidence",
}
OVERLAPS = {
    "mutex": "A lock held twice: acquired while another process certainly held it",
    "primaries": (
        "Two brokers active at once, in different epochs. Harmless while the former accepts nothing"
    ),
}
GLOSSARY = (
    (
        "accepted",
        "The broker told the sender that it has the message for good. From then on it "
        "must not be lost.",
    ),
    (
        "acceptance lag",
        "Time from the arrival of a message at the primary to the `accepted` that its sender gets.",
    ),
    ("backlog", "Messages that are in a queue: accepted and not yet acknowledged."),
    (
        "backup",
        "A broker that copies everything from the primary and serves no client, until it "
        "is promoted.",
    ),
    (
        "clock error",
        "How far the clocks of two hosts may be apart. What is nearer in time than that "
        "is not put in an order.",
    ),
    (
        "drained",
        "A receiver found the queue empty, twice, after the last message was sent. Only "
        "then can a message be called lost.",
    ),
    ("duplicated", "Delivered more often than it was sent. At-least-once delivery permits it."),
    (
        "enqueue, dequeue, ack",
        "A client sends a message; gets one; tells the broker that it is done with it.",
    ),
    (
        "epoch",
        "The number of a primary's reign. Each promotion begins a higher one, and what a "
        "former primary says is refused.",
    ),
    (
        "failover",
        "The change from one primary to the next, from the fault to the first message "
        "that is served again.",
    ),
    (
        "fault",
        "What was done to the cluster on purpose: a broker killed, stopped for a while, "
        "cut off, or relieved.",
    ),
    ("in-sync set", "The brokers that must have a message before it is accepted."),
    (
        "info",
        "An operation whose outcome its client does not know: the connection was lost "
        "before the answer came.",
    ),
    ("lost", "Accepted, never delivered, and its queue was drained."),
    ("ok, fail", "An operation that is certainly done; one that certainly had no effect."),
    ("p50, p95, p99", "Half, 95 % and 99 % of all values are not above it."),
    ("phantom", "Delivered, although every attempt to send it was told no."),
    ("position", "The number of an entry in the primary's replication log."),
    ("primary", "The one broker that serves clients. Its states are recovering, then active."),
    ("promotion", "A backup becomes the primary."),
    (
        "recovered",
        "Sent with unknown outcome (info), and delivered after all. No fault: the sender "
        "was not told anything wrong.",
    ),
    ("replication lag", "Time from sending a batch to a backup until that backup confirms it."),
    ("resurrected", "Delivered again after its acknowledgement was confirmed."),
    (
        "roles",
        "joining: looks for the primary. catchup: copies what it lacks. ready: has "
        "everything, may be promoted. recovering: is "
        "promoted and waits for its backups. active: serves. standalone: has no cluster.",
    ),
    ("unexpected", "A delivery of a message that no client sent."),
    ("unknown", "The evidence does not suffice for a verdict: neither valid nor invalid is shown."),
    (
        "window of unavailability",
        "A client waited, and for longer than the threshold nothing was accepted (or "
        "delivered) in that queue.",
    ),
)
MOST_LETTERS = 200


def plain(value: object) -> str:
    """Return text from outside so that all of it can be seen, and not too much of it."""
    text = printable(str(value)[: MOST_LETTERS + 1])
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"


def prose(text: str) -> str:
    """Return text of a definition as a reader of prose expects it."""
    return re.sub(r"`([^`]*)`", r"“\1”", text)


def number(value: float | None) -> str:
    """Return a number with separators; a dash for none."""
    if value is None:
        return "–"
    return f"{value:,}"


def milliseconds(ns: int | None) -> str:
    """Return ns as ms with one decimal; a dash for none."""
    return "–" if ns is None else f"{ns / 1e6:,.1f}".replace("-", "−")


def from_microseconds(us: int | None) -> str:
    """Return µs as ms with all digits that it has."""
    if us is None:
        return "–"
    text = f"{us / 1000:,.3f}"
    return text.rstrip("0").rstrip(".")


def duration(ns: int | None) -> str:
    """Return a length of time as a person says it."""
    if ns is None:
        return "–"
    if ns <= 0:
        return "−" + duration(-ns) if ns else "0 s"
    if ns < 1_000_000:
        return f"{ns / 1000:.0f} µs"
    if ns < 1_000_000_000:
        return f"{ns / 1e6:.1f} ms"
    seconds = ns / 1e9
    if seconds < 120:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def utc(ns: int | None) -> str:
    """Return ns since 1970 as a date and time of day; a dash if there is no such."""
    try:
        return (
            "–"
            if ns is None
            else datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        )
    except (OverflowError, ValueError, OSError):
        return "–"


def counted(many: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{many:,} {noun}{'' if many == 1 else 's'}"


def shown_count(name: str, value: int) -> tuple[str, str]:
    """Return a number of a check as its label and its value with unit."""
    if name.endswith("_ns"):
        return name.removesuffix("_ns").replace("_", " "), duration(value)
    return name.replace("_", " "), number(value)


def sentence(text: str) -> str:
    """Return text with a capital and a full stop."""
    text = prose(plain(text).strip())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def headline(verdict: Record) -> tuple[str, list[str]]:
    """Return what a verdict says in a line, and why, one sentence each."""
    valid = verdict["valid"]
    judged = [check for check in verdict["checks"] if check["applies"]]
    idle = [check["name"] for check in verdict["checks"] if not check["applies"]]
    reasons = [
        f"{sentence(reason)[:-1]} (check {check['name']})."
        for check in judged
        if check["valid"] is not True
        for reason in check["reasons"]
    ]
    left = [f"There was nothing to judge for {', '.join(idle)}."] if idle else []
    if valid is True:
        return "Nothing that was checked went wrong.", [
            f"All {counted(len(judged), 'check')} that had something to judge hold.",
            *left,
        ]
    if valid is False:
        return "The cluster broke a promise.", [*reasons, *left]
    return "It cannot be said whether all went well.", [*reasons, *left] if judged else [
        "No check had anything to judge."
    ]


def offences(check: Record, settings: Record) -> tuple[str, ...]:
    """Return the kinds of offence that make a check invalid."""
    known = {
        name: value for name, value in settings.items() if name in Settings.__dataclass_fields__
    }
    kinds = promises(check["name"], Settings(**known))
    if check["name"] != "availability":
        return kinds
    counts = check["counts"]
    # An older verdict does not have the former.
    is_broken = (
        0 < known.get("max_unavailable_ns", 0) < counts.get("certain_ns", counts["longest_ns"])
    )
    return (*kinds, "windows") if is_broken else kinds


def kind_title(check: str, what: str) -> str:
    """Return what a kind of offence is."""
    return OVERLAPS.get(check, what) if what == "overlaps" else KINDS.get(what, what)


def example_title(what: str, row: Record, since: Callable[[int], str]) -> str:
    """Return one example in a sentence; `since` shows a time."""
    if "seq" in row:
        return _of_message(row)
    if what == "windows":
        until = "to the end of the run" if row["open"] else f"until {since(row['end_ns'])}"
        verb = "accepted" if row["service"] == "enqueue" else "delivered"
        return (
            f"{row['queue']}: nothing {verb} for {duration(row['length_ns'])}, from "
            f"{since(row['start_ns'])} {until}"
        )
    if what in ("stale", "regressions"):
        verb = "written" if what == "stale" else "acquired"
        return (
            f"{row['queue']}: {verb} at {since(row['start_ns'])} (operation {row['op']}), when "
            f"operation {row['other_op']} had shown a higher token at {since(row['other_end_ns'])}"
        )
    if "other_op" in row:
        until = (
            "never released it"
            if row["other_end_ns"] is None
            else f"held it until {since(row['other_end_ns'])}"
        )
        return (
            f"{row['queue']}: acquired at {since(row['start_ns'])} (operation {row['op']}) "
            f"while operation {row['other_op']} {until}"
        )
    if what == "unsafe":
        places = f"positions {row['position']} to {row['position_to']} of epoch {row['epoch']}"
        who = str(row.get("lacking", "some member")).replace(
            " ", " and "
        )  # Older verdicts do not tell who.
        return (
            f"{row['node']} accepted {places} at {since(row['at_ns'])}, and {who} had not "
            "confirmed all of them"
        )
    if what == "client_unsafe":
        when = "never" if row["safe_ns"] is None else f"at {since(row['safe_ns'])}"
        where = f"position {row['position']} of epoch {row['epoch']} on {row['node']}"
        return (
            f"message {row['msg']}, {where}: accepted at {since(row['accepted_ns'])}, safe {when}"
        )
    if what == "shared_epochs":
        return f"epoch {row['epoch']}: {row['writers'].replace(' ', ' and ')}"
    if what == "epoch_regressions":
        return (
            f"{row['node']} promised epoch {row['epoch']} at {since(row['at_ns'])}, after "
            f"epoch {row['after']}"
        )
    if what == "overlaps":
        return (
            f"{row['node']} became active at {since(row['start_ns'])}, and {row['other']} "
            f"was so for {duration(row['length_ns'])} more"
        )
    return ", ".join(f"{name} {value}" for name, value in row.items() if name != "what")


def _of_message(row: Record) -> str:
    name = f"{row['queue']}, producer {row['producer']}, number {row['seq']}"
    if "after_seq" in row:
        return (
            f"{name}: came to client {row['client']} after number {row['after_seq']}, which "
            "was sent later"
        )
    times = {0: "never", 1: "once", 2: "twice"}
    words = [
        f"{verb} {times.get(row[key], str(row[key]) + ' times')}"
        for verb, key in (
            ("sent", "attempts"),
            ("accepted", "acked"),
            ("refused", "failed"),
            ("delivered", "deliveries"),
        )
        if row[key] or key != "failed"
    ]
    return f"{name}: {', '.join(words)}"


def told(event: Record) -> str:
    """Return what an event says."""
    kind = event["k"]
    words = _TOLD.get(kind)
    text = words(event) if words else kind
    return f"{text}; error: {event['err']}" if event.get("err") and kind != "error" else text


def _operation(event: Record) -> str:
    text = f"{event['f']} {event['y']}"
    if event.get("w") is not None:
        text += f", producer {event['w']}, number {event['u']}"
    if event.get("d"):
        text += f", delivery-count {event['d']}"
    if event.get("fa") is not None:
        text += f", first-acquirer {'yes' if event['fa'] else 'no'}"
    return f"{text}, id {event['i']}" if event.get("i") else text


def _range(event: Record) -> str:
    last = event.get("hi")
    return (
        f"position {event['p']}"
        if last is None or last == event["p"]
        else f"positions {event['p']} to {last}"
    )


def _named(event: Record) -> str:
    return f" (message {event['i']})" if event.get("i") else ""


def _because(event: Record, word: str = "because of") -> str:
    return f", {word} {event['x']}" if event.get("x") else ""


def _why(event: Record) -> str:
    return f": {event['err']}" if event.get("err") else ""


def _took(event: Record) -> str:
    return f", after {duration(event['dt'])}" if event.get("dt") is not None else ""


def _silent(event: Record) -> str:
    return f", silent for {duration(event['dt'])}" if event.get("dt") is not None else ""


def _in_epoch(event: Record) -> str:
    return f", epoch {event['e']}" if event.get("e") is not None else ""


_TOLD: dict[str, Callable[[Record], str]] = {
    "op": _operation,
    "fault": lambda event: (
        f"fault {event['f']} of {event['x']}: {'begins' if event['y'] == 'start' else 'ends'}"
    ),
    "role": lambda event: f"is {event['r']} now, epoch {event['e']}{_because(event)}",
    "member": lambda event: f"sees {event['x']} {'come' if event['f'] == 'up' else 'go'}",
    "epoch": lambda event: f"promises epoch {event['e']}{_because(event, 'to')}",
    "insync": lambda event: f"in-sync set of epoch {event['e']} is {event['set'] or 'empty'}",
    "promotion": lambda event: f"promotion {event['f']}{_in_epoch(event)}{_because(event)}",
    "failover": lambda event: (
        f"misses primary {event.get('x', '')}{_silent(event)}"
        if event["f"] == "detected"
        else f"first acceptance{_in_epoch(event)}"
    ),
    "link": lambda event: f"replication link to {event['x']} {event['f']}",
    "federation": lambda event: f"{event['x']} {event['f']}{_why(event)}",
    "replica": lambda event: f"{event['x']} {event['f']}{_why(event)}",
    "rep": lambda event: (
        f"{event['x']} has confirmed {_range(event)} of epoch {event['e']}{_took(event)}"
    ),
    "enq": lambda event: f"enqueued at {_range(event)} of epoch {event['e']}{_named(event)}",
    "conf": lambda event: (
        f"tells senders accepted: {_range(event)} of epoch {event['e']}{_took(event)}"
    ),
    "dlv": lambda event: (
        f"sends {_range(event)} of epoch {event['e']}{_because(event, 'to')}{_named(event)}"
    ),
    "deq": lambda event: (
        f"{_range(event)} of epoch {event['e']} gone from the queue{_because(event)}{_named(event)}"
    ),
    "error": lambda event: f"error: {event['err']}",
}


def during(faults: Iterable[Record], begin: int, end: int) -> list[Record]:
    """Return the faults that were on between two times."""
    return [
        fault
        for fault in faults
        if fault["start_ns"] <= end and (fault["stop_ns"] is None or fault["stop_ns"] >= begin)
    ]
