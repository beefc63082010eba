"""What a log says of why messages left is judged by the messages that had their numbers then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qpidha.model.records import Cause, Dequeued, Enqueued, LevelChanged, Record
from qpidha.model.replication_level import ALL, CONFIGURATION
from qpidha.store.codec import encode_record
from tests.sim import checkers
from tests.sim.history import Facts, Violation

QUEUE, NUMBER = 10, 17
LASTING, TIMED = "s1.1.1", "s0.8.19"
CAME = (NUMBER, Enqueued((QUEUE,), f"<{LASTING}>".encode()))
LOWERED = (23, LevelChanged(QUEUE, CONFIGURATION, logged=False, keeper="a"))
BEGINS = (169, LevelChanged(QUEUE, CONFIGURATION, logged=True, own_numbers=168, keeper="b"))
STAYS = (20, LevelChanged(QUEUE, ALL, logged=True))


def with_log(*entries: tuple[int, Record]) -> Any:
    """A broker with one queue and this in its log."""
    data = b"".join(encode_record(*entry) for entry in entries)
    log = SimpleNamespace(start=1, batches=lambda start: [SimpleNamespace(data=data)])
    broker = SimpleNamespace(queues={"q0": SimpleNamespace(uid=QUEUE, name="q0")})
    return SimpleNamespace(host="a", node=SimpleNamespace(log=log, broker=broker))


@pytest.mark.parametrize("cause", [Cause.EXPIRED, Cause.REJECTED])
def test_a_number_of_the_queue_s_own_is_not_the_one_that_the_log_gave_before(cause: Cause) -> None:
    """The queue left the log with message 17, which its former primary has; the next primary gave
    17 to another message, which left before it was recorded.
    """
    facts = Facts(timed={TIMED}, levels=True)
    left = (0, Dequeued(QUEUE, (NUMBER,), cause))
    checkers.causes_hold(facts, with_log(CAME, LOWERED, BEGINS, left))


@pytest.mark.parametrize("cause", [Cause.EXPIRED, Cause.REJECTED])
def test_a_message_that_the_log_still_has_is_judged(cause: Cause) -> None:
    left = (0, Dequeued(QUEUE, (NUMBER,), cause))
    with pytest.raises(Violation, match="wrong cause"):
        checkers.causes_hold(Facts(timed={TIMED}, levels=True), with_log(CAME, STAYS, left))


def test_what_came_again_under_such_a_number_is_judged() -> None:
    again = (NUMBER, Enqueued((QUEUE,), f"<{LASTING}>".encode()))
    left = (0, Dequeued(QUEUE, (NUMBER,), Cause.EXPIRED))
    with pytest.raises(Violation, match="wrong cause"):
        checkers.causes_hold(Facts(levels=True), with_log(CAME, LOWERED, BEGINS, again, left))
