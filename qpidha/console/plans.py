"""Plans: what a change would do, said without doing it.

Made from what the broker says at that moment, so it may be otherwise when the change is made. Where
`qpid-ha` prints a plan it is the same one. What can be seen to be refused is refused here as well.
Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from qpidha.client.handover import (
    candidates,
    loss_of,
    named,
    only_here,
    plan_line,
    plan_rows,
    primary_of,
    unfit,
)
from qpidha.console.changes import ADMINISTRATOR, Change
from qpidha.model.broker_states import PRIMARY_STATES, SERVING_STATES
from qpidha.model.errors import (
    InvalidArgument,
    NotFound,
    NotServing,
    PreconditionFailed,
    RefusedRequest,
)

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Asks the broker for what it says; raises as `Watched.ask` does."""
Params = dict[str, Any]
Plan = dict[str, Any]


async def planned(change: Change, params: Params, ask: Ask) -> Plan:
    """Return the plan of a change: `plan`, lines of text, and what else belongs to it. Raises
    RefusedRequest for what would be refused.
    """
    status = await ask("status", {})
    if change.scope < ADMINISTRATOR and status.get("state") not in SERVING_STATES:
        primary = (status.get("primary") or {}).get("address")
        raise NotServing(
            f"{status['name']} changes nothing itself",
            reason=f"it is {status['state']}",
            hint=f"ask the primary{f' at {primary}' if primary else ''}",
        )
    if change.method in ABOUT_BROKERS:
        return await ABOUT_BROKERS[change.method](params, ask, status)
    return {"plan": await ABOUT_OBJECTS[change.method](params, ask)}


# -- queues, exchanges, bindings -------------------------------------------------------------------


async def _declare_queue(params: Params, ask: Ask) -> list[str]:
    return await _declared("queue", params, ask)


async def _declare_exchange(params: Params, ask: Ask) -> list[str]:
    return await _declared("exchange", params, ask)


async def _declared(kind: str, params: Params, ask: Ask) -> list[str]:
    name = params["name"]
    if await _found(kind, name, ask) is None:
        return [f"the {kind} {name} would be created"]
    return [f"the {kind} {name} is there: nothing would be changed, if it is as asked for"]


async def _delete_queue(params: Params, ask: Ask) -> list[str]:
    queue = await _existing("queue", params["name"], ask)
    messages, consumers = queue["messages"], queue["consumers"]
    if params.get("if_empty") and messages:
        raise PreconditionFailed(f"the queue {queue['name']} has {messages:,} messages")
    if params.get("if_unused") and consumers:
        raise PreconditionFailed(f"the queue {queue['name']} has {consumers:,} consumers")
    return [
        f"the queue {queue['name']} would be deleted, "
        f"with {messages:,} messages, {consumers:,} consumers and {queue['bindings']:,} bindings"
    ]


async def _delete_exchange(params: Params, ask: Ask) -> list[str]:
    exchange = await _existing("exchange", params["name"], ask)
    bindings = exchange["bindings"]
    if params.get("if_unused") and bindings:
        raise PreconditionFailed(f"the exchange {exchange['name']} has {bindings:,} bindings")
    return [f"the exchange {exchange['name']} would be deleted, with {bindings:,} bindings"]


async def _purge_queue(params: Params, ask: Ask) -> list[str]:
    queue = await _existing("queue", params["name"], ask)
    return [f"{_available(queue)} of the queue {queue['name']} would be removed"]


async def _move_messages(params: Params, ask: Ask) -> list[str]:
    queue = await _existing("queue", params["name"], ask)
    target = await _existing("queue", params["target"], ask)
    count = params.get("count", 0)
    return [
        f"{_available(queue, count)} of the queue {queue['name']} would be moved to the queue "
        f"{target['name']}, which has {target['messages']:,}"
    ]


async def _requeue_messages(params: Params, ask: Ask) -> list[str]:
    queue = await _existing("queue", params["name"], ask)
    origin = params.get("origin")
    which = f"those that died on {origin}" if origin else "those that say on which queue they died"
    text = f"{_available(queue, params.get('count', 0))} of the queue {queue['name']} would be"
    return [f"{text} looked at, and {which} sent back there"]


def _available(queue: dict[str, Any], count: int = 0) -> str:
    available = queue["messages"] - queue["acquired"]
    return f"{min(count, available) if count else available:,} of {queue['messages']:,} messages"


