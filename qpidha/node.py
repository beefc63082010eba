"""The node: one broker, whole, without a socket, a disk or a clock. `step(events, now)` returns
effects.

A step is one turn of somebody's loop: it takes everything that happened, lets connections, the
broker model and the HA machine act on it, and then, once, hands out messages, seals the log,
replicates, releases what was committed, and collects what each connection has to send. Effects are
in the order in which they must happen. The state file alone is written beside them, and what
follows from it waits for the event that it is.

This is the only place where all rooms meet. `Node` is the AMQP room's Host, management's Target and
the HA machine's Port. Source: the shape is etcd raft's RawNode and Ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from qpidha.amqp.peer.connection import Connection
from qpidha.amqp.peer.host import Service
from qpidha.amqp.peer.links import Scratch
from qpidha.amqp.peer.sasl import Users
from qpidha.amqp.server.host import Waiter
from qpidha.amqp.server.registry import LinkRegistry
from qpidha.amqp.server.served_connection import ServedConnection
from qpidha.amqp.server.streams import Streams
from qpidha.broker.broker import Broker
from qpidha.broker.credit import DISK_FREE_LIMIT
from qpidha.broker.federation import FED_TAG
from qpidha.broker.node_patterns import NodePatterns
from qpidha.broker.queues.limits import UNLIMITED
from qpidha.broker.queues.log_writer import BOTH, LOCAL
from qpidha.federation.links import Links
from qpidha.ha.channels import (
    FEATURES_PROPERTY,
    QUEUE_STREAMS,
    REPLICATION,
    Channels,
    features_of,
    identify,
)
from qpidha.ha.cluster import Cluster
from qpidha.ha.explanation import confirmed_by, explain
from qpidha.ha.in_sync import SavedState, newest_of
from qpidha.ha.pending import PendingAcknowledgements
from qpidha.ha.primary import WINDOW
from qpidha.ha.saves import Saves
from qpidha.ha.wire import Message
from qpidha.management.access import Access
from qpidha.management.acl import AccessList
from qpidha.management.admin_session import ADMIN_SOCKET_ROLES, AdminSession
from qpidha.management.admission import admit
from qpidha.management.amqp_management import ManagementService
from qpidha.management.audit import Audit
from qpidha.management.event_log import EventLog
from qpidha.management.failover_exchange import ADDRESSES, FailoverExchange
from qpidha.management.lines import Lines
from qpidha.management.link_pair import LinkPairService
from qpidha.management.logins import LoginGuard, LoginWork
from qpidha.management.measures import CERTIFICATE, CREDENTIALS, Measures
from qpidha.management.port import Answer, Reply, reporting
from qpidha.management.redirects import as_told, client_addresses, described, elsewhere, refusal
from qpidha.management.report import cluster_report, standalone_report
from qpidha.management.requests import Requests
from qpidha.model.broker_states import IN_SYNC_STATES, BrokerStatus
from qpidha.model.duration import MILLISECOND, SECOND
from qpidha.model.effects import (
    Admitted,
    Announce,
    Compute,
    Connect,
    Disconnect,
    Effect,
    LoginWaits,
    Reload,
    SaveState,
    SendBytes,
    SendParts,
    SetLogLevel,
    Stop,
)
from qpidha.model.encoding import Parts
from qpidha.model.errors import (
    ConnectionForced,
    InternalError,
    InvariantBroken,
    LogDamaged,
    NotAllowed,
    ProtocolViolation,
    QpidHaError,
    RefusedRequest,
    UpgradeNeeded,
    places_of,
)
from qpidha.model.event_codes import (
    DISK_FULL,
    DISK_HAS_SPACE,
    DISK_SHORT,
    INTERNAL_ERROR,
    LOG_NOT_WRITTEN,
    NOT_IN_CLUSTER,
    RELOAD_REFUSED,
    SET_ASIDE,
)
from qpidha.model.event_log import (
    LONGEST,
    DiskSpaceChange,
    Happening,
    LinkChange,
    LogTrouble,
    Withholding,
)
from qpidha.model.events import (
    BytesReceived,
    Computed,
    ConnectionCongested,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    DiskSpaceChanged,
    Event,
    HandshakeFailed,
    LogFailed,
    LogWritten,
    OutputWaiting,
    Reloaded,
    Stalled,
    StateSaved,
    StopRequested,
    Tick,
)
from qpidha.model.features import FEATURES, QUEUE_KINDS, lacking, upgrade_text
from qpidha.model.memory import peer_share
from qpidha.model.principal import Action, ObjectType, Principal
from qpidha.model.records import FeatureEnabled, PolicySet, Record
from qpidha.model.settings import Settings
from qpidha.model.url import Url
from qpidha.replicas.replication import QueueReplication
from qpidha.store.checkpointer import Checkpointer
from qpidha.store.disk import Disk
from qpidha.store.local_log import LocalLog
from qpidha.store.log import Log
from qpidha.store.memory import LOG_SHARE, LOW, Memory
from qpidha.store.recovery import fold, ha_records, snapshot_messages, snapshot_objects
from qpidha.store.reserve import Reserve
from qpidha.store.write_ahead_log import Marks, WriteAheadLog

VERSION = "0.1.0"
MOST_JOINED = 16 << 10
"""Bytes for one connection that are put together before they are written: more cost less apart."""
NOT_RELOADED = "nothing was read again, all stays as it was"
RABBITMQ_VERSION = "4.3.0"
"""The one whose filters, flow properties and places for replies are here: RabbitMQ's AMQP 1.0
clients ask an older one for none of them.
"""


newest_state = newest_of
"""For who reads the state file, which has a copy."""
STATEFUL = ("qpidha.broker.", "qpidha.ha.", "qpidha.store.")
"""Where what is replicated is changed: an error that passes through may leave it half changed."""


def _fitting(settings: Settings, memory_limit: int) -> Settings:
    """Have little on its way to backups where there is little memory."""
    flow = peer_share(memory_limit)
    if settings.ha_flow_bytes or flow >= WINDOW:
        return settings
    return replace(settings, ha_flow_bytes=flow)


REST = 4 * MILLISECOND
"""How long a walk through a queue, and a checkpoint, rest after a step: all brokers do the same at
the same time, several on one host perhaps, and their clients wait for each step.
"""
LOOK = MILLISECOND
"""How long what a turn need not do at once may wait while nothing but bytes come, and how exact a
deadline is: a turn that does one thing for one message costs three times as much with all of it.
"""
TRAFFIC = frozenset({BytesReceived, LogWritten})
"""What comes all the time."""


def check_patterns(settings: Settings) -> None:
    """Raise InvalidArgument for patterns of nodes that no broker can follow."""
    NodePatterns(settings.queue_patterns, settings.topic_patterns)


class Node:
    """One broker."""

    def __init__(
        self,
        settings: Settings,
        *,
        system_id: str,
        users: Users,
        state: bytes,
        address: str,
        make_uuid: Callable[[], str],
        disk: Disk | None = None,
        features: Iterable[str] = FEATURES,
        acl: AccessList | None = None,
        policies: Sequence[PolicySet] = (),
        memory_limit: int = 0,
        certificate_end: int = 0,
    ) -> None:
        """`memory_limit` is the one of the settings, in bytes; 0 for none. `certificate_end` is
        until when our certificate is good, in seconds since 1970; 0 if there is none.
        """
        self.features = frozenset(features)
        """What this broker knows beyond the base; an older version knows less."""
        self.settings = settings
        self.scratch = Scratch()
        self.system_id = self.container_id = system_id
        self.users = users
        self.address = address
        self.name = settings.name or address
        self.certificate_end = certificate_end
        self.make_uuid = make_uuid
        self.now = self.next_deadline = self.dialled = 0
        self._walk_at = self._part_at = self._tick_at = 0
        """When walks through queues go on at the earliest, the checkpoint that is written, and what
        the broker does at its time.
        """
        self._look_at = self._due_at = 0
        """When to look around again at the latest, and what was then found to be due, and when."""
        self.effects: list[Effect] = []
        self.streams = Streams(self._isolate)
        self._is_disk_low = False
        self.internal_errors = 0
        """How many connections ended for a mistake of ours."""
        self.sessions: dict[int, AdminSession] = {}
        self.links = LinkRegistry()
        self.wal: WriteAheadLog | None = None
        marks = Marks()
        if disk is not None:
            self.wal = WriteAheadLog(
                disk,
                system_id,
                segment_size=settings.journal_segment_size,
                keep=settings.log_disk,
                nonce=make_uuid(),
                marks=marks,
            )
        log_memory = settings.log_memory
        if memory_limit:
            log_memory = min(log_memory, memory_limit // LOG_SHARE)
        self.log = Log(log_memory, self.wal)
        self._tokens = 0
        """Fencing tokens that were given."""
        self.pending = PendingAcknowledgements()
        self.saves = Saves()
        self._saving_since = 0
        self._unsent: dict[int, int] = {}
        """Connection -> messages on it that wait for the state file."""
        self.broker = Broker(settings, None, lambda effect: self.effects.append(effect), make_uuid)
        self.broker.has_store = disk is not None
        self.broker.passive = settings.ha_cluster
        self.broker.records_durable_only = not settings.ha_cluster
        self.measures = Measures()
        self.event_log = EventLog(
            settings, self.log, self.pending, self.broker, self.name, self.measures.commits
        )
        self.checkpointer: Checkpointer | None = None
        if self.wal is not None:
            self.checkpointer = Checkpointer(
                self.broker,
                self.log,
                self.wal,
                system_id=system_id,
                segment_size=settings.journal_segment_size,
                most_memory=memory_limit * LOW // 100 or UNLIMITED,
            )
            self.effects += self.checkpointer.recover(
                alone=not settings.ha_cluster, features=self.features
            )
        self.local: LocalLog | None = None
        self.local_pending = PendingAcknowledgements()
        """Answers that wait for the local log."""
        self.crossing_pending = PendingAcknowledgements()
        """Answers that wait for what goes from one log to the other."""
        self._to_settle = 0
        """When the model has the log up to here, it has all that the cluster has; 0 for never."""
        if disk is not None and self.checkpointer is not None:
            self.local = LocalLog(
                self.broker,
                disk,
                system_id,
                segment_size=settings.journal_segment_size,
                marks=marks,
                nonce=make_uuid(),
            )
            self.effects += self.local.recover(self.features)
            self.checkpointer.logs.append(self.local.log)
        weighing = self.checkpointer.weighing if self.checkpointer is not None else None
        self.reserve: Reserve | None = None
        if weighing is not None and disk is not None:
            reserve = Reserve(weighing, disk.until_low, settings.disk_free_limit)
            self.reserve = reserve
            self.broker.credit.spare_disk = lambda: reserve.left
        self.memory = Memory(memory_limit, self.broker, self.log, self.wal, weighing)
        self.audit = Audit(self._say_security)
        self.access = Access(settings, self, self.broker)
        self.access.use(acl)
        self.login_guard = LoginGuard()
        self.login_work = LoginWork(lambda number, work: self.effects.append(Compute(number, work)))
        self.requests = Requests(self)
        self.lines = Lines()
        self.channels = Channels(self._channel_opened, self._on_message)
        self.services: dict[str, Service] = {
            REPLICATION: self.channels,
            "$management": ManagementService(self.requests, self),
            "/management": LinkPairService(self.requests, self),
        }
        self.failover: FailoverExchange | None = None
        self.federation = Links(self)
        """Links to other brokers, which the primary runs."""
        self._reloads: dict[int, Answer] = {}
        """Number of an effect Reload -> where the answer goes."""
        self._last_reload = 0
        self.acl_since = 0
        """Since when this access control list is used, in ns since 1970."""
        self.log_level = (settings.log_level, settings.log_disable)
        """What is logged, and what is not although that says so."""
        self.stopping = self.broken = False
        self._own_disk = self._disk_refusal = self._sent_refusal = self._reserved = ""
        """Why senders have to wait for our own disk; why all messages are refused for want of space
        on any, and those that are sent; and why senders have to wait for space that dead letters
        may need.
        """
        self._short_backups: dict[str, bool] = {}
        self.replication = QueueReplication(self, system_id, make_uuid())
        self.services[QUEUE_STREAMS] = self.replication.channels
        self._ends_log = False
        """Whether this turn is the last one of a stop in good order."""
        self._had = 0
        """The end of the log when this turn began."""
        self._policies = policies
        """Those with which a cluster begins."""
        self.refused: dict[str, dict[str, object]] = {}
        """Brokers that were refused because they lack an enabled feature, by their addresses."""
        self.cluster: Cluster | None = None
        if settings.ha_cluster:
            saved = SavedState.decode(state, self.log.epoch)
            self.cluster = Cluster(
                self,
                self.log,
                _fitting(settings, memory_limit),
                system_id=system_id,
                name=self.name,
                address=address,
                saved=saved,
            )
            self.failover = FailoverExchange(self, self.cluster)
            self.services |= dict.fromkeys(ADDRESSES, self.failover)

    # -- the step ---------------------------------------------------------------------------------

    def start(self, now: int) -> list[Effect]:
        """Begin: call once, before the first step."""
        self.now = self.broker.now = self.measures.began = self.acl_since = now
        self.broker.arrivals.turn(self.log.last, now, is_exact=False)
        if self.cluster is not None:
            self.cluster.start()
        elif self.wal is not None:
            self.broker.log_writer = self.event_log.log_writer
            self.measures.commits.begin(self.log.last)
            self.broker.promoted(now)
            self._settle_local()
        else:
            self.broker.begin_with(self._policies)
        return self._end_turn()

    def step(self, events: Sequence[Event], now: int, ahead: int = 0) -> list[Effect]:
        """Take what happened (`ahead`: see Broker) and return what is to be done. A turn that
        breaks off tells nobody, and none follows.
        """
        if self.broken:
            return []
        self.now = self.broker.now = now
        self.broker.ahead = ahead
        if self.cluster is not None:
            self.broker.committed = self.log.committed
        if self.wal is not None:
            self.wal.now = now
        try:
            self._had = self.log.last
            if self.streams.is_behind:
                self._hear_put_off()
            kinds = set(map(type, events))
            if not kinds or not kinds <= TRAFFIC:
                self._look_at = 0
            for event in events:
                HANDLERS[type(event)](self, event)
            return self._end_turn()
        except InvariantBroken as error:
            self.stopping = self.broken = True
            self.effects = [
                Stop(
                    "; ".join(part for part in (error.text, error.reason, error.hint) if part),
                    failed=True,
                    damaged=isinstance(error, LogDamaged),
                )
            ]
            return self._take_effects()

    def _end_turn(self) -> list[Effect]:
        broker, cluster, log, local = self.broker, self.cluster, self.log, self.local
        looks = self.now >= self._look_at or bool(self.effects)
        self.replication.apply()
        if self.lines:
            self.lines.go_on(self._isolate, self.streams.rests)
        if not self.streams.frozen:
            self.federation.turn(runs=self.serving and not self.stopping)
            if looks:
                broker.pause_delivery(cluster is not None and not cluster.may_deliver)
            broker.dispatch(self.now)
            if broker.walks:
                self._go_on_walking()
            if broker.crossings.is_busy:
                broker.go_on_crossing(self.pending.committed)
        self.lines.renew()
        broker.remains.free()
        if len(log.features) < len(self.features):
            self._use_features()
        if log.consumed:
            self.pending.release_consumed(log.consumed)
            log.consumed.clear()
        if 0 < self._to_settle <= self._applied():
            self._settle_local()
        if local is not None:
            decides = broker.log_writer is not None
            # A backup that needs a snapshot has what was appended before sealed within the turn.
            has_appended = log.has_pending or log.last > self._had
            local.seal(log.end if decides and has_appended else 0)
        if self._ends_log:
            log.seal()  # No later turn would.
        if cluster is not None:
            cluster.flush(self.now)
        elif self.wal is not None:
            log.seal()
            log.committed = log.durable_to
            self.pending.release(log.committed)
        if local is not None:
            self._answer_local(local)
        if broker.crossings.is_busy:
            self.crossing_pending.release(broker.crossed(self.pending.committed))
        self.replication.stream()
        self._note_arrivals()
        if broker.log_writer is not None:
            self.measures.commits.turn(log.last, self.pending.committed, self.now)
        # What a turn has to say is logged with what there is to be seen of it.
        looks = looks or bool(self.effects) or self._is_in_checkpoint
        if looks:
            self._look_around()
        if self._ends_log and self.wal is not None:
            self._ends_log = False
            self.wal.end_in_order(log.last)
            if local is not None:
                local.wal.end_in_order(local.log.last)
        if looks or self.event_log.is_tracing:
            self.event_log.turn(self.now, cluster, self.effects)
        self._collect_all()
        self.next_deadline = self._deadline(looked=looks)
        return self._take_effects()

    @property
    def _is_in_checkpoint(self) -> bool:
        return self.checkpointer is not None and self.checkpointer.needs_all_sealed

    def _look_around(self) -> None:
        """Do what need not be done in each turn: heed space on disks and in memory, go on with a
        checkpoint, and tell of it.
        """
        if self.cluster is not None:
            self.cluster.look(self.now)
            self._heed_disks()
            if self.failover is not None:
                self.failover.turn()
        if self.checkpointer is not None:
            self._write_checkpoint(self.checkpointer)
        if self.reserve is not None and self.reserve.look():
            self._heed_reserve(self.reserve)
        self.broker.use.unfinished = (
            self.scratch.unfinished + self.scratch.put_off + self.replication.replicas.waiting
        )
        self.effects += self.memory.turn(self.now)
        self._tell_news()

    def _go_on_walking(self) -> None:
        """Go on with walks through queues, unless they rest."""
        committed = self.log.committed
        if self.now >= self._walk_at:
            if self.broker.has_walk(committed):
                self._walk_at = self.now + REST
            self.broker.go_on_walking(committed)

    def _write_checkpoint(self, checkpointer: Checkpointer) -> None:
        """Go on with a checkpoint, unless it rests."""
        if checkpointer.turn(self._applied(), rests=self.now < self._part_at):
            self._part_at = self.now + REST

    def _is_pressed(self) -> bool:
        """Whether the next turn has something to do at once."""
        # A connection that took as much as one turn gives has its queues waiting for the next one.
        broker, streams, local = self.broker, self.streams, self.local
        has_more = (
            broker.runnable
            or broker.returns
            or broker.is_behind
            or (broker.crossings.is_busy and broker.may_cross(self.pending.committed))
        )
        return bool(
            (has_more and not streams.frozen)
            or broker.remains
            or self.replication.has_more
            or (self.lines and self.lines.goes_on(streams.rests))
            or streams.is_behind
            or (local is not None and (local.pending or local.is_busy))
        )

    def _deadline(self, *, looked: bool) -> int:
        """Return when the next turn is due, 0 for never."""
        if looked:
            self._look_at = self.now + LOOK
            self._due_at = self._first_deadline()
        if self._is_pressed():
            return self.now
        if looked or 0 < self._due_at < self._look_at:
            return self._due_at
        return self._look_at

    def _first_deadline(self) -> int:
        """Return the first of all deadlines, 0 for none."""
        broker, cluster, checkpointer = self.broker, self.cluster, self.checkpointer
        if self.memory.is_busy:
            return self.now
        deadline = self.streams.first_deadline
        timed = 0 if self.streams.frozen else broker.next_deadline
        if timed:
            timed = max(timed, self._tick_at)
        walk_at = part_at = 0
        if broker.has_walk(self.log.committed) and not self.streams.frozen:
            walk_at = max(self._walk_at, self.now)
        if checkpointer is not None and checkpointer.is_busy:
            part_at = max(self._part_at, self.now) if checkpointer.may_rest else self.now
        for other in (
            timed,
            walk_at,
            part_at,
            cluster.next_deadline if cluster is not None else 0,
            checkpointer.next_deadline if checkpointer is not None else 0,
            self.memory.next_deadline,
            0 if self.streams.frozen else self.federation.next_deadline,
            self.replication.next_deadline,
        ):
            if other and (not deadline or other < deadline):
                deadline = other
        return deadline

    def _answer_local(self, local: LocalLog) -> None:
        """Release what the local log has, and the cluster's where a turn recorded in both."""
        self.broker.local_committed = local.answer(self.pending.committed)
        self.local_pending.release(self.broker.local_committed)
        local.turn()

    def _note_arrivals(self) -> None:
        """Note when places in the log were given: a broker out of sync gets records that may be
        old.
        """
        is_live = self.cluster is None or self.cluster.state in IN_SYNC_STATES
        self.broker.arrivals.turn(self.log.last, self.now, is_exact=is_live)

    def _tell_news(self) -> None:
        """Tell of what was set aside in this turn."""
        if self.wal is not None and self.wal.news:
            self._tell_set_aside(self.wal.news)
            self.wal.news.clear()

    def _tell_set_aside(self, folders: list[str]) -> None:
        """Tell of durable records that a primary's log has not: nobody else has them."""
        where = self.settings.data_dir
        for folder in folders:
            text = (
                "records that the primary does not have are set aside in "
                f"{where}/journal/{folder}; to send them again: qpid-ha journal salvage {where} "
                f"--discarded {folder} --to ADDR"
            )
            trouble = LogTrouble("set aside")
            self.effects.append(
                Announce("warning", "store", text, {"folder": folder}, trouble, SET_ASIDE)
            )

    def _use_features(self) -> None:
        """Enable the features that every member knows, and use those whose record is committed;
        only who appends to the log does either.
        """
        broker, cluster, log = self.broker, self.cluster, self.log
        if broker.log_writer is None or self.streams.frozen:
            return
        for name in sorted(self.features - broker.features.keys()):
            if cluster is None or cluster.all_know(name):
                record = FeatureEnabled(name)
                if self.wal is not None:
                    self.wal.use((*broker.features, name))
                broker.apply(log.append(record), record)
                text = f"the feature {name} is enabled: {FEATURES.get(name, name)}"
                self.announce("notice", text, feature=name)
        log.features = frozenset(
            name for name, sequence in broker.features.items() if sequence <= log.committed
        )
        if QUEUE_KINDS in log.features:
            broker.begin_with(self._policies)

    def _applied(self) -> int:
        """How far the model has the log."""
        backup = self.cluster.backup if self.cluster is not None else None
        return self.log.last if backup is None else backup.applied

    def _take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def _collect_all(self) -> None:
        """Collect what the connections that were woken have to say."""
        woken = self.streams.woken
        while woken:
            for connection_id in list(woken):
                del woken[connection_id]
                self._collect(connection_id)

    def _collect(self, connection_id: int) -> None:
        connection = self.streams.by_id.get(connection_id)
        if connection is not None:
            try:
                parts = [] if connection.closed else connection.output_parts()
            except Exception as error:
                if not self.streams.isolate(connection, error):
                    raise
                self.streams.woken[connection_id] = None  # For its last words.
                return
            if parts:
                limited = not connection.principal.is_broker
                self.effects.append(_sending(connection_id, parts, limited))
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
            self.sessions[connection_id] = AdminSession(
                self.requests,
                Principal(event.identity, address=event.peer, roles=ADMIN_SOCKET_ROLES),
                lambda: self.streams.woken.setdefault(connection_id),
            )
            return
        connection = ServedConnection(
            connection_id,
            self,
            kind=event.kind,
            peer=event.peer,
            identity=event.identity,
            encrypted=event.encrypted,
            local_host=event.local_host,
            trusted_host=event.trusted_host,
        ).connection
        if self.federation.owns(connection_id):
            connection.principal = replace(connection.principal, roles=frozenset())
            self.federation.opened(connection)
        elif self.replication.owns(connection_id):
            connection.principal = replace(connection.principal, roles=frozenset())
            self.replication.open(connection)
        elif event.kind is ConnectionKind.OUTGOING:
            self._open_replication(connection, event.peer)
        self.streams.add(connection, self.now)

    def _bytes(self, event: BytesReceived) -> None:
        connection_id = event.connection_id
        connection = self.streams.by_id.get(connection_id)
        if connection is not None:
            if not self.streams.puts_off(connection, event):
                self.streams.received(connection, event.data, self.now)
            elif (
                self.streams.is_overfull
                and self.cluster is not None
                and self.cluster.handover is not None
            ):
                self.cluster.handover.cancel("clients sent more meanwhile than is put off")
            return
        session = self.sessions.get(connection_id)
        if session is not None:
            session.receive(event.data)
            self.streams.woken[connection_id] = None

    def _congested(self, event: ConnectionCongested) -> None:
        connection = self.streams.by_id.get(event.connection_id)
        if connection is not None:
            connection.set_congested(event.congested)

    def _output_waiting(self, event: OutputWaiting) -> None:
        self.broker.use.output = event.size

    def _lost(self, event: ConnectionLost) -> None:
        connection_id = event.connection_id
        session = self.sessions.pop(connection_id, None)
        if session is not None:
            session.close()
            return
        connection = self.streams.by_id.get(connection_id)
        if connection is not None:
            if self.streams.puts_off(connection, event) or not self.streams.is_heard_out(
                connection, event
            ):
                return
            connection.lost(event.reason)
        self._drop_connection(connection_id, event.reason)

    def _computed(self, event: Computed) -> None:
        self.login_work.done(event.connection_id)
        connection = self.streams.by_id.get(event.connection_id)
        if connection is not None and not self.streams.puts_off(connection, event):
            self.streams.computed(connection, event, self.now)

    def _drop_connection(self, connection_id: int, reason: str = "") -> None:
        self.login_work.forget(connection_id)
        connection = self.streams.remove(connection_id)
        self.access.let_out(connection_id)
        # What a change of its makes for it alone ends like what it had.
        self.lines.forget(connection_id, partial(self.broker.owner_gone, connection))
        self.channels.forget(connection_id)
        if connection is not None and connection.error is not None:
            reason = f"{connection.error.explanation} ({connection.error.condition})"
        self.replication.lost(connection_id, reason)
        self.event_log.client_disconnected(connection_id, reason)
        if self.federation.owns(connection_id):
            error = None if connection is None else connection.error
            self.federation.lost(connection_id, reason or "closed", error)
            return
        cluster = self.cluster
        if cluster is not None:
            was_following = cluster.is_following
            cluster.lost(connection_id, reason or "closed", reached=connection is not None)
            if was_following and not cluster.is_following:
                self.measures.primary_lost(self.now)

    def _isolate(self, connection: Connection, error: Exception) -> bool:
        """End a connection whose peer brought a mistake of ours to light, so that it is not the end
        of one broker after the other; but one in the state of the broker is for the broker to stop.
        """
        places = places_of(error)
        if isinstance(error, InvariantBroken) or any(
            place.startswith(STATEFUL) for place in places
        ):
            return False
        self.internal_errors += 1
        text = (
            f"internal error: the connection of {connection.principal.address} ends: "
            f"{error.__class__.__name__}: {str(error)[:LONGEST]}; at {', in '.join(places)}"
        )
        fields: dict[str, object] = {"connection": connection.connection_id}
        said = Announce("error", "network", text, fields, event_code=INTERNAL_ERROR)
        self.effects.append(said)
        if connection.error is not None and connection.error.condition == InternalError.condition:
            connection.lost("a mistake with its last words")
            return True
        connection.close(
            InternalError(
                "this broker made a mistake with what was sent",
                hint="its log has an internal error of this connection: report it",
            )
        )
        return True

    def _tick(self, event: Tick) -> None:
        now = self.now
        self.streams.tick(now)
        self.audit.tick(now)
        if not self.streams.frozen:
            if now >= self._tick_at:
                self.broker.tick(now)
                if 0 < self.broker.next_deadline <= now:
                    self._tick_at = now + REST  # There is more than one turn may do.
            self.federation.tick(now)
        if self.cluster is not None:
            self.cluster.tick(now)
        if self.checkpointer is not None:
            self.effects += self.checkpointer.tick(now)
        if self.local is not None:
            self.local.tick(now)
        self.memory.tick(now)

    def _handshake_failed(self, event: HandshakeFailed) -> None:
        principal = Principal(address=event.peer)
        if event.by_certificate:
            self.measures.refusals[CERTIFICATE] += 1
            self.audit.login_refused(self.now, principal, "", "certificate", event.reason)
        else:
            self.audit.not_opened(self.now, principal, event.reason)

    def _reloaded(self, event: Reloaded) -> None:
        """Let in who logs in by the new users file, where there is one; who is in stays."""
        if not event.trouble:
            self.users = event.users
            self.access.use(event.acl)
            self.acl_since = self.now
            self.certificate_end = event.certificate_end
            self.log_level = event.log
        reply = self._reloads.pop(event.number, None)
        if reply is None:
            return
        if event.trouble:
            error = RefusedRequest(
                NOT_RELOADED, reason=event.trouble, hint=event.hint, event_code=RELOAD_REFUSED
            )
            reply(Reply(error=error))
        else:
            reply(Reply({"warnings": [*event.warnings]}))

    def _state_saved(self, event: StateSaved) -> None:
        self.saves.over(event.mark)

    def _log_written(self, event: LogWritten) -> None:
        self.log.answer(event.mark)
        if self.local is not None:
            self.local.log.answer(event.mark)
        if event.sync_time:
            self.measures.syncs.add(event.sync_time)

    def _stalled(self, event: Stalled) -> None:
        self.measures.stalled += event.time

    def _log_failed(self, event: LogFailed) -> None:
        """Serve nobody any more: what is accepted from now on could not be kept."""
        reason = f"the write-ahead log cannot be written: {event.reason}"
        self.announce("critical", reason, event_code=LOG_NOT_WRITTEN)
        if self.cluster is not None and self.cluster.primary is not None:
            self.cluster.step_down(reason)
        self.shutdown(reason, failed=True)

    def _space_changed(self, event: DiskSpaceChanged) -> None:
        """Let senders wait, and then refuse messages, before there is no space left to keep them,
        and nothing else can be kept either.
        """
        near = event.short and not event.low
        left = (
            f"{event.free >> 20} MiB left for data-dir, "
            f"{'little more than disk-free-limit, which' if near else 'disk-free-limit'} is "
            f"{self.settings.disk_free_limit >> 20} MiB"
        )
        was_low, self._is_disk_low = self._is_disk_low, event.low
        is_short = event.low or event.short
        self._own_disk = f"the disk is nearly full: {left}" if is_short else ""
        about: Happening = Withholding(DISK_FREE_LIMIT, is_short)
        level = "warning" if is_short else "notice"
        text = f"senders get {'no credit' if is_short else 'credit again'}: {left}"
        if event.low or was_low:
            about = DiskSpaceChange(event.low)
            level = "critical" if event.low else "notice"
            text = f"{'no messages are accepted' if event.low else 'messages are accepted again'}"
            text += f": {left}"
        event_code = DISK_FULL if event.low else DISK_SHORT if event.short else DISK_HAS_SPACE
        self.effects.append(Announce(level, "store", text, {"free": event.free}, about, event_code))
        self._heed_disks()
        self._tell_disk()

    def _heed_reserve(self, reserve: Reserve) -> None:
        """Let senders wait, and then refuse messages, while all the space that is left is for what
        may become dead letters.
        """
        text = str(reserve) if reserve.is_short else ""
        if bool(text) != bool(self._reserved):
            level = "warning" if text else "notice"
            said = f"senders get {'no credit' if text else 'credit again'}: {reserve}"
            about = Withholding(DISK_FREE_LIMIT, bool(text))
            event_code = DISK_SHORT if text else DISK_HAS_SPACE
            self.effects.append(Announce(level, "store", said, {}, about, event_code))
        self._reserved = text
        self._heed_disks()
        self._tell_disk()

    def _tell_disk(self) -> None:
        if self.cluster is not None:
            is_used_up = self.reserve is not None and self.reserve.is_used_up
            self.cluster.disk_changed(
                is_short=bool(self._own_disk or self._reserved),
                is_low=self._is_disk_low or is_used_up,
                is_reserved=is_used_up and not self._is_disk_low,
            )

    def _heed_disks(self) -> None:
        """Let senders wait, and then refuse messages, while there is too little space on a disk
        that they have to be kept on: our own, or that of a backup that acknowledgements wait for.
        """
        short = self.cluster.short_backups if self.cluster is not None else {}
        low = _disks_of([name for name, is_low in short.items() if is_low])
        if short != self._short_backups:
            self._short_backups = short
            if low:
                self.announce("critical", f"no messages are accepted: {low}", event_code=DISK_FULL)
            elif short:
                text = f"senders get no credit: {_disks_of(short)}"
                self.announce("warning", text, event_code=DISK_SHORT)
            elif self.cluster is not None and self.cluster.primary is not None:
                text = "the disks of the backups have space again"
                self.announce("notice", text, event_code=DISK_HAS_SPACE)
        kept = self.cluster.reserved_backups if low and self.cluster is not None else set()
        full = _disks_of([name for name, is_low in short.items() if is_low and name not in kept])
        refusal = (self._own_disk if self._is_disk_low else "") or full
        if refusal != self._disk_refusal:
            self._disk_refusal = self.broker.refuse_publishing = refusal
        is_used_up = self.reserve is not None and self.reserve.is_used_up
        for_sent = (self._reserved if is_used_up else "") or low
        if for_sent != self._sent_refusal:
            self._sent_refusal = for_sent
            self.broker.reserve(for_sent)
        reason = refusal or self._own_disk or self._reserved or _disks_of(short)
        self.broker.credit.withhold(DISK_FREE_LIMIT, reason)

    def _stop(self, event: StopRequested) -> None:
        self.shutdown()

    # -- the AMQP room's host ---------------------------------------------------------------------

    @property
    def serving(self) -> bool:
        """Whether clients may change things here."""
        return not self.streams.frozen and (
            self.cluster is None or self.cluster.primary is not None
        )

    def compute(self, connection: Connection, work: Callable[[], object], *, blocks: bool) -> None:
        """Have arithmetic done that takes long, or what asks the network, for which no login
        waits.
        """
        if blocks:
            self.effects.append(Compute(connection.connection_id, work, blocks=True))
            return
        self.login_work.add(connection.connection_id, connection.principal.address, work)

    def login_decided(self, connection: Connection, *, refused: bool) -> int:
        """Return how long who logs in waits for the outcome, be it good or bad."""
        wait = self.login_guard.decided(connection.principal.address, self.now, refused=refused)
        if wait and connection.kind is ConnectionKind.CLIENT:
            self.effects.append(LoginWaits(connection.connection_id))
        return wait

    def admit(self, connection: Connection) -> None:
        """Decide who somebody is, and whether he may come in."""
        try:
            admit(self, connection)
            if self.federation.owns(connection.connection_id):
                self.federation.admit(connection)
        except QpidHaError as error:
            self.measures.not_admitted(error)
            raise
        if connection.kind is ConnectionKind.CLIENT:
            self.measures.logins += 1
            comes_first = not connection.principal.is_ordinary
            self.effects.append(Admitted(connection.connection_id, comes_first))

    def refusal(self) -> QpidHaError:
        """Return the error for a change asked of a backup by one who may look at it."""
        return refusal(self)

    def open_properties(self, connection: Connection) -> dict[str, object]:
        """Return what we open a connection with."""
        properties: dict[str, object] = {"qpidha.system-id": self.system_id}
        if self.settings.announce_product == "rabbitmq":
            properties |= {
                "product": "RabbitMQ",
                "version": RABBITMQ_VERSION,
                "node": f"qpidha@{self.address}",
            }
        else:
            properties |= {"product": "qpidha", "version": VERSION}
        if self.federation_tag:
            properties[FED_TAG] = self.federation_tag
        if self.cluster is not None:
            properties[FEATURES_PROPERTY] = sorted(self.features)
            addresses = client_addresses(self, connection)
            if addresses:
                properties["failover-server-list"] = [described(address) for address in addresses]
        return properties

    @property
    def federation_tag(self) -> str:
        """By what messages are known that were here; empty while there is no link."""
        return self.settings.federation_tag or self.broker.federation.tag

    def service(self, address: str) -> Service | None:
        """Return the service at an address."""
        return self.services.get(address)

    def fencing_token(self) -> tuple[int, int]:
        """Return a token that is higher than all before it. A broker that is promoted has a higher
        epoch than any before it, so no two brokers give the same.
        """
        self._tokens += 1
        return self.log.epoch, self._tokens

    def when_committed(self, sequence: int, waiter: Waiter, item: object) -> None:
        """Call `waiter.on_committed(item)` when `sequence` is committed."""
        if sequence > BOTH:
            self.crossing_pending.add(sequence, waiter, item)
        elif sequence > LOCAL:
            self.local_pending.add(sequence, waiter, item)
        elif sequence:
            self.pending.add(sequence, waiter, item)
        else:
            waiter.on_committed(item)

    def wake(self, connection: Connection) -> None:
        """Collect this connection's output at the end of the turn."""
        self.streams.woken[connection.connection_id] = None

    def connection_closed(self, connection: Connection) -> None:
        """The stream goes when the last bytes are collected."""
        self.streams.woken[connection.connection_id] = None
        refused, error = connection.refused_login, connection.error
        if refused is not None and connection.kind is ConnectionKind.CLIENT:
            reason = error.description if error is not None else ""
            self.measures.refusals[CREDENTIALS] += 1
            self.audit.login_refused(self.now, connection.principal, *refused, reason)
        elif (
            connection.kind is ConnectionKind.CLIENT
            and not connection.remote_container
            and error is not None
            and error.condition == ProtocolViolation.condition
        ):
            self.audit.not_opened(self.now, connection.principal, error.description)

    def denied(
        self,
        principal: Principal,
        object_type: ObjectType,
        error: QpidHaError,
        *,
        source: str = "",
        is_each: bool = False,
    ) -> None:
        """Tell of what access control denied."""
        is_role = object_type is ObjectType.ROLE
        self.measures.denials += not is_role
        self.audit.denied(
            self.now, principal, error, is_role=is_role, source=source, is_each=is_each
        )

    def allowed(self, principal: Principal, text: str, *, source: str) -> None:
        """Tell of what access control allowed, where it is asked to."""
        self.audit.allowed(principal, text, source)

    def done(
        self,
        principal: Principal,
        action: Action,
        object_type: ObjectType,
        name: str,
        properties: Mapping[str, object],
    ) -> None:
        """Tell who has changed what."""
        self.audit.done(principal, action, object_type, name, properties)

    def asked(self, principal: Principal, method: str, values: Mapping[str, object]) -> None:
        """Tell who has the broker do what."""
        self.audit.asked(principal, method, values)

    def _say_security(
        self, level: str, text: str, fields: dict[str, object], event_code: str = ""
    ) -> None:
        self.effects.append(Announce(level, "security", text, fields, event_code=event_code))

    # -- the surroundings of links to other brokers -----------------------------------------------

    def say(
        self,
        level: str,
        text: str,
        event_code: str,
        about: LinkChange | None = None,
        **fields: object,
    ) -> None:
        """Say what happened to a link or a route."""
        self.effects.append(Announce(level, "network", text, fields, about, event_code))

    def link_report(self, name: str) -> dict[str, object]:
        """Tell how a link is, if this broker runs it."""
        return self.federation.link_report(name)

    def route_report(self, name: str) -> dict[str, object]:
        """Tell how a route is, if this broker runs it."""
        return self.federation.route_report(name)

    def own_ids(self) -> set[str]:
        """Return the system ids of the brokers of this cluster, as far as they are known."""
        peers = [] if self.cluster is None else self.cluster.peers.all
        known = (peer.known.system_id for peer in peers if peer.known is not None)
        return {self.system_id, *known}

    def link_properties(self) -> dict[str, object]:
        """Return what is said of this broker when a link opens a connection."""
        return {"product": "qpidha", "version": VERSION, "qpidha.system-id": self.system_id}

    # -- the HA machine's port --------------------------------------------------------------------

    def dial(self, host: str, port: int, encrypted: bool) -> int:
        """Open a replication connection."""
        self.dialled -= 1  # those that the world accepts for us have positive ids
        self.effects.append(Connect(self.dialled, host, port, encrypted))
        return self.dialled

    def hello(self) -> dict[str, object]:
        """Return what we say of ourselves when we open a connection to another broker."""
        assert self.cluster is not None
        return {
            "system-id": self.system_id,
            "name": self.name,
            "address": self.address,
            "status": self.cluster.state.value,
            "features": sorted(self.features),
        }

    def _open_replication(self, connection: Connection, peer: str) -> None:
        settings = self.settings
        connection.open(
            self.container_id,
            {**self.open_properties(connection), "qpid.ha-backup": self.hello()},
            mechanism=settings.ha_mechanism,
            username=settings.ha_username,
            password=settings.ha_password,
            hostname=peer.rpartition(":")[0],
            heartbeat=settings.link_heartbeat_interval,
            mutual=not settings.anonymous,
        )
        for sender, name in ((True, "ask"), (False, "hear")):
            connection.attach(
                REPLICATION,
                sender=sender,
                service=self.channels,
                name=f"qpidha.{self.system_id}.{name}",
            )

    def _channel_opened(self, connection: Connection) -> None:
        assert self.cluster is not None
        features = features_of(connection)
        if connection.kind is ConnectionKind.OUTGOING:
            self.cluster.opened(connection.connection_id, features)
        else:
            self.cluster.called(connection.connection_id, *identify(connection), features)

    def _on_message(self, connection_id: int, message: Message) -> None:
        assert self.cluster is not None
        self.cluster.on_message(connection_id, message)

    def hang_up(self, connection_id: int) -> None:
        """Close a replication connection, or give up dialling."""
        connection = self.streams.by_id.get(connection_id)
        if connection is None:
            self.effects.append(Disconnect(connection_id))
        elif not connection.closed:
            connection.close(None)
            self.wake(connection)

    def send(self, connection_id: int, data: bytes | Parts) -> None:
        """Send to another broker what may follow from what was saved."""
        if self.saves.is_idle:
            self.tell(connection_id, data)
            return

        def send() -> None:
            self._unsent[connection_id] -= 1
            if not self._unsent[connection_id]:
                del self._unsent[connection_id]
            self.tell(connection_id, data)

        self._unsent[connection_id] = self._unsent.get(connection_id, 0) + 1
        self.saves.then(send)

    def tell(self, connection_id: int, data: bytes | Parts) -> None:
        """Send to another broker at once."""
        self.channels.send(connection_id, data)
        self.streams.woken[connection_id] = None

    def credit(self, connection_id: int) -> int:
        """Return how many messages another broker takes."""
        return self.channels.credit(connection_id) - self._unsent.get(connection_id, 0)

    def save(self, data: bytes) -> None:
        """Save the state file."""
        if self.saves.is_idle:
            self._saving_since = self.now
        self.effects.append(SaveState(data, self.saves.begin()))

    @property
    def saving_since(self) -> int:
        """Since when the state file is being written, 0 if it is not."""
        return 0 if self.saves.is_idle else self._saving_since

    @property
    def is_awaited(self) -> bool:
        """Whether a client waits for what is appended and not sealed."""
        return self.pending.waits_beyond(self.log.last)

    def is_awaited_before(self, sequence: int) -> bool:
        """Whether one waits for what of it is before a sequence."""
        return self.pending.waits_between(self.log.last, sequence)

    @property
    def is_hurried(self) -> bool:
        """Whether what is appended should be sealed now: for a hand-over, for a checkpoint, for
        what is on two queues until it left one, or for an answer, or the next step of a walk, that
        needs both logs.
        """
        return (
            self.streams.frozen
            or self.broker.crossings.is_busy
            or (self.checkpointer is not None and self.checkpointer.needs_all_sealed)
            or len(self.local_pending) > 0
            or (self.local is not None and self.broker.has_local_walk)
        )

    def when_saved(self, action: Callable[[], None]) -> None:
        """Go on when the state file is saved."""
        self.saves.then(action)

    @property
    def time(self) -> int:
        """The time by which messages expire."""
        return self.broker.time

    def hear_time(self, time: int) -> None:
        """So late it is at the primary: nothing is to expire earlier here."""
        self.broker.former_ahead = time - self.now if time else None

    def announce(self, level: str, text: str, *, event_code: str = "", **fields: object) -> None:
        """Say what happened in the HA machine."""
        self.effects.append(Announce(level, "HA", text, fields, event_code=event_code))

    def state_changed(self, state: BrokerStatus) -> None:
        """Serve clients or send them away."""
        self.event_log.role(state.value)
        if state is BrokerStatus.RECOVERING:
            self.pending.clear(
                0
            )  # what a snapshot brought is in our log, and perhaps not in that of all others
            self.broker.log_writer = self.event_log.log_writer
            self.measures.commits.begin(self.log.last)
            assert self.cluster is not None
            self.replication.new_role()
            self.measures.promoted(self.now, is_handover=self.cluster.is_taking_over)
            self.broker.promoted(self.now)
            self._settle_local()
        elif state is BrokerStatus.READY:
            self._to_settle = self.log.last  # It is not all applied yet.
        elif state is BrokerStatus.ACTIVE:
            self.measures.active(self.now)
        elif state is BrokerStatus.CATCHUP:
            self._to_settle = 0
        elif state is BrokerStatus.JOINING and self.broker.log_writer is not None:
            self.broker.log_writer = None
            self.federation.stop()
            self.log.features = frozenset()
            self.broker.passive = True
            self.broker.abandon_walks()
            self.pending.clear(self.log.committed)
            if self.local is not None:
                self.local_pending.clear(self.local.abandon())
            self.crossing_pending.clear(self.broker.crossings.over)
            self.requests.abandon()
            for connection in list(self.streams.by_id.values()):
                # An administrator may go on looking, but what he holds of messages is void.
                if connection.principal.is_ordinary or (
                    connection.principal.is_administrator
                    and connection.owner is not None
                    and connection.owner.is_in_use
                ):
                    connection.close(elsewhere(self, connection))
                    self.wake(connection)

    def _settle_local(self) -> None:
        """This broker has all that the cluster has."""
        self._to_settle = 0
        if self.local is not None:
            self.effects += self.local.settle()

    def freeze(self, frozen: bool) -> None:
        """Take nothing more from clients, or go on with what they sent meanwhile."""
        if frozen:
            self.streams.freeze()
        else:
            self.streams.frozen = False
            self._hear_put_off()

    def _hear_put_off(self) -> None:
        """Take as much as a turn may have of what clients did while they were not listened to, and
        of what they sent before.
        """
        for end in self.streams.go_on(self.now):
            self._lost(end)
        for event in self.streams.put_off():
            HANDLERS[type(event)](self, event)

    def on_committed(self, committed: int) -> None:
        """The log is committed up to here."""
        if self.saves.is_idle:
            self.pending.release(committed)
            return
        assert self.cluster is not None
        cluster, primary = self.cluster, self.cluster.primary

        def release() -> None:
            if cluster.primary is primary:  # Else its clients are gone, and what they waited for.
                self.pending.release(committed)

        self.saves.then(release)

    def apply(self, data: bytes | Parts, *, is_snapshot: bool = False) -> None:
        """Fold records into the broker model."""
        broker = self.broker
        before = len(broker.features)
        fold(broker, data, is_snapshot=is_snapshot)
        if len(broker.features) != before:
            missing = lacking(broker.features, self.features)
            if missing:  # the primary refuses us: this is for the case that it did not
                raise UpgradeNeeded(upgrade_text("this broker", missing))
            if self.wal is not None:
                self.wal.use(broker.features)
            self._leave_older_brokers()

    def _leave_older_brokers(self) -> None:
        """End the connections of brokers that do not know what the log uses since now: they were
        let in when it did not, and would be sent what they cannot read once this one is primary.
        """
        if self.cluster is not None:
            for connection_id, caller in list(self.cluster.inbound.items()):
                if lacking(self.broker.features, caller.features):
                    self.hang_up(connection_id)

    def forget(self) -> None:
        """Empty the broker model."""
        self.broker.reset(keep_local=True)

    def ha_records(self, data: bytes | Parts) -> list[tuple[int, Record]]:
        """Pick out what concerns the cluster."""
        return ha_records(data)

    def snapshot(self, last: int) -> tuple[Iterator[bytes], Iterator[bytes]]:
        """Write what exists, in chunks."""
        return snapshot_objects(self.broker), snapshot_messages(self.broker, last)

    # -- management's target ----------------------------------------------------------------------

    def confirmed(self) -> Mapping[str, int | None]:
        """Tell how far each backup has the log."""
        return {} if self.cluster is None else confirmed_by(self.cluster)

    def status(self) -> dict[str, Any]:
        """Tell everything there is to know of this broker's part in the cluster."""
        report = standalone_report(
            self.settings, system_id=self.system_id, name=self.name, address=self.address
        )
        pending = len(self.pending) + len(self.local_pending) + len(self.crossing_pending)
        report |= {"held": pending, "pending_acknowledgements": pending}
        report["version"] = VERSION
        report["wall_ns"] = self.now + self.broker.ahead
        report["connections"] = len(self.streams.by_id)
        report["internal_errors"] = self.internal_errors
        report["certificate_expires_ns"] = self.certificate_end * SECOND
        report["memory"] = self.memory.report()
        if self.wal is not None:
            report["journal"] = {**self.wal.report(), "syncs": self.log.syncs}
            if self.wal.disk.free_space() >= 0:
                report["journal"]["free"] = self.wal.disk.free_space()
        if self.local is not None:
            kept = self.local.kept
            report["local_journal"] = {
                **self.local.wal.report(),
                "syncs": self.local.log.syncs,
                "queues": len(kept),
                "messages": sum(kept.values()),
            }
        report |= self.replication.report()
        report["set_aside"] = list(self.wal.set_aside) if self.wal is not None else []
        report["records_set_aside"] = self.wal.records_set_aside if self.wal is not None else 0
        report["features"] = {
            "known": sorted(self.features),
            "enabled": sorted(self.broker.usable),
            "refused": list(self.refused.values()),
        }
        return report if self.cluster is None else report | cluster_report(self.cluster)

    def query(self) -> dict[str, Any]:
        """Tell the HA configuration."""
        status = self.status()
        return {
            key: status[key]
            for key in ("state", "system_id", "brokers_url", "public_url", "replicate")
        }

    def access_list(self) -> dict[str, Any]:
        """Tell the rules of access control."""
        acl = self.access.acl
        return {**acl.report(), "since_ns": self.acl_since} if acl is not None else {"file": ""}

    def connections(self) -> list[Connection]:
        """Return every AMQP connection, oldest first."""
        return list(self.streams.by_id.values())

    def close_connection(self, connection: Connection, error: QpidHaError) -> None:
        """End a connection, and tell its peer why."""
        connection.close(error)
        self.wake(connection)

    def promote(self, reply: Answer, accept_loss: bool = False, forget: str = "") -> None:
        """Become primary."""
        if self.cluster is None:
            reply(Reply(result={"state": BrokerStatus.STANDALONE.value}))
        else:
            if not self.cluster.state.is_primary:
                self.measures.asked(self.now, is_following=self.cluster.is_following)
            self.cluster.promote(self._when_done(reply), accept_loss, forget)

    def demote(self, reply: Answer) -> None:
        """Become a backup."""
        self._member().demote(self._when_done(reply))

    def compare(self, reply: Answer, forget: str = "") -> None:
        """Compare what all brokers of the cluster have."""
        self._member().compare(reporting(reply), forget)

    def switchover(self, target: str, reply: Answer) -> None:
        """Let another broker be primary, without a message in doubt."""
        self._member().switchover(target, reporting(self._saved_first(reply)))

    def record(self, kept: Mapping[str, object] | None, trouble: str, reply: Answer) -> None:
        """Hear what the manager's store keeps, or tell what it is to keep."""
        told = reporting(self._saved_first(reply))
        self._member().membership_store.exchange(kept, trouble, told)

    def unwell(self) -> list[dict[str, Any]]:
        """Tell which links, routes and replicas do not what they are for, why, and what to do."""
        return [*self.federation.unwell(), *self.replication.replicas.unwell()]

    def explain(self) -> list[dict[str, Any]]:
        """Tell what acknowledgements wait for."""
        return explain(self.cluster) if self.cluster is not None else []

    def _member(self) -> Cluster:
        if self.cluster is None:
            raise NotAllowed(
                "this broker is not in a cluster",
                hint="set ha-cluster=yes",
                event_code=NOT_IN_CLUSTER,
            )
        return self.cluster

    def _when_done(self, reply: Answer) -> Callable[[QpidHaError | None], None]:
        reply = self._saved_first(reply)
        return lambda error: reply(
            Reply({"state": self._member().state.value, "epoch": self.log.epoch})
            if error is None
            else Reply(None, error)
        )

    def _saved_first(self, reply: Answer) -> Answer:
        """Have a manager hear what follows from what was saved."""
        return lambda answer: self.saves.then(lambda: reply(answer))

    def reload(self, reply: Answer) -> None:
        """Have users, the access control list, certificates and the log's options read again."""
        self._last_reload += 1
        self._reloads[self._last_reload] = reply
        self.effects.append(Reload(self._last_reload))

    def set_public_url(self, url: Url) -> None:
        """Tell clients these addresses, until this broker stops."""
        self._member()
        was, self.settings = self.settings.ha_public_url, replace(self.settings, ha_public_url=url)
        if url != was:
            text = f"clients are told {url or 'no public address'}, and no longer {was or 'none'}"
            self.announce("notice", text)

    def set_log_level(self, enabled: str, disabled: str) -> None:
        """Log what these selectors say."""
        self.log_level = (enabled, disabled)
        self.effects.append(SetLogLevel(enabled, disabled))

    def shutdown(self, reason: str = "asked to stop", *, failed: bool = False) -> None:
        """End the daemon."""
        if not self.stopping:
            self.stopping = True
            self._ends_log = self.wal is not None and not failed
            self.federation.stop()
            if self.cluster is not None and not failed:
                self.cluster.stop()
            if self.wal is not None:
                self._tell_set_aside(self.wal.set_aside)  # Nobody may look here again.
            for connection in list(self.streams.by_id.values()):
                connection.close(
                    as_told(self, connection, ConnectionForced("the broker is being stopped"))
                )
                self.wake(connection)
            self.broker.returns.finish()
            self.effects.append(Stop(reason, failed))


