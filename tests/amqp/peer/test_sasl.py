"""SASL on both sides, through whole connections."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest

from qpidha.amqp.peer import sasl
from qpidha.amqp.peer.connection import Connection
from qpidha.amqp.peer.sasl import (
    AMQP_HEADER,
    INIT,
    MAX_FRAME,
    MAX_LEFTOVER,
    MECHANISMS,
    MOST_ITERATIONS,
    OUTCOME,
    RESPONSE,
    SASL_HEADER,
    SCRAM,
    SaslClient,
    SaslServer,
    SaslSide,
    Users,
    Verifier,
    line_of_secret,
    make_verifier,
)
from qpidha.amqp.server.served_connection import ServedConnection
from qpidha.model.encoding import Array, Symbol, decode
from qpidha.model.errors import InvalidArgument, ProtocolViolation, Unauthorized
from qpidha.model.events import ConnectionKind
from tests.amqp.builders import AHost, Pair

SALT = b"0123456789abcdef"
SECRET = line_of_secret(bytes)


def a_host_with_users(**settings: Any) -> AHost:
    host = AHost(auth=True, users_file="users", **{"sasl_plain_without_tls": True, **settings})
    host.users = Users.parse(
        "# who may log "
        f"in\n\nann:{make_verifier('päss', SALT)}\nbob:{make_verifier('b', SALT, 5000)}\n"
    )
    return host


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", ""])
def test_the_right_password_lets_in(mechanism: str) -> None:
    pair = Pair(a_host_with_users(), mechanism=mechanism, username="ann", password="päss")
    assert pair.server.principal.name == "ann"
    assert pair.server.principal.mechanism == (mechanism or "SCRAM-SHA-256")
    assert pair.client.remote_container == "broker"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("name", ["ann", "nobody"])
def test_a_wrong_password_or_name_is_refused_before_open(mechanism: str, name: str) -> None:
    pair = Pair(a_host_with_users(), mechanism=mechanism, username=name, password="wrong")
    assert pair.server.closed and pair.client.closed
    assert pair.host.admitted == []
    assert (
        pair.client.error is not None and pair.client.error.condition == "amqp:unauthorized-access"
    )


def of_both_kinds(*kinds: tuple[str, str]) -> Users:
    """Users, whose names are their passwords, with lines for SCRAM-SHA-256, -512 or both."""
    return Users.parse(
        "\n".join(
            f"{name}:{make_verifier(name, SALT, mechanism=f'SCRAM-SHA-{size}')}"
            for name, sizes in kinds
            for size in sizes.split()
        ),
        secret=b"secret",
    )


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", ""])
def test_qpid_20_a_user_may_have_a_line_for_each_mechanism(mechanism: str) -> None:
    host = AHost(auth=True, sasl_plain_without_tls=True)
    host.users = of_both_kinds(("ann", "256 512"), ("bob", "512 256"))
    for name, password, lets_in in (("ann", "ann", 1), ("bob", "ann", 0), ("nobody", "x", 0)):
        pair = Pair(host, mechanism=mechanism, username=name, password=password)
        assert pair.client.opened and bool(pair.client.remote_container) == lets_in
        if lets_in:
            assert pair.server.principal.mechanism == (mechanism or "SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("ann", "bob", "offered"),
    [
        ("256", "256", ["SCRAM-SHA-256"]),
        ("256 512", "256 512", ["SCRAM-SHA-512", "SCRAM-SHA-256"]),
        ("256", "256 512", ["SCRAM-SHA-256"]),
        ("256", "512", []),
    ],
)
def test_clients_are_offered_what_every_user_can_use(
    ann: str, bob: str, offered: list[str]
) -> None:
    users = of_both_kinds(("ann", ann), ("bob", bob))
    assert users.mechanisms == offered
    assert users.check("ann", "ann") and users.check("bob", "bob")
    for mechanism, size in (("SCRAM-SHA-512", 64), ("SCRAM-SHA-256", 32)):
        _, stored_key, server_key, _ = users.auth_info("nobody", mechanism)
        assert len(stored_key) == len(server_key) == size


def test_anonymous_is_not_offered_where_users_must_log_in() -> None:
    pair = Pair(a_host_with_users(), mechanism="ANONYMOUS")
    assert pair.client.closed
    assert (
        pair.client.error is not None and "none of which is usable" in pair.client.error.description
    )


def test_external_takes_the_identity_of_the_certificate() -> None:
    pair = Pair(AHost(auth=True), identity="CN=b2", encrypted=True, mechanism="EXTERNAL")
    assert pair.server.principal.name == "CN=b2"


@pytest.mark.parametrize("identity", ["", "anonymous", "anonymous@QPID", "@QPID"])
def test_external_is_not_offered_without_a_certificate_that_names_its_holder(identity: str) -> None:
    host = AHost()
    host.users = Users(realm="QPID")
    assert Pair(host, identity=identity, encrypted=True, mechanism="EXTERNAL").client.closed


def test_offered_mechanisms_can_be_restricted() -> None:
    pair = Pair(a_host_with_users(sasl_mechanisms=("SCRAM-SHA-256",)), username="bob", password="b")
    assert pair.server.principal.mechanism == "SCRAM-SHA-256"


@pytest.mark.parametrize(
    ("encrypted", "mechanism", "used"),
    [(False, "", ""), (True, "", "PLAIN"), (False, "PLAIN", "PLAIN")],
)
def test_a_password_is_shown_under_tls_only_unless_plain_is_named(
    encrypted: bool, mechanism: str, used: str
) -> None:
    host = a_host_with_users(sasl_mechanisms=("PLAIN",))
    pair = Pair(host, encrypted=encrypted, username="bob", password="b", mechanism=mechanism)
    assert pair.server.principal.mechanism == used
    assert pair.client.closed == (not used)


@pytest.mark.parametrize(
    ("encrypted", "settings", "offered"),
    [
        (False, {}, ["SCRAM-SHA-256"]),
        (True, {}, ["SCRAM-SHA-256", "PLAIN"]),
        (False, {"sasl_plain_without_tls": True}, ["SCRAM-SHA-256", "PLAIN"]),
        (False, {"sasl_mechanisms": ("PLAIN",)}, []),
        (False, {"auth": False}, ["SCRAM-SHA-256", "PLAIN", "ANONYMOUS"]),
    ],
)
def test_code_7_plain_is_offered_under_tls_only(
    encrypted: bool, settings: dict[str, Any], offered: list[str]
) -> None:
    host = AHost(**{"auth": True, "users_file": "users", **settings})
    host.users = of_both_kinds(("ann", "256"))
    connection = ServedConnection(
        1, host, kind=ConnectionKind.CLIENT, peer="client", encrypted=encrypted
    ).connection
    connection.receive(SASL_HEADER)
    value, _ = decode(connection.output()[16:])
    assert [str(name) for name in value.value[0].items] == offered


@pytest.mark.parametrize("has_users", [True, False])
def test_qpid_18_where_nobody_must_log_in_plain_takes_any_password_and_believes_no_name(
    has_users: bool,
) -> None:
    host = AHost()
    if has_users:
        host.users = of_both_kinds(("ann", "256"))
    pair = Pair(host, mechanism="PLAIN", username="ann", password="whatever")
    assert pair.client.remote_container == "broker"
    assert (pair.server.principal.name, pair.server.principal.mechanism) == ("anonymous", "PLAIN")


def test_a_client_without_sasl_is_refused_where_users_must_log_in() -> None:
    host = a_host_with_users()
    connection = ServedConnection(1, host, kind=ConnectionKind.CLIENT, peer="client").connection
    connection.receive(AMQP_HEADER)
    assert connection.output() == SASL_HEADER
    assert connection.closed


def test_a_client_without_sasl_is_served_where_nobody_must_log_in() -> None:
    connection = ServedConnection(1, AHost(), kind=ConnectionKind.CLIENT, peer="client").connection
    connection.receive(AMQP_HEADER)
    assert connection.output().startswith(AMQP_HEADER)
    assert not connection.closed


def test_bytes_may_come_one_at_a_time() -> None:
    host = a_host_with_users()
    client = Connection(1, AHost("client"), kind=ConnectionKind.OUTGOING, peer="broker")
    server = ServedConnection(1, host, kind=ConnectionKind.CLIENT, peer="client").connection
    client.open("client", {}, username="ann", password="päss")
    for _ in range(10):
        for sender, receiver in ((client, server), (server, client)):
            for octet in sender.output():
                receiver.receive(bytes((octet,)))
    assert server.principal.name == "ann" and client.remote_container == "broker"


def test_a_faulty_users_file_is_named_by_line() -> None:
    with pytest.raises(InvalidArgument, match="line 2"):
        Users.parse("# fine\nann:plain-password\n")
    with pytest.raises(InvalidArgument, match="line 1"):
        Users.parse("ann:SCRAM-SHA-256$1:c2FsdA==$a2V5:a2V5\n")
    fine = f"ann:{make_verifier('a', SALT)}"
    salt = base64.b64encode(SALT).decode()
    with pytest.raises(InvalidArgument, match="line 1 is not"):
        Users.parse(fine.replace(salt, f"{salt}!"))
    Users.parse(f"{fine}\nbob:{make_verifier('b', SALT[:12])}")
    Users.parse(fine.replace("$4096:", f"${MOST_ITERATIONS}:"))
    for unfit in (
        fine.replace("$4096:", "$4095:"),
        fine.replace("$4096:", f"${MOST_ITERATIONS + 1}:"),
        fine.replace(salt, salt[:12]),
    ):
        assert unfit != fine
        with pytest.raises(InvalidArgument, match="line 1: needs .* 4096 to .* 12 bytes"):
            Users.parse(unfit)


def test_a_name_is_the_same_with_and_without_the_realm() -> None:
    users = Users.parse(
        f"ann@QPID:{make_verifier('a', SALT)}\nbob:{make_verifier('b', SALT)}\n", realm="QPID"
    )
    assert users.check("ann", "a") and users.check("ann@QPID", "a") and users.check("bob@QPID", "b")
    assert not users.check("ann@OTHER", "a")
    assert users.auth_info("bob@QPID", SCRAM) == users.auth_info("bob", SCRAM)


@pytest.mark.parametrize(
    ("again", "says"),
    [
        ("@QPID", "needs .* a name"),
        ("ann", "ann has a line"),
        ("ann@QPID", "ann has a line for"),
        ("anonymous", "anonymous is the name of who does not log in"),
        ("anonymous@QPID", "anonymous is the name"),
    ],
)
def test_a_name_that_is_empty_or_not_his_alone_is_refused(again: str, says: str) -> None:
    lines = [f"{name}:{make_verifier('a', SALT)}" for name in ("ann", again)]
    with pytest.raises(InvalidArgument, match=f"line 2.*{says}"):
        Users.parse("\n".join(lines), realm="QPID")


# Each of these fails when one check of the security layer is taken away.

USERS = Users.parse(f"ann:{make_verifier('secret', SALT)}\n")


def a_server(mechanism: str, *, users: Users = USERS, identity: str = "") -> SaslServer:
    return SaslServer([mechanism], users, identity=identity, make_nonce=lambda: "of-the-server")


def a_client() -> SaslClient:
    return SaslClient("", username="ann", password="secret", hostname="", nonce="ours")


def test_a_client_may_wait_to_be_asked_for_its_first_response() -> None:
    server = a_server("PLAIN")
    server.take_output()
    server.performed(INIT, ["PLAIN", None])
    client = a_client()
    client.mechanism = "PLAIN"
    client.receive(SASL_HEADER + server.take_output())
    server.receive(client.take_output())
    work(server)
    assert server.done and server.user == "ann"


def test_a_client_tells_the_host_that_it_means() -> None:
    client = SaslClient("", username="", password="", hostname="b2.example.com", nonce="n")
    client.receive(a_server("ANONYMOUS").take_output())
    assert b"b2.example.com" in client.take_output()


BY_PASSWORD = ["SCRAM-SHA-512", "SCRAM-SHA-256"]


@pytest.mark.parametrize(
    ("offered", "wanted", "password", "encrypted", "takes"),
    [
        (["ANONYMOUS"], "", "secret", False, ""),
        (["ANONYMOUS"], "", "secret", True, ""),
        (["ANONYMOUS"], "ANONYMOUS", "secret", True, ""),
        (["PLAIN", "ANONYMOUS"], "", "secret", False, ""),
        (["PLAIN", "ANONYMOUS"], "", "secret", True, "PLAIN"),
        (["PLAIN", "ANONYMOUS"], "PLAIN", "secret", False, "PLAIN"),
        (["EXTERNAL", "ANONYMOUS"], "", "secret", False, ""),
        (["EXTERNAL", "ANONYMOUS"], "EXTERNAL", "", False, ""),
        (["EXTERNAL", *BY_PASSWORD], "", "", True, "EXTERNAL"),
        (["EXTERNAL", *BY_PASSWORD], "", "", False, ""),
        (["EXTERNAL", "PLAIN", *BY_PASSWORD], "", "secret", True, "SCRAM-SHA-512"),
        (["ANONYMOUS", "SCRAM-SHA-256"], "", "secret", False, "SCRAM-SHA-256"),
    ],
)
def test_who_wants_to_know_the_server_takes_no_mechanism_that_does_not_prove_it(
    offered: list[str], wanted: str, password: str, encrypted: bool, takes: str
) -> None:
    client = SaslClient(
        wanted,
        username="ann",
        password=password,
        hostname="",
        nonce="n",
        encrypted=encrypted,
        mutual=True,
    )
    offer = Array(0xA3, [Symbol(name) for name in offered])
    if takes:
        client.performed(MECHANISMS, [offer])
        assert client.mechanism == takes
    else:
        with pytest.raises(Unauthorized, match="none of which proves who is at either end"):
            client.performed(MECHANISMS, [offer])
        assert client.take_output() == SASL_HEADER  # Nothing of the password.


def work(side: SaslSide) -> None:
    """Do the arithmetic that a side waits for, if there is any."""
    wanted = side.take_work()
    if wanted is not None:
        side.worked(wanted())
        side.receive(b"")


def talk(client: SaslClient, server: SaslServer) -> None:
    """Carry what both have to say until they are silent."""
    while data := server.take_output():
        client.receive(data)
        work(client)
        server.receive(client.take_output())
        work(server)


def scram_client_final(first: str, challenge: str, client_key: bytes, stored: bytes) -> str:
    """The proof of somebody who has a client key: RFC 5802 section 3."""
    nonce = challenge.split(",")[0]
    bare = f"c=biws,{nonce}"
    signature = hmac.digest(stored, f"{first},{challenge},{bare}".encode(), "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{bare},p={base64.b64encode(proof).decode()}"


class Guessed(Users):
    """Users of whom an attacker has found out what is made up for a name that does not exist."""

    def auth_info(self, name: str, mechanism: str) -> tuple[bytes, bytes, bytes, int]:
        client_key = b"k" * 32
        return SALT, hashlib.sha256(client_key).digest(), b"s" * 32, 4096


@pytest.mark.parametrize(("name", "lets_in"), [("ann", True), ("nobody", False)])
def test_code_d8_scram_refuses_a_name_that_does_not_exist_whatever_its_proof(
    name: str, lets_in: bool
) -> None:
    server = a_server("SCRAM-SHA-256", users=Guessed(USERS.verifiers))
    server.take_output()
    first = f"n={name},r=ours"
    server.performed(INIT, ["SCRAM-SHA-256", f"n,,{first}".encode()])
    frame = server.take_output()
    challenge = frame[frame.index(b"r=") :].decode()
    stored = hashlib.sha256(b"k" * 32).digest()
    server.performed(RESPONSE, [scram_client_final(first, challenge, b"k" * 32, stored).encode()])
    assert (server.done, server.failed) == (lets_in, not lets_in)


def of_unequal_users(secret: bytes = b"of this process") -> Users:
    """Two users, whose verifiers differ in iterations and length of the salt."""
    lines = (f"ann:{make_verifier('a', SALT)}", f"bob:{make_verifier('b', SALT + SALT, 5000)}")
    return Users.parse("\n".join(lines), secret=secret)


def test_code_d7_nobody_can_guess_what_is_made_up_for_a_name_that_does_not_exist() -> None:
    """What was, when it was made of the name alone: a name of 19 letters was let in with a client
    key that everybody knew, but for one line.
    """
    name = "a" * 19
    known = f"unknown user {name}".encode()
    _, stored_key, server_key, _ = of_unequal_users().auth_info(name, SCRAM)
    assert hashlib.sha256(known).digest() not in (stored_key, server_key)
    parts = [of_unequal_users(secret).auth_info(name, SCRAM)[:3] for secret in (b"1", b"1", b"2")]
    assert parts[0] == parts[1]
    assert not {*parts[0]} & {*parts[2]} and len({*parts[0]}) == 3


def test_code_d7_a_name_that_does_not_exist_looks_like_one_that_does() -> None:
    """Of its answer to SCRAM a client sees the salt and the iterations: always the same for a name,
    and such as some user has.
    """
    users = of_unequal_users()
    seen = set()
    for number in range(40):
        found = users.auth_info(f"nobody {number}", SCRAM)
        assert found == users.auth_info(f"nobody {number}", SCRAM)
        seen.add((len(found[0]), found[3]))
    assert seen == {(16, 4096), (32, 5000)}
    realm = Users(users.verifiers, realm="QPID", secret=b"s")
    assert realm.auth_info("nobody@QPID", SCRAM) == realm.auth_info("nobody", SCRAM)


@pytest.mark.parametrize("line", ["secret:", "secret:c2hvcnQ=", "secret:?", f"{SECRET}\n{SECRET}"])
def test_a_secret_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(InvalidArgument, match=r"users file line \d: .*secret"):
        Users.parse(line)


@pytest.mark.parametrize(("name", "lets_in"), [("ann", True), ("nobody", False)])
def test_code_d7_a_password_takes_as_much_work_for_a_name_that_does_not_exist(
    monkeypatch: pytest.MonkeyPatch, name: str, lets_in: bool
) -> None:
    counted: list[int] = []
    derive = hashlib.pbkdf2_hmac

    def count(kind: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        counted.append(iterations)
        return derive(kind, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", count)
    server = a_server("PLAIN")
    server.performed(INIT, ["PLAIN", f"\0{name}\0secret".encode()])
    work(server)
    assert server.done == lets_in and counted == [4096]


def test_no_password_is_right_for_a_name_that_does_not_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not even one that fits what was made up."""
    monkeypatch.setattr(Verifier, "accepts", lambda verifier, password: True)
    assert USERS.check("ann", "x") and not USERS.check("nobody", "x")


