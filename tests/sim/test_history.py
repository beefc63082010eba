"""What is known of a message of which two copies come to one place."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.sim import checkers
from tests.sim.history import ACCEPTED, Facts, Violation

KEY = "s0.1.1"


def two_copies() -> Facts:
    """A message on two queues is accepted, and receivers reject both copies."""
    facts = Facts(alternates={"q0": "rejected", "q1": "rejected"})
    sender = SimpleNamespace(
        host="s0",
        queues=("q0", "q1"),
        durable=True,
        is_transactional=True,
        hashed_to=(),
        has_ids=False,
        level_of=None,
        write=None,
        padding=b"",
    )
    facts.sent(sender, 1, 1, 0)
    facts.outcome(sender, 1, 1, ACCEPTED)
    facts.rejected("q0", KEY)
    facts.rejected("q1", KEY)
    return facts


@pytest.mark.parametrize("waits", ["q0", "q1"])
def test_the_copy_that_still_waits_is_not_the_one_that_was_taken(waits: str) -> None:
    facts = two_copies()
    facts.consumed("rejected", KEY)
    checkers.no_loss(facts, {waits: {KEY: True}, "rejected": {}}, "a")
    with pytest.raises(Violation, match="lost"):
        checkers.no_loss(facts, {"q0": {}, "q1": {}, "rejected": {}}, "a")


@pytest.mark.parametrize("waits", ["q0", "q1"])
def test_the_copy_that_is_taken_from_its_queue_was_not_taken_before(waits: str) -> None:
    facts = two_copies()
    facts.consumed("rejected", KEY)
    facts.consumed(waits, KEY)
    checkers.no_loss(facts, {}, "a")


@pytest.mark.parametrize("emptied", ["q0", "q1"])
def test_what_is_taken_is_not_the_copy_that_was_purged(emptied: str) -> None:
    facts = two_copies()
    facts.purged(emptied)
    facts.consumed("rejected", KEY)
    checkers.no_loss(facts, {}, "a")
