"""`qpid-ha user`: the users file of a broker, which holds SCRAM verifiers and never a password.

A file is read, changed and put in place of the old one at once, so that a broker that starts
meanwhile sees one or the other. Lines that are not changed, comments among them, stay as they are.
Brokers read their users file when they start, on SIGHUP, and by `qpid-ha reload`.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import sys
import tempfile
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from qpidha.amqp.peer.sasl import Users, is_of_user, line_of_secret, lines_of_user
from qpidha.cli.app import add_group, settings_of
from qpidha.cli.broker.sasldb import names_in, passwords_in
from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import Listing, print_json, print_list, talk
from qpidha.client.command.passwords import read_password
from qpidha.model.errors import InvalidArgument
from qpidha.model.exit_codes import DATA_ERROR, INTERRUPTED, NO, NO_INPUT, NO_PERMISSION, USAGE
from qpidha.model.principal import ANONYMOUS, without_realm
from qpidha.model.settings import DEFAULTS

USERS = Listing(
    "users",
    ("name", "mechanisms", "iterations"),
    cells={"mechanisms": lambda row: " ".join(row["mechanisms"])},
)
IMPORTED = Listing("users", ("name", "change", "why"))
MODE = 0o600
NEW_PASSWORD = 15
"""Random bytes of a new password."""
FORBIDDEN = "$:"
"""Characters that would end a name before its end."""

UserName = Annotated[str, typer.Argument(help="name of the user, with or without @REALM")]
UsersFile = Annotated[
    str,
    typer.Option(
        "--users-file", metavar="FILE", help="the file that the broker's users-file names"
    ),
]
Realm = Annotated[
    str, typer.Option("--realm", help="the broker's realm; NAME and NAME@REALM are the same user")
]


@dataclass(slots=True)
class File:
    """A users file as lines, and what they mean."""

    path: str
    lines: list[str]
    users: Users

    def without(self, name: str) -> list[str]:
        """Give all lines but those of one user."""
        bare = self.users.bare(name)
        return [line for line in self.lines if self.name_in(line) != bare]

    def name_in(self, line: str) -> str:
        """Name the user of a line; empty for any other line."""
        if not is_of_user(line):
            return ""
        return self.users.bare(line.strip().partition("$")[0].rpartition(":")[0])


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    add_group(
        app,
        "user",
        "Add, delete, import and list the users of a users file.",
        {"add": _add, "del": _del, "import": _import, "list": _list},
    )


def _add(
    context: typer.Context,
    name: UserName,
    users_file: UsersFile,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="read the password from standard input")
    ] = False,
    realm: Realm = DEFAULTS["realm"],
) -> None:
    """Add a user, or change the password of one; asks for the password.

    Example: qpid-ha user add alice --users-file /etc/qpidha/users
    """
    options = settings_of(context)
    try:
        _check_name(name, realm)
        file = _read(users_file, realm, missing_ok=True)
        password = _password(options, name, password_stdin)
        lines = lines_of_user(name, password, secrets.token_bytes)
        if not file.users.has_secret:
            lines.insert(0, line_of_secret(secrets.token_bytes))
    except InvalidArgument as error:
        raise Failure(USAGE, error.text, hint=error.hint) from error
    known = file.users.bare(name) in file.users.verifiers
    _write(file.path, [*file.without(name), *lines])
    _done(
        options,
        name,
        "changed" if known else "added",
        f"user {name} {'has a new password' if known else 'is added'} in {file.path}",
    )


def _import(
    context: typer.Context,
    sasldb: Annotated[str, typer.Argument(help="the sasldb of qpidd, as /etc/sasldb2")],
    users_file: UsersFile,
    new_passwords: Annotated[
        str,
        typer.Option(
            "--new-passwords",
            metavar="FILE",
            help="give each user a new password, and write them into this file, which is new",
        ),
    ] = "",
    realm: Realm = DEFAULTS["realm"],
) -> None:
    """Add the users of a sasldb, with the passwords that they have there; those who are users
    already stay as they are.

    Example: qpid-ha user import /etc/sasldb2 --users-file /etc/qpidha/users
    """
    options = settings_of(context)
    file = _read(users_file, realm, missing_ok=True)
    found: dict[str, str | None]
    if new_passwords:
        found = {name: secrets.token_urlsafe(NEW_PASSWORD) for name in names_in(sasldb)}
    else:
        found = {name: _text_of(password) for name, password in passwords_in(sasldb).items()}
    if not found:
        raise Failure(NO, f"there are no users in {sasldb}", hint="name another sasldb")
    lines, rows, added = [*file.lines], [], {}
    for full, password in sorted(found.items()):
        name = file.users.bare(full)
        fate, why = "added", ""
        try:
            _check_name(name, realm)
            if name in file.users.verifiers or name in added:
                fate, why = "kept", "a user of the file already"
            elif password is None:
                raise InvalidArgument("the password is no text")
            else:
                lines += lines_of_user(name, password, secrets.token_bytes)
                added[name] = password
        except InvalidArgument as error:
            fate, why = "refused", error.text
        rows.append({"name": name, "change": fate, "why": why})
    if added:
        if not file.users.has_secret:
            lines.insert(0, line_of_secret(secrets.token_bytes))
        if new_passwords:
            _write_passwords(new_passwords, added)
        try:
            _write(file.path, lines)
        except Failure:
            if new_passwords:
                os.unlink(new_passwords)  # They are nobody's.
            raise
    print_list(options, IMPORTED, rows)
    if any(row["change"] == "refused" for row in rows):
        raise Failure(
            NO, f"not all users of {sasldb} are in {file.path}", hint="qpid-ha user add NAME"
        )


def _check_name(name: str, realm: str) -> None:
    """Raise InvalidArgument for what cannot be the name of a user."""
    # Spaces and control characters are not printable, or are split at.
    # What is no text in a sasldb was replaced.
    if (
        not name.isprintable()
        or "\ufffd" in name
        or name.split() != [name]
        or name.startswith("#")
        or any(character in name for character in FORBIDDEN)
    ):
        hint = "no $, no :, no spaces or control characters in it, and no # at its beginning"
        raise InvalidArgument(f"{name!r} cannot be a user's name", hint=hint)
    if without_realm(name, realm) == ANONYMOUS:
        text = f"a user cannot be called {ANONYMOUS}: that is who does not log in"
        raise InvalidArgument(text, hint="give another name")


def _text_of(password: bytes) -> str | None:
    try:
        return password.decode()
    except UnicodeDecodeError:
        return None


def _write_passwords(path: str, passwords: dict[str, str]) -> None:
    """Write new passwords into a file that is new, too, and for nobody else to read."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{name} {password}\n" for name, password in passwords.items())
    except OSError as error:
        raise Failure(
            NO_PERMISSION if isinstance(error, PermissionError) else NO_INPUT,
            f"cannot write {path}: {error.strerror}",
            hint="--new-passwords names a file that is not there yet",
        ) from error


