"""The commands of `stagehands.py`, and that a play is the same play whatever Python's hashes
are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import LONG_TEST
from tests.scenarios.stage import COMMANDS, PlayError, Stage
from tests.scenarios.test_scenarios import act

ROOT = Path(__file__).parent.parent.parent
ACT = """
from pathlib import Path
from qpidha.store import recovery
from tests.scenarios import stagehands
stagehands.rehearse()
from tests.scenarios.test_scenarios import act
for play in sorted(Path("tests/scenarios").glob("*.txt"))[::3]:
    recovery.CHUNK = stagehands.CHUNK
    print(act(play.name, play.read_text()))
"""


@pytest.mark.timeout(LONG_TEST)
def test_a_play_is_the_same_under_any_hash_seed() -> None:
    # Every third one: all are compared with their texts, each time under a hash seed that nobody
    # chose, in test_scenarios.
    told = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", ACT],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stdout)
    assert 3 * told[0].count("\nbrokers ") >= len(list(Path(__file__).parent.glob("*.txt")))
    assert told[0] == told[1]


def test_an_unknown_command_lists_all_that_exist() -> None:
    with pytest.raises(PlayError) as caught:
        act("x.txt", "brokers a b c\nfly a\n")
    assert str(caught.value).startswith("x.txt:2: fly a: there is no command fly; there are ")
    assert all(
        verb in str(caught.value)
        for verb in ("promote", "publish", "commit", "wipe", "accept-loss")
    )


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("brokers a b c\nwipe a\n", "x.txt:2: wipe a: a runs; crash it first"),
        ("brokers a b c\ncommit q:1\n", "x.txt:2: commit q:1: there is no primary"),
        (
            "brokers a b c\npromote a\ndeclare q\ncommit q:one\n",
            "x.txt:4: commit q:one: one is no number of a message",
        ),
        ("brokers a b c\nlow a yes\n", "x.txt:2: low a yes: there are no disks"),
    ],
)
def test_a_faulty_command_of_a_stagehand_is_named_with_its_file_and_line(
    text: str, where: str
) -> None:
    with pytest.raises(PlayError) as caught:
        act("x.txt", text)
    assert str(caught.value).startswith(where)


def test_no_stagehand_replaces_a_command_of_the_stage() -> None:
    own = {name for name in COMMANDS if hasattr(Stage, name)}
    assert {"brokers", "promote", "publish", "status"} <= own
    assert all(COMMANDS[name] is getattr(Stage, name) for name in own)
