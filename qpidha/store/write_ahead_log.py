"""The write-ahead log: the log on disk, as files of frames.

Segments (`00000012.log`) hold the batches of the log, one after the other. A checkpoint
(`00000011.checkpoint`) holds what existed at one point, in chunks, like a snapshot for a backup:
our own, so that older segments are needed no more, or a primary's, and then what we had before is
void. It has another name (`.partial`) until it is whole. Segments from before the checkpoint are
kept up to `keep` bytes for backups that ask for an older part of the log.

`clean-end` says how far the log went when its broker was stopped in good order: of what was on disk
then nothing may be missing as long as no later file has taken its place. It stays when the broker
goes on, for it stays true, and an older version leaves it alone.

What another primary's log has not is not wiped: it moves to
`discarded-<Unix time>-<epoch>-<first sequence>-<last sequence>/`, for `qpid-ha journal salvage`.
Knows nothing of queues; when to make a checkpoint is up to `checkpointer.py`, how files are read
again to `log_reader.py`.
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple
from zlib import crc32

from qpidha.model.encoding import LARGE, Parts
from qpidha.model.errors import LogDamaged
from qpidha.model.records import Batch, Enqueued
from qpidha.store.codec import EnqueueRun, decode, first_of_run
from qpidha.store.disk import Disk
from qpidha.store.frames import (
    BATCH,
    CHUNK,
    CONTROL,
    CUT,
    DURABLE,
    END,
    HEAD,
    Frame,
    decode_frame,
    encode_frame,
    frame_parts,
)

FORMAT = 3
"""Version of the files, in the head of each. Files of every format from OLDEST_FORMAT on are read,
and go when a checkpoint has taken their place. One of a later format is refused.

- 2: the base. Every file is written so while no feature is enabled, and older versions read it.
- 3: the head names the features that may be used in the file. A version that does not know one of
  them refuses the file by that name, so a new feature is no new format.
"""
OLDEST_FORMAT = 2
CACHED_BYTES = 32 << 20
"""Bytes of frames kept for messages that are read back one after the other, in as many
places at once as there are consumers: of those that were read last, and one at least.
"""
SET_ASIDE = re.compile(r"discarded-[0-9]+-[0-9]+-(?P<first>[0-9]+)-(?P<last>[0-9]+)", re.ASCII)
"""The name of a folder with records that another primary's log has not.
"""

LOCAL_FOLDER = "local"
"""The folder with the log of what this broker keeps for itself (`local_log.py`)."""
CLEAN_END = "clean-end"
"""The file that says how far the log went at the last stop in good order."""
NEW_CLEAN_END = "clean-end.new"
"""Its name until it is whole."""

History = list[tuple[int, int]]


class Marks:
    """The marks that one disk was asked for, by all logs on it."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0


class File:
    """A segment or checkpoint: its name, its size, and where the batches are in it, or the messages
    of each queue.
    """

    __slots__ = ("base", "epoch", "firsts", "name", "number", "offsets", "queues", "size", "start")

    def __init__(self, number: int, kind: str, *, epoch: int, start: int, base: int = 0) -> None:
        self.number = number
        self.name = f"{number:08d}.{kind}"
        self.epoch = epoch
        """Of the last record before this file."""
        self.start = start
        """Sequence of the last record before this file."""
        self.base = base
        """Number of the checkpoint without which this segment means nothing; 0 for one that follows
        the segment before it.
        """
        self.size = 0
        self.firsts = array("Q")
        self.offsets = array("Q")
        self.queues: dict[int, array[int]] = {}
        """Queue -> first sequence, offset and size of each frame with messages of it, one after the
        other.
        """

    def note(self, data: bytes, offset: int, size: int) -> None:
        """Note which messages a part of a checkpoint has."""
        found = first_of_run(data)
        if found is not None:
            queue, first = found
            self.queues.setdefault(queue, array("Q")).extend((first, offset, size))

    def read(self, disk: Disk, offset: int, size: int) -> bytes:
        """Read a piece; raises OSError. It may still have the name it had before, or get the new
        one this moment.
        """
        for name in (self.name, self.name.replace("checkpoint", "partial")):
            try:
                return disk.read(name, offset, size)
            except FileNotFoundError:
                continue
        return disk.read(self.name, offset, size)


