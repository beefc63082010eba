"""Full, failing and read-only disks: the broker refuses and says so, and never accepts what it has
not kept.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from qpidha.client.errors import NotAccepted
from qpidha.client.message import Message
from tests.system.clients import browse, connect, receive, send, wait_browse
from tests.system.cluster import Broker, Cluster, wait_for
from tests.system.failover_clients import FailoverSender
from tests.system.test_back_pressure import sending
from tests.system.test_store import declare

pytestmark = pytest.mark.system
MEGABYTE = 1 << 20


def mount(place: Path, *options: str) -> bool:
    """Mount a file system in memory; whether we may."""
    place.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(place)]
    return (
        os.geteuid() == 0
        and subprocess.run(words, check=False, capture_output=True).returncode == 0
    )


@pytest.fixture
def small_disks(tmp_path: Path) -> Iterator[list[Path]]:
    """Mount the data directories of the first cluster's three brokers: 24 MB each."""
    places = [tmp_path / "cluster0" / f"b{i}" for i in range(3)]
    mounted = [place for place in places if mount(place, "size=24m")]
    try:
        if len(mounted) < 3:
            pytest.skip("mounting a small file system needs root")
        yield places
    finally:
        for place in mounted:
            subprocess.run(["umount", "-l", str(place)], check=False)


@pytest.fixture
def on_disks(small_disks, a_cluster, tmp_path, monkeypatch):
    """Return a function that starts a cluster on the small disks."""
    mkdir = Path.mkdir
    monkeypatch.setattr(
        Path,
        "mkdir",
        lambda self, *args, **options: mkdir(self, *args, **{**options, "exist_ok": True}),
    )

    def start(**options: object) -> Cluster:
        # Events would be written while the disk is being filled to the byte.
        return a_cluster(
            3, ha_safety="strict", journal_segment_size="1M", journal_events="off", **options
        )

    return start


