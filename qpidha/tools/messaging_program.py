"""What qpid-send and qpid-receive share: how their command line is read, their reports, and values
as Qpid prints them.

Options may be shortened, and stand in the environment as well: QPID_SEND_RATE is --send-rate. What
is wrong with them is told with the usage on standard error, and ends with 1.
Source: qpid-cpp src/tests/qpid-send.cpp, qpid-receive.cpp and Statistics.cpp; src/qpid/Options.cpp.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from optparse import SUPPRESS_HELP, Option, OptionGroup, OptionValueError, Values
from typing import Any, NoReturn

from qpidha.client.command.streams import mend_streams, silence_output
from qpidha.client.errors import ClientError
from qpidha.client.message import Message
from qpidha.model.encoding import (
    Array,
    Byte,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
    Uuid,
)
from qpidha.model.errors import QpidHaError
from qpidha.model.exit_codes import INTERRUPTED, NO, OK
from qpidha.model.printable import printable_lines
from qpidha.tools.connection_options import Parser, ToolError, told
from qpidha.tools.messaging_log import DEFAULT, Log

YES = ("yes", "true", "on", "1")
NO_WORDS = ("no", "false", "off", "0")
TS = "ts"
"""The property with the time at which a message was sent, in ns since the epoch."""
SN = "sn"
"""The property with the number of a message, from 1."""
EOS = "eos"
"""The content of the message that ends an input."""
MS = 1_000_000
"""Nanoseconds."""
RULE = "LEVEL[+|-][:pattern]"
OWN_WORDS = {
    "the capability create-on-demand": "{create: always}",
    "--sasl-mechanism": "{sasl-mechanisms: NAME}",
    "--ssl-trusted FILE": "{ssl-trustfile: 'FILE'}",
}
"""What is said to do next, and how addresses and connection options say that."""
SOURCELESS = {
    "source": "the place in the source",
    "thread": "the thread",
    "function": "the function",
    "hires-timestamp": "fractions of a second",
}
"""Parts of a line of Qpid's log that lines have not here."""
TYPE_NAMES: Mapping[type, str] = {
    bool: "bool",
    int: "int64",
    UByte: "uint8",
    UShort: "uint16",
    UInt: "uint32",
    ULong: "uint64",
    Byte: "int8",
    Short: "int16",
    Int: "int32",
    float: "double",
    Float: "float",
    dict: "map",
    list: "list",
    Array: "list",
    Uuid: "uuid",
    type(None): "void",
}


def _yes_or_no(option: Option, name: str, value: str) -> bool:
    word = value.lower()
    if word not in (*YES, *NO_WORDS):
        raise OptionValueError(f"the argument ({value!r}) for option {name} is yes or no")
    return word in YES


def _count(option: Option, name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) >= 1 << 32:
        raise OptionValueError(f"the argument ({value!r}) for option {name} is a whole number")
    return int(value)


class ProgramOption(Option):
    """An option whose value may be `yes or no`, or a whole number."""

    TYPES = (*Option.TYPES, "flag", "count")
    TYPE_CHECKER = {**Option.TYPE_CHECKER, "flag": _yes_or_no, "count": _count}


class ProgramGroup(OptionGroup):
    """Options that belong together, of the kinds that these programs have."""

    def add_count(self, *names: str, default: int = 0, text: str, metavar: str = "N") -> None:
        """Add an option that is a whole number."""
        self.add_option(
            *names, type="count", default=default, metavar=metavar, help=f"{text} (%default)"
        )

    def add_flag(self, *names: str, default: bool, text: str) -> None:
        """Add an option that is `yes or no`."""
        shown = "yes" if default else "no"
        self.add_option(
            *names, type="flag", default=default, metavar="yes|no", help=f"{text} ({shown})"
        )

    def add_switch(self, *names: str, text: str) -> None:
        """Add an option without a value."""
        self.add_option(*names, action="store_true", default=False, help=text)

    def add_text(self, *names: str, metavar: str, text: str) -> None:
        """Add an option that is text."""
        self.add_option(*names, metavar=metavar, default="", help=text)

    def add_list(self, *names: str, metavar: str, text: str) -> None:
        """Add an option that may be given several times."""
        self.add_option(*names, action="append", default=[], metavar=metavar, help=text)


