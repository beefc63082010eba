"""Options of qpidd that an unchanged qpidd.conf has, in a real daemon: what they do here."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from qpidha.client.admin import AdminSocket
from qpidha.client.blocking import Client
from qpidha.client.message import Message
from tests.patience import STATE
from tests.runtime.daemons import Running, run
from tests.system.cluster import wait_for


class Served:
    """A daemon with the lines of a qpidd.conf."""

    def __init__(self, place: Path, *lines: str) -> None:
        (place / "qpidd.conf").write_text("".join(f"{line}\n" for line in lines))
        self.daemon = Running("--config", place / "qpidd.conf", "--data-dir", place / "data")
        self.socket = str(place / "data" / "admin.sock")

    def call(self, method: str, **params: Any) -> Any:
        with closing(AdminSocket(self.socket, STATE)) as admin:
            return admin.call(method, params)

    def queue(self, name: str) -> dict[str, Any]:
        (row,) = self.call("list_queues", name=name)
        return dict(row)

    def unsettled(self) -> list[int]:
        return [row["unsettled"] for row in self.call("list_subscriptions")]

    def client(self) -> Client:
        return Client(f"amqp://127.0.0.1:{self.daemon.port}", timeout=STATE)


@pytest.fixture
def served(place: Path) -> Any:
    started: list[Served] = []

    def start(*lines: str) -> Served:
        started.append(Served(place, *lines))
        return started[-1]

    yield start
    for one in started:
        one.daemon.__exit__()


Start = Callable[..., Served]


def test_qpid_21_expired_messages_leave_a_full_queue_by_themselves(served: Start) -> None:
    """Nobody consumes, and the next purge of qpidd would be in ten minutes."""
    broker = served("queue-purge-interval=600", "max-purge-batch=1000")
    broker.call("declare_queue", name="q", arguments={"qpid.max_count": 2})
    with broker.client() as client:
        sender = client.sender("q")
        for _ in range(2):
            sender.send(Message("old", ttl=0.2))
        wait_for(lambda: broker.queue("q")["messages"], (0).__eq__, what="q")
        sender.send(Message("new"))
        assert client.receiver("q").receive().body == "new"
    _, log = broker.daemon.end(signal.SIGTERM)
    assert log.count("expired messages are removed within about 50 ms") == 2


def test_qpid_3_2_flow_control_and_alerts_begin_where_the_options_say(served: Start) -> None:
    broker = served(
        "default-flow-stop-threshold=50",
        "default-flow-resume-threshold=20",
        "default-event-threshold-ratio=30",
        "log-enable=info+",
    )
    for name, more in (("q", {}), ("free", {"qpid.flow_stop_count": 0, "qpid.alert_count": 0})):
        broker.call("declare_queue", name=name, arguments={"qpid.max_count": 10, **more})
    with broker.client() as client:
        for name in ("q", "free"):
            sender = client.sender(name)
            for _ in range(6):
                sender.send(Message("x"))
        assert broker.queue("q")["flow_stopped"] and not broker.queue("free")["flow_stopped"]
        receiver = client.receiver("q")
        for left in range(5, 1, -1):
            receiver.receive().accept()
            stopped = left > 2
            wait_for(
                lambda: broker.queue("q")["messages"], left.__eq__, what=f"q, with {left} to come,"
            )
            assert broker.queue("q")["flow_stopped"] is stopped
    _, log = broker.daemon.end(signal.SIGTERM)
    assert "queue q has come to 3 messages" in log and "queue free has come" not in log


def test_qpid_3_2_messages_without_a_group_are_of_the_one_that_is_named(served: Start) -> None:
    """Two consumers: all messages that name no group go to one, or to any."""
    for line, same in (("default-message-group=rest", True), ("default-message-group=", False)):
        broker = served(line)
        arguments = {"qpid.group_header_key": "g", "qpid.shared_msg_group": 1}
        broker.call("declare_queue", name="q", arguments=arguments)
        with broker.client() as one, broker.client() as other:
            receivers = [client.receiver("q", credit=5) for client in (one, other)]
            sender = one.sender("q")
            for number in range(4):
                sender.send(Message(number))
            counts = wait_for(broker.unsettled, lambda found: sum(found) == 4, what="consumers")
            assert sorted(counts) == ([0, 4] if same else [2, 2]) and len(receivers) == 2
        broker.daemon.end(signal.SIGTERM)


def test_qpid_17_the_log_goes_where_the_options_say(place: Path) -> None:
    options = ["--data-dir", place / "d", "--log-disable", "trace+"]
    with Running(*options, "--log-to-stdout=yes", "--log-to-file", place / "log") as daemon:
        assert daemon.end(signal.SIGTERM)[1] == "" and (place / "log").read_text() == ""
    with Running("--data-dir", place / "d", "--log-enable", "error") as daemon:
        assert daemon.end(signal.SIGTERM)[1] == ""


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("default-flow-stop-threshold=101", "0 to 100"),
        ("default-flow-resume-threshold=90", "would go on at 90 % and wait beyond 80 %"),
        ("log-to-syslog=perhaps", "yes or no"),
        ("syslog-facility=LOG_NOWHERE", "local7"),
    ],
)
def test_numbers_that_cannot_be_are_refused(place: Path, line: str, says: str) -> None:
    (place / "conf").write_text(f"{line}\n")
    code, _, error = run("--check", "--config", place / "conf")
    assert code == 78 and says in error and "next:" in error
