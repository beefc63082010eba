"""What the blocking and the asyncio client share: their options, and what they tell of themselves.

`ClientFace` has every option of a client and of its links, once. A face adds how it waits: its
calls block, or return coroutines. Knows no sockets and no event loop.
"""

from __future__ import annotations

import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from uuid import uuid4

from qpidha.client.core import PAUSES, Core, CoreOptions
from qpidha.client.dialling import DEFAULT, EventHandler, Timeout, named, refusal
from qpidha.client.endpoint import Brokers, Endpoint, Tls
from qpidha.client.errors import ClientError, ReplyLost, TimedOut
from qpidha.client.links import Delivery, Received, source_of
from qpidha.client.links import Receiver as ReceiverLink
from qpidha.client.links import Sender as SenderLink
from qpidha.client.links import Transaction as TransactionState
from qpidha.client.message import Message

GOODBYE = 2.0
"""How long a close waits for the broker's answer."""

SenderT = TypeVar("SenderT")
ReceiverT = TypeVar("ReceiverT")
LinkFaceT = TypeVar("LinkFaceT", bound="SenderFace | ReceiverFace")


class ClientFace(ABC, Generic[SenderT, ReceiverT]):
    """A client of a broker or a cluster of them, but for how it waits.

    `SenderT` and `ReceiverT` are what `sender` and `receiver` return: the link, or a coroutine that
    returns it.
    """

    def __init__(
        self,
        brokers: Brokers,
        *,
        user: str = "",
        password: str = "",
        mechanism: str = "",
        tls: Tls | ssl.SSLContext | None = None,
        container_id: str = "",
        timeout: Timeout = 30.0,
        reconnect: bool = True,
        reconnect_timeout: Timeout = 60.0,
        reconnect_pause: tuple[float, float] = PAUSES,
        fail_fast: bool = False,
        heartbeat: float = 10.0,
        follow_redirects: bool = True,
        properties: Mapping[str, Any] | None = None,
        on_event: EventHandler | None = None,
    ) -> None:
        """Name the brokers, as URLs with commas or a list; none is dialled before it is needed.

        `user`, `password` and `mechanism` hold where an address says nothing else; PLAIN is used
        under TLS only, unless `mechanism` names it. `tls` is what `amqps` needs beyond the
        system's trusted certificates. `timeout` is how long calls wait; `reconnect_timeout` how
        long a serving broker is looked for before the client gives up; with 0 each address is
        tried once. With that, and without `reconnect`, the client ends with its first connection.
        `reconnect_pause` is the first and the longest wait between two rounds of all addresses.
        With `fail_fast` it gives up at first contact when no address answers. `heartbeat`: silence
        of twice as long ends a connection. `follow_redirects` also lets brokers name further
        addresses. `properties` are those of the connection. Raises ClientError for an address that
        is none, TlsError for files that cannot be used.

        `on_event` is told "connected", "lost" and "failed", with the address and the error; it
        must not call the client. An error that a callback raises ends the client: calls, begun or
        to come, raise a ClientError whose cause it is.
        """
        endpoints = named(brokers, user=user, password=password, mechanism=mechanism)
        self._tls = tls if tls is not None else Tls()
        self._context: ssl.SSLContext | None = None
        if any(each.tls for each in endpoints):
            self._make_context()
        self.timeout = timeout
        self._core = Core(
            endpoints,
            CoreOptions(
                container_id or f"qpidha-{uuid4()}",
                reconnect,
                reconnect_timeout,
                fail_fast,
                heartbeat,
                follow_redirects,
                self._tls.server_name if isinstance(self._tls, Tls) else "",
                dict(properties or {}),
                reconnect_pause,
            ),
            _make_uuid,
            on_event=on_event,
        )
        self._is_ending = False
        self._set_up()

    @abstractmethod
    def _set_up(self) -> None:
        """Prepare what this face needs to read, write and wait."""

    @property
    def endpoint(self) -> Endpoint:
        """Where the client is connected, or was last."""
        return self._core.endpoint

    @property
    def known(self) -> tuple[Endpoint, ...]:
        """Every address that is tried, those that brokers named among them."""
        return self._core.known

    @property
    def connects(self) -> int:
        """How often it has connected: 1 after `open`, one more for each failover."""
        return self._core.connects

    @property
    def mechanism(self) -> str:
        """The SASL mechanism of the connection, or empty."""
        connection = self._core.connection
        return connection.principal.mechanism if connection is not None else ""

    @property
    def broker_properties(self) -> dict[Any, Any]:
        """What the broker says of itself (AMQP 1.0 section 2.7.1)."""
        connection = self._core.connection
        return dict(connection.remote_properties) if connection is not None else {}

    # Links.

    def sender(
        self,
        address: str | None,
        *,
        window: int = 1000,
        settled: bool = False,
        name: str = "",
        capabilities: tuple[str, ...] = (),
        node_properties: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
        on_outcome: Callable[[Delivery], None] | None = None,
        timeout: Timeout = DEFAULT,
    ) -> SenderT:
        """Attach a sender to a queue or exchange; without an address each message says `to` which
        it goes.

        At most `window` messages are without an outcome. With `settled` the broker tells no
        outcomes, and what it did not take is lost. `name` is the link's (a fresh one without it).
        `capabilities` such as `create-on-demand` and `node_properties` ask for the node to be
        made; `properties` are the link's. `on_outcome` is called with each delivery whose outcome
        is known, from whichever thread reads from the broker; it must not call the client. Raises
        LinkError if the broker refuses.
        """
        link = SenderLink(
            name or f"sender-{uuid4()}",
            address,
            window=window,
            settled=settled,
            properties=properties,
            capabilities=capabilities,
            node_properties=node_properties,
            on_outcome=on_outcome,
        )
        return self._attach_sender(link, timeout)

    @abstractmethod
    def _attach_sender(self, link: SenderLink, timeout: Timeout) -> SenderT:
        """Attach a link on which messages are sent."""

    def receiver(
        self,
        address: str | None = None,
        *,
        credit: int = 100,
        browse: bool = False,
        dynamic: bool = False,
        selector: str = "",
        filters: Mapping[str, Any] | None = None,
        settled: bool = False,
        confirm: bool = False,
        own_session: bool = False,
        name: str = "",
        capabilities: tuple[str, ...] = (),
        node_properties: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
        durable: bool = False,
        expiry: str = "session-end",
        on_confirmed: Callable[[Received], None] | None = None,
        timeout: Timeout = DEFAULT,
    ) -> ReceiverT:
        """Attach a receiver to a queue, to an exchange (a subscription), or to a `dynamic` queue
        that the broker makes for it.

        The broker sends at most `credit` messages ahead of those that were taken; with 0 only what
        `Receiver.add_credit` allows. With `browse` messages stay on their queue. `selector` is a
        JMS selector, `filters` are described values by name (AMQP 1.0 section 3.5.8); one that the
        broker does not honour is a LinkError. With `settled` messages are gone from their queue
        when they are sent. With `confirm` the broker confirms each outcome: see
        `Receiver.wait_confirmed` and `on_confirmed`. With `own_session` the receiver has a session
        to itself, which ends with it, for brokers bound what may be unsettled on one (qpidhad:
        session-max-unacked); there are 256 at most. `durable` and `expiry` are those of the
        source, `capabilities` such as `shared` and `node_properties` those of the node. Raises
        LinkError if the broker refuses.
        """
        terminus = source_of(
            address,
            browse=browse,
            dynamic=dynamic,
            selector=selector,
            filters=filters,
            capabilities=capabilities,
            node_properties=node_properties,
            durable=durable,
            expiry=expiry,
        )
        link = ReceiverLink(
            name or f"receiver-{uuid4()}",
            address,
            window=credit,
            terminus=terminus,
            settled=settled,
            confirm=confirm,
            own_session=own_session,
            properties=properties,
            on_confirmed=on_confirmed,
        )
        return self._attach_receiver(link, timeout)

    @abstractmethod
    def _attach_receiver(self, link: ReceiverLink, timeout: Timeout) -> ReceiverT:
        """Attach a link on which messages are received."""

    def _unless_ended(self, face: LinkFaceT | None) -> LinkFaceT | None:
        """Return a sender or receiver; None if its link has ended, which is removed then."""
        if face is None or face._link.error is None:
            return face
        self._core.remove(face._link)
        return None

    # Waiting.

    def _seconds(self, timeout: Timeout) -> float | None:
        """How long a call may take."""
        return self.timeout if timeout == DEFAULT else timeout

    def _deadline(self, timeout: Timeout) -> float | None:
        """When a call is to be over, by the monotonic clock."""
        seconds = self._seconds(timeout)
        return None if seconds is None else time.monotonic() + seconds

    @staticmethod
    def _left(deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def _timed_out(self, what: str, seconds: float) -> TimedOut:
        """Say what took too long."""
        return TimedOut(
            f"{what} took longer than {seconds:.3g} s",
            reason=self._core.trouble,
            hint="look what the broker waits for, or give it more time",
        )

    def _check(self) -> None:
        """Raise why the client has ended, if it has."""
        if self._core.failure is not None:
            raise self._core.failure

    def _make_context(self) -> ssl.SSLContext:
        """Return what sockets are wrapped with under TLS. Raises TlsError."""
        if self._context is None:
            tls = self._tls
            self._context = tls if isinstance(tls, ssl.SSLContext) else tls.context()
        return self._context

    def _server_name(self, endpoint: Endpoint) -> str:
        """Return the name that a broker's certificate must have."""
        return self._core.options.server_name or endpoint.host


class SenderFace:
    """What a sender tells of its link."""

    def __init__(self, link: SenderLink) -> None:
        self._link = link

    @property
    def address(self) -> str | None:
        """Where messages go; None where each says so itself."""
        return self._link.address

    @property
    def name(self) -> str:
        """The name of the link."""
        return self._link.name

    @property
    def error(self) -> ClientError | None:
        """Why the link has ended; None while it has not."""
        return self._link.error

    @property
    def unsettled(self) -> int:
        """Messages without an outcome."""
        return self._link.unsettled

    @property
    def credit(self) -> int:
        """Messages that the broker would take now."""
        return self._link.credit

    def _check(self, delivery: Delivery) -> None:
        """Raise if a delivery was not accepted."""
        if delivery.error is not None:
            raise delivery.error
        if delivery.is_done and not is_accepted(delivery):
            if delivery in self._link.not_accepted:
                self._link.not_accepted.remove(delivery)
            raise refusal(self._link, delivery, 1)


class ReceiverFace(ABC):
    """What a receiver tells of its link."""

    def __init__(self, link: ReceiverLink) -> None:
        self._link = link
        link.settler = self

    @property
    def address(self) -> str:
        """Where messages come from; of a dynamic queue the name that the broker gave it, a new one
        after each failover.
        """
        return self._link.address or ""

    @property
    def name(self) -> str:
        """The name of the link."""
        return self._link.name

    @property
    def error(self) -> ClientError | None:
        """Why the link has ended; None while it has not."""
        return self._link.error

    @property
    def credit(self) -> int:
        """Messages that the broker may still send now; 0 while there is no connection."""
        return self._link.credit

    @property
    def buffered(self) -> int:
        """Messages that are here and were not taken."""
        return len(self._link.buffer)

    @property
    def unconfirmed(self) -> int:
        """Messages whose outcome the broker has yet to confirm, with `confirm`."""
        return self._link.unconfirmed

    @abstractmethod
    def settle(self, message: Received, outcome: Any, transaction: Any) -> None:
        """Give a message its outcome: `Received.accept` and its like call this."""


class TransactionFace:
    """What a transaction tells of its state."""

    def __init__(self, state: TransactionState) -> None:
        self._state = state

    @property
    def state(self) -> str:
        """open, discharging, committed, rolled back or failed."""
        return self._state.state


def is_accepted(delivery: Delivery) -> bool:
    """Whether the broker accepted a message."""
    return delivery.outcome is not None and delivery.outcome.accepted


def check_outcomes(link: SenderLink) -> None:
    """Raise why a link has ended, or that messages were not accepted since the last call."""
    if link.error is not None:
        raise link.error
    if link.not_accepted:
        missed, link.not_accepted = link.not_accepted, []
        raise refusal(link, missed[0], len(missed))


def address_request(
    message: Message | bytes | str, address: str, reply_to: str
) -> tuple[Message, str]:
    """Make a request that goes to an address; return it with its correlation id."""
    request = message if isinstance(message, Message) else Message(message)
    correlation = str(uuid4())
    request.properties.to = address
    request.properties.reply_to = reply_to
    request.properties.correlation_id = correlation
    return request, correlation


def reply_error(link: ReceiverLink, address: str) -> ClientError:
    """Say why the reply from an address will not come."""
    return link.error or ReplyLost(
        f"the reply from {address!r} is lost",
        reason="the connection was lost before it came",
        hint="ask again, if the request may be done twice",
    )


def _make_uuid() -> str:
    return str(uuid4())
