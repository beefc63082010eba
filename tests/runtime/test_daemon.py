"""The daemon as a process: how it starts, what it says, how it ends."""

from __future__ import annotations

import grp
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress

import pytest

from qpidha.model.exit_codes import (
    CANNOT_CREATE,
    CONFIG,
    DATA_ERROR,
    IO_ERROR,
    NO,
    NO_PERMISSION,
    OK,
    SOFTWARE,
    UNAVAILABLE,
)
from qpidha.model.paths import admin_folder
from qpidha.node import VERSION
from tests.patience import STATE
from tests.runtime.daemons import COMMAND, ENVIRONMENT, Running, run
from tests.system.cluster import wait_for
from tests.system.credentials import users_file


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(place, number):
    with Running("--data-dir", place) as daemon:
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=STATE) as client:
            code, log = daemon.end(number)
            client.settimeout(STATE)
        assert code == 0
        assert f"listening on port {daemon.port}" in log and f"127.0.0.1:{daemon.port}" in log
    assert sorted(os.listdir(place)) == ["events", "journal", "lock", "systemId"]


def test_the_admin_socket_answers(place):
    with Running("--data-dir", place, "--name", "b1") as daemon:
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(STATE)
            admin.connect(str(place / "admin.sock"))
            admin.sendall(b'{"id": 1, "method": "status", "params": {}}\n')
            status = json.loads(admin.makefile().readline())["result"]
        assert (
            status["name"] == "b1"
            and status["address"] == f"127.0.0.1:{daemon.port}"
            and status["state"] == "standalone"
        )
        assert status["system_id"] == (place / "systemId").read_text().strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_member_of_the_group_administers_the_broker_and_others_do_not():
    code = (
        "import os, sys; from qpidha.client.admin import ask; "
        "os.setgroups([int(sys.argv[2])]); os.setgid(65534); os.setuid(65534); "
        "ask(sys.argv[1], 'declare_queue', {'name': 'q'}, timeout=30); "
        "print(ask(sys.argv[1], 'status', timeout=30)['state'])"
    )
    group, other = grp.getgrall()[1:3]

    def said(path, gid):
        command = [sys.executable, "-c", code, path, str(gid)]
        return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT).stdout

    with tempfile.TemporaryDirectory(prefix="qpidha-") as folder:
        os.chmod(folder, 0o755)
        path = f"{folder}/admin.sock"
        with Running("--admin-socket", path, "--admin-socket-group", group.gr_name):
            assert said(path, other.gr_gid) == ""
            assert said(path, group.gr_gid) == "standalone\n"


def test_a_second_daemon_on_the_same_directory_refuses(place):
    with Running("--data-dir", place) as daemon:
        code, _, log = run("--port", "0", "--data-dir", place)
        assert code == 69 and f"in use by process {daemon.process.pid}" in log and "next:" in log
        code, _, log = run("--port", daemon.port, "--data-dir", place / "other")
        assert code == 69 and f"port {daemon.port} is in use" in log and "next:" in log


def test_a_daemon_that_is_given_no_data_dir_has_the_default_one_and_a_second_one_is_refused(place):
    env = ENVIRONMENT | {"STATE_DIRECTORY": f"{place}/data", "XDG_RUNTIME_DIR": str(place)}
    with Running("--config", os.devnull, env=env) as daemon:
        assert (place / "data" / "systemId").exists()
        # Commands find it where they look by themselves, and not in there.
        folder = admin_folder(env, os.getuid())
        assert os.path.exists(f"{folder}/admin-{daemon.port}.sock")
        assert not (place / "data" / "admin.sock").exists()
        command = [*COMMAND, "--port", "0"]
        second = subprocess.run(command, env=env, capture_output=True, text=True)
        assert (
            second.returncode == 69 and f"in use by process {daemon.process.pid}" in second.stderr
        )
        assert "with data-dir, or none with no-data-dir" in second.stderr
        with Running("--no-data-dir", env=env) as third:
            assert third.port


