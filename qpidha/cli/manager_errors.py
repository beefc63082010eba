"""What a resource manager raises, as failures of a command with the right exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qpidha.client.command.exits import Failure, failure_of
from qpidha.manager.tool_runner import ToolFailed, ToolForbidden
from qpidha.model.errors import InvalidArgument, QpidHaError
from qpidha.model.exit_codes import NO, NO_PERMISSION, UNAVAILABLE, USAGE


@contextmanager
def manager_failures() -> Iterator[None]:
    """Turn what the manager's room raises into failures."""
    try:
        yield
    except ToolForbidden as error:
        raise Failure(NO_PERMISSION, error.text, hint=error.hint) from error
    except ToolFailed as error:
        raise Failure(NO if error.code else UNAVAILABLE, error.text, hint=error.hint) from error
    except InvalidArgument as error:
        raise Failure(USAGE, error.text, hint=error.hint) from error
    except QpidHaError as error:
        raise failure_of(error) from error
