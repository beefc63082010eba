"""qpid-send: send messages to an address, as Qpid's program of this name does.

Each message has a number (`sn`, from 1) and its time (`ts`), so that qpid-receive can tell gaps,
repetitions and latency. What a broker did not take is sent again or told, and the program ends
when everything was taken.
Source: qpid-cpp src/tests/qpid-send.cpp.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from optparse import Values
from typing import Any

from qpidha.client.blocking import Client
from qpidha.client.message import Message
from qpidha.model.encoding import UInt
from qpidha.tools.address_strings import parse_address_string, typed
from qpidha.tools.connection_options import ToolError
from qpidha.tools.messaging_addresses import SENDER, read_address
from qpidha.tools.messaging_links import Nodes, Sender, Transactions, close_quietly
from qpidha.tools.messaging_options import ConnectionOptions
from qpidha.tools.messaging_program import (
    EOS,
    SN,
    TS,
    Pace,
    ProgramParser,
    Reporter,
    Throughput,
    log_of,
    run,
)

NAME = "qpid-send"
SECOND_MS = 1000
HIGHEST_PRIORITY = 255
FIELDS = "x-amqp-"
"""Properties whose names begin so are fields of the message."""
MESSAGE_FIELDS: dict[str, tuple[str, type]] = {
    "x-amqp-to": ("to", str),
    "x-amqp-content-encoding": ("content_encoding", str),
    "x-amqp-creation-time": ("creation_time", int),
    "x-amqp-absolute-expiry-time": ("absolute_expiry_time", int),
    "x-amqp-group-id": ("group_id", str),
    "x-amqp-group-sequence": ("group_sequence", int),
    "x-amqp-reply-to-group-id": ("reply_to_group_id", str),
    "x-amqp-first-acquirer": ("first_acquirer", bool),
    "x-amqp-delivery-count": ("delivery_count", int),
}
"""Such properties -> the field, and what its value is."""
TIMES = ("creation_time", "absolute_expiry_time")
HEADER_FIELDS = ("first_acquirer", "delivery_count")
MOST: dict[str, int] = {
    **dict.fromkeys(TIMES, 1 << 53),
    **dict.fromkeys(("group_sequence", "delivery_count"), 1 << 32),
    "first_acquirer": 2,
}
KINDS = {int: "a whole number", bool: "true or false"}
APPLICATION_ID = "x-amqp-0-10.app-id"
"""A property that only looks like a field."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program, and return its exit code."""
    return run(NAME, _work, arguments)


def make_parser() -> ProgramParser:
    """Make what reads the command line."""
    parser = ProgramParser(NAME, "Sends messages to the specified address.")
    parser.add_connection("Send to this address: name/subject; {options}")
    made = parser.group("Messages")
    made.add_count("-m", "--messages", default=1, text="Stop after N messages, 0 for never")
    made.add_text("-i", "--id", metavar="ID", text="Set the message-id.")
    made.add_text("--reply-to", metavar="REPLY-TO", text="Set the reply-to address.")
    made.add_count("--send-eos", text="Send N end-of-stream messages at the end")
    made.add_flag("--durable", default=False, text="Mark messages as durable")
    made.add_count("--ttl", text="Set the time to live, 0 for ever", metavar="msecs")
    made.add_count("--priority", text="Set the priority", metavar="PRIORITY")
    made.add_list(
        "-P",
        "--property",
        metavar="NAME=VALUE",
        text="Add an application property; may be repeated.",
    )
    made.add_text("--correlation-id", metavar="ID", text="Set the correlation-id.")
    made.add_text("--user-id", metavar="USERID", text="Set the user-id.")
    made.add_flag(
        "--auto-user-id", default=False, text="Set the user-id to the user of the connection"
    )
    made.add_text("--content-string", metavar="CONTENT", text="Send this content.")
    made.add_count("--content-size", text="Send this many bytes")
    made.add_list(
        "-M",
        "--content-map",
        metavar="NAME=VALUE",
        text="Send a map with this entry; may be repeated.",
    )
    made.add_switch("--content-stdin", text="Send each line of standard input.")
    made.add_count("--capacity", default=1000, text="Have at most N unsettled messages")
    made.add_count("--send-rate", text="Send N messages a second, 0 for no limit")
    made.add_flag(
        "--sequence", default=True, text=f"Set the property {SN} to the number of the message"
    )
    made.add_flag("--timestamp", default=True, text=f"Set the property {TS} to the time of sending")
    made = parser.group("Message Groups")
    made.add_text(
        "--group-key", metavar="KEY", text="Make groups, with their names in this property."
    )
    made.add_option(
        "--group-prefix",
        metavar="STRING",
        default="GROUP-",
        help="Prefix of the names of groups (%default)",
    )
    made.add_count("--group-size", default=10, text="Put N messages into a group")
    made.add_switch("--group-randomize-size", text="Put 1 to --group-size messages into a group.")
    made.add_count("--group-interleave", default=1, text="Interleave the messages of N groups")
    parser.add_run()
    return parser


