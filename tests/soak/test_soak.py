"""A few seconds of the soak pass on the real brokers, and fail on brokers that forget what they
accepted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import LONG_TEST

pytestmark = [pytest.mark.timeout(LONG_TEST)]

LOSSY = """
import sys
from qpidha.broker.queues.queue import Queue
from qpidha.runtime.daemon import main
enqueue, count = Queue.enqueue, 0
def lossy(self, *arguments, **options):
    global count
    count += 1
    return 0 if count % 100 == 0 else enqueue(self, *arguments, **options)
Queue.enqueue = lossy
sys.exit(main(sys.argv[1:]))
"""
"""A broker that accepts every hundredth message and forgets it."""


def soaked(directory: Path, *words: str) -> tuple[int, dict[str, object]]:
    command = [
        sys.executable,
        "-m",
        "tests.soak",
        "--minutes",
        "0.1",
        "--seed",
        "11",
        "--dir",
        str(directory),
        *words,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_short_soak_loses_nothing(tmp_path: Path) -> None:
    code, summary = soaked(tmp_path / "soak")
    assert summary["passed"] and code == 0, summary
    counts = summary["counts"]
    assert isinstance(counts, dict) and counts["accepted"] > 100 and counts["lost"] == 0


def test_brokers_that_forget_are_found_out(tmp_path: Path) -> None:
    (tmp_path / "lossy.py").write_text(LOSSY)
    code, summary = soaked(tmp_path / "soak", "--daemon", str(tmp_path / "lossy.py"))
    counts = summary["counts"]
    assert code == 1 and isinstance(counts, dict) and counts["lost"] > 0
