"""Checks: the definition of each, once for both engines, and the rule that makes a verdict of its
numbers.

Every number is defined over the columns of `events.py` so that a grouping with `count_if`, `min`,
`max` and one ordered window gives exactly what the Python engine gives; there are no medians of
floats and no orders by text. docs/pipeline.md shows the definitions (a test compares). An engine
counts, `judge` judges. Knows neither files nor engines. Source: docs/internals/pipeline.md;
Jepsen's `checker.clj` for the counting checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from qpidha.model.duration import SECOND
from qpidha.pipeline.verdict import CheckResult, Finding

MARGIN_NS = 60 * SECOND
"""So long before and after the operations of a run what brokers wrote belongs to it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked of the checks. Times are nanoseconds."""

    run: str = ""
    """Run to judge; empty: the only one there is."""
    exactly_once: bool = False
    """Duplicates are invalid."""
    strict_ack: bool = False
    """A delivery after the confirmed acknowledgement is invalid."""
    strict_order: bool = False
    """Neither redelivery nor a fault excuses disorder."""
    mutex: str = "strict"
    """Which overlap is invalid: `strict`, `lease`, or none with `report`."""
    unavailable_ns: int = SECOND
    """A shorter pause is none."""
    max_unavailable_ns: int = 0
    """A longer window is invalid; 0: windows are only reported."""
    fault_reach_ns: int = 10 * SECOND
    """So long after its end a fault may be named as the cause of a window."""
    clock_error_ns: int | None = None
    """Bound of the error between the clocks of any two hosts; None: what the segments say."""
    progress: str = "ended"
    """Of the run: `ended`; `running`: what is not there may still come; `ending`: the same until
    all clients have ended their histories.
    """

    def as_json(self) -> dict[str, Any]:
        """Return the `settings` of verdict.json."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Check:
    """The definition of a check."""

    name: str
    meaning: str
    evidence: str
    """`clients`, `brokers`, `both` or `files`."""
    counts: tuple[tuple[str, str], ...]
    """Name of a number and its formula."""
    table: str
    invalid: str
    unknown: str
    applies: str
    source: str


COMMON = (
    (
        "at",
        "time of an event in ns: `m` if all segments name one clock, else `t` · 1000. ε "
        "= 0 in the first case, else the setting "
        "clock_error_ns, else the sum of the two largest `clock_error_us` · 1000, of "
        "each clock the largest of its segments; ∞ if a segment "
        "does not know its own. a was before b: at(a) + ε < at(b). With ε = ∞ nothing is "
        "invalid for the order of two times; what never "
        "happened is",
    ),
    (
        "value",
        "(queue, producer `w`, sequence `u`) of `op` events of the run; operations "
        "without a value are counted as `foreign` and "
        "left out",
    ),
    ("client", "process `c` divided by 1 000 000, cut: processes of a client follow each other"),
    ("a, k, x", "per value: `enqueue` events with outcome invoke, ok, fail"),
    (
        "d, fresh, flagged",
        "per value: `dequeue` ok events (drains included); of these with `d` = 0 and not "
        "`fa` = 0; with `d` > 0 or "
        "`fa` = 0",
    ),
    (
        "enq_at, enq_ok, first, last, first_ack",
        "per value: min at of enqueue invoke, of enqueue ok; min and max at of dequeue ok; min "
        "at of ack ok",
    ),
    (
        "drained",
        "per queue: max at of `drain` ok > ε + max at of every `enqueue` event of any "
        "outcome; no enqueue and one drain ok is "
        "drained too",
    ),
    (
        "pair",
        "per `op_id`, for `enqueue`, `acquire`, `release`: begin = at of invoke − "
        "max(`m` − `j`, 0) if `j` is given, else at of "
        "invoke; "
        "end = at of ok, fail or info, ∞ if there is none; a group without exactly one "
        "invoke, or with two ends, is `unpaired` and left out",
    ),
    ("run_start, run_end", "min and max at of all `op` events of the run"),
    ("writer", "(`n`, `b`): one start of one broker"),
    (
        "events of brokers",
        "all where there is no `op` event of the run. Else those with run_start − m ≤ at "
        "≤ run_end + m, m = max(60 s, "
        "ε); and how things stood before, of each writer that has one of those: of its "
        "events with at < run_start − m the one with the "
        "greatest `s` of `role`, of `epoch`, of `insync` per epoch and of `rep` per "
        "epoch and peer, these without `dt`. Nothing else "
        "counts: neither other runs of the same brokers nor brokers of other runs",
    ),
    (
        "percentile",
        "nearest rank ceil(p · n / 100) over microseconds (ns divided by 1000, cut), cut "
        "to three significant decimal digits: "
        "v − v mod s, s the largest power of ten with v ≥ 100 · s, at least 1",
    ),
)

