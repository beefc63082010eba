"""`qpid-ha acl`: the rules that say who may do what: a file looked through before a broker gets it,
and what a broker enforces.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from qpidha.cli.app import add_group, settings_of
from qpidha.cli.broker.operate import reload
from qpidha.client.command.ask import ask, chosen
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import print_json, print_table
from qpidha.management.acl_file import Trouble, read, shadowed
from qpidha.model.exit_codes import DATA_ERROR, NO_INPUT, OK
from qpidha.model.settings import DEFAULTS
from qpidha.runtime.access_list import resolve
from qpidha.runtime.exits import CannotStart

NO_LIST = "no acl-file: who is in may do everything, but for what is for administrators and brokers"
HEADS = ("LINE", "DECISION", "USERS", "ACTION", "OBJECT", "PROPERTIES")
HOST_HEADS = ("LINE", "DECISION", "USERS", "HOST")


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    add_group(
        app,
        "acl",
        "Check an acl-file, show what a broker enforces, have it read again.",
        {"check": _check, "show": _show, "reload": _reload},
    )


def _check(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="the file that the broker's acl-file names")],
    realm: Annotated[
        str,
        typer.Option("--realm", help="the broker's realm; NAME and NAME@REALM are the same user"),
    ] = DEFAULTS["realm"],
) -> int:
    """Look through an acl-file as a broker would read it, without a broker.

    Prints what it contains, a warning for each rule that can never decide, and an error for each
    line that is not understood. A broker does not start with an error in the file.

    Example: qpid-ha acl check /etc/qpidha/qpidha.acl
    """
    options = settings_of(context)
    try:
        with open(file, encoding="ascii", errors="replace") as opened:
            text = opened.read()
    except OSError as error:
        raise Failure(
            NO_INPUT, f"cannot read {file}: {error.strerror}", hint="give the path of an acl-file"
        ) from error
    try:
        found, troubles = read(text, realm=realm, path=file, resolve=resolve)
    except CannotStart as error:
        raise Failure(error.code, f"{file}: {error.text}", hint=error.hint) from error
    troubles = sorted([*troubles, *shadowed(found)], key=lambda trouble: trouble.line)
    errors = [trouble for trouble in troubles if trouble.is_error]
    if options.as_json:
        print_json({"schema_version": 1, **found.report(), "troubles": [*map(_plain, troubles)]})
    else:
        for trouble in troubles:
            print(f"{file}: {'error' if trouble.is_error else 'warning'}: {trouble}")
        if not errors:
            _print(found.report())
    if errors:
        count = "1 line is" if len(errors) == 1 else f"{len(errors)} lines are"
        raise Failure(
            DATA_ERROR, f"{file}: {count} not understood", hint="a broker does not start with it"
        )
    return OK


def _show(context: typer.Context) -> None:
    """Print the rules that a broker enforces.

    Example: qpid-ha acl show -b node1
    """
    options = settings_of(context)
    found = ask(options, "acl", target=chosen(options))
    if options.as_json:
        print_json({"schema_version": 1, **found})
    else:
        _print(found)


def _reload(context: typer.Context) -> None:
    """Have a broker read its acl-file again, with its users and all else that `reload` reads.

    Example: qpid-ha acl reload -b node1
    """
    reload(context)


def _plain(trouble: Trouble) -> dict[str, object]:
    return {"line": trouble.line, "text": trouble.text, "is_error": trouble.is_error}


def _print(found: dict[str, Any]) -> None:
    """Print a list for people."""
    if "rules" not in found:
        print(NO_LIST)
        return
    for name, users in found["groups"].items():
        print(f"group {name}: {' '.join(users)}")
    if found["rules"]:
        print_table(
            HEADS, [_row(rule, "action", "object", "properties") for rule in found["rules"]]
        )
    last = found["last_word"]
    line = f"line {last['line']}" if last["line"] else "where no line says anything"
    print(f"all else: {last['decision']} ({line})")
    if found["hosts"]:
        print_table(HOST_HEADS, [_row(rule, "host") for rule in found["hosts"]])
    for of, quotas in found["quotas"].items():
        print(f"{of}: {', '.join(f'{user} {most}' for user, most in quotas.items())}")
    most = found["connections_from_one_address"]
    if most:
        print(f"connections from one address: {most}")


def _row(rule: dict[str, Any], *columns: str) -> list[object]:
    cells = [rule["line"], rule["decision"], *(rule[name] for name in ("users", *columns))]
    return [" ".join(cell) if isinstance(cell, list) else cell for cell in cells]
