"""Run the built-in manager as a process: `python -m qpidha.manager.builtin --dir D --ports
5672,5673,5674`.

Writes every event to its standard output, in words; programs read the same on the manager's socket.
SIGTERM and SIGINT end the cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import signal
import sys
from pathlib import Path
from typing import Any

from qpidha.manager.builtin.cluster import ClusterOptions
from qpidha.manager.builtin.control import Control
from qpidha.manager.builtin.events import log_line
from qpidha.manager.builtin.supervisor import LocalManager
from qpidha.model.errors import QpidHaError


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run until the end of the cluster."""
    parser = argparse.ArgumentParser(
        prog="python -m qpidha.manager.builtin",
        description="Run a local cluster and keep one broker promoted.",
    )
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--ports", required=True, help="one port per broker, separated by commas")
    parser.add_argument("--name", default="local")
    parser.add_argument("--heartbeat", type=float, default=0.5)
    parser.add_argument("--backup-timeout", type=float, default=10.0)
    parser.add_argument("--no-fence", action="store_true")
    parser.add_argument(
        "--attached",
        action="store_true",
        help="end when standard input ends, so with the process that started this one",
    )
    parser.add_argument(
        "--secure", action="store_true", help="TLS and logins, by the files in DIR/credentials"
    )
    parser.add_argument(
        "--two-networks",
        action="store_true",
        help="clients at 127.0.1.N, and brokers among each other at 127.0.2.N",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting for every broker",
    )
    parsed = parser.parse_args(arguments)
    options = ClusterOptions(
        directory=parsed.dir.absolute(),
        ports=tuple(int(port) for port in parsed.ports.split(",")),
        name=parsed.name,
        heartbeat=parsed.heartbeat,
        fence=not parsed.no_fence,
        backup_timeout=parsed.backup_timeout,
        settings=dict(setting.partition("=")[::2] for setting in parsed.set),
        secure=parsed.secure,
        two_networks=parsed.two_networks,
        attached=parsed.attached,
    )
    options.directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(options.directory / "manager.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write(f"error: another manager runs the cluster in {options.directory}\n")
        return 1
    try:
        asyncio.run(_run(options))
    except QpidHaError as error:
        sys.stderr.write(f"error: {error.text}. {error.hint}\n")
        return 1
    return 0


async def _run(options: ClusterOptions) -> None:
    manager = LocalManager(options)
    control = Control(manager)
    manager.events.subscribe(_print)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, control.down.set)
    if options.attached:
        loop.add_reader(sys.stdin.fileno(), _at_end_of_input, loop, control)
    await control.listen()
    await manager.start()
    working = asyncio.create_task(manager.run())
    ending = asyncio.create_task(control.down.wait())
    await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
        signal.signal(
            number, signal.SIG_IGN
        )  # One was enough; another must not leave brokers behind.
    await manager.stop()
    await control.close()
    if working.done() and not working.cancelled() and working.exception() is not None:
        working.result()


def _at_end_of_input(loop: asyncio.AbstractEventLoop, control: Control) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        control.down.set()


def _print(entry: dict[str, Any]) -> None:
    sys.stdout.write(log_line(entry) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