CHECKS = (
    Check(
        "total-queue",
        "Every accepted message is delivered, and nothing is delivered that was not sent.",
        "clients",
        (
            ("attempts", "Σ a"),
            ("acknowledged", "Σ k"),
            ("failed", "Σ x"),
            ("deliveries", "Σ d"),
            ("values", "number of values with a > 0"),
            ("ok", "Σ min(d, a)"),
            ("unexpected", "Σ d where a = 0"),
            ("duplicated", "Σ max(d − a, 0) where a > 0"),
            ("lost", "Σ max(k − d, 0) in drained queues"),
            ("missing", "Σ max(k − d, 0) in other queues"),
            ("recovered", "Σ max(min(d, a) − k, 0)"),
            ("phantom", "number of values with d > 0, a > 0, x ≥ a"),
            ("resurrected", "number of values with a = 1 and last > first_ack + ε"),
            ("undrained", "number of queues with enqueues or dequeues that are not drained"),
            ("foreign", "enqueue and dequeue ok events without a value"),
        ),
        "ok, lost, unexpected, duplicated, recovered as shares of attempts and of "
        "acknowledged (Jepsen's fractions have attempts below)",
        "lost, unexpected or phantom > 0; with exactly_once duplicated > 0; with "
        "strict_ack resurrected > 0",
        "acknowledged = 0; missing > 0",
        "attempts + deliveries > 0",
        "Jepsen checker.clj total-queue (first five); tests/kafka.clj aborted read (phantom)",
    ),
    Check(
        "order",
        "Messages of one producer first come to a consumer in the order in which they were sent.",
        "clients",
        (
            (
                "streams",
                "number of (queue, producer, client of first delivery) over values with "
                "a > 0, d > 0 whose first delivery is "
                "certain: d = 1, or ε = 0, or d = 2 and first + ε < last",
            ),
            ("messages", "number of those values"),
            (
                "inversions",
                "values whose `u` < max(`u`) of all rows before, per stream by (first, `u`)",
            ),
            ("resent", "inversions with a > 1: the copy that came may be the later one"),
            ("redelivered", "other inversions with d > 1 or flagged > 0"),
            (
                "in_fault",
                "other inversions with first perhaps within a fault: start − ε ≤ first ≤ "
                "stop + ε, ∞ if it never stopped",
            ),
            (
                "competing",
                "other inversions in queues whose first deliveries, certain or not, went "
                "to more than one client",
            ),
            (
                "violations",
                "all other inversions; with strict_order nothing counts as redelivered or in_fault",
            ),
        ),
        "",
        "violations > 0",
        "–",
        "messages > 0",
        "AMQP 1.0 §2.6 (a link keeps order)",
    ),
    Check(
        "redelivery",
        "A message that comes again says so.",
        "clients",
        (
            ("redelivered", "Σ max(d − a, 0) where a > 0"),
            ("flagged", "Σ flagged where a > 0"),
            (
                "unflagged",
                "Σ max(fresh − a, 0) where a > 0: more deliveries claim to be the first "
                "than there were copies",
            ),
        ),
        "",
        "never: reported",
        "–",
        "deliveries with `d` > 0",
        "AMQP 1.0 §3.2.1 (delivery-count, first-acquirer)",
    ),
    Check(
        "availability",
        "When a queue took or gave nothing although a client waited.",
        "clients",
        (
            ("windows", "number of windows"),
            ("unavailable_ns", "Σ of their lengths"),
            ("longest_ns", "length of the longest"),
            ("certain_ns", "max(longest_ns − 2 ε, 0): each end of a window may be wrong by ε"),
            ("accepted", "accepted enqueue pairs"),
            ("run_ns", "run_end − run_start"),
            ("never_again", "faults × queues after which no enqueue that began later was accepted"),
        ),
        "window: per (queue, service) a pause (g0, g1) between successive ok ends, from "
        "the first begin to the first ok end, or from the "
        "last ok end to run_end; w = max(g0, min begin of intervals with end > g0), no "
        "window unless w < g1 and g1 − w > unavailable_ns; "
        "length g1 − w. Intervals of service `enqueue`: pairs, ok if accepted. Of "
        "`delivery`: values with a > 0 from min(enq_ok, first) "
        "to first "
        "(ok) where d > 0, from enq_ok to ∞ (not ok) where d = 0, k > 0 and the queue is "
        "not drained. Cause: the fault with the greatest "
        "(start, op_id) that has start < g1 and stop + fault_reach_ns ≥ w. rto: per "
        "(fault, queue) min end of accepted enqueue pairs with "
        "begin > start, minus start. share: 100 · (1 − Σ lengths / run_ns) per (queue, service)",
        "max_unavailable_ns > 0 and certain_ns above it",
        "–",
        "accepted enqueues > 0",
        "docs/internals/pipeline.md (pauses)",
    ),
    Check(
        "mutex",
        "A queue of one message as a lock is held by one process at a time, and what it protects "
        "takes no order from a former holder.",
        "clients",
        (
            ("locks", "number of queues with acquire operations"),
            ("holds", "acquire pairs that ended ok"),
            (
                "overlaps",
                "holds with max(end of holds before) > start + ε ≤ end, per lock by "
                "(start, end); start = end of the acquire, "
                "end = min begin "
                "of the same lock's and process's release pairs not known to have failed "
                "with begin > start, ∞ if none",
            ),
            (
                "lease_overlaps",
                "the same with end = min(end, min at of `lost` events of that lock and "
                "process with at > start)",
            ),
            ("tokens", "holds whose acquire has a fencing token (`e`, `p`)"),
            ("writes", "write pairs that ended ok"),
            ("refused", "write pairs that failed"),
            (
                "stale",
                "writes with a token and with begin > ε + min end of the lock's writes with a "
                "higher token; tokens are compared by `e`, then `p`",
            ),
            (
                "regressions",
                "holds with a token and with begin of the acquire > ε + min end of the lock's "
                "other acquires that ended ok with the same `e`, and a `p` that is not lower",
            ),
        ),
        "",
        "stale or regressions > 0; overlaps > 0 (setting mutex = strict); lease_overlaps > 0 "
        "(lease). Holds of a lock on a queue are expected to overlap under faults: with tokens "
        "that does no harm (docs/fencing.md)",
        "–",
        "holds > 0",
        "certain holds are disjoint exactly if the history is linearizable "
        "(docs/internals/pipeline.md); the RabbitMQ article of Jepsen",
    ),
    Check(
        "accepted-before-safe",
        "No client is told `accepted` before every member of the in-sync set has the message.",
        "both",
        (
            ("accepted", "Σ (`hi` − `p` + 1) of `conf` events"),
            (
                "unsafe",
                "Σ (`hi` − `p` + 1) of `conf` with `hi` ≥ `p` for which some member of "
                "the set in force has first(`s`) > `s`. Set "
                "in force: the latest `insync` of that writer and epoch with a lower "
                "`s`, without the writer. first(v) of a member and "
                "position: min v over the writer's `rep` events of that epoch and member "
                "with `hi` ≥ the position; ∞ if none. Position: `hi`",
            ),
            (
                "unjudged",
                "positions of `conf` events before the first `insync` of their (writer, "
                "epoch), and ids that clients were told "
                "of, of whose places no writer named a set, and that no `deq` names",
            ),
            ("client_accepted", "message ids `i` of accepted enqueues that are in an `enq` event"),
            (
                "client_unsafe",
                "of these with first at(ok) + ε < safe, or never safe; safe = min over "
                "the id's `enq` (`e`, `p`) and the "
                "`insync` sets of that writer and epoch of t = max(at of the set, "
                "first(at) of `p` over its other members) where t ≤ at of "
                "the next set, and min at of `deq` events with that id: a message that "
                "was consumed before all have it needs no copy",
            ),
        ),
        "",
        "unsafe or client_unsafe > 0",
        "unjudged > 0",
        "accepted + client_accepted > 0",
        "rule S1 (docs/internals/safety.md); qpidha/ha/pending.py",
    ),
    Check(
        "primaries",
        "In one epoch at most one broker is primary and acknowledges.",
        "brokers",
        (
            (
                "epochs",
                "number of epochs with a `role` active or a `conf` event; 0 is no epoch: "
                "a broker without a cluster writes it",
            ),
            ("shared_epochs", "of these with more than one writer"),
            (
                "epoch_regressions",
                "`epoch` events with `e` < max(`e`) before, per node: of the same writer "
                "by `s`, of others by at",
            ),
            (
                "overlaps",
                "times active with max(end of those before) > start + ε ≤ end, by "
                "(start, end); from `role` active to that "
                "writer's next `role` "
                "event, or its last event",
            ),
        ),
        "",
        "shared_epochs or epoch_regressions > 0; overlaps of different epochs are "
        "reported: a former primary that accepts nothing "
        "is harmless",
        "–",
        "epochs > 0",
        "rules S3 and S5 (docs/internals/safety.md); Raft §5.2 (election safety)",
    ),
    Check(
        "latency",
        "How long replication, acceptance and delivery take.",
        "both",
        (
            ("replication", "`rep` events with `dt`"),
            ("acceptance", "`conf` events with `dt`"),
            ("enqueue", "accepted enqueue pairs"),
            ("delivery", "values with a > 0, d > 0 and first ≥ enq_at"),
        ),
        "per (what, name) n, p50, p95, p99 and max in µs: `dt` of `rep` per peer; `dt` "
        "of `conf` per queue; end − begin of accepted "
        "enqueue pairs per "
        "queue; first − enq_at per queue. Max is cut to three digits too",
        "never: reported",
        "–",
        "any of the counts > 0",
        "latency from the intended begin: Tene, coordinated omission",
    ),
    Check(
        "failover",
        "What each change of the primary took, phase by phase.",
        "both",
        (
            ("epochs", "number of epochs with a `role` recovering or active"),
            ("failovers", "of these all but the lowest"),
            ("longest_ns", "greatest total of those"),
        ),
        "per epoch with a `role` recovering or active: promoted = min at of those; new = "
        "its node (the least name); active = min at of "
        "`role` active; "
        "previous = max active of lower epochs (−∞ if none); fault = max start of "
        "faults, detected = min at of `failover` detected, "
        "asked = max at of `promotion` asked, each in (previous, promoted]; accepted = "
        "min at of `failover` accepted and `conf` of the "
        "epoch; "
        "served = min end of accepted enqueue pairs with begin > since; since = fault, "
        "else detected, else promoted; total = (served, else "
        "accepted, else active) − since; old = `x` of the detected event",
        "never: reported",
        "–",
        "epochs with a `role` recovering or active",
        "docs/internals/promotion.md",
    ),
    Check(
        "throughput",
        "How much each queue took and gave.",
        "clients",
        (
            ("enqueued", "enqueue ok events"),
            ("delivered", "dequeue ok events"),
            ("acknowledged", "ack ok events"),
        ),
        "per queue these three, their means (count · 10⁹ / (run_end − run_start), three "
        "decimals) and their peaks (greatest count with "
        "the same "
        "at divided by 10⁹, cut)",
        "never: reported",
        "–",
        "any of the counts > 0",
        "–",
    ),
    Check(
        "evidence",
        "What was written is all there.",
        "files",
        (
            ("events", "events read, each once by (`n`, `b`, `s`)"),
            ("duplicates", "events read before"),
            ("quarantined", "lines and files set aside"),
            (
                "missing",
                "numbers `s` that are in no file between those that are; before "
                "them too for "
                "writers of `op` events",
            ),
            ("problems", "sentences in inputs.problems"),
        ),
        "",
        "never",
        "problems > 0: other checks may be wrong in both directions",
        "events > 0",
        "each writer numbers its events without gaps (docs/pipeline.md)",
    ),
)
CHECK = {check.name: check for check in CHECKS}
MUTEX = tuple(name for name, _ in CHECK["mutex"].counts)

