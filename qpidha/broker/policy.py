"""Policies: settings for the queues whose names match a pattern, now and later.

A user's policy and an operator's are kept apart. Of the policies of one kind that fit a queue, the
one with the highest priority counts, of two the one whose name comes first; a layer counts beside
it and beside other layers, and what it says replaces what those of lower priority say. So there is
at most one value for a name from each kind, and one rule (`Followed.merged`) makes one of what the
operator's policy, the queue's own arguments and the user's policy say: where the smallest counts
(`ByPolicy` in `vocabulary.py`) that is the smallest, else it is the first that says anything.

All of this is a function of the records and of the queue's declaration. It knows no clock, and a
broker that gets policies and queues with a snapshot comes to the same as one that saw them change.
Knows nothing of queues but what they were declared with. Source: RabbitMQ's guide to policies;
Qpid has none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from json import dumps
from typing import TYPE_CHECKING, Any

from qpidha.broker.pattern import Pattern, compile_pattern
from qpidha.broker.queues.arguments import check_name, check_plain
from qpidha.broker.queues.limits import MAX_COUNT, MAX_SIZE
from qpidha.broker.queues.priority import read_priorities
from qpidha.broker.queues.spec import check_queue_arguments
from qpidha.broker.translation import translate_policy
from qpidha.broker.vocabulary import ByPolicy, Kind, find
from qpidha.model.errors import InvalidArgument
from qpidha.model.records import PolicyCleared, PolicySet
from qpidha.model.replication_level import ALL, REPLICATE, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from qpidha.model.records import QueueDeclared, Record

MOST_POLICIES = 500
"""Of users, and of operators: each is looked at for each queue."""
LARGEST_DEFINITION = 16_384
"""Characters, as JSON."""
PRIORITIES = 2**31
LAST_VALUE = "qpid.last_value_queue_key"
OWN_LIMITS = (MAX_COUNT, MAX_SIZE)
"""A queue that was declared with one of these says with it what happens when it is full."""
ARGUMENT = "argument"
"""Where a value comes from that is a queue's own."""

APPLY_TO: dict[str, Callable[[QueueDeclared], bool]] = {
    "all": lambda queue: True,
    "queues": lambda queue: True,
    "classic_queues": lambda queue: True,
    "replicated_queues": lambda queue: queue.replicate == ALL,
    "quorum_queues": lambda queue: queue.replicate == ALL,
    "lvq": lambda queue: LAST_VALUE in queue.arguments,
    "priority_queues": lambda queue: read_priorities(queue.arguments) is not None,
}
"""What a policy may be for, and whether a queue is that."""
NOT_FOR = {
    "exchanges": "policies are for queues: what an exchange does, and its alternate exchange, is "
    "decided when it is declared",
    "streams": "there are none",
}
"""What policies of RabbitMQ may be for, and these are not, with the reason."""
BY_LEVEL = ("replicated_queues", "quorum_queues")
"""Of them, those that depend on the replicate level."""


