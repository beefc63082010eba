"""Global options: taken out of the command line wherever they stand, before or after the command.

Historic scripts put `-b` on either side of the command, so this is done before the command is
looked for. It knows which options take a value, so that `-b status ping` is not misread. What is
left is the command with its own options.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from qpidha.client.command.exits import Failure
from qpidha.model.duration import SECOND, parse_duration
from qpidha.model.exit_codes import USAGE

VALUED = {
    "-b": "broker",
    "--broker": "broker",
    "--config": "config",
    "--context": "context",
    "--timeout": "timeout",
    "--user": "user",
    "--password": "password",
    "--password-file": "password_file",
    "--sasl-mechanism": "sasl_mechanism",
    "--sasl-service-name": "sasl_service_name",
    "--ssl-certificate": "ssl_certificate",
    "--ssl-key": "ssl_key",
    "--ssl-key-password-file": "ssl_key_password_file",
    "--ssl-trusted": "ssl_trusted",
    "-o": "output",
    "--output": "output",
    "--sort": "sort",
}
"""Options with a value, and where it goes."""
FLAGS = {
    "-q": "quiet",
    "--quiet": "quiet",
    "-v": "verbose",
    "--verbose": "verbose",
    "--cluster-manager": "cluster_manager",
    "--no-headers": "no_headers",
}
"""Options without a value."""
GLUED = ("-b", "-o")
"""Short options whose value may follow without a space."""
WATCH = ("-w", "--watch")
"""Repeat a reading command; seconds may follow, after = or, with the short one, at once."""
WATCH_SECONDS = 2.0
ROW_FORMATS = ("wide", "jsonl", "csv", "name")
"""Forms of lists: more columns, one object of JSON a line, the columns of the table, only names."""
FORMATS = ("text", "json", *ROW_FORMATS)
DEFAULT_TIMEOUT = 10.0
"""Seconds; as in the historic tool."""


@dataclass(slots=True)
class Options:
    """The global options of one call."""

    broker: str = ""
    config: str = ""
    context: str = ""
    timeout: float | None = None
    """Seconds; None is the command's own default, 0 is for ever."""
    user: str = ""
    password: str = ""
    password_file: str = ""
    sasl_mechanism: str = ""
    sasl_service_name: str = ""
    ssl_certificate: str = ""
    ssl_key: str = ""
    ssl_key_password_file: str = ""
    ssl_trusted: str = ""
    output: str = "text"
    sort: str = ""
    """The field by which a list is sorted; with - before it the other way round."""
    no_headers: bool = False
    watch: float | None = None
    """Seconds between two looks; None for one look."""
    quiet: bool = False
    verbose: bool = False
    cluster_manager: bool = False
    configured_tls: tuple[str, str, str, str] = ("", "", "", "")
    """What --config says of TLS: the authorities, this broker's certificate, its key and the file
    with the password of that.
    """
    may_ask: bool = True
    """Whether a person who waits for the answer may be asked for a password."""
    asked: dict[str, str] = field(default_factory=dict)
    """User -> the password that was asked for: once is enough."""
    passwords: dict[str, str] = field(default_factory=dict)
    """File -> the password that was read from it: standard input has it once only."""
    told: set[str] = field(default_factory=set)
    """Warnings that were given: once is enough."""

    @property
    def as_json(self) -> bool:
        """Whether data goes out as JSON."""
        return self.output == "json"

    @property
    def as_table(self) -> bool:
        """Whether a list goes out as a table for people."""
        return self.output in ("text", "wide")

    @property
    def as_rows(self) -> bool:
        """Whether a list goes out in a form of lists alone."""
        return self.output in ROW_FORMATS

    @property
    def for_lists(self) -> str:
        """The option that is for lists alone, if one was given."""
        if self.sort:
            return "--sort"
        return "--no-headers" if self.no_headers else f"-o {self.output}" * self.as_rows

    def patience(self, default: float = DEFAULT_TIMEOUT) -> float | None:
        """Seconds to wait for an answer, or None for ever."""
        return default if self.timeout is None else (self.timeout or None)


def hoist(arguments: list[str]) -> tuple[Options, list[str]]:
    """Split a command line into global options and the rest; after `--` nothing is taken."""
    options = Options()
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            rest += ["--", *waiting]
            break
        name, equals, value = argument.partition("=")
        if argument in FLAGS:
            setattr(options, FLAGS[argument], True)
        elif argument in VALUED:
            _set(options, argument, next(waiting, None))
        elif name in VALUED and equals and name.startswith("--"):
            _set(options, name, value)
        elif name in WATCH:
            options.watch = _seconds("--watch", value) if equals else WATCH_SECONDS
        elif argument.startswith("-w") and argument[2:].replace(".", "", 1).isdigit():
            options.watch = _seconds("--watch", argument[2:])
        elif argument[:2] in GLUED and not argument.startswith("--"):
            _set(options, argument[:2], argument[2:].removeprefix("="))
        else:
            rest.append(argument)
    if options.password and options.password_file:
        raise Failure(
            USAGE, "--password and --password-file exclude each other", hint="give the file"
        )
    for name in ("--ssl-key", "--ssl-key-password-file"):
        if options.ssl_certificate or not getattr(options, VALUED[name]):
            continue
        raise Failure(
            USAGE,
            f"{name} needs --ssl-certificate",
            hint="give the certificate that belongs to the key",
        )
    return options, rest


def _set(options: Options, name: str, value: str | None) -> None:
    if value is None:
        raise Failure(USAGE, f"option {name} needs a value", hint="qpid-ha help")
    if not value and name in ("-b", "--broker", "--config", "--context"):
        raise Failure(
            USAGE,
            f"option {name} has an empty value",
            hint=f"leave {name} out for the local broker, or give a value",
        )
    if name == "--sort" and not value.removeprefix("-"):
        hint = "--sort COLUMN, or --sort -COLUMN from the end"
        raise Failure(USAGE, "option --sort has an empty value", hint=hint)
    field = VALUED[name]
    if field == "timeout":
        options.timeout = _seconds(name, value)
        return
    if field == "output" and value not in FORMATS:
        hint = f"-o with one of {', '.join(FORMATS)}"
        raise Failure(USAGE, f"{value!r} is not an output format", hint=hint)
    setattr(options, field, value)


def _seconds(name: str, text: str) -> float:
    try:
        return parse_duration(text) / SECOND
    except ValueError as error:
        raise Failure(
            USAGE,
            f"{text!r} is not a duration",
            reason=str(error),
            hint="--timeout 10, or 500ms; 0 waits for ever"
            if name == "--timeout"
            else f"{name}=5, or {name}=500ms",
        ) from error
