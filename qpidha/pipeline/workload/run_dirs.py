"""Runs: where a demo or a benchmark leaves its files, and what becomes of those of earlier runs.

Nothing is removed that we did not write: a directory is ours only if every entry bears a name that
a run gives.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

from qpidha.client.admin import AdminSocket, LinkBroken, LinkDenied
from qpidha.client.command.exits import Failure
from qpidha.client.command.target import state_directory
from qpidha.model.exit_codes import NO

KEPT = 5
"""Runs that stay under the default directory."""
NAMED = re.compile(r"\d{8}-\d{6}")
"""What `default_directory` calls a run."""
RESULTS = (
    "result.json",
    "timeline.svg",
    "events.jsonl",
    "clients.log",
    "accepted.bin",
    "received.bin",
)
CLUSTER = (
    "cluster.json",
    "cluster.new",
    "in-sync.json",
    "in-sync.new",
    "manager.log",
    "manager.lock",
    "manager.sock",
)
BROKER = re.compile(r"b[1-9]")
LONGEST = 107 - len("/b1/admin.sock")
"""Bytes in the name of a cluster's directory: the system takes no longer name of a socket."""


def home(kind: str) -> Path:
    """The directory of all runs of a kind: within QPIDHA_DIR, else beside the local cluster in the
    user's state directory.
    """
    state = Path(state_directory())
    return (state if os.environ.get("QPIDHA_DIR") else state.parent) / kind


def default_directory(kind: str) -> Path:
    """Where the files of a run go unless told otherwise."""
    return home(kind) / time.strftime("%Y%m%d-%H%M%S")


def prune(kind: str, latest: Path) -> None:
    """Remove all but the newest runs under the default directory, if the latest one is there."""
    if latest.parent != home(kind):
        return
    runs = sorted(
        path
        for path in latest.parent.iterdir()
        if NAMED.fullmatch(path.name) and not path.is_symlink() and path.is_dir()
    )
    for run in runs[:-KEPT]:
        if not _strange(run, inner="cluster") and not _serving(run):
            shutil.rmtree(run, ignore_errors=True)


def renew(directory: Path) -> None:
    """Make room for a demo: empty the directory of an earlier one; refuse one that holds anything
    else.
    """
    if len(os.fsencode(directory)) > LONGEST:
        hint = "--dir with a shorter one; with make: make demo DEMO_DIR=/tmp/demo"
        raise Failure(
            NO,
            f"{directory} is too long a name for the brokers' sockets: at most {LONGEST} bytes",
            hint=hint,
        )
    if not directory.exists():
        return
    if not directory.is_dir():
        raise Failure(
            NO,
            f"{directory} is not a directory",
            hint="--dir names a new or empty directory, or that of an earlier demo",
        )
    entries = list(directory.iterdir())
    if not entries:
        return
    problem = _not_a_demo(directory)
    if problem:
        raise Failure(
            NO,
            f"{directory} is not empty, and not of an earlier demo: {problem}",
            hint="another --dir, or remove it yourself",
        )
    serving = _serving(directory)
    if serving:
        raise Failure(
            NO,
            f"{directory} is of a demo that still runs: {serving} answers",
            hint="another --dir, or end it first",
        )
    for entry in entries:
        if _is_directory(entry):
            shutil.rmtree(entry)
        else:
            entry.unlink()


def brief(path: str | Path) -> str:
    """Name a path as a person in this directory would."""
    try:
        return str(Path(path).relative_to(Path.cwd())) or "."
    except (ValueError, OSError):
        return str(path)


def program() -> str:
    """The words that start `qpid-ha` again, from this directory."""
    started = Path(sys.argv[0])
    if shutil.which("qpid-ha"):
        return "qpid-ha"
    if started.name == "qpid-ha":
        return brief(started.absolute())
    return f"{brief(sys.executable)} -m qpidha.cli.main"


def _not_a_demo(directory: Path) -> str:
    """Say why a directory is not that of an earlier demo; empty if it is."""
    strange = _strange(directory)
    if strange:
        return f"it holds {', '.join(strange[:3])}"
    for name, key, value in (("cluster.json", "name", "demo"), ("result.json", "fault", None)):
        try:
            content = json.loads((directory / name).read_text())
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return f"{name} cannot be read"
        if not isinstance(content, dict) or key not in content or value not in (None, content[key]):
            return f"{name} is of something else"
    if not any((directory / name).exists() for name in ("result.json", *CLUSTER)):
        return "it has no result.json and no cluster.json"
    return ""


def _strange(directory: Path, *, inner: str = "") -> list[str]:
    """Name the entries that no run makes; `inner` is a directory in which a run keeps its
    cluster.
    """
    found = []
    for entry in sorted(directory.iterdir()):
        if entry.name == inner and _is_directory(entry):
            found += [f"{inner}/{name}" for name in _strange(entry)]
        elif _is_directory(entry) != bool(BROKER.fullmatch(entry.name)) or not (
            _is_directory(entry) or entry.name in (*RESULTS, *CLUSTER)
        ):
            found.append(entry.name)
    return found


def _is_directory(entry: Path) -> bool:
    return entry.is_dir() and not entry.is_symlink()


def _serving(directory: Path) -> str:
    """Name a manager or broker in a directory that takes connections; empty if there is none."""
    for path in (*directory.glob("**/manager.sock"), *directory.glob("**/admin.sock")):
        try:
            AdminSocket(str(path), 1.0).close()
        except LinkDenied:
            pass  # Somebody else's, and it may be alive.
        except LinkBroken:
            continue
        return str(path.relative_to(directory))
    return ""
