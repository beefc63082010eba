"""Segments: read histories and event logs, closed or still open, and keep aside whatever is no
evidence.

`Reader` yields the events of all files one after the other, each event once, and holds one line at
a time. What is malformed, foreign, torn or too long goes to quarantine with its file, line and
reason, and does not stop the rest; `Reader.inputs` then says what was read and what is missing.
Events come in the order of files, not of time. Raises BadInput only if there is nothing that could
be read. Files: docs/pipeline.md.
"""

from __future__ import annotations

import gzip
import json
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from qpidha.model.event_log import FORMAT
from qpidha.pipeline.events import UNBOUNDED, Event, examine

LINE_BYTES = 1 << 20
"""A longer line is no event."""
RAW_BYTES = 4096
"""What is kept of a line in quarantine."""
KEPT = 1000
"""Entries of quarantine, gaps and ignored files that `Inputs` holds; all are counted."""
KEPT_WRITERS = 100
"""Writers that verdict.json names."""
PATTERNS = ("journal-*.jsonl", "journal-*.jsonl.gz", ".journal-*.jsonl.open")


class BadInput(Exception):
    """There is nothing to judge: no such file, no segment, or too much that is malformed."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A line that is no event; line 0 is the whole file."""

    file: str
    line: int
    reason: str
    raw: str = ""
    """Its first 4 KB."""


@dataclass(slots=True)
class Segment:
    """One file."""

    file: str
    node: str = ""
    boot: str = ""
    run: str = ""
    clock: str = ""
    clock_error_us: int = 0
    sampling: int = 1
    first_s: int = -1
    last_s: int = -1
    lines: int = 0
    """Events that were read from it, second copies included."""
    state: str = "open"
    """`closed`, `open` (its writer did not end it, or not yet) or `damaged`."""
    is_final: bool = False
    torn: bool = False
    """Its last line was cut off."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Events `first`..`last` of a node and boot that are in no file."""

    node: str
    boot: str
    first: int
    last: int


