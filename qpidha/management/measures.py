"""Measures: how long things took on this broker, and how logins ended, for those who draw curves.

Counted once a turn, a sync, a login or a promotion, and never for a message. Times come from the
clock that the node is given, so what is shorter than a turn is 0. Knows nothing of who asks.
Source: https://prometheus.io/docs/concepts/metric_types/#histogram.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Any

from qpidha.model.duration import MICROSECOND, MILLISECOND, SECOND
from qpidha.model.errors import LimitExceeded, NotServing, QpidHaError, Redirect, Unanswered

BOUNDS = (
    *(500 * MICROSECOND, 1 * MILLISECOND, 2500 * MICROSECOND, 5 * MILLISECOND, 10 * MILLISECOND),
    *(25 * MILLISECOND, 50 * MILLISECOND, 100 * MILLISECOND, 250 * MILLISECOND, 500 * MILLISECOND),
    *(1 * SECOND, 2500 * MILLISECOND, 5 * SECOND, 10 * SECOND),
)
"""Upper ends of the buckets, in ns; one more has what is above."""
MOST_BATCHES = 10_000
"""Batches whose commit is waited for one by one; later ones count with the last of these."""
CREDENTIALS, CERTIFICATE, LIMIT, NOT_PRIMARY, NOT_ALLOWED = (
    "credentials",
    "certificate",
    "limit",
    "not_primary",
    "not_allowed",
)
REFUSALS = (CREDENTIALS, CERTIFICATE, LIMIT, NOT_PRIMARY, NOT_ALLOWED)
"""Why somebody is not let in: what he logs in with is wrong, his certificate is, there are as many
connections as may be, clients are served elsewhere, or he may not come in.
"""
WAIT, PROMOTE, RECOVER = "wait", "promote", "recover"
"""Parts of a promotion: from the loss of the primary until it was asked for; until this broker was
primary; until it was active.
"""


class Histogram:
    """How many of something took how long."""

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._sum = 0

    def add(self, time: int, number: int = 1) -> None:
        """Count `number` of them that took `time` ns each."""
        self._counts[bisect_left(BOUNDS, time)] += number
        self._sum += time * number

    def report(self) -> dict[str, Any]:
        """Tell in seconds: `bounds`, how many were in each bucket, one more than bounds, and the
        sum.
        """
        return {
            "bounds": [bound / SECOND for bound in BOUNDS],
            "counts": list(self._counts),
            "sum": self._sum / SECOND,
        }


class CommitTimes:
    """How long records wait for the backups and the disk, from the turn in which a primary took
    them to the one in which their senders were answered.
    """

    __slots__ = ("_batches", "_last", "_longest", "times")

    def __init__(self) -> None:
        self.times = Histogram()
        self._batches: deque[tuple[int, int, int]] = deque()
        """Last sequence, when it came, and the number of records."""
        self._last = self._longest = 0

    def begin(self, last: int) -> None:
        """What comes after `last` is waited for; what was waited for is never answered."""
        self._batches.clear()
        self._last = last
        self._longest = 0

    def turn(self, last: int, committed: int, now: int) -> None:
        """At the end of a turn the log is sealed up to `last`, and answered up to `committed`."""
        batches = self._batches
        if last > self._last:
            number = last - self._last
            if len(batches) < MOST_BATCHES:
                batches.append((last, now, number))
            else:
                _, since, before = batches[-1]
                batches[-1] = (last, since, before + number)
            self._last = last
        while batches and batches[0][0] <= committed:
            _, since, number = batches.popleft()
            self.times.add(now - since, number)
            self._longest = max(self._longest, now - since)

    def take_longest(self) -> int:
        """Return the longest time, in ns, since this was asked for before."""
        longest, self._longest = self._longest, 0
        return longest


class Measures:
    """All that is measured on one broker."""

    __slots__ = (
        "_asked",
        "_lost",
        "began",
        "denials",
        "_recovering",
        "commits",
        "logins",
        "promotions",
        "refusals",
        "stalled",
        "syncs",
        "took",
    )

    def __init__(self) -> None:
        self.began = 0
        """When the broker began, in ns since 1970."""
        self.denials = 0
        """Requests that access control denied."""
        self.commits = CommitTimes()
        self.syncs = Histogram()
        self.stalled = 0
        """Nanoseconds in which this broker heard nobody, in stalls that were long."""
        self.logins = 0
        """Those that were let in."""
        self.refusals = dict.fromkeys(REFUSALS, 0)
        self.promotions = 0
        self.took: dict[str, int] = {}
        """Part -> nanoseconds, of the last promotion."""
        self._lost = self._asked = self._recovering = 0

    def not_admitted(self, error: QpidHaError) -> None:
        """Count somebody who is known, and not let in."""
        if isinstance(error, LimitExceeded):
            reason = LIMIT
        elif isinstance(error, NotServing | Redirect | Unanswered):
            reason = NOT_PRIMARY
        else:
            reason = NOT_ALLOWED
        self.refusals[reason] += 1

    def primary_lost(self, now: int) -> None:
        """A backup has no primary any more."""
        self._lost = now

    def asked(self, now: int, *, is_following: bool) -> None:
        """A promotion is asked for; `is_following` if there is a primary still."""
        self._asked = now
        if is_following:
            self._lost = 0

    def promoted(self, now: int, *, is_handover: bool) -> None:
        """This broker is primary from now on; nobody asks for it where another one hands over."""
        self.promotions += 1
        self.took = {}
        if self._asked and not is_handover:
            self.took[PROMOTE] = now - self._asked
            if self._lost:
                self.took[WAIT] = self._asked - self._lost
        self._lost = self._asked = 0
        self._recovering = now

    def active(self, now: int) -> None:
        """All backups that were expected are there, or given up."""
        self.took[RECOVER] = now - self._recovering

    def report(self) -> dict[str, Any]:
        """Tell all."""
        return {
            "since_ns": self.began,
            "denials": self.denials,
            "commit_seconds": self.commits.times.report(),
            "sync_seconds": self.syncs.report(),
            "stall_seconds": self.stalled / SECOND,
            "logins_accepted": self.logins,
            "logins_refused": dict(self.refusals),
            "promotions": self.promotions,
            "promotion_seconds": {part: time / SECOND for part, time in self.took.items()},
        }
