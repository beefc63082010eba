"""Checkers: one function for each property that must hold, whatever happens. Each raises
`Violation`.

They look from outside: at what clients sent, were told and got (`history.Facts`), and at what is on
the queues. The first of them is jepsen's total-queue: accepted, less consumed, less what is still
there, is nothing.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from qpidha.broker.queues.queue import Queue
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.features import DEPARTURE_CAUSES, FEDERATION, QUEUE_KINDS, QUEUE_REPLICATION
from qpidha.model.records import (
    Cause,
    Dequeued,
    Enqueued,
    FeatureEnabled,
    LevelChanged,
    LifeStarted,
    LinkDeclared,
    LinkDeleted,
    PolicyCleared,
    PolicySet,
    QueueDeclared,
    ReplicaEnded,
    ReplicaSet,
    RouteDeclared,
    RouteDeleted,
)
from qpidha.store.codec import EnqueueRun, decode
from tests.sim.history import REFUSED, Facts, Violation, is_present, key_of
from tests.sim.model_node import whole
from tests.sim.plan import KEPT
from tests.sim.valuing import is_replaced

Contents = dict[str, dict[str, bool]]
"""Queue -> key -> True, in the order of the queue."""

LEGAL = {
    ("standalone", "joining"),
    ("joining", "catchup"),
    ("joining", "recovering"),
    ("catchup", "ready"),
    ("ready", "recovering"),
    ("ready", "catchup"),
    ("catchup", "recovering"),
    ("recovering", "active"),
    ("recovering", "joining"),
    ("active", "joining"),
}
"""As docs/internals/states.md has it, not read from the product; beside it, one who caught up from
a primary that is gone may be promoted.
"""


def contents(machine: Any, *, shared: str = "") -> Contents:
    """Read every queue of a broker, but those that it keeps for itself (`keeping.py`). One
    transmission is at most once on each, but for the `shared` one that several queues lead to.
    """
    found: Contents = {}
    for name, queue in machine.node.broker.queues.items():
        if name.startswith(KEPT):
            continue
        keys = found[name] = {}
        for sequence in list(queue.ordered()):
            message = queue.messages.get(sequence)
            if message is not None:
                key = key_of(whole(message))
                if key in keys and name != shared:
                    raise Violation(
                        f"one transmission twice: {key} is on queue {name} of "
                        f"{machine.host} two times"
                    )
                keys[key] = True
    return found


def no_loss(facts: Facts, present: Contents, where: str) -> None:
    """Accepted, less consumed, less still there, is nothing."""
    facts.look(present)
    missing = [
        duty.key
        for (queue, _), duty in facts.duties.items()
        if owed(duty)
        and not is_present(duty, present)
        and not is_replaced(facts, queue, duty, present)
    ]
    if missing:
        raise Violation(
            f"lost: {len(missing)} accepted messages are gone from {where}: "
            f"{', '.join(missing[:5])}"
        )


def owed(duty: Any) -> bool:
    """Tell whether a message must be somewhere."""
    is_gone = duty.consumed or duty.excused or duty.purged or duty.adrift
    return duty.accepted and not (is_gone or duty.known_again)


def nothing_taken(facts: Facts, present: Contents, others: list[Any], where: str) -> None:
    """A broker that comes up without content takes nothing from one that has it."""
    for other in others:
        has = contents(other, shared="rejected")
        taken = [
            duty.key
            for (queue, _), duty in facts.duties.items()
            if owed(duty)
            and not is_present(duty, present)
            and is_present(duty, has)
            and not is_replaced(facts, queue, duty, present)
        ]
        if taken:
            raise Violation(
                f"lost: {where} was promoted over {other.host}, which is complete and has "
                f"{', '.join(taken[:5])}"
            )


def all_or_nothing(facts: Facts, present: Contents, where: str) -> None:
    """What was posted in one transaction is on all of its queues, or on none.

    A message may reach a receiver before it is committed, and be gone after a failover with all of
    its transaction: only what is on a queue, or was consumed with the broker's consent, shows that
    the transaction happened.
    """
    for key, queues in facts.in_transactions.items():
        duties = {queue: facts.duties[queue, key] for queue in queues}
        if any(
            duty.excused or duty.purged or duty.adrift or (queue, key) in facts.known_again
            for queue, duty in duties.items()
        ):
            continue
        happened = any(
            is_present(duty, present) or (queue, key) in facts.settled
            for queue, duty in duties.items()
        )
        missing = [
            queue
            for queue, duty in duties.items()
            if not (
                duty.consumed
                or is_present(duty, present)
                or is_replaced(facts, queue, duty, present)
            )
        ]
        if happened and missing:
            raise Violation(
                f"half a transaction: {where} has {key} on some of its queues, and not "
                f"on {', '.join(missing)}"
            )


def nothing_unexpected(facts: Facts, present: Contents, where: str) -> None:
    """What is on a queue was sent there, and was not refused."""
    for name, keys in present.items():
        for key in keys:
            if not facts.may_be(name, key):
                raise Violation(
                    f"unexpected: {key} is on queue {name} of {where}, and nobody sent it there"
                )
            if facts.transmissions[key].state == REFUSED:
                raise Violation(
                    f"unexpected: {key} is on queue {name} of {where}, though its sender "
                    "was refused"
                )


def moved_whole(facts: Facts, present: Contents, where: str) -> None:
    """What was moved in a transaction is no longer where it came from."""
    for origin, place in facts.moves.items():
        both = [key for key in present.get(place, ()) if key in present.get(origin, ())]
        if both:
            raise Violation(
                f"half a transaction: {where} has {', '.join(both[:5])} on {place}, and "
                f"still on {origin}"
            )


def order_kept(facts: Facts, present: Contents, where: str) -> None:
    """What one sender sent to a queue is there in the order in which it was sent."""
    elsewhere = (*facts.alternates.values(), *facts.moves.values())
    for name, keys in present.items():
        last: dict[str, int] = {}
        for key in keys if name not in elsewhere else ():
            if facts.is_displaced(name, key):
                continue
            in_order(facts, last, name, key, where)


def in_order(
    facts: Facts, last: dict[str, int], queue: str, key: str, where: str, *, lane: str = ""
) -> None:
    """What comes next from a sender was sent after the `last` of it, or of it in one `lane`; of
    several times that it was sent, one will do.

    What was still on its way on a connection that its sender gave up may come after what he sent
    again on the next one.
    """
    transmission = facts.transmissions[key]
    who = transmission.sender + lane
    behind = last.get(who, 0)
    number = next((number for number in transmission.numbers if number > behind), 0)
    if not number and transmission.was_in_doubt:
        return
    if not number:
        raise Violation(
            f"order: {key} comes after number {behind} of its sender on queue {queue} of {where}"
        )
    last[who] = number


def expected_delivery(facts: Facts, queue: str, key: str, where: str) -> None:
    """What a receiver gets was sent to that queue."""
    if not facts.may_be(queue, key):
        raise Violation(f"unexpected: {where} gave {key} from queue {queue}, where nobody sent it")


def settled_stays_settled(facts: Facts, receiver: Any, key: str, where: str) -> None:
    """A receiver that was told that its acceptance is committed never sees that message again, nor
    does one that comes later.

    But for one that goes to a primary cut off from the others, which cannot know that its time is
    over: nobody waits for leases here. What such a primary is told will not count, but what it
    gives is seen. And what was given to another receiver, who was then taken for dead, may still be
    on its way. While a queue is not on every broker, what was settled there goes with its primary.
    """
    by = facts.settled.get((receiver.address, key))
    if by is None or (by.receiver != receiver.host and receiver.since < by.when):
        return
    if receiver.epoch < by.epoch:
        facts.stale_deliveries += 1
        return
    duty = facts.duties.get((receiver.address, key))
    if duty is not None and duty.adrift and receiver.epoch > by.epoch:
        return
    raise Violation(
        f"seen again: {where} gave {key} from queue {receiver.address} in epoch {receiver.epoch}, "
        f"and its consumption was settled in epoch {by.epoch}"
    )


def one_primary_each_epoch(
    primaries: dict[int, tuple[str, int]], epoch: int, who: tuple[str, int]
) -> None:
    """No epoch has two primaries."""
    known = primaries.setdefault(epoch, who)
    if known != who:
        raise Violation(f"two primaries: {known[0]} and {who[0]} are both primary in epoch {epoch}")


def one_acknowledging(facts: Facts, epoch: int, sent: int, key: str, where: str) -> None:
    """Once a primary has accepted something, no earlier one accepts what was sent after that (but
    for what was consumed).
    """
    for later, first in facts.first_acceptance.items():
        if later > epoch and first < sent:
            raise Violation(
                f"two acknowledging primaries: {where} of epoch {epoch} accepted {key}, "
                f"sent after epoch {later} had begun to"
            )


def committed_is_everywhere(machine: Any, cluster: Any, committed: int) -> None:
    """What a primary calls committed is confirmed by every member of its set (S1), on its present
    link (S6), and they are enough (S7).
    """
    links = {
        system_id: backup.connection_id for system_id, backup in cluster.primary.backups.items()
    }
    confirmed = {
        system_id: machine.confirmed.get(connection, 0) for system_id, connection in links.items()
    }
    for member in cluster.primary.in_sync.members:
        if member != machine.system_id and confirmed.get(member, 0) < committed:
            has = (
                f"{confirmed[member]} on its link"
                if member in confirmed
                else "nothing: it has no link"
            )
            raise Violation(
                f"not committed: {machine.host} calls {committed} committed, and {member} of its "
                f"set has confirmed {has}"
            )
    members, least = cluster.primary.in_sync.members, machine.cluster.settings.ha_min_in_sync
    if len(members) < least:
        raise Violation(
            f"too few: {machine.host} calls {committed} committed with {len(members)} in sync, and "
            f"ha-min-in-sync is {least}"
        )


def only_known(
    enabled: dict[str, set[int]], known: tuple[str, ...], data: bytes, committed: int, where: str
) -> None:
    """A broker is sent nothing that its version does not know, and nothing of a feature before the
    record that enables it is committed. `enabled` gathers where such records were.
    """
    for entry in decode(data):
        if isinstance(entry, EnqueueRun):
            continue
        sequence, record = entry
        feature = ""
        if isinstance(record, FeatureEnabled):
            feature = record.name
            enabled.setdefault(feature, set()).add(sequence)
        elif isinstance(
            record,
            Dequeued
            | QueueDeclared
            | LevelChanged
            | PolicySet
            | PolicyCleared
            | ReplicaSet
            | ReplicaEnded
            | LifeStarted
            | LinkDeclared
            | LinkDeleted
            | RouteDeclared
            | RouteDeleted,
        ):
            if isinstance(record, Dequeued):
                feature = DEPARTURE_CAUSES if record.cause else ""
            elif isinstance(record, ReplicaSet | ReplicaEnded | LifeStarted):
                feature = QUEUE_REPLICATION
            elif isinstance(record, LinkDeclared | LinkDeleted | RouteDeclared | RouteDeleted):
                feature = FEDERATION
            else:
                is_base = isinstance(record, QueueDeclared) and not (
                    record.fallback or record.implied
                )
                feature = "" if is_base else QUEUE_KINDS
            if feature and not any(point <= committed for point in enabled.get(feature, ())):
                raise Violation(
                    f"too early: {where} was sent a record of {feature} with the log committed up "
                    f"to {committed}, and what enables it is not"
                )
        if feature and feature not in known:
            raise Violation(f"not known: {where} was sent a record of {feature}")


def counted_was_said(machine: Any, cluster: Any) -> None:
    """What a primary counts as confirmed by a backup was confirmed on the link that the backup has
    now (S6).
    """
    for backup in cluster.primary.backups.values():
        said = machine.confirmed.get(backup.connection_id, 0)
        if backup.confirmed > said:
            raise Violation(
                f"not said: {machine.host} counts {backup.confirmed} as confirmed by "
                f"{backup.name}, which said {said} on its link"
            )


def limits_hold(
    limits: dict[str, dict[str, int]], crossed: dict[str, dict[tuple[str, int], int]], machine: Any
) -> None:
    """No queue of a primary has more messages than it may have, but for those that are elsewhere
    already and leave when that is recorded. When that record is lost with a primary they are on
    both: `crossed` says how many there were at most, by queue and by who decided.
    """
    who = (machine.host, machine.life)
    for name, arguments in limits.items():
        queue = machine.node.broker.queues.get(name)
        if queue is None:
            continue
        counts = crossed.setdefault(name, {})
        counts[who] = max(counts.get(who, 0), len(queue.crossing))
        most = arguments["qpid.max_count"]
        most += max((count for each, count in counts.items() if each != who), default=0)
        if queue.staying > most:
            raise Violation(
                f"too many: queue {name} of {machine.host} has {queue.staying} messages, and "
                f"may have {most}"
            )


def handed_over(
    primaries: dict[int, tuple[str, int]], cluster: Any, result: dict[str, Any], where: str
) -> None:
    """Who is said to have taken over became primary, of the epoch that is named."""
    who = primaries.get(result["epoch"], ("nobody", 0))[0]
    if who not in cluster.by_name or cluster.by_name[who].system_id != result["system_id"]:
        raise Violation(
            f"not handed over: {where} says to {result['system_id']}, epoch "
            f"{result['epoch']}, of which {who} was primary"
        )


def legal_change(before: str, after: str, who: str) -> None:
    """Only changes of the table happen."""
    if (before, after) not in LEGAL:
        raise Violation(f"illegal change of {who}: {before} -> {after}")


def causes_hold(facts: Facts, machine: Any) -> None:
    """What a log says of why messages left is true: clients accept and reject them, queues are
    purged, and nothing else makes them leave.
    """
    queues = {queue.uid: queue.name for queue in machine.node.broker.queues.values()}
    keys: defaultdict[int, dict[int, str]] = defaultdict(dict)  # by queue and number
    log = machine.node.log
    for batch in log.batches(log.start):
        for entry in decode(batch.data):
            if isinstance(entry, EnqueueRun):
                pairs = zip(entry.sequences, entry.payloads, strict=True)
                keys[entry.queue].update({each: key_of(payload) for each, payload in pairs})
            elif isinstance(entry[1], Enqueued):
                for uid in entry[1].queues:
                    keys[uid][entry[0]] = key_of(entry[1].payload)
            elif isinstance(entry[1], LevelChanged) and not entry[1].logged:
                # The log has no messages of it any more: a later primary gives their numbers again,
                # and what has one may leave before it is recorded.
                keys.pop(entry[1].queue, None)
            elif isinstance(entry[1], Dequeued) and entry[1].cause != Cause.ACCEPTED:
                queue, cause = queues.get(entry[1].queue, ""), entry[1].cause
                if cause > max(Cause):
                    continue  # A later version wrote it, and alone knows what it means.
                for sequence in entry[1].sequences:
                    # Of messages that the log does not have only the kind of cause can be judged.
                    place = (queue, keys[entry[1].queue].get(sequence, ""))
                    # Of a queue that is gone, or has another uid, the name is not known.
                    is_gone = not queue and (facts.levels or bool(facts.deletions))
                    if cause == Cause.PURGED and (
                        queue in facts.purges or (is_gone and facts.purges)
                    ):
                        continue
                    if cause == Cause.EXPIRED and (not place[1] or place[1] in facts.timed):
                        continue
                    if cause == Cause.DELETED and (queue in facts.deletions or is_gone):
                        continue
                    if cause == Cause.REPLACED and (queue in facts.valued or not queue):
                        continue
                    if cause == Cause.MOVED and (queue in facts.shifts or not queue):
                        continue
                    if cause == Cause.DELIVERY_LIMIT and facts.dies:
                        continue
                    if cause != Cause.REJECTED or (all(place) and place not in facts.rejections):
                        raise Violation(
                            f"wrong cause: {machine.host} has in its log that message {sequence} "
                            f"{place} left its queue as {Cause(cause).name}"
                        )


def backups_equal(machines: list[Any]) -> None:
    """When nothing happens, every backup has exactly what the primary has."""
    primary = next(machine for machine in machines if machine.state is BrokerStatus.ACTIVE)
    expected = picture(primary)
    for machine in machines:
        found = picture(machine)
        if found != expected:
            different = [
                key
                for key in dict.fromkeys([*expected, *found])
                if expected.get(key) != found.get(key)
            ]
            key = different[0]
            raise Violation(
                f"not equal: {machine.host} and primary {primary.host} differ in {key}: "
                f"{str(found.get(key))[:200]} and {str(expected.get(key))[:200]}"
            )


def picture(machine: Any) -> dict[str, Any]:
    """Write down all that is replicated on a broker."""
    broker = machine.node.broker
    found: dict[str, Any] = {
        "features": dict(broker.features),
        "policies": broker.policies.records(),
        "links": (broker.federation.links, broker.federation.routes),
    }
    for uid, thing in broker.by_uid.items():
        if uid > 0:
            found[f"{type(thing).__name__} {thing.name}"] = (uid, thing.options)
            if isinstance(thing, Queue):
                found[f"spec of {thing.name}"] = thing.spec
                messages = [
                    thing.messages[sequence]
                    for sequence in thing.ordered()
                    if thing.logged and sequence in thing.messages
                ]
                if thing.logged and thing.window is not None:
                    found[f"window of {thing.name}"] = [
                        thing.window.size,
                        *thing.window.parts(1000),
                    ]
                found[f"messages of {thing.name}"] = [
                    (m.sequence, m.delivery_count, m.annotations, whole(m)) for m in messages
                ]
    for exchange in broker.exchanges.values():
        rows = sorted((queue.uid, key) for queue, key, _ in exchange.bindings() if queue.uid > 0)
        found[f"bindings of {exchange.name}"] = rows
    return found


def all_ready(machines: list[Any]) -> bool:
    """Whether one broker is active, all others are ready, and it counts them all."""
    active = [
        machine for machine in machines if machine.is_up and machine.state is BrokerStatus.ACTIVE
    ]
    ready = [
        machine for machine in machines if machine.is_up and machine.state is BrokerStatus.READY
    ]
    if len(active) != 1 or len(ready) != len(machines) - 1:
        return False
    primary = active[0].node.cluster.primary
    return len(primary.in_sync.members) == len(machines) and all(
        machine.system_id in primary.backups for machine in ready
    )


def is_quiet(machines: list[Any]) -> bool:
    """Whether everything that was appended is committed, and applied by every backup."""
    if not all_ready(machines):
        return False
    last = next(
        machine.node.log.last for machine in machines if machine.state is BrokerStatus.ACTIVE
    )
    for machine in machines:
        cluster, log = machine.node.cluster, machine.node.log
        if (
            log.last != last
            or log.committed != last
            or machine.node.broker.levels.changing
            or any(queue.unrecorded[1] for queue in machine.node.broker.queues.values())
            or (cluster.backup is not None and cluster.backup.applied != last)
        ):
            return False
    return True
