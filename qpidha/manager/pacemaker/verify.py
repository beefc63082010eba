"""Verifying a Pacemaker cluster: finds what is configured in a way that loses time, or lets two
primaries be.

`look` collects what is to be seen on this node, `verify` judges it, and is pure. What other nodes'
files say cannot be seen here: run it on each. Source: pacemaker-remote and Clusters from Scratch on
fencing and quorum; docs/pacemaker.md for the timings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from qpidha.manager.broker_file import BrokerFile
from qpidha.manager.pacemaker.cib import NO, OURS, Cib, Primitive
from qpidha.manager.pacemaker.manager import PacemakerManager
from qpidha.manager.pacemaker.plan import (
    FENCING_DELAY,
    OUR_VIP,
    READY,
    fence_hosts,
    monitor_timeout,
    seconds,
    watch_socket,
)
from qpidha.manager.tool_runner import QUICK, ToolFailed, run
from qpidha.model.duration import SECOND

AGENTS_FOLDER = "/usr/lib/ocf/resource.d/qpidha"
UNITS = ("qpidhad", "qpidha", "qpidd", "qpidd-primary")
"""Units that would start a broker behind Pacemaker's back."""
SHORTEST_TOKEN = 1.0
"""Seconds; with less, a busy machine is taken for dead now and then."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: what, why that matters, and what to do next."""

    what: str
    why: str
    next: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What is to be seen on one node."""

    cib: Cib
    brokers: Primitive
    file: BrokerFile
    hosts: dict[str, str]
    """Node -> the address of ha-brokers-url that is its; empty where none is."""
    token: float
    """Seconds of corosync's token; 0 where it is not known."""
    units: tuple[str, ...]
    """Those of UNITS that are enabled."""
    has_agents: bool
    incompatible: tuple[str, ...] = ()
    """Brokers that say they record in-sync sets elsewhere than the broker of this node."""


def look(manager: PacemakerManager) -> Seen:
    """Collect what `verify` judges."""
    nodes = manager.cib.nodes()
    hosts = {
        node: next((one for one in manager.file.addresses if manager.is_at(one, node)), "")
        for node in nodes
    }
    units = tuple(
        unit
        for unit in UNITS
        if _said("systemctl", "is-enabled", unit).strip() in ("enabled", "enabled-runtime")
    )
    token = _said("corosync-cmapctl", "-g", "runtime.config.totem.token").rpartition("=")[2].strip()
    return Seen(
        manager.cib,
        manager.brokers,
        manager.file,
        hosts,
        int(token) / 1000 if token.isdigit() else 0.0,
        units,
        os.path.exists(os.path.join(AGENTS_FOLDER, manager.brokers.agent.rpartition(":")[2])),
        manager.incompatible(),
    )


def verify(seen: Seen) -> list[Finding]:
    """Judge what was seen; an empty list is good."""
    return [
        *_fencing(seen),
        *_cluster(seen),
        *_brokers(seen),
        *_addresses(seen),
        *_recorder(seen),
        *_settings(seen),
        *_machine(seen),
    ]


def _fencing(seen: Seen) -> Iterator[Finding]:
    is_off = seen.cib.property("stonith-enabled").lower() in NO
    harm = (
        "no device can fence {} once fencing is on"
        if is_off
        else "Pacemaker waits for ever when {} is lost"
    )
    if is_off:
        why = "a lost node may go on as primary, and its address stays"
        yield Finding(
            "fencing is off",
            why,
            "pcs stonith create ..., then pcs property set stonith-enabled=true",
        )
    devices = [one for one in seen.cib.primitives.values() if one.agent.startswith("stonith:")]
    if not devices:
        yield Finding(
            "there is no fence device",
            harm.format("a node"),
            "pcs stonith create ...; pcs stonith list",
        )
        return
    reached: set[str] = set()
    for device in devices:
        if device.meta.get("target-role") == "Stopped":
            yield Finding(
                f"the fence device {device.name} is disabled",
                "it fences no node",
                f"pcs stonith enable {device.name}",
            )
            continue
        hosts = fence_hosts(tuple(f"{name}={value}" for name, value in device.parameters.items()))
        reached |= set(seen.cib.nodes()) if hosts is None else hosts
    for node in seen.cib.nodes():
        if node not in reached:
            yield Finding(
                f"no fence device for {node}",
                harm.format("it"),
                "add it to a device's pcmk_host_list",
            )
    yield from _duel(seen, devices, is_off)


def _duel(seen: Seen, devices: list[Primitive], is_off: bool) -> Iterator[Finding]:
    """Two nodes that are cut off from each other fence each other, unless one waits."""
    is_delayed = any(
        name in device.parameters
        for device in devices
        for name in ("pcmk_delay_base", "pcmk_delay_max")
    )
    decides = next(iter([*seen.cib.of_agent("qpidd-primary"), seen.brokers]))
    by_priority = seconds(seen.cib.property(FENCING_DELAY)) > 0 and decides.meta.get(
        "priority", "0"
    ) not in ("", "0")
    if not is_off and len(seen.cib.nodes()) == 2 and not is_delayed and not by_priority:
        where = decides.name if decides is not seen.brokers else decides.around
        hint = f"pcs property set {FENCING_DELAY}=5s, and pcs resource meta {where} priority=1"
        yield Finding(
            "neither of the two nodes waits before it fences",
            "cut off from each other, they may fence each other",
            hint,
        )


