"""A local cluster of real brokers under the built-in manager: switchover, failover, and what comes
back after all of it ended.
"""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Said

pytestmark = pytest.mark.system
Run = Callable[..., Said]


class Local:
    """The cluster, by its commands."""

    def __init__(self, place: Path, run: Run) -> None:
        self.place = place
        self.run = run

    def ask(self, *words: str) -> Any:
        """Run a command that succeeds, and return its JSON."""
        said = self.run(*words, "-o", "json")
        assert said.code == 0, said
        return json.loads(said.out)

    def up(self, count: int = 3, **options: object) -> Any:
        words = [
            word
            for name, value in options.items()
            for word in ("--set", f"{name.replace('_', '-')}={value}")
        ]
        return self.ask(
            "local", "up", "-n", str(count), "--base-port", "0", "--heartbeat", "0.5", *words
        )

    def events(self) -> list[str]:
        """What the manager did, in its own words."""
        return [
            line.split("[manager] ")[1]
            for line in (self.place / "manager.log").read_text().splitlines()
            if "[manager]" in line
        ]

    def contents(self, queue: str) -> list[str]:
        said = self.run("receive", queue, "--browse", "--idle", "0.3")
        return said.out.split()


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, qpid_ha: Run) -> Iterator[Local]:
    monkeypatch.delenv("QPIDHA_DAEMON", raising=False)
    with tempfile.TemporaryDirectory(prefix="qpidha-") as path:
        monkeypatch.setenv("QPIDHA_DIR", path)
        yield Local(Path(path), qpid_ha)
        qpid_ha("local", "down")


def test_a_switchover_and_a_failover_lose_nothing_and_the_manager_promotes_nobody_else(
    local: Local,
) -> None:
    local.up()
    local.ask("queue", "add", "orders", "--durable")
    local.ask("send", "orders", "a", "b", "--durable")
    found = local.ask("switchover", "b3")
    assert local.ask("local", "status")["primary"] == "b3"
    local.ask("wait", "--for", "ready=2")
    assert found["epoch"] == 2 and local.contents("orders") == ["a", "b"]
    local.ask("send", "orders", "c", "--durable")
    assert local.ask("failover", "b2")["epoch"] == 3
    assert local.ask("local", "status")["primary"] == "b2"
    local.ask("wait", "--for", "ready=2")
    assert local.contents("orders") == ["a", "b", "c"]
    promotions = [event for event in local.events() if event.startswith("promote ")]
    assert len(promotions) == 1, promotions  # the first start; the others were not the manager's
    assert local.run("switchover", "b2").code == 1


def test_a_switchover_told_to_the_broker_itself_is_not_fought_by_the_manager(local: Local) -> None:
    status = local.up()
    addresses = {broker["name"]: broker["address"] for broker in status["brokers"]}
    (local.place / "manager.sock").rename(
        local.place / "hidden.sock"
    )  # so that the command goes to the broker
    assert local.ask("switchover", "b2")["to"] == addresses["b2"]
    (local.place / "hidden.sock").rename(local.place / "manager.sock")
    assert local.ask("local", "status")["primary"] == "b2"
    assert len([event for event in local.events() if event.startswith("promote ")]) == 1


@pytest.mark.parametrize("count", [2, 3])
def test_everything_durable_is_there_when_the_cluster_is_started_again(
    local: Local, count: int
) -> None:
    local.up(count)
    local.ask("queue", "add", "orders", "--durable")
    local.ask("send", "orders", *[f"m{number}" for number in range(20)], "--durable")
    local.run("local", "down")
    assert local.up(count)["primary"]
    assert local.contents("orders") == [f"m{number}" for number in range(20)]


def test_after_a_total_failure_the_manager_finds_the_broker_with_everything(local: Local) -> None:
    status = local.up()
    local.ask("queue", "add", "orders", "--durable")
    local.ask("send", "orders", "a", "b", "c", "--durable")
    pids = {broker["name"]: broker["pid"] for broker in status["brokers"]}
    for name in pids:
        local.run("local", "kill", name, "--signal", "STOP")
    for name in pids:
        local.run("local", "kill", name, "--signal", signal.SIGKILL.name)
    local.ask("wait", "--for", "synced", "--timeout", "100")
    assert local.contents("orders") == ["a", "b", "c"]
    assert {broker["pid"] for broker in local.ask("local", "status")["brokers"]}.isdisjoint(
        pids.values()
    )
