"""Records: the facts a broker remembers and replicates. Broker state is a fold over them, in order.

Every record has an identity `(epoch, sequence)`, given when it is appended. The sequence of the
record that declared a queue or exchange is that object's `uid`, and the sequence of an `Enqueued`
is its message's: both are unique in one log. Built-in exchanges have the fixed negative uids below.
Records are facts: applying one decides nothing and cannot fail.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qpidha.model.encoding import Parts

DEFAULT_EXCHANGE = -1
"""uid of the nameless exchange, to which every queue is bound by its name."""
BUILT_IN_EXCHANGES = {
    "amq.direct": (-2, "direct"),
    "amq.topic": (-3, "topic"),
    "amq.fanout": (-4, "fanout"),
    "amq.match": (-5, "headers"),
}
"""name -> (uid, type) of the exchanges every broker has; bindings to them are replicated."""


class Cause(IntEnum):
    """Why messages left a queue. The numbers are written into the log; a number that this version
    does not know stays a plain int.
    """

    ACCEPTED = 0
    """A consumer took them."""
    EXPIRED = 1
    """Their time to live was over."""
    OVERFLOW = 2
    """They had to make room for others."""
    REJECTED = 3
    """A consumer rejected them."""
    DELIVERY_LIMIT = 4
    """They were delivered too often."""
    REPLACED = 5
    """A newer message with their key took their place."""
    PURGED = 6
    """An administrator emptied the queue."""
    DELETED = 7
    """The queue ended."""
    MOVED = 8
    """They went to another queue."""
    UNDELIVERABLE = 9
    """A consumer said that they cannot be delivered where it is."""


@dataclass(slots=True, kw_only=True)
class WithLaterFields:
    """A record that may get fields in a later version."""

    later: dict[str, Any] = field(default_factory=dict)
    """Fields that this version does not know: kept as they came, and written again."""


@dataclass(slots=True)
class ExchangeDeclared(WithLaterFields):
    """An exchange exists from here on."""

    name: str
    type: str
    uuid: str
    durable: bool = False
    auto_delete: bool = False
    alternate: str = ""
    replicate: str = "all"
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ExchangeDeleted(WithLaterFields):
    """The exchange and its bindings are gone."""

    exchange: int


@dataclass(slots=True)
class QueueDeclared(WithLaterFields):
    """A queue exists from here on. `arguments` holds the `qpid.*` options as given, with
    `qpid.replicate` resolved.
    """

    name: str
    uuid: str
    durable: bool = False
    auto_delete: bool = False
    exclusive: bool = False
    alternate: str = ""
    replicate: str = "all"
    arguments: dict[str, Any] = field(default_factory=dict)
    fallback: str = ""
    """The replicate level while no policy says one; empty for a queue that was declared with a
    level, whatever policies say. It belongs to the feature `queue-kinds`, and is left out while
    it is empty.
    """
    implied: list[str] = field(default_factory=list)
    """The arguments that nobody gave: they came with others, and count while no policy says
    otherwise. Belongs to the same feature, and is left out while it is empty.
    """


@dataclass(slots=True)
class LevelChanged(WithLaterFields):
    """A queue has another replicate level from here on, or its messages come into the log. Belongs
    to the feature `queue-kinds`.

    With `logged` the messages of the queue are in the log: those that come, and those that follow
    under numbers of their own, up to `own_numbers`. Without, they are on the primary only, and all
    others forget what they have of them.
    """

    queue: int
    level: str
    logged: bool
    own_numbers: int = 0
    recorded: int = 0
    """At the end of that, and in a snapshot: up to which of its own numbers the log has had the
    queue, whatever has left since. Left out while it is 0.
    """
    keeper: str = ""
    """The system id of the primary that gives the queue to the log, or takes it out of that, if it
    has on its own disk what the log lacks. Left out while it is empty.
    """


@dataclass(slots=True)
class QueueDeleted(WithLaterFields):
    """The queue, its messages and bindings are gone."""

    queue: int


@dataclass(slots=True)
class Bound(WithLaterFields):
    """A binding exists from here on; the same exchange, queue and key again replaces its
    arguments. In the place of the queue may stand another exchange, if the feature `queue-kinds` is
    in use.
    """

    exchange: int
    queue: int
    key: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Unbound(WithLaterFields):
    """That binding is gone."""

    exchange: int
    queue: int
    key: str


@dataclass(slots=True)
class Enqueued:
    """A message is on these queues. `payload` is the encoded message; `expires` is ns since the
    Unix epoch, 0 for never.
    """

    queues: tuple[int, ...]
    payload: bytes
    expires: int = 0


@dataclass(slots=True)
class Dequeued:
    """These messages have left this queue, all for the same cause.

    `cause` is a `Cause`, or the number of one that only a later version knows. It belongs to the
    feature `departure-causes`: while that is not in use every cause is written as ACCEPTED.
    """

    queue: int
    sequences: tuple[int, ...]
    cause: int = Cause.ACCEPTED


@dataclass(slots=True)
class Requeued:
    """A message came back to its place with this delivery count; `annotations` is an encoded map
    section or empty. `due` is when somebody may have it, in ns since the Unix epoch, 0 for at once;
    so says the record of a new message too that is to be delivered later. It belongs to the feature
    `queue-kinds`.
    """

    queue: int
    sequence: int
    delivery_count: int
    annotations: bytes = b""
    due: int = 0


@dataclass(slots=True)
class QueueUsed(WithLaterFields):
    """A queue that ends when its users have left has had one; without users it is at its end from
    here on.
    """

    queue: int


@dataclass(slots=True)
class DedupRemembered(WithLaterFields):
    """Messages with these keys have been on this queue, as the sequences say; sent again they are
    duplicates.

    In the log this is of messages that came before the queue was to remember any, or before they
    were recorded; what comes later says so itself. A snapshot says all that is remembered.
    """

    queue: int
    keys: list[str]
    sequences: list[int]
    by: str = ""
    """In a local log: what the keys are (`Dedup.by`), for the policies that said it are not there.
    Left out while it is empty; an earlier version writes none.
    """


@dataclass(slots=True)
class PolicySet(WithLaterFields):
    """A policy holds from here on, in place of one that has its name and is an operator's as it is
    or is not. Belongs to the feature `queue-kinds`.
    """

    name: str
    pattern: str
    definition: dict[str, Any]
    """As it was given."""
    settings: dict[str, Any]
    """The same in known names."""
    implied: dict[str, Any] = field(default_factory=dict)
    """Known names that come with it where nobody says otherwise."""
    priority: int = 0
    apply_to: str = "all"
    is_operator: bool = False
    is_layer: bool = False
    """Whether it counts beside others."""
    expires: int = 0
    """When it ends by itself, in ns since the Unix epoch; 0 for never."""


@dataclass(slots=True)
class PolicyCleared(WithLaterFields):
    """That policy is gone."""

    name: str
    is_operator: bool = False


@dataclass(slots=True)
class LinkDeclared(WithLaterFields):
    """A link to another broker or cluster exists from here on, in place of one that has its name.
    This and the next three belong to the feature `federation`.
    """

    name: str
    uuid: str
    addresses: list[str]
    """Where the other end is, tried in turn; each as `host:port` or `ssl:host:port`."""
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    """Shown by nothing; here because the next primary has to log in as well."""
    durable: bool = False
    tag: str = ""
    """By what messages are known that were here; all links of a cluster have the same."""


@dataclass(slots=True)
class LinkDeleted(WithLaterFields):
    """That link is gone, and all its routes with it."""

    name: str


@dataclass(slots=True)
class RouteDeclared(WithLaterFields):
    """Messages go over a link from here on, in place of a route that has this name."""

    name: str
    uuid: str
    link: str
    kind: str
    """`queue`, `exchange` or `dynamic`: what the messages come from."""
    source: str
    """Of a route that pulls an address of the other end, else a queue or an exchange here."""
    destination: str
    """The other way round."""
    is_push: bool = False
    to_exchange: bool = False
    """Whether the destination of a route that pulls is an exchange here."""
    key: str = ""
    """The binding key of a route from an exchange."""
    arguments: dict[str, Any] = field(default_factory=dict)
    excludes: list[str] = field(default_factory=list)
    """Tags beside our own: what was where one of them says is not taken."""
    tag: str = ""
    """A tag that messages get beside those of both ends."""
    ack: int = 1
    """So many messages are settled together."""
    credit: int = 0
    """So many may be on their way; 0 leaves it to the broker."""
    durable: bool = False
    queue: str = ""
    """The queue here that a route from an exchange here takes its messages from."""


@dataclass(slots=True)
class RouteDeleted(WithLaterFields):
    """That route is gone."""

    name: str


@dataclass(slots=True)
class ReplicaSet(WithLaterFields):
    """This queue is a replica of a queue elsewhere from here on, and has come so far. Belongs to
    the feature `queue-replication`, as do the next two.
    """

    queue: int
    source: str
    """URL of the broker, or of the brokers of a cluster, where the source is."""
    uuid: str = ""
    """Of the queue that is the source; empty as long as none has answered. With the record that
    names it first, all that is on the replica leaves it.
    """
    lineage: str = ""
    """Of which history of the source's log the position is; see `replicas/source.py`."""
    position: int = 0
    """Up to here in that log the replica has what came to the source, and knows what left it."""
    whole: bool = False
    """Whether it ever had all of the source."""


