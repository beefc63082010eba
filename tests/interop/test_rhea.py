"""rhea, the AMQP 1.0 client of JavaScript: its reconnection over a failover, and the redirect as its applications see it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.system.clients import browse
from tests.system.cluster import wait_for

HERE = Path(__file__).parent
REDIRECT = "amqp:connection:redirect"


@pytest.fixture(scope="module")
def node():
    """Return the node command once rhea is installed beside the scripts, from the lock file."""
    command, npm = shutil.which("node"), shutil.which("npm")
    if command is None or npm is None:
        pytest.skip("node and npm are not installed")
    if not (HERE / "node_modules" / "rhea").is_dir():
        done = subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=HERE, capture_output=True, text=True, timeout=120)
        if done.returncode:
            pytest.skip(f"npm ci cannot install rhea: {done.stderr[-500:]}")
    return command


class Script:
    """A running script; each line it prints is an event."""

    def __init__(self, node, name, *arguments, output):
        self.name = name
        self.output = output / f"{name}.out"
        self.errors = output / f"{name}.err"
        with self.output.open("wb") as out, self.errors.open("wb") as err:
            self.process = subprocess.Popen([node, HERE / name, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.process.kill()
        self.process.wait()

    def events(self, kind=None):
        lines = self.output.read_text().rpartition("\n")[0].splitlines()
        events = [json.loads(line) for line in lines]
        return [event for event in events if kind is None or event["event"] == kind]

    def numbers(self, kind):
        return [event["number"] for event in self.events(kind)]

    def wait_done(self):
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} goes on after {self.events()[-5:]}") from None
        assert code == 0, self.errors.read_text()


def test_sender_and_receiver_reconnect_to_the_new_primary(a_cluster, node, tmp_path):
    """rhea's reconnection dials what the brokers' list and redirects name; every accepted message arrives.

    Each is given one address only, the sender that of a backup.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    count = 6000
    ports = [broker.port.number for broker in cluster]
    with (
        Script(node, "sender.js", cluster[1].address, "q", count, output=tmp_path) as sender,
        Script(node, "receiver.js", cluster[0].address, "q", count, output=tmp_path) as receiver,
    ):
        wait_for(lambda: len(receiver.numbers("received")), lambda seen: seen >= 100, what="numbers received")
        accepted_before = len(sender.numbers("accepted"))
        assert accepted_before < count, "the failover came too late"
        cluster.kill(0, promote=2)
        sender.wait_done()
        receiver.wait_done()
        opened = [[event["port"] for event in script.events("open")] for script in (sender, receiver)]
        for script in (sender, receiver):
            assert all(event["servers"] == ports for event in script.events("open"))
            assert script.events("rejected") == script.events("released") == []
        accepted, received = sender.numbers("accepted"), receiver.numbers("received")
        redirects = [event["target"] for event in sender.events("closed") if event["condition"] == REDIRECT]
    assert set(accepted) <= set(received)
    assert set(received) == set(range(1, count + 1))
    # The sender was sent from the backup to the first primary, and both came to the second.
    assert opened[0][:2] == [ports[1], ports[0]]
    assert redirects[0] == ports[0]
    assert opened[1][0] == ports[0]
    assert opened[0][-1] == opened[1][-1] == ports[2]


def test_a_redirect_is_an_error_with_the_primarys_address(a_cluster, node, tmp_path):
    """connection_close carries condition and info; a new connection to what it names is served."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    with Script(node, "redirect.js", cluster[2].address, "q", output=tmp_path) as script:
        script.wait_done()
    (opened,) = script.events("open")
    servers = opened["properties"]["failover-server-list"]
    assert [f"{server['network-host']}:{server['port']}" for server in servers] == cluster.addresses
    (closed,) = script.events("connection_close")
    assert closed["condition"] == REDIRECT
    assert closed["description"]
    assert closed["info"]["network-host"] == "127.0.0.1"
    assert closed["info"]["port"] == cluster[0].port.number
    assert [event["condition"] for event in script.events("connection_error")] == [REDIRECT]
    assert len(script.events("accepted")) == 1
    assert browse(cluster[0], "q") == ["followed"]
