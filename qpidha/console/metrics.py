"""Metrics: what Prometheus is told of each broker, as one table, and how it is read.

Every row names a metric, its type, its help, its labels and how its samples are read from what the
broker said: its status report and its `statistics`, or one row of `list_queues`. Nothing is counted
here; a scrape asks the broker, shares the answer with other scrapes, and writes text. A broker that
gives no answer has `qpidha_up` 0 and no other metric of its own. The tables of docs/console.md and
the test of the alert rules are made from `METRICS` and `DETAILED`.
Source: https://prometheus.io/docs/practices/naming/.
"""

from __future__ import annotations

import asyncio
import fnmatch
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from qpidha.console.health import is_synced
from qpidha.console.looks import Look, NotAnswered, Watched
from qpidha.model.broker_states import PRIMARY_STATES, STATES
from qpidha.model.duration import SECOND
from qpidha.model.errors import RefusedRequest

PREFIX = "qpidha_"
CONSTANT = ("cluster", "broker")
"""Labels of every metric."""
PAGE = 1000
"""Queues that the broker is asked for at once."""
MOST = 10_000
"""Queues of one scrape."""
Samples = Iterable[tuple[tuple[str, ...], float]]
"""Values of the labels beside those of every metric, and the number."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one broker said for one scrape."""

    look: Look
    statistics: dict[str, Any] | None
    seconds: float
    """How long the status report took."""
    questions: int

    @property
    def status(self) -> dict[str, Any]:
        """The status report of a broker that gave one."""
        assert self.look.status is not None
        return self.look.status


@dataclass(frozen=True, slots=True)
class Row:
    """One metric."""

    name: str
    """Without the prefix; a counter's ends with _total."""
    help: str
    read: Callable[[Said], Samples]
    labels: tuple[str, ...] = ()
    needs: str = "status"
    """`status`, `statistics`, or empty if it is there for a broker that says nothing, too."""
    histogram: str = ""
    """What the statistics call the histogram that it is; `read` is not used then."""

    @property
    def kind(self) -> str:
        """Its type; a counter only grows, until the broker begins anew."""
        if self.histogram:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


def _nothing(said: Said) -> Samples:
    return []


def _status(read: Callable[[dict[str, Any]], float | None]) -> Callable[[Said], Samples]:
    """A number of the status report; None stands for no sample."""

    def samples(said: Said) -> Samples:
        value = read(said.status)
        return [] if value is None else [((), value)]

    return samples


def _statistic(name: str) -> Callable[[Said], Samples]:
    """A number of the statistics; an older broker may not have it."""

    def samples(said: Said) -> Samples:
        found = (said.statistics or {}).get(name)
        return [] if found is None else [((), found)]

    return samples


def _by(name: str) -> Callable[[Said], Samples]:
    """Numbers of the statistics by their names."""

    def samples(said: Said) -> Samples:
        found = (said.statistics or {}).get(name, {})
        return [((key,), value) for key, value in found.items()]

    return samples


def _others(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in status["members"] if each["system_id"] != status["system_id"]]


def _is_primary(status: dict[str, Any]) -> bool:
    return status["state"] in PRIMARY_STATES


def _members(said: Said) -> Samples:
    states = [member["state"] for member in said.status["members"]]
    return [((state,), states.count(state)) for state in sorted(set(states))]


def _unconfirmed(said: Said) -> Samples:
    if not _is_primary(said.status):
        return []
    last = said.status["sequence"]
    return [
        ((member["name"] or member["address"],), max(last - member["sequence"], 0))
        for member in _others(said.status)
    ]


def _replicas(read: Callable[[dict[str, Any]], float]) -> Callable[[Said], Samples]:
    return lambda said: [
        ((row["queue"],), float(read(row))) for row in said.status.get("replicas", ())
    ]


def _in_backup(read: Callable[[Look], float]) -> Callable[[Said], Samples]:
    return lambda said: [((), read(said.look))] if said.look.state in ("catchup", "ready") else []


def _journal(name: str, log: str = "journal") -> Callable[[Said], Samples]:
    return _status(lambda status: status.get(log, {}).get(name))


