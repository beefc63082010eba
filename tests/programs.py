"""Programs that start in a fraction of their time, for tests that call them again and again.

How a program starts is tested elsewhere; see tests/program_server.py for how these do.
"""

from __future__ import annotations

import atexit
import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.system.forked import die_with_parent

HERE = Path(__file__).parent


@functools.cache
def fast(
    name: str, modules: Sequence[str], python: Sequence[str] = (), way_in: Sequence[str] = ()
) -> Path:
    """Return a program that is `main` of the first of these modules, all of them imported already,
    under this Python, which is run through `way_in`.
    """
    folder = Path(tempfile.mkdtemp(prefix="qpidha-fast-"), name)
    folder.mkdir()
    folder.parent.chmod(0o755)  # Other users see that the program is there.
    server = subprocess.Popen(
        [
            *(*way_in, *(python or (sys.executable,)), str(HERE / "program_server.py")),
            *(str(folder / "socket"), *modules),
        ],
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n", f"{modules} cannot be served"

    def close() -> None:
        server.kill()
        server.communicate()
        shutil.rmtree(folder.parent)

    atexit.register(close)
    command = [sys.executable, "-IS", str(HERE / "program_call.py"), str(folder / "socket")]
    program = folder / name
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    return program


def fast_qpid_ha() -> Path:
    """Return a `qpid-ha` that has imported what most commands need."""
    commands = ("observe", "operate", "objects")
    modules = ("qpidha.cli.main", "qpidha.cli.app", "qpidha.client.command.output")
    return fast("qpid-ha", (*modules, *(f"qpidha.cli.broker.{name}" for name in commands)))
