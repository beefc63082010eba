"""SIGHUP: what a broker that serves reads again."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from qpidha.client.admin import AdminSocket
from qpidha.client.blocking import Client
from qpidha.client.errors import LinkError, LoginError
from qpidha.model.duration import SECOND
from qpidha.model.errors import RefusedRequest
from qpidha.model.settings import Settings
from qpidha.runtime.configuration import Configuration
from qpidha.runtime.reload import read_again
from tests.patience import STATE
from tests.runtime.daemons import Running
from tests.system.cluster import wait_for
from tests.system.credentials import Authority, users_file

DAY = 86_400
DONE, NOTHING = "the log's options were read again", "nothing was read again"


class Broker:
    """A daemon with a users file, a certificate and a log of its own, in a directory."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.log = place / "log"
        self.authority = Authority(place)
        users_file(place / "users", {"ann": "ann", "bob": "bob"})
        self.certify("first")
        self.configure("log-enable=notice+")
        self.running = Running("--config", place / "conf", "--data-dir", place / "data")
        self.ssl_port = int(self.log.read_text().partition(" (TLS)")[0].rpartition(" ")[2])

    def configure(self, more: str) -> None:
        files = "users-file=users\nssl-cert=own.pem\nssl-key=own.key\nlog-to-file=log\n"
        (self.place / "conf").write_text(f"{files}ssl-port=0\n{more}\n")

    def certify(self, name: str, *, days: int = 2) -> None:
        """Put a new certificate into the place of the old one."""
        certificate, key = self.authority.issue(name, days=days)
        shutil.copy(certificate, self.place / "own.pem")
        shutil.copy(key, self.place / "own.key")

    def reload(self, says: str) -> str:
        """Send the signal, and return what the log says from then on."""
        before = len(self.log.read_text()) if self.log.exists() else 0
        self.running.process.send_signal(signal.SIGHUP)
        return wait_for(
            lambda: self.log.read_text()[before:] if self.log.exists() else "",
            lambda text: says in text,
            what="the log",
        )

    @property
    def admin(self) -> AdminSocket:
        return AdminSocket(str(self.place / "data" / "admin.sock"), STATE)

    def expiry(self) -> int:
        """Return until when the broker says that its certificate is good."""
        with closing(self.admin) as admin:
            return int(admin.call("status")["certificate_expires_ns"])

    def log_in(self, name: str) -> Client:
        return Client(f"127.0.0.1:{self.running.port}", user=name, password=name, timeout=STATE)

    def certificate(self) -> str:
        """Return whose certificate the TLS port shows."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        with (
            socket.create_connection(("127.0.0.1", self.ssl_port), STATE) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as stream,
        ):
            return str(dict(part[0] for part in stream.getpeercert()["subject"])["commonName"])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One for all tests here."""
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        found = Broker(Path(name))
        with found.running:
            yield found


def test_qpid_16_a_new_user_gets_in_and_who_is_in_stays(broker: Broker) -> None:
    with broker.log_in("ann") as ann, broker.log_in("bob") as bob:
        with pytest.raises(LoginError), broker.log_in("eve"):
            pass
        users_file(broker.place / "users", {"ann": "ann", "eve": "eve"})
        broker.reload(DONE)
        with broker.log_in("eve") as eve:
            assert eve.endpoint.user == "eve"
        with pytest.raises(LoginError), broker.log_in("bob"):
            pass
        for client in (ann, bob):
            client.sender("amq.fanout").close()


def test_first_use_d12_a_new_certificate_is_shown(broker: Broker) -> None:
    before = broker.expiry()
    assert broker.certificate() == "first"
    broker.certify("second", days=9)
    assert broker.certificate() == "first"
    broker.reload(DONE)
    assert [broker.certificate() for _ in range(3)] == ["second"] * 3
    later = wait_for(broker.expiry, lambda end: end != before)
    assert 7 * DAY <= (later - before) / SECOND < 7 * DAY + STATE


def test_first_use_d12_a_log_file_that_was_moved_is_made_anew(broker: Broker) -> None:
    moved = broker.log.rename(broker.place / "log.1")
    length = moved.stat().st_size
    assert DONE in broker.reload(DONE)
    assert moved.stat().st_size == length
    assert not broker.log.stat().st_mode & 0o027


def test_logrotate_works_though_another_file_has_a_mistake(broker: Broker) -> None:
    broker.configure("no-such-option=1")
    moved = broker.log.rename(broker.place / "log.2")
    length = moved.stat().st_size
    text = broker.reload(NOTHING)
    assert "[QHA1007]" in text and moved.stat().st_size == length
    broker.configure("")
    broker.reload(DONE)


@pytest.mark.parametrize("less", ["log-enable=warning+", "log-disable=notice-"])
def test_what_is_logged_changes_and_what_needs_a_restart_is_named(
    broker: Broker, less: str
) -> None:
    broker.configure(f"{less}\nmax-connections=7")
    text = broker.reload("max-connections: a restart is needed")
    assert DONE not in text
    broker.configure("log-enable=notice+\nmax-connections=500")
    assert "restart" not in broker.reload(DONE)


