"""Pacemaker's tools for tests: the real pcs where only it sees our agents, and pretended tools that
write down their calls.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.programs import fast

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = Path(__file__).parent / "pacemaker"
"""What crm_mon and cibadmin of Pacemaker 2.1.5 wrote on three real nodes."""
PATIENCE = 150
"""Seconds that a command may take: one that applies a plan starts pcs twenty times."""
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
ROOM = """set -e
mount -t tmpfs tmpfs /mnt
for provider in /usr/lib/ocf/resource.d/*; do
    mkdir -p /mnt/${provider##*/}
    mount --bind $provider /mnt/${provider##*/}
done
mkdir -p /mnt/qpidha
mount --bind $1 /mnt/qpidha
mount --rbind /mnt /usr/lib/ocf/resource.d
shift
exec "$@"
"""
"""In a mount namespace of its own: the agents of the source tree where Pacemaker looks for them."""
WAY_IN = (
    *("unshare", "--mount", "--propagation", "private"),
    *("sh", "-c", ROOM, "room", str(ROOT / "ocf")),
)
PCS = """#!/bin/sh
# The cluster's configuration is a file; all else is done by the real pcs.
echo "$*" >>"$STORE.calls"
case "$1 $2" in
"cluster cib") cp "$STORE" "$3" ;;
"cluster cib-push") cp "$3" "$STORE" ;;
*) exec /usr/sbin/pcs "$@" ;;
esac
"""
TOOL = """#!/bin/sh
echo "${0##*/} $*" >>"$CALLS"
cat "$ANSWERS/${0##*/}" 2>/dev/null
exit 0
"""


def need(*tools: str) -> None:
    """Skip where the tools or the rights are missing."""
    for tool in tools:
        if shutil.which(tool, path=SYSTEM_PATH) is None:
            pytest.skip(f"{tool} is not installed")
    if os.geteuid() != 0:
        pytest.skip("a mount namespace needs root")
    if (
        subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode
        != 0
    ):
        pytest.skip("mount namespaces are not allowed here")


def in_room(words: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command where our agents are installed."""
    return subprocess.run(
        [*WAY_IN, *words],
        env={"PATH": SYSTEM_PATH, "LC_ALL": "C.UTF-8", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def real_pcs() -> str:
    """Return a program that is the real pcs where our agents are installed, and starts fast."""
    return str(fast("pcs", ("pcs.app",), ("/usr/bin/python3", "-Es"), WAY_IN))


class Tools:
    """Pretended tools on the PATH: each says what a file of its name holds, and writes down how it
    was called.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "tools"
        self.answers = folder / "answers"
        self.log = folder / "calls"
        self.log.touch()
        for place in (self.folder, self.answers):
            place.mkdir()
        monkeypatch.setenv("PATH", str(self.folder), prepend=os.pathsep)
        monkeypatch.setenv("CALLS", str(self.log))
        monkeypatch.setenv("ANSWERS", str(self.answers))

    def add(self, name: str, says: str = "", program: str = TOOL) -> None:
        """Put a tool there."""
        (self.answers / name).write_text(says)
        path = self.folder / name
        path.write_text(program)
        path.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        """What a tool was asked."""
        return [
            line.partition(" ")[2]
            for line in self.log.read_text().splitlines()
            if line.partition(" ")[0] == name
        ]
