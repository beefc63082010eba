"""Specs of queues: the parts of a queue, compiled once from its declaration.

A declaration is a map of arguments. Reading them again for each message would be slow, and reading
them in many places would make it hard to say what a queue does. So `compile_spec` reads them once,
and every part of the queue takes its share of the `QueueSpec`. The result depends on nothing but
the declaration and the broker's options, so every replica compiles the same one.

A queue can be given another spec while messages are on it (`Queue.reconfigure`); `check_change`
says what cannot change. Which names a client may use is said in `broker/vocabulary.py`.

Policies are put into the arguments before (`broker/policy.py`). Whatever a policy may set must be
right for `Queue.reconfigure`, with any value that is allowed and beside any other.

Places for coming features: a kind of ordering or a dispatch is a field of `QueueSpec`; a part of
the message that such a field reads (priority, group, key) is a flag of `Needs`.
Source: Qpid `QueueSettings.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Flag, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from qpidha.broker.queues.alerts import Thresholds, check_alerts, read_alerts
from qpidha.broker.queues.arguments import check_plain
from qpidha.broker.queues.dead_letters import (
    DeadLetterTarget,
    check_dead_letters,
    read_dead_letters,
)
from qpidha.broker.queues.dedup import Dedup, check_dedup, read_dedup
from qpidha.broker.queues.defaults import QueueDefaults
from qpidha.broker.queues.delivery_limit import (
    DeliveryLimit,
    check_delivery_limit,
    read_delivery_limit,
)
from qpidha.broker.queues.dispatch import BROWSE_ONLY, FENCING, MAX_CONSUMERS, SINGLE_ACTIVE
from qpidha.broker.queues.groups import GROUP_KEY, Grouping, check_grouping, read_grouping
from qpidha.broker.queues.intake import NO_LOCAL, check_filters, read_filters
from qpidha.broker.queues.last_value import (
    LAST_VALUE_KEY,
    LastValue,
    check_last_value,
    check_sequence_key,
    read_last_value,
    read_sequence_key,
)
from qpidha.broker.queues.lifetime import (
    LIFETIME_POLICY,
    Lifetime,
    check_lifetime,
    read_lifetime,
    read_timeout,
)
from qpidha.broker.queues.limits import UNLIMITED, Limits, check_limits, read_limits
from qpidha.broker.queues.ordering import Fifo
from qpidha.broker.queues.periods import (
    Retry,
    check_periods,
    read_patience,
    read_retry,
    read_ttl,
    read_unused,
)
from qpidha.broker.queues.priority import Priorities, Priority, check_priorities, read_priorities
from qpidha.model.errors import InvalidArgument, PreconditionFailed
from qpidha.model.replication_level import HA_UUID, REPLICATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qpidha.broker.queues.messages import Messages
    from qpidha.broker.queues.ordering import Ordering
    from qpidha.model.records import QueueDeclared


OF_ONE_QUEUE = frozenset((HA_UUID, REPLICATE))
"""Arguments that no spec depends on."""
SHARED_SPECS = 1000
"""Specs that are remembered, for queues that are declared alike."""


class Needs(Flag):
    """The parts of an arriving message that a queue reads, beyond its size and its expiry.

    Reading a part costs a decode, so a message goes by the short way in where none is needed.
    """

    NOTHING = 0
    DURABLE = auto()
    """`durable` in the header: only a durable queue asks for it."""
    DEDUP_KEY = auto()
    """The message-id, or the annotation that `qpidha.dedup` names."""
    LAST_VALUE_KEY = auto()
    """The application property that `qpid.last_value_queue_key` names."""
    PRIORITY = auto()
    """`priority` in the header."""


@dataclass(slots=True, frozen=True)
class QueueSpec:
    """What one queue is made of."""

    limits: Limits
    lifetime: Lifetime
    timeout: int
    """How long an unused queue is kept before its lifetime ends it, in ns."""
    dedup: Dedup | None
    """What duplicates are known by; None if the queue takes a message twice."""
    ttl: int
    """How long each message is kept at most, in ns; 0 for ever."""
    unused: int
    """How long the queue stays without a consumer, in ns; 0 for ever."""
    grouping: Grouping | None
    """What the group of a message is read from; None if there are no groups."""
    single_active: bool
    """Whether one consumer gets all messages."""
    fences: bool
    """Whether each delivery has a fencing token."""
    retry: Retry | None
    """How long messages wait that were given back; None if none does."""
    patience: int | None
    """How long consumers may keep a message, in ns; 0 for ever, None if others say that."""
    browse_only: bool
    """Whether consumers are shown messages and take none."""
    max_consumers: int
    """How many there may be."""
    needs: Needs
    dead_letters: DeadLetterTarget | None = None
    """Where messages go that die here; None if they vanish."""
    filters: tuple[tuple[str, str], ...] = ()
    """The selectors of what it takes, each behind the name of its argument."""
    no_local: str = ""
    """The container whose messages to exchanges it does not take; empty if it takes all."""
    priorities: Priorities | None = None
    """What its messages are ordered by; None if they are in the order of arrival."""
    last_value: str = ""
    """By which property of the application a message replaces another; empty if none does."""
    sequence_key: str = ""
    """The annotation that says which number a message has; empty if none does."""

    def make_ordering(self, messages: Messages) -> Ordering:
        """Return what says which of a queue's messages is next."""
        if self.priorities is not None:
            return Priority(messages, self.priorities)
        return LastValue(messages, self.last_value) if self.last_value else Fifo(messages)

    delivery_limit: DeliveryLimit = DeliveryLimit()
    alerts: Thresholds | None = None
    """When the queue tells how deep it is."""


