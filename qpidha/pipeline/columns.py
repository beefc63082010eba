"""Columns: the tables of a lake with types, units and meanings, for docs/pipeline-spark.md and
whoever reads them without Spark.

The table of events has the columns of `events.py`, with codes for the words that are closed, and
two more: the file, and a note for rows that are no events but say what became of a file or a line.
Everything that is aggregated is a number: a minimum or maximum of strings would turn Spark's hash
aggregates into sorts. Knows neither Spark nor Arrow. Why so: docs/internals/pipeline.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from qpidha.pipeline.events import FIELDS, KINDS, OUTCOMES

LAKE_SCHEMA = 1
"""Version of the tables; a lake of another is refused."""

Column = tuple[str, str, str, str]
"""Name, type, unit and meaning."""

_CODES = {
    "kind": "code of the kind",
    "otype": "code of the outcome of an operation, or of the step of a fault",
    "role": "code of the role",
}
GROUPS = (*dict.fromkeys(kind.group for kind in KINDS), "segment", "quarantine")
"""Values of `kind_group`; the last two are no events."""

EVENTS: tuple[Column, ...] = (
    *(
        (field.column, "tinyint", "", _CODES[field.column])
        if field.column in _CODES
        else (field.column, field.type, field.unit, field.meaning)
        for field in FIELDS
    ),
    ("op", "tinyint", "", "code of the operation in `op` events, whose `what` is null"),
    ("file", "string", "", "file that the event is from"),
    (
        "note",
        "string",
        "",
        "of group `segment`: what is known of the file, as JSON; of `quarantine`: the "
        "first 4 KB of the line",
    ),
)

_MESSAGE: tuple[Column, ...] = (
    ("queue", "string", "", ""),
    ("producer", "int", "", ""),
    ("seq", "bigint", "", ""),
    ("attempts", "bigint", "count", "a: enqueue invocations"),
    ("acked", "bigint", "count", "k: enqueues accepted"),
    ("failed", "bigint", "count", "x: enqueues that certainly had no effect"),
    ("deliveries", "bigint", "count", "d: deliveries"),
    ("fresh", "bigint", "count", "deliveries that claim to be the first"),
    ("flagged", "bigint", "count", "deliveries marked as repeated"),
    ("enq_at", "bigint", "ns", "first enqueue invocation"),
    ("enq_ok", "bigint", "ns", "first acceptance"),
    ("first_at", "bigint", "ns", "first delivery"),
    ("last_at", "bigint", "ns", "last delivery"),
    ("first_ack", "bigint", "ns", "first confirmed acknowledgement"),
    ("client", "bigint", "", "client of the first delivery"),
    ("enq_op", "bigint", "", "least operation that sent it"),
    ("deq_op", "bigint", "", "least operation that took it"),
)
_OPERATION: tuple[Column, ...] = (
    ("op_id", "bigint", "", ""),
    ("queue", "string", "", ""),
    ("op", "tinyint", "", "enqueue, acquire, release or write"),
    ("process", "bigint", "", ""),
    ("begin_at", "bigint", "ns", "invocation, or the intended time"),
    ("end_at", "bigint", "ns", "null: it never ended"),
    ("outcome", "tinyint", "", "0: it never ended"),
    ("is_paired", "boolean", "", "one invocation and at most one end"),
    ("epoch", "bigint", "", "of its fencing token"),
    ("position", "bigint", "count", "the number of its fencing token"),
)
_PLACE: tuple[Column, ...] = (
    ("msg", "string", "", "message id"),
    ("node", "string", "", "the writer of the entry"),
    ("boot", "string", "", ""),
    ("epoch", "bigint", "", ""),
    ("position", "bigint", "count", "sequence in the replication log"),
    ("is_judged", "boolean", "", "that writer named an in-sync set in that epoch"),
    ("told", "bigint", "ns", "when a client first heard that the message is accepted"),
    ("gone", "bigint", "ns", "first `deq` event with this id"),
    ("copies", "bigint", "count", "places of this id"),
    ("judged", "bigint", "count", "of these, how many can be judged"),
)
_POSITION: tuple[Column, ...] = (
    ("node", "string", "", "the writer of the entry"),
    ("boot", "string", "", ""),
    ("epoch", "bigint", "", ""),
    ("position", "bigint", "count", "sequence in the replication log"),
    (
        "confirmed_s",
        "array<bigint>",
        "",
        "s of the first confirmation up to here and no further, of each other member of "
        "the sets in "
        "the order of their names; nulls follow where other epochs have more",
    ),
    ("confirmed_at", "array<bigint>", "ns", "the earliest time of such a confirmation, likewise"),
    (
        "accepted_first",
        "bigint",
        "",
        "s of the first acceptance up to here, of those that can be judged",
    ),
    ("accepted_last", "bigint", "", "s of the last one"),
    (
        "told",
        "bigint",
        "ns",
        "when a client was first told of a message here, of those that were not gone then",
    ),
)
_TRAFFIC: tuple[Column, ...] = (
    ("queue", "string", "", ""),
    ("second", "bigint", "s", "time divided by 10⁹ ns"),
    *(
        (f"{name}_{outcome}", "bigint", "count", f"{name} {outcome} events")
        for name, outcomes in (("enqueue", OUTCOMES), ("dequeue", ("ok",)), ("ack", ("ok",)))
        for outcome in outcomes
    ),
    ("foreign", "bigint", "count", "enqueue and dequeue ok events without a value"),
    ("messages", "bigint", "count", "enqueue and dequeue events"),
    ("min_at", "bigint", "ns", "first event"),
    ("max_at", "bigint", "ns", "last event"),
    ("last_enqueue", "bigint", "ns", "last enqueue event"),
    ("last_drain", "bigint", "ns", "last drain ok"),
)
TABLES: dict[str, tuple[str, tuple[Column, ...]]] = {
    "message_facts": ("one row a value: everything that the counting checks need", _MESSAGE),
    "ops": (
        "one row an operation that has a begin and an end: enqueue, acquire, release, write",
        _OPERATION,
    ),
    "places": (
        "one row a place in a log that a broker noted for a message id, of ids that a "
        "client was told are accepted",
        _PLACE,
    ),
    "positions": (
        "one row a position up to which something was confirmed or accepted, or of which "
        "a client was told; of writers and epochs with "
        "in-sync sets",
        _POSITION,
    ),
    "traffic_1s": ("what each queue took and gave in each second, for charts", _TRAFFIC),
    "latency_1s": (
        "latency of each second in which something ended; `what` and `name` as in check latency",
        (
            ("what", "string", "", "replication, acceptance, enqueue, delivery"),
            ("name", "string", "", "peer or queue"),
            ("second", "bigint", "s", ""),
            ("n", "bigint", "count", ""),
            ("p50_us", "bigint", "µs", ""),
            ("p95_us", "bigint", "µs", ""),
            ("p99_us", "bigint", "µs", ""),
            ("max_us", "bigint", "µs", ""),
        ),
    ),
    "roles": (
        "one row for each time that a broker was in one role",
        (
            ("node", "string", "", ""),
            ("boot", "string", "", ""),
            ("role", "string", "", ""),
            ("epoch", "bigint", "", ""),
            ("from_ns", "bigint", "ns", ""),
            ("to_ns", "bigint", "ns", "the writer's next role, or its last event"),
        ),
    ),
    "faults": (
        "what the nemesis did",
        (
            ("op_id", "bigint", "", ""),
            ("kind", "string", "", ""),
            ("target", "string", "", ""),
            ("start_ns", "bigint", "ns", ""),
            ("stop_ns", "bigint", "ns", "null: it never ended"),
        ),
    ),
    "failovers": (
        "table of check failover",
        (
            ("epoch", "bigint", "", ""),
            ("old", "string", "", ""),
            ("new", "string", "", ""),
            ("first", "bigint", "", "1: no failover"),
            ("fault_op", "bigint", "", ""),
            *(
                (f"{name}_ns", "bigint", "ns", "")
                for name in (
                    "since",
                    "fault",
                    "detected",
                    "asked",
                    "promoted",
                    "active",
                    "accepted",
                    "served",
                    "total",
                )
            ),
        ),
    ),
    "windows": (
        "windows of unavailability, from check availability",
        (
            ("queue", "string", "", ""),
            ("service", "string", "", "enqueue or delivery"),
            ("start_ns", "bigint", "ns", ""),
            ("end_ns", "bigint", "ns", ""),
            ("length_ns", "bigint", "ns", ""),
            ("open", "bigint", "", "1: to the end of the run"),
            ("fault_op", "bigint", "", "its cause; null: none"),
        ),
    ),
    "around": (
        "an event around an example of verdict.json or around a failover: the life of "
        "its message, or what brokers did at that time",
        (
            ("check", "string", "", ""),
            ("what", "string", "", "kind of offence, or `failovers`"),
            (
                "example",
                "bigint",
                "count",
                "0: the first of its kind in verdict.json, or the first row of `failovers`",
            ),
            ("at_ns", "bigint", "ns", ""),
            ("node", "string", "", ""),
            ("boot", "string", "", ""),
            ("s", "bigint", "count", ""),
            ("kind", "string", "", "name of the kind"),
            ("event", "string", "", "the event as it was written, as JSON"),
        ),
    ),
    "run": (
        "one row",
        (
            ("run", "string", "", ""),
            ("start_ns", "bigint", "ns", "first operation"),
            ("end_ns", "bigint", "ns", "last operation"),
            ("offset_ns", "bigint", "ns", "add it to a time: ns since 1970"),
            ("epsilon_ns", "bigint", "ns", "error between clocks; null: not known"),
        ),
    ),
}


def run_folder(run: str) -> str:
    """Return the folder of a run's tables below that of the lake; a run may have any name."""
    return f"runs/{quote(run, safe='').replace('%', '+') or '_'}"


def documentation() -> str:
    """Return the tables of a lake for docs/pipeline.md."""
    return "\n".join(_documentation())


def _documentation() -> Iterator[str]:
    yield (
        f"Version {LAKE_SCHEMA}. `events` is partitioned by `batch` and by `kind_group`: "
        f"{', '.join(GROUPS)}."
    )
    yield ""
    yield "| Table | One row | Columns (type, unit) |"
    yield "|---|---|---|"
    own = [
        (name, type_, unit, meaning)
        for name, type_, unit, meaning in EVENTS
        if name in ("op", "file", "note")
    ]
    yield (
        "| `events` | an event: the columns of all keys above, of these as codes: kind, "
        f"otype, role; and | {_columns(own)} |"
    )
    for name, (meaning, columns) in TABLES.items():
        yield f"| `{name}` | {meaning} | {_columns(columns)} |"


def _columns(columns: Sequence[Column]) -> str:
    return "; ".join(
        f"`{name}` `{type_}`{', ' + unit if unit else ''}{': ' + meaning if meaning else ''}"
        for name, type_, unit, meaning in columns
    )
