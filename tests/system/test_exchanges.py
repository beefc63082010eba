"""Exchanges that lead to exchanges, hashing, moving and peeking, over a change of primary."""

from __future__ import annotations

import pytest

from tests.system.clients import browse, send, wait_browse
from tests.system.cluster import wait_for

pytestmark = pytest.mark.system
WORK = ("w1", "w2", "w3")


def by_queue(broker, names):
    return {name: set(browse(broker, name)) for name in names}


def test_a_successor_routes_hashes_moves_and_shows_as_the_primary_did(a_cluster):
    cluster = a_cluster(2)
    first, second = cluster
    for name in (*WORK, "all", "spare"):
        first.declare_queue(name)
    first.call("declare_exchange", name="front", type="topic")
    first.call("declare_exchange", name="back", type="fanout")
    first.call("declare_exchange", name="work", type="x-consistent-hash")
    first.call("bind", exchange="front", destination_exchange="back", key="order.#")
    first.call("bind", exchange="back", destination_exchange="work", key="1")
    first.bind("back", "all")
    for name in WORK:
        first.bind("work", name, "1")
    keys = [f"order.{number}" for number in range(20)]
    for key in keys:
        send(first, f"front/{key}", [key])
    before = by_queue(first, WORK)
    assert set().union(*before.values()) == set(keys) and sum(map(len, before.values())) == 20
    moved = first.call("move_messages", name="all", target="spare", count=8)
    assert (moved["messages"], moved["left"]) == (8, 12)
    # A backup shows what it has, and moves nothing.
    wait_browse(second, "spare", keys[:8])
    shown = second.call("peek_messages", name="all", position=12)
    assert [message["body"]["text"] for message in shown] == [keys[-1]]
    with pytest.raises(Exception, match="changes nothing itself"):
        second.call("move_messages", name="all", target="spare")
    cluster.kill(0, promote=1)
    assert by_queue(second, WORK) == before
    for key in keys:
        send(second, f"front/{key}", [f"again {key}"])
    after = by_queue(second, WORK)
    for name, bodies in before.items():
        assert after[name] == bodies | {f"again {body}" for body in bodies}
    assert browse(second, "spare") == keys[:8]
    second.call("move_messages", name="spare", target="all")
    wait_for(lambda: len(browse(second, "all")), lambda count: count == 40, what="all are back")
