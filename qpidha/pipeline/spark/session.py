"""The Spark session: found or made, with the settings that the pipeline needs; and what is wrong if
there is none.

A session that exists, or that spark-submit configured, is taken as it is. For a local master the
workers get this interpreter and this package; to another master the package goes as a zip, so that
both ends have the same code. Knows no tables and no checks. See docs/pipeline-spark.md, "Where it
runs".
"""

from __future__ import annotations

import atexit
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from qpidha.pipeline.segments import BadInput

PACKAGE = Path(__file__).parents[2]
PARTITIONS_PER_CORE = 4
"""Partitions of a shuffle for each core of a local master; Spark's own 200 cost twice the time on
two cores.
"""
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # Each group of events is a folder of its own: without this, Spark would sort all events by
    # group first.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # A batch is one folder that is overwritten as a whole, also when it is written again after a
    # crash.
    "spark.sql.sources.partitionOverwriteMode": "static",
    # To say in an error which line of Python made a column, PySpark asks Java nine things for each:
    # half of the time that plans take.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def is_submitted() -> bool:
    """Whether spark-submit started this process: it has chosen master and memory."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def cores_of(master: str) -> int:
    """Return the cores of a local master, 0 of others."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if match is None:
        return 0
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1] or 1)


def session(master: str = "", settings: Mapping[str, str] | None = None) -> Any:
    """Return the Spark session: the active one, spark-submit's, or a new one on `master` (default:
    this machine's cores).
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder = SparkSession.builder.appName("qpid-ha pipeline")
    if not is_submitted():
        master = master or "local[*]"
        builder = builder.master(master)
        cores = cores_of(master)
        if master.startswith("local"):
            _local_workers()
        if cores:
            builder = builder.config(
                "spark.sql.shuffle.partitions", str(PARTITIONS_PER_CORE * cores)
            )
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    if not found.sparkContext.master.startswith("local[") and not is_submitted():
        folder = tempfile.mkdtemp(prefix="qpidha-zip-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        found.sparkContext.addPyFile(str(package_zip(Path(folder) / "qpidha.zip")))
    return found


def _local_workers() -> None:
    """Give the workers of a local master this interpreter and this package: they would take
    `python3` of the PATH.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(PACKAGE.parent) not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), *filter(None, known)])


def package_zip(path: Path) -> Path:
    """Write the modules of this package, the page of reports and the data source as a zip for
    `--py-files`; always the same bytes.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for file in sorted(
            [
                *PACKAGE.rglob("*.py"),
                *PACKAGE.rglob("*.html"),
                *PACKAGE.parent.glob("pyspark_qpidha/*.py"),
            ]
        ):
            out.writestr(zipfile.ZipInfo(str(file.relative_to(PACKAGE.parent))), file.read_bytes())
    return path


def spark_submit() -> str:
    """Return the spark-submit of the installed package."""
    return str(Path(pyspark.__file__).parent / "bin" / "spark-submit")


def installed(package: str) -> str:
    """Return the version of a package, or that there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def java() -> str:
    """Return the version line of the Java that Spark will take, or why there is none."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"missing: {error}"
    return (
        done.stderr.splitlines()[0]
        if done.returncode == 0 and done.stderr
        else f"missing: {program} does not run"
    )


def versions() -> dict[str, str]:
    """Return the versions of everything that the numbers depend on."""
    return {
        "spark": pyspark.__version__,
        "pyarrow": installed("pyarrow"),
        "python": platform.python_version(),
    }


def _worker(_: int) -> tuple[str, str, str]:
    """Run in a worker: its interpreter, its pyarrow, and where it has this package from."""
    found = find_spec("qpidha.pipeline.spark.ingest")
    return (
        sys.executable,
        f"{platform.python_version()}, pyarrow {installed('pyarrow')}",
        (found.origin or "") if found else "missing",
    )


def doctor(master: str = "") -> dict[str, str]:
    """Return what a session is made of, after running a small job in every part of it.

    Raises BadInput, which names their interpreter, if the workers do not run, and whatever Spark
    does.
    """
    report = {"java": java(), **versions()}
    spark = session(master)
    context = spark.sparkContext
    report |= {"master": context.master, "cores": str(context.defaultParallelism)}
    context.setLogLevel("OFF")  # It would log all of what `_cause` makes a line of.
    try:
        (program, what, origin), *_ = context.parallelize([0], 1).map(_worker).collect()
    except Exception as error:
        raise BadInput(
            f"no worker runs with {context.pythonExec} (PYSPARK_PYTHON): {_cause(error)}"
        ) from error
    finally:
        context.setLogLevel("ERROR")
    report |= {"worker": f"{program}: {what}", "package": origin}
    report["job"] = f"sum of 0..999 is {spark.range(1000).groupBy().sum('id').first()[0]}"
    report["data source qpidha"] = "there" if find_spec("pyspark_qpidha") else "not installed"
    return report


def _cause(error: Exception) -> str:
    """Return what happened, out of the traces of Java and Python that Spark tells it with."""
    lines = [
        line
        for line in str(error).splitlines()
        if line.strip() and not line.startswith((" ", "\t", "An error occurred"))
    ]
    told = next((line for line in lines if not line.endswith(":")), type(error).__name__)
    return told.rpartition("Exception: ")[2]