class Policy:
    """One policy."""

    __slots__ = ("_fits", "_is_for", "record", "sequence")

    def __init__(self, sequence: int, record: PolicySet) -> None:
        self.sequence = sequence
        self.record = record
        self._is_for = APPLY_TO.get(record.apply_to)
        self._fits: Pattern | None = None
        try:
            self._fits = compile_pattern(record.pattern)
        except InvalidArgument:
            pass  # A later version of the broker took it. It was checked there, and is for nothing.

    @property
    def rank(self) -> tuple[int, str]:
        """What policies are ordered by: the one that counts most comes first."""
        return -self.record.priority, self.record.name

    @property
    def cost(self) -> int:
        """What it takes at worst to look whether it is for a queue."""
        return 1 if self._fits is None else self._fits.cost

    @property
    def title(self) -> str:
        """What it is called where others are named as well."""
        return f"{'operator policy' if self.record.is_operator else 'policy'} {self.record.name}"

    def misses(self, queue: QueueDeclared) -> str:
        """Say why it is not for a queue; empty if it is."""
        if self._is_for is None or not self._is_for(queue):
            return f"it is for {self.record.apply_to}"
        if self._fits is None or not self._fits.fits(queue.name):
            return f"the name does not match {self.record.pattern}"
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """The policies of one kind that are for a queue, and what they say together."""

    matched: tuple[Policy, ...]
    """The one that counts most first."""
    used: tuple[Policy, ...]
    """Those that count: what stands later replaces what stands before."""
    settings: dict[str, tuple[Any, str]]
    """By name, each with the title of the policy that says so."""
    implied: dict[str, tuple[Any, str]]

    @classmethod
    def of(cls, matched: tuple[Policy, ...]) -> Layers:
        """Put policies together."""
        base = [policy for policy in matched if not policy.record.is_layer][:1]
        used = (*base, *reversed([policy for policy in matched if policy.record.is_layer]))
        settings: dict[str, tuple[Any, str]] = {}
        implied: dict[str, tuple[Any, str]] = {}
        for policy in used:
            for found, told in (
                (settings, policy.record.settings),
                (implied, policy.record.implied),
            ):
                found.update((name, (value, policy.title)) for name, value in told.items())
        return cls(matched, used, settings, implied)


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """What the policies say of one queue."""

    users: Layers
    operators: Layers

    def values(self, queue: QueueDeclared) -> dict[str, list[tuple[Any, str]]]:
        """Return all that is said of each name, with who says it; what counts is first."""
        found: dict[str, list[tuple[Any, str]]] = {}
        arguments = queue.arguments
        if queue.fallback:
            # It asks for no level: the one that is written there came of what others say.
            arguments = {**arguments}
            arguments.pop(REPLICATE, None)
        own = {name: (value, ARGUMENT) for name, value in arguments.items()}
        for source in (self.operators.settings, own, self.users.settings):
            for name, value in source.items():
                found.setdefault(name, []).append(value)
        for source in (self.operators.implied, self.users.implied):
            for name, value in source.items():
                if name not in found and not any(limit in arguments for limit in OWN_LIMITS):
                    found[name] = [value]
        for name, values in found.items():
            entry = find(Kind.QUEUE, name)
            if len(values) > 1 and entry is not None and entry.by_policy is ByPolicy.SMALLEST:
                values.sort(key=lambda value: _size(value[0], entry.unlimited))
        return found

    def merged(self, queue: QueueDeclared) -> dict[str, Any]:
        """Return the arguments of a queue as the policies have them."""
        return {name: values[0][0] for name, values in self.values(queue).items()}

    def effective(self, queue: QueueDeclared) -> dict[str, Any]:
        """Return what counts because a policy says so."""
        return {
            name: values[0][0]
            for name, values in sorted(self.values(queue).items())
            if values[0][1] != ARGUMENT
        }

    @property
    def level(self) -> str:
        """The replicate level for a queue that does not name one; empty if nothing is said."""
        return str(self.users.settings.get(REPLICATE, ("",))[0])


def _size(value: Any, unlimited: int | None) -> float:
    number = int(value)
    return float("inf") if number == unlimited else number


