"""Commands about queues, exchanges and bindings; the flags are those of the historic qpid-
config.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from qpidha.cli.app import NOT_FOUND, add_group, settings_of
from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import ask, ask_primary
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import EPILOG, Listing, print_json, print_list, print_table, talk
from qpidha.model.exit_codes import NO, USAGE
from qpidha.model.replication_level import LEVELS

LARGEST = (1 << 63) - 1
"""Largest number that AMQP has for an argument, a long."""
TYPES = ("direct", "topic", "fanout", "headers", "x-consistent-hash")


def _oldest(row: Mapping[str, Any]) -> str:
    """Say how old the oldest message of a queue is; there is none, or the broker is an older one
    and does not say it.
    """
    seconds = row.get("oldest_age_seconds")
    if seconds is None:
        return ""
    return f"{seconds:g} s" + (" or more" if row.get("oldest_may_be_older") else "")


def _backups(row: Mapping[str, Any]) -> str:
    """Say how many messages of a queue each backup lacks; ? if that is not known."""
    found = (row.get("backups") or {}).items()
    return ", ".join(f"{name} {'?' if lacks is None else lacks}" for name, lacks in found)


QUEUES = Listing(
    "queues",
    (
        "name",
        "messages",
        "unreplicated",
        "bytes",
        "paged_out",
        "flow_stopped",
        "consumers",
        "acquired",
        "replicate",
        "durable",
    ),
    wide=(
        "bindings",
        "enqueued",
        "dequeued",
        "delayed",
        "dlx_pending",
        "refused",
        "expired",
        "rejected",
        "waiting_senders",
        "oldest_age_seconds",
        "backups",
        "policy",
        "alternate",
    ),
    cells={"oldest_age_seconds": _oldest, "backups": _backups},
    heads={"oldest_age_seconds": "OLDEST"},
)
BINDINGS = Listing(
    "bindings",
    ("exchange", "queue", "key", "arguments", "destination_exchange"),
    key="",
    cells={
        "arguments": lambda row: " ".join(
            f"{key}={value}" for key, value in (row.get("arguments") or {}).items()
        )
    },
)
EXCHANGES = Listing(
    "exchanges",
    ("name", "type", "bindings", "received", "dropped", "replicate", "durable"),
    wide=("bytes_received", "bytes_dropped", "policy", "alternate"),
)

PEEK_COLUMNS = ("position", "sequence", "bytes", "delivery_count", "acquired")

QueueName = Annotated[str, typer.Argument(help="name of a queue")]
ExchangeName = Annotated[str, typer.Argument(help="name of an exchange")]
Replicate = Annotated[
    str | None, typer.Option(help="replication level: none, configuration or all")
]
Durable = Annotated[
    bool, typer.Option("--durable", help="keep it on disk, over a restart of the broker")
]
Alternate = Annotated[
    str,
    typer.Option(
        "--alternate-exchange", help="exchange for unroutable, rejected and overflowing messages"
    ),
]
ToExchange = Annotated[
    bool, typer.Option("--to-exchange", help="QUEUE is the name of another exchange")
]
Arguments = Annotated[
    list[str] | None,
    typer.Option("--argument", metavar="KEY=VALUE", help="any other argument; may be repeated"),
]


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    add_group(
        app,
        "queue",
        "Add, delete, list, show, peek, move and purge queues.",
        {
            "add": _queue_add,
            "del": _queue_del,
            "list": _queue_list,
            "show": _queue_show,
            "peek": _queue_peek,
            "move": _queue_move,
            "requeue": _queue_requeue,
            "purge": _queue_purge,
        },
    )
    add_group(
        app,
        "exchange",
        "Add, delete, list and show exchanges.",
        {
            "add": _exchange_add,
            "del": _exchange_del,
            "list": _exchange_list,
            "show": _exchange_show,
        },
    )
    app.command("bind", epilog=EPILOG)(_bind)
    app.command("unbind", epilog=EPILOG)(_unbind)


def _queue_add(
    context: typer.Context,
    name: QueueName,
    replicate: Replicate = None,
    durable: Durable = False,
    alternate: Alternate = "",
    max_queue_count: Annotated[int | None, typer.Option(help="most messages", min=0)] = None,
    max_queue_size: Annotated[int | None, typer.Option(help="most bytes", min=0)] = None,
    limit_policy: Annotated[
        str | None,
        typer.Option(
            help="what a full queue does: reject, ring, ring-strict, reject-publish-dlx or "
            "self-destruct"
        ),
    ] = None,
    flow_stop_count: Annotated[
        int | None, typer.Option(help="senders wait with more messages; 0 is never", min=0)
    ] = None,
    flow_resume_count: Annotated[
        int | None, typer.Option(help="senders go on with no more messages", min=0)
    ] = None,
    flow_stop_size: Annotated[
        int | None, typer.Option(help="senders wait with more bytes; 0 is never", min=0)
    ] = None,
    flow_resume_size: Annotated[
        int | None, typer.Option(help="senders go on with no more bytes", min=0)
    ] = None,
    argument: Arguments = None,
) -> None:
    """Create a queue; it exists on every in-sync broker when this returns.

    Example: qpid-ha queue add orders --durable --max-queue-count 10000
    """
    arguments = read_arguments(argument)
    given = {
        "qpid.replicate": _level(replicate),
        "qpid.max_count": max_queue_count,
        "qpid.max_size": max_queue_size,
        "qpid.policy_type": limit_policy,
        "qpid.flow_stop_count": flow_stop_count,
        "qpid.flow_resume_count": flow_resume_count,
        "qpid.flow_stop_size": flow_stop_size,
        "qpid.flow_resume_size": flow_resume_size,
    }
    arguments.update({key: value for key, value in given.items() if value is not None})
    params: dict[str, Any] = {"name": _given(name), "durable": durable, "arguments": arguments}
    if alternate:
        params["alternate"] = alternate
    _change(context, "declare_queue", params, f"queue {name} exists")


def _queue_del(
    context: typer.Context,
    name: QueueName,
    force: Annotated[
        bool, typer.Option("--force", help="even if it is in use or has messages")
    ] = False,
    force_if_used: Annotated[
        bool, typer.Option("--force-if-used", help="even if it has consumers")
    ] = False,
    force_if_not_empty: Annotated[
        bool, typer.Option("--force-if-not-empty", help="even if it has messages")
    ] = False,
) -> None:
    """Delete a queue that is empty and not in use.

    Example: qpid-ha queue del orders --force
    """
    params = {
        "name": name,
        "if_unused": not (force or force_if_used),
        "if_empty": not (force or force_if_not_empty),
    }
    _change(context, "delete_queue", params, f"queue {name} is deleted")


def _queue_list(
    context: typer.Context, match: Annotated[str, typer.Argument(help="part of a name")] = ""
) -> None:
    """List the queues.

    UNREPLICATED counts the messages that are not yet committed, PAGED_OUT the bytes that are on
    disk only. While FLOW_STOPPED senders get no credit, until consumers have taken enough.

    Example: qpid-ha queue list orders
    """
    _print_list(context, QUEUES, match)


def _queue_show(context: typer.Context, name: QueueName) -> None:
    """Show all that there is to say of a queue, as the broker that is asked knows it.

    Example: qpid-ha queue show orders
    """
    _show(context, "queue", name)


def _show(context: typer.Context, kind: str, name: str) -> None:
    """Print all fields of one queue or exchange."""
    options = settings_of(context)
    rows = ask(options, f"list_{kind}s", {"name": _given(name)})
    if not rows:
        raise Failure(
            NO, f"there is no {kind} {name}", hint=f"qpid-ha {kind} list", condition=NOT_FOUND
        )
    if options.as_json:
        print_json({"schema_version": 1, kind: rows[0]})
        return
    cells = QUEUES.cells if kind == "queue" else {}
    shown = {
        field: cells[field](rows[0]) if field in cells else _short(value)
        for field, value in rows[0].items()
    }
    print_table(["FIELD", "VALUE"], list(shown.items()))


def _queue_peek(
    context: typer.Context,
    name: QueueName,
    position: Annotated[int, typer.Argument(help="1 is the oldest message", min=1)] = 1,
    count: Annotated[int, typer.Option(help="how many messages", min=1)] = 1,
) -> None:
    """Show messages of a queue and leave them as they are; a backup shows what it has.

    The beginning of each body is shown, as text or in hex; -o json shows more.

    Example: qpid-ha queue peek orders 2 --count 5
    """
    options = settings_of(context)
    asked = {"name": _given(name), "position": position, "count": count}
    found = ask(options, "peek_messages", asked)
    if options.as_json:
        print_json({"schema_version": 1, "messages": found})
        return
    rows = [
        [message[column] for column in PEEK_COLUMNS] + [_beginning(message)] for message in found
    ]
    print_table([column.upper() for column in (*PEEK_COLUMNS, "body")], rows)


def _queue_move(
    context: typer.Context,
    name: QueueName,
    target: Annotated[str, typer.Argument(help="name of another queue")],
    count: Annotated[int, typer.Option(help="the first so many; 0 is all", min=0)] = 0,
) -> None:
    """Move messages to another queue, except those that a consumer has.

    Each is on one of the two queues at any time, whatever fails. Where the other queue has no room
    for the next one, it and those behind it stay, and the exit code is 1.

    Example: qpid-ha queue move orders.dead orders --count 100
    """
    options = settings_of(context)
    asked = {"name": _given(name), "target": _given(target), "count": count}
    result = _ask(options, "move_messages", asked)
    if options.as_json:
        print_json({"schema_version": 1, **result})
    else:
        talk(
            options,
            f"queue {name}: {result['messages']:,} messages moved to {target}, "
            f"{result['left']:,} left",
        )
    if result["stopped"]:
        raise Failure(NO, result["stopped"], hint="make room there, and move the rest")


def _queue_requeue(
    context: typer.Context,
    name: QueueName,
    count: Annotated[int, typer.Option(help="the first so many; 0 is all", min=0)] = 0,
    origin: Annotated[
        str, typer.Option("--from", metavar="QUEUE", help="only those that died on this queue")
    ] = "",
) -> None:
    """Send dead letters, and what was delivered too often, back to where they died.

    Each is on one of the two queues at any time, whatever fails. What is no dead letter stays, and
    what its queue has no room for; then the exit code is 1.

    Example: qpid-ha queue requeue orders.undeliverable --count 100
    """
    options = settings_of(context)
    asked: dict[str, Any] = {"name": _given(name), "count": count}
    if origin:
        asked["origin"] = _given(origin)
    result = _ask(options, "requeue_messages", asked)
    if options.as_json:
        print_json({"schema_version": 1, **result})
    else:
        talk(
            options,
            f"queue {name}: {result['messages']:,} messages sent back, {result['left']:,} left",
        )
    if result["stopped"]:
        raise Failure(NO, result["stopped"], hint="mend that, and requeue the rest")
    if result["unknown"]:
        raise Failure(
            NO,
            f"{result['unknown']:,} messages do not say on which queue they died",
            hint=f"qpid-ha queue move {name} TARGET",
        )


def _beginning(message: dict[str, Any]) -> str:
    """Return a line that shows the beginning of a body."""
    body = message["body"]
    text = body["text"] if "text" in body else f"hex {body['hex']}"
    return text[:60] + ("..." if body["is_cut"] or len(text) > 60 else "")


def _short(value: Any) -> Any:
    """Show a map or list in one cell."""
    return json.dumps(value) if isinstance(value, dict | list) else value


def _queue_purge(context: typer.Context, name: QueueName) -> None:
    """Remove the messages of a queue, except those that a consumer has.

    Example: qpid-ha queue purge orders
    """
    options = settings_of(context)
    result = _ask(options, "purge_queue", {"name": name})
    if options.as_json:
        print_json({"schema_version": 1, **result})
    else:
        talk(options, f"queue {name}: {result.get('messages', 0):,} messages removed")


def _exchange_add(
    context: typer.Context,
    type: Annotated[str, typer.Argument(help=", ".join(TYPES))],
    name: ExchangeName,
    replicate: Replicate = None,
    durable: Durable = False,
    alternate: Alternate = "",
    argument: Arguments = None,
) -> None:
    """Create an exchange.

    Example: qpid-ha exchange add topic events
    """
    arguments = read_arguments(argument)
    if replicate is not None:
        arguments["qpid.replicate"] = _level(replicate)
    params: dict[str, Any] = {
        "name": _given(name),
        "type": type,
        "durable": durable,
        "arguments": arguments,
    }
    if alternate:
        params["alternate"] = alternate
    _change(context, "declare_exchange", params, f"exchange {name} exists")


def _exchange_del(context: typer.Context, name: ExchangeName) -> None:
    """Delete an exchange.

    Example: qpid-ha exchange del events
    """
    _change(context, "delete_exchange", {"name": name}, f"exchange {name} is deleted")


def _exchange_list(
    context: typer.Context,
    match: Annotated[str, typer.Argument(help="part of a name")] = "",
    bindings: Annotated[
        bool, typer.Option("--bindings", help="list the bindings of each exchange instead")
    ] = False,
) -> None:
    """List the exchanges, or their bindings.

    Example: qpid-ha exchange list --bindings
    """
    if bindings:
        _print_bindings(settings_of(context), match)
    else:
        _print_list(context, EXCHANGES, match)


def _exchange_show(context: typer.Context, name: ExchangeName) -> None:
    """Show all that there is to say of an exchange, as the broker that is asked knows it.

    Example: qpid-ha exchange show events
    """
    _show(context, "exchange", name)


def _print_bindings(options: Options, match: str) -> None:
    """Print the bindings of all exchanges with a name; to the default exchange every queue is bound
    anyway.
    """
    rows = [
        row for row in ask(options, "list_bindings") if row["exchange"] and match in row["exchange"]
    ]
    print_list(options, BINDINGS, rows)


def _bind(
    context: typer.Context,
    exchange: ExchangeName,
    queue: QueueName,
    key: Annotated[str, typer.Argument(help="binding key")] = "",
    match: Annotated[
        list[str] | None, typer.Argument(help="for headers exchanges: all or any, then k=v ...")
    ] = None,
    replicate: Replicate = None,
    to_exchange: ToExchange = False,
) -> None:
    """Bind a queue, or another exchange, to an exchange.

    Example: qpid-ha bind events orders order.#
    """
    arguments = _header_arguments(match or [])
    if replicate is not None:
        arguments["qpid.replicate"] = _level(replicate)
    params = {**_binding(exchange, queue, key, to_exchange), "arguments": arguments}
    _change(context, "bind", params, f"{queue} is bound to {exchange} by {key!r}")


def _unbind(
    context: typer.Context,
    exchange: ExchangeName,
    queue: QueueName,
    key: Annotated[str, typer.Argument(help="binding key")] = "",
    to_exchange: ToExchange = False,
) -> None:
    """Remove a binding.

    Example: qpid-ha unbind events orders order.#
    """
    _change(
        context,
        "unbind",
        _binding(exchange, queue, key, to_exchange),
        f"{queue} is no longer bound to {exchange} by {key!r}",
    )


def _binding(exchange: str, name: str, key: str, to_exchange: bool) -> dict[str, Any]:
    """Return the parameters that name a binding."""
    kind = "destination_exchange" if to_exchange else "queue"
    return {"exchange": exchange, kind: name, "key": key}


def _within_range(arguments: dict[str, Any]) -> None:
    for key, value in arguments.items():
        if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
            raise Failure(
                USAGE, f"{key}: the number {value} is too large", hint=f"at most {LARGEST}"
            )


def _ask(options: Options, method: str, params: dict[str, Any]) -> Any:
    """Ask for a change; what is not found is answered by how to see what there is."""
    try:
        return ask_primary(options, method, params)
    except Failure as failure:
        if failure.condition == NOT_FOUND:
            shown = (
                "exchange list --bindings"
                if "no binding" in failure.text
                else "exchange list"
                if "no exchange" in failure.text
                else "queue list"
            )
            failure.hint = f"qpid-ha {shown}"
        raise


def _given(name: str) -> str:
    if not name:
        raise Failure(USAGE, "the name is empty", hint="give one of at least one character")
    return name


def _change(context: typer.Context, method: str, params: dict[str, Any], done: str) -> None:
    options = settings_of(context)
    _within_range(params.get("arguments", {}))
    result = _ask(options, method, params)
    if options.as_json:
        print_json({"schema_version": 1, **(result if isinstance(result, dict) else {})})
    elif options.verbose:
        talk(options, done)


def _print_list(context: typer.Context, listing: Listing, match: str) -> None:
    options = settings_of(context)
    rows = ask(options, f"list_{listing.name}", {"match": match} if match else {})
    print_list(options, listing, rows)
    if not rows and options.as_table:
        named = f" with {match!r} in their names" if match else ""
        talk(options, f"no {listing.name}{named}")
    if match and not rows:
        raise typer.Exit(NO)


def _level(level: str | None) -> str | None:
    if level is not None and level not in LEVELS:
        raise Failure(
            USAGE, f"{level!r} is not a replication level", hint=f"one of {', '.join(LEVELS)}"
        )
    return level


def read_arguments(given: list[str] | None) -> dict[str, Any]:
    """Read the values of `--argument`."""
    arguments: dict[str, Any] = {}
    for entry in given or []:
        key, equals, value = entry.partition("=")
        if not key or not equals:
            raise Failure(
                USAGE,
                f"--argument {entry!r} is not KEY=VALUE",
                hint="--argument qpid.max_count=1000",
            )
        arguments[key] = _value(value)
        if isinstance(arguments[key], int) and not -LARGEST <= arguments[key] <= LARGEST:
            raise Failure(
                USAGE, f"--argument {entry!r}: the number is too large", hint=f"at most {LARGEST}"
            )
    return arguments


def _header_arguments(given: list[str]) -> dict[str, Any]:
    if not given:
        return {}
    if given[0] not in ("all", "any"):
        hint = "bind EXCHANGE QUEUE KEY all colour=red"
        raise Failure(
            USAGE,
            f"{given[0]!r}: a headers binding says first whether all or any headers must match",
            hint=hint,
        )
    return {"x-match": given[0], **read_arguments(given[1:])}


def _value(text: str) -> Any:
    digits = text.removeprefix("-")
    if digits.isdigit():
        return int(text)
    return {"true": True, "false": False}.get(text, text)