def _cluster(seen: Seen) -> Iterator[Finding]:
    policy = seen.cib.property("no-quorum-policy") or "stop"
    if policy not in ("stop", "suicide", "demote"):
        yield Finding(
            f"no-quorum-policy is {policy}",
            "a minority would keep its primary",
            "pcs property set no-quorum-policy=stop",
        )
    if seen.cib.property("maintenance-mode") == "true":
        yield Finding(
            "maintenance mode is on",
            "Pacemaker neither monitors nor promotes a broker",
            "qpid-ha pacemaker maintenance off",
        )
    if 0 < seen.token < SHORTEST_TOKEN:
        why = "a busy machine is taken for a failed one, and fenced"
        yield Finding(
            f"corosync's token is {seen.token:g} s",
            why,
            "token: 1000 or more in the totem section of corosync.conf",
        )


def _brokers(seen: Seen) -> Iterator[Finding]:
    brokers = seen.brokers
    answer = seconds(brokers.parameters.get("answer", "1"))
    primaries = seen.cib.of_agent("qpidd-primary")
    for resource in [brokers, *primaries]:
        monitors = [
            operation
            for operation in resource.operations
            if operation.name == "monitor" and operation.interval
        ]
        roles = ("Promoted", "Unpromoted") if resource.agent.endswith(":broker") else ("",)
        for role in roles:
            if not any(operation.role == role for operation in monitors):
                what = f"{resource.name} has no monitor{f' of role {role}' if role else ''}"
                interval = "3s" if role == "Unpromoted" else "2s"
                hint = (
                    f"pcs resource op add {resource.name} monitor "
                    f"{f'role={role} ' if role else ''}interval={interval} timeout=5s"
                )
                yield Finding(what, "a broker that hangs is never noticed", hint)
        for operation in monitors:
            if 0 < operation.timeout < monitor_timeout(answer):
                what = (
                    f"{resource.name}'s monitor has {operation.timeout:g} s, and waits "
                    f"{answer:g} s for the broker"
                )
                why = "it waits less than that, to delete the score of a broker that hangs"
                yield Finding(what, why, f"a timeout of {monitor_timeout(answer)} s or more")
    decides = primaries[0] if primaries else brokers
    if decides.meta.get("migration-threshold") != "1":
        why = (
            "a failed primary is started again before another is promoted, and may be "
            "promoted itself"
        )
        where = brokers.around if decides is brokers else decides.name
        yield Finding(
            f"migration-threshold of {decides.name} is not 1",
            why,
            f"pcs resource meta {where} migration-threshold=1",
        )
    rule = (
        f".//rsc_location[@rsc='{decides.name}']/rule[@score='-INFINITY']"
        f"/expression[@attribute='{READY}'][@operation='not_defined']"
    )
    if primaries and not seen.cib.has(rule):
        what, why = (
            f"{decides.name} may start beside a broker without {READY}",
            "one that lacks something, or all, may be promoted",
        )
        yield Finding(
            what,
            why,
            f"pcs constraint location {decides.name} rule score=-INFINITY not_defined {READY}",
        )
    if not primaries and brokers.meta.get("promoted-max", "1") != "1":
        yield Finding(
            "promoted-max is not 1",
            "there can be one primary only",
            f"pcs resource meta {brokers.around} promoted-max=1",
        )


def _addresses(seen: Seen) -> Iterator[Finding]:
    clone = seen.brokers.around or seen.brokers.name
    fallback = next(
        (
            one["value"]
            for one in seen.cib.all(".//rsc_defaults//nvpair[@name='resource-stickiness']")
        ),
        "0",
    )
    grouped = {one.around for one in seen.cib.of_agent("qpidd-primary")} - {""}
    rundir = seen.brokers.parameters.get("rundir", "/run/qpidha")
    for address in [*seen.cib.of_agent("vip"), *_ipaddrs(seen)]:
        name = address.name
        watch = address.parameters.get("watch_socket", watch_socket("/run/qpidha"))
        if address.agent == OUR_VIP and watch != watch_socket(rundir):
            why = "the watch beside the primary does not hold it, nor take it away"
            hint = f"pcs resource update {name} watch_socket={watch_socket(rundir)}"
            yield Finding(
                f"{name} looks for the watch at {watch}, the broker's rundir is {rundir}", why, hint
            )
        if address.meta.get("resource-stickiness", fallback) != "0":
            why = "it pulls the promotion back to the node that has just failed"
            yield Finding(
                f"{name} has a resource-stickiness",
                why,
                f"pcs resource meta {name} resource-stickiness=0",
            )
        if address.around and address.around in grouped:
            continue
        if not seen.cib.has(
            f".//rsc_colocation[@rsc='{name}'][@with-rsc='{clone}']"
            "[@with-rsc-role='Promoted'][@score='INFINITY']"
        ):
            hint = f"pcs constraint colocation add {name} with Promoted {clone}"
            yield Finding(
                f"{name} is not colocated with the primary",
                "clients would meet a backup behind it",
                hint,
            )
        if not seen.cib.has(
            f".//rsc_order[@first='{clone}'][@then='{name}'][@first-action='promote']"
        ):
            hint = f"pcs constraint order promote {clone} then start {name}"
            yield Finding(
                f"{name} does not wait for the promotion",
                "clients would meet a backup behind it",
                hint,
            )


