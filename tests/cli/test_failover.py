"""Sending and receiving by hand while the primary is killed, and when nobody takes its place."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qpidha.cli.broker import messages
from qpidha.client.links import Delivery
from qpidha.client.message import Message
from tests.cli.conftest import Said
from tests.system.cluster import Cluster

Run = Callable[..., Said]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Two brokers with the queue q; the first is the primary."""
    monkeypatch.setenv("QPIDHA_DIR", str(tmp_path / "none"))
    brokers = Cluster(tmp_path, 2, options={})
    try:
        brokers.start()
        brokers[0].declare_queue("q")
        yield brokers
    finally:
        brokers.close()


def after(outcomes: int, then: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something when a sender has heard so many outcomes."""
    heard = 0
    decide = messages._Sending._decide

    def outcome(self: messages._Sending, delivery: Delivery) -> None:
        nonlocal heard
        decide(self, delivery)
        heard += 1
        if heard == outcomes:
            then()

    monkeypatch.setattr(messages._Sending, "_decide", outcome)


def test_a_sender_goes_on_at_the_new_primary_and_loses_nothing(
    cluster: Cluster, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    after(700, lambda: cluster.kill(0, promote=1), monkeypatch)
    said = qpid_ha("send", "q", "-m", "2000", "-o", "json", "-b", cluster[0].address)
    assert said.code == 0 and json.loads(said.out)["accepted"] == 2000
    said = qpid_ha("receive", "q", "-b", cluster[1].address)
    assert {int(line) for line in said.out.split()} == set(range(1, 2001))


def test_a_sender_leaves_a_primary_that_hangs(
    cluster: Cluster, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang() -> None:
        cluster[0].stop()
        cluster.promote(1)

    after(10, hang, monkeypatch)
    monkeypatch.setattr(messages, "SENDER_HEARTBEAT", 1.0)
    assert qpid_ha("send", "q", "-m", "1000", "-q", "-b", cluster[0].address) == Said(0, "", "")


def test_a_sender_that_finds_nobody_says_how_far_it_came(
    cluster: Cluster, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    after(700, lambda: cluster.kill(0), monkeypatch)
    said = qpid_ha(
        "send", "q", "-m", "2000", "-o", "json", "-b", cluster[0].address, "--timeout", "4"
    )
    counts, error = json.loads(said.out), json.loads(said.err.splitlines()[-1])["error"]
    assert (
        said.code == 69
        and 700 <= counts["accepted"] < 2000
        and counts["accepted"] + counts["without_outcome"] == 2000
    )
    assert error["message"].startswith(
        f"{counts['accepted']:,} accepted, {counts['without_outcome']:,} without an outcome: "
    )
    assert "run it again" in error["hint"]


@pytest.mark.parametrize("forever", [(), ("-f",)])
def test_a_receiver_goes_on_at_the_new_primary(
    cluster: Cluster, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch, forever: tuple[str, ...]
) -> None:
    printed: list[str] = []
    show = messages._show

    def watch(options: object, message: Message) -> None:
        show(options, message)  # type: ignore[arg-type]
        printed.append("")
        if len(printed) == 20:
            cluster.kill(0, promote=1)
            assert qpid_ha("send", "q", "last", "-b", cluster[1].address).code == 0
        if len(printed) > 20 and message.body == "last":
            raise KeyboardInterrupt

    assert qpid_ha("send", "q", "-m", "30", "-b", cluster[0].address).code == 0
    monkeypatch.setattr(messages, "_show", watch)
    assert qpid_ha("receive", "q", *forever, "-b", cluster[0].address).code == 130
    assert len(printed) >= 31


def test_a_command_that_begins_during_a_failover_waits_for_the_new_primary(
    cluster: Cluster, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.kill(0)
    said = qpid_ha("send", "q", "x", "-b", cluster[1].address, "--timeout", "0.3")
    assert said.code == 69 and "try" in said.err.lower() and said.err.count("Try:") == 1
    cluster.promote(1)
    assert qpid_ha("send", "q", "x", "-b", cluster[1].address).code == 0


def test_a_user_of_an_application_is_told_by_a_backup_where_the_primary_is(
    tmp_path: Path, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QPIDHA_DIR", str(tmp_path / "none"))
    users = str(tmp_path / "users")
    for name in ("admin", "ann"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(name))
        assert (
            qpid_ha("user", "add", name, "--users-file", users, "--password-stdin", "-q").code == 0
        )
    brokers = Cluster(
        tmp_path, 2, options={"users_file": users, "ha_username": "admin", "ha_password": "admin"}
    )
    try:
        brokers.start()
        said = qpid_ha("queue", "list", "-b", f"amqp://ann:ann@{brokers[1].address}")
        assert said.code == 77 and f"the primary is {brokers[0].address}" in said.err
        brokers[0].declare_queue("q")
        assert qpid_ha("send", "q", "x", "-b", f"amqp://ann:ann@{brokers[1].address}").code == 0
    finally:
        brokers.close()
