"""Schema: the classes of managed objects, their properties, and how each is read from the broker
model.

One table for each class serves every way in: the admin socket uses the snake_case names, AMQP
management the camelCase ones that Qpid's tools know. Each read looks at the object itself, so every
number is that of the moment. The object of the classes of the broker is its status report, which is
built once a read. Knows no transport and changes nothing.
Source: Qpid qpid/management-schema.xml and qpid/ha/management-schema.xml; AMQP management 1.0
(draft).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from qpidha.broker.queues.queue import Queue
from qpidha.model.duration import SECOND
from qpidha.model.encoding import Array, Described
from qpidha.model.errors import InvalidArgument
from qpidha.model.events import ConnectionKind
from qpidha.model.percent import decode_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from qpidha.broker.broker import Broker
    from qpidha.broker.exchange import Destination
    from qpidha.management.port import ConnectionView, ManagedNode, SessionView
    from qpidha.model.principal import Principal

PRODUCT = "qpidha"
HA_BROKER = "ha-broker"
"""The name of the one object of the HA class."""
PLAIN = frozenset((bool, int, str))
"""Types that JSON has."""
LOOKS = 8
"""So many objects that are counted or compared, and not shown, take as long as one read."""
Read = Callable[[Any, "ManagedNode"], Any]
"""From an object, and the broker that it is one of, to the value of a property."""


@dataclass(frozen=True, slots=True)
class Property:
    """One property of a class: `name` for JSON, `attribute` for AMQP management."""

    name: str
    attribute: str
    read: Read


@dataclass(frozen=True, slots=True)
class ObjectClass:
    """A class of managed objects: its type name and properties."""

    type: str
    properties: tuple[Property, ...]
    find: Callable[[ManagedNode], Iterable[Any]]
    get: Callable[[ManagedNode, str], Any]
    """The object of that name, or None."""
    name: Callable[[Any], str]

    @property
    def schemaclass(self) -> str:
        """What access control calls it."""
        return self.type.rpartition(":")[2]


@dataclass(slots=True)
class BindingView:
    """A binding as it is shown: the names are those of the exchange and of the queue, or of the
    other exchange, that it leads to.
    """

    exchange: str
    queue: str
    key: str
    arguments: dict[str, Any] = field(default_factory=dict)
    destination_exchange: str = ""


class SessionOf(NamedTuple):
    """A session as it is shown: its numbers are those of its connection and of its channel."""

    connection: ConnectionView
    session: SessionView


class Subscription(NamedTuple):
    """A consumer of a queue as it is shown."""

    queue: Queue
    link: Any


def describe(
    kind: ObjectClass, entry: Any, node: ManagedNode, wanted: Sequence[Property] = ()
) -> dict[str, Any]:
    """Read all properties of one object, or those that are wanted, under their JSON names."""
    wanted = wanted or kind.properties
    node.lines.spend(len(wanted))
    return {each.name: each.read(entry, node) for each in wanted}


def properties_named(kind: ObjectClass, names: str) -> Sequence[Property]:
    """Return the properties that a text names, with spaces or commas between. Raises
    InvalidArgument for what the class has not.
    """
    known = {each.name: each for each in kind.properties}
    found = names.replace(",", " ").split()
    for name in found:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise InvalidArgument(
                f"a {kind.type} has no field {name}",
                hint=f"did you mean {near[0]}?" if near else f"fields: {', '.join(known)}",
            )
    return [known[name] for name in found]


def attributes(kind: ObjectClass, entry: Any, node: ManagedNode) -> dict[str, Any]:
    """Read all properties of one object under their AMQP names, with the three that every object
    has.
    """
    node.lines.spend(len(kind.properties))
    return {name: read(entry, node) for name, read in _readers(kind).items()}


def attribute_names(kind: ObjectClass) -> list[str]:
    """Name what `attributes` gives, in its order."""
    return list(_readers(kind))


def rows(
    kind: ObjectClass, entries: Sequence[Any], node: ManagedNode, names: Iterable[str]
) -> list[list[Any]]:
    """Read these attributes of each object, and no others; None for what the class has not."""
    known = _readers(kind)
    wanted: list[Read] = [known.get(name, _nothing) for name in names]
    node.lines.spend(len(entries) * len(wanted))
    return [[read(entry, node) for read in wanted] for entry in entries]


def _readers(kind: ObjectClass) -> dict[str, Read]:
    """Map the attributes of a class to what reads each, the three that every object has first."""
    readers: dict[str, Read] = {
        "name": lambda entry, node: kind.name(entry),
        "identity": lambda entry, node: f"{kind.type}:{kind.name(entry)}",
        "type": lambda entry, node: kind.type,
    }
    for each in kind.properties:
        readers.setdefault(each.attribute, each.read)
    return readers


def _nothing(entry: Any, node: ManagedNode) -> None:
    """Read an attribute that there is not."""


def plain(value: Any) -> Any:
    """Reduce any value to the types of JSON; binary becomes text with its odd bytes escaped."""
    if type(value) in PLAIN or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if isfinite(value) else str(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        # An answer may have a million of these, and a call for each takes longer than to read them.
        return {
            key if type(key) is str else str(plain(key)): entry
            if type(entry) in PLAIN
            else plain(entry)
            for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, Array):
        return [plain(entry) for entry in value.items]
    if isinstance(value, Described):
        return plain(value.value)
    return str(value)


def binding_name(binding: BindingView) -> str:
    """Give a binding one name: its three parts percent-encoded, so that each may contain anything;
    in the place of the queue stands another exchange with `>` before it.
    """
    other = binding.destination_exchange
    parts = [
        quote(part, safe="") for part in (binding.exchange, other or binding.queue, binding.key)
    ]
    return "/".join((parts[0], f">{parts[1]}" if other else parts[1], parts[2]))


def binding_parts(name: str) -> dict[str, str] | None:
    """Take the name of a binding apart; None if it is none."""
    parts = name.split("/")
    if len(parts) != 3:
        return None
    exchange, queue, key = map(decode_part, parts)
    other = queue[1:] if parts[1].startswith(">") else ""
    named = {"exchange": exchange, "queue": "" if other else queue}
    return {**named, "key": key, "destination_exchange": other}


def bindings_of(broker: Broker) -> Iterator[BindingView]:
    """Walk through all bindings, exchange by exchange; those to the default exchange are implied by
    the queues.
    """
    for exchange in broker.exchanges.values():
        for destination, key, arguments in exchange.bindings():
            name = destination.name
            is_queue = isinstance(destination, Queue)
            yield (
                BindingView(exchange.name, name, key, arguments)
                if is_queue
                else BindingView(exchange.name, "", key, arguments, name)
            )


def binding_of(
    broker: Broker, exchange_name: str, queue_name: str, key: str, destination_exchange: str = ""
) -> BindingView | None:
    """Find one binding."""
    exchange = broker.exchanges.get(exchange_name)
    destination = (
        broker.exchanges.get(destination_exchange)
        if destination_exchange
        else broker.queues.get(queue_name)
    )
    if exchange is None or destination is None:
        return None
    binding = exchange.binding(destination, key)
    if binding is None:
        return None
    return BindingView(exchange_name, queue_name, key, binding.arguments, destination_exchange)


def _same(name: str, attribute: str = "") -> Property:
    return Property(name, attribute or name, lambda entry, node: getattr(entry, name))


def _option(name: str, attribute: str = "") -> Property:
    return Property(name, attribute or name, lambda entry, node: getattr(entry.options, name))


def _get_binding(node: ManagedNode, name: str) -> BindingView | None:
    parts = binding_parts(name)
    if parts is None:
        return None
    return binding_of(
        node.broker, parts["exchange"], parts["queue"], parts["key"], parts["destination_exchange"]
    )


def _all_sessions(node: ManagedNode) -> Iterator[SessionOf]:
    for connection in node.connections():
        for session in connection.sessions():
            yield SessionOf(connection, session)


def _session_name(found: SessionOf) -> str:
    return f"{found.connection.connection_id}/{found.session.channel}"


def _all_subscriptions(node: ManagedNode) -> Iterator[Subscription]:
    for queue in node.broker.queues.values():
        for link in queue.consumers:
            yield Subscription(queue, link)


def _session_of(link: Any) -> str:
    """Name the session of a link; empty if the link is ending."""
    end = link.end
    return f"{link.connection.connection_id}/{end.session.channel}" if end is not None else ""


def _subscription_name(found: Subscription) -> str:
    return f"{found.link.connection.connection_id}/{found.link.name}"


def _named(
    find: Callable[[ManagedNode], Iterable[Any]], name_of: Callable[[Any], str]
) -> Callable[[ManagedNode, str], Any]:
    """Look for what has a name among all there is."""

    def get(node: ManagedNode, name: str) -> Any:
        entries = list(find(node))
        node.lines.spend(len(entries) // LOOKS)
        return next((entry for entry in entries if name_of(entry) == name), None)

    return get


def connection_number(name: str) -> int:
    """Return what orders connections. Raises ValueError."""
    return int(name)


def session_number(name: str) -> tuple[int, int]:
    """Return what orders sessions. Raises ValueError."""
    connection, _, channel = name.partition("/")
    return int(connection), int(channel)


def subscription_number(name: str) -> tuple[int, str]:
    """Return what orders subscriptions. Raises ValueError."""
    connection, _, link = name.partition("/")
    return int(connection), link


def _get_broker(node: ManagedNode, name: str) -> dict[str, Any] | None:
    status = node.status()
    return status if name == _broker_name(status) else None


def _all_queues(node: ManagedNode) -> Iterable[Queue]:
    queues = node.broker.queues
    node.lines.spend(len(queues) // LOOKS)
    return queues.values()


def _broker_name(status: dict[str, Any]) -> str:
    return str(status.get("name", ""))


def _length(name: str, attribute: str) -> Property:
    return Property(name, attribute, lambda entry, node: len(getattr(entry, name)))


def unreplicated_messages(queue: Queue, node: ManagedNode) -> int:
    """Count the messages that not every in-sync broker has yet; a backup applies only what is
    committed.
    """
    return 0 if queue.log_writer is None else _after(queue, node, node.log.committed)


def _after(queue: Queue, node: ManagedNode, sequence: int) -> int:
    count = queue.unreplicated(sequence)
    node.lines.spend(count // LOOKS)
    return count


def behind_by_backup(queue: Queue, node: ManagedNode) -> dict[str, int | None]:
    """Count, for each backup, the messages of a queue that it has not confirmed; None where that is
    not known. Empty on a broker that is no primary, and for a queue of which backups get none.
    """
    if queue.log_writer is None:
        return {}
    return {
        name: None if sequence is None else _after(queue, node, sequence)
        for name, sequence in node.confirmed().items()
    }


def _oldest_age(queue: Queue, node: ManagedNode) -> float | None:
    oldest = queue.oldest_arrival
    return None if oldest is None else round(max(0, node.now - oldest.time) / SECOND, 3)


def _may_be_older(queue: Queue, node: ManagedNode) -> bool:
    oldest = queue.oldest_arrival
    return oldest is not None and not oldest.is_exact


def _status(name: str, attribute: str) -> Property:
    """A property of the broker: the object that is read is the status report, made once a read."""
    return Property(name, attribute, lambda status, node: plain(status.get(name)))


def _principal(name: str, attribute: str, read: Callable[[Principal], Any]) -> Property:
    return Property(name, attribute, lambda connection, node: read(connection.principal))


def _is_backup(connection: ConnectionView, node: ManagedNode) -> bool:
    """Whether another broker opened this connection, to be a backup; those that we opened lead to a
    primary.
    """
    return connection.principal.is_broker and connection.kind is not ConnectionKind.OUTGOING


def _policies(what: Destination, node: ManagedNode, is_operator: bool) -> str:
    """Name the policies that a queue or exchange follows, the one that counts most last."""
    followed = node.broker.followed.get(what)
    if followed is None:
        return ""
    layers = followed.operators if is_operator else followed.users
    return ", ".join(policy.record.name for policy in layers.used)


def _effective(what: Destination, node: ManagedNode) -> dict[str, Any]:
    """Return what counts for a queue or exchange because a policy says so."""
    followed = node.broker.followed.get(what)
    return {} if followed is None else followed.effective(what.options)


FOLLOWED = (
    Property("policy", "policy", lambda what, node: _policies(what, node, False)),
    Property("operator_policy", "operatorPolicy", lambda what, node: _policies(what, node, True)),
    Property("effective_policy", "effectivePolicy", _effective),
)
"""What policies say of a queue or exchange."""


def _counter(name: str, attribute: str) -> Property:
    return Property(name, attribute, lambda connection, node: getattr(connection.counters, name))


def _links(found: SessionOf, *, sending: bool) -> int:
    """Count the links of a session on which the broker sends, or the other end does."""
    return sum(link.is_sender is sending for link in found.session.links.values())


def _connection_name(connection: ConnectionView) -> str:
    return str(connection.connection_id)


def _process(connection: Any, node: ManagedNode) -> Any:
    return plain(connection.remote_properties.get("qpid.client_process", ""))


def _pid(connection: Any, node: ManagedNode) -> Any:
    return plain(connection.remote_properties.get("qpid.client_pid"))


def why_pending(queue: Any, node: ManagedNode) -> str:
    """Say why messages that died on a queue are still there."""
    return queue.why_unplaced if queue.unplaced else ""


QUEUE = ObjectClass(
    "queue",
    (
        _same("name"),
        _option("uuid"),
        _option("durable"),
        _option("auto_delete", "autoDelete"),
        _option("exclusive"),
        _option("alternate", "altExchange"),
        _option("replicate"),
        Property(
            "replicate_fallback",
            "replicateFallback",
            # As long as no policy says another; empty if the declaration names one.
            lambda queue, node: queue.options.fallback,
        ),
        _option("arguments"),
        _option("implied"),  # those of them that came with others, and policies may say otherwise
        *FOLLOWED,
        # Depths of this moment, then totals since this broker began to decide; Qpid's names where
        # Qpid counts the same.
        _length("messages", "msgDepth"),
        _same("bytes", "byteDepth"),
        Property("unreplicated", "msgUnreplicated", unreplicated_messages),
        Property("unsafe", "msgUnsafe", unreplicated_messages),  # the former name
        Property("backups", "msgUnreplicatedByBackup", behind_by_backup),
        Property("oldest_age_seconds", "msgOldestAge", _oldest_age),
        # Whether it was here before this broker could see when it came.
        Property("oldest_may_be_older", "msgOldestMayBeOlder", _may_be_older),
        _same("paged_out", "byteDepthPagedOut"),
        Property("cold", "byteDepthOnDisk", lambda queue, node: queue.paged_out),  # former name
        Property("flow_stopped", "flowStopped", lambda queue, node: queue.is_stopped),
        _same("flow_stops", "flowStoppedCount"),
        Property("waiting_senders", "waitingSenders", lambda queue, node: len(queue.waiting)),
        Property("dlx_pending", "msgDlxPending", lambda queue, node: len(queue.unplaced)),
        _length("unplaced", "msgUnplaced"),  # the former name
        Property("dlx_pending_why", "dlxPendingWhy", why_pending),
        _same("not_rerouted", "discardsDlx"),
        _same("refused", "discardsOverflow"),
        _length("consumers", "consumerCount"),
        _length("bindings", "bindingCount"),
        Property(
            "acquired", "unackedMessages", lambda queue, node: queue.acquired - len(queue.delayed)
        ),
        _length("delayed", "msgDelayed"),
        _same("enqueued", "msgTotalEnqueues"),
        _same("dequeued", "msgTotalDequeues"),
        _same("bytes_enqueued", "byteTotalEnqueues"),
        _same("bytes_departed", "byteTotalDequeues"),
        _same("transacted_in", "msgTxnEnqueues"),
        _same("transacted_in_bytes", "byteTxnEnqueues"),
        _same("transacted_out", "msgTxnDequeues"),
        _same("transacted_out_bytes", "byteTxnDequeues"),
        _same("departures", "departuresByCause"),
        _same("priorities", "msgDepthByPriority"),
        _same("released", "releases"),
        _same("expired", "discardsTtl"),
        _same("rejected", "discardsSubscriber"),
        _same("discarded", "discardsPurge"),
        _same("deduplicated", "discardsDuplicate"),
        _same("left_out", "discardsFilter"),
    ),
    find=lambda node: node.broker.queues.values(),
    get=lambda node, name: node.broker.queues.get(name),
    name=lambda queue: queue.name,
)

EXCHANGE = ObjectClass(
    "exchange",
    (
        _same("name"),
        _option("type", "exchangeType"),
        _option("uuid"),
        _option("durable"),
        _option("auto_delete", "autoDelete"),
        _option("alternate", "altExchange"),
        _option("replicate"),
        _option("arguments"),
        *FOLLOWED,
        Property("bindings", "bindingCount", lambda exchange, node: exchange.binding_count),
        _same("received", "msgReceives"),
        _same("dropped", "msgDrops"),
        Property(
            "routed", "msgRoutes", lambda exchange, node: exchange.received - exchange.dropped
        ),
        _same("bytes_received", "byteReceives"),
        _same("bytes_dropped", "byteDrops"),
    ),
    find=lambda node: node.broker.exchanges.values(),
    get=lambda node, name: node.broker.exchanges.get(name),
    name=lambda exchange: exchange.name,
)

BINDING = ObjectClass(
    "binding",
    (
        _same("exchange"),
        _same("queue"),
        _same("key", "bindingKey"),
        _same("arguments"),
        _same("destination_exchange", "destinationExchange"),
    ),
    find=lambda node: bindings_of(node.broker),
    get=_get_binding,
    name=binding_name,
)

CONNECTION = ObjectClass(
    "connection",
    (
        Property("id", "connectionId", lambda connection, node: connection.connection_id),
        _principal("peer", "address", lambda principal: principal.address),
        _principal("user", "authIdentity", lambda principal: principal.name),
        _principal("mechanism", "saslMechanism", lambda principal: principal.mechanism),
        Property(
            "container", "remoteContainer", lambda connection, node: connection.remote_container
        ),
        Property("process", "remoteProcessName", _process),
        Property("pid", "remotePid", _pid),
        _principal("encrypted", "encrypted", lambda principal: principal.encrypted),
        _principal("admin", "isAdmin", lambda principal: principal.is_administrator),
        Property("backup", "isBackup", _is_backup),
        _same("since_ns", "createdAt"),
        _same("heard_ns", "heardAt"),
        Property("sessions", "sessionCount", lambda connection, node: len(connection.sessions())),
        _counter("messages_in", "msgsFromClient"),
        _counter("messages_out", "msgsToClient"),
        _counter("bytes_in", "bytesFromClient"),
        _counter("bytes_out", "bytesToClient"),
    ),
    find=lambda node: node.connections(),
    get=_named(lambda node: node.connections(), _connection_name),
    name=_connection_name,
)

SESSION = ObjectClass(
    "session",
    (
        Property("id", "sessionId", lambda found, node: _session_name(found)),
        Property("connection", "connectionRef", lambda found, node: found.connection.connection_id),
        Property("channel", "channelId", lambda found, node: found.session.channel),
        Property("user", "authIdentity", lambda found, node: found.connection.principal.name),
        Property("peer", "address", lambda found, node: found.connection.principal.address),
        Property("senders", "producerCount", lambda found, node: _links(found, sending=False)),
        Property("receivers", "consumerCount", lambda found, node: _links(found, sending=True)),
        Property("unsettled", "unackedMessages", lambda found, node: found.session.unacked),
        Property(
            "unsettled_bytes", "unackedBytes", lambda found, node: found.session.unacked_bytes
        ),
        Property("waiting_bytes", "bytesWaiting", lambda found, node: found.session.backlog()),
    ),
    find=_all_sessions,
    get=_named(_all_sessions, _session_name),
    name=_session_name,
)

SUBSCRIPTION = ObjectClass(
    "subscription",
    (
        Property("id", "subscriptionId", lambda found, node: _subscription_name(found)),
        Property(
            "connection", "connectionRef", lambda found, node: found.link.connection.connection_id
        ),
        Property("link", "linkName", lambda found, node: found.link.name),
        Property("session", "sessionRef", lambda found, node: _session_of(found.link)),
        Property("queue", "queueRef", lambda found, node: found.queue.name),
        Property("address", "sourceAddress", lambda found, node: found.link.address),
        Property("user", "authIdentity", lambda found, node: found.link.connection.principal.name),
        Property("peer", "address", lambda found, node: found.link.connection.principal.address),
        Property("browsing", "browsing", lambda found, node: found.link.browse),
        Property("exclusive", "exclusive", lambda found, node: found.link.exclusive),
        Property("selective", "selective", lambda found, node: found.link.is_selective),
        Property("priority", "priority", lambda found, node: found.link.priority),
        Property("credit", "credit", lambda found, node: found.link.credit),
        Property("unsettled", "unackedMessages", lambda found, node: found.link.unsettled),
        Property("acknowledged", "acknowledged", lambda found, node: not found.link.is_settled),
        Property("delivered", "delivered", lambda found, node: found.link.delivered),
    ),
    find=_all_subscriptions,
    get=_named(_all_subscriptions, _subscription_name),
    name=_subscription_name,
)


def _of_link(name: str, attribute: str, empty: object = "") -> Property:
    """A property that a link has while it runs here."""
    return Property(
        name, attribute, lambda link, node: node.link_report(link.name).get(name, empty)
    )


def _of_route(name: str, attribute: str, empty: object = "") -> Property:
    """A property that a route has while it runs here."""
    return Property(
        name, attribute, lambda route, node: node.route_report(route.name).get(name, empty)
    )


def _record(name: str, attribute: str) -> Property:
    """A property that a link or a route was declared with."""
    return Property(name, attribute, lambda record, node: plain(getattr(record, name)))


LINK = ObjectClass(
    "link",
    (
        _record("name", "name"),
        _record("addresses", "addresses"),
        _record("durable", "durable"),
        _record("mechanism", "mechanism"),
        _record("username", "username"),
        _of_link("state", "state"),
        _of_link("since_ns", "since", 0),
        _of_link("last_error", "lastError"),
        _of_link("address", "address"),
        _of_link("product", "product"),
        _of_link("peer_tag", "peerTag"),
        _record("tag", "federationTag"),
        _of_link("connection", "connectionRef", 0),
        Property(
            "routes",
            "routeCount",
            lambda link, node: len(node.broker.federation.routes_of(link.name)),
        ),
        _of_link("messages_in", "messagesIn", 0),
        _of_link("messages_out", "messagesOut", 0),
    ),
    find=lambda node: list(node.broker.federation.links.values()),
    get=lambda node, name: node.broker.federation.links.get(name),
    name=lambda link: str(link.name),
)

ROUTE = ObjectClass(
    "route",
    (
        _record("name", "name"),
        _record("link", "linkRef"),
        _record("kind", "kind"),
        Property("direction", "direction", lambda route, node: "push" if route.is_push else "pull"),
        _record("source", "src"),
        _record("destination", "dest"),
        Property(
            "destination_type",
            "destinationType",
            lambda route, node: (
                "" if route.is_push else "exchange" if route.to_exchange else "queue"
            ),
        ),
        _record("key", "key"),
        _record("arguments", "arguments"),
        _record("excludes", "excludes"),
        _record("tag", "tag"),
        _record("ack", "sync"),
        _record("credit", "credit"),
        _record("durable", "durable"),
        _record("queue", "queueRef"),
        _of_route("state", "state"),
        _of_route("since_ns", "since", 0),
        _of_route("last_error", "lastError"),
        _of_route("messages", "messages", 0),
        _of_route("bytes", "bytes", 0),
        _of_route("excluded", "excludedMessages", 0),
        _of_route("refused", "refusedMessages", 0),
        _of_route("lag", "lag", None),
    ),
    find=lambda node: list(node.broker.federation.routes.values()),
    get=lambda node, name: node.broker.federation.routes.get(name),
    name=lambda route: str(route.name),
)

BROKER = ObjectClass(
    "broker",
    (
        _status("name", "name"),
        Property("product", "product", lambda entry, node: PRODUCT),
        _status("address", "address"),
        _status("system_id", "systemId"),
        _status("state", "state"),
        _status("epoch", "epoch"),
        _status("sequence", "sequence"),
        _status("safe", "safe"),
        _status("committed", "committed"),
        _status("held", "held"),
        _status("pending_acknowledgements", "pendingAcknowledgements"),
        Property(
            "connections", "connectionCount", lambda entry, node: len(list(node.connections()))
        ),
        Property("queues", "queueCount", lambda entry, node: len(node.broker.queues)),
        Property("exchanges", "exchangeCount", lambda entry, node: len(node.broker.exchanges)),
        Property(
            "messages",
            "msgDepth",
            lambda entry, node: sum(len(queue.messages) for queue in _all_queues(node)),
        ),
        Property(
            "bytes",
            "byteDepth",
            lambda entry, node: sum(queue.bytes for queue in _all_queues(node)),
        ),
        Property("max_connections", "maxConns", lambda entry, node: node.settings.max_connections),
        Property("max_queues", "maxQueues", lambda entry, node: node.settings.max_queues),
        Property(
            "default_queue_limit",
            "defaultQueueLimit",
            lambda entry, node: node.settings.default_queue_limit,
        ),
    ),
    find=lambda node: [node.status()],
    get=_get_broker,
    name=_broker_name,
)

HABROKER = ObjectClass(
    "org.apache.qpid.ha:habroker",
    (
        Property("name", "name", lambda entry, node: HA_BROKER),
        _status("state", "status"),
        _status("brokers_url", "brokersUrl"),
        _status("public_url", "publicUrl"),
        _status("replicate", "replicateDefault"),
        _status("members", "members"),
        _status("system_id", "systemId"),
    ),
    find=lambda node: [node.status()],
    get=lambda node, name: node.status() if name == HA_BROKER else None,
    name=lambda status: HA_BROKER,
)

CLASSES: dict[str, ObjectClass] = {
    kind.type: kind
    for kind in (
        QUEUE,
        EXCHANGE,
        BINDING,
        CONNECTION,
        SESSION,
        SUBSCRIPTION,
        LINK,
        ROUTE,
        BROKER,
        HABROKER,
    )
}
"""The classes by type name, in the order in which they are listed."""
