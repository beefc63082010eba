"""Local clusters: what `qpid-ha local` refuses, how it ends, and what it says when its manager is
gone.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qpidha.manager.builtin.launch import left_over
from tests.cli.conftest import Said

Run = Callable[..., Said]
FAKE = Path(__file__).parent.parent / "manager" / "fake_daemon.py"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path, because of the limit on socket paths, for a cluster of pretended daemons."""
    monkeypatch.setenv("QPIDHA_DAEMON", shlex.join([sys.executable, "-S", str(FAKE)]))
    monkeypatch.delenv("COVERAGE_PROCESS_START", raising=False)
    with tempfile.TemporaryDirectory(prefix="qpidha-") as path:
        monkeypatch.setenv("QPIDHA_DIR", path)
        yield Path(path)


@pytest.fixture
def up(place: Path, qpid_ha: Run) -> Iterator[Path]:
    """A running cluster of two."""
    said = qpid_ha("local", "up", "-n", "2", "--base-port", "0", "-o", "json")
    assert said.code == 0 and json.loads(said.out)["primary"] == "b1", said
    yield place
    qpid_ha("local", "down")
    assert not left_over(place)


def kill_manager(place: Path) -> None:
    """Kill the manager, and wait until it is gone."""
    handle = os.pidfd_open(json.loads((place / "cluster.json").read_text())["manager_pid"])
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    select.select([handle], [], [])
    os.close(handle)


@pytest.mark.parametrize(
    ("line", "said_why"),
    [
        ("--heartbeat 0", "heartbeat of 0 s"),
        ("--heartbeat nan", "heartbeat of nan s"),
        ("--backup-timeout 0", "backup timeout of 0 s"),
        ("--set frobnicate", "--set frobnicate has no name and value"),
        ("--base-port 70000", "no 3 ports from 70000"),
        ("--base-port -5", "no 3 ports from -5"),
        ("-n 0", "0 brokers"),
    ],
)
def test_a_cluster_that_cannot_work_is_refused_before_anything_starts(
    place: Path, qpid_ha: Run, line: str, said_why: str
) -> None:
    said = qpid_ha("local", "up", *line.split())
    assert said.code == 2 and said_why in said.err and "Try:" in said.err
    assert not list(place.iterdir())


