"""Senders and receivers of Qpid's messaging programs, on the client of this project.

A sender keeps what has no outcome, and sends again what a broker gave back; a receiver fetches
with a time limit and acknowledges by the batch. Where an address asks for a node to be made,
checked or deleted, that is done here. After a failover the client attaches both again.
Source: qpid-cpp src/qpid/messaging/amqp (SenderContext, ReceiverContext, SessionContext).
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import Any, NoReturn

from qpidha.broker.vocabulary import (
    CREATE,
    DIRECT_BINDING,
    PROPERTIES_FILTER,
    SHARED,
    TOPIC_BINDING,
)
from qpidha.client.blocking import Client, Transaction
from qpidha.client.blocking import Receiver as ClientReceiver
from qpidha.client.errors import ClientError, DeliveryLost, LinkError, NotAccepted, TimedOut
from qpidha.client.links import Delivery, Received
from qpidha.client.management import Conversation
from qpidha.client.message import Message
from qpidha.model.encoding import Described, Symbol
from qpidha.model.errors import RefusedRequest
from qpidha.tools.connection_options import ToolError
from qpidha.tools.messaging_addresses import TOPIC, MessagingAddress
from qpidha.tools.messaging_log import Log
from qpidha.tools.messaging_options import ConnectionOptions

NOT_IMPLEMENTED = "amqp:not-implemented"
NOT_FOUND = "amqp:not-found"
ANSWER = 10.0
"""Seconds for an answer of the management of a broker."""
STEP = 0.5
HELD_BACK = 30.0
"""Seconds for which a broker may leave a question for messages unanswered."""
ASK = 5.0
"""Seconds without a message until the broker is asked whether it waits for outcomes."""
RETRY = 0.2
"""Seconds before what a broker gave back is sent again: what keeps it from taking the message does
not end at once.
"""


class Nodes:
    """What addresses ask of nodes beside their links: made before, bound, and deleted after."""

    def __init__(self, client: Client, log: Log, *, reconnects: bool) -> None:
        self._client = client
        self._log = log
        self._reconnects = reconnects

    def prepare(self, address: MessagingAddress) -> None:
        """Say what will be ignored."""
        if address.ignored:
            self._log.write(
                "warning",
                f"what {address.text} says of its node is ignored: neither create nor assert is "
                "asked for",
            )

    def bind(self, address: MessagingAddress, name: str | None) -> None:
        """Make the bindings of a node that may have been made; `name` is what it is called."""
        for binding in address.bindings:
            wanted = {
                key: name if value == address.name else value for key, value in binding.items()
            }
            if address.creates or address.is_temporary:
                self._call("bind", wanted)
            elif address.asserts:
                self._check_bound(wanted, address)

    def delete(self, address: MessagingAddress) -> None:
        """Delete a node, if the address says so; one that has gone is deleted."""
        if not address.deletes:
            return
        kinds = ("exchange", "queue") if address.type == TOPIC else ("queue", "exchange")
        for kind in kinds:
            try:
                self._call(f"delete_{kind}", {"name": address.name})
                return
            except RefusedRequest as refused:
                if refused.condition != NOT_FOUND:
                    raise

    def _check_bound(self, wanted: Any, address: MessagingAddress) -> None:
        for each in self._call("list_bindings", {"queue": wanted["queue"]}):
            if each["exchange"] == wanted["exchange"] and each["key"] == wanted["key"]:
                return
        raise ToolError(
            "AssertionFailed",
            f"address {address.text!r}: {wanted['queue']!r} is not bound to "
            f"{wanted['exchange']!r} with the key {wanted['key']!r}",
        )

    def _call(self, method: str, parameters: Any) -> Any:
        """Ask the management of the broker. An answer that was lost with its connection never
        comes; to ask again does no harm.
        """
        client = self._client
        while True:
            client.timeout = ANSWER
            try:
                return Conversation(client).call(method, dict(parameters))
            except TimedOut:
                if not self._reconnects:
                    raise
            finally:
                client.timeout = None


class Sender:
    """Sends messages to an address."""

    def __init__(
        self,
        client: Client,
        nodes: Nodes,
        address: MessagingAddress,
        options: ConnectionOptions,
        log: Log,
        *,
        capacity: int,
    ) -> None:
        self._log = log
        self._address = address
        self._nodes = nodes
        self._raises = options.values["raise_rejected"]
        self._most = options.values.get("max_delivery_attempts", 0) or (
            0 if options.reconnects else 1
        )
        self._patience = options.values.get("redelivery_timeout", 0.0)
        self._client = client
        self._payloads: dict[int, tuple[Message, int, float]] = {}
        """What has no outcome: number -> message, attempts, when it was sent first."""
        self._returned: deque[tuple[Delivery, tuple[Message, int, float] | None]] = deque()
        """What was not taken; of a transaction it cannot be sent again."""
        self._sent = 0
        self._told = False
        nodes.prepare(address)
        wishes = _Wishes(address, is_receiver=False)
        made = None
        if address.creates and address.asserts:
            made = client.sender(address.name, **wishes.to_make())
        self._sender = client.sender(
            address.name,
            window=max(1, capacity),
            settled=address.settled,
            name=address.link_name,
            on_outcome=self._on_outcome,
            **(wishes.to_check() if made is not None else wishes.to_use()),
        )
        if made is not None:
            made.close()
        nodes.bind(address, self._sender.address)

    def send(self, message: Message, transaction: Transaction | None = None) -> None:
        """Send a message; the subject of the address is that of the message."""
        if self._address.subject:
            message.properties.subject = self._address.subject
        self.look()
        self._send(message, 1, time.monotonic(), transaction)

    def sync(self) -> None:
        """Wait until every message was taken."""
        while True:
            self._sender.flush(None)
            if not self._returned:
                return
            self.look()

    def look(self) -> None:
        """See to messages that were not taken. Raises NotAccepted for one that never will be."""
        pauses = True
        while self._returned:
            delivery, kept = self._returned.popleft()
            outcome = delivery.outcome
            if outcome is None:  # Its transaction or its link ended, which the next call tells.
                continue
            refused = NotAccepted(
                f"a message to {self._address.name!r} was {outcome.state}",
                outcome,
                reason=outcome.explanation,
                condition=outcome.condition,
                hint=outcome.hint,
            )
            is_final = outcome.state == "rejected" or outcome.undeliverable_here
            if is_final and not self._raises:
                self._log.write("warning", str(refused))
                continue
            if is_final or kept is None:
                raise refused
            message, attempts, since = kept
            is_over = self._patience and time.monotonic() - since >= self._patience
            if is_over or (self._most and attempts >= self._most):
                raise refused
            if not self._told:
                self._told = True
                self._log.write("warning", f"{refused}; it is sent again, as others will be")
            if pauses:
                time.sleep(RETRY)
                pauses = False
            self._send(message, attempts + 1, since, None)

    def close(self) -> None:
        """Detach, and delete the node if the address says so."""
        self._sender.close(None)
        self._nodes.delete(self._address)

    def _send(
        self, message: Message, attempts: int, since: float, transaction: Transaction | None
    ) -> None:
        self._sent += 1
        if transaction is None and not self._address.settled:
            self._payloads[self._sent] = (message, attempts, since)
        self._sender.send_nowait(message, transaction=transaction)

    def _on_outcome(self, delivery: Delivery) -> None:
        kept = self._payloads.pop(delivery.number, None)
        if delivery.outcome is not None and delivery.outcome.accepted:
            return
        self._returned.append((delivery, kept))


class Receiver:
    """Receives messages from an address."""

    def __init__(
        self, client: Client, nodes: Nodes, address: MessagingAddress, *, capacity: int
    ) -> None:
        self._address = address
        self._nodes = nodes
        self._capacity = capacity
        self._has_asked = False
        self._unsettled: list[Received] = []
        nodes.prepare(address)
        wishes = _Wishes(address, is_receiver=True)
        made = None
        if address.creates and (address.asserts or address.type == TOPIC):
            made = client.receiver(address.name, credit=0, browse=True, **wishes.to_make())
        self._receiver = self._attach(client, wishes, is_made=made is not None)
        if made is not None:
            made.close()
        nodes.bind(address, self._receiver.address)

    def fetch(self, timeout: float | None) -> Received | None:
        """Return the next message; None if there is none after so many seconds. None seconds are
        for ever.
        """
        message = self._next(timeout)
        if message is not None:
            self._has_asked = False
            self._unsettled.append(message)
        return message

    @property
    def buffered(self) -> int:
        """Messages that are here and were not fetched."""
        return self._receiver.buffered

    def acknowledge(self, transaction: Transaction | None = None) -> None:
        """Accept everything that was fetched. What was lost with its connection comes again."""
        fetched, self._unsettled = self._unsettled, []
        for message in fetched:
            try:
                message.accept(transaction)
            except DeliveryLost:
                if transaction is not None:
                    raise

    def sync(self) -> None:
        """Wait until the broker has carried out what was acknowledged."""
        self._receiver.wait_confirmed(None)

    @property
    def has_unsettled(self) -> bool:
        """Whether something was fetched and not acknowledged."""
        return bool(self._unsettled)

    def close(self) -> None:
        """Detach, and delete the node if the address says so. A subscription that is to outlive
        its receiver would end if that said goodbye; it ends with the connection.
        """
        if not self._address.subscription.outlives:
            self._receiver.close()
        self._nodes.delete(self._address)

    def _next(self, timeout: float | None) -> Received | None:
        receiver = self._receiver
        if timeout is None and self._unsettled:  # These may be why no more come.
            while (message := self._next(ASK)) is None:
                pass
            return message
        if receiver.buffered:
            return receiver.receive(0)
        if not self._capacity and not self._has_asked:
            receiver.add_credit(1)
            self._has_asked = True
        if timeout != 0:
            try:
                return receiver.receive(timeout)
            except TimedOut:
                pass
        # Only the broker knows that there is none: what it sent may be on its way.
        while self._drained():
            with suppress(TimedOut):  # Its connection was lost meanwhile.
                return receiver.receive(0)
        if receiver.kept_back and self._unsettled:
            self._say_kept_back()
        self._has_asked = False
        return None

    def _drained(self) -> int:
        """Have the broker use its credit or give it back; return how many messages are here then.
        Raises ToolError if it does neither, though its connection is well.
        """
        waited = 0.0
        while True:
            try:
                return self._receiver.drain(STEP)
            except TimedOut as late:
                if self._receiver.buffered:  # It may send them, and keep what it still has back.
                    return self._receiver.buffered
                waited = 0.0 if late.reason else waited + STEP
                if waited >= HELD_BACK and self._unsettled:
                    self._say_kept_back()

    def _say_kept_back(self) -> NoReturn:
        raise ToolError(
            "ReceiverError",
            f"the broker sends no more while {len(self._unsettled)} messages are not "
            "acknowledged. Try: a smaller --ack-frequency or --tx, or a larger "
            "session-max-unacked of the broker",
        )

    def _attach(self, client: Client, wishes: _Wishes, *, is_made: bool) -> ClientReceiver:
        address = self._address
        ways = wishes.ways_to_say_the_subject()
        while True:
            filters = ways.popleft()
            try:
                return client.receiver(
                    None if address.is_temporary else address.name,
                    credit=self._capacity,
                    dynamic=address.is_temporary,
                    browse=address.browses,
                    selector=address.selector,
                    settled=address.settled,
                    confirm=True,
                    name=address.link_name,
                    properties=address.link_properties,
                    filters={**address.filters, **filters},
                    durable=address.subscription.durable,
                    expiry="never" if address.subscription.lives else "session-end",
                    **(wishes.to_check() if is_made else wishes.to_use()),
                )
            except LinkError as error:
                if error.condition != NOT_IMPLEMENTED or not ways:
                    raise


class Transactions:
    """The transactions of a run, one after the other; without a size there are none."""

    def __init__(self, client: Client, size: int, rolls_back_every: int) -> None:
        self._client = client
        self._size = size
        self._every = rolls_back_every
        self._ended = 0
        self._open: Transaction | None = None

    def current(self) -> Transaction | None:
        """Return the transaction for what comes next."""
        if self._size and self._open is None:
            self._open = self._client.transaction(None)
        return self._open

    def end(self, *, counts: bool = True) -> None:
        """Commit what is open, or roll it back if it `counts` and its turn has come."""
        transaction, self._open = self._open, None
        self._ended += counts
        rolls_back = counts and self._every and self._ended % self._every == 0
        if transaction is not None:
            (transaction.roll_back if rolls_back else transaction.commit)(None)


class _Wishes:
    """Capabilities and properties of the node that an address asks for."""

    def __init__(self, address: MessagingAddress, *, is_receiver: bool) -> None:
        self._address = address
        subscription = address.subscription
        self._kind = (*([address.type] if address.type else []), *address.capabilities)
        self._is_subscription = is_receiver and address.type == TOPIC
        self._shared = (SHARED,) if self._is_subscription and subscription.shared else ()
        self._arguments = subscription.arguments if self._is_subscription else {}

    def to_make(self) -> dict[str, Any]:
        """For a link that only makes the node."""
        return {
            "capabilities": (CREATE, *self._kind),
            "node_properties": dict(self._address.properties),
        }

    def to_check(self) -> dict[str, Any]:
        """For a link to a node that is there, or has been made."""
        address = self._address
        found = dict(address.properties) if address.asserts else {}
        return {
            "capabilities": (*self._kind, *self._shared),
            "node_properties": {**found, **self._arguments},
        }

    def to_use(self) -> dict[str, Any]:
        """For the only link of an address."""
        address = self._address
        if address.creates or address.is_temporary:
            return (
                self.to_make()
                if address.creates
                else {**self.to_check(), "node_properties": dict(address.properties)}
            )
        return self.to_check()

    def ways_to_say_the_subject(self) -> deque[dict[str, Any]]:
        """Return filters that say the subject: a key of a subscription, or a property of messages
        on a queue. Which of them it is depends on the node.
        """
        subject = self._address.subject
        if not subject:
            return deque([{}])
        has_wildcards = bool({"*", "#"} & set(subject.split(".")))
        binding = Described(Symbol(TOPIC_BINDING if has_wildcards else DIRECT_BINDING), subject)
        ways: deque[dict[str, Any]] = deque([{"subject-filter": binding}])
        if not has_wildcards:
            exactly = f"&{subject}" if subject.startswith("&") else subject
            of_queue = Described(Symbol(PROPERTIES_FILTER), {Symbol("subject"): exactly})
            ways.append({"subject-filter": of_queue})
        return ways


def close_quietly(client: Client) -> None:
    """Hang up; what failed before is what matters."""
    with suppress(ClientError):
        client.close(1.0)
