"""`qpid-ha send` and `receive`: a few messages by hand, over AMQP, and over failovers.

What has to be repeated on another broker is known here; which broker serves is found by `Route`.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from functools import partial
from typing import Annotated

import typer

from qpidha.amqp.terminus import SOURCE, Outcome, Terminus
from qpidha.cli.app import settings_of
from qpidha.cli.arguments import Options
from qpidha.cli.client import Client, Inbox, Lost
from qpidha.cli.exits import NO, OK, UNREACHABLE, Failure
from qpidha.cli.failover import Route
from qpidha.cli.output import EPILOG, print_json, talk
from qpidha.cli.status import ask
from qpidha.cli.target import PRIMARY_STATES, Target, local_cluster, resolve
from qpidha.words.message_view import body, build, header, properties

WINDOW = 500
"""Messages sent whose outcome is not known."""
SENDER_HEARTBEAT = 2_000_000_000
RECEIVER_HEARTBEAT = 5_000_000_000
"""In ns; silence of twice as long is a lost connection. A receiver says nothing itself while it prints into a full pipe."""
IDLE = 1.0
"""Seconds without a message after which `receive` ends."""
OUTCOMES = {0x24: "accepted", 0x25: "rejected", 0x26: "released", 0x27: "modified"}


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    app.command("send", epilog=EPILOG)(_send)
    app.command("receive", epilog=EPILOG)(_receive)


class _Sending:
    """Contents on their way: which are accepted, refused, under way on the present link, and still to be sent."""

    def __init__(self, address: str, contents: list[str | bytes], *, durable: bool, subject: str) -> None:
        self.address = address
        self.accepted = 0
        self.refused: dict[int, Outcome] = {}
        """What became of others, by the number of the message."""
        self.begun = False
        self.contents = contents
        self._header = {"durable": True} if durable else None
        self._properties = {"subject": subject} if subject else {}
        self._left = deque(range(1, len(contents) + 1))
        self._under_way: dict[int, int] = {}

    @property
    def decided(self) -> int:
        """How many messages have an outcome."""
        return self.accepted + len(self.refused)

    @property
    def undecided(self) -> int:
        """How many messages have none yet."""
        return len(self.contents) - self.decided

    def run(self, client: Client) -> None:
        """Send everything that has no outcome, in its order, and wait for the outcomes."""
        self._left.extendleft(sorted(self._under_way.values(), reverse=True))
        self._under_way.clear()
        outbox = client.sender(self.address)
        outbox.on_outcome = lambda number: self._decide(self._under_way.pop(number), outbox.outcomes.get(number))
        while self._left:
            number = self._left.popleft()
            self.begun = True
            # The id stays when a message is sent again: who gets both can tell.
            properties = {**self._properties, "message_id": str(number)}
            self._under_way[outbox.send(build(self.contents[number - 1], header=self._header, properties=properties))] = number
            client.wait(lambda: len(self._under_way) < WINDOW or outbox.gone, "an outcome")
            client.check(outbox, self.address)
        client.wait(lambda: not self._under_way or outbox.gone, "the last outcome")
        client.check(outbox, self.address)

    def _decide(self, number: int, outcome: Outcome | None) -> None:
        if outcome is None:
            self.accepted += 1
        else:
            self.refused[number] = outcome


def _send(
    context: typer.Context,
    address: Annotated[str, typer.Argument(help="a queue, or exchange/key")],
    text: Annotated[list[str] | None, typer.Argument(help="messages; default: lines of standard input, or with -m a number")] = None,
    messages: Annotated[int, typer.Option("-m", "--messages", min=0, help="send this many messages")] = 0,
    size: Annotated[int, typer.Option("--content-size", min=0, help="bytes in each of the -m messages")] = 0,
    durable: Annotated[bool, typer.Option("--durable", help="mark the messages durable: kept on disk by a durable queue")] = False,
    subject: Annotated[str, typer.Option(help="subject, which is the routing key on an exchange")] = "",
) -> None:
    """Send messages and wait until each is accepted.

    After a failover it goes on at the new primary, and sends again what had no outcome, so a message may be there twice.
    If no broker serves within --timeout it ends with 69 and says how many messages were accepted and how many had no outcome.
    Text that is not UTF-8 is sent as binary.
    """
    options = settings_of(context)
    sending = _Sending(address, _contents(list(text or []), messages, size), durable=durable, subject=subject)
    route = Route(_amqp_target(options), options, heartbeat=SENDER_HEARTBEAT)
    try:
        route.work(sending.run, lambda: sending.decided)
    except Failure as failure:
        if not sending.begun:
            if failure.condition == "amqp:not-found" and "/" not in address:
                failure.hint = f"qpid-ha queue add {address}"
            raise
        if options.as_json:
            _print_counts(sending)
        counts = f"{sending.accepted:,} accepted, {sending.undecided:,} without an outcome"
        hint = f"run it again: qpid-ha send {address} ..." if failure.code == UNREACHABLE else failure.hint
        raise Failure(failure.code, f"{counts}: {failure.text}", hint=hint, condition=failure.condition) from failure
    _report(options, sending)


def _contents(text: list[str], messages: int, size: int) -> list[str | bytes]:
    if text:
        # What the command line has of bytes that are not UTF-8 are surrogates.
        return [_text_or_bytes(os.fsencode(text[number % len(text)])) for number in range(max(messages, len(text)))]
    if messages:
        return [(f"{number} " + "x" * size)[:size] if size else str(number) for number in range(1, messages + 1)]
    return [_text_or_bytes(line.rstrip(b"\n")) for line in sys.stdin.buffer]


def _text_or_bytes(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _print_counts(sending: _Sending) -> None:
    counts = {"sent": len(sending.contents), "accepted": sending.accepted, "refused": len(sending.refused)}
    print_json({"schema_version": 1, **counts, "without_outcome": sending.undecided})


def _report(options: Options, sending: _Sending) -> None:
    if options.as_json:
        _print_counts(sending)
    else:
        talk(options, f"{sending.accepted:,} of {len(sending.contents):,} accepted")
    for number, outcome in list(sending.refused.items())[:10]:
        why = outcome.error.description if outcome.error is not None else ""
        talk(options, f"message {number}: {OUTCOMES.get(outcome.state, 'no outcome')} {why}".rstrip())
    raise typer.Exit(NO if sending.refused else OK)


def _receive(
    context: typer.Context,
    address: Annotated[str, typer.Argument(help="a queue, or exchange/key")],
    messages: Annotated[int, typer.Option("-m", "--messages", min=0, help="end after this many; 0 is no limit")] = 0,
    forever: Annotated[bool, typer.Option("-f", "--forever", help="go on until interrupted, over every failover")] = False,
    idle: Annotated[float, typer.Option(min=0.0, help="seconds without a message after which to end")] = IDLE,
    browse: Annotated[bool, typer.Option("--browse", help="look at the messages and leave them in the queue")] = False,
) -> None:
    """Receive messages and print one per line; with -o json one object per line.

    A message is taken from the queue when it is printed. To look at a few, use -m 1 or --browse and not "| head -1":
    messages that were printed into the pipe are gone, though nobody read them.
    After a failover it goes on at the new primary, where a message that was printed just before may come again.
    If no broker serves within --timeout it ends with 69; with -f it goes on trying. --browse does not go on: it ends with 69.
    """
    options = settings_of(context)
    receiving = _Receiving(options, address, messages, None if forever else idle, browse)
    route = Route(_amqp_target(options), options, heartbeat=RECEIVER_HEARTBEAT, forever=forever)
    try:
        route.work(receiving.run, lambda: receiving.count)
    except Failure as failure:
        if not route.served or failure.code != UNREACHABLE:
            raise
        hint = "run it again"
        raise Failure(failure.code, f"{receiving.count:,} received: {failure.text}", hint=hint, condition=failure.condition) from failure
    talk(options, f"{receiving.count:,} received")
    raise typer.Exit(OK if receiving.count >= messages else NO)


class _Receiving:
    """Messages that are printed: how many, and how many are wanted."""

    def __init__(self, options: Options, address: str, wanted: int, idle: float | None, browse: bool) -> None:
        self.count = 0
        self._options = options
        self._address = address
        self._wanted = wanted
        self._idle = idle
        self._browse = browse

    def run(self, client: Client) -> None:
        """Print messages until there are enough, or none for `idle` seconds."""
        terminus = Terminus(SOURCE, self._address, distribution="copy") if self._browse else None
        credit = self._wanted - self.count if self._wanted else -1
        # A message is accepted when it is printed: what an interrupted call, or a reader who has enough, did not get stays.
        inbox = client.receiver(self._address, credit=credit, terminus=terminus, accepts=False)
        try:
            self._print_all(client, inbox)
        except Lost as lost:
            if self._browse and self.count:
                raise Failure(UNREACHABLE, lost.text, hint="run it again", condition=lost.condition) from lost
            raise
        finally:
            inbox.give_back()

    def _print_all(self, client: Client, inbox: Inbox) -> None:
        while not self._wanted or self.count < self._wanted:
            if not client.wait(lambda: bool(inbox.messages) or inbox.gone, timeout=self._idle):
                break
            if not inbox.messages:
                client.check(inbox, self._address)
            while inbox.messages and not client.connection.closed:
                inbox.take(partial(_show, self._options))
                self.count += 1
            if client.connection.closed:
                inbox.messages.clear()  # They come again elsewhere.


def _show(options: Options, payload: bytes) -> None:
    content = body(payload)
    if isinstance(content, bytes):
        content = content.decode("utf-8", "backslashreplace")
    if options.as_json:
        fields = {name: value if isinstance(value, (str, int)) else str(value) for name, value in properties(payload).items()}
        count = int(header(payload).get("delivery_count", 0))
        print(json.dumps({"body": content, "properties": fields, "delivery_count": count}, default=str), flush=True)
    else:
        print(content, flush=True)


def _amqp_target(options: Options) -> Target:
    """Messages need an AMQP address: for an admin socket, ask its broker for it."""
    target = resolve(options)
    if not target.socket:
        return target
    for broker in (local_cluster() or {}).get("brokers", []):
        if broker["admin_socket"] == target.socket:
            return _at(broker["address"], options)
    status = ask(options, "status", target=target)
    primary = status.get("primary") or {}
    address = status["address"] if status["state"] in (*PRIMARY_STATES, "standalone") else primary.get("address") or status["address"]
    return _at(str(address), options)


def _at(address: str, options: Options) -> Target:
    host, _, port = address.rpartition(":")
    return Target(host=host.strip("[]"), port=int(port), user=options.user, password=options.password, mechanism=options.sasl_mechanism)
