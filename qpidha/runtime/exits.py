"""Exits: why the daemon could not start, with the exit code that tells init systems."""

from __future__ import annotations

from qpidha.model.errors import QpidHaError
from qpidha.model.event_codes import CANNOT_START
from qpidha.model.exit_codes import CANNOT_CREATE, NO_PERMISSION


class CannotStart(QpidHaError):
    """The daemon does not start; the text says what and why, the hint what to do next."""

    scope = "broker"
    event_code = CANNOT_START

    def __init__(self, text: str, *, hint: str, code: int, event_code: str = "") -> None:
        super().__init__(text, hint=hint, event_code=event_code)
        self.code = code


def code_of(error: OSError) -> int:
    """The exit code for an error of the operating system."""
    return NO_PERMISSION if isinstance(error, PermissionError) else CANNOT_CREATE


def reason_of(error: OSError) -> str:
    """What went wrong, without the errno and the file name that the text around it gives
    already.
    """
    return (error.strerror or str(error)).lower()
