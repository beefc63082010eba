"""Address strings and maps as Qpid's messaging programs write them.

An address is `name/subject; {option: value, ...}`; a map alone is how `--connection-options` are
given. A word is taken for a number or a truth value if it is one, and a quoted text is text. What
is refused is refused with the place where reading stopped. Knows no option.
Source: Qpid's book "Programming in Apache Qpid", the grammar of addresses; Variant of qpid-cpp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from qpidha.model.encoding import ULong
from qpidha.tools.connection_options import ToolError

RESERVED = "'\"{}[],:/"
"""What ends a word in options."""
MOST_NESTED = 32
FLOAT = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE)
PASSWORD = re.compile("(password).*", re.IGNORECASE | re.DOTALL)
"""What is not shown of a text that cannot be read."""
TRUTH = {"true": True, "false": False}
MOST_SIGNED, MOST_UNSIGNED = 2**63, 2**64


@dataclass(frozen=True, slots=True)
class AddressString:
    """What an address string says."""

    name: str
    subject: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_temporary(self) -> bool:
        """Whether the broker is to make a node and name it."""
        return self.name.startswith("#")


def parse_address_string(text: str) -> AddressString:
    """Read an address. Raises ToolError for what is none."""
    reader = _Reader(text)
    name = reader.quoted() if reader.next_is_quote() else reader.word("/;")
    if not name:
        raise reader.error("a name is expected")
    subject = ""
    if reader.took("/"):
        subject = reader.quoted() if reader.next_is_quote() else reader.word(";")
    options = reader.map() if reader.took(";") and reader.next_is("{") else {}
    reader.expect_end()
    return AddressString(name, subject, options)


def parse_map(text: str) -> dict[str, Any]:
    """Read `{key: value, ...}`; nothing at all is an empty one. Raises ToolError."""
    reader = _Reader(text)
    if not text.strip():
        return {}
    if not reader.next_is("{"):
        raise reader.error("a '{' is expected")
    found = reader.map()
    reader.expect_end()
    return found


def typed(word: str) -> Any:
    """Return the number or truth value that a word is, or the word."""
    if re.fullmatch(r"[+-]?\d+", word):
        number = int(word)
        if -MOST_SIGNED <= number < MOST_SIGNED:
            return number
        if 0 < number < MOST_UNSIGNED:
            return ULong(number)
    if FLOAT.fullmatch(word):
        return float(word)
    return TRUTH.get(word.lower(), word)


class _Reader:
    """Reads a text from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._shown = PASSWORD.sub(r"\1...", text)
        self._at = 0
        self._depth = 0

    def error(self, what: str) -> ToolError:
        """Say where reading stopped, and what was expected there."""
        return ToolError("MalformedAddress", f"{what}, character {self._at} of {self._shown}")

    def next_is(self, letter: str) -> bool:
        """Whether this comes next, after white space."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._text[self._at : self._at + 1] == letter

    def next_is_quote(self) -> bool:
        """Whether a quoted text comes next."""
        return self.next_is('"') or self.next_is("'")

    def took(self, letter: str) -> bool:
        """Take a letter if it comes next."""
        found = self.next_is(letter)
        self._at += found
        return found

    def expect(self, letter: str, why: str) -> None:
        """Take a letter that must come next."""
        if not self.took(letter):
            raise self.error(f"{why}: a '{letter}' is expected")

    def expect_end(self) -> None:
        """Refuse what follows."""
        if not self.next_is(""):
            rest = f", not {self._text[self._at :]!r}" if self._shown == self._text else ""
            raise self.error(f"nothing is expected after it{rest}")

    def word(self, ends: str = RESERVED) -> str:
        """Take everything up to white space or one of these; may be empty."""
        self.next_is("")
        begin = self._at
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter.isspace() or letter in ends:
                break
            self._at += 1
        return self._text[begin : self._at]

    def quoted(self) -> str:
        """Take a quoted text."""
        quote = self._text[self._at]
        end = self._text.find(quote, self._at + 1)
        if end < 0:
            raise self.error(f"the {quote} is not closed")
        found = self._text[self._at + 1 : end]
        self._at = end + 1
        return found

    def map(self) -> dict[str, Any]:
        """Take `{key: value, ...}`."""
        self._enter("{")
        found: dict[str, Any] = {}
        while not self.next_is("}"):
            key = self.quoted() if self.next_is_quote() else self.word()
            if not key:
                raise self.error("the map is not closed: a key or a '}' is expected")
            self.expect(":", f"{key!r} has no value")
            found[key] = self._value()
            if not self.took(","):
                break
        self._leave("}")
        return found

    def _list(self) -> list[Any]:
        self._enter("[")
        found = []
        while not self.next_is("]"):
            found.append(self._value())
            if not self.took(","):
                break
        self._leave("]")
        return found

    def _value(self) -> Any:
        if self.next_is_quote():
            return self.quoted()
        if self.next_is("{"):
            return self.map()
        if self.next_is("["):
            return self._list()
        if word := self.word():
            return typed(word)
        raise self.error("a value is expected")

    def _enter(self, bracket: str) -> None:
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise self.error(f"more than {MOST_NESTED} maps and lists are in one another")
        self.expect(bracket, "something is nested")

    def _leave(self, bracket: str) -> None:
        self._depth -= 1
        self.expect(bracket, "a map or a list is not closed")
