"""The status report: what one broker can tell of itself and of its cluster, as plain data.

This is the object that `qpid-ha status -o json`, the admin socket and the built-in manager read. Fields are
only ever added.
"""

from __future__ import annotations

from typing import Any

from qpidha.ha.role import Cluster
from qpidha.ha.status import BrokerStatus
from qpidha.words.settings import Settings

SCHEMA_VERSION = 1


def standalone_report(settings: Settings, *, system_id: str, name: str, address: str) -> dict[str, Any]:
    """Report a broker that is in no cluster; sequences are 0, as it keeps no log."""
    return {
        "schema_version": SCHEMA_VERSION, "name": name, "address": address, "system_id": system_id,
        "state": BrokerStatus.STANDALONE.value, "since_ns": 0, "epoch": 0, "promised": 0, "sequence": 0, "safe": 0, "applied": 0,
        "primary": None, "in_sync": {"epoch": 0, "version": 0, "members": []}, "members": [], "expected": [], "leaving": [], "held": 0,
        "handing_over": "", "brokers_url": str(settings.ha_brokers_url), "public_url": str(settings.ha_public_url),
        "replicate": settings.ha_replicate, "live": False, "strict": False, "majority": False,
        "recorder": settings.ha_recorder, "to_record": None, "foreign": [],
    }  # fmt: skip


def cluster_report(cluster: Cluster) -> dict[str, Any]:
    """Report a broker's part in its cluster: what differs from, or adds to, the report of a lone broker."""
    log, set_, peer = cluster.log, cluster.saved.in_sync, cluster.current_primary()
    primary: dict[str, Any] | None = None
    if cluster.primary is not None:
        primary = {"system_id": cluster.system_id, "address": cluster.address}
    elif peer is not None and peer.status is not None:
        primary = {"system_id": peer.status.system_id, "address": peer.name}
    return {
        "state": cluster.state.value, "since_ns": cluster.since, "epoch": log.epoch, "promised": cluster.saved.promised,
        "sequence": log.last, "safe": log.safe, "applied": log.last if cluster.backup is None else cluster.backup.applied,
        "primary": primary, "in_sync": {"epoch": set_.epoch, "version": set_.version, "members": list(set_.members)},
        "members": cluster.members(), "expected": [] if cluster.primary is None else list(cluster.primary.expected),
        "leaving": [] if cluster.primary is None else list(cluster.primary.leaving),
        "handing_over": cluster.handover.peer.name if cluster.handover is not None else "",
        "live": cluster.is_live, "strict": cluster.peers.strict, "majority": cluster.hears_majority,
        "to_record": cluster.recorder.report(), "foreign": [peer.name for peer in cluster.peers.others() if peer.foreign],
    }  # fmt: skip
