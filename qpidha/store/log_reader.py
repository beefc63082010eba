"""The log reader: from the files of a write-ahead log back to the log, and to the records that
rebuild the model.

The newest whole checkpoint is read first, then the segments that reach beyond it. What a power cut
left unfinished at the end is cut off, and said; what is damaged before the place that was synced is
not cut off but refused, for the broker would forget what it accepted. So is a log of which less is
left than there was when its broker was stopped in good order. Files that a crash left over
between two steps are cleared away. Nothing that is not committed yet is given out to be applied:
the next primary may not have it.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from qpidha.model.errors import LogDamaged, UpgradeNeeded
from qpidha.model.features import FEATURES, UPGRADE_HINT, lacking
from qpidha.model.records import Batch
from qpidha.store.disk import Disk
from qpidha.store.frames import (
    BATCH,
    CHUNK,
    CONTROL,
    CUT,
    DURABLE,
    END,
    HEAD,
    HEAD_SIZE,
    REST,
    START,
    Frame,
    decode_frame,
    sound_frames,
)
from qpidha.store.write_ahead_log import (
    CLEAN_END,
    FORMAT,
    LOCAL_FOLDER,
    NEW_CLEAN_END,
    OLDEST_FORMAT,
    Chunk,
    CleanEnd,
    File,
    History,
    PayloadRef,
    WriteAheadLog,
    read_clean_end,
)

NAME = re.compile(r"([0-9]{8})\.(log|checkpoint|partial)")
WINDOW = 4 << 20
"""Bytes read at a time."""
HEADLESS = 1 << 63
"""Where a segment begins whose head cannot be read: after everything."""
HINT = (
    "look at it with qpid-ha journal verify; take out what can be had with qpid-ha journal "
    "salvage, or start with an empty data-dir to have all from the primary"
)


class SegmentReader:
    """The frames of one file, read in pieces."""

    def __init__(self, disk: Disk, name: str, size: int) -> None:
        self._disk = disk
        self.name = name
        self.size = size
        self.offset = 0
        """The end of the last sound frame."""
        self._salt: int | None = None
        self._window = b""
        self._from = 0

    def __iter__(self) -> Iterator[Frame]:
        while (frame := self._next()) is not None:
            self.offset = frame.end
            if frame.kind == HEAD:
                self._salt = frame.first
            yield frame

    def first(self) -> Frame | None:
        """Return the first frame."""
        return next(iter(self), None)

    def whole(self) -> bytes:
        """Return everything."""
        return self._disk.read(self.name, 0, self.size)

    def rest(self) -> bytes:
        """Return everything after the last sound frame."""
        return (
            self._disk.read(self.name, self.offset, self.size - self.offset)
            if self.offset < self.size
            else b""
        )

    def _next(self) -> Frame | None:
        self._see(HEAD_SIZE)
        place = self.offset - self._from
        if len(self._window) < place + HEAD_SIZE:
            return None
        kind, _, length, *_ = REST.unpack_from(self._window, place + START.size)
        self._see(HEAD_SIZE + length)
        return decode_frame(
            self._window,
            self.offset - self._from,
            salt=0 if kind == HEAD else self._salt,
            begin=self._from,
        )

    def _see(self, size: int) -> None:
        """Have `size` bytes from the offset in the window, if there are so many."""
        place = self.offset - self._from
        if len(self._window) < place + size and self.offset + size <= self.size:
            self._window = self._disk.read(self.name, self.offset, max(size, WINDOW))
            self._from = self.offset


class LogReader:
    """One reading of a write-ahead log. Take all of `chunks()` first, then the attributes hold."""

    def __init__(
        self, wal: WriteAheadLog, system_id: str, features: Iterable[str] = FEATURES
    ) -> None:
        self.history: History = []
        self.last = 0
        self.committed = 0
        self.tail: deque[Batch] = deque()
        """Batches that are not committed as far as this broker knows."""
        self.bodies: list[PayloadRef] = []
        """Where they are."""
        self.notes: list[str] = []
        """What an operator should know."""
        self._wal = wal
        self._disk = wal.disk
        self._system_id = system_id
        self._features = features
        """What this broker knows."""
        self._salt: int | None = None
        """As the heads say it; None as long as none could be read."""
        self._point = 0
        self.snapshot_through = 0
        """What is in the checkpoint may show effects of records up to here."""
        self._found: dict[tuple[int, int], PayloadRef] = {}
        self._is_torn = False
        self._clean_end: CleanEnd | None = None
        """What must be here, if that is known."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield, in order, encoded records to apply, each with the place where they are."""
        disk = self._disk
        sizes = disk.sizes()
        checkpoints, logs = self._clear_partial(sizes)
        newest = max([*checkpoints, *logs], default=0)
        self._find_clean_end(sizes, newest)
        folders = dict.fromkeys(name.partition("/")[0] for name in sizes if "/" in name)
        for folder in folders:
            if folder != LOCAL_FOLDER:
                self._wal.note_set_aside(folder)
        checkpoint: File | None = None
        if checkpoints:
            number = max(checkpoints)
            name = checkpoints.pop(number)
            reader = SegmentReader(disk, name, sizes[name])
            checkpoint, fields = self._open_checkpoint(reader, number)
            yield from self._chunks_of(checkpoint, reader)
            former = [checkpoints[one] for one in sorted(checkpoints)]
            if fields["reset"]:
                former += [logs.pop(one) for one in sorted(logs) if one < number]
            self._wal.clear_away(former, fields["discard"])
        readers = [SegmentReader(disk, logs[one], sizes[logs[one]]) for one in sorted(logs)]
        files = self._open_segments(readers, checkpoint)
        yield from self._batches(files)
        self.committed = max(
            min(max(self.committed, self.snapshot_through), self.last), self._point
        )
        while self.tail and self.tail[0].first <= self.committed:
            # What a snapshot shows may end inside a batch, which is then not to be cut off any
            # more.
            self.committed = max(self.committed, self.tail[0].last)
            yield self._applied(self.tail.popleft())
        self.bodies = [self._found.pop((batch.epoch, batch.first)) for batch in self.tail]
        self._wal.adopt([file for file, _ in files], checkpoint, newest, is_torn=self._is_torn)

    # -- files ------------------------------------------------------------------------------------

    def _clear_partial(self, names: Iterable[str]) -> tuple[dict[int, str], dict[int, str]]:
        """Return the checkpoints and the segments, by their numbers; remove checkpoints that were
        never complete.
        """
        found: dict[str, dict[int, str]] = {"checkpoint": {}, "log": {}, "partial": {}}
        for name in names:
            if match := NAME.fullmatch(name):
                found[match[2]][int(match[1])] = name
        for name in found["partial"].values():
            self._disk.remove(name)
        return found["checkpoint"], found["log"]

    def _find_clean_end(self, sizes: dict[str, int], newest: int) -> None:
        """Find out how far the log went when its broker was stopped in good order, if nobody has
        begun a file since.
        """
        if NEW_CLEAN_END in sizes:
            self._disk.remove(NEW_CLEAN_END)
        if CLEAN_END not in sizes:
            return
        found = read_clean_end(self._disk.read(CLEAN_END, 0, sizes[CLEAN_END]))
        if found is None:
            self.notes.append(f"write-ahead log: {CLEAN_END} is damaged, and says nothing")
        elif found.number >= newest:
            self._clean_end = found

    def _check_clean_end(self, readers: list[SegmentReader], read: int) -> None:
        """Refuse a log of which less was read, the first so many of these files, than there was at
        its last stop in good order.
        """
        end = self._clean_end
        if end is None or any(
            reader.name == end.name and reader.offset >= end.size for reader in readers[:read]
        ):
            return
        had = (
            f"when the broker was stopped in good order it had {end.size} bytes of {end.name}, "
            f"up to record {end.last}, and they were synced"
        )
        if not any(reader.name == end.name for reader in readers):
            raise LogDamaged(f"write-ahead log file {end.name} is gone: {had}", hint=HINT)
        raise self._damaged(readers[max(read - 1, 0)], had)

    def _chunks_of(self, checkpoint: File, reader: SegmentReader) -> Iterator[Chunk]:
        """Yield the parts of a checkpoint, which is complete or damaged."""
        is_whole = False
        for frame in reader:
            if frame.kind == CHUNK:
                size = frame.end - frame.offset
                checkpoint.note(frame.data, frame.offset, size)
                yield Chunk(frame.data, 0, 0, PayloadRef(self._wal, checkpoint, frame.offset, size))
            elif frame.kind == END:
                is_whole, self.snapshot_through = True, frame.last
        if not is_whole or reader.offset != checkpoint.size:
            raise self._damaged(reader, "a checkpoint is complete, or it would not have this name")

    def _open_checkpoint(self, reader: SegmentReader, number: int) -> tuple[File, dict[str, Any]]:
        frame = reader.first()
        if frame is None or frame.kind != HEAD:
            raise self._damaged(reader, "it has no head")
        fields = self._check_head(reader, frame)
        file = File(number, "checkpoint", epoch=frame.epoch, start=frame.last)
        file.size = reader.size
        self._point = self.last = frame.last
        self.history = [(epoch, first) for epoch, first in fields["history"]]
        return file, fields

    def _open_segments(
        self, readers: list[SegmentReader], checkpoint: File | None
    ) -> list[tuple[File, SegmentReader]]:
        """Return the segments that are needed, and clear the others away."""
        opened: list[tuple[File, SegmentReader]] = []
        void = HEADLESS
        for reader in readers:
            frame = reader.first()
            fields = {} if frame is None else self._check_head(reader, frame)
            base, number = int(fields.get("base", 0)), int(reader.name[:8])
            after = int(fields.get("after", number))
            if base and (checkpoint is None or checkpoint.number < base):
                self.notes.append(
                    f"write-ahead log: {reader.name} and what follows it belong to a snapshot "
                    "that never was complete; removed"
                )
                void = number
            elif after < void:
                # It follows something else: the void ones were removed before it was begun, and
                # are there again after a crash.
                void = HEADLESS
            if void <= number:
                self._disk.remove(reader.name)
                continue
            epoch, start = (0, HEADLESS) if frame is None else (frame.epoch, frame.last)
            file = File(number, "log", epoch=epoch, start=start, base=base)
            file.size = reader.size
            while opened and opened[-1][0].number > after:
                # Removed before this one was begun, and there again after a crash.
                self._disk.remove(opened.pop()[0].name)
            opened.append((file, reader))
        while len(opened) > 1 and opened[1][0].start <= self._point:
            self._disk.remove(opened.pop(0)[0].name)
        return opened

    def _check_head(self, reader: SegmentReader, frame: Frame) -> dict[str, Any]:
        if frame.kind != HEAD:
            raise self._damaged(reader, "it does not begin with a head", at=0)
        fields: dict[str, Any] = json.loads(frame.data)
        self._check_format(reader.name, fields)
        if fields.get("system_id") != self._system_id:
            raise LogDamaged(
                f"write-ahead log file {reader.name} is of broker {fields.get('system_id')}, and "
                f"this one is {self._system_id}",
                hint=(
                    "put the former systemId back into data-dir, or move the folder journal/ away "
                    "to join as a new broker"
                ),
            )
        self._salt = self._wal.salt = frame.first
        return fields

    def _check_format(self, name: str, fields: dict[str, Any]) -> None:
        """Refuse a file that only another version can read: to pass over what is not understood
        would forget what was accepted.
        """
        number = fields.get("format")
        file = f"write-ahead log file {name}"
        if not isinstance(number, int) or number < OLDEST_FORMAT:
            raise UpgradeNeeded(
                f"{file} has format {number}, this version reads {OLDEST_FORMAT} to {FORMAT}",
                hint="use the version of qpidha that wrote it, or start with an empty data-dir",
            )
        if number > FORMAT:
            raise UpgradeNeeded(
                f"{file} has format {number}, this version reads {OLDEST_FORMAT} to {FORMAT}",
                hint=UPGRADE_HINT,
            )
        missing = lacking(fields.get("features", ()), self._features)
        if missing:
            raise UpgradeNeeded(
                f"{file} uses what this version does not know: {', '.join(missing)}",
                hint=UPGRADE_HINT,
            )

    # -- batches ----------------------------------------------------------------------------------

    def _batches(self, files: list[tuple[File, SegmentReader]]) -> Iterator[Chunk]:
        if files and self._point < files[0][0].start < HEADLESS:
            # It is not torn: what came before was on disk before this file was begun.
            raise self._damaged(
                files[0][1],
                f"it follows record {files[0][0].start}, and what had all up to there is gone",
                at=0,
            )
        position = min(files[0][0].start, self._point) if files else self._point
        readers = [reader for _, reader in files]
        for index, (file, reader) in enumerate(files):
            is_whole = file.start == position
            for frame in reader if is_whole else ():
                if frame.kind == BATCH:
                    if frame.first != position + 1:
                        reader.offset = frame.offset
                        break
                    position = frame.last
                    self._take(file, frame)
                    while self.tail and self.tail[0].last <= self.committed:
                        yield self._applied(self.tail.popleft())
                elif frame.kind == CUT and frame.last < position:
                    position = frame.last
                    self._cut([file for file, _ in files], position)
            if not is_whole or reader.offset < reader.size:
                self._check_clean_end(readers, index + is_whole)
                self._cut_torn(files, index if is_whole else index - 1, position)
                break
        else:
            self._check_clean_end(readers, len(readers))
        self.last = max(position, self._point)

    def _take(self, file: File, frame: Frame) -> None:
        self.committed = max(self.committed, frame.committed)
        file.firsts.append(frame.first)
        file.offsets.append(frame.offset)
        if frame.last <= self._point:
            return
        if frame.epoch > (self.history[-1][0] if self.history else 0):
            self.history.append((frame.epoch, frame.first))
        batch = Batch(
            frame.epoch,
            frame.first,
            frame.last,
            bool(frame.flags & CONTROL),
            (frame.data,),
            bool(frame.flags & DURABLE),
        )
        self.tail.append(batch)
        self._found[batch.epoch, batch.first] = PayloadRef(
            self._wal, file, frame.offset, frame.end - frame.offset
        )

    def _applied(self, batch: Batch) -> Chunk:
        return Chunk(
            batch.parts, batch.first, batch.last, self._found.pop((batch.epoch, batch.first))
        )

    def _cut(self, files: list[File], sequence: int) -> None:
        while self.tail and self.tail[-1].last > sequence:
            batch = self.tail.pop()
            del self._found[batch.epoch, batch.first]
        for file in files:
            while file.firsts and file.firsts[-1] > sequence:
                file.firsts.pop()
                file.offsets.pop()
        while self.history and self.history[-1][1] > max(sequence, self._point):
            self.history.pop()

    def _cut_torn(self, files: list[tuple[File, SegmentReader]], index: int, position: int) -> None:
        """Cut off what is after the last sound frame, in segment `index`, unless something later
        says that it was synced.
        """
        later = files[index + 1 :]
        lost = 0
        rests = [reader.rest() for _, reader in files[index : index + 1]] + [
            other.whole() for _, other in later
        ]
        for rest in rests:
            lost += len(rest)
            if any(frame.synced > position for frame in sound_frames(rest, self._salt)):
                raise self._damaged(
                    files[max(index, 0)][1],
                    f"the log was synced beyond record {position}, where it breaks off",
                )
        self.notes.append(
            f"write-ahead log: {lost} bytes after record {position} were never synced and are "
            "not whole; cut off"
        )
        self._wal.torn += lost
        for file, reader in files[index : index + 1]:
            if reader.offset < reader.size:
                self._disk.truncate(reader.name, reader.offset)
                file.size = reader.offset
        for other, _ in later:
            self._disk.remove(other.name)
            self._is_torn = True
        del files[index + 1 :]

    def _damaged(self, reader: SegmentReader, why: str, *, at: int = -1) -> LogDamaged:
        return LogDamaged(
            f"write-ahead log file {reader.name} is damaged at byte "
            f"{reader.offset if at < 0 else at}: {why}",
            hint=HINT,
        )
