"""Recovery: records to a broker model, and a broker model to records.

`fold` is the one way a broker comes to a state that was decided elsewhere: by a primary, or before.
The other way round, `snapshot_objects` and `snapshot_messages` write what exists as records in
chunks, each made when it is asked for, so that a broker of any size is copied while it works.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qpidha.broker.broker import Broker
from qpidha.broker.queues.messages import Segment
from qpidha.broker.queues.queue import Queue
from qpidha.model.encoding import Parts
from qpidha.model.errors import ProtocolViolation, RefusedRequest
from qpidha.model.message import Message
from qpidha.model.records import HA_RECORDS, Enqueued, Record, Requeued
from qpidha.store.codec import (
    EnqueueRun,
    Entry,
    decode,
    encode_columns,
    encode_enqueues,
    encode_record,
)
from qpidha.store.write_ahead_log import Chunk, payloads_of

Held = Sequence[Message | Segment]
"""What a part of a snapshot is of: messages, or some of them that are packed."""
CHUNK = 64 << 10
"""Bytes of a snapshot chunk, roughly. Several may be made in one turn, and publishers wait for
that.
"""


QUEUES_AT_ONCE = 1000
"""Queues without messages that are passed over in one part of a snapshot."""


def fold(broker: Broker, data: bytes | Parts, *, is_snapshot: bool = False) -> None:
    """Apply encoded records to a broker model, of the log or of a snapshot. Raises
    ProtocolViolation for what cannot be read or applied, perhaps half way: the model is then to be
    filled anew.
    """
    shared: list[tuple[int, Enqueued]] = []
    try:
        for entry in decode(data):
            if shared and not _is_shared_alike(entry, shared[0][1]):
                broker.insert_shared(shared)
                shared = []
            if isinstance(entry, EnqueueRun):
                queue = broker.logged_queue(entry.queue)
                if queue is not None:
                    insert = queue.insert_copies if is_snapshot else queue.insert_run
                    insert(entry.sequences, entry.payloads, entry.expiries)
                continue
            sequence, record = entry
            if isinstance(record, Enqueued):
                shared.append((sequence, record))
            else:
                broker.apply(sequence, record)
        if shared:
            broker.insert_shared(shared)
    except (LookupError, ValueError, TypeError, AttributeError, RefusedRequest) as error:
        raise ProtocolViolation(
            f"a record cannot be applied: {error.__class__.__name__}: {error}"
        ) from error


def _is_shared_alike(entry: Entry, first: Enqueued) -> bool:
    """Whether an entry is a message on the same queues as the first one."""
    if isinstance(entry, EnqueueRun):
        return False
    record = entry[1]
    return isinstance(record, Enqueued) and record.queues == first.queues


def ha_records(data: bytes | Parts) -> list[tuple[int, Record]]:
    """Pick what concerns the cluster out of encoded records."""
    entries = [entry for entry in decode(data) if not isinstance(entry, EnqueueRun)]
    return [entry for entry in entries if isinstance(entry[1], HA_RECORDS)]


def snapshot_objects(broker: Broker) -> Iterator[bytes]:
    """Yield the objects of a broker model, in chunks."""
    # Each chunk shows what is there when it is made. Objects that are declared later come with the
    # log, and one that is deleted meanwhile is deleted there by the log as well.
    parts: list[bytes] = []
    size = 0
    for uid, record in broker.objects():
        parts.append(encode_record(uid, record))
        size += len(parts[-1])
        if size > CHUNK:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def snapshot_messages(broker: Broker, last: int) -> Iterator[bytes]:
    """Yield the messages that a broker model has of the log up to `last`, in chunks."""
    for data, _ in message_chunks(broker, last):
        yield data


def message_chunks(broker: Broker, last: int) -> Iterator[tuple[bytes, Held]]:
    """Yield the messages that a broker model has of the log up to `last`: encoded, and what they
    are; what is packed stays so. Where many queues have none there is an empty part now and then,
    so that nobody has to wait until one with messages is found.

    A message that leaves between two chunks is not in the later one. One that comes is beyond
    `last` and left out: it travels with the live records.
    """
    # A queue is walked by a cursor, which survives whatever arrives and leaves between two chunks.
    # So a snapshot shows no single moment, and need not: it may show effects of records up to where
    # the log was when it ended, and whoever gets it counts only when it has the log up to there.
    passed = 0
    for queue in list(broker.queues.values()):
        cursor = 0
        passed += 1
        if passed > QUEUES_AT_ONCE:
            passed = 1
            yield b"", []
        while broker.by_uid.get(queue.uid) is queue:
            found = broker.part_after(queue, cursor, last, CHUNK)
            if not found:
                break
            if isinstance(found, Segment):
                passed, cursor = 0, found.sequences[-1]
                columns = found.sequences, found.sizes, found.expiries or ()
                yield encode_columns(queue.uid, *columns, found.body()), [found]
                continue
            cursor = found[-1].sequence
            sequences = [message.sequence for message in found]
            data = encode_enqueues(
                queue.uid,
                sequences,
                [message.body() for message in found],
                [message.expires for message in found],
            )
            delayed = queue.delayed
            for message in found:
                sequence, count = message.sequence, message.delivery_count
                if count or message.annotations or sequence in delayed:
                    due = delayed.get(sequence, 0)
                    record = Requeued(queue.uid, sequence, count, message.annotations, due)
                    data += encode_record(0, record)
            passed = 0
            yield data, found


def page_out(broker: Broker, part: Chunk, *, whole: bool = False) -> None:
    """Let long queues forget the bodies of messages that can be read back; or all queues, if the
    `whole` part is to be forgotten.

    Of a checkpoint, they are those in the data: others may have numbers like theirs.
    """
    if whole:
        for entry in decode(part.data):
            for uid in _queues_of(entry):
                found = broker.by_uid.get(uid)
                if isinstance(found, Queue):
                    broker.over_budget[found] = None
    if not part.first:
        _page_out_runs(broker, part)
        return
    for queue in broker.over_budget:
        queue.page_out(part.first, part.last, part.body)
    if any(queue.own_numbers for queue in broker.over_budget):
        _page_out_runs(broker, part)  # Their messages have other numbers than the records.
    for queue in list(broker.over_budget):
        if queue.resident <= queue.memory:
            del broker.over_budget[queue]


def _page_out_runs(broker: Broker, part: Chunk) -> None:
    """Do so with messages by the numbers that stand in the data. Two queues may have messages of
    the same number there, and a message may have come in place of one: what is let go is what is
    read back.
    """
    payloads: dict[int, bytes] = {}
    for entry in decode(part.data):
        if isinstance(entry, EnqueueRun):
            found = broker.by_uid.get(entry.queue)
            if isinstance(found, Queue) and found in broker.over_budget:
                payloads = payloads or payloads_of(part.data)
                found.page_out_run(entry.sequences, payloads, part.body)


def _queues_of(entry: Entry) -> tuple[int, ...]:
    """Return the queues that encoded messages are on."""
    if isinstance(entry, EnqueueRun):
        return (entry.queue,)
    record = entry[1]
    return record.queues if isinstance(record, Enqueued) else ()
