"""Eight senders and a consumer at a queue that is nearly always full: `python -m
tests.bench.exact_limit --sends 500000`.

Ends with what it cost, or with what was wrong: the queue over its limit, a send without an outcome
or with two, a message that was accepted and never came, or in another order.
"""

from __future__ import annotations

import argparse
from time import process_time
from typing import Any

from qpidha.model.errors import QueueFull
from tests.broker.parts import Tape, a_broker, a_taker, contents, send

LIMIT, SENDERS = 12, 8


def play(sends: int) -> list[int]:
    """Send so many messages, as many turns as that takes; return how many were accepted, and how
    many refused. Raises AssertionError.
    """
    broker = a_broker(Tape())
    arguments: dict[str, Any] = {"x-max-length": LIMIT, "x-overflow": "reject-publish"}
    queue, _ = broker.declare_queue("q", arguments=arguments)
    taker = a_taker(queue, settles=True)
    accepted: list[str] = []
    for turn in range(sends // SENDERS):
        for sender in range(SENDERS):
            body, refused = f"{sender}:{turn}", queue.refused
            try:
                send(broker, "q", body)
                accepted.append(body)
                assert queue.refused == refused
            except QueueFull:
                assert queue.refused == refused + 1
            assert len(queue.messages) <= LIMIT
        taker.credit = turn % 15
        broker.dispatch(turn)
    assert taker.bodies + contents(broker, "q") == accepted
    assert len(accepted) + queue.refused == sends // SENDERS * SENDERS
    return [len(accepted), queue.refused]


def main() -> None:
    """Play, and say what it cost."""
    parser = argparse.ArgumentParser(description="Fill a small queue from many senders.")
    parser.add_argument("--sends", type=int, default=500_000)
    sends = parser.parse_args().sends
    begun = process_time()
    accepted, refused = play(sends)
    spent = 1e6 * (process_time() - begun) / sends
    print(f"{accepted} accepted, {refused} refused, never above {LIMIT}; {spent:.1f} us a send")


if __name__ == "__main__":
    main()
