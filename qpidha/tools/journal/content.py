"""What is in a write-ahead log: its queues, the messages on them, and its records one by one.

A fold that is lighter than the broker's own, because it has to know only where each message is: a
message is a number and the place of its frame, its bytes are read again when they are wanted.
Source: model/records.py, store/recovery.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from qpidha.client.command.exits import Failure
from qpidha.model.errors import ProtocolViolation
from qpidha.model.exit_codes import DATA_ERROR
from qpidha.model.message_view import header, properties
from qpidha.model.records import (
    Dequeued,
    Enqueued,
    LevelChanged,
    LinkDeclared,
    QueueDeclared,
    QueueDeleted,
    Requeued,
)
from qpidha.store.codec import EnqueueRun, Entry, decode
from qpidha.store.frames import CHUNK, KIND_NAMES
from qpidha.tools.journal.files import Folder, Place

SECRET = "(secret)"
"""Stands for the password of a link, which nothing shows."""
SUMMARY = ("message_id", "subject", "to", "correlation_id", "reply_to", "content_type", "group_id")
"""Properties of a message that a summary shows."""


@dataclass(slots=True)
class LiveQueue:
    """A queue, and where its messages are."""

    uid: int
    declared: QueueDeclared | None = None
    messages: dict[int, Place] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What it is called, as far as that is known."""
        return self.declared.name if self.declared is not None else ""


class Content:
    """The queues of a folder after all that counts in it; of a discarded one, only with messages
    after the common point.
    """

    def __init__(self, folder: Folder, *, after: int = 0) -> None:
        self.folder = folder
        self.after = after
        self.queues: dict[int, LiveQueue] = {}
        self.epoch = self.last = self.committed = 0
        self.unread: list[str] = []
        """Frames whose records could not be read."""
        self._payloads: tuple[Place | None, dict[tuple[int, int], bytes]] = (None, {})
        for place in folder.content():
            if place.kind != CHUNK:
                self.epoch, self.last, self.committed = (
                    place.epoch,
                    place.last,
                    max(self.committed, place.committed),
                )
            for entry in self.entries(place):
                self._apply(place, entry)
        for found in folder.files:
            if found.is_whole:
                self.last, self.committed = (
                    max(self.last, found.start),
                    max(self.committed, found.start),
                )
                self.epoch = max([self.epoch, *(place.epoch for place in found.places[:1])])
        self.committed = min(self.committed, self.last)

    def entries(self, place: Place) -> list[Entry]:
        """Decode the records of a frame; what cannot be decoded is noted."""
        try:
            return list(decode(self.folder.frame(place).data))
        except ProtocolViolation as error:
            self.unread.append(f"{place.name}, byte {place.offset}: {error.text}")
            return []

    def payload(self, place: Place, queue: int, sequence: int) -> bytes:
        """Read one message of a queue; the ones beside it are likely to be next. Queues may have
        the same numbers, for some are of their own (`LevelChanged`).
        """
        if self._payloads[0] != place:
            self._payloads = (place, _payloads_of(self.folder.frame(place).data))
        return self._payloads[1][queue, sequence]

    def size(self, queue: LiveQueue) -> int:
        """Count the bytes of the messages of a queue."""
        return sum(
            len(self.payload(place, queue.uid, sequence))
            for sequence, place in queue.messages.items()
        )

    def _apply(self, place: Place, entry: Entry) -> None:
        if isinstance(entry, EnqueueRun):
            messages = self._queue(entry.queue).messages
            for sequence in entry.sequences:
                if sequence > self.after:
                    messages[sequence] = place
            return
        sequence, record = entry
        match record:
            case Enqueued():
                for uid in record.queues:
                    if sequence > self.after:
                        self._queue(uid).messages[sequence] = place
            case Dequeued():
                queue = self.queues.get(record.queue)
                for gone in record.sequences if queue is not None else ():
                    assert queue is not None
                    queue.messages.pop(gone, None)
            case QueueDeclared():
                self._queue(sequence).declared = record
            case LevelChanged():
                found = self._queue(record.queue)
                if not record.logged:
                    found.messages.clear()
                if found.declared is not None:
                    found.declared = replace(found.declared, replicate=record.level)
            case QueueDeleted():
                self.queues.pop(record.queue, None)

    def _queue(self, uid: int) -> LiveQueue:
        queue = self.queues.get(uid)
        if queue is None:
            queue = self.queues[uid] = LiveQueue(uid)
        return queue


