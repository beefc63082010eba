"""A sasldb: users and passwords of Cyrus SASL, with which qpidd lets its clients in.

The file holds the passwords themselves, so a users file can be made that has the same ones. Where
it is one of Berkeley DB, as Debian's, `db_dump` reads it; the names alone are listed by
`sasldblistusers2`, which a host with such a file has, and which knows every kind of it. Must not
know users files. Source: Cyrus SASL `sasldb/allockey.c`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from qpidha.client.command.exits import Failure
from qpidha.model.exit_codes import DATA_ERROR, NO_INPUT, UNAVAILABLE

PASSWORD = b"userPassword"
"""The property of a user that is his password."""
MAGIC = b"\x61\x15\x06\x00"
"""Of a hash of Berkeley DB, at its 12th byte; on other machines turned round."""
_ESCAPE = re.compile(rb"\\([0-9a-f]{2}|\\)")


def passwords_in(path: str) -> dict[str, bytes]:
    """Return `name@realm` and password of each user. Raises Failure."""
    _check(path)
    with open(path, "rb") as file:
        magic = file.read(16)[12:]
    if magic not in (MAGIC, MAGIC[::-1]):
        raise Failure(
            DATA_ERROR,
            f"the passwords in {path} cannot be read",
            reason="it is no hash of Berkeley DB, as Debian's sasldb are",
            hint="--new-passwords FILE gives each user a new one, and writes them there",
        )
    text = _output("db_dump", "-p", os.path.abspath(path), package="db-util")
    header, _, rest = text.partition(b"HEADER=END\n")
    lines = rest.partition(b"DATA=END\n")[0].splitlines()
    found: dict[str, bytes] = {}
    for key, value in zip(lines[::2], lines[1::2], strict=True):
        name, realm, what = (_unescaped(key).split(b"\0") + [b"", b""])[:3]
        if what == PASSWORD:
            found[_full(name, realm)] = _unescaped(value)
    return found


def names_in(path: str) -> list[str]:
    """Return `name@realm` of each user. Raises Failure."""
    _check(path)
    text = _output("sasldblistusers2", "-f", os.path.abspath(path), package="sasl2-bin")
    found: dict[str, None] = {}
    for line in text.splitlines():
        full, separator, what = line.rpartition(b": ")
        if separator and what == PASSWORD:
            name, _, realm = full.rpartition(b"@")
            found[_full(name, realm)] = None
    return list(found)


def _check(path: str) -> None:
    """Raise Failure for what cannot be read."""
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise Failure(
            NO_INPUT,
            f"cannot read {path}: {error.strerror}",
            hint="name the sasldb of qpidd: its sasldb_path is in /etc/sasl2/qpidd.conf",
        ) from error


def _output(program: str, *words: str, package: str) -> bytes:
    """Run a program on a sasldb; return what it prints."""
    place = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if place is None:
        raise Failure(
            UNAVAILABLE,
            f"{program} is not there, which reads a sasldb",
            hint=f"install the package {package} (Debian's name)",
        )
    done = subprocess.run(
        [place, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode:
        raise Failure(
            DATA_ERROR,
            f"{program} cannot read the file: {said or f'exit code {done.returncode}'}",
            hint="is it a sasldb?",
        )
    return done.stdout


def _unescaped(line: bytes) -> bytes:
    """Read a line of `db_dump -p`, which begins with a space."""
    return _ESCAPE.sub(
        lambda match: b"\\" if match[1] == b"\\" else bytes([int(match[1], 16)]), line[1:]
    )


def _full(name: bytes, realm: bytes) -> str:
    text = name.decode(errors="replace")
    return f"{text}@{realm.decode(errors='replace')}" if realm else text
