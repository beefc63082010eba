"""Commands to brokers: switchover, failover, recover, demote and promote, which change which one is
primary, and reload.

Where a resource manager runs the cluster (the built-in one, Pacemaker, or a plug-in), switchover
and failover go through it, so that it promotes nobody of its own accord meanwhile; elsewhere the
brokers are asked themselves. What may lose messages says what, and asks first.
"""

from __future__ import annotations

import select
import sys
import time
from dataclasses import replace
from typing import Annotated, Any

import typer

from qpidha.cli.app import settings_of
from qpidha.cli.broker.observe import next_steps
from qpidha.cli.manager_errors import manager_failures
from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import Brokers, ask, chosen
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import EPILOG, print_json, print_table, talk
from qpidha.client.command.target import Target, cluster_places, local_cluster, place_of
from qpidha.client.handover import (
    Status,
    candidates,
    loss_of,
    losses_of,
    named,
    only_here,
    plan_line,
    plan_rows,
    primary_of,
    unfit,
)
from qpidha.manager.plugins import manager_of
from qpidha.manager.resource_manager import BrokerPlace, ResourceManager
from qpidha.model.broker_states import BACKUP_STATES, PRIMARY_STATES
from qpidha.model.exit_codes import (
    NO,
    NO_PERMISSION,
    NOT_CONFIRMED,
    OK,
    TIMED_OUT,
    UNAVAILABLE,
    USAGE,
)

PATIENCE = 30.0
"""Seconds for a new primary to be active."""
LOOK = 0.05
QUICK = 2.0
"""Seconds for a broker to say how it is, where one is known to be ill and the others matter."""
AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss", help="promote although messages may be lost; print first what is lost"
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]
Forget = Annotated[
    list[str] | None,
    typer.Option(
        "--forget",
        metavar="BROKER",
        help="do not wait for a broker whose disk is gone, by address, name or system id; may be "
        "repeated",
    ),
]
BROKER_COLUMNS = ("name", "address", "state", "epoch", "sequence", "complete", "in set", "answered")

Statuses = list[Status]


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    app.command("switchover", epilog=EPILOG)(_switchover)
    app.command("failover", epilog=EPILOG)(_failover)
    app.command("recover", epilog=EPILOG)(_recover)
    app.command("demote", epilog=EPILOG)(_demote)
    app.command("set", epilog=EPILOG)(_set)
    app.command("reload", epilog=EPILOG)(reload)
    app.command("promote", epilog=EPILOG)(_promote)


def _switchover(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(help="a backup, by name or address; default: the one with most of the log"),
    ] = "",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="only print which brokers could take over, and why others could not"
        ),
    ] = False,
) -> None:
    """Move the primary role to a ready backup without losing messages.

    The primary gives no more credit, waits until the backup has everything, and steps down when
    the backup is promoted. Clients reconnect. If there is no primary, or it does not work, use
    failover.

    Example: qpid-ha switchover node2
    """
    options = settings_of(context)
    brokers = Brokers.find(options)
    statuses = _statuses(brokers)
    primary = primary_of(statuses)
    if dry_run:
        raise typer.Exit(_plan(options, statuses, primary))
    if primary is None:
        raise Failure(
            NO,
            "there is no primary that could hand over",
            hint="qpid-ha failover, or qpid-ha recover",
        )
    chosen = _chosen(statuses, primary, target)
    stays = only_here(primary[1])
    if stays:
        talk(options, f"stays behind: {stays}")
    began = time.monotonic()
    manager = _manager(brokers.first)
    if manager is not None:
        with manager_failures():
            manager.switch_over(_place(chosen))
    else:
        ask(options, "switchover", {"target": chosen[0]}, target=brokers.target(primary[0]))
    _report_change(options, brokers, primary, chosen, began)


