"""Coordinators: links on which a client declares and discharges transactions.

A transaction ends with the link that declared it, if not before. A commit is answered when all of it is safe. What
cannot be done is rejected and the link goes on; a rule broken ends the link, and with it what was begun on it.
Source: AMQP 1.0 section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.amqp.client_link import ClientLink
from qpidha.amqp.engine_links import is_settled, settle, update
from qpidha.amqp.engine_values import reject, set_state
from qpidha.amqp.incoming import TransferLimitExceeded
from qpidha.amqp.open_transactions import UnknownTransaction
from qpidha.amqp.terminus import ACCEPTED, COORDINATOR, SOURCE, Pointer, Terminus
from qpidha.amqp.transaction_wire import CAPABILITIES, DECLARED, Declare, Discharge, read_control
from qpidha.broker.transaction import TransactionRolledBack
from qpidha.words.errors import MessageTooLarge, QpidHaError, RefusedRequest

if TYPE_CHECKING:
    from qpidha.amqp.engine_links import LinkEnd
    from qpidha.amqp.host import LinkHome

WINDOW = 100
"""Declarations and discharges that a client may have on their way."""
LONGEST = 1 << 16
"""Bytes of a message to a coordinator."""


class PresettledControl(RefusedRequest):
    """A declaration or discharge whose outcome nobody waits for."""

    condition = "amqp:illegal-state"


class Coordinator(ClientLink):
    """A link to a coordinator."""

    __slots__ = ("_held", "_rejects", "_used")

    def __init__(self, connection: LinkHome, end: LinkEnd, outcomes: list[str]) -> None:
        super().__init__(connection, end)
        self._rejects = not outcomes or "amqp:rejected:list" in outcomes
        self._held = 0
        self._used = 0

    def start(self, source: Terminus) -> None:
        """Answer the attach."""
        end = self.end
        assert end is not None
        end.owner = self
        end.set_limit(LONGEST)
        # Clients name no address here, which the engine takes for no source at all.
        end.open(Terminus(SOURCE, source.address, outcomes=source.outcomes), Terminus(COORDINATOR, capabilities=list(CAPABILITIES)))
        end.flow(WINDOW)
        self._connection.wake()

    def delivery_changed(self, delivery: Pointer) -> None:
        """Take a declaration or discharge."""
        end = self.end
        assert end is not None
        try:
            payload = end.take(delivery)
        except MessageTooLarge as error:
            self.fail(error)
            return
        if payload is None:
            return
        if is_settled(delivery):
            self.fail(PresettledControl("a declaration or discharge was sent settled, so that nobody would hear what came of it"))
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
        # Never given twice, so that an id from before a failover is not taken for another transaction after it.
        transaction_id = bytes.fromhex(self._host.make_uuid().replace("-", ""))
        work = self._connection.transactions.declare(transaction_id, self._host.broker, self)
        set_state(delivery, DECLARED, [work.transaction_id])
        settle(delivery)
        self._use()

    def _discharge(self, delivery: Pointer, control: Discharge) -> None:
        transactions = self._connection.transactions
        work = transactions.find(control.transaction_id)
        if work.owner is not self:
            raise UnknownTransaction(f"transaction {control.transaction_id.hex()} was declared on another link")
        if work.posting:
            self.fail(TransactionRolledBack("a transaction was discharged before all of a message in it had come"))
            return
        if self._held >= WINDOW:
            # The engine does not enforce credit, and what waits to be safe must not grow without bound.
            self.fail(TransferLimitExceeded(f"more than {WINDOW} discharges await their outcome"))
            return
        sequence = transactions.discharge(work, failed=control.failed)
        self._held += 1
        if sequence:
            self._host.hold(sequence, self, delivery)
        else:
            self.released(delivery)

    def released(self, delivery: Pointer) -> None:
        """Say that a transaction is discharged: all it did is safe."""
        if self.end is None:
            return
        self._held -= 1
        update(delivery, ACCEPTED)
        settle(delivery)
        self._use()

    def _refuse(self, delivery: Pointer, error: QpidHaError) -> None:
        if not self._rejects:
            self.fail(error)
            return
        reject(delivery, error)
        self._use()

    def _use(self) -> None:
        self._used += 1
        if 2 * self._used >= WINDOW and self.end is not None:
            self.end.flow(self._used)
            self._used = 0
        self._connection.wake()

    def flowed(self) -> None:
        """Ignore what a controller says of how much it has."""

    def _leave(self) -> None:
        """Roll back what was begun here."""
        if self.end is not None:
            self.end = None
            self._connection.transactions.abandon(self)
