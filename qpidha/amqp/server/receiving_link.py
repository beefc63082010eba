"""What links on which a client sends have in common: credit, and acceptance when it is committed.

A delivery counts as used up when it has its outcome, so a peer can never have more than the window
of deliveries in our hands. How many it may have on its way is its allowance: the window, or less
where less can be taken. Half an allowance that was used up is given again at once.

A delivery is never settled before its outcome is known, whichever side ends the link: the engine
would settle it without one when the link is freed, and some clients take that for accepted. So a
peer's detach is answered when everything has its outcome, and a link that failed is kept until
then. Must not know what is sent. Source: AMQP 1.0 sections 2.6.7 and 2.6.12.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.amqp.peer.links import settle, update
from qpidha.amqp.peer.terminus import ACCEPTED, OUTCOME_NAMES, Pointer
from qpidha.amqp.server.client_link import ClientLink
from qpidha.model.errors import QpidHaError

if TYPE_CHECKING:
    from qpidha.amqp.peer.links import LinkEnd
    from qpidha.amqp.peer.terminus import PeerError
    from qpidha.amqp.server.host import LinkHome


class TransferLimitExceeded(QpidHaError):
    """The peer sent more than it had credit for."""

    condition = "amqp:link:transfer-limit-exceeded"


class ReceivingLink(ClientLink):
    """A link on which a peer sends at most `window` deliveries ahead of their outcomes."""

    __slots__ = ("_closing", "_half", "_line", "_outcomes", "_pending", "_used", "_window")

    def __init__(self, served: LinkHome, end: LinkEnd, *, outcomes: list[str], window: int) -> None:
        super().__init__(served, end)
        self._line = end
        """Our end of it, also after it has ended."""
        self._closing: bool | None = None
        """Whether the peer closes the link or only detaches, once it has ended it and waits for us;
        None before.
        """
        self._window = window
        self._half = (window + 1) // 2
        """With so many used up credit is given again."""
        self._pending = 0
        """Deliveries that wait until what they asked for is committed."""
        self._used = 0
        # A source that lists its outcomes must get no other.
        self._outcomes = [
            name for name in OUTCOME_NAMES.values() if not outcomes or name in outcomes
        ]

    def on_committed(self, delivery: Pointer) -> None:
        """Accept a delivery: what it asked for is committed."""
        if self._line.pointer is None:
            return  # The session or connection is gone.
        update(delivery, ACCEPTED)
        settle(delivery)
        self._pending -= 1
        if self.end is None:
            if not self._pending:
                self._line.release()
        elif self._closing is None:
            self._use()
        elif not self._pending:
            super().detached(self._closing, None)
        self._connection.wake()

    def detached(self, closed: bool, error: PeerError | None) -> None:
        """The peer ended the link: so do we, when all that came has its outcome."""
        if self._pending:
            self._closing = closed
        else:
            super().detached(closed, error)

    def fail(self, error: QpidHaError) -> None:
        """End the link, telling the peer why."""
        self._line.waits = self._pending > 0
        super().fail(error)

    def fail_at(self, delivery: Pointer, error: QpidHaError) -> None:
        """End the link because of a delivery, which is not taken."""
        if self.end is not None:
            self.end.give_back(delivery)
        self.fail(error)

    def flowed(self) -> None:
        """Ignore what a sender says of how much it has."""

    def _pass_over(self, delivery: Pointer) -> None:
        """Take a settled transfer with nothing in it for what it is. Proton sends one for each
        delivery whose outcome came with the end of the connection before: it settles them late.
        """
        settle(delivery)
        self._use()

    def _use(self) -> None:
        self._used += 1
        if self._used >= self._half:
            self._top_up()

    def _allowance(self) -> int:
        """Return how many deliveries the peer may have on its way; 0 if it has to wait until
        `_top_up` is called.
        """
        return self._window

    def _top_up(self) -> None:
        """Give the peer the credit that it lacks of its allowance."""
        end = self.end
        if end is None or self._closing is not None:
            return
        allowance = self._allowance()
        self._used = 0
        self._half = (allowance + 1) // 2 or self._window
        more = min(allowance, self._window - self._pending) - end.credit()
        if more > 0 and allowance:  # Who has sent without credit, and is to wait, gets none back.
            end.flow(more)

    def _has(self, outcome: int) -> bool:
        """Whether the sender's source can have an outcome."""
        return OUTCOME_NAMES[outcome] in self._outcomes
