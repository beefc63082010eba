"""Access control lists: what the rules of an acl-file say of a question.

Rules are looked at in their order and the first that fits decides: its user or one of his groups,
its action and its object are those of the question, and everything that it says of properties is
true; a property that a question does not have makes a rule that names it unfit. Where none fits the
list's last word decides. Connections by address and quotas are kept apart from the rules, as in
Qpid. A rule is made ready once for each user, action and object, and what was decided about
messages is remembered. Knows no broker, and reads no file: acl_file.py makes lists.
Source: Qpid src/qpid/acl/AclData.cpp.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from qpidha.broker.topic import TopicTree
from qpidha.broker.vocabulary import ALTERNATE, AUTO_DELETE, DURABLE, EXCHANGE_TYPE, EXCLUSIVE
from qpidha.model.ip import ip_of
from qpidha.model.principal import ANONYMOUS, without_realm

ALL = "all"
"""Every user, action, object or host."""
CONNECTIONS, QUEUES = "connections", "queues"
"""What there are quotas of."""
MOST_KEYS, MOST_DECISIONS, MOST_READY = 1000, 20_000, 50_000
"""Decisions about messages that are remembered, of one user and of all; rules made ready, and
questions that they are for.
"""
LONGEST_NUMBER = 20
PUBLISH = ("publish", "exchange")
STANDS_FOR = "${"
"""How words begin that stand for the user in a rule."""
KEY = "routingkey"
"""The property of a rule that is matched as a topic exchange does."""
DEFAULT_EXCHANGE = "amq.default"
"""What a rule calls the exchange that has the empty name."""

OF_QUEUE = {
    "durable": DURABLE,
    "exclusive": EXCLUSIVE,
    "autodelete": AUTO_DELETE,
    "alternate": ALTERNATE,
    "policytype": "qpid.policy_type",
    "queuemaxcount": "qpid.max_count",
    "queuemaxsize": "qpid.max_size",
    "paging": "paging",
}
"""Property of a rule -> what a declaration calls it."""
OF_EXCHANGE = {
    "type": EXCHANGE_TYPE,
    "durable": DURABLE,
    "autodelete": AUTO_DELETE,
    "alternate": ALTERNATE,
}
OF_BINDING = {"queuename": "queuename", "routingkey": "routingkey"}
OF_POLICY = {
    "pattern": "pattern",
    "applyto": "apply_to",
    "policytype": "qpid.policy_type",
    "queuemaxcount": "qpid.max_count",
    "queuemaxsize": "qpid.max_size",
}
OF_METHOD = {"schemapackage": "schemapackage", "schemaclass": "schemaclass"}
TOLD: dict[tuple[str, str], dict[str, str]] = {
    PUBLISH: {"routingkey": "routingkey"},
    ("bind", "exchange"): OF_BINDING,
    ("unbind", "exchange"): OF_BINDING,
    ("access", "query"): {"schemaclass": "schemaclass"},
    ("access", "method"): OF_METHOD,
    ("create", "link"): {},
    ("delete", "link"): {},
    ("create", "policy"): OF_POLICY,
    ("delete", "policy"): {},
    **{(action, "exchange"): OF_EXCHANGE for action in ("access", "create", "delete")},
    **{
        (action, "queue"): OF_QUEUE for action in ("access", "consume", "create", "delete", "purge")
    },
}
"""The questions that are asked, and what each tells beside the name."""
DEFAULTS = {"queuemaxcount": 0, "queuemaxsize": 0, "paging": False}
"""What is told of a declaration that says nothing of it, where that is not the empty text."""


class Decision(StrEnum):
    """What becomes of a question."""

    ALLOW = "allow"
    ALLOW_LOG = "allow-log"
    DENY = "deny"
    DENY_LOG = "deny-log"

    @property
    def allows(self) -> bool:
        """Whether the answer is yes."""
        return self in (Decision.ALLOW, Decision.ALLOW_LOG)

    @property
    def is_logged(self) -> bool:
        """Whether each answer is to be told."""
        return self in (Decision.ALLOW_LOG, Decision.DENY_LOG)

    @property
    def denied(self) -> Decision:
        """The no that is told as this one is."""
        return Decision.DENY_LOG if self.is_logged else Decision.DENY


class Kind(StrEnum):
    """How a condition compares."""

    EQUAL = "equal"
    PREFIX = "prefix"
    KEY = "key"  # as a topic exchange does
    LEAST = "least"
    MOST = "most"


@dataclass(frozen=True, slots=True)
class Condition:
    """What a rule says of one property."""

    name: str
    kind: Kind
    text: str
    """What is compared with; of a prefix without its star."""

    @property
    def is_limit(self) -> bool:
        """Whether it says how large a number may be, which makes a no of a yes."""
        return self.kind in (Kind.LEAST, Kind.MOST)

    def __str__(self) -> str:
        if self.kind is Kind.EQUAL and self.name == "name":
            return f"name={self.text or DEFAULT_EXCHANGE}"
        end = {Kind.LEAST: "lowerlimit", Kind.MOST: "upperlimit"}.get(self.kind, "")
        return f"{self.name}{end}={self.text}{'*' if self.kind is Kind.PREFIX else ''}"

    def test(self, user: User) -> Callable[[str], bool]:
        """Make it ready for a user."""
        if self.is_limit:
            limit = int(self.text)
            if not limit:
                return lambda value: True
            if self.kind is Kind.MOST:
                return lambda value: 0 <= _number(value) <= limit
            return lambda value: _number(value) >= limit
        text = user.put_into(self.text)
        if self.kind is Kind.KEY:
            tree: TopicTree[None] = TopicTree()
            tree.add(text, None)
            return lambda value: bool(tree.match(value))
        if self.kind is Kind.PREFIX:
            return lambda value: value.startswith(text)
        return lambda value: value == text


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    line: int
    decision: Decision
    users: frozenset[str] | None
    """None is everybody."""
    action: str
    object_type: str
    conditions: tuple[Condition, ...] = ()

    def is_about(self, user: str, action: str, object_type: str) -> bool:
        """Whether it may fit a question."""
        return (
            (self.users is None or user in self.users)
            and self.action in (ALL, action)
            and self.object_type in (ALL, object_type)
        )

    def report(self) -> dict[str, object]:
        """Show it as plain data."""
        return {
            "line": self.line,
            "decision": self.decision.value,
            "users": ALL if self.users is None else sorted(self.users),
            "action": self.action,
            "object": self.object_type,
            "properties": [str(condition) for condition in self.conditions],
        }

    def covers(self, other: Rule) -> bool:
        """Whether it fits whatever the other fits, so that one behind it never decides."""
        return (
            (self.users is None or (other.users is not None and other.users <= self.users))
            and self.action in (ALL, other.action)
            and self.object_type in (ALL, other.object_type)
            and set(self.conditions) <= set(other.conditions)
        )


@dataclass(frozen=True, slots=True)
class HostRule:
    """A rule about connections from some addresses."""

    line: int
    decision: Decision
    users: frozenset[str] | None
    span: tuple[Address, Address] | None
    """The first address and the last; None is every address."""

    def report(self) -> dict[str, object]:
        """Show it as plain data."""
        ends = [_shown(end) for end in self.span or ()]
        return {
            "line": self.line,
            "decision": self.decision.value,
            "users": ALL if self.users is None else sorted(self.users),
            "host": ",".join(dict.fromkeys(ends)) or ALL,
        }

    def fits(self, address: Address | None) -> bool:
        """Whether it is about an address."""
        if self.span is None:
            return True
        first, last = self.span
        return address is not None and first <= address <= last


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided, and by which line."""

    decision: Decision
    line: int = 0
    """0 where no line says anything."""


