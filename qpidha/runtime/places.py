"""Places: where a daemon without a data directory puts its admin socket, and a command looks for it. Imports next to nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping


def admin_folder(env: Mapping[str, str]) -> str:
    """Return the folder of this user's admin sockets: /run/qpidha for root, else in XDG_RUNTIME_DIR, else in /tmp."""
    uid = os.getuid()
    runtime = env.get("XDG_RUNTIME_DIR", "")
    return "/run/qpidha" if uid == 0 else os.path.join(runtime, "qpidha") if runtime else f"/tmp/qpidha-{uid}"


def admin_socket(env: Mapping[str, str], port: int) -> str:
    """Return the path of the admin socket of this user's daemon at a port."""
    return os.path.join(admin_folder(env), f"admin-{port}.sock")
