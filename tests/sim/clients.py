"""Clients: a sender that re-sends what is in doubt, and a receiver that waits for settlement; both
find the primary.

A client is connected to one broker at a time, goes where it is redirected and else from address to
address. What it sends over a connection is a *transmission* with a number of its own: a message
that is sent again, because its outcome was not known when the connection was lost, is another
transmission of the same message. The history hears of everything. How it speaks is the transport's:
`ModelTransport` here, `WireTransport` in wire_client.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Protocol

from qpidha.amqp.peer.terminus import ACCEPTED, REJECTED, RELEASED, PeerError
from tests.sim.machine import Cluster, Machine, Socket, reach
from tests.sim.world import MILLISECOND, Stream, World

PATIENCE = 400 * MILLISECOND
"""How long a broker may take to let a client in before the next one is tried."""
RECEIVER, SENDER = "receiver", "sender"


class Transport(Protocol):
    """One connection of a client."""

    def attach(self, kind: str, address: str, options: dict[str, Any], credit: int) -> None:
        """Attach the client's one link, making the queue if there is none."""

    def send(self, number: int, payload: bytes) -> None:
        """Send one message."""

    def commit(self, number: int, queues: tuple[str, ...], payload: bytes) -> None:
        """Post one message to each of several queues, in one transaction."""

    def credit(self) -> int:
        """Return how many messages may be sent."""

    def disposition(self, number: int, state: int) -> None:
        """Say what became of a message, and wait for the broker to settle it."""

    def flow(self, credit: int) -> None:
        """Ask for more messages."""

    def close(self) -> None:
        """End the connection; the client hears nothing more of it."""


class Client:
    """What senders and receivers share: the way to the primary."""

    kind = ""

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        history: Any,
        host: str,
        address: str,
        options: dict[str, Any],
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.history = history
        self.host = host
        self.address = address
        self.options = options
        self.transport: Transport | None = None
        self.target: Machine | None = None
        self.hint: Machine | None = None
        self.attached = False
        self.epoch = 0
        """Of the broker that let us in, as it was then."""
        self.since = 0
        """When it did."""
        self.stopped = False
        self.generation = 0
        self.credit = 0

    def connect(self) -> None:
        """Try the next broker."""
        if self.stopped:
            return
        self.generation += 1
        self.attached = False
        machines = self.cluster.machines
        before = machines.index(self.target) if self.target is not None else -1
        self.target = self.hint or machines[(before + 1) % len(machines)]
        self.hint = None
        make = self.history.make_transport
        self.transport = make(self, self.target)
        self.world.at(PATIENCE, self._give_up, self.generation)

    def _give_up(self, generation: int) -> None:
        if generation == self.generation and not self.attached and self.transport is not None:
            self.transport.close()
            self.ended("no answer", None)

    def disconnect(self) -> None:
        """Leave without a word, and come again."""
        if self.transport is not None:
            self.transport.close()
            self.ended("left", None)

    def stop(self) -> None:
        """Leave for good."""
        self.stopped = True
        self.disconnect()

    # What a transport tells.

    def opened(self) -> None:
        """The broker let us in: make what is needed there, as applications do, and attach."""
        generation = self.generation
        self.history.prepare(self.target, lambda done: self._prepared(generation, done))

    def _prepared(self, generation: int, done: bool) -> None:
        if generation != self.generation or self.transport is None:
            return
        if done:
            self.transport.attach(self.kind, self.address, self.options, self.credit)
        else:
            self.disconnect()

    def link_attached(self) -> None:
        """The link is there."""
        assert self.target is not None
        self.attached = True
        self.epoch = self.target.node.log.epoch
        self.since = self.world.now

    def link_detached(self, condition: str) -> None:
        """The broker ended the link."""
        self.disconnect()

    def ended(self, reason: str, error: PeerError | None) -> None:
        """The connection is gone."""
        self.transport = None
        self.attached = False
        self.generation += 1
        if error is not None and error.info.get("network-host"):
            self.hint = self.cluster.by_name.get(str(error.info["network-host"]))
        self.lost()
        pause = (
            MILLISECOND
            if self.hint is not None
            else self.world.between(2 * MILLISECOND, 60 * MILLISECOND)
        )
        if not self.stopped:
            self.world.at(pause, self._again, self.generation)

    def _again(self, generation: int) -> None:
        if generation == self.generation and self.transport is None:
            self.connect()

    def lost(self) -> None:
        """What was under way is in doubt."""


