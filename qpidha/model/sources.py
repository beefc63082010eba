"""Sources: options from the command line, the environment and configuration files, the first of
them winning.

A configuration file has `name=value` lines and `#` comments, so a qpidd.conf is read unchanged:
options of qpidd that have no meaning here are named in a warning and skipped, other unknown ones
are refused with the nearest name. A relative path in a file begins at the folder of that file,
whichever process reads it, and from where. `QPIDHA_HA_CLUSTER` comes before `QPID_HA_CLUSTER` in
the environment. Must not know what any option is for. Source: Qpid src/qpid/Options.cpp.
"""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qpidha.model.errors import InvalidArgument
from qpidha.model.options import FALSE, TRUE, Bool, FilePath, Option

_STORE = "the store is the write-ahead log in data-dir; files of qpidd are not read"
OF_COMMAND_LINE = "it is for the command line, as in qpidhad --daemon --wait 60"
_LINES = "the form of log lines is fixed; log-format=json writes JSON"
IGNORED = {
    "worker-threads": "the broker runs in one thread",
    "sasl-config": "users are in users-file; qpid-ha user import takes a sasldb over",
    "acl-query": "",
    "known-hosts-url": "clients are told the addresses of ha-brokers-url",
    "domain": "AMQP domains are not offered; qpid-ha link add names another broker",
    "config": "",
    "daemon": OF_COMMAND_LINE,
    "wait": OF_COMMAND_LINE,
    "quit": OF_COMMAND_LINE,
    "kill": OF_COMMAND_LINE,
    "check": OF_COMMAND_LINE,
    "close-fd": "--daemon closes every descriptor but those of socket-fd and ready-fd",
    "transport": "with port=0 the port without TLS is printed",
    "watchdog-interval": "",
    "load-module": "there are no modules",
    "module-dir": "there are no modules",
    "no-module-dir": "there are no modules",
    "queue-purge-interval": "expired messages are removed within about 50 ms",
    "max-purge-batch": "expired messages are removed within about 50 ms",
    "enable-timestamp": "brokers do not add a time of arrival to messages",
    "asyncqueue": "",
    "xml": "exchanges of the type xml are not offered",
    "replication-exchange-name": "queues are replicated by ha-replicate",
    "protocols": "AMQP 1.0 alone is spoken",
    "async-commit": "",
    "staging-threshold": "",
    "log-time": _LINES,
    "log-level": f"log-enable chooses levels; {_LINES}",
    "log-source": _LINES,
    "log-thread": _LINES,
    "log-function": _LINES,
    "log-hires-timestamp": _LINES,
    "log-category": _LINES,
    "log-prefix": "log lines carry the name of the broker: set name",
    "ssl-cert-db": "NSS databases are not read; give PEM files with ssl-cert and ssl-key",
    "ssl-cert-password-file": "name the file with the password of ssl-key as ssl-key-password-file",
    "ssl-cert-name": "",
    "ssl-use-export-policy": "",
    "ssl-sasl-no-dict": "",
    "no-data-dir": "yes is what it takes; data-dir names a directory",
    "store-dir": _STORE,
    "truncate": _STORE,
    "num-jfiles": _STORE,
    "jfile-size-pgs": _STORE,
    "overwrite-before-return": _STORE,
    "journal-flush-timeout": _STORE,
    "federation-tag": "",
    "pidfile": "",
}
"""Options of qpidd that are accepted and do nothing, with what to know about each."""
OLD_NAMES = {
    "max-connections-per-ip": "connection-limit-per-ip",
    "max-connections-per-user": "connection-limit-per-user",
}
"""Options of older versions of qpidd, and what they are called since."""
IGNORED_FAMILIES = {
    "rdma-": "RDMA is not offered",
    "mgmt-": "QMF is not spoken; tools ask by AMQP management",
    "cluster-": "active-active clusters are not offered; see ha-cluster",
    "dtx-": "distributed transactions (DTX) are not offered; local ones are atomic",
    "efp-": _STORE,
    "tpl-": _STORE,
    "wcache-": _STORE,
    "paging-": "bodies beyond queue-memory are read back from data-dir",
    "link-credit-": "",
}
"""Beginnings of further such options, with the same."""
_SHORT = {
    "d": "daemon",
    "h": "help",
    "i": "interface",
    "k": "kill",
    "m": "mgmt-enable",
    "p": "port",
    "q": "quit",
    "t": "trace",
    "v": "version",
    "w": "wait",
}
"""Letter -> the option that it is short for, as qpidd has them."""
RUNNING = "-c"
"""The one option that has no long form here: --check is another one."""
_ENVIRONMENTS = ("QPID_", "QPIDHA_")
"""The later one wins."""
_OF_OTHERS = ("config", "daemon", "dir", "lab", "password", "soak", "url", "user")
"""Variables with our prefix that are no options: what the commands and tests read."""

