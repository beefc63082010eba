"""rgmanager as a resource manager: its nodes are the brokers' machines, and clusvcadm moves the
service of the primary.

What is known comes from clustat and from the broker on this node. A broker is named by its node, or
by its address, whose host is then looked for among the nodes. rgmanager watches, fences and
promotes by itself; commands only ask it to. It has no store that it would share among its nodes, so
no in-sync set is kept here: the brokers' own records count alone, and `ha-safety=strict` asks a
majority of them. Source: clustat(8), clusvcadm(8), fence_node(8).
"""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass
from xml.etree import ElementTree

from qpidha.client.admin import LinkBroken, ask
from qpidha.manager.broker_file import BrokerFile, read_broker_file, usual_file
from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.placement import Member
from qpidha.manager.resource_manager import BrokerPlace
from qpidha.manager.rgmanager.plan import PRIMARY_SERVICE, broker_service
from qpidha.manager.tool_runner import PLACES, QUICK, ToolFailed, ToolMissing, run
from qpidha.model.errors import NotAllowed, NotFound, RefusedRequest

PATIENCE = 120.0
"""Seconds for rgmanager to have moved, started or ended a service; a broker may read a long
write-ahead log first.
"""
STARTED = "started"
HINT = "clustat shows the services, and the system log what rgmanager did with them"


@dataclass(frozen=True, slots=True)
class ServiceState:
    """One service as clustat has it."""

    state: str
    """Such as started, stopped, disabled, failed, recovering."""
    owner: str
    """The node that runs it; empty if none does."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What clustat says."""

    quorate: bool
    nodes: dict[str, bool]
    """Name -> whether it is a member of the cluster and runs rgmanager."""
    services: dict[str, ServiceState]

    def service(self, name: str) -> ServiceState:
        """Find a service; one that is not there is `unknown`."""
        return self.services.get(name, ServiceState("unknown", ""))

    @property
    def primary(self) -> ServiceState:
        """The service of the primary."""
        return self.service(PRIMARY_SERVICE)


class RgmanagerManager:
    """A ResourceManager: the rgmanager cluster of this machine."""

    name = "rgmanager"

    def __init__(self, file: BrokerFile) -> None:
        self.file = file

    def state(self) -> ClusterState:
        """Ask rgmanager how the cluster is; raise ToolFailed if it does not run, and NotFound if it
        has no brokers.
        """
        state = read_state(_run("clustat", "-x", timeout=QUICK))
        if PRIMARY_SERVICE not in state.services:
            raise NotFound(
                f"rgmanager has no service {PRIMARY_SERVICE}",
                hint="qpid-ha rgmanager plan writes a cluster.conf that has it",
            )
        return state

    def members(self) -> list[Member]:
        """Say what rgmanager knows of every node, and the broker of this node of the others."""
        state, statuses = self.state(), self._statuses()
        members = []
        for node, online in state.nodes.items():
            address = next((address for address in statuses if _names(address, node)), "")
            address = address or next(
                (address for address in statuses if _is_at(address, node)), ""
            )
            known = statuses.get(address, {})
            alive = online and (
                state.service(broker_service(node)).state == STARTED or state.primary.owner == node
            )
            role = "active" if state.primary == ServiceState(STARTED, node) else "unknown"
            member = Member(
                node,
                address,
                alive=alive,
                state=str(known.get("state") or role) if alive else "down",
            )
            member.healthy = alive and state.quorate
            member.system_id = str(known.get("system_id", ""))
            members.append(member)
        return members

    def fence(self, name: str) -> None:
        """Have the node switched off or reset; returns when the fence device says that it is
        done.
        """
        _run("fence_node", self.node(name))

    def promote(self, name: str) -> None:
        """Have a broker promoted where there is no primary."""
        primary = self.state().primary
        if primary.state == STARTED:
            text = f"{primary.owner} has the primary already"
            raise NotAllowed(
                text,
                hint=f"qpid-ha switchover {name}; if that does not work, qpid-ha failover {name}",
            )
        self.take_over(name)

    def switch_over(self, name: str) -> None:
        """Move the service of the primary to another node; the former primary steps down, and its
        broker goes on as a backup.
        """
        primary = self.state().primary
        if primary.state != STARTED:
            raise NotAllowed(
                f"{PRIMARY_SERVICE} is {primary.state}: there is no primary",
                hint="qpid-ha failover promotes a broker",
            )
        if name and self.node(name) == primary.owner:
            raise NotAllowed(
                f"{primary.owner} has the primary already",
                hint="name one of the others, or none for the best",
            )
        self.take_over(name)

    def take_over(self, name: str) -> None:
        """Have the service of the primary run on a node, wherever it is now."""
        state = self.state()
        if state.primary.state == "failed":
            text = (
                f"{PRIMARY_SERVICE} has failed: rgmanager could not stop it on its last "
                "node, and touches it no more"
            )
            raise NotAllowed(
                text,
                hint=(
                    "make sure that no primary runs (qpid-ha status --all), then clusvcadm "
                    f"-d {PRIMARY_SERVICE}"
                ),
            )
        node = self.node(name) if name else self._best(state)
        _run(
            "clusvcadm",
            "-r" if state.primary.state == STARTED else "-e",
            PRIMARY_SERVICE,
            "-m",
            node,
        )
        # If it does not start there, rgmanager takes another node, and is content.
        found = self.state().primary
        if found != ServiceState(STARTED, node):
            where = f"{found.state} on {found.owner}" if found.owner else found.state
            raise NotAllowed(
                f"{node} did not become primary: {PRIMARY_SERVICE} is {where}",
                hint=f"the system log of {node} says why",
            )

    def record_in_sync(self, epoch: int, version: int, members: tuple[str, ...]) -> bool:
        """Keep nothing: rgmanager has no store."""
        return False

    def newest_in_sync(self) -> InSyncRecord:
        """Know of no set: rgmanager has no store."""
        return InSyncRecord()

    def stop(self) -> None:
        """End all brokers and keep them ended, until `clusvcadm -e` of the same services."""
        state = self.state()
        for service in [PRIMARY_SERVICE, *(broker_service(node) for node in state.nodes)]:
            if state.service(service).state not in ("disabled", "unknown"):
                _run("clusvcadm", "-d", service)

    def runs(self, place: BrokerPlace) -> bool:
        """Whether a broker is one of this cluster."""
        if place.admin_socket:
            return os.path.realpath(place.admin_socket) == os.path.realpath(self.file.admin_socket)
        host, _, port = place.address.rpartition(":")
        is_here = host in ("localhost", "127.0.0.1", "[::1]") and port == str(self.file.port)
        return is_here or (place.address != "" and place.address in self.file.addresses)

    def node(self, name: str) -> str:
        """Find the node of a broker that is named by its node or address."""
        nodes = list(self.state().nodes)
        found = next(
            (
                node
                for node in nodes
                if name in (node, node.partition(".")[0]) or _names(name, node)
            ),
            None,
        )
        found = found or next((node for node in nodes if _is_at(name, node)), None)
        if found is None:
            raise NotFound(
                f"no node of rgmanager's has the broker {name!r}",
                hint=f"name the node: {', '.join(nodes)}",
            )
        return found

    def _best(self, state: ClusterState) -> str:
        fit = [
            member.name
            for member in self.members()
            if member.healthy and member.state == "ready" and member.name != state.primary.owner
        ]
        if not fit:
            raise NotAllowed(
                "no other broker is known to be ready",
                hint="qpid-ha status --all; name one to have it tried all the same",
            )
        return fit[0]

    def _statuses(self) -> dict[str, dict[str, object]]:
        """Ask the broker of this node what it knows of all, by address."""
        try:
            status = ask(self.file.admin_socket, "status", timeout=QUICK)
        except (LinkBroken, RefusedRequest):
            return {address: {} for address in self.file.addresses}
        return {str(member["address"]): member for member in status.get("members") or []}


