"""What the other end of a link is asked by its management, which only a qpidha has.

Must not know what is asked. Source: the working draft AMQP Management 1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from qpidha.model.message_view import application_properties, body, build, properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from qpidha.amqp.peer.connection import Connection
    from qpidha.amqp.peer.service_link import ServiceLink

OWN_PRODUCT = "qpidha"
MANAGEMENT = "$management"
MOST_ASKED = 100
"""Requests that have no answer yet, at most."""


class Asker(Protocol):
    """Who asks."""

    def refused_by_management(self, method: str, why: str) -> None:
        """The other end does not do what it is asked."""


class Management:
    """The two links to the management of the other end; they end with their connection."""

    def __init__(self, asker: Asker, connection: Connection, name: str) -> None:
        self._asker = asker
        self._answers = f"{name}.answers"
        self._asked: dict[str, tuple[str, Callable[[Any], None] | None]] = {}
        self._last = 0
        self._links = (
            connection.attach(MANAGEMENT, sender=True, service=self, name=f"{name}.ask"),
            connection.attach(
                MANAGEMENT, sender=False, service=self, name=self._answers, max_size=1 << 20
            ),
        )

    @property
    def is_free(self) -> bool:
        """Whether another request may be made."""
        return len(self._asked) < MOST_ASKED

    def ask(
        self, method: str, params: dict[str, Any], then: Callable[[Any], None] | None = None
    ) -> None:
        """Ask for something; `then` is called with the answer, and who asks hears of a refusal."""
        self._last += 1
        identity = f"{method}-{self._last}"
        self._asked[identity] = (method, then)
        fields = {"message_id": identity, "to": MANAGEMENT, "reply_to": self._answers}
        request = build(params, properties=fields, application_properties={"operation": method})
        self._links[0].send(request)

    def close(self) -> None:
        """End both links."""
        for link in self._links:
            link.close()

    def attached(self, link: ServiceLink) -> None:
        """One of them is there."""

    def credited(self, link: ServiceLink) -> None:
        """More can be sent."""

    def received(self, link: ServiceLink, payload: bytes) -> None:
        """An answer came."""
        asked = self._asked.pop(str(properties(payload).get("correlation_id")), None)
        if asked is None:
            return
        method, then = asked
        told = application_properties(payload)
        status = told.get("statusCode")
        if not isinstance(status, int) or not 200 <= status < 300:
            text = told.get("statusDescription")
            self._asker.refused_by_management(method, text if isinstance(text, str) else "")
        elif then is not None:
            then(body(payload))

    def detached(self, link: ServiceLink) -> None:
        """One of them is gone."""
        if link.error is not None:
            self._asker.refused_by_management("the link to it", link.error.explanation)
