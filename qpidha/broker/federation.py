"""Links and routes of federation as what the log says of them, and what may be declared.

A link leads to another broker or cluster; a route moves messages over it. Both are records, so that
the next primary goes on with them: the primary runs them (`qpidha/federation/`), a backup only
knows them. Knows no connection. Source: Qpid src/qpid/broker/LinkRegistry.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.broker.exchange import subject
from qpidha.broker.queues.arguments import LONGEST_NAME, check_key
from qpidha.broker.queues.dead_letters import FROM_KEY
from qpidha.model.errors import InvalidArgument, LimitExceeded
from qpidha.model.event_codes import FEDERATION_REFUSED
from qpidha.model.message_view import add_annotation, departure, message_annotations
from qpidha.model.records import LinkDeclared, LinkDeleted, RouteDeclared, RouteDeleted
from qpidha.model.settings import MECHANISMS, OTHER_MECHANISMS
from qpidha.model.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qpidha.model.records import Record

FED_LINK, FED_TAG = "qpid.fed_link", "qpid.federation_tag"
"""Properties of a connection: that a link of another broker opened it, and the tag of who speaks.
The names are qpidd's.
"""
FED_TAGS = "qpid.fed.tags"
"""The argument of a binding that a dynamic route made: the tags of the clusters that it is for,
with commas between. The name is qpidd's.
"""
ROUTE_LINK = "qpidha.route."
"""With what the name of the link of a route begins, so it is in that of its subscription."""
BRIDGE_QUEUE = "bridge_queue_"
"""With what the name of a queue begins that was made for a route."""
MOST_LINKS, MOST_ROUTES = 100, 1000
MOST_ADDRESSES = 16
"""Of one link."""
MOST_CREDIT = 100_000
MOST_EXCLUDES = 32
QUEUE, EXCHANGE, DYNAMIC = "queue", "exchange", "dynamic"
KINDS = (QUEUE, EXCHANGE, DYNAMIC)
DIRECTIONS = ("pull", "push")


class Federation:
    """All links and routes, as a fold over the log."""

    def __init__(self) -> None:
        self.links: dict[str, LinkDeclared] = {}
        self.routes: dict[str, RouteDeclared] = {}
        self._over: dict[str, dict[str, RouteDeclared]] = {}
        """The routes over each link, by their names."""
        self.changed: dict[str, set[str]] = {}
        """What changed since somebody last took it: links, with the names of their routes that did.
        """
        self._sequences: dict[tuple[type, str], int] = {}
        """Where each was recorded, 0 for one that is not in the log."""
        self.queues: set[str] = set()
        """Those with what routes take from exchanges, from here or from elsewhere: while there are
        any, messages to exchanges tell their key.
        """

    @property
    def tag(self) -> str:
        """By what messages are known that were here; empty while there never was a link."""
        return next((link.tag for link in self.links.values() if link.tag), "")

    def sequence(self, record: LinkDeclared | RouteDeclared) -> int:
        """Return where a link or a route was recorded, 0 if it was not."""
        return self._sequences.get((type(record), record.name), 0)

    def routes_of(self, link: str) -> list[RouteDeclared]:
        """Return the routes over a link."""
        return list(self._over.get(link, {}).values())

    def apply(self, sequence: int, record: Record) -> None:
        """Take one record of the log."""
        if isinstance(record, LinkDeclared):
            self.links[record.name] = record
            self.changed.setdefault(record.name, set())
            self._sequences[LinkDeclared, record.name] = sequence
        elif isinstance(record, RouteDeclared):
            self._take(record.name)
            self.routes[record.name] = record
            self._over.setdefault(record.link, {})[record.name] = record
            self.changed.setdefault(record.link, set()).add(record.name)
            self._sequences[RouteDeclared, record.name] = sequence
        elif isinstance(record, RouteDeleted):
            self._take(record.name)
            self._sequences.pop((RouteDeclared, record.name), None)
        elif isinstance(record, LinkDeleted):
            for route in self.routes_of(record.name):
                self.apply(sequence, RouteDeleted(route.name))
            self.links.pop(record.name, None)
            self.changed.setdefault(record.name, set())
            self._sequences.pop((LinkDeclared, record.name), None)

    def _take(self, name: str) -> None:
        """Take a route away, if it is there."""
        former = self.routes.pop(name, None)
        if former is not None:
            over = self._over[former.link]
            del over[name]
            if not over:
                del self._over[former.link]
            self.changed.setdefault(former.link, set()).add(name)

    def records(self) -> Iterator[tuple[int, Record]]:
        """Walk through the records that rebuild all that is in the log, links first."""
        present: list[LinkDeclared | RouteDeclared] = [*self.links.values()]
        for record in [*present, *self.routes.values()]:
            sequence = self.sequence(record)
            if sequence:
                yield sequence, record

    def clear(self) -> None:
        """Forget all of it."""
        for route in list(self.routes):
            self._take(route)
        self.changed |= {name: set() for name in self.links if name not in self.changed}
        self.links.clear()
        self._sequences.clear()

    def check_room(self, wanted: LinkDeclared | RouteDeclared) -> None:
        """Raise LimitExceeded if there are as many already as may be."""
        is_link = isinstance(wanted, LinkDeclared)
        present, most = (self.links, MOST_LINKS) if is_link else (self.routes, MOST_ROUTES)
        if wanted.name not in present and len(present) >= most:
            what = "links" if is_link else "routes"
            raise LimitExceeded(
                f"Cannot declare {wanted.name}: there are {most} {what} already",
                hint="Delete some.",
                event_code=FEDERATION_REFUSED,
            )


def is_of_route(queue: str) -> bool:
    """Whether a queue of this name has what a route takes from an exchange."""
    return queue.startswith(BRIDGE_QUEUE) or ROUTE_LINK in queue


def key_in(payload: bytes) -> str:
    """Return the key that a message that crossed a link had where it came from: what was written
    on it there, else its subject. Raises ProtocolViolation for a malformed one.
    """
    if FROM_KEY.encode() in payload:
        found = message_annotations(payload).get(FROM_KEY)
        if isinstance(found, str):
            return found
    return subject(payload)


def with_key(payload: bytes, key: str) -> bytes:
    """Make the message that tells a route its key, which may be that of its address alone."""
    if key_in(payload) == key:
        return payload
    return departure(payload, 0, add_annotation(payload, b"", FROM_KEY, key))


def link_asked_for(
    name: str, addresses: str, *, mechanism: str, username: str, password: str, durable: bool
) -> LinkDeclared:
    """Return the record of a link; raise InvalidArgument for what is not right."""
    found: list[str] = []
    login = (username, password)
    for part in addresses.split(",") if addresses else ():
        try:
            url = parse_url(part)
            if not url:
                raise ValueError("an address is empty (is there a comma too many?)")
        except ValueError as error:
            raise InvalidArgument(
                f"the addresses of link {name} cannot be read",
                reason=str(error),
                hint="give them as amqp://HOST:PORT or amqps://HOST:PORT, with commas between",
            ) from None
        found += [str(address) for address in url]
        if url.user and not login[0]:
            login = (url.user, url.password)
    found = list(dict.fromkeys(found))
    if not found or len(found) > MOST_ADDRESSES:
        raise InvalidArgument(
            f"link {name} has {len(found)} addresses",
            hint=f"give 1 to {MOST_ADDRESSES}, such as amqp://HOST:PORT",
        )
    mechanism = mechanism.upper()
    if mechanism and mechanism not in MECHANISMS:
        raise InvalidArgument(
            f"link {name}: the SASL mechanism {mechanism[:LONGEST_NAME]} is not known",
            reason=OTHER_MECHANISMS.get(mechanism, ""),
            hint=f"use one of {', '.join(sorted(MECHANISMS))}, or none to choose by itself",
        )
    return LinkDeclared(name, "", found, mechanism, *login, durable=durable)


def tags_in(text: str) -> list[str]:
    """Return the tags that a text names, with commas between."""
    return [part.strip() for part in text.split(",") if part.strip()]


def check_route(route: RouteDeclared) -> None:
    """Raise InvalidArgument for what is not right about a route that is asked for."""
    name = route.name
    if route.kind not in KINDS:
        raise InvalidArgument(
            f"route {name}: there is no kind of routes {route.kind[:LONGEST_NAME]}",
            hint=f"kinds: {', '.join(KINDS)}",
        )
    if route.kind == QUEUE and (route.key or route.arguments):
        raise InvalidArgument(
            f"route {name}: a route from a queue has no binding key and no binding arguments",
            hint="leave them out, or use the kind exchange",
        )
    if route.kind == DYNAMIC and (route.is_push or route.key or route.arguments):
        raise InvalidArgument(
            f"route {name}: a dynamic route pulls, and its keys are those that are bound here",
            hint="leave key, arguments and direction out",
        )
    check_key("binding key", route.key)
    if len(route.excludes) > MOST_EXCLUDES:
        raise InvalidArgument(
            f"route {name} excludes {len(route.excludes)} tags",
            hint=f"give {MOST_EXCLUDES} at most",
        )
    if "," in route.tag:
        raise InvalidArgument(f"route {name}: a tag has a comma in it", hint="leave it out")
    if not 1 <= route.ack <= MOST_CREDIT or not 0 <= route.credit <= MOST_CREDIT:
        raise InvalidArgument(
            f"route {name}: ack is {route.ack}, credit is {route.credit}",
            hint=f"use 1 to {MOST_CREDIT} for ack, 0 to {MOST_CREDIT} for credit",
        )
    if route.credit and route.ack > route.credit:
        raise InvalidArgument(
            f"route {name}: ack {route.ack} is more than credit {route.credit}",
            reason="the other end would wait for messages to be settled, and we for more of them",
            hint="use less for ack",
        )
