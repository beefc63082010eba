"""`qpid-ha vip`: put a virtual address on this machine, take it away, show which are here.

For scripts and for the agent when no watch runs; beside a watch, an address does not stay where the
broker is no primary.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qpidha.cli.app import settings_of
from qpidha.client.command.exits import Failure, refused
from qpidha.client.command.output import EPILOG, print_json, print_table
from qpidha.manager.vip.state import Wanted
from qpidha.manager.vip.wire import repeat
from qpidha.model.errors import InvalidArgument, QpidHaError
from qpidha.model.exit_codes import UNAVAILABLE, USAGE

if TYPE_CHECKING:
    from qpidha.manager.vip.addresses import Added, VirtualAddresses

FOLDER = "/run/qpidha/vip"
Folder = Annotated[
    str, typer.Option("--vips", metavar="DIR", help="folder of the notes of held addresses")
]
COLUMNS = ("address", "prefix", "interface", "present")


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    group = typer.Typer(help="Manage virtual addresses of this machine.", no_args_is_help=True)
    group.command("add", epilog=EPILOG)(_add)
    group.command("remove", epilog=EPILOG)(_remove)
    group.command("show", epilog=EPILOG)(_show)
    app.add_typer(group, name="vip")


def _add(
    context: typer.Context,
    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS[/PREFIX][@IF]", help="a virtual address; IF as --interface"
        ),
    ],
    interface: Annotated[
        str, typer.Option("--interface", help="default: the one whose network holds the address")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="do not ask whether another host has it")
    ] = False,
    folder: Folder = FOLDER,
) -> None:
    """Add a virtual address and announce it to the neighbours; announce it again if it is there
    already.

    Example: qpid-ha vip add 10.77.0.100/24 -b node1
    """
    wanted = _wanted(address, interface)
    try:
        found = _addresses(folder)
        added: Added = found.add(wanted, force=force)
    except QpidHaError as error:
        raise refused(error.condition, error.text, error.hint) from error
    if added.announcer is not None:
        _in_background(lambda: repeat(added.announcer, lambda: found.notes.has(added.held.address)))
    if settings_of(context).as_json:
        print_json({"schema_version": 1, **added.held._asdict(), "changed": added.changed})
    else:
        print(
            f"{added.held.address}/{added.held.prefix} is "
            f"{'now' if added.changed else 'already'} on {added.held.interface}"
        )


def _remove(
    context: typer.Context,
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS[/PREFIX][@IF]", help="a virtual address")
    ],
    folder: Folder = FOLDER,
) -> None:
    """Remove a virtual address; succeed also if it is not here.

    Example: qpid-ha vip remove 10.77.0.100/24
    """
    wanted = _wanted(address)
    try:
        changed = _addresses(folder).remove(wanted.address)
    except QpidHaError as error:
        raise refused(error.condition, error.text, error.hint) from error
    if settings_of(context).as_json:
        print_json({"schema_version": 1, "address": wanted.address, "changed": changed})
    else:
        print(f"{wanted.address} {'is removed' if changed else 'was not here'}")


def _show(context: typer.Context, folder: Folder = FOLDER) -> None:
    """Show the virtual addresses that this machine holds.

    Example: qpid-ha vip show
    """
    rows = _addresses(folder).show()
    if settings_of(context).as_json:
        print_json({"schema_version": 1, "addresses": rows})
    else:
        print_table(
            [column.upper() for column in COLUMNS],
            ([row[column] for column in COLUMNS] for row in rows),
        )


def _wanted(text: str, interface: str = "") -> Wanted:
    address, at, named = text.partition("@")
    if at and (not named or interface not in ("", named)):
        raise Failure(
            USAGE,
            f"{text!r} names no interface, or another one than --interface",
            hint=f"{address}@eth0, or {address} --interface eth0",
        )
    interface = interface or named
    try:
        return Wanted.parse(address, interface)
    except InvalidArgument as error:
        raise Failure(USAGE, error.text, hint=error.hint) from error


def _addresses(folder: str) -> VirtualAddresses:
    try:
        found: VirtualAddresses = import_module("qpidha.manager.vip.addresses").VirtualAddresses(
            Path(folder)
        )
    except ImportError as error:
        raise Failure(
            UNAVAILABLE,
            "virtual addresses need pyroute2, which is not installed",
            hint="pip install 'qpidha[vip]'",
        ) from error
    return found


def _in_background(work: Any) -> None:
    """Let a process of its own do what takes longer than the command should."""
    sys.stdout.flush()
    if os.fork():
        return
    code = 1
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        work()
        code = 0
    finally:
        os._exit(code)