METRICS: tuple[Row, ...] = (
    Row(
        "up",
        "Whether the broker answered to this scrape.",
        lambda said: [((), float(said.look.status is not None))],
        needs="",
    ),
    Row(
        "answer_seconds",
        "How long the broker took for its status report, or has not answered within.",
        lambda said: [((), said.seconds)],
        needs="",
    ),
    Row(
        "console_questions_total",
        "Questions that the console has asked the broker.",
        lambda said: [((), said.questions)],
        needs="",
    ),
    Row(
        "build_info",
        "Always 1; the label has the broker's version.",
        lambda said: [((said.status.get("version", ""),), 1.0)],
        ("version",),
    ),
    Row(
        "broker_state",
        "1 for the state that the broker is in, 0 for the others.",
        lambda said: [((state.value,), float(said.look.state == state)) for state in STATES],
        ("state",),
    ),
    Row("is_primary", "Whether it is recovering or active.", _status(_is_primary)),
    Row("epoch", "Epoch of its log: each promotion begins one.", _status(lambda s: s["epoch"])),
    Row(
        "state_change_timestamp_seconds",
        "When it came to its state, since 1970; none without a cluster.",
        _status(lambda s: s["since_ns"] / SECOND if s["since_ns"] else None),
    ),
    Row("members", "Brokers of the cluster, this one included, by state.", _members, ("state",)),
    Row(
        "expected_backups",
        "On a primary: the other brokers of the cluster.",
        _status(lambda s: len(_others(s)) if _is_primary(s) else None),
    ),
    Row(
        "ready_backups",
        "On a primary: those of them that are connected, in sync and ready.",
        _status(lambda s: sum(map(is_synced, _others(s))) if _is_primary(s) else None),
    ),
    Row(
        "in_sync_members",
        "Brokers of the in-sync set, as this broker knows it; none without a cluster.",
        _status(lambda s: len(s["in_sync"]["members"]) or None),
    ),
    Row("log_sequence", "Last record of its log.", _status(lambda s: s["sequence"])),
    Row(
        "log_committed_sequence",
        "Last record that every in-sync broker has.",
        _status(lambda s: s["committed"]),
    ),
    Row(
        "replication_unconfirmed_records",
        "On a primary: records that a backup has not confirmed.",
        _unconfirmed,
        ("backup",),
    ),
    Row(
        "replica_following",
        "Of a queue that is a replica of one elsewhere: whether it follows that closely.",
        _replicas(lambda row: row["state"] == "following"),
        ("queue",),
    ),
    Row(
        "replica_behind",
        "Of such a queue: messages and departures of its source that are known and not here.",
        _replicas(lambda row: row["behind"]),
        ("queue",),
    ),
    Row(
        "replica_late_seconds",
        "Of such a queue: for how long it may have lacked something.",
        _replicas(lambda row: row["late_ns"] / SECOND),
        ("queue",),
    ),
    Row(
        "replication_behind_records",
        "On a backup: records of the primary's log, as of its last heartbeat, that are not here.",
        _in_backup(lambda look: look.behind),
    ),
    Row(
        "replication_behind_seconds",
        "On a backup: how long the oldest of them has been known of.",
        _in_backup(lambda look: look.age),
    ),
    Row(
        "pending_acknowledgements",
        "Answers to clients that wait for backups or the disk.",
        _status(lambda s: s["pending_acknowledgements"]),
    ),
    Row(
        "records_set_aside",
        "Records of a former primary that were set aside, in data-dir.",
        _status(lambda s: s["records_set_aside"]),
    ),
    Row(
        "internal_errors_total",
        "Connections that were ended for a mistake of the broker.",
        _status(lambda s: s["internal_errors"]),
    ),
    Row(
        "tls_certificate_expiry_timestamp_seconds",
        "Until when its certificate is good, since 1970; none without TLS.",
        _status(lambda s: s.get("certificate_expires_ns", 0) / SECOND or None),
    ),
    Row(
        "memory_used_bytes",
        "Memory that memory-limit counts.",
        _status(lambda s: s["memory"]["used"]),
    ),
    Row("memory_limit_bytes", "memory-limit; 0 is none.", _status(lambda s: s["memory"]["limit"])),
    Row("journal_bytes", "Size of the write-ahead log.", _journal("bytes")),
    Row("journal_files", "Files of the write-ahead log.", _journal("files")),
    Row("journal_written_bytes_total", "Bytes written to it.", _journal("written")),
    Row("journal_syncs_total", "How often the disk has synced it.", _journal("syncs")),
    Row(
        "local_journal_bytes",
        "Size of the log of what this broker alone keeps (journal/local).",
        _journal("bytes", "local_journal"),
    ),
    Row("local_journal_files", "Files of that log.", _journal("files", "local_journal")),
    Row(
        "local_journal_written_bytes_total", "Bytes written.", _journal("written", "local_journal")
    ),
    Row(
        "local_journal_syncs_total",
        "How often the disk has synced it.",
        _journal("syncs", "local_journal"),
    ),
    Row(
        "local_messages",
        "Messages that only this broker has, as they are not replicated.",
        _journal("messages", "local_journal"),
    ),
    Row("local_queues", "Queues with such messages.", _journal("queues", "local_journal")),
    Row(
        "journal_sync_seconds",
        "How long the disk took for each sync that acknowledgements wait for.",
        _nothing,
        needs="statistics",
        histogram="sync_seconds",
    ),
    Row(
        "commit_seconds",
        "On a primary: how long records waited for backups and disks before they were committed.",
        _nothing,
        needs="statistics",
        histogram="commit_seconds",
    ),
    Row(
        "disk_free_bytes",
        "Free space of the file system of data-dir, as of a second ago.",
        _journal("free"),
    ),
    Row(
        "stall_seconds_total",
        "Time in which the broker heard nobody, in stalls of 0.1 s and more.",
        _statistic("stall_seconds"),
        needs="statistics",
    ),
    Row(
        "logins_accepted_total",
        "Clients, administrators and brokers that were let in.",
        _statistic("logins_accepted"),
        needs="statistics",
    ),
    Row(
        "logins_refused_total",
        "Those that were not: for credentials, certificate, limit, not_primary or not_allowed.",
        _by("logins_refused"),
        ("reason",),
        needs="statistics",
    ),
    Row(
        "promotions_total",
        "How often this broker became primary.",
        _statistic("promotions"),
        needs="statistics",
    ),
    Row(
        "promotion_seconds",
        "Of its last promotion: wait (from the loss of the primary until it was asked for), "
        "promote (until it was primary), recover (until it was active).",
        _by("promotion_seconds"),
        ("phase",),
        needs="statistics",
    ),
    Row(
        "unsafe_queues",
        "On a primary: queues with replicated messages that no ready backup has.",
        _statistic("unsafe_queues"),
        needs="statistics",
    ),
    Row(
        "unsafe_messages",
        "On a primary: replicated messages that no ready backup has.",
        _statistic("unsafe_messages"),
        needs="statistics",
    ),
    Row(
        "unreplicated_queues",
        "Queues with messages that some in-sync broker has not yet; they are not acknowledged.",
        _statistic("unreplicated_queues"),
        needs="statistics",
    ),
    Row(
        "unreplicated_messages",
        "Messages that some in-sync broker has not yet.",
        _statistic("unreplicated_messages"),
        needs="statistics",
    ),
    Row("queues", "Queues.", _statistic("queues"), needs="statistics"),
    Row("exchanges", "Exchanges.", _statistic("exchanges"), needs="statistics"),
    Row(
        "connections",
        "AMQP connections: of clients, of other brokers, and to other brokers (outgoing).",
        _by("connections"),
        ("role",),
        needs="statistics",
    ),
    Row(
        "links",
        "Links to other brokers and clusters, by state; passive where this broker does not run "
        "them.",
        _by("links"),
        ("state",),
        needs="statistics",
    ),
    Row(
        "routes",
        "Routes over links, by state: waiting ones move no messages, and say why.",
        _by("routes"),
        ("state",),
        needs="statistics",
    ),
    Row(
        "routed_messages_total",
        "Messages that came over routes (in), and that left over them (out).",
        _by("routed_messages"),
        ("direction",),
        needs="statistics",
    ),
    Row(
        "route_lag_messages",
        "Messages that wait for routes: here, or at the other end as far as that says it.",
        _statistic("route_lag"),
        needs="statistics",
    ),
    Row("consumers", "Consumers of all queues.", _statistic("consumers"), needs="statistics"),
    Row("messages", "Messages on all queues.", _statistic("messages"), needs="statistics"),
    Row("messages_bytes", "Bytes of these messages.", _statistic("bytes"), needs="statistics"),
    Row(
        "messages_paged_out_bytes",
        "Bytes of them that are on disk only.",
        _statistic("paged_out"),
        needs="statistics",
    ),
    Row(
        "messages_acquired",
        "Messages that consumers have, or that nobody may have yet.",
        _statistic("acquired"),
        needs="statistics",
    ),
    Row(
        "messages_delayed",
        "Messages that wait for the time of their delivery.",
        _statistic("delayed"),
        needs="statistics",
    ),
    Row(
        "messages_unplaced",
        "Dead messages that find no place where dead letters go.",
        _statistic("unplaced"),
        needs="statistics",
    ),
    Row(
        "messages_enqueued_total",
        "Messages that came to queues.",
        _statistic("enqueued"),
        needs="statistics",
    ),
    Row(
        "messages_dequeued_total",
        "Messages that left queues, by the cause.",
        _by("departures"),
        ("cause",),
        needs="statistics",
    ),
    Row(
        "messages_released_total",
        "Messages that consumers gave back.",
        _statistic("released"),
        needs="statistics",
    ),
    Row(
        "messages_refused_total",
        "Messages that found no room on their queue.",
        _statistic("refused"),
        needs="statistics",
    ),
    Row(
        "messages_deduplicated_total",
        "Messages that a queue had had before.",
        _statistic("deduplicated"),
        needs="statistics",
    ),
    Row(
        "messages_left_out_total",
        "Messages that were not for a queue, by its filter.",
        _statistic("left_out"),
        needs="statistics",
    ),
    Row(
        "messages_dropped_total",
        "Messages that were to go elsewhere and found no place there.",
        _statistic("not_rerouted"),
        needs="statistics",
    ),
    Row(
        "stopped_queues",
        "Queues that give their senders no credit.",
        _statistic("stopped_queues"),
        needs="statistics",
    ),
    Row(
        "waiting_senders",
        "Senders that wait for credit of such queues.",
        _statistic("waiting_senders"),
        needs="statistics",
    ),
    Row(
        "flow_stops_total",
        "How often queues stopped their senders.",
        _statistic("flow_stops"),
        needs="statistics",
    ),
    Row(
        "publishing_refused",
        "Whether no message is accepted, as a disk is full.",
        lambda said: [((), float(bool((said.statistics or {}).get("refuses"))))],
        needs="statistics",
    ),
    Row(
        "credit_withheld",
        "Whether senders get no credit, for memory or a disk.",
        lambda said: [((), float(bool((said.statistics or {}).get("withholds"))))],
        needs="statistics",
    ),
)


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One metric of a queue."""

    name: str
    help: str
    field: str
    """What `list_queues` calls it: a number, or numbers by the name of a backup."""
    labels: tuple[str, ...] = ("queue",)

    @property
    def kind(self) -> str:
        """Its type; a counter only grows while the queue exists."""
        return "counter" if self.name.endswith("_total") else "gauge"

    def lines(self, queues: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[str]:
        """Write the samples of queues, each given with the labels that all of its samples have."""
        name = PREFIX + self.name
        for labels, queue in queues:
            value = queue[self.field]
            if isinstance(value, dict):
                for backup, number in value.items():
                    if number is not None:
                        yield f'{name}{{backup="{_escaped(backup)}",{labels}}} {number}\n'
            elif value is not None:
                yield f"{name}{{{labels}}} {value + 0}\n"


DETAILED: dict[str, tuple[QueueRow, ...]] = {
    "queue": (
        QueueRow("queue_messages", "Messages on the queue.", "messages"),
        QueueRow("queue_bytes", "Bytes of its messages.", "bytes"),
        QueueRow("queue_acquired_messages", "Those that consumers have.", "acquired"),
        QueueRow("queue_delayed_messages", "Those that wait for their time.", "delayed"),
        QueueRow(
            "queue_unreplicated_messages",
            "Those that some in-sync broker has not yet.",
            "unreplicated",
        ),
        QueueRow(
            "queue_backup_behind_messages",
            "On a primary: those that a backup has not confirmed; none while that is not known.",
            "backups",
            ("queue", "backup"),
        ),
        QueueRow(
            "queue_oldest_message_age_seconds",
            "How long its oldest message has been there; it may be more if it was there before "
            "this broker could see it come; none for an empty queue.",
            "oldest_age_seconds",
        ),
        QueueRow("queue_unplaced_messages", "Dead ones that find no place.", "dlx_pending"),
        QueueRow("queue_consumers", "Its consumers.", "consumers"),
        QueueRow("queue_stopped", "Whether its senders get no credit.", "flow_stopped"),
        QueueRow("queue_enqueued_total", "Messages that came.", "enqueued"),
        QueueRow("queue_dequeued_total", "Messages that left.", "dequeued"),
        QueueRow("queue_refused_total", "Messages that found no room.", "refused"),
    )
}
"""The families of `/metrics/detailed`."""
CUT = Row("detailed_is_cut", "Whether more queues match than `limit` let in.", _nothing)


@dataclass(slots=True, eq=False)
class Families(Collector):
    """What one scrape says, for the encoder of prometheus_client."""

    families: list[Metric] = field(default_factory=list)

    def collect(self) -> Iterator[Metric]:
        """Hand it out."""
        yield from self.families

    def describe(self) -> list[Metric]:
        """Say nothing beforehand: what there is depends on the broker."""
        return []

    def encoded(self, accept: str) -> tuple[bytes, str]:
        """Return the text in the format that is asked for, and its content type."""
        encoder, content_type = choose_encoder(accept)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return encoder(registry), content_type


@dataclass(slots=True)
class QueueFamilies:
    """What a scrape of each queue says. prometheus_client writes the heads only: of 10,000 queues
    there are more than 100,000 samples, and it takes several times as long for each.
    """

    labels: dict[str, str]
    """Those of every metric."""
    rows: Sequence[QueueRow]
    queues: Sequence[dict[str, Any]]
    is_cut: bool

    def encoded(self, accept: str) -> tuple[bytes, str]:
        """Return the text in the format that is asked for, and its content type."""
        end, content_type = Families().encoded(accept)
        same = _written(self.labels)
        queues = [(f'{same},queue="{_escaped(queue["name"])}"', queue) for queue in self.queues]
        parts: list[bytes] = []
        for row in self.rows:
            head, _ = Families([_family(row, row.labels)]).encoded(accept)
            parts += (head.removesuffix(end), "".join(row.lines(queues)).encode())
        cut = _family(CUT, ())
        _add(cut, list(self.labels.values()), self.is_cut)
        parts.append(Families([cut]).encoded(accept)[0])
        return b"".join(parts), content_type


def _written(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items()))


def _escaped(value: str) -> str:
    """Write the value of a label."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _family(row: Row | QueueRow, labels: Sequence[str]) -> Metric:
    full = [*CONSTANT, *labels]
    name = PREFIX + row.name
    if row.kind == "histogram":
        return HistogramMetricFamily(name, row.help, labels=full)
    if row.kind == "counter":
        return CounterMetricFamily(name.removesuffix("_total"), row.help, labels=full)
    return GaugeMetricFamily(name, row.help, labels=full)


