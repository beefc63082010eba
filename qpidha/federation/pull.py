"""A route that pulls: messages of a queue or an exchange at the other end come here.

A message is settled at its source when its record is committed here, as it is for a client that
sends: until then the source keeps it, and gives it to the next primary. What cannot be taken here
goes back to its source, and the route waits. A message that has been here stays on a queue it comes
from; of an exchange it was a copy that nobody misses. Must not know who else is at the source.
Source: Qpid src/qpid/broker/Bridge.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.amqp.peer.links import is_settled
from qpidha.amqp.peer.terminus import (
    ACCEPTED,
    MODIFIED,
    RELEASED,
    SETTLED,
    Outcome,
    Pointer,
    Terminus,
    source,
)
from qpidha.broker.exchange import UNROUTABLE_HINT
from qpidha.broker.federation import QUEUE, ROUTE_LINK, key_in
from qpidha.broker.queues.arguments import fits_key
from qpidha.broker.vocabulary import HEADERS_BINDING, TOPIC_BINDING
from qpidha.federation.management import OWN_PRODUCT
from qpidha.federation.route import Route, State
from qpidha.federation.trace import with_tags
from qpidha.model.encoding import Described, Symbol
from qpidha.model.errors import ProtocolViolation, RefusedRequest
from qpidha.model.message_view import Copies, application_properties, arrival

if TYPE_CHECKING:
    from qpidha.amqp.peer.connection import Connection
    from qpidha.amqp.peer.links import LinkEnd
    from qpidha.amqp.peer.service_link import ServiceLink
    from qpidha.broker.queues.queue import Queue
    from qpidha.federation.route import Home
    from qpidha.model.records import RouteDeclared

NOT_FOR_US = Outcome(MODIFIED, undeliverable=True)
"""Others may have it."""
DURABLE = 2
"""What a source is that outlives its links: unsettled-state."""


class Pull(Route):
    """One route that pulls."""

    def __init__(self, home: Home, record: RouteDeclared) -> None:
        super().__init__(home, record)
        self._queue: Queue | None = None
        self._window = record.credit or self.host.settings.link_credit
        self._budget = self.host.settings.link_credit_bytes
        self._end_of_link: LinkEnd | None = None
        self._pending = self._used = 0
        self._committed: list[Pointer] = []
        """Deliveries that are to be settled together."""
        self._largest = self._largest_before = 0
        self._holds = False
        """Whether nothing is taken until the next attempt."""
        self._returned = 0
        """Messages that went back to their source since the last attempt."""
        self._payload = b""
        self.depth: int | None = None
        """Of the queue at the other end, as far as its management told it."""

    def _attach(self, connection: Connection) -> ServiceLink:
        record = self.record
        if record.to_exchange:
            self.broker.exchange(record.destination)
            queue = None
        else:
            queue = self.broker.queue(record.destination)
        self._pending = self._used = self._largest = self._largest_before = 0
        self._committed = []
        self._holds, self._returned = False, 0
        self._queue = queue
        link = connection.attach(
            record.source,
            sender=False,
            service=self,
            name=f"{ROUTE_LINK}{record.uuid}",
            terminus=self._source(),
            credit=0,
            settled=False,
            accepts=False,
            max_size=self.host.settings.max_message_size,
            # RabbitMQ 3 keeps what a link that ended has not settled until its session ends.
            own_session=self.home.peer_product != OWN_PRODUCT,
        )
        self._end_of_link = link.end
        self.broker.credit.senders[self] = None
        if queue is not None:
            queue.add_sender(self)
        return link

    def _source(self) -> Terminus:
        """Describe where the messages come from, as the other end calls it."""
        record = self.record
        if record.kind == QUEUE:
            return source(record.source)
        address, wanted = record.source, {}
        if record.key and self.home.peer_product == OWN_PRODUCT:
            address = f"{record.source}/{record.key}"
        elif record.key:
            wanted[Symbol(TOPIC_BINDING)] = Described(Symbol(TOPIC_BINDING), record.key)
        if record.arguments:
            described = Described(Symbol(HEADERS_BINDING), dict(record.arguments))
            wanted[Symbol(HEADERS_BINDING)] = described
        lasts = {"durability": DURABLE, "expiry": "never"} if record.durable else {}
        return source(address, filter=wanted, **lasts)

    @property
    def queue_there(self) -> str:
        """The queue at the other end that the messages come from, if that is qpidha."""
        record = self.record
        if record.kind == QUEUE:
            return record.source
        return f"{self.home.container}_{ROUTE_LINK}{record.uuid}"

    def _kept_there(self) -> str:
        record = self.record
        return self.queue_there if record.durable and record.kind != QUEUE else ""

    # What waits there.

    def available(self) -> int | None:
        """Return how many messages wait at the source, None if the other end does not say it."""
        end = self._end_of_link
        if self.depth is not None or end is None:
            return self.depth
        available = end.available()
        # What went back may be in that or not: the other end may have said it before or after.
        return None if available is None else max(available, self._returned)

    def _begin(self, link: ServiceLink) -> None:
        if link.end is not None and link.end.remote_sender_mode() == SETTLED:
            self._withdraw(
                "the other end sends messages settled, so what is on its way would be lost with "
                "the link: have it send them unsettled"
            )
            return
        in_effect = set(map(str, link.remote_source.filter))
        wanted = set(map(str, self._source().filter)) - in_effect
        if TOPIC_BINDING in wanted:
            self._withdraw(
                f"the other end does not look at the binding key {self.record.key!r}: write it "
                "into the source as it is written there, and leave the key out"
            )
            return
        if wanted:
            self._withdraw(
                "the other end does not look at the binding arguments: bind a queue there with "
                "them, and declare a route from that"
            )
            return
        self._top_up()

    def _withdraw(self, reason: str) -> None:
        """Fail, and leave no subscription there that takes what nobody asked for."""
        self._leave(for_good=True)
        self._wait(reason)

    def _end(self) -> None:
        end, self._end_of_link = self._end_of_link, None
        if end is not None and (self._pending or self._committed):
            # Else the engine would settle without an outcome what is not committed here yet.
            end.waits = True
        self.depth = None
        self.broker.credit.leave(self)
        if self._queue is not None:
            self._queue.remove_sender(self)
            self._queue = None

    def tick(self) -> None:
        """Try again."""
        if self.link is None or not self._holds:
            super().tick()
            return
        try:
            if self._queue is not None and self._queue.deleted:
                self._replace(self._queue)
        except RefusedRequest as error:
            self._wait(error.text)
            return
        self._holds, self._returned = False, 0
        self._become(State.OPERATIONAL)
        self._top_up()

    def turn(self) -> None:
        """Nothing waits here: the queue tells when it has room."""

    # Credit.

    def credited(self, link: ServiceLink) -> None:
        """The other end sends, and gives no credit."""

    def resumed(self) -> None:
        """The queue, or the broker, has room again."""
        self._top_up()

    def _top_up(self) -> None:
        """Let the source send as much as can be taken."""
        link = self.link
        if link is None or link.end is None or self._holds:
            return
        size = max(self._largest, self._largest_before)
        if self._largest:
            self._largest, self._largest_before = 0, self._largest
        allowance = self.broker.credit.allowance(
            self, self._queue, size, budget=self._budget, window=self._window
        )
        self._used = 0
        unsettled = self._pending + len(self._committed)
        more = min(allowance, self._window - unsettled) - link.end.credit()
        if more > 0 and allowance:
            link.flow(more)

    # Messages.

    def received(self, link: ServiceLink, payload: bytes) -> None:
        """Put a message where it is to go."""
        delivery = link.last_delivery
        settled = is_settled(delivery)
        if link is not self.link:
            return
        self._largest = max(self._largest, len(payload))
        if self._holds and not settled:
            self._give_back(link, delivery)
            return
        tags = self._tags(payload, self.home.own_names)
        if tags is None:
            if not settled:
                is_copy = self.record.kind != QUEUE
                link.settle(delivery, outcome=None if is_copy else NOT_FOR_US)
                self._use()
            return
        try:
            sequence = self._take(payload, tags)
        except ProtocolViolation:
            raise  # Nobody could ever take it: it is rejected.
        except RefusedRequest as error:
            self.refused += 1
            if not settled:
                self._give_back(link, delivery)
            self._hold(error)
            return
        self._moved(len(payload))
        if settled:
            self._use()
            return
        self._pending += 1
        self.host.when_committed(sequence, self, (link, delivery))

    def _give_back(self, link: ServiceLink, delivery: Pointer) -> None:
        self._returned += 1
        link.settle(delivery, RELEASED)

    def _take(self, payload: bytes, tags: list[str]) -> int:
        """Put a message on the queue or the exchange; return the sequence to wait for."""
        try:
            payload, expires, due = arrival(payload, self.broker.time)
        except Copies as copies:  # Its other keys were looked at where it was sent.
            payload, expires, due = copies.payload, copies.expires, copies.due
        payload = with_tags(payload, tags, (self.home.peer_tag, self.record.tag))
        if due:
            self.broker.check_delay()
        queue = self._queue
        if queue is not None:
            if queue.deleted:
                queue = self._replace(queue)
            if due:
                return self.broker.enqueue_on_all([queue], payload, expires, due)
            return queue.enqueue(payload, expires)
        self._payload = payload
        key = key_in(payload) or self._only_key
        if not fits_key(key):
            key = ""
        sequence, queues = self.broker.publish(
            self.record.destination, key, payload, headers=self._headers, expires=expires, due=due
        )
        releases = self.record.kind == QUEUE and self.host.settings.unroutable == "release"
        if not queues and releases:
            raise RefusedRequest(
                f"exchange '{self.record.destination}' has no queue for key '{key}'",
                hint=UNROUTABLE_HINT,
            )
        return sequence

    @property
    def _only_key(self) -> str:
        """The key that everything has which comes over this route, or empty."""
        key = self.record.key
        return "" if "*" in key or "#" in key else key

    def _replace(self, former: Queue) -> Queue:
        """Go on with a queue that has the name of one that was deleted."""
        queue = self.broker.queue(former.name)
        former.remove_sender(self)
        queue.add_sender(self)
        self._queue = queue
        return queue

    def _headers(self) -> dict[Any, Any]:
        return application_properties(self._payload)

    def _hold(self, error: RefusedRequest) -> None:
        """Take nothing for a while: what was not taken would come again at once."""
        if not self._holds and self.link is not None:
            self._holds = True
            self.link.drain()  # Else it comes as often as there is credit.
            self._wait(error.text)

    def on_committed(self, item: tuple[ServiceLink, Pointer]) -> None:
        """Settle a message at its source: it is committed here."""
        link, delivery = item
        if link is not self.link:
            return
        self._pending -= 1
        self._committed.append(delivery)
        if len(self._committed) >= self.record.ack or not self._pending:
            committed, self._committed = self._committed, []
            for each in committed:
                link.settle(each, ACCEPTED)
            self._use(len(committed))

    def _use(self, count: int = 1) -> None:
        """So many deliveries have their outcome."""
        self._used += count
        if 2 * self._used >= self._window or not self._pending:
            self._top_up()
