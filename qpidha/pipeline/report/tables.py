"""What a report reads: the verdict of a check and the small tables that it left in a lake, with
pyarrow and without Spark.

Seconds become buckets, so that a run of any length has at most `MOST_POINTS` of them: counts are
added, of latencies the greatest is kept. Rows are read in batches; what stays in memory grows with
buckets and with the queues and peers that are shown. Raises BadInput where a file or table is
missing, of another version, or of another check. Tables: docs/pipeline-spark.md.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import compute, dataset, fs

from qpidha.model.duration import SECOND
from qpidha.pipeline.columns import LAKE_SCHEMA, TABLES, run_folder
from qpidha.pipeline.events import OPERATIONS, OUTCOMES
from qpidha.pipeline.segments import BadInput
from qpidha.pipeline.verdict import SCHEMA

MOST_POINTS = 600
"""Buckets of a run."""
MOST_CURVES = 5
"""Queues or peers of a chart: those with the most events."""
MOST_QUEUES = 50
"""Queues of which the backlog is followed."""
MOST_ROWS = 200_000
"""Rows of a table that is read whole."""
MOST_AROUND = 30_000
"""Events around examples."""
BINS = 80
"""Buckets of a closer look."""
WIDTHS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
"""Seconds of a bucket."""
FINE = (
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1000,
    2000,
    5000,
    10_000,
    30_000,
    60_000,
    300_000,
    3_600_000,
)
"""Milliseconds of a bucket of a closer look."""
TRAFFIC = ("enqueue_ok", "enqueue_fail", "enqueue_info", "dequeue_ok", "ack_ok")
LATENCIES = ("p50_us", "p95_us", "p99_us", "max_us")
AGAIN = "qpid-ha pipeline check --out {check} PATH..."

Record = dict[str, Any]
Curve = dict[int, int]
"""Bucket -> value."""


@dataclass(slots=True)
class Axis:
    """The seconds of a run, in buckets."""

    start_ns: int
    end_ns: int

    @property
    def first(self) -> int:
        """The second in which the run begins."""
        return self.start_ns // SECOND

    @property
    def seconds(self) -> int:
        """Seconds that the run touches."""
        return self.end_ns // SECOND - self.first + 1

    @property
    def width(self) -> int:
        """Seconds of a bucket."""
        return next(
            (width for width in WIDTHS if width * MOST_POINTS >= self.seconds),
            -(-self.seconds // MOST_POINTS),
        )

    @property
    def buckets(self) -> int:
        """How many there are."""
        return -(-self.seconds // self.width)

    def at(self, bucket: int) -> float:
        """Return when a bucket begins, in seconds since the start of the run."""
        return ((self.first + bucket * self.width) * SECOND - self.start_ns) / SECOND

    def since(self, at_ns: int) -> float:
        """Return a time in seconds since the start of the run."""
        return (at_ns - self.start_ns) / SECOND


@dataclass(slots=True)
class Closer:
    """A closer look at a part of a run: enqueues that ended, in buckets of `width_ns` from
    `begin_ns` on.
    """

    begin_ns: int
    end_ns: int
    accepted: Curve = field(default_factory=dict)
    others: Curve = field(default_factory=dict)

    @property
    def width_ns(self) -> int:
        """Length of a bucket."""
        return (
            next(
                (each for each in FINE if each * 1_000_000 * BINS >= self.end_ns - self.begin_ns),
                FINE[-1],
            )
            * 1_000_000
        )


@dataclass(slots=True)
class RunTables:
    """The tables of one run."""

    axis: Axis | None
    """None: nothing happened."""
    offset_ns: int | None
    epsilon_ns: int | None
    """None: not known."""
    roles: list[Record]
    faults: list[Record]
    failovers: list[Record]
    windows: list[Record]
    around: dict[tuple[str, str, int], list[Record]] | None
    """Check, kind of offence, number of the example -> rows; None: an older check did not write
    them.
    """
    traffic: dict[str, Curve] = field(default_factory=dict)
    """Column of traffic_1s -> its sums."""
    backlog: dict[str, Curve] = field(default_factory=dict)
    """Queue -> what was accepted and not acknowledged at the end of a bucket."""
    latency: dict[tuple[str, str, str], Curve] = field(default_factory=dict)
    """(what, name, percentile) -> greatest of its seconds; name `` stands for all of enqueue and
    delivery.
    """
    lagging: dict[str, list[str]] = field(default_factory=dict)
    """replication, acceptance -> the names that are shown."""
    cut: dict[str, int] = field(default_factory=dict)
    """Table -> rows that it has, where not all were read."""


def read_verdict(check: Path) -> Record:
    """Return verdict.json of a folder."""
    path = check / "verdict.json"
    try:
        verdict = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise BadInput(f"{path} is missing: {AGAIN.format(check=check)} writes it") from error
    except (ValueError, OSError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    version = verdict.get("schema") if isinstance(verdict, dict) else None
    if version != SCHEMA:
        raise BadInput(
            f"{path}: its schema is {version}, and this is for {SCHEMA}: "
            f"{AGAIN.format(check=check)} writes it anew"
        )
    if absent := [
        name
        for name in ("run", "valid", "checks", "inputs", "versions", "settings")
        if name not in verdict
    ]:
        raise BadInput(
            f"{path} has no {', '.join(absent)}: {AGAIN.format(check=check)} writes it anew"
        )
    return dict(verdict)


def finding(verdict: Record, name: str) -> Record | None:
    """Return the entry of a check in verdict.json, if it was asked for."""
    return next((check for check in verdict["checks"] if check["name"] == name), None)


class Lake:
    """The tables of one run in a lake."""

    def __init__(self, lake: str, verdict: Record) -> None:
        self.root = lake.rstrip("/")
        self.run: str = verdict["run"]
        self._again = (
            f"qpid-ha pipeline check --engine spark --lake {self.root} --run "
            f"{shlex.quote(self.run)} writes it"
        )
        try:
            system, path = (
                fs.FileSystem.from_uri(self.root)
                if "://" in self.root
                else (fs.LocalFileSystem(), self.root)
            )
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            folder = run_folder(self.run)
            raise BadInput(
                f"{self.root}: pyarrow cannot open it ({error}); copy {folder} of it and "
                "name the copy's root"
            ) from error
        self._system, self._path = system, path
        self._check_version()

    def _check_version(self) -> None:
        try:
            with self._system.open_input_stream(f"{self._path}/lake.json") as stream:
                version = json.loads(stream.read()).get("schema")
        except (FileNotFoundError, NotADirectoryError):
            return
        except (ValueError, OSError, AttributeError) as error:
            raise BadInput(f"{self.root}/lake.json cannot be read: {error}") from error
        if version != LAKE_SCHEMA:
            raise BadInput(
                f"{self.root}: its tables have version {version}, and this is for {LAKE_SCHEMA}"
            )

    def has(self, name: str) -> bool:
        """Return whether there is such a table."""
        return bool(
            self._system.get_file_info(f"{self._path}/{run_folder(self.run)}/{name}").type
            == fs.FileType.Directory
        )

    def _dataset(self, name: str) -> Any:
        if not self.has(name):
            folder = f"{self.root}/{run_folder(self.run)}"
            raise BadInput(f"{folder} has no table {name} for the run {self.run!r}: {self._again}")
        try:
            found = dataset.dataset(
                f"{self._path}/{run_folder(self.run)}/{name}",
                filesystem=self._system,
                format="parquet",
            )
        except (pyarrow.ArrowException, OSError) as error:
            raise BadInput(f"table {name} cannot be read: {error}") from error
        columns = [column for column, *_ in TABLES[name][1]]
        if found.files and (
            absent := [column for column in columns if column not in found.schema.names]
        ):
            raise BadInput(
                f"table {name} has no column {', '.join(absent)}: it is of another "
                f"version; {self._again}"
            )
        return found

    def batches(self, name: str, columns: list[str], filter_: Any = None) -> Iterator[Any]:
        """Yield the record batches of a table."""
        found = self._dataset(name)
        if found.files:
            yield from found.to_batches(
                columns=columns, filter=filter_, batch_readahead=2, fragment_readahead=1
            )

    def rows(self, name: str, cut: dict[str, int], most: int = MOST_ROWS) -> list[Record]:
        """Return the rows of a small table; the first of them, and how many there are in `cut`, if
        it is not small.
        """
        found = self._dataset(name)
        if not found.files:
            return []
        rows: list[Record] = found.head(most).to_pylist()
        if len(rows) == most and (whole := found.count_rows()) > most:
            cut[name] = whole
        return rows


def read_tables(lake: Lake, verdict: Record) -> RunTables:
    """Read what a report of this verdict shows."""
    asked = {check["name"] for check in verdict["checks"]}
    cut: dict[str, int] = {}
    known = next(iter(lake.rows("run", cut)), {})
    roles, faults = lake.rows("roles", cut), lake.rows("faults", cut)
    tables = RunTables(
        axis=_axis(known, roles, faults),
        offset_ns=known.get("offset_ns"),
        epsilon_ns=known.get("epsilon_ns", 0),
        roles=sorted(roles, key=lambda row: (row["node"], row["from_ns"])),
        faults=sorted(
            (row for row in faults if row["start_ns"] is not None), key=lambda row: row["start_ns"]
        ),
        failovers=lake.rows("failovers", cut) if "failover" in asked else [],
        windows=lake.rows("windows", cut) if "availability" in asked else [],
        around=_around(lake, cut) if lake.has("around") else None,
        cut=cut,
    )
    if tables.axis is not None:
        sent = _traffic(lake, tables, tables.axis)
        _backlog(lake, tables, tables.axis, sent)
        _check_totals(lake, verdict, tables)
        if "latency" in asked:
            _latency(lake, tables, tables.axis, verdict)
    return tables


def _axis(known: Record, roles: list[Record], faults: list[Record]) -> Axis | None:
    """Return the time of the run: that of its clients, or of its brokers if it had none."""
    if known.get("start_ns") is not None and known.get("end_ns") is not None:
        return Axis(known["start_ns"], known["end_ns"])
    times = [at for row in roles for at in (row["from_ns"], row["to_ns"])] + [
        row["start_ns"] for row in faults
    ]
    times = [at for at in times if at is not None]
    return Axis(min(times), max(times)) if times else None


def _around(lake: Lake, cut: dict[str, int]) -> dict[tuple[str, str, int], list[Record]]:
    found: dict[tuple[str, str, int], list[Record]] = {}
    for row in lake.rows("around", cut, MOST_AROUND):
        found.setdefault((row["check"], row["what"], row["example"]), []).append(row)
    return found


def _grouped(
    batch: Any, axis: Axis, keys: list[str], values: list[tuple[str, str]]
) -> Iterator[Record]:
    """Yield the rows of a batch, summed up by bucket and keys."""
    second = batch.column("second")
    inside = compute.and_(
        compute.greater_equal(second, pyarrow.scalar(axis.first)),
        compute.less(second, pyarrow.scalar(axis.first + axis.seconds)),
    )
    rows = pyarrow.Table.from_batches([batch]).filter(inside)
    bucket = compute.divide(
        compute.subtract(rows["second"], pyarrow.scalar(axis.first)), pyarrow.scalar(axis.width)
    )
    yield from (
        rows.append_column("bucket", bucket)
        .group_by(["bucket", *keys])
        .aggregate(values)
        .to_pylist()
    )


def _traffic(lake: Lake, tables: RunTables, axis: Axis) -> dict[str, Record]:
    """Add up what all queues took and gave in each bucket; return the totals of each queue."""
    tables.traffic = {name: {} for name in TRAFFIC}
    totals: dict[str, Record] = {}
    for batch in lake.batches("traffic_1s", ["queue", "second", *TRAFFIC]):
        for row in _grouped(batch, axis, [], [(name, "sum") for name in TRAFFIC]):
            for name in TRAFFIC:
                curve = tables.traffic[name]
                curve[row["bucket"]] = curve.get(row["bucket"], 0) + (row[f"{name}_sum"] or 0)
        table = pyarrow.Table.from_batches([batch])
        for row in (
            table.group_by("queue").aggregate([(name, "sum") for name in TRAFFIC]).to_pylist()
        ):
            sums = totals.setdefault(row["queue"], dict.fromkeys(TRAFFIC, 0))
            for name in TRAFFIC:
                sums[name] += row[f"{name}_sum"] or 0
    return totals


def _backlog(lake: Lake, tables: RunTables, axis: Axis, totals: dict[str, Record]) -> None:
    """Follow what waits in the queues with the most traffic: accepted, and not acknowledged; or not
    delivered, if nobody notes that.
    """
    busy = sorted(
        (queue for queue in totals if totals[queue]["enqueue_ok"]),
        key=lambda queue: (-totals[queue]["enqueue_ok"], queue),
    )
    shown = busy[:MOST_QUEUES]
    # Receivers that settle first never learn that the broker has settled: then a delivery is the
    # end of a message.
    gone = {
        queue: "ack_ok"
        if 2 * totals[queue]["ack_ok"] > totals[queue]["dequeue_ok"]
        else "dequeue_ok"
        for queue in shown
    }
    moved: dict[str, Curve] = {queue: {} for queue in shown}
    if not shown:
        return
    wanted = compute.field("queue").isin(shown)
    for batch in lake.batches("traffic_1s", ["queue", "second", *TRAFFIC], wanted):
        for row in _grouped(batch, axis, ["queue"], [(name, "sum") for name in TRAFFIC]):
            curve = moved[row["queue"]]
            change = row["enqueue_ok_sum"] - row[f"{gone[row['queue']]}_sum"]
            curve[row["bucket"]] = curve.get(row["bucket"], 0) + change
    for queue, curve in moved.items():
        waiting = 0
        backlog = tables.backlog[queue] = {}
        for bucket in range(axis.buckets):
            waiting += curve.get(bucket, 0)
            backlog[bucket] = max(waiting, 0)


def _check_totals(lake: Lake, verdict: Record, tables: RunTables) -> None:
    """Refuse tables of another check than the verdict."""
    throughput = finding(verdict, "throughput")
    if throughput is None:
        return
    for count, column in (("enqueued", "enqueue_ok"), ("delivered", "dequeue_ok")):
        told, found = throughput["counts"][count], sum(tables.traffic[column].values())
        if told != found:
            text = (
                f"verdict.json counts {told} {count} and the tables in {lake.root} {found}: "
                "they are of different checks"
            )
            raise BadInput(f"{text}; give the lake of this check, or check again")


def _latency(lake: Lake, tables: RunTables, axis: Axis, verdict: Record) -> None:
    """Keep the greatest of each bucket: of all queues together for clients, of the busiest names
    for brokers.
    """
    found = finding(verdict, "latency")
    table = found["table"] if found else []
    for what in ("replication", "acceptance"):
        names = sorted(
            (row for row in table if row["what"] == what), key=lambda row: (-row["n"], row["name"])
        )
        tables.lagging[what] = [row["name"] for row in names[:MOST_CURVES]]
    for batch in lake.batches("latency_1s", ["what", "name", "second", *LATENCIES]):
        for row in _grouped(batch, axis, ["what", "name"], [(each, "max") for each in LATENCIES]):
            name = "" if row["what"] in ("enqueue", "delivery") else row["name"]
            if row["what"] in tables.lagging and name not in tables.lagging[row["what"]]:
                continue
            for each in LATENCIES:
                curve = tables.latency.setdefault((row["what"], name, each), {})
                curve[row["bucket"]] = max(curve.get(row["bucket"], 0), row[f"{each}_max"])


def look_closer(lake: Lake, looks: Iterable[Closer]) -> bool:
    """Count the enqueues that ended in each part, in one pass over `ops`; False: this check did not
    write that table.
    """
    looks = list(looks)
    if not looks or not lake.has("ops"):
        return False
    first, last = min(look.begin_ns for look in looks), max(look.end_ns for look in looks)
    end = compute.field("end_at")
    wanted = (
        (compute.field("op") == OPERATIONS["enqueue"])
        & (end >= first)
        & (end < last)
        & compute.field("is_paired")
    )
    for batch in lake.batches("ops", ["end_at", "outcome"], wanted):
        table = pyarrow.Table.from_batches([batch])
        for look in looks:
            at = table["end_at"]
            mine = table.filter(
                compute.and_(
                    compute.greater_equal(at, look.begin_ns), compute.less(at, look.end_ns)
                )
            )
            bucket = compute.divide(
                compute.subtract(mine["end_at"], look.begin_ns), pyarrow.scalar(look.width_ns)
            )
            rows = (
                mine.append_column("bucket", bucket)
                .group_by(["bucket", "outcome"])
                .aggregate([("end_at", "count")])
            )
            for row in rows.to_pylist():
                curve = look.accepted if row["outcome"] == OUTCOMES["ok"] else look.others
                curve[row["bucket"]] = curve.get(row["bucket"], 0) + row["end_at_count"]
    return True
