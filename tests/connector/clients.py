"""What a task of Spark does, without Spark: batches read and written by the reader and writer
objects themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow
from pyspark.sql.datasource import InputPartition

from qpidha.connector.columns import SCHEMA
from qpidha.connector.options import parse_options
from qpidha.connector.reading import QueueReader
from qpidha.connector.stream import QueueStreamReader, offset
from qpidha.connector.writing import write
from tests.system.cluster import Broker, Cluster


def options_of(brokers: Sequence[Broker], queue: str, **more: object) -> dict[str, str]:
    """Return the options of a reader or a writer; it gives up sooner than a user's would."""
    return {
        "url": ",".join(broker.address for broker in brokers),
        "queue": queue,
        "timeout": "100",
    } | {k: str(v) for k, v in more.items()}


def reader(cluster: Cluster, queue: str, **more: object) -> QueueReader:
    return QueueReader(parse_options(options_of(cluster, queue, **more)).for_reading(), SCHEMA)


def batches(cluster: Cluster, queue: str, **more: object) -> Iterator[list[dict[str, Any]]]:
    """Yield what a task reads, batch by batch."""
    for batch in reader(cluster, queue, **more).read(InputPartition(queue)):
        yield batch.to_pylist()


def read(cluster: Cluster, queue: str, **more: object) -> list[str]:
    """Return the bodies that a task reads."""
    return [row["body"].decode() for rows in batches(cluster, queue, **more) for row in rows]


def put(
    cluster: Cluster, queue: str, bodies: Sequence[str], *, run: str = "run", **more: object
) -> int:
    """Write rows with these bodies as one task; return how many were accepted."""
    batch = pyarrow.RecordBatch.from_pydict({"body": list(bodies)})
    return write(
        parse_options(options_of(cluster, queue, **more)).for_writing(), iter([batch]), run
    ).accepted


def messages(broker: Broker, queue: str) -> int:
    """Return how many messages a queue has."""
    return int(next(one["messages"] for one in broker.call("list_queues") if one["name"] == queue))


class Query:
    """A streaming query's side of a reader: triggers, one after the other."""

    def __init__(self, cluster: Cluster, queue: str, **more: object) -> None:
        self.reader = QueueStreamReader(
            parse_options(options_of(cluster, queue, **more)).for_stream(), SCHEMA
        )
        self.at = offset(0)

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.reader.stop()

    def plan(self) -> dict[str, int]:
        """Do what Spark does before a batch: ask for its end."""
        return self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())

    def rows(self, end: dict[str, int]) -> list[dict[str, Any]]:
        """Return what all tasks of a batch read."""
        slices = self.reader.partitions(self.at, end)
        return [
            row for each in slices for batch in self.reader.read(each) for row in batch.to_pylist()
        ]

    def trigger(self) -> list[str]:
        """Run one batch and commit it; return its bodies."""
        end = self.plan()
        rows = self.rows(end) if end != self.at else []
        self.at = end
        return [row["body"].decode() for row in rows]
