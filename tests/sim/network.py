"""Network: the hosts of a world, brokers and clients, and which ways between them are cut."""

from __future__ import annotations

from typing import Any

from tests.sim.machine import Cluster


class Network:
    """What a cluster asks whoever watches it about the ways to others."""

    cluster: Cluster

    def __init__(self) -> None:
        self.clients: list[Any] = []
        self.cuts: dict[tuple[str, str], None] = {}

    def hosts(self) -> list[str]:
        """Name every host."""
        return [machine.host for machine in self.cluster] + [client.host for client in self.clients]

    def is_cut(self, source: str, target: str) -> bool:
        """Tell whether a way is cut on purpose, or a host at its end without power."""
        powerless = any(
            machine.without_power and machine.host in (source, target) for machine in self.cluster
        )
        return powerless or (source, target) in self.cuts