def _failover(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            help="a ready backup, by name or address; default: the one with most of the log"
        ),
    ] = "",
) -> None:
    """Promote a ready backup now, because the primary does not work; the old primary steps down
    when it learns of it.

    The backup has every acknowledged message. Clients send again what has no outcome yet.

    Example: qpid-ha failover node2
    """
    options = settings_of(context)
    quick = replace(options, timeout=QUICK if options.timeout is None else options.timeout)
    brokers = Brokers.find(quick)
    options.configured_tls = quick.configured_tls
    statuses = _statuses(brokers)
    primary = primary_of(statuses)
    began = time.monotonic()
    manager = _manager(brokers.first)
    last: Failure | None = None
    for candidate in (
        [_chosen(statuses, primary, target)] if target else candidates(statuses, primary)
    ):
        try:
            if manager is not None:
                with manager_failures():
                    manager.take_over(_place(candidate))
            else:
                ask(options, "promote", target=brokers.target(candidate[0]))
        except Failure as failure:
            talk(options, f"{named(candidate)}: {failure.text}")
            last = failure
            continue
        _report_change(options, brokers, primary, candidate, began)
        return
    if last is not None:
        raise last
    reasons = "; ".join(
        f"{named(one)} {why}" for one in statuses if (why := unfit(one, statuses, primary))
    )
    raise Failure(
        NO,
        f"no backup is ready and in sync: {reasons}",
        hint="qpid-ha recover compares what the brokers have",
    )


def _recover(
    context: typer.Context,
    promote: Annotated[
        bool, typer.Option("--promote", help="promote the recommended broker")
    ] = False,
    accept_loss: AcceptLoss = False,
    yes: Yes = False,
    forget: Forget = None,
) -> None:
    """Compare the brokers after a total failure, and recommend the one to promote.

    With --forget a broker is not waited for that will never come back: another member of the
    in-sync set has every durable message that was accepted.

    Exit code: 0 it can be promoted and nothing acknowledged is lost that was durable; otherwise 1,
    and with --promote 107.

    Example: qpid-ha recover --promote --forget node3
    """
    options = settings_of(context)
    if (accept_loss or yes) and not promote:
        raise Failure(
            USAGE,
            "--accept-loss and --yes mean nothing without --promote",
            hint="qpid-ha recover --promote --accept-loss",
        )
    told = {"forget": " ".join(forget)} if forget else {}
    found = ask(options, "recover", told or None)
    best = _row(found, found.get("recommended"))
    is_safe = best is not None and not _unheard(found, best)
    if not (options.as_json and promote):
        _show_comparison(options, found)
    chosen = best or _least_loss(found)
    if not promote:
        way_out = "" if is_safe else _way_out(options, found, chosen)
        if way_out and not options.as_json:
            print(f"next: {way_out}")
        raise typer.Exit(OK if is_safe else NO)
    if chosen is None:
        why = str(found.get("reason") or "no broker can be promoted")
        raise Failure(NO, why, hint=_way_out(options, found, chosen) or "qpid-ha status --all")
    if not is_safe:
        _accept(options, loss_of(found, str(chosen["address"])), accept_loss=accept_loss, yes=yes)
    result = ask(
        options,
        "promote",
        told if best is not None else {"accept_loss": True},
        target=_at(options, str(chosen["address"])),
    )
    if options.as_json:
        print_json(
            {
                **found,
                "schema_version": 1,
                "promoted": chosen["address"],
                "promoted_epoch": _epoch(result),
            }
        )
    else:
        print(f"{_row_name(chosen)} is promoted, epoch {_epoch(result)}")


def _demote(context: typer.Context) -> None:
    """Make the primary step down; it goes on as a backup.

    A cluster manager then promotes a broker again, perhaps the same one. On a backup it changes
    nothing, says so, and succeeds.

    Example: qpid-ha demote -b node1
    """
    options = settings_of(context)
    target = chosen(options)
    before = _quick_status(options, target)
    result = ask(options, "demote", target=target)
    was_primary = before.get("state", PRIMARY_STATES[0]) in PRIMARY_STATES
    after = result if isinstance(result, dict) else {}
    if options.as_json:
        print_json({"schema_version": 1, "demoted": was_primary, **after})
        return
    who, state = before.get("name") or str(target), after.get("state", "no primary")
    talk(
        options,
        f"{who} is {state} now"
        if was_primary
        else f"{who} is {state}, and was no primary: nothing is changed",
    )


def reload(context: typer.Context) -> None:
    """Have a broker read its users, its acl-file, its certificates and what it logs again.

    SIGHUP does the same. With a mistake in a file all stays as it was. Each broker of a cluster is
    to be told.

    Example: qpid-ha reload -b node1
    """
    options = settings_of(context)
    target = chosen(options)
    warnings = ask(options, "reload", target=target).get("warnings", [])
    if options.as_json:
        print_json({"schema_version": 1, "warnings": warnings})
        return
    what = "users, access control, certificates and log options"
    talk(options, f"{target} has read its {what} again")
    for warning in warnings:
        talk(options, f"warning: {warning}")


