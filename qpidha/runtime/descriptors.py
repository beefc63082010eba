"""Descriptors: how many files and sockets this process may have, and what the settings need.

A process that runs out of them accepts nobody, answers no manager, and cannot begin the next file
of its write-ahead log. So what the settings allow has to fit into the limit before anybody is
served: max-connections gives way, and what little is needed beside it does not.
"""

from __future__ import annotations

import resource
from dataclasses import replace

from qpidha.model.exit_codes import CONFIG
from qpidha.model.settings import Settings
from qpidha.runtime.exits import CannotStart
from qpidha.runtime.network import ADMIN_CONNECTIONS, RESERVED_CONNECTIONS

OWN = 128
"""For the write-ahead log (64 files to read, some to write), the event log, what is listened on,
the event loop, and some to spare.
"""
LEAST = 16
"""Clients without which there is no point in a broker."""
HOW = "ulimit -Hn, or LimitNOFILE= of a unit of systemd"


def allowed() -> int:
    """Let this process have as many as it may, and tell how many those are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def fit(settings: Settings, limit: int) -> tuple[Settings, list[str]]:
    """Lower max-connections so that all fits into a limit; also give the warning that says so.
    Raises CannotStart for a limit that is too low for anything.
    """
    links = len(settings.ha_brokers_url)
    beside = OWN + links + RESERVED_CONNECTIONS + ADMIN_CONNECTIONS + settings.max_unauthenticated
    room = limit - beside
    if room >= settings.max_connections:
        return settings, []
    if room < min(LEAST, settings.max_connections):
        raise CannotStart(
            f"this process may have {limit} open files, and needs {beside} beside its clients",
            hint=f"raise the limit ({HOW}), or lower max-unauthenticated",
            code=CONFIG,
        )
    return replace(settings, max_connections=room), [
        f"max-connections is {room} and not {settings.max_connections}: this process may have "
        f"{limit} open files ({HOW})"
    ]
