"""A disk that is slow, gets full, tears what it writes and forgets what was not synced: the fake of
`qpidha.store.disk`.

`Files` is what lies on the platters of one machine and outlives its brokers; a `FakeDisk` is one
broker's use of it. Operations wait until `pump` carries them out, one at a time, after a delay.
What is carried out can be read back, but stays after a crash only if a sync followed it; between
two syncs a crash may keep a prefix, tear the last append at any byte, or keep later pages and lose
earlier ones.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from qpidha.model.events import DiskSpaceChanged, Event, LogFailed, LogWritten

PAGE = 64
"""Bytes that are kept or lost together; small, as the records of a simulation are."""


@dataclass
class Files:
    """The directory of one write-ahead log: as programs see it, and as it would be after the power
    went.
    """

    written: dict[str, bytes] = field(default_factory=dict)
    synced: dict[str, bytes] = field(default_factory=dict)
    unsynced: list[tuple[str, ...]] = field(default_factory=list)
    """What was carried out since the last sync, in order: ("append", name, data) or ("remove",
    name).
    """

    def append(self, name: str, data: bytes) -> None:
        """Carry out an append."""
        self.written[name] = self.written.get(name, b"") + data
        self.unsynced.append(("append", name, data))  # type: ignore[arg-type]

    def truncate(self, name: str, size: int) -> None:
        """Carry out a cut; it is synced, and all else of this file with it. Raises KeyError for a
        file that is not there.
        """
        self.written[name] = self.written[name][:size]
        self._sync_file(name)

    def rename(self, name: str, new: str) -> None:
        """Carry out a renaming: all that was appended before is synced, and then the directory, but
        for removals, which nothing waits for.

        Raises KeyError for a file that is not there.
        """
        self.written[new] = self.written.pop(name)
        again = [gone for kind, gone, *_ in self.unsynced if kind == "remove"]
        again = [gone for gone in again if gone in self.synced and gone not in self.written]
        self.synced = {gone: self.synced[gone] for gone in again} | self.written
        self.unsynced = [("remove", gone) for gone in again]

    def remove(self, name: str) -> None:
        """Carry out a removal; the file may be there again after a crash, whatever is synced
        meanwhile.
        """
        self.written.pop(name, None)
        self.unsynced.append(("remove", name))

    def sync(self) -> None:
        """Make what was appended stay."""
        self.synced |= self.written
        self.unsynced = [entry for entry in self.unsynced if entry[0] == "remove"]

    def settle(self) -> None:
        """All that is there stays, names and removals too."""
        self.synced = dict(self.written)
        self.unsynced = []

    def _sync_file(self, name: str) -> None:
        self.unsynced = [entry for entry in self.unsynced if entry[1] != name]
        self.synced[name] = self.written[name]

    def crash(self, how: str, rng: random.Random) -> None:
        """The process ends ("keep"), or the power fails and what is not synced is gone ("drop"), or
        partly ("lose", "tear", "scramble").

        What the next process reads after "keep" is not synced for that.
        """
        if how != "keep":
            kept = dict(self.synced)
            entries: list[Any] = [] if how == "drop" else list(self.unsynced)
            if how == "lose":
                entries = entries[: rng.randint(0, len(entries))]
            elif how == "tear":
                entries = entries[: rng.randint(0, len(entries))]
                if entries and entries[-1][0] == "append":
                    _, name, data = entries[-1]
                    entries[-1] = ("append", name, data[: rng.randint(0, len(data))])
            for kind, name, *data in entries:
                if kind == "remove":
                    if how != "scramble" or rng.random() < 0.5:
                        kept.pop(name, None)
                else:
                    kept[name] = kept.get(name, b"") + (
                        scrambled(data[0], rng) if how == "scramble" else data[0]
                    )
            if how == "scramble" and rng.random() < 0.3:
                # Where the lost pages are the last ones, the file may be as long as what is left of
                # it.
                kept = {
                    name: data if data == self.synced.get(name) else data.rstrip(b"\0")
                    for name, data in kept.items()
                }
                kept = {
                    name: max(data, self.synced.get(name, b""), key=len)
                    for name, data in kept.items()
                }
            self.written = kept
            self.settle()


def scrambled(data: bytes, rng: random.Random) -> bytes:
    """Lose some pages of an append and keep others: a lost one reads as zeros."""
    pages = [data[at : at + PAGE] for at in range(0, len(data), PAGE)]
    return b"".join(page if rng.random() < 0.5 else bytes(len(page)) for page in pages)


class FakeDisk:
    """One broker's disk, as `qpidha.store.disk.Disk` says. Without a world its operations wait for
    `pump`.
    """

    def __init__(
        self, post: Callable[[Event], None], rng: random.Random, files: Files | None = None
    ) -> None:
        self.post = post
        self.rng = rng
        self.files = files if files is not None else Files()
        self.world: Any = None
        self.machine: Any = None
        self.failed = False
        self.hangs = False
        self.syncs = 0
        self.capacity = -1
        """Bytes that can still be appended before the disk is full; below 0 there is no end of
        them.
        """
        self.free = 1 << 40
        """Bytes that were said to be left."""
        self.slowness = 1
        """How many times longer everything takes."""
        self.delay = (20_000, 200_000)
        self.sync_delay = (100_000, 3_000_000)
        self._queue: deque[tuple[Any, ...]] = deque()
        self._is_due = False
        self._dead = False
        self._sizes = {name: len(data) for name, data in sorted(self.files.written.items())}
        if self.files.unsynced:
            self._queue.append(("settle",))

    # -- what the store asks for ------------------------------------------------------------------

    def sizes(self) -> dict[str, int]:
        """Return the size of each file, as of the start."""
        return dict(self._sizes)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Read back what is written."""
        data = self.files.written.get(name)
        if data is None:
            raise FileNotFoundError(2, "No such file", name)
        return data[offset : offset + size]

    def room(self) -> int:
        """Return how much may be written beside the log."""
        return min(self.free, self.capacity) if self.capacity >= 0 else self.free

    def free_space(self) -> int:
        """Return what is free."""
        return self.free

    def until_low(self) -> int:
        """Return more than anybody sends: that there is too little is told at once here."""
        return 1 << 60

    def append(self, name: str, data: bytes) -> None:
        """Queue an append."""
        self._add("append", name, bytes(data))

    def truncate(self, name: str, size: int) -> None:
        """Queue a cut."""
        self._add("truncate", name, size)

    def rename(self, name: str, new: str) -> None:
        """Queue a renaming."""
        self._add("rename", name, new)

    def remove(self, name: str) -> None:
        """Queue a removal."""
        self._add("remove", name)

    def mark(self, mark: int, *, sync: bool) -> None:
        """Queue a mark."""
        self._add("mark", mark, sync)

    # -- what the world does ----------------------------------------------------------------------

    def pump(self) -> bool:
        """Carry out the oldest operation; False if there is none."""
        if self._dead or self.failed or not self._queue:
            return False
        verb, *values = self._queue.popleft()
        if verb == "append" and 0 <= self.capacity < len(values[1]):
            self.files.append(values[0], values[1][: self.capacity])
            self.fail("No space left on device")
            return False
        if verb == "append" and self.capacity >= 0:
            self.capacity -= len(values[1])
        if verb == "mark":
            self._marked(*values)
        else:
            try:
                getattr(self.files, verb)(*values)
            except KeyError:
                self.fail(f"{values[0]}: No such file or directory")
        return bool(self._queue)

    def fail(self, reason: str) -> None:
        """Do nothing any more, and say so."""
        if not self.failed and not self._dead:
            self.failed = True
            self._queue.clear()
            self.post(LogFailed(reason))

    def hang(self, hangs: bool) -> None:
        """Carry out nothing for a while, or go on."""
        self.hangs = hangs
        if not hangs and self._queue and not self._is_due:
            self._plan()

    def set_space(self, *, low: bool, free: int) -> None:
        """Say that there is less space than wanted, or enough again."""
        self.free = free
        if not self._dead:
            self.post(DiskSpaceChanged(low, free))

    def crash(self, how: str) -> None:
        """The broker is gone: what waits is never carried out, and `Files.crash` says what stays of
        the rest.
        """
        self._dead = True
        self._queue.clear()
        self.files.crash(how, self.rng)

    def _marked(self, mark: int, sync: bool) -> None:
        # One sync serves all marks that wait behind nothing else.
        while self._queue and self._queue[0][0] == "mark":
            _, mark, more = self._queue.popleft()
            sync = sync or more
        if sync:
            self.files.sync()
            self.syncs += 1
        self.post(LogWritten(mark))

    def _add(self, *operation: Any) -> None:
        if self.failed or self._dead:
            return
        self._queue.append(operation)
        if self.world is not None and not self._is_due and not self.hangs:
            self._plan()

    def _plan(self) -> None:
        self._is_due = True
        low, high = self.delay
        if self._queue[0][0] == "settle" or (self._queue[0][0] == "mark" and self._queue[0][2]):
            low, high = self.sync_delay
        self.world.at(self.world.between(low, high) * self.slowness, self._due)

    def _due(self) -> None:
        self._is_due = False
        if self.hangs:
            return
        # The threads of a stopped process do nothing either; the world asks again.
        if self.machine is not None and self.machine.is_paused and not self._dead:
            self._is_due = True
            self.world.at(10_000_000, self._due)
            return
        if self.pump():
            self._plan()
