"""Checks of a machine for one broker: whether it has what the settings ask for. They ask the kernel
and the disk, not the broker, so that one that hangs, or does not start, is looked at as well.

Each check gives one finding. Source: proc(5), sysfs(5), statvfs(3).
"""

from __future__ import annotations

import os
import re
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from qpidha.client.command.ports import holders, listening_inodes
from qpidha.model.settings import Settings
from qpidha.runtime.clock import wall_error_us
from qpidha.runtime.descriptors import HOW, fit
from qpidha.runtime.exits import CannotStart, reason_of
from qpidha.runtime.memory import OWN, available, limit_of, limit_text
from qpidha.runtime.sockets import bind_port

GOOD, WARNING, ERROR = "ok", "warning", "error"
MANY = 80
"""Percent of the open files that may be in use."""
SYNCS = 20
"""How often a sync is timed."""
PIECE = 4096
"""Bytes that are written before each."""
SLOW = 0.02
"""Seconds of one sync from which on a warning is given: each commit waits for one here, and for one
on a backup.
"""
FEW_FILES = 1000
"""Files for which a file system has to have room: the log is some, each of its checkpoints one."""
FAR = 1_000_000
"""Microseconds that the clock may be from UTC."""
FLEETING = frozenset(("tmpfs", "ramfs"))
REMOTE = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "9p",
        "ceph",
        "glusterfs",
        "gfs2",
        "ocfs2",
        "lustre",
        "virtiofs",
    )
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and what to do about it."""

    check: str
    level: str
    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """What is looked at: settings, and the process that runs with them, or 0; `directory` is where
    its relative paths begin.
    """

    settings: Settings
    pid: int = 0
    directory: str = "."

    @property
    def data_dir(self) -> str:
        """Where its data is, or will be."""
        return os.path.abspath(os.path.join(self.directory, self.settings.data_dir))


def check_host(looked: Looked) -> Iterator[Finding]:
    """Yield what all checks for one broker find."""
    yield _open_files(looked)
    yield _locked_memory(looked)
    yield _memory(looked)
    yield _swap(looked)
    yield from _disk(looked)
    yield from _ports(looked)


# -- limits and memory ----------------------------------------------------------------------------


def _open_files(looked: Looked) -> Finding:
    name = "open files"
    limit = _limit(looked.pid, "Max open files", resource.RLIMIT_NOFILE)
    used = _used_files(looked.pid)
    try:
        _, warnings = fit(looked.settings, limit)
    except CannotStart as error:
        return Finding(name, ERROR, error.text, error.hint)
    text = f"{limit:,} allowed" + (f", {used:,} open" if looked.pid and used >= 0 else "")
    hint = f"raise the limit ({HOW})"
    if used * 100 >= limit * MANY:
        return Finding(name, WARNING, text, hint)
    if warnings:
        wanted = looked.settings.max_connections
        text += f": too few for max-connections={wanted}, which becomes less"
        return Finding(name, WARNING, text, f"{hint}, or lower max-connections")
    return Finding(name, GOOD, f"{text}, enough for {looked.settings.max_connections:,} clients")


def _locked_memory(looked: Looked) -> Finding:
    limit = _limit(looked.pid, "Max locked memory", resource.RLIMIT_MEMLOCK)
    amount = "without limit" if limit == _UNLIMITED else f"up to {_size(limit)}"
    return Finding("locked memory", GOOD, f"allowed {amount}; a broker locks none")


_UNLIMITED = 1 << 62


def _limit(pid: int, name: str, number: int) -> int:
    """Return a limit of a process, or of those that this user starts: the hard one, up to which a
    broker raises it.
    """
    if pid:
        found = re.search(rf"(?m)^{name} +\S+ +(\S+)", _text(f"/proc/{pid}/limits"))
        if found is not None:
            return int(found[1]) if found[1].isdigit() else _UNLIMITED
    _, hard = resource.getrlimit(number)
    return _UNLIMITED if hard == resource.RLIM_INFINITY else hard


def _used_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return -1


def _memory(looked: Looked) -> Finding:
    name, settings = "memory", looked.settings
    whole = available(f"/proc/{looked.pid or 'self'}/cgroup")
    limit, text = limit_of(settings, whole), limit_text(settings, whole)
    own = _kibibytes(f"/proc/{looked.pid}/status", "VmRSS") if looked.pid else 0
    text += f"; the broker has {_size(own)}" if own else ""
    if not limit:
        return Finding(name, WARNING, text, "set memory-limit: what fills it ends the broker")
    if limit + OWN > whole:
        return Finding(name, ERROR, text, "lower memory-limit: the broker would be killed before")
    left = min(_kibibytes("/proc/meminfo", "MemAvailable"), whole) + own
    if left < limit:
        text += f"; only {_size(left)} are left by others"
        return Finding(name, WARNING, text, "end other programs, or lower memory-limit")
    return Finding(name, GOOD, text)


def _swap(looked: Looked) -> Finding:
    there = _kibibytes("/proc/meminfo", "SwapTotal")
    used = there - _kibibytes("/proc/meminfo", "SwapFree")
    own = _kibibytes(f"/proc/{looked.pid}/status", "VmSwap") if looked.pid else 0
    if own:
        text = f"{_size(own)} of the broker are swapped out: its answers and heartbeats come late"
        return Finding("swap", WARNING, text, "give it memory, or lower memory-limit; swapoff -a")
    if not there:
        return Finding("swap", GOOD, "there is none")
    mine = ", none of it by the broker" if looked.pid else ""
    return Finding("swap", GOOD, f"{_size(used)} of {_size(there)} used{mine}")


# -- the disk -------------------------------------------------------------------------------------


def _disk(looked: Looked) -> Iterator[Finding]:
    if not looked.settings.data_dir:
        yield Finding(
            "data-dir", WARNING, "there is none: nothing outlives a restart", "set data-dir"
        )
        return
    place = Path(looked.data_dir)
    there = next(one for one in (place, *place.parents) if one.exists())
    if not there.is_dir():
        yield Finding("data-dir", ERROR, f"{there} is no directory", "set another data-dir")
        return
    yield _file_system(place, there)
    yield _free_space(there, looked.settings.disk_free_limit)
    yield _sync_time(there, place)


def _file_system(place: Path, there: Path) -> Finding:
    name = "data-dir"
    device = os.stat(there).st_dev
    kind, options = _mounted(there)
    made = "" if place == there else " (to be made)"
    text = f"{place}{made} on {kind}{_medium(device)}"
    if "ro" in options:
        return Finding(name, ERROR, f"{text}, read only", "mount it to be written, look at dmesg")
    if kind in FLEETING:
        return Finding(name, WARNING, f"{text}: a reboot empties it", "put data-dir on a disk")
    if kind == "overlay":
        text += ": it goes with its container"
        return Finding(name, WARNING, text, "put data-dir on a volume")
    if kind in REMOTE or kind.startswith("fuse."):
        text += ": each commit waits for another machine, which every broker may then depend on"
        return Finding(name, WARNING, text, "put data-dir on a disk of this machine")
    return Finding(name, GOOD, text)


def _mounted(place: Path) -> tuple[str, set[str]]:
    """Return the kind of the file system that a directory is on, and its options."""
    place, longest = place.resolve(), -1
    found = "an unknown file system", set[str]()
    for line in _text("/proc/self/mountinfo").splitlines():
        fields, _, rest = line.partition(" - ")
        _, _, _, _, point, options, *_ = fields.split()
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), point)
        if place.is_relative_to(point) and len(point) >= longest:
            kind, _, more = rest.split(maxsplit=2)
            found, longest = (kind, {*options.split(","), *more.split(",")}), len(point)
    return found


def _medium(device: int) -> str:
    """Say what a block device is, if the kernel tells."""
    base = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    for queue in (base / "queue", base / ".." / "queue"):  # Of a partition its disk's.
        turns = _text(str(queue / "rotational")).strip()
        if turns:
            return (
                ", on a spinning disk, says the kernel" if turns == "1" else ", on no spinning disk"
            )
    return ""


def _free_space(there: Path, limit: int) -> Finding:
    name, hint = "disk space", "make room, or give data-dir a larger disk"
    found = os.statvfs(there)
    free = found.f_bavail * found.f_frsize
    text = f"{_size(free)} of {_size(found.f_blocks * found.f_frsize)} free"
    if free < limit:
        text += f", less than disk-free-limit ({_size(limit)}): no message is accepted"
        return Finding(name, ERROR, text, hint)
    if found.f_files and found.f_favail < FEW_FILES:
        return Finding(name, WARNING, f"{text}, but for {found.f_favail:,} files only", hint)
    if free < 2 * limit:
        return Finding(name, WARNING, f"{text}; disk-free-limit is {_size(limit)}", hint)
    return Finding(name, GOOD, text)


def _sync_time(there: Path, place: Path) -> Finding:
    name = "disk sync"
    if there != place:
        return Finding(name, GOOD, f"not measured: {place} is to be made")
    try:
        taken = _syncs(there)
    except OSError as error:
        text = f"not measured in {there}: {reason_of(error)}"
        hint = "look again as root, or as the broker's user; if that was the broker's, chown it"
        return Finding(name, WARNING, text, hint)
    middle, worst = statistics.median(taken), max(taken)
    text = f"{middle * 1000:,.2f} ms (worst of {SYNCS}: {worst * 1000:,.2f}) for {PIECE} bytes"
    if middle >= SLOW:
        text += ": each commit waits so long"
        return Finding(name, WARNING, text, "use a faster disk; see what else writes to it")
    return Finding(name, GOOD, text)


def _syncs(folder: Path) -> list[float]:
    """Time syncs as the log does them, in a file without a name. Raises OSError."""
    taken = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            begun = time.perf_counter()
            os.write(file.fileno(), bytes(PIECE))
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - begun)
    return taken


# -- the clock and the network --------------------------------------------------------------------


def check_clock() -> Finding:
    """Tell how right the clock of this machine is."""
    error = wall_error_us(0)
    if not error:
        text = "nobody keeps it right: messages expire at another time on another broker"
        return Finding("clock", WARNING, text, "run chrony, or timedatectl set-ntp true")
    text = f"synchronised, at most {error / 1000:,.1f} ms from UTC"
    if error > FAR:
        return Finding("clock", WARNING, text, "look at its sources: chronyc sources")
    return Finding("clock", GOOD, text)


def _ports(looked: Looked) -> Iterator[Finding]:
    """Look at each port that the settings name; one that the kernel chooses has no number yet."""
    settings = looked.settings
    plain = "tcp" not in settings.listen_disable and not settings.require_encryption
    secure = settings.ssl_cert and "ssl" not in settings.listen_disable
    wanted = [("port", settings.port)] * (plain and not settings.socket_fd)
    wanted += [("ssl-port", settings.ssl_port)] * bool(secure)
    wanted += [("http-port", settings.http_port)]
    for option, port in wanted:
        if port:
            yield _port(looked, option, port)


def _port(looked: Looked, option: str, port: int) -> Finding:
    name = f"{option} {port}"
    taken = holders(port, looked.pid)
    by = " and ".join(f"{program} (pid {pid})" for pid, program in taken.items())
    if not by:
        by = "a process that only root can tell" if any(listening_inodes(port, looked.pid)) else ""
    if looked.pid:
        if looked.pid in taken or (by and (option == "http-port" or not taken)):
            return Finding(name, GOOD, f"listened on by {by}")
        text = f"the broker does not listen on it: {f'taken by {by}' if by else 'it is free'}"
        return Finding(name, ERROR, text, "read the broker's log; end the other program")
    settings = looked.settings
    try:
        if option == "http-port":  # The console's, on the loopback.
            settings = Settings(interface=("127.0.0.1",))
        for one in bind_port(settings, port, option):
            with closing(one):
                pass
    except CannotStart as error:
        text = f"taken by {by}" if by else error.text
        return Finding(name, ERROR, text, f"end it, or set another {option}" if by else error.hint)
    return Finding(name, GOOD, "free" + (f"; {by} listens on another address" if by else ""))


# -- reading the kernel's files -------------------------------------------------------------------


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _kibibytes(path: str, name: str) -> int:
    """Return bytes that a file of the kernel tells in kB; 0 if it does not."""
    found = re.search(rf"(?m)^{name}:\s+(\d+) kB", _text(path))
    return int(found[1]) << 10 if found is not None else 0


def _size(count: int) -> str:
    if count >= 10 << 30:
        return f"{count / (1 << 30):,.0f} GiB"
    return f"{count / (1 << 20):,.0f} MiB" if count >= 1 << 20 else f"{count / 1024:,.0f} KiB"
