"""The rack: the process that owns the switch and the power of the hosts; the lab is up as long as
it runs.

`python -m tests.lab.rack FOLDER [--hosts A,B] [--stay]` makes the switch, then answers on
FOLDER/rack/power.sock, one line each: `on HOST`, `off HOST`, `reboot HOST`, `status HOST` and
`list`. Switching off kills the host's first process, and with it the namespaces: no process, no
interface and no address of it remains. The rack ends with SIGTERM, or unless told to stay when its
standard input does, which is when whoever started it ends; it then switches everything off.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.lab.hosts import NAMES, NETWORKS, SPARE, SWITCH, make_credentials

LOCK = Path("/run/qpidha-lab.lock")
"""Held by the rack: the switch has one name, so a machine has one lab. Its text says where that is.
"""
HERE = Path(__file__).parent
EVERY = (*NAMES, SPARE)


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


class Host:
    """One host: off, or a tree of processes below its first one."""

    def __init__(self, name: str, folder: Path, names: Sequence[str]) -> None:
        self.name = name
        self.names = names
        """The hosts that the cluster begins with."""
        self.folder = folder / "nodes" / name
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def is_on(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def on(self) -> None:
        """Start it and plug in its cables; a host that is on stays as it is."""
        if self.is_on:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        cluster = dict.fromkeys((self.name, *self.names))
        unshare = [
            "unshare",
            "--net",
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            "--fork",
            "--propagation",
            "private",
        ]
        command = [
            *unshare,
            str(HERE / "init.sh"),
            str(self.folder),
            sys.executable,
            self.name,
            *sorted(cluster),
        ]
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
            "HOME": "/root",
        }
        with (self.folder / "console.log").open("ab") as console:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        while not (first := children.read_text().split()):
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} does not start: see {self.folder / 'console.log'}")
            time.sleep(0.005)
        (self.folder / "pid").write_text(first[0])
        for network in NETWORKS:
            port = network.port(self.name)
            ip("-n", SWITCH, "link", "del", port, check=False)
            ip(
                "-n",
                SWITCH,
                "link",
                "add",
                port,
                "type",
                "veth",
                "peer",
                "name",
                network.interface,
                "address",
                network.hardware(self.name),
                "netns",
                first[0],
            )
            ip("-n", SWITCH, "link", "set", port, "master", network.bridge, "up")

    def off(self) -> None:
        """Cut its power; back when nothing of it is left."""
        if self.process is not None:
            if self.is_on:
                os.kill(int((self.folder / "pid").read_text()), signal.SIGKILL)
            self.process.wait()  # unshare waits for the first process, which ends after all others
            self.process = None
        (self.folder / "pid").unlink(missing_ok=True)
        for network in NETWORKS:
            ip("-n", SWITCH, "link", "del", network.port(self.name), check=False)


class Rack(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers the switches of the hosts; every request has its thread, and a host does one thing at
    a time.
    """

    daemon_threads = True

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.hosts = {name: Host(name, folder, names) for name in EVERY}
        (folder / "rack").mkdir(parents=True)
        if os.environ.get("QPIDHA_LAB_SECURE"):
            make_credentials(EVERY)
        self.log = folder / "rack" / "power.log"
        ip("netns", "add", SWITCH)
        ip("-n", SWITCH, "link", "set", "lo", "up")
        for network in NETWORKS:
            # Without an address of its own a bridge takes one of its ports', which come and go, and
            # nobody would find it then.
            ip(
                "-n",
                SWITCH,
                "link",
                "add",
                network.bridge,
                "address",
                network.switch_hardware,
                "type",
                "bridge",
                "stp_state",
                "0",
                "forward_delay",
                "0",
            )
            ip("-n", SWITCH, "addr", "add", f"{network.prefix}254/24", "dev", network.bridge)
            ip("-n", SWITCH, "link", "set", network.bridge, "up")
        super().__init__(str(folder / "rack" / "power.sock"), Switch)

    def answer(self, action: str, name: str) -> str:
        """Do one action; the answer is the state of the host, or what went wrong."""
        if action == "list":
            return " ".join(self.hosts)
        host = self.hosts.get(name)
        if host is None or action not in ("on", "off", "reboot", "status"):
            return f"error: no {action} {name}"
        with host.lock:
            try:
                if action in ("off", "reboot"):
                    host.off()
                if action in ("on", "reboot"):
                    host.on()
            except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
                return f"error: {error}"
            if action != "status":
                with self.log.open("a") as log:
                    log.write(f"{time.strftime('%b %d %H:%M:%S')} {action} {name}\n")
            return "on" if host.is_on else "off"

    def close(self) -> None:
        """Switch everything off and take the switch away."""
        for host in self.hosts.values():
            with host.lock:
                host.off()
        self.server_close()
        subprocess.run(["ip", "netns", "del", SWITCH], check=False)


class Switch(socketserver.StreamRequestHandler):
    """One request."""

    def handle(self) -> None:
        words = [*self.rfile.readline().decode().split(), "", ""]
        rack: Any = self.server
        self.wfile.write(f"{rack.answer(words[0], words[1])}\n".encode())


def end_with_starter(rack: Rack) -> None:
    """End when whoever started this process has ended."""
    sys.stdin.read()
    rack.shutdown()


def main() -> int:
    """Own the lab until the end."""
    folder = Path(sys.argv[1])
    lock = LOCK.open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        print(
            f"a lab is up already, in {lock.read()}: end it first, with 'make lab-down'",
            file=sys.stderr,
        )
        return 1
    lock.truncate(0)
    lock.write(str(folder))
    lock.flush()
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["ip", "netns", "del", SWITCH], check=False, capture_output=True)
    rack = Rack(
        folder,
        sys.argv[sys.argv.index("--hosts") + 1].split(",") if "--hosts" in sys.argv else NAMES,
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=rack.shutdown).start())
    if "--stay" not in sys.argv:
        threading.Thread(target=end_with_starter, args=(rack,), daemon=True).start()
    (folder / "rack" / "pid").write_text(str(os.getpid()))
    print("up", flush=True)
    rack.serve_forever(poll_interval=0.05)
    rack.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
