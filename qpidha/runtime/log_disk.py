"""Log disk: the directory of the write-ahead log, written by a thread of its own, so that no sync
stops the broker.

The caller queues operations; the thread takes all that is queued, carries it out with one sync for
the whole group and posts one event with the highest mark. What arrives during a
sync is the next group: the slower the disk, the larger the groups. Reads are the caller's own,
beside the thread. It is what store/disk.py asks for; what the files hold is not known here. Source:
group commit as in Gawlick and Kinkade, "Varieties of Concurrency Control in IMS/VS Fast Path",
1985.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from qpidha.model.errors import InvariantBroken
from qpidha.model.events import Event, LogFailed, LogWritten
from qpidha.runtime.clock import Clock
from qpidha.runtime.data_dir import sync_folder
from qpidha.runtime.disk_space import DiskSpace, free_space
from qpidha.runtime.exits import CannotStart, code_of, reason_of
from qpidha.runtime.log_files import Append, LogFiles, Mark, Operation, Remove, Rename, Truncate

LOG_FOLDER = "journal"
"""Folder of the data directory."""
SWITCH_INTERVAL = 0.0002
"""Seconds after which a busy main thread lets another one run (sys.setswitchinterval). The thread
waits for its turn three times a group: to wake up, after the write, after the sync. Measured with 8
KiB a mark and a main thread that never pauses (2 cores, ext4; 0.1 ms a group when it is idle), one
mark at a time: 5 ms, Python's default -> 15.7 ms a group; 1 -> 3.5;
0.5 -> 1.9; 0.2 -> 0.7; 0.1 -> 0.6. With 16 marks under way, 5 ms -> 890 marks/s, 0.2 -> 12,900.
  What the main thread gets done beside it differs less than two runs do. Neither space allocated
  ahead (fallocate, KEEP_SIZE) nor RWF_DSYNC gave enough to be worth having: nothing to be seen, and
  0.01 ms idle.