def compile_spec(options: QueueDeclared, defaults: QueueDefaults) -> QueueSpec:
    """Return the spec of a declared queue; `defaults` count where it says nothing. Queues that are
    declared alike share one.
    """
    # A value is not the same as one of another type that equals it: True and 1.
    told = tuple(
        (name, value.__class__, value)
        for name, value in options.arguments.items()
        if name not in OF_ONE_QUEUE
    )
    try:
        return _shared(told, options.durable, options.auto_delete, defaults)
    except TypeError:  # A list or a map among them.
        return _compile(options.arguments, options.durable, options.auto_delete, defaults)


@lru_cache(maxsize=SHARED_SPECS)
def _shared(
    told: tuple[tuple[str, type, Any], ...],
    durable: bool,
    auto_delete: bool,
    defaults: QueueDefaults,
) -> QueueSpec:
    arguments = {name: value for name, _, value in told}
    return _compile(arguments, durable, auto_delete, defaults)


def _compile(
    arguments: Mapping[str, Any], durable: bool, auto_delete: bool, defaults: QueueDefaults
) -> QueueSpec:
    dedup = read_dedup(arguments)
    needs = Needs.DURABLE if durable else Needs.NOTHING
    if dedup is not None:
        needs |= Needs.DEDUP_KEY
    priorities = read_priorities(arguments)
    if priorities is not None:
        needs |= Needs.PRIORITY
    last_value = read_last_value(arguments)
    if last_value:
        needs |= Needs.LAST_VALUE_KEY
    limits = read_limits(arguments, defaults)
    return QueueSpec(
        limits=limits,
        lifetime=read_lifetime(arguments, auto_delete),
        timeout=read_timeout(arguments),
        dedup=dedup,
        ttl=read_ttl(arguments),
        unused=read_unused(arguments),
        grouping=read_grouping(arguments, defaults.group),
        single_active=bool(arguments.get(SINGLE_ACTIVE)),
        fences=bool(arguments.get(FENCING)),
        retry=read_retry(arguments),
        patience=read_patience(arguments),
        browse_only=bool(arguments.get(BROWSE_ONLY)),
        max_consumers=int(arguments.get(MAX_CONSUMERS, UNLIMITED)),
        needs=needs,
        dead_letters=read_dead_letters(arguments),
        filters=read_filters(arguments),
        no_local=str(arguments.get(NO_LOCAL, "")),
        priorities=priorities,
        delivery_limit=read_delivery_limit(arguments),
        alerts=read_alerts(arguments, limits, defaults),
        last_value=last_value,
        sequence_key=read_sequence_key(arguments),
    )


def check_change(name: str, present: QueueSpec, wanted: QueueSpec) -> None:
    """Raise PreconditionFailed, with the reason, if a queue of this name cannot be given another
    spec.
    """
    if present.grouping != wanted.grouping or present.single_active != wanted.single_active:
        raise PreconditionFailed(
            f"{GROUP_KEY} and {SINGLE_ACTIVE} of queue {name} cannot change: consumers have been "
            "given messages by them",
            hint="declare another queue and move the messages there",
        )
    if wanted.lifetime is Lifetime.ON_CLOSE and present.lifetime is not Lifetime.ON_CLOSE:
        raise PreconditionFailed(
            f"queue {name} cannot end with the link that created it: that is decided when a link "
            "creates it",
            hint=f"choose another {LIFETIME_POLICY}",
        )
    if _kind_of_order(present) != _kind_of_order(wanted):
        raise PreconditionFailed(
            f"the order of queue {name}, and what numbers its messages, cannot change: they are as "
            "it was declared",
            hint="declare another queue and move the messages there; shares of priorities may "
            "change, levels may not",
        )
    if (present.needs ^ wanted.needs) & Needs.DURABLE:
        raise PreconditionFailed(
            f"whether queue {name} is durable cannot change: its messages were taken for "
            "what it is",
            hint="declare another queue and move the messages there",
        )


def _kind_of_order(spec: QueueSpec) -> object:
    """Return what of the order is decided once."""
    levels = spec.priorities and replace(spec.priorities, shares=(), keeps_age=False)
    return levels, spec.last_value, spec.sequence_key


def check_queue_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a value that cannot be followed."""
    check_plain(arguments)
    check_limits(arguments)
    check_lifetime(arguments)
    check_dedup(arguments)
    check_filters(arguments)
    check_periods(arguments)
    check_dead_letters(arguments)
    check_grouping(arguments)
    if arguments.get(GROUP_KEY) and arguments.get(SINGLE_ACTIVE):
        raise InvalidArgument(
            f"{GROUP_KEY} and {SINGLE_ACTIVE} are given for one queue",
            hint="Leave one out: a single active consumer has all groups.",
        )
    check_priorities(arguments)
    check_last_value(arguments)
    check_sequence_key(arguments)
    if read_last_value(arguments):
        _check_last_value_alone(arguments)
    if arguments.get(GROUP_KEY) and read_priorities(arguments) is not None:
        raise InvalidArgument(
            f"{GROUP_KEY} and priorities are given for one queue",
            reason="a message of a group waits for those before it, whatever their priorities",
            hint="Leave one out.",
        )
    check_delivery_limit(arguments)
    check_alerts(arguments)


def _check_last_value_alone(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for last values beside what they contradict; as in Qpid."""
    for name, is_there in (
        ("priorities", read_priorities(arguments) is not None),
        (GROUP_KEY, arguments.get(GROUP_KEY)),
    ):
        if is_there:
            raise InvalidArgument(
                f"{LAST_VALUE_KEY} and {name} are given for one queue",
                reason="a value that takes the place of another is the last of the queue",
                hint="Leave one out.",
            )
