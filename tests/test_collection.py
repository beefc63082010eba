"""In which order tests are found and run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def collected(*words: str) -> str:
    """Return what pytest says of these files without running a test."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_file_named_between_two_of_a_folder_leaves_both_their_fixtures() -> None:
    folder = "tests/system"
    collected(
        "--setup-plan",
        f"{folder}/test_auth.py",
        "tests/test_lab_hosts.py",
        f"{folder}/test_history.py",
    )


def test_what_stays_in_one_worker_begins_first_and_quick_tests_come_last() -> None:
    names = ("tests/model/test_ip.py", "tests/agents/test_rgmanager.py", "tests/test_site.py")
    said = collected("--collect-only", *names, "tests/lab/test_sampling.py").splitlines()
    first = {name: said.index(next(line for line in said if name in line)) for name in names}
    lab = said.index(next(line for line in said if "tests/lab" in line))
    assert lab < first[names[2]] < first[names[1]] < first[names[0]]
