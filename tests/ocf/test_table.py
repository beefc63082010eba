"""Every state and every action of the agents: the exit code of the table, a reason for each
failure, and nothing deleted.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ocf.node import Done, Node, wait_for
from tests.ocf.table import BROKER, BROKER_ACTIONS, PRIMARY, QPIDD, QPIDD_ACTIONS, Row

LOOKS = {"probe", "monitor", "monitor, promoted", "validate-all", "notify"}
NO_REASON = {0, 7, 8, 191}
PATIENT = {"answer": 5, "term": 5}
IMPATIENT = {"answer": 0.3, "term": 0.5}
"""For brokers that do not answer, or not as they should."""
UNWILLING = {"deaf", "nonsense", "keeps"}


def arrange(node: Node, row: Row, agent: str = "broker") -> dict[str, object]:
    """Bring the state about; return what the call of the agent is to be given."""
    node.close()
    wait_for(node.processes, lambda found: not found)
    hangs = row.deed in ("SIGSTOP", "unlink socket") or row.told.keys() & UNWILLING
    given: dict[str, object] = dict(IMPATIENT if hangs else PATIENT)
    config = Path(node.parameters["config"])
    config.write_text(f"data-dir={node.data}\n")
    program = Path(node.parameters["binary"])
    program.chmod(0o755)
    node.pid_file.unlink(missing_ok=True)
    node.tell(**({} if row.runs else row.told))
    (node.data / "keep").write_text("never deleted")
    if row.runs:
        done = node.run(agent, "start")
        assert done.code == 0, done
        if row.told:
            node.tell(**row.told)
    if row.deed == "foreign pid":
        node.pid_file.parent.mkdir(exist_ok=True)
        node.pid_file.write_text(f"{os.getpid()} 1 {node.socket}\n")
    elif row.deed == "SIGSTOP":
        os.kill(node.pid(), signal.SIGSTOP)
    elif row.deed == "unlink socket":
        node.socket.unlink()
    elif row.deed == "unlink configuration":
        config.unlink()
    elif row.deed == "unlink program":
        given["binary"] = f"{program}.missing"
    elif row.deed == "wrong parameter":
        given["term"] = "soon"
    elif row.deed == "nobody":
        given["user"] = "nobody"
    return given


def call(node: Node, agent: str, action: str, given: dict[str, object]) -> Done:
    """Call the agent as the table's column says."""
    user = given.pop("user", None) if os.geteuid() == 0 else None
    how: dict[str, object] = {
        "probe": {"interval": 0},
        "monitor, promoted": {"role": "Promoted"},
    }.get(action, {})  # type: ignore[assignment]
    verb = {"probe": "monitor", "monitor, promoted": "monitor"}.get(action, action)
    return node.run(agent, verb, user=user, **{**given, **how})  # type: ignore[arg-type]


def check(
    node: Node,
    agent: str,
    row: Row,
    actions: tuple[str, ...],
    prepare: Callable[[], dict[str, object]],
) -> None:
    """Compare every cell of a row; what only looks is called on one and the same state."""
    found, given = [], prepare()
    changed = False
    for action, code in zip(actions, row.codes.split(), strict=True):
        if changed:
            given = prepare()
        done = call(node, agent, action, dict(given))
        changed = action not in LOOKS
        found.append(str(done.code))
        assert bool(done.reason) == (done.code not in NO_REASON), (action, code, done)
        assert (node.data / "keep").read_text() == "never deleted", action
    assert dict(zip(actions, found, strict=True)) == dict(
        zip(actions, row.codes.split(), strict=True)
    )


def needs_root(row: Row) -> None:
    if row.deed == "nobody" and os.geteuid() != 0:
        pytest.skip("only root can become nobody")


@pytest.mark.parametrize("row", BROKER, ids=lambda row: row.state)
def test_the_broker_agent(node: Node, row: Row) -> None:
    needs_root(row)
    check(node, "broker", row, BROKER_ACTIONS, lambda: arrange(node, row))


@pytest.mark.parametrize("row", QPIDD, ids=lambda row: row.state)
def test_the_qpidd_agent(node: Node, row: Row) -> None:
    node.name = "qpidd"
    check(node, "qpidd", row, QPIDD_ACTIONS, lambda: arrange(node, row, "qpidd"))


@pytest.mark.parametrize("row", PRIMARY, ids=lambda row: row.state)
def test_the_qpidd_primary_agent(node: Node, row: Row) -> None:
    node.name = "qpidd"

    def prepare() -> dict[str, object]:
        return arrange(node, row, "qpidd")

    check(node, "qpidd-primary", row, QPIDD_ACTIONS, prepare)
