"""Attaching: from what a peer says about a link to the queue, exchange or service it means.

A link is answered when everything made for it (a dynamic node, one created on demand, a
subscription queue and its binding) is committed; until then this object is its owner. A link that
is refused is answered with a null terminus and then detached with the reason. Source: AMQP 1.0
sections 2.6.3, 3.5; qpidd: src/qpid/broker/amqp/Session.cpp, NodeProperties.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.amqp.peer.service_link import ServiceLink
from qpidha.amqp.peer.terminus import (
    ACCEPTED,
    COORDINATOR,
    MODIFIED,
    NONE,
    OUTCOME_NAMES,
    RELEASED,
    SOURCE,
    TARGET,
    PeerError,
    Pointer,
    Terminus,
)
from qpidha.amqp.server.address import Address, find_address
from qpidha.amqp.server.coordinator import Coordinator
from qpidha.amqp.server.incoming import IncomingLink
from qpidha.amqp.server.outgoing import OutgoingLink
from qpidha.amqp.server.receiving_link import TransferLimitExceeded
from qpidha.broker.declaration import OPTIONS, exchange_asked_for, properties_of, queue_asked_for
from qpidha.broker.node_patterns import as_made
from qpidha.broker.queues.arguments import check_key
from qpidha.broker.queues.intake import LANGUAGES, NO_LOCAL
from qpidha.broker.queues.lifetime import AUTO_DELETE_TIMEOUT, LIFETIME_POLICY, Lifetime
from qpidha.broker.translation import (
    SourceFilters,
    check_capabilities,
    check_link_properties,
    filters_in,
    filters_of,
    patience_of,
    priority_of,
    take_option,
    translate,
    wants,
)
from qpidha.broker.vocabulary import (
    CREATE,
    DURABLE,
    EXCHANGE_TYPE,
    EXCLUSIVE,
    EXCLUSIVE_LINK,
    FENCING_LINK,
    LEAVE_OUT,
    SHARED,
    VOLATILE,
    Kind,
)
from qpidha.model.encoding import Array, Described, Symbol, ULong
from qpidha.model.errors import (
    InvalidArgument,
    LinkStolen,
    NotFound,
    NotImplementedHere,
    PreconditionFailed,
    ProtocolViolation,
    QpidHaError,
    RefusedRequest,
)
from qpidha.model.principal import Action, ObjectType
from qpidha.model.replication_level import REPLICATE

if TYPE_CHECKING:
    from qpidha.amqp.peer.links import LinkEnd
    from qpidha.amqp.server.host import LinkHome
    from qpidha.broker.exchange import Exchange
    from qpidha.broker.queues.queue import Queue

DISTRIBUTION_MODES = "supported-dist-modes"
"""`copy` for an exchange, `move` for a queue."""
JMS_PRODUCT = "QpidJMS"
QUEUE, EXCHANGE = "a queue", "an exchange"
KINDS = {
    "queue": QUEUE,
    "temporary-queue": QUEUE,
    VOLATILE: QUEUE,
    "topic": EXCHANGE,
    "temporary-topic": EXCHANGE,
}
"""What kind of node the capabilities of a terminus ask for."""
LIFETIMES = {
    0x2B: "delete-on-close",
    0x2C: "delete-if-unused",
    0x2D: "delete-if-empty",
    0x2E: "delete-if-unused-and-empty",
    "amqp:delete-on-close:list": "delete-on-close",
    "amqp:delete-on-no-links:list": "delete-if-unused",
    "amqp:delete-on-no-messages:list": "delete-if-empty",
    "amqp:delete-on-no-links-or-messages:list": "delete-if-unused-and-empty",
}
LIFETIME_CODES = {
    "delete-on-close": 0x2B,
    "delete-if-unused": 0x2C,
    "delete-if-empty": 0x2D,
    "delete-if-unused-and-empty": 0x2E,
}


def attach_link(served: LinkHome, end: LinkEnd) -> None:
    """Answer a peer's attach, now or when what it needs is committed."""
    attaching = Attaching(served, end)
    try:
        attaching.begin()
    except RefusedRequest as error:
        attaching.refuse(error)


