"""The write-ahead log of a stopped broker, to be looked at: its files and frames, what is wrong
with them, and where everything is.

Nothing here changes a file. The data directory is locked meanwhile, so no broker starts on it.
Sound frames are found also around damaged places; which of them count (the newest whole checkpoint,
what follows it, less what a cut made void) is decided as a broker does when it starts. Knows
nothing of what records mean. Source: store/frames.py, store/log_reader.py.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from qpidha.client.command.exits import Failure
from qpidha.model.exit_codes import DATA_ERROR, NO_INPUT, NO_PERMISSION, UNAVAILABLE
from qpidha.runtime.data_dir import SYSTEM_ID, Disk
from qpidha.runtime.exits import CannotStart
from qpidha.store.frames import (
    BATCH,
    CHUNK,
    CUT,
    END,
    HEAD,
    HEAD_SIZE,
    Frame,
    decode_frame,
    likely_salt,
    sound_frames,
)
from qpidha.store.log_reader import NAME, SegmentReader
from qpidha.store.write_ahead_log import (
    CLEAN_END,
    FORMAT,
    LOCAL_FOLDER,
    OLDEST_FORMAT,
    read_clean_end,
)

FOLDER = "journal"
AS_ITS_USER = "run it as the broker's user, or as root"
DISCARDED = re.compile(r"discarded-[\w.:+-]+", re.ASCII)


class Place(NamedTuple):
    """Where a frame is, and what it says of itself."""

    name: str
    offset: int
    size: int
    kind: int
    epoch: int
    first: int
    last: int
    committed: int
    synced: int


@dataclass(slots=True)
class Found:
    """One file: its frames, and what is after the last sound one."""

    name: str
    number: int
    kind: str
    size: int
    head: dict[str, Any] = field(default_factory=dict)
    start: int = 0
    """Sequence of the last record before it."""
    places: list[Place] = field(default_factory=list)
    unread: int = 0
    """Bytes from the first place that is no sound frame on."""
    beyond: list[Place] = field(default_factory=list)
    """Sound frames after that place."""

    @property
    def frames(self) -> list[Place]:
        """All sound frames."""
        return self.places + self.beyond

    @property
    def is_whole(self) -> bool:
        """Whether it is a checkpoint to its end."""
        return (
            self.kind == "checkpoint"
            and not self.unread
            and bool(self.places)
            and self.places[-1].kind == END
        )


class Folder:
    """The files of a write-ahead log, or of a part of one that was discarded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            names = sorted(
                entry.name
                for entry in path.iterdir()
                if NAME.fullmatch(entry.name) and entry.is_file()
            )
            readers = [SegmentReader(self, name, (path / name).stat().st_size) for name in names]
            head = next(
                (
                    frame
                    for reader in readers
                    if (frame := reader.first()) is not None and frame.kind == HEAD
                ),
                None,
            )
            self._salt = (
                head.first
                if head is not None
                else likely_salt(b"".join(reader.whole() for reader in readers))
            )
            self.files = [self._look(name) for name in names]
            end = path / CLEAN_END
            self.clean_end = read_clean_end(end.read_bytes()) if end.is_file() else None
            """How far it went when its broker was last stopped in good order."""
        except OSError as error:
            code = NO_PERMISSION if isinstance(error, PermissionError) else NO_INPUT
            raise Failure(
                code, f"{path} cannot be read: {error.strerror}", hint=AS_ITS_USER
            ) from error
        self.files.sort(key=lambda found: (found.number, found.kind != "checkpoint"))

    # What a SegmentReader asks for.

    def sizes(self) -> dict[str, int]:
        """Return the size of each file."""
        return {found.name: found.size for found in self.files}

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Read a part of a file."""
        with open(self.path / name, "rb") as file:
            return os.pread(file.fileno(), size, offset)

    def room(self) -> int:
        """Return nothing: nothing is written here."""
        return 0

    def free_space(self) -> int:
        """Return that it is not known: nothing is written here."""
        return -1

    def until_low(self) -> int:
        """Return nothing: nothing is written here."""
        return 0

    def append(self, name: str, data: bytes | memoryview) -> None:
        """Change nothing: a broker would begin a file here."""

    def truncate(self, name: str, size: int) -> None:
        """Change nothing: a broker would cut off what a power cut left."""

    def rename(self, name: str, new: str) -> None:
        """Change nothing."""

    def remove(self, name: str) -> None:
        """Change nothing: a broker would clear this file away."""

    def mark(self, mark: int, *, sync: bool) -> None:
        """Change nothing."""

    # What is in it.

    def frame(self, place: Place) -> Frame:
        """Read a frame that was found sound."""
        frame = decode_frame(self.read(place.name, place.offset, place.size), salt=self._salt)
        if frame is None:
            raise Failure(
                DATA_ERROR,
                f"{self.path / place.name} changed while it was read",
                hint="is the broker stopped?",
            )
        return frame

    def content(self) -> list[Place]:
        """Return the frames that count, in order: the newest whole checkpoint, then what follows it
        and is not cut off.

        Of a damaged checkpoint, if there is no whole one, what is sound counts, and what older
        segments have of the rest.
        """
        checkpoints = [found for found in self.files if found.kind == "checkpoint"]
        whole = [found for found in checkpoints if found.is_whole]
        checkpoint = (whole or checkpoints)[-1] if checkpoints else None
        point = checkpoint.start if checkpoint is not None else 0
        segments: list[Found] = []
        for found in self.files:
            if found.kind != "log" or (
                checkpoint is not None
                and checkpoint.head.get("reset")
                and found.number < checkpoint.number
            ):
                continue
            if int(found.head.get("base", 0)) > (
                checkpoint.number if checkpoint is not None else 0
            ):
                break  # It follows a snapshot that never was complete.
            while segments and segments[-1].number > int(found.head.get("after", found.number)):
                # It was removed before this one was begun, and was there again after a crash.
                segments.pop()
            segments.append(found)
        kept: list[Place] = []
        for found in segments:
            for place in found.frames:
                if place.kind == CUT:
                    while kept and kept[-1].last > place.last:
                        kept.pop()
                elif place.kind == BATCH:
                    kept.append(place)
        chunks = (
            [place for place in checkpoint.frames if place.kind == CHUNK]
            if checkpoint is not None
            else []
        )
        older = [] if whole else [place for place in kept if place.last <= point]
        return older + chunks + [place for place in kept if place.last > point]

    def problems(self) -> tuple[list[str], list[str]]:
        """Say what is damaged, and what a power cut left that a broker cuts off when it starts."""
        damaged: list[str] = []
        torn: list[str] = []
        position = 0
        for index, found in enumerate(self.files):
            if found.kind == "partial":
                torn.append(f"{found.name}: a checkpoint that was begun and not finished")
                continue
            for place in found.places:
                position = (
                    max(position, place.last)
                    if place.kind == BATCH
                    else place.last
                    if place.kind == CUT
                    else position
                )
            if found.kind == "checkpoint" and not found.is_whole:
                damaged.append(
                    f"{found.name}: the checkpoint is not complete: it has no end at "
                    f"byte {found.size - found.unread}"
                )
            elif found.unread:
                later = found.beyond + [
                    place
                    for other in self.files[index + 1 :]
                    if other.kind == "log"
                    for place in other.frames
                ]
                text = (
                    f"{found.name}: no sound frame at byte {found.size - found.unread}, "
                    f"{found.unread:,} bytes before the end"
                )
                if any(place.synced > position for place in later):
                    damaged.append(f"{text}, and it is synced beyond record {position}")
                else:
                    torn.append(text)
        lost = self._lost()
        if self.clean_end is not None and lost:
            torn = [text for text in torn if not text.startswith(self.clean_end.name)]
        return damaged + lost, torn

    def _lost(self) -> list[str]:
        """Say what was there when the broker was stopped in good order and is not any more."""
        end = self.clean_end
        if end is None or any(
            found.number > end.number for found in self.files if found.kind != "partial"
        ):
            return []
        sound = next(
            (found.size - found.unread for found in self.files if found.name == end.name), 0
        )
        if sound >= end.size:
            return []
        return [
            f"{end.name}: {sound} sound bytes, and it had {end.size}, up to record {end.last}, "
            "when the broker was stopped in good order"
        ]

    def _look(self, name: str) -> Found:
        match = NAME.fullmatch(name)
        assert match is not None
        found = Found(name, int(match[1]), match[2], (self.path / name).stat().st_size)
        reader = SegmentReader(self, name, found.size)
        for frame in reader:
            found.places.append(_place(name, frame, frame.offset))
            if frame.kind == HEAD and not found.head:
                found.start = frame.last
                found.head = self._head(name, frame)
        rest = reader.rest()
        found.unread = len(rest)
        found.beyond = (
            [
                _place(name, frame, reader.offset + frame.offset)
                for frame in sound_frames(rest, self._salt)
            ]
            if rest
            else []
        )
        return found

    def _head(self, name: str, frame: Frame) -> dict[str, Any]:
        try:
            head: dict[str, Any] = json.loads(frame.data)
        except ValueError:
            head = {}
        if head.get("format") not in range(OLDEST_FORMAT, FORMAT + 1):
            text = (
                f"{self.path / name} has format {head.get('format')}, and this version reads "
                f"{OLDEST_FORMAT} to {FORMAT}"
            )
            raise Failure(DATA_ERROR, text, hint="use the version of qpidha that wrote it")
        return head


def _place(name: str, frame: Frame, offset: int) -> Place:
    return Place(
        name,
        offset,
        HEAD_SIZE + len(frame.data),
        frame.kind,
        frame.epoch,
        frame.first,
        frame.last,
        frame.committed,
        frame.synced,
    )


class StoppedBroker:
    """A data directory, which is locked; without `disk` its broker runs, and only what was set
    aside stays as it is.
    """

    def __init__(self, path: Path, disk: Disk | None, *, is_local: bool = False) -> None:
        """`is_local` is about the log of what only this broker has."""
        self.path = path
        self.is_local = is_local
        self.system_id = disk.system_id if disk is not None else ""
        self.state = disk.state if disk is not None else b""
        self.local_path = path / FOLDER / LOCAL_FOLDER
        self.journal_path = self.local_path if is_local else path / FOLDER

    def local(self) -> Folder | None:
        """Look at the log of what only this broker has, beside the other one; None for none."""
        return Folder(self.local_path) if not self.is_local and self.local_path.is_dir() else None

    def journal(self) -> Folder:
        """Look at the write-ahead log."""
        return Folder(self.journal_path)

    def discarded(self) -> list[str]:
        """Name the folders of what another primary's log had not."""
        return sorted(
            entry.name
            for entry in self.journal_path.iterdir()
            if entry.is_dir() and DISCARDED.fullmatch(entry.name)
        )


