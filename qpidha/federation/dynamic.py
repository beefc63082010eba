"""A dynamic route: it pulls from an exchange at the other end what is bound to an exchange here.

For each binding of the exchange here the route has one of the same key at the other end, on a queue
of its own there, and takes it away with the last of them. The other end is asked by its management,
so it has to be qpidha. A binding that a route made says for whom, by tags: one that comes from the
other end is not brought back there, so bindings that routes made of each other do not keep each
other for ever. Must not know what the bindings are good for. Source: Qpid
src/qpid/broker/Exchange.cpp (propagateFedOp), Bridge.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.amqp.peer.terminus import Terminus, source
from qpidha.broker.federation import BRIDGE_QUEUE, FED_TAGS
from qpidha.broker.vocabulary import CREATE, DURABLE
from qpidha.federation.management import OWN_PRODUCT, Management
from qpidha.federation.pull import Pull
from qpidha.federation.trace import MOST_TAGS
from qpidha.model.encoding import Symbol
from qpidha.model.errors import RefusedRequest

if TYPE_CHECKING:
    from qpidha.amqp.peer.connection import Connection
    from qpidha.amqp.peer.service_link import ServiceLink
    from qpidha.broker.exchange import Exchange
    from qpidha.federation.route import Home
    from qpidha.model.records import RouteDeclared

UNUSED = 300
"""Seconds that the queue of a route that is not durable waits for the next primary."""
Wanted = dict[str, dict[str, Any]]
"""Binding keys, with the arguments of each."""


class Dynamic(Pull):
    """One dynamic route."""

    def __init__(self, home: Home, record: RouteDeclared) -> None:
        super().__init__(home, record)
        self._management: Management | None = None
        self._bound: Wanted = {}
        """What is bound at the other end, or is being bound."""
        self._exchange: Exchange | None = None
        """The exchange here, which tells when its bindings change."""
        self._trouble = ""

    @property
    def queue_there(self) -> str:
        """The queue of its own at the other end."""
        return f"{BRIDGE_QUEUE}{self.record.name}_{self.record.uuid}"

    def _attach(self, connection: Connection) -> ServiceLink:
        if self.home.peer_product != OWN_PRODUCT:
            raise RefusedRequest(
                f"a dynamic route needs qpidha at its other end, and there is "
                f"{self.home.peer_product or 'another product'}",
                hint="declare a route of the kind exchange for each key",
            )
        link = super()._attach(connection)
        self._management = Management(self, connection, f"qpidha.route.{self.record.uuid}")
        self._bound, self._trouble = {}, ""
        self._exchange = self.broker.exchange(self.record.destination)
        self._exchange.watchers[self] = None
        return link

    def _source(self) -> Terminus:
        durable = self.record.durable
        lifetime = {} if durable else {"auto-delete": True, "qpid.auto_delete_timeout": UNUSED}
        return source(
            self.queue_there,
            capabilities=[CREATE, DURABLE] if durable else [CREATE],
            properties={Symbol(name): value for name, value in lifetime.items()},
        )

    def _end(self) -> None:
        management, self._management = self._management, None
        if management is not None:
            management.close()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.watchers.pop(self, None)
        super()._end()

    def _leave(self, *, for_good: bool = False) -> None:
        if for_good and self._management is not None:
            self._management.ask("delete_queue", {"name": self.queue_there})
        super()._leave(for_good=for_good)

    def _begin(self, link: ServiceLink) -> None:
        super()._begin(link)
        self._want_turn()

    def bindings_changed(self) -> None:
        """Other keys are bound here than before, or the exchange is gone."""
        self._want_turn()

    def turn(self) -> None:
        """Have the other end bind what is bound here."""
        trouble, self._trouble = self._trouble, ""
        if trouble and self.link is not None:
            self.fail(trouble)
            return
        management = self._management
        if management is None or self.link is None or not self.link.remote_source.kind:
            return  # With its beginning comes another turn.
        if self.broker.exchanges.get(self.record.destination) is not self._exchange:
            self.fail(f"There is no exchange {self.record.destination}")
            return
        wanted = self._wanted()
        there = {"exchange": self.record.source, "queue": self.queue_there}
        for key in [key for key in self._bound if key not in wanted]:
            if not management.is_free:
                self._want_turn()  # Until answers have come.
                return
            del self._bound[key]
            management.ask("unbind", {**there, "key": key})
        for key, arguments in wanted.items():
            if self._bound.get(key) == arguments:
                continue
            if not management.is_free:
                self._want_turn()
                return
            self._bound[key] = arguments
            management.ask("bind", {**there, "key": key, "arguments": arguments})

    def _wanted(self) -> Wanted:
        """Return what is to be bound at the other end, with the tags of those that it is for."""
        found: Wanted = {}
        ways: dict[str, list[str]] = {}
        exchange = self.broker.exchanges[self.record.destination]
        for _, key, arguments in exchange.bindings():
            text = arguments.get(FED_TAGS, "")
            tags = [tag for tag in text.split(",") if tag] if isinstance(text, str) else []
            if not self.home.peer_names.isdisjoint(tags) or len(tags) >= MOST_TAGS:
                continue
            if key in ways and len(ways[key]) <= len(tags):
                continue
            ways[key] = tags
            kept = {
                name: value for name, value in arguments.items() if not name.startswith("qpid.")
            }
            found[key] = {**kept, FED_TAGS: ",".join([*tags, self.home.own_tag])}
        return found

    def refused_by_management(self, method: str, why: str) -> None:
        """The other end does not do what it is asked."""
        if method in ("unbind", "delete_queue"):
            return  # It is gone already.
        self._want_turn()
        self._trouble = f"the other end refuses {method}: {why}"