def test_a_broker_that_never_comes_up_ends_the_cluster_with_the_brokers_own_reason(
    place: Path, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QPIDHA_DAEMON")
    said = qpid_ha("local", "up", "-n", "1", "--base-port", "0", "--set", "foo=bar")
    assert (
        said.code == 69
        and "b1 does not start: unknown option foo" in said.err
        and "--help lists" not in said.err
    )
    assert not left_over(place) and not (place / "manager.sock").exists()


def test_a_folder_with_other_things_in_it_is_not_written_into(place: Path, qpid_ha: Run) -> None:
    (place / "setup.py").touch()
    said = qpid_ha("local", "up")
    assert said.code == 1 and "setup.py is in the way" in said.err
    assert [path.name for path in place.iterdir()] == ["setup.py"]


@pytest.mark.parametrize("command", ["local up", "demo", "bench --temporary"])
def test_a_file_is_no_directory(place: Path, qpid_ha: Run, command: str) -> None:
    (place / "README.md").touch()
    said = qpid_ha(*command.split(), "--dir", str(place / "README.md"))
    assert said.code in (1, 2) and "README.md" in said.err and "internal error" not in said.err


def test_without_a_manager_its_brokers_are_named_taken_over_and_ended(
    up: Path, qpid_ha: Run
) -> None:
    kill_manager(up)
    said = qpid_ha("local", "status")
    assert said.code == 69 and "the manager is gone, but b1, b2 still run" in said.err
    assert "local up takes them over" in said.err and "local down ends them" in said.err
    assert "b1, b2" in json.loads(qpid_ha("local", "status", "-o", "json").err)["error"]["message"]
    said = qpid_ha("local", "up", "-n", "3")
    assert said.code == 1 and "-n 2" in said.err
    said = qpid_ha("local", "up", "-o", "json")
    assert said.code == 0 and [
        broker["restarts"] for broker in json.loads(said.out)["brokers"]
    ] == [0, 0]
    kill_manager(up)
    assert qpid_ha("local", "down").code == 0 and not left_over(up)


def test_brokers_that_still_run_are_not_taken_over_as_what_they_are_not(
    up: Path, qpid_ha: Run
) -> None:
    kill_manager(up)
    said = qpid_ha("local", "up", "--secure")
    assert said.code == 1 and "b1, b2 of a cluster that was started without --secure" in said.err
    assert not (up / "credentials").exists()


def test_without_openssl_a_secure_cluster_is_refused(
    place: Path, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(place))
    said = qpid_ha("local", "up", "--secure", "--base-port", "0")
    assert said.code == 69 and "openssl is not installed" in said.err
    assert not list(place.iterdir())


def test_a_cluster_that_runs_in_another_place_is_named_with_it(
    up: Path, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.delenv("QPIDHA_DIR")
        said = qpid_ha("local", "up", "--dir", str(up))
    assert said.code == 1
    assert f"qpid-ha local status --dir {up}, qpid-ha local down --dir {up}" in said.err
    assert "Try: qpid-ha local status, qpid-ha local down, or" in qpid_ha("local", "up").err


def test_a_cluster_of_this_folder_is_named_where_the_usual_place_has_none(
    up: Path, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.delenv("QPIDHA_DIR")
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path))
        elsewhere.chdir(up)
        for command in ("status", "down"):
            said = qpid_ha("local", command)
            assert said.code == 69 and f"there is one in {up}: add --dir {up}" in said.err
        elsewhere.chdir(tmp_path)
        assert "there is one" not in qpid_ha("local", "status").err


def test_down_and_logs_give_json(up: Path, qpid_ha: Run) -> None:
    said = qpid_ha("local", "logs", "manager", "-n", "2", "-o", "json")
    logs = json.loads(said.out)
    assert (
        logs["broker"] == "manager" and len(logs["lines"]) == 2 and "[manager]" in logs["lines"][0]
    )
    assert qpid_ha("local", "logs", "--follow", "-o", "json").code == 2
    assert json.loads(qpid_ha("local", "down", "-o", "json").out) == {
        "schema_version": 1,
        "down": True,
        "directory": str(up),
    }


def test_two_interrupts_at_once_leave_no_broker_behind(place: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "qpidha.cli.main",
        "local",
        "up",
        "-n",
        "2",
        "--base-port",
        "0",
        "--foreground",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if " settled " in line:
                break
        assert len(left_over(place)) == 2
        os.killpg(process.pid, signal.SIGINT)
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 0 and "stopped" in rest
    assert not left_over(place)


def test_the_group_alone_shows_its_commands_as_a_usage_error(qpid_ha: Run) -> None:
    for group, command in (("local", "status"), ("queue", "purge")):
        said = qpid_ha(group)
        assert (
            said.code == 2
            and said.out == ""
            and f"Usage: qpid-ha {group}" in said.err
            and f"\n  {command}" in said.err
        )


def test_an_unknown_command_of_a_group_is_answered_with_its_commands(qpid_ha: Run) -> None:
    said = qpid_ha("local", "frob")
    assert (
        said.code == 2
        and "'frob'" in said.err
        and "up, status, kill, restart, logs, down" in said.err
    )


def test_first_use_m10_a_cluster_that_comes_up_again_has_its_former_ports(
    up: Path, qpid_ha: Run
) -> None:
    def ports() -> list[int]:
        brokers = json.loads(qpid_ha("local", "status", "-o", "json").out)["brokers"]
        return [int(broker["address"].rpartition(":")[2]) for broker in brokers]

    before = ports()
    assert qpid_ha("local", "down").code == 0
    with socket.create_server(("127.0.0.1", before[0])):
        said = qpid_ha("local", "up")
        assert said.code == 69 and f"port {before[0]} is in use" in said.err
        assert "--base-port 0" in said.err
    assert qpid_ha("local", "up").code == 0
    assert ports() == before


def test_first_use_m32_a_full_disk_is_told_before_anything_starts(
    place: Path, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.statvfs_result((4096, 4096, 100, 5, 5, 9, 9, 9, 0, 255))
    monkeypatch.setattr("os.statvfs", lambda path: full)
    said = qpid_ha("local", "up", "--base-port", "0")
    assert said.code == 73 and f"no space is left for {place}" in said.err
    assert "20,480 bytes are free" in said.err and not list(place.iterdir())