@dataclass(slots=True)
class Inputs:
    """What was read, and what speaks against it. Complete when the reader is exhausted."""

    segments: list[Segment] = field(default_factory=list)
    events: int = 0
    duplicates: int = 0
    """Events that were read before: the same segment in two files."""
    lines: int = 0
    """All lines but first and last ones of segments."""
    quarantined: int = 0
    """Lines and files, torn ends of open segments included."""
    quarantine: list[Quarantined] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    missing: int = 0
    """Events in gaps."""
    is_whole: bool = True
    """Each writer that noted operations has ended its history."""
    problems: list[str] = field(default_factory=list)
    """What makes the evidence incomplete, as sentences."""
    ignored: list[str] = field(default_factory=list)
    """Files whose names are not those of segments."""
    unknown_fields: dict[str, int] = field(default_factory=dict)
    one_clock: bool = True
    """All writers shared a monotonic clock."""
    clock_error_ns: int = 0
    """Bound of the error between clocks; 0 on one clock, UNBOUNDED if it is not known."""

    @property
    def harmful(self) -> int:
        """What is in quarantine and might have been evidence: a line that was never whole was never
        relied on.
        """
        return self.quarantined - sum(
            segment.torn and segment.file.endswith(".open") for segment in self.segments
        )

    def is_all(self, progress: str) -> bool:
        """Whether what was read is all there will be, of a run that is `ended`, `ending` or
        `running`.
        """
        return progress == "ended" or (progress == "ending" and self.is_whole)

    def as_json(self) -> dict[str, Any]:
        """Return the `inputs` of verdict.json."""
        states = [segment.state for segment in self.segments]
        return {
            "segments": {state: states.count(state) for state in ("closed", "open", "damaged")},
            "writers": self._writers()[:KEPT_WRITERS],
            "torn": sum(segment.torn for segment in self.segments),
            "events": self.events,
            "duplicates": self.duplicates,
            "quarantined": self.quarantined,
            "quarantine": [asdict(entry) for entry in self.quarantine[:20]],
            "gaps": [asdict(gap) for gap in self.gaps[:20]],
            "missing": self.missing,
            "problems": self.problems[:KEPT],
            "ignored": self.ignored[:20],
            "unknown_fields": self.unknown_fields,
            "clock": {"one": self.one_clock, "error_ns": self.clock_error},
        }

    @property
    def clock_error(self) -> int | None:
        """Bound of the error between clocks, or None if it is not known."""
        return None if self.clock_error_ns == UNBOUNDED else self.clock_error_ns

    def compare(self, clocks: Iterable[tuple[str, int]], asked_ns: int | None) -> None:
        """Say how far clocks may be apart: of (name, bound in µs or 0) of each segment, or as asked
        for in ns.
        """
        bounds: dict[str, int] = {}
        is_known = True
        for name, error_us in clocks:
            bounds[name] = max(bounds.get(name, 0), error_us * 1000)
            is_known = is_known and error_us > 0
        self.one_clock = len(bounds) <= 1
        if self.one_clock:
            self.clock_error_ns = 0
        elif asked_ns is not None:
            self.clock_error_ns = asked_ns
        elif is_known:
            # Each may be wrong against UTC by its bound, one ahead and the other behind.
            self.clock_error_ns = min(sum(sorted(bounds.values())[-2:]), UNBOUNDED)
        else:
            self.clock_error_ns = UNBOUNDED
            self.problems.append(
                f"{len(bounds)} clocks and no bound of the error between them, so their "
                "times are in no order: "
                "say how far they may be apart with --clock-error SECONDS"
            )

    def _writers(self) -> list[dict[str, Any]]:
        """Return who wrote, by name and start."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for segment in self.segments:
            key = (segment.node, segment.boot)
            writer = found.setdefault(
                key, {"node": segment.node, "boot": segment.boot, "run": segment.run, "segments": 0}
            )
            writer["segments"] += 1
        return [found[key] for key in sorted(found) if key[0]]


class Numbers:
    """A set of numbers that come nearly in order, as intervals."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.ends: list[int] = []
        self._at = -1

    def add(self, number: int) -> bool:
        """Add a number; whether it is new."""
        at = self._at
        if at < 0 or number != self.ends[at] + 1:
            at = bisect_right(self.begins, number) - 1
            if at >= 0 and number <= self.ends[at]:
                return False
            if at < 0 or number != self.ends[at] + 1:
                at += 1
                self.begins.insert(at, number)
                self.ends.insert(at, number)
        self.ends[at] = number
        if at + 1 < len(self.begins) and self.begins[at + 1] == number + 1:
            self.ends[at] = self.ends.pop(at + 1)
            self.begins.pop(at + 1)
        self._at = at
        return True

    def gaps(self) -> Iterator[tuple[int, int]]:
        """Yield what lies between the intervals."""
        for end, begin in zip(self.ends, self.begins[1:], strict=False):
            yield end + 1, begin - 1


def unicode(text: object) -> str:
    """Return any text, or the name of a file, as one that can be stored and printed: bytes that are
    not UTF-8 become their numbers.
    """
    return str(text).encode(errors="backslashreplace").decode()


