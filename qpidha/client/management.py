"""Management over AMQP: the same questions as on an admin socket, asked of one broker anywhere
through `$management`.
"""

from __future__ import annotations

import os
from typing import Any

from qpidha.amqp.peer.terminus import hint_in
from qpidha.client.blocking import Client, Receiver, Sender
from qpidha.client.endpoint import Endpoint, Tls
from qpidha.client.errors import ClientError, ConnectError, LoginError, NotPrimary
from qpidha.client.message import Message
from qpidha.model.errors import NotServing, RefusedRequest

ADDRESS = "$management"
ADMINISTRATOR = "log in as the user that ha-username names"
"""What to do where only administrators may go on, and the broker does not say how to be one."""
UNAUTHORIZED = "amqp:unauthorized-access"
PAGE = 1000
"""Objects that are asked for at a time, where there may be many."""
NOT_SERVING = 503
"""Status code of a change that is asked of a broker which is not primary."""


class Conversation:
    """Questions to the broker that a client is connected to, and their answers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._links: tuple[Sender, Receiver] | None = None
        self._last = 0
        self._unanswered: set[object] = set()
        """The ids of requests whose answers have not come: a call that timed out leaves its id."""

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Ask and return the result. Raises ClientError if the broker does not serve,
        RefusedRequest for a no.
        """
        return self.operate(method, params)

    def pages(self, method: str, fields: str = "", match: str = "") -> list[dict[str, Any]]:
        """List objects that have names, in their order, a page at a time."""
        found: list[dict[str, Any]] = []
        asked = {"fields": fields, "match": match, "limit": PAGE}
        while True:
            after = {"after": found[-1]["name"]} if found else {}
            page = self.call(method, {**asked, **after})
            found += page
            if len(page) < PAGE:
                return found

    def objects(self, kind: str) -> list[dict[str, Any]]:
        """List the objects of a class under the names that AMQP management has for it."""
        found = self.operate("QUERY", entityType=kind)
        names = found["attributeNames"]
        return [dict(zip(names, row, strict=True)) for row in found["results"]]

    def operate(
        self, operation: str, params: dict[str, Any] | None = None, **properties: str
    ) -> Any:
        """Ask for an operation of AMQP management, or for a method, with these properties of the
        request beside.
        """
        if self._links is None:
            self._links = self._client.sender(ADDRESS), self._client.receiver(ADDRESS)
        requests, answers = self._links
        self._last += 1
        asked = f"{operation}-{self._last}"
        self._unanswered.add(asked)
        requests.send(
            Message(
                dict(params or {}),
                message_id=asked,
                to=ADDRESS,
                reply_to=answers.name,
                application_properties={"operation": operation, **properties},
            )
        )
        while True:
            answer = answers.receive()
            answer.accept()
            answered = answer.properties.correlation_id
            if answered not in self._unanswered:
                raise ClientError(
                    f"{self._client.endpoint} answered another request than ours", hint="again"
                )
            # An answer that came too late for its own call is not the answer to this one.
            self._unanswered.discard(answered)
            if answered == asked:
                return self._result(answer)

    @property
    def mechanism(self) -> str:
        """The SASL mechanism of the login."""
        return self._client.mechanism

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    @staticmethod
    def _result(answer: Message) -> Any:
        status = answer.application_properties
        code = int(status.get("statusCode", 500))
        if code < 400:
            return answer.body
        refused = (NotServing if code == NOT_SERVING else RefusedRequest)(
            str(status.get("statusDescription", "refused")),
            reason=str(status.get("reason", "")),
            hint=str(status.get("hint", "")),
            event_code=str(status.get("event_code", "")),
        )
        refused.condition = str(status.get("condition") or RefusedRequest.condition)
        raise refused


class AmqpManagement(Conversation):
    """A conversation with one broker over AMQP; `timeout` is in seconds for each answer, None waits
    for ever. Raises ClientError if the broker does not serve, RefusedRequest for a no.

    With `follow` the conversation goes on with the primary where this broker is a backup that
    changes nothing, or that the user may not ask.
    """

    def __init__(
        self, endpoint: Endpoint, *, tls: Tls | None, timeout: float | None, follow: bool = False
    ) -> None:
        self._endpoint = endpoint
        self._tls = tls
        self._timeout = timeout
        self._follows = follow
        self._is_admin = True
        self._denied, self._hint = "", ADMINISTRATOR
        """Why the broker does not take us for an administrator, and what to do then."""
        self._not_primary: NotPrimary | None = None
        """Why nothing but a ping is answered."""
        try:
            client = self._open({"qpid.ha-admin": True})
        except LoginError as denied:
            self._is_admin = False
            self._denied, self._hint = denied.reason, hint_in(denied.info) or self._hint
            # Not everybody is believed to be an administrator; all may use a primary.
            client = self._open_as_client(denied.condition)
            serving = client.endpoint
            if serving.place != endpoint.place and not follow:
                client.close()
                self._not_primary = NotPrimary(
                    f"{endpoint} is a backup, which {self._who} may not ask; the primary is "
                    f"{serving}",
                    reason=self._denied,
                    hint=f"-b {serving.url if endpoint.tls else serving}, or {self._hint}",
                    condition=denied.condition,
                )
        super().__init__(client)

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Ask and return the result. A ping is answered by the connection itself."""
        if method == "ping":
            return {}
        if self._not_primary is not None:
            raise self._not_primary
        try:
            return self._ask(method, params)
        except NotServing:
            if not self._follows or not self._is_admin or not self._go_to_primary():
                raise
        return self._ask(method, params)

    def _ask(self, method: str, params: dict[str, Any] | None) -> Any:
        try:
            return super().call(method, params)
        except RefusedRequest as refused:
            is_by_role = refused.condition == UNAUTHORIZED and "acl-file" not in refused.hint
            if is_by_role and not self._is_admin:
                refused.reason, refused.hint = refused.reason or self._denied, self._hint
            raise

    def _go_to_primary(self) -> bool:
        """Go where a backup sends clients; whether that leads anywhere. Only the broker knows which
        address of the primary a client can use.
        """
        try:
            client = self._open({}, follow=True)
        except ClientError:
            return False
        self._client.close()
        self._client, self._links, self._is_admin = client, None, False
        return True

    @property
    def _who(self) -> str:
        """Us, as the broker knows us."""
        return f"user {self._endpoint.user}" if self._endpoint.user else "an anonymous client"

    def _open_as_client(self, condition: str) -> Client:
        """Go to where clients are served, which is not here if this is a backup."""
        try:
            return self._open({}, follow=True)
        except ConnectError as error:
            if self._endpoint.user or isinstance(error, LoginError):
                raise
            raise ConnectError(
                error.text,
                reason=f"{error.reason}; {self._denied}",
                hint=f"-b with the address of the primary, or {self._hint}",
                condition=condition,
            ) from error

    def _open(self, properties: dict[str, Any], *, follow: bool = False) -> Client:
        client = Client(
            self._endpoint,
            tls=self._tls,
            timeout=self._timeout,
            reconnect_timeout=0.0,
            fail_fast=True,
            follow_redirects=follow,
            heartbeat=30.0,
            properties={
                "product": "qpid-ha",
                "qpid.client_process": "qpid-ha",
                "qpid.client_pid": os.getpid(),
                **properties,
            },
        )
        return client.open()