"""
_OURS = re.compile(
    r"(local/)?([0-9]{8}\.(log|checkpoint|partial)|clean-end(\.new)?)"
    r"|discarded-[\w.:+-]+/[0-9]{8}\.(log|checkpoint)",
    re.ASCII,
)
"""Names of files that a write-ahead log consists of; whatever else lies in the directory is left
alone.
"""
_NAME = re.compile(r"[\w+-][\w.:+-]*(/[\w+-][\w.:+-]*)?", re.ASCII)
_READERS = 64
"""Files kept open for reading."""
_LOOK = 1.0
"""Seconds between two looks at the space that is left."""
LOOK_BYTES = 64 << 10
"""Bytes that are appended between two looks, at least."""
NEVER = 1 << 63


class LogDisk:
    """The files of one write-ahead log. `post` gets its events, in the thread; `strays` are files
    that are not ours.
    """

    __slots__ = (
        "_asked",
        "_clock",
        "_former",
        "_held",
        "_look_again",
        "_looking",
        "_low_at",
        "_names",
        "_next_look",
        "_post",
        "_queue",
        "_readers",
        "_root",
        "_sizes",
        "_space",
        "_thread",
        "_files",
        "_written",
        "directory",
        "failure",
        "strays",
    )

    def __init__(
        self, directory: str, post: Callable[[Event], None], *, free_limit: int = 0
    ) -> None:
        self.directory = directory
        self.failure = ""
        self._post = post
        try:
            os.makedirs(directory, mode=0o750, exist_ok=True)
            sync_folder(os.path.dirname(directory))
            self._root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _cannot_use(directory, error) from error
        try:
            self._sizes, self.strays = _look_around(directory)
        except OSError as error:
            os.close(self._root)
            raise _cannot_use(error.filename or directory, error) from error
        # Names as they will be when all that was asked for is done.
        self._names = set(self._sizes)
        self._former: dict[str, str] = {}
        self._readers: dict[str, int] = {}
        self._clock = Clock()
        self._next_look = 0
        self._space = DiskSpace(lambda: free_space(self._root), free_limit)
        self._looking = threading.Lock()
        self._asked = self._written = 0
        """Bytes that were ever appended, and those of them that are written."""
        self._look_again = 0 if free_limit else NEVER
        """With how many bytes appended the space is looked at again, whatever the time."""
        self._low_at = NEVER
        """With how many bytes appended there is too little, as of the last look."""
        self._files = LogFiles(self._root)
        # What is appended waits here for whoever needs more than that: most content needs no
        # answer, and does not wake the thread.
        self._held: list[Operation] = []
        self._queue: SimpleQueue[list[Operation] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="log-disk", daemon=True)
        self._thread.start()

    # What store/disk.py asks for.

    def sizes(self) -> dict[str, int]:
        """The size of each file at the time of the start, by name."""
        return dict(self._sizes)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Read what is written of a file; fewer bytes at its end. Raises OSError."""
        file = self._readers.get(name)
        try:
            if file is None:
                file = self._open(name)
            return os.pread(file, size, offset)
        except OSError as error:
            raise OSError(
                error.errno, error.strerror, os.path.join(self.directory, name)
            ) from error

    def room(self) -> int:
        """Bytes that may be written beside the log at present."""
        return self._space.room()

    def free_space(self) -> int:
        """Bytes that were free at the last look, a second ago at most; -1 before the first."""
        return self._space.free

    def until_low(self) -> int:
        """Bytes that may be appended before there is too little space."""
        return self._low_at - self._asked

    def append(self, name: str, data: bytes | memoryview) -> None:
        """Add to a file, which is made if it does not exist; carried out with the next call that is
        no append.
        """
        if name not in self._names:
            _check(name)
            self._names.add(name)
        if not self.failure:
            self._held.append(Append(name, data))
            self._asked += len(data)
            if self._asked >= self._look_again:
                with contextlib.suppress(OSError):  # The thread meets it too, and tells.
                    self._look()

    def truncate(self, name: str, size: int) -> None:
        """Cut a file, and sync it."""
        _check(name)
        self._put(Truncate(name, size))

    def rename(self, name: str, new: str) -> None:
        """Sync a file, give it another name, and sync that."""
        _check(name)
        _check(new)
        self._stop_reading(new)
        self._names.discard(name)
        self._names.add(new)
        self._former[new] = name
        if name in self._readers:
            self._readers[new] = self._readers.pop(name)
        self._put(Rename(name, new))

    def remove(self, name: str) -> None:
        """Remove a file; it cannot be read any more."""
        _check(name)
        self._stop_reading(name)
        self._names.discard(name)
        self._put(Remove(name))

    def mark(self, mark: int, *, sync: bool) -> None:
        """Have LogWritten(mark) posted when all before is written, with `sync` to stay."""
        self._put(Mark(mark, sync))

    # Its end.

    def close(self, timeout: float) -> bool:
        """Write and sync what is queued; whether that is done. The thread is left behind if the
        disk takes longer than `timeout`.
        """
        self._queue.put(self._held)
        self._queue.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        for file in self._readers.values():
            os.close(file)
        self._readers.clear()
        self._names.clear()
        if self._root >= 0:
            os.close(self._root)
            self._root = -1
        return not self.failure

    # Reading.

    def _open(self, name: str) -> int:
        """Open a file to read. A rename that was asked for may not be carried out yet."""
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        former = self._former.pop(name, None)
        file = -1
        for one in (name, former, name) if former is not None else (name,):
            try:
                file = os.open(one, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._root)
                break
            except FileNotFoundError:
                continue
        if file < 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if len(self._readers) >= _READERS:
            os.close(self._readers.pop(next(iter(self._readers))))
        self._readers[name] = file
        return file

    def _stop_reading(self, name: str) -> None:
        """Let go of a file that goes away, or of one that another takes the name of."""
        self._former.pop(name, None)
        file = self._readers.pop(name, None)
        if file is not None:
            os.close(file)

    # The space that is left. It is looked at once a second, for others may take it; and by the
    # caller before it could have taken all of it, with what is still to be written counted.

    def _look(self) -> None:
        with self._looking:
            event = self._space.look(self._asked - self._written)
            if self._look_again < NEVER:
                self._look_again = self._asked + max(self._space.left // 2, LOOK_BYTES)
                self._low_at = self._asked + self._space.until_low
            if event is not None:
                self._post(event)

    # The thread.

    def _put(self, one: Operation) -> None:
        if not self.failure:
            self._held.append(one)
            self._queue.put(self._held)
            self._held = []

    def _work(self) -> None:
        """Carry out groups until told to end, or until the first error."""
        try:
            self._files.settle(self._sizes)
            while self._turn():
                pass
        except OSError as error:
            self._fail(_reason(os.path.join(self.directory, self._files.busy_with), error))
            self._files.forget()
        except BaseException as error:
            # Ours, not the disk's. Who waits for a mark must hear of it all the same.
            self._fail(f"the log's thread ended: {error.__class__.__name__}: {error}")
            raise
        finally:
            self._files.close()

    def _turn(self) -> bool:
        """One group; whether there will be another."""
        now = self._clock.now()
        if now >= self._next_look:
            self._next_look = now + int(_LOOK * 1e9)
            self._look()
        group, is_last = self._take()
        mark = self._files.carry_out(group)
        self._written += sum(len(one.data) for one in group if isinstance(one, Append))
        if mark is not None:
            self._post(LogWritten(mark, self._files.sync_time))
        self._files.remove_one()
        if is_last:
            self._files.remove_all()
            self._files.sync()
        return not is_last

    def _take(self) -> tuple[list[Operation], bool]:
        """Wait for something to do and take all that is there; and whether that was the last."""
        group: list[Operation] = []
        try:
            some = self._queue.get(timeout=0 if self._files.has_removals else _LOOK)
            while some is not None:
                group += some
                some = self._queue.get_nowait()
        except Empty:
            return group, False
        return group, True

    def _fail(self, reason: str) -> None:
        self.failure = reason
        self._post(LogFailed(reason))


def _look_around(directory: str) -> tuple[dict[str, int], list[str]]:
    """Sizes of the files in order of their names, and what else is there. Raises OSError
    if one cannot be written.
    """
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), directory)
    sizes: dict[str, int] = {}
    strays: list[str] = []
    for name in sorted(_names_in(directory)):
        path = os.path.join(directory, name)
        if _OURS.fullmatch(name) and os.path.isfile(path):
            _check_access(path, os.R_OK | os.W_OK)
            sizes[name] = os.stat(path).st_size
        else:
            strays.append(name)
    _check_access(directory, os.R_OK | os.W_OK | os.X_OK)
    return sizes, strays


