"""A broker's configuration file: whoever reads it, from wherever, finds the same admin socket as
the daemon.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from qpidha.client.admin import LinkBroken
from qpidha.client.command.arguments import Options
from qpidha.client.command.target import resolve
from qpidha.manager import broker_file
from qpidha.manager.broker_file import read_broker_file, usual_file
from qpidha.model.paths import admin_socket
from tests.system.cluster import Admin, wait_for

ROOT = Path(__file__).parents[2]
AGENT_PYTHON = Path("/usr/bin/python3")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name is short, for the limit on socket paths."""
    path = Path(tempfile.mkdtemp(prefix="qpidha-file-"))
    yield path
    shutil.rmtree(path)


def answers(path: Path) -> bool:
    """Whether a broker answers on an admin socket."""
    try:
        with Admin(path) as admin:
            return bool(admin.call("ping"))
    except LinkBroken:
        return False


@pytest.mark.parametrize(
    ("line", "socket"),
    [
        ("data-dir=data", "data/admin.sock"),
        ("data-dir=data\nadmin-socket=run.sock", "run.sock"),
        ("no-data-dir=yes\nadmin-socket=run.sock", "run.sock"),
    ],
)
def test_a_relative_path_in_the_file_is_beside_it_for_everybody(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, socket: str
) -> None:
    config = folder / "qpidha.conf"
    config.write_text(
        f"port=0\ninterface=127.0.0.1\nha-cluster=yes\nha-brokers-url=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3\n{line}\n"
    )
    monkeypatch.chdir(
        tmp_path
    )  # the caller's working directory, in which nothing is to be looked for or made
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "qpidha.runtime.daemon", "--config", str(config)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as daemon:
        try:
            there = folder / socket
            wait_for(lambda: answers(there), what=f"{there}")
            assert read_broker_file(str(config)).admin_socket == str(there)
            assert resolve(Options(config=str(config)))[0].socket == str(there)
            assert list(tmp_path.iterdir()) == []
            if AGENT_PYTHON.exists():
                found = {
                    "OCF_RESKEY_config": str(config),
                    "OCF_RESKEY_rundir": str(folder / "run"),
                    "OCF_RESKEY_CRM_meta_interval": "0",
                }
                probe = subprocess.run(
                    [ROOT / "ocf" / "broker", "monitor"],
                    env={**environment, **found},
                    capture_output=True,
                    check=False,
                )
                assert probe.returncode == 0, probe.stderr
            monkeypatch.chdir(folder)
            assert resolve(Options(config="qpidha.conf"))[0].socket == socket
        finally:
            daemon.terminate()


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("port=5000", 5000),
        ("port=5000\nssl-port=5001\nssl-cert=c.pem\nssl-key=k.pem", 5000),
        ("port=5000\nssl-port=5001\nssl-cert=c.pem\nssl-key=k.pem\nrequire-encryption=yes", 5001),
    ],
)
def test_clients_connect_to_the_port_that_is_open(tmp_path: Path, text: str, port: int) -> None:
    config = tmp_path / "qpidha.conf"
    config.write_text(f"{text}\ninterface=127.0.0.1\n")
    found = read_broker_file(str(config))
    assert not found.problem and found.port == port


def test_without_a_data_dir_the_admin_socket_is_where_a_daemon_of_this_user_has_it(
    tmp_path: Path,
) -> None:
    config = tmp_path / "qpidha.conf"
    config.write_text("port=5673\ninterface=127.0.0.1\n")
    usual = admin_socket(os.environ, os.getuid(), 5673)
    assert read_broker_file(str(config)).admin_socket == usual
    assert read_broker_file(str(config), "/given.sock").admin_socket == "/given.sock"


def test_qpidds_own_file_counts_where_there_is_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = tmp_path / "qpidha.conf", tmp_path / "qpidd.conf"
    monkeypatch.setattr(broker_file, "CONFIGURATION", str(ours))
    monkeypatch.setattr(broker_file, "QPIDD_CONFIGURATION", str(theirs))
    assert usual_file() == str(ours)
    theirs.touch()
    assert usual_file() == str(theirs)
    ours.touch()
    assert usual_file() == str(ours)
