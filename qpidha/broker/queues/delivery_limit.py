"""Delivery limit: how often a message may come back from consumers that failed with it.

A delivery counts as failed when the consumer says so (`modified` with delivery-failed, `rejected`),
and when its link, session or connection is lost. It does not when the message is released, when a
consumer had it for too long, or when another broker becomes primary. The count is in the record of
the requeue, so it survives a failover. A message whose count exceeds the limit leaves the queue
with the cause DELIVERY_LIMIT: to the dead letters, or to the alternate exchange; where there is
neither it is put aside, on the queue `<name>.undeliverable` (`quarantine_of`), or it is dropped if
that is asked for.

A consumer may also say at once that a message is undeliverable here (`modified`). By the standard
others may have it then; with `qpidha.undeliverable-here=dead-letter` it dies, as in RabbitMQ.

A limit may be lowered while messages are there: those that are over it then leave some a turn
(`sweep.py`), and after a failover in the middle the new primary begins again.

Source: RabbitMQ's guide to quorum queues (poison messages).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from qpidha.broker.queues.arguments import LONGEST_KEY, fits_key
from qpidha.broker.queues.dead_letters import DeadLetterTarget
from qpidha.broker.queues.limits import UNLIMITED
from qpidha.model.errors import InvalidArgument, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

DELIVERY_LIMIT = "x-delivery-limit"
DELIVERY_LIMIT_ACTION = "qpidha.delivery-limit-action"
QUARANTINE, DROP = "quarantine", "drop"
LOSS_COUNTS = "qpidha.loss-counts"
ALL, OLDEST = "all", "oldest"
UNDELIVERABLE_HERE = "qpidha.undeliverable-here"
ELSEWHERE, DIES = "elsewhere", "dead-letter"
PUT_ASIDE = ".undeliverable"
HASHED = 16
"""Digits of the hash of a long name."""
DEFAULT_LIMIT = 20
"""Of queues that are declared as quorum queues and name none; as in RabbitMQ."""
LARGEST_LIMIT = (1 << 32) - 1
"""What a header can count."""
NO_LIMIT = -1


@dataclass(slots=True, frozen=True)
class DeliveryLimit:
    """How many deliveries may fail, and what happens then."""

    most: int = UNLIMITED
    """So many may fail; one more, and the message leaves."""
    drops: bool = False
    """Whether a message that has nowhere to go is dropped; else it is put aside."""
    charges_oldest: bool = False
    """Whether, of what a consumer had that is lost, only the oldest delivery counts as failed."""
    buries: bool = False
    """Whether a message dies of which a consumer says that it is undeliverable here; else others
    get it.
    """


def read_delivery_limit(arguments: Mapping[str, Any]) -> DeliveryLimit:
    """Return the limit in `arguments`, which have been checked."""
    most = int(arguments.get(DELIVERY_LIMIT, NO_LIMIT))
    return DeliveryLimit(
        UNLIMITED if most == NO_LIMIT else most,
        drops=arguments.get(DELIVERY_LIMIT_ACTION) == DROP,
        charges_oldest=arguments.get(LOSS_COUNTS) == OLDEST,
        buries=arguments.get(UNDELIVERABLE_HERE) == DIES,
    )


def check_delivery_limit(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a limit that cannot be followed."""
    for name, allowed in (
        (DELIVERY_LIMIT_ACTION, (QUARANTINE, DROP)),
        (LOSS_COUNTS, (ALL, OLDEST)),
        (UNDELIVERABLE_HERE, (ELSEWHERE, DIES)),
    ):
        value = arguments.get(name, allowed[0])
        if value not in allowed:
            raise InvalidArgument(
                f"{name}={value!r} is not known", hint=f"Use {' or '.join(allowed)}."
            )
    if DELIVERY_LIMIT not in arguments:
        if DELIVERY_LIMIT_ACTION in arguments:
            raise PreconditionFailed(
                f"{DELIVERY_LIMIT_ACTION} is given without {DELIVERY_LIMIT}",
                reason="without a limit nothing is delivered too often",
                hint=f"say with {DELIVERY_LIMIT} how many deliveries may fail",
            )
        return
    value = arguments[DELIVERY_LIMIT]
    text = "" if isinstance(value, bool) or not isinstance(value, int | str) else str(value)
    digits = text.removeprefix("-")
    acceptable = (
        digits.isascii()
        and digits.isdecimal()
        and len(digits) <= len(str(LARGEST_LIMIT))
        and NO_LIMIT <= int(text) <= LARGEST_LIMIT
    )
    if not acceptable:
        shown = value[:40] if isinstance(value, str) else value
        raise InvalidArgument(
            f"{DELIVERY_LIMIT}={shown!r} is not a number of deliveries",
            hint="0 lets a message be delivered once, 1 twice; -1 is no limit.",
        )


def quarantine_of(queue: str) -> DeadLetterTarget:
    """Return where messages are put aside that were delivered too often on a queue. Of a name that
    is too long to be the beginning of another one the end is hashed.
    """
    name = f"{queue}{PUT_ASIDE}"
    if not fits_key(name):
        tail = f"~{sha256(queue.encode()).hexdigest()[:HASHED]}{PUT_ASIDE}"
        name = queue.encode()[: LONGEST_KEY - len(tail)].decode(errors="ignore") + tail
    return DeadLetterTarget("", name)
