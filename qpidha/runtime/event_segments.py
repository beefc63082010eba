"""Event segments: files of JSON lines with a head and a foot, written so that a crash costs the
last line at most.

A segment begins with a line that says who writes, and ends with the number of event lines between
and the CRC-32 of all bytes before its last line; until it is closed its name begins with a dot and
ends with `.open`. What is written goes to the kernel at once, so killing the writer leaves whole
lines. A write that fails raises OSError. Not for use from several threads. Client histories
(pipeline/history.py) and the brokers' journals of events are such segments. Files:
docs/pipeline.md.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import socket
import time
import zlib
from pathlib import Path

from qpidha.model.event_log import FORMAT, quoted
from qpidha.runtime.clock import wall_error_us

SEGMENT_BYTES = 64 << 20
SEGMENT_SECONDS = 60.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def clock_name() -> str:
    """Return what names the monotonic clock of this host: equal exactly for those who share it."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()


class SegmentWriter:
    """The segments of one node and boot: begins, rotates and closes them. Sizes are bytes,
    `segment_seconds` seconds.
    """

    def __init__(
        self,
        directory: Path,
        run: str,
        *,
        node: str = "",
        boot: str = "",
        segment_bytes: int = SEGMENT_BYTES,
        segment_seconds: float = SEGMENT_SECONDS,
        sampling: int = 1,
        is_synced: bool = True,
        offset: int | None = None,
    ) -> None:
        """`offset` is what the caller's times are ahead of the monotonic clock, in ns; None: they
        are those of the wall clock.
        """
        self.directory = directory
        self.run = run
        self.node = node or f"client-{socket.gethostname()}"
        self.boot = boot or secrets.token_hex(4)
        self.sequence = 0
        """Number of the next event."""
        self._segment_bytes = segment_bytes
        self._segment_seconds = segment_seconds
        self._sampling = sampling
        self._is_synced = is_synced
        self._offset = offset
        self.number = 0
        """Of the segment that was begun last."""
        self._file = -1
        self._size = self._lines = self._crc = 0
        self._since = 0.0
        # A template costs a fifth of json.dumps; what is put into it needs no escapes, or is
        # escaped first.
        self.head = f'{{"n":{quoted(self.node)},"b":"{self.boot}","s":'

    def write(self, rest: str) -> None:
        """Write one event now: `rest` is what comes after the envelope's times, as JSON without
        braces.
        """
        times = f'"t":{time.time_ns() // 1000},"m":{time.monotonic_ns()}'
        line = f"{self.head}{self.sequence},{times},{rest}}}\n"
        self.write_lines(line.encode(), 1)

    def write_lines(self, data: bytes, lines: int) -> None:
        """Write whole event lines, numbered from `sequence` on by the caller."""
        if self._file >= 0 and (
            self._size >= self._segment_bytes
            or time.monotonic() - self._since >= self._segment_seconds
        ):
            self._end(is_final=False)
        if self._file < 0:
            self._begin()
        self._put(data)
        self.sequence += lines
        self._lines += lines

    def close(self) -> None:
        """End the last segment; what is not closed counts as incomplete."""
        if self._file >= 0:
            self._end(is_final=True)

    def rotate(self) -> None:
        """End the segment; another one begins with the next event."""
        if self._file >= 0:
            self._end(is_final=False)

    def abandon(self) -> None:
        """Leave the segment as it is, perhaps with half a line at its end."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @property
    def is_open(self) -> bool:
        """Whether a segment is being written."""
        return self._file >= 0

    @property
    def _name(self) -> str:
        return f"journal-{self.node}-{self.boot}-{self.number:08d}.jsonl"

    @property
    def path(self) -> Path:
        """Of the segment while it is written."""
        return self.directory / f".{self._name}.open"

    def _begin(self) -> None:
        self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        self.number += 1
        self._since = time.monotonic()
        self._size = self._lines = self._crc = 0
        self._file = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o640
        )
        head: dict[str, object] = {
            "k": "segment",
            "v": FORMAT,
            "n": self.node,
            "b": self.boot,
            "run": self.run,
        }
        head |= {
            "host": socket.gethostname(),
            "clock": clock_name(),
            "first": self.sequence,
            "clock_error_us": self._clock_error_us(),
            "sampling": self._sampling,
        }
        head |= {
            "versions": {"python": platform.python_version(), "kernel": platform.release()},
            "t": time.time_ns() // 1000,
        }
        self._put(json.dumps(head, separators=(",", ":")).encode() + b"\n")

    def _clock_error_us(self) -> int:
        """Bound the error of the events' wall clock against UTC while this segment is written; 0:
        not known.
        """
        error = wall_error_us(self._segment_seconds)
        if not error or self._offset is None:
            return error
        # Who counts on from the time of his start has missed what set the clock since.
        return error + abs(time.time_ns() - time.monotonic_ns() - self._offset) // 1000

    def _end(self, *, is_final: bool) -> None:
        end: dict[str, object] = {
            "k": "segment",
            "end": True,
            "n": self.node,
            "b": self.boot,
            "lines": self._lines,
            "crc32": self._crc,
        }
        if is_final:
            end["final"] = True
        self._put(json.dumps(end, separators=(",", ":")).encode() + b"\n")
        if self._is_synced:
            os.fsync(self._file)
        os.close(self._file)
        self._file = -1
        os.rename(self.path, self.directory / self._name)

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
