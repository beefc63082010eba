"""From qpidd: what a site's qpidd.conf and its acl-file mean to this broker, line by line.

Each line gets a verdict by the very tables and readers with which a daemon starts, so that what is
said here is what happens. Then come options that are not in the file and have another default, what
the broker would say when it starts, and what this cluster survives. Source: qpidha/model/qpidd.py.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from qpidha.management.acl_file import read as read_acl
from qpidha.model.choices import choice_text
from qpidha.model.errors import InvalidArgument
from qpidha.model.exit_codes import CONFIG, NO, OK
from qpidha.model.paths import SYSTEM_DATA
from qpidha.model.qpidd import QPIDD, QpiddOption
from qpidha.model.settings import DEFAULTS, FIELD_OF, OPTIONS, Settings, load_with_origins
from qpidha.model.sources import OLD_NAMES, Line, lines_of, why_ignored
from qpidha.runtime.access_list import resolve
from qpidha.runtime.exits import CannotStart

IN_LINE = re.compile(r" ?\(line (\d+) of [^)]*\)")
"""How messages name a line of the file."""
OUTSIDE = {"no-data-dir": "data-dir", "trace": "log-enable"}
"""Words that are taken as qpidd takes them, and the options that they set."""


class Verdict(StrEnum):
    """What becomes of a line."""

    SAME = "same"
    RENAMED = "renamed"
    DIFFERS = "differs"
    DEFAULT = "default"
    IGNORED = "ignored"
    WARNING = "warning"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is to be known of a line, or of what has none."""

    place: str
    verdict: Verdict
    subject: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """All that was found, and what the cluster is then."""

    findings: list[Finding]
    settings: Settings | None
    """None where they cannot be told."""

    @property
    def code(self) -> int:
        """The exit code: 78 if the broker would not start, 1 if anything is otherwise, else 0."""
        verdicts = {finding.verdict for finding in self.findings}
        if Verdict.REFUSED in verdicts:
            return CONFIG
        return OK if verdicts <= {Verdict.SAME, Verdict.RENAMED} else NO

    def text(self) -> str:
        """Write a table, the cluster's line, and how many there are of each verdict."""
        rows = [("LINE", "VERDICT", "OF QPIDD", "REMARK")]
        rows += [(each.place, each.verdict, each.subject, each.remark) for each in self.findings]
        widths = [min(max(len(row[at]) for row in rows), 44) for at in range(3)]
        lines = []
        for row in rows:
            cells = "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False))
            lines.append(f"{cells}  {row[3]}".rstrip())
        if self.settings is not None and self.settings.ha_cluster:
            lines += [
                "",
                choice_text(self.settings),
                "qpidd goes on with one broker of any number; docs/choices.md compares the ways",
            ]
        counts = [
            f"{number} {verdict}"
            for verdict in Verdict
            if (number := sum(each.verdict is verdict for each in self.findings))
        ]
        return "\n".join([*lines, "", ", ".join(counts) or "nothing is in it"]) + "\n"


def judge(path: str, text: str, options: Sequence[str]) -> Judgement:
    """Judge a qpidd.conf, with further options of a command line. Raises CannotStart."""
    try:
        lines = list(lines_of(text, path))
    except InvalidArgument as error:
        raise CannotStart(error.text, hint=error.hint, code=CONFIG) from error
    findings = [_of_line(line) for line in lines]
    refused = {each.place for each in findings if each.verdict is Verdict.REFUSED}
    # Without the lines that are wrong by themselves, so that the rest is looked at, too.
    kept = {line.number: line.content for line in lines if str(line.number) not in refused}
    whole = "\n".join(kept.get(number, "") for number in range(1, 1 + max(kept, default=0)))
    settings, said = _as_a_whole(path, whole, options)
    given = {OLD_NAMES.get(line.name, line.name) for line in lines}
    findings += _defaults(given | {OUTSIDE[name] for name in OUTSIDE if name in given})
    findings += said
    values = {line.name: line for line in lines}
    if "acl-file" in values:
        realm = values["realm"].value if "realm" in values else "QPID"
        data_dir = values["data-dir"].value if "data-dir" in values else ""
        findings += _of_acl(values["acl-file"], posixpath.dirname(path), data_dir, realm)
    return Judgement(findings, settings)


