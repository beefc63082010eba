"""Declarations: whether what a client asks for can be had, and whether it is what exists already.

All of it is asked before anything changes. What a declaration leaves open is decided once and kept in
its record, so that nobody else has to decide it again.
Source: Qpid `Broker.cpp` (createQueue, createExchange).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.broker.exchange import EXCHANGE_TYPES
from qpidha.broker.level import HA_UUID, NONE, REPLICATE
from qpidha.broker.limits import EXCHANGE_ARGUMENTS, check_known, check_name, check_plain, check_queue_arguments
from qpidha.words.errors import InvalidArgument, LimitExceeded, NotFound, PreconditionFailed, RefusedRequest

if TYPE_CHECKING:
    from qpidha.broker.model import Model
    from qpidha.words.records import ExchangeDeclared, QueueDeclared

RESERVED = ("amq.", "qpid.")
"""Beginnings of exchange names that are the broker's own."""


def check_new_queue(model: Model, wanted: QueueDeclared) -> None:
    """Raise if there can be no such queue."""
    if not wanted.name:
        raise InvalidArgument("A queue needs a name", hint="Name it, or ask for a dynamic node.")
    check_name("queue name", wanted.name)
    check_queue_arguments(wanted.arguments)
    _check_alternate(model, wanted.alternate)
    if len(model.queues) >= model.settings.max_queues:
        raise LimitExceeded(
            f"Cannot create queue {wanted.name}: there are {len(model.queues)} already", hint="Delete some, or raise max-queues."
        )


def check_new_exchange(model: Model, wanted: ExchangeDeclared) -> None:
    """Raise if there can be no such exchange."""
    if not wanted.name or wanted.name.startswith(RESERVED):
        raise RefusedRequest(f"The exchange name {wanted.name[:40]!r} is reserved", hint=f"Do not begin it with {' or '.join(RESERVED)}.")
    check_name("exchange name", wanted.name)
    if len(model.exchanges) >= model.settings.max_exchanges:
        raise LimitExceeded(
            f"Cannot create exchange {wanted.name}: there are {len(model.exchanges)} already",
            hint="Delete some, or raise max-exchanges.",
        )
    if wanted.type not in EXCHANGE_TYPES:
        raise InvalidArgument(f"The exchange type {wanted.type} is not known", hint=f"Use one of {', '.join(EXCHANGE_TYPES)}.")
    check_plain(wanted.arguments)
    check_known(wanted.arguments, EXCHANGE_ARGUMENTS)
    _check_alternate(model, wanted.alternate)


def _check_alternate(model: Model, name: str) -> None:
    if name and name not in model.exchanges:
        raise NotFound(f"There is no exchange {name} to be the alternate", hint="Declare it first.")


def resolved(arguments: dict[str, Any], level: str, uuid: str) -> dict[str, Any]:
    """Return the arguments with what the broker decided, so that others need not decide again."""
    decided = {name: value for name, value in arguments.items() if name != HA_UUID}
    decided[REPLICATE] = level
    if level != NONE:
        decided[HA_UUID] = uuid
    return decided


def check_same(what: str, existing: QueueDeclared | ExchangeDeclared, wanted: QueueDeclared | ExchangeDeclared) -> None:
    """Raise PreconditionFailed unless something exists just as it is wanted."""
    names = ("type", "durable", "exclusive", "auto_delete", "alternate")
    pairs = [(name, getattr(existing, name, None), getattr(wanted, name, None)) for name in names]
    pairs.append((REPLICATE, existing.replicate, wanted.arguments.get(REPLICATE, existing.replicate)))
    for name in dict.fromkeys((*existing.arguments, *wanted.arguments)):
        if name not in (REPLICATE, HA_UUID):
            pairs.append((name, existing.arguments.get(name), wanted.arguments.get(name)))
    differing = [(name, has, asked) for name, has, asked in pairs if has != asked]
    if differing:
        has, asked = (", ".join(f"{row[0]}={_shown(row[column])}" for row in differing) for column in (1, 2))
        raise PreconditionFailed(f"{what} exists with {has}, you asked for {asked}", hint="Ask for it as it is, or delete it first.")


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else "none" if value in (None, "") else str(value)
