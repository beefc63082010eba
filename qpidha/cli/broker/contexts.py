"""Commands about contexts: targets with names, that commands go to without -b."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from qpidha.cli.app import add_group, settings_of
from qpidha.client.command.arguments import Options
from qpidha.client.command.contexts import FIELDS, read_contexts, write_contexts
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import Listing, print_list, talk
from qpidha.client.command.target import named_targets
from qpidha.model.exit_codes import NO_INPUT, USAGE
from qpidha.model.printable import flaw_in_name

CONTEXTS = Listing(
    "contexts",
    ("current", "name", "target", "user", "password_file"),
    wide=("ssl_trusted", "ssl_certificate", "ssl_key", "sasl_mechanism"),
    cells={"current": lambda row: "*" if row["current"] else ""},
    heads={"current": ""},
)
FILES = (
    "config",
    "password_file",
    "ssl_trusted",
    "ssl_certificate",
    "ssl_key",
    "ssl_key_password_file",
)
Name = Annotated[str, typer.Argument(help="name of the context")]


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    add_group(
        app,
        "context",
        "Give targets names: brokers, user, password file and TLS files.",
        {"set": _set, "list": _list, "use": _use, "delete": _delete},
    )


def _set(context: typer.Context, name: Name) -> None:
    """Keep the common options of this call as a context, in place of one that has its name.

    It needs -b, or --config, and takes --user, --password-file, --sasl-mechanism and the --ssl
    options. A password is not kept: name its file. The first context is used from then on.

    Example: qpid-ha context set prod -b amqps://n1,n2,n3 --user ops --password-file ~/.ops
    """
    options = settings_of(context)
    flaw = flaw_in_name(name)
    if flaw is not None or not name.strip() or name.startswith("-"):
        raise Failure(USAGE, f"{name!r} is no name for a context", hint="letters and digits")
    if options.context:
        raise Failure(USAGE, "--context does not go with context set", hint="-b ADDR")
    kept = _kept(options)
    contexts = read_contexts()
    is_new = name not in contexts.known
    contexts.known[name] = kept
    if is_new and len(contexts.known) == 1:
        contexts.current = name
    write_contexts(contexts)
    used = ", which is used" if contexts.current == name else f": qpid-ha context use {name}"
    talk(options, f"context {name} is set{used}")


def _kept(options: Options) -> dict[str, str]:
    """Return what a context keeps of these options, in a form that holds in every directory."""
    if bool(options.broker) == bool(options.config):
        both = "not both" if options.broker else "qpid-ha context set NAME -b ADDR"
        raise Failure(USAGE, "a context needs -b ADDR or --config FILE", hint=both)
    targets = named_targets(options.broker) if options.broker else []
    if options.password or any(target.password for target in targets):
        raise Failure(
            USAGE,
            "a context keeps no password",
            hint="--password-file FILE, whose first line it is",
        )
    kept = {name: getattr(options, name) for name in FIELDS if getattr(options, name)}
    if kept.get("password_file") == "-":
        raise Failure(USAGE, "a context cannot read standard input", hint="--password-file FILE")
    for name in FILES:
        if name in kept:
            kept[name] = os.path.abspath(os.path.expanduser(kept[name]))
            if not os.path.exists(kept[name]):
                raise Failure(NO_INPUT, f"there is no file {kept[name]}", hint="make it first")
    if os.path.exists(options.broker):
        kept["broker"] = os.path.abspath(options.broker)  # An admin socket.
    return kept


def _list(context: typer.Context) -> None:
    """List the contexts; the one with a star is used where no broker and no context is named.

    A context is named by --context and by QPIDHA_CONTEXT in the environment. -b and --config come
    before contexts; with QPIDHA_DIR, and with --cluster-manager, only one that is named counts.

    Example: qpid-ha context list -o wide
    """
    options = settings_of(context)
    contexts = read_contexts()
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "current": name == contexts.current,
            "target": known.get("broker") or known.get("config"),
            **{each: known.get(each) for each in FIELDS},
        }
        for name, known in sorted(contexts.known.items())
    ]
    print_list(options, CONTEXTS, rows)
    if not rows and options.as_table:
        talk(options, "no contexts: qpid-ha context set NAME -b ADDR")


def _use(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="name of the context; - for none")],
) -> None:
    """Use a context from now on where a command line names no broker.

    Example: qpid-ha context use prod
    """
    contexts = read_contexts()
    if name != "-":
        contexts.named(name)
    contexts.current = "" if name == "-" else name
    write_contexts(contexts)
    talk(settings_of(context), f"context {name} is used" if name != "-" else "no context is used")


def _delete(context: typer.Context, name: Name) -> None:
    """Forget a context; the files that it names stay.

    Example: qpid-ha context delete prod
    """
    contexts = read_contexts()
    contexts.named(name)
    del contexts.known[name]
    if contexts.current == name:
        contexts.current = ""
    write_contexts(contexts)
    talk(settings_of(context), f"context {name} is deleted")