def free(place: Path) -> int:
    """Count the bytes that are left where a broker keeps its journal."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def fill(place: Path, leave: int) -> Path:
    """Leave so many bytes free where a broker keeps its journal."""
    ballast = place / "ballast"
    with ballast.open("wb") as file:
        file.write(bytes(max(0, free(place) - leave)))
    return ballast


def declare_both(broker: Broker) -> None:
    """Declare a queue, and have what is sent to an exchange come to it: who sends there is refused
    what cannot be taken, and does not wait.
    """
    declare(broker)
    broker.bind("amq.fanout", "q")


def refusal(broker: Broker) -> str:
    """Send one durable message; return why it is refused, or nothing."""
    try:
        send(broker, "amq.fanout", ["x"], durable=True)
    except NotAccepted as no:
        return f"{no.condition}: {no}"
    return ""


def test_below_the_limit_publishing_is_refused_and_goes_on_when_there_is_space(
    on_disks, small_disks
):
    """The primary's disk gets full: senders are told, consumers go on, and with space again all is
    as before; nothing is lost.
    """
    cluster = on_disks(disk_free_limit="8M")
    declare_both(cluster[0])
    send(cluster[0], "q", ["a", "b", "c"], durable=True)
    ballast = fill(small_disks[0], 4 * MEGABYTE)
    said = wait_for(lambda: refusal(cluster[0]), lambda said: "limit" in said, what="the refusal")
    assert "resource-limit-exceeded" in said and "disk" in said
    assert receive(cluster[0], "q", 1) == ["a"]
    assert cluster[0].state == "active"
    ballast.unlink()
    wait_for(lambda: refusal(cluster[0]), lambda said: not said, what="the refusal")
    bodies = browse(cluster[0], "q")
    assert [body for body in bodies if body != "x"] == ["b", "c"]
    wait_browse(cluster[1], "q", bodies)


def test_a_primary_whose_writes_fail_steps_down_and_says_so(on_disks, small_disks):
    """No space at all and no limit that would have warned: it ends with an error; what it had
    accepted is on the others.
    """
    cluster = on_disks(disk_free_limit="0")
    declare(cluster[0])
    fill(small_disks[0], 0)
    with FailoverSender(cluster.addresses, "q", prefix="x" * 2000, rate=20, durable=True) as sender:
        wait_for(
            lambda: cluster[0].is_running,
            lambda running: not running,
            what="whether the broker runs",
        )
        primary = cluster.wait_managed()
        sender.wait_accepted(50)
    assert cluster[0].process is not None and cluster[0].process.returncode != 0
    text = cluster[0].log.read_text()
    assert "no space left on device" in text.lower() and "make space" in text
    assert sender.missing(browse(cluster[primary], "q")) == []
    (small_disks[0] / "ballast").unlink()
    cluster[0].restart()
    cluster.wait_managed()
    wait_browse(cluster[0], "q", browse(cluster[primary], "q"))


def test_a_backup_whose_writes_fail_is_dropped_and_its_former_content_is_not_lost(
    on_disks, small_disks
):
    """It ends by itself and the others go on; with space it rejoins."""
    cluster = on_disks(disk_free_limit="0")
    declare(cluster[0])
    fill(small_disks[2], 0)
    with FailoverSender(
        [cluster[0].address], "q", prefix="x" * 2000, rate=20, durable=True
    ) as sender:
        wait_for(
            lambda: cluster[2].is_running,
            lambda running: not running,
            what="whether the broker runs",
        )
        sender.wait_accepted(100)
    assert sender.losses == []
    (small_disks[2] / "ballast").unlink()
    cluster[2].restart()
    cluster.wait_settled(0)
    wait_browse(cluster[2], "q", browse(cluster[0], "q"))


def test_a_checkpoint_for_which_there_is_no_space_waits_until_messages_are_consumed(
    on_disks, small_disks
):
    """Live messages fill a third of the disk: what is dead beside them cannot be cleared away, and
    the broker goes on all the same.
    """
    cluster = on_disks(
        disk_free_limit="4M",
        ha_cluster="no",
        ha_brokers_url=None,
        started=1,
        promote=False,
        log_enable="notice+",
    )
    broker = cluster[0]
    declare_both(broker)
    sent, got = 0, 0
    with connect(broker) as client:
        sender = client.sender("amq.fanout")
        receiver = client.receiver("q", credit=1)
        while free(small_disks[0]) > 4 * MEGABYTE and sent < 200:
            sender.send(Message(f"{sent} " + "x" * 200_000, durable=True))
            sent += 1
            if sent > 40:
                receiver.receive().accept()
                got += 1
    assert 40 < sent < 200
    # The broker looks at the space once a second, and takes small messages until then.
    answers: list[str] = []
    wait_for(lambda: answers.append(refusal(broker)) or answers[-1], bool, what="the refusal")
    assert "disk" in answers[-1]
    sent += len(answers) - 1
    wait_for(
        lambda: broker.log.read_text(), lambda text: "no checkpoint is made" in text, what="the log"
    )
    broker.kill()
    broker.restart()
    count = broker.call("list_queues", name="q")[0]["messages"]
    assert sent - got <= count <= sent - got + 1
    receive(broker, "q", count)
    wait_for(lambda: refusal(broker), lambda said: not said, what="the refusal")
    assert list((broker.data_dir / "journal").glob("*.checkpoint"))
    assert (
        sum(path.stat().st_size for path in (broker.data_dir / "journal").iterdir()) < 8 * MEGABYTE
    )


def fill_the_queue(broker: Broker) -> str:
    """Send large messages until one is refused; return why."""
    with connect(broker) as client:
        sender = client.sender("amq.fanout")
        while True:
            try:
                sender.send(Message("x" * 200_000, durable=True))
            except NotAccepted as no:
                return f"{no.condition}: {no}"


def test_first_use_d5_a_disk_that_was_full_is_of_use_again_when_messages_were_consumed(
    on_disks, small_disks
):
    """Three times; and the limit holds, however fast they come."""
    cluster = on_disks(
        disk_free_limit="8M", ha_cluster="no", ha_brokers_url=None, started=1, promote=False
    )
    broker, place = cluster[0], small_disks[0]
    declare_both(broker)
    for _ in range(3):
        assert "disk" in fill_the_queue(broker)
        assert free(place) > 7 * MEGABYTE
        assert "the disk is nearly full" in broker.call("explain")["refuses"]
        receive(broker, "q", broker.call("list_queues", name="q")[0]["messages"])
        wait_for(lambda: refusal(broker), lambda said: not said, what="the refusal")
        assert broker.call("explain")["refuses"] == ""


@pytest.mark.parametrize("level", ["none", "configuration"])
def test_a_disk_that_what_one_broker_keeps_has_filled_loses_nothing_that_was_accepted(
    on_disks, small_disks, level
):
    """Twice, with a kill while it is full: what was accepted is there, and the broker goes on."""
    cluster = on_disks(disk_free_limit="8M")
    broker = cluster[0]
    arguments = {"qpid.replicate": level}
    broker.call("declare_queue", name="q", durable=True, arguments=arguments)
    broker.bind("amq.fanout", "q")
    for number in range(2):
        accepted = []
        with connect(broker) as client:
            sender = client.sender("amq.fanout")
            with pytest.raises(NotAccepted, match="disk"):
                for count in range(1000):
                    body = f"{number}-{count} ".ljust(200_000, "x")
                    sender.send(Message(body, durable=True))
                    accepted.append(body)
        assert len(accepted) > 10 and free(small_disks[0]) > 7 * MEGABYTE
        assert broker.state == "active"
        for killed, next_one in ((0, 1), (1, 0)):
            cluster.bounce(killed, promote=next_one)
            cluster.wait_settled(next_one)
        received = receive(broker, "q", len(accepted))
        assert received == accepted
        wait_for(lambda: refusal(broker), lambda said: not said, what="the refusal")
        for _ in range(broker.call("list_queues", name="q")[0]["messages"]):
            assert receive(broker, "q", 1) == ["x"]


def test_senders_to_a_queue_wait_before_the_disk_is_full_and_none_is_refused(on_disks, small_disks):
    """Twice what the disk has, and a consumer that begins when they wait."""
    cluster = on_disks(
        disk_free_limit="8M", ha_cluster="no", ha_brokers_url=None, started=1, promote=False
    )
    broker = cluster[0]
    declare(broker)
    messages = [Message("x" * 200_000, durable=True) for _ in range(200)]
    with sending([broker.address], "q", messages) as finish, connect(broker) as client:
        found = wait_for(
            lambda: broker.call("explain"), lambda found: found["withholds"], what="the reason"
        )
        assert "disk-free-limit" in found["withholds"] and not found["refuses"]
        assert free(small_disks[0]) > 8 * MEGABYTE
        with client.receiver("q", credit=10) as receiver:
            for _ in messages:
                receiver.receive().accept()
        finish()


@pytest.mark.parametrize("how", ["expire", "reject"])
def test_what_dies_on_a_full_disk_has_a_place_among_the_dead_letters(on_disks, small_disks, how):
    """Three times: a queue takes what the disk has room for, all of it dies, and consumers take the
    dead letters.
    """
    cluster = on_disks(
        disk_free_limit="8M", ha_cluster="no", ha_brokers_url=None, started=1, promote=False
    )
    broker = cluster[0]
    broker.call("declare_queue", name="dead", durable=True)
    arguments = {"x-dead-letter-exchange": "/queues/dead"}
    broker.call("declare_queue", name="q", durable=True, arguments=arguments)
    broker.bind("amq.fanout", "q")

    def waiting() -> int:
        (row,) = broker.call("list_queues", name="q")
        return int(row["messages"])

    for _ in range(3):
        assert "dead letter" in fill_the_queue(broker)
        count = waiting()
        if how == "expire":
            broker.call("set_policy", name="p", pattern="^q$", definition={"message-ttl": 1})
        else:
            with connect(broker) as client, client.receiver("q", credit=10) as receiver:
                for _ in range(count):
                    receiver.receive().reject()
        wait_for(waiting, lambda left: not left, what="what is left on the queue")
        if how == "expire":
            broker.call("clear_policy", name="p")
        assert len(receive(broker, "dead", count)) == count
        wait_for(
            lambda: broker.call("explain"), lambda found: not found["withholds"], what="the reason"
        )


def test_first_use_d5_so_is_the_disk_of_a_backup_of_three(on_disks, small_disks):
    """The primary's is larger: it refuses what the backup could not keep, and says which one."""
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disks[0])], check=True)
    cluster = on_disks(disk_free_limit="8M")
    declare_both(cluster[0])
    fill(small_disks[1], 16 * MEGABYTE)
    for _ in range(3):
        said = fill_the_queue(cluster[0])
        assert "disk" in said and cluster[1].address in said
        assert free(small_disks[1]) > 7 * MEGABYTE
        assert cluster[1].address in cluster[0].call("explain")["refuses"]
        receive(cluster[0], "q", cluster[0].call("list_queues", name="q")[0]["messages"])
        wait_for(lambda: refusal(cluster[0]), lambda said: not said, what="the refusal")
    assert cluster[0].call("explain")["refuses"] == ""
    cluster.wait_settled(0)


def test_a_read_only_data_directory_is_refused_at_the_start(tmp_path, a_cluster, monkeypatch):
    """It says which directory and what to do, and exits with an error at once."""
    cluster = a_cluster(1, started=0, promote=False, ha_cluster="no", ha_brokers_url=None)
    broker = cluster[0]
    if not mount(broker.data_dir, "size=1m"):
        pytest.skip("mounting a file system needs root")
    try:
        subprocess.run(["mount", "-o", "remount,ro", str(broker.data_dir)], check=True)
        broker.start()
        wait_for(lambda: broker.is_running, lambda running: not running, what="whether it runs")
        assert broker.process is not None and broker.process.returncode != 0
        text = broker.log.read_text()
        assert str(broker.data_dir) in text and "ead-only" in text and "next:" in text
    finally:
        subprocess.run(["umount", "-l", str(broker.data_dir)], check=False)
