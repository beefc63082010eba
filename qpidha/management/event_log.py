"""The event log of one broker: which events of its life are written.

It looks at the broker once at the end of each turn and logs what is different: the promised epoch,
the in-sync set, the peers, the backups, how far each has confirmed and what was accepted, and once
a second how full the queues are. What cannot be seen afterwards is logged where it happens
(EventSink, model/event_log.py), errors when they are announced. With single messages traced
(tracing.py) each turn's confirmations are logged, else at most ten a second. It asks for no turn of
its own, so a broker behaves alike with it and without. Knows nothing of files and threads.
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol

from qpidha.broker.broker import Broker
from qpidha.broker.queues.log_writer import LogWriter
from qpidha.ha.cluster import Cluster
from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.peers import Peer, PeerState
from qpidha.ha.primary import Primary, RemoteBackup
from qpidha.management.measures import CommitTimes
from qpidha.management.recent_events import RecentEvents
from qpidha.management.tracing import Tracing
from qpidha.model.duration import SECOND
from qpidha.model.effects import Announce, Effect, WriteEvents
from qpidha.model.event_log import (
    DepthAlert,
    DiskSpaceChange,
    EventSink,
    LinkChange,
    LogTrouble,
    QueueCreated,
    QueueEnded,
    Withholding,
    writer_name,
)
from qpidha.model.settings import Settings

PACE = SECOND // 10
"""Time between two events of replication where messages are not traced, in ns."""
MOST_QUEUES = 1000
"""Queues that are looked at in one second; of more, each has its turn later."""
ERRORS = ("error", "critical")
"""Levels of announcements that are events."""


class ReplicatedLog(LogWriter, Protocol):
    """The replicated log, as far as the event log looks at it."""

    epoch: int
    last: int
    committed: int
    history: list[tuple[int, int]]

    @property
    def end(self) -> int: ...
    def epoch_of(self, sequence: int) -> int: ...


class Pending(Protocol):
    """What waits for a commit, as far as the event log looks at it."""

    committed: int
    """Up to here clients were told."""


class EventLog(EventSink):
    """Makes the events of one broker and hands them over once a turn."""

    __slots__ = (
        "_backups",
        "_broker",
        "_confirmed",
        "_epoch",
        "_has_accepted",
        "_links",
        "_log",
        "_name",
        "_names",
        "_next_pace",
        "_next_second",
        "_place",
        "_primary",
        "_promised",
        "_commits",
        "_committed",
        "_pending",
        "_set",
        "_shown",
        "_up",
        "_was",
        "log_writer",
        "recent",
    )

    def __init__(
        self,
        settings: Settings,
        log: ReplicatedLog,
        pending: Pending,
        broker: Broker,
        name: str,
        commits: CommitTimes,
    ) -> None:
        level = (
            settings.journal_events if settings.data_dir or settings.journal_events_dir else "off"
        )
        super().__init__(is_on=level != "off")
        self.recent = RecentEvents()
        self._log = log
        self._pending = pending
        self._commits = commits
        self._broker = broker
        self._name = writer_name(name)
        self.log_writer: LogWriter = log
        """What the broker model is to write to."""
        if level in ("sampled", "full"):
            sampling = settings.journal_events_sampling if level == "sampled" else 1
            self.tracer = self.log_writer = Tracing(
                log, self, broker, sampling=sampling, queues=settings.journal_events_queues
            )
        self._names: dict[str, str] = {}
        """System id -> the name it has in events."""
        self._promised = 0
        self._set: object = None
        self._up: dict[str, str] = {}
        """Address of a peer that is there -> its name."""
        self._links: dict[str, int] = {}
        """Name of the other end of a replication link -> its connection."""
        self._was: Peer | None = None
        self._primary: Primary | None = None
        self._epoch = -1
        self._committed = 0
        """Up to here acceptances are logged."""
        self._has_accepted = False
        self._confirmed: dict[str, tuple[int, int, int]] = {}
        """System id of a backup -> connection, sequence and bytes up to which its confirmations are
        logged.
        """
        self._backups: dict[str, RemoteBackup] = {}
        """Backups of the last turn, by system id."""
        self._next_pace = self._next_second = 0
        self._shown: dict[str, tuple[int, int]] = {}
        """Queue -> messages and bytes that were logged last."""
        self._place = 0

    @property
    def is_tracing(self) -> bool:
        """Whether single messages are logged, each with the turn in which something became of it:
        whoever judges compares that with the clocks of clients.
        """
        return self.tracer is not None

    def role(self, state: str, why: str = "") -> None:
        """The broker is in another state from now on."""
        if self.is_on and self._primary is not None and state == "joining":
            # It steps down in the middle of a turn, in which more may have been accepted.
            self._progress(self._primary)
            self._primary = None
        self.add("role", r=state, e=self._log.epoch, x=why)

    def turn(self, now: int, cluster: Cluster | None, effects: list[Effect]) -> None:
        """Look at the broker at the end of a turn, and put all events among what the turn asks of
        the world.
        """
        if not self.is_on:
            return
        for effect in effects:
            if type(effect) is Announce:
                self._announced(effect)
        if cluster is None:
            self._alone()
        else:
            self._look(cluster)
        self._accepted(
            now,
            cluster.primary if cluster is not None else None,
            has_role=cluster is None or cluster.primary is not None,
        )
        if now >= self._next_second:
            self._next_second = now + SECOND
            self._each_second()
        if self.rows:
            self.recent.note(now, self.rows)
            effects.append(WriteEvents(now, self.rows))
            self.rows = []

    # -- what was announced -----------------------------------------------------------------------

    def _announced(self, effect: Announce) -> None:
        """Log what an announcement is about, and every error."""
        match effect.about:
            case QueueCreated(queue):
                self._queue(queue, "created")
            case QueueEnded(queue):
                self._queue(queue, "deleted")
            case DiskSpaceChange(is_low):
                done = "refusing messages" if is_low else "taking messages"
                self.add("limit", f="disk-free-limit", x=done, cnt=1)
            case Withholding(limit, is_reached):
                done = "withholding credit" if is_reached else "giving credit"
                self.add("limit", f=limit, x=done, cnt=1)
            case DepthAlert(queue, is_up, messages):
                done = "crossed upward" if is_up else "crossed downward"
                self.add("limit", f="alert", x=done, q=queue, cnt=messages)
            case LinkChange(kind, what, name, why):
                self.add(kind, f=what, x=name, err=why)
            case LogTrouble(what):
                self.add("error", err=effect.text, x=what)
            case None:
                if effect.level in ERRORS:
                    self.add("error", err=effect.text, x=effect.category)

    def _queue(self, name: str, done: str) -> None:
        self._shown.pop(name, None)
        self.add("queue", q=name, f=done)

    # -- what is to be seen -----------------------------------------------------------------------

    def _alone(self) -> None:
        if self._epoch < 0:
            self._epoch = 0
            self._committed = self._log.committed
            self.role("standalone")
            self.add("insync", e=0, set=self._name)

    def _look(self, cluster: Cluster) -> None:
        promises = cluster.promises
        # A promise counts when it is on disk: after a crash before that there was none.
        if promises.promised != self._promised and not cluster.port.saving_since:
            self._promised = promises.promised
            epoch, candidate = promises.granted
            self.add(
                "epoch",
                e=promises.promised,
                x=self._named(cluster, candidate) if epoch == promises.promised else "",
            )
        self._look_at_peers(cluster)
        primary = cluster.primary
        if primary is not self._primary:
            self._primary = primary
            self._confirmed.clear()
            self._backups.clear()
            if primary is not None:
                self._epoch = primary.in_sync.epoch
                self._committed = max(self._log.committed, self._log.history[-1][1] - 1)
                self._next_pace = 0
                self._has_accepted = False
        if promises.in_sync is not self._set:
            self._log_set(cluster, promises.in_sync)
        self._look_at_links(cluster)

    def _log_set(self, cluster: Cluster, set_: InSyncSet) -> None:
        members = set_.members
        if cluster.primary is None and not all(
            member in self._names or member == cluster.system_id for member in members
        ):
            return  # a backup waits until it knows their names
        self._set = set_
        if members:
            self.add(
                "insync",
                e=set_.epoch,
                set=" ".join(sorted(self._named(cluster, member) for member in members)),
            )

    def _look_at_peers(self, cluster: Cluster) -> None:
        for peer in cluster.peers.all:
            address = peer.name
            if peer.status is not None and peer.state is PeerState.UP:
                if address not in self._up:
                    self._up[address] = self._learn(
                        peer.status.system_id, writer_name(peer.status.name or address)
                    )
                    self.add("member", x=self._up[address], f="up", e=peer.status.epoch)
            elif address in self._up:
                self.add("member", x=self._up.pop(address), f="down")

    def _look_at_links(self, cluster: Cluster) -> None:
        """Log replication links that opened or closed, and that a primary which was followed is
        gone.
        """
        following = cluster.backup.primary if cluster.backup is not None else None
        links = {}
        if cluster.primary is not None:
            links = {
                self._named(cluster, system_id): backup.connection_id
                for system_id, backup in cluster.primary.backups.items()
            }
        elif following is not None and following.status is not None:
            links = {self._named(cluster, following.status.system_id): following.connection_id}
        if links != self._links:
            for name, number in self._links.items():
                if links.get(name) != number:
                    self.add("link", x=name, f="down")
            for name, number in links.items():
                if self._links.get(name) != number:
                    self.add("link", x=name, f="up")
            self._links = links
        was, self._was = self._was, following
        if (
            was is not None
            and following is None
            and cluster.primary is None
            and was.state is not PeerState.UP
            and was.known is not None
        ):
            name = self._named(cluster, was.known.system_id)
            self.add("failover", f="detected", e=was.known.epoch, x=name)

    def _learn(self, system_id: str, name: str) -> str:
        """Take the name that a broker gives itself; what was logged under another one is logged
        again.
        """
        if self._names.get(system_id) != name:
            self._names[system_id] = name
            self._set = None
            self._confirmed.pop(system_id, None)
        return name

    def _named(self, cluster: Cluster, system_id: str) -> str:
        """Return the name of a broker, its system id as long as that is all that is known of it."""
        return (
            self._name if system_id == cluster.system_id else self._names.get(system_id, system_id)
        )

    # -- replication ------------------------------------------------------------------------------

    def _accepted(self, now: int, primary: Primary | None, *, has_role: bool) -> None:
        """Log what backups confirmed and, after that, what was accepted."""
        if not has_role:
            return
        if primary is not None:
            self._look_at_backups(primary)
        # What is committed and not told yet, because the state file is being written, may never be.
        committed = self._pending.committed
        if not self.is_tracing:
            if now < self._next_pace:
                return
            if committed > self._committed:
                self._next_pace = now + PACE
        self._progress(primary)

    def _look_at_backups(self, primary: Primary) -> None:
        """Log what those have confirmed whose link is gone: part of what was accepted rests
        on it.
        """
        if primary.backups != self._backups:
            for system_id, backup in self._backups.items():
                if primary.backups.get(system_id) is not backup:
                    self._confirmations(backup)
            self._backups = dict(primary.backups)

    def _progress(self, primary: Primary | None) -> None:
        """Log what was confirmed since the last time, and then what was accepted."""
        if primary is not None:
            self._look_at_backups(primary)
            for backup in primary.backups.values():
                self._confirmations(backup)
        if self._pending.committed > self._committed:
            self._acceptances(self._pending.committed)

    def _confirmations(self, backup: RemoteBackup) -> None:
        before = self._confirmed.get(backup.system_id)
        if before is None or before[0] != backup.connection_id:
            before = (backup.connection_id, 0, 0)
        confirmed = backup.confirmed
        if confirmed <= before[1]:
            return
        size = backup.confirmed_bytes
        name = self._names.get(backup.system_id, backup.system_id)
        first = before[1] + 1 if before[1] else confirmed
        if size > before[2]:
            self.add(
                "rep",
                x=name,
                e=self._epoch,
                p=first,
                hi=confirmed,
                z=size - before[2],
                dt=backup.took,
            )
        else:  # it had that already
            self.add("rep", x=name, e=self._epoch, p=first, hi=confirmed)
        self._confirmed[backup.system_id] = (backup.connection_id, confirmed, size)

    def _acceptances(self, committed: int) -> None:
        if not self._has_accepted and self._epoch > 0:
            self._has_accepted = True
            self.add("failover", f="accepted", e=self._epoch)
        took = self._commits.take_longest()
        self.add("conf", e=self._epoch, p=self._committed + 1, hi=committed, dt=took)
        self._committed = committed
        if isinstance(self.tracer, Tracing):
            self.tracer.committed(committed)

    # -- each second ------------------------------------------------------------------------------

    def _each_second(self) -> None:
        for (limit, done, where), number in self.hits.items():
            self.add("limit", f=limit, x=done, q=where, cnt=number)
        self.hits.clear()
        broker = self._broker
        if broker.passive:
            return
        count = len(broker.queues)
        if self._place >= count:
            self._place = 0
        shown = self._shown
        for name, queue in islice(broker.queues.items(), self._place, self._place + MOST_QUEUES):
            depth = (len(queue.messages), queue.bytes)
            if shown.get(name) != depth:
                shown[name] = depth
                self.add("queue", q=name, f="stat", cnt=depth[0], z=depth[1])
        self._place += MOST_QUEUES
