"""Engine: one AMQP connection in proton's C engine; with engine_values the only file that touches it.

Bytes go in, events come out as calls to the connection (opened, closed, attached) and to the owner of
each link (a delivery changed, credit came, it was detached); what the owners ask for leaves as bytes
when the connection fetches them. proton's own Python classes cost twenty times as much and are not used.
Every pointer of C lives in an Engine, a SessionEnd, a LinkEnd or is a delivery that a link's owner holds:
owners forget their deliveries when they are told that the link is gone, and nothing is freed while
events are handed out.
Must not know brokers, services or addresses. Source: proton 0.40, proton/engine.h and its neighbours.
"""

from __future__ import annotations

from typing import Any, Protocol

from cproton_ffi import ffi, lib

from qpidha.amqp.engine_values import (
    read_condition,
    read_data,
    read_terminus,
    read_text,
    symbols,
    write_condition,
    write_data,
    write_terminus,
)
from qpidha.amqp.terminus import MIXED, PeerError, Pointer, Terminus
from qpidha.words.encoding import Symbol
from qpidha.words.errors import MessageTooLarge, QpidHaError

BUFFER_SIZE = 65536
"""Bytes read or written in one call; larger messages get a buffer of their own."""
MAX_MILLISECONDS = 2**32 - 1
"""The longest silence that can be named: 49 days; who asks for more gets this."""
_buffer = ffi.new("char[]", BUFFER_SIZE)
# One tag is enough: the engine copies it. Tags only have to differ among the unsettled deliveries of one link.
_tag_bytes = ffi.new("uint32_t[1]")
_tag_holder = ffi.new("pn_bytes_t *")
_tag_holder.size = 4
_tag_holder.start = ffi.cast("char *", _tag_bytes)
_tag = _tag_holder[0]

_DELIVERY = lib.PN_DELIVERY

# Names of this module's own are found faster than attributes of another, and these are used for each message.
_peek, _pop, _event_type, _event_delivery = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type, lib.pn_event_delivery
_delivery_link, _pending = lib.pn_delivery_link, lib.pn_delivery_pending
_partial, _readable = lib.pn_delivery_partial, lib.pn_delivery_readable
_recv, _send, _advance, _deliver = lib.pn_link_recv, lib.pn_link_send, lib.pn_link_advance, lib.pn_delivery
_unpack = ffi.unpack

# Of a single delivery, for the owner of its link.
is_settled = lib.pn_delivery_settled
remote_state = lib.pn_delivery_remote_state
update = lib.pn_delivery_update
settle = lib.pn_delivery_settle


class LinkOwner(Protocol):
    """Who answers for one link."""

    def delivery_changed(self, delivery: Pointer) -> None:
        """Bytes, a state or settlement came for this delivery."""

    def flowed(self) -> None:
        """Credit or drain changed."""

    def detached(self, closed: bool, error: PeerError | None) -> None:
        """The peer ended the link. The end is still there and wants an answer."""

    def lost(self) -> None:
        """The session or connection ended; no delivery of this link may be touched any more."""


class EngineOwner(Protocol):
    """Who answers for the connection."""

    def peer_opened(self) -> None:
        """The peer's open came."""

    def peer_closed(self, error: PeerError | None) -> None:
        """The peer's close came, or the engine found its bytes to be faulty (then `error` is what we sent)."""

    def peer_attached(self, end: LinkEnd) -> None:
        """The peer attached a link of its own, or answered one of ours (which has an owner)."""


class SessionEnd:
    """Our end of a session."""

    __slots__ = ("blocked", "links", "pointer", "unacked", "unacked_bytes")

    def __init__(self, pointer: Pointer) -> None:
        self.pointer = pointer
        self.links: dict[Pointer, LinkEnd] = {}
        self.unacked = self.unacked_bytes = 0
        """Deliveries sent and not yet settled, over all links."""
        self.blocked: dict[Any, None] = {}
        """Owners of links that send nothing before deliveries are settled."""

    def backlog(self) -> int:
        """Count the bytes that wait for the peer's session window."""
        return int(lib.pn_session_outgoing_bytes(self.pointer))


