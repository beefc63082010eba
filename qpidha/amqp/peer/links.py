"""Links: our ends of sessions and links in proton's C engine, and their deliveries.

An owner answers for each link: it is told of deliveries, credit and the end, and asks its `LinkEnd`
to send, take and flow. A delivery is a bare pointer, of use only while its link lives; owners
forget theirs when a link is lost. Must not know brokers, services or addresses. Source: proton
0.40, proton/link.h and proton/delivery.h.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from cproton_ffi import ffi, lib

from qpidha.amqp.peer.payload import APART, joined, keep
from qpidha.amqp.peer.terminus import MIXED, OUTCOME_NAMES, RELEASED, PeerError, Pointer, Terminus
from qpidha.amqp.peer.transaction_wire import TRANSACTIONAL
from qpidha.amqp.peer.values import (
    read_terminus,
    read_text,
    set_state,
    write_condition,
    write_fields,
    write_terminus,
)
from qpidha.model.errors import MessageTooLarge, ProtocolViolation, QpidHaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qpidha.amqp.peer.payload import Chunk
    from qpidha.model.encoding import Parts

BUFFER_SIZE = 65536
"""Bytes read or written in one call; larger messages get a buffer of their own."""

# Names of this module's own are found faster than attributes of another, and these are used for
# each message.
_pending, _partial, _readable = (
    lib.pn_delivery_pending,
    lib.pn_delivery_partial,
    lib.pn_delivery_readable,
)
_recv, _send, _advance, _deliver = (
    lib.pn_link_recv,
    lib.pn_link_send,
    lib.pn_link_advance,
    lib.pn_delivery,
)
_unpack = ffi.unpack
_from_buffer, _buffer = ffi.from_buffer, ffi.buffer

UNFINISHED = 64 << 20
"""Bytes of messages of which only a part has come that one connection may have, or as many as one
message may: until they are whole they are under no other limit.
"""

# Of a single delivery, for the owner of its link.
is_settled = lib.pn_delivery_settled
remote_state = lib.pn_delivery_remote_state
is_aborted = lib.pn_delivery_aborted
update = lib.pn_delivery_update
settle = lib.pn_delivery_settle


def tag_of(delivery: Pointer) -> bytes:
    """Read the tag that its sender gave a delivery."""
    tag = lib.pn_delivery_tag(delivery)
    return bytes(_unpack(tag.start, tag.size)) if tag.size else b""


class TooMuchUnfinished(MessageTooLarge):
    """Too many messages of one connection of which only a part has come."""

    condition = "amqp:resource-limit-exceeded"


class Scratch:
    """Memory that engines use within one call. Those that are worked with in one thread may share
    one; Python runs other threads during each call of C, so that two threads must not.
    """

    __slots__ = ("_holders", "buffer", "long_tag", "put_off", "tag", "tag_bytes", "unfinished")

    def __init__(self) -> None:
        self.unfinished = 0
        """Bytes of messages of which only a part has come, in all engines."""
        self.put_off = 0
        """Bytes that came and wait for later turns, in all engines."""
        self.buffer = ffi.new("char[]", BUFFER_SIZE)
        # One tag is enough: the engine copies it. Tags only have to differ among the unsettled
        # deliveries of one link. They are ASCII, for some clients take them for text.
        self.tag_bytes = ffi.new("uint32_t[2]")
        self._holders = ffi.new("pn_bytes_t[2]")
        for number in (0, 1):
            self._holders[number].size = 4 + 4 * number
            self._holders[number].start = ffi.cast("char *", self.tag_bytes)
        self.tag, self.long_tag = self._holders[0], self._holders[1]
        """The tag of a delivery, and of one whose payload the engine does not get: that differs
        from all others of its connection.
        """


class LinkOwner(Protocol):
    """Who answers for one link."""

    def answered(self) -> None:
        """The peer attached a link that is there already: on one of ours that is its answer."""

    def delivery_changed(self, delivery: Pointer) -> None:
        """Bytes, a state or settlement came for this delivery."""

    def flowed(self) -> None:
        """Credit or drain changed."""

    def detached(self, closed: bool, error: PeerError | None) -> None:
        """The peer ended the link. The end is still there and wants an answer."""

    def lost(self) -> None:
        """The session or connection ended; no delivery of this link may be touched any more."""

    def broken(self, error: QpidHaError) -> None:
        """The peer broke a rule of the link: end it."""

    def declined(self, delivery: Pointer, error: QpidHaError) -> None:
        """A delivery came, and was thrown away, that cannot be taken: give it its outcome."""


class Declining:
    """Stands in for the owner of a link until a delivery that cannot be taken has come as a
    whole.
    """

    __slots__ = ("_end", "_error", "_owner")

    def __init__(self, end: LinkEnd, owner: LinkOwner, error: QpidHaError) -> None:
        self._end = end
        self._owner = owner
        self._error = error

    def delivery_changed(self, delivery: Pointer) -> None:
        """Throw away what comes."""
        try:
            payload = self._end.take(delivery)
        except MessageTooLarge as error:
            self._owner.broken(error)
            return
        if payload is None and not is_aborted(delivery):
            return
        self._end.owner = self._owner
        if payload is not None:
            self._owner.declined(delivery, self._error)

    def __getattr__(self, name: str) -> Any:
        """Pass on everything else."""
        return getattr(self._owner, name)


class LinkHolder(Protocol):
    """The engine, as the links in it see it."""

    scratch: Scratch
    unfinished: int
    """Bytes of messages of which only a part has come, over all links with a limit."""

    def retire(self, end: LinkEnd) -> None:
        """Let go of a link that both sides have ended."""

    def has_output(self) -> bool:
        """Write what there is to write, and tell whether there is something."""

    def expect_frame(self, pointer: Pointer) -> None:
        """Remember that opening this endpoint must produce a frame."""

    def tell(self, end: LinkEnd, properties: Mapping[str, Any], available: int | None) -> None:
        """Say something of a link in a flow."""

    def available(self, end: LinkEnd) -> int | None:
        """Tell how many messages the peer has on a link and does not send, if it says that."""

    def send_ahead(self, end: LinkEnd, parts: deque[bytes | memoryview], size: int) -> int:
        """Send a message, but for its last frame: give how many bytes are left for that, or 0 if
        the peer's window has no room and the engine is to have what is left.
        """

    def owe(self, end: LinkEnd, tag: bytes, parts: deque[bytes | memoryview], size: int) -> None:
        """Put a payload into the frame that the engine will make of a delivery."""

    def drained(self, end: LinkEnd, available: int) -> None:
        """Give back what credit is left, and say how many messages are kept back."""


class SessionEnd:
    """Our end of a session."""

    __slots__ = (
        "answers",
        "blocked",
        "by_handle",
        "channel",
        "is_ended",
        "is_of_one_link",
        "links",
        "owed",
        "own_channel",
        "pointer",
        "unacked",
        "unacked_bytes",
        "why_ended",
    )

    def __init__(self, pointer: Pointer, *, is_of_one_link: bool = False) -> None:
        self.pointer = pointer
        self.is_of_one_link = is_of_one_link
        """Whether it ends with its link."""
        self.channel = -1
        """On which the peer speaks, once it has begun."""
        self.own_channel = -1
        """On which we answer."""
        self.by_handle: dict[int, LinkEnd] = {}
        """Links by the handles that the peer gave them."""
        self.is_ended = False
        self.why_ended: PeerError | None = None
        """What was said when it ended while its connection goes on."""
        self.owed = 0
        """Bytes to be sent that the engine does not have."""
        self.answers = 0
        """Bytes of answers of services that were handed to it and may wait."""
        self.links: dict[Pointer, LinkEnd] = {}
        self.unacked = self.unacked_bytes = 0
        """Deliveries sent and not yet settled, over all links."""
        self.blocked: dict[Any, None] = {}
        """Owners of links that send nothing before deliveries are settled."""

    def forget(self) -> None:
        """Let go of the links: the session is over."""
        self.links.clear()
        self.by_handle.clear()
        self.blocked.clear()

    def backlog(self) -> int:
        """Count the bytes that wait for the peer's session window."""
        return int(lib.pn_session_outgoing_bytes(self.pointer)) + self.owed

    def answers_left(self) -> int:
        """Count those of them, at most, that are of answers."""
        if self.answers:
            self.answers = min(self.answers, self.backlog())
        return self.answers


