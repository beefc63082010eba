"""Real broker processes for the system tests: one broker, a cluster of them, and waiting for what
they come to.

A broker keeps its port, data directory, admin socket and log over restarts. Tests never sleep to
let something happen: they wait for a state with `wait_for`, which fails with what it last saw.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from qpidha.client.admin import AdminSocket, LinkBroken
from qpidha.model.errors import RefusedRequest
from qpidha.model.features import QUEUE_KINDS
from tests.patience import STATE
from tests.system import forked
from tests.system.net import Host, Network

T = TypeVar("T")
DEADLINE = STATE
"""Seconds after which a state that did not come is a failure; generous, because nothing waits
longer than it must.
"""
BASE_OPTIONS: Mapping[str, object] = {
    "ha_cluster": "yes",
    "ha_replicate": "all",
    "ha_backup_timeout": "10",
    # as the original, whose tests promote one of two brokers, or the last of three
    "ha_safety": "trust-manager",
    "link_maintenance_interval": "0.1",
    "link_heartbeat_interval": "1",
    "log_enable": "debug+:ha",
}


def wait_for(
    look: Callable[[], T],
    until: Callable[[T], object] = bool,
    *,
    what: str = "",
    deadline: float = DEADLINE,
) -> T:
    """Look again and again, soon at first, until what is seen satisfies `until`; return it.

    `until` may be a value's own comparison, as `"active".__eq__`: that of another type compares
    nothing (NotImplemented), and so is not satisfied.
    """
    end = time.monotonic() + deadline
    delay = 0.002
    while True:
        seen = look()
        satisfied = until(seen)
        if satisfied is not NotImplemented and satisfied:
            return seen
        if time.monotonic() > end:
            raise AssertionError(f"after {deadline:g} s {what or 'this'} is still {seen!r}")
        time.sleep(delay)
        delay = min(delay * 1.5, 0.1)


class Port:
    """A free TCP port of the loopback that stays ours while the broker on it is down.

    The socket is bound but never listens, so a broker may bind the same port while nobody else is
    given it.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.holder: socket.socket | None = None
        if not number:  # else the broker has a host to itself
            self.holder = socket.socket()
            self.holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.holder.bind(("127.0.0.1", 0))
            self.number = self.holder.getsockname()[1]

    def close(self) -> None:
        if self.holder is not None:
            self.holder.close()


@contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Yield ports that nobody else is given before who is to listen on them does."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Port())).number for _ in range(count)]


class Admin(AdminSocket):
    """One conversation over a broker's admin socket."""

    def __init__(self, path: Path, timeout: float = DEADLINE) -> None:
        super().__init__(str(path), timeout)

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def call(self, method: str, **params: Any) -> Any:  # type: ignore[override]
        """Ask and wait for the answer."""
        return super().call(method, params)


