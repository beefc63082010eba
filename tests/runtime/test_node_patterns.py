"""Patterns of a real daemon, and queues that wait for their first use."""

from __future__ import annotations

from pathlib import Path

from qpidha.client.blocking import Client
from qpidha.client.management import Conversation
from qpidha.model.exit_codes import CONFIG
from tests.runtime.daemons import Running, run
from tests.system.cluster import Admin, wait_for


def names(admin: Admin, method: str) -> set[str]:
    return {row["name"] for row in admin.call(method)}


def test_a_pattern_that_is_none_keeps_the_broker_from_starting() -> None:
    for options in (
        ("--queue-patterns", "a("),
        ("--queue-patterns", "a", "--topic-patterns", "b a"),
    ):
        for words in (("--check", *options), options):
            code, _, said = run(*words)
            assert code == CONFIG
            assert "queue-patterns and topic-patterns" in said and "pattern" in said


def test_clients_find_what_patterns_make(place: Path) -> None:
    options = (
        "--queue-patterns",
        "^q{1,3}$",
        "--queue-patterns",
        "^jobs",
        "--topic-patterns",
        "^t",
    )
    with (
        Running("--data-dir", place, *options) as daemon,
        Admin(place / "admin.sock") as admin,
        Client(f"127.0.0.1:{daemon.port}", reconnect_timeout=0) as client,
    ):
        client.sender("qqq").send("kept")
        news = client.receiver("tidings")
        client.sender("tidings").send("new")
        assert news.receive().body == "new"
        assert names(admin, "list_queues") >= {"qqq"}
        assert "tidings" in names(admin, "list_exchanges")
        client.close()
        wait_for(lambda: "tidings" not in names(admin, "list_exchanges"), what="its end")
        assert names(admin, "list_queues") == {"qqq"}


def test_a_queue_waits_for_its_first_use(place: Path) -> None:
    policy = {"qpid.lifetime-policy": "delete-if-unused"}
    with Running("--data-dir", place) as daemon, Admin(place / "admin.sock") as admin:
        address = f"127.0.0.1:{daemon.port}"
        with Client(address, reconnect_timeout=0) as client:
            Conversation(client).call("declare_queue", {"name": "lp", "arguments": policy})
        assert names(admin, "list_queues") == {"lp"}
        with Client(address, reconnect_timeout=0) as client:
            client.sender("lp").send("first")
        wait_for(lambda: not names(admin, "list_queues"), what="its end")
