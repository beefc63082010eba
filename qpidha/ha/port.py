"""What the HA machine needs from the node around it, and from its log.

The machine decides; the port does. Connections are named by their id only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from qpidha.ha.status import BrokerStatus
from qpidha.words.errors import QpidHaError
from qpidha.words.notes import Notes
from qpidha.words.records import Batch, Record

Reply = Callable[[QpidHaError | None], None]
"""Told how a promotion or demotion ended; None is success."""
Report = Callable[[QpidHaError | None, dict[str, object] | None], None]
"""Told how something ended that has more to tell than that it did: an error, or what there is to tell."""


class Port(Protocol):
    """The node, as the HA machine sees it."""

    now: int

    @property
    def notes(self) -> Notes:
        """Where to note what the journal of events is to have."""

    def dial(self, host: str, port: int, encrypted: bool) -> int:
        """Open a replication connection to another broker and return its id."""

    def hang_up(self, connection_id: int) -> None:
        """Close a connection to another broker."""

    def say(self, connection_id: int, data: bytes) -> None:
        """Send a message on a replication connection, of either direction."""

    def credit(self, connection_id: int) -> int:
        """How many messages that connection takes at present."""

    def save(self, data: bytes) -> None:
        """Make this the content of the state file, synced before anything said after it leaves."""

    def announce(self, level: str, text: str, **fields: object) -> None:
        """Say what happened."""

    def state_changed(self, state: BrokerStatus) -> None:
        """The broker is `state` from now on: admit or refuse clients, write or do not."""

    def released(self, safe: int) -> None:
        """The log is safe up to here."""

    def freeze(self, frozen: bool) -> None:
        """While frozen, take nothing more from clients and append nothing: another broker is to be primary."""

    def apply(self, data: bytes) -> None:
        """Fold encoded records into the broker model; raises ProtocolViolation where they cannot be read, perhaps half way."""

    def forget(self) -> None:
        """Empty the broker model: a snapshot follows."""

    def ha_records(self, data: bytes) -> list[tuple[int, Record]]:
        """Pick the HA records, with their sequences, out of encoded records; raises ProtocolViolation."""

    def snapshot(self, last: int) -> tuple[Iterator[bytes], Iterator[bytes]]:
        """Give encoded records that rebuild what existed at sequence `last`, in chunks, each read when it is asked for.

        The first are of objects and the second of messages on them.
        """


class Log(Protocol):
    """The log, as the HA machine sees it (`qpidha.store.log`).

    Recovered from disk, `safe` is a sequence that ends a batch and that the broker model has been folded up to, and the
    model may show effects of records up to `floor`.
    """

    epoch: int
    last: int
    safe: int
    needed: int
    pending_bytes: int
    floor: int
    history: list[tuple[int, int]]

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def kept(self) -> int: ...
    @property
    def has_pending(self) -> bool: ...
    def append(self, record: Record) -> int: ...
    def start_epoch(self, epoch: int) -> None: ...
    def seal(self) -> None: ...
    def receive(self, batch: Batch) -> None: ...
    def cut(self, sequence: int) -> None: ...
    def reset(self, sequence: int, history: list[tuple[int, int]]) -> None: ...
    def chunk(self, data: bytes) -> None: ...
    def snapshot_end(self, through: int) -> None: ...
    @property
    def snapshot_kept(self) -> bool: ...
    @property
    def chunks_waiting(self) -> int: ...
    def batches(self, sequence: int) -> Iterator[Batch]: ...
    def common_point(self, epoch: int, sequence: int) -> int: ...
    def epoch_of(self, sequence: int) -> int: ...
