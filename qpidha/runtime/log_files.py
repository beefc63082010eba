"""The files of a log as they are written: operations in their order, and syncs that last.

A sync covers all that was written before it, names included: a file that was created or renamed
stays so after a power cut. What is removed goes one file at a time between two groups, for nobody
waits for that. Everything here may block, so it belongs to a thread of its own (`log_disk.py`).
What the files hold is not known here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_FILES = 4
"""Files kept open for appending: the current one of the log, a checkpoint being written, and some
to spare.
"""
_BUFFERS = 1024
"""Buffers that one call may write (IOV_MAX)."""
_READ = os.O_RDONLY | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


@dataclass(slots=True)
class Append:
    """Add data to a file, which is made if it does not exist."""

    name: str
    data: bytes | memoryview


@dataclass(slots=True)
class Truncate:
    """Cut a file to `size` bytes."""

    name: str
    size: int


@dataclass(slots=True)
class Rename:
    """Give a file another name."""

    name: str
    new: str


@dataclass(slots=True)
class Remove:
    """Remove a file."""

    name: str


@dataclass(slots=True)
class Mark:
    """A point between operations, to be told of when all before it is written; with `sync`, when it
    is synced.
    """

    mark: int
    sync: bool


Operation = Append | Truncate | Rename | Remove | Mark


class LogFiles:
    """The files in the directory of a write-ahead log. Every method may raise OSError;
    `busy_with` is then the file at fault.
    """

    __slots__ = ("_dirty", "_files", "_folders", "_removals", "_root", "busy_with", "sync_time")

    def __init__(self, root: int) -> None:
        self._root = root
        self._files: dict[str, int] = {}
        self._dirty: dict[str, None] = {}
        self._folders: dict[str, None] = {}
        self._removals: deque[str] = deque()
        """Files that are to go, the first one first."""
        self.busy_with = ""
        self.sync_time = 0
        """How long the sync of the last group took, in ns; 0 if there was none."""

    def settle(self, names: Iterable[str]) -> None:
        """Sync the files of a former process: it may have been killed between write and sync, and
        what is read is relied on.
        """
        for name in names:
            self.busy_with = name
            file = os.open(name, _READ, dir_fd=self._root)
            try:
                os.fdatasync(file)
            finally:
                os.close(file)
            self._folders[_folder(name)] = None
        self._folders[""] = None
        self._sync_folders()

    def carry_out(self, group: Sequence[Operation]) -> int | None:
        """Carry out a group in its order, then sync if one of its marks asks for it; the highest
        mark. What is to be removed goes later (`remove_one`).
        """
        mark: int | None = None
        sync = False
        name = ""
        buffers: list[bytes | memoryview] = []
        for one in group:
            if isinstance(one, Append):
                # Only neighbours are joined: two files are written in the order asked, also when
                # the process is killed here.
                if one.name != name:
                    self._write(name, buffers)
                    name, buffers = one.name, []
                buffers.append(one.data)
            elif isinstance(one, Mark):
                mark = one.mark
                sync = sync or one.sync
            else:
                self._write(name, buffers)
                buffers = []
                self._change(one)
        self._write(name, buffers)
        self.sync_time = 0
        if sync:
            begun = time.monotonic_ns()
            self.sync()
            self.sync_time = time.monotonic_ns() - begun
        self._close_some()
        return mark

    @property
    def has_removals(self) -> bool:
        """Whether there is something for `remove_one`."""
        return bool(self._removals)

    def remove_one(self) -> None:
        """Remove the file that was to go first, if there is one."""
        if self._removals:
            name = self.busy_with = self._removals.popleft()
            # If somebody was quicker it is as it should be.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._root)
                self._folders[_folder(name)] = None

    def remove_all(self) -> None:
        """Remove all files that are to go."""
        while self._removals:
            self.remove_one()

    def sync(self) -> None:
        """Put everything written so far on the disk to stay, names included."""
        for name in self._dirty:
            self.busy_with = name
            os.fdatasync(self._files[name])
        self._dirty.clear()
        self._sync_folders()

    def forget(self) -> None:
        """After an error: drop what the kernel has cached of our files, so that the next to read
        sees what is on the disk.
        """
        for file in self._files.values():
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            except OSError:
                # The disk is beyond help already; why it failed has been told.
                return

    def close(self) -> None:
        """Close all files, without a sync."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _change(self, one: Truncate | Rename | Remove) -> None:
        """Carry out what is not appended; all before it is written."""
        if isinstance(one, Rename) and one.new in self._removals:
            self.remove_all()
        name = self.busy_with = one.name
        if isinstance(one, Truncate):
            file = self._existing(name)
            os.ftruncate(file, one.size)
            os.fsync(file)
            self._dirty.pop(name, None)
        elif isinstance(one, Rename):
            self._existing(name)
            self._dirty[name] = None
            self.sync()
            self.busy_with = name
            self._make_folder(one.new)
            os.rename(name, one.new, src_dir_fd=self._root, dst_dir_fd=self._root)
            self._close(one.new)
            self._files[one.new] = self._files.pop(name)
            self._folders[_folder(name)] = self._folders[_folder(one.new)] = None
            self._sync_folders()
        else:
            # To free a large file takes the file system some ms, and nothing waits for that: after
            # a crash it may be there again anyway.
            self._close(name)
            self._removals.append(name)

    def _write(self, name: str, buffers: list[bytes | memoryview]) -> None:
        """Append buffers to a file, however many calls the system needs for it."""
        if not buffers:
            return
        self.busy_with = name
        file = self._files.get(name)
        if file is None:
            file = self._existing_or_new(name)
        self._dirty[name] = None
        at = 0
        while at < len(buffers):
            part = buffers[at : at + _BUFFERS]
            written = os.writev(file, part)
            if written == 0 and any(part):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            for one in part:
                if written < len(one):
                    break
                written -= len(one)
                at += 1
            if written:
                buffers[at] = memoryview(buffers[at])[written:]

    def _existing_or_new(self, name: str) -> int:
        """Open a file to append to."""
        try:
            return self._existing(name)
        except FileNotFoundError:
            self._make_folder(name)
            file = self._files[name] = os.open(
                name, _APPEND | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._root
            )
            self._folders[_folder(name)] = None
            return file

    def _existing(self, name: str) -> int:
        """Open a file that must be there."""
        file = self._files.get(name)
        if file is None:
            if name in self._removals:
                self.remove_all()  # Another one gets its name.
            file = self._files[name] = os.open(name, _APPEND, dir_fd=self._root)
        return file

    def _make_folder(self, name: str) -> None:
        """See that the folder of a name exists."""
        folder = _folder(name)
        if not folder:
            return
        try:
            os.mkdir(folder, 0o750, dir_fd=self._root)
        except FileExistsError:
            return
        self._folders[""] = None

    def _sync_folders(self) -> None:
        """Make the names of new, renamed and removed files last."""
        for folder in self._folders:
            self.busy_with = folder or "."
            file = os.open(folder or ".", _READ | os.O_DIRECTORY, dir_fd=self._root)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        self._folders.clear()

    def _close(self, name: str) -> None:
        """Let go of a file that goes away; it needs no sync any more."""
        self._dirty.pop(name, None)
        file = self._files.pop(name, None)
        if file is not None:
            os.close(file)

    def _close_some(self) -> None:
        """Close files that nobody appends to any more. One that waits for its sync stays open: a
        later one would not hear of an error.
        """
        if len(self._files) <= _FILES:
            return
        for name in [name for name in self._files if name not in self._dirty][
            : len(self._files) - _FILES
        ]:
            self._close(name)


def _folder(name: str) -> str:
    """The folder in a name, or empty."""
    return name.rpartition("/")[0]
