"""What the doctor finds on a machine: real limits, disks, ports and clocks, and real brokers."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qpidha.cli import host_checks
from qpidha.cli.host_checks import Finding, Looked, check_clock, check_host
from qpidha.client.command.ports import holders
from qpidha.model.settings import Settings
from qpidha.runtime.clock import wall_error_us
from qpidha.runtime.memory import available
from tests.bench.processes import free_ports
from tests.cli.conftest import FakeBroker, Said
from tests.runtime.daemons import COMMAND, ENVIRONMENT
from tests.system.cluster import wait_for

Run = Callable[..., Said]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody's real cluster is asked."""
    monkeypatch.setenv("QPIDHA_DIR", str(tmp_path))


def found(pid: int = 0, **options: Any) -> dict[str, Finding]:
    """Check this machine for a broker with these settings."""
    looked = Looked(Settings(interface=("127.0.0.1",), **{"port": 0, **options}), pid)
    return {each.check: each for each in check_host(looked)}


def test_a_machine_with_all_that_is_needed(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    checks = found(data_dir=str(tmp_path), port=port)
    assert [*checks][:4] == ["open files", "locked memory", "memory", "swap"]
    assert [*checks][4:] == ["data-dir", "disk space", "disk sync", f"port {port}"]
    bad = {name for name, one in checks.items() if one.level == host_checks.ERROR}
    assert bad == set() and checks[f"port {port}"].text == "free"
    assert f"{tmp_path} on " in checks["data-dir"].text
    assert " ms (worst of 20: " in checks["disk sync"].text and os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("clients", "level", "told"),
    [(500, "ok", "enough for 500 clients"), (1_000_000, "warning", "too few for max-connections")],
)
def test_open_files_are_compared_with_max_connections(clients: int, level: str, told: str) -> None:
    one = found(max_connections=clients)["open files"]
    assert one.level == level and told in one.text and bool(one.hint) == (level != "ok")