async def _bind(params: Params, ask: Ask) -> list[str]:
    text, is_there = await _binding(params, ask)
    done = "is there: it would get the arguments that are given" if is_there else "would be made"
    return [f"{text} {done}"]


async def _unbind(params: Params, ask: Ask) -> list[str]:
    text, is_there = await _binding(params, ask)
    if not is_there:
        raise NotFound(f"there is no {text.removeprefix('the ')}", hint="list_bindings shows all")
    return [f"{text} would be removed"]


async def _binding(params: Params, ask: Ask) -> tuple[str, bool]:
    queue, other = params.get("queue", ""), params.get("destination_exchange", "")
    if bool(queue) == bool(other):
        text = "a binding leads to a queue or to an exchange"
        raise InvalidArgument(text, hint="give queue, or destination_exchange")
    await _existing("exchange", params["exchange"], ask)
    await _existing("exchange" if other else "queue", other or queue, ask)
    key = params.get("key", "")
    wanted = {"exchange": params["exchange"], "queue": queue, "key": key}
    rows = await ask("list_bindings", {**wanted, "destination_exchange": other})
    is_there = any(row["key"] == key and row["queue"] == queue for row in rows)
    end = f"the exchange {other}" if other else f"the queue {queue}"
    text = f"the binding from the exchange {params['exchange']} to {end} with the key {key!r}"
    return text, is_there


async def _found(kind: str, name: str, ask: Ask) -> dict[str, Any] | None:
    rows = await ask(f"list_{kind}s", {"name": name}) if name else []
    return next((row for row in rows if row["name"] == name), None)


async def _existing(kind: str, name: str, ask: Ask) -> dict[str, Any]:
    found = await _found(kind, name, ask)
    if found is None:
        raise NotFound(f"there is no {kind} {name}", hint=f"list_{kind}s shows what there is")
    return found


# -- policies --------------------------------------------------------------------------------------


def _set(kind: str) -> Callable[[Params, Ask], Awaitable[list[str]]]:
    async def plan(params: Params, ask: Ask) -> list[str]:
        found = await _policy(kind, params["name"], ask)
        text = f"the {kind} {params['name']}"
        if found is None:
            return [f"{text} would be set"]
        return [f"{text} would be set in place of {_shown(found)}"]

    return plan


def _changed(kind: str) -> Callable[[Params, Ask], Awaitable[list[str]]]:
    async def plan(params: Params, ask: Ask) -> list[str]:
        found = await _existing_policy(kind, params["name"], ask)
        definition = params.get("definition", {})
        lines = [
            f"{key} would be taken away" if value is None else f"{key} would be {value}"
            for key, value in definition.items()
        ]
        seconds = params.get("seconds")
        for_a_time = f" for {seconds:,} s, by another one above it" if seconds else ""
        return [f"the {kind} {_shown(found)} would be changed{for_a_time}", *lines]

    return plan


def _cleared(kind: str) -> Callable[[Params, Ask], Awaitable[list[str]]]:
    async def plan(params: Params, ask: Ask) -> list[str]:
        found = await _existing_policy(kind, params["name"], ask)
        return [f"the {kind} {_shown(found)} would be taken away"]

    return plan


def _shown(policy: dict[str, Any]) -> str:
    return (
        f"{policy['name']} (pattern {policy['pattern']}, in effect on {policy['in_effect_on']:,})"
    )


async def _policy(kind: str, name: str, ask: Ask) -> dict[str, Any] | None:
    method = "list_operator_policies" if kind == "operator policy" else "list_policies"
    return next((row for row in await ask(method, {}) if row["name"] == name), None)


async def _existing_policy(kind: str, name: str, ask: Ask) -> dict[str, Any]:
    found = await _policy(kind, name, ask)
    if found is None:
        raise NotFound(f"there is no {kind} {name}", hint="list_policies shows what there is")
    return found


# -- brokers ---------------------------------------------------------------------------------------

MANAGED = "where a cluster manager runs the cluster it decides who is primary: tell that one"


