"""The story of a broker on disk: the few events that tell who was primary, over restarts.

They stand in the event log too, among so many others that nobody could look for them at a start.
Beside its segments is a file of them alone, which is made shorter at a start. Not for use from
several threads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from qpidha.model.event_log import STORY, STORY_LENGTH, kind_of


class Story:
    """The file with the story of one broker, which has a name as in events."""

    __slots__ = ("_path",)

    def __init__(self, directory: Path, node: str) -> None:
        self._path = directory / f"story-{node}.jsonl"

    def read(self) -> list[tuple[int, str]]:
        """Return the last events with their times, and leave the file no longer than they are; a
        file that is not there or that cannot be read has none.
        """
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
            if len(lines) > 2 * STORY_LENGTH:
                lines = lines[-STORY_LENGTH:]
                shorter = self._path.with_suffix(".new")
                shorter.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
                shorter.rename(self._path)
        except OSError:
            return []
        found = [event for line in lines[-STORY_LENGTH:] if (event := _event(line)) is not None]
        return found

    def add(self, events: Iterable[tuple[int, str]]) -> None:
        """Write those that belong to it. Raises OSError."""
        lines = [f'{{"at":{at},{row}}}\n' for at, row in events if kind_of(row) in STORY]
        if lines:
            with open(self._path, "ab+") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(end - 1, 0))
                # A line that was written half, as the disk was full, costs no other.
                half = b"\n" if end and file.read() != b"\n" else b""
                file.write(half + "".join(lines).encode())


def _event(line: str) -> tuple[int, str] | None:
    """Read a line; None if it is damaged: the last one may have been written half."""
    try:
        found = json.loads(line)
        at, _, row = line.removeprefix('{"at":').partition(",")
        return (int(at), row.removesuffix("}")) if found["k"] in STORY else None
    except (ValueError, TypeError, KeyError):
        return None
