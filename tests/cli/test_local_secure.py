"""`qpid-ha local up --secure` with real brokers: the lines that it prints work as they stand, who
has no password stays outside, programs command nothing, and a failover and a restart keep it so.
"""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import Container

from qpidha.cli.main import main
from tests.cli.conftest import Said
from tests.system.cluster import wait_for

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("real-brokers")]
Run = Callable[..., Said]
COMMANDS = ("queue", "send", "receive")


@pytest.fixture(scope="module")
def secure() -> Iterator[Path]:
    """A running cluster of three; the last test kills its primary, and starts it again."""
    with tempfile.TemporaryDirectory(prefix="qpidha-") as path, pytest.MonkeyPatch.context() as env:
        env.setenv("QPIDHA_DIR", path)
        env.delenv("QPIDHA_DAEMON", raising=False)
        assert main(["local", "up", "--secure", "--base-port", "0", "-q"]) == 0
        yield Path(path)
        main(["local", "down", "-q"])


@pytest.fixture
def clients(secure: Path, qpid_ha: Run) -> dict[str, str]:
    """What clients have to know."""
    told: dict[str, str] = status(qpid_ha)["clients"]
    return told


def status(qpid_ha: Run) -> Any:
    return json.loads(qpid_ha("local", "status", "-o", "json").out)


def printed(said: Said) -> list[list[str]]:
    """The command lines that were printed, as a shell reads them."""
    lines = [line for line in said.out.splitlines() if "--password-file" in line]
    found = []
    for line in lines:
        words = shlex.split(line)
        found.append(words[min(words.index(word) for word in COMMANDS if word in words) :])
    return found


def at(clients: dict[str, str]) -> list[str]:
    return ["-b", clients["url"], "--ssl-trusted", clients["ssl_trusted"]]


def address(clients: dict[str, str], name: str) -> str:
    """Where a broker is: addresses are in the order of names."""
    return clients["url"].partition("//")[2].split(",")[int(name[1:]) - 1]


def login(clients: dict[str, str]) -> list[str]:
    return ["--user", clients["user"], "--password-file", clients["password_file"]]


def test_first_use_item_7_what_is_printed_works_as_printed_and_tells_no_password(
    secure: Path, clients: dict[str, str], qpid_ha: Run
) -> None:
    said = qpid_ha("local", "status")
    make, send, receive = printed(said)
    assert qpid_ha(*make).code == 0
    sent = qpid_ha(*send)
    assert sent.code == 0 and "1 of 1 accepted" in sent.err + sent.out
    assert qpid_ha(*receive).out == "hello\n"
    for user in ("ha", "app"):
        password = (secure / "credentials" / f"{user}.password").read_text().strip()
        assert password not in said.out + (secure / "manager.log").read_text()


def test_a_program_is_told_what_the_primary_knows_of_the_others(
    clients: dict[str, str], qpid_ha: Run
) -> None:
    def told() -> list[dict[str, Any]]:
        said = qpid_ha("list", "-o", "json", *at(clients), *login(clients))
        return json.loads(said.out)["brokers"]  # type: ignore[no-any-return]

    def is_whole(rows: list[dict[str, Any]]) -> bool:
        states = sorted(row["state"] for row in rows)
        return states == ["active", "ready", "ready"] and all(row["in_sync"] for row in rows)

    # A backup of a machine with much to do leaves the set, and comes back.
    rows = wait_for(told, is_whole, what="what is told of the brokers")
    assert {row["name"] for row in rows} == {"b1", "b2", "b3"}


class Opening(MessagingHandler):
    """A program of proton's that connects by the lines that were printed."""

    def __init__(self, lines: str) -> None:
        super().__init__()
        self.lines = lines
        self.heard: list[str] = []

    def on_start(self, event: Any) -> None:
        names = {"SSLDomain": SSLDomain, "container": event.container}
        exec(self.lines, names)

    def on_connection_opened(self, event: Any) -> None:
        self.heard.append("opened")
        event.container.stop()

    def on_transport_error(self, event: Any) -> None:
        self.heard.append(str(event.transport.condition))  # a backup's: it goes on to the next


def test_the_lines_for_proton_connect(secure: Path, qpid_ha: Run) -> None:
    lines = qpid_ha("local", "status").out.splitlines()
    first, last = (
        next(number for number, line in enumerate(lines) if line.startswith(word))
        for word in ("proton", "rhea")
    )
    program = Opening("\n".join(line[9:] for line in lines[first:last]))
    Container(program).run()
    assert program.heard[-1] == "opened"


def test_who_started_it_needs_no_words_at_all(secure: Path, qpid_ha: Run) -> None:
    assert qpid_ha("queue", "add", "own").code == 0
    assert qpid_ha("send", "own", "hello").code == 0
    assert qpid_ha("receive", "own", "-m", "1").out == "hello\n"
    rows = json.loads(qpid_ha("list", "-o", "json").out)["brokers"]
    assert sorted(row["state"] for row in rows) == ["active", "ready", "ready"]


