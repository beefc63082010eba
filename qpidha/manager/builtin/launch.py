"""Launch: start a local cluster's manager as a process of its own, and speak with it.

The manager belongs to another room; it is run by its module name and reached over `manager.sock`,
as any program could.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import qpidha
from qpidha.client.admin import AdminSocket, LinkBroken
from qpidha.client.command.ask import BrokerLink, open_socket
from qpidha.client.command.exits import Failure
from qpidha.client.command.ports import holders
from qpidha.client.command.target import cluster_places, local_cluster, state_directory
from qpidha.manager.builtin.cluster import ClusterOptions
from qpidha.manager.builtin.credentials import FOLDER
from qpidha.manager.builtin.process import open_log
from qpidha.model.errors import InvalidArgument
from qpidha.model.exit_codes import CANNOT_CREATE, NO, TIMED_OUT, UNAVAILABLE, USAGE

PACKAGE_ROOT = Path(qpidha.__file__).resolve().parent.parent
START_PATIENCE = 10.0
"""Seconds for a manager to open its socket."""
DOWN_PATIENCE = 30.0
END_PATIENCE = 5.0
"""Seconds for a broker without a manager to end in good order."""
STARTS = 3
"""Failed starts of one broker after which `up` does not wait any longer."""
NOT_REACHED = ("starting", "hung", "unknown", "down")
"""States of a broker that has not said yet what it is."""
LEAST_SPACE = 1 << 20
"""Bytes on its disk without which a cluster is not started."""
LAST_LINES = 20
"""Lines at the end of a log in which the reason of a failed start is looked for."""
OWN_FILES = (
    FOLDER,
    "cluster.new",
    "in-sync.json",
    "in-sync.new",
    "manager.lock",
    "manager.log",
    "manager.sock",
)
"""What a manager that never came to write `cluster.json` leaves in its directory, beside the
brokers' directories.
"""


def settings_of_brokers(given: Iterable[str]) -> dict[str, str]:
    """Read the NAME=VALUE of `--set`."""
    settings = {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise Failure(
                USAGE,
                f"--set {setting} has no name and value",
                hint="--set link-credit=500; qpidhad --help lists the names",
            )
        settings[name] = value
    return settings


def environment() -> dict[str, str]:
    """Our environment, with the package on the path so that a source tree works as it is."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")])
        ),
    }


def free_ports(count: int, base: int = 0) -> tuple[int, ...]:
    """Choose ports: from `base` on, or any free ones; refuse ports in use and say who holds
    them.
    """
    if not 0 <= base <= 65536 - count:
        hint = (
            f"--base-port 5672, at most {65536 - count} for {count} brokers, or 0 for any "
            "free ports"
        )
        raise Failure(USAGE, f"there are no {count} ports from {base} on", hint=hint)
    if base:
        return unused(tuple(range(base, base + count)))
    # Below the range from which the system takes client ports, so that a broker that restarts finds
    # its port free.
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20000, 32000)
        if port not in found and _is_free(port):
            found.append(port)
    return tuple(found)


def unused(ports: tuple[int, ...]) -> tuple[int, ...]:
    """Return ports that nobody listens on; refuse those in use and say who holds them."""
    for port in ports:
        if not _is_free(port):
            raise Failure(
                UNAVAILABLE,
                f"port {port} is in use{_holder(port)}",
                hint=f"--base-port {ports[0] + 1000}, or --base-port 0 for any free ports",
            )
    return ports


def start_manager(
    plan: ClusterOptions, *, foreground: bool = False
) -> subprocess.Popen[bytes] | int:
    """Start the manager and return its process; in the foreground, return its exit code at
    the end.
    """
    try:
        plan.check()
    except InvalidArgument as error:
        raise Failure(USAGE, error.text, hint=error.hint) from error
    plan.directory.mkdir(parents=True, exist_ok=True)
    _check_space(plan.directory)
    if plan.secure:
        plan.credentials.make({spec.name: spec.names for spec in plan.brokers()})
    if foreground:
        return _in_foreground(plan)
    with open_log(plan.directory / "manager.log") as log:
        return subprocess.Popen(
            plan.manager_command(),
            stdin=subprocess.PIPE if plan.attached else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(),
            start_new_session=True,
        )


def _check_space(directory: Path) -> None:
    """Refuse a full disk, on which a manager could not even write why it ends."""
    found = os.statvfs(directory)
    if found.f_bavail * found.f_frsize < LEAST_SPACE:
        raise Failure(
            CANNOT_CREATE,
            f"no space is left for {directory}",
            reason=f"{found.f_bavail * found.f_frsize:,} bytes are free",
            hint="make space, or another --dir",
        )


def _in_foreground(plan: ClusterOptions) -> int:
    # The terminal sends its ^C to the manager too, which ends the brokers in good order; we have
    # only to be patient. Handlers, unlike ignored signals, are not inherited by the manager.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    with subprocess.Popen(plan.manager_command(), env=environment()) as process:
        signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
        code = process.wait()
        return code if code >= 0 else 128 - code


