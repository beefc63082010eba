"""The page of a report: everything that the template shows, as plain text and numbers in the order
of the page, and the page itself.

Text from files goes through `plain` here and is escaped by the template. Tables have at most
`MOST_ROWS` rows and say how many there are. Reads no files but the template. Contents:
docs/report.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from qpidha.pipeline.checks import CHECK
from qpidha.pipeline.report.charts import charts
from qpidha.pipeline.report.failovers import MOST_LOOKS, phases
from qpidha.pipeline.report.sheets import Chart
from qpidha.pipeline.report.tables import (
    Lake,
    Record,
    RunTables,
    finding,
    read_tables,
    read_verdict,
)
from qpidha.pipeline.report.text import (
    GLOSSARY,
    NUMBERS,
    VERDICTS,
    counted,
    duration,
    during,
    example_title,
    from_microseconds,
    headline,
    kind_title,
    milliseconds,
    number,
    offences,
    plain,
    prose,
    shown_count,
    told,
    utc,
)
from qpidha.pipeline.verdict import EXAMPLES

TEMPLATE = files("qpidha.pipeline.report").joinpath("page.html")
"""Found in a zip, too: what spark-submit takes."""
MOST_ROWS = 50
"""Rows of a table on the page."""
FEW_EXAMPLES = 5
"""Examples of what is only reported; of what makes a run invalid all that verdict.json has."""
PHASES = ("detected", "asked", "promoted", "active", "accepted", "served")
ONLY_REPORTS = " This check reports; nothing that it finds makes a run invalid."
GROUPS = {"op": "client", "fault": "fault"}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under heads; `numeric` columns stand to the right."""

    heads: Sequence[str]
    rows: list[list[str]]
    numeric: frozenset[int] = frozenset()
    whole: int = 0
    """How many rows there are."""


@dataclass(frozen=True, slots=True)
class Example:
    """One example of what is wrong and the events around it."""

    title: str
    faults: str
    events: list[list[str]]
    """Time, writer, process, what; the group of the event last."""

    @property
    def has_processes(self) -> bool:
        """Whether clients did any of it."""
        return any(process for _, _, process, *_ in self.events)


@dataclass(frozen=True, slots=True)
class Kind:
    """All examples of one kind of offence."""

    title: str
    check: str
    count: str
    is_wrong: bool
    examples: list[Example]
    left: str
    """What is not shown, and where it is."""


