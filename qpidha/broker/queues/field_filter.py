"""Field filters: a map of fields of a message and the values that they are to have.

A message is selected if all of them match. Text may begin with `&p:` (the field begins with the
rest) or `&s:` (it ends with it); `&&` stands for one `&`. Numbers are compared as numbers, whatever
their types. Source: AMQP filter expressions (filtex 1.0) section 4; RabbitMQ
`rabbit_amqp_filter_prop.erl`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qpidha.broker.queues.selector import MessageSelector
from qpidha.broker.queues.selector_names import PROPERTY_FIELD, Reader
from qpidha.model.encoding import Uuid
from qpidha.model.errors import InvalidArgument

if TYPE_CHECKING:
    from qpidha.model.message import Message

    Matches = Callable[[Any], bool]

MAX_FIELDS = 16
"""Fields of one filter; as in RabbitMQ."""


def filter_of(name: str, given: Any, *, of_application: bool) -> MessageSelector:
    """Compile a filter by properties, or by application properties; raise InvalidArgument, with the
    field, for one that cannot be used.
    """
    if not isinstance(given, dict) or not 0 < len(given) <= MAX_FIELDS:
        raise InvalidArgument(
            f"the value of the filter {name} is not allowed",
            hint=f"allowed: a map of 1 to {MAX_FIELDS} fields",
        )
    reader = Reader()
    tests: list[tuple[int, Matches]] = []
    for key, value in given.items():
        if of_application:
            place = reader.property(str(key)) if isinstance(key, str) else None
        else:
            field = PROPERTY_FIELD.get(str(key).replace("-", "_"))
            place = None if field is None or "_" in str(key) else reader.field(field)
        matches = _matcher(value, is_needed=of_application)
        if place is None or matches is None:
            raise InvalidArgument(
                f"the field {str(key)[:60]} of the filter {name} cannot be used",
                reason="there is no such field" if place is None else "its value cannot be matched",
                hint="fields of the properties have the names of AMQP 1.0, such as message-id"
                if place is None
                else "use text, a number, true, false, null, bytes or a UUID; & is written as &&",
            )
        tests.append((place, matches))

    def selects(message: Message) -> bool:
        values = reader.read_raw(message)
        return values is not None and all(matches(values[place]) for place, matches in tests)

    return MessageSelector((name, repr(sorted(given.items(), key=repr))), 1, selects)


def _matcher(wanted: Any, *, is_needed: bool) -> Matches | None:
    """Return what a value is compared with; None for one that cannot be."""
    if wanted is None:
        return lambda value: value is not None or not is_needed
    if isinstance(wanted, str):
        return _text_matcher(str(wanted))
    if isinstance(wanted, bool):
        return lambda value: value is wanted
    if isinstance(wanted, int | float):
        return lambda value: value == wanted and not isinstance(value, bool)
    if isinstance(wanted, bytes | Uuid):
        return lambda value: bool(value == wanted)
    return None


def _text_matcher(wanted: str) -> Matches | None:
    modifier, rest = wanted[:3], wanted[3:]
    if modifier == "&p:":
        return lambda value: isinstance(value, str) and value.startswith(rest)
    if modifier == "&s:":
        return lambda value: isinstance(value, str) and value.endswith(rest)
    if wanted.startswith("&"):
        if not wanted.startswith("&&"):
            return None
        wanted = wanted[1:]
    return lambda value: bool(value == wanted)