def test_a_default_data_dir_that_cannot_be_made_names_the_options():
    code, _, log = run("--port", "0")
    assert code == 73 and "data-dir /dev/null/" in log and "no-data-dir" in log


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--port", "x"], "port=x"),
        (["--prot", "1"], "did you mean port?"),
        (["--chek"], "did you mean check?"),
        (["--confg", "x"], "did you mean config?"),
        (["--users-file", "/missing"], "/missing"),
        (["--ssl-cert", "/missing"], "/missing"),
        (["--config", "/missing"], "/missing"),
        (["--log-to-file", "/missing/log"], "/missing/log"),
        (["--admin-socket", "/tmp/" + "x" * 120], "107 bytes"),
        (["--interface", "192.0.2.1", "--auth=no"], "192.0.2.1"),
        (["--interface", "192.0.2.1"], "no client could log in"),
    ],
)
def test_what_cannot_work_ends_the_start_with_a_reason_and_a_next_step(options, says):
    code, out, log = run("--port", "0", "--no-data-dir", *options)
    assert code == 78 and says in log and "next:" in log and not out and "Traceback" not in log


@pytest.mark.parametrize("option", ["--ssl-cert", "--ssl-trusted"])
def test_a_file_that_is_no_certificate_is_called_so(place, option):
    (place / "odd.pem").write_text("odd\n")
    code, _, log = run("--check", option, place / "odd.pem")
    assert code == 78 and "odd.pem cannot be used: " in log and "_ssl.c" not in log
    assert "PEM form" in log or "no certificate is in it" in log


def test_check_looks_at_the_files_and_does_not_serve(place):
    (place / "conf").write_text("worker-threads=4\nport=1\n")
    code, out, log = run("--check", "--config", place / "conf")
    assert code == 0 and "good" in out and "worker-threads" in log
    (place / "conf").write_text("users-file=/missing\n")
    assert run("--check", "--config", place / "conf")[0] == 78


def test_check_tells_whether_the_brokers_can_log_in_to_each_other(place):
    users = users_file(place / "users", {"ha": "secret"})
    options = ["--ha-cluster", "--users-file", users, "--ha-password", "wrong", "--ha-username"]
    check = ["--check", "--ha-brokers-url", "a,b", *options]
    code, _, log = run(*check, "guest")
    assert code == 78 and "has no user guest" in log and "next: qpid-ha user add guest" in log
    code, out, log = run(*check, "ha")
    assert code == 0 and "good" in out and "ha-password is not the password of ha" in log


def test_it_does_not_run_without_assertions():
    code, _, log = run("--port", "0", python=("-O",))
    assert code == 78 and "-O" in log


def test_the_parent_is_told_when_clients_are_served(place):
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", "--data-dir", str(place), "--ready-fd", str(writer)],
        pass_fds=[writer],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    os.close(writer)
    try:
        with os.fdopen(reader) as ready:
            port = int(ready.read())
        socket.create_connection(("127.0.0.1", port), timeout=STATE).close()
    finally:
        process.kill()
        process.wait()


