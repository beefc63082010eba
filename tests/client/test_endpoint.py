"""Addresses of brokers: one, or a list of them, with TLS and credentials."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.client.endpoint import Endpoint, Tls, parse_endpoints
from qpidha.client.errors import KEY_PASSWORD, ClientError, TlsError
from tests.system.credentials import Authority


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("h", [Endpoint("h", 5672)]),
        ("h:1", [Endpoint("h", 1)]),
        ("amqp://h", [Endpoint("h", 5672)]),
        ("amqps://h", [Endpoint("h", 5671, True)]),
        ("AMQPS://h/", [Endpoint("h", 5671, True)]),
        ("ssl:h", [Endpoint("h", 5671, True)]),
        ("[::1]", [Endpoint("::1", 5672)]),
        ("[::1]:7", [Endpoint("::1", 7)]),
        ("amqps://[fe80::1%eth0]", [Endpoint("fe80::1%eth0", 5671, True)]),
        ("amqp://u:p@h", [Endpoint("h", 5672, False, "u", "p")]),
        ("amqp://u%3A%25:p@h", [Endpoint("h", 5672, False, "u:%", "p")]),
        ("amqp://u:p%40%2F%3A@h", [Endpoint("h", 5672, False, "u", "p@/:")]),
        ("amqps://u/p@h", [Endpoint("h", 5671, True, "u", "p")]),
        ("amqp://u:p/q@h", [Endpoint("h", 5672, False, "u", "p/q")]),
        ("amqp://u/p:q@h", [Endpoint("h", 5672, False, "u", "p:q")]),
        (
            "amqp:u/p@tcp:a:1,ssl:b:2",
            [Endpoint("a", 1, False, "u", "p"), Endpoint("b", 2, True, "u", "p")],
        ),
        (
            "amqps://u:p@a,b , c:9",
            [Endpoint(host, port, True, "u", "p") for host, port in (("a", 0), ("b", 0), ("c", 9))],
        ),
        ("a,a,a:5672", [Endpoint("a")]),
    ],
)
def test_an_address_is_read(text: str, wanted: list[Endpoint]) -> None:
    assert parse_endpoints(text) == wanted


def test_credentials_of_an_address_come_before_those_of_the_client() -> None:
    first, second = parse_endpoints(["amqp://u:p@a", "b"], user="ann", password="x")
    assert (first.user, second.user) == ("u", "u")
    (only,) = parse_endpoints("a", user="ann", password="x")
    assert (only.user, only.password) == ("ann", "x")


def test_credentials_of_the_client_hold_for_endpoints_without_any() -> None:
    plain = Endpoint("a", mechanism="PLAIN")
    (only,) = parse_endpoints(plain, user="ann", password="x")
    assert only == Endpoint("a", user="ann", password="x", mechanism="PLAIN")
    named = Endpoint("a", user="u", password="p")
    first, second = parse_endpoints([named, Endpoint("b")], user="ann", password="x")
    assert (first, second.user, second.password) == (named, "u", "p")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " , ",
        "amqp://",
        "amqp://u:p@",
        ":5672",
        "http://h",
        "ftp:h",
        "h:0",
        "h:70000",
        "h:99999",
        "h:-1",
        "h:x",
        "a b",
        "::1",
        "::1:5672",
        "[::1",
        "[::1]:0",
        "[:::]",
        "amqp://u:%zz@h",
        "amqp://50%:p@h",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ClientError) as error:
        parse_endpoints(text)
    assert error.value.hint


def test_a_login_before_the_scheme_is_refused_with_where_it_stands() -> None:
    with pytest.raises(ClientError, match="login stands before its scheme") as error:
        parse_endpoints("u/p@amqps://h:5671")
    assert error.value.hint == "amqps://user:password@h:5671"


@pytest.mark.parametrize("port", [-1, 65536, 70000, "5672", None, True])
def test_what_is_no_port_is_refused(port: Any) -> None:
    with pytest.raises(ClientError, match="no port") as error:
        Endpoint("h", port)
    assert error.value.hint


@pytest.mark.parametrize(
    "host", ["", " ", "a b", "h:5672", "[h", "[[::1]]", "[]", "u@h", "amqp://h", "a,b", "1::2::3"]
)
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(ClientError, match="no host") as error:
        Endpoint(host)
    assert error.value.hint


def test_an_ipv6_address_has_brackets_or_none() -> None:
    assert Endpoint("[::1]", 7) == Endpoint("::1", 7)
    assert str(Endpoint("[::1]", 7)) == "[::1]:7"
    assert Endpoint("h", 0) == Endpoint("h") == Endpoint("h", 5672)


@pytest.mark.parametrize(
    "text",
    [
        "amqp://u:secret@h:x",
        "u/secret@h:x",
        "amqp://u:secret%zz@h",
        "ftp://u:secret@h",
        "amqp://u:secret:secret@h:x",
        "amqps:u/secret@secret@h:x",
        "u/secret@amqp://u:secret@h",
    ],
)
def test_an_error_never_shows_a_password(text: str) -> None:
    with pytest.raises(ClientError) as error:
        parse_endpoints(text)
    assert "secret" not in str(error.value) + repr(error.value)
    assert "secret" not in repr(Endpoint("h", password="secret"))


def test_an_address_is_written_without_credentials() -> None:
    endpoint = Endpoint("::1", 0, True, "u", "secret")
    assert (str(endpoint), endpoint.url) == ("[::1]:5671", "amqps://[::1]:5671")


def test_files_that_cannot_be_used_are_named(tmp_path) -> None:
    with pytest.raises(TlsError, match="nowhere.pem"):
        Tls(str(tmp_path / "nowhere.pem")).context()


def test_a_key_may_need_a_password_and_nobody_is_asked_for_it(tmp_path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("guest")
    own = {"certificate": str(certificate), "key": str(authority.lock(key, "secret"))}
    Tls(**own, password="secret").context()
    assert "secret" not in repr(Tls(**own, password="secret"))
    for password, says in (("", "needs a password"), ("wrong", "has another password")):
        with pytest.raises(TlsError, match=says) as error:
            Tls(**own, password=password).context()
        assert error.value.hint == KEY_PASSWORD
