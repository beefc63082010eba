"""Resource managers: whoever decides which broker is primary, as an operator's command speaks to
it.

A resource manager watches the brokers, makes sure that a broker it gave up can do no harm, and
promotes another. This is the whole interface between `qpid-ha` and one: the built-in manager,
Pacemaker and rgmanager have it, and a plug-in adds others (`plugins.py`,
docs/resource-managers.md). Every method blocks until it is done, and refuses with a RefusedRequest
that says why and what to do; a manager that does not answer is a LinkBroken. A broker is named by
its address, `host:port`, or as its manager calls it. A manager uses only what any outsider may use:
processes, admin sockets and commands. It must not know how a broker works inside. Source: Qpid's
"Active-Passive Messaging Clusters", "Configuring a cluster resource manager".
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.placement import Member


class BrokerPlace(NamedTuple):
    """Where a broker is, as far as a command line says: socket or address may be empty."""

    admin_socket: str = ""
    """Path of the admin socket of a broker on this machine."""
    address: str = ""
    """`host:port`."""
    folders: tuple[str, ...] = ()
    """Where a cluster of the built-in manager may lie on this machine."""


class ResourceManager(Protocol):
    """Keeps one broker of a cluster promoted."""

    @property
    def name(self) -> str:
        """What it is called in messages, such as `pacemaker`."""
        ...

    def members(self) -> list[Member]:
        """Say what is known of every broker of the cluster."""
        ...

    def fence(self, name: str) -> None:
        """Make sure that a broker can do nothing more; return only when that is certain."""
        ...

    def promote(self, name: str) -> None:
        """Make a broker the primary where there is none."""
        ...

    def switch_over(self, name: str) -> None:
        """Have another broker (empty: the best) take over from a healthy primary, and promote
        nobody else meanwhile.
        """
        ...

    def take_over(self, name: str) -> None:
        """Have another broker (empty: the best) take over: the primary does not work, or there is
        none.
        """
        ...

    def record_in_sync(self, epoch: int, version: int, members: tuple[str, ...]) -> bool:
        """Keep an in-sync set (identities of brokers) for ever if it is newer than the newest
        known; return whether it is now kept.

        A manager without a store that survives it, or whose store may not be written just now,
        keeps nothing and returns False.
        """
        ...

    def newest_in_sync(self) -> InSyncRecord:
        """Say which in-sync set is the newest that was recorded; one without members if none ever
        was, or there is no store.
        """
        ...

    def stop(self) -> None:
        """End every broker of the cluster in good order."""
        ...


class FindManager(Protocol):
    """What a plug-in registers: it finds the manager of a broker."""

    def __call__(self, place: BrokerPlace) -> ResourceManager | None:
        """Return the manager if it runs this broker, else None. It is called for every switchover,
        so it must be quick; it never raises.
        """
        ...