def reach_manager(plan: ClusterOptions, process: subprocess.Popen[bytes]) -> EventStream:
    """Connect to a manager that was just started."""
    deadline = time.monotonic() + START_PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            log = plan.directory / "manager.log"
            raise Failure(
                UNAVAILABLE, f"the manager ended at once: {_last_error(log)}", hint=f"look at {log}"
            )
        try:
            return EventStream(str(plan.socket))
        except LinkBroken:
            select.select([], [], [], 0.02)
    hint = f"look at {plan.directory}/manager.log"
    raise Failure(
        TIMED_OUT, f"the manager did not open {plan.socket} within {START_PATIENCE:g} s", hint=hint
    )


def manager_link(directory: Path, *, timeout: float = 10.0) -> BrokerLink:
    """Connect to the manager of a running cluster."""
    path = directory / "manager.sock"
    try:
        return open_socket(str(path), timeout)
    except Failure as failure:
        if failure.code != UNAVAILABLE:
            raise
        place = _place(directory)
        names = ", ".join(broker["name"] for broker in left_over(directory))
        if names:
            hint = f"qpid-ha local up{place} takes them over, qpid-ha local down{place} ends them"
            raise Failure(
                UNAVAILABLE, f"the manager is gone, but {names} still run in {directory}", hint=hint
            ) from failure
        here = next((one for one in cluster_places() if not place and left_over(Path(one))), "")
        raise Failure(
            UNAVAILABLE,
            f"no local cluster runs in {directory}",
            hint=f"there is one in {here}: add --dir {here}"
            if here
            else f"qpid-ha local up{place}",
        ) from failure


def _place(directory: Path) -> str:
    """The option that leads a command to this directory, or nothing where it goes by itself."""
    return "" if str(directory) == os.path.abspath(state_directory()) else f" --dir {directory}"


def left_over(directory: Path) -> list[dict[str, Any]]:
    """The brokers of a cluster that still run, as `cluster.json` has them."""
    brokers = (local_cluster(str(directory)) or {}).get("brokers", [])
    return [
        broker
        for broker in brokers
        if broker.get("pid") and _started(broker["pid"]) == broker.get("pid_started")
    ]


def bring_down(directory: Path) -> None:
    """End a cluster and wait for it; brokers without a manager too."""
    try:
        link = manager_link(directory, timeout=DOWN_PATIENCE)
    except Failure as failure:
        if failure.code != UNAVAILABLE or not _end_left_over(directory):
            raise
        return
    try:
        link.call("down")
    finally:
        link.close()


class EventStream:
    """The stream of a manager's events, and whatever other line streams are read beside it."""

    def __init__(self, path: str = "") -> None:
        """Listen to the manager at a socket, if there is one."""
        self.events: list[dict[str, Any]] = []
        self.on_event: Callable[[dict[str, Any]], None] | None = None
        self.on_tick: Callable[[], None] | None = None
        self._socket = AdminSocket(path, None) if path else None
        self._streams: dict[int, tuple[bytearray, Callable[[dict[str, Any]], None]]] = {}
        if self._socket is not None:
            self._socket.send("events")
            self.add(self._socket.fileno(), self._learn)

    def add(self, fd: int, take: Callable[[dict[str, Any]], None]) -> None:
        """Read JSON lines from another file descriptor too."""
        os.set_blocking(fd, False)
        self._streams[fd] = (bytearray(), take)

    def remove(self, fd: int) -> None:
        """Read a file descriptor no more; to be called before it is closed."""
        self._streams.pop(fd, None)

    def await_settled(self, directory: Path, timeout: float) -> None:
        """Wait until one broker is active and all others are ready."""

        def settled() -> bool:
            self.check_starts(directory)
            return self.find("settled") is not None

        self.wait(settled, timeout, what="an active primary with all backups ready")

    def wait(self, until: Callable[[], bool], timeout: float, *, what: str = "") -> bool:
        """Read along until a condition holds; with `what`, fail if it does not in time."""
        deadline = time.monotonic() + timeout
        while not until():
            left = deadline - time.monotonic()
            if left <= 0 or (self._socket is not None and not self._streams):
                if what:
                    reason = (
                        f"did not happen within {timeout:g} s"
                        if left <= 0
                        else "will not happen: the manager is gone"
                    )
                    raise Failure(
                        TIMED_OUT,
                        f"{what} {reason}",
                        hint="look at manager.log and the broker logs in the cluster's directory",
                    )
                return False
            self._read(min(left, 0.1))
            if self.on_tick is not None:
                self.on_tick()
        return True

    def find(self, event: str, *, since: int = 0, **fields: object) -> dict[str, Any] | None:
        """Return the first event of a kind at or after a time (ns) whose fields match."""
        wanted = {"event": event, **fields}
        for entry in self.events:
            if entry["time_ns"] >= since and all(
                entry.get(name) == value for name, value in wanted.items()
            ):
                return entry
        return None

    def check_starts(self, directory: Path) -> None:
        """Fail as soon as a broker ended again and again before it served, with the last line of
        its log.
        """
        exits = [
            entry
            for entry in self.events
            if entry["event"] == "exited" and (entry["gave_up"] or entry["was"] in NOT_REACHED)
        ]
        ended = [entry["broker"] for entry in exits]
        for entry in exits:
            name = entry["broker"]
            if ended.count(name) >= STARTS:
                log = directory / name / "qpidhad.log"
                killed = (
                    ""
                    if entry["gave_up"]
                    else (
                        f"it was killed {ended.count(name)} times before it answered; "
                        "the end of its output: "
                    )
                )
                raise Failure(
                    UNAVAILABLE,
                    f"{name} does not start: {killed}{_last_error(log)}",
                    hint=f"look at {log}",
                )

    def states(self) -> dict[str, str]:
        """The last known state of each broker."""
        return {
            entry["broker"]: entry["state"] for entry in self.events if entry["event"] == "state"
        }

    def close(self) -> None:
        """Stop reading."""
        if self._socket is not None:
            self._socket.close()

    def _learn(self, entry: dict[str, Any]) -> None:
        if "error" in entry:  # the only answer that a listener gets is a no
            raise Failure(NO, entry["error"]["message"], hint=entry["error"]["hint"])
        self.events.append(entry)
        if self.on_event is not None:
            self.on_event(entry)

    def _read(self, seconds: float) -> None:
        readable, _, _ = select.select(list(self._streams), [], [], seconds)
        for fd in readable:
            buffer, take = self._streams[fd]
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                del self._streams[fd]
                continue
            buffer += data
            *lines, rest = bytes(buffer).split(b"\n")
            buffer[:] = rest
            for line in lines:
                if line.startswith(b"{"):
                    take(json.loads(line))


