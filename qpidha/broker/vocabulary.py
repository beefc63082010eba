"""Vocabulary: every name by which clients of other brokers ask for something, and what becomes of
it here.

Clients of RabbitMQ, Qpid, Artemis and JMS ask by names: arguments of queues, exchanges and
bindings, keys of policies, filters and capabilities of termini, properties of links. `TABLE` has
each of these names once. It is known, or an alias of a known one, or refused with the reason; none
is taken and not followed. `translation.py` looks names up, and docs/queues.md and docs/arguments.md
are made from them.

Must not know what an argument does: the parts of a queue check the values of known arguments, and
an alias is one only if it means the same there and here.
Source: Qpid `QueueSettings.cpp`, `broker/amqp/Filter.cpp`, `messaging/amqp/AddressHelper.cpp`;
RabbitMQ's guides to queues, policies and AMQP 1.0; Artemis' queue attributes; AMQP JMS mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from qpidha.broker.exchange import (
    CONSISTENT_HASH,
    HASH_HEADER,
    HASH_PROPERTY,
    HASHED_PROPERTIES,
    MATCH,
    MATCH_ALL,
    MATCH_ANY,
)
from qpidha.broker.federation import FED_TAGS
from qpidha.broker.queues.alerts import (
    ALERT_COUNT,
    ALERT_COUNT_DOWN,
    ALERT_GAP,
    ALERT_SIZE,
    ALERT_SIZE_DOWN,
    GAP,
)
from qpidha.broker.queues.dead_letters import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    DEAD_LETTER_EXCHANGE,
    DEAD_LETTER_KEY,
    DEAD_LETTER_ON_DELETE,
    DEAD_LETTER_STRATEGY,
)
from qpidha.broker.queues.dedup import DEDUP, DEDUP_WINDOW, WINDOW
from qpidha.broker.queues.defaults import NO_GROUP
from qpidha.broker.queues.delivery_limit import ALL as ALL_COUNT
from qpidha.broker.queues.delivery_limit import (
    DEFAULT_LIMIT,
    DELIVERY_LIMIT,
    DELIVERY_LIMIT_ACTION,
    DIES,
    DROP,
    ELSEWHERE,
    LOSS_COUNTS,
    OLDEST,
    QUARANTINE,
    UNDELIVERABLE_HERE,
)
from qpidha.broker.queues.dispatch import BROWSE_ONLY, FENCING, MAX_CONSUMERS, SINGLE_ACTIVE
from qpidha.broker.queues.groups import DEFAULT_GROUP, GROUP_ID, GROUP_KEY, SHARED_GROUP
from qpidha.broker.queues.intake import FILTER, NO_LOCAL, SQL_FILTER
from qpidha.broker.queues.last_value import LAST_VALUE_KEY, LEGACY_KEY, SEQUENCE_KEY
from qpidha.broker.queues.lifetime import AUTO_DELETE_TIMEOUT, LIFETIME_POLICY, POLICIES
from qpidha.broker.queues.limits import (
    FLOW_RESUME_COUNT,
    FLOW_RESUME_SIZE,
    FLOW_STOP_COUNT,
    FLOW_STOP_SIZE,
    LOW_WATER,
    MAX_COUNT,
    MAX_SIZE,
    MEMORY,
    OVERFLOWS,
    POLICY_TYPE,
    REJECT,
    REJECT_DEAD_LETTER,
    RING,
    RING_STRICT,
)
from qpidha.broker.queues.periods import (
    CONSUMER_TIMEOUT,
    EXPIRES,
    LONGEST,
    MESSAGE_TTL,
    RETRIES,
    RETRY_MAX,
    RETRY_MIN,
    RETRY_TYPE,
)
from qpidha.broker.queues.priority import (
    FAIR,
    FAIRSHARE,
    MAX_PRIORITY,
    MOST_LEVELS,
    PRIORITIES,
    PRIORITY_MODE,
    PRIORITY_WEIGHT,
    STRICT,
    WEIGHT,
)
from qpidha.model.features import QUEUE_KINDS
from qpidha.model.message_view import DELIVERY_DELAY
from qpidha.model.replication_level import ALL, HA_UUID, LEVELS, REPLICATE

INSTRUCTIONS = ("qpid.", "qpidha.", "qpidha:", "x-", "ha-", "rabbitmq:")
"""Beginnings of names that are instructions to a broker, never an application's data."""


class Kind(StrEnum):
    """A place where a client can ask for something."""

    QUEUE = "queue argument"
    EXCHANGE = "exchange argument"
    BINDING = "binding argument"
    POLICY = "policy key"
    FILTER = "filter"
    SOURCE = "source capability"
    TARGET = "target capability"
    LINK = "link property"


class Fate(StrEnum):
    """What becomes of a name."""

    KNOWN = "known"  # it is followed
    ALIAS = "alias of"  # it is followed as a known one
    REFUSED = "refused because"


class ByPolicy(StrEnum):
    """Whether a policy can set an argument of a queue or an exchange, and what counts where others
    say something else.
    """

    NEVER = "never"
    FIRST = "first"  # what the operator's policy says, else the argument, else the policy
    SMALLEST = "smallest"  # the smallest number, whoever says it


@dataclass(frozen=True, slots=True)
class Entry:
    """One name."""

    kind: Kind
    name: str
    origin: str
    """The broker or standard whose clients use it."""
    fate: Fate
    text: str
    """What it does; of a refused one, why it is refused."""
    alias_of: str = ""
    values: str = ""
    """What is allowed."""
    default: str = ""
    """Of a known argument of queues: what counts if it is left out."""
    hint: str = ""
    """What to do instead of a refused one."""
    example: Any = None
    """A value that is allowed; of a refused one, a value that clients give."""
    read: Callable[[Any], Any] | None = None
    """From a value to that of the known name, None if it asks for nothing; ValueError if it is not
    allowed. Of an alias, and of an option of the declaration.
    """
    why: str = ""
    """Of one with `read`, why other brokers' values are not allowed."""
    implies: tuple[tuple[str, Any], ...] = ()
    """Known arguments that come with it, unless they are given."""
    implied_by: tuple[Any, ...] = ()
    """The values with which they come; empty for all."""
    harmless: tuple[Any, ...] = ()
    """Values of a refused one that ask for nothing."""
    code: int = 0
    """The numeric descriptor of a filter."""
    feature: str = ""
    """Which feature all brokers of a cluster must have for a known argument to be recorded."""
    by_policy: ByPolicy = ByPolicy.NEVER
    """Of a known argument of queues or exchanges: whether it is a key of policies, with its
    aliases.
    """
    unlimited: int | None = 0
    """Where the smallest counts: the number that is no limit; None if there is none."""
    base_values: tuple[Any, ...] = ()
    """Values of it for which they need not have the feature."""


