"""Exchanges: they name the queues that a message goes to.

An exchange keeps its bindings by queue and key, and beside them whatever finds the right ones fast
for its type. To route is to return queues, each once; putting messages there is the broker's part.
Knows no messages and no log. Source: AMQP 0-10 section 3.1.3, Qpid `DirectExchange.cpp` and its
kin.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from qpidha.broker.topic import TooManyWays, TopicTree
from qpidha.model.errors import InvalidArgument, ProtocolViolation, RefusedRequest
from qpidha.model.message_view import application_properties as read_application_properties
from qpidha.model.message_view import properties
from qpidha.model.records import BUILT_IN_EXCHANGES, DEFAULT_EXCHANGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from qpidha.broker.queues.queue import Queue
    from qpidha.broker.topic import Steps
    from qpidha.model.records import ExchangeDeclared

    Headers = Callable[[], Mapping[str, Any]]
    """Gives the application properties of a message; called only by exchanges that read them."""


def subject(payload: bytes) -> str:
    """Return the subject of a message, or empty."""
    try:
        found = properties(payload).get("subject")
    except ProtocolViolation:
        return ""
    return found if isinstance(found, str) else ""


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


class Binding:
    """A queue bound to an exchange by a key."""

    __slots__ = ("arguments", "key", "queue")

    def __init__(self, queue: Queue, key: str, arguments: dict[str, Any]) -> None:
        self.queue = queue
        self.key = key
        self.arguments = arguments


class Exchange:
    """The base of all types: the bindings, and counters."""

    __slots__ = (
        "_bindings",
        "bytes_dropped",
        "bytes_received",
        "dropped",
        "name",
        "options",
        "received",
        "uid",
        "uuid",
    )
    reads_keys = True
    """Whether it makes a difference which key a message has."""

    def __init__(self, uid: int, options: ExchangeDeclared) -> None:
        self.uid = uid
        self.name = options.name
        self.uuid = options.uuid
        self.options = options
        self._bindings: dict[tuple[int, str], Binding] = {}
        """By queue uid and key."""
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

    def binding(self, queue: Queue, key: str) -> Binding | None:
        """Return one binding, if it exists."""
        return self._bindings.get((queue.uid, key))

    def bindings(self) -> Iterator[tuple[Queue, str, dict[str, Any]]]:
        """Walk through all bindings: queue, key and arguments. They may change meanwhile: what is
        gone is passed over, what comes is left out.
        """
        for pair in list(self._bindings):
            binding = self._bindings.get(pair)
            if binding is not None:
                yield binding.queue, binding.key, binding.arguments

    def bind(self, queue: Queue, key: str, arguments: dict[str, Any]) -> None:
        """Add a binding, or replace its arguments."""
        self.unbind(queue, key)
        binding = Binding(queue, key, arguments)
        self._bindings[queue.uid, key] = binding
        queue.bindings[self.uid, key] = None
        self._added(binding)

    def unbind(self, queue: Queue, key: str) -> None:
        """Remove a binding if it exists."""
        binding = self._bindings.pop((queue.uid, key), None)
        if binding is not None:
            del queue.bindings[self.uid, key]
            self._removed(binding)

    def check_binding(self, arguments: Mapping[str, Any]) -> None:
        """Raise InvalidArgument for binding arguments that this type cannot follow."""
        if MATCH in arguments:
            raise InvalidArgument(
                f"{MATCH} says nothing to an exchange of the type {self.options.type}",
                hint="Leave it out, or bind to a headers exchange.",
            )

    def route(self, key: str, headers: Headers, steps: Steps) -> list[Queue]:
        """Return the queues for a message, each once. Where that may take long it takes of `steps`,
        and raises TooManyWays or TooManyKeys.
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

    def check_binding(self, arguments: Mapping[str, Any]) -> None:
        """Refuse any binding."""
        raise RefusedRequest(
            "The default exchange takes no bindings",
            hint="Every queue is bound to it by its name already.",
        )

    def route(self, key: str, headers: Headers, steps: Steps) -> list[Queue]:
        """Return the queue of that name."""
        queue = self._queues.get(key)
        return [] if queue is None else [queue]


class DirectExchange(Exchange):
    """To all queues bound with exactly the message's key."""

    __slots__ = ("_by_key",)

    def __init__(self, uid: int, options: ExchangeDeclared) -> None:
        super().__init__(uid, options)
        self._by_key: dict[str, dict[Queue, None]] = {}

    def route(self, key: str, headers: Headers, steps: Steps) -> list[Queue]:
        """Return the queues bound with this key."""
        return list(self._by_key.get(key, ()))

    def _added(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.key, {})[binding.queue] = None

    def _removed(self, binding: Binding) -> None:
        queues = self._by_key[binding.key]
        del queues[binding.queue]
        if not queues:
            del self._by_key[binding.key]


