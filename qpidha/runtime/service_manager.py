"""Service manager: tells systemd, or whoever set NOTIFY_SOCKET, how the daemon is.

A broker serves on when nobody takes what it says, and waits for no one. Source: sd_notify(3),
sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping

from qpidha.model.printable import printable


class ServiceManager:
    """Who started the daemon, if that one wants to be told; else all of this does nothing."""

    __slots__ = ("_address", "_interval", "_loop", "_socket", "_timer")

    def __init__(self, env: Mapping[str, str], loop: asyncio.AbstractEventLoop) -> None:
        path = env.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._loop = loop
        self._interval = _watchdog_interval(env)
        self._timer: asyncio.TimerHandle | None = None
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def ready(self, status: str) -> None:
        """Say that the broker serves its role, first or after a reload."""
        self._tell("READY=1", f"STATUS={printable(status)}")
        if self._interval and self._timer is None:
            self._keep_alive()

    def status(self, text: str) -> None:
        """Say in a line what the broker is: `systemctl status` shows it."""
        self._tell(f"STATUS={printable(text)}")

    def reloading(self) -> None:
        """Say that files are read again; `ready` ends it."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Say that the broker ends, whoever wanted it."""
        self._tell("STOPPING=1")

    def close(self) -> None:
        """Say nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _keep_alive(self) -> None:
        """Say that the event loop turns. A broker that hangs does not get here."""
        self._tell("WATCHDOG=1")
        self._timer = self._loop.call_later(self._interval, self._keep_alive)

    def _tell(self, *lines: str) -> None:
        if self._socket is not None:
            try:
                self._socket.sendto("\n".join(lines).encode(), self._address)
            except OSError:
                pass


def _watchdog_interval(env: Mapping[str, str]) -> float:
    """Seconds between two signs of life: half of what the manager allows; 0 if it wants none."""
    if env.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    try:
        return max(int(env.get("WATCHDOG_USEC", "0")), 0) / 2e6
    except ValueError:
        return 0.0
