"""Logins by Kerberos (SASL GSSAPI) to real daemons, with Debian's key distribution centre."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from qpidha.amqp.peer.kerberos import Initiator
from qpidha.amqp.peer.sasl import AUTH, CHALLENGE, INIT, OUTCOME, RESPONSE, SaslSide
from qpidha.client import aio
from qpidha.client.blocking import Client
from qpidha.client.endpoint import Endpoint
from qpidha.client.errors import LinkError, LoginError
from qpidha.model.encoding import Symbol
from qpidha.model.exit_codes import CONFIG
from tests.patience import STATE
from tests.runtime.daemons import COMMAND, ENVIRONMENT, Running
from tests.system.cluster import Admin, wait_for
from tests.system.realm import Realm, is_possible

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not is_possible(), reason="needs krb5-kdc, krb5-admin-server, krb5-user, and gssapi"
    ),
]
RULES = """\
acl allow alice@HA.EXAMPLE all all
acl allow bob@HA.EXAMPLE access all
acl allow bob@HA.EXAMPLE consume queue name=q
acl deny carol@HA.EXAMPLE create connection host=all
acl allow all create connection host=all
acl deny all all
"""


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    """Return a realm with a few users."""
    realm = Realm(tmp_path_factory.mktemp("realm"))
    for user in ("alice", "bob", "carol"):
        realm.ticket(user)
    yield realm
    realm.close()


@pytest.fixture(scope="module")
def keytab(realm: Realm) -> Path:
    """Return a keytab of the broker, which has the key of another service of its host, too."""
    return realm.keytab("amqp/localhost", "http/localhost")


@pytest.fixture(scope="module")
def broker(realm: Realm, keytab: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a broker that lets in who has a ticket."""
    place = tmp_path_factory.mktemp("b")
    (place / "acl").write_text(RULES)
    options = ("--data-dir", place / "d", "--admin-socket", place / "s", "--sasl-keytab", keytab)
    environment = {**ENVIRONMENT, **realm.environment}
    with Running(*options, "--acl-file", place / "acl", env=environment) as daemon:
        assert daemon.port, daemon.process.communicate()[1]
        with Admin(place / "s") as admin:
            admin.call("declare_queue", name="q")
        daemon.socket = place / "s"
        yield daemon