BROKEN = {
    "lost": "accepted messages were never delivered",
    "unexpected": "deliveries of messages that no client sent",
    "phantom": "messages were delivered that every attempt to send was told no for",
    "duplicated": "deliveries too many",
    "resurrected": "messages came again after their acknowledgement was confirmed",
    "violations": "messages of a producer came in another order than they were sent",
    "overlaps": "holds of a lock began while another process certainly held it",
    "lease_overlaps": (
        "holds of a lock began while another process held it and had not lost its session"
    ),
    "stale": "writes of former holders of a lock were taken, after one with a higher token",
    "regressions": "holders of a lock were given tokens that are not higher than one before",
    "unsafe": "messages were accepted in batches that not every in-sync backup had whole",
    "client_unsafe": "clients were told `accepted` before every in-sync backup had the message",
    "shared_epochs": "epochs had more than one primary",
    "epoch_regressions": "times a broker went back to a lower epoch",
}
PRESENT = ("unsafe", "shared_epochs", "epoch_regressions")
"""What shows in what one broker, or each of two, has written so far. All else rests also on what is
not there: a send, a confirmation, a release, what excuses disorder.
"""
OPEN = ": what explains it may be to come"
NO_FENCING = (
    "expected of a lock without fencing tokens: a session can be lost while its owner still works"
)