def _ipaddrs(seen: Seen) -> list[Primitive]:
    """Find the addresses of IPaddr2 that have to do with the brokers; others' are not ours to
    judge.
    """
    kept = []
    for one in seen.cib.primitives.values():
        related = any(
            seen.cib.has(f".//{tag}'{one.name}']")
            for tag in ("rsc_colocation[@rsc=", "rsc_order[@then=")
        )
        if one.agent == "ocf:heartbeat:IPaddr2" and (
            related or one.name.startswith("vip") or one.around == "primary-service"
        ):
            kept.append(one)
    return kept


def _settings(seen: Seen) -> Iterator[Finding]:
    path = seen.file.path
    if seen.file.settings is None:
        why = "the agent cannot start the broker"
        yield Finding(
            f"{path} cannot be read here: {seen.file.problem}",
            why,
            "write it on every node, readable for the agent",
        )
        return
    heartbeat = seen.file.settings.link_heartbeat_interval / SECOND
    if not heartbeat:
        what, why = (
            "link-heartbeat-interval is 0, which is none",
            "a primary waits for ever for a backup that hangs or is cut off",
        )
        yield Finding(
            what,
            why,
            f"link-heartbeat-interval={seen.token or SHORTEST_TOKEN:g} or less in "
            f"{path}, and not 0",
        )
    if seen.token and heartbeat > seen.token:
        what = f"link-heartbeat-interval is {heartbeat:g} s, corosync's token {seen.token:g} s"
        why = "a primary waits longer for a failed backup than Pacemaker for a failed node"
        yield Finding(what, why, f"link-heartbeat-interval={seen.token:g} or less in {path}")
    hosts = {address.rpartition(":")[0].strip("[]") for address in seen.file.addresses}
    for one in seen.cib.primitives.values():
        if one.parameters.get("ip") in hosts:
            why = "brokers have to reach each other, and that address is the primary's"
            yield Finding(
                f"ha-brokers-url names the virtual address {one.parameters['ip']}",
                why,
                f"the nodes' own addresses in {path}",
            )
    banned = {
        one.get("node", "")
        for one in seen.cib.all(
            f".//rsc_location[@rsc='{seen.brokers.around}'][@score='-INFINITY']"
        )
    }
    for node, address in seen.hosts.items():
        if not address and node not in banned:
            why = "its broker is no member of the cluster, or cannot be recognised by its address"
            yield Finding(
                f"ha-brokers-url has no address of {node}",
                why,
                f"add it in {path}, on every node alike",
            )


def _recorder(seen: Seen) -> Iterator[Finding]:
    """What two brokers need, and that all record at one place."""
    settings, path = seen.file.settings, seen.file.path
    if (
        settings is not None
        and len(settings.ha_brokers_url) == 2
        and settings.ha_recorder != "manager"
    ):
        what = (
            f"two brokers with ha-safety={settings.ha_safety} and "
            f"ha-recorder={settings.ha_recorder}"
        )
        strict = "neither can be promoted, nor go on alone, without the other"
        trusting = "a primary that is cut off goes on accepting what is lost when it is fenced"
        why = strict if settings.ha_safety == "strict" else trusting
        yield Finding(
            what,
            why,
            f"ha-safety=strict and ha-recorder=manager in {path}, on both nodes alike; "
            "stop both brokers for it",
        )
    if seen.incompatible:
        why = "they do not follow each other, nor agree to anything"
        yield Finding(
            f"{', '.join(seen.incompatible)} has another ha-recorder than this node",
            why,
            f"the same in {path} on every node",
        )


def _machine(seen: Seen) -> Iterator[Finding]:
    for unit in seen.units:
        why = "it starts a broker behind Pacemaker's back, which then counts as failed"
        yield Finding(f"the unit {unit} is enabled", why, f"systemctl disable --now {unit}")
    if not seen.has_agents:
        why = "Pacemaker cannot run a broker on this node"
        yield Finding(
            f"the agents of {OURS} are not installed here", why, "qpid-ha pacemaker install-agents"
        )


def _said(*words: str) -> str:
    try:
        return run(*words, timeout=QUICK)
    except ToolFailed:
        return ""
