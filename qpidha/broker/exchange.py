"""Exchanges: they name the queues that a message goes to.

An exchange keeps its bindings by destination and key, and beside them whatever finds the right ones
fast for its type. To route is to return destinations, each once; putting messages there is the
broker's part. A destination is a queue or another exchange, which is asked in turn (`spread`).
Knows no messages and no log. Source: AMQP 0-10 section 3.1.3, Qpid `DirectExchange.cpp` and its
kin; RabbitMQ's exchange to exchange bindings and its rabbitmq_consistent_hash_exchange.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from qpidha.broker.hashing import MOST_WEIGHT, Ring, bytes_of, read_weight
from qpidha.broker.topic import (
    MANY_PATTERNS,
    StepsOfOne,
    TooManyKeys,
    TooManyWays,
    TopicTree,
    shown,
)
from qpidha.model.errors import InvalidArgument, LimitExceeded, ProtocolViolation, RefusedRequest
from qpidha.model.message_view import application_properties as read_application_properties
from qpidha.model.message_view import properties
from qpidha.model.records import BUILT_IN_EXCHANGES, DEFAULT_EXCHANGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from qpidha.broker.queues.queue import Queue
    from qpidha.broker.topic import Steps
    from qpidha.model.records import ExchangeDeclared

    Destination: TypeAlias = "Queue | Exchange"
    Headers = Callable[[], Mapping[str, Any]]
    """Gives the application properties of a message; called only by exchanges that read them."""


def subject(payload: bytes) -> str:
    """Return the subject of a message, or empty."""
    try:
        found = properties(payload).get("subject")
    except ProtocolViolation:
        return ""
    return found if isinstance(found, str) else ""


def read_property(payload: bytes, name: str) -> Any:
    """Return one of the properties of a message; None if it has not that one."""
    try:
        return properties(payload).get(name)
    except ProtocolViolation:
        return None


def application_properties(payload: bytes) -> dict[str, Any]:
    """Return the application properties of a message."""
    try:
        return read_application_properties(payload)
    except ProtocolViolation:
        return {}


BUILT_IN_UIDS = (DEFAULT_EXCHANGE, *(uid for uid, _ in BUILT_IN_EXCHANGES.values()))
UNROUTABLE_HINT = "bind a queue to it, or have the broker drop such messages: unroutable=accept"
MATCH = "x-match"
MATCH_ALL = "all"
MATCH_ANY = "any"
REMEMBERED_KEYS = 1000
"""How many routing keys a topic exchange remembers the queues of, or that they take too long;
publishers tend to use few.
"""
VISIT = 4
"""Steps that it takes to ask an exchange that another one leads to, beside what its own search
takes.
"""
HASH_HEADER = "hash-header"
HASH_PROPERTY = "hash-property"
HASHED_PROPERTIES = {
    "message_id": "message_id",
    "correlation_id": "correlation_id",
    "timestamp": "creation_time",
}
"""RabbitMQ's names of the properties that can be hashed, and AMQP's."""


class Binding:
    """A queue, or another exchange, bound to an exchange by a key."""

    __slots__ = ("arguments", "destination", "key")

    def __init__(self, destination: Destination, key: str, arguments: dict[str, Any]) -> None:
        self.destination = destination
        self.key = key
        self.arguments = arguments


class Watcher(Protocol):
    """Watches the bindings of an exchange."""

    def bindings_changed(self) -> None:
        """A binding came or went, or the exchange is gone; this may be in the middle of it."""


class Exchange:
    """The base of all types: the bindings, and counters."""

    __slots__ = (
        "_bindings",
        "alternate",
        "bytes_dropped",
        "bytes_received",
        "dropped",
        "ends_unbound",
        "incoming",
        "leads_on",
        "name",
        "options",
        "received",
        "senders",
        "uid",
        "uuid",
        "watchers",
    )
    reads_keys = True
    """Whether it makes a difference which key a message has."""

    def __init__(self, uid: int, options: ExchangeDeclared) -> None:
        self.uid = uid
        self.name = options.name
        self.uuid = options.uuid
        self.options = options
        self.alternate = options.alternate
        """The exchange that is asked for messages for which there is no queue: as the declaration
        or a policy has it. Empty for none; there may be no exchange of this name.
        """
        self._bindings: dict[tuple[int, str], Binding] = {}
        """By the destination's uid and key."""
        self.incoming: dict[tuple[int, str], None] = {}
        """(exchange uid, key) of each binding that leads here."""
        self.leads_on = 0
        """How many of the bindings lead to other exchanges."""
        self.watchers: dict[Watcher, None] = {}
        """Who hears that a binding came or went, or that the exchange is gone."""
        self.senders = 0
        """How many links send to it: an auto-delete exchange stays as long as one does."""
        self.ends_unbound = False
        """Whether it has had a binding, or was made for a link: the end of the last link that
        sends to it is then its own, if it is auto-delete.
        """
        self.received = self.dropped = self.bytes_received = self.bytes_dropped = 0

    def __repr__(self) -> str:
        return f"Exchange({self.name!r}, {self.options.type}, {len(self._bindings)} bindings)"

    @property
    def is_built_in(self) -> bool:
        """Whether every broker has it, and no client may delete it."""
        return self.uid in BUILT_IN_UIDS

    @property
    def binding_count(self) -> int:
        """How many bindings there are."""
        return len(self._bindings)

    def binding(self, destination: Destination, key: str) -> Binding | None:
        """Return one binding, if it exists."""
        return self._bindings.get((destination.uid, key))

    def bindings(self) -> Iterator[tuple[Destination, str, dict[str, Any]]]:
        """Walk through all bindings: destination, key and arguments. They may change meanwhile:
        what is gone is passed over, what comes is left out.
        """
        for pair in list(self._bindings):
            binding = self._bindings.get(pair)
            if binding is not None:
                yield binding.destination, binding.key, binding.arguments

    def bind(self, destination: Destination, key: str, arguments: dict[str, Any]) -> None:
        """Add a binding, or replace its arguments."""
        self.unbind(destination, key)
        binding = Binding(destination, key, arguments)
        self._bindings[destination.uid, key] = binding
        bindings_to(destination)[self.uid, key] = None
        self.leads_on += isinstance(destination, Exchange)
        self.ends_unbound = True
        self._added(binding)
        self.tell_watchers()

    def unbind(self, destination: Destination, key: str) -> None:
        """Remove a binding if it exists."""
        binding = self._bindings.pop((destination.uid, key), None)
        if binding is not None:
            del bindings_to(destination)[self.uid, key]
            self.leads_on -= isinstance(destination, Exchange)
            self._removed(binding)
            self.tell_watchers()

    def tell_watchers(self) -> None:
        """Tell who watches the bindings that they are others now."""
        for watcher in self.watchers:
            watcher.bindings_changed()

    def check_binding(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Raise InvalidArgument for a binding that this type cannot follow."""
        if MATCH in arguments:
            raise InvalidArgument(
                f"{MATCH} says nothing to an exchange of the type {self.options.type}",
                hint="Leave it out, or bind to a headers exchange.",
            )

    def check_room(self, key: str) -> None:
        """Raise LimitExceeded if there can be no further binding of this key."""

    def route(self, key: str, headers: Headers, steps: Steps, payload: bytes = b"") -> list[Any]:
        """Return the queues for a message, each once, and, if this exchange `leads_on`, exchanges
        as well. Where that may take long it takes of `steps`, and raises TooManyWays or
        TooManyKeys.
        """
        return []

    def drop(self, size: int) -> None:
        """Count a message that came to no queue."""
        self.dropped += 1
        self.bytes_dropped += size

    def statistics(self) -> dict[str, int]:
        """Return what management shows of this exchange."""
        return {
            "bindings": len(self._bindings),
            "received": self.received,
            "dropped": self.dropped,
            "routed": self.received - self.dropped,
            "bytes_received": self.bytes_received,
            "bytes_dropped": self.bytes_dropped,
        }

    def _added(self, binding: Binding) -> None:
        """Find this binding from now on."""

    def _removed(self, binding: Binding) -> None:
        """Do not find this binding any more."""


class DefaultExchange(Exchange):
    """The nameless exchange: every queue is bound to it by its name, and by nothing else."""

    __slots__ = ("_queues",)

    def __init__(self, options: ExchangeDeclared, queues: dict[str, Queue]) -> None:
        super().__init__(DEFAULT_EXCHANGE, options)
        self._queues = queues

    def check_binding(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Refuse any binding."""
        raise RefusedRequest(
            "The default exchange takes no bindings",
            hint="Every queue is bound to it by its name already.",
        )

    def route(self, key: str, headers: Headers, steps: Steps, payload: bytes = b"") -> list[Any]:
        """Return the queue of that name."""
        queue = self._queues.get(key)
        return [] if queue is None else [queue]


class DirectExchange(Exchange):
    """To all queues bound with exactly the message's key."""

    __slots__ = ("_by_key",)

    def __init__(self, uid: int, options: ExchangeDeclared) -> None:
        super().__init__(uid, options)
        self._by_key: dict[str, dict[Destination, None]] = {}

    def route(self, key: str, headers: Headers, steps: Steps, payload: bytes = b"") -> list[Any]:
        """Return the queues bound with this key."""
        return list(self._by_key.get(key, ()))

    def _added(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.key, {})[binding.destination] = None

    def _removed(self, binding: Binding) -> None:
        queues = self._by_key[binding.key]
        del queues[binding.destination]
        if not queues:
            del self._by_key[binding.key]


class FanoutExchange(Exchange):
    """To all bound queues."""

    __slots__ = ("_queues",)
    reads_keys = False

    def __init__(self, uid: int, options: ExchangeDeclared) -> None:
        super().__init__(uid, options)
        self._queues: dict[Destination, int] = {}
        """With how many bindings each has."""

    def route(self, key: str, headers: Headers, steps: Steps, payload: bytes = b"") -> list[Any]:
        """Return all bound queues."""
        return list(self._queues)

    def _added(self, binding: Binding) -> None:
        self._queues[binding.destination] = self._queues.get(binding.destination, 0) + 1

    def _removed(self, binding: Binding) -> None:
        self._queues[binding.destination] -= 1
        if not self._queues[binding.destination]:
            del self._queues[binding.destination]


class TopicExchange(Exchange):
    """To all queues bound with a pattern that the message's key fits."""

    __slots__ = ("_remembered", "_tree")

    def __init__(self, uid: int, options: ExchangeDeclared) -> None:
        super().__init__(uid, options)
        self._tree: TopicTree[Destination] = TopicTree()
        self._remembered: dict[str, list[Destination] | None] = {}
        """None for a key that takes too long."""

    def route(self, key: str, headers: Headers, steps: Steps, payload: bytes = b"") -> list[Any]:
        """Return the queues bound with a pattern that fits. Raises TooManyWays, TooManyKeys."""
        if key not in self._remembered:
            found: list[Destination] | None = None
            with suppress(TooManyWays):
                found = list(self._tree.match(key, steps))
            if len(self._remembered) >= REMEMBERED_KEYS:
                self._remembered.clear()
            self._remembered[key] = found
        queues = self._remembered[key]
        if queues is None:
            raise TooManyWays(shown(key), MANY_PATTERNS)
        return queues

    def _added(self, binding: Binding) -> None:
        self._remembered.clear()
        self._tree.add(binding.key, binding.destination)

    def _removed(self, binding: Binding) -> None:
        self._remembered.clear()
        self._tree.remove(binding.key, binding.destination)


class HeadersExchange(Exchange):
    """To all queues whose binding arguments the message's application properties match.

    What a binding wants of a header is a value, or only that the header is there. A binding is
    found by that: one that wants all of several by the one that the fewest others are found by, one
    that wants any of them by each. Only those that want nothing fit without being looked for.
    """

    __slots__ = ("_always", "_by_want", "_count", "_places")
    reads_keys = False

    def __init__(self, uid: int, options: ExchangeDeclared) -> None:
        super().__init__(uid, options)
        self._by_want: dict[tuple[Any, ...], dict[Binding, None]] = {}
        """By a header's name and value, or by its name alone."""
        self._always: dict[Binding, None] = {}
        self._places: dict[Binding, tuple[int, list[tuple[Any, ...]]]] = {}
        """Its number, and by what it is found."""
        self._count = 0

    def check_binding(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Raise InvalidArgument for an unknown x-match."""
        mode = arguments.get(MATCH, MATCH_ALL)
        if mode not in (MATCH_ALL, MATCH_ANY):
            raise InvalidArgument(
                f"{MATCH}={mode!r} is not known", hint=f"Use {MATCH_ALL} or {MATCH_ANY}."
            )

    def route(self, key: str, headers: Headers, steps: Steps, payload: bytes = b"") -> list[Any]:
        """Return the queues whose arguments match. Raises TooManyWays, TooManyKeys."""
        if not self._bindings:
            return []
        fitting = dict(self._always)
        if self._by_want:
            self._find(headers(), fitting, steps)
        order = sorted(fitting, key=self._number)  # As they were bound, however they were found.
        return list(dict.fromkeys(binding.destination for binding in order))

    def _find(self, given: Mapping[str, Any], fitting: dict[Binding, None], steps: Steps) -> None:
        """Add the bindings that fit. Looks that find no further queue take of the steps: a message
        may have something of what thousands of bindings want.
        """
        most, taken = steps.most, 0
        reached = {binding.destination: None for binding in fitting}
        for name, value in given.items():
            for want in ((name,), (name, value)):
                try:
                    found = self._by_want.get(want, NONE)
                except TypeError:
                    continue  # A list or a map, which is nothing that is looked for by its value.
                for binding in found:
                    if binding not in fitting and matches(binding.arguments, given):
                        fitting[binding] = None
                        if binding.destination not in reached:
                            reached[binding.destination] = None
                            continue
                    taken += 1
                    if taken > most:
                        refusal = steps.refusal("what the message says in its headers", MANY_WANTS)
                        steps.take(most)
                        raise refusal
        steps.take(taken)

    def _number(self, binding: Binding) -> int:
        return self._places[binding][0]

    def _added(self, binding: Binding) -> None:
        wants = [
            (name, value) if isinstance(value, str | int | float | bytes) else (name,)
            for name, value in binding.arguments.items()
            if not _is_ours(name)
        ]
        if binding.arguments.get(MATCH) != MATCH_ANY:
            if not wants:
                self._always[binding] = None
            wants = sorted(wants, key=lambda want: len(self._by_want.get(want, NONE)))[:1]
        self._count += 1
        self._places[binding] = self._count, wants
        for want in wants:
            self._by_want.setdefault(want, {})[binding] = None

    def _removed(self, binding: Binding) -> None:
        self._always.pop(binding, None)
        for want in self._places.pop(binding)[1]:
            bindings = self._by_want[want]
            del bindings[binding]
            if not bindings:
                del self._by_want[want]


NONE: dict[Binding, None] = {}
MANY_WANTS = "many bindings want some of it, and other things that are not there"


class ConsistentHashExchange(Exchange):
    """To one of the bound queues, the same for messages with the same key; or with the same header
    or property, if the exchange was declared so. A binding key is a weight: a queue gets that many
    shares of the keys.
    """

    __slots__ = ("_header", "_property", "_ring", "_weight")

    def __init__(self, uid: int, options: ExchangeDeclared) -> None:
        super().__init__(uid, options)
        self._ring: Ring[Destination] | None = None
        """Made when a message needs it, after the bindings changed."""
        self._weight = 0
        """Of all bindings."""
        self._header = options.arguments.get(HASH_HEADER)
        self._property = HASHED_PROPERTIES.get(options.arguments.get(HASH_PROPERTY, ""))

    def check_binding(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Raise InvalidArgument for a key that is no weight."""
        super().check_binding(key, arguments)
        if read_weight(key) is None:
            raise InvalidArgument(
                f"the binding key {key[:40]!r} is no weight",
                reason=f"an exchange of the type {self.options.type} reads it as one",
                hint=f"give a whole number from 1 to {MOST_WEIGHT}",
            )

    def check_room(self, key: str) -> None:
        """Raise LimitExceeded for a weight that is too much beside the others."""
        if self._weight + (read_weight(key) or 1) > MOST_WEIGHT:
            raise LimitExceeded(
                f"the bindings of exchange {self.name} have the weight {self._weight} already",
                reason=f"all together may have {MOST_WEIGHT}",
                hint="divide all weights by the same number",
            )

    def route(self, key: str, headers: Headers, steps: Steps, payload: bytes = b"") -> list[Any]:
        """Return the one queue that the message's key, header or property falls to."""
        if not self._bindings:
            return []
        ring = self._ring
        if ring is None:
            ring = self._ring = Ring(
                (f"{_kind(each.destination)} {each.destination.name}", each.key, each.destination)
                for each in self._bindings.values()
            )
        value: Any = key
        if self._header is not None:
            value = headers().get(self._header)
        elif self._property is not None:
            value = read_property(payload, self._property)
        return [ring.find(bytes_of(value))]

    def _added(self, binding: Binding) -> None:
        self._ring = None
        self._weight += read_weight(binding.key) or 1

    def _removed(self, binding: Binding) -> None:
        self._ring = None
        self._weight -= read_weight(binding.key) or 1


def _kind(destination: Destination) -> str:
    return "exchange" if isinstance(destination, Exchange) else "queue"


def bindings_to(destination: Destination) -> dict[tuple[int, str], None]:
    """Return (exchange uid, key) of each binding that leads to a queue or exchange."""
    if isinstance(destination, Exchange):
        return destination.incoming
    return destination.bindings


def spread(
    found: Iterable[Destination],
    exchanges: Mapping[str, Exchange],
    key: str,
    headers: Headers,
    steps: Steps,
    payload: bytes,
) -> list[Queue]:
    """Return the queues that an exchange `found` for a message, and those that the exchanges have
    that it found: each exchange is asked once, so circles end, and one that finds nothing has its
    alternate exchange asked. Raises TooManyWays, TooManyKeys.
    """
    queues: dict[Queue, None] = {}
    asked: dict[Exchange, None] = {}
    own = StepsOfOne(steps)
    once = _once(headers)
    waiting = list(found)
    try:
        for destination in waiting:
            if not isinstance(destination, Exchange):
                queues[destination] = None
                continue
            if destination in asked:
                continue
            asked[destination] = None
            own.take(VISIT)
            if own.are_over():
                raise TooManyKeys("")
            further = destination.route(key, once, own, payload)
            name = destination.alternate
            if not further and name and name in exchanges:
                further = [exchanges[name]]
            waiting += further
    except TooManyKeys:
        raise steps.refusal(shown(key), "its exchange leads to many others") from None
    finally:
        steps.take(own.taken)
    return list(queues)


def _once(headers: Headers) -> Headers:
    """Read the headers of a message once, when they are asked for."""
    found: list[Mapping[str, Any]] = []

    def read() -> Mapping[str, Any]:
        if not found:
            found.append(headers())
        return found[0]

    return read


def _is_ours(name: str) -> bool:
    return name.startswith(("x-", "qpid."))


def matches(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether all, or any, of the wanted headers are given; None wants presence only, names of our
    own are not looked at.
    """
    results = (
        name in given and (value is None or given[name] == value)
        for name, value in wanted.items()
        if not _is_ours(name)
    )
    return any(results) if wanted.get(MATCH) == MATCH_ANY else all(results)


CONSISTENT_HASH = "x-consistent-hash"
EXCHANGE_TYPES: dict[
    str,
    type[
        DirectExchange | FanoutExchange | TopicExchange | HeadersExchange | ConsistentHashExchange
    ],
] = {
    "direct": DirectExchange,
    "fanout": FanoutExchange,
    "topic": TopicExchange,
    "headers": HeadersExchange,
    CONSISTENT_HASH: ConsistentHashExchange,
}
