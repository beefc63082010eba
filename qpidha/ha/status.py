"""Broker states and the table of legal changes between them.

The six words are an interface: scripts compare them, so they are spelled as Qpid spells them. A change
is checked against the table before it is made; an illegal one is a bug and stops the broker.
Source: Qpid `src/qpid/ha/types.h` and `Membership.cpp`; DESIGN section 4.
"""

from __future__ import annotations

from enum import StrEnum

from qpidha.words.errors import InvariantBroken


class BrokerStatus(StrEnum):
    """What a broker is at present."""

    STANDALONE = "standalone"
    JOINING = "joining"
    CATCHUP = "catchup"
    READY = "ready"
    RECOVERING = "recovering"
    ACTIVE = "active"

    @property
    def is_primary(self) -> bool:
        """Whether this is one of the two states of a primary."""
        return self in (BrokerStatus.RECOVERING, BrokerStatus.ACTIVE)

    @property
    def is_backup(self) -> bool:
        """Whether this is one of the three states of a backup."""
        return self in (BrokerStatus.JOINING, BrokerStatus.CATCHUP, BrokerStatus.READY)


STANDALONE, JOINING, CATCHUP = BrokerStatus.STANDALONE, BrokerStatus.JOINING, BrokerStatus.CATCHUP
READY, RECOVERING, ACTIVE = BrokerStatus.READY, BrokerStatus.RECOVERING, BrokerStatus.ACTIVE

LEGAL_CHANGES: dict[BrokerStatus, tuple[BrokerStatus, ...]] = {
    STANDALONE: (JOINING,),  # configured as a cluster member
    JOINING: (CATCHUP, RECOVERING),  # first word from a primary | promoted as first primary
    CATCHUP: (READY, RECOVERING),  # the primary says so: in the in-sync set | promoted, as the primary is gone and nobody has more
    READY: (RECOVERING, CATCHUP),  # promoted | dropped from the in-sync set
    RECOVERING: (ACTIVE, JOINING),  # expected backups ready or timed out | demoted
    ACTIVE: (JOINING,),  # demoted, or met a higher epoch
}


def check_change(before: BrokerStatus, after: BrokerStatus) -> None:
    """Raise InvariantBroken unless the table allows this change."""
    if after not in LEGAL_CHANGES[before]:
        raise InvariantBroken(f"illegal state transition: {before.value} -> {after.value}")