@pytest.mark.parametrize(
    ("authorization", "lets_in"), [("", True), ("ann", True), ("root", False), ("ANN", False)]
)
def test_code_d8_plain_acts_for_nobody_but_the_user(authorization: str, lets_in: bool) -> None:
    server = a_server("PLAIN")
    server.performed(INIT, ["PLAIN", f"{authorization}\0ann\0secret".encode()])
    work(server)
    assert (server.done, server.failed) == (lets_in, not lets_in)


@pytest.mark.parametrize(("claimed", "lets_in"), [("", True), ("CN=b2", True), ("CN=b3", False)])
def test_code_d8_external_is_the_certificates_identity_and_no_other(
    claimed: str, lets_in: bool
) -> None:
    server = a_server("EXTERNAL", identity="CN=b2")
    server.performed(INIT, ["EXTERNAL", claimed.encode()])
    assert (server.done, server.failed) == (lets_in, not lets_in)
    assert server.user == "CN=b2"


def test_code_d8_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    """It says yes to whatever proof comes, and cannot sign for it."""
    client = a_client()
    talk(client, a_server("SCRAM-SHA-256"))
    assert client.done
    pretender = Users.parse(f"ann:{make_verifier('secret', SALT)}\n")
    pretender.verifiers["ann"][SCRAM].server_key = b"x" * 32
    with pytest.raises(Unauthorized, match="could not prove that it knows user 'ann'"):
        talk(a_client(), a_server("SCRAM-SHA-256", users=pretender))


