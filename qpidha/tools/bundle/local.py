"""Local brokers: what a machine knows of a broker that runs on it, or did, without asking it.

Its process, command line and environment are the kernel's word, its configuration is read as the
daemon reads it, its log and event log are files. So a broker that hangs is described as well as one
that answers. Nothing is changed, and nothing is read that only a broker may hold. Source: proc(5).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qpidha.model.settings import FIELD_OF, OPTIONS
from qpidha.runtime.configuration import Configuration, configure
from qpidha.runtime.exits import CannotStart
from qpidha.runtime.sockets import peer_of
from qpidha.tools.bundle.masking import Masking

TAIL = 2 << 20
"""Bytes of a log, or of the event log, that are taken from its end."""
MOST_FILES = 5000
"""Files of a data directory that are listed."""
DAEMONS = ("qpidhad", "qpidha.runtime.daemon")
"""How the word of a command line ends behind which the options of a broker stand."""
PROCESS_FILES = ("status", "limits", "wchan", "sched", "cgroup", "io")
TOOL_PATIENCE = 10
"""Seconds that a tool of the system may take."""
VARIABLES = ("LANG", "LC_ALL", "TZ", "JOURNAL_STREAM", "NOTIFY_SOCKET", "PYTHONPATH")
"""Variables of an environment that are taken, beside those of qpidha and Qpid."""


@dataclass(slots=True)
class LocalBroker:
    """One broker on this machine; `label` is what its files in the bundle are below."""

    label: str
    arguments: list[str] = field(default_factory=list)
    env: Mapping[str, str] = field(default_factory=dict)
    directory: str = "."
    """Where relative paths of its command line begin."""
    pid: int = 0
    log: str = ""
    """A file that its standard error goes to, as far as that is known elsewhere."""
    uid: int = field(default_factory=os.getuid)
    """Whose process it is."""

    @property
    def absolute(self) -> list[str]:
        """The command line with the path of --config as this process finds it."""
        words = list(self.arguments)
        for index, word in enumerate(words):
            if word == "--config" and index + 1 < len(words):
                words[index + 1] = os.path.join(self.directory, words[index + 1])
            elif word.startswith("--config="):
                path = os.path.join(self.directory, word.partition("=")[2])
                words[index] = f"--config={path}"
        return words


def process_at(path: str) -> int:
    """Return the process that listens on an admin socket, or 0. It need not answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        try:
            one.settimeout(1.0)
            one.connect(path)
            return peer_of(one.fileno())[0]
        except (OSError, ValueError):
            return 0


def running(label: str, pid: int) -> LocalBroker | None:
    """Describe a broker that runs as process `pid`; None if this user may not know."""
    place = Path("/proc", str(pid))
    try:
        words = [word.decode() for word in (place / "cmdline").read_bytes().split(b"\0")[:-1]]
        pairs = (place / "environ").read_bytes().split(b"\0")[:-1]
        directory = os.readlink(place / "cwd")
        uid = place.stat().st_uid
    except (OSError, UnicodeDecodeError):
        return None
    first = next((n for n, word in enumerate(words, 1) if word.endswith(DAEMONS)), 0)
    if not first:
        return None
    env = dict(pair.decode(errors="replace").partition("=")[::2] for pair in pairs)
    return LocalBroker(label, words[first:], env, directory, pid, uid=uid)


