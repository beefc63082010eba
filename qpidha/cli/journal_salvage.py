"""Salvage: messages of a stopped broker's journal, sent again to a broker that runs, or written to a file.

A message is sent as it was stored, to the queue that it was on; those without an outcome are sent again after a failover.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from qpidha.cli.arguments import Options
from qpidha.cli.client import Client, Outbox
from qpidha.cli.exits import BAD_DATA, NO_INPUT, Failure
from qpidha.cli.failover import Route
from qpidha.cli.journal_content import Content, queue_names, summary
from qpidha.cli.journal_files import Folder, Place, StoppedBroker
from qpidha.cli.target import parse
from qpidha.store.frames import BATCH
from qpidha.words.errors import ProtocolViolation

WINDOW = 200
"""Messages sent whose outcome is not known."""
HEARTBEAT = 2_000_000_000


class Salvaged(NamedTuple):
    """One message: on which queue it was, and where it is."""

    queue: str
    sequence: int
    place: Place


class Salvage:
    """The messages that are to be saved."""

    def __init__(self, content: Content, wanted: list[Salvaged]) -> None:
        self.content = content
        self.wanted = wanted
        self.accepted = 0
        self.refused: dict[Salvaged, str] = {}
        self._left = deque(wanted)
        self._under_way: dict[tuple[str, int], Salvaged] = {}

    @property
    def decided(self) -> int:
        """How many messages have an outcome."""
        return self.accepted + len(self.refused)

    def lines(self) -> Iterator[str]:
        """Write each message as a line of JSON."""
        for each in self.wanted:
            payload = self.content.payload(each.place, each.sequence)
            fields = {"queue": each.queue, "sequence": each.sequence, **summary(payload), "payload": b64encode(payload).decode()}
            yield json.dumps(fields) + "\n"

    def send(self, options: Options, url: str) -> None:
        """Send everything and wait until each message has its outcome."""
        target = parse(url)
        target.user, target.password = target.user or options.user, target.password or options.password
        target.mechanism = options.sasl_mechanism
        try:
            Route(target, options, heartbeat=HEARTBEAT).work(self._run, lambda: self.decided)
        except Failure as failure:
            counts = f"{self.accepted:,} accepted, {len(self.wanted) - self.decided:,} without an outcome"
            raise Failure(failure.code, f"{counts}: {failure.text}", hint=failure.hint, condition=failure.condition) from failure

    def _run(self, client: Client) -> None:
        self._left.extendleft(sorted(self._under_way.values(), key=lambda each: each.sequence, reverse=True))
        self._under_way.clear()
        outboxes: dict[str, Outbox] = {}
        while self._left:
            each = self._left[0]
            outbox = outboxes.get(each.queue)
            if outbox is None:
                outbox = outboxes[each.queue] = self._outbox(client, each.queue)
            number = outbox.send(self.content.payload(each.place, each.sequence))
            self._under_way[each.queue, number] = self._left.popleft()
            client.wait(lambda: len(self._under_way) < WINDOW or any(box.gone for box in outboxes.values()), "an outcome")
            for queue, box in outboxes.items():
                client.check(box, queue)
        client.wait(lambda: not self._under_way or any(box.gone for box in outboxes.values()), "the last outcome")
        for queue, box in outboxes.items():
            client.check(box, queue)

    def _outbox(self, client: Client, queue: str) -> Outbox:
        outbox = client.sender(f"/queues/{quote(queue, safe='')}")

        def decided(number: int) -> None:
            each = self._under_way.pop((queue, number))
            outcome = outbox.outcomes.get(number)
            if outcome is None:
                self.accepted += 1
            else:
                self.refused[each] = outcome.error.description if outcome.error is not None else "not accepted"

        outbox.on_outcome = decided
        return outbox


def salvage(stopped: StoppedBroker, *, discarded: str, queue: str, named: bool) -> Salvage:
    """Find the messages: all that are live in the journal, or what was discarded from it; of one queue, or of all.

    With `named`, every queue must have a name, for the messages go to queues of those names.
    """
    if discarded:
        if discarded not in stopped.discarded():
            offered = ", ".join(stopped.discarded()) or "there are none"
            raise Failure(NO_INPUT, f"there is no {discarded} in {stopped.journal_path}", hint=f"those that were discarded: {offered}")
        content, names = discarded_content(stopped, discarded)
    else:
        content, names = Content(stopped.journal()), {}
    wanted = []
    for live in content.queues.values():
        name = live.name or names.get(live.uid, "")
        if queue in ("", name):
            if named and live.messages and not name:
                text = f"the name of the queue that record {live.uid} declared is not in the journal any more"
                raise Failure(BAD_DATA, text, hint="name a queue with --queue, or write all messages to a file with --out")
            wanted += [Salvaged(name, sequence, place) for sequence, place in sorted(live.messages.items())]
    if queue and not any(queue in (live.name, names.get(live.uid)) for live in content.queues.values()):
        raise Failure(NO_INPUT, f"there is no queue {queue} in it", hint="qpid-ha journal list shows the queues")
    return Salvage(content, wanted)


def discarded_content(stopped: StoppedBroker, name: str) -> tuple[Content, dict[int, str]]:
    """Read a discarded folder: what it has after the point up to which both logs were the same."""
    folder = Folder(stopped.journal_path / name)
    common = 0
    for found in folder.files:
        common = max(common, int(found.head.get("common", 0)))
    return Content(folder, after=common), known_names(stopped)


def known_names(stopped: StoppedBroker) -> dict[int, str]:
    """Name the queues that the journal knows of, for what was discarded of it."""
    try:
        return queue_names(stopped.journal())
    except ProtocolViolation:
        return {}


def discarded_summary(stopped: StoppedBroker, name: str) -> dict[str, object]:
    """Say how much a discarded folder holds."""
    content, _ = discarded_content(stopped, name)
    batches = [place for found in content.folder.files for place in found.frames if place.kind == BATCH and place.last > content.after]
    return {
        "name": name,
        "after": content.after,
        "first": min((place.first for place in batches), default=0),
        "last": max((place.last for place in batches), default=0),
        "epoch": max((place.epoch for place in batches), default=0),
        "messages": sum(len(queue.messages) for queue in content.queues.values()),
        "bytes": sum(found.size for found in content.folder.files),
    }