def test_code_d8_a_broker_that_signs_nothing_is_not_believed() -> None:
    client, server = a_client(), a_server("SCRAM-SHA-256")
    client.receive(server.take_output())
    server.receive(client.take_output())
    client.receive(server.take_output())
    work(client)
    with pytest.raises(Unauthorized, match="could not prove"):
        client.performed(OUTCOME, [0, None])


@pytest.mark.parametrize(
    "header",
    [
        b"\x00\x00\x00\x10\x02\x00\x00\x00",  # a frame of AMQP
        b"\x00\x00\x00\x10\x01\x01\x00\x00",  # its body would begin inside its header
        b"\x00\x00\x00\x10\x05\x01\x00\x00",  # its body would begin after its end
        b"\x00\x01\x00\x00\x02\x01\x00\x00",  # larger than any frame before the open may be
    ],
)
def test_a_faulty_frame_ends_the_security_layer(header: bytes) -> None:
    server = a_server("PLAIN")
    server.receive(SASL_HEADER)
    with pytest.raises(ProtocolViolation, match="faulty SASL frame"):
        server.receive(header + bytes(8))


def test_a_frame_of_a_head_and_nothing_more_is_refused_at_once() -> None:
    server = a_server("PLAIN")
    server.receive(SASL_HEADER)
    with pytest.raises(ProtocolViolation):
        server.receive(b"\x00\x00\x00\x08\x02\x01\x00\x00")