@dataclass(frozen=True, slots=True)
class User:
    """A user as rules may name him in names and keys."""

    name: str
    domain: str

    def put_into(self, text: str) -> str:
        """Replace what stands for the user."""
        if STANDS_FOR not in text:
            return text
        user, domain = _plain(self.name), _plain(self.domain)
        text = text.replace("${userdomain}", f"{user}_{domain}" if domain else user)
        return text.replace("${user}", user).replace("${domain}", domain)


Address = tuple[int, int]
"""Version and number of an IP address, in the order of its kind."""
Ready = tuple[tuple[str, Callable[[str], bool], bool], ...]
"""Of each condition: the property, its test, and whether it is a limit."""


@dataclass(slots=True)
class AccessList:
    """The rules of one broker."""

    rules: list[Rule] = field(default_factory=list)
    last_word: Verdict = Verdict(Decision.DENY)
    """What holds where no rule fits."""
    groups: dict[str, frozenset[str]] = field(default_factory=dict)
    hosts: list[HostRule] = field(default_factory=list)
    quotas: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of what -> user -> how many; `all` is for who is not named."""
    per_address: int = 0
    """Connections that one address may have; 0 is any number."""
    realm: str = ""
    path: str = ""
    _ready: dict[tuple[str, str, str], list[tuple[Rule, Ready]]] = field(default_factory=dict)
    _made: int = 0
    """Rules and questions that are in `_ready`."""
    _tests: dict[Condition, Callable[[str], bool]] = field(default_factory=dict)
    """Those that are the same for every user."""
    _published: dict[str, dict[tuple[str, str], Verdict]] = field(default_factory=dict)
    _decided: int = 0
    """Decisions that are in `_published`."""

    def bare(self, name: str) -> str:
        """Return a user's name as rules are kept: without the realm."""
        return without_realm(name or ANONYMOUS, self.realm)

    def publish(self, name: str, exchange: str, key: str) -> Verdict:
        """Decide about a message of a user; the default exchange is the empty name."""
        mine = self._published.get(name)
        verdict = None if mine is None else mine.get((exchange, key))
        if verdict is None:
            verdict = self.decide(name, *PUBLISH, {"name": exchange, "routingkey": key})
            self._remember(name, exchange, key, verdict)
        return verdict

    def publish_any(self, name: str, exchange: str) -> Verdict:
        """Decide about messages of a user to an exchange that may have any key."""
        return self.decide(name, *PUBLISH, {"name": exchange}, any_key=True)

    def decide(
        self,
        name: str,
        action: str,
        object_type: str,
        told: Mapping[str, str],
        *,
        any_key: bool = False,
    ) -> Verdict:
        """Decide about a question of a user; `told` has the name and the properties. With `any_key`
        it may be any routing key: no is said if it would be of one.
        """
        for rule, conditions in self._rules(self.bare(name), action, object_type):
            decision = rule.decision
            for property_name, test, is_limit in conditions:
                value = told.get(property_name)
                if value is None:
                    is_open = any_key and property_name == KEY
                    if is_open and (not decision.allows or fits_all(test)):
                        continue
                    break
                if not test(value):
                    if not is_limit:
                        break
                    decision = decision.denied
            else:
                return Verdict(decision, rule.line)
        return self.last_word

    def connection(self, name: str, host: str) -> Verdict:
        """Decide about a connection of a user from an address: first what is said of the address
        for everybody, then what is said of the user, then what is said of all.
        """
        user, address = self.bare(name), address_of(host)
        common = [rule for rule in self.hosts if rule.users is None and rule.span is not None]
        own = [rule for rule in self.hosts if rule.users is not None and user in rule.users]
        default = [rule for rule in self.hosts if rule.users is None and rule.span is None]
        for rule in (*common, *own, *reversed(default)):
            if rule.fits(address):
                return Verdict(rule.decision, rule.line)
        return Verdict(Decision.ALLOW)

    def quota(self, of: str, name: str) -> int | None:
        """Return how many of something a user may have; None is any number."""
        quotas = self.quotas.get(of)
        if not quotas:
            return None
        return quotas.get(self.bare(name), quotas.get(ALL, 0))

    def report(self) -> dict[str, object]:
        """Show the list as plain data."""
        return {
            "file": self.path,
            "rules": [rule.report() for rule in self.rules],
            "last_word": {"line": self.last_word.line, "decision": self.last_word.decision.value},
            "groups": {name: sorted(users) for name, users in self.groups.items()},
            "hosts": [rule.report() for rule in self.hosts],
            "quotas": {of: dict(quotas) for of, quotas in self.quotas.items()},
            "connections_from_one_address": self.per_address,
        }

    def source(self, verdict: Verdict) -> str:
        """Say where a decision comes from."""
        if verdict.line:
            return f"line {verdict.line} of {self.path}"
        return f"no rule of {self.path}"

    def _remember(self, name: str, exchange: str, key: str, verdict: Verdict) -> None:
        """Remember a decision about messages; where there are too many, first forget others."""
        if self._decided >= MOST_DECISIONS:
            self._published.clear()
            self._decided = 0
        mine = self._published.setdefault(name, {})
        if len(mine) >= MOST_KEYS:
            self._decided -= len(mine)
            mine.clear()
        mine[exchange, key] = verdict
        self._decided += 1

    def _rules(self, user: str, action: str, object_type: str) -> list[tuple[Rule, Ready]]:
        """Return the rules that may fit a question of a user, ready for him."""
        key = user, action, object_type
        found = self._ready.get(key)
        if found is None:
            while self._made >= MOST_READY:  # Forget who was first.
                self._made -= 1 + len(self._ready.pop(next(iter(self._ready))))
            name, _, domain = user.partition("@")
            who = User(name, domain or self.realm)
            found = self._ready[key] = [
                (rule, self._made_ready(rule, who)) for rule in self.rules if rule.is_about(*key)
            ]
            self._made += 1 + len(found)
        return found

    def _made_ready(self, rule: Rule, user: User) -> Ready:
        return tuple((one.name, self._test(one, user), one.is_limit) for one in rule.conditions)

    def _test(self, condition: Condition, user: User) -> Callable[[str], bool]:
        """Return the test of a condition for a user."""
        if STANDS_FOR in condition.text:
            return condition.test(user)
        if condition not in self._tests:
            self._tests[condition] = condition.test(user)
        return self._tests[condition]


