"""Offenders: bring what is wrong to the driver, in order and within a limit, or all of it to files,
one row in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qpidha.pipeline.spark.facts import CASE
from qpidha.pipeline.verdict import Finding, Row, write_offenders

MOST = 1000
"""Offenders of each kind in a finding, unless all are asked for."""


class Offenders:
    """Where offenders go: `most` of each kind into findings (0: all), and with a directory every
    one into a file.
    """

    def __init__(self, most: int = MOST, directory: Path | None = None) -> None:
        self.most = most
        self.directory = directory

    def put(
        self,
        found: Mapping[int, Finding],
        what: str,
        rows: DataFrame,
        order: Sequence[str],
        shape: Callable[[dict[str, Any]], Row],
    ) -> None:
        """Put rows as offenders of kind `what` into the finding of their case."""
        ordered = rows.orderBy(CASE, *(F.col(name).asc() for name in order))
        first = [
            (row[CASE], shape(row.asDict()))
            for row in (ordered.limit(self.most) if self.most else ordered).collect()
        ]
        for case, row in first:
            found[case].offenders.setdefault(what, []).append(row)
        if self.directory is not None:
            is_all = not self.most or len(first) < self.most
            check = next(iter(found.values())).name
            rows = (
                (row for _, row in first)
                if is_all
                else (shape(row.asDict()) for row in ordered.toLocalIterator())
            )
            file = write_offenders(self.directory, check, what, rows)
            for finding in found.values():
                finding.files[what] = file

    def put_counted(
        self,
        found: Mapping[int, Finding],
        what: str,
        rows: DataFrame,
        number: Column,
        order: Sequence[str],
        shape: Callable[[dict[str, Any]], Row],
    ) -> None:
        """Count rows of each case by `number`, an aggregate, and put them as offenders; they are
        computed once.
        """
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            for row in rows.groupBy(CASE).agg(number.alias("number")).collect():
                found[row[CASE]].counts[what] = int(row["number"])
            if any(finding.counts[what] for finding in found.values()):
                self.put(found, what, rows, order, shape)
        finally:
            rows.unpersist()

    def put_rest(self, finding: Finding) -> None:
        """Write what the driver found itself and holds all of."""
        if self.directory is not None:
            for what in finding.offenders.keys() - finding.files.keys():
                finding.files[what] = write_offenders(
                    self.directory, finding.name, what, finding.offenders[what]
                )
