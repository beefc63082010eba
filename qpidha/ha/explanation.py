"""Explanation: what acknowledgements wait for at this moment, or what a backup needs to become
ready.

One entry a cause, as plain data: `waits_for` is a word for programs, `text` a sentence for people,
`since_ns` and `for_ns` say since when and for how long it is so. No entry means that nothing waits.
Must not change anything. Source: rule S2 in `docs/internals/safety.md`; Qpid QPID-5973.
"""

from __future__ import annotations

from qpidha.ha.backup import Backup
from qpidha.ha.cluster import Cluster
from qpidha.ha.handover import Handover
from qpidha.ha.membership import Membership
from qpidha.ha.newcomer import unheard
from qpidha.ha.peers import PeerState, incompatible_text
from qpidha.ha.port import Log
from qpidha.ha.primary import Primary
from qpidha.ha.wire import Status
from qpidha.model.broker_states import UNREACHABLE, BrokerStatus

Entry = dict[str, object]


def explain(cluster: Cluster) -> list[Entry]:
    """Return one entry for each cause that acknowledgements, or this backup, wait for."""
    found: list[Entry] = []
    if cluster.primary is not None:
        found = _of_primary(cluster, cluster.primary)
    elif cluster.backup is not None:
        found = _of_backup(cluster, cluster.backup)
    if cluster.port.saving_since:
        text = "the state file of this broker to be written: promises and the in-sync set"
        found.append(
            {"waits_for": "state-file", "since_ns": cluster.port.saving_since, "text": text}
        )
    if cluster.promises.is_new:
        text = (
            f"word from {unheard(cluster.peers)} of what this broker, which is new, may "
            "have promised before; until then it does not vote"
        )
        found.append({"waits_for": "others", "since_ns": 0, "text": text})
    for peer in cluster.peers.others():
        if peer.incompatible:
            text = incompatible_text(peer.name, peer.incompatible, cluster.peers.ha_recorder)
            found.append(
                {"waits_for": "ha-recorder", "address": peer.name, "since_ns": 0, "text": text}
            )
    now = cluster.port.now
    for entry in found:
        since = entry["since_ns"]
        assert isinstance(since, int)
        entry["for_ns"] = now - since if since else 0
    return found


def _of_primary(cluster: Cluster, primary: Primary) -> list[Entry]:
    log = cluster.log
    found: list[Entry] = []
    if primary.short_since:
        members = [
            cluster.peers.address_of(member) if member != primary.system_id else cluster.address
            for member in primary.in_sync.members
        ]
        found.append(
            {
                "waits_for": "ha-min-in-sync",
                "min_in_sync": primary.min_in_sync,
                "in_sync": members,
                "since_ns": primary.short_since,
                "text": (
                    f"ha-min-in-sync is {primary.min_in_sync}, and in sync are only: "
                    f"{', '.join(members)}; nothing is acknowledged"
                ),
            }
        )
    if primary.disk_since:
        found.append(_disk(log, primary.disk_since))
    found += [
        entry
        for member in primary.required
        if (entry := _of_required(cluster, primary, member)) is not None
    ]
    membership = cluster.membership
    if membership is not None and membership.since:
        found.append(_of_change(cluster, primary, membership))
    if cluster.handover is not None:
        name = cluster.handover.peer.name
        behind = log.end - cluster.handover.target.confirmed
        found.append(_of_handover(cluster.handover, f"{name} is still {behind} records behind"))
    return found


def _disk(log: Log, since: int) -> Entry:
    behind = log.last - log.durable_to
    text = f"the disk of this broker, which has {behind} records less than the log"
    return {"waits_for": "disk", "behind": behind, "since_ns": since, "text": text}


def _of_change(cluster: Cluster, primary: Primary, membership: Membership) -> Entry:
    """Tell of a smaller set that is not recorded yet."""
    going = {
        cluster.peers.address_of(member): leaving for member, leaving in primary.leaving.items()
    }
    why = "; ".join(leaving.why for leaving in going.values())
    wanted = f"to go on without {', '.join(going)} ({why})"
    entry: Entry = {"leaving": list(going), "since_ns": membership.since}
    if cluster.membership_store.is_used:
        trouble = cluster.membership_store.trouble
        text = f"the cluster manager's store to keep the smaller set, {wanted}; not yet: {trouble}"
        return {"waits_for": "recorder", **entry, "trouble": trouble, "text": text}
    silent = membership.not_answered()
    text = f"the consent of a majority {wanted}; not yet: {', '.join(silent)}"
    return {"waits_for": "majority", **entry, "not_answered": silent, "text": text}


def _of_handover(handover: Handover, text: str) -> Entry:
    return {
        "waits_for": "hand-over",
        "address": handover.peer.name,
        "since_ns": handover.since,
        "text": f"switchover: {text}",
    }


