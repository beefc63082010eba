"""qpid-send and qpid-receive through failovers: every number comes, whichever broker is primary
(tests 3, 6, 35 and 36 of the original).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import STATE
from tests.system.cluster import Cluster, wait_for

pytestmark = pytest.mark.system

RECONNECT = "{reconnect: true, heartbeat: 1, reconnect-interval: 0.05, protocol: amqp1.0}"
NUMBER = re.compile(rb"sn:(\d+)")


class Running:
    """The two programs, writing into files."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self._folder = folder
        self._brokers = ",".join(cluster.addresses)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, program: str, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a program, at all brokers of the cluster unless it names one."""
        line = [sys.executable, "-m", f"qpidha.tools.{program}"]
        line += [] if "-b" in words else ["-b", self._brokers]
        with (self._folder / f"{name}.out").open("wb") as out:
            process = subprocess.Popen(
                [*line, "--connection-options", RECONNECT, *words],
                stdout=out,
                stderr=(self._folder / f"{name}.err").open("wb"),
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )
        self._processes.append(process)
        return process

    def run(self, program: str, name: str, *words: str) -> None:
        """Run a program to its end."""
        assert self.start(program, name, *words).wait(STATE) == 0, self.errors(name)

    def errors(self, name: str) -> str:
        return (self._folder / f"{name}.err").read_text()

    def numbers(self, name: str) -> list[int]:
        """The numbers that were printed so far."""
        return [int(found) for found in NUMBER.findall((self._folder / f"{name}.out").read_bytes())]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[list[Running]]:
    made: list[Running] = []
    yield made
    for each in made:
        each.close()


def test_a_sender_and_a_receiver_survive_primaries_that_are_killed(a_cluster, running, tmp_path):
    cluster = a_cluster(3, ha_safety="strict")
    programs = Running(tmp_path, cluster)
    running.append(programs)
    queues = ["q0", "q1"]
    senders, receivers = [], []
    for queue in queues:
        address = (
            f"{queue};{{create:always,node:{{x-declare:{{arguments:{{'qpid.replicate':all}}}}}}}}"
        )
        words = ["-a", address, "-m", "0", "--send-rate", "200"]
        senders.append(programs.start("qpid_send", f"{queue}.send", *words))
        words = ["-a", address, "--forever", "--verify-sequence", "--ignore-duplicates"]
        words += ["--print-headers", "yes", "--print-content", "no", "--ack-frequency", "10"]
        receivers.append(programs.start("qpid_receive", f"{queue}.receive", *words))

    def progress(beyond: int) -> None:
        for queue, process in zip(queues * 2, senders + receivers, strict=True):
            assert process.poll() is None, programs.errors(f"{queue}.send")
            wait_for(
                lambda queue=queue: len(programs.numbers(f"{queue}.receive")),
                lambda count: count > beyond,
                what=f"what {queue} received",
            )

    progress(100)
    primary = 0
    for following in (1, 2, 0):
        cluster.kill(primary, promote=following)
        progress(len(programs.numbers("q0.receive")) + 100)
        cluster[primary].restart()
        cluster.wait_settled(following)
        primary = following
    for process in senders:
        process.terminate()
        process.wait(STATE)
    for queue, process in zip(queues, receivers, strict=True):
        found = programs.numbers(f"{queue}.receive")
        # --verify-sequence ends it at a gap; --ignore-duplicates leaves out what came again.
        assert found == list(range(1, len(found) + 1))
        assert process.poll() is None, programs.errors(f"{queue}.receive")


def test_a_sender_that_ends_well_has_lost_nothing(a_cluster, running, tmp_path):
    cluster = a_cluster(3, ha_safety="strict")
    programs = Running(tmp_path, cluster)
    running.append(programs)
    sender = programs.start(
        "qpid_send", "send", "-a", "q;{create:always}", "-m", "2000", "--send-rate", "1000"
    )
    wait_for(lambda: sum(each["messages"] for each in cluster[0].call("list_queues")) > 300)
    cluster.kill(0, promote=1)
    assert sender.wait(STATE) == 0, programs.errors("send")
    (queue,) = cluster[1].call("list_queues")
    words = ["-a", "q", "--print-headers", "yes", "--print-content", "no", "--timeout"]
    all_of_them = [f"{STATE}", "-m", f"{queue['messages']}"]
    programs.run("qpid_receive", "receive", *words, *all_of_them)
    assert set(programs.numbers("receive")) == set(range(1, 2001))
    programs.run("qpid_receive", "again", *words, "1")
    assert programs.numbers("again") == []


@pytest.mark.parametrize("tx", [0, 10])
def test_what_is_left_is_on_each_backup(a_cluster, running, tmp_path, tx):
    cluster = a_cluster(3)
    programs = Running(tmp_path, cluster)
    running.append(programs)
    words = ["-a", "q;{create:always}", "--tx", str(tx)]
    programs.run("qpid_send", "send", *words, "-m", "1000", "--durable", "no")
    programs.run("qpid_receive", "receive", *words, "-m", "990", "--print-content", "no")
    for backup in cluster[1:]:

        def look(backup=backup) -> list[int]:
            words = ["-b", backup.address, "--ha-admin", "-a", "q;{mode:browse}"]
            programs.run("qpid_receive", "browse", *words, "--print-headers", "yes")
            return programs.numbers("browse")

        wait_for(look, list(range(991, 1001)).__eq__)
