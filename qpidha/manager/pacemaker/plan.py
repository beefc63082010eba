"""The plan for Pacemaker: which pcs commands make a cluster of brokers out of a bare Pacemaker
cluster.

Two styles. `promotable`: one promotable clone, whose promoted instance is the primary; the virtual
addresses follow it. `two-primitives`: rgmanager's shape, a clone `qpidd` of plain brokers and one
`qpidd-primary` that promotes the broker beside it. Pure: it runs nothing. Knows how pcs is spoken
to, not what the cluster has already; each step says how that is seen. Source: Clusters from
Scratch, "promotable clones"; Qpid's cluster.conf example.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, field

from qpidha.manager.vip.state import host_interface
from qpidha.model.duration import SECOND, parse_duration
from qpidha.model.errors import InvalidArgument

PROMOTABLE, TWO_PRIMITIVES = "promotable", "two-primitives"
STYLES = (PROMOTABLE, TWO_PRIMITIVES)
BROKER, PRIMARY, VIP = "broker", "qpidd-primary", "vip"
"""What the resources are called."""
PLAIN_BROKER = "qpidd"
"""What the clone is called in the two-primitives style."""
PRIMARY_GROUP = "primary-service"
READY = "qpid-ready"
"""The node attribute that stands for a promotion score in the two-primitives style."""
SHARED = ("config", "admin_socket", "rundir", "answer")
"""Parameters that the agents of both primitives have."""
OUR_VIP, IPADDR2 = "ocf:qpidha:vip", "ocf:heartbeat:IPaddr2"
MONITOR_TIMEOUT = 5
"""Seconds for a monitor, at least; ours answers within one, and a busy machine gets some more."""
MONITOR_RESERVE = 4
"""Seconds that a monitor needs beside the broker's answer: it deletes the score of one that hangs
before it says so.
"""
CLUSTER_DELAY = 10
"""Seconds for an answer from another node, beside what the action takes. With Pacemaker's 60 a
coordinator that dies together with the primary stalls the next one for a minute.
"""
ADDRESS_MONITOR = 2
"""Seconds between looks at an address, at most: nobody pushes the loss of a network."""
FENCING_DELAY = "priority-fencing-delay"
"""Cluster property: how long the node with less priority waits before it fences the other one of
two.
"""
FAILURE_TIMEOUT = 10
"""Seconds after which a node where a broker failed is given another chance."""
RULES_IN_ONE_WORD = (0, 12)
"""Version of pcs from which a rule is one word; those before take several, and some of them nothing
else.
"""
LONGEST_INTERFACE = 15
"""Characters of the name of a network interface. Source: IFNAMSIZ of Linux."""


@dataclass(frozen=True, slots=True)
class VirtualAddress:
    """An address that clients connect to."""

    address: str
    prefix: int
    interface: str = ""
    """Empty: the one whose network has the address."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What is wanted. Times are in seconds."""

    nodes: tuple[str, ...]
    others: tuple[str, ...] = ()
    """Nodes of the cluster on which no broker is to run."""
    vips: tuple[VirtualAddress, ...] = ()
    fence: tuple[tuple[str, ...], ...] = ()
    """For each fence device what follows `pcs stonith create`."""
    fencing: bool = True
    style: str = PROMOTABLE
    vip_agent: str = OUR_VIP
    monitor: int = 2
    dc_deadtime: int = 5
    recheck: int = 60
    fencing_delay: int = 5
    """For which the node of a backup waits before it fences that of the primary, where there are
    two nodes; 0 for none.
    """
    broker: dict[str, str] = field(default_factory=dict)
    """Parameters of the broker agent, beside its defaults."""
    vip: dict[str, str] = field(default_factory=dict)
    """Parameters of the agent of the virtual addresses."""
    pcs: tuple[int, ...] = RULES_IN_ONE_WORD
    """Version of the pcs that is to do it."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A primitive with all that the plan says of it."""

    name: str
    agent: str
    parameters: dict[str, str] = field(default_factory=dict)
    monitors: tuple[tuple[int, str], ...] = ()
    """(interval, role); role is empty for all."""
    timeout: int = MONITOR_TIMEOUT
    """Of each monitor."""
    meta: dict[str, str] = field(default_factory=dict)
    clone: str = ""
    """`clone`, `promotable` or empty; the meta attributes are the clone's then, and set by a call
    of their own.
    """

    def words(self) -> tuple[str, ...]:
        """Say it as every pcs takes it; where the meta attributes of a clone stand in this call
        depends on its version.
        """
        words = ["resource", "create", self.name, self.agent, *_pairs(self.parameters)]
        for interval, role in self.monitors:
            words += [
                "op",
                "monitor",
                f"interval={interval}s",
                *([f"role={role}"] if role else []),
                f"timeout={self.timeout}s",
            ]
        if self.clone:
            return (*words, self.clone)
        return (*words, *(["meta", *_pairs(self.meta)] if self.meta else []))


