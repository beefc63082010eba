"""`qpid-ha verify`: a workload with faults whose clients write down everything, to be judged by
`qpid-ha pipeline check`.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Annotated

import typer

from qpidha.cli.app import settings_of
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import EPILOG, print_json
from qpidha.manager.builtin.launch import settings_of_brokers
from qpidha.model.event_log import LEVELS
from qpidha.model.exit_codes import NO, USAGE
from qpidha.pipeline.workload.faults import KINDS
from qpidha.pipeline.workload.run import Verify, VerifyOptions, parse_brokers, verdict
from qpidha.pipeline.workload.run_dirs import default_directory

WORKLOADS = ("queue", "mutex")


def add(app: typer.Typer) -> None:
    """Put the command into the tree."""
    verify = typer.Typer(
        help="Run clients against a cluster under faults, and write everything down.",
        epilog=EPILOG,
        no_args_is_help=True,
    )
    verify.callback()(_verify)
    verify.command("run", epilog=EPILOG)(_run)
    app.add_typer(verify, name="verify")


def _verify() -> None:
    """Write down what clients see of a cluster while it is broken."""


def _run(
    context: typer.Context,
    brokers: Annotated[
        str,
        typer.Option(
            metavar="ADDR,...", help="a cluster; without it one is started on this machine"
        ),
    ] = "",
    workload: Annotated[
        str,
        typer.Option(
            help="queue: everything sent is to be received; mutex: queues of one message as locks"
        ),
    ] = "queue",
    queues: Annotated[int, typer.Option(help="how many")] = 3,
    senders: Annotated[int, typer.Option(help="clients that send, each to all queues")] = 3,
    receivers: Annotated[
        int,
        typer.Option(help="clients that receive, each from one queue; of a mutex, that want locks"),
    ] = 3,
    minutes: Annotated[float, typer.Option(help="how long, the drain not counted")] = 2.0,
    faults: Annotated[
        str,
        typer.Option(help=f"some of {','.join(KINDS)}; with --fault-command any names; or none"),
    ] = "",
    fault_command: Annotated[
        str, typer.Option(metavar="CMD", help="does the faults: called with start|stop NAME TARGET")
    ] = "",
    rate: Annotated[float, typer.Option(help="messages per second of each sender")] = 100.0,
    size: Annotated[int, typer.Option(help="bytes in a message, beside its number")] = 100,
    seed: Annotated[
        int | None, typer.Option(help="of the choices of faults; by default another each time")
    ] = None,
    heartbeat: Annotated[
        float, typer.Option(help="seconds; of a cluster that is started, and half of the clients'")
    ] = 0.5,
    journal: Annotated[
        str,
        typer.Option(
            help="journal-events of a cluster that is started: off, state, sampled or full"
        ),
    ] = "full",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="for brokers that are started"),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="TLS, SCRAM, an acl-file and two networks, for brokers that are started",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="new directory for histories and event logs")
    ] = None,
) -> None:
    """Send and receive under faults, write down every operation, drain the queues, and print the
    command that judges it.

    Example: qpid-ha verify run --minutes 2 --faults kill,stop --out run
    """
    options = settings_of(context)
    kinds = [
        kind
        for kind in (faults or ("none" if brokers else "kill,stop")).split(",")
        if kind and kind != "none"
    ]
    asked = VerifyOptions(
        directory=(out or default_directory("verify")).absolute(),
        brokers=parse_brokers(brokers),
        workload=workload,
        queues=queues,
        senders=senders,
        receivers=receivers,
        minutes=minutes,
        faults=kinds,
        fault_command=fault_command,
        rate=rate,
        size=size,
        seed=int(time.time()) if seed is None else seed,
        heartbeat=heartbeat,
        journal=journal,
        settings=settings_of_brokers(setting or []),
        secure=secure,
    )
    _refuse_wrong_values(asked)
    _refuse_wrong_faults(asked)
    if brokers:
        _refuse(
            context,
            {"journal": "--journal", "setting": "--set", "secure": "--secure"},
            "brokers that are started",
            "leave out --brokers, or",
        )
    if workload == "mutex":
        _refuse(
            context,
            {name: f"--{name}" for name in ("senders", "rate", "size")},
            "--workload queue",
            "leave out",
        )
    _refuse_used_directory(asked.directory)
    summary, code = Verify(asked, options).run()
    if options.as_json:
        print_json(summary)
    else:
        print("\n".join(verdict(summary)))
    raise typer.Exit(code)


def _refuse_wrong_values(asked: VerifyOptions) -> None:
    """Raise Failure for a word or a number that cannot be."""
    if asked.workload not in WORKLOADS:
        raise Failure(
            USAGE,
            f"{asked.workload!r} is not a workload",
            hint=f"--workload {' or '.join(WORKLOADS)}",
        )
    if asked.journal not in LEVELS:
        raise Failure(
            USAGE,
            f"{asked.journal!r} is not a level",
            hint=f"--journal with one of {', '.join(LEVELS)}",
        )
    if (
        min(asked.queues, asked.senders, asked.receivers) < 1
        or not all(0 < number < math.inf for number in (asked.minutes, asked.rate, asked.heartbeat))
        or asked.size < 0
    ):
        hint = "qpid-ha verify run --queues 3 --senders 3 --receivers 3 --minutes 2 --rate 100"
        raise Failure(
            USAGE,
            "queues, senders, receivers, minutes, rate and heartbeat must be above 0, "
            "and size not below",
            hint=hint,
        )
    if asked.workload == "queue" and asked.receivers < asked.queues:
        raise Failure(
            USAGE,
            f"{asked.queues} queues need as many receivers at least, and there are "
            f"{asked.receivers}",
            hint=f"--receivers {asked.queues}",
        )


def _refuse_wrong_faults(asked: VerifyOptions) -> None:
    """Raise Failure for faults that nothing would do, and for a command that nothing would call."""
    if asked.brokers and asked.faults and not asked.fault_command:
        hint = "--faults none, or --fault-command with a program that does them"
        raise Failure(USAGE, "faults can be done to a cluster that is started here only", hint=hint)
    if asked.fault_command and not asked.brokers:
        raise Failure(
            USAGE,
            "--fault-command is for a given cluster",
            hint="name it with --brokers, or leave --fault-command out",
        )
    if asked.fault_command and not asked.faults:
        hint = "--faults with names that the command knows, or leave --fault-command out"
        raise Failure(
            USAGE, "no faults are named, and --fault-command would never be called", hint=hint
        )
    unknown = [kind for kind in asked.faults if kind not in KINDS and not asked.fault_command]
    if unknown:
        raise Failure(
            USAGE,
            f"{unknown[0]!r} is not a fault",
            hint=f"--faults with some of {','.join(KINDS)}, or none",
        )


def _refuse_used_directory(where: Path) -> None:
    """Raise Failure unless the directory is new or empty."""
    if where.exists() and (not where.is_dir() or any(where.iterdir())):
        raise Failure(
            NO,
            f"{where} is there already, and histories of two runs do not belong together",
            hint="another --out, or remove it",
        )


def _refuse(context: typer.Context, options: dict[str, str], purpose: str, advice: str) -> None:
    """Raise Failure if one of these options (by parameter) was given: none of them would do
    anything.
    """
    given = [
        option
        for name, option in options.items()
        if getattr(context.get_parameter_source(name), "name", "") != "DEFAULT"
    ]
    if given:
        named = " and ".join(given)
        raise Failure(
            USAGE,
            f"{named} {'is' if len(given) == 1 else 'are'} for {purpose}",
            hint=f"{advice} {named}",
        )