class FanoutExchange(Exchange):
    """To all bound queues."""

    __slots__ = ("_queues",)
    reads_keys = False

    def __init__(self, uid: int, options: ExchangeDeclared) -> None:
        super().__init__(uid, options)
        self._queues: dict[Queue, int] = {}
        """With how many bindings each has."""

    def route(self, key: str, headers: Headers, steps: Steps) -> list[Queue]:
        """Return all bound queues."""
        return list(self._queues)

    def _added(self, binding: Binding) -> None:
        self._queues[binding.queue] = self._queues.get(binding.queue, 0) + 1

    def _removed(self, binding: Binding) -> None:
        self._queues[binding.queue] -= 1
        if not self._queues[binding.queue]:
            del self._queues[binding.queue]


class TopicExchange(Exchange):
    """To all queues bound with a pattern that the message's key fits."""

    __slots__ = ("_remembered", "_tree")

    def __init__(self, uid: int, options: ExchangeDeclared) -> None:
        super().__init__(uid, options)
        self._tree: TopicTree[Queue] = TopicTree()
        self._remembered: dict[str, list[Queue] | None] = {}
        """None for a key that takes too long."""

    def route(self, key: str, headers: Headers, steps: Steps) -> list[Queue]:
        """Return the queues bound with a pattern that fits. Raises TooManyWays, TooManyKeys."""
        if key not in self._remembered:
            found: list[Queue] | None = None
            with suppress(TooManyWays):
                found = list(self._tree.match(key, steps))
            if len(self._remembered) >= REMEMBERED_KEYS:
                self._remembered.clear()
            self._remembered[key] = found
        queues = self._remembered[key]
        if queues is None:
            raise TooManyWays(key)
        return queues

    def _added(self, binding: Binding) -> None:
        self._remembered.clear()
        self._tree.add(binding.key, binding.queue)

    def _removed(self, binding: Binding) -> None:
        self._remembered.clear()
        self._tree.remove(binding.key, binding.queue)


class HeadersExchange(Exchange):
    """To all queues whose binding arguments the message's application properties match.

    A binding that wants a value is looked for by it: one that wants several values by the one that
    the fewest bindings want, one that wants any of several by each. The others are looked at for
    every message.
    """

    __slots__ = ("_by_value", "_count", "_others", "_places")
    reads_keys = False

    def __init__(self, uid: int, options: ExchangeDeclared) -> None:
        super().__init__(uid, options)
        self._by_value: dict[tuple[str, Any], dict[Binding, None]] = {}
        self._others: dict[Binding, None] = {}
        self._places: dict[Binding, tuple[int, list[tuple[str, Any]]]] = {}
        """Its number, and by which values it is found."""
        self._count = 0

    def check_binding(self, arguments: Mapping[str, Any]) -> None:
        """Raise InvalidArgument for an unknown x-match."""
        mode = arguments.get(MATCH, MATCH_ALL)
        if mode not in (MATCH_ALL, MATCH_ANY):
            raise InvalidArgument(
                f"{MATCH}={mode!r} is not known", hint=f"Use {MATCH_ALL} or {MATCH_ANY}."
            )

    def route(self, key: str, headers: Headers, steps: Steps) -> list[Queue]:
        """Return the queues whose arguments match."""
        if not self._bindings:
            return []
        given = headers()
        found = dict(self._others)
        if self._by_value:
            for pair in given.items():
                try:
                    found |= self._by_value.get(pair, NONE)
                except TypeError:
                    continue  # A list or a map, which is nothing that is looked for by its value.
        fitting = [binding for binding in found if matches(binding.arguments, given)]
        fitting.sort(key=self._number)  # As they were bound, however they were found.
        return list(dict.fromkeys(binding.queue for binding in fitting))

    def _number(self, binding: Binding) -> int:
        return self._places[binding][0]

    def _added(self, binding: Binding) -> None:
        wanted = {name: value for name, value in binding.arguments.items() if not _is_ours(name)}
        pairs = [pair for pair in wanted.items() if isinstance(pair[1], str | int | float | bytes)]
        if binding.arguments.get(MATCH) != MATCH_ANY:
            pairs = sorted(pairs, key=lambda pair: len(self._by_value.get(pair, ())))[:1]
        elif len(pairs) < len(wanted):
            pairs = []
        self._count += 1
        self._places[binding] = self._count, pairs
        for pair in pairs:
            self._by_value.setdefault(pair, {})[binding] = None
        if not pairs:
            self._others[binding] = None

    def _removed(self, binding: Binding) -> None:
        self._others.pop(binding, None)
        for pair in self._places.pop(binding)[1]:
            bindings = self._by_value[pair]
            del bindings[binding]
            if not bindings:
                del self._by_value[pair]


NONE: dict[Binding, None] = {}


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


EXCHANGE_TYPES: dict[
    str, type[DirectExchange | FanoutExchange | TopicExchange | HeadersExchange]
] = {
    "direct": DirectExchange,
    "fanout": FanoutExchange,
    "topic": TopicExchange,
    "headers": HeadersExchange,
}
