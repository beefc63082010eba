"""Explanation: what acknowledgements wait for at this moment, or what a backup needs to become ready.

One entry a cause, as plain data: `waits_for` is a word for programs, `text` a sentence for people, `since_ns` and `for_ns` say
since when and for how long it is so. No entry means that nothing is waited for.
Only looks. Source: DESIGN section 5, S2 ("status says what they wait for"); Qpid QPID-5973.
"""

from __future__ import annotations

from typing import Protocol

from qpidha.ha.backup import Backup
from qpidha.ha.handover import Handover
from qpidha.ha.peers import Peer, Peers, PeerState, foreign_text
from qpidha.ha.port import Log, Port
from qpidha.ha.primary import Primary
from qpidha.ha.recording import Recorder
from qpidha.ha.status import BrokerStatus
from qpidha.ha.voting import Voting
from qpidha.ha.wire import Status

Entry = dict[str, object]


class Explained(Protocol):
    """The HA machine."""

    port: Port
    log: Log
    peers: Peers
    recorder: Recorder
    state: BrokerStatus
    since: int
    is_live: bool
    address: str
    primary: Primary | None
    backup: Backup | None
    voting: Voting | None

    @property
    def handover(self) -> Handover | None:
        """The hand-over that is under way."""

    def status(self) -> Status:
        """Return how this broker is."""

    def current_primary(self) -> Peer | None:
        """Return the primary that this broker knows of."""


def explain(cluster: Explained) -> list[Entry]:
    """Tell what is waited for."""
    found: list[Entry] = []
    if cluster.primary is not None:
        found = _of_primary(cluster, cluster.primary)
    elif cluster.backup is not None:
        found = _of_backup(cluster, cluster.backup)
    for peer in cluster.peers.others():
        if peer.foreign:
            text = foreign_text(peer.name, peer.foreign, cluster.peers.recorder)
            found.append({"waits_for": "ha-recorder", "address": peer.name, "since_ns": 0, "text": text})
    now = cluster.port.now
    for entry in found:
        since = entry["since_ns"]
        assert isinstance(since, int)
        entry["for_ns"] = now - since if since else 0
    return found


def _of_primary(cluster: Explained, primary: Primary) -> list[Entry]:
    log = cluster.log
    found: list[Entry] = []
    members = [cluster.peers.address_of(member) if member != primary.system_id else cluster.address for member in primary.in_sync.members]
    if primary.short_since:
        found.append({
            "waits_for": "ha-min-in-sync", "min_in_sync": primary.min_in_sync, "in_sync": members, "since_ns": primary.short_since,
            "text": f"ha-min-in-sync is {primary.min_in_sync}, and in sync are only: {', '.join(members)}; nothing is acknowledged",
        })  # fmt: skip
    if primary.disk_since:
        found.append({
            "waits_for": "disk", "behind": log.last - log.kept, "since_ns": primary.disk_since,
            "text": f"the disk of this broker, which has {log.last - log.kept} records less than the log",
        })  # fmt: skip
    found += [entry for member in primary.required if (entry := _of_required(cluster, primary, member)) is not None]
    voting = cluster.voting
    if voting is not None and voting.since:
        going = {cluster.peers.address_of(member): leaving for member, leaving in primary.leaving.items()}
        unheard = voting.unheard()
        why = "; ".join(leaving.why for leaving in going.values())
        wanted = f"to go on without {', '.join(going)} ({why})"
        trouble = cluster.recorder.trouble
        found.append({
            "waits_for": "recorder", "leaving": list(going), "trouble": trouble, "since_ns": voting.since,
            "text": f"the cluster manager's store to keep the smaller set, {wanted}; not yet: {trouble}",
        } if cluster.recorder.is_used else {
            "waits_for": "majority", "leaving": list(going), "not_answered": unheard, "since_ns": voting.since,
            "text": f"the consent of a majority {wanted}; not yet: {', '.join(unheard)}",
        })  # fmt: skip
    if cluster.handover is not None:
        name = cluster.handover.peer.name
        text = f"{name}, which is to be primary and does not have everything yet"
        found.append({"waits_for": "hand-over", "address": name, "since_ns": cluster.handover.since, "text": text})
    return found


