"""TLS contexts: private keys that need a password."""

from __future__ import annotations

import ssl
import time
from dataclasses import replace
from pathlib import Path

import pytest

from qpidha.model.exit_codes import CONFIG
from qpidha.model.settings import Settings
from qpidha.runtime import tls
from qpidha.runtime.exits import CannotStart
from qpidha.runtime.tls import certificate_end, check_certificate, client_context, server_context
from tests.patience import STATE
from tests.runtime.daemons import run
from tests.system.cluster import wait_for
from tests.system.credentials import Authority

DAY = 86_400


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return those of a broker whose key needs the password `secret`."""
    authority = Authority(tmp_path_factory.mktemp("credentials"))
    certificate, key = authority.issue("broker")
    return Settings(ssl_cert=str(certificate), ssl_key=str(authority.lock(key, "secret")))


def test_qpid_20_the_password_of_a_key_is_the_first_line_of_a_file(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "password").write_bytes(b"secret\r\nof the broker\n")
    given = replace(settings, ssl_key_password_file=str(tmp_path / "password"))
    server_context(given)
    client_context(given)
    server_context(replace(given, ssl_key=settings.ssl_key.replace(".locked", ".key")))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"wrong\n", "locked cannot be used: the key has another password"),
        (b"\nsecret\n", "password cannot be used: its first line, which is the password, is empty"),
        (b"", "is empty"),
        (b"\xff\n", "is not UTF-8"),
        (b"x" * 2000, "longer than"),
    ],
)
def test_a_password_that_cannot_be_used_is_called_so(
    settings: Settings, tmp_path: Path, content: bytes, says: str
) -> None:
    (tmp_path / "password").write_bytes(content)
    given = replace(settings, ssl_key_password_file=str(tmp_path / "password"))
    with pytest.raises(CannotStart, match=says) as error:
        server_context(given)
    assert error.value.code == CONFIG
    assert "ssl-key-password-file" in error.value.text + error.value.hint


def test_a_file_of_a_password_that_is_not_there_is_named(settings: Settings) -> None:
    with pytest.raises(CannotStart, match="ssl-key-password-file /nowhere .* no such file"):
        server_context(replace(settings, ssl_key_password_file="/nowhere"))


def test_nobody_is_asked_on_the_terminal_for_the_password_of_a_key(settings: Settings) -> None:
    code, _, log = run("--check", "--ssl-cert", settings.ssl_cert, "--ssl-key", settings.ssl_key)
    assert code == CONFIG and "the key needs a password" in log
    assert "next: " in log and "ssl-key-password-file" in log


def test_a_certificate_whose_time_is_over_is_told(tmp_path: Path) -> None:
    """By --check, at the start and when it is read again; peers would only say that to us."""
    authority = Authority(tmp_path)
    good, key = authority.issue("broker")
    settings = Settings(
        ssl_cert=str(good), ssl_key=str(key), ssl_require_client_authentication=True
    )
    assert check_certificate(settings) == check_certificate(Settings()) == []
    certificate, key = authority.issue("former", days=0)
    former = replace(settings, ssl_cert=str(certificate), ssl_key=str(key))
    [told] = wait_for(lambda: check_certificate(former))
    assert "former.pem" in told and "certificate has expired" in told
    assert certificate_end(Settings()) == 0
    assert 0 <= time.time() - certificate_end(former) < STATE
    assert 0 <= time.time() + 2 * DAY - certificate_end(settings) < STATE


def test_a_certificate_is_looked_at_where_openssl_is_set_up_for_no_more_than_tls_1_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine may forbid TLS 1.3, in which a handshake has fewer flights."""

    def older(settings: Settings) -> ssl.SSLContext:
        context = server_context(settings)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    monkeypatch.setattr(tls, "server_context", older)
    good, key = Authority(tmp_path).issue("broker")
    settings = Settings(ssl_cert=str(good), ssl_key=str(key))
    assert check_certificate(settings) == []
    assert certificate_end(settings) > time.time()
