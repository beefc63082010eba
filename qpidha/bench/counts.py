"""Counts: what became of the messages of a run under load, computed from the records of its
clients; pure, so that it can be tested.

Lost is what was accepted to the sender and never came out, nor is still in the queue. Duplicates
are allowed (at-least-once) and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Delivered:
    """What became of the messages."""

    accepted: int
    received: int
    deliveries: int
    duplicates: int
    lost: int
    lost_ids: list[int]
    in_doubt: int
    """Received, though their sender never heard of an acceptance."""


def delivered(accepted: Sequence[int], received: Sequence[int], left: int = 0) -> Delivered:
    """Compare records, each a flat sequence of (id, time) pairs; `left` messages are still in the
    queue.
    """
    accepted_ids = set(accepted[::2])
    received_ids = set(received[::2])
    missing = sorted(accepted_ids - received_ids)
    return Delivered(
        accepted=len(accepted_ids),
        received=len(received_ids),
        deliveries=len(received) // 2,
        duplicates=len(received) // 2 - len(received_ids),
        lost=max(0, len(missing) - left),
        lost_ids=missing[:100],
        in_doubt=len(received_ids - accepted_ids),
    )


def longest_gap(times: Sequence[int], since: int, until: int) -> tuple[float, int]:
    """Find the longest silence that ends after `since` and begins before `until` (ns); return its
    seconds and its end.
    """
    longest, end = 0, 0
    previous = 0
    for time in sorted(times):
        if previous and time >= since and previous <= until and time - previous > longest:
            longest, end = time - previous, time
        previous = time
    return longest / 1e9, end


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which a share of an ordered sequence lies; 0 for an empty one."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
