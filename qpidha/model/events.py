"""Events: everything that can happen to a node, in the past tense. Together with effects this is
its whole border.

The runtime (or a simulator) collects what happened in one turn of its loop and hands it to
`Node.step(events, now)`, where `now` is nanoseconds since the Unix epoch and never goes back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class ConnectionKind(Enum):
    """Where a connection came from."""

    CLIENT = "client"  # accepted on an AMQP port: a client, a tool or another broker
    LOCAL = "local"  # accepted on the admin UNIX socket; the kernel vouches for the peer
    OUTGOING = "outgoing"  # the answer to a Connect effect


@dataclass(slots=True)
class ConnectionOpened:
    """A byte stream exists. `identity` is the TLS client certificate's subject, or the local user's
    name; `local_host` the address of ours that a client dialled, empty if it is not known;
    `trusted_host` tells that the peer is on this machine or at an address of ha-brokers-url.
    """

    connection_id: int
    peer: str
    kind: ConnectionKind
    identity: str = ""
    encrypted: bool = False
    local_host: str = ""
    trusted_host: bool = False


@dataclass(slots=True)
class HandshakeFailed:
    """A peer at an address did not get through TLS; `by_certificate` for want of a good one."""

    peer: str
    reason: str
    by_certificate: bool


@dataclass(slots=True)
class BytesReceived:
    """The peer sent `data`."""

    connection_id: int
    data: bytes


@dataclass(slots=True)
class ConnectionCongested:
    """The peer reads slower than it is written to, or (not `congested`) has caught up again."""

    connection_id: int
    congested: bool


@dataclass(slots=True)
class OutputWaiting:
    """So many bytes wait for peers that have not read them yet, over all connections."""

    size: int


@dataclass(slots=True)
class ConnectionLost:
    """The stream ended, or the Connect that asked for it failed; the id is never used again."""

    connection_id: int
    reason: str


@dataclass(slots=True)
class Reloaded:
    """What may change while a broker serves was read again: because of a signal, or of the effect
    Reload that had this `number`. With `trouble` nothing has changed.
    """

    number: int = 0
    users: Any = None
    acl: Any = None
    """The access control list, None where there is none."""
    warnings: tuple[str, ...] = ()
    certificate_end: int = 0
    """Until when our certificate is good, in seconds since 1970; 0 if there is none."""
    log: tuple[str, str] = ("", "")
    """What is logged, and what is not although that says so."""
    trouble: str = ""
    hint: str = ""


@dataclass(slots=True)
class Computed:
    """The arithmetic of an effect Compute is done; `error` is what went wrong, if anything did."""

    connection_id: int
    result: Any = None
    error: Exception | None = None


@dataclass(slots=True)
class StateSaved:
    """The content of the effect SaveState with this `mark`, or of a later one, is on disk."""

    mark: int


@dataclass(slots=True)
class LogWritten:
    """All that was given to the disk before mark `mark` is written, and synced as far as that was
    asked for.
    """

    mark: int
    sync_time: int = field(default=0, compare=False)
    """How long the sync took, in ns; 0 if none was asked for."""


@dataclass(slots=True)
class LogFailed:
    """The disk could not write or sync, and does nothing any more; what it was given since the last
    mark may be lost.
    """

    reason: str


@dataclass(slots=True)
class DiskSpaceChanged:
    """The file system of the data directory has less than `disk-free-limit` left (`low`), or again
    more. Even if it has not, it may be `short`: so near to it that senders should wait.
    """

    low: bool
    free: int
    short: bool = False


@dataclass(slots=True)
class Stalled:
    """For so many ns this broker heard nobody: a turn took so long, or the process was not run."""

    time: int


@dataclass(slots=True)
class Tick:
    """Time went by: `Node.next_deadline` was reached."""


@dataclass(slots=True)
class StopRequested:
    """The operator asked the daemon to end."""


Event = (
    ConnectionOpened
    | HandshakeFailed
    | BytesReceived
    | ConnectionCongested
    | OutputWaiting
    | ConnectionLost
    | Reloaded
    | Computed
    | StateSaved
    | LogWritten
    | LogFailed
    | DiskSpaceChanged
    | Stalled
    | Tick
    | StopRequested
)
