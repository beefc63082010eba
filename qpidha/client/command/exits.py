"""Failures of commands: the one exception that carries an exit code, with what failed, why, and
what to do next.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from qpidha.client.admin import LinkDenied, LinkTimeout
from qpidha.client.errors import (
    KEY_PASSWORD,
    NO_TICKET,
    UNTRUSTED,
    WRONG_LOGIN,
    ClientError,
    ConnectError,
    LinkError,
    LoginError,
    MessageTooLarge,
    NotPrimary,
    TimedOut,
    TlsError,
    WrongProtocol,
)
from qpidha.model.errors import QpidHaError, RefusedRequest
from qpidha.model.exit_codes import DATA_ERROR, NO, NO_INPUT, NO_PERMISSION, TIMED_OUT, UNAVAILABLE
from qpidha.model.printable import printable_lines


class Failure(Exception):
    """A command cannot do what it was asked."""

    def __init__(
        self,
        code: int,
        text: str,
        *,
        reason: str = "",
        hint: str = "",
        condition: str = "",
        event_code: str = "",
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.reason = reason
        self.hint = hint
        self.condition = condition
        self.event_code = event_code

    @property
    def explanation(self) -> str:
        """What failed, and why."""
        return f"{self.text}: {self.reason}" if self.reason else self.text


def refused(
    condition: str, text: str, hint: str, reason: str = "", event_code: str = ""
) -> Failure:
    """Turn a broker's no into a failure with the right exit code."""
    code = NO_PERMISSION if condition == "amqp:unauthorized-access" else NO
    return Failure(code, text, reason=reason, hint=hint, condition=condition, event_code=event_code)


WAITING = "qpid-ha status --explain -b ADDR shows what a broker waits for; or a longer --timeout"
"""What to do where a broker is there and an answer is not."""


def failure_of(error: QpidHaError | ClientError) -> Failure:
    """Turn an error of the client's room into a failure with the right exit code."""
    if isinstance(error, ClientError):
        return _of_client(error)
    if isinstance(error, RefusedRequest):
        return refused(error.condition, error.text, error.hint, error.reason, error.event_code)
    if isinstance(error, LinkDenied):
        code, hint = NO_PERMISSION, "run it as the broker's user, or as root"
    elif isinstance(error, LinkTimeout):
        code, hint = TIMED_OUT, "a longer --timeout"
    else:
        code, hint = UNAVAILABLE, "qpid-ha local status, or name one with -b"
    return Failure(code, error.text, reason=error.reason, hint=error.hint or hint)


def _of_client(error: ClientError) -> Failure:
    """Turn an error of the AMQP client into a failure; hints name the options of commands."""
    code, hint = UNAVAILABLE, error.hint or "qpid-ha list"
    if isinstance(error, LinkError):
        hint = error.hint if error.condition != "amqp:not-found" else ""
        return refused(
            error.condition,
            error.text,
            hint or "qpid-ha queue list",
            error.reason,
            error.event_code,
        )
    if isinstance(error, MessageTooLarge):
        code, hint = NO, "smaller messages, or a larger max-message-size at the broker"
    elif isinstance(error, LoginError):
        code = NO_PERMISSION
        hint = "--user NAME, with the password in QPIDHA_PASSWORD or --password-file FILE"
        if error.hint == NO_TICKET:
            hint = error.hint
        elif error.hint == WRONG_LOGIN:
            hint = (
                "another user, password or --sasl-mechanism; qpid-ha user list FILE has the users"
            )
    elif isinstance(error, NotPrimary):
        code, hint = NO_PERMISSION, error.hint
    elif isinstance(error, TlsError) and error.__cause__ is not None:
        is_missing = isinstance(error.__cause__, FileNotFoundError | PermissionError)
        code, hint = NO_INPUT if is_missing else DATA_ERROR, "PEM files are needed"
        if error.hint == KEY_PASSWORD:
            hint = "--ssl-key-password-file FILE, whose first line is the password of the key"
    elif isinstance(error, TlsError):
        if error.hint in ("", UNTRUSTED):
            hint = "--ssl-trusted FILE, with the certificate of who signed the broker's"
    elif isinstance(error, TimedOut):
        code, hint = TIMED_OUT, WAITING
    elif error.hint.startswith(("amqp://", "amqps://")):
        hint = f"-b {error.hint.removesuffix(' as its address')}"
    elif isinstance(error, ConnectError) and error.condition.startswith("amqp:connection:"):
        hint = "name the addresses of all brokers, -b host1,host2,host3; or again in a moment"
    elif isinstance(error, WrongProtocol):
        hint = error.hint or "-b with the AMQP address of a broker, usually host:5672"
    elif isinstance(error, ConnectError):
        hint = error.hint or "is a broker running there? qpid-ha local status"
    return Failure(
        code,
        error.text,
        reason=error.reason,
        hint=hint,
        condition=error.condition,
        event_code=error.event_code,
    )


@contextmanager
def failures() -> Iterator[None]:
    """Turn what the client's room raises into failures."""
    try:
        yield
    except (QpidHaError, ClientError) as error:
        raise failure_of(error) from error


def report(failure: Failure, *, as_json: bool) -> int:
    """Tell of a failure on stderr and return its exit code."""
    try:
        if as_json:
            error = {
                "code": failure.code,
                "message": failure.text,
                "reason": failure.reason,
                "hint": failure.hint,
                "condition": failure.condition,
                "event_code": failure.event_code,
            }
            print(json.dumps({"error": error}), file=sys.stderr)
        else:
            hint = f". Try: {failure.hint}" if failure.hint else ""
            code = f" [{failure.event_code}]" if failure.event_code else ""
            print(printable_lines(f"error: {failure.explanation}{hint}{code}"), file=sys.stderr)
    except OSError:
        pass  # Nobody reads our errors; the code still says it.
    return failure.code