def test_what_is_logged_is_set_until_it_is_read_again(broker: Broker) -> None:
    with closing(broker.admin) as admin:
        assert admin.call("log_level")["level"] == "notice+"
        found = admin.call("set_log_level", {"level": "info+,!trace:store, debug+:ha"})
        assert found == {
            "level": "info+,debug+:ha,!trace:store",
            "log_enable": "info+,debug+:ha",
            "log_disable": "trace:store",
        }
        assert admin.call("log_level") == found
        before = len(broker.log.read_text())
        admin.call("set_log_level", {"level": "critical"})
        admin.call("set_log_level", {"level": "notice+"})
        for wrong in ("", "loud+", "!notice", "info+,!"):
            with pytest.raises(RefusedRequest, match="parameter level"):
                admin.call("set_log_level", {"level": wrong})
        admin.call("set_log_level", {"level": "info+"})
        broker.reload(DONE)
        text = broker.log.read_text()[before:]
        assert "level 'critical'" in text and "level 'info+'" in text
        assert "level 'notice+'" not in text
        assert admin.call("log_level")["level"] == "notice+"


def test_qpid_4_rules_that_are_read_again_are_enforced(broker: Broker) -> None:
    users_file(broker.place / "users", {"ann": "ann", "bob": "bob"})
    (broker.place / "rules").write_text("acl deny bob access\nacl allow all all\n")
    broker.configure("acl-file=rules")
    assert "restart" not in broker.reload(DONE)
    for name, denied in (("ann", False), ("bob", True)):
        with broker.log_in(name) as client:
            try:
                client.sender("amq.fanout").close()
            except LinkError as error:
                assert denied and error.condition == "amqp:unauthorized-access"
            else:
                assert not denied
    assert broker.admin.call("acl")["rules"][0]["users"] == ["bob"]
    assert "denied bob at 127.0.0.1:" in broker.log.read_text()
    broker.configure("")
    broker.reload(DONE)
    with broker.log_in("bob") as bob:
        bob.sender("amq.fanout").close()
    assert broker.admin.call("acl") == {"file": ""}


def test_first_use_item_6_an_administrator_may_ask_for_it(broker: Broker) -> None:
    assert broker.admin.call("reload") == {"warnings": []}
    broker.configure("max-connections=7")
    (warning,) = broker.admin.call("reload")["warnings"]
    assert "max-connections: a restart" in warning
    broker.configure("no-such-option=1")
    with pytest.raises(RefusedRequest) as refused:
        broker.admin.call("reload")
    assert "no-such-option" in refused.value.reason and refused.value.hint
    broker.configure("")
    assert broker.admin.call("reload") == {"warnings": []}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("users", "no line of a users file\n"),
        ("own.pem", "no certificate\n"),
        ("conf", "users-file=nowhere\nlog-to-file=log\n"),
        ("conf", "users-file=users\nacl-file=own.pem\nlog-to-file=log\n"),
        ("conf", "no-such-option=1\n"),
    ],
)
def test_a_mistake_changes_nothing(broker: Broker, name: str, content: str) -> None:
    path = broker.place / name
    before = path.read_text()
    path.write_text(content)
    try:
        assert DONE not in broker.reload(NOTHING)
    finally:
        path.write_text(before)
    with broker.log_in("ann") as ann:
        assert ann.endpoint.user == "ann"


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        ("nobody", "no longer has ann, bob, who could log in until now"),
        ("bob", "no longer has ann, who could log in until now"),
    ],
)
def test_users_that_a_file_no_longer_has_are_named(broker: Broker, kept: str, says: str) -> None:
    """An editor or a copy that was cut short leaves a file that is no mistake in itself."""
    path = broker.place / "users"
    before = path.read_text()
    users_file(path, {"ann": "ann", "bob": "bob"})
    broker.reload(DONE)
    two = path.read_text().splitlines(True)
    path.write_text("".join(line for line in two if line.startswith(kept)))
    try:
        assert "warning" in broker.reload(says)
    finally:
        path.write_text(before)
        broker.reload(DONE)


@pytest.mark.parametrize(("before", "after"), [("", "users"), ("users", "")])
def test_who_gets_in_without_a_login_is_settled_at_the_start(
    tmp_path: Path, before: str, after: str
) -> None:
    """Else the first users of a broker, read while it serves, would be asked for nothing."""
    users_file(tmp_path / "users", {"ann": "ann"})
    old, new = (
        Settings(interface=("lo",), users_file=str(tmp_path / name) if name else "")
        for name in (before, after)
    )
    found = read_again(Configuration(settings=new), old, b"secret")
    assert found.settings.users_file == old.users_file
    assert found.warnings == ["users-file: a restart is needed for what has changed"]
