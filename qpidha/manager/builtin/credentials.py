"""Credentials of a secure local cluster: an authority, a certificate for each broker, users with
random passwords, and rules of who may do what.

They are in `D/credentials/`, which only its owner may enter. The authority, users, passwords and
rules are made once and then kept; certificates are made anew at each start, so that none expires
and no broker lacks one. The openssl command makes them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

from qpidha.amqp.peer.sasl import HASHES, line_of_secret, lines_of_user
from qpidha.client.command.exits import Failure
from qpidha.model.exit_codes import UNAVAILABLE

FOLDER = "credentials"
BROKERS, PROGRAMS = "ha", "app"
"""The user as whom brokers log in to each other, and the one of programs."""
AUTHORITY_DAYS, BROKER_DAYS = 3650, 365
PASSWORD = 24
"""Random bytes in a password."""
SERIAL = 126
"""Random bits in the number of a certificate."""
PATIENCE = 60.0
"""Seconds for openssl, which needs milliseconds."""
OPENSSL = "openssl"
RULES = f"""\
# Who may do what in this cluster; docs/acl.md has the words. qpid-ha acl check FILE, and then
# qpid-ha reload -b BROKER for each broker.
group programs {PROGRAMS}
# The brokers among each other, and tools with their login
acl allow {BROKERS} create link
acl allow {BROKERS} access method
acl allow {BROKERS} access query
# Programs use every queue and exchange; commands such as promote are not theirs
acl allow programs all queue
acl allow programs all exchange
acl allow programs access method name=create
acl allow programs access method name=delete
acl allow programs access method name=purge
acl allow programs access query
acl deny all all
"""
REQUEST = """\
[req]
distinguished_name = name
x509_extensions = authority
prompt = no
utf8 = yes
[name]
CN = {name}
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[broker]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""
"""What openssl is asked for: the section `authority`, or `broker`."""
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The files of one cluster, by the directory of the cluster."""

    directory: Path

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self.directory / FOLDER

    @property
    def trusted(self) -> Path:
        """The certificate of the authority, which everybody needs."""
        return self.folder / "ca.pem"

    @property
    def authority_key(self) -> Path:
        """The key of the authority, which no broker needs."""
        return self.folder / "ca.key"

    @property
    def users(self) -> Path:
        """The users file of the brokers."""
        return self.folder / "users"

    @property
    def rules(self) -> Path:
        """The acl-file of the brokers."""
        return self.folder / "acl"

    def password_file(self, user: str) -> Path:
        """Where a user's password is."""
        return self.folder / f"{user}.password"

    def certificate(self, broker: str) -> Path:
        """The certificate of a broker."""
        return self.folder / f"{broker}.pem"

    def key(self, broker: str) -> Path:
        """The key of a broker's certificate."""
        return self.folder / f"{broker}.key"

    def settings(self, broker: str) -> dict[str, str]:
        """Say how a broker uses them."""
        return {
            "require-encryption": "yes",
            "ssl-cert": str(self.certificate(broker)),
            "ssl-key": str(self.key(broker)),
            "ssl-trusted": str(self.trusted),
            "users-file": str(self.users),
            "sasl-mechanisms": " ".join((*HASHES, "PLAIN")),  # A certificate is no login.
            "acl-file": str(self.rules),
            "ha-username": BROKERS,
            "ha-password-file": str(self.password_file(BROKERS)),
            "ha-mechanism": "SCRAM-SHA-512",
        }

    def make(self, hosts: Mapping[str, Sequence[str]]) -> None:
        """Make what is missing, and certificates for brokers that are dialled by these names and
        addresses. Raises Failure and OSError.
        """
        program = shutil.which(OPENSSL)
        if program is None:
            raise Failure(
                UNAVAILABLE,
                f"{OPENSSL} is not installed here, and it makes the certificates",
                hint=f"install the package {OPENSSL}, or leave --secure out",
            )
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.folder.chmod(0o700)
        with TemporaryDirectory(prefix=".new-", dir=self.folder) as name:
            workshop = Workshop(program, Path(name), self)
            if not self.trusted.exists():
                workshop.make_authority()
            for broker, names in hosts.items():
                workshop.issue(broker, names)
            if not self.users.exists():
                workshop.make_users((BROKERS, PROGRAMS))
            if not self.rules.exists():
                workshop.put(self.rules, RULES)


@dataclass(frozen=True, slots=True)
class Workshop:
    """A directory of its own in which files are made before each is put in its place."""

    program: str
    directory: Path
    credentials: Credentials

    def make_authority(self) -> None:
        """Make the authority of this cluster."""
        certificate, key = self.directory / "ca.pem", self.directory / "ca.key"
        request = self._request("Authority of this cluster", ["localhost"])
        days = ("-days", str(AUTHORITY_DAYS))
        self._openssl(
            "req", "-x509", *KEY, *days, "-config", request, "-keyout", key, "-out", certificate
        )
        self._place(key, self.credentials.authority_key)
        self._place(certificate, self.credentials.trusted)

    def issue(self, broker: str, names: Sequence[str]) -> None:
        """Have the authority say that a broker has these names and addresses."""
        certificate, key, asked = (
            self.directory / f"{broker}.{kind}" for kind in ("pem", "key", "csr")
        )
        request = self._request(broker, names)
        self._openssl("req", "-new", *KEY, "-config", request, "-keyout", key, "-out", asked)
        authority = ("-CA", self.credentials.trusted, "-CAkey", self.credentials.authority_key)
        number = ("-set_serial", str(secrets.randbits(SERIAL) + 1), "-days", str(BROKER_DAYS))
        words = ("-extfile", request, "-extensions", "broker", "-out", certificate)
        self._openssl("x509", "-req", "-in", asked, *authority, *number, *words)
        self._place(key, self.credentials.key(broker))
        self._place(certificate, self.credentials.certificate(broker))

    def make_users(self, names: Sequence[str]) -> None:
        """Give users random passwords; the users file comes last, since it says that all is
        there.
        """
        lines = [line_of_secret(secrets.token_bytes)]
        for name in names:
            password = secrets.token_urlsafe(PASSWORD)
            lines += lines_of_user(name, password, secrets.token_bytes)
            self.put(self.credentials.password_file(name), password + "\n")
        self.put(self.credentials.users, "".join(f"{line}\n" for line in lines))

    def put(self, path: Path, text: str) -> None:
        """Write a file and put it in its place."""
        made = self.directory / path.name
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        self._place(made, path)

    def _request(self, name: str, names: Sequence[str]) -> Path:
        path = self.directory / f"{name.split()[0]}.cnf"
        path.write_text(REQUEST.format(name=name, names=", ".join(map(_alternative, names))))
        return path

    def _place(self, made: Path, path: Path) -> None:
        made.chmod(0o600)
        made.replace(path)

    def _openssl(self, *words: object) -> None:
        done = subprocess.run(
            [self.program, *map(str, words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            umask=0o077,
        )
        if done.returncode:
            said = " ".join(done.stderr.split())[-300:]
            raise Failure(
                UNAVAILABLE,
                f"openssl {words[0]} made no certificate: {said}",
                hint=f"is {self.credentials.folder} as it was made? Without it a new one is made",
            )


def _alternative(name: str) -> str:
    """Write a name or an address as a certificate has it."""
    try:
        return f"IP:{ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"
