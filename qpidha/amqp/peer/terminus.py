"""Termini, outcomes and errors of a peer as plain values, between the engine and the links.

The engine reads them from and writes them to its own structures; links and services read and build
them. Knows neither.
Source: AMQP 1.0 sections 2.8.14, 3.4 and 3.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qpidha.model.errors import QpidHaError

Pointer = Any
"""A delivery or another structure of the engine; equal and hashed by its address, never looked
into.
"""

NONE, SOURCE, TARGET, COORDINATOR = range(4)
"""What a terminus is; NONE is a null source or target."""

RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x23, 0x24, 0x25, 0x26, 0x27
"""Descriptors of the delivery states; 0 is no state."""

OUTCOME_NAMES = {
    ACCEPTED: "amqp:accepted:list",
    REJECTED: "amqp:rejected:list",
    RELEASED: "amqp:released:list",
    MODIFIED: "amqp:modified:list",
}
"""Outcomes as sources list them."""

UNSETTLED, SETTLED, MIXED = range(3)
"""Sender settle modes."""


@dataclass(slots=True)
class Terminus:
    """A source or target as one side describes it."""

    kind: int = NONE
    address: str | None = None
    dynamic: bool = False
    durability: int = 0
    expiry: str = "session-end"
    timeout: int = 0
    distribution: str = ""
    properties: dict[Any, Any] = field(default_factory=dict)
    capabilities: list[str] = field(default_factory=list)
    filter: dict[Any, Any] = field(default_factory=dict)
    outcomes: list[str] = field(default_factory=list)
    default_outcome: Outcome | None = None


@dataclass(slots=True)
class PeerError:
    """An AMQP error that the peer sent."""

    condition: str
    description: str = ""
    info: dict[Any, Any] = field(default_factory=dict)

    @property
    def explanation(self) -> str:
        """What failed and, as far as the peer says so, why."""
        return explanation(self.condition, self.description, self.info)

    @property
    def hint(self) -> str:
        """What to do next, if the peer says so."""
        return hint_in(self.info)

    @classmethod
    def of(cls, error: QpidHaError) -> PeerError:
        """Return an error of ours as the peer is told it."""
        return cls(error.condition, error.text, {**error.info, **error.details})


def explanation(condition: str, description: str, info: Mapping[Any, Any]) -> str:
    """Say what failed and why, from the fields of an AMQP error."""
    text, reason = description or condition, info.get("reason")
    return f"{text}: {reason}" if isinstance(reason, str) and reason else text


def hint_in(info: Mapping[Any, Any]) -> str:
    """Return what to do next, from the info map of an AMQP error."""
    hint = info.get("hint")
    return str(hint) if isinstance(hint, str) else ""


@dataclass(slots=True)
class Outcome:
    """What became of a delivery."""

    state: int
    error: PeerError | None = None
    failed: bool = False
    undeliverable: bool = False
    annotations: dict[Any, Any] = field(default_factory=dict)


def source(address: str | None = None, **options: Any) -> Terminus:
    """Describe a source."""
    return Terminus(SOURCE, address, **options)


def target(address: str | None = None, **options: Any) -> Terminus:
    """Describe a target."""
    return Terminus(TARGET, address, **options)
