"""Pacemaker as a resource manager: its nodes are the brokers' machines, and pcs moves the primary.

What is known comes from crm_mon, the CIB and the broker on this node. A broker is named by its
node, or by its address, whose host is then looked for among the nodes. Pacemaker watches, fences
and promotes by itself; commands only ask it to. Source: pcs(8), crm_mon(8).
"""

from __future__ import annotations

import os
import shutil
import socket
from functools import cached_property

from qpidha.client.admin import LinkBroken, ask
from qpidha.manager.broker_file import read_broker_file
from qpidha.manager.in_sync_record import InSyncRecord
from qpidha.manager.pacemaker.cib import Cib
from qpidha.manager.pacemaker.plan import PROMOTABLE
from qpidha.manager.pacemaker.state import ClusterState, Instance, Node, read_state
from qpidha.manager.pacemaker.store import newest, record
from qpidha.manager.placement import Member
from qpidha.manager.resource_manager import BrokerPlace
from qpidha.manager.tool_runner import PLACES, QUICK, ToolFailed, run
from qpidha.model.errors import NotAllowed, NotFound, RefusedRequest
from qpidha.model.paths import CONFIGURATION

MOVE_PATIENCE = 60
"""Seconds for Pacemaker to have moved the primary, or ended all brokers."""


