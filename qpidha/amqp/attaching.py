"""Attaching: from what a peer says about a link to the queue, exchange or service it means.

A link is answered when everything made for it (a dynamic node, one created on demand, a subscription
queue and its binding) is safe; until then this object is its owner. A link that is refused is answered
with a null terminus and then detached with the reason.
Source: AMQP 1.0 sections 2.6.3, 3.5; qpidd: src/qpid/broker/amqp/Session.cpp, NodeProperties.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.amqp.address import Address, find_address
from qpidha.amqp.coordinator import Coordinator
from qpidha.amqp.incoming import IncomingLink
from qpidha.amqp.outgoing import OutgoingLink, honoured_filter
from qpidha.amqp.registry import LinkStolen
from qpidha.amqp.service_link import ServiceLink
from qpidha.amqp.terminus import COORDINATOR, NONE, PeerError, Pointer, Terminus
from qpidha.words.encoding import Described, Symbol, ULong
from qpidha.words.errors import InvalidArgument, NotFound, PreconditionFailed, QpidHaError, RefusedRequest

if TYPE_CHECKING:
    from qpidha.amqp.engine_links import LinkEnd
    from qpidha.amqp.host import LinkHome
    from qpidha.broker.queue import Queue

CREATE = "create-on-demand"
SHARED = "shared"
ECHOED = ("queue", "topic", CREATE, SHARED)
"""Capabilities of a terminus that we follow, and so give back."""
LIFETIMES = {
    0x2B: "delete-on-close", 0x2C: "delete-if-unused", 0x2D: "delete-if-empty", 0x2E: "delete-if-unused-and-empty",
    "amqp:delete-on-close:list": "delete-on-close", "amqp:delete-on-no-links:list": "delete-if-unused",
    "amqp:delete-on-no-messages:list": "delete-if-empty", "amqp:delete-on-no-links-or-messages:list": "delete-if-unused-and-empty",
}  # fmt: skip
LIFETIME_POLICY = "qpid.lifetime-policy"
AUTO_DELETE_TIMEOUT = "qpid.auto_delete_timeout"
LIFETIME_CODES = {"delete-on-close": 0x2B, "delete-if-unused": 0x2C, "delete-if-empty": 0x2D, "delete-if-unused-and-empty": 0x2E}


def attach_link(connection: LinkHome, end: LinkEnd) -> None:
    """Answer a peer's attach, now or when what it needs is safe."""
    attaching = Attaching(connection, end)
    try:
        attaching.begin()
    except RefusedRequest as error:
        attaching.refuse(error)


def refuse_link(end: LinkEnd, error: QpidHaError) -> None:
    """Answer an attach with no terminus and end the link."""
    end.owner = None
    source, target = end.remote_source(), end.remote_target()
    if end.is_sender:
        source = Terminus()
    else:
        target = Terminus()
    end.open(source, target)
    end.end(error)


