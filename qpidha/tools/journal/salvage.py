"""Salvage: messages of a stopped broker's write-ahead log, sent again to a broker that runs, or
written to a file.

A message is sent as it was stored, but for an annotation that says where it comes from, to the
queue that it was on; those without an outcome are sent again after a failover.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import quote

from qpidha.client.blocking import Client, Sender
from qpidha.client.command.arguments import Options
from qpidha.client.command.clients import CommandClient
from qpidha.client.command.exits import Failure
from qpidha.client.command.target import resolve
from qpidha.client.links import Delivery
from qpidha.client.message import Message
from qpidha.model.errors import ProtocolViolation
from qpidha.model.exit_codes import DATA_ERROR, NO_INPUT
from qpidha.model.message_view import add_annotation, departure
from qpidha.store.frames import BATCH
from qpidha.tools.journal.content import Content, queue_names, summary
from qpidha.tools.journal.files import Folder, Place, StoppedBroker

WINDOW = 200
"""Messages sent whose outcome is not known."""
HEARTBEAT = 2.0
"""In seconds; silence of twice as long is a lost connection."""
SALVAGED = "x-opt-ha-salvaged"
"""The message annotation of a message that comes from a write-ahead log: its sender may have sent
it again since, and a consumer may have had it.
"""


class Salvaged(NamedTuple):
    """One message: on which queue it was, and where it is."""

    queue: str
    uid: int
    sequence: int
    place: Place


class Salvage:
    """The messages that are to be saved."""

    def __init__(self, content: Content, wanted: list[Salvaged]) -> None:
        self.content = content
        self.wanted = wanted
        self.accepted = 0
        self.refused: dict[Salvaged, str] = {}
        self._sent: dict[str, list[Salvaged]] = {}
        """By queue, in the order in which they were sent."""

    @property
    def decided(self) -> int:
        """How many messages have an outcome."""
        return self.accepted + len(self.refused)

    def lines(self) -> Iterator[str]:
        """Write each message as a line of JSON."""
        for each in self.wanted:
            payload = self.content.payload(each.place, each.uid, each.sequence)
            fields = {
                "queue": each.queue,
                "sequence": each.sequence,
                **summary(payload),
                "payload": b64encode(payload).decode(),
            }
            yield json.dumps(fields) + "\n"

    def send(self, options: Options, url: str) -> None:
        """Send everything and wait until each message has its outcome."""
        targets = resolve(replace(options, broker=url))
        try:
            with CommandClient(targets, options, heartbeat=HEARTBEAT).opened() as client:
                self._run(client)
        except Failure as failure:
            counts = (
                f"{self.accepted:,} accepted, {len(self.wanted) - self.decided:,} without an "
                "outcome"
            )
            raise Failure(
                failure.code,
                f"{counts}: {failure.text}",
                reason=failure.reason,
                hint=failure.hint,
                condition=failure.condition,
            ) from failure

    def _run(self, client: Client) -> None:
        senders: dict[str, Sender] = {}
        for each in self.wanted:
            sender = senders.get(each.queue)
            if sender is None:
                sender = senders[each.queue] = self._sender(client, each.queue)
            self._sent[each.queue].append(each)
            payload = self.content.payload(each.place, each.uid, each.sequence)
            sender.send_nowait(Message.decode(_marked(payload)))
        for sender in senders.values():
            sender.flush()

    def _sender(self, client: Client, queue: str) -> Sender:
        sent: list[Salvaged] = []

        def decided(delivery: Delivery) -> None:
            each, outcome = sent[delivery.number - 1], delivery.outcome
            if outcome is None:
                return  # It never had one: the client has failed.
            if outcome.accepted:
                self.accepted += 1
            else:
                self.refused[each] = outcome.explanation or "not accepted"

        self._sent[queue] = sent
        return client.sender(f"/queues/{quote(queue, safe='')}", window=WINDOW, on_outcome=decided)


def salvage(stopped: StoppedBroker, *, discarded: str, queue: str, named: bool) -> Salvage:
    """Find the messages: all that are live in the write-ahead log, or what was discarded from it;
    of one queue, or of all.

    With `named`, every queue must have a name, for the messages go to queues of those names.
    """
    if discarded:
        if discarded not in stopped.discarded():
            offered = ", ".join(stopped.discarded()) or "there are none"
            raise Failure(
                NO_INPUT,
                f"there is no {discarded} in {stopped.journal_path}",
                hint=f"those that were discarded: {offered}",
            )
        content, names = discarded_content(stopped, discarded)
    else:
        content, names = Content(stopped.journal()), {}
    wanted = []
    for live in content.queues.values():
        name = live.name or names.get(live.uid, "")
        if queue in ("", name):
            if named and live.messages and not name:
                text = (
                    f"the name of the queue that record {live.uid} declared is no longer in the "
                    "write-ahead log"
                )
                raise Failure(
                    DATA_ERROR,
                    text,
                    hint="name a queue with --queue, or write all messages to a file with --out",
                )
            wanted += [
                Salvaged(name, live.uid, sequence, place)
                for sequence, place in sorted(live.messages.items())
            ]
    if queue and not any(
        queue in (live.name, names.get(live.uid)) for live in content.queues.values()
    ):
        raise Failure(
            NO_INPUT,
            f"there is no queue {queue} in it",
            hint="qpid-ha journal list shows the queues",
        )
    return Salvage(content, wanted)


def _marked(payload: bytes) -> bytes:
    """Give a message the annotation that it was salvaged; what is no message stays as it is."""
    try:
        return departure(payload, 0, add_annotation(payload, b"", SALVAGED, True))
    except ProtocolViolation:
        return payload


def discarded_content(stopped: StoppedBroker, name: str) -> tuple[Content, dict[int, str]]:
    """Read a discarded folder: what it has after the point up to which both logs were the same."""
    folder = Folder(stopped.journal_path / name)
    common = 0
    for found in folder.files:
        common = max(common, int(found.head.get("common", 0)))
    return Content(folder, after=common), known_names(stopped)


def known_names(stopped: StoppedBroker) -> dict[int, str]:
    """Name the queues that the write-ahead log knows of, for what was discarded of it."""
    try:
        return queue_names(stopped.journal())
    except ProtocolViolation:
        return {}


def discarded_summary(stopped: StoppedBroker, name: str) -> dict[str, object]:
    """Say how much a discarded folder holds."""
    content, _ = discarded_content(stopped, name)
    batches = [
        place
        for found in content.folder.files
        for place in found.frames
        if place.kind == BATCH and place.last > content.after
    ]
    return {
        "name": name,
        "after": content.after,
        "first": min((place.first for place in batches), default=0),
        "last": max((place.last for place in batches), default=0),
        "epoch": max((place.epoch for place in batches), default=0),
        "messages": sum(len(queue.messages) for queue in content.queues.values()),
        "bytes": sum(found.size for found in content.folder.files),
    }
