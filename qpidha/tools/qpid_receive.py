"""qpid-receive: receive messages from an address and print them, as Qpid's program of this name
does.

It ends when there are no more messages for `--timeout`, after `--messages` of them, or with a
message that marks the end of the input. Messages are acknowledged by the batch, so after a failover
some come again; `--ignore-duplicates` leaves those out.
Source: qpid-cpp src/tests/qpid-receive.cpp; src/qpid/messaging/amqp/EncodedMessage.cpp.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from optparse import Values
from typing import Any

from qpidha.client.blocking import Client
from qpidha.client.links import Received
from qpidha.client.message import Message
from qpidha.tools.connection_options import ToolError
from qpidha.tools.messaging_addresses import RECEIVER, SENDER, read_address
from qpidha.tools.messaging_links import Nodes, Receiver, Sender, Transactions, close_quietly
from qpidha.tools.messaging_log import Log
from qpidha.tools.messaging_options import ConnectionOptions
from qpidha.tools.messaging_program import (
    EOS,
    SN,
    Pace,
    ProgramParser,
    Reporter,
    ThroughputAndLatency,
    log_of,
    run,
    shown,
    type_name,
)

NAME = "qpid-receive"
SECOND_MS = 1000
FOREVER = 1e9
"""Seconds."""
ROUTING_KEYS = ("qpid.subject", "x-amqp-0-10.routing-key")
"""Properties in which old senders repeat the subject."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program, and return its exit code."""
    return run(NAME, _work, arguments)


def make_parser() -> ProgramParser:
    """Make what reads the command line."""
    parser = ProgramParser(NAME, "Drains messages from the specified address.")
    parser.add_connection("Receive from this address: name/subject; {options}")
    made = parser.group("Messages")
    made.add_option(
        "--timeout",
        type="float",
        default=0.0,
        metavar="TIMEOUT",
        help="End when no message arrives for this many seconds (0)",
    )
    made.add_switch("-f", "--forever", text="Wait for ever, whatever --timeout says.")
    made.add_count("-m", "--messages", text="Stop after N messages, 0 for never")
    made.add_switch("--ignore-duplicates", text=f"Skip duplicates, by the property {SN}.")
    made.add_switch("--verify-sequence", text=f"Fail when the property {SN} has a gap.")
    made.add_switch(
        "--check-redelivered",
        text="With --ignore-duplicates: fail at a duplicate that is not marked as redelivered.",
    )
    made.add_count("--capacity", default=1000, text="Prefetch N messages, 0 for none")
    made.add_count("--ack-frequency", default=100, text="Acknowledge every N messages, 0 for never")
    made.add_flag("--print-content", default=True, text="Print the content of messages")
    made.add_flag("--print-object-type", default=False, text="Print the type of the content")
    made.add_flag(
        "--print-headers", default=False, text="Print the headers and properties of messages"
    )
    made.add_text("--ready-address", metavar="ADDRESS", text="Send a message here when ready.")
    made.add_count("--receive-rate", text="Receive N messages a second, 0 for no limit")
    made.add_text("--reply-to", metavar="REPLY-TO", text="Set the reply-to address of replies.")
    made.add_switch("--ignore-reply-to", text="Send no replies.")
    parser.add_run()
    return parser


def _work(arguments: list[str]) -> None:
    parser = make_parser()
    options = parser.read(arguments)
    if not options.timeout >= 0:
        parser.error(f"the argument ({options.timeout}) for option --timeout is less than 0")
    log = log_of(options)
    connection = ConnectionOptions.read(options.broker, options.connection_options)
    address = read_address(
        options.address, RECEIVER, passthrough=connection.values.get("address_passthrough", False)
    )
    client = connection.client(
        NAME, log, learns=options.failover_updates, is_admin=options.ha_admin
    )
    capacity = min(options.capacity, options.messages or options.capacity)
    try:
        client.open()
        nodes = Nodes(client, log, reconnects=connection.reconnects)
        receiver = Receiver(client, nodes, address, capacity=capacity)
        run_of_program = _Run(options, client, receiver, connection, log)
        run_of_program.receive()
        receiver.close()
        client.close()
    except BaseException:
        close_quietly(client)
        raise