@dataclass(frozen=True, slots=True)
class Step:
    """One call of pcs."""

    what: str
    words: tuple[str, ...]
    seen: str = ""
    """Where in the CIB one sees that it was done."""
    resource: Resource | None = None
    """What it creates, to be compared with what is there."""
    properties: dict[str, str] = field(default_factory=dict)
    """The cluster properties that it sets."""


def steps(options: PlanOptions) -> list[Step]:
    """Give the calls of pcs in their order. Raises InvalidArgument for what cannot work."""
    _check(options)
    two = options.style == TWO_PRIMITIVES
    return [
        _properties(options),
        *map(_device, options.fence),
        *(_two_primitives(options) if two else _promotable(options)),
    ]


def advice(options: PlanOptions) -> list[str]:
    """Say what two nodes need beside the plan, one sentence each; nothing for more of them."""
    if len(options.nodes) != 2:
        return []
    needed = [
        (
            "two nodes have no majority when one is gone: ha-recorder=manager in the "
            "brokers' configuration, on both nodes alike"
        )
    ]
    if not options.fencing:
        needed.append(
            "without fencing a primary that loses the other node accepts nothing until it is back"
        )
    return needed


def script(options: PlanOptions, *, file: str = "qpidha-cib.xml") -> str:
    """Write the whole plan as a shell script: the calls change a copy of the configuration, which
    is put in place at once.
    """
    lines = ["#!/bin/sh", "set -e", *(f"# {text}" for text in advice(options))]
    lines += [
        (
            "# the configuration as it is, twice: one is changed, and the difference is put "
            "in place at the end"
        )
    ]
    lines += [shlex.join(("pcs", *words)) for words in fetch(file)]
    lines.append(f"cp {shlex.quote(file)} {shlex.quote(file)}.before")
    for step in steps(options):
        lines += [f"# {step.what}", shlex.join(("pcs", "-f", file, *step.words))]
    lines += ["# all at once", *(shlex.join(("pcs", *words)) for words in push(file))]
    return "\n".join(lines) + "\n"


def fetch(file: str) -> list[tuple[str, ...]]:
    """Calls of pcs that write the configuration into a file."""
    return [("cluster", "cib", file)]


def push(file: str) -> list[tuple[str, ...]]:
    """Calls of pcs that put a changed file in place; what others changed meanwhile stays."""
    return [("cluster", "cib-push", file, f"diff-against={file}.before")]


def virtual_address(text: str) -> VirtualAddress:
    """Read ADDRESS/PREFIX[@INTERFACE]; without a prefix the address stands alone."""
    where, at, interface = text.partition("@")
    try:
        found = host_interface(where)
        if at and not (
            0 < len(interface) <= LONGEST_INTERFACE
            and interface.isprintable()
            and not set(interface) & set(" /:@")
        ):
            raise ValueError(f"{interface!r} is not the name of a network interface")
    except ValueError as error:
        raise InvalidArgument(
            f"virtual address {text!r}: {error}", hint="--vip 10.0.0.100/24, or 10.0.0.100/24@eth0"
        ) from error
    return VirtualAddress(str(found.ip), found.network.prefixlen, interface)


def fence_hosts(words: tuple[str, ...]) -> set[str] | None:
    """Name the nodes that a fence device says it can switch off; None if it finds out by itself."""
    values = dict(word.split("=", 1) for word in words if "=" in word)
    hosts = values.get("pcmk_host_list", "").replace(",", " ").split()
    mapped = [
        pair.partition(":")[0] for pair in values.get("pcmk_host_map", "").replace(";", " ").split()
    ]
    return {*hosts, *mapped} or None


def seconds(text: str) -> float:
    """Read one of Pacemaker's durations; 0 if it is none. A bare number is seconds."""
    try:
        return parse_duration(text) / SECOND
    except ValueError:
        return 0.0