def window(run_start: int, run_end: int, epsilon: int) -> tuple[int, int]:
    """Return from when to when events of brokers belong to a run; times are ns."""
    margin = max(MARGIN_NS, epsilon)
    return run_start - margin, run_end + margin


def judge(finding: Finding, settings: Settings, *, is_whole: bool = True) -> CheckResult:
    """Return the verdict on what an engine found for one check; not `is_whole`: clients or brokers
    may have more to say.
    """
    counts = finding.counts
    applies = _applies(finding)
    found = [name for name in promises(finding.name, settings) if counts.get(name, 0)]
    broken = [f"{counts[name]} {BROKEN[name]}" for name in found if is_whole or name in PRESENT]
    doubts = [
        f"so far {counts[name]} {BROKEN[name]}{OPEN}"
        for name in found
        if not (is_whole or name in PRESENT)
    ]
    if broken and not {"overlaps", "lease_overlaps"}.isdisjoint(found) and finding.name == "mutex":
        broken.append(NO_FENCING)
    if finding.name == "availability" and 0 < settings.max_unavailable_ns < counts["certain_ns"]:
        longest, allowed = counts["certain_ns"] / SECOND, settings.max_unavailable_ns / SECOND
        pause = f"unavailable for {longest:.3f} s, and {allowed:g} s are allowed"
        (broken if is_whole else doubts).append(pause if is_whole else f"so far {pause}{OPEN}")
    doubts += _doubts(finding) if applies else ["nothing to judge"]
    valid = False if broken else None if doubts else True
    offenders, files = (
        dict(sorted(finding.offenders.items())),
        [file for _, file in sorted(finding.files.items())],
    )
    return CheckResult(
        finding.name, valid, applies, counts, broken + doubts, offenders, finding.table, files
    )


