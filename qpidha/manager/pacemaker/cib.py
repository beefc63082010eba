"""The CIB: Pacemaker's configuration as XML, read into what the plan and the checks ask of it.
Pure; knows no tool.
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree

from qpidha.manager.pacemaker.plan import FENCING_DELAY, Resource, Step, seconds
from qpidha.model.errors import InvalidArgument

OURS = "qpidha"
"""Provider of our agents."""
YES = ("true", "on", "yes", "y", "t", "1")
NO = ("false", "off", "no", "n", "f", "0")
"""What Pacemaker takes for yes and for no."""
ROLES = {"Master": "Promoted", "Slave": "Unpromoted"}
"""Old name of a role -> today's. Both mean the same; a configuration that an older Pacemaker began
keeps the old ones.
"""
OPTION_OF = {
    "stonith-enabled": "--no-fencing (or --fencing-exists)",
    "dc-deadtime": "--dc-deadtime",
    "cluster-recheck-interval": "--recheck",
    FENCING_DELAY: "--fencing-delay",
}
"""Cluster property -> option of `setup` that plans another value."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One `op`; times are in seconds, 0 where none is given."""

    name: str
    interval: float
    timeout: float
    role: str


@dataclass(frozen=True, slots=True)
class Primitive:
    """A resource as it is configured."""

    name: str
    agent: str
    parameters: dict[str, str]
    operations: tuple[Operation, ...]
    meta: dict[str, str]
    """Its own and those of the clone or group around it; the inner ones win."""
    around: str = ""
    """The clone or group that it is in."""


class Cib:
    """One configuration."""

    def __init__(self, text: str) -> None:
        try:
            self.root = ElementTree.fromstring(text)
        except ElementTree.ParseError as error:
            raise InvalidArgument(
                f"the CIB is no XML: {error}", hint="cibadmin --query shows it"
            ) from error
        for element in self.root.iter():
            for key in ("role", "rsc-role", "with-rsc-role"):
                if (role := element.get(key)) in ROLES:
                    element.set(key, ROLES[role])
        self.primitives = dict(_primitives(self.root))

    def has(self, path: str) -> bool:
        """Whether there is an element at an XPath."""
        return self.root.find(path) is not None

    def all(self, path: str) -> list[dict[str, str]]:
        """Give the attributes of all elements at an XPath."""
        return [element.attrib for element in self.root.findall(path)]

    def property(self, name: str) -> str:
        """Give a cluster property; empty if it is not set."""
        found = self.root.find(f".//cluster_property_set/nvpair[@name='{name}']")
        return "" if found is None else found.get("value", "")

    def of_agent(self, agent: str) -> list[Primitive]:
        """Find the resources of one of our agents."""
        return [
            primitive
            for primitive in self.primitives.values()
            if primitive.agent == f"ocf:{OURS}:{agent}"
        ]

    def brokers(self) -> Primitive | None:
        """Find the resource that runs the brokers; the first if there are several."""
        return next(iter([*self.of_agent("broker"), *self.of_agent("qpidd")]), None)

    def nodes(self) -> list[str]:
        """Name the nodes."""
        return [
            node["uname"]
            for node in self.all("./configuration/nodes/node")
            if node.get("type", "member") == "member"
        ]


def is_done(step: Step, cib: Cib) -> bool:
    """Whether the configuration has what a step makes; raise InvalidArgument if it has something
    else of that name.
    """
    if step.properties:
        _refuse_other_properties(step.properties, cib)
        return all(cib.property(name) for name in step.properties)
    if step.resource is None:
        return cib.has(step.seen)
    there = cib.primitives.get(step.resource.name)
    if there is None:
        return False
    differences = _differences(step.resource, there)
    if differences:
        text = (
            f"the resource {there.name} is there already, and is another: {'; '.join(differences)}"
        )
        raise InvalidArgument(
            text,
            hint=(
                f"pcs resource update {there.name} ..., or pcs resource delete {there.name}, "
                "and then again"
            ),
        )
    return True


def _refuse_other_properties(wanted: dict[str, str], cib: Cib) -> None:
    """Raise for properties that somebody has set to something else: they rule the whole cluster,
    not the brokers alone.
    """
    known = {name: cib.property(name) for name in wanted}
    others = [
        name for name, value in wanted.items() if known[name] and not _same(known[name], value)
    ]
    if others:
        text = "; ".join(
            f"the cluster property {name} is {known[name]} already, planned is {wanted[name]}"
            for name in others
        )
        change = " ".join(["pcs property set", *(f"{name}={wanted[name]}" for name in others)])
        hints = [f"{change}, if nothing else in this cluster needs it otherwise, and then again"]
        hints += [f"{OPTION_OF[name]} keeps {name}" for name in others if name in OPTION_OF]
        raise InvalidArgument(text, hint="; ".join(hints))


def _same(one: str, other: str) -> bool:
    """Whether Pacemaker takes two values of a property for the same: yes is true, 60 is 1min."""
    if seconds(one) or seconds(other):
        return seconds(one) == seconds(other)
    for words in (YES, NO):
        if one.lower() in words and other.lower() in words:
            return True
    return one == other


def _differences(wanted: Resource, there: Primitive) -> list[str]:
    agent = wanted.agent if ":" in wanted.agent else f"stonith:{wanted.agent}"
    found = [] if agent == there.agent else [f"its agent is {there.agent}, planned is {agent}"]
    for planned, known in ((wanted.parameters, there.parameters), (wanted.meta, there.meta)):
        found += [
            f"{key} is {known.get(key, 'not set')}, planned is {value}"
            for key, value in planned.items()
            if known.get(key) != value
        ]
    monitors = [
        (operation.interval, operation.role)
        for operation in there.operations
        if operation.name == "monitor"
    ]
    for interval, role in wanted.monitors:
        if (interval, role) not in monitors:
            found.append(
                f"it has no monitor {f'of role {role} ' if role else ''}every {interval} s"
            )
    return found


def _primitives(root: ElementTree.Element) -> list[tuple[str, Primitive]]:
    found = []
    around = {child: parent for parent in root.iter() for child in parent}
    for element in root.iter("primitive"):
        parent = around[element]
        outer = parent if parent.tag in ("clone", "group", "master") else None
        meta = {} if outer is None else {**_values(outer, "meta_attributes")}
        parts = (element.get("class", ""), element.get("provider", ""), element.get("type", ""))
        primitive = Primitive(
            element.get("id", ""),
            ":".join(part for part in parts if part),
            _values(element, "instance_attributes"),
            tuple(_operation(op) for op in element.findall("operations/op")),
            {**meta, **_values(element, "meta_attributes")},
            "" if outer is None else outer.get("id", ""),
        )
        found.append((primitive.name, primitive))
    return found


def _operation(op: ElementTree.Element) -> Operation:
    return Operation(
        op.get("name", ""),
        seconds(op.get("interval", "")),
        seconds(op.get("timeout", "")),
        op.get("role", ""),
    )


def _values(element: ElementTree.Element, kind: str) -> dict[str, str]:
    return {
        pair.get("name", ""): pair.get("value", "") for pair in element.findall(f"{kind}/nvpair")
    }