class LinkEnd:
    """Our end of a link."""

    __slots__ = ("_at_once", "_chunks", "_next_tag", "_size", "engine", "is_sender", "limit", "name", "owner", "pointer", "session")

    def __init__(self, engine: Engine, session: SessionEnd, pointer: Pointer) -> None:
        self.engine = engine
        self.session = session
        self.pointer: Pointer | None = pointer
        self.name = read_text(lib.pn_link_name(pointer)) or ""
        self.is_sender: bool = lib.pn_link_is_sender(pointer)
        self.owner: LinkOwner | None = None
        self.limit = 0
        self._at_once = BUFFER_SIZE
        self._chunks: list[bytes] = []
        self._size = 0
        self._next_tag = 0

    def remote_source(self) -> Terminus:
        """Read the source the peer described."""
        return read_terminus(lib.pn_link_remote_source(self.pointer))

    def remote_target(self) -> Terminus:
        """Read the target the peer described."""
        return read_terminus(lib.pn_link_remote_target(self.pointer))

    def remote_properties(self) -> dict[Any, Any]:
        """Read the link properties the peer gave."""
        found = read_data(lib.pn_link_remote_properties(self.pointer))
        return found if isinstance(found, dict) else {}

    def remote_sender_mode(self) -> int:
        """Read the sender settle mode the peer asked for."""
        return int(lib.pn_link_remote_snd_settle_mode(self.pointer))

    def remote_max_message_size(self) -> int:
        """Read the largest message the peer takes; 0 is no limit."""
        return int(lib.pn_link_remote_max_message_size(self.pointer))

    def open(self, source: Terminus, target: Terminus, *, properties: dict[Any, Any] | None = None, mode: int = MIXED) -> None:
        """Send our attach."""
        pointer = self.pointer
        write_terminus(lib.pn_link_source(pointer), source)
        write_terminus(lib.pn_link_target(pointer), target)
        if properties:
            write_data(lib.pn_link_properties(pointer), properties)
        if self.limit and not self.is_sender:
            lib.pn_link_set_max_message_size(pointer, self.limit)
        lib.pn_link_set_snd_settle_mode(pointer, mode)
        lib.pn_link_open(pointer)

    def end(self, error: QpidHaError | None = None, *, closed: bool = True) -> None:
        """Send our detach; what the peer still sends is thrown away until it answers."""
        if self.pointer is None:
            return
        self.owner = None
        if error is not None:
            write_condition(lib.pn_link_condition(self.pointer), error)
        if closed:
            lib.pn_link_close(self.pointer)
        else:
            lib.pn_link_detach(self.pointer)
        if lib.pn_link_state(self.pointer) & lib.PN_REMOTE_CLOSED:
            self.engine.retire(self)

    # A sender's.

    def credit(self) -> int:
        """Tell how many deliveries the peer allows."""
        return int(lib.pn_link_credit(self.pointer))

    def is_draining(self) -> bool:
        """Tell whether the peer wants its credit used or given back."""
        return bool(lib.pn_link_get_drain(self.pointer))

    def drained(self) -> None:
        """Give back what credit is left."""
        lib.pn_link_drained(self.pointer)

    def send(self, payload: bytes) -> Pointer:
        """Send a message; give its delivery, which the peer will settle or give an outcome."""
        pointer = self.pointer
        self._next_tag = tag = (self._next_tag + 1) & 0xFFFFFFFF
        _tag_bytes[0] = tag
        delivery = _deliver(pointer, _tag)
        _send(pointer, payload, len(payload))
        _advance(pointer)
        return delivery

    def set_limit(self, limit: int) -> None:
        """Say how large a message may be that a receiver takes, in bytes; 0 is no limit. Before `open`."""
        self.limit = limit
        self._at_once = min(BUFFER_SIZE, limit) if limit else BUFFER_SIZE

    def flow(self, credit: int) -> None:
        """Allow the peer `credit` more deliveries."""
        lib.pn_link_flow(self.pointer, credit)

    def drain(self, credit: int) -> None:
        """Allow `credit` more deliveries and ask for what is left of it back at once."""
        lib.pn_link_drain(self.pointer, credit)

    def take(self, delivery: Pointer) -> bytes | None:
        """Take a message if this delivery has become one, else None; raise if it is larger than the limit."""
        if not _readable(delivery):
            return None
        size = _pending(delivery)
        if _partial(delivery) or self._size:
            return self._take_part(delivery, size)
        if size > self._at_once:
            return self._take_large(delivery, size)
        taken = _recv(self.pointer, _buffer, size)
        if taken < 0:
            return self._take_part(delivery, size)
        payload: bytes = _unpack(_buffer, taken)
        _advance(self.pointer)
        return payload

    def _take_large(self, delivery: Pointer, size: int) -> bytes | None:
        if self.limit and size > self.limit:
            raise MessageTooLarge(f"message of {size} bytes on link '{self.name}' is over max-message-size {self.limit}")
        buffer = ffi.new("char[]", size)
        taken = _recv(self.pointer, buffer, size)
        _advance(self.pointer)
        return bytes(_unpack(buffer, taken))

    def _take_part(self, delivery: Pointer, size: int) -> bytes | None:
        """Collect one piece of a message of several transfers."""
        if lib.pn_delivery_aborted(delivery):
            self._chunks, self._size = [], 0
            _advance(self.pointer)
            settle(delivery)
            return None
        if size:
            self._size += size
            if self.limit and self._size > self.limit:
                self._chunks, self._size = [], 0
                raise MessageTooLarge(f"message on link '{self.name}' has grown over max-message-size {self.limit}")
            buffer = ffi.new("char[]", size)
            taken = _recv(self.pointer, buffer, size)
            self._chunks.append(_unpack(buffer, taken))
        if _partial(delivery):
            return None
        payload = b"".join(self._chunks)
        self._chunks, self._size = [], 0
        _advance(self.pointer)
        return payload

    def discard(self, delivery: Pointer) -> None:
        """Throw away what came for a link that has ended."""
        if self.is_sender:
            if is_settled(delivery):
                settle(delivery)
            return
        if not _readable(delivery):
            return
        size = _pending(delivery)
        while size > 0:
            _recv(self.pointer, _buffer, min(size, BUFFER_SIZE))
            size -= BUFFER_SIZE
        if not _partial(delivery):
            _advance(self.pointer)
            settle(delivery)


