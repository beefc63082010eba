"""Schema: the classes of managed objects, their properties, and how each is read from the broker model.

One table for each class serves every way in: the admin socket uses the snake_case names, AMQP
management the camelCase ones that Qpid's tools know. Nothing is kept here: each read looks at the
object itself, so every number is the real one of that moment.
Knows no transport and changes nothing.
Source: Qpid qpid/management-schema.xml and qpid/ha/management-schema.xml; AMQP management 1.0 (draft).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from qpidha.management.percent import decode_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from qpidha.broker.broker import Broker
    from qpidha.broker.queue import Queue
    from qpidha.management.target import Target

PRODUCT = "qpidha"
HA_BROKER = "ha-broker"
"""The name of the one object of the HA class."""


@dataclass(frozen=True, slots=True)
class Property:
    """One property of a class: `name` for JSON, `attribute` for AMQP management."""

    name: str
    attribute: str
    read: Callable[[Any, Target], Any]
    """From the object, and the broker that it is one of, to the value."""


@dataclass(frozen=True, slots=True)
class ObjectClass:
    """A class of managed objects: its type name, properties and operations."""

    type: str
    properties: tuple[Property, ...]
    operations: tuple[str, ...]
    find: Callable[[Target], Iterable[Any]]
    get: Callable[[Target, str], Any]
    """The object of that name, or None."""
    name: Callable[[Any], str]


@dataclass(slots=True)
class BindingView:
    """A binding as it is shown: the names are those of the exchange and the queue."""

    exchange: str
    queue: str
    key: str
    arguments: dict[str, Any] = field(default_factory=dict)


def describe(kind: ObjectClass, entry: Any, target: Target) -> dict[str, Any]:
    """Read all properties of one object under their JSON names."""
    return {each.name: each.read(entry, target) for each in kind.properties}


def attributes(kind: ObjectClass, entry: Any, target: Target) -> dict[str, Any]:
    """Read all properties of one object under their AMQP names, with the three that every object has."""
    name = kind.name(entry)
    found: dict[str, Any] = {"name": name, "identity": f"{kind.type}:{name}", "type": kind.type}
    found.update((each.attribute, each.read(entry, target)) for each in kind.properties if each.attribute != "name")
    return found


def attribute_names(kind: ObjectClass) -> list[str]:
    """Name what `attributes` gives, in its order."""
    return ["name", "identity", "type", *(each.attribute for each in kind.properties if each.attribute != "name")]


def plain(value: Any) -> Any:
    """Reduce any value to what JSON has; binary becomes text with its odd bytes escaped."""
    if value is None or isinstance(value, bool):
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
        return {str(plain(key)): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return str(value)


def binding_name(binding: BindingView) -> str:
    """Give a binding one name: its three parts percent-encoded, so that each may contain anything."""
    return "/".join(quote(part, safe="") for part in (binding.exchange, binding.queue, binding.key))


def bindings_of(broker: Broker) -> Iterator[BindingView]:
    """Walk through all bindings, exchange by exchange; those to the default exchange are implied by the queues."""
    for exchange in list(broker.exchanges.values()):
        for queue, key, arguments in list(exchange.bindings()):
            yield BindingView(exchange.name, queue.name, key, arguments)


def binding_of(broker: Broker, exchange_name: str, queue_name: str, key: str) -> BindingView | None:
    """Find one binding."""
    exchange, queue = broker.exchanges.get(exchange_name), broker.queues.get(queue_name)
    if exchange is None or queue is None:
        return None
    binding = exchange.binding(queue, key)
    return None if binding is None else BindingView(exchange_name, queue_name, key, binding.arguments)


def _same(name: str, attribute: str = "") -> Property:
    return Property(name, attribute or name, lambda entry, target: getattr(entry, name))


def _option(name: str, attribute: str = "") -> Property:
    return Property(name, attribute or name, lambda entry, target: getattr(entry.options, name))


def _get_binding(target: Target, name: str) -> BindingView | None:
    parts = name.split("/")
    return binding_of(target.broker, *(decode_part(part) for part in parts)) if len(parts) == 3 else None


def _get_connection(target: Target, name: str) -> Any:
    return next((connection for connection in target.connections() if str(connection.connection_id) == name), None)


def _broker_name(target: Target) -> str:
    return str(target.settings.name or target.status().get("name", ""))


def _only(name: Callable[[Target], str]) -> Callable[[Target, str], Target | None]:
    return lambda target, wanted: target if wanted == name(target) else None


def _length(name: str, attribute: str) -> Property:
    return Property(name, attribute, lambda entry, target: len(getattr(entry, name)))


def unsafe_messages(queue: Queue, target: Target) -> int:
    """Count the messages that not every in-sync broker has yet; a backup applies only what is safe."""
    return 0 if queue.recorder is None else queue.unsafe(target.log.safe)


def _status(name: str, attribute: str) -> Property:
    return Property(name, attribute, lambda entry, target: plain(target.status().get(name)))


def _process(connection: Any, target: Target) -> Any:
    return plain(connection.remote_properties.get("qpid.client_process", ""))


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
        _option("arguments"),
        # Depths of this moment, then totals since this broker began to decide; Qpid's names where Qpid counts the same.
        _length("messages", "msgDepth"),
        _same("bytes", "byteDepth"),
        Property("unsafe", "msgUnsafe", unsafe_messages),
        _same("cold", "byteDepthOnDisk"),
        _length("consumers", "consumerCount"),
        _length("bindings", "bindingCount"),
        _same("acquired", "unackedMessages"),
        _same("enqueued", "msgTotalEnqueues"),
        _same("dequeued", "msgTotalDequeues"),
        _same("released", "releases"),
        _same("expired", "discardsTtl"),
        _same("rejected", "discardsSubscriber"),
        _same("discarded", "discardsPurge"),
        _same("deduplicated", "discardsDuplicate"),
    ),
    ("READ", "CREATE", "DELETE", "PURGE"),
    find=lambda target: list(target.broker.queues.values()),
    get=lambda target, name: target.broker.queues.get(name),
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
        Property("bindings", "bindingCount", lambda exchange, target: exchange.binding_count),
        _same("received", "msgReceives"),
        _same("dropped", "msgDrops"),
        Property("routed", "msgRoutes", lambda exchange, target: exchange.received - exchange.dropped),
        _same("bytes_received", "byteReceives"),
        _same("bytes_dropped", "byteDrops"),
    ),
    ("READ", "CREATE", "DELETE", "BIND", "UNBIND"),
    find=lambda target: list(target.broker.exchanges.values()),
    get=lambda target, name: target.broker.exchanges.get(name),
    name=lambda exchange: exchange.name,
)

BINDING = ObjectClass(
    "binding",
    (_same("exchange"), _same("queue"), _same("key", "bindingKey"), _same("arguments")),
    ("READ", "CREATE", "DELETE"),
    find=lambda target: list(bindings_of(target.broker)),
    get=_get_binding,
    name=binding_name,
)

CONNECTION = ObjectClass(
    "connection",
    (
        Property("id", "connectionId", lambda connection, target: connection.connection_id),
        _same("peer", "address"),
        _same("user", "authIdentity"),
        Property("container", "remoteContainer", lambda connection, target: connection.remote_container),
        Property("process", "remoteProcessName", _process),
        _same("encrypted"),
        Property("admin", "isAdmin", lambda connection, target: connection.is_admin),
        Property("backup", "isBackup", lambda connection, target: connection.is_backup),
    ),
    ("READ",),
    find=lambda target: list(target.connections()),
    get=_get_connection,
    name=lambda connection: str(connection.connection_id),
)

BROKER = ObjectClass(
    "broker",
    (
        Property("name", "name", lambda entry, target: _broker_name(target)),
        Property("product", "product", lambda entry, target: PRODUCT),
        _status("address", "address"),
        _status("system_id", "systemId"),
        _status("state", "state"),
        _status("epoch", "epoch"),
        _status("sequence", "sequence"),
        _status("safe", "safe"),
        _status("held", "held"),
        Property("connections", "connectionCount", lambda entry, target: len(list(target.connections()))),
        Property("queues", "queueCount", lambda entry, target: len(target.broker.queues)),
        Property("exchanges", "exchangeCount", lambda entry, target: len(target.broker.exchanges)),
        Property("messages", "msgDepth", lambda entry, target: sum(len(queue.messages) for queue in target.broker.queues.values())),
        Property("bytes", "byteDepth", lambda entry, target: sum(queue.bytes for queue in target.broker.queues.values())),
        Property("max_connections", "maxConns", lambda entry, target: target.settings.max_connections),
        Property("max_queues", "maxQueues", lambda entry, target: target.settings.max_queues),
        Property("default_queue_limit", "defaultQueueLimit", lambda entry, target: target.settings.default_queue_limit),
    ),
    ("READ",),
    find=lambda target: [target],
    get=_only(_broker_name),
    name=_broker_name,
)

HABROKER = ObjectClass(
    "org.apache.qpid.ha:habroker",
    (
        Property("name", "name", lambda entry, target: HA_BROKER),
        _status("state", "status"),
        _status("brokers_url", "brokersUrl"),
        _status("public_url", "publicUrl"),
        _status("replicate", "replicateDefault"),
        _status("members", "members"),
        _status("system_id", "systemId"),
    ),
    ("READ", "PROMOTE", "DEMOTE", "SWITCHOVER", "RECOVER", "EXPLAIN"),
    find=lambda target: [target],
    get=_only(lambda target: HA_BROKER),
    name=lambda target: HA_BROKER,
)

CLASSES: dict[str, ObjectClass] = {kind.type: kind for kind in (QUEUE, EXCHANGE, BINDING, CONNECTION, BROKER, HABROKER)}
"""The classes by type name, in the order in which they are listed."""