def login_frames(rest: bytes = b"") -> bytes:
    """What a client sends that logs in with PLAIN and does not wait for the outcome."""
    client = SaslClient("PLAIN", username="ann", password="secret", hostname="", nonce="n")
    client.receive(a_server("PLAIN").take_output())
    return client.take_output() + rest


@pytest.mark.parametrize(("more", "is_too_much"), [(0, False), (1, True)])
def test_what_comes_behind_a_login_has_a_bound(more: int, is_too_much: bool) -> None:
    rest = bytes(MAX_LEFTOVER - len(login_frames()) + more)
    server = a_server("PLAIN")
    if is_too_much:
        with pytest.raises(ProtocolViolation, match="too much data"):
            server.receive(login_frames(rest))
    else:
        server.receive(login_frames(rest))
        work(server)
        assert server.done and server.leftover == rest


@pytest.mark.parametrize(("mechanism", "side"), [("PLAIN", 1), ("SCRAM-SHA-256", 0)])
def test_arithmetic_is_left_to_the_owner_and_what_comes_meanwhile_is_kept(
    mechanism: str, side: int
) -> None:
    client = SaslClient(mechanism, username="ann", password="secret", hostname="", nonce="n")
    server = a_server(mechanism)
    pair = (client, server)
    for _ in range(2):
        client.receive(server.take_output())
        server.receive(client.take_output())
    waiting, other = pair[side], pair[1 - side]
    wanted = waiting.take_work()
    assert wanted is not None and waiting.take_work() is other.take_work() is None
    assert not waiting.take_output() and not waiting.done
    waiting.receive(b"\x00\x00\x00\x08")  # What would be a faulty frame.
    waiting.receive(bytes(MAX_LEFTOVER - 4))
    with pytest.raises(ProtocolViolation, match="too much data"):
        waiting.receive(b"!")
    waiting.worked(wanted())
    assert waiting.take_output()
    assert waiting.leftover == (b"\x00\x00\x00\x08" + bytes(MAX_LEFTOVER - 4) + b"!") * side


