"""Interrupts that come at any moment."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import STATE

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
