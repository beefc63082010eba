"""The event sink: collects the events that one turn adds to the event log.

The event log is the file of what happened, for people and for the pipeline. Every room that knows
of an event adds it here; the node hands all events of a turn to the world as one effect. An event
is a row: JSON members without the braces and the envelope. While the event log is off, adding one
costs a look. Kinds and keys are those of the event format (docs/pipeline.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

FORMAT = 1
"""Version of the event format, in the first line of each segment. A reader refuses segments of
another.
"""
LEVELS = ("off", "state", "sampled", "full")
"""How much is logged: nothing, what happens to the broker, also some messages, also all of them."""
LONGEST = 1000
"""Characters of one text in an event."""
STORY = ("role", "epoch", "promotion", "failover")
"""Kinds of events that tell who was primary, and since when."""
FEDERATION, REPLICA = "federation", "replica"
"""Kinds of events of links and routes, and of replicas of single queues."""
SHOWN = (
    *STORY,
    "insync",
    "member",
    "link",
    FEDERATION,
    REPLICA,
    "conn",
    "queue",
    "limit",
    "error",
    "drop",
)
"""Kinds of events of a broker's life, without those of single messages and of replication."""
STORY_LENGTH = 500
"""Events of these kinds that are remembered, over restarts."""


def kind_of(row: str) -> str:
    """Return the kind of an event that was added to a sink."""
    return row[5 : row.index('"', 5)]


def quoted(text: str) -> str:
    """Return any text as a JSON string that every reader takes: what is no Unicode text becomes
    question marks.
    """
    return json.dumps(text.encode(errors="replace").decode())


def writer_name(name: str) -> str:
    """Return the name of a broker as it stands in events and in names of files."""
    return name.replace(" ", "_").replace("/", "_")


@dataclass(frozen=True, slots=True)
class QueueCreated:
    """A queue was declared."""

    queue: str


@dataclass(frozen=True, slots=True)
class QueueEnded:
    """A queue was deleted, by whom or whatever."""

    queue: str


@dataclass(frozen=True, slots=True)
class DiskSpaceChange:
    """Messages are refused from now on because the disk is nearly full, or taken again."""

    is_low: bool


@dataclass(frozen=True, slots=True)
class Withholding:
    """A limit of the broker is reached and senders get no credit, or they get some again."""

    limit: str
    is_reached: bool


@dataclass(frozen=True, slots=True)
class LogTrouble:
    """Records were set aside, or bytes cut off the end of the write-ahead log, as `what` says."""

    what: str


@dataclass(frozen=True, slots=True)
class DepthAlert:
    """A queue has come up to a depth that is to be told, or down again."""

    queue: str
    is_up: bool
    messages: int


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A link or a route of federation, or a replica of a queue, is in another state; `kind` is that
    of the event.
    """

    kind: str
    what: str
    """One of the words that the event format has for the kind."""
    name: str
    """Such as `link west`."""
    why: str = ""


Happening = (
    QueueCreated | QueueEnded | DiskSpaceChange | Withholding | LogTrouble | DepthAlert | LinkChange
)
"""What an announcement is about, where the event log has a kind of event for it."""


class Tracer:
    """Sees single messages on their way to consumers; this one ignores them."""

    __slots__ = ()

    def delivered(
        self, queue: str, position: int, payload: bytes, delivery_count: int, to: str
    ) -> None:
        """A message of a logged queue was sent to a consumer at the address `to`."""


class EventSink:
    """Collects the events of one turn."""

    __slots__ = ("clients", "hits", "is_on", "rows", "tracer")

    def __init__(self, *, is_on: bool = False) -> None:
        self.is_on = is_on
        self.rows: list[str] = []
        self.tracer: Tracer | None = None
        """Sees single messages, if they are to be logged."""
        self.hits: dict[tuple[str, str, str], int] = {}
        """(limit, what was done, queue or nothing) -> how often since that was last logged."""
        self.clients: dict[int, str] = {}
        """Connections of clients that were admitted -> their addresses."""

    def add(self, kind: str, **fields: str | int) -> None:
        """Add an event; empty texts are left out."""
        if self.is_on:
            parts = [
                f'"{key}":{quoted(value[:LONGEST]) if isinstance(value, str) else value}'
                for key, value in fields.items()
                if value != ""
            ]
            self.rows.append(",".join((f'"k":"{kind}"', *parts)))

    def client_connected(self, connection_id: int, peer: str) -> None:
        """Add that a client was admitted."""
        if self.is_on:
            self.clients[connection_id] = peer
            self.add("conn", x=peer, f="up")

    def client_disconnected(self, connection_id: int, why: str) -> None:
        """Add that a connection is gone, if it was a client's."""
        peer = self.clients.pop(connection_id, None)
        if peer is not None:
            self.add("conn", x=peer, f="down", err=why)

    def limit(self, name: str, done: str, queue: str = "") -> None:
        """Count that a limit was hit; hits are logged once a second, with their number."""
        if self.is_on:
            key = (name, done, queue)
            self.hits[key] = self.hits.get(key, 0) + 1
