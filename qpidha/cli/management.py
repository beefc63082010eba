"""Management over AMQP: the same questions as on an admin socket, asked of a broker anywhere through `$management`."""

from __future__ import annotations

from typing import Any

from qpidha.cli.arguments import Options
from qpidha.cli.client import Client, Inbox, Lost, Outbox
from qpidha.cli.exits import DENIED, Failure, refused
from qpidha.cli.target import Target
from qpidha.words.message_view import application_properties, body, build, properties

ADDRESS = "$management"
CONDITIONS = {401: "amqp:unauthorized-access", 403: "amqp:not-allowed", 404: "amqp:not-found", 409: "amqp:precondition-failed"}
"""Status code -> AMQP error condition, as far as exit codes depend on it."""

ADMINISTRATOR = "log in as the user that ha-username names"


class AmqpManagement:
    """A conversation with one broker over AMQP."""

    def __init__(self, target: Target, options: Options) -> None:
        self._is_admin = True
        try:
            self._client = Client(target, options, admin=True)
        except Failure as failure:
            self._is_admin = False
            # Where users log in, administrators are those that the brokers know each other by; all may use a primary.
            if failure.code != DENIED or not target.user:
                raise
            try:
                self._client = Client(target, options)
            except Failure as second:
                raise _no_administrator(second, failure, target) from None
        self._requests: Outbox | None = None
        self._answers: Inbox | None = None
        self._last = 0

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Ask and return the result; a refusal is a Failure. A ping is answered by the connection itself."""
        if method == "ping":
            return {}
        if self._requests is None or self._answers is None:
            self._requests = self._client.sender(ADDRESS)
            self._answers = self._client.receiver(ADDRESS)
        requests, answers = self._requests, self._answers
        assert answers.link is not None
        self._last += 1
        asked = f"{method}-{self._last}"
        fields = {"message_id": asked, "to": ADDRESS, "reply_to": answers.link.name}
        number = requests.send(build(dict(params or {}), properties=fields, application_properties={"operation": method}))
        self._client.wait(lambda: bool(answers.messages) or number in requests.outcomes, f"the answer to {method}")
        if not answers.messages:
            error = requests.outcomes[number].error
            raise refused(error.condition if error else "", f"{method}: {error.description if error else 'refused'}", "")
        try:
            return _result(answers.messages.popleft(), asked)
        except Failure as failure:
            if failure.code == DENIED and not self._is_admin:
                failure.hint = ADMINISTRATOR
            raise

    def close(self) -> None:
        """Hang up."""
        self._client.close()


def _no_administrator(failure: Failure, denied: Failure, target: Target) -> Failure:
    """Tell a user who may use a primary only where that is; others were denied already when they came as administrators."""
    if not isinstance(failure, Lost) or failure.condition != "amqp:connection:redirect" or not failure.servers:
        return denied
    text = f"{target} is a backup, which user {target.user} may not ask; the primary is {failure.servers[0]}"
    return Failure(DENIED, text, hint=f"-b {failure.servers[0]}, or {ADMINISTRATOR}", condition=denied.condition)


def _result(payload: bytes, asked: str) -> Any:
    status = application_properties(payload)
    code = int(status.get("statusCode", 500))
    if properties(payload).get("correlation_id") != asked:
        raise Failure(1, "the broker answered another request than ours", hint="again")
    if code >= 400:
        text, _, hint = str(status.get("statusDescription", "refused")).partition("; ")
        raise refused(CONDITIONS.get(code, ""), text, hint)
    return body(payload)
