"""Payloads: the bytes of large messages, which go past the engine.

The engine copies each byte that goes through it five times. So it is given the transfers of large
messages without their payload; these bytes are views of what was read, or the buffers of whoever
sends, until a message is made of them or they are written.
"""

from __future__ import annotations

from collections import deque

APART = 16384
"""Bytes of a frame, or of a message, from which on that is worth it: to copy 10 KiB costs less."""
SMALL = 4096
"""Bytes of a part that is kept as it came."""
TOGETHER = 65536
"""Bytes that small parts are gathered to."""
HEAD = 64
"""Bytes before the payload in a frame of ours, at most."""
FEW = 4
"""A part is kept as a view where it is one of so few of what was read: a view keeps all of that."""

Chunk = bytes | bytearray | memoryview


def keep(chunks: list[Chunk], part: Chunk, *, of: int = 0) -> None:
    """Keep a part; small ones together, for each object costs as much as 60 bytes do. `of` is how
    many bytes a view keeps in memory.
    """
    last = chunks[-1] if chunks else None
    if len(part) >= SMALL:
        chunks.append(part if FEW * len(part) >= of else bytes(part))
    elif isinstance(last, bytearray) and len(last) < TOGETHER:
        last += part
    else:
        chunks.append(bytearray(part))


def cut(parts: deque[bytes | memoryview], size: int) -> list[bytes | memoryview]:
    """Take the first `size` bytes of parts."""
    taken: list[bytes | memoryview] = []
    while size:
        part = parts.popleft()
        if len(part) > size:
            view = memoryview(part)
            parts.appendleft(view[size:])
            part = view[:size]
        size -= len(part)
        if part:
            taken.append(part)
    return taken


def joined(chunks: list[Chunk]) -> bytes:
    """Put parts together."""
    return bytes(chunks[0]) if len(chunks) == 1 else b"".join(chunks)