@pytest.mark.parametrize(("more", "is_too_large"), [(0, False), (1, True)])
def test_a_frame_may_be_as_large_as_the_bound(more: int, is_too_large: bool) -> None:
    server = a_server("PLAIN")
    head = SASL_HEADER + (MAX_FRAME + more).to_bytes(4, "big") + b"\x02\x01\x00\x00"
    if is_too_large:
        with pytest.raises(ProtocolViolation, match="faulty SASL frame of 4097 bytes"):
            server.receive(head)
    else:
        server.receive(head)
        assert not server.failed


def test_nothing_is_taken_out_of_its_place() -> None:
    server = a_server("PLAIN")
    with pytest.raises(ProtocolViolation, match="0x43 is out of place"):
        server.performed(RESPONSE, [b"\0ann\0secret"])
    assert not server.done
    server.performed(INIT, ["PLAIN", None])
    with pytest.raises(ProtocolViolation, match="0x41 is out of place"):
        server.performed(INIT, ["PLAIN", b"\0ann\0secret"])
    assert not server.done
    client = a_client()
    with pytest.raises(ProtocolViolation, match="0x44 is out of place"):
        client.performed(OUTCOME, [0, None])
    client.receive(a_server("SCRAM-SHA-256").take_output())
    with pytest.raises(ProtocolViolation, match="0x40 is out of place"):
        client.performed(MECHANISMS, [Array(0xA3, [Symbol("PLAIN")])])
    assert client.mechanism == "SCRAM-SHA-256" and not client.done


