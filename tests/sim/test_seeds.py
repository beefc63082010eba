"""A few hundred histories, played on every change; and that a seed is a history, whatever Python's
hashes are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import LONG_TEST
from tests.sim.__main__ import command, play
from tests.sim.planted_bugs import mix_payloads, payloads_apart, small_parts, small_segments

ROOT = Path(__file__).parent.parent.parent
MODEL_SEEDS, WIRE_SEEDS, BLOCKS = 160, 40, 8

pytestmark = pytest.mark.timeout(LONG_TEST)


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("depth", ["model", "wire"])
def test_no_history_breaks_a_rule(depth: str, block: int) -> None:
    size = (MODEL_SEEDS if depth == "model" else WIRE_SEEDS) // BLOCKS
    for seed in range(block * size, (block + 1) * size):
        result = play(seed, depth)
        assert not result.failure, f"{result.failure}\nreplay: {command(result, '')}"


def test_no_history_with_every_message_in_a_part_of_its_own_breaks_a_rule() -> None:
    with small_parts():
        for seed in range(20):
            result = play(seed, "both")
            assert not result.failure, f"{result.failure}\nseed {seed}, with small_parts()"


def test_no_history_with_every_payload_past_the_engine_breaks_a_rule() -> None:
    with payloads_apart():
        for seed in range(12):
            result = play(seed, "wire")
            assert not result.failure, f"{result.failure}\nseed {seed}, with payloads_apart()"
    with mix_payloads():
        assert any(play(seed, "wire").failure for seed in range(12))


@pytest.mark.parametrize("depth", ["model", "wire"])
def test_no_history_breaks_a_rule_with_all_messages_packed(depth: str) -> None:
    with small_segments():
        for seed in range(MODEL_SEEDS // BLOCKS if depth == "model" else WIRE_SEEDS // BLOCKS):
            result = play(seed, depth)
            assert not result.failure, f"{result.failure}\nreplay: {command(result, '')}"


@pytest.mark.parametrize("depth", ["model", "wire"])
def test_a_seed_is_the_same_history_under_any_hash_seed(depth: str) -> None:
    hashes = []
    for hash_seed in ("1", "2"):
        code = (
            "from tests.sim.__main__ import play\nfor seed in range(4): print(play(seed, "
            f"{depth!r}).trace_hash)"
        )
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        hashes.append(done.stdout.split())
    assert len(hashes[0]) == 4
    assert hashes[0] == hashes[1]


def test_another_seed_is_another_history() -> None:
    assert play(1, "model").trace_hash != play(2, "model").trace_hash
