"""Engine: one AMQP connection in proton's C engine; with links and values all that touches
it.

Bytes go in, events come out as calls to the connection (opened, closed, attached) and to the owner
of each link (a delivery changed, credit came, it was detached); what the owners ask for leaves as
bytes when the connection fetches them. proton's own Python classes cost twenty times as much and
are not used. Every pointer of C lives in an Engine, a SessionEnd, a LinkEnd or is a delivery that a
link's owner holds. Nothing is freed while events are handed out. Must not know brokers, services or
addresses. Source: proton 0.40, proton/engine.h and its neighbours.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from cproton_ffi import ffi, lib

from qpidha.amqp.peer.channels import MASK, Flowed, LinkFault, Notice, Retiring, Stolen
from qpidha.amqp.peer.flows import HEADER, note_numbers, performatives, shifted, tag_at, with_link
from qpidha.amqp.peer.frames import Apart, FrameReader, Restated, close_frame
from qpidha.amqp.peer.links import (
    BUFFER_SIZE,
    Declining,
    LinkEnd,
    Scratch,
    SessionEnd,
    settle,
    update,
)
from qpidha.amqp.peer.payload import HEAD, cut
from qpidha.amqp.peer.performatives import TRANSFER
from qpidha.amqp.peer.terminus import RELEASED, PeerError, Pointer
from qpidha.amqp.peer.values import (
    read_condition,
    read_symbols,
    read_text,
    symbols,
    write_condition,
    write_data,
    write_fields,
)
from qpidha.model.errors import (
    LimitExceeded,
    LinkStolen,
    ProtocolViolation,
    QpidHaError,
    Unanswered,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ROUNDS = 2
"""How often in one turn a server hands out the events of thousands of deliveries, of hundreds of
flows, or of some sixty attaches.
"""
PUT_OFF = 4 << 20
"""Bytes that may wait for turns of their own, whatever they are: those of a dozen turns of a client
that sends as fast as it can.
"""
ALL_PUT_OFF = 64 << 20
"""Bytes that may wait so of all connections, before one may have no more than a turn of its own."""
FEW_PUT_OFF = 256 << 10
LARGEST_FRAME = 1 << 30
"""Bytes of a frame for a peer that sets no limit."""
MAX_MILLISECONDS = 2**32 - 1
"""The longest silence that can be named: 49 days; who asks for more gets this."""
# Takes the lines that the engine would write to standard error; with what it finds wrong it also
# ends the connection. It has to be a function of C that changes nothing: the one that may be
# written in Python belongs to proton's own classes, if an application imports them.
_no_words = ffi.cast(
    ffi.typeof(lib.pn_transport_set_tracer).args[1], ffi.addressof(lib, "pn_transport_closed")
)

# Names of this module's own are found faster than attributes of another, and these are used for
# each message.
_peek, _pop, _event_type, _event_delivery = (
    lib.pn_collector_peek,
    lib.pn_collector_pop,
    lib.pn_event_type,
    lib.pn_event_delivery,
)
_delivery_link = lib.pn_delivery_link
_unpack = ffi.unpack


def built() -> tuple[str, bool, bool]:
    """Return proton's version, and whether it was built with TLS and with Cyrus SASL. Neither is
    used here; applications that use proton's own classes need them.
    """
    version = (lib.PN_VERSION_MAJOR, lib.PN_VERSION_MINOR, lib.PN_VERSION_POINT)
    tls, sasl = bool(lib.pn_ssl_present()), bool(lib.pn_sasl_extended())
    return ".".join(map(str, version)), tls, sasl


class EngineOwner(Protocol):
    """Who answers for the connection."""

    def peer_opened(self) -> None:
        """The peer's open came."""

    def peer_closed(self, error: PeerError | None) -> None:
        """The peer's close came, or the engine found its bytes to be faulty (then `error` is what
        we sent).
        """

    def peer_attached(self, end: LinkEnd) -> None:
        """The peer attached a link of its own, or answered one of ours (which has an owner)."""

    def peer_retires(self, retiring: Retiring) -> None:
        """An outcome in a transaction will be told, or was: of the deliveries that are there."""


