"""The policy-file, read for the node.

Must not know what a policy says.
"""

from __future__ import annotations

from qpidha.management.policy_file import read
from qpidha.model.errors import RefusedRequest
from qpidha.model.exit_codes import CONFIG
from qpidha.model.records import PolicySet
from qpidha.model.settings import Settings
from qpidha.runtime.exits import CannotStart, reason_of


def load_policies(settings: Settings) -> list[PolicySet]:
    """The policies of the policy-file, none if there is no such file. Raises CannotStart."""
    path = settings.policy_file
    if not path:
        return []
    try:
        with open(path, encoding="utf-8") as file:
            return read(file.read())
    except OSError as error:
        raise CannotStart(
            f"policy-file {path} cannot be read: {reason_of(error)}",
            hint="give its whole path",
            code=CONFIG,
        ) from error
    except RefusedRequest as error:
        raise CannotStart(
            f"policy-file {path}: {': '.join(filter(None, (error.text, error.reason)))}",
            hint=error.hint,
            code=CONFIG,
        ) from error
    except ValueError as error:
        raise CannotStart(
            f"policy-file {path}: {error}",
            hint="it is to be what qpid-ha policy list -o json prints",
            code=CONFIG,
        ) from error
