"""Migration: the messages of a queue of any AMQP 1.0 broker, moved to a queue of a cluster.

A batch goes into one transaction at the target, with a note on what was moved, into a queue that
holds the last notes. So the target alone says how far it came, whatever was killed when; only then
the source hears that it may forget the batch. What it had not heard, or forgot when it was killed
itself, comes again, and is known by the notes: a message with a message-id is not moved twice. One
without an id that looks like a message of the notes is moved again, and counted: two may be alike.
Messages go on as they are, but for delivery annotations, which are for us alone. Order is kept.
Source: AMQP 1.0 sections 3.2, 4.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from urllib.parse import quote

from qpidha.client.aio import Client, Receiver, Sender, Transaction
from qpidha.client.errors import (
    ClientError,
    DeliveryLost,
    LinkError,
    MessageTooLarge,
    TimedOut,
    TransactionFailed,
    TransactionLost,
)
from qpidha.client.links import Delivery, Received
from qpidha.client.message import Message, Outcome
from qpidha.model.encoding import sections
from qpidha.model.errors import ProtocolViolation
from qpidha.model.message_view import APPLICATION_PROPERTIES, DELIVERY_ANNOTATIONS, PROPERTIES
from qpidha.model.message_view import header as read_header
from qpidha.model.message_view import properties as read_properties

NOTES = "migration.notes."
"""Beginning of the names of the queues with notes."""
NOTE_ARGUMENTS = {"qpid.max_size": 4 << 20, "qpid.policy_type": "ring", "qpid.replicate": "all"}
REMEMBERED = 100_000
"""Messages that are known again. RabbitMQ 3 forgets what it heard of the last 32,768 and more when
it is killed.
"""
MOST_AHEAD = 2000
"""Messages that the source may have sent and not heard of again."""
BYTES_AHEAD = 16 << 20
"""The same in bytes; several queues are moved at a time."""
FIRST_AHEAD = 5
"""Before it is known how large they are."""
NOTES_AHEAD = 100
BATCH, BATCH_BYTES = 500, 8 << 20
MOST_REFUSED = 1000
"""Messages that the target refuses, after which the rest is not tried."""
IDLE = 0.5
"""Seconds without a message after which the source is asked whether there are more."""
LONG_IDLE = 2.0
"""The same, where the source cannot be asked."""
DIGEST = 16
FULL = "amqp:resource-limit-exceeded"
LOCKED = "amqp:resource-locked"
"""Condition of a link to a queue that has an exclusive receiver."""
LOCK_TRIES = 10


class CannotMove(Exception):
    """The migration of a queue cannot go on; what was moved stays moved."""

    def __init__(self, text: str, *, hint: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint


@dataclass(slots=True)
class Note:
    """What the target keeps of a migration with each batch: how many messages it has of it."""

    moved: int = 0
    known: int = 0
    perhaps_twice: int = 0
    marks: list[bytes] = field(default_factory=list)
    """Fingerprints of the messages of the batch."""

    def message(self) -> Message:
        """Write it."""
        return Message(
            b"".join(self.marks),
            durable=True,
            application_properties={
                "moved": self.moved,
                "known": self.known,
                "perhaps_twice": self.perhaps_twice,
            },
        )

    @classmethod
    def read(cls, message: Message) -> Note:
        """Read it. Raises ValueError for what is none."""
        said, body = message.application_properties, message.body
        if not isinstance(body, bytes) or len(body) % DIGEST:
            raise ValueError("it holds no fingerprints")
        marks = [body[at : at + DIGEST] for at in range(0, len(body), DIGEST)]
        return cls(int(said["moved"]), int(said["known"]), int(said["perhaps_twice"]), marks)


@dataclass(slots=True)
class Count:
    """What became of a queue."""

    moved: int = 0
    """Messages that the target took, those of earlier runs that did not end included."""
    moved_now: int = 0
    known: int = 0
    """Messages that came again from the source, though the target had them: they were not moved
    again.
    """
    perhaps_twice: int = 0
    """Messages without an id that were moved again, as they looked like one that was moved."""
    refused: dict[bytes, str] = field(default_factory=dict)
    """Why messages stay at the source, by their fingerprints."""
    is_done: bool = False
    """Whether the source has none left but those."""


def note_queue(source: str, queue: str, target: str) -> str:
    """Name the queue with the notes of a migration."""
    text = "\0".join((source, queue, target)).encode()
    return NOTES + blake2b(text, digest_size=8).hexdigest()


def fingerprint(payload: bytes) -> bytes:
    """Know a message again when it comes again: by its properties, the id among them, and its body.
    Headers, annotations and what brokers put beside the application's properties may change. Raises
    ProtocolViolation for what is no message.
    """
    digest = blake2b(digest_size=DIGEST)
    for code, start, _, end in sections(payload):
        if code >= PROPERTIES and code != APPLICATION_PROPERTIES:
            digest.update(payload[start:end])
    return digest.digest()


def forwarded(payload: bytes) -> bytes:
    """Return a message as it goes on: without delivery annotations."""
    for code, start, _, end in sections(payload):
        if code == DELIVERY_ANNOTATIONS:
            return payload[:start] + payload[end:]
        if code > DELIVERY_ANNOTATIONS:
            break
    return payload


def _told(refusal: ClientError | Outcome) -> str:
    """Say why a message is refused, and what to do."""
    return f"{refusal.explanation}{'. Try: ' if refusal.hint else ''}{refusal.hint}"


@dataclass(slots=True)
class _Item:
    """A message on its way."""

    received: Received
    payload: bytes
    mark: bytes


class Mover:
    """Moves the messages of one queue."""

    def __init__(
        self,
        source: Client,
        target: Client,
        *,
        address: str,
        queue: str,
        notes: str,
        drains: bool = True,
        told: Callable[[Count], None] = lambda count: None,
    ) -> None:
        """`address` is that of the queue at the source, `queue` the one at the target, `notes` the
        queue with the notes there; `told` hears of each batch. A source that does not say when it
        has no more (`drains`) is taken to have none when it is silent.
        """
        self.count = Count()
        self._source, self._target = source, target
        self._address, self._queue, self._notes = address, queue, notes
        self._drains = drains
        self._told = told
        self._note = Note()
        self._recent = deque[bytes](maxlen=REMEMBERED)
        """Fingerprints of the last messages that were moved."""
        self._again: Counter[bytes] = Counter()
        """What may come again though it was moved."""
        self._connects = 0
        self._largest = 0
        self._outstanding = 0
        """Messages that the source may have sent, or send, without having heard of them."""
        self._held: list[Received] = []
        """Refused messages, which go back when the link ends."""
        self._sender: Sender | None = None
        self._writer: Sender | None = None

    async def run(self) -> None:
        """Move all that is there. Raises CannotMove or ClientError."""
        self._note, self._recent = await self._read_notes()
        self._share()
        self._again = Counter(self._recent)
        lock = await self._lock()
        try:
            # A new link shows whether the source has heard of the last ones.
            while await self._pass():
                pass
            self.count.is_done = True
        finally:
            await lock.close()

    async def _lock(self) -> Receiver:
        """Have no other migration of the queue beside this one: a queue that ends with us has one
        receiver only. Raises CannotMove.
        """
        error: LinkError | None = None
        for _ in range(LOCK_TRIES):
            try:
                return await self._target.receiver(
                    f"{self._notes}.lock",
                    credit=0,
                    capabilities=("create-on-demand",),
                    node_properties={"auto-delete": True},
                    properties={"qpidha:exclusive": True},
                )
            except LinkError as found:
                if found.condition != LOCKED:
                    raise
                error = found
                await asyncio.sleep(IDLE)  # The connection of one that was killed may be there.
        raise CannotMove(
            f"another migration of {self._queue} is at work", hint="wait for its end, or end it"
        ) from error

    async def _read_notes(self) -> tuple[Note, deque[bytes]]:
        """Return what the target has of this migration: the last note, and the fingerprints of the
        last messages that were moved.
        """
        last, recent = Note(), deque[bytes](maxlen=REMEMBERED)
        receiver = await self._target.receiver(
            f"/queues/{quote(self._notes, safe='')}", browse=True, credit=NOTES_AHEAD
        )
        try:
            async for message in receiver.until_empty():
                last = Note.read(message)
                recent.extend(last.marks)
        except (KeyError, ValueError) as error:
            raise CannotMove(
                f"queue {self._notes} holds something else than notes of a migration",
                hint=f"qpid-ha queue del {self._notes} --force, and messages may be there twice",
            ) from error
        finally:
            await receiver.close()
        return last, recent

    def _share(self) -> None:
        self.count.moved = self._note.moved
        self.count.known = self._note.known
        self.count.perhaps_twice = self._note.perhaps_twice

    async def _pass(self) -> int:
        """Move what one link gives until there is no more; return how many messages that were."""
        receiver = await self._source.receiver(self._address, credit=0)
        self._connects = self._source.connects
        self._outstanding, self._held = 0, []
        seen = 0
        try:
            while True:
                self._ask(receiver)
                batch = await self._collect(receiver)
                if not batch:
                    break
                seen += await self._take(batch)
        finally:
            if receiver.error is None:
                await receiver.close()
        return seen

    def _ask(self, receiver: Receiver) -> None:
        """Let the source send as much as memory allows."""
        ahead = FIRST_AHEAD
        if self._largest:
            ahead = min(MOST_AHEAD, max(1, BYTES_AHEAD // self._largest))
        ahead += len(self._held)
        if self._outstanding < ahead:
            receiver.add_credit(ahead - self._outstanding)
            self._outstanding = ahead

    async def _collect(self, receiver: Receiver) -> list[Received]:
        """Return the next messages; none if the source has no more."""
        while True:
            try:
                batch = [await receiver.receive(IDLE if self._drains else LONG_IDLE)]
                break
            except TimedOut:
                if await self._has_no_more(receiver):
                    return []
        size = len(batch[0].encode())
        while len(batch) < BATCH and size < BATCH_BYTES:
            more = receiver.receive_nowait()
            if more is None:
                break
            batch.append(more)
            size += len(more.encode())
        self._look_for_loss(receiver, len(batch))
        return batch

    async def _has_no_more(self, receiver: Receiver) -> bool:
        """Whether the source has no more now, as it says or as it is silent though it may send."""
        if not self._drains:
            return receiver.credit > 0 and not receiver.buffered
        # It gives back the credit that it does not use, so that this is asked for again.
        found = await receiver.drain()
        self._look_for_loss(receiver, 0)
        self._outstanding = found + len(self._held)
        self._ask(receiver)
        return not found

    def _look_for_loss(self, receiver: Receiver, taken: int) -> None:
        """After a loss of the source's connection it sends again what it has not heard of."""
        if self._source.connects != self._connects:
            self._connects = self._source.connects
            self._again = Counter(self._recent)
            self._held = []
            self._outstanding = receiver.credit + receiver.buffered + taken

    async def _take(self, batch: list[Received]) -> int:
        """Move a batch; return how many of its messages were not among the refused."""
        items, fresh = [], 0
        for received in batch:
            if received.is_confirmed:
                raise CannotMove(
                    f"the source sends messages of {self._address} settled: what is on its way "
                    "would be lost if anything broke",
                    hint="a source that lets receivers settle",
                )
            payload = received.unload()
            self._largest = max(self._largest, len(payload))
            try:
                mark = fingerprint(payload)
            except ProtocolViolation as error:
                mark = blake2b(payload, digest_size=DIGEST).digest()
                self.count.refused.setdefault(mark, f"it is no message of AMQP: {error}")
            if mark in self.count.refused:
                self._held.append(received)
                continue
            fresh += 1
            if self._is_known(mark, payload):
                self._note.known += 1
                self._settle(received)
            else:
                items.append(_Item(received, payload, mark))
        await self._commit(items)
        self._share()
        self._told(self.count)
        return fresh

    def _is_known(self, mark: bytes, payload: bytes) -> bool:
        """Whether a message was moved already; one without an id may be another that is alike."""
        if not self._again[mark] or read_header(payload).get("first_acquirer") is True:
            return False
        self._again[mark] -= 1
        if read_properties(payload).get("message_id") is not None:
            return True
        self._note.perhaps_twice += 1
        return False

    def _settle(self, received: Received) -> None:
        try:
            received.accept()
        except DeliveryLost:
            return  # It comes again, and is known.
        self._outstanding -= 1

    # The target.

    async def _commit(self, items: list[_Item]) -> None:
        """Have the target take messages, all at once, and then the source forget them; what the
        target refuses is left out.
        """
        if not items:
            return
        try:
            refused = await self._try(items)
        except (LinkError, TransactionFailed) as error:
            # It ends a link for one message, or has no room for all, and does not say for which.
            if len(items) > 1:
                half = len(items) // 2
                await self._commit(items[:half])
                await self._commit(items[half:])
            elif isinstance(error, LinkError):
                self._refuse(items[0], _told(error))
            else:
                raise CannotMove(
                    f"the target takes no more messages of {self._queue}: {error.explanation}",
                    hint=f"{error.hint or 'look at the queue there'}; then run it again",
                ) from error
            return
        if refused:
            await self._commit([item for item in items if item.mark not in refused])
            return
        for item in items:
            self._settle(item.received)

    def _refuse(self, item: _Item, why: str) -> None:
        if len(self.count.refused) >= MOST_REFUSED:
            raise CannotMove(
                f"the target refuses more than {MOST_REFUSED:,} messages of {self._queue}: {why}",
                hint="look at the queue's limits there, and run it again",
            )
        self.count.refused[item.mark] = why
        self._held.append(item.received)

    async def _try(self, items: list[_Item]) -> set[bytes]:
        """Try one transaction; return which messages the target refuses, for which there was none.
        Raises LinkError if it ends a link, TransactionFailed if it rolls back, CannotMove.
        """
        moved, marks = self._note.moved + len(items), [item.mark for item in items]
        note = Note(moved, self._note.known, self._note.perhaps_twice, marks)
        while True:
            transaction = None
            try:
                transaction = await self._target.transaction()
                refused = await self._post(items, note, transaction)
                if refused:
                    await transaction.roll_back()
                    return refused
                await transaction.commit()
            except TransactionLost as lost:
                if not lost.in_doubt or (await self._read_notes())[0].moved != moved:
                    continue
            except (LinkError, TransactionFailed):
                if transaction is not None:
                    with suppress(ClientError):
                        await transaction.roll_back()
                raise
            except TimedOut as error:
                raise CannotMove(
                    f"the target takes no more messages of {self._queue}: {error.explanation}",
                    hint="is the queue full, or is there no primary? Then run it again",
                ) from error
            self._note = note
            self._recent.extend(marks)
            self.count.moved_now += len(items)
            return set()

    async def _post(self, items: list[_Item], note: Note, transaction: Transaction) -> set[bytes]:
        """Send a batch and its note; return the marks of those that the target refuses."""
        if self._sender is None or self._sender.error is not None:
            self._sender = await self._target.sender(
                f"/queues/{quote(self._queue, safe='')}",
                window=2 * BATCH,
                on_outcome=lambda _: None,  # `_refusals` looks at each; closing raises none again.
            )
        if self._writer is None or self._writer.error is not None:
            self._writer = await self._target.sender(f"/queues/{quote(self._notes, safe='')}")
        refused, deliveries = set(), []
        for item in items:
            message = Message.decode(forwarded(item.payload))
            try:
                delivery = await self._sender.send_nowait(message, transaction=transaction)
            except MessageTooLarge as error:
                self._refuse(item, _told(error))
                refused.add(item.mark)
                continue
            deliveries.append((item, delivery))
        refused |= await self._refusals(deliveries)
        if not refused:
            await self._writer.send_nowait(note.message(), transaction=transaction)
        return refused

    async def _refusals(self, deliveries: Iterable[tuple[_Item, Delivery]]) -> set[bytes]:
        """Wait for the outcomes of a batch; note what the target refused, and why."""
        refused = set()
        for item, delivery in deliveries:
            assert self._sender is not None
            outcome = await self._sender.wait(delivery)
            if outcome.accepted:
                continue
            if outcome.condition == FULL:
                raise TransactionFailed(
                    f"queue {self._queue} is full",
                    reason=outcome.explanation,
                    hint="have it consumed, or raise its limit",
                )
            self._refuse(item, _told(outcome))
            refused.add(item.mark)
        return refused
