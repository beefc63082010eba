"""`python -m tests.lab.verify MINUTES DIR`: `qpid-ha verify run` with clients at the switch and
brokers under Pacemaker, and the verdict.

The lab that is up is used as it is, else one is brought up, and ended again. The run does its
faults by `python -m tests.lab.verify start|stop off|cut ADDRESS`.
"""

from __future__ import annotations

import subprocess
import sys

from qpidha.manager.builtin.credentials import PROGRAMS
from tests.lab.cluster import LabCluster
from tests.lab.hosts import CLIENTS, PORT, ROOT, SWITCH, credentials
from tests.lab.lab import Lab, why_not

COMMAND = (sys.executable, "-m", "qpidha.cli.main")
EVENTS = "/var/lib/qpidha/events"


def main(words: list[str]) -> int:
    """Do a fault, or a whole run; return the exit code."""
    if words[0] in ("start", "stop"):
        fault(*words)
        return 0
    if reason := why_not():
        print(reason, file=sys.stderr)
        return 1
    found = Lab.running()
    lab = found or Lab.up()
    try:
        if found is None:
            LabCluster(lab).start()
        ran = subprocess.run(run_command(lab, words[0], words[1]), cwd=ROOT, check=False)
        events = [path for name in lab.names if (path := lab.disk(name, EVENTS)).exists()]
        check = [*COMMAND, "pipeline", "check", words[1], *map(str, events), "--engine", "python"]
        return subprocess.run(check, cwd=ROOT, check=False).returncode or ran.returncode
    finally:
        if found is None:
            lab.down()


def run_command(lab: Lab, minutes: str, directory: str) -> list[str]:
    """Write the command line of a run, as the switch has it."""
    files = credentials()
    is_secure = files.folder.exists()
    scheme = "amqps" if is_secure else "amqp"
    brokers = ",".join(f"{scheme}://{CLIENTS.address(name)}:{PORT}" for name in lab.names)
    hook = f"{sys.executable} -m tests.lab.verify"
    command = ["ip", "netns", "exec", SWITCH, *COMMAND, "verify", "run", "--brokers", brokers]
    command += ["--faults", "off,cut", "--fault-command", hook]
    command += ["--minutes", minutes, "--out", directory]
    if is_secure:
        password = str(files.password_file(PROGRAMS))
        command += ["--ssl-trusted", str(files.trusted), "--user", PROGRAMS]
        command += ["--password-file", password]
    return command


def fault(step: str, kind: str, address: str) -> None:
    """Cut the power or the cables of the host at an address, or undo it."""
    lab = Lab.running()
    assert lab is not None, "no lab is running here"
    name = next(each for each in lab.names if address == f"{CLIENTS.address(each)}:{PORT}")
    if kind == "off":
        (lab.off if step == "start" else lab.on)(name)
    elif step == "start":
        lab.cut(name)
    else:
        lab.heal()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
