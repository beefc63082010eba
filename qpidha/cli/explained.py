"""What a resource manager raises, as failures of a command with the right exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qpidha.cli.exits import DENIED, NO, UNREACHABLE, USAGE, Failure, refused
from qpidha.manager.pacemaker_tools import ToolFailed, ToolForbidden
from qpidha.words.errors import InvalidArgument, QpidHaError, RefusedRequest


@contextmanager
def explained() -> Iterator[None]:
    """Turn what the manager's room raises into failures."""
    try:
        yield
    except ToolForbidden as error:
        raise Failure(DENIED, error.text, hint=error.hint) from error
    except ToolFailed as error:
        raise Failure(NO if error.code else UNREACHABLE, error.text, hint=error.hint) from error
    except InvalidArgument as error:
        raise Failure(USAGE, error.text, hint=error.hint) from error
    except RefusedRequest as error:
        raise refused(str(error.info.get("condition") or error.condition), error.text, error.hint) from error
    except QpidHaError as error:
        raise Failure(UNREACHABLE, error.text, hint=error.hint or "qpid-ha status --all") from error
