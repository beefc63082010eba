"""Transactions on the wire: what a controller asks of a coordinator, and delivery states that
belong to a transaction.

Values in, values out; the engine's own structures are the concern of values.
Source: AMQP 1.0 section 4.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qpidha.amqp.peer.terminus import (
    ACCEPTED,
    MODIFIED,
    OUTCOME_NAMES,
    REJECTED,
    Outcome,
    PeerError,
)
from qpidha.model.encoding import Described, Symbol, ULong
from qpidha.model.errors import InvalidArgument, NotImplementedHere, ProtocolViolation
from qpidha.model.message_view import body, build

DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL = 0x31, 0x32, 0x33, 0x34
ERROR = 0x1D
CAPABILITIES = ("amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn")
"""What our coordinators can do. There is no word for transactional acquisition: proton's engine
passes over the properties of a flow, and writes none (docs/conformance.md, 4.4.3).
"""
CONTROLS = {
    DECLARE: DECLARE,
    DISCHARGE: DISCHARGE,
    "amqp:declare:list": DECLARE,
    "amqp:discharge:list": DISCHARGE,
}
OUTCOMES: dict[int | str, int] = {
    **{code: code for code in OUTCOME_NAMES},
    **{name: code for code, name in OUTCOME_NAMES.items()},
}


@dataclass(slots=True)
class Declare:
    """Begin a transaction."""


@dataclass(slots=True)
class Discharge:
    """End a transaction: commit it, or roll it back if it failed."""

    transaction_id: bytes
    failed: bool


def read_control(payload: bytes) -> Declare | Discharge:
    """Read a message to a coordinator; raise what refuses it."""
    try:
        found = body(payload)
    except ProtocolViolation as error:
        raise InvalidArgument(f"a message to a coordinator cannot be read: {error.text}") from None
    kind = _kind(CONTROLS, found)
    fields = found.value if isinstance(found, Described) and isinstance(found.value, list) else []
    if kind == DECLARE:
        if fields and fields[0] is not None:
            raise NotImplementedHere(
                "this broker offers no distributed transactions", hint="declare without a global-id"
            )
        return Declare()
    if kind == DISCHARGE:
        if not fields or not isinstance(fields[0], bytes):
            raise InvalidArgument("a discharge must name its transaction by a binary txn-id")
        failed = fields[1] if len(fields) > 1 else None
        if len(fields) > 2 or not isinstance(failed, bool | None):
            raise InvalidArgument(
                "a discharge is not a txn-id and whether it failed",
                hint="leave fail out, or set it to true or false",
            )
        return Discharge(fields[0], failed is True)
    raise InvalidArgument(
        "a coordinator takes declare and discharge, and nothing else",
        hint="send one of them as an amqp-value",
    )


def read_state(fields: Any) -> tuple[bytes, Outcome | None]:
    """Read a transactional state: the transaction's id (empty if there is none) and the outcome
    that is to apply.
    """
    values = fields if isinstance(fields, list) else []
    transaction_id = values[0] if values and isinstance(values[0], bytes) else b""
    return transaction_id, read_outcome(values[1]) if len(values) > 1 else None


def read_outcome(found: Any) -> Outcome | None:
    """Read an outcome, None if it is nothing known."""
    state = _kind(OUTCOMES, found)
    if not state:
        return None
    fields = found.value if isinstance(found.value, list) else []
    outcome = Outcome(state)
    if state == MODIFIED:
        values = [*fields, None, None, None][:3]
        outcome.failed, outcome.undeliverable = values[0] is True, values[1] is True
        outcome.annotations = values[2] if isinstance(values[2], dict) else {}
    elif (
        state == REJECTED
        and fields
        and isinstance(fields[0], Described)
        and isinstance(fields[0].value, list)
    ):
        condition, description, info = [*fields[0].value, None, None, None][:3]
        if isinstance(condition, str):
            text = description if isinstance(description, str) else ""
            outcome.error = PeerError(str(condition), text, info if isinstance(info, dict) else {})
    return outcome


def _kind(known: dict[Any, int], found: Any) -> int:
    """Tell what a described value is, 0 if it is nothing known."""
    descriptor = getattr(found, "descriptor", None)
    return known.get(descriptor, 0) if isinstance(descriptor, int | str) else 0


def accepted(transaction_id: bytes) -> list[Any]:
    """Make the state of a message that will be accepted with its transaction."""
    return [transaction_id, Described(ULong(ACCEPTED), [])]


def rejected(transaction_id: bytes, error: PeerError) -> list[Any]:
    """Make the state of a message that cannot be accepted."""
    return [transaction_id, Described(ULong(REJECTED), [describe_error(error)])]


def describe_error(error: PeerError) -> Described:
    """Make the composite of an error."""
    info = {Symbol(key): value for key, value in error.info.items()}
    return Described(ULong(ERROR), [Symbol(error.condition), error.description, info or None])


def declare() -> bytes:
    """Make the message that begins a transaction."""
    return build(Described(ULong(DECLARE), []))


def discharge(transaction_id: bytes, *, failed: bool) -> bytes:
    """Make the message that ends a transaction: a commit, or a rollback if it `failed`."""
    return build(Described(ULong(DISCHARGE), [transaction_id, failed]))


def enlisted(transaction_id: bytes, outcome: Outcome | None = None) -> list[Any]:
    """Make the state of a delivery in a transaction: of a message that is posted, or of one that
    is to have an outcome.
    """
    if outcome is None:
        return [transaction_id]
    fields: list[Any] = []
    if outcome.state == MODIFIED:
        annotations = {
            Symbol(key) if isinstance(key, str) else key: value
            for key, value in outcome.annotations.items()
        }
        fields = [outcome.failed, outcome.undeliverable, annotations or None]
    elif outcome.state == REJECTED and outcome.error is not None:
        fields = [describe_error(outcome.error)]
    return [transaction_id, Described(ULong(outcome.state), fields)]