def _known(kind: Kind, name: str, origin: str, text: str, **more: Any) -> Entry:
    return Entry(kind, name, origin, Fate.KNOWN, text, **more)


def _alias(kind: Kind, name: str, origin: str, alias_of: str, text: str, **more: Any) -> Entry:
    return Entry(kind, name, origin, Fate.ALIAS, text, alias_of=alias_of, **more)


def _each_alias(origin: str, text: str, names: Mapping[str, str], **more: Any) -> Iterator[Entry]:
    """Yield other names of arguments of queues, each with the known one."""
    for name, known in names.items():
        yield _alias(Kind.QUEUE, name, origin, known, text, **more)


def _refused(kind: Kind, name: str, origin: str, reason: str, **more: Any) -> Entry:
    more.setdefault("example", 1)
    return Entry(kind, name, origin, Fate.REFUSED, reason, **more)


def _each_refused(
    kind: Kind, origin: str, reason: str, examples: Mapping[str, Any], **more: Any
) -> Iterator[Entry]:
    """Yield names that are refused for one reason, each with a value that clients give."""
    for name, example in examples.items():
        yield _refused(kind, name, origin, reason, example=example, **more)


# -- values ---------------------------------------------------------------------------------------


def _flag(value: Any) -> bool:
    """Read true or false; Qpid's C++ client writes them as text."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError
    return value


def _same(value: Any) -> Any:
    """Leave a value to the part of the queue that follows it."""
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return str(value)


def _true(value: Any) -> bool:
    """Read true, which Qpid's clients write as 1 or as text too."""
    if str(value).lower() not in ("true", "1"):
        raise ValueError
    return True


