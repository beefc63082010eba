"""Pid file: where a broker's process id stands, for scripts and for `qpidhad -c`, `-q` and `-k`.

`qpidd.PORT.pid` has the name that qpidd gives it. The broker holds a lock on it as long as it
lives, and the kernel tells who holds it: a file that was left behind, or a number that meanwhile
another process has, is never taken for a broker. Source: Qpid src/qpid/broker/Daemon.cpp.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
from contextlib import suppress

from qpidha.model.event_codes import NOT_COMMANDED
from qpidha.model.exit_codes import NO, NO_PERMISSION, OK, TIMED_OUT, UNAVAILABLE
from qpidha.runtime.exits import CannotStart, code_of, reason_of

_LOCK = struct.Struct("hhqqi")
"""What fcntl(2) calls struct flock: type, whence, start, length, process."""
UNSEEN = -1
"""What the kernel calls a process of another pid namespace, or of another machine."""
_HINT = "give a directory that this user may write with pid-dir"


def _shown(pid: int) -> str:
    return str(pid) if pid > 0 else "unknown"


def pid_path(folder: str, port: int) -> str:
    """Return the path of the pid file of the broker at a port."""
    return os.path.join(folder, f"qpidd.{port}.pid")


class PidFile:
    """The pid file of this process, there and locked until it is closed."""

    __slots__ = ("_file", "path")

    def __init__(self, folder: str, port: int) -> None:
        """Raises CannotStart."""
        self.path = pid_path(folder, port)
        try:
            os.makedirs(folder, mode=0o755, exist_ok=True)
            self._file = self._taken()
            os.fchmod(self._file, 0o644)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as error:
            raise CannotStart(
                f"pid file {self.path} is in use by process {_shown(_holder(self.path))}",
                hint="stop that broker, or give this one a pid-dir of its own",
                code=UNAVAILABLE,
            ) from error
        except OSError as error:
            raise CannotStart(
                f"pid file {self.path} cannot be written: {reason_of(error)}",
                hint=_HINT,
                code=code_of(error),
            ) from error

    def _taken(self) -> int:
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Whoever had it before may have removed it meanwhile.
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.stat(self.path), os.fstat(file)):
                        return file
            except OSError:
                os.close(file)
                raise
            os.close(file)

    def close(self) -> None:
        """Remove it."""
        with suppress(OSError):
            os.unlink(self.path)
        os.close(self._file)


def running(path: str) -> int:
    """Return the id of the process whose pid file this is; 0 if there is none. Raises
    CannotStart.
    """
    try:
        pid = _holder(path)
    except OSError as error:
        raise CannotStart(
            f"whether a broker runs cannot be told: {path}: {reason_of(error)}",
            hint="ask as the user of the broker, or as root",
            code=NO_PERMISSION,
            event_code=NOT_COMMANDED,
        ) from error
    if pid == UNSEEN:
        raise CannotStart(
            f"pid file {path} is in use by a process that is not seen from here",
            hint="ask where that broker runs, such as in its container",
            code=UNAVAILABLE,
            event_code=NOT_COMMANDED,
        )
    return pid


def _holder(path: str) -> int:
    """Return the process that has the lock on a pid file; 0 if none has. Raises OSError."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    try:
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    finally:
        os.close(file)
    if kind == fcntl.F_UNLCK:
        return 0
    return pid if pid > 0 else UNSEEN


def end(path: str, number: signal.Signals, patience: float) -> int:
    """Send a signal to the broker of a pid file, and wait until it is gone; return OK, NO if there
    was none, or TIMED_OUT. Raises CannotStart.
    """
    pid = running(path)
    try:
        process = os.pidfd_open(pid) if pid else -1
    except ProcessLookupError:
        process = -1
    if process < 0:
        return NO
    try:
        # Nobody else has become this process meanwhile.
        if running(path) != pid:
            return NO
        signal.pidfd_send_signal(process, number)
        gone = select.poll()
        gone.register(process, select.POLLIN)
        return OK if gone.poll(patience * 1000) else TIMED_OUT
    except ProcessLookupError:
        return OK
    except PermissionError as error:
        raise CannotStart(
            f"process {pid} cannot be ended: {reason_of(error)}",
            hint="ask as the user of the broker, or as root",
            code=NO_PERMISSION,
            event_code=NOT_COMMANDED,
        ) from error
    finally:
        os.close(process)
