"""Translation: what a client asks for by name becomes what this broker does, or is refused.

Each window asks here: a declaration reads its arguments with `translate`, an attach checks the rest
with `check_capabilities`, `check_link_properties` and `filters_of`. The names are in
`vocabulary.py`. An argument that is not there is refused if it looks like an instruction
(`INSTRUCTIONS`); any other is the application's own data, is kept and shown. Filters and
capabilities are no place for data, so every one that is not in the table is refused. Records hold
known names only, so backups and older brokers need not know any alias.

Must not know what an argument does: the parts of a queue check the values of known arguments.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from qpidha.broker.queues.arguments import is_same
from qpidha.broker.queues.field_filter import filter_of
from qpidha.broker.queues.intake import FILTER, LANGUAGES, NO_LOCAL, SQL_FILTER
from qpidha.broker.queues.periods import check_period
from qpidha.broker.queues.selector import MessageSelector, all_of, parse
from qpidha.broker.vocabulary import (
    AMQP_SQL_FILTER,
    APPLICATION_PROPERTIES_FILTER,
    BY_CODE,
    BY_NAME,
    CONSUMER_PRIORITIES,
    DIRECT_BINDING,
    HEADERS_BINDING,
    INSTRUCTIONS,
    LEAVE_OUT,
    LINK_TIMEOUT,
    NO_LOCAL_FILTER,
    OWN_QUEUE,
    SELECTOR,
    TABLE,
    TOPIC_BINDING,
    ByPolicy,
    Entry,
    Fate,
    Kind,
    by_policy,
    find,
    policy_entry,
    policy_keys,
)
from qpidha.model.duration import MILLISECOND
from qpidha.model.encoding import Described, Symbol
from qpidha.model.errors import (
    InvalidArgument,
    NotImplementedHere,
    PreconditionFailed,
    RefusedRequest,
)

# -- arguments ------------------------------------------------------------------------------------


def translate(kind: Kind, arguments: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the arguments of a declaration under their known names, and the application's own
    data as it came. Raise InvalidArgument for what is refused, PreconditionFailed for two names of
    one thing that say different things.
    """
    asked, implied = translated(kind, arguments)
    return {**asked, **implied}


def policy_key(name: str) -> str:
    """Return the known name of a key of policies; raise InvalidArgument for what is none."""
    entry = policy_entry(name)
    if entry is None:
        raise _unknown(Kind.POLICY, name, InvalidArgument)
    return _known_name(entry, name)