class Attaching:
    """A link between the peer's attach and our answer."""

    __slots__ = (
        "_filters",
        "_broker",
        "_connection",
        "_deletes",
        "_durability",
        "_end",
        "_host",
        "_incoming",
        "_lives",
        "_made",
        "_outgoing",
        "_queue",
        "_sequence",
        "_served",
        "_source",
        "_target",
    )

    def __init__(self, served: LinkHome, end: LinkEnd) -> None:
        self._served = served
        self._connection = served.connection
        self._host = served.host
        self._broker = served.host.broker
        self._end: LinkEnd | None = end
        self._source = end.remote_source()
        self._target = end.remote_target()
        mine = self._source if end.is_sender else self._target
        self._lives = mine.expiry == "never"
        """Whether the peer wants a subscription that outlives everything."""
        self._durability, mine.durability = mine.durability, 0
        if mine.kind in (SOURCE, TARGET):
            # Nothing of ours outlives a detach, but for the queue of a subscription.
            mine.expiry = "link-detach"
        self._incoming: IncomingLink | None = None
        self._outgoing: OutgoingLink | None = None
        self._queue: Queue | None = None
        self._filters = SourceFilters({})
        self._deletes = False
        self._made: Address | None = None
        """What was made for this link."""
        self._sequence = 0

    def begin(self) -> None:
        """Find or make what the link is for."""
        end = self._end
        assert end is not None
        terminus, other = self._source, self._target
        if not end.is_sender:
            terminus, other = other, terminus
        if other.kind == NONE:
            raise InvalidArgument(
                "a receiver needs a target" if end.is_sender else "a sender needs a source",
                reason="nothing can be sent on a link without",
                hint="give one, which may be empty",
            )
        if terminus.kind == COORDINATOR:
            self._begin_coordinator(end)
            return
        self._check_wishes(end, terminus)
        service = self._host.service(terminus.address) if terminus.address else None
        if service is not None:
            if end.is_sender:
                _refuse_filters(terminus)
            self._check(Action.ACCESS, ObjectType.SERVICE, terminus.address or "")
            room = None if self._connection.principal.is_broker else self._served.answers
            link = ServiceLink(self._connection, end, service, terminus.address or "", room)
            link.accept(self._source, self._target)
            return
        end.set_limit(self._host.settings.max_message_size)
        end.owner = self
        if end.is_sender:
            self._begin_outgoing(end)
        else:
            self._begin_incoming(end)
        if self._sequence:
            self._host.when_committed(self._sequence, self, None)
        else:
            self.on_committed(None)

    def on_committed(self, item: object) -> None:
        """Answer: what was made for the link is committed."""
        end = self._end
        if end is None:
            return
        self._end = self._made = None
        if self._outgoing is not None and self._queue is not None:
            try:
                if self._outgoing.end is None:
                    raise LinkStolen(
                        "another link of this name was attached by the same container meanwhile"
                    )
                self._outgoing.start(self._queue, self._source, self._target, deletes=self._deletes)
            except (RefusedRequest, LinkStolen) as error:
                self._outgoing.lost()
                end.refuse(error)
        elif self._incoming is not None:
            end.open(self._source, self._target)
            self._incoming.start()
        self._connection.wake()

    def refuse(self, error: QpidHaError) -> None:
        """Say no."""
        end, self._end = self._end, None
        self._drop()
        if end is not None:
            end.refuse(error)

    # A peer that loses patience meanwhile.

    def answered(self) -> None:
        """The peer attached the link a second time."""
        raise ProtocolViolation("a link was attached a second time before it was answered")

    def delivery_changed(self, delivery: Pointer) -> None:
        """A message came, for which there was no credit."""
        end = self._end
        if end is not None:
            end.discard(delivery)
            self.refuse(
                TransferLimitExceeded(
                    "a message came before the attach was answered, and credit given"
                )
            )
            self._connection.wake()

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

    def broken(self, error: QpidHaError) -> None:
        """The peer broke a rule on a link that is not answered yet."""
        self.refuse(error)

    def declined(self, delivery: Pointer, error: QpidHaError) -> None:
        """The peer sent without credit."""
        self.refuse(error)

    def _drop(self) -> None:
        for link in (self._incoming, self._outgoing):
            if link is not None:
                link.lost()
        made, self._made = self._made, None
        if made is not None and made.queue is not None:
            self._broker.left(made.queue)
        elif made is not None:
            self._broker.left_exchange(made.exchange)

    # Finding the AMQP node.

    def _begin_coordinator(self, end: LinkEnd) -> None:
        if end.is_sender:
            raise InvalidArgument("a coordinator is a target, not a source")
        self._check_serving(0)
        Coordinator(self._served, end, self._source.outcomes).start(self._source)

    def _begin_incoming(self, end: LinkEnd) -> None:
        target = self._target
        if target.kind == NONE:
            raise InvalidArgument(
                "a sender needs a target",
                hint="give an address, or a target without one for an anonymous link",
            )
        outcomes = self._source.outcomes
        if outcomes and OUTCOME_NAMES[ACCEPTED] not in outcomes:
            raise InvalidArgument(
                "the source lists outcomes without amqp:accepted:list, so nothing could be taken",
                hint="add it, or list none",
            )
        target.timeout = 0
        link = IncomingLink(self._served, end, address=target.address or "", outcomes=outcomes)
        self._incoming = link
        if target.address is None and not target.dynamic:
            return
        address = self._find(target, link)
        if address.queue is not None:
            self._check(Action.PUBLISH, ObjectType.QUEUE, address.queue.name)
            self._check_queue(address.queue, link)
            if address.queue.is_copy:
                address.queue.check_open()
            link.to_queue(address.queue)
        else:
            if address.key is not None or not self._host.access.each_message:
                told = {"routingkey": address.key or ""}
                self._check(Action.PUBLISH, ObjectType.EXCHANGE, address.name, told)
            self._check_serving(0)
            link.to_exchange(address.exchange, address.key)

    def _begin_outgoing(self, end: LinkEnd) -> None:
        source = self._source
        if source.kind == NONE:
            self._resume(end)
            return
        if source.address is None and not source.dynamic:
            raise InvalidArgument(
                "a receiver needs a source address", hint="give the name of a queue or exchange"
            )
        default = source.default_outcome
        if default is not None and default.state not in (RELEASED, MODIFIED):
            name = OUTCOME_NAMES.get(default.state, "of another name")
            raise NotImplementedHere(
                f"the default-outcome {name} is not offered",
                hint="use released or modified, or none",
            )
        if source.distribution not in ("", "move", "copy"):
            raise NotImplementedHere(
                f"the distribution-mode {source.distribution} is not offered",
                hint="use move, which takes messages, or copy, which shows them",
            )
        browse = source.distribution == "copy"
        found = None if source.dynamic else find_address(self._broker, source.address or "")
        shared = SHARED in source.capabilities
        is_subscription = (
            _asks_for_exchange(source)
            if found is None
            else found.exchange is not None or self._kind_made(found, source) is Kind.EXCHANGE
        )
        link = OutgoingLink(
            self._served,
            end,
            browse=browse and not is_subscription,
            exclusive=is_subscription
            and not shared
            or wants(EXCLUSIVE_LINK, end.remote_properties()),
            priority=priority_of(end.remote_properties()),
            patience=patience_of(end.remote_properties()),
            fences=wants(FENCING_LINK, end.remote_properties()),
        )
        self._outgoing = link
        self._host.links.attach(self._connection, end.name, True, link)
        address = self._find(source, link)
        if address.queue is not None and address.queue.spec.browse_only:
            link.browse = True
        source.distribution = "copy" if link.browse else "move"
        outcomes = list(OUTCOME_NAMES.values())
        source.outcomes = [name for name in outcomes if name in source.outcomes] or outcomes
        if address.exchange is not None:
            self._subscribe(address, link, shared)
            return
        source.timeout = 0
        self._check(Action.CONSUME, ObjectType.QUEUE, address.queue.name, {"browse": link.browse})
        self._check_queue(address.queue, link)
        if not link.browse:
            self._check_serving(address.queue.uid)
        self._queue = address.queue

    def _resume(self, end: LinkEnd) -> None:
        """Attach to the subscription of the link's name: a peer that gives no source wants what is
        there, as Qpid JMS does to end a durable subscription.
        """
        container = self._connection.remote_container
        queue = self._broker.find_queue(
            self._subscription_name(end.name) if self._is_jms() else self._own_name(end.name)
        )
        # A shared one ends with its last link by itself, unless it is durable.
        if queue is None or not queue.bindings or shares(queue) and queue.options.auto_delete:
            raise NotFound(
                f"there is no subscription '{end.name}' of container '{container}'",
                hint="give a source address",
            )
        uid, key = next(iter(queue.bindings))
        options = queue.options
        self._source = Terminus(
            SOURCE,
            f"{self._broker.by_uid[uid].name}/{key}",
            durability=int(options.durable),  # Deliveries that are not settled go back to it.
            expiry="link-detach" if options.auto_delete else "never",
            timeout=int(options.arguments.get(AUTO_DELETE_TIMEOUT, 0)),
            distribution="move",
            outcomes=list(OUTCOME_NAMES.values()),
            filter=filters_in(options.arguments),
        )
        link = OutgoingLink(self._served, end, browse=False, exclusive=True)
        self._outgoing = link
        self._host.links.attach(self._connection, end.name, True, link)
        self._take_over(queue, link, shared=shares(queue))
        self._check(Action.DELETE, ObjectType.QUEUE, queue.name)
        self._check_serving(queue.uid)
        self._queue, self._deletes = queue, True

    def _is_jms(self) -> bool:
        return bool(self._connection.remote_properties.get("product") == JMS_PRODUCT)

    def _own_name(self, link: str) -> str:
        """Return the name of the queue of a subscription that one container has."""
        return f"{self._connection.remote_container}_{link}"

    def _subscription_name(self, link: str) -> str:
        """Return the name of the queue of a shared subscription, which is that of its links. Those
        of Qpid JMS end with what kind it is and a number: NAME and NAME|2 are durable and of one
        client ID, NAME|volatile1 lives with its links, NAME|global and NAME|global-volatile1 are
        of any connection without a client ID.
        """
        if not self._is_jms():
            return link
        name, bar, end = link.rpartition("|")
        kind = end.rstrip("0123456789") if bar else ""
        name = f"{name}|{kind}" if kind else name or link
        return name if kind.startswith("global") else self._own_name(name)

    def _take_over(self, queue: Queue, link: OutgoingLink, *, shared: bool) -> None:
        """Refuse a queue that exists unless it is that of such a subscription, and the peer may do
        with it what comes of one: who closes a subscription that is not shared deletes its queue.
        """
        name = queue.name
        self._check(Action.ACCESS, ObjectType.QUEUE, name)
        self._check(Action.CONSUME, ObjectType.QUEUE, name, {"browse": False})
        exclusive = queue.options.exclusive
        if not (queue.bindings and not exclusive if shared else exclusive):
            raise PreconditionFailed(
                f"the name '{name}' is taken by a queue that is no such subscription",
                reason="its queue would be bound to an exchange, and not exclusive"
                if shared
                else "its queue would be exclusive",
                hint="give the link another name, or the queue as the source address",
            )
        if not shared:
            self._check(Action.DELETE, ObjectType.QUEUE, name)
        self._check_queue(queue, link)

    def _intake(self) -> dict[str, str]:
        """Return what the filters of a subscription say of its queue."""
        wanted = dict(self._filters.intake)
        if self._filters.no_local:
            wanted[NO_LOCAL] = self._connection.remote_container
        return wanted

    def _check_intake(self, queue: Queue) -> None:
        """Refuse a subscription that exists with another selector, or with what its own container
        sends where the peer wants none of that: what it has is not what the peer wants.
        """
        wanted = self._intake()
        for name in (*LANGUAGES, NO_LOCAL):
            present = queue.options.arguments.get(name)
            if present != wanted.get(name):
                what = "no-local" if name == NO_LOCAL else "selector"
                raise PreconditionFailed(
                    f"the subscription {queue.name} exists with another {what}",
                    reason=f"{name} is {present!r:.200} there",
                    hint="close it first, or give the link another name",
                )

    def _find(self, terminus: Terminus, link: object) -> Address:
        """Find the node of a terminus, or make it if the peer asks for that; the terminus comes to
        say what it is.
        """
        creates = CREATE in terminus.capabilities
        if terminus.dynamic:
            if terminus.address is not None:
                raise InvalidArgument(
                    f"a dynamic node has no address yet, but '{terminus.address}' was given",
                    hint="leave the address out, or ask for a node of that name without dynamic",
                )
            kind = "TempTopic" if _asks_for_exchange(terminus) else "TempQueue"
            terminus.address = f"{kind}{self._host.make_uuid()}"
            found = self._create(Address(terminus.address), terminus, link)
        else:
            found = find_address(self._broker, terminus.address or "")
            if found.queue is not None or found.exchange is not None:
                object_type = ObjectType.EXCHANGE if found.queue is None else ObjectType.QUEUE
                self._check(Action.ACCESS, object_type, (found.queue or found.exchange).name)
                self._check_node(found, terminus, creates=creates)
                self._read_filter(found, "" if found.queue else found.exchange.options.type)
            elif creates:
                found = self._create(found, terminus, link)
            elif (kind_made := self._kind_made(found, terminus)) is not None:
                found = self._create(found, terminus, link, kind_made)
            else:
                kind = found.wanted or "queue or exchange"
                raise NotFound(
                    f"there is no {kind} '{found.name}'",
                    hint=f"create it, or ask for it with the capability {CREATE}",
                )
        _check_kind(found, terminus.capabilities)
        return found

    def _check_node(self, found: Address, terminus: Terminus, *, creates: bool) -> None:
        """Refuse a node that exists otherwise than the peer asks for it. Of one that it would have
        created, its capabilities count alone.
        """
        subscribes = found.exchange is not None and self._outgoing is not None and not creates
        asked = asked_of(terminus, is_exchange=found.exchange is not None and not subscribes)
        if subscribes:  # the rest is for the queue of the subscription
            asked = {name: value for name, value in asked.items() if name in OPTIONS}
        if EXCHANGE_TYPE in terminus.properties:
            asked[EXCHANGE_TYPE] = terminus.properties[EXCHANGE_TYPE]
        if creates:
            asked = {DURABLE: True} if DURABLE in terminus.capabilities else {}
        options = (found.queue or found.exchange).options
        for name, value in asked.items():
            has = (
                getattr(options, OPTIONS[name], None)
                if name in OPTIONS
                else options.arguments.get(name)
            )
            if name == DURABLE and found.exchange is not None and found.exchange.is_built_in:
                has = True
            if has != value:
                raise PreconditionFailed(
                    f"'{found.name}' exists, but {name} is not {value!r}",
                    hint="ask for it as it is",
                )

    def _read_filter(self, address: Address, exchange_type: str) -> None:
        """Find out what the filters of a source mean, before anything is made for it."""
        if self._outgoing is None:
            return
        self._filters = filters_of(self._source.filter, exchange_type)
        self._source.filter = self._filters.in_effect
        self._outgoing.select(self._filters.selector)
        key = self._filters.key
        if None not in (key, address.key) and key != address.key:
            raise InvalidArgument(
                f"the address says the key {address.key!r}, the filter {key!r}",
                hint="give one of them",
            )

    def _kind_made(self, found: Address, terminus: Terminus) -> Kind | None:
        """Return what the operator has made for a name that is not there, if the peer wants that;
        with create-on-demand the peer says what is made.
        """
        if found.queue is not None or found.exchange is not None or CREATE in terminus.capabilities:
            return None
        wanted = {KINDS[name] for name in terminus.capabilities if name in KINDS}
        if EXCHANGE_TYPE in terminus.properties or found.wanted == "exchange":
            wanted = {EXCHANGE}
        elif found.wanted:
            wanted = {QUEUE}
        among = [
            kind
            for kind, called in ((Kind.QUEUE, QUEUE), (Kind.EXCHANGE, EXCHANGE))
            if called in wanted or not wanted
        ]
        return self._broker.node_patterns.kind_of(found.name, among)

    def _create(
        self, address: Address, terminus: Terminus, link: object, kind_made: Kind | None = None
    ) -> Address:
        """Make a queue or exchange from node properties; of a kind that is made for its name it
        goes when it is not used, unless they say otherwise.
        """
        is_exchange = (
            kind_made is Kind.EXCHANGE
            if kind_made is not None
            else _asks_for_exchange(terminus) or address.wanted == "exchange"
        )
        asked = asked_of(terminus, is_exchange=is_exchange)
        if kind_made is not None:
            asked = as_made(kind_made, asked)
        kind = str(terminus.properties.get(EXCHANGE_TYPE) or "topic") if is_exchange else ""
        self._read_filter(address, kind)
        if is_exchange or not terminus.dynamic:
            self._check_serving(0)
        else:
            asked = {LIFETIME_POLICY: Lifetime.ON_CLOSE.value, **asked}
        object_type = ObjectType.EXCHANGE if is_exchange else ObjectType.QUEUE
        self._check(
            Action.CREATE,
            object_type,
            address.name,
            properties_of(
                exchange_asked_for(address.name, kind, arguments=asked)
                if is_exchange
                else queue_asked_for(address.name, arguments=asked)
            ),
        )
        if is_exchange:
            address.exchange, sequence = self._broker.declare_exchange(
                address.name, kind, arguments=asked, owner=link if terminus.dynamic else None
            )
        else:
            ends_with_link = terminus.dynamic or asked.get(LIFETIME_POLICY) == "delete-on-close"
            holder = link if ends_with_link else self._connection if asked.get(EXCLUSIVE) else None
            queue, sequence = self._broker.declare_queue(
                address.name, arguments=asked, owner=holder
            )
            address.queue = queue
        if kind_made is not None:
            self._made = address
            if is_exchange:
                address.exchange.ends_unbound = True
        if terminus.dynamic:
            code = LIFETIME_CODES.get(str(asked.get(LIFETIME_POLICY)), 0x2B)
            terminus.properties = {Symbol("lifetime-policy"): Described(ULong(code), [])}
            if VOLATILE in terminus.capabilities:
                # The clients who ask so send replies to no other form of address.
                terminus.address = f"/queues/{address.name}"
        self._done(Action.CREATE, object_type, address.name)
        self._sequence = max(self._sequence, sequence)
        return address

    def _subscribe(self, address: Address, link: OutgoingLink, shared: bool) -> None:
        """Make the queue and the binding of a subscription to an exchange."""
        self._check_serving(0)
        source, end = self._source, self._end
        assert end is not None
        exchange = address.exchange
        if shared and self._filters.no_local:
            raise NotImplementedHere(
                "a shared subscription cannot leave out what its own connections send",
                reason="what one of its links does not want is for another one",
                hint="attach without the capability shared, or without the filter no-local",
            )
        name = self._subscription_name(end.name) if shared else self._own_name(end.name)
        arguments = {**self._subscription_arguments(), **self._intake()}
        lives = self._lives
        if source.timeout and not lives:
            arguments[AUTO_DELETE_TIMEOUT] = source.timeout
        queue = self._broker.find_queue(name)
        is_new = queue is None
        if queue is None:
            self._check(Action.CONSUME, ObjectType.QUEUE, name, {"browse": False})
            asked: dict[str, Any] = {
                "durable": self._durability > 0,
                "exclusive": not shared,
                "auto_delete": not lives,
                "arguments": arguments,
                "alternate": exchange.options.alternate,
            }
            properties = properties_of(queue_asked_for(name, **asked))
            self._check(Action.CREATE, ObjectType.QUEUE, name, properties)
            owner = None if shared or lives else link
            queue, sequence = self._broker.declare_queue(name, owner=owner, **asked)
            self._sequence = max(self._sequence, sequence)
        else:
            self._take_over(queue, link, shared=shared)
            self._check_intake(queue)
        key = self._filters.key if address.key is None else address.key
        if key is None:
            key = (
                "#"
                if exchange.options.type == "topic"
                else name
                if exchange.options.type == "headers"
                else ""
            )
        try:
            self._bind(exchange, queue, key, is_new=is_new)
        except RefusedRequest:
            if is_new:
                self._broker.delete_queue(name)
            raise
        self._queue = queue
        self._deletes = not shared
        if lives:
            source.expiry = "never"
        if lives or source.timeout:
            # The queue is kept, deliveries that are not settled go back to it.
            source.durability = min(self._durability, 1)

    def _bind(self, exchange: Exchange, queue: Queue, key: str, *, is_new: bool) -> None:
        """Bind the queue of a subscription, which may be new, unless it is bound so."""
        check_key("binding key", key)
        arguments = dict(self._filters.arguments)
        asked = {**arguments, "queuename": queue.name, "routingkey": key}
        self._check(Action.BIND, ObjectType.EXCHANGE, exchange.name, asked)
        is_bound = exchange.binding(queue, key) is not None
        sequence = self._broker.bind(exchange.name, queue.name, key, arguments)
        self._sequence = max(self._sequence, sequence)
        if is_new:
            self._done(Action.CREATE, ObjectType.QUEUE, queue.name)
        if not is_bound:
            self._done(Action.BIND, ObjectType.EXCHANGE, exchange.name, asked)

    def _subscription_arguments(self) -> dict[str, Any]:
        """Return what node properties say of the queue of a subscription. With create-on-demand
        they are the exchange's; the queue is replicated as it is.
        """
        creates = CREATE in self._source.capabilities
        asked = asked_of(self._source, is_exchange=creates)
        if creates:
            return {REPLICATE: asked[REPLICATE]} if REPLICATE in asked else {}
        return {name: value for name, value in asked.items() if name not in OPTIONS}

    def _check_wishes(self, end: LinkEnd, terminus: Terminus) -> None:
        """Refuse by name what the peer asks for and would not get; brokers know each other."""
        if self._connection.principal.is_broker:
            return
        check_link_properties(end.remote_properties())
        check_capabilities(Kind.SOURCE if end.is_sender else Kind.TARGET, terminus.capabilities)

    def _check(
        self,
        action: Action,
        object_type: ObjectType,
        name: str,
        properties: dict[str, Any] | None = None,
    ) -> None:
        """Refuse the attach unless the peer may do this."""
        self._host.access.check(self._connection.principal, action, object_type, name, properties)

    def _done(
        self,
        action: Action,
        object_type: ObjectType,
        name: str,
        properties: dict[str, Any] | None = None,
    ) -> None:
        """Tell that the peer has done this."""
        self._host.access.done(self._connection.principal, action, object_type, name, properties)

    def _check_queue(self, queue: Queue, link: object) -> None:
        if queue.owner is not link:
            queue.check_access(self._connection)
        if self._incoming is not None:
            self._check_serving(queue.uid)

    def _check_serving(self, uid: int) -> None:
        """Refuse changes of replicated objects where they do not happen; what is local to this
        broker may be used.
        """
        if uid >= 0 and not self._host.serving:
            raise self._host.refusal()