def test_a_users_file_loads_the_arithmetic_before_anybody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[int] = []
    monkeypatch.setattr(sasl, "scram", lambda: loaded.append(1))
    Users.parse("")
    assert loaded


@pytest.mark.parametrize("password", ["", "\x07", "secret\u0221"])
def test_what_cannot_be_a_password_is_none(password: str) -> None:
    assert not USERS.check("ann", password)


@pytest.mark.parametrize("response", [b"", b"ann\0secret", b"\0ann\0secret\0", b"\0ann"])
def test_a_malformed_response_of_plain_is_refused(response: bytes) -> None:
    server = a_server("PLAIN")
    server.performed(INIT, ["PLAIN", response])
    assert server.failed and not server.done and server.reason == "malformed PLAIN response"


def test_a_header_of_something_else_is_refused_at_once() -> None:
    with pytest.raises(ProtocolViolation, match=r"the SASL protocol header .* AMQP 1\.0\.0"):
        a_server("PLAIN").receive(AMQP_HEADER)
    with pytest.raises(ProtocolViolation, match="that of AMQP 0-10"):
        a_server("PLAIN").receive(b"AMQP\1\1\0\x0a")
    with pytest.raises(ProtocolViolation, match="that of AMQP 0-9-1"):
        a_server("PLAIN").receive(b"AMQP\0\0\x09\x01")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("password", ["secret", "guess"])
def test_a_login_by_a_password_may_be_a_guess(mechanism: str, password: str) -> None:
    client = SaslClient(mechanism, username="ann", password=password, hostname="", nonce="n")
    server = a_server(mechanism)
    talk(client, server)
    assert server.by_password and server.done == (password == "secret")


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "EXTERNAL", "X"])
def test_other_logins_are_no_guess(mechanism: str) -> None:
    server = a_server(mechanism)
    server.performed(INIT, [mechanism if mechanism != "X" else "Y", b""])
    assert (server.done, server.by_password) == (mechanism != "X", False)