def _check_access(path: str, wanted: int) -> None:
    if not os.access(path, wanted):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _names_in(directory: str) -> list[str]:
    """Names in a directory, with those in the folders of the local log, and of what was
    discarded.
    """
    names = []
    with os.scandir(directory) as entries:
        for entry in entries:
            has_ours = entry.name == "local" or entry.name.startswith("discarded-")
            if entry.is_dir() and has_ours:
                names += [f"{entry.name}/{inner}" for inner in os.listdir(entry.path)]
            else:
                names.append(entry.name)
    return names


def _check(name: str) -> None:
    """A name stays within the directory and has at most one folder."""
    if not _NAME.fullmatch(name):
        raise InvariantBroken(f"{name!r} is no name of a file of the write-ahead log")


def _cannot_use(path: str, error: OSError) -> CannotStart:
    hint = (
        "let the user that runs the broker own it, and look whether the file system is "
        "mounted read-only"
    )
    if isinstance(error, FileExistsError | NotADirectoryError):
        hint = "move that file away: the write-ahead log is a directory"
    return CannotStart(
        f"write-ahead log {path} cannot be used: {reason_of(error)}", hint=hint, code=code_of(error)
    )


def _reason(path: str, error: OSError) -> str:
    """What failed and what to do about it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "make space on its file system, then start this broker again"
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        advice = "raise the limit of open files (ulimit -Hn), then start this broker again"
    elif error.errno == errno.EFBIG:
        advice = "lift the limit on the size of files (ulimit -f), then start this broker again"
    else:
        advice = (
            "look for the disk in the kernel's log (dmesg); when it works again, start this broker"
        )
    return f"{path} cannot be written: {reason_of(error)}; {advice}"
