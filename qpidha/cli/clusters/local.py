"""`qpid-ha local`: a cluster on this machine under the built-in manager."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Annotated, Any

import typer

from qpidha.cli.app import settings_of
from qpidha.cli.clusters.connecting import lines_for_clients
from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import Progress, print_json, print_table, talk
from qpidha.client.command.target import local_cluster, state_directory
from qpidha.manager.builtin.cluster import ClusterOptions
from qpidha.manager.builtin.launch import (
    DOWN_PATIENCE,
    bring_down,
    check_count,
    check_directory,
    free_ports,
    left_over,
    manager_link,
    reach_manager,
    settings_of_brokers,
    start_manager,
    unused,
)
from qpidha.model.exit_codes import NO, NO_INPUT, USAGE

BROKERS = 3
BASE_PORT = 5672
UP_PATIENCE = 60.0
"""Seconds for a cluster to become active with all backups ready."""
Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir", help="its directory; default QPIDHA_DIR, else the user's state directory"
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="a setting for every broker; may be repeated"),
]
Secure = Annotated[
    bool | None,
    typer.Option(
        "--secure/--no-secure",
        help="TLS and users with passwords, made where there are none (default: as before)",
    ),
]
Name = Annotated[str, typer.Argument(help="a broker, such as b1")]


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    local = typer.Typer(
        help="Run a cluster on this machine under the built-in manager.", no_args_is_help=True
    )
    local.command("up")(_up)
    local.command("status")(_status)
    local.command("kill")(_kill)
    local.command("restart")(_restart)
    local.command("logs")(_logs)
    local.command("down")(_down)
    app.add_typer(local, name="local")


def _up(
    context: typer.Context,
    count: Annotated[
        int | None,
        typer.Option("-n", "--brokers", help=f"how many brokers (default {BROKERS}, or as before)"),
    ] = None,
    directory: Directory = None,
    base_port: Annotated[
        int | None,
        typer.Option(help=f"first port (default {BASE_PORT}, or as before); 0 is any free ones"),
    ] = None,
    heartbeat: Annotated[
        float, typer.Option(help="seconds; a hung broker is noticed after one and a half")
    ] = 0.5,
    backup_timeout: Annotated[
        float, typer.Option(help="seconds a new primary waits for its expected backups")
    ] = 10.0,
    no_fence: Annotated[
        bool,
        typer.Option("--no-fence", help="do not kill a hung primary before another is promoted"),
    ] = False,
    setting: Settings = None,
    secure: Secure = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="stay, and show what the manager does")
    ] = False,
) -> None:
    """Start a cluster; return when one broker is active and all others are ready. One that was
    there before has its former ports.

    With --secure it makes an authority, certificates, users with random passwords and an acl-file,
    in the folder credentials of the directory, and prints how a client connects.

    Example: qpid-ha local up -n 3
    """
    options = settings_of(context)
    check_count(BROKERS if count is None else count)
    where = _directory(directory)
    check_directory(where)
    plan = ClusterOptions(
        directory=where,
        ports=_ports(where, count, base_port),
        heartbeat=heartbeat,
        fence=not no_fence,
        backup_timeout=backup_timeout,
        settings=settings_of_brokers(setting or []),
        secure=_is_secure(where, secure),
    )
    if foreground:
        _print_lines(lines_for_clients(plan.clients()))
        raise typer.Exit(int(str(start_manager(plan, foreground=True))))
    _start(plan, options)
    _show(options, _ask(where, "status"))


def _is_secure(where: Path, asked: bool | None) -> bool:
    """Whether nobody gets in without TLS and a password: as asked, else as it was. Raises Failure
    if brokers that still run have it otherwise.
    """
    was = bool((local_cluster(str(where)) or {}).get("secure"))
    running = ", ".join(broker["name"] for broker in left_over(where))
    if running and asked not in (None, was):
        word = "--secure" if asked else "--no-secure"
        raise Failure(
            NO,
            f"{running} of a cluster that was started without {word} still run in {where}",
            hint=f"leave {word} out to take them over, or end them first with qpid-ha local down "
            f"--dir {where}",
        )
    return was if asked is None else asked


def _start(plan: ClusterOptions, options: Options) -> None:
    """Start the manager and wait until the cluster is complete."""
    process = start_manager(plan)
    assert isinstance(process, subprocess.Popen)
    progress = Progress(options)
    try:
        stream = reach_manager(plan, process)
        stream.on_tick = lambda: progress.show(
            "  ".join(f"{name} {state}" for name, state in sorted(stream.states().items()))
        )
        stream.await_settled(plan.directory, options.patience(UP_PATIENCE) or 1e9)
        progress.clear()
        stream.close()
    except (Failure, KeyboardInterrupt):
        # A second ^C must not leave half of it behind.
        former = signal.signal(signal.SIGINT, signal.SIG_IGN)
        progress.clear()
        _stop_manager(process)
        signal.signal(signal.SIGINT, former)
        raise


def _ports(where: Path, count: int | None, base_port: int | None) -> tuple[int, ...]:
    """The ports of brokers that an earlier manager left running, else those that the cluster had,
    else free ones.
    """
    ports = tuple(broker["port"] for broker in (local_cluster(str(where)) or {}).get("brokers", []))
    running = ", ".join(broker["name"] for broker in left_over(where))
    if not running and ports and base_port is None and count in (None, len(ports)):
        return unused(ports)
    if not running:
        return free_ports(
            BROKERS if count is None else count, BASE_PORT if base_port is None else base_port
        )
    for asked, has, what in (
        (count, len(ports), "-n"),
        (base_port or None, ports[0], "--base-port"),
    ):
        if asked not in (None, has):
            text = (
                f"{running} of a cluster with {what} {has} still run in {where}, so {what} "
                f"{asked} is not possible"
            )
            raise Failure(
                NO,
                text,
                hint=(
                    f"leave {what} out to take them over, or end them first with qpid-ha "
                    f"local down --dir {where}"
                ),
            )
    return ports


def _stop_manager(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(DOWN_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()


def _status(context: typer.Context, directory: Directory = None) -> None:
    """Show the brokers of the cluster.

    Example: qpid-ha local status
    """
    _show(settings_of(context), _ask(_directory(directory), "status"))


def _show(options: Options, status: dict[str, Any]) -> None:
    if options.as_json:
        print_json(status)
        return
    primary = status["primary"] or "none"
    print(
        f"cluster {status['name']}   epoch {status['epoch']}   primary {primary}   "
        f"manager built-in   {status['directory']}"
    )
    fields = ("name", "address", "pid", "state", "epoch", "sequence", "restarts")
    rows = [
        [str(broker[field] or "-") if field == "pid" else broker[field] for field in fields]
        for broker in status["brokers"]
    ]
    print_table([field.upper() for field in fields], rows)
    _print_lines(lines_for_clients(status.get("clients") or {}))


def _print_lines(lines: list[str]) -> None:
    for line in lines:
        print(line, flush=True)


def _kill(
    context: typer.Context,
    name: Name,
    number: Annotated[str, typer.Option("--signal", help="KILL, TERM, STOP or CONT")] = "KILL",
    directory: Directory = None,
) -> None:
    """Send a signal to a broker; the manager notices, and promotes another or starts it again.

    Example: qpid-ha local kill b1 --signal STOP
    """
    _act(context, _directory(directory), "kill", {"name": name, "signal": number.upper()})


def _restart(context: typer.Context, name: Name, directory: Directory = None) -> None:
    """Stop a broker with SIGTERM; the manager starts it again.

    Example: qpid-ha local restart b2
    """
    _act(context, _directory(directory), "restart", {"name": name})


def _act(context: typer.Context, where: Path, method: str, params: dict[str, Any]) -> None:
    options = settings_of(context)
    result = _ask(where, method, params)
    if options.as_json:
        print_json({"schema_version": 1, **result})
    else:
        talk(options, f"{result['name']} (pid {result['pid']}): {result['signal']}")


def _logs(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="a broker, or manager")] = "manager",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until interrupted")] = False,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, help="how many of the last lines")
    ] = 50,
    directory: Directory = None,
) -> None:
    """Print the log of a broker or of the manager.

    Example: qpid-ha local logs b1 --follow
    """
    where = _directory(directory)
    options = settings_of(context)
    if options.as_json and follow:
        raise Failure(
            USAGE,
            "-o json gives one document, and --follow has no end",
            hint="leave one of them out",
        )
    path = where / "manager.log" if name == "manager" else where / name / "qpidhad.log"
    if not path.exists():
        raise Failure(
            NO_INPUT, f"there is no log {path}", hint="qpid-ha local status shows the brokers"
        )
    if options.as_json:
        with path.open(errors="replace") as log:
            last = [line.rstrip("\n") for line in deque(log, maxlen=lines)]
        print_json({"schema_version": 1, "broker": name, "log": str(path), "lines": last})
        return
    raise typer.Exit(
        subprocess.call(
            ["tail", "-n", str(lines), *(["-f"] if follow else []), str(path)],
            stdout=sys.stdout.fileno(),
        )
    )


def _down(context: typer.Context, directory: Directory = None) -> None:
    """Stop the cluster: all brokers and the manager. Logs stay.

    Example: qpid-ha local down
    """
    options = settings_of(context)
    where = _directory(directory)
    bring_down(where)
    if options.as_json:
        print_json({"schema_version": 1, "down": True, "directory": str(where)})
    else:
        talk(options, f"stopped; logs are in {where}")


def _ask(where: Path, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    link = manager_link(where)
    try:
        result: dict[str, Any] = link.call(method, params)
        return result
    finally:
        link.close()


def _directory(directory: Path | None) -> Path:
    return (directory or Path(state_directory())).absolute()
