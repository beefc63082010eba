"""Plug-ins: finds the resource manager that runs a broker, among those that are installed.

Each is an entry point of the group `qpidha.resource_managers` that names a function of the shape
`FindManager`. Ours are asked first and are written down here, so that they are there without an
installation too; then the others by name. Knows no manager by itself. docs/resource-managers.md has
an example.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points

from qpidha.manager.resource_manager import BrokerPlace, FindManager, ResourceManager
from qpidha.model.errors import InvalidArgument

GROUP = "qpidha.resource_managers"
OURS = (
    EntryPoint("builtin", "qpidha.manager.builtin.manager:find", GROUP),
    EntryPoint("pacemaker", "qpidha.manager.pacemaker.manager:find", GROUP),
    EntryPoint("rgmanager", "qpidha.manager.rgmanager.manager:find", GROUP),
)
"""The cheapest question first; the built-in manager is sure of its brokers, for it started them."""


def manager_of(place: BrokerPlace) -> ResourceManager | None:
    """Find who runs a broker; None if nobody does. Raises InvalidArgument for a plug-in that cannot
    be loaded or asked.
    """
    for point in known():
        manager = _find(point, place)
        if manager is not None:
            return manager
    return None


def known() -> Iterator[EntryPoint]:
    """Give the plug-ins in the order in which they are asked; others are looked for only when none
    of ours runs the broker.
    """
    yield from OURS
    yield from sorted(entry_points(group=GROUP), key=lambda point: point.name)


def load(point: EntryPoint) -> FindManager:
    """Import a plug-in."""
    try:
        find: FindManager = point.load()
    except Exception as error:  # Another's module may raise anything.
        raise _broken(point, "cannot be loaded", error) from error
    return find


def _find(point: EntryPoint, place: BrokerPlace) -> ResourceManager | None:
    find = load(point)
    try:
        return find(place)
    except Exception as error:  # And so may its function, although it must not.
        raise _broken(point, "does not say whose the broker is", error) from error


def _broken(point: EntryPoint, what: str, error: Exception) -> InvalidArgument:
    text = f"the resource manager plug-in {point.name!r} {what}: {type(error).__name__}: {error}"
    return InvalidArgument(
        text, hint=f"correct or remove the package that has {point.value!r} in the group {GROUP}"
    )
