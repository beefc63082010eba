"""Frames: how the files of a write-ahead log are written.

A file is a row of frames; a frame is a fixed head with a checksum over all of it, and data. A batch
of the log is one frame, so it is read back whole or not at all. What a power cut leaves at the end
of the last file is no frame, and is cut off. A frame says with `synced` how far the log was synced
when it was written: a bad frame that a later one calls synced is damage, and nothing to be cut off
silently. A client may send what looks like a frame. So every write-ahead log has a salt that no
client knows, its checksums differ by it from those of another one, and each head, which has none
itself, says it in `first`. The salt is added when all is counted: a count that begins with it comes
out the same for any salt where a made-up frame reaches just over the next real one. Knows nothing
of directories, nor of what a record means.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from qpidha.model.encoding import LARGE, gathered

if TYPE_CHECKING:
    from qpidha.model.encoding import Parts

MAGIC = b"\xa7Q"
START = struct.Struct("<2sI")  # magic, checksum of all that follows
REST = struct.Struct(
    "<BBIQQQQQ"
)  # kind, flags, length of data, epoch, first, last, committed, synced
HEAD_SIZE = START.size + REST.size

HEAD, BATCH, CUT, CHUNK, END = 1, 2, 3, 4, 5
"""What a frame holds: the head of a file, a batch, the word that all after `last` is void, a part
of a snapshot, its end.
"""
KIND_NAMES = {HEAD: "head", BATCH: "batch", CUT: "cut", CHUNK: "chunk", END: "end"}
CONTROL, DURABLE = 1, 2
"""Flags of a batch."""


class Frame(NamedTuple):
    """One frame, and where it is in its file."""

    offset: int
    kind: int
    flags: int
    epoch: int
    first: int
    last: int
    committed: int
    synced: int
    data: bytes

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.offset + HEAD_SIZE + len(self.data)


def encode_frame(kind: int, data: bytes, **fields: int) -> bytes:
    """Write a frame in one piece; with the fields of `frame_parts`."""
    return b"".join(frame_parts(kind, (data,), **fields))


def frame_parts(
    kind: int,
    data: Parts,
    *,
    salt: int = 0,
    flags: int = 0,
    epoch: int = 0,
    first: int = 0,
    last: int = 0,
    committed: int = 0,
    synced: int = 0,
) -> Parts:
    """Write a frame. Large parts of its data are not copied."""
    size = sum(map(len, data))
    rest = REST.pack(kind, flags, size, epoch, first, last, committed, synced)
    checksum = crc32(rest)
    for part in data:
        checksum = crc32(part, checksum)
    frame = (START.pack(MAGIC, checksum ^ salt), rest, *data)
    return (b"".join(frame),) if size < LARGE else gathered(frame)


def decode_frame(
    content: bytes, offset: int = 0, *, salt: int | None = 0, begin: int = 0
) -> Frame | None:
    """Read the frame at an offset of a content, which begins at byte `begin` of a file; None if
    there is no whole and sound one.

    With None for the salt, any checksum will do.
    """
    start = offset + START.size
    if len(content) < offset + HEAD_SIZE:
        return None
    magic, checksum = START.unpack_from(content, offset)
    if magic != MAGIC:
        return None
    kind, flags, length, epoch, first, last, committed, synced = REST.unpack_from(content, start)
    end = offset + HEAD_SIZE + length
    if kind not in KIND_NAMES or end > len(content):
        return None
    if salt is not None and crc32(memoryview(content)[start:end]) ^ salt != checksum:
        return None
    return Frame(
        begin + offset,
        kind,
        flags,
        epoch,
        first,
        last,
        committed,
        synced,
        content[offset + HEAD_SIZE : end],
    )


def sound_frames(content: bytes, salt: int | None) -> Iterator[Frame]:
    """Yield every whole frame that is anywhere in a content, whatever is between them; with None
    for the salt, all that may be one.
    """
    offset = 0
    while (offset := content.find(MAGIC, offset)) >= 0:
        frame = decode_frame(content, offset, salt=salt)
        if frame is not None:
            yield frame
        offset = frame.end if frame is not None else offset + 1


def likely_salt(content: bytes) -> int:
    """Guess the salt where every head is lost: what most of the frames would have."""
    found = Counter(
        crc32(memoryview(content)[frame.offset + START.size : frame.end])
        ^ START.unpack_from(content, frame.offset)[1]
        for frame in sound_frames(content, None)
    )
    return max(found, key=found.__getitem__, default=0)
