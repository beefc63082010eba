"""ACL files: from the text of an acl-file, in Qpid's format, to the rules that are enforced.

A file is used as a whole or not at all: each line that is not understood is named, with what is
wrong with it. A rule that can never fit is a warning, as in Qpid. Reads no files and asks nobody
for addresses: names of hosts are resolved by a function of the caller's.
Source: Qpid src/qpid/acl/AclReader.cpp, AclValidator.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from qpidha.broker.queues.arguments import LONGEST_KEY, fits_key
from qpidha.management.acl import (
    ALL,
    CONNECTIONS,
    DEFAULT_EXCHANGE,
    KEY,
    QUEUES,
    AccessList,
    Address,
    Condition,
    Decision,
    HostRule,
    Kind,
    Rule,
    Verdict,
    address_of,
    unasked,
)

KEYWORDS = ("acl", "group", "quota")
LONGEST_LINE = 1024
MOST_OF_QUOTA = 65530
GROUP_NAME = re.compile(r"[A-Za-z0-9_-]+")
USER_NAME = re.compile(r"[A-Za-z0-9._@/-]+")
ACTIONS = (
    "access",
    "bind",
    "consume",
    "create",
    "delete",
    "move",
    "publish",
    "purge",
    "redirect",
    "reroute",
    "unbind",
    "update",
)
OBJECTS = (
    "broker",
    "connection",
    "exchange",
    "link",
    "method",
    "policy",
    "query",
    "queue",
    "route",
    "virtualhost",
)
TEXTS = (
    "alternate",
    "applyto",
    "exchangename",
    "name",
    "pattern",
    "queuename",
    "schemaclass",
    "schemapackage",
    "type",
)
CHOICES = {
    **dict.fromkeys(("autodelete", "durable", "exclusive", "paging"), ("true", "false")),
    "policytype": ("reject", "ring", "ring-strict", "flow-to-disk", "self-destruct"),
}
"""Property -> what it can be."""
LIMITS = {
    f"{name}{end}": (name, kind)
    for name in (
        "queuemaxcount",
        "queuemaxsize",
        "filemaxcount",
        "filemaxsize",
        "pages",
        "pagefactor",
    )
    for end, kind in (("lowerlimit", Kind.LEAST), ("upperlimit", Kind.MOST))
} | {
    old: (name, Kind.MOST)
    for name in ("queuemaxcount", "queuemaxsize")
    for old in (name, name.replace("queuemax", "maxqueue"))
}
"""Property -> the one that is told, and how it is compared; names without an end are old ones."""
HOST = "host"
PROPERTIES = (*TEXTS, *CHOICES, *LIMITS, HOST, KEY)

Resolve = Callable[[str], Sequence[str]]
"""Gives the addresses of a host's name, none if there are none."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a line, or odd about it."""

    line: int
    text: str
    is_error: bool = True

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


class BadLine(Exception):
    """A line that is not understood; the text says why."""


def read(
    text: str, *, realm: str = "", path: str = "", resolve: Resolve = lambda name: ()
) -> tuple[AccessList, list[Trouble]]:
    """Read an acl-file; what comes of it may be used if none of the troubles is an error."""
    reader = _Reader(AccessList(realm=realm, path=path), resolve)
    for number, line in enumerate(text.split("\n"), 1):
        reader.take(number, line.removesuffix("\r"))
    return reader.finished()


def shadowed(access_list: AccessList) -> list[Trouble]:
    """Name the rules that never decide, because one before fits whatever they fit."""
    found = []
    for number, rule in enumerate(access_list.rules):
        before = next((one for one in access_list.rules[:number] if one.covers(rule)), None)
        if before is not None:
            text = f"never decides, as line {before.line} fits whatever it fits"
            found.append(Trouble(rule.line, text, is_error=False))
    return found


