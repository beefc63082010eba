"""Options: what one setting may hold, how its text is read, checked and written back.

`settings.py` describes each field with one of these kinds; help texts, the sample file and every
error message are made from them. A kind raises ValueError with the reason alone, and the caller
adds key, value and source. Knows nothing of where a value came from. Source: Qpid's option syntax
(boost program-options).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from qpidha.model.duration import SECOND, format_duration, parse_duration
from qpidha.model.url import Url, parse_consoles, parse_url

TRUE = ("yes", "true", "on", "1")
FALSE = ("no", "false", "off", "0")
LEVELS = ("trace", "debug", "info", "notice", "warning", "error", "critical")
"""Levels of the log, the least important first."""
CATEGORIES = ("broker", "events", "ha", "network", "security", "store")
"""What a line of the log can be about."""
FACILITIES = {
    name: number
    for number, name in enumerate(
        [
            "kern",
            "user",
            "mail",
            "daemon",
            "auth",
            "syslog",
            "lpr",
            "news",
            "uucp",
            "cron",
            "authpriv",
            "ftp",
        ]
    )
} | {f"local{number}": 16 + number for number in range(8)}
"""Facility of syslog -> its number (RFC 3164 section 4.1.1)."""
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_PERCENTAGE = re.compile(r"([1-9][0-9]?|100) ?%")
_SIZE = re.compile(r"([0-9]{1,18})([kmgt]?)(?:i?b)?", re.IGNORECASE)


class Kind(Protocol):
    """What values an option takes."""

    @property
    def accepts(self) -> str:
        """Say the accepted range in words."""

    def parse(self, text: str) -> Any:
        """Read a value that then passes `check`."""

    def check(self, value: Any) -> bool:
        """Whether a value of the field is legal."""

    def show(self, value: Any) -> str:
        """Write a value so that `parse` reads it again."""


@dataclass(frozen=True, slots=True)
class Bool:
    """yes or no."""

    accepts: str = "yes or no (also true/false, on/off, 1/0)"

    def parse(self, text: str) -> bool:
        """Read a truth value."""
        word = text.lower()
        if word not in TRUE + FALSE:
            raise ValueError("it is neither yes nor no")
        return word in TRUE

    def check(self, value: Any) -> bool:
        """Whether it is a truth value."""
        return isinstance(value, bool)

    def show(self, value: Any) -> str:
        """Write yes or no."""
        return "yes" if value else "no"


def _is_within(value: Any, minimum: int, maximum: int) -> bool:
    """Whether a value is a whole number in a range; a truth value is none."""
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `minimum` to `maximum`."""

    minimum: int = 0
    maximum: int = 2**32 - 1

    @property
    def accepts(self) -> str:
        """Say the accepted range in words."""
        return f"a whole number from {self.minimum} to {self.maximum}"

    def parse(self, text: str) -> int:
        """Read a decimal number."""
        if not re.fullmatch(r"-?[0-9]{1,20}", text):
            raise ValueError("it is not a whole number")
        return int(text)

    def check(self, value: Any) -> bool:
        """Whether it is in range."""
        return _is_within(value, self.minimum, self.maximum)

    def show(self, value: Any) -> str:
        """Write the number."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes, also with k, M, G or T (powers of 1024)."""

    minimum: int = 0
    maximum: int = 2**63 - 1

    @property
    def accepts(self) -> str:
        """Say the accepted range in words."""
        upper = f"to {self.maximum} " if self.maximum < 2**63 - 1 else "up "
        return f"a number of bytes from {self.minimum} {upper}such as 65536, 64k or 100M"

    def parse(self, text: str) -> int:
        """Read a number of bytes."""
        match = _SIZE.fullmatch(text)
        if match is None:
            raise ValueError("it is not a number of bytes")
        return int(match[1]) * _SIZES[match[2].lower()]

    def check(self, value: Any) -> bool:
        """Whether it is in range."""
        return _is_within(value, self.minimum, self.maximum)

    def show(self, value: Any) -> str:
        """Write the bytes with the largest suffix that keeps them exact."""
        for suffix, unit in (("G", 1 << 30), ("M", 1 << 20), ("k", 1 << 10)):
            if value and value % unit == 0:
                return f"{value // unit}{suffix}"
        return str(value)


