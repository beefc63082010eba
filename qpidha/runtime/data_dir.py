"""Disk: the data directory with this broker's identity, its small state file and a lock.

The state file is written in its place, with one sync, for a failover waits for it: to replace it
atomically takes two. A crash may leave it torn, so it has a copy, which is whole whenever the file
is written, and is brought up to date when nobody waits any more. So each content that was saved is
in one of the two, and at rest in both: who reads takes the file if that can be read, and else the
copy. The lock is the kernel's and ends with the process, so it is never stale. Without a data
directory all is in memory. Knows nothing of what the state means.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat

from qpidha.model.exit_codes import CONFIG, UNAVAILABLE
from qpidha.runtime.clock import new_uuid
from qpidha.runtime.exits import CannotStart, code_of, reason_of

SYSTEM_ID = "systemId"
"""File of the identity, named as qpidd names it."""
STATE = "state"
COPY = "state.copy"
BLOCK = 4096
"""Bytes of the state file and its copy, or more; filled up with blanks, so that to write them again
changes nothing but content.
"""
LOCK = "lock"
PRIVATE = 0o600
"""What identity and state may be read and written by: nobody else has business with them."""
ANOTHER = "give this broker a directory of its own with data-dir"
NONE = "or none with no-data-dir, and it keeps nothing over a restart"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Disk:
    """What one broker keeps over a restart. With an empty `directory` it keeps nothing."""

    __slots__ = (
        "_is_fresh",
        "_kept",
        "_lock",
        "_made",
        "_written",
        "directory",
        "state",
        "system_id",
    )

    def __init__(self, directory: str = "") -> None:
        self.directory = os.path.abspath(directory) if directory else ""
        self.state = b""
        self._written: dict[str, bytes] = {}
        """What the state file and its copy have, if they exist."""
        self._kept: dict[str, bytes] = {}
        """Of that, what this process has written, and so is known to be on disk: a former one may
        have been killed before the sync.
        """
        self._lock = -1
        self._made: list[str] = []
        """Directories that were not there before."""
        self._is_fresh = False
        """Whether the identity was not there before."""
        if not self.directory:
            self.system_id = new_uuid()
            return
        try:
            self._made = _make_directory(self.directory)
            self._take_lock()
            self.system_id = self._load_system_id()
            for name in (STATE, COPY):
                data = self._read(name)
                if data is not None:
                    self._written[name] = data.rstrip()
            self.state = self._written.get(STATE, b"")
        except OSError as error:
            self.close()
            raise CannotStart(
                f"data-dir {self.directory} cannot be used: {reason_of(error)}",
                hint=f"{ANOTHER}, which this user may write, {NONE}",
                code=code_of(error),
            ) from error
        except CannotStart:
            self.close()
            raise

    @property
    def state_copy(self) -> bytes:
        """What the copy of the state file has."""
        return self._written.get(COPY, b"")

    def save_state(self, data: bytes) -> None:
        """Make this the state, synced; raises OSError if that fails, and then the former one is
        still in the copy.
        """
        if self.directory and self._kept.get(STATE) != data:
            if data != self.state:
                self.settle_state()
            self._keep(STATE, data)
        self.state = data

    def settle_state(self) -> None:
        """Have the state in both files, so that either may be damaged. Raises OSError."""
        if self.directory and self.state:
            if self._kept.get(STATE) != self.state:
                self._keep(STATE, self.state)
            self._keep_copy()

    def _keep_copy(self) -> None:
        """Have the state in the copy, unless there is no space to make one: without it a torn state
        file is no less noticed, and a full disk alone must not end the broker.
        """
        if self._kept.get(COPY) == self.state:
            return
        try:
            self._keep(COPY, self.state)
        except OSError as error:
            if COPY in self._written or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.directory, COPY + ".new"))

    def close(self) -> None:
        """Let others use the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def forget(self) -> None:
        """Remove an identity that was never used, as that of a broker that could not start."""
        if not self._is_fresh or self._lock < 0:
            return
        try:
            if sorted(os.listdir(self.directory)) != sorted((LOCK, SYSTEM_ID)):
                return
            for name in (SYSTEM_ID, LOCK):
                os.unlink(os.path.join(self.directory, name))
            for level in self._made:
                os.rmdir(level)
        except OSError:
            pass  # What is left harms nobody.

    def _take_lock(self) -> None:
        self._lock = os.open(
            os.path.join(self.directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640
        )
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip()
            raise CannotStart(
                f"data-dir {self.directory} is in use by process {holder or 'unknown'}",
                hint=f"stop that broker, or {ANOTHER}, {NONE}",
                code=UNAVAILABLE,
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _load_system_id(self) -> str:
        found = self._read(SYSTEM_ID)
        if found is None:
            fresh = new_uuid()
            self._is_fresh = True
            self._replace(SYSTEM_ID, f"{fresh}\n".encode())
            return fresh
        text = found.decode(errors="replace").strip().lower()
        if not _UUID.fullmatch(text):
            raise CannotStart(
                f"{os.path.join(self.directory, SYSTEM_ID)} does not hold an identity",
                hint=(
                    "put the former one back; or move the whole data-dir away, and the "
                    "broker joins as a new member"
                ),
                code=CONFIG,
            )
        return text

    def _read(self, name: str) -> bytes | None:
        try:
            with open(os.path.join(self.directory, name), "rb") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & ~PRIVATE:
                    os.fchmod(file.fileno(), PRIVATE)  # As former versions wrote it.
                return file.read()
        except FileNotFoundError:
            return None

    def _keep(self, name: str, data: bytes) -> None:
        """Write the state file or its copy: in its place, but for the first time."""
        if name not in self._written:
            self._replace(name, data.ljust(BLOCK))
        else:
            with open(os.path.join(self.directory, name), "r+b") as file:
                size = max(os.fstat(file.fileno()).st_size, BLOCK)
                file.write(data.ljust(size))
                file.flush()
                os.fdatasync(file.fileno())
        self._written[name] = self._kept[name] = data

    def _replace(self, name: str, data: bytes) -> None:
        path = os.path.join(self.directory, name)
        fresh = path + ".new"
        with open(fresh, "wb", opener=_private) as file:
            os.fchmod(file.fileno(), PRIVATE)  # One that was left may have had another mode.
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
        sync_folder(self.directory)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE)


def sync_folder(path: str) -> None:
    """Make the names in a folder stay. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _make_directory(path: str) -> list[str]:
    """Make a directory, and those above it that are missing; return them, the deepest first. A
    power cut must not take the name of one with all that is in it.
    """
    missing: list[str] = []
    level = path
    while not os.path.lexists(level):
        missing.append(level)
        level = os.path.dirname(level)
    os.makedirs(path, mode=0o750, exist_ok=True)
    for level in reversed(missing):
        # Where we may make a directory and not look around, its name stays when the system writes
        # it.
        with contextlib.suppress(PermissionError):
            sync_folder(os.path.dirname(level))
    return missing
