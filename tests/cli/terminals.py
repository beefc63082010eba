"""Programs on a terminal of their own, with somebody who looks and presses keys."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.patience import STATE


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, words: list[str], columns: int, rows: int, **environment: str) -> None:
        self.main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(side)
        self.side = side
        # Those of pytest-xdist say another size than the terminal.
        surroundings = {
            name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
        }
        self.process = subprocess.Popen(
            words,
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
            preexec_fn=_settle,
            env={**surroundings, "TERM": "xterm", **environment},
        )
        self.shown = ""

    def see(self, text: str, times: int = 1) -> None:
        """Wait until a text was shown so often."""
        end = time.monotonic() + STATE
        while self.shown.count(text) < times:
            assert time.monotonic() < end, self.shown
            self.read()

    def read(self) -> None:
        if select.select([self.main], [], [], 0.1)[0]:
            self.shown += os.read(self.main, 65536).decode()

    def press(self, keys: bytes) -> None:
        os.write(self.main, keys)

    def end(self) -> int:
        """Wait for the end and return the exit code."""
        end = time.monotonic() + STATE
        while self.process.poll() is None:
            assert time.monotonic() < end, self.shown
            self.read()
        self.read()
        return self.process.returncode


def _settle() -> None:
    """Have the terminal as one's own, and Ctrl-C count: who started the tests may ignore it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def terminal(
    *words: str, columns: int = 60, rows: int = 20, **environment: str
) -> Iterator[Terminal]:
    found = Terminal([*words], columns, rows, **environment)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()
        os.close(found.main)
        os.close(found.side)