class Policies:
    """All policies of one broker."""

    def __init__(self) -> None:
        self._by_kind: dict[bool, dict[str, Policy]] = {False: {}, True: {}}
        self._cleared: tuple[int, PolicyCleared] | None = None
        self.last = 0
        """The sequence of the last change."""
        self.first_end = 0
        """When the next policy ends by itself, in ns since the Unix epoch; 0 for never."""
        self._known: dict[tuple[Policy, ...], Layers] = {}

    def __len__(self) -> int:
        return sum(len(policies) for policies in self._by_kind.values())

    def get(self, name: str, *, is_operator: bool = False) -> PolicySet | None:
        """Return the policy of this name, if there is one."""
        found = self._by_kind[is_operator].get(name)
        return None if found is None else found.record

    def ranked(self, *, is_operator: bool = False) -> list[Policy]:
        """Return policies of one kind, the one that counts most first."""
        return list(self._by_kind[is_operator].values())

    # Changes, by records.

    def apply(self, sequence: int, record: PolicySet | PolicyCleared) -> bool:
        """Take up a record; False for one whose effect is here already. A snapshot may show the
        effects of records that come after it.
        """
        if sequence <= self.last:
            return False
        self.last = sequence
        policies = self._by_kind[record.is_operator]
        policies.pop(record.name, None)
        if isinstance(record, PolicySet):
            policies[record.name] = Policy(sequence, record)
            ranked = sorted(policies.values(), key=lambda policy: policy.rank)
            self._by_kind[record.is_operator] = {policy.record.name: policy for policy in ranked}
        else:
            self._cleared = sequence, record
        self.first_end = min(filter(None, (one.expires for one in self._all())), default=0)
        self._known.clear()
        return True

    def records(self) -> list[tuple[int, Record]]:
        """Return the records that make these policies, in their order."""
        found: list[tuple[int, Record]] = [
            (policy.sequence, policy.record)
            for policies in self._by_kind.values()
            for policy in policies.values()
        ]
        if self._cleared is not None:
            found.append(self._cleared)
        return sorted(found, key=lambda pair: pair[0])

    def clear(self) -> None:
        """Forget all."""
        self._by_kind = {False: {}, True: {}}
        self._cleared = None
        self.last = self.first_end = 0
        self._known.clear()

    def ended(self, now: int) -> list[PolicySet]:
        """Return the policies that have come to their end."""
        return [record for record in self._all() if 0 < record.expires <= now]

    def _all(self) -> Iterator[PolicySet]:
        for policies in self._by_kind.values():
            for policy in policies.values():
                yield policy.record

    # What they say.

    def of(self, queue: QueueDeclared) -> Followed | None:
        """Return what the policies say of a queue; None if none is for it."""
        return self.of_now(queue, None, 0)

    def of_now(self, queue: QueueDeclared, former: Followed | None, since: int) -> Followed | None:
        """Return what the policies say of a queue, where `former` is what they said when the last
        change was that of sequence `since`.
        """
        found = []
        for is_operator, policies in self._by_kind.items():
            matched = [
                policy for policy in self.since(is_operator, since) if not policy.misses(queue)
            ]
            if former is not None:
                before = former.operators if is_operator else former.users
                matched += [one for one in before.matched if policies.get(one.record.name) is one]
                matched.sort(key=lambda policy: policy.rank)
            found.append(tuple(matched))
        return Followed(*(self._layers(each) for each in found)) if any(found) else None

    def since(self, is_operator: bool, sequence: int) -> list[Policy]:
        """Return the policies that were set after a sequence, the one that counts most first."""
        policies = self._by_kind[is_operator].values()
        return [policy for policy in policies if policy.sequence > sequence]

    def cost_since(self, sequence: int) -> int:
        """Return what it takes at worst to look which of the policies that were set after a
        sequence are for a queue.
        """
        return sum(policy.cost for kind in (True, False) for policy in self.since(kind, sequence))

    def _layers(self, matched: tuple[Policy, ...]) -> Layers:
        found = self._known.get(matched)
        if found is None:
            found = self._known[matched] = Layers.of(matched)
        return found


# -- new policies ---------------------------------------------------------------------------------


def policy_asked_for(
    name: str,
    pattern: str,
    definition: Mapping[str, Any],
    *,
    priority: int = 0,
    apply_to: str = "all",
    is_operator: bool = False,
    is_layer: bool = False,
    expires: int = 0,
) -> PolicySet:
    """Return the policy that is asked for; raise InvalidArgument for one that says what cannot be
    followed.
    """
    what = "operator policy" if is_operator else "policy"
    if not name:
        raise InvalidArgument(f"{what}: it has no name", hint="name it")
    check_name(f"{what} name", name)
    compile_pattern(pattern)
    if apply_to not in APPLY_TO:
        raise InvalidArgument(
            f"{what} {name}: apply-to={apply_to[:40]} is not offered",
            reason=NOT_FOR.get(apply_to, ""),
            hint=f"one of {', '.join(APPLY_TO)}",
        )
    if isinstance(priority, bool) or not -PRIORITIES <= priority < PRIORITIES:
        raise InvalidArgument(f"{what} {name}: the priority is {priority}", hint="use 32 bits")
    check_plain(definition)
    if len(dumps(definition)) > LARGEST_DEFINITION:
        raise InvalidArgument(
            f"{what} {name}: the definition is longer than {LARGEST_DEFINITION} characters",
            hint="say less",
        )
    settings, implied = translate_policy(definition)
    if not settings:
        raise InvalidArgument(f"{what} {name}: the definition is empty", hint="say what is to be")
    check_queue_arguments(settings)
    if REPLICATE in settings:
        _check_level(f"{what} {name}", settings, apply_to, is_operator)
    return PolicySet(
        name,
        pattern,
        dict(definition),
        settings,
        implied,
        priority,
        apply_to,
        is_operator,
        is_layer,
        expires,
    )