def test_it_is_measured_as_any_other(secure: Path, tmp_path: Path, qpid_ha: Run) -> None:
    words = ("--seconds", "10", "--messages", "20", "--dir", str(tmp_path / "bench"))
    said = qpid_ha("bench", *words, "-o", "json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["accepted"] == 20 and found["brokers"] == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "does not let the client in"),
        (["--user", "app", "--password", "guessed"], "refused user 'app'"),
        (["--user", "ha", "--password", "guessed"], "refused user 'ha'"),
    ],
)
def test_without_the_password_nobody_gets_in(
    clients: dict[str, str], qpid_ha: Run, words: list[str], says: str
) -> None:
    said = qpid_ha("queue", "list", *at(clients), *words)
    assert said.code == 77 and says in said.err


def test_the_certificate_of_a_broker_is_no_login(clients: dict[str, str], qpid_ha: Run) -> None:
    folder = Path(clients["ssl_trusted"]).parent
    own = ["--ssl-certificate", str(folder / "b1.pem"), "--ssl-key", str(folder / "b1.key")]
    said = qpid_ha("queue", "list", *at(clients), *own)
    assert said.code == 77 and "SCRAM-SHA-512" in said.err


def test_there_is_no_way_in_without_tls(clients: dict[str, str], qpid_ha: Run) -> None:
    plain = clients["url"].replace("amqps:", "amqp:")
    assert qpid_ha("queue", "list", "-b", plain, *login(clients), "--timeout", "2").code != 0


def test_whom_the_authority_does_not_vouch_for_is_told_no_password(
    clients: dict[str, str], qpid_ha: Run
) -> None:
    said = qpid_ha("queue", "list", "-b", clients["url"], *login(clients))
    assert said.code != 0 and "certificate" in said.err


@pytest.mark.parametrize("command", ["demote", "promote --cluster-manager", "reload"])
def test_a_program_commands_nothing(clients: dict[str, str], qpid_ha: Run, command: str) -> None:
    primary = status(qpid_ha)["primary"]
    url = f"{clients['url'].partition('//')[0]}//{address(clients, primary)}"
    said = qpid_ha(*command.split(), *at({**clients, "url": url}), *login(clients))
    assert said.code == 77, said
    assert status(qpid_ha)["primary"] == primary


def test_an_administrator_elsewhere_commands_it_by_the_login_of_the_brokers(
    secure: Path, clients: dict[str, str], qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = ["--config", str(secure / "b1" / "qpidd.conf"), "-b", clients["url"].partition(",")[0]]
    first = status(qpid_ha)["primary"]
    other = "b1" if first == "b2" else "b2"
    asked = qpid_ha("switchover", other, *remote)  # through the manager, which is found
    assert asked.code == 0 and status(qpid_ha)["primary"] == other, asked
    assert qpid_ha("wait", "--for", "ready=2", "-b", other).code == 0
    listed = qpid_ha("list", *remote)
    assert listed.code == 0 and "in sync 3 of 3" in listed.out, listed
    monkeypatch.setenv("QPIDHA_DIR", str(secure / "elsewhere"))
    asked = qpid_ha("failover", first, *remote)
    assert asked.code == 0, asked
    monkeypatch.setenv("QPIDHA_DIR", str(secure))
    assert status(qpid_ha)["primary"] == first
    assert qpid_ha("wait", "--for", "ready=2", "-b", first).code == 0


def test_a_failover_and_a_restart_keep_messages_and_who_gets_in(
    secure: Path, clients: dict[str, str], qpid_ha: Run
) -> None:
    words = [*at(clients), *login(clients)]
    assert qpid_ha("queue", "add", "kept", "--durable", *words).code == 0
    assert qpid_ha("send", "kept", "a", "b", "--durable", *words).code == 0
    assert qpid_ha("local", "kill", "b1").code == 0
    assert qpid_ha("wait", "--for", "ready=2", "-b", "b2,b3", "--timeout", "60").code == 0
    assert status(qpid_ha)["primary"] != "b1"
    assert qpid_ha("receive", "kept", "-m", "1", *words).out == "a\n"
    kept = [secure / "credentials" / name for name in ("ca.pem", "users", "app.password")]
    before = [path.read_bytes() for path in kept]
    assert qpid_ha("local", "down").code == 0
    assert qpid_ha("local", "up").code == 0  # without a word it is as it was
    assert [path.read_bytes() for path in kept] == before
    assert qpid_ha("queue", "list", *at(clients)).code == 77
    assert qpid_ha("receive", "kept", "-m", "1", *words).out == "b\n"
