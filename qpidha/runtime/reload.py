"""Reload: what a broker reads again while it serves: its users, its access control list, its
certificates, and what it logs and where.

Everything is read before anything is changed, so that a broker with a mistake in a file goes on as
it was. Knows no daemon. What else has changed needs a restart, and is named.
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TextIO

from qpidha.amqp.peer.sasl import Users
from qpidha.management.acl import AccessList
from qpidha.model.exit_codes import CONFIG
from qpidha.model.settings import FIELD_OF, OPTIONS, Settings
from qpidha.runtime.access_list import load_access_list
from qpidha.runtime.configuration import Configuration
from qpidha.runtime.exits import CannotStart, reason_of
from qpidha.runtime.tls import check_certificate, client_context, server_context
from qpidha.runtime.users import check_users, load_users

READ_AGAIN = (
    "users-file",
    "acl-file",
    "connection-limit-per-user",
    "connection-limit-per-ip",
    "max-queues-per-user",
    "ssl-cert",
    "ssl-key",
    "ssl-key-password-file",
    "ssl-trusted",
    "log-enable",
    "log-format",
    "log-to-file",
)
"""Options whose new values are used without a restart."""
LOG_MODE = 0o640


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was read again."""

    settings: Settings
    users: Users
    acl: AccessList | None
    tls: ssl.SSLContext | None
    """What the TLS port shows from now on, if there is one."""
    log: TextIO
    warnings: list[str]


def read_again(configuration: Configuration, old: Settings, secret: bytes) -> Surroundings:
    """Read the files anew that the settings name. Raises CannotStart."""
    given = configuration.settings
    changes = {FIELD_OF[name]: getattr(given, FIELD_OF[name]) for name in READ_AGAIN}
    if bool(given.ssl_cert) != bool(old.ssl_cert):
        changes["ssl_cert"] = old.ssl_cert  # A port for TLS is there from the start or not at all.
    if replace(old, **changes).anonymous != old.anonymous:
        # Who gets in without a login, and what is believed of whom, is settled at the start.
        changes |= {"users_file": old.users_file, "ssl_trusted": old.ssl_trusted}
    settings = replace(old, **changes)
    later = [
        name
        for name in OPTIONS
        if getattr(given, FIELD_OF[name]) != getattr(settings, FIELD_OF[name])
    ]
    users = load_users(settings, secret)
    acl, warnings = load_access_list(settings)
    warnings += check_users(settings, users)
    if later:
        warnings.append(f"{', '.join(later)}: a restart is needed for what has changed")
    tls = server_context(settings) if settings.ssl_cert else None
    warnings += check_certificate(settings)
    if settings.ssl_trusted:
        client_context(settings)
    return Surroundings(settings, users, acl, tls, open_log(settings), warnings)


def open_log(settings: Settings) -> TextIO:
    """Open what the log is written to. Raises CannotStart."""
    if not settings.log_to_file:
        return sys.stderr
    try:
        return open(settings.log_to_file, "a", encoding="utf-8", opener=_for_the_group)
    except OSError as error:
        raise CannotStart(
            f"log-to-file {settings.log_to_file} cannot be written: {reason_of(error)}",
            hint="give a file that this user may write",
            code=CONFIG,
        ) from error


def _for_the_group(path: str, flags: int) -> int:
    return os.open(path, flags, LOG_MODE)


Reread = Callable[[], Configuration]
"""Reads the configuration as it is now. Raises CannotStart."""