class LinkEnd:
    """Our end of a link."""

    __slots__ = (
        "_at_once",
        "_buffer",
        "_chunks",
        "_may_release",
        "_next_tag",
        "_remote",
        "_size",
        "_tag",
        "_tag_bytes",
        "apart",
        "engine",
        "is_sender",
        "limit",
        "name",
        "owner",
        "own_handle",
        "peer_ended",
        "pointer",
        "remote_handle",
        "session",
        "waits",
    )

    def __init__(self, engine: LinkHolder, session: SessionEnd, pointer: Pointer) -> None:
        self.engine = engine
        self.session = session
        self.pointer: Pointer | None = pointer
        self.name = read_text(lib.pn_link_name(pointer)) or ""
        self.is_sender: bool = lib.pn_link_is_sender(pointer)
        self.owner: LinkOwner | None = None
        self.limit = 0
        self.peer_ended = False
        """Whether the peer has closed or detached it."""
        self.waits = False
        """Whether the link is kept after its end, for deliveries whose outcome is not known yet."""
        self.own_handle = self.remote_handle = -1
        self._remote: tuple[Any, ...] = (None, None, None)
        self._may_release = True
        """Whether the source can have the outcome released."""
        self._at_once = BUFFER_SIZE
        self._chunks: list[Chunk] = []
        self.apart: list[Chunk] = []
        """The payload of the transfer that the engine has just been given, if that is not there."""
        self._size = 0
        self._next_tag = 0
        scratch = engine.scratch
        self._buffer, self._tag, self._tag_bytes = scratch.buffer, scratch.tag, scratch.tag_bytes

    def described(self, handle: int, source: Any, target: Any, properties: Any) -> None:
        """Take what the peer's attach says."""
        self.remote_handle = handle
        self.peer_ended = False
        self._remote = (source, target, properties)
        outcomes = self.remote_source().outcomes
        self._may_release = not outcomes or OUTCOME_NAMES[RELEASED] in outcomes
        self.session.by_handle[handle] = self

    def remote_source(self) -> Terminus:
        """Read the source the peer described."""
        return read_terminus(self._remote[0])

    def remote_target(self) -> Terminus:
        """Read the target the peer described."""
        return read_terminus(self._remote[1])

    def remote_properties(self) -> dict[Any, Any]:
        """Read the link properties the peer gave."""
        return self._remote[2] or {}

    def remote_sender_mode(self) -> int:
        """Read the sender settle mode the peer asked for."""
        return int(lib.pn_link_remote_snd_settle_mode(self.pointer))

    def remote_receiver_mode(self) -> int:
        """Read the receiver settle mode the peer asked for."""
        return int(lib.pn_link_remote_rcv_settle_mode(self.pointer))

    def remote_max_message_size(self) -> int:
        """Read the largest message the peer takes; 0 is no limit."""
        return int(lib.pn_link_remote_max_message_size(self.pointer))

    def open(
        self,
        source: Terminus,
        target: Terminus,
        *,
        properties: dict[Any, Any] | None = None,
        mode: int = MIXED,
    ) -> None:
        """Send our attach. To a peer's it says the settle modes that hold: a sender's `mode` is
        its own, and a receiver that waits for us to settle first is waited for; a receiver settles
        at once, and takes messages settled or not, as the sender wishes. What the peer's attach
        says is forgotten with the answer.
        """
        pointer = self.pointer
        write_terminus(lib.pn_link_source(pointer), source)
        write_terminus(lib.pn_link_target(pointer), target)
        if properties:
            write_fields(lib.pn_link_properties(pointer), properties)
        if self.limit and not self.is_sender:
            lib.pn_link_set_max_message_size(pointer, self.limit)
        if lib.pn_link_state(pointer) & lib.PN_REMOTE_ACTIVE:
            self._remote = (None, None, None)
            if self.is_sender:
                lib.pn_link_set_rcv_settle_mode(pointer, self.remote_receiver_mode())
            else:
                mode = self.remote_sender_mode()
        lib.pn_link_set_snd_settle_mode(pointer, mode)
        lib.pn_link_open(pointer)
        self.engine.expect_frame(pointer)

    def end(self, error: QpidHaError | None = None, *, closed: bool = True) -> None:
        """Send our detach; what the peer still sends is thrown away until it answers."""
        if self.pointer is None:
            return
        self.owner = None
        self._forget_parts()
        if error is not None:
            connection = lib.pn_session_connection(self.session.pointer)
            write_condition(lib.pn_link_condition(self.pointer), error, connection)
        if closed:
            lib.pn_link_close(self.pointer)
        else:
            lib.pn_link_detach(self.pointer)
        if self.session.is_of_one_link:
            lib.pn_session_close(self.session.pointer)
        if self.peer_ended:
            if not closed:
                self.engine.has_output()  # What is not settled would be settled before our detach.
            self.engine.retire(self)

    def release(self) -> None:
        """Let go of a link that was kept, when both sides have ended it."""
        self.waits = False
        if self.peer_ended:
            self.engine.has_output()  # Outcomes that are not written yet would go with the link.
            self.engine.retire(self)

    def refuse(self, error: QpidHaError) -> None:
        """Answer the peer's attach with no terminus at our end, and end the link with the
        reason.
        """
        self.owner = None
        source, target = self.remote_source(), self.remote_target()
        if self.is_sender:
            source = Terminus()
        else:
            target = Terminus()
        self.open(source, target)
        self.end(error)

    # A sender's.

    def credit(self) -> int:
        """Tell how many deliveries the peer allows."""
        return int(lib.pn_link_credit(self.pointer))

    def is_draining(self) -> bool:
        """Tell whether the peer wants its credit used or given back."""
        return bool(lib.pn_link_get_drain(self.pointer))

    def drained(self, available: int = 0) -> None:
        """Give back what credit is left; `available` messages are there for which it was not used,
        and all that was sent has left.
        """
        if available:
            self.engine.drained(self, available)
        else:
            lib.pn_link_drained(self.pointer)

    def queued(self) -> int:
        """Count the deliveries that wait for the peer's session window."""
        return int(lib.pn_link_queued(self.pointer))

    def tell(self, properties: Mapping[str, Any], available: int | None) -> None:
        """Say something of the link in a flow, before what is sent from now on."""
        self.engine.tell(self, properties, available)

    def send(
        self, payload: bytes | Parts, *, settled: bool = False, state: list[Any] | None = None
    ) -> Pointer:
        """Send a message, as a whole or in parts that are not put together; give its delivery,
        which the peer will settle or give an outcome. One that is `settled` is not to be touched. A
        `state` is that of a transaction.
        """
        pointer = self.pointer
        # The next number of four bytes without their highest bits, which hand a carry on.
        self._next_tag = tag = ((self._next_tag | 0x80808080) + 1) & 0x7F7F7F7F
        self._tag_bytes[0] = tag
        size = len(payload) if isinstance(payload, bytes) else sum(map(len, payload))
        if size >= APART and state is None:
            parts = (payload,) if isinstance(payload, bytes) else payload
            return self._send_apart(deque(parts), size, settled)
        delivery = _deliver(pointer, self._tag)
        if state is not None:
            set_state(delivery, TRANSACTIONAL, state)
        if isinstance(payload, bytes):
            _send(pointer, payload, size)
        else:
            for part in payload:
                _send(pointer, part if isinstance(part, bytes) else _from_buffer(part), len(part))
        _advance(pointer)
        if settled:
            settle(delivery)
        return delivery

    def _send_apart(self, parts: deque[bytes | memoryview], size: int, settled: bool) -> Pointer:
        """Send a large message, whose bytes do not go through the engine."""
        engine, pointer, tag = self.engine, self.pointer, self._tag_bytes
        tag[1] = ((tag[1] | 0x80808080) + 1) & 0x7F7F7F7F  # As above.
        name = _buffer(tag)[:]
        delivery = _deliver(pointer, engine.scratch.long_tag)
        left = engine.send_ahead(self, parts, size)
        if left:
            engine.owe(self, name, parts, left)
        else:
            for part in parts:
                _send(pointer, _from_buffer(part), len(part))
        _advance(pointer)
        if settled:
            settle(delivery)
        return delivery

    @property
    def sent(self) -> int:
        """How many messages were sent; of more than 268 million (28 bits) what is beyond."""
        tag = self._next_tag
        return sum((tag >> 8 * place & 0x7F) << 7 * place for place in range(4))

    def set_limit(self, limit: int) -> None:
        """Say how large a message may be that a receiver takes, in bytes; 0 is no limit. Before
        `open`.
        """
        self.limit = limit
        self._at_once = min(BUFFER_SIZE, limit) if limit else BUFFER_SIZE

    def flow(self, credit: int) -> None:
        """Allow the peer `credit` more deliveries."""
        lib.pn_link_flow(self.pointer, credit)

    def drain(self, credit: int) -> None:
        """Allow `credit` more deliveries and ask for what is left of it back at once."""
        lib.pn_link_drain(self.pointer, credit)

    def available(self) -> int | None:
        """Tell how many messages the peer has and does not send, if it said that last."""
        return self.engine.available(self)

    def awaits_drained(self) -> bool:
        """Tell whether the peer has yet to use or give back the credit that was drained."""
        return bool(lib.pn_link_draining(self.pointer))

    def take(self, delivery: Pointer) -> bytes | None:
        """Take a message if this delivery has become one, else None; raise if it is larger than the
        limit.
        """
        size = _pending(delivery)
        if self.apart and _readable(delivery):
            return self._take_apart(delivery, size)
        # Of an aborted one the engine says that a byte waits, also when the link is past it.
        if size < 2 and not _readable(delivery):
            return None
        if _partial(delivery) or self._size:
            return self._take_part(delivery, size)
        if size > self._at_once:
            return self._take_large(delivery, size)
        taken = _recv(self.pointer, self._buffer, size)
        if taken < 0:
            return self._take_part(delivery, size)
        payload: bytes = _unpack(self._buffer, taken)
        _advance(self.pointer)
        return payload

    def _check_size(self, size: int) -> None:
        if self.limit and size > self.limit:
            raise MessageTooLarge(
                f"message of {size} bytes on link '{self.name}' is over max-message-size "
                f"{self.limit}"
            )

    def _take_large(self, delivery: Pointer, size: int) -> bytes | None:
        self._check_size(size)
        buffer = ffi.new("char[]", size)
        taken = _recv(self.pointer, buffer, size)
        _advance(self.pointer)
        return bytes(_unpack(buffer, taken))

    def _take_apart(self, delivery: Pointer, size: int) -> bytes | None:
        """Take a payload that the engine does not have, and which comes behind what it has."""
        parts, self.apart = self.apart, []
        if size or self._size or _partial(delivery):
            return self._take_part(delivery, size, parts)
        self._check_size(sum(map(len, parts)))
        _advance(self.pointer)
        return joined(parts)

    def _take_part(self, delivery: Pointer, size: int, apart: Sequence[Chunk] = ()) -> bytes | None:
        """Collect one piece of a message of several transfers."""
        if lib.pn_delivery_aborted(delivery):
            self._forget_parts()
            _advance(self.pointer)
            settle(delivery)
            if not self.is_draining():
                self.flow(1)  # What was used for nothing.
            return None
        if size:
            self._count_part(size, is_last=not _partial(delivery))
            buffer = ffi.new("char[]", size)
            taken = _recv(self.pointer, buffer, size)
            if taken != size:
                raise ProtocolViolation(f"a part of a message on link '{self.name}' is out of turn")
            keep(self._chunks, _unpack(buffer, taken))
        for part in apart:
            self._count_part(len(part), is_last=not _partial(delivery))
            keep(self._chunks, part)
        if _partial(delivery):
            return None
        payload = joined(self._chunks)
        self._forget_parts()
        _advance(self.pointer)
        return payload

    def _count_part(self, size: int, *, is_last: bool) -> None:
        """Count a part of a message, unless it is too much for the link or the connection."""
        self._size += size
        if not self.limit:
            return  # That is another broker.
        engine = self.engine
        engine.unfinished += size
        engine.scratch.unfinished += size
        if self._size > self.limit:
            self._forget_parts()
            raise MessageTooLarge(
                f"message on link '{self.name}' has grown over max-message-size {self.limit}"
            )
        if not is_last and engine.unfinished > max(UNFINISHED, self.limit):
            self._forget_parts()
            raise TooMuchUnfinished(
                f"messages of which only a part has come have {engine.unfinished} bytes on other "
                "links of this connection",
                hint="finish or abort some before others are begun",
            )

    def _forget_parts(self) -> None:
        """Let go of the parts of a message."""
        if self.limit:
            self.engine.unfinished -= self._size
            self.engine.scratch.unfinished -= self._size
        self._chunks, self._size = [], 0

    def lost(self) -> None:
        """Forget what C has of the link: its session or connection is gone."""
        self._forget_parts()
        self.pointer = None

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
            _recv(self.pointer, self._buffer, min(size, BUFFER_SIZE))
            size -= BUFFER_SIZE
        if not _partial(delivery):
            _advance(self.pointer)
            if not self.give_back(delivery):
                settle(delivery)

    def give_back(self, delivery: Pointer) -> bool:
        """Release a delivery that came as a whole and was not taken, and tell whether it could be:
        some clients take what is settled without an outcome for accepted.
        """
        if _partial(delivery) or not self._may_release:
            return False
        if not is_settled(delivery):
            update(delivery, RELEASED)
        settle(delivery)
        return True