class Attaching:
    """A link between the peer's attach and our answer."""

    __slots__ = (
        "_broker", "_connection", "_deletes", "_end", "_host", "_incoming", "_outgoing", "_queue", "_sequence", "_source", "_target",
    )  # fmt: skip

    def __init__(self, connection: LinkHome, end: LinkEnd) -> None:
        self._connection = connection
        self._host = connection.host
        self._broker = connection.host.broker
        self._end: LinkEnd | None = end
        self._source = end.remote_source()
        self._target = end.remote_target()
        self._incoming: IncomingLink | None = None
        self._outgoing: OutgoingLink | None = None
        self._queue: Queue | None = None
        self._deletes = False
        self._sequence = 0

    def begin(self) -> None:
        """Find or make what the link is for."""
        end = self._end
        assert end is not None
        terminus = self._source if end.is_sender else self._target
        if terminus.kind == COORDINATOR:
            self._begin_coordinator(end)
            return
        service = self._host.service(terminus.address) if terminus.address else None
        if service is not None:
            ServiceLink(self._connection, end, service, terminus.address or "").accept(self._source, self._target)
            return
        end.set_limit(self._host.settings.max_message_size)
        end.owner = self
        if end.is_sender:
            self._begin_outgoing(end)
        else:
            self._begin_incoming(end)
        if self._sequence:
            self._host.hold(self._sequence, self, None)
        else:
            self.released(None)

    def released(self, item: object) -> None:
        """Answer: what was made for the link is safe."""
        end = self._end
        if end is None:
            return
        self._end = None
        if self._outgoing is not None and self._queue is not None:
            try:
                if self._outgoing.end is None:
                    raise LinkStolen("another link of this name was attached by the same container meanwhile")
                self._outgoing.start(self._queue, self._source, self._target, deletes=self._deletes)
            except (RefusedRequest, LinkStolen) as error:
                self._outgoing.lost()
                refuse_link(end, error)
        elif self._incoming is not None:
            end.open(self._source, self._target)
            self._incoming.start()
        self._connection.wake()

    def refuse(self, error: QpidHaError) -> None:
        """Say no."""
        end, self._end = self._end, None
        self._drop()
        if end is not None:
            refuse_link(end, error)

    # A peer that loses patience meanwhile.

    def delivery_changed(self, delivery: Pointer) -> None:
        """Nothing can have been sent yet."""

    def flowed(self) -> None:
        """Credit is looked at when the link is answered."""

    def detached(self, closed: bool, error: PeerError | None) -> None:
        """The peer took its attach back."""
        end, self._end = self._end, None
        self._drop()
        if end is not None:
            end.open(self._source, self._target)
            end.end(closed=closed)

    def lost(self) -> None:
        """The session or connection is gone."""
        self._end = None
        self._drop()

    def _drop(self) -> None:
        for link in (self._incoming, self._outgoing):
            if link is not None:
                link.lost()

    # Finding the AMQP node.

    def _begin_coordinator(self, end: LinkEnd) -> None:
        if end.is_sender:
            raise InvalidArgument("a coordinator is a target, not a source")
        self._check_serving(0)
        Coordinator(self._connection, end, self._source.outcomes).start(self._source)

    def _begin_incoming(self, end: LinkEnd) -> None:
        target = self._target
        if target.kind == NONE:
            raise InvalidArgument("a sender needs a target", hint="give an address, or a target without one for an anonymous link")
        link = IncomingLink(self._connection, end, address=target.address or "", outcomes=self._source.outcomes)
        self._incoming = link
        if target.address is None and not target.dynamic:
            return
        address = self._find(target, link)
        if address.queue is not None:
            self._check_queue(address.queue, link)
            link.to_queue(address.queue)
        else:
            self._check_serving(0)
            link.to_exchange(address.name, address.key)

    def _begin_outgoing(self, end: LinkEnd) -> None:
        source = self._source
        if source.kind == NONE or (source.address is None and not source.dynamic):
            raise InvalidArgument("a receiver needs a source address", hint="give the name of a queue or exchange")
        browse = source.distribution == "copy"
        found = None if source.dynamic else find_address(self._broker, source.address or "")
        shared = SHARED in source.capabilities
        is_subscription = found is not None and found.exchange is not None
        link = OutgoingLink(self._connection, end, browse=browse and not is_subscription, exclusive=is_subscription and not shared)
        self._outgoing = link
        self._host.links.attach(self._connection.remote_container, end.name, True, link)
        address = self._find(source, link)
        source.distribution = "copy" if link.browse else "move"
        if address.exchange is not None:
            self._subscribe(address, link, shared)
            return
        source.filter = {}
        self._check_queue(address.queue, link)
        if not link.browse:
            self._check_serving(address.queue.uid)
        self._queue = address.queue

    def _find(self, terminus: Terminus, link: object) -> Address:
        """Find the node of a terminus, or make it if the peer asks for that; the terminus comes to say what it is."""
        wanted = terminus.properties
        if terminus.dynamic:
            name = f"TempQueue{self._host.make_uuid()}"
            found = self._create(Address(name), terminus, {LIFETIME_POLICY: "delete-on-close"}, link)
            terminus.address = name
        else:
            found = find_address(self._broker, terminus.address or "")
            if found.queue is None and found.exchange is None:
                if CREATE not in terminus.capabilities:
                    kind = found.wanted or "queue or exchange"
                    raise NotFound(f"there is no {kind} '{found.name}'", hint=f"create it, or ask for it with the capability {CREATE}")
                found = self._create(found, terminus, {}, link)
        exists_as = found.queue if found.queue is not None else found.exchange
        for name in ("durable", "exclusive", "auto-delete", "exchange-type"):
            field = "type" if name == "exchange-type" else name.replace("-", "_")
            if name in wanted and getattr(exists_as.options, field, None) != wanted[name] and CREATE not in terminus.capabilities:
                if not terminus.dynamic:
                    raise PreconditionFailed(f"'{found.name}' exists, but {name} is not {wanted[name]!r}", hint="ask for it as it is")
        kind = "queue" if found.queue is not None else "topic"
        if kind not in terminus.capabilities and {"queue", "topic"} & set(terminus.capabilities) and SHARED not in terminus.capabilities:
            raise PreconditionFailed(f"'{found.name}' is a {'queue' if kind == 'queue' else 'exchange'}, which is not what was asked for")
        terminus.capabilities = [name for name in terminus.capabilities if name in ECHOED]
        return found

    def _create(self, address: Address, terminus: Terminus, defaults: dict[str, Any], link: object) -> Address:
        """Make a queue or exchange from node properties."""
        given = {str(key): value for key, value in terminus.properties.items()}
        is_exchange = "exchange-type" in given or "topic" in terminus.capabilities or address.wanted == "exchange"
        policy = given.pop("lifetime-policy", None)
        arguments = {**defaults, **{key: value for key, value in given.items() if key not in NODE_PROPERTIES}}
        if isinstance(policy, Described):
            policy = LIFETIMES.get(policy.descriptor)
        if isinstance(policy, str):
            arguments[LIFETIME_POLICY] = str(policy)
        options = {"durable": bool(given.get("durable")), "auto_delete": bool(given.get("auto-delete"))}
        alternate = str(given.get("alternate-exchange") or "")
        if not terminus.dynamic:
            self._check_serving(0)
        if is_exchange:
            arguments.pop(LIFETIME_POLICY, None)
            kind = str(given.get("exchange-type") or "topic")
            exchange, sequence = self._broker.declare_exchange(address.name, kind, alternate=alternate, arguments=arguments, **options)
            address.exchange = exchange
        else:
            exclusive = bool(given.get("exclusive"))
            ends_with_link = terminus.dynamic or arguments.get(LIFETIME_POLICY) == "delete-on-close"
            holder = link if ends_with_link else self._connection if exclusive else None
            queue, sequence = self._broker.declare_queue(
                address.name, exclusive=exclusive, alternate=alternate, arguments=arguments, owner=holder, **options
            )
            address.queue = queue
            if terminus.dynamic:
                code = LIFETIME_CODES.get(str(arguments.get(LIFETIME_POLICY)), 0x2B)
                terminus.properties = {Symbol("lifetime-policy"): Described(ULong(code), [])}
        self._sequence = max(self._sequence, sequence)
        return address

    def _subscribe(self, address: Address, link: OutgoingLink, shared: bool) -> None:
        """Make the queue and the binding of a subscription to an exchange."""
        self._check_serving(0)
        source, end = self._source, self._end
        assert end is not None
        exchange = address.exchange
        name = end.name if shared else f"{self._connection.remote_container}_{end.name}"
        given = {str(key): value for key, value in source.properties.items()}
        arguments = {key: value for key, value in given.items() if key not in NODE_PROPERTIES}
        lives = source.expiry == "never"
        if source.timeout and not lives:
            arguments[AUTO_DELETE_TIMEOUT] = source.timeout
        queue = self._broker.queues.get(name)
        is_new = queue is None
        if queue is None:
            queue, sequence = self._broker.declare_queue(
                name, durable=source.durability > 0, exclusive=not shared, auto_delete=not lives, arguments=arguments,
                owner=None if shared or lives else link, alternate=exchange.options.alternate,
            )  # fmt: skip
            self._sequence = max(self._sequence, sequence)
        else:
            self._check_queue(queue, link)
        source.filter, key, binding = honoured_filter(source.filter, exchange.options.type)
        if address.key is not None:
            key = address.key
        if key is None:
            key = "#" if exchange.options.type == "topic" else name if exchange.options.type == "headers" else ""
        try:
            bound = self._broker.bind(exchange.name, name, key, binding)
        except RefusedRequest:
            if is_new:
                self._broker.delete_queue(name)
            raise
        self._sequence = max(self._sequence, bound)
        self._queue = queue
        self._deletes = not shared
        self._source.expiry = "never" if lives else source.expiry

    def _check_queue(self, queue: Queue, link: object) -> None:
        if queue.owner is not link:
            queue.check_access(self._connection)
        if self._incoming is not None:
            self._check_serving(queue.uid)

    def _check_serving(self, uid: int) -> None:
        """Refuse changes of replicated objects where they do not happen; what is local to this broker may be used."""
        if uid >= 0 and not self._host.serving:
            raise self._host.refusal()


NODE_PROPERTIES = ("durable", "exclusive", "auto-delete", "alternate-exchange", "exchange-type", "lifetime-policy", "supported-dist-modes")
