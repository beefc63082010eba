"""The page of choices says what clusters do, and `qpidhad --check` says the same in a line."""

from __future__ import annotations

import pytest

from qpidha.model.choices import choice_text, sustained
from qpidha.model.settings import Settings
from qpidha.model.url import parse_url
from tests.ha.choices import Outcome, Way, built, killed, served
from tests.ha.choices_page import PAGE, page
from tests.ha.cluster_world import World, after


def test_the_page_says_what_the_experiments_say() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.ha.choices_page"


def settings(brokers: int, way: Way, at_least: int = 1) -> Settings:
    return Settings(
        ha_cluster=True,
        ha_brokers_url=parse_url(",".join(f"b{number}" for number in range(brokers))),
        ha_safety="trust-manager" if way is Way.TRUST else "strict",
        ha_recorder="manager" if way is Way.STORE else "brokers",
        ha_min_in_sync=at_least,
    )


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("brokers", range(1, 6))
def test_so_many_brokers_may_fail_and_no_more(brokers: int, way: Way) -> None:
    said = sustained(settings(brokers, way))
    world = built(way, brokers)
    for failed in range(1, brokers):
        killed(world, failed - 1)
        found = served(world, [failed])
        assert (found is Outcome.GOES_ON) == (failed <= said), failed
        if found is Outcome.WAITS:
            break


def test_with_a_minimum_in_sync_one_less_may_fail() -> None:
    assert sustained(settings(3, Way.TRUST, 2)) == 1
    world = World(3, safety="trust-manager", min_in_sync=2, durable=True, backup_timeout=1)
    assert after(world, world.machines[0]) == ""
    killed(world, 0)
    assert served(world, [1]) is Outcome.GOES_ON
    killed(world, 1)
    assert served(world, [2]) is Outcome.WAITS
    assert sustained(settings(3, Way.STRICT, 3)) == 0


@pytest.mark.parametrize(
    ("brokers", "way", "at_least", "text"),
    [
        (
            1,
            Way.STRICT,
            1,
            "1 broker, ha-safety=strict: when 1 has failed nothing is accepted until it is back",
        ),
        (
            2,
            Way.STRICT,
            1,
            "2 brokers, ha-safety=strict: when 1 has failed nothing is accepted until it is back",
        ),
        (
            3,
            Way.STRICT,
            1,
            "3 brokers, ha-safety=strict: it goes on when 1 has failed; when 2 have failed nothing "
            "is accepted until one of them is back",
        ),
        (
            2,
            Way.STORE,
            1,
            "2 brokers, ha-safety=strict, ha-recorder=manager: it goes on when 1 has failed and "
            "its manager's store can be changed",
        ),
        (
            3,
            Way.TRUST,
            1,
            "3 brokers, ha-safety=trust-manager: it goes on when 2 have failed; the manager has to "
            "fence: with two primaries, or one that had missed something, what was accepted is "
            "lost",
        ),
        (
            3,
            Way.STORE,
            2,
            "3 brokers, ha-safety=strict, ha-recorder=manager, ha-min-in-sync=2: it goes on when 1 "
            "has failed and its manager's store can be changed; when 2 have failed nothing is "
            "accepted until one of them is back",
        ),
    ],
)
def test_the_line(brokers: int, way: Way, at_least: int, text: str) -> None:
    assert choice_text(settings(brokers, way, at_least)) == text
