"""ocf-tester, the checker of the package resource-agents, passes all agents."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.ocf.node import Node
from tests.patience import LONG_TEST
from tests.system.cluster import held_ports

TESTER = shutil.which("ocf-tester", path=f"{os.environ['PATH']}:/usr/sbin")


@pytest.fixture
def real(make_node: Callable[..., Node]) -> Iterator[Node]:
    """A node whose one broker is a whole cluster."""
    if TESTER is None or os.geteuid() != 0 or shutil.which("xmllint") is None:
        pytest.skip("needs root and the packages resource-agents and libxml2-utils")
    with held_ports(1) as (port,):
        yield make_node(
            real=True,
            ha_cluster="yes",
            ha_brokers_url=f"127.0.0.1:{port}",
            port=port,
            interface="127.0.0.1",
        )


def checked(node: Node, agent: str, parameters: dict[str, str]) -> str:
    """Run ocf-tester; return what it says."""
    given = [word for name, value in parameters.items() for word in ("-o", f"{name}={value}")]
    command = [
        *map(str, node.inside),
        str(TESTER),
        "-n",
        node.name,
        *given,
        str(node.agents / agent),
    ]
    environment = {**node.environment, "PATH": f"{node.environment['PATH']}:/usr/sbin"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LONG_TEST
    ).stdout


@pytest.mark.parametrize("agent", ["broker", "qpidd"])
def test_the_agents_of_brokers(real: Node, agent: str) -> None:
    said = checked(real, agent, real.parameters)
    assert "passed all tests" in said, said
    assert not real.processes()


def test_the_agent_of_the_role(real: Node) -> None:
    real.name = "qpidd"
    assert real.run("qpidd", "start").code == 0
    parameters = {name: real.parameters[name] for name in ("config", "rundir")}
    said = checked(real, "qpidd-primary", parameters)
    assert "passed all tests" in said, said


def test_the_agent_of_the_address(real: Node) -> None:
    if subprocess.run(["unshare", "--net", "true"]).returncode:
        pytest.skip("needs network namespaces")
    tool = real.directory / "bin" / "qpid-ha"
    tool.write_text(
        '#!/bin/sh\ncase $2 in add) ip address add "$3" dev "$5" ;; *) ip address del '
        '"$3/24" dev d0 ;; esac\n'
    )
    tool.chmod(0o755)
    cable = (
        "ip link add d0 type veth peer name p0 && ip link set p0 up && ip link set d0 up && "
        "ip address add 10.99.0.1/24 dev d0"
    )
    real.inside = ["unshare", "--net", "sh", "-c", f'{cable} && exec "$0" "$@"']
    parameters = {
        "ip": "10.99.0.100",
        "cidr_netmask": "24",
        "qpid_ha": str(tool),
        "watch_socket": str(real.directory / "none"),
    }
    said = checked(real, "vip", parameters)
    assert "passed all tests" in said, said
