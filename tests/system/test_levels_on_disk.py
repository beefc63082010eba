"""Durable messages on queues of all three levels survive the restart of one member, of all, and a
power cut: each on the broker that accepted them, and those of level `all` on every one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.system.clients import browse, receive, send, wait_browse
from tests.system.cluster import Broker, Cluster, wait_for
from tests.system.power import LIE
from tests.system.test_power_cut import POWER, lose_power

pytestmark = pytest.mark.system
LEVELS = ("none", "configuration", "all")


def declare(broker: Broker) -> None:
    """Make a durable queue of each level, with an exchange of level none that leads to that."""
    for level in LEVELS:
        given = {"qpid.replicate": level}
        broker.call("declare_queue", name=level, durable=True, arguments=given)
    broker.call(
        "declare_exchange",
        name="ex",
        type="fanout",
        durable=True,
        arguments={"qpid.replicate": "none"},
    )
    broker.bind("ex", "none")


def fill(broker: Broker, first: int = 0) -> list[str]:
    """Send some messages to each queue, and take the first away that is there; return what was
    sent.
    """
    bodies = [f"m{number}" for number in range(first, first + 10)]
    for level in LEVELS:
        send(broker, level, bodies, durable=True)
    for level in LEVELS:
        assert receive(broker, level, 1)
    return bodies


def check(broker: Broker, expected: list[str]) -> None:
    """See that a broker has these messages on all queues."""
    for level in LEVELS:
        wait_browse(broker, level, expected)


def kill(cluster: Cluster, *indexes: int) -> None:
    """End brokers with SIGKILL."""
    for i in indexes:
        cluster.kill(i)


def stop_in_order(cluster: Cluster, *indexes: int) -> None:
    """End brokers in good order."""
    for i in indexes:
        process = cluster[i].process
        assert process is not None
        os.kill(process.pid, signal.SIGTERM)
    for i in indexes:
        process = cluster[i].process
        assert process is not None
        process.wait()
        cluster[i].kill()


def power(cluster: Cluster, *indexes: int) -> None:
    """Cut their power."""
    lose_power(cluster, *indexes, choices=random.Random(7))


WAYS = pytest.mark.parametrize("end", [kill, stop_in_order, power])


@WAYS
def test_one_member_has_its_messages_again_as_a_backup_and_when_it_is_primary(
    a_cluster: Callable[..., Cluster], end: Callable[..., None]
) -> None:
    cluster = a_cluster(3, module=POWER, ha_safety="strict")
    declare(cluster[0])
    expected = fill(cluster[0])[1:]
    cluster.wait_settled(0)
    end(cluster, 0)
    cluster.promote(1)
    cluster[0].restart()
    cluster[0].wait_state("ready")
    check(cluster[0], expected)
    # The new primary has what is replicated, and takes more.
    assert browse(cluster[1], "all") == expected
    assert browse(cluster[1], "configuration") == []
    assert "none" not in cluster[1].queue_names()
    send(cluster[1], "configuration", ["of the second"], durable=True)
    cluster.kill(1)
    cluster.promote(0)
    cluster[1].restart()
    cluster.wait_settled(0)
    check(cluster[0], expected)
    wait_browse(cluster[1], "configuration", ["of the second"])
    send(cluster[0], "ex", ["by the exchange"], durable=True)
    assert browse(cluster[0], "none") == [*expected, "by the exchange"]


@WAYS
def test_all_members_have_theirs_again(
    a_cluster: Callable[..., Cluster], end: Callable[..., None]
) -> None:
    cluster = a_cluster(3, module=POWER, ha_safety="strict")
    declare(cluster[0])
    expected = fill(cluster[0])[1:]
    cluster.wait_settled(0)
    for _ in range(2):
        end(cluster, 0, 1, 2)
        for broker in cluster:
            broker.restart()
        cluster.wait_connected()
        cluster.promote(0)
        cluster.wait_settled(0)
        check(cluster[0], expected)
        expected = [*expected, *fill(cluster[0], 100)][1:]


def test_a_snapshot_of_a_primary_takes_nothing_that_is_only_here(
    a_cluster: Callable[..., Cluster],
) -> None:
    cluster = a_cluster(3, module=POWER, ha_safety="strict", log_memory="1k", log_disk="0")
    declare(cluster[0])
    expected = fill(cluster[0])[1:]
    cluster.wait_settled(0)
    power(cluster, 0)
    cluster.promote(1)
    # More than the primary keeps of its log, so that the other one gets a snapshot.
    send(cluster[1], "all", [f"n{number}" * 1000 for number in range(200)], durable=True)
    receive(cluster[1], "all", 200)
    cluster[0].restart()
    cluster[0].wait_state("ready")
    for level in ("none", "configuration"):
        wait_browse(cluster[0], level, expected)


def test_a_member_that_runs_alone_has_all_three_and_takes_them_back(
    a_cluster: Callable[..., Cluster],
) -> None:
    cluster = a_cluster(2)
    declare(cluster[0])
    expected = fill(cluster[0])[1:]
    cluster.wait_settled(0)
    kill(cluster, 0, 1)
    cluster[0].options |= {"ha_cluster": "no", "ha_brokers_url": None}
    cluster[0].restart()
    check(cluster[0], expected)
    for level in LEVELS:
        send(cluster[0], level, ["alone"], durable=True)
    kill(cluster, 0)
    cluster[0].restart()
    check(cluster[0], [*expected, "alone"])


def test_who_hands_over_keeps_what_is_only_here(a_cluster: Callable[..., Cluster]) -> None:
    cluster = a_cluster(2, module=POWER)
    declare(cluster[0])
    expected = fill(cluster[0])[1:]
    cluster.wait_settled(0)
    cluster[0].call("switchover", target=cluster[1].address)
    cluster.wait_settled(1)
    check(cluster[0], expected)
    send(cluster[1], "configuration", ["of the second"], durable=True)
    cluster[1].call("switchover", target=cluster[0].address)
    cluster.wait_settled(0)
    check(cluster[0], expected)
    more = fill(cluster[0], 100)
    power(cluster, 0, 1)
    for broker in cluster:
        broker.restart()
    cluster.promote(0)
    cluster.wait_settled(0)
    check(cluster[0], [*expected, *more][1:])
    wait_browse(cluster[1], "configuration", ["of the second"])


@WAYS
def test_a_level_that_changes_back_and_forth_takes_nothing_along(
    a_cluster: Callable[..., Cluster], end: Callable[..., None]
) -> None:
    cluster = a_cluster(3, module=POWER, ha_safety="strict", ha_replicate="none")
    broker = cluster[0]
    cluster.wait_settled(0)
    broker.call("declare_queue", name="q", durable=True)
    broker.call("declare_exchange", name="ex", durable=True, arguments={"qpid.replicate": "none"})
    broker.bind("ex", "q")
    expected: list[str] = []
    for number, level in enumerate(("all", "configuration", "none", "configuration", "all")):
        more = [f"{level} {number} {each}" for each in range(5)]
        send(broker, "q", more, durable=True)
        expected += more
        params = {"name": "p", "pattern": "^q$", "definition": {"replicate": level}}
        broker.call("set_policy", **params)
        assert receive(broker, "q", 1)
        wait_for(
            lambda: {row["name"]: row["replicate"] for row in broker.call("list_queues")},
            lambda levels, level=level: levels["q"] == level,
            what=f"the level {level}",
        )
        del expected[0]
        end(cluster, 0, 1, 2)
        for each in cluster:
            each.restart()
        cluster.wait_connected()
        cluster.promote(0)
        cluster.wait_settled(0)
        wait_browse(broker, "q", expected)
    wait_browse(cluster[1], "q", expected)
    send(broker, "ex", ["by the exchange"], durable=True)
    wait_browse(broker, "q", [*expected, "by the exchange"])


def test_the_files_of_what_was_consumed_go(a_cluster: Callable[..., Cluster]) -> None:
    cluster = a_cluster(1, module=POWER, journal_segment_size="4k")
    broker = cluster[0]
    declare(broker)
    kept = [f"kept {number}" for number in range(10)]
    for level in ("none", "configuration"):
        send(broker, level, kept, durable=True)
    folder = broker.data_dir / "journal" / "local"
    for number in range(20):
        send(broker, "none", [f"{number}" * 1000] * 20, durable=True)
        assert receive(broker, "none", 20)
        send(broker, "none", kept, durable=True)
        assert len(receive(broker, "none", 10)) == 10

    def size() -> int:
        return sum(file.stat().st_size for file in folder.iterdir())

    wait_for(size, lambda size: size < 100_000, what="the size of the local log")
    assert any(file.name.endswith(".checkpoint") for file in folder.iterdir())
    told = broker.status()["local_journal"]
    assert (told["bytes"], told["files"]) == (size(), len(list(folder.iterdir())))
    assert told["written"] > told["bytes"] and told["syncs"] > 0
    here = browse(broker, "none")
    assert (told["queues"], told["messages"]) == (2, len(here) + len(kept))
    explained = broker.call("explain")
    assert explained["only_here_messages"] == told["messages"]
    assert {row["name"]: row["messages"] for row in explained["only_here"]} == {
        "none": len(here),
        "configuration": len(kept),
    }
    power(cluster, 0)
    broker.restart()
    broker.promote()
    wait_browse(broker, "none", here)
    wait_browse(broker, "configuration", kept)


@pytest.mark.parametrize(("source", "target"), [("all", "none"), ("configuration", "all")])
def test_what_is_moved_to_the_other_log_when_the_power_goes_is_on_one_queue_at_least(
    a_cluster: Callable[..., Cluster], source: str, target: str
) -> None:
    cluster = a_cluster(1, module=POWER)
    broker = cluster[0]
    declare(broker)
    bodies = [f"m{number}" for number in range(1500)]
    send(broker, source, bodies, durable=True)

    def move() -> None:
        with suppress(Exception):  # The broker dies before it answers, or does not.
            broker.call("move_messages", name=source, target=target)

    mover = threading.Thread(target=move)
    mover.start()
    wait_for(
        lambda: broker.call("list_queues", name=target)[0]["messages"] > 0, what="the first moved"
    )
    power(cluster, 0)
    mover.join()
    broker.restart()
    broker.promote()
    broker.wait_state("active")
    there = {name: browse(broker, name) for name in (source, target)}
    assert sorted({*there[source], *there[target]}) == sorted(bodies)
    assert all(len(found) == len(set(found)) for found in there.values())


def test_a_disk_that_lies_about_syncs_is_noticed_here(
    a_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the tests above can fail."""
    monkeypatch.setenv(LIE, "data")
    cluster = a_cluster(1, module=POWER, ha_safety="strict")
    declare(cluster[0])
    fill(cluster[0])
    power(cluster, 0)
    cluster[0].start()
    wait_for(lambda: cluster[0].state or not cluster[0].is_running, what="whether it starts or not")
    assert not cluster[0].is_running or "none" not in cluster[0].queue_names()