class PayloadRef:
    """Where the bodies of the messages of one frame are."""

    __slots__ = ("_file", "_wal", "_offset", "size")

    def __init__(self, wal: WriteAheadLog, file: File, offset: int, size: int) -> None:
        self._wal = wal
        self._file = file
        self._offset = offset
        self.size = size
        """Bytes of the frame."""

    def read(self, sequence: int) -> bytes:
        """Return one message. Raises LogDamaged if the disk does not give it back as it was
        written.
        """
        return self._wal.payloads(self)[sequence]

    def read_all(self, sequences: Sequence[int]) -> bytes:
        """Return some messages, one after the other. Raises LogDamaged as well."""
        payloads = self._wal.payloads(self)
        if isinstance(payloads, Bodies):
            return payloads.run(sequences)
        return b"".join([payloads[sequence] for sequence in sequences])

    def frame(self, disk: Disk) -> Frame:
        """Read the whole frame."""
        try:
            frame = decode_frame(
                self._file.read(disk, self._offset, self.size), salt=self._wal.salt
            )
        except OSError as error:
            raise LogDamaged(
                f"write-ahead log file {self._file.name} cannot be read at byte {self._offset}: "
                f"{error.strerror}"
            ) from error
        if frame is None:
            raise LogDamaged(
                f"write-ahead log file {self._file.name} is damaged at byte {self._offset}: a "
                f"frame of {self.size} bytes has another checksum",
                hint="look at the disk, then at its files with qpid-ha journal verify; take out "
                "what can be had with qpid-ha journal salvage, or start with an empty data-dir to "
                "have all from the primary",
            )
        return frame


class Bodies:
    """The messages of one frame in one piece: an object for each would take as much again, in as
    many places of the memory.
    """

    __slots__ = ("_ends", "_payload", "_sequences")

    def __init__(self, payloads: Mapping[int, bytes]) -> None:
        sequences = sorted(payloads)
        bodies = list(map(payloads.__getitem__, sequences))
        self._sequences = array("Q", sequences)
        self._ends = array("Q", accumulate(map(len, bodies)))
        self._payload = b"".join(bodies)

    def __getitem__(self, sequence: int) -> bytes:
        at = bisect_left(self._sequences, sequence)
        if at == len(self._sequences) or self._sequences[at] != sequence:
            raise KeyError(sequence)
        return self._payload[self._ends[at - 1] if at else 0 : self._ends[at]]

    def run(self, sequences: Sequence[int]) -> bytes:
        """Return some messages, one after the other."""
        at = bisect_left(self._sequences, sequences[0])
        end = at + len(sequences)
        if self._sequences[at:end] != array("Q", sequences):
            return b"".join(map(self.__getitem__, sequences))
        return self._payload[self._ends[at - 1] if at else 0 : self._ends[end - 1]]


class CleanEnd(NamedTuple):
    """How far a log went at a stop in good order."""

    name: str
    """Its last file."""
    size: int
    """How large that was."""
    last: int
    """The last record."""

    @property
    def number(self) -> int:
        """The number of its last file."""
        return int(self.name[:8])


class Chunk(NamedTuple):
    """Encoded records: of a batch, `first` to `last` of the log; or of a checkpoint, and then these
    are 0.
    """

    data: bytes | Parts
    first: int
    last: int
    body: PayloadRef
    """Where they are."""


