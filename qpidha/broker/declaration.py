"""Declarations: can a queue or exchange be made as asked for, and is an existing one as asked for?

All checks come before any change. The broker decides once what a declaration leaves open, and keeps
it in the record, so that no other broker decides it again. Source: Qpid `Broker.cpp` (createQueue,
createExchange).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.broker.exchange import CONSISTENT_HASH, EXCHANGE_TYPES, HASH_HEADER, HASH_PROPERTY
from qpidha.broker.queues.arguments import check_name, check_plain, is_same
from qpidha.broker.queues.lifetime import AUTO_DELETE_TIMEOUT, LIFETIME_POLICY, Lifetime
from qpidha.broker.queues.limits import FLOW_STOP_COUNT, FLOW_STOP_SIZE
from qpidha.broker.queues.spec import check_queue_arguments
from qpidha.broker.translation import take_option, translate, translated
from qpidha.broker.vocabulary import (
    ALTERNATE,
    AUTO_DELETE,
    DURABLE,
    EXCHANGE_TYPE,
    EXCLUSIVE,
    QUEUE_TYPE,
    QUORUM,
    Kind,
)
from qpidha.model.errors import (
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    RefusedRequest,
)
from qpidha.model.event_codes import EXISTS_OTHERWISE
from qpidha.model.records import ExchangeDeclared, QueueDeclared
from qpidha.model.replication_level import HA_UUID, NONE, REPLICATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qpidha.broker.state import State

RESERVED = ("amq.", "qpid.")
"""Beginnings of exchange names that are the broker's own."""
REFUSED_TYPES = {
    "xml": "messages are not parsed as XML: an exchange reads their keys, headers and properties",
    "x-delayed-message": "an exchange gives messages to queues at once",
    "x-modulus-hash": "to shard by the number of queues moves nearly all messages when one comes",
    "x-random": "an exchange always gives a message to the same queues",
    "x-local-random": "an exchange always gives a message to the same queues",
    "x-recent-history": "exchanges keep no messages",
    "x-jms-topic": "exchanges do not read selectors",
}
"""Types of exchanges that other brokers have, and why this one has them not."""
OPTIONS = {
    DURABLE: "durable",
    EXCLUSIVE: "exclusive",
    AUTO_DELETE: "auto_delete",
    ALTERNATE: "alternate",
    EXCHANGE_TYPE: "type",
}
"""What is asked for beside arguments, and the fields of a declaration that have it."""


def queue_asked_for(
    name: str,
    *,
    durable: bool = False,
    exclusive: bool = False,
    auto_delete: bool = False,
    alternate: str = "",
    arguments: Mapping[str, Any],
) -> QueueDeclared:
    """Return the queue that a declaration asks for, in known names; raise for what is refused."""
    said, implied = translated(Kind.QUEUE, arguments)
    given = {**said, **implied}
    wanted = QueueDeclared(
        name,
        "",
        take_option(given, DURABLE, durable),
        take_option(given, AUTO_DELETE, auto_delete) or AUTO_DELETE_TIMEOUT in given,
        take_option(given, EXCLUSIVE, exclusive),
        take_option(given, ALTERNATE, alternate),
        "",
        given,
        implied=sorted(implied),
    )
    if arguments.get(QUEUE_TYPE) == QUORUM and (wanted.exclusive or not wanted.durable):
        raise PreconditionFailed(
            f"queue {name} cannot be a {QUORUM} queue",
            reason=f"a {QUORUM} queue is durable and not exclusive",
            hint=f"declare it so, or without {QUEUE_TYPE}",
        )
    return wanted


def exchange_asked_for(
    name: str,
    type: str,
    *,
    durable: bool = False,
    auto_delete: bool = False,
    alternate: str = "",
    arguments: Mapping[str, Any],
) -> ExchangeDeclared:
    """Return the exchange that a declaration asks for, in known names; raise for what is
    refused.
    """
    given = translate(Kind.EXCHANGE, arguments)
    return ExchangeDeclared(
        name,
        type,
        "",
        take_option(given, DURABLE, durable),
        take_option(given, AUTO_DELETE, auto_delete),
        take_option(given, ALTERNATE, alternate),
        "",
        given,
    )


def properties_of(wanted: QueueDeclared | ExchangeDeclared) -> dict[str, Any]:
    """Return all that a declaration asks for under its known names, for access control: a rule must
    not depend on how a client spells what is done, nor by which window it comes.
    """
    named = {
        name: getattr(wanted, field) for name, field in OPTIONS.items() if hasattr(wanted, field)
    }
    return {**wanted.arguments, **named}


def check_queue(wanted: QueueDeclared) -> None:
    """Raise if there can be no such queue, whatever else there is."""
    if not wanted.name:
        raise InvalidArgument("A queue needs a name", hint="Name it, or ask for a dynamic node.")
    check_name("queue name", wanted.name)
    check_queue_arguments(wanted.arguments)
    if wanted.auto_delete and wanted.arguments.get(LIFETIME_POLICY) == Lifetime.MANUAL.value:
        raise InvalidArgument(
            f"{LIFETIME_POLICY}={Lifetime.MANUAL.value} and auto-delete contradict each other",
            hint="Leave one out.",
        )


