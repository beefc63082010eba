"""Exits: why the daemon could not start or go on, as an exit code that init systems know (sysexits.h)."""

from __future__ import annotations

from qpidha.words.errors import QpidHaError

OK = 0
FAILED = 1
DATA_ERROR = 65
"""The journal is damaged, or the state file, or that is gone."""
UNAVAILABLE = 69
"""A port, socket or data directory is in use."""
SOFTWARE = 70
"""A rule of ours does not hold."""
CANNOT_CREATE = 73
IO_ERROR = 74
"""The disk failed: the state or the journal cannot be kept."""
NO_PERMISSION = 77
CONFIG = 78
"""A setting, or a file that a setting names, cannot be used."""


class CannotStart(QpidHaError):
    """The daemon does not start; the text says what and why, the hint what to do next."""

    scope = "broker"

    def __init__(self, text: str, *, hint: str, code: int) -> None:
        super().__init__(text, hint=hint)
        self.code = code


def code_of(error: OSError) -> int:
    """The exit code for an error of the operating system."""
    return NO_PERMISSION if isinstance(error, PermissionError) else CANNOT_CREATE


def reason_of(error: OSError) -> str:
    """What went wrong, without the errno and the file name that the text around it gives already."""
    return (error.strerror or str(error)).lower()
