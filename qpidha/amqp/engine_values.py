"""Engine values: proton's structures (maps, termini, error conditions, outcomes) read into ours and written from them.

The engine and the owners of links use it; it keeps nothing. A value that a peer made up badly is a
ProtocolViolation, or is read as far as it makes sense.
Source: proton 0.40, proton/codec.h, proton/terminus.h, proton/disposition.h.
"""

from __future__ import annotations

from typing import Any

from cproton_ffi import ffi, lib

from qpidha.amqp.terminus import COORDINATOR, MODIFIED, NONE, REJECTED, Outcome, PeerError, Pointer, Terminus
from qpidha.words.encoding import Array, Symbol, decode, encode
from qpidha.words.errors import ProtocolViolation, QpidHaError

EXPIRY = {
    "link-detach": lib.PN_EXPIRE_WITH_LINK,
    "session-end": lib.PN_EXPIRE_WITH_SESSION,
    "connection-close": lib.PN_EXPIRE_WITH_CONNECTION,
    "never": lib.PN_EXPIRE_NEVER,
}
EXPIRY_NAMES = {value: name for name, value in EXPIRY.items()}
DISTRIBUTION = {"": lib.PN_DIST_MODE_UNSPECIFIED, "copy": lib.PN_DIST_MODE_COPY, "move": lib.PN_DIST_MODE_MOVE}
DISTRIBUTION_NAMES = {value: name for name, value in DISTRIBUTION.items()}


def symbols(names: tuple[str, ...] | list[str]) -> Array:
    """Make an array of symbols."""
    return Array(0xA3, [Symbol(name) for name in names])


def read_text(pointer: Pointer) -> str | None:
    """Read a C string; a peer's faulty UTF-8 must not stop us."""
    return ffi.string(pointer).decode(errors="replace") if pointer else None


def read_data(data: Pointer) -> Any:
    """Read what a pn_data_t holds, None if nothing."""
    size = lib.pn_data_encoded_size(data) if data else 0
    if size <= 0:
        return None
    buffer = ffi.new("char[]", size)
    written = lib.pn_data_encode(data, buffer, size)
    if written < 0:
        raise ProtocolViolation("a map or list of the peer cannot be read")
    return decode(bytes(ffi.unpack(buffer, written)))[0]


def write_data(data: Pointer, value: Any) -> None:
    """Put one value into a pn_data_t."""
    raw = encode(value)
    lib.pn_data_clear(data)
    lib.pn_data_decode(data, raw, len(raw))


def read_condition(condition: Pointer) -> PeerError | None:
    """Read an error condition, None if there is none."""
    if not condition or not lib.pn_condition_is_set(condition):
        return None
    info = read_data(lib.pn_condition_info(condition))
    description = read_text(lib.pn_condition_get_description(condition)) or ""
    return PeerError(read_text(lib.pn_condition_get_name(condition)) or "", description, info if isinstance(info, dict) else {})


def write_condition(condition: Pointer, error: QpidHaError | PeerError) -> None:
    """Set an error condition."""
    text = error.description if isinstance(error, PeerError) else error.text
    if isinstance(error, QpidHaError) and error.hint:
        text = f"{text.rstrip('.')}. {error.hint[0].upper()}{error.hint[1:]}"
    lib.pn_condition_set_name(condition, error.condition.encode())
    lib.pn_condition_set_description(condition, text.encode())
    if error.info:
        write_data(lib.pn_condition_info(condition), {Symbol(key): value for key, value in error.info.items()})


def _names(found: Any) -> list[str]:
    """Read an array of symbols, or one symbol alone."""
    if isinstance(found, str):
        return [str(found)]
    items = found.items if isinstance(found, Array) else found if isinstance(found, list) else []
    return [str(item) for item in items if isinstance(item, str)]


def read_terminus(pointer: Pointer) -> Terminus:
    """Read a source or target."""
    kind = int(lib.pn_terminus_get_type(pointer))
    if kind == NONE:
        return Terminus()
    properties, filters = read_data(lib.pn_terminus_properties(pointer)), read_data(lib.pn_terminus_filter(pointer))
    return Terminus(
        kind,
        read_text(lib.pn_terminus_get_address(pointer)),
        dynamic=bool(lib.pn_terminus_is_dynamic(pointer)),
        durability=int(lib.pn_terminus_get_durability(pointer)),
        expiry=EXPIRY_NAMES.get(lib.pn_terminus_get_expiry_policy(pointer), "session-end"),
        timeout=int(lib.pn_terminus_get_timeout(pointer)),
        distribution=DISTRIBUTION_NAMES.get(lib.pn_terminus_get_distribution_mode(pointer), ""),
        properties=properties if isinstance(properties, dict) else {},
        capabilities=_names(read_data(lib.pn_terminus_capabilities(pointer))),
        filter=filters if isinstance(filters, dict) else {},
        outcomes=_names(read_data(lib.pn_terminus_outcomes(pointer))),
    )


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
    lib.pn_terminus_set_expiry_policy(pointer, EXPIRY.get(terminus.expiry, lib.PN_EXPIRE_WITH_SESSION))
    lib.pn_terminus_set_timeout(pointer, terminus.timeout)
    lib.pn_terminus_set_distribution_mode(pointer, DISTRIBUTION.get(terminus.distribution, 0))
    if terminus.properties:
        write_data(lib.pn_terminus_properties(pointer), terminus.properties)
    if terminus.capabilities:
        write_data(lib.pn_terminus_capabilities(pointer), symbols(terminus.capabilities))
    if terminus.filter:
        write_data(lib.pn_terminus_filter(pointer), terminus.filter)
    if terminus.outcomes:
        write_data(lib.pn_terminus_outcomes(pointer), symbols(terminus.outcomes))


def reject(delivery: Pointer, error: QpidHaError) -> None:
    """Give a delivery the outcome rejected and settle it."""
    write_condition(lib.pn_disposition_condition(lib.pn_delivery_local(delivery)), error)
    lib.pn_delivery_update(delivery, REJECTED)
    lib.pn_delivery_settle(delivery)


def modify(delivery: Pointer, outcome: Outcome) -> None:
    """Give a delivery the outcome modified and settle it."""
    local = lib.pn_delivery_local(delivery)
    lib.pn_disposition_set_failed(local, outcome.failed)
    lib.pn_disposition_set_undeliverable(local, outcome.undeliverable)
    if outcome.annotations:
        write_data(lib.pn_disposition_annotations(local), outcome.annotations)
    lib.pn_delivery_update(delivery, MODIFIED)
    lib.pn_delivery_settle(delivery)


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
