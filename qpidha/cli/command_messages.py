"""`qpid-ha send` and `receive`: a few messages by hand, over AMQP."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Annotated, Any

import typer

from qpidha.amqp.terminus import SOURCE, Terminus
from qpidha.cli.app import settings_of
from qpidha.cli.arguments import Options
from qpidha.cli.client import Client, Inbox
from qpidha.cli.exits import NO, OK, Failure, refused
from qpidha.cli.output import print_json, talk
from qpidha.cli.status import ask
from qpidha.cli.target import PRIMARY_STATES, Target, local_cluster, resolve
from qpidha.words.message_view import body, build, header, properties

WINDOW = 500
"""Messages sent whose outcome is not known."""
IDLE = 1.0
"""Seconds without a message after which `receive` ends."""
OUTCOMES = {0x24: "accepted", 0x25: "rejected", 0x26: "released", 0x27: "modified"}


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    app.command("send")(_send)
    app.command("receive")(_receive)


def _send(
    context: typer.Context,
    address: Annotated[str, typer.Argument(help="a queue, or exchange/key")],
    text: Annotated[list[str] | None, typer.Argument(help="messages; default: lines of standard input, or with -m a number")] = None,
    messages: Annotated[int, typer.Option("-m", "--messages", help="send this many messages")] = 0,
    size: Annotated[int, typer.Option("--content-size", help="bytes in each of the -m messages")] = 0,
    durable: Annotated[bool, typer.Option("--durable", help="keep the messages over a restart")] = False,
    subject: Annotated[str, typer.Option(help="subject, which is the routing key on an exchange")] = "",
) -> None:
    """Send messages and wait until each is accepted."""
    options = settings_of(context)
    fields = {"subject": subject} if subject else {}
    contents = _contents(list(text or []), messages, size)
    client = Client(_amqp_target(options), options, follow=True)
    try:
        outbox = client.sender(address)
        for number, content in enumerate(contents, start=1):
            outbox.send(build(content, header={"durable": True} if durable else None, properties={**fields, "message_id": str(number)}))
            client.wait(lambda number=number: number - outbox.settled < WINDOW or outbox.gone, "an outcome")  # type: ignore[misc]
        total = len(contents)
        client.wait(lambda: outbox.settled >= total or outbox.gone, "the last outcome")
        if outbox.gone:
            error = outbox.link.error if outbox.link is not None else None
            raise refused(error.condition if error else "", f"{address}: {error.description if error else 'the link ended'}", "")
    finally:
        client.close()
    _report(options, total, outbox.accepted, outbox.outcomes)


def _contents(text: list[str], messages: int, size: int) -> list[str | bytes]:
    if text:
        return [text[number % len(text)] for number in range(max(messages, len(text)))]
    if messages:
        return [(f"{number} " + "x" * size)[:size] if size else str(number) for number in range(1, messages + 1)]
    return [line.rstrip("\n") for line in sys.stdin]


def _report(options: Options, total: int, accepted: int, outcomes: dict[int, Any]) -> None:
    if options.as_json:
        print_json({"schema_version": 1, "sent": total, "accepted": accepted, "refused": total - accepted})
    else:
        talk(options, f"{accepted:,} of {total:,} accepted")
    for number, outcome in list(outcomes.items())[:10]:
        why = outcome.error.description if outcome.error is not None else ""
        talk(options, f"message {number}: {OUTCOMES.get(outcome.state, 'no outcome')} {why}".rstrip())
    raise typer.Exit(OK if accepted == total else NO)


def _receive(
    context: typer.Context,
    address: Annotated[str, typer.Argument(help="a queue, or exchange/key")],
    messages: Annotated[int, typer.Option("-m", "--messages", help="end after this many; 0 is no limit")] = 0,
    forever: Annotated[bool, typer.Option("-f", "--forever", help="go on until interrupted")] = False,
    idle: Annotated[float, typer.Option(help="seconds without a message after which to end")] = IDLE,
    browse: Annotated[bool, typer.Option("--browse", help="look at the messages and leave them in the queue")] = False,
) -> None:
    """Receive messages and print one per line; with -o json one object per line."""
    options = settings_of(context)
    client = Client(_amqp_target(options), options, follow=True)
    terminus = Terminus(SOURCE, address, distribution="copy") if browse else None
    count = 0
    try:
        # A message is accepted when it is printed: what an interrupted call, or a reader who has enough, did not get stays.
        inbox = client.receiver(address, credit=messages or -1, terminus=terminus, accepts=False)
        try:
            count = _print_all(options, inbox, address, messages, None if forever else idle)
        finally:
            inbox.give_back()
    finally:
        client.close()
    talk(options, f"{count:,} received")
    raise typer.Exit(OK if count >= messages else NO)


def _print_all(options: Options, inbox: Inbox, address: str, messages: int, idle: float | None) -> int:
    """Print messages until there are enough, or none for `idle` seconds; give their number."""
    count = 0
    while not messages or count < messages:
        if not inbox.client.wait(lambda: bool(inbox.messages) or inbox.gone, timeout=idle):
            break
        if not inbox.messages:
            raise Failure(NO, f"{address}: the broker ended the link", hint="qpid-ha queue list")
        while inbox.messages:
            inbox.take(partial(_show, options))
            count += 1
    return count


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
