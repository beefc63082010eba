"""Events: what happened to the brokers that are watched, in one order, for clients that follow.

There are two sources. What the console sees when it looks at a broker are `state` events: they
come also of a broker that is dead, hangs or is cut off. What a broker writes into its event log
comes as `log` events, read from the broker second by second; after its restart, or when it can be
reached again, reading goes on. A client keeps no buffer here: it has a place in what all share, so
a thousand slow clients cost what one does. One that is overtaken is told so by a `gap`. The id of
an event is the run of the console and a number. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import traceback
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime
from typing import Any, NamedTuple

from qpidha.console.log_lines import log_line
from qpidha.console.looks import INTERVAL, Look, NotAnswered, Watched
from qpidha.console.recent import Recent
from qpidha.model.broker_states import UNREACHABLE
from qpidha.model.duration import SECOND
from qpidha.model.errors import RefusedRequest

STATE, LOG, GAP = "state", "log", "gap"
"""Names of events."""
KINDS = (
    STATE,
    "role",
    "epoch",
    "promotion",
    "failover",
    "insync",
    "member",
    "link",
    "federation",
    "replica",
    "conn",
    "queue",
    "limit",
    "error",
    "drop",
)
"""Kinds of events: what the console sees, and those of a broker's event log."""
MANY = ("federation", "replica", "conn", "queue", "limit", "error")
"""Kinds of which there can be any number, in no time."""
MOST = 2000
"""Events that are kept of each kind in MANY, and of all others together."""
PAGE = 500
"""Events that a broker is asked for at once."""
BATCH = 100
"""Events that are written to a client at once."""
HEARTBEAT = 10.0
"""Seconds without an event after which a client is written a comment."""
RETRY = 1000
"""Milliseconds after which a client is to come again."""


class Event(NamedTuple):
    """Something that happened."""

    name: str
    kind: str
    """`state`, `gap` or a kind of the event log."""
    place: str
    """Of the broker."""
    at: float
    """Time, in seconds since 1970."""
    data: str
    """What is told, a JSON object."""


class Wanted(NamedTuple):
    """Which events a client wants; empty means all."""

    kinds: Collection[str] = ()
    place: str = ""

    def has(self, event: Event) -> bool:
        """Whether it wants this one; a gap concerns everybody."""
        is_kind = not self.kinds or event.kind in self.kinds
        return event.kind == GAP or (is_kind and self.place in ("", event.place))