def _work(arguments: list[str]) -> None:
    parser = make_parser()
    options = parser.read(arguments)
    if options.priority > HIGHEST_PRIORITY:
        parser.error(f"the argument for option --priority is at most {HIGHEST_PRIORITY}")
    if options.group_key and not options.group_size:
        parser.error("a group of no messages never ends. Try: --group-size 1 or more")
    log = log_of(options)
    connection = ConnectionOptions.read(options.broker, options.connection_options)
    values = connection.values
    address = read_address(
        options.address, SENDER, passthrough=values.get("address_passthrough", False)
    )
    template = _Template(options, address.name if values.get("set_to_on_send") else "")
    client = connection.client(
        NAME, log, learns=options.failover_updates, is_admin=options.ha_admin
    )
    try:
        client.open()
        if options.auto_user_id and not options.user_id:
            template.user_id = client.endpoint.user.encode()
        sender = Sender(
            client,
            Nodes(client, log, reconnects=connection.reconnects),
            address,
            connection,
            log,
            capacity=options.capacity,
        )
        _send_all(options, client, sender, template)
        sender.close()
        client.close()
    except BaseException:
        close_quietly(client)
        raise


def _send_all(options: Values, client: Client, sender: Sender, template: _Template) -> None:
    transactions = Transactions(client, options.tx, options.rollback_frequency)
    reporter = Reporter(Throughput, options)
    groups = _groups(options) if options.group_key else None
    pace = Pace(options.send_rate)
    sent = 0
    for content in _contents(options):
        sent += 1
        message = template.make(content, sent if options.sequence else None)
        if groups is not None:
            message.application_properties[options.group_key] = next(groups)
        if options.timestamp:
            message.application_properties[TS] = time.time_ns()
        sender.send(message, transactions.current())
        reporter.count(message)
        if options.tx and sent % options.tx == 0:
            transactions.end()
        pace.wait(sent)
    if options.report_total:
        reporter.total()
    for _ in range(options.send_eos):
        sent += 1
        sender.send(template.make(EOS, sent if options.sequence else None), transactions.current())
    transactions.end()
    sender.sync()


class _Template:
    """What all messages of a run have in common."""

    def __init__(self, options: Values, to: str) -> None:
        self._header = {
            "durable": options.durable,
            "priority": options.priority,
            "ttl": options.ttl / SECOND_MS if options.ttl else None,
        }
        self._more_header: dict[str, Any] = {}
        self._fields: dict[str, Any] = {}
        self._properties: dict[str, Any] = {}
        self.user_id = os.fsencode(options.user_id)
        for name, text in (
            ("message_id", options.id),
            ("correlation_id", options.correlation_id),
            ("to", to),
        ):
            if text:
                self._fields[name] = text
        if options.reply_to:
            reply = parse_address_string(options.reply_to)
            self._fields["reply_to"] = "/".join(filter(None, (reply.name, reply.subject)))
        for given in options.property:
            name, _, text = given.partition("=")
            self._add(name, typed(text) if text else None, text)

    def make(self, content: Any, number: int | None) -> Message:
        """Make a message."""
        fields = self._fields if not self.user_id else {**self._fields, "user_id": self.user_id}
        message = Message(
            content, application_properties=self._properties, **self._header, **fields
        )
        for name, value in self._more_header.items():
            setattr(message.header, name, value)
        if number is not None:
            message.application_properties[SN] = UInt(number)
        return message

    def _add(self, name: str, value: Any, given: str) -> None:
        if not name.startswith(FIELDS) or name == APPLICATION_ID:
            self._properties[name] = value
            return
        field, kind = MESSAGE_FIELDS.get(name, ("", str))
        if not field:
            raise ToolError(
                "InvalidOption",
                f"the property {name} stands for no field of a message. Try: one of "
                + ", ".join(sorted(MESSAGE_FIELDS)),
            )
        if kind is str:
            value = "" if value is None else given
        elif not isinstance(value, int) or type(value) is not kind or not 0 <= value < MOST[field]:
            raise ToolError("InvalidOption", f"the property {name} is {KINDS[kind]}, not {given!r}")
        if field in HEADER_FIELDS:
            self._more_header[field] = value
        else:
            self._fields[field] = value / SECOND_MS if field in TIMES else value


def _contents(options: Values) -> Iterator[Any]:
    """Return the content of each message."""
    if options.content_stdin:
        for line in sys.stdin.buffer:
            yield _text(line.removesuffix(b"\n"))
        return
    if options.content_map:
        entries = dict(entry.partition("=")[::2] for entry in options.content_map)
        fixed: Any = {name: value or None for name, value in entries.items()}
    elif options.content_size:
        fixed = "X" * options.content_size
    else:
        fixed = _text(os.fsencode(options.content_string))
    left = options.messages or -1
    while left:
        yield fixed
        left -= 1


def _text(content: bytes) -> str | bytes:
    """Return text, or the bytes where they are none."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _groups(options: Values) -> Iterator[str]:
    """Return the group of each message: of several that are open, each in turn."""
    sizes = random.Random(os.getpid())
    made = 0

    def begin() -> list[Any]:
        nonlocal made
        made += 1
        size = options.group_size
        if options.group_randomize_size:
            size = sizes.randint(1, size)
        return [f"{options.group_prefix}{made - 1}", size]

    groups = [begin() for _ in range(max(1, options.group_interleave))]
    at = 0
    while True:
        group = groups[at]
        yield group[0]
        group[1] -= 1
        if not group[1]:
            groups.append(begin())
            del groups[at]
        else:
            at += 1
        at %= len(groups)


if __name__ == "__main__":
    sys.exit(main())
