"""`qpid-ha report`: everything that helps is in the bundle, and no secret."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qpidha.cli.main import main
from qpidha.client.blocking import Client
from qpidha.client.errors import LoginError
from tests.runtime.daemons import ENVIRONMENT, Running
from tests.system.cluster import Admin, wait_for
from tests.system.credentials import Authority, users_file

PLANTED = [f"planted-{number:02d}-hunter" for number in range(17)]
"""Secrets, each in another place."""


class Planted:
    """A broker full of secrets."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.log = place / "log"
        users = users_file(place / "users", {"ann": PLANTED[0]})
        self.verifiers = users.read_text().partition("$")[2].split("$")[1:]
        (place / "rules").write_text(f"# password: {PLANTED[1]}\nacl allow all all\n")
        authority = Authority(place)
        certificate, key = authority.issue("own")
        (place / "key-password").write_text(f"{PLANTED[2]}\n")
        locked = ["-aes256", "-passout", f"pass:{PLANTED[2]}"]
        command = ["openssl", "pkey", "-in", key, "-out", place / "locked.key", *locked]
        subprocess.run(command, check=True, capture_output=True)
        self.keys = [
            line
            for file in (key, place / "locked.key", authority.key)
            for line in file.read_text().splitlines()
            if not line.startswith("-----")
        ]
        (place / "conf").write_text(
            "users-file=users\nacl-file=rules\nlog-to-file=log\njournal-events=state\n"
            f"ssl-cert={certificate.name}\nssl-key=locked.key\nssl-port=0\n"
            f"ssl-key-password-file=key-password\nha-username=ann\nha-password={PLANTED[3]}\n"
            f"ha-brokers-url=amqp:ann/{PLANTED[4]}@127.0.0.1:1\n"
        )
        env = {**ENVIRONMENT, "DEPLOY_TOKEN": PLANTED[6], "QPID_HA_PASSWORD": PLANTED[7]}
        more = ("--data-dir", place / "data", "--ha-password", PLANTED[5])
        self.running = Running("--config", place / "conf", *more, env=env)
        self.socket = str(place / "data" / "admin.sock")
        (place / "data" / "stray.key").write_text(key.read_text())
        for name in (f"amqp://eve:{PLANTED[8]}@host", "eve"):
            with pytest.raises(LoginError):
                Client(f"127.0.0.1:{self.running.port}", user=name, password=PLANTED[9]).open()
        wait_for(self.log.read_text, lambda text: "QHA4101" in text, what="the refused login")
        with Admin(self.socket) as admin:
            url = f"https://u:{PLANTED[12]}@host"
            admin.call("declare_queue", name="q", arguments={"note": url, "token": PLANTED[13]})
            admin.call("set_policy", name="p", pattern=f"^{url}", definition={"ttl": 1})
        events = place / "data" / "events"
        wait_for(
            lambda: any('"queue"' in path.read_text() for path in events.glob("journal-*")),
            what="the queue in the event log",
        )
        with self.log.open("a") as log:
            log.write(f"a line with password={PLANTED[10]}\n{key.read_text()}\n")
            log.write(f"somebody called qpid-ha --password {PLANTED[14]} -b u/{PLANTED[15]}@h\n")
            log.write(f"Authorization: Bearer {PLANTED[16]}\n")


@pytest.fixture(scope="module")
def planted() -> Iterator[Planted]:
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        found = Planted(Path(name))
        with found.running:
            yield found


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody's real cluster is asked; and who asks has a secret, too."""
    monkeypatch.setenv("QPIDHA_DIR", str(tmp_path))
    monkeypatch.setenv("QPIDHA_PASSWORD", PLANTED[11])


def contents(path: Path) -> dict[str, str]:
    """Read a bundle: by name within its folder."""
    with tarfile.open(path) as archive:
        found = {}
        for member in archive.getmembers():
            assert member.isfile() and member.mode == 0o600
            folder, _, name = member.name.partition("/")
            assert folder.startswith("qpidha-report-") and ".." not in name
            content = archive.extractfile(member)
            assert content is not None
            found[name] = content.read().decode()
    return found


def report(path: Path, *words: str) -> dict[str, str]:
    assert main(["report", "-f", str(path), *words]) == 0
    return contents(path)


def no_secret(planted: Planted, files: dict[str, str]) -> None:
    for name, text in files.items():
        for secret in (*PLANTED, *planted.verifiers, *planted.keys):
            assert secret not in text, f"{secret} in {name}"
        assert "PRIVATE KEY" not in text, name


