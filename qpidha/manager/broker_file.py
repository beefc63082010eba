"""The configuration file of a broker, as a resource manager reads it on one node: the admin socket,
and the addresses of all brokers.

Other nodes' files are taken to say the same, apart from the node's own address. Knows no manager.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from qpidha.model.errors import InvalidArgument
from qpidha.model.paths import CONFIGURATION, QPIDD_CONFIGURATION
from qpidha.model.paths import admin_socket as usual_admin_socket
from qpidha.model.settings import Settings


@dataclass(frozen=True, slots=True)
class BrokerFile:
    """The configuration file of the brokers, as it is on this node."""

    path: str
    settings: Settings | None
    """None where it cannot be read."""
    problem: str
    admin_socket: str

    @property
    def addresses(self) -> tuple[str, ...]:
        """`host:port` of every broker of the cluster."""
        return (
            ()
            if self.settings is None
            else tuple(address.host_port for address in self.settings.ha_brokers_url)
        )

    @property
    def port(self) -> int:
        """Where clients connect."""
        if self.settings is None:
            return 0
        return self.settings.ssl_port if self.settings.require_encryption else self.settings.port


def usual_file() -> str:
    """Return where the file of a broker is that nobody named, as the broker itself has it."""
    files = (path for path in (CONFIGURATION, QPIDD_CONFIGURATION) if os.path.exists(path))
    return next(files, CONFIGURATION)


def read_broker_file(path: str, admin_socket: str = "") -> BrokerFile:
    """Read the file at `path`; an `admin_socket` that is given counts instead of its own. Never
    raises.
    """
    try:
        with open(path, encoding="utf-8") as file:
            settings, _ = Settings.load(file.read(), {}, [], file_name=path)
    except (OSError, UnicodeDecodeError, InvalidArgument) as error:
        return BrokerFile(path, None, getattr(error, "strerror", None) or str(error), admin_socket)
    if not admin_socket:
        admin_socket = settings.admin_socket or (
            os.path.join(settings.data_dir, "admin.sock")
            if settings.data_dir
            else usual_admin_socket(os.environ, os.getuid(), settings.port)
        )
    return BrokerFile(path, settings, "", admin_socket)