class _Reader:
    """One file on its way through."""

    def __init__(self, access_list: AccessList, resolve: Resolve) -> None:
        self._list = access_list
        self._resolve = resolve
        self._troubles: list[Trouble] = []
        self._number = 0
        self._open: str | None = None
        """The group that goes on in the next line."""
        self._last = 0
        """The line that has the last word."""

    def take(self, number: int, line: str) -> None:
        """Take a line."""
        self._number = number
        try:
            self._take(line)
        except BadLine as error:
            self._troubles.append(Trouble(number, str(error)))
            self._open = None

    def finished(self) -> tuple[AccessList, list[Trouble]]:
        """Return what was read."""
        if self._open is not None:
            text = f"group {self._open} is to go on in a next line, and there is none"
            self._troubles.append(Trouble(self._number, text))
        for rule in self._list.rules:
            why = unasked(rule)
            if why:
                self._troubles.append(Trouble(rule.line, f"can never fit: {why}", is_error=False))
        return self._list, sorted(self._troubles, key=lambda trouble: trouble.line)

    def _take(self, line: str) -> None:
        if line.startswith("#"):
            return
        if len(line) > LONGEST_LINE:
            raise BadLine(f"it is longer than {LONGEST_LINE} characters")
        if not line.isascii():
            raise BadLine("it has characters that are not ASCII")
        goes_on = line.rstrip().endswith("\\")
        words = line.rstrip().removesuffix("\\").split()
        if goes_on and not words:
            raise BadLine("a line of \\ alone says nothing")
        if self._open is not None:
            self._members(self._open, words, goes_on)
            return
        if not words:
            return
        keyword, *rest = words
        if keyword == "group":
            self._group(rest, goes_on)
        elif goes_on:
            raise BadLine("only a group may go on in the next line")
        elif keyword == "acl":
            self._acl(rest)
        elif keyword == "quota":
            self._quota(rest)
        else:
            raise BadLine(f"{keyword[:40]!r} is none of {', '.join(KEYWORDS)}")

    # Groups.

    def _group(self, words: list[str], goes_on: bool) -> None:
        if not words:
            raise BadLine("a group has a name")
        name, *members = words
        if not GROUP_NAME.fullmatch(name) or name == ALL:
            raise BadLine(f"a group cannot be called {name[:40]!r}: letters, digits, - and _")
        if name in self._list.groups:
            raise BadLine(f"group {name} is there already")
        if not members and not goes_on:
            raise BadLine(f"group {name} has no members")
        self._list.groups[name] = frozenset()
        self._members(name, members, goes_on)

    def _members(self, name: str, words: list[str], goes_on: bool) -> None:
        """Take members of a group, users or groups that were there before."""
        self._open = name if goes_on else None
        for word in words:
            users = self._users(word)
            if users is None or word == name:
                raise BadLine(f"{word} cannot be a member of group {name}")
            self._list.groups[name] |= users

    def _users(self, word: str) -> frozenset[str] | None:
        """Return who a word means; None is everybody."""
        if word == ALL:
            return None
        if word in self._list.groups:
            return self._list.groups[word]
        if not USER_NAME.fullmatch(word):
            raise BadLine(f"a user cannot be called {word[:40]!r}")
        return frozenset((self._list.bare(word),))

    # Rules.

    def _acl(self, words: list[str]) -> None:
        if len(words) < 3:
            raise BadLine("a rule is: acl DECISION USER ACTION [OBJECT [PROPERTY=VALUE ...]]")
        if self._last:
            raise BadLine(f"line {self._last} has the last word, and no rule may follow it")
        decision = Decision(_one_of("decision", words[0], [*Decision]))
        users = self._users(words[1])
        action = _one_of("action", words[2], [*ACTIONS, ALL])
        object_type = _one_of("object", words[3], [*OBJECTS, ALL]) if words[3:] else ALL
        if action == object_type == ALL and len(words) > 4:
            raise BadLine("a rule about all objects and actions has no properties")
        properties = dict(_pairs(words[4:]))
        if users is None and action == object_type == ALL:
            self._last = self._number
            self._list.last_word = Verdict(decision, self._number)
        elif (action, object_type) == ("create", "connection"):
            self._host(decision, users, properties)
        elif HOST in properties:
            raise BadLine(f"{HOST} is for create connection")
        else:
            conditions = tuple(_condition(*each) for each in properties.items())
            rule = Rule(self._number, decision, users, action, object_type, conditions)
            self._list.rules.append(rule)

    def _host(
        self, decision: Decision, users: frozenset[str] | None, properties: dict[str, str]
    ) -> None:
        if list(properties) != [HOST] or not properties[HOST]:
            raise BadLine("create connection takes host=ADDRESS, host=FIRST,LAST or host=all")
        for span in self._spans(properties[HOST]):
            self._list.hosts.append(HostRule(self._number, decision, users, span))

    def _spans(self, text: str) -> Iterator[tuple[Address, Address] | None]:
        if text == ALL:
            yield None
            return
        first, comma, last = text.partition(",")
        if not comma:
            for address in self._addresses(first):
                yield address, address
            return
        begin, end = self._addresses(first)[0], self._addresses(last)[0]
        if begin[0] != end[0] or begin > end:
            raise BadLine(f"{text[:80]} is no range: its end comes before its beginning")
        yield begin, end

    def _addresses(self, text: str) -> list[Address]:
        address = address_of(text)
        if address is not None:
            return [address]
        found = [address_of(one) for one in self._resolve(text)] if text else []
        known = [one for one in found if one is not None]
        if not known:
            raise BadLine(f"the host {text[:80]!r} is no address, and no name that is known")
        return list(dict.fromkeys(known))

    # Quotas.

    def _quota(self, words: list[str]) -> None:
        if len(words) < 3:
            raise BadLine("a quota is: quota connections|queues NUMBER USER|GROUP|all ...")
        of = _one_of("quota", words[0], [CONNECTIONS, QUEUES])
        if not words[1].isdecimal() or int(words[1]) > MOST_OF_QUOTA:
            raise BadLine(f"a quota is a number from 0 to {MOST_OF_QUOTA}, not {words[1][:40]!r}")
        quotas = self._list.quotas.setdefault(of, {})
        for word in words[2:]:
            users = self._users(word)
            for user in (ALL,) if users is None else sorted(users):
                quotas[user] = int(words[1])