def test_a_bundle_has_what_helps_and_no_secret(
    planted: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.tar.gz"
    files = report(path, "-b", planted.socket)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and os.listdir(tmp_path) == ["out.tar.gz"]
    assert capsys.readouterr().out == f"{path}\n"
    no_secret(planted, files)
    checks = json.loads(files["doctor.json"])["checks"]
    told = {row["check"]: row["text"] for row in checks if row["broker"] != "127.0.0.1:1"}
    assert " version " in told["broker"] and " on " in told["data-dir"]
    own = {name.partition("/")[2]: text for name, text in files.items() if "/" in name}
    shown = json.loads(own["configuration.json"])
    assert shown["options"]["ha-password"] == {"value": "(secret)", "origin": "command line"}
    assert shown["options"]["log-to-file"]["origin"].startswith("line 3 of")
    assert shown["options"]["port"]["value"] == "0"
    assert shown["pid"] == planted.running.process.pid and shown["command_line"]
    assert json.loads(own["status.json"])["state"] == "standalone"
    for method in (
        "query",
        "list_queues",
        "list_policies",
        "statistics",
        "list_connections",
        "acl",
    ):
        json.loads(own[f"{method}.json"])
    for name in ("list_queues", "list_policies"):
        assert "https://u:(secret)@host" in own[f"{name}.json"]
    assert "QHA1001" in own["log.txt"] and "refused the login of 'eve'" in own["log.txt"]
    assert '"k":' in own["events.jsonl"] and "journal" in own["data-dir.txt"]
    assert "Max open files" in own["process.txt"] and "== thread" in own["process.txt"]
    versions = json.loads(files["versions.json"])
    assert all(versions[name] for name in ("qpidha", "proton", "python", "openssl", "kernel"))
    (row,) = json.loads(files["status.json"])["brokers"]
    assert (
        row["address"] == "127.0.0.1:1" and "error" in row and "127.0.0.1:1" in files["README.txt"]
    )
    assert json.loads(files["host.json"])["limits_of_this_user"]["nofile"]


def test_a_broker_that_hangs_is_described_by_what_is_on_the_machine(
    planted: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = planted.running.process
    process.send_signal(signal.SIGSTOP)
    try:
        files = report(tmp_path / "o.tar.gz", "-b", planted.socket, "--timeout", "500ms")
    finally:
        process.send_signal(signal.SIGCONT)
    no_secret(planted, files)
    names = {name.partition("/")[2] for name in files if "/" in name}
    assert names == {"configuration.json", "process.txt", "log.txt", "events.jsonl", "data-dir.txt"}
    assert "did not answer" in files["README.txt"] and "did not answer" in capsys.readouterr().err
    assert "T (stopped)" in next(text for name, text in files.items() if "process.txt" in name)


def test_a_broker_that_is_gone_is_described_by_its_configuration(
    planted: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "conf"
    text = (planted.place / "conf").read_text()
    for name in ("users", "rules", "log", "own.pem", "locked.key", "key-password"):
        text = text.replace(f"={name}\n", f"={planted.place / name}\n")
    config.write_text(f"{text}port=1\ndata-dir={planted.place / 'data'}\nadmin-socket=gone\n")
    path = tmp_path / "out.tar.gz"
    assert main(["report", "-f", str(path), "--config", str(config), "-o", "json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    files = contents(path)
    assert told["schema_version"] == 1 and told["files"] == list(files) and told["missing"]
    no_secret(planted, files)
    names = {name.partition("/")[2] for name in files if "/" in name}
    assert {"configuration.json", "log.txt", "events.jsonl", "data-dir.txt"} == names


def test_a_configuration_with_a_mistake_gives_no_secret_away(
    planted: Planted, tmp_path: Path
) -> None:
    config = tmp_path / "conf"
    config.write_text(
        f"ha-password={PLANTED[3]}\nha-brokers-url=amqp:ann/{PLANTED[4]}@b:no\nport={PLANTED[3]}\n"
    )
    files = report(tmp_path / "out.tar.gz", "--config", str(config), "-b", "127.0.0.1:1")
    no_secret(planted, files)
    assert "its configuration: " in files["README.txt"]


def test_a_place_that_cannot_be_written_is_73(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", "-f", str(tmp_path / "no" / "o.tar.gz"), "-b", str(tmp_path / "gone.sock")]
    assert main(words) == 73
    captured = capsys.readouterr()
    assert captured.out == "" and "cannot write" in captured.err
