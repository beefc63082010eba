"""Engine values: proton's structures (maps, termini, error conditions, outcomes) read into ours and
written from them.

The engine and the owners of links use it; it keeps nothing. A value that a peer made up badly is a
ProtocolViolation, or is read as far as it makes sense.
Source: proton 0.40, proton/codec.h, proton/terminus.h, proton/disposition.h.
"""

from __future__ import annotations

from typing import Any

from cproton_ffi import ffi, lib

from qpidha.amqp.peer.terminus import (
    COORDINATOR,
    MODIFIED,
    NONE,
    REJECTED,
    SOURCE,
    TARGET,
    Outcome,
    PeerError,
    Pointer,
    Terminus,
)
from qpidha.amqp.peer.transaction_wire import describe_error, read_outcome
from qpidha.model.encoding import Array, Described, Symbol, decode, encode
from qpidha.model.errors import ProtocolViolation, QpidHaError

BESIDE_ERROR = 100
"""Bytes that a frame with an error has at most beside it."""
ROOMY = 1 << 17
"""More than any error has."""
EXPIRY = {
    "link-detach": lib.PN_EXPIRE_WITH_LINK,
    "session-end": lib.PN_EXPIRE_WITH_SESSION,
    "connection-close": lib.PN_EXPIRE_WITH_CONNECTION,
    "never": lib.PN_EXPIRE_NEVER,
}
DISTRIBUTION = {
    "": lib.PN_DIST_MODE_UNSPECIFIED,
    "copy": lib.PN_DIST_MODE_COPY,
    "move": lib.PN_DIST_MODE_MOVE,
}
TERMINI = {
    0x28: SOURCE,
    0x29: TARGET,
    0x30: COORDINATOR,
    "amqp:source:list": SOURCE,
    "amqp:target:list": TARGET,
    "amqp:coordinator:list": COORDINATOR,
}


def symbols(names: tuple[str, ...] | list[str]) -> Array:
    """Make an array of symbols."""
    return Array(0xA3, [Symbol(name) for name in names])


def read_text(pointer: Pointer) -> str | None:
    """Read a C string; a peer's faulty UTF-8 must not stop us."""
    return ffi.string(pointer).decode(errors="replace") if pointer else None


def read_data(data: Pointer) -> Any:
    """Read what a pn_data_t holds, None if nothing, or what it cannot hold: see `write_data`."""
    size = lib.pn_data_encoded_size(data) if data else 0
    if size <= 0:
        return None
    buffer = ffi.new("char[]", size)
    written = lib.pn_data_encode(data, buffer, size)
    try:
        return decode(bytes(ffi.unpack(buffer, max(written, 0))))[0]
    except ProtocolViolation:
        return None


def read_symbols(data: Pointer) -> list[str]:
    """Read one symbol or an array of them."""
    return _names(read_data(data))


def write_data(data: Pointer, value: Any) -> None:
    """Put one value into a pn_data_t, or nothing if it holds described values that are described
    again: what the engine makes of those cannot be read.
    """
    lib.pn_data_clear(data)
    if not _is_twice_described(value):
        raw = encode(value)
        lib.pn_data_decode(data, raw, len(raw))


def _is_twice_described(value: Any) -> bool:
    if isinstance(value, Described):
        parts = (value.descriptor, value.value)
        return any(isinstance(part, Described) or _is_twice_described(part) for part in parts)
    if isinstance(value, dict):
        return any(_is_twice_described(part) for part in value.values())
    return isinstance(value, list) and any(_is_twice_described(part) for part in value)


def write_fields(data: Pointer, values: dict[Any, Any]) -> None:
    """Put a map into a pn_data_t whose keys are symbols, as those of all maps of a performative
    are.
    """
    write_data(
        data, {Symbol(key) if isinstance(key, str) else key: item for key, item in values.items()}
    )


def read_condition(condition: Pointer) -> PeerError | None:
    """Read an error condition, None if there is none."""
    if not condition or not lib.pn_condition_is_set(condition):
        return None
    info = read_data(lib.pn_condition_info(condition))
    description = read_text(lib.pn_condition_get_description(condition)) or ""
    return PeerError(
        read_text(lib.pn_condition_get_name(condition)) or "",
        description,
        info if isinstance(info, dict) else {},
    )


def fitted(error: QpidHaError | PeerError, connection: Pointer) -> PeerError:
    """Make of an error what fits into one frame of the peer's: with small ones it has no event
    code, no hint, or no reason either, or less text.
    """
    if isinstance(error, QpidHaError):
        error = PeerError.of(error)
    transport = lib.pn_connection_transport(connection)
    room = int(lib.pn_transport_get_remote_max_frame(transport)) - BESIDE_ERROR
    if room > ROOMY:
        return error
    for name in ("", "event_code", "hint", "reason"):
        info = {key: value for key, value in error.info.items() if key != name}
        error = PeerError(error.condition, error.description, info)
        over = len(encode(describe_error(error))) - room
        if over <= 0:
            return error
    text = error.description.encode()
    left = text[: max(len(text) - over - 3, 0)].decode(errors="ignore")
    return PeerError(error.condition, f"{left}...", error.info)


def connection_of(delivery: Pointer) -> Pointer:
    """Return the connection that a delivery is on."""
    return lib.pn_session_connection(lib.pn_link_session(lib.pn_delivery_link(delivery)))


