"""The states that a broker can be in: what it is at present in its cluster.

The six words are an interface: scripts and resource managers compare them, so they are spelled as
Qpid spells them. Which change of state is legal is in `ha/states.py`. Source: Qpid
`src/qpid/ha/types.h`.
"""

from __future__ import annotations

from enum import StrEnum


class BrokerStatus(StrEnum):
    """The state of a broker; equal to its word."""

    STANDALONE = "standalone"
    """Not in a cluster."""
    JOINING = "joining"
    """A backup that follows no primary yet, or has not heard from it yet."""
    CATCHUP = "catchup"
    """A backup that follows a primary and is not in the in-sync set."""
    READY = "ready"
    """A backup that is in the in-sync set."""
    RECOVERING = "recovering"
    """A primary that waits for the other members of the set that it began with."""
    ACTIVE = "active"
    """A primary whose expected backups are all ready, or dropped."""

    @property
    def is_primary(self) -> bool:
        """Whether this is one of the two states of a primary."""
        return self in PRIMARY_STATES

    @property
    def is_backup(self) -> bool:
        """Whether this is one of the three states of a backup."""
        return self in BACKUP_STATES


STANDALONE, JOINING, CATCHUP = BrokerStatus.STANDALONE, BrokerStatus.JOINING, BrokerStatus.CATCHUP
READY, RECOVERING, ACTIVE = BrokerStatus.READY, BrokerStatus.RECOVERING, BrokerStatus.ACTIVE

PRIMARY_STATES = (RECOVERING, ACTIVE)
BACKUP_STATES = (JOINING, CATCHUP, READY)
STATES = tuple(BrokerStatus)
IN_SYNC_STATES = (READY, *PRIMARY_STATES)
"""The states of a broker that is in the in-sync set."""
SERVING_STATES = (*PRIMARY_STATES, STANDALONE)
"""The states in which a broker serves clients."""
UNREACHABLE = "unreachable"
"""What stands in place of the state of a broker that cannot be asked."""
EXPECTED: dict[str, tuple[BrokerStatus, ...]] = {
    **{state.value: (state,) for state in STATES},
    "primary": PRIMARY_STATES,
    "backup": BACKUP_STATES,
}
"""What `qpid-ha status --expect` takes: a state, or a role; and the states that it stands for."""
