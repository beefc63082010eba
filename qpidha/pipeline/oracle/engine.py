"""The plain Python engine: every check over an iterator of events, without Spark and Java.

It is the oracle that the Spark engine is compared with, and what `--engine python` runs: a million
operations in 15 to 20 s, more than half of which is reading, and half a gigabyte. `check` takes
events in any order, `check_paths` reads segments first. Raises BadInput where nothing can be
judged: no segments, no events, two runs, more than 1 % of all lines malformed.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from qpidha.model.event_log import FORMAT
from qpidha.pipeline.checks import CHECK, CHECKS, Settings, judge
from qpidha.pipeline.events import Event
from qpidha.pipeline.oracle.brokers import accepted_before_safe, failover, primaries
from qpidha.pipeline.oracle.facts import Facts
from qpidha.pipeline.oracle.messages import order, redelivery, throughput, total_queue
from qpidha.pipeline.oracle.times import availability, latency, mutex
from qpidha.pipeline.segments import BadInput, Inputs, Quarantined, Reader
from qpidha.pipeline.verdict import Finding, Verdict

BAD_LINES_PERCENT = 1
"""With more malformed lines than that the numbers mean nothing."""

FINDERS: dict[str, Callable[[Facts, Settings], Finding]] = {
    "total-queue": total_queue,
    "order": order,
    "redelivery": redelivery,
    "availability": availability,
    "mutex": mutex,
    "accepted-before-safe": accepted_before_safe,
    "primaries": primaries,
    "latency": latency,
    "failover": failover,
    "throughput": throughput,
}


def check(
    events: Iterable[Event],
    settings: Settings | None = None,
    *,
    inputs: Inputs | None = None,
    names: Sequence[str] = (),
) -> Verdict:
    """Judge events by all checks, or those named; `inputs` are those of the reader that yields the
    events, if one does.
    """
    settings = settings or Settings()
    wanted = [each.name for each in CHECKS if not names or each.name in names]
    if unknown := [name for name in names if name not in CHECK]:
        raise BadInput(f"no such check: {', '.join(unknown)}; there are {', '.join(CHECK)}")
    facts = Facts(
        settings.run,
        one_clock=inputs is None or inputs.one_clock,
        clock_error_ns=inputs.clock_error_ns if inputs else 0,
    )
    for event in events:
        facts.add(event)
    facts.finish()
    findings = [FINDERS[name](facts, settings) for name in wanted if name in FINDERS]
    if "evidence" in wanted:
        findings.append(evidence(facts, inputs))
    is_whole = inputs is None or inputs.is_all(settings.progress)
    results = [judge(finding, settings, is_whole=is_whole) for finding in findings]
    versions = {"engine": "python", "python": platform.python_version(), "format": FORMAT}
    return Verdict(
        facts.run, results, inputs.as_json() if inputs else {}, versions, settings.as_json()
    )


def check_paths(
    paths: Iterable[Path],
    settings: Settings | None = None,
    *,
    names: Sequence[str] = (),
    set_aside: Callable[[Quarantined], None] | None = None,
) -> Verdict:
    """Judge the segments in files and directories."""
    settings = settings or Settings()
    reader = Reader(paths, set_aside=set_aside, clock_error_ns=settings.clock_error_ns)
    verdict = check(reader, settings, inputs=reader.inputs, names=names)
    refuse_bad_input(reader.inputs)
    return verdict


def refuse_bad_input(inputs: Inputs) -> None:
    """Raise BadInput if what was read is too little or too bad to judge."""
    first = (
        (
            f": {inputs.quarantine[0].file}, line {inputs.quarantine[0].line}: "
            f"{inputs.quarantine[0].reason}"
        )
        if inputs.quarantine
        else ""
    )
    if not inputs.events:
        raise BadInput(f"no events{first}")
    if inputs.harmful * 100 > BAD_LINES_PERCENT * max(inputs.lines, 1):
        raise BadInput(f"{inputs.harmful} of {inputs.lines} lines are malformed{first}")


def evidence(facts: Facts, inputs: Inputs | None) -> Finding:
    """Say what was read and what is missing."""
    problems = [*(inputs.problems if inputs else [])]
    if facts.unpaired:
        problems.append(
            f"{facts.unpaired} operations have no invocation, or more than one, or two ends"
        )
    counts = {
        "events": facts.events,
        "duplicates": inputs.duplicates if inputs else 0,
        "quarantined": inputs.quarantined if inputs else 0,
        "missing": inputs.missing if inputs else 0,
        "problems": len(problems),
    }
    return Finding(
        "evidence",
        counts,
        {"problems": [{"problem": problem} for problem in problems]} if problems else {},
    )