def _of_required(cluster: Cluster, primary: Primary, member: str) -> Entry | None:
    """Return the entry of a backup that acknowledgements wait for, or that keeps the primary from
    being active; None if it confirmed everything.
    """
    log = cluster.log
    name = cluster.peers.address_of(member)
    backup = primary.backups.get(member)
    leaving = primary.leaving.get(member)
    is_expected = member in primary.expected
    confirmed = backup.confirmed if backup is not None else 0
    behind = max(log.last - max(confirmed, log.committed if backup is None else 0), 0)
    if not is_expected and (
        confirmed >= log.last if backup is not None else log.committed >= log.last
    ):
        return None
    since = backup.since if backup is not None else leaving.since if leaving is not None else 0
    if is_expected:
        since = since or cluster.since
    until = (
        primary.expected.get(member, 0)
        if backup is None
        else backup.since + primary.patience
        if backup.since
        else 0
    )
    how = f"has confirmed {confirmed} of {log.last}" if backup is not None else "is not connected"
    kind = "the expected backup" if is_expected else "the backup"
    return {
        "waits_for": "expected backup" if is_expected else "backup",
        "address": name,
        "system_id": member,
        "connected": backup is not None,
        "confirmed": confirmed,
        "behind": behind,
        "since_ns": since,
        "until_ns": until,
        "text": f"{kind} {name}, which {how}",
    }


def _of_backup(cluster: Cluster, backup: Backup) -> list[Entry]:
    log = cluster.log
    found: list[Entry] = []
    if cluster.handover is not None:
        name = cluster.handover.peer.name
        found.append(_of_handover(cluster.handover, f"{name} is about to take over"))
    if backup.began and log.durable_to < log.last:
        found.append(_disk(log, 0))
    if backup.primary is None:
        found.append(_without_primary(cluster))
    elif cluster.state is not BrokerStatus.READY:
        if backup.in_snapshot:
            has = f"has {backup.chunks} chunks of a snapshot"
        else:
            wanted = max(backup.history_end, backup.snapshot_through)
            has = f"has {log.durable_to} of at least {wanted} records"
        text = (
            f"this broker to catch up with {backup.primary.name}: it {has}; until then it "
            "cannot be promoted"
        )
        found.append(
            {
                "waits_for": "catch-up",
                "address": backup.primary.name,
                "confirmed": log.durable_to,
                "snapshot": backup.in_snapshot,
                "chunks": backup.chunks,
                "since_ns": cluster.since,
                "text": text,
            }
        )
    return found


def _without_primary(cluster: Cluster) -> Entry:
    silent = [peer.name for peer in cluster.peers.others() if peer.state is not PeerState.UP]
    if cluster.promises.is_complete:
        can = (
            "this broker has all that it ever confirmed and can be promoted if it is in the "
            "newest in-sync set"
        )
    elif cluster.log.last:
        can = (
            f"the log of this broker goes up to {cluster.log.epoch}:{cluster.log.last}: "
            "compare with qpid-ha recover"
        )
    else:
        can = "this broker has nothing: compare with qpid-ha recover"
    away = f"; no connection to {', '.join(silent)}" if silent else ""
    return {
        "waits_for": "primary",
        "is_live": cluster.promises.is_complete,
        "is_complete": cluster.promises.is_complete,
        "not_connected": silent,
        "since_ns": cluster.since,
        "text": f"a primary: none is known{away}; {can}",
    }


def confirmed_by(cluster: Cluster) -> dict[str, int | None]:
    """On a primary, tell of each other broker up to where it has confirmed the log; None while that
    is not known: it is not connected, or has no whole snapshot yet.
    """
    if cluster.primary is None:
        return {}
    found: dict[str, int | None] = {}
    for peer in cluster.peers.others():
        status = peer.known
        backup = None if status is None else cluster.primary.backups.get(status.system_id)
        name = status.name if status is not None else ""
        confirmed = backup.confirmed if backup is not None and backup.is_whole else 0
        # A link begins with 0, which is no place in the log (S6).
        found[name or peer.name] = confirmed or None
    return found


def describe_members(cluster: Cluster) -> list[Entry]:
    """Return what is known of every broker, this one first. The state of one that is not connected
    is not known: what it said last may be long ago.
    """
    confirmed = {}
    in_sync: tuple[str, ...] = ()
    if cluster.primary is not None:
        confirmed = {
            backup.system_id: backup.confirmed for backup in cluster.primary.backups.values()
        }
    own = cluster.status()
    in_sync = own.in_sync_members
    rows: list[tuple[Status | None, str, bool]] = [(own, cluster.address, True)]
    rows += [(peer.known, peer.name, peer.state is PeerState.UP) for peer in cluster.peers.others()]
    result: list[Entry] = []
    for status, address, connected in rows:
        row: Entry = {
            "system_id": "",
            "name": "",
            "address": address,
            "state": UNREACHABLE,
            "epoch": 0,
            "sequence": 0,
        }
        if status is not None:
            row |= {
                "system_id": status.system_id,
                "name": status.name,
                "state": status.state if connected else UNREACHABLE,
                "epoch": status.epoch,
                "sequence": confirmed.get(status.system_id, status.sequence),
            }
        row["connected"] = connected
        row["in_sync"] = status is not None and status.system_id in in_sync
        result.append(row)
    return result
