"""The plan for rgmanager: a cluster.conf that makes a cluster of brokers out of some nodes.

A service for the broker of each node, restarted where it is, and one for the primary role,
which moves from node to node and takes the clients' virtual addresses along. Pure: it writes
nothing and looks at nothing. Source: Qpid's etc/fedora/cluster.conf-example.xml; rgmanager's
"Cluster Administration", appendices C and D.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from qpidha.manager.vip.state import host_interface
from qpidha.model.errors import InvalidArgument

BROKER_SCRIPT = "qpidd"
PRIMARY_SCRIPT = "qpidd-primary"
PRIMARY_SERVICE = "qpidd-primary-service"
SCRIPTS = "/etc/init.d"
HOST_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
LONGEST_HOST = 253
"""What a host name is made of, and its characters at most. Source: RFC 1123 section 2.1."""
LONGEST_NAME = 15
"""Characters of a cluster's name. Source: cman(5)."""
ABOUT = """
    rgmanager configuration for a cluster of brokers, as written by qpid-ha rgmanager plan: one
    broker service for each node, which is restarted where it is, and one primary service, which
    moves from node to node and takes the clients' virtual address along.

    Before use: replace names and addresses; keep the qpidd service itself out of the system's
    start-up, since rgmanager starts it; see that fencing works (fence_node NODE), for without it a
    node that hangs, or is cut off, holds up everything or does harm.
    docs/rgmanager.md has the rest.
  """
TWO_NODES = """
    Of two nodes no majority is left when one is gone: the brokers need ha-safety=trust-manager, and
    fencing has to work.
  """
POLL = (
    " How often rgmanager looks which status is due: with the intervals below, the larger "
    "part of the time to notice a failure. "
)
DOMAINS = " A domain of one node each: a broker belongs to its node and never runs on another one. "
BROKER_TEXT = " Starts, stops and checks the broker of a node. "
PRIMARY_TEXT = " Promotes the broker of the node it is started on, and checks that it is primary. "
ADDRESS_TEXT = (
    " Where clients connect. Brokers list each other by their real addresses in "
    "ha-brokers-url, never by this one. "
)
SERVICE_TEXT = """
      Exactly one of these in the cluster. The address stands inside the script, so that it comes
      after the promotion and goes before the primary does; beside the script it would come first,
      whatever the order here.
    """


@dataclass(frozen=True, slots=True)
class FenceDevice:
    """What switches one node off."""

    node: str
    agent: str
    """Such as fence_ipmilan."""
    parameters: tuple[tuple[str, str], ...]

    @staticmethod
    def parse(text: str) -> FenceDevice:
        """Read NODE=AGENT,NAME=VALUE,...; raise InvalidArgument for anything else."""
        node, equals, rest = text.partition("=")
        agent, *given = rest.split(",")
        pairs = [
            (name, value)
            for name, has_value, value in (one.partition("=") for one in given)
            if name and has_value
        ]
        # Name and agent of a device are ours to write.
        if (
            not (node and equals and agent)
            or "=" in agent
            or len(pairs) != len(given)
            or {"name", "agent"} & dict(pairs).keys()
        ):
            raise InvalidArgument(
                f"fencing {text!r} is not NODE=AGENT,NAME=VALUE,...",
                hint="node1=fence_ipmilan,ipaddr=10.0.0.1,login=fence",
            )
        return FenceDevice(node, agent, tuple(pairs))


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What is wanted."""

    nodes: tuple[str, ...]
    vips: tuple[str, ...] = ()
    fence: tuple[FenceDevice, ...] = ()
    name: str = "qpidha"
    interval: int = 1
    """Seconds between two status calls."""
    scripts: str = SCRIPTS
    """Folder of the two scripts on each node."""


def cluster_conf(options: PlanOptions) -> str:
    """Write the file. Raises InvalidArgument for what cannot work."""
    _check(options)
    cluster = Element("cluster", name=options.name, config_version="1")
    cluster.append(ElementTree.Comment(ABOUT))
    nodes = SubElement(cluster, "clusternodes")
    for number, name in enumerate(options.nodes, 1):
        _fence(SubElement(nodes, "clusternode", name=name, nodeid=str(number)), name, options)
    if options.fence:
        devices = SubElement(cluster, "fencedevices")
        for device in options.fence:
            SubElement(
                devices,
                "fencedevice",
                {"name": _device(device.node), "agent": device.agent, **dict(device.parameters)},
            )
    if len(options.nodes) == 2:
        cluster.append(ElementTree.Comment(TWO_NODES))
        SubElement(cluster, "cman", two_node="1", expected_votes="1")
    else:
        SubElement(cluster, "cman")
    cluster.append(ElementTree.Comment(POLL))
    _services(SubElement(cluster, "rm", status_poll_interval=str(options.interval)), options)
    ElementTree.indent(cluster)
    return '<?xml version="1.0"?>\n' + ElementTree.tostring(cluster, encoding="unicode") + "\n"


def missing_fencing(options: PlanOptions) -> list[str]:
    """Name the nodes that nothing switches off."""
    fenced = {device.node for device in options.fence}
    return [name for name in options.nodes if name not in fenced]


def broker_service(node: str) -> str:
    """Say what the service of a node's broker is called."""
    return f"{_short(node)}-qpidd-service"