class Sender(Client):
    """Sends messages in order, each until it is accepted."""

    kind = SENDER

    def __init__(
        self, *args: Any, window: int, pause: int, durable: bool, queues: tuple[str, ...]
    ) -> None:
        super().__init__(*args)
        self.window = window
        self.pause = pause
        self.durable = durable
        self.queues = queues
        """Where its messages go, as routed."""
        self.is_transactional = False
        """Whether each message goes to its queues in a transaction of its own."""
        self.hashed_to: tuple[str, ...] = ()
        """The queues of which each message goes to one, if an exchange spreads them."""
        self.ttl = self.delay = 0
        """How long its messages live, and how long they wait, in ms; 0 for ever, and not at all."""
        self.write: Any = None
        """Writes its messages, if they are not the usual ones."""
        self.has_ids = False
        """Whether a message that is sent again can be known again."""
        self.repeat: Callable[[int], int] | None = None
        """Says, when a message is accepted, which one to send again; 0 for none. None if each
        is sent until it is accepted.
        """
        self.stutter: Callable[[], bool] | None = None
        """Says whether to send the last message again before it is accepted."""
        self.level_of: Callable[[str], int] | None = None
        """Says which priority the message with a key has; None if no message has any."""
        self.value_of: Callable[[str], str] | None = None
        """Says of which value the message with a key is; None if no message is of any."""
        self.waiting: deque[int] = deque()
        """Numbers of the messages that are to be sent, or sent again."""
        self.unsettled: dict[int, int] = {}
        """Transmission -> message."""
        self.messages = 0
        self.transmissions = 0
        self.accepted = 0
        self._due = False

    @property
    def is_done(self) -> bool:
        """Whether everything is accepted."""
        return not self.waiting and not self.unsettled

    def produce(self, count: int) -> None:
        """Have more to send."""
        self.waiting.extend(range(self.messages + 1, self.messages + count + 1))
        self.messages += count
        self.pump()

    def link_attached(self) -> None:
        """Send."""
        super().link_attached()
        self.pump()

    def credited(self) -> None:
        """Send."""
        self.pump()

    def pump(self) -> None:
        """Send something soon."""
        if not self._due and self.waiting and self.attached:
            self._due = True
            self.world.at(self.world.between(self.pause // 10, self.pause), self._pump)

    def _pump(self) -> None:
        self._due = False
        transport = self.transport
        if transport is None or not self.attached:
            return
        count = self.window if self.world.quiet else self.world.rng.randint(1, self.window)
        while (
            count and self.waiting and len(self.unsettled) < self.window and transport.credit() > 0
        ):
            count -= 1
            message = self.waiting.popleft()
            self._send(transport, message)
            if self.stutter is not None and self.stutter():
                self.waiting.appendleft(message)
        if len(self.unsettled) < self.window:
            self.pump()

    def _send(self, transport: Transport, message: int) -> None:
        self.transmissions += 1
        number = self.transmissions
        self.unsettled[number] = message
        payload = self.history.sent(self, message, number)
        if self.is_transactional:
            transport.commit(number, self.queues, payload)
        else:
            transport.send(number, payload)

    def outcome(self, number: int, state: int) -> None:
        """The broker said what became of a transmission."""
        message = self.unsettled.pop(number, None)
        if message is None:
            return
        if state == ACCEPTED:
            self.accepted += 1
            self.history.accepted(self, message, number)
            again = 0 if self.repeat is None else self.repeat(message)
            if again:
                self.waiting.append(again)
        elif state in (REJECTED, RELEASED):
            self.history.refused(self, message, number)
            self.waiting.append(message)
        else:
            self.history.in_doubt(self, message, number)
            self.waiting.append(message)
        self.pump()

    def lost(self) -> None:
        """Everything without an outcome is sent again, in order."""
        doubtful = list(self.unsettled.values())
        for number, message in self.unsettled.items():
            self.history.in_doubt(self, message, number)
        self.unsettled.clear()
        self.waiting.extendleft(reversed(doubtful))


class Receiver(Client):
    """Takes messages and mostly accepts them."""

    kind = RECEIVER

    def __init__(
        self, *args: Any, credit: int, think: int, moods: tuple[float, float, float]
    ) -> None:
        super().__init__(*args)
        self.credit = credit
        self.think = think
        self.moods = moods
        """How likely it releases, rejects, or never answers for a message."""
        self.outcome = ACCEPTED
        self.limit = -1
        """How many it takes; below 0 without end."""
        self.open_deliveries: dict[int, str] = {}
        self.last_numbers: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """Group -> sender -> the number of the last message that came first on this connection;
        where there are no groups it is one.
        """
        self.last_token = (0, 0)
        """The fencing token of the last message on this connection, where there are some."""
        self.on_message: Any = None

    def message(
        self, number: int, payload: bytes, count: int, token: tuple[int, int] | None = None
    ) -> None:
        """A message came."""
        if token is not None:
            self.history.fenced(self, token)
        key = self.history.delivered(self, payload, count)
        self.world.at(self.world.between(0, self.think), self._decide, self.generation, number, key)

    def _decide(self, generation: int, number: int, key: str) -> None:
        if generation != self.generation or self.transport is None:
            return
        roll = 1.0 if self.world.quiet else self.world.rng.random()
        releases, rejects, ignores = self.moods
        if roll < releases:
            self.transport.disposition(number, RELEASED)
        elif roll < releases + rejects:
            self.history.rejected(self, key)
            self.transport.disposition(number, REJECTED)
        elif roll < releases + rejects + ignores:
            return
        else:
            self.history.consumed(self, key)
            self.open_deliveries[number] = key
            self.transport.disposition(number, self.outcome)
        if self.limit < 0:
            self.transport.flow(1)

    def settled(self, number: int) -> None:
        """The broker has it that we are done with a message."""
        key = self.open_deliveries.pop(number, None)
        if key is not None:
            self.history.settled(self, key)

    def lost(self) -> None:
        """What was not settled may come again."""
        self.open_deliveries.clear()
        self.last_numbers.clear()
        self.last_token = (0, 0)


class Mover(Receiver):
    """Takes messages, and puts each on another queue, in one transaction; at the model depth."""

    def __init__(self, *args: Any, target_queue: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self.target_queue = target_queue

    def _decide(self, generation: int, number: int, key: str) -> None:
        if generation != self.generation or self.transport is None:
            return
        if self.world.chance(self.moods[0]):
            self.transport.disposition(number, RELEASED)
        else:
            self.history.moving(self, key)
            self.open_deliveries[number] = key
            self.transport.move(number, self.target_queue)  # type: ignore[attr-defined]
        self.transport.flow(1)

    def unmoved(self, number: int) -> None:
        """The broker would not commit: nothing was done."""
        if self.open_deliveries.pop(number, None) is not None and self.transport is not None:
            self.transport.disposition(number, RELEASED)

    def settled(self, number: int) -> None:
        """The broker has it that the message was moved."""
        key = self.open_deliveries.pop(number, None)
        if key is not None:
            self.history.brought(self, key)


class ModelTransport:
    """A connection to a model node."""

    def __init__(self, client: Any, target: Machine) -> None:
        self.client = client
        self.host = client.host
        self.world: World = client.world
        other = Socket(target, 0)
        self.stream = self.world.join(self, other)
        self.alive = True
        self.given = -1
        """How many messages may be sent; below 0 they are not counted."""
        reach(self.world, self.stream, self, other, lambda: self._say("open", {}))

    def _say(self, *words: Any) -> None:
        if self.alive:
            self.world.send(self.stream, self, words)

    def attach(self, kind: str, address: str, options: dict[str, Any], credit: int) -> None:
        """Attach link 1."""
        self._say("attach", 1, kind, address, options, credit)

    def send(self, number: int, payload: bytes) -> None:
        """Send one message."""
        self.given -= self.given > 0
        self._say("transfer", 1, number, payload)

    def commit(self, number: int, queues: tuple[str, ...], payload: bytes) -> None:
        """Send it as one word."""
        self._say("commit", 1, number, queues, payload)

    def move(self, number: int, queue: str) -> None:
        """Have a message taken and put on another queue, in one transaction."""
        self._say("move", 1, number, queue)

    def credit(self) -> int:
        """Return what is left; most queues always give some."""
        return self.given if self.given >= 0 else 1000

    def disposition(self, number: int, state: int) -> None:
        """Say what became of a message."""
        self._say("disposition", 1, number, state)

    def flow(self, credit: int) -> None:
        """Ask for more."""
        self._say("flow", 1, credit)

    def close(self) -> None:
        """End it."""
        if self.alive:
            self.alive = False
            self.world.close(self.stream, self)

    def stream_data(self, stream: Stream, chunk: Any) -> None:
        """The broker said something."""
        if not self.alive:
            return
        client, (verb, *values) = self.client, chunk
        if verb == "opened":
            client.opened()
        elif verb == "attached":
            client.link_attached()
        elif verb == "credit":
            self.given = max(self.given, 0) + values[1]
            client.credited()
        elif verb == "detached":
            client.link_detached(values[1])
        elif verb == "accepted":
            client.outcome(values[1], ACCEPTED)
        elif verb == "rejected":
            client.outcome(values[1], REJECTED)
        elif verb == "message":
            client.message(*values[1:])
        elif verb == "settled":
            client.settled(values[1])
        elif verb == "unmoved":
            client.unmoved(values[1])
        elif verb == "closed":
            self.close()
            client.ended(values[0], PeerError(values[0], "", values[1]))

    def stream_lost(self, stream: Stream, reason: str) -> None:
        """The connection is gone."""
        if self.alive:
            self.alive = False
            self.client.ended(reason, None)