def translated(kind: Kind, arguments: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is said under known names, and what comes with it unless it is said; raise as
    `translate` does, for a policy also for what none can set.
    """
    asked: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    implied: dict[str, Any] = {}
    for key, given in arguments.items():
        name, entry = str(key), _argument(kind, str(key))
        target, value = name, given
        if entry is None:
            if kind is Kind.POLICY or name.startswith(INSTRUCTIONS):
                raise _unknown(kind, name, InvalidArgument)
        elif entry.fate is Fate.REFUSED:
            if not _is_harmless(entry, given):
                raise _refusal(entry, InvalidArgument, name)
            continue
        else:
            if kind is Kind.POLICY and by_policy(entry) is ByPolicy.NEVER:
                raise _only_declared(name)
            target = _known_name(entry, name)
            if entry.read is not None:
                value = _read(entry, given)
                if value is None:
                    continue
            if not entry.implied_by or given in entry.implied_by:
                implied.update(entry.implies)
        if target in asked and not is_same(asked[target], value):
            raise PreconditionFailed(
                f"{spelled[target]}={arguments[spelled[target]]} and {name}={given} contradict "
                "each other",
                reason=f"both say what {target} is to be",
                hint="give one of them",
            )
        asked[target], spelled[target] = value, name
    return asked, {name: value for name, value in implied.items() if name not in asked}


def check_known_to_all(kind: Kind, arguments: Mapping[str, Any], features: Container[str]) -> None:
    """Raise PreconditionFailed for a known argument that some broker of the cluster may not know:
    it would take no heed of it when it is promoted.
    """
    for name, value in arguments.items():
        entry = find(kind, name)
        if entry is not None and entry.feature and value not in entry.base_values:
            check_enabled(f"the {kind} {name}", entry.feature, features)


def check_enabled(what: str, feature: str, features: Container[str]) -> None:
    """Raise PreconditionFailed for what belongs to a feature that some broker may not know."""
    if feature not in features:
        raise PreconditionFailed(
            f"{what} cannot be followed by every broker of this cluster yet",
            reason=f"the feature {feature} is not enabled",
            hint="upgrade every broker, and have all of them connected once; features in "
            "qpid-ha status -o json says what is enabled",
        )


def take_option(arguments: dict[str, Any], name: str, given: Any) -> Any:
    """Take an option of a declaration out of translated arguments: `given` is what the declaration
    itself says, false or empty if nothing.
    """
    asked = arguments.pop(name, None)
    if given and asked is not None and asked != given:
        raise PreconditionFailed(
            f"the declaration says {name}={given}, its arguments say {name}={asked}",
            hint="say it once",
        )
    return given or asked or type(given)()


def _argument(kind: Kind, name: str) -> Entry | None:
    """Find an argument. A key of policies that RabbitMQ has is refused on queues, where it would be
    taken for data.
    """
    if kind is Kind.POLICY:
        return policy_entry(name)
    found = find(kind, name)
    if found is None and kind is Kind.QUEUE:
        found = BY_NAME.get((Kind.POLICY, name))
        argument = BY_NAME.get((Kind.QUEUE, f"x-{name}"))
        if found is None and argument is not None:
            raise InvalidArgument(
                f"the {kind} {name} is not known",
                reason="that is how keys of policies are spelled",
                hint=f"declare the queue with {argument.name}",
            )
    return found


def _known_name(entry: Entry, name: str) -> str:
    """Return what is recorded in place of a name."""
    known = entry.alias_of or entry.name
    return known.removesuffix("N") + name.rpartition("-")[2] if known.endswith("-N") else known


def _only_declared(name: str) -> RefusedRequest:
    return InvalidArgument(
        f"the {Kind.POLICY} {name} is not offered",
        reason="that is decided when a queue, or an exchange, is declared",
        hint="declare it so",
    )


def _read(entry: Entry, given: Any) -> Any:
    assert entry.read is not None
    try:
        return entry.read(given)
    except ValueError:
        shown = given[:40] if isinstance(given, str) else given
        raise InvalidArgument(
            f"{entry.name}={shown!r} is not allowed",
            reason=entry.why,
            hint=f"allowed: {entry.values}",
        ) from None


def _is_harmless(entry: Entry, given: Any) -> bool:
    return any(is_same(value, given) for value in entry.harmless)


# -- termini and links ----------------------------------------------------------------------------


def check_capabilities(kind: Kind, names: Iterable[str]) -> None:
    """Raise NotImplementedHere for a capability of a source or target that is not honoured."""
    for name in names:
        entry = BY_NAME.get((kind, name))
        if entry is None:
            raise _unknown(kind, name, NotImplementedHere)
        if entry.fate is Fate.REFUSED:
            raise _refusal(entry, NotImplementedHere)


def check_link_properties(properties: Mapping[Any, Any]) -> None:
    """Raise NotImplementedHere for a property of a link that asks for what is not done; others say
    something of the peer and ask for nothing.
    """
    for key, given in properties.items():
        name = str(key)
        entry = BY_NAME.get((Kind.LINK, name))
        if entry is None:
            if name.startswith(INSTRUCTIONS):
                raise _unknown(Kind.LINK, name, NotImplementedHere)
        elif entry.fate is Fate.REFUSED and not _is_harmless(entry, given):
            raise _refusal(entry, NotImplementedHere)


def patience_of(properties: Mapping[Any, Any]) -> int | None:
    """Return how long a consumer wants to keep a message at most, in ns; 0 for ever, None if the
    properties of its link do not say. Raise InvalidArgument for what is no such time.
    """
    if properties.get(LINK_TIMEOUT) is None:
        return None
    check_period(properties, LINK_TIMEOUT, 0, "0 is for ever.")
    return int(properties[LINK_TIMEOUT]) * MILLISECOND


def priority_of(properties: Mapping[Any, Any]) -> int:
    """Return the priority that the properties of a link ask for; raise InvalidArgument for none."""
    found = 0
    for name in CONSUMER_PRIORITIES:
        given = properties.get(name)
        if given is None:
            continue
        if isinstance(given, bool) or not isinstance(given, int) or not -(2**31) <= given < 2**31:
            raise InvalidArgument(
                f"{name}={given!r:.60} is no priority", hint="Use an integer of 32 bits."
            )
        found = found or int(given)
        if found != given:
            raise PreconditionFailed(
                f"the link properties say the priorities {found} and {given}", hint="Give one."
            )
    return found


def wants(name: str, properties: Mapping[Any, Any]) -> bool:
    """Whether the properties of a link ask for something that is true or false."""
    given = properties.get(name)
    if given is not None and not isinstance(given, bool):
        raise InvalidArgument(f"{name}={given!r:.60} is not allowed", hint="Use true or false.")
    return bool(given)


@dataclass(frozen=True, slots=True)
class SourceFilters:
    """What the filters of a source mean."""

    in_effect: dict[Any, Any]
    """The filters, as the answer tells them."""
    binding: str = ""
    """The name of the filter that is the binding of a subscription, if there is one."""
    key: str | None = None
    arguments: tuple[tuple[str, Any], ...] = ()
    """The binding's key and arguments."""
    selector: MessageSelector | None = None
    """What a receiver wants of a queue."""
    intake: tuple[tuple[str, str], ...] = ()
    """Arguments of the queue of a subscription: what the receiver wants of an exchange."""
    no_local: bool = False
    """Whether it wants nothing of what its own container sends there."""


def filters_of(filters: Mapping[Any, Any], exchange_type: str) -> SourceFilters:
    """Return what the filters of a source mean for a subscription to an exchange of this type,
    empty for a queue. Raise NotImplementedHere for a filter that would not be in effect, and
    InvalidArgument for one that cannot be used.
    """
    found = SourceFilters({})
    selectors: list[MessageSelector] = []
    intake: dict[str, str] = {}
    no_local = False
    for key, described in filters.items():
        if described is None:
            named = BY_NAME.get((Kind.FILTER, str(key)))
            if named is not None and named.fate is Fate.REFUSED:
                raise _refusal(named, NotImplementedHere)
            continue  # no filter of this name
        entry = _filter(key, described)
        if entry.fate is Fate.REFUSED:
            raise _refusal(entry, NotImplementedHere)
        in_effect = {**found.in_effect, key: described}
        if entry.name in _BINDINGS:
            if found.binding:
                raise NotImplementedHere(
                    f"the filters {found.binding} and {entry.name} are both bindings",
                    hint="give one of them, and attach another receiver for the other",
                )
            found = _as_binding(entry, described, exchange_type)
        elif entry.name == NO_LOCAL_FILTER:
            no_local = _is_no_local(entry, exchange_type)
        elif exchange_type:
            name = _INTAKES.get(entry.name, "")
            if not name or name in intake:
                raise NotImplementedHere(
                    f"the filter {entry.name} is not offered for an exchange"
                    + (" twice" if name else ""),
                    hint=f"give one {AMQP_SQL_FILTER}, which can say the same",
                )
            _selector(entry, described.value)
            intake[name] = str(described.value)
        else:
            selector = _selector(entry, described.value)
            selectors += [selector] if selector is not None else []
        found = replace(found, in_effect=in_effect)
    return replace(
        found, selector=all_of(selectors), intake=tuple(intake.items()), no_local=no_local
    )


def _is_no_local(entry: Entry, exchange_type: str) -> bool:
    """Refuse a queue's receiver that wants nothing of what its own container sends."""
    if not exchange_type:
        raise NotImplementedHere(
            f"the filter {entry.name} is not offered for a queue",
            reason="a message on a queue does not say which connection sent it",
            hint="receive from an exchange, or mark your own messages with a property and leave "
            "them out by a selector",
        )
    return True


def filters_in(arguments: Mapping[str, Any]) -> dict[Any, Any]:
    """Return the filters that the queue of a subscription was declared with."""
    found: dict[Any, Any] = {
        Symbol(name): Described(Symbol(name), arguments[argument])
        for name, argument in _INTAKES.items()
        if argument in arguments
    }
    if NO_LOCAL in arguments:
        found[Symbol(NO_LOCAL_FILTER)] = Described(Symbol(NO_LOCAL_FILTER), [])
    return found


_BINDINGS = (TOPIC_BINDING, DIRECT_BINDING, HEADERS_BINDING)
_INTAKES = {SELECTOR: FILTER, AMQP_SQL_FILTER: SQL_FILTER}
"""Filters of a subscription to an exchange -> the argument of its queue."""


def _selector(entry: Entry, value: Any) -> MessageSelector | None:
    """Compile what selects messages; None for what selects all."""
    if entry.name in _INTAKES:
        if not isinstance(value, str):
            raise _bad_filter(entry)
        return parse(LANGUAGES[_INTAKES[entry.name]], str(value))
    of_application = entry.name == APPLICATION_PROPERTIES_FILTER
    return filter_of(entry.name, value, of_application=of_application)


def _filter(key: Any, described: Any) -> Entry:
    """Find what a filter is, by its descriptor; its key is the peer's own name for it."""
    descriptor = described.descriptor if isinstance(described, Described) else None
    if not isinstance(descriptor, (str, int)) or isinstance(descriptor, bool):
        entry = BY_NAME.get((Kind.FILTER, str(key)))
        if entry is not None and entry.fate is Fate.REFUSED:
            return entry
        raise InvalidArgument(
            f"the filter {key} is not described by a symbol or an ulong",
            hint="describe it with the descriptor of a filter, as AMQP says (3.5.8)",
        )
    entry = (
        BY_NAME.get((Kind.FILTER, descriptor))
        if isinstance(descriptor, str)
        else BY_CODE.get(descriptor)
    )
    if entry is None:
        shown = descriptor if isinstance(descriptor, str) else f"{key} ({descriptor:#x})"
        raise _unknown(Kind.FILTER, shown, NotImplementedHere)
    return entry


def _as_binding(entry: Entry, described: Any, exchange_type: str) -> SourceFilters:
    value = described.value
    if entry.name == HEADERS_BINDING:
        if exchange_type == "headers":
            if not isinstance(value, dict):
                raise _bad_filter(entry)
            arguments = tuple((str(name), item) for name, item in value.items())
            return SourceFilters({}, entry.name, None, arguments)
    elif exchange_type in ("topic", "direct"):
        if not isinstance(value, str):
            raise _bad_filter(entry)
        is_own = (entry.name == TOPIC_BINDING) == (exchange_type == "topic")
        # Without wildcards both mean the same; Qpid's C++ client chooses by the wildcards alone.
        if is_own or not {"*", "#"} & set(value.split(".")):
            return SourceFilters({}, entry.name, str(value))
    what = f"an exchange of type {exchange_type}" if exchange_type else "a queue"
    raise NotImplementedHere(
        f"the filter {entry.name} is not offered for {what}",
        reason=entry.text,
        hint=LEAVE_OUT if exchange_type else OWN_QUEUE,
    )


def _bad_filter(entry: Entry) -> RefusedRequest:
    return InvalidArgument(
        f"the value of the filter {entry.name} is not allowed", hint=f"allowed: {entry.values}"
    )


# -- refusals -------------------------------------------------------------------------------------


def _refusal(entry: Entry, error: type[RefusedRequest], name: str = "") -> RefusedRequest:
    """Refuse what is in the table; as `name` if it is spelled in another way."""
    reason = entry.text if entry.fate is Fate.REFUSED else f"allowed: {entry.values}"
    kind = entry.kind
    return error(f"the {kind} {name or entry.name} is not offered", reason=reason, hint=entry.hint)


def _unknown(kind: Kind, name: str, error: type[RefusedRequest]) -> RefusedRequest:
    offered = [
        entry.name
        for entry in (policy_keys() if kind is Kind.POLICY else TABLE)
        if (entry.kind is kind or kind is Kind.POLICY) and entry.fate is not Fate.REFUSED
    ]
    near = get_close_matches(name, offered, 1)
    return error(
        f"the {kind} {name[:100]} is not known",
        reason="what is asked for is done or refused",
        hint=f"did you mean {near[0]}?"
        if near
        else f"leave it out; known are {', '.join(offered)}",
    )
