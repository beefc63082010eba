"""Dead letters: where a message goes that died on its queue, and what is written on it then.

A message dies when a consumer rejects it, its time is over, it has to make room, or it was
delivered too often. A queue with `x-dead-letter-exchange` has a `DeadLetterTarget`: the message is
published there, with annotations that say where and why it died, and leaves its queue in the same
batch of the log (`departures.py`). What the annotations say is a function of the message and of the
death, so a dead letter may die again, on any broker.

| annotation | says |
|---|---|
| `x-opt-deaths` | one map for each (queue, reason), the last death first |
| `x-first-death-queue`, `-reason`, `-exchange` | the first death; they never change |
| `x-last-death-queue`, `-reason`, `-exchange` | the last one |
| `x-exchange`, `x-routing-key` | where the dead letter was sent, for its next death |

A client may send a message with such annotations: one that it got and sends again, or a forgery.
They count only where the message has the mark `MARK` among its delivery annotations. No client can
set that, as what comes from a client loses its delivery annotations (`message_view.arrival`), and
no outcome changes what is written with it. A dead letter that is sent back (`requeue.py`) loses it
as well.

Knows nothing of exchanges and of who has room. Source: RabbitMQ's guide to dead letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from qpidha.broker.queues.arguments import check_key, check_name, fits_key
from qpidha.model.duration import MILLISECOND
from qpidha.model.encoding import Array, Described, Symbol, Timestamp, UInt, ULong, encode
from qpidha.model.errors import InvalidArgument, PreconditionFailed, ProtocolViolation
from qpidha.model.message_view import (
    CC,
    DELIVERY_ANNOTATIONS,
    LARGEST,
    MESSAGE_ANNOTATIONS,
    MOST_COPIES,
    delivery_annotations,
    departure,
    header,
    message_annotations,
    properties,
)
from qpidha.model.percent import decode_part
from qpidha.model.records import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qpidha.model.message import Message

DEAD_LETTER_EXCHANGE = "x-dead-letter-exchange"
DEAD_LETTER_KEY = "x-dead-letter-routing-key"
DEAD_LETTER_STRATEGY = "x-dead-letter-strategy"
DEAD_LETTER_ON_DELETE = "qpidha.dead-letter-on-delete"
AT_LEAST_ONCE, AT_MOST_ONCE = "at-least-once", "at-most-once"
REASONS = {
    Cause.REJECTED: "rejected",
    Cause.EXPIRED: "expired",
    Cause.OVERFLOW: "maxlen",
    Cause.DELIVERY_LIMIT: "delivery_limit",
    Cause.DELETED: "queue-deleted",
    Cause.UNDELIVERABLE: "undeliverable",
}
"""Why a message died, as its dead letter says it."""
BY_CONSUMER = frozenset((Cause.REJECTED, Cause.UNDELIVERABLE))
"""With these somebody has looked at the message: it may come back."""
DECISIONS = frozenset(REASONS[cause] for cause in BY_CONSUMER)
DEATHS = "x-opt-deaths"
FIRST, LAST = "x-first-death-", "x-last-death-"
FROM_EXCHANGE, FROM_KEY = "x-exchange", "x-routing-key"
MARK = "x-opt-qpidha-dead-letter"
"""The delivery annotation of a message whose deaths were written by a broker."""
_MARK_SECTION = encode(Described(ULong(DELIVERY_ANNOTATIONS), {Symbol(MARK): True}))
_NO_MARK_SECTION = encode(Described(ULong(DELIVERY_ANNOTATIONS), {}))
MOST_DEATHS = 50
"""Pairs of queue and reason that a message remembers; the oldest are forgotten."""
MAP, TEXT = 0xD1, 0xB1
"""Format codes of the elements of arrays."""
QUEUE_ADDRESS, EXCHANGE_ADDRESS = "/queues/", "/exchanges/"


# -- where they go --------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class DeadLetterTarget:
    """Where messages go that die on a queue."""

    exchange: str
    """The default exchange, which has each queue under its name, is the empty name."""
    key: str | None
    """None: each goes with the key that it has itself."""
    keeps: bool = True
    """Whether one stays that has no place there yet: `at-least-once`. Else it is dropped."""
    on_delete: bool = False
    """Whether what is on the queue when it is deleted goes there as well."""


def read_dead_letters(arguments: Mapping[str, Any]) -> DeadLetterTarget | None:
    """Return the target in `arguments`, which have been checked; None if there is none."""
    if DEAD_LETTER_EXCHANGE not in arguments:
        return None
    exchange, key = _node(str(arguments[DEAD_LETTER_EXCHANGE]))
    if DEAD_LETTER_KEY in arguments:
        key = str(arguments[DEAD_LETTER_KEY])
    return DeadLetterTarget(
        exchange,
        key,
        keeps=arguments.get(DEAD_LETTER_STRATEGY) != AT_MOST_ONCE,
        on_delete=bool(arguments.get(DEAD_LETTER_ON_DELETE)),
    )


def key_in(exchange: str) -> str | None:
    """Return the key that a target names itself, as an address may; None if it names none."""
    return _node(exchange)[1]


def _node(text: str) -> tuple[str, str | None]:
    """Return the exchange and the key that the name of an exchange, or an address, means."""
    if text.startswith(QUEUE_ADDRESS):
        return "", decode_part(text[len(QUEUE_ADDRESS) :])
    if text.startswith(EXCHANGE_ADDRESS):
        name, slash, key = text[len(EXCHANGE_ADDRESS) :].partition("/")
        return decode_part(name), decode_part(key) if slash else None
    return text, None


def check_dead_letters(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a target that cannot be one."""
    if DEAD_LETTER_EXCHANGE not in arguments:
        for name in (DEAD_LETTER_KEY, DEAD_LETTER_STRATEGY, DEAD_LETTER_ON_DELETE):
            if name in arguments:
                raise PreconditionFailed(
                    f"{name} is given without {DEAD_LETTER_EXCHANGE}",
                    reason="dead letters have nowhere to go",
                    hint=f"say with {DEAD_LETTER_EXCHANGE} where they go; the empty name is the "
                    "default exchange, /queues/NAME one queue",
                )
        return
    given = {name: arguments.get(name, "") for name in (DEAD_LETTER_EXCHANGE, DEAD_LETTER_KEY)}
    for name, value in given.items():
        if not isinstance(value, str):
            raise InvalidArgument(f"{name}={value!r} is no text", hint="give a name")
    exchange, key = _node(given[DEAD_LETTER_EXCHANGE])
    _check_address(given[DEAD_LETTER_EXCHANGE], exchange, key)
    check_name(f"name in {DEAD_LETTER_EXCHANGE}", exchange)
    if key is not None and DEAD_LETTER_KEY in arguments and key != given[DEAD_LETTER_KEY]:
        raise PreconditionFailed(
            f"{DEAD_LETTER_EXCHANGE}={given[DEAD_LETTER_EXCHANGE]} says where dead letters go, "
            f"and {DEAD_LETTER_KEY} says something else",
            hint="give one of them",
        )
    key = key or given[DEAD_LETTER_KEY]
    if exchange:
        check_key("key of dead letters", key)
    else:
        check_name("name of the queue of dead letters", key)
    strategy = arguments.get(DEAD_LETTER_STRATEGY, AT_LEAST_ONCE)
    if strategy not in (AT_LEAST_ONCE, AT_MOST_ONCE):
        raise InvalidArgument(
            f"{DEAD_LETTER_STRATEGY}={strategy!r} is not known",
            hint=f"Use {AT_LEAST_ONCE} or {AT_MOST_ONCE}.",
        )