class PacemakerManager:
    """A ResourceManager: the Pacemaker cluster of this machine."""

    name = "pacemaker"

    def __init__(self, cib: Cib) -> None:
        self.cib = cib
        brokers = cib.brokers()
        if brokers is None:
            raise NotFound(
                "Pacemaker has no resource of the agent ocf:qpidha:broker or ocf:qpidha:qpidd",
                hint="qpid-ha pacemaker setup",
            )
        self.brokers = brokers
        self.file = read_broker_file(
            brokers.parameters.get("config") or CONFIGURATION,
            brokers.parameters.get("admin_socket", ""),
        )

    def state(self) -> ClusterState:
        """Ask Pacemaker how the cluster is."""
        return read_state(run("crm_mon", "-1", "--output-as=xml", timeout=QUICK))

    def members(self) -> list[Member]:
        """Say what Pacemaker knows of every node, and the broker of this node of the others."""
        state = self.state()
        running = {instance.node: instance for instance in state.brokers()}
        primary = state.primary()
        statuses = self._statuses()
        members = []
        for node in state.nodes:
            address = next((address for address in statuses if self.is_at(address, node.name)), "")
            instance, known = running.get(node.name), statuses.get(address, {})
            role = "active" if primary is not None and primary.node == node.name else "unknown"
            member = Member(
                node.name,
                address,
                alive=instance is not None,
                state=str(known.get("state") or role) if instance else "down",
            )
            member.healthy = (
                instance is not None and not instance.failed and node.online and node.clean
            )
            member.system_id = str(known.get("system_id", ""))
            members.append(member)
        return members

    def fence(self, name: str) -> None:
        """Have the node switched off or reset; returns when the fence device says that it is
        done.
        """
        run("pcs", "stonith", "fence", self.node(name), timeout=MOVE_PATIENCE)

    def promote(self, name: str) -> None:
        """Have a broker promoted where there is no primary."""
        state = self.state()
        primary = state.primary()
        if primary is not None:
            text = f"{primary.node} has the primary already"
            raise NotAllowed(
                text,
                hint=f"qpid-ha switchover {name}; if that does not work, qpid-ha failover {name}",
            )
        self._move(self.node(name), state)

    def switch_over(self, name: str) -> None:
        """Move the promoted role to another node; pcs removes the constraint that it needs for
        that.
        """
        state = self.state()
        primary = state.primary()
        if primary is None:
            raise NotAllowed(
                "Pacemaker has no broker promoted",
                hint="qpid-ha pacemaker status says why; qpid-ha failover promotes one",
            )
        target = self.node(name) if name else self._best(state, primary)
        if target == primary.node:
            raise NotAllowed(
                f"{target} has the primary already",
                hint="name one of the others, or none for the best",
            )
        self._move(target, state)

    def take_over(self, name: str) -> None:
        """Forget the failures that keep a node from being promoted, and move the promoted role
        there.
        """
        state = self.state()
        target = self.node(name) if name else self._best(state, state.primary())
        if state.failures:
            run("pcs", "resource", "cleanup", self._moved(), f"node={target}")
        self._move(target, state)

    def record_in_sync(self, epoch: int, version: int, members: tuple[str, ...]) -> bool:
        """Keep a set in Pacemaker's store, if it is newer, this part of the cluster is quorate, and
        no broker's wish is needed for it.
        """
        if self.file.settings is not None and self.file.settings.ha_recorder == "manager":
            return False
        return record(InSyncRecord(epoch, version, members))

    def newest_in_sync(self) -> InSyncRecord:
        """Say which set is kept in Pacemaker's store."""
        return newest()

    def stop(self) -> None:
        """End all brokers and keep them ended, until `pcs resource enable` of the same resource."""
        ended = dict.fromkeys((self._moved(), self._clone()))
        run(
            "pcs",
            "resource",
            "disable",
            *ended,
            f"--wait={MOVE_PATIENCE}",
            timeout=MOVE_PATIENCE + QUICK,
        )

    def runs(self, place: BrokerPlace) -> bool:
        """Whether a broker is one of this cluster."""
        if place.admin_socket:
            return os.path.realpath(place.admin_socket) == os.path.realpath(self.file.admin_socket)
        if not place.address:
            return False
        host, _, port = place.address.rpartition(":")
        is_here = host in ("localhost", "127.0.0.1", "[::1]") and port == str(self.file.port)
        virtual = [resource.parameters.get("ip", "") for resource in self.cib.primitives.values()]
        return (
            is_here
            or place.address in self.file.addresses
            or (host.strip("[]") in virtual and port == str(self.file.port))
        )

    def node(self, name: str) -> str:
        """Find the node of a broker that is named by its node or address."""
        nodes = self.cib.nodes()
        found = next((node for node in nodes if node == name), None) or next(
            (node for node in nodes if self.is_at(name, node)), None
        )
        if found is None:
            raise NotFound(
                f"no node of Pacemaker's has the broker {name!r}",
                hint=f"name the node: {', '.join(nodes)}",
            )
        return found

    def _best(self, state: ClusterState, primary: Instance | None) -> str:
        fit = [
            (score, node.name)
            for node in state.nodes
            if (score := state.score(node)) is not None and _can_have(node, primary)
        ]
        if not fit:
            raise NotAllowed(
                "no other broker has a promotion score: none is ready and in sync",
                hint="qpid-ha status --all",
            )
        return max(fit)[1]

    def _move(self, node: str, state: ClusterState) -> None:
        known = next((one for one in state.nodes if one.name == node), None)
        if known is None or not known.online or state.score(known) is None:
            # The constraint would outweigh the missing score, and Pacemaker would try in vain.
            raise NotAllowed(
                f"{node} has no promotion score: its broker is not ready and in sync, or not there",
                hint="qpid-ha status --all",
            )
        what = ("--promoted",) if self._style() == PROMOTABLE else ()
        run(
            "pcs",
            "resource",
            "move",
            self._moved(),
            node,
            *what,
            f"--wait={MOVE_PATIENCE}",
            timeout=MOVE_PATIENCE + QUICK,
        )

    def _style(self) -> str:
        return PROMOTABLE if self.brokers.agent == "ocf:qpidha:broker" else ""

    def _clone(self) -> str:
        return self.brokers.around or self.brokers.name

    def _moved(self) -> str:
        primaries = self.cib.of_agent("qpidd-primary")
        return (primaries[0].around or primaries[0].name) if primaries else self._clone()

    def _statuses(self) -> dict[str, dict[str, object]]:
        """Ask the broker of this node what it knows of all, by address; nothing if it does not
        answer.
        """
        if not self.file.admin_socket:
            return {}
        try:
            status = ask(self.file.admin_socket, "status", timeout=QUICK)
        except (LinkBroken, RefusedRequest):
            return {address: {} for address in self.file.addresses}
        return {str(member["address"]): member for member in status.get("members") or []}

    def incompatible(self) -> tuple[str, ...]:
        """Name the brokers that the broker of this node found to record in-sync sets elsewhere;
        none if it does not answer.
        """
        try:
            status = (
                ask(self.file.admin_socket, "status", timeout=QUICK)
                if self.file.admin_socket
                else {}
            )
        except (LinkBroken, RefusedRequest):
            return ()
        return tuple(str(address) for address in status.get("incompatible") or ())

    def is_at(self, address: str, node: str) -> bool:
        host = address.rpartition(":")[0].strip("[]")
        return host == node or bool(
            _numbers(host) & (_numbers(node) | self._links.get(node, set()))
        )

    @cached_property
    def _links(self) -> dict[str, set[str]]:
        """Give the addresses of corosync's links by the node's name."""
        try:
            text = run("corosync-cmapctl", "nodelist.", timeout=QUICK)
        except ToolFailed:
            return {}
        names: dict[str, str] = {}
        numbers: dict[str, set[str]] = {}
        for line in text.splitlines():
            key, _, value = line.partition(" = ")
            _, _, index, field = (key.split(" ")[0].split(".") + ["", ""])[:4]
            if field == "name":
                names[index] = value
            elif field.startswith("ring"):
                numbers.setdefault(index, set()).update(_numbers(value))
        return {name: numbers.get(index, set()) for index, name in names.items()}


def find(place: BrokerPlace) -> PacemakerManager | None:
    """Find the Pacemaker cluster of this machine, if it runs the broker."""
    if (
        shutil.which("cibadmin", path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES]))
        is None
    ):
        return None
    try:
        manager = connect()
    except (ToolFailed, RefusedRequest):
        return None
    return manager if manager.runs(place) else None


def connect() -> PacemakerManager:
    """Reach the Pacemaker cluster of this machine; raise ToolFailed if there is none, and NotFound
    if it runs no brokers.
    """
    return PacemakerManager(Cib(run("cibadmin", "--query", timeout=QUICK)))


def _can_have(node: Node, primary: Instance | None) -> bool:
    return (
        node.online
        and node.clean
        and not node.standby
        and (primary is None or primary.node != node.name)
    )


def _numbers(host: str) -> set[str]:
    """Give the addresses of a host; none if it has no name here."""
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return set()
