"""A transaction controller made of a bare engine: it declares, posts, retires and discharges as it
is told, right or wrong.
"""

from __future__ import annotations

from typing import Any

from qpidha.amqp.peer.links import LinkEnd, is_settled, remote_state, settle, update
from qpidha.amqp.peer.terminus import ACCEPTED, COORDINATOR, PeerError, Terminus, source
from qpidha.amqp.peer.transaction_wire import DECLARE, DECLARED, DISCHARGE, TRANSACTIONAL
from qpidha.amqp.peer.values import remote_fields, remote_outcome, set_state
from qpidha.model.encoding import Described, ULong
from qpidha.model.message_view import build
from tests.amqp.raw_client import RawClient


class Sent:
    """What the broker said of one message: state, fields of a state of transactions, error
    condition, settled or not.
    """

    def __init__(self) -> None:
        self.state = 0
        self.fields: Any = None
        self.condition = ""
        self.info: dict[Any, Any] = {}
        self.is_settled = False


class Controller(RawClient):
    """A raw client that knows transactions."""

    def __init__(self, host: Any, container_id: str = "controller", number: int = 99) -> None:
        super().__init__(host, container_id, number)
        self.sent: dict[Any, Sent] = {}

    def control(
        self,
        name: str = "txn",
        session: Any = None,
        terminus: Terminus | None = None,
        address: str | None = "here",
        **options: Any,
    ) -> LinkEnd:
        """Attach to the coordinator, from a source of ours with this address."""
        end = self.engine.new_link(name, sender=True, session=session or self.session)
        end.owner = _SenderOwner(self, end)
        end.open(
            source(address, **options),
            terminus or Terminus(COORDINATOR, capabilities=["amqp:local-transactions"]),
        )
        self.turn()
        return end

    def sender(
        self,
        address: str,
        name: str = "raw-sender",
        terminus: Terminus | None = None,
        **options: Any,
    ) -> LinkEnd:
        end = self.attach_sender(address, name, terminus, **options)
        if end.owner is not None:
            end.owner = _SenderOwner(self, end)
        return end

    def ask(self, control: LinkEnd, payload: bytes, *, settled: bool = False) -> Sent:
        """Send a message to the coordinator and see what it says."""
        sent = self.send(control, payload, settled=settled)
        self.turn()
        return sent

    def send(
        self,
        end: LinkEnd,
        payload: bytes,
        transaction: bytes | None = None,
        *,
        settled: bool = False,
    ) -> Sent:
        state = None if transaction is None else [transaction]
        delivery = end.send(payload, settled=settled, state=state)
        sent = Sent()
        if not settled:
            self.sent[delivery] = sent
        return sent

    def declare(self, control: LinkEnd) -> bytes:
        sent = self.ask(control, build(Described(ULong(DECLARE), [])))
        assert (sent.state, sent.is_settled) == (DECLARED, True)
        transaction: bytes = sent.fields[0]
        return transaction

    def discharge(self, control: LinkEnd, transaction: bytes, *, failed: bool = False) -> Sent:
        return self.ask(control, build(Described(ULong(DISCHARGE), [transaction, failed])))

    def commit(self, control: LinkEnd, transaction: bytes) -> None:
        sent = self.discharge(control, transaction)
        assert (sent.state, sent.is_settled) == (ACCEPTED, True), sent.condition

    def rollback(self, control: LinkEnd, transaction: bytes) -> None:
        sent = self.discharge(control, transaction, failed=True)
        assert (sent.state, sent.is_settled) == (ACCEPTED, True), sent.condition

    def retire(
        self,
        delivery: Any,
        transaction: bytes,
        state: int = ACCEPTED,
        fields: Any = (),
        *,
        settled: bool = True,
    ) -> None:
        """Give a delivery an outcome in a transaction."""
        set_state(delivery, TRANSACTIONAL, [transaction, Described(ULong(state), list(fields))])
        if settled:
            settle(delivery)
        self.turn()

    def detach(self, end: LinkEnd) -> None:
        end.end(closed=False)
        self.turn()

    def settle(self, delivery: Any, state: int = 0) -> None:
        if state:
            update(delivery, state)
        settle(delivery)
        self.turn()


class _SenderOwner:
    def __init__(self, client: Controller, end: LinkEnd) -> None:
        self.client = client
        self.end = end

    def delivery_changed(self, delivery: Any) -> None:
        sent = self.client.sent.get(delivery)
        if sent is None:
            return
        sent.state = int(remote_state(delivery))
        sent.is_settled = bool(is_settled(delivery))
        if sent.state in (DECLARED, TRANSACTIONAL):
            sent.fields = remote_fields(delivery)
        error = remote_outcome(delivery).error
        sent.condition = error.condition if error else ""
        sent.info = error.info if error else {}
        if sent.is_settled:
            settle(delivery)
            del self.client.sent[delivery]

    def flowed(self) -> None:
        pass

    def detached(self, closed: bool, error: PeerError | None) -> None:
        self.client.detached[self.end.name] = error.condition if error else ""
        self.client.errors[self.end.name] = error
        self.end.end(closed=closed)

    def lost(self) -> None:
        pass