class Events:
    """The last events of all brokers."""

    def __init__(self) -> None:
        self.run = secrets.token_hex(4)
        """Which run of the console the numbers belong to."""
        self.recent: Recent[Event] = Recent(MOST)
        self.states: dict[str, Event] = {}
        """Place of a broker -> its last `state` event."""
        self.is_closed = False
        self._rounds = 0
        self._news = asyncio.Event()

    @property
    def last(self) -> str:
        """The id of the newest event."""
        return self.id_of(self.recent.last)

    def id_of(self, number: int) -> str:
        """Return the id of an event."""
        return f"{self.run}-{number}"

    def number_of(self, identity: str) -> int | None:
        """Return the number of an event by its id; None if it is of another run, or was never."""
        run, _, number = identity.partition("-")
        if run != self.run or not (number.isascii() and number.isdigit() and len(number) < 20):
            return None
        return int(number) if int(number) <= self.recent.last else None

    def add(
        self, name: str, kind: str, broker: Watched, fields: dict[str, Any], *, at: float
    ) -> None:
        """Add what happened to a broker."""
        moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        told = {
            "time": moment.replace("+00:00", "Z"),
            "broker": broker.name,
            "place": broker.place,
            "kind": kind,
            **fields,
        }
        event = Event(name, kind, broker.place, at, json.dumps(told, separators=(",", ":")))
        if name == STATE:
            self.states[broker.place] = event
        self.recent.add(kind if kind in MANY else "", event)
        self._wake()

    def part(self) -> None:
        """Let all clients go; those who still may come again, with the id that they have."""
        self._rounds += 1
        self._wake()

    def close(self) -> None:
        """Let all clients go, for good."""
        self.is_closed = True
        self._wake()

    async def stream(
        self, after: str, wanted: Wanted, heartbeat: float = HEARTBEAT
    ) -> AsyncIterator[str]:
        """Tell a client what happens, in the form of server-sent events: what came behind the event
        `after`, or else how all brokers are now.
        """
        begin = [f"retry: {RETRY}\n\n"]
        round_ = self._rounds
        number = self.number_of(after)
        told_gap = 0
        if number is None:
            number = self.recent.last
            if after:
                text = "it is not known here which events came after the one that you have"
                begin.append(_gap(text))
            begin += [_frame(event) for event in self.states.values() if wanted.has(event)]
        yield "".join(begin)
        while not self.is_closed and round_ == self._rounds:
            news = self._news
            found = self.recent.after(number, BATCH)
            if max(number, told_gap) < self.recent.dropped:
                told_gap = self.recent.dropped
                yield _gap("events came faster than they were read, and some are left out")
            if found:
                number = found[-1][0]
                frames = [
                    _frame(event, self.id_of(each)) for each, event in found if wanted.has(event)
                ]
                if frames:
                    yield "".join(frames)
                continue
            try:
                await asyncio.wait_for(news.wait(), heartbeat)
            except TimeoutError:
                # With an id, so that who wants few events does not come back with an old one.
                yield f": still here\nid: {self.id_of(number)}\n\n"

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class Follower:
    """Makes the events of one broker."""

    def __init__(self, broker: Watched, events: Events) -> None:
        self._broker = broker
        self._events = events
        self._seen: tuple[Any, ...] = ()
        self._after = 0
        """The time of the last event of its log that was read."""
        self._tells = True
        """Whether the broker keeps events, and lets us ask."""
        # Also of looks that others ask for: a broker may die and be back between two of ours.
        broker.heard.append(self._see)

    async def follow(self) -> None:
        """Look at the broker again and again. An answer that cannot be understood, of a broker of
        another version say, is written down once, and is not the end: the next one may be.
        """
        told = ""
        while True:
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001  # It is written down.
                text = repr(error)
                if text != told:
                    log_line(f"error: an answer of {self._broker.name} is not understood: {text}")
                    log_line("".join(traceback.format_exception(error)).rstrip())
                told = text
            await asyncio.sleep(INTERVAL)

    async def look(self) -> None:
        """See how it is, and read what it wrote."""
        look = await self._broker.look()
        if look.status is None:
            self._tells = True
        elif self._tells:
            try:
                await self._read_log()
            except NotAnswered:
                pass  # The next look says so.
            except RefusedRequest:
                self._tells = False

    def _see(self, broker: Watched, look: Look) -> None:
        status = look.status or {}
        primary = status.get("primary") or {}
        state = look.state or UNREACHABLE
        fields = {"state": state, "epoch": status.get("epoch"), "primary": primary.get("address")}
        seen = tuple(fields.values())
        if seen == self._seen:
            return
        was = self._seen[0] if self._seen else None
        self._seen = seen
        text = f"is {state}"
        if was not in (None, state):
            text += f", and was {was}"
        text += f": {look.reason}" if look.reason else ""
        told = {**fields, "was": was, "reason": look.reason, "text": text}
        self._events.add(STATE, STATE, self._broker, told, at=time.time())

    async def _read_log(self) -> None:
        """Read what came behind the last event; its times go on over a restart of the broker."""
        while True:
            # The first answer is what the broker keeps: without `after` a page would be the last.
            given = {"after": self._after, "limit": PAGE if self._after else 0}
            found = (await self._broker.ask("events", given))["events"]
            for event in found:
                self._after = event["at_ns"]
                at = self._after / SECOND
                self._events.add(LOG, event["kind"], self._broker, event, at=at)
            if len(found) < PAGE:
                return


def _gap(text: str) -> str:
    return f"event: {GAP}\ndata: {json.dumps({'kind': GAP, 'text': text})}\n\n"


def _frame(event: Event, identity: str = "") -> str:
    """Write an event; JSON has no line ends of its own."""
    head = f"id: {identity}\n" if identity else ""
    return f"{head}event: {event.name}\ndata: {event.data}\n\n"