class LocalFiles:
    """What is taken of a local broker; `missing` says what could not be."""

    def __init__(self, broker: LocalBroker, masking: Masking) -> None:
        self.missing: list[str] = []
        self._broker = broker
        self._masking = masking
        masking.learn_arguments(broker.arguments)
        masking.learn_environment(broker.env)
        self._configuration = self._configured()

    def all(self) -> dict[str, Any]:
        """Return what is known by file name: a text, or a value for JSON."""
        found: dict[str, Any] = {"configuration.json": self._options()}
        if self._broker.pid:
            found["process.txt"] = self._process()
        settings = self._configuration.settings if self._configuration is not None else None
        if settings is not None and settings.data_dir:
            found["data-dir.txt"] = self._listing(self._path(settings.data_dir))
            events = settings.journal_events_dir or os.path.join(settings.data_dir, "events")
            found["events.jsonl"] = self._events(self._path(events))
        log = settings.log_to_file if settings is not None else ""
        found["log.txt"] = self._log(self._path(log) if log else self._broker.log)
        return {name: value for name, value in found.items() if value}

    def _path(self, path: str) -> str:
        return os.path.join(self._broker.directory, path)

    def _configured(self) -> Configuration | None:
        broker, masking = self._broker, self._masking
        try:
            found = configure(broker.absolute, broker.env, uid=broker.uid)
        except CannotStart as error:
            self._learn_file()
            text = masking.text(error.text)
            self.missing.append(f"{broker.label}: its configuration: {text}")
            return None
        settings = found.settings
        masking.add(settings.ha_password, settings.ha_brokers_url.password)
        masking.learn_password_file(self._path(settings.ssl_key_password_file))
        self._learn_users(settings.users_file)
        self._learn_file()
        return found

    def _learn_file(self) -> None:
        """Learn the secrets of the configuration file itself: also those that do not count."""
        words = self._broker.absolute
        for index, word in enumerate(words):
            name, _, path = word.partition("=")
            if name == "--config":
                path = path or (words[index + 1] if index + 1 < len(words) else "")
                try:
                    self._masking.learn_text(Path(path).read_text(errors="replace"))
                except OSError:
                    pass

    def _learn_users(self, path: str) -> None:
        """Learn what stands behind the names of a users file."""
        try:
            lines = Path(self._path(path)).read_text(errors="replace").splitlines() if path else []
        except OSError:
            return
        self._masking.add(*(line.partition(":")[2].strip() for line in lines))

    def _options(self) -> dict[str, Any]:
        """Return every option with its value and origin, and how the broker was started."""
        broker, found = self._broker, self._configuration
        kept = {
            name: value
            for name, value in broker.env.items()
            if name.startswith(("QPID", "QPIDHA")) or name in VARIABLES
        }
        told: dict[str, Any] = {
            "command_line": self._masking.arguments(broker.arguments),
            "directory": broker.directory,
            "environment": kept,
            "pid": broker.pid,
        }
        if found is None:
            return told
        options = {}
        for name, described in OPTIONS.items():
            value = getattr(found.settings, FIELD_OF[name])
            shown = "(secret)" if described.secret and value else described.kind.show(value)
            options[name] = {"value": shown, "origin": found.origins.get(name, "default")}
        return {**told, "warnings": found.warnings, "options": options}

    def _process(self) -> str:
        """Return what the kernel says of the process, and what each of its threads does."""
        place = Path("/proc", str(self._broker.pid))
        parts = []
        for name in PROCESS_FILES:
            parts.append(f"== {name}\n{_content(place / name)}\n")
        try:
            descriptors = os.listdir(place / "fd")
            parts.append(f"== open descriptors\n{len(descriptors)}\n")
            for thread in sorted(os.listdir(place / "task"), key=int):
                status = _content(place / "task" / thread / "status").splitlines()
                shown = [line for line in status if line.startswith(("Name:", "State:"))]
                where = _content(place / "task" / thread / "wchan")
                parts.append(f"== thread {thread}\n" + "\n".join([*shown, f"in {where}"]) + "\n")
        except OSError as error:
            parts.append(f"{error}\n")
        return "\n".join(parts)

    def _listing(self, path: str) -> str:
        """List a data directory: modes, owners, sizes and times; no content."""
        lines = []
        for folder, _, names in os.walk(path):
            for name in sorted(names):
                file = os.path.join(folder, name)
                try:
                    found = os.lstat(file)
                except OSError:
                    continue
                size, when = f"{found.st_size:>12}", f"{found.st_mtime:.3f}"
                owner = f"{found.st_uid}:{found.st_gid}"
                lines.append(f"{found.st_mode:o} {owner} {size} {when} {file}")
        try:
            space = shutil.disk_usage(path)
        except OSError as error:
            self.missing.append(f"{self._broker.label}: {path}: {error.strerror}")
            return ""
        head = f"{path}: {space.free >> 20} MiB of {space.total >> 20} MiB are free\n"
        more = f"and {len(lines) - MOST_FILES} more\n" if len(lines) > MOST_FILES else ""
        return head + "".join(f"{line}\n" for line in lines[:MOST_FILES]) + more

    def _events(self, path: str) -> str:
        """Return the end of the event log, from whole lines."""
        try:
            files = [file for file in Path(path).iterdir() if file.is_file()]
            files.sort(key=lambda file: file.stat().st_mtime)
        except OSError:
            return ""
        text = ""
        for file in reversed(files):
            room = TAIL - len(text)
            if room <= 0:
                break
            text = tail(str(file), room) + text
        return text

    def _log(self, path: str) -> str:
        """Return the end of the log: of its file, or of what standard error leads to."""
        pid = self._broker.pid
        if not path and pid:
            try:
                path = os.readlink(f"/proc/{pid}/fd/2")
            except OSError:
                path = ""
            if path.startswith("socket:") and self._broker.env.get("JOURNAL_STREAM"):
                return tool("journalctl", "--no-pager", "-n", "5000", f"_PID={pid}")
        if path and os.path.isfile(path):
            try:
                return tail(path, TAIL)
            except OSError as error:
                self.missing.append(f"{self._broker.label}: {path}: {error.strerror}")
                return ""
        where = f": standard error leads to {path}" if path else ""
        self.missing.append(f"{self._broker.label}: its log is no file{where}")
        return ""


def tail(path: str, most: int) -> str:
    """Return the last whole lines of a file, at most so many bytes. Raises OSError."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        data = file.read(most)
    if size > most:
        data = data.partition(b"\n")[2]
    return data.decode(errors="replace")


def tool(*words: str) -> str:
    """Return what a tool of the system prints; empty if it is not there, or takes too long."""
    path = shutil.which(words[0])
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, *words[1:]], capture_output=True, timeout=TOOL_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def _content(path: Path) -> str:
    try:
        return path.read_text(errors="replace").rstrip()
    except OSError as error:
        return str(error.strerror)