@dataclass(slots=True)
class ReplicaEnded(WithLaterFields):
    """This queue is a queue like any other from here on. Messages up to `own_numbers` keep the
    numbers that they had at the source.
    """

    queue: int
    own_numbers: int = 0


@dataclass(slots=True)
class LifeStarted(WithLaterFields):
    """A broker alone was started, and appends from here on; `life` tells what it does now from what
    it may do after a crash with the same sequences.
    """

    life: str


@dataclass(slots=True)
class EpochStarted(WithLaterFields):
    """From here on `primary` (a system id) appends; the in-sync set carries over."""

    primary: str
    members: tuple[str, ...]


@dataclass(slots=True)
class InSyncChanged(WithLaterFields):
    """The in-sync set is `members` (system ids, the primary first) as `version` of this epoch."""

    version: int
    members: tuple[str, ...]


@dataclass(slots=True)
class FeatureEnabled(WithLaterFields):
    """Every configured member knows this feature (see `features.py`); from when this record is
    committed, what belongs to it may be written.
    """

    name: str


@dataclass(slots=True)
class Unknown:
    """A record of a kind that only a later version knows, and that may be left out of account:
    `fields` is all of it. A record of an unknown kind that is not marked so is refused.
    """

    fields: dict[str, Any]


Record = (
    ExchangeDeclared
    | ExchangeDeleted
    | QueueDeclared
    | LevelChanged
    | QueueDeleted
    | Bound
    | Unbound
    | Enqueued
    | Dequeued
    | Requeued
    | QueueUsed
    | DedupRemembered
    | PolicySet
    | PolicyCleared
    | LinkDeclared
    | LinkDeleted
    | RouteDeclared
    | RouteDeleted
    | ReplicaSet
    | ReplicaEnded
    | LifeStarted
    | EpochStarted
    | InSyncChanged
    | FeatureEnabled
    | Unknown
)

HA_RECORDS = (EpochStarted, InSyncChanged)
"""Records that concern the cluster rather than the broker model."""


@dataclass(slots=True)
class Batch:
    """The records `first` to `last` of one epoch, encoded: what one turn of a primary appended;
    kept and applied whole or not at all.

    `control` says that an HA record is among them, so that a backup reads it on arrival and not
    only when it applies; `durable` that something in it must survive a power cut, so that it counts
    only when it is synced to disk.
    """

    epoch: int
    first: int
    last: int
    control: bool
    parts: Parts
    """The bytes of the records. A large message is a part of its own, the same bytes as on its
    queue, so whoever stores or sends a batch does so part by part.
    """
    durable: bool = False

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return sum(map(len, self.parts))

    @property
    def data(self) -> bytes:
        """The records in one piece: a copy if there are several parts."""
        return b"".join(self.parts)
