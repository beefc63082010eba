"""Translation: what a client asks for by name becomes what this broker does, or is refused.

Each window asks here: a declaration reads its arguments with `translate`, an attach checks the rest
with `check_capabilities`, `check_link_properties` and `binding_of`. The names are in
`vocabulary.py`. An argument that is not there is refused if it looks like an instruction
(`INSTRUCTIONS`); any other is the application's own data, is kept and shown. Filters and
capabilities are no place for data, so every one that is not in the table is refused. Records hold
known names only, so backups and older brokers need not know any alias.

Must not know what an argument does: the parts of a queue check the values of known arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from qpidha.broker.vocabulary import (
    BY_CODE,
    BY_NAME,
    HEADERS_BINDING,
    INSTRUCTIONS,
    LEAVE_OUT,
    OWN_QUEUE,
    TABLE,
    TOPIC_BINDING,
    Entry,
    Fate,
    Kind,
)
from qpidha.model.encoding import Described
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
    asked: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    implied: dict[str, Any] = {}
    for key, given in arguments.items():
        name, entry = str(key), _argument(kind, str(key))
        target, value = name, given
        if entry is None:
            if name.startswith(INSTRUCTIONS):
                raise _unknown(kind, name, InvalidArgument)
        elif entry.fate is Fate.REFUSED:
            if not _is_harmless(entry, given):
                raise _refusal(entry, InvalidArgument)
            continue
        elif entry.read is not None:
            target, value = entry.alias_of or name, _read(entry, given)
            implied.update(entry.implies)
            if value is None:
                continue
        if target in asked and not _same(asked[target], value):
            raise PreconditionFailed(
                f"{spelled[target]}={arguments[spelled[target]]} and {name}={given} contradict "
                "each other",
                reason=f"both say what {target} is to be",
                hint="give one of them",
            )
        asked[target], spelled[target] = value, name
    return {**asked, **{name: value for name, value in implied.items() if name not in asked}}


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
    """Find an argument. A key of policies is looked for on queues too, where it would be taken for
    data.
    """
    found = BY_NAME.get((kind, name))
    if found is None and kind is Kind.QUEUE:
        found = BY_NAME.get((Kind.POLICY, name))
    return found


def _read(entry: Entry, given: Any) -> Any:
    assert entry.read is not None
    try:
        return entry.read(given)
    except ValueError:
        shown = given[:40] if isinstance(given, str) else given
        raise InvalidArgument(
            f"{entry.name}={shown!r} is not allowed", hint=f"allowed: {entry.values}"
        ) from None


def _is_harmless(entry: Entry, given: Any) -> bool:
    return any(_same(value, given) for value in entry.harmless)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same; true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


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


@dataclass(frozen=True, slots=True)
class BindingFilter:
    """The filter of a source that becomes the binding of a subscription."""

    in_effect: dict[Any, Any]
    """The filter, as the answer tells it."""
    key: str | None = None
    arguments: tuple[tuple[str, Any], ...] = ()


def binding_of(filters: Mapping[Any, Any], exchange_type: str) -> BindingFilter:
    """Return what the filters of a source mean for a subscription to an exchange of this type,
    empty for a queue. Raise NotImplementedHere for a filter that would not be in effect.
    """
    found = BindingFilter({})
    for key, described in filters.items():
        if described is None:
            named = BY_NAME.get((Kind.FILTER, str(key)))
            if named is not None and named.fate is Fate.REFUSED:
                raise _refusal(named, NotImplementedHere)
            continue  # no filter of this name
        entry = _filter(key, described)
        if entry.fate is Fate.REFUSED:
            raise _refusal(entry, NotImplementedHere)
        if found.in_effect:
            raise NotImplementedHere(
                f"the filters {next(iter(found.in_effect))} and {key} are both bindings",
                hint="give one of them, and attach another receiver for the other",
            )
        found = _as_binding(entry, key, described, exchange_type)
    return found


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


def _as_binding(entry: Entry, key: Any, described: Any, exchange_type: str) -> BindingFilter:
    value, in_effect = described.value, {key: described}
    if entry.name == HEADERS_BINDING:
        if exchange_type == "headers":
            if not isinstance(value, dict):
                raise _bad_filter(entry)
            arguments = tuple((str(name), item) for name, item in value.items())
            return BindingFilter(in_effect, None, arguments)
    elif exchange_type in ("topic", "direct"):
        if not isinstance(value, str):
            raise _bad_filter(entry)
        is_own = (entry.name == TOPIC_BINDING) == (exchange_type == "topic")
        # Without wildcards both mean the same; Qpid's C++ client chooses by the wildcards alone.
        if is_own or not {"*", "#"} & set(value.split(".")):
            return BindingFilter(in_effect, str(value))
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


def _refusal(entry: Entry, error: type[RefusedRequest]) -> RefusedRequest:
    reason = entry.text if entry.fate is Fate.REFUSED else f"allowed: {entry.values}"
    return error(f"the {entry.kind} {entry.name} is not offered", reason=reason, hint=entry.hint)


def _unknown(kind: Kind, name: str, error: type[RefusedRequest]) -> RefusedRequest:
    offered = [
        entry.name for entry in TABLE if entry.kind is kind and entry.fate is not Fate.REFUSED
    ]
    near = get_close_matches(name, offered, 1)
    return error(
        f"the {kind} {name[:100]} is not known",
        reason="what is asked for is done or refused",
        hint=f"did you mean {near[0]}?"
        if near
        else f"leave it out; known are {', '.join(offered)}",
    )
