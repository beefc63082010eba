"""Users: the users file, read for the node, and whether the brokers can log in to each other by it.

Must not know how anybody logs in. Source: Qpid's sasldb, in whose place the users file is.
"""

from __future__ import annotations

import errno
import os
import stat

from qpidha.amqp.peer.kerberos import missing, unfit
from qpidha.amqp.peer.sasl import HASHES, Users
from qpidha.model.errors import QpidHaError
from qpidha.model.exit_codes import CONFIG
from qpidha.model.settings import GSSAPI, Settings
from qpidha.runtime.exits import CannotStart, reason_of

SECRET = 32
"""Random bytes of this process, of which is made what strangers are told of unknown users where the
users file has no secret.
"""
PASSWORD_MECHANISMS = ("PLAIN", *HASHES)
KERBEROS_HINT = "install it, or leave GSSAPI and sasl-keytab out"


def check_kerberos(settings: Settings) -> None:
    """Raise CannotStart if logins by Kerberos are wanted that there cannot be."""
    is_for_brokers = settings.ha_cluster and settings.ha_mechanism == GSSAPI
    if not settings.offers_kerberos and not is_for_brokers:
        return
    name = "sasl-mechanisms" if settings.offers_kerberos else "ha-mechanism"
    if why := missing():
        raise CannotStart(f"{name}=GSSAPI: {why}", hint=KERBEROS_HINT, code=CONFIG)
    if settings.offers_kerberos and (
        why := unfit(settings.sasl_service_name, settings.sasl_keytab)
    ):
        raise CannotStart(
            f"{name}=GSSAPI: this broker has no key of the service "
            f"{settings.sasl_service_name}: {why}",
            hint="have the realm's administrator make a keytab of "
            f"{settings.sasl_service_name}/HOST, with the name by which clients know this host, "
            "that this user may read, and name it as sasl-keytab",
            code=CONFIG,
        )


def load_users(settings: Settings, secret: bytes = b"") -> Users:
    """The users file, or nobody; `secret` is that of this process, a new one by default. Raises
    CannotStart.
    """
    if not settings.users_file:
        return Users.parse("")
    hint = "make its lines with qpid-ha user add"
    try:
        # Neither a pipe, which nobody may ever write to, nor a device without end.
        if not stat.S_ISREG(os.stat(settings.users_file).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        with open(settings.users_file, encoding="utf-8") as file:
            secret = secret or os.urandom(SECRET)
            return Users.parse(file.read(), realm=settings.realm, secret=secret)
    except OSError as error:
        raise CannotStart(
            f"users-file {settings.users_file} cannot be read: {reason_of(error)}",
            hint=hint,
            code=CONFIG,
        ) from error
    except (QpidHaError, UnicodeDecodeError) as error:
        raise CannotStart(
            f"users-file {settings.users_file} cannot be used: {error}",
            hint=getattr(error, "hint", "") or hint,
            code=CONFIG,
        ) from error


def check_users(settings: Settings, users: Users) -> list[str]:
    """Look whether anybody could log in here with a password, and another broker with these
    settings. Raises CannotStart if that broker could not; what may be a change that is under way is
    a warning.
    """
    if settings.auth and settings.users_file and not users.verifiers:
        empty = [f"users-file {settings.users_file} has no users: nobody logs in with a password"]
    else:
        empty = []
    name, offered = settings.ha_username, settings.sasl_mechanisms or PASSWORD_MECHANISMS
    is_by_password = (settings.ha_mechanism or "PLAIN") in PASSWORD_MECHANISMS and any(
        mechanism in PASSWORD_MECHANISMS for mechanism in offered
    )
    has_others = settings.ha_cluster and len(settings.ha_brokers_url) > 1
    if not (has_others and settings.auth and settings.users_file and name and is_by_password):
        return empty
    if users.bare(name) not in users.verifiers:
        raise CannotStart(
            f"users-file {settings.users_file} has no user {name}, as whom the brokers log in to "
            "each other",
            hint=f"qpid-ha user add {name} --users-file {settings.users_file}, or another "
            "ha-username",
            code=CONFIG,
        )
    if settings.ha_password and not users.check(name, settings.ha_password):
        return [
            f"ha-password is not the password of {name} in users-file {settings.users_file}: a "
            "broker with such a file lets no other one in that has this password"
        ]
    return []