def _check(options: PlanOptions) -> None:
    if len(set(options.nodes)) != len(options.nodes) or len(options.nodes) < 2:
        raise InvalidArgument(
            "a cluster needs two different nodes at least",
            hint="--nodes a,b,c with the names that Pacemaker knows",
        )
    if options.style not in STYLES:
        raise InvalidArgument(
            f"there is no style {options.style!r}", hint=f"one of {', '.join(STYLES)}"
        )
    addresses = [vip.address for vip in options.vips]
    for address in addresses:
        if addresses.count(address) > 1:
            raise InvalidArgument(
                f"the virtual address {address} is given twice",
                hint="--vip with a different address each time",
            )
    for words in options.fence:
        if len(words) < 2 or "=" in words[0] + words[1]:
            text = f"fence device {shlex.join(words)!r} is not NAME AGENT [PARAMETER=VALUE ...]"
            raise InvalidArgument(
                text,
                hint=(
                    "--fence 'ipmi-a fence_ipmilan ip=10.0.0.1 pcmk_host_list=a'; pcs stonith list"
                ),
            )
    hosts = [fence_hosts(words) for words in options.fence]
    reached = {host for known in hosts for host in known or ()}
    missing = [node for node in options.nodes if node not in reached]
    if options.fence and missing and None not in hosts:
        text = f"no fence device can switch off {', '.join(missing)}"
        raise InvalidArgument(
            text,
            hint=(
                "add it to a pcmk_host_list; a node that cannot be fenced stops the failover "
                "when it is lost"
            ),
        )


def _properties(options: PlanOptions) -> Step:
    values = {
        "no-quorum-policy": "stop",
        "stonith-enabled": "true" if options.fencing else "false",
        "dc-deadtime": f"{options.dc_deadtime}s",
        "cluster-recheck-interval": f"{options.recheck}s",
        "cluster-delay": f"{CLUSTER_DELAY}s",
        **({FENCING_DELAY: f"{options.fencing_delay}s"} if _may_fence_each_other(options) else {}),
    }
    return Step(
        "a minority stops its brokers; lost nodes are fenced",
        ("property", "set", *_pairs(values)),
        properties=values,
    )


def _may_fence_each_other(options: PlanOptions) -> bool:
    """Whether both nodes would be fenced when they are cut off from each other, but for a delay."""
    return (
        options.fencing
        and len(options.nodes) + len(options.others) == 2
        and options.fencing_delay > 0
    )


def _first_to_stay(options: PlanOptions) -> dict[str, str]:
    """The priority by which Pacemaker knows the node of the primary: a promoted instance counts one
    more.
    """
    return {"priority": "1"} if _may_fence_each_other(options) else {}


def monitor_timeout(answer: float) -> int:
    """Seconds for a monitor of a broker that may take `answer` seconds to answer."""
    return max(MONITOR_TIMEOUT, math.ceil(answer) + MONITOR_RESERVE)


def _patience(options: PlanOptions) -> int:
    return monitor_timeout(seconds(options.broker.get("answer", "1")))


def _device(words: tuple[str, ...]) -> Step:
    given = words[2:]
    end = next((at for at, word in enumerate(given) if "=" not in word), len(given))
    parameters = dict(word.split("=", 1) for word in given[:end])
    device = Resource(words[0], words[1], parameters)
    return Step(f"fence device {words[0]}", ("stonith", "create", *words), resource=device)


def _promotable(options: PlanOptions) -> list[Step]:
    meta = {"promoted-max": "1", "notify": "false", "interleave": "true"}
    monitors = ((options.monitor, "Promoted"), (options.monitor + 1, "Unpromoted"))
    meta |= {**_give_up(), **_first_to_stay(options)}
    broker = Resource(
        BROKER,
        "ocf:qpidha:broker",
        options.broker,
        monitors,
        _patience(options),
        meta,
        "promotable",
    )
    clone = f"{BROKER}-clone"
    made = [
        *_create_clone("a broker on every node", "one of them is promoted", broker),
        *_elsewhere(clone, options),
    ]
    for name, address in _named(options):
        made.append(
            _create(f"the virtual address {address.address}", _address(name, address, options))
        )
        made.append(
            Step(
                "it is where the primary is",
                ("constraint", "colocation", "add", name, "with", "Promoted", clone),
                f".//rsc_colocation[@rsc='{name}'][@with-rsc='{clone}']"
                "[@with-rsc-role='Promoted'][@score='INFINITY']",
            )
        )
        made.append(
            Step(
                "and not before the promotion",
                ("constraint", "order", "promote", clone, "then", "start", name),
                f".//rsc_order[@first='{clone}'][@then='{name}'][@first-action='promote']",
            )
        )
    return made


def _broker_and_primary(options: PlanOptions) -> tuple[Resource, Resource]:
    every = ((options.monitor, ""),)
    timeout = _patience(options)
    broker = Resource(
        PLAIN_BROKER,
        "ocf:qpidha:qpidd",
        options.broker,
        every,
        timeout,
        {"interleave": "true"},
        "clone",
    )
    shared = {name: value for name, value in options.broker.items() if name in SHARED}
    meta = {**_give_up(), "resource-stickiness": "0", **_first_to_stay(options)}
    return broker, Resource(PRIMARY, "ocf:qpidha:qpidd-primary", shared, every, timeout, meta)


