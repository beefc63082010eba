"""The event log on disk: events of the node as segments of JSON lines, written by a thread of
its own.

The node's turn hands over its events and goes on; the thread gathers them for some milliseconds and
writes them together. Too many that wait, a disk that is full or broken, and too little space cost
events and never the broker: their numbers are gone, and a `drop` event says which. With
journal-events=full, a level for verification, events are written at once: whatever they announce
leaves the broker after the kernel has them, so that killing it leaves no gap at the end. The oldest
segments of this broker's name are removed when all together exceed the limit. Files:
docs/pipeline.md.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from qpidha.model.effects import WriteEvents
from qpidha.model.event_log import quoted, writer_name
from qpidha.model.settings import Settings
from qpidha.runtime.event_segments import SegmentWriter
from qpidha.runtime.exits import reason_of
from qpidha.runtime.story import Story

EVENTS = "events"
"""Folder of the data directory."""
GATHER = 0.05
"""Seconds for which the thread lets events gather: waking it for each turn would cost the broker
more than the events.
"""
MOST_WAITING = 100_000
"""Events that may wait for the thread."""
LARGEST_SEGMENT = 64 << 20
SEGMENTS = 8
"""The limit holds so many segments of the largest size at least."""
MOST_FILES = 20_000
"""Segments that are kept at most, however small they are: a fortnight of minutes."""
PAUSE = 5.0
"""Seconds without an attempt to write after one that failed."""
_ROLE = '"k":"role"'


class EventBatch:
    """Events of one turn with their time and the number of the first."""

    __slots__ = ("at", "first", "rows")

    def __init__(self, at: int, first: int, rows: list[str]) -> None:
        self.at = at
        self.first = first
        self.rows = rows


class EventLogWriter:
    """The event log of one broker; `warn` hears, in the thread, that it cannot be written,
    and that it can again.
    """

    def __init__(
        self, settings: Settings, name: str, *, offset: int, warn: Callable[[str], None]
    ) -> None:
        """`offset` is what the node's time is ahead of the monotonic clock, in ns."""
        self.directory = Path(
            settings.journal_events_dir or os.path.join(settings.data_dir, EVENTS)
        )
        self._offset = offset
        self._warn = warn
        self._limit = settings.journal_events_limit
        self._free_limit = settings.disk_free_limit
        self._interval = settings.journal_events_interval / 1e9
        self._is_direct = settings.journal_events == "full"
        sampling = settings.journal_events_sampling if settings.journal_events == "sampled" else 1
        self._largest = min(LARGEST_SEGMENT, self._limit // SEGMENTS)
        self._writer = SegmentWriter(
            self.directory,
            "",
            node=writer_name(name),
            segment_bytes=self._largest,
            segment_seconds=self._interval,
            sampling=sampling,
            is_synced=not self._is_direct,
            offset=offset,
        )
        self.story = Story(self.directory, self._writer.node)
        self._ours = re.compile(
            rf"\.?journal-{re.escape(self._writer.node)}-[0-9a-f]{{8}}-[0-9]{{8}}\.jsonl(\.open)?"
        )
        self._next = 0
        """The number of the next event; it is given before it is known whether the event can be
        written.
        """
        self._queued = self._taken = 0
        self._crowded_out: tuple[int, int] = (-1, -1)
        """First and last number of the events for which there was no room in the queue, since there
        last was.
        """
        self._unwritten: tuple[int, int] = (-1, -1)
        """The same of those that could not be written."""
        self._asides: deque[str] = deque()
        """Events of the thread's own; the loop takes it along, since it gives the numbers.
        """
        self._failed_at = 0.0
        self._failure = ""
        self._segment = 0
        """For this one there is room."""
        self._queue: SimpleQueue[EventBatch | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="events", daemon=True)
        if not self._is_direct:
            self._thread.start()

    def take(self, effect: WriteEvents) -> None:
        """Have the events of a turn written."""
        rows = effect.rows
        if self._crowded_out[0] >= 0 and self._queued - self._taken <= MOST_WAITING:
            rows = [_drop_row(*self._crowded_out, "queue"), *rows]
            self._crowded_out = (-1, -1)
        while self._asides:
            rows = [self._asides.popleft(), *rows]
        batch = EventBatch(effect.at, self._next, rows)
        self._next += len(rows)
        if self._is_direct:
            self._write([batch])
        elif self._queued - self._taken > MOST_WAITING:
            self._crowded_out = _joined(self._crowded_out, batch)
        else:
            self._queued += len(rows)
            self._queue.put(batch)

    def close(self, timeout: float) -> None:
        """Write what waits, and end the last segment."""
        if self._is_direct:
            self._end()
        elif self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(timeout)

    # The thread, or with journal-events=full the loop.

    def _work(self) -> None:
        is_last = False
        while not is_last:
            batches, is_last = self._gather()
            if batches:
                self._write(batches)
                self._taken += sum(len(batch.rows) for batch in batches)
            elif not is_last:
                self._try(self._writer.rotate)
        self._end()

    def _gather(self) -> tuple[list[EventBatch], bool]:
        """Wait for events, and then a little for more; and whether these are the last. None at all:
        for a segment's time.
        """
        batches: list[EventBatch] = []
        try:
            some = self._queue.get(timeout=self._interval)
            if some is not None:
                time.sleep(GATHER)
            while some is not None:
                batches.append(some)
                some = self._queue.get_nowait()
        except Empty:
            return batches, False
        return batches, True

    def _write(self, batches: list[EventBatch]) -> None:
        """Write batches as lines; what cannot be written is dropped."""
        is_pausing = self._failed_at > 0 and time.monotonic() - self._failed_at < PAUSE
        if is_pausing or not self._try(lambda: self._put(batches)):
            for batch in batches:
                self._unwritten = _joined(self._unwritten, batch)
        elif self._unwritten[0] >= 0:
            self._asides.append(_drop_row(*self._unwritten, "disk"))
            self._unwritten = (-1, -1)

    def _try(self, act: Callable[[], None]) -> bool:
        """Do something with files; whether it could be done. What does not work is told once, and
        that it works again.
        """
        try:
            act()
        except OSError as error:
            self._failed_at = time.monotonic()
            self._writer.abandon()
            failure = f"the event log {self.directory} cannot be written: {reason_of(error)}"
            if failure != self._failure:
                self._failure = failure
                self._warn(f"{failure}; events are lost until it can, and the broker goes on")
            return False
        if self._failure:
            self._failed_at, self._failure = 0.0, ""
            self._warn(f"the event log {self.directory} is written again")
        return True

    def _put(self, batches: list[EventBatch]) -> None:
        writer = self._writer
        if self._segment != writer.number or not writer.is_open:
            self._segment = writer.number
            self._make_room()
        writer.sequence = batches[0].first
        lines = [line for batch in batches for line in self._lines(batch)]
        writer.write_lines("".join(lines).encode(), len(lines))
        with suppress(OSError):  # The next segment has the same disk, and tells of it.
            self.story.add((batch.at, row) for batch in batches for row in batch.rows)
        if any(row.startswith(_ROLE) for batch in batches for row in batch.rows):
            writer.rotate()  # whoever follows the cluster wants to know at once

    def _lines(self, batch: EventBatch) -> list[str]:
        head = self._writer.head
        times = f',"t":{batch.at // 1000},"m":{batch.at - self._offset},'
        return [
            f"{head}{number}{times}{row}}}\n" for number, row in enumerate(batch.rows, batch.first)
        ]

    def _make_room(self) -> None:
        """See that there is space for a segment: remove the oldest ones, and log that."""
        self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        found = os.statvfs(self.directory)
        if found.f_bavail * found.f_frsize < self._free_limit:
            raise OSError(errno.ENOSPC, "less space is left than disk-free-limit")
        with os.scandir(self.directory) as entries:
            ours = [
                entry
                for entry in entries
                if self._ours.fullmatch(entry.name) and entry.path != str(self._writer.path)
            ]
        files = sorted(
            (entry.stat().st_mtime_ns, entry.name, entry.stat().st_size, entry.path)
            for entry in ours
        )
        total, count = sum(file[2] for file in files), len(files)
        for _, name, size, path in files:
            if total + self._largest <= self._limit and count < MOST_FILES:
                break
            number = _events_in(path)
            os.unlink(path)
            total, count = total - size, count - 1
            self._asides.append(f'"k":"drop","cnt":{number},"x":{quoted("removed " + name)}')

    def _end(self) -> None:
        self._try(self._writer.close)


def _joined(range_: tuple[int, int], batch: EventBatch) -> tuple[int, int]:
    """Add the numbers of a batch to a range that they follow."""
    return (range_[0] if range_[0] >= 0 else batch.first, batch.first + len(batch.rows) - 1)


def _drop_row(first: int, last: int, why: str) -> str:
    return f'"k":"drop","cnt":{last - first + 1},"x":"{why}","p":{first},"hi":{last}'


def _events_in(path: str) -> int:
    """Count the events of a segment: its last line says it, if it has one."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4096))
        tail = file.read().splitlines()[-1:]
        try:
            return int(json.loads(tail[0])["lines"])
        except (IndexError, KeyError, ValueError, TypeError):
            file.seek(0)
            return max(0, sum(1 for _ in file) - 1)
