"""Qpid JMS with transacted sessions and one that acknowledges when its client says so: over a
failover a commit that returns holds, one that fails says how, and each is done as a whole.
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile

import pytest

from tests.interop.faults import befall, come_late_again, kill, switch_over
from tests.interop.programs import Access, JmsTransactions, Program
from tests.system.clients import browse
from tests.system.cluster import wait_for

SIZE = 5
"""Messages of a transaction."""
ROLLED_BACK = "javax.jms.TransactionRolledBackException: Transaction failed and has been"
IN_DOUBT = "javax.jms.TransactionRolledBackException: Commit failed, connection offline"
"""What Qpid JMS says of a commit that was under way: it may have been done."""


def numbers_of(firsts):
    """Return the numbers that were sent in the transactions with these first ones."""
    return {first + place for first in firsts for place in range(SIZE)}


def failed(program, kind, text):
    """Return the transactions whose commit failed so."""
    return [event["number"] for event in program.events(kind) if event["text"].startswith(text)]


def is_whole(program, first, here):
    """Whether a transaction was done as a whole or not at all, or a consumer saw a part of it
    before its primary died.
    """
    events = program.events("failed", "received")
    numbers = numbers_of([first])
    seen = takewhile(lambda event: (event["event"], event["number"]) != ("failed", first), events)
    was_seen = numbers & {event["number"] for event in seen if event["event"] == "received"}
    return bool(was_seen) or len(numbers & here) in (0, SIZE)


@pytest.fixture
def client(prepared):
    """Return a client whose application can be run."""
    return prepared(JmsTransactions)


@pytest.mark.parametrize("fault", [kill, switch_over])
def test_a_commit_of_jms_holds_or_says_what_became_of_it(a_cluster, client, tmp_path, fault):
    cluster = a_cluster(3)
    for queue in ("q", "q.moved"):
        cluster[0].declare_queue(queue)
    with Program(client.command("q", Access.to(cluster, 1)), tmp_path) as program:
        wait_for(lambda: len(program.numbers("moved")), lambda seen: seen > 20, what="moved")
        befall(cluster, fault, lambda: SIZE * len(program.numbers("committed")))
        program.stop()
    assert program.events("error") == []
    not_moved, moved = ({int(body) for body in browse(cluster[2], q)} for q in ("q", "q.moved"))
    received = program.numbers("received")
    here = not_moved | moved | set(received)

    # What was committed is received, what was rolled back was never there, and the rest is whole.
    assert numbers_of(program.numbers("committed")) <= set(received)
    assert not numbers_of(failed(program, "failed", ROLLED_BACK)) & here
    in_doubt = failed(program, "failed", IN_DOUBT)
    assert all(is_whole(program, first, here) for first in in_doubt)
    assert here <= numbers_of([*program.numbers("committed"), *in_doubt])
    for kind in ("failed", "not moved"):
        told = [failed(program, kind, text) for text in (ROLLED_BACK, IN_DOUBT)]
        assert sorted(sum(told, [])) == sorted(program.numbers(kind))

    # Each was moved once, and what was acknowledged does not come again. A consumer may have seen
    # what a commit did that was not answered, and that the next primary does not know.
    ids = {(event["number"], event["text"]) for event in program.events("received")}
    twice = {number for number, seen in Counter(number for number, _ in ids).items() if seen > 1}
    here_and_there = not_moved & (moved | set(received))
    assert twice | here_and_there <= set(failed(program, "not moved", IN_DOUBT))
    assert come_late_again(received) == []
