"""Queue replication of one broker: the streams of its queues to replicas elsewhere, and its own
replicas, with the connections, the log and the clock of the node around them.

It has two moments in a turn. Before the log of the turn is closed, what sources have sent is
applied (`apply`); when it is closed, and as much of it committed as is, replicas are sent what
there is (`stream`). Knows who is connected only by what the node tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from qpidha.broker.queues.queue import ANY_NUMBER
from qpidha.ha.channels import QUEUE_STREAMS, Channels
from qpidha.model.effects import Announce
from qpidha.model.errors import InvalidArgument, NotAllowed, ProtocolViolation
from qpidha.model.event_codes import REPLICA_NOT_SERVED
from qpidha.model.event_log import LinkChange
from qpidha.model.events import ConnectionKind
from qpidha.model.features import QUEUE_REPLICATION
from qpidha.model.principal import Action, ObjectType
from qpidha.model.records import LifeStarted
from qpidha.model.url import parse_url
from qpidha.replicas.replica import Replicas
from qpidha.replicas.source import Home, Sources
from qpidha.replicas.wire import Confirm, Follow, Held, decode, encode
from qpidha.store.log import end_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from qpidha.broker.broker import Broker
    from qpidha.broker.queues.queue import Queue
    from qpidha.ha.cluster import Cluster
    from qpidha.ha.pending import PendingAcknowledgements, Waiter
    from qpidha.model.principal import AccessControl
    from qpidha.model.settings import Settings
    from qpidha.replicas.wire import Message
    from qpidha.store.log import Log


class Node(Protocol):
    """The node, as far as queue replication sees it."""

    settings: Settings
    broker: Broker
    log: Log
    cluster: Cluster | None
    pending: PendingAcknowledgements
    streams: Any
    effects: Any
    now: int
    stopping: bool

    @property
    def serving(self) -> bool:
        """Whether this broker decides, and clients may change things."""

    @property
    def access(self) -> AccessControl:
        """Access control."""

    def dial(self, host: str, port: int, encrypted: bool) -> int:
        """Open a connection to another broker."""

    def hang_up(self, connection_id: int) -> None:
        """Close one, or give up dialling."""

    def wake(self, connection: Any) -> None:
        """Collect this connection's output at the end of the turn."""

    def open_properties(self, connection: Any) -> dict[str, object]:
        """Return what we open a connection with."""

    def when_committed(self, sequence: int, waiter: Waiter, item: object) -> None:
        """Call `waiter.on_committed(item)` when `sequence` is committed."""


class StreamChannels(Channels):
    """Channels to and from brokers that may be no members of our cluster."""

    def __init__(
        self,
        check: Callable[[], None],
        opened: Callable[[Any], None],
        on_message: Callable[[int, Any], None],
    ) -> None:
        super().__init__(opened, on_message, decode)
        self._check = check
        """Raises where nobody may have a stream."""

    def attached(self, link: Any) -> None:
        """One of the two links is there, unless it is refused."""
        if link.connection.kind is not ConnectionKind.OUTGOING:
            self._check()
        super().attached(link)

    def detached(self, link: Any) -> None:
        """One of the links is gone, or was refused."""
        connection = link.connection
        if not connection.closed:
            connection.error = connection.error or link.error
            self.forget(connection.connection_id)
            connection.close(None)