class _Run:
    """One run of the program."""

    def __init__(
        self,
        options: Values,
        client: Client,
        receiver: Receiver,
        connection: ConnectionOptions,
        log: Log,
    ) -> None:
        self._options = options
        self._client = client
        self._receiver = receiver
        self._connection = connection
        self._log = log
        self._answers: dict[str, Sender] = {}
        self._count = 0
        self._transactions = Transactions(client, options.tx, options.rollback_frequency)
        self._sequence = _Sequence(options)

    def receive(self) -> None:
        """Receive until the end."""
        options, receiver = self._options, self._receiver
        reporter = Reporter(ThroughputAndLatency, options)
        if options.ready_address:
            self._tell_ready()
        pace = Pace(options.receive_rate)
        timeout = None if options.forever or options.timeout >= FOREVER else options.timeout
        is_done = False
        while not is_done and (message := receiver.fetch(timeout)) is not None:
            reporter.count(message)
            if self._sequence.wants(message):
                if message.body in (EOS, EOS.encode()):
                    is_done = True
                else:
                    self._count += 1
                    self._print(message)
                    is_done = bool(options.messages) and self._count >= options.messages
            if options.tx:
                if self._count % options.tx == 0:
                    self._end()
            elif options.ack_frequency and self._count % options.ack_frequency == 0:
                receiver.acknowledge()
            if message.properties.reply_to and not options.ignore_reply_to:
                self._answer(message)
            pace.wait(self._count)
        if options.report_total:
            reporter.total()
        if options.tx:
            self._end()
        elif options.ack_frequency:
            receiver.acknowledge()
            receiver.sync()
        for sender in self._answers.values():
            sender.sync()

    def _tell_ready(self) -> None:
        address = read_address(self._options.ready_address, SENDER)
        sender = self._sender(address.text)
        sender.send(Message(b""), self._transactions.current())
        self._transactions.end(counts=False)
        sender.sync()
        sender.close()

    def _sender(self, address: str, *, passthrough: bool = False) -> Sender:
        return Sender(
            self._client,
            Nodes(self._client, self._log, reconnects=self._connection.reconnects),
            read_address(address, SENDER, passthrough=passthrough),
            self._connection,
            self._log,
            capacity=self._options.capacity,
        )

    def _end(self) -> None:
        """Acknowledge in the transaction, and end it."""
        if self._receiver.has_unsettled:
            self._receiver.acknowledge(self._transactions.current())
        self._transactions.end()

    def _answer(self, message: Received) -> None:
        """Send a message back to where it asks for answers."""
        to = message.properties.reply_to or ""
        sender = self._answers.get(to)
        if sender is None:
            sender = self._answers[to] = self._sender(to, passthrough=True)
        subject = to.partition("/")[2] or None
        answer = Message.decode(message.encode())
        properties = answer.properties
        if properties.subject:
            properties.subject = subject
            for name in ROUTING_KEYS:
                if name in answer.application_properties:
                    answer.application_properties[name] = subject or ""
        properties.reply_to = self._options.reply_to or None
        answer.delivery_annotations.clear()
        sender.send(answer, self._transactions.current())

    def _print(self, message: Received) -> None:
        options = self._options
        lines = []
        if options.print_headers:
            lines += [*_headers(message, nests=self._nests), ""]
        if options.print_content:
            body = message.body
            if options.print_object_type and body is not None:
                lines.append(f"[Object: {type_name(body)}]")
            lines.append("" if body is None else shown(body))
        if lines:
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            if not self._receiver.buffered:
                sys.stdout.flush()

    @property
    def _nests(self) -> bool:
        return bool(self._connection.values.get("nest_annotations"))


class _Sequence:
    """Follows the numbers of messages."""

    def __init__(self, options: Values) -> None:
        self._verifies = options.verify_sequence
        self._ignores = options.ignore_duplicates
        self._checks = options.check_redelivered
        self._last = 0

    def wants(self, message: Received) -> bool:
        """Whether a message is to be processed. Raises ToolError for one that must not come."""
        if not (self._verifies or self._ignores):
            return True
        number = message.application_properties.get(SN)
        if not isinstance(number, int) or isinstance(number, bool):
            number = 0
        if self._verifies and number > self._last + 1:
            raise ToolError("Gap", f"Gap in sequence numbers {self._last}-{number}")
        if number > self._last:
            self._last = number
            return True
        if self._ignores and self._checks and not message.header.delivery_count:
            raise ToolError("Duplicate", f"duplicate {number} is not marked as delivered before")
        return not self._ignores


def _headers(message: Received, *, nests: bool) -> list[str]:
    """Return the lines that say what is in a message beside its content."""
    properties, header = message.properties, message.header
    fields: list[tuple[str, Any]] = [
        ("Subject", properties.subject),
        ("ReplyTo", properties.reply_to),
        ("MessageId", properties.message_id),
        ("CorrelationId", properties.correlation_id),
        ("UserId", properties.user_id),
        ("TTL", round(header.ttl * SECOND_MS) if header.ttl else None),
        ("Priority", header.priority or None),
        ("Durable", "true" if header.durable else None),
        ("Redelivered", "true" if header.delivery_count else None),
        ("Properties", _properties(message, nests=nests)),
        ("ContentType", properties.content_type),
    ]
    return [f"{name}: {shown(value)}" for name, value in fields if value not in (None, "", b"")]


def _properties(message: Received, *, nests: bool) -> dict[str, Any]:
    """Return the properties of the application, and under names of their own the fields and
    annotations that Qpid shows among them.
    """
    properties, header = message.properties, message.header
    found = dict(message.application_properties)
    fields = {
        "first-acquirer": header.first_acquirer or None,
        "delivery-count": header.delivery_count or None,
        "to": properties.to,
        "content-encoding": properties.content_encoding,
        "absolute-expiry-time": _ms(properties.absolute_expiry_time),
        "creation-time": _ms(properties.creation_time),
        "group-id": properties.group_id,
        "group-sequence": properties.group_sequence,
        "reply-to-group-id": properties.reply_to_group_id,
    }
    found |= {f"x-amqp-{name}": value for name, value in fields.items() if value is not None}
    for name, given in (
        ("delivery", message.delivery_annotations),
        ("message", message.message_annotations),
    ):
        if given and nests:
            found[f"x-amqp-{name}-annotations"] = given
        else:
            found = {**{str(key): each for key, each in given.items()}, **found}
    return found


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND_MS)


if __name__ == "__main__":
    sys.exit(main())
