"""The built-in manager as commands reach it: over the socket that it keeps in its cluster's folder.

`local.py` is the manager itself, in a process of its own. It fences, promotes and records by
itself, so those are refused here.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from qpidha.client.admin import ask
from qpidha.manager.builtin.cluster import read_state
from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.placement import Member
from qpidha.manager.resource_manager import BrokerPlace
from qpidha.model.errors import NotAllowed

PATIENCE = 30.0
"""Seconds for the manager to have done what it was asked; a hand-over itself may take ten."""


class BuiltinManager:
    """A ResourceManager: the manager of `qpid-ha local up`."""

    name = "builtin"

    def __init__(self, path: str) -> None:
        self.path = path

    def members(self) -> list[Member]:
        """Say what the manager knows of its brokers."""
        return [
            Member(
                broker["name"],
                broker["address"],
                alive=broker["pid"] is not None,
                healthy=broker["healthy"],
                state=broker["state"],
                epoch=broker["epoch"],
                sequence=broker["sequence"],
                system_id=broker["system_id"],
            )
            for broker in self._ask("status")["brokers"]
        ]

    def fence(self, name: str) -> None:
        """Kill a broker; the manager starts it again when another is primary."""
        self._ask("kill", {"name": name})

    def promote(self, name: str) -> None:
        """Refuse: the manager promotes as soon as there is no primary, and never beside one."""
        raise NotAllowed(
            "the built-in manager promotes by itself",
            hint=f"qpid-ha switchover {name}, or failover if the primary does not work",
        )

    def switch_over(self, name: str) -> None:
        """Have the primary hand over."""
        self._ask("switchover", {"target": name})

    def take_over(self, name: str) -> None:
        """Have a backup promoted although there is a primary."""
        self._ask("failover", {"target": name})

    def record_in_sync(self, epoch: int, version: int, members: tuple[str, ...]) -> bool:
        """Keep nothing: the manager learns each set from the brokers themselves."""
        return False

    def newest_in_sync(self) -> InSyncRecord:
        """Say which set the manager has written down."""
        known = self._ask("status")
        identities = {broker["name"]: broker["system_id"] for broker in known["brokers"]}
        newest = known["in_sync"]
        return InSyncRecord(
            newest["epoch"],
            newest["version"],
            tuple(identities.get(name, name) for name in newest["members"]),
        )

    def stop(self) -> None:
        """End the brokers and the manager."""
        self._ask("down")

    def _ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = ask(self.path, method, params, timeout=PATIENCE)
        return answer


def find(place: BrokerPlace) -> BuiltinManager | None:
    """Find the manager among those of the folders: the one that wrote the broker down, and
    listens.
    """
    address = place.address.replace("localhost:", "127.0.0.1:", 1)
    for folder in place.folders:
        path = os.path.join(folder, "manager.sock")
        for broker in (read_state(Path(folder)) or {}).get("brokers", []):
            is_it = place.admin_socket == broker["admin_socket"] or (
                address and address == broker["address"]
            )
            if is_it and _listens(path):
                return BuiltinManager(path)
    return None


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(path)
        except OSError:
            return False
    return True