@dataclass(frozen=True, slots=True)
class SizeOrShare:
    """A number of bytes, or a percentage of what there is; kept as text, for what there is only
    the machine knows.
    """

    accepts: str = (
        "a number of bytes such as 800M, or a percentage of what there is such as 60%; "
        "0 is no limit"
    )

    def parse(self, text: str) -> str:
        """Check the text and keep it."""
        if not self.check(text):
            raise ValueError("it is neither a number of bytes nor a percentage")
        return text

    def check(self, value: Any) -> bool:
        """Whether it is one of both."""
        return isinstance(value, str) and bool(
            _SIZE.fullmatch(value) or _PERCENTAGE.fullmatch(value)
        )

    def show(self, value: Any) -> str:
        """Write it as it was given."""
        return str(value)


def share_of(text: str, whole: int) -> int:
    """Return the bytes that the text of a SizeOrShare means, where there are `whole` of them."""
    match = _PERCENTAGE.fullmatch(text)
    return whole * int(match[1]) // 100 if match else int(Size().parse(text))


@dataclass(frozen=True, slots=True)
class Duration:
    """Nanoseconds; a bare number in a file is in `bare_unit`."""

    minimum: int = 0
    maximum: int = 10 * 365 * 86400 * SECOND
    bare_unit: int = SECOND

    @property
    def accepts(self) -> str:
        """Say the accepted range in words."""
        lower = f"at least {format_duration(self.minimum)}, " if self.minimum else ""
        return (
            f"a duration {lower}such as 2s, 0.5s, 100ms; without a unit in "
            f"{'seconds' if self.bare_unit == SECOND else 'milliseconds'}"
        )

    def parse(self, text: str) -> int:
        """Read a duration."""
        return parse_duration(text, self.bare_unit)

    def check(self, value: Any) -> bool:
        """Whether it is in range."""
        return _is_within(value, self.minimum, self.maximum)

    def show(self, value: Any) -> str:
        """Write it with a unit."""
        return format_duration(value)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some words; capitals do not matter when reading. Of those that are known elsewhere it
    is told why they are `refused`.
    """

    words: tuple[str, ...]
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def accepts(self) -> str:
        """Name the words."""
        return "one of " + ", ".join(word or "(empty)" for word in self.words)

    def parse(self, text: str) -> str:
        """Read one of the words."""
        for word in self.words:
            if word.lower() == text.lower():
                return word
        raise ValueError(self.refused.get(text.upper(), "it is not one of the accepted words"))

    def check(self, value: Any) -> bool:
        """Whether it is one of the words."""
        return value in self.words

    def show(self, value: Any) -> str:
        """Write the word."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Facility(Choice):
    """A facility of syslog, also with Qpid's prefix `LOG_`."""

    words: tuple[str, ...] = tuple(FACILITIES)

    def parse(self, text: str) -> str:
        """Read one of the words."""
        return Choice.parse(self, text.upper().removeprefix("LOG_"))


@dataclass(frozen=True, slots=True)
class Text:
    """Any text on one line."""

    accepts: str = "text on one line"

    def parse(self, text: str) -> str:
        """Read the text."""
        return text

    def check(self, value: Any) -> bool:
        """Whether it is text on one line."""
        return isinstance(value, str) and "\n" not in value and "\0" not in value

    def show(self, value: Any) -> str:
        """Write the text."""
        return str(value)


@dataclass(frozen=True, slots=True)
class FilePath(Text):
    """A path. A relative one begins where it was written: at the folder of a configuration file,
    else at the working directory.
    """

    accepts: str = "a path; a relative one in a file begins at the folder of that file"


