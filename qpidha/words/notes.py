"""Notes: what a turn has to tell the journal of events, as JSON objects without their braces and envelope.

Whoever knows of something worth telling adds a note; the node hands all notes of a turn to the world as one effect. While
the journal is off adding costs a look. Kinds and keys are those of the event format (docs/pipeline.md).
"""

from __future__ import annotations

import json

FORMAT = 1
"""Version of the event format, in the first line of each segment. A reader refuses segments of another."""
LEVELS = ("off", "state", "sampled", "full")
"""How much is told: nothing, what happens to the broker, also some messages, also all messages."""
LONGEST = 1000
"""Characters of one text in a note."""


def quoted(text: str) -> str:
    """Return any text as a JSON string that every reader takes: what is no Unicode text becomes question marks."""
    return json.dumps(text.encode(errors="replace").decode())


def writer_name(name: str) -> str:
    """Return the name of a broker as it stands in notes and in names of files."""
    return name.replace(" ", "_").replace("/", "_")


class Tracer:
    """Who is told of single messages; this one does not listen."""

    __slots__ = ()

    def delivered(self, queue: str, position: int, payload: bytes, delivery_count: int, to: str) -> None:
        """A message of a logged queue was sent to a consumer at the address `to`."""


class Notes:
    """The notes of one turn."""

    __slots__ = ("clients", "hits", "is_on", "rows", "tracer")

    def __init__(self, *, is_on: bool = False) -> None:
        self.is_on = is_on
        self.rows: list[str] = []
        self.tracer: Tracer | None = None
        """Who is told of single messages, if that is wanted."""
        self.hits: dict[tuple[str, str, str], int] = {}
        """(limit, what was done, queue or nothing) -> how often since that was last told."""
        self.clients: dict[int, str] = {}
        """Connections of clients that are let in -> their addresses."""

    def add(self, kind: str, **fields: str | int) -> None:
        """Note an event; empty texts are left out."""
        if self.is_on:
            parts = [
                f'"{key}":{quoted(value[:LONGEST]) if isinstance(value, str) else value}' for key, value in fields.items() if value != ""
            ]
            self.rows.append(",".join((f'"k":"{kind}"', *parts)))

    def came(self, connection_id: int, peer: str) -> None:
        """Note that a client is let in."""
        if self.is_on:
            self.clients[connection_id] = peer
            self.add("conn", x=peer, f="up")

    def left(self, connection_id: int, why: str) -> None:
        """Note that a connection is gone, if it was a client's."""
        peer = self.clients.pop(connection_id, None)
        if peer is not None:
            self.add("conn", x=peer, f="down", err=why)

    def limit(self, name: str, done: str, queue: str = "") -> None:
        """Note that a limit was hit; what happens often is told once a second, with its number."""
        if self.is_on:
            key = (name, done, queue)
            self.hits[key] = self.hits.get(key, 0) + 1
