"""Standard streams as a command needs them, whatever it was started with.

A closed one is replaced: otherwise the next file or socket gets its number, and what is said on
standard error would go to standard output.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from typing import TextIO


def mend_streams() -> None:
    """Replace standard streams that are closed, and write what the locale cannot show as escapes.

    Output that has nowhere to go is an error when it is written; errors are not.
    """
    opened = [os.open(os.devnull, os.O_RDWR)]
    while opened[-1] <= 2:  # The kernel gives the lowest number that is free.
        opened.append(os.open(os.devnull, os.O_RDWR))
    os.close(opened.pop())
    for fd in opened:
        os.set_inheritable(fd, True)
    if sys.stdin is None:
        sys.stdin = _stream(0, "r")
    if sys.stdout is None:
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 1)  # What is written there fails, as it does for other programs.
        os.close(nowhere)
        sys.stdout = _stream(1, "w")
    if sys.stderr is None:
        sys.stderr = _stream(2, "w")
    for stream in (sys.stdout, sys.stderr):
        # In the locale C it is surrogateescape, which has no escapes for letters.
        if isinstance(stream, TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def output_is_closed() -> bool:
    """Whether standard output was closed when the command began: then it is open for reading."""
    return fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY


def reader_is_gone() -> bool:
    """Whether whoever read standard output has gone, which a write would tell too late."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def silence_output() -> None:
    """Let what is still to be written to standard output go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _stream(fd: int, mode: str) -> TextIO:
    raw = FileIO(fd, mode, closefd=False)
    stream = BufferedReader(raw) if mode == "r" else BufferedWriter(raw)
    return TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace")
