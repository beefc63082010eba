"""What passes leaves nothing behind: a broker through which many messages went takes no more memory
than one through which a few went.
"""

from __future__ import annotations

import tracemalloc

import pytest

from qpidha.broker.broker import Broker
from qpidha.model.duration import SECOND
from qpidha.model.features import FEATURES
from qpidha.model.message_view import build
from qpidha.model.settings import Settings
from qpidha.store.log import Log
from tests.broker.parts import a_taker

A_TURN, TURNS, LOOK = 20, 650, 25
"""Messages in a turn, turns between two comparisons, and after how many there is a look. Sequences
of what has left are thrown away a thousand at a time: the least of many looks counts.
"""
MORE = 32 << 10
"""Bytes that are no growth: a dictionary that is larger at one moment than at another."""


@pytest.mark.parametrize("is_logged", [True, False])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"x-max-priority": 10},
        {"qpid.last_value_queue_key": "key"},
        {"x-message-ttl": 1_000_000},
    ],
    ids=["fifo", "priorities", "last values", "time to live"],
)
def test_what_passes_leaves_nothing_behind(is_logged: bool, arguments: dict[str, object]) -> None:
    log = Log(1 << 16) if is_logged else None
    broker = Broker(Settings(ha_replicate="all"), log, lambda said: None, lambda: "uuid")
    broker.features.update(dict.fromkeys(FEATURES, 0))
    queue, _ = broker.declare_queue("q", arguments=arguments)
    taker = a_taker(queue, settles=True)
    payloads = [
        build(
            bytes(50), header={"priority": number % 10}, application_properties={"key": number % 3}
        )
        for number in range(A_TURN)
    ]

    def least(begin: int) -> int:
        """Let messages come and leave, a second between two turns; return the least that was in
        memory meanwhile.
        """
        seen = []
        for turn in range(begin, begin + TURNS):
            broker.now = turn * SECOND
            for payload in payloads:
                queue.enqueue(payload)
            taker.credit = A_TURN
            broker.dispatch(broker.now)
            taker.got.clear()
            if log is not None:
                log.seal()
                log.committed = log.last
                log.consumed.clear()
                broker.arrivals.turn(log.last, broker.now, is_exact=True)
            assert not queue.messages
            if turn % LOOK == 0:
                seen.append(tracemalloc.get_traced_memory()[0])
        return min(seen)

    tracemalloc.start()
    try:
        least(0)
        before = least(TURNS)
        assert least(2 * TURNS) - before < MORE
    finally:
        tracemalloc.stop()
