"""A folder of a disk: the files of a second write-ahead log, beside those of the first one.

Both logs are written by one thread in one order, so one sync serves what is in both. Their marks
are counted together: when one is answered all before it is written, in whichever log it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qpidha.store.disk import Disk


class DiskFolder:
    """One folder of a disk, as a disk of its own."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._prefix = f"{name}/"

    def sizes(self) -> dict[str, int]:
        """Return the size of each file in it, as of the start."""
        prefix = self._prefix
        found = self._disk.sizes()
        return {
            name.removeprefix(prefix): size
            for name, size in found.items()
            if name.startswith(prefix)
        }

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Read back what is written. Raises OSError."""
        return self._disk.read(self._prefix + name, offset, size)

    def room(self) -> int:
        """Return how many bytes may be written beside the log."""
        return self._disk.room()

    def free_space(self) -> int:
        """Return how many bytes of the file system are free."""
        return self._disk.free_space()

    def until_low(self) -> int:
        """Return how many bytes may be appended before there is too little space."""
        return self._disk.until_low()

    def append(self, name: str, data: bytes | memoryview) -> None:
        """Add to a file."""
        self._disk.append(self._prefix + name, data)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file."""
        self._disk.truncate(self._prefix + name, size)

    def rename(self, name: str, new: str) -> None:
        """Sync all that was appended before, and give a file another name."""
        self._disk.rename(self._prefix + name, self._prefix + new)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._disk.remove(self._prefix + name)

    def mark(self, mark: int, *, sync: bool) -> None:
        """Have LogWritten(mark) come when all before is written."""
        self._disk.mark(mark, sync=sync)
