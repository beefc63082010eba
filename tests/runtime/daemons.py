"""Daemons as processes of their own, for tests of how they start and end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.patience import STATE

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "qpidha.runtime.daemon", "--interface", "127.0.0.1"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("QPID")} | {
    "PYTHONPATH": str(ROOT)
}


NAMING = ("--data-dir", "--config", "--no-data-dir")
"""Options that say where a daemon has its data; one that is given none of them is to have none."""


class Running:
    """A daemon that serves."""

    def __init__(self, *options, env=ENVIRONMENT):
        words = [str(option) for option in options]
        if not any(word.partition("=")[0] in NAMING for word in words):
            words.append("--no-data-dir")
        self.process = subprocess.Popen(
            [*COMMAND, "--port", "0", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        self.port = int(self.process.stdout.readline() or 0)

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.process.kill()
        self.process.communicate()

    def end(self, number):
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=STATE)
        return self.process.returncode, log


def run(*options, python=()):
    done = subprocess.run(
        [COMMAND[0], *python, *COMMAND[1:], *map(str, options)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=STATE,
    )
    return done.returncode, done.stdout, done.stderr
