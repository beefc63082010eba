"""rhea, the AMQP 1.0 client of JavaScript: its own reconnection over a failover."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.patience import STATE
from tests.system.cluster import wait_for

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def node():
    """Return the node command once rhea is installed beside the scripts, from the lock file."""
    command, npm = shutil.which("node"), shutil.which("npm")
    if command is None or npm is None:
        pytest.skip("node and npm are not installed")
    if not (HERE / "node_modules" / "rhea").is_dir():
        done = subprocess.run(
            [npm, "ci", "--no-audit", "--no-fund"],
            cwd=HERE,
            capture_output=True,
            text=True,
            timeout=STATE,
        )
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
            self.process = subprocess.Popen(
                [node, HERE / name, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

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
            code = self.process.wait(STATE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} goes on after {self.events()[-5:]}") from None
        assert code == 0, self.errors.read_text()


def switch_over(cluster):
    cluster[0].call("switchover", target=cluster[2].address)


@pytest.mark.parametrize(
    "fault", [lambda cluster: cluster.kill(0, promote=2), switch_over], ids=["kill", "switchover"]
)
def test_sender_and_receiver_go_on_with_the_next_primary(a_cluster, node, tmp_path, fault):
    """A list of addresses and rhea's own reconnection are enough, with a backup first in the
    sender's list; every accepted message arrives.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    count = 6000
    addresses = [broker.address for broker in cluster]
    backup_first = ",".join([*addresses[1:], addresses[0]])
    with (
        Script(node, "sender.js", backup_first, "q", count, output=tmp_path) as sender,
        Script(node, "receiver.js", ",".join(addresses), "q", count, output=tmp_path) as receiver,
    ):
        wait_for(
            lambda: len(receiver.numbers("received")),
            lambda seen: seen >= 100,
            what="numbers received",
        )
        assert len(sender.numbers("accepted")) < count, "the fault came too late"
        fault(cluster)
        sender.wait_done()
        receiver.wait_done()
        for script in (sender, receiver):
            assert script.events("open")[0]["port"] == cluster[0].port.number
            assert script.events("open")[-1]["port"] == cluster[2].port.number
            assert script.events("error") == []
            assert script.events("rejected") == script.events("released") == []
        accepted, received = sender.numbers("accepted"), receiver.numbers("received")
    assert set(accepted) <= set(received)
    assert set(received) == set(range(1, count + 1))