def _check_address(text: str, exchange: str, key: str | None) -> None:
    """Raise InvalidArgument for what looks like an address and leads nowhere."""
    if not text.startswith("/"):
        return
    if text.startswith(QUEUE_ADDRESS) and key:
        return
    if text.startswith(EXCHANGE_ADDRESS) and exchange:
        return
    raise InvalidArgument(
        f"{DEAD_LETTER_EXCHANGE}={text[:40]} is no address of a queue or an exchange",
        hint=f"{QUEUE_ADDRESS}NAME, {EXCHANGE_ADDRESS}NAME or {EXCHANGE_ADDRESS}NAME/KEY, with a "
        "slash in a name as %2F; the default exchange is the empty name",
    )


# -- what is written on them ----------------------------------------------------------------------


class DeadLetter(NamedTuple):
    """A message that died, as it is sent on."""

    payload: bytes
    key: str
    barred: frozenset[str]
    """The queues that it must not go to: it would come back to them for ever, as nobody rejected it
    on the way.
    """
    copies: tuple[str, ...] = ()
    """Keys that it has beside its own: those that its sender named in `x-cc`."""


def is_of_deaths(name: str) -> bool:
    """Whether a message annotation of this name is for brokers alone to write: it says on which
    queue a message died, so where it is sent back to.
    """
    return name in (DEATHS, FROM_EXCHANGE, FROM_KEY) or name.startswith((FIRST, LAST))


