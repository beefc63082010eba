"""What each health endpoint answers, as docs/console.md has it."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.console.health import CHECKS, alarms, backup, synced
from qpidha.console.looks import Backlog, Look
from qpidha.model.broker_states import STATES
from tests.console.consoles import member, status_of, table_of_health


def look(state: str, **fields: Any) -> Look:
    return Look("b1", status_of(state, **fields))


def test_every_endpoint_answers_for_every_state_as_the_table_says() -> None:
    found = {
        name: {
            state.value: "yes" if check(look(state, members=[member("2")])).is_yes else "no"
            for state in STATES
        }
        for name, check in {**CHECKS, "backup": backup}.items()
        if name != "livez"
    }
    told = {
        name: {state: cell.removesuffix(" if") for state, cell in row.items()}
        for name, row in table_of_health().items()
    }
    assert told == found and len(found) == 6


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_not_known_is_a_no_with_the_reason(name: str) -> None:
    verdict = CHECKS[name](Look("b1", None, "nobody listens", silent=1.0))
    assert not verdict.is_yes and "nobody listens" in verdict.text


def test_a_broker_that_is_late_hangs_after_the_bound_only() -> None:
    check = CHECKS["healthz"]
    assert check(Look("b1", None, "late", in_time=False, silent=4.9)).is_yes
    assert not check(Look("b1", None, "late", in_time=False, silent=5.1)).is_yes
    assert check(Look("b1", None, "late", in_time=False, silent=5.1, bound=20.0)).is_yes
    assert not check(Look("b1", None, "late", in_time=False, silent=float("inf"))).is_yes
    assert not CHECKS["primary"](Look("b1", None, "late", in_time=False, silent=0.1)).is_yes


def test_a_primary_is_synced_when_all_others_are_ready() -> None:
    own = member("1", "active")
    assert synced(look("active", members=[own, member("2"), member("3")])).is_yes
    for other in (
        member("3", "catchup", in_sync=False),
        member("3", "ready", in_sync=False),
        member("3", "unreachable", connected=False),
    ):
        verdict = synced(look("active", members=[own, member("2"), other]))
        assert not verdict.is_yes and "b3 is " in verdict.text and "b2" not in verdict.text
    assert not synced(look("active", members=[own])).is_yes


def test_a_backup_is_near_enough_or_not() -> None:
    behind = Look("b1", status_of("ready"), behind=10, age=1.5)
    assert backup(behind).is_yes and backup(behind, 10, 1.5).is_yes
    assert not backup(behind, 9).is_yes and not backup(behind, None, 1.4).is_yes
    assert "10 records behind" in backup(behind, 9).text


def test_a_backlog_knows_since_when_it_has_not_the_oldest_record() -> None:
    backlog = Backlog()

    def seen(there: int, here: int, now: float, epoch: int = 1) -> tuple[int, float]:
        members = [member("1"), member("2", "active", sequence=there, epoch=epoch)]
        primary = {"system_id": "2"}
        return backlog.look(status_of("ready", primary=primary, members=members, applied=here), now)

    assert seen(5, 5, 0.0) == (0, 0.0)
    assert seen(9, 5, 1.0) == (4, 0.0)
    assert seen(20, 8, 3.0) == (12, 2.0)
    assert seen(20, 9, 4.0) == (11, 1.0)
    assert seen(20, 20, 5.0) == (0, 0.0)
    assert seen(21, 20, 6.0) == (1, 0.0)
    assert seen(22, 20, 9.0, epoch=2) == (2, 0.0)
    alone = status_of("active", primary={"system_id": "1"}, members=[member("1")])
    assert backlog.look(alone, 10.0) == (0, 0.0)


def test_alarms_are_shown_with_their_reason() -> None:
    good = alarms({"refuses": "", "withholds": "", "waits": []})
    assert good == [(True, "publishing ok"), (True, "credit ok")]
    bad = alarms({"refuses": "no space", "withholds": "", "waits": [{"text": "for b2"}]})
    assert (False, "publishing no space") in bad and (False, "waits for b2") in bad
