"""Verdicts merge as invalid over unknown over valid, and are written as one file and an exit
code.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.pipeline.oracle.engine import check
from qpidha.pipeline.segments import BadInput
from qpidha.pipeline.verdict import CheckResult, Verdict, merge
from tests.pipeline.builders import Story

VALIDS = st.sampled_from([True, False, None])


@given(st.lists(VALIDS))
def test_the_worst_counts(verdicts: list[bool | None]) -> None:
    rank = {True: 0, None: 1, False: 2}
    assert merge(verdicts) is (max(verdicts, key=lambda each: rank[each]) if verdicts else None)


@pytest.mark.parametrize(("valid", "code"), [(True, 0), (False, 1), (None, 2)])
def test_exit_codes_follow_the_verdict_and_what_does_not_apply_does_not_count(
    valid: bool | None, code: int
) -> None:
    results = [
        CheckResult("order", valid, True, {}, []),
        CheckResult("mutex", None, False, {}, ["nothing to judge"]),
    ]
    assert Verdict("r", results).exit_code == code
    assert Verdict("r", results[1:]).exit_code == 2


def test_the_file_has_its_shape_and_offenders_are_written_on_request(tmp_path: Path) -> None:
    story = Story()
    for u in range(1, 50):
        story.send(u)
    story.drain()
    verdict = story.judged()
    written = json.loads(verdict.write(tmp_path, all_offenders=True).read_text())
    assert set(written) == {"schema", "run", "valid", "checks", "inputs", "versions", "settings"}
    assert (written["schema"], written["run"], written["valid"]) == (1, "r", False)
    entry = next(each for each in written["checks"] if each["name"] == "total-queue")
    assert {"name", "valid", "counts", "reasons", "examples", "offenders"} <= set(entry)
    assert (
        entry["counts"]["lost"] == 49
        and len(entry["examples"]) == 20
        and entry["offenders"] == ["offenders/total-queue-lost.jsonl"]
    )
    rows = [
        json.loads(line) for line in (tmp_path / entry["offenders"][0]).read_text().splitlines()
    ]
    assert [row["seq"] for row in rows] == list(range(1, 50))
    mutex = next(each for each in written["checks"] if each["name"] == "mutex")
    assert mutex["valid"] == "unknown" and mutex["applies"] is False


def test_what_cannot_be_judged_is_bad_input() -> None:
    story = Story()
    story.send(1)
    with pytest.raises(BadInput, match="no such check: colour"):
        check(story.events, names=["colour"])
    story.run = "s"
    story.send(2)
    with pytest.raises(BadInput, match="two runs"):
        story.judged()
    assert story.judged(run="r")["total-queue"].counts["attempts"] == 1