def _pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    """Split properties into names and values."""
    seen = set()
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise BadLine(f"{word[:80]!r} is not PROPERTY=VALUE")
        _one_of("property", name, PROPERTIES)
        if name in seen:
            raise BadLine(f"{name} is given twice")
        seen.add(name)
        yield name, value


def _condition(name: str, value: str) -> Condition:
    """Return what a property of a rule means. Raises BadLine."""
    if name in LIMITS:
        if not value.isdecimal() or int(value) >= 1 << 63:
            raise BadLine(f"{name} is a whole number, not {value[:40]!r}")
        told, kind = LIMITS[name]
        return Condition(told, kind, value)
    if name in CHOICES and value.replace("_", "-") not in CHOICES[name]:
        raise BadLine(f"{name} is {' or '.join(CHOICES[name])}, not {value[:40]!r}")
    if name == KEY:
        if not fits_key(value):
            raise BadLine(f"{name} is longer than the {LONGEST_KEY} bytes that a key may have")
        return Condition(name, Kind.KEY, value)
    if name in CHOICES:
        return Condition(name, Kind.EQUAL, value.replace("_", "-"))
    if name in ("name", "exchangename") and value == DEFAULT_EXCHANGE:
        value = ""
    if value.endswith("*"):
        return Condition(name, Kind.PREFIX, value.removesuffix("*"))
    return Condition(name, Kind.EQUAL, value)


def _one_of(what: str, word: str, known: Sequence[str]) -> str:
    """Return a word if it is known. Raises BadLine with the nearest one."""
    if word in known:
        return word
    near = get_close_matches(word, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    raise BadLine(f"there is no {what} {word[:40]!r}: {hint}")
