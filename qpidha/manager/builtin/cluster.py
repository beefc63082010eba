"""Local clusters: the directory of one, what its brokers are called, and the configuration each is
started with.

`D/cluster.json` is all that an outsider needs to find the brokers, and what the next manager needs
to take over brokers that are still running. Each broker has `D/<name>/` with its configuration,
data, log and admin socket.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qpidha.manager.builtin.credentials import PROGRAMS, Credentials
from qpidha.model.errors import InvalidArgument

DAEMON = (sys.executable, "-m", "qpidha.runtime.daemon")
"""Command line of a broker, less its configuration; the environment variable QPIDHA_DAEMON replaces
it.
"""
HEARTBEATS = (0.05, 3600.0)
"""Shortest and longest heartbeat in seconds; below, a busy machine makes every broker look hung,
and none would ever be left alone.
"""
LOOPBACK = "127.0.0.1"
CLIENTS_NETWORK, BROKERS_NETWORK = "127.0.1", "127.0.2"
"""The two networks of a cluster whose clients and brokers have one each; the whole of 127 is the
loopback.
"""
SOCKET_PATH_LIMIT = 107
"""Longest path of a UNIX socket in bytes, by the size of sockaddr_un."""


@dataclass(slots=True)
class ClusterOptions:
    """What `local up` was asked for. Times are in seconds."""

    directory: Path
    ports: tuple[int, ...]
    name: str = "local"
    heartbeat: float = 0.5
    fence: bool = True
    backup_timeout: float = 10.0
    settings: dict[str, str] = field(default_factory=dict)
    secure: bool = False
    """Whether there is nothing without TLS and passwords."""
    two_networks: bool = False
    """Whether clients and brokers have a network each."""
    attached: bool = False
    """Whether the cluster ends with the process that started its manager, however that ends."""

    @property
    def daemon(self) -> list[str]:
        """Command line of a broker, less its configuration."""
        return shlex.split(os.environ.get("QPIDHA_DAEMON", "")) or list(DAEMON)

    @property
    def socket(self) -> Path:
        """Where the manager listens."""
        return self.directory / "manager.sock"

    @property
    def state_file(self) -> Path:
        """Where the cluster is written down."""
        return self.directory / "cluster.json"

    def brokers(self) -> list[BrokerSpec]:
        """Name the brokers: b1, b2, ..."""
        return [
            BrokerSpec(
                f"b{index}",
                port,
                self.directory / f"b{index}",
                self._host(CLIENTS_NETWORK, index),
                self._host(BROKERS_NETWORK, index),
                self.secure,
            )
            for index, port in enumerate(self.ports, start=1)
        ]

    def _host(self, network: str, index: int) -> str:
        return f"{network}.{index}" if self.two_networks else LOOPBACK

    @property
    def credentials(self) -> Credentials:
        """The files of a secure cluster."""
        return Credentials(self.directory)

    @property
    def in_sync_file(self) -> Path:
        """Where the newest in-sync set is recorded."""
        return self.directory / "in-sync.json"

    @property
    def is_new(self) -> bool:
        """Whether no broker of it has an identity yet, so that there is nothing that could be
        lost.
        """
        return "data-dir" not in self.settings and not any(
            (spec.data_dir / "systemId").exists() for spec in self.brokers()
        )

    def addresses(self) -> list[str]:
        """Say where clients connect."""
        return [spec.clients_address for spec in self.brokers()]

    def clients(self) -> dict[str, str]:
        """Say how programs connect: the URL and, of a secure cluster, the authority, a user, and
        the file with the password.
        """
        url = f"{'amqps' if self.secure else 'amqp'}://{','.join(self.addresses())}"
        if not self.secure:
            return {"url": url}
        return {
            "url": url,
            "ssl_trusted": str(self.credentials.trusted),
            "user": PROGRAMS,
            "password_file": str(self.credentials.password_file(PROGRAMS)),
        }

    def manager_command(self) -> list[str]:
        """Write the command line of a manager of this cluster, as `__main__` reads it."""
        line = [
            sys.executable,
            "-m",
            "qpidha.manager.builtin",
            "--dir",
            str(self.directory),
            "--ports",
            ",".join(map(str, self.ports)),
        ]
        line += [
            "--name",
            self.name,
            "--heartbeat",
            str(self.heartbeat),
            "--backup-timeout",
            str(self.backup_timeout),
        ]
        for is_so, word in (
            (not self.fence, "--no-fence"),
            (self.attached, "--attached"),
            (self.secure, "--secure"),
            (self.two_networks, "--two-networks"),
        ):
            line += [word] if is_so else []
        return line + [
            part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")
        ]

    def check(self) -> None:
        """Refuse a directory that is too deep for sockets, and times in which no broker could
        answer.
        """
        low, high = HEARTBEATS
        if not low <= self.heartbeat <= high:
            hint = f"give one from {low:g} to {high:g}, such as 0.5"
            raise InvalidArgument(f"a heartbeat of {self.heartbeat:g} s is not possible", hint=hint)
        if not 0 < self.backup_timeout < float("inf"):
            raise InvalidArgument(
                f"a backup timeout of {self.backup_timeout:g} s is not possible",
                hint="give one above 0, such as 10",
            )
        longest = max((len(os.fsencode(spec.admin_socket)) for spec in self.brokers()), default=0)
        if longest > SOCKET_PATH_LIMIT:
            raise InvalidArgument(
                f"{self.directory} is too long: an admin socket in it needs {longest} "
                f"bytes, and the system allows {SOCKET_PATH_LIMIT}",
                hint="give a shorter --dir",
            )


@dataclass(slots=True)
class BrokerSpec:
    """One broker of a local cluster."""

    name: str
    port: int
    directory: Path
    clients_host: str = LOOPBACK
    host: str = LOOPBACK
    """The address of this machine at which the other brokers find it."""
    secure: bool = False

    @property
    def address(self) -> str:
        """Where brokers connect, and by what they know it."""
        return f"{self.host}:{self.port}"

    @property
    def clients_address(self) -> str:
        """Where clients connect."""
        return f"{self.clients_host}:{self.port}"

    @property
    def public_address(self) -> str:
        """Where clients connect, and whether by TLS."""
        return f"{'ssl:' if self.secure else ''}{self.clients_address}"

    @property
    def hosts(self) -> list[str]:
        """The addresses at which it listens."""
        return list(dict.fromkeys((self.clients_host, self.host)))

    @property
    def names(self) -> list[str]:
        """By what its certificate has to know it: also by the loopback, where proxies may be."""
        return ["localhost", *dict.fromkeys((LOOPBACK, *self.hosts))]

    @property
    def admin_socket(self) -> Path:
        """Where managers and commands connect."""
        return self.directory / "admin.sock"

    @property
    def data_dir(self) -> Path:
        """Where it keeps what has to survive."""
        return self.directory / "data"

    @property
    def config(self) -> Path:
        """Its configuration file."""
        return self.directory / "qpidd.conf"

    @property
    def log(self) -> Path:
        """Its log file."""
        return self.directory / "qpidhad.log"


def brokers_url(addresses: Iterable[str], *, secure: bool) -> str:
    """Write addresses as ha-brokers-url has them."""
    return "amqp:" + ",".join(f"{'ssl' if secure else 'tcp'}:{each}" for each in addresses)


def _entrance(spec: BrokerSpec, options: ClusterOptions) -> dict[str, str]:
    """Say by which port a broker is entered, and by whom."""
    if not options.secure:
        return {"port": str(spec.port)}
    return {"ssl-port": str(spec.port), **options.credentials.settings(spec.name)}


def configuration(spec: BrokerSpec, options: ClusterOptions) -> str:
    """Write a broker's configuration file."""
    brokers = options.brokers()
    settings = {
        "name": spec.name,
        "interface": ",".join(spec.hosts),
        **_entrance(spec, options),
        "data-dir": str(spec.data_dir),
        "admin-socket": str(spec.admin_socket),
        "ha-cluster": "yes",
        "ha-brokers-url": brokers_url([other.address for other in brokers], secure=options.secure),
        "ha-public-url": brokers_url(options.addresses(), secure=options.secure),
        "ha-replicate": "all",
        "ha-safety": "strict",
        "ha-backup-timeout": f"{options.backup_timeout:g}",
        "link-heartbeat-interval": f"{options.heartbeat:g}",
        "link-maintenance-interval": "0.1",
    }
    for name, value in options.settings.items():
        broker, colon, own = name.partition(":")
        if not colon:
            settings[name] = value
        elif broker == spec.name:
            settings[own] = value
    has_logins = any(settings.get(name) for name in ("users-file", "ssl-trusted"))
    if settings["interface"] == LOOPBACK and not has_logins:
        # Brokers and tools of this machine are believed without a login.
        settings.setdefault("auth", "no")
    if len(options.ports) == 2 and settings["ha-safety"] == "strict":
        settings.setdefault(
            "ha-recorder", "manager"
        )  # of two brokers no majority is left when one is gone
    lines = [f"# broker {spec.name} of the local cluster {options.name}, written by its manager"]
    return "\n".join(lines + [f"{name}={value}" for name, value in settings.items()]) + "\n"


