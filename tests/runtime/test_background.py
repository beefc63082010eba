"""`qpidhad` as Qpid's scripts call it: in the background, with a pid file by port, asked whether it
runs, and ended.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from qpidha.runtime.pid_file import PidFile, running
from tests.patience import STATE
from tests.runtime.daemons import COMMAND, ENVIRONMENT, Running, run
from tests.system.cluster import wait_for
from tests.system.net import can_make_namespaces


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


class Called:
    """The daemon as scripts call it: with one port, which nobody else can take, and one place."""

    def __init__(self, place: Path) -> None:
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.place = place
        self.options = ["--port", str(self.port), "--data-dir", str(place / "data")]
        self.serving = ["--socket-fd", str(self.socket.fileno()), "--auth", "no"]
        self.file = place / "data" / f"qpidd.{self.port}.pid"
        self.log = place / "log"

    def start(self, *options: object, program: Sequence[object] = COMMAND) -> tuple[int, str, str]:
        log = ("--log-to-file", self.log)
        return self.ask("-d", *self.serving, *log, *options, program=program)

    def ask(self, *options: object, program: Sequence[object] = COMMAND) -> tuple[int, str, str]:
        done = subprocess.run(
            [*map(str, (*program, *self.options, *options))],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            pass_fds=[self.socket.fileno()],
            timeout=STATE,
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def called(place: Path) -> Iterator[Called]:
    one = Called(place)
    yield one
    one.ask("-k")
    one.socket.close()


def test_qpid_11_a_broker_in_the_background_is_told_of_and_ended(called: Called) -> None:
    code, out, log = called.ask("-c")
    assert (code, out) == (1, "") and "no broker of this configuration runs" in log
    assert called.start("--wait", "60") == (0, "", "")
    socket.create_connection(("127.0.0.1", called.port), timeout=STATE).close()
    code, out, _ = called.ask("-c")
    pid = int(called.file.read_text())
    assert (code, out) == (0, f"{pid}\n")
    assert os.getsid(pid) != os.getsid(0) and Path(f"/proc/{pid}/stat").read_text().split()[3] != (
        str(os.getpid())
    )
    assert {os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)} == {"/dev/null"}
    assert called.ask("--quit") == (0, "", "")
    assert gone(pid) and not called.file.exists()
    assert "listening on port" in called.log.read_text() and "stopping" in called.log.read_text()


def test_qpid_11_quit_never_starts_a_broker(called: Called) -> None:
    for words in (["--quit"], ["-q"], ["--quit=yes"], ["-k"], ["-cq"]):
        code, out, log = called.ask(*words)
        assert (code, out) == (1, "") and "no broker" in log
    assert not called.file.parent.exists()


def test_qpid_11_check_of_the_configuration_tells_whether_its_broker_runs(called: Called) -> None:
    code, out, _ = called.ask("--check")
    assert code == 0 and "no broker of it runs\nthe configuration is good\n" in out
    called.start()
    code, out, _ = called.ask("--check")
    assert code == 0 and f"a broker of it runs, process {called.file.read_text()}" in out


def test_qpid_11_by_the_name_qpidd_check_is_the_one_of_qpidd(called: Called) -> None:
    program = called.place / "qpidd"
    program.symlink_to(Path(sys.executable).with_name("qpidhad"))

    name = [program, "--interface", "127.0.0.1"]
    assert called.ask("--check", program=name)[0] == 1
    assert called.start(program=name)[0] == 0
    assert called.ask("--check", program=name) == (0, called.file.read_text(), "")
    assert called.ask("--quit", program=name)[0] == 0
    assert called.ask("--check", program=name)[0] == 1


def test_a_start_in_the_background_that_fails_says_why_to_its_caller(called: Called) -> None:
    called.socket.listen()
    called.serving = []
    code, out, log = called.start()
    assert (code, out) == (69, "") and f"port {called.port} is in use" in log and "next:" in log
    assert called.ask("-c")[0] == 1
    code, _, log = called.start("--users-file", "/missing")
    assert code == 78 and "/missing" in log


def test_a_start_that_takes_longer_than_wait_goes_on_and_is_told_so(called: Called) -> None:
    code, _, log = called.start("--wait", "0")
    assert code == 75 and "goes on starting" in log and "qpidhad -c" in log
    wait_for(called.file.exists, bool, what="the broker that was not waited for")
    pid = int(called.ask("-c")[1])
    code, out, _ = called.ask("--check", "--quit", "-c")
    assert (code, out) == (0, f"{pid}\n") and gone(pid)


def test_a_broker_that_does_not_end_in_time_is_killed_by_kill(called: Called) -> None:
    called.start()
    pid = int(called.file.read_text())
    os.kill(pid, signal.SIGSTOP)
    code, _, log = called.ask("--quit", "--wait", "0.1")
    assert code == 75 and f"process {pid} still runs" in log and "[QHA1009]" in log
    assert "qpidhad -k" in log
    assert called.ask("--kill")[0] == 0 and gone(pid)
    assert called.file.exists() and called.ask("-c")[0] == 1


def test_a_pid_file_that_was_left_is_nobodys(called: Called) -> None:
    called.file.parent.mkdir()
    called.file.write_text(f"{os.getpid()}\n")
    assert called.ask("-c")[0] == 1 and called.ask("-q")[0] == 1
    called.start()
    assert called.ask("-c")[1] == called.file.read_text() != f"{os.getpid()}\n"


def test_the_pid_file_is_where_pid_dir_says_and_has_the_real_port(place: Path) -> None:
    pids = place / "pids"
    with Running("--data-dir", place / "data", "--pid-dir", pids) as daemon:
        file = pids / f"qpidd.{daemon.port}.pid"
        assert file.read_text() == f"{daemon.process.pid}\n"
        assert run("-c", "--pid-dir", pids, "-p", daemon.port)[1] == file.read_text()
        assert run("-c", "--pid-dir", pids, "-p", daemon.port + 1)[0] == 1
        daemon.end(signal.SIGTERM)
    assert not file.exists()
    code, _, log = run("--port", "0", "--data-dir", place / "d", "--pid-dir", __file__)
    assert code == 73 and "pid file" in log and "next: give a directory" in log


def test_a_port_of_its_own_choice_is_printed_by_the_caller(place: Path) -> None:
    code, out, _ = run("-d", "--port", "0", "--data-dir", place / "d", "--log-to-file", place / "l")
    assert code == 0
    assert run("-q", "--port", out.strip(), "--data-dir", place / "d")[0] == 0


def test_the_daemon_keeps_nothing_that_its_caller_had_open(place: Path) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    line = [*COMMAND, "-d", "--port", "0", "--data-dir", "d", "--log-to-file", "log"]
    line += ["--close-fd", str(write), "--pid-dir", "pids"]
    done = subprocess.run(
        line, env=ENVIRONMENT, cwd=place, pass_fds=[write], stdout=subprocess.PIPE, timeout=STATE
    )
    os.close(write)
    with open(read, "rb") as heard:
        assert heard.read() == b"", "the pipe is open in the daemon"
    assert run("-q", "-p", done.stdout.decode().strip(), "--pid-dir", place / "pids")[0] == 0


def test_a_reload_in_the_background_finds_relative_paths_again(place: Path) -> None:
    (place / "conf").write_text("log-to-file=log\nport=0\npid-dir=pids\n")
    line = [*COMMAND, "--config", "conf", "-d", "--data-dir", "data"]
    done = subprocess.run(
        line, env=ENVIRONMENT, cwd=place, stdout=subprocess.PIPE, text=True, timeout=STATE
    )
    file = place / "pids" / f"qpidd.{done.stdout.strip()}.pid"
    os.kill(int(file.read_text()), signal.SIGHUP)
    read = (place / "log").read_text
    wait_for(read, lambda text: "were read again" in text, what="the log")
    os.kill(int(file.read_text()), signal.SIGTERM)
    wait_for(file.exists, lambda exists: not exists, what="the pid file")


def test_in_the_background_what_would_go_to_standard_error_goes_to_syslog(place: Path) -> None:
    code = (
        "import sys; from qpidha.runtime import log_sinks; log_sinks.SYSLOG = sys.argv[1]; "
        "from qpidha.runtime.daemon import main; sys.exit(main(sys.argv[2:]))"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog:
        syslog.bind(str(place / "log"))
        syslog.settimeout(STATE)
        line = [sys.executable, "-c", code, str(place / "log"), "--interface", "127.0.0.1", "-dp0"]
        line += [
            "--data-dir",
            str(place / "d"),
            "--syslog-name=qpidd",
            "--syslog-facility=LOG_LOCAL3",
        ]
        done = subprocess.run(line, capture_output=True, text=True, env=ENVIRONMENT, timeout=STATE)
        assert (done.returncode, done.stderr) == (0, "")
        (file,) = (place / "d").glob("qpidd.*.pid")
        pid = int(file.read_text())
        heard = syslog.recv(1 << 16).decode()
        assert heard.startswith(f"<{19 * 8 + 5}>") and f" qpidd[{pid}]: [Broker] notice" in heard
    os.kill(pid, signal.SIGTERM)
    wait_for(file.exists, lambda exists: not exists, what="the pid file")


def test_a_log_that_nobody_takes_is_told_of(place: Path) -> None:
    code, out, log = run("-d", "--port", "0", "--data-dir", place / "d")
    assert code == 0 and run("-q", "--port", out.strip(), "--data-dir", place / "d")[0] == 0
    assert ("nobody takes the log" in log) == (not os.path.exists("/dev/log"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--wait", "x"], "--wait=x: "),
        (["--wait"], "--wait needs seconds"),
        (["-w99999999999"], "out of range"),
        (["--quit=perhaps"], "neither yes nor no"),
        (["-dx"], "-dx is not an option"),
        (["--daemon=maybe"], "neither yes nor no"),
        (["-p"], "--port needs a value"),
        (["-px"], "port=x"),
    ],
)
def test_wrong_words_start_nothing(words: list[str], says: str) -> None:
    code, out, log = run(*words)
    assert code == 78 and says in log and "next:" in log and not out


def test_a_file_does_not_send_a_broker_into_the_background(place: Path) -> None:
    (place / "conf").write_text("daemon=yes\nquit=yes\nwait=5\n")
    with Running("--config", place / "conf", "--data-dir", place / "d") as daemon:
        _, log = daemon.end(signal.SIGTERM)
    assert len(re.findall(r"(daemon|quit|wait) \(line .*it is for the command line", log)) == 3


@pytest.mark.skipif(not can_make_namespaces(), reason="no namespaces may be made here")
def test_a_broker_of_another_container_is_not_taken_for_none(place: Path) -> None:
    """Its number means another process here: nobody must be ended for it."""
    with Running("--data-dir", place) as daemon:
        words = [*COMMAND, "--data-dir", str(place), "--port", str(daemon.port)]
        inside = ["unshare", "--pid", "--fork", *words]
        for word in ("-c", "-q", "-k"):
            done = subprocess.run(
                [*inside, word], capture_output=True, text=True, env=ENVIRONMENT, timeout=STATE
            )
            assert done.returncode == 69 and "not seen from here [QHA1009]" in done.stderr
        assert daemon.process.poll() is None and run(*words[3:], "-c")[0] == 0


def test_of_two_brokers_with_one_pid_file_the_second_does_not_start(place: Path) -> None:
    first = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import sys; from qpidha.runtime.pid_file import PidFile; "
            "PidFile(sys.argv[1], 1); print(flush=True); sys.stdin.read()",
            str(place),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert first.stdout is not None and first.stdout.readline()
    with pytest.raises(Exception, match=f"in use by process {first.pid}"):
        PidFile(str(place), 1)
    assert running(str(place / "qpidd.1.pid")) == first.pid
    first.communicate()
    assert running(str(place / "qpidd.1.pid")) == 0
    PidFile(str(place), 1).close()