def _of_line(line: Line) -> Finding:
    """Judge a line by itself."""
    place, known = str(line.number), QPIDD.get(line.name, QpiddOption())
    name = OLD_NAMES.get(line.name, line.name)
    secret = name in OPTIONS and OPTIONS[name].secret
    shown = f"{line.name}={'(secret)' if secret else line.value}"
    if "#" in line.value:
        cut = "qpidd ends the line at #: there the value is shorter"
        return Finding(place, Verdict.DIFFERS, shown, cut)
    if name in OUTSIDE:
        return Finding(place, Verdict.SAME, shown)
    reason = why_ignored(name)
    if reason is not None:
        return Finding(place, Verdict.IGNORED, shown, known.note or reason)
    if name not in OPTIONS:
        return Finding(
            place, Verdict.REFUSED, shown, "it is no option of this broker: leave it out"
        )
    if line.name not in QPIDD:
        return Finding(place, Verdict.DIFFERS, shown, "it is an option of this broker alone")
    kind = OPTIONS[name].kind
    try:
        is_good, why = kind.check(kind.parse(line.value)), "it is out of range"
    except ValueError as error:
        is_good, why = False, str(error)
    if not is_good:
        return Finding(place, Verdict.REFUSED, shown, f"{why}; it takes {kind.accepts}")
    if name != line.name:
        return Finding(place, Verdict.RENAMED, shown, f"{name}={line.value}")
    if known.note and _is_otherwise(name, line.value):
        return Finding(place, Verdict.DIFFERS, shown, known.note)
    return Finding(place, Verdict.SAME, shown)


def _is_otherwise(name: str, value: str) -> bool:
    """Whether a value is one for which the note of an option holds."""
    if name == "link-heartbeat-interval":
        return "." in value or value.endswith(("ms", "us", "ns"))
    if name == "acl-file":
        return not value.startswith("/")
    if name == "log-enable":
        return ":" in value
    if name == "require-encryption":
        return value.lower() in ("yes", "true", "on", "1")
    return bool(value)


def _defaults(given: set[str]) -> Iterator[Finding]:
    """Name what is not given and is something else without."""
    for name, known in QPIDD.items():
        if name in given:
            continue
        if name in OPTIONS and known.default:
            kind, ours = OPTIONS[name].kind, DEFAULTS[FIELD_OF[name]]
            if kind.parse(known.default) != ours:
                shown = kind.show(ours) or (SYSTEM_DATA if name == "data-dir" else "none")
                remark = f"here {shown}" + (f": {known.note}" if known.note else "")
                yield Finding("-", Verdict.DEFAULT, f"{name}={known.default}", remark)
                continue
        if known.is_missed:
            shown = f"{name}={known.default}" if known.default else name
            yield Finding("-", Verdict.DEFAULT, shown, known.note)


def _as_a_whole(
    path: str, text: str, options: Sequence[str]
) -> tuple[Settings | None, list[Finding]]:
    """Say what the broker would say of all of it when it starts."""
    refusals = []
    for together in (True, False):
        try:
            settings, warnings, _ = load_with_origins(
                [(path, text)], {}, options, together=together, data_dir=SYSTEM_DATA
            )
        except InvalidArgument as error:
            refusals.append(_refusal(error))
            continue
        worries = [each for each in warnings if not IN_LINE.search(each)]
        warned = [Finding("-", Verdict.WARNING, "", each) for each in worries]
        return settings, refusals[:1] + warned
    return None, refusals[:1]


def _refusal(error: InvalidArgument) -> Finding:
    """Say which line a message is about, and what it says."""
    found = IN_LINE.search(error.text)
    name, colon, why = IN_LINE.sub("", error.text).partition(": ")
    subject, remark = (name, why) if colon else ("", name)
    hint = f". Next: {error.hint}" if error.hint else ""
    return Finding(found[1] if found else "-", Verdict.REFUSED, subject, f"{remark}{hint}")


def _of_acl(line: Line, folder: str, data_dir: str, realm: str) -> Iterator[Finding]:
    """Judge each line of an acl-file, which qpidd looks for in its data-dir."""
    path = posixpath.join(folder, line.value)
    text = _read(path)
    if text is None:
        there = posixpath.join(data_dir, line.value)
        text = _read(there) if data_dir else None
        why = f"there is no {path} that can be read: give its whole path"
        if text is not None:
            why = f"a relative path is relative to this file's folder: write acl-file={there}"
        yield Finding(str(line.number), Verdict.REFUSED, f"acl-file={line.value}", why)
    if text is None:
        return
    name = posixpath.basename(path)
    _, troubles = read_acl(text, realm=realm, path=path, resolve=_addresses)
    wrong = {trouble.line: trouble for trouble in troubles}
    is_continued = False
    for number, content in enumerate(text.split("\n"), 1):
        content = " ".join(content.split())
        if number in wrong:
            trouble = wrong[number]
            verdict = Verdict.REFUSED if trouble.is_error else Verdict.DIFFERS
            yield Finding(f"{name}:{number}", verdict, content, trouble.text)
        elif content and not content.startswith("#") and not is_continued:
            yield Finding(f"{name}:{number}", Verdict.SAME, content.removesuffix("\\").rstrip())
        is_continued = content.endswith("\\")


def _addresses(name: str) -> list[str]:
    """Return the addresses of a host; none where nobody can tell now, as on another network."""
    try:
        return resolve(name)
    except CannotStart:
        return []


def _read(path: str) -> str | None:
    """Read an acl-file; None if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return None
