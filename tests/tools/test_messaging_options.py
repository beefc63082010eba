"""Connection options of qpid-send and qpid-receive: each key does what it says or is refused by
name, at real brokers where it can be seen there.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from qpidha.client.blocking import Client
from qpidha.client.management import Conversation
from qpidha.tools import qpid_receive, qpid_send
from qpidha.tools.connection_options import ToolError
from qpidha.tools.messaging_log import Log
from qpidha.tools.messaging_options import FIXED, REFUSED, ConnectionOptions, known
from tests.cli.test_login import serving


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of this machine alone."""
    with serving(str(tmp_path_factory.mktemp("broker") / "a.sock"), "--auth", "no") as found:
        yield found


def read(text: str, brokers: str = "one") -> ConnectionOptions:
    return ConnectionOptions.read(brokers, text)


def test_addresses_and_logins() -> None:
    found = read(
        "{username: ann, password: 'p,w', sasl-mechanisms: 'PLAIN', reconnect-urls: [two, 'three']}"
    )
    assert [(each.host, each.user, each.mechanism) for each in found.endpoints] == [
        ("one", "ann", "PLAIN"),
        ("two", "ann", "PLAIN"),
        ("three", "ann", "PLAIN"),
    ]
    for name in ("sasl-service", "sasl_service", "sasl_service_name"):
        (kerberos,) = read(f"{{sasl-mechanism: GSSAPI, {name}: qpidd}}").endpoints
        assert (kerberos.mechanism, kerberos.service) == ("GSSAPI", "qpidd")
    (only,) = read("{transport: ssl, ssl_trustfile: '/t'}").endpoints
    assert only.tls
    (other,) = read("{user: ann}", "bob/secret@one:1").endpoints
    assert (other.user, other.password) == ("bob", "secret")


@pytest.mark.parametrize("key", [*REFUSED, *FIXED])
def test_a_key_without_a_meaning_is_refused_by_name(key: str) -> None:
    for name in (key, key.replace("_", "-")):
        with pytest.raises(ToolError, match=f"connection option {name}[: ]"):
            read(f"{{{name}: 77}}")
    for value in FIXED.get(key, ((), ""))[0]:
        read(f"{{{key}: {value}}}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{reconect: true}", "connection option reconect is no connection option. Try: one of"),
        ("{reconnect: maybe}", "reconnect is true or false, not 'maybe'"),
        ("{heartbeat: -1}", "heartbeat is a number of seconds, not -1"),
        ("{heartbeat: soon}", "heartbeat is a number of seconds, not 'soon'"),
        ("{reconnect_limit: 1.5}", "reconnect_limit is a whole number, not 1.5"),
        ("{username: [a]}", "username is text, not ['a']"),
        ("{properties: a}", "properties is a map, not 'a'"),
        ("{protocol: amqp0-10}", "protocol: amqp0-10 is not spoken, amqp1.0 alone is"),
        ("{transport: rdma}", "transport: rdma is not there. Try: tcp or ssl"),
        ("{ssl_keyfile: k}", "ssl_keyfile is given without ssl_certfile. Try: both"),
        ("{reconnect: true", "a '}' is expected, character 16 of {reconnect: true"),
    ],
)
def test_what_is_wrong_is_told(text: str, said: str) -> None:
    with pytest.raises(ToolError) as error:
        read(text)
    assert said in str(error.value)


def test_every_key_that_is_offered_can_be_given() -> None:
    values = {"properties": "{a: b}", "ssl-keyfile": "k, ssl-certfile: c", "protocol": "amqp1.0"}
    values |= {"transport": "tcp"}
    values |= {name.replace("_", "-"): str(allowed[0]) for name, (allowed, _) in FIXED.items()}
    for key in known():
        read(f"{{{key}: {values.get(key, '1')}}}")


def test_the_broker_hears_who_connects(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-b", address, "-a", "seen;{create:always}"]
    given = "{container-id: mine, client-properties: {site: north}, protocol: 'amqp1.0,amqp0-10'}"
    assert qpid_send.main([*words, "--connection-options", given]) == 0
    given = "{set-to-on-send: true, address-passthrough: true, nest-annotations: true}"
    assert qpid_send.main(["-b", address, "-a", "seen", "--connection-options", given]) == 0
    assert qpid_receive.main(["-b", address, "-a", "seen", "--print-headers", "yes"]) == 0
    assert "x-amqp-to:seen" in capsys.readouterr().out
    client = read("{container-id: mine, heartbeat: 0}", address).client(
        "qpid-send", Log(enabled=[], disabled=[])
    )
    with client:
        (mine,) = [each for each in _connections(client) if each["container"] == "mine"]
        assert mine["process"] == "qpid-send"


def _connections(client: Client) -> list[dict[str, object]]:
    return list(Conversation(client).call("list_connections"))


def test_a_limit_of_attempts_ends_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{nobody.getsockname()[1]}"
        for given, most in (
            ("{reconnect: true, reconnect-limit: 2, reconnect-interval: 0.01}", 3),
            ("{reconnect: true, reconnect-limit: 0, reconnect-urls: 'localhost:1'}", 2),
        ):
            words = ["-b", url, "-a", "q", "--connection-options", given]
            assert qpid_send.main(words) == 1
            said = capsys.readouterr().err
            assert f"no broker was reached in {most} attempts" in said
        words = ["-b", url, "-a", "q", "--connection-options"]
        assert qpid_send.main([*words, "{reconnect: true, reconnect-timeout: 0.2}"]) == 1
        assert "no broker served within 0.2 s" in capsys.readouterr().err
        assert qpid_send.main([*words, "{}"]) == 1
        assert re.fullmatch(
            r"qpid-send: 127\.0\.0\.1:\d+ cannot be reached: Connection refused\. "
            r"Try: does a broker run there\?\n",
            capsys.readouterr().err,
        )
