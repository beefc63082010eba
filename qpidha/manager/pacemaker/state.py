"""The state of a Pacemaker cluster: what crm_mon tells as XML, read into nodes and instances. Pure;
knows no tool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.etree import ElementTree

from qpidha.model.errors import InvalidArgument

BROKER_AGENTS = ("ocf:qpidha:broker", "ocf:qpidha:qpidd")
PRIMARY_AGENT = "ocf:qpidha:qpidd-primary"
PROMOTED = ("Promoted", "Master")
"""What the role is called, by Pacemaker's version."""


@dataclass(slots=True)
class Node:
    """One machine of the cluster, as the others see it."""

    name: str
    online: bool = False
    clean: bool = True
    """Whether it is known what it does; false until it is fenced."""
    standby: bool = False
    maintenance: bool = False
    has_store: bool = True
    """Whether it has the configuration; remote nodes and guests have not."""
    coordinates: bool = False
    """Whether it is the designated controller."""
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Say how it is."""
        also = {"unclean": not self.clean, "standby": self.standby, "maintenance": self.maintenance}
        return " ".join(
            [
                "online" if self.online else "offline",
                *(word for word, is_so in also.items() if is_so),
            ]
        )


@dataclass(frozen=True, slots=True)
class Instance:
    """A resource on a node; the node is empty where it is stopped."""

    resource: str
    agent: str
    node: str
    role: str
    failed: bool
    managed: bool
    around: str = ""
    """The clone or group that it is in."""

    @property
    def is_primary(self) -> bool:
        """Whether Pacemaker has the primary here."""
        return bool(self.node) and (
            self.role in PROMOTED or (self.agent == PRIMARY_AGENT and self.role == "Started")
        )


@dataclass(slots=True)
class ClusterState:
    """What crm_mon said."""

    quorate: bool
    controller: str
    maintenance: bool
    fencing: bool
    nodes: list[Node]
    instances: list[Instance]
    failures: list[str]
    fenced: list[str]
    """Fencing actions, the latest first."""

    def brokers(self) -> list[Instance]:
        """Give the instances of the broker that run somewhere."""
        return [
            instance
            for instance in self.instances
            if instance.agent in BROKER_AGENTS and instance.node
        ]

    def primary(self) -> Instance | None:
        """Find the instance that is promoted."""
        return next(
            (instance for instance in self.instances if instance.is_primary and _is_ours(instance)),
            None,
        )

    def addresses(self) -> list[Instance]:
        """Give the virtual addresses of ours, and IPaddr2's."""
        return [
            instance
            for instance in self.instances
            if instance.agent in ("ocf:qpidha:vip", "ocf:heartbeat:IPaddr2")
        ]

    def score(self, node: Node) -> int | None:
        """Give the promotion score of the broker on a node; None if it has none and will not be
        promoted.
        """
        names = [
            f"master-{name}"
            for name in {
                instance.resource for instance in self.instances if instance.agent in BROKER_AGENTS
            }
        ]
        found = next(
            (node.attributes[name] for name in [*names, "qpid-ready"] if name in node.attributes),
            "",
        )
        return int(found) if found.lstrip("-").isdigit() else None


def read_state(text: str) -> ClusterState:
    """Read `crm_mon --output-as=xml`. Raises InvalidArgument for what is no such thing."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise InvalidArgument(
            f"crm_mon wrote no XML: {error}", hint="crm_mon -1 --output-as=xml"
        ) from error
    quorum = root.find("summary/current_dc")
    options = root.find("summary/cluster_options")
    nodes = [_node(element) for element in root.findall("nodes/node")]
    attributes = {node.get("name"): node for node in root.findall("node_attributes/node")}
    for node in nodes:
        known = attributes.get(node.name)
        if known is not None:
            node.attributes = {
                one.get("name", ""): one.get("value", "") for one in known.findall("attribute")
            }
    return ClusterState(
        quorate=quorum is not None and quorum.get("with_quorum") == "true",
        controller="" if quorum is None else quorum.get("name", ""),
        maintenance=options is not None and options.get("maintenance-mode") == "true",
        fencing=options is None or options.get("stonith-enabled") == "true",
        nodes=nodes,
        instances=list(_instances(root.find("resources"), "")),
        failures=[_failure(element) for element in root.findall("failures/failure")],
        fenced=[_fenced(element) for element in root.findall("fence_history/fence_event")],
    )


def _is_ours(instance: Instance) -> bool:
    return instance.agent in (*BROKER_AGENTS, PRIMARY_AGENT)


def _node(element: ElementTree.Element) -> Node:
    return Node(
        element.get("name", ""),
        online=element.get("online") == "true",
        clean=element.get("unclean") != "true",
        standby=element.get("standby") == "true",
        maintenance=element.get("maintenance") == "true",
        has_store=element.get("type", "member") == "member",
        coordinates=element.get("is_dc") == "true",
    )


def _instances(resources: ElementTree.Element | None, around: str) -> Iterator[Instance]:
    for element in resources if resources is not None else ():
        if element.tag != "resource":
            yield from _instances(element, element.get("id", ""))
            continue
        node = element.find("node")
        yield Instance(
            # An anonymous clone's instances may carry a number.
            element.get("id", "").partition(":")[0],
            element.get("resource_agent", "").replace("::", ":"),
            "" if node is None else node.get("name", ""),
            element.get("role", ""),
            failed=element.get("failed") == "true",
            managed=element.get("managed") == "true",
            around=around,
        )


def _failure(element: ElementTree.Element) -> str:
    said = element.get("exitreason") or element.get("exitstatus") or "failed"
    return (
        f"{element.get('op_key', element.get('id', 'an operation'))} on "
        f"{element.get('node', '?')}: {said}"
    )


def _fenced(element: ElementTree.Element) -> str:
    when = element.get("completed") or element.get("status", "")
    return (
        f"{element.get('target', '?')} {element.get('action', '')} "
        f"{element.get('status', '')} {when}"
    ).strip()