def find(place: BrokerPlace) -> RgmanagerManager | None:
    """Find the rgmanager cluster of this machine, if it runs the broker."""
    if shutil.which("clustat", path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES])) is None:
        return None
    manager = RgmanagerManager(read_broker_file(usual_file()))
    if not manager.runs(place):
        return None
    try:
        manager.state()
    except (ToolFailed, RefusedRequest):
        return None
    return manager


def read_state(text: str) -> ClusterState:
    """Read what `clustat -x` prints; raise ToolFailed for anything else."""
    try:
        root = ElementTree.fromstring(text)
        nodes = {
            node.attrib["name"]: node.attrib["state"] == "1" and node.get("rgmanager", "1") == "1"
            for node in root.iterfind("nodes/node")
        }
        services = {
            group.attrib["name"].removeprefix("service:"): ServiceState(
                group.attrib["state_str"],
                group.attrib["owner"] if group.attrib["owner"] in nodes else "",
            )
            for group in root.iterfind("groups/group")
        }
    except (ElementTree.ParseError, KeyError) as error:
        raise ToolFailed(f"what clustat -x prints cannot be read: {error}", hint=HINT) from error
    quorum = root.find("quorum")
    return ClusterState(quorum is not None and quorum.get("quorate") == "1", nodes, services)


def _run(*words: str, timeout: float = PATIENCE) -> str:
    try:
        return run(*words, timeout=timeout)
    except ToolMissing:
        raise
    except ToolFailed as error:
        raise ToolFailed(error.text, hint=HINT, code=error.code) from error


def _names(address: str, node: str) -> bool:
    """Whether an address has the name of a node in it."""
    return _host(address) in (node, node.partition(".")[0])


def _is_at(address: str, node: str) -> bool:
    """Whether an address leads to a node, by the numbers of both; asks for names, so it may take a
    while.
    """
    return bool(_numbers(_host(address)) & _numbers(node))


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _numbers(host: str) -> set[str]:
    """Give the addresses of a host; none if it has no name here."""
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None)} if host else set()
    except (OSError, UnicodeError):
        return set()