def _del(
    context: typer.Context, name: UserName, users_file: UsersFile, realm: Realm = DEFAULTS["realm"]
) -> None:
    """Delete a user.

    Example: qpid-ha user del alice --users-file /etc/qpidha/users
    """
    options = settings_of(context)
    file = _read(users_file, realm)
    if file.users.bare(name) not in file.users.verifiers:
        raise Failure(
            NO,
            f"there is no user {name!r} in {users_file}",
            hint=f"qpid-ha user list --users-file {users_file}",
        )
    _write(file.path, file.without(name))
    _done(options, name, "deleted", f"user {name} is deleted from {file.path}")


def _list(context: typer.Context, users_file: UsersFile, realm: Realm = DEFAULTS["realm"]) -> None:
    """List the users, without anything about their passwords.

    Example: qpid-ha user list --users-file /etc/qpidha/users
    """
    options = settings_of(context)
    verifiers = _read(users_file, realm).users.verifiers
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "mechanism": next(iter(own)),
            "mechanisms": [*own],
            "iterations": min(verifier.iterations for verifier in own.values()),
        }
        for name, own in verifiers.items()
    ]
    print_list(options, USERS, rows)


def _done(options: Options, name: str, change: str, text: str) -> None:
    if options.as_json:
        print_json({"schema_version": 1, "name": name, "change": change})
    else:
        talk(options, f"{text}; brokers see it when they start, and by qpid-ha reload")


def _password(options: Options, name: str, from_stdin: bool) -> str:
    """Get the password of a new user, from its operator or from a pipe."""
    if from_stdin:
        try:
            return sys.stdin.readline().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise Failure(
                DATA_ERROR, "the password on standard input is not UTF-8", hint="give it in UTF-8"
            ) from error
    if options.password:
        raise Failure(
            USAGE,
            "a password on the command line can be seen by others",
            hint="--password-stdin, --password-file FILE, or let it be asked for",
        )
    if options.password_file:
        return read_password(options.password_file)
    if not sys.stdin.isatty():
        raise Failure(
            USAGE, "there is no terminal to ask for the password", hint="--password-stdin"
        )
    try:
        password = getpass.getpass(f"Password of {name}: ")
        again = getpass.getpass("Again: ")
    except EOFError as error:
        raise Failure(
            INTERRUPTED,
            "no password was given",
            hint="--password-stdin reads it from standard input",
        ) from error
    if password != again:
        raise Failure(NO, "the two passwords differ", hint="again")
    return password


def _read(path: str, realm: str, *, missing_ok: bool = False) -> File:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError as error:
        if not missing_ok:
            raise Failure(
                NO_INPUT, f"there is no users file {path}", hint="qpid-ha user add makes one"
            ) from error
        text = ""
    except UnicodeDecodeError as error:
        raise Failure(
            DATA_ERROR, f"{path} is not UTF-8 text", hint="is it a users file?"
        ) from error
    except OSError as error:
        raise Failure(
            NO_INPUT,
            f"cannot read {path}: {error.strerror}",
            hint="--users-file names the broker's users-file",
        ) from error
    try:
        users = Users.parse(text, realm=realm)
    except InvalidArgument as error:
        raise Failure(
            DATA_ERROR,
            f"{path}: {error.text}",
            hint="delete or correct that line; nothing was changed",
        ) from error
    return File(path, text.splitlines(), users)


def _write(path: str, lines: list[str]) -> None:
    """Put a new file in place of the old one: its owner's, and for nobody else to read."""
    path = os.path.realpath(path)
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".users-", dir=os.path.dirname(path))
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, MODE)
            # Root may keep the file of a broker that is not root.
            if os.path.exists(path) and os.geteuid() == 0:
                owner = os.stat(path)
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        code = NO_PERMISSION if isinstance(error, PermissionError) else NO_INPUT
        raise Failure(
            code,
            f"cannot write {path}: {error.strerror}",
            hint="is there such a directory, and may you write to it?",
        ) from error
