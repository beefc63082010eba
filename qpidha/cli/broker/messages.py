"""`qpid-ha send` and `receive`: a few messages by hand, over AMQP, and over failovers.

The client goes on over failovers; what a command does about them is decided here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Annotated
from uuid import uuid4

import typer

from qpidha.cli.app import settings_of
from qpidha.client.blocking import Client
from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import ask
from qpidha.client.command.clients import CommandClient
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import EPILOG, print_json, talk
from qpidha.client.command.target import (
    Target,
    beside,
    local_cluster,
    log_in_locally,
    public_address,
    resolve,
)
from qpidha.client.errors import DeliveryLost, TimedOut
from qpidha.client.links import Delivery, Received
from qpidha.client.message import Message, Outcome
from qpidha.model.broker_states import SERVING_STATES
from qpidha.model.exit_codes import NO, OK, UNAVAILABLE, USAGE

CREDIT = 100
"""Messages that the broker may send ahead of those that are printed."""
WINDOW = 500
"""Messages sent whose outcome is not known."""
SENDER_HEARTBEAT = 2.0
RECEIVER_HEARTBEAT = 5.0
"""In seconds; silence of twice as long is a lost connection."""
MOST_REFUSALS = 10
"""Refused messages that are shown."""
IDLE = 1.0
"""Seconds without a message after which `receive` ends."""


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    app.command("send", epilog=EPILOG)(_send)
    app.command("receive", epilog=EPILOG)(_receive)


class _Sending:
    """Messages on their way: which were accepted, and which were not."""

    def __init__(
        self,
        address: str,
        contents: Iterable[str | bytes],
        wanted: int,
        *,
        durable: bool,
        subject: str,
    ) -> None:
        self.address = address
        self.sent = self.accepted = self.refused = 0
        self.refusals: dict[int, Outcome] = {}
        """What became of the first that were refused, by the number of the message."""
        self._contents = contents
        self._wanted = wanted
        """How many there are, or 0 if only the end of the input tells."""
        self._id = uuid4().hex
        self._durable = durable
        self._subject = subject or None

    @property
    def total(self) -> int:
        """How many messages there are, as far as that is known."""
        return self._wanted or self.sent

    @property
    def undecided(self) -> int:
        """How many messages have no outcome yet."""
        return self.total - self.accepted - self.refused

    def run(self, client: Client) -> None:
        """Send everything in its order, and wait for the outcomes."""
        sender = client.sender(self.address, window=WINDOW, on_outcome=self._decide)
        for content in self._contents:
            self.sent += 1
            # The id stays when a message is sent again: who gets both can tell. No other call uses
            # it: a queue with qpidha.dedup=message-id takes each id once.
            message = Message(
                content,
                durable=self._durable,
                subject=self._subject,
                message_id=f"{self._id}-{self.sent}",
            )
            sender.send_nowait(message)
        sender.flush()

    def _decide(self, delivery: Delivery) -> None:
        if delivery.outcome is None:
            return  # It never had one: the client has failed.
        if delivery.outcome.accepted:
            self.accepted += 1
            return
        self.refused += 1
        if len(self.refusals) < MOST_REFUSALS:
            self.refusals[delivery.number] = delivery.outcome


def _given(address: str) -> str:
    if not address:
        raise Failure(USAGE, "the address is empty", hint="give a queue, or exchange/key")
    return address


def _send(
    context: typer.Context,
    address: Annotated[str, typer.Argument(help="a queue, or exchange/key")],
    text: Annotated[
        list[str] | None,
        typer.Argument(help="messages; default: lines of standard input, or with -m a number"),
    ] = None,
    messages: Annotated[
        int, typer.Option("-m", "--messages", min=0, help="send this many messages")
    ] = 0,
    size: Annotated[
        int, typer.Option("--content-size", min=0, help="bytes in each of the -m messages")
    ] = 0,
    durable: Annotated[
        bool,
        typer.Option(
            "--durable", help="mark the messages durable: kept on disk by a durable queue"
        ),
    ] = False,
    subject: Annotated[
        str, typer.Option(help="subject, which is the routing key on an exchange")
    ] = "",
) -> None:
    """Send messages and wait until each is accepted. Lines of standard input are sent as they come.

    After a failover it goes on at the new primary, and sends again what had no outcome, so a
    message may be there twice. If no broker serves within --timeout the exit code is 69, and it
    prints how many messages were accepted and how many had no outcome. Text that is not UTF-8
    is sent as binary.

    Example: qpid-ha send orders hello -b node1
    """
    options = settings_of(context)
    given = list(text or [])
    contents, wanted = _contents(given, messages, size), max(messages, len(given))
    sending = _Sending(_given(address), contents, wanted, durable=durable, subject=subject)
    command = CommandClient(amqp_targets(options), options, heartbeat=SENDER_HEARTBEAT)
    try:
        with command.opened() as client:
            sending.run(client)
    except Failure as failure:
        if not sending.sent:
            if failure.condition == "amqp:not-found" and "/" not in address:
                failure.hint = f"qpid-ha queue add {address}"
            raise
        if options.as_json:
            _print_counts(sending)
        raise _incomplete(sending, failure) from failure
    except KeyboardInterrupt:
        if options.as_json:
            _print_counts(sending)
        talk(options, f"interrupted: {sending.accepted:,} of {sending.total:,} accepted")
        raise
    _report(options, sending)


def _incomplete(sending: _Sending, failure: Failure) -> Failure:
    """Say how far it came."""
    counts = f"{sending.accepted:,} accepted, {sending.undecided:,} without an outcome"
    again = f"run it again: qpid-ha send {sending.address} ..."
    return Failure(
        failure.code,
        f"{counts}: {failure.text}",
        reason=failure.reason,
        hint=again if failure.code == UNAVAILABLE else failure.hint,
        condition=failure.condition,
    )


def _contents(text: list[str], messages: int, size: int) -> Iterator[str | bytes]:
    """Yield what to send, each when it is there: input may come slowly, or never end."""
    if text:
        # What the command line has of bytes that are not UTF-8 are surrogates.
        for number in range(max(messages, len(text))):
            yield _text_or_bytes(os.fsencode(text[number % len(text)]))
    elif messages:
        for number in range(1, messages + 1):
            yield (f"{number} " + "x" * size)[:size] if size else str(number)
    else:
        for line in sys.stdin.buffer:
            yield _text_or_bytes(line.rstrip(b"\n"))


def _text_or_bytes(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _print_counts(sending: _Sending) -> None:
    counts = {"sent": sending.total, "accepted": sending.accepted, "refused": sending.refused}
    print_json({"schema_version": 1, **counts, "without_outcome": sending.undecided})


def _report(options: Options, sending: _Sending) -> None:
    if options.as_json:
        _print_counts(sending)
    else:
        talk(options, f"{sending.accepted:,} of {sending.total:,} accepted")
    for number, outcome in sending.refusals.items():
        why = ": ".join(part for part in (outcome.state, outcome.explanation) if part)
        hint = f" ({outcome.hint})" if outcome.hint else ""
        talk(options, f"message {number}: {why}{hint}")
    raise typer.Exit(NO if sending.refused else OK)


def _receive(
    context: typer.Context,
    address: Annotated[str, typer.Argument(help="a queue, or exchange/key")],
    messages: Annotated[
        int, typer.Option("-m", "--messages", min=0, help="end after this many; 0 is no limit")
    ] = 0,
    forever: Annotated[
        bool, typer.Option("-f", "--forever", help="go on until interrupted, over every failover")
    ] = False,
    idle: Annotated[
        float, typer.Option(min=0.0, help="seconds without a message after which to end")
    ] = IDLE,
    browse: Annotated[
        bool, typer.Option("--browse", help="look at the messages and leave them in the queue")
    ] = False,
    selector: Annotated[
        str, typer.Option(help="only the messages that this JMS selector selects")
    ] = "",
) -> None:
    """Receive messages and print one per line; with -o json one object per line.

    A message is taken from the queue when it is printed. To look at a few, use -m 1 or --browse
    and not "| head -1": messages that were printed into the pipe are gone, even if no program
    read them. After a failover it goes on at the new primary, where a message that was printed
    just before may come again. If no broker serves within --timeout the exit code is 69; with
    -f it goes on trying. --browse does not go on after a failover.

    Example: qpid-ha receive orders -m 10 --selector "price > 100" -b node1
    """
    options = settings_of(context)
    seconds = None if forever else idle
    receiving = _Receiving(
        options, _given(address), messages, seconds, browse=browse, selector=selector
    )
    command = CommandClient(
        amqp_targets(options), options, heartbeat=RECEIVER_HEARTBEAT, forever=forever
    )
    try:
        with command.opened() as client:
            receiving.run(command, client)
    except Failure as failure:
        if not command.served or failure.code != UNAVAILABLE:
            raise
        raise Failure(
            failure.code,
            f"{receiving.count:,} received: {failure.text}",
            reason=failure.reason,
            hint="run it again",
            condition=failure.condition,
        ) from failure
    except KeyboardInterrupt:
        talk(options, f"interrupted: {receiving.count:,} received")
        raise
    talk(options, f"{receiving.count:,} received")
    raise typer.Exit(OK if receiving.count >= messages else NO)


class _Receiving:
    """Messages that are printed: how many, and how many are wanted."""

    def __init__(
        self,
        options: Options,
        address: str,
        wanted: int,
        idle: float | None,
        *,
        browse: bool,
        selector: str,
    ) -> None:
        self.count = 0
        self._options = options
        self._address = address
        self._wanted = wanted
        self._idle = idle
        self._browse = browse
        self._selector = selector

    def run(self, command: CommandClient, client: Client) -> None:
        """Print messages until there are enough, or none for `idle` seconds.

        A message is accepted when it is printed: what an interrupted call, or a reader who has
        enough, did not get stays. So no more is asked for than is wanted.
        """
        credit = 0 if self._wanted else CREDIT
        with client.receiver(
            self._address, credit=credit, browse=self._browse, selector=self._selector
        ) as receiver:
            connects = client.connects
            while not self._wanted or self.count < self._wanted:
                if self._wanted and command.connected:
                    asked = receiver.credit + receiver.buffered
                    receiver.add_credit(max(0, self._wanted - self.count - asked))
                try:
                    message = receiver.receive(self._idle)
                except TimedOut:
                    if command.connected and client.connects == connects:
                        break
                    # It was idle because no broker served; the client gives up by itself.
                    connects = client.connects
                    continue
                if self._browse and self.count and client.connects != connects:
                    raise Failure(
                        UNAVAILABLE, "the connection was lost while browsing", hint="run it again"
                    )
                connects = client.connects
                self._take(message)

    def _take(self, message: Received) -> None:
        outcome = message.release
        try:
            _show(self._options, message)
            self.count += 1
            outcome = message.accept
        finally:
            try:
                outcome()
            except DeliveryLost:
                pass  # It comes again elsewhere.


def _show(options: Options, message: Message) -> None:
    content = message.body
    if isinstance(content, bytes):
        content = content.decode("utf-8", "backslashreplace")
    if options.as_json:
        fields = {
            name: value if isinstance(value, (str, int)) else str(value)
            for name, value in asdict(message.properties).items()
            if value is not None
        }
        shown = {
            "body": content,
            "properties": fields,
            "delivery_count": message.header.delivery_count,
        }
        print(json.dumps(shown, default=str), flush=True)
    else:
        print(content, flush=True)


def amqp_targets(options: Options) -> list[Target]:
    """Messages need AMQP addresses: for an admin socket, ask its broker for it. One that does not
    answer is left out where others are named.
    """
    found: list[Target] = []
    targets = resolve(options)
    for target in targets:
        try:
            found.append(_amqp_target(target, options))
        except Failure:
            if target is targets[-1] and not found:
                raise
    return found


def _amqp_target(target: Target, options: Options) -> Target:
    if not target.socket:
        return target
    cluster = local_cluster() or {}
    for broker in cluster.get("brokers", []):
        if broker["admin_socket"] == target.socket:
            return log_in_locally(beside(public_address(broker), target), cluster, options)
    status = ask(options, "status", target=target)
    primary = status.get("primary") or {}
    address = (
        status["address"]
        if status["state"] in SERVING_STATES
        else primary.get("address") or status["address"]
    )
    return beside(str(address), target)