@dataclass(frozen=True, slots=True)
class Words:
    """A list of words, separated by commas or spaces; from `choices` if there are any. Of those
    that are known elsewhere it is told why they are `refused`.
    """

    choices: tuple[str, ...] = ()
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def accepts(self) -> str:
        """Name the words."""
        return (
            f"a list of {', '.join(self.choices)}" if self.choices else "a list separated by commas"
        )

    def parse(self, text: str) -> tuple[str, ...]:
        """Read the list; a word of the choices gets their spelling."""
        spelling = {choice.lower(): choice for choice in self.choices}
        words = tuple(
            spelling.get(word.lower(), word) for word in re.split(r"[,\s]+", text) if word
        )
        for word in words:
            if self.choices and word not in self.choices:
                reason = self.refused.get(word.upper(), "it is not one of the accepted words")
                raise ValueError(f"{word}: {reason}")
        return words

    def check(self, value: Any) -> bool:
        """Whether it is a tuple of accepted words."""
        return isinstance(value, tuple) and all(
            isinstance(word, str) and (not self.choices or word in self.choices) for word in value
        )

    def show(self, value: Any) -> str:
        """Write the list."""
        return ",".join(value)


@dataclass(frozen=True, slots=True)
class Patterns:
    """Regular expressions, separated by spaces: a comma may be part of one."""

    accepts: str = "regular expressions separated by spaces, or given one by one"
    separator: str = " "
    """What stands between several occurrences of the option."""

    def parse(self, text: str) -> tuple[str, ...]:
        """Read the list; each once."""
        return tuple(dict.fromkeys(text.split()))

    def check(self, value: Any) -> bool:
        """Whether it is a tuple of words; what a pattern is the broker knows."""
        return isinstance(value, tuple) and all(
            isinstance(word, str) and word.split() == [word] for word in value
        )

    def show(self, value: Any) -> str:
        """Write the list."""
        return " ".join(value)


@dataclass(frozen=True, slots=True)
class Urls:
    """A list of broker addresses."""

    accepts: str = "a URL such as amqp:host1:5672,host2:5672 or none"

    def parse(self, text: str) -> Url:
        """Read a URL."""
        return parse_url(text)

    def check(self, value: Any) -> bool:
        """Whether it is a Url."""
        return isinstance(value, Url)

    def show(self, value: Any) -> str:
        """Write the addresses, without credentials."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Consoles:
    """A list of addresses of consoles."""

    accepts: str = "a list such as http://host1:8672,http://host2:8672 or none"

    def parse(self, text: str) -> tuple[str, ...]:
        """Read the list."""
        return parse_consoles(text)

    def check(self, value: Any) -> bool:
        """Whether it is a tuple of addresses."""
        return isinstance(value, tuple) and all(isinstance(each, str) for each in value)

    def show(self, value: Any) -> str:
        """Write the list."""
        return ",".join(value)


@dataclass(frozen=True, slots=True)
class LogSelectors:
    """Lines of the log: `LEVEL`, `LEVEL+`, `LEVEL-` or either with `:category`, several separated
    by commas.
    """

    accepts: str = (
        f"LEVEL[+|-][:category] with a level of {', '.join(LEVELS)} and a category of "
        f"{', '.join(CATEGORIES)}; such as notice+ or info+,debug+:ha"
    )
    may_be_empty: bool = False

    def parse(self, text: str) -> str:
        """Check the selectors and keep them as text."""
        if not self.check(text):
            raise ValueError("a part of it is not LEVEL[+|-][:category]")
        return text

    def check(self, value: Any) -> bool:
        """Whether every selector names a level."""
        return (
            isinstance(value, str)
            and (bool(value) or self.may_be_empty)
            and all(
                re.sub(r"[+-]$", "", part.strip().partition(":")[0]) in LEVELS
                for part in value.split(",")
                if value
            )
        )

    def show(self, value: Any) -> str:
        """Write the selectors."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Option:
    """One option as the operator sees it. `repeat` joins several occurrences, with commas
    unless the kind has another separator; a `secret` is never printed.
    """

    help: str
    kind: Kind
    group: str
    name: str = ""
    repeat: bool = False
    secret: bool = False
    usual: str = ""
    """What it is where it is not given, in words, if that depends on who starts the broker."""

    def default_text(self, value: Any) -> str:
        """Say what it is where it is not given, and the default is `value`; empty for nothing."""
        return self.usual or self.kind.show(value)


def option(default: Any, kind: Kind, text: str, *, group: str, **extra: Any) -> Any:
    """Describe a field of Settings; give `name` if the option is not spelled like the field,
    `repeat`, `secret` or `usual`.
    """
    return dataclasses.field(
        default=default, metadata={"option": Option(text, kind, group, **extra)}
    )
