"""The daemon and its journal: what survives its end, and how it ends when the disk does."""

from __future__ import annotations

import resource
import signal

import pytest

from qpidha.client.errors import ClientError, NotAccepted
from qpidha.client.message import Message
from tests.patience import STATE
from tests.runtime.daemons import Running, run
from tests.system.clients import CREATE, connect, contents
from tests.system.cluster import Admin, wait_for

DURABLE = {"capabilities": CREATE, "node_properties": {"durable": True}}


def client_of(daemon):
    return connect(f"127.0.0.1:{daemon.port}")


def publish(daemon, bodies):
    """Send durable messages; each is accepted when this returns."""
    with client_of(daemon) as client:
        sender = client.sender("q", **DURABLE)
        for body in bodies:
            sender.send(Message(body, durable=True))


def content(daemon):
    with client_of(daemon) as client:
        return contents(client.receiver("q", **DURABLE))


def segments(place):
    return sorted((place / "journal").glob("*.log"))


def test_what_was_accepted_is_there_after_a_kill(place):
    with Running("--data-dir", place) as daemon:
        publish(daemon, range(20))
        daemon.end(signal.SIGKILL)
    with Running("--data-dir", place) as daemon:
        assert content(daemon) == list(range(20))
        code, log = daemon.end(signal.SIGTERM)
    assert (
        code == 0
        and "recovered 20 messages on 1 queues" in log
        and "the write-ahead log was read" in log
    )


def test_the_end_of_the_daemon_writes_what_is_still_queued(place):
    """A transient queue is not there again; what is durable is, and nothing is said to be cut
    off.
    """
    with Running("--data-dir", place) as daemon:
        publish(daemon, range(5))
        assert daemon.end(signal.SIGTERM)[0] == 0
    with Running("--data-dir", place) as daemon:
        assert content(daemon) == list(range(5))
        code, log = daemon.end(signal.SIGTERM)
    assert code == 0 and "warning" not in log


def test_a_journal_that_cannot_be_written_ends_it_and_nothing_accepted_is_lost(place):
    accepted = []
    with Running("--data-dir", place) as daemon:
        publish(daemon, ["first"])
        sender = client_of(daemon).sender("q", **DURABLE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
        with pytest.raises(ClientError):
            for number in range(100):
                sender.send(Message(f"{number} {'x' * 1000}", durable=True))
                accepted.append(number)
        _, log = daemon.process.communicate(timeout=STATE)
    assert daemon.process.returncode == 74 and 0 < len(accepted) < 20
    assert "00000001.log cannot be written: file too large" in log and "Traceback" not in log
    with Running("--data-dir", place) as daemon:
        assert content(daemon)[: len(accepted) + 1] == [
            "first",
            *(f"{number} {'x' * 1000}" for number in accepted),
        ]


def test_a_journal_damaged_where_it_was_synced_refuses_the_start(place):
    with Running("--data-dir", place) as daemon:
        publish(daemon, [str(number) * 100 for number in range(9)])
        daemon.end(signal.SIGTERM)
    data = bytearray(segments(place)[0].read_bytes())
    data[data.index(b"2" * 100)] ^= 1
    segments(place)[0].write_bytes(data)
    code, out, log = run("--port", "0", "--data-dir", place)
    assert code == 65 and not out and "Traceback" not in log
    assert (
        "00000001.log is damaged at byte" in log
        and "next:" in log
        and "qpid-ha journal verify" in log
    )
    assert segments(place)[0].read_bytes() == data


@pytest.mark.parametrize(
    ("spoil", "says"), [(None, "the state file is gone"), ("{", "the state file cannot be read")]
)
def test_a_member_of_a_cluster_that_has_lost_its_state_file_refuses_the_start(place, spoil, says):
    """With the journal and its identity it would be taken for one that remembers what it
    promised.
    """
    cluster = (
        "--ha-cluster",
        "yes",
        "--ha-brokers-url",
        "127.0.0.1:1",
        "--ha-safety",
        "trust-manager",
        "--data-dir",
        place,
    )
    with Running(*cluster) as daemon:
        Admin(place / "admin.sock").call("promote")
        wait_for(
            lambda: Admin(place / "admin.sock").call("status")["state"],
            lambda state: state == "active",
        )
        publish(daemon, ["a"])
        daemon.end(signal.SIGTERM)
    state = (place / "state").read_bytes()
    if spoil is None:
        (place / "state").unlink()
    else:
        (place / "state").write_text(spoil)
        (place / "state.copy").write_text(spoil)
    code, out, log = run("--port", "0", *cluster)
    assert code == 65 and not out and "Traceback" not in log
    assert f"{place}: {says}" in log and "next: move the whole data-dir away" in log
    (place / "state.copy").write_bytes(state)
    (place / "state").write_text("{")
    with Running(*cluster) as daemon:
        code, log = daemon.end(signal.SIGTERM)
    assert code == 0 and f"the state file in {place} cannot be read: its copy is used" in log
    assert (place / "state").read_bytes() == state


def test_a_torn_tail_is_cut_off_and_told(place):
    with Running("--data-dir", place) as daemon:
        publish(daemon, range(3))
        daemon.end(signal.SIGTERM)
    with open(segments(place)[-1], "ab") as file:
        file.write(b"\xa7Qtorn")
    with Running("--data-dir", place) as daemon:
        assert content(daemon) == [0, 1, 2]
        code, log = daemon.end(signal.SIGTERM)
    assert code == 0 and "warning" in log and "cut off" in log


def test_files_that_are_not_the_journals_are_named_and_kept(place):
    (place / "journal").mkdir()
    (place / "journal" / "notes").write_text("mine")
    with Running("--data-dir", place) as daemon:
        _, log = daemon.end(signal.SIGTERM)
    assert (
        "journal/notes is no file of the write-ahead log, and left alone" in log
        and (place / "journal" / "notes").read_text() == "mine"
    )


def test_a_file_in_place_of_the_journal_refuses_the_start(place):
    (place / "journal").write_text("")
    code, out, log = run("--port", "0", "--data-dir", place)
    assert (
        code == 73
        and not out
        and f"{place}/journal cannot be used" in log
        and "next: move that file away" in log
    )


def test_with_too_little_space_from_the_start_nothing_is_accepted(place):
    with Running("--data-dir", place, "--disk-free-limit", "1000000000000000") as daemon:
        admin = Admin(place / "admin.sock")
        admin.call("declare_queue", name="q", durable=True)
        admin.call("bind", exchange="amq.fanout", queue="q")
        assert "disk-free-limit" in admin.call("explain")["withholds"]
        # Senders to a queue wait; who sends to an exchange is told.
        with client_of(daemon) as client, pytest.raises(NotAccepted) as refused:
            client.sender("amq.fanout").send(Message("x", durable=True))
        code, log = daemon.end(signal.SIGTERM)
    assert refused.value.outcome.state == "rejected"
    assert code == 0 and "disk-free-limit" in log and "critical" in log


def test_a_body_that_the_disk_does_not_give_back_ends_it_and_is_not_delivered(place):
    bodies = [f"{number:03d}" * 1000 for number in range(20)]
    with Running("--data-dir", place, "--queue-memory", "4096") as daemon:
        publish(daemon, bodies)
        data = bytearray(segments(place)[0].read_bytes())
        data[data.index(b"010010")] ^= 1
        with open(segments(place)[0], "r+b") as file:
            file.write(data)
        with pytest.raises(ClientError):
            content(daemon)
        _, log = daemon.process.communicate(timeout=STATE)
    assert (
        daemon.process.returncode == 65
        and "00000001.log is damaged at byte" in log
        and "Traceback" not in log
    )