class Engine:
    """One connection, after any security layer: it starts with the AMQP protocol header."""

    __slots__ = ("_collector", "_connection", "_links", "_sessions", "_transport", "owner")

    def __init__(self, owner: EngineOwner, *, is_server: bool, max_frame_size: int, channel_max: int) -> None:
        self.owner = owner
        self._links: dict[Pointer, LinkEnd] = {}
        self._sessions: dict[Pointer, SessionEnd] = {}
        self._transport = lib.pn_transport()
        self._connection: Pointer | None = lib.pn_connection()
        self._collector = lib.pn_collector()
        if is_server:
            lib.pn_transport_set_server(self._transport)
        lib.pn_transport_set_max_frame(self._transport, max_frame_size)
        lib.pn_transport_set_channel_max(self._transport, channel_max)
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_transport_bind(self._transport, self._connection)

    def free(self) -> None:
        """Give the memory back; every owner is told that its link is lost. Not to be called from an event."""
        if self._connection is None:
            return
        self.lose_all()
        lib.pn_transport_unbind(self._transport)
        lib.pn_collector_release(self._collector)
        lib.pn_connection_release(self._connection)
        lib.pn_decref(self._connection)
        lib.pn_decref(self._transport)
        lib.pn_collector_free(self._collector)
        self._connection = None

    def open(self, container_id: str, properties: dict[Any, Any], *, hostname: str = "", offered: tuple[str, ...] = ()) -> None:
        """Send our open."""
        lib.pn_connection_set_container(self._connection, container_id.encode())
        if hostname:
            lib.pn_connection_set_hostname(self._connection, hostname.encode())
        write_data(lib.pn_connection_properties(self._connection), {Symbol(key): value for key, value in properties.items()})
        if offered:
            write_data(lib.pn_connection_offered_capabilities(self._connection), symbols(offered))
        lib.pn_connection_open(self._connection)

    def close(self, error: QpidHaError | PeerError | None = None) -> None:
        """Send our close."""
        if error is not None:
            write_condition(lib.pn_connection_condition(self._connection), error)
        lib.pn_connection_close(self._connection)

    def remote_container(self) -> str:
        """Read the container id of the peer."""
        return read_text(lib.pn_connection_remote_container(self._connection)) or ""

    def remote_hostname(self) -> str:
        """Read the host name the peer connected to."""
        return read_text(lib.pn_connection_remote_hostname(self._connection)) or ""

    def remote_properties(self) -> dict[Any, Any]:
        """Read the connection properties of the peer."""
        found = read_data(lib.pn_connection_remote_properties(self._connection))
        return found if isinstance(found, dict) else {}

    def remote_idle_timeout(self) -> int:
        """Read how many milliseconds of silence the peer puts up with; 0 is for ever."""
        return int(lib.pn_transport_get_remote_idle_timeout(self._transport))

    def set_idle_timeout(self, milliseconds: int) -> None:
        """Set how much silence we put up with; the peer is told half of it, as the specification asks."""
        lib.pn_transport_set_idle_timeout(self._transport, min(milliseconds, MAX_MILLISECONDS))

    def tick(self, milliseconds: int) -> int:
        """Send a heartbeat or give up on the peer if it is time; give the time of the next tick, 0 for none."""
        return int(lib.pn_transport_tick(self._transport, milliseconds))

    def new_link(self, name: str, *, sender: bool, session: SessionEnd) -> LinkEnd:
        """Begin a link of our own; `LinkEnd.open` sends it."""
        make = lib.pn_sender if sender else lib.pn_receiver
        end = LinkEnd(self, session, make(session.pointer, name.encode()))
        self._links[end.pointer] = session.links[end.pointer] = end
        return end

    def new_session(self) -> SessionEnd:
        """Begin a session of our own."""
        session = SessionEnd(lib.pn_session(self._connection))
        self._sessions[session.pointer] = session
        lib.pn_session_open(session.pointer)
        return session

    def link_count(self) -> int:
        """Count the links there are."""
        return len(self._links)

    def retire(self, end: LinkEnd) -> None:
        """Let go of a link that both sides have ended."""
        pointer, end.pointer = end.pointer, None
        if pointer is not None:
            self._links.pop(pointer, None)
            end.session.links.pop(pointer, None)
            lib.pn_link_free(pointer)

    def push(self, data: bytes) -> None:
        """Take bytes from the peer and hand out the events they make."""
        transport, offset, size = self._transport, 0, len(data)
        view = ffi.from_buffer(data)
        while offset < size:
            taken = lib.pn_transport_push(transport, view + offset, size - offset)
            if taken <= 0:
                break
            offset += taken
            self.hand_out()
        self.hand_out()

    def pull(self) -> bytes:
        """Give every byte that can be sent now."""
        transport = self._transport
        size = lib.pn_transport_pending(transport)
        parts = []
        while size > 0:
            got = lib.pn_transport_peek(transport, _buffer, min(size, BUFFER_SIZE))
            parts.append(_unpack(_buffer, got))
            lib.pn_transport_pop(transport, got)
            size = lib.pn_transport_pending(transport)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def has_output(self) -> bool:
        """Tell whether there are bytes to send."""
        return bool(lib.pn_transport_pending(self._transport) > 0)

    def is_finished(self) -> bool:
        """Tell whether nothing more will ever be sent."""
        return bool(lib.pn_transport_pending(self._transport) < 0)

    def hand_out(self) -> None:
        """Tell the owners what has happened."""
        collector, links = self._collector, self._links
        event = _peek(collector)
        while event:
            try:
                kind = _event_type(event)
                if kind == _DELIVERY:
                    delivery = _event_delivery(event)
                    end = links.get(_delivery_link(delivery))
                    if end is not None:
                        if end.owner is not None:
                            end.owner.delivery_changed(delivery)
                        else:
                            end.discard(delivery)
                elif kind in _HANDLERS:
                    _HANDLERS[kind](self, event)
            finally:
                _pop(collector)
            event = _peek(collector)

    def _on_flow(self, event: Pointer) -> None:
        end = self._links.get(lib.pn_event_link(event))
        if end is not None and end.owner is not None:
            end.owner.flowed()

    def _on_open(self, event: Pointer) -> None:
        self.owner.peer_opened()

    def _on_close(self, event: Pointer) -> None:
        self.owner.peer_closed(read_condition(lib.pn_connection_remote_condition(self._connection)))

    def _on_transport_error(self, event: Pointer) -> None:
        self.owner.peer_closed(read_condition(lib.pn_transport_condition(self._transport)))

    def _on_session_open(self, event: Pointer) -> None:
        pointer = lib.pn_event_session(event)
        if pointer not in self._sessions:
            self._sessions[pointer] = SessionEnd(pointer)
            lib.pn_session_open(pointer)

    def _on_session_close(self, event: Pointer) -> None:
        pointer = lib.pn_event_session(event)
        session = self._sessions.pop(pointer, None)
        if session is None:
            return
        for end in list(session.links.values()):
            self._lose(end)
        lib.pn_session_close(pointer)
        lib.pn_session_free(pointer)

    def _on_attach(self, event: Pointer) -> None:
        pointer = lib.pn_event_link(event)
        end = self._links.get(pointer)
        if end is None:
            session = self._sessions.get(lib.pn_link_session(pointer))
            if session is None:
                return
            end = LinkEnd(self, session, pointer)
            self._links[pointer] = session.links[pointer] = end
        self.owner.peer_attached(end)

    def _on_detach(self, event: Pointer, closed: bool = False) -> None:
        end = self._links.get(lib.pn_event_link(event))
        if end is None:
            return
        if end.owner is not None:
            end.owner.detached(closed, read_condition(lib.pn_link_remote_condition(end.pointer)))
        else:
            self.retire(end)

    def _on_detach_closed(self, event: Pointer) -> None:
        self._on_detach(event, closed=True)

    def _lose(self, end: LinkEnd) -> None:
        owner, end.owner, pointer, end.pointer = end.owner, None, end.pointer, None
        self._links.pop(pointer, None)
        end.session.links.pop(pointer, None)
        if owner is not None:
            owner.lost()

    def lose_all(self) -> None:
        """Tell every owner that its link is lost; the connection itself may still say why."""
        for end in list(self._links.values()):
            self._lose(end)


_HANDLERS: dict[int, Any] = {
    lib.PN_LINK_FLOW: Engine._on_flow,
    lib.PN_CONNECTION_REMOTE_OPEN: Engine._on_open,
    lib.PN_CONNECTION_REMOTE_CLOSE: Engine._on_close,
    lib.PN_TRANSPORT_ERROR: Engine._on_transport_error,
    lib.PN_SESSION_REMOTE_OPEN: Engine._on_session_open,
    lib.PN_SESSION_REMOTE_CLOSE: Engine._on_session_close,
    lib.PN_LINK_REMOTE_OPEN: Engine._on_attach,
    lib.PN_LINK_REMOTE_DETACH: Engine._on_detach,
    lib.PN_LINK_REMOTE_CLOSE: Engine._on_detach_closed,
}
