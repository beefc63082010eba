"""`qpid-ha rgmanager`: write a cluster.conf for given nodes, and put the scripts that it names in
their place.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

import qpidha
from qpidha.cli.app import settings_of
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import EPILOG, print_json, talk
from qpidha.manager.rgmanager.plan import (
    BROKER_SCRIPT,
    PRIMARY_SCRIPT,
    SCRIPTS,
    FenceDevice,
    PlanOptions,
    cluster_conf,
    missing_fencing,
)
from qpidha.model.errors import InvalidArgument
from qpidha.model.exit_codes import NO, NO_INPUT, NO_PERMISSION, USAGE

PACKAGE = Path(qpidha.__file__).resolve().parent
PLACES = (PACKAGE / "agents", PACKAGE.parent / "agents")
"""Where the scripts come from: an installed package, a source tree."""
FENCE_FORM = "NODE=AGENT,NAME=VALUE,..."


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    group = typer.Typer(help="Run a cluster under rgmanager.", no_args_is_help=True)
    group.command("plan", epilog=EPILOG)(_plan)
    group.command("install-scripts", epilog=EPILOG)(_install_scripts)
    app.add_typer(group, name="rgmanager")


def _plan(
    context: typer.Context,
    nodes: Annotated[
        str,
        typer.Option(
            "--nodes", metavar="NODE,NODE,...", help="host names of the nodes, as cman knows them"
        ),
    ],
    vip: Annotated[
        list[str] | None,
        typer.Option("--vip", metavar="ADDRESS", help="where clients connect; may be repeated"),
    ] = None,
    fence: Annotated[
        list[str] | None,
        typer.Option(
            "--fence", metavar=FENCE_FORM, help="what switches a node off; once for each node"
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="name of the cluster")] = "qpidha",
    interval: Annotated[
        int, typer.Option("--interval", help="seconds between two looks at each service")
    ] = 1,
    scripts: Annotated[
        str, typer.Option("--scripts", metavar="DIR", help="where the scripts are on each node")
    ] = SCRIPTS,
) -> None:
    """Print a cluster.conf for these nodes; put it at /etc/cluster/cluster.conf on each of them.

    Example: qpid-ha rgmanager plan --nodes node1,node2,node3 --vip 192.0.2.100
    """
    options = settings_of(context)
    _refuse_relative(scripts)
    try:
        devices = tuple(FenceDevice.parse(text) for text in fence or [])
        plan = PlanOptions(
            tuple(node.strip() for node in nodes.split(",")),
            tuple(vip or []),
            devices,
            name,
            interval,
            scripts,
        )
        text = cluster_conf(plan)
    except InvalidArgument as error:
        raise Failure(USAGE, error.text, hint=error.hint) from error
    unfenced = missing_fencing(plan)
    if options.as_json:
        print_json({"schema_version": 1, "cluster_conf": text, "without_fencing": unfenced})
    else:
        print(text, end="")
    if unfenced:
        missing = (
            f"{', '.join(unfenced)} cannot be fenced: when such a node fails, no other takes "
            "over, or two are primary"
        )
        talk(options, f"warning: {missing}. Add --fence {FENCE_FORM}")


def _install_scripts(
    context: typer.Context,
    destdir: Annotated[
        Path, typer.Option("--destdir", metavar="DIR", help="put before every path, for packagers")
    ] = Path("/"),
    scripts: Annotated[
        str, typer.Option("--scripts", metavar="DIR", help="where the scripts belong")
    ] = SCRIPTS,
) -> None:
    """Copy the scripts qpidd and qpidd-primary to their place on this node.

    Example: qpid-ha rgmanager install-scripts
    """
    options = settings_of(context)
    _refuse_relative(scripts)
    folder = destdir / scripts.lstrip("/")
    copied = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (BROKER_SCRIPT, PRIMARY_SCRIPT):
            target = folder / name
            if target.exists() and "QPID_SYSCONFIG" not in target.read_text(errors="replace"):
                raise Failure(
                    NO,
                    f"{target} is not ours, but another program's",
                    hint=f"move it away, or --scripts another folder than {scripts}",
                )
            fresh = target.with_name(f".{name}.new")
            shutil.copyfile(_source(name), fresh)
            fresh.chmod(0o755)
            os.replace(fresh, target)  # Whoever runs the former one goes on with it.
            copied.append(str(target))
    except PermissionError as error:
        hint = "run it as root, or --destdir with a folder of yours"
        raise Failure(
            NO_PERMISSION, f"{error.filename} cannot be written: permission denied", hint=hint
        ) from error
    if options.as_json:
        print_json({"schema_version": 1, "installed": copied})
    else:
        talk(
            options,
            f"installed {' and '.join(copied)}; their settings go to "
            "/etc/sysconfig/qpidd or /etc/default/qpidd",
        )


def _refuse_relative(scripts: str) -> None:
    """rgmanager runs a script by its path, from wherever it is itself."""
    if not scripts.startswith("/"):
        raise Failure(
            USAGE, f"--scripts {scripts} is not an absolute path", hint=f"--scripts {SCRIPTS}"
        )


def _source(name: str) -> Path:
    for place in PLACES:
        if (place / name).is_file():
            return place / name
    looked = " and ".join(str(place) for place in PLACES)
    raise Failure(
        NO_INPUT, f"the script {name} is not in {looked}", hint="install the whole package again"
    )