def _sending(
    connection_id: int, parts: list[bytes | memoryview], limited: bool
) -> SendBytes | SendParts:
    """Say that these are to be written."""
    first: Any = parts[0]
    if len(parts) > 1:
        if sum(map(len, parts)) > MOST_JOINED:
            return SendParts(connection_id, parts, limited)
        first = b"".join(parts)
    return SendBytes(connection_id, first, limited)


def _disks_of(backups: Iterable[str]) -> str:
    """Say that the disks of backups are nearly full; empty for none."""
    names = ", ".join(backups)
    return names and f"the disk of the backup {names} is nearly full"


HANDLERS: dict[type, Callable[[Node, Any], None]] = {
    ConnectionOpened: Node._opened,
    BytesReceived: Node._bytes,
    ConnectionCongested: Node._congested,
    OutputWaiting: Node._output_waiting,
    ConnectionLost: Node._lost,
    HandshakeFailed: Node._handshake_failed,
    Reloaded: Node._reloaded,
    Computed: Node._computed,
    StateSaved: Node._state_saved,
    Tick: Node._tick,
    LogWritten: Node._log_written,
    LogFailed: Node._log_failed,
    DiskSpaceChanged: Node._space_changed,
    Stalled: Node._stalled,
    StopRequested: Node._stop,
}
