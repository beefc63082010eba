"""Three brokers with a console each: every health endpoint of every member says what is so, while
the primary is killed, stopped and cut off under load.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.console.consoles import Console, table_of_health
from tests.system.cluster import Broker, Cluster, wait_for
from tests.system.failover_clients import FailoverSender
from tests.system.net import make_network

pytestmark = pytest.mark.system
TABLE = table_of_health()
KNOWN = {200: "yes", 503: "no"}


def wrong(broker: Broker, console: Console) -> dict[str, str]:
    """Return what a console says of a broker and is not so: of one that is dead or frozen nothing
    is said but no, of others what the table says of their state.
    """
    found = {name: KNOWN[console.status(f"/{name}")] for name in TABLE}
    state = broker.state
    told = {name: row[state] if state else "no" for name, row in TABLE.items()}
    return {
        name: f"{said}, though {broker.name} is {state or 'silent'}"
        for name, said in found.items()
        if told[name] not in (said, "yes if")
    }


def wait_right(cluster: Cluster, consoles: list[Console], *, is_synced: int | None = None) -> None:
    """Wait until every console is right, and the one of this primary, and no other, says that all
    is synced.
    """
    for number, (broker, console) in enumerate(zip(cluster, consoles, strict=True)):
        wait_for(
            lambda broker=broker, console=console: wrong(broker, console),
            {}.__eq__,
            what=f"what the console of {broker.name} says",
        )
        expected = 200 if number == is_synced else 503
        wait_for(lambda console=console: console.status("/synced"), expected.__eq__)


def test_every_endpoint_of_every_member_says_what_is_so(a_cluster: Callable[..., Cluster]) -> None:
    cluster = a_cluster(3, ha_safety="strict", network=make_network(3))
    cluster[0].declare_queue("q")
    with ExitStack() as stack:
        consoles = [
            stack.enter_context(Console("--admin-socket", broker.admin_socket))
            for broker in cluster
        ]
        sender = stack.enter_context(FailoverSender(cluster.addresses, "q", rate=50))
        sender.wait_accepted(1)
        wait_right(cluster, consoles, is_synced=0)

        cluster[0].kill()
        wait_right(cluster, consoles)
        cluster[1].promote()
        wait_for(lambda: consoles[1].status("/active"), (200).__eq__)
        wait_right(cluster, consoles)
        sender.wait_accepted(1)
        cluster[0].restart()
        wait_right(cluster, consoles, is_synced=1)

        cluster[1].stop()
        wait_right(cluster, consoles)
        cluster[2].promote()
        wait_for(lambda: consoles[2].status("/active"), (200).__eq__)
        wait_right(cluster, consoles)
        cluster[1].cont()
        wait_right(cluster, consoles, is_synced=2)

        assert cluster.network is not None
        cluster.network.isolate(2)
        cluster[0].promote()
        wait_for(lambda: consoles[0].status("/active"), (200).__eq__)
        wait_right(cluster, consoles)
        cluster.network.heal()
        wait_right(cluster, consoles, is_synced=0)
        assert [console.status("/backup?lag=1000000&age=60s") for console in consoles] == [
            503,
            200,
            200,
        ]
