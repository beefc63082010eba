"""Detached: `qpidhad --daemon`, a broker in the background, and what its caller hears of it.

The caller waits until clients are served, and has the exit code and the standard error of a start
that fails. The broker stays in its working directory, where relative paths begin. Knows nothing of
brokers. Source: daemon(7), Qpid src/posix/QpiddBroker.cpp.
"""

from __future__ import annotations

import os
import select
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from qpidha.model.exit_codes import NO, OK, TIMED_OUT
from qpidha.model.settings import Settings
from qpidha.runtime.exits import CannotStart
from qpidha.runtime.log_sinks import SYSLOG

MASK = 0o027
"""Others may not read what a daemon makes; as qpidd has it."""


class Caller:
    """Who started a daemon, as the daemon has him: he waits until he is told."""

    __slots__ = ("_pipe",)

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def tell(self, code: int = OK) -> None:
        """Let him go on, with this exit code; with 0 the daemon lets go of his terminal, too."""
        if self._pipe < 0:
            return
        with suppress(OSError):  # He may not have waited.
            os.write(self._pipe, f"{code}\n".encode())
        os.close(self._pipe)
        self._pipe = -1
        if code == OK:
            _forget_streams()


def detach(patience: float, keep: Collection[int]) -> Caller | int:
    """Go on in a process of its own, in the background, and return the caller; in the process that
    was called return its exit code when the other one serves, or has ended. Of the descriptors that
    the process was given only those to `keep` are. Raises CannotStart.
    """
    ours, theirs = os.pipe()
    first = os.fork()
    if first:
        os.close(theirs)
        os.waitpid(first, 0)
        return _wait(ours, patience)
    os.close(ours)
    os.setsid()
    if os.fork():
        os._exit(OK)
    os.umask(MASK)
    _let_go({theirs, *keep})
    return Caller(theirs)


def _wait(pipe: int, patience: float) -> int:
    with open(pipe, "rb") as heard:
        ready, _, _ = select.select([heard], [], [], patience)
        if not ready:
            raise CannotStart(
                f"the broker does not serve after {patience:g} s, and goes on starting",
                hint="a large journal takes long to read: wait longer (--wait). qpidhad -c tells "
                "whether it runs, qpidhad -q ends it",
                code=TIMED_OUT,
            )
        said = heard.readline()
    if not said:
        raise CannotStart(
            "the broker was killed before it served",
            hint="look for the reason in the log, or in the kernel's (dmesg)",
            code=NO,
        )
    return int(said)


def _let_go(kept: Collection[int]) -> None:
    """Close what the caller had open; what this program opens itself, no other program inherits."""
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        with suppress(OSError):
            if number > 2 and number not in kept and os.get_inheritable(number):
                os.close(number)


def _forget_streams() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)


def in_background(settings: Settings) -> tuple[Settings, list[str]]:
    """Log to syslog, as qpidd does, what would go to standard error or output, for there is
    neither; and the warnings.
    """
    if settings.log_to_file and not (settings.log_to_stderr or settings.log_to_stdout):
        return settings, []
    to_syslog = settings.log_to_syslog or os.path.exists(SYSLOG)
    file, warnings = settings.log_to_file, []
    if not (to_syslog or file):
        file = os.devnull
        warnings.append(
            f"--daemon logs to syslog, and there is no {SYSLOG}: nobody takes the log. Set "
            "log-to-file"
        )
    return replace(
        settings,
        log_to_syslog=to_syslog,
        log_to_stderr=False,
        log_to_stdout=False,
        log_to_file=file,
    ), warnings
