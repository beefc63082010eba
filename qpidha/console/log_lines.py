"""Lines of the console's log, which is its standard error. Knows nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable

Log = Callable[[str], None]


def log_line(text: str) -> None:
    """Write a line of the log."""
    sys.stderr.write(f"qpidha-console: {text}\n")
    sys.stderr.flush()