def _check(options: PlanOptions) -> None:
    if not 0 < len(options.name) <= LONGEST_NAME:
        raise InvalidArgument(
            f"the name {options.name!r} has {len(options.name)} characters",
            hint=f"--name with 1 to {LONGEST_NAME}: cman takes no more",
        )
    if len(options.nodes) < 2:
        raise InvalidArgument("a cluster has at least two nodes", hint="--nodes node1,node2,node3")
    _check_nodes(options.nodes)
    addresses = set()
    for vip in options.vips:
        try:
            addresses.add(host_interface(vip).ip)
        except ValueError as error:
            raise InvalidArgument(
                f"{vip!r} is not an address: {error}", hint="--vip 192.0.2.100, or 192.0.2.100/24"
            ) from error
    if len(addresses) != len(options.vips):
        raise InvalidArgument(
            "a virtual address is given twice", hint="--vip with a different address each time"
        )
    for device in options.fence:
        if device.node not in options.nodes:
            hint = f"one of {', '.join(options.nodes)}"
            raise InvalidArgument(
                f"fencing is given for {device.node!r}, which is no node of the cluster", hint=hint
            )
    if len({device.node for device in options.fence}) != len(options.fence):
        raise InvalidArgument(
            "fencing is given twice for one node",
            hint="one --fence for each node; add other methods to the file by hand",
        )
    if options.interval < 1:
        raise InvalidArgument(
            f"{options.interval} s is too short an interval", hint="--interval 1, or longer"
        )


def _check_nodes(nodes: tuple[str, ...]) -> None:
    known: dict[str, str] = {}
    for name in nodes:
        if len(name) > LONGEST_HOST or not all(
            HOST_LABEL.fullmatch(label) for label in name.split(".")
        ):
            hint = "--nodes node1,node2,node3: letters, digits and hyphens, with dots between"
            raise InvalidArgument(f"{name!r} is not a host name", hint=hint)
        other = known.setdefault(_short(name), name)
        if nodes.count(name) > 1:
            raise InvalidArgument(
                f"the node {name} is named twice",
                hint="--nodes with a different host name for each",
            )
        if other != name:
            text = (
                f"{other} and {name} have the same short name, {_short(name)}, by which "
                "services and fence devices are called"
            )
            raise InvalidArgument(
                text, hint="--nodes with host names that differ before their first dot"
            )


def _fence(node: Element, name: str, options: PlanOptions) -> None:
    if any(device.node == name for device in options.fence):
        method = SubElement(SubElement(node, "fence"), "method", name="1")
        SubElement(method, "device", name=_device(name))


def _services(rm: Element, options: PlanOptions) -> None:
    rm.append(ElementTree.Comment(DOMAINS))
    domains = SubElement(rm, "failoverdomains")
    for name in options.nodes:
        SubElement(
            SubElement(domains, "failoverdomain", name=_domain(name), restricted="1"),
            "failoverdomainnode",
            name=name,
        )
    resources = SubElement(rm, "resources")
    for name, text in ((BROKER_SCRIPT, BROKER_TEXT), (PRIMARY_SCRIPT, PRIMARY_TEXT)):
        resources.append(ElementTree.Comment(text))
        SubElement(resources, "script", name=name, file=f"{options.scripts}/{name}")
    if options.vips:
        resources.append(ElementTree.Comment(ADDRESS_TEXT))
    for vip in options.vips:
        SubElement(resources, "ip", address=vip, monitor_link="yes", sleeptime="0")
    for name in options.nodes:
        service = SubElement(
            rm, "service", name=broker_service(name), domain=_domain(name), recovery="restart"
        )
        _script(service, BROKER_SCRIPT, options)
    rm.append(ElementTree.Comment(SERVICE_TEXT))
    service = SubElement(
        rm, "service", name=PRIMARY_SERVICE, autostart="1", exclusive="0", recovery="relocate"
    )
    script = _script(service, PRIMARY_SCRIPT, options)
    for vip in options.vips:
        SubElement(script, "ip", ref=vip)


def _script(service: Element, name: str, options: PlanOptions) -> Element:
    script = SubElement(service, "script", ref=name)
    # Without this the interval of rgmanager's script agent counts, which is half a minute.
    SubElement(script, "action", name="status", depth="*", interval=str(options.interval))
    return script


def _short(name: str) -> str:
    return name.partition(".")[0]


def _domain(name: str) -> str:
    return f"only-{_short(name)}"


def _device(name: str) -> str:
    return f"fence-{_short(name)}"
