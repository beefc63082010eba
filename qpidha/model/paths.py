"""Paths: where a daemon whose data directory nobody named has its data and its admin socket, and a
command looks for it. Imports next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

CONFIGURATION = "/etc/qpidha/qpidha.conf"
QPIDD_CONFIGURATION = "/etc/qpid/qpidd.conf"
"""What is read where there is no CONFIGURATION."""
SHARED = "/tmp/qpidha-"
"""Beginning of a folder's name that any user of the machine may take first."""

SYSTEM_DATA = "/var/lib/qpidha"
SYSTEM_UIDS = 1000
"""User ids below this one are those of root and of system accounts (SYS_UID_MAX of login.defs)."""


def default_data_dir(env: Mapping[str, str], uid: int) -> str:
    """Return the data directory of a daemon that is given none: the one that systemd made for its
    unit (StateDirectory=), else /var/lib/qpidha for root and system accounts, else ~/.qpidha.
    """
    made = env.get("STATE_DIRECTORY", "").partition(":")[0]
    home = env.get("HOME", "")
    if made:
        return made
    return f"{home}/.qpidha" if home and uid >= SYSTEM_UIDS else SYSTEM_DATA


def admin_folder(env: Mapping[str, str], uid: int) -> str:
    """Return the folder of this user's admin sockets: /run/qpidha for root, else in
    XDG_RUNTIME_DIR, else in /tmp.
    """
    runtime = env.get("XDG_RUNTIME_DIR", "")
    if uid == 0:
        return "/run/qpidha"
    return f"{runtime}/qpidha" if runtime else f"{SHARED}{uid}"


def admin_socket(env: Mapping[str, str], uid: int, port: int) -> str:
    """Return the path of the admin socket of this user's daemon at a port."""
    return f"{admin_folder(env, uid)}/admin-{port}.sock"
