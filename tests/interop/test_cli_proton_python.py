"""cli-proton-python from PyPI, the command-line clients with which AMQP brokers are tested: they
know nothing of us.
"""

from __future__ import annotations

import ast
import shutil
import subprocess

import pytest

from tests.patience import STATE
from tests.system.clients import browse
from tests.system.cluster import wait_for

SENDER, RECEIVER = "cli-proton-python-sender", "cli-proton-python-receiver"

if shutil.which(SENDER) is None:
    pytest.skip("cli-proton-python is not installed", allow_module_level=True)


def run(command, *options, url):
    """Run a client to its end; give what it printed of each message."""
    done = subprocess.run(
        [command, "--broker-url", url, "--timeout", "100", "--log-msgs", "dict", *options],
        capture_output=True,
        text=True,
        timeout=STATE,
    )
    assert done.returncode == 0, done.stderr
    return messages(done.stdout)


def messages(output):
    return [ast.literal_eval(line) for line in output.splitlines() if line.startswith("{")]


def contents(printed):
    return [message["content"] for message in printed]


def send_numbers(*options, url, count=10):
    return run(SENDER, "--count", str(count), "--msg-content", "number %d", *options, url=url)


NUMBERS = [f"number {i}" for i in range(10)]


def test_messages_sent_are_browsed_and_received(a_cluster):
    """Browsing leaves them on the queue, receiving takes them; properties come back as they were
    given.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    url = f"{cluster[0].address}/q"
    given = [
        "--msg-id",
        "id-1",
        "--msg-subject",
        "s",
        "--msg-property",
        "colour=red",
        "--msg-property",
        "size~7",
        "--msg-durable",
        "yes",
    ]
    assert contents(send_numbers(*given, url=url)) == NUMBERS
    browsed = run(RECEIVER, "--recv-browse", "--count", "10", url=url)
    assert contents(browsed) == NUMBERS
    assert browse(cluster[0], "q") == NUMBERS
    received = run(RECEIVER, "--count", "10", url=url)
    assert contents(received) == NUMBERS
    assert received[0]["id"] == "id-1"
    assert received[0]["subject"] == "s"
    assert received[0]["properties"] == {"colour": "red", "size": 7}
    assert received[0]["durable"] is True
    wait_for(
        lambda: browse(cluster[0], "q"), lambda seen: seen == [], what="what is left on the queue"
    )


def test_clients_selectors_a_receiver_and_a_browser_get_what_they_select(a_cluster):
    (broker,) = a_cluster(1)
    broker.declare_queue("q")
    url = f"{broker.address}/q"
    for size, count in ((1, 3), (7, 2)):
        send_numbers("--msg-property", f"size~{size}", url=url, count=count)
    selected = ["--recv-selector", "size > 5 AND colour IS NULL", "--count", "2"]
    browsed = run(RECEIVER, "--recv-browse", *selected, url=url)
    assert contents(browsed) == contents(run(RECEIVER, *selected, url=url)) == NUMBERS[:2]
    wait_for(
        lambda: browse(broker, "q"), lambda seen: seen == NUMBERS[:3], what="what is not selected"
    )


def test_a_receiver_may_release_and_reject(a_cluster):
    """The outcomes of its --action option do what they should."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    url = f"{cluster[0].address}/q"
    send_numbers(url=url, count=3)
    assert contents(run(RECEIVER, "--count", "3", "--action", "release", url=url)) == NUMBERS[:3]
    wait_for(
        lambda: browse(cluster[0], "q"), lambda seen: seen == NUMBERS[:3], what="what was released"
    )
    run(RECEIVER, "--count", "1", "--action", "reject", url=url)
    wait_for(
        lambda: browse(cluster[0], "q"),
        lambda seen: seen == NUMBERS[1:3],
        what="what was not rejected",
    )


def test_a_backup_refuses(a_cluster):
    """Told not to reconnect, the client fails at a backup; at the primary it is served."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    to_a_backup = [SENDER, "--broker-url", f"{cluster[1].address}/q", "--conn-reconnect", "false"]
    refused = subprocess.run(to_a_backup, capture_output=True, text=True, timeout=STATE)
    assert refused.returncode != 0, refused.stderr
    send_numbers(url=f"{cluster[0].address}/q")
    assert browse(cluster[0], "q") == NUMBERS


def test_a_sender_and_a_receiver_live_through_a_failover(a_cluster, floating_address):
    """Both reconnect to an address that moves with the primary; everything that was sent arrives.

    Their option --conn-urls is of no use: cli-proton-python 1.0.5 builds its list with a class that
    proton no longer exports.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    address = floating_address(cluster[0].port.number)
    options = [
        "--broker-url",
        f"{address.address}/q",
        "--conn-heartbeat",
        "1",
        "--log-msgs",
        "dict",
        "--timeout",
        "30",
    ]
    with (
        Client(RECEIVER, *options, "--count", "40") as receiver,
        Client(
            SENDER, *options, "--count", "40", "--duration", "4", "--msg-content", "number %d"
        ) as sender,
    ):
        wait_for(lambda: enqueued(cluster[0]), lambda seen: seen >= 10, what="messages enqueued")
        cluster.kill(0, promote=2)
        address.move(cluster[2].port.number)
        sent, received = sender.wait_done(), receiver.wait_done()
    # What was not settled when the first primary died is sent again, and may then come twice in
    # place of the last ones.
    assert len(sent) >= 40
    assert len(received) == 40
    assert set(contents(sent)) <= set(contents(received)) | set(browse(cluster[2], "q"))


class Client:
    """A running client."""

    def __init__(self, *command):
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.process.kill()
        self.process.communicate()

    def wait_done(self):
        out, errors = self.process.communicate(timeout=STATE)
        assert self.process.returncode == 0, out + errors
        return messages(out)


def enqueued(broker):
    return next(queue["enqueued"] for queue in broker.call("list_queues") if queue["name"] == "q")
