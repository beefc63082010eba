"""One transaction and all that it needs: a host with queues, a client, its link to the coordinator,
what the queues have.
"""

from __future__ import annotations

from typing import Any

from qpidha.amqp.peer.links import LinkEnd
from qpidha.amqp.peer.terminus import ACCEPTED, Terminus
from qpidha.amqp.peer.transaction_wire import TRANSACTIONAL
from qpidha.amqp.peer.values import set_state
from qpidha.model.message_view import body, build
from tests.amqp.builders import AHost, CountingLogWriter
from tests.amqp.controller import Controller, Sent

ROLLBACK = "amqp:transaction:rollback"
UNKNOWN = "amqp:transaction:unknown-id"


def a_host(*queues: str, **arguments: Any) -> AHost:
    """A host with these queues, or with `q` alone, all of them with the same arguments."""
    return declare(AHost(), *queues, **arguments)


def a_replicating_host() -> AHost:
    """A host with a queue `q` whose changes have to be committed on backups."""
    host = AHost(ha_replicate="all")
    host.broker.log_writer = CountingLogWriter()
    return declare(host)


def declare(host: AHost, *queues: str, **arguments: Any) -> AHost:
    for queue in queues or ("q",):
        host.broker.declare_queue(
            queue, arguments={f"qpid.{name}": value for name, value in arguments.items()}
        )
    return host


class Work:
    """A transaction that a client has just declared. What is posted and retired here is part
    of it.
    """

    def __init__(
        self,
        host: AHost | None = None,
        *,
        client: Controller | None = None,
        control: LinkEnd | None = None,
    ) -> None:
        self.client = client or Controller(host or a_host())
        self.host: AHost = self.client.host
        self.broker = self.host.broker
        self.control = control or self.client.control()
        self.name = self.client.declare(self.control)
        self.receiver: Any = None

    def another(self) -> Work:
        """Declare one more transaction, of the same client on the same link."""
        return Work(client=self.client, control=self.control)

    def sender(
        self, address: str = "q", name: str = "raw-sender", terminus: Terminus | None = None
    ) -> LinkEnd:
        return self.client.sender(address, name, terminus)

    def turn(self) -> None:
        self.client.turn()

    # What is done in the transaction.

    def post(self, sender: LinkEnd, payload: bytes, *, settled: bool = False) -> Sent:
        return self.client.send(sender, payload, self.name, settled=settled)

    def post_part(self, sender: LinkEnd) -> None:
        """Begin to post a message."""
        self.client.send_part(sender, build("only a part")[:9])
        set_state(self.client.partial, TRANSACTIONAL, [self.name])
        self.turn()

    def retire(
        self, delivery: Any, state: int = ACCEPTED, fields: Any = (), *, settled: bool = True
    ) -> None:
        self.client.retire(delivery, self.name, state, fields, settled=settled)

    def discharge(self, *, failed: bool = False) -> Sent:
        """End it and see what the broker says."""
        return self.client.discharge(self.control, self.name, failed=failed)

    def commit(self) -> None:
        self.client.commit(self.control, self.name)

    def rollback(self) -> None:
        self.client.rollback(self.control, self.name)

    # What a receiver on q gets.

    def taken(self, *bodies: Any) -> list[Any]:
        """Deliveries of these messages, to a receiver on q."""
        self.fill(*bodies)
        self.receiver = self.client.attach_receiver("q")
        deliveries = self.client.deliveries(self.receiver)
        assert [body(payload) for _, payload in deliveries] == list(bodies)
        return [delivery for delivery, _ in deliveries]

    def redelivered(self) -> list[bytes]:
        """What that receiver got since."""
        return [payload for _, payload in self.client.deliveries(self.receiver)]

    # What the queues have.

    def fill(self, *bodies: Any, queue: str = "q") -> None:
        for one in bodies:
            self.broker.queues[queue].enqueue(build(one))

    def contents(self, queue: str = "q") -> list[Any]:
        found = self.broker.queues[queue]
        return [
            body(found.messages[number].body())
            for number in found.ordered()
            if number in found.messages
        ]

    def available(self, queue: str = "q") -> list[Any]:
        """What is on a queue and with no consumer."""
        found = self.broker.queues[queue]
        return [body(message.body()) for message in found.messages.values() if not message.acquired]
