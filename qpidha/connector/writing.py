"""Writes: a row is done when the broker has accepted its message; a task is done when all its rows
are.

A message without an id of its own gets one that tells its row: of a stream
`query/batch/partition/row`, the same when Spark does the task or the batch again, so that a queue
with `qpidha.dedup=message-id` takes it once. Of a batch `run/partition/row`, the same for all tries
of a task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from qpidha.connector.columns import check_written, message_of, rows
from qpidha.connector.options import Options
from qpidha.connector.outbox import Outbox
from qpidha.model.errors import InvalidArgument

BATCH, QUERY = "streaming.sql.batchId", "sql.streaming.queryId"
"""What Spark tells a task of the stream that it works for."""


class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not followed
    """How many messages a task had accepted."""

    def __init__(self, accepted: int) -> None:
        self.accepted = accepted


class QueueWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not followed
    """Writes the rows of a batch query."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_written(schema, has_queue=bool(options.queues))
        self.options = options
        self.run = uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of a task. Raises ConnectorFailure if one is not accepted, InvalidArgument
        if one is no message.
        """
        return write(self.options, iterator, self.run)


# pyspark has no types that mypy follows.
class QueueStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes the rows of a streaming query."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_written(schema, has_queue=bool(options.queues))
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of a task of a batch. Raises as `QueueWriter.write`."""
        context = TaskContext.get()
        return write(
            self.options,
            iterator,
            f"{context.getLocalProperty(QUERY)}/{context.getLocalProperty(BATCH)}",
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what was accepted is there."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what was accepted stays, and comes again when Spark does the batch again."""


def write(options: Options, iterator: Iterator[Any], run: str) -> Written:
    """Send rows and wait until all are accepted."""
    default = "".join(options.queues)
    context = TaskContext.get()
    prefix = f"{run}/{context.partitionId() if context is not None else 0}"
    number = 0
    with Outbox(options) as outbox:
        for batch in iterator:
            for row in rows(batch):
                name = f"{prefix}/{number}"
                number += 1
                queue = row.get("queue", default)
                try:
                    if not queue:
                        raise InvalidArgument("column queue is null, and there is no option queue")
                    payload = message_of(row, name)
                except InvalidArgument as error:
                    raise InvalidArgument(f"row {row.get('message_id', name)}: {error}") from None
                outbox.send(queue, payload, row.get("message_id", name))
        outbox.finish()
        return Written(outbox.accepted)
