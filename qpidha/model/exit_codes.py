"""Exit codes of the daemon and of the commands.

A failure to ask never looks like the answer no. Source: the historic tools (0, 1, 2), sysexits.h
(64 and up), Pacemaker (107), shells (130). Imports nothing.
"""

from __future__ import annotations

OK = 0
NO = 1
"""The answer is no, or a program ended for a reason that no other code names."""
USAGE = 2
"""The command line is wrong."""
DATA_ERROR = 65
"""A file of the write-ahead log or the state file is damaged or gone."""
NO_INPUT = 66
"""A file that was named cannot be read."""
UNAVAILABLE = 69
"""Nobody answers, or a port, socket or data directory is in use."""
SOFTWARE = 70
"""An internal error."""
CANNOT_CREATE = 73
"""A file cannot be made."""
IO_ERROR = 74
"""The disk failed: the state or the write-ahead log cannot be kept; or output is not written."""
TIMED_OUT = 75
"""It did not happen in time; it may succeed later."""
NO_PERMISSION = 77
"""The user may not do this."""
CONFIG = 78
"""A setting, or a file that a setting names, cannot be used."""
NOT_CONFIRMED = 107
"""Messages would be lost, and there was no terminal to ask at."""
INTERRUPTED = 130
"""Ended by ^C."""
