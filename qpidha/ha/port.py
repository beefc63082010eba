"""What the HA machine needs from the node around it, and from its log.

The machine decides; the port does. Connections are named by their id only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from qpidha.model.broker_states import BrokerStatus
from qpidha.model.encoding import Parts
from qpidha.model.errors import QpidHaError
from qpidha.model.event_log import EventSink
from qpidha.model.records import Batch, Record

Reply = Callable[[QpidHaError | None], None]
"""Called with how a promotion or demotion ended; None is success."""
Report = Callable[[QpidHaError | None, dict[str, object] | None], None]
"""Called with an error, or with the result of what was asked for."""


class Port(Protocol):
    """The node, as the HA machine sees it."""

    now: int

    @property
    def event_log(self) -> EventSink:
        """Where events for the event log go."""

    @property
    def time(self) -> int:
        """The time by which messages expire, in ns since the Unix epoch."""

    def hear_time(self, time: int) -> None:
        """So late it is at the primary, or a moment later; 0 if it does not say."""

    def dial(self, host: str, port: int, encrypted: bool) -> int:
        """Open a replication connection to another broker and return its id."""

    def hang_up(self, connection_id: int) -> None:
        """Close a connection to another broker."""

    def send(self, connection_id: int, data: bytes | Parts) -> None:
        """Send a message, as a whole or in parts, on a replication connection, of either direction,
        when what was given to `save` before is on disk (S5).
        """

    def tell(self, connection_id: int, data: bytes) -> None:
        """Send at once what nobody relies on after a crash of this broker: how it is, a question
        for that, a refusal.
        """

    def credit(self, connection_id: int) -> int:
        """How many messages that connection takes at present."""

    def save(self, data: bytes) -> None:
        """Make this the content of the state file, beside all else that goes on.

        A broker that cannot write it stops, so there is nothing to handle here.
        """

    @property
    def saving_since(self) -> int:
        """Since when the state file is being written; 0 if nothing waits for it."""

    def when_saved(self, action: Callable[[], None]) -> None:
        """Go on with `action` when what was given to `save` is on disk; at once if it is."""

    @property
    def is_awaited(self) -> bool:
        """Whether a client waits for what is appended and not sealed."""

    def is_awaited_before(self, sequence: int) -> bool:
        """Whether one waits for what of it is before a sequence."""

    @property
    def is_hurried(self) -> bool:
        """Whether something else does, so that nothing should be kept back."""

    def announce(self, level: str, text: str, *, event_code: str = "", **fields: object) -> None:
        """Write to the log what happened."""

    def state_changed(self, state: BrokerStatus) -> None:
        """The broker is `state` from now on: admit or refuse clients, write or do not."""

    def on_committed(self, committed: int) -> None:
        """The log is committed up to here; clients hear of it when what was given to `save` is on
        disk (S1).
        """

    def freeze(self, frozen: bool) -> None:
        """While frozen, take nothing more from clients and append nothing: another broker is to be
        primary.
        """

    def apply(self, data: bytes | Parts, *, is_snapshot: bool = False) -> None:
        """Fold encoded records, of the log or of a snapshot, into the broker model; raises
        ProtocolViolation where they cannot be read, perhaps half way.
        """

    def forget(self) -> None:
        """Empty the broker model: a snapshot follows."""

    def ha_records(self, data: bytes | Parts) -> list[tuple[int, Record]]:
        """Pick the HA records, with their sequences, out of encoded records; raises
        ProtocolViolation.
        """

    def snapshot(self, last: int) -> tuple[Iterator[bytes], Iterator[bytes]]:
        """Give encoded records that rebuild what existed at sequence `last`, in chunks, each read
        when it is asked for.

        The first are of objects and the second of messages on them.
        """


class Log(Protocol):
    """The log, as the HA machine sees it (`qpidha.store.log`).

    Recovered from disk, `committed` is a sequence that ends a batch and that the broker model has
    been folded up to, and the model may show effects of records up to `snapshot_through`.
    """

    epoch: int
    last: int
    committed: int
    retain_from: int
    messages: int
    probe: int
    elided: int
    unsealed: int
    has_more: bool
    has_departures: bool
    pending_bytes: int
    snapshot_through: int
    history: list[tuple[int, int]]

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def durable_to(self) -> int: ...
    @property
    def has_pending(self) -> bool: ...
    def append(self, record: Record) -> int: ...
    def start_epoch(self, epoch: int) -> None: ...
    def first_unsealed(self) -> int: ...
    def end_turn(self) -> None: ...
    def seal(self, through: int = 0) -> None: ...
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
