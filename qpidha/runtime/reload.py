"""Reload: what a broker reads again while it serves: its users, its access control list, its
certificates, and what it logs and where.

Everything is read before anything is changed, so that a broker with a mistake in a file goes on as
it was. Knows no daemon. What else has changed needs a restart, and is named.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from qpidha.amqp.peer.sasl import Users
from qpidha.management.acl import AccessList
from qpidha.model.settings import FIELD_OF, OPTIONS, Settings
from qpidha.runtime.access_list import load_access_list
from qpidha.runtime.configuration import Configuration
from qpidha.runtime.log_sinks import Sink, open_sinks
from qpidha.runtime.tls import certificate_end, check_certificate, client_context, server_context
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
    "log-disable",
    "log-format",
    "log-to-file",
    "log-to-stderr",
    "log-to-stdout",
    "log-to-syslog",
    "syslog-name",
    "syslog-facility",
)
"""Options whose new values are used without a restart."""
NAMED = 10
"""Users who are named that are gone; the others are counted."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was read again."""

    settings: Settings
    users: Users
    acl: AccessList | None
    tls: ssl.SSLContext | None
    """What the TLS port shows from now on, if there is one."""
    log: tuple[Sink, ...]
    warnings: list[str]
    certificate_end: int
    """Until when our certificate is good, in seconds since 1970; 0 without one."""


def read_again(
    configuration: Configuration, old: Settings, secret: bytes, known: Collection[str] = ()
) -> Surroundings:
    """Read the files anew that the settings name; users who are `known` and no longer there are
    told of. Raises CannotStart.
    """
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
    warnings += [*check_users(settings, users), *_missing(settings, users, known)]
    if later:
        warnings.append(f"{', '.join(later)}: a restart is needed for what has changed")
    tls = server_context(settings) if settings.ssl_cert else None
    warnings += check_certificate(settings)
    if settings.ssl_trusted:
        client_context(settings)
    end = certificate_end(settings)
    return Surroundings(settings, users, acl, tls, open_sinks(settings, os.environ), warnings, end)


def _missing(settings: Settings, users: Users, known: Collection[str]) -> list[str]:
    """Name who could log in until now: a file that was cut short looks like any other."""
    gone = sorted(name for name in known if name not in users.verifiers)
    if not gone:
        return []
    more = f" and {len(gone) - NAMED} more" if len(gone) > NAMED else ""
    names = ", ".join(gone[:NAMED]) + more
    return [f"users-file {settings.users_file} no longer has {names}, who could log in until now"]


Reread = Callable[[], Configuration]
"""Reads the configuration as it is now. Raises CannotStart."""
