"""Three brokers with a console each: every endpoint of every member says what is so, within a
second, while the primary is killed, stopped and cut off under load, and who follows their events
hears of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.console.consoles import Console, table_of_health
from tests.console.streams import Stream
from tests.system.cluster import Admin, Broker, Cluster, wait_for
from tests.system.failover_clients import FailoverSender
from tests.system.net import make_network

pytestmark = pytest.mark.system
TABLE = table_of_health()
KNOWN = {200: "yes", 503: "no"}
ALWAYS = ("metrics", "api/v1/brokers", "api/v1/history", "livez")
"""What answers whatever the broker does; the last one with yes or no."""
HEARD = (
    ("active", "unreachable", "ready", "active"),
    ("ready", "active", "unreachable", "ready"),
    ("ready", "active", "ready"),
)
"""States of the brokers, in their order, that who follows the events hears of, with others."""
SOON = 1.0
"""Seconds for every answer: what load balancers wait for."""


def wrong(broker: Broker, console: Console, is_synced: bool) -> dict[str, str]:
    """Return what a console says of a broker and is not so, or says too late: of one that is dead
    or frozen nothing is said but no, of others what the table says of their state.
    """
    found, slow = {}, {}
    for name in (*TABLE, *ALWAYS):
        asked = time.monotonic()
        found[name] = KNOWN[console.status(f"/{name}")]
        took = time.monotonic() - asked
        if took > SOON:
            slow[name] = f"took {took:.2f} s"
    state = broker.state
    told = {name: row[state] if state else "no" for name, row in TABLE.items()}
    told |= dict.fromkeys(ALWAYS[:-1], "yes")
    told |= {"synced": "yes" if is_synced else "no", "livez": told["healthz"]}
    return slow | {
        name: f"{said}, though {broker.name} is {state or 'silent'}"
        for name, said in found.items()
        if told[name] != said
    }


def wait_right(cluster: Cluster, consoles: list[Console], *, is_synced: int | None = None) -> None:
    """Wait until every console is right and quick, and the one of this primary, and no other, says
    that all is synced. One that a busy machine keeps waiting is asked again.
    """
    for number, (broker, console) in enumerate(zip(cluster, consoles, strict=True)):
        wait_for(
            partial(wrong, broker, console, number == is_synced),
            {}.__eq__,
            what=f"what the console of {broker.name} says",
        )


def test_every_endpoint_of_every_member_says_what_is_so(a_cluster: Callable[..., Cluster]) -> None:
    cluster = a_cluster(3, ha_safety="strict", network=make_network(3))
    cluster[0].declare_queue("q")
    with ExitStack() as stack:
        consoles = [
            stack.enter_context(Console("--admin-socket", broker.admin_socket))
            for broker in cluster
        ]
        streams = [stack.enter_context(Stream(console.port)) for console in consoles]
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
        wait_for(
            lambda: [console.status("/backup?lag=1000000&age=60s") for console in consoles],
            [503, 200, 200].__eq__,
            what="who is a backup that is not far behind",
        )
        for stream, states in zip(streams, HEARD, strict=True):
            for state in states:
                stream.until(kind="state", state=state)
        told = json.loads(consoles[1].ask("/api/v1/history?kind=role&limit=1000").text)["items"]
        states = [event["state"] for event in told]
        assert states.index("active") < len(states) - 1 - states[::-1].index("joining")


TOKEN = "administrator-0123456789"


def test_roles_are_changed_over_http_as_the_command_line_would(
    a_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = a_cluster(3, ha_safety="strict")
    tokens = tmp_path / "tokens"
    tokens.write_text(f"administrator {TOKEN} ann\n")
    tokens.chmod(0o600)
    bearer = {"Authorization": f"Bearer {TOKEN}"}

    def call(console: Console, method: str, query: str = "", **params: Any) -> dict[str, Any]:
        body = json.dumps(params).encode()
        headers = {**bearer, "Content-Type": "application/json"}
        answer = console.ask(f"/api/v1/methods/{method}{query}", "POST", body, **headers)
        assert answer.status == 200, answer
        found: dict[str, Any] = json.loads(answer.text)
        return found

    def printed(*words: str) -> str:
        command = [sys.executable, "-m", "qpidha.cli.main", *words]
        own = {name: value for name, value in os.environ.items() if not name.startswith("QPID")}
        return subprocess.run(command, capture_output=True, text=True, env=own).stdout

    with ExitStack() as stack:
        one, two, three = [
            stack.enter_context(
                Console("--admin-socket", broker.admin_socket, "--token-file", tokens)
            )
            for broker in cluster
        ]
        cluster[0].declare_queue("q")
        stream = stack.enter_context(Stream(two.port, "?kind=role,state", **bearer))
        target = cluster[1].address
        cluster.wait_settled(0)
        dry_run = ("switchover", "--dry-run", "-b", cluster[0].address)

        def both() -> tuple[dict[str, Any], dict[str, Any]]:
            """What either says of the plan; a record that came between makes them differ."""
            return (
                call(one, "switchover", "?dry_run=true", target=target),
                json.loads(printed(*dry_run, "-o", "json")),
            )

        plan, _ = wait_for(
            both, lambda two: all(two[0][key] == two[1][key] for key in ("brokers", "primary"))
        )
        first, second = plan["plan"][0].removeprefix("plan: ").split(" -> ")
        assert (first, second) == (cluster[0].address, target)
        assert printed(*dry_run).startswith(f"plan: {first} -> ")
        call(one, "switchover", target=target)
        assert stream.until(kind="role", state="active").data["epoch"] == 2
        wait_for(lambda: cluster[1].state, "active".__eq__)
        wait_for(lambda: [broker.state for broker in cluster].count("ready"), (2).__eq__)
        assert "would step down" in call(two, "demote", "?dry_run=1")["plan"][0]
        call(two, "demote")
        wait_for(lambda: cluster[1].state in ("joining", "catchup"), bool)
        told = call(three, "promote", "?dry_run=1")
        assert told["comparison"]["recommended"] and "would be promoted" in told["plan"][0]
        assert cluster[2].state != "active"
        call(three, "promote")
        wait_for(lambda: cluster[2].state, "active".__eq__)
        refused = two.ask(
            "/api/v1/methods/purge_queue",
            "POST",
            b'{"name": "q"}',
            **{**bearer, "Content-Type": "application/json"},
        )
        assert refused.status == 409 and "QHA" in refused.text and target not in refused.text


ROUNDS, FACTOR_OF_HEALTH = 200, 4.0


def test_friendliness_7_health_costs_what_its_questions_cost_while_messages_flow(
    a_cluster: Callable[..., Cluster],
) -> None:
    """An answer on health takes about as long as the broker takes for one status report and the
    console for an answer for which it asks nobody, both measured between the same messages.
    """
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    took: dict[str, list[float]] = {"/healthz": [], "/static/mark.svg": [], "status": []}
    with ExitStack() as stack:
        console = stack.enter_context(Console("--admin-socket", cluster[0].admin_socket))
        admin = stack.enter_context(Admin(cluster[0].admin_socket))
        sender = stack.enter_context(FailoverSender(cluster.addresses, "q"))
        sender.wait_accepted(100)
        for _ in range(ROUNDS):
            for name, times in took.items():
                asked = time.perf_counter()
                if name == "status":
                    admin.call("status")
                else:
                    assert console.status(name) == 200
                times.append(time.perf_counter() - asked)
        sender.wait_accepted(100)  # they did flow
    health, nobody, broker = (median(times) for times in took.values())
    assert health < FACTOR_OF_HEALTH * (nobody + broker), (health, nobody, broker)
