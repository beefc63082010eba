"""A client made of a bare engine, which does what a well-behaved client of ours would not."""

from __future__ import annotations

from typing import Any

from cproton_ffi import ffi, lib

from qpidha.amqp.peer.engine import Engine
from qpidha.amqp.peer.links import LinkEnd, Scratch, is_settled, settle, update
from qpidha.amqp.peer.terminus import (
    ACCEPTED,
    MIXED,
    MODIFIED,
    Outcome,
    PeerError,
    Terminus,
    source,
    target,
)
from qpidha.amqp.peer.values import give
from qpidha.amqp.server.served_connection import ServedConnection
from qpidha.model.events import ConnectionKind


class RawClient:
    """Owner of an engine, of its links, and of the server's connection to it."""

    def __init__(
        self,
        host: Any,
        container_id: str = "raw",
        number: int = 99,
        properties: dict[str, Any] | None = None,
    ) -> None:
        self.host = host
        self.server = ServedConnection(
            number, host, kind=ConnectionKind.CLIENT, peer="raw"
        ).connection
        self.engine = Engine(
            self, is_server=False, max_frame_size=65536, channel_max=10, scratch=Scratch()
        )
        self.engine.open(container_id, properties or {})
        self.session = self.engine.new_session()
        self.received: dict[int, list[tuple[Any, bytes]]] = {}
        self.detached: dict[str, str] = {}
        self.errors: dict[str, PeerError | None] = {}
        """Links that the broker has ended: the condition, and all of the error."""
        self.close_error: PeerError | None = None
        self.turn()

    def turn(self) -> None:
        while True:
            data = b"".join(self.engine.pull())
            if data:
                self.server.receive(data)
            self.host.broker.dispatch(self.host.now)
            answer = self.server.output()
            if answer:
                self.engine.push(answer)
            if not data and not answer and not self.host.broker.runnable:
                return

    def attach_sender(
        self,
        address: str,
        name: str = "raw-sender",
        terminus: Terminus | None = None,
        *,
        mine: Terminus | None = None,
        mode: int = MIXED,
    ) -> LinkEnd:
        end = self.engine.new_link(name, sender=True, session=self.session)
        end.owner = _Owner(self, end)
        end.open(mine or source("raw"), terminus or target(address), mode=mode)
        self.turn()
        return end

    def attach_receiver(
        self,
        address: str,
        *,
        name: str = "raw-receiver",
        credit: int = 100,
        mode: int = MIXED,
        max_message_size: int = 0,
        terminus: Terminus | None = None,
        settles_second: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> LinkEnd:
        end = self.engine.new_link(name, sender=False, session=self.session)
        end.owner = _Owner(self, end)
        end.set_limit(max_message_size)
        lib.pn_link_set_rcv_settle_mode(end.pointer, int(settles_second))
        end.open(terminus or source(address), target("raw"), mode=mode, properties=properties)
        if credit:
            end.flow(credit)
        self.turn()
        return end

    def deliveries(self, end: LinkEnd) -> list[tuple[Any, bytes]]:
        self.turn()
        return self.received.pop(id(end), [])

    def accept(self, delivery: Any, *, settled: bool = True) -> None:
        update(delivery, ACCEPTED)
        if settled:
            settle(delivery)

    def outcome(self, delivery: Any, outcome: Outcome) -> None:
        if outcome.state == MODIFIED:
            give(delivery, outcome)
            settle(delivery)
        else:
            update(delivery, outcome.state)
            settle(delivery)

    def is_settled(self, delivery: Any) -> bool:
        return bool(is_settled(delivery))

    def send_part(self, end: LinkEnd, data: bytes) -> None:
        self.partial = lib.pn_delivery(end.pointer, (4, _buffer))
        lib.pn_link_send(end.pointer, data, len(data))

    def abort(self, end: LinkEnd) -> None:
        lib.pn_delivery_abort(self.partial)

    def end_session(self) -> None:
        lib.pn_session_close(self.session.pointer)

    def peer_opened(self) -> None:
        pass

    def peer_closed(self, error: PeerError | None) -> None:
        self.close_error = error

    def peer_attached(self, end: LinkEnd) -> None:
        pass

    def peer_retires(self, retiring: Any) -> None:
        pass


class _Owner:
    def __init__(self, client: RawClient, end: LinkEnd) -> None:
        self.client = client
        self.end = end

    def delivery_changed(self, delivery: Any) -> None:
        if not self.end.is_sender:
            payload = self.end.take(delivery)
            if payload is not None:
                self.client.received.setdefault(id(self.end), []).append((delivery, payload))

    def flowed(self) -> None:
        pass

    def detached(self, closed: bool, error: PeerError | None) -> None:
        self.client.detached[self.end.name] = error.condition if error else ""
        self.client.errors[self.end.name] = error
        self.end.end(closed=closed)

    def lost(self) -> None:
        pass


_buffer = ffi.new("char[]", b"tag!")
