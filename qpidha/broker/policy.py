"""Policies: settings for the queues and exchanges whose names match a pattern, now and later.

A user's policy and an operator's are kept apart. Of the policies of one kind that fit a queue, the
one with the highest priority counts, of two the one whose name comes first; a layer counts beside
it and beside other layers, and what it says replaces what those of lower priority say. So there is
at most one value for a name from each kind, and one rule (`Followed.merged`) makes one of what the
operator's policy, the queue's own arguments and the user's policy say: where the smallest counts
(`ByPolicy` in `vocabulary.py`) that is the smallest, else it is the first that says anything.

It is the same with exchanges. A policy may say something of both: each takes what it knows, and a
policy that says nothing of exchanges is for none, so it is in no other's way there.

All of this is a function of the records and of the declaration. It knows no clock, and a broker
that gets policies and queues with a snapshot comes to the same as one that saw them change. Knows
nothing of queues and exchanges but what they were declared with. Source: RabbitMQ's guide to
policies; Qpid has none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from json import dumps
from typing import TYPE_CHECKING, Any, TypeAlias

from qpidha.broker.pattern import Pattern, compile_pattern
from qpidha.broker.queues.arguments import check_name, check_plain
from qpidha.broker.queues.dead_letters import DEAD_LETTER_EXCHANGE, DEAD_LETTER_KEY, key_in
from qpidha.broker.queues.limits import MAX_COUNT, MAX_SIZE, POLICY_TYPE
from qpidha.broker.queues.priority import FAIRSHARE, MOST_LEVELS, read_priorities, takes_shares
from qpidha.broker.queues.priority import PRIORITIES as LEVELS
from qpidha.broker.queues.spec import check_queue_arguments
from qpidha.broker.translation import policy_key, translated
from qpidha.broker.vocabulary import ALTERNATE, ByPolicy, Kind, find, is_policy_key
from qpidha.model.errors import InvalidArgument, coded
from qpidha.model.event_codes import POLICY_REFUSED
from qpidha.model.records import PolicyCleared, PolicySet, QueueDeclared
from qpidha.model.replication_level import ALL, REPLICATE, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from qpidha.model.records import ExchangeDeclared, Record

    Declared: TypeAlias = QueueDeclared | ExchangeDeclared

MOST_POLICIES = 500
"""Of users, and of operators: each is looked at for each queue and exchange."""
LARGEST_DEFINITION = 16_384
"""Characters, as JSON."""
PRIORITIES = 2**31
LAST_VALUE = "qpid.last_value_queue_key"
OWN_LIMITS = (MAX_COUNT, MAX_SIZE)
"""A queue that was declared with one of these says with it what happens when it is full."""
ARGUMENT = "argument"
"""Where a value comes from that is a queue's or an exchange's own."""
NOUNS = {Kind.QUEUE: "queue", Kind.EXCHANGE: "exchange"}
"""What policies can be for, by the kind of the arguments that they set."""
ALL_OF_THEM, EXCHANGES = "all", "exchanges"


def _is_queue(what: Declared) -> bool:
    return isinstance(what, QueueDeclared)


APPLY_TO: dict[str, Callable[[Declared], bool]] = {
    ALL_OF_THEM: lambda what: True,
    "queues": _is_queue,
    EXCHANGES: lambda what: not _is_queue(what),
    "classic_queues": _is_queue,
    "replicated_queues": lambda what: _is_queue(what) and what.replicate == ALL,
    "quorum_queues": lambda what: _is_queue(what) and what.replicate == ALL,
    "lvq": lambda what: _is_queue(what) and LAST_VALUE in what.arguments,
    "priority_queues": lambda what: _is_queue(what) and read_priorities(what.arguments) is not None,
}
"""What a policy may be for, and whether a queue or an exchange is that."""
NOT_FOR = {"streams": "there are none"}
"""What policies of RabbitMQ may be for, and these are not, with the reason."""
BY_LEVEL = ("replicated_queues", "quorum_queues")
"""Of them, those that depend on the replicate level."""


def kind_of(what: Declared) -> Kind:
    """Return the kind of the arguments that something is declared with."""
    return Kind.QUEUE if _is_queue(what) else Kind.EXCHANGE


def takes(what: Declared, name: str) -> bool:
    """Whether a queue or an exchange follows what policies say of a name."""
    if not is_policy_key(kind_of(what), name):
        return False
    return not name.startswith(FAIRSHARE) or takes_shares(what.arguments)


def says_of(kind: Kind, record: PolicySet) -> bool:
    """Whether a policy says something of queues, or of exchanges."""
    return any(is_policy_key(kind, name) for name in record.settings)


class Policy:
    """One policy."""

    __slots__ = ("_fits", "_is_for", "_says_of", "record", "sequence")

    def __init__(self, sequence: int, record: PolicySet) -> None:
        self.sequence = sequence
        self.record = record
        self._says_of = tuple(kind for kind in NOUNS if says_of(kind, record))
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
        """What it takes at worst to look whether it is for a queue or an exchange."""
        return 1 if self._fits is None else self._fits.cost

    @property
    def title(self) -> str:
        """What it is called where others are named as well."""
        return f"{'operator policy' if self.record.is_operator else 'policy'} {self.record.name}"

    def misses(self, what: Declared) -> str:
        """Say why it is not for a queue or an exchange; empty if it is."""
        if self._is_for is None or not self._is_for(what):
            return f"it is for {self.record.apply_to}"
        kind = kind_of(what)
        if kind not in self._says_of:
            return f"it says nothing of {NOUNS[kind]}s"
        if self._fits is None or not self._fits.fits(what.name):
            return f"the name does not match {self.record.pattern}"
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """The policies of one kind that are for a queue or an exchange, and what they say together."""

    matched: tuple[Policy, ...]
    """The one that counts most first."""
    used: tuple[Policy, ...]
    """Those that count: what stands later replaces what stands before."""
    settings: dict[str, tuple[Any, str]]
    """By name, each with the title of the policy that says so."""
    implied: dict[str, tuple[Any, str]]
    names: frozenset[str]
    """All of which one of them says something, whether or not that counts."""

    @classmethod
    def of(cls, kind: Kind, matched: tuple[Policy, ...]) -> Layers:
        """Put together what policies say of queues, or of exchanges."""
        base = [policy for policy in matched if not policy.record.is_layer][:1]
        used = (*base, *reversed([policy for policy in matched if policy.record.is_layer]))
        settings: dict[str, tuple[Any, str]] = {}
        implied: dict[str, tuple[Any, str]] = {}
        for policy in used:
            for found, told in (
                (settings, policy.record.settings),
                (implied, policy.record.implied),
            ):
                found.update(
                    (name, (value, policy.title))
                    for name, value in told.items()
                    if is_policy_key(kind, name)
                )
        names = frozenset(name for policy in matched for name in policy.record.settings)
        return cls(matched, used, settings, implied, names)


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """What the policies say of one queue or exchange."""

    users: Layers
    operators: Layers

    def values(self, what: Declared) -> dict[str, list[tuple[Any, str]]]:
        """Return all that is said of each name, with who says it; what counts is first."""
        found: dict[str, list[tuple[Any, str]]] = {}
        arguments, kind = _own(what), kind_of(what)
        implied = what.implied if isinstance(what, QueueDeclared) else ()
        own = {name: (value, ARGUMENT) for name, value in arguments.items() if name not in implied}
        for source in (self.operators.settings, own, self.users.settings):
            for name, value in source.items():
                if source is own or takes(what, name):
                    found.setdefault(name, []).append(value)
        for source in (self.operators.implied, self.users.implied):
            for name, value in source.items():
                if name not in found and self._comes(name, value[1], found, arguments):
                    found[name] = [value]
        for name in implied:
            if name not in found and name in arguments:
                found[name] = [(arguments[name], ARGUMENT)]
        for name, values in found.items():
            entry = find(kind, name)
            if len(values) > 1 and entry is not None and entry.by_policy is ByPolicy.SMALLEST:
                values.sort(key=lambda value: _size(value[0], entry.unlimited))
        _take_whole_target(found)
        return found

    @staticmethod
    def _comes(
        name: str,
        title: str,
        found: Mapping[str, list[tuple[Any, str]]],
        arguments: Mapping[str, Any],
    ) -> bool:
        """Whether what comes with a policy counts, as nobody says it."""
        if name == POLICY_TYPE:
            return not any(limit in arguments for limit in OWN_LIMITS)
        # Others come with what a full queue does: they count if that policy says it.
        return POLICY_TYPE in found and found[POLICY_TYPE][0][1] == title

    def merged(self, what: Declared) -> dict[str, Any]:
        """Return the arguments of a queue or an exchange as the policies have them."""
        return {name: values[0][0] for name, values in self.values(what).items()}

    def effective(self, what: Declared) -> dict[str, Any]:
        """Return what counts because a policy says so."""
        return {
            name: values[0][0]
            for name, values in sorted(self.values(what).items())
            if values[0][1] != ARGUMENT
        }

    def is_told_of(self, name: str) -> bool:
        """Whether a policy that is for it says something of a name, whether or not that counts."""
        return name in self.users.names or name in self.operators.names

    @property
    def level(self) -> str:
        """The replicate level for a queue that does not name one; empty if nothing is said."""
        return str(self.users.settings.get(REPLICATE, ("",))[0])


def _take_whole_target(found: dict[str, list[tuple[Any, str]]]) -> None:
    """Have an address that names a key be the whole target of dead letters: a key that somebody
    else says was meant for what they say themselves.
    """
    if DEAD_LETTER_KEY in found and DEAD_LETTER_EXCHANGE in found:
        address, source = found[DEAD_LETTER_EXCHANGE][0]
        key = key_in(str(address))
        if key is not None and found[DEAD_LETTER_KEY][0] != (key, source):
            found[DEAD_LETTER_KEY].insert(0, (key, source))


def _own(what: Declared) -> dict[str, Any]:
    """Return what a queue or an exchange was declared with, and policies may say otherwise."""
    if not isinstance(what, QueueDeclared):
        return {ALTERNATE: what.alternate} if what.alternate else {}
    if not what.fallback:
        return what.arguments
    # It asks for no level: the one that is written there came of what others say.
    return {name: value for name, value in what.arguments.items() if name != REPLICATE}


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
        self._known: dict[tuple[Kind, tuple[Policy, ...]], Layers] = {}

    def __len__(self) -> int:
        return sum(len(policies) for policies in self._by_kind.values())

    def find(self, name: str, *, is_operator: bool = False) -> Policy | None:
        """Return the policy of this name, if there is one."""
        return self._by_kind[is_operator].get(name)

    def get(self, name: str, *, is_operator: bool = False) -> PolicySet | None:
        """Return the record of the policy of this name, if there is one."""
        found = self.find(name, is_operator=is_operator)
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

    def of(self, what: Declared) -> Followed | None:
        """Return what the policies say of a queue or an exchange; None if none is for it."""
        return self.of_now(what, None, 0)

    def of_now(self, what: Declared, former: Followed | None, since: int) -> Followed | None:
        """Return what the policies say of a queue or an exchange, where `former` is what they said
        when the last change was that of sequence `since`.
        """
        found = []
        for is_operator, policies in self._by_kind.items():
            matched = [
                policy for policy in self.since(is_operator, since) if not policy.misses(what)
            ]
            if former is not None:
                before = former.operators if is_operator else former.users
                matched += [one for one in before.matched if policies.get(one.record.name) is one]
                matched.sort(key=lambda policy: policy.rank)
            found.append(tuple(matched))
        if not any(found):
            return None
        return Followed(*(self._layers(kind_of(what), each) for each in found))

    def since(self, is_operator: bool, sequence: int) -> list[Policy]:
        """Return the policies that were set after a sequence, the one that counts most first."""
        policies = self._by_kind[is_operator].values()
        return [policy for policy in policies if policy.sequence > sequence]

    def cost_since(self, sequence: int) -> int:
        """Return what it takes at worst to look which of the policies that were set after a
        sequence are for a queue or an exchange.
        """
        return sum(policy.cost for kind in (True, False) for policy in self.since(kind, sequence))

    def _layers(self, kind: Kind, matched: tuple[Policy, ...]) -> Layers:
        found = self._known.get((kind, matched))
        if found is None:
            found = self._known[kind, matched] = Layers.of(kind, matched)
        return found


# -- new policies ---------------------------------------------------------------------------------


@coded(POLICY_REFUSED)
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
    settings, implied = translated(Kind.POLICY, definition)
    if not settings:
        raise InvalidArgument(f"{what} {name}: the definition is empty", hint="say what is to be")
    _check_keys(f"{what} {name}", definition, settings, apply_to)
    given = {key: value for key, value in settings.items() if is_policy_key(Kind.QUEUE, key)}
    if any(key.startswith(FAIRSHARE) for key in given):
        given[LEVELS] = MOST_LEVELS  # Each queue has its own levels.
    check_queue_arguments(
        {**{key: value for key, value in implied.items() if key != POLICY_TYPE}, **given}
    )
    if ALTERNATE in settings:
        _check_alternate(f"{what} {name}", settings[ALTERNATE])
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


def _check_keys(
    title: str, definition: Mapping[str, Any], settings: Mapping[str, Any], apply_to: str
) -> None:
    """Raise InvalidArgument for a key of what the policy is not for."""
    if apply_to == ALL_OF_THEM:
        return
    kind, other = (
        (Kind.EXCHANGE, Kind.QUEUE) if apply_to == EXCHANGES else (Kind.QUEUE, Kind.EXCHANGE)
    )
    for key in definition:
        known = policy_key(str(key))
        if known in settings and not is_policy_key(kind, known):
            raise InvalidArgument(
                f"{title}: apply-to={apply_to}, and {key} is for {NOUNS[other]}s only",
                reason=f"what {NOUNS[kind]}s have of it, if anything, is decided when they are "
                "declared",
                hint=f"leave {key} out, or set it by a policy of its own for {NOUNS[other]}s",
            )


def _check_alternate(title: str, name: str) -> None:
    """Raise InvalidArgument for what cannot be the name of an exchange. One that is not there yet
    may come: until then there is no queue for what would go to it.
    """
    if not name:
        raise InvalidArgument(
            f"{title}: {ALTERNATE} is empty",
            reason="the default exchange is nobody's alternate",
            hint=f"name an exchange, or leave {ALTERNATE} out",
        )
    check_name("exchange name", name)


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
    on the queues and exchanges.
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


def explained(policies: Policies, what: Declared, followed: Followed | None) -> dict[str, Any]:
    """Say of every policy why it counts for a queue or an exchange or does not, and what comes of
    them all.
    """
    told, kind = [], kind_of(what)
    for is_operator in (True, False):
        layers = None
        if followed is not None:
            layers = followed.operators if is_operator else followed.users
        for policy in policies.ranked(is_operator=is_operator):
            reason = policy.misses(what)
            is_used = layers is not None and policy in layers.used
            told.append(
                {
                    "policy": policy.record.name,
                    "operator": is_operator,
                    "priority": policy.record.priority,
                    "matches": not reason,
                    "in_effect": is_used,
                    "reason": reason or _fate(policy, what, layers, is_used),
                }
            )
    settings = []
    if followed is not None:
        for name, values in sorted(followed.values(what).items()):
            if any(source != ARGUMENT for _, source in values):
                settings.append(_setting(kind, name, values))
    return {NOUNS[kind]: what.name, "policies": told, "settings": settings}


def _fate(policy: Policy, what: Declared, layers: Layers | None, is_used: bool) -> str:
    """Say what becomes of a policy that matches, and which of its keys say nothing here."""
    if layers is None or not is_used:
        base = None if layers is None else layers.used[0]
        return "" if base is None else f"{base.title} comes before it"
    others = [name for name in policy.record.settings if not takes(what, name)]
    but = f", but for {', '.join(others)}: not for this {NOUNS[kind_of(what)]}" if others else ""
    return ("a layer, beside the others" if policy.record.is_layer else "it counts") + but


def _setting(kind: Kind, name: str, values: list[tuple[Any, str]]) -> dict[str, Any]:
    entry = find(kind, name)
    is_limit = entry is not None and entry.by_policy is ByPolicy.SMALLEST
    return {
        "name": name,
        "value": values[0][0],
        "from": values[0][1],
        "others": [{"value": value, "from": source} for value, source in values[1:]],
        "rule": "the smallest counts" if is_limit else "operator policy, argument, policy",
    }