def promises(name: str, settings: Settings) -> tuple[str, ...]:
    """Return which numbers of a check must be 0."""
    if name == "total-queue":
        more = (("duplicated",) if settings.exactly_once else ()) + (
            ("resurrected",) if settings.strict_ack else ()
        )
        return ("lost", "unexpected", "phantom", *more)
    if name == "mutex":
        more = {"strict": ("overlaps",), "lease": ("lease_overlaps",)}.get(settings.mutex, ())
        return ("stale", "regressions", *more)
    return {
        "order": ("violations",),
        "accepted-before-safe": ("unsafe", "client_unsafe"),
        "primaries": ("shared_epochs", "epoch_regressions"),
    }.get(name, ())


def _applies(finding: Finding) -> bool:
    """Return whether there was anything to judge."""
    names = {
        "total-queue": ("attempts", "deliveries"),
        "order": ("messages",),
        "redelivery": ("flagged", "unflagged"),
        "availability": ("accepted",),
        "mutex": ("holds",),
        "accepted-before-safe": ("accepted", "client_accepted"),
        "primaries": ("epochs",),
        "latency": ("replication", "acceptance", "enqueue", "delivery"),
        "failover": ("epochs",),
        "throughput": ("enqueued", "delivered", "acknowledged"),
        "evidence": ("events",),
    }[finding.name]
    return any(finding.counts[name] for name in names)


def _doubts(finding: Finding) -> Iterator[str]:
    """Yield what evidence is missing."""
    counts = finding.counts
    if finding.name == "total-queue":
        if not counts["acknowledged"]:
            yield "nothing was accepted, so nothing is shown"
        if counts["missing"]:
            yield (
                f"{counts['missing']} accepted messages may still be in queues that were not "
                "drained"
            )
    elif finding.name == "accepted-before-safe" and counts["unjudged"]:
        count = counts["unjudged"]
        yield f"{count} messages were accepted before the event log named an in-sync set"
    elif finding.name == "evidence" and counts["problems"]:
        yield (
            f"the evidence is incomplete in {counts['problems']} ways: other checks may be "
            "wrong in both directions"
        )


def documentation() -> str:
    """Return the definitions for docs/pipeline.md."""
    return "\n".join(_documentation())


def _documentation() -> Iterator[str]:
    yield "| Word | Meaning |"
    yield "|---|---|"
    yield from (f"| {name} | {_cell(text)} |" for name, text in COMMON)
    for check in CHECKS:
        yield f"\n### {check.name}\n"
        yield f"{check.meaning} Evidence: {check.evidence}. Applies if: {check.applies}.\n"
        yield "| Number | Formula |"
        yield "|---|---|"
        yield from (f"| {name} | {_cell(formula)} |" for name, formula in check.counts)
        yield ""
        if check.table:
            yield f"Table: {check.table}.\n"
        yield f"Invalid: {check.invalid}. Unknown: {check.unknown}. Source: {check.source}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
