"""A route: what moves messages over a link, as far as all routes are alike.

A route has a link of its own on the connection of its link, which is attached again for as long as
the route exists. What prevents it is told in its error, and it is tried again later: at the first
time soon, then less and less often. Knows neither of the two directions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from qpidha.federation.trace import MOST_TAGS, tags_of
from qpidha.model.errors import QpidHaError
from qpidha.model.event_codes import ROUTE_DOWN, ROUTE_REMAINS, ROUTE_UP
from qpidha.model.event_log import FEDERATION, LinkChange
from qpidha.model.telling import Telling

if TYPE_CHECKING:
    from qpidha.amqp.peer.connection import Connection
    from qpidha.amqp.peer.service_link import ServiceLink
    from qpidha.broker.broker import Broker
    from qpidha.model.deadlines import Deadlines
    from qpidha.model.records import RouteDeclared
    from qpidha.model.settings import Settings

LONGEST_WAIT = 32
"""So many times link-maintenance-interval lie between two attempts at most, as in qpidd."""
STEADY = 4
"""So many times link-maintenance-interval a link must be up, or a route move, to be counted as one
that stays: what goes down sooner is dialled less and less often, and no longer told of.
"""
LONGEST_ERROR = 500
"""Characters of what the other end says that are kept."""


class State(StrEnum):
    """How a link or a route is. The words are qpidd's, in lower case."""

    PASSIVE = "passive"  # this broker does not run it, or the link of the route is not up
    CONNECTING = "connecting"
    OPERATIONAL = "operational"
    WAITING = "waiting"  # to be tried again


class Surroundings(Protocol):
    """The broker that a link begins at."""

    settings: Settings
    now: int
    broker: Broker

    def when_committed(self, sequence: int, waiter: Any, item: object) -> None:
        """Call `waiter.on_committed(item)` when `sequence` is committed."""

    def say(
        self,
        level: str,
        text: str,
        event_code: str,
        about: LinkChange | None = None,
        **fields: object,
    ) -> None:
        """Write a line into the log, and into the event log if it says what it is about."""


class Home(Protocol):
    """The link that a route goes over."""

    peer_tag: str
    peer_product: str
    own_tag: str
    own_names: frozenset[str]
    peer_names: frozenset[str]
    deadlines: Deadlines[Any]
    wanting: dict[Route, None]
    """Routes that want the next turn."""
    routes: dict[str, Route]

    @property
    def name(self) -> str:
        """The name of the link."""

    @property
    def container(self) -> str:
        """What the link calls itself at the other end."""

    @property
    def host(self) -> Surroundings:
        """The broker that it begins at."""

    @property
    def connection(self) -> Connection | None:
        """The connection, if the link is up."""


def wait_after(failures: int, interval: int) -> int:
    """Return how long to wait after so many failures: each time twice as long, up to a bound."""
    return int(interval * min(1 << min(max(failures - 1, 0), 10), LONGEST_WAIT))


