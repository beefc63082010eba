"""Links: all links of a broker, which the primary runs and no other.

What is declared is in the state of the broker; once a turn it is compared with what runs. A broker
that becomes primary goes on with what it finds there; one that is primary no longer stops all.
Must not know what a route does. Source: Qpid src/qpid/broker/LinkRegistry.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.federation.link import Link
from qpidha.federation.route import State
from qpidha.model.deadlines import Deadlines

if TYPE_CHECKING:
    from qpidha.amqp.peer.connection import Connection
    from qpidha.amqp.peer.terminus import PeerError
    from qpidha.federation.link import LinkHost
    from qpidha.federation.route import Route


ROUTE_ADVICE = "mend the reason; the route tries again by itself: qpid-ha route list"


def _row(name: str, what: Link | Route, advice: str) -> dict[str, object]:
    return {
        "name": name,
        "state": what.state.value,
        "since_ns": what.since,
        "why": what.error,
        "next": advice,
    }


class Links:
    """All links and routes that run here."""

    def __init__(self, host: LinkHost) -> None:
        self._host = host
        self.by_name: dict[str, Link] = {}
        self._by_connection: dict[int, Link] = {}
        self._deadlines: Deadlines[Any] = Deadlines()
        self._wanting: dict[Route, None] = {}
        """Routes that want the next turn."""
        self._is_running = False

    def turn(self, *, runs: bool) -> None:
        """Run what is declared, if this broker `runs` links, or nothing."""
        declared = self._host.broker.federation
        if not runs:
            if self._is_running:
                self.stop()
            declared.changed.clear()
            return
        if not self._is_running:
            self._is_running = True
            declared.changed.update(dict.fromkeys(declared.links, set()))
        if declared.changed:
            changed, declared.changed = declared.changed, {}
            for name, routes in changed.items():
                self._compare(name, routes)
        if self._wanting:
            wanting = list(self._wanting)
            self._wanting.clear()
            for route in wanting:
                route.turn()

    def _compare(self, name: str, routes: set[str]) -> None:
        """Run a link as it is declared by now, and those of its routes that have changed: all of
        them, if it runs only now.
        """
        declared = self._host.broker.federation
        record, link = declared.links.get(name), self.by_name.get(name)
        if link is not None and (record is None or record.uuid != link.record.uuid):
            link.end()
            del self.by_name[name]
            link = None
        if record is None:
            return
        if link is None:
            link = self.by_name[name] = Link(
                self._host, self._deadlines, self._wanting, self._by_connection, record
            )
            link.dial()
            routes = {route.name for route in declared.routes_of(name)}
        else:
            link.change(record)
        for route in routes:
            found = declared.routes.get(route)
            link.set_route(route, found if found is not None and found.link == name else None)

    def stop(self) -> None:
        """End all of them: another broker runs them, or nobody."""
        for link in self.by_name.values():
            link.stop()
        self.by_name.clear()
        self._is_running = False

    @property
    def next_deadline(self) -> int:
        """When `tick` is wanted next, 0 for never."""
        return self._deadlines.first

    def tick(self, now: int) -> None:
        """Do what is due."""
        for due in self._deadlines.due(now):
            due.tick()

    # Connections.

    def owns(self, connection_id: int) -> bool:
        """Whether a connection was opened by a link, which may be gone."""
        return connection_id in self._by_connection

    def opened(self, connection: Connection) -> None:
        """A stream that was dialled is there."""
        link = self._link(connection.connection_id)
        if link is None:
            connection.close()
        else:
            link.opened(connection)

    def admit(self, connection: Connection) -> None:
        """The other end has opened the connection; may raise what it is ended with."""
        link = self._link(connection.connection_id)
        if link is not None:
            link.admit(connection)

    def lost(self, connection_id: int, reason: str, error: PeerError | None) -> None:
        """A connection is gone, or never came about."""
        link = self._link(connection_id)
        self._by_connection.pop(connection_id, None)
        if link is not None:
            link.lost(reason, error)

    def _link(self, connection_id: int) -> Link | None:
        """Return the link of a connection, unless it has another one by now."""
        link = self._by_connection.get(connection_id)
        return link if link is not None and link.connection_id == connection_id else None

    # What management shows.

    def link_report(self, name: str) -> dict[str, object]:
        """Tell how a link is; it is passive if this broker does not run it."""
        link = self.by_name.get(name)
        if link is None:
            return {"state": State.PASSIVE.value}
        routes = link.routes.values()
        return {
            "state": link.state.value,
            "since_ns": link.since,
            "last_error": link.error,
            "address": str(link.address),
            "product": link.peer_product,
            "peer_tag": link.peer_tag,
            "connection": link.connection_id,
            "messages_in": sum(route.messages for route in routes if not route.record.is_push),
            "messages_out": sum(route.messages for route in routes if route.record.is_push),
        }

    def unwell(self) -> list[dict[str, object]]:
        """Tell of links that are down, and of routes over others that move no messages."""
        found: list[dict[str, object]] = []
        for link in self.by_name.values():
            if link.state is not State.OPERATIONAL:
                if link.error:
                    found.append(_row(f"link {link.name}", link, link.advice))
                continue
            found += [
                _row(f"route {route.name} over link {link.name}", route, ROUTE_ADVICE)
                for route in link.routes.values()
                if route.state is State.WAITING
            ]
        return found

    def route_report(self, name: str) -> dict[str, object]:
        """Tell how a route is; it is passive if this broker does not run it."""
        record = self._host.broker.federation.routes.get(name)
        link = self.by_name.get(record.link) if record is not None else None
        route = link.routes.get(name) if link is not None else None
        if route is None:
            return {"state": State.PASSIVE.value}
        return {
            "state": route.state.value,
            "since_ns": route.since,
            "last_error": route.error,
            "messages": route.messages,
            "bytes": route.bytes,
            "excluded": route.excluded,
            "refused": route.refused,
            "lag": route.available(),
        }
