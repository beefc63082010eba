"""Nodes for the tests of the agents: agents as they are installed, and stand-ins for what a test
does not need for real.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ocf.host import Host
from tests.ocf.node import AGENTS, HERE, NODE_PYTHON, ROOT, Node, script


@pytest.fixture(scope="session")
def agents() -> Iterator[Path]:
    """The agents as `install-agents` leaves them, where also nobody can read them."""
    if not NODE_PYTHON.exists():
        pytest.skip("the agents need /usr/bin/python3")
    with tempfile.TemporaryDirectory(prefix="qpidha-ocf-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        places = {"agents": root / "resource.d/qpidha", "library": root / "lib/qpidha"}
        for place in places.values():
            place.mkdir(parents=True)
        for path in (ROOT / "ocf").iterdir():
            if path.name in AGENTS:
                shutil.copy(path, places["agents"])
                assert path.stat().st_mode & stat.S_IXOTH, path
            elif path.suffix == ".py":
                shutil.copy(path, places["library"])
        for path in HERE.glob("stand_in_*.py"):
            shutil.copy(path, root)
        yield places["agents"]


@pytest.fixture
def make_node(agents: Path) -> Iterator[Callable[..., Node]]:
    """Return a function that makes a node; its brokers are stand-ins unless it is told `real=True`
    with options.
    """
    made: list[Node] = []
    with tempfile.TemporaryDirectory(prefix="qpidha-ocf-") as folder:
        os.chmod(folder, 0o755)

        def make(*, real: bool = False, **options: object) -> Node:
            directory = Path(folder) / f"n{len(made)}"
            tools = directory / "bin"
            tools.mkdir(parents=True)
            for name in ("crm_attribute", "attrd_updater", "crm_resource", "crm_node"):
                (tools / name).write_text('#!/bin/sh\necho "${0##*/} $*" >>"$RECORD"\n')
                (tools / name).chmod(0o755)
            stand_ins = agents.parent.parent
            daemon = (
                (sys.executable, "-m", "qpidha.runtime.daemon")
                if real
                else (NODE_PYTHON, "-IS", stand_ins / "stand_in_daemon.py")
            )
            lines = {
                "auth": "no",
                "data-dir": directory / "data",
                **{name.replace("_", "-"): value for name, value in options.items()},
            }
            config = directory / "qpidha.conf"
            config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
            parameters = {
                # Of a broker that is well; a test of one that hangs asks for less.
                "answer": 10,
                "config": config,
                "binary": script(tools / "qpidhad", *daemon),
                "watch": script(
                    tools / "qpidha-watch", NODE_PYTHON, "-IS", stand_ins / "stand_in_watch.py"
                ),
                "rundir": directory / "run",
            }
            environment = {
                "PATH": f"{tools}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "PYTHONDONTWRITEBYTECODE": "1",
                "OCF_ROOT": str(agents.parent.parent),
                "RECORD": str(directory / "calls"),
            }
            node = Node(
                directory,
                agents,
                environment,
                {name: str(value) for name, value in parameters.items()},
            )
            node.data.mkdir()
            made.append(node)
            return node

        yield make
        for node in made:
            node.close()


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    """A node with the stand-in daemon."""
    return make_node()


@pytest.fixture
def host() -> Iterator[Host]:
    if (
        os.geteuid() != 0
        or shutil.which("nsenter") is None
        or subprocess.run(["unshare", "--net", "true"]).returncode
    ):
        pytest.skip("needs root and network namespaces")
    host = Host()
    yield host
    host.close()
