"""Vocabulary: every name by which clients of other brokers ask for something, and what becomes of
it here.

Clients of RabbitMQ, Qpid, Artemis and JMS ask by names: arguments of queues, exchanges and
bindings, keys of policies, filters and capabilities of termini, properties of links. `TABLE` has
each of these names once. It is known, or an alias of a known one, or refused with the reason; none
is taken and not followed. `translation.py` looks names up, and docs/arguments.md is made from them.

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

from qpidha.broker.exchange import MATCH, MATCH_ALL, MATCH_ANY
from qpidha.broker.queues.dedup import DEDUP, DEDUP_WINDOW
from qpidha.broker.queues.lifetime import AUTO_DELETE_TIMEOUT, LIFETIME_POLICY, POLICIES
from qpidha.broker.queues.limits import (
    FLOW_RESUME_COUNT,
    FLOW_RESUME_SIZE,
    FLOW_STOP_COUNT,
    FLOW_STOP_SIZE,
    MAX_COUNT,
    MAX_SIZE,
    POLICY_TYPE,
    REJECT,
    RING,
)
from qpidha.model.replication_level import ALL, HA_UUID, LEVELS, REPLICATE

INSTRUCTIONS = ("qpid.", "qpidha.", "x-", "ha-", "rabbitmq:")
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
    hint: str = ""
    """What to do instead of a refused one."""
    example: Any = None
    """A value that is allowed; of a refused one, a value that clients give."""
    read: Callable[[Any], Any] | None = None
    """From a value to that of the known name, None if it asks for nothing; ValueError if it is not
    allowed. Of an alias, and of an option of the declaration.
    """
    implies: tuple[tuple[str, Any], ...] = ()
    """Known arguments that come with it, unless they are given."""
    harmless: tuple[Any, ...] = ()
    """Values of a refused one that ask for nothing."""
    code: int = 0
    """The numeric descriptor of a filter."""


def _known(kind: Kind, name: str, origin: str, text: str, **more: Any) -> Entry:
    return Entry(kind, name, origin, Fate.KNOWN, text, **more)


def _alias(kind: Kind, name: str, origin: str, alias_of: str, text: str, **more: Any) -> Entry:
    return Entry(kind, name, origin, Fate.ALIAS, text, alias_of=alias_of, **more)


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


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return str(value)


def _positive(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 18:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**63:
        raise ValueError
    return int(value)


def _one_of(**values: Any) -> Callable[[Any], Any]:
    """Read one of a few words; hyphens stand as underscores here."""
    table = {name.replace("_", "-"): value for name, value in values.items()}

    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in table:
            raise ValueError
        return table[value]

    return read


# -- the table ------------------------------------------------------------------------------------

DURABLE, EXCLUSIVE, AUTO_DELETE = "durable", "exclusive", "auto-delete"
ALTERNATE = "alternate-exchange"
EXCHANGE_TYPE = "exchange-type"
QUEUE_TYPE = "x-queue-type"
QUORUM, CLASSIC = "quorum", "classic"
SELECTOR = "apache.org:selector-filter:string"
TOPIC_BINDING = "apache.org:legacy-amqp-topic-binding:string"
DIRECT_BINDING = "apache.org:legacy-amqp-direct-binding:string"
HEADERS_BINDING = "apache.org:legacy-amqp-headers-binding:map"
CREATE, SHARED = "create-on-demand", "shared"
AMQP, QPID, RABBITMQ, ARTEMIS, JMS = "AMQP", "Qpid", "RabbitMQ", "Artemis", "JMS"
OWN, AZURE = "qpidha", "Azure"

_FLAG = {"values": "true or false", "read": _flag, "example": True}
_EXCHANGE_NAME = {"values": "the name of an exchange", "read": _name, "example": "amq.fanout"}
_OPTION = "The option of a declaration, given as an argument."
_OFF = (False, "false", "False")
_NO_DEAD_LETTERS = "dead letters are not offered yet"
_USE_ALTERNATE = (
    "alternate-exchange takes the messages that are rejected or pushed out of a ring, and those of "
    "a queue that is deleted"
)
_NO_PRIORITIES = "queues give messages in the order of arrival"
_ONE_PRIMARY = "all queues are served by the primary of the cluster and are on every broker"
_NO_STREAMS = "streams are not offered"
_NO_GROUPS = "message groups are not offered yet"
_NO_LAST_VALUES = "last-value queues are not offered yet"
_NO_PAGING = "the bytes in memory are limited for all queues alike"
_NO_DELAY = "messages are given out as soon as they are there"
LEAVE_OUT = "leave it out"

_QUEUES = (
    _known(
        Kind.QUEUE,
        MAX_COUNT,
        QPID,
        "Most messages on the queue, those that consumers have included.",
        values="a whole number; 0 is no limit",
        example=5,
    ),
    _known(
        Kind.QUEUE,
        MAX_SIZE,
        QPID,
        "Most bytes on the queue, in whole messages.",
        values="a whole number; 0 is no limit; default-queue-limit if it is left out",
        example=1000,
    ),
    _known(
        Kind.QUEUE,
        POLICY_TYPE,
        QPID,
        "Whether a full queue rejects the newcomer or pushes out its oldest message.",
        values=f"{REJECT} or {RING}",
        example=RING,
    ),
    _known(
        Kind.QUEUE,
        FLOW_STOP_COUNT,
        QPID,
        "With more messages than this on the queue its senders get no credit.",
        values=f"a whole number, at most {MAX_COUNT}; 0 is never; 80 % of it if it is left out",
        example=4,
    ),
    _known(
        Kind.QUEUE,
        FLOW_STOP_SIZE,
        QPID,
        "With more bytes than this on the queue its senders get no credit.",
        values=f"a whole number, at most {MAX_SIZE}; 0 is never; 80 % of it if it is left out",
        example=800,
    ),
    _known(
        Kind.QUEUE,
        FLOW_RESUME_COUNT,
        QPID,
        "With no more messages than this, senders that were stopped get credit again.",
        values=f"a whole number, at most {FLOW_STOP_COUNT}; 70 % of {MAX_COUNT} if it is left out",
        example=3,
    ),
    _known(
        Kind.QUEUE,
        FLOW_RESUME_SIZE,
        QPID,
        "With no more bytes than this, senders that were stopped get credit again.",
        values=f"a whole number, at most {FLOW_STOP_SIZE}; 70 % of {MAX_SIZE} if it is left out",
        example=700,
    ),
    _known(
        Kind.QUEUE,
        AUTO_DELETE_TIMEOUT,
        QPID,
        "Delete the queue when it was left for so long.",
        values="seconds from 0",
        example=5,
    ),
    _known(
        Kind.QUEUE,
        LIFETIME_POLICY,
        QPID,
        "What ends the queue.",
        values=", ".join(POLICIES),
        example="delete-if-unused",
    ),
    _known(
        Kind.QUEUE,
        DEDUP,
        OWN,
        "Take no message twice: what duplicates are known by.",
        values="message-id, or the name of a message annotation, which begins with x-",
        example="message-id",
    ),
    _known(
        Kind.QUEUE,
        DEDUP_WINDOW,
        OWN,
        f"How many messages are remembered; with {DEDUP}.",
        values="1 to 1000000",
        example=100,
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
        "x-overflow",
        RABBITMQ,
        POLICY_TYPE,
        f"drop-head is {RING}, reject-publish is {REJECT}.",
        values="drop-head or reject-publish",
        read=_one_of(drop_head=RING, reject_publish=REJECT),
        example="drop-head",
    ),
    _alias(
        Kind.QUEUE,
        QUEUE_TYPE,
        RABBITMQ,
        REPLICATE,
        f"{QUORUM} is a durable queue, not exclusive, on every broker: {REPLICATE}={ALL}; it has "
        f"no delivery limit here. {CLASSIC} is any queue.",
        values=f"{QUORUM} or {CLASSIC}",
        read=_one_of(quorum=ALL, classic=None),
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
    _refused(
        Kind.QUEUE,
        "x-message-ttl",
        RABBITMQ,
        "queues have no time to live for their messages yet",
        example=60000,
        hint="give each message a ttl in its header",
    ),
    _refused(
        Kind.QUEUE,
        "x-expires",
        RABBITMQ,
        "it counts from the declaration, and no timeout here counts before the first use",
        example=60000,
        hint=f"{AUTO_DELETE_TIMEOUT} deletes a queue that was used and then left, after seconds",
    ),
    *_each_refused(
        Kind.QUEUE,
        RABBITMQ,
        _NO_DEAD_LETTERS,
        {
            "x-dead-letter-exchange": "dlx",
            "x-dead-letter-routing-key": "dead",
            "x-dead-letter-strategy": "at-least-once",
        },
        hint=_USE_ALTERNATE,
    ),
    _refused(
        Kind.QUEUE,
        "x-delivery-limit",
        RABBITMQ,
        "messages may be delivered any number of times; a delivery limit is not offered yet",
        example=20,
        hint="look at delivery-count in the header, and reject a message that fails too often",
        harmless=(-1,),
    ),
    _refused(Kind.QUEUE, "x-max-priority", RABBITMQ, _NO_PRIORITIES, hint=LEAVE_OUT, example=10),
    _refused(
        Kind.QUEUE,
        "x-single-active-consumer",
        RABBITMQ,
        "all consumers of a queue get messages in turn",
        hint="let one consumer attach, or declare the queue exclusive",
        example=True,
        harmless=_OFF,
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
    _refused(
        Kind.QUEUE,
        "x-consumer-timeout",
        RABBITMQ,
        "a consumer may keep a message for any time",
        hint=LEAVE_OUT,
        example=60000,
    ),
    _refused(
        Kind.QUEUE,
        "x-queue-mode",
        RABBITMQ,
        "messages beyond the memory of a queue are on disk by themselves",
        hint=LEAVE_OUT,
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
    *_each_refused(
        Kind.QUEUE,
        QPID,
        _NO_PRIORITIES,
        {
            "qpid.priorities": 10,
            "x-qpid-priorities": 10,
            "qpid.fairshare": 10,
            "x-qpid-fairshare": 10,
        },
        hint=LEAVE_OUT,
    ),
    *_each_refused(
        Kind.QUEUE,
        QPID,
        _NO_LAST_VALUES,
        {
            "qpid.last_value_queue_key": "key",
            "qpid.last_value_queue": 1,
            "qpid.last_value_queue_no_browse": 1,
            "qpid.LVQ_key": "key",
        },
        hint=LEAVE_OUT,
    ),
    *_each_refused(
        Kind.QUEUE,
        QPID,
        _NO_GROUPS,
        {
            "qpid.group_header_key": "group",
            "qpid.group_timestamp": 1,
            "qpid.default-message-group": "none",
        },
        hint=LEAVE_OUT,
    ),
    _refused(
        Kind.QUEUE, "qpid.shared_msg_group", QPID, _NO_GROUPS, hint=LEAVE_OUT, harmless=(*_OFF, 0)
    ),
    *_each_refused(
        Kind.QUEUE,
        QPID,
        "queues raise no alerts yet",
        {
            "qpid.alert_count": 100,
            "qpid.alert_size": 100,
            "qpid.alert_count_up": 100,
            "qpid.alert_count_down": 100,
            "qpid.alert_size_up": 100,
            "qpid.alert_size_down": 100,
            "qpid.alert_repeat_gap": 100,
            "x-qpid-maximum-message-count": 100,
            "x-qpid-maximum-message-size": 100,
            "x-qpid-minimum-alert-repeat-gap": 100,
        },
        hint="qpid-ha queue list shows the depth",
    ),
    _refused(
        Kind.QUEUE,
        "qpid.browse-only",
        QPID,
        "each receiver chooses whether it browses",
        hint="attach receivers with the distribution mode copy",
        example=True,
        harmless=_OFF,
    ),
    *_each_refused(
        Kind.QUEUE,
        QPID,
        "a queue does not know where its messages come from",
        {"no-local": True, "qpid.no-local": True},
        hint=LEAVE_OUT,
        harmless=_OFF,
    ),
    _refused(
        Kind.QUEUE,
        "qpid.filter",
        QPID,
        "selectors are not offered yet",
        hint="bind the queue so that it gets only what its consumers want",
        example="a = 1",
    ),
    *_each_refused(
        Kind.QUEUE,
        QPID,
        "messages are not marked",
        {"qpid.trace.id": "mark", "qpid.trace.exclude": "mark", "qpid.queue_msg_sequence": "mark"},
        hint=LEAVE_OUT,
    ),
    _refused(
        Kind.QUEUE, "qpid.paging", QPID, _NO_PAGING, hint=LEAVE_OUT, example=True, harmless=_OFF
    ),
    *_each_refused(
        Kind.QUEUE,
        QPID,
        _NO_PAGING,
        {"qpid.max_pages_loaded": 4, "qpid.page_factor": 4},
        hint=LEAVE_OUT,
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
        "replication is by the log of the cluster",
        {"qpid.ha-repsub": "x", "qpid.queue_event_generation": "x", "qpid.persist_last_node": "x"},
        hint=f"use {REPLICATE}",
    ),
    *(
        _refused(Kind.QUEUE, name, ARTEMIS, reason, hint=hint, example=example)
        for name, example, reason, hint in (
            ("max-consumers", 1, "any number of consumers may attach", "declare it exclusive"),
            ("ring-size", 5, "it is not Qpid's name", f"{MAX_COUNT} and {POLICY_TYPE}={RING}"),
            ("last-value-key", "key", _NO_LAST_VALUES, LEAVE_OUT),
            ("group-buckets", 4, _NO_GROUPS, LEAVE_OUT),
            ("group-first-key", "first", _NO_GROUPS, LEAVE_OUT),
            ("consumers-before-dispatch", 2, _NO_DELAY, LEAVE_OUT),
            ("delay-before-dispatch", 100, _NO_DELAY, LEAVE_OUT),
            ("auto-delete-delay", 1000, "it is not Qpid's name", f"{AUTO_DELETE_TIMEOUT}=SECONDS"),
            (
                "auto-delete-message-count",
                0,
                "it is not AMQP's name",
                f"{LIFETIME_POLICY}=delete-if-unused-and-empty",
            ),
            ("max-delivery-attempts", 10, "a delivery limit is not offered yet", LEAVE_OUT),
            ("redelivery-delay", 1000, _NO_DELAY, LEAVE_OUT),
            ("dead-letter-address", "dead", _NO_DEAD_LETTERS, _USE_ALTERNATE),
            ("expiry-address", "expired", _NO_DEAD_LETTERS, _USE_ALTERNATE),
            ("routing-type", "ANYCAST", "queues have no routing type", LEAVE_OUT),
        )
    ),
    *(
        _refused(Kind.QUEUE, name, ARTEMIS, reason, hint=LEAVE_OUT, example=True, harmless=_OFF)
        for name, reason in (
            ("last-value", _NO_LAST_VALUES),
            ("non-destructive", "receivers choose whether they browse"),
            ("purge-on-no-consumers", "messages stay when consumers leave"),
            ("group-rebalance", _NO_GROUPS),
        )
    ),
)

_SEVERAL = (
    *(
        _known(
            kind,
            REPLICATE,
            QPID,
            "How much of it other brokers get to know; ha-replicate if it is left out.",
            values=", ".join(LEVELS),
            example="none",
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
    *(
        _known(kind, ALTERNATE, QPID, _OPTION, **_EXCHANGE_NAME)
        for kind in (Kind.QUEUE, Kind.EXCHANGE)
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
            "an exchange ends with its last binding, if it is auto-delete, or never",
            hint=f"use {AUTO_DELETE}",
            example="delete-if-unused",
            harmless=("manual",),
        )
        for name, origin in (("lifetime-policy", AMQP), (LIFETIME_POLICY, QPID))
    ),
    *_each_refused(
        Kind.EXCHANGE,
        QPID,
        "exchanges keep no messages and no counters in them",
        {"qpid.msg_sequence": True, "qpid.ive": True},
        hint=LEAVE_OUT,
        harmless=(*_OFF, 0),
    ),
    _refused(
        Kind.EXCHANGE,
        "internal",
        RABBITMQ,
        "every exchange may be published to",
        hint=LEAVE_OUT,
        example=True,
        harmless=_OFF,
    ),
    _refused(
        Kind.EXCHANGE, "x-delayed-type", RABBITMQ, _NO_DELAY, hint=LEAVE_OUT, example="direct"
    ),
    *_each_refused(
        Kind.EXCHANGE,
        RABBITMQ,
        "consistent hashing is not offered",
        {"hash-header": "key", "hash-property": "key"},
        hint=LEAVE_OUT,
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
        "a key may have any number of queues",
        hint="unbind the other queues",
        example=True,
        harmless=_OFF,
    ),
    *_each_refused(
        Kind.BINDING,
        QPID,
        "federation is not offered yet",
        {"qpid.fed.op": "x", "qpid.fed.tags": "x", "qpid.fed.origin": "x"},
        hint=LEAVE_OUT,
    ),
    _refused(
        Kind.BINDING, "xquery", QPID, "XML exchanges are not offered", hint=LEAVE_OUT, example="."
    ),
)

_POLICIES = tuple(
    _refused(
        Kind.POLICY, name, RABBITMQ, "policies are not offered yet", hint=hint, example=example
    )
    for name, example, hint in (
        ("max-length", 5, "declare the queue with x-max-length"),
        ("max-length-bytes", 1000, "declare the queue with x-max-length-bytes"),
        ("overflow", "drop-head", "declare the queue with x-overflow"),
        ("message-ttl", 1000, "give each message a ttl in its header"),
        ("expires", 1000, f"declare the queue with {AUTO_DELETE_TIMEOUT}"),
        ("dead-letter-exchange", "dlx", _USE_ALTERNATE),
        ("dead-letter-routing-key", "dead", _USE_ALTERNATE),
        ("dead-letter-strategy", "at-least-once", _USE_ALTERNATE),
        ("delivery-limit", 20, LEAVE_OUT),
        ("consumer-timeout", 1000, LEAVE_OUT),
        ("delayed-retry-type", "all", LEAVE_OUT),
        ("delayed-retry-min", 1000, LEAVE_OUT),
        ("delayed-retry-max", 2000, LEAVE_OUT),
        ("queue-mode", "lazy", LEAVE_OUT),
        ("queue-version", 2, LEAVE_OUT),
        ("queue-leader-locator", "balanced", LEAVE_OUT),
        ("queue-master-locator", "min-masters", LEAVE_OUT),
        ("target-group-size", 3, LEAVE_OUT),
        ("max-age", "1D", LEAVE_OUT),
        ("stream-max-segment-size-bytes", 1000, LEAVE_OUT),
        ("federation-upstream", "up", LEAVE_OUT),
        ("federation-upstream-set", "all", LEAVE_OUT),
        ("ha-mode", "all", f"declare the queue with {REPLICATE}={ALL}"),
        ("ha-params", 2, f"declare the queue with {REPLICATE}={ALL}"),
        ("ha-sync-mode", "automatic", "backups catch up by themselves"),
        ("ha-sync-batch-size", 4096, "backups catch up by themselves"),
        ("ha-promote-on-shutdown", "when-synced", "only an in-sync broker is promoted"),
        ("ha-promote-on-failure", "when-synced", "only an in-sync broker is promoted"),
    )
)

_NO_SELECTORS = "messages are not filtered by their content yet"
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
    _refused(
        Kind.FILTER,
        SELECTOR,
        JMS,
        _NO_SELECTORS,
        hint=OWN_QUEUE,
        example="colour = 'red'",
        code=0x0000468C00000004,
    ),
    _refused(
        Kind.FILTER,
        "apache.org:no-local-filter:list",
        JMS,
        "messages do not say which connection sent them",
        hint="mark your own messages with a property and skip those that have it",
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
    *(
        _refused(
            Kind.FILTER, name, RABBITMQ, _NO_SELECTORS, hint=OWN_QUEUE, example=example, code=code
        )
        for name, example, code in (
            ("amqp:sql-filter", "a = 1", 0x120),
            ("amqp:properties-filter", {"subject": "a"}, 0x173),
            ("amqp:application-properties-filter", {"a": 1}, 0x174),
        )
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
            (CREATE, QPID, "Create the node from its properties if there is none."),
            (DURABLE, QPID, "The node must be durable; one that is created becomes so."),
        )
    ),
    _known(
        Kind.SOURCE,
        SHARED,
        QPID,
        "Links of the same name, of any connection, share one subscription to an exchange. A "
        "client that calls itself QpidJMS is refused: JMS names its links otherwise.",
    ),
    _refused(
        Kind.SOURCE,
        "global",
        JMS,
        "shared subscriptions of JMS are not offered yet",
        hint="let the consumers share a queue that is bound to the exchange",
    ),
    *(
        _refused(
            kind,
            "temporary-topic",
            JMS,
            "dynamic nodes are queues",
            hint="use a temporary queue, or a topic exchange that was declared",
        )
        for kind in (Kind.SOURCE, Kind.TARGET)
    ),
    *(
        _refused(
            kind,
            "rabbitmq:volatile-queue",
            RABBITMQ,
            "direct reply-to is not offered",
            hint="use a dynamic node without it",
        )
        for kind in (Kind.SOURCE, Kind.TARGET)
    ),
)

_LINKS = (
    _known(
        Kind.LINK,
        "paired",
        AMQP,
        "Pairs the two links of one name at /management; other links have no pair.",
        values="true or false",
        example=True,
    ),
    *(
        _refused(
            Kind.LINK,
            name,
            origin,
            "all consumers of a queue get messages in turn",
            hint=LEAVE_OUT,
            example=5,
            harmless=(0,),
        )
        for name, origin in (("rabbitmq:priority", RABBITMQ), ("priority", ARTEMIS))
    ),
    _refused(
        Kind.LINK,
        "rabbitmq:consumer-timeout",
        RABBITMQ,
        "a consumer may keep a message for any time",
        hint=LEAVE_OUT,
        example=1000,
    ),
    *(
        _refused(Kind.LINK, name, RABBITMQ, reason, hint=LEAVE_OUT, example=example)
        for name, example, reason in (
            ("x-priority", 5, "all consumers of a queue get messages in turn"),
            ("x-cancel-on-ha-failover", True, "the connection ends when the primary does"),
            ("x-stream-offset", "first", _NO_STREAMS),
        )
    ),
    _refused(
        Kind.LINK,
        "com.microsoft:epoch",
        AZURE,
        "a receiver does not end another one",
        hint="declare the queue exclusive",
        example=1,
    ),
)

TABLE: tuple[Entry, ...] = (
    *_SEVERAL,
    *_QUEUES,
    *_EXCHANGES,
    *_BINDINGS,
    *_POLICIES,
    *_FILTERS,
    *_CAPABILITIES,
    *_LINKS,
)
"""Every name, each once for a kind."""
BY_NAME = {(entry.kind, entry.name): entry for entry in TABLE}
BY_CODE = {entry.code: entry for entry in TABLE if entry.code}
"""Filters, by their numeric descriptors."""
