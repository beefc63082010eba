"""Coordinators: links on which a client declares and discharges transactions.

A transaction ends with the link that declared it, if not before. A commit is answered when all of
it is committed. What cannot be done is rejected and the link goes on; a rule broken ends the link,
and with it what was begun on it. Source: AMQP 1.0 section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.amqp.peer.links import is_settled, settle
from qpidha.amqp.peer.terminus import COORDINATOR, REJECTED, Pointer, Terminus
from qpidha.amqp.peer.transaction_wire import (
    CAPABILITIES,
    DECLARED,
    Declare,
    Discharge,
    read_control,
)
from qpidha.amqp.peer.values import reject, set_state
from qpidha.amqp.server.open_transactions import UnknownTransaction
from qpidha.amqp.server.receiving_link import ReceivingLink, TransferLimitExceeded
from qpidha.broker.transaction import TransactionRolledBack
from qpidha.model.errors import MessageTooLarge, QpidHaError, RefusedRequest

if TYPE_CHECKING:
    from qpidha.amqp.peer.links import LinkEnd
    from qpidha.amqp.server.host import LinkHome

WINDOW = 100
"""Declarations and discharges that a client may have on their way."""
LONGEST = 1 << 16
"""Bytes of a message to a coordinator."""


class PresettledControl(RefusedRequest):
    """A declaration or discharge whose outcome nobody waits for."""

    condition = "amqp:illegal-state"


class Coordinator(ReceivingLink):
    """A link to a coordinator."""

    __slots__ = ()

    def __init__(self, served: LinkHome, end: LinkEnd, outcomes: list[str]) -> None:
        super().__init__(served, end, outcomes=outcomes, window=WINDOW)

    def start(self, source: Terminus) -> None:
        """Answer the attach."""
        end = self.end
        assert end is not None
        end.owner = self
        end.set_limit(LONGEST)
        end.open(source, Terminus(COORDINATOR, capabilities=list(CAPABILITIES)))
        end.flow(WINDOW)
        self._connection.wake()

    def delivery_changed(self, delivery: Pointer) -> None:
        """Take a declaration or discharge."""
        end = self.end
        assert end is not None
        try:
            payload = end.take(delivery)
        except MessageTooLarge as error:
            self.fail_at(delivery, error)
            return
        if payload is None:
            return
        if not payload and is_settled(delivery):
            self._pass_over(delivery)
            return
        if is_settled(delivery):
            self.fail_at(
                delivery,
                PresettledControl(
                    "a declaration or discharge was sent settled, so that the client would not "
                    "hear what came of it"
                ),
            )
            return
        try:
            control = read_control(payload)
            if isinstance(control, Declare):
                self._declare(delivery)
            else:
                self._discharge(delivery, control)
        except RefusedRequest as error:
            self._refuse(delivery, error)

    def _declare(self, delivery: Pointer) -> None:
        if not self._host.serving:
            raise self._host.refusal()
        # Never given twice, so that an id from before a failover is not taken for another
        # transaction after it.
        transaction_id = bytes.fromhex(self._host.make_uuid().replace("-", ""))
        served = self._served
        work = served.transactions.declare(transaction_id, self._host.broker, self, served.holder())
        set_state(delivery, DECLARED, [work.transaction_id])
        settle(delivery)
        self._use()
        self._connection.wake()

    def _discharge(self, delivery: Pointer, control: Discharge) -> None:
        transactions = self._served.transactions
        work = transactions.find(control.transaction_id)
        if work.owner is not self:
            raise UnknownTransaction(
                f"transaction {control.transaction_id.hex()} was declared on another link"
            )
        if work.posting:
            self.fail_at(
                delivery,
                TransactionRolledBack(
                    "a transaction was discharged before all of a message in it had come"
                ),
            )
            return
        if self._pending >= WINDOW:
            # The engine does not enforce credit, and what waits to be committed must not grow
            # without bound.
            self.fail_at(
                delivery,
                TransferLimitExceeded(f"more than {WINDOW} discharges await their outcome"),
            )
            return
        sequence = transactions.discharge(work, failed=control.failed)
        self._pending += 1
        if sequence:
            self._host.when_committed(sequence, self, delivery)
        else:
            self.on_committed(delivery)

    def _refuse(self, delivery: Pointer, error: QpidHaError) -> None:
        if not self._has(REJECTED):
            self.fail_at(delivery, error)
            return
        reject(delivery, error)
        self._use()
        self._connection.wake()

    def _leave(self) -> None:
        """Roll back what was begun here."""
        if self.end is not None:
            self.end = None
            self._served.transactions.abandon(self)