def _set(
    context: typer.Context,
    public_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="what clients are told in place of ha-public-url"),
    ] = None,
    brokers_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="not offered: says how ha-brokers-url is changed"),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="on every broker of the cluster")] = False,
) -> None:
    """Have a broker tell its clients other addresses of the cluster, until it stops.

    Its configuration is not changed: set ha-public-url there too.

    Example: qpid-ha set --public-url 192.0.2.10 --all -b node1
    """
    options = settings_of(context)
    if brokers_url is not None:
        raise Failure(
            USAGE,
            "--brokers-url is not offered",
            reason="majorities are counted by ha-brokers-url, and a list that is forgotten at the "
            "next start could give a cluster two primaries",
            hint="change ha-brokers-url in the configurations, one address at a time, and restart "
            "one broker after the other (docs/operations.md, Changing the addresses)",
        )
    if public_url is None:
        raise Failure(USAGE, "set needs an option", hint="qpid-ha set --public-url URL")
    asked = {"url": public_url}
    if not every:
        answers = [("", ask(options, "set_public_url", asked))]
    else:
        answers = Brokers.find(options).ask_each("set_public_url", asked)
    if options.as_json:
        rows = [
            {"address": address, "error": answer.text}
            if isinstance(answer, Failure)
            else {"address": address, **answer}
            for address, answer in answers
        ]
        print_json({"schema_version": 1, "brokers": rows})
    else:
        for address, answer in answers:
            if isinstance(answer, Failure):
                talk(options, f"{address} {answer.text}")
    failures = [answer for _, answer in answers if isinstance(answer, Failure)]
    raise typer.Exit(failures[0].code if failures else OK)


def _quick_status(options: Options, target: Target) -> dict[str, Any]:
    """How a broker is, or nothing: what it is asked for next is not to wait for that."""
    try:
        found: dict[str, Any] = ask(options, "status", target=target)
    except Failure:
        return {}
    return found


def _promote(context: typer.Context, accept_loss: AcceptLoss = False, yes: Yes = False) -> None:
    """Promote a broker. For cluster managers; with --accept-loss for operators, after a total
    failure.

    Exit code: 0 it is primary; 1 it refused, and the reason is printed.

    Example: qpid-ha promote --cluster-manager -b node1
    """
    options = settings_of(context)
    if not options.cluster_manager and not accept_loss:
        text = (
            "'promote' is for a cluster resource manager only.\n"
            "Two primaries at a time can lose messages, which is what a resource manager "
            "prevents.\n"
            "To call it all the same, add --cluster-manager"
        )
        print(text, file=sys.stderr)
        raise typer.Exit(NO)
    if accept_loss and not options.cluster_manager:
        found = ask(options, "recover")
        address = str(ask(options, "status").get("address", ""))
        if not options.as_json:
            _show_comparison(options, found)
        if found.get("recommended") != address:
            _accept(options, loss_of(found, address), accept_loss=True, yes=yes)
    result = ask(options, "promote", {"accept_loss": True} if accept_loss else None)
    if isinstance(result, dict) and result.get("state") == "standalone":
        raise Failure(
            NO, "this broker is not in a cluster, and needs no promotion", hint="set ha-cluster=yes"
        )
    if options.as_json:
        print_json(
            {"schema_version": 1, "promoted": True, **(result if isinstance(result, dict) else {})}
        )


# What they share: who is there.


def _statuses(brokers: Brokers) -> Statuses:
    """Ask every broker; those that do not answer are left out, unless none does. Who may ask none
    of the backups may not command them either, and is told so.
    """
    answers = brokers.statuses()
    known = [(address, answer) for address, answer in answers if not isinstance(answer, Failure)]
    denied = [
        answer
        for _, answer in answers
        if isinstance(answer, Failure) and answer.code == NO_PERMISSION
    ]
    if denied and not any(answer.get("state") in BACKUP_STATES for _, answer in known):
        raise denied[0]
    if not known:
        raise next(answer for _, answer in answers if isinstance(answer, Failure))
    if all(answer.get("state") == "standalone" for _, answer in known):
        raise Failure(NO, "this broker is not in a cluster", hint="set ha-cluster=yes")
    return known


