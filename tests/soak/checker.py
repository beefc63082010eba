"""The verdict on a history, from the files alone: counting checks, order, settlements that came
back, and evidence.

A message is (queue, producer, sequence), a copy of it is one enqueue operation: a sender that got
no answer sends again, which makes a second copy that may be delivered too. Every accepted copy must
be delivered. Each receiver has its queue to itself, so the order in which it first got the copies
of one sender must be the order in which they were sent. Verdicts merge as invalid > unknown >
valid, and a run in which nothing was accepted is never valid. Definitions: docs/pipeline.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.soak.history import Read

EXAMPLES = 20

Key = tuple[str, int, int]


@dataclass(slots=True)
class Message:
    """What happened to one (queue, producer, sequence)."""

    attempts: int = 0
    failed: int = 0
    deliveries: int = 0
    accepted: list[str] = field(default_factory=list)
    """Message ids of the copies that were accepted."""
    sent: dict[str, int] = field(default_factory=dict)
    """Message id -> index of the event with which that copy was sent."""
    copies: dict[str, int] = field(default_factory=dict)
    """Message id -> index of the event of the first delivery of that copy."""


@dataclass(slots=True)
class Verdict:
    """`valid` is True, False or None for unknown; `reasons` say why not."""

    valid: bool | None = True
    counts: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    examples: dict[str, list[Any]] = field(default_factory=dict)

    def invalid(self, reason: str) -> None:
        """Note a broken promise."""
        self.valid = False
        self.reasons.append(reason)

    def unknown(self, reason: str) -> None:
        """Note missing evidence."""
        self.valid = None if self.valid is not False else False
        self.reasons.append(reason)

    def offend(self, check: str, example: Any) -> None:
        """Count one offence against a check."""
        self.counts[check] = self.counts.get(check, 0) + 1
        examples = self.examples.setdefault(check, [])
        if len(examples) < EXAMPLES:
            examples.append(example)


INVALID = {
    "lost": "accepted messages were never delivered",
    "unexpected": "messages were delivered that nobody sent",
    "phantom": "messages were delivered that every attempt to send was told no for",
    "disorder": "messages of one sender came first in another order than they were sent",
    "resurrected": "copies came again after the broker had settled their acknowledgement",
}


def check(found: Read) -> Verdict:
    """Judge a history."""
    verdict = Verdict()
    messages, drained, queues = _facts(found.events, verdict)
    _count(messages, drained, verdict)
    _order(messages, verdict)
    for name, text in INVALID.items():
        if verdict.counts.setdefault(name, 0):
            verdict.invalid(f"{verdict.counts[name]} {text}")
    if not verdict.counts["accepted"]:
        verdict.unknown("nothing was accepted, so nothing is shown")
    for queue in sorted(queues - drained):
        verdict.unknown(f"{queue} was not drained: what is missing may still be there")
    for problem in found.problems:
        verdict.unknown(f"the evidence is incomplete: {problem}")
    verdict.counts |= {
        "events": len(found.events),
        "segments": found.segments,
        "incomplete_segments": len(found.incomplete),
    }
    return verdict


def _facts(
    events: list[dict[str, Any]], verdict: Verdict
) -> tuple[dict[Key, Message], set[str], set[str]]:
    """Gather what is known of each message, which queues were drained, and which there are."""
    messages: dict[Key, Message] = {}
    drained: set[str] = set()
    queues: set[str] = set()
    settled: set[str] = set()
    for index, event in enumerate(events):
        if event["k"] != "op":
            continue
        f, y, queue = event["f"], event["y"], event["q"]
        queues.add(queue)
        if f == "drain":
            if y == "ok":
                drained.add(queue)
            continue
        if "w" not in event:
            continue
        key = (queue, event["w"], event["u"])
        message = messages.setdefault(key, Message())
        if f == "enqueue":
            drained.discard(queue)
            if y == "invoke":
                message.attempts += 1
                message.sent[event["i"]] = index
            if y == "ok":
                message.accepted.append(event["i"])
            message.failed += y == "fail"
        elif f == "ack" and y == "ok":
            settled.add(event["i"])
        elif f == "dequeue" and y == "ok":
            message.deliveries += 1
            copy = event["i"]
            message.copies.setdefault(copy, index)
            if copy in settled:
                verdict.offend("resurrected", [*key, copy])
    return messages, drained, queues


def _count(messages: dict[Key, Message], drained: set[str], verdict: Verdict) -> None:
    counts = verdict.counts
    counts |= dict.fromkeys(
        ("messages", "accepted", "delivered", "deliveries", "duplicated", "recovered"), 0
    )
    for key, message in messages.items():
        counts["messages"] += message.attempts > 0
        counts["accepted"] += bool(message.accepted)
        counts["delivered"] += message.deliveries > 0
        counts["deliveries"] += message.deliveries
        if message.attempts:
            counts["duplicated"] += max(message.deliveries - message.attempts, 0)
            counts["recovered"] += max(
                min(message.deliveries, message.attempts) - len(message.accepted), 0
            )
        for copy in message.accepted:
            if copy not in message.copies:
                verdict.offend("lost" if key[0] in drained else "missing", [*key, copy])
        if any(copy not in message.sent for copy in message.copies):
            verdict.offend("unexpected", list(key))
        elif message.deliveries and message.failed >= message.attempts:
            verdict.offend("phantom", list(key))


def _order(messages: dict[Key, Message], verdict: Verdict) -> None:
    """Compare the order of first deliveries with the order of sending, per queue and producer."""
    streams: dict[tuple[str, int], list[tuple[int, int, str]]] = {}
    for (queue, producer, _), message in messages.items():
        stream = streams.setdefault((queue, producer), [])
        stream += [
            (delivered, message.sent[copy], copy)
            for copy, delivered in message.copies.items()
            if copy in message.sent
        ]
    for (queue, producer), deliveries in streams.items():
        latest, before = -1, ""
        for _, sent, copy in sorted(deliveries):
            if sent < latest:
                verdict.offend("disorder", [queue, producer, copy, f"came after {before}"])
            else:
                latest, before = sent, copy
