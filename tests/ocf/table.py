"""What the agents answer: state x action -> exit code, as the tests check it and docs/ocf.md shows
it.

`python -m tests.ocf.table` prints the tables for the document.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """A state: its words for the document, how the test brings it about, and an exit code an
    action.
    """

    state: str
    codes: str
    """In the order of the table's actions, `-` for one that is not looked at."""
    runs: bool = True
    """Whether the daemon is started first."""
    told: dict[str, Any] = field(default_factory=dict)
    """What the stand-in daemon is told, after its start if it runs."""
    deed: str = ""
    """What is done to it then."""


BACKUP = [{"state": "active"}, {"state": "ready"}]
BROKER_ACTIONS = (
    "probe",
    "monitor",
    "monitor, promoted",
    "start",
    "promote",
    "demote",
    "stop",
    "validate-all",
    "notify",
)
BROKER = (
    Row("not running", "7 7 7 0 7 7 0 0 0", runs=False),
    Row(
        "not running, and its pid file has the pid of another process",
        "7 7 7 0 7 7 0 0 0",
        runs=False,
        deed="foreign pid",
    ),
    Row("joining", "0 0 0 0 0 0 0 0 0", told={"state": "joining"}),
    Row("catchup", "0 0 0 0 0 0 0 0 0", told={"state": "catchup"}),
    Row("ready", "0 0 0 0 0 0 0 0 0", told={"state": "ready"}),
    Row(
        "a backup that refuses its promotion",
        "0 0 0 0 1 0 0 0 0",
        told={"state": "ready", "refuse": "b2 has more"},
    ),
    Row("recovering", "8 191 191 0 0 0 0 0 0", told={"state": "recovering"}),
    Row(
        "active, no backup ready",
        "8 191 191 0 0 0 0 0 0",
        told={"state": "active", "members": BACKUP[:1]},
    ),
    Row("active", "8 8 8 0 0 0 0 0 0", told={"state": "active", "members": BACKUP}),
    Row(
        "active, and cannot be demoted",
        "8 191 191 0 0 7 0 0 0",
        told={"state": "active", "keeps": True},
    ),
    Row("standalone", "2 2 2 2 2 0 0 0 0", told={"state": "standalone"}),
    Row("hangs (SIGSTOP)", "1 1 9 1 1 7 0 0 0", deed="SIGSTOP"),
    Row("hangs (takes connections, never answers)", "1 1 9 1 1 7 0 0 0", told={"deaf": True}),
    Row(
        "half-dead (the process lives, its admin socket is gone)",
        "1 1 9 1 1 7 0 0 0",
        deed="unlink socket",
    ),
    Row("answers nonsense", "1 1 9 1 1 7 0 0 0", told={"nonsense": True}),
    Row(
        "lives, and its configuration file is gone",
        "0 0 0 2 0 0 0 2 0",
        deed="unlink configuration",
    ),
    Row(
        "not running, no configuration file",
        "7 7 7 2 7 7 0 2 0",
        runs=False,
        deed="unlink configuration",
    ),
    Row("not running, wrong configuration", "7 7 7 2 7 7 0 2 0", runs=False, told={"exit": 78}),
    Row(
        "not running, the daemon may not open its files",
        "7 7 7 4 7 7 0 4 0",
        runs=False,
        told={"exit": 77},
    ),
    Row("not running, its port is taken", "7 7 7 1 7 7 0 1 0", runs=False, told={"exit": 69}),
    Row(
        "not running, its program is missing",
        "7 7 7 5 7 7 0 5 0",
        runs=False,
        deed="unlink program",
    ),
    Row(
        "not running, a parameter of the resource is wrong",
        "7 7 7 6 7 7 0 6 0",
        runs=False,
        deed="wrong parameter",
    ),
    Row(
        "not running, the agent is run as `nobody`", "7 7 7 4 4 4 0 0 0", runs=False, deed="nobody"
    ),
    Row("runs, the agent is run as `nobody`", "4 4 4 4 4 4 4 0 0", deed="nobody"),
)
QPIDD_ACTIONS = ("probe", "monitor", "start", "stop", "validate-all")
QPIDD = (
    Row("not running", "7 7 0 0 0", runs=False),
    Row("backup", "0 0 0 0 0", told={"state": "ready"}),
    Row("primary", "0 0 0 0 0", told={"state": "active"}),
    Row("standalone", "2 2 2 0 0", told={"state": "standalone"}),
    Row("hangs", "1 1 1 0 0", deed="SIGSTOP"),
    Row("not running, wrong configuration", "7 7 2 0 2", runs=False, told={"exit": 78}),
)
PRIMARY = (
    Row("no broker runs here", "7 7 1 0 0", runs=False),
    Row("backup", "7 7 0 0 0", told={"state": "ready"}),
    Row(
        "a backup that refuses its promotion",
        "7 7 1 0 0",
        told={"state": "ready", "refuse": "b2 has more"},
    ),
    Row("recovering", "0 0 0 0 0", told={"state": "recovering"}),
    Row("active", "0 0 0 0 0", told={"state": "active"}),
    Row("active, and cannot be demoted", "0 0 0 0 0", told={"state": "active", "keeps": True}),
    Row("hangs", "1 1 1 0 0", deed="SIGSTOP"),
)
VIP_ACTIONS = ("probe", "monitor", "start", "stop", "validate-all")
VIP = (
    Row("the address is not here", "7 7 0 0 0", deed="absent"),
    Row("the address is here", "0 0 0 0 0", deed="present"),
    Row("it is here, the interface has no link", "0 1 1 0 0", deed="present, down"),
    Row("it is here, no link, check_link=no", "0 0 0 0 0", deed="present, down, unchecked"),
    Row(
        "it is not here, the watch refuses it: the broker is not primary",
        "7 7 1 0 0",
        deed="refused",
    ),
    Row("it is here, the watch refuses it", "0 0 1 0 0", deed="present, refused"),
    Row("it is not here, no watch, no permission", "7 7 1 0 0", deed="no watch, broken tool"),
    Row("it is here, and cannot be removed", "0 0 0 1 0", deed="present, broken tool"),
    Row("it is not here, there is no such interface", "7 7 1 0 1", deed="no interface"),
    Row(
        "it is here; ip is right, cidr_netmask is wrong", "6 6 6 0 6", deed="present, wrong prefix"
    ),
    Row(
        "it is here; ip is right, check_link is wrong",
        "6 6 6 0 6",
        deed="present, wrong check_link",
    ),
    Row("it is not here, ip is no address", "6 6 6 0 6", deed="wrong address"),
)
TABLES = {
    "broker": (BROKER_ACTIONS, BROKER),
    "vip": (VIP_ACTIONS, VIP),
    "qpidd": (QPIDD_ACTIONS, QPIDD),
    "qpidd-primary": (QPIDD_ACTIONS, PRIMARY),
}


def render(agent: str) -> str:
    """Write a table in Markdown."""
    actions, rows = TABLES[agent]
    lines = [f"| `{agent}` | " + " | ".join(actions) + " |", "|---" + "|:-:" * len(actions) + "|"]
    return "\n".join(
        [*lines, *(f"| {row.state} | " + " | ".join(row.codes.split()) + " |" for row in rows)]
    )


if __name__ == "__main__":
    print("\n\n".join(render(agent) for agent in TABLES))
