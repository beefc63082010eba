"""`qpid-printevents` at real brokers: what it prints while things happen to them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

import pytest

from qpidha.client.blocking import Client
from qpidha.tools.qpid_printevents import line_of, main
from tests.cli.test_login import serving
from tests.documents import ROOT
from tests.patience import STATE
from tests.system.cluster import Cluster
from tests.system.credentials import users_file
from tests.tools.test_qpid_config import broker
from tests.tools.transcripts import called

Start = Callable[..., Cluster]
WHEN = r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} "


class Printing:
    """A tool that runs, and what it prints."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "qpidha.tools.qpid_printevents", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.seen: list[str] = []
        self._lines: SimpleQueue[str] = SimpleQueue()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def wait_for(self, pattern: str) -> str:
        """Wait for a line that is like this, without its time; return it."""
        while True:
            try:
                line = self._lines.get(timeout=STATE)
            except Empty:
                raise AssertionError(f"no {pattern}, but {self.seen}") from None
            self.seen.append(line)
            if re.fullmatch(f"({WHEN})?{pattern}", line):
                return line

    def end(self) -> tuple[int, str]:
        """Interrupt it; return its exit code and what it said on standard error."""
        self.process.send_signal(signal.SIGINT)
        _, error = self.process.communicate(timeout=STATE)
        return self.process.returncode, error


@contextmanager
def printing(*words: str) -> Iterator[Printing]:
    found = Printing(words)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.communicate()


def test_what_happens_is_printed_as_it_happens(tmp_path: Path) -> None:
    with broker(tmp_path) as at, printing(at) as events:
        called("qpid-config add queue before", {"node1": at})
        assert events.wait_for(f"NOTIC qpid-printevents:brokerConnected broker={at}")
        called("qpid-config add queue orders", {"node1": at})
        assert events.wait_for(r"org\.apache\.qpid\.broker:queueDeclare qName=orders")
        with Client(at):
            events.wait_for(r"org\.apache\.qpid\.broker:clientConnect rhost=127\.0\.0\.1:\d+")
        events.wait_for(r"org\.apache\.qpid\.broker:clientDisconnect rhost=127\.0\.0\.1:\d+.*")
        called("qpid-config del queue orders", {"node1": at})
        events.wait_for(r"org\.apache\.qpid\.broker:queueDelete qName=orders")
        called("qpid-config shutdown", {"node1": at})
        events.wait_for(f"NOTIC qpid-printevents:brokerDisconnected broker={at}")
        assert not [line for line in events.seen if not re.match(WHEN, line)]
        code, error = events.end()
        assert code == 0 and error.count("Connection refused") <= 1


def test_a_failover_is_followed_and_told_by_who_took_over(a_cluster: Start) -> None:
    cluster = a_cluster(2, ha_replicate="all")
    cluster.wait_settled(0)
    first, second = cluster.addresses
    with printing(f"{first},{second}") as events, printing("-o", "json", first, second) as one:
        events.wait_for(f"NOTIC qpid-printevents:brokerConnected broker={first}")
        assert json.loads(one.wait_for(".*brokerConnected.*"))["broker"] == first
        cluster.kill(0, promote=1)
        events.wait_for(f"NOTIC qpid-printevents:brokerDisconnected broker={first}")
        events.wait_for(f"NOTIC qpid-printevents:brokerConnected broker={second}")
        events.wait_for(rf"qpidha:role state=active epoch=\d+ broker={second}")
        called("qpid-config add queue later", {"node1": second})
        events.wait_for(rf"org\.apache\.qpid\.broker:queueDeclare qName=later broker={second}")
        while (event := json.loads(one.wait_for("[{].*")))["kind"] != "queue":
            assert {"broker", "kind", "at_ns"} <= set(event)
        assert (event["queue"], event["what"]) == ("later", "created")
        assert events.end()[0] == 0


def test_a_backup_has_events_for_administrators(a_cluster: Start) -> None:
    cluster = a_cluster(2, ha_replicate="all")
    cluster.wait_settled(0)
    _, second = cluster.addresses
    with printing(second) as refused, printing("--ha-admin", "--heartbeats", second) as events:
        events.wait_for(f"NOTIC qpid-printevents:brokerConnected broker={second}")
        cluster.kill(0)
        events.wait_for(r"org\.apache\.qpid\.broker:brokerLinkDown rhost=\S+.*")
        code, error = refused.end()
        assert code == 0 and error.count("--ha-admin, if it is a backup") <= 1


def test_what_cannot_get_better_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(str(tmp_path / "a.sock"), "--auth", "no") as at:
        assert main([at]) == 1
    assert "this broker keeps no events" in capsys.readouterr().out
    users = users_file(tmp_path / "users", {"ann": "ann"})
    with serving(str(tmp_path / "a.sock"), "--users-file", str(users)) as at:
        assert main([f"ann/wrong@{at}", f"eve/eve@{at}"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" - ")[0] for line in said] == ["Failed: AuthenticationFailure"] * 2
    assert main(["host:port"]) == 1
    assert capsys.readouterr().out.startswith("Failed: ConnectionError - ")


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"kind": "role", "state": "active", "epoch": 2}, "qpidha:role state=active epoch=2"),
        (
            {"kind": "link", "what": "down", "about": "b2", "error": "reset"},
            "org.apache.qpid.broker:brokerLinkDown rhost=b2 reason=reset",
        ),
        (
            {"kind": "insync", "epoch": 2, "in_sync": "b1 b2"},
            "org.apache.qpid.ha:membersUpdate members=b1 b2 epoch=2",
        ),
        (
            {
                "kind": "limit",
                "what": "alert",
                "about": "crossed upward",
                "queue": "q\x1b",
                "count": 5,
            },
            "org.apache.qpid.broker:queueThresholdCrossedUpward qName=q\\x1b msgDepth=5",
        ),
        (
            {"kind": "limit", "what": "max-queues", "about": "refused", "count": 3},
            "qpidha:limit what=max-queues about=refused count=3",
        ),
    ],
)
def test_events_of_qpid_have_its_names(event: dict[str, object], line: str) -> None:
    assert line_of({"at_ns": 0, **event}) == f"Thu Jan  1 00:00:00 1970 {line}"
