"""`qpid-ha link` and `qpid-ha route`: links to other brokers and clusters, and what goes over
them.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from qpidha.cli.app import add_group, settings_of
from qpidha.cli.broker.objects import read_arguments
from qpidha.client.command.ask import ask, ask_primary
from qpidha.client.command.output import Listing, print_json, print_list, talk
from qpidha.client.command.passwords import read_password

LINKS = Listing(
    "links",
    ("name", "addresses", "state", "routes", "messages_in", "messages_out", "last_error"),
    wide=("durable", "username", "address", "product", "peer_tag", "tag"),
    cells={"addresses": lambda row: ",".join(row["addresses"])},
    heads={
        "messages_in": "IN",
        "messages_out": "OUT",
        "last_error": "LAST ERROR",
        "address": "AT",
        "peer_tag": "PEER-TAG",
    },
)
ROUTES = Listing(
    "routes",
    (
        "name",
        "link",
        "kind",
        "direction",
        "source",
        "destination",
        "key",
        "state",
        "messages",
        "lag",
        "last_error",
    ),
    wide=("durable", "excluded", "refused", "ack", "credit", "excludes", "tag", "queue"),
    cells={
        "lag": lambda row: "" if row["lag"] is None else row["lag"],
        "excludes": lambda row: ",".join(row["excludes"]),
    },
    heads={"last_error": "LAST ERROR"},
)

Link = Annotated[str, typer.Argument(help="name of the link")]
Route = Annotated[str, typer.Argument(help="name of the route")]
Durable = Annotated[
    bool, typer.Option("--durable", help="keep it on disk, over a restart of the broker")
]


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    add_group(
        app,
        "link",
        "Links to other brokers and clusters, which the primary runs.",
        {"add": _add_link, "list": _list_links, "del": _delete_link},
    )
    add_group(
        app,
        "route",
        "Routes, which move messages over links.",
        {"add": _add_route, "list": _list_routes, "del": _delete_route},
    )


def _add_link(
    context: typer.Context,
    name: Link,
    addresses: Annotated[
        str,
        typer.Argument(
            help="amqp://HOST:PORT or amqps://HOST:PORT; of a cluster all, comma-separated"
        ),
    ],
    username: Annotated[str, typer.Option(help="user of the login at the other end")] = "",
    password_from: Annotated[
        str,
        typer.Option(metavar="FILE", help="file with the password in its first line; - is stdin"),
    ] = "",
    mechanism: Annotated[
        str, typer.Option(help="SASL mechanism; default: the best that is offered")
    ] = "",
    durable: Durable = False,
) -> None:
    """Create a link to another broker or cluster, or change one.

    The primary runs the link, and after a failover the next primary does.

    Example: qpid-ha link add paris amqps://paris:5671 --username ann --password-from p --durable
    """
    params = {
        "name": name,
        "addresses": addresses,
        "username": username,
        "password": read_password(password_from) if password_from else "",
        "mechanism": mechanism,
        "durable": durable,
    }
    _change(context, "declare_link", params, f"link {name} is declared")


def _list_links(context: typer.Context) -> None:
    """List the links: where each leads, how it is, and what went over it.

    STATE is operational, connecting, waiting (to be dialled again), or passive on a backup.

    Example: qpid-ha link list
    """
    options = settings_of(context)
    rows = ask(options, "list_links")
    print_list(options, LINKS, rows)
    if not rows and options.as_table:
        talk(options, "no links")


def _delete_link(
    context: typer.Context,
    name: Link,
    with_routes: Annotated[
        bool, typer.Option("--with-routes", help="delete its routes as well")
    ] = False,
) -> None:
    """Delete a link.

    Example: qpid-ha link del paris --with-routes
    """
    params = {"name": name, "with_routes": with_routes}
    _change(context, "delete_link", params, f"link {name} is deleted")


def _add_route(
    context: typer.Context,
    name: Route,
    link: Annotated[str, typer.Argument(help="name of the link")],
    source: Annotated[
        str, typer.Argument(help="a queue, or with --kind an exchange: its address at its broker")
    ],
    destination: Annotated[
        str, typer.Argument(help="a queue or an exchange: its address at its broker")
    ],
    push: Annotated[
        bool, typer.Option("--push", help="send from here to the other end; default: pull from it")
    ] = False,
    kind: Annotated[
        str, typer.Option(help="what the source is: queue, exchange or dynamic")
    ] = "queue",
    destination_type: Annotated[
        str, typer.Option(help="queue or exchange, if the destination is here and both exist")
    ] = "",
    key: Annotated[str, typer.Option(help="binding key, if the source is an exchange")] = "",
    argument: Annotated[
        list[str] | None,
        typer.Option(
            "--argument",
            metavar="KEY=VALUE",
            help="binding argument, if the source is a headers exchange; may be repeated",
        ),
    ] = None,
    excludes: Annotated[
        str, typer.Option(help="skip messages that have one of these tags, comma-separated")
    ] = "",
    tag: Annotated[str, typer.Option(help="add this tag to the messages")] = "",
    ack: Annotated[int, typer.Option(help="settle messages in batches of this size")] = 1,
    credit: Annotated[int, typer.Option(help="messages in flight; 0 is link-credit")] = 0,
    durable: Durable = False,
) -> None:
    """Create a route, which moves messages over a link.

    The route pulls from the other end, or with --push sends to it.

    Example: qpid-ha route add orders paris orders orders --durable
    """
    params = {
        "name": name,
        "link": link,
        "source": source,
        "destination": destination,
        "direction": "push" if push else "pull",
        "kind": kind,
        "destination_type": destination_type,
        "key": key,
        "arguments": read_arguments(argument),
        "excludes": excludes,
        "tag": tag,
        "ack": ack,
        "credit": credit,
        "durable": durable,
    }
    _change(context, "declare_route", params, f"route {name} is declared")


def _list_routes(context: typer.Context) -> None:
    """List the routes: their ends, how each is, and what went over it.

    LAG counts the messages that wait for a route: here if it pushes, else at the other end, if that
    says it.

    Example: qpid-ha route list
    """
    options = settings_of(context)
    rows = ask(options, "list_routes")
    print_list(options, ROUTES, rows)
    if not rows and options.as_table:
        talk(options, "no routes")


def _delete_route(context: typer.Context, name: Route) -> None:
    """Delete a route, and what it has of its own at both ends.

    Example: qpid-ha route del orders
    """
    _change(context, "delete_route", {"name": name}, f"route {name} is deleted")


def _change(context: typer.Context, method: str, params: dict[str, Any], done: str) -> None:
    options = settings_of(context)
    result = ask_primary(options, method, params)
    if options.as_json:
        print_json({"schema_version": 1, **result})
    elif options.verbose:
        talk(options, done)