class ProgramParser(Parser):
    """Reads a command line as Qpid's programs do."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(
            prog=name,
            usage="%prog [OPTIONS] -a ADDRESS",
            description=description,
            option_class=ProgramOption,
        )
        for part in (*(f"log-{part}" for part in SOURCELESS), "log-to-syslog"):
            self.add_option(f"--{part}", type="flag", default=False, help=SUPPRESS_HELP)
        for part in ("name", "facility"):
            self.add_option(f"--syslog-{part}", default="", help=SUPPRESS_HELP)

    def group(self, title: str) -> ProgramGroup:
        """Begin a group of options."""
        made = ProgramGroup(self, title)
        self.add_option_group(made)
        return made

    def add_connection(self, address: str) -> None:
        """Add what says where messages are, and how the broker is reached."""
        made = self.group("Connection")
        made.add_text("-a", "--address", metavar="ADDRESS", text=address)
        made.add_option(
            "-b",
            "--broker",
            metavar="URL",
            default="127.0.0.1",
            help="Connect to the broker at [user/password@]host[:port], or to the primary of a "
            "comma-separated list; ssl: before an address selects TLS (%default)",
        )
        made.add_text(
            "--connection-options",
            metavar="OPTIONS",
            text="Set options: {reconnect: true, heartbeat: 10, username: U, password: P, ...}",
        )
        made.add_switch(
            "--failover-updates", text="Fail over also to the brokers that a broker names."
        )
        made.add_switch("--ha-admin", text="Connect as an administrator, also to a backup.")

    def add_run(self) -> None:
        """Add transactions, reports and the log."""
        made = self.group("Transactions and Reports")
        made.add_count("--tx", text="Use transactions of N messages, 0 for none")
        made.add_count("--rollback-frequency", text="Roll back every N-th transaction, 0 for none")
        made.add_switch("--report-total", text="Report the throughput at the end.")
        made.add_count("--report-every", text="Report the throughput every N messages")
        made.add_flag("--report-header", default=True, text="Begin reports with a header")
        made = self.group("Log")
        made.add_switch("-t", "--trace", text="Log everything: --log-enable trace+")
        made.add_list(
            "--log-enable", metavar="RULE", text=f"Log what the rule selects: {RULE} ({DEFAULT})"
        )
        made.add_list(
            "--log-disable", metavar="RULE", text=f"Do not log what the rule selects: {RULE}"
        )
        made.add_flag("--log-to-stderr", default=True, text="Log to standard error")
        made.add_flag("--log-to-stdout", default=False, text="Log to standard output")
        made.add_text("--log-to-file", metavar="FILE", text="Log to this file.")
        made.add_text(
            "--log-prefix", metavar="STRING", text="Begin each line of the log with this."
        )
        for part in ("time", "level", "category"):
            made.add_flag(
                f"--log-{part}", default=True, text=f"Write the {part} into lines of the log"
            )

    def read(self, arguments: Sequence[str]) -> Values:
        """Read the environment and the command line; ends the program if they do not fit."""
        options, rest = self.parse_args([*self._environment(), *arguments])
        if rest:
            self.error(f"too many positional options: {rest[0]!r}")
        if not options.address:
            self.error("no address is given. Try: -a NAME")
        if options.log_to_syslog or options.syslog_name or options.syslog_facility:
            self.error("--log-to-syslog is not offered. Try: --log-to-file, or 2>&1 | logger")
        for part, what in SOURCELESS.items():
            if getattr(options, f"log_{part.replace('-', '_')}"):
                self.error(f"--log-{part} is not offered: lines have not {what}. Try: leave it out")
        return options

    def error(self, message: str) -> NoReturn:
        """Tell the usage and what is wrong, and end."""
        print(f"{self.format_help()}\n{printable_lines(message)}", file=sys.stderr)
        raise SystemExit(NO)

    def _environment(self) -> list[str]:
        """Return the options that the environment has, as words of a command line."""
        found = []
        for option in (each for group in self.option_groups for each in group.option_list):
            for name in option._long_opts:
                value = os.environ.get("QPID_" + name[2:].replace("-", "_").upper())
                if value is None:
                    continue
                if option.takes_value():
                    found.append(f"{name}={value}")
                elif value.lower() in YES:
                    found.append(name)
        return found


def log_of(options: Values) -> Log:
    """Make the log that the options ask for."""
    return Log(
        enabled=["trace+"] if options.trace else options.log_enable,
        disabled=options.log_disable,
        to_stderr=options.log_to_stderr,
        to_stdout=options.log_to_stdout,
        to_file=options.log_to_file,
        time=options.log_time,
        level=options.log_level,
        category=options.log_category,
        prefix=options.log_prefix,
    )


def run(name: str, work: Callable[[list[str]], None], arguments: Sequence[str] | None) -> int:
    """Do the work of a program with its command line, and return the exit code. A failure is told
    on standard error.
    """
    mend_streams()
    if isinstance(sys.stdout, TextIOWrapper):  # Content that is no text is written as it is.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        work(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        silence_output()
        return NO
    except (ClientError, QpidHaError, ToolError, OSError, ValueError, MemoryError) as error:
        try:
            sys.stdout.flush()
        except OSError:  # Else Python tries once more at the exit.
            silence_output()
        text = told(error)[1]
        for words, own in OWN_WORDS.items():
            text = text.replace(words, own)
        print(printable_lines(f"{name}: {text}"), file=sys.stderr)
        return NO


class Pace:
    """Lets a program go at a rate."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._begin = time.monotonic()

    def wait(self, done: int) -> None:
        """Wait until so many may be done."""
        if self._rate:
            delay = self._begin + done / self._rate - time.monotonic()
            if delay > 0:
                time.sleep(delay)