def dead_letter(
    message: Message, queue: str, cause: Cause, target: DeadLetterTarget, now: int
) -> DeadLetter:
    """Make the dead letter of a message that dies on `queue` at `now`, ns since the Unix epoch. One
    that cannot be read goes as it is.
    """
    payload = message.body()
    try:
        written = message_annotations(message.annotations or payload)
        is_ours = MARK in delivery_annotations(payload)
        fields = header(payload)
        key = _text(written.get(FROM_KEY)) or _text(properties(payload).get("subject")) or queue
        deaths = _deaths(written.get(DEATHS)) if is_ours else []
        exchange = _text(written.get(FROM_EXCHANGE))
        reason = REASONS[cause]
        deaths = _with_death(deaths, queue, reason, exchange, key, fields.get("ttl"), now)
        if not is_ours:
            for name in [name for name in written if str(name).startswith(FIRST)]:
                del written[name]
        last = {"queue": queue, "reason": Symbol(reason), "exchange": exchange}
        for name, value in last.items():
            written.setdefault(Symbol(FIRST + name), value)
            written[Symbol(LAST + name)] = value
        copies: tuple[str, ...] = ()
        if target.key is not None:
            key = target.key
            written.pop(Symbol(CC), None)  # They would count at its next death.
        elif isinstance(written.get(CC), list):
            copies = tuple(one for one in written[CC] if isinstance(one, str) and fits_key(one))
        written[Symbol(DEATHS)] = Array(MAP, deaths)
        written[Symbol(FROM_EXCHANGE)], written[Symbol(FROM_KEY)] = target.exchange, key
        sent = departure(
            payload,
            message.delivery_count + (cause is Cause.REJECTED),
            encode(Described(ULong(MESSAGE_ANNOTATIONS), written)),
            acquired_before=message.released > 0 or message.acquired,
            delivery_annotations=_MARK_SECTION,
            has_ttl=False,
        )
    except ProtocolViolation:
        key = queue if target.key is None else target.key
        barred: frozenset[str] = frozenset() if cause in BY_CONSUMER else frozenset((queue,))
        return DeadLetter(payload, key, barred)
    return DeadLetter(sent, key, _barred(deaths), copies[:MOST_COPIES])


def sent_back(message: Message, here: str) -> tuple[str, bytes] | None:
    """Return the queue on which a message died that is `here` now, and the message as it goes back
    there; None if it does not say. Its deaths are still written on it, but count no more: somebody
    has decided that it is to have another try.
    """
    payload = message.body()
    try:
        if MARK not in delivery_annotations(payload):
            return None
        written = message_annotations(message.annotations or payload)
        deaths = _deaths(written.get(DEATHS))
        death = next((one for one in deaths if _text(one.get("queue")) not in ("", here)), None)
        if death is None:
            return None
        keys = death.get("routing-keys")
        key = keys.items[0] if isinstance(keys, Array) and keys.items else ""
        written[Symbol(FROM_EXCHANGE)] = _text(death.get("exchange"))
        written[Symbol(FROM_KEY)] = _text(key)
        sent = departure(
            payload,
            0,
            encode(Described(ULong(MESSAGE_ANNOTATIONS), written)),
            delivery_annotations=_NO_MARK_SECTION,
        )
    except ProtocolViolation:
        return None
    return str(death["queue"]), sent


def _deaths(found: Any) -> list[dict[Any, Any]]:
    """Return the deaths that a message remembers."""
    items = found.items if isinstance(found, Array) else []
    return [item for item in items if isinstance(item, dict)]


def _with_death(
    deaths: list[dict[Any, Any]],
    queue: str,
    reason: str,
    exchange: str,
    key: str,
    ttl: object,
    now: int,
) -> list[dict[Any, Any]]:
    """Return the deaths with one more, which is the first; it is counted with those of its queue
    and reason.
    """
    when = Timestamp(now // MILLISECOND)
    former = next(
        (one for one in deaths if (one.get("queue"), one.get("reason")) == (queue, reason)), {}
    )
    count = former.get("count")
    death: dict[Any, Any] = {
        Symbol("queue"): queue,
        Symbol("reason"): Symbol(reason),
        Symbol("count"): ULong(min(count if isinstance(count, int) else 0, 2**63) + 1),
        Symbol("first-time"): Timestamp(former.get("first-time", when)),
        Symbol("last-time"): when,
        Symbol("exchange"): exchange,
        Symbol("routing-keys"): Array(TEXT, [key]),
    }
    # Clients write their headers themselves, and some number that is no time to live may be there.
    if isinstance(ttl, int) and 0 <= ttl <= LARGEST["ttl"]:
        death[Symbol("ttl")] = UInt(ttl)
    return [death, *(one for one in deaths if one is not former)][:MOST_DEATHS]


def _barred(deaths: list[dict[Any, Any]]) -> frozenset[str]:
    """Return the queues that a message died on since a consumer last decided about it."""
    barred = []
    for death in deaths:
        if death.get("reason") in DECISIONS:
            break
        barred.append(str(death.get("queue")))
    return frozenset(barred)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
