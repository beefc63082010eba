"""Batch reads: a queue looked at, or taken, by the tasks of one job.

A browse ends when it has caught up with the queue. After a failover it begins anew and passes over
what it has handed out, told by its bytes. A consumer settles what it took only when its task has
handed out the last row; a task that fails before leaves all of it with the broker. It fails, too,
when it loses the link on which it was given rows: the broker gives them to whoever asks next, who
may be another task of the same job. So a row of a task that succeeds is a message that is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from qpidha.connector.columns import digest, read_schema, record_batch
from qpidha.connector.inbox import BYTES, Inbox, Received
from qpidha.connector.options import Options
from qpidha.connector.queue_client import ConnectorFailure

WAIT = 0.5
"""Seconds to wait for messages at a time."""
SETTLED = 5000
"""Messages that are settled together."""


class QueueReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not followed
    """Reads the queues of the options; `partitions` receivers compete for each queue that is
    consumed.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = read_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each receiver."""
        each = 1 if self.options.mode == "browse" else self.options.partitions
        return [InputPartition(queue) for queue in self.options.queues for _ in range(each)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of a queue as Arrow batches.

        Raises ConnectorFailure when no broker serves it, and when a consumer cannot know that what
        it has handed out is gone.
        """
        queue = str(partition.value)
        browse = self.options.mode == "browse"
        with Inbox(self.options, queue, browse=browse, until_empty=True) as inbox:
            taken = _Browsed(inbox) if browse else _Consumed(inbox)
            while payloads := taken.more(self.options.rows_per_batch):
                yield record_batch(self.schema, queue, payloads)
            taken.finish()


class _Browsed:
    """What a task has looked at, so that nothing of it is handed out again after a failover."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self._generation = inbox.generation
        self._handed: Counter[bytes] = Counter()
        """Digests of everything that was handed out."""
        self._passed: Counter[bytes] = Counter()
        """Those of what comes again on the present link; one of equal messages may be taken for the
        other.
        """

    def more(self, rows: int) -> list[bytes]:
        """Return messages that are new; none when the queue was found empty."""
        while True:
            taken = self.inbox.take(rows, BYTES, WAIT)
            generation = taken[0].generation if taken else self.inbox.generation
            if generation != self._generation:
                self._generation = generation
                self.link_lost()
            fresh = [payload for item in taken if (payload := self.noted(item)) is not None]
            if fresh or (not taken and self.inbox.is_finished):
                return fresh

    def link_lost(self) -> None:
        """Expect everything again."""
        self._passed = self._handed.copy()

    def noted(self, item: Received) -> bytes | None:
        """Take note of a message, and return its bytes unless they were handed out already."""
        key = digest(item.payload)
        if self._passed[key] > 0:
            self._passed[key] -= 1
            return None
        self._handed[key] += 1
        return item.payload

    def finish(self) -> None:
        """Nothing: looking changes nothing."""


class _Consumed(_Browsed):
    """What a task has taken, all of it on one link."""

    def __init__(self, inbox: Inbox) -> None:
        super().__init__(inbox)
        self._items: list[Received] = []
        """To be settled; without their payload."""

    def link_lost(self) -> None:
        """Begin anew if nothing was handed out; raises ConnectorFailure if something was."""
        if self._items:
            self._fail()

    def noted(self, item: Received) -> bytes | None:
        payload, item.payload = item.payload, b""
        self._items.append(item)
        return payload

    def finish(self) -> None:
        """Accept everything; raises ConnectorFailure unless the broker confirms all of it."""
        for start in range(0, len(self._items), SETTLED):
            if self.inbox.settle(self._items[start : start + SETTLED]):
                self._fail()

    def _fail(self) -> None:
        raise ConnectorFailure(
            f"the connection was lost before {len(self._items)} messages of queue "
            f"{self.inbox.queue} were settled, which this task has "
            "handed out: what the broker still has of them it delivers again, so let "
            "Spark run the task again (spark.task.maxFailures), "
            "or the job"
        )
