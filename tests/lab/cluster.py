"""The cluster on the lab's hosts: made with one command, looked at through Pacemaker and the
brokers, and waited for.
"""

from __future__ import annotations

import json
import math
import time
from typing import Any

from qpidha.manager.pacemaker.state import ClusterState, read_state
from qpidha.model.errors import InvalidArgument
from tests.lab.hosts import CLIENTS, VIP
from tests.lab.lab import Lab
from tests.lab.traffic import QUEUE
from tests.system.cluster import wait_for

MONITOR = 2
"""Seconds between monitors: deaths and hangs are pushed by the watch."""
DC_DEADTIME = 2
"""Seconds for which a starting cluster waits for its other hosts, which start at the same moment
here; init.sh says so too.
"""


class LabCluster:
    """Pacemaker and the brokers on all hosts of the lab that belong to the cluster."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def start(self) -> float:
        """Make the cluster from nothing; return how many seconds it took from the quorum to a
        settled cluster.
        """
        self.wait(
            lambda state: (
                all(node.online and node.clean for node in state.nodes)
                and len(state.nodes) == len(self.lab.names)
            )
        )
        began = time.monotonic()
        hosts = ",".join(self.lab.names)
        fence = (
            f"power fence_lab pcmk_host_list={hosts} pcmk_host_check=static-list op monitor "
            "interval=30s"
        )
        self.lab.run(
            self.lab.names[0],
            "qpid-ha",
            "pacemaker",
            "setup",
            "--apply",
            "--nodes",
            hosts,
            "--vip",
            f"{VIP}/24@{CLIENTS.interface}",
            "--fence",
            fence,
            "--monitor",
            str(MONITOR),
            "--dc-deadtime",
            str(DC_DEADTIME),
        )
        self.wait_settled(by_itself=True)
        took = time.monotonic() - began
        self.lab.broker(self.primary(), "declare_queue", name=QUEUE, arguments={})
        return took

    # What Pacemaker says

    def state(self) -> ClusterState | None:
        """Ask Pacemaker on a host that has quorum; None while there is no such host."""
        for name in self.lab.names:
            if self.lab.is_on(name):
                done = self.lab.run(name, "crm_mon", "-1", "--output-as=xml", check=False)
                try:
                    found = read_state(done.stdout)
                except InvalidArgument:
                    continue
                if found.quorate:
                    return found
        return None

    def wait(self, until: Any, what: str = "Pacemaker's cluster") -> None:
        """Wait for a state of Pacemaker's."""
        wait_for(self.state, lambda state: state is not None and until(state), what=what)

    def pcs(self, *words: str) -> str:
        """Run pcs on a host that has quorum."""
        state = self.state()
        assert state is not None, "no host has quorum"
        return self.lab.run(state.controller, "pcs", *words).stdout

    def insist(self, *words: str) -> None:
        """Run pcs until it succeeds: while the membership changes, the host that coordinates may be
        gone, or have no answer.
        """

        def look() -> str:
            try:
                self.pcs(*words)
            except AssertionError as error:
                return str(error)
            return ""

        wait_for(look, lambda error: not error, what=f"pcs {' '.join(words)}")

    def stand_by(self, name: str) -> None:
        """Put a host into standby, and wait until it has no broker."""
        self.lab.run(name, "crm_standby", "--update", "on")
        self.wait(
            lambda state: name not in {instance.node for instance in state.brokers()},
            f"the broker of {name}",
        )

    def restart(self, name: str) -> None:
        """Have a host's broker read its configuration again; wait until it is ready."""
        self.stand_by(name)
        self.unstandby()
        wait_for(
            lambda: self.lab.broker(name, "status").get("state"),
            lambda state: state == "ready",
            what=f"the broker of {name}",
        )

    def unstandby(self) -> None:
        """Let every host that is in standby take part again."""
        state = wait_for(self.state, what="the state")
        assert state is not None
        for node in state.nodes:
            if node.standby:
                self.lab.run(node.name, "crm_standby", "--update", "off")

    def forgive(self) -> None:
        """Have Pacemaker forget what has failed, if anything has: it is started again at once."""
        state = self.state()
        if state is not None and state.failures:
            self.lab.run(state.controller, "crm_resource", "--cleanup", check=False)

    # What the brokers say

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Ask every broker; nothing from those that do not answer."""
        return {name: self.lab.broker(name, "status", timeout=1.0) for name in self.lab.names}

    def primary(self) -> str:
        """Return the host whose broker is active; the highest epoch if two say so."""
        active = [
            (int(found["epoch"]), name)
            for name, found in self.statuses().items()
            if found.get("state") == "active"
        ]
        return max(active, default=(0, ""))[1]

    # Both

    def unsettled(self) -> str:
        """Say why the cluster is not settled; nothing if it is."""
        statuses = self.statuses()
        states = {
            name: (found.get("state", ""), found.get("epoch")) for name, found in statuses.items()
        }
        expected = ["active", *["ready"] * (len(states) - 1)]
        if (
            sorted(state for state, _ in states.values()) != expected
            or len({epoch for _, epoch in states.values()}) > 1
        ):
            return json.dumps(states)
        state = self.state()
        if state is None:
            return "no host has quorum"
        primary = next(name for name, (status, _) in states.items() if status == "active")
        if bad := [
            node.name for node in state.nodes if not node.online or not node.clean or node.standby
        ]:
            return f"{bad} are not online and clean"
        if state.failures:
            return f"failures are noted: {state.failures}"
        instances = {instance.node for instance in state.brokers()}
        if instances != set(self.lab.names):
            return f"Pacemaker has brokers on {sorted(instances)}"
        promoted = [instance.node for instance in state.brokers() if instance.is_primary]
        addresses = [instance.node for instance in state.addresses() if instance.role == "Started"]
        if promoted != [primary] or addresses != [primary]:
            return (
                f"{primary} is active, Pacemaker has promoted {promoted} and the address on "
                f"{addresses}"
            )
        return ""

    def wait_settled(self, *, by_itself: bool = False) -> None:
        """Wait until one broker is active and has the address, all others are ready, and Pacemaker
        sees the same.

        What has failed is forgiven, or else Pacemaker leaves it alone for some time. `by_itself`:
        only once all others are well.
        """
        forgiven = -math.inf

        def look() -> str:
            nonlocal forgiven
            why = self.unsettled()
            may_help = why.startswith("failures") if by_itself else bool(why)
            if may_help and time.monotonic() - forgiven > 1:
                self.forgive()
                forgiven = time.monotonic()
            return why

        wait_for(look, lambda why: not why, what="the cluster")
