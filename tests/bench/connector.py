"""The benchmark of the data source: rows a second from and to one broker, `python -m tests.bench.connector [--rows 100000] [--size 100]`.

One broker without a disk and one Spark on this machine, which share its cores. Each way is warmed up with a few rows first.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qpidha.pipeline.session import session
from tests.connector.clients import options_of
from tests.system.cluster import Cluster

WARM = 2000


class Bench:
    """A session and a broker."""

    def __init__(self, spark: Any, cluster: Cluster, folder: Path, size: int) -> None:
        self.spark = spark
        self.cluster = cluster
        self.folder = folder
        self.size = size
        self.streams = 0

    def write(self, rows: int) -> int:
        frame = self.spark.range(rows, numPartitions=2).selectExpr(f"repeat('x', {self.size}) as body", "cast(id as string) as subject")
        frame.write.format("qpidha").options(**options_of(self.cluster, "q")).mode("append").save()
        return rows

    def read(self, rows: int, **more: object) -> int:
        """Browse, or consume; `rows` is what is there."""
        frame = self.spark.read.format("qpidha").options(**options_of(self.cluster, "q", **more)).load()
        return int(frame.selectExpr("count(body) as n").collect()[0].n)

    def stream(self, rows: int) -> int:
        """Read all there is as a stream, to nowhere; a batch has 20,000 rows at most."""
        self.streams += 1
        frame = self.spark.readStream.format("qpidha").options(**options_of(self.cluster, "q", rowsPerBatch=20_000, partitions=2)).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(self.folder / f"c{self.streams}"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)


def rate(what: Callable[[int], int], rows: int) -> int:
    """Return rows a second; raises AssertionError if not all rows came."""
    began = time.monotonic()
    found = what(rows)
    assert found == rows, f"{found} of {rows} rows"
    return round(rows / (time.monotonic() - began))


def measure(rows: int, size: int, folder: Path) -> dict[str, int]:
    """Warm up, then measure each way."""
    cluster = Cluster(folder, 1, options={"ha_cluster": "no", "default_queue_limit": 0, "log_enable": "notice+"})
    try:
        cluster.start(promote=False)
        cluster[0].declare_queue("q")
        bench = Bench(session("local[2]", {"spark.driver.memory": "1g"}), cluster, folder, size)
        found = {}
        for count in (WARM, rows):
            found["batch_write"] = rate(bench.write, count)
            found["browse"] = rate(bench.read, count)
            found["stream_read"] = rate(bench.stream, count)
            bench.write(count)
            found["consume_2"] = rate(lambda count: bench.read(count, mode="consume", partitions=2), count)
        return found
    finally:
        cluster.close()


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.connector", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body")
    ask = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        print(json.dumps({"rows": ask.rows, "size": ask.size, "rows_per_second": measure(ask.rows, ask.size, Path(name))}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
