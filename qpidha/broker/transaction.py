"""Transactions: work that is done as a whole when it is committed, or not at all.

What a transaction is to do is kept here and touches nothing yet: messages to post, and what becomes
of messages that consumers have. `commit` checks all of it first; if any part cannot be done,
nothing is. Then everything goes to the log writer in one go, so that it is in one batch of the log:
whole on disk and on every backup, or not there. The sequence returned is what whoever answers the
commit waits for. Nothing in a transaction may be elided from its batch, nor count as consumed
before the batch is committed, so posts are recorded as shared messages and retirements as removals
of several, which the log leaves alone.

Posts to one log and retirements from the other are two batches. Then the retirements follow when
the posts are committed (`queues/crossing.py`), and the commit is answered when all is. A crash
before may leave the posts without the retirements, or the posts of one log only; never retirements
without posts. Knows nothing of links or of transaction ids. Source: AMQP
1.0 section 4.4; Qpid `TxBuffer.cpp`, `TxAccept.cpp`.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

from qpidha.broker.exchange import UNROUTABLE_HINT, application_properties
from qpidha.broker.queues.last_value import LastValue
from qpidha.model.errors import LimitExceeded, NotFound, QpidHaError, RefusedRequest
from qpidha.model.records import Cause

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from qpidha.broker.broker import Broker
    from qpidha.broker.queues.dispatch import Consumer
    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message

MAX_OPERATIONS = 100_000
"""Posts and retirements of one transaction: all of them are carried out in one turn."""
POST_BYTES = 250
"""Bytes that a post takes in memory beside its payload."""
RETIREMENT_BYTES = 250
"""Bytes that a retirement takes in memory beside its annotations."""


class TransactionRolledBack(RefusedRequest):
    """Nothing of a transaction was done."""

    condition = "amqp:transaction:rollback"


class Fate(Enum):
    """What becomes of a message that a consumer has."""

    ACCEPT = auto()
    RELEASE = auto()
    REQUEUE = auto()
    REJECT = auto()


class Post:
    """A message on its way to a queue, or to an exchange with a key."""

    __slots__ = (
        "container",
        "copies",
        "due",
        "exchange",
        "expires",
        "key",
        "must_route",
        "owner",
        "payload",
        "queue",
    )

    def __init__(
        self,
        payload: bytes,
        expires: int,
        *,
        due: int = 0,
        queue: Queue | None = None,
        exchange: str = "",
        key: str = "",
        must_route: bool = False,
        owner: object = None,
        copies: Iterable[str] = (),
    ) -> None:
        self.payload = payload
        self.container = ""
        """Of the connection that sends it to an exchange."""
        self.copies = tuple(copies)
        """Keys that it has beside `key`."""
        self.expires = expires
        self.due = due
        """When somebody may have it; 0 for at once."""
        self.queue = queue
        self.exchange = exchange
        self.key = key
        self.must_route = must_route
        """Whether it is an error if there is no queue for it."""
        self.owner = owner
        """Who must have access to the queue; None if that was seen to."""


class Retirement:
    """What becomes of one acquired message. `settled`: nobody else will say what becomes of it if
    there is no commit.
    """

    __slots__ = (
        "annotations",
        "at",
        "failed",
        "fate",
        "message",
        "not_to",
        "queue",
        "settled",
        "transaction",
    )

    def __init__(
        self,
        transaction: Transaction,
        queue: Queue,
        message: Message,
        fate: Fate,
        *,
        settled: bool,
        failed: bool = False,
        annotations: bytes = b"",
        not_to: Consumer | None = None,
        at: int | None = None,
    ) -> None:
        self.transaction = transaction
        self.queue = queue
        self.message = message
        self.fate = fate
        self.settled = settled
        self.failed = failed
        self.annotations = annotations
        self.not_to = not_to
        self.at = at
        """When it is due again, if its consumer says so."""

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return RETIREMENT_BYTES + len(self.annotations)

    @property
    def is_there(self) -> bool:
        """Whether the message is still on its queue: it may have been purged, or the queue
        deleted.
        """
        return self.queue.messages.get(self.message.sequence) is self.message


class _Demand:
    """The room that a transaction needs in one queue."""

    __slots__ = ("bytes", "count", "has_news", "keys", "largest")

    def __init__(self) -> None:
        self.count = self.bytes = 0
        self.largest = b""
        self.keys: set[str] = set()
        """Of a queue of last values, the keys of what is posted."""
        self.has_news = False
        """Whether there is a message that the queue has not had. If so all are counted: a new one
        may make it forget an old one.
        """

    def is_more(self, queue: Queue, payload: bytes, leaving: Container[Message]) -> bool:
        """Whether there is one message more on a queue with this one, apart from those that leave:
        of last values the former one of the key leaves, too.
        """
        order = queue.ordering
        if not isinstance(order, LastValue):
            return True
        key = order.key(payload)
        former = order.replaced_by(payload)
        is_new = key not in self.keys and (former is None or former in leaving)
        self.keys.add(key)
        return is_new


class Transaction:
    """Posts and retirements until they are committed or rolled back."""

    __slots__ = ("_broker", "_evicted", "bytes", "posts", "retirements", "cause")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.posts: list[Post] = []
        self.retirements: dict[Retirement, int] = {}
        """With the bytes that each was counted for."""
        self.bytes = 0
        """In memory, of posts and retirements."""
        self._evicted: dict[Queue, list[Message]] = {}
        self.cause: QpidHaError | None = None
        """Why this transaction can only be rolled back, if so."""

    def post(self, post: Post) -> None:
        """Take a message; raise what refuses it; the transaction can only be rolled back then."""
        if self.cause is not None:
            raise self.cause
        self._check_length(1)
        self.posts.append(post)
        self.bytes += len(post.payload) + POST_BYTES

    def retire(self, retirement: Retirement) -> None:
        """Take what is to become of an acquired message; the message stays acquired. Beyond the
        limit it is given back, and the transaction can only be rolled back.
        """
        try:
            self._check_length(1)
        except LimitExceeded:
            self.give_back(retirement)
            return
        self.retirements[retirement] = 0
        self.changed(retirement)

    def changed(self, retirement: Retirement) -> None:
        """Count the annotations of a retirement anew."""
        known = self.retirements.get(retirement)
        if known is not None:
            self.retirements[retirement] = retirement.size
            self.bytes += retirement.size - known

    def settle(self, retirement: Retirement) -> None:
        """Nobody else will say what becomes of the message if there is no commit."""
        retirement.settled = True
        if retirement not in self.retirements:
            self.give_back(retirement)

    @staticmethod
    def give_back(retirement: Retirement) -> None:
        """Have a message that its consumer has settled go back to its place, as a delivery that
        failed: there is no commit for it.
        """
        if retirement.settled:
            retirement.queue.requeue(retirement.message, True)

    def mark_rollback_only(self, error: QpidHaError) -> None:
        """Let this transaction end in a rollback only; the messages it was to post are forgotten
        now, and what was to be said with those that go back.
        """
        if self.cause is not None:
            return
        self.cause = error
        self.posts.clear()
        for retirement in self.retirements:
            retirement.annotations = b""
        self.retirements = dict.fromkeys(self.retirements, RETIREMENT_BYTES)
        self.bytes = RETIREMENT_BYTES * len(self.retirements)

    def commit(self) -> int:
        """Do everything, or raise TransactionRolledBack and do nothing; return the sequence to wait
        for, 0 for none.
        """
        try:
            if self.cause is not None:
                raise self.cause
            routes = [self._route(post) for post in self.posts]
            self._check(routes)
        except QpidHaError as error:
            self.rollback()
            raise TransactionRolledBack(
                f"the transaction was rolled back: {error.text}", hint=error.hint
            ) from error
        sequence = self._carry_out(routes)
        self._forget()
        return sequence

    def rollback(self) -> None:
        """Do nothing of it. Messages that their consumers have settled go back to their places, as
        deliveries that failed.

        What a settled delivery comes to then is its source's default outcome, which for Qpid's
        clients and brokers is modified with delivery-failed; so applications see it delivered
        again, and a count of attempts. Deliveries that are not settled stay with their consumers,
        which say again what becomes of them.
        """
        for retirement in self.retirements:
            self.give_back(retirement)
        self._forget()

    def _forget(self) -> None:
        self.posts = []
        self.retirements = {}
        self._evicted = {}
        self.bytes = 0

    def _check_length(self, more: int) -> None:
        if len(self.posts) + len(self.retirements) + more > MAX_OPERATIONS:
            error = LimitExceeded(
                f"a transaction can have {MAX_OPERATIONS} operations", hint="commit more often"
            )
            self.mark_rollback_only(error)
            raise error

    # Checking.

    def _route(self, post: Post) -> list[Queue]:
        """Find the queues for a message, as they are now."""
        if post.queue is not None:
            post.queue.check_open()
            if post.owner is not None:
                post.queue.check_access(post.owner)
            return [post.queue]
        exchange = self._broker.exchanges.get(post.exchange)
        if exchange is None:
            raise NotFound(f"there is no exchange '{post.exchange}'", hint="declare it first")
        headers = partial(application_properties, post.payload)
        steps = self._broker.commit_steps
        broker, payload = self._broker, post.payload
        queues = (
            broker.routes_of_all(exchange, (post.key, *post.copies), headers, steps, payload)
            if post.copies
            else broker.routes(exchange, post.key, headers, steps, payload)
        )
        if not queues and post.must_route:
            raise NotFound(
                f"exchange '{post.exchange}' has no queue for key '{post.key}'",
                hint=UNROUTABLE_HINT,
            )
        return broker.without_own(queues, post.container)

    def _check(self, routes: list[list[Queue]]) -> None:
        """Raise what refuses the commit; after this nothing does."""
        demands: dict[Queue, _Demand] = {}
        accepted = {
            retirement.message
            for retirement in self.retirements
            if retirement.fate is Fate.ACCEPT and retirement.is_there
        }
        for post, queues in zip(self.posts, routes, strict=True):
            size = len(post.payload)
            for queue in queues:
                demand = demands.setdefault(queue, _Demand())
                demand.count += demand.is_more(queue, post.payload, accepted)
                demand.bytes += size
                demand.largest = max(demand.largest, post.payload, key=len)
                demand.has_news = (
                    demand.has_news
                    or queue.window is None
                    or queue.window.find(post.payload) is None
                )
        largest = {queue: demand.largest for queue, demand in demands.items()}
        for retirement in self.retirements:
            if retirement.queue.is_replica:
                raise RefusedRequest(
                    f"Queue {retirement.queue.name} is a copy here", hint="Ask the primary."
                )
            leaving = demands.get(retirement.queue)
            if leaving is not None and retirement.message in accepted:
                leaving.count -= 1
                leaving.bytes -= retirement.message.size
        for queue, demand in demands.items():
            queue.check_open()
            if not demand.has_news:
                continue  # All of it is sent again.
            if (
                queue.staying + demand.count <= queue.max_count
                and queue.staying_bytes + demand.bytes <= queue.max_bytes
            ):
                continue
            if queue.ring:
                # Each message may push out those before it, so it is enough that there is room for
                # the largest alone.
                queue.room_for(largest[queue])
                continue
            raise LimitExceeded(
                f"Queue {queue.name} is full: with {len(queue.messages)} messages and "
                f"{queue.bytes} bytes it cannot take"
                f" {demand.count} messages of {demand.bytes} bytes more",
                hint=(
                    "Consume from it, commit less at a time, or raise qpid.max_count or "
                    "qpid.max_size."
                ),
            )

    # Doing.

    def _carry_out(self, routes: list[list[Queue]]) -> int:
        """Do everything; nothing of it can fail."""
        by_fate: dict[Fate, list[Retirement]] = {fate: [] for fate in Fate}
        sequences: list[int] = []
        for retirement in self.retirements:
            if retirement.is_there:
                by_fate[retirement.fate].append(retirement)
            elif retirement.fate in (Fate.ACCEPT, Fate.REJECT):
                sequences.append(retirement.queue.left_before())
        accepted: dict[Queue, list[Message]] = {}
        for retirement in by_fate[Fate.ACCEPT]:
            accepted.setdefault(retirement.queue, []).append(retirement.message)
        for queue, messages in accepted.items():
            size = sum(message.size for message in messages)
            queue.transacted(len(messages), size, is_departure=True)
        # First what makes room, last what may take some; queues that have come to their end stay
        # until all is done.
        waits = self._waiting(routes)
        leave = self._broker.departures.leave
        sequences += [
            queue.cross(messages, Cause.ACCEPTED)
            if queue in waits
            else leave(queue, messages, Cause.ACCEPTED)
            for queue, messages in accepted.items()
        ]
        sequences += [
            self._enqueue(queues, post) for post, queues in zip(self.posts, routes, strict=True)
        ]
        for retirement in by_fate[Fate.RELEASE]:
            sequences.append(retirement.queue.release(retirement.message))
        for retirement in by_fate[Fate.REQUEUE]:
            queue, message = retirement.queue, retirement.message
            sequences.append(
                queue.requeue(
                    message,
                    retirement.failed,
                    retirement.annotations,
                    not_to=retirement.not_to,
                    at=retirement.at,
                )
            )
        for queue, messages in self._evicted.items():
            self._broker.evict(queue, messages)
        rejected = by_fate[Fate.REJECT]
        for retirement in rejected:
            queue, message = retirement.queue, retirement.message
            sequences.append(
                queue.cross([message], Cause.REJECTED)
                if queue in waits and not queue.passes_on(Cause.REJECTED)
                else leave(queue, [message], Cause.REJECTED)
            )
        for queue in dict.fromkeys((*accepted, *(retirement.queue for retirement in rejected))):
            if queue.ends_empty:
                self._broker.left(queue)
        return max(sequences, default=0)

    def _waiting(self, routes: list[list[Queue]]) -> set[Queue]:
        """Return the queues that messages leave only when the posts are committed, of which some
        are in the other log.
        """
        if not self._broker.has_two_logs:
            return set()
        targets = {queue for queues in routes for queue in queues}
        sources = {retirement.queue for retirement in self.retirements}
        return {
            source
            for source in sources
            if any(self._broker.crosses(source, target) for target in targets)
        }

    def _enqueue(self, queues: list[Queue], post: Post) -> int:
        """Put one message on its queues. One that was deleted by what came before, as it was full
        and ends then, has had it.
        """
        if post.queue is None and (exchange := self._broker.exchanges.get(post.exchange)):
            exchange.received += 1
            exchange.bytes_received += len(post.payload)
            if not queues:
                exchange.drop(len(post.payload))
        there = [queue for queue in queues if not queue.deleted]
        for queue in there:
            queue.transacted(1, len(post.payload), is_departure=False)
        if not there:
            return 0
        sequence, leaving = self._broker.put_on_all(
            there, post.payload, post.expires, post.due, may_exceed=True
        )
        # Not rerouted before the last post is in its place: it might take the room that was found
        # for that one.
        for queue, messages in leaving:
            self._evicted.setdefault(queue, []).extend(messages)
        return sequence
