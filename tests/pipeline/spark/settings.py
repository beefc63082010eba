"""Settings of Spark for tests: jobs here are so small that most of their time would go into
compiling and planning them. What users have is in test_plans.py and on the standalone master.
"""

from __future__ import annotations

import sys
from pathlib import Path

CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""What classes.py writes."""
PLAIN_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half the time for small jobs, twice for large ones."""
# Without logs: should the file not fit, Java would say so among the output.
JAVA = PLAIN_JAVA + (f" -Xlog:disable -XX:SharedArchiveFile={CLASSES}" if CLASSES.exists() else "")
SMALL_JOBS = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Each stage would be a job of its own, planned again.
    "spark.sql.adaptive.enabled": "false",
}
