"""Answers: what waits for one peer of what services have to tell it, and how much that may be.

Answers are small as a rule and go at once; but one repeats what its request says, and a peer that
asks without reading, be its session's window closed or its link without credit, makes as many as it
likes. So no more are handed to the connection than of messages, the rest waits in its link; who
has that many waiting gets no more credit for requests, and with a good deal more its requests are
refused before anything is done. All of it counts as memory in use. Brokers ask and answer each
other without this. Knows no service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.broker.credit import MEMORY_LIMIT
from qpidha.model.errors import LimitExceeded

if TYPE_CHECKING:
    from qpidha.amqp.peer.connection import Connection
    from qpidha.amqp.peer.host import AnswerLink
    from qpidha.amqp.peer.links import SessionEnd
    from qpidha.broker.broker import Broker

AT_ONCE = 4 << 20
"""Bytes that may be on their way to one peer, where there is no limit of the memory."""


class Answers:
    """What waits for one connection."""

    __slots__ = ("_backlog", "_connection", "_credit", "_held", "_links", "_use")

    def __init__(self, connection: Connection, broker: Broker) -> None:
        self._connection = connection
        self._use = broker.use
        self._credit = broker.credit
        self._held = self._backlog = 0
        """Bytes that wait in links and services, and in sessions."""
        self._links: dict[AnswerLink, None] = {}
        """Links that were held back."""

    @property
    def _at_once(self) -> int:
        return min(AT_ONCE, self._use.peer_share)

    def count(self, size: int) -> None:
        """So many bytes came to wait in a link or a service, or have left if it is below 0."""
        self._held += size
        self._use.answers += size
        if size < 0 and self._links:
            self._connection.wake()

    def check(self) -> None:
        """Refuse a request while too much waits for whoever asks."""
        waiting = self._held + self._backlog
        is_short = MEMORY_LIMIT in self._credit.withheld
        if waiting > (self._at_once if is_short else self._use.answers_share):
            raise LimitExceeded(
                f"{waiting} bytes of answers wait on this connection",
                hint="receive them before more is asked",
            )

    def may_send(self, link: AnswerLink, session: SessionEnd) -> bool:
        """Whether an answer may be handed to the connection; a link that may not hears when that is
        worth asking again. A session with an open window goes on whatever others have.
        """
        if not self._connection.congested and (
            self._backlog < self._at_once or not session.backlog()
        ):
            return True
        self._links[link] = None
        return False

    def handed(self, session: SessionEnd, size: int) -> None:
        """An answer of so many bytes was handed to the connection."""
        session.answers += size
        self._note(self._connection.backlog(answers=True))

    def may_ask(self, link: AnswerLink) -> bool:
        """Whether a link may have credit for more requests; one that may not hears again."""
        if self._held + self._backlog < self._at_once:
            return True
        self._links[link] = None
        return False

    def go_on(self) -> None:
        """Output was fetched, or the peer reads again: let the links go on that were held back."""
        if self._backlog:
            self._note(self._connection.backlog(answers=True))
        if self._links:
            links, self._links = self._links, {}
            for link in links:
                link.go_on()

    def _note(self, backlog: int) -> None:
        self._use.answers += backlog - self._backlog
        self._backlog = backlog

    def finished(self) -> None:
        """Nothing waits in the connection any more."""
        self._note(0)
        self._links.clear()
