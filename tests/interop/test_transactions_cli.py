"""Transactions with cli-proton-python, the command-line clients with which AMQP brokers are tested:
they know nothing of us.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.patience import STATE
from tests.system.clients import send, wait_browse

SENDER, RECEIVER = "cli-proton-python-sender", "cli-proton-python-receiver"

if shutil.which(SENDER) is None:
    pytest.skip("cli-proton-python is not installed", allow_module_level=True)


@pytest.fixture
def cluster(a_cluster):
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    return cluster


def run(command, *options, broker):
    done = subprocess.run(
        [command, "--broker-url", f"{broker.address}/q", "--timeout", "100", *options],
        capture_output=True,
        text=True,
        timeout=STATE,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("action", "arrived"), [("commit", 10), ("rollback", 0)])
def test_a_sender_commits_or_rolls_back_its_batches(cluster, action, arrived):
    run(
        SENDER,
        "--count",
        "10",
        "--msg-content",
        "%d",
        "--tx-size",
        "5",
        "--tx-action",
        action,
        broker=cluster[0],
    )
    for broker in cluster:
        wait_browse(broker, "q", [str(number) for number in range(arrived)])


def test_a_receiver_commits_its_batches(cluster):
    """Not with rollback: this client then accepts its messages outside of any transaction."""
    send(cluster[0], "q", range(10))
    run(RECEIVER, "--count", "10", "--tx-size", "5", "--tx-action", "commit", broker=cluster[0])
    for broker in cluster:
        wait_browse(broker, "q", [])


def test_what_is_left_after_the_last_batch_is_discharged_as_told(cluster):
    run(
        SENDER,
        "--count",
        "7",
        "--msg-content",
        "%d",
        "--tx-size",
        "5",
        "--tx-action",
        "commit",
        "--tx-endloop-action",
        "rollback",
        broker=cluster[0],
    )
    for broker in cluster:
        wait_browse(broker, "q", [str(number) for number in range(5)])
