"""`python -m tests.lab up|down|on HOST|off HOST|cut HOST|heal|exec HOST [COMMAND...]`: the lab by
hand.

`cut` pulls no cable: nothing passes between that host and the others, but clients still reach it.
`exec switch` is where they are.
"""

from __future__ import annotations

import os
import sys
import time

from qpidha.manager.builtin.credentials import PROGRAMS
from tests.lab.cluster import LabCluster
from tests.lab.hosts import NAMES, SWITCH, VIP, credentials
from tests.lab.lab import ENVIRONMENT, Lab, why_not
from tests.lab.traffic import address

UP = f"""The lab is up: {", ".join(NAMES)} run Pacemaker and a broker; {VIP} follows the primary.
  make lab-exec HOST=ha1 COMMAND='pcs status'     a command in a host; without COMMAND a shell
  make lab-exec HOST=switch COMMAND='%s'     where clients are
  .venv/bin/python -m tests.lab off ha1           cut its power; also: on, cut (its networks), heal
  make lab-test                                   play the scenarios on it
  make lab-down                                   the end"""


def main(words: list[str]) -> int:
    """Do one command."""
    action, *rest = words or ["help"]
    if action == "up":
        return up()
    lab = Lab.running()
    if lab is None:
        print("no lab is running here: 'make lab' brings one up, as root", file=sys.stderr)
        return 1
    if action == "exec" and rest:
        command = rest[1:] or ["bash"]
        full = (
            ["ip", "netns", "exec", SWITCH, *command]
            if rest[0] == "switch"
            else lab.enter(rest[0], command)
        )
        os.execvpe(full[0], full, {**ENVIRONMENT, "TERM": os.environ.get("TERM", "dumb")})
    if action in ("on", "off", "cut") and len(rest) == 1:
        getattr(lab, action)(rest[0])
    elif action in ("heal", "down") and not rest:
        getattr(lab, action)()
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


def up() -> int:
    """Bring the lab up with a cluster, and leave it running."""
    if reason := why_not():
        print(reason, file=sys.stderr)
        return 1
    began = time.monotonic()
    try:
        lab = Lab.up(stay=True)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    LabCluster(lab).start()
    print(UP % ask_primary())
    print(f"That took {time.monotonic() - began:.0f} s; disks and logs are in {lab.folder}.")
    return 0


def ask_primary() -> str:
    """Return a command for the switch that shows the primary's status."""
    files = credentials()
    options = ""
    if files.folder.exists():
        password = files.password_file(PROGRAMS)
        options = f" --ssl-trusted {files.trusted} --user {PROGRAMS} --password-file {password}"
    return f".venv/bin/qpid-ha -b {address()}{options} status"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
