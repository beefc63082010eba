"""Wire client: a client's connection in real AMQP bytes, on the same engine as the brokers'.

It is thinner than `amqp.connection` on purpose: no security layer, one session, one link, and
outcomes of a receiver that are sent unsettled, so that it hears when the broker settles them.
"""

from __future__ import annotations

from typing import Any

from qpidha.amqp.peer.engine import Engine
from qpidha.amqp.peer.links import LinkEnd, Scratch, is_settled, remote_state, settle, update
from qpidha.amqp.peer.terminus import ACCEPTED, MODIFIED, PeerError, source, target
from qpidha.amqp.server.outgoing import FENCING_TOKEN
from qpidha.broker.queues.dispatch import FENCING
from qpidha.model.errors import QpidHaError
from qpidha.model.message_view import delivery_annotations, header
from tests.sim.machine import Machine, Socket, reach
from tests.sim.wire_transactions import WireTransactions
from tests.sim.world import MILLISECOND, Stream, World


class WireTransport:
    """A connection in bytes."""

    def __init__(self, client: Any, machine: Machine) -> None:
        self.client = client
        self.host = client.host
        self.world: World = client.world
        self.alive = True
        self.error: PeerError | None = None
        self.end: LinkEnd | None = None
        self.kind = ""
        self.deliveries: dict[Any, int] = {}
        self.numbers: dict[int, Any] = {}
        self.last = 0
        self.transactions: WireTransactions | None = None
        self.told: list[tuple[Any, ...]] = []
        """What the engine said, for the client to hear when the engine is done: it may end the
        connection.
        """
        self.engine = Engine(
            self, is_server=False, max_frame_size=65536, channel_max=10, scratch=Scratch()
        )
        self.engine.set_idle_timeout(
            2 * client.cluster.settings.link_heartbeat_interval // MILLISECOND
        )
        self.engine.open(client.host, {"product": "simulator"}, hostname=machine.host)
        self.session = self.engine.new_session()
        self._flushing = False
        self._ticking = 0
        other = Socket(machine, 0)
        self.stream = self.world.join(self, other)
        reach(self.world, self.stream, self, other, self._connected)

    def _connected(self) -> None:
        self._flush()
        self._tick()

    # -- what the client asks for -----------------------------------------------------------------

    def attach(self, kind: str, address: str, options: dict[str, Any], credit: int) -> None:
        """Attach the link."""
        self.kind = kind
        self.end = self.engine.new_link(
            f"{self.host}-link", sender=kind == "sender", session=self.session
        )
        self.end.owner = self
        wanted = (
            {"durable": True, **options.get("arguments", {})}
            if options.get("durable")
            else dict(options.get("arguments", {}))
        )
        if options.get("alternate"):
            wanted["alternate-exchange"] = options["alternate"]
        node = {"properties": wanted, "capabilities": ["create-on-demand"]}
        if kind == "sender":
            self.end.open(source(self.host), target(address, **node))
        else:
            self.end.open(source(address, **node), target(self.host))
            self.end.flow(credit)
        self.flush_soon()

    def send(self, number: int, payload: bytes) -> None:
        """Send one message."""
        if self.end is not None:
            self.deliveries[self.end.send(payload)] = number
            self.flush_soon()

    def commit(self, number: int, queues: tuple[str, ...], payload: bytes) -> None:
        """Post one message to each of several queues, in one transaction."""
        if self.transactions is None:
            self.transactions = WireTransactions(self)
        self.transactions.commit(number, queues, payload)
        self.flush_soon()

    def credit(self) -> int:
        """What the broker allows."""
        return self.end.credit() if self.end is not None and self.end.pointer is not None else 0

    def disposition(self, number: int, state: int) -> None:
        """Say what became of a message, unsettled."""
        delivery = self.numbers.get(number)
        if delivery is not None:
            update(delivery, state)
            self.flush_soon()

    def flow(self, credit: int) -> None:
        """Ask for more."""
        if self.end is not None and self.end.pointer is not None:
            self.end.flow(credit)
            self.flush_soon()

    def close(self) -> None:
        """End it without a word."""
        if self.alive:
            self.alive = False
            self.world.close(self.stream, self)
            self.world.at(0, self._free)

    # -- bytes ------------------------------------------------------------------------------------

    def stream_data(self, stream: Stream, chunk: Any) -> None:
        """The broker sent bytes."""
        if not self.alive:
            return
        try:
            self.engine.push(chunk)
        except QpidHaError as error:
            self.error = PeerError("amqp:framing-error", error.text)
            self.told.append(("closed",))
        self._tell()
        self.flush_soon()

    def stream_lost(self, stream: Stream, reason: str) -> None:
        """The connection is gone."""
        if self.alive:
            self.alive = False
            self.world.at(0, self._free)
            self.client.ended(reason, self.error)

    def _tell(self) -> None:
        told, self.told = self.told, []
        for verb, *values in told:
            if not self.alive:
                return
            if verb == "closed":
                self.close()
                self.client.ended("closed", self.error)
            else:
                getattr(self.client, verb)(*values)

    def flush_soon(self) -> None:
        """Send what there is to send."""
        if not self._flushing and self.alive:
            self._flushing = True
            self.world.at(10_000, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self.alive:
            data = b"".join(self.engine.pull())
            if data:
                self.world.send(self.stream, self, data)

    def _tick(self) -> None:
        if not self.alive:
            return
        following = 0
        try:
            following = self.engine.tick(self.world.now // MILLISECOND)
            self.engine.hand_out()
        except QpidHaError as error:
            self.error = PeerError(error.condition, error.text)
            self.told.append(("closed",))
        self._tell()
        if self.alive:
            self._flush()
            if following:
                self.world.at(
                    max(following * MILLISECOND - self.world.now, MILLISECOND), self._tick
                )

    def _free(self) -> None:
        self.engine.free()
        self.numbers.clear()
        self.deliveries.clear()

    # -- what the engine tells --------------------------------------------------------------------

    def peer_opened(self) -> None:
        """The broker let us in, or will say why not."""
        if "amqp:connection-establishment-failed" not in self.engine.remote_properties():
            self.told.append(("opened",))

    def peer_closed(self, error: PeerError | None) -> None:
        """The broker ended it."""
        self.error = error
        self.told.append(("closed",))

    def peer_attached(self, end: LinkEnd) -> None:
        """The link was answered; a refused one is ended at once."""
        if end is not self.end:
            return
        peer = end.remote_target() if end.is_sender else end.remote_source()
        if peer.kind:
            self.told.append(("link_attached",))

    def peer_retires(self, retiring: Any) -> None:
        pass

    def delivery_changed(self, delivery: Any) -> None:
        """A message, an outcome or a settlement came."""
        assert self.end is not None
        if self.kind == "sender":
            state = remote_state(delivery)
            if delivery in self.deliveries and (
                is_settled(delivery) or ACCEPTED <= state <= MODIFIED
            ):
                number = self.deliveries.pop(delivery)
                settle(delivery)
                self.told.append(("outcome", number, state))
            return
        if delivery in self.deliveries:
            if is_settled(delivery):
                number = self.deliveries.pop(delivery)
                del self.numbers[number]
                settle(delivery)
                self.told.append(("settled", number))
            return
        payload = self.end.take(delivery)
        if payload is not None:
            self.last += 1
            self.deliveries[delivery] = self.last
            self.numbers[self.last] = delivery
            count = header(payload).get("delivery_count", 0)
            self.told.append(("message", self.last, payload, count, self._token_of(payload)))

    def _token_of(self, payload: bytes) -> tuple[int, int] | None:
        """Read a fencing token, where the queue gives some."""
        if not self.client.options.get("arguments", {}).get(FENCING):
            return None
        epoch, number = delivery_annotations(payload)[FENCING_TOKEN]
        return int(epoch), int(number)

    def flowed(self) -> None:
        """Credit came."""
        if self.kind == "sender":
            self.told.append(("credited",))

    def detached(self, closed: bool, error: PeerError | None) -> None:
        """The broker ended the link."""
        end, self.end = self.end, None
        if end is not None:
            end.end(closed=closed)
        self.told.append(("link_detached", error.condition if error else ""))

    def lost(self) -> None:
        """The session or the connection ended."""
        self.end = None
