"""Newcomer: a broker that starts without a state file, and what it hears before it votes.

The broker that was at its address before may have promised an epoch or recorded a set. If the
newcomer voted at once, it would vote again where the former one has voted: the majority that
counted the former would be none any longer, and two primaries could have one each. So it grants no
promise and records no set until it has been told since its start what others have promised and
know, by

1. half of all brokers or more, itself not counted, none of which is new: one of them belongs to
   each majority that the former broker can have been counted in; or
2. all others: more cannot be known; or
3. nobody but brokers that are new as well at this time and have heard of no primary, a majority
   with this one: they begin a cluster. The first of them that has heard enough is new no longer,
   and the others may hear it only then. So it goes on telling with whom it began: its founders.

It takes up the highest promise, but for those of its founders, and the newest set of what it was
told, each when it hears it, for a broker that has lost its memory may be at that address later.
That is saved before it votes, and then it is new no longer. Until then it may follow a primary,
confirm, and be a member of the in-sync set: none of that is a vote. Where votes do not count nobody
is new: with a manager that is trusted, or whose store is the recorder.

Not known to it: a vote of the former broker that belongs to a majority which is being gathered just
now. A candidate that hears of the new broker does not count it (`peers.py`). Must not know who
asks. Source: rule S5 in `docs/internals/safety.md`; Liskov, Cowling: Viewstamped Replication
Revisited, section 4.3 (recovery).
"""

from __future__ import annotations

from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.peers import Peers
from qpidha.ha.promises import Promises
from qpidha.ha.wire import Status
from qpidha.model.settings import Settings


def counts_votes(settings: Settings) -> bool:
    """Whether the votes of brokers decide anything."""
    return settings.ha_safety == "strict" and settings.ha_recorder == "brokers"


def recollect(promises: Promises, peers: Peers) -> None:
    """Have a new broker take up what it may have forgotten, if it has heard enough by now."""
    if not promises.is_new:
        return
    others = len(peers.others())
    brokers = 1 + others
    told = [peer.known for peer in peers.others() if peer.known is not None]
    strangers, founders = _founders(peers)
    for status in strangers:
        promises.hear(status.promised, _set_of(status))
    if promises.promised or promises.in_sync.epoch:
        founders = ()
    witnesses = sum(not status.is_new for status in told)
    if 2 * witnesses >= brokers or len(told) == others or 2 * (1 + len(founders)) > brokers:
        # Who began the cluster with this broker has promised nothing before it, but itself perhaps
        # since, and asks now for the promise of this one.
        elders = [status for status in told if peers.system_id not in status.founders]
        promises.recollect(
            max((status.promised for status in elders), default=0),
            max((_set_of(status) for status in told), default=InSyncSet()),
            founders,
        )


def _founders(peers: Peers) -> tuple[list[Status], tuple[str, ...]]:
    """Return what those said that belong to a cluster already; and if there are none, those who
    begin a new one with this broker.

    Who told that it was new, and is not connected any more, may have heard of a cluster since: it
    does not count, as one that has never spoken.
    """
    told = [
        peer.known
        for peer in peers.others()
        if peer.known is not None and (peer.status is not None or not peer.known.is_new)
    ]
    with_us = [status for status in told if peers.system_id in status.founders]
    known = {status.system_id for status in told if status.is_new and not status.promised}
    known.update(status.system_id for status in with_us)
    known.update(*(status.founders for status in with_us))
    strangers = [status for status in told if status.system_id not in known or status.in_sync_epoch]
    return strangers, () if strangers else tuple(status.system_id for status in told)


def _set_of(status: Status) -> InSyncSet:
    return InSyncSet(status.in_sync_epoch, status.in_sync_version, status.in_sync_members)


def unheard(peers: Peers) -> str:
    """Name those from which nothing has been heard."""
    return ", ".join(peer.name for peer in peers.others() if peer.known is None)


def new_text(peers: Peers) -> str:
    """Say why a new broker does not vote."""
    return f"new broker; waits to hear from {unheard(peers)} what it may have promised before"