def asked_of(terminus: Terminus, *, is_exchange: bool) -> dict[str, Any]:
    """Return what node properties ask for, in known names; raise for what is refused."""
    given = {str(key): value for key, value in terminus.properties.items() if value is not None}
    given.pop(EXCHANGE_TYPE, None)
    _check_distribution_modes(given.pop(DISTRIBUTION_MODES, None))
    policy = given.get("lifetime-policy")
    if isinstance(policy, Described):
        if not isinstance(policy.descriptor, int | str) or policy.descriptor not in LIFETIMES:
            raise InvalidArgument(
                f"the lifetime policy {policy.descriptor} is not known",
                hint=f"use one of {', '.join(str(key) for key in LIFETIMES)}",
            )
        given["lifetime-policy"] = LIFETIMES[policy.descriptor]
    if is_exchange and terminus.dynamic and given.get("lifetime-policy") == "delete-on-close":
        del given["lifetime-policy"]  # As it is with every dynamic one.
    asked = translate(Kind.EXCHANGE if is_exchange else Kind.QUEUE, given)
    if take_option(asked, DURABLE, DURABLE in terminus.capabilities):
        asked[DURABLE] = True
    return asked


def _asks_for_exchange(terminus: Terminus) -> bool:
    """Whether a node that is made for a terminus is to be an exchange."""
    return (
        EXCHANGE_TYPE in terminus.properties
        or any(KINDS.get(name) == EXCHANGE for name in terminus.capabilities)
        or terminus.properties.get(DISTRIBUTION_MODES) == "copy"
    )


