"""`qpid-ha demo`: break a cluster under load, and count."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qpidha.bench.demo import FAULTS, RECOVERY_PATIENCE, Demo, DemoOptions, verdict
from qpidha.cli.app import settings_of
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import print_json
from qpidha.model.exit_codes import USAGE
from qpidha.pipeline.workload.run_dirs import default_directory


def add(app: typer.Typer) -> None:
    """Put the command into the tree."""
    app.command("demo")(_demo)


def _demo(
    context: typer.Context,
    fault: Annotated[
        str, typer.Option(help="kill or stop (the primary), kill-backup or stop-backup")
    ] = "kill",
    seconds: Annotated[float, typer.Option(help="how long the load lasts")] = 15.0,
    rate: Annotated[float, typer.Option(help="messages per second")] = 1000.0,
    size: Annotated[int, typer.Option(help="bytes in a message")] = 100,
    heartbeat: Annotated[
        float, typer.Option(help="seconds; a hung broker is noticed after one and a half")
    ] = 0.5,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="where brokers, logs and results go")
    ] = None,
) -> None:
    """Start three brokers, send and receive, break one of them, and succeed only if nothing
    acknowledged was lost.

    Example: qpid-ha demo --fault stop
    """
    options = settings_of(context)
    if fault not in FAULTS:
        raise Failure(USAGE, f"{fault!r} is not a fault", hint=f"one of {', '.join(FAULTS)}")
    if seconds <= 0 or rate <= 0 or heartbeat <= 0 or size < 0:
        hint = "qpid-ha demo --seconds 15 --rate 1000"
        raise Failure(
            USAGE, "seconds, rate and heartbeat must be above 0, and size not below", hint=hint
        )
    if fault.startswith("stop") and 1.5 * heartbeat >= RECOVERY_PATIENCE:
        raise Failure(
            USAGE,
            f"a broker that hangs is noticed after one and a half heartbeats, {1.5 * heartbeat:g} "
            f"s, and the demo waits for {RECOVERY_PATIENCE:g} s",
            hint="qpid-ha demo --fault stop --heartbeat 0.5",
        )
    where = directory or default_directory("demo")
    asked = DemoOptions(
        directory=where.absolute(),
        fault=fault,
        seconds=seconds,
        rate=rate,
        size=size,
        heartbeat=heartbeat,
    )
    result, code = Demo(asked, options).run()
    if options.as_json:
        print_json(result)
    else:
        print("\n".join(verdict(result, asked)))
    raise typer.Exit(code)