def _of_required(cluster: Explained, primary: Primary, member: str) -> Entry | None:
    """Tell of a backup that holds acknowledgements back, or that keeps the primary from being active."""
    log = cluster.log
    name = cluster.peers.address_of(member)
    backup = primary.backups.get(member)
    leaving = primary.leaving.get(member)
    is_expected = member in primary.expected
    confirmed = backup.confirmed if backup is not None else 0
    behind = max(log.last - max(confirmed, log.safe if backup is None else 0), 0)
    if not is_expected and (confirmed >= log.last if backup is not None else log.safe >= log.last):
        return None
    since = backup.since if backup is not None else leaving.since if leaving is not None else 0
    if is_expected:
        since = since or cluster.since
    until = primary.expected.get(member, 0) if backup is None else backup.since + primary.patience if backup.since else 0
    how = f"has confirmed {confirmed} of {log.last}" if backup is not None else "is not connected"
    kind = "the expected backup" if is_expected else "the backup"
    return {
        "waits_for": "expected backup" if is_expected else "backup", "address": name, "system_id": member,
        "connected": backup is not None, "confirmed": confirmed, "behind": behind, "since_ns": since, "until_ns": until,
        "text": f"{kind} {name}, which {how}",
    }  # fmt: skip


def _of_backup(cluster: Explained, backup: Backup) -> list[Entry]:
    log = cluster.log
    found: list[Entry] = []
    if cluster.handover is not None:
        name = cluster.handover.peer.name
        found.append({"waits_for": "hand-over", "address": name, "since_ns": cluster.handover.since, "text": f"{name} to take over"})
    if backup.began and log.kept < log.last:
        text = f"the disk of this broker, which has {log.last - log.kept} records less than the log"
        found.append({"waits_for": "disk", "behind": log.last - log.kept, "since_ns": 0, "text": text})
    if backup.primary is None:
        found.append(_without_primary(cluster))
    elif cluster.state is not BrokerStatus.READY:
        if backup.in_snapshot:
            has = f"has {backup.chunks} chunks of a snapshot"
        else:
            has = f"has {log.kept} of at least {max(backup.news_after, backup.floor)} records"
        text = f"this broker to catch up with {backup.primary.name}: it {has}; until then it cannot be promoted"
        found.append({
            "waits_for": "catch-up", "address": backup.primary.name, "confirmed": log.kept, "snapshot": backup.in_snapshot,
            "chunks": backup.chunks, "since_ns": cluster.since, "text": text,
        })  # fmt: skip
    return found


def _without_primary(cluster: Explained) -> Entry:
    silent = [peer.name for peer in cluster.peers.others() if peer.state is not PeerState.UP]
    if cluster.is_live:
        can = "this broker has all that it ever confirmed and can be promoted if it is in the newest in-sync set"
    elif cluster.log.last:
        can = f"this broker has what its log kept, up to {cluster.log.epoch}:{cluster.log.last}: compare with qpid-ha recover"
    else:
        can = "this broker has nothing: compare with qpid-ha recover"
    away = f"; no connection to {', '.join(silent)}" if silent else ""
    return {
        "waits_for": "primary", "is_live": cluster.is_live, "not_connected": silent, "since_ns": cluster.since,
        "text": f"a primary: none is known{away}; {can}",
    }  # fmt: skip


def describe_members(cluster: Explained) -> list[Entry]:
    """Tell what is known of every broker, ourselves first."""
    confirmed = {}
    in_sync: tuple[str, ...] = ()
    if cluster.primary is not None:
        confirmed = {backup.system_id: backup.confirmed for backup in cluster.primary.backups.values()}
    own = cluster.status()
    in_sync = own.in_sync_members
    rows: list[tuple[Status | None, str, bool]] = [(own, cluster.address, True)]
    rows += [(peer.known, peer.name, peer.state is PeerState.UP) for peer in cluster.peers.others()]
    result: list[Entry] = []
    for status, address, connected in rows:
        row: Entry = {"system_id": "", "name": "", "address": address, "state": "unknown", "epoch": 0, "sequence": 0}
        if status is not None:
            row |= {
                "system_id": status.system_id,
                "name": status.name,
                "state": status.state,
                "epoch": status.epoch,
                "sequence": confirmed.get(status.system_id, status.sequence),
            }
        row["connected"] = connected
        row["in_sync"] = status is not None and status.system_id in in_sync
        result.append(row)
    return result
