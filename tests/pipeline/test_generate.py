"""What the generator plants is found with the exact numbers, from files too, however the files are
cut and mixed.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from qpidha.pipeline.checks import CHECK, Settings
from qpidha.pipeline.events import Event
from qpidha.pipeline.generate.histories import BY_BROKERS, EFFECTS, Plan, events, expected, write
from qpidha.pipeline.oracle.engine import check, check_paths
from qpidha.pipeline.verdict import Verdict
from tests.pipeline.builders import EVERYTHING


def assert_found(verdict: Verdict, plan: Plan) -> None:
    for name, numbers in expected(plan).items():
        assert {key: verdict[name].counts[key] for key in numbers} == numbers, name


@pytest.fixture(scope="module")
def everything() -> list[Event]:
    return list(events(EVERYTHING))


@pytest.mark.parametrize("anomaly", EFFECTS)
def test_each_anomaly_alone_is_found_and_nothing_else(anomaly: str) -> None:
    plan = Plan(messages=640, seed=len(anomaly), plant={anomaly: 2}, brokers=anomaly in BY_BROKERS)
    assert_found(check(events(plan)), plan)


def test_a_history_without_anomalies_is_valid() -> None:
    verdict = check(events(Plan(messages=200, brokers=True, locks=2, holds=10)))
    assert verdict.valid is True and verdict.exit_code == 0, [
        each.reasons for each in verdict.checks
    ]
    assert all(each.applies for each in verdict.checks if each.name != "redelivery")


def test_all_anomalies_together_are_found(everything: list[Event]) -> None:
    verdict = check(everything)
    assert_found(verdict, EVERYTHING)
    invalid = {each.name for each in verdict.checks if each.valid is False}
    assert invalid == {"total-queue", "order", "mutex", "accepted-before-safe", "primaries"}
    for each in verdict.checks:
        assert set(each.counts) == {name for name, _ in CHECK[each.name].counts}, each.name


def test_other_seeds_plant_as_many_elsewhere() -> None:
    for seed in range(5):
        plan = Plan(
            messages=1200,
            seed=seed,
            queues=3,
            producers=5,
            plant={"lost": 2, "reorder": 3, "pause": 1, "dup": 2},
        )
        assert_found(check(events(plan)), plan)


def test_files_cut_mixed_and_copied_give_the_same_verdict(
    everything: list[Event], tmp_path: Path
) -> None:
    direct = {each.name: each for each in check(everything).checks}
    shuffled = list(everything)
    random.Random(1).shuffle(shuffled)
    assert write(EVERYTHING, tmp_path / "one") == len(everything)
    write(EVERYTHING, tmp_path / "many", segment_bytes=100)
    shutil.copytree(tmp_path / "many", tmp_path / "many" / "copy")
    for verdict in (
        check(shuffled),
        check_paths([tmp_path / "one"]),
        check_paths([tmp_path / "many"]),
    ):
        for each in verdict.checks:
            if each.name != "evidence":
                assert each == direct[each.name]
        assert verdict["evidence"].valid is True


def test_the_same_plan_gives_the_same_lines_and_another_seed_others() -> None:
    plan = Plan(messages=300, plant={"dup": 1})
    assert (
        list(events(plan))
        == list(events(plan))
        != list(events(Plan(messages=300, seed=2, plant={"dup": 1})))
    )


def test_a_plan_without_room_or_sense_is_refused() -> None:
    for plan, says in (
        (Plan(messages=100, plant={"lost": 10}), "10 anomalies need"),
        (Plan(plant={"boredom": 1}), "cannot plant boredom"),
        (Plan(plant={"unsafe": 1}), "need brokers"),
        (Plan(locks=1, holds=4, overlaps=3), "3 overlaps need"),
    ):
        with pytest.raises(ValueError, match=says):
            list(events(plan))


def test_a_run_is_chosen_by_name() -> None:
    both = [
        *events(Plan(messages=50)),
        *({**event, "run": "other"} for event in events(Plan(messages=50))),
    ]
    assert check(both, Settings(run="other")).run == "other"