def shares(queue: Queue) -> bool:
    """Whether several links may have the subscription of a queue."""
    return not queue.options.exclusive


def _check_kind(found: Address, capabilities: list[str]) -> None:
    """Refuse a node whose kind is none of those that capabilities name."""
    kinds = [name for name in capabilities if name in KINDS]
    kind = QUEUE if found.queue is not None else EXCHANGE
    if kinds and SHARED not in capabilities and all(KINDS[name] != kind for name in kinds):
        raise PreconditionFailed(
            f"'{found.name}' is {kind}, but the capability {kinds[0]} asks for {KINDS[kinds[0]]}"
        )


def _refuse_filters(terminus: Terminus) -> None:
    """Refuse filters of what is no queue or exchange."""
    for name in filters_of(terminus.filter, "").in_effect:
        raise NotImplementedHere(
            f"the filter {name} is not offered for '{terminus.address}'",
            reason="it is a service of this broker, and its answers are for who asks",
            hint=LEAVE_OUT,
        )


def _check_distribution_modes(modes: Any) -> None:
    """Refuse what is no distribution mode."""
    named = modes.items if isinstance(modes, Array) else [] if modes is None else [modes]
    for mode in named:
        if mode not in ("move", "copy"):
            raise InvalidArgument(
                f"{DISTRIBUTION_MODES} {mode!r:.60} is not known", hint="use move, copy or both"
            )