def check_directory(directory: Path) -> None:
    """Refuse a directory whose cluster is running, and one that holds something else than a
    cluster.
    """
    if directory.exists() and not directory.is_dir():
        raise Failure(
            USAGE, f"{directory} is a file, and has to be a directory", hint="another --dir"
        )
    try:
        AdminSocket(str(directory / "manager.sock"), 1.0).close()
    except LinkBroken:
        _check_contents(directory)
        return
    place = _place(directory)
    raise Failure(
        NO,
        f"a local cluster already runs in {directory}",
        hint=f"qpid-ha local status{place}, qpid-ha local down{place}, or another --dir",
    )


def _check_contents(directory: Path) -> None:
    if not directory.is_dir() or (directory / "cluster.json").exists():
        return
    other = sorted(
        path.name
        for path in directory.iterdir()
        if path.name not in OWN_FILES and not (path / "qpidd.conf").exists()
    )
    if other:
        shown = ", ".join(other[:3]) + (f" and {len(other) - 3} more" if len(other) > 3 else "")
        raise Failure(
            NO,
            f"{directory} is no cluster's directory: {shown} "
            f"{'is' if len(other) == 1 else 'are'} in the way",
            hint="--dir with a new or empty directory",
        )


def check_count(count: int) -> None:
    """Refuse a number of brokers that makes no cluster."""
    if not 1 <= count <= 9:
        raise Failure(USAGE, f"{count} brokers cannot be started", hint="-n 3, from 1 to 9")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
        return True


def _holder(port: int) -> str:
    return next((f" by {name} (pid {pid})" for pid, name in holders(port).items()), "")


def _last_error(path: Path) -> str:
    """Find the last line of a log that says what was wrong, or else its last line."""
    try:
        lines = path.read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
    except OSError:
        return "it left no log"
    for line in reversed(lines):
        _, found, reason = line.partition("error: ")
        if found:
            return reason
    return lines[-1] if lines else "its log is empty"


def _started(pid: int) -> int:
    """When a process started, in clock ticks since boot (0: it does not run); with the pid it names
    one process for ever.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])


def _end_left_over(directory: Path) -> bool:
    """End brokers whose manager is gone; say whether there were any."""
    left = left_over(directory)
    handles = []
    for broker in left:
        try:
            handles.append(os.pidfd_open(broker["pid"]))
        except ProcessLookupError:
            continue  # It just ended.
    for number, patience in ((signal.SIGTERM, END_PATIENCE), (signal.SIGKILL, None)):
        for handle in handles:
            _send(handle, number)
        deadline = time.monotonic() + (patience or DOWN_PATIENCE)
        while handles and (remaining := deadline - time.monotonic()) > 0:
            ended, _, _ = select.select(handles, [], [], remaining)
            for handle in ended:
                handles.remove(handle)
                os.close(handle)
    return bool(left)


def _send(handle: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
        signal.pidfd_send_signal(handle, signal.SIGCONT)
    except ProcessLookupError:
        pass  # It ended meanwhile.