class Route(ABC):
    """One route; a service of its own AMQP link."""

    def __init__(self, home: Home, record: RouteDeclared) -> None:
        self.home = home
        self.host = home.host
        self.broker = home.host.broker
        self.record = record
        self.link: ServiceLink | None = None
        self.state = State.PASSIVE
        self.error = ""
        self.since = self.host.now
        """When the state began, in ns."""
        self.messages = self.bytes = 0
        """What went over it, on this broker since it runs the route."""
        self.excluded = 0
        """Messages that have been where they would go."""
        self.refused = 0
        """Messages that were not taken at their end, and stay where they are."""
        self._failures = 0
        """Since the last message went over it."""
        self._telling = Telling(is_up=True)
        self._is_troubled = False
        """Whether no message has gone over it since something prevented that."""

    @property
    def name(self) -> str:
        """The name of the route."""
        return self.record.name

    # What its link does.

    def start(self) -> None:
        """The link is up: attach."""
        connection = self.home.connection
        if connection is None or self.link is not None:
            return
        self._become(State.CONNECTING)
        try:
            self.link = self._attach(connection)
        except QpidHaError as error:
            self.fail(error.text if not error.reason else f"{error.text}: {error.reason}")

    def stop(self, *, for_good: bool = False) -> None:
        """The link is down, or this broker runs the route no longer, or (`for_good`) nobody does:
        then nothing is left of it at the other end.
        """
        if for_good and self.link is None and (queue := self._kept_there()):
            text = (
                "was deleted while it had no connection: "
                f"its queue {queue} may remain at the other end"
            )
            self._tell("warning", text, ROUTE_REMAINS, queue=queue)
        self._leave(for_good=for_good)
        self.home.deadlines.remove(self)
        self.home.wanting.pop(self, None)
        self._become(State.PASSIVE)

    def tick(self) -> None:
        """Its time has come."""
        if self.link is None:
            self.start()
        elif self.state is State.OPERATIONAL and self._telling.stays():
            self._tell_moving()

    @abstractmethod
    def turn(self) -> None:
        """Do what waited for this; called once after `_want_turn`."""

    def _want_turn(self) -> None:
        self.home.wanting[self] = None

    def available(self) -> int | None:
        """Return how many messages wait to go over it, None if that is not known."""
        return None

    # What each direction does in its own way.

    def _kept_there(self) -> str:
        """Return the name of the queue at the other end that outlives its link, or empty."""
        return ""

    @abstractmethod
    def _attach(self, connection: Connection) -> ServiceLink:
        """Attach to the other end."""

    @abstractmethod
    def _begin(self, link: ServiceLink) -> None:
        """The other end has answered."""

    @abstractmethod
    def _end(self) -> None:
        """Give up what is under way; the AMQP link is gone, or goes now."""

    # Its AMQP link.

    def attached(self, link: ServiceLink) -> None:
        """The other end is there."""
        self.link = link
        self._begin(link)
        if self.link is link:
            self._become(State.OPERATIONAL)

    def detached(self, link: ServiceLink) -> None:
        """The other end ended the AMQP link, or refused it; or the connection is gone."""
        if self.link is None or self.link is not link:
            return
        self.link = None
        self._end()
        connection = self.home.connection
        if connection is None or connection.closed or connection.error is not None:
            self._become(State.PASSIVE)
            return
        error = link.error
        self.fail(error.explanation if error is not None else "the other end detached it")

    @abstractmethod
    def received(self, link: ServiceLink, payload: bytes) -> None:
        """A message came."""

    @abstractmethod
    def credited(self, link: ServiceLink) -> None:
        """More can be sent."""

    # The rest.

    def fail(self, reason: str) -> None:
        """Say what prevents the route, and try again later."""
        self._leave()
        self._wait(reason)

    def _leave(self, *, for_good: bool = False) -> None:
        link, self.link = self.link, None
        if link is not None:
            self._end()
            # A subscription that is to be there again is detached from, all else is closed.
            link.close(closed=for_good or not self.record.durable)

    def _become(self, state: State, error: str = "") -> None:
        """Take note of a state; a change of it is told once."""
        error = error[:LONGEST_ERROR]
        if error and self._telling.down(error):
            self._tell("warning", f"moves no messages: {error}", ROUTE_DOWN, "stalled", error)
        if state is not self.state:
            self.since = self.host.now
        self.state = state
        if error:
            self.error, self._is_troubled = error, True

    def _tell(
        self, level: str, text: str, event_code: str, what: str = "", why: str = "", **more: object
    ) -> None:
        """Say something of this route, also to the event log if that has a word for it."""
        about = LinkChange(FEDERATION, what, f"route {self.name}", why) if what else None
        text = f"route {self.name} over link {self.home.name} {text}"
        fields = {"link": self.home.name, "route": self.name, **more}
        self.host.say(level, text, event_code, about, **fields)

    def _tell_moving(self) -> None:
        self._tell("notice", "moves messages again", ROUTE_UP, "moving")

    def _moved(self, size: int) -> None:
        """A message went over it: what prevented that before is over."""
        self.messages += 1
        self.bytes += size
        if self._failures:
            self._failures = 0
        if self._is_troubled and self.state is State.OPERATIONAL:
            self._is_troubled, self.error = False, ""
            if self._telling.up():
                self._tell_moving()
            interval = self.host.settings.link_maintenance_interval
            self.home.deadlines.set(self, self.host.now + STEADY * interval)

    def _wait(self, reason: str) -> None:
        """Move nothing for a while, longer each time, though the other end is there."""
        self._failures += 1
        interval = self.host.settings.link_maintenance_interval
        self.home.deadlines.set(self, self.host.now + wait_after(self._failures, interval))
        self._become(State.WAITING, reason)

    def _tags(self, payload: bytes, places: frozenset[str]) -> list[str] | None:
        """Return where a message has been; None if it is not to go there once more."""
        tags = tags_of(payload)
        if tags and (
            len(tags) > MOST_TAGS
            or not places.isdisjoint(tags)
            or any(tag in tags for tag in self.record.excludes)
        ):
            self.excluded += 1
            return None
        return tags