async def _switchover(params: Params, ask: Ask, status: dict[str, Any]) -> Plan:
    statuses = [
        (row["address"], {**row, "in_sync": status.get("in_sync")}) for row in status["members"]
    ]
    primary = primary_of(statuses)
    fit = candidates(statuses, primary)
    target = params.get("target", "")
    if target:
        one = next((one for one in statuses if target in (one[0], one[1]["system_id"])), None)
        if one is None:
            raise NotFound(f"the cluster has no broker {target}", hint="members lists them")
        why = unfit(one, statuses, primary)
        if why:
            raise RefusedRequest(f"{named(one)} cannot take over: it {why}")
        fit = [one]
    line = plan_line(primary, fit[0] if fit else None)
    return {
        "plan": [line, *_staying(status), MANAGED],
        "primary": primary and primary[0],
        "target": fit[0][0] if fit else None,
        "brokers": plan_rows(statuses, primary),
    }


async def _promote(params: Params, ask: Ask, status: dict[str, Any]) -> Plan:
    if status["state"] in PRIMARY_STATES:
        return {"plan": [f"{status['name']} is the primary: nothing would be changed"]}
    forget = {"forget": params["forget"]} if params.get("forget") else {}
    found = await ask("recover", forget)
    address = status["address"]
    best = found.get("recommended")
    lines = [f"{status['name']} would be promoted, if the rules of promotion allow it"]
    if best == address:
        lines.append("would be lost: nothing durable that was acknowledged")
    else:
        lines.append(f"recommended: {best or 'none'}: {found.get('reason') or ''}".rstrip(": "))
        lines.append(f"would be lost: {loss_of(found, address)}")
    return {"plan": [*lines, MANAGED], "comparison": found}


async def _demote(params: Params, ask: Ask, status: dict[str, Any]) -> Plan:
    if status["state"] not in PRIMARY_STATES:
        text = f"{status['name']} is {status['state']}, and was no primary: nothing is changed"
        return {"plan": [text]}
    text = f"{status['name']} would step down from epoch {status['epoch']}, and go on as a backup"
    return {"plan": [text, *_staying(status), MANAGED]}


def _staying(status: dict[str, Any]) -> list[str]:
    """Say what the next primary will not have, if the broker that is asked is the primary."""
    stays = only_here(status) if status["state"] in PRIMARY_STATES else ""
    return [f"stays behind: {stays}"] if stays else []


async def _recover(params: Params, ask: Ask, status: dict[str, Any]) -> Plan:
    return {"plan": ["all brokers would be asked what they have; nothing would be changed"]}


async def _close_connection(params: Params, ask: Ask, status: dict[str, Any]) -> Plan:
    number = params.get("id", 0)
    rows = await ask("list_connections", {"name": str(number)})
    if not rows:
        text = f"there is no connection {number}"
        raise NotFound(text, hint="list_connections shows what there is")
    (found,) = rows
    if found["backup"]:
        raise RefusedRequest(f"connection {number} is with another broker")
    who = f"{found['user'] or 'nobody'} at {found['peer']}"
    return {"plan": [f"connection {number} of {who} would be closed"]}


async def _reload(params: Params, ask: Ask, status: dict[str, Any]) -> Plan:
    what = "users, access control, certificates and log options"
    return {"plan": [f"{status['name']} would read its {what} again"]}


ABOUT_OBJECTS: dict[str, Callable[[Params, Ask], Awaitable[list[str]]]] = {
    "declare_queue": _declare_queue,
    "delete_queue": _delete_queue,
    "purge_queue": _purge_queue,
    "move_messages": _move_messages,
    "requeue_messages": _requeue_messages,
    "declare_exchange": _declare_exchange,
    "delete_exchange": _delete_exchange,
    "bind": _bind,
    "unbind": _unbind,
    "set_policy": _set("policy"),
    "patch_policy": _changed("policy"),
    "override_policy": _changed("policy"),
    "clear_policy": _cleared("policy"),
    "set_operator_policy": _set("operator policy"),
    "clear_operator_policy": _cleared("operator policy"),
}
"""Methods about what is replicated -> what says their plan."""
ABOUT_BROKERS: dict[str, Callable[[Params, Ask, dict[str, Any]], Awaitable[Plan]]] = {
    "promote": _promote,
    "demote": _demote,
    "recover": _recover,
    "switchover": _switchover,
    "close_connection": _close_connection,
    "reload": _reload,
}
"""Methods about brokers and connections -> what makes their plan, from the status report too."""