def _chosen(statuses: Statuses, primary: Status | None, target: str) -> Status:
    """Find the broker that is to take over."""
    if not target:
        fit = candidates(statuses, primary)
        if fit:
            return fit[0]
        reasons = "; ".join(f"{named(one)} {unfit(one, statuses, primary)}" for one in statuses)
        raise Failure(NO, f"no backup can take over: {reasons}", hint="qpid-ha wait --for ready=1")
    by_name = {
        broker["name"]: broker["address"] for broker in (local_cluster() or {}).get("brokers", [])
    }
    hosts = {one[0]: one[0].removeprefix("ssl:").rpartition(":")[0] for one in statuses}
    at_host = [one for one in statuses if hosts[one[0]].strip("[]") == target.strip("[]")]
    for one in statuses:
        if (
            target in (one[0], one[1].get("name"), one[1].get("system_id"), one[1].get("address"))
            or by_name.get(target) == one[0]
            or at_host == [one]
        ):
            why = unfit(one, statuses, primary)
            if why:
                raise Failure(
                    NO,
                    f"{named(one)} cannot take over: it {why}",
                    hint="qpid-ha switchover --dry-run shows who can",
                )
            return one
    raise Failure(
        USAGE,
        f"no broker {target!r} answers in this cluster",
        hint=f"one of {', '.join(named(one) for one in statuses)}",
    )


def _plan(options: Options, statuses: Statuses, primary: Status | None) -> int:
    rows = plan_rows(statuses, primary)
    fit = candidates(statuses, primary)
    stays = "" if primary is None else only_here(primary[1])
    if options.as_json:
        print_json(
            {
                "schema_version": 1,
                "primary": primary and primary[0],
                "target": fit[0][0] if fit else None,
                "stays_behind": stays,
                "brokers": rows,
            }
        )
    else:
        print(plan_line(primary, fit[0] if fit else None))
        if stays:
            print(f"stays behind: {stays}")
        heads = ["NAME", "ADDRESS", "STATE", "SEQUENCE", "CAN TAKE OVER"]
        print_table(heads, [[*list(row.values())[:4], row["reason"] or "yes"] for row in rows])
    return OK if fit and primary is not None else NO


# What they share: doing it.


def _manager(target: Target) -> ResourceManager | None:
    """Find who runs the broker's cluster."""
    socket, address = place_of(target)
    with manager_failures():
        return manager_of(BrokerPlace(socket, address, tuple(cluster_places())))


def _report_change(
    options: Options, brokers: Brokers, before: Status | None, after: Status, began: float
) -> None:
    """Wait until the new primary is active, and say so."""
    patience = options.patience(PATIENCE)
    target = brokers.target(after[0])
    while True:
        try:
            found = ask(options, "status", target=target)
            if found["state"] == "active":
                break
            last = f"{named(after)} is {found['state']}"
        except Failure as failure:
            if failure.code not in (UNAVAILABLE, TIMED_OUT):
                raise
            last = failure.text
        if patience is not None and time.monotonic() - began > patience:
            raise Failure(
                TIMED_OUT,
                f"not active within {patience:g} s: {last}",
                hint=f"qpid-ha status --explain -b {after[0]}",
            )
        select.select([], [], [], LOOK)
    seconds = round(time.monotonic() - began, 3)
    if options.as_json:
        fields = {
            "from": before and before[0],
            "to": after[0],
            "epoch": found.get("epoch"),
            "seconds": seconds,
        }
        print_json({"schema_version": 1, **fields})
    else:
        print(f"{named(after)} is active, epoch {found.get('epoch')}, after {seconds:.2f} s")


def _row(found: dict[str, Any], address: object) -> dict[str, Any] | None:
    rows: list[dict[str, Any]] = found.get("brokers") or []
    return next((row for row in rows if address and address == row.get("address")), None)


def _row_name(row: dict[str, Any]) -> str:
    name, address = str(row.get("name") or ""), str(row["address"])
    return f"{name} ({address})" if name not in ("", address) else address