COMMAND_LINE = "command line"
"""What the source of an option is called that stands there."""
COMMANDS = ("check", "print-config", "version", "help", "quit", "kill")
"""Words of the command line that say what to do."""
WORDS = (*COMMANDS, "config", "daemon", "from-qpidd", "wait")
"""Words of the command line that are no options."""
_SWITCHES = (*COMMANDS, "daemon", "no-data-dir", "no-module-dir", "trace")
"""Words that may stand without a value, beside options that are on or off."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value and where it came from."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class _Raw:
    name: str
    text: str
    source: str
    folder: str = ""
    """Of the configuration file that it stands in."""


def resolve(
    options: Mapping[str, Option],
    files: Iterable[tuple[str, str]],
    env: Mapping[str, str],
    argv: Sequence[str],
) -> tuple[dict[str, Given], list[str]]:
    """Every option that was given, with its value and source, and warnings. Raises
    InvalidArgument.
    """
    warnings: dict[str, None] = {}
    layers = [list(_from_file(text, name)) for name, text in files]
    layers += [list(_from_environment(options, env, prefix, warnings)) for prefix in _ENVIRONMENTS]
    layers.append(list(_from_command_line(options, argv)))
    given: dict[str, Given] = {}
    for layer in layers:
        for name, raws in _by_name(layer).items():
            if name in options:
                given[name] = _value(options[name], raws)
            else:
                warnings[_ignored(options, raws[0])] = None
    return given, list(warnings)


def _by_name(layer: Iterable[_Raw]) -> dict[str, list[_Raw]]:
    """Gather the occurrences of each option in one source."""
    found: dict[str, list[_Raw]] = {}
    for raw in layer:
        found.setdefault(raw.name, []).append(raw)
    return found


def _value(described: Option, raws: list[_Raw]) -> Given:
    """Read and check the value of an option from its occurrences in one source."""
    last = raws[-1]
    if described.repeat:
        text = getattr(described.kind, "separator", ",").join(raw.text for raw in raws)
    elif len(raws) > 1 and last.source != COMMAND_LINE:
        raise InvalidArgument(
            f"{described.name} is given twice: {raws[0].source} and {last.source}",
            hint="leave one of them out",
        )
    else:
        text = last.text
    shown = "(secret)" if described.secret else text
    try:
        value = described.kind.parse(text)
    except ValueError as error:
        raise _bad_value(described, shown, f": {error}", last.source) from None
    if not described.kind.check(value):
        raise _bad_value(described, shown, " is out of range", last.source)
    if value and isinstance(described.kind, FilePath):
        value = posixpath.join(last.folder, value)
    return Given(value, last.source)


def _bad_value(described: Option, shown: str, reason: str, source: str) -> InvalidArgument:
    return InvalidArgument(
        f"{described.name}={shown}{reason} ({source})",
        hint=f"{described.name} takes {described.kind.accepts}",
    )


def why_ignored(name: str) -> str | None:
    """Say why an option of qpidd does nothing here; None if it is no such option."""
    reason = IGNORED.get(name)
    if reason is None:
        families = (text for start, text in IGNORED_FAMILIES.items() if name.startswith(start))
        reason = next(families, None)
    return "it has no meaning for this broker" if reason == "" else reason


def _ignored(options: Mapping[str, Option], raw: _Raw) -> str:
    """Say that an option of qpidd does nothing here, or raise if neither knows it."""
    reason = why_ignored(raw.name)
    if reason is not None:
        return f"{raw.name} ({raw.source}) is ignored: {reason}"
    known = (*options, *WORDS) if raw.source == COMMAND_LINE else options
    raise InvalidArgument(
        f"unknown option {raw.name} ({raw.source})", hint=_nearest(known, raw.name)
    )


def _nearest(options: Iterable[str], name: str) -> str:
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else "qpidhad --help lists all options"


def _translated(name: str, text: str, source: str, folder: str = "") -> _Raw:
    """Express qpidd's other spellings in options of ours."""
    if name == "no-data-dir" and text.lower() in TRUE:
        return _Raw("data-dir", "", source)
    if name == "trace":
        return _Raw("log-enable", "trace+" if text.lower() not in FALSE else "notice+", source)
    return _Raw(OLD_NAMES.get(name, name), text, source, folder)


