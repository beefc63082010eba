"""The benchmark of the data source: rows a second from and to one broker, `python -m
tests.bench.connector [--rows 100000] [--size 100] [--tasks]`.

One broker without a disk and one Spark on this machine, which share its cores. Each way is warmed
up with a few rows first. With `--tasks` there is no Spark: what its tasks do is done in this
process, whose CPU for each row is told too, which other work on the machine hardly changes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from qpidha.connector.columns import SCHEMA
from qpidha.connector.options import Options, parse_options
from qpidha.connector.reading import QueueReader
from qpidha.connector.stream import QueueStreamReader, offset
from qpidha.connector.writing import write
from qpidha.pipeline.spark.session import session
from tests.connector.clients import options_of
from tests.system.cluster import Cluster

WARM = 2000
CHUNK = 10_000
"""Rows that Spark hands to a task at once."""


class Tasks:
    """What tasks do with one queue of a broker; rows that are read have one column, the body."""

    def __init__(self, cluster: Cluster, size: int) -> None:
        self.cluster = cluster
        self.body = "x" * size
        self.schema = StructType([SCHEMA["body"]])

    def options(self, **more: object) -> Options:
        return parse_options(options_of(self.cluster, "q", timeout=60, **more))

    def write(self, rows: int) -> int:
        batches = (
            pyarrow.RecordBatch.from_pydict({"body": [self.body] * min(CHUNK, rows - start)})
            for start in range(0, rows, CHUNK)
        )
        return write(self.options().for_writing(), batches, "run").accepted

    def read(self, **more: object) -> int:
        reader = QueueReader(self.options(**more).for_reading(), self.schema)
        return sum(batch.num_rows for batch in reader.read(InputPartition("q")))

    def stream(self) -> int:
        reader = QueueStreamReader(self.options(rowsPerBatch=20_000).for_stream(), self.schema)
        reader.prepareForTriggerAvailableNow()
        at, found = offset(0), 0
        while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
            for part in reader.partitions(at, end):
                found += sum(batch.num_rows for batch in reader.read(part))
            at = end
        reader.stop()
        return found


class Bench:
    """A session and a broker."""

    def __init__(self, spark: Any, cluster: Cluster, folder: Path, size: int) -> None:
        self.spark = spark
        self.cluster = cluster
        self.folder = folder
        self.size = size
        self.streams = 0

    def write(self, rows: int) -> int:
        frame = self.spark.range(rows, numPartitions=2).selectExpr(
            f"repeat('x', {self.size}) as body", "cast(id as string) as subject"
        )
        frame.write.format("qpidha").options(**options_of(self.cluster, "q")).mode("append").save()
        return rows

    def read(self, rows: int, **more: object) -> int:
        """Browse, or consume; `rows` is what is there."""
        frame = (
            self.spark.read.format("qpidha").options(**options_of(self.cluster, "q", **more)).load()
        )
        return int(frame.selectExpr("count(body) as n").collect()[0].n)

    def stream(self, rows: int) -> int:
        """Read all there is as a stream, to nowhere; a batch has 20,000 rows at most."""
        self.streams += 1
        frame = (
            self.spark.readStream.format("qpidha")
            .options(**options_of(self.cluster, "q", rowsPerBatch=20_000, partitions=2))
            .load()
        )
        writer = frame.writeStream.format("noop").option(
            "checkpointLocation", str(self.folder / f"c{self.streams}")
        )
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)


def rate(what: Callable[[int], int], rows: int) -> int:
    """Return rows a second; raises AssertionError if not all rows came."""
    began = time.monotonic()
    found = what(rows)
    assert found == rows, f"{found} of {rows} rows"
    return round(rows / (time.monotonic() - began))


@contextmanager
def a_broker(folder: Path) -> Iterator[Cluster]:
    """Start one with the queue q."""
    cluster = Cluster(
        folder, 1, options={"ha_cluster": "no", "default_queue_limit": 0, "log_enable": "notice+"}
    )
    try:
        cluster.start(promote=False)
        cluster[0].declare_queue("q")
        yield cluster
    finally:
        cluster.close()


def measure_tasks(rows: int, size: int, folder: Path) -> dict[str, dict[str, float]]:
    """Measure each way without Spark."""
    with a_broker(folder) as cluster:
        tasks = Tasks(cluster, size)
        ways: list[tuple[str, Callable[[int], int]]] = [
            ("write", tasks.write),
            ("browse", lambda _: tasks.read()),
            ("consume", lambda _: tasks.read(mode="consume")),
            ("write again", tasks.write),
            ("stream", lambda _: tasks.stream()),
        ]
        found: dict[str, dict[str, float]] = {}
        for name, way in ways:
            began = time.process_time()
            per_second = rate(way, rows)
            cpu = (time.process_time() - began) / rows
            found[name] = {"rows_per_second": per_second, "cpu_us_per_row": round(cpu * 1e6, 1)}
        return found


def measure(rows: int, size: int, folder: Path) -> dict[str, int]:
    """Warm up, then measure each way."""
    with a_broker(folder) as cluster:
        bench = Bench(session("local[2]", {"spark.driver.memory": "1g"}), cluster, folder, size)
        found = {}
        for count in (WARM, rows):
            found["batch_write"] = rate(bench.write, count)
            found["browse"] = rate(bench.read, count)
            found["stream_read"] = rate(bench.stream, count)
            bench.write(count)
            found["consume_2"] = rate(
                lambda count: bench.read(count, mode="consume", partitions=2), count
            )
        return found


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.connector", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body")
    parser.add_argument("--tasks", action="store_true", help="without Spark, and with CPU")
    ask = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        found: dict[str, Any] = {"rows": ask.rows, "size": ask.size}
        if ask.tasks:
            found["tasks"] = measure_tasks(ask.rows, ask.size, Path(name))
        else:
            found["rows_per_second"] = measure(ask.rows, ask.size, Path(name))
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