async def aggregated(brokers: Sequence[Watched], cluster: str) -> Families:
    """Ask every broker, all at the same time, and say what each is like as a whole."""
    found = await asyncio.gather(*map(_asked, brokers))
    families = []
    for row in METRICS:
        family = _family(row, row.labels)
        for said in found:
            if row.needs and said.look.status is None:
                continue
            if row.needs == "statistics" and said.statistics is None:
                continue
            found_times = (said.statistics or {}).get(row.histogram)
            if found_times is not None:
                _add_histogram(family, [cluster, said.look.name], found_times)
            for labels, value in row.read(said):
                _add(family, [cluster, said.look.name, *labels], value)
        families.append(family)
    return Families(families)


def _add(family: Metric, labels: list[str], value: float) -> None:
    assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
    family.add_metric(labels, float(value))


def _add_histogram(family: Metric, labels: list[str], found: dict[str, Any]) -> None:
    """Add what a broker counted in buckets; Prometheus wants each with all below it."""
    assert isinstance(family, HistogramMetricFamily)
    bounds = [*map(str, found["bounds"]), "+Inf"]
    buckets = list(zip(bounds, map(float, accumulate(found["counts"])), strict=True))
    family.add_metric(labels, buckets, found["sum"])


async def _asked(broker: Watched) -> Said:
    begun = time.monotonic()

    async def look() -> tuple[Look, float]:
        return await broker.look(), time.monotonic() - begun

    async def statistics() -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = await broker.ask("statistics")
        except (NotAnswered, RefusedRequest):
            return None
        return found

    (seen, seconds), counted = await asyncio.gather(look(), statistics())
    return Said(seen, counted, seconds, broker.looks)


async def detailed(
    broker: Watched, cluster: str, family: str, glob: str = "*", limit: int = 500
) -> QueueFamilies:
    """Say what each queue is like whose name matches, in the order of names, up to `limit` of them.
    Raises NotAnswered and RefusedRequest.
    """
    rows = DETAILED[family]
    queues, is_cut = await _queues(broker, glob, limit, [row.field for row in rows])
    labels = dict(zip(CONSTANT, (cluster, broker.name), strict=True))
    return QueueFamilies(labels, rows, queues, is_cut)


async def _queues(
    broker: Watched, glob: str, limit: int, fields: Sequence[str]
) -> tuple[list[dict[str, Any]], bool]:
    """Return the queues whose names match a glob, and whether there are more than `limit`."""
    is_match = re.compile(fnmatch.translate(glob)).match
    parts = re.split(r"[*?]", glob.partition("[")[0])
    params = {"match": max(parts, key=len), "fields": " ".join(("name", *fields)), "limit": PAGE}
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        page = await broker.ask("list_queues", {**params, "after": after})
        found += [queue for queue in page if is_match(queue["name"])]
        if len(found) > limit:
            return found[:limit], True
        if len(page) < PAGE:
            return found, False
        after = page[-1]["name"]
