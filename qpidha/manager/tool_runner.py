"""Pacemaker's tools: runs one as a child process, and tells of a failure with the command and what
it said.

Knows nothing of what the tools are asked.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

from qpidha.model.errors import QpidHaError

PATIENCE = 60.0
"""Seconds for a tool that changes something; pcs itself may take seconds where the machine is busy.
"""
QUICK = 5.0
"""Seconds for a tool that only tells."""
PLACES = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Where the tools are even if the user's PATH does not say so."""


UNREACHABLE = ("Connection refused", "Transport endpoint is not connected", "unable to get cib")
"""What the tools say when they find no Pacemaker."""


class ToolFailed(QpidHaError):
    """A tool said no, or did not end in time."""

    def __init__(self, text: str, *, hint: str = "", code: int = 0) -> None:
        super().__init__(text, hint=hint)
        self.code = code
        """Its exit code; 0 if it had none."""


class ToolMissing(ToolFailed):
    """The tool is not installed."""


class ToolForbidden(ToolFailed):
    """Only root may run the tool."""


def run(*words: str, timeout: float = PATIENCE) -> str:
    """Run a tool and return what it printed; raise ToolFailed for any other end than 0."""
    command = shlex.join(words)
    path = os.pathsep.join([os.environ.get("PATH", ""), *PLACES])
    program = shutil.which(words[0], path=path)
    if program is None:
        raise ToolMissing(
            f"{words[0]} is not installed here",
            hint=f"install the package that has {words[0]} on this node",
        )
    environment = {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"}
    try:
        ended = subprocess.run(
            [program, *words[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(
            f"`{command}` did not end within {timeout:g} s", hint="pcs status"
        ) from error
    except OSError as error:
        raise ToolFailed(
            f"`{command}` cannot be run: {error.strerror}", hint=f"look at {program}"
        ) from error
    if ended.returncode != 0:
        said = " ".join((ended.stderr or ended.stdout).split()) or "it printed nothing"
        if any(words in said for words in UNREACHABLE):
            who = "" if os.geteuid() == 0 else ", or not for this user"
            hint = "pcs cluster start; or again with sudo" if who else "pcs cluster start"
            raise ToolFailed(
                f"Pacemaker does not run on this node{who}: `{command}` says {said}", hint=hint
            )
        raise ToolFailed(
            f"`{command}` failed with exit code {ended.returncode}: {said}",
            hint=_advice(said),
            code=ended.returncode,
        )
    return ended.stdout


def pcs_version() -> tuple[int, ...]:
    """Return the version of this machine's pcs, such as (0, 11, 5); empty where there is none, or
    none that says it.
    """
    try:
        said = run("pcs", "--version", timeout=QUICK)
    except ToolFailed:
        return ()
    numbers = said.strip().partition("+")[0].split(".")
    return (
        tuple(int(number) for number in numbers)
        if all(number.isdigit() for number in numbers)
        else ()
    )


def need_root(what: str) -> None:
    """Raise ToolForbidden for everybody but root."""
    if os.geteuid() != 0:
        raise ToolForbidden(f"{what} needs root", hint="again with sudo")


def _advice(said: str) -> str:
    if "is not installed or does not provide valid metadata" in said and ":qpidha:" in said:
        return "qpid-ha pacemaker install-agents on every node"
    return "run it by hand; pcs status shows the cluster"
