"""Power cuts: a daemon that notes what the disk was made to keep, and what remains of its files
when the power fails.

`python -m tests.system.power ...` is qpidhad, with `os.fsync` and `os.fdatasync` noting beside the
data directory which bytes of which file, and which names, they covered. `cut_power` then leaves of
a dead broker's files just that; with `choices` also some of what was written later, torn: a disk
may have got to it. A name whose directory was not synced is gone, and one that was removed without
a sync is back. With QPIDHA_TEST_LIE the disk keeps less than it says.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import sys
import time
from pathlib import Path

LIE = "QPIDHA_TEST_LIE"
"""Environment variable; `data`: syncs of files are said to be done and keep nothing."""
DELAY = "QPIDHA_TEST_SYNC_SECONDS"
"""Environment variable: how long each sync takes, for a slow disk."""
SLOW = "seconds"
"""File among the notes: the same, for a disk that becomes slow later, or quick again."""


def shadow_of(data_dir: Path) -> Path:
    """Return where the notes on a data directory are."""
    return data_dir.with_name(data_dir.name + ".synced")


def slow_down(data_dir: Path, seconds: float) -> None:
    """Have each sync of a broker take so long from now on."""
    (shadow_of(data_dir) / SLOW).write_text(str(seconds))


def synced(data_dir: Path, name: str) -> int:
    """Return how often a file was synced that keeps its place."""
    inode = (data_dir / name).stat().st_ino
    lines = (shadow_of(data_dir) / "notes").read_bytes().split(b"\n")[:-1]
    return sum(json.loads(line).get("file") == inode for line in lines)


class Recorder:
    """Notes what is synced; keeps every synced file alive under its inode number, so that a removed
    one can come back.
    """

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.resolve()
        self.shadow = shadow_of(self.data_dir)
        self.delay = float(os.environ.get(DELAY, "0"))
        self.lies = os.environ.get(LIE, "")
        self.fsync, self.fdatasync = os.fsync, os.fdatasync
        fresh = not self.shadow.exists()
        (self.shadow / "inodes").mkdir(parents=True, exist_ok=True)
        self.notes = os.open(
            self.shadow / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
        if fresh and self.data_dir.exists():
            for folder, _, files in os.walk(self.data_dir):
                for name in files:
                    status = os.stat(os.path.join(folder, name))
                    self._note({"file": status.st_ino, "size": status.st_size})
                self._note(self._listing(folder))

    def install(self) -> None:
        """Take the place of the system's calls."""
        os.fsync = lambda file: self._sync(self.fsync, file)  # type: ignore[assignment]
        os.fdatasync = lambda file: self._sync(self.fdatasync, file)  # type: ignore[assignment]

    def _sync(self, call: object, file: object) -> None:
        number = file if isinstance(file, int) else file.fileno()  # type: ignore[attr-defined]
        before = os.fstat(number)
        path = os.readlink(f"/proc/self/fd/{number}")
        listing = self._listing(path) if stat.S_ISDIR(before.st_mode) else None
        if delay := self._seconds():
            time.sleep(delay)
        call(number)  # type: ignore[operator]
        if not path.startswith(str(self.data_dir)):
            return
        if listing is not None:
            self._note(listing)
        elif self.lies != "data":
            self._note({"file": before.st_ino, "size": before.st_size})

    def _seconds(self) -> float:
        try:
            return float((self.shadow / SLOW).read_text() or 0)
        except FileNotFoundError:
            return self.delay

    def _listing(self, folder: str) -> dict[str, object]:
        """Name what is in a directory, and keep hold of its files."""
        names: dict[str, int] = {}
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if entry.is_dir():
                        names[entry.name] = 0
                        continue
                    kept = self.shadow / "inodes" / str(entry.inode())
                    if not kept.exists():
                        os.link(entry.path, kept)
                    names[entry.name] = entry.inode()
                except FileNotFoundError:  # removed meanwhile
                    continue
        return {"folder": os.path.relpath(folder, self.data_dir), "names": names}

    def _note(self, what: dict[str, object]) -> None:
        os.write(self.notes, json.dumps(what).encode() + b"\n")


def cut_power(data_dir: Path, choices: random.Random | None = None) -> None:
    """Leave of a dead broker's files what a disk without power has kept; with `choices`, or a
    little more.
    """
    data_dir = data_dir.resolve()
    shadow = shadow_of(data_dir)
    sizes: dict[int, int] = {}
    folders: dict[str, dict[str, int]] = {}
    for line in (shadow / "notes").read_bytes().split(b"\n")[:-1]:
        note = json.loads(line)
        if "file" in note:
            sizes[note["file"]] = note["size"]
        else:
            folders[note["folder"]] = note["names"]
    kept = data_dir.with_name(data_dir.name + ".kept")
    shutil.rmtree(kept, ignore_errors=True)
    _restore(data_dir, kept, ".", shadow, sizes, folders, choices)
    shutil.rmtree(data_dir)
    kept.rename(data_dir)
    shutil.rmtree(shadow)


def _restore(
    data_dir: Path,
    kept: Path,
    folder: str,
    shadow: Path,
    sizes: dict[int, int],
    folders: dict[str, dict[str, int]],
    choices: random.Random | None,
) -> None:
    """Make one directory as it is after the power cut, and those in it."""
    (kept / folder).mkdir()
    names = dict(folders.get(folder, {}))
    if choices is not None and choices.random() < 0.5:  # the disk got to the names as they are now
        for entry in os.scandir(data_dir / folder) if (data_dir / folder).is_dir() else ():
            names[entry.name] = 0 if entry.is_dir() else entry.inode()
    for name, inode in names.items():
        inner = os.path.normpath(os.path.join(folder, name))
        if not inode:
            _restore(data_dir, kept, inner, shadow, sizes, folders, choices)
            continue
        source = shadow / "inodes" / str(inode)
        if not source.exists():
            source = data_dir / inner
        (kept / inner).write_bytes(_remains(source.read_bytes(), sizes.get(inode, 0), choices))


def _remains(data: bytes, synced: int, choices: random.Random | None) -> bytes:
    """Cut what was not synced; with `choices`, somewhere in it, and perhaps with garbage in place
    of the last sector.
    """
    if choices is None or len(data) <= synced:
        return data[:synced]
    end = choices.randint(synced, len(data))
    torn = choices.choice((0, 0, choices.randint(0, end - synced)))
    return data[: end - torn] + choices.choice((bytes(torn), choices.randbytes(torn)))


def main() -> int:
    """Run the daemon with notes."""
    given = [word.partition("=")[2] for word in sys.argv if word.startswith("--data-dir=")]
    Recorder(Path(given[0])).install()
    from qpidha.runtime.daemon import main as daemon

    return daemon(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
