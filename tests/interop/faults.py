"""What happens to the primary of three brokers while applications of others send and receive, and
what they must not notice.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence

from tests.patience import STATE
from tests.system.cluster import Broker, Cluster, wait_for

SOON = 100
"""Messages after which none comes again: fewer than that are under way at any time."""


def kill(cluster: Cluster) -> None:
    cluster.kill(0, promote=2)


def hang(cluster: Cluster) -> None:
    cluster[0].stop()
    cluster.promote(2)


def terminate(cluster: Cluster) -> None:
    _terminate(cluster[0])
    cluster.promote(2)


def switch_over(cluster: Cluster) -> None:
    cluster[0].call("switchover", target=cluster[2].member_address)


def restart_all(cluster: Cluster) -> None:
    """Restart the backups, one by one, then the primary, which has handed over."""
    for number in (1, 2):
        _terminate(cluster[number])
        cluster[number].restart()
        cluster.wait_settled(0)
    cluster.wait_connected()
    switch_over(cluster)
    cluster.wait_settled(2)
    _terminate(cluster[0])
    cluster[0].restart()
    cluster.wait_settled(2)


FAULTS: Sequence[Callable[[Cluster], None]] = [kill, hang, terminate, switch_over, restart_all]


def _terminate(broker: Broker) -> None:
    assert broker.process is not None
    broker.signal(signal.SIGTERM)
    broker.process.wait(STATE)


def befall(cluster: Cluster, fault: Callable[[Cluster], None], accepted: Callable[[], int]) -> None:
    """Let a fault happen and wait until an application's messages are accepted by the next
    primary.
    """
    fault(cluster)
    before = accepted()
    try:
        wait_for(accepted, lambda seen: seen > before + 50, what="accepted after the fault")
    finally:
        if cluster[0].is_frozen:
            cluster[0].cont()


def come_late_again(received: Iterable[int]) -> list[int]:
    """Return the numbers that come again when they were settled long ago."""
    first: dict[int, int] = {}
    return [
        number
        for place, number in enumerate(received)
        if place - first.setdefault(number, place) > SOON
    ]
