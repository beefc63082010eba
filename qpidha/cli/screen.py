"""Screen: what is shown again and again, on a terminal in place, elsewhere one after the other.

A terminal gets its other screen, so that what stood there is there again afterwards, whatever ends
the command. What does not fit is counted. Knows no command.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO

from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import talk
from qpidha.model.exit_codes import INTERRUPTED, OK
from qpidha.model.printable import printable_lines

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The other screen without a cursor, and back."""
HOME, LINE_END, REST = "\x1b[H", "\x1b[K", "\x1b[J"
LEAST_SECONDS = 0.1


def watch(
    options: Options, title: str, look: Callable[[], object], *, seconds: float, count: int = 0
) -> int:
    """Show what `look` prints every so many seconds, until interrupted, or so often. Raises the
    Failure of the first look; a later one is told, and it goes on: a primary may be gone for a
    moment.
    """
    seconds = max(seconds, LEAST_SECONDS)
    looks = 0
    with _screen() as show:
        while True:
            began = time.monotonic()
            text, failure = _looked(look, is_alone=show is not None)
            if failure is not None and not looks:
                raise failure
            if show is not None:
                at = time.strftime("%H:%M:%S")
                told = f"\nerror: {failure.explanation}" if failure is not None else ""
                show(f"{title}   every {seconds:g} s   {at}   q to leave{told}\n\n{text}")
            elif failure is not None:
                talk(options, f"error: {failure.explanation}")
            else:
                if looks and not options.as_json and options.output != "jsonl":
                    print()
                print(text, end="", flush=True)
            looks += 1
            if looks == count:
                return OK
            if _is_left(max(0.0, began + seconds - time.monotonic()), show is not None):
                return OK


def _looked(look: Callable[[], object], *, is_alone: bool) -> tuple[str, Failure | None]:
    """Return what a look prints, and why it could not be. What it says beside belongs to it where
    it is alone on a screen.
    """
    text = StringIO()
    try:
        with redirect_stdout(text), redirect_stderr(text if is_alone else sys.stderr):
            if look() == INTERRUPTED:
                raise KeyboardInterrupt  # The parser of the command has taken it.
    except Failure as failure:
        return text.getvalue(), failure
    return text.getvalue(), None


@contextmanager
def _screen() -> Iterator[Callable[[str], None] | None]:
    """Take the terminal for the block, and give what shows a text there; None if there is none."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "") in ("", "dumb"):
        yield None
        return
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _keys():
        try:
            sys.stdout.write(ENTER)
            yield _show
        finally:
            signal.signal(signal.SIGTERM, former)
            sys.stdout.write(LEAVE)
            sys.stdout.flush()


@contextmanager
def _keys() -> Iterator[None]:
    """Have keys come one by one, without being shown."""
    if not sys.stdin.isatty():
        yield
        return
    termios, tty = import_module("termios"), import_module("tty")
    former = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, former)


def _is_left(seconds: float, is_screen: bool) -> bool:
    """Wait so long; whether somebody pressed q meanwhile."""
    if not is_screen or not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and select.select([sys.stdin], [], [], left)[0]:
        if os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b""):
            return True
    return False


def _show(text: str) -> None:
    """Put a text in the place of the one before."""
    columns, rows = shutil.get_terminal_size()
    shown: list[str] = []
    left, lines = rows - 1, printable_lines(text).splitlines()
    for number, line in enumerate(lines):
        needed = max(1, -(-len(line) // columns))
        if needed > left - (number < len(lines) - 1):
            shown.append(f"... and {len(lines) - number:,} more lines")
            break
        shown.append(line)
        left -= needed
    sys.stdout.write(HOME + "".join(f"{line}{LINE_END}\n" for line in shown) + REST)
    sys.stdout.flush()
