"""Addresses of Qpid's messaging programs, as what a link asks of a broker.

The options of an address are those of qpid::messaging. What AMQP 1.0 has is asked for in the
attach; the bindings and the deletion of a node, which it has not, are asked of the management of
the broker; and what has no meaning is refused by name. Must not know messages.
Source: qpid-cpp src/qpid/messaging/amqp/AddressHelper.cpp; Qpid's book on the options of addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from qpidha.broker.vocabulary import EXCHANGE_TYPE, EXCLUSIVE_LINK
from qpidha.model.encoding import Described, Symbol, ULong
from qpidha.tools.address_strings import AddressString, parse_address_string
from qpidha.tools.connection_options import ToolError

SENDER, RECEIVER = "sender", "receiver"
QUEUE, TOPIC = "queue", "topic"
POLICIES = ("create", "assert", "delete")
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "": (*POLICIES, "mode", "node", "link"),
    "node": ("type", "durable", "properties", "capabilities", "x-declare", "x-bindings"),
    "link": (
        "name",
        "durable",
        "timeout",
        "reliability",
        "selector",
        "filter",
        "x-declare",
        "x-subscribe",
    ),
    "x-subscribe": ("exclusive", "arguments"),
    "link x-declare": ("exclusive", "auto-delete", "durable", "arguments"),
    "binding": ("exchange", "queue", "key", "arguments"),
}
"""Option -> what may stand in it."""
REFUSED = {
    "link sender-source": "the source of a sender is its name here",
    "link receiver-target": "the target of a receiver is its name here",
    "link x-bindings": "bind the queue in x-bindings of the node, or give a subject, which is the "
    "key of a subscription",
}
DURABLE_TIMEOUT = 15 * 60
"""Seconds that a durable subscription waits for its receiver, where none are given."""
AUTO_DELETE_TIMEOUT = "qpid.auto_delete_timeout"
SETTLED = ("unreliable", "at-most-once")


@dataclass(frozen=True, slots=True)
class Subscription:
    """What the queue of a subscription to a topic is to be."""

    durable: bool = False
    lives: bool = False
    """Whether it outlives its receiver."""
    shared: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outlives(self) -> bool:
        """Whether it is there for some time, or for ever, without a receiver."""
        return self.lives or AUTO_DELETE_TIMEOUT in self.arguments


@dataclass(frozen=True, slots=True)
class MessagingAddress:
    """One address, for a sender or a receiver."""

    text: str
    name: str
    subject: str
    is_temporary: bool
    creates: bool
    asserts: bool
    deletes: bool
    browses: bool
    type: str
    """queue or topic; empty if the address does not say."""
    capabilities: tuple[str, ...]
    properties: Mapping[str, Any]
    """What a node that is made is to be."""
    bindings: tuple[Mapping[str, Any], ...]
    """Parameters of `bind`."""
    link_name: str
    settled: bool
    selector: str
    filters: Mapping[str, Any]
    link_properties: Mapping[str, Any]
    subscription: Subscription

    @property
    def ignored(self) -> bool:
        """Whether something is said of the node that nobody asked to make or to check."""
        asked = self.creates or self.asserts or self.is_temporary
        return bool(self.properties or self.bindings) and not asked


def read_address(text: str, role: str, *, passthrough: bool = False) -> MessagingAddress:
    """Read an address for a sender or a receiver; with `passthrough` all of it is the name. Raises
    ToolError.
    """
    said = AddressString(text) if passthrough else parse_address_string(text)
    options = said.options
    _known(options, "", text)
    node, link = _map(options, "node", text), _map(options, "link", text)
    _known(node, "node", text)
    _known(link, "link", text)
    kind = _one_of(node, "type", ("", QUEUE, TOPIC), text)
    mode = _one_of(options, "mode", ("consume", "browse"), text)
    policies = {name: _policy(options, name, role, text) for name in POLICIES}
    is_temporary = said.is_temporary and not passthrough
    if is_temporary and role == SENDER:
        _refuse(text, "a node that the broker names is for receivers. Try: the name of a queue")
    reliability = _one_of(link, "reliability", ("at-least-once", *SETTLED, "exactly-once"), text)
    if reliability == "exactly-once":
        _refuse(
            text,
            "reliability: exactly-once is not offered. Try: at-least-once, and a receiver that "
            "--ignore-duplicates",
        )
    durable = _flag(node, "durable", text)
    return MessagingAddress(
        text,
        said.name,
        said.subject,
        is_temporary,
        policies["create"],
        policies["assert"],
        policies["delete"],
        mode == "browse",
        kind,
        tuple(str(each) for each in _list(node, "capabilities", text)),
        _declared(node, kind, durable, text),
        tuple(_binding(each, said.name, kind, text) for each in _list(node, "x-bindings", text)),
        str(link.get("name", "")),
        reliability in SETTLED,
        str(link.get("selector", "")),
        _filters(link, text),
        _link_properties(_map(link, "x-subscribe", text), text),
        _subscription(link, text),
    )


def _declared(node: Mapping[str, Any], kind: str, durable: bool, text: str) -> dict[str, Any]:
    """Return what a node is to be, by the names of the broker."""
    declare = _map(node, "x-declare", text)
    found = {
        **_map(node, "properties", text),
        **{key: value for key, value in declare.items() if key != "arguments"},
        **_map(declare, "arguments", text),
    }
    if kind == TOPIC and "type" in found:
        found[EXCHANGE_TYPE] = found.pop("type")
    if durable:
        found["durable"] = True
    return found


def _binding(given: Any, name: str, kind: str, text: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        _refuse(text, f"x-bindings is a list of maps, not of {given!r}")
    _known(given, "binding", text)
    exchange = str(given.get("exchange", name if kind == TOPIC else ""))
    queue = str(given.get("queue", "" if kind == TOPIC else name))
    if not exchange or not queue:
        missing = "queue" if exchange else "exchange"
        _refuse(text, f"a binding names no {missing}. Try: {{exchange: E, queue: Q, key: K}}")
    return {
        "exchange": exchange,
        "queue": queue,
        "key": str(given.get("key", "")),
        "arguments": _map(given, "arguments", text),
    }


def _subscription(link: Mapping[str, Any], text: str) -> Subscription:
    """Return what `durable`, `timeout` and `x-declare` of a link ask for."""
    declare = _map(link, "x-declare", text)
    _known(declare, "link x-declare", text)
    durable = _flag(link, "durable", text) or _flag(declare, "durable", text)
    timeout = link.get("timeout", DURABLE_TIMEOUT if _flag(link, "durable", text) else 0)
    if isinstance(timeout, bool) or not isinstance(timeout, int) or timeout < 0:
        _refuse(text, f"timeout is a whole number of seconds, not {timeout!r}")
    arguments = _map(declare, "arguments", text)
    lives = not _flag(declare, "auto-delete", text, default=True)
    if timeout and not lives:
        arguments = {AUTO_DELETE_TIMEOUT: timeout, **arguments}
    return Subscription(durable, lives, not _flag(declare, "exclusive", text, True), arguments)


def _link_properties(subscribe: Mapping[str, Any], text: str) -> dict[str, Any]:
    _known(subscribe, "x-subscribe", text)
    found = dict(_map(subscribe, "arguments", text))
    if _flag(subscribe, "exclusive", text):
        found[EXCLUSIVE_LINK] = True
    return found


def _filters(link: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return `filter: {name, descriptor, value}`, or a list of them, as an attach has them."""
    given = link.get("filter", [])
    found = {}
    for each in given if isinstance(given, list) else [given]:
        if not isinstance(each, dict) or set(each) != {"name", "descriptor", "value"}:
            _refuse(text, "filter is {name: N, descriptor: D, value: V}, or a list of such maps")
        descriptor = each["descriptor"]
        is_code = isinstance(descriptor, int) and not isinstance(descriptor, bool)
        found[str(each["name"])] = Described(
            ULong(descriptor) if is_code else Symbol(str(descriptor)), each["value"]
        )
    return found


