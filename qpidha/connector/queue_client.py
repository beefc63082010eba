"""What the inbox and the outbox share: when a client of queues cannot go on, and how the thread that uses it learns why."""

from __future__ import annotations

import threading
from typing import Any

from proton import Event

from qpidha.connector.failover_client import FailoverClient
from qpidha.connector.options import Options
from qpidha.words.errors import QpidHaError

HEARTBEAT = 5.0
"""Seconds; a broker that says nothing for so long is given up."""
FINAL = ("amqp:not-found", "amqp:unauthorized-access", "amqp:not-allowed", "amqp:resource-deleted", "amqp:not-implemented",
         "amqp:link:message-size-exceeded", "amqp:invalid-field", "amqp:resource-locked")  # fmt: skip
"""Conditions that trying again will not change."""


class ConnectorFailure(QpidHaError):
    """A read or a write cannot go on."""


class QueueClient(FailoverClient):
    """A client whose loop has a thread of its own; `_changed` guards what it shares with the thread that uses it."""

    RETRY = 0.1
    OPENING = 3.0

    def __init__(self, options: Options, queue: str) -> None:
        super().__init__(options.addresses, queue, heartbeat=HEARTBEAT, login=options.login())
        self._changed = threading.Condition()
        self._failure = ""

    def check_alive(self) -> None:
        """Raise ConnectorFailure if trying on is of no use."""
        if self._failure:
            raise ConnectorFailure(self._failure)
        if not self.loop.is_alive:
            raise ConnectorFailure("the AMQP client ended by a fault of its own; see the log of this process")

    def refused(self, link: Any) -> str:
        """What a broker that ends the link refuses, for people."""
        raise AssertionError("a client of queues has links")

    def on_link_error(self, event: Event) -> None:
        """Give up if the link will not be had by trying again."""
        self._end_if_final(event, event.link.remote_condition, self.refused(event.link))
        super().on_link_error(event)

    def on_transport_error(self, event: Event) -> None:
        """Give up if the broker lets nobody in by this login."""
        self._end_if_final(event, event.transport.condition, "the login")
        super().on_transport_error(event)

    def _end_if_final(self, event: Event, condition: Any, refused: str) -> None:
        if event.connection == self.connection and condition is not None and condition.name in FINAL:
            self._fail(f"the broker at {self.dialled} refuses {refused}: {condition.name}: {condition.description}")

    def _fail(self, why: str) -> None:
        with self._changed:
            self._failure = self._failure or why
            self._changed.notify_all()
