"""The limit of open files: what does not fit into it is told before anybody is served."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from pathlib import Path

import pytest

from qpidha.client.admin import AdminSocket
from qpidha.client.message import Message
from qpidha.model.settings import Settings
from qpidha.runtime.descriptors import OWN, fit
from qpidha.runtime.exits import CannotStart
from qpidha.runtime.network import ADMIN_CONNECTIONS, RESERVED_CONNECTIONS
from tests.hostile.frames import BEGIN, Peer, handshake
from tests.patience import STATE
from tests.runtime import daemons
from tests.system.clients import CREATE, connect

BESIDE = OWN + RESERVED_CONNECTIONS + ADMIN_CONNECTIONS + 100


def test_what_fits_stays() -> None:
    settings = Settings(max_connections=500)
    assert fit(settings, BESIDE + 500) == (settings, [])


def test_faults_b4_what_does_not_fit_is_lowered_and_told() -> None:
    fitted, (warning,) = fit(Settings(max_connections=5000), 1024)
    assert fitted.max_connections == 1024 - BESIDE
    assert "not 5000" in warning and "LimitNOFILE" in warning


def test_faults_b4_a_limit_that_is_too_low_for_anything_is_refused() -> None:
    with pytest.raises(CannotStart, match="80 open files"):
        fit(Settings(), 80)
    assert fit(Settings(max_connections=1), BESIDE + 1)[1] == []


@pytest.fixture
def place(monkeypatch):
    """A directory for a daemon that may have 270 open files."""
    few = ["sh", "-c", 'ulimit -n 270; exec "$@"', "sh", *daemons.COMMAND]
    monkeypatch.setattr(daemons, "COMMAND", few)
    with tempfile.TemporaryDirectory(prefix="qpidha-") as directory:
        yield Path(directory)


def test_faults_b4_with_few_descriptors_a_full_broker_is_managed_and_keeps_messages(place):
    """Silent ones, and as many clients as are let in; then a file of the log for each message."""
    options = ("--data-dir", place, "--journal-segment-size", "4096", "--max-unauthenticated", "10")
    with daemons.Running(*options) as daemon:
        address = f"127.0.0.1:{daemon.port}"
        peers = [Peer(address) for _ in range(200)]
        inside = []
        while len(inside) < 100 and not (inside and inside[-1].error()):
            inside.append(Peer(address))
            inside[-1].send(handshake())
            inside[-1].wait_for(BEGIN)  # An error comes with it.
        assert len(inside) == 36 + 1
        with contextlib.closing(AdminSocket(str(place / "admin.sock"), STATE)) as admin:
            assert admin.call("status", {})["connections"] >= 36
        inside[0].close()
        with connect(address) as client:
            sender = client.sender("q", capabilities=CREATE, node_properties={"durable": True})
            for _ in range(50):
                sender.send(Message("x" * 4096, durable=True))
        code, log = daemon.end(signal.SIGTERM)
        for peer in (*peers, *inside):
            peer.close()
    assert code == 0 and "max-connections is 36 and not 500" in log and "critical" not in log
