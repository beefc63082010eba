"""Batch reads: a queue looked at, or taken, by the tasks of one job.

A browse ends when it has caught up with the queue. After a failover it begins anew and passes over what it has handed out, told by its
bytes. A consumer passes over what has an id. It settles what it took only when its task has handed out the last row; a task that
fails before leaves all of it with the broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from qpidha.connector.columns import digest, identity, read_schema, record_batch
from qpidha.connector.inbox import BYTES, Inbox, Received
from qpidha.connector.options import Options

WAIT = 0.5
"""Seconds to wait for messages at a time."""
SETTLED = 5000
"""Messages that are settled together."""


class QueueReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not followed
    """Reads the queues of the options; `partitions` receivers compete for each queue that is consumed."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = read_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each receiver."""
        each = 1 if self.options.mode == "browse" else self.options.partitions
        return [InputPartition(queue) for queue in self.options.queues for _ in range(each)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of a queue as Arrow batches. Raises ConnectorFailure when no broker serves it."""
        queue = str(partition.value)
        browse = self.options.mode == "browse"
        with Inbox(self.options, queue, browse=browse, until_empty=True, hold=self.options.rows_per_batch) as inbox:
            taken = _Taken(inbox)
            while payloads := taken.more(self.options.rows_per_batch):
                yield record_batch(self.schema, queue, payloads)
            if not browse:
                taken.settle()


class _Taken:
    """What a task has handed out, so that nothing of it is handed out again after a failover."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._generation = inbox.generation
        self._items: list[Received] = []
        """To be settled; instead of their payload they have their identity."""
        self._handed: Counter[bytes] = Counter()
        """Digests of everything that was browsed."""
        self._passed: Counter[bytes] = Counter()
        """Those of what was handed out and comes again on the present link; a browse may take one of equal messages for the other."""

    def more(self, rows: int) -> list[bytes]:
        """Return messages that are new; none when the queue was found empty."""
        while True:
            taken = self._inbox.take(rows, BYTES, WAIT)
            if not taken:
                if self._inbox.was_empty:
                    return []
                continue
            if taken[0].generation != self._generation:
                self._generation = taken[0].generation
                self._passed = self._handed.copy() if self._inbox.browse else self._passed + self._taken()
                self._items = []
            fresh = [payload for item in taken if (payload := self._noted(item))]
            if fresh:
                return fresh

    def _taken(self) -> Counter[bytes]:
        """Return the identities of what was taken on the link that is lost, where there is one."""
        return Counter(item.payload for item in self._items if item.payload)

    def _noted(self, item: Received) -> bytes:
        """Take note of a message, and return its bytes unless they were handed out already."""
        payload = item.payload
        key = digest(payload) if self._inbox.browse else identity(payload)
        if not self._inbox.browse:
            item.payload = key
            self._items.append(item)
        if self._passed[key] > 0:
            self._passed[key] -= 1
            return b""
        if self._inbox.browse:
            self._handed[key] += 1
        return payload

    def settle(self) -> None:
        """Accept everything; what the broker does not confirm because of a failover may come again, to whoever reads next."""
        for start in range(0, len(self._items), SETTLED):
            self._inbox.settle(self._items[start : start + SETTLED])
