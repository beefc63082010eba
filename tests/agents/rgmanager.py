"""A simulated rgmanager: it runs the services of a cluster.conf by calling their scripts, as the
real one does.

Each service has a thread of its own, so the scripts of a node are called at the same time and in
any order. A service whose status fails is stopped, then started again where it was (`restart`) or
on another node (`relocate`); a stop that fails makes it `failed`, which only an administrator can
mend, and so does a start that succeeds nowhere here. Source: rgmanager's service.sh and "Cluster
Administration"; Qpid's etc/fedora/cluster.conf-example.xml.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from xml.etree import ElementTree

from tests.agents.node import Node
from tests.system.cluster import wait_for


class Service(threading.Thread):
    """One service: where it may run, and what is done when its status fails."""

    def __init__(
        self, name: str, script: str, nodes: Sequence[Node], recovery: str, interval: float
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.script = script
        self.nodes = list(nodes)
        self.recovery = recovery
        self.interval = interval
        self.owner: Node | None = None
        self.state = "stopped"
        self.story: list[str] = []
        self.requests: queue.Queue[tuple[str, Node | None]] = queue.Queue()

    def run(self) -> None:
        for node in self.nodes:
            self.call(node, "stop")  # rgmanager stops everything before it starts anything
        self.start_on(self.nodes)
        while True:
            try:
                request, node = self.requests.get(timeout=self.interval)
            except queue.Empty:
                if (
                    self.state == "started"
                    and self.owner is not None
                    and self.call(self.owner, "status")
                ):
                    self.recover()
                continue
            if request == "end":
                return
            self.obey(request, node)

    def obey(self, request: str, node: Node | None) -> None:
        """As clusvcadm: disable, enable, relocate."""
        if request in ("disable", "relocate") and not self.stop_here():
            return
        if request == "disable":
            self.state = "disabled"
        else:
            self.start_on([node] if node is not None else self.nodes)

    def recover(self) -> None:
        was = self.owner
        assert was is not None
        if not self.stop_here():
            return
        others = [node for node in self.nodes if node is not was]
        self.start_on([*others, was] if self.recovery == "relocate" else [was])

    def stop_here(self) -> bool:
        owner, self.owner = self.owner, None
        if owner is not None and self.call(owner, "stop"):
            self.state = "failed"
            return False
        self.state = "stopped"
        return True

    def start_on(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if not self.call(node, "start"):
                self.owner, self.state = node, "started"
                return
            if self.call(node, "stop"):
                break
        self.state = "failed"

    def call(self, node: Node, action: str) -> int:
        outcome = node(self.script, action)
        if action != "status" or outcome.code:
            self.story.append(
                f"{node.name} {self.script} {action}: {outcome.code} {outcome.text.strip()}"
            )
        return outcome.code


class Rgmanager:
    """The services of a cluster.conf on nodes of ours, by their place in the file."""

    def __init__(self, cluster: ElementTree.Element, nodes: Sequence[Node]) -> None:
        names = [element.attrib["name"] for element in cluster.iterfind("clusternodes/clusternode")]
        of = dict(zip(names, nodes, strict=True))
        domains = {
            domain.attrib["name"]: [of[node.attrib["name"]] for node in domain]
            for domain in cluster.iterfind("rm/failoverdomains/failoverdomain")
        }
        files = {
            script.attrib["name"]: script.attrib["file"].rpartition("/")[2]
            for script in cluster.iterfind("rm/resources/script")
        }
        self.nodes = list(nodes)
        self.services: list[Service] = []
        for element in cluster.iterfind("rm/service"):
            (script,) = element.iterfind("script")
            (action,) = script.iterfind("action[@name='status']")
            where = domains[element.attrib["domain"]] if "domain" in element.attrib else self.nodes
            interval = float(action.attrib["interval"]) / 4  # the tests have no time to lose
            self.services.append(
                Service(
                    element.attrib["name"],
                    files[script.attrib["ref"]],
                    where,
                    element.attrib["recovery"],
                    interval,
                )
            )
        (self.primary,) = (service for service in self.services if service.recovery == "relocate")

    def start(self) -> None:
        for service in self.services:
            service.start()

    def close(self) -> None:
        for service in self.services:
            service.requests.put(("end", None))
        for service in self.services:
            service.join()

    def wait_settled(self, *, without: Sequence[Node] = ()) -> Node:
        """Wait until every service is started, one node is active and the others ready; return that
        node.
        """
        expected = sorted(["active"] + ["ready"] * (len(self.nodes) - len(without) - 1))

        def look() -> tuple[bool, list[str]]:
            failed = [service.name for service in self.services if service.state == "failed"]
            assert not failed, f"{failed} failed\n{self.story()}"
            states = {node.name: node.state for node in self.nodes if node not in without}
            owner = self.primary.owner
            in_place = (
                self.primary.state == "started"
                and owner is not None
                and states.get(owner.name) == "active"
            )
            return in_place, sorted(states.values())

        try:
            wait_for(look, lambda seen: seen == (True, expected), what="the cluster")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None
        assert self.primary.owner is not None
        return self.primary.owner

    def story(self) -> str:
        return "\n".join(
            f"[{service.name}] {line}" for service in self.services for line in service.story
        )
