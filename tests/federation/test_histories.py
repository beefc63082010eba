"""Random histories of links, and bugs that they have to find."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from qpidha.amqp.peer.terminus import ACCEPTED
from qpidha.federation.links import Links
from qpidha.federation.pull import Pull
from qpidha.federation.push import Push
from qpidha.federation.route import Route
from tests.federation.histories import Broken, play
from tests.sim.planted_bugs import replaced

SEEDS = range(12)
MOST = 40
"""Seeds that a bug may go unnoticed."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_loses_nothing_and_repeats_nothing(seed: int) -> None:
    play(seed)


def settle_early() -> AbstractContextManager[None]:
    """Settle a message at its source before it is committed here."""
    received = Pull.received

    def hasty(self: Any, link: Any, payload: bytes) -> None:
        former = self.host.when_committed
        try:
            self.host.when_committed = lambda sequence, waiter, item: waiter.on_committed(item)
            received(self, link, payload)
        finally:
            self.host.when_committed = former

    return replaced((Pull, "received", hasty))


def leave_early() -> AbstractContextManager[None]:
    """Let a message leave here when it is sent, and not when it is accepted there."""
    deliver = Push.deliver

    def hasty(self: Any, message: Any) -> None:
        known = len(self._under_way)
        deliver(self, message)
        if len(self._under_way) > known:
            self._queue.dequeue(message)

    return replaced((Push, "deliver", hasty))


def forget_routes() -> AbstractContextManager[None]:
    """Run nothing that was declared at another primary."""
    compare = Links._compare

    def only_new(self: Any, name: str, routes: set[str]) -> None:
        if self._host.log.epoch == 1 or self._host.cluster is None:
            compare(self, name, routes)

    return replaced((Links, "_compare", only_new))


def see_no_circle() -> AbstractContextManager[None]:
    """Take every message, wherever it has been."""
    return replaced((Route, "_tags", lambda self, payload, places: []))


def accept_all() -> AbstractContextManager[None]:
    """Take every outcome for accepted, and a lost link as well."""
    end = Push._end

    def careless(self: Any) -> None:
        for message in self._under_way.values():
            self._queue.dequeue(message, 0)
        self._under_way.clear()
        end(self)

    assert ACCEPTED
    return replaced((Push, "_end", careless))


@pytest.mark.parametrize(
    ("bug", "first"),
    [(settle_early, 31), (leave_early, 1), (forget_routes, 0), (see_no_circle, 0), (accept_all, 1)],
)
def test_a_planted_bug_is_noticed(
    bug: Callable[[], AbstractContextManager[None]], first: int
) -> None:
    """`first` is a seed that notices it, as long as nothing changes the histories."""
    for seed in range(first, first + MOST):
        try:
            with bug():
                play(seed)
        except (Broken, AssertionError):
            play(seed)  # It is the bug that makes the difference.
            return
    pytest.fail(f"{MOST} seeds did not notice {bug.__name__}")
