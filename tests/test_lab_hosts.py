"""What the hosts of the lab are given: settings that a broker takes, without and with credentials,
and clients that fit.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from qpidha.model.settings import Settings
from tests.lab.hosts import CLIENTS, CLUSTER, NAMES, PORT, VIP, credentials, make_credentials
from tests.lab.lab import Lab
from tests.lab.traffic import address, login
from tests.lab.verify import main, run_command

SCRIPT = Path(__file__).parent / "lab" / "provision" / "host.sh"


def settings_of(name: str, root: Path) -> Settings:
    """Have a host's configuration written below another root, and read it."""
    text = SCRIPT.read_text()
    for folder in ("etc", "var", "run"):
        text = text.replace(f"/{folder}/", f"{root}/{folder}/")
    uname = root / "bin" / "uname"
    uname.parent.mkdir()
    uname.write_text(f"#!/bin/sh\necho {name}\n")
    uname.chmod(0o755)
    env = {**os.environ, "PATH": f"{uname.parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-s", *NAMES], input=text, text=True, env=env, check=True)
    settings, _ = Settings.load((root / "etc/qpidha/qpidha.conf").read_text(), {}, [])
    return settings


@pytest.mark.parametrize("secure", [False, True])
def test_hosts_and_clients_are_configured_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    lab, root = tmp_path / "lab", tmp_path / "root"
    monkeypatch.setenv("QPIDHA_LAB", str(lab))
    (lab / "rack").mkdir(parents=True)
    (root / "run").mkdir(parents=True)
    (root / "run" / "rack").symlink_to(lab / "rack")
    if secure:
        make_credentials(NAMES)
    settings = settings_of("ha2", root)
    assert [each.host_port for each in settings.ha_brokers_url] == [
        f"{CLUSTER.address(name)}:{PORT}" for name in NAMES
    ]
    assert [each.host_port for each in settings.ha_public_url] == [f"{VIP}:{PORT}"]
    urls = [*settings.ha_brokers_url, *settings.ha_public_url]
    assert {each.encrypted for each in urls} == {secure}
    assert settings.auth == settings.require_encryption == secure
    assert (settings.ssl_port if secure else settings.port) == PORT
    assert address() == f"{'amqps' if secure else 'amqp'}://{VIP}:{PORT}"
    assert bool(login()) == secure
    line = run_command(cast("Lab", SimpleNamespace(names=NAMES)), "2", "run")
    assert ("--password-file" in line) == secure and address().partition("://")[0] in str(line)
    if secure:
        assert settings.ssl_cert == "/run/rack/credentials/ha2.pem"
        for ip in (VIP, CLIENTS.address("ha2"), CLUSTER.address("ha2")):
            files = ("-CAfile", credentials().trusted, credentials().certificate("ha2"))
            subprocess.run(["openssl", "verify", "-verify_ip", ip, *files], check=True)


def test_a_run_does_its_faults_to_the_host_at_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, ...]] = []
    lab = SimpleNamespace(
        names=NAMES,
        off=lambda name: done.append(("off", name)),
        on=lambda name: done.append(("on", name)),
        cut=lambda name: done.append(("cut", name)),
        heal=lambda: done.append(("heal",)),
    )
    monkeypatch.setattr(Lab, "running", staticmethod(lambda: lab))
    at = f"{CLIENTS.address('ha2')}:{PORT}"
    for kind in ("off", "cut"):
        for step in ("start", "stop"):
            main([step, kind, at])
    assert done == [("off", "ha2"), ("on", "ha2"), ("cut", "ha2"), ("heal",)]
