"""Transcripts of Qpid's tools: commands as scripts and documents have them, what they print, and
their exit codes in brackets. `$~` is before one that is called until it answers as written, and
then once more.

A command is run in this process, at the broker of the test unless it names one: `node1`, `node2`
are brokers of the test too. What differs from run to run is replaced by a word.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from difflib import unified_diff
from functools import partial
from importlib import import_module
from pathlib import Path

from qpidha.tools import qpid_config, qpid_route
from tests.system.cluster import wait_for

GOLDEN = Path(__file__).parent / "golden"
NAMES_A_BROKER = re.compile(r" (-b|--broker)|^qpid-config.* -a|^qpid-route")
DIFFERS = (
    (re.compile(re.escape(qpid_config.USAGE)), "USAGE"),
    (re.compile(re.escape(qpid_route.USAGE)), "USAGE\n"),
    (re.compile(r"127\.0\.0\.1       \d+ +"), "HOST PORT "),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"Try: types: [\w, .:]+"), "Try: types: TYPES"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}"), "WHEN"),
    (re.compile(r"\b(?:\d+m )?\d+s +"), lambda found: "0s".ljust(len(found[0]))),
)


def called(line: str, nodes: Mapping[str, str]) -> tuple[str, int]:
    """Run a command; return what it printed and its exit code."""
    words = shlex.split(line)
    if not NAMES_A_BROKER.search(line):
        words += ["-b", nodes["node1"]]
    words = [re.sub(r"\bnode\d\b", lambda found: nodes[found[0]], word) for word in words]
    main = import_module(f"qpidha.tools.{words[0].replace('-', '_')}").main
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            code = main(words[1:])
        except SystemExit as end:
            code = end.code
    return printed.getvalue(), code


def played(name: str, nodes: Mapping[str, str]) -> str:
    """Run the commands of a transcript and return it as it is now."""
    lines: list[str] = []
    written = (GOLDEN / name).read_text().splitlines()
    for number, line in enumerate(written):
        if line.startswith("#") or not line:
            lines.append(line)
        elif line.startswith(("$ ", "$~ ")):
            command = line.partition(" ")[2]
            answer = partial(_answer, command, nodes)
            if line.startswith("$~"):
                end = next(i for i in range(number, len(written)) if written[i].startswith("["))
                wait_for(answer, written[number + 1 : end + 1].__eq__, what=command)
            lines += [line, *answer()]
    return "\n".join(lines) + "\n"


def _answer(command: str, nodes: Mapping[str, str]) -> list[str]:
    """Return what a command prints, line by line, and its exit code."""
    printed, code = called(command, nodes)
    for pattern, word in DIFFERS:
        printed = pattern.sub(word, printed)
    return [*(f"> {each}".rstrip() for each in printed.splitlines()), f"[{code}]"]


def is_as_written(name: str, nodes: Mapping[str, str]) -> None:
    """Assert that a transcript says what happens."""
    now, written = played(name, nodes), (GOLDEN / name).read_text()
    assert now == written, "\n".join(unified_diff(written.splitlines(), now.splitlines()))
