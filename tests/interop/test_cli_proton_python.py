"""cli-proton-python from PyPI, the command-line clients with which AMQP brokers are tested: they know nothing of us."""

from __future__ import annotations

import ast
import shutil
import subprocess

import pytest

from tests.system.clients import browse
from tests.system.cluster import wait_for

SENDER, RECEIVER = "cli-proton-python-sender", "cli-proton-python-receiver"

if shutil.which(SENDER) is None:
    pytest.skip("cli-proton-python is not installed", allow_module_level=True)


def run(command, *options, url):
    """Run a client to its end; give what it printed of each message."""
    done = subprocess.run(
        [command, "--broker-url", url, "--timeout", "20", "--log-msgs", "dict", *options], capture_output=True, text=True, timeout=40
    )
    assert done.returncode == 0, done.stderr
    return [ast.literal_eval(line) for line in done.stdout.splitlines() if line.startswith("{")]


def contents(messages):
    return [message["content"] for message in messages]


def send_numbers(*options, url, count=10):
    return run(SENDER, "--count", str(count), "--msg-content", "number %d", *options, url=url)


NUMBERS = [f"number {i}" for i in range(10)]


def test_messages_sent_are_browsed_and_received(a_cluster):
    """Browsing leaves them on the queue, receiving takes them; properties come back as they were given."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    url = f"{cluster[0].address}/q"
    given = ["--msg-id", "id-1", "--msg-subject", "s", "--msg-property", "colour=red", "--msg-property", "size~7", "--msg-durable", "yes"]
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
    wait_for(lambda: browse(cluster[0], "q"), lambda seen: seen == [], what="what is left on the queue")


def test_a_receiver_may_release_and_reject(a_cluster):
    """The outcomes of its --action option do what they should."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    url = f"{cluster[0].address}/q"
    send_numbers(url=url, count=3)
    assert contents(run(RECEIVER, "--count", "3", "--action", "release", url=url)) == NUMBERS[:3]
    wait_for(lambda: browse(cluster[0], "q"), lambda seen: seen == NUMBERS[:3], what="what was released")
    run(RECEIVER, "--count", "1", "--action", "reject", url=url)
    wait_for(lambda: browse(cluster[0], "q"), lambda seen: seen == NUMBERS[1:3], what="what was not rejected")


def test_the_list_of_urls_finds_the_primary_after_a_failover(a_cluster):
    """With --conn-urls the clients start at a broker that is dead and are served by the new primary."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    urls = ",".join(cluster.addresses)
    assert contents(send_numbers("--conn-urls", urls, url=f"{cluster[0].address}/q")) == NUMBERS
    cluster.kill(0, promote=1)
    more = send_numbers("--conn-urls", urls, url=f"{cluster[0].address}/q", count=5)
    assert len(more) == 5
    received = run(RECEIVER, "--conn-urls", urls, "--count", "15", url=f"{cluster[0].address}/q")
    assert contents(received) == NUMBERS + NUMBERS[:5]


def test_a_sender_and_a_receiver_live_through_a_failover(a_cluster):
    """Both reconnect over their URLs while a backup is promoted; everything accepted arrives."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    urls = ",".join(cluster.addresses)
    options = ["--conn-urls", urls, "--conn-reconnect-interval", "0.1", "--conn-heartbeat", "1", "--log-msgs", "dict", "--timeout", "30"]
    url = ["--broker-url", f"{cluster[0].address}/q"]
    receiver = subprocess.Popen([RECEIVER, *url, *options, "--count", "40"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    sender = subprocess.Popen(
        [SENDER, *url, *options, "--count", "40", "--duration", "4", "--msg-content", "number %d"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: queue_enqueued(cluster[0]), lambda seen: seen >= 10, what="messages enqueued")
        cluster.kill(0, promote=1)
        sent, sender_errors = sender.communicate(timeout=40)
        received, receiver_errors = receiver.communicate(timeout=40)
    finally:
        for process in (sender, receiver):
            process.kill()
            process.wait()
    assert sender.returncode == 0, sender_errors
    assert receiver.returncode == 0, receiver_errors
    sent_bodies, received_bodies = bodies(sent), bodies(received)
    assert set(sent_bodies) <= set(received_bodies)
    assert set(received_bodies) == {f"number {i}" for i in range(40)}


def bodies(output):
    return [ast.literal_eval(line)["content"] for line in output.splitlines() if line.startswith("{")]


def queue_enqueued(broker):
    return next(queue["enqueued"] for queue in broker.call("list_queues") if queue["name"] == "q")