def _payloads_of(data: bytes) -> dict[tuple[int, int], bytes]:
    """Return the messages in encoded records, by their queues and sequences."""
    found: dict[tuple[int, int], bytes] = {}
    for entry in decode(data):
        if isinstance(entry, EnqueueRun):
            pairs = zip(entry.sequences, entry.payloads, strict=True)
            found.update({(entry.queue, sequence): payload for sequence, payload in pairs})
        elif isinstance(entry[1], Enqueued):
            found.update({(uid, entry[0]): entry[1].payload for uid in entry[1].queues})
    return found


def queue_names(folder: Folder) -> dict[int, str]:
    """Name every queue that the records of a folder declare, also those that are gone, by uid."""
    names: dict[int, str] = {}
    for found in folder.files:
        for place in found.frames:
            if KIND_NAMES[place.kind] in ("batch", "chunk"):
                try:
                    entries = list(decode(folder.frame(place).data))
                except ProtocolViolation:
                    continue
                declared = [
                    entry
                    for entry in entries
                    if isinstance(entry, tuple) and isinstance(entry[1], QueueDeclared)
                ]
                names.update(
                    (uid, record.name)
                    for uid, record in declared
                    if isinstance(record, QueueDeclared)
                )
    return names


def records(folder: Folder, names: dict[int, str]) -> Iterator[tuple[dict[str, Any], bytes | None]]:
    """Yield every record of every sound frame, file by file, as plain data; with a message, its
    bytes.
    """
    for found in folder.files:
        for place in found.frames:
            kind = KIND_NAMES[place.kind]
            where: dict[str, Any] = {
                "file": place.name,
                "offset": place.offset,
                "epoch": place.epoch,
            }
            if kind == "cut":
                yield {**where, "record": "Cut", "after": place.last}, None
            elif kind in ("batch", "chunk"):
                try:
                    for entry in decode(folder.frame(place).data):
                        yield from _described(where, entry, names)
                except ProtocolViolation as error:
                    text = f"{folder.path / place.name}, frame at byte {place.offset}: {error.text}"
                    raise Failure(
                        DATA_ERROR, text, hint="use the version of qpidha that wrote it"
                    ) from error


def _described(
    where: dict[str, Any], entry: Entry, names: dict[int, str]
) -> Iterator[tuple[dict[str, Any], bytes | None]]:
    if isinstance(entry, EnqueueRun):
        for index, (sequence, payload) in enumerate(
            zip(entry.sequences, entry.payloads, strict=True)
        ):
            expires = entry.expiries[index] if entry.expiries else 0
            yield _message(where, sequence, (entry.queue,), payload, expires, names), payload
        return
    sequence, record = entry
    if isinstance(record, Enqueued):
        yield (
            _message(where, sequence, record.queues, record.payload, record.expires, names),
            record.payload,
        )
        return
    fields = {"sequence": sequence} if sequence and not isinstance(record, Requeued) else {}
    described = {**where, **fields, "record": type(record).__name__, **asdict(record)}
    if isinstance(record, LinkDeclared) and record.password:
        described["password"] = SECRET
    uid = described.get("queue")
    if isinstance(uid, int):
        described |= {"queue": names.get(uid), "queue_uid": uid}
    if isinstance(record, Requeued):
        described["annotations"] = len(record.annotations)
    yield described, None


def _message(
    where: dict[str, Any],
    sequence: int,
    uids: tuple[int, ...],
    payload: bytes,
    expires: int,
    names: dict[int, str],
) -> dict[str, Any]:
    queues = [names.get(uid) for uid in uids]
    fields = {
        **where,
        "sequence": sequence,
        "record": "Enqueued",
        "queues": queues,
        "queue_uids": list(uids),
        "expires": expires,
    }
    return {**fields, **summary(payload)}


def summary(payload: bytes) -> dict[str, Any]:
    """Say how large a message is, whether it is durable, and what its properties are."""
    try:
        durable, found = bool(header(payload).get("durable", False)), properties(payload)
    except ProtocolViolation as error:
        return {"bytes": len(payload), "unreadable": error.text}
    shown = {name: found[name] for name in SUMMARY if found.get(name) is not None}
    return {
        "bytes": len(payload),
        "durable": durable,
        "properties": {name: plain_value(value) for name, value in shown.items()},
    }


def plain_value(value: Any) -> Any:
    """Reduce a property to what JSON has."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if isinstance(value, str | int | bool) or value is None else str(value)