def test_the_socket_of_the_parent_is_served(place):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        reader, writer = os.pipe()
        process = subprocess.Popen(
            [
                *COMMAND,
                "--auth=no",
                "--socket-fd",
                str(bound.fileno()),
                "--data-dir",
                str(place),
                "--ready-fd",
                str(writer),
            ],
            pass_fds=[writer, bound.fileno()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        os.close(writer)
    try:
        with os.fdopen(reader) as ready:
            assert int(ready.read()) == port
        socket.create_connection(("127.0.0.1", port), timeout=STATE).close()
    finally:
        process.kill()
        process.wait()


def test_a_state_that_cannot_be_saved_ends_it(place):
    """A promotion promises an epoch; if that cannot be kept, nobody is told that it was."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        process = subprocess.Popen(
            [
                *COMMAND,
                "--port",
                str(port),
                "--data-dir",
                str(place),
                "--ha-cluster",
                "--ha-brokers-url",
                f"127.0.0.1:{port}",
            ],
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        try:
            assert any("listening on" in line for line in process.stderr)
            wait_for((place / "state.copy").exists, bool, what="a first state that was saved")
            (place / "state").unlink()
            (place / "state").mkdir()
            # It may have something to save, and so end, before it is asked.
            with socket.socket(socket.AF_UNIX) as admin, suppress(ConnectionError):
                admin.settimeout(STATE)
                admin.connect(str(place / "admin.sock"))
                admin.sendall(b'{"id": 1, "method": "promote", "params": {}}\n')
                assert b"result" not in admin.recv(1000)
            _, log = process.communicate(timeout=STATE)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 74 and "the state cannot be saved" in log


def test_a_member_of_a_cluster_that_cannot_save_its_state_does_not_start(place):
    (place / "state.new").mkdir()
    code, _, log = run(
        "--port", "0", "--data-dir", place, "--ha-cluster", "--ha-brokers-url", "127.0.0.1:1"
    )
    assert code == 74 and "the state cannot be saved" in log


def test_nobody_loads_the_arithmetic_of_passwords_or_a_parser_before_there_is_one():
    code = """
import sys
import qpidha.client.blocking, qpidha.runtime.daemon
from qpidha.amqp.peer.sasl import Users
before = "scramp" in sys.modules or "lark" in sys.modules
Users.parse("")
sys.exit(f"{before} {'scramp' in sys.modules}")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == "False True"


def test_first_use_m2_a_reader_of_the_help_that_has_enough_is_no_error():
    with subprocess.Popen(
        [*COMMAND, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_it_serves_with_standard_streams_that_are_closed(place):
    options = shlex.join(["--port", "0", "--data-dir", str(place), "--log-to-file", f"{place}/log"])
    command = f"exec {shlex.join(COMMAND)} {options} --ready-fd 9 <&- >&- 2>&- 9>{place}/ready"
    (place / "ready").touch()
    process = subprocess.Popen(["bash", "-c", command], env=ENVIRONMENT)
    try:
        wait_for((place / "ready").read_text, bool, what="a daemon that serves")
        port = int((place / "ready").read_text())
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(b"AMQP\x00\x01\x00\x00")
            assert client.recv(4) == b"AMQP"
    finally:
        process.terminate()
    assert process.wait(60) == 0 and f"listening on port {port}" in (place / "log").read_text()


def test_output_that_cannot_be_written_is_told():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "--print-config"], stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT
        )
    assert done.returncode == 74 and b"no space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_first_use_m25_help_names_every_exit_code_of_the_daemon():
    text = run("--help")[1]
    codes = (OK, NO, DATA_ERROR, UNAVAILABLE, SOFTWARE, CANNOT_CREATE, IO_ERROR, NO_PERMISSION)
    for code in (*codes, CONFIG):
        assert f"\n  {code:<3} " in text


def test_first_use_m23_the_log_begins_with_version_and_settings_without_secrets(place):
    options = ("--auth=no", "--ha-username=ha", "--ha-password", "hidden", "--max-queues", "7")
    with Running("--name", "b1", *options) as daemon:
        _, log = daemon.end(signal.SIGTERM)
    first = log.splitlines()[0]
    assert f"qpidha {VERSION} starts" in first and "name=b1" in first and "max-queues=7" in first
    assert "hidden" not in log


@pytest.mark.parametrize("options", [["--admin-socket", "/tmp/" + "x" * 120], ["--port", "TAKEN"]])
def test_first_use_m27_a_start_that_fails_leaves_no_identity_behind(place, options):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = [port if word == "TAKEN" else word for word in options]
        deep = place / "a" / "b"
        assert run("--port", "0", *words, "--data-dir", deep)[0] in (69, 78)
        assert os.listdir(place) == []
        (place / "systemId").write_text("11111111-1111-1111-1111-111111111111\n")
        assert run("--port", "0", *words, "--data-dir", place)[0] in (69, 78)
        assert "systemId" in os.listdir(place)
