"""Documents: the fenced blocks of README and docs, and how the sessions in them are run.

A block's language tag says what it is. `console` (a session: `$ command` and what it prints), `sh`
and `python` are run by a test. A block that cannot be run here (it needs root, a second machine, or
what only one test makes) names the test that plays it, in a comment on the line before:
`<!-- played by tests/lab/test_scenarios.py -->`. `figure`, `output` and formats of files are read.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import STATE

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
RUN = ("console", "sh", "python")
READ = ("figure", "output", "ini", "toml", "json", "xml", "java", "javascript", "csharp", "cpp")
FAILED = "@! failed"
FENCE = re.compile(r"^(?P<indent> *)```(?P<tag>\S*)$")
PLAYED_BY = re.compile(r"^\s*<!-- played by (\S+) -->$")
PORTS = {"2700": (1, 2, 3), "2567": (2, 3, 4)}
"""The first four digits of ports that documents use -> the last digits."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    tag: str
    text: str
    played_by: str = ""

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One command of a session, and the lines that it is said to print."""

    text: str
    printed: list[str]


def blocks(page: Path, text: str | None = None) -> list[Block]:
    """Return the fenced blocks of a page."""
    found: list[Block] = []
    lines = (page.read_text() if text is None else text).splitlines()
    start, tag, indent = -1, "", ""
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if start < 0 and fence is not None:
            start, tag, indent = number, fence["tag"], fence["indent"]
        elif start >= 0 and line.strip() == "```":
            body = "\n".join(each.removeprefix(indent) for each in lines[start + 1 : number])
            before = PLAYED_BY.match(lines[start - 1]) if start else None
            found.append(Block(page, start + 1, tag, body, before[1] if before else ""))
            start = -1
    return found


def commands(session: str) -> list[Command]:
    """Read a session: a command goes on while its lines end with a backslash."""
    found: list[Command] = []
    goes_on = False
    for line in session.splitlines():
        if goes_on:
            found[-1] = Command(f"{found[-1].text}\n{line}", [])
            goes_on = line.endswith("\\")
        elif line.startswith("$ "):
            found.append(Command(line[2:], []))
            goes_on = line.endswith("\\")
        elif line.strip():
            found[-1].printed.append(line)
    return found


NUMBER = re.compile(r"\d[\d,.]*(?=\D|$)")
GROUPED = re.compile(r"\d{1,3}(,\d{3})+,?")
UNGROUPED = re.compile(r"\d{4,}[,.]?")


def plain(line: str) -> str:
    """Return a line without what differs from run to run: numbers, and the width of columns."""
    return re.sub(r"\s+", " ", NUMBER.sub("0", line)).strip()


def same_form(one: str, other: str) -> bool:
    """Whether large numbers of two lines are written in one way: 15,000 is not 15000."""
    return not any(
        (GROUPED.fullmatch(a) and UNGROUPED.fullmatch(b))
        or (UNGROUPED.fullmatch(a) and GROUPED.fullmatch(b))
        for a, b in zip(NUMBER.findall(one), NUMBER.findall(other), strict=False)
    )


def missing(printed: list[str], actual: str) -> list[str]:
    """Return the lines that are said to be printed, and are not there, in this order.

    One that ends with `...` says how a line begins.
    """
    absent = []
    left = actual.splitlines()
    for line in printed:
        wanted, is_begin = plain(line.removesuffix("...")), line.endswith("...")
        for place, each in enumerate(left):
            found = plain(each).startswith(wanted) if is_begin else plain(each) == wanted
            if found and same_form(line, each):
                del left[: place + 1]
                break
        else:
            absent.append(line)
    return absent


def run(found: list[Block], folder: Path, *, seconds: float = 4 * STATE) -> list[str]:
    """Run the blocks of one page, one after the other in one shell; return what is not as written.

    Whatever they leave running is ended.
    """
    steps: list[Command] = []
    for block in found:
        if block.tag == "console":
            steps += commands(block.text)
            continue
        text = block.text
        if block.tag == "python":
            text = f"{shlex.quote(sys.executable)} - <<'END'\n{text}\nEND"
        # A command of a session may be meant to fail, and shows what it prints; a program may not.
        steps.append(Command(f"{text}\n[ $? = 0 ] || echo '{FAILED}'", []))
    script = "".join(f"echo '@@ {index}'\n{step.text}\n" for index, step in enumerate(steps))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_RUNTIME_DIR": str(folder),
        "HOME": str(folder),
        "COLUMNS": "200",
    }
    for name in ("examples", ".venv"):
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    with replaced_ports() as replaced:
        for digits, ports in replaced.items():
            script = re.sub(rf"\b{digits}(?=\d|\$|\[)", ports, script)
        shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        try:
            actual, _ = shell.communicate(script, timeout=seconds)
        finally:
            subprocess.run(["pkill", "-9", "-s", str(shell.pid)], check=False)
    actual = actual.replace(str(folder), "/tmp/qpidha")
    pieces = re.split(r"^@@ \d+\n", actual, flags=re.MULTILINE)[1:]
    wrong = [
        f"$ {step.text}\nis said to print: {line}\nprinted:\n{piece}"
        for step, piece in zip(steps, pieces, strict=False)
        for line in missing(step.printed, piece)
    ]
    wrong += [f"{piece}\nfailed" for piece in pieces if FAILED in piece]
    wrong += [f"$ {step.text}\nwas not reached" for step in steps[len(pieces) :]]
    return wrong


def held(ports: list[int]) -> list[socket.socket]:
    """Hold ports of this machine, none if one of them is taken.

    What is bound and does not listen keeps a port from whoever looks for a free one; a daemon may
    bind it, since both say SO_REUSEADDR then.
    """
    found: list[socket.socket] = []
    for port in ports:
        found.append(socket.socket())
        try:
            found[-1].bind(("127.0.0.1", port))
        except OSError:
            for one in found:
                one.close()
            return []
        found[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return found


@contextmanager
def replaced_ports() -> Iterator[dict[str, str]]:
    """Yield other first digits for the ports of documents; all those ports are held meanwhile."""
    found: dict[str, str] = {}
    with ExitStack() as stack:
        for digits, lasts in PORTS.items():
            for first in range(2100 + os.getpid() % 700, 3200):
                if sockets := held([first * 10 + last for last in lasts]):
                    for one in sockets:
                        stack.enter_context(one)
                    found[digits] = str(first)
                    break
        yield found