def _positive(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 18:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**63:
        raise ValueError
    return int(value)


def _hashed_property(value: Any) -> str:
    if not isinstance(value, str) or value not in HASHED_PROPERTIES:
        raise ValueError
    return str(value)


def _whole(value: Any) -> int:
    return 0 if value in (0, "0") and not isinstance(value, bool) else _positive(value)


def _most(value: Any) -> int | None:
    """Read a limit of which -1 is none."""
    return None if value in (-1, "-1") else _positive(value)


def _legacy_last_value(value: Any) -> str | None:
    return LEGACY_KEY if _flag(bool(value) if value in (0, 1) else value) else None


def _one_of(**values: Any) -> Callable[[Any], Any]:
    """Read one of a few words; hyphens stand as underscores here."""
    table = {name.replace("_", "-"): value for name, value in values.items()}

    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in table:
            raise ValueError
        return table[value]

    return read


def _overflow(value: Any) -> Any:
    """Read what a full queue does; Qpid's tools write some with underscores. Other values are told
    of by the queue.
    """
    if isinstance(value, str) and value.replace("_", "-") in OVERFLOWS:
        return value.replace("_", "-")
    return value


# -- the table ------------------------------------------------------------------------------------

DURABLE, EXCLUSIVE, AUTO_DELETE = "durable", "exclusive", "auto-delete"
ALTERNATE = "alternate-exchange"
EXCHANGE_TYPE = "exchange-type"
OVERFLOW, REJECT_PUBLISH = "x-overflow", "reject-publish"
QUEUE_TYPE = "x-queue-type"
QUORUM, CLASSIC = "quorum", "classic"
SELECTOR = "apache.org:selector-filter:string"
AMQP_SQL_FILTER = "amqp:sql-filter"
VOLATILE = "rabbitmq:volatile-queue"
NO_LOCAL_FILTER = "apache.org:no-local-filter:list"
PROPERTIES_FILTER = "amqp:properties-filter"
APPLICATION_PROPERTIES_FILTER = "amqp:application-properties-filter"
TOPIC_BINDING = "apache.org:legacy-amqp-topic-binding:string"
DIRECT_BINDING = "apache.org:legacy-amqp-direct-binding:string"
HEADERS_BINDING = "apache.org:legacy-amqp-headers-binding:map"
CREATE, SHARED = "create-on-demand", "shared"
AMQP, QPID, RABBITMQ, ARTEMIS, JMS = "AMQP", "Qpid", "RabbitMQ", "Artemis", "JMS"
OWN, AZURE = "qpidha", "Azure"

FENCING_LINK = "qpidha:fencing-token"
LINK_TIMEOUT = "rabbitmq:consumer-timeout"
EXCLUSIVE_LINK = "qpidha:exclusive"
CONSUMER_PRIORITIES = ("rabbitmq:priority", "priority", "x-priority", "qpidha:priority")
"""Names of the priority of a consumer."""

_RATIO = "default-event-threshold-ratio of the limit; never"
_ALERT = "a whole number; 0 is never"
_ALERT_DOWN = "a whole number, less than that"
_FLAG = {"values": "true or false", "default": "false", "read": _flag, "example": True}
_EXCHANGE_NAME = {
    "values": "the name of an exchange",
    "default": "none",
    "read": _name,
    "example": "amq.fanout",
}
_OPTION = "The option of a declaration, given as an argument."
_OFF = (False, "false", "False")
_OTHER_NAME = "it is not RabbitMQ's name"
_USE_DEAD_LETTERS = f"{DEAD_LETTER_EXCHANGE}=/queues/NAME takes messages that die, for all reasons"
_ONE_LOG = "a queue is on all brokers of a cluster or on one: they share one log"
_ONE_PRIMARY = "the primary serves all queues, and every broker has them"
_NO_STREAMS = "streams are not offered"
_NO_BUCKETS = "a group is not put into a bucket: each gets a consumer by itself"
_OTHER_LAST_VALUES = "messages without the key replace each other here; in Artemis they do not"
_NO_PAGING = "a queue keeps a number of bytes in memory, and the rest on disk"
_NO_DELAY = "messages are delivered as soon as they arrive"
LEAVE_OUT = "leave it out"
_ROUTE = "make a route: qpid-ha route add NAME, or qpid-route"
_SAY_MEMORY = f"say by {MEMORY} how many bytes of a queue are in memory"

_QUEUES = (
    _known(
        Kind.QUEUE,
        MAX_COUNT,
        QPID,
        "Most messages on the queue, including those that consumers have.",
        values="a whole number; 0 is no limit",
        default="no limit",
        example=5,
        by_policy=ByPolicy.SMALLEST,
    ),
    _known(
        Kind.QUEUE,
        MAX_SIZE,
        QPID,
        "Most bytes on the queue, in whole messages.",
        values="a whole number; 0 is no limit",
        default="default-queue-limit",
        example=1000,
        by_policy=ByPolicy.SMALLEST,
    ),
    _known(
        Kind.QUEUE,
        POLICY_TYPE,
        QPID,
        "What a full queue does: it refuses the newcomer, or pushes out its oldest message "
        f"({RING}; {RING_STRICT} only if no consumer has it), or refuses the newcomer and makes a "
        "dead letter of it, or is deleted.",
        values=", ".join(OVERFLOWS),
        default=REJECT,
        read=_overflow,
        example=RING,
        feature=QUEUE_KINDS,
        base_values=(REJECT, RING),
        by_policy=ByPolicy.FIRST,
    ),
    _known(
        Kind.QUEUE,
        LOW_WATER,
        OWN,
        "A full queue takes messages again when it is down to so much of its limits.",
        values=f"hundredths, 1 to 100; not with {RING}",
        default="100",
        example=80,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.FIRST,
    ),
    _known(
        Kind.QUEUE,
        MEMORY,
        OWN,
        "Bytes of message bodies of this queue that are kept in memory; others are read back from "
        "the disk, if there is a data-dir.",
        values="a whole number; 0 is no limit",
        default="queue-memory",
        example=1000000,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.SMALLEST,
    ),
    _alias(
        Kind.QUEUE,
        "x-max-in-memory-bytes",
        RABBITMQ,
        MEMORY,
        "The same.",
        values="a whole number; 0 is no limit",
        read=_same,
        example=1000000,
    ),
    _known(
        Kind.QUEUE,
        FLOW_STOP_COUNT,
        QPID,
        "With more messages than this on the queue its senders get no credit.",
        values=f"a whole number, at most {MAX_COUNT}; 0 is never",
        default=f"default-flow-stop-threshold of {MAX_COUNT}, 80 %",
        example=4,
        by_policy=ByPolicy.SMALLEST,
    ),
    _known(
        Kind.QUEUE,
        FLOW_STOP_SIZE,
        QPID,
        "With more bytes than this on the queue its senders get no credit.",
        values=f"a whole number, at most {MAX_SIZE}; 0 is never",
        default=f"default-flow-stop-threshold of {MAX_SIZE}, 80 %",
        example=800,
        by_policy=ByPolicy.SMALLEST,
    ),
    _known(
        Kind.QUEUE,
        FLOW_RESUME_COUNT,
        QPID,
        "With no more messages than this, senders that were stopped get credit again.",
        values=f"a whole number, at most {FLOW_STOP_COUNT}",
        default=f"default-flow-resume-threshold of {MAX_COUNT}, 70 %",
        example=3,
        by_policy=ByPolicy.SMALLEST,
    ),
    _known(
        Kind.QUEUE,
        FLOW_RESUME_SIZE,
        QPID,
        "With no more bytes than this, senders that were stopped get credit again.",
        values=f"a whole number, at most {FLOW_STOP_SIZE}",
        default=f"default-flow-resume-threshold of {MAX_SIZE}, 70 %",
        example=700,
        by_policy=ByPolicy.SMALLEST,
    ),
    _known(
        Kind.QUEUE,
        AUTO_DELETE_TIMEOUT,
        QPID,
        "Delete the queue when it was left for so long.",
        values="seconds from 0",
        default="0, at once",
        example=5,
    ),
    _known(
        Kind.QUEUE,
        LIFETIME_POLICY,
        QPID,
        "What ends the queue.",
        values=", ".join(POLICIES),
        default="manual, or what auto-delete says",
        example="delete-if-unused",
    ),
    _known(
        Kind.QUEUE,
        DEDUP,
        OWN,
        "Take no message twice: what duplicates are known by.",
        values="message-id, or the name of a message annotation, which begins with x-",
        default="messages are taken twice",
        example="message-id",
        by_policy=ByPolicy.FIRST,
    ),
    _known(
        Kind.QUEUE,
        DEDUP_WINDOW,
        OWN,
        f"How many messages are remembered; with {DEDUP}.",
        values="1 to 1000000",
        default=str(WINDOW),
        example=100,
        by_policy=ByPolicy.FIRST,
    ),
    *(
        _known(
            Kind.QUEUE,
            name,
            origin,
            f"The queue takes the messages that a selector {language} selects, and no others: they "
            "are accepted and go nowhere.",
            values="a selector, see docs/selectors.md",
            default="all messages",
            example="a = 1",
            feature=QUEUE_KINDS,
        )
        for name, origin, language in (
            (FILTER, QPID, "of JMS"),
            (SQL_FILTER, OWN, "in the language of `amqp:sql-filter`"),
        )
    ),
    _known(
        Kind.QUEUE,
        NO_LOCAL,
        OWN,
        "The queue does not take what connections of this container send to exchanges: it is "
        "accepted and goes nowhere.",
        values="a container-id",
        default="all messages",
        example="client",
        feature=QUEUE_KINDS,
    ),
    _alias(
        Kind.QUEUE,
        "lifetime-policy",
        AMQP,
        LIFETIME_POLICY,
        "The node property of AMQP, where it may be a described type as well.",
        values=", ".join(POLICIES),
        read=_name,
        example="delete-if-unused",
    ),
    _alias(
        Kind.QUEUE,
        "x-max-length",
        RABBITMQ,
        MAX_COUNT,
        "Most messages; messages that consumers have count too. The oldest is pushed out unless "
        "x-overflow says otherwise.",
        values="a whole number from 1",
        read=_positive,
        example=5,
        implies=((POLICY_TYPE, RING),),
    ),
    _alias(
        Kind.QUEUE,
        "x-max-length-bytes",
        RABBITMQ,
        MAX_SIZE,
        "Most bytes, in whole messages. The oldest is pushed out unless x-overflow says otherwise.",
        values="a whole number from 1",
        read=_positive,
        example=1000,
        implies=((POLICY_TYPE, RING),),
    ),
    _alias(
        Kind.QUEUE,
        OVERFLOW,
        RABBITMQ,
        POLICY_TYPE,
        f"drop-head is {RING}, {REJECT_PUBLISH} is {REJECT}, of which senders hear without having "
        f"waited for credit; with {REJECT_DEAD_LETTER} what is refused becomes a dead letter as "
        "well.",
        values="drop-head, reject-publish or reject-publish-dlx",
        read=_one_of(drop_head=RING, reject_publish=REJECT, reject_publish_dlx=REJECT_DEAD_LETTER),
        # RabbitMQ's clients wait for an outcome and not for credit.
        implies=((FLOW_STOP_COUNT, 0), (FLOW_STOP_SIZE, 0)),
        implied_by=(REJECT_PUBLISH,),
        example=REJECT_PUBLISH,
    ),
    _alias(
        Kind.QUEUE,
        QUEUE_TYPE,
        RABBITMQ,
        REPLICATE,
        f"{QUORUM} is a durable queue, not exclusive, on every broker: {REPLICATE}={ALL}, with "
        f"{DELIVERY_LIMIT}={DEFAULT_LIMIT} if it names none. {CLASSIC} is any queue.",
        values=f"{QUORUM} or {CLASSIC}",
        read=_one_of(quorum=ALL, classic=None),
        why="of RabbitMQ's other types, streams, there are none",
        example=QUORUM,
    ),
    _alias(
        Kind.QUEUE,
        "x-ha-policy",
        RABBITMQ,
        REPLICATE,
        f"all is {REPLICATE}={ALL}; there is no choice of brokers.",
        values="all",
        read=_one_of(all=ALL),
        why=_ONE_LOG,
        example="all",
    ),
    _refused(
        Kind.QUEUE,
        "x-ha-policy-params",
        RABBITMQ,
        _ONE_PRIMARY,
        example=["b1"],
        hint=f"{REPLICATE}={ALL} puts a queue on every broker",
    ),
    _known(
        Kind.QUEUE,
        MESSAGE_TTL,
        RABBITMQ,
        "How long the queue keeps each message, if the message itself asks for no less.",
        values=f"milliseconds, 0 to {LONGEST}",
        default="for ever",
        example=60000,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.SMALLEST,
        unlimited=None,
    ),
    _known(
        Kind.QUEUE,
        EXPIRES,
        RABBITMQ,
        "Delete the queue when it had no consumer for so long, since it was declared at first.",
        values=f"milliseconds, 1 to {LONGEST}",
        default="never",
        example=60000,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.SMALLEST,
        unlimited=None,
    ),
    _known(
        Kind.QUEUE,
        DEAD_LETTER_EXCHANGE,
        RABBITMQ,
        "Where messages go that are rejected, expire, have to make room, or were delivered too "
        "often.",
        values="the name of an exchange (the empty name is the default exchange), /queues/NAME, "
        "/exchanges/NAME or /exchanges/NAME/KEY",
        default="nowhere",
        example="dlx",
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.FIRST,
    ),
    _known(
        Kind.QUEUE,
        DEAD_LETTER_KEY,
        RABBITMQ,
        "The key with which they go there.",
        values=f"text; with {DEAD_LETTER_EXCHANGE}",
        default="each with its own",
        example="dead",
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.FIRST,
    ),
    _known(
        Kind.QUEUE,
        DEAD_LETTER_STRATEGY,
        RABBITMQ,
        "What becomes of one that has no place there: it stays on its queue until it has, "
        "or it is dropped.",
        values=f"{AT_LEAST_ONCE} or {AT_MOST_ONCE}",
        default=AT_LEAST_ONCE,
        example=AT_MOST_ONCE,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.FIRST,
    ),
    _known(
        Kind.QUEUE,
        DEAD_LETTER_ON_DELETE,
        OWN,
        "Whether what is on the queue when it is deleted goes there too.",
        **_FLAG,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.FIRST,
    ),
    _known(
        Kind.QUEUE,
        RETRY_TYPE,
        RABBITMQ,
        "Which messages wait before they are delivered again: those of failed deliveries, those "
        "that were given back otherwise, or all.",
        values=", ".join(RETRIES),
        default="disabled",
        example="disabled",
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.FIRST,
    ),
    _known(
        Kind.QUEUE,
        RETRY_MIN,
        RABBITMQ,
        "How long they wait after one failed delivery, after two twice as long, and so on.",
        values=f"milliseconds, 1 to {LONGEST}",
        default="none wait",
        example=1000,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.FIRST,
    ),
    _known(
        Kind.QUEUE,
        RETRY_MAX,
        RABBITMQ,
        "How long they wait at most.",
        values=f"milliseconds, {RETRY_MIN} to {LONGEST}",
        default=str(LONGEST),
        example=2500,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.FIRST,
    ),
    _known(
        Kind.QUEUE,
        DELIVERY_LIMIT,
        RABBITMQ,
        "How many deliveries of a message may fail; with one more it becomes a dead letter, or is "
        "put aside.",
        values="a whole number, -1 is no limit",
        default=f"no limit; {DEFAULT_LIMIT} with {QUEUE_TYPE}={QUORUM}",
        example=5,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.SMALLEST,
        unlimited=-1,
    ),
    _alias(
        Kind.QUEUE,
        "x-deliver-limit",
        RABBITMQ,
        DELIVERY_LIMIT,
        "So RabbitMQ's client for Python writes it (1.0.1, deliver_limit).",
        values="a whole number, -1 is no limit",
        read=_same,
        example=5,
    ),
    _known(
        Kind.QUEUE,
        DELIVERY_LIMIT_ACTION,
        OWN,
        "What becomes of such a message without dead letters: it is put aside on the queue "
        "NAME.undeliverable, or dropped.",
        values=f"{QUARANTINE} or {DROP}; with {DELIVERY_LIMIT}",
        default=QUARANTINE,
        example=DROP,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.FIRST,
    ),
    _known(
        Kind.QUEUE,
        LOSS_COUNTS,
        OWN,
        "Which deliveries count as failed of those that a consumer had when its link, session or "
        "connection was lost.",
        values=f"{ALL_COUNT} or {OLDEST}",
        default=ALL_COUNT,
        example=OLDEST,
        feature=QUEUE_KINDS,
    ),
    _known(
        Kind.QUEUE,
        UNDELIVERABLE_HERE,
        OWN,
        "What becomes of a message that a consumer calls undeliverable here (modified): other "
        "consumers get it, or it becomes a dead letter, as in RabbitMQ.",
        values=f"{ELSEWHERE} or {DIES}",
        default=ELSEWHERE,
        example=DIES,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.FIRST,
    ),
    _alias(
        Kind.QUEUE,
        "x-loss-counts",
        OWN,
        LOSS_COUNTS,
        "The same.",
        values=f"{ALL_COUNT} or {OLDEST}",
        read=_name,
        example=OLDEST,
    ),
    _known(
        Kind.QUEUE,
        FENCING,
        OWN,
        "Each delivery has a fencing token, for receivers that attach from now on.",
        **_FLAG,
        feature=QUEUE_KINDS,
    ),
    _known(
        Kind.QUEUE,
        SINGLE_ACTIVE,
        RABBITMQ,
        "One consumer at a time gets messages: the first that came, then the next; one of a higher "
        "priority takes its place.",
        **_FLAG,
        feature=QUEUE_KINDS,
    ),
    *_each_refused(
        Kind.QUEUE,
        RABBITMQ,
        _ONE_PRIMARY,
        {
            "x-quorum-initial-group-size": 3,
            "x-quorum-target-group-size": 3,
            "x-queue-leader-locator": "balanced",
            "x-queue-master-locator": "min-masters",
            "cluster_target_size": 3,
        },
        hint=LEAVE_OUT,
    ),
    _known(
        Kind.QUEUE,
        CONSUMER_TIMEOUT,
        RABBITMQ,
        "A message that a consumer keeps for longer is released; 0 is for ever.",
        values=f"milliseconds, 0 to {LONGEST}",
        default="consumer-timeout",
        example=60000,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.FIRST,
    ),
    _refused(
        Kind.QUEUE,
        "x-max-in-memory-length",
        RABBITMQ,
        _NO_PAGING,
        hint=_SAY_MEMORY,
        example=100,
        harmless=(0,),
    ),
    _refused(
        Kind.QUEUE,
        "x-queue-mode",
        RABBITMQ,
        _NO_PAGING,
        hint=_SAY_MEMORY,
        example="lazy",
        harmless=("default",),
    ),
    _refused(
        Kind.QUEUE,
        "x-queue-version",
        RABBITMQ,
        "queues have one version",
        hint=LEAVE_OUT,
        example=2,
    ),
    *_each_refused(
        Kind.QUEUE,
        RABBITMQ,
        _NO_STREAMS,
        {
            "x-max-age": "1D",
            "x-stream-max-segment-size-bytes": 1000,
            "x-stream-filter-size-bytes": 16,
            "x-initial-cluster-size": 3,
        },
        hint=LEAVE_OUT,
    ),
    _known(
        Kind.QUEUE,
        GROUP_KEY,
        QPID,
        "A group of messages is with one consumer until that has settled all it has of it. The "
        f"application property that names the group, or {GROUP_ID} for the group-id.",
        values="text",
        default="no groups",
        example="group",
        feature=QUEUE_KINDS,
    ),
    _known(
        Kind.QUEUE,
        DEFAULT_GROUP,
        QPID,
        f"The group of messages that name none; with {GROUP_KEY}. Empty: each goes to any "
        "consumer.",
        values="text",
        default=f"default-message-group, {NO_GROUP}; empty with {GROUP_ID}",
        example="none",
        feature=QUEUE_KINDS,
    ),
    _known(
        Kind.QUEUE,
        SHARED_GROUP,
        QPID,
        f"All groups are of this kind; with {GROUP_KEY}.",
        values="true or 1",
        default="true",
        read=_true,
        example=True,
        feature=QUEUE_KINDS,
    ),
    _refused(
        Kind.QUEUE,
        "qpid.group_timestamp",
        QPID,
        "brokers do not keep the time of arrival",
        hint="let senders set the creation-time",
        harmless=(*_OFF, 0),
    ),
    *(
        _known(
            Kind.QUEUE,
            name,
            QPID,
            text,
            values=values,
            default=default,
            example=100,
            feature=QUEUE_KINDS,
            by_policy=ByPolicy.FIRST,
        )
        for name, text, values, default in (
            (ALERT_COUNT, "With so many messages on the queue an alert is told.", _ALERT, _RATIO),
            (ALERT_COUNT_DOWN, "With no more messages it is over.", _ALERT_DOWN, "half of that"),
            (ALERT_SIZE, "With so many bytes on the queue an alert is told.", _ALERT, _RATIO),
            (ALERT_SIZE_DOWN, "With no more bytes it is over.", _ALERT_DOWN, "half of that"),
            (ALERT_GAP, "For how long after an alert no other is told.", "seconds", str(GAP)),
        )
    ),
    *_each_alias(
        QPID,
        "The same.",
        {
            "qpid.alert_count_up": ALERT_COUNT,
            "qpid.alert_size_up": ALERT_SIZE,
            "x-qpid-maximum-message-count": ALERT_COUNT,
            "x-qpid-maximum-message-size": ALERT_SIZE,
            "x-qpid-minimum-alert-repeat-gap": ALERT_GAP,
        },
        values="a whole number",
        read=_same,
        example=100,
    ),
    _known(
        Kind.QUEUE,
        BROWSE_ONLY,
        QPID,
        "Receivers are shown messages, and take none.",
        **_FLAG,
        feature=QUEUE_KINDS,
    ),
    _known(
        Kind.QUEUE,
        MAX_CONSUMERS,
        ARTEMIS,
        "Most receivers that may be attached.",
        values="a whole number from 1; -1 is no limit",
        default="no limit",
        read=_most,
        example=1,
        feature=QUEUE_KINDS,
    ),
    *_each_refused(
        Kind.QUEUE,
        QPID,
        "a queue does not know which connections belong to its receiver",
        {"no-local": True, "qpid.no-local": True},
        hint=f"name the container with {NO_LOCAL}, or receive from an exchange with the filter "
        f"{NO_LOCAL_FILTER}",
        harmless=_OFF,
    ),
    *_each_refused(
        Kind.QUEUE,
        QPID,
        "links mark messages by themselves, and a route names the marks that it excludes",
        {"qpid.trace.id": "mark", "qpid.trace.exclude": "mark"},
        hint=LEAVE_OUT,
    ),
    _refused(
        Kind.QUEUE, "qpid.paging", QPID, _NO_PAGING, hint=_SAY_MEMORY, example=True, harmless=_OFF
    ),
    *_each_refused(
        Kind.QUEUE,
        QPID,
        _NO_PAGING,
        {"qpid.max_pages_loaded": 4, "qpid.page_factor": 4},
        hint=_SAY_MEMORY,
    ),
    *_each_refused(
        Kind.QUEUE,
        QPID,
        "there is one log for all queues",
        {
            "qpid.file_count": 8,
            "qpid.file_size": 8,
            "qpid.efp_partition_num": 8,
            "qpid.efp_pool_file_size": 8,
            "qpid.wcache-page-size": 8,
            "qpid.wcache-num-pages": 8,
        },
        hint=LEAVE_OUT,
    ),
    *_each_refused(
        Kind.QUEUE,
        QPID,
        "the cluster replicates its log, not single queues",
        {"qpid.ha-repsub": "x", "qpid.queue_event_generation": "x", "qpid.persist_last_node": "x"},
        hint=f"use {REPLICATE}",
    ),
    *(
        _refused(Kind.QUEUE, name, ARTEMIS, reason, hint=hint, example=example)
        for name, example, reason, hint in (
            ("ring-size", 5, "it is not Qpid's name", f"{MAX_COUNT} and {POLICY_TYPE}={RING}"),
            ("last-value-key", "key", _OTHER_LAST_VALUES, f"{LAST_VALUE_KEY} names the key"),
            ("group-buckets", 4, _NO_BUCKETS, LEAVE_OUT),
            ("group-first-key", "first", "the first message of a group is not marked", LEAVE_OUT),
            ("consumers-before-dispatch", 2, _NO_DELAY, LEAVE_OUT),
            ("delay-before-dispatch", 100, _NO_DELAY, LEAVE_OUT),
            ("auto-delete-delay", 1000, "it is not Qpid's name", f"{AUTO_DELETE_TIMEOUT}=SECONDS"),
            (
                "auto-delete-message-count",
                0,
                "it is not AMQP's name",
                f"{LIFETIME_POLICY}=delete-if-unused-and-empty",
            ),
            ("max-delivery-attempts", 10, _OTHER_NAME, f"{DELIVERY_LIMIT}, one less"),
            ("redelivery-delay", 1000, "it is not RabbitMQ's name", f"{RETRY_TYPE}, {RETRY_MIN}"),
            ("dead-letter-address", "dead", _OTHER_NAME, _USE_DEAD_LETTERS),
            ("expiry-address", "expired", _OTHER_NAME, _USE_DEAD_LETTERS),
            ("routing-type", "ANYCAST", "queues have no routing type", LEAVE_OUT),
        )
    ),
    *(
        _refused(Kind.QUEUE, name, ARTEMIS, reason, hint=LEAVE_OUT, example=True, harmless=_OFF)
        for name, reason in (
            ("last-value", _OTHER_LAST_VALUES),
            ("non-destructive", "each receiver chooses whether it browses"),
            ("purge-on-no-consumers", "messages stay when consumers leave"),
            ("group-rebalance", "a group may change its consumer when all of it is settled"),
        )
    ),
)

_ORDERS = (
    _known(
        Kind.QUEUE,
        LAST_VALUE_KEY,
        QPID,
        "A message takes the place of the one with the same value of this application property.",
        values="the name of the property",
        default="all messages stay",
        example="key",
        feature=QUEUE_KINDS,
    ),
    _alias(
        Kind.QUEUE,
        "x-last-value-key",
        OWN,
        LAST_VALUE_KEY,
        "The same.",
        values="the name of the property",
        read=_name,
        example="key",
    ),
    *_each_alias(
        QPID,
        f"The older name: the key is {LEGACY_KEY}. Browsers see new values with both.",
        dict.fromkeys(("qpid.last_value_queue", "qpid.last_value_queue_no_browse"), LAST_VALUE_KEY),
        values="true or false, 1 or 0",
        read=_legacy_last_value,
        example=1,
    ),
    _refused(
        Kind.QUEUE,
        LEGACY_KEY,
        QPID,
        "it is a property of messages, and no argument of a queue",
        hint=f"{LAST_VALUE_KEY}={LEGACY_KEY} declares the queue",
        example="key",
    ),
    _known(
        Kind.QUEUE,
        SEQUENCE_KEY,
        QPID,
        "Each message has its number in this message annotation: it rises, with gaps, and stays "
        "through failovers.",
        values="the name of the annotation",
        default="none",
        example="x-opt-number",
        feature=QUEUE_KINDS,
    ),
    _known(
        Kind.QUEUE,
        PRIORITIES,
        QPID,
        "How many levels of priority there are; messages of a higher one come first. Fewer than 10 "
        "levels are around 5.",
        values=f"0 to {MOST_LEVELS}; 0 is none",
        default="none",
        example=10,
        feature=QUEUE_KINDS,
    ),
    _known(
        Kind.QUEUE,
        FAIRSHARE,
        QPID,
        f"How many messages each level gives before a lower one has its turn; with {PRIORITIES}.",
        values="a whole number; 0 is all of them",
        default="all of them",
        example=5,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.FIRST,
    ),
    _known(
        Kind.QUEUE,
        f"{FAIRSHARE}-N",
        QPID,
        f"The same for level N; other levels have {FAIRSHARE}.",
        values="a whole number; 0 is all of them",
        default=FAIRSHARE,
        example=5,
        feature=QUEUE_KINDS,
        by_policy=ByPolicy.FIRST,
    ),
    *_each_alias(
        QPID,
        "The older name.",
        {
            "x-qpid-priorities": PRIORITIES,
            "x-qpid-fairshare": FAIRSHARE,
            "x-qpid-fairshare-N": f"{FAIRSHARE}-N",
        },
        values="a whole number",
        read=_whole,
        example=3,
    ),
    _known(
        Kind.QUEUE,
        MAX_PRIORITY,
        RABBITMQ,
        "The highest priority: messages of a higher one come first. One above it counts as it, "
        "and a message without a priority has 4, as AMQP says, where RabbitMQ takes 0.",
        values=f"1 to {MOST_LEVELS - 1}",
        default="none",
        example=10,
        feature=QUEUE_KINDS,
    ),
    _known(
        Kind.QUEUE,
        PRIORITY_MODE,
        OWN,
        f"{STRICT}: a higher level goes before all lower ones. {FAIR}: each level but the lowest "
        f"gives {PRIORITY_WEIGHT} messages before a lower one gives, the lowest gives 1, as in "
        f"RabbitMQ 4.0. Without {PRIORITIES} there are 32 levels, or 2: up to 4, and more.",
        values=f"{FAIR} or {STRICT}",
        default="strict, where there are levels",
        example=FAIR,
        feature=QUEUE_KINDS,
    ),
    _known(
        Kind.QUEUE,
        PRIORITY_WEIGHT,
        OWN,
        f"How many messages of a level come for one of the lowest, with {PRIORITY_MODE}={FAIR}.",
        values="a whole number from 1",
        default=str(WEIGHT),
        example=3,
        feature=QUEUE_KINDS,
    ),
)

_SEVERAL = (
    *(
        _known(
            kind,
            REPLICATE,
            QPID,
            "What other brokers get: nothing, the object, or its messages too.",
            values=", ".join(LEVELS),
            default="ha-replicate",
            example="none",
            by_policy=ByPolicy.FIRST if kind is Kind.QUEUE else ByPolicy.NEVER,
        )
        for kind in (Kind.QUEUE, Kind.EXCHANGE, Kind.BINDING)
    ),
    *(
        _known(
            kind,
            HA_UUID,
            QPID,
            "Set by the primary; what a client gives is replaced.",
            values="any text",
            default="one of the primary's",
            example="x",
        )
        for kind in (Kind.QUEUE, Kind.EXCHANGE)
    ),
    *(
        _known(kind, name, AMQP, _OPTION, **_FLAG)
        for kind in (Kind.QUEUE, Kind.EXCHANGE)
        for name in (DURABLE, AUTO_DELETE)
    ),
    _known(Kind.QUEUE, EXCLUSIVE, AMQP, _OPTION, **_FLAG),
    _known(Kind.QUEUE, ALTERNATE, QPID, _OPTION, **_EXCHANGE_NAME),
    _known(
        Kind.EXCHANGE,
        ALTERNATE,
        QPID,
        f"{_OPTION} A key of policies too.",
        by_policy=ByPolicy.FIRST,
        **_EXCHANGE_NAME,
    ),
    *(
        _alias(kind, name, RABBITMQ, AUTO_DELETE, _OPTION, **_FLAG)
        for kind in (Kind.QUEUE, Kind.EXCHANGE)
        for name in ("auto_delete", "autoDelete")
    ),
)

_EXCHANGES = (
    *(
        _refused(
            Kind.EXCHANGE,
            name,
            origin,
            "an exchange ends with the link that made it, if it is dynamic, with its last binding, "
            "if it is auto-delete, or never",
            hint=f"use {AUTO_DELETE}",
            example="delete-if-unused",
            harmless=("manual",),
        )
        for name, origin in (("lifetime-policy", AMQP), (LIFETIME_POLICY, QPID))
    ),
    *_each_refused(
        Kind.EXCHANGE,
        QPID,
        "exchanges do not number or keep messages",
        {"qpid.msg_sequence": True, "qpid.ive": True},
        hint=LEAVE_OUT,
        harmless=(*_OFF, 0),
    ),
    _refused(
        Kind.EXCHANGE,
        "internal",
        RABBITMQ,
        "clients may publish to every exchange",
        hint=LEAVE_OUT,
        example=True,
        harmless=_OFF,
    ),
    _refused(
        Kind.EXCHANGE,
        "x-delayed-type",
        RABBITMQ,
        "every exchange accepts delayed messages",
        hint=f"declare one of that type, and annotate messages with {DELIVERY_DELAY}",
        example="direct",
    ),
    _known(
        Kind.EXCHANGE,
        HASH_HEADER,
        RABBITMQ,
        f"Of an exchange of the type {CONSISTENT_HASH}: the header whose value is hashed, in place "
        "of the key.",
        values="the name of an application property",
        read=_name,
        example="customer",
        feature=QUEUE_KINDS,
    ),
    _known(
        Kind.EXCHANGE,
        HASH_PROPERTY,
        RABBITMQ,
        f"Of an exchange of the type {CONSISTENT_HASH}: the property that is hashed, in place of "
        "the key; timestamp is AMQP's creation-time.",
        values=", ".join(HASHED_PROPERTIES),
        read=_hashed_property,
        example="message_id",
        feature=QUEUE_KINDS,
    ),
)

_BINDINGS = (
    _known(
        Kind.BINDING,
        MATCH,
        AMQP,
        "Of a headers exchange: whether all or any of the other arguments must match.",
        values=f"{MATCH_ALL} or {MATCH_ANY}",
        example=MATCH_ANY,
    ),
    _refused(
        Kind.BINDING,
        "qpid.exclusive-binding",
        QPID,
        "several queues may be bound with one key",
        hint="unbind the other queues",
        example=True,
        harmless=_OFF,
    ),
    _known(
        Kind.BINDING,
        FED_TAGS,
        QPID,
        "Set by a dynamic route: the tags of the clusters that the binding is for.",
        values="any text",
        example="x",
        read=_name,
    ),
    *_each_refused(
        Kind.BINDING,
        QPID,
        "a binding does not make a route",
        {"qpid.fed.op": "x", "qpid.fed.origin": "x"},
        hint=_ROUTE,
    ),
    _refused(
        Kind.BINDING, "xquery", QPID, "XML exchanges are not offered", hint=LEAVE_OUT, example="."
    ),
)

_CATCH_UP = "backups catch up by themselves"
_POLICIES = (
    _alias(
        Kind.POLICY,
        "ha-mode",
        RABBITMQ,
        REPLICATE,
        f"all is {REPLICATE}={ALL}. exactly and nodes are refused: {_ONE_LOG}.",
        values="all; how many brokers there are is the choice of a cluster",
        read=_one_of(all=ALL),
        why=_ONE_LOG,
        example="all",
    ),
    _alias(
        Kind.POLICY,
        "ttl",
        OWN,
        MESSAGE_TTL,
        "The short name.",
        values=f"milliseconds, 0 to {LONGEST}",
        read=_same,
        example=60000,
    ),
    *(
        _refused(Kind.POLICY, name, RABBITMQ, reason, hint=hint, example=example, harmless=harmless)
        for name, example, reason, hint, harmless in (
            ("target-group-size", 3, _ONE_LOG, LEAVE_OUT, ()),
            ("federation-upstream", "up", "a policy does not make a link", _ROUTE, ()),
            ("federation-upstream-set", "all", "a policy does not make a link", _ROUTE, ()),
            ("ha-params", 2, _ONE_LOG, f"{REPLICATE}={ALL} puts a queue on all brokers", ()),
            ("ha-sync-mode", "manual", _CATCH_UP, LEAVE_OUT, ("automatic",)),
            ("ha-sync-batch-size", 4096, _CATCH_UP, LEAVE_OUT, ()),
            *(
                (name, "always", "only an in-sync broker is promoted", LEAVE_OUT, ("when-synced",))
                for name in ("ha-promote-on-shutdown", "ha-promote-on-failure")
            ),
        )
    ),
)

OWN_QUEUE = "bind a queue of its own to an exchange for what this receiver wants"
_FILTERS = (
    _known(
        Kind.FILTER,
        TOPIC_BINDING,
        QPID,
        "The binding key of a subscription to a topic exchange; without wildcards also to a direct "
        "one.",
        values="text",
        example="a",
        code=0x0000468C00000001,
    ),
    _known(
        Kind.FILTER,
        DIRECT_BINDING,
        QPID,
        "The binding key of a subscription to a direct exchange; without wildcards also to a topic "
        "one.",
        values="text",
        example="a",
        code=0x0000468C00000000,
    ),
    _known(
        Kind.FILTER,
        HEADERS_BINDING,
        QPID,
        "The binding arguments of a subscription to a headers exchange.",
        values="a map",
        example={"x-match": "any", "colour": "red"},
        code=0x0000468C00000002,
    ),
    _known(
        Kind.FILTER,
        SELECTOR,
        JMS,
        "Which messages the receiver wants, in the language of JMS.",
        values="a selector, see docs/selectors.md",
        example="colour = 'red'",
        code=0x0000468C00000004,
    ),
    _known(
        Kind.FILTER,
        AMQP_SQL_FILTER,
        RABBITMQ,
        "Which messages the receiver wants, in SQL.",
        values="a selector, see docs/selectors.md",
        example="a.n = 1",
        code=0x120,
    ),
    *(
        _known(
            Kind.FILTER,
            name,
            RABBITMQ,
            f"The {what} that messages for the receiver have; on queues only.",
            values="a map of 1 to 16 fields, see docs/selectors.md",
            example=example,
            code=code,
        )
        for name, what, example, code in (
            (PROPERTIES_FILTER, "properties", {"subject": "a"}, 0x173),
            (APPLICATION_PROPERTIES_FILTER, "application properties", {"a": 1}, 0x174),
        )
    ),
    _known(
        Kind.FILTER,
        NO_LOCAL_FILTER,
        JMS,
        "The receiver wants nothing of what connections of its own container send; only of an "
        "exchange, and of a subscription that is not shared.",
        values="anything; it says nothing",
        example=[],
        code=0x0000468C00000003,
    ),
    _refused(
        Kind.FILTER,
        "apache.org:xquery-filter:string",
        QPID,
        "XML exchanges are not offered",
        hint=LEAVE_OUT,
        example="true()",
        code=0x0000468C00000005,
    ),
    *_each_refused(
        Kind.FILTER,
        RABBITMQ,
        _NO_STREAMS,
        {
            "rabbitmq:stream-offset-spec": "first",
            "rabbitmq:stream-filter": "a",
            "rabbitmq:stream-match-unfiltered": True,
        },
        hint=LEAVE_OUT,
    ),
    _refused(
        Kind.FILTER,
        "com.microsoft:session-filter",
        AZURE,
        "message sessions are not offered",
        hint=LEAVE_OUT,
        example="s1",
        code=0x00000137000000C,
    ),
)

_CAPABILITIES = (
    *(
        _known(kind, name, origin, text)
        for kind in (Kind.SOURCE, Kind.TARGET)
        for name, origin, text in (
            ("queue", JMS, "The address must be a queue; one that is created becomes one."),
            ("topic", JMS, "The address must be an exchange; one that is created becomes one."),
            ("temporary-queue", JMS, "The address is a queue, made for this link if dynamic."),
            ("temporary-topic", JMS, "The address is an exchange, made for this link if dynamic."),
            (CREATE, QPID, "Create the node from its properties if there is none."),
            (DURABLE, QPID, "The node must be durable; one that is created becomes so."),
        )
    ),
    _known(
        Kind.SOURCE,
        SHARED,
        QPID,
        "Links of the same name, of any connection, share one subscription to an exchange. "
        "Qpid JMS shares those of one client ID, or those without one.",
    ),
    _known(
        Kind.SOURCE,
        "global",
        JMS,
        "A shared subscription is not of one client ID alone; the names of links say the same.",
    ),
    _known(
        Kind.SOURCE,
        VOLATILE,
        RABBITMQ,
        "The address is a queue, made for this link if dynamic: a place for replies. What is sent "
        "there waits for the receiver.",
    ),
    _refused(
        Kind.TARGET,
        VOLATILE,
        RABBITMQ,
        "it is for the receiver of replies",
        hint="send to the reply-to of the request",
    ),
)

_LINKS = (
    _known(
        Kind.LINK,
        EXCLUSIVE_LINK,
        OWN,
        "A receiver is to be the only one of its queue: it is refused if there is another, and "
        "others are while it is there.",
        values="true or false",
        example=True,
    ),
    _known(
        Kind.LINK,
        FENCING_LINK,
        OWN,
        "A receiver gets a fencing token with each delivery.",
        values="true or false",
        example=True,
    ),
    _known(
        Kind.LINK,
        "paired",
        AMQP,
        "Pairs the two links of one name at /management; other links have no pair.",
        values="true or false",
        example=True,
    ),
    *(
        _known(
            Kind.LINK,
            name,
            origin,
            "A receiver gets messages before those of a lower priority, as long as it has credit.",
            values="an integer of 32 bits; 0 if it is left out",
            example=5,
        )
        for name, origin in zip(
            CONSUMER_PRIORITIES, (RABBITMQ, ARTEMIS, RABBITMQ, OWN), strict=True
        )
    ),
    _known(
        Kind.LINK,
        LINK_TIMEOUT,
        RABBITMQ,
        "A message that the receiver keeps for longer is released; 0 is for ever.",
        values=f"milliseconds, 0 to {LONGEST}; what the queue says if it is left out",
        example=1000,
    ),
    *(
        _refused(Kind.LINK, name, RABBITMQ, reason, hint=LEAVE_OUT, example=example)
        for name, example, reason in (
            ("x-cancel-on-ha-failover", True, "the connection ends with the primary"),
            ("x-stream-offset", "first", _NO_STREAMS),
        )
    ),
    _refused(
        Kind.LINK,
        "com.microsoft:epoch",
        AZURE,
        "a new receiver does not end another one",
        hint="declare the queue exclusive",
        example=1,
    ),
)

TABLE: tuple[Entry, ...] = (
    *_SEVERAL,
    *_QUEUES,
    *_ORDERS,
    *_EXCHANGES,
    *_BINDINGS,
    *_POLICIES,
    *_FILTERS,
    *_CAPABILITIES,
    *_LINKS,
)
"""Every name, each once for a kind."""
BY_NAME = {(entry.kind, entry.name): entry for entry in TABLE}
KEY_KINDS = (Kind.POLICY, Kind.QUEUE, Kind.EXCHANGE)
"""Where the names stand that may be keys of policies."""
_PREFIXES = ("", "x-", "qpid.", "qpidha.")


def find(kind: Kind, name: str) -> Entry | None:
    """Return what is said of a name; one that ends in a number may be one of many that are there
    as `...-N`.
    """
    stem, _, number = name.rpartition("-")
    if number == "N":
        return None
    if number.isascii() and number.isdecimal():
        name = f"{stem}-N"
    return BY_NAME.get((kind, name))


def policy_entry(name: str) -> Entry | None:
    """Find what a key of policies is: one of its own, or an argument of exchanges that policies can
    set, or one of queues, of which the prefix may be left out.
    """
    found = find(Kind.POLICY, name)
    if is_policy_key(Kind.EXCHANGE, name):
        return find(Kind.EXCHANGE, name)
    for prefix in _PREFIXES:
        found = found or find(Kind.QUEUE, prefix + name)
    return found


def is_policy_key(kind: Kind, name: str) -> bool:
    """Whether policies can set this, a known argument of queues or of exchanges."""
    found = find(kind, name)
    return found is not None and found.by_policy is not ByPolicy.NEVER


def by_policy(entry: Entry) -> ByPolicy:
    """Whether policies can set this, an argument of exchanges, or one of queues or an alias of one,
    or a key. The type of a queue says more than how much others get of it.
    """
    if entry.kind is Kind.EXCHANGE:
        return entry.by_policy
    if entry.name == QUEUE_TYPE:
        return ByPolicy.NEVER
    known = BY_NAME.get((Kind.QUEUE, entry.alias_of or entry.name))
    return ByPolicy.NEVER if known is None else known.by_policy


def policy_keys() -> Iterator[Entry]:
    """Walk through what policies can set, with the aliases."""
    for entry in TABLE:
        if entry.kind in KEY_KINDS and policy_entry(entry.name) is entry:
            if entry.fate is not Fate.REFUSED and by_policy(entry) is not ByPolicy.NEVER:
                yield entry


BY_CODE = {entry.code: entry for entry in TABLE if entry.code}
"""Filters, by their numeric descriptors."""
