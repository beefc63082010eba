"""The state of a broker, and the table of legal changes.

A change is checked against the table before it is made; an illegal one is a bug and stops the
broker. Must not know what causes a change. Source: Qpid `src/qpid/ha/Membership.cpp`; the figure
in `docs/internals/states.md`.
"""

from __future__ import annotations

from collections.abc import Callable

from qpidha.ha.port import Port
from qpidha.model.broker_states import (
    ACTIVE,
    CATCHUP,
    JOINING,
    READY,
    RECOVERING,
    STANDALONE,
    BrokerStatus,
)
from qpidha.model.errors import InvariantBroken
from qpidha.model.event_codes import STATE_CHANGED

LEGAL_CHANGES: dict[BrokerStatus, tuple[BrokerStatus, ...]] = {
    STANDALONE: (JOINING,),  # configured as a member of a cluster
    JOINING: (CATCHUP, RECOVERING),  # first message from a primary | promoted as first primary
    # The primary says that it is in the in-sync set | promoted: the primary is gone, and no other
    # broker has more.
    CATCHUP: (READY, RECOVERING),
    READY: (RECOVERING, CATCHUP),  # promoted | dropped from the in-sync set
    RECOVERING: (ACTIVE, JOINING),  # expected backups ready or given up | demoted
    ACTIVE: (JOINING,),  # demoted, or has heard of a higher epoch
}


def check_change(before: BrokerStatus, after: BrokerStatus) -> None:
    """Raise InvariantBroken unless the table allows this change."""
    if after not in LEGAL_CHANGES[before]:
        raise InvariantBroken(f"illegal state transition: {before.value} -> {after.value}")


class StateMachine:
    """The state of this broker: read as `current`, changed here only."""

    __slots__ = ("_changed", "_port", "current", "since")

    def __init__(self, port: Port, changed: Callable[[], None]) -> None:
        self._port = port
        self._changed = changed
        """Called after each change, to let the other brokers know."""
        self.current = STANDALONE
        self.since = 0
        """When it became that, in ns of the port's time."""

    def change(self, state: BrokerStatus) -> None:
        """Be in another state from now on; raises InvariantBroken if the table forbids it."""
        before = self.current
        check_change(before, state)
        self.current = state
        self.since = self._port.now
        self._port.announce(
            "info",
            f"Status change: {before.value} -> {state.value}",
            before=before.value,
            after=state.value,
            event_code=STATE_CHANGED,
        )
        # The node admits or refuses clients before the other brokers hear of the change.
        self._port.state_changed(state)
        self._changed()