def file_values(text: str, file_name: str) -> dict[str, str]:
    """What a configuration file gives each name, unchecked; of a name given twice the last one.
    Raises InvalidArgument.
    """
    return {raw.name: raw.text for raw in _from_file(text, file_name)}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a configuration file that gives an option."""

    number: int
    content: str
    """Without a comment behind it."""
    name: str
    value: str


def lines_of(text: str, file_name: str) -> Iterator[Line]:
    """Read what stands in the lines of a file. Raises InvalidArgument."""
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        content = line.strip()
        # qpidd ends a line at any #, which cuts passwords; here a comment starts the line or
        # follows a space.
        for comment in (" #", "\t#"):
            content = content.partition(comment)[0].rstrip()
        if not content or content.startswith("#"):
            continue
        name, equals, value = content.partition("=")
        if not equals:
            raise InvalidArgument(
                f"line {number} of {file_name} is not name=value: {content.split()[0]}",
                hint="write one name=value on each line",
            )
        yield Line(number, content, name.strip(), value.strip())


def _from_file(text: str, file_name: str) -> Iterator[_Raw]:
    """Options of a configuration file."""
    folder = posixpath.dirname(file_name)
    for line in lines_of(text, file_name):
        yield _translated(line.name, line.value, f"line {line.number} of {file_name}", folder)


def _from_environment(
    options: Mapping[str, Option], env: Mapping[str, str], prefix: str, warnings: dict[str, None]
) -> Iterator[_Raw]:
    """Options of the environment; other programs use qpidd's prefix too, so that unknown names are
    no errors.
    """
    for variable in sorted(env):
        if not variable.startswith(prefix):
            continue
        name = variable[len(prefix) :].lower().replace("_", "-")
        raw = _translated(name, env[variable].strip(), f"environment variable {variable}")
        if raw.name in options:
            yield raw
        elif prefix == "QPIDHA_" and not name.startswith(("verify-", *_OF_OTHERS)):
            warnings[f"environment variable {variable} is no option; {_nearest(options, name)}"] = (
                None
            )


def long_words(options: Mapping[str, Option], argv: Sequence[str]) -> list[str]:
    """Write the short options of a command line as long ones: -dp5672 is --daemon --port=5672."""
    words = list(argv)
    found: list[str] = []
    while words:
        word = words.pop(0)
        if word[:1] == "-" and word[1:2].isalpha() and word != RUNNING:
            found += _long(options, word, words)
            continue
        found.append(word)
        name, equals, _ = word.removeprefix("--").partition("=")
        if word.startswith("--") and not equals and words and _needs_value(options, name):
            found.append(words.pop(0))
    return found


def _long(options: Mapping[str, Option], word: str, more: list[str]) -> list[str]:
    """Write one word of short options as long ones; a value may be the first of `more`."""
    found: list[str] = []
    for at, letter in enumerate(word[1:], 1):
        if f"-{letter}" == RUNNING:
            found.append(RUNNING)
            continue
        if letter not in _SHORT:
            raise InvalidArgument(
                f"{word} is not an option (command line)", hint="write options as --name value"
            )
        name, rest = _SHORT[letter], word[at + 1 :]
        if _is_switch(options, name):
            found.append(f"--{name}")
        elif rest:
            return [*found, f"--{name}={rest.removeprefix('=')}"]
        else:
            return [*found, f"--{name}", *(more.pop(0) for _ in more[:1])]
    return found


def _is_switch(options: Mapping[str, Option], name: str) -> bool:
    described = options.get(name)
    return name in _SWITCHES or (described is not None and isinstance(described.kind, Bool))


def _needs_value(options: Mapping[str, Option], name: str) -> bool:
    return not _is_switch(options, name) and (name in options or name in WORDS)


def _from_command_line(options: Mapping[str, Option], argv: Sequence[str]) -> Iterator[_Raw]:
    """Options of the command line: --name value, --name=value, and --name alone for yes."""
    words = long_words(options, argv)
    hint = usage = "write options as --name value"
    while words:
        word = words.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not name or not word.startswith("--"):
            raise InvalidArgument(f"{word} is not an option (command line)", hint=hint)
        hint = usage
        described = options.get(name)
        if not equals:
            if _is_switch(options, name):
                value = "yes"
                if words and words[0].lower() in TRUE + FALSE:
                    value = words.pop(0)
                elif described is not None:
                    hint = f"{name} takes {described.kind.accepts}"
            elif words and (described is not None or not words[0].startswith("-")):
                value = words.pop(0)
            elif described is not None:
                raise InvalidArgument(
                    f"--{name} needs a value (command line)",
                    hint=f"{name} takes {described.kind.accepts}",
                )
        yield _translated(name, value, COMMAND_LINE)