class Throughput:
    """Counts messages of a time."""

    HEADER = "tp(m/s)"

    def __init__(self) -> None:
        self.messages = 0
        self._begin = 0.0

    def count(self, message: Message) -> None:
        """Take note of a message."""
        self.messages += 1
        if self.messages == 1:
            self._begin = time.monotonic()

    def line(self) -> str:
        """Return the columns of a report."""
        elapsed = time.monotonic() - self._begin
        return f"{self.messages / elapsed if self.messages and elapsed else 0:.0f}"


class ThroughputAndLatency(Throughput):
    """Counts messages, and how long they were on their way by their property `ts`."""

    HEADER = "tp(m/s)\tl-min\tl-max\tl-avg"

    def __init__(self) -> None:
        super().__init__()
        self._samples = 0
        self._total = 0.0
        self._least, self._most = float("inf"), 0.0

    def count(self, message: Message) -> None:
        """Take note of a message."""
        super().count(message)
        sent = message.application_properties.get(TS)
        if isinstance(sent, int) and not isinstance(sent, bool):
            self._samples += 1
            latency = (time.time_ns() - sent) / MS
            if latency > 0:
                self._total += latency
                self._least, self._most = min(self._least, latency), max(self._most, latency)

    def line(self) -> str:
        """Return the columns of a report."""
        if not self._samples:
            return super().line()
        least = self._least if self._most else 0.0
        columns = (least, self._most, self._total / self._samples)
        return "\t".join([super().line(), *(f"{each:.2f}" for each in columns)])


class Reporter:
    """Prints reports, every so many messages and at the end."""

    def __init__(self, kind: type[Throughput], options: Values) -> None:
        self._kind = kind
        self._every = options.report_every
        self._says_header = options.report_header
        self._all, self._batch = kind(), kind()

    def count(self, message: Message) -> None:
        """Take note of a message."""
        self._all.count(message)
        if self._every:
            self._batch.count(message)
            if self._batch.messages == self._every:
                self._print(self._batch)
                self._batch = self._kind()

    def total(self) -> None:
        """Report on everything."""
        self._print(self._all)

    def _print(self, counted: Throughput) -> None:
        if self._says_header:
            self._says_header = False
            print(self._kind.HEADER)
        print(counted.line(), flush=True)


def shown(value: Any) -> str:
    """Return a value as Qpid prints it."""
    if value is None:
        return "<void>"
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "surrogateescape")
    if isinstance(value, dict):
        pairs = sorted((shown(key), shown(each)) for key, each in value.items())
        return "{" + ", ".join(f"{key}:{each}" for key, each in pairs) + "}"
    if isinstance(value, Array):
        value = value.items
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, Described):
        return f"@{shown(value.descriptor)} {shown(value.value)}"
    if isinstance(value, float):
        return f"{value:.9g}" if isinstance(value, Float) else f"{value:.17g}"
    return str(value)


def type_name(value: Any) -> str:
    """Return what Qpid calls the type of a value."""
    if isinstance(value, str | Symbol | bytes | bytearray | memoryview):
        return "string"
    for kind in type(value).__mro__:
        if kind in TYPE_NAMES:
            return TYPE_NAMES[kind]
    return type(value).__name__.lower()
