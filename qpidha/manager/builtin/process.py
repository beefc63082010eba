"""Broker processes: start a `qpidhad`, notice its end at once, and make sure that it is dead.

A pidfd becomes readable the moment a process ends, whether it is our child or one that an earlier
manager left running, so there is no polling. Knows nothing of states or promotion.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import qpidha

PACKAGE_ROOT = Path(qpidha.__file__).resolve().parent.parent
"""Directory that holds the package; put on the children's path so that a source tree works as it
is.
"""

LOG_MODE = 0o640


class BrokerProcess:
    """One running broker daemon."""

    __slots__ = ("_child", "_ended", "_pidfd", "exit_code", "pid", "started")

    def __init__(
        self,
        pid: int,
        on_exit: Callable[[BrokerProcess], None],
        *,
        child: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.pid = pid
        self.exit_code: int | None = None
        self.started = start_time(pid)
        self._child = child
        self._pidfd = os.pidfd_open(pid)
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._pidfd, self._exited, on_exit)

    @staticmethod
    def start(
        daemon: list[str], config: Path, log: Path, *, on_exit: Callable[[BrokerProcess], None]
    ) -> BrokerProcess:
        """Start a daemon with a configuration file; its output is appended to `log`."""
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(PACKAGE_ROOT), environment.get("PYTHONPATH", "")])
        )
        command = [*daemon, "--config", str(config)]
        with open_log(log) as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=config.parent,
                env=environment,
                start_new_session=True,
            )
        return BrokerProcess(child.pid, on_exit, child=child)

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return not self._ended.done()

    def signal(self, number: int) -> None:
        """Send a signal; a process that just ended is no error."""
        if self.running:
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                pass

    async def ended(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether it came in time."""
        done, _ = await asyncio.wait([self._ended], timeout=timeout)
        return bool(done)

    def _exited(self, on_exit: Callable[[BrokerProcess], None]) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        if self._child is not None:
            self.exit_code = self._child.wait()
        self._ended.set_result(None)
        on_exit(self)


def open_log(path: Path) -> BinaryIO:
    """Open a log to append to; one that is not there yet is for its owner and his group."""
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags, LOG_MODE))


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot (0: no such process); with the pid
    it names one process for ever.

    A dead first thread does not make it dead: another one may still have its locks and sockets.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] == "Z" and threads < 2 else int(fields[19])
