"""Paths: where a daemon without a data directory puts its admin socket, and a command looks for
it. Imports next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

SHARED = "/tmp/qpidha-"
"""Beginning of a folder's name that any user of the machine may take first."""


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