def _least_loss(found: dict[str, Any]) -> dict[str, Any] | None:
    """Find the broker with most, where none has everything for certain; none while there is a
    primary.
    """
    rows: list[dict[str, Any]] = [row for row in found.get("brokers") or [] if row.get("answered")]
    if any(row.get("state") in PRIMARY_STATES for row in rows):
        return None
    return max(
        rows,
        key=lambda row: (
            row["epoch"],
            row["sequence"],
            bool(row.get("in_newest_set")),
            bool(row.get("is_complete")),
        ),
        default=None,
    )


def _unheard(found: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """Name the members of the in-sync set that may have more than a broker that was started again,
    and did not answer.

    With ha-safety=trust-manager a broker is recommended all the same, for then it is the manager
    who knows that they are gone.
    """
    return (
        []
        if row.get("is_complete")
        else list(losses_of(found, str(row["address"])).get("not_heard") or [])
    )


def _show_comparison(options: Options, found: dict[str, Any]) -> None:
    if options.as_json:
        print_json({**found, "schema_version": 1})
        return
    rows = []
    for row in found.get("brokers") or []:
        if row.get("answered"):
            flags = [
                bool(row.get(column)) for column in ("is_complete", "in_newest_set", "answered")
            ]
            rows.append([*(row.get(column) for column in BROKER_COLUMNS[:5]), *flags])
            continue
        # What it last said may be long ago; one that was never heard has not even an identity.
        is_known = bool(row.get("system_id"))
        last = [row["epoch"], row["sequence"]] if is_known else [None, None]
        rows.append(
            [
                row.get("name"),
                row["address"],
                "unreachable",
                *last,
                None,
                bool(row.get("in_newest_set")) if is_known else "?",
                False,
            ]
        )
    print_table([column.upper() for column in BROKER_COLUMNS], rows)
    best = _row(found, found.get("recommended"))
    print(
        (
            f"recommended: {_row_name(best) if best is not None else 'none'}: "
            f"{found.get('reason') or ''}"
        ).rstrip(": ")
    )
    if best is not None:
        unheard = " and ".join(_unheard(found, best))
        gone = " and ".join(losses_of(found, str(best["address"])).get("gone") or [])
        print(
            f"would be lost: what {unheard} alone accepted, if anything"
            if unheard
            else f"would be lost: nothing durable; transient messages that only {gone} had"
            if gone
            else "would be lost: nothing"
        )
        return
    chosen = _least_loss(found)
    if chosen is not None:
        print(
            f"{_row_name(chosen)} has most; would be lost: {loss_of(found, str(chosen['address']))}"
        )


def _way_out(options: Options, found: dict[str, Any], chosen: dict[str, Any] | None) -> str:
    """Say what to do where no broker can be promoted without a loss, or none at all; nothing where
    there is a primary that waits for nobody.
    """
    if chosen is not None:
        at = chosen["address"]
        return (
            "start the brokers that did not answer. If one is gone for good: qpid-ha recover "
            f"--forget BROKER -b {at}; if too many are: qpid-ha recover --promote --accept-loss "
            f"-b {at}"
        )
    for row in found.get("brokers") or []:
        if row.get("answered") and row.get("state") in PRIMARY_STATES:
            try:
                explained = ask(options, "explain", target=_at(options, str(row["address"])))
            except Failure:
                return f"qpid-ha status --explain -b {row['address']}"
            return "; ".join(next_steps(explained))
    return "start the brokers, then qpid-ha status --all"


def _place(status: Status) -> str:
    """The host and port of a broker, by which managers know it, also where it has TLS."""
    return status[0].removeprefix("ssl:")


def _at(options: Options, address: str) -> Target:
    return Brokers.find(options).target(address)


def _accept(options: Options, loss: str, *, accept_loss: bool, yes: bool) -> None:
    """Have the loss accepted, or end."""
    if not accept_loss:
        raise Failure(
            NOT_CONFIRMED,
            f"this would give up something: {loss}",
            hint="start the missing brokers, or add --accept-loss",
        )
    talk(options, f"to be given up: {loss}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(
            NOT_CONFIRMED,
            "the loss has to be accepted, and there is no terminal to ask on",
            hint="add --yes",
        )
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Exit(NO)


def _epoch(result: Any) -> Any:
    return result.get("epoch") if isinstance(result, dict) else None
