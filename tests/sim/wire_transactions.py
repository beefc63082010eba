"""Wire transactions: what a client posts to several queues at once, in real AMQP bytes.

One transaction after the other: declare, one post to each queue, discharge. Now and then the
discharge is a rollback, of which the sender hears as of a refusal. Source: AMQP 1.0 section 4.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from qpidha.amqp.peer.links import LinkEnd, is_settled, remote_state, settle
from qpidha.amqp.peer.terminus import (
    ACCEPTED,
    COORDINATOR,
    REJECTED,
    PeerError,
    Terminus,
    source,
    target,
)
from qpidha.amqp.peer.transaction_wire import DECLARE, DECLARED, DISCHARGE
from qpidha.amqp.peer.values import remote_fields
from qpidha.model.encoding import Described, ULong
from qpidha.model.message_view import build

ROLLBACKS = 0.1
"""How many transactions end in one."""


class WireTransactions:
    """The transactions of one client's connection: a link to the coordinator, and one to each
    queue.
    """

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.waiting: deque[tuple[int, tuple[str, ...], bytes]] = deque()
        self.posts: dict[str, LinkEnd] = {}
        self.last: Any = None
        """The delivery to the coordinator that has no answer yet."""
        self.rolls_back = False
        self.has_failed = False
        self.coordinator = self._link("transactions", Terminus(COORDINATOR))

    def _link(self, name: str, node: Terminus) -> LinkEnd:
        transport = self.transport
        end: LinkEnd = transport.engine.new_link(
            f"{transport.host}-{name}", sender=True, session=transport.session
        )
        end.owner = self
        end.open(source(transport.host), node)
        return end

    def commit(self, number: int, queues: tuple[str, ...], payload: bytes) -> None:
        """Have a transaction in its turn."""
        for queue in queues:
            if queue not in self.posts:
                self.posts[queue] = self._link(queue, target(queue))
        self.waiting.append((number, queues, payload))
        self.flowed()

    def flowed(self) -> None:
        """Begin the next one, if every link has credit."""
        if self.last is None and self.waiting and not self.has_failed:
            ends = [self.coordinator, *(self.posts[queue] for queue in self.waiting[0][1])]
            if all(end.credit() > 0 for end in ends) and self.coordinator.credit() > 1:
                self._control(Described(ULong(DECLARE), []))

    def _control(self, control: Described) -> None:
        self.last = self.coordinator.send(build(control))
        self.transport.flush_soon()

    def delivery_changed(self, delivery: Any) -> None:
        """The coordinator answered, or a post has its provisional outcome."""
        if delivery != self.last:
            if is_settled(delivery):
                settle(delivery)
            return
        state = remote_state(delivery)
        if not state:
            return
        if state == DECLARED:
            transaction = remote_fields(delivery)[0]
            settle(delivery)
            _, queues, payload = self.waiting[0]
            for queue in queues:
                self.posts[queue].send(payload, state=[transaction])
            self.rolls_back = self.transport.world.chance(ROLLBACKS)
            self._control(Described(ULong(DISCHARGE), [transaction, self.rolls_back]))
            return
        settle(delivery)
        self.last = None
        number = self.waiting.popleft()[0]
        self.transport.told.append(
            ("outcome", number, ACCEPTED if state == ACCEPTED and not self.rolls_back else REJECTED)
        )
        self.flowed()

    def detached(self, closed: bool, error: PeerError | None) -> None:
        """A link ended, and with it everything."""
        self.lost()
        self.transport.told.append(("link_detached", error.condition if error else ""))

    def lost(self) -> None:
        """The session or the connection ended."""
        self.has_failed = True