@contextmanager
def being(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> Iterator[None]:
    """Have somebody's tickets for the block."""
    with monkeypatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        yield


def endpoint(port: int, **options: Any) -> Endpoint:
    return Endpoint("localhost", port, mechanism="GSSAPI", **options)


def connect(port: int, **options: Any) -> Client:
    return Client([endpoint(port, **options)], reconnect_timeout=0, timeout=STATE)


def test_a_principal_is_the_user_of_rules(
    broker: Any, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        being(monkeypatch, realm.ticket("alice", is_new=False)),
        connect(broker.port) as client,
        Admin(broker.socket) as admin,
    ):
        client.sender("q").send("from alice")
        (row,) = admin.call("list_connections")
        assert (row["user"], row["mechanism"]) == ("alice@HA.EXAMPLE", "GSSAPI")
    with being(monkeypatch, realm.ticket("bob", is_new=False)), connect(broker.port) as client:
        received = client.receiver("q").receive()
        received.accept()
        assert received.body == "from alice"
        with pytest.raises(LinkError, match="bob@HA.EXAMPLE"):
            client.sender("q")
    with (
        being(monkeypatch, realm.ticket("carol", is_new=False)),
        pytest.raises(LoginError, match="carol@HA.EXAMPLE"),
    ):
        connect(broker.port).open()


def test_the_asyncio_client_logs_in_and_names_whose_ticket_it_wants(
    broker: Any, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send() -> None:
        options = {"reconnect_timeout": 0, "timeout": STATE}
        async with aio.Client([endpoint(broker.port, user="alice")], **options) as client:
            await (await client.sender("q")).send("by asyncio")

    with being(monkeypatch, realm.ticket("alice", is_new=False)):
        asyncio.run(send())
        with pytest.raises(LoginError, match="bob@HA.EXAMPLE"), connect(broker.port, user="bob"):
            pass
        with connect(broker.port) as client:
            client.receiver("q").receive().accept()


def test_who_has_no_ticket_is_told_so(
    broker: Any, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = {**realm.environment, "KRB5CCNAME": "FILE:/nowhere"}
    with being(monkeypatch, nothing), pytest.raises(LoginError, match="Kerberos") as refused:
        connect(broker.port).open()
    assert "kinit" in refused.value.hint


def test_a_ticket_that_is_over_is_none(
    broker: Any, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = realm.ticket("dora", lifetime="2s")
    wait_for(lambda: not realm.has_ticket(environment), what="the end of the ticket")
    with being(monkeypatch, environment), pytest.raises(LoginError, match="expired"):
        connect(broker.port).open()


def test_a_ticket_for_another_service_or_host_is_refused(
    broker: Any, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is refused by the broker, though its keytab has that key."""
    with being(monkeypatch, realm.ticket("alice", is_new=False)):
        with pytest.raises(LoginError, match="refused"):
            connect(broker.port, service="http").open()
        with pytest.raises(LoginError, match="not found in Kerberos database"):
            connect(broker.port, service="imap").open()
        address = Endpoint("127.0.0.1", broker.port, mechanism="GSSAPI")
        with pytest.raises(LoginError, match="not found in Kerberos database"):
            Client([address], reconnect_timeout=0).open()


def test_a_ticket_of_another_realm_is_refused(
    broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Realm(tmp_path / "other", "OTHER.EXAMPLE")
    try:
        other.keytab("amqp/localhost")
        with being(monkeypatch, other.ticket("alice")), pytest.raises(LoginError, match="refused"):
            connect(broker.port).open()
    finally:
        other.close()


class Raw(SaslSide):
    """A client that says what a test wants, and keeps what it hears."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.stream = socket.create_connection(("127.0.0.1", port), STATE)
        self.heard: list[tuple[int, Any]] = []

    def performed(self, code: int, fields: list[Any]) -> None:
        self.heard.append((code, fields[0]))

    def hear(self) -> tuple[int, Any]:
        """Send, and wait for the next frame; nothing (0) if the broker hangs up."""
        before = len(self.heard)
        self.stream.sendall(self.take_output())
        while len(self.heard) == before:
            data = self.stream.recv(65536)
            if not data:
                return 0, None
            self.receive(data)
        return self.heard[-1]

    def start(self, token: bytes | None) -> tuple[int, Any]:
        self.hear()
        self.say(INIT, Symbol("GSSAPI"), token)
        return self.hear()


def test_refused_logins_are_logged_with_the_reason(realm: Realm, keytab: Path) -> None:
    options = ("--no-data-dir", "--sasl-keytab", keytab)
    with Running(*options, env={**ENVIRONMENT, **realm.environment}) as daemon:
        assert Raw(daemon.port).start(b"rubbish") == (OUTCOME, AUTH)
        _, log = daemon.end(signal.SIGTERM)
    (line,) = [line for line in log.splitlines() if "refused the login" in line]
    assert "by GSSAPI: Kerberos: Invalid token was supplied" in line
    assert "GSSAPI is offered without acl-file" in log


# Pytest puts the name of a test into the environment, and no program starts with a long one there.
@pytest.mark.parametrize(
    "token",
    [b"", b"rubbish", b"\x60\x82\xff\xff" + bytes(40_000)],
    ids=["empty", "rubbish", "long"],
)
def test_a_token_that_is_none_is_refused(broker: Any, token: bytes) -> None:
    assert Raw(broker.port).start(token) == (OUTCOME, AUTH)
    raw = Raw(broker.port)
    assert raw.start(None) == (CHALLENGE, b"")
    raw.say(RESPONSE, token)
    assert raw.hear() == (OUTCOME, AUTH)


def test_a_token_without_end_is_refused(broker: Any) -> None:
    """A frame of more than a ticket may have ends the connection before it is here."""
    raw = Raw(broker.port)
    raw.hear()
    raw.output += (1 << 24).to_bytes(4, "big") + b"\x02\x01\x00\x00" + bytes(60_000)
    assert raw.hear() == (0, None)


@pytest.mark.parametrize(
    "last",
    [
        b"",
        b"rubbish",
        b"\x04\x00\x00\x00",
        b"\x01\x00",
        b"\x01\x00\x00\x00root",
        b"\x01\x00\x00\x00\xff\xfe",
    ],
)
def test_the_last_word_is_looked_at(
    broker: Any, realm: Realm, monkeypatch: pytest.MonkeyPatch, last: bytes
) -> None:
    """After a good ticket: a layer that is not offered, too few bytes, another identity."""
    import gssapi

    with being(monkeypatch, realm.ticket("alice", is_new=False)):
        name = gssapi.Name("amqp@localhost", gssapi.NameType.hostbased_service)
        context = gssapi.SecurityContext(name=name, usage="initiate")
        raw = Raw(broker.port)
        code, answer = raw.start(context.step())
        assert code == CHALLENGE and context.step(answer) is None and context.complete
        raw.say(RESPONSE, b"")
        code, offer = raw.hear()
        assert code == CHALLENGE and context.unwrap(offer).message == b"\x01\x00\x00\x00"
        is_token = last[:1] in (b"\x01", b"\x04")
        raw.say(RESPONSE, context.wrap(last, False).message if is_token else last)
        assert raw.hear() == (OUTCOME, AUTH)
        assert raw.hear() == (0, None)


def test_a_login_that_goes_on_and_on_is_refused(
    broker: Any, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    with being(monkeypatch, realm.ticket("alice", is_new=False)):
        initiator = Initiator("amqp", "localhost")
        raw = Raw(broker.port)
        code, _ = raw.start(initiator.step(b"").token)
        assert code == CHALLENGE
        raw.say(RESPONSE, b"more")
        assert raw.hear() == (OUTCOME, AUTH)


def test_programs_log_in_by_kerberos(broker: Any, realm: Realm) -> None:
    environment = {**ENVIRONMENT, **realm.ticket("alice", is_new=False)}
    address = ("-b", f"localhost:{broker.port}", "--sasl-mechanism", "GSSAPI")
    for words, said in (
        (("qpidha.cli.main", "queue", "list", *address), "q"),
        (("qpidha.tools.qpid_config", *address, "queues"), "q"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", *words], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0 and said in done.stdout.split(), done
        done = subprocess.run(
            [sys.executable, "-m", *words, "--sasl-service-name", "imap"],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode and "Kerberos" in done.stdout + done.stderr, done


PROTON = Path(sys.prefix) / "proton-sasl"
"""Proton with Cyrus SASL, which .ci/setup compiles."""
PROGRAM = """
import sys
from proton import SASL, Message
from proton.utils import BlockingConnection
assert SASL.extended()
connection = BlockingConnection(sys.argv[1], allowed_mechs="GSSAPI", timeout=60)
connection.create_sender("q").send(Message("by proton"))
receiver = connection.create_receiver("q")
print(receiver.receive(60).body)
receiver.accept()
connection.close()
"""


@pytest.mark.interop
@pytest.mark.skipif(not PROTON.exists(), reason="needs Proton with Cyrus SASL")
def test_an_unmodified_proton_with_cyrus_sasl_logs_in(broker: Any, realm: Realm) -> None:
    command = [sys.executable, "-c", PROGRAM, f"amqp://localhost:{broker.port}"]

    def play(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        whole = {**ENVIRONMENT, **environment, "PYTHONPATH": str(PROTON)}
        return subprocess.run(command, env=whole, capture_output=True, text=True, timeout=STATE)

    done = play(realm.ticket("alice", is_new=False))
    assert done.stdout == "by proton\n", done.stderr
    done = play({**realm.environment, "KRB5CCNAME": "FILE:/nowhere"})
    assert done.returncode and "No Kerberos credentials" in done.stderr


def started(*options: object, **environment: str) -> tuple[int, str]:
    """Start a broker that is not to start; return its exit code and what it says."""
    done = subprocess.run(
        [*COMMAND, "--no-data-dir", *map(str, options)],
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=STATE,
    )
    return done.returncode, done.stderr


def test_a_broker_without_what_kerberos_needs_says_what(
    realm: Realm, keytab: Path, tmp_path: Path
) -> None:
    code, said = started("--sasl-keytab", tmp_path / "nowhere", **realm.environment)
    assert code == CONFIG and "nowhere' not found" in said and "make a keytab" in said
    named = ("--sasl-keytab", keytab, "--sasl-service-name", "imap")
    code, said = started(*named, **realm.environment)
    assert code == CONFIG and "no key of the service imap" in said
    (tmp_path / "gssapi.py").write_text("raise ImportError('No module named gssapi')")
    path = os.pathsep.join((str(tmp_path), ENVIRONMENT["PYTHONPATH"]))
    for options in (("--sasl-mechanisms", "GSSAPI"), ("--sasl-keytab", keytab, "--check")):
        code, said = started(*options, PYTHONPATH=path)
        assert code == CONFIG and "gssapi" in said and "pip install 'qpidha[kerberos]'" in said


def test_a_link_of_federation_logs_in_by_kerberos(
    a_cluster: Any, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the key of its user in the broker's keytab, at a broker without a cluster."""
    keytab = realm.keytab("bridge", "amqp/127.0.0.1")
    for name, value in realm.environment.items():
        monkeypatch.setenv(name, value)
    alone = {"promote": False, "ha_cluster": False, "ha_brokers_url": "none"}
    options = {**alone, "auth": True, "sasl_keytab": keytab}
    (here,), (there,) = a_cluster(1, **options), a_cluster(1, **options)
    login = {"mechanism": "gssapi", "username": "bridge"}
    here.call("declare_link", name="up", addresses=there.address, **login)
    wait_for(
        lambda: [(row["user"], row["mechanism"]) for row in there.call("list_connections")],
        [("bridge@HA.EXAMPLE", "GSSAPI")].__eq__,
        what="who is connected",
    )


def test_brokers_log_in_to_each_other_by_kerberos(
    a_cluster: Any, realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key distribution centre then hangs: the brokers answer all the same, and go on when it
    is there again.
    """
    keytab = realm.keytab("qpidha", "amqp/127.0.0.1")
    for name, value in realm.environment.items():
        monkeypatch.setenv(name, value)
    options = {
        "auth": True,
        "sasl_keytab": keytab,
        "ha_username": "qpidha@HA.EXAMPLE",
        "ha_mechanism": "GSSAPI",
        "realm": "HA.EXAMPLE",
    }
    cluster = a_cluster(2, **options)
    cluster[0].declare_queue("q")
    wait_for(
        lambda: [row["name"] for row in cluster[1].call("list_queues")],
        lambda names: names == ["q"],
        what="the queues of the backup",
    )
    cluster[1].kill()
    realm.close()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
            deaf.bind(("127.0.0.1", realm.port))  # It takes questions and never answers.
            cluster[1].restart()
            assert cluster[0].status()["state"] == "active"
            assert cluster[1].status()["state"] == "joining"
    finally:
        realm.start()
    wait_for(lambda: cluster[1].status().get("state"), "ready".__eq__, what="the backup's state")
