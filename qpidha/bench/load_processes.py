"""Load processes: the client processes that put a cluster under load, as the run sees them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

from qpidha.bench.load import LOGIN
from qpidha.manager.builtin.launch import EventStream, environment


class LoadProcess:
    """A client process that reports JSON lines and stops when told."""

    def __init__(
        self,
        stream: EventStream,
        arguments: list[str],
        *,
        log: Path,
        record: Path | None = None,
        login: dict[str, Any] | None = None,
    ) -> None:
        self.record = record
        self.last: dict[str, Any] = {}
        self.samples: list[dict[str, Any]] = []
        self.notes: list[dict[str, Any]] = []
        """Reports that are not counts: connected, disconnected."""
        self.done = False
        recording = ["--record", str(record)] if record is not None else []
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "qpidha.bench.load", *arguments, *recording],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**environment(), LOGIN: json.dumps(login or {})},
            )
        assert self.process.stdout is not None
        stream.add(self.process.stdout.fileno(), self._take)

    @property
    def connected(self) -> bool:
        """Whether it had a serving broker at least once."""
        return any("connected" in note for note in self.notes)

    @property
    def ended(self) -> bool:
        """Whether it is done, or died."""
        return self.done or self.process.poll() is not None

    def tell(self, word: str | int) -> None:
        """Send one line to it."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(word).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # It is gone already, which its end tells.

    def finish(self) -> None:
        """Wait for the end; a client that does not go is killed. Closing its input tells it that
        nobody conducts it.
        """
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def records(self) -> array[int]:
        """Read what it recorded: 64-bit integers, in pairs of id and time."""
        found = array("q")
        if self.record is None:
            return found
        try:
            with self.record.open("rb") as file:
                found.fromfile(file, os.path.getsize(self.record) // 8)
        except OSError:
            pass
        return found

    def count(self, name: str) -> int:
        """The latest value of a count."""
        return int(self.last.get(name, 0))

    def _take(self, report: dict[str, Any]) -> None:
        if "connected" in report or "disconnected" in report:
            self.notes.append(report)
            return
        self.last = report
        self.samples.append(report)
        self.done = self.done or bool(report.get("done"))