def _policy(options: Mapping[str, Any], name: str, role: str, text: str) -> bool:
    policy = _one_of(options, name, ("never", "always", SENDER, RECEIVER), text)
    return policy in ("always", role)


def _one_of(options: Mapping[str, Any], name: str, values: tuple[str, ...], text: str) -> str:
    found = options.get(name, values[0])
    if found not in values:
        _refuse(text, f"{name}: {found!r} is not one of {', '.join(filter(None, values))}")
    return str(found)


def _flag(options: Mapping[str, Any], name: str, text: str, default: bool = False) -> bool:
    found = options.get(name, default)
    if not isinstance(found, bool) and found not in (0, 1):
        _refuse(text, f"{name} is true or false, not {found!r}")
    return bool(found)


def _map(options: Mapping[str, Any], name: str, text: str) -> dict[str, Any]:
    found = options.get(name, {})
    if not isinstance(found, dict):
        _refuse(text, f"{name} is a map, not {found!r}")
    return found


def _list(options: Mapping[str, Any], name: str, text: str) -> list[Any]:
    found = options.get(name, [])
    if not isinstance(found, list):
        _refuse(text, f"{name} is a list, not {found!r}")
    return found


def _known(options: Mapping[str, Any], where: str, text: str) -> None:
    """Refuse options that are not there."""
    for name in options:
        if reason := REFUSED.get(f"{where} {name}"):
            _refuse(text, f"{name} of a {where} is not offered: {reason}")
        if name not in OPTIONS[where]:
            within = f" of {where}" if where else ""
            _refuse(text, f"there is no option {name!r}{within}. Try: {', '.join(OPTIONS[where])}")


def _refuse(text: str, why: str) -> NoReturn:
    raise ToolError("AddressError", f"address {text!r}: {why}")