class WriteAheadLog:
    """The files of one broker's log."""

    def __init__(
        self,
        disk: Disk,
        system_id: str,
        *,
        segment_size: int,
        keep: int,
        nonce: str = "",
        marks: Marks | None = None,
    ) -> None:
        """`marks` are those of the disk, if it has another log."""
        self.disk = disk
        self._marks = marks or Marks()
        self.salt = crc32(nonce.encode())
        """See `frames.py`; from a nonce that no client knows, but if there are files already, it is
        what they have.
        """
        self.now = 0
        """The time, ns since the Unix epoch; kept by the owner, for names only."""
        self._begun_with = 0
        """Bytes of the segment that began with the last checkpoint, as it was then."""
        self.bytes_written = 0
        self.frames_written = 0
        self._system_id = system_id
        self._segment_size = segment_size
        self.keep = keep
        self._files: list[File] = []
        self._checkpoint: File | None = None
        self._partial: File | None = None
        self._receiving = False
        """Whether the partial checkpoint is a primary's, and not our own."""
        self._former: list[str] = []
        """Files of a log that is void once a primary's checkpoint is whole."""
        self._discard: dict[str, object] = {}
        """The folder to which they are moved then, and from where on they differ; empty if they
        have nothing that the new log has not.
        """
        self._number = 0
        self._begins_anew = False
        """Whether the next batch begins a new segment, however small the last one is."""
        self.features: tuple[str, ...] = ()
        """Enabled features: the head of every file that is begun from now on names them."""
        self._cache: dict[PayloadRef, Bodies | dict[int, bytes]] = {}
        self._is_read = False
        """Whether a message was read since `rest`."""
        self.set_aside: list[str] = []
        """Folders of records that another primary's log has not."""
        self.news: list[str] = []
        """Those of them that nobody was told of; emptied by the owner."""
        self.torn = 0
        """Bytes that the start cut off the end: they were never synced and not whole."""

    # -- where it stands --------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """The first sequence that can be read back; one that is never reached if there is none."""
        for file in self._files:
            if file.firsts:
                return int(file.firsts[0])
        return 1 << 63

    @property
    def size(self) -> int:
        """Bytes of all files."""
        files = (*self._files, self._checkpoint, self._partial)
        return sum(file.size for file in files if file is not None)

    @property
    def live_size(self) -> int:
        """Bytes that a start has to read: the checkpoint and the segments since."""
        checkpoint = self._checkpoint
        since = (
            self._files
            if checkpoint is None
            else [file for file in self._files if file.number >= checkpoint.number]
        )
        return sum(file.size for file in since) + (checkpoint.size if checkpoint is not None else 0)

    @property
    def checkpoint_size(self) -> int:
        """Bytes of the last whole checkpoint."""
        return self._checkpoint.size if self._checkpoint is not None else 0

    @property
    def is_snapshotting(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._partial is not None

    @property
    def is_receiving(self) -> bool:
        """Whether a snapshot of a primary is being written."""
        return self._receiving

    def report(self) -> dict[str, int]:
        """Tell how large it is, and what was written since the start."""
        files = len(self._files) + (self._checkpoint is not None) + (self._partial is not None)
        return {
            "bytes": self.size,
            "files": files,
            "written": self.bytes_written,
            "frames": self.frames_written,
            "torn": self.torn,
        }

    def adopt(
        self, files: list[File], checkpoint: File | None, number: int, *, is_torn: bool
    ) -> None:
        """Go on with the files that were found at the start; `number` is the highest in use.

        Where some are `torn` off the end, a new one follows: should they be there again after a
        crash, it says that they are void.
        """
        self._files = files
        self._checkpoint = checkpoint
        self._number = number
        self._begins_anew = is_torn

    def use(self, features: Iterable[str]) -> None:
        """Name these features in the files from here on: the next batch begins a new one."""
        names = tuple(sorted(features))
        if names != self.features:
            self.features = names
            self._begins_anew = True

    @property
    def next_mark(self) -> int:
        """The mark that will be asked for next: when it is answered, all up to now is written."""
        return self._marks.last + 1

    def mark(self, *, sync: bool) -> int:
        """Ask to be told when all up to now is written, or on disk to stay."""
        marks = self._marks
        marks.last += 1
        self.disk.mark(marks.last, sync=sync)
        return marks.last

    # -- the log ----------------------------------------------------------------------------------

    def append(self, batch: Batch, *, committed: int, synced: int) -> PayloadRef:
        """Write a batch."""
        if not self._files or self._files[-1].size >= self._segment_size or self._begins_anew:
            self.rotate(batch.epoch, batch.first - 1)
        file = self._files[-1]
        # The frame says how far the log was committed and synced when it was written. A start reads
        # from that what it may apply, and whether a broken frame is a torn end or damage.
        flags = CONTROL * batch.control | DURABLE * batch.durable
        file.firsts.append(batch.first)
        file.offsets.append(file.size)
        return self._write(
            file,
            *frame_parts(
                BATCH,
                batch.parts,
                salt=self.salt,
                flags=flags,
                epoch=batch.epoch,
                first=batch.first,
                last=batch.last,
                committed=committed,
                synced=synced,
            ),
        )

    def rotate(self, epoch: int, last: int, *, base: int = 0) -> None:
        """Begin a new segment, which follows the record `(epoch, last)`; files between it and the
        one before it are void.
        """
        # `after` names the file that this one follows. Numbers between the two are void: removed,
        # and perhaps there again after a crash, for a removal need not be on disk in its order.
        self._number += 1
        self._begins_anew = False
        after = self._files[-1].number if self._files else base
        file = File(self._number, "log", epoch=epoch, start=last, base=base)
        self._files.append(file)
        self._head(file, {"base": base, "after": after})

    def cut(self, sequence: int, batches: list[Batch], *, synced: int) -> None:
        """Declare everything after `sequence` void; `batches` are what that is, and go to a folder
        of their own if durable.
        """
        # Files are only ever appended to, so a cut is a frame that says so, and a start obeys it.
        # What is cut off was never committed. It may be somebody's message all the same, so what is
        # durable goes to a folder where an operator finds it (`qpid-ha journal salvage`).
        if any(batch.durable for batch in batches):
            folder = self._discarded_name(batches[0].epoch, batches[0].first, batches[-1].last)
            head = {**self._format(), "base": 0, "common": sequence}
            parts = [
                encode_frame(
                    HEAD,
                    json.dumps(head).encode(),
                    epoch=batches[0].epoch,
                    first=self.salt,
                    last=batches[0].first - 1,
                )
            ]
            parts += [
                encode_frame(
                    BATCH,
                    batch.data,
                    salt=self.salt,
                    flags=DURABLE * batch.durable,
                    epoch=batch.epoch,
                    first=batch.first,
                    last=batch.last,
                )
                for batch in batches
            ]
            self.disk.append(f"{folder}/{1:08d}.log", b"".join(parts))
            self.note_set_aside(folder)
        for file in self._files:
            while file.firsts and file.firsts[-1] > sequence:
                file.firsts.pop()
                file.offsets.pop()
        if self._files:
            self._write(
                self._files[-1],
                encode_frame(CUT, b"", salt=self.salt, last=sequence, synced=synced),
            )

    def batches(self, sequence: int) -> Iterator[Batch]:
        """Read the log from the batch that begins with `sequence`."""
        for file in self._files:
            if not file.firsts or file.firsts[-1] < sequence:
                continue
            index = bisect_right(file.firsts, sequence - 1)
            for place in range(index, len(file.firsts)):
                offset = int(file.offsets[place])
                end = int(file.offsets[place + 1]) if place + 1 < len(file.offsets) else file.size
                frame = PayloadRef(self, file, offset, end - offset).frame(self.disk)
                yield Batch(
                    frame.epoch,
                    frame.first,
                    frame.last,
                    bool(frame.flags & CONTROL),
                    (frame.data,),
                    bool(frame.flags & DURABLE),
                )

    # -- checkpoints ------------------------------------------------------------------------------

    def begin_checkpoint(self, epoch: int, point: int, history: History, *, last: int) -> None:
        """Begin to write what exists at `point` of our own log, which ends with `last`."""
        # It gets the number before the segment that begins now: what a start needs beside it are
        # the segments with higher numbers, and those before that reach beyond `point`.
        self._number += 1
        self._open_partial(epoch, point, history, reset=False)
        self.rotate(epoch, last)
        self._begun_with = self._files[-1].size

    def reset(
        self, epoch: int, point: int, history: History, *, diverged: tuple[int, int, int] | None
    ) -> None:
        """Start a new log from a snapshot taken at `point`.

        The old files stay until that snapshot is complete. `diverged` is the epoch and the first
        and last sequence of the records there that the new log does not have, if it lacks some.
        """
        # Until the snapshot is whole its segments have its number as `base`: if a crash comes first
        # they mean nothing without it, and the former files are the log again.
        if self._partial is not None:
            self.disk.remove(self._partial.name)
        if self._receiving:
            for file in self._files:  # of a log that never was whole
                self.disk.remove(file.name)
        else:
            self._former = [
                file.name for file in (*self._files, self._checkpoint) if file is not None
            ]
        self._discard = (
            {"folder": self._discarded_name(*diverged), "common": diverged[1] - 1}
            if diverged is not None
            else {}
        )
        self._receiving = True
        self._files = []
        self._checkpoint = None
        self._number += 1
        self._open_partial(epoch, point, history, reset=True)
        self.rotate(epoch, point, base=self._number)

    def chunk(self, data: bytes) -> PayloadRef:
        """Write a part of the checkpoint."""
        file = self._partial
        assert file is not None
        offset = file.size
        body = self._write(file, encode_frame(CHUNK, data, salt=self.salt))
        file.note(data, offset, file.size - offset)
        return body

    def end_checkpoint(self, through: int) -> int:
        """The checkpoint is whole, and may show effects of the log up to `through`; give the mark
        that says it is on disk.
        """
        file = self._partial
        assert file is not None
        # The order is what makes it safe. The rename syncs everything before it, so a file with the
        # name of a checkpoint is whole; only then what it replaces goes. A crash between two steps
        # leaves more than is needed, and the next start clears that away.
        self._write(file, encode_frame(END, b"", salt=self.salt, last=through))
        name = f"{file.number:08d}.checkpoint"
        self.disk.rename(file.name, name)
        file.name = name
        self.clear_away(self._former, self._discard)
        if self._checkpoint is not None:
            self.disk.remove(self._checkpoint.name)
        self._former, self._discard, self._receiving = [], {}, False
        self._checkpoint, self._partial = file, None
        self.purge()
        return self.mark(sync=True)

    def note_copies(self) -> None:
        """What was appended since the checkpoint began is in a former segment as well."""
        self._begun_with = self._files[-1].size

    def abandon_checkpoint(self) -> None:
        """Our own partial checkpoint is not to be finished: it goes, and what was there before is
        what there is.
        """
        assert self._partial is not None and not self._receiving
        self.disk.remove(self._partial.name)
        # The segment that began with it may have nothing of its own yet. Another one takes its
        # place, for a removal need not be on disk in its order.
        file = self._files[-1]
        if file.number == self._partial.number + 1 and file.size == self._begun_with:
            self.disk.remove(self._files.pop().name)
            self._begins_anew = True
        self._partial = None

    def purge(self) -> bool:
        """Remove the oldest segments that nothing needs but backups that are far behind, when they
        are too many; whether there were some.

        Where the disk gets full that is soon: they may take no more than what is left beside them.
        """
        # Only from the oldest on: after a cut a later one may begin before an earlier one, and what
        # it cuts must not come back.
        point = self._checkpoint.start if self._checkpoint is not None else 0
        spare = 0
        while spare + 1 < len(self._files) and self._files[spare + 1].start <= point:
            spare += 1
        excess = sum(file.size for file in self._files[:spare]) - min(self.keep, self.disk.room())
        gone = 0
        while gone < spare and excess > 0:
            excess -= self._files[gone].size
            self.disk.remove(self._files[gone].name)
            gone += 1
        del self._files[:gone]
        return gone > 0

    def end_in_order(self, last: int) -> None:
        """The broker stops, and its log ends with the record `last`: let a start notice if less of
        it is left.
        """
        # The renaming syncs all that was appended before. Of a primary's snapshot that is on its
        # way nothing counts before it is whole, so nothing of that would be missed.
        if not self._files or self._receiving:
            return
        file = self._files[-1]
        fields = {**self._format(), "file": file.name, "size": file.size}
        frame = encode_frame(HEAD, json.dumps(fields).encode(), epoch=file.epoch, last=last)
        self.disk.append(NEW_CLEAN_END, frame)
        self.disk.rename(NEW_CLEAN_END, CLEAN_END)

    def _open_partial(self, epoch: int, point: int, history: History, *, reset: bool) -> None:
        self._partial = File(self._number, "partial", epoch=epoch, start=point)
        self._head(self._partial, {"history": history, "reset": reset, "discard": self._discard})

    # -- bodies -----------------------------------------------------------------------------------

    def place(self, queue: int, sequence: int) -> tuple[PayloadRef, int] | None:
        """Return from where a message that is on a queue can be read once it is written, and up to
        which sequence the others of that queue can; None if it is nowhere.
        """
        # Segments from before the checkpoint may go at any time, so they do not count.
        checkpoint = self._checkpoint
        if checkpoint is not None and sequence <= checkpoint.start:
            frames = checkpoint.queues.get(queue) or array("Q")
            count = len(frames) // 3
            at = bisect_right(range(count), sequence, key=lambda frame: frames[3 * frame]) - 1
            if at < 0:
                return None
            body = PayloadRef(self, checkpoint, frames[3 * at + 1], frames[3 * at + 2])
            is_last = at + 1 == count
            return body, checkpoint.start if is_last else frames[3 * at + 3] - 1
        for file in reversed(self._files):
            if file.firsts and file.firsts[0] <= sequence:
                at = bisect_right(file.firsts, sequence) - 1
                is_last = at + 1 == len(file.firsts)
                offset, end = int(file.offsets[at]), file.size
                if not is_last:
                    end = int(file.offsets[at + 1])
                body = PayloadRef(self, file, offset, end - offset)
                return body, sequence if is_last else int(file.firsts[at + 1]) - 1
        return None

    def payloads(self, body: PayloadRef) -> Bodies | dict[int, bytes]:
        """Read the messages of a frame: those beside one that is wanted are likely to be next."""
        cache = self._cache
        self._is_read = True
        payloads = cache.pop(body, None)
        if payloads is None:
            payloads = payloads_of(body.frame(self.disk).data)
            if body.size < LARGE * len(payloads):  # Large ones are not copied.
                payloads = Bodies(payloads)
            kept = body.size + sum(other.size for other in cache)
            while cache and kept > CACHED_BYTES:
                oldest = next(iter(cache))
                del cache[oldest]
                kept -= oldest.size
        cache[body] = payloads  # It is the last one that is let go of.
        return payloads

    def rest(self) -> None:
        """Let go of what was read, unless somebody reads: called now and then."""
        if not self._is_read:
            self._cache.clear()
        self._is_read = False

    # -- below ------------------------------------------------------------------------------------

    def _head(self, file: File, fields: dict[str, object]) -> None:
        data = json.dumps({**self._format(), **fields}).encode()
        self._write(
            file, encode_frame(HEAD, data, epoch=file.epoch, first=self.salt, last=file.start)
        )

    def _write(self, file: File, *frame: bytes | memoryview) -> PayloadRef:
        size = sum(map(len, frame))
        body = PayloadRef(self, file, file.size, size)
        file.size += size
        self.frames_written += 1
        self.bytes_written += size
        for part in frame:
            self.disk.append(file.name, part)
        return body

    def _format(self) -> dict[str, object]:
        """What the head of a file says of how to read it, and whose it is."""
        features = {"features": self.features} if self.features else {}
        number = FORMAT if self.features else OLDEST_FORMAT
        return {"format": number, "system_id": self._system_id, **features}

    def clear_away(self, names: list[str], discard: dict[str, object]) -> None:
        """Remove files of a log that is void; or move them to a folder, with a note from where on
        they differ.
        """
        disk, folder = self.disk, str(discard.get("folder", ""))
        if folder and names:
            note = json.dumps({"format": OLDEST_FORMAT, "common": discard["common"]}).encode()
            disk.append(f"{folder}/{0:08d}.log", encode_frame(HEAD, note, first=self.salt))
            self.note_set_aside(folder)
        for name in names:
            if folder:
                disk.rename(name, f"{folder}/{name}")
            else:
                disk.remove(name)

    def note_set_aside(self, folder: str) -> None:
        """Have the operator told of records that were set aside, once for each start."""
        if folder not in self.set_aside:
            self.set_aside.append(folder)
            self.news.append(folder)

    @property
    def records_set_aside(self) -> int:
        """How many records are in folders of their own, as the names of those say."""
        ranges = [match for folder in self.set_aside if (match := SET_ASIDE.fullmatch(folder))]
        return sum(int(match["last"]) - int(match["first"]) + 1 for match in ranges)

    def _discarded_name(self, epoch: int, first: int, last: int) -> str:
        return f"discarded-{self.now // 1_000_000_000}-{epoch}-{first}-{last}"


def read_clean_end(content: bytes) -> CleanEnd | None:
    """Read how far a log went at its last stop in good order; None if that cannot be read."""
    frame = decode_frame(content)
    if frame is None or frame.kind != HEAD:
        return None
    fields = json.loads(frame.data)
    return CleanEnd(fields["file"], fields["size"], frame.last)


def payloads_of(data: bytes | Parts) -> dict[int, bytes]:
    """Return the messages in encoded records, by their sequences."""
    found: dict[int, bytes] = {}
    for entry in decode(data):
        if isinstance(entry, EnqueueRun):
            found.update(zip(entry.sequences, entry.payloads, strict=True))
        elif isinstance(entry[1], Enqueued):
            found[entry[0]] = entry[1].payload
    return found
