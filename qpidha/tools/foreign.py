"""Foreign definitions: what becomes of each key of what another broker wrote.

Nothing is dropped without a word: a key is kept, mapped to what means the same here, ignored with
the reason why nothing is lost by that, or left out with the reason why there is nothing like it.
Which arguments there are, and why others are refused, is asked of the broker's own vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from qpidha.broker.queues.arguments import is_same
from qpidha.broker.translation import translate
from qpidha.broker.vocabulary import Fate, Kind, find, policy_entry
from qpidha.model.errors import RefusedRequest
from qpidha.model.records import BUILT_IN_EXCHANGES
from qpidha.tools.definitions import Definition, check
from qpidha.tools.definitions import Kind as Of

LOST = frozenset(
    (
        "qpid.msg_sequence",
        "qpid.ive",
        "qpid.exclusive-binding",
        "qpid.group_timestamp",
        "qpid.queue_event_generation",
        "qpid.trace.id",
        "qpid.trace.exclude",
        "qpid.no-local",
        "no-local",
        "xquery",
        "x-max-age",
        "x-delayed-type",
        "federation-upstream",
        "federation-upstream-set",
    )
)
"""Names that are refused here and did something there that clients can notice; other refused names
say where and how messages are kept.
"""


class Verdict(StrEnum):
    """What becomes of a key."""

    KEPT = "kept"
    MAPPED = "mapped"  # another name or value says the same here
    IGNORED = "ignored"  # nothing is lost, or it belongs to another place, which is named
    LEFT_OUT = "left out"  # the other broker did something by it that will not be done here


@dataclass(frozen=True, slots=True)
class Note:
    """What became of one key."""

    verdict: Verdict
    of: str
    """The object that has the key, or `file`."""
    key: str
    """Empty for the whole object."""
    reason: str
    """What it is mapped to, or why it is ignored or left out."""


@dataclass(slots=True)
class Translation:
    """Definitions of this broker as far as another one's were read, and a note for each key."""

    definitions: list[Definition] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    types: dict[str, str] = field(
        default_factory=lambda: {name: type for name, (_, type) in BUILT_IN_EXCHANGES.items()}
    )
    """The exchanges that will be there, and their types."""
    absent: dict[tuple[Of, str], Verdict] = field(default_factory=dict)
    """Queues and exchanges that are not taken: what they are bound to goes with them."""
    taken: dict[tuple[Of, tuple[str, ...]], Definition] = field(default_factory=dict)

    def note(self, verdict: Verdict, of: str, key: str, reason: str = "") -> None:
        """Say what becomes of a key."""
        self.notes.append(Note(verdict, of, key, reason))

    def arguments(self, kind: Kind, of: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return those arguments, or keys of a policy, that are followed here, as they are spelled
        there.
        """
        kept: dict[str, Any] = {}
        for key, value in given.items():
            try:
                found = translate(kind, {key: value})
            except RefusedRequest as error:
                entry = policy_entry(key) if kind is Kind.POLICY else find(kind, key)
                is_listed = entry is not None and entry.fate is Fate.REFUSED
                verdict = Verdict.IGNORED if is_listed and key not in LOST else Verdict.LEFT_OUT
                self.note(verdict, of, key, error.reason if is_listed else error.explanation)
                continue
            if not found:
                self.note(Verdict.IGNORED, of, key, f"{json.dumps(value)} asks for nothing")
                continue
            kept[key] = value
            if found.keys() == {key} and is_same(found[key], value):
                self.note(Verdict.KEPT, of, key)
            else:
                self.note(Verdict.MAPPED, of, key, shown(found))
        return kept

    def add(self, one: Definition) -> bool:
        """Take a definition, unless no broker would; whether it was taken."""
        former = self.taken.get((one.kind, one.identity))
        if former is not None:
            same = former.values == one.values
            self.notes = [note for note in self.notes if note.of != one.title or same]
            verdict = Verdict.IGNORED if same else Verdict.LEFT_OUT
            what = "it is the same as" if same else "it is there in another way as"
            self.note(verdict, f"{one.title} ({one.where})", "", f"{what} {former.where}")
            return False
        try:
            check(one, self.types)
        except RefusedRequest as error:
            self.leave_out(one, error.explanation)
            return False
        self.definitions.append(one)
        self.taken[one.kind, one.identity] = one
        if one.kind is Of.EXCHANGE:
            self.types[one.name] = one.values["type"]
        return True

    def leave_out(self, one: Definition, reason: str, verdict: Verdict = Verdict.LEFT_OUT) -> None:
        """Say why an object is not taken, in place of what was said of its keys."""
        self.notes = [note for note in self.notes if note.of != one.title]
        self.note(verdict, one.title, "", reason)
        self.absent[one.kind, one.name] = verdict

    def add_binding(self, one: Definition) -> bool:
        """Take a binding, unless one of its ends was left out; whether it was taken."""
        exchange, queue, other, _ = one.identity
        for kind, name in ((Of.EXCHANGE, exchange), (Of.EXCHANGE, other), (Of.QUEUE, queue)):
            verdict = self.absent.get((kind, name))
            if verdict is not None:
                self.leave_out(one, f"{kind} {name} is {verdict}", verdict)
                return False
        return self.add(one)


def shown(arguments: Mapping[str, Any]) -> str:
    """Arguments in a line."""
    return ", ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in arguments.items()
    )
