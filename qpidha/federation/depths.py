"""How many messages wait at the other end for the routes of a link that pull: their lag.

Where the other end is qpidha, its management is asked now and then for the depth of each route's
queue there. What is refused is asked again much later, and no route suffers from it. Must not know
how messages are pulled.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from qpidha.federation.management import OWN_PRODUCT, Management
from qpidha.federation.pull import Pull
from qpidha.federation.route import LONGEST_WAIT, Home
from qpidha.model.duration import SECOND
from qpidha.model.errors import QpidHaError

if TYPE_CHECKING:
    from qpidha.amqp.peer.connection import Connection
    from qpidha.amqp.peer.service_link import ServiceLink

INTERVALS = 3
"""So many times link-maintenance-interval lie between two questions, but a second at least."""


class Depths:
    """The depths of what the routes of one link pull from."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._management: Management | None = None
        self._turn: list[Pull] = []
        """Routes that are asked for next: with many, not all at once."""
        self._unanswered: dict[Pull, ServiceLink | None] = {}
        """What was asked for, and over which link of the route."""
        self._is_refused = False

    def start(self) -> None:
        """Ask from now on, if there are routes that pull, and somebody to ask."""
        home = self._home
        if self in home.deadlines or home.connection is None or home.peer_product != OWN_PRODUCT:
            return
        if self._pulling():
            home.deadlines.set(self, home.host.now + SECOND)

    def stop(self) -> None:
        """The connection is gone, or the link runs here no longer."""
        self._home.deadlines.remove(self)
        self._close()

    def _close(self) -> None:
        self._turn.clear()
        self._unanswered.clear()
        management, self._management = self._management, None
        if management is not None:
            management.close()

    def tick(self) -> None:
        """Ask once more."""
        home = self._home
        routes, connection = self._pulling(), home.connection
        if connection is None or not routes:
            self.stop()
            return
        if self._is_refused:
            self._is_refused = False
            self._close()
        self._turn = [route for route in self._turn if route.link is not None]
        if not self._turn:
            self._turn = [route for route in routes if route.link is not None]
        try:
            self._ask(connection)
        except QpidHaError as error:  # The other end takes no more links, for one.
            self._sleep()
            self.refused_by_management("", error.text)
        else:
            self._sleep()

    def _ask(self, connection: Connection) -> None:
        if self._turn and self._management is None:
            self._management = Management(self, connection, f"{self._home.container}.depths")
        while self._turn and self._management is not None and self._management.is_free:
            route = self._turn.pop()
            if route in self._unanswered:  # What was told before that is void.
                route.depth = None
            self._unanswered[route] = route.link
            self._management.ask(
                "list_queues",
                {"name": route.queue_there, "fields": "messages"},
                partial(self._told, route, route.link),
            )

    def _told(self, route: Pull, link: ServiceLink | None, found: Any) -> None:
        """Take note of a depth."""
        if self._unanswered.get(route) is not link:
            return
        del self._unanswered[route]
        row = found[0] if isinstance(found, list) and found else None
        depth = row.get("messages") if isinstance(row, dict) else None
        is_count = isinstance(depth, int) and not isinstance(depth, bool)
        if link is not None and route.link is link:
            route.depth = depth if is_count else None

    def refused_by_management(self, method: str, why: str) -> None:
        """Leave the other end in peace for a while: it may log what it refuses."""
        self._is_refused = True
        for route in self._pulling():
            route.depth = None
        if self in self._home.deadlines:
            self._sleep(LONGEST_WAIT)

    def _pulling(self) -> list[Pull]:
        return [route for route in self._home.routes.values() if isinstance(route, Pull)]

    def _sleep(self, pauses: int = 1) -> None:
        host, deadlines = self._home.host, self._home.deadlines
        pause = max(INTERVALS * host.settings.link_maintenance_interval, SECOND)
        deadlines.set(self, host.now + pauses * pause)