class QueueReplication:
    """All of it, of one broker."""

    def __init__(self, node: Node, system_id: str, nonce: str) -> None:
        self.node = node
        self._system_id = system_id
        self._nonce = nonce
        """Names this process, and its life as a broker alone."""
        self._roles = 0
        """How often it has begun to decide."""
        self._served = False
        """Whether this broker was serving in the last turn."""
        self._is_alive = False
        """Whether the log says that this life has begun."""
        self.has_more = False
        """Whether another turn has something to do at once."""
        self.channels = StreamChannels(self._check_streams, self._opened, self._received)
        self.sources = Sources(self, self._send, self._close, self._announce)
        self.replicas = Replicas(self, self._send, self._announce)

    @property
    def is_allowed(self) -> bool:
        """Whether single queues may be replicated: always so in a cluster."""
        settings = self.node.settings
        return settings.ha_queue_replication or settings.ha_cluster

    # -- the turn ---------------------------------------------------------------------------------

    def apply(self) -> None:
        """Apply what sources have sent."""
        self.has_more = False
        if not self.node.streams.frozen:
            self._begin_life()
            self.has_more = self.replicas.turn()

    def stream(self) -> None:
        """Send replicas what there is."""
        serves = self.node.serving
        if serves is not self._served:
            self._served = serves
            self.sources.want_all()
        if self.sources.wanting and self.sources.turn():
            self.has_more = True

    @property
    def next_deadline(self) -> int:
        """When to have a turn at the latest; 0 for never."""
        return 0 if self.node.streams.frozen else self.replicas.next_deadline

    def _begin_life(self) -> None:
        """Write down that a broker alone appends from here on: after a crash it may give the last
        sequences once more.
        """
        broker = self.node.broker
        if self._is_alive or not self._records_lives:
            return
        if self.is_allowed and QUEUE_REPLICATION in broker.usable and broker.log_writer is not None:
            record = LifeStarted(self._nonce)
            broker.apply(broker.log_writer.append(record), record)
            self._is_alive = True

    @property
    def _records_lives(self) -> bool:
        return self.node.cluster is None and self.node.broker.log_writer is not None

    def new_role(self) -> None:
        """This broker has begun to decide."""
        self._roles += 1

    # -- what sources ask -------------------------------------------------------------------------

    @property
    def broker(self) -> Broker:
        """The queues."""
        return self.node.broker

    @property
    def now(self) -> int:
        """The time of this turn, in ns."""
        return self.node.now

    @property
    def flow_messages(self) -> int:
        """How many messages may be on their way to a replica; 0 for any number."""
        return self.node.settings.ha_flow_messages

    @property
    def committed(self) -> int:
        """Up to where the log is committed, and clients have been told."""
        return self.node.pending.committed

    def home_of(self, queue: Queue) -> Home:
        """Return where the messages of a queue are recorded."""
        if queue.logged:
            return Home.LOG
        return Home.MEMORY if queue.local_writer is None else Home.LOCAL

    def end_of(self, queue: Queue) -> int:
        """Return the place to wait for with what has happened on a queue so far."""
        if queue.logged:
            return self.node.log.end
        writer = queue.local_writer
        return queue.waits_for if writer is None else max(writer.end, queue.waits_for)

    def committed_of(self, queue: Queue) -> int:
        """Return up to which place what happened on a queue is committed."""
        if self.home_of(queue) is Home.LOCAL:
            return self.node.broker.local_committed
        return self.committed

    def lineage(self, queue: Queue, position: int) -> str:
        """Return of which history a position is."""
        if not queue.logged:
            here = f"process:{self._nonce}:{self._roles}"
            return here if queue.local_writer is None else f"local:{self._system_id}"
        epoch = self.node.log.epoch_of(position)
        if epoch:
            return f"epoch:{epoch}"
        life = [life for first, life in self.node.broker.lives if first <= position]
        return f"life:{life[-1] if life else ''}"

    def end_of_lineage(self, queue: Queue, lineage: str) -> int:
        """Return up to where this broker has a history; -1 if it has nothing of it."""
        log, lives = self.node.log, self.node.broker.lives
        kind, _, name = lineage.partition(":")
        if kind == "process":
            # A queue that came into the log meanwhile has kept the numbers of its messages.
            here = f"process:{self._nonce}:{self._roles}"
            return ANY_NUMBER if lineage == here else -1
        if kind == "local":
            if not queue.logged:
                is_here = queue.local_writer is not None and name == self._system_id
                return queue.last_number if is_here else -1
            # It came into the log, from the broker that had it, and kept its numbers.
            return queue.own_numbers if name == queue.keeper else -1
        if not queue.logged:
            return -1
        if kind == "epoch":
            epochs = [epoch for epoch, _ in log.history if str(epoch) == name]
            return end_of(log.history, log.last, epochs[0]) if epochs else -1
        end = log.history[0][1] - 1 if log.history else log.last
        for first, life in reversed(lives):
            if life == name:
                return end
            end = first - 1
        return end if not name else -1

    # -- what replicas ask ------------------------------------------------------------------------

    @property
    def runs_replicas(self) -> bool:
        """Whether this broker decides, and may replicate single queues."""
        return self.is_allowed and self.node.serving and not self.node.stopping

    @property
    def redial(self) -> int:
        """After how many ns a source is dialled again."""
        return self.node.settings.link_maintenance_interval

    @property
    def dial_timeout(self) -> int:
        """How many ns a source has to answer."""
        return max(self.node.settings.link_heartbeat_interval, 1_000_000_000)

    def dial(self, host: str, port: int, encrypted: bool) -> int:
        """Open a connection and return its id."""
        return self.node.dial(host, port, encrypted)

    def hang_up(self, connection_id: int) -> None:
        """Close a connection."""
        self.node.hang_up(connection_id)

    def when_committed(self, sequence: int, waiter: Waiter, item: object) -> None:
        """Call `waiter.on_committed(item)` when the log is committed up to `sequence`."""
        self.node.when_committed(sequence, waiter, item)

    # -- connections ------------------------------------------------------------------------------

    def owns(self, connection_id: int) -> bool:
        """Whether a connection was opened to a source."""
        return connection_id in self.replicas.by_connection

    def open(self, connection: Any) -> None:
        """Log in at a source, and attach both links."""
        settings = self.node.settings
        connection.open(
            self._system_id,
            self.node.open_properties(connection),
            mechanism=settings.ha_mechanism,
            username=settings.ha_username,
            password=settings.ha_password,
            hostname=connection.principal.address.rpartition(":")[0],
            heartbeat=settings.link_heartbeat_interval,
            mutual=not settings.anonymous,
        )
        for sender, name in ((True, "ask"), (False, "hear")):
            connection.attach(
                QUEUE_STREAMS,
                sender=sender,
                service=self.channels,
                name=f"qpidha.queue.{self._system_id}.{-connection.connection_id}.{name}",
            )

    def _opened(self, connection: Any) -> None:
        if connection.kind is ConnectionKind.OUTGOING:
            self.replicas.opened(connection.connection_id)

    def _check_streams(self) -> None:
        if not self.is_allowed:
            raise NotAllowed(
                "the source lets nobody have replicas of its queues",
                reason="its ha-queue-replication is no",
                hint="set ha-queue-replication=yes there and restart it",
                event_code=REPLICA_NOT_SERVED,
            )

    def _received(self, connection_id: int, message: Message) -> None:
        connection = self.node.streams.by_id[connection_id]
        if connection.kind is ConnectionKind.OUTGOING:
            self.replicas.received(connection_id, message)
            return
        try:
            self._asked(connection, message)
        except ProtocolViolation as error:
            self.channels.forget(connection_id)
            connection.close(error)

    def _asked(self, connection: Any, message: Message) -> None:
        connection_id = connection.connection_id
        match message:
            case Follow():
                if self._records_lives and not self._is_alive:
                    raise ProtocolViolation("this broker has just been started", hint="ask again")
                user = connection.principal
                peer = f"{connection.remote_container} at {user.address}"
                self.sources.follow(
                    connection_id,
                    peer,
                    message,
                    lambda queue: self.node.access.check(
                        user, Action.CONSUME, ObjectType.QUEUE, queue, {"browse": True}
                    ),
                )
            case Held():
                self.sources.hold(connection_id, message)
            case Confirm():
                self.sources.confirm(connection_id, message)
            case _:
                raise ProtocolViolation("that is for a replica to hear")

    def lost(self, connection_id: int, reason: str) -> None:
        """A connection is gone."""
        self.channels.forget(connection_id)
        self.sources.lost(connection_id)
        self.replicas.lost(connection_id, reason)

    def _send(self, connection_id: int, message: Message) -> None:
        self.channels.send(connection_id, encode(message))
        self.node.streams.woken[connection_id] = None

    def _close(self, connection_id: int, error: Any) -> None:
        connection = self.node.streams.by_id.get(connection_id)
        if connection is not None:
            connection.close(error)
            self.node.wake(connection)

    def _announce(
        self, level: str, text: str, event_code: str, about: LinkChange | None = None
    ) -> None:
        self.node.effects.append(Announce(level, "HA", text, {}, about, event_code))

    # -- management -------------------------------------------------------------------------------

    def check_source(self, url: str) -> str:
        """Return the addresses of a source as they are recorded; raise for what names none."""
        self.check_allowed()
        try:
            parsed = parse_url(url)
        except ValueError as error:
            raise InvalidArgument(
                f"{url!r} names no broker", reason=str(error), hint="give host:port"
            ) from error
        if not parsed:
            raise InvalidArgument("no broker is named", hint="give host:port")
        if parsed.user or parsed.password:
            raise InvalidArgument(
                "the source's URL has a user",
                reason="a broker logs in at another one as ha-username",
                hint="leave the user out",
            )
        return str(parsed)

    def check_allowed(self) -> None:
        """Raise NotAllowed where single queues are not to be replicated."""
        if not self.is_allowed:
            raise NotAllowed(
                "this broker has no replicas of queues elsewhere",
                reason="ha-queue-replication is no",
                hint="set ha-queue-replication=yes and restart it",
                event_code=REPLICA_NOT_SERVED,
            )

    def report(self) -> dict[str, Any]:
        """Tell of both kinds, where there are some."""
        found: dict[str, Any] = {"replicas": self.replicas.report()}
        found["replica_streams"] = list(self.sources.report())
        return found