class Broker:
    """One qpidhad process that can be killed, stopped and restarted where it was."""

    MODULE: Sequence[str] = ("-m", "qpidha.runtime.daemon")
    """What Python runs; tests that need another daemon put theirs here. `-m` and a module with a
    function `main` is forked from a template, anything else is started.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        options: Mapping[str, object],
        encrypted: bool = False,
        host: Host | None = None,
    ) -> None:
        self.name = name
        self.host = host or Host()
        self.port = Port(self.host.port)
        self.module = list(self.MODULE)
        self.encrypted_port = Port() if encrypted else None
        self.data_dir = directory / name
        self.log = directory / f"{name}.log"
        # A UNIX socket's path may have 107 bytes, and the directories of pytest can be long.
        self.socket_dir = Path(tempfile.mkdtemp(prefix="qpidha-"))
        self.admin_socket = self.socket_dir / "admin.sock"
        self.options: dict[str, object] = dict(options)
        self.process: subprocess.Popen[bytes] | forked.Forked | None = None
        self.is_frozen = False

    def __repr__(self) -> str:
        return f"Broker({self.name} at {self.address})"

    @property
    def address(self) -> str:
        return f"{self.host.address}:{self.port.number}"

    @property
    def encrypted_address(self) -> str:
        assert self.encrypted_port is not None
        return f"{self.host.address}:{self.encrypted_port.number}"

    @property
    def member_address(self) -> str:
        """Return how other brokers name this one."""
        return self.encrypted_address if self.encrypted_port else self.address

    @property
    def brokers_url_part(self) -> str:
        """Return how other brokers reach this one."""
        return f"ssl:{self.encrypted_address}" if self.encrypted_port else self.address

    def flags(self) -> list[str]:
        """Return the options of the daemon as its command line has them."""
        options: dict[str, object] = {
            # What brokers without users would be refused for as soon as they have a host each.
            "auth": None if self.options.get("users_file") else "no",
            "port": self.port.number,
            "data_dir": self.data_dir,
            "admin_socket": self.admin_socket,
            **self.options,
            "interface": ",".join(self.host.addresses),
        }
        if self.encrypted_port:
            options["ssl_port"] = self.encrypted_port.number
        flags = [
            f"--{key.replace('_', '-')}={value}"
            for key, value in options.items()
            if value is not None
        ]
        return flags if options["data_dir"] is not None else [*flags, "--no-data-dir"]

    def start(self) -> None:
        """Start the process; it is up when it answers, see `wait_up`."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        flags = self.flags()
        command = [sys.executable, *self.module, *flags]
        with self.log.open("ab") as log:
            log.write(f"--- {' '.join(command)}\n".encode())
            log.flush()
            if self.module[0] == "-m":
                self.process = forked.start(
                    self.module[1], flags, log.fileno(), self.host.namespace
                )
                return
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=self._prepare
            )

    def _prepare(self) -> None:
        forked.die_with_parent()
        if self.host.namespace:
            forked.enter_namespace(self.host.namespace)

    def wait_up(self) -> None:
        def answers() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(
                    f"{self.name} ended with code "
                    f"{self.process.returncode}:\n{self.log.read_text()[-4000:]}"
                )
            return bool(self.state)

        wait_for(answers, what=f"whether {self.name} answers")

    def restart(self) -> None:
        """Start a broker that was killed, on its port and data directory."""
        assert not self.is_running, f"{self.name} still runs"
        self.start()
        self.wait_up()

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """End the process with SIGKILL and wait for its death."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.is_frozen = False

    def stop(self) -> None:
        """Freeze the process with SIGSTOP."""
        self.signal(signal.SIGSTOP)
        self.is_frozen = True

    def cont(self) -> None:
        """Let a frozen process go on."""
        self.signal(signal.SIGCONT)
        self.is_frozen = False

    def close(self) -> None:
        self.kill()
        self.port.close()
        if self.encrypted_port:
            self.encrypted_port.close()
        shutil.rmtree(self.socket_dir, ignore_errors=True)

    # What it says of itself.

    def call(self, method: str, **params: object) -> Any:
        """Ask over the admin socket, as a resource manager would."""
        with Admin(self.admin_socket) as admin:
            return admin.call(method, **params)

    def status(self) -> dict[str, Any]:
        """Return what `status` says, or nothing while nobody answers."""
        if self.is_frozen:
            return {}
        try:
            with Admin(self.admin_socket, timeout=20.0) as admin:
                return dict(admin.call("status"))
        except LinkBroken:
            return {}

    @property
    def state(self) -> str:
        return str(self.status().get("state", ""))

    @property
    def system_id(self) -> str:
        return str(self.call("status")["system_id"])

    def wait_state(self, *states: str, deadline: float = DEADLINE) -> None:
        what = f"{self.name}, expected to be {' or '.join(states)},"
        wait_for(lambda: self.state, lambda state: state in states, what=what, deadline=deadline)

    def wait_enabled(self, feature: str = QUEUE_KINDS) -> None:
        """Wait until the cluster uses a feature: every broker of it knows that."""
        wait_for(
            lambda: self.status()["features"]["enabled"],
            lambda enabled: feature in enabled,
            what=f"{feature} in use",
        )

    def connections(self) -> int:
        """Return how many other brokers it is connected to, whatever addresses they show."""
        status = self.call("status")
        others = [row for row in status["members"] if row["system_id"] != status["system_id"]]
        return sum(row["connected"] for row in others)

    def queue_names(self) -> list[str]:
        return sorted(queue["name"] for queue in self.call("list_queues"))

    def exchange_names(self) -> list[str]:
        return sorted(exchange["name"] for exchange in self.call("list_exchanges"))

    def bindings(self) -> list[tuple[str, str, str]]:
        """Return (exchange, queue, key) of every binding but those of the default exchange."""
        return sorted(
            (b["exchange"], b["queue"], b["key"])
            for b in self.call("list_bindings")
            if b["exchange"]
        )

    # What is asked of it.

    def promote(self) -> None:
        self.call("promote")

    def declare_queue(self, name: str, replicate: str | None = None, **arguments: object) -> None:
        """Declare a queue; arguments are given as `max_count=5` for `qpid.max_count`."""
        given = {f"qpid.{key}": value for key, value in arguments.items()}
        if replicate is not None:
            given["qpid.replicate"] = replicate
        self.call("declare_queue", name=name, arguments=given)

    def delete_queue(self, name: str) -> None:
        self.call("delete_queue", name=name)

    def declare_exchange(
        self, name: str, kind: str = "fanout", replicate: str | None = None
    ) -> None:
        self.call(
            "declare_exchange",
            name=name,
            type=kind,
            arguments={} if replicate is None else {"qpid.replicate": replicate},
        )

    def delete_exchange(self, name: str) -> None:
        self.call("delete_exchange", name=name)

    def bind(self, exchange: str, queue: str, key: str = "", **arguments: object) -> None:
        self.call(
            "bind",
            exchange=exchange,
            queue=queue,
            key=key,
            arguments={f"qpid.{k}": v for k, v in arguments.items()},
        )

    def unbind(self, exchange: str, queue: str, key: str = "") -> None:
        self.call("unbind", exchange=exchange, queue=queue, key=key)


class Cluster(Sequence[Broker]):
    """Brokers that name each other in ha-brokers-url; the first is promoted unless told
    otherwise.
    """

    def __init__(
        self,
        directory: Path,
        count: int,
        *,
        options: Mapping[str, object],
        started: int | None = None,
        encrypted: bool = False,
        network: Network | None = None,
    ) -> None:
        self.network = network
        self.brokers = [
            Broker(
                f"b{i}",
                directory,
                options={**BASE_OPTIONS, **options},
                encrypted=encrypted,
                host=network.host(i) if network else None,
            )
            for i in range(count)
        ]
        self.url = ",".join(broker.brokers_url_part for broker in self.brokers)
        ports = [broker.port.number for broker in self.brokers]
        for i, broker in enumerate(self.brokers):
            broker.options.setdefault(
                "ha_brokers_url", network.brokers_url(i, ports) if network else self.url
            )
        self.first = self.brokers[: count if started is None else started]

    def __getitem__(self, index: Any) -> Any:
        return self.brokers[index]

    def __iter__(self) -> Iterator[Broker]:
        return iter(self.brokers)

    def __len__(self) -> int:
        return len(self.brokers)

    @property
    def addresses(self) -> list[str]:
        return [broker.address for broker in self.brokers]

    def start(self, *, promote: bool = True) -> None:
        """Start the first brokers, promote #0 and wait until the others are ready."""
        for broker in self.first:
            broker.start()
        for broker in self.first:
            broker.wait_up()
        if promote and self.first:
            # One that hears of the others' promises later takes them up, and refuses once (S5).
            self.wait_connected()
            self.first[0].promote()
            self.wait_settled(0)

    def wait_settled(self, primary: int) -> None:
        """Wait until #primary is active and every other running broker is ready, in its epoch and
        not in an earlier one.
        """
        self[primary].wait_state("active")
        epoch = self[primary].call("status")["epoch"]
        for i, broker in enumerate(self.brokers):
            if i != primary and broker.is_running:
                wait_for(
                    broker.status,
                    lambda status: (status.get("state"), status.get("epoch")) == ("ready", epoch),
                    what=f"the status of {broker.name}",
                )

    def wait_connected(self) -> None:
        """Wait until every running broker has its own connection to every other one."""
        running = [broker for broker in self.brokers if broker.is_running]
        for broker in running:
            wait_for(
                broker.connections,
                lambda found: found >= len(running) - 1,
                what=f"the number of connections of {broker.name}",
            )

    def wait_managed(self, deadline: float = 2 * DEADLINE) -> int:
        """Do as a resource manager: promote while no running broker is primary; wait until one is
        active and the others ready.
        """
        missing_since = [time.monotonic()]
        turn = [0]

        def look() -> list[str]:
            running = [i for i, broker in enumerate(self.brokers) if broker.is_running]
            statuses = {i: self[i].status() for i in running}
            states = [str(statuses[i].get("state", "")) for i in running]
            if any(state in ("active", "recovering") for state in states):
                missing_since[0] = time.monotonic()
            elif time.monotonic() - missing_since[0] > 0.5:
                best = sorted(
                    running,
                    key=lambda i: (
                        states[running.index(i)] == "ready",
                        statuses[i].get("sequence", 0),
                    ),
                    reverse=True,
                )
                try:
                    self[best[turn[0] % len(best)]].promote()
                except (RefusedRequest, LinkBroken):
                    turn[0] += 1
            return states

        wait_for(
            look,
            lambda states: sorted(states) == ["active"] + ["ready"] * (len(states) - 1),
            what="the states",
            deadline=deadline,
        )
        return next(
            i
            for i, broker in enumerate(self.brokers)
            if broker.is_running and broker.state == "active"
        )

    def promote(self, i: int) -> None:
        self[i].promote()

    def kill(self, i: int, promote: int | None = None) -> None:
        """Kill #i; with `promote`, make that one the primary and wait until it is active."""
        self[i].kill()
        if promote is not None:
            self[promote].promote()
            self[promote].wait_state("active")

    def bounce(self, i: int, promote: int | None = None) -> None:
        """Kill #i, promote another if told to, and restart #i."""
        self.kill(i, promote)
        self[i].restart()

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()
        if self.network is not None:
            self.network.close()

    def logs(self, size: int = 6000) -> list[tuple[str, str]]:
        """Return the end of every broker's log."""
        return [
            (b.name, b.log.read_text(errors="replace")[-size:])
            for b in self.brokers
            if b.log.exists()
        ]
