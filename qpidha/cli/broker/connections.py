"""Commands about connections, their sessions, and who consumes from which queue."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from qpidha.cli.app import NOT_FOUND, add_group, settings_of
from qpidha.client.command.ask import ask, chosen
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import Listing, ago, print_json, print_list, talk
from qpidha.model.connection_kinds import kind_of_connection
from qpidha.model.exit_codes import NO

CONNECTIONS = Listing(
    "connections",
    (
        "id",
        "kind",
        "user",
        "peer",
        "process",
        "sessions",
        "messages_in",
        "messages_out",
        "since_seconds",
    ),
    wide=("container", "mechanism", "encrypted", "bytes_in", "bytes_out"),
    key="id",
    cells={"since_seconds": lambda row: ago(row["since_seconds"])},
    heads={"since_seconds": "SINCE"},
)
SESSIONS = Listing(
    "sessions",
    ("id", "user", "peer", "senders", "receivers", "unsettled", "waiting_bytes"),
    wide=("connection", "channel", "unsettled_bytes"),
    key="id",
)
SUBSCRIPTIONS = Listing(
    "subscriptions",
    ("queue", "connection", "user", "peer", "credit", "unsettled", "browsing", "exclusive"),
    wide=("priority", "selective", "address", "link"),
    key="id",
)
Match = Annotated[str, typer.Argument(help="part of a user, address, container or process")]
OfQueue = Annotated[str, typer.Argument(help="part of a queue's name, a user or an address")]


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    add_group(
        app,
        "connection",
        "List and close the connections of a broker.",
        {"list": _connection_list, "close": _connection_close},
    )
    add_group(app, "session", "List the sessions of connections.", {"list": _session_list})
    add_group(
        app, "subscription", "List who consumes from which queue.", {"list": _subscription_list}
    )


def _connection_list(context: typer.Context, match: Match = "") -> None:
    """List the connections of a broker, the oldest first.

    KIND is client, admin for a tool, backup for another broker that follows, or outgoing for one
    to another broker. MESSAGES_IN counts what came from the other end.

    Example: qpid-ha connection list --sort -messages_in
    """
    rows = ask(settings_of(context), "list_connections")
    now = time.time()
    for row in rows:
        row["kind"] = kind_of_connection(row)
        row["since_seconds"] = round(now - row["since_ns"] / 1e9, 1)
    _print(context, CONNECTIONS, rows, match, ("user", "peer", "container", "process"))


def _session_list(context: typer.Context, match: Match = "") -> None:
    """List the sessions of a broker's connections; an id is CONNECTION/CHANNEL.

    UNSETTLED counts the messages that the other end has and has not settled, WAITING_BYTES what
    waits until it takes more.

    Example: qpid-ha session list -o wide
    """
    _print(context, SESSIONS, ask(settings_of(context), "list_sessions"), match, ("user", "peer"))


def _subscription_list(context: typer.Context, match: OfQueue = "") -> None:
    """List who consumes from which queue, and how much each is given at present.

    CREDIT is how many messages it would take now, UNSETTLED how many it has.

    Example: qpid-ha subscription list orders
    """
    rows = ask(settings_of(context), "list_subscriptions")
    _print(context, SUBSCRIPTIONS, rows, match, ("queue", "user", "peer"))


def _connection_close(
    context: typer.Context,
    ids: Annotated[list[int], typer.Argument(metavar="ID", help="ids of connection list", min=1)],
    reason: Annotated[str, typer.Option(help="what the clients, and the log, are told")] = "",
) -> None:
    """Close connections of clients; what they had not settled goes back to its queues.

    A client may connect again: to keep it out, take its user away or its right to connect. It needs
    the rights of an administrator, and each call is in the log of the broker.

    Example: qpid-ha connection close 12 --reason "holds messages for hours"
    """
    options = settings_of(context)
    # One place for all: an id belongs to one broker.
    target = chosen(options)
    closed: list[Mapping[str, Any]] = []
    missing = []
    for number in ids:
        try:
            asked = {"id": number, "reason": reason}
            closed.append(ask(options, "close_connection", asked, target=target))
        except Failure as failure:
            if failure.condition != NOT_FOUND:
                raise
            missing.append(number)
    if options.as_json:
        print_json({"schema_version": 1, "closed": closed})
    for row in closed if not options.as_json else ():
        talk(options, f"connection {row['id']} of {row['user'] or row['peer']} is closed")
    if missing:
        named = ", ".join(map(str, missing))
        raise Failure(NO, f"there is no connection {named}", hint="qpid-ha connection list")


def _print(
    context: typer.Context,
    listing: Listing,
    rows: list[dict[str, Any]],
    match: str,
    searched: tuple[str, ...],
) -> None:
    options = settings_of(context)
    shown = [row for row in rows if any(match in str(row[column]) for column in searched)]
    print_list(options, listing, shown)
    if not shown and options.as_table:
        talk(options, f"no {listing.name}{f' with {match!r}' if match else ''}")
    if match and not shown:
        raise typer.Exit(NO)
