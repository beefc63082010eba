"""The watch beside real brokers and pretended ones, with Pacemaker's commands replaced by ones that
write down how they are called.
"""

from __future__ import annotations

import json
import os
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qpidha.client.admin import LinkBroken
from qpidha.client.admin import ask as ask_admin
from qpidha.model.errors import RefusedRequest
from tests.manager.vip_hosts import VIP, Hosts, need_namespaces
from tests.patience import STATE
from tests.system.cluster import held_ports, wait_for

TOOL = """#!/bin/sh
echo "$(date +%s%N) ${0##*/} $*" >> "$FAKE/calls"
case "$*" in
*--query*) cat "$FAKE/record" 2>/dev/null || exit 105;;
*--modify*) for last; do :; done; last=${last#* value=?}; echo "${last%%'"'*}" > "$FAKE/record";;
-q) cat "$FAKE/quorum" 2>/dev/null || echo 1;;
esac
"""


class Broker:
    """A broker for the watch: its process, and where to ask it."""

    def __init__(self, process: subprocess.Popen[bytes], admin: str) -> None:
        self.process = process
        self.admin = admin

    def ask(self, method: str, **params: Any) -> Any:
        """Ask over the admin socket."""
        return ask(self.admin, method, **params)


class Room:
    """A directory with pretended commands, brokers and watches, all ended after the test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket, self.vips, self.calls_file = path / "watch.sock", path / "vip", path / "calls"
        self.environment = {
            **os.environ,
            "PATH": f"{path}/bin:{os.environ['PATH']}",
            "FAKE": str(path),
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        (path / "bin").mkdir()
        for name in ("crm_attribute", "crm_resource", "crm_node", "attrd_updater", "cibadmin"):
            (path / "bin" / name).write_text(TOOL)
            (path / "bin" / name).chmod(0o755)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a process."""
        with (self.path / "output").open("ab") as output:
            process = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self.processes.append(process)
        return process

    def broker(self, *, promote: bool = True, more: str = "") -> Broker:
        """Start a real broker, a cluster of one; `more` are lines of its configuration."""
        admin, config = self.path / "admin.sock", self.path / "qpidha.conf"
        with held_ports(1) as (port,):
            config.write_text(
                f"port={port}\ninterface=127.0.0.1\ndata-dir={self.path}/data\nadmin-socket={admin}\nha-cluster=yes\n"
                f"ha-brokers-url=amqp:127.0.0.1:{port}\nlink-maintenance-interval=0.1\nauth=no\n{more}"
            )
            broker = Broker(
                self.start(sys.executable, "-m", "qpidha.runtime.daemon", "--config", str(config)),
                str(admin),
            )
            wait_for(
                lambda: broker.process.poll() is not None or answers(str(admin)), what="broker"
            )
        if promote:
            broker.ask("promote")
            wait_for(lambda: broker.ask("status")["state"], "active".__eq__)
        return broker

    def watch(
        self, broker: Broker, *words: str, hosts: Hosts | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a watch, on host a if there are hosts, and wait until it answers."""
        command = [
            sys.executable,
            "-m",
            "qpidha.manager.pacemaker.watch",
            "--admin-socket",
            broker.admin,
            "--pid",
            str(broker.process.pid),
        ]
        command += [
            "--resource",
            "broker",
            "--node",
            "n1",
            "--socket",
            str(self.socket),
            "--vips",
            str(self.vips),
        ]
        command += ["--interval", "0.05", *words]
        process = self.start(*(hosts.command("a", *command) if hosts is not None else command))
        wait_for(
            lambda: process.poll() is not None or answers(str(self.socket), "vip_show"),
            what="watch",
        )
        return process

    def ask(self, method: str, **params: Any) -> Any:
        """Ask the watch."""
        return ask(str(self.socket), method, **params)

    def calls(self, *parts: str) -> list[str]:
        """Calls of the pretended commands, without their times, that have all these parts."""
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [line.partition(" ")[2] for line in lines if all(part in line for part in parts)]

    def record(self) -> str:
        """The recorded in-sync set."""
        return (self.path / "record").read_text().strip() if (self.path / "record").exists() else ""

    def output(self) -> str:
        """What the processes said."""
        return (self.path / "output").read_text()


def ask(path: str, method: str, **params: Any) -> Any:
    """Ask over a socket in JSON lines."""
    return ask_admin(path, method, params, timeout=STATE)


def answers(path: str, method: str = "status") -> bool:
    """Whether somebody answers."""
    try:
        ask(path, method)
    except LinkBroken:
        return False
    except RefusedRequest:
        pass  # A no is an answer.
    return True


@pytest.fixture
def room() -> Iterator[Room]:
    """A room with a short path, because of the limit on socket paths."""
    with tempfile.TemporaryDirectory(prefix="qpidha-", ignore_cleanup_errors=True) as path:
        made = Room(Path(path))
        yield made
        for process in made.processes:
            process.kill()
            process.wait()
        print(made.output() if (made.path / "output").exists() else "")


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """A client and two hosts on one network."""
    need_namespaces()
    made = Hosts()
    yield made
    made.close()


FAIL = "crm_resource --fail --resource broker --node n1"
DELETE = "crm_attribute --promotion -D -q"


def test_a_primary_gets_its_score_and_its_in_sync_set_is_recorded(room: Room) -> None:
    broker = room.broker()
    room.watch(broker)
    wait_for(lambda: room.calls("crm_attribute --promotion -v 1000 -q"))
    status = broker.ask("status")
    found = status["in_sync"]
    wait_for(room.record, f"{found['epoch']}:{found['version']}:{status['system_id']}".__eq__)
    assert wait_for(lambda: room.ask("status"), lambda seen: seen["published"] == 1000)["recorded"][
        "members"
    ] == [status["system_id"]]
    assert (
        len(room.calls("--promotion")) == 1
        and room.calls("crm_node -q")
        and not room.calls("--fail")
    )


def test_nothing_is_recorded_without_quorum(room: Room) -> None:
    (room.path / "quorum").write_text("0\n")
    room.watch(room.broker())
    assert wait_for(lambda: room.ask("status")["complaint"]) == "the partition is not quorate"
    assert not room.calls("--modify")
    (room.path / "quorum").write_text("1\n")
    wait_for(room.record)


def test_only_a_broker_of_the_record_or_of_a_new_cluster_may_become_primary(room: Room) -> None:
    broker = room.broker(promote=False)
    watch = room.watch(broker)
    wait_for(lambda: room.calls("crm_attribute --promotion -v 500 -q"))
    watch.terminate()
    watch.wait()
    (room.path / "record").write_text("3:1:somebody-else\n")
    room.calls_file.unlink()
    room.watch(broker)
    wait_for(lambda: room.ask("status")["recorded"])
    wait_for(lambda: room.calls("--promotion -D"))
    assert not room.calls("--promotion -v")


def test_the_death_of_the_broker_takes_the_address_away_and_is_told_once(
    room: Room, hosts: Hosts
) -> None:
    broker = room.broker()
    watch = room.watch(broker, hosts=hosts)
    wait_for(lambda: room.calls("-v 1000"))
    assert room.ask("vip_add", address=VIP) == {
        "address": VIP,
        "prefix": 24,
        "interface": "eth0",
        "changed": True,
    }
    assert room.ask("vip_add", address=VIP, prefix=24, interface="eth0")["changed"] is False
    assert hosts.has("a", VIP)
    broker.process.kill()
    assert watch.wait(STATE) == 0
    assert not hosts.has("a", VIP) and not list(room.vips.iterdir()) and not room.socket.exists()
    assert room.calls("--fail") == [FAIL] and room.calls(DELETE) == [DELETE]


def test_a_broker_that_is_dead_already_is_told_as_well(room: Room) -> None:
    broker = room.broker()
    broker.process.kill()
    broker.process.wait()
    assert room.watch(broker).wait(STATE) == 0
    assert room.calls("--fail") == [FAIL]


def test_told_to_stop_it_removes_the_addresses_and_tells_nothing(room: Room, hosts: Hosts) -> None:
    broker = room.broker()
    watch = room.watch(broker, hosts=hosts)
    room.ask("vip_add", address=VIP)
    watch.terminate()
    assert watch.wait(STATE) == 0
    assert not hosts.has("a", VIP) and not room.calls("--fail") and broker.process.poll() is None


def test_a_hung_broker_loses_address_and_score_and_is_told_once_until_it_is_well(
    room: Room, hosts: Hosts
) -> None:
    broker = room.broker()
    watch = room.watch(broker, "--answer", "0.4", hosts=hosts)
    room.ask("vip_add", address=VIP)
    wait_for(lambda: room.calls("-v 1000"))
    broker.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: room.calls("--fail") and room.calls(DELETE))
    wait_for(lambda: hosts.has("a", VIP), lambda there: not there)
    with pytest.raises(RefusedRequest, match="does not answer"):
        room.ask("vip_add", address=VIP)
    broker.process.send_signal(signal.SIGCONT)
    wait_for(lambda: len(room.calls("-v 1000")), (2).__eq__)
    assert not hosts.has("a", VIP), "only Pacemaker puts it back"
    broker.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: len(room.calls("--fail")), (2).__eq__)
    broker.process.kill()  # as the agent does because of what was told
    assert watch.wait(STATE) == 0 and len(room.calls("--fail")) == 2


def test_an_address_goes_with_the_part_of_the_primary_and_does_not_come_back(
    room: Room, hosts: Hosts
) -> None:
    broker = room.broker()
    room.watch(broker, hosts=hosts)
    room.ask("vip_add", address=VIP)
    broker.ask("demote")
    wait_for(lambda: hosts.has("a", VIP), lambda there: not there)
    with pytest.raises(
        RefusedRequest, match="belongs where the primary is: the broker of this node is joining"
    ):
        room.ask("vip_add", address=VIP)
    assert room.ask("vip_show") == {"addresses": []} and not room.calls("--fail")


def test_a_new_watch_finds_what_a_killed_one_left(room: Room, hosts: Hosts) -> None:
    broker = room.broker()
    watch = room.watch(broker, hosts=hosts)
    room.ask("vip_add", address=VIP)
    watch.kill()
    watch.wait()
    assert hosts.has("a", VIP)
    watch = room.watch(broker, hosts=hosts)
    assert room.ask("vip_show") == {
        "addresses": [{"address": VIP, "prefix": 24, "interface": "eth0", "present": True}]
    }
    watch.kill()
    watch.wait()
    broker.ask("demote")
    room.watch(broker, hosts=hosts)
    wait_for(lambda: hosts.has("a", VIP), lambda there: not there)


def test_addresses_are_removed_one_by_one_or_all_at_once(room: Room, hosts: Hosts) -> None:
    room.watch(room.broker(), hosts=hosts)
    for address in (VIP, "10.99.0.101", "10.99.0.102"):
        room.ask("vip_add", address=address)
    assert room.ask("vip_remove", address=VIP) == {"removed": [VIP]}
    assert room.ask("vip_remove", address=VIP) == {"removed": []}
    assert room.ask("vip_remove") == {"removed": ["10.99.0.101", "10.99.0.102"]}
    assert "10.99.0.10" not in hosts.ip("a", "addr show dev eth0") and room.ask("vip_show") == {
        "addresses": []
    }


def test_only_one_watch_answers_at_a_socket(room: Room) -> None:
    broker = room.broker()
    room.watch(broker)
    assert room.watch(broker).wait(STATE) == 1
    assert "another watch has" in room.output()
    with pytest.raises(RefusedRequest, match="no method 'vip_dance'"):
        room.ask("vip_dance")


def test_the_score_is_an_attribute_in_the_style_of_two_primitives(room: Room) -> None:
    broker = room.broker()
    watch = room.watch(broker, "--publish", "attribute")
    wait_for(lambda: room.calls("attrd_updater -n qpid-ready -U 1000"))
    broker.process.kill()
    watch.wait(STATE)
    assert room.calls("attrd_updater -n qpid-ready -D") and room.calls("--fail") == [FAIL]


def test_the_broker_does_without_pacemaker(room: Room) -> None:
    for name in ("crm_attribute", "crm_resource", "crm_node"):
        (room.path / "bin" / name).write_text(
            "#!/bin/sh\necho 'Could not connect to the CIB' >&2\nexit 102\n"
        )
    broker = room.broker()
    watch = room.watch(broker)
    assert "exit code 102: Could not connect to the CIB" in wait_for(
        lambda: room.ask("status")["complaint"]
    )
    broker.process.kill()
    assert watch.wait(STATE) == 0
    assert f"reported the failure to Pacemaker: {DELETE}: exit code 102" in room.output()


# What takes a whole cluster to come about is told by a pretended broker.


class Pretended(Broker):
    """Answers `status` and `recover` with what the test puts in."""

    def __init__(self, room: Room) -> None:
        super().__init__(room.start("sleep", "600"), str(room.path / "pretended.sock"))
        self.status: dict[str, Any] = {
            "state": "active",
            "address": "a:1",
            "system_id": "id-a",
            "epoch": 3,
            "promised": 3,
            "in_sync": {"epoch": 3, "version": 1, "members": ["id-a"]},
            "members": [{"address": "a:1", "state": "active", "connected": True}],
            "complete": True,
            "strict": True,
            "majority": True,
        }
        self.recommended: str | None = None
        self.wanted: dict[str, Any] = {}
        """Its answer to `recording`, until it was told what is kept."""
        self.told: dict[str, Any] = {}
        """What it was told last."""

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer a request."""
        if method == "recover":
            return {"recommended": self.recommended}
        if method == "recorded":
            self.told = params
            self.wanted = {} if "kept" in params else self.wanted
        return self.wanted if method in ("recording", "recorded") else self.status


@pytest.fixture
def pretended(room: Room) -> Iterator[Pretended]:
    """A pretended primary."""
    broker = Pretended(room)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                request = json.loads(line)
                if request["method"] == "recording" and not broker.wanted:
                    continue  # it is answered when there is something
                result = broker.answer(request["method"], request["params"])
                self.wfile.write(
                    json.dumps({"id": request["id"], "result": result}).encode() + b"\n"
                )

    with socketserver.ThreadingUnixStreamServer(broker.admin, Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield broker
        server.shutdown()
        thread.join()


def test_a_primary_that_hears_no_majority_is_told_once(
    room: Room, hosts: Hosts, pretended: Pretended
) -> None:
    room.watch(pretended, "--isolation", "0.3", hosts=hosts)
    room.ask("vip_add", address=VIP)
    wait_for(lambda: room.calls("-v 1000"))
    pretended.status |= {"majority": False}
    wait_for(lambda: room.calls("--fail") and room.calls(DELETE))
    wait_for(lambda: hosts.has("a", VIP), lambda there: not there)
    assert "had no connection to a majority for 0.3 s" in room.ask("status")["unfit"]
    with pytest.raises(RefusedRequest, match="had no connection to a majority"):
        room.ask("vip_add", address=VIP)
    pretended.status |= {"majority": True}
    wait_for(lambda: len(room.calls("-v 1000")), (2).__eq__)
    assert len(room.calls("--fail")) == 1


def test_a_failure_that_pacemaker_did_not_hear_is_told_again(
    room: Room, pretended: Pretended
) -> None:
    tool = room.path / "bin" / "crm_resource"
    tool.write_text('#!/bin/sh\necho "0 crm_resource deaf" >> "$FAKE/calls"\nexit 102\n')
    room.watch(pretended, "--isolation", "0.1")
    wait_for(lambda: room.calls("-v 1000"))
    pretended.status |= {"majority": False}
    wait_for(lambda: room.calls("crm_resource deaf"))
    fresh = room.path / "fresh"
    fresh.write_text(TOOL)
    fresh.chmod(0o755)
    fresh.replace(tool)
    wait_for(lambda: room.calls("--fail"), [FAIL].__eq__)


def test_no_score_is_set_after_the_watch_was_told_to_stop(room: Room) -> None:
    slow = (
        '#!/bin/sh\ntouch "$FAKE/updating"\nwhile [ ! -e "$FAKE/go" ]; do sleep 0.05; '
        f"done\n{TOOL.partition(chr(10))[2]}"
    )
    (room.path / "bin" / "crm_attribute").write_text(slow)
    watch = room.watch(room.broker())
    wait_for((room.path / "updating").exists)
    watch.terminate()
    assert watch.wait(STATE) == 0
    (room.path / "go").touch()
    room.start("true").wait()
    assert not room.calls("-v 1000")


def test_one_address_that_cannot_be_removed_does_not_keep_the_others(
    room: Room, hosts: Hosts, pretended: Pretended
) -> None:
    room.watch(pretended, hosts=hosts)
    room.ask("vip_add", address=VIP)
    (room.vips / "0-no-address").write_text('{"prefix": 24, "interface": "eth0"}')
    pretended.status |= {"state": "ready"}
    wait_for(lambda: hosts.has("a", VIP), lambda there: not there)


def test_what_goes_wrong_is_answered(room: Room, hosts: Hosts, pretended: Pretended) -> None:
    room.watch(pretended, hosts=hosts)
    room.vips.write_text("a file where the folder should be")
    with pytest.raises(RefusedRequest, match="vip_add failed") as refused:
        room.ask("vip_add", address=VIP)
    assert "File exists" in refused.value.reason
    assert not hosts.has("a", VIP)


@pytest.mark.parametrize("changes", [{"promised": 4}, {"state": "joining"}, {"state": "ready"}])
def test_a_primary_that_lost_its_epoch_loses_its_address(
    room: Room, hosts: Hosts, pretended: Pretended, changes: dict[str, Any]
) -> None:
    room.watch(pretended, hosts=hosts)
    room.ask("vip_add", address=VIP)
    pretended.status |= changes
    wait_for(lambda: hosts.has("a", VIP), lambda there: not there)
    with pytest.raises(RefusedRequest, match="belongs where the primary is"):
        room.ask("vip_add", address=VIP)


def test_after_a_total_failure_the_recommended_broker_has_a_score(
    room: Room, pretended: Pretended
) -> None:
    pretended.status |= {"state": "joining", "complete": False}
    (room.path / "record").write_text("3:1:id-a\n")
    room.watch(pretended)
    wait_for(lambda: room.calls(DELETE))
    assert not room.calls("--promotion -v")
    pretended.recommended = "a:1"
    wait_for(lambda: room.calls("--promotion -v 500 -q"))
    pretended.recommended = "b:1"
    wait_for(lambda: len(room.calls(DELETE)), (2).__eq__)


def test_an_older_set_is_never_written_over_a_newer_record(
    room: Room, pretended: Pretended
) -> None:
    (room.path / "record").write_text("9:1:id-b\n")
    room.watch(pretended)
    wait_for(lambda: room.ask("status")["recorded"])
    pretended.status |= {"in_sync": {"epoch": 3, "version": 2, "members": ["id-a", "id-b"]}}
    wait_for(lambda: len(room.calls("-v 1000")))
    assert room.record() == "9:1:id-b"
    pretended.status |= {
        "epoch": 10,
        "promised": 10,
        "in_sync": {"epoch": 10, "version": 1, "members": ["id-a"]},
    }
    wait_for(room.record, "10:1:id-a".__eq__)


def test_silence_is_a_failure_only_after_the_time_for_an_answer(
    room: Room, pretended: Pretended
) -> None:
    watch = room.watch(pretended, "--answer", "0.3")
    wait_for(lambda: room.calls("-v 1000"))
    Path(pretended.admin).unlink()  # Its connection stays: it still answers.
    wait_for(lambda: room.ask("status")["state"], "active".__eq__)
    assert not room.calls("--fail")
    watch.kill()
    watch.wait()
    room.watch(pretended, "--answer", "0.3")  # Half dead: the process lives, and nobody can ask it.
    wait_for(lambda: room.calls("--fail"), [FAIL].__eq__)
