"""Exit codes, and the one exception that carries one: what went wrong, why, and what to do next.

A failure to ask never looks like the answer no. Source: historic tools (0, 1, 2), sysexits.h (64 and up), Pacemaker (107).
"""

from __future__ import annotations

import json
import sys

OK = 0
NO = 1
USAGE = 2
BAD_DATA = 65
NO_INPUT = 66
UNREACHABLE = 69
BUG = 70
TIMED_OUT = 75
DENIED = 77
BAD_CONFIG = 78
UNSAFE = 107
INTERRUPTED = 130


class Failure(Exception):
    """A command cannot do what it was asked."""

    def __init__(self, code: int, text: str, *, hint: str = "", condition: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.hint = hint
        self.condition = condition


def refused(condition: str, text: str, hint: str) -> Failure:
    """Turn a broker's no into a failure with the right exit code."""
    code = DENIED if condition == "amqp:unauthorized-access" else NO
    return Failure(code, text, hint=hint, condition=condition)


def report(failure: Failure, *, as_json: bool) -> int:
    """Tell of a failure on stderr and return its exit code."""
    try:
        if as_json:
            error = {"code": failure.code, "message": failure.text, "hint": failure.hint, "condition": failure.condition}
            print(json.dumps({"error": error}), file=sys.stderr)
        else:
            hint = f". Try: {failure.hint}" if failure.hint else ""
            print(f"error: {failure.text}{hint}", file=sys.stderr)
    except OSError:
        pass  # Nobody reads our errors; the code still says it.
    return failure.code
