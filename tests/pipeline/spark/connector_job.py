"""A Spark job that is to be killed: queue `in` to files, queue `in2` to queue `out`, text files to
queue `made`.

`python -m tests.pipeline.spark.connector_job URL FOLDER`. Each batch of the first query is one file
`sink/<batch>.json`, overwritten when the batch is run again. While `hold` exists a batch stops
before it is written, and `inside` says so.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from qpidha.pipeline.spark.session import session
from tests.pipeline.spark.settings import SMALL_JOBS

TRIGGER = "500 milliseconds"


def main(url: str, folder: Path) -> None:
    """Run until killed, or until a query fails."""
    spark = session(
        "local[2]",
        {
            **SMALL_JOBS,
            "spark.local.dir": str(folder),
            # Which batches were committed is read from the checkpoint: none may be forgotten.
            "spark.sql.streaming.minBatchesToRetain": "100000",
        },
    )

    def stream(queue: str) -> Any:
        return (
            spark.readStream.format("qpidha")
            .options(url=url, queue=queue, rowsPerBatch=300, timeout=100)
            .load()
        )

    def write(batch: Any, number: int) -> None:
        rows = [
            (bytes(row.body).decode(), row.delivery_count)
            for row in batch.select("body", "delivery_count").collect()
        ]
        while (folder / "hold").exists():
            (folder / "inside").touch()
            time.sleep(0.01)
        fresh = folder / "fresh.json"
        with fresh.open("w") as out:
            json.dump(rows, out)
            out.flush()
            os.fsync(out.fileno())
        fresh.rename(folder / "sink" / f"{number}.json")

    def start(writer: Any, name: str) -> None:
        writer.option("checkpointLocation", str(folder / "checkpoint" / name)).trigger(
            processingTime=TRIGGER
        ).start()

    def to(rows: Any, queue: str) -> Any:
        return rows.writeStream.format("qpidha").options(url=url, queue=queue, timeout=100)

    start(stream("in").writeStream.foreachBatch(write), "sink")
    start(to(stream("in2").select("message_id", "body", "body_type"), "out"), "out")
    files = (
        spark.readStream.schema("body string")
        .option("maxFilesPerTrigger", 1)
        .text(str(folder / "source"))
    )
    start(to(files.selectExpr("body", "'text' as body_type"), "made"), "made")
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
