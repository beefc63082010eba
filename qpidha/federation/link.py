"""A link: one connection to another broker or cluster, dialled for as long as it is declared.

Its addresses are tried in turn: those of a cluster lead to its primary, wherever that is, for
backups hang up or name another address. When all were tried in vain it waits, each time longer, up
to a bound. A link that leads back to its own cluster ends. Must not know what its routes do.
Source: Qpid src/qpid/broker/Link.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from qpidha.broker.federation import DYNAMIC, FED_LINK, FED_TAG
from qpidha.federation.depths import Depths
from qpidha.federation.dynamic import Dynamic
from qpidha.federation.pull import Pull
from qpidha.federation.push import Push
from qpidha.federation.route import LONGEST_ERROR, STEADY, Route, State, Surroundings, wait_after
from qpidha.model.errors import RefusedRequest
from qpidha.model.event_codes import LINK_DOWN, LINK_TO_ITSELF, LINK_UP
from qpidha.model.event_log import FEDERATION, LinkChange
from qpidha.model.telling import Telling
from qpidha.model.url import Address, parse_address

if TYPE_CHECKING:
    from qpidha.amqp.peer.connection import Connection
    from qpidha.amqp.peer.terminus import PeerError
    from qpidha.model.deadlines import Deadlines
    from qpidha.model.records import LinkDeclared, RouteDeclared

REDIRECT = "amqp:connection:redirect"
MOST_REDIRECTS = 4
"""That are followed one after the other."""
SYSTEM_ID = "qpidha.system-id"
"""The property by which a link knows the brokers of its own cluster."""
LONGEST_TAG = 255


class LinkHost(Surroundings, Protocol):
    """The broker, as its links need it."""

    def dial(self, host: str, port: int, encrypted: bool) -> int:
        """Open a stream; return the id that the connection will have."""

    def hang_up(self, connection_id: int) -> None:
        """Close a connection, or give up dialling."""

    @property
    def federation_tag(self) -> str:
        """By what messages are known that were here."""

    def own_ids(self) -> set[str]:
        """Return the system ids of the brokers of this cluster, as far as they are known."""

    def link_properties(self) -> dict[str, object]:
        """Return what is said of this broker when a link opens a connection."""


class Link:
    """One link and its routes."""

    def __init__(
        self,
        host: LinkHost,
        deadlines: Deadlines[Any],
        wanting: dict[Route, None],
        by_connection: dict[int, Link],
        record: LinkDeclared,
    ) -> None:
        self.host = host
        self.deadlines = deadlines
        self.wanting = wanting
        self._by_connection = by_connection
        self.record = record
        self.own_tag = host.federation_tag
        self.peer_tag = self.peer_product = ""
        self.own_names = self.peer_names = frozenset[str]()
        """All that a tag of a message may call this cluster, and the other end: one without links
        has no tag, and is known by the id of the broker that was met.
        """
        self.connection: Connection | None = None
        self.connection_id = 0
        """Of the connection that was dialled; 0 if none is."""
        self.state = State.WAITING
        self.error = ""
        self.since = host.now
        self.routes: dict[str, Route] = {}
        self.address = parse_address(record.addresses[0])
        """The one that is tried, or where the other end is."""
        self._place = self._failures = self._redirects = 0
        self._is_answered = self._leads_here = False
        """Whether the stream came about that was dialled last, and whether it led to ourselves."""
        self._telling = Telling()
        self._ended = False
        self._depths = Depths(self)

    @property
    def name(self) -> str:
        """The name of the link."""
        return self.record.name

    @property
    def container(self) -> str:
        """What the link calls itself at the other end."""
        return f"qpidha.link.{self.record.uuid}"

    @property
    def advice(self) -> str:
        """What to do if it is down."""
        declare = f"qpid-ha link add {self.name} ADDRESSES"
        if self._leads_here:
            return f"give it other addresses, or delete it: {declare}, qpid-ha link del {self.name}"
        if self._is_answered:
            return f"mend the reason, or give the link another login: {declare} --username USER"
        return f"start the broker there, or give the link other addresses: {declare}"

    # What is declared.

    def change(self, record: LinkDeclared) -> None:
        """Take what the link is declared as by now."""
        if record == self.record:
            return
        self.record = record
        self._place = self._failures = 0
        self._telling = Telling(is_up=self.state is State.OPERATIONAL)
        self.address = parse_address(record.addresses[0])
        if self.connection_id:
            self.host.hang_up(self.connection_id)
        else:
            self.dial()

    def set_route(self, name: str, record: RouteDeclared | None) -> None:
        """Take what a route over this link is declared as by now; None if it is not."""
        former = self.routes.get(name)
        if former is not None and former.record != record:
            del self.routes[name]
            former.stop(for_good=True)
            former = None
        if former is None and record is not None:
            maker: type[Route] = Push if record.is_push else Pull
            if record.kind == DYNAMIC:
                maker = Dynamic
            route = self.routes[name] = maker(self, record)
            route.start()
            self._depths.start()

    def end(self) -> None:
        """The link is not declared any more."""
        for name in list(self.routes):
            self.set_route(name, None)
        self.stop()

    def stop(self) -> None:
        """This broker runs the link no longer."""
        self._ended = True
        self.deadlines.remove(self)
        self._depths.stop()
        for route in self.routes.values():
            route.stop()
        if self.connection_id:
            self.host.hang_up(self.connection_id)
        self.connection, self.connection_id = None, 0

    # The connection.

    def tick(self) -> None:
        """Its time has come."""
        if self.connection is not None:
            self._failures = self._redirects = 0
            if self._telling.stays():
                self._tell_up()
        elif not self.connection_id:
            self.dial()

    def dial(self) -> None:
        """Try the next address."""
        self.deadlines.remove(self)
        self._is_answered = self._leads_here = False
        self._become(State.CONNECTING)
        address = self.address
        self.connection_id = self.host.dial(address.host, address.port, address.encrypted)
        self._by_connection[self.connection_id] = self

    def opened(self, connection: Connection) -> None:
        """The stream is there: log in, and say what this is."""
        record = self.record
        self._is_answered = True
        properties = self.host.link_properties()
        connection.open(
            self.container,
            {**properties, FED_LINK: True, FED_TAG: self.own_tag},
            mechanism=record.mechanism,
            username=record.username,
            password=record.password,
            hostname=self.address.host,
            heartbeat=self.host.settings.link_heartbeat_interval,
        )

    def admit(self, connection: Connection) -> None:
        """The other end has answered: see who it is, and begin; raise if that is ourselves."""
        properties = connection.remote_properties
        tag = _text(properties.get(FED_TAG))
        system_id = _text(properties.get(SYSTEM_ID))
        self.own_names = frozenset((self.own_tag, *self.host.own_ids())) - {""}
        if not self.own_names.isdisjoint((tag, system_id)):
            self._leads_here = True
            raise RefusedRequest(
                f"it leads to this cluster itself, at {self.address}", event_code=LINK_TO_ITSELF
            )
        self.peer_tag = tag or system_id or connection.remote_container[:LONGEST_TAG]
        self.peer_names = frozenset((self.peer_tag, system_id)) - {""}
        self.peer_product = _text(properties.get("product"))
        self.connection = connection
        self._become(State.OPERATIONAL)
        if self._telling.up():
            self._tell_up()
        interval = self.host.settings.link_maintenance_interval
        self.deadlines.set(self, self.host.now + STEADY * interval)
        for route in self.routes.values():
            route.start()
        self._depths.start()

    def _tell_up(self) -> None:
        text = f"link {self.name} to {self.address} is up"
        about = LinkChange(FEDERATION, "up", f"link {self.name}")
        self.host.say("notice", text, LINK_UP, about, link=self.name, product=self.peer_product)

    def lost(self, reason: str, error: PeerError | None) -> None:
        """The connection is gone, or never came about."""
        was_up = self.connection is not None
        interval = self.host.settings.link_maintenance_interval
        self.connection, self.connection_id = None, 0
        self._depths.stop()
        if self._ended:
            return
        for route in self.routes.values():
            route.stop()
        redirect = None if error is None else self._redirect(error)
        if redirect is not None:
            self.address = redirect
            self._redirects += 1
            self.dial()
            return
        addresses = self.record.addresses
        self._redirects = 0
        self._failures += 1
        self._place = (self._place + (0 if was_up else 1)) % len(addresses)
        self.address = parse_address(addresses[self._place])
        self._become(State.WAITING, reason, was_up=was_up)
        rounds = max(1, self._failures // len(addresses))
        if self._failures == 1 or self._failures % len(addresses):
            # The next primary of a cluster is at another of its addresses, and may be there now.
            wait = interval // 8
        else:
            wait = wait_after(rounds, interval)
        self.deadlines.set(self, self.host.now + max(wait, 1))

    def _redirect(self, error: PeerError) -> Address | None:
        """Return where the other end says that it is to be found; None if it does not, or if that
        would be less safe.
        """
        if error.condition != REDIRECT or self._redirects >= MOST_REDIRECTS:
            return None
        info = {str(key): value for key, value in error.info.items()}
        host = _text(info.get("network-host")) or _text(info.get("hostname"))
        port, scheme = info.get("port"), _text(info.get("scheme"))
        encrypted = scheme == "amqps" if scheme else self.address.encrypted
        if self.address.encrypted and not encrypted:
            return None
        if not host or isinstance(port, bool) or not isinstance(port, int):
            return None
        bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
        try:
            return parse_address(f"{'ssl' if encrypted else 'tcp'}:{bracketed}:{port}")
        except ValueError:
            return None

    def _become(self, state: State, error: str = "", *, was_up: bool = False) -> None:
        error = error[:LONGEST_ERROR]
        if error and self._telling.down(error):
            what = "refused" if self._is_answered and not was_up else "down"
            about = LinkChange(FEDERATION, what, f"link {self.name}", error)
            level, code = ("error", LINK_TO_ITSELF) if self._leads_here else ("warning", LINK_DOWN)
            text = f"link {self.name} is {what}: {error}; dialling again"
            self.host.say(level, text, code, about, link=self.name)
        if state is not self.state:
            self.since = self.host.now
        self.state = state
        if error or state is State.OPERATIONAL:
            self.error = error


def _text(found: Any) -> str:
    return found[:LONGEST_TAG] if isinstance(found, str) else ""
