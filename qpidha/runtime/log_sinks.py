"""Log sinks: where lines of the log go: standard error or the journal behind it, a file, syslog.

A broker serves on when nobody takes its log: a line that cannot be written is dropped, and syslog
is never waited for. Knows nothing of what a line says. Source: RFC 3164 section 4 and syslog(3) for
priorities, sd-daemon(3) and systemd.exec(5) for the journal; Qpid src/qpid/log/posix/SinkOptions.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from typing import Protocol, TextIO

from qpidha.model.exit_codes import CONFIG
from qpidha.model.options import FACILITIES
from qpidha.model.settings import Settings
from qpidha.runtime.exits import CannotStart, reason_of

LOG_MODE = 0o640
SYSLOG = "/dev/log"
PRIORITIES = {
    "trace": 7,
    "debug": 7,
    "info": 6,
    "notice": 5,
    "warning": 4,
    "error": 3,
    "critical": 2,
}
"""Level -> severity of syslog and of the journal."""
LONGEST = 8000
"""Bytes of a line to syslog; many daemons cut at 8 KiB."""


class Sink(Protocol):
    """Takes lines."""

    @property
    def has_clock(self) -> bool:
        """Whether it notes the time of a line itself."""

    def write(self, level: str, line: str) -> None:
        """Write a line, or drop it."""

    def close(self) -> None:
        """Write no more."""


class StreamSink:
    """A file, or standard error; with `is_journal` the journal reads it, and is told the levels."""

    def __init__(self, stream: TextIO, *, is_journal: bool = False) -> None:
        self._stream = stream
        self.has_clock = is_journal

    def write(self, level: str, line: str) -> None:
        """Write a line."""
        prefix = f"<{PRIORITIES.get(level, 5)}>" if self.has_clock else ""
        try:
            self._stream.write(f"{prefix}{line}\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass  # Whoever read the log is gone.

    def close(self) -> None:
        """Close a file."""
        if self._stream not in (sys.stdout, sys.stderr):
            self._stream.close()


class SyslogSink:
    """The syslog of this machine. It may be restarted: then its socket is opened anew."""

    has_clock = True

    def __init__(self, name: str, facility: str) -> None:
        """Raises OSError if nobody listens there."""
        self._tag = f"{name}[{os.getpid()}]"
        self._facility = FACILITIES[facility]
        self._socket: socket.socket | None = self._connected()

    def write(self, level: str, line: str) -> None:
        """Send a line; it is dropped if syslog is not there, or does not keep up."""
        when = time.strftime("%b %e %H:%M:%S")
        head = f"<{self._facility * 8 + PRIORITIES.get(level, 5)}>{when} {self._tag}: "
        data = (head + line).encode(errors="replace")[:LONGEST]
        for _ in range(2):
            try:
                if self._socket is None:
                    self._socket = self._connected()
                self._socket.send(data)
                return
            except BlockingIOError:
                return
            except OSError:
                self.close()

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            one.setblocking(False)
            one.connect(SYSLOG)
        except OSError:
            one.close()
            raise
        return one


def open_sinks(settings: Settings, env: Mapping[str, str]) -> tuple[Sink, ...]:
    """Open what the log is written to. Raises CannotStart."""
    sinks: list[Sink] = []
    if settings.log_to_file:
        sinks.append(StreamSink(_file(settings.log_to_file)))
    if settings.log_to_syslog:
        try:
            sinks.append(SyslogSink(settings.syslog_name, settings.syslog_facility))
        except OSError as error:
            raise CannotStart(
                f"log-to-syslog: {SYSLOG}: {reason_of(error)}",
                hint="start a syslog daemon, or set log-to-syslog=no",
                code=CONFIG,
            ) from error
    if settings.log_to_stdout:
        sinks.append(StreamSink(sys.stdout))
    if settings.log_to_stderr or not sinks:
        sinks.append(StreamSink(sys.stderr, is_journal=leads_to_journal(env)))
    return tuple(sinks)


def leads_to_journal(env: Mapping[str, str]) -> bool:
    """Whether the journal reads our standard error: `JOURNAL_STREAM` has its device and inode."""
    try:
        found = os.fstat(2)
    except OSError:
        return False
    return env.get("JOURNAL_STREAM", "") == f"{found.st_dev}:{found.st_ino}"


def _file(path: str) -> TextIO:
    try:
        return open(path, "a", encoding="utf-8", opener=_for_the_group)
    except OSError as error:
        raise CannotStart(
            f"log-to-file {path} cannot be written: {reason_of(error)}",
            hint="give a file that this user may write",
            code=CONFIG,
        ) from error


def _for_the_group(path: str, flags: int) -> int:
    return os.open(path, flags, LOG_MODE)