def find(paths: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """Return the segments in files and directories (at any depth), and the names of files that are
    none; by name.
    """
    found: dict[Path, None] = {}
    ignored: list[str] = []
    for path in paths:
        if path.is_dir():
            files = sorted(each for each in path.rglob("*") if each.is_file())
            found |= dict.fromkeys(
                each for each in files if any(each.match(pattern) for pattern in PATTERNS)
            )
            ignored += [unicode(each) for each in files if each not in found]
        elif path.exists():
            found[path] = None
        else:
            raise BadInput(f"{path}: no such file or directory")
    return sorted(found, key=lambda path: (path.name.lstrip("."), str(path))), ignored


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_decode = json.JSONDecoder(parse_constant=_refuse).raw_decode


def parse(line: bytes) -> tuple[Any, str]:
    """Return what a line holds, and why it is no JSON text that can be kept, or nothing."""
    try:
        text = line.decode().strip(" \t\r\n")
        if not text:
            return None, "empty line"
        value, end = _decode(text)
        if end != len(text):
            return None, "not JSON"
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        return None, "not UTF-8"
    except RecursionError:
        return None, "nested too deeply"
    except ValueError:
        return None, "not JSON"
    return value, ""


MOST_RUNS = 10
"""Runs that are named where the one that was asked for is not there."""


def no_such_run(run: str, others: Iterable[str]) -> str:
    """Say that a run is not in the files, and which are."""
    found = ", ".join(repr(other) for other in list(others)[:MOST_RUNS])
    return f"no run {run!r}: the files hold {found or 'no operation of any run'}"


def is_loss(event: Event) -> bool:
    """Whether a `drop` event tells of events that are missing: that a broker removed its oldest
    segments is in order.
    """
    return not str(event.get("x", "")).startswith("removed ")


class Reader:
    """All events of segments in files and directories; iterate over it once."""

    def __init__(
        self,
        paths: Iterable[Path],
        *,
        set_aside: Callable[[Quarantined], None] | None = None,
        clock_error_ns: int | None = None,
    ) -> None:
        """Find the files and read their first lines; `set_aside` is told of every line that goes to
        quarantine.

        `clock_error_ns` is the bound between the clocks of any two hosts; None: what the first
        lines say.
        """
        self.inputs = Inputs()
        self.files, self.inputs.ignored = find(paths)
        if not self.files:
            raise BadInput("no segments: files named journal-<node>-<boot>-<number>.jsonl")
        self._set_aside = set_aside
        self._seen: dict[tuple[str, str], Numbers] = {}
        self._with_operations: set[tuple[str, str]] = set()
        self._clock_error_ns = clock_error_ns
        self._survey()

    def __iter__(self) -> Iterator[Event]:
        for path in self.files:
            yield from self._file(path)
        self._complete()

    def _survey(self) -> None:
        """Learn from the first lines whether all writers share a clock: every comparison of times
        needs that first.
        """
        clocks: list[tuple[str, int]] = []
        for path in self.files:
            try:
                with _opened(path) as file:
                    head = _head(file.readline(LINE_BYTES))
            except (OSError, EOFError, zlib.error):
                continue
            if head is not None:
                clocks.append((head.clock, head.clock_error_us))
        self.inputs.compare(clocks, self._clock_error_ns)

    def _put_aside(self, path: Path, line: int, reason: str, raw: bytes = b"") -> None:
        entry = Quarantined(unicode(path), line, reason, raw[:RAW_BYTES].decode(errors="replace"))
        self.inputs.quarantined += 1
        if len(self.inputs.quarantine) < KEPT:
            self.inputs.quarantine.append(entry)
        if self._set_aside is not None:
            self._set_aside(entry)

    def _file(self, path: Path) -> Iterator[Event]:
        if path.name.endswith(".open") and not path.exists():
            path = path.with_name(path.name[1 : -len(".open")])  # it was closed since it was found
        segment = Segment(unicode(path))
        self.inputs.segments.append(segment)
        try:
            if path.suffix == ".gz":
                _test_compressed(path)
            with _opened(path) as file:
                yield from self._segment(path, file, segment)
        except (OSError, EOFError, zlib.error) as error:
            segment.state = "damaged"
            self._put_aside(path, 0, f"cannot be read: {error}")

    def _segment(self, path: Path, file: BinaryIO, segment: Segment) -> Iterator[Event]:
        first = file.readline(LINE_BYTES)
        head = _head(first)
        if head is None:
            segment.state = "damaged"
            self._put_aside(
                path,
                min(len(first), 1),
                f"does not begin as a segment of format {FORMAT}" if first else "empty file",
                first,
            )
            return
        for name in ("node", "boot", "run", "clock", "clock_error_us", "sampling"):
            setattr(segment, name, getattr(head, name))
        seen = self._seen.setdefault((segment.node, segment.boot), Numbers())
        crc, number, ended = zlib.crc32(first), 1, False
        while line := file.readline(LINE_BYTES):
            number += 1
            before, crc = crc, zlib.crc32(line, crc)
            if not line.endswith(b"\n"):
                raw = line
                while not line.endswith(b"\n") and (line := file.readline(LINE_BYTES)):
                    crc = zlib.crc32(line, crc)
                segment.torn = not line
                self.inputs.lines += not segment.torn
                self._put_aside(
                    path,
                    number,
                    "longer than an event can be" if len(raw) >= LINE_BYTES else "cut off",
                    raw,
                )
                continue
            value: Any = None
            reason = "after the end of the segment"
            if not ended:
                value, reason = parse(line)
            if (
                not reason
                and type(value) is dict
                and value.get("k") == "segment"
                and value.get("end") is True
            ):
                ended = True
                self._ended(segment, value, before)
                continue
            self.inputs.lines += 1
            unknown: tuple[str, ...] = ()
            if not reason:
                reason, unknown = examine(value)
            if reason or (value["n"] != segment.node or value["b"] != segment.boot):
                self._put_aside(path, number, reason or "of another writer than its segment", line)
            elif self._is_new(value, segment, seen):
                for key in unknown:
                    self.inputs.unknown_fields[key] = self.inputs.unknown_fields.get(key, 0) + 1
                yield value
        if not ended and not path.name.endswith(".open"):
            segment.state = "damaged"
            self.inputs.problems.append(
                f"{segment.file}: it is named as a closed segment, and its end is missing"
            )

    def _is_new(self, event: Event, segment: Segment, seen: Numbers) -> bool:
        """Count an event; whether it was not read before."""
        number = event["s"]
        segment.lines += 1
        if number > segment.last_s:
            segment.last_s = number
        if number < segment.first_s or segment.first_s < 0:
            segment.first_s = number
        if not seen.add(number):
            self.inputs.duplicates += 1
            return False
        self.inputs.events += 1
        kind = event["k"]
        if kind == "op":
            self._with_operations.add((segment.node, segment.boot))
        elif kind == "drop" and is_loss(event):
            self.inputs.problems.append(
                f"{segment.node} {segment.boot}: it did not write {event['cnt']} events"
            )
        return True

    def _ended(self, segment: Segment, tail: Event, crc: int) -> None:
        """Compare a segment with what its last line says."""
        segment.state = "closed"
        segment.is_final = tail.get("final") is True
        if tail.get("crc32") != crc:
            segment.state = "damaged"
            self.inputs.problems.append(f"{segment.file}: the checksum is wrong")
        if tail.get("lines") != segment.lines:
            segment.state = "damaged"
            self.inputs.problems.append(
                f"{segment.file}: it holds {segment.lines} events and its last line says "
                f"{tail.get('lines')}"
            )

    def _complete(self) -> None:
        """Look for what is missing between and after the segments."""
        inputs = self.inputs
        for (node, boot), numbers in sorted(self._seen.items()):
            gaps = list(numbers.gaps())
            if numbers.begins and numbers.begins[0] > 0:
                # A broker deletes its oldest segments when they take too much space; nobody deletes
                # those of a client.
                if (node, boot) in self._with_operations:
                    gaps.insert(0, (0, numbers.begins[0] - 1))
            inputs.gaps += [
                Gap(node, boot, first, last) for first, last in gaps[: KEPT - len(inputs.gaps)]
            ]
            missing = sum(last - first + 1 for first, last in gaps)
            inputs.missing += missing
            if missing:
                inputs.problems.append(f"{node} {boot}: {missing} events are missing")
        for (node, boot), segments in sorted(self._of_operations().items()):
            inputs.is_whole = inputs.is_whole and any(segment.is_final for segment in segments)
            if not any(segment.is_final or segment.state != "closed" for segment in segments):
                inputs.problems.append(f"{node} {boot}: its last segment is missing")
        for segment in inputs.segments:
            if segment.sampling != 1:
                inputs.problems.append(
                    f"{segment.file}: it holds one message in {segment.sampling}"
                )
        if inputs.harmful:
            inputs.problems.append(f"{inputs.harmful} lines or files are in quarantine")

    def _of_operations(self) -> dict[tuple[str, str], list[Segment]]:
        """Return the segments of each writer that noted operations."""
        found: dict[tuple[str, str], list[Segment]] = {}
        for segment in self.inputs.segments:
            if (segment.node, segment.boot) in self._with_operations:
                found.setdefault((segment.node, segment.boot), []).append(segment)
        return found


def _opened(path: Path) -> BinaryIO:
    """Open a file for reading, unpacked."""
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _test_compressed(path: Path) -> None:
    """Raise if a file cannot be unpacked to its end: part of a file would look like the whole."""
    with gzip.open(path, "rb") as file:
        while file.read(LINE_BYTES):
            pass


def _head(line: bytes) -> Segment | None:
    """Return what the first line of a segment says, or None if it is not one."""
    value, reason = parse(line)
    if (
        reason
        or type(value) is not dict
        or value.get("k") != "segment"
        or value.get("v") != FORMAT
        or type(value.get("v")) is not int
    ):
        return None
    node, boot, run = value.get("n"), value.get("b"), value.get("run", "")
    clock, error, sampling = (
        value.get("clock", value.get("host", "")),
        value.get("clock_error_us", 0),
        value.get("sampling", 1),
    )
    if not all(type(each) is str for each in (node, boot, run, clock)) or not all(
        type(each) is int for each in (error, sampling)
    ):
        return None
    return Segment("", str(node), str(boot), str(run), str(clock), error, sampling)
