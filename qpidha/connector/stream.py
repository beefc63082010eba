"""Streaming reads: messages are settled when the batch that holds them is committed, and not
before.

One reader lives on the driver as long as the query. Spark asks it for `latestOffset(start)` once a
trigger, and has then committed every batch up to `start`: there they are settled. (`commit` comes
one batch late, and never after the last.) Offsets are counters of one query; what a batch holds is
known to this process only, so a batch that is replayed by another one is empty, and the broker
delivers its messages again into a later batch.
"""

from __future__ import annotations

import signal
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from qpidha.connector.columns import identity, read_schema, record_batch
from qpidha.connector.inbox import BYTES, Inbox, Received
from qpidha.connector.options import Options
from qpidha.model.errors import InvalidArgument

VERSION = 1
"""Of offsets."""
WAIT = 0.5
"""Seconds for which a trigger waits for a first message; until the queue is empty it waits again.
"""
REMEMBERED = 100_000
"""Messages that are recognised when they come again after a failover; beyond them the oldest are
forgotten, and come twice.
"""


class Slice(InputPartition):  # type: ignore[misc]  # pyspark is not followed
    """Encoded messages of one task; they become rows there, not on the driver."""

    def __init__(self, payloads: list[bytes]) -> None:
        self.payloads = payloads


# pyspark has no types that mypy follows.
class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads one queue. Connects when it is asked for messages, not before: Spark makes more of
    these than it uses.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = read_schema(schema)
        self._until_empty = False
        self._feed: Feed | None = None

    def initialOffset(self) -> dict[str, int]:
        """Return where a new query begins."""
        return offset(0)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how many rows a batch has at most."""
        return ReadMaxRows(self.options.rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read until the queue was found empty once, and no further."""
        self._until_empty = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Settle everything up to `start` and take the next messages. Raises ConnectorFailure when
        no broker serves the queue.
        """
        if self._feed is None:
            self._feed = Feed(
                Inbox(self.options, self.options.queues[0], until_empty=self._until_empty)
            )
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, _leave)
        rows = min(
            self.options.rows_per_batch, getattr(limit, "max_rows", self.options.rows_per_batch)
        )
        return offset(self._feed.advance(position(start), rows))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Share the messages of a batch out; there are none if another process has taken them."""
        begin, finish = position(start), position(end)
        payloads = self._feed.payloads(begin, finish) if self._feed is not None else []
        each = -(-len(payloads) // self.options.partitions) or 1
        return [Slice(payloads[at : at + each]) for at in range(0, len(payloads), each)] or [
            Slice([])
        ]

    def read(self, partition: Slice) -> Iterator[Any]:
        """Yield the rows of one task; runs on a worker."""
        if partition.payloads:
            yield record_batch(self.schema, self.options.queues[0], partition.payloads)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: `latestOffset` hears of the same sooner."""

    def stop(self) -> None:
        """Give back what was not handed out. What was is settled if its batch is known to be
        committed, else it comes again.
        """
        if self._feed is not None:
            self._feed.inbox.close()
            self._feed = None


def _leave(*ignored: object) -> None:
    """End this process by the way of `stop`: Spark ends it with a signal, and calls that only when
    it ends by itself.
    """
    raise SystemExit(0)


def offset(count: int) -> dict[str, int]:
    """Return an offset: how many messages the query has handed out."""
    return {"v": VERSION, "n": count}


def position(found: Mapping[str, Any]) -> int:
    """Return the count of an offset; raises InvalidArgument if it is not one of ours."""
    count = found.get("n")
    if found.get("v") != VERSION or not isinstance(count, int):
        raise InvalidArgument(
            f"the checkpoint has the offset {dict(found)}, not version {VERSION} of this "
            "source: use another checkpoint"
        )
    return count


class Feed:
    """The messages that batches are made of, from their delivery to their settlement."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self._batches: dict[int, list[Received]] = {}
        """End of a batch -> what it holds."""
        self._expected: OrderedDict[bytes, int] = OrderedDict()
        """Digest -> how many of these messages are in committed batches, and come again because
        their link was lost.
        """
        self._late: list[Received] = []
        """Those that came again, to be settled."""
        self.recognised = 0
        """How many those were."""

    def advance(self, start: int, rows: int) -> int:
        """Settle all batches up to `start`, make the next one of what has come, and return its end:
        `start` if nothing has.

        Spark takes `start` for the end of a query that reads until the queue is empty, which
        therefore waits until it was found empty: on a link that outlived the settling of what came
        late. Raises ConnectorFailure when there is no primary in time.
        """
        self._settle(start)
        if self._batches:
            return max(self._batches)  # Spark asks again for a batch that it has not run.
        while True:
            taken = self.inbox.take(rows, BYTES, WAIT)
            batch = [item for item in taken if not self._is_late(item)]
            if batch:
                self._batches[start + len(batch)] = batch
                return start + len(batch)
            if not taken:
                self._settle(start)
                if self.inbox.is_finished or not self.inbox.until_empty:
                    return start

    def payloads(self, start: int, end: int) -> list[bytes]:
        """Return the messages of a batch."""
        batch = self._batches.get(end, [])
        return [item.payload for item in batch] if end - start == len(batch) else []

    def _settle(self, start: int) -> None:
        """Settle what is committed. A message of a lost link may come again: if it has an id it is
        known, and settled then.
        """
        committed = [
            item
            for end in [end for end in self._batches if end <= start]
            for item in self._batches.pop(end)
        ]
        late, self._late = self._late, []
        if not committed and not late:
            return
        for item in self.inbox.settle([*committed, *late]):
            if key := identity(item.payload):
                self._expected[key] = self._expected.get(key, 0) + 1
        while len(self._expected) > REMEMBERED:
            self._expected.popitem(last=False)

    def _is_late(self, item: Received) -> bool:
        if not self._expected:
            return False
        key = identity(item.payload)
        count = self._expected.get(key, 0)
        if not count:
            return False
        if count == 1:
            del self._expected[key]
        else:
            self._expected[key] = count - 1
        self._late.append(item)
        self.recognised += 1
        return True