def _check_level(title: str, settings: Mapping[str, Any], apply_to: str, is_operator: bool) -> None:
    """Raise InvalidArgument for a replicate level that no policy can set."""
    resolve(settings, ALL)
    if is_operator:
        raise InvalidArgument(
            f"{title}: {REPLICATE} is not for operators",
            reason="how much others get of a queue is what its declaration asks for",
            hint="use an ordinary policy, for queues that do not ask",
        )
    if apply_to in BY_LEVEL:
        raise InvalidArgument(
            f"{title}: apply-to={apply_to} says of which {REPLICATE} a queue is, and the "
            "definition says another thing of it",
            hint="name the queues by the pattern, with --apply-to queues",
        )


# -- how they are shown ---------------------------------------------------------------------------


def listed(
    policies: Policies, followed: Iterable[Followed], *, is_operator: bool
) -> list[dict[str, Any]]:
    """Describe the policies of one kind, the one that counts most first, with what becomes of them
    on the queues.
    """
    matches: Counter[str] = Counter()
    uses: Counter[str] = Counter()
    shadowed: dict[str, set[str]] = {}
    level: dict[str, set[str]] = {}
    seen = Counter(each.operators if is_operator else each.users for each in followed)
    for layers, count in seen.items():
        base = next((one for one in layers.used if not one.record.is_layer), None)
        for policy in layers.matched:
            matches[policy.record.name] += count
            if policy in layers.used:
                uses[policy.record.name] += count
            elif base is not None:
                shadowed.setdefault(policy.record.name, set()).add(base.record.name)
        for one, other in combinations(layers.matched, 2):
            if (one.record.priority, one.record.is_layer) == (
                other.record.priority,
                other.record.is_layer,
            ):
                level.setdefault(one.record.name, set()).add(other.record.name)
                level.setdefault(other.record.name, set()).add(one.record.name)
    return [
        {
            **described(policy.record),
            "matches": matches[policy.record.name],
            "in_effect_on": uses[policy.record.name],
            "shadowed_by": sorted(shadowed.get(policy.record.name, ())),
            "warning": (
                f"has the priority of {', '.join(sorted(level[policy.record.name]))}: "
                "the name that comes first counts"
                if policy.record.name in level
                else ""
            ),
        }
        for policy in policies.ranked(is_operator=is_operator)
    ]


def described(record: PolicySet) -> dict[str, Any]:
    """Describe a policy as it was given."""
    return {
        "name": record.name,
        "pattern": record.pattern,
        "apply_to": record.apply_to,
        "priority": record.priority,
        "definition": record.definition,
        "merge": record.is_layer,
        "expires_ns": record.expires,
    }


def explained(
    policies: Policies, queue: QueueDeclared, followed: Followed | None
) -> dict[str, Any]:
    """Say of every policy why it counts for a queue or does not, and what comes of them all."""
    told = []
    for is_operator in (True, False):
        layers = None
        if followed is not None:
            layers = followed.operators if is_operator else followed.users
        for policy in policies.ranked(is_operator=is_operator):
            reason = policy.misses(queue)
            is_used = layers is not None and policy in layers.used
            told.append(
                {
                    "policy": policy.record.name,
                    "operator": is_operator,
                    "priority": policy.record.priority,
                    "matches": not reason,
                    "in_effect": is_used,
                    "reason": reason or _fate(policy, layers, is_used),
                }
            )
    settings = []
    if followed is not None:
        for name, values in sorted(followed.values(queue).items()):
            if any(source != ARGUMENT for _, source in values):
                settings.append(_setting(name, values))
    return {"queue": queue.name, "policies": told, "settings": settings}


def _fate(policy: Policy, layers: Layers | None, is_used: bool) -> str:
    """Say what becomes of a policy that matches."""
    if layers is None or not is_used:
        base = None if layers is None else layers.used[0]
        return "" if base is None else f"{base.title} comes before it"
    return "a layer, beside the others" if policy.record.is_layer else "it counts"


def _setting(name: str, values: list[tuple[Any, str]]) -> dict[str, Any]:
    entry = find(Kind.QUEUE, name)
    is_limit = entry is not None and entry.by_policy is ByPolicy.SMALLEST
    return {
        "name": name,
        "value": values[0][0],
        "from": values[0][1],
        "others": [{"value": value, "from": source} for value, source in values[1:]],
        "rule": "the smallest counts" if is_limit else "operator policy, argument, policy",
    }
