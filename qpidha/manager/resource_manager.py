"""Resource managers: whoever decides which broker is primary.

A resource manager watches the brokers, makes sure that a broker it gave up can do no harm, and promotes
another. The built-in one is `local.py`; Pacemaker and rgmanager do the same through the commands. A manager
uses only what any outsider may use: processes, the admin socket and the commands. It must not know how a
broker works inside. Source: Qpid's "Active-Passive Messaging Clusters", "Configuring a cluster resource manager".
"""

from __future__ import annotations

from typing import Protocol

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.placement import Member


class ResourceManager(Protocol):
    """Keeps one broker of a cluster promoted."""

    def members(self) -> list[Member]:
        """Say what is known of every broker of the cluster."""
        ...

    async def fence(self, name: str) -> None:
        """Make sure that a broker can do nothing more; return only when that is certain."""
        ...

    async def promote(self, name: str) -> None:
        """Make a broker the primary; raise RefusedRequest with the broker's reason if it declines."""
        ...

    def record_in_sync(self, epoch: int, version: int, members: tuple[str, ...]) -> bool:
        """Remember an in-sync set for ever, if it is newer than the newest known; return whether it was. Back only when it is kept."""
        ...

    def newest_in_sync(self) -> InSyncRecord:
        """Say which in-sync set is the newest that was recorded; one without members if none ever was."""
        ...

    async def switch_over(self, name: str) -> None:
        """Let the primary hand over to another broker (empty: the best), and promote nobody meanwhile; raise RefusedRequest for a no."""
        ...

    async def stop(self) -> None:
        """End every broker of the cluster in good order."""
        ...
