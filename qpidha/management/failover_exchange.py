"""The failover exchange: whoever receives from `amq.failover` is told the brokers of the cluster.

A message comes at once, and another one whenever it would say something else: the brokers in the
order in which a client is to try them, which is the primary, then the members of the in-sync set,
then the others. Only addresses that the client can use are in it, as in `failover-server-list`.
What the client gives no credit for is not kept: it gets the newest list when it does. Must not know
how the set changes. Source: Qpid `FailoverExchange.cpp`, which sends the list in a header; AMQP 1.0
has no lists there, so it is the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.ha.peers import PeerState
from qpidha.management.redirects import client_address, client_addresses
from qpidha.model.errors import NotImplementedHere
from qpidha.model.message_view import build

if TYPE_CHECKING:
    from qpidha.ha.cluster import Cluster
    from qpidha.ha.peers import Peer
    from qpidha.management.redirects import Host
    from qpidha.model.url import Address

ADDRESS = "amq.failover"
ADDRESSES = (ADDRESS, f"/exchanges/{ADDRESS}")


class FailoverExchange:
    """The receivers of the list, and what each was told last."""

    __slots__ = ("_cluster", "_host", "_seen", "_told")

    def __init__(self, host: Host, cluster: Cluster) -> None:
        self._host = host
        self._cluster = cluster
        self._told: dict[Any, list[str]] = {}
        self._seen: tuple[object, ...] = ()

    def attached(self, link: Any) -> None:
        """A receiver has come; a sender is refused."""
        if not link.sends:
            raise NotImplementedHere(
                f"nothing can be sent to '{ADDRESS}'",
                reason="it tells its receivers the brokers of the cluster",
                hint="name another exchange",
            )
        self._told[link] = []

    def received(self, link: Any, payload: bytes) -> None:
        """Nothing is: there are receivers only."""

    def credited(self, link: Any) -> None:
        """Tell a receiver what it has not heard."""
        self._tell(link)

    def detached(self, link: Any) -> None:
        """A receiver has left."""
        self._told.pop(link, None)

    def turn(self) -> None:
        """Tell everybody, if the order is another one than in the last turn."""
        if not self._told:
            return
        seen = (self._host.settings.ha_public_url, *self._brokers_in_order())
        if self._seen != seen:
            self._seen = seen
            for link in list(self._told):
                self._tell(link)

    def _tell(self, link: Any) -> None:
        if link.credit <= 0 or link.waiting:
            return  # It hears when it can take the list, and then the newest one.
        urls = [_url(address) for address in self._addresses(link.connection)]
        if urls and urls != self._told.get(link):
            self._told[link] = urls
            link.send(build(urls, properties={"subject": ADDRESS}))

    def _addresses(self, connection: Any) -> list[Address]:
        """Return every address of the cluster that a client can use, in the order in which it is
        to try them.
        """
        found = [
            client_address(self._host, connection, broker) for broker in self._brokers_in_order()
        ]
        known = [address for address in found if address is not None]
        return list(dict.fromkeys([*known, *client_addresses(self._host, connection)]))

    def _brokers_in_order(self) -> list[Address]:
        cluster = self._cluster
        primary = cluster.peers.current_primary() if cluster.primary is None else None
        members = cluster.primary.in_sync.members if cluster.primary is not None else ()

        def rank(peer: Peer) -> int:
            if peer is primary or cluster.primary is not None and self._is_ours(peer):
                return 0
            return 1 if peer.known is not None and peer.known.system_id in members else 2

        return [peer.address for peer in sorted(cluster.peers.all, key=rank)]

    def _is_ours(self, peer: Peer) -> bool:
        return peer.state is PeerState.OURSELVES or peer.name == self._host.address


def _url(address: Address) -> str:
    return f"{'amqps' if address.encrypted else 'amqp'}://{address.host_port}"
