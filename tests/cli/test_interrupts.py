"""Interrupts that come at any moment."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from tests.documents import ROOT
from tests.patience import STATE

SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
STARTED = """
import os, signal, sys
from importlib import import_module

class Interrupted:
    def find_spec(self, name, path, target=None):
        if name.startswith("qpidha.client") or name.startswith("qpidha.runtime"):
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupted())
module, function = sys.argv.pop(1).split(":")
sys.exit(getattr(import_module(module), function)())
"""

PROGRAM = """
import os, signal, threading
from qpidha.cli.verification.interrupts import Interrupts

interrupts = Interrupts()
assert not interrupts.wait(0)
over = threading.Event()

def interrupt():
    for _ in range(3000):
        os.kill(os.getpid(), signal.SIGINT)
    over.set()

threading.Thread(target=interrupt).start()
interrupts.wait(10**6)
while not over.is_set():
    assert interrupts.wait(0)
"""


def test_an_interrupt_in_the_middle_of_a_wait_ends_it() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=STATE)


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_interrupt_while_a_program_is_imported_ends_it_without_a_traceback(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTED, SCRIPTS[name], "--help"],
        capture_output=True,
        text=True,
        timeout=STATE,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