class Engine:
    """One connection, after any security layer: it starts with the AMQP protocol header."""

    __slots__ = (
        "_begun",
        "_by_channel",
        "_channel_max",
        "_collector",
        "_connection",
        "_echoes",
        "_expected",
        "_frames",
        "_idle_timeout",
        "_is_heard",
        "_is_incomplete",
        "_is_patient",
        "_is_server",
        "_is_stuck",
        "_links",
        "_made",
        "_owed",
        "_parting",
        "_reader",
        "_sessions",
        "_shifts",
        "_silent_at",
        "_transport",
        "owner",
        "put_off",
        "scratch",
        "unfinished",
    )

    def __init__(
        self,
        owner: EngineOwner,
        *,
        is_server: bool,
        max_frame_size: int,
        channel_max: int,
        scratch: Scratch,
        max_links: int = 0,
    ) -> None:
        """`max_links` is how many its owner lets the peer have."""
        self.owner = owner
        self.scratch = scratch
        self.unfinished = 0
        """Bytes of messages of which only a part has come."""
        self.put_off = b""
        """What came and waits for the next turn."""
        self._channel_max = channel_max
        self._is_server = is_server
        self._is_stuck = False
        self._is_incomplete = False
        """Whether the engine's output is to be looked at."""
        self._made: list[bytes | memoryview] = []
        """What was fetched already, and is to be sent before the rest."""
        self._idle_timeout = 0
        self._is_heard = True
        """Whether the peer said something since it was last listened for."""
        self._is_patient = False
        self._silent_at = 0
        """When it will have been silent for too long."""
        self._frames = 0
        self._expected: list[Pointer] = []
        """Sessions and links that were opened since output was last fetched: each must have become
        a frame by then.
        """
        self._begun = 0
        """Sessions the peer began since output was last fetched: each takes a channel until then,
        ended or not.
        """
        self._owed: dict[bytes, tuple[LinkEnd, deque[bytes | memoryview], int]] = {}
        """The payloads, and their sizes, of deliveries that the engine has without, by tags."""
        self._links: dict[Pointer, LinkEnd] = {}
        self._sessions: dict[Pointer, SessionEnd] = {}
        self._by_channel: dict[int | None, SessionEnd] = {}
        """Sessions by the channel on which the peer speaks."""
        self._reader = FrameReader(max_frame_size, max_links)
        self._parting = b""
        """A close that the engine would not send."""
        self._echoes: dict[tuple[int, int | None], Flowed] = {}
        """Flows that are to be answered, by the peer's channel and handle."""
        self._shifts: dict[SessionEnd, int] = {}
        """By how much the transfer-ids of a session are not what the engine counts."""
        self._transport = lib.pn_transport()
        self._connection: Pointer | None = lib.pn_connection()
        self._collector = lib.pn_collector()
        self._set_up(max_frame_size)

    def _set_up(self, max_frame_size: int) -> None:
        if self._is_server:
            lib.pn_transport_set_server(self._transport)
        lib.pn_transport_set_tracer(self._transport, _no_words)
        lib.pn_transport_set_max_frame(self._transport, max_frame_size)
        lib.pn_transport_set_channel_max(self._transport, self._channel_max)
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_transport_bind(self._transport, self._connection)

    def free(self) -> None:
        """Give the memory back; every owner is told that its link is lost. Not to be called from an
        event.
        """
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
        self._put_off(b"")
        # Objects that refer to each other would stay until a collection of the oldest ones, and a
        # broker makes none.
        for session in self._sessions.values():
            session.forget()
        self._sessions.clear()
        self._by_channel.clear()
        self._echoes.clear()
        self._shifts.clear()
        self._owed.clear()
        self._made.clear()
        del self.owner

    def open(
        self,
        container_id: str,
        properties: dict[Any, Any],
        *,
        hostname: str = "",
        offered: tuple[str, ...] = (),
    ) -> None:
        """Send our open."""
        lib.pn_connection_set_container(self._connection, container_id.encode())
        if hostname:
            lib.pn_connection_set_hostname(self._connection, hostname.encode())
        write_fields(lib.pn_connection_properties(self._connection), properties)
        if offered:
            write_data(lib.pn_connection_offered_capabilities(self._connection), symbols(offered))
        lib.pn_connection_open(self._connection)

    def close(self, error: QpidHaError | PeerError | None = None) -> None:
        """Send our close."""
        if error is not None:
            condition = lib.pn_connection_condition(self._connection)
            write_condition(condition, error, self._connection)
        lib.pn_connection_close(self._connection)
        if not self._reader.opened and not self._has_ended():
            # The engine says nothing behind our open before the peer's has come.
            self._parting = close_frame(error)
            self._is_incomplete = True

    def remote_container(self) -> str:
        """Read the container id of the peer."""
        return read_text(lib.pn_connection_remote_container(self._connection)) or ""

    def remote_hostname(self) -> str:
        """Read the host name the peer connected to."""
        return read_text(lib.pn_connection_remote_hostname(self._connection)) or ""

    def remote_offered(self) -> list[str]:
        """Read the capabilities that the peer offers."""
        return read_symbols(lib.pn_connection_remote_offered_capabilities(self._connection))

    def remote_properties(self) -> dict[Any, Any]:
        """Read the connection properties of the peer."""
        return self._reader.properties

    def take_frames(self, size: int) -> None:
        """Take frames of so many bytes, if not of more already; before `open`."""
        size = max(size, self._reader.max_frame_size)
        self._reader.max_frame_size = size
        lib.pn_transport_set_max_frame(self._transport, size)

    def remote_max_frame_size(self) -> int:
        """Read how many bytes a frame may have that the peer takes; 0 is any number."""
        return int(lib.pn_transport_get_remote_max_frame(self._transport))

    def remote_idle_timeout(self) -> int:
        """Read how many milliseconds of silence the peer puts up with; 0 is for ever."""
        return int(lib.pn_transport_get_remote_idle_timeout(self._transport))

    def set_idle_timeout(self, milliseconds: int) -> None:
        """Set how much silence we put up with; the peer is told half of it, as the specification
        asks.
        """
        self._idle_timeout = min(milliseconds, MAX_MILLISECONDS)
        lib.pn_transport_set_idle_timeout(self._transport, self._idle_timeout)

    def set_patient(self, patient: bool) -> None:
        """Put up with any silence for a while, or as before."""
        self._is_patient = patient
        self._is_heard = True

    def tick(self, milliseconds: int) -> int:
        """Send a heartbeat if it is time; give the time of the next tick, 0 for none. Raises
        Unanswered if the peer was silent for too long.
        """
        silent_at = self._listen(milliseconds)
        # The engine would tell of silence in a close, `amqp:resource-limit-exceeded`, after which
        # clients do not come again; it only tells the peer what we put up with.
        lib.pn_transport_set_idle_timeout(self._transport, 0)
        following = int(lib.pn_transport_tick(self._transport, milliseconds))
        lib.pn_transport_set_idle_timeout(self._transport, self._idle_timeout)
        return min(following or silent_at, silent_at or following)

    def _listen(self, milliseconds: int) -> int:
        """Give up on a silent peer if it is time; give the time when it will be, 0 for never."""
        if not self._idle_timeout or self._is_patient:
            return 0
        if self._is_heard:
            self._is_heard = False
            self._silent_at = milliseconds + self._idle_timeout
        elif self._silent_at <= milliseconds:
            raise Unanswered(f"nothing came over this connection for {self._idle_timeout} ms")
        return self._silent_at

    def new_link(self, name: str, *, sender: bool, session: SessionEnd) -> LinkEnd:
        """Begin a link of our own; `LinkEnd.open` sends it."""
        make = lib.pn_sender if sender else lib.pn_receiver
        end = LinkEnd(self, session, make(session.pointer, name.encode()))
        self._links[end.pointer] = session.links[end.pointer] = end
        return end

    def new_session(self, *, is_of_one_link: bool = False) -> SessionEnd:
        """Begin a session of our own; one of one link ends with it. Raises LimitExceeded if no
        channel is left.
        """
        most = int(lib.pn_transport_get_channel_max(self._transport)) + 1
        if len(self._sessions) >= most:
            # The engine would say nothing more, not even why.
            raise LimitExceeded(f"this connection has {most} sessions already, as many as it may")
        session = SessionEnd(lib.pn_session(self._connection), is_of_one_link=is_of_one_link)
        self._sessions[session.pointer] = session
        lib.pn_session_open(session.pointer)
        return session

    def end_session(self, session: SessionEnd, error: QpidHaError) -> None:
        """End a session of which the peer broke the rules, with all its links; the connection
        lives. What the peer still sends there is dropped until it ends the session too.
        """
        session.why_ended = PeerError.of(error)
        self._lose_links(session)
        self._reader.ignore(session.channel)
        condition = lib.pn_session_condition(session.pointer)
        write_condition(condition, error, self._connection)
        lib.pn_session_close(session.pointer)
        session.is_ended = True

    def sessions(self) -> list[SessionEnd]:
        """List the sessions that have not ended."""
        return [session for session in self._sessions.values() if not session.is_ended]

    def link_count(self) -> int:
        """Count the links there are."""
        return len(self._links)

    def retire(self, end: LinkEnd) -> None:
        """Let go of a link that both sides have ended, unless it waits."""
        if end.waits:
            return
        pointer, end.pointer = end.pointer, None
        if pointer is not None:
            self._links.pop(pointer, None)
            end.session.links.pop(pointer, None)
            if self._owed:
                self._forget_owed(end)
            lib.pn_link_free(pointer)

    def push(self, data: bytes) -> None:
        """Take bytes from the peer, after those that were put off, and hand out the events they
        make; a faulty frame ends its session, or is raised. A few bytes may be about thousands of
        deliveries, or attach links, over and over: a server puts the rest off then, for the next
        call.
        """
        self._is_heard = True
        reader = self._reader
        data = reader.whole(data)
        if self.put_off:
            data = self.put_off + data
            self._put_off(b"")
        start, size, rounds = 0, len(data), 0
        reader.renew()
        while start < size:
            if rounds == MOST_ROUNDS:
                self.wait(data[start:])
                return
            end, following, found = reader.look(data, start)
            if end > start:
                self._feed(data, start, end)
            if isinstance(found, Restated):
                self._feed(found.words, 0, len(found.words))
                found = found.after
            elif isinstance(found, Apart):
                self._feed_apart(found)
                found = None
            if found is not None:
                session = self._by_channel.get(found.channel)
                if isinstance(found, Notice):
                    if session is not None:
                        self._see_to(session, found)
                elif session is None:
                    raise found.error
                else:
                    self.end_session(session, found.error)
            start = following
            if reader.is_full:
                reader.renew()
                rounds += self._is_server

    def wait(self, data: bytes) -> None:
        """Put bytes from the peer off, behind those that were put off before."""
        data = self.put_off + data
        most = PUT_OFF if self.scratch.put_off < ALL_PUT_OFF else FEW_PUT_OFF
        if len(data) > most:
            raise LimitExceeded(
                f"{len(data)} bytes wait behind states of deliveries, flows or attaches",
                reason=f"{most} are kept while thousands of those are looked at, some a turn",
                hint="settle or attach fewer at once, or wait for the answers",
            )
        self._is_heard = True
        self._put_off(data)

    def _put_off(self, data: bytes) -> None:
        """Keep this for the next turn, in place of what was kept."""
        self.scratch.put_off += len(data) - len(self.put_off)
        self.put_off = data

    def _see_to(self, session: SessionEnd, notice: Notice) -> None:
        """Do what the engine does not."""
        if isinstance(notice, LinkFault):
            end = session.by_handle.get(notice.handle)
            owner = end.owner if end is not None else None
            if end is None or owner is None:
                return
            if notice.declines:
                end.owner = Declining(end, owner, notice.error)
            else:
                owner.broken(notice.error)
        elif isinstance(notice, Stolen):
            end = session.by_handle.get(notice.handle)
            if end is not None:
                if end.owner is not None:
                    end.owner.broken(
                        LinkStolen(f"link '{end.name}' was attached again on its session")
                    )
                self.retire(end)
        elif isinstance(notice, Retiring):
            self.owner.peer_retires(notice)
        elif isinstance(notice, Flowed):
            self._flowed(session, notice)

    def _flowed(self, session: SessionEnd, flow: Flowed) -> None:
        self._is_incomplete = True
        if flow.shift:
            self._shifts[session] = (self._shifts.get(session, 0) + flow.shift) & MASK
        if flow.echoes:
            handle = flow.link.handle if flow.link is not None else None
            self._echoes[session.channel, handle] = flow

    def _feed(self, data: bytes, offset: int, size: int) -> None:
        transport = self._transport
        view = ffi.from_buffer(data)
        while offset < size:
            taken = lib.pn_transport_push(transport, view + offset, size - offset)
            if taken <= 0:
                break
            offset += taken
            self.hand_out()
        self.hand_out()
        if lib.pn_transport_capacity(transport) < 0 and not self._has_ended():
            # The engine takes nothing more, and does not say why, after a frame that it could not
            # read.
            raise ProtocolViolation("the peer sent a frame that is no AMQP performative")

    def _feed_apart(self, transfer: Apart) -> None:
        """Give a transfer to the engine, and its payload to its link."""
        session = self._by_channel.get(transfer.channel)
        end = session.by_handle.get(transfer.handle) if session is not None else None
        if end is not None:
            end.apart = transfer.parts
        self._feed(transfer.words, 0, len(transfer.words))
        if end is not None and end.apart:
            end.apart = []
            if end.owner is not None:
                # It would be a message without a part of its bytes.
                raise ProtocolViolation(f"a transfer on link '{end.name}' is of no delivery")

    def _has_ended(self) -> bool:
        closed = lib.pn_connection_state(self._connection) & lib.PN_REMOTE_CLOSED
        return bool(closed or lib.pn_condition_is_set(lib.pn_transport_condition(self._transport)))

    def pull(self) -> list[bytes | memoryview]:
        """Give every byte that can be sent now."""
        self._fetch()
        made, self._made = self._made, []
        return made

    def _fetch(self) -> None:
        """Put what the engine has to send behind what was fetched before."""
        self._add(self._output())

    def _add(self, data: bytes) -> None:
        """Send this behind what was fetched before, with the payloads that belong there."""
        made, owed, done = self._made, self._owed, 0
        if owed:
            for place, _, code in performatives(data):
                found = owed.pop(tag_at(data, place), None) if code == TRANSFER else None
                if found is not None:
                    end, parts, size = found
                    end.session.owed -= size
                    start = place - HEADER.size
                    whole = int.from_bytes(data[start : start + 4], "big")
                    made.append(
                        data[done:start]
                        + (whole + size).to_bytes(4, "big")
                        + data[start + 4 : start + whole]
                    )
                    made += parts
                    done = start + whole
        if done < len(data):
            made.append(data[done:] if done else data)

    def send_ahead(self, end: LinkEnd, parts: deque[bytes | memoryview], size: int) -> int:
        """Send a message, but for its last frame: give how many bytes are left for that, or 0 if
        the peer's window has no room and the engine is to have what is left.
        """
        most = self.remote_max_frame_size() or LARGEST_FRAME
        if size + HEAD <= most:
            return size
        self._fetch()
        while size + HEAD > most:
            # It makes a frame of the first byte at once, if it may, and counts that as sent.
            (first,) = cut(parts, 1)
            lib.pn_link_send(end.pointer, ffi.from_buffer(first), 1)
            data = self._output()
            place, _, code = ([*performatives(data)] or [(0, 0, 0)])[-1]
            if code != TRANSFER:
                self._add(data)
                return 0
            start = place - HEADER.size
            room = min(most - (len(data) - start), size - 2)
            whole = len(data) - start + room
            self._made.append(data[:start] + whole.to_bytes(4, "big") + data[start + 4 :])
            self._made += cut(parts, room)
            size -= 1 + room
        return size

    def owe(self, end: LinkEnd, tag: bytes, parts: deque[bytes | memoryview], size: int) -> None:
        """Put a payload into the frame that the engine will make of a delivery."""
        self._owed[tag] = end, parts, size
        end.session.owed += size

    def _forget_owed(self, end: LinkEnd) -> None:
        """Forget what the link, which is freed now, has not sent."""
        self._fetch()  # What is written, and not fetched, will be sent.
        for tag, (owner, _, size) in list(self._owed.items()):
            if owner is end:
                del self._owed[tag]
                end.session.owed -= size

    def _output(self) -> bytes:
        """Take what the engine has to send."""
        transport, buffer = self._transport, self.scratch.buffer
        size = lib.pn_transport_pending(transport)
        parts = []
        while size > 0:
            got = lib.pn_transport_peek(transport, buffer, min(size, BUFFER_SIZE))
            parts.append(_unpack(buffer, got))
            lib.pn_transport_pop(transport, got)
            size = lib.pn_transport_pending(transport)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        return self._completed(data) if self._is_incomplete else data

    def tell(self, end: LinkEnd, properties: Mapping[str, Any], available: int | None) -> None:
        """Say something of a link on which we send in a flow, before all that is sent from now
        on.
        """
        self._fetch()
        session = end.session
        if end.pointer is not None and end.own_handle >= 0 and not session.is_ended:
            # Setting what is set makes the engine say all of its state.
            lib.pn_session_set_incoming_capacity(session.pointer, 0)
            credit = max(end.credit() + lib.pn_link_queued(end.pointer), 0)
            flow = with_link(
                self._output(),
                end.own_handle,
                self._reader.granted(session.channel, end.remote_handle) - credit,
                credit,
                drain=end.is_draining(),
                available=available,
                properties=properties,
            )
            self._add(flow)

    def available(self, end: LinkEnd) -> int | None:
        """Tell how many messages the peer has on a link and does not send, if it says that."""
        return self._reader.available(end.session.channel, end.remote_handle)

    def drained(self, end: LinkEnd, available: int) -> None:
        """Give back what credit is left, and say how many messages are kept back: of those the
        engine says nothing.
        """
        self._fetch()
        session = end.session
        if end.pointer is not None:
            lib.pn_link_drained(end.pointer)
            if end.own_handle >= 0 and not session.is_ended:
                used = self._reader.granted(session.channel, end.remote_handle)
                flow = with_link(
                    self._output(), end.own_handle, used, 0, drain=True, available=available
                )
                self._add(flow)

    def _completed(self, data: bytes) -> bytes:
        """See to what the engine leaves undone in its output."""
        self._is_incomplete = bool(self._shifts)
        if self._expected:
            links = (self._links[one] for one in self._expected if one in self._links)
            note_numbers(data, self._by_channel, links)
            alive = sum(
                1
                for pointer in self._expected
                if pointer in self._links or pointer in self._sessions
            )
            self._expected = []
            # Where the peer leaves no room for a handle or channel of ours, the engine says nothing
            # more, not even why.
            sent = lib.pn_transport_get_frames_output(self._transport)
            self._is_stuck = sent - self._frames < alive
        if self._begun:
            self._reader.answered()
            self._begun = 0
        if self._shifts:
            shifts = {session.own_channel: shift for session, shift in self._shifts.items()}
            data = shifted(data, shifts)
        if self._echoes:
            data += self._answer_echoes()
        if self._parting:
            data += self._parting
            self._parting = b""
        return data

    def _answer_echoes(self) -> bytes:
        """Make the flows that the peer asked for: of a session, or of one of its links."""
        echoes, self._echoes = self._echoes, {}
        data = b""
        for (channel, handle), flow in echoes.items():
            session = self._by_channel.get(channel)
            if session is None or session.is_ended:
                continue
            end = session.by_handle.get(handle) if handle is not None else None
            is_there = end is not None and end.owner is not None and end.pointer is not None
            if flow.link is not None:
                flow.link.wants_echo = False
            # Setting what is set makes the engine say all of its state.
            lib.pn_session_set_incoming_capacity(session.pointer, 0)
            if is_there and end is not None and not end.is_sender:
                lib.pn_link_flow(end.pointer, 0)
            answer = self._output()
            if is_there and end is not None and end.is_sender and end.own_handle >= 0:
                # The engine counts what it has not yet sent as used up.
                # A peer may say that it has had more than it has, and then has none.
                credit = max(end.credit() + lib.pn_link_queued(end.pointer), 0)
                used = flow.granted - credit
                answer = with_link(answer, end.own_handle, used, credit, drain=end.is_draining())
            data += answer
        return data

    def expect_frame(self, pointer: Pointer) -> None:
        """Remember that opening this endpoint must produce a frame; if it does not, the peer has no
        handle or channel left (see `is_finished`).
        """
        if not self._expected:
            self._frames = lib.pn_transport_get_frames_output(self._transport)
        self._expected.append(pointer)
        self._is_incomplete = True

    def backlog(self, *, answers: bool = False) -> int:
        """Count the bytes that wait for the windows of the peer's sessions, or of those the answers
        of services.
        """
        sessions = self._sessions.values()
        return sum(one.answers_left() if answers else one.backlog() for one in sessions)

    def has_output(self) -> bool:
        """Write what there is to write, and tell whether there are bytes to send."""
        return bool(lib.pn_transport_pending(self._transport) > 0 or self._made)

    def is_finished(self) -> bool:
        """Tell whether nothing more will ever be sent."""
        return self._is_stuck or bool(lib.pn_transport_pending(self._transport) < 0)

    def hand_out(self) -> None:
        """Tell the owners what has happened."""
        collector, links = self._collector, self._links
        event = _peek(collector)
        while event:
            try:
                delivery = _event_delivery(event)
                if delivery:
                    link = _delivery_link(delivery)
                    end = links.get(link)
                    if end is None:  # Its link lost its name to another one.
                        if lib.pn_link_is_receiver(link):
                            update(delivery, RELEASED)
                        settle(delivery)
                    elif end.owner is not None:
                        end.owner.delivery_changed(delivery)
                    else:
                        end.discard(delivery)
                elif (handle := _HANDLERS.get(_event_type(event))) is not None:
                    handle(self, event)
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
        session = self._sessions.get(pointer)
        if session is None:
            self._begun += 1
            if len(self._sessions) > self._channel_max or self._begun > self._channel_max:
                # Without a free channel the engine would answer nothing more at all.
                raise ProtocolViolation(
                    "the peer began more sessions than channel-max allows, or one twice "
                    "on its channel"
                )
            session = self._sessions[pointer] = SessionEnd(pointer)
            lib.pn_session_open(pointer)
            self.expect_frame(pointer)
        session.channel = self._reader.begun.pop(0)
        self._by_channel[session.channel] = session

    def _on_session_close(self, event: Pointer) -> None:
        pointer = lib.pn_event_session(event)
        session = self._sessions.pop(pointer, None)
        if session is None:
            return
        session.is_ended = True
        self._by_channel.pop(session.channel, None)
        self._shifts.pop(session, None)
        said = read_condition(lib.pn_session_remote_condition(pointer))
        session.why_ended = said or PeerError("", "no reason was given")
        self._lose_links(session)
        lib.pn_session_close(pointer)
        self.has_output()  # Our end leaves before what is not committed is freed.
        lib.pn_session_free(pointer)

    def _on_attach(self, event: Pointer) -> None:
        pointer = lib.pn_event_link(event)
        end = self._links.get(pointer)
        attach = self._reader.attached.pop(0)
        if end is None:
            session = self._sessions.get(lib.pn_link_session(pointer))
            if session is None:
                return
            end = LinkEnd(self, session, pointer)
            self._links[pointer] = session.links[pointer] = end
        end.described(*attach)
        self.owner.peer_attached(end)

    def _on_detach(self, event: Pointer, closed: bool = False) -> None:
        end = self._links.get(lib.pn_event_link(event))
        if end is None:
            return
        end.session.by_handle.pop(end.remote_handle, None)
        end.peer_ended = True
        if end.owner is not None:
            end.owner.detached(closed, read_condition(lib.pn_link_remote_condition(end.pointer)))
        else:
            self.retire(end)

    def _on_detach_closed(self, event: Pointer) -> None:
        self._on_detach(event, closed=True)

    def _lose_links(self, session: SessionEnd) -> None:
        """Let go of the links of a session that ends."""
        links = list(session.links.items())
        for _, end in links:
            if self._owed:
                self._forget_owed(end)
            self._lose(end)
        for pointer, end in links:
            # Messages that wait for the peer's window would hold back our end. What came and is not
            # committed is freed with the session: the engine would settle it without an outcome,
            # and some clients take that for accepted.
            if end.is_sender or not lib.pn_link_unsettled(pointer):
                lib.pn_link_free(pointer)
        session.forget()

    def _lose(self, end: LinkEnd) -> None:
        owner, end.owner, pointer = end.owner, None, end.pointer
        end.lost()
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