def _two_primitives(options: PlanOptions) -> list[Step]:
    clone = f"{PLAIN_BROKER}-clone"
    broker, primary = _broker_and_primary(options)
    names = [name for name, _ in _named(options)]
    defined, missing = (
        (f"{word} {READY}",) if options.pcs >= RULES_IN_ONE_WORD else (word, READY)
        for word in ("defined", "not_defined")
    )
    return [
        *_create_clone(
            "a broker on every node", "what follows a broker follows the one of its node", broker
        ),
        *_elsewhere(clone, options),
        _create("what promotes one of them", primary),
        *(
            _create(f"the virtual address {address.address}", _address(name, address, options))
            for name, address in _named(options)
        ),
        Step(
            "a broker runs before it is promoted",
            ("constraint", "order", "start", clone, "then", "start", PRIMARY),
            f".//rsc_order[@first='{clone}'][@then='{PRIMARY}']",
        ),
        Step(
            "only a node with a broker can have the primary",
            ("constraint", "colocation", "add", PRIMARY, "with", clone),
            f".//rsc_colocation[@rsc='{PRIMARY}'][@with-rsc='{clone}'][@score='INFINITY']",
        ),
        Step(
            "the broker that has most comes first",
            ("constraint", "location", PRIMARY, "rule", f"score-attribute={READY}", *defined),
            f".//rsc_location[@rsc='{PRIMARY}']/rule[@score-attribute='{READY}']",
        ),
        Step(
            "and none is promoted that lacks something",
            ("constraint", "location", PRIMARY, "rule", "score=-INFINITY", *missing),
            f".//rsc_location[@rsc='{PRIMARY}']/rule[@score='-INFINITY']"
            f"/expression[@attribute='{READY}'][@operation='not_defined']",
        ),
        *(
            Step(
                f"{name} is where the primary is, and starts after those before it",
                ("resource", "group", "add", PRIMARY_GROUP, name),
                f".//group[@id='{PRIMARY_GROUP}']/primitive[@id='{name}']",
            )
            for name in [PRIMARY, *names]
        ),
    ]


def _named(options: PlanOptions) -> list[tuple[str, VirtualAddress]]:
    return [
        (VIP if at == 0 else f"{VIP}{at + 1}", address) for at, address in enumerate(options.vips)
    ]


def _address(name: str, address: VirtualAddress, options: PlanOptions) -> Resource:
    where = {"ip": address.address, "cidr_netmask": str(address.prefix)}
    nic = {"nic": address.interface} if address.interface else {}
    rundir = options.broker.get("rundir") if options.vip_agent == OUR_VIP else None
    watch = {"watch_socket": watch_socket(rundir)} if rundir else {}
    parameters = {**where, **nic, **watch, **options.vip}
    # Stickiness would pull the promotion back to the node whose primary has just failed; and a
    # start that failed would keep the address off a node for good.
    meta = {"resource-stickiness": "0", "failure-timeout": f"{FAILURE_TIMEOUT}s"}
    return Resource(
        name,
        options.vip_agent,
        parameters,
        ((min(options.monitor, ADDRESS_MONITOR), ""),),
        meta=meta,
    )


def watch_socket(rundir: str) -> str:
    """Where the watch of a broker listens, for the agent of the addresses."""
    return f"{rundir.rstrip('/')}/watch.sock"


def _elsewhere(clone: str, options: PlanOptions) -> list[Step]:
    return [
        Step(
            f"no broker on {node}",
            ("constraint", "location", clone, "avoids", node),
            f".//rsc_location[@rsc='{clone}'][@node='{node}'][@score='-INFINITY']",
        )
        for node in options.others
    ]


def _give_up() -> dict[str, str]:
    # Another broker is promoted at once, instead of after the failed one was started again.
    return {"migration-threshold": "1", "failure-timeout": f"{FAILURE_TIMEOUT}s"}


def _create_clone(what: str, about: str, resource: Resource) -> list[Step]:
    """Create it, and then say what the clone is like; is it there already, it is compared as a
    whole.
    """
    meta = ("resource", "meta", f"{resource.name}-clone", *_pairs(resource.meta))
    return [_create(what, resource), Step(about, meta, f".//primitive[@id='{resource.name}']")]


def _create(what: str, resource: Resource) -> Step:
    return Step(what, resource.words(), resource=resource)


def _pairs(values: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]
