"""Commands that look at a cluster: ping, status, query, list, wait, methods."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from qpidha.cli.app import settings_of
from qpidha.cli.status import ping, status
from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import Brokers, ask, ask_all, code_of
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import (
    EPILOG,
    Listing,
    Progress,
    ago,
    print_json,
    print_list,
    print_table,
    talk,
)
from qpidha.client.command.target import PLAIN_ADDRESS, local_cluster
from qpidha.client.errors import DISTRUSTED
from qpidha.model.broker_states import (
    BACKUP_STATES,
    IN_SYNC_STATES,
    PRIMARY_STATES,
    STANDALONE,
    STATES,
)
from qpidha.model.exit_codes import NO_PERMISSION, OK, TIMED_OUT, UNAVAILABLE, USAGE

METHODS = Listing("methods", ("name", "effect", "access", "help"))
MEMBER_COLUMNS = ("name", "address", "state", "epoch", "sequence", "in_sync", "since_seconds")
NEXT = {
    "majority": (
        "start one of those that have not answered. If they are gone for good: qpid-ha demote "
        "-b {address}, then qpid-ha recover --promote --accept-loss -b {address}"
    ),
    "recorder": (
        "see that the cluster manager runs here (qpidha-watch, or the built-in one) and is "
        "quorate, and that lost nodes are fenced"
    ),
    "ha-min-in-sync": "start another broker, or start this one with a lower ha-min-in-sync",
}
"""What an operator can do, by what this broker waits for; the other waits end by themselves."""


def explanation_lines(found: dict[str, Any]) -> list[str]:
    """Say what a broker is, what it waits for, and which messages that keeps waiting."""
    now = int(found.get("now_ns") or 0)
    who = found.get("address") or found.get("name") or "the broker"
    lines = [f"{who} is {found.get('state', 'unknown')}{_for(found.get('since_ns'), now)}"]
    waits = [wait for wait in found.get("waits") or [] if isinstance(wait, dict)]
    for wait in waits:
        text = str(wait.get("text") or wait.get("waits_for"))
        since, until = _for(wait.get("since_ns"), now), _until(wait.get("until_ns"), now)
        lines.append(f"waits: {text.rstrip('.')}{since}{until}")
    unreplicated, queues = (
        int(found.get("unreplicated_messages") or 0),
        int(found.get("unreplicated_queues") or 0),
    )
    if unreplicated:
        rows = found.get("queues") or []
        named = ", ".join(f"{row['name']} {row['unreplicated']:,}" for row in rows)
        more = f", and {queues - len(rows):,} more" if queues > len(rows) else ""
        lines.append(
            f"{_count(unreplicated, 'message')} in {_count(queues, 'queue')} not yet on every "
            f"in-sync broker: {named}{more}"
        )
    if found.get("refuses"):
        lines.append(f"takes no messages that are recorded: {found['refuses']}")
    if found.get("withholds"):
        is_backup = found.get("state") in BACKUP_STATES
        what = "is above a limit" if is_backup else "gives senders no credit"
        lines.append(f"{what}: {found['withholds']}")
    held = int(found.get("held") or 0)
    if held:
        lines.append(f"answers to clients that wait until what they confirm is committed: {held:,}")
    lines += _queue_lines(found)
    lines += _link_lines(found, now)
    lines += [f"next: {step}" for step in next_steps(found)]
    if len(lines) == 1:
        lines.append("nothing waits")
    lines += _only_here_lines(found)
    aside = int(found.get("records_set_aside") or 0)
    for folder in found.get("set_aside") or []:
        lines.append(
            f"set aside: records that a primary did not have, in journal/{folder}; to send them "
            f"again, on the broker's host: qpid-ha journal salvage DATA-DIR --discarded {folder} "
            "--to ADDR"
        )
    if aside:
        lines.append(f"set aside in all: {_count(aside, 'record')}")
    return lines


def _only_here_lines(found: dict[str, Any]) -> list[str]:
    """Say which messages no other broker has."""
    messages, queues = (
        int(found.get("only_here_messages") or 0),
        int(found.get("only_here_queues") or 0),
    )
    if not messages:
        return []
    rows = found.get("only_here") or []
    named = ", ".join(f"{row['name']} {row['messages']:,}" for row in rows)
    more = f", and {queues - len(rows):,} more" if queues > len(rows) > 0 else ""
    return [
        f"{_count(messages, 'message')} in {_count(queues, 'queue')} only on this broker, as they "
        f"are not replicated{': ' if named else ''}{named}{more}"
    ]


def _queue_lines(found: dict[str, Any]) -> list[str]:
    """Say which queues have stopped their senders, and which have messages without a place."""
    lines = []
    for row in found.get("stopped") or []:
        lines.append(
            f"senders of queue {row['name']} get no credit until less is on it: "
            f"{_count(int(row['messages']), 'message')}, {_count(int(row['bytes']), 'byte')}, "
            f"{_count(int(row['waiting_senders']), 'sender')} waiting"
        )
    for row in found.get("unplaced") or []:
        lines.append(
            f"queue {row['name']} keeps {_count(int(row['unplaced']), 'dead message')} without a "
            f"place elsewhere{': ' if row.get('why') else ''}{row.get('why') or ''}"
        )
    for what in ("stopped", "unplaced"):
        more = int(found.get(f"{what}_queues") or 0) - len(found.get(what) or [])
        if more > 0:
            lines.append(f"and {_count(more, 'more queue')} like these: qpid-ha queue list")
    return lines


def _link_lines(found: dict[str, Any], now: int) -> list[str]:
    """Say which links, routes and replicas do not what they are for, and what to do."""
    rows = found.get("unwell") or []
    lines = [
        f"{row['name']} is {row['state']}{_for(row.get('since_ns'), now)}: {row['why']}; "
        f"next: {row['next']}"
        for row in rows
    ]
    more = int(found.get("unwell_links") or 0) - len(rows)
    if more > 0:
        lines.append(f"and {more:,} more links, routes or replicas")
    return lines


def next_steps(found: dict[str, Any]) -> list[str]:
    """Say what an operator can do about what a broker waits for."""
    who = found.get("address") or found.get("name") or "ADDR"
    waits = [wait for wait in found.get("waits") or [] if isinstance(wait, dict)]
    return [
        NEXT[what].format(address=who)
        for what in dict.fromkeys(wait.get("waits_for") for wait in waits)
        if what in NEXT
    ]


def _for(since: object, now: int) -> str:
    return (
        f", for {max(0.0, (now - since) / 1e9):,.1f} s"
        if isinstance(since, int) and since and now
        else ""
    )


def _until(until: object, now: int) -> str:
    return (
        f"; {(until - now) / 1e9:,.1f} s more, then the others go on without it"
        if isinstance(until, int) and now and until > now
        else ""
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


LOOK = 0.05
"""Seconds between two looks of `wait`."""
WAIT_PATIENCE = 60.0
QUERY = (
    ("Status:", "state"),
    ("Broker ID:", "system_id"),
    ("Brokers URL:", "brokers_url"),
    ("Public URL:", "public_url"),
    ("Replicate: ", "replicate"),
)
"""Label of the historic output, and the field it shows."""


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    app.command("ping", epilog=EPILOG)(_ping)
    app.command("status", epilog=EPILOG)(_status)
    app.command("query", epilog=EPILOG)(_query)
    app.command("list", epilog=EPILOG)(_list)
    app.command("wait", epilog=EPILOG)(_wait)
    app.command("methods", epilog=EPILOG)(_methods)


def _ping(context: typer.Context) -> None:
    """Test whether a broker answers; print nothing.

    Exit code: 0 it answers; 69 it cannot be reached; 75 it did not answer within --timeout.

    Example: qpid-ha ping -b node1 --timeout 2
    """
    raise typer.Exit(ping(settings_of(context)))


def _status(
    context: typer.Context,
    every: Annotated[
        bool, typer.Option("--all", help="print the state of every broker of the cluster")
    ] = False,
    expect: Annotated[
        str | None,
        typer.Option(
            help="print nothing; succeed if this is the state, or the role: primary or backup"
        ),
    ] = None,
    is_primary: Annotated[
        bool, typer.Option("--is-primary", help="print nothing; succeed if the broker is primary")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="show what the broker is waiting for, and which messages are blocked"
        ),
    ] = False,
) -> None:
    """Print the state of a broker: standalone, joining, catchup, ready, recovering or active.

    Example: qpid-ha status --explain -b node1
    """
    if explain:
        if every or is_primary or expect is not None:
            raise Failure(
                USAGE,
                "--explain does not go with --all, --expect or --is-primary",
                hint="qpid-ha status --explain -b ADDR",
            )
        _explain(settings_of(context))
        return
    raise typer.Exit(
        status(settings_of(context), every=every, expect=expect, is_primary=is_primary)
    )


def _explain(options: Options) -> None:
    found = ask(options, "explain")
    if options.as_json:
        print_json({"schema_version": 1, **found})
        return
    print("\n".join(explanation_lines(found)))


def _query(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="ask every broker of the cluster")] = False,
) -> None:
    """Print the HA configuration and state.

    Example: qpid-ha query -o json
    """
    options = settings_of(context)
    if not every:
        found = ask(options, "status")
        if options.as_json:
            print_json({"schema_version": 1, **_configuration(found)})
        else:
            _print_query(found)
        return
    answers = ask_all(options)
    if options.as_json:
        rows = [_row(address, answer) for address, answer in answers]
        print_json({"schema_version": 1, "brokers": rows})
        raise typer.Exit(code_of(answers))
    for address, answer in answers:
        if isinstance(answer, Failure):
            print(f"{address} {answer.text}\n")
        else:
            print(f"{'Address:':<20} {address}")
            _print_query(answer)
            print()
    raise typer.Exit(code_of(answers))


def _row(address: str, answer: Any) -> dict[str, Any]:
    if isinstance(answer, Failure):
        return {"address": address, "error": answer.text}
    return {**_configuration(answer), "address": address}


def _configuration(found: dict[str, Any]) -> dict[str, Any]:
    kept = (
        "name",
        "address",
        "state",
        "epoch",
        "system_id",
        "brokers_url",
        "public_url",
        "replicate",
    )
    return {name: found.get(name) for name in kept}


def _print_query(found: dict[str, Any]) -> None:
    for label, field in QUERY:
        print(f"{label:<20} {found.get(field, '')}")


def _list(context: typer.Context) -> None:
    """Show every member of the cluster with its state and the end of its log.

    IN SYNC is yes for a broker that has every committed record; "behind" is a member of the
    in-sync set that has to catch up first.

    Example: qpid-ha list -b node1
    """
    options = settings_of(context)
    print_cluster(options, look_at_cluster(options))


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """What the brokers of a cluster say of themselves at one moment."""

    brokers: Brokers
    primary: dict[str, Any] | None
    """The status of the primary, if it answers."""
    newest: dict[str, Any]
    """The status of whoever knows most."""
    members: list[str]
    """The in-sync set: system ids."""
    rows: list[dict[str, Any]]
    waits_for: list[str]
    unreplicated: dict[str, Any]

    @property
    def about(self) -> dict[str, Any]:
        """What is to be said beside the rows."""
        where = self.primary and self.primary.get("address")
        about = {"epoch": self.newest.get("epoch"), "primary": where}
        return {**about, "waits_for": self.waits_for, **self.unreplicated}


def look_at_cluster(options: Options) -> ClusterLook:
    """Ask all brokers how they are. Raises Failure if none answers."""
    brokers = Brokers.find(options)
    answers = brokers.statuses()
    known = [answer for _, answer in answers if not isinstance(answer, Failure)]
    if not known:
        raise next(answer for _, answer in answers if isinstance(answer, Failure))
    primary = max(
        (one for one in known if one["state"] in PRIMARY_STATES),
        key=lambda one: int(one.get("epoch", 0)),
        default=None,
    )
    newest = primary or max(known, key=lambda one: int(one.get("epoch", 0)))
    members = list((newest.get("in_sync") or {}).get("members") or [])
    names = {
        broker["address"]: broker["name"] for broker in (local_cluster() or {}).get("brokers", [])
    }
    rows = [
        _member(address, answer, members, names) | _seen_by(primary, address, answer)
        for address, answer in answers
    ]
    waits_for = _waits_for(newest, rows) if newest["state"] == "recovering" else []
    unreplicated = _unreplicated(options, brokers, primary)
    return ClusterLook(brokers, primary, newest, members, rows, waits_for, unreplicated)


def print_cluster(options: Options, seen: ClusterLook) -> None:
    """Print the brokers of a cluster, below a line or two that say how it is."""
    if options.as_table and not options.no_headers:
        print("\n".join(_about_cluster(seen)))
    _print_members(options, seen.rows, seen.members, seen.about)


def _about_cluster(seen: ClusterLook) -> list[str]:
    newest, primary, rows = seen.newest, seen.primary, seen.rows
    if newest["state"] == STANDALONE:
        return [f"{newest.get('name') or newest['address']} is in no cluster"]
    where = (
        f"primary {primary.get('name') or primary['address']}"
        if primary is not None
        else "no primary"
    )
    in_sync = sum(row["in_sync"] is True for row in rows)
    lines = [
        f"epoch {newest.get('epoch')}   {where}   in sync {in_sync} of "
        f"{len(rows)}{_unreplicated_text(seen.unreplicated)}"
    ]
    if seen.waits_for:
        lines.append(f"recovering: waits for {', '.join(seen.waits_for)}")
    return lines


def _print_members(
    options: Options, rows: list[dict[str, Any]], members: list[str], about: dict[str, Any]
) -> None:
    listing = Listing(
        "brokers",
        MEMBER_COLUMNS,
        wide=("connections", "held", "records_set_aside", "version", "system_id"),
        cells={
            "in_sync": lambda row: _in_sync(row, members),
            "since_seconds": lambda row: ago(row["since_seconds"]),
        },
        heads={"in_sync": "IN SYNC", "since_seconds": "SINCE"},
        about=tuple(about),
    )
    print_list(options, listing, rows, *about.values())
    if not options.as_table:
        return
    for row in rows:
        if row["seen_by"]:
            talk(options, f"{row['address']}, as the primary sees it: {row['error']}")
        if row["set_aside"]:
            at = f"qpid-ha status --explain -b {row['address']}"
            count = int(row["records_set_aside"] or 0)
            talk(options, f"{row['address']} has records that were set aside ({count:,}): {at}")
        if row["only_here"]:
            messages = _count(int(row["only_here"]), "message")
            talk(options, f"{row['address']} has {messages} that no other broker has")


def _seen_by(primary: dict[str, Any] | None, address: str, answer: Any) -> dict[str, Any]:
    """What the primary knows of a broker that cannot be asked from here."""
    name = address.removeprefix("ssl:")
    member = next(
        (one for one in (primary or {}).get("members", []) if one["address"] == name), None
    )
    if not _may_not_be_asked(answer) or member is None:
        return {"seen_by": None}
    known = ("name", "state", "epoch", "sequence", "system_id")
    in_sync = bool(member["in_sync"]) and member["state"] in IN_SYNC_STATES
    seen = {name: member[name] for name in known if member.get(name)}
    return {**seen, "in_sync": in_sync, "seen_by": "primary"}


def _may_not_be_asked(answer: Any) -> bool:
    return isinstance(answer, Failure) and (
        answer.code == NO_PERMISSION or answer.condition in (PLAIN_ADDRESS, DISTRUSTED)
    )


def _unreplicated(
    options: Options, brokers: Brokers, primary: dict[str, Any] | None
) -> dict[str, Any]:
    """Ask the primary how many messages, in how many queues, are not yet on every in-sync
    broker.
    """
    names = ("unreplicated_queues", "unreplicated_messages", "unsafe_queues", "unsafe_messages")
    if primary is None:
        return dict.fromkeys(names)
    try:
        found = ask(options, "explain", target=brokers.target(str(primary.get("address", ""))))
    except Failure:
        found = {}  # It has just gone, which the next look will show.
    return {name: found.get(name) for name in names}


def _unreplicated_text(unreplicated: dict[str, Any]) -> str:
    queues, messages = unreplicated["unreplicated_queues"], unreplicated["unreplicated_messages"]
    if queues is None:
        return ""
    return f"   unreplicated queues {queues:,}" + (f" ({messages:,} messages)" if messages else "")


def _member(address: str, answer: Any, members: list[str], names: dict[str, str]) -> dict[str, Any]:
    """Describe one broker, from its own status."""
    found = {} if isinstance(answer, Failure) else answer
    state = found.get("state", "unreachable")
    return {
        "name": found.get("name") or names.get(address.removeprefix("ssl:"), ""),
        "address": address,
        "state": state,
        "epoch": found.get("epoch"),
        "sequence": found.get("sequence"),
        "in_sync": state in IN_SYNC_STATES and found.get("system_id") in members,
        "since_seconds": round(time.time() - found["since_ns"] / 1e9, 1)
        if found.get("since_ns")
        else None,
        "connections": found.get("connections"),
        "held": found.get("held"),
        "version": found.get("version"),
        "system_id": found.get("system_id"),
        "set_aside": found.get("set_aside"),
        "records_set_aside": found.get("records_set_aside"),
        "only_here": (found.get("local_journal") or {}).get("messages"),
        "error": answer.explanation if isinstance(answer, Failure) else None,
    }


def _in_sync(row: Mapping[str, Any], members: list[str]) -> str:
    if row["state"] == STANDALONE:
        return "-"
    if row["in_sync"]:
        return "yes"
    return "behind" if row["system_id"] and row["system_id"] in members else "no"


def _waits_for(primary: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """Name the addresses of the backups that a new primary waits for; one that was never seen has
    only its id.
    """
    known = {
        str(member["system_id"]): str(member["address"])
        for member in primary.get("members", [])
        if member.get("system_id")
    }
    known |= {str(row["system_id"]): str(row["address"]) for row in rows if row["system_id"]}
    waited = dict.fromkeys([*primary.get("expected", []), *primary.get("leaving", [])])
    return [known.get(member, member) for member in waited]


def _wait(
    context: typer.Context,
    condition: Annotated[
        str,
        typer.Option(
            "--for",
            help="state=STATE or role=primary; at the primary also ready=N backups, or synced",
        ),
    ],
) -> None:
    """Wait until a condition holds: for 60 s, or for --timeout; 0 is for ever.

    ready=N counts backups that are connected to the primary and in the in-sync set; synced is true
    when all backups are, and nothing waits for them.

    Exit code: 0 it holds; 75 it did not come true; 69 no broker could be asked all the time.

    Example: qpid-ha wait --for synced -b node1
    """
    options = settings_of(context)
    test = _condition(condition)
    patience = options.patience(WAIT_PATIENCE)
    began = time.monotonic()
    progress = Progress(options)
    asking = replace(options, timeout=1.0)
    last, code = "no answer yet", UNAVAILABLE
    while True:
        try:
            found = ask(asking, "status")
            code = TIMED_OUT
            last = _away(found) + f"{found.get('address') or found.get('name')} is {found['state']}"
            if test(found):
                progress.clear()
                if options.as_json:
                    seconds = round(time.monotonic() - began, 3)
                    print_json(
                        {
                            "schema_version": 1,
                            "condition": condition,
                            "seconds": seconds,
                            "state": found["state"],
                        }
                    )
                raise typer.Exit(OK)
        except Failure as failure:
            if failure.code not in (UNAVAILABLE, TIMED_OUT):
                raise
            last, code = failure.text, max(code, failure.code)
        waited = time.monotonic() - began
        if patience is not None and waited >= patience:
            progress.clear()
            raise _not_in_time(condition, patience, last, code)
        progress.show(f"waiting for {condition}: {waited:.0f} s, {last}")
        select.select([], [], [], LOOK)


def _not_in_time(condition: str, patience: float, last: str, code: int) -> Failure:
    if code == UNAVAILABLE:
        text = f"no broker could be asked within {patience:g} s: {last}"
        return Failure(code, text, hint="start one, or name others with -b")
    hint = "a longer --timeout, or qpid-ha list"
    if condition.startswith(("synced", "ready=")) and not last.endswith(PRIMARY_STATES):
        hint = "only the primary knows of that: name all brokers, -b host1,host2,host3"
    return Failure(code, f"{condition} did not come true within {patience:g} s: {last}", hint=hint)


def _away(found: dict[str, Any]) -> str:
    """Name the backups that a primary misses."""
    if found["state"] not in PRIMARY_STATES:
        return ""
    away = [
        f"{member['address']} is {member['state']}"
        for member in found.get("members", [])
        if member["state"] not in PRIMARY_STATES and not _is_ready(member)
    ]
    return "".join(f"{text}, " for text in away)


def _condition(text: str) -> Any:
    name, _, value = text.partition("=")
    if name == "state" and value in STATES:
        return lambda found: found["state"] == value
    if text == "role=primary":
        return lambda found: found["state"] in PRIMARY_STATES
    if name == "ready" and value.isdigit():
        return lambda found: (
            found["state"] in PRIMARY_STATES and _ready_backups(found) >= int(value)
        )
    if text == "synced":
        return lambda found: (
            found["state"] == "active"
            and _ready_backups(found) >= len(found.get("members", [])) - 1
            and _has_no_pending(found)
        )
    hint = f"state=STATE with one of {', '.join(STATES)}; role=primary; ready=N; synced"
    raise Failure(USAGE, f"{text!r} is not a condition", hint=hint)


def _ready_backups(found: dict[str, Any]) -> int:
    """Count the backups that are connected to the primary, ready, and in the in-sync set."""
    return sum(_is_ready(member) for member in found.get("members", []))


def _is_ready(member: dict[str, Any]) -> bool:
    return bool(member.get("connected") and member.get("in_sync")) and member["state"] == "ready"


def _has_no_pending(found: dict[str, Any]) -> bool:
    return not found.get("held")


def _methods(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="explain this method; default: list all")] = "",
) -> None:
    """List the management methods of a broker, or explain one: its parameters, its answer, and the
    access, AMQP operations and HTTP paths that belong to it.

    Programs call methods over the admin socket, $management and /management.

    Example: qpid-ha methods purge_queue -b node1
    """
    options = settings_of(context)
    found = ask(options, "help", {"method": name} if name else {})
    if name and options.as_table:
        for method in found:
            _print_method(method)
    else:
        print_list(options, METHODS, found)


def _print_method(method: dict[str, Any]) -> None:
    print(f"{method['name']}: {method['help']}")
    facts = {
        "effect": method["effect"],
        "access": method["access"],
        "answer": method["answers"].replace("`", ""),
        "AMQP operations": ", ".join(method["operations"]),
        "paths": ", ".join(method["routes"]),
    }
    for fact, value in facts.items():
        if value:
            print(f"  {fact + ':':<17}{value}")
    if method["parameters"]:
        print()
        heads = ("name", "type", "required", "help")
        print_table(
            ["PARAMETER", *(head.upper() for head in heads[1:])],
            [[each[head] for head in heads] for each in method["parameters"]],
        )
