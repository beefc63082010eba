"""Status codes: which HTTP status tells an error, in every window that has them.

401 is for a principal that is not known and would have to log in, 403 for one that is known and may
not; 503 says that another broker serves the request, now or soon. Source: RFC 9110 section 15.
"""

from __future__ import annotations

from qpidha.model.errors import NotServing, QpidHaError, Unauthorized
from qpidha.model.principal import ANONYMOUS, Principal

OK, CREATED, NO_CONTENT = 200, 201, 204
METHOD_NOT_ALLOWED = 405
STATUS_OF = {
    "amqp:invalid-field": 400,
    "amqp:not-allowed": 403,
    "amqp:resource-limit-exceeded": 403,
    "amqp:not-found": 404,
    "amqp:resource-deleted": 404,
    "amqp:precondition-failed": 409,
    "amqp:resource-locked": 409,
    "amqp:not-implemented": 501,
    "amqp:connection:forced": 503,
}
"""AMQP error condition -> status code; any other is 500."""

LONGEST_TEXT = 1000


def told(error: QpidHaError) -> str:
    """Return the text of an error without the rest of a very long name in it."""
    text = error.text
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


def status_of(error: QpidHaError, principal: Principal) -> int:
    """Return the status code for an error that `principal` is answered with."""
    if isinstance(error, Unauthorized):
        return 401 if principal.name in ("", ANONYMOUS) else 403
    if isinstance(error, NotServing):
        return 503
    return STATUS_OF.get(error.condition, 500)
