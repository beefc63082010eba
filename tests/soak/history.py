"""Histories: what clients and the nemesis did, as JSON lines in segments, written so that a crash costs the last line at most.

A segment begins with `{"k":"segment","v":1,...}` and ends with the number of event lines between and the CRC-32 of all
bytes before its last line; until it is closed its name begins with a dot and ends with `.open`. Each event goes to the
kernel with one write before whatever it announces happens, so killing the writer leaves whole lines. `s` counts the
events of one node and boot without gaps over its segments. Readers take closed segments and open ones, and say
what was torn. Source: spark-pipeline.md section 6, whose keys these are.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import socket
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1
SEGMENT_BYTES = 64 << 20
SEGMENT_SECONDS = 60.0
OUTCOMES = ("invoke", "ok", "fail", "info")
OPERATIONS = ("enqueue", "dequeue", "ack", "drain")


class History:
    """The events of one process of a run; `node` defaults to `client-<host>`."""

    def __init__(
        self, directory: Path, run: str, *, node: str = "", segment_bytes: int = SEGMENT_BYTES, segment_seconds: float = SEGMENT_SECONDS
    ) -> None:
        self.directory = directory
        self.run = run
        self.node = node or f"client-{socket.gethostname()}"
        self.boot = secrets.token_hex(4)
        self._segment_bytes = segment_bytes
        self._segment_seconds = segment_seconds
        self._sequence = 0
        self._number = 0
        self._file = -1
        self._size = self._lines = self._crc = 0
        self._since = 0.0
        # A template costs a fifth of json.dumps; what is put into it needs no escapes, or is escaped first.
        self._head = f'{{"n":{json.dumps(self.node)},"b":"{self.boot}","s":'
        self._run = json.dumps(run)

    def op(
        self, o: int, c: int, y: str, f: str, *, q: str, w: int | None = None, u: int | None = None, d: int | None = None, i: str = "",
        err: str = "",
    ) -> None:  # fmt: skip
        """Note one step of an operation: `o` its number, `c` the process, `y` how it stands, `f` what it does."""
        rest = f'"k":"op","run":{self._run},"o":{o},"c":{c},"y":"{y}","f":"{f}","q":{json.dumps(q)}'
        if w is not None:
            rest += f',"w":{w},"u":{u}'
        if d is not None:
            rest += f',"d":{d}'
        if i:
            rest += f',"i":{json.dumps(i)}'
        if err:
            rest += f',"err":{json.dumps(err)}'
        self._write(rest)

    def fault(self, o: int, y: str, f: str, target: str) -> None:
        """Note the start or the stop of a fault of kind `f` at `target`."""
        self._write(f'"k":"fault","run":{self._run},"o":{o},"y":"{y}","f":{json.dumps(f)},"x":{json.dumps(target)}')

    def close(self) -> None:
        """End the last segment; what is not closed counts as incomplete."""
        if self._file < 0:
            return
        end = {"k": "segment", "end": True, "n": self.node, "b": self.boot, "lines": self._lines, "crc32": self._crc}
        os.write(self._file, json.dumps(end, separators=(",", ":")).encode() + b"\n")
        os.fsync(self._file)
        os.close(self._file)
        self._file = -1
        os.rename(self._open_path, self.directory / self._name)

    @property
    def _name(self) -> str:
        return f"journal-{self.node}-{self.boot}-{self._number:08d}.jsonl"

    @property
    def _open_path(self) -> Path:
        return self.directory / f".{self._name}.open"

    def _write(self, rest: str) -> None:
        if self._file >= 0 and (self._size >= self._segment_bytes or time.monotonic() - self._since >= self._segment_seconds):
            self.close()
        if self._file < 0:
            self._begin()
        line = f'{self._head}{self._sequence},"t":{time.time_ns() // 1000},"m":{time.monotonic_ns()},{rest}}}\n'
        self._put(line.encode())
        self._sequence += 1
        self._lines += 1

    def _begin(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._number += 1
        self._since = time.monotonic()
        self._size = self._lines = self._crc = 0
        self._file = os.open(self._open_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        versions = {"python": platform.python_version(), "kernel": platform.release()}
        head = {"k": "segment", "v": FORMAT, "n": self.node, "b": self.boot, "run": self.run, "host": socket.gethostname()}
        # One host: the monotonic clock is the same for all processes, so the error between clocks is 0.
        head |= {"first": self._sequence, "clock_error_us": 0, "sampling": 1, "versions": versions, "t": time.time_ns() // 1000}
        self._put(json.dumps(head, separators=(",", ":")).encode() + b"\n")

    def _put(self, data: bytes) -> None:
        os.write(self._file, data)
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)


@dataclass(slots=True)
class Read:
    """What a directory of segments holds."""

    events: list[dict[str, Any]] = field(default_factory=list)
    """All events, by the clock that all processes of a host share."""
    segments: int = 0
    incomplete: list[str] = field(default_factory=list)
    """Segments without their last line: their writer did not end in good order."""
    torn: int = 0
    """Last lines that were cut off."""
    problems: list[str] = field(default_factory=list)
    """What makes this no evidence: a wrong checksum, a line that is no event, a gap in the numbers."""


def read(directory: Path) -> Read:
    """Read everything that was written in a directory."""
    found = Read()
    numbers: dict[tuple[str, str], list[int]] = {}
    for path in sorted([*directory.glob("journal-*.jsonl"), *directory.glob(".journal-*.jsonl.open")]):
        found.segments += 1
        for event in _segment(path, found):
            found.events.append(event)
            numbers.setdefault((event["n"], event["b"]), []).append(event["s"])
    for (node, boot), seen in numbers.items():
        if sorted(seen) != list(range(max(seen) + 1)):
            found.problems.append(f"events of {node} {boot} are missing: {max(seen) + 1 - len(set(seen))} of {max(seen) + 1}")
    found.events.sort(key=lambda event: (event["m"], event["n"], event["b"], event["s"]))
    return found


def _segment(path: Path, found: Read) -> Iterator[dict[str, Any]]:
    """Yield the events of one segment, and note what is wrong with it."""
    data = path.read_bytes()
    lines = data.split(b"\n")
    tail = lines.pop()
    if tail:
        found.torn += 1
    parsed: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                raise ValueError("no object")
        except ValueError:
            found.problems.append(f"{path.name}: line {number} is no event")
            continue
        parsed.append(value)
    last = parsed[-1] if parsed else {}
    if last.get("k") == "segment" and last.get("end"):
        parsed.pop()
        crc = zlib.crc32(data[: data.rindex(b"\n", 0, len(data) - 1) + 1])
        if last.get("crc32") != crc:
            found.problems.append(f"{path.name}: the checksum is wrong")
        if last.get("lines") != len(parsed) - 1:
            found.problems.append(f"{path.name}: it holds {len(parsed) - 1} events and its last line says {last.get('lines')}")
    else:
        found.incomplete.append(path.name)
    if not parsed or parsed[0].get("k") != "segment" or parsed[0].get("v") != FORMAT:
        found.problems.append(f"{path.name}: it does not begin as a segment of format {FORMAT}")
        return
    yield from parsed[1:]
