"""The Spark engine: every check over a lake, with the same numbers as the plain Python engine and
in bounded memory.

Tables of facts are written first and each check reads them; what a report needs is written beside
them as small tables. `check_lake` judges a run; `findings` takes any events, also many histories at
once that `case` tells apart. Raises BadInput where nothing can be judged, as the Python engine
does. Tables: docs/pipeline-spark.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qpidha.model.event_log import FORMAT
from qpidha.pipeline.checks import CHECK, CHECKS, Settings, judge
from qpidha.pipeline.columns import TABLES
from qpidha.pipeline.events import FOREVER, ROLES, UNBOUNDED
from qpidha.pipeline.oracle.engine import refuse_bad_input
from qpidha.pipeline.oracle.facts import Facts
from qpidha.pipeline.segments import KEPT, BadInput, no_such_run
from qpidha.pipeline.spark.around import around
from qpidha.pipeline.spark.brokers import failover, keep_runs, learn_brokers, primaries
from qpidha.pipeline.spark.facts import (
    CASE,
    Tables,
    learn,
    learn_few,
    message_facts,
    operations,
    paired,
    places,
    queue_names,
    traffic,
    with_time,
)
from qpidha.pipeline.spark.lake import Files, Lake, each_once, quarantine_of
from qpidha.pipeline.spark.messages import order, redelivery, summed, throughput, total_queue
from qpidha.pipeline.spark.offenders import MOST, Offenders
from qpidha.pipeline.spark.safe import accepted_before_safe, positions
from qpidha.pipeline.spark.session import versions
from qpidha.pipeline.spark.times import availability, latency, latency_by_second, mutex
from qpidha.pipeline.verdict import Finding, Verdict

Write = Callable[[str, DataFrame], DataFrame]
"""Store a table under a name and return it as it is stored."""


OF_MESSAGES = {"total-queue", "order", "redelivery", "availability", "latency"}
OF_OPS = {"availability", "mutex", "latency", "failover", "evidence"}
"""Checks that read message_facts, and those that read ops."""


@dataclass(slots=True)
class Asked:
    """What is asked of the engine besides the settings of the checks."""

    names: Sequence[str] = ()
    """Checks; none: all."""
    most: int = MOST
    """Offenders of each kind in the verdict; 0: all."""
    directory: Path | None = None
    """Where all offenders go, as files."""
    charts: bool = True
    """Write what only a report needs, too."""
    noticed: Callable[[str], None] = field(default=lambda _: None)
    """Is told what is done next."""

    def wanted(self) -> list[str]:
        """Return the names of the checks. Raises BadInput if there is no such."""
        if unknown := [name for name in self.names if name not in CHECK]:
            raise BadInput(f"no such check: {', '.join(unknown)}; there are {', '.join(CHECK)}")
        return [check.name for check in CHECKS if not self.names or check.name in self.names]


def tables_of(
    events: DataFrame,
    cases: Iterable[int],
    write: Write,
    wanted: Iterable[str],
    *,
    one_clock: bool,
    epsilon: int,
    has_brokers: bool = True,
    noticed: Callable[[str], None] = lambda _: None,
) -> Tables:
    """Make the tables of facts that the wanted checks need; `events` have a column `case`."""
    wanted = set(wanted)
    timed = with_time(events, one_clock=one_clock)
    ops = operations(timed)
    noticed("traffic_1s")
    seconds = write("traffic_1s", traffic(ops))
    messages, pairs = message_facts(ops), paired(ops, queue_names(seconds))
    if wanted & OF_MESSAGES:
        noticed("message_facts")
        messages = write("message_facts", messages)
    if wanted & OF_OPS:
        noticed("ops")
        pairs = write("ops", pairs)
    few = {case: Facts(one_clock=one_clock, clock_error_ns=epsilon) for case in cases}
    tables = Tables(sorted(few), epsilon, timed, messages, pairs, seconds, has_brokers, few=few)
    learn(tables)
    if has_brokers:
        noticed("journals")
        keep_runs(tables)
    learn_few(tables)
    if has_brokers:
        learn_brokers(tables)
    if has_brokers and "accepted-before-safe" in wanted:
        noticed("places")
        tables.places = write("places", places(tables))
        noticed("positions")
        tables.positions = write("positions", positions(tables))
    return tables


def findings(
    tables: Tables, settings: Settings, asked: Asked, offenders: Offenders
) -> dict[str, dict[int, Finding]]:
    """Return what the checks find, by check and case; `evidence` is not among them."""
    wanted = asked.wanted()
    sums: list[Any] = summed(tables) if {"total-queue", "order", "redelivery"} & set(wanted) else []
    finders: dict[str, Callable[[], dict[int, Finding]]] = {
        "total-queue": lambda: total_queue(tables, sums, offenders),
        "order": lambda: order(tables, sums, settings, offenders),
        "redelivery": lambda: redelivery(tables, sums, offenders),
        "availability": lambda: availability(tables, settings, offenders),
        "mutex": lambda: mutex(tables, offenders),
        "accepted-before-safe": lambda: accepted_before_safe(tables, offenders),
        "primaries": lambda: primaries(tables, settings),
        "latency": lambda: latency(tables),
        "failover": lambda: failover(tables, settings),
        "throughput": lambda: throughput(tables),
    }
    found: dict[str, dict[int, Finding]] = {}
    for name in wanted:
        if name in finders:
            asked.noticed(name)
            found[name] = finders[name]()
    return found


def check_lake(lake: Lake, settings: Settings | None = None, asked: Asked | None = None) -> Verdict:
    """Judge a run of a lake by all checks, or those asked for."""
    settings, asked = settings or Settings(), asked or Asked()
    wanted = asked.wanted()
    stored = lake.stored()
    files, run = evidence_of(lake, stored, settings)
    inputs = files.inputs
    chosen = (F.col("kind_group") != "op") & (F.col("kind_group") != "fault") | (
        F.col("run_id") == run
    )
    events = each_once(stored, files).where(chosen).withColumn(CASE, F.lit(0))

    def write(name: str, rows: DataFrame) -> DataFrame:
        columns = [column for column, *_ in TABLES[name][1]]
        return lake.write_table(run, name, rows.select(*columns)).withColumn(CASE, F.lit(0))

    tables = tables_of(
        events,
        [0],
        write,
        wanted,
        one_clock=inputs.one_clock,
        epsilon=inputs.clock_error_ns,
        has_brokers=files.has_brokers,
        noticed=asked.noticed,
    )
    offenders = Offenders(asked.most, asked.directory)
    found = {name: each[0] for name, each in findings(tables, settings, asked, offenders).items()}
    if "evidence" in wanted:
        found["evidence"] = evidence(tables, files)
    for finding in found.values():
        offenders.put_rest(finding)
    results = [
        judge(found[name], settings, is_whole=inputs.is_all(settings.progress)) for name in wanted
    ]
    write_small(lake, run, tables, found, asked)
    shown = {"engine": "spark", **versions(), "format": FORMAT}
    return Verdict(run, results, inputs.as_json(), shown, settings.as_json())


def evidence_of(lake: Lake, stored: DataFrame, settings: Settings) -> tuple[Files, str]:
    """Return what is known of the files of a lake, and the run to judge: the one asked for, or the
    only one.
    """
    files, run = Files(lake.notes(), clock_error_ns=settings.clock_error_ns), settings.run
    if files.inputs.quarantined:
        files.inputs.quarantine = quarantine_of(stored, files, KEPT)
    refuse_bad_input(files.inputs)
    runs = list(files.runs)
    if not run and len(runs) > 1:
        raise BadInput(f"two runs, {runs[0]!r} and {runs[1]!r}: name the one to judge")
    if run and run not in files.runs:
        raise BadInput(no_such_run(run, runs))
    return files, run or (runs[0] if runs else "")


def evidence(tables: Tables, files: Files) -> Finding:
    """Say what was read and what is missing."""
    inputs = files.inputs
    problems = list(inputs.problems)
    unpaired = tables.ops.where(~F.col("is_paired")).count()
    if unpaired:
        problems.append(f"{unpaired} operations have no invocation, or more than one, or two ends")
    counts = {
        "events": inputs.events,
        "duplicates": inputs.duplicates,
        "quarantined": inputs.quarantined,
        "missing": inputs.missing,
        "problems": len(problems),
    }
    return Finding(
        "evidence",
        counts,
        {"problems": [{"problem": problem} for problem in problems]} if problems else {},
    )


def write_small(
    lake: Lake, run: str, tables: Tables, found: dict[str, Finding], asked: Asked
) -> None:
    """Write the tables that a report reads."""
    few = tables.few[0]
    if asked.charts and "latency" in found:
        asked.noticed("latency_1s")
        names = [name for name, *_ in TABLES["latency_1s"][1]]
        lake.write_table(run, "latency_1s", latency_by_second(tables).select(*names).coalesce(1))
    if asked.charts:
        if any(finding.offenders or finding.counts.get("failovers") for finding in found.values()):
            asked.noticed("around")
        lake.write_rows(run, "around", around(tables, found.values()))
    roles = []
    for (node, boot), rows in sorted(few.roles.items()):
        ordered = sorted(rows)
        ends = [*(at for _, at, _, _ in ordered[1:]), few.writer_ends[node, boot]]
        roles += [
            {"node": node, "boot": boot, "role": role, "epoch": epoch, "from_ns": at, "to_ns": end}
            for (_, at, role, epoch), end in zip(ordered, ends, strict=True)
            if role in ROLES
        ]
    lake.write_rows(run, "roles", roles)
    faults = [
        {
            "op_id": fault.number,
            "kind": fault.kind,
            "target": fault.target,
            "start_ns": _known(fault.start),
            "stop_ns": _known(fault.stop),
        }
        for fault in few.faults.values()
    ]
    lake.write_rows(run, "faults", faults)
    if "failover" in found:
        lake.write_rows(run, "failovers", found["failover"].table)
    if "availability" in found:
        lake.write_rows(
            run, "windows", (row for row in found["availability"].table if row["what"] == "window")
        )
    start, end = tables.runs.get(0, (None, None))
    offset = tables.events.select(F.col("ts_us") * 1000 - F.col("at")).first()
    epsilon = None if tables.epsilon == UNBOUNDED else tables.epsilon
    row = {
        "run": run,
        "start_ns": start,
        "end_ns": end,
        "offset_ns": offset[0] if offset else None,
        "epsilon_ns": epsilon,
    }
    lake.write_rows(run, "run", [row])


def _known(at: int) -> int | None:
    return None if at == FOREVER else at