def write_condition(
    condition: Pointer, error: QpidHaError | PeerError, connection: Pointer
) -> None:
    """Set an error condition: the description is the text alone, the info map has reason and
    hint.
    """
    error = fitted(error, connection)
    lib.pn_condition_set_name(condition, error.condition.encode())
    lib.pn_condition_set_description(condition, error.description.encode())
    if error.info:
        write_fields(lib.pn_condition_info(condition), error.info)


def _names(found: Any) -> list[str]:
    """Read an array of symbols, or one symbol alone."""
    if isinstance(found, str):
        return [str(found)]
    items = found.items if isinstance(found, Array) else found if isinstance(found, list) else []
    return [str(item) for item in items if isinstance(item, str)]


def read_terminus(found: Any) -> Terminus:
    """Read a source, a target or a coordinator, as it was decoded. None is a null one."""
    kind = TERMINI.get(found.descriptor, NONE) if isinstance(found, Described) else NONE
    given = [*found.value, *[None] * 11] if kind != NONE else []
    if kind == NONE:
        return Terminus()
    if kind == COORDINATOR:
        return Terminus(COORDINATOR, capabilities=_names(given[0]))
    terminus = Terminus(
        kind,
        given[0],
        durability=int(given[1] or 0),
        expiry=str(given[2] or "session-end"),
        timeout=int(given[3] or 0),
        dynamic=given[4] is True,
        properties=given[5] or {},
    )
    if kind == TARGET:
        terminus.capabilities = _names(given[6])
        return terminus
    terminus.distribution = str(given[6] or "")
    terminus.filter = given[7] or {}
    if given[8] is not None:
        terminus.default_outcome = read_outcome(given[8]) or Outcome(0)
    terminus.outcomes, terminus.capabilities = _names(given[9]), _names(given[10])
    return terminus


def write_terminus(pointer: Pointer, terminus: Terminus) -> None:
    """Describe a source or target to the peer."""
    lib.pn_terminus_set_type(pointer, terminus.kind)
    if terminus.kind == COORDINATOR and terminus.capabilities:
        write_data(lib.pn_terminus_capabilities(pointer), symbols(terminus.capabilities))
    if terminus.kind in (NONE, COORDINATOR):
        return
    if terminus.address is not None:
        lib.pn_terminus_set_address(pointer, terminus.address.encode())
    lib.pn_terminus_set_dynamic(pointer, terminus.dynamic)
    lib.pn_terminus_set_durability(pointer, terminus.durability)
    lib.pn_terminus_set_expiry_policy(
        pointer, EXPIRY.get(terminus.expiry, lib.PN_EXPIRE_WITH_SESSION)
    )
    lib.pn_terminus_set_timeout(pointer, terminus.timeout)
    lib.pn_terminus_set_distribution_mode(pointer, DISTRIBUTION.get(terminus.distribution, 0))
    if terminus.properties:
        write_fields(lib.pn_terminus_properties(pointer), terminus.properties)
    if terminus.capabilities:
        write_data(lib.pn_terminus_capabilities(pointer), symbols(terminus.capabilities))
    if terminus.filter:
        write_fields(lib.pn_terminus_filter(pointer), terminus.filter)
    if terminus.outcomes:
        write_data(lib.pn_terminus_outcomes(pointer), symbols(terminus.outcomes))


def reject(delivery: Pointer, error: QpidHaError) -> None:
    """Give a delivery the outcome rejected and settle it."""
    condition = lib.pn_disposition_condition(lib.pn_delivery_local(delivery))
    write_condition(condition, error, connection_of(delivery))
    lib.pn_delivery_update(delivery, REJECTED)
    lib.pn_delivery_settle(delivery)


def give(delivery: Pointer, outcome: Outcome) -> None:
    """Give a delivery an outcome, with all its particulars; it is settled apart."""
    local = lib.pn_delivery_local(delivery)
    if outcome.state == MODIFIED:
        lib.pn_disposition_set_failed(local, outcome.failed)
        lib.pn_disposition_set_undeliverable(local, outcome.undeliverable)
        if outcome.annotations:
            write_fields(lib.pn_disposition_annotations(local), outcome.annotations)
    elif outcome.state == REJECTED and outcome.error is not None:
        condition = lib.pn_disposition_condition(local)
        write_condition(condition, outcome.error, connection_of(delivery))
    lib.pn_delivery_update(delivery, outcome.state)


def set_state(delivery: Pointer, code: int, fields: list[Any]) -> None:
    """Give a delivery a state that the engine has no words for."""
    write_data(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), fields)
    lib.pn_delivery_update(delivery, code)


def remote_fields(delivery: Pointer) -> Any:
    """Read the fields of a state that the engine has no words for, as the peer gave them."""
    return read_data(lib.pn_disposition_data(lib.pn_delivery_remote(delivery)))


def remote_outcome(delivery: Pointer) -> Outcome:
    """Read the outcome the peer gave a delivery, with all its particulars."""
    remote = lib.pn_delivery_remote(delivery)
    outcome = Outcome(int(lib.pn_delivery_remote_state(delivery)))
    if outcome.state == REJECTED:
        outcome.error = read_condition(lib.pn_disposition_condition(remote))
    elif outcome.state == MODIFIED:
        outcome.failed = bool(lib.pn_disposition_is_failed(remote))
        outcome.undeliverable = bool(lib.pn_disposition_is_undeliverable(remote))
        annotations = read_data(lib.pn_disposition_annotations(remote))
        outcome.annotations = annotations if isinstance(annotations, dict) else {}
    return outcome
