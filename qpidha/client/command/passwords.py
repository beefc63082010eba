"""Passwords of commands: from a file, from the environment, or from whoever sits at the terminal.
On a command line other users of the machine could read them.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure
from qpidha.model.exit_codes import DATA_ERROR, INTERRUPTED, NO_INPUT
from qpidha.model.password_file import password_in

USER, PASSWORD = "QPIDHA_USER", "QPIDHA_PASSWORD"
"""Variables of the environment."""
STDIN = "-"


def password_for(user: str, options: Options, configured: str = "", *, ask: bool) -> str:
    """Return the password of a user: as the options say, else as --config has it, else of the
    environment, else of the terminal if `ask`; empty if there is none.
    """
    if options.password:
        return options.password
    if options.password_file and (options.may_ask or options.password_file != STDIN):
        if options.password_file not in options.passwords:
            options.passwords[options.password_file] = read_password(options.password_file)
        return options.passwords[options.password_file]
    known = configured or os.environ.get(PASSWORD, "")
    if known or not ask or not user or not options.may_ask or not sys.stdin.isatty():
        return known
    if user not in options.asked:
        try:
            # Loaded late: few calls ask, and all others have to be quick.
            options.asked[user] = import_module("getpass").getpass(f"Password of {user}: ")
        except EOFError as error:
            raise Failure(
                INTERRUPTED, "no password was given", hint=f"--password-file FILE, or {PASSWORD}"
            ) from error
    return options.asked[user]


def read_password(path: str) -> str:
    """Read the password in a file's first line; `-` is standard input. Raises Failure."""
    try:
        if path == STDIN:
            return password_in(sys.stdin.buffer.readline())
        with open(path, "rb") as file:
            return password_in(file.read())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Failure(
            NO_INPUT if isinstance(error, OSError) else DATA_ERROR,
            f"cannot use {path}",
            reason=reason or "",
            hint="name a file whose first line is the password",
        ) from error
