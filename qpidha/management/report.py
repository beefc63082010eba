"""The status report: what one broker can tell of itself and of its cluster, as plain data.

This is the object that `qpid-ha status -o json`, the admin socket and the built-in manager read.
Fields are only ever added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.ha.cluster import Cluster
from qpidha.ha.explanation import describe_members
from qpidha.management.schema import unreplicated_messages
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.settings import Settings

if TYPE_CHECKING:
    from qpidha.management.port import ManagedNode


SCHEMA_VERSION = 1


def standalone_report(
    settings: Settings, *, system_id: str, name: str, address: str
) -> dict[str, Any]:
    """Report a broker that is in no cluster; sequences are 0, as it keeps no log."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "address": address,
        "system_id": system_id,
        "state": BrokerStatus.STANDALONE.value,
        "since_ns": 0,
        "epoch": 0,
        "promised": 0,
        "sequence": 0,
        "safe": 0,
        "committed": 0,
        "applied": 0,
        "primary": None,
        "in_sync": {"epoch": 0, "version": 0, "members": []},
        "members": [],
        "expected": [],
        "leaving": [],
        "held": 0,
        "pending_acknowledgements": 0,
        "handing_over": "",
        "brokers_url": str(settings.ha_brokers_url),
        "public_url": str(settings.ha_public_url),
        "replicate": settings.ha_replicate,
        "live": False,
        "complete": False,
        "strict": False,
        "majority": False,
        "recorder": settings.ha_recorder,
        "heartbeat_ns": settings.link_heartbeat_interval,
        "to_record": None,
        "foreign": [],
        "incompatible": [],
    }


def cluster_report(cluster: Cluster) -> dict[str, Any]:
    """Report a broker's part in its cluster: what differs from, or adds to, the report of a lone
    broker.
    """
    log, set_, peer = cluster.log, cluster.promises.in_sync, cluster.peers.current_primary()
    incompatible = [peer.name for peer in cluster.peers.others() if peer.incompatible]
    primary: dict[str, Any] | None = None
    if cluster.primary is not None:
        primary = {"system_id": cluster.system_id, "address": cluster.address}
    elif peer is not None and peer.status is not None:
        primary = {"system_id": peer.status.system_id, "address": peer.name}
    return {
        "state": cluster.state.value,
        "since_ns": cluster.since,
        "epoch": log.epoch,
        "promised": cluster.promises.promised,
        "sequence": log.last,
        "safe": log.committed,
        "committed": log.committed,
        "applied": log.last if cluster.backup is None else cluster.backup.applied,
        "primary": primary,
        "in_sync": {"epoch": set_.epoch, "version": set_.version, "members": list(set_.members)},
        "members": describe_members(cluster),
        "expected": [] if cluster.primary is None else list(cluster.primary.expected),
        "leaving": [] if cluster.primary is None else list(cluster.primary.leaving),
        "handing_over": cluster.handover.peer.name if cluster.handover is not None else "",
        "live": cluster.promises.is_complete,
        "complete": cluster.promises.is_complete,
        "strict": cluster.peers.strict,
        "majority": cluster.hears_majority,
        "to_record": cluster.membership_store.report(),
        "foreign": incompatible,
        "incompatible": incompatible,
    }


SHOWN_LINKS = 20
"""Links, routes and replicas that are named."""
SHOWN_QUEUES = 5
"""Queues that are named; those with the most unreplicated messages."""


def _only_here(node: ManagedNode, status: dict[str, Any]) -> dict[str, Any]:
    """Report the messages that no other broker has, and the queues with most of them."""
    kept = [
        queue
        for queue in node.broker.queues.values()
        if queue.local_writer is not None and not queue.logged and queue.messages
    ]
    kept.sort(key=lambda queue: (-len(queue.messages), queue.name))
    journal = status.get("local_journal", {})
    return {
        "only_here_messages": journal.get("messages", 0),
        "only_here_queues": journal.get("queues", 0),
        "only_here": [
            {"name": queue.name, "messages": len(queue.messages)} for queue in kept[:SHOWN_QUEUES]
        ],
    }


def explained(node: ManagedNode) -> dict[str, Any]:
    """Report the causes that acknowledgements wait for, the queues that they block, queues that
    have stopped their senders or have messages without a place, and links, routes and replicas that
    do not what they are for.
    """
    status = node.status()
    unwell = node.unwell()
    node.lines.spend(len(node.broker.queues))
    stopped = [queue for queue in node.broker.queues.values() if queue.is_stopped]
    stopped.sort(key=lambda queue: (-len(queue.waiting), queue.name))
    unplaced = [queue for queue in node.broker.queues.values() if queue.unplaced]
    unplaced.sort(key=lambda queue: (-len(queue.unplaced), queue.name))
    counts = [
        (unreplicated_messages(queue, node), queue.name) for queue in node.broker.queues.values()
    ]
    unreplicated = sorted(
        ((count, name) for count, name in counts if count), key=lambda row: (-row[0], row[1])
    )
    return {
        "schema_version": 1,
        "name": status.get("name", ""),
        "address": status.get("address", ""),
        "state": status.get("state", ""),
        "since_ns": status.get("since_ns", 0),
        "now_ns": node.now,
        "held": status.get("held", 0),
        "pending_acknowledgements": status.get("pending_acknowledgements", 0),
        "unsafe_messages": sum(count for count, _ in unreplicated),
        "unsafe_queues": len(unreplicated),
        "unreplicated_messages": sum(count for count, _ in unreplicated),
        "unreplicated_queues": len(unreplicated),
        "queues": [
            {"name": name, "unsafe": count, "unreplicated": count}
            for count, name in unreplicated[:SHOWN_QUEUES]
        ],
        "refuses": node.broker.refuse_publishing,
        "withholds": "; ".join(node.broker.credit.withheld.values()),
        "stopped_queues": len(stopped),
        "stopped": [
            {
                "name": queue.name,
                "messages": len(queue.messages),
                "bytes": queue.bytes,
                "waiting_senders": len(queue.waiting),
            }
            for queue in stopped[:SHOWN_QUEUES]
        ],
        "unplaced_queues": len(unplaced),
        "unplaced": [
            {"name": queue.name, "unplaced": len(queue.unplaced), "why": queue.why_unplaced}
            for queue in unplaced[:SHOWN_QUEUES]
        ],
        **_only_here(node, status),
        "set_aside": status.get("set_aside", []),
        "records_set_aside": status.get("records_set_aside", 0),
        "waits": node.explain(),
        "unwell_links": len(unwell),
        "unwell": unwell[:SHOWN_LINKS],
    }
