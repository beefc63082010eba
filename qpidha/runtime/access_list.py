"""Access lists: the acl-file, read for the node, with the quotas that are options.

Must not know what a rule means. Source: Qpid src/qpid/acl/AclPlugin.cpp.
"""

from __future__ import annotations

import socket

from qpidha.management.acl import ALL, CONNECTIONS, QUEUES, AccessList, Decision, Verdict
from qpidha.management.acl_file import read
from qpidha.model.exit_codes import CONFIG, UNAVAILABLE
from qpidha.model.settings import Settings
from qpidha.runtime.exits import CannotStart, reason_of


def load_access_list(settings: Settings) -> tuple[AccessList | None, list[str]]:
    """The rules and quotas that the settings ask for, None if there are none; and warnings. Raises
    CannotStart.
    """
    limits = {CONNECTIONS: settings.connection_limit_per_user, QUEUES: settings.max_queues_per_user}
    per_address = settings.connection_limit_per_ip
    warnings: list[str] = []
    if settings.acl_file:
        found, warnings = _read(settings.acl_file, settings.realm)
    elif any(limits.values()) or per_address:
        found = AccessList(last_word=Verdict(Decision.ALLOW), realm=settings.realm)
    else:
        return None, []
    for of, most in limits.items():
        if most:
            found.quotas.setdefault(of, {}).setdefault(ALL, most)
    found.per_address = per_address
    return found, warnings


def resolve(name: str) -> list[str]:
    """The addresses of a host, none if it has none. Raises CannotStart if nobody can tell now."""
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(name, None)]
    except socket.gaierror as error:
        if error.errno != socket.EAI_AGAIN:
            return []
        raise CannotStart(
            f"the addresses of the host {name!r} are not known now: {reason_of(error)}",
            hint="try again when the name service answers, or give addresses in place of names",
            code=UNAVAILABLE,
        ) from error
    except (OSError, UnicodeError):
        return []


def _read(path: str, realm: str) -> tuple[AccessList, list[str]]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read()
    except OSError as error:
        raise CannotStart(
            f"acl-file {path} cannot be read: {reason_of(error)}",
            hint="give its whole path; Qpid looks for a relative one in data-dir",
            code=CONFIG,
        ) from error
    try:
        found, troubles = read(text, realm=realm, path=path, resolve=resolve)
    except CannotStart as error:
        raise CannotStart(f"acl-file {path}: {error}", hint=error.hint, code=error.code) from error
    for trouble in troubles:
        if trouble.is_error:
            raise CannotStart(
                f"acl-file {path} {trouble}", hint=f"qpid-ha acl check {path}", code=CONFIG
            )
    return found, [f"acl-file {path} {trouble}" for trouble in troubles]
