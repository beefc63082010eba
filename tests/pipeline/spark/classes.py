"""Keep the classes of Spark as Java has them in memory after a check: with that file a Java process
of the tests starts and gets warm in half the time.

`python -m tests.pipeline.spark.classes` writes it; .ci/setup does so once. Java takes it as long as
it fits, and does without it otherwise.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from qpidha.pipeline.spark.ingest import follow
from qpidha.pipeline.spark.session import session
from tests.pipeline.spark.judged import judge
from tests.pipeline.spark.settings import CLASSES, PLAIN_JAVA, SMALL_JOBS


def main() -> None:
    """Do what the tests do, and write the file."""
    fresh = CLASSES.with_suffix(".new")
    java = f"{PLAIN_JAVA} -XX:ArchiveClassesAtExit={fresh}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark: Any = session(
            "local[2]",
            {
                **SMALL_JOBS,
                "spark.driver.extraJavaOptions": java,
                "spark.local.dir": name,
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
            },
        )
        judged = judge(spark, folder)
        follow(judged.lake, [folder / "history"]).awaitTermination()
        process = spark.sparkContext._gateway.proc
        spark.stop()
        process.stdin.close()  # It ends then, and writes the file.
        process.wait()
    os.replace(fresh, CLASSES)


if __name__ == "__main__":
    main()
