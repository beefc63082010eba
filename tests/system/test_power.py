"""The power cut of the tests cuts what it should: what was synced stays, what was not goes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from tests.system.power import cut_power

WRITES = """
import os, sys
from pathlib import Path
from tests.system.power import Recorder
place = Path(sys.argv[1])
Recorder(place).install()
def folder():
    number = os.open(place, os.O_RDONLY); os.fsync(number); os.close(number)
file = os.open(place / "kept", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(file, b"synced"); os.fdatasync(file); folder()
os.write(file, b" and not synced")
def made(name, text):
    file = os.open(place / name, os.O_WRONLY | os.O_CREAT)
    os.write(file, text)
    os.fsync(file)
made("removed", b"back")
folder()
os.unlink(place / "removed")
made("nameless", b"x")
"""


def _written(place: Path) -> Path:
    place.mkdir()
    subprocess.run(
        [sys.executable, "-c", WRITES, str(place)],
        check=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": "."},
    )
    return place


def test_what_was_synced_remains_and_what_was_not_is_gone(tmp_path):
    place = _written(tmp_path / "data")
    cut_power(place)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == {
        "kept": b"synced",
        "removed": b"back",
    }


def test_a_torn_cut_keeps_at_least_what_was_synced(tmp_path):
    for seed in range(3):
        place = _written(tmp_path / f"data{seed}")
        cut_power(place, random.Random(seed))
        kept = (place / "kept").read_bytes()
        assert kept.startswith(b"synced") and len(kept) <= len(b"synced and not synced")
