"""Disk: what the store asks of the world: files of one directory that are only ever appended to,
renamed and removed.

Calls that change something return at once and are carried out in their order by somebody else;
`mark` says when. Reads are immediate, and only of what is written. The runtime has one with a
thread, a simulator one that tears. Names are relative to the directory of the write-ahead log and
may have one folder in them.
"""

from __future__ import annotations

from typing import Protocol


class Disk(Protocol):
    """The directory of one write-ahead log."""

    def sizes(self) -> dict[str, int]:
        """Return the size of each file, as of the time the broker started; names are sorted."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Read back what is written; fewer bytes at the end of the file. Raises OSError."""

    def room(self) -> int:
        """Return how many bytes may be written beside the log at present: what is free, but for
        what is kept for the log itself.
        """

    def free_space(self) -> int:
        """Return how many bytes of the file system were free when it was last looked at; -1 if that
        is not known.
        """

    def until_low(self) -> int:
        """Return how many bytes may be appended before there is so little space that nothing more
        is to be taken; 0 or less if it is so.
        """

    def append(self, name: str, data: bytes | memoryview) -> None:
        """Add to a file, which is made if it does not exist."""

    def truncate(self, name: str, size: int) -> None:
        """Cut a file to `size` bytes, and sync it."""

    def rename(self, name: str, new: str) -> None:
        """Sync all that was appended before, to whatever file; then give a file another name, and
        sync that before what follows.
        """

    def remove(self, name: str) -> None:
        """Remove a file, soon: no mark waits for that. Those to remove go one after the other."""

    def mark(self, mark: int, *, sync: bool) -> None:
        """Have the event LogWritten(mark) come when all before is written; with `sync`, when it
        is on the disk to stay.

        Marks rise. Several may be answered by one event with the highest; one sync serves all that
        arrived meanwhile. A failure is told by LogFailed, once, and nothing is carried out
        after it.
        """
