"""`qpid-ha policy` and `qpid-ha operator-policy`: settings for the queues and exchanges whose names
match.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from qpidha.cli.app import add_group, settings_of
from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import ask, ask_primary
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import Listing, print_json, print_list, print_table, talk
from qpidha.model.duration import SECOND, parse_duration
from qpidha.model.exit_codes import USAGE

POLICIES = Listing(
    "policies",
    ("name", "pattern", "apply_to", "priority", "merge", "definition", "matches", "warning"),
    wide=("in_effect_on",),
    cells={
        "definition": lambda row: json.dumps(row["definition"]),
        "warning": lambda row: _remark(row),
    },
    heads={"apply_to": "APPLY-TO", "warning": "REMARKS"},
)
EXPLAIN_HEADS = ("POLICY", "PRIORITY", "IN EFFECT", "REASON")
SETTING_HEADS = ("SETTING", "VALUE", "FROM", "OTHERS")

Name = Annotated[str, typer.Argument(help="name of the policy")]
Pattern = Annotated[str, typer.Argument(help="regular expression, looked for anywhere in a name")]
Definition = Annotated[
    list[str],
    typer.Argument(metavar="KEY=VALUE", help="what it sets; or all of it as JSON, in one word"),
]
Priority = Annotated[int, typer.Option(help="of several that match the highest counts")]
ApplyTo = Annotated[
    str,
    typer.Option(
        help="all, queues, exchanges, classic_queues, quorum_queues, replicated_queues, lvq, "
        "priority_queues"
    ),
]
Merge = Annotated[bool, typer.Option("--merge", help="a layer: it counts beside other policies")]


def add(app: typer.Typer) -> None:
    """Put the commands into the tree."""
    add_group(
        app,
        "policy",
        "Settings for the queues and exchanges whose names match a pattern.",
        {
            "set": _set,
            "list": _list,
            "clear": _clear,
            "explain": _explain,
            "patch": _patch,
            "drop-keys": _drop_keys,
            "override": _override,
        },
    )
    add_group(
        app,
        "operator-policy",
        "Settings that come before what queues, exchanges and policies ask for.",
        {"set": _set_operator, "list": _list_operator, "clear": _clear_operator},
    )


def _set(
    context: typer.Context,
    name: Name,
    pattern: Pattern,
    definition: Definition,
    priority: Priority = 0,
    apply_to: ApplyTo = "all",
    merge: Merge = False,
) -> None:
    """Set a policy, in place of the one that has its name; all follow it when this returns.

    Each key is for queues or for exchanges, and counts for those.

    Example: qpid-ha policy set limit "^orders" max-length=1000 --priority 5
    """
    params = _asked_for(name, pattern, definition, priority, apply_to, merge)
    _change(context, "set_policy", params, f"policy {name} is set")


def _list(context: typer.Context) -> None:
    """List the policies, the one that counts most first.

    MATCHES counts the queues and exchanges whose name and kind it is for. REMARKS says
    which policies come before it, or have its priority.

    Example: qpid-ha policy list
    """
    _print_list(settings_of(context), "list_policies")


def _clear(context: typer.Context, name: Name) -> None:
    """Take a policy away; who followed it follows the next one that matches, or none.

    Example: qpid-ha policy clear limit
    """
    _change(context, "clear_policy", {"name": name}, f"policy {name} is cleared")


def _explain(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="name of a queue, or with --exchange of an exchange")],
    exchange: Annotated[
        bool, typer.Option("--exchange", help="explain an exchange, not a queue")
    ] = False,
) -> None:
    """Say of every policy why it counts for a queue or does not, and what comes of them all.

    Example: qpid-ha policy explain orders
    """
    options = settings_of(context)
    found = ask(options, "explain_policies", {"exchange" if exchange else "queue": name})
    if options.as_json:
        print_json({"schema_version": 1, **found})
        return
    print_table(
        EXPLAIN_HEADS,
        [
            [
                f"{row['policy']} (operator)" if row["operator"] else row["policy"],
                row["priority"],
                row["in_effect"],
                row["reason"],
            ]
            for row in found["policies"]
        ],
    )
    print_table(
        SETTING_HEADS,
        [
            [
                row["name"],
                row["value"],
                row["from"],
                ", ".join(f"{other['value']} ({other['from']})" for other in row["others"]),
            ]
            for row in found["settings"]
        ],
    )
    if found.get("waiting"):
        talk(options, f"the replicate level is not changed yet: {found['waiting']}")


def _patch(context: typer.Context, name: Name, definition: Definition) -> None:
    """Change some keys of a policy; null drops one.

    Example: qpid-ha policy patch limit max-length=2000 overflow=null
    """
    params = {"name": name, "definition": _read(definition)}
    _change(context, "patch_policy", params, f"policy {name} is changed")


def _drop_keys(
    context: typer.Context, name: Name, keys: Annotated[list[str], typer.Argument(help="keys")]
) -> None:
    """Drop keys of a policy.

    Example: qpid-ha policy drop-keys limit overflow
    """
    params = {"name": name, "definition": dict.fromkeys(keys)}
    _change(context, "patch_policy", params, f"policy {name} is changed")


def _override(
    context: typer.Context,
    name: Name,
    definition: Definition,
    duration: Annotated[
        str, typer.Option("--for", metavar="TIME", help="when it ends by itself, such as 2h")
    ],
) -> None:
    """Have another definition count in place of a policy's for a time: a policy override.NAME.

    It has the keys of the policy with these in addition, and 100 more priority. The primary clears
    it when the time is over, also if another broker is the primary then.

    Example: qpid-ha policy override limit max-length=5000 --for 2h
    """
    try:
        seconds = parse_duration(duration) // SECOND
    except ValueError as error:
        raise Failure(
            USAGE, f"--for {duration!r}: {error}", hint="such as 30s, 10m or 2h"
        ) from None
    if seconds < 1:
        raise Failure(USAGE, f"--for {duration!r} is too short", hint="at least 1s")
    params = {"name": name, "definition": _read(definition), "seconds": seconds}
    _change(context, "override_policy", params, f"policy {name} is overridden for {duration}")


def _set_operator(
    context: typer.Context,
    name: Name,
    pattern: Pattern,
    definition: Definition,
    priority: Priority = 0,
    apply_to: ApplyTo = "all",
    merge: Merge = False,
) -> None:
    """Set an operator policy; all follow it when this returns. For administrators.

    Of limits the smallest counts, whoever sets it. All else it decides before arguments and
    policies.

    Example: qpid-ha operator-policy set cap ".*" max-length-bytes=1000000
    """
    params = _asked_for(name, pattern, definition, priority, apply_to, merge)
    _change(context, "set_operator_policy", params, f"operator policy {name} is set")


def _list_operator(context: typer.Context) -> None:
    """List the operator policies, the one that counts most first.

    Example: qpid-ha operator-policy list
    """
    _print_list(settings_of(context), "list_operator_policies")


def _clear_operator(context: typer.Context, name: Name) -> None:
    """Take an operator policy away. For administrators.

    Example: qpid-ha operator-policy clear cap
    """
    done = f"operator policy {name} is cleared"
    _change(context, "clear_operator_policy", {"name": name}, done)


def _asked_for(
    name: str, pattern: str, definition: list[str], priority: int, apply_to: str, merge: bool
) -> dict[str, Any]:
    return {
        "name": name,
        "pattern": pattern,
        "definition": _read(definition),
        "priority": priority,
        "apply_to": apply_to,
        "merge": merge,
    }


def _read(words: list[str]) -> dict[str, Any]:
    """Read a definition: words KEY=VALUE, or one of JSON. A key that is there twice is refused, as
    it is not clear what is meant.
    """
    try:
        if len(words) == 1 and words[0].lstrip().startswith("{"):
            found = json.loads(words[0], object_pairs_hook=_once)
        else:
            found = _once([_pair(word) for word in words])
    except ValueError as error:
        raise Failure(
            USAGE, f"the definition cannot be read: {error}", hint="max-length=1000, or JSON"
        ) from None
    assert isinstance(found, dict)
    return found


def _pair(word: str) -> tuple[str, Any]:
    key, equals, value = word.partition("=")
    if not key or not equals:
        raise ValueError(f"{word!r} is not KEY=VALUE")
    if value.removeprefix("-").isdecimal() and value.isascii():
        return key, int(value)
    return key, {"true": True, "false": False, "null": None}.get(value, value)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice} is there twice")
    return found


def _change(context: typer.Context, method: str, params: dict[str, Any], done: str) -> None:
    options = settings_of(context)
    result = ask_primary(options, method, params)
    if options.as_json:
        print_json({"schema_version": 1, **result})
    elif options.verbose:
        talk(options, done)


def _print_list(options: Options, method: str) -> None:
    rows = ask(options, method)
    print_list(options, POLICIES, rows)
    if not rows and options.as_table:
        talk(options, "no policies")


def _remark(row: Mapping[str, Any]) -> str:
    remarks = [f"behind {', '.join(row['shadowed_by'])}"] if row["shadowed_by"] else []
    return "; ".join([*remarks, *([row["warning"]] if row["warning"] else [])])
