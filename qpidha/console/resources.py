"""Resources: what the HTTP API shows of a broker, each made of one reading method.

Parameters of the query go to the method as they are named there, so what a broker takes and refuses
is said in one place: its table of methods (docs/management.md). A list of queues, exchanges or
connections has pages. Reading methods that are not here stand in `LEFT_OUT` with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from qpidha.model.errors import InvalidArgument

PAGE = 100
"""Objects of a page, unless another number is asked for."""
LONGEST_PAGE = 1000
PATIENCE = 5.0
"""Seconds for an answer: a list takes longer than a look."""


@dataclass(frozen=True, slots=True)
class Given:
    """A parameter of the query."""

    name: str
    help: str
    is_number: bool = False


MATCH = Given("match", "those whose name contains this")
PAGES = (
    Given("limit", f"objects of a page, {PAGE} unless given, {LONGEST_PAGE} at most", True),
    Given("after", "those behind this name: the last one of the page before"),
    Given("fields", "fields to show, with commas between; all without it"),
)


@dataclass(frozen=True, slots=True)
class Resource:
    """One path below /api/v1."""

    path: str
    method: str
    help: str
    given: tuple[Given, ...] = ()
    key: str = ""
    """What a list with pages is in the order of, and its objects are found by; empty without."""
    is_list: bool = False


RESOURCES = (
    Resource("status", "status", "Status report of the broker"),
    Resource("cluster/members", "members", "Brokers of its cluster, as it sees them", is_list=True),
    Resource("explain", "explain", "What it waits for, and what that keeps waiting"),
    Resource("statistics", "statistics", "Sums over all its queues and connections"),
    Resource("queues", "list_queues", "Queues, by name", (MATCH, *PAGES), "name", True),
    Resource("exchanges", "list_exchanges", "Exchanges, by name", (MATCH, *PAGES), "name", True),
    Resource(
        "connections",
        "list_connections",
        "AMQP connections, the oldest first",
        (MATCH, *PAGES),
        "id",
        True,
    ),
    Resource("sessions", "list_sessions", "Their sessions", (MATCH, *PAGES), "id", True),
    Resource(
        "subscriptions",
        "list_subscriptions",
        "Who consumes from which queue",
        (MATCH, *PAGES),
        "id",
        True,
    ),
    Resource(
        "bindings",
        "list_bindings",
        "Bindings",
        (
            Given("exchange", "those of this exchange"),
            Given("queue", "those of this queue"),
            Given("key", "those with this key"),
            Given("destination_exchange", "those to this exchange"),
        ),
        is_list=True,
    ),
    Resource("policies", "list_policies", "Policies, the one that counts most first", is_list=True),
    Resource("operator-policies", "list_operator_policies", "Operator policies", is_list=True),
    Resource(
        "policies-of",
        "explain_policies",
        "Which policies count for a queue or an exchange, and why",
        (Given("queue", "name of the queue"), Given("exchange", "or of the exchange")),
    ),
    Resource("links", "list_links", "Links to other brokers", (MATCH,), is_list=True),
    Resource("routes", "list_routes", "Routes over them", (MATCH,), is_list=True),
    Resource("replicas", "list_replicas", "Queues that are replicas", is_list=True),
    Resource("methods", "help", "Methods of the broker", is_list=True),
)
CLUSTER = (
    "epoch",
    "primary",
    "in_sync",
    "members",
    "expected",
    "leaving",
    "handing_over",
    "brokers_url",
    "public_url",
    "replicate",
    "strict",
    "majority",
)
"""Fields of the status report that are about the cluster."""
LEFT_OUT = {
    "ping": "/healthz says more",
    "query": "/api/v1/status has all of it",
    "events": "/api/v1/events and /api/v1/history have them",
    "peek_messages": "who may watch may not read messages",
    "log_level": "it is for who may set it, and the console may not",
    "acl": "who may watch need not know who may do what",
}


def params_of(resource: Resource, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of the method. Raises InvalidArgument for what it does not take."""
    known = {given.name: given for given in resource.given}
    found: dict[str, Any] = {}
    for name, text in query.items():
        if name not in known:
            offered = ", ".join([*known, "broker"])
            raise InvalidArgument(f"unknown parameter {name}", hint=f"parameters: {offered}")
        found[name] = text
        if known[name].is_number:
            # Python reads no number of thousands of digits.
            if not text.isdecimal() or len(text) > 9 or not 0 < int(text) <= LONGEST_PAGE:
                hint = f"a whole number from 1 to {LONGEST_PAGE}"
                raise InvalidArgument(f"{name}={text}", hint=hint)
            found[name] = int(text)
    if resource.key:
        found.setdefault("limit", PAGE)
        fields = str(found.get("fields", "")).replace(",", " ").split()
        if fields and resource.key not in fields:
            found["fields"] = " ".join((resource.key, *fields))
    return found


def next_page(resource: Resource, params: Mapping[str, Any], items: list[Any]) -> dict[str, Any]:
    """Return the parameters of the next page; empty if this is the last one."""
    if not resource.key or len(items) < params["limit"]:
        return {}
    return {**params, "after": str(items[-1][resource.key])}


def link_to(path: str, params: Mapping[str, Any], broker: str) -> str | None:
    """Return the link to a page; None without parameters."""
    if not params:
        return None
    return f"{path}?{urlencode({**params, 'broker': broker} if broker else params)}"
