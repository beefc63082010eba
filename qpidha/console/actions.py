"""Actions: what pages offer to change, to whoever shows a token that is good for it.

An action is a method of the API (changes.py) with few parameters. Its page says first what would be
done, as `?dry_run` of the API does, and does it when that is confirmed. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from qpidha.console.changes import CHANGES, INTEGER, Change, check

_CHANGES = {change.method: change for change in CHANGES}


class Action(NamedTuple):
    """One action."""

    label: str
    """What its button says."""
    back: str
    """Path of the page that it belongs to."""
    params: tuple[str, ...]
    """Parameters that it has, of those of the method."""
    change: Change


def _action(method: str, label: str, back: str, *params: str) -> tuple[str, Action]:
    return method, Action(label, back, params, _CHANGES[method])


ACTIONS = dict(
    (
        _action("switchover", "Hand over", "/", "target"),
        _action("close_connection", "Close the connection", "/connections", "id"),
        _action("purge_queue", "Purge the queue", "/queues", "name"),
        _action("delete_queue", "Delete the queue", "/queues", "name"),
        _action("clear_policy", "Clear the policy", "/policies", "name"),
        _action("clear_operator_policy", "Clear the operator policy", "/policies", "name"),
    )
)
"""Method -> its action."""


def params_of(action: Action, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters that a form gives. Raises InvalidArgument."""
    found: dict[str, Any] = {}
    types = {param.name: param.type for param in action.change.params}
    for name in action.params:
        text = given.get(name, "")
        if text:
            is_number = types[name] == INTEGER and text.removeprefix("-").isdecimal()
            found[name] = int(text) if is_number and len(text) < 19 else text
    check(action.change, found)
    return found
