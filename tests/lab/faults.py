"""What can befall the primary of a cluster, one function each; `play.now()` in it is when it
happens.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.lab.hosts import CLIENTS, CLUSTER, PORT
from tests.lab.play import Play

DATA = "/var/lib/qpidha"
DAEMON = "/usr/bin/qpidhad"
SLOW = """#!/bin/sh
touch {begun}
while [ -e {held} ]; do sleep 0.1; done
exec {daemon}.quick "$@"
"""
BEGUN = "/run/qpidha-slow-start"
"""There once a slow start has begun."""
HELD = f"{BEGUN}.held"
"""There as long as a slow start may not go on."""


@contextmanager
def slow_start(play: Play) -> Iterator[None]:
    """Have the next start of the broker of the primary's host last until `end_slow_start`; undone
    at the end.
    """
    host, text = play.primary, SLOW.format(begun=BEGUN, held=HELD, daemon=DAEMON)
    play.lab.run(
        host,
        "sh",
        "-ec",
        f'touch {HELD}; mv {DAEMON} {DAEMON}.quick; printf %s "$1" >{DAEMON}; chmod 755 {DAEMON}',
        "sh",
        text,
    )
    try:
        yield
    finally:
        end_slow_start(play)
        play.lab.run(host, "mv", f"{DAEMON}.quick", DAEMON)


def end_slow_start(play: Play) -> None:
    """Let a start that is slow go on."""
    play.lab.run(play.primary, "rm", "-f", HELD)


def kill(play: Play) -> None:
    """The broker dies: SIGKILL."""
    play.now()
    play.lab.kill(play.primary, signal.SIGKILL)


def empty(play: Play) -> None:
    """The broker dies, and what it had on its disk is gone: it comes back empty."""
    play.now()
    play.lab.kill(play.primary, signal.SIGKILL)
    play.lab.run(play.primary, "find", DATA, "-mindepth", "1", "-delete")


def hang(play: Play) -> None:
    """The broker hangs: SIGSTOP."""
    play.now()
    play.lab.kill(play.primary, signal.SIGSTOP)


def power(play: Play) -> None:
    """The host loses power."""
    play.now()
    play.lab.off(play.primary)


def partition(play: Play) -> None:
    """Both networks of the host are cut towards the other hosts; clients still reach it."""
    play.now()
    play.lab.cut(play.primary)


def broker_links(play: Play) -> None:
    """Only the links between the brokers are cut; corosync's are fine."""
    play.now()
    play.lab.cut(play.primary, CLUSTER, port=PORT)


def cluster_network(play: Play) -> None:
    """The cable of the cluster's network is pulled; corosync has the clients' network too."""
    play.now()
    play.lab.unplug(play.primary, CLUSTER)


def clients_network(play: Play) -> None:
    """The cable of the clients' network is pulled."""
    play.now()
    play.lab.unplug(play.primary, CLIENTS)


def standby(play: Play) -> None:
    """The host is put into standby."""
    play.now()
    play.cluster.pcs("node", "standby", play.primary)


def move(play: Play) -> None:
    """The primary is moved to another host."""
    play.now()
    play.cluster.pcs("resource", "move", "broker-clone", play.backups[-1], "--promoted")


FAULTS: dict[str, Callable[[Play], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        kill,
        hang,
        power,
        partition,
        broker_links,
        cluster_network,
        clients_network,
        standby,
        move,
    )
}