def fits_all(test: Callable[[str], bool]) -> bool:
    """Whether the test of a routing key is that of a pattern which every key fits: one without any
    word and one with a word do, so that the pattern is of `#` alone.
    """
    return test("") and test("a")


def told_of(
    action: str, object_type: str, name: str, properties: Mapping[str, object]
) -> dict[str, str]:
    """Return what a question tells: its name, and what is known of those properties that questions
    of its kind have; an application's own arguments are none.
    """
    told = {"name": name}
    for known, given in TOLD.get((action, object_type), {}).items():
        value = properties.get(given, DEFAULTS.get(known, ""))
        told[known] = str(value).lower() if isinstance(value, bool) else str(value)
    return told


def unasked(rule: Rule) -> str:
    """Say why a rule can never fit; empty if it can."""
    asked = {
        question: properties
        for question, properties in TOLD.items()
        if rule.action in (ALL, question[0]) and rule.object_type in (ALL, question[1])
    }
    if not asked and (rule.action, rule.object_type) == ("publish", "queue"):
        return "a message to a queue is publish exchange name=amq.default routingkey=QUEUE"
    if not asked:
        return f"{rule.action} {rule.object_type} is never asked"
    wanted = {condition.name for condition in rule.conditions} - {"name"}
    if not any(wanted <= properties.keys() for properties in asked.values()):
        known = sorted({"name", *(each for properties in asked.values() for each in properties)})
        return f"{rule.action} {rule.object_type} tells no more than {', '.join(known)}"
    return ""


def address_of(host: str) -> Address | None:
    """Return what rules compare of an IP address, None if it is none."""
    found = ip_of(host)
    return None if found is None else (found.version, int(found))


def _shown(address: Address) -> str:
    version, number = address
    kind = ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address
    return str(kind(number))


def _number(text: str) -> int:
    """Return the number that a client gave, -1 if that is none, or one that no limit can be."""
    return int(text) if text.isdecimal() and len(text) < LONGEST_NUMBER else -1


def _plain(text: str) -> str:
    """Make of a user's name what can stand in names and patterns, with no meaning of its own."""
    return text.translate(str.maketrans("@.*#", "____"))