def test_the_tools_of_the_journal_look_at_it_too(a_cluster: Callable[..., Cluster]) -> None:
    cluster = a_cluster(1)
    broker = cluster[0]
    declare(broker)
    fill(broker)
    stop_in_order(cluster, 0)
    local = broker.data_dir / "journal" / "local"

    def called(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "qpidha.cli.main", "journal", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    for place in (broker.data_dir, local):
        assert called("verify", place).returncode == 0
    listed = json.loads(called("list", local, "-o", "json").stdout)
    found = {row["queue"]: row["messages"] for row in listed["queues"]}
    assert found == {"none": 9, "configuration": 9}
    salvaged = called("salvage", local, "--queue", "none", "--out", "-")
    assert salvaged.returncode == 0 and len(salvaged.stdout.splitlines()) == 9, salvaged.stderr
    refused = called("compact", local)
    assert refused.returncode == 1 and "by its broker only" in refused.stderr
    (file,) = local.glob("*.log")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    verified = called("verify", broker.data_dir)
    assert verified.returncode == 65 and "what only this broker has" in verified.stdout
    broker.start()
    wait_for(lambda: broker.is_running, lambda runs: not runs, what="whether it runs")
    assert "local log" in broker.log.read_text() and "journal/local" in broker.log.read_text()
    shutil.rmtree(local)
    broker.restart()
