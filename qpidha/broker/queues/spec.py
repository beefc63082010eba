"""Specs of queues: the parts of a queue, compiled once from its declaration.

A declaration is a map of arguments. Reading them again for each message would be slow, and reading
them in many places would make it hard to say what a queue does. So `compile_spec` reads them once,
and every part of the queue takes its share of the `QueueSpec`. The result depends on nothing but
the declaration and the broker's options, so every replica compiles the same one.

A queue can be given another spec while messages are on it (`Queue.reconfigure`); `check_change`
says what cannot change. Which names a client may use is said in `broker/vocabulary.py`.

Places for coming features: a policy is one more source for `compile_spec`; a kind of ordering, a
dispatch, a delivery limit, a time to live or a target for dead letters is a field of `QueueSpec`;
a part of the message that such a field reads (priority, group, key) is a flag of `Needs`.
Source: Qpid `QueueSettings.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto
from typing import TYPE_CHECKING, Any

from qpidha.broker.queues.arguments import check_plain
from qpidha.broker.queues.dedup import DEDUP, Dedup, check_dedup, read_dedup
from qpidha.broker.queues.lifetime import (
    LIFETIME_POLICY,
    Lifetime,
    check_lifetime,
    read_lifetime,
    read_timeout,
)
from qpidha.broker.queues.limits import Limits, check_limits, read_limits
from qpidha.model.errors import PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qpidha.model.records import QueueDeclared


class Needs(Flag):
    """The parts of an arriving message that a queue reads, beyond its size and its expiry.

    Reading a part costs a decode, so a message goes by the short way in where none is needed.
    """

    NOTHING = 0
    DURABLE = auto()
    """`durable` in the header: only a durable queue asks for it."""
    DEDUP_KEY = auto()
    """The message-id, or the annotation that `qpidha.dedup` names."""


@dataclass(slots=True, frozen=True)
class QueueSpec:
    """What one queue is made of."""

    limits: Limits
    lifetime: Lifetime
    timeout: int
    """How long an unused queue is kept before its lifetime ends it, in ns."""
    dedup: Dedup | None
    """What duplicates are known by; None if the queue takes a message twice."""
    needs: Needs


def compile_spec(options: QueueDeclared, default_max_bytes: int, memory: int) -> QueueSpec:
    """Return the spec of a declared queue. `default_max_bytes` is its limit if it names none,
    `memory` the bytes of messages that need be in memory; 0 is no limit for both.
    """
    arguments = options.arguments
    dedup = read_dedup(arguments)
    needs = Needs.DURABLE if options.durable else Needs.NOTHING
    if dedup is not None:
        needs |= Needs.DEDUP_KEY
    return QueueSpec(
        limits=read_limits(arguments, default_max_bytes, memory),
        lifetime=read_lifetime(arguments, options.auto_delete),
        timeout=read_timeout(arguments),
        dedup=dedup,
        needs=needs,
    )


def check_change(name: str, present: QueueSpec, wanted: QueueSpec) -> None:
    """Raise PreconditionFailed, with the reason, if a queue of this name cannot be given another
    spec.
    """
    if (
        present.dedup is not None
        and wanted.dedup is not None
        and present.dedup.by != wanted.dedup.by
    ):
        raise PreconditionFailed(
            f"queue {name} knows duplicates by {present.dedup.by}: the keys that it remembers say "
            f"nothing about {wanted.dedup.by}",
            hint=f"turn {DEDUP} off first, which forgets the keys, or use another queue",
        )
    if wanted.lifetime is Lifetime.ON_CLOSE and present.lifetime is not Lifetime.ON_CLOSE:
        raise PreconditionFailed(
            f"queue {name} cannot end with the link that created it: that is decided when a link "
            "creates it",
            hint=f"choose another {LIFETIME_POLICY}",
        )
    if (present.needs ^ wanted.needs) & Needs.DURABLE:
        raise PreconditionFailed(
            f"whether queue {name} is durable cannot change: its messages were taken for "
            "what it is",
            hint="declare another queue and move the messages there",
        )


def check_queue_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a value that cannot be followed."""
    check_plain(arguments)
    check_limits(arguments)
    check_lifetime(arguments)
    check_dedup(arguments)
