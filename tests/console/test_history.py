"""What the console remembers of the states of brokers, from looks alone."""

from __future__ import annotations

from typing import Any

from qpidha.console.history import Failover, History, Span
from qpidha.console.looks import Look
from tests.console.consoles import member, status_of


def seen(own: str, rows: list[dict[str, Any]]) -> Look:
    """Return a look at a broker that reports these brokers, itself among them."""
    me = next(row for row in rows if row["system_id"] == own)
    status = status_of(me["state"], members=rows) | {
        "system_id": own,
        "name": me["name"],
        "address": me["address"],
        "epoch": me["epoch"],
    }
    return Look(me["name"], status)


def gone(name: str) -> Look:
    return Look(name, None, "nobody listens")


def states(history: History) -> dict[str, str]:
    return {lane.name: lane.state for lane in history.lanes.values()}


def test_one_console_knows_all_brokers_by_what_its_own_says() -> None:
    history = History(0.0)
    history.take("s1", seen("1", [member("1", "active"), member("2"), member("3", "catchup")]), 1.0)
    assert states(history) == {"b1": "active", "b2": "ready", "b3": "catchup"}
    rows = [member("1", "active"), member("2", "unreachable", connected=False), member("3")]
    history.take("s1", seen("1", rows), 4.0)
    assert states(history) == {"b1": "active", "b2": "unreachable", "b3": "ready"}
    assert history.lanes["2"].seen == 1.0 and history.lanes["3"].seen == 4.0
    assert history.spans("2", 0.0, 9.0) == [
        Span(1.0, 4.0, "ready", 1),
        Span(4.0, 9.0, "unreachable", 1),
    ]
    assert history.spans("2", 5.0, 9.0) == [Span(5.0, 9.0, "unreachable", 1)]
    history.take("s1", gone("b1"), 6.0)
    assert states(history) == {"b1": "unreachable", "b2": "unknown", "b3": "unknown"}
    assert history.lanes["1"].seen == 4.0


def test_a_broker_that_is_watched_speaks_for_itself() -> None:
    history = History(0.0)
    both = [member("1", "active"), member("2")]
    history.take("s1", seen("1", both), 1.0)
    history.take("s2", seen("2", both), 1.0)
    # The first one has not heard yet that the second one catches up.
    history.take("s2", seen("2", [member("1", "active"), member("2", "catchup")]), 2.0)
    history.take("s1", seen("1", both), 2.5)
    assert states(history) == {"b1": "active", "b2": "catchup"}
    # One that does not answer is not ready because another says so.
    history.take("s2", gone("b2"), 3.0)
    assert states(history) == {"b1": "active", "b2": "unreachable"}


def test_failovers_have_the_time_without_an_active_primary() -> None:
    history = History(0.0)

    def take(at: float, first: str, second: str, epoch: int) -> None:
        rows = [
            member("1", first, connected=first != "unreachable", epoch=epoch),
            member("2", second, epoch=epoch),
        ]
        history.take("s2", seen("2", rows), at)

    take(1.0, "active", "ready", 1)
    take(5.0, "unreachable", "ready", 1)
    take(7.0, "unreachable", "recovering", 2)
    take(8.0, "unreachable", "active", 2)
    take(20.0, "ready", "active", 2)
    assert history.failovers() == [Failover(8.0, 2, "b1", "b2", 3.0)]
    # A hand-over, in which no look saw both without the role.
    take(21.0, "active", "joining", 3)
    assert history.failovers()[0][:4] == (21.0, 3, "b2", "b1")
    # The same broker again: it was only late, or cut off.
    take(25.0, "unreachable", "joining", 3)
    take(26.0, "active", "joining", 3)
    assert history.failovers()[0] == Failover(26.0, 3, "b1", "b1", 1.0)


def test_a_broker_whose_id_becomes_known_is_no_other_one() -> None:
    history = History(0.0)
    stranger = member("2", "unreachable", connected=False) | {"system_id": "", "name": ""}
    history.take("s1", seen("1", [member("1", "active"), stranger]), 1.0)
    assert states(history) == {"b1": "active", "host2:5672": "unreachable"}
    history.take("s1", seen("1", [member("1", "active"), member("2")]), 2.0)
    assert states(history) == {"b1": "active", "b2": "ready"}


def test_a_broker_that_began_anew_with_another_id_is_no_other_one() -> None:
    history = History(0.0)
    for number in range(3):
        # Without a data-dir it has another id after each start.
        other = member("2") | {"system_id": f"2{number}"}
        history.take("s1", seen("1", [member("1", "active"), other]), 1.0 + number)
    assert states(history) == {"b1": "active", "b2": "ready"}
    assert [lane.key for lane in history.lanes.values()] == ["1", "22"]
    assert history.spans("22", 0.0, 4.0) == [Span(1.0, 4.0, "ready", 1)]
    # Whoever has not heard of it yet does not bring the former one back.
    anew, former = (member("2") | {"system_id": number} for number in ("23", "22"))
    history.take("s2", seen("23", [anew, member("1", "active")]), 5.0)
    history.take("s1", seen("1", [member("1", "active"), former]), 5.0)
    assert [lane.key for lane in history.lanes.values()] == ["1", "23"]


def test_a_broker_that_left_the_cluster_is_gone_from_it_but_not_from_the_past() -> None:
    history = History(0.0)
    history.take("s1", seen("1", [member("1", "active"), member("2"), member("3")]), 1.0)
    history.take("s1", seen("1", [member("1", "active"), member("3")]), 2.0)
    assert history.lanes["2"].state == "unknown" and history.spans("2", 0.0, 3.0)