def write_configuration(spec: BrokerSpec, options: ClusterOptions) -> None:
    """Write a broker's configuration, readable by its owner only, since it may hold a password;
    raises OSError.
    """
    spec.config.touch(mode=0o600)
    spec.config.write_text(configuration(spec, options))


def write_state(
    options: ClusterOptions, *, manager_pid: int, processes: dict[str, tuple[int, int]]
) -> None:
    """Write `cluster.json` in one step, readable by its owner only; `processes` has pid and start
    time by broker name.
    """
    brokers = []
    for spec in options.brokers():
        pid, started = processes.get(spec.name, (0, 0))
        brokers.append(
            {
                "name": spec.name,
                "address": spec.address,
                "public_address": spec.public_address,
                "port": spec.port,
                "pid": pid or None,
                "pid_started": started,
                "admin_socket": str(spec.admin_socket),
                "data_dir": str(spec.data_dir),
                "log": str(spec.log),
                "config": str(spec.config),
            }
        )
    state = {
        "schema_version": 1,
        "name": options.name,
        "directory": str(options.directory),
        "manager_pid": manager_pid or None,
        "manager_socket": str(options.socket),
        "heartbeat": options.heartbeat,
        "fence": options.fence,
        "secure": options.secure,
        "clients": options.clients(),
        "brokers_url": ",".join(spec.address for spec in options.brokers()),
        "brokers": brokers,
    }
    temporary = options.state_file.with_suffix(".new")
    temporary.touch(mode=0o600)
    temporary.write_text(json.dumps(state, indent=2) + "\n")
    temporary.replace(options.state_file)


def read_state(directory: Path) -> dict[str, Any] | None:
    """Read `cluster.json`, or return None if there is none."""
    try:
        state: dict[str, Any] = json.loads((directory / "cluster.json").read_text())
    except (OSError, ValueError):
        return None
    return state