def check_new_queue(state: State, wanted: QueueDeclared) -> None:
    """Raise if there can be no such queue."""
    check_queue(wanted)
    _check_alternate(state, wanted.alternate)
    if len(state.queues) >= state.settings.max_queues:
        raise LimitExceeded(
            f"Cannot create queue {wanted.name}: there are {len(state.queues)} already",
            hint="Delete some, or raise max-queues.",
        )


def check_exchange(wanted: ExchangeDeclared) -> None:
    """Raise if there can be no such exchange, whatever else there is."""
    if not wanted.name or wanted.name.startswith(RESERVED):
        raise RefusedRequest(
            f"The exchange name {wanted.name[:40]!r} is reserved",
            hint=f"Do not begin it with {' or '.join(RESERVED)}.",
        )
    check_name("exchange name", wanted.name)
    if wanted.type not in EXCHANGE_TYPES:
        why = REFUSED_TYPES.get(wanted.type, "")
        raise InvalidArgument(
            f"The exchange type {wanted.type[:40]} is not {'offered' if why else 'known'}",
            reason=why,
            hint=f"Use one of {', '.join(EXCHANGE_TYPES)}.",
        )
    _check_hashing(wanted)
    check_plain(wanted.arguments)


def check_new_exchange(state: State, wanted: ExchangeDeclared) -> None:
    """Raise if there can be no such exchange."""
    check_exchange(wanted)
    if len(state.exchanges) >= state.settings.max_exchanges:
        raise LimitExceeded(
            f"Cannot create exchange {wanted.name}: there are {len(state.exchanges)} already",
            hint="Delete some, or raise max-exchanges.",
        )
    _check_alternate(state, wanted.alternate)


def _check_hashing(wanted: ExchangeDeclared) -> None:
    """Raise for arguments that say what is hashed where nothing is, or two things are."""
    given = [name for name in (HASH_HEADER, HASH_PROPERTY) if name in wanted.arguments]
    if given and wanted.type != CONSISTENT_HASH:
        raise InvalidArgument(
            f"{given[0]} says nothing to an exchange of the type {wanted.type}",
            hint=f"Leave it out, or declare the type {CONSISTENT_HASH}.",
        )
    if len(given) > 1:
        raise InvalidArgument(
            f"{HASH_HEADER} and {HASH_PROPERTY} both say what is hashed", hint="Give one of them."
        )


def _check_alternate(state: State, name: str) -> None:
    if name and name not in state.exchanges:
        raise NotFound(f"There is no exchange {name} to be the alternate", hint="Declare it first.")


def resolved(arguments: dict[str, Any], level: str, uuid: str) -> dict[str, Any]:
    """Return the arguments with what the broker decided, so that others need not decide again."""
    decided = {name: value for name, value in arguments.items() if name != HA_UUID}
    decided[REPLICATE] = level
    if level != NONE:
        decided[HA_UUID] = uuid
    return decided


def check_same(
    what: str, existing: QueueDeclared | ExchangeDeclared, wanted: QueueDeclared | ExchangeDeclared
) -> None:
    """Raise PreconditionFailed unless something exists just as it is wanted."""
    names = ("type", "durable", "exclusive", "auto_delete", "alternate")
    pairs = [(name, getattr(existing, name, None), getattr(wanted, name, None)) for name in names]
    pairs.append(
        (REPLICATE, existing.replicate, wanted.arguments.get(REPLICATE, existing.replicate))
    )
    for name in dict.fromkeys((*existing.arguments, *wanted.arguments)):
        if name not in (REPLICATE, HA_UUID) and not _is_left_open(name, existing, wanted):
            pairs.append((name, existing.arguments.get(name), wanted.arguments.get(name)))
    differing = [(name, has, asked) for name, has, asked in pairs if not is_same(has, asked)]
    if differing:
        has, asked = (
            ", ".join(f"{row[0]}={_shown(row[column])}" for row in differing) for column in (1, 2)
        )
        raise PreconditionFailed(
            f"{what} exists with {has}, you asked for {asked}",
            hint="Ask for it as it is, or delete it first.",
            event_code=EXISTS_OTHERWISE,
        )


def _is_left_open(name: str, *declared: QueueDeclared | ExchangeDeclared) -> bool:
    """Whether nobody says when senders wait: it came with the word for what a full queue does, or
    is not said at all.
    """
    return name in (FLOW_STOP_COUNT, FLOW_STOP_SIZE) and all(
        isinstance(one, QueueDeclared) and (name in one.implied or name not in one.arguments)
        for one in declared
    )


def _shown(value: object) -> str:
    return (
        {True: "yes", False: "no"}[value]
        if isinstance(value, bool)
        else "none"
        if value in (None, "")
        else str(value)
    )
