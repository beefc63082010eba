"""Users files and certificates for the system tests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.patience import STATE

ITERATIONS = 4096


def users_file(path: Path, passwords: Mapping[str, str]) -> Path:
    """Write SCRAM-SHA-256 verifiers (RFC 5802), worked out here and not by the broker's own
    code.
    """
    lines = []
    for number, (name, password) in enumerate(passwords.items()):
        salt = f"salt of user {number}".encode()
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
        stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
        server = hmac.digest(salted, b"Server Key", "sha256")
        salt_text, stored_text, server_text = (
            base64.b64encode(part).decode() for part in (salt, stored, server)
        )
        lines.append(f"{name}:SCRAM-SHA-256${ITERATIONS}:{salt_text}${stored_text}:{server_text}\n")
    path.write_text("".join(lines))
    path.chmod(0o600)
    return path


class Authority:
    """A certificate authority of one test, made with the openssl command."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificate = directory / "ca.pem"
        self.key = directory / "ca.key"
        self._openssl(
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=Test CA",
            "-keyout",
            self.key,
            "-out",
            self.certificate,
        )

    def issue(
        self, name: str, alternatives: str = "DNS:localhost,IP:127.0.0.1", *, days: int = 2
    ) -> tuple[Path, Path]:
        """Return a certificate for CN=`name` that lasts so many days, and its key."""
        request, key, certificate = (
            self.directory / f"{name}.{kind}" for kind in ("csr", "key", "pem")
        )
        self._openssl(
            "req",
            "-new",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            f"/CN={name}",
            "-addext",
            f"subjectAltName={alternatives}",
            "-keyout",
            key,
            "-out",
            request,
        )
        self._openssl(
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            self.certificate,
            "-CAkey",
            self.key,
            "-CAcreateserial",
            "-days",
            days,
            "-copy_extensions",
            "copy",
            "-out",
            certificate,
        )
        return certificate, key

    def lock(self, key: Path, password: str) -> Path:
        """Return a copy of a key that needs a password."""
        locked = key.with_suffix(".locked")
        self._openssl("pkey", "-in", key, "-aes256", "-passout", f"pass:{password}", "-out", locked)
        return locked

    def _openssl(self, *arguments: object) -> None:
        subprocess.run(
            ["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=STATE
        )
