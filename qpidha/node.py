"""The node: one broker, whole, without a socket, a disk or a clock. `step(events, now)` returns effects.

A step is one turn of somebody's loop: it takes everything that happened, lets connections, the broker
model and the HA machine act on it, and then, once, hands out messages, seals the log, replicates, releases
what became safe, and collects what each connection has to send. Effects are in the order in which they
must happen: state is saved before a promise leaves.

This is the only place where all rooms meet. `Node` is the AMQP room's Host, management's Target and the
HA machine's Port. Source: the shape is etcd raft's RawNode and Ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from qpidha.amqp.connection import Connection
from qpidha.amqp.host import Released, Service
from qpidha.amqp.registry import LinkRegistry
from qpidha.amqp.sasl import Users
from qpidha.broker.broker import Broker
from qpidha.ha.channels import REPLICATION, Channels
from qpidha.ha.holds import Holds
from qpidha.ha.in_sync import SavedState
from qpidha.ha.role import Cluster
from qpidha.ha.status import BrokerStatus
from qpidha.ha.wire import Spoken
from qpidha.management.link_pair import LinkPairService
from qpidha.management.local import LocalSession
from qpidha.management.report import cluster_report, standalone_report
from qpidha.management.requests import Requests
from qpidha.management.service import ManagementService
from qpidha.management.target import Answer, Reply
from qpidha.store.log import Log
from qpidha.store.recovery import fold, ha_records, snapshot_messages, snapshot_objects
from qpidha.words.effects import Announce, Connect, Disconnect, Effect, SaveState, SendBytes, Stop
from qpidha.words.errors import (
    ConnectionForced,
    InvariantBroken,
    LimitExceeded,
    NotAllowed,
    ProtocolViolation,
    QpidHaError,
    Redirect,
    Unauthorized,
)
from qpidha.words.events import (
    BytesReceived,
    ConnectionCongested,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    Event,
    StopRequested,
    Tick,
)
from qpidha.words.records import Record
from qpidha.words.settings import Settings
from qpidha.words.url import Address

VERSION = "0.1.0"


class Node:
    """One broker."""

    def __init__(
        self, settings: Settings, *, system_id: str, users: Users, state: bytes, address: str, make_uuid: Callable[[], str]
    ) -> None:
        self.settings = settings
        self.system_id = self.container_id = system_id
        self.users = users
        self.address = address
        self.name = settings.name or address
        self.make_uuid = make_uuid
        self.now = 0
        self.next_deadline = 0
        self.effects: list[Effect] = []
        self.streams: dict[int, Connection] = {}
        self.sessions: dict[int, LocalSession] = {}
        self.woken: dict[int, None] = {}
        self.deadlines: dict[int, int] = {}
        self.first_deadline = 0
        self.opening: dict[int, None] = {}
        self.links = LinkRegistry()
        self.log = Log(settings.log_memory)
        self.holds = Holds()
        self.broker = Broker(settings, None, lambda effect: self.effects.append(effect), make_uuid)
        self.broker.passive = settings.ha_cluster
        self.requests = Requests(self)
        self.channels = Channels(self._channel_opened, self._heard)
        self.services: dict[str, Service] = {
            REPLICATION: self.channels,
            "$management": ManagementService(self.requests, self),
            "/management": LinkPairService(self.requests, self),
        }
        self.dialled = 0
        self.stopping = False
        self.cluster: Cluster | None = None
        if settings.ha_cluster:
            self.cluster = Cluster(
                self, self.log, settings, system_id=system_id, name=self.name, address=address, saved=SavedState.decode(state)
            )  # fmt: skip

    # -- the step ---------------------------------------------------------------------------------

    def start(self, now: int) -> list[Effect]:
        """Begin: call once, before the first step."""
        self.now = now
        if self.cluster is not None:
            self.cluster.start()
        return self._end_turn()

    def step(self, events: Iterable[Event], now: int) -> list[Effect]:
        """Take what happened and return what is to be done."""
        self.now = now
        try:
            for event in events:
                HANDLERS[type(event)](self, event)
            return self._end_turn()
        except InvariantBroken as error:
            self.announce("critical", f"Shutting down: {error.text}")
            self.effects.append(Stop(error.text, failed=True))
            return self._take_effects()

    def _end_turn(self) -> list[Effect]:
        broker, cluster, log = self.broker, self.cluster, self.log
        broker.dispatch(self.now)
        if cluster is not None:
            if log.consumed:
                for sequence in log.consumed:
                    self.holds.release_one(sequence)
                log.consumed.clear()
            cluster.flush(self.now)
        while self.woken:
            woken = list(self.woken)
            self.woken.clear()
            for connection_id in woken:
                self._collect(connection_id)
        # A connection that took as much as one turn gives has its queues waiting for the next one.
        deadline = self.now if broker.dirty else self.first_deadline
        for other in (broker.next_deadline, cluster.next_deadline if cluster is not None else 0):
            if other and (not deadline or other < deadline):
                deadline = other
        self.next_deadline = deadline
        return self._take_effects()

    def _take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def _collect(self, connection_id: int) -> None:
        connection = self.streams.get(connection_id)
        if connection is not None:
            data = connection.output()
            if data:
                self.effects.append(SendBytes(connection_id, data))
            if connection.closed:
                self._drop_connection(connection_id)
                self.effects.append(Disconnect(connection_id))
            return
        session = self.sessions.get(connection_id)
        if session is not None:
            data = session.output()
            if data:
                self.effects.append(SendBytes(connection_id, data))

    # -- events -----------------------------------------------------------------------------------

    def _opened(self, event: ConnectionOpened) -> None:
        connection_id = event.connection_id
        if event.kind is ConnectionKind.LOCAL:
            self.sessions[connection_id] = LocalSession(self.requests, lambda: self.woken.setdefault(connection_id))
            return
        connection = Connection(
            connection_id, self, kind=event.kind, peer=event.peer, identity=event.identity, encrypted=event.encrypted
        )  # fmt: skip
        self.streams[connection_id] = connection
        if event.kind is ConnectionKind.OUTGOING:
            self._open_replication(connection, event.peer)
        self.opening[connection_id] = None
        self._set_deadline(connection_id, connection.tick(self.now))
        self.wake(connection)

    def _bytes(self, event: BytesReceived) -> None:
        connection_id = event.connection_id
        connection = self.streams.get(connection_id)
        if connection is not None:
            connection.receive(event.data)
            self.woken[connection_id] = None
            if connection_id in self.opening and connection.remote_container:
                # Until now it had to hurry up; from now on it has heartbeats.
                del self.opening[connection_id]
                self._set_deadline(connection_id, connection.tick(self.now))
            return
        session = self.sessions.get(connection_id)
        if session is not None:
            session.receive(event.data)
            self.woken[connection_id] = None

    def _congested(self, event: ConnectionCongested) -> None:
        connection = self.streams.get(event.connection_id)
        if connection is not None:
            connection.set_congested(event.congested)

    def _lost(self, event: ConnectionLost) -> None:
        connection_id = event.connection_id
        session = self.sessions.pop(connection_id, None)
        if session is not None:
            session.close()
            return
        connection = self.streams.get(connection_id)
        if connection is not None:
            connection.lost(event.reason)
        self._drop_connection(connection_id, event.reason)

    def _drop_connection(self, connection_id: int, reason: str = "") -> None:
        connection = self.streams.pop(connection_id, None)
        self.deadlines.pop(connection_id, None)
        self.opening.pop(connection_id, None)
        self.woken.pop(connection_id, None)
        self.channels.forget(connection_id)
        if self.cluster is not None:
            reached = connection is not None
            if connection is not None and connection.error is not None:
                reason = f"{connection.error.description} ({connection.error.condition})"
            self.cluster.lost(connection_id, reason or "closed", reached=reached)

    def _tick(self, event: Tick) -> None:
        now = self.now
        for connection_id, deadline in list(self.deadlines.items()):
            connection = self.streams.get(connection_id)
            if connection is not None and now >= deadline:
                self.deadlines[connection_id] = connection.tick(now)
                self.woken[connection_id] = None
        self.first_deadline = min((deadline for deadline in self.deadlines.values() if deadline), default=0)
        self.broker.tick(now)
        if self.cluster is not None:
            self.cluster.tick(now)

    def _set_deadline(self, connection_id: int, deadline: int) -> None:
        # The first of all deadlines may turn out to be one that has moved; that costs a needless tick, once.
        self.deadlines[connection_id] = deadline
        if deadline and (not self.first_deadline or deadline < self.first_deadline):
            self.first_deadline = deadline

    def _stop(self, event: StopRequested) -> None:
        self.shutdown()

    # -- the AMQP room's host ---------------------------------------------------------------------

    @property
    def serving(self) -> bool:
        """Whether clients may change things here."""
        return self.cluster is None or self.cluster.primary is not None

    def admit(self, connection: Connection) -> None:
        """Decide who somebody is, and whether he may come in."""
        if connection.kind is ConnectionKind.OUTGOING:
            return  # we chose to go there
        properties = connection.remote_properties
        claim = "qpid.ha-backup" if "qpid.ha-backup" in properties else "qpid.ha-admin" if "qpid.ha-admin" in properties else ""
        if claim:
            if self.settings.auth and connection.user != self.settings.ha_username:
                raise Unauthorized(
                    f"{connection.user or 'anonymous'} may not use {claim}", hint="log in as the user that ha-username names"
                )
            connection.is_backup = claim == "qpid.ha-backup"
            connection.is_admin = not connection.is_backup
            if connection.is_backup and self.cluster is None:
                raise NotAllowed("this broker is not in a cluster", hint="set ha-cluster=yes")
        elif not self.serving:
            raise self._elsewhere()
        elif self._count_clients() > self.settings.max_connections:
            raise LimitExceeded(f"there are max-connections {self.settings.max_connections} clients already", hint="try again later")

    def _count_clients(self) -> int:
        return sum(
            1 for stream in self.streams.values() if stream.kind is ConnectionKind.CLIENT and not stream.is_backup and not stream.is_admin
        )

    def refusal(self) -> QpidHaError:
        """Return the error for a change asked of a backup by one who may look at it."""
        away = self._elsewhere()
        return NotAllowed(f"backups are read only: {away.text}", hint=away.hint)

    def _elsewhere(self) -> QpidHaError:
        """Return what ends a client's connection to a backup: where the primary is, if that is known."""
        assert self.cluster is not None
        peer = self.cluster.current_primary()
        state = self.cluster.state.value
        if peer is None:
            return ConnectionForced(f"this broker is {state} and knows no primary", hint="try another address, or again later")
        return Redirect(f"this broker is {state}; the primary is {peer.name}", info=_server(peer.address))

    def open_properties(self) -> dict[str, object]:
        """Return what we open connections with."""
        properties: dict[str, object] = {"product": "qpidha", "version": VERSION, "qpidha.system-id": self.system_id}
        if self.cluster is not None:
            addresses = self.settings.ha_public_url or self.settings.ha_brokers_url
            properties["failover-server-list"] = [_server(address) for address in addresses]
        return properties

    def service(self, address: str) -> Service | None:
        """Return the service at an address."""
        return self.services.get(address)

    def hold(self, sequence: int, target: Released, item: object) -> None:
        """Call `target.released(item)` when `sequence` is safe."""
        if sequence and self.cluster is not None:
            self.holds.add(sequence, target, item)
        else:
            target.released(item)

    def wake(self, connection: Connection) -> None:
        """Collect this connection's output at the end of the turn."""
        self.woken[connection.connection_id] = None

    def connection_closed(self, connection: Connection) -> None:
        """The stream goes when the last bytes are collected."""
        self.woken[connection.connection_id] = None

    # -- the HA machine's port --------------------------------------------------------------------

    def dial(self, host: str, port: int, encrypted: bool) -> int:
        """Open a replication connection."""
        self.dialled -= 1  # those that the world accepts for us have positive ids
        self.effects.append(Connect(self.dialled, host, port, encrypted))
        return self.dialled

    def _open_replication(self, connection: Connection, peer: str) -> None:
        settings = self.settings
        cluster = self.cluster
        assert cluster is not None
        info = {"system-id": self.system_id, "name": self.name, "address": self.address, "status": cluster.state.value}
        connection.open(
            self.container_id, {**self.open_properties(), "qpid.ha-backup": info},
            mechanism=settings.ha_mechanism, username=settings.ha_username, password=settings.ha_password,
            hostname=peer.rpartition(":")[0], heartbeat=settings.link_heartbeat_interval,
        )  # fmt: skip
        for sender, name in ((True, "ask"), (False, "hear")):
            connection.attach(REPLICATION, sender=sender, service=self.channels, name=f"qpidha.{self.system_id}.{name}")

    def _channel_opened(self, connection: Connection) -> None:
        assert self.cluster is not None
        if connection.kind is ConnectionKind.OUTGOING:
            self.cluster.opened(connection.connection_id)
        else:
            info = connection.remote_properties.get("qpid.ha-backup")
            if not isinstance(info, dict) or not info.get("system-id"):
                raise ProtocolViolation("qpid.ha-backup must be a map with a system-id")
            name = str(info.get("address") or info.get("name") or connection.peer)
            self.cluster.called(connection.connection_id, str(info["system-id"]), name)

    def _heard(self, connection_id: int, message: Spoken) -> None:
        assert self.cluster is not None
        self.cluster.heard(connection_id, message)

    def hang_up(self, connection_id: int) -> None:
        """Close a replication connection, or give up dialling."""
        connection = self.streams.get(connection_id)
        if connection is None:
            self.effects.append(Disconnect(connection_id))
        elif not connection.closed:
            connection.close(None)
            self.wake(connection)

    def say(self, connection_id: int, data: bytes) -> None:
        """Send to another broker."""
        self.channels.say(connection_id, data)
        self.woken[connection_id] = None

    def credit(self, connection_id: int) -> int:
        """Return how many messages another broker takes."""
        return self.channels.credit(connection_id)

    def save(self, data: bytes) -> None:
        """Save the state file."""
        self.effects.append(SaveState(data))

    def announce(self, level: str, text: str, **fields: object) -> None:
        """Say what happened in the HA machine."""
        self.effects.append(Announce(level, "HA", text, fields))

    def state_changed(self, state: BrokerStatus) -> None:
        """Serve clients or send them away."""
        if state is BrokerStatus.RECOVERING:
            self.holds.clear(self.log.safe)
            self.broker.recorder = self.log
            self.broker.promoted(self.now)
        elif state is BrokerStatus.JOINING and self.broker.recorder is not None:
            self.broker.recorder = None
            self.broker.passive = True
            self.holds.clear(self.log.safe)
            self.requests.abandon()
            for connection in list(self.streams.values()):
                if not connection.is_backup and not connection.is_admin and connection.kind is ConnectionKind.CLIENT:
                    connection.close(self._elsewhere())
                    self.wake(connection)

    def released(self, safe: int) -> None:
        """The log is safe up to here."""
        self.holds.release(safe)

    def apply(self, data: bytes) -> None:
        """Fold records into the broker model."""
        fold(self.broker, data)

    def forget(self) -> None:
        """Empty the broker model."""
        self.broker.reset(keep_local=True)

    def ha_records(self, data: bytes) -> list[tuple[int, Record]]:
        """Pick out what concerns the cluster."""
        return ha_records(data)

    def snapshot(self, last: int) -> tuple[Iterator[bytes], Iterator[bytes]]:
        """Write what exists, in chunks."""
        return snapshot_objects(self.broker), snapshot_messages(self.broker, last)

    # -- management's target ----------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Tell everything there is to know of this broker's part in the cluster."""
        report = standalone_report(self.settings, system_id=self.system_id, name=self.name, address=self.address)
        report |= {"held": len(self.holds), "connections": len(self.streams)}
        return report if self.cluster is None else report | cluster_report(self.cluster)

    def query(self) -> dict[str, Any]:
        """Tell the HA configuration."""
        status = self.status()
        return {key: status[key] for key in ("state", "system_id", "brokers_url", "public_url", "replicate")}

    def connections(self) -> list[Connection]:
        """Return every AMQP connection, oldest first."""
        return list(self.streams.values())

    def promote(self, reply: Answer) -> None:
        """Become primary."""
        if self.cluster is None:
            reply(Reply(result={"state": BrokerStatus.STANDALONE.value}))
        else:
            self.cluster.promote(self._when_done(reply))

    def demote(self, reply: Answer) -> None:
        """Become a backup."""
        if self.cluster is None:
            raise NotAllowed("this broker is not in a cluster", hint="set ha-cluster=yes")
        self.cluster.demote(self._when_done(reply))

    def _when_done(self, reply: Answer) -> Callable[[QpidHaError | None], None]:
        def done(error: QpidHaError | None) -> None:
            cluster = self.cluster
            assert cluster is not None
            reply(Reply(error=error) if error is not None else Reply(result={"state": cluster.state.value, "epoch": self.log.epoch}))

        return done

    def shutdown(self) -> None:
        """End the daemon."""
        if not self.stopping:
            self.stopping = True
            for connection in list(self.streams.values()):
                connection.close(ConnectionForced("the broker is being stopped"))
                self.wake(connection)
            self.effects.append(Stop("asked to stop"))


def _server(address: Address) -> dict[str, object]:
    """Describe an address as clients know it from redirects and server lists."""
    scheme = "amqps" if address.encrypted else "amqp"
    return {"network-host": address.host, "hostname": address.host, "port": address.port, "scheme": scheme}


HANDLERS: dict[type, Callable[[Node, Any], None]] = {
    ConnectionOpened: Node._opened,
    BytesReceived: Node._bytes,
    ConnectionCongested: Node._congested,
    ConnectionLost: Node._lost,
    Tick: Node._tick,
    StopRequested: Node._stop,
}