@pytest.mark.parametrize(
    ("options", "check", "level", "told"),
    [
        ({"memory_limit": "0"}, "memory", "warning", "there is none"),
        ({"memory_limit": str(1 << 50)}, "memory", "error", "memory-limit is 1,073,741,824 MiB"),
        ({}, "data-dir", "warning", "nothing outlives a restart"),
        ({"data_dir": "/proc"}, "data-dir", "ok", "/proc on proc"),
        ({"data_dir": "/proc"}, "disk sync", "warning", "not measured in /proc: "),
        ({"data_dir": "/etc/hostname/data"}, "data-dir", "error", "is no directory"),
        ({"disk_free_limit": 1 << 60}, "disk space", "error", "no message is accepted"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_do(
    options: dict[str, Any], check: str, level: str, told: str, tmp_path: Path
) -> None:
    if check == "disk space":
        options = {"data_dir": str(tmp_path), **options}
    one = found(**options)[check]
    assert one.level == level and told in one.text
    assert bool(one.hint) == (level != "ok")


def test_memory_is_that_of_the_machine() -> None:
    whole = available() / (1 << 20)
    assert f"of {whole:,.0f} MiB that there are" in found(memory_limit="1%")["memory"].text


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="there is no file system in memory")
def test_a_data_dir_in_memory_is_told() -> None:
    one = found(data_dir="/dev/shm")["data-dir"]
    assert one.level == "warning" and "/dev/shm on tmpfs: a reboot empties it" in one.text


def test_a_data_dir_that_is_to_be_made(tmp_path: Path) -> None:
    checks = found(data_dir=str(tmp_path / "a" / "b"))
    assert "b (to be made) on " in checks["data-dir"].text
    assert checks["disk sync"].text == f"not measured: {tmp_path}/a/b is to be made"
    assert os.listdir(tmp_path) == []


def test_a_slow_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda file: time.sleep(0.021))
    one = found(data_dir=str(tmp_path))["disk sync"]
    assert one.level == "warning" and "each commit waits so long" in one.text


def test_a_taken_port_names_who_has_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        one = found(port=port)[f"port {port}"]
        assert holders(port).keys() == {os.getpid()}
    assert one.level == "error" and f"(pid {os.getpid()})" in one.text
    assert one.hint == "end it, or set another port"


def test_ports_of_tls_and_of_the_console_are_looked_at_when_they_are_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        assert f"http-port {taken}" in found(http_port=taken)
        assert found(http_port=taken)[f"http-port {taken}"].level == "error"
        assert f"ssl-port {taken}" not in found(ssl_port=taken)
        assert found(ssl_port=taken, ssl_cert="x")[f"ssl-port {taken}"].level == "error"


def test_the_clock_is_as_the_kernel_says() -> None:
    error, one = wall_error_us(0), check_clock()
    assert one.level == ("ok" if 0 < error <= host_checks.FAR else "warning")


def test_swapped_out_parts_of_the_broker_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = {"SwapTotal": 8 << 20, "SwapFree": 2 << 20, "VmSwap": 3 << 20}
    real = host_checks._kibibytes
    monkeypatch.setattr(host_checks, "_kibibytes", lambda path, name: kernel.get(name, 0))
    assert found()["swap"] == Finding("swap", "ok", "6 MiB of 8 MiB used")
    one = found(pid=os.getpid())["swap"]
    assert one.level == "warning" and one.text.startswith("3 MiB of the broker") and one.hint
    assert real("/proc/meminfo", "MemTotal") > 0 == real("/proc/meminfo", "Nothing")


# -- brokers that run -----------------------------------------------------------------------------


def doctor(qpid_ha: Run, *words: str) -> tuple[int, dict[tuple[str, str], dict[str, str]]]:
    said = qpid_ha("version", "--doctor", "-o", "json", *words)
    assert said.err == ""
    rows = json.loads(said.out)["checks"]
    return said.code, {(row["broker"], row["check"]): row for row in rows}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A broker: its process and its port."""
    (port,) = free_ports(1)
    words = ["--name", "b1", "--port", str(port), "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen([*COMMAND, *words], env=ENVIRONMENT) as process:
        try:
            wait_for(lambda: holders(port))
            yield process.pid, port
        finally:
            process.kill()


def test_a_running_broker_is_looked_at_also_when_it_hangs(
    qpid_ha: Run, running: tuple[int, int], tmp_path: Path
) -> None:
    pid, port = running
    address = f"127.0.0.1:{port}"
    for words in (("-b", address), ("-b", str(tmp_path / "data" / "admin.sock"))):
        code, checks = doctor(qpid_ha, *words)
        assert code == 0 and checks["b1", "broker"]["text"].startswith("standalone, version")
        assert f"(pid {pid})" in checks["b1", f"port {port}"]["text"]
        assert " open, enough for 500" in checks["b1", "open files"]["text"]
        assert f"{tmp_path}/data on " in checks["b1", "data-dir"]["text"]
        assert "the broker has " in checks["b1", "memory"]["text"]
        assert " the clock here, give or take " in checks["b1", "skew"]["text"]
        assert checks["b1", "skew"]["level"] == "ok"
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (450, 450))
    code, checks = doctor(qpid_ha, "-b", address)
    assert code == 0 and checks["b1", "open files"]["level"] == "warning"

    os.kill(pid, signal.SIGSTOP)
    code, checks = doctor(qpid_ha, "-b", address, "--timeout", "0.5")
    os.kill(pid, signal.SIGCONT)
    assert code == 1 and checks[address, "broker"]["level"] == "error"
    assert checks[address, "broker"]["hint"] and checks[address, "disk space"]["level"] == "ok"
    assert (address, "skew") not in checks
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not holders(port))
    code, checks = doctor(qpid_ha, "-b", address)
    assert code == 1 and "disk space" not in {check for broker, check in checks if broker}


def test_a_configuration_is_looked_at_before_the_first_start(qpid_ha: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        config = tmp_path / "qpidha.conf"
        config.write_text(f"interface=127.0.0.1\nport={port}\ndata-dir={tmp_path}/data\n")
        server.listen(1)
        said = qpid_ha("version", "--doctor", "--config", str(config), "--timeout", "0.5")
    lines = [line.split(maxsplit=3) for line in said.out.partition("LEVEL")[2].splitlines()[1:]]
    by_check = {" ".join(words[2:])[:9]: words[0] for words in lines}
    assert said.code == 1 and by_check[f"port {port}"[:9]] == "error"
    assert "end it, or set another port" in said.out
    config.write_text("no-such-option=1\n")
    code, checks = doctor(qpid_ha, "--config", str(config))
    assert code == 1 and "no-such-option" in checks["", "configuration"]["text"]


@pytest.mark.parametrize(("ahead", "level"), [(0.0, "ok"), (30.0, "warning"), (-30.0, "warning")])
def test_a_clock_that_is_far_from_ours_is_told(
    qpid_ha: Run, broker: FakeBroker, ahead: float, level: str
) -> None:
    class Told(dict[str, Any]):
        """Answers, of which the status has the time of when it is asked."""

        def get(self, method: str, default: Any = None) -> Any:
            wall = time.time_ns() + int(ahead * 1e9)
            return {**self[method], "wall_ns": wall} if method == "status" else default

    broker.answers = Told(broker.answers)
    _, checks = doctor(qpid_ha, "-b", broker.socket)
    row = checks["b1", "skew"]
    assert row["level"] == level and ("ahead of" in row["text"] or "behind" in row["text"])
    if ahead:
        told, bound = re.findall(r"([\d,.]+)(?: ms|$)", row["text"])
        missed = abs(float(told.replace(",", "")) - 1000 * abs(ahead))
        assert missed <= float(bound.replace(",", "")) + 0.2 and row["hint"]  # Both are rounded.
        assert ("ahead of" in row["text"]) == (ahead > 0)


def test_a_broker_of_another_version_is_told(qpid_ha: Run, broker: FakeBroker) -> None:
    broker.answers["status"]["version"] = "0.0.9"
    _, checks = doctor(qpid_ha, "-b", broker.socket)
    assert checks["b1", "broker"]["level"] == "warning"
    assert "version 0.0.9; installed here is" in checks["b1", "broker"]["text"]
    skew = checks["b1", "skew"]
    assert skew["level"] == "warning" and "version 0.0.9 does not tell it" in skew["text"]


def test_how_proton_was_built_is_told(qpid_ha: Run) -> None:
    _, checks = doctor(qpid_ha)
    row = checks["", "proton"]
    assert row["level"] == "ok" and "0.40.0, built with TLS" in row["text"]