@contextmanager
def stopped_broker(given: Path, *, may_run: bool = False) -> Iterator[StoppedBroker]:
    """Lock the data directory of a stopped broker; `given` is that, or the log's folder in it, or
    that of the local log. With `may_run` the broker may be running.
    """
    disk: Disk | None = None
    is_local = given.absolute().parts[-2:] == (FOLDER, LOCAL_FOLDER) and given.is_dir()
    try:
        path = _data_dir(given.absolute().parent if is_local else given)
        disk = Disk(str(path))
    except PermissionError as error:
        raise Failure(NO_PERMISSION, f"{given} may not be read", hint=AS_ITS_USER) from error
    except CannotStart as error:
        hints = {
            UNAVAILABLE: "stop the broker first, or look at a copy of the directory",
            NO_PERMISSION: AS_ITS_USER,
        }
        if not may_run or error.code != UNAVAILABLE:
            hint = hints.get(error.code, error.hint)
            raise Failure(error.code, error.text, hint=hint) from error
    try:
        yield StoppedBroker(path, disk, is_local=is_local)
    finally:
        if disk is not None:
            disk.close()


def _data_dir(given: Path) -> Path:
    path = given.absolute()
    if path.name == FOLDER and not (path / FOLDER).exists() and (path.parent / SYSTEM_ID).exists():
        path = path.parent
    if not path.is_dir():
        raise Failure(
            NO_INPUT, f"there is no directory {given}", hint="give the data-dir of a broker"
        )
    if not (path / SYSTEM_ID).exists() or not (path / FOLDER).is_dir():
        lacks = SYSTEM_ID if not (path / SYSTEM_ID).exists() else FOLDER
        raise Failure(
            NO_INPUT,
            f"{given} is no data-dir with a write-ahead log: it has no {lacks}",
            hint="give the data-dir of a broker",
        )
    return path
