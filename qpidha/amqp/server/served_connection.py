"""A served connection: what a broker does with the connection of a peer.

It owns the connection, answers the attaches of the peer, and keeps what the links of one connection
share: the bytes of this turn, the links that wait for room or give credit back, and the open
transactions. Source: AMQP 1.0 sections 2.6.7 and 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.amqp.peer.connection import Connection
from qpidha.amqp.server.answers import Answers
from qpidha.amqp.server.attaching import attach_link
from qpidha.amqp.server.open_transactions import OpenTransactions
from qpidha.model.ip import neighbourhood
from qpidha.model.principal import ANONYMOUS, without_realm

if TYPE_CHECKING:
    from qpidha.amqp.peer.channels import Retiring
    from qpidha.amqp.peer.links import LinkEnd
    from qpidha.amqp.server.host import Host
    from qpidha.amqp.server.outgoing import OutgoingLink
    from qpidha.model.events import ConnectionKind


class ServedConnection:
    """What a broker keeps of one connection."""

    __slots__ = (
        "_backlog",
        "answers",
        "connection",
        "draining",
        "host",
        "out_of_turn_budget",
        "outgoing",
        "transactions",
        "turn_bytes",
    )

    def __init__(
        self,
        connection_id: int,
        host: Host,
        *,
        kind: ConnectionKind,
        peer: str,
        identity: str = "",
        encrypted: bool = False,
        local_host: str = "",
        trusted_host: bool = False,
    ) -> None:
        self.host = host
        self.turn_bytes = 0
        """Bytes of messages handed to the connection since output was last fetched."""
        self._backlog = -1
        self.out_of_turn_budget: dict[OutgoingLink, None] = {}
        """Links that have credit of the peer's but none for the queue, until this connection or its
        session has room.
        """
        self.draining: dict[OutgoingLink, None] = {}
        """Links whose peer wants its credit used or given back."""
        self.outgoing: dict[OutgoingLink, None] = {}
        """Every link on which the peer receives."""
        self.transactions = OpenTransactions(host.broker.use)
        self.connection = Connection(
            connection_id,
            host,
            kind=kind,
            peer=peer,
            identity=identity,
            encrypted=encrypted,
            local_host=local_host,
            trusted_host=trusted_host,
            owner=self,
        )
        self.answers = Answers(self.connection, host.broker)

    @property
    def is_in_use(self) -> bool:
        """Whether the peer consumes messages or has open transactions."""
        return bool(self.outgoing or len(self.transactions))

    def holder(self) -> str:
        """Say who is there: a user, or whoever comes from an address where nobody logs in."""
        principal = self.connection.principal
        name = without_realm(principal.name, self.host.settings.realm)
        if name in ("", ANONYMOUS):
            return f"clients at {neighbourhood(principal.address)}"
        return f"user {name}"

    def attach(self, end: LinkEnd) -> None:
        """Answer an attach of the peer."""
        attach_link(self, end)

    def peer_retires(self, retiring: Retiring) -> None:
        """See whether an outcome in a transaction was for deliveries that are there."""
        if retiring.is_told:
            self.transactions.retired(retiring)
        else:
            self.transactions.taken = 0

    def backlog(self) -> int:
        """Count the bytes that wait for the windows of the peer's sessions, once a turn."""
        if self._backlog < 0:
            self._backlog = self.connection.backlog()
        return self._backlog

    def before_output(self) -> None:
        """Give back the credit that the queues, dispatched by now, have no messages for."""
        if self.draining:
            draining, self.draining = self.draining, {}
            for link in draining:
                link.finish_drain()

    def after_output(self) -> None:
        """Begin the next turn: links that had no room for messages get another try."""
        self.turn_bytes = 0
        self._backlog = -1
        self.answers.go_on()
        if self.out_of_turn_budget:
            waiting, self.out_of_turn_budget = self.out_of_turn_budget, {}
            for link in waiting:
                link.refresh_credit()

    def congestion_changed(self) -> None:
        """Stop or resume handing messages to a peer that reads slower than it is written to."""
        self.answers.go_on()
        for link in self.outgoing:
            link.refresh_credit()

    def finished(self) -> None:
        """Give up what the connection owned."""
        self.answers.finished()
        self.host.broker.owner_gone(self.connection)