@dataclass(slots=True)
class Page:
    """What the template shows."""

    verdict: Record
    tables: RunTables
    charts: list[Chart]
    run: str = field(init=False)

    def __post_init__(self) -> None:
        self.run = plain(self.verdict["run"] or "without a name")

    def html(self) -> str:
        """Return the page."""
        environment = Environment(
            autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        word, sentences = headline(self.verdict)
        return str(
            environment.from_string(TEMPLATE.read_text()).render(
                run=self.run,
                valid=VERDICTS[self.verdict["valid"]],
                headline=word,
                sentences=sentences,
                figures=self.figures(),
                began=utc(self.began),
                length=self.length,
                checks=self.checks(),
                facts=self.facts(),
                faults=self.faults(),
                charts={chart.name: chart for chart in self.charts},
                looks=[each for each in self.charts if each.name.startswith("failover-")],
                failovers=self.failovers(),
                changes=self.changes(),
                most_looks=MOST_LOOKS,
                windows=self.windows(),
                latencies=self.latencies(),
                queues=self.queues(),
                kinds=self.kinds(),
                has_around=self.tables.around is not None,
                evidence=self.evidence(),
                quarantine=self.quarantine(),
                gaps=self.gaps(),
                problems=self.problems(),
                cut=self.cut(),
                glossary=[(word, prose(meaning)) for word, meaning in GLOSSARY],
            )
        )

    @property
    def began(self) -> int | None:
        """Begin of the run, ns since 1970."""
        axis, offset = self.tables.axis, self.tables.offset_ns
        return None if axis is None or offset is None else axis.start_ns + offset

    @property
    def length(self) -> str:
        """Length of the run."""
        axis = self.tables.axis
        return "–" if axis is None else duration(axis.end_ns - axis.start_ns)

    def since(self, at_ns: int) -> str:
        """Return a time in a sentence."""
        return f"{self.seconds(at_ns)} s"

    def seconds(self, at_ns: int | None, digits: int = 3) -> str:
        """Return a time in seconds since the start of the run."""
        axis = self.tables.axis
        return (
            "–"
            if at_ns is None or axis is None
            else f"{axis.since(at_ns):,.{digits}f}".replace("-", "−")
        )

    def count(self, check: str, name: str) -> int | None:
        """Return a number of a check, if it was asked for and judged."""
        found = finding(self.verdict, check)
        value = found["counts"].get(name) if found and found["applies"] else None
        return int(value) if value is not None else None

    # What matters most, and the checks.

    def figures(self) -> list[tuple[str, str, str]]:
        """Return the numbers that a reader wants first: label, value, and whether it is bad."""
        lost, failovers = self.count("total-queue", "lost"), self.count("failover", "failovers")
        found = [
            ("messages accepted", number(self.count("total-queue", "acknowledged")), ""),
            ("of them lost", number(lost), "bad" if lost else ""),
            ("delivered more than once", number(self.count("total-queue", "duplicated")), ""),
            ("faults", number(len(self.tables.faults)), ""),
            ("failovers", number(failovers), ""),
            (
                "longest failover",
                duration(self.count("failover", "longest_ns")) if failovers else "–",
                "",
            ),
            ("longest unavailable", duration(self.count("availability", "longest_ns")), ""),
        ]
        return [each for each in found if each[1] != "–" or each[0] == "messages accepted"]

    def checks(self) -> list[dict[str, Any]]:
        """Return a row a check."""
        rows = []
        for check in self.verdict["checks"]:
            known, counts = CHECK.get(check["name"]), check["counts"]
            shown = [
                shown_count(name, counts[name])
                for name in NUMBERS.get(check["name"], counts)
                if name in counts
            ]
            rows.append(
                {
                    "name": plain(check["name"]),
                    "verdict": VERDICTS[check["valid"]] if check["applies"] else "nothing to judge",
                    "meaning": prose(known.meaning)
                    + (ONLY_REPORTS if known.invalid.startswith("never: ") else "")
                    if known
                    else "",
                    "numbers": shown if check["applies"] else [],
                    "reasons": [prose(plain(reason)) for reason in check["reasons"]]
                    if check["applies"]
                    else [],
                }
            )
        return rows

    def facts(self) -> list[tuple[str, str]]:
        """Return what was run, as pairs of a name and a text."""
        return [*self._of_run(), *self._of_load(), *self._of_judgement()]

    def _of_run(self) -> list[tuple[str, str]]:
        """Return which run this is, when it was, and which brokers and clients took part."""
        nodes: dict[str, set[str]] = {}
        for row in self.tables.roles:
            nodes.setdefault(row["node"], set()).add(row["boot"])
        brokers = ", ".join(
            f"{plain(node)}{f' (started {len(boots)} times)' if len(boots) > 1 else ''}"
            for node, boots in sorted(nodes.items())
        )
        found = [
            ("Run", self.run),
            ("Began", f"{utc(self.began)}, lasted {self.length}"),
            ("Brokers", brokers or "no event logs of brokers"),
        ]
        run = self.verdict["run"]
        # An older verdict does not say of which run a writer is; brokers are of none.
        writers = [
            each["node"]
            for each in self.verdict["inputs"].get("writers", [])
            if each.get("run", run) == run
        ]
        if clients := [node for node in writers if node not in nodes and node != "nemesis"]:
            found.append(("Clients", _processes(clients)))
        return found

    def _of_load(self) -> Iterator[tuple[str, str]]:
        """Yield how many messages there were, and which faults."""
        queues, axis = finding(self.verdict, "throughput"), self.tables.axis
        if queues and queues["applies"]:
            counts, rate = queues["counts"], ""
            if axis and axis.end_ns > axis.start_ns:
                rate = f", {counts['enqueued'] * 1e9 / (axis.end_ns - axis.start_ns):,.0f} a second"
            taken = f"{counts['delivered']:,} delivered, {counted(queues['table_rows'], 'queue')}"
            yield "Load", f"{counts['enqueued']:,} messages accepted{rate}, {taken}"
        kinds = Counter(fault["kind"] for fault in self.tables.faults)
        faults = ", ".join(f"{plain(kind)} {many}×" for kind, many in sorted(kinds.items()))
        yield "Faults", faults or "none"

    def _of_judgement(self) -> Iterator[tuple[str, str]]:
        """Yield what was read, how well its clocks agree, and how it was judged."""
        verdict, inputs, error = self.verdict, self.verdict["inputs"], self.tables.epsilon_ns
        if inputs.get("clock", {}).get("one", True):
            yield "Clock error", "none: all writers shared one clock"
        elif error is None:
            yield "Clock error", "not known: times of different hosts are in no order"
        else:
            yield "Clock error", f"at most {duration(error)} between hosts"
        files = counted(sum(inputs.get("segments", {}).values()), "file")
        yield "Read", f"{inputs.get('events', 0):,} events from {files}"
        versions = verdict["versions"].items()
        yield "Judged by", ", ".join(f"{plain(name)} {plain(value)}" for name, value in versions)
        settings = ", ".join(
            f"{name.removesuffix('_ns').replace('_', ' ')}: {_setting(name, value)}"
            for name, value in verdict["settings"].items()
            if name != "run"
        )
        yield "Settings", settings

    def faults(self) -> Table:
        """Return a row a fault."""
        rows = [
            [
                self.seconds(row["start_ns"]),
                duration(row["stop_ns"] - row["start_ns"])
                if row["stop_ns"] is not None
                else "to the end",
                plain(row["kind"]),
                plain(row["target"]),
            ]
            for row in self.tables.faults[:MOST_ROWS]
        ]
        return Table(
            ("begin, s", "length", "what", "of"),
            rows,
            frozenset((0, 1)),
            self._whole("faults", self.tables.faults),
        )

    def _whole(self, table: str, rows: Sequence[object]) -> int:
        return self.tables.cut.get(table, len(rows))

    # Times.

    def failovers(self) -> Table:
        """Return a row a failover, its phases in ms since it began."""
        rows = []
        changes = [row for row in self.tables.failovers if not row["first"]]
        faults = {fault["op_id"]: fault for fault in self.tables.faults}
        for row in changes[:MOST_ROWS]:
            fault = faults.get(row["fault_op"])
            cause = f"{fault['kind']} {fault['target']}" if fault else "–"
            own = dict(phases(row))
            marks = [
                milliseconds(own[name] - row["since_ns"]) if name in own else "–" for name in PHASES
            ]
            old = row["old"] or (
                fault["target"]
                if fault and any(fault["target"] == each["node"] for each in self.tables.roles)
                else None
            )
            rows.append(
                [
                    number(row["epoch"]),
                    self.seconds(row["since_ns"]),
                    plain(cause),
                    plain(old or "–"),
                    plain(row["new"]),
                    *marks,
                    milliseconds(row["total_ns"]),
                ]
            )
        heads = ("epoch", "begin, s", "cause", "from", "to", *PHASES, "total")
        return Table(heads, rows, frozenset({0, 1, *range(5, len(heads))}), len(changes))

    def changes(self) -> list[Example]:
        """Return what happened around each failover."""
        found = []
        for index, row in enumerate(self.tables.failovers):
            if not row["first"] and (self.tables.around or {}).get(
                ("failover", "failovers", index)
            ):
                title = f"epoch {row['epoch']}, to {row['new']}, at {self.since(row['since_ns'])}"
                found.append(self._example("failover", "failovers", index, title))
        return found

    def windows(self) -> Table:
        """Return a row a window of unavailability, the longest first."""
        faults = {fault["op_id"]: fault for fault in self.tables.faults}
        rows = []
        for row in sorted(self.tables.windows, key=lambda row: -row["length_ns"])[:MOST_ROWS]:
            fault = faults.get(row["fault_op"])
            cause = (
                f"{fault['kind']} {fault['target']} at {self.since(fault['start_ns'])}"
                if fault
                else "not known"
            )
            words = {"enqueue": "nothing accepted", "delivery": "nothing delivered"}
            rows.append(
                [
                    plain(row["queue"]),
                    words.get(row["service"], plain(row["service"])),
                    self.seconds(row["start_ns"]),
                    milliseconds(row["length_ns"]),
                    "to the end" if row["open"] else "",
                    plain(cause),
                ]
            )
        heads = ("queue", "what", "begin, s", "length, ms", "", "probable cause")
        return Table(heads, rows, frozenset((2, 3)), self._whole("windows", self.tables.windows))

    def latencies(self) -> Table:
        """Return percentiles of what takes time, in ms."""
        found = finding(self.verdict, "latency")
        table = found["table"] if found else []
        order = ("enqueue", "delivery", "acceptance", "replication")
        ranked = sorted(
            table,
            key=lambda row: (
                order.index(row["what"]) if row["what"] in order else len(order),
                row["name"],
            ),
        )
        words = {
            "enqueue": "from sending to accepted",
            "delivery": "from sending to delivered",
            "acceptance": "acceptance lag",
            "replication": "replication lag, to",
        }
        rows = [
            [
                words.get(row["what"], plain(row["what"])),
                plain(row["name"] or "all queues"),
                number(row["n"]),
                *(
                    from_microseconds(row[name])
                    for name in ("p50_us", "p95_us", "p99_us", "max_us")
                ),
            ]
            for row in ranked[:MOST_ROWS]
        ]
        return Table(
            ("time", "queue or backup", "number", "p50", "p95", "p99", "longest"),
            rows,
            frozenset(range(2, 7)),
            found["table_rows"] if found else 0,
        )

    def queues(self) -> Table:
        """Return a row a queue."""
        found = finding(self.verdict, "throughput")
        availability = finding(self.verdict, "availability")
        latency = finding(self.verdict, "latency")
        shares = {
            row["queue"]: row["percent"]
            for row in (availability or {"table": []})["table"]
            if row["what"] == "share" and row["service"] == "enqueue"
        }
        p99 = {
            row["name"]: row["p99_us"]
            for row in (latency or {"table": []})["table"]
            if row["what"] == "enqueue"
        }
        rows = []
        for row in (found["table"] if found else [])[:MOST_ROWS]:
            queue, share = row["queue"], shares.get(row["queue"])
            waiting = self.tables.backlog.get(queue)
            rows.append(
                [
                    plain(queue),
                    number(row["enqueued"]),
                    number(row["delivered"]),
                    number(row["acknowledged"]),
                    "–" if row["enqueued_mean"] is None else f"{row['enqueued_mean']:,.1f}",
                    number(row["enqueued_peak"]),
                    from_microseconds(p99.get(queue)),
                    number(max(waiting.values(), default=0)) if waiting is not None else "–",
                    "–" if share is None else f"{share:.2f}",
                ]
            )
        heads = (
            "queue",
            "accepted",
            "delivered",
            "acknowledged",
            "accepted/s",
            "peak/s",
            "p99 until accepted, ms",
            "most waiting",
            "available, %",
        )
        return Table(
            heads, rows, frozenset(range(1, len(heads))), found["table_rows"] if found else 0
        )

    # What is wrong.

    def kinds(self) -> list[Kind]:
        """Return the kinds of offence that have examples: what makes the run invalid first."""
        found = []
        for check in self.verdict["checks"]:
            wrong = offences(check, self.verdict["settings"])
            by_kind: dict[str, list[Record]] = {}
            for row in check["examples"]:
                # An older verdict names windows by their rows.
                what = "windows" if row["what"] == "window" else row["what"]
                by_kind.setdefault(what, []).append(
                    {name: value for name, value in row.items() if name != "what"}
                )
            found += [
                self._kind(check, what, rows, what in wrong)
                for what, rows in by_kind.items()
                if what != "problems"
            ]
        return sorted(found, key=lambda kind: not kind.is_wrong)

    def _kind(self, check: Record, what: str, rows: list[Record], is_wrong: bool) -> Kind:
        shown = rows[: EXAMPLES if is_wrong else FEW_EXAMPLES]
        examples = [
            self._example(check["name"], what, index, example_title(what, row, self.since))
            for index, row in enumerate(shown)
        ]
        count = check["counts"].get(what, len(rows))
        kept = [file for file in check["offenders"] if file.endswith(f"-{what}.jsonl")]
        left = ""
        if len(shown) < len(rows) or count > len(rows):
            where = (
                f"all are in {kept[0]}"
                if kept
                else "verdict.json has up to 20, and check --all-offenders writes all"
            )
            left = f"{counted(len(shown), 'example')} shown; {where}."
        return Kind(
            prose(kind_title(check["name"], what)),
            plain(check["name"]),
            number(count),
            is_wrong,
            examples,
            plain(left),
        )

    def _example(self, check: str, what: str, index: int, title: str) -> Example:
        events = (self.tables.around or {}).get((check, what, index), [])
        rows = []
        for event in events:
            fields = json.loads(event["event"])
            process = (
                f"process {fields['c']}, operation {fields['o']}" if event["kind"] == "op" else ""
            )
            group = GROUPS.get(event["kind"], "broker")
            rows.append(
                [
                    self.seconds(event["at_ns"], 6),
                    plain(event["node"]),
                    process,
                    plain(told(fields)),
                    group,
                ]
            )
        faults = ""
        if events:
            on = during(self.tables.faults, events[0]["at_ns"], events[-1]["at_ns"])
            told_faults = [
                (
                    f"{fault['kind']} {fault['target']} ({self.seconds(fault['start_ns'])} "
                    f"to {self.seconds(fault['stop_ns'])} s)"
                )
                for fault in on[:5]
            ]
            faults = plain(
                ", ".join(told_faults) + (f" and {len(on) - 5} more" if len(on) > 5 else "")
            )
        return Example(plain(title), faults, rows)

    # Evidence.

    def evidence(self) -> list[tuple[str, str]]:
        """Return what was read and what is missing of it."""
        inputs = self.verdict["inputs"]
        states = ", ".join(
            f"{many:,} {state}" for state, many in inputs.get("segments", {}).items()
        )
        unknown = ", ".join(
            f"{plain(name)} {many:,}×"
            for name, many in sorted(inputs.get("unknown_fields", {}).items())[:MOST_ROWS]
        )
        return [
            ("Files", states or "none"),
            ("Torn last lines", number(inputs.get("torn", 0))),
            ("Events", number(inputs.get("events", 0))),
            ("Read twice, counted once", number(inputs.get("duplicates", 0))),
            ("Set aside", number(inputs.get("quarantined", 0))),
            ("Missing events", number(inputs.get("missing", 0))),
            ("Unknown fields", unknown or "none"),
        ]

    def problems(self) -> list[str]:
        """Return what makes the evidence incomplete."""
        evidence = finding(self.verdict, "evidence")
        told_problems = [row["problem"] for row in evidence["examples"]] if evidence else []
        return [
            plain(problem)
            for problem in dict.fromkeys(
                [*self.verdict["inputs"].get("problems", [])[:MOST_ROWS], *told_problems]
            )
        ]

    def cut(self) -> list[str]:
        """Return which tables are longer than what was read of them."""
        return [
            f"Of the table {name}, with {whole:,} rows, only the first are in this report."
            for name, whole in self.tables.cut.items()
        ]

    def quarantine(self) -> Table:
        """Return what was set aside."""
        inputs = self.verdict["inputs"]
        rows = [
            [
                plain(each["file"]),
                number(each["line"]) if each["line"] else "whole file",
                plain(each["reason"]),
                plain(each["raw"][:80]),
            ]
            for each in inputs.get("quarantine", [])
        ]
        return Table(
            ("file", "line", "why", "it begins"),
            rows,
            frozenset((1,)),
            inputs.get("quarantined", 0),
        )

    def gaps(self) -> Table:
        """Return which events are missing."""
        gaps = self.verdict["inputs"].get("gaps", [])
        rows = [
            [plain(each["node"]), plain(each["boot"]), number(each["first"]), number(each["last"])]
            for each in gaps
        ]
        return Table(
            ("writer", "start", "first missing", "last missing"), rows, frozenset((2, 3)), len(rows)
        )


def _processes(names: Iterable[str]) -> str:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(
        f"{plain(name)} ({many} writers)" if many > 1 else plain(name)
        for name, many in sorted(counts.items())
    )


def _setting(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return duration(value) if name.endswith("_ns") and isinstance(value, int) else plain(value)


NAME = "report.html"
PREFIX = "report-"
"""Of the pictures' names: `report-timeline.png`."""


def write_report(check: Path, lake: str, out: Path) -> list[Path]:
    """Write the report on the check in a folder; return the files, the page first. Pictures of an
    earlier report are removed.
    """
    verdict = read_verdict(check)
    source = Lake(lake, verdict)
    tables = read_tables(source, verdict)
    drawn = charts(source, tables)
    html = Page(verdict, tables, drawn).html()
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob(f"{PREFIX}*.png"):
        old.unlink()
    files = [out / NAME]
    files[0].write_text(html, encoding="utf-8")
    for chart in drawn:
        files.append(out / f"{PREFIX}{chart.name}.png")
        files[-1].write_bytes(chart.png)
    return files
