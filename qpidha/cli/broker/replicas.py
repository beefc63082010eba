"""`qpid-ha replicate` and `qpid-ha replica`: queues that are replicas of queues elsewhere."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from qpidha.cli.app import add_group, settings_of
from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import ask, ask_primary
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import EPILOG, Listing, print_json, print_list, talk
from qpidha.model.duration import SECOND
from qpidha.model.exit_codes import USAGE

REPLICAS = Listing(
    "replicas",
    ("queue", "source", "state", "messages", "behind", "late", "error"),
    wide=("whole", "position", "lineage"),
    key="queue",
    cells={"late": lambda row: f"{row['late_ns'] / SECOND:.1f} s"},
)


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    app.command("replicate", epilog=EPILOG)(_replicate)
    add_group(
        app,
        "replica",
        "Queues that are replicas of queues at other brokers.",
        {"list": _list, "stop": _stop},
    )


def _replicate(
    context: typer.Context,
    queue: Annotated[str, typer.Argument(help="name of the queue, which exists on both brokers")],
    broker: Annotated[
        str, typer.Argument(help="the source: host:port; of a cluster all, comma-separated")
    ],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="discard the messages of the queue, and copy the source"),
    ] = False,
) -> None:
    """Make a queue the replica of the queue of this name at another broker.

    The broker at -b gets the replica: its queue must exist and be empty. QUEUE and BROKER may stand
    in either order: the one that is the name of a queue of the broker at -b is the queue.

    Example: qpid-ha replicate orders source.example.com:5672 -b standby.example.com
    """
    options = settings_of(context)
    name, source = _told_apart(options, queue, broker)
    asked = {"queue": name, "broker": source, "replace": replace}
    found = ask_primary(options, "replicate", asked)
    if options.as_json:
        print_json({"schema_version": 1, **found})
    else:
        talk(options, f"queue {found['queue']} is a replica of that at {found['source']}")


def _told_apart(options: Options, first: str, second: str) -> tuple[str, str]:
    """Return which of two words is the queue and which the broker: Qpid's documents have both
    orders.
    """
    there = [
        word
        for word in (first, second)
        if ask(options, "list_queues", {"name": word, "fields": "name"})
    ]
    if len(set(there)) > 1:
        raise Failure(
            USAGE,
            f"there are queues {first} and {second}, so it is not clear which is to be a replica",
            hint="write the broker with its scheme: amqp://host:port",
        )
    return (second, first) if there == [second] else (first, second)


def _list(context: typer.Context) -> None:
    """List the queues of a broker that are replicas, and how far they have come.

    BEHIND counts the changes of the source that are known and not here. LATE says since when
    something may be missing.

    Example: qpid-ha replica list -b standby.example.com
    """
    options = settings_of(context)
    rows: list[dict[str, Any]] = ask(options, "list_replicas")
    print_list(options, REPLICAS, rows)


def _stop(
    context: typer.Context, queue: Annotated[str, typer.Argument(help="name of the queue")]
) -> None:
    """Stop following the source, and make the replica an ordinary queue with its messages.

    Example: qpid-ha replica stop orders -b standby.example.com
    """
    options = settings_of(context)
    was = ask_primary(options, "stop_replica", {"queue": queue})
    if options.as_json:
        print_json({"schema_version": 1, **was})
        return
    text = f"queue {queue} is a queue of its own, with {was['messages']} messages"
    if not was["whole"]:
        text += "; it never had all that its source had"
    elif was["late_ns"]:
        text += (
            f"; what came to its source in the last {was['late_ns'] / SECOND:.1f} s may be missing"
        )
    talk(options, text)
